"""Contractions: matrix products in every guise as tiles of registers, from operands packed for the caches.

A nest that is a product (``factors.py``) is run on blocks: so many rows and columns at a time, whose sums stay in a
buffer of the thread, over so many steps of the inner loop, as the caches hold. For each the two operands are
*packed*: computed, once an element and with lanes, into buffers in the order in which the kernel reads them. The
kernel holds a tile of sums in registers, here 8 rows by two registers of lanes; a step of it is two loads, and eight
elements that are each spread over the lanes for two multiply-adds. After the last block of steps a tile is finished:
what the body does around its sum is done. ::

    c[i, j] = sum(k: a[i, k] * b[k, j])   =>   parallel task                 blocks of rows and columns, in each batch
                                                 for block of k
                                                   left[..] = a[..];  right[..] = b[..]
                                                   for panel of 16 columns, for panel of 8 rows
                                                     lanes l < 16 by 16
                                                       jam r < 8 by 8
                                                         var sum = 0 in the first block of k, else sums[r, l]
                                                         for k
                                                           sum = fma(left[r, k], right[k, l], sum)
                                                         sums[r, l] = sum
                                                     in the last block of k: for i of the tile, lanes j of the tile
                                                       c[i, j] = sums[i, j]

So an epilogue costs no further pass. Operands that are computed (``x[i, j] - mu[k, j]``) cost no more than ones that
are read, and transposed ones next to nothing: rows are packed in whichever order is contiguous, and columns that would
be read across lanes are copied before, once. Rows of arrays that are contiguous along the inner loop are read where
they are: the kernel takes their elements one by one, and eight rows are as many streams that the processor fetches
ahead of it. So 10^4 rows for 16 columns take half as long as with a copy of them.

That is why the kernel is our own, and not that of a library: a library reads arrays, so what is computed would have
to be stored first, and the epilogue would be another pass; and its sums would depend on the library.

A sum over several loops has their steps one after the other, as if they were one loop.

A sum is made in the order of the inner loop and of nothing else, as elsewhere, and sizes alone decide where blocks
begin. An operand that does not vary with the batch is packed once, for all tasks. Panels that stick out of
the product are filled with 0; what is computed there is not read.

What overlaps, as windows do, is packed when it is needed, panel by panel: all of it would be many times as large as
the array. Columns of several loops are those of one (``coalescing.py``) where that keeps packing and results in rows.

So columns should be the shorter side: 10^5 columns for 10 rows are a copy of a whole argument, where 10^5 rows are
packed block by block, in the cache. Which side is contiguous in the result says which one is the columns; where sizes
say that it costs less, the sides change places, and results are written across, in squares.

A nest that makes several sums is several products, of which all but the last are stored.

Where a test fails that a term depends on, as in the gradient of a convolution, one of its factors is packed as 0. That
is the same if the other factor is finite: so it is looked at before, and the nest runs as others do if it is not.

Small products run as other nests do: tiles are worth it when they are full enough to pay for the packing.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import replace

from ...core.primitive import lookup
from ...core.types import bool_
from .. import ir
from ..target import (
    CACHED_ELEMENTS,
    PRODUCT_ACROSS_COST,
    PRODUCT_L1_SHARE,
    PRODUCT_L2_SHARE,
    PRODUCT_PACKED_COST,
    PRODUCT_PADDING,
    PRODUCT_SUMS_SHARE,
    PRODUCT_TASK_COLUMN_PANELS,
    PRODUCT_TASK_ROW_PANELS,
    PRODUCT_TASKS,
    SQUARE_LEAST_BITS,
    STORED_COST,
    STRIP_REGISTERS,
    SURVEY_UNKNOWN_ITERATIONS,
    WIDE_STRIP_BINDINGS,
)
from . import nests
from .coalescing import coalesced
from .context import ZERO, zero
from .factors import Operand, Product, lies_in_rows, product_of, products_apart
from .nests import Built, Layouts, Plan, Roles, grain_of, pack
from .panels import Panels, Part, minus, offset, plus
from .survey import Survey, survey
from .tiles import at_most, share_of, tile_of, worth_of_tiles
from .triangles import Differences, Side, firsts, is_read, nonzero, stops


def build(nest: Plan) -> Built:
    """The nest as loops: in tiles where it is a product and they are worth it, else as any nest."""
    stored, parts = _parts(nest)
    last, _, whole = parts[-1]
    if whole is None:
        return nests.build(nest)
    built = nests.build(replace(nest, sides=whole.sides))
    tiled = [
        _in_tiles(plan, found, product, built.layouts if plan is last else {})
        for plan, found, product in parts
        if product is not None
    ]
    if len(tiled) < len(parts):
        return built
    before: ir.Block = ()
    worth: ir.Expression = ir.Constant(True, bool_)
    for each in tiled if nest.strip is None else ():
        looked, worth = each.finite(worth & each.worth())
        before += looked
    tiles = [*map(ir.Allocate, stored), *[s for each in tiled for s in each.either_way()]]
    block = (*before, *ir.branch(worth, tiles, built.statements))
    told = "; ".join([each.decision() for each in tiled]) if nest.strip is None else ""
    return Built(list(block), tiled[-1].layouts, told)


def _parts(nest: Plan) -> tuple[Sequence[ir.Buffer], list[tuple[Plan, Survey, Product | None]]]:
    """What all but the last of a nest's sums store, and a nest for each sum with the product that it is."""
    stored, last = products_apart(nest)
    plans = [*[plan for _, plan in stored], last]
    surveys = [survey(plan.body, plan.variables) for plan in plans]
    products = [_product(plan, found) for plan, found in zip(plans, surveys, strict=True)]
    return [buffer for buffer, _ in stored], list(zip(plans, surveys, products, strict=True))


def _in_tiles(nest: Plan, found: Survey, product: Product, layouts: Layouts) -> _Contraction:
    """A product in tiles; its columns are those of several loops where these are written and packed as one."""
    narrow = _Contraction(nest, found, _turned(product, found, layouts), layouts)
    names = narrow.column.free - narrow.row.free
    wide = None if narrow.bound_by_zeros or nest.strip is not None else coalesced(nest, names, layouts)
    if wide is None:
        return narrow
    found = survey(wide.nest.body, wide.nest.variables)
    again = _product(wide.nest, found)
    if again is None:
        return narrow
    made = _Contraction(wide.nest, found, _turned(again, found, wide.layouts), wide.layouts)
    packed = not wide.apart or (made.column.inner_first and made.in_squares(made.column))
    return made if packed else narrow


def worth(nest: Plan) -> ir.Expression:
    """Whether tiles are worth it for all products that a nest in a loop over blocks of rows is."""
    tests = [
        worth_of_tiles(nest.target, each.sum.type, each.row.along, each.column.along, each.sum.extent)
        for _, _, each in _parts(nest)[1]
        if each is not None
    ]
    return functools.reduce(operator.and_, tests, ir.Constant(True, bool_))


def sides(nest: Plan) -> frozenset[str]:
    """The variables of the loops over rows and columns, of a nest that is a product."""
    product = _product(nest, survey(nest.body, nest.variables))
    return frozenset() if product is None else product.sides


def roles_of(nest: Plan) -> Roles:
    """The roles that the loops of a nest will have."""
    found = survey(nest.body, nest.variables)
    contraction = _product(nest, found)
    if contraction is None:
        return nests.roles_of(nest)
    roles = nests.roles_of(replace(nest, sides=contraction.sides))
    return replace(roles, further=(*roles.further, contraction.sides))


def _product(nest: Plan, found: Survey) -> Product | None:
    """The product that a nest is, if tiles may be made of it."""
    allowed = nest.target.transformations
    if not (allowed.contract and allowed.vectorise and found.simple):
        return None
    product = product_of(nest, found, nest.loops)
    if product is None or product.sum.type.kind != "float":
        return None
    return None if nest.strip is not None and (product.row.masked or product.column.masked) else product


def _turned(product: Product, found: Survey, layouts: Layouts) -> Product:
    """The product with the loop as column along which results are contiguous."""

    def last(operand: Operand, other: Operand) -> int:
        names, count = operand.free - other.free, 0
        for store in found.stores:
            order = layouts.get(store.buffer.name, tuple(range(len(store.indices))))
            count += bool(order) and bool(store.varies[order[-1]] & names)
        return count

    if last(product.row, product.column) > last(product.column, product.row):
        return replace(product, row=product.column, column=product.row)
    return product


class _Contraction:
    """A product as loops over blocks."""

    def __init__(self, nest: Plan, found: Survey, product: Product, layouts: Layouts, across: bool = False) -> None:
        self.nest, self.found, self.product, self.sum = nest, found, product, product.sum
        self.layouts, self.stored_across = dict(layouts), across
        self.row, self.column, self.inner = product.row, product.column, product.sum.loops
        self.extent = product.sum.extent
        last = self.inner[-1].extent
        if isinstance(last, ir.Constant) and last.value < nest.target.lanes(product.sum.type) and len(self.inner) > 1:
            # What is contiguous is too short for lanes.
            self.row, self.column = (replace(side, inner_first=False) for side in (self.row, self.column))
        target, type = nest.target, product.sum.type
        self.lanes, size = target.lanes(type), type.bytes
        self.down, self.across = tile_of(target, type)
        panel, block = int(target.l1_bytes * PRODUCT_L1_SHARE), int(target.l2_bytes * PRODUCT_L2_SHARE)
        self.steps = at_most(panel // (self.across * size), self.down)  # a panel stays in L1,
        self.rows = at_most(block // (self.steps * size), self.down)  # a block of rows in L2
        self.columns = at_most(PRODUCT_SUMS_SHARE * target.l2_bytes // (self.rows * size), self.across)
        self.batch = [loop for loop in nest.loops if loop not in (self.row.along, self.column.along)]
        batch = {loop.variable.name for loop in self.batch}
        self.threaded = nest.parallel and nest.target.parallel
        strip = nest.strip is not None
        self.shared = (nest.parallel or self.repeated(self.column)) and not self.column.free & batch
        self.shared &= not self.overlapping(self.column)
        self.shared_rows = ((nest.parallel and bool(batch)) or self.repeated(self.row)) and not self.row.free & batch
        self.in_rows, self.in_columns = self.bounds(self.row), self.bounds(self.column)
        self.unpacked = not self.in_columns and lies_in_rows(self.row, found, self.inner)
        self.shared_rows &= not self.unpacked
        self.alone = (self.threaded or strip) and not self.shared  # a panel of columns is packed when it is needed
        rows: tuple[int | ir.Expression, ...] = (self.rows // self.down, self.steps)
        if self.shared_rows:
            rows = (ir.ceil_divide(self.row.along.extent, self.down), self.extent)
        rows = (rows[0], self.down, rows[1] + PRODUCT_PADDING) if self.row.inner_first else (*rows, self.down)
        blocks = (1 if self.alone else self.columns // self.across, self.steps, self.across)
        whole = (ir.ceil_divide(self.column.along.extent, self.across), self.extent, self.across)
        columns = replace(self.column, inner_first=False)  # their lanes are columns, whatever is contiguous
        self.left = self.panels("left", self.row, rows, self.down, bool(self.in_columns))
        self.right = self.panels("right", columns, whole if self.shared else blocks, self.across, bool(self.in_rows))
        self.sums = self.buffer("sums", (self.rows, self.columns + PRODUCT_PADDING))

    def repeated(self, operand: Operand) -> bool:
        """Whether an operand is the same for all blocks of rows, so that it is packed once, before."""
        strip = self.nest.strip
        return strip is not None and strip.varying.isdisjoint(self.used(operand))

    def used(self, operand: Operand) -> set[str]:
        """The names of the loops that an operand varies with, and of the arrays that it reads."""
        return {*operand.free, *[load.buffer.name for load in operand.loads]}

    @property
    def packed_before(self) -> bool:
        """Whether columns are the same in each turn of the loop around, before which they are packed then."""
        changing, own = self.nest.changing, {*self.nest.variables, *[loop.variable for loop in self.inner]}
        return changing is not None and changing.isdisjoint(self.used(self.column) - own)

    def buffer(self, stem: str, extents: Sequence[int | ir.Expression]) -> ir.Buffer:
        """A buffer with extents that are known, but for one that all threads share."""
        known = [ir.Constant(extent) if isinstance(extent, int) else extent for extent in extents]
        return ir.Buffer(self.nest.fresh(stem), self.sum.type, tuple(known))

    def bounds(self, operand: Operand) -> Differences:
        """Where an operand is not 0, along the inner loop."""
        found = nonzero(operand.value, operand.lets, self.nest.nonzero) if len(self.inner) == 1 else {}
        pair = {operand.along.variable.name, self.inner[0].variable}
        return {variables: least for variables, least in found.items() if set(variables) == pair}

    def panels(
        self, stem: str, operand: Operand, extents: Sequence[int | ir.Expression], width: int, noted: bool
    ) -> Panels:
        """An operand in panels of a width; ``noted`` if it is to be known whether they are finite."""
        buffer, fresh = self.buffer(stem, extents), self.nest.fresh
        infinite = ir.Buffer(fresh(f"{stem}_infinite"), bool_, buffer.extents[:1]) if noted else None
        return Panels(operand, buffer, infinite, width, self.inner, self.lanes, fresh)

    def overlapping(self, operand: Operand) -> bool:
        """Whether what is packed of an operand has elements of an array more than once, as windows do."""
        own = operand.free & {*self.nest.variables, *[loop.variable for loop in self.inner]}
        read = {(load.buffer, load.indices) for load in operand.loads}
        accesses = [access for access in self.found.loads if (access.buffer, access.indices) in read]
        return any(len(varies & own) > 1 for access in accesses for varies in access.varies)

    @property
    def bound_by_zeros(self) -> bool:
        """Whether tiles are left out, or steps of them, since a factor is 0 there or nobody reads them."""
        return bool(self.in_rows or self.in_columns or self.nest.needed)

    def decision(self) -> str:
        """What is done, to be read by people."""
        batch = "".join([f"{loop.variable.name}, " for loop in self.batch])
        names = f"{self.row.along.variable.name}, {self.column.along.variable.name}"
        how = f"tiles of {self.down} x {self.across}, {'columns ' if self.unpacked else ''}packed"
        if self.bound_by_zeros:
            how += ", bounded by a triangle"
        over = ", ".join([loop.variable for loop in self.inner])
        return f"product over {over} for {batch}{names}: {how}, where sizes are worth it"

    def worth(self) -> ir.Expression:
        """Whether tiles are worth it."""
        return worth_of_tiles(self.nest.target, self.sum.type, self.row.along, self.column.along, self.extent)

    def finite(self, worth: ir.Expression) -> tuple[ir.Block, ir.Expression]:
        """Whether tiles are worth it, and what must be finite is: factors of others that are 0 where a test fails."""
        whole = [other for one, other in ((self.row, self.column), (self.column, self.row)) if one.masked]
        if not whole:
            return (), worth
        tiles = ir.Variable(self.nest.fresh("tiles"), bool_)
        looked = [statement for operand in whole for statement in self.looked_at(operand, tiles.name)]
        return (ir.Declare(tiles.name, worth), ir.If(tiles, tuple(looked), ())), tiles

    def looked_at(self, operand: Operand, tiles: str) -> ir.Block:
        """All elements of an operand: none makes tiles worth it that is not finite."""
        axes = [ir.Axis(ir.Variable(loop.variable), loop.extent) for loop in self.inner]
        axes = [operand.along, *axes] if operand.inner_first else [*axes, operand.along]
        *around, last = [axis for axis in (*self.batch, *axes) if axis.variable.name in operand.free]
        type = operand.value.type
        nothing = ir.apply("equal", operand.value - operand.value, ir.Constant(zero(type), type))
        all_of_them = ir.Reduction(tiles, lookup("logical_and"), ir.Constant(True, bool_))
        element: ir.Block = (*operand.lets, all_of_them.combined(nothing))
        strip = STRIP_REGISTERS * self.lanes
        loop = ir.For(last.variable.name, last.extent, "lanes", element, strip, reductions=(all_of_them,))
        return self.with_own_names(ir.nested(around, (loop,)))

    def either_way(self) -> ir.Block:
        """All of it, with the longer side as rows where that is worth writing the results across.

        Columns are packed whole, before all tasks, or even before a loop around; rows by the task that needs them, in
        the cache.
        """
        rows, columns = self.row.along.extent, self.column.along.extent
        if not self.shared or self.batch or self.nest.strip is not None or self.packed_before or rows == columns:
            return self.statements()
        turned = replace(self.product, row=self.product.column, column=self.product.row)
        other = _Contraction(self.nest, self.found, turned, self.layouts, across=True)
        fits = columns * self.extent <= CACHED_ELEMENTS
        saved = (columns - rows) * self.extent * ir.select(fits, PRODUCT_PACKED_COST, STORED_COST)
        worth = other.worth() & (rows * columns * PRODUCT_ACROSS_COST <= saved)
        return ir.branch(worth, other.statements(), self.statements())

    def statements(self) -> ir.Block:
        """All of it."""
        return (*self.turned(), *self.packed_once(), *self.products())

    def products(self) -> ir.Block:
        """All of it but what is done before."""
        if self.nest.strip is not None:
            return self.with_own_names(ir.nested(self.batch, tuple(self.whole())))
        tasks = self.with_own_names(self.by_tasks())
        if len(self.batch) != 1 or not self.threaded or not self.nest.target.transformations.fuse_loops:
            return tasks
        [loop] = self.batch
        return ir.branch(loop.extent >= PRODUCT_TASKS, self.with_own_names([self.by_batch(loop)]), tasks)

    def with_own_names(self, statements: Sequence[ir.Statement]) -> ir.Block:
        """One of several ways, whose buffers have names of their own."""
        return ir.with_own_buffers(tuple(statements), lambda name: self.nest.fresh(name.rstrip("0123456789")))

    def by_batch(self, loop: ir.Axis) -> ir.For:
        """A parallel loop over the batch: a thread computes a whole product of it at a time."""
        grain = self.grain(self.row.along.extent, self.column.along.extent)
        return ir.For(loop.variable.name, loop.extent, "parallel", tuple(self.whole()), grain=grain)

    def whole(self) -> list[ir.Statement]:
        """A whole product, block by block."""
        row, column = self.variable("block"), self.variable("block")
        rows, inner = self.part("row", row, self.row.along.extent, ir.Constant(self.rows))
        columns, body = self.part("column", column, self.column.along.extent, ir.Constant(self.columns))
        body.append(self.all_steps(rows, columns))
        across = ir.ceil_divide(self.column.along.extent, self.columns)
        inner.append(ir.For(column.name, across, "sequential", tuple(body)))
        down = ir.ceil_divide(self.row.along.extent, self.rows)
        return [*self.own(), ir.For(row.name, down, "sequential", tuple(inner))]

    def by_tasks(self) -> list[ir.Statement]:
        """A loop over the batch and blocks of rows and of columns, which is parallel if it may be.

        What a task packs is cut first, its columns where these are not shared: to cut the other packs it again.
        """
        rows, columns = self.row.along.extent, self.column.along.extent
        each, down, wide, across = (self.variable(stem) for stem in ("each", "down", "wide", "across"))
        batch = ir.product([loop.extent for loop in self.batch])
        wanted = ir.ceil_divide(ir.Constant(PRODUCT_TASKS), ir.maximum(batch, 1))
        sides = [
            (rows, each, down, self.down, PRODUCT_TASK_ROW_PANELS, self.rows),
            (columns, wide, across, self.across, PRODUCT_TASK_COLUMN_PANELS, self.columns),
        ]
        before: list[ir.Statement] = []
        for extent, length, pieces, unit, least, most in reversed(sides) if self.alone else sides:
            before.append(ir.Let(length.name, share_of(extent, wanted, unit, least, most)))
            before.append(ir.Let(pieces.name, ir.ceil_divide(extent, length)))
            wanted = ir.maximum(wanted // pieces, 1)
        task, row, column = self.variable("task"), self.variable("block"), self.variable("block")
        body = [*self.places(task, (row, down), (column, across)), *self.task((row, each), (column, wide))]
        count = ir.product([*[loop.extent for loop in self.batch], down, across])
        if not self.threaded:
            return [*before, ir.For(task.name, count, "sequential", tuple(body))]
        return [*before, ir.For(task.name, count, "parallel", tuple(body), grain=self.grain(each, wide))]

    def grain(self, rows: ir.Expression, columns: ir.Expression) -> ir.Expression:
        """How many tasks of so many rows and columns are worth a thread's attention."""
        # A step of a row reads an element, and multiplies and adds without memory, as many columns at a time as lanes.
        strips = columns // self.lanes
        work = strips + int(self.found.work / SURVEY_UNKNOWN_ITERATIONS)
        return grain_of(1.0, [work, self.extent, rows])

    def turned(self) -> list[ir.Statement]:
        """Copies of what columns would read across lanes, which they read from now on."""
        packing = pack(self.nest, self.found, self.column.along.variable.name)
        *lets, last = ir.read_packed((*self.column.lets, ir.Let("", self.column.value)), packing.replacements)
        assert isinstance(last, ir.Let)
        lets_of = tuple([let for let in lets if isinstance(let, ir.Let)])
        operand = replace(self.right.operand, lets=lets_of, value=last.value)
        squares = self.column.inner_first and not packing.replacements and self.in_squares(operand)
        self.right = replace(self.right, operand=operand, squares=squares)
        return packing.statements

    def in_squares(self, operand: Operand) -> bool:
        """Whether what columns read across lanes may be transposed in registers."""
        plain = all(not load.guarded and load.buffer.scalar == self.sum.type for load in operand.loads)
        few = len(operand.lets) <= WIDE_STRIP_BINDINGS and self.sum.type.bits >= SQUARE_LEAST_BITS
        return plain and few and self.right.infinite is None and self.nest.target.transformations.jam

    def places(self, task: ir.Variable, *blocks: tuple[ir.Variable, ir.Expression]) -> list[ir.Let]:
        """The variables of the batch, and which blocks of rows and columns these are."""
        return ir.unravelled(task, [*self.batch, *[ir.Axis(*block) for block in blocks]])

    def task(
        self, row: tuple[ir.Variable, ir.Expression], column: tuple[ir.Variable, ir.Expression]
    ) -> list[ir.Statement]:
        """What a thread does at a time: a block of rows and one of columns, by their numbers and lengths."""
        rows, made = self.part("row", row[0], self.row.along.extent, row[1])
        columns, more = self.part("column", column[0], self.column.along.extent, column[1])
        return [*made, *more, *self.own(), self.all_steps(rows, columns)]

    def own(self) -> list[ir.Statement]:
        """The buffers of a thread."""
        own = [] if self.shared_rows or self.unpacked else self.left.buffers
        own += [] if self.shared else self.right.buffers
        return [ir.Allocate(buffer) for buffer in (*own, self.sums)]

    def part(
        self, stem: str, block: ir.Expression, extent: ir.Expression, most: ir.Expression
    ) -> tuple[Part, list[ir.Statement]]:
        """A block of a loop, all of which but the last have the same length."""
        start, length = self.variable(stem), self.variable(stem + "s")
        left = ir.minimum(extent - start, most)
        return Part(start, length), [ir.Let(start.name, block * most), ir.Let(length.name, left)]

    def all_steps(self, rows: Part, columns: Part) -> ir.Statement:
        """The inner loops, block by block."""
        number = self.variable("block")
        steps, body = self.part("step", number, self.extent, ir.Constant(self.steps))
        if not self.shared_rows and not self.unpacked:
            body.append(self.left.pack(rows, steps))
        if not self.shared and not self.alone:
            body.append(self.right.pack(columns, steps))
        body.append(self.kernels(rows, columns, steps, number))
        return ir.For(number.name, ir.ceil_divide(self.extent, self.steps), "sequential", tuple(body))

    def packed_once(self) -> list[ir.Statement]:
        """The operands that do not vary with the batch, whole, for all tasks."""
        once = [each for each, is_shared in ((self.left, self.shared_rows), (self.right, self.shared)) if is_shared]
        allocated = [ir.Allocate(buffer) for each in once for buffer in each.buffers]
        packed = [each.pack(Part(ZERO, each.operand.along.extent), Part(ZERO, self.extent)) for each in once]
        if self.threaded:
            grain = grain_of(self.found.work, [ir.Constant(self.across), self.extent])
            packed = [replace(loop, kind="parallel", grain=grain) for loop in packed]
        return [*allocated, *packed]

    # The kernel

    def kernels(self, rows: Part, columns: Part, steps: Part, number: ir.Variable) -> ir.Statement:
        """The steps of a block, tile by tile; sums begin with 0, and go on with what the block before has stored.

        After the last block a tile is finished at once. Its sums are put where those of the first tile were, which
        nobody needs any more: with one block all tiles have their sums in the same few cache lines.
        """
        down, across = self.variable("down"), self.variable("across")
        r, lane, step = self.variable("r"), self.variable("lane"), self.variable("k")
        total = ir.Variable(self.nest.fresh("sum"), self.sum.type)
        packed: ir.Block = ()
        panel: ir.Expression = across
        if self.alone:
            panel = ZERO
            packed = self.right.side_by_side(columns, steps, across, panel)
        if self.shared:
            panel = columns.start // self.across + across
        upper = rows.start // self.down + down if self.shared_rows else down
        bounds, first, count = self.bounded(rows, columns, steps, (down, upper), (across, panel))
        k: ir.Expression = step if first == ZERO else first + step
        at = plus(steps.start, k) if self.shared_rows or self.unpacked else k
        in_row, in_step, a = self.element_of_row(rows, upper, r, at)
        b = ir.Load(self.right.buffer, (panel, plus(steps.start, k) if self.shared else k, lane))
        if self.sum.fused or (self.sum.tests and self.nest.target.multiply_add):
            more: ir.Expression = ir.MultiplyAdd(a, b, total, total.type)
        else:
            more = total + a * b
        last = ir.equal(plus(steps.start, steps.length), self.extent)
        row, column = self.variable("row"), self.variable("column")
        written = ir.Let(row.name, ir.select(last, 0, down)), ir.Let(column.name, ir.select(last, 0, across))
        before = ir.Load(self.sums, self.in_tile(down, across, r, lane))
        body: ir.Block = (
            ir.Declare(total.name, ir.Constant(zero(total.type), total.type)),
            ir.If(number > 0, (ir.Assign(total.name, before),), ()),
            *in_row,
            ir.For(step.name, count, "sequential", (*in_step, ir.Assign(total.name, more))),
            ir.Store(self.sums, self.in_tile(row, column, r, lane), total),
        )
        body = (ir.For(r.name, ir.Constant(self.down), "jam", body, self.down),)
        finished = ir.If(last, self.finished(rows, columns, down, across), ())
        body = (*bounds, *written, ir.For(lane.name, ir.Constant(self.across), "lanes", body, self.across), finished)
        body = (*packed, ir.For(down.name, ir.ceil_divide(rows.length, self.down), "sequential", body))
        return ir.For(across.name, ir.ceil_divide(columns.length, self.across), "sequential", body)

    def bounded(
        self,
        rows: Part,
        columns: Part,
        steps: Part,
        down: tuple[ir.Variable, ir.Expression],
        across: tuple[ir.Variable, ir.Expression],
    ) -> tuple[list[ir.Let], ir.Expression, ir.Expression]:
        """The first step of a tile and how many there are, with what these are computed from.

        A tile has a number in its block, down and across, and its panels one in what is packed.
        """
        inner, end = self.inner[0].variable, plus(steps.start, steps.length)
        row = Side(self.row.along.variable.name, offset(down[0], self.down, rows.start), self.down)
        column = Side(self.column.along.variable.name, offset(across[0], self.across, columns.start), self.across)
        begin, stop = steps.start, end
        for facts, side, other in (
            (self.in_rows, row, (self.right.infinite, across[1])),
            (self.in_columns, column, (self.left.infinite, down[1])),
        ):
            panels, number = other
            if panels is None:
                continue
            all_of_them = ir.Load(panels, (number,))
            for last in stops(facts, side, inner):
                stop = ir.minimum(stop, ir.select(all_of_them, end, last))
            for step in firsts(facts, side, inner):
                begin = ir.maximum(begin, ir.select(all_of_them, steps.start, step))
        read = is_read(self.nest.needed, row, column)
        if (begin, stop, read) == (steps.start, end, ir.Constant(True, bool_)):
            return [], ZERO, steps.length
        lets: list[ir.Let] = []
        first: ir.Expression = ZERO
        if begin != steps.start:
            lets = [ir.Let(self.nest.fresh("first"), minus(begin, steps.start))]
            first = ir.Variable(lets[0].name)
        count: ir.Expression = ir.maximum(minus(stop, begin), 0)
        if read != ir.Constant(True, bool_):
            count = ir.select(read, count, 0)
        lets.append(ir.Let(self.nest.fresh("count"), count))
        return lets, first, ir.Variable(lets[-1].name)

    def element_of_row(
        self, rows: Part, panel: ir.Expression, r: ir.Expression, step: ir.Expression
    ) -> tuple[Sequence[ir.Let], Sequence[ir.Let], ir.Expression]:
        """An element of a row of a panel, with what is computed for the row, and for the step.

        What is not packed sticks out by reading the last row again.
        """
        if not self.unpacked:
            return [], [], ir.Load(self.left.buffer, self.left.place(panel, step, r))
        row, (steady, moving) = self.row.along, ir.apart(self.row.lets, {loop.variable for loop in self.inner})
        place = ir.minimum(plus(rows.start, offset(panel, self.down, r)), row.extent - 1)
        in_step = [ir.Let(self.inner[-1].variable, step), *moving]
        return [ir.Let(row.variable.name, place), *steady], in_step, self.row.value

    def in_tile(
        self, down: ir.Expression, across: ir.Expression, r: ir.Expression, lane: ir.Expression
    ) -> tuple[ir.Expression, ir.Expression]:
        """Where a sum of a tile is."""
        return offset(down, self.down, r), offset(across, self.across, lane)

    def finished(self, rows: Part, columns: Part, down: ir.Variable, across: ir.Variable) -> ir.Block:
        """What the nest does with the sums of a tile, which are where those of the first were."""
        (i, start), (j, more) = self.panel(rows, down, self.down), self.panel(columns, across, self.across)
        r, lane = self.variable("r"), self.variable("lane")
        made: list[ir.Statement] = [
            ir.Let(self.row.along.variable.name, plus(i.start, r)),
            ir.Let(self.column.along.variable.name, plus(j.start, lane)),
        ]
        for statement in self.nest.body:
            if statement is self.sum.start:
                made.append(ir.Declare(self.sum.start.name, ir.Load(self.sums, (r, lane))))
            elif not isinstance(statement, ir.For):
                made.append(statement)
        if self.stored_across:  # in squares, which are transposed in registers
            square = ir.For(lane.name, j.length, "jam", tuple(made), self.lanes)
            return (*start, *more, ir.For(r.name, i.length, "lanes", (square,), self.lanes))
        body: ir.Block = (ir.For(lane.name, j.length, "lanes", tuple(made), self.across),)
        return (*start, *more, ir.For(r.name, i.length, "sequential", body))

    def panel(self, whole: Part, number: ir.Variable, width: int) -> tuple[Part, list[ir.Let]]:
        """A panel of a part of a loop."""
        start, length = self.variable("start"), self.variable("length")
        first = number * width
        lets = [ir.Let(start.name, plus(whole.start, first))]
        return Part(start, length), [*lets, ir.Let(length.name, ir.minimum(whole.length - first, width))]

    def variable(self, stem: str) -> ir.Variable:
        return ir.Variable(self.nest.fresh(stem))
