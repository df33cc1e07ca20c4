"""Sums over a stored product, made without it: values are NumPy's, on both sides of the sizes where that is less."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.forms import Form
from adze.backends.llvm.host import host_target
from adze.backends.schedule.terms.distribution import schedule
from adze.backends.schedule.terms.legalisation import legalised
from adze.backends.schedule.terms.reassociation import reassociated
from adze.core.program import instance_of
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Array = np.ndarray[Any, Any]
Matrix = az.Array[az.f64, "n d"]
Points = az.Array[az.f64, "n e"]
Square = az.Array[az.f64, "e d"]
Weights = az.Array[az.f64, "n"]
Row = az.Array[az.f64, "d"]


def summed(extents: Any, element: Callable[..., az.Expr]) -> az.Expr:
    return az.sum(az.generate(extents, element))


def scores(x: az.Expr, q: az.Expr, centre: az.Expr) -> az.Expr:
    """y[i, r] = sum(j: q[r, j] * (x[i, j] - centre[j])), stored."""
    return az.generate(
        (x.shape[0], q.shape[0]), lambda i, r: summed(q.shape[1], lambda j: q[r, j] * (x[i, j] - centre[j]))
    )


@az.program
def gram(x: Matrix, q: Square, centre: Row, w: Weights) -> tuple[az.f64, Square]:
    """The gradient of half of a weighted sum of squares: what is summed over points is symmetric."""
    y = scores(x, q, centre)
    squares = summed(y.shape, lambda i, r: y[i, r] * y[i, r])
    outer = lambda r, c: summed(x.shape[0], lambda i: -((w[i] * y[i, r]) * (x[i, c] - centre[c])))  # noqa: E731
    return squares, az.generate(q.shape, outer)


@az.program
def twice(x: Matrix, q: Square, centre: Row, w: Weights) -> tuple[az.f64, Row, Square]:
    """Two sums over one product; one of them sums over its rows, too, and takes it twice."""
    y = scores(x, q, centre)

    def column(c: az.Expr) -> az.Expr:
        return summed(x.shape[0], lambda i: summed(q.shape[0], lambda r: (w[i] * (y[i, r] + y[i, r])) * q[r, c]))

    outer = az.generate(q.shape, lambda r, c: summed(x.shape[0], lambda i: y[i, r] * az.sin(x[i, c])))
    return summed(y.shape, lambda i, r: az.exp(y[i, r])), az.generate(q.shape[1], column), outer


@az.program
def chain(x: Matrix, q: Square, z: Points) -> az.Array[az.f64, "d d"]:
    """A product of three matrices, of which nothing else reads the first product."""
    y = x.T @ z
    return az.generate((x.shape[1], x.shape[1]), lambda a, b: summed(q.shape[0], lambda r: y[a, r] * q[r, b]))


def of_gram(x: Array, q: Array, centre: Array, w: Array) -> Any:
    y = (x - centre) @ q.T
    return np.sum(y * y), -np.einsum("i,ir,ic->rc", w, y, x - centre)


def of_twice(x: Array, q: Array, centre: Array, w: Array) -> Any:
    y = (x - centre) @ q.T
    return np.sum(np.exp(y)), 2 * (w @ y) @ q, y.T @ np.sin(x)


def arguments(n: int, d: int, e: int) -> tuple[Array, ...]:
    r = np.random.default_rng(n)
    return r.standard_normal((n, d)), r.standard_normal((e, d)) / 8, r.standard_normal(d), r.standard_normal(n)


# (n, d, e): the new way, the old one, none of a length, and lengths that are no multiples of anything
SIZES = [(30000, 5, 5), (4001, 17, 35), (3, 20, 20), (0, 4, 4), (7, 0, 3), (9, 3, 0), (1, 1, 1), (140000, 1, 2)]


@pytest.mark.rest
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("program", "meaning"), [(gram, of_gram), (twice, of_twice)], ids=["gram", "twice"])
def test_gradients_of_all_sizes(program: Any, meaning: Any, threads: int) -> None:
    compiled = az.compile(program, threads=threads)
    assert "summed before it is multiplied: f64[n, e] of " in compiled.schedule
    plain = az.compile(program, threads=threads, schedule={"reassociate": False})
    assert "summed before" not in plain.schedule
    for sizes in SIZES:
        given = arguments(*sizes)
        for made, old, wanted in zip(compiled(*given), plain(*given), meaning(*given), strict=True):
            scale = 1e-12 * max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
            np.testing.assert_allclose(made, wanted, rtol=1e-10, atol=scale)
            np.testing.assert_allclose(old, wanted, rtol=1e-10, atol=scale)


@az.program
def batched(
    x: Matrix, q: az.Array[az.f64, "k e d"], centres: az.Array[az.f64, "k d"], w: az.Array[az.f64, "n k"]
) -> Any:
    """For each of k matrices the squares of its product with points, and a weighted sum over these."""
    k, e, d = q.shape
    y = az.generate((x.shape[0], k, e), lambda i, b, r: summed(d, lambda j: q[b, r, j] * (x[i, j] - centres[b, j])))
    squares = az.generate((x.shape[0], k), lambda i, b: summed(e, lambda r: y[i, b, r] * y[i, b, r]))
    outer = lambda b, r, c: summed(x.shape[0], lambda i: w[i, b] * y[i, b, r] * x[i, c])  # noqa: E731
    return squares, az.generate((k, e, d), outer)


def batches(n: int, k: int, d: int) -> tuple[Array, ...]:
    r = np.random.default_rng(n)
    return r.random((n, d)), r.random((k, d, d)), r.random((k, d)), r.random((n, k))


@pytest.mark.rest
def test_a_product_that_is_not_stored_takes_no_memory() -> None:
    compiled = az.compile(batched, threads=1)
    plain = az.compile(batched, threads=1, schedule={"reassociate": False})
    given = x, q, centres, w = batches(10000, 12, 24)
    y = np.einsum("brj,ibj->ibr", q, x[:, None, :] - centres, optimize=True)
    for made in (compiled(*given), plain(*given)):
        np.testing.assert_allclose(made[0], np.sum(y * y, axis=2), rtol=1e-11)
        np.testing.assert_allclose(made[1], np.einsum("ib,ibr,ic->brc", w, y, x, optimize=True), rtol=1e-10)
    assert plain.peak_bytes(*given) > y.nbytes > 2 * compiled.peak_bytes(*given)


def test_what_the_way_not_taken_needs_is_not_counted() -> None:
    given = batches(4, 6, 50)
    results = 8 * (4 * 6 + given[1].size)
    assert az.compile(batched, threads=1).peak_bytes(*given) < results + 2 * given[1].nbytes


def test_the_order_of_three_matrices_is_the_shorter_one() -> None:
    compiled = az.compile(chain)
    for n, d, e in ((6, 700, 50), (90, 4, 50), (2, 3, 4), (0, 2, 2), (4, 5, 0)):
        r = np.random.default_rng(d)
        x, q, z = r.standard_normal((n, d)), r.standard_normal((e, d)), r.standard_normal((n, e))
        np.testing.assert_allclose(compiled(x, q, z), x.T @ z @ q, rtol=1e-10, atol=1e-11)


def forms_of(program: Any) -> tuple[Form, ...]:
    return reassociated(schedule(simplify(legalised(instance_of(program).term))), host_target())


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_sum_over_a_loop_that_no_factor_mentions(n: int) -> None:
    """Ones are no factors, and a product with a diagonal is one term: what is left is a sum of nothing but ones."""

    @az.program
    def program(x: az.Array[az.f64, "n"]) -> az.f64:
        n = az.size(x)
        product = (az.eye(n) @ az.ones((n, n))) @ az.diag(az.ones(n))
        return az.sum(az.map(lambda a: az.sum(product * a), x))

    x = np.arange(1.0, n + 1)
    assert az.compile(program)(x) == az.evaluate(program)(x) == n**2 * x.sum()


def test_a_symmetric_sum_is_read_from_one_triangle() -> None:
    texts = [az.pretty(form.block, style="loops") for form in forms_of(gram)]
    assert "sum(i < d: q[r, i] * (t2[c, i] if c >= i else t2[i, c]))" in texts[0]
    assert [text.count("w[") for text in texts] == [1, 1]  # the weights enter no sum twice


@pytest.mark.rest
def test_a_form_is_compiled_when_a_call_takes_it() -> None:
    compiled = az.compile(az.program(gram.function))
    version = compiled.backend.version(compiled._annotated)
    for sizes, taken in (((4, 8, 8), {1}), ((0, 4, 4), {1}), ((30000, 5, 5), {0, 1}), ((4, 8, 8), {0, 1})):
        compiled(*arguments(*sizes))
        assert set(version._built) == taken
    heads = [line for line in compiled.loops.splitlines() if line.startswith("#")]
    assert heads[0].startswith("# where ") and heads[1:] == ["# elsewhere"]


def test_a_form_that_no_call_has_taken_is_a_specialisation_made_ahead() -> None:
    compiled = az.compile(az.program(gram.function))
    few, others = compiled.specialisations
    assert (few.state, others.state) == ("not compiled", "not compiled") and "summed before" in few.why
    assert others.condition == f"not ({few.condition})" and "n" in few.condition
    compiled.warm(n=30000, d=5, e=5)
    by_condition = {each.condition: each.state for each in compiled.specialisations}
    assert by_condition[few.condition] != "not compiled" == by_condition[others.condition]


def test_known_sizes_leave_no_choice() -> None:
    def known(n: int) -> Any:
        shapes = (f"{n} 8", "8 8", "8", f"{n}")
        return gram.at(*[az.Array[az.f64, shape] for shape in shapes])

    for n, told in ((40000, 1), (4, 0)):
        [form] = forms_of(known(n))
        assert form.condition is None and len(form.decisions.notes) == told
    for n in (40000, 4):
        given = arguments(n, 8, 8)
        for made, wanted in zip(az.compile(known(n))(*given), of_gram(*given), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-9, atol=1e-9)
    assert "summed before" in az.compile(known(40000)).schedule


@az.program
def returned(x: Matrix, q: Square, centre: Row, w: Weights) -> tuple[az.Array[az.f64, "n e"], Square]:
    y = scores(x, q, centre)
    return y, az.generate(q.shape, lambda r, c: summed(x.shape[0], lambda i: w[i] * y[i, r] * x[i, c]))


@az.program
def squared(x: Matrix, q: Square, centre: Row, w: Weights) -> tuple[az.f64, Square]:
    y = scores(x, q, centre)
    outer = lambda r, c: summed(x.shape[0], lambda i: y[i, r] * y[i, r] * x[i, c])  # noqa: E731
    return summed(y.shape, lambda i, r: az.exp(y[i, r])), az.generate(q.shape, outer)


@az.program
def needed_again(x: Matrix, q: Square, centre: Row, w: Weights) -> tuple[az.f64, Matrix, Square]:
    y = scores(x, q, centre)
    cosines = az.generate(x.shape, lambda i, c: summed(q.shape[0], lambda r: az.cos(y[i, r] + c)))
    outer = az.generate(q.shape, lambda r, c: summed(x.shape[0], lambda i: w[i] * y[i, r] * x[i, c]))
    return summed(y.shape, lambda i, r: az.exp(y[i, r])), cosines, outer


@pytest.mark.parametrize("program", [returned, squared, needed_again])
def test_products_that_are_needed_stay(program: Any) -> None:
    assert "summed before" not in az.compile(program).schedule
    given = arguments(50, 6, 7)
    for made, wanted in zip(az.compile(program)(*given), az.evaluate(program)(*given), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-11, atol=1e-11)


def test_what_may_fail_stays_in_its_loop() -> None:
    """The inner sum is of what a loop gives, in which an index is checked."""

    @az.program
    def f(x: az.Array[az.f64, "n"], z: az.Array[az.f64, "p"], k: az.i64) -> az.f64:
        last = lambda: az.fori_loop(0, k, lambda j, s: 0.5 * s + x[0], 1.0)  # noqa: E731
        return summed(z.shape[0], lambda i: summed(i + 1, lambda j: last()))

    x = np.array([2.0, -2.0, 0.5])
    assert az.compile(f)(x, x, 2) == az.evaluate(f)(x, x, 2) == 6 * 3.25
    assert az.compile(f)(x[:0], x[:0], 2) == 0.0 and az.compile(f)(x[:0], x, 0) == 6.0
    with pytest.raises(IndexError, match="index 0"):
        az.compile(f)(x[:0], x, 2)


def test_infinities_stay_where_they_were() -> None:
    given = arguments(30000, 6, 6)
    given[0][3, 2], given[3][7], given[1][2, 4] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = of_gram(*given)
    for made, expected in zip(az.compile(gram)(*given), wanted, strict=True):
        np.testing.assert_array_equal(np.isfinite(made), np.isfinite(expected))


@pytest.mark.rest
def test_the_gradient_of_a_quadratic_form() -> None:
    """Of f(q) = sum(i: w[i] |q (x[i] - c)|^2) / 2, by reverse mode: dq = sum(i: w[i] q (x[i] - c) (x[i] - c)')."""

    @az.program
    def loss(q: Square, x: Matrix, centre: Row, w: Weights) -> az.f64:
        y = az.map(lambda p: az.map(lambda row: az.sum(row * (p - centre)), q), x)
        return 0.5 * az.sum(az.map(lambda r, u: u * az.log(1 + az.sum(r * r)), y, w))

    gradient = az.compile(az.grad(loss))
    assert "summed before" in gradient.schedule
    for sizes in SIZES:
        x, q, centre, w = arguments(*sizes)
        y = (x - centre) @ q.T
        wanted = np.einsum("i,ir,ic->rc", w / (1 + np.sum(y * y, axis=1)), y, x - centre)
        np.testing.assert_allclose(gradient(q, x, centre, w), wanted, rtol=1e-9, atol=1e-11)
