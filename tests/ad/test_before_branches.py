"""No NaN from a branch that is not taken, for what is computed before it: `r = sqrt(x); where(r > 0, 1 / r, 0)`.

The cotangent of such a value is 0 where the branch is not taken, and 0 times a partial derivative that is infinite is
to be 0. Where a cotangent happens to be 0, and its own derivative is not, second derivatives must not notice.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.ad.branches import before_branches
from adze.core.primitive import PRIMITIVES, Primitive

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Flags = az.Array[az.bool_, "n"]

# The borders of domains, poles, and where functions overflow.
SPECIAL = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1e-310, 1e200, -1e200, 800.0, -800.0, 1e308)
SPECIAL += (-0.0, np.nextafter(1, 0), np.nextafter(1, 2), 1e-200, np.pi / 2)


def rules(row: Primitive) -> list[Callable[[Any], Any]]:
    """The linear functions of a row at 0.5, those of them that are there."""
    found: list[Callable[[Any], Any]] = []

    @az.program
    def look(x: az.f64) -> az.f64:
        assert row.derivative is not None
        found.extend([rule for rule in row.derivative(x, *[x] * row.arity) if rule is not None])
        return x

    az.simplify(look)
    return found


ROWS = [
    row
    for row in PRIMITIVES.values()
    if row.derivative is not None and "float" in row.operands and not row.mixed and rules(row)
]
SINGULAR = [row for row in ROWS if not row.finite]


def applied(row: Primitive, operands: Any) -> Any:
    return row(*[operands[k] for k in range(row.arity)])


def partials(row: Primitive, points: Any) -> Any:
    """The partial derivatives at these points, one column an operand that has one."""

    @az.program
    def run(operands: az.Array[az.f64, "a n"]):
        assert row.derivative is not None
        found = row.derivative(applied(row, operands), *[operands[k] for k in range(row.arity)])
        return [rule(az.ones(az.size(operands, 1))) for rule in found if rule is not None]

    return az.evaluate(run)(points)


def special(row: Primitive) -> Any:
    return np.array(list(itertools.product(SPECIAL, repeat=row.arity))).T.copy()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_says_whether_its_partial_derivatives_are_finite(row: Primitive) -> None:
    assert row.finite == all(np.isfinite(column).all() for column in partials(row, special(row)))


# Branches that are not taken


def ways(f: Any, compiled: bool = True) -> list[Callable[..., Any]]:
    """The gradient, in the ways in which it is computed."""
    found = [az.evaluate(az.grad(f))]
    return [*found, az.compile(az.grad(f), threads=1)] if compiled else found


def second(closed: Any, every: bool = True) -> list[Callable[[Any, Any], Any]]:
    """The Hessian times a direction, by compositions of modes."""

    @az.program
    def forward_over_reverse(x: Vector, v: Vector) -> Vector:
        return az.jvp(az.grad(closed))(x, v)[1]

    @az.program
    def reverse_over_forward(x: Vector, v: Vector) -> Vector:
        return az.grad(lambda x: az.jvp(closed)(x, v)[1])(x)

    @az.program
    def reverse_over_reverse(x: Vector, v: Vector) -> Vector:
        return az.grad(lambda x: az.grad(closed)(x) @ v)(x)

    @az.program
    def directions(x: Vector, v: Vector) -> Vector:
        return az.hvp(closed)(x, v)

    @az.program
    def rows(x: Vector, v: Vector) -> Vector:
        return az.jacobian(az.grad(closed), mode="reverse")(x) @ v

    @az.program
    def columns(x: Vector, v: Vector) -> Vector:
        return az.jacobian(az.grad(closed), mode="forward")(x) @ v

    @az.program
    def hessian(x: Vector, v: Vector) -> Vector:
        return az.hessian(closed)(x) @ v

    def by_trace(x: Any, v: Any) -> Any:
        inner = az.program(lambda x: az.grad(closed)(x) @ v)
        return az.grad(inner, via="trace")(x)

    few = [forward_over_reverse, reverse_over_forward, reverse_over_reverse]
    found: list[Callable[[Any, Any], Any]] = list(map(az.evaluate, few))
    if every:
        found += [*map(az.evaluate, [directions, rows, columns, hessian]), az.compile(reverse_over_reverse, threads=1)]
    else:
        found.append(by_trace)
    return found


@pytest.mark.parametrize("row", SINGULAR, ids=str)
def test_what_a_branch_that_is_not_taken_reads_adds_nothing(row: Primitive) -> None:
    """Second derivatives too, where the row has a value and its rule no factor that is infinite or NaN."""
    points = special(row)
    with np.errstate(all="ignore"):
        value = row.numpy(*points)
    valued = np.isfinite(value) & np.all((points == 0) | (abs(points) > 1e-300), 0)
    if row.name == "power":
        valued &= points[0] > 1e-100  # the factor log(x) of one by the exponent

    @az.program
    def f(operands: az.Array[az.f64, "a n"], taken: Flags) -> az.f64:
        r = applied(row, operands)
        return az.sum(az.where(taken | (r > np.inf), r * r, 0.0))

    @az.program
    def curved(operands: az.Array[az.f64, "a n"], taken: Flags) -> az.f64:
        return az.sum(az.grad(f)(operands, taken))

    for program, operands in ((f, points), (curved, points[:, valued])):
        for gradient in ways(program, compiled=program is f):
            found = gradient(operands, np.zeros(operands.shape[1], bool))
            np.testing.assert_array_equal(found, np.zeros_like(operands))


ORDINARY = {"acosh": 1.75, "asin": 0.25, "acos": 0.25, "atanh": 0.25}


@pytest.mark.parametrize("row", SINGULAR, ids=str)
def test_second_derivatives_where_the_gradient_is_zero(row: Primitive) -> None:
    """That of ``(f(x) - f(p)) ** 2`` at p is twice the product of two slopes of f."""
    p = np.array([ORDINARY.get(row.name, 1.25), 0.75][: row.arity])
    v = np.array([1.0, -0.5][: row.arity])
    top = row.numpy(*p)
    slopes = np.array([float(column[0]) for column in partials(row, p[:, None])])
    step = 1e-6
    moved = [(row.numpy(*(p + step * e)) - row.numpy(*(p - step * e))) / (2 * step) for e in np.eye(row.arity)]
    np.testing.assert_allclose(slopes, moved, rtol=1e-6)

    def f(x: Any) -> Any:
        r = applied(row, x)
        return az.where(r > top - 1.0, (r - top) ** 2, 0.0)

    for way in second(f, every=False):
        np.testing.assert_allclose(way(p, v), 2 * slopes * (slopes @ v), rtol=1e-12)


def test_a_cotangent_that_is_zero_and_moves() -> None:
    """The second derivative of ``(sqrt(x) - 1) ** 2`` at 1 is 0.5, and where x is 0 nothing is read."""

    def f(x: Any) -> Any:
        r = az.sqrt(x)
        return az.sum(az.where(r > 0, (r - 1) ** 2, 0.0))

    for way in second(f):
        np.testing.assert_allclose(way(np.array([1.0, 0.0]), np.ones(2)), [0.5, 0.0])


# Where the value and the branch may be


def shared(x: Vector) -> az.f64:
    r = az.sqrt(x)
    return az.sum(az.where(r > 0, 1 / r, 0.0) + az.where(r > 1, az.log(r), r * 0.0))


def through_others(x: Vector) -> az.f64:
    r = 2.0 * az.sqrt(x) + 0.0
    return az.sum(az.where(r > 0, 1 / r, 0.0))


def one_by_one(x: Vector) -> az.f64:
    def step(i: Any, s: Any) -> Any:
        r = az.sqrt(x[i])
        return s + az.cond(r > 0, lambda: az.log(r), lambda: 0.0)

    return az.fori_loop(0, az.size(x), step, 0.0)


def state_that_is_read(x: Vector) -> az.f64:
    """A root of a state; the next step reads it in a branch."""

    def step(i: Any, s: Any) -> Any:
        root, total = s
        return az.sqrt(x[i]), total + az.cond(root > 0, lambda: 1 / root, lambda: 0.0)

    return az.fori_loop(0, az.size(x), step, (0.0, 0.0))[1]


def while_it_lasts(x: Vector) -> az.f64:
    def step(s: Any) -> Any:
        i, root, total = s
        return i + 1, az.sqrt(x[i]), total + az.cond(root > 0, lambda: 1 / root, lambda: 0.0)

    return az.while_loop(lambda s: s[0] < az.size(x), step, (0, 0.0, 0.0))[2]


def of_an_array(x: Vector) -> az.f64:
    r = az.sqrt(x)
    total = az.sum(r)
    return az.sum(az.map(lambda v: az.cond((v > 0) & (total > 0), lambda: 1 / v, lambda: 0.0), r))


def branch_in_a_branch(x: Vector) -> az.f64:
    def inside() -> Any:
        r = az.sqrt(x)
        return az.sum(az.where(r > 0, az.log(r), 0.0))

    return az.cond(az.size(x) > 0, inside, lambda: 0.0)


def what_a_branch_gives(x: Vector) -> az.f64:
    """The first choice makes what the second one reads."""

    def one(v: Any) -> Any:
        a = az.cond(v >= 0, lambda: az.sqrt(v), lambda: 1.0)
        return az.cond(a > 0, lambda: 1 / a, lambda: 0.0)

    return az.sum(az.map(one, x))


def in_a_reduction(x: Vector) -> az.f64:
    r = az.sqrt(x)
    return az.sum(az.map(lambda i: az.where(r[i] > 0, 1 / r[i], 0.0), az.iota(az.size(x))))


def in_a_checkpoint(x: Vector) -> az.f64:
    r = az.sqrt(x)
    return az.checkpoint(lambda r: az.sum(az.where(r > 0, 1 / r, 0.0)))(r)


def before_a_checkpoint(x: Vector) -> az.f64:
    r = az.checkpoint(az.sqrt)(x)
    return az.sum(az.where(r > 0, 1 / r, 0.0))


def a_table(x: Vector) -> az.f64:
    """A state that is an array, and the branch outside of the loop."""
    table = az.fori_loop(0, az.size(x), lambda i, s: az.update(s, i, az.sqrt(x[i])), az.zeros(az.size(x)))
    return az.sum(az.where(table > 0, 1 / table, 0.0))


def slope(x: Any) -> Any:
    return np.where(x > 0, -0.5 * np.where(x > 0, x, 1.0) ** -1.5, 0.0)


def log_slope(x: Any) -> Any:
    return np.where(x > 0, 0.5 / np.where(x > 0, x, 1.0), 0.0)


X = np.array([4.0, 0.0, 0.25, 0.0])

PLACES: list[tuple[Callable[..., Any], Any]] = [
    (shared, slope(X) + np.where(X > 1, log_slope(X), 0.0)),
    (through_others, slope(X) / 2),
    (one_by_one, log_slope(X)),
    (state_that_is_read, slope(X) * [1, 1, 1, 0]),
    (while_it_lasts, slope(X) * [1, 1, 1, 0]),
    (of_an_array, slope(X)),
    (branch_in_a_branch, log_slope(X)),
    (what_a_branch_gives, slope(X)),
    (in_a_reduction, slope(X)),
    (in_a_checkpoint, slope(X)),
    (before_a_checkpoint, slope(X)),
    (a_table, slope(X)),
]


@pytest.mark.parametrize(("f", "wanted"), PLACES, ids=[f.__name__ for f, _ in PLACES])
def test_gradients_of_what_is_computed_before_a_branch(f: Callable[..., Any], wanted: Any) -> None:
    for gradient in ways(az.program(f)):
        np.testing.assert_allclose(gradient(X), wanted, rtol=1e-14)


def test_distances_of_a_point_to_itself() -> None:
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])

    @az.program
    def energy(points: az.Array[az.f64, "n d"]) -> az.f64:
        n = az.size(points)
        r = az.map(lambda p: az.map(lambda q: az.sqrt(az.sum((p - q) ** 2)), points), points)
        return az.sum(az.generate((n, n), lambda i, j: az.where(i == j, 0.0, 1 / r[i, j])))

    offsets = points[:, None] - points
    squares = (offsets**2).sum(-1) + np.eye(3)
    wanted = -2 * (offsets / squares[..., None] ** 1.5).sum(1)
    for gradient in ways(energy):
        np.testing.assert_allclose(gradient(points), wanted, rtol=1e-13)


def test_f32_and_a_primitive_of_the_user() -> None:
    """A row of the user's that says nothing is masked; f32 stays f32."""
    root = az.primitive(
        "root_of_test",
        numpy=np.sqrt,
        llvm=az.Libm("sqrt"),
        derivative=lambda y, x: (lambda t: t / (2.0 * y),),
    )

    @az.program
    def f(x: az.Array[az.f32, "n"]) -> az.f32:
        r = root(x)
        return az.sum(az.where(r > 0, 1 / r, 0))

    for gradient in ways(f):
        found = gradient(np.array([4.0, 0.0], np.float32))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [-0.0625, 0.0])


# Choices by an index

PUT_TOGETHER: list[Callable[..., Any]] = [
    lambda x, y: az.concatenate([az.sqrt(x), az.log(y), 1 / x]),
    lambda x, y: np.pad(az.sqrt(x), (2, 3)),
    lambda x, y: np.pad(az.sqrt(x)[:, None] / y[None, :], 1),
    lambda x, y: az.stack([az.sqrt(x), az.log(x), 1 / x], axis=1),
    lambda x, y: az.array([az.sqrt(x[0]), az.log(y[0]), x[1], 1 / y[1], az.exp(x[0])]),
    lambda x, y: az.array([[az.sqrt(x[0]), az.log(y[0])], [x[1], 1 / y[1]], [az.exp(x[0]), 1.0]]),
    lambda x, y: az.fori_loop(0, 3, lambda i, s: s * az.array([1.0, 2.0, az.sqrt(x[1]), 4.0, 5.0]), az.sqrt(x[:5])),
]


@pytest.mark.parametrize("made", PUT_TOGETHER)
def test_arrays_that_are_put_together_choose_by_their_index_and_leave_out_nothing(made: Callable[..., Any]) -> None:
    @az.program
    def f(x: Vector, y: az.Array[az.f64, "m"]) -> az.f64:
        return az.sum(made(x, y) ** 2)

    assert not masked(f)


def masked(f: Any) -> bool:
    """Whether some operation that may be singular is before a branch."""
    block = az.simplify(f)
    found = before_branches(block)
    todo, rows = [block], []
    while todo:
        for operation in todo.pop().bindings:
            todo += operation.blocks
            if id(operation) in found and operation.op == "primitive":
                rows.append(operation.static[0])
    return any(row.derivative is not None and not row.finite for row in rows)


LEFT_OUT: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
    ("the last one", lambda r, i, n: az.cond(i > 0, lambda: r[i - 1], lambda: 0.0)),
    ("the first one", lambda r, i, n: az.cond(i < n - 1, lambda: r[i + 1], lambda: 0.0)),
    ("one in the middle", lambda r, i, n: az.cond(i == 1, lambda: 0.0, lambda: r[i])),
    ("all but the first", lambda r, i, n: az.cond(i < 1, lambda: r[i], lambda: 0.0)),
    ("all but the last", lambda r, i, n: az.cond((i >= n - 1) & (i < n), lambda: r[i], lambda: 0.0)),
    ("those behind", lambda r, i, n: az.cond(i < 2, lambda: r[0], lambda: r[1])),
    ("a place by an array", lambda r, i, n: az.cond(i < 2, lambda: r[(3 * i) % n], lambda: 0.0)),
]


@pytest.mark.parametrize(("what", "chosen"), LEFT_OUT, ids=[what for what, _ in LEFT_OUT])
def test_choices_by_an_index_that_leave_out_an_element(what: str, chosen: Callable[[Any, Any, Any], Any]) -> None:
    """The elements that are read count; an element that is not read has a root whose slope is infinite."""
    n = 4

    @az.program
    def f(x: Vector) -> az.f64:
        r = az.sqrt(x)
        return az.sum(az.generate(az.size(x), lambda i: chosen(r, i, az.size(x)) * (r[i] > -1.0).astype(az.f64)))

    read = az.evaluate(az.grad(f))(np.ones(n)) != 0
    x = np.where(read, 4.0, 0.0)
    assert not read.all()
    for gradient in ways(f):
        np.testing.assert_array_equal(gradient(x)[~read], 0.0)


# What stays


def test_a_number_that_no_branch_has_read_in_a_run() -> None:
    """A trace holds the branch that was taken, and so the root has no cotangent."""

    @az.program
    def f(x: az.f64) -> az.f64:
        r = az.sqrt(x)
        return az.where(r > 0, 1 / r, 0.0)

    assert az.grad(f, via="trace")(0.0) == 0.0 and az.grad(f, via="trace")(4.0) == -0.0625


def test_the_norm_of_a_zero_vector() -> None:
    @az.program
    def norm(x: Vector) -> az.f64:
        return az.sqrt(az.sum(x**2))

    @az.program
    def guarded(x: Vector) -> az.f64:
        length = norm(x)
        return az.where(length > 0, length, 0.0)

    for gradient in ways(guarded):
        np.testing.assert_array_equal(gradient(np.zeros(3)), np.zeros(3))
        np.testing.assert_allclose(gradient(np.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-15)
    with np.errstate(all="ignore"):
        assert np.isnan(az.grad(norm)(np.zeros(3))).all()


def test_programs_without_branches_have_their_derivatives_as_before() -> None:
    @az.program
    def plain(x: az.f64) -> az.f64:
        return az.sqrt(x) ** 2 + az.log(x)

    assert str(az.pretty(az.grad(plain))).count("if") == 0
    with np.errstate(all="ignore"):
        assert np.isnan(az.grad(lambda x: az.sqrt(x) ** 2)(0.0))


def test_an_infinite_factor_of_a_branch_that_is_not_taken_stays() -> None:
    """Multiplication is not masked: its partial derivatives are its operands, which are infinite here."""

    @az.program
    def f(x: az.f64) -> az.f64:
        product = x * (1 / (x * 0.0))
        return az.where(product < 0, product, 0.0)

    assert np.isnan(az.grad(f)(1.0))
