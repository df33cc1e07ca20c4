"""Compiled functions of the loop IR: made, called and looked at.

An :class:`Executable` can also be made from the :class:`Code` of an earlier one, in another process on the same
kind of machine; nothing is compiled then.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .. import loops
from ..runtime import Failure
from .assemble import Code, compile_text, link, printed, target_machine
from .emit import emit
from .host import host
from .pool import workers
from .unit import ALIGNMENT, OUT_OF_MEMORY

_FAILURE_WORDS = 5
_HEAD = ALIGNMENT  # bytes before the arena, where the failure record is


class _Arena:
    """The memory of one call: the failure record, then room for temporaries."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = np.empty(size + _HEAD + ALIGNMENT, np.uint8)
        self.failure = -(-self._memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.base = self.failure + _HEAD


class Executable:
    """A compiled function of the loop IR. It may be called from several threads at once."""

    def __init__(self, function: loops.Function, code: Code | None = None) -> None:
        started = time.perf_counter()
        self.code = code or compile_text(emit(function, host()))
        statements = loops.walk(function.body)
        self._parallel = any(isinstance(each, loops.For) and each.kind == "parallel" for each in statements)
        imports = {"adze_parallel": workers().pool.parallel} if self._parallel else {}
        self._library = link(self.code.machine_code, ("entry", "arena_bytes"), imports)
        address = ctypes.c_void_p
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int64, address, address, address, ctypes.c_int64, address)(
            self._library["entry"]
        )
        self._arena_bytes = ctypes.CFUNCTYPE(ctypes.c_int64, address, ctypes.c_int64)(self._library["arena_bytes"])
        self._addresses = struct.Struct(f"{len(function.arguments) + len(function.results) + function.returned}q").pack
        self._sizes = struct.Struct(f"{len(function.sizes)}q").pack
        self._arenas: list[_Arena] = []
        self._wanted: tuple[tuple[int, ...], int] = ((), 0)  # sizes and threads, and the bytes of their arena
        self.compile_seconds = time.perf_counter() - started

    def run(self, addresses: Sequence[int], sizes: Sequence[int], threads: int) -> Failure | None:
        """Run on buffers at these addresses; tells of the first requirement that failed.

        The addresses are those of arguments, then results, then the records of returned arrays.
        """
        packed = self._sizes(*sizes)
        if self._parallel and threads > 1:
            workers().ensure(threads)
        arena = self._arena(packed, (*sizes, threads))
        site = self._entry(self._addresses(*addresses), packed, arena.base, threads, arena.failure)
        failure = None
        if site == OUT_OF_MEMORY:
            raise MemoryError("no memory for a temporary array")
        if site:
            record = (ctypes.c_int64 * _FAILURE_WORDS).from_address(arena.failure)
            failure = Failure(site - 1, tuple(record[1:]))
        self._arenas.append(arena)
        return failure

    def arena_bytes(self, sizes: Sequence[int], threads: int) -> int:
        """The size of the arena of a call."""
        return int(self._arena_bytes(self._sizes(*sizes), threads))

    def _arena(self, packed: bytes, key: tuple[int, ...]) -> _Arena:
        """An arena that no other call uses, and that is large enough for these sizes and threads."""
        known, wanted = self._wanted
        if known != key:
            wanted = self._arena_bytes(packed, key[-1])
            self._wanted = key, wanted
        try:
            arena = self._arenas.pop()
        except IndexError:
            return _Arena(wanted)
        return arena if arena.size >= wanted else _Arena(wanted)

    @cached_property
    def llvm_ir(self) -> str:
        """The module as optimised."""
        return str(printed(self.code))

    @property
    def emitted_ir(self) -> str:
        """The module as emitted."""
        return self.code.emitted

    @cached_property
    def assembly(self) -> str:
        """The machine code, as assembly."""
        text: str = target_machine().emit_assembly(printed(self.code))
        return text
