"""Compiled recursions that make cells of what they call themselves for: they write to holes, and take no stack."""

import re
from typing import Any

import numpy as np
import pytest
from programs.functions import List, linked, listed
from programs.recursion import dot_of_lists

import adze as az

pytestmark = pytest.mark.unguarded

Row = List[az.f64]
X, Y = (np.random.default_rng(k).standard_normal(9) for k in (1, 2))


@az.data
class Tree:
    class Leaf:
        x: az.f64

    class Node:
        left: "Tree"
        on: az.bool_
        right: "Tree"


def squared(xs: Any) -> Any:
    """The head is computed behind the call."""
    go = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: Row.Nil(), Cons=lambda h, t: _behind(self(t), h)), Row, result=Row
    )
    return go(xs)


@az.program
def squares(xs: Row) -> Row:
    return squared(xs)


@az.program
def beside(xs: Row, ys: Row) -> tuple[Row, Row]:
    return az.par(lambda: squared(xs), lambda: squared(ys))


@az.program
def lengths(n: az.i64) -> az.Array[az.f64, "n"]:
    """Lists are made in a loop."""
    up = az.fix(
        lambda self, k: az.cond(k == 0, lambda: Row.Nil(), lambda: Row.Cons(1.0, self(k - 1))), az.i64, result=Row
    )
    add = az.fix(lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda h, t: h + self(t)), Row, result=az.f64)
    return az.generate(n, lambda k: add(up(k)))


def _behind(rest: Any, head: Any) -> Any:
    return Row.Cons(az.cond(head < 0, lambda: -head, lambda: head * head), rest)


@az.program
def pairs(xs: Row, ys: Row) -> Row:
    """Two elements a step, then those that are left."""
    go = az.fix(
        lambda self, xs, ys: az.case(
            xs,
            Nil=lambda: ys,
            Cons=lambda a, xs: az.case(
                ys, Nil=lambda: Row.Cons(a, xs), Cons=lambda b, ys: Row.Cons(a, Row.Cons(b, self(xs, ys)))
            ),
        ),
        Row,
        Row,
        result=Row,
    )
    return go(xs, ys)


@az.program
def dealt(xs: Row) -> tuple[Row, Row, az.i64]:
    """Every other element, in turns: two results that change places, and a number that is passed on."""

    @az.fix
    def go(self: Any, xs: Row, n: az.i64) -> tuple[Row, Row, az.i64]:
        def cons(head: Any, tail: Any) -> Any:
            first, second, count = self(tail, n + 1)
            return Row.Cons(head, second), first, count

        return az.case(xs, Nil=lambda: (Row.Nil(), Row.Nil(), n), Cons=cons)

    return go(xs, 0)


@az.program
def mirrored(tree: Tree) -> Tree:
    """Both arms are calls."""
    go = az.fix(
        lambda self, t: az.case(
            t, Leaf=lambda x: Tree.Leaf(2 * x), Node=lambda left, on, right: Tree.Node(self(right), ~on, self(left))
        ),
        Tree,
        result=Tree,
    )
    return go(tree)


@az.program
def forked(tree: Tree) -> Tree:
    go = az.fix(
        lambda self, t: az.case(
            t,
            Leaf=lambda x: Tree.Leaf(x + 1),
            Node=lambda left, on, right: az.cond(
                on,
                lambda: Tree.Node(left, on, self(right)),
                lambda: Tree.Node(*_between(on, *az.par(lambda: self(left), lambda: self(right)))),
            ),
        ),
        Tree,
        result=Tree,
    )
    return go(tree)


def _between(on: Any, left: Any, right: Any) -> tuple[Any, Any, Any]:
    return left, on, right


def balanced(depth: int, k: int = 1) -> Any:
    if not depth:
        return Tree.Leaf(float(k))
    return Tree.Node(balanced(depth - 1, 2 * k), k % 3 == 0, balanced(depth - 1, 2 * k + 1))


def written(tree: Any) -> Any:
    return tree.x if type(tree).__name__ == "Leaf" else (written(tree.left), tree.on, written(tree.right))


def test_lists() -> None:
    xs, ys = linked(X.tolist()), linked(Y[:5].tolist())
    assert listed(az.compile(squares)(xs)) == np.where(X < 0, -X, X * X).tolist()
    for threads in (1, 2):
        found = az.compile(beside, threads=threads)(xs, ys)
        assert [listed(each) for each in found] == [np.where(z < 0, -z, z * z).tolist() for z in (X, Y[:5])]
    assert az.compile(lengths)(5).tolist() == [0, 1, 2, 3, 4]
    merged = [z for pair in zip(X, Y[:5], strict=False) for z in pair] + X[5:].tolist()
    assert listed(az.compile(pairs)(xs, ys)) == merged
    first, second, count = az.compile(dealt)(xs)
    assert (listed(first), listed(second), count) == (X[0::2].tolist(), X[1::2].tolist(), 9)


def test_trees() -> None:
    def mirror(t: Any) -> Any:
        return (mirror(t[2]), not t[1], mirror(t[0])) if isinstance(t, tuple) else 2 * t

    def plus(t: Any) -> Any:
        if not isinstance(t, tuple):
            return t + 1
        return (t[0] if t[1] else plus(t[0]), t[1], plus(t[2]))

    tree = balanced(7)
    assert written(az.compile(mirrored)(tree)) == mirror(written(tree))
    for threads in (1, 2):
        assert written(az.compile(forked, threads=threads)(tree)) == plus(written(tree))


@pytest.mark.parametrize("program", [squares, pairs, dealt], ids=lambda program: program.name)
def test_it_is_a_loop(program: az.Program) -> None:
    """No procedure calls another; what a list is made by goes on with itself."""
    procedures = az.compile(program, checks=False).loops.partition("procedure 0")[2]
    assert not re.search(r": call \d|= call \d", procedures)
    assert "go on with 0 on" in procedures and "put cell" in procedures


def test_a_gradient_by_lists() -> None:
    """It is one loop, which writes two lists: cotangents are known beforehand, so there is no log."""

    compiled = az.compile(az.grad(dot_of_lists, argnums=(0, 1)))
    calls = re.findall(r"= call (\d+)", compiled.loops.partition("procedure 0")[2])
    assert calls == []
    dx, dy = compiled(linked(X.tolist()), linked(Y[:5].tolist()))
    assert listed(dx) == [*Y[:5], 0, 0, 0, 0] and listed(dy) == X[:5].tolist()


def test_many_elements_take_no_stack() -> None:
    """A list of a million, by a program that a recursion without end has used the stack of before."""
    n = 1_000_000

    @az.program
    def made(n: az.i64) -> az.f64:
        up = az.fix(
            lambda self, k: az.cond(k == n, lambda: Row.Nil(), lambda: Row.Cons(k * 1.0, self(k + 1))),
            az.i64,
            result=Row,
        )
        add = az.fix(
            lambda self, xs, sum: az.case(xs, Nil=lambda: sum, Cons=lambda h, t: self(t, sum + h)),
            Row,
            az.f64,
            result=az.f64,
        )
        return add(up(0), 0.0)

    compiled = az.compile(made)
    assert not re.search(r"= call \d", compiled.loops.partition("procedure 0")[2])
    assert [compiled(k) for k in (0, 3, n, 3)] == [0.0, 3.0, n * (n - 1) / 2, 3.0]
