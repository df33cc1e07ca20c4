"""Fixpoints: what the states of loops become, for analyses that follow loops inside of loops.

An analysis takes steps of a loop until its state changes no more. A step looks at the loop's body, and so follows the
loops in there. Begun afresh each time, the innermost of d loops takes 2^d steps and more. But while the outermost loop
is followed, all states move one way (more is active, less is linear): what a loop came to when it was looked at before
is on its way, and it goes on from there. All its visits together then take as many steps as its state has changes.

    outer (s = x): inner (t = s): t + y       visits of inner: s constant: t = [const, active]    y is active
                                                               s active:   t = [active]           one step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Fixpoints(Generic[T]):
    """Follows loops; ``join`` is what a value becomes that is now this, now that.

    >>> either = Fixpoints(lambda a, b: a or b)
    >>> either.of("a loop", [True, False, False], lambda state: [False, state[0], state[1], True])
    [True, True, True, True]
    """

    def __init__(self, join: Callable[[T, T], T]) -> None:
        self.join = join
        self._reached: dict[object, list[T]] | None = None  # by loop, while an outermost one is followed

    def of(self, loop: object, start: Sequence[T], step: Callable[[Sequence[T]], Sequence[T]]) -> list[T]:
        """The state, and what else a step gives, when steps change the state no more; ``loop`` is its key."""
        if self._reached is None:
            with self._followed_in({}):
                return self.of(loop, start, step)
        state = self._joined(start, self._reached.get(loop, start))
        while True:
            results = step(state)
            after = self._joined(state, results[: len(state)])
            if after == state:
                self._reached[loop] = state
                return [*state, *results[len(state) :]]
            state = after

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """Loops that are followed in here have not been looked at before: another run of the same code."""
        with self._followed_in(None):
            yield

    @contextmanager
    def _followed_in(self, reached: dict[object, list[T]] | None) -> Iterator[None]:
        outer, self._reached = self._reached, reached
        try:
            yield
        finally:
            self._reached = outer

    def _joined(self, first: Sequence[T], second: Sequence[T]) -> list[T]:
        return [self.join(a, b) for a, b in zip(first, second, strict=True)]
