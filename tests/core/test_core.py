"""The core language: sizes, types, terms, the builder and placement."""

import functools
import itertools
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case

import adze as az
from adze.core.builder import Builder, build
from adze.core.dims import Dim, Opaque
from adze.core.environment import Env
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.program import Instance
from adze.core.ranges import bounds, index_in_range, never_negative
from adze.core.terms import Block, Failure, Literal, Operation, Origin
from adze.core.types import ArrayType, Type, f32, f64, i64

D = Dim.parse
VECTOR = ArrayType(f64, (D("n"),))


def instance(case: Case) -> Instance:
    return case.program.instance_for(case.program.bind(case.arguments[0], {}))


def term(function: Any, *types: Type, names: tuple[str, ...] = ()) -> Block:
    """The term of a function on the values of a builder."""
    with build() as builder:
        binders = [builder.variable(type, name) for type, name in zip(types, names or ("",) * len(types), strict=True)]
        results = function(builder, *binders)
        block, captured = to_block(binders, results, builder.scopes[0].statements)
    assert not captured
    return block


def ops(block: Block) -> list[str]:
    return [operation.op for operation in block.bindings]


# Sizes


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("n + m", "m + n", True),
        ("2*n", "n + n", True),
        ("(n + 1)*(n - 1)", "n*n - 1", True),
        ("6*n//3", "2*n", True),
        ("n//2", "n//2", True),
        ("min(n, m)", "min(m, n)", True),
        ("max(n, 0)", "n", True),
        ("min(n, n + 2)", "n", True),
        ("n", "n + 1", False),
        ("3", "4", False),
        ("n", "m", None),
        ("n", "3", None),
        ("n - 1", "1 - n", None),
        ("n//2", "n", None),
        ("n//m", "n//m", True),
        ("n - min(1, n)", "max(n - 1, 0)", True),
        ("max(n, m) + min(n, m)", "n + m", True),
        ("max(n - min(2, n), 0)", "n - min(n, 2)", True),
        ("min(max(0, n - 1), n)", "max(n - 1, 0)", True),
        ("max(n, m)", "max(n, m) + 1", False),
        ("max(n - m, 0)", "n - m", None),
    ],
)
def test_sizes_compare(left: str, right: str, equal: bool | None) -> None:
    assert D(left).compare(D(right)) is equal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n*(n-1)//2", 10),
        ("(n + 1)//2*2", 6),
        ("min(n, m) - max(n, 2*m)", -3),
        ("-n + 7", 2),
        ("(2 - n)//2", -2),
        ("-(n//2)", -2),
        ("m - n//2", 1),
        ("n//(2*m)", 0),
        ("n//2//m", 0),
        ("n//(m//2)", 5),
        ("m*(n//2)", 6),
        ("2*n//m", 3),
    ],
)
def test_sizes_evaluate_and_print(text: str, value: int) -> None:
    dim = D(text)
    assert dim.evaluate({"n": 5, "m": 3}) == value
    assert D(str(dim)) == dim
    assert pickle.loads(pickle.dumps(dim)) == dim


@pytest.mark.parametrize("text", ["n +", "n/2", "n.m", "f(n)", "1.5", "", "n m"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        D(text)


def test_an_opaque_size_may_be_negative() -> None:
    k = Dim.atom(Opaque(1))
    assert str(k.maximum(0)) == "max(0, ?1)" and k.compare(k.maximum(0)) is None
    assert D("n").maximum(0) == D("n") and D("n - 1").maximum(0) != D("n - 1")
    assert str(((k + 1) // 2).maximum(0)) == "max((?1+1)//2, 0)"


def test_indices_are_proved_in_range() -> None:
    i, j = Dim.atom(Opaque(1)), Dim.atom(Opaque(2))
    extents = {i: D("n"), j: D("m")}.items()

    def extent(atom: Any) -> Dim | None:
        return next((size for index, size in extents if index == Dim.atom(atom)), None)

    assert index_in_range(i, D("n"), extent) and index_in_range(i + 1, D("n + 1"), extent)
    assert index_in_range(D("n - 1") - i, D("n"), extent)
    assert not index_in_range(i, D("m"), extent) and not index_in_range(i - 1, D("n"), extent)
    assert not index_in_range(i * j, D("n*m"), extent) and not index_in_range(D("0"), D("n"), extent)
    assert bounds(i + j, extent) == (D("0"), D("n + m - 2"))


@pytest.mark.parametrize("divisor", ["1", "2", "3", "w"])
@pytest.mark.parametrize("factor", [-2, -1, 1, 2])
def test_quotients_in_range_by_enumeration(divisor: str, factor: int) -> None:
    """What is proved of ``(i * factor + offset) // divisor`` holds wherever a loop runs, and rows are proved."""
    i, by = Dim.atom(Opaque(1)), D(divisor)
    for offset, (least, sign) in itertools.product(("-2", "0", "1", "n"), itertools.product(("0", "n", "-1"), (-1, 1))):
        quotient = (i * factor + D(offset)) // by
        for extent in ("n", "2*n", "n*w", "3*n + 1"):
            if not never_negative(D(least) + quotient * sign, {Opaque(1): D(extent)}.get):
                continue
            for n, w in itertools.product(range(5), range(1, 4)):
                sizes = {"n": n, "w": w}
                runs = [
                    D(least) + (Dim.of(k * factor) + D(offset)) // by * sign for k in range(D(extent).evaluate(sizes))
                ]
                assert all(each.evaluate(sizes) >= 0 for each in runs)
    k = Dim.atom(Opaque(2))  # an argument, with which the sum may wrap around
    wrapping = index_in_range((i + k * 2) // by - k * 2 // by, D("n"), {Opaque(1): D("n") * by}.get)
    assert wrapping is (divisor == "1")
    assert index_in_range(i // by, D("n"), {Opaque(1): D("n") * by}.get)
    assert not index_in_range(i // by, D("n"), {Opaque(1): D("n") * by + 1}.get)


# Terms


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reify_is_the_identity(case: Case) -> None:
    block = instance(case).term
    copy = block.interpret(az.Reify())
    assert copy == block and hash(copy) == hash(block)
    assert origins(copy) == origins(block)
    assert az.interpret(instance(case), az.Reify()) == block


@pytest.mark.unguarded
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_terms_pickle(case: Case) -> None:
    block = instance(case).term
    copy = pickle.loads(pickle.dumps(block))
    assert copy == block and origins(copy) == origins(block)


@pytest.mark.unguarded
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_operation_knows_its_line(case: Case) -> None:
    assert all("/programs/" in origin.file and origin.line for origin in origins(instance(case).term))


def origins(block: Block) -> list[Origin]:
    found = []
    for operation in block.bindings:
        found.append(operation.origin)
        for inner in operation.blocks:
            found.extend(origins(inner))
    return found


def test_literals_are_known_by_their_bits() -> None:
    assert Literal.of(0.0, f64) != Literal.of(-0.0, f64)
    assert Literal.of(float("nan"), f64) == Literal.of(float("nan"), f64)
    assert Literal.of(1, i64) != Literal.of(1.0, f64) != Literal.of(1.0, f32)
    assert Literal.of(0.1, f32).value == np.float32(0.1)


def test_names_and_lines_do_not_matter_for_equality() -> None:
    one, other = (Operation("size", (0,), (), (), (i64,), Origin("file", line)) for line in (1, 2))
    assert one == other
    assert Block((f64,), (), (), ("x",)) == Block((f64,), (), (), ("y",))


def test_environments_stay_as_they_were() -> None:
    base: Env[str] = Env().enter(["a"])
    left = base.extend(["b"])
    right = base.extend(["c"])
    assert [left.get(0), left.get(1)] == ["b", "a"] and [right.get(0), right.get(1)] == ["c", "a"]
    inner = left.enter([]).enter(["i"])
    assert [inner.get(k) for k in range(3)] == ["i", "b", "a"] and len(inner) == 3 and len(base) == 1
    with pytest.raises(IndexError):
        inner.get(3)


# The builder


def test_equal_operations_are_one() -> None:
    with build() as b:
        x, y = b.variable(f64, "x"), b.variable(f64, "y")
        assert b.primitive("add", x, y) is b.primitive("add", x, y)
        assert b.primitive("add", x, y) is not b.primitive("add", y, x)
        assert b.literal(0.0, f64) is not b.literal(-0.0, f64)


def test_bodies_are_equal_up_to_their_binders() -> None:
    with build() as b:
        x, n = b.variable(VECTOR, "x"), b.dim(D("n"))
        (first,) = b.generate(n, lambda i: [b.primitive("exp", b.index(x, [i]))])
        (second,) = b.generate(n, lambda j: [b.primitive("exp", b.index(x, [j]))])
        (other,) = b.generate(n, lambda j: [b.primitive("log", b.index(x, [j]))])
        assert first is second and first is not other

        def nested(order: Any) -> Value:
            return b.generate(
                n,
                lambda i: [b.sum(n, lambda j: b.primitive("multiply", *order(b.index(x, [i]), b.index(x, [j]))), f64)],
            )[0]

        assert nested(lambda p, q: (p, q)) is nested(lambda p, q: (p, q))
        assert nested(lambda p, q: (p, q)) is not nested(lambda p, q: (q, p))


def test_a_body_is_copied_with_its_arguments_replaced() -> None:
    with build() as b:
        x, n = b.variable(VECTOR, "x"), b.dim(D("n"))

        def row(i: Value) -> list[Value]:
            return [b.sum(n, lambda j: b.primitive("multiply", b.index(x, [i]), b.index(x, [j])), f64)]

        body = b.body([i64], row)
        three = b.literal(3, i64)
        assert b.instantiate(body, [three]) == row(three)


def test_integer_arithmetic_on_sizes_is_a_size() -> None:
    with build() as b:
        n, one = b.dim(D("n")), b.literal(1, i64)
        assert b.primitive("subtract", b.primitive("add", n, one), one) is n
        assert b.primitive("subtract", n, n).literal == 0
        assert b.primitive("multiply", b.literal(2**40, i64), b.literal(2**40, i64)).literal is None


def test_a_requirement_that_holds_already_is_not_repeated() -> None:
    failure = Failure("size", "no", Origin("", 0))

    def function(b: Builder, n: Value) -> list[Value]:
        test = b.primitive("less", b.literal(0, i64), n)
        b.require(test, failure, [])
        b.require(test, failure, [])
        b.each([n], lambda i: b.require(test, failure, []))
        return [n]

    assert ops(term(function, i64)) == ["primitive", "require"]


# Placement


def test_invariant_code_leaves_loops() -> None:
    @az.program
    def f(a: az.Array[az.f64, "n m"], x: az.Array[az.f64, "n"], s: az.f64) -> az.Array[az.f64, "n m"]:
        return az.generate(a.shape, lambda i, j: a[i, j] * az.exp(s) + az.sin(x[i]))

    block = f.at().term
    assert ops(block) == ["primitive", "generate"]  # exp(s), the loop over i
    outer = block.bindings[1].blocks[0]
    assert ops(outer) == ["index", "primitive", "generate"]  # x[i], sin, the loop over j
    assert ops(outer.bindings[2].blocks[0]) == ["index", "primitive", "primitive"]


def test_code_does_not_leave_branches() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return az.cond(x > 0, lambda: az.log(x) + 1, lambda: az.log(x) - 1)

    block = f.at().term
    assert ops(block) == ["primitive", "cond"]
    assert [ops(branch) for branch in block.bindings[1].blocks] == [["primitive", "primitive"]] * 2


def test_code_used_beside_a_branch_is_computed_there() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        inside = az.cond(x > 0, lambda: az.log(x), lambda: 0.0)
        return inside + az.log(x)

    block = f.at().term
    assert sorted(ops(block)) == ["cond", "primitive", "primitive", "primitive"]  # the test, the logarithm, the sum
    branches = next(operation.blocks for operation in block.bindings if operation.op == "cond")
    assert [ops(branch) for branch in branches] == [[], []]


def test_a_value_used_in_two_loops_is_computed_once() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        total = az.sum(x)
        return az.map(lambda v: v / total, x) + az.map(lambda v: v * total, x)

    assert ops(f.at().term).count("reduce") == 1


def test_what_escapes_its_scope_is_found() -> None:
    with build() as b:
        leaked: list[Value] = []

        def body(i: Value) -> list[Value]:
            leaked.append(b.primitive("f64", i))
            return leaked

        b.generate(b.dim(D("n")), body)
        _, captured = to_block([], leaked)
    assert [value.type for value in captured] == [f64]


# Long and deep programs


LONG_PROGRAMS = """
import gc, time
import adze as az

def seconds(length):
    @az.program
    def f(x: az.f64, y: az.f64) -> az.f64:
        for k in range(length // 2):
            x = (x * y if k % 2 else az.sin(x)) + float(k)
        return x

    start = time.perf_counter()
    block = f.at().term
    assert block.count() == length
    assert block.interpret(az.Reify()) == block
    az.check(block)
    assert 0 < az.evaluate(f)(0.5, 0.25) < 1e6
    assert az.pretty(block).count("\\n") > length / 20
    return time.perf_counter() - start

gc.disable()
seconds(1000)
short, long = seconds(4_000), seconds(40_000)
assert long < 25 * short, (short, long)
"""


@pytest.mark.slow
@pytest.mark.unguarded
def test_long_programs_are_linear_and_do_not_overflow() -> None:
    """In a process of its own, without the type checks of the test run."""
    run = subprocess.run([sys.executable, "-c", LONG_PROGRAMS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_deep_programs() -> None:
    @az.program
    def f(x: az.Array[az.f64, 2]) -> az.f64:
        def nest(depth: int, s: Any) -> Any:
            return s if depth == 0 else az.sum(az.map(lambda v: nest(depth - 1, v * s), x))

        return nest(8, 1.0)

    assert az.evaluate(f)([1.0, 2.0]) == 3.0**8
    assert az.pretty(f, simplified=False)


def test_annotations_of_what_is_partly_applied() -> None:
    """The text of annotations is read where the function was defined."""
    found = az.program(functools.partial(az.softmax, axis=-1)).parameters
    assert [parameter.name for parameter in found] == ["x", "axis"] and found[1].default == -1
