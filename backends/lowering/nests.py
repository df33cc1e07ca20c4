"""Nests: which loop of a perfect nest is parallel, which is the vector, which is unrolled, and in what order.

A nest is a list of parallel loops over one body of scalar code, in which at most reductions are left. Its loops may
run in any order, so they are chosen by what the body reads: the *lane* is the loop along which most of it is
contiguous or does not vary (a temporary that the nest writes gets the lane as its last axis, whatever its place in
the type); an array that would be read across is packed first, when it is read again and again; the *jam* is the
loop along which most reads are shared; the loops outside of these run in the order in which arrays stand in memory,
and the outermost one is parallel. The lanes may also be the sums of the body, all of them, if nothing else is cheaper:
their lanes are to be summed at the end. A body without sums is jammed where it reads or writes across the lane, along
what is contiguous there: lane and jam together are squares, which the target transposes in registers; packing is done
like that, too.

    Y[k, r, i] = sum(j: Q[k, r, j] * (x[i, j] - mu[k, j]))     lane i, jam r, parallel k, x packed as [j, i]
    Y[i, j] = x[i, j] + z[j, i]                                lane j, jam i, squares of z

An array of which data say what is read is packed whole, where the nest reads more than that; sizes decide at run time:

    P[i, c] = sum(e < rows[i]: v[i, e] * centres[c, column[i, e]])     lane c, parallel i, centres packed as [column, c]

This is for lanes of vectors; where lanes are threads, ``grids.py`` arranges the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...core.primitive import Libm
from ...core.types import f64
from .. import ir
from ..target import (
    CHUNK_JAMS,
    LANE_CHUNK,
    LANE_CHUNK_WITH_LOOPS,
    PACKED_PADDING,
    SQUARE_LEAST_BITS,
    SURVEY_UNKNOWN_ITERATIONS,
    THREAD_GRAIN,
    TRANSPOSED_ROWS,
    WHOLE_COPY_READS,
    Target,
)
from .lanes import Choice, Reading, choose, contiguous, gathered, in_memory_order, packable
from .private_arrays import expanded, is_long, private_to, without_allocations, without_cells
from .survey import Access, Survey, survey
from .triangles import Differences, Regions

# By buffer: its axes in the order in which they stand in memory.
Layouts = Mapping[str, tuple[int, ...]]


# Building the loops


@dataclass
class Plan:
    """A nest whose roles are being chosen, and what is known around it."""

    loops: list[ir.Axis]
    body: ir.Block
    temporaries: set[str]  # buffers that only this nest writes and whose layout is free
    reductions: dict[str, ir.Reduction]  # what inner loops combine into, by loop variable
    parallel: bool  # whether a loop may be parallel
    target: Target
    fresh: Callable[[str], str]
    independent: frozenset[str] = frozenset()  # variables of inner loops that need no order
    needed: Differences = field(default_factory=dict)  # of its loops' variables, where anyone reads what it writes
    nonzero: Regions = field(default_factory=dict)  # where the buffers that it reads are not 0
    sides: frozenset[str] = frozenset()  # variables of the loops over the rows and columns of a product
    private: frozenset[ir.Buffer] = frozenset()  # arrays of which each point has its own: they get the lane as an axis
    reading: Reading | None = None  # what temporaries cost those who read them
    strip: ir.Strip | None = None  # the loop over blocks of rows around it
    changing: frozenset[str] | None = None  # names of what changes in the loop around that runs in order, if one does

    @property
    def variables(self) -> list[str]:
        return [loop.variable.name for loop in self.loops]


@dataclass
class Built:
    """The statements of a nest, and the axis order of each temporary it writes."""

    statements: list[ir.Statement]
    layouts: dict[str, tuple[int, ...]]
    decision: str = ""  # to be read by people


@dataclass(frozen=True)
class Roles:
    """The roles of a nest's loops, as far as another nest must have the same to run with it."""

    order: tuple[str, ...]  # the loops, outermost first; the lanes are last
    lane: str | None
    further: tuple[object, ...] = ()  # what else is chosen: jams, sums as lanes, tiles, a second way
    has_loops: bool = False  # inside
    in_order: bool = False  # each point is for itself, along the axes as they stand
    layouts: Layouts = field(default_factory=dict, compare=False)

    @property
    def plain(self) -> bool:
        """Whether each point is for itself."""
        return not self.further

    def along(self, variables: Sequence[str]) -> bool:
        """Whether each point is for itself, along these loops as they stand, the last of which are lanes."""
        return self.plain and self.order == tuple(variables) and self.lane == self.order[-1]


def roles_of(nest: Plan) -> Roles:
    """The roles that the loops of a nest will have."""
    nest, found, choices = _chosen(nest)
    lane = choices[0].lane
    rest = in_memory_order([loop for loop in nest.loops if loop.variable.name != lane], [*found.loads, *found.stores])
    order = (*[loop.variable.name for loop in rest], *[name for name in nest.variables if name == lane])
    jams = [(choice.jam, choice.sums, choice.whole) for choice in choices]
    further = () if jams == [(None, (), False)] else tuple(jams)
    has_loops = bool(found.inner)
    in_order = not further and not has_loops and order == tuple(nest.variables) and lane == order[-1]
    by_name = {loop.variable.name: loop for loop in nest.loops}
    outer = [by_name[name] for name in order if name != lane]
    return Roles(order, lane, further, has_loops, in_order, layouts_of(nest, found, outer, lane))


def build(nest: Plan) -> Built:
    """The nest as loops; where sizes decide between two ways, both, and the choice."""
    nest, found, choices = _chosen(nest)
    first = _arranged(nest, found, choices[0])
    by_name = {loop.variable.name: loop for loop in nest.loops}
    lane = by_name.get(choices[0].lane or "")
    full = lane is not None and nest.strip is not None and lane.extent == nest.strip.rows
    if len(choices) == 1 or full:
        return first
    second = _arranged(nest, found, choices[1])
    if choices[0].whole:
        worth = _worth_copying(nest, found, choices[0].lane or "")
        statements = ir.branch(worth, first.statements, second.statements)
        return Built(list(statements), first.layouts)
    assert lane is not None
    short = lane.extent < choices[0].strip // 2
    return Built(list(ir.branch(short, second.statements, first.statements)), first.layouts)


def _chosen(nest: Plan) -> tuple[Plan, Survey, list[Choice]]:
    """A nest, what it consists of and the roles of its loops; its private arrays are none of it if it gets lanes."""
    for each in (_with_private_arrays(nest), nest) if is_long(nest.body) else (nest,):
        found = survey(each.body, each.variables, each.private)
        choices = choose(each.loops, found, each.temporaries, each.reductions, each.target, each.sides, each.reading)
        if choices[0].lane is not None:
            break
    return each, found, choices


def _with_private_arrays(nest: Plan) -> Plan:
    """A nest whose points find their own arrays there."""
    body = without_cells(nest.body)
    private = private_to(body, nest.variables)
    return replace(nest, body=without_allocations(body, private), private=private)


def _worth_copying(nest: Plan, found: Survey, lane: str) -> ir.Expression:
    """Whether the arrays that would be packed whole are read so often that it pays, for one lane."""
    elements, reads = [], 1.0
    for access in found.loads:
        axis = gathered(access, lane, nest.loops, found.inner)
        if axis is not None:
            elements.append(ir.product([extent for k, extent in enumerate(access.buffer.extents) if k != axis]))
            reads = max(reads, access.weight)
    often = ir.product([loop.extent for loop in nest.loops if loop.variable.name != lane])
    needed = ir.total(elements) * WHOLE_COPY_READS
    return needed <= often * int(reads)


def _arranged(nest: Plan, found: Survey, choice: Choice) -> Built:
    """The nest with its loops in the roles chosen."""
    statements: list[ir.Statement] = []
    private, body = list[ir.Statement](), nest.body
    by_name = {loop.variable.name: loop for loop in nest.loops}
    rest = [loop for loop in nest.loops if loop.variable.name not in (choice.lane, choice.jam)]
    rest = in_memory_order(rest, [*found.loads, *found.stores])
    lane = by_name.get(choice.lane or "")
    chunk = None
    if lane is not None and not rest and nest.parallel and nest.target.parallel:
        size = LANE_CHUNK_WITH_LOOPS if found.inner else LANE_CHUNK if choice.jam is None else TRANSPOSED_ROWS
        chunk = Chunk(lane, choice.strip if nest.private else size, nest.fresh)
    piece = chunk
    if lane is not None and nest.private:
        piece = chunk or Chunk(lane, choice.strip, nest.fresh)
        private, body = expanded(body, nest.private, piece.lane, piece.longest)
    packing = Packing([], {})
    if choice.lane is not None and nest.target.transformations.pack:
        packing = pack(nest, found, choice.lane, chunk, choice.whole)
        body = ir.read_packed(body, packing.replacements)
    layouts = layouts_of(nest, found, [*rest, *[by_name[n] for n in (choice.jam,) if n in by_name]], choice.lane)
    work = found.work
    if choice.sums:
        body = reducing_lanes(body, choice, nest.reductions)
    if chunk is not None and choice.jam is not None and found.inner and not packing.mentions(choice.jam):
        pieces = Chunk(by_name[choice.jam], CHUNK_JAMS * choice.copies, nest.fresh)
        body = (pieces.part(ir.For(choice.jam, pieces.length, "jam", body, choice.copies)),)
        lanes = chunk.part(ir.For(chunk.loop.variable.name, chunk.length, "lanes", body, choice.strip))
        task = (*packing.statements, lanes)
        return Built([_shared_out(chunk, pieces, task, grain_of(work, _inner(found)), nest.fresh)], layouts)
    if choice.jam is not None:
        loop = by_name[choice.jam]
        body = (ir.For(loop.variable.name, loop.extent, "jam", body, choice.copies),)
    if chunk is not None:
        extents = [by_name[choice.jam].extent] if choice.jam is not None else []
        grain = grain_of(work, [*extents, *_inner(found)])
        lanes = ir.For(chunk.loop.variable.name, chunk.loop.extent, "lanes", body, choice.strip)
        return Built([chunk.parallel(lanes, grain, [*packing.statements, *private])], layouts)
    statements.extend(packing.statements)
    if choice.jam is not None and not rest and lane is None and nest.parallel and nest.target.parallel:
        # The only loop of the nest: its jams are shared out, each of which is a chunk.
        [jammed] = body
        assert isinstance(jammed, ir.For)
        chunk = Chunk(by_name[choice.jam], choice.copies, nest.fresh)
        return Built([*statements, chunk.parallel(jammed, grain_of(work, _inner(found)))], layouts)
    if piece is not None:
        lanes = ir.For(piece.loop.variable.name, piece.loop.extent, "lanes", body, choice.strip)
        body = (*private, ir.For(piece.number.name, piece.count, "sequential", (piece.part(lanes),)))
    elif lane is not None:
        body = (_lanes(lane, body, choice.strip, nest.target.lanes(f64)),)
    for k, loop in reversed(list(enumerate(rest))):
        if k == 0 and nest.parallel and nest.target.parallel:
            others = [other.extent for other in nest.loops if other is not loop]
            grain = grain_of(work, [*others, *_inner(found)])
            body = (ir.For(loop.variable.name, loop.extent, "parallel", body, grain=grain),)
        else:
            body = (ir.For(loop.variable.name, loop.extent, "sequential", body),)
    statements.extend(body)
    return Built(statements, layouts)


def _lanes(loop: ir.Axis, body: ir.Block, strip: int, register: int) -> ir.For:
    """A loop of lanes; where its extent is small and known, such that no lane is ever off.

    What is written with lanes off is slow to read again, as an operator on small matrices does.
    """
    extent = int(loop.extent.value) if isinstance(loop.extent, ir.Constant) else 0
    if 1 < extent < strip and extent & (extent - 1) == 0:
        strip = extent
    elif 1 < extent < register // 2 and not _calls(body):
        return ir.For(loop.variable.name, loop.extent, "sequential", body)
    return ir.For(loop.variable.name, loop.extent, "lanes", body, strip)


def _calls(body: ir.Block) -> bool:
    """Whether a body calls functions of the C library, which have vector versions."""
    parts = [part for statement in ir.walk(body) for whole in ir.expressions_of(statement) for part in ir.inside(whole)]
    return any(isinstance(part, ir.Apply) and isinstance(part.primitive.llvm, Libm) for part in parts)


def _inner(found: Survey) -> list[ir.Expression]:
    """The extents of inner loops that the function's sizes determine."""
    extents = [loop.extent for loop in found.inner.values()]
    bound = found.bound
    return [e for e in extents if not isinstance(e, ir.Constant) and not depends(e, bound)]


def grain_of(work: float, extents: Sequence[ir.Expression]) -> ir.Expression:
    """Iterations of the parallel loop that make up ``THREAD_GRAIN`` of work, given the loops inside each."""
    cost: ir.Expression = ir.Constant(max(1, int(work / SURVEY_UNKNOWN_ITERATIONS) if extents else int(work)))
    for extent in extents:
        cost = cost * extent
    share = THREAD_GRAIN // ir.maximum(cost, 1)
    return share + 1


class Chunk:
    """A piece of a nest's only loop, which is lanes or a jam: the loop over pieces is parallel.

    Sizes alone decide where pieces begin.
    """

    def __init__(self, loop: ir.Axis, size: int, fresh: Callable[[str], str]) -> None:
        self.loop, self.size = loop, size
        self.number, self.lane = ir.Variable(fresh("chunk")), fresh("lane")
        self.start = self.number * size
        self.length = ir.minimum(loop.extent - self.start, size)

    @property
    def longest(self) -> ir.Expression:
        """The length of the longest chunk: of a short loop there is one, which is as long as the loop."""
        return ir.minimum(self.loop.extent, self.size)

    def iteration(self, lane: str) -> ir.Expression:
        """The loop's variable for a lane of the chunk."""
        return self.start + ir.Variable(lane)

    @property
    def count(self) -> ir.Expression:
        """How many chunks there are."""
        return ir.ceil_divide(self.loop.extent, self.size)

    def part(self, loop: ir.For) -> ir.For:
        """The loop over the iterations of one chunk."""
        at = ir.Let(self.loop.variable.name, self.iteration(self.lane))
        return replace(loop, variable=self.lane, extent=self.length, body=(at, *loop.body))

    def parallel(self, loop: ir.For, grain: ir.Expression, before: Sequence[ir.Statement] = ()) -> ir.For:
        """The loop cut into chunks that run in parallel; in each of them, what comes before it."""
        each = grain // self.size
        return ir.For(self.number.name, self.count, "parallel", (*before, self.part(loop)), grain=each)


def _shared_out(lanes: Chunk, jams: Chunk, body: ir.Block, grain: ir.Expression, fresh: Callable[[str], str]) -> ir.For:
    """A parallel loop over the chunks of two loops: either may be short."""
    task = ir.Variable(fresh("task"))
    chunks = ir.unravelled(task, [ir.Axis(each.number, each.count) for each in (jams, lanes)])
    iterations = lanes.longest * jams.longest
    grain = grain // ir.maximum(iterations, 1) + 1
    count = lanes.count * jams.count
    return ir.For(task.name, count, "parallel", (*chunks, *body), grain=grain)


def layouts_of(nest: Plan, found: Survey, order: Sequence[ir.Axis], lane: str | None) -> dict[str, tuple[int, ...]]:
    """For each temporary the axes in the order of the loops that run over them, outermost first.

    An axis that an inner loop runs over stays inside of these, and that of the lanes inside of all.
    """
    rank = {loop.variable.name: k for k, loop in enumerate(order)}
    if lane is not None:
        rank[lane] = len(order) + 1
    layouts = {}
    for store in found.stores:
        if store.buffer.name in nest.temporaries:
            places = [rank.get(getattr(index, "name", ""), len(order)) for index in store.indices]
            layouts[store.buffer.name] = tuple(sorted(range(len(places)), key=places.__getitem__))
    return layouts


def reducing_lanes(body: ir.Block, choice: Choice, reductions: dict[str, ir.Reduction]) -> ir.Block:
    """Inner reductions as loops of lanes."""
    made: list[ir.Statement] = []
    for statement in body:
        if isinstance(statement, ir.For) and statement.variable in choice.sums:
            reduction = (reductions[statement.variable],)
            made.append(replace(statement, kind="lanes", factor=choice.strip, reductions=reduction))
        elif isinstance(statement, ir.For):
            made.append(replace(statement, body=reducing_lanes(statement.body, choice, reductions)))
        else:
            made.append(statement)
    return tuple(made)


# Packing


@dataclass
class Packing:
    """Copies of arrays, and what is read in place of these."""

    statements: list[ir.Statement]
    replacements: dict[ir.Place, ir.Load]  # the read of the copy

    def mentions(self, variable: str) -> bool:
        """Whether a copy is read at places that vary with a variable."""
        return any(depends(index, {variable}) for load in self.replacements.values() for index in load.indices)


def pack(nest: Plan, found: Survey, lane: str, chunk: Chunk | None = None, whole: bool = False) -> Packing:
    """Copies of the arrays that are read across the lane, with the lane as last axis; those of a chunk for itself.

    Arrays that are read where data say are copied ``whole``, if at all.
    """
    packing = Packing([], {})
    copies: dict[
        tuple[ir.Buffer, tuple[int, ...], tuple[ir.Expression, ...]], ir.Buffer
    ] = {}  # by array, axes and shape
    written = {store.buffer for store in found.stores}
    extents = {loop.variable.name: loop.extent for loop in nest.loops}
    extents.update({name: loop.extent for name, loop in found.inner.items()})
    for access in found.loads:
        at = access.buffer, access.indices
        if at in packing.replacements or access.buffer in written or not access.mentions(lane):
            continue
        if contiguous(access, lane, len(access.indices) - 1):
            continue
        axis = gathered(access, lane, nest.loops, found.inner) if whole and chunk is None else None
        if axis is not None:
            _copy_whole(nest, access, axis, packing)
        if axis is not None or access.guarded or not packable(access, lane, nest.loops):
            continue
        names = [index.name for index in access.indices if isinstance(index, ir.Variable)]
        order = (*[name for name in names if name != lane], lane)
        if any(depends(extents[name], found.bound | set(found.inner)) for name in order):
            continue
        shape = [extents[name] for name in order]
        if nest.strip is not None:
            shape = [nest.strip.most if extent == nest.strip.rows else extent for extent in shape]
        if chunk is not None:
            shape[-1] = chunk.longest + PACKED_PADDING
        copy = access.buffer, tuple([names.index(name) for name in order]), tuple(shape)
        if copy not in copies:
            packed = ir.Buffer(nest.fresh(f"{access.buffer.name}_packed"), access.buffer.scalar, tuple(shape))
            copies[copy] = packed
            packing.statements.append(ir.Allocate(packed))
            packing.statements.extend(_copy(nest, access, packed, order, extents, chunk))
        place = order if chunk is None else (*order[:-1], chunk.lane)
        packing.replacements[at] = ir.Load(copies[copy], tuple([ir.Variable(name) for name in place]))
    return packing


def _copy_whole(nest: Plan, access: Access, axis: int, packing: Packing) -> None:
    """A copy of a whole array with an axis as the last."""
    source, names = access.buffer, [nest.fresh("p") for _ in access.indices]
    axes = [*[k for k in range(len(names)) if k != axis], axis]
    packed = ir.Buffer(nest.fresh(f"{source.name}_packed"), source.scalar, tuple([source.extents[k] for k in axes]))
    guarded = tuple(sorted([axes.index(k) for k in access.guarded]))
    packing.replacements[source, access.indices] = ir.Load(packed, tuple([access.indices[k] for k in axes]), guarded)
    copied = replace(access, indices=tuple([ir.Variable(name) for name in names]))
    extents = dict(zip(names, source.extents, strict=True))
    packing.statements.append(ir.Allocate(packed))
    packing.statements.extend(_copy(nest, copied, packed, [names[k] for k in axes], extents, None))


def depends(expression: ir.Expression, variables: set[str]) -> bool:
    return any(isinstance(each, ir.Variable) and each.name in variables for each in ir.inside(expression))


def _copy(
    nest: Plan,
    access: Access,
    packed: ir.Buffer,
    order: Sequence[str],
    extents: dict[str, ir.Expression],
    chunk: Chunk | None,
) -> list[ir.Statement]:
    """The loops that fill a packed copy, in squares: contiguous rows of the source become contiguous ones of the copy.

    The last axis of the source is the lanes, that of the copy the jam; squares are transposed in registers.
    """
    names = {name: nest.fresh("p") for name in order}
    at: dict[str, ir.Expression] = {name: ir.Variable(names[name]) for name in order}
    target = tuple([at[name] for name in order])
    lane = order[-1]
    if chunk is not None:
        at[lane] = chunk.iteration(names[lane])
        extents = {**extents, lane: chunk.length}
    source = [index.name for index in access.indices if isinstance(index, ir.Variable)]
    body: ir.Block = (ir.Store(packed, target, ir.Load(access.buffer, tuple([at[name] for name in source]))),)
    last, side = source[-1], nest.target.lanes(packed.scalar)
    square = ir.For(
        names[lane], extents[lane], "sequential", (ir.For(names[last], extents[last], "lanes", body, side),)
    )
    if nest.target.transformations.jam and packed.scalar.bits >= SQUARE_LEAST_BITS:
        square = replace(square, kind="jam", factor=side)
    outer = [name for name in order if name not in (last, lane)]
    parallel = chunk is None and nest.parallel and nest.target.parallel
    if parallel and not outer:
        pieces = Chunk(ir.Axis(ir.Variable(names[lane]), extents[lane]), TRANSPOSED_ROWS, nest.fresh)
        return [pieces.parallel(square, grain_of(2.0, [extents[last]]))]
    body = (square,)
    for k, name in reversed(list(enumerate(outer))):
        grain = grain_of(2.0, [extents[other] for other in order if other != name]) if parallel and k == 0 else None
        body = (
            ir.For(names[name], extents[name], "parallel" if grain is not None else "sequential", body, grain=grain),
        )
    return list(body)
