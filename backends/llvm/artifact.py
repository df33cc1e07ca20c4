"""Machine code for one form of a program: built once, for all sizes that take it and any number of threads."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from ...core.c_functions import CFunction
from ...core.program import Instance
from ...core.source import at_line
from .. import ir
from ..lowering import Lowered
from ..memory.peak import Peak
from ..runtime import default_threads
from ..specialisations import ALWAYS, COMPILED, LOADED, MISSING, Specialisation, purpose
from .assemble import Code, assembly, printed
from .bounds import arrays_of
from .callbacks import Callbacks
from .calls import Calls, Interface
from .host import Machine
from .jit import Branch, Executable, Later, compiled, digest_of, is_parallel, object_of
from .stored import Entry
from .unit import ALIGNMENT


@dataclass(frozen=True)
class Kept:
    """What later processes are told of a form: what calls have to know, object code, and what makes the rest."""

    interface: Interface
    machine_code: bytes
    branches: Mapping[str, bytes]  # the object code of those that were needed; of others it is empty
    described: Mapping[str, tuple[str, str]]  # when each of them is taken, and what for
    purpose: str  # of the code outside of branches
    function: bytes | None  # the loops that branches are made from, pickled
    digest: bytes  # of the module that the object code was compiled from
    functions: Mapping[str, CFunction]  # of C that it calls: on disk by their numbers in the program

    def store(self, entry: Entry | None) -> None:
        """Keep it in an entry, unless branches could not be made from what is there."""
        if entry is not None and (self.function is not None or not self.branches):
            entry.store(self)

    def later(self, lower: Callable[[], Lowered], machine: Machine) -> Later:
        """What emits branches, from the loops that were kept if they can be read."""

        def load() -> ir.Function:
            try:
                function = pickle.loads(self.function or b"")
            except Exception:
                function = None
            return function if isinstance(function, ir.Function) else lower().function

        return Later(load, machine, self.digest)


class Built:
    """The machine code of one form. It may be called from several threads at once.

    ``lower`` gives the loop IR, where it is needed; ``found`` is what an earlier process has kept in ``entry``. The
    branches that a call with these ``sizes`` takes are made, too.
    """

    def __init__(
        self,
        instance: Instance,
        lower: Callable[[], Lowered],
        machine: Machine,
        flush: bool,
        entry: Entry | None,
        found: Kept | None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.instance, self._lower, self._machine, self._flush, self._entry = instance, lower, machine, flush, entry
        self._first = sizes
        started, beside = time.perf_counter(), 0.0
        if found is None or not self._loaded(found):
            self._load(self._made(entry), COMPILED, {**self.code.branches, **self.code.first})
            beside = sum([code.seconds for code in self.code.first.values()])
        self._seconds = max(0.0, time.perf_counter() - started - beside)

    def _loaded(self, found: Kept) -> bool:
        """Load what an earlier process has kept, if it makes sense."""
        try:
            later = found.later(self._lower, self._machine)
            branches = {name: made or partial(later.branch, name) for name, made in found.branches.items()}
            self._load(found, LOADED, branches, later.branch)
        except Exception:
            return False
        return True

    def _load(
        self,
        kept: Kept,
        state: str,
        branches: Mapping[str, Branch],
        remake: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        def keep(branches: Mapping[str, Branch]) -> None:
            replace(kept, branches={name: object_of(each) for name, each in branches.items()}).store(self._entry)

        # a program that calls functions of Python has no entry on disk
        calls = self._lower().calls if state == COMPILED else []
        callbacks = Callbacks(calls) if any(not site.symbol for site in calls) else None
        self.executable = Executable(
            kept.machine_code, kept.interface.parallel, branches, keep, self._flush, remake, callbacks, kept.functions,
            kept.interface.deep, self.instance.program.name,
        )  # fmt: skip
        signature = self.instance.declared.requiring(kept.interface.equalities)
        self.calls = Calls(self.executable, signature, kept.interface)
        self._described, self._purpose, self._state = kept.described, kept.purpose, state
        self._sizes = kept.interface.sizes

    def _made(self, entry: Entry | None) -> Kept:
        """The form compiled now, and kept for later processes."""
        code = self.code
        made = Kept(
            self._interface(),
            code.machine_code,
            {name: object_of(code.first.get(name, make)) for name, make in code.branches.items()},
            code.described,
            purpose(self._lower().function.body),
            None,
            digest_of(code.parts),
            {site.symbol: site.function.c for site in self._lower().calls if site.function.c is not None},
        )
        if entry is not None and code.branches:
            with suppress(RecursionError):  # loops that are nested too deep
                made = replace(made, function=pickle.dumps(self._lower().function))
        made.store(entry)
        return made

    def _interface(self) -> Interface:
        lowered, instance = self._lower(), self.instance
        return Interface(
            lowered.function.sizes,
            instance.term.binders,
            instance.equalities,
            tuple(lowered.constants),
            lowered.types,
            instance.outputs,
            tuple(lowered.failures),
            is_parallel(lowered.function),
            arrays_of(lowered.function) if self._machine.bounds else (),
            ir.invokes(lowered.function),
        )

    @property
    def seconds(self) -> float:
        """What it took to have the code that there is by now."""
        return self._seconds + self.executable.seconds

    def specialisations(self) -> list[Specialisation]:
        """The code outside of branches, and each branch."""
        found = [Specialisation(ALWAYS, self._purpose, self._state, self._seconds)]
        for name, (condition, why) in self._described.items():
            state, seconds = self.executable.made.get(name, (MISSING, 0.0))
            found.append(Specialisation(condition, why, state, seconds))
        return found

    def warm(self, sizes: Mapping[str, int] | None) -> None:
        """Have the branches that a call with these sizes takes; None for all there are."""
        self.executable.make_branches(None if sizes is None else [sizes[name] for name in self._sizes])

    @cached_property
    def code(self) -> Code:
        """What the loop IR was compiled to, when the code was made."""
        function = self._lower().function
        sizes = None if self._first is None else [self._first[name] for name in function.sizes]
        return compiled(function, self._machine, sizes)

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
        return Peak(self._lower().function)

    def peak_bytes(self, leaves: Sequence[Any], threads: int | None) -> int:
        """The bytes of the arena, of temporaries beside it and of the results of a call."""
        arrays, sizes = given_to(self._lower(), self.instance, leaves)
        function, threads = self._lower().function, threads or default_threads()
        try:
            dynamic = self._peak.bytes(arrays, sizes, threads, ALIGNMENT)
        except LookupError as error:
            raise ValueError(
                at_line(
                    f"{self.instance.program.name}: how much memory a call takes is known when it has run: "
                    f"the size of the temporary {error.args[0]} (see az.compile(...).loops) is computed on the way"
                )
            ) from None
        arena = self.executable.arena_bytes([sizes[name] for name in function.sizes], threads)
        return arena + dynamic + self.calls.bytes(sizes)


def given_to(lowered: Lowered, instance: Instance, leaves: Sequence[Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The arguments of a call and the constants, by the names of their buffers in a form, and its sizes."""
    arrays, sizes = instance.signature.convert(leaves)
    constants = [constant.array for constant in lowered.constants]
    named = zip(lowered.function.arguments, (*arrays, *constants), strict=True)
    return {buffer.name: array for buffer, array in named}, sizes
