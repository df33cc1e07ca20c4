"""Compiled functions of the loop IR: linked, and called.

An :class:`Executable` is made from object code, whether that was just compiled or comes from an earlier process on
the same kind of machine.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import replace

from ...core.source import at_line
from .. import loops
from ..runtime import Failure
from ..transformations import ALL, Transformations
from .assemble import Code, compile_text, link
from .emit import emit
from .frames import Frame, entries
from .host import host
from .pool import workers
from .unit import OUT_OF_MEMORY

_FAILURE_WORDS = 5


def compiled(function: loops.Function, allowed: Transformations = ALL) -> Code:
    """A function of the loop IR as code for this machine."""
    machine = host()
    target = replace(machine.target, transformations=allowed)
    return compile_text(*emit(function, replace(machine, target=target)).parts())


def is_parallel(function: loops.Function) -> bool:
    """Whether a function has loops that threads share."""
    return any(isinstance(each, loops.For) and each.kind == "parallel" for each in loops.walk(function.body))


class Executable:
    """Object code in memory. It may be called from several threads at once."""

    def __init__(self, machine_code: bytes, parallel: bool) -> None:
        self._workers = workers() if parallel else None
        imports = {} if self._workers is None else {"adze_parallel": self._workers.pool.parallel}
        self._library = link(machine_code, ("entry", "arena_bytes"), imports)
        self.entry = int(self._library["entry"])
        self._arena_bytes = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(
            self._library["arena_bytes"]
        )
        self._launch = entries().launch

    def launch(self, frame: Frame, sizes: Sequence[int], threads: int) -> Failure | None:
        """Run on a frame whose addresses and sizes are there; tells of the first requirement that failed."""
        if self._workers is not None and threads > 1:
            self._workers.ensure(threads)
        wanted = (threads, *sizes)
        if frame.wanted != wanted:
            frame.reserve(self.arena_bytes(sizes, threads))
            frame.wanted = wanted
        site = self._launch(frame.address, threads)
        if not site:
            return None
        if site == OUT_OF_MEMORY:
            raise MemoryError(at_line("no memory for an array whose size the run decides"))
        return Failure(site - 1, tuple(frame.failure(_FAILURE_WORDS)[1:]))

    def run(self, addresses: Sequence[int], sizes: Sequence[int], threads: int) -> Failure | None:
        """Run on buffers at these addresses: of arguments, then results, then the records of returned arrays."""
        frame = Frame(self.entry, len(addresses), len(sizes))
        for word, value in enumerate((*addresses, *sizes), frame.addresses):
            frame.words[word] = value
        return self.launch(frame, sizes, threads)

    def arena_bytes(self, sizes: Sequence[int], threads: int) -> int:
        """The size of the arena of a call."""
        return int(self._arena_bytes(struct.pack(f"{len(sizes)}q", *sizes), threads))
