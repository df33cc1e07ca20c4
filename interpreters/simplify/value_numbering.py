"""Value numbering across loops: what the code behind a loop computes that the loop computes anyway.

The return sweep of a loop computes a step again. What of this the forward sweep has computed as well could have been
stored there; to see it, values of both are made alike. An element of an array is computed where it is read, and loop
variables with equal extents are one:

    loop i with s: t = for k < m: w[k] * s[k]          computes  w[k] * s[k]  and  tanh(w[k] * s[k])
                   next for k < m: tanh(t[k])
    loop j: ... for q < m: 1 - tanh(w[q] * c[p, q])    where c[p] is the s of step p: the second of these
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from types import MappingProxyType
from typing import Any

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim
from ...core.graph import REQUIREMENT, Body, Node, Value
from ...core.types import dims, i64, rank
from .costs import is_costly

# A size that is not known counts as this many.
MANY = 1000
# Arrays are computed where they are read through so many other arrays.
DEEPEST = 20
_NOTHING: Mapping[int, Replacement] = MappingProxyType({})


def amount(extents: Iterable[Dim]) -> int:
    """About how many elements there are over these extents."""
    return prod([max(1, sum([c * MANY ** len(monomial) for monomial, c in extent.terms])) for extent in extents])


class ValueNumbering:
    """Equal numbers for equal values of different places.

    Elements are computed where they are read, of all arrays or only of those that nodes of these numbers give.
    """

    def __init__(self, b: Builder, only: Collection[int] | None = None) -> None:
        self.builder, self.only = b, None if only is None else set(only)
        self._parts: dict[int, int] = {}  # of the arrays that `only` has: the nodes of rows, and those of the arrays
        self._variables: dict[tuple[Dim, int], Value] = {}
        self._elements: dict[tuple[int, ...], Value] = {}
        self._keys: dict[int, Hashable] = {}  # of loops, by their numbers
        self._depth = 0

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Elements of arrays are computed where they are read, while this is entered."""
        b, outer = self.builder, self.builder.rule
        b.rule = self._rule
        try:
            yield
        finally:
            b.rule = outer
            b.open.difference_update([variable.number for variable in self._variables.values()])

    def variable(self, extent: Dim, number: int) -> Value:
        """The variable that stands for all loops of an extent, inside of so many others of this extent."""
        if (extent, number) not in self._variables:
            self._variables[extent, number] = self.builder.variable(i64)
        return self._variables[extent, number]

    def images(
        self, values: Sequence[Value], mapping: Mapping[Value, Value], replaced: Mapping[int, Replacement] = _NOTHING
    ) -> list[Value]:
        """The values with binders and nodes replaced; some may stand inside of others, in loops that are replaced."""
        again = Substitution(self.builder, dict(mapping), None, (), replaced)
        return [again.values([value])[0] for value in values]

    def computed(self, body: Body) -> Computed:
        """What the body of a loop computes."""
        b, found = self.builder, Computed(self)
        again = Substitution(b, {binder: binder for binder in body.binders}, None, body.statements)
        again.memo.update({statement.number: statement.results for statement in body.statements})
        stack: list[tuple[Node, tuple[Dim, ...]]] = []

        def push(values: Iterable[Value], around: tuple[Dim, ...]) -> None:
            stack.extend([(value.source, around) for value in values if value.source is not None])

        push(again.values(body.results), ())
        while stack:
            node, around = stack.pop()
            if not found.add(node):
                continue
            push(node.args, around)
            if node.row.elements and not node.bodies[0].statements:
                [(_, count)] = node.loop_variables()
                extent = count.dim
                assert extent is not None
                push(b.instantiate(node.bodies[0], [self.variable(extent, around.count(extent))]), (*around, extent))
        return found

    def key(self, node: Node) -> Hashable:
        """What nodes share that compute the same: loops, whatever they store and require."""
        if node.op != "loop" or not only_requires(node):
            return node.number
        if node.number not in self._keys:
            body, b = node.bodies[0], self.builder
            states = body.results[: len(node.args) - 1]

            def run(*binders: Value) -> Sequence[Value]:
                made = b.substitute(states, dict(zip(body.binders, binders, strict=True)))
                return [b.part(x, ()) if rank(x.type) and x.source is not None else x for x in made]

            again = b.body([binder.type for binder in body.binders], run)
            self._keys[node.number] = *start(node), again.number
        return self._keys[node.number]

    def read_at_several_places(self) -> set[int]:
        """The nodes, by number, of arrays that had elements computed for more than one reader's loop along an axis.

        Of an array of rows the axes are looked at one by one, as reads of the rows.
        """
        places: dict[int, set[int]] = {}
        for number, _, first, *_ in self._elements:
            places.setdefault(number, set()).add(first)
        return {self._parts.get(number, number) for number, found in places.items() if len(found) > 1}

    def _rule(
        self, b: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
    ) -> tuple[Value, ...] | None:
        array = args[0].source if op == "index" else None
        if array is None or array.op != "generate" or array.bodies[0].statements or args[1].source is not None:
            return None
        if self.only is not None and array.number not in self.only:
            return None
        key = (array.number, args[0].position, *[arg.number for arg in args[1:]])
        if key not in self._elements:
            if self._depth == DEEPEST:
                return None
            self._depth += 1
            element = b.instantiate(array.bodies[0], [args[1]])[args[0].position]
            if self.only is not None and element.source is not None:
                self.only.add(element.source.number)
                self._parts[element.source.number] = self._parts.get(array.number, array.number)
            self._elements[key] = b.index(element, args[2:])
            self._depth -= 1
        return (self._elements[key],)


class Computed:
    """What a loop computes: nodes to compare others with, of which only those are looked into that begin alike."""

    def __init__(self, numbering: ValueNumbering) -> None:
        self.numbering = numbering
        self.numbers: set[int] = set()
        self.kinds: set[Hashable] = set()
        self.loops: dict[Hashable, list[Node]] = {}  # by their start

    def add(self, node: Node) -> bool:
        """Note a node; whether it is a new one."""
        if node.number in self.numbers:
            return False
        self.numbers.add(node.number)
        self.kinds.add(kind(node))
        if node.op == "loop":
            self.loops.setdefault(start(node), []).append(node)
        return True

    def __contains__(self, node: Node) -> bool:
        alike = self.loops.get(start(node), ()) if node.op == "loop" else ()
        return node.number in self.numbers or any(self.numbering.key(x) == self.numbering.key(node) for x in alike)


def start(node: Node) -> tuple[Hashable, ...]:
    """What loops share that begin with the same values."""
    return node.static, tuple([arg.number for arg in node.args])


def only_requires(node: Node) -> bool:
    """Whether a node has no effects but requirements, each of which is a statement of its own body."""
    statements = [statement for body in node.bodies for statement in body.statements]
    return node.effects <= {REQUIREMENT} and not any(statement.results for statement in statements)


def kind(node: Node) -> Hashable:
    """What nodes share that may be the same, at whatever places they stand."""
    return node.static if node.op == "primitive" else node.op


def fused_results(b: Builder, results: Sequence[Value]) -> list[Value]:
    """The results of a body; arrays over the same extents are the results of one loop, which share what they compute.

    An array that something else in the body needs stays by itself.
    """
    made, groups = list(results), dict[tuple[Dim, ...], list[int]]()
    for k, x in enumerate(results):
        if x.source is not None and x.source.op == "generate" and not x.source.bodies[0].statements:
            groups.setdefault(dims(x.type), []).append(k)
    for group in groups.values():
        while group:
            numbers = {source.number for k in group if (source := results[k].source) is not None}
            if len(numbers) < 2:  # one loop already
                break
            numbering = ValueNumbering(b, numbers)
            arrays = _in_one_loop(b, numbering, [results[k] for k in group])
            wider = [*made]
            for k, array in zip(group, arrays, strict=True):
                wider[k] = array
            needed = numbers & (_mentioned(wider) | numbering.read_at_several_places())
            if not needed:
                made = wider
                break
            group = [k for k in group if (source := results[k].source) and source.number not in needed]
    return made


def _in_one_loop(b: Builder, numbering: ValueNumbering, arrays: Sequence[Value]) -> Sequence[Value]:
    """Arrays over the same extents as the results of one loop."""
    extents = b.sizes(arrays[0])

    def build(*q: Value) -> Sequence[Value]:
        if len(q) < len(extents):
            return b.generate(extents[len(q)], lambda i: build(*q, i))
        return [b.index(array, q) for array in arrays]

    with numbering.comparing():
        return build()


def _mentioned(values: Sequence[Value]) -> set[int]:
    """The numbers of the nodes that values are made of."""
    found, stack = set[int](), [value.source for value in values]
    while stack:
        node = stack.pop()
        if node is not None and node.number not in found:
            found.add(node.number)
            stack.extend([value.source for value in operands(node)])
            stack.extend([statement for body in node.bodies for statement in body.statements])
    return found


def operands(node: Node) -> Iterator[Value]:
    """The values that a node and its bodies use directly, but for what statements in it use."""
    yield from node.args
    for body in node.bodies:
        yield from body.results


def made_of(values: Iterable[Value], numbers: frozenset[int]) -> Iterator[Node]:
    """The nodes that values are made of and that depend on some numbers, in bodies, too."""
    stack, seen = [value.source for value in values], set[int]()
    while stack:
        node = stack.pop()
        if node is not None and node.number not in seen and not node.free.isdisjoint(numbers):
            seen.add(node.number)
            yield node
            stack += [value.source for value in operands(node)]


# How much work


def own_work(node: Node) -> int:
    """About how many additions a node is, for those that should not be repeated; what its operands are made of aside.

    What stands in an element of an array or of a reduction counts by itself, if it is costly.
    """
    match node.op:
        case "primitive":
            return int(node.static[0].cost) if is_costly(node) else 0
        case "loop":
            return _work(node)
    if not node.row.combines:
        return 0
    return amount(_extents(node)) * max(1, len(_inside(node.bodies[0])))


def _work(node: Node) -> int:
    """About how many additions a node is, with all that is in its bodies."""
    if node.op == "primitive":
        return int(node.static[0].cost)
    extents = _extents(node)
    inside = sum([_work(inner) for body in node.bodies for inner in _inside(body)])
    return amount(extents) * max(1, inside) if extents else inside


def _extents(node: Node) -> list[Dim]:
    return [count.dim for _, count in node.loop_variables() if count.dim is not None]


def _inside(body: Body) -> list[Node]:
    """The nodes that depend on the binders of a body; bodies inside are not entered."""
    binders = {binder.number for binder in body.binders}
    found: dict[int, Node] = {}
    stack = [value.source for value in body.results]
    while stack:
        node = stack.pop()
        if node is not None and node.number not in found and not node.free.isdisjoint(binders):
            found[node.number] = node
            stack.extend([arg.source for arg in node.args])
    return list(found.values())
