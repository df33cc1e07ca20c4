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

That is more work for each element. It is worth it where what is read is larger than the second cache and its rows are
more streams than a processor follows, which the run tells. So are 10^5 rows of 100 numbers summed in 3 ms instead of 7,
and their columns in 3 instead of 11.

Rows that overlap, as windows do, or that are shorter than some cache lines, stay neighbours. So do rows whose sizes
say that the first cache holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....core.dims import Dim, DimAtom, Name, Opaque
from ....core.types import i64
from ... import ir
from ...decisions import Decisions, writes_text
from ...target import MOST_STREAMS, SHORT_ROW_BYTES, STREAM_COLUMNS, STREAM_PIECES, STREAM_ROWS, Target


def in_memory_order(function: ir.Function, target: Target, decisions: Decisions) -> ir.Function:
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

    def wanted(self, loop: ir.For) -> bool:
        return self.decisions.take("memory_order", f"rows for {writes_text(loop)}")

    # Rows

    def rows(self, statement: ir.Statement) -> Sequence[ir.Statement]:
        """Rows that are reduced side by side, in streams; nothing if a statement is something else."""
        match statement:
            case ir.For(kind="parallel", body=(ir.For(kind="jam") as jam,)) if self.reads_rows(jam):
                cut = _Cut.of(statement, jam)
                if cut is not None and self.wanted(jam):
                    share = ir.ceil_divide(cut.whole, jam.factor * STREAM_PIECES)
                    size = ir.Variable(self.fresh("rows"))
                    let = ir.Let(size.name, ir.maximum(ir.minimum(share, STREAM_ROWS), 1) * jam.factor)
                    return [let, cut.into(size, self.in_streams)]
            case ir.For(kind="jam") if self.reads_rows(statement) and self.wanted(statement):
                return self.in_streams(statement)
        return ()

    def reads_rows(self, jam: ir.For) -> bool:
        """Whether iterations of a jam read rows of their own, by lanes along these, as long and as many as streams."""
        sums = [each for each in ir.of_kind(jam.body, ir.For) if each.kind == "lanes" and each.reductions]
        if not sums or jam.extent == ir.Constant(jam.factor):
            return False
        scope = _Scope.of(jam)
        read = [load for each in sums for load in _rows(each, scope, jam.variable) if self.is_long(jam, each, load)]
        return bool(read) and all(scope.step(load.indices[-1], jam.variable) == 0 for load in read)

    def is_long(self, jam: ir.For, lanes: ir.For, load: ir.Load) -> bool:
        """Whether the rows of an array that a jam reads may be streams, for all that is known of their size."""
        row, rows = (each.value if isinstance(each, ir.Constant) else None for each in (lanes.extent, jam.extent))
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
                if cut is not None and columns is not None and self.wanted(lanes):
                    longest = ir.minimum(cut.whole, columns.most)
                    rows = cut.into(ir.Constant(columns.most), lambda piece: self.by_rows(piece, longest))
                    return ir.branch(self.worth(columns, cut.whole), (rows,), (statement,))
            case ir.For(kind="lanes"):
                columns = _Columns.of(statement)
                if columns is not None and self.wanted(statement):
                    width = statement.extent
                    worth = self.worth(columns, width) & (width <= columns.most)
                    return ir.branch(worth, self.by_rows(statement, width), (statement,))
        return ()

    def worth(self, columns: _Columns, width: ir.Expression) -> ir.Expression:
        """Whether rows of a width are too many to be streams, and do not fit into a strip of lanes."""
        many = self.target.l2_bytes <= columns.rows.extent * width * columns.bytes
        return many & (ir.Constant(columns.lanes.factor) < width) & (ir.Constant(MOST_STREAMS) < columns.rows.extent)

    def by_rows(self, lanes: ir.For, longest: ir.Expression) -> ir.Block:
        """Lanes around a loop over rows with that loop outside; there are so many lanes at most."""
        columns = _Columns.of(lanes)
        assert columns is not None
        return tuple(columns.by_rows(longest, self.fresh))


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
    """The integers of a loop's body, as what its variables make them."""

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
        name: DimAtom = Name(variable)
        terms = [(monomial, factor) for monomial, factor in dim.terms if name in Dim({monomial: 1}).atoms()]
        if not terms:
            return None if any(isinstance(atom, Opaque) for atom in dim.atoms()) else 0
        return terms[0][1] if len(terms) == 1 and terms[0][0] == (name,) else None


def _outside(known: Mapping[str, Dim]) -> Callable[[ir.Expression], Dim | None]:
    """What is bound outside of a loop stays the same in it."""
    return lambda e: Dim.atom(Name(e.name)) if isinstance(e, ir.Variable) and e.name not in known else None


@dataclass(frozen=True)
class _Columns:
    """Lanes around one loop over rows, with what is bound before it and what is made of the sums behind it."""

    lanes: ir.For
    before: Sequence[ir.Let]
    sums: Sequence[ir.Declare]
    rows: ir.For
    behind: ir.Block
    bytes: int  # of an element that is read

    @staticmethod
    def of(lanes: ir.For) -> _Columns | None:
        """The parts of lanes, if they are of this kind."""
        loops = [k for k, statement in enumerate(lanes.body) if isinstance(statement, ir.For)]
        if lanes.reductions or len(loops) != 1:
            return None
        start, rows, behind = lanes.body[: loops[0]], lanes.body[loops[0]], lanes.body[loops[0] + 1 :]
        before, sums = [s for s in start if isinstance(s, ir.Let)], [s for s in start if isinstance(s, ir.Declare)]
        if not isinstance(rows, ir.For) or rows.kind != "sequential" or len(before) + len(sums) < len(start):
            return None
        if not all(isinstance(s, ir.Let | ir.Assign | ir.Store) for s in (*rows.body, *behind)):
            return None
        if not sums or {each.name for each in sums} != ir.assigned_in(rows.body) or ir.assigned_in(behind):
            return None
        if not ir.names_in([rows.extent]).isdisjoint({lanes.variable, *[let.name for let in before]}):
            return None
        names, arrays = ir.mentioned(tuple(before))  # each row makes these again
        if not names.isdisjoint(each.name for each in sums) or not arrays.isdisjoint(ir.written_in(rows.body)):
            return None
        scope = _Scope.of(lanes)
        read = list(_rows(replace(lanes, body=rows.body), scope, rows.variable))
        loads = [load for statement in rows.body for load in ir.loads(statement)]
        both = [load for load in loads if scope.moves(load, lanes.variable) and scope.moves(load, rows.variable)]
        if not read or len(both) > len(read) or any(scope.step(e.indices[-1], rows.variable) != 0 for e in read):
            return None  # what is read across rows stays in the cache for some columns at a time
        return _Columns(lanes, before, sums, rows, behind, read[0].type.bytes)

    @property
    def most(self) -> int:
        """How many columns have their sums in the first cache."""
        return max(1, STREAM_COLUMNS // len(self.sums) // self.lanes.factor) * self.lanes.factor

    def by_rows(self, longest: ir.Expression, fresh: Callable[[str], str]) -> Iterator[ir.Statement]:
        """The same with the loop over rows outside."""
        lane = ir.Variable(self.lanes.variable)
        steady, moving = _apart(self.before, {lane.name})
        lets = [let for let in moving if isinstance(let, ir.Let)]
        arrays = {each.name: ir.Buffer(fresh("sums"), each.initial.type, (longest,)) for each in self.sums}
        loaded = [ir.Declare(name, ir.Load(array, (lane,))) for name, array in arrays.items()]
        stored = [ir.Store(arrays[each.name], (lane,), ir.Variable(each.name, each.initial.type)) for each in self.sums]

        def along(*body: ir.Statement) -> ir.For:
            """Lanes with what a body needs of the bindings before."""
            needed = ir.bindings_of([e for s in body for e in ir.expressions_of(s)], lets)
            return replace(self.lanes, body=(*needed, *body))

        yield from steady
        yield from map(ir.Allocate, arrays.values())
        yield along(*[ir.Store(arrays[each.name], (lane,), each.initial) for each in self.sums])
        varying = {lane.name, *arrays, *[let.name for let in lets]}
        in_row, in_lane = _apart(self.rows.body, varying)
        yield replace(self.rows, body=(*in_row, along(*loaded, *in_lane, *stored)))
        yield along(*loaded, *self.behind)


def _apart(block: Sequence[ir.Statement], varying: set[str]) -> tuple[list[ir.Let], list[ir.Statement]]:
    """The bindings of a block that do not vary with some variables, and the other statements."""
    steady, others, varying = list[ir.Let](), list[ir.Statement](), set(varying)
    for statement in block:
        if isinstance(statement, ir.Let) and varying.isdisjoint(ir.names_in([statement.value])):
            steady.append(statement)
            continue
        others.append(statement)
        if isinstance(statement, ir.Let):
            varying.add(statement.name)
    return steady, others
