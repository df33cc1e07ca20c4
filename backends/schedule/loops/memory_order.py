"""Memory order: large arrays are read from their beginning to their end.

A processor fetches ahead what goes on from where it was. Loops that take a piece of each row, or a few neighbouring
rows at a time, go on elsewhere after some hundred bytes, and wait for each cache line. Two kinds of loops read rows,
and each has another order in which it does so. What is summed is the same, in the same order.

*Rows that are reduced side by side*, by a jam around lanes along them, are taken from as many *parts* of the loop, one
from each. Each part is a stream that the processor follows. ::

    for i by 4 side by side                          let q = n / 4, rounded up
      y[i] = lanes k: sum of a[i, k] * x[k]    =>    for r < q
                                                       for part < 4 side by side
                                                         y[part * q + r] = lanes k: sum of a[part * q + r, k] * x[k]

*Columns that are reduced*, by lanes around a loop over rows, have their sums in registers: some columns at a time, for
all rows. The loops change places, and sums go to an array that stays in the first cache. ::

    lanes j                                          lanes j: sums[j] = 0
      var sum = 0                                    for i
      for i                                    =>      lanes j: sums[j] = sums[j] + a[i, j]
        sum = sum + a[i, j]                          lanes j: y[j] = sums[j]
      y[j] = sum

That is more work for each element. It is worth it where what is read, or what it is a part of, is larger than the
second cache and its rows are more streams than a processor follows, which the run tells. So are 10^5 rows of 100
numbers summed in 3 ms instead of 7, and their columns in 3 instead of 11.

Rows that overlap, as windows do, or that are shorter than some cache lines, stay neighbours. So do rows whose sizes
say that the first cache holds them all.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....core.dims import Dim, Name, Opaque
from ....core.types import i64
from ... import ir
from ...decisions import Decisions, writes_text
from ...target import SHORT_ROW_BYTES, STREAM_COLUMNS, STREAM_PIECES, STREAM_ROWS, STREAMS, Target
from .affine_lanes import factor_of


def read_in_order(function: ir.Function, target: Target, decisions: Decisions) -> ir.Function:
    """A function that reads the rows of large arrays one after the other."""
    order = _Order(target, ir.unused_names(function), decisions)
    return replace(function, body=order.block(function.body))


@dataclass
class _Order:
    """Goes through blocks; ``inside`` is how many parallel loops are around."""

    target: Target
    fresh: Callable[[str], str]
    decisions: Decisions
    inside: int = 0

    def block(self, block: ir.Block) -> ir.Block:
        return tuple([made for statement in block for made in self.statement(statement)])

    def statement(self, statement: ir.Statement) -> Sequence[ir.Statement]:
        made = self.rows(statement) or (() if self.inside else self.columns(statement))
        if made:
            return made
        if isinstance(statement, ir.For) and statement.kind == "lanes":
            return [statement]
        shared = isinstance(statement, ir.For) and statement.kind == "parallel"
        self.inside += shared
        same = ir.map_inside(statement, self.block)
        self.inside -= shared
        return [same]

    def wanted(self, what: str, loop: ir.For) -> bool:
        return self.decisions.take("memory_order", f"{what} for {writes_text(loop)}")

    # Rows

    def rows(self, statement: ir.Statement) -> Sequence[ir.Statement]:
        """Rows that are reduced side by side, in streams; nothing if a statement is something else."""
        match statement:
            case ir.For(kind="parallel", body=(ir.For(kind="jam") as jam,)):
                cut = _Cut.of(statement, jam)
                if cut is not None and self.reads_rows(jam, cut.whole) and self.wanted("rows", jam):
                    share = ir.ceil_divide(cut.whole, jam.factor * STREAM_PIECES)
                    size = ir.Variable(self.fresh("rows"))
                    let = ir.Let(size.name, ir.maximum(ir.minimum(share, STREAM_ROWS), 1) * jam.factor)
                    return [let, cut.into(size, self.in_streams)]
            case ir.For(kind="jam", extent=extent) if self.reads_rows(statement, extent):
                if self.wanted("rows", statement):
                    return self.in_streams(statement)
        return ()

    def reads_rows(self, jam: ir.For, whole: ir.Expression) -> bool:
        """Whether iterations of a jam read rows of their own, by lanes along these, as long and as many as streams."""
        sums = [each for each in ir.of_kind(jam.body, ir.For) if each.kind == "lanes" and each.reductions]
        if not sums or whole == ir.Constant(jam.factor):
            return False
        scope = _Scope.of(jam)
        read = [load for each in sums for load in _rows(each, scope, jam.variable) if self.is_long(whole, each, load)]
        return bool(read) and all(scope.step(load.indices[-1], jam.variable) == 0 for load in read)

    def is_long(self, whole: ir.Expression, lanes: ir.For, load: ir.Load) -> bool:
        """Whether so many rows of an array may be streams, for all that is known of their size."""
        row, rows = (each.value if isinstance(each, ir.Constant) else None for each in (lanes.extent, whole))
        if row is None:
            return True
        bytes = int(row) * load.type.bytes
        return bytes >= SHORT_ROW_BYTES and (rows is None or bytes * int(rows) > self.target.l1_bytes)

    def in_streams(self, jam: ir.For) -> ir.Block:
        """A jam whose iterations at a time are of as many parts of its loop."""
        length, row, part = (ir.Variable(self.fresh(stem)) for stem in ("length", "row", "part"))
        at = ir.Let(jam.variable, part * length + row)
        each = replace(jam, variable=part.name, extent=ir.ceil_divide(jam.extent - row, length), body=(at, *jam.body))
        let = ir.Let(length.name, ir.ceil_divide(jam.extent, jam.factor))
        return (let, ir.For(row.name, length, "sequential", (each,)))

    # Columns

    def columns(self, statement: ir.Statement) -> Sequence[ir.Statement]:
        """Columns that are reduced, a row at a time where that is worth it; nothing if a statement is something else.

        Inside of a parallel loop there is less to read at a time, and both ways would be compiled.
        """
        match statement:
            case ir.For(kind="parallel", body=(ir.For(kind="lanes") as lanes,)):
                cut, columns = _Cut.of(statement, lanes), _Columns.of(lanes)
                if cut is not None and columns is not None and self.wanted("columns", lanes):
                    most, longest = ir.Constant(columns.most), ir.minimum(cut.whole, columns.most)
                    rows = cut.into(most, lambda piece: _by_rows(piece, longest, self.fresh))
                    return ir.branch(self.worth(columns, cut.whole), (rows,), (statement,))
            case ir.For(kind="lanes"):
                columns = _Columns.of(statement)
                if columns is not None and self.wanted("columns", statement):
                    width = statement.extent
                    worth = self.worth(columns, width) & (width <= columns.most)
                    return ir.branch(worth, _by_rows(statement, width, self.fresh), (statement,))
        return ()

    def worth(self, columns: _Columns, width: ir.Expression) -> ir.Expression:
        """Whether columns of such a number are read from rows that no cache holds and no strip of lanes covers.

        A strip takes whole lines of each row, and so a processor follows twice as many rows as it does runs of them.
        """
        read = [columns.bytes * width, *[ir.bytes_of(array) for array in columns.larger]]
        large = functools.reduce(operator.or_, [self.target.l2_bytes <= bytes for bytes in read])
        return large & (ir.Constant(columns.lanes.factor) < width) & (ir.Constant(2 * STREAMS) < columns.rows.extent)


@dataclass(frozen=True)
class _Cut:
    """A loop whose pieces threads share out, each of which begins with the number of its iteration."""

    shared: ir.For
    piece: ir.For
    whole: ir.Expression  # the iterations of all pieces
    size: int  # of a piece

    @staticmethod
    def of(shared: ir.For, piece: ir.For) -> _Cut | None:
        """The parts of such a loop; None if it is another."""
        number, (at, *body) = ir.Variable(shared.variable), piece.body
        match piece.extent:
            case ir.Constant(value):
                size, whole = int(value), shared.extent * int(value)
            case ir.Apply(_, (ir.Apply(_, (n, _)), ir.Constant(value))) if piece.extent == ir.minimum(
                n - number * int(value), int(value)
            ):
                size, whole = int(value), n
            case _:
                return None
        cut = isinstance(at, ir.Let) and at.value == number * size + ir.Variable(piece.variable)
        return _Cut(shared, piece, whole, size) if cut and number.name not in ir.mentioned(tuple(body))[0] else None

    def into(self, size: ir.Expression, inside: Callable[[ir.For], ir.Block]) -> ir.For:
        """The loop in pieces of another size, of which each is rewritten."""
        number, (at, *body) = ir.Variable(self.shared.variable), self.piece.body
        assert isinstance(at, ir.Let)
        start = number * size
        at = replace(at, value=start + ir.Variable(self.piece.variable))
        piece = replace(self.piece, extent=ir.minimum(self.whole - start, size), body=(at, *body))
        grain = None if self.shared.grain is None else self.shared.grain * self.size // size
        extent = ir.ceil_divide(self.whole, size)
        return replace(self.shared, extent=extent, body=inside(piece), grain=grain)


def _by_rows(lanes: ir.For, longest: ir.Expression, fresh: Callable[[str], str]) -> ir.Block:
    """Lanes around a loop over rows with that loop outside; there are so many lanes at most."""
    columns = _Columns.of(lanes)
    assert columns is not None
    return tuple(columns.by_rows(longest, fresh))


def _rows(lanes: ir.For, scope: _Scope, row: str) -> Iterator[ir.Load]:
    """What lanes read of a row that another variable tells."""
    for load in [part for statement in ir.walk(lanes.body) for part in ir.loads(statement)]:
        if not load.indices or scope.step(load.indices[-1], lanes.variable) != 1:
            continue
        told = any(scope.step(index, row) != 0 for index in load.indices)
        if told and all(scope.step(index, lanes.variable) == 0 for index in load.indices[:-1]):
            yield load


@dataclass(frozen=True)
class _Scope:
    """The integers of a loop's body, as what its variables make them; others are taken for the same in all of it."""

    known: Mapping[str, Dim]

    @staticmethod
    def of(loop: ir.For) -> _Scope:
        """The scope of a loop. What is not known by its variables is nothing but itself."""
        known = {loop.variable: Dim.atom(Name(loop.variable))}
        for statement in ir.walk(loop.body):
            match statement:
                case ir.Let(name, value) if value.type == i64:
                    dim = ir.dim_of(value, known, _outside(known))
                    known[name] = Dim.atom(Opaque(len(known))) if dim is None else dim
                case ir.For(variable):
                    known[variable] = Dim.atom(Name(variable))
        return _Scope(known)

    def moves(self, load: ir.Load, variable: str) -> bool:
        """Whether an element may be another one for other values of a variable."""
        return any(self.step(index, variable) != 0 for index in load.indices)

    def step(self, index: ir.Expression, variable: str) -> int | None:
        """By how much an index grows with a variable; None if not by a constant."""
        dim = ir.dim_of(index, self.known, _outside(self.known))
        if dim is None:
            return None
        if Name(variable) in dim.atoms():
            return factor_of(dim, Name(variable)) or None
        return None if any(isinstance(atom, Opaque) for atom in dim.atoms()) else 0


def _outside(known: Mapping[str, Dim]) -> Callable[[ir.Expression], Dim | None]:
    """What is not known is an integer of its own."""
    return lambda e: Dim.atom(Name(e.name)) if isinstance(e, ir.Variable) and e.name not in known else None


# Columns


@dataclass(frozen=True)
class _Columns:
    """Lanes around one loop over rows, with what is bound before it and what is made of the sums behind it."""

    lanes: ir.For
    before: Sequence[ir.Let]
    sums: Sequence[ir.Declare]
    rows: ir.For
    behind: ir.Block

    @staticmethod
    def of(lanes: ir.For) -> _Columns | None:
        """The parts of lanes that may as well be run row by row, and read rows; None if they are others."""
        loops = [k for k, statement in enumerate(lanes.body) if isinstance(statement, ir.For)]
        if lanes.reductions or len(loops) != 1:
            return None
        start, rows, behind = lanes.body[: loops[0]], lanes.body[loops[0]], lanes.body[loops[0] + 1 :]
        before, sums = [s for s in start if isinstance(s, ir.Let)], [s for s in start if isinstance(s, ir.Declare)]
        if not isinstance(rows, ir.For) or rows.kind != "sequential" or len(before) + len(sums) < len(start):
            return None
        columns = _Columns(lanes, before, sums, rows, behind)
        return columns if columns.may_change_places() and columns.read() else None

    def may_change_places(self) -> bool:
        """Whether nothing but sums goes from row to row, and what is bound before is the same for all rows."""
        if not all(isinstance(s, ir.Let | ir.Assign | ir.Store) for s in (*self.rows.body, *self.behind)):
            return False
        names = {each.name for each in self.sums}
        if not names or names != ir.assigned_in(self.rows.body) or ir.assigned_in(self.behind):
            return False
        if not ir.names_in([self.rows.extent]).isdisjoint({self.lanes.variable, *[let.name for let in self.before]}):
            return False
        mentioned, arrays = ir.mentioned(tuple(self.before))
        return mentioned.isdisjoint(names) and arrays.isdisjoint(ir.written_in(self.rows.body))

    def read(self) -> Sequence[ir.Load]:
        """What is read of rows; nothing where something is read across them, which a cache holds for some columns."""
        scope, row = _Scope.of(self.lanes), self.rows.variable
        found = list(_rows(replace(self.lanes, body=self.rows.body), scope, row))
        loads = [load for statement in self.rows.body for load in ir.loads(statement)]
        both = [load for load in loads if scope.moves(load, self.lanes.variable) and scope.moves(load, row)]
        plain = all(scope.step(load.indices[-1], row) == 0 for load in found)
        return found if plain and len(both) == len(found) else ()

    @property
    def bytes(self) -> ir.Expression:
        """What is read for a column."""
        arrays = {load.buffer: load.type.bytes for load in self.read()}
        return self.rows.extent * sum(arrays.values())

    @property
    def larger(self) -> Sequence[ir.Buffer]:
        """The arrays of which rows are a part, as that of a step: the rest is read before they are read again."""
        return list(dict.fromkeys([load.buffer for load in self.read() if len(load.indices) > 2]))

    @property
    def kept(self) -> Sequence[ir.Let]:
        """What is made for a column before the rows, and needed for each of them."""
        needed = ir.names_in([e for s in self.rows.body for e in ir.expressions_of(s)])
        _, moving = ir.apart(self.before, {self.lanes.variable})
        return [let for let in moving if let.name in needed and let.value.type != i64]

    @property
    def most(self) -> int:
        """How many columns have their sums, and what is kept for them, in the first cache."""
        numbers = len(self.sums) + len(self.kept)
        return max(1, STREAM_COLUMNS // numbers // self.lanes.factor) * self.lanes.factor

    def by_rows(self, longest: ir.Expression, fresh: Callable[[str], str]) -> Iterator[ir.Statement]:
        """The same with the loop over rows outside, and no more columns than the longest piece has."""
        lane, kept = ir.Variable(self.lanes.variable), self.kept
        steady, moving = ir.apart(self.before, {lane.name})
        values = {each.name: each.initial for each in self.sums} | {let.name: let.value for let in kept}
        arrays = {name: ir.Buffer(fresh("sums"), value.type, (longest,)) for name, value in values.items()}
        loads = {name: ir.Load(array, (lane,)) for name, array in arrays.items()}
        loaded = [ir.Declare(each.name, loads[each.name]) for each in self.sums]
        stored = [ir.Store(arrays[each.name], (lane,), ir.Variable(each.name, each.initial.type)) for each in self.sums]
        again = [ir.Let(let.name, loads[let.name]) if let in kept else let for let in moving]

        def along(bindings: Sequence[ir.Let], *body: ir.Statement) -> ir.For:
            """Lanes with those of some bindings that a body needs."""
            needed = ir.bindings_of([e for s in body for e in ir.expressions_of(s)], bindings)
            return replace(self.lanes, body=(*needed, *body))

        yield from steady
        yield from map(ir.Allocate, arrays.values())
        yield along(moving, *[ir.Store(arrays[name], (lane,), value) for name, value in values.items()])
        in_row, in_lane = ir.apart(self.rows.body, {lane.name, *arrays, *[let.name for let in moving]})
        yield replace(self.rows, body=(*in_row, along(again, *loaded, *in_lane, *stored)))
        yield along(again, *loaded, *self.behind)
