"""Records are structures: parameters, results, states and elements in every interpretation, as tuples are."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import adze as az
from adze.core.expr import Expr
from adze.core.trees import flatten
from adze.core.types import Named

T = TypeVar("T")
Vector = az.Array[az.f64, "n"]


@az.data
class Point:
    x: az.f64
    y: az.f64


@az.data
class Params:
    w: Vector
    b: az.f64
    steps: az.i64


@az.data
class Pair(Generic[T]):
    a: T
    b: T


@az.data
class Segment:
    start: Point
    ends: tuple[Point, az.f64]


@az.data
class Line:
    """A record with a function in it."""

    at: az.Function[[az.f64], az.f64]
    slope: az.f64


@az.data
class List(Generic[T]):
    class Nil: ...

    class Cons:
        head: T
        tail: "List[T]"


@az.data
class Holder:
    items: List[az.f64]
    scale: az.f64


@az.data
class Person:
    """A record which contains itself: one value."""

    age: az.f64
    friends: List["Person"]


@az.data
class Boxed:
    """One variant, which is a record under another name."""

    class Full:
        value: az.f64


@az.data
class Nothing:
    """No field at all."""


P, Q = Point(1.5, -2.0), Params(np.array([1.0, 2.0, 4.0]), 0.5, 3)
X = np.array([3.0, -1.0, 0.5])


def runs(program: az.Program) -> list[Callable[..., Any]]:
    """The interpretations that give values."""
    return [az.evaluate(program), az.compile(program), program, lambda *args: az.trace(program)(*args).result]


def same(found: Any, expected: Any) -> None:
    """That structures have one shape and equal leaves."""
    (ours, shape), (theirs, wanted) = flatten(found, plain=True), flatten(expected, plain=True)
    assert shape == wanted
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


# In every place of a program


def _scaled(p: Params, x: Vector) -> tuple[Params, az.f64]:
    return Params(p.w * 2, p.b + 1, p.steps), p.w @ x + p.b


def _orbit(p: Point, n: az.i64) -> Point:
    return az.fori_loop(0, n, lambda i, s: Point(-s.y, s.x + i), p)


def _halved(p: Point) -> {"end": Point, "steps": az.i64}:
    end, steps = az.while_loop(lambda s: s[0].x > 1, lambda s: (Point(s[0].x / 2, s[0].y + 1), s[1] + 1), (p, 0))
    return {"end": end, "steps": steps}


def _chosen(p: Point, q: Point) -> Point:
    return az.cond(p.x > q.x, lambda: p, lambda: Point(q.y, 0))


def _taken_apart(p: Point) -> tuple[az.f64, Point]:
    return az.case(p, Point=lambda x, y: (x - y, Point(y, x)))


def _mapped(x: Vector) -> tuple[Vector, Point]:
    points = az.map(lambda v: Point(v, 2 * v), x)
    total = az.reduce(lambda p, q: Point(p.x + q.x, az.maximum(p.y, q.y)), Point(0, -np.inf), points)
    return az.map(lambda p: p.x * p.y, points), total


def _running(p: Point, x: Vector) -> tuple[Point, Vector]:
    last, before = az.scan_loop(lambda s, v: (Point(s.x + v, s.y), Point(s.x, v)), p, x)
    return last, before.x * before.y


def _nested(s: Segment) -> Segment:
    moved, length = s.ends
    return Segment(moved, (s.start, length * 2))


def _functions(p: Point, t: az.f64) -> tuple[Point, az.f64]:
    flipped = az.function(lambda q: Point(q.y, q.x), Point)
    line = az.cond(t > 0, lambda: Line(lambda z: z * p.x, p.x), lambda: Line(lambda z: z - p.y, 1))
    return flipped(flipped(flipped(p))), line.at(t) + line.slope


def _forked(p: Point) -> tuple[Point, Point]:
    return az.par(lambda: Point(p.x, 1), lambda: Point(2, p.y))


def _generic(p: Pair[az.f64], q: Pair[Point]) -> Pair[Pair[az.f64]]:
    return Pair(p, Pair(q.a.x, q.b.y))


def _empty(n: Nothing, x: az.f64) -> tuple[Nothing, az.f64]:
    return n, x + 1


def _one_variant(b: Boxed) -> Boxed:
    return Boxed.Full(az.case(b, Full=lambda value: value * 2) + b.value)


def _constants(x: az.f64) -> tuple[Point, Point, Params]:
    """Records of Python in a program: their numbers take the declared types."""
    turned = az.fori_loop(0, 3, lambda i, p: p, Point(1, 2))
    return az.cond(x > 0, lambda: Point(1, 2), lambda: Point(3, 4)), turned, Params([1.0, 2.0], 3, 4)


PLACES: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = [
    (_scaled, (Q, X), (Params(2 * Q.w, 1.5, 3), 3.5)),
    (_orbit, (P, 4), Point(-0.5, 0.0)),
    (_halved, (Point(5.0, 0.0),), {"end": Point(0.625, 3.0), "steps": 3}),
    (_chosen, (P, Point(0.0, 1.0)), P),
    (_chosen, (Point(0.0, 1.0), P), Point(-2.0, 0.0)),
    (_taken_apart, (P,), (3.5, Point(-2.0, 1.5))),
    (_mapped, (X,), (2 * X * X, Point(2.5, 6.0))),
    (_running, (P, X), (Point(4.0, -2.0), np.array([1.5, 4.5, 3.5]) * X)),
    (_nested, (Segment(P, (Point(0.0, 1.0), 2.0)),), Segment(Point(0.0, 1.0), (P, 4.0))),
    (_functions, (P, -1.0), (Point(-2.0, 1.5), 2.0)),
    (_forked, (P,), (Point(1.5, 1.0), Point(2.0, -2.0))),
    (_generic, (Pair(1.0, 2.0), Pair(P, P)), Pair(Pair(1.0, 2.0), Pair(1.5, -2.0))),
    (_empty, (Nothing(), 1.0), (Nothing(), 2.0)),
    (_one_variant, (Boxed.Full(2.0),), Boxed.Full(6.0)),
    (_constants, (-1.0,), (Point(3.0, 4.0), Point(1.0, 2.0), Params(np.array([1.0, 2.0]), 3.0, 4))),
]
NAMES = [f"{function.__name__[1:]}{k}" for k, (function, _, _) in enumerate(PLACES)]


@pytest.mark.parametrize(("function", "arguments", "expected"), PLACES, ids=NAMES)
def test_records_in_every_place(function: Any, arguments: tuple[Any, ...], expected: Any) -> None:
    program = az.program(function)
    term = program.at().term
    az.check(term)
    assert term.interpret(az.Reify()) == term
    assert not any(isinstance(type, Named) for type in (*term.types, *[binder for binder in term.binders]))
    for run in runs(program):
        same(run(*arguments), expected)
    names = ", ".join("pq"[: len(arguments)])
    bare = eval(f"lambda {names}: function({names})", {"function": function})
    bare.__name__ = function.__name__
    for run in runs(az.program(bare)):
        same(run(*arguments), expected)


def test_no_expression_is_a_record() -> None:
    """Fields, items of recursive data, results of functions and parameters of branches are records of expressions."""
    seen: list[Any] = []

    def look(p: Point) -> az.f64:
        seen.append(p)
        return p.x

    @az.program
    def f(p: Point, points: List[Point], g: az.Function[[Point], Point]) -> az.f64:
        look(p)
        look(g(p))
        first = az.case(points, Nil=lambda: p, Cons=lambda head, tail: Point(look(head), 0))
        go = az.fix(
            lambda self, q: az.cond(q.x > 9, lambda: q, lambda: self(Point(look(q) + 5, 0))), Point, result=Point
        )
        return look(first) + look(go(p))

    found = az.evaluate(f)(P, List.Cons(Point(4.0, 5.0), List.Nil()), lambda q: Point(q.y, q.x))
    assert found == 4.0 + 11.5
    assert len(seen) >= 6 and all(isinstance(q, Point) and isinstance(q.x, Expr) for q in seen)


def test_recursive_records_are_one_value() -> None:
    @az.program
    def total(p: Person) -> az.f64:
        @az.fix
        def of(self: Any, p: Person) -> az.f64:
            sum_ = az.fix(
                lambda more, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: self(head) + more(tail)),
                List[Person],
                result=az.f64,
            )
            return p.age + sum_(p.friends)

        return of(p)

    friend = Person(2.0, List.Nil())
    assert az.evaluate(total)(Person(1.0, List.Cons(friend, List.Cons(friend, List.Nil())))) == 5.0
    assert [str(type) for type in total.at().types] == ["Person"]


def test_records_with_data_and_functions() -> None:
    """Their fields are leaves of their own; what is no scalar or array is for evaluate."""

    @az.program
    def f(h: Holder, line: Line) -> tuple[Holder, az.f64]:
        return Holder(List.Cons(h.scale, h.items), 1), line.at(line.slope)

    holder, value = az.evaluate(f)(Holder(List.Nil(), 2.0), Line(lambda z: z + 1, 3.0))
    assert holder == Holder(List.Cons(2.0, List.Nil()), 1.0) and value == 4.0
    empty = az.evaluate(az.program(lambda h: Holder(List.Nil(), h.scale * 2)))(Holder(List.Nil(), 2.0))
    assert empty == Holder(List.Nil(), 4.0)
    assert [str(type) for type in f.at().types] == ["List[f64]", "f64", "(f64) -> f64", "f64"]


# Arguments without annotation


def test_numbers_and_lists_adopt_what_a_record_declares() -> None:
    double = az.program(lambda p: Params(p.w * 2, p.b, p.steps))
    same(double(Params([1, 2], 3, 4)), Params(np.array([2.0, 4.0]), 3.0, 4))
    assert [str(type) for type in double.instance_for([Params([1, 2], 3, 4)]).types] == ["f64[p_n]", "f64", "i64"]
    pair = az.program(lambda p: p.a + p.b)
    assert pair(Pair(1, 2.5)) == 3.5 and [str(t) for t in pair.instance_for([Pair(1, 2.5)]).types] == ["f64", "f64"]
    same(az.program(lambda p: Pair(p.b, p.a + p.b))(Pair(X, X)), Pair(X, 2 * X))


def test_sizes_of_records_are_their_own() -> None:
    both = az.program(lambda p, q: az.sum(p.w) + az.sum(q.w))
    assert both(Q, Params(np.ones(7), 0.0, 0)) == 14.0
    assert az.program(lambda ps: az.sum(ps[0].w) + az.sum(ps[1].w))([Q, Params(np.ones(2), 0.0, 0)]) == 9.0


def test_an_array_of_records_is_a_record_of_arrays() -> None:
    points = Point(np.arange(4.0), np.ones(4))
    for run in runs(az.program(lambda ps: az.map(lambda p: Point(p.y, p.x + p.y), ps))):
        same(run(points), Point(np.ones(4), np.arange(4.0) + 1))

    @az.program
    def made(x: Vector, y: Vector) -> Any:
        return az.reduce(lambda p, q: Point(p.x + q.x, p.y * q.y), Point(0, 1), Point(x, y))

    same(made(X, X), Point(2.5, -1.5))
    same(az.program(lambda: Point(np.arange(3.0), 2 * np.arange(3.0)))(), Point(np.arange(3.0), 2 * np.arange(3.0)))


def test_arrays_of_records_are_declared() -> None:
    """As parameters and results of programs, functions and recursions."""
    Segments = az.Array[Segment, "m"]

    @az.program
    def steps(parts: Segments, k: az.i64) -> Segments:
        turned = az.function(
            lambda ps: az.map(lambda p: Point(-p.y, p.x), ps), az.Array[Point, "m"], result=az.Array[Point, "m"]
        )

        @az.fix
        def go(self: Any, parts: Segments, k: az.i64) -> Segments:
            def more() -> Any:
                ends = az.map(lambda end, s: (Point(end[0].x + s.y, end[0].y), end[1] * 2), parts.ends, parts.start)
                return self(Segment(turned(parts.start), ends), k - 1)

            return az.cond(k == 0, lambda: parts, more)

        return go(parts, k)

    a, b, c, d, e = np.arange(10.0).reshape(5, 2)
    for run in runs(steps):
        found = run(Segment(Point(a, b), (Point(c, d), e)), 3)
        same(found, Segment(Point(b, -a), (Point(c + b + a - b, d), 8 * e)))
        with pytest.raises((TypeError, ValueError), match=r"parts\.ends\[1\]"):
            run(Segment(Point(a, b), (Point(c, d), np.ones(3))), 3)

    @az.program
    def distances(points: az.Array[Point, "m"], far: Point) -> az.f64:
        @az.fix
        def along(self: Any, points: az.Array[Point, "m"], k: az.i64) -> az.f64:
            return az.cond(k == 0, lambda: 0.0, lambda: points.x[k - 1] * points.y[k - 1] + self(points, k - 1))

        return along(az.map(lambda p: Point(p.x - far.x, p.y - far.y), points), az.size(points.x))

    for gradient in runs(az.grad(distances, argnums=(0, 1))):
        same(gradient(Point(a, b), Point(2.0, 3.0)), (Point(b - 3, a - 2), Point(6 - b.sum(), 4 - a.sum())))


def test_what_there_are_no_arrays_of() -> None:
    for of, why in ((List[az.f64], "has variants"), (Line, r"has a field of type \(f64\) -> f64")):
        with pytest.raises(TypeError, match=rf"an array of records is a record of arrays, and .* {why}"):
            az.function(lambda x: x, az.Array[of, "n"])
    with pytest.raises(TypeError, match=r"takes a scalar type such as az.f64, or a record, first"):
        az.Array[float, "n"]
    with pytest.raises(TypeError, match=r"at least one axis: write the type alone for a record"):
        az.Array[Point]


def test_vmap() -> None:
    f = az.program(lambda p, s: Point(p.x * s, p.y))
    points = Point(np.arange(3.0), 2 * np.arange(3.0))
    same(az.vmap(f, in_axes=(0, None))(points, 2.0), Point(2 * np.arange(3.0), 2 * np.arange(3.0)))
    same(
        az.vmap(f, in_axes=(Point(0, None), None), out_axes=Point(0, None))(Point(np.arange(3.0), 5.0), 2.0),
        Point(2 * np.arange(3.0), 5.0),
    )

    @az.program
    def annotated(p: Params) -> Params:
        return Params(p.w * p.b, p.b, p.steps)

    batch = Params(np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0]), np.array([1, 2]))
    for run in (az.evaluate, az.compile):
        same(run(az.vmap(annotated))(batch), Params(batch.w * batch.b[:, None], batch.b, batch.steps))
    inner = az.program(lambda p: az.vmap(f, in_axes=(Point(0, None), None))(Point(X, p.y), p.x))
    same(inner(P), Point(1.5 * X, np.full(3, -2.0)))


# The same code as with loose parameters


def test_loops_are_those_of_loose_parameters() -> None:
    def model(w: Any, b: Any, steps: Any, x: Any) -> Any:
        return az.fori_loop(0, steps, lambda i, s: Point(s.x * 0.5 + az.sum(w * x) + b, s.y + 1), Point(0, 0)).x

    def plain(w: Any, b: Any, steps: Any, x: Any) -> Any:
        return az.fori_loop(0, steps, lambda i, s: (s[0] * 0.5 + az.sum(w * x) + b, s[1] + 1), (0.0, 0.0))[0]

    @az.program
    def of_record(p: Params, x: Vector) -> az.f64:
        q = az.case(p, Params=lambda w, b, steps: Params(w, b, steps))
        return model(q.w, q.b, q.steps, x)

    @az.program
    def loose(p_w: Vector, p_b: az.f64, p_steps: az.i64, x: Vector) -> az.f64:
        return plain(p_w, p_b, p_steps, x)

    for ours, theirs in ((of_record, loose), (az.grad(of_record), az.grad(loose, argnums=(0, 1)))):
        assert az.compile(ours).loops.partition("(")[2] == az.compile(theirs).loops.partition("(")[2]


def test_printed() -> None:
    @az.program
    def f(p: Params, x: Vector) -> Params:
        return Params(p.w + x, p.b, p.steps)

    assert az.pretty(f) == (
        "def f(p_w: f64[n], p_b: f64, p_steps: i64, x: f64[n]) -> Params(f64[n], f64, i64):\n"
        "  return Params(p_w + x, p_b, p_steps)"
    )
    assert az.cost(f)(Q, X).operations == 3


# Wrong records


@az.data
class Rows:
    first: Vector
    second: Vector
    third: az.Array[az.f64, 3]


WRONG: list[tuple[str, Callable[[Any, Any, Any], Any], str]] = [
    ("another type", lambda x, p, v: Point(x, x > 0), "field 'y' of Point is f64, got bool"),
    ("a number", lambda x, p, v: Params(v, x, 0.5), r"field 'steps' of Params is i64, got 0\.5"),
    ("fewer axes", lambda x, p, v: Params(x, x, 1), r"field 'w' of Params is f64\[n\], got f64"),
    (
        "no record inside",
        lambda x, p, v: Segment(x, (p, x)),
        "field 'start' of Segment is a Point, got an expression of",
    ),
    ("deep inside", lambda x, p, v: Segment(p, (Point(1, "a"), x)), r"field 'ends\[0\]\.y' of Segment is f64, got 'a'"),
    ("fewer parts", lambda x, p, v: Segment(p, (p,)), r"field 'ends' of Segment is a tuple of 2, got a tuple of 1"),
    (
        "sizes",
        lambda x, p, v: Rows(az.zeros(2), az.zeros(3), az.zeros(3)),
        r"Rows, size n: the shapes of f64\[.*differ: 2 is not 3",
    ),
    ("a size", lambda x, p, v: Rows(v, v, az.zeros(4)), r"Rows: axis 0 of field 'third' is 3, got f64\[4\]"),
    (
        "a constant",
        lambda x, p, v: az.cond(x > 0, lambda: Params([0.5], 1, 1.5), lambda: 0),
        "'steps' of Params is i64, got",
    ),
    ("generic", lambda x, p, v: Pair(x, x > 0), "Pair: T is f64 in one field and bool in another"),
    ("no such field", lambda x, p, v: p.z, "a Point has no field 'z'; its fields are x, y"),
    ("no such branch", lambda x, p, v: az.case(p, Line=lambda a, b: a), "case of Point: there is no branch for Point"),
    ("fields of a branch", lambda x, p, v: az.case(p, Point=lambda a: a), r"Point has 2 field\(s\) \(x, y\)"),
    ("arithmetic", lambda x, p, v: p + x, "a scalar or an array is needed here, not a value of type Point"),
    ("branches", lambda x, p, v: az.cond(x > 0, lambda: p, lambda: x), r"then returns Point\(\., \.\), orelse \."),
    (
        "states",
        lambda x, p, v: az.fori_loop(0, 3, lambda i, s: Pair(s.x, s.y), p),
        r"Pair\(\., \.\), which is no Point",
    ),
]


@pytest.mark.parametrize(("body", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_records(body: Callable[[Any, Any, Any], Any], message: str) -> None:
    def f(x: az.f64, p: Point, v: Vector) -> Any:
        return body(x, p, v)

    with pytest.raises((TypeError, AttributeError), match=message) as caught:
        az.program(f).at().term  # noqa: B018
    assert "test_records.py:" in str(caught.value)


def test_sizes_that_the_run_decides() -> None:
    f = az.program(lambda v, k: Rows(v[:k], v, np.zeros(3)).first)
    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(f)(X, 3), X)
        with pytest.raises(ValueError, match=r"Rows, size n: the sizes .* differ"):
            run(f)(X, 2)


def test_declared_results() -> None:
    def returning(result: Any) -> Any:
        def f(x: az.f64) -> Point:
            return result(x)  # type: ignore[no-any-return]

        return az.program(f)

    same(returning(lambda x: Point(1, 2))(0.0), Point(1.0, 2.0))
    for result in (lambda x: x, lambda x: (x, x), lambda x: Pair(x, x), lambda x: Point(None, x)):
        with pytest.raises(TypeError, match=r"f is declared to return Point\(f64, f64\), but its body returns"):
            returning(result).at().term  # noqa: B018


def test_defaults_and_versions() -> None:
    @az.program
    def f(x: az.f64, p: Point = Point(1, 2)) -> az.f64:  # noqa: B008
        return x * p.x + p.y

    assert f(3.0) == 5.0 and az.compile(f)(3.0) == 5.0 and f(3.0, Point(0.0, 1.0)) == 1.0
    version = az.program(lambda p: p.a.x + p.b.x).at(Pair[Point])
    assert [str(type) for type in version.types] == ["f64"] * 4
    assert az.compile(version)(Pair(Point(1, 2), Point(3, 4))) == 4.0
