"""Machine code for one instance of a program: built once, for all sizes and any number of threads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ...core.arguments import convert
from ...core.program import Instance
from ...core.source import at_line
from ..loops import Function
from ..lowering import Lowered
from ..peak import Peak
from ..runtime import default_threads
from ..stages import loops_of
from ..transformations import ALL, Transformations
from .assemble import Code, assembly, printed
from .calls import Bound, Calls, Interface
from .host import host_target
from .jit import Branch, Executable, compiled, is_parallel
from .stored import Entry, entry_of
from .unit import ALIGNMENT


class Version:
    """The machine code of one instance. One serves all sizes, and may be called from several threads at once."""

    def __init__(self, instance: Instance, checks: bool, allowed: Transformations = ALL, flush: bool = False) -> None:
        started = time.perf_counter()
        self.instance, self.checks = instance, checks
        self.target = replace(host_target(), transformations=allowed)
        entry = entry_of(instance, self.target, checks)
        machine_code, branches, interface = (entry.fetch() if entry is not None else None) or self._made(entry)

        def keep(branches: Mapping[str, Branch]) -> None:
            if entry is not None:
                entry.store((machine_code, dict(branches), interface))

        self.executable = Executable(machine_code, interface.parallel, branches, keep, flush)
        self.calls = Calls(self.executable, instance.signature, interface)
        self._seconds = time.perf_counter() - started

    def _made(self, entry: Entry | None) -> tuple[bytes, Mapping[str, Branch], Interface]:
        """Object code, branches and what calls have to know, compiled now, and kept for later processes."""
        made = self.code.machine_code, self.code.branches, self._interface()
        if entry is not None:
            entry.store(made)
        return made

    def _interface(self) -> Interface:
        lowered, instance = self.lowered, self.instance
        return Interface(
            lowered.function.sizes,
            tuple(lowered.constants),
            instance.term.types,
            instance.outputs,
            tuple(lowered.failures),
            is_parallel(lowered.function),
        )

    @cached_property
    def lowered(self) -> Lowered:
        """The program in the loop IR, and what its failures say."""
        return loops_of(self.instance, self.target, self.checks)

    @cached_property
    def code(self) -> Code:
        """What the loop IR was compiled to."""
        return compiled(self.function, self.target.transformations)

    @property
    def seconds(self) -> float:
        """What it took to make all machine code that there is by now."""
        return self._seconds + self.executable.seconds

    def run(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Any:
        """Run on the leaves of a call's arguments; results are new, or written to the arrays of ``out``."""
        return self.calls.run(leaves, threads, out)

    def bound(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Bound:
        """A call with these arguments, to be made again and again."""
        return self.calls.bound(leaves, threads, out)

    @property
    def function(self) -> Function:
        """The loop IR that the code is made from."""
        return self.lowered.function

    @cached_property
    def llvm_ir(self) -> str:
        """The module as optimised."""
        return str(printed(self.code))

    @cached_property
    def assembly(self) -> str:
        """The machine code, as assembly."""
        return assembly(self.code)

    @cached_property
    def _peak(self) -> Peak:
        return Peak(self.lowered.function)

    def peak_bytes(self, leaves: Sequence[Any], threads: int | None) -> int:
        """The bytes of the arena, of temporaries beside it and of the results of a call."""
        arrays, sizes = convert(self.instance, leaves)
        function, threads = self.lowered.function, threads or default_threads()
        named = zip(
            function.arguments, (*arrays, *[constant.array for constant in self.lowered.constants]), strict=True
        )
        try:
            dynamic = self._peak.bytes({buffer.name: array for buffer, array in named}, sizes, threads, ALIGNMENT)
        except LookupError as error:
            raise ValueError(
                at_line(
                    f"{self.instance.program.name}: how much memory a call takes is known when it has run: "
                    f"the size of the temporary {error.args[0]} (see az.compile(...).loops) is computed on the way"
                )
            ) from None
        arena = self.executable.arena_bytes([sizes[name] for name in function.sizes], threads)
        return arena + dynamic + self.calls.bytes(sizes)
