"""Matrix products where threads come in groups: a group computes a tile of the result from tiles of both operands.

A nest is a product when its body is one sum, over one inner loop, of a product of two scalars: one that varies with
the inner loop and a *row* loop of the nest, one that varies with the inner loop and a *column* loop; what both vary
with, or neither, are further loops (a batch). The operands need not be plain reads. ::

    c[i, j] = sum(k: a[i, k] * b[k, j])   =>   parallel tile_row, parallel tile_column
                                                 shared left[16, 64], right[16, 64]
                                                 lanes lane < 256 by 256
                                                   for step < l / 16
                                                     left[..] = a[..];  right[..] = b[..]
                                                     barrier
                                                     for inner < 16
                                                       sum_0_0 = fma(left[..], right[..], sum_0_0)  ...
                                                     barrier
                                                   c[..] = sum_0_0  ...

A thread has ``GROUP_TILE_PLACES`` places of the tile along either side, as far apart as there are threads along that
side, so that neighbours read and write neighbours. Operands are loaded along the loop in which they are contiguous;
outside of the loops they are 0, and there nothing is stored. Each sum is made in the order of the inner loop and of
nothing else (0 times 0 added at its end changes no sum that began with 0), so it is that of the plain grid, bit for
bit. What the body does with its sum is done for each place.

Tiles are worth it when they are at least half full along both sides, and the inner loop fills one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import ir
from ..target import GROUP_TILE_PLACES, GROUP_TILE_STATEMENTS, GROUP_TILE_STEPS
from .context import zero
from .factors import Product, product_of
from .nests import Plan
from .survey import Survey


@dataclass(frozen=True)
class Tiled:
    """A product as loops over tiles and what a group does for each, and when that is better than a plain grid."""

    when: ir.Expression
    loops: list[ir.Axis]
    body: ir.Block


def tiles(nest: Plan, found: Survey, loops: Sequence[ir.Axis]) -> Tiled | None:
    """The nest over tiles, if it is a matrix product; ``loops`` are its loops, the last the fastest to move."""
    product = product_of(nest, found, loops)
    if product is None or product.sum.tests or len(product.sum.loops) > 1:
        return None
    if sum(1 for s in ir.walk(nest.body)) - sum(1 for s in ir.walk(product.sum.loops)) > GROUP_TILE_STATEMENTS:
        return None
    group, size = nest.target.group, product.sum.type.bytes
    down = 1 << ((group.bit_length() - 1) // 2)
    sides = (down * GROUP_TILE_PLACES, group // down * GROUP_TILE_PLACES)
    for steps in GROUP_TILE_STEPS:
        loads = [side * steps % group == 0 for side in sides]
        if all(loads) and steps * (sum(sides) + len(sides)) * size <= nest.target.shared_bytes:
            return _Tile(nest, product, down, sides, steps).tiled(loops)
    return None


# The loops


class _Tile:
    """What a group does: its threads stand in rows, of which there are ``down``."""

    def __init__(self, nest: Plan, product: Product, down: int, sides: tuple[int, int], steps: int) -> None:
        self.nest, self.sum, self.down, self.sides, self.steps = nest, product.sum, down, sides, steps
        self.operands, [self.loop] = (product.row, product.column), product.sum.loops
        self.group = nest.target.group
        fresh = nest.fresh
        # Rows of odd length: elements side by side are in other banks along both axes
        self.tiles = [
            ir.Buffer(fresh(name), product.sum.type, (ir.Constant(steps), ir.Constant(side + 1)))
            for name, side in zip(("left", "right"), sides, strict=True)
        ]
        self.numbers = [_variable(fresh("tile_row")), _variable(fresh("tile_column"))]
        self.lane, self.own = _variable(fresh("lane")), [_variable(fresh("down")), _variable(fresh("across"))]
        self.origins = [_variable(fresh("row")), _variable(fresh("column"))]
        self.start = _variable(fresh("start"))
        self.sums = {
            (r, c): ir.Variable(fresh(f"{product.sum.start.name}_{r}_{c}_"), product.sum.type)
            for r in range(GROUP_TILE_PLACES)
            for c in range(GROUP_TILE_PLACES)
        }

    def tiled(self, loops: Sequence[ir.Axis]) -> Tiled:
        batch = [loop for loop in loops if all(loop is not operand.along for operand in self.operands)]
        when: ir.Expression = self.steps <= self.loop.extent
        over = []
        for operand, side, number in zip(self.operands, self.sides, self.numbers, strict=True):
            extent = operand.along.extent
            when = when & (side // 2 <= extent)
            over.append(ir.Axis(number, ir.ceil_divide(extent, side)))
        lanes = ir.For(self.lane.name, ir.Constant(self.group), "lanes", self.work(), self.group)
        return Tiled(when, [*batch, *over], (*[ir.Allocate(tile, True) for tile in self.tiles], lanes))

    def work(self) -> ir.Block:
        """What a thread does."""
        columns = ir.Constant(self.group // self.down)
        made: list[ir.Statement] = [
            ir.Let(self.own[0].name, self.lane // columns),
            ir.Let(self.own[1].name, self.lane % columns),
        ]
        for origin, number, side in zip(self.origins, self.numbers, self.sides, strict=True):
            made.append(ir.Let(origin.name, number * side))
        made += [ir.Declare(total.name, self.sum.start.initial) for total in self.sums.values()]
        step = _variable(self.nest.fresh("step"))
        body: list[ir.Statement] = [ir.Let(self.start.name, step * self.steps)]
        body += [self.load(0), self.load(1), ir.Barrier(), self.multiply(), ir.Barrier()]
        made.append(ir.For(step.name, ir.ceil_divide(self.loop.extent, self.steps), "sequential", tuple(body)))
        made += [self.finish(r, c) for r, c in self.sums]
        return tuple(made)

    def load(self, number: int) -> ir.Statement:
        """The part of an operand that the next steps need, brought to shared memory by all threads together."""
        operand, tile, side = self.operands[number], self.tiles[number], self.sides[number]
        part, element = _variable(self.nest.fresh("part")), _variable(self.nest.fresh("element"))
        place, inner = _variable(self.nest.fresh("place")), _variable(self.nest.fresh("inner"))
        fast, slow, length = (inner, place, self.steps) if operand.inner_first else (place, inner, side)
        along, k = operand.along.variable, ir.Variable(self.loop.variable)
        at = self.origins[number] + place, self.start + inner
        inside = (at[0] < operand.along.extent) & (at[1] < self.loop.extent)
        store = ir.Store(tile, (inner, place), operand.value)
        value: ir.Block = (ir.Let(along.name, at[0]), ir.Let(k.name, at[1]), *operand.lets, store)
        nothing = ir.Constant(zero(tile.scalar), tile.scalar)
        body: ir.Block = (
            ir.Let(element.name, part * self.group + self.lane),
            ir.Let(fast.name, element % length),
            ir.Let(slow.name, element // length),
            ir.If(inside, value, (ir.Store(tile, (inner, place), nothing),)),
        )
        return ir.For(part.name, ir.Constant(side * self.steps // self.group), "sequential", body)

    def multiply(self) -> ir.Statement:
        """All sums of a thread, over the steps that are loaded."""
        inner = _variable(self.nest.fresh("inner"))
        values: list[list[ir.Variable]] = []
        made: list[ir.Statement] = []
        for number, (tile, name) in enumerate(zip(self.tiles, ("a", "b"), strict=True)):
            values.append([ir.Variable(self.nest.fresh(name), tile.scalar) for _ in range(GROUP_TILE_PLACES)])
            for k, value in enumerate(values[-1]):
                made.append(ir.Let(value.name, ir.Load(tile, (inner, self.place(number, k)))))
        for (r, c), total in self.sums.items():
            a, b = values[0][r], values[1][c]
            if self.sum.fused:
                made.append(ir.Assign(total.name, ir.MultiplyAdd(a, b, total, total.type)))
            else:
                made.append(ir.Assign(total.name, total + a * b))
        return ir.For(inner.name, ir.Constant(self.steps), "sequential", tuple(made))

    def place(self, number: int, k: int) -> ir.Expression:
        """Where one of a thread's places is in the tile, along a side."""
        apart = (self.down, self.group // self.down)[number]
        return self.own[number] + k * apart if k else self.own[number]

    def finish(self, r: int, c: int) -> ir.Statement:
        """What the nest does with one of the sums, inside of its loops."""
        at = [self.origins[n] + self.place(n, k) for n, k in enumerate((r, c))]
        fits = [place < operand.along.extent for place, operand in zip(at, self.operands, strict=True)]
        made: list[ir.Statement] = [
            ir.Let(operand.along.variable.name, place) for place, operand in zip(at, self.operands, strict=True)
        ]
        for statement in self.nest.body:
            if statement is self.sum.start:
                made.append(ir.Declare(self.sum.start.name, self.sums[r, c]))
            elif statement is not self.loop:
                made.append(statement)
        return ir.If(fits[0] & fits[1], tuple(made), ())


def _variable(name: str) -> ir.Variable:
    return ir.Variable(name)
