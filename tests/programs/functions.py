"""Programs of the higher-order fragment: functions as values, recursion, data, and fork and join.

They are a body of their own, for a device runs no recursion. Numbers are quarters and arguments small,
so that results are exact; lists and trees come and go as values of Python.

    for case in HIGHER_ORDER:
        for arguments in case.arguments:
            assert az.evaluate(case.program)(*arguments) == case.numpy(*arguments)
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

import adze as az

from .case import NONE, A, Case, Matrix, Vector, X, entering, numbers

HIGHER_ORDER: list[Case] = []
T = TypeVar("T")
Unary = az.Function[[az.f64], az.f64]
Binary = az.Function[[az.f64, az.f64], az.f64]


case = entering(HIGHER_ORDER)


# Declarations, and their values in Python


@az.data
class List(Generic[T]):
    class Nil: ...

    class Cons:
        head: T
        tail: "List[T]"


@az.data
class Tree(Generic[T]):
    class Leaf: ...

    class Node:
        left: "Tree[T]"
        value: T
        right: "Tree[T]"


@az.data
class Maybe(Generic[T]):
    class Nothing: ...

    class Just:
        value: T


@az.data
class Formula:
    class Number:
        value: az.f64

    class Variable:
        place: az.i64

    class Sum:
        left: "Formula"
        right: "Formula"

    class Product:
        left: "Formula"
        right: "Formula"


@az.data
class Parity:
    """Two functions that call each other."""

    even: az.Function[[az.i64], az.bool_]
    odd: az.Function[[az.i64], az.bool_]


@az.data
class Line:
    """A function with its slope."""

    at: Unary
    slope: az.f64


def linked(values: Sequence[Any]) -> Any:
    """A list of the language."""
    result = List.Nil()
    for value in reversed(values):
        result = List.Cons(value, result)
    return result


def listed(xs: Any) -> list[Any]:
    """A list of Python."""
    values = []
    while isinstance(xs, List.Cons):
        values.append(xs.head)
        xs = xs.tail
    return values


def grown(values: Sequence[Any]) -> Any:
    """A balanced tree."""
    if not len(values):
        return Tree.Leaf()
    k = len(values) // 2
    return Tree.Node(grown(values[:k]), values[k], grown(values[k + 1 :]))


def in_order(tree: Any) -> list[Any]:
    if isinstance(tree, Tree.Leaf):
        return []
    return [*in_order(tree.left), tree.value, *in_order(tree.right)]


def mapped_tree(f: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, Tree.Leaf):
        return tree
    return Tree.Node(mapped_tree(f, tree.left), f(tree.value), mapped_tree(f, tree.right))


def depth(tree: Any) -> int:
    return 0 if isinstance(tree, Tree.Leaf) else 1 + max(depth(tree.left), depth(tree.right))


EMPTY, SINGLE, SOME = linked([]), linked([0.5]), linked([1.5, -2.0, 0.25, 4.0, -0.5])
LEAF, BUSH = Tree.Leaf(), grown([1.5, -2.0, 0.25, 4.0, -0.5, 3.0])
CHAIN = Tree.Node(Tree.Node(Tree.Node(LEAF, 1.0, LEAF), 2.0, LEAF), -3.0, LEAF)


# Functions that are passed, returned, chosen and captured


@case(lambda x, y: ((x + y) * y + y) * y, (2.0, 0.5), (0.0, 3.0))
def passed(x: az.f64, y: az.f64) -> az.f64:
    @az.function
    def twice(f: Unary, z: az.f64) -> az.f64:
        return f(f(z))

    return twice(lambda z: (z + y) * y, x)


@case(lambda x: ((x - 3) * 2 - 3) * 2, (1.5,), (-0.25,))
def returned(x: az.f64) -> az.f64:
    @az.function
    def composed(f: Unary, g: Unary) -> Unary:
        return lambda z: f(g(z))

    both = composed(lambda z: z * 2, lambda z: z - 3)
    return composed(both, both)(x)


@case(lambda x, y: (x + y) * 2 - (1.0 + y), (1.5, 2.0))
def curried(x: az.f64, y: az.f64) -> az.f64:
    @az.function
    def add(a: az.f64) -> Unary:
        return lambda b: a + b

    return add(x)(y) * 2 - add(1.0)(y)


@case(lambda x, y: x + y if x > y else x * y if x > 0 else -x, (2.0, 1.0), (1.0, 2.0), (-1.5, 2.0))
def chosen(x: az.f64, y: az.f64) -> az.f64:
    plus, times = az.function(lambda z: z + y, az.f64), az.function(lambda z: z * y, az.f64)
    minus = az.function(lambda z: -z, az.f64)
    f = az.cond(x > y, lambda: plus, lambda: az.cond(x > 0, lambda: times, lambda: minus))
    return f(x)


@case(lambda x, up: (x + x.sum()) * 2 if up else x * x, (X, True), (X, False), (NONE, True), (NONE, False))
def of_arrays(x: Vector, up: az.bool_) -> Vector:
    f = az.cond(
        up,
        lambda: az.function(lambda v: v + az.sum(x), az.Array[az.f64, "n"]),
        lambda: az.function(lambda v: v * x / 2, az.Array[az.f64, "n"]),
    )
    return f(x) * 2


@case(lambda x, i: np.array([x[k] * x[-1] for k in i]), (X, np.array([3, 0, 0])), (X, np.zeros(0, np.int64)))
def captured_array(x: Vector, i: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
    """A map whose body applies a function that captures an array."""
    read = az.function(lambda k: x[k] * x[az.size(x) - 1], az.i64)
    return az.map(read, i)


@case(lambda a, s: a * 2 if s else a + a.sum(1, keepdims=True), (A, True), (A, False), (numbers(0, 3), True))
def in_a_map(a: Matrix, s: az.bool_) -> Matrix:
    """A map over rows whose body applies a function that was chosen outside."""
    row = az.Array[az.f64, "m"]
    f = az.cond(s, lambda: az.function(lambda v: v * 2, row), lambda: az.function(lambda v: v + az.sum(v), row))
    return az.map(lambda v: f(v), a)


@case(lambda x, s: x.max(initial=-np.inf) if s else x.sum(), (X, True), (X, False), (NONE, True), (NONE, False))
def in_a_reduction(x: Vector, s: az.bool_) -> az.f64:
    largest, total = az.function(az.maximum, az.f64, az.f64), az.function(lambda a, b: a + b, az.f64, az.f64)
    return az.cond(
        s,
        lambda: az.reduce(lambda a, b: largest(a, b), -np.inf, x),
        lambda: az.reduce(lambda a, b: total(a, b), 0.0, x),
    )


@case(lambda x, n: x * 2.0**n + 2.0**n - 1, (1.5, 4), (1.5, 0))
def in_a_loop(x: az.f64, n: az.i64) -> az.f64:
    f = az.function(lambda z: 2 * z + 1, az.f64)
    return az.fori_loop(0, n, lambda _, s: f(s), x)


@case(lambda x, n: x ** (n + 1), (2.0, 4), (1.5, 0))
def state_of_a_loop(x: az.f64, n: az.i64) -> az.f64:
    start = az.function(lambda z: z, az.f64)
    return az.fori_loop(0, n, lambda _, f: az.function(lambda z: f(z) * z, az.f64), start)(x)


@case(lambda x: x / 2.0 ** max(0, math.frexp(x)[1]) if x >= 1 else x, (13.0,), (1.0,), (0.25,))
def in_a_while(x: az.f64) -> az.f64:
    """The test and the step are functions."""
    test, half = az.function(lambda z: z >= 1, az.f64), az.function(lambda z: z / 2, az.f64)
    return az.while_loop(lambda s: test(s), lambda s: half(s), x)


@case(lambda x, y: {"sum": x + y, "rest": (x - y, (2 * x, 7))}, (1.5, 0.25))
def of_structures(x: az.f64, y: az.f64) -> Any:
    @az.function
    def f(pair: tuple[az.f64, az.f64], more: {"n": az.i64}) -> Any:
        return {"sum": pair[0] + pair[1], "rest": (pair[0] - pair[1], (2 * pair[0], more["n"] + 4))}

    return f((x, y), {"n": 3})


@case(lambda a, b, x: (a * (b * x + 1) + 1, a * b), (2.0, 0.5, 3.0))
def in_a_record(a: az.f64, b: az.f64, x: az.f64) -> tuple[az.f64, az.f64]:
    @az.function
    def after(f: Line, g: Line) -> Line:
        return Line(lambda z: f.at(g.at(z)), f.slope * g.slope)

    line = after(Line(lambda z: a * z + 1, a), Line(lambda z: b * z + 1, b))
    return line.at(x), line.slope


# Recursion


@case(lambda n: math.factorial(max(n, 0)), (-2,), (0,), (1,), (12,))
def factorial(n: az.i64) -> az.i64:
    @az.fix
    def go(self: Any, k: az.i64) -> az.i64:
        return az.cond(k <= 1, lambda: 1, lambda: k * self(k - 1))

    return go(n)


@case(lambda x, n: x**n, (1.5, 0), (1.5, 1), (-0.5, 9), (2.0, 20))
def power_by_squaring(x: az.f64, n: az.i64) -> az.f64:
    @az.fix
    def go(self: Any, base: az.f64, k: az.i64) -> az.f64:
        def halved() -> Any:
            root = self(base * base, k // 2)
            return az.cond(k % 2 == 1, lambda: base * root, lambda: root)

        return az.cond(k == 0, lambda: 1.0, halved)

    return go(x, n)


def _ackermann(m: int, n: int) -> int:
    return n + 1 if m == 0 else _ackermann(m - 1, 1 if n == 0 else _ackermann(m, n - 1))


@case(_ackermann, (0, 3), (1, 0), (2, 2), (2, 3))
def ackermann(m: az.i64, n: az.i64) -> az.i64:
    @az.fix
    def go(self: Any, m: az.i64, n: az.i64) -> az.i64:
        return az.cond(
            m == 0,
            lambda: n + 1,
            lambda: self(m - 1, az.cond(n == 0, lambda: 1, lambda: self(m, n - 1))),
        )

    return go(m, n)


@case(lambda n: (n % 2 == 0, n % 2 == 1), (0,), (1,), (7,))
def mutual_recursion(n: az.i64) -> tuple[az.bool_, az.bool_]:
    """Through a record of functions."""

    @az.fix
    def both(self: Any, zero: az.bool_) -> Parity:
        return Parity(
            lambda k: az.cond(k == 0, lambda: zero, lambda: self(zero).odd(k - 1)),
            lambda k: az.cond(k == 0, lambda: ~zero, lambda: self(zero).even(k - 1)),
        )

    parity = both(True)
    return parity.even(n), parity.odd(n)


def _euclid(a: int, b: int) -> tuple[int, int, int]:
    if b == 0:
        return a, 1, 0
    g, s, t = _euclid(b, a % b)
    return g, t, s - a // b * t


@case(_euclid, (12, 18), (35, 64), (7, 0))
def euclid(a: az.i64, b: az.i64) -> tuple[az.i64, az.i64, az.i64]:
    @az.fix
    def go(self: Any, a: az.i64, b: az.i64) -> tuple[az.i64, az.i64, az.i64]:
        def smaller() -> Any:
            g, s, t = self(b, a % b)
            return g, t, s - (a // b) * t

        return az.cond(b == 0, lambda: (a, 1, 0), smaller)

    return go(a, b)


@case(lambda c: 2.0, (4.0,))
def root_by_halving(c: az.f64) -> az.f64:
    """A recursion with a function as argument; it halves between 0 and 8 until it meets the root."""

    @az.fix
    def root(self: Any, f: Unary, low: az.f64, high: az.f64) -> az.f64:
        middle = (low + high) / 2
        y = f(middle)

        def on() -> Any:
            return az.cond(y < 0, lambda: self(f, middle, high), lambda: self(f, low, middle))

        return az.cond(y == 0, lambda: middle, on)

    return root(lambda x: x * x - c, 0.0, 8.0)


@case(lambda x: (x**4, x**8), (X,), (NONE,))
def recursion_on_arrays(x: Vector) -> Any:
    @az.fix
    def squared(self: Any, v: Vector, k: az.i64) -> Vector:
        return az.cond(k == 0, lambda: v, lambda: self(v * v, k - 1))

    return squared(x, 2), squared(x, 3)


# Lists: functions that are polymorphic are functions of Python, inlined for the types of each use


def folded(xs: Any, item: Any, result: Any, start: Any, op: Callable[[Any, Any], Any]) -> Any:
    """``op(x0, op(x1, ... start))``."""
    go = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: start, Cons=lambda head, tail: op(head, self(tail))),
        List[item],
        result=result,
    )
    return go(xs)


def mapped(f: Callable[[Any], Any], xs: Any, item: Any, result: Any) -> Any:
    return folded(xs, item, List[result], List[result].Nil(), lambda x, rest: List.Cons(f(x), rest))


@case(lambda xs: sum(listed(xs), 0.0), (SOME,), (SINGLE,), (EMPTY,))
def list_sum(xs: List[az.f64]) -> az.f64:
    return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x + rest)


@case(lambda xs: linked([x > 1 for x in listed(xs)]), (SOME,), (SINGLE,), (EMPTY,))
def list_map(xs: List[az.f64]) -> List[az.bool_]:
    """At two types: from numbers to numbers, and to truth values."""
    return mapped(lambda x: x > 2, mapped(lambda x: 2 * x, xs, az.f64, az.f64), az.f64, az.bool_)


@case(lambda xs, y: linked([x for x in listed(xs) if x > y]), (SOME, 0.0), (SOME, 9.0), (EMPTY, 0.0))
def list_filter(xs: List[az.f64], y: az.f64) -> List[az.f64]:
    def keep(x: Any, rest: Any) -> Any:
        return az.cond(x > y, lambda: List.Cons(x, rest), lambda: rest)

    return folded(xs, az.f64, List[az.f64], List[az.f64].Nil(), keep)


@case(lambda xs: linked(listed(xs)[::-1]), (SOME,), (SINGLE,), (EMPTY,))
def list_reverse(xs: List[az.f64]) -> List[az.f64]:
    @az.fix
    def onto(self: Any, xs: List[az.f64], done: List[az.f64]) -> List[az.f64]:
        return az.case(xs, Nil=lambda: done, Cons=lambda head, tail: self(tail, List.Cons(head, done)))

    return onto(xs, List.Nil())


@case(lambda xs, ys: linked(listed(xs) + listed(ys)), (SOME, SINGLE), (EMPTY, SOME), (SOME, EMPTY), (EMPTY, EMPTY))
def list_append(xs: List[az.f64], ys: List[az.f64]) -> List[az.f64]:
    return folded(xs, az.f64, List[az.f64], ys, lambda x, rest: List.Cons(x, rest))


NAMED = linked([(1, 0.5), (3, -2.0), (1, 4.0)])


@case(lambda xs: (sum(p[0] for p in listed(xs)), linked([p[1] for p in listed(xs)])), (NAMED,), (EMPTY,))
def list_of_tuples(xs: List[tuple[az.i64, az.f64]]) -> tuple[az.i64, List[az.f64]]:
    pair = tuple[az.i64, az.f64]
    total = folded(xs, pair, az.i64, 0, lambda p, rest: p[0] + rest)
    return total, mapped(lambda p: p[1], xs, pair, az.f64)


@case(
    lambda xs, ys: linked(list(zip(listed(xs), listed(ys), strict=False))), (SOME, SOME), (SINGLE, SOME), (SOME, EMPTY)
)
def list_zip(xs: List[az.f64], ys: List[az.f64]) -> List[tuple[az.f64, az.f64]]:
    pairs = List[tuple[az.f64, az.f64]]

    @az.fix
    def go(self: Any, xs: List[az.f64], ys: List[az.f64]) -> pairs:
        def first(x: Any, xs: Any) -> Any:
            return az.case(ys, Nil=lambda: pairs.Nil(), Cons=lambda y, ys: pairs.Cons((x, y), self(xs, ys)))

        return az.case(xs, Nil=lambda: pairs.Nil(), Cons=first)

    return go(xs, ys)


def _found(key: int, xs: Any) -> Any:
    return next((Maybe.Just(p[1]) for p in listed(xs) if p[0] == key), Maybe.Nothing())


@case(_found, (3, NAMED), (1, NAMED), (2, NAMED), (0, EMPTY))
def looked_up(key: az.i64, xs: List[tuple[az.i64, az.f64]]) -> Maybe[az.f64]:
    pair, result = tuple[az.i64, az.f64], Maybe[az.f64]

    def either(p: Any, rest: Any) -> Any:
        return az.cond(p[0] == key, lambda: result.Just(p[1]), lambda: rest)

    return folded(xs, pair, result, result.Nothing(), either)


@case(lambda rows, z: sum(listed(rows), z), (linked([X, 2 * X]), X), (EMPTY, X), (linked([NONE]), NONE))
def list_of_arrays(rows: List[az.Array[az.f64, "n"]], z: Vector) -> Vector:
    row = az.Array[az.f64, "n"]
    return folded(rows, row, row, z, lambda x, rest: x + rest)


@case(lambda n, x: functools.reduce(lambda y, k: y * k + 1, range(n), x), (4, 0.5), (0, 0.5))
def list_of_functions(n: az.i64, x: az.f64) -> az.f64:
    """A list made in a loop, of functions that capture its index, all of which are applied."""
    start = List[Unary].Nil()
    steps = az.fori_loop(0, n, lambda k, fs: List.Cons(lambda z: z * (n - 1 - k) + 1, fs), start)
    go = az.fix(
        lambda self, fs, z: az.case(fs, Nil=lambda: z, Cons=lambda f, rest: self(rest, f(z))),
        List[Unary],
        az.f64,
        result=az.f64,
    )
    return go(steps, x)


@case(lambda x: (linked(list(x)), float(x.sum())), (X,), (NONE,))
def list_of_an_array(x: Vector) -> tuple[List[az.f64], az.f64]:
    n = az.size(x)
    xs = az.fori_loop(0, n, lambda k, xs: List.Cons(x[n - 1 - k], xs), List[az.f64].Nil())
    return xs, folded(xs, az.f64, az.f64, 0.0, lambda a, rest: a + rest)


# Trees, and sums of several kinds


def folded_tree(tree: Any, item: Any, result: Any, leaf: Any, node: Callable[..., Any], fork: bool = False) -> Any:
    """The tree with leaves and nodes replaced; the two sides of a node may run side by side."""

    def both(self: Any, left: Any, value: Any, right: Any) -> Any:
        if not fork:
            return node(self(left), value, self(right))
        first, second = az.par(lambda: self(left), lambda: self(right))
        return node(first, value, second)

    go = az.fix(
        lambda self, tree: az.case(tree, Leaf=lambda: leaf, Node=lambda l, v, r: both(self, l, v, r)),
        Tree[item],
        result=result,
    )
    return go(tree)


@case(lambda tree: (sum(in_order(tree), 0.0), depth(tree)), (BUSH,), (CHAIN,), (LEAF,))
def tree_folds(tree: Tree[az.f64]) -> tuple[az.f64, az.i64]:
    """One polymorphic fold, at two types."""
    total = folded_tree(tree, az.f64, az.f64, 0.0, lambda left, value, right: left + value + right)
    return total, folded_tree(tree, az.f64, az.i64, 0, lambda left, _, right: 1 + az.maximum(left, right))


@case(lambda tree, s: mapped_tree(lambda v: v * s + 1, tree), (BUSH, 2.0), (CHAIN, -0.5), (LEAF, 1.0))
def tree_map(tree: Tree[az.f64], s: az.f64) -> Tree[az.f64]:
    f, result = az.function(lambda v: v * s + 1, az.f64), Tree[az.f64]
    return folded_tree(tree, az.f64, result, result.Leaf(), lambda left, v, right: result.Node(left, f(v), right))


@case(lambda tree: linked(in_order(tree)), (BUSH,), (CHAIN,), (LEAF,))
def tree_to_list(tree: Tree[az.f64]) -> List[az.f64]:
    """By functions on lists: each subtree becomes what puts its items before a list."""
    items = List[az.f64]
    before = az.Function[[items], items]

    def node(left: Any, value: Any, right: Any) -> Any:
        return az.function(lambda rest: left(List.Cons(value, right(rest))), items)

    return folded_tree(tree, az.f64, before, az.function(lambda rest: rest, items), node)(items.Nil())


def search_tree(xs: Any) -> Any:
    """The numbers of a list, smaller ones to the left."""

    @az.fix
    def inserted(self: Any, tree: Tree[az.f64], x: az.f64) -> Tree[az.f64]:
        def node(left: Any, value: Any, right: Any) -> Any:
            return az.cond(
                x < value,
                lambda: Tree.Node(self(left, x), value, right),
                lambda: Tree.Node(left, value, self(right, x)),
            )

        return az.case(tree, Leaf=lambda: Tree.Node(Tree.Leaf(), x, Tree.Leaf()), Node=node)

    return folded(xs, az.f64, Tree[az.f64], Tree[az.f64].Leaf(), lambda x, rest: inserted(rest, x))


@case(lambda xs: linked(sorted(listed(xs))), (SOME,), (linked([1.0, 0.5, 1.0, 0.5]),), (EMPTY,))
def tree_sort(xs: List[az.f64]) -> List[az.f64]:
    return tree_to_list(search_tree(xs))


def _divided(x: float, y: float) -> Any:
    return Maybe.Nothing() if y == 0 else Maybe.Just(x / y)


@case(_divided, (3.0, 2.0), (3.0, 0.0))
def safe_division(x: az.f64, y: az.f64) -> Maybe[az.f64]:
    result = Maybe[az.f64]
    return az.cond(y == 0, lambda: result.Nothing(), lambda: result.Just(x / y))


@case(lambda m, y: m.value + y if isinstance(m, Maybe.Just) else y, (Maybe.Just(2.0), 0.5), (Maybe.Nothing(), 0.5))
def with_default(m: Maybe[az.f64], y: az.f64) -> az.f64:
    return az.case(m, Nothing=lambda: 0.0, Just=lambda x: x) + y


F = Formula
FORMULA = F.Sum(F.Product(F.Variable(1), F.Variable(1)), F.Product(F.Number(0.5), F.Sum(F.Variable(4), F.Number(-2.0))))


@case(lambda f, x: x[1] * x[1] + 0.5 * (x[4] - 2), (FORMULA, X))
def formula(f: Formula, x: Vector) -> az.f64:
    """An interpreter, whose environment is an array."""

    @az.fix
    def value(self: Any, f: Formula) -> az.f64:
        return az.case(
            f,
            Number=lambda v: v,
            Variable=lambda k: x[k],
            Sum=lambda a, b: self(a) + self(b),
            Product=lambda a, b: self(a) * self(b),
        )

    return value(f)


# Fork and join


@case(lambda x: ((x.sum(), x * 2), [0 * x, x, 2 * x], (float(len(x)),)), (X,), (NONE,))
def forks(x: Vector) -> Any:
    """Two branches, a list of them, and one."""
    two = az.par(lambda: az.sum(x), lambda: x * 2)
    return two, az.par([lambda k=k: x * k for k in range(3)]), az.par(lambda: az.size(x).astype(az.f64))


@case(lambda tree: sum(in_order(tree), 0.0), (BUSH,), (CHAIN,), (LEAF,))
def forked_tree_sum(tree: Tree[az.f64]) -> az.f64:
    return folded_tree(tree, az.f64, az.f64, 0.0, lambda left, value, right: left + value + right, fork=True)


@case(np.sum, (numbers(33),), (X,), (numbers(1),), (NONE,))
def forked_array_sum(x: Vector) -> az.f64:
    """By halves of a range of indices."""

    @az.fix
    def part(self: Any, low: az.i64, high: az.i64) -> az.f64:
        middle = (low + high) // 2

        def halves() -> Any:
            left, right = az.par(lambda: self(low, middle), lambda: self(middle, high))
            return left + right

        return az.cond(high - low > 1, halves, lambda: az.cond(high > low, lambda: x[az.maximum(low, 0)], lambda: 0.0))

    return part(0, az.size(x))


@case(lambda x, n: x * n * (n - 1) / 2, (0.5, 6), (0.5, 0))
def forked_tasks(x: az.f64, n: az.i64) -> az.f64:
    """As many branches as a list of tasks has."""
    task = az.Function[[], az.f64]
    tasks = az.fori_loop(0, n, lambda k, rest: List.Cons(lambda: x * k, rest), List[task].Nil())
    go = az.fix(
        lambda self, fs: az.case(fs, Nil=lambda: 0.0, Cons=lambda f, rest: sum(az.par(f, lambda: self(rest)))),
        List[task],
        result=az.f64,
    )
    return go(tasks)


@case(lambda x, y: (x + y) * (x * y), (2.0, 0.5))
def forked_functions(x: az.f64, y: az.f64) -> az.f64:
    """Branches that give functions."""
    f, g = az.par(lambda: az.function(lambda z: z + y, az.f64), lambda: az.function(lambda z: z * y, az.f64))
    return f(x) * g(x)
