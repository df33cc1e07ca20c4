"""What a trace is made of: its steps, sub-traces and values, construct by construct, for each choice of kept types."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from load import ROOT
from programs import numbers
from programs.functions import BUSH, LEAF, SOME, F, List, Tree, Unary, folded, in_order, linked, listed
from trace_programs import MICRO, Matrix, Micro, Vector, everything, is_straight, leaves, operations, same_bits

import adze as az
from adze.core.terms import Block, Literal, Operation

HERE = r"test_trace\.py:\d+"
X = numbers(5)


def traced(function: Callable[..., Any], *arguments: Any, keep: Any = "arrays") -> Any:
    """The trace of a function, after it was seen to be straight, to mean the same, and to be its own trace."""
    program = az.program(function)
    trace = az.trace(program, keep=keep)(*arguments)
    assert is_straight(trace.block)
    az.check(trace.block)
    wanted = az.evaluate(program)(*arguments)
    same_bits(trace.result, wanted)
    same_bits(az.evaluate(trace.program)(*trace.arguments), wanted)
    assert az.trace(trace.program, keep=keep)(*trace.arguments).block == trace.block
    return trace


def steps(function: Callable[..., Any], *arguments: Any, keep: Any = "arrays") -> list[str]:
    return operations(traced(function, *arguments, keep=keep).block)


def found(block: Block, op: str) -> list[Operation]:
    """The operations with this name, at all depths."""
    return [operation for operation in everything(block) if operation.op == op]


# The smallest programs


@pytest.mark.parametrize("micro", MICRO, ids=lambda micro: micro.name)
def test_the_smallest_programs(micro: Micro) -> None:
    trace = az.trace(micro.program)(*micro.arguments)
    assert is_straight(trace.block)
    assert tuple(operations(trace.block)) == micro.operations
    np.testing.assert_allclose(trace.result, micro.numpy(*micro.arguments), rtol=1e-14)


def test_the_running_example() -> None:
    """At (5, 3) its steps give 15 and 20."""
    trace = traced(lambda x1, x2: x1 + x1 * x2, 5.0, 3.0)
    assert operations(trace.block) == ["multiply", "add"]
    assert [value for step in trace.values for value in step] == [15, 20]
    assert trace.result == 20 and isinstance(trace.result, np.float64)
    assert trace.name == "<lambda>" and list(trace.arguments) == [5, 3]


def test_each_step_has_its_values() -> None:
    trace = traced(lambda x: (az.sum(x), az.map(lambda v: (v * 2, v > 0), x)), X)
    assert len(trace.values) == len(trace.block.bindings)
    for step, values in zip(trace.block.bindings, trace.values, strict=True):
        assert len(step.types) == len(values)
    by_name = {step.op: values for step, values in zip(trace.block.bindings, trace.values, strict=True)}
    same_bits(by_name["generate"], (X * 2, X > 0))
    same_bits(by_name["reduce"], (np.sum(X),))


def test_a_step_knows_where_it_was_written() -> None:
    trace = traced(lambda x, n: az.fori_loop(0, n, lambda i, s: az.sin(s) * 2, x), 0.5, 3)
    for step in trace.block.bindings:
        assert step.origin.file.endswith("test_trace.py") and step.origin.line


def test_an_argument_is_not_written_and_not_shared() -> None:
    x = X.copy()
    trace = traced(lambda x: x, x)
    x[0] = 99.0
    same_bits(trace.result, X)
    same_bits(az.evaluate(trace.program)(*trace.arguments), X)


# Kept types


def test_the_sum_of_an_array_that_is_dropped_is_its_additions() -> None:
    """n - 1 of them, of the elements."""
    for keep in ("reals", "scalars"):
        for n in (1, 2, 5):
            names = steps(az.sum, numbers(n), keep=keep)
            assert names.count("add") in (n - 1, n) and set(names) <= {"index", "add"}, names
    assert steps(az.sum, X) == ["reduce"]


def test_the_elements_of_an_array_that_is_dropped_are_read_by_number() -> None:
    trace = traced(lambda x: x[1] * x[-1] + x[1], X, keep="reals")
    assert [read.args[1] for read in found(trace.block, "index")] == [Literal.of(k, az.i64) for k in range(5)]
    assert operations(trace.block) == ["index", "index", "multiply", "add"]


def test_nothing_and_one() -> None:
    for keep in ("reals", "arrays"):
        assert traced(az.sum, numbers(0), keep=keep).result == 0
        assert traced(az.sum, numbers(1), keep=keep).result == numbers(1)[0]


def test_maps_of_an_array_that_is_dropped_are_steps_on_numbers() -> None:
    names = steps(lambda x: az.sum(az.map(lambda v: v * v, x)), X, keep="reals")
    assert names.count("multiply") == 5 and set(names) <= {"index", "multiply", "add"}


def test_a_comparison_is_a_step_where_booleans_are_kept() -> None:
    def f(x: az.f64, y: az.f64) -> az.f64:
        return az.cond(x < y, lambda: x * y, lambda: x)

    for keep, kept in (("reals", False), ("scalars", True), ("arrays", True), ({"reals", "integers"}, False)):
        names = operations(traced(f, 1.0, 2.0, keep=keep).block, checks=True)
        assert ("less" in names) == kept and "multiply" in names


def test_integers_are_constants_where_they_are_dropped() -> None:
    def f(x: az.f64, n: az.i64) -> az.f64:
        return x * (n * n + 1).astype(az.f64)

    assert steps(f, 0.5, 3, keep={"reals", "integers"}) == ["multiply", "add", "f64", "multiply"]
    trace = traced(f, 0.5, 3, keep="reals")
    assert operations(trace.block) == ["f64", "multiply"]
    assert trace.block.bindings[0].args == (Literal.of(10, az.i64),)


@pytest.mark.parametrize("keep", ["reals", "scalars", "arrays"])
def test_a_trace_remembers_what_it_keeps(keep: str) -> None:
    trace = az.trace(az.program(lambda x: x * x), keep=keep)(2.0)
    assert "reals" in trace.keep and ("arrays" in trace.keep) == (keep == "arrays")


def test_arrays_of_reals_alone() -> None:
    keep = {"reals", "arrays"}
    assert steps(lambda x: az.sum(x * x), X, keep=keep) == ["generate", "reduce"]
    trace = traced(lambda x, k: x[k] * 2, X, 3, keep=keep)
    assert operations(trace.block) == ["index", "multiply"]


# Maps


def test_a_map_without_branches_has_one_subtrace_for_all_elements() -> None:
    for n in (0, 1, 2, 100):
        trace = traced(lambda x: az.map(lambda v: az.sin(v) * v, x), numbers(n))
        assert operations(trace.block) == ["generate"]
        (body,) = found(trace.block, "generate")[0].blocks
        assert operations(body) == ["index", "sin", "multiply"]


def test_a_map_that_branches_has_a_subtrace_for_each_way() -> None:
    """Three ways, of which each element takes one; no more steps for more elements."""

    def f(x: Vector) -> Vector:
        def ways(v: Any) -> Any:
            return az.cond(v > 1, lambda: az.sin(v), lambda: az.cond(v < -1, lambda: v * v, lambda: v + 1))

        return az.map(ways, x)

    x = np.array([2.0, 0.0, -2.0, 3.0, 0.5, -3.0, 0.25])
    trace = traced(f, x)
    for name in ("sin", "multiply", "add"):
        assert sum(operation.op == "primitive" and operation.static[0].name == name
                   for operation in everything(trace.block)) == 1, name  # fmt: skip
    assert found(trace.block, "accumulate")
    more = traced(f, np.tile(x, 10))
    assert len(more.block.bindings) == len(trace.block.bindings)


def test_a_map_whose_elements_all_go_one_way_has_one_subtrace() -> None:
    trace = traced(lambda x: az.map(lambda v: az.cond(v < 9, lambda: v * v, lambda: az.sin(v)), x), X)
    assert not [x for x in everything(trace.block) if x.op == "primitive" and x.static[0].name == "sin"]


def test_the_parts_of_a_branching_map_are_joined_without_rounding() -> None:
    """Zeros of both signs, infinities and NaN come out as they are."""
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 5e-324])
    traced(lambda x: az.map(lambda v: az.cond(v > 0, lambda: -v, lambda: v), x), x)
    traced(lambda x: az.map(lambda v: az.cond(v > 0, lambda: (v, 1, True), lambda: (-v, -2, False)), x), x)


@pytest.mark.parametrize("scalar", ["f64", "f32", "i64", "i32", "i8", "u8", "u64", "bool_"])
def test_a_branching_map_of_every_scalar_type(scalar: str) -> None:
    kind = getattr(az, scalar)
    x = numbers(6) > 0 if scalar == "bool_" else numbers(6, dtype=kind.dtype)

    def f(x: az.Array[kind, "n"], k: az.Array[az.i64, "n"]) -> Any:
        return az.map(lambda v, j: az.cond(j > 2, lambda: v, lambda: x[0]), x, k)

    trace = traced(f, x, np.arange(6))
    assert trace.result.dtype == kind.dtype


@pytest.mark.parametrize("scalar", ["f64", "f32", "i64", "i32", "i8", "u8", "u64", "bool_"])
def test_every_scalar_type(scalar: str) -> None:
    kind = getattr(az, scalar)
    x = numbers(6) > 0 if scalar == "bool_" else numbers(6, dtype=kind.dtype)

    def f(x: az.Array[kind, "n"], y: kind) -> Any:
        other = az.map(lambda v: v & y if scalar == "bool_" else v + y, x)
        return other, other[1], az.cond(other[0] == y, lambda: x[0], lambda: y)

    result = traced(f, x, x[1]).result
    assert [np.asarray(leaf).dtype for leaf in result] == [kind.dtype] * 3
    for keep in ("reals", "scalars"):
        if keep == "reals" and not scalar.startswith("f"):
            continue
        traced(lambda x, y: f(x, y)[1:], x, x[1], keep=keep)


def test_nested_maps_have_nested_subtraces() -> None:
    trace = traced(lambda a: az.map(lambda r: az.map(lambda v: v * az.sum(r), r), a), numbers(3, 4))
    assert operations(trace.block) == ["generate"]
    outer = trace.block.bindings[0].blocks[0]
    assert operations(outer)[-1] == "generate" and len(found(outer, "reduce")) == 1


def test_rows_that_branch_as_wholes() -> None:
    """A way a row: rows that take it are in one sub-trace."""

    def f(a: Matrix) -> Matrix:
        return az.map(lambda r: az.cond(r[0] > 0, lambda: r * az.sum(r), lambda: az.map(az.sin, r)), a)

    trace = traced(f, numbers(5, 3))
    names = [x.static[0].name for x in everything(trace.block) if x.op == "primitive"]
    assert names.count("sin") == 1 and names.count("multiply") == 1


def test_elements_that_branch_inside_rows() -> None:
    def f(a: Matrix, s: az.f64) -> Any:
        def row(r: Any) -> Any:
            inner = az.map(lambda v: az.cond(v > s, lambda: v * r[0], lambda: s), r)
            return az.sum(inner), inner

        return az.map(row, a)

    for shape in ((3, 4), (1, 1), (0, 4), (3, 0)):
        traced(f, numbers(*shape) if 0 not in shape or shape[0] == 0 else np.zeros(shape), 0.5)


def test_loops_of_different_lengths_inside_a_map() -> None:
    """The number of steps is the way that an element takes."""

    def f(x: Vector, k: az.Array[az.i64, "n"]) -> Vector:
        return az.map(lambda v, n: az.fori_loop(0, n, lambda i, s: s * v + 1, v), x, k)

    trace = traced(f, X, np.array([2, 0, 3, 2, 0]))
    names = [x.static[0].name for x in everything(trace.block) if x.op == "primitive"]
    assert names.count("multiply") == 5  # of two ways with 2 and 3 steps, and one with none


def test_ranks_and_empty_axes() -> None:
    def f(t: az.Array[az.f64, "n m k"]) -> Any:
        return az.transpose(t) * 2, az.sum(t, 1), t[:, 0, ::-1]

    for shape in ((2, 3, 4), (1, 1, 1)):
        traced(f, numbers(*shape))

    def g(t: az.Array[az.f64, "n m k"]) -> Any:
        return az.map(lambda a: az.map(lambda r: az.cond(az.sum(r) > 0, lambda: r, lambda: -r), a), t), az.sum(t, 2)

    for shape in ((2, 3, 4), (0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)):
        traced(g, np.zeros(shape) + numbers(*shape))


def test_triangles() -> None:
    """An inner size that depends on the index of the outer map."""
    traced(lambda x: az.generate(az.size(x), lambda i: az.sum(az.generate(i + 1, lambda j: x[j] * x[i]))), X)


# Reductions, scans, histograms, writes, orders


def test_folds_without_branches_are_one_step() -> None:
    trace = traced(lambda x: (az.sum(x), az.reduce(lambda p, q: p + q + p * q, 0.0, x), az.cumsum(x)), X)
    assert sorted(operations(trace.block)) == ["reduce", "reduce", "scan"]


def test_folds_that_branch_are_sequential() -> None:
    """From the first element to the last, and nothing of the branch that is not taken."""

    def larger(p: Any, q: Any) -> Any:
        return az.cond(p > q, lambda: p, lambda: q)

    trace = traced(lambda x: az.reduce(larger, -np.inf, x) * 2, X)
    assert operations(trace.block) == ["generate", "index", "multiply"]
    assert operations(trace.block, checks=True).count("greater") == 4
    steps(lambda x: az.scan(larger, -np.inf, x), X)
    traced(lambda x: az.scan(larger, -np.inf, x, reverse=True, exclusive=True), X)
    for shape in ((0,), (1,)):
        traced(lambda x: (az.reduce(larger, -np.inf, x), az.scan(larger, -np.inf, x)), numbers(*shape))


def test_a_fold_that_branches_inside_a_map() -> None:
    def f(a: Matrix) -> Vector:
        def larger(p: Any, q: Any) -> Any:
            return az.cond(p > q, lambda: p, lambda: q)

        return az.map(lambda r: az.reduce(larger, -np.inf, r) + az.sum(r), a)

    for shape in ((3, 4), (1, 1), (0, 2)):
        traced(f, numbers(*shape))
    traced(f, np.zeros((2, 0)))


def test_a_reduction_whose_elements_branch() -> None:
    def f(x: Vector) -> az.f64:
        return az.sum(az.map(lambda v: az.cond(v > 0, lambda: v * v, lambda: 0.0), x))

    trace = traced(f, X)
    assert operations(trace.block)[-1] == "reduce"


def test_folds_of_tuples_and_rows() -> None:
    traced(lambda x: az.reduce(lambda p, q: (p[0] + q[0], az.maximum(p[1], q[1])), (0.0, -np.inf), (x, x)), X)
    traced(lambda a: az.reduce(lambda p, q: p + q, np.zeros(4), a), numbers(3, 4))
    traced(lambda x: (az.argmax(x), az.min(x), az.prod(x), az.any(x > 3), az.all(x > 3)), X)


def test_histograms() -> None:
    k = np.array([1, 0, 1, 7, -1])
    trace = traced(lambda x, k: az.histogram(lambda p, q: p + q, 0.0, 3, k, x), X, k)
    assert operations(trace.block) == ["histogram"]

    def later(p: Any, q: Any) -> Any:
        return az.cond(q == 0, lambda: p, lambda: q)

    traced(lambda x, k: az.histogram(later, 0.0, 3, k, x), X, k)
    traced(lambda x, k: az.histogram(later, 0.0, 3, k, x), numbers(0), k[:0])


def test_scatters_and_updates() -> None:
    k = np.array([1, 0, 4])
    trace = traced(lambda x, k: az.scatter(x, k, x[:3] * 2), X, k)
    assert "scatter" in operations(trace.block)
    traced(lambda x, k: az.scatter(x, k, k * 1.5, unique=False), X, np.array([1, 1, 4]))
    traced(lambda x: az.update(x, 2, az.cond(x[0] > 0, lambda: x[1], lambda: 7.0)), X)
    branching = lambda x, k: az.scatter(x, k, az.map(lambda j: az.cond(j > 0, lambda: x[j], lambda: 0.5), k))  # noqa: E731
    traced(branching, X, k)


def test_updates_in_a_loop() -> None:
    def f(x: Vector) -> Vector:
        def step(i: Any, y: Any) -> Any:
            return az.cond(y[i] > 0, lambda: az.update(y, i + 1, y[i] * y[i + 1]), lambda: y)

        return az.fori_loop(0, az.size(x) - 1, step, x)

    trace = traced(f, X)
    taken = sum(operation == "scatter" for operation in operations(trace.block))
    assert 0 < taken < 4


def test_orders() -> None:
    trace = traced(lambda x: (az.argsort(x), az.sort(x)), np.array([2.0, np.nan, -1.0, 2.0]))
    assert "argsort" in operations(trace.block)
    traced(lambda x: x[az.argsort(x)[0]] * 2, X, keep={"reals", "arrays"})
    traced(lambda x: x[az.argsort(x)[0]] * 2, X, keep="reals")
    traced(lambda x: az.filter(lambda v: v > 0, x), X)


# Loops and choices


def test_loops_are_unrolled() -> None:
    for n in (0, 1, 5):
        names = steps(lambda x, n: az.fori_loop(0, n, lambda i, s: az.sin(s), x), 0.5, n)
        assert names == ["sin"] * n


def test_loops_with_outputs_are_unrolled() -> None:
    for n in (0, 1, 4):
        trace = traced(lambda x: az.scan_loop(lambda s, v: (s * v, s + v), 1.0, x), numbers(n))
        names = [x.static[0].name for x in everything(trace.block) if x.op == "primitive"]
        assert names.count("add") == n and names.count("multiply") >= max(n - 1, 0)


def test_a_while_loop_is_as_long_as_its_run() -> None:
    names = steps(lambda x: az.while_loop(lambda s: s < 10, lambda s: s * 2, x), 1.5)
    assert names == ["multiply"] * 3
    assert steps(lambda x: az.while_loop(lambda s: s < 10, lambda s: s * 2, x), 11.0) == []


def test_only_the_branch_taken() -> None:
    def f(x: az.f64) -> az.f64:
        return az.cond(x > 0, lambda: az.sqrt(x), lambda: az.sum(az.full(3, x)))

    assert steps(f, 4.0) == ["sqrt"]
    assert steps(f, -4.0)[-1] == "reduce"
    assert "sqrt" not in steps(f, -4.0)


def test_a_branch_that_is_not_taken_may_fail() -> None:
    assert traced(lambda x, k: az.cond(k < 0, lambda: x[k], lambda: x[0]), X, 0).result == X[0]
    with pytest.raises(IndexError, match=f"index 7 is out of range.*{HERE}"):
        az.trace(az.program(lambda x, k: az.cond(k > 0, lambda: x[k], lambda: x[0])))(X, 7)


def test_checks_stay_in_the_trace() -> None:
    """At other arguments, at which the trace is not the program's, they may fail; here they hold."""
    trace = traced(lambda x, k: x[k] * 2, X, 3)
    with pytest.raises(IndexError, match=f"index 7 is out of range.*{HERE}"):
        az.evaluate(trace.program)(X, 7)
    assert az.evaluate(trace.program)(X, 1) == X[1] * 2


# The higher-order fragment


def test_functions_are_applied() -> None:
    def f(x: az.f64, y: az.f64) -> az.f64:
        @az.function
        def add(a: az.f64) -> Unary:
            return lambda b: az.sin(a) + b * y

        curried = add(x)
        return curried(1.0) * curried(2.0)

    names = steps(f, 0.5, 2.0)
    assert names.count("sin") in (1, 2) and names.count("add") == 2 and names[-1] == "multiply"


def test_recursion_is_unrolled() -> None:
    def f(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64) -> az.f64:
            return az.cond(k == 0, lambda: x, lambda: az.sin(self(k - 1)))

        return go(n)

    assert steps(f, 0.5, 4) == ["sin"] * 4
    assert steps(f, 0.5, 4, keep="reals") == ["sin"] * 4


@pytest.mark.unguarded
def test_recursion_that_is_deeper_than_the_stack_of_python() -> None:
    def f(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64) -> az.f64:
            return az.cond(k == 0, lambda: x, lambda: self(k - 1) + 1)

        return go(n)

    trace = az.trace(az.program(f))(0.5, 3000)
    assert trace.result == 3000.5 and operations(trace.block) == ["add"] * 3000


def test_tuples_and_dictionaries_are_taken_apart() -> None:
    def f(p: tuple[az.f64, {"a": az.f64, "n": az.i64}]) -> Any:
        @az.function
        def g(q: tuple[az.f64, az.f64]) -> tuple[az.f64, az.f64]:
            return q[1], q[0] * 2

        return {"swapped": g((p[0], p[1]["a"])), "n": p[1]["n"], "none": None}

    trace = traced(f, (1.5, {"a": 2.0, "n": 3}))
    assert trace.result == {"swapped": (2.0, 3.0), "n": 3, "none": None}
    assert operations(trace.block) == ["multiply"]


def test_lists_and_trees_are_taken_apart() -> None:
    def total(xs: List[az.f64]) -> az.f64:
        return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x * x + rest)

    trace = traced(total, SOME)
    assert operations(trace.block).count("multiply") == 5 and trace.result == sum(x * x for x in listed(SOME))
    assert len(trace.block.binders) == 5 and list(trace.arguments) == listed(SOME)

    def largest(tree: Tree[az.f64]) -> az.f64:
        go = az.fix(
            lambda self, t: az.case(
                t,
                Leaf=lambda: -np.inf,
                Node=lambda left, v, right: az.maximum(v, az.maximum(self(left), self(right))),
            ),
            Tree[az.f64],
            result=az.f64,
        )
        return go(tree)

    trace = traced(largest, BUSH)
    assert set(operations(trace.block)) == {"maximum"} and trace.result == max(in_order(BUSH))
    assert operations(traced(largest, LEAF).block) == [] and traced(largest, LEAF).result == -np.inf


def test_what_a_list_holds_may_be_dropped() -> None:
    def f(xs: List[tuple[az.i64, az.f64]]) -> az.f64:
        pair = tuple[az.i64, az.f64]
        return folded(xs, pair, az.f64, 0.0, lambda p, rest: p[0].astype(az.f64) * p[1] + rest)

    trace = traced(f, linked([(1, 0.5), (3, -2.0)]), keep="reals")
    assert sorted(operations(trace.block)) == ["add", "add", "f64", "f64", "multiply", "multiply"]
    assert trace.result == -5.5


def test_case_takes_one_branch() -> None:
    def value(f: F, x: Vector) -> az.f64:
        return az.case(
            f, Number=lambda v: v, Variable=lambda k: x[k], Sum=lambda a, b: 0.0, Product=lambda a, b: az.sum(x)
        )

    assert traced(value, F.Number(0.5), X).result == 0.5
    assert operations(traced(value, F.Variable(2), X).block) == ["index"]
    assert traced(value, F.Sum(F.Number(1.0), F.Number(2.0)), X).result == 0


def test_forks_are_joined() -> None:
    names = steps(lambda x: az.par(lambda: az.sin(x), lambda: (x * 2, x + 1)), 0.5)
    assert sorted(names) == ["add", "multiply", "sin"]


def test_a_function_that_branches_applied_in_a_map() -> None:
    """It is not known while the map is built."""

    def f(x: Vector, up: az.bool_) -> Vector:
        one, other = (
            az.function(lambda v: az.cond(v > 0, lambda: v * 2, lambda: v), az.f64),
            az.function(az.sin, az.f64),
        )
        g = az.cond(up, lambda: one, lambda: other)
        return az.map(lambda v: g(v), x)

    assert "accumulate" in operations(traced(f, X, True).block)
    assert operations(traced(f, X, False).block) == ["generate"]


def test_recursion_in_a_map() -> None:
    def f(x: Vector, k: az.Array[az.i64, "n"]) -> Vector:
        @az.fix
        def power(self: Any, v: az.f64, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: 1.0, lambda: v * self(v, n - 1))

        return az.map(lambda v, n: power(v, n), x, k)

    same_bits(traced(f, X, np.array([0, 2, 1, 2, 3])).result, X ** np.array([0, 2, 1, 2, 3]))
    traced(f, numbers(0), np.zeros(0, np.int64))


# Functions with rules, functions written elsewhere, probes


def test_a_function_with_a_rule_is_one_step() -> None:
    @az.custom_vjp
    def f(x: Any) -> Any:
        return az.cond(x > 0, lambda: x * x, lambda: x)

    f.defvjp(lambda primals, cotangent: (7 * cotangent,))
    assert steps(lambda x: f(x) + 1, 2.0) == ["custom", "add"]
    assert steps(lambda x: az.fori_loop(0, 3, lambda i, s: f(s), x), 2.0) == ["custom"] * 3
    trace = traced(lambda x: az.map(f, x), X)
    assert operations(trace.block) == ["generate"]


def test_a_function_written_elsewhere_is_one_step() -> None:
    solve = az.foreign("solve", np.linalg.solve, lambda a, b: b)

    def f(a: az.Array[az.f64, "n n"], b: Vector) -> Vector:
        return az.fori_loop(0, 2, lambda i, v: solve(a, v), b)

    assert steps(f, np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0])) == ["foreign", "foreign"]


def test_probes_show_once_while_a_program_is_traced(capsys: pytest.CaptureFixture[str]) -> None:
    program = az.program(lambda x: az.fori_loop(0, 2, lambda i, s: az.inspect(s * 2, "s"), x))
    trace = az.trace(program)(1.5)
    assert capsys.readouterr().out == "s = 3.0\ns = 6.0\n"
    az.evaluate(trace.program)(*trace.arguments)
    assert capsys.readouterr().out == "s = 3.0\ns = 6.0\n"
    assert [step.op for step in trace.block.bindings].count("probe") == 2


# Derivatives


def test_gradients_are_traced() -> None:
    def f(x: Vector) -> az.f64:
        branched = az.map(lambda v: az.cond(v > 0, lambda: az.sin(v), lambda: v * v), x)
        return az.fori_loop(0, 2, lambda i, s: s * az.sum(branched), 1.0)

    gradient = az.grad(az.program(f))
    trace = az.trace(gradient)(X)
    assert is_straight(trace.block)
    same_bits(trace.result, az.evaluate(gradient)(X))
    same_bits(az.evaluate(trace.program)(*trace.arguments), trace.result)
    second = az.trace(az.hvp(az.program(f)))(X, np.ones(5))
    same_bits(second.result, az.evaluate(az.hvp(az.program(f)))(X, np.ones(5)))


def test_a_derivative_inside_a_program() -> None:
    traced(lambda x: az.map(lambda v: az.grad(lambda y: az.cond(y > 0, lambda: y * y * v, lambda: y))(v), x), X)


# Constants, static parameters, results


def test_constants_and_inputs_as_results() -> None:
    trace = traced(lambda x, k: (2.5, x, x, k, True, az.cond(x > 0, lambda: 1, lambda: 2)), 0.5, 3)
    assert trace.result == (2.5, 0.5, 0.5, 3, True, 1) and operations(trace.block) == []


def test_captured_arrays() -> None:
    captured = numbers(3, seed=2)
    traced(lambda x: az.sum(x * captured[1]) + az.sum(az.array(captured)), X)


def test_static_parameters() -> None:
    @az.program
    def f(x: az.f64, steps: int) -> az.f64:
        for _ in range(steps):
            x = az.sin(x)
        return x

    trace = az.trace(f)(0.5, 3)
    assert operations(trace.block) == ["sin"] * 3
    same_bits(trace.result, az.evaluate(f)(0.5, 3))
    same_bits(az.trace(f)(x=0.5, steps=3).result, trace.result)


def test_instances_and_python_functions() -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        return az.sum(x)

    assert az.trace(f.at(az.Array[az.f64, 5]))(X).result == np.sum(X)
    assert az.trace(lambda x: x * 2)(1.5).result == 3


def test_not_contiguous_arguments() -> None:
    traced(lambda x: az.map(lambda v: v * 2, x), numbers(10)[::2])
    traced(lambda a: a[1], numbers(3, 4).T)


def test_the_steps_are_printed() -> None:
    text = str(traced(lambda x1, x2: x1 + x1 * x2, 5.0, 3.0))
    for part in ("x1", "x2", "5", "3", "15", "20"):
        assert part in text


@pytest.mark.unguarded
def test_long_traces() -> None:
    trace = az.trace(az.program(lambda x, n: az.fori_loop(0, n, lambda i, s: s * 0.5 + x, x)))(1.0, 20000)
    assert len(trace.block.bindings) >= 40000 and trace.result == 2


# Errors


@az.program
def dot(x: Vector, y: Vector) -> az.f64:
    return az.sum(x * y)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"dot takes 2 argument\(s\) \(x, y\); missing: y"):
        az.trace(dot)(X)
    with pytest.raises(TypeError, match=r"dot takes 2 argument\(s\) \(x, y\); got 3"):
        az.trace(dot)(X, X, X)
    with pytest.raises(TypeError, match=r"dot.*'y'.*float32"):
        az.trace(dot)(X, X.astype(np.float32))
    with pytest.raises(ValueError, match=r"dot: n is 5 in argument 'x'.*4 in argument 'y'"):
        az.trace(dot)(X, X[1:])
    with pytest.raises(TypeError, match=r"dot.*'y'"):
        az.trace(dot)(X, 2.0)


@pytest.mark.parametrize("keep", [{"arrays"}, ["arrays"]])
def test_arrays_are_made_of_scalars(keep: Any) -> None:
    with pytest.raises(ValueError, match=r"arrays.*(reals|scalars)"):
        az.trace(dot, keep=keep)


@pytest.mark.parametrize("keep", ["functions", {"reals", "functions"}, {"tuples"}, "float", {"reals", 3}])
def test_types_that_cannot_be_kept(keep: Any) -> None:
    with pytest.raises(ValueError, match=r"(?s)keep.*reals.*integers.*booleans.*arrays"):
        az.trace(dot, keep=keep)


@pytest.mark.unguarded
@pytest.mark.parametrize("keep", [3, None, [[]]])
def test_a_choice_that_is_none(keep: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="keep"):
        az.trace(dot, keep=keep)


def test_nothing_to_keep() -> None:
    with pytest.raises(ValueError, match="keep"):
        az.trace(dot, keep=set())


def test_a_result_of_a_dropped_type() -> None:
    with pytest.raises(TypeError, match=r"(?s)positive.*bool.*traced away.*kept: reals"):

        def positive(x: az.f64) -> az.bool_:
            return x > 0

        az.trace(az.program(positive), keep="reals")(1.0)
    with pytest.raises(TypeError, match=r"(?s)doubled.*f64\[.*traced away.*kept"):

        def doubled(x: Vector) -> Vector:
            return x * 2

        az.trace(az.program(doubled), keep="scalars")(X)
    with pytest.raises(TypeError, match=r"(?s)i64.*traced away.*kept: arrays, reals"):
        az.trace(az.program(lambda x: (x, az.size(x))), keep={"reals", "arrays"})(X)


def test_what_is_always_dropped_as_a_result() -> None:
    """Functions and data, whose parts may be results."""
    with pytest.raises(TypeError, match=r"result.*traced away"):
        az.trace(az.program(lambda x: az.function(lambda y: x * y, az.f64)))(1.0)

    def same(xs: List[az.f64]) -> List[az.f64]:
        return xs

    with pytest.raises(TypeError, match=f"(?s)same.*List.*traced away.*{HERE}"):
        az.trace(az.program(same))(SOME)


@pytest.mark.unguarded
def test_what_is_not_a_program() -> None:
    with pytest.raises(TypeError, match="3"):
        az.trace(3)  # type: ignore[arg-type]


def test_the_errors_of_a_run_are_those_of_evaluate() -> None:
    division = az.program(lambda n, m: az.fori_loop(0, 2, lambda i, s: s // m, n))
    with pytest.raises(ZeroDivisionError, match=HERE):
        az.trace(division)(3, 0)
    in_a_map = az.program(lambda x, k: az.map(lambda i: az.cond(i > 1, lambda: x[i], lambda: 0.0), k))
    with pytest.raises(IndexError, match=f"index 9 is out of range.*{HERE}"):
        az.trace(in_a_map)(X, np.array([0, 2, 9, 11]))


def test_results_are_those_of_numpy() -> None:
    """The leaves of data, booleans included."""
    assert leaves(az.trace(az.program(lambda b: ~b))(X > 0).result)[0].dtype == np.bool_


# Pickles


def test_pickles_from_before_modules_moved_load() -> None:
    trace, program, cost = pickle.loads((ROOT / "tests" / "data" / "moved.pickle").read_bytes())
    x = np.array([1.0, -2.0, 3.0])
    again = az.trace(lambda x: az.sum(az.where(x > 0, x * x, az.sin(x))))(x)
    assert str(trace).partition("\n")[2] == str(again).partition("\n")[2]
    assert program(x) == again.result == trace.result
    assert "operations: 33" in str(cost) and pickle.loads(pickle.dumps(again)).block == trace.block
