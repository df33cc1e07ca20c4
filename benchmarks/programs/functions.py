"""Models over lists and trees, as somebody writes them first: what functions, data and forks are for.

The first six are those of Smeding and Vákár (Parallel dual-numbers reverse AD, 2025, section 10): one multiplication,
products of lists, a rotation, a network on lists, particles. The others are a sum over a tree, formulas as data,
adaptive quadrature, a network over a tree of words, and the likelihood of an evolutionary tree.

    az.compile(az.value_and_grad(quadrature, argnums=(0, 1)))(1.0, 0.5)
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import adze as az

T = TypeVar("T")


@az.data
class List(Generic[T]):
    class Nil: ...

    class Cons:
        head: T
        tail: "List[T]"


Row = List[az.f64]


def linked(values: Sequence[Any]) -> Any:
    """A list of the language."""
    result = List.Nil()
    for value in reversed(values):
        result = List.Cons(value, result)
    return result


def folded(xs: Any, item: Any, result: Any, start: Any, op: Callable[[Any, Any], Any]) -> Any:
    """``op(x0, op(x1, ... start))``."""
    go = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: start, Cons=lambda head, tail: op(head, self(tail))),
        List[item],
        result=result,
    )
    return go(xs)


def total(xs: Any) -> Any:
    return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x + rest)


def both(fork: bool, left: Callable[[], Any], right: Callable[[], Any]) -> Any:
    """Two results, by a fork or one after the other."""
    return az.par(left, right) if fork else (left(), right())


# Lists


@az.program
def mult(x: az.f64, y: az.f64) -> az.f64:
    return x * y


def product(xs: Any, ys: Any, row: Any = Row) -> Any:
    """The product of two lists of numbers, of this type."""
    go = az.fix(
        lambda self, xs, ys: az.case(
            xs,
            Nil=lambda: 0.0,
            Cons=lambda a, xs: az.case(ys, Nil=lambda: 0.0, Cons=lambda b, ys: a * b + self(xs, ys)),
        ),
        row,
        row,
        result=az.f64,
    )
    return go(xs, ys)


@az.program
def dot(xs: Row, ys: Row) -> az.f64:
    return product(xs, ys)


@az.program
def sum_mat_vec(rows: List[Row], x: Row) -> az.f64:
    return folded(rows, Row, az.f64, 0.0, lambda row, rest: product(row, x) + rest)


def _layer(weights: Any, biases: Any, x: Any, bend: Callable[[Any], Any]) -> Any:
    go = az.fix(
        lambda self, rows, biases: az.case(
            rows,
            Nil=lambda: Row.Nil(),
            Cons=lambda row, rows: az.case(
                biases,
                Nil=lambda: Row.Nil(),
                Cons=lambda b, biases: Row.Cons(bend(product(row, x) + b), self(rows, biases)),
            ),
        ),
        List[Row],
        Row,
        result=Row,
    )
    return go(weights, biases)


def bent(v: Any) -> Any:
    return az.maximum(v, 0.0)


@az.program
def neural(first: List[Row], b1: Row, second: List[Row], b2: Row, third: List[Row], b3: Row, x: Row) -> az.f64:
    """A network of two hidden layers with ReLU, a safe softmax, and the mean of the place by it."""
    hidden = _layer(second, b2, _layer(first, b1, x, bent), bent)
    out = _layer(third, b3, hidden, lambda v: v)
    largest = folded(out, az.f64, az.f64, -math.inf, az.maximum)
    powers = folded(out, az.f64, Row, Row.Nil(), lambda v, rest: Row.Cons(az.exp(v - largest), rest))
    whole = total(powers)

    @az.fix
    def weighted(self: Any, xs: Row, place: az.f64) -> az.f64:
        return az.case(xs, Nil=lambda: 0.0, Cons=lambda v, xs: place * (v / whole) + self(xs, place + 1))

    return weighted(powers, 1.0)


# Records


@az.data
class Vec3:
    x: az.f64
    y: az.f64
    z: az.f64


@az.data
class Quaternion:
    w: az.f64
    v: Vec3


def cross(a: Any, b: Any) -> Any:
    return Vec3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)


@az.program
def rotate(q: Quaternion, v: Vec3) -> Vec3:
    """``q v q*`` of a unit quaternion: ``v + w t + q x t`` where ``t = 2 q x v``."""
    u = cross(q.v, v)
    t = Vec3(2 * u.x, 2 * u.y, 2 * u.z)
    s = cross(q.v, t)
    return Vec3(v.x + q.w * t.x + s.x, v.y + q.w * t.y + s.y, v.z + q.w * t.z + s.z)


# Simulations


@az.data
class Particle:
    x: az.f64
    y: az.f64
    u: az.f64
    v: az.f64


def moved(steps: Any, fork: bool) -> Callable[[Any], Any]:
    """The sum of what becomes of the particles of a list, each on its own."""

    @az.fix
    def fall(self: Any, k: az.i64, x: az.f64, y: az.f64, u: az.f64, v: az.f64) -> az.f64:
        def step() -> Any:
            pull = 1 / (1 + x * x + y * y)
            faster, higher = u - 0.01 * pull * x, v - 0.01 * pull * y
            return self(k - 1, x + 0.01 * faster, y + 0.01 * higher, faster, higher)

        return az.cond(k > 0, step, lambda: x * y)

    @az.fix
    def all_of(self: Any, swarm: List[Particle]) -> az.f64:
        def more(p: Any, rest: Any) -> Any:
            first, others = both(fork, lambda: fall(steps, p.x, p.y, p.u, p.v), lambda: self(rest))
            return first + others

        return az.case(swarm, Nil=lambda: 0.0, Cons=more)

    return all_of


@az.program
def particles(swarm: List[Particle], steps: az.i64) -> az.f64:
    return moved(steps, fork=True)(swarm)


@az.program
def plain_particles(swarm: List[Particle], steps: az.i64) -> az.f64:
    return moved(steps, fork=False)(swarm)


# Trees


@az.data
class Leaves:
    class Leaf:
        value: az.f64

    class Node:
        left: "Leaves"
        right: "Leaves"


def of_leaves(values: Any) -> Any:
    """A balanced tree of values."""
    if len(values) == 1:
        return Leaves.Leaf(float(values[0]))
    half = len(values) // 2
    return Leaves.Node(of_leaves(values[:half]), of_leaves(values[half:]))


def degenerate(values: Any) -> Any:
    """A tree whose left sides are leaves."""
    tree = Leaves.Leaf(float(values[-1]))
    for value in values[-2::-1]:
        tree = Leaves.Node(Leaves.Leaf(float(value)), tree)
    return tree


def summed(tree: Any, fork: bool) -> Any:
    @az.fix
    def of(self: Any, tree: Leaves) -> az.f64:
        def node(left: Any, right: Any) -> Any:
            one, other = both(fork, lambda: self(left), lambda: self(right))
            return one + other

        return az.case(tree, Leaf=lambda x: x * az.sin(x), Node=node)

    return of(tree)


@az.program
def tree_sum(tree: Leaves) -> az.f64:
    return summed(tree, fork=True)


@az.program
def plain_tree_sum(tree: Leaves) -> az.f64:
    return summed(tree, fork=False)


# Formulas


@az.data
class Expression:
    class Number:
        value: az.f64

    class Variable:
        place: az.i64

    class Sum:
        left: "Expression"
        right: "Expression"

    class Product:
        left: "Expression"
        right: "Expression"

    class Sine:
        of: "Expression"


@az.program
def expression(f: Expression, x: az.Array[az.f64, "n"]) -> az.f64:
    """The value of a formula at the variables' values."""

    @az.fix
    def value(self: Any, f: Expression) -> az.f64:
        return az.case(
            f,
            Number=lambda v: v,
            Variable=lambda k: x[k],
            Sum=lambda a, b: self(a) + self(b),
            Product=lambda a, b: self(a) * self(b),
            Sine=lambda a: az.sin(self(a)),
        )

    return value(f)


# Quadrature


def integral(a: Any, b: Any, tolerance: Any, fork: bool) -> Any:
    """Adaptive Simpson of ``exp(a x) / (b + x^2)`` from -1 to 1: steep at 0 where b is small."""

    def f(x: Any) -> Any:
        return az.exp(a * x) / (b + x * x)

    @az.fix
    def part(
        self: Any,
        low: az.f64,
        high: az.f64,
        at_low: az.f64,
        at_middle: az.f64,
        at_high: az.f64,
        whole: az.f64,
        eps: az.f64,
    ) -> az.f64:
        middle = (low + high) / 2
        left, right = f((low + middle) / 2), f((middle + high) / 2)
        first = (middle - low) / 6 * (at_low + 4 * left + at_middle)
        second = (high - middle) / 6 * (at_middle + 4 * right + at_high)
        off = first + second - whole

        def divided() -> Any:
            one, other = both(
                fork,
                lambda: self(low, middle, at_low, left, at_middle, first, eps / 2),
                lambda: self(middle, high, at_middle, right, at_high, second, eps / 2),
            )
            return one + other

        return az.cond(abs(off) < 15 * eps, lambda: first + second + off / 15, divided)

    low, middle, high = f(-1.0), f(0.0), f(1.0)
    return part(-1.0, 1.0, low, middle, high, 2 / 6 * (low + 4 * middle + high), tolerance)


@az.program
def quadrature(a: az.f64, b: az.f64) -> az.f64:
    return integral(a, b, 1e-6, fork=True)


@az.program
def plain_quadrature(a: az.f64, b: az.f64) -> az.f64:
    return integral(a, b, 1e-6, fork=False)


# A network over a tree of words


@az.data
class Phrase:
    class Word:
        number: az.i64

    class Pair:
        left: "Phrase"
        right: "Phrase"


def of_words(words: Any) -> Any:
    """A balanced phrase."""
    if len(words) == 1:
        return Phrase.Word(int(words[0]))
    half = len(words) // 2
    return Phrase.Pair(of_words(words[:half]), of_words(words[half:]))


def state(phrase: Any, table: Any, left: Any, right: Any, bias: Any, width: int, fork: bool) -> Any:
    """The state at the root of a phrase."""

    @az.fix
    def of(self: Any, phrase: Phrase) -> az.Array[az.f64, width]:
        def pair(first: Any, second: Any) -> Any:
            one, other = both(fork, lambda: self(first), lambda: self(second))
            return az.tanh(left @ one + right @ other + bias)

        return az.case(phrase, Word=lambda k: az.tanh(table[k]), Pair=pair)

    return of(phrase)


def tree_network_of(width: int, fork: bool) -> Callable[..., Any]:
    """The sum of squares of the state of a phrase, for states of so many numbers."""

    def tree_network(
        phrase: Phrase,
        table: az.Array[az.f64, "words", width],
        left: az.Array[az.f64, width, width],
        right: az.Array[az.f64, width, width],
        bias: az.Array[az.f64, width],
    ) -> az.f64:
        return az.sum(state(phrase, table, left, right, bias, width, fork) ** 2)

    return tree_network


# The likelihood of an evolutionary tree


@az.data
class Tree:
    """Branches to both children with their lengths; a leaf is a row of the alignment."""

    class Species:
        row: az.i64

    class Split:
        left: "Tree"
        to_left: az.f64
        right: "Tree"
        to_right: az.f64


def phylogeny_of(sites: int, fork: bool) -> Callable[..., Any]:
    """The logarithm of the likelihood of so many sites, by Felsenstein's pruning and the model of Jukes and Cantor."""

    def along(length: Any, below: Any) -> Any:
        decay = az.exp(-length * 4 / 3)
        change = az.array(
            [[az.where(i == j, 0.25 + 0.75 * decay, 0.25 - 0.25 * decay) for j in range(4)] for i in range(4)]
        )
        return below @ change

    def phylogeny(tree: Tree, letters: az.Array[az.i64, "species", sites]) -> az.f64:
        @az.fix
        def below(self: Any, tree: Tree) -> az.Array[az.f64, sites, 4]:
            def split(left: Any, to_left: Any, right: Any, to_right: Any) -> Any:
                one, other = both(fork, lambda: self(left), lambda: self(right))
                return along(to_left, one) * along(to_right, other)

            return az.case(
                tree,
                Species=lambda row: az.where(letters[row][:, None] == az.arange(4), 1.0, 0.0),
                Split=split,
            )

        return az.sum(az.log(az.sum(0.25 * below(tree), 1)))

    return phylogeny


def of_species(count: int, lengths: Any, first: int = 0) -> Any:
    """A balanced tree of so many species, whose branches have the lengths that ``lengths`` gives in turn."""
    if count == 1:
        return Tree.Species(first)
    half = count // 2
    left, right = of_species(half, lengths, first), of_species(count - half, lengths, first + half)
    return Tree.Split(left, float(next(lengths)), right, float(next(lengths)))
