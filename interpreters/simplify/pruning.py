"""What of a term is needed, and how that is emitted again: the meaning that ``simplify`` folds a term into.

``analyse`` runs backwards through a block and marks what its wanted results (and its live effects) use. What a
construct yields is wanted result by result: a state that feeds only itself, a component of a reduction that the
others do not need, an update of an accumulator whose final value is dead, all go. ``emit`` then rebuilds the rest
in the current builder. An array that is read exactly once, in the loops it was made in, is not made: it is computed
where it is read, as are the arrays that a cheap ``cond`` chooses.

    a, b = loop i < n (a = 0, b = 1): (a + x[i], b * a)          a = loop i < n (a = 0): a + x[i]
    return a                                                     return a
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...core.builder import current
from ...core.environment import Env
from ...core.graph import Value
from ...core.language import Binding
from ..embed import accumulate, entered, name_arguments
from .rules import CHEAP

# What is known of a value while a block is analysed


class Use:
    """How a bound value is used: where it is read as an array, and whether in any other way."""

    __slots__ = ("chosen", "depth", "escapes", "live", "loops", "reads", "results")

    def __init__(self, loops: tuple[Use, ...]) -> None:
        self.loops = loops  # the loop variables around its definition
        self.live = False
        self.reads: dict[int, tuple[list[Use | None], tuple[Use, ...]]] = {}  # by site: indices, loops around it
        self.depth = self.chosen = 0  # of the reads (see Nesting)
        self.results = 0  # times it is a result of its own block
        self.escapes = False

    def read_once_in_place(self, apart: bool) -> bool:
        """One read that computes no element twice, nor what some elements share.

        Its indices are the variables of the loops that lie between definition and read, in their order, and besides
        them only values from outside these loops. In any order, if elements are computed ``apart``, sharing little:
        inside of another loop, for outside of all the array itself is what threads share out.
        """
        if self.escapes or self.results or len(self.reads) != 1:
            return False
        indices, loops = next(iter(self.reads.values()))
        between = loops[len(self.loops) :]
        moving = [index for index in indices if index is not None and (index in between or self.inside(index))]
        moving = moving[: len(between)]
        return tuple(moving) == between or (apart and bool(self.loops) and set(moving) == set(between))

    def axes(self) -> int:
        """The number of indices of the reads."""
        return max([len(indices) for indices, _ in self.reads.values()], default=0)

    def reader(self) -> tuple[Use, ...]:
        """The loops around the one read."""
        return next(iter(self.reads.values()))[1]

    def inside(self, other: Use) -> bool:
        """Whether another value is bound inside a loop that is not around this one."""
        return len(other.loops) > len(self.loops)

    def only_read(self) -> bool:
        return bool(self.reads) and not self.escapes and not self.results

    def only_a_result(self) -> bool:
        return self.results == 1 and not self.escapes and not self.reads


Effects = set[Use]  # accumulators that are updated; requirements count as updates of this one:
_REQUIREMENTS = Use(())

Uses = Env[Use]


class _Lazy(ABC):
    """An array that is not made: its elements are computed where they are read."""

    @abstractmethod
    def at(self, indices: Sequence[Value]) -> Value:
        """The element at these indices."""


@dataclass(frozen=True)
class _Delayed(_Lazy):
    """A generate that is computed where it is read."""

    body: Block
    env: Env[_Entry]
    position: int

    def at(self, indices: Sequence[Value]) -> Value:
        return self.body.element(self.env, indices[0], self.position, indices[1:])


@dataclass(frozen=True)
class _Chosen(_Lazy):
    """An array chosen by a cond: the choice is made where it is read, once for each place."""

    cond: Choice
    env: Env[_Entry]
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


_Entry = Value | _Lazy | None  # None: dead, not emitted


class Atom:
    """A variable; the others override."""

    def __init__(self, index: int) -> None:
        self.index = index

    def use(self, env: Uses) -> Use | None:
        return env.get(self.index)

    def emit(self, env: Env[_Entry]) -> _Entry:
        return env.get(self.index)

    def need(self, env: Uses) -> None:
        use = self.use(env)
        if use is not None:
            use.live = use.escapes = True

    def value(self, env: Env[_Entry]) -> Value:
        value = self.emit(env)
        assert isinstance(value, Value)
        return value


class Closed(Atom):
    """A literal, constant or size."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self.make = make

    def use(self, env: Uses) -> Use | None:
        return None

    def emit(self, env: Env[_Entry]) -> _Entry:
        return self.make()


class Operation:
    """A pure operation without blocks; the others override.

    ``cost`` is about how many additions a scalar result, or an element of an array, takes; infinite with inner loops.
    """

    cost = math.inf
    waits = False  # whether arrays among the results may be computed where they are read

    def __init__(self, args: Sequence[Atom], emit: Callable[[list[Value]], Sequence[Value]], cost: float = 1) -> None:
        self.args, self.build, self.cost = args, emit, cost

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        """Mark what the live results (and live effects) need; the effects that are live."""
        if live:
            self.need(env, self.args)
        return set()

    def need(self, env: Uses, args: Iterable[Atom]) -> None:
        for arg in args:
            arg.need(env)

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        """The live results, None for the others."""
        return self.build([arg.value(env) for arg in self.args])

    def lazy(self, live: dict[int, Use]) -> set[int]:
        """The results, of those that are live, that need not be made, as far as their uses say."""
        raise NotImplementedError

    def lazily(self, env: Env[_Entry], position: int) -> _Lazy:
        """A result that is an array and is not made."""
        raise NotImplementedError


class Nesting:
    """How deep emission nests at the place that is being analysed.

    What is computed where it is read is emitted while its reader is. In a long chain of arrays some are made all
    the same, so that recursion does not grow with the length of the program; the next round finds a shorter chain.

    ``chosen`` is how many loops there are around the innermost choice. What has loops itself is not computed where it
    is read under a choice in loops that it is outside of: as an array it is made for all their iterations side by side.
    """

    DEEPEST = 30

    def __init__(self) -> None:
        self.depth = self.chosen = 0

    @contextmanager
    def at(self, uses: Sequence[Use]) -> Iterator[None]:
        """While something is analysed that is computed where it is read, if it is."""
        outer = self.depth, self.chosen
        if uses:
            self.depth, self.chosen = 1 + max([use.depth for use in uses]), max([use.chosen for use in uses])
        yield
        self.depth, self.chosen = outer


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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        array = self.array.emit(env)
        indices = [index.value(env) for index in self.indices]
        assert array is not None
        return [array.at(indices) if isinstance(array, _Lazy) else current().index(array, indices)]


class Generate(Operation):
    def __init__(self, extent: Atom, body: Block, fuse: bool, nesting: Nesting) -> None:
        self.extent, self.body, self.cost, self.waits, self.nesting = extent, body, body.cost, fuse, nesting

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        variable = Use(loops)
        effects = self.body.analyse(env, [variable], sorted(live), (*loops, variable))
        if live or effects:
            self.extent.need(env)
        return effects

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        wanted = sorted(live)
        made = current().generate(self.extent.value(env), lambda i: self.body.emit(env, [i], wanted))
        return _spread(wanted, made, self.body.width)

    def lazy(self, live: dict[int, Use]) -> set[int]:
        """All or none: what they share is computed once only if they are read in the same loops."""
        uses = live.values()
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

    def lazily(self, env: Env[_Entry], position: int) -> _Lazy:
        return _Delayed(self.body, env, position)


class Combine(Operation):
    """A reduce, scan or histogram: a component is needed if its result is, or if the operator needs it for one that is.

    ``extents`` ends with the number of elements. What an element yields before its components is a histogram's bin.
    """

    def __init__(
        self,
        make: Callable[..., Sequence[Value]],
        extents: Sequence[Atom],
        neutrals: Sequence[Atom],
        element: Block,
        operator: Block,
    ) -> None:
        self.make, self.extents, self.neutrals, self.element, self.operator = make, extents, neutrals, element, operator
        self.needed: list[int] = []
        self.wanted: list[int] = []  # of an element

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        count = len(self.neutrals)
        inner = (*loops, Use(()))  # the operator runs any number of times
        needed = set(live)
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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
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
        return _spread(self.needed, self.make(current(), *extents, neutrals, element, operator), count)


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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        extents = [extent.value(env) for extent in self.extents]
        if not live:
            current().each(extents, lambda *i: self.element.emit(env, i, ()))
            return [None] * len(self.destinations)
        wanted, kept = self.wanted(live), sorted(live)
        destinations = [self.destinations[k].value(env) for k in kept]
        made = current().scatter(self.unique, extents, destinations, lambda *i: self.element.emit(env, i, wanted))
        return _spread(kept, made, len(self.destinations))


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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        wanted = sorted(live)
        made = entered(
            current(), self.op, self.static, [self.value.value(env)], [b.entry(env, wanted) for b in self.branches]
        )
        return _spread(wanted, made, self.branches[0].width)

    def lazy(self, live: dict[int, Use]) -> set[int]:
        return {position for position, use in live.items() if use.only_read()}

    def lazily(self, env: Env[_Entry], position: int) -> _Lazy:
        return _Chosen(self, env, position)


class Loop(Operation):
    def __init__(self, extent: Atom, initials: Sequence[Atom], body: Block) -> None:
        self.extent, self.initials, self.body = extent, initials, body
        self.needed: list[int] = []

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        count = len(self.initials)
        wanted = set(live)
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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
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
        needed, runs = {k for k in live if k < count}, bool(live)
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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        count = len(self.initials)
        made = current().while_loop(
            [self.initials[k].value(env) for k in self.needed],
            lambda *state: self.test.emit(env, _spread(self.needed, state, count), [0])[0],
            lambda *state: self.body.emit(env, _spread(self.needed, state, count), self.needed),
        )
        return _spread([*self.needed, count], made, count + 1)


class Whole(Operation):
    """A custom, a function or a fix: all of it is needed if anything is. Of its blocks, only a custom's body runs."""

    def __init__(self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[Block]) -> None:
        self.op, self.static, self.args, self.blocks = op, static, args, blocks

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        effects: Effects = set()
        elsewhere = (*loops, Use(()))  # run any number of times, where the construct is used
        if self.op == "custom":
            effects = self.blocks[0].analyse(env, self.blocks[0].parameters(loops), (), loops)
        if live or effects:
            self.need(env, self.args)
            for block in self.blocks:
                block.analyse(env, block.parameters(elsewhere), range(block.width), elsewhere)
        return effects

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        blocks = [block.entry(env, range(block.width)) for block in self.blocks]
        return entered(current(), self.op, self.static, [arg.value(env) for arg in self.args], blocks)


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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        made = entered(current(), "par", (), [], [branch.entry(env, wanted) for branch, wanted in self.needed])
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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        count = len(self.initials)
        kept = [k for k in sorted(live) if k < count]
        wanted = [k - count for k in sorted(live) if k >= count]

        def body(*values: Value) -> list[Value]:
            cells: list[_Entry] = [None] * count
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

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        return current().emit("add_to", (), [self.accumulator.value(env), *[x.value(env) for x in self.operands]])


class Statement(Operation):
    """A requirement, a probe or the application of a function: it stays, whoever asks for its results."""

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        self.need(env, self.args)
        return {_REQUIREMENTS}


def _spread(positions: Sequence[int], values: Sequence[Value], width: int) -> list[_Entry]:
    """Values at their positions among ``width`` results, None elsewhere."""
    results: list[_Entry] = [None] * width
    for position, value in zip(positions, values, strict=True):
        results[position] = value
    return results


@dataclass
class _Step:
    """What the analysis found out about one binding."""

    needed: bool = False
    live: set[int] = field(default_factory=set)
    lazy: set[int] = field(default_factory=set)
    only_results: set[int] = field(default_factory=set)


class Block:
    def __init__(
        self, bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str], nesting: Nesting
    ) -> None:
        self.bindings, self.results, self.names, self.nesting = bindings, results, names, nesting
        self.width = len(results)
        self.cost = sum([binding.operation.cost for binding in bindings])
        self.steps: list[_Step] = []

    def analyse(self, env: Uses, arguments: Sequence[Use], wanted: Iterable[int], loops: tuple[Use, ...]) -> Effects:
        env = env.enter(arguments)
        before: list[Uses] = []
        uses: list[list[Use]] = []
        for binding in self.bindings:
            before.append(env)
            uses.append([Use(loops) for _ in binding.types])
            env = env.extend(uses[-1])
        own_uses = {id(use) for step in uses for use in step}
        for position in wanted:
            use = self.results[position].use(env)
            if use is not None:
                use.live = True
                use.results += 1
                use.escapes = use.escapes or id(use) not in own_uses
        effects: Effects = set()
        self.steps = [_Step() for _ in self.bindings]
        for k in reversed(range(len(self.bindings))):
            step, operation = self.steps[k], self.bindings[k].operation
            step.live = {position for position, use in enumerate(uses[k]) if use.live}
            step.lazy = operation.lazy({p: uses[k][p] for p in step.live}) if operation.waits else set()
            if any(uses[k][p].depth >= Nesting.DEEPEST for p in step.lazy):
                step.lazy = set()
            with self.nesting.at([uses[k][p] for p in step.lazy]):
                own = operation.analyse(before[k], step.live, loops)
            step.needed = bool(step.live or own)
            effects |= own
            if own:
                step.lazy = set()
            elif operation.waits:
                step.only_results = {p for p in step.live if uses[k][p].only_a_result()}
        return effects

    def parameters(self, loops: tuple[Use, ...]) -> list[Use]:
        """Uses of the parameters, bound inside these loops."""
        return [Use(loops) for _ in self.names]

    def entry(self, env: Env[_Entry], wanted: Iterable[int]) -> Callable[..., list[Value]]:
        """The block as a function of its parameters in the builder."""
        return lambda *arguments: self.emit(env, arguments, wanted)

    def emit(self, env: Env[_Entry], arguments: Sequence[_Entry], wanted: Iterable[int]) -> list[Value]:
        env = self._bindings(env, arguments, None)
        return [self.results[position].value(env) for position in wanted]

    def element(self, env: Env[_Entry], i: Value, position: int, rest: Sequence[Value]) -> Value:
        """One element of a result that is an array (the result itself when no indices are left)."""
        env = self._bindings(env, [i], position if rest else None)
        result = self.results[position].emit(env)
        assert result is not None
        return result.at(rest) if isinstance(result, _Lazy) else current().index(result, rest)

    def _bindings(self, env: Env[_Entry], arguments: Sequence[_Entry], entered: int | None) -> Env[_Entry]:
        """Emit what is needed; the result that will be entered by an index is delayed if it is used for that alone."""
        builder, outer = current(), current().origin
        name_arguments(arguments, self.names)
        env = env.enter(arguments)
        for binding, step in zip(self.bindings, self.steps, strict=True):
            if not step.needed:
                env = env.extend([None] * len(binding.types))
                continue
            builder.origin = binding.origin
            lazy = step.lazy if entered is None else step.lazy | step.only_results
            entries: list[_Entry] = [None] * len(binding.types)
            if lazy != step.live or not lazy:
                entries = list(binding.operation.emit(env, step.live - lazy))
            for position in lazy:
                entries[position] = binding.operation.lazily(env, position)
            env = env.extend(entries)
        builder.origin = outer
        return env
