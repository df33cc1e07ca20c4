"""What the functions of one module share while they are emitted."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from .. import ir
from ..cost import nests
from ..memory.arena import plan
from .bounds import Bounds
from .branches import Branches
from .elementary import Elementary
from .host import Machine
from .text import OPTNONE, Body, Module

_LOOK = """\
define internal preserve_mostcc i64 @look(ptr %record) cold noinline nounwind {
  %stop = call i64 @adze_look(ptr %record)
  ret i64 %stop
}"""

_DEEPER = """\
define internal preserve_mostcc i64 @deeper(ptr %record, i64 %wanted) cold noinline nounwind {{
entry:
  %handed.place = getelementptr ptr, ptr %record, i64 {handed}
  %handed = load ptr, ptr %handed.place
  %stack = getelementptr i64, ptr %handed, i64 -{words}
  %top.place = getelementptr i64, ptr %stack, i64 1
  %limit.place = getelementptr ptr, ptr %record, i64 {limit}
  %before = load i64, ptr %stack
  %shallow = icmp eq i64 %before, 0
  br i1 %shallow, label %first, label %more
first:
  %shallow.limit = load i64, ptr %limit.place
  %shallow.top = add i64 %shallow.limit, {shallow}
  store i64 %shallow.top, ptr %top.place
  br label %more
more:
  %depth = phi i64 [ {stays}, %first ], [ %before, %entry ]
  %top = load i64, ptr %top.place
  %least = sub i64 %top, %wanted
  %needed = add i64 %least, {twice}
  %doubled = shl i64 %depth, 1
  %much = call i64 @llvm.smax.i64(i64 %doubled, i64 %needed)
  %fits = icmp sle i64 %needed, %depth
  %next = select i1 %fits, i64 %depth, i64 %much
  %bottom = ptrtoint ptr %stack to i64
  %all = sub i64 %top, %bottom
  %deep = call i64 @llvm.smin.i64(i64 %next, i64 %all)
  store i64 %deep, ptr %stack
  %end = sub i64 %top, %deep
  %new = add i64 %end, {margin}
  store i64 %new, ptr %limit.place
  ret i64 %new
}}"""

_FAIL = """\
define internal void @fail(ptr %record, i64 %site, i64 %a, i64 %b, i64 %c, i64 %d) cold noinline nounwind {
  %old = cmpxchg ptr %record, i64 0, i64 %site monotonic monotonic
  %first = extractvalue { i64, i1 } %old, 1
  br i1 %first, label %write, label %end
write:
  %values = getelementptr i64, ptr %record, i64 1
  store i64 %a, ptr %values
  %values.1 = getelementptr i64, ptr %record, i64 2
  store i64 %b, ptr %values.1
  %values.2 = getelementptr i64, ptr %record, i64 3
  store i64 %c, ptr %values.2
  %values.3 = getelementptr i64, ptr %record, i64 4
  store i64 %d, ptr %values.3
  br label %end
end:
  ret void
}"""


_CLOCK = """\
define internal void @clock(i64 %part) cold noinline nounwind {{
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %place
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %words = inttoptr i64 {address} to ptr
  %before = load i64, ptr %words
  store i64 %now, ptr %words
  %spent = sub i64 %now, %before
  %pair = shl i64 %part, 1
  %number = add i64 %pair, 1
  %sum = getelementptr i64, ptr %words, i64 %number
  %count = getelementptr i64, ptr %sum, i64 1
  %old = load i64, ptr %sum
  %new = add i64 %old, %spent
  store i64 %new, ptr %sum
  %runs = load i64, ptr %count
  %more = add i64 %runs, 1
  store i64 %more, ptr %count
  ret void
}}"""


ALIGNMENT = 128  # of every temporary: two cache lines, which are often fetched together
OUT_OF_MEMORY = -1  # in the failure record, where what is below zero ends the run
INTERRUPTED = -(1 << 62)
OUT_OF_CELLS = INTERRUPTED + 1  # where a region has no room
# Words of the failure record: pointers to the table of branches, and to what says that the calling thread shall look
# for signals, or a worker stop (``interrupts.py``).
TABLE, TICK, STOP = 8, 9, 10
# Others are for procedures: the addresses of words for what they hand over beside registers, of buffers and of sizes,
# the region of cells, and where the stack ends, or the part of it that stays in memory (``stacks.py``); the seat of who
# runs, and the first one of the call.
HANDED, BUFFERS, SIZES, REGION, STACK = 7, 11, 12, 13, 14
SEAT, SEATS = 5, 6
MARGIN = 1 << 20  # bytes at the end of a stack: what is handed over, and room for functions that look at no limit
STACK_WORDS = 3  # of a stack, before what is handed over: how much of it a call uses, its top, what stays in memory
SHALLOW = 2 << 20  # bytes at the top of a stack, a large page: who uses no more does not say so
RECORD = 16  # words of a failure record
# A call has a seat for each of its threads (``work_stealing.py``). Words of one: the address of its ring of tasks, in
# the first seat how many there are, and the first word of the region of cells.
SEAT_WORDS, RING_WORD, COUNT, WISH, VAIN, CELLS = 32, 1, 3, 5, 17, 20
RING = 1 << 16  # tasks of a seat; a fork that finds it full runs in its place
ENOUGH = 8  # tasks of a seat, of which nobody asks for more: a fork runs in its place
IN_VAIN = 1024  # tasks in a row that nobody took: so it does from then on
# Memory of dynamic temporaries that is kept for the next call: pairs of an address and its bytes, behind the record.
KEPT = 8


def _deeper() -> str:
    return _DEEPER.format(
        handed=HANDED,
        words=STACK_WORDS,
        limit=STACK,
        stays=SHALLOW,
        shallow=SHALLOW - MARGIN,
        margin=MARGIN,
        twice=2 * MARGIN,
    )


@dataclass
class Arena:
    """How a function finds the slots of the arena: offsets from one base, or from another for private slots."""

    base: str
    private: str
    stride: str  # between the private slots of one thread and the next
    offsets: dict[int, str]


class Unit:
    """A module under construction, and what all its functions share."""

    def __init__(self, function: ir.Function, machine: Machine, around: Unit | None = None) -> None:
        self.plan, self.machine = plan(function, reuse=False), machine
        self._around = around  # of the function whose procedure this is about
        self.procedures: tuple[ir.Function, ...] = function.procedures if around is None else around.procedures
        self.kept: ir.Kept = ir.kept(function) if around is None else around.kept
        updated = {each.buffer.name for each in ir.of_kind(function.body, ir.Update)}
        self.unread = self.plan.dynamic - ir.read_in(function.body) - updated  # what is stored to, and returned
        self.module: Module = (
            Module(machine.optimised, machine.located, machine.cpu) if around is None else around.module
        )
        self.lines: dict[int, int] = around.lines if around is not None else {}  # of statements, where code tells them
        if machine.located and around is None:
            numbered = enumerate(ir.lines(function), 1)
            self.lines = {id(statement): number for number, (_, statement) in numbered if statement is not None}
        self.bounds = Bounds(function, self.module) if machine.bounds and around is None else None
        # an aligned stack: a vector that crosses two cache lines costs two accesses when it is spilled
        self.attributes = f"nounwind alignstack({machine.target.register_bytes})"
        own = machine.target.multiply_add and machine.target.transformations.inline
        self.elementary = Elementary(self.module, machine.scales, self.attributes) if own else None
        timed = nests(function.body) if machine.clock and around is None else ()
        self.timed = {id(nest): number for number, nest in enumerate(timed, 1)}  # nests whose time is noted
        self.waiting: dict[int, Callable[[], None]] = {}  # by number, what emits a branch whose code is not wanted yet
        # functions for parts, by what parts have in common that are one, and whether they may end the run
        self.parts: dict[Hashable, tuple[str, bool]] = {}
        self._likeness: dict[tuple[int, tuple[str, ...]], tuple[ir.Block, Hashable, ir.Canonical]] = {}
        decided = function if around is None else replace(function, body=())  # a procedure has all its code
        self.branches = Branches(decided, self.plan.dynamic, self.likeness)
        self._emitted: set[int] = set()  # the branches
        self._varying: dict[int, frozenset[int]] = {}
        self._count = 0

    def varying(self, loop: ir.For) -> frozenset[int]:
        if id(loop) not in self._varying:
            self._varying[id(loop)] = ir.varying(loop)
        return self._varying[id(loop)]

    def likeness(self, block: ir.Block, *bound: str) -> tuple[Hashable, ir.Canonical]:
        """What blocks have in common that may be one function, and this block's canonical form.

        Beside the form that is which buffers may overlap. Code that notes times, or tells of arrays, is of one block.
        """
        if (id(block), bound) not in self._likeness:
            self._likeness[id(block), bound] = block, *self._likeness_of(block, bound)  # it stays, and so does its id
        _, likeness, found = self._likeness[id(block), bound]
        return likeness, found

    def _likeness_of(self, block: ir.Block, bound: tuple[str, ...]) -> tuple[Hashable, ir.Canonical]:
        found = ir.canonical(block, *bound)
        if self.timed or self.bounds is not None:
            return id(block), found
        names = [buffer.name for buffer in found.buffers]
        private = tuple(map(self.plan.is_private, names))
        return (found.form, private, *self.plan.overlapping(names)), found

    def attributes_of(self, body: Body) -> str:
        """The attributes of a function with this body, which is not inlined.

        What computes sizes and calls the loops is not optimised: that would take longer than it runs in most processes.
        """
        return f"noinline {f'{OPTNONE} ' if body.is_glue else ''}{self.attributes}"

    def of_procedure(self, procedure: ir.Function) -> Unit:
        """What the functions of a procedure share, in the same module."""
        return Unit(procedure, self.machine, self)

    def procedure_name(self, number: int) -> str:
        """The name of the function that a procedure is."""
        return f"procedure.{number}"

    def fresh(self, kind: str) -> str:
        """The name of another function of the module."""
        if self._around is not None:
            return self._around.fresh(kind)
        self._count += 1
        return f"{kind}.{self._count}"

    def emit_branch(self, number: int) -> None:
        """Emit a branch, and those around it before, unless that was done."""
        around = self.branches.around[number]
        if around is not None:
            self.emit_branch(around)
        if number not in self._emitted:
            self._emitted.add(number)
            self.waiting.pop(number)()

    def later(self, number: int, emit: Callable[[], None]) -> None:
        """Note what emits a branch, which was met."""
        if number not in self._emitted:
            self.waiting[number] = emit

    def look(self) -> str:
        """The name of the function that looks for signals, which leaves most registers as they are."""
        if not self.module.defines("look"):
            self.module.declare("adze_look", "declare i64 @adze_look(ptr) nounwind")
            self.module.define("look", _LOOK)
        return "look"

    def deeper(self) -> str:
        """The name of the function that has more of a stack for procedures, and gives where that ends."""
        if not self.module.defines("deeper"):
            self.module.define("deeper", _deeper())
        return "deeper"

    def clock(self) -> str:
        """The name of the function that adds the time since its last call to that of a part of the function."""
        if not self.module.defines("clock"):
            self.module.declare("clock_gettime", "declare i32 @clock_gettime(i32, ptr) nounwind")
            self.module.define("clock", _CLOCK.format(address=self.machine.clock))
        return "clock"

    def fail(self) -> str:
        """The name of the function that records a failure, unless there is one already."""
        if not self.module.defines("fail"):
            self.module.define("fail", _FAIL)
        return "fail"
