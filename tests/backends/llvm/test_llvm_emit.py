"""The LLVM back end against a plain run of the same loops: every kind of loop, every scalar type, all tails."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from plain_loops import apply, at, const, fma, loop, put, var
from random_loops import Draw

from adze.backends import ir, runtime
from adze.backends.llvm import assemble
from adze.backends.llvm.assemble import assembly, compile_each, printed
from adze.backends.llvm.emit import emit
from adze.backends.llvm.host import Machine, host, host_target
from adze.backends.llvm.jit import Executable, Failure, is_parallel
from adze.backends.llvm.jit import compiled as code_of
from adze.backends.llvm.text import UNOPTIMISED, Body
from adze.core.primitive import lookup
from adze.core.types import SCALARS, Scalar, bool_, f32, f64, i32, i64, u8, u64

SIZES = (0, 1, 7, 8, 9, 31, 32, 33, 100)
THREADS = (1, 2, 7)


def values(scalar: Scalar, shape: Any, seed: int = 0) -> np.ndarray:
    """Small numbers of a type: integers, and quarters where there are any."""
    numbers = np.random.default_rng(seed).integers(-20, 21, shape)
    if scalar.kind == "float":
        return (numbers / 4).astype(scalar.dtype)
    return (numbers > 0) if scalar.kind == "bool" else numbers.astype(scalar.dtype)


def call(executable: Executable, arrays: list[np.ndarray], sizes: list[int], threads: int = 1) -> Failure | None:
    return executable.run([array.ctypes.data for array in arrays], sizes, threads)


def compare(function: ir.Function, arguments: list[np.ndarray], sizes: list[int], executable: Executable) -> None:
    """Compiled code, on every number of threads, gives bit for bit what the plain run gives."""
    shapes = []
    names = dict(zip(function.sizes, sizes))
    for buffer in function.results:
        shapes.append([names[each.name] if hasattr(each, "name") else each.value for each in buffer.extents])
    wanted = [np.zeros(shape, buffer.scalar.dtype) for shape, buffer in zip(shapes, function.results)]
    plain_loops.run(function, arguments + wanted, sizes)
    for threads in THREADS:
        found = [np.zeros(shape, buffer.scalar.dtype) for shape, buffer in zip(shapes, function.results)]
        assert call(executable, arguments + found, sizes, threads) is None
        for a, b in zip(found, wanted):
            np.testing.assert_array_equal(a, b)


def compiled(function: ir.Function) -> Executable:
    ir.check(function)
    code = code_of(function)
    return Executable(code.machine_code, is_parallel(function), code.branches)


def emitted(function: ir.Function) -> str:
    ir.check(function)
    return str(emit(function, host()))


# Kinds of loops


@pytest.mark.unguarded
@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
@pytest.mark.parametrize("kind", ["sequential", "parallel", "lanes", "jam"])
def test_every_kind_moves_every_type(scalar: Scalar, kind: str) -> None:
    n = var("n")
    a, b, c = (ir.Buffer(name, scalar, (n,)) for name in "abc")
    value = apply("logical_or" if scalar is bool_ else "add", at(a, "i"), at(b, "i"))
    factor = {"lanes": 32, "jam": 4}.get(kind, 1)
    function = ir.Function("f", ("n",), (a, b), (c,), (loop("i", "n", put(c, "i", value), kind=kind, factor=factor),))
    executable = compiled(function)
    for size in SIZES:
        compare(function, [values(scalar, size, seed) for seed in (1, 2)], [size], executable)


def product(*nest: tuple[str, str, int], scalar: Scalar = f64) -> ir.Function:
    """A matrix product, given the loops over rows and columns as (variable, kind, factor), outer first."""
    n, m, inner = var("n"), var("m"), var("l")
    a, b, c = ir.Buffer("a", scalar, (n, inner)), ir.Buffer("b", scalar, (inner, m)), ir.Buffer("c", scalar, (n, m))
    total = var("t", scalar)
    body: tuple[ir.Statement, ...] = (
        ir.Declare("t", const(0.0, scalar)),
        loop("k", "l", ir.Assign("t", fma(at(a, "i", "k"), at(b, "k", "j"), total))),
        put(c, "i", "j", total),
    )
    for variable, kind, factor in reversed(nest):
        body = (loop(variable, {"i": "n", "j": "m"}[variable], *body, kind=kind, factor=factor),)
    return ir.Function("product", ("n", "m", "l"), (a, b), (c,), body)


NESTS = [
    (("i", "jam", 4), ("j", "lanes", 32)),
    (("j", "lanes", 16), ("i", "jam", 3)),
    (("i", "parallel", 1), ("j", "lanes", 8)),
    (("i", "lanes", 8), ("j", "jam", 2)),
    (("i", "jam", 2), ("j", "jam", 3)),
    (("i", "sequential", 1), ("j", "sequential", 1)),
    (("j", "parallel", 1), ("i", "lanes", 4)),
    (("i", "lanes", 1), ("j", "jam", 1)),
]


@pytest.mark.unguarded
@pytest.mark.parametrize("nest", NESTS, ids=lambda nest: "-".join(f"{kind}{factor}" for _, kind, factor in nest))
@pytest.mark.parametrize("scalar", [f64, f32], ids=str)
def test_nested_kinds(nest: Any, scalar: Scalar) -> None:
    function = product(*nest, scalar=scalar)
    executable = compiled(function)
    for n in (0, 1, 3, 9, 33):
        for m in (0, 1, 8, 31, 33):
            arguments = [values(scalar, (n, 5), 1), values(scalar, (5, m), 2)]
            compare(function, arguments, [n, m, 5], executable)


def test_extents_known_at_compile_time_leave_no_tail() -> None:
    for size in (32, 13, 64):
        a, b = ir.Buffer("a", f64, (const(size),)), ir.Buffer("b", f64, (const(size),))
        body = loop("i", size, put(b, "i", apply("negative", at(a, "i"))), kind="lanes", factor=32)
        function = ir.Function("f", (), (a,), (b,), (body,))
        assert ("masked" in emitted(function)) == (size == 13)
        compare(function, [values(f64, size)], [], compiled(function))


# Places


@pytest.mark.unguarded
@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
@pytest.mark.parametrize("kind", ["lanes", "jam"])
def test_gathers_and_scatters(scalar: Scalar, kind: str) -> None:
    """Through an array of indices, backwards, with a stride, and down a column."""
    n = var("n")
    where = ir.Buffer("where", i64, (n,))
    a, square = ir.Buffer("a", scalar, (n,)), ir.Buffer("square", scalar, (n, n))
    out = [ir.Buffer(f"out{number}", scalar, (n,)) for number in range(4)]
    wide = ir.Buffer("wide", scalar, (n, n))
    last = apply("subtract", apply("subtract", n, const(1)), var("i"))
    twice = apply("remainder", apply("multiply", const(2), var("i")), n)
    body = (
        ir.Let("w", at(where, "i")),
        put(out[0], "i", at(a, "w")),
        put(out[1], "w", at(a, "i")),
        put(out[2], last, at(a, apply("add", last, const(0)))),
        put(out[3], "i", at(a, twice)),
        put(wide, "i", 0, at(square, "i", apply("subtract", n, const(1)))),
        put(wide, last, last, at(square, "i", "i")),
    )
    function = ir.Function(
        "f", ("n",), (where, a, square), (*out, wide), (loop("i", "n", *body, kind=kind, factor=16),)
    )
    executable = compiled(function)
    for size in SIZES:
        permutation = np.random.default_rng(3).permutation(size).astype(np.int64)
        arguments = [permutation, values(scalar, size, 1), values(scalar, (size, size), 2)]
        if size:
            compare(function, arguments, [size], executable)


SQUARES = [
    (("i", "jam", 8), ("j", "lanes", 8)),
    (("i", "lanes", 8), ("j", "jam", 8)),
    (("k", "jam", 2), ("j", "jam", 4), ("i", "lanes", 4)),
    (("i", "jam", 4), ("k", "jam", 3), ("j", "lanes", 4)),
    (("k", "lanes", 2), ("i", "jam", 2), ("j", "sequential", 1)),
]


def turned(nest: Any, scalar: Scalar, *sizes: Any) -> ir.Function:
    """An array with its last axes exchanged."""
    l, n, m = sizes
    a, b = ir.Buffer("a", scalar, (l, n, m)), ir.Buffer("b", scalar, (l, m, n))
    body: tuple[ir.Statement, ...] = (put(b, "k", "j", "i", at(a, "k", "i", "j")),)
    for variable, kind, factor in reversed(nest):
        body = (loop(variable, {"k": l, "i": n, "j": m}[variable], *body, kind=kind, factor=factor),)
    if "k" not in {variable for variable, _, _ in nest}:
        body = (loop("k", l, *body),)
    return ir.Function("turned", tuple(each.name for each in sizes if hasattr(each, "name")), (a,), (b,), body)


@pytest.mark.unguarded
@pytest.mark.parametrize("nest", SQUARES, ids=lambda nest: "-".join(f"{kind}{factor}" for _, kind, factor in nest))
@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_squares_are_turned(nest: Any, scalar: Scalar) -> None:
    function = turned(nest, scalar, var("l"), var("n"), var("m"))
    executable = compiled(function)
    for sizes in ((1, 0, 8), (2, 8, 0), (3, 1, 7), (5, 8, 8), (2, 9, 33), (1, 35, 16)):
        compare(function, [values(scalar, sizes)], list(sizes), executable)


@pytest.mark.parametrize("nest", SQUARES[:2])
def test_squares_move_whole_rows(nest: Any) -> None:
    text = emitted(turned(nest, f64, const(1), const(16), const(24)))
    assert text.count("shufflevector <8 x double>") == 24 and "gather" not in text and "scatter" not in text
    assert "masked" not in text and "extractelement <8 x double>" not in text


def test_lanes_that_are_off_read_nothing() -> None:
    """Offsets of lanes that are off point nowhere: a page of zeros with nothing mapped after it must do."""
    n = var("n")
    a, where, b = ir.Buffer("a", f64, (n,)), ir.Buffer("where", i64, (n,)), ir.Buffer("b", f64, (n,))
    far = apply("multiply", var("i"), const(1 << 40))
    index = ir.Select(apply("less", var("i"), n), at(where, "i"), far, i64)
    function = ir.Function(
        "f", ("n",), (a, where), (b,), (loop("i", "n", put(b, "i", at(a, index)), kind="lanes", factor=32),)
    )
    compare(function, [values(f64, 3), np.array([2, 0, 1])], [3], compiled(function))


@pytest.mark.unguarded
def test_rows_that_no_lane_is_to_read_are_read_where_memory_is() -> None:
    """What is masked off takes long where nothing is mapped, as far before an array that is joined to a large one."""
    n, m = var("n"), var("m")
    a, b = ir.Buffer("a", f64, (n,)), ir.Buffer("b", f64, (m,))
    behind = ir.Load(a, (apply("subtract", var("i"), apply("subtract", m, n)),), guarded=(0,))
    function = ir.Function("f", ("n", "m"), (a,), (b,), (loop("i", "m", put(b, "i", behind), kind="lanes", factor=8),))
    for sizes in ((3, 100), (20, 21), (0, 9)):
        compare(function, [values(f64, sizes[0])], list(sizes), compiled(function))
    text = emitted(function)
    rows = re.findall(r"masked\.load\.\S+\(ptr align 1 (%\S+),", text)
    assert rows and all(re.search(rf"{row} = select i1 %\S+, ptr", text) for row in rows)


# Mutable variables, branches, temporaries


def test_mutable_variables_that_vary_and_that_do_not() -> None:
    """``count`` is the same in every lane and copy; ``best`` varies only because of an assignment further down."""
    n, m = var("n"), var("m")
    a, b = ir.Buffer("a", f64, (m, n)), ir.Buffer("b", f64, (n,))
    best, count = var("best", f64), var("count")
    body = (
        ir.Declare("count", const(0)),
        ir.Declare("best", const(-math.inf, f64)),
        loop(
            "k",
            "m",
            ir.If(
                apply("equal", apply("remainder", var("k"), const(2)), const(0)),
                (ir.Assign("best", apply("maximum", best, at(a, "k", "i"))),),
                (ir.Assign("count", apply("add", count, const(1))),),
            ),
        ),
        put(b, "i", apply("add", best, apply("f64", count))),
    )
    for kind in ("lanes", "jam"):
        function = ir.Function("f", ("n", "m"), (a,), (b,), (loop("i", "n", *body, kind=kind, factor=8),))
        executable = compiled(function)
        for size in SIZES:
            compare(function, [values(f64, (6, size))], [size, 6], executable)


@pytest.mark.rest
def test_temporaries_are_private_to_threads() -> None:
    n, m = var("n"), var("m")
    a, b, t, u = (
        ir.Buffer("a", f64, (n, m)),
        ir.Buffer("b", f64, (n, m)),
        ir.Buffer("t", f64, (m,)),
        ir.Buffer("u", f64, (m,)),
    )
    back = apply("subtract", apply("subtract", m, const(1)), var("j"))
    body = (
        ir.Allocate(t),
        loop("j", "m", put(t, "j", apply("multiply", at(a, "i", "j"), const(2.0, f64))), kind="lanes", factor=8),
        ir.Allocate(u),
        loop("j", "m", put(u, back, at(t, "j"))),
        loop("j", "m", put(b, "i", "j", at(u, "j")), kind="lanes", factor=8),
    )
    function = ir.Function("f", ("n", "m"), (a,), (b,), (loop("i", "n", *body, kind="parallel", grain=const(1)),))
    executable = compiled(function)
    for size in (1, 5, 400):
        compare(function, [values(f64, (size, 37))], [size, 37], executable)


def test_temporaries_of_sizes_known_at_run_time() -> None:
    n = var("n")
    a, count, b = ir.Buffer("a", f64, (n,)), ir.Buffer("count", i64, ()), ir.Buffer("b", f64, (n,))
    t, s = ir.Buffer("t", f64, (var("c"),)), ir.Buffer("s", f64, (var("twice"),))
    body = (
        ir.Let("c", at(count)),
        ir.Let("twice", apply("multiply", n, const(2))),
        ir.Allocate(t),
        ir.Allocate(s),
        loop("i", "c", put(t, "i", at(a, "i"))),
        loop("i", "c", put(s, apply("multiply", var("i"), const(2)), at(t, "i"))),
        loop("i", "c", put(b, "i", at(s, apply("multiply", var("i"), const(2))))),
    )
    function = ir.Function("f", ("n",), (a, count), (b,), body)
    executable = compiled(function)
    compare(function, [values(f64, 50), np.array(20)], [50], executable)
    with pytest.raises(MemoryError):
        call(executable, [values(f64, 50), np.array(1 << 55), np.zeros(50)], [50])


@pytest.mark.rest
def test_a_temporary_whose_size_changes_in_a_loop() -> None:
    """Row sums by way of a copy of the row's first i + 1 elements, on threads and alone."""
    n = var("n")
    a, b = ir.Buffer("a", f64, (n, n)), ir.Buffer("b", f64, (n,))
    t = ir.Buffer("t", f64, (var("length"),))
    row = (
        ir.Let("length", apply("add", var("i"), const(1))),
        ir.Allocate(t),
        loop("j", "length", put(t, "j", at(a, "i", "j"))),
        ir.Declare("total", const(0.0, f64)),
        loop("j", "length", ir.Assign("total", apply("add", var("total", f64), at(t, "j")))),
        put(b, "i", var("total", f64)),
    )
    for kind in ("sequential", "parallel"):
        function = ir.Function("f", ("n",), (a,), (b,), (loop("i", "n", *row, kind=kind),))
        executable = compiled(function)
        for size in (0, 1, 9, 300):
            compare(function, [values(f64, (size, size))], [size], executable)


@pytest.mark.parametrize("kind", ["sequential", "parallel"])
def test_no_memory_in_a_loop(kind: str) -> None:
    n, t = var("n"), ir.Buffer("t", f64, (var("length"), const(8)))
    a, b = ir.Buffer("a", i64, (n,)), ir.Buffer("b", f64, (n,))
    row = (ir.Let("length", at(a, "i")), ir.Allocate(t), put(t, 0, 0, const(1.0, f64)), put(b, "i", at(t, 0, 0)))
    executable = compiled(ir.Function("f", ("n",), (a,), (b,), (loop("i", "n", *row, kind=kind),)))
    for size in (1, 100):
        lengths, result = np.arange(size), np.zeros(size)
        assert call(executable, [lengths, result], [size], 2) is None
        assert (result == 1).all()
        for large in (1 << 50, 1 << 61, (1 << 63) - 1):
            lengths[size // 2] = large
            with pytest.raises(MemoryError):
                call(executable, [lengths, result], [size], 2)


@pytest.mark.parametrize("scalar", [f64, i32, bool_], ids=str)
@pytest.mark.parametrize("kind", ["sequential", "lanes", "jam"])
def test_accesses_that_may_be_out_of_range(kind: str, scalar: Scalar) -> None:
    """Neighbours, backwards, at computed places, along the other axis: outside there is 0, and nothing is written."""
    n, m, i, j = var("n"), var("m"), var("i"), var("j")
    a, at_ = ir.Buffer("a", scalar, (n, m)), ir.Buffer("at", i64, (n,))
    found, written = ir.Buffer("found", scalar, (n, m, const(5))), ir.Buffer("written", scalar, (m, n))
    before, after = apply("subtract", i, const(1)), apply("add", i, const(3))
    back = apply("subtract", apply("subtract", n, const(3)), i)
    places = [(before, j), (back, j), (at(at_, "i"), j), (j, i), (i, after)]
    body = (
        *[put(found, "i", "j", k, ir.Load(a, place, (0, 1))) for k, place in enumerate(places)],
        ir.Store(written, (j, after), ir.Load(a, (i, j)), (1,)),
        ir.Store(written, (apply("add", j, const(1)), back), ir.Load(a, (i, j)), (0, 1)),
    )
    clear = loop("p", "m", loop("q", "n", put(written, "p", "q", const(False if scalar == bool_ else 0, scalar))))
    factor = {"sequential": 1, "lanes": 8, "jam": 4}[kind]
    nest = loop("j", "m", loop("i", "n", *body, kind=kind, factor=factor))
    function = ir.Function("f", ("n", "m"), (a, at_), (found, written), (clear, nest))
    executable = compiled(function)
    for size, other in ((0, 3), (3, 0), (1, 1), (7, 2), (16, 20), (33, 5)):
        wild = np.random.default_rng(0).integers(-2 * size - 2, 2 * size + 2, size)
        compare(function, [values(scalar, (size, other)), wild], [size, other], executable)


def test_while() -> None:
    """The number of steps of the Collatz sequence from i + 1, for each i."""
    steps = ir.Buffer("steps", i64, (var("n"),))
    x, count = var("x"), var("count")
    odd = apply("equal", apply("remainder", x, const(2)), const(1))
    more = apply("add", apply("multiply", x, const(3)), const(1))
    body = (
        ir.Declare("x", apply("add", var("i"), const(1))),
        ir.Declare("count", const(0)),
        ir.While(
            (ir.Let("large", apply("less", const(1), x)),),
            var("large", bool_),
            (
                ir.If(odd, (ir.Assign("x", more),), (ir.Assign("x", apply("floor_divide", x, const(2))),)),
                ir.Assign("count", apply("add", count, const(1))),
            ),
        ),
        put(steps, "i", count),
    )
    for kind in ("sequential", "parallel"):
        function = ir.Function("f", ("n",), (), (steps,), (loop("i", "n", *body, kind=kind),))
        executable = compiled(function)
        for size in (0, 1, 97):
            compare(function, [], [size], executable)


def test_an_array_that_is_returned() -> None:
    """The function makes room for it, and the caller frees it."""
    n, count = var("n"), var("count")
    a, r = ir.Buffer("a", i64, (n,)), ir.Buffer("r", i64, (const(2), count))
    body = (
        ir.Let("count", at(a, 0)),
        ir.Allocate(r),
        loop("i", "count", put(r, 0, "i", var("i")), put(r, 1, "i", at(a, 0))),
        ir.Return(0, r),
    )
    function = ir.Function("f", ("n",), (a,), (), body, 1)
    executable = compiled(function)
    free = ctypes.CDLL(None).free
    for size in (0, 1, 1000):
        record = np.zeros(3, np.int64)
        assert call(executable, [np.array([size]), record], [1]) is None
        assert record[1:].tolist() == [2, size]
        found = np.frombuffer((ctypes.c_int64 * (2 * size)).from_address(int(record[0])), np.int64).reshape(2, size)
        assert (found == [np.arange(size), np.full(size, size)]).all()
        free(ctypes.c_void_p(int(record[0])))


def long_block(statements: int) -> ir.Function:
    """Straight-line code with near and far uses, mutable variables, temporaries, and memory taken on the way."""
    a, b = ir.Buffer("a", i64, (var("n"),)), ir.Buffer("b", i64, (var("n"),))
    chosen = np.random.default_rng(0).integers(0, 1 << 30, statements)
    twice = apply("add", var("n"), var("n"))
    body: list[ir.Statement] = [ir.Let("x0", at(a, 0)), ir.Declare("sum", const(0)), ir.Let("twice", twice)]
    for number in range(1, statements):
        far = var(f"x{chosen[number] % number}")
        near = var(f"x{number - 1}")
        body.append(ir.Let(f"x{number}", apply(("add", "subtract", "multiply")[number % 3], near, far)))
        if number % 50 == 0:
            body.append(ir.Assign("sum", apply("add", var("sum"), near)))
        if number % 400 == 0:
            extent = [var("twice"), apply("minimum", apply("abs", near), var("n"))][number % 800 == 0]
            t = ir.Buffer(f"t{number}", i64, (apply("add", extent, const(1)),))
            body.append(ir.Allocate(t))
            body.append(put(t, 0, near))
            body.append(loop("i", "n", put(b, "i", apply("add", at(t, 0), var("sum"))), kind="lanes", factor=8))
            body.append(
                loop("i", "n", ir.If(apply("less", var("i"), const(3)), (put(b, "i", far),), ()), kind="parallel")
            )
    return ir.Function("long", ("n",), (a,), (b,), tuple(body))


@pytest.mark.rest
@pytest.mark.unguarded
def test_long_blocks_are_cut_into_functions() -> None:
    function = long_block(3000)
    assert emitted(function).count("@piece.") > 6
    compare(function, [values(i64, 20)], [20], compiled(function))


def test_loops_with_the_same_code_are_one_function() -> None:
    """Whatever their buffers; not so with another constant, or where a loop reads what it writes."""
    a, b, c = (ir.Buffer(name, f64, (var("n"),)) for name in "abc")

    def scaled(variable: str, to: ir.Buffer, source: ir.Buffer, factor: float) -> ir.For:
        product = apply("multiply", at(source, variable), const(factor, f64))
        return loop(variable, "n", put(to, variable, product), kind="parallel")

    body = scaled("i1", b, a, 2.0), scaled("i22", c, b, 2.0), scaled("i3", c, c, 2.0), scaled("i4", c, c, 3.0)
    for many, functions in ((1, 1), (2, 1), (3, 2), (4, 3)):
        function = ir.Function("f", ("n",), (a,), (b, c), body[:many])
        assert emitted(function).count("define hidden void @parallel.") == functions
        compare(function, [values(f64, 20)], [20], compiled(function))


def test_nothing_is_computed_twice_in_a_block() -> None:
    """Nor what the first block computed; but what another block did may not have been computed."""
    body = Body()
    size = body.multiply("%n", "8")
    body.label("one")
    inside = body.add("%i", "1")
    assert [body.multiply("%n", "8"), body.add("%i", "1")] == [size, inside] != [inside, size]
    loads = [body.value("load i64, ptr %x") for _ in range(2)]
    assert loads[0] != loads[1]
    body.label("two")
    assert body.multiply("%n", "8") == size and body.add("%i", "1") != inside
    assert str(body).count("mul") == 1 and str(body).count("add") == 2


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 21])
def test_the_rest_of_strips_of_one_register_is_no_loop(n: int) -> None:
    a, b = ir.Buffer("a", f64, (var("n"),)), ir.Buffer("b", f64, (var("n"),))
    register = host().target.register_bytes // 8
    body = loop("i", "n", put(b, "i", apply("add", at(a, "i"), const(1, f64))), kind="lanes", factor=register)
    for factor, loops in ((register, 1), (2 * register, 2)):
        function = ir.Function("f", ("n",), (a,), (b,), (replace(body, factor=factor),))
        assert emitted(function).count("phi i64") == loops
        compare(function, [values(f64, n)], [n], compiled(function))


@pytest.mark.rest
@pytest.mark.unguarded
def test_long_code_that_only_prepares_is_not_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and calls of parallel loops, and an element; not so where it is short, repeats something, or moves many.

    It is in a module of its own, which is not optimised either.
    """
    monkeypatch.setattr("adze.backends.llvm.text._SMALL", 0)
    a, b = ir.Buffer("a", f64, (var("n"),)), ir.Buffer("b", f64, (var("n"),))

    def grain(number: int) -> ir.Expression:
        return apply("add", apply("multiply", var("n"), var("n")), const(number))

    def parallel(number: int) -> ir.For:
        body = put(b, "i", apply("add", at(a, "i"), const(number, f64)))
        return replace(loop("i", "n", body, kind="parallel"), grain=grain(number))

    many = tuple([parallel(number) for number in range(30)])
    elements = tuple([put(b, const(place % 20), const(place, f64)) for place in range(100)])
    cases = (
        (many, True),
        ((*many, elements[-1]), True),
        (many[:1], False),
        ((loop("j", "n", *many),), False),
        ((*many, *elements), False),
    )
    for body, glue in cases:
        function = ir.Function("f", ("n",), (a,), (b,), body)
        (head,) = [line for line in emitted(function).splitlines() if line.startswith("define i64 @entry")]
        (part,) = [part for part in emit(function, host()).parts() if "define i64 @entry" in part]
        assert ("optnone" in head) == part.startswith(UNOPTIMISED) == glue
        compare(function, [values(f64, 20)], [20], compiled(function))


# Reductions


@pytest.mark.unguarded
@pytest.mark.parametrize("scalar", [f64, f32, i64, i32], ids=str)
@pytest.mark.parametrize("name", ["add", "maximum", "multiply"])
def test_reductions(scalar: Scalar, name: str) -> None:
    n = var("n")
    a, b = ir.Buffer("a", scalar, (var("m"), n)), ir.Buffer("b", scalar, (var("m"),))
    lowest = -math.inf if scalar.kind == "float" else -(2 ** (scalar.bits - 1))
    neutral = const({"add": 0, "multiply": 1}.get(name, lowest), scalar)
    total = var("t", scalar)
    inner = loop(
        "i",
        "n",
        ir.Assign("t", apply(name, total, at(a, "k", "i"))),
        kind="lanes",
        factor=16,
        reductions=(ir.Reduction("t", lookup(name), neutral),),
    )
    for kind, factor in (("sequential", 1), ("parallel", 1), ("jam", 3)):
        body = loop("k", "m", ir.Declare("t", const(1, scalar)), inner, put(b, "k", total), kind=kind, factor=factor)
        function = ir.Function("f", ("n", "m"), (a,), (b,), (body,))
        executable = compiled(function)
        for size in SIZES:
            numbers = values(scalar, (4, size), size)
            if name == "multiply":
                numbers = np.sign(numbers) + (numbers == 0)
            compare(function, [numbers.astype(scalar.dtype)], [size, 4], executable)


def test_a_dot_product_and_a_conditional_count_in_one_loop() -> None:
    n = var("n")
    a, b, dot, count = (
        ir.Buffer("a", f64, (n,)),
        ir.Buffer("b", f64, (n,)),
        ir.Buffer("dot", f64, ()),
        ir.Buffer("count", i64, ()),
    )
    positive = apply("greater", at(a, "i"), const(0.0, f64))
    body = loop(
        "i",
        "n",
        ir.Assign("d", fma(at(a, "i"), at(b, "i"), var("d", f64))),
        ir.Assign("c", ir.Select(positive, apply("add", var("c"), const(1)), var("c"), i64)),
        kind="lanes",
        factor=32,
        reductions=(ir.Reduction("d", lookup("add"), const(0.0, f64)), ir.Reduction("c", lookup("add"), const(0))),
    )
    function = ir.Function(
        "f",
        ("n",),
        (a, b),
        (dot, count),
        (
            ir.Declare("d", const(0.0, f64)),
            ir.Declare("c", const(0)),
            body,
            put(dot, var("d", f64)),
            put(count, var("c")),
        ),
    )
    executable = compiled(function)
    for size in SIZES:
        compare(function, [values(f64, size, 1), values(f64, size, 2)], [size], executable)


# Primitives


def spread(function_name: str, scalar: Scalar, arity: int, kind: str) -> ir.Function:
    """An elementwise function in a loop of a kind."""
    n = var("n")
    arguments = tuple(ir.Buffer(f"x{number}", scalar, (n,)) for number in range(arity))
    value = apply(function_name, *(at(each, "i") for each in arguments))
    y = ir.Buffer("y", value.type, (n,))
    factor = 32 if kind == "lanes" else 1
    return ir.Function("f", ("n",), arguments, (y,), (loop("i", "n", put(y, "i", value), kind=kind, factor=factor),))


@pytest.mark.unguarded
@pytest.mark.parametrize("scalar", [f64, f32], ids=str)
@pytest.mark.parametrize("name", ["exp", "log", "expm1", "log1p", "sin", "cos", "tanh", "power", "lgamma", "sqrt"])
def test_mathematical_functions(name: str, scalar: Scalar) -> None:
    """Within a few units of NumPy's, and the same for a value in whole strips, in tails and alone."""
    arity = lookup(name).arity
    x = np.linspace(0.01, 8, 100).astype(scalar.dtype)
    arguments = [x, x[::-1].copy()][:arity]
    wanted = lookup(name).numpy(*(each.astype(np.float64) for each in arguments))
    lanes, alone = compiled(spread(name, scalar, arity, "lanes")), compiled(spread(name, scalar, arity, "sequential"))
    whole = np.empty(100, scalar.dtype)
    assert call(lanes, [*arguments, whole], [100]) is None
    near = dict(rtol=4 * np.finfo(scalar.dtype).eps, atol=1e-6 if name == "lgamma" else 0)
    np.testing.assert_allclose(whole, wanted, **near)
    scalars = np.empty(100, scalar.dtype)
    assert call(alone, [*arguments, scalars], [100]) is None
    np.testing.assert_array_equal(scalars, whole)
    for start, size in ((0, 1), (3, 7), (5, 33), (90, 10)):
        part = np.empty(size, scalar.dtype)
        call(lanes, [*(each[start : start + size].copy() for each in arguments), part], [size])
        np.testing.assert_array_equal(part, whole[start : start + size])


def test_vector_routines_are_called_where_the_machine_has_them() -> None:
    if host().routine("atan", f64, 1) is None:
        pytest.skip("no vector mathematics here")
    text = emitted(spread("atan", f64, 1, "lanes"))
    assert "_ZGV" in text and "@atan(" not in text
    alone = emitted(spread("atan", f64, 1, "sequential"))
    assert "_ZGV" in alone and "@atan(" not in alone  # so that a scalar has the same bits
    assert "atan.by." not in text and "lgamma.by.32" in emitted(spread("lgamma", f64, 1, "lanes"))


@pytest.mark.unguarded
@pytest.mark.parametrize("source", SCALARS.values(), ids=str)
@pytest.mark.parametrize("target", SCALARS.values(), ids=str)
def test_conversions(source: Scalar, target: Scalar) -> None:
    numbers = np.arange(-9, 10)
    x = (numbers / 4 if source.kind == "float" else numbers).astype(source.dtype)
    for kind in ("lanes", "sequential"):
        function = spread(target.name, source, 1, kind)
        compare(function, [x], [len(x)], compiled(function))


def test_what_no_integer_holds_converts_to_the_nearest() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 2.0**63, -(2.0**63), 2.0**31, -(2.0**31) - 0.5, 5.9])
    whole = {i64: [2**31, -(2**31), 5], i32: [2**31 - 1, -(2**31), 5], u8: [255, 0, 5], u64: [2**31, 0, 5]}
    for target in whole:
        for kind in ("lanes", "sequential"):
            y = np.zeros(len(x), target.dtype)
            call(compiled(spread(target.name, f64, 1, kind)), [x, y], [len(x)])
            high = min(2**63, target.most)
            assert y.tolist() == [0, *[target.most, target.least] * 2, high, target.least, *whole[target]]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "minimum", "maximum", "less", "equal"])
def test_special_values(name: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 1.7e308])
    x, y = (each.ravel().copy() for each in np.meshgrid(special, special))
    for kind in ("lanes", "sequential"):
        function = spread(name, f64, 2, kind)
        compare(function, [x, y], [len(x)], compiled(function))


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("scalar", [i64, i32, u8, u64], ids=str)
def test_integer_division_is_total(name: str, scalar: Scalar) -> None:
    special = np.array([0, 1, -1, 7, -7, 2, -2, scalar.most % 2**63, scalar.least]).astype(scalar.dtype)
    x, y = (each.ravel().copy() for each in np.meshgrid(special, special))
    for kind in ("lanes", "sequential"):
        function = spread(name, scalar, 2, kind)
        compare(function, [x, y], [len(x)], compiled(function))


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize(("kind", "factor"), [("lanes", 4), ("sequential", 1), ("jam", 4)])
def test_integer_division_by_constants_is_total(name: str, kind: str, factor: int) -> None:
    x = np.array([0, 1, -1, 7, -7, 8, -8, 9, -9, 2**62, -(2**62), 2**63 - 1, -(2**63 - 1), -(2**63)])
    divisors = [1, 2, 3, 7, 8, 2**40, 2**62, 2**63 - 1, 0, -1, -8, -(2**63)]
    a, b = ir.Buffer("a", i64, (var("n"),)), ir.Buffer("b", i64, (const(len(divisors)), var("n")))
    body = [put(b, row, "i", apply(name, at(a, "i"), const(divisor))) for row, divisor in enumerate(divisors)]
    function = ir.Function("f", ("n",), (a,), (b,), (loop("i", "n", *body, kind=kind, factor=factor),))
    compare(function, [x], [len(x)], compiled(function))


def test_a_machine_without_vector_mathematics_calls_lane_by_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "routine", lambda *_: None)
    x, y, z = np.linspace(0.1, 2, 45), np.empty(45), np.empty(45)
    function = spread("power", f64, 2, "lanes")
    call(compiled(function), [x, x, y], [45])
    call(compiled(spread("power", f64, 2, "sequential")), [x, x, z], [45])
    np.testing.assert_array_equal(y, z)


def test_constants_wrap_like_registers() -> None:
    large = const(2**62)
    b = ir.Buffer("b", i64, (const(3),))
    body = (put(b, 0, apply("add", large, large)), put(b, 1, apply("multiply", large, const(6))))
    body += (put(b, 2, apply("subtract", const(-(2**63)), const(1))),)
    compare(ir.Function("f", (), (), (b,), body), [], [], compiled(ir.Function("f", (), (), (b,), body)))


# Random functions


@pytest.mark.unguarded
@pytest.mark.parametrize("seed", [*range(10), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 40)]])
def test_random_nests(seed: int) -> None:
    function = Draw(seed).function()
    executable = compiled(function)
    for n, m in ((1, 1), (3, 33), (9, 7), (32, 5)):
        where = np.random.default_rng(seed).integers(0, n, n)
        arguments = [where, values(f64, (n, m), seed), values(i64, m, seed)]
        compare(function, arguments, [n, m], executable)


# Failures, threads, processes


def test_a_failed_requirement_is_recorded_and_ends_the_loop() -> None:
    n = var("n")
    a, b = ir.Buffer("a", i64, (n,)), ir.Buffer("b", i64, (n,))
    inside = apply("less", at(a, "i"), n)
    for kind in ("sequential", "parallel"):
        body = loop("i", "n", ir.Require(inside, 7, (at(a, "i"), n)), put(b, "i", at(a, "i")), kind=kind)
        executable = compiled(ir.Function("f", ("n",), (a,), (b,), (body,)))
        x, y = np.arange(300), np.zeros(300, np.int64)
        assert call(executable, [x, y], [300], 2) is None
        x[137] = 1000
        assert call(executable, [x, y], [300], 2) == Failure(7, (1000, 300, 0, 0))
        assert y[137] == 137  # as the call before has left it
        y[:] = 0
        assert call(executable, [x, y], [300], 1) == Failure(7, (1000, 300, 0, 0))
        assert y[137] == 0 and (kind == "parallel" or not y[138:].any())
        assert call(executable, [np.arange(300), y], [300], 2) is None


def chain(scalar: Scalar = f64) -> ir.Function:
    """A parallel loop with a private temporary and a reduction: what may go wrong between threads."""
    n, m = var("n"), var("m")
    a, b, t = ir.Buffer("a", scalar, (n, m)), ir.Buffer("b", scalar, (n,)), ir.Buffer("t", scalar, (m,))
    total = var("s", scalar)
    body = (
        ir.Allocate(t),
        loop("j", "m", put(t, "j", apply("sin", at(a, "i", "j"))), kind="lanes", factor=16),
        ir.Declare("s", const(0.0, scalar)),
        loop(
            "j",
            "m",
            ir.Assign("s", apply("add", total, at(t, "j"))),
            kind="lanes",
            factor=16,
            reductions=(ir.Reduction("s", lookup("add"), const(0.0, scalar)),),
        ),
        put(b, "i", total),
    )
    return ir.Function("chain", ("n", "m"), (a,), (b,), (loop("i", "n", *body, kind="parallel", grain=const(2)),))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    executable = compiled(chain())
    x = np.random.default_rng(0).normal(size=(500, 41))
    found = []
    for threads in (1, 2, 7, 3, 1):
        for _ in range(20):
            y = np.empty(500)
            call(executable, [x, y], [500, 41], threads)
            found.append(y.tobytes())
    assert len(set(found)) == 1


def test_one_program_called_from_many_threads_at_once() -> None:
    executable = compiled(chain())
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(200 + seed, 30))
        first = np.empty(len(x))
        call(executable, [x, first], [len(x), 30], 1)
        for repeat in range(100):
            y = np.empty(len(x))
            call(executable, [x, y], [len(x), 30], 1 + repeat % 4)
            if y.tobytes() != first.tobytes():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    look = runtime.default_threads.__wrapped__
    monkeypatch.setenv("ADZE_THREADS", "3")
    assert look() == 3
    monkeypatch.setenv("ADZE_THREADS", "")
    assert look() == runtime.cpus() >= 1
    for wrong in ("0", "many"):
        monkeypatch.setenv("ADZE_THREADS", wrong)
        with pytest.raises(ValueError, match="ADZE_THREADS must be a positive integer"):
            look()


def _in_child(executable: Executable, x: np.ndarray, answer: Any) -> None:
    y = np.empty(len(x))
    call(executable, [x, y], [len(x), x.shape[1]], 2)
    answer.put(y.tobytes())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_its_own_threads() -> None:
    executable = compiled(chain())
    x, y = np.random.default_rng(0).normal(size=(300, 20)), np.empty(300)
    call(executable, [x, y], [300, 20], 2)
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=_in_child, args=(executable, x, answer))
    child.start()
    assert answer.get(timeout=60) == y.tobytes()
    child.join(60)
    assert child.exitcode == 0


def printed_by(program: str) -> str:
    """What a program prints in a process of its own, which finds this module and its neighbours."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


_PROGRAM = """
import sys
import numpy as np
from test_llvm_emit import call, chain, compiled
executable = compiled(chain())
x, y = np.ones((400, 20)), np.empty(400)
call(executable, [x, y], [400, 20], 3)
print(y[0])
"""


_ON_ONE_CPU = """
import sys, time
import os
import numpy as np
from test_llvm_emit import call, chain, compiled
executable = compiled(chain())
x, y = np.ones((400, 20)), np.empty(400)
call(executable, [x, y], [400, 20], 1)  # which starts the thread that tells of signals
before, cpus = set(os.listdir("/proc/self/task")), os.sched_getaffinity(0)
call(executable, [x, y], [400, 20], 2)
[worker] = set(os.listdir("/proc/self/task")) - before
os.sched_setaffinity(int(worker), [min(cpus)])
until = time.monotonic() + 60
while os.sched_getaffinity(int(worker)) == {min(cpus)} and time.monotonic() < until:
    os.sched_setaffinity(0, [min(cpus)])
    os.sched_setaffinity(0, cpus)
    for _ in range(1000):
        call(executable, [x, y], [400, 20], 2)
assert os.sched_getaffinity(int(worker)) < cpus
assert os.sched_getaffinity(int(worker)) != {min(cpus)}
"""


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, and Linux")
def test_workers_leave_the_cpu_of_the_caller() -> None:
    printed_by(_ON_ONE_CPU)


_NOWHERE = """
import sys
import numpy as np
from adze.backends.llvm import assemble, pool
from test_llvm_emit import call, chain, compiled
link = pool.link
nowhere = link(assemble.compile_text("define i32 @nowhere() { ret i32 -1 }").machine_code, ["nowhere"])
pool.link = lambda code, names, imports: link(code, names, {**imports, "sched_getcpu": nowhere["nowhere"]})
executable = compiled(chain())
for _ in range(300):
    x, y = np.ones((400, 20)), np.empty(400)
    call(executable, [x, y], [400, 20], 3)
print(y[0])
"""


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_workers_stay_where_the_system_does_not_tell_the_cpu() -> None:
    assert float(printed_by(_NOWHERE)) == pytest.approx(20 * math.sin(1))


_AFTER_THE_MAIN_THREAD = """
import sys, threading
import numpy as np
from adze.backends.llvm import text
from test_llvm_emit import call, chain, compiled
text._SMALL = 0  # so that modules come in parts

def work():
    threading.main_thread().join()
    executable = compiled(chain())
    for _ in range(10):
        x, y = np.ones((400, 20)), np.empty(400)
        call(executable, [x, y], [400, 20], 3)
    sys.stdout.write(f"{y[0]}\\n")

for _ in range(6):
    threading.Thread(target=work).start()
"""


@pytest.mark.rest
def test_threads_compile_first_all_at_once_when_the_main_thread_has_ended() -> None:
    assert [float(each) for each in printed_by(_AFTER_THE_MAIN_THREAD).split()] == pytest.approx([20 * math.sin(1)] * 6)


@pytest.mark.rest
def test_the_interpreter_ends_while_workers_wait() -> None:
    for _ in range(3):
        assert float(printed_by(_PROGRAM)) == pytest.approx(20 * math.sin(1))


# What was generated


def test_code_can_be_linked_again_without_compiling() -> None:
    function = product(("i", "jam", 4), ("j", "lanes", 32))
    code = code_of(function)
    for _ in range(2):
        again = Executable(code.machine_code, is_parallel(function))
        compare(function, [values(f64, (9, 5)), values(f64, (5, 40))], [9, 40, 5], again)
    assert "define" in str(printed(code)) and "entry" in assembly(code) and "alloca" in code.parts[0]


@pytest.mark.parametrize("wrong", range(3))
def test_what_fails_in_either_thread_that_compiles_is_raised(wrong: int) -> None:
    parts = [f"define void @f{k}() {{ ret {'i32' if k == wrong else ''} void }}" for k in range(3)]
    with pytest.raises(RuntimeError, match="parsing error"):
        compile_each([parts])


def test_what_is_emitted_is_compiled_while_the_rest_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, object_of = threading.Event(), assemble._object

    def noticed(text: str, machine: Any) -> bytes:
        made = object_of(text, machine)
        compiled.set()
        return made

    def texts() -> Iterator[list[str]]:
        yield ["define void @f0() { ret void }", "define void @f1() { ret void }"]
        assert compiled.wait(60), "nothing is compiled before all is there"
        yield ["define void @f2() { ret void }"]

    monkeypatch.setattr(assemble, "_object", noticed)
    assert [len(code.parts) for code in compile_each(texts())] == [2, 1]


def test_what_is_made_beside_fails_again_when_it_is_asked_for() -> None:
    tried = []

    @runtime.once
    def broken() -> None:
        tried.append(threading.current_thread())
        raise ZeroDivisionError

    made = runtime.once(lambda: tried.append(threading.current_thread()))
    with runtime.beside([made, broken]):
        pass
    assert len(tried) == 2 and threading.current_thread() not in tried
    made()
    assert len(tried) == 2
    with pytest.raises(ZeroDivisionError):
        broken()


def test_what_fails_while_it_is_made_ends_the_other_thread() -> None:
    def texts() -> Iterator[list[str]]:
        yield ["define void @f0() { ret void }", "define void @f1() { ret void }"]
        raise ZeroDivisionError

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        compile_each(texts())
    assert threading.active_count() == before


def test_parts_of_a_module_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is internal, such as a function that is called once a lane, is in each part that calls it."""
    x, *ys = [ir.Buffer(name, f64, (var("n"),)) for name in "xyz"]
    values = [apply("lgamma", at(x, "i")), apply("negative", apply("lgamma", at(x, "i")))]
    loops = [loop("i", "n", put(y, "i", value), kind="lanes", factor=32) for y, value in zip(ys, values, strict=True)]
    body = tuple([loop("j", const(1), each, kind="parallel") for each in loops])
    function = ir.Function("f", ("n",), (x,), tuple(ys), body)
    whole, found = code_of(function), []
    monkeypatch.setattr("adze.backends.llvm.text._SMALL", 0)
    monkeypatch.setattr("adze.backends.llvm.text._LARGE", 0)
    parts = emit(function, host()).parts()
    assert [part.count("define internal <32 x double> @lgamma.by.32") for part in parts] == [1, 1, 0, 0, 0]
    split = code_of(function)
    assert len(split.parts) == 5 and str(printed(split)).count("define i64 @entry(") == 1
    for code in (whole, split):
        results = [np.zeros(77) for _ in ys]
        call(Executable(code.machine_code, is_parallel(function)), [np.linspace(0.1, 9, 77), *results], [77], 2)
        found.append(results)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0][0], [math.lgamma(each) for each in np.linspace(0.1, 9, 77)], rtol=1e-13)


def test_the_target_describes_one_core() -> None:
    target = host_target()
    assert target.lanes(f32) == 2 * target.lanes(f64) >= 2
    assert target.registers >= 16 and target.l2_bytes > target.l1_bytes > 0
