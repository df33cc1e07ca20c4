"""The statements of the loop IR as the text of one LLVM function.

Structured control flow becomes blocks; what surrounds a statement (strips and copies) is kept in a
:class:`~.values.Widening`. What is moved out into functions of its own, parallel loops and parts of long blocks, is
in ``outlining.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from ...core.types import Scalar, i64
from .. import ir
from ..target import STRIP_REGISTERS
from .access import Place
from .checking import Checking
from .expressions import Cell
from .locations import note
from .packing import MOST
from .text import SCALARS, constant, iota, literal, register_type
from .unit import ALIGNMENT, OUT_OF_MEMORY, Arena, Unit
from .values import Axis, Strip, Value, one, slice_of, splat

_STRIP = 512  # iterations without loops inside between two looks for signals
_FEW = 8  # iterations with loops inside that need no look of their own

Combiner = Callable[[str, str, int], str]


class Emitter(Checking):
    """Emits the statements of one function."""

    def __init__(self, unit: Unit, arena: Arena, threads: str, failure: str) -> None:
        super().__init__(unit, failure)
        self.arena, self.threads = arena, threads
        self._varying: dict[Axis | None, frozenset[int]] = {}  # by jam axis; None: the strip
        self.dynamic: dict[str, tuple[str, str]] = {}  # by buffer: where its address and its room are
        self.own: list[str] = []  # where addresses are of what is freed at the end
        self.records: list[str] = []  # of returned arrays
        self.word = ""  # where loops see that there may be signals

    # Statements

    def block(self, block: ir.Block) -> None:
        for statement in block:
            self.statement(statement)
        self.forget(block)

    def forget(self, block: ir.Block) -> None:
        """Names bound in a block are not in scope after it."""
        for statement in block:
            if isinstance(statement, ir.Let | ir.Declare | ir.Call):
                self.names.pop(statement.name, None)
            if isinstance(statement, ir.Fork):
                self.forget(statement.body)
            if isinstance(statement, ir.Invoke):
                for variable in statement.binds:
                    self.names.pop(variable.name, None)

    def statement(self, statement: ir.Statement) -> None:
        part, line, outer = self.unit.timed.get(id(statement)), self.unit.lines.get(id(statement)), self.body.note
        if line is not None:
            self.body.note = note(line)
        if part is not None:
            self.body.line(f"call void @{self.unit.clock()}(i64 0)")
        self.write(statement)
        if part is not None:
            self.body.line(f"call void @{self.unit.clock()}(i64 {part})")
        self.body.note = outer

    def write(self, statement: ir.Statement) -> None:
        """Write the code of a statement."""
        match statement:
            case ir.Let(name, value):
                self.names[name] = self.evaluate(value)
            case ir.Declare(name, initial):
                self.names[name] = cell = self._cell(statement, initial.type)
                self._assign(cell, self.evaluate(initial))
            case ir.Assign(name, value):
                self.assign(name, value)
            case ir.Store(buffer, indices, value, guarded):
                places, guard = self.guarded(buffer, indices, guarded)
                self.access.store(buffer, self.places[buffer.name], places, self.evaluate(value), guard)
            case ir.Prefetch(buffer, indices, write):
                self.access.prefetch(buffer, self.places[buffer.name], [self.evaluate(i) for i in indices], write)
            case ir.Allocate(buffer):
                self.allocate(buffer)
            case ir.For():
                self._loop(statement)
            case ir.If():
                self._if(statement)
            case ir.While():
                self._while(statement)
            case ir.Update() | ir.Barrier() | ir.Kernel():
                raise AssertionError("the threads of a CPU come in no groups, and have the memory of their host")
            case ir.Return(number, buffer):
                self._return(self.records[number], buffer)
            case ir.Invoke():
                self.invoke(statement)
            case ir.Fork(calls):
                self.fork(calls)
            case ir.Call():
                (self._c_call if statement.symbol else self._callback)(statement)
            case ir.Require(test, site, values):
                self._require(self.scalar(test), site, [self.scalar(value) for value in values])

    def _cell(self, statement: ir.Declare, scalar: Scalar) -> Cell:
        axes = tuple(axis for axis in self.widening.axes if id(statement) in self._varying[axis])
        strip = self.widening.strip
        lanes = strip.lanes if strip and id(statement) in self._varying[None] else 0
        return self._cells(scalar, axes, lanes)

    def _if(self, statement: ir.If) -> None:
        test = self.scalar(statement.test)
        then, orelse, after = (self.body.name(part) for part in ("then", "else", "after"))
        self.body.line(f"br i1 {test}, label %{then}, label %{orelse if statement.orelse else after}")
        for label, block, number in zip(
            (then, orelse), (statement.then, statement.orelse), self.unit.branches.of(statement)
        ):
            if block or label == then:
                self.body.label(label)
                self.branch(block, number)
                self.body.branch(after)
        self.body.label(after)

    def branch(self, block: ir.Block, number: int | None) -> None:
        """A branch of an If, which has a number where its code is made on demand."""
        self.block(block)

    def _while(self, statement: ir.While) -> None:
        self.body.repeats = True
        head, inside, after = (self.body.name(part) for part in ("head", "body", "end"))
        self.body.branch(head)
        self.body.label(head)
        for each in statement.head:
            self.statement(each)
        self.body.line(f"br i1 {self._for_one(statement.test)}, label %{inside}, label %{after}")
        self.body.label(inside)
        self.look(beside=True)
        self.block(statement.body)
        self.body.branch(head)
        self.body.label(after)
        self.forget(statement.head)

    def _for_one(self, test: ir.Expression) -> str:
        """Whether a test holds, for one of the lanes that are on."""
        strip, value = self.widening.strip, self.evaluate(test)
        if strip is None or not value.lanes:
            return self.scalar(test)
        [lanes] = value.parts
        if strip.mask is not None:
            lanes = self.body.value(f"and <{strip.lanes} x i1> {lanes}, {strip.mask}")
        reduce = f"@llvm.vector.reduce.or.v{strip.lanes}i1"
        return self.body.value(f"call i1 {reduce}(<{strip.lanes} x i1> {lanes})")

    def _require(self, test: str, site: int, values: Sequence[str]) -> None:
        """Leave unless a test holds: behind it, it does, so that indices need no guards."""
        if test == "true":
            return
        self.may_leave = True
        fail, after = self.body.name("fail"), self.body.name("after")
        self.body.line(f"br i1 {test}, label %{after}, label %{fail}")
        self.body.label(fail)
        record = [str(site + 1), *values, *["0"] * (4 - len(values))]
        words = ", ".join(f"i64 {word}" for word in record)
        self.body.line(f"call void @{self.unit.fail()}(ptr {self.failure}, {words})")
        self.body.branch("exit")
        self.body.label(after)

    def _c_call(self, call: ir.Call) -> None:
        """A function of C is given where each array is, and its extents."""
        given = []
        for buffer in (*call.reads, *call.writes):
            given.append(f"ptr {self.places[buffer.name].pointer}")
            given.extend([f"i64 {self.scalar(extent)}" for extent in buffer.extents])
        types = ", ".join([each.partition(" ")[0] for each in given])
        self.unit.module.declare(call.symbol, f"declare i32 @{call.symbol}({types}) nounwind")
        code = self.body.value(f"call i32 @{call.symbol}({', '.join(given)})")
        self.names[call.name] = one(i64, self.body.value(f"sext i32 {code} to i64"))

    def _callback(self, call: ir.Call) -> None:
        """The iteration, and for each array where it is and its extents, go to words that the function is given.

        The last word is 1 until the function has done its work.
        """
        self.unit.module.declare("adze_call", "declare void @adze_call(i64, ptr, i64, ptr) nounwind")
        buffers, words = (*call.reads, *call.writes), count()
        described = self.body.scratch(len(call.iteration) + sum([1 + len(buffer.extents) for buffer in buffers]) + 1)
        given = [("i64", self.scalar(index)) for index in call.iteration]
        for buffer in buffers:
            given.append(("ptr", self.places[buffer.name].pointer))
            given.extend([("i64", self.scalar(extent)) for extent in buffer.extents])
        given.append(("i64", "1"))
        for type, value in given:
            word = self.body.value(f"getelementptr i64, ptr {described}, i64 {next(words)}")
            self.body.line(f"store {type} {value}, ptr {word}")
        handed = f"i64 {call.number}, ptr {described}, i64 {self.threads}, ptr {self.failure}"
        self.body.line(f"call void @adze_call({handed})")
        self.names[call.name] = one(i64, self.body.value(f"load i64, ptr {word}"))

    def word_at(self, pointer: str, number: int) -> str:
        """The address of one of the words at an address."""
        return self.body.value(f"getelementptr i64, ptr {pointer}, i64 {number}")

    # Buffers

    def allocate(self, buffer: ir.Buffer) -> None:
        """Enter a temporary with its address."""
        if buffer.name in self.unit.plan.dynamic:
            self.place(buffer, self._room(buffer))
            return
        slot = self.unit.plan.slot_of[buffer.name]
        private = self.unit.plan.is_private(buffer.name)
        pointer = self.body.value(
            f"getelementptr inbounds i8, ptr {self.arena.private if private else self.arena.base}, "
            f"i64 {self.arena.offsets[slot]}"
        )
        self.place(buffer, pointer)

    def bytes(self, buffer: ir.Buffer, multiply: Callable[[str, str], str]) -> str:
        """The room that a buffer takes, a multiple of the alignment."""
        padded = self.body.divide(self.body.add(self.own_bytes(buffer, multiply), str(ALIGNMENT - 1)), ALIGNMENT)
        return self.body.multiply(padded, str(ALIGNMENT))

    def own_bytes(self, buffer: ir.Buffer, multiply: Callable[[str, str], str]) -> str:
        """The bytes that may be read and written in a buffer."""
        one = size = str(buffer.scalar.bytes)
        tests = []
        for extent in map(self.scalar, buffer.extents):  # as ``memory.room``
            tests.append(self.body.value(f"icmp sgt i64 {extent}, 0"))
            size = self.body.value(f"select i1 {tests[-1]}, i64 {multiply(size, extent)}, i64 {one}")
        if buffer.name in self.unit.unread:  # no index is clamped into it, so that it may be longer than memory
            for some in tests:
                size = self.body.value(f"select i1 {some}, i64 {size}, i64 {one}")
        return size

    def _room(self, buffer: ir.Buffer) -> str:
        """Memory for a buffer whose size is known by now: what it had before, where that is enough."""
        body, module = self.body, self.unit.module
        module.declare("aligned_alloc", "declare ptr @aligned_alloc(i64, i64) nounwind")
        module.declare("free", "declare void @free(ptr) nounwind")
        self.may_leave = True
        kept = self.keeping()
        pointer, room = kept or (body.slot("ptr", initial="null"), body.slot("i64", initial="0"))
        self.dynamic[buffer.name] = pointer, room
        if kept is None:
            self.own.append(pointer)
        needed = self.bytes(buffer, self.saturating)
        grow, missing, found = (body.name(part) for part in ("grow", "missing", "found"))
        before = body.value(f"load i64, ptr {room}")
        body.line(f"br i1 {body.value(f'icmp ugt i64 {needed}, {before}')}, label %{grow}, label %{found}")
        body.label(grow)
        body.line(f"call void @free(ptr {body.value(f'load ptr, ptr {pointer}')})")
        memory = body.value(f"call ptr @aligned_alloc(i64 {ALIGNMENT}, i64 {needed})")
        body.line(f"store ptr {memory}, ptr {pointer}")
        body.line(f"store i64 {needed}, ptr {room}")
        body.line(f"br i1 {body.value(f'icmp eq ptr {memory}, null')}, label %{missing}, label %{found}")
        body.label(missing)
        body.line(f"store i64 0, ptr {room}")
        body.line(f"store i64 {OUT_OF_MEMORY}, ptr {self.failure}")
        body.branch("exit")
        body.label(found)
        memory = body.value(f"load ptr, ptr {pointer}")
        self.poison(memory, needed)
        return memory

    def keeping(self) -> tuple[str, str] | None:
        """Where the address and the room of one more dynamic buffer outlive the function, if they do."""
        return None

    def saturating(self, a: str, b: str) -> str:
        """A product, or more memory than there is."""
        both = self.body.value(f"call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 {a}, i64 {b})")
        product, over = (self.body.value(f"extractvalue {{ i64, i1 }} {both}, {k}") for k in (0, 1))
        limited = self.body.value(f"call i64 @llvm.umin.i64(i64 {product}, i64 {MOST})")
        return self.body.value(f"select i1 {over}, i64 {MOST}, i64 {limited}")

    def added(self, a: str, b: str) -> str:
        """A sum of two that are not above ``MOST`` and some alignment, or more memory than there is."""
        return self.body.value(f"call i64 @llvm.umin.i64(i64 {self.body.add(a, b)}, i64 {MOST})")

    def _return(self, record: str, buffer: ir.Buffer) -> None:
        """Hand over a dynamic buffer: its memory is no longer this function's."""
        pointer, room = self.dynamic[buffer.name]
        words = [
            ("ptr", self.places[buffer.name].pointer),
            *[("i64", self.scalar(extent)) for extent in buffer.extents],
        ]
        for number, (type, word) in enumerate(words):
            place = self.body.value(f"getelementptr i64, ptr {record}, i64 {number}")
            self.body.line(f"store {type} {word}, ptr {place}")
        self.body.line(f"store ptr null, ptr {pointer}")
        self.body.line(f"store i64 0, ptr {room}")

    def leave(self) -> None:
        """The end of the function, which is reached from elsewhere when there is no memory."""
        self.body.branch("exit")
        self.body.label("exit")
        for pointer in self.own:
            self.body.line(f"call void @free(ptr {self.body.value(f'load ptr, ptr {pointer}')})")

    def leave_if_stopped(self) -> None:
        """Go no further after a part that failed, found no memory, or was about to touch what is not its own."""
        self.may_leave = True
        state, after = (
            self.body.value(f"load atomic i64, ptr {self.failure} monotonic, align 8"),
            self.body.name("after"),
        )
        stopped = self.body.value(f"icmp ne i64 {state}, 0")
        self.body.line(f"br i1 {stopped}, label %exit, label %{after}")
        self.body.label(after)

    def place(self, buffer: ir.Buffer, pointer: str) -> None:
        """Enter a buffer with its address."""
        extents = () if self.unit.bounds is None else tuple([self.scalar(extent) for extent in buffer.extents])
        self.places[buffer.name] = Place(buffer.name, pointer, self.strides(buffer)[1:], extents)

    def strides(self, buffer: ir.Buffer) -> tuple[str, ...]:
        """The number of a buffer's elements, then the stride of each dimension."""
        strides = ["1"]
        for extent in reversed(buffer.extents):
            strides.append(self.body.multiply(strides[-1], self.scalar(extent)))
        return tuple(reversed(strides))

    # Loops

    def _loop(self, loop: ir.For) -> None:
        match loop.kind:
            case "sequential":
                self.note_scalars(loop)
                with self.looking("0", self.scalar(loop.extent), loop) as i:
                    self.iteration(loop, one(i64, i))
            case "jam":
                self._jam(loop)
            case "lanes":
                self._lanes(loop)
            case "parallel":
                fills = ir.writes_elements((loop,))
                if fills is None or not ir.names_in([fills]) <= self.names.keys():  # a piece may not know all sizes
                    self.parallel(loop)
                    return
                inside, after = self.body.name("fills"), self.body.name("after")
                self.body.line(f"br i1 {self.scalar(fills)}, label %{inside}, label %{after}")
                self.body.label(inside)
                self.parallel(loop)
                self.body.branch(after)
                self.body.label(after)

    def note_scalars(self, loop: ir.For) -> None:
        """Note in the text that a loop is one of scalars, if it is an innermost one with nothing side by side."""
        if not self._beside and not has_loops(loop.body):
            self.body.line(SCALARS)

    @contextmanager
    def looking(self, start: str, stop: str, loop: ir.For) -> Iterator[str]:
        """The iterations of a loop, which looks for signals in each where it has loops inside, else now and then."""
        known = literal(stop) if start == "0" else None
        inner = has_loops(loop.body)
        if self._beside or (known is not None and known <= (_FEW if inner else _STRIP)):
            with self.body.loop(start, stop, 1, loop.variable) as i:
                yield i
        elif inner:
            with self.body.loop(start, stop, 1, loop.variable) as i:
                self._look_between(i)
                yield i
        else:
            body = self.body
            with body.loop(start, stop, _STRIP, "strip") as first:
                last = body.value(f"call i64 @llvm.smin.i64(i64 {body.add(first, str(_STRIP))}, i64 {stop})")
                with body.loop(first, last, 1, loop.variable) as i:
                    yield i
                more, after = body.name("more"), body.name("after")
                body.line(f"br i1 {body.value(f'icmp slt i64 {last}, {stop}')}, label %{more}, label %{after}")
                body.label(more)
                self.look()
                body.branch(after)
                body.label(after)

    @property
    def _beside(self) -> bool:
        """Whether several iterations of a loop around are computed side by side."""
        return self.widening.strip is not None or bool(self.widening.axes)

    def _look_between(self, i: str) -> None:
        """Look, unless this is the first iteration: many loops, chunks above all, have no other."""
        later, after = self.body.name("later"), self.body.name("after")
        self.body.line(f"br i1 {self.body.value(f'icmp sgt i64 {i}, 0')}, label %{later}, label %{after}")
        self.body.label(later)
        self.look()
        self.body.branch(after)
        self.body.label(after)

    def look(self, beside: bool = False) -> None:
        """Leave if a signal has come that ends the call, ``beside`` others too; handlers of others run now."""
        if self._beside and not beside:
            return
        self.may_leave = True
        body = self.body
        due, after = body.name("due"), body.name("after")
        word = body.value(f"load atomic i64, ptr {self.word} monotonic, align 8")
        body.line(f"br i1 {body.value(f'icmp eq i64 {word}, 0')}, label %{after}, label %{due}")
        body.label(due)
        stop = body.value(f"call preserve_mostcc i64 @{self.unit.look()}(ptr {self.failure})")
        body.line(f"br i1 {body.value(f'icmp eq i64 {stop}, 0')}, label %{after}, label %exit")
        body.label(after)

    def invoke(self, call: ir.Invoke) -> None:
        """Have what is invoked run."""
        raise NotImplementedError

    def fork(self, calls: Sequence[ir.Invoke]) -> None:
        """Have procedures run, side by side where threads have time."""
        raise NotImplementedError

    def parallel(self, loop: ir.For) -> None:
        """Run the iterations of a loop on several threads."""
        raise NotImplementedError

    def iteration(self, loop: ir.For, variable: Value) -> None:
        """The body of a loop for one value of its variable, or for several side by side."""
        self.names[loop.variable] = variable
        self.block(loop.body)
        del self.names[loop.variable]

    def _jam(self, loop: ir.For) -> None:
        extent = self.scalar(loop.extent)
        whole = self.body.whole(extent, loop.factor)
        inner = has_loops(loop.body)
        if whole != "0":
            with self.body.loop("0", whole, loop.factor, loop.variable) as i:
                if inner:
                    self._look_between(i)
                axis = Axis(len(self.widening.axes), loop.factor)
                self.widening.axes.append(axis)
                self._varying[axis] = self.unit.varying(loop)
                copies = tuple(self.body.add(i, str(number)) for number in range(loop.factor))
                self.iteration(loop, Value(i64, copies, (axis,), slopes=(1,)))
                self.widening.axes.pop()
        if whole != extent:
            with self.body.loop(whole, extent, 1, loop.variable, loop.factor == 2) as i:
                self.iteration(loop, one(i64, i))

    def _lanes(self, loop: ir.For) -> None:
        """Whole strips, then the rest in strips of one register, of which the last may be partly off.

        The widest strips are around loops that wait for themselves. There lanes that are off cost nothing, but strips
        of one register do: the rest is in halves of a strip.
        """
        extent = self.scalar(loop.extent)
        whole = self.body.whole(extent, loop.factor)
        self._varying[None] = self.unit.varying(loop)
        outer = {reduction.name: self._mutable(reduction.name) for reduction in loop.reductions}
        partial: list[dict[str, Cell]] = []
        register = self.unit.machine.strip(loop)
        narrow = loop.factor // 2 if loop.factor > STRIP_REGISTERS * register else min(loop.factor, register)
        size = literal(extent)
        ragged = size is None or size % narrow != 0
        for lanes, start, stop, masked in ((loop.factor, "0", whole, False), (narrow, whole, extent, ragged)):
            if start == stop:
                continue
            self.widening.strip = Strip(lanes)
            cells = {reduction.name: self._neutral(reduction, outer[reduction.name]) for reduction in loop.reductions}
            partial.append(cells)
            self.names.update(cells)
            once = start == whole and loop.factor == narrow
            with self.body.loop(start, stop, lanes, loop.variable, once) as i:
                if masked:
                    self.widening.strip.left = self.body.subtract(stop, i)
                    self.widening.strip.mask = self._mask(lanes, self.widening.strip.left)
                self.iteration(loop, Value(i64, (i,), stride=1))
        self.widening.strip = None
        self.names.update(outer)
        for reduction in loop.reductions:
            self._combine(reduction, [cells[reduction.name] for cells in partial])

    def _mask(self, lanes: int, left: str) -> str:
        count = splat(self.body, "i64", left, lanes)
        return self.body.value(f"icmp slt <{lanes} x i64> {iota(lanes)}, {count}")

    def _neutral(self, reduction: ir.Reduction, cell: Cell) -> Cell:
        """Partial results of all lanes, from the neutral element."""
        partial = self._cells(cell.scalar, cell.axes, self.widening.lanes, guarded=True)
        type, element = register_type(cell.scalar, partial.lanes), register_type(cell.scalar)
        neutral = splat(self.body, element, constant(reduction.neutral.value, cell.scalar), partial.lanes)
        for slot in partial.slots:
            self.body.line(f"store {type} {neutral}, ptr {slot}")
        return partial

    def _combine(self, reduction: ir.Reduction, partial: list[Cell]) -> None:
        """Halve the lanes until one is left, taking in the narrower vector of the tail on the way."""
        cell = self._mutable(reduction.name)
        scalar = cell.scalar
        element = register_type(scalar)

        def apply(a: str, b: str, lanes: int) -> str:
            return self.speller.apply(reduction.primitive, (scalar, scalar), scalar, (a, b), lanes)

        for number, slot in enumerate(self.addresses(cell)):
            total, lanes = "", 0
            for each in partial:
                vector = self.body.value(f"load {register_type(scalar, each.lanes)}, ptr {each.slots[number]}")
                if total:
                    total, lanes = self._halve(apply, element, total, lanes, each.lanes), each.lanes
                    total = apply(total, vector, lanes)
                else:
                    total, lanes = vector, each.lanes
            if not total:
                continue
            total = self._halve(apply, element, total, lanes, 1)
            last = self.body.value(f"extractelement <1 x {element}> {total}, i64 0")
            before = self.body.value(f"load {element}, ptr {slot}")
            self.body.line(f"store {element} {apply(before, last, 0)}, ptr {slot}")

    def _halve(self, apply: Combiner, element: str, vector: str, lanes: int, wanted: int) -> str:
        while lanes > wanted:
            half = lanes // 2
            low = slice_of(self.body, element, vector, lanes, range(half))
            high = slice_of(self.body, element, vector, lanes, range(half, lanes))
            vector, lanes = apply(low, high, half), half
        return vector


def has_loops(block: ir.Block) -> bool:
    """Whether there are loops in a block."""
    return ir.contains(block, ir.For, ir.While)
