"""From the text of a module to machine code in memory.

A module is optimised by LLVM's pass manager for this CPU and assembled to object code, which is linked into one JIT
for the whole process. Object code needs nothing of what made it: kept on disk, it can be linked by another process.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from .host import host


@dataclass(frozen=True)
class Code:
    """What compiling a function makes: the module as emitted, as optimised (bitcode), and its object code."""

    emitted: str
    optimised: bytes
    machine_code: bytes


def compile_text(text: str) -> Code:
    """Optimise and assemble a module for this machine."""
    machine = target_machine()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    optimised = module.as_bitcode()
    return Code(text, optimised, machine.emit_object(module))  # which changes the module


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
    library = llvm.JITLibraryBuilder().add_object_img(machine_code).add_current_process()
    for name in exports:
        library.export_symbol(name)
    for name, address in imports.items():
        library.import_symbol(name, address)
    return library.link(_linker(), f"adze.{next(_numbers)}")


def printed(code: Code) -> Any:
    """The optimised module again, to be printed or assembled."""
    return llvm.parse_bitcode(code.optimised, llvm.create_context())


def assembly(code: Code) -> str:
    """The object code as text."""
    text: str = target_machine().emit_assembly(printed(code))
    return text
