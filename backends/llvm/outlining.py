"""Function outlining: parts that become functions of their own, bodies of parallel loops, and pieces of long blocks.

What a part uses from around it travels in a *frame*: an array of eight-byte words on the caller's stack, which the
part reads on entry: values, and the addresses of variables that it assigns. What a piece of a block binds for later
pieces it leaves in memory of the caller. Long blocks are cut because the time that LLVM takes for one grows with the
square of its length when values are used far from where they are made.

Parts that differ in names alone are one function: products of the same kind, or the layers of a network. The words of
a frame are in the order in which the part mentions things, and everything else is in its canonical form::

    parallel i < n: y[i] = 2.0 * x[i]        frame n, y, x     define @parallel.1(frame): ...
    parallel k < m: b[k] = 2.0 * a[k]    =>  frame m, b, a     the same function
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import count

from ...core.types import i64
from .. import ir
from .expressions import Cell
from .forks import Forks
from .function import has_loops
from .text import Body, register_type
from .unit import STOP, TABLE, Arena
from .values import one

_LONG = 600  # statements in a long block, those inside others included
_PIECE = 200  # about, in a piece of one


class _Frame:
    """What a function hands down to a part of it."""

    def __init__(self, caller: Body, part: Body) -> None:
        self.caller, self.part = caller, part
        self._words: list[tuple[str, str]] = []  # types and values in the caller

    def carry(self, type: str, value: str) -> str:
        """The name in the part of a value of the caller."""
        place = self.part.value(f"getelementptr i64, ptr %frame, i64 {len(self._words)}")
        self._words.append((type, value))
        return self.part.value(f"load {type}, ptr {place}")

    def fill(self) -> str:
        """Fill the frame in the caller; gives its address."""
        frame = self.caller.scratch(max(1, len(self._words)))
        for number, (type, value) in enumerate(self._words):
            place = self.caller.value(f"getelementptr i64, ptr {frame}, i64 {number}")
            self.caller.line(f"store {type} {value}, ptr {place}")
        return frame


class Function(Forks):
    """Emits one function, and others for the parts of it that are moved out."""

    def parallel(self, loop: ir.For) -> None:
        """The iterations in chunks, whose number depends on sizes only (``pool.py``)."""
        body = self.body
        extent = self.scalar(loop.extent)
        grain = self.scalar(loop.grain) if loop.grain is not None else "1"
        key, found = self.unit.likeness(loop.body, loop.variable)
        part, frame = self._part(loop.body, found, parallel=True)
        if key not in self.unit.parts:
            self.unit.parts[key] = part.iterations(loop), True
        name, _ = self.unit.parts[key]
        given = "ptr, ptr, i64, i64, i64, ptr, ptr"
        self.unit.module.declare("adze_parallel", f"declare void @adze_parallel({given}) nounwind")
        job = f"ptr @{name}, ptr {frame.fill()}, i64 {extent}, i64 {grain}, i64 {self.threads}"
        body.line(f"call void @adze_parallel({job}, ptr {self.word}, ptr {self.failure})")
        self.leave_if_stopped()

    def iterations(self, loop: ir.For) -> str:
        """Emit the function that runs some iterations of a parallel loop; gives its name."""
        self.note_scalars(loop)
        quiet = not any(isinstance(each, ir.For | ir.While) and not _is_lanes(each) for each in ir.walk(loop.body))
        with self.body.loop("%begin", "%end", 1, loop.variable) if quiet else self.looking("%begin", "%end", loop) as i:
            self.iteration(loop, one(i64, i))
        return self.close("parallel", "ptr %frame, i64 %begin, i64 %end, i64 %thread")

    # Branches that sizes decide

    def branch(self, block: ir.Block, number: int | None) -> None:
        if number is None:
            super().branch(block, number)
            return
        _, found = self.unit.likeness(block)
        part, frame = self._part(block, found, ir.assigned_in(block) - ir.bound_in(block))

        def emit() -> None:
            part.block(block)
            part.close("branch", "ptr %frame", number)

        self.unit.later(number, emit)
        word = self.body.value(f"getelementptr i64, ptr {self.failure}, i64 {TABLE}")
        table = self.body.value(f"load ptr, ptr {word}")
        place = self.body.value(f"getelementptr ptr, ptr {table}, i64 {number}")
        self.body.line(f"call void {self.body.value(f'load ptr, ptr {place}')}(ptr {frame.fill()})")
        if self.unit.bounds is not None or has_loops(block) or ir.contains(block, ir.Require):
            self.leave_if_stopped()

    # Long blocks

    def block(self, block: ir.Block) -> None:
        if len(block) < 2 or self.widening.strip or self.widening.axes or _weight(block) <= _LONG:
            super().block(block)
            return
        pieces = [(piece, self.unit.likeness(piece)[1]) for piece in self._pieces(block)]
        last = {name: number for number, (_, found) in enumerate(pieces) for name in found.variables}
        for number, (piece, _) in enumerate(pieces):  # behind a piece, the caller enters its buffers
            taken = [extent for each in piece if isinstance(each, ir.Allocate) for extent in each.buffer.extents]
            for name in ir.names_in(taken):
                last[name] = max(last[name], number + 1)
        words = sum(isinstance(each, ir.Let | ir.Declare) for each in block)
        cells, word = self.body.slot(f"[{words} x i64]", 8), count()
        self.poison(cells, str(8 * words))
        for number, (piece, found) in enumerate(pieces):
            if len(piece) == 1:
                self.statement(piece[0])
                continue
            for each in piece:
                if isinstance(each, ir.Let | ir.Declare) and last[each.name] > number:
                    scalar = (each.value if isinstance(each, ir.Let) else each.initial).type
                    self.names[each.name] = Cell(scalar, (cells,), word=next(word))
            self._piece(piece, found)
        self.forget(block)

    def _pieces(self, block: ir.Block) -> Iterator[ir.Block]:
        """A block in pieces of about one size; calls and what takes memory by data are alone: they may end the run."""
        piece: list[ir.Statement] = []
        weight = 0
        for statement in block:
            size = _weight((statement,))
            dynamic = isinstance(statement, ir.Allocate | ir.Return) and statement.buffer.name in self.unit.plan.dynamic
            alone = dynamic or isinstance(statement, ir.Call | ir.Fork)
            if piece and (alone or weight + size > _PIECE):
                yield tuple(piece)
                piece, weight = [], 0
            piece.append(statement)
            weight += size
            if alone:
                yield tuple(piece)
                piece, weight = [], 0
        if piece:
            yield tuple(piece)

    def _piece(self, piece: ir.Block, found: ir.Canonical) -> None:
        """Move a piece out; what it binds for later ones has its place in the caller already.

        Buffers of the piece are entered there, and here behind it, when what their extents mention has its value.
        """
        part, frame = self._part(piece, found, found.variables)
        likeness, _ = self.unit.likeness(piece)
        branches = [self.unit.branches.of(each) for each in ir.of_kind(piece, ir.If)]
        key = likeness, *[isinstance(part.names.get(name), Cell) for name in found.variables], *branches
        if key not in self.unit.parts:
            for statement in piece:
                match statement:
                    case ir.Let(name, value) | ir.Declare(name, value) if isinstance(part.names.get(name), Cell):
                        part.assign(name, value)
                    case _:
                        part.statement(statement)
            self.unit.parts[key] = part.close("piece", "ptr %frame"), part.may_leave
        name, may_leave = self.unit.parts[key]
        self.body.line(f"call void @{name}(ptr {frame.fill()})")
        if may_leave:
            self.leave_if_stopped()
        for statement in piece:
            if isinstance(statement, ir.Allocate):
                self.allocate(statement.buffer)

    # Parts

    def _part(
        self, block: ir.Block, found: ir.Canonical, addressed: Collection[str] = (), parallel: bool = False
    ) -> tuple[Function, _Frame]:
        """The emitter of a function for a block, with what the block mentions in scope.

        Mutable variables of the caller come as their addresses where they are ``addressed``.
        """
        part = Function(self.unit, self.arena, "1", self.failure)
        part.lasting, part.body.note = self.lasting, self.body.note
        frame = _Frame(self.body, part.body)
        part.failure = frame.carry("ptr", self.failure)
        part.threads = "1" if parallel else frame.carry("i64", self.threads)
        if parallel or has_loops(block):
            part.word = frame.carry("ptr", self.word)
        if parallel:  # a worker does not look for signals
            record = part.body.value(f"getelementptr i64, ptr {part.failure}, i64 {STOP}")
            stop, own = part.body.value(f"load ptr, ptr {record}"), part.body.value("icmp eq i64 %thread, 0")
            part.word = part.body.value(f"select i1 {own}, ptr {part.word}, ptr {stop}")
        bound = ir.bound_in(block).difference(addressed)
        for name in found.variables:
            known = None if name in bound else self.names.get(name)
            if isinstance(known, Cell) and name in addressed:
                [address] = self.addresses(known)
                part.names[name] = Cell(known.scalar, (frame.carry("ptr", address),))
            elif known is not None:
                value = self.read(known)
                part.names[name] = one(value.scalar, frame.carry(register_type(value.scalar), value.parts[0]))
        allocated = ir.allocated_in(block)
        for buffer in found.buffers:
            if buffer.name not in allocated:
                place = self.places[buffer.name]
                part.place(buffer, frame.carry("ptr", place.pointer))
        part.arena = self._arena([each.name for each in found.buffers if each.name in allocated], part, frame, parallel)
        return part, frame

    def _arena(self, allocated: Iterable[str], part: Function, frame: _Frame, by_thread: bool) -> Arena:
        """The arena as the part sees it: the slots of its own buffers, private ones in the copy of its thread."""
        slot_of = self.unit.plan.slot_of
        slots = dict.fromkeys([slot_of[name] for name in allocated if name in slot_of])
        offsets = {slot: frame.carry("i64", self.arena.offsets[slot]) for slot in slots}
        if not slots:
            return Arena("null", "null", "0", offsets)
        base, private = frame.carry("ptr", self.arena.base), frame.carry("ptr", self.arena.private)
        stride = frame.carry("i64", self.arena.stride)
        if by_thread:
            own = part.body.multiply("%thread", stride)
            private = part.body.value(f"getelementptr i8, ptr {private}, i64 {own}")
        return Arena(base, private, stride, offsets)

    def close(self, kind: str, parameters: str, branch: int | None = None) -> str:
        """End the function, which returns nothing, and enter it into the module, or as a branch; gives its name."""
        if self.may_leave:
            self.leave()
        self.body.line("ret void")
        self.apart.close()
        name = self.unit.fresh(kind) if branch is None else f"{kind}.{branch}"
        seen = "hidden " if branch is None else ""
        head = f"define {seen}void @{name}({parameters}) {self.unit.attributes_of(self.body)}"
        self.unit.module.define(name, f"{head} {{\n{self.body}\n}}")
        return name


def _is_lanes(statement: ir.Statement) -> bool:
    return isinstance(statement, ir.For) and statement.kind == "lanes"


def _weight(block: ir.Block) -> int:
    """The number of statements in a block, those inside others included."""
    return sum(1 for _ in ir.walk(block))
