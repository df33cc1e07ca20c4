"""Programs as functions of JAX's arrays: what arrays are taken, what is refused, and what comes back."""

import importlib
import inspect
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from array_programs import BY_NAME, FORMULAS, Formula, jax, jnp, layer, mixed, numbers, picked, same, scalars
from leaf_programs import positive

import adze as az


@pytest.mark.unguarded
@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_values(formula: Formula) -> None:
    same(az.jax(formula.program)(*formula.arguments()), formula.meaning(*formula.arguments()))


def test_in_a_jit() -> None:
    w, b, x = BY_NAME["layer"].arguments()
    f = az.jax(layer)
    same(jax.jit(lambda x: f(w, b, jnp.sin(x)) + 1)(x), jnp.tanh(jnp.sin(x) @ w.T + b) + 1)
    same(jax.jit(f)(w.T.copy().T, b, x.T), jnp.tanh(x.T @ w.T + b))
    shape = jax.eval_shape(f, w, b, x)
    assert shape.shape == (3, 2) and shape.dtype == jnp.float64


@pytest.mark.unguarded
@pytest.mark.parametrize("size", [0, 1, 3])
def test_empty_arrays_and_batches(size: int) -> None:
    w, b, x = numbers(3, 2), numbers(3), numbers(size, 2)
    f = az.jax(layer)
    same(f(w, b, x), jnp.tanh(x @ w.T + b))
    same(jax.grad(lambda x: f(w, b, x).sum())(x), jax.grad(lambda x: jnp.tanh(x @ w.T + b).sum())(x))
    same(jax.vmap(f, (None, None, 0))(w, b, x[:, None]), jnp.tanh(x[:, None] @ w.T + b))


@pytest.mark.parametrize("name", ["f64", "f32", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool_"])
def test_scalar_types(name: str) -> None:
    array = jnp.asarray([0, 1, 1, 0]).astype(getattr(az, name).dtype)
    found = az.jax(lambda x: (x, x[1]))(array)
    same(found, (array, array[1]))


def test_single_precision_has_derivatives() -> None:
    x = numbers(3).astype("float32")
    same(jax.grad(az.jax(lambda x: az.sum(az.sin(x))))(x), jnp.cos(x))


def test_numbers_and_static_parameters() -> None:
    @az.program
    def scaled(x: az.Array[az.f64, "n"], times: int, shift: az.f64 = 0.5):
        return x * times + shift

    x, f = numbers(3), az.jax(scaled)
    same(f(x, 3), x * 3 + 0.5)
    same(f(np.asarray(x), times=2, shift=1), x * 2 + 1)
    same(f(x, 2, np.float64(0.25)), x * 2 + 0.25)
    same(jax.grad(lambda shift: f(x, 2, shift=shift).sum())(0.1), jnp.asarray(3.0))


def test_numbers_are_rounded_to_single_precision() -> None:
    """As JAX does, where calls with arrays refuse what would lose something."""

    @az.program
    def shifted(x: az.Array[az.f32, "n"], shift: az.f32):
        return x + shift

    x = numbers(3).astype("float32")
    same(az.jax(shifted)(x, 0.1), x + 0.1)
    same(jax.jit(az.jax(shifted))(x, 2), x + 2)
    same(jax.grad(lambda shift: az.jax(shifted)(x, shift).sum())(0.1), jnp.asarray(3.0))
    with pytest.raises(TypeError, match=r"'k' is i64, got an array of float64"):
        jax.jit(az.jax(mixed))(numbers(2), 2.0, jnp.asarray([True, False]))


def test_structures() -> None:
    @az.program
    def moved(x: {"x": az.Array[az.f64, "n"]}, line: (az.f64, az.Array[az.f64, "n"])):
        return [x["x"] * line[0] + line[1], {"slope": line[0] * 2}]

    slope, offsets, x = numbers(), numbers(3, seed=1), numbers(3, seed=2)
    f = az.jax(moved)
    same(f({"x": x}, (slope, offsets)), [x * slope + offsets, {"slope": slope * 2}])
    same(jax.grad(lambda line: f({"x": x}, line)[0].sum())((slope, offsets)), (x.sum(), jnp.ones(3)))


def test_what_the_program_leaves_open_arrays_choose() -> None:
    f = az.jax(lambda x: az.sum(x * x, 0))
    for array in (numbers(3), numbers(2, 3), numbers(3).astype("float32"), jnp.asarray([1, 2])):
        same(f(array), jnp.sum(array * array, 0))


def test_versions_and_programs_without_arguments() -> None:
    same(az.jax(scalars.at())(0.5, 2.0), jnp.asarray(np.sin(0.5) * 8))
    same(az.jax(lambda: az.ones(3))(), jnp.ones(3))
    assert "ones" not in repr(az.jax(layer)) and repr(az.jax(layer)).startswith("<jax ")


def test_results_are_no_arguments() -> None:
    x = numbers(3)
    first, second = jax.jit(az.jax(lambda x: (x, x)), donate_argnums=0)(x + 0)
    same((first, second), (x, x))


# Wrong input, with the user's line

VECTOR = jnp.ones(3)
WRONG = {
    "dtype": (lambda f: f(jnp.ones((2, 3), "float32"), VECTOR), TypeError,
              r"'a' is f64\[n, m\], got an array of float32 with shape .*; convert it with x.astype\('float64'\)"),
    "half": (lambda f: f(jnp.ones((2, 3), "bfloat16"), VECTOR), TypeError, "bfloat16 .*; convert it with x.astype"),
    "integers": (lambda f: f(jnp.ones((2, 3), int), VECTOR), TypeError, r"int64 .*x\.astype\('float64'\)"),
    "complex": (lambda f: f(jnp.ones((2, 3)) + 1j, VECTOR), TypeError, r"complex128 .*x\.real and x\.imag"),
    "rank": (lambda f: f(VECTOR, VECTOR), TypeError, r"'a' is f64\[n, m\], got an array of float64 with shape \(3,\)"),
    "sizes": (lambda f: f(VECTOR[:, None], VECTOR), ValueError, "m is 1 in argument 'a' .*, but 3"),
    "vmap": (lambda f: jax.vmap(f)(jnp.ones((3, 2, 2)), jnp.ones((3, 3))), ValueError, "m is 2 in argument 'a'.*but 3"),
    "mapped rank": (lambda f: jax.vmap(f)(jnp.ones((3, 2)), jnp.ones((3, 3))), TypeError, r"got .* shape \(2,\)"),
    "list": (lambda f: f([[1.0]], VECTOR), TypeError, r"a value of type list; give jax\.numpy\.asarray\(x\)"),
    "nothing": (lambda f: f(None, VECTOR), TypeError, "a value of type NoneType"),
    "missing": (lambda f: f(VECTOR), TypeError, "missing: x"),
    "too many": (lambda f: f(VECTOR, VECTOR, VECTOR), TypeError, "takes 2 argument"),
    "in a jit": (lambda f: jax.jit(f)(VECTOR[:, None], VECTOR), ValueError, "m is 1 in argument 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_input(wrong: str) -> None:
    @az.program
    def product(a: az.Array[az.f64, "n m"], x: az.Array[az.f64, "m"]):
        return a @ x

    call, error, message = WRONG[wrong]
    with pytest.raises(error, match=message) as raised:
        call(az.jax(product))
    line = inspect.getsourcelines(call)[1]
    assert any(f"(at {__file__}:{line + more})" in str(raised.value) for more in (0, 1))


def test_wrong_input_without_annotations() -> None:
    with pytest.raises(TypeError, match=r"float16 is not .*; convert it .*'float32'\) \(at .*test_jax"):
        az.jax(lambda x: x)(jnp.ones(3, "float16"))
    with pytest.raises(TypeError, match=r"'k' is i64, got the number 2\.5"):
        az.jax(mixed)(numbers(2), 2.5, jnp.asarray([True, False]))


def test_numbers_of_64_bits_that_are_off() -> None:
    with jax.enable_x64(False):
        x = jnp.ones(3)
        with pytest.raises(TypeError, match=r"'x' is f64\[n\], got an array of float32 .*jax_enable_x64.*test_jax"):
            az.jax(positive)(x)
        with pytest.raises(TypeError, match=r"'x' is f64, which JAX does not have now: call jax\.config\.update"):
            az.jax(scalars)(1.0, 2.0)
        with pytest.raises(TypeError, match=r"a value of type i64, which JAX does not have now"):
            az.jax(lambda x: az.argmax(x))(x)
        assert az.jax(lambda x: az.sum(az.sin(x)))(x).dtype == jnp.float32
        assert jax.grad(az.jax(lambda x: az.sum(az.sin(x))))(x).dtype == jnp.float32


def test_sizes_that_the_run_decides() -> None:
    for call in (lambda f: f(numbers(3)), lambda f: jax.jit(f)(numbers(3))):
        with pytest.raises(ValueError, match=r"positive: the run decides the size of a result of type f64\[.*test_jax"):
            call(az.jax(positive))


def test_symbolic_shapes() -> None:
    export = importlib.import_module("jax.export")
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float64)
    with pytest.raises(TypeError, match=r"'x' is f64\[x_0\], got an array of the symbolic shape \(n,\).*test_jax\.py"):
        export.export(jax.jit(az.jax(lambda x: az.sum(x))))(shape)


@pytest.mark.rest
def test_what_fails_in_the_run_names_the_line_of_the_program() -> None:
    f = az.jax(picked)
    table, rows = numbers(3, 2), jnp.asarray([0, 7])
    for run, given in ((f, rows), (jax.jit(f), rows), (jax.jit(jax.vmap(f, (None, 0))), rows[None])):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"index 7 is out of range for axis 0 .*leaf_programs\.py"):
            jax.block_until_ready(run(table, given))
        found = run(table, given % 3)  # after a failure as before
        same(found.reshape(-1), BY_NAME["picked"].meaning(table, rows % 3))


def test_what_an_operation_raises() -> None:
    def fail(x: Any) -> Any:
        raise LookupError("nothing there")

    f = az.jax(lambda x: az.operation("failing", numpy=fail, result=lambda x: x)(x))
    with pytest.raises(jax.errors.JaxRuntimeError, match="nothing there"):
        jax.block_until_ready(jax.jit(f)(numbers(3)))


def test_values_that_are_no_arrays() -> None:
    @az.program
    def applied(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
        return f(x)

    with pytest.raises(TypeError, match=r"'f' is \(f64\) -> f64, which no array of JAX is \(at .*test_jax"):
        az.jax(applied)(lambda x: x, 1.0)
    with pytest.raises(TypeError, match=r"a value of type \(f64\) -> f64, which no array of JAX is \(at .*test_jax"):
        az.jax(lambda x: az.function(lambda y: x * y, az.f64))(numbers())


# Options, copies, threads


def test_options() -> None:
    same(az.jax(scalars, threads=1)(0.5, 2.0), az.jax(scalars)(0.5, 2.0))
    with pytest.raises(ValueError, match="at least one thread"):
        az.jax(layer, threads=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fast'"):
        az.jax(layer, fast=True)
    with pytest.raises(TypeError, match="runs a program, and is none"):
        az.jax(az.compile(layer))


@pytest.mark.usefixtures("opencl")
def test_on_opencl() -> None:
    w, b, x = BY_NAME["layer"].arguments()
    same(az.jax(layer, backend="opencl")(w, b, x), jnp.tanh(x @ w.T + b))


def test_pickled() -> None:
    same(pickle.loads(pickle.dumps(az.jax(az.linalg.norm)))(VECTOR), jnp.sqrt(jnp.asarray(3.0)))


def test_many_threads() -> None:
    """Calls of one function from several threads at once, of XLA's and of Python's."""
    f = az.jax(BY_NAME["recurrence"].program)
    run = jax.jit(lambda x: [f(x * k, k / 10) for k in range(1, 5)])
    meaning = BY_NAME["recurrence"].meaning
    x = numbers(2000)
    expected = [float(meaning(x * k, k / 10)) for k in range(1, 5)]
    found: list[Any] = [None] * 4

    def work(number: int) -> None:
        found[number] = [[float(each) for each in run(x)] for _ in range(20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_allclose(each, [expected] * 20, rtol=1e-12)
