"""The plan of a program over chunks: what is done, in order. It runs on an engine, and prints itself.

    stage 1, of each chunk of x: t5 = sum          combined by adding
    here: t6 = t5 / f64(n)
    stage 2, of each chunk of x, given t6: ...

An *engine* (``local.py``, ``cluster.py``) runs a stage for all chunks and combines what they give; what is left, and
the order of all, is the plan's. Values are kept by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...core.showing import Shown
from ...core.terms import Constant, Literal, Size
from ...core.types import Type, dims, element
from .nodes import Key, Ref
from .parts import Part

Values = MutableMapping[Key, Any]


@dataclass(frozen=True, eq=False)
class Stage:
    """What is computed of each chunk, and how two runs of chunks are combined; without results it only checks.

    The part takes the size, the first index of the chunk, what is given, and chunks of what is cut.
    """

    number: int
    part: Part
    given: tuple[Key, ...]
    cut: tuple[Key, ...]  # arguments
    made: tuple[Key, ...]
    merge: Part | None  # takes the size, what is given to it, and two runs of results; None: results are chunks
    merge_given: tuple[Key, ...] = ()
    axes: tuple[int, ...] = ()  # which of a result that is a chunk are cut
    about: tuple[str, ...] = ()

    def lines(self, name: str) -> Iterator[str]:
        what = "; ".join(self.about) or "requirements"
        kind = "results over " + name if self.merge is None and self.made else f"stage {self.number}"
        yield f"{kind}, of each chunk: {what}"


@dataclass(frozen=True, eq=False)
class Here:
    """What is computed beside all chunks; the part takes the size and what is given."""

    part: Part
    given: tuple[Key, ...]
    made: tuple[Key, ...]
    about: tuple[str, ...] = ()

    def lines(self, name: str) -> Iterator[str]:
        yield f"here: {'; '.join(self.about) or 'requirements'}"


@dataclass(frozen=True, eq=False)
class Around:
    """A sequential loop, or a choice, with stages inside."""

    construct: str  # "loop", "while" or "cond"
    args: tuple[Ref, ...]
    plans: tuple[Plan, ...]
    made: tuple[Key, ...]
    types: tuple[Type, ...]
    where: str

    def lines(self, name: str) -> Iterator[str]:
        names = {"loop": ("loop",), "while": ("while", "do"), "cond": ("if", "else")}[self.construct]
        for head, plan in zip(names, self.plans, strict=True):
            yield f"{head}, at {self.where}:"
            yield from ("  " + line for line in plan.lines(name))


Step = Stage | Here | Around


class Engine(Protocol):
    """What runs stages: for one call, whose chunks it knows."""

    @property
    def sizes(self) -> Mapping[str, int]: ...

    @property
    def total(self) -> int: ...

    def run(self, stage: Stage, given: Sequence[Any], merge_given: Sequence[Any]) -> Sequence[Any]:
        """The results of a stage for all chunks, combined."""

    def arrays(self, stage: Stage, given: Sequence[Any]) -> Sequence[Any]:
        """The results of a stage that are chunks, as arrays of Dask's."""

    def here(self, part: Part, arguments: Sequence[Any]) -> Sequence[Any]:
        """The results of a part that is computed beside all chunks."""


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """What is done for a block: ``binders`` are the keys of its parameters, ``results`` what it gives back."""

    size: str
    binders: tuple[Key, ...]
    steps: tuple[Step, ...]
    results: tuple[Ref, ...]
    last: Stage | None = None  # what gives the results that are cut

    def run(self, engine: Engine, values: Values, arguments: Sequence[Any] = ()) -> list[Any]:
        """The results; those that are cut are left out where the plan is inside of another one."""
        values.update(zip(self.binders, arguments, strict=True))
        for step in self.steps:
            match step:
                case Stage():
                    given = [values[key] for key in step.given]
                    found = engine.run(step, given, [values[key] for key in step.merge_given])
                    values.update(zip(step.made, found, strict=True))
                case Here():
                    found = engine.here(step.part, [np.int64(engine.total), *[values[key] for key in step.given]])
                    values.update(zip(step.made, found[: len(step.made)], strict=True))
                case Around():
                    values.update(zip(step.made, _around(step, engine, values), strict=True))
        if self.last is not None:
            found = engine.arrays(self.last, [values[key] for key in self.last.given])
            values.update(zip(self.last.made, found, strict=True))
        return [_value(ref, engine, values) for ref in self.results]

    def lines(self, name: str) -> Iterator[str]:
        for step in (*self.steps, *([self.last] if self.last is not None else [])):
            yield from step.lines(name)

    def __str__(self) -> str:
        return "\n".join(self.lines(self.size))

    __repr__ = __str__

    @property
    def stages(self) -> int:
        """How often chunks are gone through, loops once."""
        inner = [plan.stages for step in self.steps if isinstance(step, Around) for plan in step.plans]
        return sum(inner) + sum(isinstance(step, Stage) for step in self.steps) + (self.last is not None)

    def passes(self, key: Key) -> int:
        """How often chunks of an argument are gone through; those of a loop count as two."""
        stages = [step for step in (*self.steps, self.last) if isinstance(step, Stage)]
        around = [step for step in self.steps if isinstance(step, Around)]
        inner = sum((1 if step.construct == "cond" else 2) * plan.passes(key) for step in around for plan in step.plans)
        return inner + sum(key in stage.cut for stage in stages)


def _value(ref: Ref, engine: Engine, values: Mapping[Key, Any]) -> Any:
    match ref:
        case Literal():
            return ref.type.dtype.type(ref.value)
        case Constant():
            return ref.array.copy()
        case Size(dim):
            return np.int64(dim.evaluate(engine.sizes))
    assert isinstance(ref, int)
    return values[ref]


def _around(step: Around, engine: Engine, values: Values) -> list[Any]:
    given = [_value(ref, engine, values) for ref in step.args]
    match step.construct:
        case "cond":
            return step.plans[0 if given[0] else 1].run(engine, values)
        case "while":
            (test, body), state, trips = step.plans, given, 0
            while test.run(engine, values, state)[0]:
                state = body.run(engine, values, state)
                trips += 1
            return [*state, np.int64(trips)]
    (body,), (extent, *state) = step.plans, given
    stacked: list[list[Any]] = [[] for _ in range(len(step.made) - len(state))]
    for i in range(int(extent)):
        found = body.run(engine, values, [np.int64(i), *state])
        state, outputs = found[: len(state)], found[len(state) :]
        for rows, output in zip(stacked, outputs, strict=True):
            rows.append(output)
    types = step.types[len(state) :]
    return [*state, *[_stacked(rows, type, engine.sizes) for rows, type in zip(stacked, types, strict=True)]]


def _stacked(rows: Sequence[Any], type: Type, sizes: Mapping[str, int]) -> Any:
    """Outputs of a loop as one array, which may have no rows."""
    if rows:
        return np.array(rows, element(type).dtype)
    shape = tuple([dim.evaluate(sizes) for dim in dims(type)[1:]])
    return np.empty((0, *shape), element(type).dtype)
