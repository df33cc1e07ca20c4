"""Weak types: the types that states of loops adopt which begin as Python numbers.

A Python number has no type of its own, it takes that of what it meets (JAX calls such a type weak). So does a state
that begins as one, until the body says what it makes of it. The body is entered with weak states first, and what it
gives back are constraints between the types of states: at least f32, or at least that of another state. They are
solved for all loops of a nest at once. Only if a state then has another type than it was entered with, the outermost
body is entered again, with all types known:

    fori_loop(0, n, lambda i, s: (s[1], s[0] + x[i]), (0.0, 0.0))      # x: f32[n]
    s0 >= s1, s1 >= join(s0, f32)                                      # so both are f32
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from .types import Scalar, scalar_of

# Where a loop is: which one of the loops and choices in the body around it, from the outermost on.
Place = tuple[int, ...]


@dataclass(frozen=True)
class Meeting:
    """What is known of a type: at least a scalar type, and at least the types of some states.

    A weak scalar type gives way to any strong one that its kind fits into.
    """

    scalar: Scalar
    weak: bool
    states: frozenset[int] = frozenset()


@dataclass
class _State:
    """A state that begins as a number."""

    place: Place
    bounds: list[Meeting]  # by the initial value, and by what bodies make of it
    solution: Meeting

    @property
    def is_as_built(self) -> bool:
        """Whether the initial value, and what is no number, is of the solution's type without a conversion."""
        own = [b.scalar for k, b in enumerate(self.bounds) if k == 0 or not b.weak or b.states]
        return all([scalar is self.solution.scalar for scalar in own])


def adapts(own: Scalar, other: Scalar) -> bool:
    """Whether a number of kind ``own`` becomes ``other``: 2 a float, True a number, but not 0.5 an integer."""
    order = ("bool", "int", "float")
    return order.index(own.kind) <= order.index(other.kind)


def join(scalars: Sequence[Scalar]) -> Scalar:
    """The scalar type that NumPy promotes all of these to."""
    if all([scalar is scalars[0] for scalar in scalars]):
        return scalars[0]
    joined = scalar_of(np.result_type(*[scalar.dtype for scalar in scalars]))
    assert joined is not None
    return joined


def _meet(a: Meeting, b: Meeting) -> Meeting:
    """The least type that is at least both."""
    if a.weak == b.weak:
        return Meeting(join([a.scalar, b.scalar]), a.weak)
    weak, strong = (a, b) if a.weak else (b, a)
    scalar = strong.scalar if adapts(weak.scalar, strong.scalar) else join([weak.scalar, strong.scalar])
    return Meeting(scalar, False)


@dataclass
class Inference:
    """The types of all states in a nest of loops, while its outermost loop is built."""

    types: dict[Place, Scalar] = field(default_factory=dict)
    weak: bool = True  # whether states are weak now: bodies are entered for the first time
    narrowed: bool = False  # a weak value became what a strong one of its type would not have become
    _again: bool = False
    _place: Place = ()
    _count: int = 0
    _states: list[_State] = field(default_factory=list)
    _tried: dict[Place, list[Scalar]] = field(default_factory=dict)

    @contextmanager
    def scope(self, number: int | None = None) -> Iterator[Place]:
        """The place of the next construct in the open body, or of its branch of this number."""
        outer, count = self._place, self._count
        if number is None:
            number, count = count, count + 1
        self._place, self._count = (*outer, number), 0
        try:
            yield self._place
        finally:
            self._place, self._count = outer, count

    # While states are weak

    def state(self, place: Place, initial: Meeting) -> int:
        """A new state that begins as a number."""
        self._states.append(_State(place, [initial], Meeting(initial.scalar, True)))
        return len(self._states) - 1

    def bound(self, state: int, result: Meeting) -> Meeting:
        """Note what a body makes of a state; what its type is as far as the two show."""
        initial = self._states[state].bounds[0]
        self._states[state].bounds.append(result)
        return _meet(initial, result)

    # While types are known

    def retyped(self, place: Place, assumed: Scalar, found: Scalar) -> bool:
        """Note what a body makes of a state of an assumed type; False where that and what is above it was tried."""
        tried = self._tried.setdefault(place, [])
        tried.append(assumed)
        for candidate in (found, join([assumed, found])):
            if candidate not in tried:
                self.types[place], self._again = candidate, True
                return True
        return False

    def is_settled(self) -> bool:
        """Whether what was built has the types of the solution; else bodies are to be entered again, with these."""
        settled = not self._again
        if self.weak:
            self._solve()
            self.types = {state.place: state.solution.scalar for state in self._states}
            settled = not self.narrowed and all([state.is_as_built for state in self._states])
        if not settled:
            self.restart(self.types)
        return settled

    def restart(self, types: dict[Place, Scalar]) -> None:
        """Enter bodies again, with states of these types; those of their numbers where there is none."""
        self.weak, self.types = False, types
        self._place, self._count, self._again = (), 0, False

    def _solve(self) -> None:
        """The least types that all constraints allow."""
        changed = True
        while changed:
            changed = False
            for state in self._states:
                solution = state.solution
                for bound in state.bounds:
                    for one in (bound, *[self._states[number].solution for number in bound.states]):
                        solution = _meet(solution, one)
                if solution != state.solution:
                    state.solution, changed = solution, True


def scope(inference: Inference | None, number: int | None = None) -> AbstractContextManager[Place]:
    """:meth:`Inference.scope` where types are inferred; nothing elsewhere."""
    return nullcontext(()) if inference is None else inference.scope(number)
