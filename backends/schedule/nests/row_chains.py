"""Chains of nests over the same rows: each point reads of what the chain has written only its own row.

A chain begins with a product, which stores a row of entries for each of its rows. What comes after it joins where it
runs over the same rows and finds in what the chain writes its own row alone (Allen and Kennedy, ch. 8: fusion along one
axis, prevented by no dependence that another point carries)::

    nest i < n, j < m: s[i, j] = sum(l: q[i, l] * k[j, l])      begins a chain over i
    nest i < n: t[i] = max(j: s[i, j])                          joins: row i of s
    nest i < n, j < m: e[i, j] = exp(s[i, j] - t[i])            joins
    nest j < m, c < d: g[j, c] = sum(i: e[i, j] * y[i, c])      joins as a *sum over rows*: each row adds to it
    nest j < m, c < d: h[j, c] = g[j, c] ** 2                   does not: it needs all rows

Rows may have a batch around them: then each member has its axes, too, and is alone in each item of it. What does not
join is put before the chain where it needs nothing of it, and else behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ... import ir
from ...target import FUSION_LOOKAHEAD

_PLAIN = ir.Let | ir.Declare | ir.Assign | ir.Store | ir.For | ir.If
Access = ir.Load | ir.Store


@dataclass(frozen=True)
class Member:
    """A nest of a chain, the variables of its batch, and those that run over rows: of one axis, or of its sums.

    It may be a part of what stands in the block, which has several nests inside.
    """

    nest: ir.Nest
    whole: ir.Nest
    batch: tuple[str, ...]
    rows: frozenset[str]

    @property
    def loops(self) -> list[ir.For]:
        """The loops that sum over rows, if it is a sum."""
        axes = {axis.variable.name for axis in self.nest.axes}
        return [] if self.rows <= axes else [each for each in self.nest.body if isinstance(each, ir.For)]


@dataclass
class _Group:
    """Some statements, the names that they mention, and those that they make or change."""

    statements: list[ir.Statement] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def add(self, statement: ir.Statement) -> None:
        self.statements.append(statement)
        touched = ir.touched(statement)
        self.mentioned |= touched.mentioned
        self.changed |= touched.changed

    def copy(self) -> _Group:
        return _Group(list(self.statements), set(self.mentioned), set(self.changed))

    def meets(self, statement: ir.Statement) -> bool:
        """Whether a statement must keep its order with these."""
        touched = ir.touched(statement)
        return not (self.changed.isdisjoint(touched.mentioned) and touched.changed.isdisjoint(self.mentioned))


class Chain:
    """Nests over the same rows, what was put before them, and what stays behind."""

    def __init__(self, extents: Sequence[ir.Expression], reductions: Mapping[str, ir.Reduction]) -> None:
        self.extents = tuple(extents)  # of the batch, and of the rows
        self.reductions = reductions
        self.places: dict[str, tuple[int, ...]] = {}  # by buffer that has rows: the axes of the batch, and of the rows
        self.members: list[Member] = []
        self.summed: set[str] = set()  # the buffers that all rows add to
        self.before: list[ir.Statement] = []
        self.rest: list[ir.Statement] = []
        self._within = _Group()

    @property
    def nests(self) -> list[ir.Nest]:
        """The nests of the block that are in it."""
        return list({id(member.whole): member.whole for member in self.members}.values())

    def begin(self, nest: ir.Nest, rows: Sequence[str]) -> bool:
        """Begin with a nest, whose rows have these variables."""
        member = self._over_rows(nest, tuple(rows[:-1]), rows[-1])
        return member is not None and self._join(member)

    def grow(self, statements: Sequence[ir.Statement]) -> None:
        """Have those of the statements behind the beginning that may join, up to the last of them."""
        before, after, passed = list[ir.Statement](), _Group(), 0
        self.rest = list(statements)
        for number, statement in enumerate(statements, 1):
            if not after.meets(statement):
                if isinstance(statement, ir.Nest) and self._joined(statement):
                    self.before = list(before)
                    self.rest = [*after.statements, *statements[number:]]
                    continue
                if not self._within.meets(statement):
                    before.append(statement)
                    continue
            after.add(statement)
            passed += isinstance(statement, ir.Nest)
            if passed > FUSION_LOOKAHEAD:
                break

    def _joined(self, nest: ir.Nest) -> bool:
        """Have a nest as members, one for each nest inside of it, if all of them may join."""
        before = list(self.members), dict(self.places), set(self.summed), self._within.copy()
        for part in _parts(nest):
            member = self._member(part)
            if member is None or not self._join(replace(member, whole=nest)):
                self.members, self.places, self.summed, self._within = before
                return False
        return True

    def _join(self, member: Member) -> bool:
        """Have a nest as member, if it writes what nobody has touched so far, or own rows of that."""
        nest = member.nest
        if member.loops:
            written = ir.written_in((nest,))
            if not written.isdisjoint(self._within.mentioned):
                return False
            self.summed |= written
        else:
            found = self._own_places(member)
            if found is None or not found.keys().isdisjoint(self._within.mentioned):
                return False
            self.places |= found
        self.members.append(member)
        self._within.add(nest)
        return True

    def _member(self, nest: ir.Nest) -> Member | None:
        """A nest as member of the chain, by what it reads of it."""
        if not self.summed.isdisjoint(ir.mentioned((nest,))[1]):
            return None
        found = set[tuple[str, ...]]()
        for access in ir.accesses(nest.body):
            if access.buffer.name in self.places:
                names = _variables(access, self.places[access.buffer.name])
                if names is None:
                    return None
                found.add(names)
        batches, rows = {names[:-1] for names in found}, {names[-1] for names in found}
        if len(batches) != 1:
            return None
        (batch,) = batches
        axes = {axis.variable.name for axis in nest.axes}
        if rows.isdisjoint(axes):
            return self._over_sums(nest, batch, frozenset(rows))
        return self._over_rows(nest, batch, *rows) if len(rows) == 1 else None

    def _over_rows(self, nest: ir.Nest, batch: tuple[str, ...], row: str) -> Member | None:
        """A nest with rows as one of its axes."""
        plain = all(isinstance(each, _PLAIN) for each in ir.walk(nest.body))
        return Member(nest, nest, batch, frozenset([row])) if plain and self._runs(nest, (*batch, row)) else None

    def _over_sums(self, nest: ir.Nest, batch: tuple[str, ...], rows: frozenset[str]) -> Member | None:
        """A nest that does nothing with rows but sum over them, in loops whose order is free."""
        loops = [each for each in nest.body if isinstance(each, ir.For)]
        rest = tuple([each for each in nest.body if not isinstance(each, ir.For)])
        plain = all(isinstance(each, ir.Let | ir.Declare | ir.Store) for each in rest)
        sums = {loop.variable for loop in loops} == rows and all(self._sums(nest, loop) for loop in loops)
        if not (plain and sums and self._runs(nest, batch)) or not self.places.keys().isdisjoint(ir.read_in(rest)):
            return None
        stores = ir.of_kind(rest, ir.Store)
        apart = all(_axes_of(each, batch) is not None for each in stores)
        return Member(nest, nest, batch, rows) if apart else None

    def _sums(self, nest: ir.Nest, loop: ir.For) -> bool:
        """Whether a loop of a nest sums over the rows, from nothing."""
        reduction = self.reductions.get(loop.variable)
        *lets, last = loop.body
        if reduction is None or loop.extent != self.extents[-1] or not all(isinstance(each, ir.Let) for each in lets):
            return False
        starts = [each for each in nest.body if isinstance(each, ir.Declare) and each.name == reduction.name]
        alone = isinstance(last, ir.Assign) and last.name == reduction.name
        return alone and [each.initial for each in starts] == [reduction.neutral]

    def _runs(self, nest: ir.Nest, variables: tuple[str, ...]) -> bool:
        """Whether a nest that threads may share has axes of these variables over the extents of the chain."""
        extents = {axis.variable.name: axis.extent for axis in nest.axes}
        same = all(extents.get(name) == extent for name, extent in zip(variables, self.extents, strict=False))
        return nest.outermost and not nest.combines and same

    def _own_places(self, member: Member) -> dict[str, tuple[int, ...]] | None:
        """The axes of the rows in what a nest writes that is new; None if it touches anything of that elsewhere."""
        variables = (*member.batch, *member.rows)
        found: dict[str, tuple[int, ...]] = {}
        for store in ir.of_kind(member.nest.body, ir.Store):
            if store.buffer.name not in self.places:
                axes = _axes_of(store, variables)
                if axes is None or found.setdefault(store.buffer.name, axes) != axes:
                    return None
        for access in ir.accesses(member.nest.body):
            if access.buffer.name in found and _variables(access, found[access.buffer.name]) != variables:
                return None
        return found


def _parts(nest: ir.Nest) -> list[ir.Nest]:
    """A nest with others inside, distributed: each of these with the axes around it, and what is between them.

    What is bound is bound in each part that needs it. The nest itself, where a part needs more of another one.
    """
    lets = [each for each in nest.body if isinstance(each, ir.Let)]
    rest = [each for each in nest.body if not isinstance(each, ir.Let)]
    written = ir.written_in((nest,))
    scalars = any(isinstance(each, ir.Declare | ir.Assign) for each in rest)
    if scalars or not ir.contains(tuple(rest), ir.Nest) or not written.isdisjoint(ir.read_in(tuple(lets))):
        return [nest]
    left, parts = list(nest.fills), list[ir.Nest]()
    for each in rest:
        own = each if isinstance(each, ir.Nest) else ir.Nest((), (each,), False)
        needed = ir.bindings_of([e for inner in ir.walk(own.body) for e in ir.wholes(inner)], lets)
        fills = [buffer for buffer in left if buffer.name in ir.written_in((each,))]
        left = [buffer for buffer in left if buffer not in fills]
        parts.append(
            replace(
                own,
                axes=(*nest.axes, *own.axes),
                body=(*needed, *own.body),
                outermost=nest.outermost,
                fills=(*fills, *own.fills),
            )
        )
    return parts


def _variables(access: Access, axes: Sequence[int]) -> tuple[str, ...] | None:
    """The names of the variables that some axes are indexed with, if that is all they are."""
    indices = [access.indices[axis] for axis in axes]
    names = [each.name for each in indices if isinstance(each, ir.Variable)]
    return tuple(names) if len(names) == len(axes) and set(axes).isdisjoint(access.guarded) else None


def _axes_of(access: Access, variables: Sequence[str]) -> tuple[int, ...] | None:
    """The axes that are indexed with some variables, and nothing else."""
    found = [
        next((k for k, i in enumerate(access.indices) if i == ir.Variable(name) and k not in access.guarded), None)
        for name in variables
    ]
    axes = [axis for axis in found if axis is not None]
    return tuple(axes) if len(axes) == len(found) else None
