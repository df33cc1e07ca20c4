"""Machine code for one instance of a program: one version for all sizes and any number of threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ...core.limits import lifted_limits
from ...core.program import Instance, convert
from .. import ir
from ..cost import Breakdown, Given, Row, estimate
from ..decisions import Choices, check_forced
from ..forms import Form, Head, chosen, where_taken
from ..lowering import Lowered
from ..pipeline import forms_of, loops_of, nests_of
from ..runtime import default_threads
from ..schedule.summary import schedule_text
from ..specialisations import MISSING, Specialisation
from ..transformations import ALL, Transformations
from .artifact import Built, Kept
from .calls import Bound
from .host import host, host_target
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


class Version:
    """The machine code of one instance, which may be called from several threads at once.

    A program of one form is compiled when its version is made, others as calls take them. In the cache on disk, the
    entry of a version has what is kept of its form, or else the conditions of its forms, each of which has a part.
    """

    def __init__(
        self,
        instance: Instance,
        checks: bool,
        allowed: Transformations = ALL,
        flush: bool = False,
        debug: frozenset[str] = frozenset(),
    ) -> None:
        started = time.perf_counter()
        self.instance, self._checks, self._flush = instance, checks, flush
        self._target = replace(host_target(), transformations=allowed)
        self._machine = replace(
            host(), target=self._target, bounds="bounds" in debug, optimised="unoptimised" not in debug
        )
        self._entry = entry_of(instance, self._target, checks, sorted(debug))
        found = None if self._entry is None else _sensible(self._entry.fetch())
        self._lowered: dict[int, Lowered] = {}
        self._built: dict[int, Built] = {}
        self._clocked: dict[int, Clocked] = {}  # forms that a profile was asked of
        self._only: Built | None = None
        if isinstance(found, tuple):
            self._heads = found
        else:
            self._heads = (_ONLY,) if found is not None else tuple([form.head for form in self._forms])
        self._conditions = [head.condition for head in self._heads]
        if allowed.force and found is None:
            made = [self.lowered(k).decisions for k in range(len(self._heads))]
            check_forced(dict(allowed.force), made, instance.program.annotated)
        self._latest: tuple[Sequence[int], int] = (), len(self._heads) - 1  # sizes, and the form that they take
        self._seconds = time.perf_counter() - started  # that all forms took together
        if len(self._heads) == 1:
            self._only = self._built[0] = self._build(0, found if isinstance(found, Kept) else None)
        elif found is None and self._entry is not None:
            self._entry.store(self._heads)

    @cached_property
    def _forms(self) -> Sequence[Form]:
        return forms_of(self.instance, self._target, self._checks)

    def lowered(self, number: int) -> Lowered:
        """A form in the loop IR, and what its failures say."""
        if number not in self._lowered:
            with lifted_limits():
                self._lowered[number] = self._lower(loops_of, number)
        return self._lowered[number]

    def _lower(self, stage: Callable[..., Lowered], number: int) -> Lowered:
        return stage(self._forms[number], self.instance.program.name, self._target, self._checks)

    def built(self, number: int) -> Built:
        """The machine code of a form."""
        if number not in self._built:
            with lifted_limits():
                self._built[number] = self._build(number, None)
        return self._built[number]

    def _build(self, number: int, found: Kept | None) -> Built:
        entry = self._entry
        if entry is not None and len(self._heads) > 1:
            entry = entry.part(number)
            kept = entry.fetch()
            found = kept if isinstance(kept, Kept) else None
        lower = partial(self.lowered, number)
        return Built(self.instance, lower, self._machine, self._flush, entry, found)

    def taken(self, leaves: Sequence[Any]) -> Built:
        """The machine code of the form that the sizes of a call's arguments take."""
        return self._only or self.built(self._number(leaves))

    def _number(self, leaves: Sequence[Any]) -> int:
        """The form that the sizes of a call's arguments take."""
        if len(self._heads) == 1:
            return 0
        sizes = self.instance.declared.sizes(leaves)
        wanted = list(sizes.values())
        latest, number = self._latest
        if latest != wanted:
            number = chosen(self._conditions, sizes)
            self._latest = wanted, number
        return number

    def run(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Any:
        """Run on the leaves of a call's arguments; results are new, or written to the arrays of ``out``."""
        return (self._only or self.taken(leaves)).calls.run(leaves, threads, out)

    def bound(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Bound:
        """A call with these arguments, to be made again and again."""
        return self.taken(leaves).calls.bound(leaves, threads, out)

    def peak_bytes(self, leaves: Sequence[Any], threads: int | None) -> int:
        """The bytes of the arena, of temporaries beside it and of the results of a call."""
        return self.taken(leaves).peak_bytes(leaves, threads)

    def profile(self, leaves: Sequence[Any], threads: int | None) -> Breakdown:
        """What each nest took in a call."""
        number = self._number(leaves)
        if number not in self._clocked:
            with lifted_limits():
                lower = partial(self.lowered, number)
                self._clocked[number] = Clocked(self.instance, lower, self._machine, self._flush)
        rows = self._rows(self.lowered(number), self.given(leaves), threads)
        return self._clocked[number].profile(leaves, threads, rows)

    def given(self, leaves: Sequence[Any]) -> Given:
        """What is known of a call with these arguments."""
        arguments, sizes = convert(self.instance, leaves)
        return Given(sizes, arguments)

    def cost(self, given: Given, threads: int | None) -> Breakdown:
        """What each nest takes in a call, estimated."""
        return Breakdown.of(self._rows(self.lowered(chosen(self._conditions, given.sizes)), given, threads))

    def _rows(self, form: Lowered, given: Given, threads: int | None) -> list[Row]:
        with lifted_limits():
            return estimate(form.function, self._target, given.sizes, given.arrays(form), threads or default_threads())

    def decisions(self, given: Given, threads: int | None) -> Choices:
        """What was decided on the way of the form that a call takes, and what the other side of each would cost."""

        def seconds(form: Lowered) -> float:
            return Breakdown.of(self._rows(form, given, threads)).seconds

        def forced(name: str, side: bool) -> float:
            target = replace(self._target, transformations=self._target.transformations.forcing(name, side))
            forms = forms_of(self.instance, target, self._checks)
            form = forms[chosen([each.condition for each in forms], given.sizes)]
            return seconds(loops_of(form, self.instance.program.name, target, self._checks))

        mine = self.lowered(chosen(self._conditions, given.sizes))
        with lifted_limits():
            return Choices.of(mine.decisions, seconds(mine), forced)

    @property
    def seconds(self) -> float:
        """What it took to make all machine code that there is by now."""
        return self._seconds + sum([built.seconds for built in self._built.values()])

    def specialisations(self) -> list[Specialisation]:
        """The code of each form, those of a form that was not needed yet as one."""
        found: list[Specialisation] = []
        for number, where in enumerate(where_taken(self._heads)):
            if number in self._built:
                made = [each.where(where) for each in self._built[number].specialisations()]
                found += [replace(made[0], seconds=made[0].seconds + self._seconds), *made[1:]]
            else:
                found.append(Specialisation(where, self._heads[number].why, MISSING, 0.0))
        return found

    def warm(self, sizes: Mapping[str, int] | None) -> None:
        """Have the code that a call with these sizes takes; None for all there is."""
        for number in range(len(self._heads)) if sizes is None else [chosen(self._conditions, sizes)]:
            self.built(number).warm(sizes)

    # For people to look at: each form, under its condition where there are several

    @property
    def nests(self) -> str:
        with lifted_limits():
            return self._each("#", lambda number: ir.text(self._lower(nests_of, number).function))

    @property
    def loops(self) -> str:
        return self._each("#", lambda number: ir.text(self.lowered(number).function))

    @property
    def schedule(self) -> str:
        def text(number: int) -> str:
            lowered = self.lowered(number)
            return schedule_text(lowered.decisions, lowered.function)

        return self._each("#", text)

    @property
    def llvm_ir(self) -> str:
        """The modules as optimised."""
        return self._each(";", lambda number: self.built(number).llvm_ir)

    @property
    def assembly(self) -> str:
        """The machine code, as assembly."""
        return self._each("#", lambda number: self.built(number).assembly)

    def _each(self, mark: str, text: Callable[[int], str]) -> str:
        if self._only is not None:
            return text(0)
        heads = [f"{mark} elsewhere" if each is None else f"{mark} where {each}" for each in self._conditions]
        return "\n\n".join([f"{head}\n{text(number)}" for number, head in enumerate(heads)])
