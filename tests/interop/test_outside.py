"""Functions of JAX and PyTorch as operations: values and derivatives of programs that call them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from other_libraries import jax_with_x64, pytorch

import adze as az
from adze.core import trees


def conversion(name: str) -> tuple[Callable[..., Any], Any]:
    """What makes an operation of a function, and the module with functions on arrays."""
    if name == "jax":
        return az.from_jax, jax_with_x64().numpy
    return az.from_torch, pytorch()


each_library = pytest.mark.parametrize("name", ["jax", "torch"])
ARGUMENTS = (np.array([0.5, -1.0, 2.0]), 2, 0.5)


@az.program
def written(x: az.Array[az.f64, "n"], k: az.i64, y: az.f64) -> az.f64:
    """What ``calling`` means."""
    return az.sum((az.sin(x) * y * k) ** 2) + az.sum(x * y) * (k + 1)


def calling(name: str) -> az.Program:
    convert, numpy = conversion(name)

    def outer(x: Any, k: Any, y: Any) -> Any:
        return numpy.sin(x) * y * k, k + 1, (x * y).sum()

    op = convert(outer, result=lambda x, k, y: (x, k, y))

    @az.program
    def calls(x: az.Array[az.f64, "n"], k: az.i64, y: az.f64) -> az.f64:
        waves, more, product = op(x, k, y)
        return az.sum(waves**2) + product * more

    return calls


def product(f: Any) -> Any:
    return az.program(lambda x, k, y: az.sum(az.grad(f)(x, k, y) ** 2))


VERBS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "value": lambda f: f,
    "evaluate": az.evaluate,
    "value_and_grad": lambda f: az.value_and_grad(f, argnums=(0, 2)),
    "jvp": lambda f: lambda x, k, y: az.jvp(f)(x, k, y, np.cos(x), 0.3),
    "hessian": az.hessian,
    "grad of grad": lambda f: az.grad(product(f)),
    "trace": lambda f: az.grad(f, via="trace"),
}


@pytest.mark.unguarded
@pytest.mark.parametrize("verb", VERBS)
@each_library
def test_programs(name: str, verb: str) -> None:
    found, expected = (VERBS[verb](f)(*ARGUMENTS) for f in (calling(name), written))
    (leaves, structure), (wanted, same) = trees.flatten(found), trees.flatten(expected)
    assert structure == same
    for one, other in zip(leaves, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.rest
@each_library
def test_types_and_structures(name: str) -> None:
    convert, numpy = conversion(name)
    single = convert(lambda x: numpy.cos(x), result=lambda x: x)
    x = np.array([1.0, 2.0], np.float32)
    assert az.program(lambda x: single(x))(x).dtype == np.float32
    np.testing.assert_allclose(az.grad(az.program(lambda x: az.sum(single(x))))(x), -np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(az.grad(az.program(lambda x: single(x)))(0.3), -np.sin(0.3))
    listed = convert(lambda x: [x, 2 * x], result=(az.f64, az.f64), name="listed")
    assert repr(listed) == "<operation listed>"
    np.testing.assert_allclose(az.grad(az.program(lambda x: listed(x)[0] * listed(x)[1]))(3.0), 12.0)
    rounded = convert(lambda x: numpy.round(x) > 1, result=az.Array[az.bool_, 2])
    assert az.program(lambda x: rounded(x))(np.array([0.2, 1.7])).tolist() == [False, True]
    masked = az.program(lambda x: az.sum(az.where(rounded(x), x * x, 0.0)))
    np.testing.assert_allclose(az.grad(masked)(np.array([0.2, 1.7])), [0.0, 3.4])
    assert az.jvp(masked)(np.array([0.2, 1.7]), np.ones(2))[1] == 3.4


@each_library
def test_inside_a_parallel_map(name: str) -> None:
    """From several threads at once, with derivatives in both modes."""
    convert, numpy = conversion(name)
    op = convert(lambda x: numpy.sin(x), result=lambda x: x)
    f = az.program(lambda x: az.sum(az.map(op, x)))
    x = np.arange(60.0).reshape(30, 2)
    np.testing.assert_allclose(az.grad(f)(x), np.cos(x), rtol=1e-12)
    tangent = az.program(lambda x: az.map(lambda row: az.jvp(lambda r: op(r), (row,), (row,))[1], x))
    np.testing.assert_allclose(tangent(x), np.cos(x) * x, rtol=1e-12)


def test_a_module() -> None:
    torch = pytorch()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    op = az.from_torch(module, result=lambda x: az.Array[az.f64, 1])
    assert repr(op) == "<operation Sequential>"
    f = az.program(lambda x: op(x)[0] ** 2)
    x = np.array([0.1, -0.4, 0.7])
    tensor = torch.from_numpy(x).requires_grad_()
    np.testing.assert_allclose(az.grad(f)(x), torch.autograd.grad(module(tensor)[0] ** 2, tensor)[0])
    with torch.no_grad():
        module[2].bias += 1  # what a call sees is what the parameters are then
    np.testing.assert_allclose(f(x), (module(tensor)[0] ** 2).item())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_parameters_of_a_module_as_arguments() -> None:
    torch = pytorch()
    module = torch.nn.Linear(2, 1, dtype=torch.float64)

    def called(weight: Any, x: Any) -> Any:
        return torch.func.functional_call(module, {"weight": weight}, (x,))

    f = az.program(lambda w, x: az.from_torch(called, result=az.Array[az.f64, 1])(w, x)[0])
    np.testing.assert_allclose(az.grad(f)(np.ones((1, 2)), np.array([3.0, 4.0])), [[3.0, 4.0]])


def test_numbers_of_64_bits_that_are_off_outside() -> None:
    jax = jax_with_x64()
    op = az.from_jax(jax.numpy.sin, result=lambda x: x)
    with jax.enable_x64(False):
        f = az.program(lambda x: az.sum(op(x)))
        assert az.grad(f)(np.array([0.1])) == np.cos(0.1) and not jax.config.jax_enable_x64
        assert az.grad(f)(np.array([0.1], np.float32)).dtype == np.float32


def test_back_in_its_own_library() -> None:
    jax = jax_with_x64()
    op = az.from_jax(jax.numpy.sin, result=lambda x: x)
    f = az.jax(az.program(lambda x: az.sum(op(x) * 2)))
    np.testing.assert_allclose(jax.jit(jax.grad(f))(np.array([0.1, 0.2])), 2 * np.cos([0.1, 0.2]))
    torch = pytorch()
    g = az.torch(az.program(lambda x: az.sum(az.from_torch(torch.sin, result=lambda x: x)(x))))
    x = torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True)
    np.testing.assert_allclose(torch.autograd.grad(g(x), x)[0], np.cos([0.1, 0.2]))


@each_library
def test_wrong_input(name: str) -> None:
    convert, numpy = conversion(name)
    with pytest.raises(TypeError, match=rf"from_{name} takes a function of arrays, not .*test_outside\.py"):
        convert(3, result=az.f64)
    wrong = convert(lambda x: numpy.sin(x), result=az.f64)
    with pytest.raises(TypeError, match=r"test_outside\.py"):
        az.program(lambda x: wrong(x))(np.ones(3))
    promised = convert(lambda x: numpy.sin(x)[:2], result=lambda x: x)
    with pytest.raises(TypeError, match=r"promised to give \(f64\[3\]\), but gave \(f64\[2\]\), at .*test_outside"):
        az.program(lambda x: promised(x))(np.ones(3))


def test_what_the_function_raises() -> None:
    jax = jax_with_x64()
    op = az.from_jax(lambda x: jax.numpy.reshape(x, (2, 2)), result=lambda x: x)
    with pytest.raises(TypeError, match="reshape") as raised:
        az.program(lambda x: op(x))(np.ones(3))
    assert any("test_outside.py" in note for note in raised.value.__notes__)
