"""Kernels as OpenCL C 1.2, to be read by people.

A kernel that has lanes is run by groups: what stands outside of the lanes is run by all threads of a group alike, its
stores by the first one, and lanes are shared out among them. Any other kernel is run by threads. There is one for each
iteration of a grid; where each needs memory, fewer threads take iterations a grid apart, and so do groups. The loops of
a grid are one range of numbers, from which those of the loops are computed, the last one the fastest.

    kernel compute_y                         // y[i, j] for i < n, j < m
      parallel i < n                         kernel void compute_y(const long n, const long m,
        parallel j < m                                             global const double *restrict x,
          y[i, j] = x[i, j] + 1.0      =>                          global double *restrict y) {
                                               const long at = get_global_id(0);
                                               if (at < n * m) {
                                                 const long i = at / m;
                                                 const long j = at % m;
                                                 y[i * m + j] = x[i * m + j] + 1.0;
                                               }
                                             }

Temporaries of a thread are arrays of its own where they are small and their size is known, and else a part of a
buffer for all threads, whose elements lie side by side (element 0 of all threads, then element 1). A requirement that
fails is written to ``failure`` by whoever comes first: the number of its site plus one, then its integers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from ...core.types import Scalar
from .. import ir
from ..memory.arena import room
from .atomics import Space
from .contents import awake, buffers_of, changes, conflicts, guards, names_of
from .expressions import COUNTER, MEMORY, REGISTER, Expressions, c_name
from .inlining import inlined
from .measures import measure, measures_of

# Temporaries of a thread of at most so many bytes are arrays of its own.
OWN_BYTES = 1024
FAILURE_VALUES = 4

_FAIL = """\
// Note the first requirement that fails: its number, and what it was about.
void fail(volatile global int *failure, int site, long a, long b, long c, long d) {
  if (atomic_cmpxchg(failure, 0, site) == 0) {
    volatile global long *values = (volatile global long *)(failure + 2);
    values[0] = a;
    values[1] = b;
    values[2] = c;
    values[3] = d;
  }
}"""


@dataclass(frozen=True)
class Scratch:
    """Memory for a temporary of each thread, or of each group."""

    buffer: ir.Buffer
    of_group: bool


@dataclass(frozen=True)
class Entry:
    """A kernel, and what its call is given, in this order."""

    name: str
    text: str
    scalars: tuple[tuple[str, Scalar], ...]  # known to the host
    buffers: tuple[ir.Buffer, ...]
    scratch: tuple[Scratch, ...]
    shared: tuple[ir.Buffer, ...]  # local memory whose size the call decides
    fails: bool  # it is given the record of failures
    grid: tuple[ir.Expression, ...]  # extents of the loops that are shared out; () for one thread or one group
    grouped: bool
    group: int

    @property
    def parameter_bytes(self) -> int:
        """What its call passes, with eight bytes for an address."""
        addresses = len(self.buffers) + len(self.scratch) + len(self.shared) + self.fails
        return 8 * addresses + sum(scalar.bytes for _, scalar in self.scalars)

    @property
    def strides(self) -> bool:
        """Whether threads or groups take iterations a grid apart, so that there may be any number of them."""
        return self.grouped or bool(self.scratch)


@dataclass(frozen=True)
class Source:
    """The program of a function: its text, and its kernels by name."""

    text: str
    entries: dict[str, Entry]


def source(function: ir.Function, group: int) -> Source:
    """The OpenCL C of all kernels of a split function, for groups of so many threads."""
    measures = measures_of(function)
    entries: dict[str, Entry] = {}
    helpers: dict[str, str] = {}
    for statement in ir.walk(function.body):
        if isinstance(statement, ir.Kernel):
            kernel = ir.Kernel(statement.name, inlined(statement.body))
            writer = _Writer(kernel, measures, group, helpers)
            entries[statement.name] = writer.entry()
    head = ["#pragma OPENCL FP_CONTRACT OFF"]
    texts = [*helpers.values(), *[entry.text for entry in entries.values()]]
    everything = "\n".join(texts)
    if "double" in everything:
        head.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
    return Source("\n\n".join(["\n".join(head), *texts]) + "\n", entries)


class _Writer(Expressions):
    """Writes one kernel."""

    def __init__(self, kernel: ir.Kernel, measures: dict[str, int], group: int, helpers: dict[str, str]) -> None:
        super().__init__()
        self.helpers = helpers
        self.kernel, self.group = kernel, group
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, str] = {}  # by variable: other names than its own
        self.counters = dict(measures)  # sizes, what counts, and what is made of these: at most
        self.scratch: list[Scratch] = []
        self.interleaved: set[str] = set()
        self.shared: list[ir.Buffer] = []
        self.local: list[str] = []  # declarations at the beginning
        self.own: set[str] = set()  # buffers of the kernel itself
        self.spaces: dict[str, Literal["local", "private"]] = {}  # where not global
        self.parts: Counter[str] = Counter()  # loops that combine into a variable
        self.in_lanes = False
        self.fails = False
        statements = list(ir.walk(kernel.body))
        self.grouped = any(isinstance(each, ir.For) and each.kind == "lanes" for each in statements)
        self.stems: defaultdict[str, set[str]] = defaultdict(set)
        for name in names_of(kernel.body):
            self.stems[_stem(name)].add(name)
        self.conflicts = conflicts(kernel.body)

    # The whole

    def entry(self) -> Entry:
        kernel = self.kernel
        before, loops, body = ir.grid(awake(kernel.body))
        bound = ir.bound_in(kernel.body)
        scalars = {part.name: part.type for part in ir.variables_of(kernel.body) if part.name not in bound}
        for test in guards(kernel.body):
            self.line(f"if (!({self.text(test)})) return;")
        for statement in before:
            self.statement(statement)
        self.iterations(loops, body)
        written = ir.written_in(kernel.body)
        buffers = [buffer for buffer in buffers_of(kernel.body) if buffer.name not in self.own]
        # what the host alone knows, for memory of threads
        for scratch in self.scratch:
            for part in ir.variables_in(scratch.buffer.extents):
                scalars.setdefault(part.name, part.type)
        parameters = [f"const {MEMORY[scalar]} {self.called(name)}" for name, scalar in scalars.items()]
        for buffer in buffers:
            const = "" if buffer.name in written else "const "
            parameters.append(f"global {const}{MEMORY[buffer.scalar]} *restrict {self.called(buffer.name)}")
        for each in self.scratch:
            parameters.append(f"global {MEMORY[each.buffer.scalar]} *restrict {self.all(each.buffer)}")
        for buffer in self.shared:
            parameters.append(f"local {MEMORY[buffer.scalar]} *restrict {self.called(buffer.name)}")
        if self.fails:
            parameters.append("volatile global int *failure")
        head = f"kernel void {c_name(kernel.name)}("
        signature = head + ", ".join(parameters) + ") {"
        if len(signature) > 110:
            signature = head + "".join(f"\n    {p}," for p in parameters).rstrip(",") + ") {"
        attribute = f"__attribute__((reqd_work_group_size({self.group if self.grouped or loops else 1}, 1, 1)))"
        text = "\n".join([self.comment(loops, body), attribute, signature, *self.local, *self.lines, "}"])
        return Entry(
            kernel.name,
            text,
            tuple(scalars.items()),
            tuple(buffers),
            tuple(self.scratch),
            tuple(self.shared),
            self.fails,
            tuple(loop.extent for loop in loops),
            self.grouped,
            self.group,
        )

    def comment(self, loops: Sequence[ir.For], body: ir.Block) -> str:
        """What the kernel computes."""
        written: dict[str, None] = {}
        for statement in ir.walk(body):
            if isinstance(statement, ir.Store | ir.Update) and statement.buffer.name not in self.own:
                places = ", ".join(self.text(index) for index in statement.indices)
                written.setdefault(f"{self.called(statement.buffer.name)}[{places}]")
        some = list(written)[:4]
        what = ", ".join(some) + (", ..." if len(written) > 4 else "") or "Requirements"
        where = ", ".join(f"{self.called(loop.variable)} < {self.text(loop.extent)}" for loop in loops)
        who = "group" if self.grouped else "thread"
        return f"// {what} for {where}: a {who} each" if where else f"// {what} by one {who}"

    def iterations(self, loops: Sequence[ir.For], body: ir.Block) -> None:
        """The body, for the iterations of a grid."""
        if not loops:
            self.block(body)
            return
        self.counters.update({loop.variable: COUNTER for loop in loops})
        first, step = _GROUPS if self.grouped else _THREADS
        extents = [self.text(loop.extent) for loop in loops]
        at, whole = "at", " * ".join(_factor(each) for each in extents)
        if len(loops) == 1:
            at, whole = self.called(loops[0].variable), _term(extents[0])
        beginning = len(self.lines)
        self.open(f"for (long {at} = {first}; {at} < {whole}; {at} += {step}) {{")
        if len(loops) > 1:
            self.counted(loops, [_factor(each) for each in extents])
        self.block(body)
        self.close()
        if not self.grouped and not self.scratch:  # there is a thread for each
            self.lines[beginning : beginning + 1] = [f"  const long {at} = {first};", f"  if ({at} < {whole}) {{"]

    def counted(self, loops: Sequence[ir.For], extents: Sequence[str]) -> None:
        """The counters of a grid's loops, from the number of an iteration."""
        left = "at"
        for k in range(len(loops) - 1, 0, -1):
            self.line(f"const long {self.called(loops[k].variable)} = {left} % {extents[k]};")
            if k > 1:
                self.line(f"const long rest{k} = {left} / {extents[k]};")
                left = f"rest{k}"
            else:
                left = f"{left} / {extents[k]}"
        self.line(f"const long {self.called(loops[0].variable)} = {left};")

    # Lines

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text)
        self.depth += 1

    def close(self, text: str = "}") -> None:
        self.depth -= 1
        self.line(text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        self.open(head + " {")
        yield
        self.close()

    def declare(self, line: str) -> None:
        """Local memory, which is declared where the kernel begins."""
        if line not in self.local:
            self.local.append(line)

    # Names and places

    def called(self, name: str) -> str:
        """What a name is in C: without its number, where the kernel has no other name of that stem."""
        stem = _stem(name)
        return c_name(stem if self.stems[stem] == {name} else name)

    def all(self, buffer: ir.Buffer) -> str:
        """The memory of all threads for a temporary."""
        return f"{self.called(buffer.name)}_all"

    def variable(self, name: str) -> str:
        return self.names.get(name) or self.called(name)

    def is_index(self, name: str) -> bool:
        return name in self.counters

    def most(self, name: str) -> int:
        return self.counters[name]

    def element(self, buffer: ir.Buffer, indices: Sequence[str]) -> str:
        place = ""
        for index, extent in zip(indices, buffer.extents, strict=True):
            part = self.text(extent)
            place = f"{_factor(place)} * {_factor(part)} + {_term(index)}" if place else index
        place = place or "0"
        if buffer.name in self.interleaved:
            place = f"{_factor(place)} * get_global_size(0)" if place != "0" else "0"
        return f"{self.called(buffer.name)}[{place}]"

    # Statements

    def block(self, block: ir.Block) -> None:
        for statement in block:
            self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let(name, value):
                measure(name, value, self.counters)
                self.line(f"const {REGISTER[value.type]} {self.called(name)} = {self.text(value)};")
            case ir.Declare(name, initial):
                self.line(f"{REGISTER[initial.type]} {self.called(name)} = {self.text(initial)};")
            case ir.Assign(name, value):
                self.line(self.assignment(self.variable(name), name, value))
            case ir.Store() | ir.Update():
                self.write(statement)
            case ir.Barrier():
                self.wait()
            case ir.Allocate(buffer):
                self.allocate(buffer, statement.shared)
            case ir.For(kind="lanes"):
                self.lanes(statement)
            case ir.For():
                self.loop(statement)
            case ir.If():
                self.branch(statement)
            case ir.While():
                self.repeat(statement)
            case ir.Require(test, site, values):
                self.require(self.text(test), site, [self.text(value) for value in values])
            case ir.Kernel() | ir.Return():
                raise AssertionError("only the host runs kernels and returns arrays")

    def assignment(self, target: str, name: str, value: ir.Expression) -> str:
        match value:
            case ir.Apply(primitive, (ir.Variable(first), other)) if first == name and value.type.kind == "float":
                if primitive.infix in ("+", "-", "*", "/"):
                    return f"{target} {primitive.infix}= {self.text(other)};"
        return f"{target} = {self.text(value)};"

    def write(self, statement: ir.Store | ir.Update) -> None:
        """A store or an update; outside of lanes, the first thread of a group alone does it."""
        buffer = statement.buffer
        indices = [self.text(index) for index in statement.indices]
        place = self.element(buffer, indices)
        if isinstance(statement, ir.Update):
            space: Space = "local" if self.spaces.get(buffer.name) == "local" else "global"
            helper = self.update(statement.primitive, buffer.scalar, space)
            text = f"{helper}(&{place}, {self.text(statement.value)});"
        else:
            text = f"{place} = {self.text(statement.value)};"
        tests = [self.guard(buffer, indices, statement.guarded)] if statement.guarded else []
        alone = self.grouped and not self.in_lanes and self.spaces.get(buffer.name) != "private"
        if alone:
            tests.insert(0, "get_local_id(0) == 0")
        with self.waiting(alone and buffer.name in self.conflicts):
            self.line(f"if ({' && '.join(tests)}) {text}" if tests else text)

    def wait(self) -> None:
        """All threads of a group wait for each other."""
        if not self.lines or self.lines[-1].strip() != _BARRIER:
            self.line(_BARRIER)

    @contextmanager
    def waiting(self, hazard: bool) -> Iterator[None]:
        """What writes to memory that others read, between two barriers."""
        if hazard:
            self.wait()
        yield
        if hazard:
            self.wait()

    def loop(self, loop: ir.For) -> None:
        with self.turns(loop, "0", "++"):
            self.block(loop.body)

    @contextmanager
    def turns(self, loop: ir.For, first: str, step: str) -> Iterator[None]:
        """The head of a loop; where the body changes what its extent is made from, that is computed before."""
        i, extent = self.called(loop.variable), _term(self.text(loop.extent))
        self.counters[loop.variable] = COUNTER
        before = ""
        if changes(loop.body, loop.extent):
            before, extent = f", {i}_all = {extent}", f"{i}_all"
        with self.braces(f"for (long {i} = {first}{before}; {i} < {extent}; {i}{step})"):
            yield

    def branch(self, statement: ir.If) -> None:
        self.open(f"if ({self.text(statement.test)}) {{")
        self.block(statement.then)
        if statement.orelse:
            self.close("} else {")
            self.depth += 1
            self.block(statement.orelse)
        self.close()

    def repeat(self, statement: ir.While) -> None:
        """A while; it ends when a requirement inside has failed, for all threads of a group at the same time."""
        with self.braces("while (true)"):
            self.block(statement.head)
            test = self.text(statement.test)
            if ir.contains((statement,), ir.Require):
                self.fails = True
                if self.grouped and not self.in_lanes:
                    self.declare("  local int failed;")
                    self.wait()
                    self.line("if (get_local_id(0) == 0) failed = *failure;")
                    self.wait()
                    test = f"({test}) && failed == 0"
                else:
                    test = f"({test}) && *failure == 0"
            self.line(f"if (!({test})) break;")
            self.block(statement.body)

    def require(self, test: str, site: int, values: Sequence[str]) -> None:
        self.fails = True
        self.helpers.setdefault("fail", _FAIL)
        record = ", ".join([*values, *["0"] * (FAILURE_VALUES - len(values))])
        self.line(f"if (!({test})) fail(failure, {site + 1}, {record});")

    # Temporaries

    def allocate(self, buffer: ir.Buffer, shared: bool) -> None:
        """A temporary of a thread, or of a group."""
        name, memory = self.called(buffer.name), MEMORY[buffer.scalar]
        self.own.add(buffer.name)
        count = _count(buffer)
        if shared:
            self.spaces[buffer.name] = "local"
            if count is None:
                self.shared.append(buffer)
            else:
                self.local.append(f"  local {memory} {name}[{count}]{_WORDS if buffer.scalar.bytes < 4 else ''};")
            return
        if self.grouped and not self.in_lanes:
            self.scratch.append(Scratch(buffer, True))
            self.line(f"global {memory} *{name} = {self.all(buffer)} + get_group_id(0) * {self.room(buffer)};")
            return
        self.spaces[buffer.name] = "private"
        if count is not None and count * buffer.scalar.bytes <= OWN_BYTES:
            self.line(f"{memory} {name}[{count}];")
        else:
            self.scratch.append(Scratch(buffer, False))
            self.interleaved.add(buffer.name)
            self.line(f"global {memory} *{name} = {self.all(buffer)} + get_global_id(0);")

    def room(self, buffer: ir.Buffer) -> str:
        """How many elements a buffer has room for, as the host counts them (``memory.room``)."""
        size = "1"
        for extent in buffer.extents:
            text = _factor(self.text(extent))
            more = text if size == "1" else f"{size} * {text}"
            if not isinstance(extent, ir.Constant):
                size = f"({text} > 0 ? {more} : 1)"
            else:
                size = more if extent.value > 0 else "1"
        return size

    # Lanes

    def lanes(self, loop: ir.For) -> None:
        """The iterations of a loop, shared out among the threads of a group; what they combine into, all have then."""
        assert not self.in_lanes and loop.factor == self.group
        with self.waiting(bool(ir.written_in(loop.body) & self.conflicts)):
            self.shared_out(loop)

    def shared_out(self, loop: ir.For) -> None:
        owns = []
        for reduction in loop.reductions:
            own = self.own_name(reduction)
            owns.append((reduction, self.variable(reduction.name), own))
            scalar = reduction.neutral.type
            self.line(f"{REGISTER[scalar]} {own} = {self.text(reduction.neutral)};")
            self.names[reduction.name] = own
        self.in_lanes = True
        if loop.extent == ir.Constant(self.group):
            self.counters[loop.variable] = COUNTER
            with self.braces(""):
                self.line(f"const long {self.called(loop.variable)} = get_local_id(0);")
                self.block(loop.body)
        else:
            with self.turns(loop, "get_local_id(0)", f" += {self.group}"):
                self.block(loop.body)
        self.in_lanes = False
        for reduction, total, own in owns:
            self.names.pop(reduction.name)
            self.combine(reduction, total, own)

    def own_name(self, reduction: ir.Reduction) -> str:
        """The name of a thread's own part: another one for each loop."""
        self.parts[reduction.name] += 1
        number = self.parts[reduction.name]
        return f"{self.called(reduction.name)}{number if number > 1 else ''}_own"

    def combine(self, reduction: ir.Reduction, total: str, own: str) -> None:
        """A total of all threads' own."""
        scalar = reduction.neutral.type
        all_ = f"{self.called(reduction.name)}_all"
        declaration = f"  local {MEMORY[scalar]} {all_}[{self.group}];"
        self.declare(declaration)
        self.line(f"{all_}[get_local_id(0)] = {own};")
        self.wait()
        both = self.apply(reduction.primitive, scalar, f"{all_}[get_local_id(0)]", f"{all_}[get_local_id(0) + width]")
        with self.braces(f"for (int width = {self.group // 2}; width > 0; width /= 2)"):
            self.line(f"if (get_local_id(0) < width) {all_}[get_local_id(0)] = {both};")
            self.wait()
        self.line(f"{total} = {self.apply(reduction.primitive, scalar, total, f'{all_}[0]')};")
        self.wait()


_WORDS = " __attribute__((aligned(4)))"  # what is smaller is updated by the word that it is in
_GROUPS = ("get_group_id(0)", "get_num_groups(0)")
_THREADS = ("get_global_id(0)", "get_global_size(0)")
_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"

# Text


def _factor(text: str) -> str:
    return f"({text})" if " " in text or text.startswith("-") else text


def _term(text: str) -> str:
    return f"({text})" if any(sign in text for sign in ("?", "<", ">", "&", "|", "=")) else text


def _count(buffer: ir.Buffer) -> int | None:
    """How many elements a buffer has room for, if that is known: whole words."""
    extents = [extent.value for extent in buffer.extents if isinstance(extent, ir.Constant)]
    if len(extents) < len(buffer.extents):
        return None
    count = room(map(int, extents))
    return -(-count // 4) * 4 if buffer.scalar.bytes < 4 else count


def _stem(name: str) -> str:
    """A name without its number."""
    return name.rstrip("0123456789") or name
