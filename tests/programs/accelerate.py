"""The unit test programs of reverse differentiation in Accelerate, with their names; and its other combinators.

They were written to break a differentiator: choices between arrays, indices that are computed from data or guarded by
a choice, integers beside numbers in tuples, results that ignore their argument. What Accelerate calls ``acond`` is
``cond`` here; its ``zipWith`` stops at the shorter array; ``the`` and ``sum`` of a vector give scalars.

    acond_0  =  sum (acond (the (sum a) > 0) a (map (*2) a))

The table of the thesis has 58 names, and one program more whose name is lost: that of nonfloat_lam stands there twice,
so it is nonfloat_lam_friendly. "Friendly" rows are programs once more, on inputs away from the points where finite
differences fail: acond_2a, acond_2b, fold_3, fold1_2, aindex_map_2, nonfloat_lam and cond_0 have them. That makes 52
programs, which are all here (``map`` is map_1, ``zipWith`` is zip_with_1), and 59 rows, which are in ``appendix.py``
with their inputs. The folds of the thesis combine single numbers, with an operator that reads no array, from a constant
on; ``fold_pairs``, ``fold_indexed`` and ``fold_from_sum`` do not.

(Smeding: Reverse Automatic Differentiation for Accelerate, 2021, appendix A.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Matrix, Vector, X, Y, case, numbers

ONE = numbers(1)
EIGHT = numbers(8, seed=3)
LONG = numbers(11, seed=4)
OTHER = az.Array[az.f64, "m"]


def add(x: Any, y: Any) -> Any:
    return x + y


def zip_with(f: Callable[..., Any], a: Any, b: Any) -> Any:
    """Accelerate's ``zipWith`` of two vectors, which is as long as the shorter one."""
    return az.generate(az.minimum(az.size(a), az.size(b)), lambda i: f(a[i], b[i]))


def short(a: Any, b: Any) -> tuple[Any, Any]:
    """In NumPy, the parts of two vectors that zip_with sees."""
    n = min(len(a), len(b))
    return a[:n], b[:n]


def nearest(x: Any) -> Any:
    """The place that a number picks, before it is taken modulo the size."""
    return az.abs(az.round(x).astype(az.i64))


def places(x: Any) -> Any:
    return np.abs(np.rint(x)).astype(np.int64) % max(len(x), 1)


# Choices between arrays


@case(lambda a: np.sum(a if np.sum(a) > 0 else 2 * a), (X,), (-X,), (NONE,))
def acond_0(a: Vector) -> az.f64:
    return az.sum(az.cond(az.sum(a) > 0, lambda: a, lambda: az.map(lambda x: x * 2, a)))


@case(lambda a: np.sum(2 * a if np.sum(a) > 0 else a), (X,), (-X,), (NONE,))
def acond_0a(a: Vector) -> az.f64:
    return az.sum(az.cond(az.sum(a) > 0, lambda: az.map(lambda x: x * 2, a), lambda: a))


@case(lambda a: 2 * len(a) * np.sum(a), (X,), (-X,), (NONE,))
def acond_1(a: Vector) -> az.f64:
    b = az.map(lambda x: x * 2, a)
    a1, _ = az.cond(az.sum(a) > 0, lambda: (a, b), lambda: (b, a))
    return az.sum(az.map(lambda x: x * az.size(a1).astype(az.f64), b))


def _acond_2(a: Any) -> Any:
    return np.sum(2 * a * (2 * a + 1 if a.sum() <= 2 else 4 * a - 1))


def _chosen(a: Any) -> tuple[Any, Any]:
    b = az.map(lambda x: x * 2, a)

    def less() -> Any:
        return az.map(lambda x: x - 1, az.map(lambda x: x * 2, b))

    return b, az.cond(az.sum(a) <= 2, lambda: az.map(lambda x: x + 1, b), less)


@case(_acond_2, (X,), (X + 1,), (np.array([0.5, 1.5]),), (NONE,))
def acond_2a(a: Vector) -> az.f64:
    b, y = _chosen(a)
    return az.sum(zip_with(lambda u, v: u * v, b, y))


@case(_acond_2, (X + 1,), (X,), (np.array([0.5, 1.5]),), (NONE,))
def acond_2b(a: Vector) -> az.f64:
    b, y = _chosen(a)
    return az.sum(zip_with(lambda u, v: u * v, y, b))


@case(lambda a: 42.0, (X,), (NONE,))
def acond_3a(a: Vector) -> az.f64:
    return az.sum(az.cond(True, lambda: az.generate(1, lambda _: 42.0), lambda: a))


@case(lambda a: 42.0, (X,), (NONE,))
def acond_3b(a: Vector) -> az.f64:
    def otherwise() -> Any:
        return az.sum(az.map(lambda x: x * 2, a)) + az.sum(az.map(lambda x: x + 3, a))

    return az.cond(az.size(a) >= 0, lambda: az.generate((), lambda: 42.0), otherwise)


# Maps and folds


@case(lambda a: 3 * a.sum(), (X,), (NONE,), (ONE,))
def map_1(a: Vector) -> az.f64:
    return az.sum(az.map(lambda x: x * 3, a))


def _zip_with(a: Any, b: Any) -> Any:
    x, y = short(a, b)
    return np.sum(np.sin(x) * np.cos(x + y))


@case(_zip_with, (X, Y), (X, LONG), (LONG, X), (X, NONE))
def zip_with_1(a: Vector, b: OTHER) -> az.f64:
    return az.sum(zip_with(lambda x, y: az.sin(x) * az.cos(x + y), a, b))


@case(np.prod, (X,), (np.array([0.0, 2.0, 0.0]),), (NONE,))
def fold_1(a: Vector) -> az.f64:
    return az.reduce(lambda x, y: x * y, 1.0, a)


@case(lambda a: max([3.0, *a]), (X,), (2 * X,), (np.array([3.0, 5.0, 5.0]),), (NONE,))
def fold_2(a: Vector) -> az.f64:
    return az.maximum(3.0, az.reduce(az.maximum, -np.inf, a))


@case(lambda a: np.sum(np.abs(a)), (X,), (np.array([-3.0]),), (np.array([0.0, -1.0]),), (NONE,))
def fold_3(a: Vector) -> az.f64:
    """The initial value 0 is not neutral, and the operator is not plain addition."""

    def magnitude(v: Any) -> Any:
        return az.cond(v < 0, lambda: -v, lambda: v)

    def op(x: Any, y: Any) -> Any:
        return magnitude(x) + magnitude(y)

    return az.cond(az.size(a) > 0, lambda: op(0.0, az.fold1(op, a)), lambda: 0.0)


@case(np.prod, (X,), (np.array([2.0, 0.0, 3.0]),), (ONE,))
def fold1_1(a: Vector) -> az.f64:
    return az.fold1(lambda x, y: x * y, a)


@case(np.max, (X,), (np.array([1.0, 4.0, 4.0]),), (ONE,))
def fold1_2(a: Vector) -> az.f64:
    return az.fold1(az.maximum, a)


# Folds that the thesis excludes: elements of several numbers, operators that read arrays, a start that is not constant


def _fold_pairs(a: Any, b: Any) -> Any:
    slope, offset = 1.0, 0.0
    for x, y in zip(*short(a, b), strict=True):
        slope, offset = slope * x / 4, offset * x / 4 + y
    return slope * offset


@case(_fold_pairs, (X, Y), (X, LONG), (ONE, X), (NONE, NONE))
def fold_pairs(a: Vector, b: OTHER) -> az.f64:
    """Affine maps, one after the other: the operator does not commute."""

    def then(f: Any, g: Any) -> Any:
        return f[0] * g[0], f[1] * g[0] + g[1]

    slopes, offsets = zip_with(lambda x, _: x / 4, a, b), zip_with(lambda _, y: y, a, b)
    slope, offset = az.reduce(then, (1.0, 0.0), (slopes, offsets))
    return slope * offset


def _fold_indexed(a: Any, b: Any) -> Any:
    return np.sum([(np.prod(1 + c * a) - 1) / c if c else a.sum() for c in b / 16])


@case(_fold_indexed, (X, Y), (LONG, X), (np.array([0.0, 2.0, 0.0]), ONE), (X, np.zeros(2)), (NONE, X), (X, NONE))
def fold_indexed(a: Vector, b: OTHER) -> az.f64:
    """``x + y + b_i x y``: an operator for each element of b, which it reads."""

    def folded(i: Any) -> Any:
        return az.reduce(lambda x, y: x + y + b[i] / 16 * x * y, 0.0, a)

    return az.sum(az.generate(az.size(b), folded))


@case(lambda a, b: b.sum() * a.prod(), (X, Y), (np.array([0.0, 2.0]), LONG), (NONE, X), (X, NONE))
def fold_from_sum(a: Vector, b: OTHER) -> az.f64:
    """``fold (*) (sum b) a``."""
    return az.sum(b) * az.reduce(lambda x, y: x * y, 1.0, a)


# Replicate, slice, reshape, backpermute


@case(lambda a: np.prod(10 * (a * a + a)), (X,), (ONE,), (NONE,))
def replicate_1(a: Vector) -> az.f64:
    table = az.replicate((az.All, 5), az.map(lambda x: x * x + x, a))
    return az.prod(az.sum(az.map(lambda x: x * 2, table), 1))


@case(lambda a: np.sum(a * a + a) / 4, (X,), (ONE,))
def replicate_2(a: Vector) -> az.f64:
    table = az.replicate((5, az.All), az.map(lambda x: x * x + x, a))
    return az.fold1(add, az.ravel(az.map(lambda x: x / 20, table)))


def _squares(a: Any) -> Any:
    return az.map(lambda x: x * x + x, az.replicate((az.All, 2), a))


@case(lambda a: 60 * np.sum(a * a + a), (X,), (ONE,))
def replicate_3(a: Vector) -> az.f64:
    table = az.replicate((az.All, 5, az.All, 3), _squares(a))
    return az.fold1(add, az.ravel(az.map(lambda x: x * 2, table)))


@case(lambda a: 60 * np.sum(a * a + a), (X,), (ONE,), (NONE,))
def replicate_4(a: Vector) -> az.f64:
    table = az.replicate((5, az.All, 3, az.All), _squares(a))
    return az.sum(az.map(lambda x: x * 2, table))


@case(np.sum, (X,), (LONG,), (NONE,))
def slice_1(a: Vector) -> az.f64:
    m = az.size(a) // 4 + 3
    return az.sum(az.slice(az.replicate((m, m, az.All), a), (2, 1, az.All)))


def _slice_2(p1: int, p2: int, a: Any) -> Any:
    n = len(a)
    return sum(a[(p1 % n + p2 % n + k) % n] for k in range(n + 1))


@case(_slice_2, (7, 13, X), (0, 61, X), (61, 0, ONE))
def slice_2(p1: az.i64, p2: az.i64, a: Vector) -> az.f64:
    n = az.size(a)
    cube = az.backpermute((n, n, n + 1), lambda i, j, k: (i + j + k) % n, a)
    return az.sum(az.slice(cube, (p1 % n, p2 % n, az.All)))


@case(lambda a: np.sum(a[: len(a) // 2]) * np.sum(a[len(a) // 2 :]), (EIGHT,), (NONE,))
def reshape_1(a: Vector) -> az.f64:
    return az.prod(az.sum(az.reshape(a, (2, az.size(a) // 2)), 1))


@case(np.sum, (EIGHT,), (NONE,))
def reshape_2(a: Vector) -> az.f64:
    n = az.size(a)
    column = az.reshape(az.reshape(a, (2, n // 2)), (n, 1))
    return az.sum(az.prod(column, 1))


def _around(m: int, a: Any) -> Any:
    return a[np.add.outer(np.arange(m), np.arange(2 * m)) % len(a)]


@case(lambda m, a: _around(m, a).sum(), (5, X), (15, ONE))
def backpermute_1(m: az.i64, a: Vector) -> az.f64:
    n = az.size(a)
    return az.sum(az.backpermute((m, 2 * m), lambda i, j: (i + j) % n, a))


def _backpermute_2(m: int, a: Any) -> Any:
    c = _around(m, a).sum(1)
    return c[0] + c[min(m - 1, 2)] + c[min(m - 1, 4)]


@case(_backpermute_2, (5, X), (15, LONG), (7, ONE))
def backpermute_2(m: az.i64, a: Vector) -> az.f64:
    n = az.size(a)
    c = az.sum(az.backpermute((m, 2 * m), lambda i, j: (i + j) % n, a), 1)
    d = az.backpermute((2, 3, m), lambda _, i, j: az.minimum(m - 1, i * j), c)
    return az.sum(az.slice(az.map(lambda x: x / 2, d), (az.All, az.All, 2)))


# Indexing


@case(lambda a: a[: len(a) - len(a) % 2 : 2].sum(), (X,), (EIGHT,), (NONE,), (ONE,))
def aindex_generate_1(a: Vector) -> az.f64:
    return az.sum(az.generate(az.size(a) // 2, lambda i: a[2 * i]))


def _aindex_generate_2(a: Any) -> Any:
    n = len(a)
    return 2 * a.sum() + (n * (a[0] + a[min(1, n - 1)]) if n else 0.0)


@case(_aindex_generate_2, (X,), (ONE,), (NONE,))
def aindex_generate_2(a: Vector) -> az.f64:
    n = az.size(a)
    return az.sum(az.generate(2 * n, lambda i: a[i // 2] + a[az.minimum(i % 2, n - 1)]))


@case(lambda a: np.sum([a[i // 2] if i < 5 else 42.0 for i in range(2 * len(a))]), (X,), (ONE,), (numbers(2),), (NONE,))
def aindex_generate_3(a: Vector) -> az.f64:
    return az.sum(az.generate(2 * az.size(a), lambda i: az.cond(i < 5, lambda: a[i // 2], lambda: 42.0)))


@case(lambda a: 2 * np.sum(a), (X,), (ONE,), (NONE,))
def aindex_generate_4(a: Vector) -> az.f64:
    n = az.size(a)
    return az.sum(az.generate(2 * n, lambda i: az.cond(i < n, lambda: a[i], lambda: a[i - n])))


@case(lambda a: np.sum(a) + len(a) * a[2], (X,), (numbers(3),))
def aindex_map_1(a: Vector) -> az.f64:
    return az.sum(az.map(lambda x: x + a[2], a))


@case(lambda a: np.sum(a + a[places(a)]), (X,), (np.array([-2.0, 1.0, 3.0]),), (np.array([0.5, 1.5, -2.5]),), (NONE,))
def aindex_map_2(a: Vector) -> az.f64:
    n = az.size(a)
    return az.sum(az.map(lambda x: x + a[nearest(x) % n], a))


def _aindex_map_3(a: Any) -> Any:
    i = np.arange(len(a))
    return np.sum(a * a[i[:, None] & i].max(1, initial=-20.0)[places(a)])


@case(_aindex_map_3, (X,), (LONG,), (NONE,))
def aindex_map_3(a: Vector) -> az.f64:
    n = az.size(a)
    b = az.maximum(-20.0, az.max(az.backpermute((n, n), lambda i, j: i & j, a), 1))
    return az.sum(az.map(lambda x: x * b[nearest(x) % n], a))


def _aindex_map_4(a: Any) -> Any:
    i = np.arange(len(a))
    return np.sum(a * a[np.minimum(i[:, None] ^ i, len(a) - 1)].sum(1)[places(a)])


@case(_aindex_map_4, (X,), (LONG,), (NONE,))
def aindex_map_4(a: Vector) -> az.f64:
    n = az.size(a)
    b = az.sum(az.backpermute((n, n), lambda i, j: az.minimum(i ^ j, n - 1), a), 1)
    return az.sum(az.map(lambda x: x * b[nearest(x) % n], a))


def _aindex_acond(a: Any) -> Any:
    s = int(np.rint(a.sum()))
    return a[s] if 0 <= s < len(a) else 0.0


@case(_aindex_acond, (np.array([0.5, 2.0, -1.25]),), (X,), (LONG,), (-EIGHT,), (NONE,))
def aindex_acond(a: Vector) -> az.f64:
    n, s = az.size(a), az.round(az.sum(a)).astype(az.i64)

    def picked() -> Any:
        return az.generate(1, lambda _: a[s])

    return az.sum(az.cond((s >= 0) & (s < n), picked, lambda: az.generate(1, lambda _: 0.0)))


@case(lambda a: sum(a[i % len(a)] for i in range(5)), (X,), (numbers(3),), (ONE,), (LONG,))
def aindex_only(a: Vector) -> az.f64:
    n = az.size(a)
    return az.sum(az.generate(5, lambda i: a[i % n]))


@case(lambda a: 42.0, (X,), (NONE,))
def a_ignore_argument(a: Vector) -> az.f64:
    return az.generate((), lambda: 42.0)


# Tuples


@case(lambda a: np.sum(np.rint(a) * np.sin(a)), (X,), (np.array([-2.0, 1.0, 3.0]),), (NONE,))
def nonfloat_lam(a: Vector) -> az.f64:
    b = az.map(lambda x: (az.round(x).astype(az.i64), az.sin(x)), a)
    return az.sum(az.map(lambda i, x: i.astype(az.f64) * x, *b))


def _shifted(a: Any) -> tuple[Any, Any]:
    maxx = az.fold1(az.maximum, a)
    return maxx, zip_with(lambda x, y: x - y, a, az.replicate((az.size(a),), maxx))


@case(lambda a: np.logaddexp.reduce(a), (X,), (X + 1000,), (ONE,))
def logsumexp1(a: Vector) -> az.f64:
    maxx, shifted = _shifted(a)
    return az.log(az.sum(az.map(az.exp, shifted))) + maxx


@case(lambda a: np.log(np.sum(np.exp(a - a.max()))), (X,), (X + 1000,), (ONE,))
def logsumexp2(a: Vector) -> az.f64:
    _, shifted = _shifted(a)
    return az.log(az.sum(az.map(az.exp, shifted)))


@case(lambda a: 2 * np.max(a), (X,), (np.array([1.0, 4.0, 4.0]),), (ONE,))
def logsumexp3(a: Vector) -> az.f64:
    maxx = az.fold1(az.maximum, a)
    return maxx + maxx


@case(lambda a: np.sum(np.sin(2 * a) * a + 2 * a * a) + 5, (X,), (NONE,))
def tuple1(a: Vector) -> az.f64:
    b, _ = az.map(lambda x: x * 2, a), az.map(lambda x: x + 3, a)
    a1, a2, a3 = zip_with(lambda x, y: az.sin(x) * y, b, a), a, b
    return az.sum(az.map(lambda x, y, z: x + y * z, a1, a2, a3)) + 5


def _tuple2(a: Any, b: Any) -> Any:
    x, y = short(a, b)
    return np.log(np.sum(x * y + y) * np.sum(b)) + np.sum(2 * b)


@case(_tuple2, (abs(X) + 1, abs(Y) + 1), (abs(X) + 1, LONG + 5), (LONG + 5, ONE + 9))
def tuple2(a: Vector, b: OTHER) -> az.f64:
    a1, a2 = b, zip_with(lambda x, y: x * y, a, b)
    b1, b2 = zip_with(add, a2, b), a1
    c1, c2 = b2, zip_with(add, a1, b2)
    d1, d2 = az.sum(c2), az.sum(b1)
    return az.log(d2 * az.sum(c1)) + d1


def _tuple3(a: Any, b: Any) -> Any:
    a1, a2 = (np.repeat(b[:, None], 3, 1), a) if len(a) % 3 == 0 else (np.array([[0.0, 1.0]]), b)
    if (a1[0, 1] if len(a1) else 42) > 0:
        b1, b2 = a1, a2
    else:
        b1, b2 = a2[np.multiply.outer(np.arange(4), np.arange(4)) % len(a2)], a1[:, 0]
    x, y = short(b2, b1.sum(1))
    return np.sum(x + y)


@case(_tuple3, (numbers(6), Y), (X, numbers(3)), (numbers(3), -abs(X)), (ONE, LONG))
def tuple3(a: Vector, b: OTHER) -> az.f64:
    a1, a2 = az.cond(
        az.size(a) % 3 == 0,
        lambda: (az.replicate((az.All, 3), b), a),
        lambda: (az.generate((1, 2), lambda i, j: (i + j).astype(az.f64)), b),
    )
    n = az.size(a2)
    b1, b2 = az.cond(
        az.cond(az.size(a1) > 0, lambda: a1[0, 1], lambda: 42.0) > 0,
        lambda: (a1, a2),
        lambda: (az.backpermute((4, 4), lambda i, j: i * j % n, a2), az.slice(a1, (az.All, 0))),
    )
    return az.sum(zip_with(add, b2, az.sum(b1, 1)))


@case(
    lambda a, b: a.sum() * b.sum() + (b.sum() * a.prod() + b.sum()) * a.sum(),
    (X, Y),
    (X, LONG),
    (NONE, X),
    (X, NONE),
)
def tuple4(a: Vector, b: OTHER) -> az.f64:
    (a1, s1, (s2, a2, _), s3), a3 = (b, az.sum(a), (az.sum(b), a, ()), az.sum(a)), b
    return s1 * az.sum(a3) + (az.sum(a1) * az.prod(a2) + s2) * s3


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _neural(len1: int, len2: int, inputs: Any, weights: Any) -> Any:
    def weight(seed: int, i: Any, j: Any) -> Any:
        return weights[(i + j + j * j * seed) ** (1 + seed) % len(weights)]

    first = weight(1, *np.indices((len1, len(inputs))))
    second = weight(2, *np.indices((len2, len1)))
    third = weight(3, 0, np.arange(len2))
    return _sigmoid(third @ _sigmoid(second @ _sigmoid(first @ inputs)))


@case(_neural, (4, 3, X, LONG / 4), (1, 15, ONE, numbers(3)), (15, 1, X, LONG))
def neural(len1: az.i64, len2: az.i64, inputs: Vector, weights: OTHER) -> az.f64:
    n = az.size(weights)

    def pick_weights(seed: int, shape: Any, f: Callable[..., Any]) -> Any:
        def place(*index: Any) -> Any:
            i, j = f(*index)
            return (i + j + j * j * seed) ** (1 + seed) % n

        return az.backpermute(shape, place, weights)

    def mvmul(matrix: Any, v: Any) -> Any:
        return az.sum(matrix * az.replicate((az.size(matrix), az.All), v), 1)

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + az.exp(-v))

    w1 = pick_weights(1, (len1, az.size(inputs)), lambda i, j: (i, j))
    w2 = pick_weights(2, (len2, len1), lambda i, j: (i, j))
    w3 = pick_weights(3, len2, lambda i: (0, i))
    return sigmoid(az.dot(w3, sigmoid(mvmul(w2, sigmoid(mvmul(w1, inputs))))))


# Choices between elements


def _acond_cond1(a: Any) -> Any:
    n, b = len(a), 2 * a
    idx = int(np.floor(_sigmoid(a.sum()) * (2 * n - 0.01)))
    if idx < n:
        return sum(a[i] if i <= idx else b[(i - idx) // 2] for i in range(2 * n))
    return sum(a[idx - n] + (b[i - n] if i >= n else a[i]) for i in range(2 * n))


@case(_acond_cond1, (X / 8,), (EIGHT / 4,), (-X,), (ONE,), (LONG,))
def acond_cond1(a: Vector) -> az.f64:
    """An index is out of range when either choice is made wrongly."""
    b, n = az.map(lambda x: x * 2, a), az.size(a)
    idx = az.floor(1 / (1 + az.exp(-az.sum(a))) * ((2 * n).astype(az.f64) - 0.01)).astype(az.i64)

    def low(i: Any) -> Any:
        return az.cond(i <= idx, lambda: a[i], lambda: b[(i - idx) // 2])

    def high(i: Any) -> Any:
        return a[idx - n] + az.cond(i >= n, lambda: b[i - n], lambda: a[i])

    return az.sum(az.cond(idx < n, lambda: az.generate(2 * n, low), lambda: az.generate(2 * n, high)))


@case(lambda a: np.sum(np.where(a > 0, a, 2 * a)), (X,), (np.array([0.0, -1.0, 2.0]),), (NONE,))
def cond_0(a: Vector) -> az.f64:
    return az.sum(az.map(lambda x: az.cond(x > 0, lambda: x, lambda: 2 * x), a))


@case(lambda a: 2 * np.sum(np.where(a > 0, np.sin(a * a), a * a * np.exp(a))), (X,), (np.zeros(2),), (NONE,))
def cond_1(a: Vector) -> az.f64:
    """The derivative is continuous at 0."""
    return az.sum(az.map(lambda x: 2 * az.cond(x > 0, lambda: az.sin(x * x), lambda: x * x * az.exp(x)), a))


def _cond_2(a: Any) -> Any:
    def mod(u: Any) -> Any:
        return u - np.floor(u / (2 * np.pi)) * (2 * np.pi)

    y = np.where(mod(a) < np.pi, np.sin(a), np.pi / 12 * ((2 - 2 / np.pi * mod(a - np.pi / 2)) ** 6 - 1))
    return np.sum(y * y)


@case(_cond_2, (X,), (3 * X,), (NONE,))
def cond_2(a: Vector) -> az.f64:
    """The derivative is continuous at all points where the branch changes."""

    def fmod(u: Any, v: float) -> Any:
        return u - az.floor(u / v).astype(az.i64).astype(az.f64) * v

    def fn(x: Any) -> Any:
        def bump() -> Any:
            return np.pi / 12 * ((2 - 2 / np.pi * fmod(x - np.pi / 2, 2 * np.pi)) ** 6 - 1)

        y = az.cond(fmod(x, 2 * np.pi) < np.pi, lambda: az.sin(x), bump)
        return y * y

    return az.sum(az.map(fn, a))


def _cond_3(a: Any) -> Any:
    return np.sum(2 * a * np.where(a <= 2, 2 * a + 1, 4 * a - 1))


@case(_cond_3, (X,), (np.array([2.0, 3.0]),), (NONE,))
def cond_3a(a: Vector) -> az.f64:
    def fn(x: Any) -> Any:
        u = 2 * x
        v = az.cond(x <= 2, lambda: u + 1, lambda: 2 * u - 1)
        return u * v

    return az.sum(az.map(fn, a))


@case(_cond_3, (X,), (np.array([2.0, 3.0]),), (NONE,))
def cond_3b(a: Vector) -> az.f64:
    def fn(x: Any) -> Any:
        u = 2 * x
        v = az.cond(x <= 2, lambda: u + 1, lambda: 2 * u - 1)
        return v * u

    return az.sum(az.map(fn, a))


def _cond_4(a: Any) -> Any:
    u = np.where(a >= 1, np.log(a) + 1, np.where(a - 2 < -3, np.exp(a + 1) - 2, a))
    y = 2 * np.exp(u)
    return np.sum(u * np.where(u < -1, u + y, y))


@case(_cond_4, (X,), (np.array([1.0, -1.0, 0.5]),), (NONE,))
def cond_4(a: Vector) -> az.f64:
    def fn(x: Any) -> Any:
        def below() -> Any:
            return az.cond(x - 2 < -3, lambda: az.exp(x + 1) - 2, lambda: x)

        u = az.cond(x >= 1, lambda: az.log(x) + 1, below)
        y = 2 * az.exp(u)
        return u * az.cond(u < -1, lambda: u + y, lambda: y)

    return az.sum(az.map(fn, a))


@case(lambda a: 42.0 * len(a), (X,), (NONE,))
def ignore_argument(a: Vector) -> az.f64:
    return az.sum(az.map(lambda _: 42.0, a))


# Scans with an initial value and from either end; permute; stencils. The thesis has no rule for these.


@case(lambda a: np.concatenate([[2.0], 2.0 + np.cumsum(a)]), (X,), (ONE,), (NONE,))
def scanl(a: Vector) -> az.Array[az.f64, "n+1"]:
    """``scanl (+) 2``: one element more than a."""
    return az.concatenate([az.full(1, 2.0), 2.0 + az.scan(add, 0.0, a)])


@case(lambda a: np.concatenate([2.0 * np.cumprod(a[::-1])[::-1], [2.0]]), (X,), (ONE,), (NONE,))
def scanr(a: Vector) -> az.Array[az.f64, "n+1"]:
    """``scanr (*) 2``: from the right, and the initial value last."""
    return az.concatenate([2.0 * az.scan(lambda x, y: x * y, 1.0, a, reverse=True), az.full(1, 2.0)])


@case(lambda a: (np.maximum.accumulate(a), np.minimum.accumulate(a[::-1])[::-1]), (X,), (ONE,), (NONE,))
def scans_from_either_end(a: Vector) -> Any:
    """``scanl1 max`` and ``scanr1 min``."""
    return az.scan(az.maximum, -np.inf, a), az.scan(az.minimum, np.inf, a, reverse=True)


@case(lambda a: (2.0 + np.cumsum(a) - a, a.sum() + 2.0), (X,), (ONE,), (NONE,))
def scanl_with_its_total(a: Vector) -> Any:
    """``scanl' (+) 2``: the exclusive scan, and the fold."""
    return 2.0 + az.scan(add, 0.0, a, exclusive=True), 2.0 + az.sum(a)


def _scanl_segments(flags: Any, a: Any) -> Any:
    out: list[float] = []
    for flag, x in zip(flags, a, strict=True):
        out.append(x if flag or not out else out[-1] + x)
    return np.array(out)


FLAGS = np.array([False, True, False, True, True])


@case(_scanl_segments, (FLAGS, X), (np.array([False]), ONE), (np.zeros(0, bool), NONE))
def scanl1_of_segments(flags: az.Array[az.bool_, "n"], a: Vector) -> Vector:
    def op(x: Any, y: Any) -> Any:
        return x[0] | y[0], az.where(y[0], y[1], x[1] + y[1])

    return az.scan(op, (False, 0.0), (flags, a))[1]


def _permute_sum(at: Any, a: Any) -> Any:
    out = np.arange(4.0)
    for k, x in zip(at, a, strict=True):
        if k >= 0:
            out[k] += x
    return out


AT = np.array([2, -1, 0, 2, 3])


@case(_permute_sum, (AT, X), (np.array([1]), ONE), (np.zeros(0, np.int64), NONE))
def permute_sum(at: az.Array[az.i64, "n"], a: Vector) -> az.Array[az.f64, 4]:
    """Several elements go to one place, some to none, and some places get none."""
    return az.permute(add, az.iota(4).astype(az.f64), lambda i: at[i], a)


def _permute_maps(at: Any, p: Any, q: Any) -> Any:
    slope, offset = np.full(4, 2.0), np.ones(4)
    for k, r, s in zip(at, p, q, strict=True):
        if k >= 0:
            slope[k], offset[k] = slope[k] * r, offset[k] * r + s
    return slope, offset


@case(_permute_maps, (AT, X, Y), (np.zeros(0, np.int64), NONE, NONE))
def permute_maps(at: az.Array[az.i64, "n"], p: Vector, q: Vector) -> Any:
    """An operator that does not commute: the order is that of the elements."""

    def then(f: Any, g: Any) -> Any:
        return f[0] * g[0], f[1] * g[0] + g[1]

    return az.permute(then, (az.full(4, 2.0), az.ones(4)), lambda i: at[i], (p, q))


@case(lambda a: np.ascontiguousarray(a.T), (A,), (numbers(0, 3),), (numbers(1, 1),))
def permute_transpose(a: Matrix) -> az.Array[az.f64, "m n"]:
    return az.permute(add, az.zeros((az.size(a, 1), az.size(a))), lambda i, j: (j, i), a)


def _weights(window: Any) -> Any:
    return window[-2] * 0.5 + window[-1] * window[0] - window[1] * 0.25


def _stencil(mode: str, **options: Any) -> Callable[[Any], Any]:
    def result(a: Any) -> Any:
        if not len(a):
            return a
        p = np.pad(a, (2, 1), mode=mode, **options)  # type: ignore[call-overload]
        return p[:-3] * 0.5 + p[1:-2] * p[2:-1] - p[3:] * 0.25

    return result


@case(_stencil("edge"), (X,), (ONE,), (NONE,))
def stencil_clamp(a: Vector) -> Vector:
    return az.stencil(_weights, "clamp", a)


@case(_stencil("wrap"), (X,), (numbers(2),), (ONE,), (NONE,))
def stencil_wrap(a: Vector) -> Vector:
    return az.stencil(_weights, "wrap", a)


@case(_stencil("reflect"), (X,), (numbers(2),), (NONE,))
def stencil_mirror(a: Vector) -> Vector:
    return az.stencil(_weights, "mirror", a)


@case(_stencil("constant", constant_values=1.5), (X,), (ONE,), (NONE,))
def stencil_constant(a: Vector) -> Vector:
    return az.stencil(_weights, 1.5, a)


def _by_index(a: Any) -> Any:
    p = np.concatenate([[-2.0, -1.0], a, [float(len(a))]])
    return p[:-3] * 0.5 + p[1:-2] * p[2:-1] - p[3:] * 0.25


@case(_by_index, (X,), (ONE,), (NONE,))
def stencil_of_the_index(a: Vector) -> Vector:
    return az.stencil(_weights, lambda i: i.astype(az.f64), a)


def _laplace(a: Any, b: Any) -> Any:
    p = np.pad(a, 1, mode="edge") if a.size else np.zeros((a.shape[0] + 2, a.shape[1] + 2))
    return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * p[1:-1, 1:-1]) * b


@case(_laplace, (A, numbers(3, 4, seed=1)), (numbers(1, 1), numbers(1, 1, seed=2)), (numbers(0, 3), numbers(0, 3)))
def stencil_of_two_arrays(a: Matrix, b: Matrix) -> Matrix:
    def laplace(u: Any, v: Any) -> Any:
        return (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0]) * v[0, 0]

    return az.stencil(laplace, "clamp", a, b)
