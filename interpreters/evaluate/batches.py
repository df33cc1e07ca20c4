"""Vectorisation: the values that evaluate computes with, and how a loop runs at once, not element by element.

A loop's body can run once, with a vector of all its indices in the place of the index. Inside there is a *batch*: the
extents of the loops run this way, innermost first. A scalar is then an array that broadcasts to the batch, and an
array carries the last few batch axes behind its own, so that NumPy's broadcasting aligns everything:

    for i < n: sum(j < m: x[i, j] * y[j])      i: (n,)   j: (m, 1)   x[i, j]: (m, n)   the sum, over axis 0: (n,)

Where control flow differs along the batch, a *mask* says where updates and requirements are meant. A loop runs in
Python, in the batch around it, where running it at once is not possible: it has too many elements, something in it
has an order (:class:`Effects`), or an extent differs along the batch (:class:`Irregular`).

An empty loop runs once with a batch of no elements, which finds the shapes of what it makes. A loop that makes empty
arrays runs once, too, if nothing else could come of its other steps; so such arrays may be longer than any run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.environment import Env
from ...core.primitive import Primitive
from ...core.terms import NOWHERE, Origin
from ...core.types import Type

Meaning = Callable[[Env[Any]], Any]

# A loop runs at once while the batch holds at most so many elements.
LARGEST_BATCH = 1 << 20


class Irregular(Exception):
    """Something differs along the batch that must not: run the innermost loop in Python."""


class Refused(Exception):
    """A construct cannot go on: the exception to raise, once the block has added the line to its message."""

    def __init__(self, kind: type[Exception], message: str, advice: str = "") -> None:
        super().__init__(message)
        self.kind, self.advice = kind, advice

    def at(self, origin: Origin) -> Exception:
        """The exception with the line."""
        return self.kind(f"{self}, at {origin}{self.advice}")


@dataclass(frozen=True)
class Atom:
    """What an atom means, with its De Bruijn index (or -1) and type."""

    run: Meaning
    index: int
    type: Type
    known: Any = None  # the value, if it is a number that does not change


@dataclass(frozen=True)
class Effects:
    """What decides how a loop around some code may run."""

    updates: bool = False  # adds to an accumulator: must not be tried twice
    irregular: bool = False  # an extent is computed, so running it at once may fail
    ordered: bool = False  # runs element by element: it shows values, or computes with more than numbers and arrays
    requires: bool = False  # may refuse to go on, in some runs of a block
    tests: frozenset[int] = frozenset()  # De Bruijn indices of what is required in every run: outside of a block, once

    def __or__(self, other: Effects) -> Effects:
        return Effects(
            self.updates or other.updates,
            self.irregular or other.irregular,
            self.ordered or other.ordered,
            self.requires or other.requires,
            self.tests | other.tests,
        )

    @property
    def sometimes(self) -> Effects:
        """The effects where not all runs of the code around come there."""
        return replace(self, requires=True, tests=frozenset()) if self.tests else self

    def outside(self, bound: int) -> Effects:
        """The effects as they are outside of a scope that has bound so many values."""
        if not self.tests:
            return self
        known = frozenset([test - bound for test in self.tests if test >= bound])
        return replace(self, requires=self.requires or len(known) < len(self.tests), tests=known)

    @property
    def none(self) -> bool:
        """Whether all that comes of the code is its results."""
        return not (self.updates or self.ordered or self.requires)


PURE = Effects()
ORDERED = Effects(ordered=True)


@dataclass(frozen=True)
class Step:
    """What an operation means."""

    run: Callable[[Env[Any]], Sequence[Any]]
    effects: Effects = PURE
    applies: tuple[Primitive, tuple[int, ...]] | None = None  # a primitive and the indices of its variables


@dataclass(frozen=True)
class Code:
    """What a block means."""

    run: Callable[[Env[Any], Sequence[Any]], list[Any]]
    effects: Effects
    ranks: tuple[int, ...]  # of the results
    ufunc: np.ufunc | None = None  # of a binary function that is one of NumPy's
    fixed: bool = False  # nothing is computed in it, and no result is an argument


class Batches:
    """The batch that code runs in, and loops in it. ``sizes`` are the size names of the call."""

    def __init__(self, sizes: dict[str, int], vectorize: bool = True) -> None:
        self.sizes = sizes
        self.largest = LARGEST_BATCH if vectorize else 0
        self.batch: tuple[int, ...] = ()
        self.mask: Any = np.True_
        self.failed = -1  # the row of the outermost loop in which a requirement failed; none below zero
        self.origin = NOWHERE  # of the operation that runs

    @property
    def nothing(self) -> bool:
        """Whether the batch has no elements, so that only shapes matter."""
        return 0 in self.batch

    @contextmanager
    def inside(self, batch: tuple[int, ...], mask: Any) -> Iterator[None]:
        outer = self.batch, self.mask
        self.batch, self.mask = batch, mask
        try:
            yield
        finally:
            self.batch, self.mask = outer

    def holds(self, test: Any) -> bool:
        """Whether a test holds wherever it is meant."""
        return self.nothing or bool(np.all(test | ~self.mask))

    def first_failure(self, test: Any) -> tuple[Any, ...]:
        """The place in the batch, in the order of the program, where a test first fails that is meant to hold."""
        wrong = self.filled(~(test | ~self.mask), 0)
        place: tuple[Any, ...] = tuple(np.argwhere(wrong.T)[0][::-1])
        return place

    def once(self, effects: Effects, row: Sequence[Any]) -> bool:
        """Whether one run of code, which gave this, stands for all of a loop: nothing comes of it but empty arrays."""
        return effects.none and all([np.size(value) == 0 for value in row])

    # Loops

    def for_all(
        self, extent: int, body: Callable[[Any], list[Any]], effects: Effects, ranks: Sequence[int]
    ) -> list[Any]:
        """The results of a body for all indices, stacked along a new first axis."""
        batch = int(np.prod(self.batch, dtype=np.float64)) * extent
        safe = not (effects.ordered or (effects.updates and effects.irregular))
        if extent == 0:  # no step shows the shapes; what is irregular then is so in a loop around, which goes by steps
            return self.all_at_once(extent, body, ranks)
        if safe and batch <= self.largest:
            try:
                return self.all_at_once(extent, body, ranks)
            except Irregular:
                pass
            except Exception:
                if self.failed >= 0 and not self.batch:
                    self.fail_first(self.failed, body, ranks)
                raise
        rows = [body(np.int64(0))]
        require_room(extent, rows[0])
        if self.once(effects, rows[0]):
            return [np.empty((extent, *np.shape(value)), value.dtype) for value in rows[0]]
        rows += [body(np.int64(i)) for i in range(1, extent)]
        return [self.stacked([row[k] for row in rows], r) for k, r in enumerate(ranks)]

    def fail_first(self, row: int, body: Callable[[Any], list[Any]], ranks: Sequence[int]) -> None:
        """Raise what fails first in the order of the program, if something fails in a row of the outermost loop.

        What failed is the first requirement of the body that does not hold in some row; another may fail in an earlier
        one, and in a loop inside of the same.
        """
        while row:
            self.failed = -1
            try:
                self.all_at_once(row, body, ranks)
                break
            except Irregular:
                for i in range(row):
                    body(np.int64(i))
                break
            except Exception:
                if self.failed < 0:
                    raise
                row = self.failed
        body(np.int64(row))

    def for_each(
        self, extents: Sequence[int], body: Callable[..., list[Any]], effects: Effects, ranks: Sequence[int]
    ) -> list[Any]:
        """The same over several indices, the last of which runs fastest."""
        if not extents:
            return body()
        inner = [r + len(extents) - 1 for r in ranks]
        return self.for_all(
            extents[0], lambda i: self.for_each(extents[1:], lambda *j: body(i, *j), effects, ranks), effects, inner
        )

    def all_at_once(self, extent: int, body: Callable[[Any], list[Any]], ranks: Sequence[int]) -> list[Any]:
        """The same, from one run with a vector of indices as a new first axis of the batch."""
        if self.nothing:  # so many indices may not have room
            require_room(extent, [np.empty(self.batch, np.int64)])
            index = np.empty((extent, *self.batch), np.int64)
        else:
            index = np.arange(extent).reshape((extent,) + (1,) * len(self.batch))
        with self.inside((extent, *self.batch), self.mask):
            return [self.gathered(value, r) for value, r in zip(body(index), ranks, strict=True)]

    # Shapes

    def gathered(self, value: Any, r: int) -> Any:
        """A value of rank r that was computed in a batch as an array over the innermost loop of the batch."""
        return np.moveaxis(self.filled(value, r), r, 0)

    def stacked(self, values: Sequence[Any], r: int) -> Any:
        """Values of the same type as one array with a new first axis."""
        if any(np.ndim(value) != r for value in values):
            values = [self.filled(value, r) for value in values]
        return np.stack(values)

    def filled(self, value: Any, r: int) -> Any:
        """A value of rank r with the whole batch behind its own axes."""
        shape, batch = np.shape(value), self.batch
        missing = (1,) * (len(batch) - (len(shape) - r))
        return np.broadcast_to(np.reshape(value, (*shape[:r], *missing, *shape[r:])), (*shape[:r], *batch))

    def chosen(self, test: Any, a: Any, b: Any, r: int) -> Any:
        """Of two values of rank r, the first where a test holds along the batch."""
        return np.where(test, a, b) if r == 0 else np.where(test, self.filled(a, r), self.filled(b, r))


def require_room(extent: int, row: Sequence[Any]) -> None:
    """Refuse so many rows at once, if there is no memory for them."""
    for value in row:
        shape = (extent, *np.shape(value))
        try:
            np.empty(shape, np.asarray(value).dtype)  # of which no page is touched
        except MemoryError:
            raise Refused(MemoryError, f"no memory for an array of shape {shape}") from None
        except ValueError:  # where the number of bytes is none of 64 bits
            if 0 in shape:
                raise Refused(ValueError, f"NumPy has no array of shape {shape}: it is empty, but too long") from None
            raise Refused(MemoryError, f"no memory for an array of shape {shape}") from None


def repeated(row: Any, extent: int) -> Any:
    """So many times the same row, in the memory of one."""
    shape = (extent, *np.shape(row))
    try:
        return np.broadcast_to(row, shape)
    except ValueError:  # where the number of bytes is none of 64 bits
        raise Refused(MemoryError, f"no memory for an array of shape {shape}") from None


def extent_of(value: Any) -> int:
    """The number of steps of a loop, the same for the whole batch; no steps where nothing runs it."""
    if np.ndim(value):
        if np.size(value) == 0:
            return 0
        if not np.all(value == value.flat[0]):
            raise Irregular
        value = value.flat[0]
    return max(0, int(value))


def loop_effects(extents: Sequence[Atom], body: Code) -> Effects:
    """The effects of a loop: none, if it is known to have no steps."""
    if any([extent.known is not None and extent.known <= 0 for extent in extents]):
        return PURE
    steps = all([extent.known is not None for extent in extents])
    effects = body.effects if steps else body.effects.sometimes
    return effects | Effects(irregular=any(extent.index >= 0 for extent in extents))


def mesh(shape: Sequence[int]) -> list[Any]:
    """Index vectors that together read the whole of these axes, behind other indices."""
    return [np.arange(n).reshape((n,) + (1,) * (len(shape) - 1 - k)) for k, n in enumerate(shape)]
