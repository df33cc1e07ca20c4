"""The Schur complement in tiles: assembled by compiled passes on all threads, and factorised as a band or whole.

Unknowns that are left over from an elimination (``elimination.py``) are cut into *tiles* of one width: a camera of 11
parameters is a tile of 11. With the blocks V of what is eliminated, and W where a block meets a tile, a step needs

    S = U - W' V^-1 W            for each tile g: S[g, h] = U[g, h] - the sum over the blocks k that meet g and h

A tile is one iteration of a map, which holds its row of S; for each of its blocks it passes over the tiles up to g that
the block meets. So no two iterations write to one place, and the order of a sum is that of the blocks, for any number
of threads. Only the lower half is computed. ``U = C' C`` is the same pass, where C are the rows of J in tiles; V and W
are sums over the rows of a block. All index lists are made once for a fit (``Layout``), since the pattern stays.

Tiles are put into the order of reverse Cuthill and McKee, in which those that meet are near each other. A row of S
begins then ``bandwidth`` tiles before its diagonal, and what lies before is not stored. Whether the band is factorised
or the whole matrix is decided by operations: ``n b**2`` or ``n**3 / 3``. Both are LAPACK's.

The width is that of the rows of some leaf of the unknowns: the one with the fewest operations. Narrower rows are filled
up with unknowns that meet nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy

from ..core.annotations import Parameter
from ..core.combinators import fori_loop, generate, update
from ..core.combinators import map as each
from ..core.combinators import sum as total
from ..core.dims import Dim, Name
from ..core.program import Program
from ..core.types import array_of, f64, i64
from ..library.linalg.one_thread import on_one_thread
from .elimination import Elimination, Sparse, inverses
from .linearised import Linearised
from .unknowns import Array

DENSE = 6000  # unknowns, at most, of a complement that is factorised whole; a band may take as much


@dataclass(frozen=True)
class Groups:
    """Numbers in groups, one group after the other: group k is ``members[pointers[k] : pointers[k + 1]]``."""

    members: Array
    pointers: Array

    @staticmethod
    def by(keys: Array, count: int) -> Groups:
        """The numbers 0, 1, ..., grouped by these keys, which are below ``count``."""
        order = np.argsort(keys, kind="stable")
        return Groups(order, np.searchsorted(keys[order], np.arange(count + 1)))


@dataclass(frozen=True)
class Tiles:
    """The unknowns that are left, in tiles: which one (-1: eliminated) and which place in it, for each unknown."""

    width: int
    tile: Array
    slot: Array
    count: int

    @staticmethod
    def of(width: int, left: Array, widths: Sequence[int]) -> Tiles:
        """Tiles of this width: pieces of the rows of leaves, which have ``widths``."""
        sizes = np.asarray(widths)
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        pieces = -(-sizes // width)
        numbers = np.repeat(np.cumsum(pieces) - pieces, sizes) + inside // width
        tile = np.full(len(numbers), -1)
        used, tile[left] = np.unique(numbers[left], return_inverse=True)
        return Tiles(width, tile, inside % width, len(used))

    def operations(self, met: Sparse, depth: int) -> float:
        """Of assembling and factorising the complement, where ``met`` says which unknowns each block meets."""
        pairs = self.incidence(met)
        counts = np.diff(pairs.indptr).astype(float)
        one = depth * (self.width**2 + 2 * self.width)  # multiplications, and the numbers that they read
        return float(counts @ (counts + 1) / 2 * one + (self.count * self.width) ** 3 / 3)

    def incidence(self, met: Sparse) -> Sparse:
        """Which tiles each block meets."""
        rows = np.repeat(np.arange(met.shape[0]), np.diff(met.indptr))
        keys = rows * max(self.count, 1) + self.tile[met.indices]
        keys = keys[np.diff(keys, prepend=-1) != 0]
        rows, tiles = np.divmod(keys, max(self.count, 1))
        ones = np.ones(len(keys), np.int64)
        return scipy.sparse.csr_array((ones, (rows, tiles)), shape=(met.shape[0], self.count))


@dataclass(frozen=True)
class Layout:
    """Where each entry of J goes, for one pattern.

    A *part* is a row of J in one tile. Parts are in the order of rows and then of tiles; *meetings* of a block and a
    tile are in the order of blocks and then of tiles.
    """

    elimination: Elimination
    tiles: Tiles
    depth: int  # the width of a block
    bandwidth: int  # tiles that a row of S holds before the diagonal; those before it are zero
    base: Array  # the tile with which the row of each tile begins
    own: Array  # entries of J in the columns of blocks, a line for each row that has them; nnz for none
    rows: Groups  # of these lines, for each block
    parts: Array  # entries of J, a line for each part; nnz for none
    part_row: Array
    part_tile: Array
    row_parts: Array  # where the parts of each row begin
    tile_parts: Groups
    block: Array  # of each meeting
    tile: Array
    block_meetings: Array  # where the meetings of each block begin
    tile_meetings: Groups
    meeting_rows: Array  # the lines of ``own`` of the terms of W
    meeting_parts: Groups  # and their parts, for each meeting

    @staticmethod
    def of(pattern: Sparse, elimination: Elimination, widths: Sequence[int]) -> Layout | None:
        """The layout for the pattern of a Jacobian; None where a factorisation would be dearer than a dense one."""
        height, count = pattern.shape
        rows, columns = np.repeat(np.arange(height), np.diff(pattern.indptr)), pattern.indices
        block, slot = np.full(count, -1), np.zeros(count, np.int64)
        block[elimination.eliminated], slot[elimination.eliminated] = elimination.block, elimination.slot
        in_block = block[columns] >= 0
        row_block = np.full(height, -1)
        row_block[rows[in_block]] = block[columns[in_block]]
        # What a block meets, and what a row without a block does
        owner = np.where(row_block >= 0, row_block, elimination.count + np.arange(height))
        there = np.ones(int((~in_block).sum()), np.bool_)
        met = scipy.sparse.csr_array(
            (there, (owner[rows[~in_block]], columns[~in_block])), shape=(elimination.count + height, count)
        )
        met.sum_duplicates()
        depth, left = max(elimination.width, 1), elimination.left
        tried = [Tiles.of(width, left, widths) for width in sorted(set(widths))]
        tiles = min(tried, key=lambda tiles: tiles.operations(met, depth))
        incidence = tiles.incidence(met)
        meeting = np.diff(incidence.indptr).astype(float)
        if len(left) > DENSE and meeting @ meeting > DENSE**2:
            return None
        graph = (incidence.T @ incidence).tocsr()
        place = np.arange(tiles.count)
        if tiles.count:
            place[scipy.sparse.csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(tiles.count)
        entries = graph.tocoo()
        bandwidth = int(np.abs(place[entries.row] - place[entries.col]).max(initial=0))
        size, band = tiles.count * tiles.width, (bandwidth + 1) * tiles.width
        if len(left) > DENSE and (size * band**2 > DENSE**3 / 3 or size * band > DENSE**2):
            return None
        base = np.arange(tiles.count) - bandwidth
        if size * band**2 >= size**3 / 3:
            bandwidth, base = max(tiles.count - 1, 0), np.zeros(tiles.count, np.int64)
        tiles = Tiles(tiles.width, np.append(place, -1)[tiles.tile], tiles.slot, tiles.count)
        # The rows of blocks
        with_block = np.flatnonzero(row_block >= 0)
        line = np.full(height, -1)
        line[with_block] = np.arange(len(with_block))
        own = np.full((len(with_block), depth), pattern.nnz)
        own[line[rows[in_block]], slot[columns[in_block]]] = np.flatnonzero(in_block)
        # The parts in tiles
        keys = rows[~in_block] * max(tiles.count, 1) + tiles.tile[columns[~in_block]]
        found, part = np.unique(keys, return_inverse=True)
        part_row, part_tile = np.divmod(found, max(tiles.count, 1))
        parts = np.full((len(found), tiles.width), pattern.nnz)
        parts[part, tiles.slot[columns[~in_block]]] = np.flatnonzero(~in_block)
        # The meetings, each a sum over parts
        terms = np.flatnonzero(row_block[part_row] >= 0)
        keys = row_block[part_row[terms]] * max(tiles.count, 1) + part_tile[terms]
        found, numbers = np.unique(keys, return_inverse=True)
        meeting_block, meeting_tile = np.divmod(found, max(tiles.count, 1))
        by_meeting = Groups.by(numbers, len(found))
        return Layout(
            elimination,
            tiles,
            depth,
            bandwidth,
            base,
            own,
            Groups.by(row_block[with_block], elimination.count),
            parts,
            part_row,
            part_tile,
            np.searchsorted(part_row, np.arange(height + 1)),
            Groups.by(part_tile, tiles.count),
            meeting_block,
            meeting_tile,
            np.searchsorted(meeting_block, np.arange(elimination.count + 1)),
            Groups.by(meeting_tile, tiles.count),
            line[part_row[terms[by_meeting.members]]],
            Groups(terms[by_meeting.members], by_meeting.pointers),
        )

    @property
    def is_banded(self) -> bool:
        return self.bandwidth < self.tiles.count - 1

    def blocks_of(self, numbers: Array) -> Array:
        """Numbers for the eliminated unknowns, a line for each block; zero where a block is smaller."""
        found = np.zeros((self.elimination.count, self.depth))
        found[self.elimination.block, self.elimination.slot] = numbers[self.elimination.eliminated]
        return found

    def tiles_of(self, numbers: Array, filled: float = 0.0) -> Array:
        """Numbers for the unknowns that are left, a line for each tile."""
        found, left = np.full((self.tiles.count, self.tiles.width), filled), self.elimination.left
        found[self.tiles.tile[left], self.tiles.slot[left]] = numbers[left]
        return found


class Tiled(Linearised):
    """The problem around a point where J is sparse: V, W and U in blocks and tiles."""

    def __init__(self, layout: Layout, jacobian: Sparse, residuals: Array) -> None:
        self.layout = layout
        self.gradient = jacobian.T @ residuals
        entries = np.append(jacobian.data, 0.0)
        own, parts = entries[layout.own][:, None], entries[layout.parts][:, None]
        rows, terms, width = layout.rows, layout.meeting_parts, layout.tiles.width
        self.v = sums(1, layout.depth, layout.depth)(own, own, rows.pointers, rows.members, rows.members)
        self.w = sums(1, layout.depth, width)(own, parts, terms.pointers, layout.meeting_rows, terms.members)
        place = (layout.part_row, layout.row_parts, layout.part_tile, layout.base)
        start = np.zeros((layout.tiles.count, width, layout.bandwidth + 1, width))
        self.u = lower(1, width)(start, parts, parts, layout.tile_parts.pointers, layout.tile_parts.members, *place)
        self.squares = np.zeros(len(self.gradient))
        blocks, left = layout.elimination, layout.elimination.left
        self.squares[blocks.eliminated] = self.v[blocks.block, blocks.slot, blocks.slot]
        tile, slot = layout.tiles.tile[left], layout.tiles.slot[left]
        self.squares[left] = self.u[tile, slot, tile - layout.base[tile], slot]

    def prepare(self, scales: Array) -> None:
        """Nothing to do: the factorisation of Cholesky does not mind how unknowns are scaled."""
        self.scales = scales

    @on_one_thread
    def step(self, damping: float) -> Array | None:
        layout, blocks, tiles = self.layout, self.layout.elimination, self.layout.tiles
        added, found = damping * self.scales**2, np.zeros(len(self.gradient))
        try:
            v, slots = self.v.copy(), np.arange(layout.depth)
            v[:, slots, slots] += 1.0 - layout.blocks_of(np.ones(len(found))) + layout.blocks_of(added)
            inverse = inverses(layout.depth)(v)
            right = np.einsum("kij,kj->ki", inverse, layout.blocks_of(-self.gradient))
            if tiles.count:
                left = self.solved(inverse, right, layout.tiles_of(added, 1.0))
                found[blocks.left] = left[tiles.tile[blocks.left], tiles.slot[blocks.left]]
                moved = scipy.sparse.bsr_array(
                    (self.w, layout.tile, layout.block_meetings),
                    shape=(blocks.count * layout.depth, tiles.count * tiles.width),
                )
                if blocks.count:
                    right = right - np.einsum("kij,kj->ki", inverse, (moved @ left.ravel()).reshape(right.shape))
        except np.linalg.LinAlgError:
            return None
        found[blocks.eliminated] = right[blocks.block, blocks.slot]
        return found

    def solved(self, inverse: Array, right: Array, added: Array) -> Array:
        """The solution for what is left, where ``right`` is ``-V^-1 a``."""
        layout, tiles = self.layout, self.layout.tiles
        meetings, width, depth = layout.tile_meetings, tiles.width, layout.depth
        place = (layout.block, layout.block_meetings, layout.tile, layout.base)
        minus = products(depth, width)(inverse, self.w, layout.block)
        matrix = lower(depth, width)(self.u, self.w, minus, meetings.pointers, meetings.members, *place)
        tile, slot = np.arange(tiles.count), np.arange(width)
        matrix[tile[:, None], slot, (tile - layout.base)[:, None], slot] += added
        through = sums(depth, width, 1)(
            self.w, right[:, :, None], meetings.pointers, meetings.members, layout.block[meetings.members]
        )
        given = (layout.tiles_of(-self.gradient) - through[:, :, 0]).ravel()
        size = len(given)
        if layout.is_banded:
            factor = scipy.linalg.cholesky_banded(self.band(matrix).T, overwrite_ab=True, check_finite=False)
            return np.asarray(scipy.linalg.cho_solve_banded((factor, False), given, check_finite=False)).reshape(
                -1, width
            )
        whole = matrix.reshape(size, size).T
        factored = scipy.linalg.cho_factor(whole, overwrite_a=True, check_finite=False)
        return np.asarray(scipy.linalg.cho_solve(factored, given, check_finite=False)).reshape(-1, width)

    def band(self, matrix: Array) -> Array:
        """LAPACK's form of a band, transposed: line i holds the numbers of row i up to the diagonal."""
        width = self.layout.tiles.width
        lines = matrix.reshape(len(matrix), width, -1)
        found = np.zeros((len(matrix), width, lines.shape[2]))
        for slot in range(width):
            cut = width - 1 - slot  # what is behind the diagonal in the last tile
            found[:, slot, cut:] = lines[:, slot, : lines.shape[2] - cut]
        return found.reshape(-1, lines.shape[2])


# The compiled passes


def _parameters(**axes: tuple[Any, ...]) -> list[Parameter]:
    """Arrays with these axes, numbers or names: of integers where there is one axis, of f64 where there are more."""
    shapes = {
        name: [Dim.of(a) if isinstance(a, int) else Dim.atom(Name(a)) for a in each] for name, each in axes.items()
    }
    return [Parameter(name, array_of(f64 if len(dims) > 1 else i64, tuple(dims))) for name, dims in shapes.items()]


@cache
def sums(depth: int, height: int, width: int) -> Program:
    """For each group the sum of ``a[i].T @ b[j]`` over its terms, which list i and j."""

    def sums(a: Any, b: Any, pointers: Any, left: Any, right: Any) -> Any:
        def one(k: Any) -> Any:
            start = pointers[k]
            terms = generate(pointers[k + 1] - start, lambda t: _transposed(a[left[start + t]], b[right[start + t]]))
            return total(terms, 0)

        return generate(pointers.shape[0] - 1, one)

    taken = _parameters(
        a=("l", depth, height), b=("r", depth, width), pointers=("groups",), left=("terms",), right=("terms",)
    )
    return Program(sums, "sums", taken)


@cache
def products(depth: int, width: int) -> Program:
    """``-V^-1 W``, for each meeting."""

    def products(inverse: Any, w: Any, block: Any) -> Any:
        return each(lambda w, k: -(inverse[k] @ w), w, block)

    return Program(products, "products", _parameters(inverse=("k", depth, depth), w=("m", depth, width), block=("m",)))


@cache
def lower(depth: int, width: int) -> Program:
    """The lower half of ``start + A' B``, a row of tiles for each tile.

    A and B have an item, ``depth`` by ``width``, for each meeting of an owner with a tile. The items of an owner are in
    the order of tiles, from ``first[owner]`` on; those of a tile are listed.
    """

    def lower(
        start: Any, a: Any, b: Any, pointers: Any, listed: Any, owner: Any, first: Any, tile: Any, base: Any
    ) -> Any:
        def row(g: Any) -> Any:
            def of_owner(t: Any, row: Any) -> Any:
                item = listed[t]

                def of_item(other: Any, row: Any) -> Any:
                    at = (slice(None), tile[other] - base[g])
                    return update(row, at, row[at] + _transposed(a[item], b[other]))

                return fori_loop(first[owner[item]], item + 1, of_item, row)

            return fori_loop(pointers[g], pointers[g + 1], of_owner, start[g])

        return generate(start.shape[0], row)

    items = {"a": ("m", depth, width), "b": ("m", depth, width)}
    lists = {"pointers": ("groups",), "listed": ("m",), "owner": ("m",), "first": ("owners",)}
    places = {"tile": ("m",), "base": ("g",)}
    return Program(lower, "lower", _parameters(start=("g", width, "h", width), **items, **lists, **places))


def _transposed(a: Any, b: Any) -> Any:
    """``a.T @ b``, as a sum over the few lines of both."""
    return total(a[:, :, None] * b[:, None, :], 0)
