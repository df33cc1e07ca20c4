"""Deforestation of compiled programs: what is made and where, and that it means the same."""

import re
from typing import Any

import numpy as np
import pytest
from programs.functions import List, linked, listed

import adze as az

pytestmark = pytest.mark.unguarded

Row = List[az.f64]
X, Y = (np.random.default_rng(k).standard_normal(9) for k in (1, 2))
XS, YS = linked(X.tolist()), linked(Y.tolist())


@az.data
class Tree:
    class Leaf:
        x: az.f64
        name: az.i64

    class Node:
        left: "Tree"
        weight: az.f64
        right: "Tree"


def mapped(f: Any, xs: Any) -> Any:
    go = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: Row.Nil(), Cons=lambda h, t: Row.Cons(f(h), self(t))), Row, result=Row
    )
    return go(xs)


def total(xs: Any) -> Any:
    go = az.fix(lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda h, t: h + self(t)), Row, result=az.f64)
    return go(xs)


def product(xs: Any, ys: Any) -> Any:
    go = az.fix(
        lambda self, xs, ys: az.case(
            xs,
            Nil=lambda: 0.0,
            Cons=lambda a, xs: az.case(ys, Nil=lambda: 0.0, Cons=lambda b, ys: a * b + self(xs, ys)),
        ),
        Row,
        Row,
        result=az.f64,
    )
    return go(xs, ys)


def weighed(tree: Any) -> Any:
    """The numbers of leaves, times all weights above."""

    @az.fix
    def go(self: Any, tree: Tree) -> az.f64:
        def node(left: Any, weight: Any, right: Any) -> Any:
            one, other = az.par(lambda: self(left), lambda: self(right))
            return weight * (one + other)

        return az.case(tree, Leaf=lambda x, name: x * x, Node=node)

    return go(tree)


def balanced(depth: int, k: int = 1) -> Any:
    if not depth:
        return Tree.Leaf(float(k), k)
    return Tree.Node(balanced(depth - 1, 2 * k), 1 / k, balanced(depth - 1, 2 * k + 1))


def cells(program: Any) -> int:
    """At how many places of its loops a program makes cells with fields."""
    return len(re.findall(r"= cell \d+ of \S", str(az.compile(program).loops)))


@az.program
def norm(xs: Row) -> az.f64:
    return total(mapped(lambda h: h * h, mapped(az.sin, xs)))


@az.program
def both_of_dot(xs: Row, ys: Row) -> tuple[az.f64, Row, Row]:
    value, (dx, dy) = az.value_and_grad(product, argnums=(0, 1))(xs, ys)
    return value, dx, dy


def test_a_list_between_two_recursions_is_not_made() -> None:
    assert az.compile(norm)(XS) == pytest.approx(np.sum(np.sin(X) ** 2))
    assert cells(norm) == 0
    assert str(az.compile(norm).loops).count("procedure ") == 1


def test_what_is_read_twice_is_made_once() -> None:
    @az.program
    def twice(xs: Row) -> az.f64:
        ys = mapped(az.sin, xs)
        return total(ys) * product(ys, xs)

    assert az.compile(twice)(XS) == pytest.approx(np.sum(np.sin(X)) * (np.sin(X) @ X))
    assert cells(twice) == 1


def test_a_tail_that_is_looked_at_besides_is_made() -> None:
    @az.program
    def falling(xs: Row) -> az.f64:
        """Each number of the list is the next one's, and more."""
        go = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: Row.Nil(), Cons=lambda h, t: _onto(h, self(t))), Row, result=Row
        )
        return total(go(xs))

    def _onto(h: Any, rest: Any) -> Any:
        return Row.Cons(h + az.case(rest, Nil=lambda: 0.0, Cons=lambda first, _: first), rest)

    assert az.compile(falling)(XS) == pytest.approx(np.sum(np.cumsum(X[::-1])))


def test_who_needs_a_field_to_go_on_reads_a_list() -> None:
    @az.program
    def accumulated(xs: Row) -> az.f64:
        go = az.fix(
            lambda self, xs, sum: az.case(xs, Nil=lambda: sum, Cons=lambda h, t: self(t, sum * 0.5 + h)),
            Row,
            az.f64,
            result=az.f64,
        )
        return go(mapped(az.sin, xs), 0.0)

    assert az.compile(accumulated)(XS) == pytest.approx(np.sin(X) @ 0.5 ** np.arange(8, -1, -1))
    assert cells(accumulated) == 1


@pytest.mark.parametrize("short", [0, 4, 9])
def test_two_lists_are_walked_side_by_side(short: int) -> None:
    @az.program
    def crossed(xs: Row, ys: Row) -> tuple[az.f64, az.f64]:
        return product(mapped(az.sin, xs), ys), product(xs, mapped(az.sin, ys))

    n, ys = min(9, short), linked(Y[:short].tolist())
    wanted = np.sin(X[:n]) @ Y[:n], X[:n] @ np.sin(Y[:n])
    assert az.compile(crossed)(XS, ys) == pytest.approx(wanted)


def test_requirements_fail_where_they_did() -> None:
    @az.program
    def picked(xs: Row, table: az.Array[az.f64, "n"]) -> az.f64:
        go = az.fix(
            lambda self, xs, k: az.case(xs, Nil=lambda: 0.0, Cons=lambda h, t: h * table[k] + self(t, k + 1)),
            Row,
            az.i64,
            result=az.f64,
        )
        return go(mapped(az.sin, xs), 0)

    assert az.compile(picked)(XS, Y) == pytest.approx(np.sin(X) @ Y)
    with pytest.raises(IndexError, match="table"):
        az.compile(picked)(XS, Y[:5])


@pytest.mark.parametrize("short", [0, 4, 9])
def test_gradients_are_filled_while_they_are_made(short: int) -> None:
    ys = linked(Y[:short].tolist())
    value, dx, dy = az.compile(both_of_dot)(XS, ys)
    assert value == pytest.approx(X[:short] @ Y[:short])
    assert listed(dx) == [*Y[:short], *[0.0] * (9 - short)]
    assert listed(dy) == X[:short].tolist()


def test_a_walk_over_a_gradient_takes_none() -> None:
    @az.program
    def sums(xs: Row, ys: Row) -> tuple[az.f64, az.f64, az.f64]:
        value, (dx, dy) = az.value_and_grad(product, argnums=(0, 1))(xs, ys)
        return value, total(dx), total(dy)

    assert az.compile(sums)(XS, YS) == pytest.approx((X @ Y, Y.sum(), X.sum()))
    assert cells(sums) == 0
    n = 10**6
    ones = linked([1.0] * n)
    assert az.compile(sums)(ones, ones) == (n, n, n)


def test_results_that_go_nowhere_are_not_computed() -> None:
    """The value that is derived would be added up behind the calls."""

    @az.program
    def twice(xs: Row, ys: Row) -> tuple[Row, Row]:
        return az.grad(product, argnums=(0, 1))(xs, ys)

    assert not re.search(r"= call \d", str(az.compile(twice).loops).partition("procedure 0")[2])
    dx, dy = az.compile(twice)(XS, YS)
    assert listed(dx) == Y.tolist() and listed(dy) == X.tolist()


def test_equal_walks_are_one_procedure() -> None:
    """Both gradients are filled with zeros by one; what stands at two lines is two, as errors tell them apart."""

    @az.program
    def sums(xs: Row, ys: Row) -> tuple[az.f64, az.f64]:
        first = product(xs, xs)
        return first, product(ys, ys)

    @az.program
    def apart(xs: Row, ys: Row) -> tuple[az.f64, az.f64]:
        def squares(xs: Any) -> Any:
            go = az.fix(
                lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda h, t: h + self(t)), Row, result=az.f64
            )
            return go(xs)

        return total(xs), squares(ys)

    assert str(az.compile(both_of_dot).loops).count(": zeros") == 1
    assert str(az.compile(sums).loops).count("\nprocedure ") == 1
    assert str(az.compile(apart).loops).count("\nprocedure ") == 2
    assert az.compile(sums)(XS, YS) == pytest.approx((X @ X, Y @ Y))
    assert az.compile(apart)(XS, YS) == pytest.approx((X.sum(), Y.sum()))


def test_recursions_that_make_several_cells_for_one_grow_little() -> None:
    """Each of a chain reads all cells that the one before makes: 2**10 of them."""

    def doubled(xs: Any) -> Any:
        go = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: xs, Cons=lambda h, t: Row.Cons(h, Row.Cons(2 * h, self(t)))),
            Row,
            result=Row,
        )
        return go(xs)

    @az.program
    def chain(xs: Row) -> az.f64:
        for _ in range(10):
            xs = doubled(xs)
        return total(xs)

    assert az.compile(chain).loops.count("\n") < 1000
    assert az.compile(chain)(linked([1.0, 2.0])) == 3 * 3**10


def test_readers_that_choose_are_not_written_for_all_cells_of_a_long_list() -> None:
    """Each choice has what is read of the fields in both branches: 2**30 in all."""
    ones = linked([1.0] * 30)

    @az.program
    def chosen(xs: Row, y: az.f64) -> az.f64:
        def chosen(self: Any, xs: Any, y: Any) -> Any:
            def cons(h: Any, t: Any) -> Any:
                rest = self(t, y + 1)
                return az.cond(h > y, lambda: h + rest, lambda: rest * y)

            return az.case(xs, Nil=lambda: 1.0, Cons=cons)

        ended = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: ones, Cons=lambda h, t: Row.Cons(2 * h, self(t))), Row, result=Row
        )
        return az.fix(chosen, Row, az.f64, result=az.f64)(ended(xs), y)

    assert az.compile(chosen).loops.count("\n") < 200
    assert az.compile(chosen)(XS, -20.0) == az.evaluate(chosen)(XS, -20.0)


def test_gradients_over_trees_are_filled_by_the_branches_that_make_them() -> None:
    @az.program
    def root(tree: Tree) -> az.f64:
        return weighed(tree)

    gradient, tree = az.grad(root), balanced(5)
    expected = az.evaluate(gradient)(tree)
    for threads in (1, 2, 3):
        assert az.compile(gradient, threads=threads)(tree) == expected
