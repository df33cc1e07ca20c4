"""Simplify: every rule keeps the bits, what nobody needs goes, and no work is done twice.

Terms are built with the builder, so that each holds exactly what the test is about. ``term`` makes one from a
function of the builder and the parameters; ``shape`` says which constructs a term is made of, nested.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from plain import Plain, instance
from programs import CASES, Case

import adze as az
from adze.core import terms
from adze.core.builder import Builder, build
from adze.core.dims import Dim
from adze.core.environment import Env
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.terms import Failure, Foreign, Origin
from adze.core.types import (
    ArrayType,
    Declaration,
    FunctionType,
    Named,
    Type,
    bool_,
    element,
    f32,
    f64,
    i32,
    i64,
)
from adze.interpreters.embed import accumulate, emit_blocks
from adze.interpreters.simplify import simplify

VECTOR = ArrayType(f64, (Dim.parse("n"),))
INDICES = ArrayType(i64, (Dim.parse("n"),))
X = np.array([1.5, -2.0, 0.25, 3.0, -0.5])
I = np.array([1, 0, 3, 1, 9])
SIZE = {"n": 5}


def term(types: Sequence[Type], function: Callable[..., Sequence[Value]]) -> terms.Block:
    """The term of ``function(builder, *parameters)``."""
    with build() as b:
        binders = [b.variable(type) for type in types]
        results = function(b, *binders)
        block, captured = to_block(binders, results, b.scopes[0].statements)
        assert not captured
        return block


def simplified(block: terms.Block) -> terms.Block:
    """The simplified term: well typed, and as simple as it gets."""
    az.check(block)
    after = simplify(block)
    az.check(after)
    assert simplify(after) == after
    return after


def run(block: terms.Block, *arguments: Any) -> Plain:
    plain = Plain(SIZE)
    with np.errstate(all="ignore"):
        plain.results = block.interpret(plain)(Env(), arguments)
    return plain


def shape(block: terms.Block) -> list[Any]:
    """The constructs of a block: names (of primitives too), with the shapes of their blocks."""
    found: list[Any] = []
    for operation in block.bindings:
        name = operation.static[0].name if operation.op == "primitive" else operation.op
        inner = [shape(block) for block in operation.blocks]
        found.append((name, *inner) if inner else name)
    return found


def bits(values: Sequence[Any]) -> list[bytes]:
    """The bits of numbers, of NaN only that it is one."""
    return [
        np.where(np.isnan(x), np.nan, x).astype(x.dtype).tobytes() if x.dtype.kind == "f" else x.tobytes()
        for x in map(np.asarray, values)
    ]


# Algebra keeps the bits

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, -3.5, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, -5e-324, 2.5e-308]
INTEGERS = [0, 1, -1, 2, -7, 2**31 - 1, -(2**31)]
Scalars = Callable[..., Value]


def _with(name: str, constant: float, first: bool) -> Scalars:
    """An operation with a constant on one side."""

    def build(b: Builder, x: Value, y: Value) -> Value:
        number = b.literal(constant, element(x.type))
        return b.primitive(name, number, x) if first else b.primitive(name, x, number)

    return build


def _negated(name: str, first: bool, second: bool) -> Scalars:
    """An operation on negated operands."""

    def build(b: Builder, x: Value, y: Value) -> Value:
        left = b.primitive("negative", x) if first else x
        right = b.primitive("negative", y) if second else y
        return b.primitive(name, left, right)

    return build


def _algebra(names: Sequence[str], constants: Sequence[float]) -> dict[str, Scalars]:
    """What the rules look for, and what only looks like it."""
    return {
        **{
            f"{name} with {constant!r} {'first' if first else 'second'}": _with(name, constant, first)
            for name, constant, first in itertools.product(names, constants, (False, True))
        },
        **{
            f"{name} of {'-' * first}x, {'-' * second}y": _negated(name, first, second)
            for name, first, second in itertools.product(names, (False, True), (False, True))
        },
        "--x": lambda b, x, y: b.primitive("negative", b.primitive("negative", x)),
        "-(3 x)": lambda b, x, y: b.primitive("negative", _with("multiply", 3, True)(b, x, y)),
        "x - x": lambda b, x, y: b.primitive("subtract", x, x),
        "x == x": lambda b, x, y: b.primitive("equal", x, x),
        "x < x": lambda b, x, y: b.primitive("less", x, x),
        "min(x, x)": lambda b, x, y: b.primitive("minimum", x, x),
        "(x - y) + y": lambda b, x, y: b.primitive("add", b.primitive("subtract", x, y), y),
    }


ALGEBRA = _algebra(
    ("add", "subtract", "multiply", "divide"), (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -4.0, 2.0**-99, 2.0**101)
)
INTEGER_ALGEBRA = _algebra(("add", "subtract", "multiply"), (0, 1, -1, 2, 3))


def same_bits(scalars: Scalars, type: Any, numbers: Sequence[float]) -> None:
    before = term([type, type], lambda b, x, y: [scalars(b, x, y)])
    after = simplified(before)
    with np.errstate(all="ignore"):
        values = [type.dtype.type(number) for number in numbers]
    for x, y in itertools.product(values, repeat=2):
        assert bits(run(after, x, y).results) == bits(run(before, x, y).results), (x, y)


@pytest.mark.unguarded
@pytest.mark.parametrize("type", [f64, f32], ids=str)
@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra_keeps_the_bits(name: str, type: Any) -> None:
    same_bits(ALGEBRA[name], type, FLOATS)


@pytest.mark.parametrize("type", [i32, i64], ids=str)
@pytest.mark.parametrize("name", INTEGER_ALGEBRA)
def test_algebra_of_integers(name: str, type: Any) -> None:
    same_bits(INTEGER_ALGEBRA[name], type, INTEGERS)


LOGIC: dict[str, Scalars] = {
    "and true": lambda b, x, y: b.primitive("logical_and", x, b.literal(True, bool_)),
    "false and": lambda b, x, y: b.primitive("logical_and", b.literal(False, bool_), x),
    "or true": lambda b, x, y: b.primitive("logical_or", x, b.literal(True, bool_)),
    "or false": lambda b, x, y: b.primitive("logical_or", x, b.literal(False, bool_)),
    "x and x": lambda b, x, y: b.primitive("logical_and", x, x),
    "not not": lambda b, x, y: b.primitive("logical_not", b.primitive("logical_not", x)),
}


@pytest.mark.parametrize("name", LOGIC)
def test_logic(name: str) -> None:
    same_bits(LOGIC[name], bool_, (False, True))
    assert simplified(term([bool_, bool_], lambda b, x, y: [LOGIC[name](b, x, y)])).count() == 0


ONE_OPERATION_LESS: dict[str, tuple[Scalars, list[str]]] = {
    "x * 1": (_with("multiply", 1, False), []),
    "x - 0": (_with("subtract", 0, False), []),
    "x + -0.0": (_with("add", -0.0, False), []),
    "x + 0.0, which is 0.0 for x = -0.0": (_with("add", 0.0, False), ["add"]),
    "x * 0, which may be NaN": (_with("multiply", 0.0, False), ["multiply"]),
    "x - x, which may be NaN": (ALGEBRA["x - x"], ["subtract"]),
    "x / 4": (_with("divide", 4.0, False), ["multiply"]),
    "x / 3": (_with("divide", 3.0, False), ["divide"]),
    "x + -y": (_negated("add", False, True), ["subtract"]),
    "-x * -y": (_negated("multiply", True, True), ["multiply"]),
    "--x": (ALGEBRA["--x"], []),
}


@pytest.mark.parametrize("name", ONE_OPERATION_LESS)
def test_what_is_left_of_algebra(name: str) -> None:
    scalars, left = ONE_OPERATION_LESS[name]
    assert shape(simplified(term([f64, f64], lambda b, x, y: [scalars(b, x, y)]))) == left


# All programs

# An array whose elements take about as long to compute as to read is computed where it is read, though it is also made.
GROWTH = 1.25


@pytest.mark.unguarded
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_programs_mean_the_same_with_no_more_work(case: Case) -> None:
    for arguments in case.arguments:
        made = instance(case.program, arguments)
        leaves = case.program.leaves(arguments)
        before, after = Plain.run(made, leaves), Plain.run(made, leaves, simplify(made))
        for old, new in zip(before.results, after.results, strict=True):
            if before.exact:
                np.testing.assert_array_equal(new, old)
            else:
                np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)
        assert after.operations <= GROWTH * before.operations


# Dead code


def add(b: Builder, x: Value, y: Value) -> Value:
    return b.primitive("add", x, y)


def real(b: Builder, number: float) -> Value:
    return b.literal(number, f64)


def size(b: Builder) -> Value:
    return b.dim(Dim.parse("n"))


def at(b: Builder, array: Value) -> Callable[[Value], list[Value]]:
    return lambda i: [b.index(array, [i])]


def test_a_state_that_feeds_only_itself_goes() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def body(i: Value, s: Value, t: Value, u: Value) -> Sequence[Value]:
            return [add(b, s, b.index(x, [i])), b.primitive("exp", t), add(b, u, s), b.primitive("sin", u)]

        return b.loop(size(b), [real(b, 0), real(b, 1), real(b, 2)], body)[:1]

    before = term([VECTOR], function)
    after = simplified(before)
    assert shape(after) == [("loop", ["index", "add"])]
    assert len(after.bindings[0].types) == 1
    assert bits(run(after, X).results) == bits(run(before, X).results)


def test_a_state_that_another_needs_stays() -> None:
    def function(b: Builder, n: Value) -> Sequence[Value]:
        return b.loop(n, [real(b, 0), real(b, 1)], lambda i, s, t: [t, add(b, s, t)])[:1]

    before = term([i64], function)
    assert len(simplified(before).bindings[0].types) == 2
    assert run(simplified(before), np.int64(10)).results == [55.0]


def test_a_state_that_does_not_change_is_its_initial_value() -> None:
    def function(b: Builder, n: Value, y: Value) -> Sequence[Value]:
        return b.loop(n, [real(b, 0), y], lambda i, s, t: [add(b, s, t), t])

    after = simplified(term([i64, f64], function))
    assert len(after.bindings[0].types) == 1
    assert run(after, np.int64(3), np.float64(2.5)).results == [7.5, 2.5]


def test_a_while_keeps_what_its_test_needs() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def body(s: Value, t: Value, u: Value) -> Sequence[Value]:
            return [b.primitive("multiply", s, real(b, 2)), b.primitive("exp", t), add(b, u, real(b, 1))]

        def test(s: Value, t: Value, u: Value) -> Value:
            return b.primitive("less", s, real(b, 100))

        return b.while_loop([x, x, x], test, body)[3:]

    before = term([f64], function)
    after = simplified(before)
    assert shape(after) == [("while", ["less"], ["multiply"])]
    assert after.bindings[0].types == (f64, i64)
    assert run(after, np.float64(3)).results == run(before, np.float64(3)).results == [6]


def test_a_while_nobody_asks_for_goes_and_one_that_does_not_begin_too() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def test(s: Value) -> Value:
            return b.primitive("less", s, real(b, 100))

        b.while_loop([x], test, lambda s: [add(b, s, s)])
        return b.while_loop([x], lambda s: b.literal(False, bool_), lambda s: [add(b, s, s)])

    after = simplified(term([f64], function))
    assert after.bindings == () and run(after, np.float64(3)).results == [3.0, 0]


def test_a_state_of_a_while_that_does_not_change() -> None:
    def function(b: Builder, x: Value, step: Value) -> Sequence[Value]:
        def test(s: Value, t: Value) -> Value:
            return b.primitive("less", s, real(b, 10))

        return b.while_loop([x, step], test, lambda s, t: [add(b, s, t), t])

    after = simplified(term([f64, f64], function))
    assert after.bindings[0].types == (f64, i64)
    assert run(after, np.float64(0), np.float64(4)).results == [12.0, 4.0, 3]


def three(b: Builder, x: Value) -> Callable[[Value], list[Value]]:
    def element(i: Value) -> list[Value]:
        y = b.index(x, [i])
        return [y, b.primitive("multiply", y, y), b.primitive("exp", y)]

    return element


def mixed(b: Builder) -> Callable[..., list[Value]]:
    """An operator: sums of the first and the third component, of which the third needs the second too."""

    def operator(*ab: Value) -> list[Value]:
        return [add(b, ab[0], ab[3]), add(b, ab[1], ab[4]), add(b, add(b, ab[2], ab[5]), b.primitive("sin", ab[1]))]

    return operator


@pytest.mark.parametrize("construct", ["reduce", "scan", "histogram"])
@pytest.mark.parametrize(("wanted", "left"), [([0], 1), ([1], 1), ([2], 2), ([0, 1], 2), ([0, 2], 3)])
def test_components_that_nobody_needs_go(construct: str, wanted: list[int], left: int) -> None:
    def function(b: Builder, x: Value, k: Value) -> Sequence[Value]:
        zeros = [real(b, 0)] * 3
        if construct == "histogram":
            made = b.histogram(size(b), size(b), zeros, lambda i: [b.index(k, [i]), *three(b, x)(i)], mixed(b))
        else:
            made = getattr(b, construct)(size(b), zeros, three(b, x), mixed(b))
        return [made[k] for k in wanted]

    before = term([VECTOR, INDICES], function)
    after = simplified(before)
    assert len(after.bindings[-1].types) == left
    old, new = run(before, X, I), run(after, X, I)
    assert bits(new.results) == bits(old.results)
    assert (new.operations < old.operations) == (left < 3)


def test_destinations_that_nobody_needs_go() -> None:
    def function(b: Builder, x: Value, y: Value, k: Value) -> Sequence[Value]:
        def write(i: Value) -> Sequence[Value]:
            return [b.index(k, [i]), b.primitive("exp", b.index(x, [i])), b.index(y, [i])]

        return b.scatter(False, [size(b)], [x, y], write)[1:]

    before = term([VECTOR, VECTOR, INDICES], function)
    after = simplified(before)
    assert shape(after) == [("scatter", ["index", "index"])]
    assert bits(run(after, X, X + 1, I).results) == bits(run(before, X, X + 1, I).results)


def test_branches_give_what_is_wanted() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        test = b.primitive("less", x, real(b, 0))
        return b.cond(test, lambda: [x, b.primitive("exp", x)], lambda: [real(b, 1), b.primitive("sin", x)])[:1]

    assert shape(simplified(term([f64], function))) == ["less", ("cond", [], [])]


def test_a_par_has_the_branches_that_are_wanted() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def branch(name: str) -> Callable[[], list[Value]]:
            return lambda: [b.primitive(name, x), b.primitive("negative", b.primitive(name, x))]

        made = emit_blocks(b, "par", (), [], [branch("exp"), branch("sin"), branch("cos")])
        return [made[0], made[5]]

    assert shape(simplified(term([f64], function))) == [("par", ["exp"], ["cos", "negative"])]

    def alone(b: Builder, x: Value) -> Sequence[Value]:
        return emit_blocks(b, "par", (), [], [lambda: [b.primitive("exp", x)], lambda: [b.primitive("sin", x)]])[:1]

    assert shape(simplified(term([f64], alone))) == ["exp"]


def test_updates_of_a_dead_accumulator_go() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def body(first: Value, second: Value) -> Sequence[Value]:
            def update(i: Value) -> list[Value]:
                b.emit("add_to", (), [first, b.primitive("exp", b.index(x, [i])), i])
                b.emit("add_to", (), [second, b.index(x, [i])])
                return []

            b.generate(size(b), update)
            return []

        zeros = b.array([size(b)], lambda _: real(b, 0))
        return accumulate(b, [zeros, real(b, 0)], body)[1:]

    assert shape(simplified(term([VECTOR], function))) == [("reduce", ["index"], ["add"])]


# What stays


HERE = Failure("index", "{0} is no index", Origin("here.py", 1))


def test_requirements_and_probes_stay_in_loops_whose_results_nobody_needs() -> None:
    def statements(b: Builder, x: Value, i: Value) -> None:
        b.require(b.primitive("less", i, b.literal(3, i64)), HERE, [i])
        b.emit("probe", ("x",), [b.index(x, [i])])

    def loop(b: Builder, x: Value) -> None:
        b.loop(size(b), [real(b, 0)], lambda i, s: [statements(b, x, i), add(b, s, s)][1:])  # type: ignore[list-item]

    def in_while(b: Builder, x: Value) -> None:
        def body(i: Value, s: Value) -> Sequence[Value]:
            statements(b, x, i)
            return [add(b, i, b.literal(1, i64)), add(b, s, s)]

        b.while_loop([b.literal(0, i64), real(b, 0)], lambda i, s: b.primitive("less", i, size(b)), body)

    def combined(construct: str) -> Callable[[Builder, Value], None]:
        def emit(b: Builder, x: Value) -> None:
            def element(i: Value) -> list[Value]:
                statements(b, x, i)
                return [i, b.primitive("exp", b.index(x, [i]))]

            sizes = [size(b)] * (2 if construct == "histogram" else 1)
            first = 0 if construct == "histogram" else 1
            zeros = [real(b, 0)]
            getattr(b, construct)(*sizes, zeros, lambda i: element(i)[first:], lambda p, q: [add(b, p, q)])

        return emit

    def scattered(b: Builder, x: Value) -> None:
        def write(i: Value) -> list[Value]:
            statements(b, x, i)
            return [i, real(b, 1)]

        b.scatter(True, [size(b)], [x], write)

    for emit in (loop, in_while, combined("reduce"), combined("scan"), combined("histogram"), scattered):

        def function(b: Builder, x: Value) -> Sequence[Value]:
            emit(b, x)  # noqa: B023
            return [real(b, 1)]

        before = term([VECTOR], function)
        after = simplified(before)
        assert "exp" not in str(shape(after))
        for block in (before, after):
            plain = Plain(SIZE)
            with pytest.raises(IndexError, match=r"3 is no index, at here\.py:1"):
                block.interpret(plain)(Env(), [X])
            assert plain.shown == [("x", 1.5), ("x", -2.0), ("x", 0.25)]


def test_a_requirement_that_holds_goes() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        b.generate(size(b), lambda i: [b.require(b.primitive("less", i, add(b, i, b.literal(1, i64))), HERE, [])][:0])
        return [x]

    assert simplified(term([VECTOR], function)).bindings == ()


@pytest.mark.parametrize("also", ["", "index", "probe"])
def test_what_each_iteration_requires_alike_is_required_once(also: str) -> None:
    def function(b: Builder, x: Value, k: Value) -> Sequence[Value]:
        def body(i: Value) -> list[Value]:
            b.require(b.primitive("less", k, b.literal(3, i64)), HERE, [k])
            if also == "index":
                b.require(b.primitive("less", i, k), HERE, [k])
            if also == "probe":
                b.emit("probe", ("x",), [k])
            return []

        b.generate(size(b), body)
        return [x]

    after = simplified(term([VECTOR, i64], function))
    once = [("cond", ["less", "require"], [])]
    assert (shape(after)[-1:] == once) == (not also)
    with pytest.raises(IndexError, match="3 is no index"):
        after.interpret(Plain(SIZE))(Env(), [X, 3])
    assert len(after.interpret(Plain({"n": 0}))(Env(), [X[:0], 3])) == 1
    if also == "probe":
        plain = Plain(SIZE)
        after.interpret(plain)(Env(), [X, 2])
        assert plain.shown == [("x", 2)] * 5


def test_a_custom_keeps_its_rules() -> None:
    def function(b: Builder, x: Value, y: Value) -> Sequence[Value]:
        def body(p: Value) -> Sequence[Value]:
            return [b.primitive("multiply", b.primitive("exp", p), real(b, 1)), b.primitive("sin", p)]

        def rule(itself: Value, p: Value, t: Value) -> Sequence[Value]:
            return [b.primitive("negative", b.primitive("negative", t)), b.primitive("multiply", t, y)]

        return emit_blocks(b, "custom", ("jvp",), [x], [body, rule])[:1]

    after = simplified(term([f64, f64], function))
    assert shape(after) == [("custom", ["exp", "sin"], ["multiply"])]
    assert simplified(term([f64, f64], lambda b, x, y: [function(b, x, y)[0], x][1:])).bindings == ()


def test_foreign_functions_and_sorting_are_done_once_where_they_stand() -> None:
    reverse = Foreign("reverse", lambda x: x[::-1], lambda types: types)

    def function(b: Builder, x: Value) -> Sequence[Value]:
        def row(i: Value) -> list[Value]:
            scaled = b.generate(size(b), lambda j: [b.primitive("multiply", b.index(x, [i]), b.index(x, [j]))])[0]
            order, other = b.emit("argsort", (), [scaled])[0], b.emit("foreign", (reverse,), [scaled])[0]
            return [b.index(order, [i]), b.index(other, [i])]

        orders, others = b.generate(size(b), row)
        return (*b.generate(size(b), lambda i: [add(b, b.index(others, [i]), b.index(others, [i]))]), orders)

    before = term([VECTOR], function)
    after = simplified(before)
    assert bits(run(after, X).results) == bits(run(before, X).results)
    assert run(after, X).operations <= run(before, X).operations


# Arrays


def test_an_array_read_once_is_computed_where_it_is_read() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        costly = b.generate(size(b), lambda i: [b.primitive("exp", b.index(x, [i]))])[0]
        return b.scan(size(b), [real(b, 0)], at(b, costly), lambda p, q: [add(b, p, q)])

    assert shape(simplified(term([VECTOR], function))) == [("scan", ["index", "exp"], ["add"])]


@pytest.mark.parametrize(
    ("part", "loops"),
    [(lambda a, b, y: az.sin(a * b * y), 2), (lambda a, b, y: az.exp(a * b) * az.sin(y), 5)],
    ids=["apart", "sharing"],
)
def test_inside_of_a_loop_elements_that_share_nothing_costly_are_read_in_any_order(part: Any, loops: int) -> None:
    @az.program
    def columns(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "n m"]:
        return az.map(lambda a: az.sum(az.map(lambda b: part(a, b, y), x), axis=0), x)

    assert str(shape(simplify(columns))).count("generate") == loops
    x, y = X[:, None, None], X[:3]
    terms = np.sin(x * X[:, None] * y) if loops == 2 else np.exp(x * X[:, None]) * np.sin(y)
    np.testing.assert_allclose(columns(X, y), terms.sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("reader", ["reversed", "twice", "inner loop", "while", "operator"])
def test_a_costly_array_is_made_once(reader: str) -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        n = size(b)
        costly = b.generate(n, lambda i: [b.primitive("exp", b.index(x, [i]))])[0]
        if reader == "reversed":  # an index that is not the loop's
            last = b.primitive("subtract", n, b.literal(1, i64))
            return b.generate(n, lambda i: [b.index(costly, [b.primitive("subtract", last, i)])])
        if reader == "twice":
            return b.generate(n, at(b, costly)) + b.generate(n, lambda i: [add(b, b.index(costly, [i]), real(b, 1))])
        if reader == "inner loop":
            return b.generate(n, lambda i: [b.sum(n, lambda j: b.index(costly, [j]), f64)])
        zero, one = b.literal(0, i64), b.literal(1, i64)
        if reader == "while":

            def step(i: Value, s: Value) -> Sequence[Value]:
                return [add(b, i, one), add(b, s, b.index(costly, [zero]))]

            return b.while_loop([zero, real(b, 0)], lambda i, s: b.primitive("less", i, n), step)
        return b.reduce(n, [real(b, 0)], at(b, x), lambda p, q: [add(b, add(b, p, q), b.index(costly, [zero]))])

    before = term([VECTOR], function)
    after = simplified(before)
    assert str(shape(after)).count("exp") == 1
    assert bits(run(after, X).results) == bits(run(before, X).results)
    assert run(after, X).operations <= run(before, X).operations


def test_a_read_of_an_updated_array_meets_the_write_it_is_certain_of() -> None:
    def function(b: Builder, x: Value, i: Value, j: Value) -> Sequence[Value]:
        def update(array: Value, k: Value, value: Value) -> Value:
            return b.scatter(True, [], [array], lambda: [k, value])[0]

        next = add(b, i, b.literal(1, i64))
        updated = update(update(x, i, real(b, 7)), next, real(b, 8))
        return [b.index(updated, [k]) for k in (i, next, add(b, next, b.literal(1, i64)), j)]

    before = term([VECTOR, i64, i64], function)
    after = simplified(before)
    assert shape(after).count(("scatter", [])) == 2  # for the read at j alone
    arguments = X, np.int64(1), np.int64(2)
    assert run(after, *arguments).results == run(before, *arguments).results == [7.0, 8.0, 3.0, 8.0]
    assert shape(simplified(term([VECTOR, i64, i64], lambda b, x, i, j: function(b, x, i, j)[:3]))) == [
        "add",
        "index",
    ]


def test_copies_of_arrays_are_the_arrays() -> None:
    def function(b: Builder, x: Value, y: Value) -> Sequence[Value]:
        return b.generate(size(b), lambda i: [b.index(x, [i]), add(b, b.index(x, [i]), real(b, 1)), b.index(y, [i])])

    after = simplified(term([VECTOR, VECTOR], function))
    assert shape(after) == [("generate", ["index", "add"])] and len(after.bindings[0].types) == 1
    assert bits(run(after, X, X + 1).results) == bits([X, X + 1, X + 1])


@pytest.mark.parametrize(("extent", "left"), [(0, []), (1, ["index", "exp"])])
def test_reductions_of_nothing_and_of_one(extent: int, left: list[str]) -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        return [b.sum(b.literal(extent, i64), lambda i: b.primitive("exp", b.index(x, [i])), f64)]

    before = term([VECTOR], function)
    assert shape(simplified(before)) == left
    assert run(simplified(before), X).results == run(before, X).results


# The higher-order fragment

UNARY = FunctionType((f64,), (f64,))
EITHER = Named(Declaration("Either", (), {"Left": {"value": f64}, "Right": {"value": f64, "other": f64}}))


def lam(b: Builder, body: Callable[..., Sequence[Value]], type: FunctionType = UNARY) -> Value:
    return emit_blocks(b, "function", (type,), [], [body])[0]


def test_a_known_function_is_entered() -> None:
    def function(b: Builder, x: Value, y: Value) -> Sequence[Value]:
        scaled = lam(b, lambda z: [b.primitive("multiply", z, y)])
        (once,) = b.emit("apply", (), [scaled, x])
        return b.emit("apply", (), [scaled, once])

    after = simplified(term([f64, f64], function))
    assert shape(after) == ["multiply", "multiply"]
    assert run(after, np.float64(3), np.float64(5)).results == [75.0]


def test_an_unknown_function_is_applied_in_order_and_as_often() -> None:
    def function(b: Builder, f: Value, x: Value) -> Sequence[Value]:
        b.emit("apply", (), [f, x])
        (first,) = b.emit("apply", (), [f, x])
        return b.emit("apply", (), [f, add(b, first, real(b, -0.0))])

    assert shape(simplified(term([UNARY, f64], function))) == ["apply", "apply", "apply"]


def test_a_recursive_function_is_not_entered() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def body(f: Value, z: Value) -> Sequence[Value]:
            def less() -> Sequence[Value]:
                return b.emit("apply", (), [f, b.primitive("subtract", z, real(b, 1))])

            return b.cond(b.primitive("less", z, real(b, 0)), lambda: [b.primitive("multiply", z, real(b, 1))], less)

        return b.emit("apply", (), [emit_blocks(b, "fix", (UNARY,), [], [body])[0], x])

    assert shape(simplified(term([f64], function))) == [("fix", ["less", ("cond", [], ["subtract", "apply"])]), "apply"]


def test_self_application_through_a_type_ends() -> None:
    declaration = Declaration("D", (), {})
    knot = Named(declaration)
    declaration.variants["D"] = {"function": FunctionType((knot,), (f64,))}

    def function(b: Builder) -> Sequence[Value]:
        def body(d: Value) -> Sequence[Value]:
            return emit_blocks(b, "case", ("D",), [d], [lambda f: b.emit("apply", (), [f, d])])

        itself = lam(b, body, FunctionType((knot,), (f64,)))
        return b.emit("apply", (), [itself, *b.emit("construct", (knot, "D"), [itself])])

    assert simplified(term([], function)).count() > 0


def test_items_and_branches_that_are_known() -> None:
    def function(b: Builder, x: Value, y: Value) -> Sequence[Value]:
        (pair,) = b.emit("pack", (), [x, y])
        (value,) = b.emit("construct", (EITHER, "Right"), [*b.emit("project", (1,), [pair]), x])
        left = lambda p: [b.primitive("exp", p)]  # noqa: E731
        right = lambda p, q: [b.primitive("subtract", p, q)]  # noqa: E731
        return emit_blocks(b, "case", ("Left", "Right"), [value], [left, right])

    after = simplified(term([f64, f64], function))
    assert after == term([f64, f64], lambda b, x, y: [b.primitive("subtract", y, x)])


def test_a_case_gives_what_is_wanted() -> None:
    def function(b: Builder, value: Value) -> Sequence[Value]:
        left = lambda p: [p, b.primitive("exp", p)]  # noqa: E731
        right = lambda p, q: [add(b, p, q), b.primitive("sin", p)]  # noqa: E731
        return emit_blocks(b, "case", ("Left", "Right"), [value], [left, right])[:1]

    assert shape(simplified(term([EITHER], function))) == [("case", [], ["add"])]


# What may not end


def test_what_may_not_end_stays_where_it_is_while_accumulators_go() -> None:
    def function(b: Builder, x: Value) -> Sequence[Value]:
        def halved(start: Value) -> Value:
            def test(s: Value) -> Value:
                return b.primitive("less", real(b, 0.1), s)

            return b.while_loop([start], test, lambda s: [b.primitive("multiply", s, real(b, 0.5))])[0]

        def body(total: Value, rows: Value) -> Sequence[Value]:
            def update(i: Value) -> list[Value]:
                b.emit("add_to", (), [rows, halved(b.index(x, [i])), i])
                b.emit("add_to", (), [total, halved(add(b, b.index(x, [i]), real(b, 1)))])
                return []

            b.generate(size(b), update)
            return [halved(real(b, 5))]

        zeros = b.array([size(b)], lambda _: real(b, 0))
        return accumulate(b, [real(b, 0), zeros], body)

    before = term([VECTOR], function)
    after = simplified(before)
    assert "add_to" not in str(shape(after))
    assert bits(run(after, np.abs(X)).results) == bits(run(before, np.abs(X)).results)
    assert all(operation.op != "while" for operation in after.bindings[:-1])


# Text


@az.program
def softmax_row(a: az.Array[az.f64, "n m"]) -> az.Array[az.f64, "n"]:
    return az.map(lambda row: az.sum(az.exp(row * 1.0 - az.max(row)) / 1.0), a)


def test_simplified_programs_read_well() -> None:
    text = az.pretty(az.simplify(softmax_row))
    assert text.count("exp") == 1


def test_what_is_costly_and_shared_by_a_column_runs_once_a_column() -> None:
    """The updates of a matrix go by columns, and each column needs a scan: the scans stay outside of the rows."""

    def columns(a: az.Array[az.f64, "n m"]) -> az.f64:
        def joined(column: Any) -> Any:
            return az.reduce(lambda p, q: p + q + p * q, 0.0, column)

        return az.sum(az.generate(a.shape[1], lambda j: joined(a[:, j])))

    counted = az.cost(az.grad(az.program(columns)))
    assert counted.at(n=20, m=5).work == 10 * counted.at(n=2, m=5).work


def test_what_has_loops_is_not_computed_under_a_test_of_single_elements() -> None:
    """A product of matrices under a mask is one of all elements, side by side; under a test of the program it waits."""

    @az.program
    def masked(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m n"]) -> az.Array[az.f64, "n n"]:
        return az.tril(a @ b)

    assert az.pretty(masked, style="loops").count("sum(") == 1
    assert "t1 = for" in az.pretty(masked, style="loops")
    r = np.random.default_rng(0)
    a, b = r.standard_normal((20, 7)), r.standard_normal((7, 20))
    np.testing.assert_allclose(az.compile(masked)(a, b), np.tril(a @ b), rtol=1e-12, atol=1e-12)

    @az.program
    def wanted(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m n"], want: az.bool_) -> az.Array[az.f64, "n n"]:
        product = a @ b
        return az.cond(want, lambda: product + 1.0, lambda: az.zeros_like(product))

    text = az.pretty(wanted, style="loops")
    assert text.index("if want") < text.index("sum(")


def test_sizes_beside_the_largest_number() -> None:
    """What is no dim, as its numbers are too large, is an operation, whatever is added or taken away besides."""

    @az.program
    def f(x: az.Array[az.f64, "h w"]) -> Any:
        h, w = az.size(x, 0), az.size(x, 1)
        last = 2**63 - 1
        return (last - h) - w, h + (last - w), (last - h) - (last - w), h - (last - w) - last

    h, w, last = np.array([3]), np.array([4]), np.array([2**63 - 1])  # arrays wrap around without a warning
    wanted = [(last - h) - w, h + (last - w), (last - h) - (last - w), h - (last - w) - last]
    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(f)(np.ones((3, 4))), np.concatenate(wanted))


def chained_arrays(count: int) -> Any:
    """Arrays whose elements read the one before in both branches of a choice, at one place."""

    def f(x: az.Array[az.f64, "n"], p: az.i64) -> az.f64:
        y = x
        for k in range(count):
            y = az.map(lambda v, y=y, k=k: az.cond(v > k, lambda: az.sin(y[p]), lambda: az.cos(y[p]) * v), x)
        return y[p]

    return az.program(f)


def test_chains_of_arrays_that_both_branches_read_grow_with_their_length() -> None:
    """In time, too: with a copy of each in both branches it would take longer than anybody waits."""
    sizes = [len(str(simplify(chained_arrays(count)))) for count in (10, 20, 40)]
    assert sizes[2] - sizes[1] <= 2.1 * (sizes[1] - sizes[0])

    x = np.linspace(-2.0, 12.0, 8)
    for p in range(8):
        y = x
        for k in range(10):
            y = np.where(x > k, np.sin(y[p]), np.cos(y[p]) * x)
        np.testing.assert_allclose(az.compile(chained_arrays(10))(x, p), y[p], rtol=1e-12)


def test_an_element_that_may_not_end_is_read_in_several_loops() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], none: az.Array[az.f64, "m"], p: az.i64) -> Any:
        y = az.map(lambda v: az.while_loop(lambda s: s < 4.0, lambda s: s * v, 1.0), x)
        return az.cond(
            p > 0, lambda: az.sum(az.map(lambda v: y[p] * v, x)), lambda: az.sum(az.map(lambda v: y[p] - v, none))
        ) + az.sum(az.map(lambda v: y[p] + v, none))

    x, some = np.array([2.0, 3.0]), np.array([0.5, 1.0])
    for run in (az.evaluate, az.compile):
        for p, none, wanted in ((0, some[:0], 0.0), (0, some, 6.5 + 9.5), (1, some[:0], 45.0), (1, some, 45.0 + 19.5)):
            assert run(f)(x, none, p) == wanted
