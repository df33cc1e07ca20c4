"""Arrays in cells: what is copied, and that nothing is written to what a cell keeps."""

from typing import Any

import numpy as np
import pytest
from load import benchmark

import adze as az
from adze.backends import ir

models = benchmark("functions")
Pair = az.Array[az.f64, 2]
Square = az.Array[az.f64, 3, 3]
both = pytest.mark.parametrize("run", [az.evaluate, az.compile], ids=["evaluate", "compile"])


def procedures(program: Any) -> str:
    """The code of procedures."""
    parts = az.compile(program, threads=1).llvm_ir.split("define hidden tailcc")[1:]
    return "".join([part.partition("\n}\n")[0] for part in parts])


@az.program
def kept_by_each(x: az.Array[az.f64, 3, 3], n: az.i64) -> models.List[Square]:
    """The same matrix, n times."""

    @az.fix
    def go(self: Any, x: Square, n: az.i64) -> models.List[Square]:
        nil, cons = models.List[Square].Nil, models.List[Square].Cons
        return az.cond(n == 0, lambda: nil(), lambda: cons(x, self(x, n - 1)))

    return go(x, n)


def test_an_array_that_is_passed_along_is_not_copied() -> None:
    x = np.arange(9.0).reshape(3, 3)
    assert "memcpy" not in procedures(kept_by_each)
    assert az.compile(kept_by_each)(x, 3) == models.linked([x, x, x])


@az.program
def doubled(x: Pair, n: az.i64) -> models.List[Pair]:
    @az.fix
    def go(self: Any, x: Pair, n: az.i64) -> models.List[Pair]:
        nil, cons = models.List[Pair].Nil, models.List[Pair].Cons
        return az.cond(n == 0, lambda: nil(), lambda: cons(x, self(2 * x, n - 1)))

    return go(x, n)


def test_a_temporary_that_is_kept_is_made_where_it_stays() -> None:
    assert "memcpy" not in procedures(doubled)
    found = az.compile(doubled)(np.array([1.0, 3.0]), 3)
    assert found == models.linked([np.array([k, 3.0 * k]) for k in (1.0, 2.0, 4.0)])


@both
def test_what_is_written_to_later_is_copied(run: Any) -> None:
    @az.program
    def stepped(x: Pair, n: az.i64) -> models.List[Pair]:
        """Each state is kept, and the next is made of it in its place."""

        @az.fix
        def go(self: Any, k: az.i64, kept: models.List[Pair]) -> models.List[Pair]:
            def step(j: Any, state: Any) -> Any:
                found, xs = state
                return az.update(found, 0, found[0] + j + k), models.List.Cons(found, xs)

            last, more = az.fori_loop(0, 3, step, (2 * x, kept))
            return az.cond(k == 0, lambda: models.List.Cons(last, more), lambda: self(k - 1, more))

        return go(n, models.List[Pair].Nil())

    wanted, x = [], np.array([1.0, 5.0])
    for k in (1, 0):
        found = 2 * x
        for j in range(3):
            wanted.append(found.copy())
            found[0] += j + k
    wanted.append(found)
    assert run(stepped)(x, 1) == models.linked(wanted[::-1])


def test_procedures_keep_what_those_that_they_call_keep() -> None:
    """An array is handed on twice before it is kept."""

    @az.program
    def grown(x: Pair, n: az.i64) -> models.List[Pair]:
        @az.fix
        def even(self: Any, x: Pair, y: Pair, n: az.i64, xs: models.List[Pair]) -> models.List[Pair]:
            more = lambda: models.List.Cons(x, self(y, x, n - 1, xs))  # noqa: E731
            return az.cond(n == 0, lambda: xs, more)

        return even(x, x + 1, n, models.List[Pair].Nil())

    assert "memcpy" not in procedures(grown)
    x = np.array([1.0, 2.0])
    assert az.compile(grown)(x, 3) == models.linked([x, x + 1, x])


def test_kept_by_name() -> None:
    """What ``kept`` finds for two procedures that call each other."""
    buffers = {name: ir.Buffer(name, az.f64, (ir.Constant(2),)) for name in ("a", "b", "c", "d")}
    a, b, c, d = buffers.values()

    def procedure(name: str, enters: tuple[Any, ...], call: ir.Invoke) -> ir.Function:
        taken = ir.Invoke("taken", 0, (), (), kind="take", enters=enters)
        return ir.Function(name, (), (), (), (taken, call, ir.Invoke("given", 0, (), (), kind="give")))

    keeps = procedure("keeps", (a, b), ir.Invoke("cell", 0, (b,), (), kind="cell", places=(0,)))
    hands_on = procedure("hands on", (c, d), ir.Invoke("called", 0, (d, c), (), kind="jump"))
    called = ir.Invoke("called", 1, (c, d), (), kind="procedure")
    assert ir.kept(ir.Function("f", (), (), (), (called,), procedures=(keeps, hands_on))) == ({1}, {0})


@both
def test_a_result_that_is_kept_is_copied(run: Any) -> None:
    """It is written where the caller wants it, which need not last."""

    @az.program
    def states(x: Pair, n: az.i64) -> tuple[models.List[Pair], models.List[Pair]]:
        """Twice: the second recursion runs on the stack that the first one had."""

        @az.fix
        def go(self: Any, x: Pair, n: az.i64) -> tuple[Pair, models.List[Pair]]:
            below, kept = az.cond(n == 0, lambda: (x, models.List[Pair].Nil()), lambda: self(x, n - 1))
            state = 2 * below + n
            return state, models.List.Cons(state, kept)

        return go(x, n)[1], go(-x, n)[1]

    x = np.array([1.0, 3.0])
    for found, state in zip(run(states)(x, 5), (x, -x), strict=True):
        kept = []
        for k in range(6):
            state = 2 * state + k
            kept.append(state)
        assert found == models.linked(kept[::-1])


@both
def test_what_a_cell_keeps_of_a_result_is_copied(run: Any) -> None:
    """The place of a result is written to again, where it is made in steps."""

    @az.program
    def summed(x: Pair, n: az.i64) -> tuple[Pair, az.f64]:
        @az.fix
        def listed(self: Any, y: Pair, n: az.i64) -> models.List[Pair]:
            nil, cons = models.List[Pair].Nil, models.List[Pair].Cons
            return az.cond(n == 0, lambda: nil(), lambda: cons(y, self(y, n - 1)))

        def step(k: Any, state: Any) -> Any:
            y, _ = state
            return az.update(y, 0, y[0] + 1), listed(y, n)

        last, kept = az.fori_loop(0, n, step, (2 * x, models.List[Pair].Nil()))
        total = models.folded(kept, Pair, az.f64, 0.0, lambda y, rest: y[0] + rest)
        return last, total

    last, total = run(summed)(np.array([1.0, 5.0]), 3)
    np.testing.assert_array_equal(last, [5.0, 10.0])
    assert total == 3 * 4.0
