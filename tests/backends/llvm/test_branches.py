"""Branches that sizes decide are compiled when a call takes them, and give what code made at once gives."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plain_loops
import pytest
from plain_loops import apply, at, const, loop, put, var

import adze as az
from adze.backends import ir, multiversioning
from adze.backends.llvm import jit
from adze.backends.llvm import outlining as regions
from adze.backends.llvm.assemble import assembly
from adze.backends.llvm.branches import SHORT
from adze.backends.llvm.emit import emit
from adze.backends.llvm.host import host, host_target
from adze.backends.llvm.jit import Branch, Executable, Later, digest_of, is_parallel
from adze.backends.llvm.jit import compiled as code_of
from adze.backends.llvm.text import SCALARS, Module
from adze.backends.llvm.unit import Unit
from adze.backends.pipeline import forms_of, loops_of
from adze.core.program import instance_of
from adze.core.types import bool_, f64

pytestmark = pytest.mark.unguarded

N, M = var("n"), var("m")
X, Y = ir.Buffer("x", f64, (N,)), ir.Buffer("y", f64, (N,))


def pass_over(factor: float, variable: str = "i", kind: str = "parallel") -> ir.Block:
    """A nest with a weight: y = factor * x, with statements that make it long enough."""
    names = [f"{variable}{k}" for k in range(SHORT)]
    lets = [ir.Let(name, apply("multiply", at(X, variable), const(factor, f64))) for name in names]
    return (loop(variable, "n", *lets, put(Y, variable, var(names[0], f64)), kind=kind),)


def short_of(limit: int, size: str = "n") -> ir.Expression:
    return apply("less", var(size), const(limit))


def function(*body: Any, sizes: Sequence[str] = ("n",)) -> ir.Function:
    made = ir.Function("f", tuple(sizes), (X,), (Y,), body)
    ir.check(made)
    return made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many branches were compiled, each time some were."""
    counts: list[int] = []
    compile_each = jit.compile_each

    def counted(texts: Iterable[Sequence[str]]) -> Any:
        there = list(texts)
        if branches := sum(any(" @branch." in line for line in heads_of(parts)) for parts in there):
            counts.append(branches)
        return compile_each(there)

    monkeypatch.setattr(jit, "compile_each", counted)
    return counts


def heads_of(parts: Sequence[str]) -> Iterable[str]:
    """The first lines of the functions that a module defines."""
    return [line for part in parts for line in part.splitlines() if line.startswith("define ")]


def run(executable: Executable, made: ir.Function, *sizes: int) -> None:
    """The same as the plain run of the loops."""
    x = np.linspace(-1.0, 1.0, sizes[0])
    wanted, found = np.zeros_like(x), np.zeros_like(x)
    plain_loops.run(made, [x, wanted], list(sizes))
    for threads in (1, 2):
        assert executable.run([x.ctypes.data, found.ctypes.data], list(sizes), threads) is None
        np.testing.assert_array_equal(found, wanted)


def test_each_branch_is_compiled_when_it_is_taken(compiled: list[int]) -> None:
    made = function(ir.If(short_of(10), pass_over(2.0), pass_over(3.0)))
    code, kept = code_of(made), list[dict[str, Branch]]()
    executable = Executable(code.machine_code, is_parallel(made), code.branches, lambda each: kept.append(dict(each)))
    assert len(code.branches) == 2 and compiled == []
    for n, times in ((3, 1), (9, 1), (0, 1), (10, 2), (11, 2), (3, 2)):
        run(executable, made, n)
        assert compiled == [1] * times
    assert [sum(isinstance(each, bytes) for each in branches.values()) for branches in kept] == [1, 2]
    again = Executable(code.machine_code, is_parallel(made), kept[-1])
    for n in (3, 10):
        run(again, made, n)
    assert compiled == [1, 1]


@pytest.mark.parametrize(("n", "taken"), [(3, "branch.0"), (10, "branch.1")])
def test_what_the_first_call_takes_is_compiled_beside_the_rest(compiled: list[int], n: int, taken: str) -> None:
    made = function(ir.If(short_of(10), pass_over(2.0), pass_over(3.0)))
    code = code_of(made, sizes=[n])
    assert list(code.first) == [taken] and code.first[taken].machine_code and compiled == [1]
    executable = Executable(code.machine_code, is_parallel(made), {**code.branches, **code.first})
    run(executable, made, n)
    assert compiled == [1] and executable.made[taken] == ("compiled", pytest.approx(code.first[taken].seconds, abs=0.1))
    run(executable, made, 13 - n)
    assert compiled == [1, 1]


def test_branches_inside_of_branches_and_loops(compiled: list[int]) -> None:
    """Of what is inside, only what is taken with what is around it is needed; variables around are seen and set."""
    total = var("s", f64)
    inner = ir.If(short_of(5, "m"), (*pass_over(2.0), ir.Let("a", const(1))), pass_over(3.0))
    outer = ir.If(short_of(10), (inner, *pass_over(0.5, "k", "sequential")), pass_over(5.0))
    more = loop("j", "n", put(Y, "j", apply("add", at(Y, "j"), total)))
    half = ir.Let("half", apply("floor_divide", N, const(2)))
    late = ir.If(apply("less", var("half"), M), pass_over(7.0, "l"), pass_over(9.0, "l"))
    made = function(half, ir.Declare("s", const(0.25, f64)), outer, loop("t", 2, late), more, sizes=("n", "m"))
    code = code_of(made)
    executable = Executable(code.machine_code, is_parallel(made), code.branches)
    assert len(code.branches) == 6
    counts = []
    for n, m in ((3, 2), (3, 8), (20, 2), (20, 30), (3, 1), (0, 0)):
        run(executable, made, n, m)
        counts.append(sum(compiled))
    assert counts == [3, 4, 6, 6, 6, 6]


def test_what_stays_where_it_is() -> None:
    """Short branches, those that data decides, and those inside parallel loops."""
    data = ir.Let("d", apply("less", at(X, 0), const(1.0, f64)))
    for body in (
        (ir.If(short_of(10), (loop("i", "n", put(Y, "i", at(X, "i"))),), ()),),
        (data, ir.If(var("d", bool_), pass_over(2.0), ())),
        (loop("i", "n", ir.If(short_of(10), (put(Y, "i", at(X, "i")),) * 12, ()), kind="parallel"),),
        (loop("j", "n", ir.If(apply("less", var("j"), const(3)), pass_over(2.0), ())),),
    ):
        assert Unit(ir.Function("f", ("n",), (X,), (Y,), body), host()).branches.tests == []


def test_branches_that_differ_in_names_alone_are_one(compiled: list[int]) -> None:
    """It is there when a call takes it at any of its places, with all that is a branch inside."""
    half = ir.Buffer("half", f64, (N,))

    def scaled(target: ir.Buffer, source: ir.Buffer, test: ir.Expression, i: str, inner: float = 2.0) -> ir.If:
        def pass_from(factor: float, j: str) -> ir.For:
            lets = [ir.Let(f"{j}{k}", apply("multiply", at(source, j), const(factor, f64))) for k in range(SHORT)]
            return loop(j, "n", *lets, put(target, j, var(f"{j}0", f64)), kind="parallel")

        both = ir.If(apply("less", N, const(6)), (pass_from(inner, i),), (pass_from(3.0, f"{i}_"),))
        return ir.If(test, (both,), ())

    first = ir.Allocate(half), scaled(half, X, N >= 0, "i"), scaled(Y, half, short_of(10, "m"), "k")
    made = function(*first, sizes=("n", "m"))
    code = code_of(made)
    assert len(code.branches) == 3  # what is around, and the two inside
    executable = Executable(code.machine_code, True, code.branches)
    for n, m in ((4, 2), (4, 20), (7, 20), (7, 2)):
        run(executable, made, n, m)
    assert sum(compiled) == 3
    for test in (short_of(10, "m"), short_of(5, "m")):  # taken at either place, at both, or at none
        made = function(ir.Allocate(half), scaled(half, X, ~test, "i"), scaled(Y, X, test, "k"), sizes=("n", "m"))
        for n, m in ((4, 2), (4, 20), (7, 7)):
            code = code_of(made)
            run(Executable(code.machine_code, True, code.branches), made, n, m)
    unlike = function(*first[:2], scaled(Y, half, short_of(10, "m"), "k", 5.0), sizes=("n", "m"))
    assert len(code_of(unlike).branches) == 5


def test_one_branch_at_two_places_is_one() -> None:
    twice = ir.If(short_of(10), pass_over(2.0, "k", "sequential"), ())
    made = function(twice, twice)
    code = code_of(made)
    assert len(code.branches) == 1
    for n in (4, 20):
        run(Executable(code.machine_code, False, code.branches), made, n)


@pytest.mark.rest
def test_there_may_be_any_number_of_branches() -> None:
    body = [ir.If(short_of(10 + k), pass_over(2.0 + k, f"k{k}_"), ()) for k in range(100)]
    made = function(*body)
    code = code_of(made)
    assert len(code.branches) == 100
    executable = Executable(code.machine_code, True, code.branches)
    for n in (20, 95, 0, 200):
        run(executable, made, n)


@az.program
def squares(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.f64:
    return az.sum((a @ b) ** 2)


@pytest.mark.rest
def test_programs_take_all_sizes_and_are_kept_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[int]
) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path))
    for _ in range(2):
        gradient = az.compile(az.grad(az.program(squares.function), argnums=(0, 1)), threads=2)
        for n in (3, 40, 2, 70, 0):
            a, b = np.arange(n * n * 1.0).reshape(n, n) % 7, np.arange(n * n * 1.0).reshape(n, n) % 5
            wanted = 2 * (a @ b) @ b.T, 2 * a.T @ (a @ b)
            for found, each in zip(gradient(a, b), wanted, strict=True):
                np.testing.assert_allclose(found, each, rtol=1e-12)
        assert len(compiled) == 2
    assert gradient.llvm_ir.count("define void @branch.") >= sum(compiled)


def test_other_processes_make_what_they_need_besides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[int]
) -> None:
    """From the loops that are kept: nothing is derived or lowered again."""
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path))
    for times, n in enumerate((3, 70, 3, 70)):
        gradient = az.compile(az.grad(az.program(squares.function), argnums=0), threads=2)
        if times:
            monkeypatch.setattr(multiversioning, "loops_of", None)
        a = np.arange(n * n * 1.0).reshape(n, n) % 7
        np.testing.assert_allclose(gradient(a, a), 2 * (a @ a) @ a.T, rtol=1e-12)
        assert len(compiled) == min(times + 1, 2)


@pytest.mark.slow
def test_what_is_emitted_is_the_same_in_all_processes(tmp_path: Path) -> None:
    """Whatever order a set of names has there; else branches would not fit to what was compiled before."""
    code = """
import pickle, sys
from adze.backends.llvm.emit import emit
from adze.backends.llvm.host import host
from adze.backends.llvm.jit import digest_of

function = pickle.load(open(sys.argv[1], "rb"))
module = emit(function, host())
print(digest_of([*module.parts(), *[part for name in reversed(module.branches()) for part in module.branch(name)]]))
"""
    form = forms_of(instance_of(az.grad(squares, argnums=(0, 1))), host_target())[-1]
    lowered = loops_of(form, "squares", host_target(), True).function
    kept = tmp_path / "function"
    kept.write_bytes(pickle.dumps(lowered))
    module = emit(lowered, host())
    texts = [*module.parts(), *[part for name in reversed(module.branches()) for part in module.branch(name)]]
    assert module.branches()
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, str(kept)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert found.stdout.strip() == repr(digest_of(texts))


def test_only_what_is_needed_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = function(ir.If(short_of(10), pass_over(2.0), pass_over(3.0)))
    asked = list[str]()
    branch = Module.branch
    monkeypatch.setattr(Module, "branch", lambda module, name: asked.append(name) or branch(module, name))
    code = code_of(made)
    executable = Executable(code.machine_code, is_parallel(made), code.branches)
    for n, names in ((12, ["branch.1"]), (15, ["branch.1"]), (2, ["branch.1", "branch.0"])):
        run(executable, made, n)
        assert asked == names
    assert assembly(code).count("branch.") > 2


def test_a_branch_whose_emission_fails_is_an_exception_and_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = ir.If(short_of(5), pass_over(2.0, "k"), pass_over(3.0, "l"))
    made = function(ir.If(short_of(10), (inner, *pass_over(0.5)), pass_over(5.0)))
    code = code_of(made)
    executable = Executable(code.machine_code, is_parallel(made), code.branches)
    parallel = regions.Function.parallel

    def interrupted(self: Any, loop: Any) -> None:
        parallel(self, loop)
        raise KeyboardInterrupt

    monkeypatch.setattr(regions.Function, "parallel", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(executable, made, 3)
    monkeypatch.setattr(regions.Function, "parallel", parallel)
    for n in (3, 7, 12):
        run(executable, made, n)


def test_a_branch_of_something_else_is_refused() -> None:
    made, other = (function(ir.If(short_of(10), pass_over(w), pass_over(3.0)), *pass_over(w, "k")) for w in (2.0, 4.0))
    later = Later(lambda: other, host(), digest_of(emit(made, host()).parts()))
    with pytest.raises(RuntimeError, match=r"branch\.0 is not part of what was compiled before"):
        later.branch("branch.0")


def test_threads_that_need_the_same_branch_at_once(monkeypatch: pytest.MonkeyPatch, compiled: list[int]) -> None:
    monkeypatch.setenv("ADZE_CACHE", "off")
    f = az.compile(az.program(squares.function), threads=1)
    f(np.ones((1, 1)), np.ones((1, 1)))
    before, a, found = len(compiled), np.ones((64, 64)), list[float]()
    threads = [threading.Thread(target=lambda: found.append(float(f(a, a)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [64.0**4] * 4 and len(compiled) == before + 1


def test_what_was_made_is_run_while_others_make_more() -> None:
    """As in a child that is forked meanwhile, where nobody would give the lock back."""
    made = function(ir.If(short_of(10), pass_over(2.0), pass_over(3.0)))
    code = code_of(made)
    executable = Executable(code.machine_code, is_parallel(made), code.branches)
    run(executable, made, 6)
    executable._lock.acquire()
    later = threading.Thread(target=run, args=(executable, made, 7), daemon=True)
    later.start()
    later.join(60)
    assert not later.is_alive()


def test_stores_are_seen_after_a_branch() -> None:
    made = function(
        ir.If(short_of(10), pass_over(2.0), pass_over(3.0)), loop("j", "n", ir.Store(Y, (var("j"),), at(Y, "j")))
    )
    code = code_of(made)
    run(Executable(code.machine_code, is_parallel(made), code.branches), made, 6)


def test_loops_of_scalars_are_noted_for_the_optimiser() -> None:
    """Not those inside of lanes, or around other loops; in a module without any LLVM has less to do."""
    total = ir.Declare("s", const(0.0, f64))
    inside = loop("j", "n", ir.Assign("s", apply("add", var("s", f64), at(X, "j"))))
    lanes = loop("i", "n", total, inside, put(Y, "i", var("s", f64)), kind="lanes", factor=8)
    assert SCALARS not in str(emit(function(lanes), host()))
    for body in (pass_over(2.0), (loop("k", 2, *pass_over(2.0, kind="sequential")),)):
        assert str(emit(function(*body), host())).count(SCALARS) == 1
