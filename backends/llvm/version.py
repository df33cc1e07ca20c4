"""Machine code for one instance of a program, for all sizes and any number of threads, and what is kept on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.program import Instance
from ..cost import Breakdown
from ..forms import Head
from ..multiversioning import Multiversioned
from ..runtime import beside
from ..transformations import ALL, Transformations
from .artifact import Built, Kept
from .assemble import assembly, printed
from .calls import Bound, Direct
from .host import machine_of
from .jit import emitted, runtime_for
from .locations import Located, read_assembly, read_module
from .profile import Clocked
from .stored import entry_of

_ONLY = Head(None, "")


def _sensible(found: Any) -> Kept | tuple[Head, ...] | None:
    """What an entry has of a program: its only form, or the heads of its forms, of which the last is always taken."""
    if isinstance(found, Kept):
        return found
    if isinstance(found, tuple) and len(found) > 1 and all([isinstance(each, Head) for each in found]):
        return found if found[-1].condition is None else None
    return None


class Version(Multiversioned[Built]):
    """The machine code of one instance, which may be called from several threads at once.

    In the cache on disk, the entry of a version has what is kept of its only form, or else the conditions of its forms,
    each of which has a part.
    """

    def __init__(
        self,
        instance: Instance,
        checks: bool,
        allowed: Transformations = ALL,
        flush: bool = False,
        debug: frozenset[str] = frozenset(),
        cpu: str | None = None,
        leaves: Sequence[Any] | None = None,
    ) -> None:
        started = time.perf_counter()
        machine = machine_of(cpu)
        target = replace(machine.target, transformations=allowed)
        self._flush = flush
        self._machine = replace(machine, target=target, bounds="bounds" in debug, optimised="unoptimised" not in debug)
        self._clocked: dict[int, Clocked] = {}  # forms that a profile was asked of
        self._entry = entry_of(instance, target, checks, sorted(debug), cpu)
        found = None if self._entry is None else _sensible(self._entry.fetch())
        self._found = found if isinstance(found, Kept) else None
        heads = (_ONLY,) if isinstance(found, Kept) else found
        with beside(runtime_for(instance.types) if found is None else ()):
            super().__init__(instance, target, checks, started, heads=heads, leaves=leaves)
        if found is None and self._entry is not None and self._only is None:
            self._entry.store(self._heads)

    def _build(self, number: int, sizes: Mapping[str, int] | None) -> Built:
        entry, found = self._entry, self._found
        if entry is not None and len(self._heads) > 1:
            entry = entry.part(number)
            kept = entry.fetch()
            found = kept if isinstance(kept, Kept) else None
        lower = partial(self.lowered, number)
        built = Built(self.instance, lower, self._machine, self._flush, entry, found, sizes)
        built.calls.boundary = self.boundary
        return built

    def _of(self, leaves: Sequence[Any]) -> Built:
        """The machine code of the form that the sizes of a call's arguments take."""
        if self._only is not None:
            return self._only
        sizes = self.instance.declared.sizes(leaves)
        return self.built(self.taken(sizes), sizes)

    def _taken_in(self, leaves: Sequence[Any], out: Any) -> Sequence[Any]:
        """The leaves that the code takes; ValueError for an ``out`` that it cannot fill."""
        if self.boundary is not None:
            self.boundary.given(out)
        return self.entered(leaves)

    def run(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Any:
        """Run on the leaves of a call's arguments; results are new, or written to the arrays of ``out``."""
        leaves = self._taken_in(leaves, out)
        return (self._only or self._of(leaves)).calls.run(leaves, threads, out)

    def bound(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Bound:
        """A call with these arguments, to be made again and again."""
        leaves = self._taken_in(leaves, out)
        return self._of(leaves).calls.bound(leaves, threads, out)

    def direct(self, arguments: Sequence[Any], threads: int | None) -> Direct | None:
        """Calls with arguments of these shapes, made by machine code; None where Python has to be there."""
        if self.boundary is not None:
            return None
        built = self._only or self.built(self.taken(self.instance.declared.fitting(arguments)))
        return built.calls.direct(arguments, threads)

    def peak_bytes(self, leaves: Sequence[Any], threads: int | None) -> int:
        """The bytes of the arena, of temporaries beside it and of the results of a call."""
        leaves = self.entered(leaves)
        return self._of(leaves).peak_bytes(leaves, threads)

    def profile(self, leaves: Sequence[Any], threads: int | None) -> tuple[Breakdown, Any]:
        """What each nest took in a call, and the result of that."""
        given, leaves = self.given(leaves), self.entered(leaves)
        number = self.taken(given.sizes)
        if number not in self._clocked:
            with self._making():
                lower = partial(self.lowered, number)
                self._clocked[number] = Clocked(self.instance, lower, self._machine, self._flush)
        return self._clocked[number].profile(leaves, threads, self.rows(self.lowered(number), given, threads))

    def located(self, number: int) -> tuple[list[Located], list[Located]]:
        """The LLVM IR and the assembly of a form by lines, each with the line of the loops that it is from."""
        with self._making():
            code = emitted(self.lowered(number).function, replace(self._machine, located=True))
            return read_module(str(printed(code))), read_assembly(assembly(code))

    @property
    def llvm_ir(self) -> str:
        """The modules as optimised."""
        return self._each(";", lambda number: self.built(number).llvm_ir)

    @property
    def assembly(self) -> str:
        """The machine code, as assembly."""
        return self._each("#", lambda number: self.built(number).assembly)
