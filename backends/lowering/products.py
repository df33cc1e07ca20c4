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

A thread has ``EACH`` x ``EACH`` places of the tile, as far apart as there are threads along a side, so that
neighbours read and write neighbours. Operands are loaded along the loop in which they are contiguous; outside of the
loops they are 0, and there nothing is stored. Each sum is made in the order of the inner loop and of nothing else (0
times 0 added at its end changes no sum that began with 0), so it is that of the plain grid, bit for bit. What the
body does with its sum is done for each place.

Tiles are worth it when they are at least half full along both sides, and the inner loop fills one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.types import i64
from ..loops import (
    Allocate,
    Assign,
    Barrier,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Let,
    Load,
    MultiplyAdd,
    Statement,
    Store,
    Variable,
    walk,
)
from .arithmetic import both, folded
from .context import zero
from .factors import Product, product_of
from .nests import Loop, Nest
from .survey import Survey

# A thread has so many places of a tile along either side.
EACH = 4
# Steps of the inner loop for which operands are loaded at a time: the most that memory holds.
STEPS = (16, 8)
# The most statements around a sum that are worth repeating for each place of a thread.
AROUND = 40


@dataclass(frozen=True)
class Tiled:
    """A product as loops over tiles and what a group does for each, and when that is better than a plain grid."""

    when: Expression
    loops: list[Loop]
    body: Block


def tiles(nest: Nest, found: Survey, loops: Sequence[Loop]) -> Tiled | None:
    """The nest over tiles, if it is a matrix product; ``loops`` are its loops, the last the fastest to move."""
    product = product_of(nest, found, loops)
    if product is None or len(product.sum.loops) > 1:
        return None
    if sum(1 for s in walk(nest.body)) - sum(1 for s in walk(product.sum.loops)) > AROUND:
        return None
    group, size = nest.target.group, product.sum.type.bits // 8
    down = 1 << ((group.bit_length() - 1) // 2)
    sides = (down * EACH, group // down * EACH)
    for steps in STEPS:
        loads = [side * steps % group == 0 for side in sides]
        if all(loads) and steps * (sum(sides) + len(sides)) * size <= nest.target.shared_bytes:
            return _Tile(nest, product, down, sides, steps).tiled(loops)
    return None


# The loops


class _Tile:
    """What a group does: its threads stand in rows, of which there are ``down``."""

    def __init__(self, nest: Nest, product: Product, down: int, sides: tuple[int, int], steps: int) -> None:
        self.nest, self.sum, self.down, self.sides, self.steps = nest, product.sum, down, sides, steps
        self.operands, [self.loop] = (product.row, product.column), product.sum.loops
        self.group = nest.target.group
        fresh = nest.fresh
        self.tiles = [
            Buffer(fresh(name), product.sum.type, (_whole(steps), _whole(side + 1)))  # odd: along both, other banks
            for name, side in zip(("left", "right"), sides, strict=True)
        ]
        self.numbers = [_variable(fresh("tile_row")), _variable(fresh("tile_column"))]
        self.lane, self.own = _variable(fresh("lane")), [_variable(fresh("down")), _variable(fresh("across"))]
        self.origins = [_variable(fresh("row")), _variable(fresh("column"))]
        self.start = _variable(fresh("start"))
        self.sums = {
            (r, c): Variable(fresh(f"{product.sum.start.name}_{r}_{c}_"), product.sum.type)
            for r in range(EACH)
            for c in range(EACH)
        }

    def tiled(self, loops: Sequence[Loop]) -> Tiled:
        batch = [loop for loop in loops if all(loop is not operand.along for operand in self.operands)]
        when: Expression = folded("less_equal", _whole(self.steps), self.loop.extent)
        over = []
        for operand, side, number in zip(self.operands, self.sides, self.numbers, strict=True):
            extent = operand.along.extent
            when = both(when, folded("less_equal", _whole(side // 2), extent))
            over.append(Loop(number, _pieces(extent, side)))
        lanes = For(self.lane.name, _whole(self.group), "lanes", self.work(), self.group)
        return Tiled(when, [*batch, *over], (*[Allocate(tile, True) for tile in self.tiles], lanes))

    def work(self) -> Block:
        """What a thread does."""
        columns = _whole(self.group // self.down)
        made: list[Statement] = [
            Let(self.own[0].name, folded("floor_divide", self.lane, columns)),
            Let(self.own[1].name, folded("remainder", self.lane, columns)),
        ]
        for origin, number, side in zip(self.origins, self.numbers, self.sides, strict=True):
            made.append(Let(origin.name, folded("multiply", number, _whole(side))))
        made += [Declare(total.name, self.sum.start.initial) for total in self.sums.values()]
        step = _variable(self.nest.fresh("step"))
        body: list[Statement] = [Let(self.start.name, folded("multiply", step, _whole(self.steps)))]
        body += [self.load(0), self.load(1), Barrier(), self.multiply(), Barrier()]
        made.append(For(step.name, _pieces(self.loop.extent, self.steps), "sequential", tuple(body)))
        made += [self.finish(r, c) for r, c in self.sums]
        return tuple(made)

    def load(self, number: int) -> Statement:
        """The part of an operand that the next steps need, brought to shared memory by all threads together."""
        operand, tile, side = self.operands[number], self.tiles[number], self.sides[number]
        part, element = _variable(self.nest.fresh("part")), _variable(self.nest.fresh("element"))
        place, inner = _variable(self.nest.fresh("place")), _variable(self.nest.fresh("inner"))
        fast, slow, length = (inner, place, self.steps) if operand.inner_first else (place, inner, side)
        along, k = operand.along.variable, Variable(self.loop.variable, i64)
        at = folded("add", self.origins[number], place), folded("add", self.start, inner)
        inside = both(folded("less", at[0], operand.along.extent), folded("less", at[1], self.loop.extent))
        store = Store(tile, (inner, place), operand.value)
        value: Block = (Let(along.name, at[0]), Let(k.name, at[1]), *operand.lets, store)
        nothing = Constant(zero(tile.scalar), tile.scalar)
        body: Block = (
            Let(element.name, folded("add", folded("multiply", part, _whole(self.group)), self.lane)),
            Let(fast.name, folded("remainder", element, _whole(length))),
            Let(slow.name, folded("floor_divide", element, _whole(length))),
            If(inside, value, (Store(tile, (inner, place), nothing),)),
        )
        return For(part.name, _whole(side * self.steps // self.group), "sequential", body)

    def multiply(self) -> Statement:
        """All sums of a thread, over the steps that are loaded."""
        inner = _variable(self.nest.fresh("inner"))
        values: list[list[Variable]] = []
        made: list[Statement] = []
        for number, (tile, name) in enumerate(zip(self.tiles, ("a", "b"), strict=True)):
            values.append([Variable(self.nest.fresh(name), tile.scalar) for _ in range(EACH)])
            for k, value in enumerate(values[-1]):
                made.append(Let(value.name, Load(tile, (inner, self.place(number, k)))))
        for (r, c), total in self.sums.items():
            a, b = values[0][r], values[1][c]
            if self.sum.fused:
                made.append(Assign(total.name, MultiplyAdd(a, b, total, total.type)))
            else:
                made.append(Assign(total.name, folded("add", total, folded("multiply", a, b))))
        return For(inner.name, _whole(self.steps), "sequential", tuple(made))

    def place(self, number: int, k: int) -> Expression:
        """Where one of a thread's places is in the tile, along a side."""
        apart = (self.down, self.group // self.down)[number]
        return folded("add", self.own[number], _whole(k * apart)) if k else self.own[number]

    def finish(self, r: int, c: int) -> Statement:
        """What the nest does with one of the sums, inside of its loops."""
        at = [folded("add", self.origins[n], self.place(n, k)) for n, k in enumerate((r, c))]
        fits = [folded("less", place, operand.along.extent) for place, operand in zip(at, self.operands, strict=True)]
        made: list[Statement] = [
            Let(operand.along.variable.name, place) for place, operand in zip(at, self.operands, strict=True)
        ]
        for statement in self.nest.body:
            if statement is self.sum.start:
                made.append(Declare(self.sum.start.name, self.sums[r, c]))
            elif statement is not self.loop:
                made.append(statement)
        return If(both(*fits), tuple(made), ())


def _variable(name: str) -> Variable:
    return Variable(name, i64)


def _whole(number: int) -> Constant:
    return Constant(number, i64)


def _pieces(extent: Expression, length: int) -> Expression:
    """How many pieces of a length an extent has, the last one perhaps not full."""
    return folded("floor_divide", folded("add", extent, _whole(length - 1)), _whole(length))
