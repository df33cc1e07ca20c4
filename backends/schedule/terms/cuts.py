"""Cuts: which values of a loop's body are stored for all its iterations, before the loop is distributed.

The parts of a term know what the decision needs: what a value is made from, what loops inside use, whether it takes
long, and which updates read it. ``Body`` takes the cuts (``distribution.py`` says which are wanted, and why).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from ....core.dims import Dim, DimAtom, Name
from ....core.graph import Value
from ....core.language import Binding
from ....core.types import ArrayType, Scalar, Type, dims, element
from ....interpreters.simplify.minimum_cut import minimum_cut
from ...target import CSE_WORTH, LEAST_AXIS, SMALL_ARRAY
from .shared_updates import Free, Updates, outside, shared, updates_of

Cuts = dict[int, str]  # bindings of a block that are stored for all iterations, by their place in it, and why
INSIDE = "loops inside use it"
_READERS = -1  # of values, among the bindings
LONG = "an update needs it, which has no lanes"  # if it has no more values than the array that is updated


@dataclass(frozen=True)
class Atom:
    """What is there already, as its users see it."""

    emit: Any
    free: Free = frozenset()
    extent: int = LEAST_AXIS  # of the axis whose size it is, if it is one
    count: float = math.inf  # the size, if it is known
    elements: float = 1

    @property
    def short(self) -> bool:
        """Whether a loop of so many iterations can be written out."""
        return self.count <= SMALL_ARRAY

    def __call__(self, env: Any) -> Any:
        return self.emit(env)


@dataclass(frozen=True)
class Step:
    """An operation, and what is known of it and of the loops in it."""

    emit: Any
    free: Free
    inner: Free = frozenset()  # what loops inside it use
    loops: bool = False
    costly: bool = False
    heavy: bool = False  # it takes longer to compute than to read what was stored
    stored: int = 0  # how many elements are stored when its loops are distributed
    long: bool = False  # it has a loop that cannot be written out
    once: bool = False  # it is a loop in order around long ones that updates: nothing runs it again for its results
    few: bool = False  # it is one loop, of so few iterations that lanes read what these read as rows
    even: bool = False  # all its loops are reductions over sizes: as long for each iteration of loops around
    elements: frozenset[Free] = frozenset()  # what each element that is read in it is made from
    updates: Updates = field(default_factory=dict)  # what updates inside it read
    factors: Sequence[Free] = ()  # what each of two factors is made from, of a product or of a sum of products
    primitive: str = ""  # the name of the operation on scalars that it is
    divided: Free = frozenset()  # what it is the quotient or the remainder of, by a size
    work: float = 1.0  # what it takes, loops inside aside
    rank: int = 0  # of the place that it updates
    sizes: Mapping[DimAtom, Free] = field(default_factory=dict)  # of what it makes: the integers that say how large

    def __call__(self, env: Any) -> Sequence[Value]:
        values: Sequence[Value] = self.emit(env)
        return values


class Body:
    """A block with what the decision needs: which of its values are used inside loops of later operations."""

    def __init__(
        self,
        binders: Sequence[Type],
        bindings: Sequence[Binding],
        results: Sequence[Atom],
        names: Sequence[str],
        run: Any,
    ) -> None:
        self.binders, self.bindings, self.results, self.names, self.run = binders, bindings, results, names, run
        free: set[int] = set()
        inner: set[int] = set()
        bound = len(binders)
        for binding in bindings:
            free |= {index - bound for index in binding.operation.free if index >= bound}
            inner |= {index - bound for index in binding.operation.inner if index >= bound}
            bound += len(binding.types)
        free |= {index - bound for result in results for index in result.free if index >= bound}
        self.free, self.inner = frozenset(free), frozenset(inner)
        self.turning = self._turning()
        self.costly = any(self.is_costly(k) for k in range(len(bindings)))
        self.heavy = any(self.is_heavy(k) for k in range(len(bindings)))
        self.stored = max([binding.operation.stored for binding in bindings], default=0)
        self.long = any(binding.operation.long for binding in bindings)
        self.even = all(binding.operation.even or not binding.operation.loops for binding in bindings)
        self.work = sum([binding.operation.work for binding in bindings])
        self.read = updates_of(len(binders), bindings)
        self.updates = outside(self.read)

    def __call__(self, env: Any, arguments: Sequence[Value]) -> list[Value]:
        values: list[Value] = self.run(env, arguments)
        return values

    @cached_property
    def starts(self) -> Sequence[int]:
        """The level of the first result of each binding."""
        return list(accumulate([len(binding.types) for binding in self.bindings], initial=len(self.binders)))[:-1]

    def is_costly(self, k: int) -> bool:
        """Whether a binding should not be computed twice."""
        return bool(self.bindings[k].operation.costly) and not self._turns(k)

    def is_heavy(self, k: int) -> bool:
        """Whether a binding takes longer to compute than to read what was stored."""
        return bool(self.bindings[k].operation.heavy) and not self._turns(k)

    def _turns(self, k: int) -> bool:
        return self.starts[k] in self.turning

    def reads(self, k: int) -> set[int]:
        """The levels of what a binding uses; below 0 for what is outside."""
        return {self.starts[k] - 1 - index for index in self.bindings[k].operation.free}

    @cached_property
    def made(self) -> Sequence[Free]:
        """What each value is made from, by its level: binders have theirs, what is outside is counted from -1 down."""
        made: list[Free] = [frozenset([level]) for level in range(len(self.binders))]
        for binding in self.bindings:
            made += [_made(made, binding.operation.free)] * len(binding.types)
        return made

    @cached_property
    def outer_sizes(self) -> Mapping[DimAtom, Free]:
        """The sizes of arrays that integers outside of this block say, as these are seen from there."""
        found: dict[DimAtom, Free] = {}
        for start, binding in zip(self.starts, self.bindings, strict=True):
            for size, free in binding.operation.sizes.items():
                made = _made(self.made[:start], free)
                if all(level < 0 for level in made):
                    found[size] = frozenset([-1 - level for level in made])
        return found

    def factors(self, k: int) -> Sequence[Free]:
        """What each of two factors is made from, of the product, or sum of products, that a binding is."""
        before = self.made[: self.starts[k]]
        return [_made(before, free) for free in self.bindings[k].operation.factors]

    def read_by(self, k: int) -> set[Free]:
        """What each element that a binding reads is made from."""
        before = self.made[: self.starts[k]]
        return {_made(before, free) for free in self.bindings[k].operation.elements}

    @cached_property
    def elements_read(self) -> frozenset[Free]:
        """What each element that is read in this block is made from, outside of it."""
        read = [each for k in range(len(self.bindings)) for each in self.read_by(k)]
        return frozenset([frozenset([-1 - level for level in each if level < 0]) for each in read])

    def product(self) -> Sequence[Free]:
        """The factors of the only result, if it is the last binding, and a product or a sum of products."""
        is_last = bool(self.bindings) and [result.free for result in self.results] == [frozenset([0])]
        return self.factors(len(self.bindings) - 1) if is_last else ()

    def cuts(
        self,
        reduction: bool,
        lanes: bool = False,
        wanted: Free = frozenset(),
        product: bool = False,
        apart: Callable[[int], bool] | None = None,
    ) -> Cuts:
        """The bindings to be stored for all iterations of the loop around this block.

        In a reduction all loops are but short ones that nothing costly is computed from, one that it goes on combining,
        and those that make its results, unless they are better run ``apart`` from it: a loop around can be lanes, which
        run them. ``lanes`` says that each of several results may come from a loop. Small arrays that would be kept in
        registers are stored if they are ``wanted``. The result is stored, too, if it is an entry of a ``product`` of
        matrices.
        """
        starts = self.starts
        used = set[int]()  # levels used inside loops of this block
        for start, binding in zip(starts, self.bindings, strict=True):
            if binding.operation.loops:
                used |= {start - 1 - index for index in binding.operation.inner}
        for k, binding in reversed(list(enumerate(self.bindings))):
            if starts[k] in used and not binding.operation.loops:
                # What is cheap is computed again inside the loops; what is not is stored, and so is what it is made of.
                used |= self.reads(k)
        shared = self._shared()
        updates = [k for k, each in enumerate(self.bindings) if each.operation.updates and not each.types]
        updating = {level for k in updates for level in self.reads(k)}
        merged = self._result_levels(len(self.made), lanes) if reduction and not product else set()
        if merged and apart is not None:
            merged |= self._made_into(merged, apart)
        found = {}
        for k, (start, binding) in enumerate(zip(starts, self.bindings, strict=True)):
            levels = set(range(start, start + len(binding.types)))
            why = ""
            if binding.operation.loops or self.is_costly(k):
                why = INSIDE if levels & used else "several updates use it" if levels & shared else ""
            stays = binding.operation.few and not self.costly
            if reduction and binding.operation.loops and not stays and merged.isdisjoint(levels):
                why = "it is a loop inside of a reduction"
            if not why and levels & updating:
                why = "an update needs it" if binding.operation.loops else LONG if self._is_long(k) else ""
            if why and self._may_be_stored(k, wanted):
                found[k] = why
        return self._fewer(found, wanted)

    def _may_be_stored(self, k: int, wanted: Free) -> bool:
        """Whether the results of a binding, if it has some, can be stored, and nothing runs it again for them."""
        binding, start = self.bindings[k], self.starts[k]
        stored = [self._storable(type, self.long) or level in wanted for level, type in enumerate(binding.types, start)]
        return bool(stored) and all(stored) and not binding.operation.once

    def _fewer(self, cuts: Cuts, wanted: Free) -> Cuts:
        """The cuts; where less is made of several of them before loops use it, that is stored instead.

        So loops read less, and do not compute it again. Results of other loops stay, since lanes compute what is made
        of these. ::

            s = sum(..)                              s = sum(..)
            e = exp(s)          stored: s, e     =>  e = exp(s)             stored: s, g
            for j: .. (s + e) * x[j] ..              g = s + e
                                                     for j: .. g * x[j] ..
        """
        sources = [k for k, why in cuts.items() if why == INSIDE]
        if len(sources) < 2:
            return cuts
        users, read = self._users(sources)
        weights = {k: self._bytes(k) for k in users if self._may_be_stored(k, wanted) and not self._turns(k)}
        most = 1 + sum(weights.values())
        weights = {_READERS: most, **dict.fromkeys(users, most), **weights}
        ways = {k: [*those, *[_READERS] * (k in read)] for k, those in users.items()}
        fewer = minimum_cut(weights, ways, sources)  # from the readers on, so that it is the one next to these
        crossed = [k for k in sources if k in read or not users[k] <= cuts.keys()]  # what loops would read
        kept = {k: why for k, why in cuts.items() if why != INSIDE or self.bindings[k].operation.loops}
        found = dict(sorted({**kept, **dict.fromkeys(fewer, INSIDE)}.items()))
        reads_less = sum([weights[k] for k in fewer]) < min(most, sum([weights[k] for k in crossed]))
        stores_no_more = sum([self._bytes(k) for k in found]) <= sum([self._bytes(k) for k in cuts])
        once = all([self._times(k, found) < 2 for k in sources if k not in found])
        return found if fewer and reads_less and stores_no_more and once else cuts

    def _users(self, sources: Sequence[int]) -> tuple[dict[int, set[int]], set[int]]:
        """The bindings without loops that each is made into, from the sources on, and which of them others use.

        Others are loops, updates, and what has the results of the block.
        """
        users = {k: set[int]() for k in sources}
        read = {self._binding_at.get(len(self.made) - 1 - index) for each in self.results for index in each.free}
        for j, binding in enumerate(self.bindings):
            made_of = {self._binding_at[level] for level in self.reads(j) if level in self._binding_at} & users.keys()
            if binding.operation.loops or not binding.types:
                read |= made_of
            elif made_of:
                users.setdefault(j, set())
                for k in made_of:
                    users[k].add(j)
        return users, {k for k in read if k in users}

    def _bytes(self, k: int) -> int:
        """About how many bytes are stored for an iteration with the results of a binding."""
        return sum([_room(type) * element(type).bytes for type in self.bindings[k].types])

    def _is_long(self, k: int) -> bool:
        """Whether a binding is a floating number that takes more to compute than to store and read again."""
        [*others, type] = self.bindings[k].types
        if others or not isinstance(type, Scalar) or type.kind != "float":
            return False
        binding_of = {start: number for number, start in enumerate(self.starts) if self.bindings[number].types}
        pending, seen, work = [k], {k}, 0.0
        while pending and work <= CSE_WORTH:
            number = pending.pop()
            work += self.bindings[number].operation.work
            new = {binding_of[level] for level in self.reads(number) if level in binding_of} - seen
            seen |= new
            pending += new
        return work > CSE_WORTH

    def behind(self, cuts: Cuts, fixed: Callable[[Free], bool]) -> Cuts:
        """The cuts, but behind what is costly and made of them, as long as what that is made from is ``fixed``.

        So a loop around that neither varies with computes it once, and what is stored has as many elements. Loops that
        it is made from stay.
        """
        moved = set[int]()  # levels that a cut may lie behind
        for k, (start, binding) in enumerate(zip(self.starts, self.bindings, strict=True)):
            if binding.types and fixed(self.made[start]):
                follows = not binding.operation.loops and not moved.isdisjoint(self.reads(k))
                if k in cuts or follows:
                    moved |= set(range(start, start + len(binding.types)))
        used = {len(self.made) - 1 - index for result in self.results for index in result.free}
        found = Cuts()
        for k, binding in reversed(list(enumerate(self.bindings))):
            levels = set(range(self.starts[k], self.starts[k] + len(binding.types)))
            follows = not levels.isdisjoint(moved)
            if follows and used.isdisjoint(levels) and not self._is_apart(k, cuts, found):
                continue
            if k in cuts:
                found[k] = cuts[k]
                if not self.bindings[k].operation.loops:
                    continue
            elif follows and self.is_costly(k):
                found[k] = "a loop around would compute it again"
                continue
            used |= self.reads(k)
        return dict(sorted(found.items()))

    def _is_apart(self, k: int, cuts: Cuts, stored: Cuts) -> bool:
        """Whether something is to be stored beside what is made from it.

        That is a loop, as lanes compute what is made from it, or what is costly, if several would compute it.
        """
        if self.bindings[k].operation.loops:
            return k in cuts and self._times(k, stored) > 0
        return self.is_costly(k) and self._times(k, stored) > 1

    def _times(self, k: int, stored: Cuts) -> int:
        """How many of those that are stored compute a binding that is not."""
        return sum([k in self.needed_for(each, stored) for each in stored])

    def rank(self, k: int) -> int:
        """The least rank of what is updated with the result of a binding."""
        updates = [n for n, each in enumerate(self.bindings) if not each.types and self.starts[k] in self.reads(n)]
        return min([self.bindings[n].operation.rank for n in updates], default=0)

    def elements(self, cuts: Cuts) -> int:
        """How many elements are stored for an iteration, when the loops inside are distributed as well."""
        return sum([_room(type) for k in cuts for type in self.bindings[k].types]) + self.stored

    def wanted(self, around: Callable[[int], bool | None]) -> Free:
        """The levels of small arrays of which more updates become sums than they have elements, if they are stored."""
        counts: dict[int, float] = {}
        for read in shared(self.read, around):
            for level, count in read.items():
                counts[level] = counts.get(level, 0) + count
        types = [*self.binders, *[type for binding in self.bindings for type in binding.types]]
        return frozenset([level for level, count in counts.items() if level >= 0 and count > elements_of(types[level])])

    def heavy_parts(self) -> Cuts:
        """The bindings to be stored for all elements that are combined in order.

        A nest computes them side by side, and a scan, which runs through its elements twice, only once.
        """
        used = {len(self.made) - 1 - index for result in self.results for index in result.free}
        found = {}
        for k, binding in reversed(list(enumerate(self.bindings))):
            if used.isdisjoint(range(self.starts[k], self.starts[k] + len(binding.types))):
                continue
            if self.is_heavy(k) and all(self._storable(type) for type in binding.types):
                found[k] = "it is combined in order"
            else:
                used |= self.reads(k)
        return dict(sorted(found.items()))

    def steady_parts(self) -> Cuts:
        """The bindings to be stored for all iterations of a loop in order, whose first binder is its variable.

        They are numbers that no state is needed for: lanes compute them side by side, where the loop has none. Those
        are stored that the rest of the body uses, if all of them together take longer to compute than to read again.
        """
        state = frozenset(range(1, len(self.binders)))
        used = {len(self.made) - 1 - index for result in self.results for index in result.free}
        found, work, costly = Cuts(), 0.0, self._made_of_costly()
        for k, binding in reversed(list(enumerate(self.bindings))):
            levels = set(range(self.starts[k], self.starts[k] + len(binding.types)))
            if binding.types and used.isdisjoint(levels):
                continue
            is_number = len(binding.types) == 1 and isinstance(binding.types[0], Scalar)
            if is_number and k in costly and state.isdisjoint(self.made[self.starts[k]]):
                found[k] = "a loop in order has no lanes for it"
                operations: list[Step] = [self.bindings[number].operation for number in self.needed_for(k)]
                work += sum([each.work for each in operations if each.costly])
            else:
                used |= self.reads(k)
        return dict(sorted(found.items())) if work > CSE_WORTH * len(found) else {}

    def _made_of_costly(self) -> set[int]:
        """The bindings that something costly in this block goes into, and no loop."""
        costly, looped = set[int](), set[int]()
        for k, binding in enumerate(self.bindings):
            read = {self._binding_at[level] for level in self.reads(k) if level in self._binding_at}
            if binding.operation.costly or not costly.isdisjoint(read):
                costly.add(k)
            if binding.operation.loops or not looped.isdisjoint(read):
                looped.add(k)
        return costly - looped

    def needed_for(self, k: int, stored: Collection[int] = ()) -> set[int]:
        """The bindings that a binding is made from, and itself, where what is ``stored`` is there."""
        pending, found = [k], {k}
        while pending:
            read = {self._binding_at[level] for level in self.reads(pending.pop()) if level in self._binding_at}
            new = read - found - set(stored)
            pending += new
            found |= new
        return found

    @cached_property
    def _binding_at(self) -> Mapping[int, int]:
        """By level: the binding whose result it is."""
        pairs = zip(self.starts, self.bindings, strict=True)
        return {start + n: k for k, (start, each) in enumerate(pairs) for n in range(len(each.types))}

    def _turning(self) -> Free:
        """The levels of quotients and remainders by sizes of places: of a loop's variable, or of one that was moved.

        They are not stored: a loop in order counts them, and lanes are split where they turn.
        """
        places, found, level = set(range(len(self.binders))), set[int](), len(self.binders)
        for binding in self.bindings:
            divided = {level - 1 - k for k in binding.operation.divided}
            if divided and divided <= places:
                found.add(level)
            if level in found or binding.operation.primitive in ("add", "subtract", "negative"):
                places.add(level)
            level += len(binding.types)
        return frozenset(found)

    def _shared(self) -> set[int]:
        """The levels of what is not cheap and of which several updates are made: stored, so that each goes its way."""
        made_of: dict[int, frozenset[int]] = {}  # by level: the levels, not cheap, from which a scalar is computed
        counts: dict[int, float] = {}
        for number, (start, binding) in enumerate(zip(self.starts, self.bindings, strict=True)):
            operation = binding.operation
            sources = [made_of.get(level, frozenset[int]()) for level in self.reads(number)]
            own = frozenset[int]().union(*sources)
            for k in range(len(binding.types)):
                kept = operation.loops or self.is_costly(number)
                made_of[start + k] = own | {start + k} if kept else own
            if binding.operation.updates and not binding.types:
                for level in own:
                    counts[level] = counts.get(level, 0) + 1
        return {level for level, count in counts.items() if count > 1}

    def _storable(self, type: Type, long: bool = False) -> bool:
        """Whether a value is to be stored for all iterations: its size is known before them, and it is not small.

        Small arrays are kept in registers where the loop's body has only loops that can be written out: no ``long``
        ones.
        """
        small = isinstance(type, ArrayType) and elements_of(type) <= SMALL_ARRAY
        return (long or not small) and all(self._is_fixed(dim) for dim in dims(type))

    def _is_fixed(self, dim: Dim) -> bool:
        """Whether a size is the same for all iterations, as that of a call or an integer from outside."""
        known = self.outer_sizes
        return dim.is_static() or all(isinstance(atom, Name) or atom in known for atom in dim.atoms())

    def _result_levels(self, position: int, several: bool) -> set[int]:
        """The levels of values that are results as they are, which a surrounding reduction may go on combining.

        Of several results all count or, where each is to be summed by itself, none.
        """
        if len(self.results) > 1 and not several:
            return set()
        return {position - 1 - index for result in self.results if len(result.free) == 1 for index in result.free}

    def _made_into(self, results: set[int], apart: Callable[[int], bool]) -> set[int]:
        """The levels of what even loops compute and results are made of, without loops on the way."""
        needed, found = set(results), set[int]()
        for k, (start, binding) in reversed(list(enumerate(zip(self.starts, self.bindings, strict=True)))):
            levels = set(range(start, start + len(binding.types)))
            if levels.isdisjoint(needed):
                continue
            if not binding.operation.loops:
                needed |= self.reads(k)
            elif binding.operation.even and not apart(k):
                found |= levels
        return found


def _made(made: Sequence[Free], free: Free) -> Free:
    """What is made from values with these indices, of which the latest has index 0."""
    bound = len(made)
    return frozenset().union(*[made[bound - 1 - k] if k < bound else frozenset([bound - 1 - k]) for k in free])


def elements_of(type: Type) -> float:
    """How many elements a value has; infinity for an array of unknown size."""
    sizes = [dim.constant for dim in dims(type)]
    return math.prod([math.inf if size is None else size for size in sizes])


def _room(type: Type) -> int:
    """About how many elements a value has, for what is stored."""
    return math.prod([length_of(dim) for dim in dims(type)])


def length_of(dim: Dim) -> int:
    """About how long an axis is."""
    return max(LEAST_AXIS, dim.constant or 0)


def adds(operator: Body) -> bool:
    """Whether an operator is the addition of two scalars."""
    return len(operator.binders) == 2 and [binding.operation.primitive for binding in operator.bindings] == ["add"]


def is_length(dim: Dim) -> bool:
    """Whether arrays of a call are about as long, so that one more takes no other order of memory."""
    return all(len(atoms) <= 1 and all(isinstance(atom, Name) for atom in atoms) for atoms, _ in dim.terms)


def free_of(*parts: Any) -> Free:
    return frozenset().union(*[part.free for part in parts])
