"""What is called by NumPy's name means what NumPy means: values, shapes and types, for every function that answers.

Each function of NumPy that takes expressions is called with numbers by NumPy, and as a program: over scalar types,
shapes with empty ones, axes from both ends, and the arguments that it has. Where NumPy's type is a floating one that
the language does not use there (float16, and float32 of small integers), or NumPy refuses, nothing is compared but
values. What differs on purpose is in ``APART``.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some
from versions import newest

import adze as az
from adze.core.numpy_calls import NUMPY
from adze.core.primitive import MEANINGS
from adze.core.types import scalar_of

pytestmark = pytest.mark.unguarded

# As of now: examples that other tests run make primitives of NumPy's functions, too
ANSWERING = {f.__name__ for f in [*MEANINGS, *NUMPY] if getattr(np, f.__name__, None) is f}

TYPES = [np.dtype(name) for name in ("f8", "f4", "i8", "i4", "u1", "u8", "?")]
MIXED = [("f8", "f4"), ("f4", "i4"), ("f4", "i8"), ("i4", "i8"), ("i4", "f8"), ("?", "f4"), ("i4", "?"), ("?", "f8")]
MIXED += [("u1", "i1"), ("i2", "u2"), ("u4", "i4"), ("u8", "i8"), ("u1", "?"), ("i1", "f4"), ("u8", "f4"), ("i2", "u4")]
SHAPES: list[tuple[int, ...]] = [(), (5,), (0,), (3, 4), (0, 3), (2, 3, 4)]

Call = Callable[..., Any]


def filled(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """Quarters of small integers, positive and negative where there is a sign, with ties."""
    numbers = np.random.default_rng([seed, *shape]).integers(-9, 10, shape)
    if np.dtype(dtype).kind == "u":
        return abs(numbers).astype(dtype)[()]
    if np.dtype(dtype).kind == "f":
        return (numbers / 4).astype(dtype)[()]
    return (numbers % 2 == 0 if np.dtype(dtype).kind == "b" else numbers).astype(dtype)[()]


def as_program(call: Call, count: int) -> Any:
    """A call of one array or of two as a program."""
    return az.program((lambda a: call(a)) if count == 1 else (lambda a, b: call(a, b)))


def agrees(call: Call, *arrays: Any, rounded: bool = False) -> None:
    """The call as a program gives what it gives in NumPy; an error of NumPy's is an error there, or has a value."""
    with np.errstate(all="ignore"):
        try:
            wanted = call(*arrays)
        except (TypeError, ValueError, IndexError, OverflowError):
            return
        try:
            got = az.evaluate(as_program(call, len(arrays)))(*arrays)
        except ValueError as error:
            # NumPy lets a number have an axis 0.
            assert np.ndim(arrays[0]) == 0 and "of a value of type" in str(error)
            return
        except OverflowError as error:
            # NumPy clips by Python numbers that the type does not hold.
            assert arrays[0].dtype.kind == "u" and "the number -1 does not fit u" in str(error)
            return
    several = isinstance(wanted, tuple)
    pairs = zip(got, wanted, strict=True) if several else [(got, wanted)]
    for mine, theirs in pairs:
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        assert mine.shape == theirs.shape
        small = theirs.dtype == np.float32 and all(np.asarray(x).dtype in ("i1", "u1", "i2", "u2") for x in arrays)
        known = scalar_of(theirs.dtype) is not None and not small
        if known:
            assert mine.dtype == theirs.dtype
        inexact = theirs.dtype.kind == "f" and (rounded or not known)
        eps = float(np.finfo(theirs.dtype).eps) if inexact else 0.0
        np.testing.assert_allclose(mine, theirs, rtol=32 * eps, atol=8 * eps)


# Functions of elements


ELEMENTWISE = [f for f in [*MEANINGS, *NUMPY] if isinstance(f, np.ufunc) and f.signature is None]
# An integer shifted by a negative number, or divided by zero, is what the machine makes of it in NumPy.
SAFE = {np.left_shift: abs, np.right_shift: abs, np.power: abs}
DIVIDING = (np.floor_divide, np.remainder, np.fmod, np.divmod)


@pytest.mark.parametrize("function", ELEMENTWISE, ids=lambda f: f.__name__)
def test_functions_of_elements(function: np.ufunc) -> None:
    kinds = [(t,) * function.nin for t in TYPES] + (MIXED if function.nin == 2 else [])
    shapes = [((3, 4), (4,)), ((0,), (0,))] if function.nin == 2 else [((3, 4),), ((0,),), ((),)]
    for given, these in itertools.product(kinds, shapes):
        arrays = [filled(shape, dtype, k) for k, (shape, dtype) in enumerate(zip(these, given, strict=True))]
        if function is np.reciprocal and arrays[0].dtype.kind in "iub":
            with pytest.raises(TypeError, match="reciprocal of integers"):
                az.evaluate(az.program(lambda a: np.reciprocal(a)))(*arrays)
            continue
        if np.result_type(*given).kind in "iu" and function in SAFE:
            arrays[1] = SAFE[function](arrays[1])
        if np.result_type(*given).kind in "iub" and function in DIVIDING:
            arrays[1] = np.where(arrays[1] == 0, 1, arrays[1]).astype(arrays[1].dtype)
        agrees(newest(function), *arrays, rounded=True)


# Functions of arrays: how each is called, with an array that has at least so many axes

AXES = (None, 0, -1, 1)


def over(function: Any, axes: Any = AXES, **more: Any) -> list[Call]:
    """Calls along axes, with axes kept."""
    calls = [lambda x, axis=axis: function(x, axis=axis, **more) for axis in axes]
    return calls


def kept(function: Any) -> list[Call]:
    """Calls along axes, by position and by name, whose axes go away or are kept."""
    found = over(function) + over(function, (None, 0, -1), keepdims=True)
    return [*found, lambda x: function(x, 0), lambda x: function(x, (0, 1)), lambda x: function(x, axis=(-1, 0))]


def typed(function: Any) -> list[Call]:
    """Calls with a type, by name and by position."""
    dtypes = (np.int32, np.float32, np.float64, np.int64)
    return [
        *[lambda x, dtype=dtype: function(x, axis=0, dtype=dtype) for dtype in dtypes],
        lambda x: function(x, 0, np.float32),
        lambda x: function(x, None, np.float64),
    ]


def places(x: Any) -> Any:
    return np.arange(x.shape[-1] or 1) % (x.shape[-1] or 1)


PADS: list[Call] = [
    lambda x: np.pad(x, 1),
    lambda x: np.pad(x, (2, 0), constant_values=3),
    lambda x: np.pad(x, 2, constant_values=(1, 2)),
    lambda x: np.pad(x, (7, 9), "edge"),
    *[lambda x, mode=mode: np.pad(x, (1, 2), mode=mode) for mode in ("reflect", "symmetric", "wrap")],
    *[lambda x, mode=mode: np.pad(x, (11, 17), mode=mode) for mode in ("reflect", "symmetric", "wrap")],
    lambda x: np.pad(x, 0, "reflect"),
    lambda x: np.pad(x, [(1, 2)] * x.ndim, "symmetric"),
]

CALLS: dict[Any, list[Call]] = {
    np.all: kept(np.all),
    np.any: kept(np.any),
    np.argmax: over(np.argmax) + over(np.argmax, keepdims=True),
    np.argmin: over(np.argmin) + over(np.argmin, keepdims=True),
    np.argsort: [*over(lambda x, axis: np.argsort(x, axis=axis, kind="stable"))],
    np.around: [lambda x: np.around(x), lambda x: np.around(x, 1), lambda x: np.around(x, -1)],
    np.bincount: [
        lambda x: np.bincount(abs(x)),
        lambda x: np.bincount(abs(x), minlength=20),
        lambda x: np.bincount(abs(x), x * 0.5),
        lambda x: np.bincount(abs(x), x.astype(np.float32)),
        lambda x: np.bincount(abs(x), weights=x),
    ],
    np.broadcast_to: [lambda x: np.broadcast_to(x, (2, *x.shape))],
    np.clip: [lambda x: np.clip(x, -1, 1), lambda x: np.clip(x, None, 0), lambda x: np.clip(x, a_min=0, a_max=None)],
    np.concatenate: [
        lambda x: np.concatenate([x, x]),
        lambda x: np.concatenate((x, x), axis=-1),
        lambda x: np.concatenate([x, x], None),
    ],
    np.convolve: [
        *[lambda x, mode=mode: np.convolve(x, x[:3], mode) for mode in ("full", "same", "valid")],
        *[lambda x, mode=mode: np.convolve(x[:2], x, mode=mode) for mode in ("full", "same", "valid")],
        lambda x: np.convolve(x[1:], [1, 2, 3, 4]),
    ],
    np.correlate: [
        *[lambda x, mode=mode: np.correlate(x, x[:3], mode) for mode in ("full", "same", "valid")],
        *[lambda x, mode=mode: np.correlate(x[:2], x, mode=mode) for mode in ("full", "same", "valid")],
        *[lambda x, mode=mode: np.correlate(x[:3], x, mode=mode) for mode in ("full", "same", "valid")],
        lambda x: np.correlate(x, x[1:]),
    ],
    np.count_nonzero: over(np.count_nonzero) + over(np.count_nonzero, (None, 0), keepdims=True),
    np.cumprod: over(np.cumprod) + typed(np.cumprod),
    np.cumsum: over(np.cumsum) + typed(np.cumsum),
    np.diag: [lambda x: np.diag(x), lambda x: np.diag(x, 1), lambda x: np.diag(x, k=-2), lambda x: np.diag(x, 9)],
    np.diagonal: [
        lambda x: np.diagonal(x),
        lambda x: np.diagonal(x, 1),
        lambda x: np.diagonal(x, offset=-1),
        lambda x: np.diagonal(x, 0, -1, 0),
        lambda x: np.diagonal(x, 1, axis1=-2, axis2=-1),
        lambda x: x.diagonal(),
    ],
    np.diff: [
        lambda x: np.diff(x),
        lambda x: np.diff(x, 2),
        lambda x: np.diff(x, axis=0),
        lambda x: np.diff(x, 0),
        lambda x: np.diff(x, 1, 0, prepend=0),
        lambda x: np.diff(x, prepend=x, append=3),
        lambda x: np.diff(x, 7),
    ],
    np.dot: [lambda x: np.dot(x, x), lambda x: np.dot(x, x.T), lambda x: np.dot(x, x[0])],
    np.einsum: [
        lambda x: np.einsum("ij->ji", x),
        lambda x: np.einsum("ij,ij->", x, x),
        lambda x: np.einsum("i,i", x, x),
    ],
    np.expand_dims: [
        lambda x: np.expand_dims(x, 0),
        lambda x: np.expand_dims(x, -1),
        lambda x: np.expand_dims(x, (0, -1)),
    ],
    np.fix: [newest(np.fix)],
    np.flip: [lambda x: np.flip(x), lambda x: np.flip(x, -1), lambda x: np.flip(x, (0, 1))],
    np.full_like: [lambda x: np.full_like(x, 3), lambda x: np.full_like(x, 1.5, np.float32)],
    np.hstack: [lambda x: np.hstack([x, x]), lambda x: np.hstack((x, 2 * x, x))],
    np.inner: [lambda x: np.inner(x, x), lambda x: np.inner(x, x[..., 0, :]), lambda x: np.inner(x, 2)],
    np.interp: [
        lambda x: np.interp(x, [-1.0, 0.5, 2.0], [3.0, 1.0, 2.0]),
        lambda x: np.interp(x, [-1.0, 0.5, 2.0], [3, 1, 2], left=7, right=-7),
        lambda x: np.interp(x, [0.25], [3.0], -1.0),
        lambda x: np.interp([0.5, 1.5, 9.0, np.nan], np.arange(5.0), x),
        lambda x: np.interp(x, np.sort([2.0, 1.0, 1.0, -1.0]), [1.0, 2.0, 3.0, 4.0]),
    ],
    np.linspace: [
        lambda x: np.linspace(x, 2 * x, 5),
        lambda x: np.linspace(x, 1.5, 4, endpoint=False),
        lambda x: np.linspace(0, x, num=1),
        lambda x: np.linspace(-1.0, x, 0),
        lambda x: np.linspace(x, 3, 7, dtype=np.int32),
        lambda x: np.linspace(x, x, 3, axis=-1),
    ],
    np.matmul: [lambda x: np.matmul(x, x.T), lambda x: np.matmul(x[..., 0], x), lambda x: x @ x.swapaxes(-1, -2)],
    np.max: kept(np.max),
    np.mean: [*kept(np.mean), lambda x: np.mean(x, 0, np.float32)],
    np.median: kept(np.median),
    np.meshgrid: [
        lambda x: np.meshgrid(x, 2 * x),
        lambda x: np.meshgrid(x, x[1:], x[:2], indexing="ij"),
        lambda x: np.meshgrid(x, x[1:], x[:2]),
        lambda x: np.meshgrid(x, x[1:], sparse=True),
        lambda x: np.meshgrid(x),
    ],
    np.min: kept(np.min),
    np.nan_to_num: [lambda x: np.nan_to_num(x), lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0)],
    np.moveaxis: [lambda x: np.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, -1, 0)],
    np.ndim: [lambda x: np.ndim(x)],
    np.ones_like: [lambda x: np.ones_like(x), lambda x: np.ones_like(x, dtype=np.int32)],
    np.outer: [lambda x: np.outer(x, x), lambda x: np.outer(x, 2.5 * x)],
    np.pad: PADS,
    np.prod: kept(np.prod) + typed(np.prod),
    np.quantile: [
        *[lambda x, q=q: np.quantile(x, q) for q in (0.0, 0.25, 0.5, 1.0)],
        lambda x: np.quantile(x, [0.1, 0.7]),
        lambda x: np.quantile(x, 0.3, axis=0),
        lambda x: np.quantile(x, [[0.3], [0.9]], axis=-1, keepdims=True),
        lambda x: np.quantile(x, 0.6, axis=(0, -1)),
    ],
    np.ravel: [lambda x: np.ravel(x)],
    np.repeat: [
        lambda x: np.repeat(x, 2),
        lambda x: np.repeat(x, 3, axis=-1),
        lambda x: np.repeat(x, 0, 0),
        lambda x: np.repeat(x, np.sum(x > 0, axis=tuple(range(1, x.ndim)), dtype=np.int64), 0),
    ],
    np.reshape: [lambda x: np.reshape(x, -1), lambda x: np.reshape(x, (*x.shape, 1)), lambda x: np.reshape(x, (1, -1))],
    np.roll: [lambda x: np.roll(x, 1), lambda x: np.roll(x, -2, -1), lambda x: np.roll(x, 7, axis=0)],
    np.round: [lambda x: np.round(x), lambda x: np.round(x, decimals=1)],
    np.searchsorted: [lambda x: np.searchsorted(np.sort(x), x), lambda x: np.searchsorted(np.sort(x), x, "right")],
    np.shape: [lambda x: np.shape(x)[0]],
    np.size: [lambda x: np.size(x), lambda x: np.size(x, -1)],
    np.sort: [*over(np.sort), lambda x: np.sort(x), lambda x: np.sort(x, kind="stable")],
    np.squeeze: [
        lambda x: np.squeeze(x[None]),
        lambda x: np.squeeze(x[..., None], -1),
        lambda x: np.squeeze(x[None], (0,)),
    ],
    np.stack: [lambda x: np.stack([x, x]), lambda x: np.stack((x, 2 * x), axis=-1), lambda x: np.stack([x, x], 1)],
    np.std: [*kept(np.std), lambda x: np.std(x, ddof=1), lambda x: np.std(x, 0, None, None, 1), lambda x: x.std(0)],
    np.sum: kept(np.sum) + typed(np.sum) + [lambda x: x.sum(), lambda x: x.sum(axis=0, dtype=np.float32)],
    np.swapaxes: [lambda x: np.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 1, 0)],
    np.take: [lambda x: np.take(x, [0, -1]), lambda x: np.take(x, [[0], [1]], axis=-1), lambda x: np.take(x, 1, 0)],
    np.take_along_axis: [
        lambda x: np.take_along_axis(x, np.argsort(x, 0, kind="stable"), 0),
        lambda x: np.take_along_axis(x, np.argsort(x, -1, kind="stable"), axis=-1),
    ],
    np.tile: [lambda x: np.tile(x, 2), lambda x: np.tile(x, (2, 1, 3))],
    np.trace: [
        lambda x: np.trace(x),
        lambda x: np.trace(x, 1),
        lambda x: np.trace(x, 0, -1, -2),
        lambda x: np.trace(x, offset=-1, axis1=1, axis2=0),
        lambda x: np.trace(x, dtype=np.float32),
        lambda x: x.trace(),
    ],
    np.transpose: [lambda x: np.transpose(x), lambda x: np.transpose(x, (1, 0)), lambda x: np.transpose(x, (-1, 0, 1))],
    np.tril: [lambda x: np.tril(x), lambda x: np.tril(x, 1), lambda x: np.tril(x, k=-1)],
    np.triu: [lambda x: np.triu(x), lambda x: np.triu(x, 1), lambda x: np.triu(x, k=-1)],
    np.unique: [
        lambda x: np.unique(x),
        lambda x: np.unique(x, return_index=True),
        lambda x: np.unique(x, return_inverse=True),
        lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True),
        lambda x: np.unique(x, return_counts=True),
    ],
    np.var: [*kept(np.var), lambda x: np.var(x, ddof=1), lambda x: np.var(x, 0, np.float32)],
    np.vstack: [lambda x: np.vstack([x, x]), lambda x: np.vstack((x, 2 * x))],
    np.where: [
        lambda x: np.where(x > 0, x, 0),
        lambda x: np.where(x > 0, x, np.float32(0.5)),
        lambda x: np.where(x > 0, 1, 2),
    ],
    np.zeros_like: [lambda x: np.zeros_like(x), lambda x: np.zeros_like(x, np.float32)],
}

# On purpose: the largest of nothing is minus infinity (documented with az.max); a triangle is one of a matrix.
APART: dict[Any, Callable[[Any], bool]] = {
    np.bincount: lambda x: x.ndim != 1 or x.dtype.kind != "i" or x.size == 0,
    np.tril: lambda x: x.ndim < 2,
    np.triu: lambda x: x.ndim < 2,
    np.outer: lambda x: x.ndim != 1,
    np.dot: lambda x: x.ndim > 2,
    np.interp: lambda x: x.dtype == np.float32,  # which stays f32
    np.median: lambda x: x.size == 0,  # is refused
}
ROUNDED = {
    np.mean,
    np.std,
    np.var,
    np.sum,
    np.prod,
    np.cumsum,
    np.cumprod,
    np.around,
    np.round,
    np.dot,
    np.trace,
    np.einsum,
    np.convolve,
    np.correlate,
    np.inner,
    np.interp,
    np.linspace,
    np.median,
    np.quantile,
}


def test_every_function_that_answers_is_here() -> None:
    assert {f.__name__ for f in [*CALLS, *ELEMENTWISE]} == ANSWERING


@pytest.mark.rest
@pytest.mark.parametrize("function", some(CALLS, 2), ids=lambda f: f.__name__)
def test_functions_of_arrays(function: Any) -> None:
    for number, call in enumerate(CALLS[function]):
        for k, (shape, dtype) in enumerate(itertools.product(SHAPES, TYPES)):
            x = filled(shape, dtype)
            if function in APART and APART[function](x):
                continue
            if (number + k) % 3 and number > 1:  # every third one
                continue
            agrees(call, x, rounded=function in ROUNDED)


# Sums of integers, in what is made of them


def integers(x: Any) -> Any:
    return np.sum(x), np.cumsum(x), np.prod(x), np.mean(x), np.sum(x, dtype=np.int32), np.sum(x > 0, axis=0)


LARGE = np.array([2**31 - 1, 3, 2**30, -5], np.int32)


def same(found: Any, wanted: Any) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
        np.testing.assert_array_equal(mine, theirs)


def test_sums_of_i32_are_i64_compiled() -> None:
    program = az.program(lambda x: integers(x))
    with np.errstate(all="ignore"):
        same(az.compile(program)(LARGE), integers(LARGE))


def test_sums_of_i32_are_i64_on_a_device(opencl: Any) -> None:
    program = az.program(lambda x: integers(x))
    with np.errstate(all="ignore"):
        same(az.compile(program, backend="opencl")(LARGE), integers(LARGE))


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_states_and_derivatives_of_sums_of_i32(run: Any) -> None:
    @az.program
    def f(k: az.Array[az.i32, "n m"], x: az.Array[az.f32, "n"]):
        rows = az.fori_loop(0, az.size(k), lambda i, s: s + az.sum(k[i]), 0)
        totals = az.histogram(lambda a, b: a + b, 0, 2, az.sum(k, 1) % 2, az.sum(k, 1))
        return rows, totals, az.sum(az.sum(k, 1) * x), az.sum(az.sum(k, 1, dtype=az.i32) * x)

    k, x = np.array([[1, 2], [3, 5]], np.int32), np.array([0.5, 2.0], np.float32)
    rows, totals, wide, narrow = run(f)(k, x)
    assert (rows.dtype, totals.dtype, wide.dtype) == (np.int64, np.int64, np.float64)
    assert narrow.dtype == (k.sum(1, dtype=np.int32) * x).sum().dtype
    assert (rows, totals.tolist(), wide, narrow) == (11, [8, 3], 17.5, 17.5)
    slope = run(az.grad(lambda x: az.sum(az.sum(k, 1) * x)))(x)
    assert slope.dtype == np.float32
    np.testing.assert_array_equal(slope, [3.0, 8.0])


# What is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: np.sum(x, where=x > 0), "np.sum: on expressions it takes no argument 'where'"),
        (lambda x: np.sum(x, out=x), "np.sum: on expressions it takes no argument 'out'"),
        (lambda x: np.max(x, initial=3.0), "np.max: on expressions it takes no argument 'initial'"),
        (lambda x: np.reshape(x, (2, 2), order="F"), "np.reshape: on expressions it takes no argument 'order'"),
        (lambda x: np.pad(x, 1, mode="median"), "the mode is 'constant', 'edge', 'wrap', 'reflect' or 'symmetric'"),
        (lambda x: np.pad(x, 1, "reflect", reflect_type="odd"), "np.pad: on expressions it takes no argument"),
        (lambda x: np.mean(x, dtype=np.int32), "computed in f32 or f64, not in i32"),
        (lambda x: np.diagonal(x[None], 0, 1, -1), "by axis 1 and axis -1, which are the same"),
    ],
)
def test_what_is_refused(call: Call, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        az.evaluate(as_program(call, 1))(np.ones(4))
    assert message in str(caught.value) and "test_numpy_names.py" in str(caught.value)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_a_border_made_of_nothing(mode: str) -> None:
    with pytest.raises(ValueError, match="of axis 0 of nothing"):
        az.evaluate(az.program(lambda x: np.pad(x, 1, mode=mode)))(np.ones(0))


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_gradients_of_wide_borders(mode: str) -> None:
    """Each element counts as often as it is in the border."""
    weights = np.arange(17.0)
    gradient = az.compile(az.grad(lambda x: az.sum(np.pad(x, (6, 8), mode=mode) * weights)))
    indices = np.pad(np.arange(3), (6, 8), mode=mode)
    np.testing.assert_array_equal(gradient(np.ones(3)), np.bincount(indices, weights))
