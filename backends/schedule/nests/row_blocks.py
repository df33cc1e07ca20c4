"""Strip-mined fusion: nests over the same rows become one loop over blocks of rows, whose tables stay in the cache.

Attention makes a score for each query and key, and uses each row of scores where it was made: its maximum, the
exponentials, their sum, a product of them with the values. Run nest by nest, a table of all scores is stored, and read
back from memory. So the nests run for a block of rows at a time, after each other (Halide's compute_at, with a row of
the table as the unit; Milakov and Gimelshein 2018 and Dao et al. 2022 cut rows, too, which changes sums)::

    temporary s, e: f64[n, m]                            parallel piece:
    nest i < n, j < m: s[i, j] = sum(l: q[i,l] k[j,l])     for each of its blocks:
    nest i < n: t[i] = max(j: s[i, j])                       temporary s, e: f64[rows, m]
    nest i < n, j < m: e[i, j] = exp(s[i, j] - t[i])   =>    nest r < rows, j < m: s[r, j] = sum(l: ..)
    nest i < n, c < d: y[i, c] = sum(j: e[i,j] v[j,c])       nest r < rows: t[r] = max(j: s[r, j]) ..
    nest j < m, c < d: g[j, c] = sum(i: e[i,j] y[i,c])       nest j < m, c < d: partial[piece, j, c] += sum(r: ..)
                                                         nest j < m, c < d: g[j, c] = sum(piece: partial[..])

What joins is said in ``row_chains.py``. Within a row nothing changes, and neither do its bits where its nests get the
roles that they have without blocks. Sums over rows are made for each piece, and those added in order; sizes alone say
how many pieces and blocks there are, so results do not depend on the number of threads.

A block has as many rows as the second cache holds of the *tables*, what only the chain uses, by whole strips of lanes.
An operand of a product that is the same for all rows is packed once a piece (``loops/invariant_motion.py``). Rows of
other arrays are copied block by block, so that what reads them is as it would be without blocks.

Whether blocks are worth it, sizes decide at run time: tables that come again and again from beyond a cache, against
operands and partial sums that do so once a block. The nests stay as they were beside the loop, for other sizes.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....core.types import bool_
from ... import ir
from ...decisions import writes_text
from ...lowering import Lowered, contractions
from ...lowering.roles import Planner
from ...target import BESIDE, L2_RATE, L3_BYTES, L3_RATE, MEMORY_RATE, PRODUCT_TASKS, STRIP_REGISTERS
from .row_chains import Access, Chain, Member


def in_blocks_of_rows(lowered: Lowered) -> Lowered:
    """A function whose nests over the rows of large tables run block by block, where sizes are worth it."""
    target, function = lowered.context.target, lowered.function
    if target.group or not (target.transformations.contract and target.transformations.vectorise):
        return lowered
    rewriting = _RowBlocks(Planner(lowered.context, function.body), frozenset(function.sizes))
    body = rewriting.block(function.body)
    return replace(lowered, function=replace(function, body=(*rewriting.lets, *body)))


@dataclass
class _RowBlocks:
    """Goes through blocks; ``lets`` are what sizes decide, which stands before all of them."""

    planner: Planner
    sizes: frozenset[str]
    lets: list[ir.Let] = field(default_factory=list)

    def block(self, block: ir.Block) -> ir.Block:
        """A block whose chains of nests run block by block of their rows."""
        made: list[ir.Statement] = []
        rest = list(block)
        while rest:
            statement = rest.pop(0)
            if isinstance(statement, ir.If | ir.While | ir.For):
                statement = ir.map_inside(statement, self.block)
            found = self.found(statement, made, rest) if isinstance(statement, ir.Nest) else None
            if found is None:
                made.append(statement)
                continue
            chain, tables, both = found
            kept = [each for each in (*made, *chain.before) if not _allocates(each, tables)]
            made = [*kept, *both]
            rest = chain.rest
        return tuple(made)

    def found(
        self, nest: ir.Nest, before: Sequence[ir.Statement], rest: Sequence[ir.Statement]
    ) -> tuple[Chain, Mapping[str, ir.Buffer], ir.Block] | None:
        """The chain that a nest begins, its tables, and what becomes of it: none where sizes do not decide that."""
        chain = _chain(nest, rest, self.planner)
        tables = {} if chain is None else _tables(chain, (*before, *rest))
        if chain is None or not tables:
            return None
        blocks = _Blocks(chain, tables, self.planner)
        both = blocks.statements()
        known = self.sizes | {let.name for let in blocks.lets}
        if both is None or not ir.names_in([let.value for let in blocks.lets]) <= known:
            return None
        first, last = writes_text(chain.nests[0]), writes_text(chain.nests[-1])
        told = f"blocks of rows of {', '.join(tables)}, from {first} to {last}, where sizes are worth it"
        if not self.planner.context.decisions.take("fuse_rows", f"{last} with {first}", told):
            return None
        self.lets += blocks.lets
        return chain, tables, both


def _chain(nest: ir.Nest, rest: Sequence[ir.Statement], planner: Planner) -> Chain | None:
    """The chain that a product which fills a table begins, along the side of it that more nests go along."""
    if not nest.outermost or nest.combines or not any(len(buffer.extents) > 1 for buffer in nest.fills):
        return None
    if planner.context.decisions.is_forced("contract", writes_text(nest)):
        return None
    sides = contractions.sides(planner.plan(nest))
    chains: list[Chain] = []
    for row in [axis for axis in nest.axes if axis.variable.name in sides]:
        axes = [*[axis for axis in nest.axes if axis.variable.name not in sides], row]
        chain = Chain([axis.extent for axis in axes], planner.context.reductions)
        if chain.begin(nest, [axis.variable.name for axis in axes]):
            chain.grow(rest)
            chains.append(chain)
    return max(chains, key=lambda chain: len(chain.members), default=None)


def _tables(chain: Chain, around: Sequence[ir.Statement]) -> dict[str, ir.Buffer]:
    """The temporaries that nothing but a chain uses, if what begins it fills one that others of it read."""
    nests = chain.nests
    uses = Counter([name for nest in nests for name in ir.mentioned((nest,))[1] & chain.places.keys()])
    inside = {id(nest) for nest in nests}
    others = [each for each in around if id(each) not in inside and not isinstance(each, ir.Allocate)]
    used = ir.mentioned(tuple(others))[1]
    allocated = [each.buffer for each in around if isinstance(each, ir.Allocate)]
    tables = {buffer.name: buffer for buffer in allocated if uses[buffer.name] and buffer.name not in used}
    first = {buffer.name for buffer in nests[0].fills if uses[buffer.name] > 1}
    return tables if first & tables.keys() else {}


def _allocates(statement: ir.Statement, tables: Mapping[str, ir.Buffer]) -> bool:
    return isinstance(statement, ir.Allocate) and statement.buffer.name in tables


class _Blocks:
    """A chain as a loop over blocks of rows, beside the chain as it was."""

    def __init__(self, chain: Chain, tables: Mapping[str, ir.Buffer], planner: Planner) -> None:
        self.chain, self.tables, self.planner = chain, tables, planner
        self.fresh, self.target = planner.context.fresh, planner.context.target
        *batch, self.extent = chain.extents
        self.batch = [ir.Axis(self.variable("item"), extent) for extent in batch]
        self.start, self.rows, self.piece = self.variable("row"), self.variable("rows"), self.variable("piece")
        self.lets: list[ir.Let] = []
        bytes = ir.total([ir.product(self.rest(each)) * each.scalar.bytes for each in tables.values()])
        self.row_bytes = self.let("bytes", bytes)
        smallest = min([buffer.scalar for buffer in tables.values()], key=lambda scalar: scalar.bits)
        self.strip = STRIP_REGISTERS * self.target.lanes(smallest)
        fitting = self.target.l2_bytes // ir.maximum(self.row_bytes, 1)
        self.length = self.let("length", ir.maximum(fitting // self.strip, 1) * self.strip)  # rows of a block
        self.blocks = self.let("blocks", ir.ceil_divide(self.extent, self.length))
        self.share = self.let("share", self.blocks_of_a_piece())
        self.pieces = self.let("pieces", ir.ceil_divide(self.blocks, self.share))
        self.parts = {name: self.part(buffer) for name, buffer in tables.items()}
        self.copies: dict[tuple[str, int, tuple[int, ...]], ir.Nest] = {}
        self.partial: list[ir.Buffer] = []
        self.written = ir.written_in(tuple([member.nest for member in chain.members]))
        self.operands: list[ir.Expression] = []  # bytes of what comes again for each block

    def variable(self, stem: str) -> ir.Variable:
        return ir.Variable(self.fresh(stem))

    def rest(self, buffer: ir.Buffer) -> list[ir.Expression]:
        """The extents of a table but for its batch and rows."""
        places = self.chain.places[buffer.name]
        return [extent for axis, extent in enumerate(buffer.extents) if axis not in places]

    def part(self, buffer: ir.Buffer) -> ir.Buffer:
        """What a block has of a table."""
        *batch, row = self.chain.places[buffer.name]
        extents = [self.length if axis == row else each for axis, each in enumerate(buffer.extents)]
        kept = tuple([extent for axis, extent in enumerate(extents) if axis not in batch])
        return ir.Buffer(self.fresh("rows_of"), buffer.scalar, kept)

    def statements(self) -> ir.Block | None:
        """Both ways, and the choice; nothing where there is none."""
        chain = self.chain
        varying = {self.start.name, self.rows.name, *self.written, *[each.name for each in self.parts.values()]}
        first: list[ir.Nest] = []
        inside: list[ir.Nest] = []
        last: list[ir.Nest] = []
        for member in chain.members:
            if member.loops:
                zeros, sums, total = self.sums(member)
                first.append(zeros)
                inside.append(sums)
                last.append(total)
            else:
                inside.append(self.own(member))
        inside = [*self.copies.values(), *inside]
        varying |= {each.name for each in (*self.copied_rows, *self.partial)}
        strip = ir.Strip(frozenset(varying), self.rows, self.length)
        inside = [replace(nest, outermost=False, strip=strip) for nest in inside]
        first = [replace(nest, outermost=False) for nest in first]
        blocks: list[ir.Statement] = [*map(ir.Allocate, self.partial), self.loop(first, inside), *last]
        plain: list[ir.Statement] = [*map(ir.Allocate, self.tables.values()), *chain.nests]
        test = self.let("in_blocks", self.worth(inside))
        return None if test == ir.Constant(False, bool_) else ir.branch(test, blocks, plain)

    def let(self, stem: str, value: ir.Expression) -> ir.Expression:
        """A name for a value that sizes decide."""
        if isinstance(value, ir.Constant | ir.Variable):
            return value
        self.lets.append(ir.Let(self.fresh(stem), value))
        return ir.Variable(self.lets[-1].name, value.type)

    def given(self, nest: ir.Nest) -> ir.Nest:
        """A nest in a block, which says nothing of the layout of what others use."""
        parts = self.parts.values()
        return replace(nest, fills=tuple([buffer for buffer in nest.fills if buffer in parts]))

    @property
    def copied_rows(self) -> list[ir.Buffer]:
        """The copies of rows of arrays."""
        return [nest.fills[0] for nest in self.copies.values()]

    # Sizes

    def blocks_of_a_piece(self) -> ir.Expression:
        """Pieces are about as many as tasks of a product, with those of the batch."""
        batch = ir.maximum(ir.product([axis.extent for axis in self.batch]), 1)
        wanted = ir.ceil_divide(ir.Constant(PRODUCT_TASKS), batch)
        return ir.maximum(ir.ceil_divide(self.blocks, wanted), 1)

    def worth(self, inside: Sequence[ir.Nest]) -> ir.Expression:
        """Whether there are several blocks, full tiles in each, and less time goes by with what moves between caches.

        A table is larger than the second cache: a smaller one is still there, or nearly, when the next nest wants it.

        A table that a nest uses comes from the cache that holds what was used since it was used last: in all rows of an
        item of the batch, or in those of a block. With blocks, all operands and partial sums come once for each block
        as well, beside the sums that they are for.
        """
        tiles = [contractions.worth(self.planner.plan(nest)) for nest in inside]
        some: ir.Expression = ir.Constant(True, bool_)
        full = functools.reduce(operator.and_, tiles, some)
        full = ir.substituted(full, {self.rows.name: ir.Constant(self.strip)})
        since: defaultdict[ir.Expression, list[ir.Expression]] = defaultdict(list)
        for used, bytes in self.uses():
            since[used].append(bytes)
        moved = [
            (self.let("used", used), self.let("bytes", ir.total(bytes) * self.extent)) for used, bytes in since.items()
        ]
        sums = [ir.product(each.extents[1 + len(self.batch) :]) * (2 * each.scalar.bytes) for each in self.partial]
        again = self.let("again", ir.total([*self.operands, *sums]))
        operands = self.cycles(again * self.blocks, self.row_bytes * self.length + again) // int(1 / BESIDE)

        def tables(rows: ir.Expression) -> ir.Expression:
            return ir.total([self.cycles(bytes, used * rows) for used, bytes in moved])

        sizes = [ir.product(self.rest(each)) * each.scalar.bytes for each in self.tables.values()]
        large = functools.reduce(operator.or_, [self.target.l2_bytes < size * self.extent for size in sizes])
        saved = tables(self.length) + operands < tables(self.extent)
        return (self.length < self.extent) & full & large & saved

    def uses(self) -> Iterator[tuple[ir.Expression, ir.Expression]]:
        """For each use of a table, the bytes a row that were used since it was used last, and those of the table."""
        bytes = {name: ir.product(self.rest(each)) * each.scalar.bytes for name, each in self.tables.items()}
        wide = {name for name, each in self.tables.items() if self.rest(each)}
        mentioned = [ir.mentioned((member.nest,))[1] & wide for member in self.chain.members]
        last: dict[str, int] = {}
        for number, names in enumerate(mentioned):
            for name in self.tables:
                if name in names:
                    between = set().union(*mentioned[last[name] : number + 1]) if name in last else wide
                    yield ir.total([bytes[each] for each in self.tables if each in between]), bytes[name]
                    last[name] = number

    def cycles(self, bytes: ir.Expression, held: ir.Expression) -> ir.Expression:
        """What it takes to read or write so many bytes of something that is so large, from the cache that holds it."""
        near, far, farthest = [bytes // int(rate) for rate in (L2_RATE, L3_RATE, MEMORY_RATE)]
        return ir.select(held <= self.target.l2_bytes, near, ir.select(held <= L3_BYTES, far, farthest))

    # Loops

    def loop(self, first: Sequence[ir.Nest], inside: Sequence[ir.Nest]) -> ir.Statement:
        """The parallel loop over pieces of each item of the batch, and the blocks of each."""
        task, block = self.variable("task"), self.variable("block")
        body = ir.unravelled(task, [*self.batch, ir.Axis(self.piece, self.pieces)])
        begin = self.piece * self.share
        starts = (
            ir.Let(self.start.name, (begin + block) * self.length),
            ir.Let(self.rows.name, ir.minimum(self.extent - self.start, self.length)),
        )
        own = [*self.parts.values(), *self.copied_rows]
        blocks = ir.minimum(self.blocks - begin, self.share)
        inner = ir.For(block.name, blocks, "sequential", (*starts, *map(ir.Allocate, own), *inside))
        count = ir.product([*[axis.extent for axis in self.batch], self.pieces])
        kind: ir.Kind = "parallel" if self.target.parallel else "sequential"
        return ir.For(task.name, count, kind, (*body, *first, inner))

    def axes(self, member: Member) -> tuple[ir.Axis, ...]:
        """The axes that a nest has in a block."""
        axes = [axis for axis in member.nest.axes if axis.variable.name not in member.batch]
        return tuple([replace(a, extent=self.rows) if a.variable.name in member.rows else a for a in axes])

    def own(self, member: Member) -> ir.Nest:
        """A nest over the rows of a block."""
        return self.given(self.moved(member, replace(member.nest, axes=self.axes(member))))

    def sums(self, member: Member) -> tuple[ir.Nest, ir.Nest, ir.Nest]:
        """The sums over rows: what they begin with in a piece, what a block adds to that, and the sum of pieces."""
        nest = member.nest
        loops = {loop.variable: self.planner.context.reductions[loop.variable] for loop in member.loops}
        extents = (self.pieces, *[axis.extent for axis in nest.axes])
        partial = [ir.Buffer(self.fresh("partial"), each.neutral.type, extents) for each in loops.values()]
        self.partial += partial
        indices = tuple([axis.variable for axis in nest.axes])
        zeros: list[ir.Statement] = []
        added: list[ir.Statement] = []
        totals: dict[str, ir.For] = {}
        for buffer, (variable, reduction) in zip(partial, loops.items(), strict=True):
            place = (self.piece, *indices)
            zeros.append(ir.Store(buffer, place, reduction.neutral))
            both = ir.Load(buffer, place), ir.Variable(reduction.name, buffer.scalar)
            added.append(ir.Store(buffer, place, ir.apply(reduction.primitive, *both)))
            number = self.variable("number")
            self.planner.context.reductions[number.name] = reduction
            combined = reduction.combined(ir.Load(buffer, (number, *indices)))
            totals[variable] = ir.For(number.name, self.pieces, "sequential", (combined,))
        body = [replace(s, extent=self.rows) if isinstance(s, ir.For) else s for s in nest.body]
        summed = ir.without_unused([*[each for each in body if not isinstance(each, ir.Store)], *added])
        plain = replace(nest, axes=self.axes(member), fills=())
        total = [totals[each.variable] if isinstance(each, ir.For) else each for each in nest.body]
        return (
            self.moved(member, replace(plain, body=tuple(zeros))),
            self.moved(member, replace(plain, body=summed)),
            self.given(replace(nest, body=ir.without_unused(total))),
        )

    # What nests read and write

    def moved(self, member: Member, nest: ir.Nest) -> ir.Nest:
        """A nest in a block: tables are those of the block, and rows of other arrays begin where it does."""
        names: dict[str, ir.Expression] = {name: self.start + ir.Variable(name) for name in member.rows}
        names |= {name: axis.variable for name, axis in zip(member.batch, self.batch, strict=False)}
        streamed: dict[str, ir.Expression] = {}

        def expression(e: ir.Expression) -> ir.Expression:
            e = ir.map_operands(e, expression)
            if not isinstance(e, ir.Load):
                return e
            if e.buffer.name in self.parts:
                return ir.Load(*self.in_part(e))
            copy = self.copied(e)
            if copy is None and e.buffer not in self.partial and all(self.counted(i) is None for i in e.indices):
                extents = [n for axis, n in enumerate(e.buffer.extents) if axis not in self.items_of(e)]
                streamed[e.buffer.name] = ir.product(extents) * e.buffer.scalar.bytes
            return e if copy is None else copy

        def store(s: ir.Store) -> ir.Store:
            if s.buffer.name not in self.parts:
                return s
            part, indices, guarded = self.in_part(s)
            return ir.Store(part, indices, s.value, guarded)

        body = ir.map_block(ir.substituted_in(nest.body, names), expression, store)
        self.operands += streamed.values()
        fills = tuple([self.parts.get(buffer.name, buffer) for buffer in nest.fills])
        return replace(nest, body=body, fills=fills, read={}, alone=None)

    def counted(self, index: ir.Expression) -> ir.Variable | None:
        """The variable that counts from the start of the block, where an index is nothing but its row."""
        match index:
            case ir.Apply(_, (_, ir.Variable() as row)) if index == self.start + row:
                return row
        return None

    def items_of(self, access: Access) -> list[int]:
        """The axes along which an access is at the item of the batch."""
        items = {axis.variable for axis in self.batch}
        return [axis for axis, index in enumerate(access.indices) if index in items]

    def within(self, access: Access, without: Collection[int]) -> tuple[tuple[ir.Expression, ...], tuple[int, ...]]:
        """The place of an access in a block, without some axes, and the axes along which that is guarded."""
        kept = [axis for axis in range(len(access.indices)) if axis not in without]
        indices = [access.indices[axis] for axis in kept]
        counted = [self.counted(index) for index in indices]
        indices = [index if row is None else row for index, row in zip(indices, counted, strict=True)]
        return tuple(indices), tuple([kept.index(axis) for axis in access.guarded])

    def in_part(self, access: Access) -> tuple[ir.Buffer, tuple[ir.Expression, ...], tuple[int, ...]]:
        """An access to a table, in the part that a block has of it."""
        name = access.buffer.name
        return self.parts[name], *self.within(access, self.chain.places[name][:-1])

    def copied(self, load: ir.Load) -> ir.Load | None:
        """A read of a block's copy of rows of an array that the chain does not write, if it is not read along them."""
        indices, items = load.indices, self.items_of(load)
        rows = [axis for axis, index in enumerate(indices) if self.counted(index) is not None]
        plain = all(axis in rows or isinstance(index, ir.Variable) for axis, index in enumerate(indices))
        if (
            load.buffer.name in self.written
            or len(rows) != 1
            or rows[0] == len(indices) - 1
            or load.guarded
            or not plain
        ):
            return None
        key = load.buffer.name, rows[0], tuple(items)
        if key not in self.copies:
            self.copies[key] = self.copy(
                load.buffer, rows[0], [indices[k] if k in items else None for k in range(len(indices))]
            )
        return ir.Load(self.copies[key].fills[0], self.within(load, items)[0])

    def copy(self, array: ir.Buffer, row: int, items: Sequence[ir.Expression | None]) -> ir.Nest:
        """The copy of a block's rows of an array, at the item of the batch."""
        axes = [ir.Axis(self.variable("p"), self.rows if axis == row else n) for axis, n in enumerate(array.extents)]
        read = [axis.variable if item is None else item for item, axis in zip(items, axes, strict=True)]
        read[row] = self.start + axes[row].variable
        own = [axis for item, axis in zip(items, axes, strict=True) if item is None]
        extents = [self.length if axis is axes[row] else axis.extent for axis in own]
        part = ir.Buffer(self.fresh("rows_of"), array.scalar, tuple(extents))
        store = ir.Store(part, tuple([axis.variable for axis in own]), ir.Load(array, tuple(read)))
        return ir.Nest(tuple(own), (store,), False, (part,))
