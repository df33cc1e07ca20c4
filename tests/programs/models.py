"""Small models in the higher-order fragment: arrays in data and in recursions, interpreters, quadrature, simulations.

They are tested as the programs of ``functions.py`` are. Numbers are quarters, and results exact.

    for case in MODELS:
        for arguments in case.arguments:
            assert az.evaluate(case.program)(*arguments) == case.numpy(*arguments)

``FAILING`` holds programs that fail inside of a recursion, each with the arguments of a call and what it raises.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import adze as az

from .case import NONE, A, Arguments, Case, Matrix, Vector, X, Y, entering, numbers
from .functions import EMPTY, SOME, List, Tree, Unary, folded, folded_tree, linked, listed, mapped

MODELS: list[Case] = []
case = entering(MODELS)

Square = az.Array[az.f64, "n n"]
M = numbers(3, 3)


# Array code inside of recursive functions


@case(lambda a, k: np.linalg.matrix_power(a, k), (M, 5), (M, 0), (numbers(0, 0), 3))
def power_of_a_matrix(a: Square, k: az.i64) -> Square:
    identity = az.generate(az.size(a), lambda i: az.generate(az.size(a), lambda j: az.where(i == j, 1.0, 0.0)))

    @az.fix
    def power(self: Any, a: Square, k: az.i64) -> Square:
        def more() -> Any:
            root = self(a @ a, k // 2)
            return az.cond(k % 2 == 1, lambda: a @ root, lambda: root)

        return az.cond(k == 0, lambda: identity, more)

    return power(a, k)


def _relaxed(x: Any, k: int) -> Any:
    for _ in range(k):
        x = x / 2 + np.roll(x, 1) / 4 + x.sum() / 4
    return x


@case(_relaxed, (X, 3), (X, 0), (NONE, 2))
def relaxed(x: Vector, k: az.i64) -> Vector:
    """A map, a gather and a sum in each call."""
    n = az.size(x)

    @az.fix
    def go(self: Any, x: Vector, k: az.i64) -> Vector:
        def step() -> Any:
            total = az.sum(x)
            return self(az.generate(n, lambda i: x[i] / 2 + x[(i + n - 1) % n] / 4 + total / 4), k - 1)

        return az.cond(k == 0, lambda: x, step)

    return go(x, k)


@case(
    lambda xs, counts: counts + np.bincount(np.array(listed(xs), np.int64), minlength=len(counts)),
    (linked([3, 1, 3, 0]), np.arange(5)),
    (EMPTY, np.zeros(0, np.int64)),
)
def bins_of_a_list(xs: List[az.i64], counts: az.Array[az.i64, "m"]) -> az.Array[az.i64, "m"]:
    """The accumulator of a tail recursion is an array, which is updated."""
    bins = az.Array[az.i64, "m"]
    go = az.fix(
        lambda self, xs, found: az.case(
            xs, Nil=lambda: found, Cons=lambda k, rest: self(rest, az.update(found, k, found[k] + 1))
        ),
        List[az.i64],
        bins,
        result=bins,
    )
    return go(xs, counts)


@case(lambda x, keys: np.searchsorted(x, keys), (np.sort(X), Y), (NONE, Y), (np.sort(X), NONE))
def bisection(x: Vector, keys: az.Array[az.f64, "m"]) -> az.Array[az.i64, "m"]:
    """A recursion for each element of a map, which reads an array from outside."""

    @az.fix
    def place(self: Any, low: az.i64, high: az.i64, key: az.f64) -> az.i64:
        middle = (low + high) // 2
        lower = lambda: az.cond(x[middle] < key, lambda: self(middle + 1, high, key), lambda: self(low, middle, key))  # noqa: E731
        return az.cond(low >= high, lambda: low, lower)

    return az.map(lambda key: place(0, az.size(x), key), keys)


@case(lambda a: (a * 2 + a.sum(1, keepdims=True)).sum(0), (A,), (numbers(0, 3),), (numbers(2, 0),))
def forks_in_a_map(a: Matrix) -> az.Array[az.f64, "m"]:
    """Two branches for each row, and a reduction of the rows by a function."""
    row = az.Array[az.f64, "m"]

    def both(v: Any) -> Any:
        doubled, total = az.par(lambda: v * 2, lambda: az.sum(v))
        return doubled + total

    rows = az.map(both, a)
    add = az.function(lambda v, w: v + w, row, row)
    return az.fori_loop(0, az.size(a), lambda i, s: add(s, rows[i]), az.generate(a.shape[1], lambda _: 0.0))


def _fibonacci(n: int) -> int:
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


@case(lambda n: sum(_fibonacci(k) * _fibonacci(n - k) for k in range(n)), (0,), (5,))
def forks_in_a_loop(n: az.i64) -> az.i64:
    """Forked recursions in each step of a loop, which fork again."""
    fibonacci = az.fix(
        lambda self, n: az.cond(n < 2, lambda: n, lambda: sum(az.par(lambda: self(n - 1), lambda: self(n - 2)))),
        az.i64,
        result=az.i64,
    )

    def step(k: Any, total: Any) -> Any:
        a, b = az.par(lambda: fibonacci(k), lambda: fibonacci(n - k))
        return total + a * b

    return az.fori_loop(0, n, step, 0)


def _mixed(x: Any, k: Any, down: bool = False) -> tuple[Any, Any, bool]:
    if k == 0:
        return x * x * x, k, down
    y, half, flag = _mixed(x, k - np.int32(1), not down)
    return y + np.float32(1), half if flag else half + np.int32(1), not flag


@case(_mixed, (np.float32(1.5), np.int32(7)), (np.float32(-0.5), np.int32(0)))
def mixed_types(x: az.f32, k: az.i32) -> tuple[az.f32, az.i32, az.bool_]:
    """Narrow numbers and truth values in the arguments and results of one recursion."""

    @az.fix
    def go(self: Any, x: az.f32, k: az.i32, down: az.bool_) -> tuple[az.f32, az.i32, az.bool_]:
        def more() -> Any:
            y, half, flag = self(x, k - 1, ~down)
            return y + 1, az.where(flag, half, half + 1), ~flag

        return az.cond(k == 0, lambda: (x * x * x, k, down), more)

    return go(x, k, False)


# Arrays in data


def _chain(xs: Any, v: Any) -> Any:
    return functools.reduce(lambda v, a: a @ v, listed(xs), v)


@case(_chain, (linked([M, M.T, np.eye(3)]), numbers(3)), (EMPTY, numbers(3)))
def list_of_matrices(xs: List[Square], v: Vector) -> Vector:
    go = az.fix(
        lambda self, xs, v: az.case(xs, Nil=lambda: v, Cons=lambda a, rest: self(rest, a @ v)),
        List[Square],
        Vector,
        result=Vector,
    )
    return go(xs, v)


@case(
    lambda xs, k: linked([np.array([k, 2 * k]) * v for v in listed(xs)]), (linked([X[:2], X[2:4]]), 0.5), (EMPTY, 2.0)
)
def list_of_vectors(xs: List[az.Array[az.f64, 2]], k: az.f64) -> List[az.Array[az.f64, 2]]:
    """A map over a list makes new arrays."""
    pair = az.Array[az.f64, 2]
    return mapped(lambda v: az.generate(2, lambda i: v[i] * k * (i + 1)), xs, pair, pair)


@case(lambda x, n: linked([x + k for k in range(n)][::-1]), (X, 3), (NONE, 2), (X, 0))
def arrays_listed_in_a_loop(x: Vector, n: az.i64) -> List[Vector]:
    return az.fori_loop(0, n, lambda k, rest: List.Cons(x + k, rest), List[Vector].Nil())


def vectors(tree: Any, *, n: int) -> Any:
    """A tree of the same form with a vector at each node."""
    if isinstance(tree, Tree.Leaf):
        return tree
    return Tree.Node(vectors(tree.left, n=n), numbers(n, seed=int(4 * tree.value)), vectors(tree.right, n=n))


NUMBERS = Tree.Node(
    Tree.Node(Tree.Leaf(), 1.0, Tree.Leaf()), 0.5, Tree.Node(Tree.Leaf(), 2.0, Tree.Node(Tree.Leaf(), 3.0, Tree.Leaf()))
)
WORDS = vectors(NUMBERS, n=3)
W, U = M / 4, M.T / 2


def _network(tree: Any, w: Any, u: Any, b: Any) -> Any:
    if isinstance(tree, Tree.Leaf):
        return b
    left, right = _network(tree.left, w, u, b), _network(tree.right, w, u, b)
    return np.maximum(w @ left + u @ right + tree.value, 0)


@case(_network, (WORDS, W, U, numbers(3, seed=2)), (Tree.Leaf(), W, U, numbers(3)))
def recursive_network(tree: Tree[Vector], w: Square, u: Square, b: Vector) -> Vector:
    """A state for each node of a tree, from those of its children: products with shared weights."""
    return folded_tree(tree, Vector, Vector, b, lambda l, x, r: az.maximum(w @ l + u @ r + x, 0.0), fork=True)


@az.data
class Phylogeny:
    class Species:
        observed: az.Array[az.f64, "states sites"]

    class Ancestor:
        left: "Phylogeny"
        to_left: az.Array[az.f64, "states states"]
        right: "Phylogeny"
        to_right: az.Array[az.f64, "states states"]


def _partial(tree: Any) -> Any:
    if isinstance(tree, Phylogeny.Species):
        return tree.observed
    return (tree.to_left @ _partial(tree.left)) * (tree.to_right @ _partial(tree.right))


def species(seed: int) -> Any:
    return Phylogeny.Species((np.arange(4)[:, None] == (np.arange(5) * 3 + seed) % 4).astype(float))


RATES = [numbers(4, 4, seed=seed) / 4 for seed in range(4)]
CHERRY = Phylogeny.Ancestor(species(0), RATES[0], species(1), RATES[1])


@case(
    lambda tree, frequencies, counts: frequencies @ _partial(tree) * counts,
    (Phylogeny.Ancestor(CHERRY, RATES[2], species(2), RATES[3]), np.array([0.25, 0.5, 0.0, 0.25]), numbers(5)),
    (species(3), np.ones(4), np.ones(5)),
)
def phylogeny(
    tree: Phylogeny, frequencies: az.Array[az.f64, "states"], counts: az.Array[az.f64, "sites"]
) -> az.Array[az.f64, "sites"]:
    """Felsenstein's pruning: the likelihood of each site, by a matrix for each branch and an array for each node."""
    partial = az.Array[az.f64, "states sites"]

    @az.fix
    def likelihood(self: Any, tree: Phylogeny) -> partial:
        def ancestor(left: Any, to_left: Any, right: Any, to_right: Any) -> Any:
            a, b = az.par(lambda: self(left), lambda: self(right))
            return (to_left @ a) * (to_right @ b)

        return az.case(tree, Species=lambda observed: observed, Ancestor=ancestor)

    return frequencies @ likelihood(tree) * counts


# Interpreters


@az.data
class Expression:
    """The lambda calculus with numbers; variables count the binders between."""

    class Number:
        value: az.f64

    class Variable:
        index: az.i64

    class Sum:
        left: "Expression"
        right: "Expression"

    class Product:
        left: "Expression"
        right: "Expression"

    class If:
        test: "Expression"
        positive: "Expression"
        other: "Expression"

    class Lambda:
        body: "Expression"

    class Call:
        function: "Expression"
        argument: "Expression"


@az.data
class Meaning:
    class Float:
        value: az.f64

    class Closure:
        body: Expression
        environment: "List[Meaning]"


def interpreted(expression: Any, environment: Any) -> Any:
    """The meaning of an expression: its number, or a closure."""
    meaning = List[Meaning]

    def number(m: Any) -> Any:
        return az.case(m, Float=lambda v: v, Closure=lambda *_: 0.0)

    @az.fix
    def looked_up(self: Any, environment: meaning, index: az.i64) -> Meaning:
        return az.case(
            environment,
            Nil=lambda: Meaning.Float(0.0),
            Cons=lambda m, rest: az.cond(index == 0, lambda: m, lambda: self(rest, index - 1)),
        )

    @az.fix
    def run(self: Any, e: Expression, environment: meaning) -> Meaning:
        def on_numbers(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            return lambda a, b: Meaning.Float(f(number(self(a, environment)), number(self(b, environment))))

        def branch(test: Any, positive: Any, other: Any) -> Any:
            chosen = number(self(test, environment)) > 0
            return az.cond(chosen, lambda: self(positive, environment), lambda: self(other, environment))

        def call(function: Any, argument: Any) -> Any:
            f, x = az.par(lambda: self(function, environment), lambda: self(argument, environment))
            return az.case(
                f, Float=lambda _: Meaning.Float(0.0), Closure=lambda body, outer: self(body, meaning.Cons(x, outer))
            )

        return az.case(
            e,
            Number=lambda v: Meaning.Float(v),
            Variable=lambda k: looked_up(environment, k),
            Sum=on_numbers(lambda a, b: a + b),
            Product=on_numbers(lambda a, b: a * b),
            If=branch,
            Lambda=lambda body: Meaning.Closure(body, environment),
            Call=call,
        )

    return number(run(expression, environment))


E = Expression
ZERO, ONE, TWO = E.Variable(0), E.Variable(1), E.Variable(2)
TWICE = E.Lambda(E.Lambda(E.Call(ONE, E.Call(ONE, ZERO))))  # f -> x -> f (f x)
FACTORIAL = E.Lambda(  # self -> n -> if n > 0 then n * self self (n - 1) else 1
    E.Lambda(E.If(ZERO, E.Product(ZERO, E.Call(E.Call(ONE, ONE), E.Sum(ZERO, E.Number(-1.0)))), E.Number(1.0)))
)
GLOBAL = linked([Meaning.Float(2.5)])


def _interpreted(expression: Any, environment: Any) -> float:
    def run(e: Any, env: tuple[Any, ...]) -> Any:
        match e:
            case E.Number(v):
                return v
            case E.Variable(k):
                return env[k] if k < len(env) else 0.0
            case E.Sum(a, b):
                return run(a, env) + run(b, env)
            case E.Product(a, b):
                return run(a, env) * run(b, env)
            case E.If(t, a, b):
                return run(a if run(t, env) > 0 else b, env)
            case E.Lambda(body):
                return lambda x: run(body, (x, *env))
        return run(e.function, env)(run(e.argument, env))

    return float(run(expression, tuple(m.value for m in listed(environment))))


@case(
    _interpreted,
    (E.Call(E.Call(TWICE, E.Lambda(E.Sum(E.Product(ZERO, ZERO), ONE))), E.Number(0.5)), GLOBAL),
    (E.Call(E.Call(FACTORIAL, FACTORIAL), E.Number(5.0)), EMPTY),
    (E.If(TWO, ONE, E.Sum(ZERO, E.Number(0.25))), GLOBAL),
)
def lambda_calculus(expression: Expression, environment: List[Meaning]) -> az.f64:
    """An interpreter with closures, whose environment is a list of what may be closures."""
    return interpreted(expression, environment)


@az.data
class Instruction:
    class Push:
        value: az.f64

    class Add: ...

    class Multiply: ...

    class Duplicate: ...


def _machine(code: Any, x: float) -> float:
    stack = [x]
    for instruction in listed(code):
        match instruction:
            case Instruction.Push(v):
                stack.append(v)
            case Instruction.Duplicate():
                stack.append(stack[-1])
            case _:
                a, b = stack.pop(), stack.pop()
                stack.append(a + b if isinstance(instruction, Instruction.Add) else a * b)
    return stack[-1]


I = Instruction


@case(
    _machine,
    (linked([I.Duplicate(), I.Multiply(), I.Push(0.5), I.Add(), I.Push(-2.0), I.Multiply()]), 1.5),
    (EMPTY, 0.25),
)
def stack_machine(code: List[Instruction], x: az.f64) -> az.f64:
    """Tail recursion over code, with a stack; a stack that is too short counts as zeros."""
    stack = List[az.f64]

    def pop(s: Any) -> Any:
        return az.case(s, Nil=lambda: (0.0, stack.Nil()), Cons=lambda top, rest: (top, rest))

    @az.fix
    def run(self: Any, code: List[Instruction], s: stack) -> az.f64:
        def step(instruction: Any, rest: Any) -> Any:
            a, below = pop(s)
            b, last = pop(below)
            after = az.case(
                instruction,
                Push=lambda v: stack.Cons(v, s),
                Add=lambda: stack.Cons(a + b, last),
                Multiply=lambda: stack.Cons(a * b, last),
                Duplicate=lambda: stack.Cons(a, s),
            )
            return self(rest, after)

        return az.case(code, Nil=lambda: pop(s)[0], Cons=step)

    return run(code, stack.Cons(x, stack.Nil()))


# Quadrature, simulation, geometry


def _simpson(low: float, high: float, a: float, tolerance: float) -> tuple[float, int]:
    def f(x: float) -> float:
        return abs(x - a) * x * x

    def part(low: float, high: float) -> tuple[float, int]:
        def rule(l: float, h: float) -> float:
            return (h - l) * (f(l) + 4 * f((l + h) / 2) + f(h))

        middle = (low + high) / 2
        whole, halves = rule(low, high), rule(low, middle) + rule(middle, high)
        if abs(whole - halves) <= tolerance or high - low < 0.05:
            return halves, 1
        (x, m), (y, n) = part(low, middle), part(middle, high)
        return x + y, m + n

    return part(low, high)


@case(_simpson, (0.0, 2.0, 0.75, 0.25), (-1.0, 1.0, 4.0, 0.25))
def adaptive_quadrature(low: az.f64, high: az.f64, a: az.f64, tolerance: az.f64) -> tuple[az.f64, az.i64]:
    """Simpson's rule (six times the integral), and in how many parts; both halves side by side."""

    @az.fix
    def integral(self: Any, f: Unary, low: az.f64, high: az.f64) -> tuple[az.f64, az.i64]:
        def rule(l: Any, h: Any) -> Any:
            return (h - l) * (f(l) + 4 * f((l + h) / 2) + f(h))

        middle = (low + high) / 2
        whole, halves = rule(low, high), rule(low, middle) + rule(middle, high)

        def divided() -> Any:
            (x, m), (y, n) = az.par(lambda: self(f, low, middle), lambda: self(f, middle, high))
            return x + y, m + n

        small = (abs(whole - halves) <= tolerance) | (high - low < 0.05)
        return az.cond(small, lambda: (halves, 1), divided)

    return integral(lambda x: abs(x - a) * x * x, low, high)


def _particle(x: float, v: float, k: int) -> tuple[float, float]:
    for _ in range(k):
        x, v = (x + v / 2, v - x / 2) if x < 3 else (x - 1.0, -v)
    return x, v


BODIES = linked([(0.5, 1.0), (-2.0, 0.25), (4.0, 0.0), (1.0, -1.0)])


@case(lambda bodies, k: linked([_particle(x, v, k) for x, v in listed(bodies)]), (BODIES, 6), (BODIES, 0), (EMPTY, 3))
def particles(bodies: List[tuple[az.f64, az.f64]], k: az.i64) -> List[tuple[az.f64, az.f64]]:
    """Each is stepped by a tail recursion, and all of them side by side."""
    pair = tuple[az.f64, az.f64]

    @az.fix
    def stepped(self: Any, x: az.f64, v: az.f64, k: az.i64) -> pair:
        free, bounced = lambda: self(x + v / 2, v - x / 2, k - 1), lambda: self(x - 1.0, -v, k - 1)
        return az.cond(k == 0, lambda: (x, v), lambda: az.cond(x < 3, free, bounced))

    go = az.fix(
        lambda self, bodies: az.case(
            bodies,
            Nil=lambda: List[pair].Nil(),
            Cons=lambda b, rest: List[pair].Cons(*az.par(lambda: stepped(*b, k), lambda: self(rest))),
        ),
        List[pair],
        result=List[pair],
    )
    return go(bodies)


@az.data
class Point:
    x: az.f64
    y: az.f64
    z: az.f64


@az.data
class Quaternion:
    real: az.f64
    vector: Point


def _rotated(q: Any, v: Any) -> Any:
    s, u = q.real, np.array([q.vector.x, q.vector.y, q.vector.z])
    w = np.array([v.x, v.y, v.z])
    return Point(*map(float, w + 2 * np.cross(u, np.cross(u, w) + s * w)))


@case(
    _rotated,
    (Quaternion(0.5, Point(0.5, -0.5, 0.5)), Point(1.0, 2.0, -0.25)),
    (Quaternion(1.0, Point(0.0, 0.0, 0.0)), Point(1.0, 2.0, 3.0)),
)
def rotated(q: Quaternion, v: Point) -> Point:
    """A vector by a quaternion: records of records, and functions on them."""

    @az.function
    def cross(a: Point, b: Point) -> Point:
        return Point(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)

    @az.function
    def plus(a: Point, b: Point, s: az.f64) -> Point:
        return Point(a.x + s * b.x, a.y + s * b.y, a.z + s * b.z)

    return plus(v, cross(q.vector, plus(cross(q.vector, v), v, q.real)), 2.0)


def _escape(c: complex, most: int) -> int:
    z, k = 0j, 0
    while k < most and abs(z.real) < 2 and abs(z.imag) < 2:
        z, k = z * z + c, k + 1
    return k


POINTS = np.array([0.25, -1.0, 0.5, -1.75])


@case(
    lambda x, y, most: np.array([_escape(complex(a, b), most) for a, b in zip(x, y, strict=True)], np.int64),
    (POINTS, POINTS[::-1].copy(), 4),
    (NONE, NONE, 3),
)
def escape_times(x: Vector, y: Vector, most: az.i64) -> az.Array[az.i64, "n"]:
    """A tail recursion for each pair of elements."""
    go = az.fix(
        lambda self, a, b, u, v, k: az.cond(
            (k < most) & (abs(u) < 2) & (abs(v) < 2),
            lambda: self(a, b, u * u - v * v + a, 2 * u * v + b, k + 1),
            lambda: k,
        ),
        *[az.f64] * 4,
        az.i64,
        result=az.i64,
    )
    return az.map(lambda a, b: go(a, b, 0.0, 0.0, 0), x, y)


def _distance(a: list[int], b: list[int]) -> int:
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return _distance(a[1:], b[1:])
    return 1 + min(_distance(a[1:], b), _distance(a, b[1:]), _distance(a[1:], b[1:]))


@case(
    lambda a, b: _distance(list(a), list(b)),
    (np.array([1, 2, 3, 4]), np.array([2, 3, 5])),
    (np.zeros(0, np.int64), np.array([1, 2])),
)
def edit_distance(a: az.Array[az.i64, "n"], b: az.Array[az.i64, "m"]) -> az.i64:
    @az.fix
    def go(self: Any, i: az.i64, j: az.i64) -> az.i64:
        left = (az.size(a) - i) + (az.size(b) - j)

        def other() -> Any:
            ways = az.par(lambda: self(i + 1, j), lambda: self(i, j + 1), lambda: self(i + 1, j + 1))
            return 1 + az.minimum(az.minimum(ways[0], ways[1]), ways[2])

        differ = lambda: az.cond(a[i] == b[j], lambda: self(i + 1, j + 1), other)  # noqa: E731
        return az.cond((i == az.size(a)) | (j == az.size(b)), lambda: left, differ)

    return go(0, 0)


# Programs that fail inside of a recursion


@dataclass(frozen=True)
class Failing:
    """A program with the arguments of a call that fails, and the error: its class, and a part of what it says."""

    program: az.Program
    arguments: Arguments
    error: type[Exception]
    says: str


FAILING: list[Failing] = []


def failing(error: type[Exception], says: str, *arguments: Any) -> Callable[[Callable[..., Any]], az.Program]:
    """Enter a program that fails for these arguments; the error names the line that is marked in it."""

    def add(function: Callable[..., Any]) -> az.Program:
        FAILING.append(Failing(az.program(function), arguments, error, says))
        return FAILING[-1].program

    return add


@failing(IndexError, "index 5 is out of range for axis 0", X)
def past_the_end(x: Vector) -> az.f64:
    go = az.fix(lambda self, k: x[k] + self(k + 1), az.i64, result=az.f64)  # fails
    return go(0)


@failing(ZeroDivisionError, "", SOME)
def division_in_a_list(xs: List[az.f64]) -> az.i64:
    whole = lambda x: x.astype(az.i64)  # noqa: E731
    return folded(xs, az.f64, az.i64, 0, lambda x, rest: 12 // whole(x) + rest)  # fails


@failing(IndexError, "index -3", numbers(3), 3)
def first_of_two_branches(x: Vector, k: az.i64) -> az.f64:
    """Both branches of a fork fail; the error is that of the first."""

    def read(i: Any) -> Any:
        last = lambda: x[i]  # noqa: E731 # fails
        return az.fix(lambda self, j: az.cond(j == 0, last, lambda: self(j - 1)), az.i64, result=az.f64)(k)

    return sum(az.par(lambda: read(-k), lambda: read(k + 4)))
