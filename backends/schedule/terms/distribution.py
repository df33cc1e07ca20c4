"""Loop distribution (Allen and Kennedy 2002): a term becomes perfect nests, the form in which loops can be made fast.

Inside a parallel loop, an array, reduction or expensive scalar that other inner loops use is computed first, for all
iterations, and stored (*scalar expansion*); the loop is *distributed* over what is left:

    for i: b = for k: heavy(i, k)             B = for i, k: heavy(i, k)
           m = max(k: b[k])              =>   M = for i: max(k: B[i, k])
           y[i] = sum(k: exp(b[k] - m))       y = for i: sum(k: exp(B[i, k] - M[i]))

With the values stored, simplify's accumulator rules may interchange loops that they could not before: a gradient's
updates become matrix products. Each nest then has parallel loops outside and at most reductions inside, and
``lower.py`` chooses, nest by nest, which loop is parallel, which is the vector and which is unrolled.

The decision here is one of memory for speed: what is stored has one element for each run of an inner loop of some
length, so stores are few beside the work. Inner arrays of a small constant size stay where they are, in registers, if
all loops beside them can be written out, but for those that let more updates become sums than they have elements
(``schedule/terms/shared_updates.py``). In a deep nest what is stored inside would get an axis for each loop around, and
code as many loops: from the loop on for which that is more than any memory holds, the loops outside stay as they are,
and only those inside are distributed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from ....core.builder import Builder
from ....core.constructs import Construct
from ....core.dims import Dim
from ....core.graph import Value
from ....core.language import Binding
from ....core.primitive import Primitive
from ....core.terms import Block, Operation
from ....core.types import Accumulator, ArrayType, Type, dims, i64
from ....interpreters.embed import Embed, rebuilt
from ....interpreters.simplify import simplify
from ....interpreters.simplify.costs import COSTLY
from ....interpreters.simplify.rules import rewrite
from ...decisions import Decisions, origin_text
from ...target import DISTRIBUTION_ROUNDS, LEAST_AXIS, MOST_STORED, SMALL_ARRAY, UPDATES_UNKNOWN_ITERATIONS
from ...transformations import ALL, Transformations
from .shared_updates import Free, Place, Updates, outside, repeated, shared, together, updates_of


def schedule(
    block: Block, allowed: Transformations = ALL, decisions: Decisions | None = None, groups: bool = False
) -> Block:
    """The distributed form of a closed, simplified block; ``decisions`` are told what was stored, and why.

    ``groups`` is for targets that run many light threads: there each element of an array is worth one of them.
    """
    if not allowed.distribute:
        return block
    for _ in range(DISTRIBUTION_ROUNDS):
        before, block = block, _round(block, decisions or Decisions(), groups)
        if block == before:
            break
        block = simplify(block, fuse=False)
    return block


def _round(block: Block, decisions: Decisions, groups: bool) -> Block:
    return rebuilt(block, lambda builder: _Distribute(builder, decisions, groups), rewrite)


T = TypeVar("T")
Cuts = dict[int, str]  # bindings of a block that are stored for all iterations, by their place in it, and why


@dataclass(frozen=True)
class _Atom:
    emit: Any
    free: Free = frozenset()
    extent: int = LEAST_AXIS  # of the axis whose size it is, if it is one
    short: bool = False  # whether it is the number of iterations of a loop that can be written out
    elements: float = 1

    def __call__(self, env: Any) -> Any:
        return self.emit(env)


@dataclass(frozen=True)
class _Operation:
    emit: Any
    free: Free
    inner: Free = frozenset()  # what loops inside it use
    loops: bool = False
    costly: bool = False
    heavy: bool = False  # it takes longer to compute than to read what was stored
    stored: int = 0  # how many elements are stored when its loops are distributed
    long: bool = False  # it has a loop that cannot be written out
    updates: Updates = field(default_factory=dict)  # what updates inside it read
    factors: Sequence[Free] = ()  # what each of two factors is made from, of a product or of a sum of products
    primitive: str = ""  # the name of the operation on scalars that it is
    wrapped: Free = frozenset()  # what it is the remainder of

    def __call__(self, env: Any) -> Sequence[Value]:
        values: Sequence[Value] = self.emit(env)
        return values


class _Block:
    """A block with what the decision needs: which of its values are used inside loops of later operations."""

    def __init__(
        self,
        binders: Sequence[Type],
        bindings: Sequence[Binding],
        results: Sequence[_Atom],
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
        self.costly = any(binding.operation.costly for binding in bindings)
        self.heavy = any(binding.operation.heavy for binding in bindings)
        self.stored = max([binding.operation.stored for binding in bindings], default=0)
        self.long = any(binding.operation.long for binding in bindings)
        self.wrapped = self._wrapped()
        self.read = updates_of(len(binders), bindings)
        self.updates = outside(self.read)

    def __call__(self, env: Any, arguments: Sequence[Value]) -> list[Value]:
        values: list[Value] = self.run(env, arguments)
        return values

    @cached_property
    def made(self) -> Sequence[Free]:
        """What each value is made from, by its level: binders have theirs, what is outside is counted from -1 down."""
        made: list[Free] = [frozenset([level]) for level in range(len(self.binders))]
        for binding in self.bindings:
            made += [_made(made, binding.operation.free)] * len(binding.types)
        return made

    def factors(self) -> Sequence[Free]:
        """What each of two factors is made from, whose product, or sum of products, is the only result."""
        if not self.bindings or [result.free for result in self.results] != [frozenset([0])]:
            return ()
        before = self.made[: len(self.made) - len(self.bindings[-1].types)]
        return [_made(before, free) for free in self.bindings[-1].operation.factors]

    def cuts(self, reduction: bool, lanes: bool = False, wanted: Free = frozenset(), product: bool = False) -> Cuts:
        """The bindings to be stored for all iterations of the loop around this block.

        In a reduction all loops are, but for one that it goes on combining; ``lanes`` says that a loop outside of it
        can be lanes, which then run all of its loops, so that each of several results may come from a loop. Small
        arrays that would be kept in registers are stored if they are ``wanted``. The result is stored, too, if it is an
        entry of a ``product`` of matrices.
        """
        starts, position = [], len(self.binders)
        for binding in self.bindings:
            starts.append(position)
            position += len(binding.types)
        used = set()  # levels used inside loops of this block
        for start, binding in zip(starts, self.bindings, strict=True):
            if binding.operation.loops:
                used |= {start - 1 - index for index in binding.operation.inner}
        for start, binding in zip(reversed(starts), reversed(self.bindings), strict=True):
            operation = binding.operation
            if start in used and not operation.loops:
                # What is cheap is computed again inside the loops; what is not is stored, and so is what it is made of.
                used |= {start - 1 - index for index in operation.free}
        shared = self._shared(starts)
        updating = {
            start - 1 - k for start, each in zip(starts, self.bindings) if not each.types for k in each.operation.free
        }
        merged = self._result_levels(position, lanes) if reduction and not product else set()
        found = {}
        for k, (start, binding) in enumerate(zip(starts, self.bindings, strict=True)):
            levels = set(range(start, start + len(binding.types)))
            why = ""
            if binding.operation.loops or (binding.operation.costly and start not in self.wrapped):
                why = "loops inside use it" if levels & used else "several updates use it" if levels & shared else ""
            if reduction and binding.operation.loops and merged.isdisjoint(levels):
                why = "it is a loop inside of a reduction"
            if not why and binding.operation.loops and levels & updating:
                why = "an update needs it"
            stored = [_storable(type, self.long) or level in wanted for level, type in enumerate(binding.types, start)]
            if why and levels and all(stored):
                found[k] = why
        return found

    def behind(self, cuts: Cuts, fixed: Callable[[Free], bool]) -> Cuts:
        """The cuts, but behind what is costly and made of them, as long as what that is made from is ``fixed``.

        So a loop around that neither varies with computes it once, and what is stored has as many elements.
        """
        position, starts, moved = len(self.binders), list[int](), set[int]()  # levels that a cut may lie behind
        for k, binding in enumerate(self.bindings):
            starts.append(position)
            levels = range(position, position + len(binding.types))
            read = {position - 1 - index for index in binding.operation.free}
            if (
                levels
                and fixed(self.made[position])
                and (k in cuts or not (binding.operation.loops or moved.isdisjoint(read)))
            ):
                moved |= set(levels)
            position += len(binding.types)
        used = {position - 1 - index for result in self.results for index in result.free}
        found = {}
        for (k, binding), start in zip(reversed(list(enumerate(self.bindings))), reversed(starts), strict=True):
            levels = range(start, start + len(binding.types))
            if start in moved and used.isdisjoint(levels):
                continue
            if k in cuts:
                found[k] = cuts[k]
            elif start in moved and binding.operation.costly:
                found[k] = "a loop around would compute it again"
                continue
            used |= {start - 1 - index for index in binding.operation.free}
        return dict(sorted(found.items()))

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
        return frozenset([level for level, count in counts.items() if level >= 0 and count > _elements(types[level])])

    def heavy_parts(self) -> Cuts:
        """The bindings to be stored for all elements that are combined in order.

        A nest computes them side by side, and a scan, which runs through its elements twice, only once.
        """
        position = len(self.binders) + sum(len(binding.types) for binding in self.bindings)
        used = {position - 1 - index for result in self.results for index in result.free}
        found = {}
        for k, binding in reversed(list(enumerate(self.bindings))):
            position -= len(binding.types)
            if used.isdisjoint(range(position, position + len(binding.types))):
                continue
            if binding.operation.heavy and all(_storable(type) for type in binding.types):
                found[k] = "it is combined in order"
            else:
                used |= {position - 1 - index for index in binding.operation.free}
        return dict(sorted(found.items()))

    def _wrapped(self) -> Free:
        """The levels of places that are moved and wrap around: not stored, since reads there are nearly contiguous."""
        moved, found, level = set[int](), set[int](), len(self.binders)
        for binding in self.bindings:
            if binding.operation.primitive in ("add", "subtract", "negative"):
                moved.add(level)
            if binding.operation.wrapped and moved.issuperset([level - 1 - k for k in binding.operation.wrapped]):
                found.add(level)
            level += len(binding.types)
        return frozenset(found)

    def _shared(self, starts: Sequence[int]) -> set[int]:
        """The levels of what is not cheap and of which several updates are made: stored, so that each goes its way."""
        made_of: dict[int, frozenset[int]] = {}  # by level: the levels, not cheap, from which a scalar is computed
        counts: dict[int, float] = {}
        for start, binding in zip(starts, self.bindings, strict=True):
            operation = binding.operation
            sources = [made_of.get(start - 1 - index, frozenset[int]()) for index in operation.free]
            own = frozenset[int]().union(*sources)
            for k in range(len(binding.types)):
                kept = operation.loops or (operation.costly and start not in self.wrapped)
                made_of[start + k] = own | {start + k} if kept else own
            if not binding.types:
                for level in own:
                    counts[level] = counts.get(level, 0) + 1
        return {level for level, count in counts.items() if count > 1}

    def _result_levels(self, position: int, several: bool) -> set[int]:
        """The levels of values that are results as they are, which a surrounding reduction may go on combining.

        Of several results all count or, where each is to be summed by itself, none.
        """
        if len(self.results) > 1 and not several:
            return set()
        return {position - 1 - index for result in self.results if len(result.free) == 1 for index in result.free}


def _made(made: Sequence[Free], free: Free) -> Free:
    """What is made from values with these indices, of which the latest has index 0."""
    bound = len(made)
    return frozenset().union(*[made[bound - 1 - k] if k < bound else frozenset([bound - 1 - k]) for k in free])


def _storable(type: Type, long: bool = False) -> bool:
    """Whether a value is to be stored for all iterations: its size is known before them, and it is not small.

    Small arrays are kept in registers where the loop's body has only loops that can be written out: no ``long`` ones.
    """
    small = isinstance(type, ArrayType) and _elements(type) <= SMALL_ARRAY
    return all(dim.is_static() for dim in dims(type)) and (long or not small)


def _elements(type: Type) -> float:
    """How many elements a value has; infinity for an array of unknown size."""
    sizes = [dim.constant for dim in dims(type)]
    return math.prod([math.inf if size is None else size for size in sizes])


def _room(type: Type) -> int:
    """About how many elements a value has, for what is stored."""
    return math.prod([_extent(dim) for dim in dims(type)])


def _extent(dim: Dim) -> int:
    """About how long an axis is."""
    return max(LEAST_AXIS, dim.constant or 0)


def _adds(operator: _Block) -> bool:
    """Whether an operator is the addition of two scalars."""
    return len(operator.binders) == 2 and [binding.operation.primitive for binding in operator.bindings] == ["add"]


def _free(*parts: Any) -> Free:
    return frozenset().union(*[part.free for part in parts])


class _Distribute(Embed):
    """Rebuilds a term, distributing each loop that has something to store, as ``decisions`` want it."""

    def __init__(self, builder: Builder, decisions: Decisions, groups: bool) -> None:
        super().__init__(builder)
        self.decisions, self.groups = decisions, groups
        self.parallel = False  # whether the nearest loop around is one whose iterations are independent

    def distributed(
        self, env: Any, length: Value, body: _Block, cuts: Cuts, stored: int
    ) -> Callable[[Value], list[Value]]:
        """The body of a loop, as a function of the loop's variable, after what is to be stored, all in all so much."""
        if cuts and stored > MOST_STORED:
            told = f"not distributed: {body.names[0] or 'i'} < {length.dim}, where 2^{stored.bit_length() - 1} and more"
            self.decisions.note(f"{told} elements would be stored")
            return lambda i: body(env, [i])
        cuts = body.behind(cuts, partial(self.is_fixed, env)) if cuts else cuts
        cuts = {k: why for k, why in cuts.items() if self.stores(body.bindings[k], length, body, why)}
        if not cuts:
            return lambda i: body(env, [i])
        return self.within(True, lambda: _Distributed(self.builder, env, length, body, cuts))

    def is_fixed(self, env: Any, made: Free) -> bool:
        """Whether what is made from values of a body does not vary with a loop around it."""
        around = frozenset([binder.number for scope in self.builder.scopes[1:] for binder in scope.binders])
        values = [env.get(-1 - level) for level in made if level < 0]
        return not around.issubset(frozenset().union(*[value.free for value in values if value is not None]))

    def stores(self, binding: Binding, length: Value, body: _Block, why: str) -> bool:
        """Whether a binding of a loop's body is stored for all iterations."""
        what, range = origin_text(binding.origin, binding.types), f"for all {body.names[0] or 'i'} < {length.dim}"
        told = f"stored {range}: {what}, since {why}"
        return self.decisions.take("distribute", f"{what} {range}", told)

    def in_order(self, emit: Any) -> Any:
        """The loop with a body that runs iteration by iteration."""
        return lambda env: self.within(False, lambda: emit(env))

    def within(self, parallel: bool, emit: Callable[[], T]) -> T:
        """What is emitted inside a loop that is parallel, or not."""
        outer, self.parallel = self.parallel, parallel
        made = emit()
        self.parallel = outer
        return made

    def wanted(self, env: Any, body: _Block) -> Free:
        """The small arrays that updates want to be stored for all iterations of a loop with this body."""
        anchor = self.builder.scopes[-1].anchor  # of the loop around, if there is one

        def around(index: int) -> bool | None:
            accumulator = env.get(index)
            return None if accumulator is None else any(accumulator.number < number for number in anchor)

        return body.wanted(around) if body.read else frozenset()

    def variable(self, index: int, type: Type) -> Any:
        found = (lambda env: env.get(index)) if isinstance(type, Accumulator) else super().variable(index, type)
        # None for an accumulator that does not exist in this part.
        return _Atom(found, frozenset([index]), elements=_elements(type))

    def literal(self, value: Any, type: Any) -> Any:
        short = type is i64 and value <= SMALL_ARRAY
        return _Atom(super().literal(value, type), short=short)

    def constant(self, array: Any, type: Any) -> Any:
        return _Atom(super().constant(array, type))

    def dim(self, dim: Dim) -> Any:
        short = dim.constant is not None and dim.constant <= SMALL_ARRAY
        return _Atom(super().dim(dim), extent=_extent(dim), short=short)

    def operation(self, operation: Operation, args: Sequence[Any], blocks: Sequence[Any]) -> Any:
        emit = super().operation(operation, args, blocks)
        if operation.row.expansion is None:
            return emit
        free, stored = _free(*args, *blocks), max([block.stored for block in blocks], default=0)
        return _Operation(emit, free, free, loops=True, heavy=True, stored=stored, long=True)

    def primitive(self, primitive: Primitive, args: Sequence[Any]) -> Any:
        costly = primitive.cost > COSTLY
        factors = [arg.free for arg in args] if primitive.name == "multiply" else []
        emit = super().primitive(primitive, args)
        wrapped = args[0].free if primitive.name == "remainder" else frozenset()
        made = _Operation(emit, _free(*args), costly=costly, heavy=costly, factors=factors)
        return replace(made, primitive=primitive.name, wrapped=wrapped)

    def size(self, array: Any, axis: int) -> Any:
        return _Operation(super().size(array, axis), array.free)

    def index(self, array: Any, indices: Sequence[Any]) -> Any:
        return _Operation(super().index(array, indices), _free(array, *indices))

    def cond(self, test: Any, then: Any, orelse: Any) -> Any:
        inner, costly = then.inner | orelse.inner, then.costly or orelse.costly
        heavy = then.heavy or orelse.heavy
        return _Operation(
            super().cond(test, then, orelse),
            _free(test, then, orelse),
            inner,
            bool(inner),
            costly,
            heavy,
            max(then.stored, orelse.stored),
            then.long or orelse.long,
            together([then.updates, orelse.updates]),
        )

    def loop(self, dim: Dim, extent: Any, initials: Sequence[Any], body: Any) -> Any:
        emit = self.in_order(super().loop(dim, extent, initials, body))
        free, stored, updates = _free(extent, *initials, body), body.stored, repeated(body.updates)
        long = body.long or not extent.short
        return _Operation(emit, free, body.free, loops=True, heavy=True, stored=stored, long=long, updates=updates)

    def while_loop(self, initials: Sequence[Any], test: Any, body: Any) -> Any:
        emit, inner = self.in_order(super().while_loop(initials, test, body)), test.free | body.free
        free, stored, updates = _free(*initials, test, body), max(test.stored, body.stored), repeated(body.updates)
        return _Operation(emit, free, inner, loops=True, heavy=True, stored=stored, long=True, updates=updates)

    def scatter(self, unique: bool, extents: Sequence[Any], destinations: Sequence[Any], element: Any) -> Any:
        emit = super().scatter(unique, extents, destinations, element)
        free, inner = _free(*extents, *destinations, element), element.free | _free(*destinations)
        return _Operation(emit, free, inner, loops=True, stored=element.stored, long=True)

    def argsort(self, array: Any) -> Any:
        return _Operation(super().argsort(array), array.free, array.free, True, heavy=True, long=True)

    def custom(self, rules: tuple[str, ...], args: Sequence[Any], body: Any, blocks: Sequence[Any]) -> Any:
        """A checkpoint: what is inside is scheduled by itself."""
        free = _free(*args, body)
        emit = super().custom(rules, args, body, blocks)
        return _Operation(emit, free, free, loops=True, heavy=True, stored=body.stored, long=True)

    def accumulate(self, initials: Sequence[Any], body: Any) -> Any:
        emit, free = super().accumulate(initials, body), _free(*initials, body)
        stored, long, updates = body.stored, body.long, body.updates
        return _Operation(emit, free, body.free, loops=True, heavy=True, stored=stored, long=long, updates=updates)

    def add_to(self, accumulator: Any, value: Any, indices: Sequence[Any]) -> Any:
        emit = super().add_to(accumulator, value, indices)

        def update(env: Any) -> Sequence[Value]:
            return [] if accumulator(env) is None else emit(env)

        [added_to] = accumulator.free
        reads = {
            Place(added_to, _free(*indices)): dict.fromkeys(value.free, min(value.elements, UPDATES_UNKNOWN_ITERATIONS))
        }
        return _Operation(update, _free(accumulator, value, *indices), updates=reads)

    def require(self, test: Any, failure: Any, values: Sequence[Any]) -> Any:
        return _Operation(super().require(test, failure, values), _free(test, *values))

    def generate(self, dim: Dim, extent: Any, body: Any) -> Any:
        fixed = body.cuts(reduction=False)

        def emit(env: Any) -> Sequence[Value]:
            wanted = self.wanted(env, body)
            cuts = body.cuts(reduction=False, wanted=wanted) if wanted else fixed
            length = extent(env)
            element = self.distributed(env, length, body, cuts, extent.extent * body.elements(cuts))
            return self.builder.generate(length, lambda i: self.within(True, lambda: element(i)))

        stored, long = extent.extent * body.elements(fixed), body.long or not extent.short
        free, updates = _free(extent, body), repeated(body.updates, dim)
        return _Operation(emit, free, body.free, True, heavy=body.heavy, stored=stored, long=long, updates=updates)

    def reduce(self, extent: Any, neutrals: Sequence[Any], element: Any, operator: Any) -> Any:
        along, alone = element.cuts(reduction=True, lanes=True), element.cuts(reduction=True)
        # Any other operator than one primitive combines in order, which leaves nothing to compute side by side.
        ordered = dict(sorted({**element.heavy_parts(), **alone}.items())) if len(operator.bindings) > 1 else alone
        stored = extent.extent * element.elements(alone)

        factors, sums = element.factors(), _adds(operator)

        def emit(env: Any) -> Sequence[Value]:
            cuts = along if self.parallel and not self.groups else alone if len(self.builder.scopes) > 1 else ordered
            if not sums and self.of_matrices(env, factors):
                cuts = element.cuts(reduction=True, product=True)
            length = extent(env)
            at = self.distributed(env, length, element, cuts, stored)
            units = [neutral(env) for neutral in neutrals]
            return self.builder.reduce(length, units, at, lambda *ab: operator(env, ab))

        free, inner = _free(extent, *neutrals, element, operator), element.free | operator.free
        long = element.long or not extent.short
        outside = [frozenset([-1 - level for level in each if level < 0]) for each in factors if sums and 0 in each]
        return _Operation(emit, free, inner, True, heavy=True, stored=stored, long=long, factors=outside)

    def of_matrices(self, env: Any, factors: Sequence[Free]) -> bool:
        """Whether of two factors of a loop's element one alone varies with the loop, and the other with one around."""
        if len(factors) != 2 or (0 in factors[0]) == (0 in factors[1]):
            return False
        around = frozenset([binder.number for scope in self.builder.scopes[1:] for binder in scope.binders])
        row, column = sorted(factors, key=lambda each: 0 in each)
        made = [[env.get(-1 - level) for level in each if level < 0] for each in (row, column)]
        rows, columns = [frozenset().union(*[value.free for value in each if value is not None]) for each in made]
        return not (rows - columns).isdisjoint(around)

    def combination(
        self, construct: Construct, extents: Sequence[Any], neutrals: Sequence[Any], element: Any, operator: Any
    ) -> Any:
        """What combines elements in order; what is heavy in them is stored."""
        cuts = element.heavy_parts()
        stored = extents[-1].extent * element.elements(cuts)

        def emit(env: Any) -> Sequence[Value]:
            sizes = [extent(env) for extent in extents]
            at = self.distributed(env, sizes[-1], element, cuts, stored)
            units = [neutral(env) for neutral in neutrals]
            return self.builder.combination(construct.name, sizes, units, at, lambda *ab: operator(env, ab))

        free, inner = _free(*extents, *neutrals, element, operator), element.free | operator.free
        return _Operation(emit, free, inner, loops=True, heavy=True, stored=stored, long=True)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Any], names: Sequence[str]
    ) -> Any:
        return _Block(binders, bindings, results, names, super().block(binders, bindings, results, names))


class _Distributed:
    """The body of a distributed loop: what was stored is read."""

    def __init__(self, builder: Builder, env: Any, length: Value, body: _Block, cuts: Cuts) -> None:
        self.builder, self.env, self.body = builder, env, body
        self.stored: dict[int, Sequence[Value]] = {}
        for cut in cuts:
            self.stored[cut] = builder.generate(length, partial(self._run, stop=cut))

    def __call__(self, i: Value) -> list[Value]:
        return self._run(i)

    def _run(self, i: Value, stop: int | None = None) -> list[Value]:
        """Emit the body for an iteration; up to a binding, whose results it then gives.

        Statements run once, in the last part: for the others the accumulators of this place do not exist.
        """
        env, outer = (
            (self.env if stop is None else self.env.mapped(_without_accumulator)).enter([i]),
            self.builder.origin,
        )
        for k, binding in enumerate(self.body.bindings):
            self.builder.origin = binding.origin
            if k in self.stored:
                if stop is None and _updates(binding.operation, env):
                    binding.operation(env)  # for its statements
                values = [self.builder.part(array, [i]) for array in self.stored[k]]
            elif stop is not None and not binding.types:
                values = []
            else:
                values = list(binding.operation(env))
            if k == stop:
                return values
            env = env.extend(values)
        self.builder.origin = outer
        return [result(env) for result in self.body.results]


def _without_accumulator(value: Value | None) -> Value | None:
    return None if value is None or isinstance(value.type, Accumulator) else value


def _updates(operation: _Operation, env: Any) -> bool:
    """Whether an operation adds to accumulators that exist where it stands."""
    used = [env.get(index) for index in operation.free]
    return any(value is not None and isinstance(value.type, Accumulator) for value in used)
