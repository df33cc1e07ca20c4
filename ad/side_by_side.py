"""Forward mode along a few unit vectors at once: one pass carries a value and its tangents that are not zero.

Where a parameter has a size that is a number, its directions need no loop around the program: each value has a tangent
for each of them, in the loops of the program. What is 0 or 1 by its form is known while this is emitted, as the rules
of the simplifier answer at once: a tangent that is zero is none. What the directions share is one node of the graph.

    for i < n: y[i] = a[0] * x[i] + a[1]        for i < n: y[i] = ..., dy_0[i] = x[i], dy_1[i] = 1

Loops of a few iterations that make arrays are their iterations, one after another, so that each element has tangents of
its own. (Vector forward mode with activity: Griewank and Walther 2008, section 3.2.) What combines many elements, and
what has rules of its own, is derived direction by direction; there the value is the same node each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from ..core import terms
from ..core.builder import Builder
from ..core.constructs import Construct
from ..core.dims import Dim
from ..core.expr import Expr
from ..core.graph import Value
from ..core.primitive import Primitive
from ..core.terms import Foreign, Rules
from ..core.types import Type, dims, i64
from ..core.types import element as scalar
from ..interpreters.simplify.accumulators import plus
from ..interpreters.simplify.deltas import tested
from ..interpreters.simplify.unrolling import FEW
from .directions import Directions
from .duals import Atom, Block, Dual, Duals, Linear, Operation, Pick
from .forward import Forward
from .reductions import rule_of
from .sums_of_tangents import under

# At most so many directions.
MOST = 32
# Arrays of at most so many elements are their elements, in loops of a few iterations and in branches.
SMALL = 16


@dataclass(frozen=True)
class Many(Dual):
    """A value and its tangents along all directions, of which the first that is not zero is its ``tangent``.

    Those of a number may be a coefficient times the tangents of another number, from which alone it moves.
    """

    tangents: tuple[Value | None, ...] = ()
    coefficient: Value | None = None


class SideBySide(Directions):
    """Forward mode along so many directions."""

    def __init__(self, builder: Builder, count: int) -> None:
        super().__init__(builder)
        self.count, self.together = count, True

    def many(self, primal: Value, tangents: Sequence[Value | None]) -> Dual:
        """A value and its tangents, of which those that are zero by their form are none."""
        found = [None if tangent is None or _is_zero(tangent) else tangent for tangent in tangents]
        first = _first(found)
        return Dual(primal) if first is None else Many(primal, first, tangents=tuple(found))

    def tangents_of(self, dual: Dual) -> Sequence[Value | None]:
        if not isinstance(dual, Many):
            return [None] * self.count
        if dual.coefficient is None:
            return dual.tangents
        return [None if t is None else self._times(dual.coefficient, t) for t in dual.tangents]

    def _times(self, coefficient: Value, tangent: Value) -> Value:
        """A coefficient times a tangent, under the tests of the tangent."""
        tests, inner = under(tangent)
        return self.tangents.where(tests, self.tangents.times(coefficient, inner))

    # How duals are emitted

    def flat(self, duals: Sequence[Dual], active: Pick) -> list[Value]:
        if not self.together:
            return super().flat(duals, active)
        moving = [dual for dual, moves in zip(duals, active, strict=True) if moves]
        tangents = [self.tangent(Dual(dual.primal, t)) for dual in moving for t in self.tangents_of(dual)]
        return [*[dual.primal for dual in duals], *tangents]

    def duals(self, values: Sequence[Value], active: Pick) -> list[Dual]:
        if not self.together:
            return super().duals(values, active)
        tangents = iter(values[len(active) :])
        return [
            self.many(value, [next(tangents) for _ in range(self.count)]) if moves else Dual(value)
            for value, moves in zip(values, active, strict=False)
        ]

    def element_of(self, tangent: Value, places: Sequence[Value]) -> Value:
        """What is made of a few elements has each of them; of others the rules of the simplifier decide."""
        return self._read(tangent, places)

    def _read(self, array: Value, places: Sequence[Value]) -> Value:
        found = self.tangents.element(array, len(places))
        if found is not None and all(isinstance(place.literal, int) for place in places):
            value, loops = found
            if _count([extent for _, extent in loops]) is not None:
                mapping = {binder: place for (binder, _), place in zip(loops, places, strict=True)}
                return self.builder.substitute([value], mapping)[0]
        return self.builder.index(array, places)

    def columns(self, dual: Dual, leaves: Sequence[Value]) -> Sequence[Value]:
        """For each leaf that moves, the tangents of a result along all its places, in the leaf's scalar type.

        The axes of the result come first, and one loop over these makes what belongs to all leaves. Every element is
        computed where it is put, and so is what the directions share.
        """
        b = self.builder
        along = dict(zip(directions([leaf.type for leaf in leaves]) or (), self.tangents_of(dual), strict=True))
        sizes = b.sizes(dual.primal)
        few = next((k for k in range(len(sizes)) if _count(sizes[k:]) is not None), len(sizes))
        known = [int(size.literal or 0) for size in sizes[few:]]

        def number(k: int, place: tuple[int, ...], at: Sequence[Value]) -> Value:
            own, type = along[k, place], scalar(leaves[k].type)
            if own is None:
                return b.literal(0, type)
            found = self.tangents.element(own, len(at))
            value = b.index(own, at)
            if found is not None:
                value = b.substitute([found[0]], {x: i for (x, _), i in zip(found[1], at, strict=True)})[0]
            return Expr(value, b).astype(type).value

        def make(prefix: tuple[Value, ...]) -> Sequence[Value]:
            if len(prefix) < few:
                return b.generate(sizes[len(prefix)], lambda i: make((*prefix, i)))
            made = []
            for k, leaf in enumerate(leaves):
                shape = [int(dim.constant or 0) for dim in dims(leaf.type)]

                def at(*places: int, k: int = k) -> Value:
                    inner = [b.literal(place, i64) for place in places[: len(known)]]
                    return number(k, places[len(known) :], [*prefix, *inner])

                made.append(written(b, [*known, *shape], at))
            return made

        return make(())

    # Direction by direction

    def _alone(self, operation: Operation) -> Operation:
        """An operation that each direction has for itself."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if not self.together or not any(active):
                return operation.run(env, active)
            found = [self._along(operation, env, active, d) for d in range(self.count)]
            return [self.many(duals[0].primal, [dual.tangent for dual in duals]) for duals in zip(*found, strict=True)]

        return Operation(run, operation.activity)

    def _along(self, operation: Operation, env: Duals, active: Pick, direction: int) -> Sequence[Dual]:
        """The same construct along one direction, which may move fewer of its results."""

        def one(dual: Dual) -> Dual:
            return Dual(dual.primal, self.tangents_of(dual)[direction])

        self.together = False
        try:
            return operation.run(env.mapped(one), active)
        finally:
            self.together = True

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        """Of a few elements, the operator on these; sums of many, side by side; else direction by direction."""
        plain = self._alone(super().combination(construct, extents, neutrals, element, operator))

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if not self.together or not any(active) or construct.name != "reduce":
                return plain.run(env, active)
            count = _count([a(env).primal for a in extents])
            if not count:
                length, units = extents[-1](env).primal, [a(env).primal for a in neutrals]
                sums = self._sums(length, units, env, element, operator, active)
                return plain.run(env, active) if sums is None else sums
            found = element.run(env, [Dual(self.builder.literal(0, i64))])
            for k in range(1, count):
                found = operator.run(env, [*found, *element.run(env, [Dual(self.builder.literal(k, i64))])])
            return found

        return Operation(run, plain.activity)

    def _sums(
        self, length: Value, neutrals: Sequence[Value], env: Duals, element: Block, operator: Block, active: Pick
    ) -> Sequence[Dual] | None:
        """The sums of elements beside the sums of their tangents; None if something else moves, or is in arrays."""
        b, types = self.builder, [neutral.type for neutral in neutrals]
        assert length.dim is not None
        combine = b.body([*types, *types], lambda *operands: self.primals(operator, env, *operands))
        moving = [k for k, moves in enumerate(active) if moves]
        if combine.statements or any([rule_of(combine, k) != "add" or _shape(types[k]) != () for k in moving]):
            return None
        body = b.body([i64], lambda i: self.flat(element.run(env, [Dual(i)]), active), extents=[length.dim])
        if body.statements or body.partial:
            return None
        primals, tangents = body.results[: len(types)], body.results[len(types) :]
        totals = b.combined("reduce", [length], neutrals, [b.close(body.binders, (), primals), combine])
        chosen = [k for k, tangent in enumerate(tangents) if tested(tangent) is not None]
        rest = [k for k, tangent in enumerate(tangents) if k not in chosen and not _is_zero(tangent)]
        found = [b.literal(0, scalar(tangent.type)) for tangent in tangents]
        for some in [*[[k] for k in chosen], *([rest] if rest else [])]:
            kinds = [tangents[k].type for k in some]
            add = b.body([*kinds, *kinds], lambda *x: [plus(b, *each) for each in zip(*_halves(x), strict=True)])
            elements = b.close(body.binders, (), tuple([tangents[k] for k in some]))
            zeros = [found[k] for k in some]
            for k, total in zip(some, b.combined("reduce", [length], zeros, [elements, add]), strict=True):
                found[k] = total
        return self.duals([*totals, *found], active)

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        return self._alone(super().custom(rules, args, body, blocks))

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        return self._alone(super().foreign(function, args))

    def par(self, branches: Sequence[Block]) -> Operation:
        return self._alone(super().par(branches))

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        return self._alone(super().accumulate(initials, body))

    # Side by side

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        """``y = f(a, b)``:  the partial derivatives once, for all directions.

        What moves with one number alone has a coefficient; so the derivatives of a chain are multiplied once.
        """
        plain = super().primitive(primitive, args)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if not self.together or not active[0]:
                return plain.run(env, active)
            b, duals = self.builder, [a(env) for a in args]
            (y,) = b.emit("primitive", (primitive,), [dual.primal for dual in duals])
            assert primitive.derivative is not None
            rules = primitive.derivative(Expr(y, b), *[Expr(dual.primal, b) for dual in duals])
            bases: dict[int, tuple[Many, list[tuple[Linear, Value]]]] = {}
            cast: list[tuple[Linear, Sequence[Value | None]]] = []
            for dual, rule in zip(duals, rules, strict=True):
                if rule is not None and isinstance(dual, Many):
                    if dual.primal.type != y.type:
                        cast.append((rule, self.tangents_of(dual)))
                        continue
                    one = b.literal(1, scalar(y.type)) if dual.coefficient is None else dual.coefficient
                    bases.setdefault(id(dual.tangents), (dual, []))[1].append((rule, one))
            shares = [(base.tangents, self.sum_of(some)) for base, some in bases.values()]
            if len(shares) == 1 and not cast:
                [(tangents, coefficient)] = shares
                return [Dual(y) if _is_zero(coefficient) else Many(y, _first(tangents), None, tangents, coefficient)]
            return [self.many(y, [self._total(shares, cast, d) for d in range(self.count)])]

        return Operation(run, plain.activity)

    def _total(
        self,
        shares: Sequence[tuple[Sequence[Value | None], Value]],
        cast: Sequence[tuple[Linear, Sequence[Value | None]]],
        direction: int,
    ) -> Value | None:
        """What coefficients times tangents along a direction, and tangents of another type, give together."""
        found = [self._times(c, t) for each, c in shares if (t := each[direction]) is not None]
        found += [rule(Expr(t, self.builder)).value for rule, each in cast if (t := each[direction]) is not None]
        return self.tangents.gathered(self.tangents.plus(found)) if found else None

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        plain = super().index(array, indices)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if not self.together:
                return plain.run(env, active)
            dual, places = array(env), [i(env).primal for i in indices]
            tangents = [None if t is None else self._read(t, places) for t in self.tangents_of(dual)]
            return [self.many(self._read(dual.primal, places), tangents)]

        return Operation(run, plain.activity)

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        """A few iterations are emitted one after another, if what they make is small."""
        plain = super().generate(dim, extent, body)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            count = _count([extent(env).primal])
            if not self.together or not any(active) or not count:
                return plain.run(env, active)
            made = [body.run(env, [Dual(self.builder.literal(k, i64))]) for k in range(count)]
            shapes = [_shape(dual.primal.type) for dual in made[0]]
            if any([shape is None or count * math.prod(shape) > SMALL for shape in shapes]):
                return plain.run(env, active)
            return [self._stacked([each[k] for each in made], shape or ()) for k, shape in enumerate(shapes)]

        return Operation(run, plain.activity)

    def _stacked(self, duals: Sequence[Dual], shape: Sequence[int]) -> Dual:
        """An array of these."""

        def stack(values: Sequence[Value]) -> Value:
            return written(self.builder, (len(values), *shape), lambda k, *rest: self._element(values[k], rest))

        def tangent(d: int) -> Value | None:
            each = [self.tangents_of(dual)[d] for dual in duals]
            if all([t is None for t in each]):
                return None
            return stack([self.tangent(Dual(dual.primal, t)) for dual, t in zip(duals, each, strict=True)])

        return self.many(stack([dual.primal for dual in duals]), list(map(tangent, range(self.count))))

    def _element(self, value: Value, places: Sequence[int]) -> Value:
        return self._read(value, [self.builder.literal(place, i64) for place in places]) if places else value

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        """A small array is chosen element by element."""
        plain = super().cond(test, then, orelse)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if not self.together or not any(active):
                return plain.run(env, active)
            shapes: list[tuple[int, ...] | None] = []

            def branch(block: Block) -> Callable[[], Sequence[Value]]:
                def values() -> list[Value]:
                    found = self.flat(block.run(env, []), active)
                    shapes[:] = [_shape(value.type) for value in found]
                    return [
                        part for value, shape in zip(found, shapes, strict=True) for part in self._parts(value, shape)
                    ]

                return values

            parts = iter(self.builder.cond(test(env).primal, branch(then), branch(orelse)))
            return self.duals([self._joined_parts(parts, shape) for shape in shapes], active)

        return Operation(run, plain.activity)

    def _parts(self, value: Value, shape: tuple[int, ...] | None) -> list[Value]:
        return [value] if shape is None else [self._element(value, places) for places in product(*map(range, shape))]

    def _joined_parts(self, parts: Iterator[Value], shape: tuple[int, ...] | None) -> Value:
        if not shape:
            return next(parts)
        each = {places: next(parts) for places in product(*map(range, shape))}
        return written(self.builder, shape, lambda *places: each[places])

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        """One loop has the states, and the tangents of all directions beside them."""
        alone, together = super().loop(dim, extent, initials, body), Forward.loop(self, dim, extent, initials, body)
        return Operation(lambda env, active: (together if self.together else alone).run(env, active), alone.activity)


def directions(types: Sequence[Type]) -> list[tuple[int, tuple[int, ...]]] | None:
    """All places in values of these types, by the number of the value, if they are known and few."""
    shapes = [[dim.constant for dim in dims(type)] for type in types]
    if any([not size for shape in shapes for size in shape]):
        return None
    sizes = [[size or 0 for size in shape] for shape in shapes]
    if sum([math.prod(shape) for shape in sizes]) > MOST:
        return None
    return [(k, place) for k, shape in enumerate(sizes) for place in product(*map(range, shape))]


def is_first_order(block: terms.Block) -> bool:
    """Whether a term makes and uses numbers and arrays alone, and calls nothing."""
    return all(
        not operation.row.higher_order and not operation.row.calls and all(map(is_first_order, operation.blocks))
        for operation in block.bindings
    )


def written(b: Builder, shape: Sequence[int], at: Callable[..., Value]) -> Value:
    """The array whose elements are these, by their places."""
    return b.array([b.literal(size, i64) for size in shape], lambda *indices: at_place(b, shape, indices, at))


def at_place(b: Builder, shape: Sequence[int], indices: Sequence[Value], at: Callable[..., Value]) -> Value:
    """The number at these indices, of those of all places."""

    def among(known: tuple[int, ...], low: int, high: int) -> Value:
        if high - low > 1:
            middle = (low + high) // 2
            test = b.primitive("less", indices[len(known)], b.literal(middle, i64))
            halves = [partial(among, known, *ends) for ends in ((low, middle), (middle, high))]
            return b.cond(test, *[lambda half=half: [half()] for half in halves])[0]
        return one((*known, low))

    def one(known: tuple[int, ...]) -> Value:
        return at(*known) if len(known) == len(shape) else among(known, 0, shape[len(known)])

    return one(())


def _count(extents: Sequence[Value]) -> int | None:
    """The number of iterations of loops, if it is small."""
    if not all([isinstance(extent.literal, int) and 1 <= extent.literal <= FEW for extent in extents]):
        return None
    count = math.prod([int(extent.literal or 0) for extent in extents])
    return count if count <= SMALL else None


def _shape(type: Type) -> tuple[int, ...] | None:
    """The sizes of a small array of a known shape; of a number there are none."""
    sizes = [dim.constant for dim in dims(type)]
    if any([size is None or not 1 <= size <= FEW for size in sizes]):
        return None
    return tuple([size or 0 for size in sizes])


def _halves(values: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
    return values[: len(values) // 2], values[len(values) // 2 :]


def _first(tangents: Sequence[Value | None]) -> Value | None:
    return next((tangent for tangent in tangents if tangent is not None), None)


def _is_zero(value: Value) -> bool:
    """Whether a tangent is zero by its form."""
    while value.source is not None and value.source.op == "generate" and not value.source.effects:
        value = value.source.bodies[0].results[value.position]
    if value.source is not None and value.source.op == "cond" and not value.source.effects:
        return all([_is_zero(body.results[value.position]) for body in value.source.bodies])
    return value.literal == 0 and not isinstance(value.literal, bool)
