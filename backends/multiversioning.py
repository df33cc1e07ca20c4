"""Multi-versioning: the code of one instance of a program, in forms that the sizes of a call choose from.

A backend says what the code of a form is. This says which forms there are (``forms.py``), which of them sizes take, and
what a form costs; and it has the code of a form made when the first call comes that takes it, since most programs only
ever see sizes of one. The code of a program of one form is made at once::

    run(n=30000): form 0, where 131072 < n * e ...   built now
    run(n=4):     form 1, elsewhere                  built now
    run(n=40000): form 0                             as it was built
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from ..core.limits import lifted_limits
from ..core.program import Instance
from ..core.stages import CALL, compiling
from . import ir
from .boundary import boundary_of
from .cost import Breakdown, Given, Row, estimate
from .decisions import Choices, check_forced
from .forms import Form, Head, chosen, where_taken
from .lowering import Lowered
from .pipeline import forms_of, loops_of, nests_of
from .runtime import default_threads
from .schedule.summary import schedule_text
from .specialisations import MISSING, Specialisation
from .target import Target


class Code(Protocol):
    """What a backend makes of a form."""

    @property
    def seconds(self) -> float:
        """What it took to have what there is by now."""

    def specialisations(self) -> list[Specialisation]:
        """Its pieces; the first one is always there."""

    def warm(self, sizes: Mapping[str, int] | None) -> None:
        """Have the pieces that a call with these sizes takes; None for all there are."""


Built = TypeVar("Built", bound=Code)


class Multiversioned(ABC, Generic[Built]):
    """The forms of an instance for a target, with the code of those that calls have taken.

    ``heads`` are what chooses them, where that is known of an earlier process. Time counts from ``started``. ``leaves``
    are those of the first call's arguments, where there is one: what it takes is made at once. Raises what a call
    raises for them.
    """

    context: Any = None  # of a device on which arguments may be

    def __init__(
        self,
        instance: Instance,
        target: Target,
        checks: bool,
        started: float,
        deterministic: bool = True,
        heads: Sequence[Head] | None = None,
        leaves: Sequence[Any] | None = None,
    ) -> None:
        self.boundary = boundary_of(instance)
        self.instance = instance if self.boundary is None else self.boundary.instance
        sizes = None if leaves is None or self.boundary is not None else self.instance.declared.sizes(leaves)
        self._target = target
        self._checks, self._deterministic = checks, deterministic
        self._lowered: dict[int, Lowered] = {}
        self._built: dict[int, Built] = {}
        self._heads = heads or tuple([form.head for form in self._forms])
        forced = target.transformations.force
        if forced and heads is None:
            made = [self.lowered(k).decisions for k in range(len(self._heads))]
            check_forced(dict(forced), made, instance.program.annotated)
        self._conditions = [head.condition for head in self._heads]
        self._latest: tuple[Mapping[str, int], int] = {}, len(self._heads) - 1  # sizes, and the form that they take
        self._seconds = time.perf_counter() - started  # that all forms took together
        self._only = self.built(0, sizes) if len(self._heads) == 1 else None

    @abstractmethod
    def _build(self, number: int, sizes: Mapping[str, int] | None) -> Built:
        """The code of a form, made now, with what a call with these sizes takes."""

    @cached_property
    def _forms(self) -> Sequence[Form]:
        return forms_of(self.instance, self._target, self._checks)

    def _in_loops(self, form: Form, target: Target) -> Lowered:
        """A form in the loops that run."""
        return loops_of(form, self.instance.program.name, target, self._checks, self._deterministic)

    @property
    def forms(self) -> int:
        """How many forms there are; the last one is for all sizes that take no other."""
        return len(self._heads)

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Much is made, and that is told."""
        with lifted_limits(), compiling(self.instance.program.name):
            yield

    def lowered(self, number: int) -> Lowered:
        """A form in the loop IR, and what its failures say."""
        if number not in self._lowered:
            with self._making():
                self._lowered[number] = self._in_loops(self._forms[number], self._target)
        return self._lowered[number]

    def in_nests(self, number: int) -> ir.Function:
        """A form in nests, whose points have no order yet."""
        with self._making():
            form, name = self._forms[number], self.instance.program.name
            return nests_of(form, name, self._target, self._checks, self._deterministic).function

    def built(self, number: int, sizes: Mapping[str, int] | None = None) -> Built:
        """The code of a form, which a call with these sizes is about to take, if they are given."""
        if number not in self._built:
            with self._making():
                self._built[number] = self._build(number, sizes)
        return self._built[number]

    # What a call takes

    def entered(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The leaves that the code takes: those of a call's arguments, or their parts."""
        return leaves if self.boundary is None else self.boundary.entered(leaves)

    def taken(self, sizes: Mapping[str, int]) -> int:
        """The number of the form that sizes take."""
        latest, number = self._latest
        if latest != sizes:
            number = chosen(self._conditions, sizes)
            self._latest = dict(sizes), number
            CALL.debug("%s: sizes %s take form %d of %d", self.instance.program.name, sizes, number, len(self._heads))
        return number

    def given(self, leaves: Sequence[Any]) -> Given:
        """What is known of a call with these arguments."""
        arguments, sizes = self.instance.signature.convert(self.entered(leaves), self.context)
        return Given(sizes, arguments)

    def cost(self, given: Given, threads: int | None = None) -> Breakdown:
        """What each nest, or kernel, takes in a call, estimated."""
        return Breakdown.of(self.rows(self.lowered(self.taken(given.sizes)), given, threads))

    def rows(self, form: Lowered, given: Given, threads: int | None) -> list[Row]:
        """The estimate for a form."""
        with lifted_limits():
            return estimate(form, self._target, given.sizes, given.arrays(form), threads or default_threads())

    def decisions(self, given: Given, threads: int | None = None) -> Choices:
        """What was decided on the way of the form that a call takes, and what the other side of each would cost."""

        def seconds(form: Lowered) -> float:
            return Breakdown.of(self.rows(form, given, threads)).seconds

        def forced(name: str, side: bool) -> float:
            target = replace(self._target, transformations=self._target.transformations.forcing(name, side))
            forms = forms_of(self.instance, target, self._checks)
            form = forms[chosen([each.condition for each in forms], given.sizes)]
            return seconds(self._in_loops(form, target))

        mine = self.lowered(self.taken(given.sizes))
        with self._making():
            return Choices.of(mine.decisions, seconds(mine), forced)

    # What there is

    @property
    def seconds(self) -> float:
        """What it took to make all code that there is by now."""
        return self._seconds + sum([built.seconds for built in self._built.values()])

    def specialisations(self) -> list[Specialisation]:
        """The code of each form, those of a form that was not needed yet as one."""
        found: list[Specialisation] = []
        shared = self._seconds  # counts for the first one that there is
        for number, where in enumerate(where_taken(self._heads)):
            if number in self._built:
                made = [each.where(where) for each in self._built[number].specialisations()]
                found += [replace(made[0], seconds=made[0].seconds + shared), *made[1:]]
                shared = 0.0
            else:
                found.append(Specialisation(where, self._heads[number].why, MISSING, 0.0))
        return found

    def warm(self, sizes: Mapping[str, int] | None) -> None:
        """Have the code that a call with these sizes takes; None for all there is."""
        for number in range(len(self._heads)) if sizes is None else [self.taken(sizes)]:
            self.built(number, sizes).warm(sizes)

    # For people to look at: each form, under its condition where there are several

    @property
    def nests(self) -> str:
        return self._each("#", lambda number: ir.text(self.in_nests(number)))

    @property
    def loops(self) -> str:
        """The loop IR; for a device, in kernels and what the host does around them."""
        return self._each("#", lambda number: ir.text(self.lowered(number).function))

    @property
    def schedule(self) -> str:
        def text(number: int) -> str:
            lowered = self.lowered(number)
            return schedule_text(lowered.decisions, lowered.function)

        return self._each("#", text)

    def _each(self, mark: str, text: Callable[[int], str]) -> str:
        if len(self._heads) == 1:
            return text(0)
        heads = [f"{mark} elsewhere" if each is None else f"{mark} where {each}" for each in self._conditions]
        return "\n\n".join([f"{head}\n{text(number)}" for number, head in enumerate(heads)])


@dataclass(frozen=True)
class Stage:
    """The form of a version that a call takes, by its number; and the device that it is for, if it is not the CPU."""

    version: Multiversioned[Any]
    number: int
    device: str = ""
