"""``ADZE_DEBUG=bounds``: what it finds in loops that are wrong, and that it finds nothing in what programs become."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_loops import apply, at, const, loop, put, var
from programs import CASES, Case
from programs.case import sampled
from random_loops import Draw
from random_programs import PARAMETERS, argument_lists, made, program_texts
from test_compile import assert_same
from test_derivatives import DIFFERENTIABLE, SINGLE, Point, assert_close, leaves
from test_llvm_emit import compare, values
from test_random_programs import squares

import adze as az
from adze.backends import ir
from adze.backends.llvm import bounds, unit
from adze.backends.llvm import outlining as regions
from adze.backends.llvm.host import host
from adze.backends.llvm.jit import Executable, compiled, is_parallel
from adze.backends.memory import arena as memory
from adze.core.types import f32, f64, i64

pytestmark = pytest.mark.unguarded

n, m, i, j = (var(name) for name in "nmij")
A, B, C = ir.Buffer("a", f64, (n,)), ir.Buffer("b", f64, (n, m)), ir.Buffer("c", i64, (n,))
ONE = const(1.0, f64)


def failed(*body: Any, size: int = 20, indices: Sequence[int] = (), threads: int = 1) -> tuple[str, list[int]] | None:
    """The array, and the axis, index and extent of the violation when a body is run with n = size and m = 3."""
    function = ir.Function("f", ("n", "m"), (A, C), (B,), body)
    ir.check(function)
    code = compiled(function, replace(host(), bounds=True))
    executable = Executable(code.machine_code, is_parallel(function), code.branches)
    wanted = np.zeros(size, np.int64)
    wanted[: len(indices)] = indices
    arrays = [np.zeros(size), wanted, np.zeros((size, 3))]
    found = executable.run([array.ctypes.data for array in arrays], [size, 3], threads)
    if found is None:
        return None
    assert found.site < 0
    error = bounds.error("f", bounds.arrays_of(function), found)
    assert "mistake of Adze, not of the program" in str(error)
    return bounds.arrays_of(function)[-3 - found.site], list(found.values[:3])


def plus(a: Any, b: int) -> Any:
    return apply("add", a, const(b))


@pytest.mark.parametrize("kind", ["sequential", "parallel", "lanes", "jam"])
@pytest.mark.parametrize("threads", [1, 2])
def test_reads_and_writes_beyond_an_extent(kind: str, threads: int) -> None:
    """Also in the tails of strips, whose lanes beyond the extent are off."""
    factor = {"lanes": 8, "jam": 2}.get(kind, 1)

    def run(index: Any, axis: int = 0, write: bool = False) -> Any:
        value = at(A, index) if axis == 0 and not write else ONE
        rest = put(B, "i", index, value) if axis else put(B, index, 0, value) if write else put(B, "i", 0, value)
        return failed(loop("i", "n", rest, kind=kind, factor=factor), threads=threads)

    assert run(i) is None
    assert run(plus(i, 1)) == ("a", [0, 20, 20])
    array, values = run(plus(i, -1)) or ("", [])
    assert (array, values) == ("a", [0, -1, 20])
    assert run(plus(i, 1), write=True) == ("b", [0, 20, 20])
    array, (axis, index, extent) = run(apply("floor_divide", i, const(5)), axis=1) or ("", [0, 0, 0])
    assert (array, axis, index, extent) == ("b", 1, 3, 3)


@pytest.mark.parametrize("wrong", [-1, 20, 2**40, -(2**63)])
def test_gathers_and_scatters(wrong: int) -> None:
    indices = [3, 2, 19, 0, 5, 6, 7, 8, 1, wrong]
    gather = loop("i", "n", put(B, "i", 0, at(A, at(C, "i"))), kind="lanes", factor=8)
    scatter = loop("i", "n", put(B, at(C, "i"), 1, ONE), kind="lanes", factor=4)
    assert failed(gather, indices=indices) == ("a", [0, wrong, 20])
    assert failed(scatter, indices=indices) == ("b", [0, wrong, 20])
    assert failed(gather, scatter, indices=indices[:-1]) is None
    clamped = replace(at(A, at(C, "i")), guarded=(0,))
    assert failed(loop("i", "n", put(B, "i", 0, clamped), kind="lanes", factor=8), indices=indices) is None
    within = apply("less", i, const(9))
    guarded = loop("i", "n", ir.If(within, (put(B, "i", 0, at(A, at(C, "i"))),), ()))
    assert failed(guarded, indices=indices) is None


def test_temporaries() -> None:
    """Those of a known size, of one that the run decides, and one that is too small for a row."""
    fixed, loose = ir.Buffer("t", f32, (n, const(2))), ir.Buffer("u", f64, (var("k"),))
    store = ir.Store(fixed, (i, j), const(0.0, f32))
    assert failed(ir.Allocate(fixed), loop("i", "n", loop("j", const(2), store))) is None
    assert failed(ir.Allocate(fixed), loop("i", "n", loop("j", const(3), store))) == ("t", [1, 2, 2])
    body = ir.Let("k", at(C, 0)), ir.Allocate(loose), loop("i", "n", put(loose, "i", ONE))
    assert failed(*body, indices=[20]) is None
    assert failed(*body, indices=[19]) == ("u", [0, 19, 19])
    inner = loop("i", "n", ir.Allocate(fixed), put(fixed, "i", const(2), const(0.0, f32)), kind="parallel")
    assert failed(inner, threads=2) == ("t", [1, 2, 2])


def test_the_run_ends_there() -> None:
    """A loop that waits for what is never read goes no further, nor do loops on several threads."""
    forever = ir.While((), apply("less", at(A, "n"), ONE), ())
    assert failed(ir.Declare("x", n), forever) == ("a", [0, 20, 20])
    later = put(B, 0, 0, at(A, "n")), ir.Assign("x", n), loop("i", "n", put(B, "i", 3, ONE), kind="parallel")
    assert failed(ir.Declare("x", n), *later, threads=2) == ("a", [0, 20, 20])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["sequential", "parallel"])
def test_canaries(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that is planned too small for its array: each access is in the array, and yet outside of its memory."""
    t = ir.Buffer("t", f64, (const(40),))
    body = loop("j", const(4), ir.Allocate(t), loop("i", const(40), put(t, "i", ONE)), kind=kind)
    assert failed(body, threads=threads) is None

    def plan(function: ir.Function, reuse: bool) -> memory.Plan:
        made = memory.plan(function, reuse)
        small = [replace(slot, like=replace(slot.like, extents=(const(39),))) for slot in made.slots]
        return replace(made, slots=tuple(small))

    monkeypatch.setattr(unit, "plan", plan)
    assert failed(body, threads=threads) == ("t", [bounds.NEITHER, 0, 0])


def test_what_is_not_written_is_nan() -> None:
    t, result = ir.Buffer("t", f64, (n,)), ir.Buffer("b", f64, (n, m))
    function = ir.Function(
        "f", ("n", "m"), (), (result,), (ir.Allocate(t), put(result, 0, 0, at(t, 5)), put(result, 0, 1, ONE))
    )
    code = compiled(function, replace(host(), bounds=True))
    found = np.zeros((6, 3))
    assert Executable(code.machine_code, False).run([found.ctypes.data], [6, 3], 1) is None
    assert found[0, 1] == 1 and np.isnan(found).sum() == 17


# What programs become


@contextmanager
def checked(pieces: bool = False) -> Iterator[None]:
    """What is compiled inside checks its memory; ``pieces``: and is cut into small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADZE_DEBUG", "bounds")
        if pieces:
            patch.setattr(regions, "_LONG", 1)
            patch.setattr(regions, "_PIECE", 8)
        yield


SMALL = {"strip": 2, "copies": 2}  # so that small arrays take whole strips


@pytest.mark.unguarded
@sampled(CASES, 40, long=4)
def test_every_program(case: Case) -> None:
    with checked():
        compiled = az.compile(case.program, threads=2)
        for arguments in case.arguments:
            assert_same(compiled(*arguments), az.evaluate(case.program)(*arguments))


@pytest.mark.unguarded
@sampled(DIFFERENTIABLE, 40, long=4)
def test_every_derivative(case: Case) -> None:
    point = Point(case)
    arguments, program = (*point.arguments, point.cotangent), az.vjp(case.program)
    wanted = az.evaluate(program)(*arguments)
    for options in {}, SMALL:
        with checked(pieces=not options):
            found = az.compile(az.vjp(case.program), threads=2, schedule=options)(*arguments)
        assert_close(leaves(found), leaves(wanted), 1e-5 if case.name in SINGLE else 1e-12)


@pytest.mark.slow
@settings(max_examples=60)
@given(program_texts(depth=3), argument_lists(), st.booleans(), st.booleans())
def test_random_programs(text: str, arguments: tuple[Any, ...], small: bool, gradient: bool) -> None:
    program = made(text)
    if gradient:
        program = az.grad(squares(program), argnums=tuple(range(len(PARAMETERS) - 1)))
    with checked(), np.errstate(all="ignore"):
        az.compile(program, threads=2, schedule=SMALL if small else None)(*arguments)


@pytest.mark.unguarded
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30)]])
def test_random_loops(seed: int) -> None:
    """Code of nests of every kind leaves alone what is not its own, in the tails of strips, too."""
    function = Draw(seed).function()
    code = compiled(function, replace(host(), bounds=True))
    executable = Executable(code.machine_code, is_parallel(function), code.branches)
    for rows, columns in ((1, 1), (3, 33), (9, 7), (32, 5)):
        where = np.random.default_rng(seed).integers(0, rows, rows)
        arguments = [where, values(f64, (rows, columns), seed), values(i64, columns, seed)]
        compare(function, arguments, [rows, columns], executable)


# In use


def twice(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    return x + x


@pytest.mark.parametrize("wrong", [-1, 5, 6, 2**40, -(2**62)])
@pytest.mark.parametrize("threads", [1, 2])
def test_parts_of_arrays_at_wrong_indices_are_clamped(wrong: int, threads: int) -> None:
    """Code runs on after a failure, and reads parts of the array; the failure is what the caller sees."""

    @az.program
    def product(xs: az.Array[az.f64, "n 2 2"], k: az.Array[az.i64, "m"]) -> Any:
        return az.reduce(lambda a, b: a @ b, az.eye(2), az.map(lambda i: xs[i], k))

    xs, k = np.full((5, 2, 2), 0.5), np.arange(9) % 5
    with checked():
        compiled = az.compile(product, threads=threads)
        assert_same(compiled(xs, k), az.evaluate(product)(xs, k))
        k[7] = wrong
        with pytest.raises(IndexError, match=f"index {wrong} "):
            compiled(xs, k)


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at by ``az.compile``, and code that checks is other code than code that does not."""
    program = az.program(twice)
    plain = az.compile(program)
    monkeypatch.setenv("ADZE_DEBUG", " bounds, ")
    checked = az.compile(program)
    assert "@outside" in checked.llvm_ir and "@outside" not in plain.llvm_ir
    assert_same(checked(np.ones(70)), plain(np.ones(70)), exact=True)
    monkeypatch.setenv("ADZE_DEBUG", "bound")
    with pytest.raises(ValueError, match="ADZE_DEBUG knows no 'bound'; it takes bounds, unoptimised"):
        az.compile(program)


@pytest.mark.rest
def test_code_that_is_not_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the module as emitted, in branches and in code that checks itself, too, and gives the same."""

    def products(a: az.Array[az.f64, "n m"], k: az.i64) -> az.Array[az.f64, "n n"]:
        return az.cond(k > 0, lambda: a @ a.T, lambda: az.sort(a) @ a.T)

    program, a = az.program(products), np.random.default_rng(0).standard_normal((40, 30))
    plain = az.compile(program)
    for debug in ("unoptimised", "bounds,unoptimised"):
        monkeypatch.setenv("ADZE_DEBUG", debug)
        emitted = az.compile(program)
        assert "alloca" in emitted.llvm_ir and ("@outside" in emitted.llvm_ir) == ("bounds" in debug)
        assert len(emitted.assembly) > len(plain.assembly)
        for k in (0, 1):
            assert_same(emitted(a, k), plain(a, k), exact=False)


def test_a_violation_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extents of a call's frame are made wrong: the program is right, so there is no other way."""
    monkeypatch.setenv("ADZE_DEBUG", "bounds")
    monkeypatch.setattr(regions.Function, "room_along", lambda self, extent: "5")
    with pytest.raises(bounds.OutOfBounds, match=r"twice: index \d is outside of axis 0 of x1, whose extent is 9") as e:
        az.compile(az.program(twice))(np.ones(9))
    assert "please report it" in str(e.value) and "test_bounds.py" in str(e.value)
