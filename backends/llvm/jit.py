"""Compiled functions of the loop IR: linked, and called.

An :class:`Executable` is made from object code, whether that was just compiled or comes from an earlier process on
the same kind of machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

from ...core.c_functions import CFunction
from ...core.limits import lifted_limits
from ...core.source import at_line
from ...core.stages import CALL, RUNTIME, compiling, stage
from ...core.types import Type, rank
from .. import ir
from ..runtime import Failure
from ..specialisations import COMPILED, LOADED
from .assemble import Code, compile_each, compile_text, link
from .callbacks import Callbacks
from .control import FLUSH
from .emit import emit
from .forks import forks
from .frames import Frame, entries
from .host import Machine, host
from .pool import workers
from .stacks import stacks
from .text import Module
from .unit import OUT_OF_CELLS, OUT_OF_MEMORY

_FAILURE_WORDS = 5
_ENTRIES = ("entry", "arena_bytes", "layout_words", "needed")
_LAYOUTS = 64  # of arenas, for the sizes of the last calls

# A module apart: what gives its text by part, what that was compiled to, or its object code from an earlier process
Branch = Callable[[], Sequence[str]] | Code | bytes
_NONE: Mapping[str, Branch] = {}
_NO_FUNCTIONS: Mapping[str, CFunction] = {}


def compiled(function: ir.Function, machine: Machine | None = None, sizes: Sequence[int] | None = None) -> Code:
    """A function of the loop IR as code for a machine (default: this one), with the branches that a call takes.

    Those are compiled beside the rest where the ``sizes`` of a call are given, else when a call needs them.
    """
    code = emitted(function, machine or host())
    first: list[str] = []

    def texts() -> Iterator[Sequence[str]]:
        yield code.parts
        if sizes is not None and code.branches:
            needed = _Needed(link(compile_text(code.needed).machine_code, ("needed",)), len(code.branches))
            first.extend(compress(code.branches, needed.of(sizes)))
            for name in first:
                yield code.branches[name]()

    made, *others = compile_each(texts())
    beside = {name: replace(each, parts=()) for name, each in zip(first, others, strict=True)}
    return replace(code, machine_code=made.machine_code, seconds=made.seconds, first=beside)


def emitted(function: ir.Function, machine: Machine) -> Code:
    """A function of the loop IR as the text of modules, which nothing has compiled yet."""
    with stage("emit"):
        module = emit(function, machine)
        parts = tuple(module.parts())
    later = Later(lambda: function, machine, digest_of(parts), module)
    described = module.branches()
    branches = {name: partial(later.branch, name) for name in described}
    return Code(parts, b"", 0.0, branches, described, module.alone("needed") if branches else "")


def object_of(branch: Branch) -> bytes:
    """The object code of a branch; empty where there is none yet."""
    return branch if isinstance(branch, bytes) else branch.machine_code if isinstance(branch, Code) else b""


class _Needed:
    """Says of each branch, by its number, whether a call takes it; the code for that is in a library."""

    def __init__(self, library: Any, branches: int) -> None:
        self._library, self._branches = library, branches
        self._fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library["needed"])

    def of(self, sizes: Sequence[int]) -> bytearray:
        """A byte for each branch, 1 where a call with these sizes takes it."""
        taken = bytearray(self._branches)
        self._fill(_words(sizes), (ctypes.c_char * self._branches).from_buffer(taken))
        return taken


def digest_of(parts: Sequence[str]) -> bytes:
    """What tells the text of a module from others."""
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=20).digest()


class Later:
    """Emits branches of a function when they are asked for.

    ``module`` has the rest. Without one, or when the emission of a branch was interrupted, the rest is emitted again
    from what ``load`` gives: it must be what was compiled, by its digest, as branches depend on it.
    """

    def __init__(
        self,
        load: Callable[[], ir.Function],
        machine: Machine,
        digest: bytes,
        module: Module | None = None,
    ) -> None:
        self._load, self._machine, self._digest, self._module = load, machine, digest, module
        self._lock = threading.Lock()

    def branch(self, name: str) -> Sequence[str]:
        """The modules of a branch, as text."""
        with self._lock, lifted_limits(), stage("emit"):
            module, self._module = self._module, None
            if module is None:
                module = emit(self._load(), self._machine)
                if digest_of(module.parts()) != self._digest:
                    raise RuntimeError(f"{name} is not part of what was compiled before")
            texts = module.branch(name)
            self._module = module
            return texts


def is_parallel(function: ir.Function) -> bool:
    """Whether a function has loops that threads share, or forks."""
    return forks(function) or any(
        isinstance(each, ir.For) and each.kind == "parallel" for each in ir.walk(function.body)
    )


def runtime_for(types: Iterable[Type]) -> list[Callable[[], object]]:
    """What makes the parts of the runtime that a program of parameters of these types will need, or likely will."""
    return [entries, *[workers] * any(map(rank, types))]


class Executable:
    """Object code in memory. It may be called from several threads at once.

    ``branches`` are made when they are needed; ``keep`` is told when some were. What an earlier process has made of one
    and cannot be linked, ``remake`` gives anew. With ``flush``, subnormal numbers count as zero. ``callbacks`` are the
    functions of Python that the code calls, ``functions`` those of C by their symbols; code that recurs is ``deep``.
    Logs call it by its ``name``.
    """

    def __init__(
        self,
        machine_code: bytes,
        parallel: bool,
        branches: Mapping[str, Branch] = _NONE,
        keep: Callable[[Mapping[str, Branch]], None] | None = None,
        flush: bool = False,
        remake: Callable[[str], Sequence[str]] | None = None,
        callbacks: Callbacks | None = None,
        functions: Mapping[str, CFunction] = _NO_FUNCTIONS,
        deep: bool = False,
        name: str = RUNTIME,
    ) -> None:
        self._callbacks, self._name = callbacks, name
        self._workers = workers() if parallel else None
        self._functions = functions  # which keep their libraries
        self._imports = {
            "adze_look": entries().look,
            "adze_pack": entries().pack,
            **{name: c.address for name, c in functions.items()},
        }
        self._stacks = stacks() if deep else None
        if self._stacks is not None:
            self._imports |= {"adze_deep": self._stacks.deep, "adze_room": self._stacks.room}
        if callbacks is not None:
            self._imports["adze_call"] = callbacks.address
        if self._workers is not None:
            self._imports |= self._workers.pool.addresses
        if self._workers is not None and self._stacks is not None:
            self._workers.pool.equip(*self._stacks.of_workers)
        self._library = link(machine_code, _ENTRIES[: 4 if branches else 3], self._imports)
        self.entry, self.bits = int(self._library["entry"]), FLUSH if flush else 0
        self._arena_bytes = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(
            self._library["arena_bytes"]
        )
        self._words = ctypes.c_int64 * ctypes.CFUNCTYPE(ctypes.c_int64)(self._library["layout_words"])()
        self._layouts: dict[tuple[int, ...], tuple[int, bytes]] = {}  # by threads and sizes
        self._launch = entries().launch
        self._branches, self._keep, self._remake = dict(branches), keep, remake
        self._numbers = {name: int(name.rpartition(".")[2]) for name in branches}
        if branches:
            self._needed = _Needed(self._library, len(branches))
        self._table = (ctypes.c_void_p * len(branches))()
        self._linked: dict[str, Any] = {}
        self._lock = threading.Lock()
        # the branches that there are: their state, and the seconds
        self.made = {name: (COMPILED, each.seconds) for name, each in branches.items() if isinstance(each, Code)}

    def launch(self, frame: Frame, sizes: Sequence[int], threads: int) -> Failure | None:
        """Run on a frame whose addresses and sizes are there; tells of the first requirement that failed."""
        self.prepare(frame, sizes, threads)
        if self._callbacks is None:
            site = self._launch(frame.address, threads)
            return self._failed(frame, site) if site else None
        with self._callbacks.running(frame):
            site = self._launch(frame.address, threads)
            return self._failed(frame, site) if site else None

    def _failed(self, frame: Frame, site: int) -> Failure:
        """The requirement that failed in a run, by what the code gave; MemoryError where there was none."""
        if site == OUT_OF_MEMORY:
            raise MemoryError(at_line("no memory for an array whose size the run decides"))
        if site == OUT_OF_CELLS:
            message = f"no memory for more data than the {frame.cells / 2**30:.2f} GiB that this call has made"
            raise MemoryError(at_line(f"{message}: values, and what a derivative keeps of calls"))
        return Failure(site - 1, tuple(frame.failure(_FAILURE_WORDS)[1:]))

    def prepare(self, frame: Frame, sizes: Sequence[int], threads: int) -> None:
        """Have what a run with these sizes takes: threads, the arena, branches."""
        if self._workers is not None and threads > 1:
            self._workers.ensure(threads)
        wanted = (threads, *sizes)
        if frame.wanted != wanted:
            room, layout = self._layout(wanted)
            frame.reserve(room, ctypes.addressof(self._table))
            ctypes.memmove(frame.arena, layout, len(layout))
            if self._stacks is not None:
                frame.have_seats(threads, self._stacks.release)
            self.make_branches(sizes)
            frame.wanted = wanted
            CALL.debug("%s: sizes %s, %d threads: %d bytes for temporaries", self._name, sizes, threads, room)

    @property
    def calls_python(self) -> bool:
        """Whether it calls functions of Python."""
        return self._callbacks is not None

    @property
    def calls_c(self) -> bool:
        """Whether it calls functions of C."""
        return bool(self._functions)

    @property
    def views(self) -> bool:
        """Whether what it calls looks at the memory of a call."""
        return self._callbacks is not None and self._callbacks.views

    def raised(self, frame: Frame) -> BaseException | None:
        """What a function that the code has called raised in the run on a frame, if one did."""
        return None if self._callbacks is None else self._callbacks.raised(frame.record)

    def run(self, addresses: Sequence[int], sizes: Sequence[int], threads: int) -> Failure | None:
        """Run on buffers at these addresses: of arguments, then results, then the records of returned arrays."""
        frame = Frame(self.entry, self.bits, len(addresses), len(sizes))
        for word, value in enumerate((*addresses, *sizes), frame.addresses):
            frame.words[word] = value
        return self.launch(frame, sizes, threads)

    def arena_bytes(self, sizes: Sequence[int], threads: int) -> int:
        """The size of the arena of a call."""
        return self._layout((threads, *sizes))[0]

    def _layout(self, wanted: tuple[int, ...]) -> tuple[int, bytes]:
        """The size of the arena of a call with so many threads and these sizes, and the words at its head."""
        found = self._layouts.get(wanted)
        if found is None:
            words = self._words()
            found = self._arena_bytes(_words(wanted[1:]), wanted[0], words), bytes(words)
            if len(self._layouts) == _LAYOUTS:
                self._layouts.clear()
            self._layouts[wanted] = found
        return found

    @property
    def seconds(self) -> float:
        """What it took to have the branches that there are."""
        return sum([seconds for _, seconds in self.made.values()])

    def make_branches(self, sizes: Sequence[int] | None) -> None:
        """Have the branches that a call with these sizes takes; None for all there are."""
        if not self._branches:
            return
        self._make(b"\1" * len(self._branches) if sizes is None else self._needed.of(sizes))

    def _make(self, needed: Sequence[int]) -> None:
        """Have the branches that are needed, by a flag for each of their numbers."""
        if not self._missing(needed):  # without the lock, which would stay taken in a child that is forked meanwhile
            return
        with self._lock, compiling(self._name):
            missing = self._missing(needed)
            states = {name: LOADED if isinstance(self._branches[name], bytes) else COMPILED for name in missing}
            seconds: dict[str, float] = {}
            texts: dict[str, Sequence[str]] = {}

            def emitted() -> Iterator[Sequence[str]]:
                for name in missing:
                    make, started = self._branches[name], time.perf_counter()
                    if callable(make):
                        texts[name] = make()
                    seconds[name] = make.seconds if isinstance(make, Code) else time.perf_counter() - started
                    if name in texts:
                        yield texts[name]

            codes = compile_each(emitted())
            for name, code in zip(texts, codes, strict=True):
                self._branches[name] = code
                seconds[name] += code.seconds
            for name, number in missing.items():
                started = time.perf_counter()
                library = self._link(name)
                self._table[number] = library[name]
                self._linked[name] = library
                seconds[name] += time.perf_counter() - started
                self.made[name] = states[name], seconds[name]
            if texts and self._keep is not None:
                self._keep(self._branches)

    def _link(self, name: str) -> Any:
        """The code of a branch, in memory."""
        machine_code = self._branches[name] = object_of(self._branches[name])
        try:
            return link(machine_code, (name,), self._imports)
        except RuntimeError:
            if self._remake is None:
                raise
        [code] = compile_each([self._remake(name)])
        self._branches[name] = code.machine_code
        return link(code.machine_code, (name,), self._imports)

    def _missing(self, needed: Sequence[int]) -> dict[str, int]:
        """The branches that are needed and not in the table yet, with their numbers."""
        return {name: k for name, k in self._numbers.items() if needed[k] and name not in self._linked}


def _words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"{len(numbers)}q", *numbers)
