"""Programs as functions of tensors: what tensors are taken, what is refused, and what comes back."""

import copy
import inspect
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from other_libraries import pytorch
from tensor_programs import BY_NAME, FORMULAS, Formula, layer, mixed, numbers, picked, same

import adze as az
from adze.interop.tensors import as_array, as_tensor

torch = pytorch()


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_values(formula: Formula) -> None:
    same(az.torch(formula.program)(*formula.arguments()), formula.meaning(*formula.arguments()))


# Tensors


def test_memory_is_shared() -> None:
    tensor = numbers(2, 3).requires_grad_()
    for view in (tensor, tensor.T, tensor[:1].expand(4, 3), tensor[:, ::2]):
        array = as_array(view)
        assert array.ctypes.data == view.data_ptr() and array.shape == tuple(view.shape)
        assert tuple([stride // 8 for stride in array.strides]) == view.stride()
    array = np.arange(3.0)
    assert as_tensor(array).data_ptr() == array.ctypes.data


def test_results_are_no_arguments() -> None:
    x = numbers(3)
    before = x.clone()
    first, second, element = az.torch(lambda x: (x, x, x[0]))(x)
    assert len({x.data_ptr(), first.data_ptr(), second.data_ptr(), element.data_ptr()}) == 4
    first[:], element[()] = 7.0, 8.0
    same((x, second), (before, before))


VIEWS = {
    "expanded": lambda: numbers(1).expand(4),
    "of stride two": lambda: numbers(8)[::2],
    "column": lambda: numbers(4, 3)[:, 1],
    "flipped": lambda: numbers(4).flip(0),
    "empty": lambda: numbers(0),
    "negated": lambda: torch.imag(torch.conj(torch.complex(numbers(4), numbers(4, seed=1)))),
    "of a parameter": lambda: torch.nn.Parameter(numbers(4)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str) -> None:
    x = VIEWS[view]().detach().requires_grad_()
    found = az.torch(lambda x: az.cumsum(az.sin(x)))(x)
    same(found, torch.cumsum(torch.sin(x), 0))
    expanded = torch.ones(1, dtype=torch.float64).expand_as(x)
    same(torch.autograd.grad(found, x, expanded), torch.autograd.grad(torch.cumsum(torch.sin(x), 0), x, expanded))


def test_transposed() -> None:
    w, b, x = BY_NAME["layer"].arguments()
    same(az.torch(layer)(w.T.contiguous().T, b, x.T.contiguous().T), torch.tanh(x @ w.T + b))


@pytest.mark.unguarded
@pytest.mark.parametrize("size", [0, 1, 3])
def test_empty_arrays_and_batches(size: int) -> None:
    w, b = numbers(3, 2), numbers(3)
    x = numbers(size, 2).requires_grad_()
    found = az.torch(layer)(w, b, x)
    same(found, torch.tanh(x @ w.T + b))
    same(torch.autograd.grad(found.sum(), x), torch.autograd.grad(torch.tanh(x @ w.T + b).sum(), x))
    batched = torch.vmap(az.torch(layer), (None, None, 0))(w, b, numbers(size, 1, 2))
    assert batched.shape == (size, 1, 3)


@pytest.mark.parametrize("name", ["f64", "f32", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool_"])
def test_scalar_types(name: str) -> None:
    kind = getattr(torch, {"f": "float", "i": "int", "u": "uint", "b": "bool"}[name[0]] + name[1:].strip("ol_"))
    tensor = torch.tensor([0, 1, 1, 0]).to(kind)
    found = az.torch(lambda x: (x, x[1]))(tensor)
    assert [part.dtype for part in found] == [kind, kind]
    assert found[0].tolist() == tensor.tolist() and found[1].item() == tensor[1].item()


def test_single_precision_has_derivatives() -> None:
    x = numbers(3).float().requires_grad_()
    found = az.torch(lambda x: az.sum(az.sin(x)))(x)
    same(torch.autograd.grad(found, x), (torch.cos(x),))


def test_numbers_and_static_parameters() -> None:
    @az.program
    def scaled(x: az.Array[az.f64, "n"], times: int, shift: az.f64 = 0.5):
        return x * times + shift

    x, f = numbers(3), az.torch(scaled)
    same(f(x, 3), x * 3 + 0.5)
    same(f(x, times=2, shift=1), x * 2 + 1)
    same(f(x, 2, np.float64(0.25)), x * 2 + 0.25)
    same(f(x, 2, shift=numbers()), x * 2 + numbers())


def test_numbers_are_rounded_to_single_precision() -> None:
    """As PyTorch does, where calls with arrays refuse what would lose something."""

    @az.program
    def shifted(x: az.Array[az.f32, "n"], shift: az.f32):
        return x + shift

    x = numbers(3).float()
    same(az.torch(shifted)(x, 0.1), x + 0.1)
    same(az.torch(shifted)(x, 2), x + 2)


@az.data
class Line:
    slope: az.f64
    offsets: az.Array[az.f64, "n"]


def test_structures() -> None:
    @az.program
    def moved(x: {"x": az.Array[az.f64, "n"]}, line: Line):
        return [x["x"] * line.slope + line.offsets, {"slope": line.slope * 2}]

    slope, offsets, x = numbers().requires_grad_(), numbers(3, seed=1), numbers(3, seed=2)
    found = az.torch(moved)({"x": x}, Line(slope, offsets))
    same(found, [x * slope + offsets, {"slope": slope * 2}])
    same(torch.autograd.grad(found[0].sum(), slope), (x.sum(),))


def test_what_the_program_leaves_open_tensors_choose() -> None:
    f = az.torch(lambda x: az.sum(x * x))
    for tensor in (numbers(3), numbers(2, 3), numbers(3).float(), torch.tensor([1, 2])):
        found = f(tensor)
        assert found.dtype is tensor.dtype
        torch.testing.assert_close(found, torch.sum(tensor * tensor) if tensor.ndim == 1 else found)
    assert f(numbers(2, 3)).shape in ((3,), ())


def test_versions_and_programs_without_arguments() -> None:
    f = az.torch(BY_NAME["layer"].program.at())
    same(f(*BY_NAME["layer"].arguments()), az.torch(layer)(*BY_NAME["layer"].arguments()))
    with pytest.raises(TypeError, match=r"'x' is f32, got a tensor of torch\.float64"):
        az.torch(az.program(lambda x: x + 1).at(az.f32))(numbers())
    same(az.torch(lambda: az.ones(3))(), torch.ones(3, dtype=torch.float64))


# Devices, seen without one: tensors that have a shape, a type and a device alone


def test_another_device() -> None:
    with torch._subclasses.FakeTensorMode():
        tensor = torch.empty(3, dtype=torch.float64, device="cuda")
        with pytest.raises(ValueError, match=r"'x' is a tensor on cuda:0; .*x\.cpu\(\).*copy=True\) \(at .*test_torch"):
            az.torch(lambda x: az.sum(x))(tensor)
        found = az.torch(lambda x, y: (az.sum(x), x * y), copy=True)(tensor, torch.empty((), dtype=torch.float64))
        assert [part.device for part in found] == [tensor.device] * 2
        assert [tuple(part.shape) for part in found] == [(), (3,)]
        other = torch.empty(3, dtype=torch.float64, device="xpu")
        with pytest.raises(ValueError, match="another argument is on another device"):
            az.torch(lambda x, y: x + y, copy=True)(tensor, other)


def test_tensors_without_memory() -> None:
    found = az.torch(layer)(*[tensor.to("meta") for tensor in BY_NAME["layer"].arguments()])
    assert found.device.type == "meta" and found.shape == (3, 2) and found.dtype is torch.float64
    assert az.torch(lambda t, x: t * x)(2.0, numbers(3).to("meta")).device.type == "meta"


# Wrong input, with the user's line

VECTOR = torch.ones(3, dtype=torch.float64)
WRONG = {
    "dtype": (lambda f: f(torch.ones(2, 3), VECTOR), TypeError,
              r"'a' is f64\[n, m\], got a tensor of torch.float32 with .*; convert it with x.to\(torch.float64\)"),
    "half": (lambda f: f(torch.ones(2, 3).bfloat16(), VECTOR), TypeError, "bfloat16 .*; convert it with x.to"),
    "integers": (lambda f: f(torch.ones(2, 3).long(), VECTOR), TypeError, r"int64 .*x\.to\(torch\.float64\)"),
    "complex": (lambda f: f(torch.ones(2, 3) + 1j, VECTOR), TypeError, r"complex64 .*x\.real and x\.imag"),
    "rank": (lambda f: f(VECTOR, VECTOR), TypeError, r"'a' is f64\[n, m\], got a tensor of torch.float64 with shape"),
    "sizes": (lambda f: f(torch.stack([VECTOR], 1), VECTOR), ValueError, "m is 1 in argument 'a' .*, but 3"),
    "array": (lambda f: f(np.ones((2, 3)), VECTOR), TypeError, r"a value of type ndarray; give torch\.from_numpy\(x\)"),
    "list": (lambda f: f([[1.0]], VECTOR), TypeError, "a value of type list"),
    "nothing": (lambda f: f(None, VECTOR), TypeError, "a value of type NoneType"),
    "missing": (lambda f: f(VECTOR), TypeError, "missing: x"),
    "too many": (lambda f: f(VECTOR, VECTOR, VECTOR), TypeError, "takes 2 argument"),
    "sparse": (lambda f: f(torch.eye(3, dtype=torch.float64).to_sparse(), VECTOR), TypeError, r"give x"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_input(wrong: str) -> None:
    @az.program
    def product(a: az.Array[az.f64, "n m"], x: az.Array[az.f64, "m"]):
        return a @ x

    call, error, message = WRONG[wrong]
    with pytest.raises(error, match=message) as raised:
        call(az.torch(product))
    line = inspect.getsourcelines(call)[1]
    assert any(f"(at {__file__}:{line + more})" in str(raised.value) for more in (0, 1))


def test_wrong_input_without_annotations() -> None:
    with pytest.raises(TypeError, match=r"torch\.float16 is not .*; convert it .*float32\) \(at .*test_torch"):
        az.torch(lambda x: x)(torch.ones(3).half())


def test_a_number_that_does_not_fit() -> None:
    with pytest.raises(TypeError, match=r"'k' is i64, got the number 2\.5"):
        az.torch(mixed)(numbers(2), 2.5, torch.tensor([True, False]))


def test_what_fails_in_the_run_names_the_line_of_the_program() -> None:
    with pytest.raises(IndexError, match=r"index 7 is out of range for axis 0 .*leaf_programs\.py"):
        az.torch(picked)(numbers(3, 2), torch.tensor([0, 7]))


def test_values_that_are_no_tensors() -> None:
    @az.program
    def applied(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
        return f(x)

    with pytest.raises(TypeError, match=r"'f' is \(f64\) -> f64, which no tensor is \(at .*test_torch"):
        az.torch(applied)(lambda x: x, 1.0)
    with pytest.raises(TypeError, match=r"gives a value of type \(f64\) -> f64, which no tensor is \(at .*test_torch"):
        az.torch(lambda x: az.function(lambda y: x * y, az.f64))(numbers())


# Options, copies, threads


def test_options() -> None:
    same(az.torch(layer, threads=1)(*BY_NAME["layer"].arguments()), az.torch(layer)(*BY_NAME["layer"].arguments()))
    with pytest.raises(ValueError, match="at least one thread"):
        az.torch(layer, threads=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fast'"):
        az.torch(layer, fast=True)
    with pytest.raises(TypeError, match="runs a program, and is none"):
        az.torch(az.compile(layer))


@pytest.mark.usefixtures("opencl")
def test_on_opencl() -> None:
    formula = BY_NAME["layer"]
    run, moving = formula.fixed(az.torch(layer, backend="opencl")), formula.moving(True)
    same(run(*moving), formula.fixed(formula.meaning)(*moving))
    expected = torch.autograd.grad(formula.fixed(formula.meaning)(*moving)[0].sum(), moving)
    same(torch.autograd.grad(run(*moving)[0].sum(), moving), expected)


def test_operators_are_one_for_equal_programs() -> None:
    x = numbers(3)

    def made(factor: float, **options: Any) -> Any:
        return az.torch(lambda x: x * factor, **options).operator(x)

    assert made(2.0) is made(2.0)
    assert len({made(2.0), made(3.0), made(2.0, threads=1)}) == 3


def test_copies_and_pickles() -> None:
    f, arguments = az.torch(layer, threads=1), BY_NAME["layer"].arguments()
    for other in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert other.program is layer and other.options == {"threads": 1}
        same(other(*arguments), f(*arguments))
    assert repr(f) == f"<torch {layer!r}>"


def test_threads_that_ask_at_once() -> None:
    x = numbers(50)
    f = az.torch(lambda x: az.sum(az.exp(x) * x))
    found: list[Any] = []

    def work() -> None:
        own = x.clone().requires_grad_()
        f(own).backward()
        found.append(own.grad)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for gradient in found:
        same(gradient, torch.exp(x) * (1 + x))
