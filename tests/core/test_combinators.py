"""Reductions, scans, histograms, scatters, sorting and control, each against NumPy: shapes, types, values, edges."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from annotated import agrees, annotated, evaluated, same

import adze as az


def numbers(*shape: int, dtype: Any = np.float64) -> Any:
    """Quarters between -4 and 4 with ties; integers for an integer type."""
    steps = (np.arange(int(np.prod(shape, dtype=int))) * 7 + 3) % 17 - 8
    return (steps / 4 if np.dtype(dtype).kind == "f" else steps).astype(dtype).reshape(shape)


A = numbers(3, 4)
TYPES = [np.float64, np.float32, np.int64, np.int32, np.bool_]
NUMBERS = TYPES[:4]
FLOATS = TYPES[:2]
SPECIAL = np.array([1.0, np.nan, -np.inf, np.inf, -0.0, 0.0, np.nan, -1.0])
SHAPES = [(0,), (1,), (7,), (3, 5), (0, 4), (4, 0), (1, 1), (2, 3, 4)]

# Reductions


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "keepdims"),
    [
        *[(dtype, (3, 5), 0, False) for dtype in TYPES],
        *[(np.float64, shape, None, True) for shape in SHAPES],
        *[(np.int64, shape, -1, False) for shape in SHAPES],
        (np.float64, (2, 3, 4), (0, -1), False),
        (np.float64, (2, 3, 4), (-2, 0), True),
    ],
)
def test_sums(dtype: Any, shape: tuple[int, ...], axis: Any, keepdims: bool) -> None:
    x = numbers(*shape, dtype=dtype)
    agrees(lambda x: az.sum(x, axis, keepdims), lambda x: x.sum(axis, keepdims=keepdims), x)
    agrees(lambda x: az.any(x, axis, keepdims), lambda x: x.any(axis, keepdims=keepdims), x)
    agrees(lambda x: x.all(axis, keepdims), lambda x: x.all(axis, keepdims=keepdims), x)
    agrees(lambda x: az.count_nonzero(x, axis, keepdims), lambda x: np.count_nonzero(x, axis, keepdims=keepdims), x)
    low, high = extremes(x.dtype)
    agrees(lambda x: x.max(axis, keepdims), lambda x: x.max(axis, initial=low, keepdims=keepdims), x)
    agrees(lambda x: az.min(x, axis, keepdims), lambda x: x.min(axis, initial=high, keepdims=keepdims), x)


def extremes(dtype: Any) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@pytest.mark.parametrize(
    ("dtype", "axis"), [*[(dtype, None) for dtype in TYPES], (np.float64, 1), (np.float32, (0, 2))]
)
def test_means(dtype: Any, axis: Any) -> None:
    x = numbers(2, 3, 4, dtype=dtype)
    agrees(lambda x: az.mean(x, axis), lambda x: x.mean(axis), x, exact=False)
    agrees(lambda x: az.var(x, axis, keepdims=True), lambda x: x.var(axis, keepdims=True), x, exact=False)
    agrees(lambda x: x.std(axis, ddof=1), lambda x: x.std(axis, ddof=1), x, exact=False)


def test_the_mean_of_nothing_is_nan() -> None:
    with np.errstate(invalid="ignore"):
        same(evaluated(az.mean, np.zeros(0)), np.float64(np.nan))


def test_products() -> None:
    agrees(lambda x: az.prod(x, 1), lambda x: x.prod(1), numbers(3, 5))
    agrees(az.prod, np.prod, numbers(0))
    agrees(az.prod, np.prod, np.array([True, False]))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_logsumexp(axis: Any) -> None:
    x = numbers(3, 4)
    agrees(
        lambda x: az.logsumexp(x, axis, keepdims=True), lambda x: np.log(np.exp(x).sum(axis, keepdims=True)), x,
        exact=False,
    )  # fmt: skip
    assert evaluated(az.logsumexp, np.full(3, -np.inf)) == -np.inf
    assert evaluated(az.logsumexp, np.array([1000.0, 1000.0])) == pytest.approx(1000 + np.log(2))


@pytest.mark.parametrize(("dtype", "axis"), [*[(dtype, 0) for dtype in TYPES], (np.float64, None), (np.int32, -1)])
def test_positions(dtype: Any, axis: Any) -> None:
    x = numbers(3, 7, dtype=dtype)
    agrees(lambda x: az.argmax(x, axis), lambda x: x.argmax(axis), x)
    agrees(lambda x: az.argmin(x, axis, keepdims=True), lambda x: x.argmin(axis, keepdims=True), x)


@pytest.mark.parametrize(
    "x", [SPECIAL, SPECIAL[2:6], np.full(3, -np.inf), np.full(3, np.inf), np.full(2, np.nan), np.array([5.0])]
)
def test_positions_of_special_values(x: Any) -> None:
    agrees(az.argmax, np.argmax, x)
    agrees(az.argmin, np.argmin, x)


def test_positions_of_extreme_integers() -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for x in (np.array([low, low]), np.array([high, high]), np.array([low, high])):
        agrees(az.argmax, np.argmax, x)
        agrees(az.argmin, np.argmin, x)


@pytest.mark.parametrize("verb", [az.argmax, az.argmin])
def test_the_position_of_nothing_is_an_error(verb: Callable[..., Any]) -> None:
    for fixed in (False, True):
        with pytest.raises(ValueError, match=rf"{verb.__name__} of nothing.*test_combinators\.py:\d+"):
            evaluated(lambda x: verb(x), np.zeros(0), fixed=fixed)
        with pytest.raises(ValueError, match="of nothing"):
            evaluated(lambda x: verb(x, 1), np.zeros((3, 0)), fixed=fixed)
    assert evaluated(lambda x: verb(x, 0), np.zeros((3, 0))).shape == (0,)


def largest_with_place(a: Any, b: Any) -> Any:
    return {"value": az.where(a["value"] >= b["value"], a["value"], b["value"]),
            "place": az.where(a["value"] >= b["value"], a["place"], b["place"])}  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_a_reduction_of_structures(n: int) -> None:
    def both(x: Any) -> Any:
        neutral = {"value": -np.inf, "place": -1}
        return az.reduce(largest_with_place, neutral, {"value": x, "place": az.iota(az.size(x))})

    def wanted(x: Any) -> Any:
        return {"value": x.max(initial=-np.inf), "place": np.int64(x.argmax() if len(x) else -1)}

    agrees(both, wanted, numbers(n))


def mat(a: Any, b: Any) -> Any:
    return a @ b


def products(ms: Any) -> Any:
    total = [np.eye(ms.shape[1])]
    for m in ms:
        total.append(total[-1] @ m)
    return np.stack(total)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_reduction_of_matrices(n: int) -> None:
    ms = numbers(n, 2, 2)
    agrees(lambda ms: az.reduce(mat, np.eye(2), ms), lambda ms: products(ms)[-1], ms)
    agrees(lambda ms: az.reduce(mat, az.eye(az.size(ms, 1)), ms), lambda ms: products(ms)[-1], ms)
    agrees(lambda ms: az.scan(mat, np.eye(2), ms), lambda ms: products(ms)[1:], ms)
    agrees(lambda ms: az.scan(mat, np.eye(2), ms, exclusive=True), lambda ms: products(ms)[:-1], ms)
    agrees(lambda ms: az.scan(mat, np.eye(2), ms, reverse=True), lambda ms: products(ms[::-1])[1:][::-1], ms)
    for axis in (1, 2):
        agrees(
            lambda ms, axis=axis: az.reduce(mat, np.eye(2), az.moveaxis(ms, 0, axis), axis),
            lambda ms: products(ms)[-1],
            ms,
        )


def test_what_is_mapped_over_and_what_belongs_to_an_element() -> None:
    stacks = numbers(3, 4, 2, 2)
    agrees(lambda s: az.reduce(mat, np.eye(2), s, 1), lambda s: np.stack([products(ms)[-1] for ms in s]), stacks)
    agrees(lambda s: az.scan(mat, np.eye(2), s, 1), lambda s: np.stack([products(ms)[1:] for ms in s]), stacks)
    agrees(
        lambda s: az.scan(mat, np.eye(2), s),
        lambda s: np.stack([products(s[:, k])[1:] for k in range(4)], 1),
        stacks,
    )
    agrees(lambda s: az.reduce(lambda a, b: a + b, 0.0, s, 2), lambda s: s.sum(2), stacks)


def affine(a: Any, b: Any) -> Any:
    """First a, then b, of maps x -> m x + v: elements of two ranks."""
    return b[0] @ a[0], b[0] @ a[1] + b[1]


def test_elements_of_several_ranks() -> None:
    ms, vs = numbers(5, 2, 2), numbers(5, 2)

    def wanted(ms: Any, vs: Any) -> Any:
        m, v, running = np.eye(2), np.zeros(2), []
        for k in range(len(ms)):
            m, v = ms[k] @ m, ms[k] @ v + vs[k]
            running.append((m, v))
        return np.stack([m for m, _ in running]), np.stack([v for _, v in running])

    neutral = (np.eye(2), np.zeros(2))
    agrees(lambda ms, vs: az.scan(affine, neutral, (ms, vs)), wanted, ms, vs)
    agrees(
        lambda ms, vs: az.reduce(affine, neutral, (ms, vs)),
        lambda ms, vs: tuple(part[-1] for part in wanted(ms, vs)),
        ms,
        vs,
    )


def test_a_neutral_is_converted_when_exact() -> None:
    agrees(
        lambda m: az.reduce(mat, np.eye(2), m),
        lambda m: products(m)[-1].astype(np.float32),
        numbers(1, 2, 2, dtype=np.float32),
    )


@pytest.mark.parametrize("n", [0, 1, 6])
def test_an_operator_that_does_not_commute(n: int) -> None:
    """Functions on three points, composed: the elements are combined in order."""
    rng = np.random.default_rng(0)
    maps = rng.integers(0, 3, (n, 3))

    def wanted(maps: Any) -> Any:
        total = np.arange(3)
        for one in maps:
            total = one[total]
        return total

    agrees(lambda maps: az.reduce(lambda f, g: g[f], np.arange(3), maps), wanted, maps)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_fold1(n: int) -> None:
    agrees(lambda x: az.fold1(lambda a, b: a * b, x), np.prod, numbers(n))
    agrees(lambda x: az.fold1(az.maximum, x, axis=1), lambda x: x.max(1), numbers(3, n))
    with pytest.raises(ValueError, match="fold1 of nothing"):
        evaluated(lambda x: az.fold1(lambda a, b: a * b, x), np.zeros(0))


# Scans


@pytest.mark.parametrize(
    ("dtype", "shape", "axis"),
    [
        *[(dtype, (3, 5), 0) for dtype in NUMBERS],
        *[(np.float64, shape, None) for shape in SHAPES],
        *[(np.int64, shape, -1) for shape in SHAPES],
    ],
)
def test_cumulative(dtype: Any, shape: tuple[int, ...], axis: Any) -> None:
    x = numbers(*shape, dtype=dtype)
    agrees(lambda x: az.cumsum(x, axis), lambda x: x.cumsum(axis), x)
    agrees(lambda x: az.cumprod(x % 3 - 1, axis), lambda x: (x % 3 - 1).cumprod(axis), x)
    for ours, numpy in ((az.cummax, np.maximum), (az.cummin, np.minimum)):
        agrees(
            lambda x, ours=ours: ours(x, axis),
            lambda x, numpy=numpy: numpy.accumulate(x.ravel() if axis is None else x, axis or 0),
            x,
        )


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 4)])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_scans(shape: tuple[int, ...], exclusive: bool, reverse: bool, axis: int) -> None:
    def wanted(x: Any) -> Any:
        x = np.moveaxis(x, axis, 0)
        x = x[::-1] if reverse else x
        sums = np.concatenate([np.zeros((1, *x.shape[1:])), x.cumsum(0)])
        sums = sums[:-1] if exclusive else sums[1:]
        return np.moveaxis(sums[::-1] if reverse else sums, 0, axis)

    agrees(
        lambda x: az.scan(lambda a, b: a + b, 0.0, x, axis=axis, exclusive=exclusive, reverse=reverse),
        wanted,
        numbers(*shape),
    )


def test_a_reversed_scan_has_later_elements_on_the_left() -> None:
    def last_digits(a: Any, b: Any) -> Any:
        return (10 * a[0] * 0 + a[0] * b[1] + b[0], a[1] * b[1])

    def digits(x: Any) -> Any:
        return az.scan(last_digits, (0, 1), (x, 10 * az.ones_like(x)), reverse=True)[0]

    assert list(evaluated(digits, np.array([1, 2, 3]))) == [321, 32, 3]


def test_booleans_are_counted() -> None:
    agrees(az.cumsum, np.cumsum, np.array([True, False, True]))
    agrees(lambda x: az.cummax(x, 0), np.logical_or.accumulate, np.array([False, True, False]))


# Histograms


@pytest.mark.parametrize("n", [0, 1, 9])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_histograms(n: int, dtype: Any) -> None:
    bins = (np.arange(n) * 5 % 7 - 1).astype(dtype)
    inside = (bins >= 0) & (bins < 4)

    def wanted(bins: Any, x: Any) -> Any:
        total = np.zeros((4, *x.shape[1:]))
        np.add.at(total, bins[inside], x[inside])
        return total

    for x in (numbers(n), numbers(n, 3)):
        agrees(lambda bins, x: az.histogram(lambda a, b: a + b, 0.0, 4, bins, x), wanted, bins, x)
        rows = np.zeros(x.shape[1:])
        agrees(lambda bins, x, rows=rows: az.histogram(lambda a, b: a + b, rows, 4, bins, x), wanted, bins, x)
    assert evaluated(lambda bins: az.histogram(az.maximum, -np.inf, 0, bins, numbers(n)), bins).shape == (0,)


def test_a_histogram_of_structures() -> None:
    bins, x = np.array([1, 0, 1, 1, 3]), numbers(5)

    def ours(bins: Any, x: Any) -> Any:
        neutral = {"value": -np.inf, "place": -1}
        return az.histogram(largest_with_place, neutral, 3, bins, {"value": x, "place": az.iota(5)})

    def wanted(bins: Any, x: Any) -> Any:
        values, places = np.full(3, -np.inf), np.full(3, -1)
        for k in range(5):
            if bins[k] < 3 and x[k] > values[bins[k]]:
                values[bins[k]], places[bins[k]] = x[k], k
        return {"value": values, "place": places}

    agrees(ours, wanted, bins, x)


def test_a_histogram_of_matrices_keeps_their_order() -> None:
    bins, ms = np.array([1, 0, 1, 1]), numbers(4, 2, 2)

    def wanted(bins: Any, ms: Any) -> Any:
        return np.stack([products(ms[bins == k])[-1] for k in range(3)])

    agrees(lambda bins, ms: az.histogram(mat, np.eye(2), 3, bins, ms), wanted, bins, ms)


@pytest.mark.parametrize("x", [np.array([0, 2, 0, 5]), np.zeros(0, np.int64), np.array([3], np.int32)])
def test_bincount(x: Any) -> None:
    agrees(az.bincount, np.bincount, x)
    agrees(lambda x: np.bincount(x, minlength=4), lambda x: np.bincount(x, minlength=4), x)
    weights = numbers(len(x))
    agrees(az.bincount, lambda x, w: np.bincount(x, w).astype(float), x, weights)
    agrees(lambda x: az.bincount(x, length=3), lambda x: np.bincount(x, minlength=3)[:3], x)


# Scatters


def written(destination: Any, place: Any, values: Any) -> Any:
    result = destination.copy()
    result[place] = values
    return result


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_scatters(dtype: Any) -> None:
    y, places, x = numbers(6), np.array([4, 0, 5], dtype), numbers(3)
    agrees(lambda y, i, x: az.scatter(y, i, x), written, y, places, x)
    agrees(lambda y, i: az.scatter(y, i, 7), lambda y, i: written(y, i, 7), y, places)
    agrees(lambda y, i, x: az.scatter(y, i, x), written, y, places[:0], x[:0])
    agrees(lambda y: az.scatter(y, [4, 0], [1.0, 2.0]), lambda y: written(y, [4, 0], [1.0, 2.0]), y)
    rows = numbers(6, 2)
    agrees(lambda y, i, x: az.scatter(y, i, x), written, rows, places, numbers(3, 2))
    agrees(lambda y, i, x: az.scatter(y, i, x), written, rows, places, numbers(2))


def test_the_last_write_wins() -> None:
    y, places, x = numbers(4), np.array([2, 0, 2, 2, 0]), numbers(5)
    agrees(lambda y, i, x: az.scatter(y, i, x, unique=False), written, y, places, x)


def test_scatters_into_several_axes() -> None:
    a, i, j = numbers(3, 4, 2), np.array([0, 2, 0]), np.array([3, 1, 0])
    agrees(
        lambda a, i, j, x: az.scatter(a, (i, j), x), lambda a, i, j, x: written(a, (i, j), x), a, i, j, numbers(3, 2)
    )
    agrees(
        lambda a, i, j: az.scatter(a, (i[:, None], j[None, :]), 0.0, unique=False),
        lambda a, i, j: written(a, (i[:, None], j[None, :]), 0.0),
        a, i, j,
    )  # fmt: skip
    agrees(
        lambda a, i, j: az.scatter(a, (i[:2, None], j[None, :]), 0.0),
        lambda a, i, j: written(a, (i[:2, None], j[None, :]), 0.0),
        a, i, j,
    )  # fmt: skip


def test_a_scatter_of_structures() -> None:
    def ours(x: Any, k: Any, i: Any) -> Any:
        return az.scatter({"x": x, "k": k}, i, {"x": 0.5, "k": az.iota(2)})

    def wanted(x: Any, k: Any, i: Any) -> Any:
        return {"x": written(x, i, 0.5), "k": written(k, i, np.arange(2))}

    agrees(ours, wanted, numbers(4), np.arange(4), np.array([3, 1]))


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 100_000])
@pytest.mark.parametrize("mode", ["error", "drop"])
def test_places_that_are_written_twice_are_found(n: int, mode: str) -> None:
    """The set of written places is made of words of 64 bits, of which several threads make some of their own."""

    @az.program
    def program(y: az.Array[az.f64, "n"], i: az.Array[az.i64, "m"], x: az.Array[az.f64, "m"]) -> Any:
        return az.scatter(y, i, x, mode=mode)

    rng = np.random.default_rng(n)
    y, places = np.zeros(n), rng.permutation(n)
    outside = np.array([-1, n, -64, n + 64, 2**62, -1, n]) if mode == "drop" else places[:0]
    wanted, runs = rng.normal(size=n), [az.evaluate(program), *[az.compile(program, threads=k) for k in (1, 2)]]
    for run in runs:
        given = np.concatenate([wanted[places], np.ones(len(outside))])
        np.testing.assert_array_equal(run(y, np.concatenate([places, outside]), given), wanted)
        for twice in {0, n // 2, n - 1}:
            again = np.concatenate([places, outside, [twice]])
            with pytest.raises(ValueError, match=rf"scatter: 2 values go to the place \[{twice}\]"):
                run(y, again, np.ones(len(again)))


def test_places_in_several_axes_that_are_written_twice_are_found() -> None:
    @az.program
    def program(a: az.Array[az.f64, "n k"], i: az.Array[az.i64, "m"], j: az.Array[az.i64, "m"]) -> Any:
        return az.scatter(a, (i, j), 1.0)

    i, j = (axis.ravel() for axis in np.meshgrid(np.arange(9), np.arange(31), indexing="ij"))
    for run in (az.evaluate(program), az.compile(program)):
        np.testing.assert_array_equal(run(np.zeros((9, 31)), i, j), np.ones((9, 31)))
        with pytest.raises(ValueError, match=r"scatter: 3 values go to the place \[7, 30\]"):
            run(np.zeros((9, 31)), np.append(i, [7, 7]), np.append(j, [30, 30]))


def test_a_histogram_of_bits() -> None:
    bins, x = np.array([1, 0, 1, 3, 1, -1]), np.array([1, -8, 6, 5, -(2**63), 9])
    for operator, neutral, ufunc in (
        (lambda a, b: a | b, 0, np.bitwise_or),
        (lambda a, b: a & b, -1, np.bitwise_and),
        (lambda a, b: a ^ b, 0, np.bitwise_xor),
    ):

        def wanted(bins: Any, x: Any, neutral: int = neutral, ufunc: Any = ufunc) -> Any:
            total = np.full(3, neutral)
            ufunc.at(total, bins[bins % 3 == bins], x[bins % 3 == bins])
            return total

        agrees(
            lambda bins, x, operator=operator, neutral=neutral: az.histogram(operator, neutral, 3, bins, x),
            wanted,
            bins,
            x,
        )


def test_scatters_that_drop() -> None:
    y, places = numbers(3), np.array([3, -1, 1, 100])
    agrees(lambda y, i: az.scatter(y, i, 9.0, mode="drop"), lambda y, i: written(y, 1, 9.0), y, places)
    a, i, j = numbers(2, 3), np.array([0, 2, -1, 1]), np.array([2, 0, 1, 3])
    agrees(lambda a, i, j: az.scatter(a, (i, j), 9.0, mode="drop"), lambda a, i, j: written(a, (0, 2), 9.0), a, i, j)


INDICES: list[Any] = [
    0, -1, np.int64(2), np.int32(-2), (1, 2), (1, -1), slice(None), slice(1, None), slice(None, None, 2),
    slice(None, None, -1), slice(-2, None), slice(5, 1, -2), slice(1, 1), slice(-100, 100),
    (slice(None), 1), (slice(1, 3), slice(0, 4, 3)), (slice(None, None, -2), 0), (Ellipsis, 1), (0, Ellipsis),
    Ellipsis, (None, 1), (1, None), (slice(None), None, 2), (Ellipsis, None), [0, 2], [[0, 1], [2, 2]], [], [-1, 0],
    (slice(None), [3, 0]), ([0, 1, 2], [3, 2, 1]), ([[0], [2]], [1, 3]), (np.array([0, 1], np.int32), 2),
    (0, [1, 2]), (slice(None), np.array([[-1]])), (None, [0, 1]), ([0, 1], None, [2, 3]), (2, slice(None, None, 3)),
    (slice(np.int64(1), np.int32(3)), slice(None)), np.array(1), (1, slice(2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_indexing_and_updates(key: Any) -> None:
    a = numbers(3, 4)
    agrees(lambda a: a[key], lambda a: a[key], a)
    agrees(lambda a: az.update(a, key, 9), lambda a: written(a, key, 9), a)
    value = numbers(*a[key].shape)
    agrees(lambda a, v: az.update(a, key, v), lambda a, v: written(a, key, v), a, value)


THREE: list[Any] = [
    (0, [1, 2]), ([0, 1], slice(None), [1, 2]), (0, slice(None), [1, 2]), (slice(None), [0, 1], [1, 2]),
    ([0, 1], None, [1, 2]), (Ellipsis, [0, -1]), (0, Ellipsis, [0, 1]), ([0, 1], slice(1, None), 0),
    (slice(None), 0, [1, 3, 0]), ([[0], [1]], [0, 2], slice(None, None, 2)), (1, 2), (slice(None), slice(1, 3)),
    ([0, 1], [1, 2], [3, 0]), (0, slice(None), 1, None), (0, None, [1]),
]  # fmt: skip


@pytest.mark.parametrize("key", THREE, ids=str)
def test_indexing_of_three_axes(key: Any) -> None:
    b = numbers(2, 3, 4)
    agrees(lambda b: b[key], lambda b: b[key], b)
    agrees(lambda b: az.update(b, key, 9.0), lambda b: written(b, key, 9.0), b)


def test_computed_indices() -> None:
    a, i, j = numbers(3, 4), np.array([2, 0, 1]), np.array([3, 0])
    agrees(lambda a, i, j: a[i, j[:, None]], lambda a, i, j: a[i, j[:, None]], a, i, j)
    agrees(lambda a, i: a[i, i], lambda a, i: a[i, i], a, i)
    agrees(lambda a, i: a[:, i], lambda a, i: a[:, i], a, i)
    agrees(lambda a, k: a[k], lambda a, k: a[k], a, 2)
    agrees(lambda a, k: a[k:], lambda a, k: a[k:], a, 2)
    agrees(lambda a, k: a[:k, 1], lambda a, k: a[:k, 1], a, 2)
    agrees(lambda a, i: az.update(a, i, 0.0), lambda a, i: written(a, i, 0.0), a, np.array([1, 1, 0]))
    agrees(lambda a, k: az.update(a, (k, slice(k, None)), 0.0), lambda a, k: written(a, (k, slice(k, None)), 0.0), a, 2)


def test_captured_arrays_are_constants() -> None:
    table = numbers(4)
    agrees(lambda i: az.map(lambda k: az.size(table) * k, i), lambda i: 4 * i, np.arange(3))
    agrees(lambda x: x[np.array([-1, 0])], lambda x: x[[-1, 0]], numbers(3))
    assert str(annotated(lambda i: np.ones((2, 3)) @ np.ones(3) + 0.0 * i, 1.0).at().term.types) == "(f64[2],)"


def test_updates_keep_the_type() -> None:
    agrees(lambda x: az.update(x, 1, 7), lambda x: written(x, 1, 7), numbers(3, dtype=np.float32))
    agrees(lambda x: az.update(x, 1, np.arange(3)[0]), lambda x: written(x, 1, 0), numbers(3))
    agrees(lambda x: az.update(x, 1, True), lambda x: written(x, 1, True), np.array([False, False]))


def test_updates_in_a_loop() -> None:
    def sieve(x: Any) -> Any:
        return az.fori_loop(1, az.size(x), lambda i, s: az.update(s, i, s[i - 1] + s[i]), x)

    agrees(sieve, np.cumsum, numbers(6))


@pytest.mark.parametrize("n", [0, 1, 6])
def test_filter(n: int) -> None:
    agrees(lambda x: az.filter(lambda v: v > 0, x), lambda x: x[x > 0], numbers(n))
    agrees(lambda a: az.filter(lambda row: row[0] > 0, a), lambda a: a[a[:, 0] > 0], numbers(n, 2))
    agrees(
        lambda x: az.filter(lambda p: p[1] % 2 == 0, (x, az.iota(az.size(x)))),
        lambda x: (x[::2], np.arange(n)[::2]),
        numbers(n),
    )


# Sorting


@pytest.mark.parametrize(
    ("dtype", "shape", "axis"),
    [
        *[(dtype, (3, 5), 0) for dtype in TYPES],
        *[(np.float64, shape, -1) for shape in [(0,), (1,), (9,), (0, 2), (2, 3, 4)]],
        (np.float64, (2, 3), None),
    ],
)
def test_sorting(dtype: Any, shape: tuple[int, ...], axis: Any) -> None:
    x = numbers(*shape, dtype=dtype)
    agrees(lambda x: az.argsort(x, axis), lambda x: x.argsort(axis, kind="stable"), x)
    agrees(lambda x: az.sort(x, axis), lambda x: np.sort(x, axis), x)
    agrees(
        lambda x: az.sort(x, axis, descending=True),
        lambda x: np.flip(np.sort(x, axis), -1 if axis is None else axis),
        x,
    )


def test_sorting_of_special_values_and_ties() -> None:
    agrees(az.argsort, lambda x: x.argsort(kind="stable"), SPECIAL)
    assert list(evaluated(lambda x: az.argsort(x, descending=True), np.array([1.0, 2.0, 1.0, 2.0]))) == [1, 3, 0, 2]
    descending = evaluated(lambda x: az.sort(x, descending=True), np.array([1.0, np.nan, 2.0]))
    assert np.isnan(descending[0]) and list(descending[1:]) == [2.0, 1.0]
    agrees(
        lambda x: az.take_along_axis(x, az.argsort(x, 0), 0),
        lambda x: np.take_along_axis(x, x.argsort(0, kind="stable"), 0),
        numbers(4, 3),
    )


@pytest.mark.parametrize("n", [0, 1, 2, 9])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(n: int, side: Any) -> None:
    a, v = np.sort(numbers(n)), numbers(2, 5)
    agrees(lambda a, v: az.searchsorted(a, v, side), lambda a, v: np.searchsorted(a, v, side), a, v)
    special = np.sort(SPECIAL)
    agrees(lambda a, v: az.searchsorted(a, v, side), lambda a, v: np.searchsorted(a, v, side), special, SPECIAL)


@pytest.mark.parametrize("scalar", [np.float64, np.float32, np.int64, np.int32])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_in_vectors_of_all_small_sizes(scalar: Any, side: Any) -> None:
    """Elements that are equal, NaN and infinite, and values beside, between and among them."""
    searched = az.compile(az.program(lambda a, v: az.searchsorted(a, v, side)))
    v = np.arange(-1, 8).astype(scalar)
    ends = np.array([-np.inf, np.inf, np.nan, np.nan], scalar) if v.dtype.kind == "f" else np.zeros(0, scalar)
    for n in range(35):
        for a in (np.arange(n) // 2, np.arange(n) % 7):
            a = np.sort(np.concatenate([a.astype(scalar), ends[: n % 5]]))
            wanted = np.concatenate([v, ends])
            np.testing.assert_array_equal(searched(a, wanted), np.searchsorted(a, wanted, side))


# Control


def test_conds_of_structures() -> None:
    def ours(x: Any) -> Any:
        return az.cond(x[0] > 0, lambda: {"a": (x, 1), "b": 2}, lambda: {"a": (-x, 2.5), "b": x[0]})

    def wanted(x: Any) -> Any:
        if x[0] > 0:
            return {"a": (x, np.float64(1)), "b": np.float64(2)}
        return {"a": (-x, np.float64(2.5)), "b": x[0]}

    agrees(ours, wanted, numbers(3))
    agrees(ours, wanted, -numbers(3))


def test_branches_of_differing_sizes() -> None:
    def ours(x: Any, k: Any) -> Any:
        return az.cond(k > 0, lambda: (x[:k], az.iota(k)), lambda: (az.concatenate([x, x]), az.iota(3)))

    def wanted(x: Any, k: Any) -> Any:
        return (x[:k], np.arange(k)) if k > 0 else (np.concatenate([x, x]), np.arange(3))

    for k in (0, 1, 4):
        same(az.evaluate(annotated(ours, numbers(4), k))(numbers(4), k), wanted(numbers(4), k))

    def total(a: Any, k: Any) -> Any:
        return az.sum(az.cond(k > 0, lambda: a, lambda: a[1:, :2]), 0)

    for k in (0, 1):
        same(az.evaluate(annotated(total, A, k))(A, k), (A if k > 0 else A[1:, :2]).sum(0))


def test_only_the_branch_taken_is_run() -> None:
    agrees(lambda x, k: az.cond(k < 2, lambda: x[k], lambda: -1.0), lambda x, k: np.float64(-1), numbers(2), 5)


def test_states_of_any_structure() -> None:
    def ours(x: Any, n: Any) -> Any:
        return az.fori_loop(
            1, n, lambda i, s: {"p": (s["p"][1], s["p"][0] + i), "x": s["x"] * 2}, {"p": (0, 1), "x": x}
        )

    def wanted(x: Any, n: Any) -> Any:
        p = (0, 1)
        for i in range(1, n):
            p, x = (p[1], p[0] + i), x * 2
        return {"p": (np.int64(p[0]), np.int64(p[1])), "x": x}

    for n in (-1, 0, 1, 2, 5):
        agrees(ours, wanted, numbers(3), n)


def test_numbers_of_a_state_adopt_types() -> None:
    for dtype in NUMBERS:
        _numbers_adopt(numbers(4, dtype=dtype))


def _numbers_adopt(x: Any) -> None:
    total = x.sum(dtype=x.dtype)
    for zero in (0, 0.0) if x.dtype.kind == "f" else (0,):
        agrees(lambda x, z=zero: az.fori_loop(0, 4, lambda i, s: s + x[i], z), lambda x: total, x)
        agrees(
            lambda x, z=zero: az.fori_loop(0, 4, lambda i, s: az.where(i < 2, s, s + x[i]), z), lambda x: x[2] + x[3], x
        )
        agrees(
            lambda x, z=zero: az.fori_loop(0, 4, lambda i, s: az.cond(i < 2, lambda: s, lambda: s + x[i]), z),
            lambda x: x[2] + x[3],
            x,
        )
        agrees(lambda x, z=zero: az.fori_loop(0, 4, lambda i, s: x[i], z), lambda x: x[3], x)
        agrees(lambda x, z=zero: az.scan_loop(lambda s, v: (s + v, s), z, x)[0], lambda x: total, x)
        agrees(
            lambda x, z=zero: az.while_loop(
                lambda s: s["k"] < 4, lambda s: {"k": s["k"] + 1, "sum": s["sum"] + x[s["k"]]}, {"k": 0, "sum": z}
            ),
            lambda x: {"k": np.int64(4), "sum": total},
            x,
        )
        agrees(  # a loop whose state begins as that of another loop
            lambda x, z=zero: az.fori_loop(0, 4, lambda i, s: az.fori_loop(i, i + 1, lambda j, t: t + x[j], s), z),
            lambda x: total,
            x,
        )
        agrees(  # what one number becomes, another one becomes that is made of it
            lambda x, z=zero: az.fori_loop(0, 4, lambda i, s: (s[1], s[2], s[0] + x[i]), (z, 0, 0)),
            lambda x: (x[1], x[2], x[0] + x[3]),
            x,
        )


def entered(body: Callable[..., Any], x: Any, y: Any) -> tuple[Any, int]:
    """The type of what a program returns, and how often the functions were entered that call ``count``."""
    times = 0

    def count(value: Any) -> Any:
        nonlocal times
        times += 1
        return value

    program = az.program(lambda x, y: body(count, x, y))
    return program.at(x, y).term.results[0].type, times


F32, F64 = az.Array[az.f32, "n"], az.Array[az.f64, "n"]


@pytest.mark.parametrize(
    ("body", "wanted", "times"),
    [
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(s + y[i]), 0.0), az.f64, 1),
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(2 * s + 1), 0.0), az.f64, 1),
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(s / 2), 0), az.f64, 2),
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(s + x[i]), 0.0), az.f32, 2),
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(s + x[i] + y[i]), 0.0), az.f64, 2),
        (  # it meets f32 first, but becomes f64 by what is made of it elsewhere
            lambda count, x, y: az.fori_loop(
                0, 4, lambda i, s: count((s[0] + s[1] * x[i], s[1] + s[2] * x[i], s[2] + y[i])), (0.0, 0.0, 0)
            )[0],
            az.f64,
            2,
        ),
        (  # a state that is met as f32 is passed as f64
            lambda count, x, y: az.fori_loop(
                0, 4, lambda i, s: (count(az.program(halved)(s[0] * x[i])), s[1] + y[i]), (y[0], 0.0)
            )[0],
            az.f64,
            1,
        ),
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(s + az.sum(s * x)), 0.0), az.f32, 2),
        (lambda count, x, y: az.fori_loop(0, 4, lambda i, s: count(s.astype(az.f64) + x[i]), 0.0), az.f64, 1),
    ],
)  # fmt: skip
def test_a_body_is_entered_at_most_twice(body: Any, wanted: Any, times: int) -> None:
    assert entered(body, F32, F64) == (wanted, times)


def halved(x: az.f64) -> Any:
    return x / 2


@pytest.mark.parametrize("passed", [True, False])
def test_bodies_of_a_nest_are_entered_at_most_twice(passed: bool) -> None:
    def nest(depth: int, count: Callable[..., Any], x: Any, start: Any) -> Any:
        def body(_: Any, s: Any) -> Any:
            return count(nest(depth - 1, count, x, s) if passed else s + nest(depth - 1, count, x, 0.0))

        return az.fori_loop(0, 2, body, start) if depth else start + x[0]

    assert entered(lambda count, x, y: nest(12, count, y, 0.0), F32, F64) == (az.f64, 12)
    assert entered(lambda count, x, y: nest(12, count, x, 0.0), F32, F64) == (az.f32, 24)


def test_a_state_that_never_settles_is_refused() -> None:
    def other(s: Any) -> Any:
        return s.astype(az.f32) if s.dtype == az.f64 else s.astype(az.f64)

    message = "makes f32 of a state of type f64, and f64 of one of type f32: its type never settles.*test_combinators"
    for loop in (
        lambda: az.fori_loop(0, 4, lambda i, s: other(s), 0.0),
        lambda: az.while_loop(lambda s: s < 1, other, 0.0),
        lambda: az.scan_loop(lambda s, _: (other(s), s), 0.0, None, length=4),
    ):
        with pytest.raises(TypeError, match=message):
            az.program(loop).at().term  # noqa: B018
    with pytest.raises(TypeError, match=r"changes a state of type f64 to i64 \(at .*test_combinators"):
        az.program(lambda: az.fori_loop(0, 4, lambda i, s: i, 0.5)).at().term  # noqa: B018


@pytest.mark.parametrize("n", [0, 1, 5])
def test_scan_loops(n: int) -> None:
    def step(state: Any, element: Any) -> Any:
        row, weight = element
        state = {"sum": state["sum"] + weight * row, "count": state["count"] + 1}
        return state, (state["sum"], {"so_far": state["count"]})

    def ours(a: Any, w: Any) -> Any:
        return az.scan_loop(step, {"sum": np.zeros(3), "count": 0}, (a, w))

    def wanted(a: Any, w: Any) -> Any:
        sums = np.cumsum(w[:, None] * a, 0)
        total = sums[-1] if n else np.zeros(3)
        return {"sum": total, "count": np.int64(n)}, (sums, {"so_far": np.arange(1, n + 1)})

    a, w = numbers(n, 3), numbers(n)
    same(evaluated(ours, a, w, fixed=True), wanted(a, w))
    agrees(
        lambda k: az.scan_loop(lambda s, _: (s * 2, s), 1, None, length=k),
        lambda k: (np.int64(2**k), 2 ** np.arange(k)),
        n,
    )


def test_while_loops() -> None:
    def collatz(n: Any) -> Any:
        def step(state: Any) -> Any:
            n, steps = state
            return az.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

        return az.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]

    agrees(collatz, lambda n: np.int64(111), 27)
    agrees(collatz, lambda n: np.int64(0), 1)
    agrees(lambda x: az.while_loop(lambda x: az.max(abs(x)) > 1, lambda x: x / 2, x), lambda x: x / 2, numbers(5))
    assert list(evaluated(lambda n: az.generate(4, lambda i: collatz(n + i)), 1)) == [0, 1, 7, 2]


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_triangular_loops(n: int) -> None:
    x = numbers(n)

    def wanted(x: Any) -> Any:
        return np.array([x[:i].sum() for i in range(n)])

    agrees(lambda x: az.generate(az.size(x), lambda i: az.sum(az.generate(i, lambda j: x[j]))), wanted, x)
    agrees(lambda x: az.generate(az.size(x), lambda i: az.sum(x[:i])), wanted, x)
    agrees(
        lambda x: az.sum(az.generate(az.size(x), lambda i: az.max(x[i:]))),
        lambda x: sum(x[i:].max() for i in range(n)) + 0.0,
        x,
    )
    agrees(lambda x: az.generate(az.size(x), lambda i: az.reduce(lambda a, b: a * b, 1.0, x[: i + 1])), np.cumprod, x)


def test_maps_of_structures() -> None:
    def ours(a: Any, x: Any) -> Any:
        return az.map(lambda p, k: {"sum": az.sum(p["row"]) + p["w"], "k": k}, {"row": a, "w": x}, az.iota(3))

    agrees(ours, lambda a, x: {"sum": a.sum(1) + x, "k": np.arange(3)}, numbers(3, 2), numbers(3))
