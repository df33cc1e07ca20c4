"""Updates at shifted places become maps; what tests imply is not required (``index_set_shifting``, ``implied``)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adze as az
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Program = Any
SIZES = (0, 1, 2, 3, 7, 33)


def shown(program: Program) -> str:
    return str(az.pretty(simplify(program)))


def transposed(f: Program, size: int) -> np.ndarray[Any, Any]:
    """The matrix of a linear program, one row for each element of its argument, as evaluate finds it."""
    return np.array([az.evaluate(f)(row) for row in np.eye(size)])


@az.program
def three_points(x: az.Array[az.f64, "n"]) -> Any:
    def at(i: az.Expr) -> Any:
        left = az.cond(i > 0, lambda: x[i - 1], lambda: 0.0)
        right = az.cond(i + 1 < x.shape[0], lambda: x[i + 1], lambda: 0.0)
        return left - 2 * x[i] + 3 * right

    return az.generate(x.shape[0], at)


@az.program
def differences(x: az.Array[az.f64, "n"]) -> Any:
    return x[1:] - 2 * x[:-1]


@az.program
def backwards(x: az.Array[az.f64, "n"]) -> Any:
    return az.generate(x.shape[0], lambda i: x[i] + 3 * x[x.shape[0] - 1 - i])


@az.program
def every_other(x: az.Array[az.f64, "n"]) -> Any:
    return az.generate(x.shape[0] // 2, lambda i: x[2 * i] + 3 * x[i + 1])


@az.program
def turned(x: az.Array[az.f64, "n"]) -> Any:
    return x + 2 * az.roll(x, 2)


@az.program
def smoothed(x: az.Array[az.f64, "n"]) -> Any:
    def at(i: az.Expr) -> Any:
        def term(r: az.Expr) -> Any:
            inside = (i + r >= 1) & (i + r - 1 < x.shape[0])
            return az.cond(inside, lambda: x[i + r - 1] * (r + 1), lambda: 0.0)

        return az.sum(az.generate(3, term))

    return az.generate(x.shape[0], at)


@pytest.mark.parametrize("f", [three_points, differences, backwards, every_other, turned, smoothed])
def test_gradients_of_linear_stencils(f: Program) -> None:
    gradient = az.vjp(f)
    programs = [az.evaluate(gradient), az.compile(gradient, threads=1)]
    rng = np.random.default_rng(3)
    for size in SIZES:
        if size < 2 and f is turned:
            continue
        matrix = transposed(f, size) if size else None
        w = rng.integers(-4, 5, az.evaluate(f)(np.zeros(size)).shape).astype(float)
        for run in programs:
            np.testing.assert_array_equal(run(np.ones(size), w)[1], np.zeros(0) if matrix is None else matrix @ w)


@pytest.mark.parametrize(
    ("f", "left"), [(three_points, 0), (differences, 0), (backwards, 0), (smoothed, 0), (every_other, 1)]
)
def test_what_is_left_of_the_loops(f: Program, left: int) -> None:
    """An index that leaves places out stays."""

    @az.program
    def total(x: az.Array[az.f64, "n"]) -> Any:
        return az.sum(f(x))

    assert shown(az.grad(total)).count("+=") == left


@az.program
def convolved(x: az.Array[az.f64, "n m"], w: az.Array[az.f64, "p q"]) -> Any:
    (n, m), (p, q) = x.shape, w.shape

    def at(i: az.Expr, j: az.Expr) -> Any:
        def term(r: az.Expr, s: az.Expr) -> Any:
            inside = (i >= r) & (j >= s)
            return az.cond(inside, lambda: x[i - r, j - s] * w[r, s], lambda: 0.0)

        return az.sum(az.generate((p, q), term))

    return az.generate((n, m), at)


@pytest.mark.parametrize("shape", [(5, 6, 3, 2), (1, 1, 1, 1), (2, 3, 4, 5), (0, 3, 2, 2), (4, 4, 0, 1)])
def test_gradient_of_a_convolution(shape: tuple[int, int, int, int]) -> None:
    n, m, p, q = shape
    rng = np.random.default_rng(0)
    x, w, g = (rng.integers(-3, 4, size).astype(float) for size in ((n, m), (p, q), (n, m)))
    dx, dw = np.zeros((n, m)), np.zeros((p, q))
    for r in range(min(n, p)):
        for s in range(min(m, q)):
            dx[: n - r, : m - s] += g[r:, s:] * w[r, s]
            dw[r, s] += np.sum(g[r:, s:] * x[: n - r, : m - s])
    for run in (az.evaluate(az.vjp(convolved)), CONVOLVED):
        _, *found = run(x, w, g)
        np.testing.assert_array_equal(found[0], dx)
        np.testing.assert_array_equal(found[1], dw)


CONVOLVED = az.compile(az.vjp(convolved))

TERMS = st.tuples(st.booleans(), st.integers(-3, 3), st.integers(-4, 4), st.booleans())


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(TERMS, min_size=1, max_size=3), st.integers(0, 3))
def test_random_stencils_in_steps(terms: list[tuple[bool, int, int, bool]], steps: int) -> None:
    """Reads at ``i + c`` and ``n - 1 - i + c``, clipped or where they are in range, in a loop over a state."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        n = x.shape[0]

        def step(t: az.Expr, y: az.Expr) -> Any:
            def at(i: az.Expr) -> Any:
                total = y[i]
                for falls, offset, factor, clips in terms:
                    place = (n - 1 - i if falls else i) + offset
                    if clips:
                        total = total + factor * y[az.minimum(az.maximum(place, 0), n - 1)]
                    else:
                        inside = (place >= 0) & (place < n)
                        read = lambda place=place: y[place] * x[place]  # noqa: E731
                        total = total + factor * az.cond(inside, read, lambda: 0.5)
                return total

            return az.generate(n, at)

        return az.fori_loop(0, steps, step, x)

    gradient = az.vjp(f)
    run = az.compile(gradient)
    for size in (0, 1, 4, 9):
        x = np.arange(size) % 3 - 1.0
        w = np.arange(size) % 4 - 2.0
        np.testing.assert_array_equal(run(x, w)[1], az.evaluate(gradient)(x, w)[1])


# Circles: what wraps around


@pytest.mark.parametrize(("slope", "more", "left"), [(1, 0, 0), (-1, 0, 0), (2, 0, 1), (1, 2, 1)])
@pytest.mark.parametrize("offset", [-11, -2, 0, 1, 5])
def test_reads_around_a_circle(slope: int, more: int, left: int, offset: int) -> None:
    """Each place is read by one iteration, whose number wraps around, too; or by none or several, which stays."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        n = x.shape[0]
        return az.generate(n + more, lambda i: x[(slope * i + offset) % n] * (i + 2.0))

    @az.program
    def total(x: az.Array[az.f64, "n"]) -> Any:
        return az.sum(f(x))

    assert shown(az.grad(total)).count("+=") == (0 if offset == 0 and slope == 1 and not more else left)
    gradient = az.vjp(f)
    compiled = az.compile(gradient, threads=2)
    for size in range(1, 10):
        i = np.arange(size + more)
        w = (i * 5 % 7 - 3).astype(float)
        wanted = np.zeros(size)
        np.add.at(wanted, (slope * i + offset) % size, w * (i + 2.0))
        for run in (az.evaluate(gradient), compiled):
            np.testing.assert_array_equal(run(np.ones(size), w)[1], wanted)


@pytest.mark.parametrize(
    "place",
    [
        lambda i, n, k: (i + k[i]) % n,
        lambda i, n, k: (i + i % 3) % n,
        lambda i, n, k: (i - i // 2 * 2) % n,
        lambda i, n, k: az.minimum(i + i % 3, n - 1),
        lambda i, n, k: (i + k[0]) % n,
        pytest.param(lambda i, n, k: (i + az.sum(az.generate(i, lambda j: j))) % n, marks=pytest.mark.slow),
    ],
)
def test_what_else_varies_with_the_loop_is_no_offset(place: Any) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.Array[az.i64, "n"]) -> Any:
        n = x.shape[0]
        return az.generate(n, lambda i: x[place(i, n, k)] * (i + 1.0))

    gradient = az.vjp(f, argnums=0)
    compiled = az.compile(gradient, threads=1)
    for size in (1, 2, 7, 33):
        k = np.arange(size) * 5 % 7 - 3
        w = np.arange(size) % 4 - 1.5
        wanted = np.zeros(size)
        for i in range(size):
            unit = np.eye(size)
            wanted += w[i] * np.array([az.evaluate(f)(row, k)[i] for row in unit])
        for run in (az.evaluate(gradient), compiled):
            np.testing.assert_array_equal(run(np.ones(size), k, w)[1], wanted)


@az.program
def torus(u: az.Array[az.f64, "n m"], k: az.i64) -> Any:
    around = az.roll(u, 1, 0) + az.roll(u, -1, 0) + 2 * az.roll(u, k, 1) + az.roll(u, -1, 1)
    return az.sum((around - 4 * u) ** 2)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 4), (3, 40), (0, 3), (3, 0)])
def test_gradient_on_a_torus(shape: tuple[int, int]) -> None:
    u = np.random.default_rng(0).integers(-4, 5, shape) / 4
    gradient = az.grad(torus)
    assert "+=" not in shown(gradient)
    compiled = az.compile(gradient, threads=2)
    for k in (-3, 0, 2, 7):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + 2 * np.roll(u, k, 1) + np.roll(u, -1, 1)
        g = 2 * (around - 4 * u)
        wanted = np.roll(g, -1, 0) + np.roll(g, 1, 0) + 2 * np.roll(g, -k, 1) + np.roll(g, 1, 1) - 4 * g
        for run in (az.evaluate(gradient), compiled):
            np.testing.assert_array_equal(run(u, k), wanted)


def test_what_is_padded_around_is_read_where_it_is() -> None:
    @az.program
    def laplace(u: az.Array[az.f64, "n m l"]) -> Any:
        p, middle = az.pad(u, 1, mode="wrap"), slice(1, -1)
        one = [p[2:, middle, middle], p[:-2, middle, middle], p[middle, middle, 2:]]
        return sum(one[1:], one[0]) - 3 * u

    u = np.random.default_rng(0).integers(-4, 5, (3, 4, 5)) / 4
    wanted = np.roll(u, -1, 0) + np.roll(u, 1, 0) + np.roll(u, -1, 2) - 3 * u
    compiled = az.compile(laplace, threads=1)
    np.testing.assert_array_equal(compiled(u), wanted)
    assert compiled.peak_bytes(u) == u.nbytes


def test_circles_in_circles_are_one() -> None:
    @az.program
    def twice(x: az.Array[az.f64, "n"]) -> Any:
        return az.roll(az.roll(x, 1), 2)

    @az.program
    def data(x: az.Array[az.i64, "n"], m: az.i64) -> Any:
        return az.map(lambda v: (v % m + 1) % m, x)

    @az.program
    def hashed(n: az.i64) -> Any:
        return az.generate(n, lambda i: ((i << 61) % 7 + (i * ((1 << 61) - 1)) % 7) % 7)

    assert shown(twice).count("%") == 1
    assert az.compile(hashed)(4).tolist() == [((i << 61) % 7 + i * ((1 << 61) - 1) % 7) % 7 for i in range(4)]
    largest = np.array([2**63 - 1, -(2**63), 6], dtype=np.int64)  # one more would be another number
    for run in (az.evaluate(data), az.compile(data)):
        np.testing.assert_array_equal(run(largest, 7), [(int(v) % 7 + 1) % 7 for v in largest])
    assert shown(data).count("%") == 2


# Reshapes: quotients and remainders of a loop, and the sums that they are undone by


@az.program
def flattened(x: az.Array[az.f64, "n m"], w: az.Array[az.f64, "n*m"]) -> Any:
    return x.reshape((x.shape[0] * x.shape[1],)) * w


@az.program
def in_rows(x: az.Array[az.f64, "n*m"], w: az.Array[az.f64, "n m"]) -> Any:
    return x.reshape(w.shape) * w


@az.program
def row_by_row(x: az.Array[az.f64, "n*m"], w: az.Array[az.f64, "n m"]) -> Any:
    """Each step reads a part of its own."""
    m = w.shape[1]

    def step(i: Any, t: Any) -> Any:
        return t * 0.5 + w[i] * az.generate(m, lambda j: x[i * m + j])

    return az.fori_loop(0, w.shape[0], step, az.zeros(m))


@pytest.mark.parametrize("f", [flattened, in_rows, row_by_row], ids=lambda f: f.name)
def test_cotangents_of_reshaped_arrays(f: Program) -> None:
    random = np.random.default_rng(0)
    for n, m in ((3, 5), (1, 40), (17, 1), (0, 4), (4, 0), (33, 9)):
        w, x = random.integers(-4, 5, (n, m)) * 1.0, random.integers(-4, 5, (n, m)) * 0.25
        args = (x, w.ravel()) if f is flattened else (x.ravel(), w)
        pull = az.vjp(f, argnums=0)
        cotangent = np.ones_like(az.evaluate(f)(*args))
        (expected,) = az.evaluate(pull)(*args, cotangent)[1:]
        for threads in (1, 2):
            (got,) = az.compile(pull, threads=threads)(*args, cotangent)[1:]
            assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("f", [flattened, in_rows, row_by_row], ids=lambda f: f.name)
def test_places_that_are_apart_need_no_copies(f: Program) -> None:
    @az.program
    def total(x: f.parameters[0].type, w: f.parameters[1].type) -> Any:
        return az.sum(f(x, w) ** 2)

    assert "copies" not in az.compile(az.grad(total)).schedule


def test_multiples_of_an_unknown_number_may_meet() -> None:
    @az.program
    def total(x: az.Array[az.f64, "n"], m: az.i64, w: az.Array[az.f64, "k"]) -> az.f64:
        return az.sum(az.generate(w.shape[0], lambda i: x[i * m] * w[i]))

    run = az.compile(az.grad(total), threads=2)
    assert "copies" in run.schedule
    for m in (0, 1, 3):
        args = np.zeros(7), m, np.array([1.0, 2.0, 4.0])
        np.testing.assert_array_equal(run(*args), az.evaluate(az.grad(total))(*args))


def test_nothing_leaks_from_where_no_iteration_adds() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> Any:
        return az.generate(x.shape[0], lambda i: az.cond(i > 0, lambda: x[i - 1] / y[i], lambda: 0.0))

    x, y = np.ones(4), np.array([0.0, 1.0, 2.0, 4.0])
    found = az.compile(az.vjp(f))(x, y, np.array([np.nan, 1.0, 1.0, 1.0]))
    np.testing.assert_array_equal(found[1], [1.0, 0.5, 0.25, 0.0])
    np.testing.assert_array_equal(found[2], [0.0, -1.0, -0.25, -0.0625])


# Requirements


def requirements(test: Any, read: Any) -> int:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> Any:
        n = x.shape[0]
        return az.generate(n, lambda i: az.cond(test(i, n, k), lambda: x[read(i, n, k)], lambda: 0.0))

    return shown(f).count("require")


@pytest.mark.parametrize(
    ("test", "read", "left"),
    [
        (lambda i, n, k: i > 0, lambda i, n, k: i - 1, 0),
        (lambda i, n, k: i >= 2, lambda i, n, k: i - 2, 0),
        (lambda i, n, k: i >= 1, lambda i, n, k: i - 2, 1),
        (lambda i, n, k: i + 1 < n, lambda i, n, k: i + 1, 0),
        (lambda i, n, k: i + 1 <= n, lambda i, n, k: i + 1, 1),
        (lambda i, n, k: (i - k >= 0) & (i - k < n), lambda i, n, k: i - k, 0),
        (lambda i, n, k: (i - k >= 0) | (i - k < n), lambda i, n, k: i - k, 1),
        (lambda i, n, k: ~((i < k) | (k < 0)), lambda i, n, k: i - k, 0),
        (lambda i, n, k: i == k, lambda i, n, k: k, 0),
        (lambda i, n, k: i != k, lambda i, n, k: k, 1),
        (lambda i, n, k: (i <= k) & (k <= i + 1), lambda i, n, k: k - 1, 1),
        (lambda i, n, k: (k + k >= k) & (k < n), lambda i, n, k: k, 1),  # k + k may wrap around
    ],
)
def test_requirements_that_a_test_implies_go(test: Any, read: Any, left: int) -> None:
    assert requirements(test, read) == left


def test_what_the_else_branch_knows() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        return az.generate(
            x.shape[0], lambda i: az.cond(i == 0, lambda: 0.0, lambda: az.cond(i < 2, lambda: 1.0, lambda: x[i - 2]))
        )

    assert "require" not in shown(f)


Table = az.Array[az.f64, "k"]
Places = az.Array[az.i64, "n"]
Squares = az.Array[az.i64, "n n"]


@pytest.mark.parametrize(
    ("read", "left"),
    [
        (lambda x, y, p, q: x[p] + y[p] * x[p], 1),
        (lambda x, y, p, q: x[p] + az.concatenate([y, y[:1]])[p], 1),
        (lambda x, y, p, q: (x[p + 1] - x[p]) / (y[p + 1] - y[p]), 2),
        (lambda x, y, p, q: x[q] + y[q], 1),
        (lambda x, y, p, q: az.generate((q.shape[0], 3), lambda i, k: x[p[i]] + k * y[p[i]]), 1),
        (lambda x, y, p, q: (7 // p) * x[7 // p], 2),
        (lambda x, y, p, q: az.sum(x[p[1:]]) + az.sum(y[p]), 2),  # less, and at other places
        (lambda x, y, p, q: x[q] + y[q.T], 2),
        (lambda x, y, p, q: x[p] + y[1:][p], 2),
    ],
)
def test_what_loops_before_have_required_goes(read: Any, left: int) -> None:
    @az.program
    def f(x: Table, y: Table, p: Places, q: Squares) -> Any:
        return read(x, y, p, q)

    assert shown(f).count("require") == left
    rng, compiled = np.random.default_rng(0), az.compile(f)
    x, y, p, q = rng.random(9), rng.random(9), rng.integers(1, 8, 5), rng.integers(0, 8, (5, 5))
    np.testing.assert_allclose(compiled(x, y, p, q), az.evaluate(f)(x, y, p, q), rtol=1e-14)
    for at, wrong in ((0, -1), (1, 0), (2, 8), (3, 9), (4, 10)):
        p[at] = q[at, 4 - at] = wrong
        assert outcome(compiled, x, y, p, q) == outcome(az.evaluate(f), x, y, p, q)
        p[at] = q[at, 4 - at] = 1


def outcome(run: Any, *arguments: Any) -> str:
    try:
        run(*arguments)
    except (IndexError, ZeroDivisionError) as error:
        return str(error)
    return ""


def test_what_only_a_branch_has_required_is_still_required() -> None:
    @az.program
    def f(x: Table, p: Places, k: az.i64) -> Any:
        first = az.cond(k > 0, lambda: az.sum(x[p]), lambda: 0.0)
        return first + az.sum(x[p])

    x, p = np.ones(3), np.array([0, 3])
    for k in (0, 1):
        assert "index 3 is out of range" in outcome(az.compile(f), x, p, k) == outcome(az.evaluate(f), x, p, k)


def test_a_failure_that_a_test_allows_is_still_found() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> Any:
        return az.generate(x.shape[0], lambda i: az.cond(i > k, lambda: x[i - 1], lambda: 0.0))

    np.testing.assert_array_equal(az.compile(f)(np.ones(3), 0), [0, 1, 1])
    with pytest.raises(IndexError, match="index -1"):
        az.compile(f)(np.ones(3), -1)


LARGE = 1 << 62


@pytest.mark.parametrize("numbers", [(3, 2), (0, 0), (-1, 5), (LARGE, LARGE)])
def test_a_size_that_wraps_around_is_found(numbers: tuple[int, int]) -> None:
    @az.program
    def f(k: az.i64, m: az.i64) -> Any:
        return az.cond((k >= 0) & (m >= 0), lambda: az.sum(az.generate(k + m, lambda i: i * i)), lambda: -1)

    if sum(numbers) >= 1 << 63:
        with pytest.raises(ValueError, match="a size of -"):
            az.compile(f)(*numbers)
    else:
        assert az.compile(f)(*numbers) == az.evaluate(f)(*numbers)


def test_an_index_that_a_wrapped_test_lets_through_is_found() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64, m: az.i64) -> Any:
        return az.cond((k + m >= m) & (k < x.shape[0]), lambda: x[k], lambda: 0.0)

    assert az.compile(f)(np.ones(3), 2, 5) == 1
    with pytest.raises(IndexError, match="index -1"):
        az.compile(f)(np.ones(3), -1, -(1 << 63))


def test_a_loop_is_as_long_as_an_outer_one_says() -> None:
    """It is no loop of the same nest, also where there is another one between them."""

    @az.program
    def triangle(x: az.Array[az.f64, "m k"], y: az.Array[az.f64, "k n"]) -> Any:
        def entry(i: Any, j: Any) -> Any:
            return az.sum(az.generate(az.minimum(i + 1, x.shape[1]), lambda k: x[i, k] * y[k, j]))

        return az.sum(az.sin(az.generate((x.shape[0], y.shape[1]), entry)))

    gradient = az.grad(triangle, argnums=(0, 1))
    for m, k, n in ((5, 4, 3), (4, 7, 20), (0, 3, 2)):
        x, y = np.arange(m * k * 1.0).reshape(m, k), np.arange(k * n * 1.0).reshape(k, n)
        lower, cosines = np.tril(np.ones((m, k))), np.cos(np.tril(x) @ y)
        wanted = lower * (cosines @ y.T), np.tril(x).T @ cosines
        for got, each in zip(az.compile(gradient)(x, y), wanted, strict=True):
            np.testing.assert_allclose(got, each, rtol=1e-9, atol=1e-9)
