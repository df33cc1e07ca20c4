"""Further programs of the higher-order fragment: mutual recursion, functions and arrays in data, data in loops, forks.

They take the declarations of ``functions.py``, and are tested as the programs there. Numbers are quarters, and results
exact.

    for case in RECURSION:
        for arguments in case.arguments:
            assert az.evaluate(case.program)(*arguments) == case.numpy(*arguments)

Programs that fail inside of a recursion are ``FAILING``: each with what it raises.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from load import benchmark

import adze as az

from .case import NONE, Case, Vector, X, entering
from .functions import (
    BUSH,
    CHAIN,
    EMPTY,
    LEAF,
    SINGLE,
    SOME,
    List,
    Maybe,
    Tree,
    Unary,
    folded,
    linked,
    listed,
    mapped,
)

RECURSION: list[Case] = []
case = entering(RECURSION)
product = benchmark("functions").product

Integers = az.Array[az.i64, "m"]
Square = az.Array[az.f64, "n n"]
Pair = tuple[az.f64, az.f64]
WHOLE = linked([3, 1, 2, 3, 0])


# Mutual recursion: definitions that mention each other


@az.fix
def even(self: Any, k: az.i64) -> az.bool_:
    return az.cond(k == 0, lambda: True, lambda: odd(k - 1))


@az.fix
def odd(self: Any, k: az.i64) -> az.bool_:
    return az.cond(k == 0, lambda: False, lambda: even(k - 1))


@case(lambda x: x % 2 == 1, (np.array([3, 0, 8]),), (np.zeros(0, np.int64),))
def parity_in_a_map(x: Integers) -> az.Array[az.bool_, "m"]:
    return az.map(lambda k: odd(k), x)


@az.fix
def female(self: Any, n: az.i64) -> az.i64:
    return az.cond(n == 0, lambda: 1, lambda: n - male(self(n - 1)))


@az.fix
def male(self: Any, n: az.i64) -> az.i64:
    return az.cond(n == 0, lambda: 0, lambda: n - female(self(n - 1)))


def _hofstadter(n: int) -> tuple[int, int]:
    f, m = [1], [0]
    for k in range(1, n + 1):
        m.append(k - f[m[k - 1]])
        f.append(k - m[f[k - 1]])
    return f[n], m[n]


@case(_hofstadter, (0,), (1,), (9,))
def hofstadter(n: az.i64) -> tuple[az.i64, az.i64]:
    """Nested calls of two functions, forked."""
    return az.par(lambda: female(n), lambda: male(n))


@az.fix
def halvings(self: Any, x: az.f64) -> az.f64:
    return az.cond(x < 1, lambda: x, lambda: 1 + self(x / 2))


def _halvings(x: float) -> float:
    return x if x < 1 else 1 + _halvings(x / 2)


@case(
    lambda x: (np.array([v for v in x if _halvings(v) > 2]), _halvings(sum(x)), _halvings(2 * sum(x))),
    (np.array([4.0, 1.0, 3.0, 0.5]),),
    (np.array([0.25]),),
)
def forked_with_a_size(x: Vector) -> tuple[az.Array[az.f64, "k"], az.f64, az.f64]:
    """A recursion decides how many numbers a branch gives."""
    total = az.sum(x)
    return az.par(lambda: az.filter(lambda v: halvings(v) > 2, x), lambda: halvings(total), lambda: halvings(2 * total))


@az.fix
def collatz(self: Any, n: az.i64, steps: az.i64) -> az.i64:
    down, up = lambda: halved(n, steps + 1), lambda: tripled(n, steps + 1)
    return az.cond(n == 1, lambda: steps, lambda: az.cond(n % 2 == 0, down, up))


@az.function
def halved(n: az.i64, steps: az.i64) -> az.i64:
    return collatz(n // 2, steps)


@az.function
def tripled(n: az.i64, steps: az.i64) -> az.i64:
    return halved(3 * n + 1, steps + 1)


def _collatz(n: int) -> int:
    return 0 if n == 1 else 1 + _collatz(3 * n + 1 if n % 2 else n // 2)


@case(lambda x: max(map(_collatz, x), default=0), (np.array([6, 1, 7]),), (np.zeros(0, np.int64),))
def collatz_in_a_reduction(x: Integers) -> az.i64:
    """A ring of three functions, inside of a map whose results are reduced."""
    return az.reduce(lambda a, b: az.maximum(a, b), 0, az.map(lambda n: collatz(n, 0), x))


@az.data
class Rose:
    class Node:
        value: az.f64
        children: "List[Rose]"


def rose(value: float, *children: Any) -> Any:
    return Rose.Node(value, linked(children))


@az.fix
def rose_sum(self: Any, tree: Rose) -> az.f64:
    return az.case(tree, Node=lambda value, children: value + children_sum(children) / 2)


@az.fix
def children_sum(self: Any, trees: List[Rose]) -> az.f64:
    def both(first: Any, rest: Any) -> Any:
        return sum(az.par(lambda: rose_sum(first), lambda: self(rest)))

    return az.case(trees, Nil=lambda: 0.0, Cons=both)


def _rose_sum(tree: Any) -> float:
    return tree.value + sum(map(_rose_sum, listed(tree.children))) / 2


@case(_rose_sum, (rose(1.5, rose(2.0), rose(-3.0, rose(0.5), rose(4.0), rose(1.0)), rose(8.0)),), (rose(1.0),))
def rose_tree(tree: Rose) -> az.f64:
    """A type through another, and a function for each of the two."""
    return rose_sum(tree)


@az.fix
def best_for_me(self: Any, tree: Tree[az.f64]) -> az.f64:
    def node(left: Any, value: Any, right: Any) -> Any:
        a, b = az.par(lambda: best_for_you(left), lambda: best_for_you(right))
        return value + az.maximum(a, b)

    return az.case(tree, Leaf=lambda: 0.0, Node=node)


@az.fix
def best_for_you(self: Any, tree: Tree[az.f64]) -> az.f64:
    def node(left: Any, value: Any, right: Any) -> Any:
        a, b = az.par(lambda: best_for_me(left), lambda: best_for_me(right))
        return az.minimum(a, b) - value

    return az.case(tree, Leaf=lambda: 0.0, Node=node)


def _minimax(tree: Any, sign: int = 1) -> float:
    if isinstance(tree, Tree.Leaf):
        return 0.0
    pick = max if sign > 0 else min
    return sign * tree.value + pick(_minimax(tree.left, -sign), _minimax(tree.right, -sign))


@case(_minimax, (BUSH,), (CHAIN,), (LEAF,))
def minimax(tree: Tree[az.f64]) -> az.f64:
    """Forks in both of two functions that call each other."""
    return best_for_me(tree)


PLUS, TIMES, OPEN, CLOSE, END = -1, -2, -3, -4, -5
Parsed = tuple[az.i64, az.i64]


def parser(tokens: Any) -> Any:
    """Sums of products of numbers and sums in brackets, by recursive descent: the value and the next place.

    The three functions mention each other through a record, for they use an array of the program.
    """

    @az.fix
    def grammar(self: Any, bracket: az.bool_) -> az.Function[[az.i64], Parsed]:
        def factor(p: Any) -> Any:
            def inside() -> Any:
                value, q = self(False)(p + 1)
                return value, q + 1

            return az.cond(tokens[p] == OPEN, inside, lambda: (tokens[p], p + 1))

        def chain(operator: int, part: Any, combine: Any) -> Any:
            def more(this: Any, value: Any, p: Any) -> Any:
                def on() -> Any:
                    other, q = part(p + 1)
                    return this(combine(value, other), q)

                return az.cond(tokens[p] == operator, on, lambda: (value, p))

            return az.fix(more, az.i64, az.i64, result=Parsed)

        product = chain(TIMES, factor, lambda a, b: a * b)
        total = chain(PLUS, lambda p: product(*factor(p)), lambda a, b: a + b)
        return lambda p: total(*product(*factor(p)))

    return grammar(True)


@case(
    lambda tokens: (2 + 3 * (4 + 1) * 2, 13) if len(tokens) > 3 else (7, 1),
    (np.array([2, PLUS, 3, TIMES, OPEN, 4, PLUS, OPEN, 1, CLOSE, CLOSE, TIMES, 2, END]),),
    (np.array([7, END]),),
)
def recursive_descent(tokens: Integers) -> Parsed:
    return parser(tokens)(0)


# Functions in data, closures as states


@az.data
class Stream:
    """Numbers without end, of which each is made when it is asked for."""

    head: az.i64
    tail: "az.Function[[], Stream]"


@case(lambda n, k: linked([n + i * i for i in range(k)]), (3, 5), (0, 0))
def stream(n: az.i64, k: az.i64) -> List[az.i64]:
    @az.fix
    def squares(self: Any, i: az.i64) -> Stream:
        return Stream(n + i * i, lambda: self(i + 1))

    @az.fix
    def taken(self: Any, s: Stream, k: az.i64) -> List[az.i64]:
        return az.cond(k == 0, lambda: List.Nil(), lambda: List.Cons(s.head, self(s.tail(), k - 1)))

    return taken(squares(0), k)


@az.data
class Dual:
    primal: az.f64
    tangent: az.f64


@az.data
class Step:
    """A function on numbers, and what it does to slopes."""

    at: Unary
    slope: az.Function[[az.f64, az.f64], az.f64]


@case(lambda x, n: (x ** (2**n), 2**n * x ** (2**n - 1)), (1.5, 2), (-0.5, 3), (2.0, 0))
def records_of_functions(x: az.f64, n: az.i64) -> tuple[az.f64, az.f64]:
    """A list of steps, each with its derivative, applied by forward mode."""
    square = Step(lambda v: v * v, lambda v, d: 2 * v * d)
    steps = az.fori_loop(0, n, lambda _, rest: List.Cons(square, rest), List[Step].Nil())
    go = az.fix(
        lambda self, steps, d: az.case(
            steps,
            Nil=lambda: d,
            Cons=lambda f, rest: self(rest, Dual(f.at(d.primal), f.slope(d.primal, d.tangent))),
        ),
        List[Step],
        Dual,
        result=Dual,
    )
    result = go(steps, Dual(x, 1.0))
    return result.primal, result.tangent


@case(lambda x, n: x + 3 * n if n > 0 else x, (0.5, 4), (0.5, 0))
def closure_in_a_while(x: az.f64, n: az.i64) -> az.f64:
    """The state is a function that grows by a closure each time, and a number of times."""
    grow = az.function(lambda f: az.function(lambda z: f(z) + 3, az.f64), Unary)
    start = az.function(lambda z: z, az.f64)
    _, f = az.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, grow(s[1])), (0, start))
    return f(x)


@case(lambda x, n: x * 3**n, (0.5, 3), (-2.0, 0))
def church_numeral(x: az.f64, n: az.i64) -> az.f64:
    """A recursion that gives functions."""

    @az.fix
    def times(self: Any, f: Unary, n: az.i64) -> Unary:
        def more() -> Any:
            rest = self(f, n - 1)
            return az.function(lambda z: f(rest(z)), az.f64)

        return az.cond(n == 0, lambda: az.function(lambda z: z, az.f64), more)

    return times(lambda z: 3 * z, n)(x)


@case(lambda x, up: (x + 1) * 2 if up else x * 2 + 1, (1.5, True), (1.5, False))
def functions_in_maybe(x: az.f64, up: az.bool_) -> az.f64:
    """Optional functions, of which one is there."""
    there, none = Maybe[Unary].Just(lambda z: z + 1), Maybe[Unary].Nothing()
    first, last = az.cond(up, lambda: (there, none), lambda: (none, there))

    def applied(f: Any, z: Any) -> Any:
        return az.case(f, Nothing=lambda: z, Just=lambda f: f(z))

    return applied(last, applied(first, x) * 2)


# Continuations and accumulators


@case(lambda xs: math.prod([x + 1 for x in listed(xs)], start=1.0), (SOME,), (SINGLE,), (EMPTY,))
def continuation_passing(xs: List[az.f64]) -> az.f64:
    """What is left to do is an argument."""
    go = az.fix(
        lambda self, xs, then: az.case(
            xs,
            Nil=lambda: then(1.0),
            Cons=lambda x, rest: self(rest, lambda z: then((x + 1) * z)),
        ),
        List[az.f64],
        Unary,
        result=az.f64,
    )
    return go(xs, lambda z: z)


def _early(xs: Any) -> float:
    values = listed(xs)
    return -1.0 if 0.0 in values else math.prod(values, start=1.0)


@case(_early, (SOME,), (linked([2.0, 0.0, 4.0]),), (EMPTY,))
def two_continuations(xs: List[az.f64]) -> az.f64:
    """One for success, and one for failure, which leaves the recursion at once."""
    go = az.fix(
        lambda self, xs, then, leave: az.case(
            xs,
            Nil=lambda: then(1.0),
            Cons=lambda x, rest: az.cond(x == 0, lambda: leave(), lambda: self(rest, lambda z: then(x * z), leave)),
        ),
        List[az.f64],
        Unary,
        az.Function[[], az.f64],
        result=az.f64,
    )
    return go(xs, lambda z: z, lambda: -1.0)


@case(lambda n: n * (n + 1) // 2, (0,), (2000,))
def tail_recursion(n: az.i64) -> az.i64:
    go = az.fix(
        lambda self, k, s: az.cond(k == 0, lambda: s, lambda: self(k - 1, s + k)), az.i64, az.i64, result=az.i64
    )
    return go(n, 0)


@case(lambda n: (n / 4, n), (0,), (2000,))
def deep_list(n: az.i64) -> tuple[az.f64, az.i64]:
    """A list of many numbers, which is made by a loop and summed by a recursion as deep."""
    xs = az.fori_loop(0, n, lambda _, rest: List.Cons(0.25, rest), List[az.f64].Nil())
    pair = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: (0.0, 0), Cons=lambda x, rest: _counted(x, self(rest))),
        List[az.f64],
        result=tuple[az.f64, az.i64],
    )
    return pair(xs)


def _counted(x: Any, rest: Any) -> Any:
    return rest[0] + x, rest[1] + 1


@case(math.gcd, (84, 36), (7, 0), (0, 5))
def greatest_divisor(a: az.i64, b: az.i64) -> az.i64:
    return gcd(a, b)


@az.fix
def gcd(self: Any, a: az.i64, b: az.i64) -> az.i64:
    return az.cond(b == 0, lambda: a, lambda: self(b, a % b))


@case(
    lambda x: (functools.reduce(math.gcd, x, 0), np.array(list(itertools.accumulate(x, math.gcd)), np.int64)),
    (np.array([24, 36, 60, 8]),),
    (np.zeros(0, np.int64),),
)
def recursion_as_operator(x: Integers) -> tuple[az.i64, Integers]:
    """A recursive function combines the elements of a reduction and of a scan."""
    return az.reduce(lambda a, b: gcd(a, b), 0, x), az.scan(lambda a, b: gcd(a, b), 0, x)


@case(lambda n: n - 10 if n > 100 else 91, (99,), (101,), (87,))
def mccarthy(n: az.i64) -> az.i64:
    go = az.fix(lambda self, n: az.cond(n > 100, lambda: n - 10, lambda: self(self(n + 11))), az.i64, result=az.i64)
    return go(n)


def _takeuchi(x: int, y: int, z: int) -> int:
    if x <= y:
        return z
    return _takeuchi(_takeuchi(x - 1, y, z), _takeuchi(y - 1, z, x), _takeuchi(z - 1, x, y))


@case(_takeuchi, (4, 2, 0), (5, 3, 1), (1, 2, 3))
def takeuchi(x: az.i64, y: az.i64, z: az.i64) -> az.i64:
    """Arguments of a recursion are recursions, three side by side."""

    @az.fix
    def tak(self: Any, x: az.i64, y: az.i64, z: az.i64) -> az.i64:
        def deeper() -> Any:
            return self(*az.par(lambda: self(x - 1, y, z), lambda: self(y - 1, z, x), lambda: self(z - 1, x, y)))

        return az.cond(x <= y, lambda: z, deeper)

    return tak(x, y, z)


# Lists: several types, tuples, sorting, searching


@case(
    lambda xs, ys: sum((a * b for a, b in zip(listed(xs), listed(ys), strict=False)), 0.0),
    (SOME, SOME),
    (SOME, SINGLE),
    (EMPTY, SOME),
)
def dot_of_lists(xs: List[az.f64], ys: List[az.f64]) -> az.f64:
    return product(xs, ys, List[az.f64])


ROWS = linked([SOME, linked([0.5] * 5), linked([0.0, 1.0, -1.0, 2.0, 0.25])])


@case(
    lambda rows, x: linked([sum(a * b for a, b in zip(listed(r), listed(x), strict=True)) for r in listed(rows)]),
    (ROWS, SOME),
    (EMPTY, SOME),
)
def list_of_lists_times_list(rows: List[List[az.f64]], x: List[az.f64]) -> List[az.f64]:
    return mapped(lambda row: product(row, x, List[az.f64]), rows, List[az.f64], az.f64)


def merge_sort(xs: Any) -> Any:
    """Split by taking turns, both halves sorted side by side, and merged."""
    items = List[az.f64]

    @az.fix
    def split(self: Any, xs: items) -> tuple[items, items]:
        def second(x: Any, rest: Any) -> Any:
            a, b = self(rest)
            return items.Cons(x, b), a

        return az.case(xs, Nil=lambda: (items.Nil(), items.Nil()), Cons=second)

    @az.fix
    def merge(self: Any, xs: items, ys: items) -> items:
        def compare(x: Any, more: Any) -> Any:
            def pick(y: Any, others: Any) -> Any:
                return az.cond(x <= y, lambda: items.Cons(x, self(more, ys)), lambda: items.Cons(y, self(xs, others)))

            return az.case(ys, Nil=lambda: xs, Cons=pick)

        return az.case(xs, Nil=lambda: ys, Cons=compare)

    @az.fix
    def sort(self: Any, xs: items) -> items:
        def halves() -> Any:
            a, b = split(xs)
            return merge(*az.par(lambda: self(a), lambda: self(b)))

        short = az.case(xs, Nil=lambda: True, Cons=lambda _, r: az.case(r, Nil=lambda: True, Cons=lambda *_: False))
        return az.cond(short, lambda: xs, halves)

    return sort(xs)


@case(lambda xs: linked(sorted(listed(xs))), (SOME,), (linked([1.0, 0.5, 1.0, 0.5]),), (SINGLE,), (EMPTY,))
def merge_sorted(xs: List[az.f64]) -> List[az.f64]:
    return merge_sort(xs)


@case(lambda xs: linked(sorted(listed(xs))), (SOME,), (EMPTY,))
def quick_sorted(xs: List[az.f64]) -> List[az.f64]:
    items = List[az.f64]

    def kept(test: Callable[[Any], Any], xs: Any) -> Any:
        return folded(
            xs, az.f64, items, items.Nil(), lambda x, rest: az.cond(test(x), lambda: items.Cons(x, rest), lambda: rest)
        )

    @az.fix
    def sort(self: Any, xs: items, after: items) -> items:
        def around(x: Any, rest: Any) -> Any:
            low, high = az.par(lambda: kept(lambda y: y < x, rest), lambda: kept(lambda y: y >= x, rest))
            return self(low, items.Cons(x, self(high, after)))

        return az.case(xs, Nil=lambda: after, Cons=around)

    return sort(xs, List.Nil())


def _runs(xs: Any) -> Any:
    return linked([(len(list(group)), x) for x, group in itertools.groupby(listed(xs))])


@case(_runs, (linked([0.5, 0.5, 2.0, 0.5, 0.5, 0.5]),), (SINGLE,), (EMPTY,))
def run_lengths(xs: List[az.f64]) -> List[tuple[az.i64, az.f64]]:
    """Tuples in lists, taken apart and made again."""
    pairs = List[tuple[az.i64, az.f64]]

    def longer(x: Any, rest: Any) -> Any:
        def joined(pair: Any, others: Any) -> Any:
            n, y = pair
            return az.cond(x == y, lambda: pairs.Cons((n + 1, y), others), lambda: pairs.Cons((1, x), rest))

        return az.case(rest, Nil=lambda: pairs.Cons((1, x), rest), Cons=joined)

    return folded(xs, az.f64, pairs, pairs.Nil(), longer)


@case(
    lambda xs: (
        sum(listed(xs), 0.0),
        linked([x > 0.5 for x in listed(xs)]),
        linked([(x, int(x > 0)) for x in listed(xs)]),
        linked([linked([x, 2 * x]) for x in listed(xs)]),
    ),
    (SOME,),
    (EMPTY,),
)
def one_fold_at_four_types(xs: List[az.f64]) -> Any:
    pairs, rows = tuple[az.f64, az.i64], List[az.f64]
    return (
        folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x + rest),
        mapped(lambda x: x > 0.5, xs, az.f64, az.bool_),
        mapped(lambda x: (x, az.where(x > 0, 1, 0)), xs, az.f64, pairs),
        mapped(lambda x: rows.Cons(x, rows.Cons(2 * x, rows.Nil())), xs, az.f64, rows),
    )


def _queens(n: int) -> int:
    return sum(
        len({p[i] + i for i in range(n)}) == n == len({p[i] - i for i in range(n)})
        for p in itertools.permutations(range(n))
    )


@case(_queens, (4,), (5,), (1,), (3,))
def queens(n: az.i64) -> az.i64:
    """How many ways there are to place them; those that stand are a list."""
    columns = List[az.i64]

    @az.fix
    def safe(self: Any, column: az.i64, placed: columns, distance: az.i64) -> az.bool_:
        def apart(other: Any, rest: Any) -> Any:
            hit = (other == column) | (other - column == distance) | (column - other == distance)
            return az.cond(hit, lambda: False, lambda: self(column, rest, distance + 1))

        return az.case(placed, Nil=lambda: True, Cons=apart)

    @az.fix
    def count(self: Any, row: az.i64, placed: columns) -> az.i64:
        def below(column: Any, total: Any) -> Any:
            more = az.cond(safe(column, placed, 1), lambda: self(row + 1, List.Cons(column, placed)), lambda: 0)
            return total + more

        return az.cond(row == n, lambda: 1, lambda: az.fori_loop(0, n, below, 0))

    return count(0, List.Nil())


@case(
    lambda xs, goal: sum(sum(chosen) == goal for n in range(6) for chosen in itertools.combinations(listed(xs), n)),
    (WHOLE, 3),
    (WHOLE, 99),
    (linked([]), 0),
)
def subset_sums(xs: List[az.i64], goal: az.i64) -> az.i64:
    """Each number is taken or not, side by side."""
    go = az.fix(
        lambda self, xs, goal: az.case(
            xs,
            Nil=lambda: az.where(goal == 0, 1, 0),
            Cons=lambda x, rest: sum(az.par(lambda: self(rest, goal), lambda: self(rest, goal - x))),
        ),
        List[az.i64],
        az.i64,
        result=az.i64,
    )
    return go(xs, goal)


@case(lambda xs, x: functools.reduce(lambda s, a: s * x + a, listed(xs), 0.0), (SOME, 0.5), (EMPTY, 0.5))
def horner(xs: List[az.f64], x: az.f64) -> az.f64:
    go = az.fix(
        lambda self, xs, s: az.case(xs, Nil=lambda: s, Cons=lambda a, rest: self(rest, s * x + a)),
        List[az.f64],
        az.f64,
        result=az.f64,
    )
    return go(xs, 0.0)


# Data in loops


@case(lambda n: linked([int(d) for d in np.base_repr(n, 3)] if n else []), (0,), (5,), (46,))
def digits(n: az.i64) -> List[az.i64]:
    """A list made by a loop of unknown length."""
    step = lambda s: (s[0] // 3, List[az.i64].Cons(s[0] % 3, s[1]))  # noqa: E731
    return az.while_loop(lambda s: s[0] > 0, step, (n, List[az.i64].Nil()))[1]


@case(lambda x: (linked(list(x[::-1])), sum((k * v for k, v in enumerate(x)), 0.0)), (X,), (NONE,))
def stack_and_total(x: Vector) -> tuple[List[az.f64], az.f64]:
    """A loop whose state is a list and a number; the list is consumed by another."""
    n = az.size(x)
    xs = az.fori_loop(0, n, lambda k, rest: List.Cons(x[k], rest), List[az.f64].Nil())

    def take(k: Any, state: Any) -> Any:
        rest, total = state
        return az.case(
            rest, Nil=lambda: (List[az.f64].Nil(), total), Cons=lambda a, others: (others, total + a * (n - 1 - k))
        )

    return xs, az.fori_loop(0, n, take, (xs, 0.0))[1]


@case(lambda x: grown_by_insertion(x), (X,), (NONE,))
def tree_in_a_loop(x: Vector) -> Tree[az.f64]:
    @az.fix
    def inserted(self: Any, tree: Tree[az.f64], x: az.f64) -> Tree[az.f64]:
        def node(left: Any, value: Any, right: Any) -> Any:
            lower = lambda: Tree.Node(self(left, x), value, right)  # noqa: E731
            return az.cond(x < value, lower, lambda: Tree.Node(left, value, self(right, x)))

        return az.case(tree, Leaf=lambda: Tree.Node(Tree.Leaf(), x, Tree.Leaf()), Node=node)

    return az.fori_loop(0, az.size(x), lambda k, tree: inserted(tree, x[k]), Tree[az.f64].Leaf())


def grown_by_insertion(x: Any) -> Any:
    def inserted(tree: Any, x: float) -> Any:
        if isinstance(tree, Tree.Leaf):
            return Tree.Node(tree, x, tree)
        if x < tree.value:
            return Tree.Node(inserted(tree.left, x), tree.value, tree.right)
        return Tree.Node(tree.left, tree.value, inserted(tree.right, x))

    return functools.reduce(inserted, x, Tree.Leaf())


@case(lambda n, x: x * 2.0**n if n < 9 else 0.0, (3, 0.5), (0, 0.5))
def maybe_in_a_loop(n: az.i64, x: az.f64) -> az.f64:
    """A state that may come to nothing."""
    none = Maybe[az.f64].Nothing()

    def step(k: Any, state: Any) -> Any:
        return az.case(
            state, Nothing=lambda: none, Just=lambda v: az.cond(k > 7, lambda: none, lambda: Maybe[az.f64].Just(2 * v))
        )

    return az.case(az.fori_loop(0, n, step, Maybe[az.f64].Just(x)), Nothing=lambda: 0.0, Just=lambda v: v)
