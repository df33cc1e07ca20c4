"""Tree-height reduction along recurrences (Kuck 1978): what waits for the iteration before is combined last.

A loop that runs in order takes as long as the chain of operations from one iteration's result to the next one's. Where
several values are combined by an operation that is exactly associative, those that no iteration waits for are combined
first, beside the chain, and the chain takes one operation in the place of several::

    for j < m                                      for j < m
      let up = above[j] - gap                        let up = above[j] - gap
      let steps = maximum(left - gap, up)     =>     left = maximum(maximum(0.0, up), left - gap)
      left = maximum(0.0, steps)

Values are combined as those of a Huffman code, the two first that are there, so the last one waits for as little as can
be. There are as many operations as before, of the same numbers. What comes last is the second operand, too: an extremum
asks whether its first one is a number, and its second one passes through (``core/primitives.py``).

Floating-point sums and products are rounded and stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import cache
from heapq import heapify, heappop, heappush

from ....core.primitive import Primitive
from ... import ir

_EXTREMA = frozenset(("minimum", "maximum"))
_EXACT = {
    "float": _EXTREMA,
    "int": _EXTREMA | {"add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor"},
    "bool": frozenset(("logical_and", "logical_or", "logical_xor")),
}
_BEFORE = -1  # when there is what waits for no iteration


def shortened(function: ir.Function) -> ir.Function:
    """A function whose loops wait for as little of the iteration before as they can."""
    uses = cache(lambda: Counter([variable.name for variable in ir.variables_of(function.body)]))
    return replace(function, body=_Chains({}, uses, ir.assigned_in(function.body)).block(function.body))


class _Chains:
    """The chains of operations from what an iteration finds to what it leaves to the next one.

    ``ready`` says when a variable is there, in additions since the first that the iteration finds, if it waits for
    that at all; ``uses`` counts how often one is mentioned, and ``mutable`` which ones are ever assigned to.
    """

    def __init__(self, ready: dict[str, int], uses: Callable[[], Counter[str]], mutable: Set[str]) -> None:
        self.ready, self.uses, self.mutable = ready, uses, mutable

    def block(self, block: ir.Block) -> ir.Block:
        values: dict[str, ir.Expression] = {}
        parts: set[str] = set()  # of the values that are computed with another one
        made: list[ir.Statement] = []
        for statement in block:
            match statement:
                case ir.Let(name, value) | ir.Declare(name, value) | ir.Assign(name, value):
                    found = self.balanced(value, values, parts)
                    statement = statement if found is value else type(statement)(name, found)
                    if isinstance(statement, ir.Let) and ir.unchanged_by(self.mutable, found):
                        values[name] = found
                case ir.For() | ir.While():
                    inner = _Chains(self.found(statement), self.uses, self.mutable)
                    statement = ir.map_inside(statement, inner.block)
                case ir.If():
                    statement = ir.map_inside(statement, self.block)
            self.look(statement)
            made.append(statement)
        return tuple([each for each in made if not (isinstance(each, ir.Let) and each.name in parts)])

    def found(self, loop: ir.For | ir.While) -> dict[str, int]:
        """When an iteration of a loop finds what the one before has left: what that one computes last comes last."""
        carried = ir.assigned_in((loop,)) - ir.bound_in((loop,))
        before = _Chains(dict.fromkeys(carried, 0), self.uses, self.mutable)
        for block in ir.blocks_of(loop):
            for statement in block:
                before.look(statement)
        ends = {name: before.ready.get(name, _BEFORE) for name in carried}
        return {name: end - min(ends.values()) for name, end in ends.items()}

    def look(self, statement: ir.Statement) -> None:
        """Find out when the variables that a statement binds or assigns to are there."""
        match statement:
            case ir.Let(name, value) | ir.Declare(name, value) | ir.Assign(name, value):
                ready = self.when(value)
                if ready > _BEFORE:
                    self.ready[name] = ready
                else:
                    self.ready.pop(name, None)
            case ir.For() | ir.While():
                self.ready.update(dict.fromkeys(ir.assigned_in((statement,)), 0))
            case ir.If():
                for block in ir.blocks_of(statement):
                    for each in block:
                        self.look(each)

    def balanced(self, e: ir.Expression, values: dict[str, ir.Expression], parts: set[str]) -> ir.Expression:
        """An expression that combines what is there first, first."""
        if not isinstance(e, ir.Apply) or e.primitive.name not in _EXACT[e.type.kind] or self.when(e) == _BEFORE:
            return e
        heap = [(self.when(leaf), k, leaf) for k, leaf in enumerate(self.leaves(e, e.primitive, values, parts))]
        heapify(heap)
        while len(heap) > 1:
            (_, k, first), (_, _, second) = heappop(heap), heappop(heap)
            both = ir.Apply(e.primitive, (first, second), e.type, self.when(second) > _BEFORE)
            heappush(heap, (self.when(both), k, both))
        return heap[0][2]

    def leaves(
        self, e: ir.Expression, primitive: Primitive, values: dict[str, ir.Expression], parts: set[str]
    ) -> Iterator[ir.Expression]:
        """What a tree of applications of one primitive combines."""
        match e:
            case ir.Variable(name) if isinstance(value := values.get(name), ir.Apply) and value.primitive is primitive:
                if self.uses()[name] == 1:
                    parts.add(name)
                    yield from self.leaves(value, primitive, values, parts)
                    return
            case ir.Apply(other, arguments) if other is primitive:
                for argument in arguments:
                    yield from self.leaves(argument, primitive, values, parts)
                return
        yield e

    def when(self, e: ir.Expression) -> int:
        """When an expression is there."""
        if isinstance(e, ir.Variable):
            return self.ready.get(e.name, _BEFORE)
        if isinstance(e, ir.Constant) or self.ready.keys().isdisjoint(ir.names_of(e)[0]):
            return _BEFORE
        last = max(map(self.when, ir.operands(e)), default=_BEFORE)
        return last if last == _BEFORE else last + (e.primitive.cost if isinstance(e, ir.Apply) else 1)
