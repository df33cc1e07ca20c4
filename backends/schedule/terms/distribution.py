"""Loop distribution (Allen and Kennedy 2002): a term becomes perfect nests, the form in which loops can be made fast.

Inside a parallel loop, an array, reduction or expensive scalar that other inner loops use is computed first, for all
iterations, and stored (*scalar expansion*); so is what an update needs that takes long, since updates that meet have
no lanes. The loop is *distributed* over what is left:

    for i: b = for k: heavy(i, k)             B = for i, k: heavy(i, k)
           m = max(k: b[k])              =>   M = for i: max(k: B[i, k])
           y[i] = sum(k: exp(b[k] - m))       y = for i: sum(k: exp(B[i, k] - M[i]))

With the values stored, simplify's accumulator rules may interchange loops that they could not before: a gradient's
updates become matrix products. Each nest then has parallel loops outside and at most reductions inside, and
``lower.py`` chooses, nest by nest, which loop is parallel, which is the vector and which is unrolled.

What is stored has been taken as far as it goes: where a loop around varies neither with it nor with what is costly and
made of it, it is the latter that is stored, with as many elements. ::

    for k, i: sum(j: w[j] / sqrt(r(i, j)) * x[j, k])        S[i, j] = w[j] / sqrt(r(i, j)), and not r(i, j)

Loops in a reduction are stored where they are worth a nest of their own, as entries of products of matrices are. What
is made of two points alone is computed where it is combined, along lanes of one of the two. ::

    y[i] = sum(j: exp(-sum(k: (p[i, k] - q[j, k])^2)))          lanes i; no array over i and j

A loop in order has no lanes. What takes long in it and needs no state is computed before, by lanes, for all steps: the
return sweep of a recurrence then multiplies and adds alone. It is as long as arrays of the call; a loop that a number
says the length of stores nothing. Where a loop around has lanes, these run the loop as it is. A loop that updates is
not run a second time for what else it makes, so it stays where it is. ::

    loop i with s: w = exp(-x[i]); next w * s         W = for i: exp(-x[i]);  loop i with s: next W[i] * s

The decision here is one of memory for speed: what is stored has one element for each run of an inner loop of some
length, so stores are few beside the work. Inner arrays of a small constant size stay where they are, in registers, if
all loops beside them can be written out, but for those that let more updates become sums than they have elements
(``schedule/terms/shared_updates.py``). In a deep nest what is stored inside would get an axis for each loop around, and
code as many loops: from the loop on for which that is more than any memory holds, the loops outside stay as they are,
and only those inside are distributed.

What is stored has loops of its own, which are distributed in turn. The first round goes through the whole program, and
later ones through the operations that still change (``pieces.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ....core.builder import Builder
from ....core.constructs import Construct
from ....core.dims import Dim
from ....core.graph import Value
from ....core.language import Binding
from ....core.primitive import Primitive
from ....core.procedures import Procedure
from ....core.terms import Block, Foreign, Operation, Rules
from ....core.types import Accumulator, Opened, Type, i64
from ....interpreters.embed import Embed, accumulate, rebuilt
from ....interpreters.simplify import simplify
from ....interpreters.simplify.costs import COSTLY, INDEX_ARITHMETIC
from ....interpreters.simplify.rules import rewrite
from ...decisions import Decisions, origin_text
from ...target import DISTRIBUTION_ROUNDS, MOST_STORED, NEAR, UPDATES_UNKNOWN_ITERATIONS
from ...transformations import ALL, Transformations
from .cuts import LONG, Atom, Body, Cuts, Step, adds, elements_of, free_of, is_length, length_of
from .pieces import Pieces
from .shared_updates import Free, Place, repeated, together


def schedule(
    block: Block, allowed: Transformations = ALL, decisions: Decisions | None = None, groups: bool = False
) -> Block:
    """The distributed form of a closed, simplified block; ``decisions`` are told what was stored, and why.

    ``groups`` is for targets that run many light threads: there each element of an array is worth one of them.
    """
    if not allowed.distribute:
        return block
    wanted = decisions or Decisions()

    def step(piece: Block) -> Block:
        return rebuilt(piece, lambda builder: _Distribute(builder, wanted, groups), rewrite)

    def simplified(piece: Block) -> Block:
        return simplify(piece, fuse=False) if _accumulates(piece) else piece

    pieces, settled = Pieces(step, simplified), step(block)
    for _ in range(DISTRIBUTION_ROUNDS):
        if settled == block:
            break
        block = simplify(settled, fuse=False)
        settled = pieces.settled(block, DISTRIBUTION_ROUNDS)
    return block


def _accumulates(block: Block) -> bool:
    """Whether a block has updates, which simplify turns into sums where what they need has been stored."""
    return any([each.op == "accumulate" or any(map(_accumulates, each.blocks)) for each in block.bindings])


T = TypeVar("T")


class _Distribute(Embed):
    """Rebuilds a term, distributing each loop that has something to store, as ``decisions`` want it."""

    def __init__(self, builder: Builder, decisions: Decisions, groups: bool) -> None:
        super().__init__(builder)
        self.decisions, self.groups = decisions, groups
        self.parallel = False  # whether the nearest loop around is one whose iterations are independent
        self.in_turn = 0  # how many of the blocks around run their iterations one after the other, or once

    def distributed(
        self, env: Any, length: Value, body: Body, cuts: Cuts, stored: int
    ) -> Callable[[Value], list[Value]]:
        """The body of a loop, as a function of the loop's variable, after what is to be stored, all in all so much."""
        if cuts and stored > MOST_STORED:
            told = f"not distributed: {body.names[0] or 'i'} < {length.dim}, where 2^{stored.bit_length() - 1} and more"
            self.decisions.note(f"{told} elements would be stored")
            return lambda i: body(env, [i])
        loops = 1 + sum([1 for scope in self.builder.scopes if any([each.type == i64 for each in scope.binders])])
        cuts = {k: why for k, why in cuts.items() if why != LONG or loops <= body.rank(k)}
        cuts = body.behind(cuts, partial(self.is_fixed, env)) if cuts else cuts
        cuts = {k: why for k, why in cuts.items() if self.stores(body.bindings[k], length, body, why)}
        if not cuts:
            return lambda i: body(env, [i])
        return self.within(True, lambda: _Distributed(self.builder, env, length, body, cuts))

    def prepared(self, env: Any, length: Value, body: Body, steady: Cuts) -> Callable[..., list[Value]]:
        """The body of a loop in order, as a function of its variable and state, after what no state is needed for.

        Where a loop around has lanes, these run this loop, too, and nothing is stored.
        """
        cuts = steady if self.in_turn == len(self.builder.scopes) - 1 else {}
        cuts = {k: why for k, why in cuts.items() if self.stores(body.bindings[k], length, body, why)}
        if not cuts:
            return lambda *state: body(env, state)
        return self.within(True, lambda: _Distributed(self.builder, env, length, body, cuts))

    def one_by_one(self, emit: Callable[[], T]) -> T:
        """What is emitted in a block that runs in turn with what is around it."""
        self.in_turn += 1
        made = emit()
        self.in_turn -= 1
        return made

    @property
    def around(self) -> frozenset[int]:
        """The binders of the loops around what is emitted."""
        return frozenset([binder.number for scope in self.builder.scopes[1:] for binder in scope.binders])

    def binders_of(self, env: Any, made: Free) -> frozenset[int]:
        """The binders that what is made from values of a body, or outside of it, varies with."""
        values = [env.get(-1 - level) for level in made if level < 0]
        return frozenset().union(*[value.free for value in values if value is not None])

    def is_fixed(self, env: Any, made: Free) -> bool:
        """Whether what is made from values of a body does not vary with a loop around it."""
        return not self.around.issubset(self.binders_of(env, made))

    def stores(self, binding: Binding, length: Value, body: Body, why: str) -> bool:
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

    def wanted(self, env: Any, body: Body) -> Free:
        """The small arrays that updates want to be stored for all iterations of a loop with this body."""
        anchor = self.builder.scopes[-1].anchor  # of the loop around, if there is one

        def around(index: int) -> bool | None:
            accumulator = env.get(index)
            return None if accumulator is None else any(accumulator.number < number for number in anchor)

        return body.wanted(around) if body.read else frozenset()

    def variable(self, index: int, type: Type) -> Any:
        found = (lambda env: env.get(index)) if isinstance(type, Accumulator) else super().variable(index, type)
        # None for an accumulator that does not exist in this part.
        return Atom(found, frozenset([index]), elements=elements_of(type))

    def literal(self, value: Any, type: Any) -> Any:
        return Atom(super().literal(value, type), count=value if type is i64 else math.inf)

    def constant(self, array: Any, type: Any) -> Any:
        return Atom(super().constant(array, type))

    def dim(self, dim: Dim) -> Any:
        count = math.inf if dim.constant is None else dim.constant
        return Atom(super().dim(dim), extent=length_of(dim), count=count)

    def operation(self, operation: Operation, args: Sequence[Any], blocks: Sequence[Any]) -> Any:
        emit = super().operation(operation, args, blocks)
        if operation.row.expansion is None:
            return emit
        free, stored = free_of(*args, *blocks), max([block.stored for block in blocks], default=0)
        return Step(emit, free, free, loops=True, heavy=True, stored=stored, long=True)

    def primitive(self, primitive: Primitive, args: Sequence[Any]) -> Any:
        costly = primitive.cost > COSTLY
        factors = [arg.free for arg in args] if primitive.name == "multiply" else []
        emit = super().primitive(primitive, args)
        by_size = primitive.name in INDEX_ARITHMETIC and not args[1].free
        divided = args[0].free if by_size else frozenset()
        made = Step(emit, free_of(*args), costly=costly, heavy=costly, factors=factors)
        return replace(made, primitive=primitive.name, divided=divided, work=float(primitive.cost))

    def size(self, array: Any, axis: int) -> Any:
        return Step(super().size(array, axis), array.free)

    def index(self, array: Any, indices: Sequence[Any]) -> Any:
        free = free_of(array, *indices)
        return Step(super().index(array, indices), free, elements=frozenset([free]))

    def cond(self, test: Any, then: Any, orelse: Any) -> Any:
        inner, costly = then.inner | orelse.inner, then.costly or orelse.costly
        heavy = then.heavy or orelse.heavy
        return Step(
            super().cond(test, then, orelse),
            free_of(test, then, orelse),
            inner,
            bool(inner),
            costly,
            heavy,
            max(then.stored, orelse.stored),
            then.long or orelse.long,
            then.even and orelse.even,
            elements=then.elements_read | orelse.elements_read,
            updates=together([then.updates, orelse.updates]),
            work=1.0 + max(then.work, orelse.work),
        )

    def loop(self, dim: Dim, extent: Any, initials: Sequence[Any], body: Any) -> Any:
        steady = body.steady_parts() if is_length(dim) and not extent.short else {}

        def run(env: Any) -> Sequence[Value]:
            length, values = extent(env), [initial(env) for initial in initials]
            at = self.prepared(env, length, body, steady)
            return self.builder.loop(length, values, lambda *state: self.one_by_one(lambda: at(*state)))

        emit = self.in_order(run)
        free, stored, updates = free_of(extent, *initials, body), body.stored, repeated(body.updates)
        long, once = body.long or not extent.short, bool(updates) and body.long
        return Step(emit, free, body.free, loops=True, heavy=True, stored=stored, long=long, once=once, updates=updates)

    def while_loop(self, initials: Sequence[Any], test: Any, body: Any) -> Any:
        emit, inner = self.in_order(super().while_loop(initials, test, body)), test.free | body.free
        free, stored, updates = free_of(*initials, test, body), max(test.stored, body.stored), repeated(body.updates)
        once = bool(updates) and body.long
        return Step(emit, free, inner, loops=True, heavy=True, stored=stored, long=True, once=once, updates=updates)

    def scatter(self, unique: bool, extents: Sequence[Any], destinations: Sequence[Any], element: Any) -> Any:
        emit = super().scatter(unique, extents, destinations, element)
        free, inner = free_of(*extents, *destinations, element), element.free | free_of(*destinations)
        return Step(emit, free, inner, loops=True, stored=element.stored, long=True)

    def foreign(self, function: Foreign, args: Sequence[Any]) -> Any:
        free = free_of(*args)
        return Step(super().foreign(function, args), free, free, True, heavy=True, long=True)

    def argsort(self, array: Any) -> Any:
        return Step(super().argsort(array), array.free, array.free, True, heavy=True, long=True)

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[Any]) -> Any:
        free = free_of(*args)
        return Step(super().call(procedures, args), free, free, True, heavy=True, long=True)

    def cell(self, number: int, fields: Sequence[Any]) -> Any:
        free = free_of(*fields)
        return Step(super().cell(number, fields), free, free, True, heavy=True, long=True)

    def open(self, cell: Any, variants: tuple[Opened, ...], branches: Sequence[Any]) -> Any:
        free = free_of(cell, *branches)
        stored, updates = max([each.stored for each in branches]), together([each.updates for each in branches])
        emit = super().open(cell, variants, branches)
        return Step(emit, free, free, True, heavy=True, stored=stored, long=True, updates=updates)

    def custom(self, rules: Rules, args: Sequence[Any], body: Any, blocks: Sequence[Any]) -> Any:
        """A checkpoint: what is inside is scheduled by itself."""
        free = free_of(*args, body)
        emit = super().custom(rules, args, body, blocks)
        return Step(emit, free, free, loops=True, heavy=True, stored=body.stored, long=True)

    def accumulate(self, initials: Sequence[Any], body: Any) -> Any:
        def run(env: Any) -> Sequence[Value]:
            values = [initial(env) for initial in initials]
            return accumulate(self.builder, values, lambda *cells: self.one_by_one(lambda: body(env, cells)))

        free = free_of(*initials, body)
        stored, long, updates = body.stored, body.long, body.updates
        return Step(run, free, body.free, loops=True, heavy=True, stored=stored, long=long, updates=updates)

    def add_to(self, accumulator: Any, value: Any, indices: Sequence[Any]) -> Any:
        emit = super().add_to(accumulator, value, indices)

        def update(env: Any) -> Sequence[Value]:
            return [] if accumulator(env) is None else emit(env)

        [added_to] = accumulator.free
        place, often = Place(added_to, free_of(*indices)), min(value.elements, UPDATES_UNKNOWN_ITERATIONS)
        reads = {place: dict.fromkeys(value.free, often)}
        return Step(update, free_of(accumulator, value, *indices), updates=reads, rank=len(indices))

    def require(self, test: Any, failure: Any, values: Sequence[Any]) -> Any:
        return Step(super().require(test, failure, values), free_of(test, *values))

    def generate(self, dim: Dim, extent: Any, body: Any) -> Any:
        fixed = body.cuts(reduction=False)

        def emit(env: Any) -> Sequence[Value]:
            wanted = self.wanted(env, body)
            cuts = body.cuts(reduction=False, wanted=wanted) if wanted else fixed
            length = extent(env)
            element = self.distributed(env, length, body, cuts, extent.extent * body.elements(cuts))
            return self.builder.generate(length, lambda i: self.within(True, lambda: element(i)))

        stored, long = extent.extent * body.elements(fixed), body.long or not extent.short
        free, updates = free_of(extent, body), repeated(body.updates, dim)
        sizes = body.outer_sizes if dim.is_static() else {**body.outer_sizes, **dict.fromkeys(dim.atoms(), extent.free)}
        made = Step(emit, free, body.free, True, heavy=body.heavy, stored=stored, long=long, updates=updates)
        return replace(made, sizes=sizes)

    def reduce(self, extent: Any, neutrals: Sequence[Any], element: Any, operator: Any) -> Any:
        alone = element.cuts(reduction=True)
        # Any other operator than one primitive combines in order, which leaves nothing to compute side by side.
        ordered = dict(sorted({**element.heavy_parts(), **alone}.items())) if len(operator.bindings) > 1 else alone
        stored = extent.extent * element.elements(alone)

        factors, sums = element.product(), adds(operator)

        def emit(env: Any) -> Sequence[Value]:
            if not sums and self.of_matrices(env, factors):
                cuts = element.cuts(reduction=True, product=True)
            elif len(self.builder.scopes) == 1 or self.groups:
                cuts = ordered if len(self.builder.scopes) == 1 else alone
            else:
                cuts = element.cuts(reduction=True, lanes=self.parallel, apart=partial(self.is_apart, env, element))
            length = extent(env)
            at = self.distributed(env, length, element, cuts, stored)
            units = [neutral(env) for neutral in neutrals]
            return self.builder.reduce(length, units, at, lambda *ab: operator(env, ab))

        free, inner = free_of(extent, *neutrals, element, operator), element.free | operator.free
        long = element.long or not extent.short
        outside = [frozenset([-1 - level for level in each if level < 0]) for each in factors if sums and 0 in each]
        made = Step(emit, free, inner, True, heavy=True, stored=stored, long=long, factors=outside)
        even = not extent.free and element.even and operator.even
        few = extent.count <= NEAR and not any(each.operation.loops for each in element.bindings)
        return replace(made, even=even, few=few, elements=element.elements_read)

    def is_apart(self, env: Any, element: Body, k: int) -> bool:
        """Whether what a loop in a reduction computes is better stored, as lanes along a loop around do not fit it.

        It is an entry of a product of matrices, reads elements that vary with the reduction and with a loop around, or
        does not vary with one of these, which would compute it again.
        """
        if self.is_fixed(env, element.made[element.starts[k]]):
            return True
        read = [self.binders_of(env, each) for each in element.read_by(k) if 0 in each]
        return not self.around.isdisjoint(frozenset().union(*read)) or self.of_matrices(env, element.factors(k))

    def of_matrices(self, env: Any, factors: Sequence[Free]) -> bool:
        """Whether of two factors of a loop's element one alone varies with the loop, and the other with one around."""
        if len(factors) != 2 or (0 in factors[0]) == (0 in factors[1]):
            return False
        row, column = sorted(factors, key=lambda each: 0 in each)
        return not (self.binders_of(env, row) - self.binders_of(env, column)).isdisjoint(self.around)

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

        free, inner = free_of(*extents, *neutrals, element, operator), element.free | operator.free
        return Step(emit, free, inner, loops=True, heavy=True, stored=stored, long=True)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Any], names: Sequence[str]
    ) -> Any:
        return Body(binders, bindings, results, names, super().block(binders, bindings, results, names))


class _Distributed:
    """The body of a distributed loop: what was stored is read."""

    def __init__(self, builder: Builder, env: Any, length: Value, body: Body, cuts: Cuts) -> None:
        self.builder, self.env, self.body = builder, env, body
        self.stored: dict[int, Sequence[Value]] = {}
        outer = builder.origin
        for cut in cuts:
            builder.origin = body.bindings[cut].origin
            self.stored[cut] = builder.generate(length, partial(self._until, cut))
        builder.origin = outer

    def __call__(self, *arguments: Value) -> list[Value]:
        """Emit the body for an iteration."""
        env, outer = self.env.enter(arguments), self.builder.origin
        for k, binding in enumerate(self.body.bindings):
            self.builder.origin = binding.origin
            if k in self.stored:
                if _updates(binding.operation, env):
                    binding.operation(env)  # for its statements
                values = self._read(k, arguments[0])
            else:
                values = list(binding.operation(env))
            env = env.extend(values)
        self.builder.origin = outer
        return [result(env) for result in self.body.results]

    def _until(self, cut: int, i: Value) -> list[Value]:
        """The results of a binding for an iteration, with what they are made from.

        Statements run once, in the body: here the accumulators of this place do not exist, nor does a state.
        """
        needed, outer = self.body.needed_for(cut), self.builder.origin
        env = self.env.mapped(_without_accumulator).enter([i, *[None] * (len(self.body.binders) - 1)])
        for k, binding in enumerate(self.body.bindings[: cut + 1]):
            values: list[Any] = [None] * len(binding.types)
            if k in needed:
                self.builder.origin = binding.origin
                values = self._read(k, i) if k in self.stored else list(binding.operation(env))
            env = env.extend(values)
        self.builder.origin = outer
        return values

    def _read(self, k: int, i: Value) -> list[Value]:
        return [self.builder.part(array, [i]) for array in self.stored[k]]


def _without_accumulator(value: Value | None) -> Value | None:
    return None if value is None or isinstance(value.type, Accumulator) else value


def _updates(operation: Step, env: Any) -> bool:
    """Whether an operation adds to accumulators that exist where it stands."""
    used = [env.get(index) for index in operation.free]
    return any(value is not None and isinstance(value.type, Accumulator) for value in used)
