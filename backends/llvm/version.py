"""Machine code for one instance of a program: built once, for all sizes and any number of threads."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from .jit import Branch, Executable, Later, compiled, digest_of, is_parallel
from .stored import Entry, entry_of
from .unit import ALIGNMENT


@dataclass(frozen=True)
class _Kept:
    """What later processes are told of a version: what calls have to know, object code, and what makes the rest."""

    interface: Interface
    machine_code: bytes
    branches: Mapping[str, bytes | None]  # the object code of those that were needed
    function: bytes | None  # the loops that branches are made from, pickled
    digest: bytes  # of the module that the object code was compiled from

    def store(self, entry: Entry | None) -> None:
        """Keep it in an entry, unless branches could not be made from what is there."""
        if entry is not None and (self.function is not None or not self.branches):
            entry.store(self)

    def all_branches(self, allowed: Transformations) -> Mapping[str, Branch]:
        """The branches, those that were not needed to be made from the loops."""

        def load() -> Function:
            assert self.function is not None
            function: Function = pickle.loads(self.function)
            return function

        later = Later(load, allowed, self.digest)
        return {name: made or partial(later.branch, name) for name, made in self.branches.items()}


class Version:
    """The machine code of one instance. One serves all sizes, and may be called from several threads at once."""

    def __init__(self, instance: Instance, checks: bool, allowed: Transformations = ALL, flush: bool = False) -> None:
        started = time.perf_counter()
        self.instance, self.checks = instance, checks
        self.target = replace(host_target(), transformations=allowed)
        entry = entry_of(instance, self.target, checks)
        found: _Kept | None = entry.fetch() if entry is not None else None
        kept = found or self._made(entry)
        branches: Mapping[str, Branch] = self.code.branches if found is None else found.all_branches(allowed)

        def keep(branches: Mapping[str, Branch]) -> None:
            made = {name: each if isinstance(each, bytes) else None for name, each in branches.items()}
            replace(kept, branches=made).store(entry)

        self.executable = Executable(kept.machine_code, kept.interface.parallel, branches, keep, flush)
        self.calls = Calls(self.executable, instance.signature, kept.interface)
        self._seconds = time.perf_counter() - started

    def _made(self, entry: Entry | None) -> _Kept:
        """The version compiled now, and kept for later processes."""
        code = self.code
        made = _Kept(self._interface(), code.machine_code, dict.fromkeys(code.branches), None, digest_of(code.parts))
        if entry is not None and code.branches:
            with suppress(RecursionError):  # loops that are nested too deep
                made = replace(made, function=pickle.dumps(self.function))
        made.store(entry)
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
