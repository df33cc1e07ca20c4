"""Recursion with calls in their places: the same bits and errors as without, and fewer calls."""

import re
from typing import Any

import numpy as np
import pytest
from programs.functions import List, linked

import adze as az
from adze.backends.llvm.unfolding import unfolded
from adze.backends.target import UNFOLDED

pytestmark = pytest.mark.unguarded

Row = List[az.f64]


@az.program
def weighed(xs: Row, w: az.f64) -> az.f64:
    go = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: az.sin(head * w) + 0.5 * self(tail)),
        Row,
        result=az.f64,
    )
    return go(xs)


@az.program
def hofstadter(n: az.i64) -> az.i64:
    """Two functions that call each other, each also inside of an argument: F(n) = n - M(F(n - 1)), M likewise."""

    @az.fix
    def go(self: Any, is_male: az.bool_, n: az.i64) -> az.i64:
        return az.cond(
            n == 0,
            lambda: az.where(is_male, 0, 1),
            lambda: n - self(~is_male, self(is_male, n - 1)),
        )

    return go(False, n)


@az.program
def ackermann(m: az.i64, n: az.i64) -> az.i64:
    """A call that is the last thing, around one that is not."""

    @az.fix
    def go(self: Any, m: az.i64, n: az.i64) -> az.i64:
        return az.cond(
            m == 0,
            lambda: n + 1,
            lambda: az.cond(n == 0, lambda: self(m - 1, 1), lambda: self(m - 1, self(m, n - 1))),
        )

    return go(m, n)


@az.program
def rotated(x: az.Array[az.f64, 2], n: az.i64) -> az.Array[az.f64, 2]:
    """Each activation has an array, and reads the one that another returns."""

    @az.fix
    def go(self: Any, x: az.Array[az.f64, 2], n: az.i64) -> az.Array[az.f64, 2]:
        def turned() -> Any:
            y = self(az.array([x[0] + 1.0, 0.5 * x[1]]), n - 1)
            return az.array([y[1], x[0] - y[0]])

        return az.cond(n == 0, lambda: x, turned)

    return go(x, n)


@az.program
def picked(table: az.Array[az.f64, "n"], at: az.i64) -> az.f64:
    """Elements are read on the way back."""

    @az.fix
    def go(self: Any, k: az.i64) -> az.f64:
        return az.cond(k < 0, lambda: 0.0, lambda: self(k - 1) + table[k * at])

    return go(20)


def without(program: Any) -> Any:
    return az.compile(program, threads=1, schedule={"unfold": False})


@pytest.mark.parametrize("length", [0, 1, 2, 9, 10, 11, 12, 50, 1001])
def test_lists_of_any_length(length: int) -> None:
    xs = np.random.default_rng(length).standard_normal(length)
    arguments = linked(list(xs)), 0.7
    program = az.value_and_grad(weighed, argnums=1)
    found = az.compile(program, threads=1)(*arguments)
    assert found == without(program)(*arguments)
    factors = 0.5 ** np.arange(length)
    assert np.allclose(found, [np.sum(np.sin(xs * 0.7) * factors), np.sum(xs * np.cos(xs * 0.7) * factors)], rtol=1e-12)


def test_functions_that_call_each_other() -> None:
    """The sequences of Hofstadter (Gödel, Escher, Bach, 1979, chapter 5)."""
    female = az.compile(hofstadter)
    assert [int(female(n)) for n in range(13)] == [1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7, 8]


def test_calls_around_calls() -> None:
    fast = az.compile(ackermann)
    assert [int(fast(m, n)) for m, n in [(0, 0), (1, 5), (2, 3), (3, 6)]] == [1, 7, 9, 509]


@pytest.mark.parametrize("n", [0, 1, 5, 40])
def test_arrays_of_activations_are_apart(n: int) -> None:
    x = np.array([0.3, -2.0])
    levels = [x + 0.0]
    for _ in range(n):
        levels.append(np.array([levels[-1][0] + 1.0, 0.5 * levels[-1][1]]))
    y = levels.pop()
    for x in reversed(levels):
        y = np.array([y[1], x[0] - y[0]])
    assert np.array_equal(az.compile(rotated)(np.array([0.3, -2.0]), n), y)


def test_a_failure_deep_inside_is_that_of_its_line() -> None:
    table = np.arange(21.0)
    assert az.compile(picked)(table, 1) == table.sum()
    with pytest.raises(IndexError, match="index 22 ") as one:
        az.compile(picked)(table, 2)
    with pytest.raises(IndexError) as other:
        without(picked)(table, 2)
    assert str(one.value) == str(other.value)


@pytest.mark.parametrize("unfold", [True, False])
def test_a_failure_that_only_arithmetic_follows_is_left_to_the_caller(unfold: bool) -> None:
    """Nobody looks between the element that is not there and the call from outside, which raises."""

    @az.program
    def summed(table: az.Array[az.f64, "n"], k: az.i64, at: az.i64) -> az.f64:
        go = az.fix(
            lambda self, k: az.cond(k < 0, lambda: table[at], lambda: k * 0.5 + self(k - 1)), az.i64, result=az.f64
        )
        return az.sqrt(go(k))

    compiled = az.compile(summed, threads=1, schedule={"unfold": unfold})
    table = np.array([1.0, 9.0])
    for at in (0, 1):
        assert compiled(table, 39, at) == np.sqrt(390 + table[at])
        with pytest.raises(IndexError, match="index 2 is out of range"):
            compiled(table, 1000, 2)
    procedure = compiled.llvm_ir.partition("@procedure.0(ptr %failure")[2].partition("\n}")[0]
    behind = procedure.partition("call tailcc")[2]
    assert behind and "load atomic i64, ptr %failure" not in behind


def test_code_calls_itself_less() -> None:
    def calls(compiled: Any) -> int:
        return len(re.findall(r"call tailcc [^@]*@procedure", compiled.llvm_ir))

    assert calls(without(hofstadter)) == 3  # one from outside
    assert 3 < calls(az.compile(hofstadter)) < 20  # a tree, of which the leaves call
    assert calls(az.compile(weighed, threads=1)) == calls(without(weighed)) == 2


def repeated(number: int, call: str = "call") -> dict[str, str]:
    """Procedures of 43 lines that call themselves twice."""
    body = "\n".join(["  %y = fadd double %x, 1.0"] * 39)
    found = {}
    for name in [f"procedure.{k}" for k in range(number)]:
        line = f"  %r = {call} tailcc double @{name}(double %y)"
        head = f"define hidden tailcc double @{name}(double %x) nounwind"
        found[name] = f"{head} {{\n{body}\n{line}\n{line}\n  ret double %r\n}}"
    return found


def of_themselves(texts: dict[str, str]) -> dict[str, str]:
    """Unfolded, where copies have the same text: they look at nothing here."""
    return unfolded(texts, texts.__getitem__)


def test_how_deep_a_procedure_is_unfolded() -> None:
    """As deep as its lines allow, and deeper in a program that has little code."""
    assert UNFOLDED == 500 and repeated(1)["procedure.0"].count("\n") == 43
    found = of_themselves(repeated(1))  # 31 activations have 1333 lines, and 63 have more than 1500
    assert found.keys() == {"procedure.0", *[f"procedure.0.{level}" for level in range(4)]}
    for level in range(4):
        outer, inner = found[f"procedure.0.{level}"], f"@procedure.0.{level - 1}(" if level else "@procedure.0("
        assert outer.count(inner) == 2 and "internal" in outer and "alwaysinline {" in outer
    assert found["procedure.0"].count("@procedure.0.3(") == 2 and "alwaysinline" not in found["procedure.0"]
    found = of_themselves(repeated(100))  # 15 activations of each have 64,500 lines together, so there are 7
    assert found.keys() == {f"procedure.{k}{level}" for k in range(100) for level in ("", ".0", ".1")}


def test_jumps_stay() -> None:
    jumps = repeated(1, "musttail call")
    assert of_themselves(jumps) == jumps


def test_what_does_not_recur_is_not_emitted_again() -> None:
    """The text of a copy is asked for once, and where there are copies alone."""
    texts = repeated(2) | {
        "procedure.2": "define hidden tailcc void @procedure.2() {\n  call tailcc double @procedure.0(double 1.0)\n}"
    }
    asked: list[str] = []

    def copy(name: str) -> str:
        asked.append(name)
        return texts[name]

    unfolded(texts, copy)
    assert asked == ["procedure.0", "procedure.1"]


def test_code_is_the_same_in_every_process() -> None:
    """Code on disk names branches that another process makes again, of the same text."""
    names = [f"procedure.{k}" for k in range(9)]
    calls = "\n".join([f"  %r{k} = call tailcc double @{name}(double %x)" for k, name in enumerate(names)])
    texts = {name: f"define hidden tailcc double @{name}(double %x) nounwind {{\n{calls}\n}}" for name in names}
    copies = [name for name in of_themselves(texts) if name.count(".") == 2]
    assert copies == [f"{name}.{level}" for level in (1, 0) for name in names]
