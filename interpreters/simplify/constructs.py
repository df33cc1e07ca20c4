"""What each construct needs for those of its results and effects that are live, and what of it is emitted again.

This is the meaning that ``simplify`` folds a term into; the idea, and what a block is, stand in ``liveness.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...core.builder import current
from ...core.constructs import Construct, Role, construct
from ...core.environment import Env
from ...core.graph import Value
from ...core.terms import Foreign
from ..embed import accumulate, emit_blocks
from .costs import CHEAP
from .liveness import REQUIREMENTS, Atom, Block, Effects, Entry, Lazy, Nesting, Operation, Use, Uses


class Index(Operation):
    cost = 1

    def __init__(self, array: Atom, indices: Sequence[Atom], nesting: Nesting) -> None:
        self.array, self.indices, self.nesting = array, indices, nesting

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        if live:
            self.need(env, self.indices)
            use = self.array.use(env)
            if use is not None:
                use.live = True
                use.depth = max(use.depth, self.nesting.depth)
                use.chosen = max(use.chosen, self.nesting.chosen)
                use.reads[id(self)] = ([index.use(env) for index in self.indices], loops)
        return set()

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        array = self.array.emit(env)
        indices = [index.value(env) for index in self.indices]
        assert array is not None
        return [array.at(indices) if isinstance(array, Lazy) else current().index(array, indices)]


@dataclass(frozen=True)
class _Delayed(Lazy):
    """A generate that is computed where it is read, once for each place.

    An element may be read in both branches of a choice, and hold such a choice itself, and so on.
    """

    body: Block
    env: Env[Entry]
    position: int
    made: dict[tuple[int, ...], _Element] = field(default_factory=dict)

    def at(self, indices: Sequence[Value]) -> Value:
        builder, place = current(), tuple([index.number for index in indices])
        scope, known = builder.scopes[-1], self.made.get(place)
        if known is None or not (known.value.free <= builder.open and known.anchor in (None, scope.anchor)):
            outer, scope.partial = scope.partial, False
            value = self.body.element(self.env, indices[0], self.position, indices[1:])
            known = self.made[place] = _Element(value, scope.anchor if scope.partial else None)
            scope.partial = outer
        scope.partial = scope.partial or known.anchor is not None
        return known.value


@dataclass(frozen=True)
class _Element:
    value: Value
    anchor: frozenset[int] | None  # of the scope that it stays in, where it may not end


class Generate(Operation):
    def __init__(self, extent: Atom, body: Block, fuse: bool, nesting: Nesting) -> None:
        self.extent, self.body, self.cost, self.waits, self.nesting = extent, body, body.cost, fuse, nesting

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        variable = Use(loops)
        effects = self.body.analyse(env, [variable], sorted(live), (*loops, variable))
        if live or effects:
            self.extent.need(env)
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        wanted = sorted(live)
        made = current().generate(self.extent.value(env), lambda i: self.body.emit(env, [i], wanted))
        return _spread(wanted, made, self.body.width)

    def lazy(self, live: dict[int, Use]) -> set[int]:
        """All or none: what they share is computed once only if they are read in the same loops."""
        uses = live.values()
        if len({use.place() for use in uses} - {None}) == 1 and all([use.place() is not None for use in uses]):
            return set(live)
        if self.cost == math.inf and any(use.chosen > len(use.loops) for use in uses):
            return set()
        in_place = [use.read_once_in_place(self.elements_are_apart(use.axes())) for use in uses]
        if not all(in_place) or len({use.reader() for use in uses}) != 1:
            return set()
        return set(live)

    def elements_are_apart(self, axes: int) -> bool:
        """Whether what is computed for several elements at once, along so many axes, is cheap."""
        if axes <= 1:
            return True
        operations = [binding.operation for binding in self.body.bindings]
        nested = [each for each in operations if isinstance(each, Generate)]
        shared = sum([each.cost for each in operations if each not in nested])
        return shared <= CHEAP and len(nested) == 1 and nested[0].elements_are_apart(axes - 1)

    def lazily(self, env: Env[Entry], position: int) -> Lazy:
        return _Delayed(self.body, env, position)


class Combine(Operation):
    """A reduce, scan or histogram: a component is needed if its result is, or if the operator needs it for one that is.

    ``extents`` ends with the number of elements. What an element yields before its components is a histogram's bin.
    """

    def __init__(
        self,
        construct: Construct,
        extents: Sequence[Atom],
        neutrals: Sequence[Atom],
        element: Block,
        operator: Block,
    ) -> None:
        self.construct, self.extents, self.neutrals = construct, extents, neutrals
        self.element, self.operator = element, operator
        self.needed: list[int] = []
        self.wanted: list[int] = []  # of an element

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        count = len(self.neutrals)
        inner = (*loops, Use(()))  # the operator runs any number of times
        needed = live | set(self.needed)
        while True:
            operands = [Use(inner) for _ in range(2 * count)]
            effects = self.operator.analyse(env, operands, sorted(needed), inner)
            more = {k % count for k, use in enumerate(operands) if use.live} - needed
            if effects and not needed:
                more = set(range(count))  # its requirements are checked though nobody asks for the result
            if not more:
                break
            needed |= more
        self.needed = sorted(needed)
        first = self.element.width - count
        self.wanted = [*range(first), *[first + k for k in self.needed]] if needed else []
        variable = Use(loops)
        effects |= self.element.analyse(env, [variable], self.wanted, (*loops, variable))
        if needed:
            self.need(env, [*self.extents, *[self.neutrals[k] for k in self.needed]])
        elif effects:
            self.need(env, self.extents[-1:])
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        count = len(self.neutrals)
        extents = [extent.value(env) for extent in self.extents[0 if self.needed else -1 :]]

        def element(i: Value) -> list[Value]:
            return self.element.emit(env, [i], self.wanted)

        if not self.needed:
            current().generate(extents[-1], element)
            return [None] * count

        def operator(*operands: Value) -> list[Value]:
            half = len(self.needed)
            both = [*_spread(self.needed, operands[:half], count), *_spread(self.needed, operands[half:], count)]
            return self.operator.emit(env, both, self.needed)

        neutrals = [self.neutrals[k].value(env) for k in self.needed]
        made = current().combination(self.construct.name, extents, neutrals, element, operator)
        return _spread(self.needed, made, count)


class Scatter(Operation):
    def __init__(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> None:
        self.unique, self.extents, self.destinations, self.element = unique, extents, destinations, element
        self.axes = element.width - len(destinations)

    def wanted(self, live: set[int]) -> list[int]:
        """The results of an element that are needed: the indices, and a value for each live destination."""
        return [*range(self.axes), *[self.axes + k for k in sorted(live)]] if live else []

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        inner = loops
        for _ in self.extents:
            inner = (*inner, Use(inner))
        effects = self.element.analyse(env, inner[len(loops) :], self.wanted(live), inner)
        self.need(env, [self.destinations[k] for k in live])
        if live or effects:
            self.need(env, self.extents)
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        extents = [extent.value(env) for extent in self.extents]
        if not live:
            current().each(extents, lambda *i: self.element.emit(env, i, ()))
            return [None] * len(self.destinations)
        wanted, kept = self.wanted(live), sorted(live)
        destinations = [self.destinations[k].value(env) for k in kept]
        made = current().scatter(self.unique, extents, destinations, lambda *i: self.element.emit(env, i, wanted))
        return _spread(kept, made, len(self.destinations))


@dataclass(frozen=True)
class _Chosen(Lazy):
    """An array chosen by a cond: the choice is made where it is read, once for each place."""

    cond: Choice
    env: Env[Entry]
    position: int
    made: dict[tuple[int, ...], Value] = field(default_factory=dict)

    def at(self, indices: Sequence[Value]) -> Value:
        place = tuple([index.number for index in indices])
        if place not in self.made:
            then, orelse = [partial(self._read, branch, indices) for branch in self.cond.branches]
            self.made[place] = current().cond(self.cond.value.value(self.env), then, orelse)[0]
        return self.made[place]

    def _read(self, branch: Block, indices: Sequence[Value]) -> list[Value]:
        return [current().index(branch.emit(self.env, [], [self.position])[0], indices)]


class Choice(Operation):
    """A cond, or a case, whose branches are given the fields of the value."""

    def __init__(
        self, op: str, static: tuple[Any, ...], value: Atom, branches: Sequence[Block], nesting: Nesting
    ) -> None:
        self.op, self.static, self.value, self.branches, self.nesting = op, static, value, branches, nesting
        if op == "cond":
            self.cost = 1 + max([branch.cost for branch in branches])
            self.waits = self.cost <= CHEAP

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        effects: Effects = set()
        outer, self.nesting.chosen = self.nesting.chosen, len(loops)
        for branch in self.branches:
            effects |= branch.analyse(env, branch.parameters(loops), sorted(live), loops)
        self.nesting.chosen = outer
        if live or effects:
            self.value.need(env)
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        wanted = sorted(live)
        made = emit_blocks(
            current(), self.op, self.static, [self.value.value(env)], [b.entry(env, wanted) for b in self.branches]
        )
        return _spread(wanted, made, self.branches[0].width)

    def lazy(self, live: dict[int, Use]) -> set[int]:
        return {position for position, use in live.items() if use.only_read()}

    def lazily(self, env: Env[Entry], position: int) -> Lazy:
        return _Chosen(self, env, position)


class Loop(Operation):
    def __init__(self, extent: Atom, initials: Sequence[Atom], body: Block) -> None:
        self.extent, self.initials, self.body = extent, initials, body
        self.needed: list[int] = []

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        count = len(self.initials)
        wanted = live | set(self.needed)
        while True:
            variable = Use(loops)
            inner = (*loops, variable)
            state = [Use(inner) for _ in self.initials]
            effects = self.body.analyse(env, [variable, *state], sorted(wanted), inner)
            more = {k for k in range(count) if state[k].live} - wanted
            if not more:
                break
            wanted |= more
        self.needed = sorted(wanted)
        if wanted or effects:
            self.need(env, [self.extent, *[self.initials[k] for k in self.needed if k < count]])
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        count = len(self.initials)
        states = [k for k in self.needed if k < count]

        def body(i: Value, *values: Value) -> list[Value]:
            return self.body.emit(env, [i, *_spread(states, values, count)], self.needed)

        initials = [self.initials[k].value(env) for k in states]
        return _spread(self.needed, current().loop(self.extent.value(env), initials, body), self.body.width)


class While(Operation):
    """A while loop, which needs what its test needs."""

    def __init__(self, initials: Sequence[Atom], test: Block, body: Block) -> None:
        self.initials, self.test, self.body = initials, test, body
        self.needed: list[int] = []

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        count = len(self.initials)
        needed, runs = {k for k in live if k < count} | set(self.needed), bool(live)
        while True:
            inner = (*loops, Use(()))
            state = [Use(inner) for _ in self.initials]
            effects = self.body.analyse(env, state, sorted(needed), inner)
            effects |= self.test.analyse(env, state, [0] if runs else [], inner)
            more = {k for k in range(count) if state[k].live} - needed
            if not more and (runs or not effects):
                break
            needed, runs = needed | more, runs or bool(effects)
        self.needed = sorted(needed)
        self.need(env, [self.initials[k] for k in self.needed])
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        count = len(self.initials)
        made = current().while_loop(
            [self.initials[k].value(env) for k in self.needed],
            lambda *state: self.test.emit(env, _spread(self.needed, state, count), [0])[0],
            lambda *state: self.body.emit(env, _spread(self.needed, state, count), self.needed),
        )
        return _spread([*self.needed, count], made, count + 1)


class Whole(Operation):
    """A custom, a function, a fix or what was added: all of it is needed if anything is, with the blocks that run."""

    def __init__(self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[Block]) -> None:
        self.op, self.static, self.args, self.blocks = op, static, args, blocks
        self.row = construct(op, static)

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        effects: Effects = set()
        elsewhere = (*loops, Use(()))  # run any number of times, where the construct is used
        if self.row.statement:
            effects.add(REQUIREMENTS)
        for k, block in enumerate(self.blocks):
            around = loops if self.row.role(k).always else elsewhere
            if self.row.role(k) not in (Role.RULE, Role.FUNCTION):
                effects |= block.analyse(env, block.parameters(around), (), around)
        if live or effects:
            self.need(env, self.args)
            for block in self.blocks:
                block.analyse(env, block.parameters(elsewhere), range(block.width), elsewhere)
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        blocks = [block.entry(env, range(block.width)) for block in self.blocks]
        return emit_blocks(current(), self.op, self.static, [arg.value(env) for arg in self.args], blocks)


class Par(Operation):
    def __init__(self, branches: Sequence[Block]) -> None:
        self.branches = branches
        self.needed: list[tuple[Block, list[int]]] = []

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        effects: Effects = set()
        self.needed, first = [], 0
        for branch in self.branches:
            wanted = [k for k in range(branch.width) if first + k in live]
            own = branch.analyse(env, [], wanted, loops)
            if wanted or own:
                self.needed.append((branch, wanted))
            effects |= own
            first += branch.width
        return effects

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        made = emit_blocks(current(), "par", (), [], [branch.entry(env, wanted) for branch, wanted in self.needed])
        return _spread(sorted(live), made, sum([branch.width for branch in self.branches]))


class Accumulate(Operation):
    def __init__(self, initials: Sequence[Atom], body: Block) -> None:
        self.initials, self.body = initials, body

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        cells = [Use(loops) for _ in self.initials]
        for k, cell in enumerate(cells):
            cell.live = k in live
        count = len(cells)
        effects = self.body.analyse(env, cells, [k - count for k in sorted(live) if k >= count], loops)
        self.need(env, [self.initials[k] for k in sorted(live) if k < count])
        return effects - set(cells)

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        count = len(self.initials)
        kept = [k for k in sorted(live) if k < count]
        wanted = [k - count for k in sorted(live) if k >= count]

        def body(*values: Value) -> list[Value]:
            cells: list[Entry] = [None] * count
            for k, value in zip(kept, values, strict=True):
                cells[k] = value
            return self.body.emit(env, cells, wanted)

        made = accumulate(current(), [self.initials[k].value(env) for k in kept], body)
        return _spread(sorted(live), made, count + self.body.width)


class AddTo(Operation):
    def __init__(self, accumulator: Atom, operands: Sequence[Atom]) -> None:
        self.accumulator, self.operands = accumulator, operands

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        cell = self.accumulator.use(env)
        assert cell is not None
        if not cell.live:
            return set()
        self.need(env, self.operands)
        return {cell}

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        return current().emit("add_to", (), [self.accumulator.value(env), *[x.value(env) for x in self.operands]])


class Statement(Operation):
    """A requirement, a probe or the application of a function: it stays, whoever asks for its results."""

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        self.need(env, self.args)
        return {REQUIREMENTS}


class Elsewhere(Operation):
    """A library operation: of its entry's operations with fewer results, the least that gives all live ones.

    It must be one that says as much as the entry: has its rules of derivatives, and an expansion.
    """

    def __init__(self, function: Foreign, args: Sequence[Atom]) -> None:
        self.function, self.args = function, args

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        function, values = self.function, [arg.value(env) for arg in self.args]
        offered = [
            places
            for places, other in function.fewer.items()
            if live <= {*places}
            and function.rules.keys() <= other.rules.keys()
            and (function.expansion is None or other.expansion is not None)
        ]
        if not offered:
            return current().emit("foreign", (function,), values)
        places, width = min(offered, key=len), len(function.result_types([value.type for value in values]))
        return _spread(places, current().emit("foreign", (function.fewer[places],), values), width)


def _spread(positions: Sequence[int], values: Sequence[Value], width: int) -> list[Entry]:
    """Values at their positions among ``width`` results, None elsewhere."""
    results: list[Entry] = [None] * width
    for position, value in zip(positions, values, strict=True):
        results[position] = value
    return results
