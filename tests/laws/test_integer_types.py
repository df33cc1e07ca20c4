"""Integers of every width, with and without a sign: what NumPy says, on numbers at the limits, on both backends."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from opencl_device import device
from sampling import SLOW, SWEEP

import adze as az
from adze.core.types import SCALARS, Scalar

pytestmark = pytest.mark.unguarded

INTEGERS = [scalar for scalar in SCALARS.values() if scalar.kind == "int"]
Array = np.ndarray[Any, Any]
Run = Callable[[az.Program], Callable[..., Any]]


def on_device(program: az.Program) -> az.Compiled:
    return az.compile(program, backend="opencl", device=device())


RUNS = {"evaluate": az.evaluate, "llvm": az.compile, "opencl": on_device}
everywhere = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
SOON = {"evaluate": set(SCALARS), "llvm": {"i8", "u64"}, "opencl": {"u8"}}
LATER = {"evaluate": set[str](), "llvm": {"u16", "i32"}, "opencl": {"i16", "u64"}}


def marks_of(name: str, scalar: Scalar) -> list[pytest.MarkDecorator]:
    """Long programs: of some types in the fast run, of some in the long one."""
    return [] if scalar.name in SOON[name] else SLOW if scalar.name in LATER[name] else SWEEP


each_type = pytest.mark.parametrize(
    ("scalar", "run"),
    [
        pytest.param(scalar, run, id=f"{name}-{scalar}", marks=marks_of(name, scalar))
        for name, run in RUNS.items()
        for scalar in INTEGERS
    ],
)


def limits(scalar: Scalar, count: int = 331) -> Array:
    """Integers of all sizes, and those at the limits of this type and the smaller ones."""
    ends = [n for each in INTEGERS for end in (each.least, each.most) for n in (end - 1, end, end + 1)]
    some = np.random.default_rng(scalar.bits).integers(scalar.least, scalar.most, count, scalar.dtype, endpoint=True)
    some >>= np.random.default_rng(1).integers(0, scalar.bits, count).astype(scalar.dtype)
    fitting = np.array([n for n in ends if scalar.least <= n <= scalar.most], scalar.dtype)
    some[: len(fitting)] = fitting
    return some


def same(found: Any, wanted: Any) -> None:
    for k, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert (np.asarray(mine).dtype, np.shape(mine)) == (np.asarray(theirs).dtype, np.shape(theirs)), k
        np.testing.assert_array_equal(mine, theirs, err_msg=str(k))


# Two types


def together(x: Any, y: Any) -> tuple[Any, ...]:
    numbers = x - y, np.maximum(x, y), np.where(x > 1, x, y), x < y
    return numbers if numbers[0].dtype in (az.f64, np.float64) else (*numbers, x | y, x // (y | 1), x >> (y & 7))


@pytest.mark.rest
@each_type
def test_pairs_of_types(scalar: Scalar, run: Run) -> None:
    """One program for all types that the second operand may have."""
    x, others = limits(scalar), [limits(second)[::-1].copy() for second in INTEGERS]
    names = [f"y{k}" for k in range(len(others))]
    scope: dict[str, Any] = {"together": together}
    exec(f"def f(x, {', '.join(names)}): return sum([together(x, y) for y in ({', '.join(names)})], ())", scope)
    with np.errstate(all="ignore"):
        wanted = sum([together(x, y) for y in others], ())
    same(run(az.program(scope["f"]))(x, *others), wanted)


# One type


def alone(np_: Any, x: Any) -> tuple[Any, ...]:
    """Reductions, scans and orders, by names that both have."""
    table = x[:324].reshape((18, 18))
    return (
        *[f(x) for f in (np_.sum, np_.prod, np_.max, np_.min, np_.any, np_.all, np_.argmax, np_.argmin)],
        *[f(table, axis=axis) for f in (np_.sum, np_.prod, np_.max, np_.min) for axis in (0, 1)],
        *[f(x) for f in (np_.cumsum, np_.cumprod, np_.sort, np_.flip, np_.count_nonzero, np_.diff, np_.abs, np_.sign)],
        *[f(table, axis=0) for f in (np_.cumsum, np_.sort)],
        *[f(x) for f in (np_.square, np_.transpose, np_.zeros_like, np_.ravel)],
        -x, ~x, x**3, x**0, x // 3, x % 5, x << 3, x >> 3, x + 1, 2 * x, x > 3, x != 0,
    )  # fmt: skip


@pytest.mark.rest
@each_type
def test_reductions_scans_and_orders(scalar: Scalar, run: Run) -> None:
    x = limits(scalar)

    @az.program
    def f(x: az.Array[scalar, "n"]):  # type: ignore[valid-type]
        return alone(az, x), az.argsort(x), az.mean(x), az.cummax(x), az.cummin(x), x @ x

    with np.errstate(all="ignore"):
        wanted = alone(np, x)
        order, average = np.argsort(x, kind="stable"), np.mean(x)
        rest = [np.maximum.accumulate(x), np.minimum.accumulate(x), x @ x]
    found, own_order, mean, *others = run(f)(x)
    same(found, wanted)
    same([own_order, *others], [order, *rest])
    assert mean == pytest.approx(average, rel=1e-12) and np.asarray(mean).dtype == np.float64


@everywhere
@pytest.mark.parametrize("scalar", INTEGERS, ids=str)
def test_nothing_has_the_limits_as_extremes(scalar: Scalar, run: Run) -> None:
    @az.program
    def f(x: az.Array[scalar, "n"]):  # type: ignore[valid-type]
        return az.max(x), az.min(x), az.sum(x), az.prod(x)

    kind = np.zeros(0, scalar.dtype).sum().dtype.type
    same(
        run(f)(np.zeros(0, scalar.dtype)),
        [scalar.dtype.type(scalar.least), scalar.dtype.type(scalar.most), kind(0), kind(1)],
    )


# Places


@each_type
def test_integers_of_any_type_are_places(scalar: Scalar, run: Run) -> None:
    """Indices, places of updates, bins and sizes; values of the type are combined in many threads."""
    places = np.random.default_rng(5).integers(0, 100, 3000).astype(scalar.dtype)
    values, ordered = limits(scalar, 3000), np.random.default_rng(6).permutation(100).astype(scalar.dtype)

    @az.program
    def f(places: az.Array[scalar, "n"], x: az.Array[scalar, "n"], order: az.Array[scalar, "m"], k: scalar):  # type: ignore[valid-type]
        zeros = az.zeros(100, scalar)
        return (
            x[places],
            x[k],
            x[order[k]],
            az.histogram(lambda a, b: a + b, 0, 100, places, x),
            az.histogram(az.maximum, scalar.least, 100, places, x),
            az.histogram(az.bitwise_xor, 0, 100, places, x),
            az.bincount(places),
            az.bincount(places, length=100),
            az.scatter(zeros, order, order),
            az.update(zeros, k, x[k]),
            az.one_hot(order, 100, dtype=az.i64),
            az.take(x, places),
            az.sum(az.iota(k)),
            az.fori_loop(0, k, lambda i, s: s + x[i], az.zeros((), scalar)),
        )  # fmt: skip

    with np.errstate(all="ignore"):
        k = scalar.dtype.type(77)
        sums, most, bits = (
            np.zeros(100, scalar.dtype),
            np.full(100, scalar.least, scalar.dtype),
            np.zeros(100, scalar.dtype),
        )
        np.add.at(sums, places, values)
        np.maximum.at(most, places, values)
        np.bitwise_xor.at(bits, places, values)
        counts = np.bincount(places.astype(np.int64))
        inverse, updated = np.zeros(100, scalar.dtype), np.zeros(100, scalar.dtype)
        inverse[ordered], updated[77] = ordered, values[77]
        wanted = [
            values[places], values[77], values[ordered[77]], sums, most, bits, counts, counts, inverse, updated,
            (np.arange(100) == ordered[:, None]).astype(np.int64), values[places], np.int64(77 * 76 // 2),
            np.add.reduce(values[:77], dtype=scalar.dtype),
        ]  # fmt: skip
    same(run(f)(places, values, ordered, k), wanted)


@everywhere
@pytest.mark.parametrize("scalar", INTEGERS, ids=str)
def test_what_is_no_place_is_an_error(scalar: Scalar, run: Run) -> None:
    """Also what would be one if it were cut to 64 bits, and moved by where a view begins."""

    @az.program
    def f(x: az.Array[az.f64, "n"], k: scalar):  # type: ignore[valid-type]
        return x[2:][k]

    call, x = run(f), np.arange(5.0)
    assert call(x, scalar.dtype.type(2)) == 4.0
    for wrong in {scalar.least, scalar.most, scalar.most - 1, scalar.most // 2 + 1} - {0}:
        with pytest.raises(IndexError, match=r"test_integer_types.py"):
            call(x, scalar.dtype.type(wrong))


# Numbers of Python


@pytest.mark.parametrize("scalar", INTEGERS, ids=str)
def test_a_number_must_fit(scalar: Scalar) -> None:
    @az.program
    def same_number(x: scalar) -> scalar:  # type: ignore[valid-type]
        return x

    @az.program
    def whole(x: az.Array[scalar, "n"]):  # type: ignore[valid-type]
        return x

    @az.program
    def added(x: scalar, number: int) -> scalar:  # type: ignore[valid-type]
        return x + number

    for run in (az.evaluate, az.compile):
        for end in (scalar.least, scalar.most):
            assert run(same_number)(end) == end and run(whole)([0, end]).tolist() == [0, end]
            assert run(added.at(number=end))(scalar.dtype.type(0)) == end
        for wrong in (scalar.least - 1, scalar.most + 1):
            for call, given in ((same_number, wrong), (whole, [wrong]), (whole, [1, wrong])):
                with pytest.raises(TypeError, match=rf"{scalar}.* \(at .*test_integer_types.py:\d+\)"):
                    run(call)(given)
            with pytest.raises(OverflowError, match=rf"the number {wrong} does not fit {scalar} \(at .*types.py:\d+\)"):
                run(added.at(number=wrong))(scalar.dtype.type(0))


@pytest.mark.parametrize("scalar", INTEGERS, ids=str)
def test_arrays_come_in_without_a_copy(scalar: Scalar) -> None:
    seen: list[int] = []

    @az.program
    def f(x: az.Array[scalar, "n"]):  # type: ignore[valid-type]
        return x + 1

    x, out = limits(scalar), np.empty_like(limits(scalar))
    compiled = az.compile(f)
    with np.errstate(all="ignore"):
        assert compiled(x, out=out) is out and np.array_equal(out, x + 1)
    (converted,), _ = f.at().signature.convert([x])
    seen.append(converted.__array_interface__["data"][0])
    assert seen == [x.__array_interface__["data"][0]]


@everywhere
def test_a_counter_based_generator(run: Run) -> None:
    """Threefry's rounds (Salmon et al. 2011) in u32: sums wrap around, and words rotate."""

    @az.program
    def rounds(a: az.Array[az.u32, "n"], b: az.Array[az.u32, "n"]):
        for turn in (13, 15, 26, 6):
            a = a + b
            b = a ^ ((b << turn) | (b >> (32 - turn)))
        return a, b, (a >> 9).astype(az.f64) / 2**23, az.sum(a), az.max(b)

    a, b = limits(SCALARS["u32"], 5000), limits(SCALARS["u32"], 5000)[::-1].copy()
    with np.errstate(all="ignore"):
        p, q = a, b
        for turn in (13, 15, 26, 6):
            p = p + q
            q = p ^ ((q << np.uint32(turn)) | (q >> np.uint32(32 - turn)))
        wanted = p, q, (p >> np.uint32(9)).astype(np.float64) / 2**23, p.sum(), q.max()
    same(run(rounds)(a, b), wanted)
