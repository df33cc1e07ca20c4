"""A function in kernels, and what the host does around them: the rules of the split, and that it keeps the meaning.

The plain interpreter runs a kernel with copies of the host's scalars and forgets what it bound: what kernels hand to
each other has to be in memory.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from plain_loops import Run, apply, at, const, loop, loops_of, lowered, put, var
from programs import CASES, Case, sampled
from test_compile import assert_same
from test_derivatives import Point, assert_close, cases, leaves
from test_grids import ALONE, GROUPS

import adze as az
from adze.backends import ir
from adze.backends.memory.scratch import with_heaps
from adze.backends.opencl.kernels import LONG, split
from adze.core.language import Unsupported
from adze.core.types import f64, i64

N = var("n")
X, Y = ir.Buffer("x", f64, (N,)), ir.Buffer("y", f64, (N,))
S = ir.Buffer("s", f64, ())
P = ir.Buffer("p", i64, (N,))


def placed(function: ir.Function) -> ir.Function:
    """In kernels that allocate nothing of unknown size; checked."""
    made = with_heaps(split(function), GROUPS.group)
    ir.check(made, groups=True)
    on_host = [statement for statement in host(made.body) if isinstance(statement, ir.Store)]
    assert not on_host, "the host stores nothing"
    for kernel in kernels(made):
        assert not any(isinstance(each, ir.Kernel | ir.Return) for each in ir.walk(kernel.body))
    bodies = {kernel.name: kernel.body for kernel in kernels(made)}
    assert all(kernel.body == bodies[kernel.name] for kernel in kernels(made)), "a name means one kernel"
    return made


def function(*body: ir.Statement, arguments: Any = (X, S, P), results: Any = (Y,), returned: int = 0) -> ir.Function:
    made = ir.Function("f", ("n",), arguments, results, body, returned)
    ir.check(made, groups=True)
    return made


def host(block: ir.Block) -> Iterator[ir.Statement]:
    """What the host does, outside of kernels."""
    for statement in block:
        yield statement
        if not isinstance(statement, ir.Kernel):
            for inner in ir.blocks_of(statement):
                yield from host(inner)


def kernels(function: ir.Function) -> list[ir.Kernel]:
    return [statement for statement in ir.walk(function.body) if isinstance(statement, ir.Kernel)]


def names(function: ir.Function) -> list[str]:
    return [kernel.name for kernel in kernels(function)]


def read_back(function: ir.Function) -> list[str]:
    """The buffers that the host reads numbers of, but for arguments that are numbers."""
    wholes = [
        whole for each in host(function.body) if not isinstance(each, ir.Kernel) for whole in ir.expressions_of(each)
    ]
    parts = [part for whole in wholes for part in ir.inside(whole)]
    return [part.buffer.name for part in parts if isinstance(part, ir.Load) and part.buffer.extents]


def ran(function: ir.Function, x: Any, s: float = 0.5, p: Any = None) -> Any:
    """The result of a function, and that of its kernels: the same."""
    found = []
    for each in (function, placed(function)):
        y = np.full(len(x), np.nan)
        arrays = [np.array(x, float), np.array(s), np.zeros(len(x), np.int64) if p is None else np.array(p), y]
        run = Run(each, arrays, [len(x)], shared_bytes=GROUPS.shared_bytes)
        found.append((y.tolist(), run.failures[:1], {k: array.tolist() for k, array in run.returned.items()}))
    assert found[0] == found[1]
    return found[0][0]


def fill(value: Any, i: str = "i") -> ir.For:
    """Store a value at each place of the result, in parallel."""
    return loop(i, "n", put(Y, i, value), kind="parallel")


def add(a: Any, b: Any) -> Any:
    return apply("add", a, b)


# What is where


def test_scalars_that_kernels_hand_on_are_in_memory() -> None:
    total, square = var("total", f64), apply("multiply", at(X, "i"), at(X, "i"))
    partial = ir.Buffer("partial", f64, (N,))
    f = function(
        ir.Allocate(partial),
        loop("i", "n", put(partial, "i", square), kind="parallel"),
        ir.Declare("total", const(0.0, f64)),
        loop("k", "n", ir.Assign("total", add(total, at(partial, "k")))),
        fill(apply("divide", at(X, "j"), total), "j"),
    )
    made = placed(f)
    assert names(made) == ["compute_partial", "compute_total", "compute_y"]
    assert [kernel.body[-1].kind for kernel in kernels(made) if isinstance(kernel.body[-1], ir.For)] == ["parallel"] * 2
    assert read_back(made) == []
    assert "f64_scalars" in ir.text(made)
    assert ran(f, [1.0, 2.0]) == [0.2, 0.4]


def test_the_host_computes_with_sizes_and_numbers_that_are_arguments() -> None:
    f = function(
        ir.Let("twice", apply("multiply", at(S), const(2.0, f64))),
        ir.Let("half", apply("floor_divide", N, const(2))),
        ir.Declare("count", const(0)),
        loop("k", "half", ir.Assign("count", add(var("count"), const(3))), fill(var("twice", f64))),
        fill(add(at(X, "i"), apply("f64", var("count")))),
    )
    made = placed(f)
    assert {each.name for each in host(made.body) if isinstance(each, ir.Let | ir.Declare | ir.Assign)} == {
        "twice",
        "half",
        "count",
    }
    assert "_scalars" not in ir.text(made) and len(kernels(made)) == 2
    assert ran(f, [1.0, 2.0, 3.0, 4.0]) == [7.0, 8.0, 9.0, 10.0]


def test_what_one_thread_does_is_one_kernel() -> None:
    """Sequential loops, branches and whiles without parallel loops inside."""
    step, less = ir.Assign("t", add(var("t", f64), at(X, "k"))), apply("less", var("t", f64), const(3.0, f64))
    f = function(
        ir.Declare("t", at(X, 0)),
        loop("k", "n", step),
        ir.If(less, (ir.Assign("t", const(3.0, f64)),), ()),
        ir.While((), less, (ir.Assign("t", add(var("t", f64), const(1.0, f64))),)),
        loop("k2", "n", put(Y, "k2", var("t", f64))),
    )
    made = placed(f)
    assert len(kernels(made)) == 1 and "scalars" not in ir.text(made)
    assert ran(f, [1.0, 0.5]) == [3.0, 3.0]


def test_very_long_code_of_one_thread_is_cut() -> None:
    stores = [put(Y, 0, const(float(k), f64)) for k in range(3 * LONG)]
    made = placed(function(*stores))
    assert 3 <= len(kernels(made)) <= 4
    assert ran(function(*stores), [0.0]) == [3.0 * LONG - 1]


def test_lanes_outside_of_parallel_loops_are_a_kernel_of_one_group() -> None:
    strip = loop("i", "n", put(Y, "i", at(X, "i")), kind="lanes", factor=GROUPS.group)
    made = placed(function(strip))
    assert [kernel.body for kernel in kernels(made)] == [(strip,)]


def test_loops_and_branches_with_kernels_inside_are_the_hosts() -> None:
    positive = apply("less", const(0), N)
    f = function(
        loop("k", const(3), fill(add(at(X, "i"), apply("f64", var("k"))))),
        ir.If(positive, (fill(add(at(X, "i"), const(1.0, f64))),), ()),
    )
    made = placed(f)
    assert [type(statement) for statement in made.body] == [ir.For, ir.If]
    assert len(kernels(made)) == 2 and read_back(made) == []
    assert ran(f, [1.0]) == [2.0]


def test_a_branch_on_what_the_device_knows_is_read_back() -> None:
    """Once, if nothing changes it."""
    test = apply("less", var("t", f64), const(1.0, f64))
    branches = [ir.If(test, (fill(const(float(k), f64)),), ()) for k in range(2)]
    f = function(fill(const(-1.0, f64)), ir.Let("t", at(X, 0)), *branches)
    made = placed(f)
    assert read_back(made) == ["f64_scalars"]
    assert ran(f, [0.0, 5.0]) == [1.0, 1.0] and ran(f, [2.0]) == [-1.0]


def test_a_changing_scalar_is_read_back_each_time() -> None:
    test = apply("less", var("t", f64), const(1.0, f64))
    branch = ir.If(test, (fill(var("t", f64)), ir.Assign("t", add(var("t", f64), at(X, 0)))), ())
    f = function(fill(const(-1.0, f64)), ir.Declare("t", at(X, 0)), branch, branch, branch)
    assert read_back(placed(f)) == ["f64_scalars"] * 3
    assert ran(f, [0.25]) == [0.75] and ran(f, [4.0]) == [-1.0]


def test_an_array_whose_size_the_device_knows_is_returned() -> None:
    count = ir.Variable("count", i64)
    made = ir.Buffer("made", f64, (count,))
    f = function(
        ir.Let("count", at(P, 0)),
        ir.Allocate(made),
        loop("i", count, put(made, "i", apply("f64", var("i"))), kind="parallel"),
        ir.Return(0, made),
        fill(const(0.0, f64)),
        returned=1,
    )
    assert read_back(placed(f)) == ["i64_scalars"]
    assert ran(f, [1.0], p=[3]) == [0.0]


# Whiles


def doubling(*more: ir.Statement) -> ir.Function:
    """Double an array until its first element is large: the device computes the test."""
    low = apply("less", at(Y, 0), const(100.0, f64))
    return function(
        fill(at(X, "i")),
        ir.Declare("turns", const(0)),
        ir.While(
            (ir.Let("first", at(Y, 0)),),
            apply("logical_and", low, apply("less", const(0.0, f64), var("first", f64))),
            (
                loop("j", "n", put(Y, "j", apply("multiply", at(Y, "j"), const(2.0, f64))), kind="parallel"),
                ir.Assign("turns", add(var("turns"), const(1))),
                *more,
            ),
        ),
        loop("k", "n", put(Y, "k", add(at(Y, "k"), apply("f64", var("turns")))), kind="parallel"),
    )


@pytest.mark.slow
def test_a_while_runs_ahead_of_a_test_on_the_device() -> None:
    made = placed(doubling())
    loops = [each for each in host(made.body) if isinstance(each, ir.For)]
    assert [loop.variable for loop in loops] == ["turn1"]
    (ahead,) = [each for each in host(made.body) if isinstance(each, ir.While)]
    assert not any(isinstance(each, ir.Kernel) for each in ahead.head)
    for kernel in (each for each in ir.walk(loops[0].body) if isinstance(each, ir.Kernel)):
        assert isinstance(kernel.body[0], ir.If), "does nothing when the loop is over"
    assert ran(doubling(), [1.0, 2.0]) == [128.0 + 7, 256.0 + 7]
    for never in (0.0, -1.0, 1000.0):
        assert ran(doubling(), [never]) == [never]
    for turns in range(1, 80):
        assert ran(doubling(), [100.0 * 0.5**turns])[0] == 100.0 + turns


def test_of_two_whiles_the_inner_one_runs_ahead() -> None:
    less = apply("less", at(Y, 1), const(4.0, f64))
    inner = ir.While((), less, (loop("l", const(1), put(Y, 1, add(at(Y, 1), const(1.0, f64))), kind="parallel"),))
    f = doubling(inner)
    made = placed(f)
    assert sum(isinstance(each, ir.While) for each in host(made.body)) == 2
    assert [each.variable for each in host(made.body) if isinstance(each, ir.For)] == ["turn1"]
    assert ran(f, [30.0, 0.0]) == [122.0, 10.0]


def test_a_while_that_needs_a_number_each_turn_reads_its_test_back() -> None:
    """A branch of the host's inside depends on the device."""
    branch = ir.If(
        apply("less", at(Y, 0), const(10.0, f64)),
        (loop("l", "n", put(Y, "l", add(at(Y, "l"), const(1.0, f64))), kind="parallel"),),
        (),
    )
    f = doubling(branch)
    made = placed(f)
    assert not [each for each in host(made.body) if isinstance(each, ir.For)]
    assert len(read_back(made)) >= 2
    assert ran(f, [1.0]) == [112.0 + 6]


def test_a_while_that_counts_on_the_host_stays_there() -> None:
    below = apply("less", var("k"), N)
    f = function(
        fill(at(X, "i")),
        ir.Declare("k", const(0)),
        ir.While((), below, (fill(apply("f64", var("k")), "j"), ir.Assign("k", add(var("k"), const(1))))),
    )
    made = placed(f)
    assert read_back(made) == [] and "scalars" not in ir.text(made)
    assert ran(f, [5.0, 5.0, 5.0]) == [2.0, 2.0, 2.0]


def test_a_failure_ends_a_while_that_runs_ahead() -> None:
    f = doubling(ir.Require(apply("less", at(Y, 0), const(20.0, f64)), 7, (var("turns"),)))
    for each in (f, placed(f)):
        arrays = [np.array([1.0]), np.array(0.0), np.zeros(1, np.int64), np.zeros(1)]
        run = Run(each, arrays, [1])
        assert run.failures[0] == (7, [5])


# Temporaries whose size an iteration decides


def summed(count: Any, before: tuple[ir.Statement, ...] = (), guarded: tuple[int, ...] = ()) -> ir.Function:
    """Each iteration fills memory of its own, of so many elements, and adds up all of it and something outside."""
    own = ir.Buffer("own", f64, (var("count"),))
    total = var("total", f64)
    reach = add(var("count"), const(2)) if guarded else var("count")
    return function(
        loop(
            "i",
            "n",
            *before,
            ir.Let("count", count),
            ir.Allocate(own),
            loop("k", reach, ir.Store(own, (var("k"),), add(at(X, "i"), apply("f64", var("k"))), guarded)),
            ir.Declare("total", const(0.0, f64)),
            loop("l", reach, ir.Assign("total", add(total, ir.Load(own, (var("l"),), guarded)))),
            put(Y, "i", total),
            kind="parallel",
        )
    )


@pytest.mark.parametrize("guarded", [(), (0,)], ids=["inside", "guarded"])
@pytest.mark.parametrize("counts", [[3, 0, 2, 7, 1], [0], [1] * 9, []])
def test_memory_of_each_iteration(counts: list[int], guarded: tuple[int, ...]) -> None:
    """Also a guarded access outside of it, which may not touch the memory of another."""
    f = summed(at(P, "i"), guarded=guarded)
    made = placed(f)
    stems = [name.split("_")[0].rstrip("0123456789") for name in names(made)]
    assert stems == ["count", "place", "compute"]
    assert [each.buffer.name for each in ir.walk(kernels(made)[-1].body) if isinstance(each, ir.Allocate)] == []
    assert len(read_back(made)) == 1
    x = np.arange(float(len(counts)))
    assert ran(f, x, p=counts) == [c * v + c * (c - 1) / 2 for c, v in zip(counts, x)]


def test_sizes_that_a_loop_counts() -> None:
    trips = var("trips")
    counting = (
        ir.Declare("trips", const(0)),
        ir.Declare("v", at(X, "i")),
        ir.While(
            (),
            apply("less", var("v", f64), const(10.0, f64)),
            (
                ir.Assign("v", apply("multiply", var("v", f64), const(2.0, f64))),
                ir.Assign("trips", add(trips, const(1))),
            ),
        ),
    )
    f = summed(trips, counting)
    assert ran(f, [1.0, 20.0, 4.0]) == [1 * 4 + 6.0, 0.0, 4 * 2 + 1.0]


def test_sizes_that_depend_on_such_memory_take_another_round() -> None:
    first, second = ir.Buffer("first", i64, (var("count"),)), ir.Buffer("second", f64, (var("more"),))
    total = var("total", f64)
    f = function(
        loop(
            "i",
            "n",
            ir.Let("count", add(at(P, "i"), const(1))),
            ir.Allocate(first),
            loop("k", "count", put(first, "k", add(var("k"), at(P, "i")))),
            ir.Let("more", at(first, at(P, "i"))),
            ir.Allocate(second),
            loop("l", "more", put(second, "l", at(X, "i"))),
            ir.Declare("total", const(0.0, f64)),
            loop("m", "more", ir.Assign("total", add(total, at(second, "m")))),
            put(Y, "i", total),
            kind="parallel",
        )
    )
    stems = [name.split("_")[0].rstrip("0123456789") for name in names(placed(f))]
    assert stems == ["count", "place", "count", "place", "compute"]
    assert ran(f, [1.0, 0.5, 0.25], p=[2, 0, 3]) == [4.0, 0.0, 1.5]


def test_a_grid_of_two_loops() -> None:
    z = ir.Buffer("z", f64, (N, const(3)))
    own = ir.Buffer("own", f64, (var("count"),))
    body = (
        ir.Let("count", add(at(P, "i"), var("j"))),
        ir.Allocate(own),
        loop("k", "count", put(own, "k", const(1.0, f64))),
        ir.Declare("total", const(0.0, f64)),
        loop("l", "count", ir.Assign("total", add(var("total", f64), at(own, "l")))),
        put(z, "i", "j", var("total", f64)),
    )
    f = function(loop("i", "n", loop("j", const(3), *body, kind="parallel"), kind="parallel"), results=(z,))
    result = np.zeros((2, 3))
    Run(placed(f), [np.zeros(2), np.array(0.0), np.array([1, 4]), result], [2])
    assert result.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_size_that_the_kernel_itself_writes_is_refused() -> None:
    counts = ir.Buffer("counts", i64, (N,))
    own = ir.Buffer("own", f64, (var("count"),))
    f = function(
        ir.Allocate(counts),
        loop(
            "i",
            "n",
            put(counts, "i", at(P, "i")),
            ir.Let("count", at(counts, "i")),
            ir.Allocate(own),
            put(Y, "i", const(0.0, f64)),
            kind="parallel",
        ),
    )
    with pytest.raises(Unsupported, match=r'depends on counts, which the same kernel writes.*backend="llvm"'):
        placed(f)


# Programs


def agrees(program: Any, arguments: Any, tolerance: float = 1e-12, **options: Any) -> None:
    found = lowered(program, GROUPS, arguments, change=placed, **options)
    assert_close(leaves(found), leaves(az.evaluate(program)(*arguments)), tolerance)


@pytest.mark.unguarded
@sampled(CASES)
def test_a_program_in_kernels_equals_evaluate(case: Case) -> None:
    for arguments in case.arguments[:2]:
        assert_same(lowered(case.program, GROUPS, arguments, change=placed), az.evaluate(case.program)(*arguments))


# Loops that the host drives, whiles that run ahead, heaps, accumulators and histograms.
FAST = {"cond_in_map", "loop_in_map", "histograms", "linear_recurrence", "gather_pairs", "heat", "horner"}


@pytest.mark.unguarded
@cases(FAST)
def test_a_gradient_in_kernels_equals_evaluate(case: Case) -> None:
    point = Point.double(case)
    agrees(az.vjp(point.program), (*point.arguments, point.cotangent))
    agrees(az.vjp(point.program), (*point.arguments, point.cotangent), deterministic=True)


@pytest.mark.unguarded
@cases(set())
def test_a_gradient_in_kernels_without_atomics(case: Case) -> None:
    point = Point.double(case)
    program, arguments = az.vjp(point.program), (*point.arguments, point.cotangent)
    found = lowered(program, ALONE, arguments, change=placed)
    assert_close(leaves(found), leaves(az.evaluate(program)(*arguments)), 1e-12)


def test_the_store_of_a_while_in_a_map_is_in_a_heap() -> None:
    """Its gradient: how many steps there are is known for each element."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        def steps(v: Any) -> Any:
            return az.while_loop(lambda s: s[1] < 9.0, lambda s: (s[0] + 1, s[1] * s[1] + abs(v)), (0, 1.5))[1]

        return az.sum(az.map(steps, x))

    x = np.array([0.5, -3.0, 20.0, 0.125, 0.0])
    made = placed(loops_of(az.grad(f), GROUPS, (x,)))
    assert any(name.startswith("count") for name in names(made))
    agrees(az.grad(f), (x,))


def test_a_failing_requirement_is_reported() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], p: az.Array[az.i64, "m"]) -> Any:
        return az.map(lambda i: x[i], p)

    with pytest.raises(IndexError, match="index 7 is out of range"):
        lowered(f, GROUPS, (np.ones(3), np.array([0, 7])), change=placed)
