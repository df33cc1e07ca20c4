"""Dead-code elimination: what of a term is needed, and how that is emitted again.

``analyse`` runs backwards through a block and marks what its wanted results (and its live effects) use. What a
construct yields is wanted result by result: a state that feeds only itself, a component of a reduction that the
others do not need, an update of an accumulator whose final value is dead, all go. ``emit`` then rebuilds the rest
in the current builder. An array that is read exactly once, in the loops it was made in or at a distance, or at one
place alone, is not made: it is computed where it is read, as are the arrays that a cheap ``cond`` chooses.
``constructs.py`` says for each construct what it needs.

    a, b = loop i < n (a = 0, b = 1): (a + x[i], b * a)          a = loop i < n (a = 0): a + x[i]
    return a                                                     return a
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...core.builder import current
from ...core.environment import Env
from ...core.graph import Value
from ...core.language import Binding
from ..embed import name_arguments

# What is known of a value while a block is analysed


class Use:
    """How a bound value is used: where it is read as an array, and whether in any other way."""

    __slots__ = ("chosen", "depth", "escapes", "live", "loops", "moved", "reads", "results")

    def __init__(self, loops: tuple[Use, ...]) -> None:
        self.loops = loops  # the loop variables around its definition
        self.live = False
        self.reads: dict[int, tuple[list[Use | None], tuple[Use, ...]]] = {}  # by site: indices, loops around it
        self.depth = self.chosen = 0  # of the reads (see Nesting)
        self.results = 0  # times it is a result of its own block
        self.escapes = False
        self.moved: list[Use | None] = []  # what it is the sum or the difference of

    def read_once_in_place(self, apart: bool) -> bool:
        """One read that computes no element twice, nor what some elements share.

        Its indices are the variables of the loops that lie between definition and read, in their order, each perhaps
        moved by a constant, and besides them only values from outside these loops; in any order, if elements are
        computed ``apart``, sharing little.
        """
        if self.escapes or self.results or len(self.reads) != 1:
            return False
        indices, loops = next(iter(self.reads.values()))
        between = loops[len(self.loops) :]
        followed = [index and (index.followed(between, self) or index) for index in indices]
        moving = [index for index in followed if index is not None and (index in between or self.inside(index))]
        moving = moving[: len(between)]
        return tuple(moving) == between or (apart and set(moving) == set(between))

    def place(self) -> tuple[Use | None, ...] | None:
        """The indices of all reads, where these are the same variables and change in no loop between."""
        places = {tuple(indices) for indices, _ in self.reads.values()}
        if self.escapes or self.results or len(places) != 1:
            return None
        between = {loop for _, loops in self.reads.values() for loop in loops[len(self.loops) :]}
        (place,) = places
        known = all([index is not None and index not in between and not self.inside(index) for index in place])
        return place if known else None

    def followed(self, loops: Sequence[Use], array: Use) -> Use | None:
        """The loop variable that an integer follows at a distance, which does not change in loops around a read."""
        if self in loops:
            return self
        changing = [part for part in self.moved if part is not None and (part in loops or array.inside(part))]
        return changing[0].followed(loops, array) if len(changing) == 1 else None

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
REQUIREMENTS = Use(())

Uses = Env[Use]


class Lazy(ABC):
    """An array that is not made: its elements are computed where they are read."""

    @abstractmethod
    def at(self, indices: Sequence[Value]) -> Value:
        """The element at these indices."""


Entry = Value | Lazy | None  # None: dead, not emitted


class Atom:
    """A variable; the others override."""

    def __init__(self, index: int) -> None:
        self.index = index

    def use(self, env: Uses) -> Use | None:
        return env.get(self.index)

    def emit(self, env: Env[Entry]) -> Entry:
        return env.get(self.index)

    def need(self, env: Uses) -> None:
        use = self.use(env)
        if use is not None:
            use.live = use.escapes = True

    def value(self, env: Env[Entry]) -> Value:
        value = self.emit(env)
        assert isinstance(value, Value)
        return value


class Closed(Atom):
    """A literal, constant or size."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self.make = make

    def use(self, env: Uses) -> Use | None:
        return None

    def emit(self, env: Env[Entry]) -> Entry:
        return self.make()


class Operation:
    """A pure operation without blocks; the others override.

    ``cost`` is about how many additions a scalar result, or an element of an array, takes; infinite with inner loops.
    """

    cost = math.inf
    waits = False  # whether arrays among the results may be computed where they are read
    summands: Sequence[Atom] = ()  # of a sum or a difference

    def __init__(self, args: Sequence[Atom], emit: Callable[[list[Value]], Sequence[Value]], cost: float = 1) -> None:
        self.args, self.build, self.cost = args, emit, cost

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        """Mark what the live results (and live effects) need; the effects that are live.

        Loops look into their bodies until no further state is needed, and so again and again into the loops in these.
        What is live only grows meanwhile: a loop begins with what it needed before, so that all its visits together
        take as many steps as it has states, and not as many at each.
        """
        if live:
            self.need(env, self.args)
        return set()

    def need(self, env: Uses, args: Iterable[Atom]) -> None:
        for arg in args:
            arg.need(env)

    def emit(self, env: Env[Entry], live: set[int]) -> Sequence[Entry]:
        """The live results, None for the others."""
        return self.build([arg.value(env) for arg in self.args])

    def lazy(self, live: dict[int, Use]) -> set[int]:
        """The results, of those that are live, that need not be made, as far as their uses say."""
        raise NotImplementedError

    def lazily(self, env: Env[Entry], position: int) -> Lazy:
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
            for made in uses[-1]:
                made.moved = [arg.use(before[-1]) for arg in binding.operation.summands]
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

    def entry(self, env: Env[Entry], wanted: Iterable[int]) -> Callable[..., list[Value]]:
        """The block as a function of its parameters in the builder."""
        return lambda *arguments: self.emit(env, arguments, wanted)

    def emit(self, env: Env[Entry], arguments: Sequence[Entry], wanted: Iterable[int]) -> list[Value]:
        env = self._bindings(env, arguments, None)
        return [self.results[position].value(env) for position in wanted]

    def element(self, env: Env[Entry], i: Value, position: int, rest: Sequence[Value]) -> Value:
        """One element of a result that is an array (the result itself when no indices are left)."""
        env = self._bindings(env, [i], position if rest else None)
        result = self.results[position].emit(env)
        assert result is not None
        return result.at(rest) if isinstance(result, Lazy) else current().index(result, rest)

    def _bindings(self, env: Env[Entry], arguments: Sequence[Entry], entered: int | None) -> Env[Entry]:
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
            entries: list[Entry] = [None] * len(binding.types)
            if lazy != step.live or not lazy:
                entries = list(binding.operation.emit(env, step.live - lazy))
            for position in lazy:
                entries[position] = binding.operation.lazily(env, position)
            env = env.extend(entries)
        builder.origin = outer
        return env
