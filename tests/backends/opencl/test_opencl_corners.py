"""Corners of the OpenCL backend: what groups do one after the other, wrap-around, names, memory of threads.

Functions of the loop IR that the lowering hardly writes run on the device as they are; everything else is a program,
against evaluate.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from agreement import exact
from hypothesis import given, settings
from opencl_groups import groups
from plain_loops import apply, at, const, loop, put, var
from programs import numbers
from random_programs import argument_lists, made, program_texts
from test_compile import assert_same

import adze as az
from adze.backends import ir
from adze.backends.memory.scratch import with_heaps
from adze.backends.opencl.devices import Device, choose
from adze.backends.opencl.kernels import split
from adze.core.language import Unsupported
from adze.core.primitive import lookup
from adze.core.types import f64, i64

pytestmark = pytest.mark.usefixtures("opencl")

N = var("n")
X, Y, P = ir.Buffer("x", f64, (N,)), ir.Buffer("y", f64, (N,)), ir.Buffer("p", i64, (N,))
SIZE = 4  # of a group


@pytest.fixture
def small(opencl: Device) -> Iterator[Device]:
    """The device with few small groups."""
    with groups(opencl, size=SIZE, threads=2 * SIZE) as device:
        yield device


def lanes(variable: str, extent: Any, *body: ir.Statement, reductions: tuple[ir.Reduction, ...] = ()) -> ir.For:
    return loop(variable, extent, *body, kind="lanes", factor=SIZE, reductions=reductions)


def add(a: Any, b: Any) -> Any:
    return apply("add", a, b)


def ran(device: Device, body: ir.Block, arrays: Mapping[str, Any], arguments: tuple[ir.Buffer, ...] = (X, P)) -> Any:
    """What a function leaves in its result ``y``, and the site that failed."""
    from adze.backends.opencl.devices import target_of
    from adze.backends.opencl.run import Executable, in_kernels

    function = ir.Function("f", ("n",), arguments, (Y,), body)
    ir.check(function, groups=True)
    run = Executable(in_kernels(function, target_of(device)), device, "f")
    n = len(arrays["x"])
    memory = {}
    for name, array in arrays.items():
        memory[name] = run.on.pool.allocate(max(8, array.nbytes))
        run.cl.enqueue_copy(run.on.queue, memory[name], array)
    given, failure = run.run(memory, {"n": n})
    result = np.empty(n)
    run.cl.enqueue_copy(run.on.queue, result, given[0][0])
    return result, failure


def agrees(program: Any, *arguments: Any, device: Any = None) -> Any:
    found = az.compile(program, backend="opencl", device=device)(*arguments)
    assert_same(found, az.evaluate(program)(*arguments))
    return found


# What groups do one after the other


def test_what_is_written_again_waits_for_what_was_written_before(small: Device) -> None:
    """Threads write to places that others have written: by another loop, in another turn, by an update, one for all."""
    x, p = numbers(11), np.arange(11)[::-1].copy()
    arrays = {"x": x, "p": p}
    last = apply("subtract", apply("subtract", N, const(1)), var("j"))

    again = (lanes("i", N, put(Y, "i", const(0.0, f64))), lanes("j", N, put(Y, last, at(X, "j"))))
    np.testing.assert_array_equal(ran(small, again, arrays)[0], x[::-1])

    one = (lanes("i", N, put(Y, "i", at(X, "i"))), put(Y, 7, const(5.0, f64)))
    np.testing.assert_array_equal(ran(small, one, arrays)[0], np.where(np.arange(11) == 7, 5.0, x))

    place = apply("remainder", add(var("i"), var("k")), N)
    turns = (loop("k", 5, lanes("i", N, put(Y, place, apply("f64", var("i"))))),)
    np.testing.assert_array_equal(ran(small, turns, arrays)[0], (np.arange(11) - 4) % 11)

    update = ir.Update(Y, (at(P, "j"),), lookup("add"), at(X, "j"))
    fill = (lanes("i", N, put(Y, "i", const(1.0, f64))), lanes("j", N, update))
    np.testing.assert_array_equal(ran(small, fill, arrays)[0], 1 + x[::-1])


def test_two_totals_in_one_variable(small: Device) -> None:
    x = np.arange(9.0)
    total = var("total", f64)
    reductions = (ir.Reduction("total", lookup("add"), const(0.0, f64)),)
    body = (
        ir.Declare("total", const(0.5, f64)),
        lanes("i", N, ir.Assign("total", add(total, at(X, "i"))), reductions=reductions),
        lanes("j", N, ir.Assign("total", add(total, at(X, "j"))), reductions=reductions),
        lanes("k", N, put(Y, "k", total)),
    )
    np.testing.assert_array_equal(ran(small, body, {"x": x, "p": np.zeros(9, np.int64)})[0], 2 * x.sum() + 0.5)


def test_two_whiles_of_a_group_that_end_when_something_fails(small: Device) -> None:
    def counted(name: str, i: str) -> ir.Block:
        count = var(name)
        turn = (ir.Require(apply("less", count, const(6)), 3, (count,)), ir.Assign(name, add(count, const(1))))
        return (ir.Declare(name, const(0)), ir.While((), apply("less", count, at(P, i)), turn))

    rows = loop(
        "i",
        N,
        *counted("a", "i"),
        *counted("b", "i"),
        ir.Let("sum", add(var("a"), var("b"))),
        lanes("j", 1, put(Y, add(var("i"), var("j")), apply("f64", var("sum")))),
        kind="parallel",
    )
    p = np.array([2, 0, 5, 1])
    result, failure = ran(small, (rows,), {"x": np.zeros(4), "p": p})
    np.testing.assert_array_equal(result, 2 * p)
    assert failure is None
    _, failure = ran(small, (rows,), {"x": np.zeros(4), "p": np.array([2, 0, 2**62, 1])})
    assert failure is not None and (failure.site, failure.values[0]) == (3, 6)


def test_a_loop_makes_the_turns_that_it_was_to_make_when_it_began(small: Device) -> None:
    count = var("count")
    by_variable = (
        ir.Declare("count", const(3)),
        loop("k", count, ir.Assign("count", add(count, const(1)))),
        put(Y, 0, apply("f64", count)),
    )
    assert ran(small, by_variable, {"x": np.zeros(1), "p": np.zeros(1, np.int64)})[0] == [6]
    turns = ir.Buffer("turns", i64, (const(1),))
    by_memory = (
        ir.Allocate(turns),
        put(turns, 0, const(4)),
        loop("k", at(turns, 0), ir.Store(turns, (const(0),), const(2)), put(Y, "k", const(1.0, f64))),
    )
    result, _ = ran(small, by_memory, {"x": np.zeros(4), "p": np.zeros(4, np.int64)})
    np.testing.assert_array_equal(result, 1)


# Memory


def test_each_group_has_its_own_memory(small: Device) -> None:
    """Nobody but the host knows how much; each has room for as many elements."""
    own = ir.Buffer("own", f64, (const(2), N))
    i = var("i")
    rows = loop(
        "i",
        N,
        ir.Allocate(own),
        lanes("j", N, put(own, 1, "j", apply("multiply", at(X, "i"), at(X, "j")))),
        lanes("k", 1, put(Y, add(i, var("k")), at(own, 1, apply("subtract", apply("subtract", N, const(1)), i)))),
        kind="parallel",
    )
    x = numbers(7)
    np.testing.assert_array_equal(ran(small, (rows,), {"x": x, "p": np.zeros(7, np.int64)})[0], x * x[::-1])


def test_memory_of_a_branch_that_is_not_taken(small: Device) -> None:
    """Nothing is known of a size that is not computed."""

    @az.program
    def some(x: az.Array[az.f64, "n"], k: az.Array[az.i64, "n"]) -> Any:
        first = az.cond(az.sum(x) > 1e9, lambda: az.sort(x[: k[0]])[0], lambda: 1.5)
        each = az.map(
            lambda v, q: az.cond(v > 0, lambda: az.sort(az.generate(q, lambda j: v * j))[-1], lambda: v), x, k
        )
        return first, each

    agrees(some, numbers(9), np.arange(9) % 4 + 1, device=small)


def test_a_while_whose_test_needs_memory(small: Device) -> None:
    """The kernels of a test stand before the loop and in it; each has its own memory."""

    @az.program
    def halved(x: az.Array[az.f64, "n"], k: az.Array[az.i64, "n"]) -> Any:
        def spread(v: Any, q: Any) -> Any:
            own = az.sort(az.generate(q, lambda j: v * j))
            return az.sum(own * own[::-1])

        return az.while_loop(lambda s: az.sum(az.map(spread, s, k)) > 0.5, lambda s: s * 0.5, x)

    agrees(halved, numbers(9), np.arange(9) % 4 + 1, device=small)


def test_a_failure_is_told_before_the_memory_that_it_leads_to() -> None:
    @az.program
    def wide(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        size = az.cond(x[k] > 0, lambda: k * 10**15, lambda: k)
        return az.sum(az.sort(az.generate(size, lambda i: x[0] * i)))

    run = az.compile(wide, backend="opencl")
    with pytest.raises(IndexError):
        run(np.ones(3), 5)
    assert_same(run(-np.ones(3), 2), az.evaluate(wide)(-np.ones(3), 2))


def test_a_failure_ends_the_counting_of_memory(small: Device) -> None:
    """The walk decides how much memory is needed; where it leaves the array, it is in a circle ever after."""

    @az.program
    def walked(following: az.Array[az.i64, "n"], starts: az.Array[az.i64, "m"]) -> Any:
        def each(start: Any) -> Any:
            end = az.while_loop(lambda s: following[s] >= 0, lambda s: following[s], start)
            return az.sum(az.sort(az.generate(end, lambda j: following[0] * j)))

        return az.map(each, starts)

    starts = np.array([0, 1])
    agrees(walked, np.array([1, 2, -1]), starts, device=small)
    for schedule in ({}, {"distribute": False}):  # the walk in a kernel of its own, and in that which needs memory
        with pytest.raises(IndexError, match="index 9 is out of range"):
            az.compile(walked, backend="opencl", device=small, schedule=schedule)(np.array([1, 9, 0]), starts)


def test_memory_that_is_as_large_as_what_is_in_it_is_refused(small: Device) -> None:
    @az.program
    def growing(x: az.i64, k: az.Array[az.i64, "n"]) -> Any:
        def grown(i: Any, s: Any) -> Any:
            return az.cumsum(az.generate(s, lambda j: x * j))[s - 1] + 1

        return az.map(lambda size: az.fori_loop(0, 2, grown, size), k)

    with pytest.raises(Unsupported, match="depends on what is in it"):
        az.compile(growing, backend="opencl", device=small)(1, np.array([2, 3]))


def test_memory_of_lanes_that_they_decide_is_refused() -> None:
    body = (ir.Let("size", at(P, "lane")), ir.Allocate(ir.Buffer("own", f64, (var("size"),))))
    rows = loop("i", N, lanes("lane", N, *body), kind="parallel")
    with pytest.raises(Unsupported, match="temporary own"):
        with_heaps(split(ir.Function("f", ("n",), (X, P), (Y,), (rows,))), SIZE)


# Integers


def test_products_of_counters_wrap_around() -> None:
    @az.program
    def hashes(x: az.Array[az.f64, "n"]) -> Any:
        def mixed(i: Any) -> Any:
            square = i * i
            fourth = square * square
            return fourth % 7, fourth // 3, (square * square * i) % 5

        return az.generate(x.shape[0], mixed)

    agrees(hashes, np.zeros(100_000))


# Names


def test_names_that_the_compiler_makes_up() -> None:
    """Arguments, sizes and values are called like what the split and the writer add."""

    @az.program
    def odd(active: az.Array[az.f64, "sum1"], turns: az.f64, rest2: az.Array[az.f64, "at1"], rest3: az.f64) -> Any:
        def turn(state: Any) -> Any:
            active1, turns1 = state
            return az.map(lambda turn1: turn1 * 0.5 + turns, active1), turns1 + az.sum(active1)

        ended = az.while_loop(lambda state: az.sum(state[0] * state[0]) > 4.0, turn, (active * 3.0, turns))
        cube = az.generate((active.shape[0], 2, rest2.shape[0]), lambda i, j, k: rest2[k] * j + active[i] * rest3)
        rows = az.generate(rest2.shape[0], lambda i: az.sum(az.sort(rest2[: i + 1] * rest3)))
        return ended, cube, rows

    agrees(odd, numbers(30), 0.01, np.arange(5.0), 3.0)


def test_sizes_that_are_called_like_arrays() -> None:
    """An array's name gets a number, and a size may have that name."""

    @az.program
    def f(x: az.Array[az.f64, "x1 x_0_2"], x_0: az.Array[az.f64, "x2"]) -> az.Array[az.f64, "x2"]:
        return az.sum(x) * x_0

    arguments = numbers(3, 4), numbers(5)
    for backend in ("llvm", "opencl"):
        exact(az.compile(f, backend=backend)(*arguments), az.evaluate(f)(*arguments))


@pytest.mark.slow
@settings(max_examples=40)
@given(program_texts(polynomial=True, depth=4), argument_lists())
def test_random_programs_in_small_groups(text: str, arguments: tuple[Any, ...]) -> None:
    program = made(text)
    with groups(choose(), size=SIZE, threads=2 * SIZE) as device:
        exact(az.compile(program, backend="opencl", device=device)(*arguments), az.evaluate(program)(*arguments))
