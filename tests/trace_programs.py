"""Programs to be traced, and what their traces are looked at with.

``MICRO`` are the smallest programs that show each thing a trace and its reverse pass must do, one a construct: they
are van Hus's examples and what his listings get wrong (*Maintaining parallelism in reverse-mode automatic
differentiation*, sections 3 and 4). ``RECURSIVE`` have recursion, closures, lists, trees and forks, on numbers that can
be moved: what source-to-source derivatives refuse.

    trace = az.trace(program)(*arguments)
    assert is_straight(trace.block) and operations(trace.block) == ["multiply", "add"]
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from programs import numbers
from programs.functions import (
    BUSH,
    F,
    List,
    Maybe,
    Tree,
    Unary,
    folded,
    folded_tree,
    formula,
    grown,
    linked,
    search_tree,
)

import adze as az
from adze.core import trees
from adze.core.data import Data
from adze.core.terms import Atom, Block, Literal, Operation, Variable
from adze.core.types import ArrayType, Scalar, Type, dims, element

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]
Places = az.Array[az.i64, "p"]

# What a trace may hold: no branch, no loop, no function, no structure.
WHOLE = {"custom"}  # and these are as they were written
STRAIGHT = WHOLE | {
    "primitive", "size", "index", "generate", "reduce", "scan", "histogram", "scatter", "argsort", "accumulate",
    "add_to", "foreign", "probe", "require",
}  # fmt: skip
SCALAR = {"primitive", "index", "custom", "probe", "require"}  # what is left where arrays are dropped
KINDS = {"float": "reals", "int": "integers", "bool": "booleans"}
KEPT = {"reals": {"reals"}, "scalars": set(KINDS.values()), "arrays": {*KINDS.values(), "arrays"}}
MODES: tuple[Any, ...] = (
    "reals",
    "scalars",
    "arrays",
    frozenset({"reals", "integers"}),
    frozenset({"reals", "arrays"}),
)


def inside(operation: Operation) -> Sequence[Block]:
    """The blocks of an operation that a trace has made itself."""
    return () if operation.op in WHOLE else operation.blocks


def is_straight(block: Block) -> bool:
    """No control flow is left, at any depth, and the sizes of all that the steps give are known."""
    types = [*block.binders, *block.types, *[type for step in block.bindings for type in step.types]]
    known = all(dim.constant is not None for type in types for dim in dims(type))
    accumulated = all(step.op != "add_to" for step in block.bindings)  # that is for bodies of accumulate
    return known and accumulated and all(x.op in STRAIGHT for x in everything(block))


def is_scalar(block: Block) -> bool:
    """The steps are on numbers: parameters that are arrays are read at places that are written down."""
    reads = [step for step in block.bindings if step.op == "index"]
    literal = all(isinstance(place, Literal) for read in reads for place in read.args[1:])
    parts = [type for step in block.bindings for type in step.types]
    names = {step.op for step in block.bindings}
    return literal and names <= SCALAR and not any(isinstance(type, ArrayType) for type in parts)


def operations(block: Block, checks: bool = False) -> list[str]:
    """What the steps do, in order: the names of primitives and constructs; checks and what only they need left out."""
    if checks:
        return [named(x) for x in block.bindings]
    live = needed(block)
    return [named(x) for k, x in enumerate(block.bindings) if k in live]


def named(operation: Operation) -> str:
    return str(operation.static[0].name) if operation.op == "primitive" else operation.op


def everything(block: Block) -> Iterator[Operation]:
    """All operations, at all depths."""
    for operation in block.bindings:
        yield operation
        for inner in inside(operation):
            yield from everything(inner)


def needed(block: Block) -> set[int]:
    """The numbers of the steps on which the results depend, or that add to accumulators or show something."""
    step_of = [-1] * len(block.binders)  # of each value that is bound, in order
    before = []  # how many values are bound before each step
    for k, operation in enumerate(block.bindings):
        before.append(len(step_of))
        step_of += [k] * len(operation.types)
    wanted: set[int] = set()

    def want(indices: Collection[int], bound: int) -> None:
        wanted.update([step_of[bound - 1 - index] for index in indices if index < bound])

    want(indices_of(block.results), len(step_of))
    for k, operation in reversed([*enumerate(block.bindings)]):
        if k in wanted or operation.op in ("add_to", "probe"):
            wanted.add(k)
            want(uses(operation), before[k])
    return wanted - {-1}


def indices_of(atoms: Sequence[Atom]) -> set[int]:
    return {atom.index for atom in atoms if isinstance(atom, Variable)}


def uses(operation: Operation) -> set[int]:
    """The De Bruijn indices of what an operation uses, in its blocks, too."""
    return indices_of(operation.args).union(*map(captured, operation.blocks))


def captured(block: Block) -> set[int]:
    """The De Bruijn indices, outside of a block, of what it uses from there."""
    found, depth = set(), len(block.binders)
    for operation in block.bindings:
        found |= {index - depth for index in uses(operation)}
        depth += len(operation.types)
    return {index for index in found | {index - depth for index in indices_of(block.results)} if index >= 0}


# Kept types


def kinds(keep: Any) -> set[str]:
    return KEPT[keep] if isinstance(keep, str) else set(keep)


def admits(keep: Any, types: Collection[Type]) -> bool:
    """Whether values of these types are kept. Data and functions never are."""
    kept = kinds(keep)
    ground = all(isinstance(type, ArrayType | Scalar) and KINDS[element(type).kind] in kept for type in types)
    return ground and ("arrays" in kept or not any(isinstance(type, ArrayType) for type in types))


# Values, of which data are taken apart


def leaves(tree: Any) -> list[Any]:
    """The scalars and arrays of a value, in order; variants of data are leaves, too, by name."""
    found: list[Any] = []
    for leaf in trees.flatten(tree, plain=True)[0]:
        if isinstance(leaf, Data):
            found += [leaf._variant, *[inner for value in leaf._values for inner in leaves(value)]]
        else:
            found.append(leaf)
    return found


def bits(tree: Any) -> list[Any]:
    """The leaves of a value, each with its type, shape and bytes."""
    arrays = [np.asarray(leaf) for leaf in leaves(tree)]
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def same_bits(got: Any, wanted: Any) -> None:
    """The same values, to the bit, in the same structure."""
    first, second = leaves(got), leaves(wanted)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (a, b)


def moved(f: Callable[..., Any], *values: Any) -> Any:
    """``f`` of the floating parts of values of one structure; other parts are those of the first."""
    first = values[0]
    if isinstance(first, Data):
        fields = zip(*[value._values for value in values], strict=True)
        return type(first)._of([moved(f, *field) for field in fields])
    if isinstance(first, tuple | list | dict):
        flat = [trees.flatten(value)[0] for value in values]
        return trees.unflatten(trees.flatten(first)[1], [moved(f, *each) for each in zip(*flat, strict=True)])
    return f(*values) if np.asarray(first).dtype.kind == "f" else first


# The smallest programs


@dataclass(frozen=True)
class Micro:
    """A program, the same in NumPy, arguments, and the operations of its trace with arrays kept."""

    name: str
    program: az.Program
    numpy: Callable[..., Any]
    arguments: tuple[Any, ...]
    operations: tuple[str, ...]


MICRO: list[Micro] = []
V = np.array([0.3, -0.7, 1.2, 0.5, -0.2, 0.9, 1.4, -1.1])
W = np.array([1.0, 0.5, 2.0])


def micro(numpy: Callable[..., Any], *arguments: Any, steps: str) -> Callable[[Callable[..., Any]], az.Program]:
    def add(function: Callable[..., Any]) -> az.Program:
        program = az.program(function)
        MICRO.append(Micro(program.name, program, numpy, arguments, tuple(steps.split())))
        return program

    return add


@micro(lambda x1, x2: x1 + x1 * x2, 5.0, 3.0, steps="multiply add")
def running_example(x1: az.f64, x2: az.f64) -> az.f64:
    return x1 + x1 * x2


@micro(lambda a: a * a, 1.3, steps="multiply")
def an_operand_twice(a: az.f64) -> az.f64:
    return a * a


@micro(lambda a: np.sin(a) * a, 0.4, steps="sin multiply")
def a_lambda_that_captures(a: az.f64) -> az.f64:
    return az.function(lambda x: x * a, az.f64)(az.sin(a))


@micro(lambda a, b: a * b if a < b else a, 0.4, 0.9, steps="multiply")
def a_branch(a: az.f64, b: az.f64) -> az.f64:
    return az.cond(a < b, lambda: a * b, lambda: a)


@micro(lambda v: v[2] * v[2], V, steps="index index multiply")
def an_element_twice(v: Vector) -> az.f64:
    return az.function(lambda k: v[k], az.i64)(2) * az.function(lambda k: v[k], az.i64)(2)


@micro(np.sum, np.array([1.5]), steps="reduce")
def the_sum_of_one(v: Vector) -> az.f64:
    return az.sum(v)


@micro(np.sum, V, steps="generate reduce")
def a_map_of_the_identity(v: Vector) -> az.f64:
    return az.sum(az.map(lambda x: x, v))


@micro(lambda v, a: len(v) * a, V, 2.0, steps="generate reduce")
def a_map_to_what_is_captured(v: Vector, a: az.f64) -> az.f64:
    return az.sum(az.map(lambda x: a, v))


@micro(lambda v, a, w: np.sum(v * a * w[np.arange(len(v)) % 3]), V, 2.0, W, steps="generate generate reduce")
def a_map_that_captures(v: Vector, a: az.f64, w: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(az.map(lambda x, i: x * a * w[i % 3], v, az.iota(az.size(v))))


@micro(
    lambda v, a: np.sum(np.where(v < 0.4, v * a, np.sin(v)) * np.arange(1, len(v) + 1)),
    V,
    2.0,
    steps="generate generate generate accumulate generate generate reduce",
)
def a_branching_map(v: Vector, a: az.f64) -> az.f64:
    branched = az.map(lambda x: az.cond(x < 0.4, lambda: x * a, lambda: az.sin(x)), v)
    return az.sum(az.map(lambda y, i: y * (i + 1), branched, az.iota(az.size(v))))


@micro(lambda a: 10 * a, 2.0, steps="generate reduce")
def a_generate(a: az.f64) -> az.f64:
    return az.sum(az.generate(5, lambda i: i * a))


@micro(lambda z, v: np.prod(1 + v) * (1 + z) - 1, 0.2, V, steps="reduce add multiply add")
def a_fold(z: az.f64, v: Vector) -> az.f64:
    total = az.reduce(lambda p, q: p + q + p * q, 0.0, v)
    return z + total + z * total


@micro(lambda v: v[-1], V, steps="generate generate index")
def a_fold_that_does_not_commute(v: Vector) -> az.f64:
    """The right projection, which has no neutral element."""
    return az.fold1(lambda p, q: q, v)


@micro(lambda v, w: (np.prod(1 + w * v) - 1) / w, V, 0.6, steps="reduce")
def a_fold_that_captures(v: Vector, w: az.f64) -> az.f64:
    return az.reduce(lambda p, q: p + q + w * (p * q), 0.0, v)


def _branching_fold(z: float, v: Any, w: float) -> float:
    for q in v:
        z = z if q < 0 else (z + q) * w
    return z


@micro(_branching_fold, 0.2, V, 0.6, steps=" ".join(["index add multiply"] * 5))
def a_branching_fold(z: az.f64, v: Vector, w: az.f64) -> az.f64:
    """From left to right: the operator is not associative, and some steps leave the state alone."""

    def step(i: Any, p: Any) -> Any:
        return az.cond(v[i] < 0, lambda: p, lambda: (p + v[i]) * w)

    return az.fori_loop(0, az.size(v), step, z)


@micro(lambda a, b: a * b, 2.0, 3.0, steps="multiply")
def what_nobody_uses(a: az.f64, b: az.f64) -> az.f64:
    """A state of which one part is dropped: its steps have been run."""
    return az.fori_loop(0, 1, lambda i, s: (a * a, s[1] * b), (a, a))[1]


# Programs that source-to-source derivatives refuse: recursion, closures, lists, trees, forks


@dataclass(frozen=True)
class Recursive:
    """A program with one floating result, and arguments at which it is smooth; ``moving`` are its floating ones."""

    name: str
    program: az.Program
    arguments: tuple[Any, ...]
    moving: tuple[int, ...]


RECURSIVE: list[Recursive] = []


def recursive(*arguments: Any) -> Callable[[Callable[..., Any]], az.Program]:
    def add(function: Callable[..., Any]) -> az.Program:
        program = az.program(function)
        floating = [k for k, x in enumerate(arguments) if any(np.asarray(y).dtype.kind == "f" for y in leaves(x))]
        RECURSIVE.append(Recursive(program.name, program, arguments, tuple(floating)))
        return program

    return add


CURVED = grown([0.5, -0.25, 0.75, 1.25, -0.5, 0.3, 0.9])


@recursive(1.25, 11)
def power(x: az.f64, n: az.i64) -> az.f64:
    """By squaring: the result of one call is used twice."""

    @az.fix
    def go(self: Any, base: az.f64, k: az.i64) -> az.f64:
        def halved() -> Any:
            root = self(base * base, k // 2)
            return az.cond(k % 2 == 1, lambda: base * root, lambda: root)

        return az.cond(k == 0, lambda: 1.0, halved)

    return go(x, n)


@recursive(linked([0.5, -1.25, 2.0, 0.75]), 1.5)
def horner(coefficients: List[az.f64], x: az.f64) -> az.f64:
    return folded(coefficients, az.f64, az.f64, 0.0, lambda c, rest: c + x * rest)


@recursive(CURVED, 0.7)
def tree_of_sines(tree: Tree[az.f64], s: az.f64) -> az.f64:
    return folded_tree(tree, az.f64, az.f64, s, lambda left, v, right: az.sin(left * v) + s * right * v)


@recursive(CURVED, 0.7)
def forked_tree(tree: Tree[az.f64], s: az.f64) -> az.f64:
    """The two sides of a node run side by side."""
    return folded_tree(tree, az.f64, az.f64, s, lambda left, v, right: az.sin(left * v) + s * right * v, fork=True)


@recursive(numbers(9) / 4)
def forked_product(x: Vector) -> az.f64:
    """By halves of a range of places."""

    @az.fix
    def part(self: Any, low: az.i64, high: az.i64) -> az.f64:
        middle = (low + high) // 2

        def halves() -> Any:
            left, right = az.par(lambda: self(low, middle), lambda: self(middle, high))
            return left * right + left

        return az.cond(high - low > 1, halves, lambda: x[low])

    return part(0, az.size(x))


@recursive(1.5, 0.25)
def composed(x: az.f64, a: az.f64) -> az.f64:
    """Functions made, chosen and passed, that capture what is differentiated and each other."""

    @az.function
    def after(f: Unary, g: Unary) -> Unary:
        return lambda z: f(g(z)) * a

    wave, curve = az.function(lambda z: az.sin(z * a), az.f64), az.function(lambda z: z * z + x, az.f64)
    chosen = az.cond(x > a, lambda: after(wave, curve), lambda: after(curve, wave))
    return after(chosen, chosen)(x)


@recursive(0.75, 4)
def functions_in_a_list(x: az.f64, n: az.i64) -> az.f64:
    start = List[Unary].Nil()
    steps = az.fori_loop(0, n, lambda k, fs: List.Cons(lambda z: az.sin(z * x) + k, fs), start)
    go = az.fix(
        lambda self, fs, z: az.case(fs, Nil=lambda: z, Cons=lambda f, rest: self(rest, f(z))),
        List[Unary],
        az.f64,
        result=az.f64,
    )
    return go(steps, x)


@recursive(3.0, 1.0)
def root_by_newton(c: az.f64, start: az.f64) -> az.f64:
    """As many steps as it takes, which is 3 around here."""

    @az.fix
    def go(self: Any, y: az.f64) -> az.f64:
        better = (y + c / y) / 2
        return az.cond(abs(better - y) < 0.01, lambda: better, lambda: self(better))

    return go(start)


@recursive(F.Sum(F.Product(F.Variable(1), F.Variable(1)), F.Product(F.Number(0.5), F.Variable(3))), numbers(5) / 2)
def formula_value(f: F, x: Vector) -> az.f64:
    """Its numbers and the variables move, the places do not."""
    return formula(f, x)


@recursive(linked([numbers(3, 3, seed=1) / 8, numbers(3, 3, seed=2) / 8, numbers(3, 3, seed=3) / 8]), numbers(3) / 4)
def layers(weights: List[az.Array[az.f64, "n n"]], x: Vector) -> az.f64:
    """A network whose layers are a list: each is a step on arrays."""
    matrix = az.Array[az.f64, "n n"]
    go = az.fix(
        lambda self, ws, v: az.case(ws, Nil=lambda: v, Cons=lambda w, rest: self(rest, az.tanh(w @ v))),
        List[matrix],
        Vector,
        result=Vector,
    )
    return az.sum(go(weights, x) ** 2)


@recursive(linked([1.5, -2.0, 0.25, 4.0, -0.5]), numbers(5) / 4)
def sorted_and_weighed(xs: List[az.f64], weights: Vector) -> az.f64:
    """A list is put into a search tree, which is gone through in order."""

    @az.fix
    def weighed(self: Any, tree: Tree[az.f64], k: az.i64, total: az.f64) -> tuple[az.i64, az.f64]:
        def node(left: Any, value: Any, right: Any) -> Any:
            k1, total1 = self(left, k, total)
            return self(right, k1 + 1, total1 + weights[k1] * value * value)

        return az.case(tree, Leaf=lambda: (k, total), Node=node)

    return weighed(search_tree(xs), 0, 0.0)[1]


@recursive(Maybe.Just(2.0), 0.5)
def with_default(m: Maybe[az.f64], y: az.f64) -> az.f64:
    return az.case(m, Nothing=lambda: 0.0, Just=lambda x: x * x * y) + y


@recursive(BUSH, numbers(4))
def a_map_with_recursion(tree: Tree[az.f64], x: Vector) -> az.f64:
    """Each element of an array goes down the tree by its own way."""

    @az.fix
    def down(self: Any, tree: Tree[az.f64], v: az.f64) -> az.f64:
        def node(left: Any, value: Any, right: Any) -> Any:
            return az.cond(v < value, lambda: self(left, v * value), lambda: self(right, v + value))

        return az.case(tree, Leaf=lambda: v * v, Node=node)

    return az.sum(az.map(lambda v: down(tree, v), x))
