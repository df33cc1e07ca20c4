"""Arrays from outside: masks are refused wherever arrays come in, other dtypes with what to write, and bytes turned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

X = np.arange(3.0)
MASKED = np.ma.array(X, mask=[False, True, False])


@az.program
def typed(x: az.Array[az.f64, "n"]):
    return x * 2.0


UNTYPED = az.program(lambda x: x * 2.0)


def inside(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Uses of a masked array that a program captures."""
    return lambda masked: az.evaluate(lambda x: (use(masked), x)[0])(X)


CALLS: dict[str, Callable[[Any], Any]] = {
    "program": typed,
    "without annotation": UNTYPED,
    "evaluate": az.evaluate(typed),
    "compiled": az.compile(typed),
    "bind": az.compile(typed).bind,
    "peak": az.compile(typed).peak_bytes,
    "instance": typed.at(),
    "trace": az.trace(UNTYPED),
    "gradient": az.grad(lambda x: az.sum(x)),
    "gradient of a trace": az.grad(lambda x: az.sum(x), via="trace"),
    "sparse": az.sparse_jacobian(UNTYPED),
    "tangent": lambda m: az.jvp(UNTYPED)(X, m),
    "tangent with a type": lambda m: az.jvp(typed)(X, m),
    "cotangent": lambda m: az.vjp(UNTYPED)(X, m),
    "cotangent of a pullback": lambda m: az.vjp(UNTYPED, X)[1](m),
    "cotangent of a trace": lambda m: az.vjp(UNTYPED, X, via="trace")[1](m),
    "tangent inside": inside(lambda m: az.jvp(UNTYPED, (X,), (m,))[1]),
    "cotangent inside": inside(lambda m: az.vjp(UNTYPED, X)[1](m)[0]),
    "list": lambda m: typed([1.0, np.ma.masked]),
    "nested list": lambda m: az.program(lambda x: x)([[m, X], [X, X]]),
    "out": lambda m: az.compile(typed)(X, out=m),
    "captured": inside(lambda m: az.ones(3) + m),
    "NumPy's function": inside(lambda m: np.add(m, az.ones(3))),
    "array": inside(lambda m: az.array(m)),
    "array of two": inside(lambda m: az.array([m, az.ones(3)])),
    "where": inside(lambda m: az.where(m > 1, az.ones(3), 0)),
    "indices": inside(lambda m: az.ones(3)[m.astype(int)]),
    "list of indices": inside(lambda m: az.ones(3)[[0, np.ma.masked]]),
    "places": inside(lambda m: az.scatter(az.ones(3), m.astype(int), [1.0, 2.0, 3.0])),
    "values": inside(lambda m: az.scatter(az.ones(3), [0, 1, 2], m)),
    "update": inside(lambda m: az.update(az.ones(3), slice(0, 3), m)),
    "neutral element": inside(lambda m: az.reduce(lambda a, b: a + b, m, az.ones((2, 3)))),
    "a foreign function's": lambda m: az.evaluate(lambda x: az.foreign("m", lambda v: m, az.Array[az.f64, 3])(x))(X),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("mask", [MASKED, np.ma.array(X)], ids=["masked", "no mask"])
def test_masked_arrays_are_refused(call: Callable[[Any], Any], mask: Any) -> None:
    before = mask.copy()
    with pytest.raises(TypeError, match=r"masked array, whose mask would be lost; give x\.filled.*test_host_arrays"):
        call(mask)
    assert np.array_equal(mask.data, before.data) and np.array_equal(mask.mask, before.mask)


@pytest.mark.parametrize(
    ("dtype", "instead"),
    [
        (np.float16, r"float16\W.*; convert it with x\.astype\(np\.float32\)"),
        (np.longdouble, r"(float128|longdouble)\W.*; convert it with x\.astype\(np\.float64\)"),
        (np.complex64, r"complex64\W.*; complex numbers are two arrays, x\.real and x\.imag"),
    ],
)
def test_dtypes_that_the_language_does_not_have(dtype: Any, instead: str) -> None:
    array = np.ones(3, dtype)
    for given in (array, array[0], array[None]):
        for call in (UNTYPED, lambda a: az.program(lambda x: x + a)(X)):
            with pytest.raises(TypeError, match=rf"{instead} \(at .*test_host_arrays"):
                call(given)
    declared = instead.replace("float32", "float64")
    for call in (typed, lambda a: az.vjp(UNTYPED)(X, a), lambda a: az.jvp(UNTYPED)(X, a)):
        with pytest.raises(TypeError, match=rf"is f64\[.*\], got .*{declared} \(at .*test_host_arrays"):
            call(array)


def test_complex_numbers() -> None:
    for call in (UNTYPED, typed, lambda z: az.program(lambda x: x * z)(X)):
        for given in (1j, [1j, 2.0]):
            with pytest.raises(TypeError, match=r"complex numbers are two arrays, x\.real and x\.imag"):
                call(given)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i8", ">i4"])
def test_any_byte_order(dtype: str) -> None:
    array = np.arange(3).astype(dtype)
    native = array.dtype.newbyteorder("=")
    for f in (az.program(lambda x: x + 1), az.program(lambda x: x[0] * 0 + array + 1)):
        result = az.evaluate(f)(array)
        assert result.dtype == native and np.array_equal(result, [1, 2, 3])
    assert az.program(lambda x: x + 1)(array[2]) == 3


@az.program
def declared_types(x: az.Array[az.i32, "n"]):
    return x.astype(np.float16)


def test_scalar_types_are_listed() -> None:
    with pytest.raises(
        TypeError, match=r"float16.* is not a scalar type of the language; there are f32, f64, i8, i16, i32"
    ):
        declared_types([1, 2])
