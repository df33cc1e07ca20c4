"""From the text of a module to machine code in memory.

A module is optimised by LLVM's pass manager for this CPU and assembled to object code, which is linked into one JIT
for the whole process. Object code needs nothing of what made it: kept on disk, it can be linked by another process.

A large module comes in parts, which are compiled side by side. llvmlite lets one thread at a time into LLVM, which
itself asks only that a context (and what belongs to it: a module, its passes, the code generator) is used by one. So
each part has a context of its own, and the two long calls are made through ctypes, without llvmlite's lock.

What only some sizes need is apart (``branches.py``): modules that are compiled when they are needed.

What runs side by side is decided before, so LLVM is asked for little: it inlines what is to be inlined, and in each
function it simplifies, and moves out of loops what does not vary (the part of -O1 that looks at one function). Only a
module with loops of scalars gets all that it has, since it may yet make vectors of these (-O3).
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from .host import host
from .text import SCALARS

_LENGTH = struct.Struct("<q")


@dataclass(frozen=True)
class Code:
    """What compiling a function makes: its module as emitted, as optimised (bitcode, by part), and its object code."""

    emitted: str
    optimised: tuple[bytes, ...]
    machine_code: bytes  # the object of each part, behind its length
    branches: Mapping[str, Sequence[str]] = field(default_factory=dict)  # modules apart, by the function they hold


def compile_text(*parts: str) -> Code:
    """Optimise and assemble a module, which may come in parts that call each other, for this machine."""
    return compile_each([parts])[0]


def compile_each(texts: Sequence[Sequence[str]]) -> list[Code]:
    """Optimise and assemble modules, each in parts, of which two at a time are compiled, the longest first."""
    parts = [[_Module(part) for part in text] for text in texts]
    modules = [part for each in parts for part in each]
    waiting = sorted(modules, key=lambda module: len(module.text))

    def work() -> None:
        while True:
            try:
                module = waiting.pop()
            except IndexError:
                return
            module.compile()

    other = threading.Thread(target=work)
    if len(modules) > 1:
        other.start()
    work()
    if len(modules) > 1:
        other.join()
    if any(not module.machine_code for module in modules):
        raise RuntimeError("LLVM makes no object code of a module")
    return [_code(each) for each in parts]


def _code(parts: Sequence[_Module]) -> Code:
    objects = b"".join([_LENGTH.pack(len(part.machine_code)) + part.machine_code for part in parts])
    return Code("\n".join([part.text for part in parts]), tuple([part.optimised for part in parts]), objects)


class _Module:
    """A module in a context of its own, with what compiles it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.machine = target_machine()
        self.module = llvm.parse_assembly(text, llvm.create_context())
        self.module.triple = self.machine.triple
        self.module.data_layout = str(self.machine.target_data)
        self.module.verify()
        self.scalars = SCALARS in text
        options = llvm.create_pipeline_tuning_options(speed_level=3 if self.scalars else 1)
        self.builder = llvm.create_pass_builder(self.machine, options)
        if self.scalars:
            self.passes = self.builder.getModulePassManager()
        else:
            self.passes = llvm.create_new_module_pass_manager()
            self.passes.add_always_inliner_pass()
            self.of_functions = self.builder.getFunctionPassManager()
        self.optimised = self.machine_code = b""

    def compile(self) -> None:
        """Optimise the module and make object code of it."""
        library, message = _unlocked(), ctypes.c_char_p()
        library.LLVMPY_RunNewModulePassManager(self.passes, self.module, self.builder)
        if not self.scalars:
            for function in self.module.functions:
                if not function.is_declaration:
                    library.LLVMPY_RunNewFunctionPassManager(self.of_functions, function, self.builder)
        self.optimised = self.module.as_bitcode()
        buffer = library.LLVMPY_TargetMachineEmitToMemory(self.machine, self.module, 1, ctypes.byref(message))
        if buffer:
            start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
            self.machine_code = ctypes.string_at(start, size)
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


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
        (length,) = _LENGTH.unpack_from(machine_code, start)
        start += _LENGTH.size
        yield machine_code[start : start + length]
        start += length


def target_machine() -> Any:
    """LLVM's code generator for this CPU, with all its features."""
    host()
    return llvm.Target.from_default_triple().create_target_machine(
        opt=3, cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten()
    )


@cache
def _linker() -> Any:
    """The process's JIT. It is never closed: threads may be inside its code when the interpreter ends."""
    jit = llvm.create_lljit_compiler()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(jit))
    return jit


_numbers = itertools.count()
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
    return library.link(_linker(), f"adze.{next(_numbers)}")


def printed(code: Code) -> Any:
    """The optimised module again, to be printed or assembled."""
    context = llvm.create_context()
    apart = [part for branch in compile_each(list(code.branches.values())) for part in branch.optimised]
    module = llvm.parse_bitcode(code.optimised[0], context)
    for part in (*code.optimised[1:], *apart):
        module.link_in(llvm.parse_bitcode(part, context))
    return module


def assembly(code: Code) -> str:
    """The object code as text."""
    text: str = target_machine().emit_assembly(printed(code))
    return text
