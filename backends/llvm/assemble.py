"""From the text of a module to machine code in memory.

A module is optimised by LLVM's pass manager for this CPU and assembled to object code, which a JIT links into the
process, until nobody refers to it any more. Object code needs nothing of what made it: kept on disk, it can be linked
by another process.

A large module comes in parts, which are compiled side by side. llvmlite lets one thread at a time into LLVM, which
itself asks only that a context (and what belongs to it: a module, its passes, the code generator) is used by one. So
each part has a context of its own, and the two long calls are made through ctypes, without llvmlite's lock.

What only some sizes need is apart (``branches.py``): modules that are compiled when they are needed.

What runs side by side is decided before, so LLVM is asked for little: it inlines what is to be inlined, and in each
function it simplifies, and moves out of loops what does not vary (the part of -O1 that looks at one function). Only a
module with loops of scalars gets all that it has, since it may yet make vectors of these (-O3). In deep nests that is
-O2, which leaves out one thing: to copy a loop for each condition that does not vary in it, here whether the loops
inside have any iterations. The time for that grows with the cube of the depth: of 8 loops it is nothing, of 16 half of
the time, of 32 nine tenths. Long functions that only prepare are not optimised at all (``optnone``, see ``unit.py``),
and have their registers given out in one pass where they are a module of their own: the allocator of optimised code
takes the square of their length. With ``ADZE_DEBUG=unoptimised`` nothing is optimised: that takes a fifth of the time,
and tells mistakes in what is emitted from what LLVM makes of it.
"""

from __future__ import annotations

import ctypes
import heapq
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import NewPassManager

from ...core.stages import stage
from .host import host
from .text import DEEP, FOR_CPU, SCALARS, UNOPTIMISED

_LENGTH = struct.Struct("<q")


@dataclass(frozen=True)
class Code:
    """What compiling a function makes: its module as emitted, in parts, and its object code."""

    parts: tuple[str, ...]
    machine_code: bytes  # the object of each part, behind its length
    seconds: float  # that the parts took, one after the other
    branches: Mapping[str, Callable[[], Sequence[str]]] = field(default_factory=dict)  # by name, what makes the others
    described: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # when each of them is taken, and what for
    needed: str = ""  # a module with what says which of them a call takes
    first: Mapping[str, Code] = field(default_factory=dict)  # those that were compiled with it


def compile_text(*parts: str) -> Code:
    """Optimise and assemble a module, which may come in parts that call each other, for this machine."""
    return compile_each([parts])[0]


def compile_each(texts: Iterable[Sequence[str]]) -> list[Code]:
    """Optimise and assemble modules, each in parts, of which two at a time are compiled, the longest first.

    What there is of ``texts`` is compiled while the rest is made.
    """
    with stage("LLVM"):
        parts = _Parts()
        with parts.compiled():
            given = [parts.add(text) for text in texts]
    return [_code(text, parts.made) for text in given]


def _code(parts: Sequence[str], made: Mapping[str, tuple[bytes, float]]) -> Code:
    objects = [made[part][0] for part in parts]
    machine_code = b"".join([_LENGTH.pack(len(each)) + each for each in objects])
    return Code(tuple(parts), machine_code, sum([made[part][1] for part in parts]))


class _Parts:
    """Modules that become object code: on another thread as they come, and on this one when all have come.

    An executor would do, but takes no more work once the main thread has ended, when others may still run.
    """

    def __init__(self) -> None:
        self.made: dict[str, tuple[bytes, float]] = {}  # the object code, and the seconds that it took
        self._known: set[str] = set()
        self._waiting: list[tuple[int, str]] = []  # a heap, by less than the length
        self._changed = threading.Condition()
        self._complete = False
        self._failures: list[Exception] = []
        self._other = threading.Thread(target=self._work)

    def add(self, parts: Sequence[str]) -> Sequence[str]:
        """Have some parts compiled, and give them back; those that are there already are compiled once."""
        with self._changed:
            for part in parts:
                if part not in self._known:
                    self._known.add(part)
                    heapq.heappush(self._waiting, (-len(part), part))
            self._changed.notify()
        if len(self._known) > 1 and self._other.ident is None:
            self._other.start()
        return parts

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Have what is added meanwhile compiled at the end."""
        try:
            yield
            self._complete = True
            self._work()
        finally:
            with self._changed:
                self._complete = True
                self._waiting.clear()  # there is something left where this thread has failed
                self._changed.notify()
            if self._other.ident is not None:
                self._other.join()
        if self._failures:
            raise self._failures[0]

    def _work(self) -> None:
        """Compile parts until there are no more."""
        # one for all of a kind, as making it takes as long as compiling a small function
        machines: dict[tuple[bool, str], Any] = {}
        try:
            while (part := self._next()) is not None:
                started, kind = time.perf_counter(), (_is_optimised(part), _cpu_of(part))
                if kind not in machines:
                    machines[kind] = target_machine(*kind)
                self.made[part] = _object(part, machines[kind]), time.perf_counter() - started
        except Exception as failure:
            self._failures.append(failure)

    def _next(self) -> str | None:
        """The longest part that waits, when there is one; None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._complete)
            return heapq.heappop(self._waiting)[1] if self._waiting else None


def _object(text: str, machine: Any) -> bytes:
    """The object code of a module."""
    message = ctypes.c_char_p()
    with _optimised(text, machine) as module:
        buffer = _unlocked().LLVMPY_TargetMachineEmitToMemory(machine, module, 1, ctypes.byref(message))
    if not buffer:
        raise RuntimeError("LLVM makes no object code of a module")
    start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
    made = ctypes.string_at(start, size)
    ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
    return made


@contextmanager
def _optimised(text: str, machine: Any) -> Iterator[Any]:
    """A module, optimised for a code generator, in a context of its own.

    Both are freed at the end, the module first: what a traceback holds after an interrupt is collected in any order.
    """
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
        if _is_optimised(text):
            _optimise(module, text, machine)
        yield module


def _optimise(module: Any, text: str, machine: Any) -> None:
    """Run the passes that the text of a module wants."""
    library, scalars = _unlocked(), SCALARS in text
    level = 1 if not scalars else 2 if DEEP in text else 3
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
    if scalars:
        with _freed(builder.getModulePassManager()) as passes:
            library.LLVMPY_RunNewModulePassManager(passes, module, builder)
        return
    with _freed(llvm.create_new_module_pass_manager()) as inliner:
        inliner.add_always_inliner_pass()
        library.LLVMPY_RunNewModulePassManager(inliner, module, builder)
    with _freed(builder.getFunctionPassManager()) as passes:
        for function in module.functions:
            if not function.is_declaration:
                library.LLVMPY_RunNewFunctionPassManager(passes, function, builder)


@contextmanager
def _freed(passes: Any) -> Iterator[Any]:
    """A pass manager, which is freed at the end: llvmlite's own destructor finds the method that frees nothing."""
    try:
        yield passes
    finally:
        NewPassManager._dispose(passes)
        passes.detach()


@cache
def _unlocked() -> Any:
    """The library behind llvmlite, for the calls that take long."""
    library = ctypes.CDLL(ffi.lib._name)
    address = ctypes.c_void_p
    library.LLVMPY_RunNewModulePassManager.argtypes = [address, address, address]
    library.LLVMPY_RunNewFunctionPassManager.argtypes = [address, address, address]
    library.LLVMPY_TargetMachineEmitToMemory.argtypes = [address, address, ctypes.c_int, address]
    library.LLVMPY_TargetMachineEmitToMemory.restype = ffi.LLVMMemoryBufferRef
    return library


def _objects(machine_code: bytes) -> Iterator[bytes]:
    """The objects of a module's parts."""
    start = 0
    while start < len(machine_code):
        length = int.from_bytes(machine_code[start : start + _LENGTH.size], "little", signed=True)
        start += _LENGTH.size
        if not 0 < length <= len(machine_code) - start:
            raise RuntimeError("this is no object code, or a part of one")
        yield machine_code[start : start + length]
        start += length


def target_machine(optimised: bool = True, cpu: str = "") -> Any:
    """LLVM's code generator for this CPU with all its features, or one of a name, for what is optimised, or is not."""
    host()
    features = "" if cpu else llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        opt=3 if optimised else 0, cpu=cpu or llvm.get_host_cpu_name(), features=features
    )


class _Linkers:
    """The JITs of the process, each for a few libraries, which keep it alive.

    A JIT takes room, and keeps some kilobytes of a library until all of its libraries are gone.
    """

    def __init__(self) -> None:
        self._lock, self._number = threading.Lock(), 0
        self._jit: Any = None

    def next(self) -> tuple[Any, str]:
        """The JIT for another library, and a name that no library has."""
        with self._lock:
            if self._number % _LIBRARIES == 0:
                self._jit = llvm.create_lljit_compiler()
            self._number += 1
            return self._jit, f"adze.{self._number}"


_LIBRARIES = 16  # of one JIT
_linkers = _Linkers()
_NONE: Mapping[str, int] = {}


def link(machine_code: bytes, exports: Sequence[str], imports: Mapping[str, int] = _NONE) -> Any:
    """Object code in memory: maps exported names to addresses, valid as long as the result is referenced."""
    library = llvm.JITLibraryBuilder().add_current_process()
    for each in _objects(machine_code):
        library.add_object_img(each)
    for name in exports:
        library.export_symbol(name)
    for name, address in imports.items():
        library.import_symbol(name, address)
    with stage("link"):
        return library.link(*_linkers.next())


def _is_optimised(text: str) -> bool:
    return not text.startswith(UNOPTIMISED)


def _cpu_of(text: str) -> str:
    """The processor that a module is for; empty: this one."""
    head = text.removeprefix(UNOPTIMISED).lstrip("\n")
    return head.partition("\n")[0].removeprefix(FOR_CPU) if head.startswith(FOR_CPU) else ""


def printed(code: Code) -> Any:
    """The optimised module, branches included, to be printed or assembled."""
    first, *others = _all_parts(code)
    context, machine = llvm.create_context(), target_machine(cpu=_cpu_of(first))

    def here(text: str) -> Any:
        with _optimised(text, machine) as module:
            return llvm.parse_bitcode(module.as_bitcode(), context)

    module = here(first)
    for part in others:
        there, added = {each.name for each in module.functions if not each.is_declaration}, here(part)
        for function in added.functions:
            if function.name in there and not function.is_declaration:
                function.linkage = "weak_odr"  # what several branches call is once in each
        module.link_in(added)
    return module


def assembly(code: Code) -> str:
    """The object code as text, all of it as the code generator writes what is optimised, where anything is."""
    parts = _all_parts(code)
    text: str = target_machine(any(map(_is_optimised, parts)), _cpu_of(parts[0])).emit_assembly(printed(code))
    return text


def _all_parts(code: Code) -> list[str]:
    """The modules of a function and of its branches."""
    return [*code.parts, *[part for make in code.branches.values() for part in make()]]
