"""Dropped digits: updates at places that leave out a digit of a loop variable become sums over that digit.

A loop variable ``i`` has digits in any mixed radix: with ``d = c * m`` it is ``i = q * d + b * m + r``, where ``q`` is
``i // d``, ``b < c`` and ``r`` is ``i % m``. What reads an array at a place that is made of some of these digits reads
each element for all values of those left out; so the derivative adds to it as often. Repeated rows leave out the last
digit, tiles the first, butterflies of a Fourier transform one between::

    for i < n: t[i // d] += f(i)                  p < n // d:         t[p] += sum(b < d: f(p * d + b))
    for i < n: t[i % m] += f(i)              =>   p < m:              t[p] += sum(b < n // m: f(b * m + p))
    for i < n: t[i // d * m + i % m] += f(i)      p < n // d * m:     t[p] += sum(b < c: f(p // m * d + b * m + p % m))

No two places are one, so nothing waits; and terms are added in the order in which they were. Behind them come the
iterations of the last row, tile or block where that is not whole. Something that no loop changes may be added to the
index.

Digits are what they seem if ``m`` is above 0 and ``d`` does not wrap around. Sizes say so themselves; what the run says
is asked, and where it is otherwise no block is whole: all iterations add as they did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...core.builder import Builder, Substitution
from ...core.dims import Dim
from ...core.graph import Node, Value
from ...core.types import dims, i64
from .costs import is_costly_value
from .implied import few_of_each
from .leaves import Guard, Leaf, Tree, guarded, recorded, without, zero

_LARGEST = 1 << 62  # so that no digit's weight wraps around


@dataclass(frozen=True)
class _Digits:
    """An index that is made of digits of a loop's variable, at one axis of an array, and what is added to it.

    ``high`` is the quotient and ``low`` the remainder, where there is one. ``weight`` is that of the quotient in the
    loop variable and ``radix`` that of the digit that is left out, 1 where it is the last.
    """

    axis: int
    loop: Value
    extent: Value
    high: Value | None
    low: Value | None
    weight: Value | None
    radix: Value
    terms: Value  # how many values the digit has that is left out, if it is not the first
    offset: Value

    @property
    def block(self) -> Value:
        """The iterations of a whole row, tile or block."""
        return self.radix if self.weight is None else self.weight

    @property
    def known(self) -> bool:
        """Whether constants and sizes alone say that digits are what they seem; a size that is 0 divides nothing."""
        weights = [self.radix] if self.weight is None else [self.radix, self.weight]
        return all(each.dim is not None and _is_size(each.dim) for each in weights)

    def fits(self, b: Builder) -> Value:
        """Whether digits are what they seem."""
        most = b.literal(_LARGEST, i64)
        if self.high is not None and self.low is not None:
            most = b.primitive("floor_divide", most, self.terms)
        lowest = self.block if self.high is None or self.low is None else self.radix
        rises = b.primitive("less", b.literal(0, i64), lowest)
        return b.primitive("logical_and", rises, b.primitive("less_equal", lowest, most))

    def blocks(self, b: Builder) -> Value:
        """How many whole rows, tiles or blocks are added up: none where digits are not what they seem.

        Of tiles there may be too many: a sum for each of their places is no more than there are places. What is left
        adds in order.
        """
        whole = _quotient(b, self.extent, self.block)
        if whole is not None and self.known:
            return whole
        whole = b.primitive("floor_divide", self.extent, self.block)
        tests = [] if self.known else [self.fits(b)]
        if self.high is None:
            tests.append(b.primitive("less_equal", whole, self.radix))
        none = b.close((), (), (b.literal(0, i64),))
        for test in tests:
            (whole,) = b.emit("cond", (), [test], [b.close((), (), (whole,)), none])
        return whole


Group = list[tuple[Leaf, _Digits]]  # leaves with the same loops and indices


def without_dropped_digits(b: Builder, statement: Node, beside: frozenset[int]) -> list[Node]:
    """The statement with updates that leave out digits in loops of their own, over the places that they add to."""
    if not statement.row.control or statement.results:
        return [statement]
    tree = Tree(statement, beside)
    groups: dict[tuple[object, ...], Group] = {}
    for leaf in tree.leaves:
        digits = _digits(b, leaf) if leaf.stands_alone(tree.statements) else None
        if digits is not None:
            groups.setdefault((digits, leaf.path.loops, *leaf.indices), []).append((leaf, digits))
    leaving = [[leaf for leaf, _ in group] for group in groups.values()]
    if not groups or tree.repeats([leaf for leaves in leaving for leaf in leaves]) or not _apart(tree, leaving):
        return [statement]
    made = without(b, statement, {leaf.node.number for leaves in leaving for leaf in leaves})
    for group in groups.values():
        made += recorded(b, partial(_emit, b, group))
    return made


def _is_size(dim: Dim) -> bool:
    """Whether a dim is a number above 0, or a size or a small multiple of one, which does not wrap around."""
    if dim.constant is not None:
        return dim.constant > 0
    return few_of_each(dim) and dim.is_static() and dim.is_nonnegative()


def _apart(tree: Tree, groups: Sequence[Sequence[Leaf]]) -> bool:
    """Whether nothing costly is needed by leaves that come to run apart."""
    of_group = [sum([1 << tree.leaves.index(leaf) for leaf in group]) for group in groups]
    costly = [who for node, who in tree.needed if is_costly_value(node)]
    return all(not who & bits or who & ~bits == 0 for who in costly for bits in of_group)


# Which digits an index is made of


def _digits(b: Builder, leaf: Leaf) -> _Digits | None:
    """The digits of a loop that one index of a leaf is made of, where the others do not vary with it."""
    if any(guard.depth < len(leaf.path.loops) for guard in leaf.path.guards):
        return None
    for loop, extent in leaf.path.loops:
        varying = [axis for axis, index in enumerate(leaf.indices) if loop.number in index.free]
        steady = all(loop.number not in other.free for _, other in leaf.path.loops)
        if len(varying) == 1 and steady and extent.free.isdisjoint(leaf.path.binders):
            found = _digits_of(b, leaf, varying[0], loop, extent)
            if found is not None and (found.known or found.fits(b).literal is not False):
                return found
    return None


def _digits_of(b: Builder, leaf: Leaf, axis: int, loop: Value, extent: Value) -> _Digits | None:
    """The digits of a loop that an index is made of."""
    index, zero, one = leaf.indices[axis], b.literal(0, i64), b.literal(1, i64)
    parts = {name: _divided(index, name, leaf, loop) for name in ("floor_divide", "remainder")}
    high, low = (found[0] if len(found) == 1 else None for found in parts.values())
    if (high is None and low is None) or any(len(found) > 1 for found in parts.values()):
        return None
    if high is None and low is not None and extent.literal is not None and _divisor(low).literal is None:
        return None  # of a constant number of iterations there are few tiles, or none
    offset = _image(b, {loop: zero}, {high: zero, low: zero}).values([index])[0]
    weight, radix = None if high is None else _divisor(high), one if low is None else _divisor(low)
    terms = one if weight is None else _quotient(b, weight, radix)  # of the first digit the loop says how many
    if terms is None or offset.dim is None or index.dim is None or radix.dim is None:
        return None
    made = offset.dim
    if high is not None and high.dim is not None:
        made += high.dim * radix.dim
    if low is not None and low.dim is not None:
        made += low.dim
    if made != index.dim or not offset.free.isdisjoint(leaf.path.binders):
        return None
    return _Digits(axis, loop, extent, high, low, weight, radix, terms, offset)


def _divided(index: Value, name: str, leaf: Leaf, loop: Value) -> list[Value]:
    """The quotients, or remainders, of a loop's variable by what no loop changes that an index is made of."""
    found: dict[Value, None] = {}
    stack = [index]
    while stack:
        value = stack.pop()
        if value.source is None or value.source.op != "primitive" or loop.number not in value.free:
            continue
        first, *others = value.source.args
        if value.source.static[0].name == name and first is loop:
            if others[0].free.isdisjoint(leaf.path.binders):
                found[value] = None
            continue
        stack += value.source.args
    return list(found)


def _quotient(b: Builder, whole: Value, part: Value) -> Value | None:
    """How often a part is in a whole that is a known multiple of it."""
    count = None if whole.dim is None or part.dim is None else whole.dim.quotient(part.dim)
    return None if count is None else b.known(count)


def _divisor(value: Value) -> Value:
    assert value.source is not None
    return value.source.args[1]


def _image(b: Builder, at: Mapping[Value, Value], digits: Mapping[Value | None, Value]) -> Substitution:
    """What rewrites values where loops are elsewhere, and these quotients and remainders are known."""

    def known(value: Value, _: Substitution) -> tuple[Value, ...]:
        return (value,)

    replaced = {
        digit.source.number: partial(known, value)
        for digit, value in digits.items()
        if digit is not None and digit.source is not None
    }
    return Substitution(b, at, None, (), replaced)


# The loops over places


def _emit(b: Builder, group: Group) -> None:
    """Emit leaves with the same loops and indices: sums for whole blocks, then the other iterations.

    A sum of no terms may be added at a place that is not there; there ``add_to`` does nothing.
    """
    (first, digits), *_ = group
    blocks = digits.blocks(b)
    begin, terms = b.primitive("multiply", blocks, digits.block), digits.terms
    if digits.high is not None:
        places = b.primitive("multiply", blocks, digits.radix)
    else:
        terms, size = blocks, dims(first.accumulator.type)[digits.axis]
        rises = b.primitive("maximum", digits.radix, b.literal(0, i64))
        places = digits.radix if digits.radix.dim == size else b.primitive("minimum", rises, begin)
    rest = b.primitive("subtract", digits.extent, begin)
    if not digits.known:  # none is more than there are iterations, also where there are no blocks
        places, terms, rest = (b.primitive("minimum", each, digits.extent) for each in (places, terms, rest))
    _each(b, first, digits.loop, places, lambda around: _sums(b, group, around, terms))
    if rest.literal != 0:
        _each(b, first, digits.loop, rest, lambda around: _rest(b, group, around, blocks, begin))


def _each(b: Builder, leaf: Leaf, loop: Value, extent: Value, emit: Callable[[Mapping[Value, Value]], object]) -> None:
    """Emit statements in the loops of a leaf, of which one has another extent, given the variables of these."""
    variables = [each for each, _ in leaf.path.loops]
    extents = [extent if each is loop else own for each, own in leaf.path.loops]
    b.each(extents, lambda *at: emit(dict(zip(variables, at, strict=True))))


def _sums(b: Builder, group: Group, around: Mapping[Value, Value], terms: Value) -> None:
    """Emit what leaves add to a place of whole blocks."""
    (_, digits), *_ = group
    place = around[digits.loop]
    neutrals = [zero(b, leaf.value) for leaf, _ in group]

    def each(digit: Value) -> list[Value]:
        at, high, low = _iteration(b, digits, place, digit)
        return [_term(b, leaf, {**around, digits.loop: at}, {digits.high: high, digits.low: low}) for leaf, _ in group]

    def added(*both: Value) -> list[Value]:
        return [b.primitive("add", x, y) for x, y in zip(both[: len(group)], both[len(group) :], strict=True)]

    for (leaf, _), sum in zip(group, b.reduce(terms, neutrals, each, added), strict=True):
        indices = _image(b, around, {}).values(leaf.indices)
        indices[digits.axis] = b.primitive("add", place, digits.offset)
        b.emit("add_to", (), [leaf.accumulator, sum, *indices])


def _iteration(b: Builder, digits: _Digits, place: Value, digit: Value) -> tuple[Value, Value, Value]:
    """The iteration that adds to a place for a value of the digit that is left out, its quotient and its remainder."""
    high, low = place, place
    if digits.high is not None and digits.low is not None:
        high = b.primitive("floor_divide", place, digits.radix)
        low = b.primitive("remainder", place, digits.radix)
    at = b.primitive("multiply", digit, digits.radix)
    if digits.weight is not None:
        at = b.primitive("add", b.primitive("multiply", high, digits.weight), at)
    return at if digits.low is None else b.primitive("add", at, low), high, low


def _rest(b: Builder, group: Group, around: Mapping[Value, Value], blocks: Value, begin: Value) -> None:
    """Emit what an iteration behind the whole blocks adds."""
    (_, digits), *_ = group
    number = around[digits.loop]
    known: dict[Value | None, Value] = {}
    if digits.known and digits.low is None:
        known = {digits.high: blocks}
    at = {**around, digits.loop: b.primitive("add", begin, number)}
    for leaf, _ in group:
        indices = _image(b, at, known).values(leaf.indices)
        b.emit("add_to", (), [leaf.accumulator, _term(b, leaf, at, known), *indices])


def _term(b: Builder, leaf: Leaf, at: Mapping[Value, Value], digits: Mapping[Value | None, Value]) -> Value:
    """What a leaf adds where its loops and the digits of one of them are known."""
    image = _image(b, at, digits)
    value, *tests = image.values([leaf.value, *[guard.test for guard in leaf.path.guards]])
    guards = [Guard(test, guard.wanted, 0) for test, guard in zip(tests, leaf.path.guards, strict=True)]
    return guarded(b, guards, value)
