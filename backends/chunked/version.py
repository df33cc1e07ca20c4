"""A program over chunks of one size: its plan, and what a call does.

    x: f64[n, d], theta: f64[k]    over="n":  x is cut along axis 0, theta is given whole

Chunks are as many indices of the size as fit into 64 MB of what is cut, unless the caller says how many, or gives an
array of Dask's, whose chunks are taken as they are.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import trees
from ...core.arguments import array_of_type
from ...core.dims import Dim
from ...core.program import Instance
from ...core.source import at_line
from ...core.types import dims, element, is_data
from .call import Call, Chunk
from .cluster import Cluster, Connected
from .cutting import cut_axis
from .lazy import need_dask
from .local import Local
from .parts import Options
from .plan import Plan
from .planning import planned
from .sources import Blocks, Source, is_dask, source_of
from .workers import Sent

CHUNK_BYTES = 64 << 20  # of what is cut; it decides the chunks, so it decides bits


@dataclass(frozen=True, repr=False)
class Moved:
    """What a call moves: how many chunks there are, how often they are gone through, and the bytes that are read."""

    chunks: int
    stages: int
    bytes: int

    def __str__(self) -> str:
        counts = [f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((self.chunks, "chunk"), (self.stages, "stage"))]
        return f"{', '.join(counts)}, {self.bytes / 1e6:.1f} MB read"

    __repr__ = __str__


class Kept:
    """What calls with the same arrays have in common: chunks of these, and what workers have been sent."""

    def __init__(self) -> None:
        self.sent = Sent()
        self._values: dict[tuple[int, int], tuple[Any, Any]] = {}  # by place and argument: it, and what is made of it

    def value(self, place: int, leaf: Any, make: Callable[[int, Any], Any]) -> Any:
        """What an earlier call has made of the same argument, or what is made now."""
        key = place, id(leaf)
        if key not in self._values:
            self._values[key] = leaf, make(place, leaf)
        return self._values[key][1]

    def keep(self, leaves: Sequence[Any]) -> None:
        """Forget arguments that are none of these."""
        given = set(map(id, leaves))
        self._values = {key: known for key, known in self._values.items() if key[1] in given}


class Version:
    """The plan of an instance, and calls by it."""

    def __init__(self, instance: Instance, over: str, options: Options) -> None:
        self._instance, self._over, self._options = instance, over, options
        self._types = instance.term.binders  # with one name for sizes that are required to be equal
        name = instance.program.name
        if not str(over).isidentifier():
            raise ValueError(at_line(f"{name}: over={over!r} is no name of a size; one that is a number is not cut"))
        for place, type in zip(instance.declared.names, self._types, strict=True):
            if not is_data(type):
                raise TypeError(at_line(f"{name}: {place!r} is {type}; programs over chunks take scalars and arrays"))
        self._axes = [self._axis(k) for k in range(len(self._types))]
        if all(axis is None for axis in self._axes):
            same = self._equal_to(over)
            if same is not None:
                problem = f"over={over!r} is required to be {same}, which is its name then: write over={same!r}"
                raise ValueError(at_line(f"{name}: {problem}"))
            known = ", ".join(sorted(instance.declared.bound)) or "none"
            raise ValueError(at_line(f"{name}: over={over!r} is no size of its parameters alone, which are: {known}"))
        self.plan: Plan = planned(instance.term, name, over, options.checks)
        if self.plan.last is not None:
            need_dask(f"{name}: results over {over} are arrays of Dask's", "dask.array")

    def _equal_to(self, over: str) -> str | None:
        """The name that a size of the parameters goes by, where the program requires that it equals another one."""
        for declared, type in zip(self._instance.types, self._types, strict=True):
            for dim, found in zip(dims(declared), dims(type), strict=True):
                if dim == Dim.of(over) and found != dim and found.names() == {str(found)}:
                    return str(found)
        return None

    def _axis(self, leaf: int) -> int | None:
        """Where an argument is cut; ValueError where it cannot be."""
        type, size = self._types[leaf], Dim.of(self._over)
        axis = cut_axis(type, size)
        others = [dim for k, dim in enumerate(dims(type)) if k != axis and self._over in dim.names()]
        if others:
            name = f"{self._instance.program.name}: argument {self._instance.declared.names[leaf]!r}"
            raise ValueError(at_line(f"{name} is {type}: over={self._over!r} cuts one axis that has this size alone"))
        return axis

    def call(self, leaves: Sequence[Any], chunk: int | None, kept: Kept) -> tuple[Call, list[Any]]:
        """What engines know of a call, and the arguments that are given whole."""
        declared = self._instance.declared
        kept.keep(leaves)
        values = [kept.value(k, leaf, self._value) for k, leaf in enumerate(leaves)]
        sizes = self._instance.signature.fitting(values)
        sources = [value for value in values if isinstance(value, Source)]
        chunks = self._chunks(sources, sizes, chunk)
        keys = self.plan.binders
        cut = {
            key: _cut_anew(value, chunks) for key, value in zip(keys, values, strict=True) if isinstance(value, Source)
        }
        given = tuple([value for value in values if not isinstance(value, Source)])
        return Call(declared.program, sizes, self._over, chunks, cut, given, self._options), values

    def _value(self, place: int, leaf: Any) -> Any:
        """An argument as a source, where it is cut, or as the array that is given whole."""
        declared, type, axis = self._instance.declared, self._types[place], self._axes[place]
        what = f"{declared.program}: argument {declared.names[place]!r}"
        if axis is not None:
            return source_of(leaf, type, axis, what)
        return array_of_type(leaf.compute() if is_dask(leaf) else leaf, type, what)

    def _chunks(self, sources: Sequence[Source], sizes: Mapping[str, int], chunk: int | None) -> tuple[Chunk, ...]:
        total = sizes[self._over]
        lengths = [_lengths(source) for source in sources if isinstance(source, Blocks)]
        if chunk is None and lengths:
            if any(each != lengths[0] for each in lengths):
                warnings.warn("arguments have different chunks: those of the first one are taken", stacklevel=2)
            bounds = np.cumsum([0, *lengths[0]])
            return tuple([(int(a), int(b)) for a, b in itertools.pairwise(bounds)]) or ((0, 0),)
        length = chunk if chunk is not None else max(1, CHUNK_BYTES // max(1, self._row_bytes(sizes)))
        return tuple([(start, min(start + length, total)) for start in range(0, total, length)]) or ((0, 0),)

    def _row_bytes(self, sizes: Mapping[str, int]) -> int:
        """The bytes of all that is cut, for one index of the size."""
        total = 0
        for type, axis in zip(self._types, self._axes, strict=True):
            if axis is not None:
                extents = [dim.evaluate(sizes) for k, dim in enumerate(dims(type)) if k != axis]
                total += element(type).dtype.itemsize * int(np.prod(extents, dtype=np.int64))
        return total

    def run(
        self,
        leaves: Sequence[Any],
        threads: int | None,
        client: Connected | None,
        chunk: int | None,
        memory: int | None,
        kept: Kept,
    ) -> Any:
        """The result for the leaves of a call's arguments; earlier calls have left what they had of the same ones."""
        call, values = self.call(leaves, chunk, kept)
        call = replace(
            call, sources={key: each.for_passes(self.plan.passes(key)) for key, each in call.sources.items()}
        )
        engine = Local(call, threads, memory) if client is None else Cluster(call, client.running(), threads, kept.sent)
        results = self.plan.run(engine, dict[int, Any](), values)
        return trees.unflatten(self._instance.outputs, results)

    def count(self, sizes: Mapping[str, int], chunk: int | None) -> int:
        """How many chunks arrays in memory have."""
        return len(self._chunks([], sizes, chunk))

    def moved(self, sizes: Mapping[str, int], chunks: int) -> Moved:
        """What a call with these sizes, and so many chunks, moves; loops around stages are counted once."""
        stages = self.plan.stages
        return Moved(chunks, stages, stages * self._row_bytes(sizes) * sizes[self._over])


def _lengths(source: Blocks) -> tuple[int, ...]:
    return tuple(map(int, source.array.chunks[source.axis]))


def _cut_anew(source: Source, chunks: Sequence[Chunk]) -> Source:
    """An array of Dask's with the chunks of the call."""
    lengths = tuple([stop - start for start, stop in chunks])
    if not isinstance(source, Blocks) or _lengths(source) == lengths:
        return source
    return Blocks(source.array.rechunk({source.axis: lengths}), source.axis, tuple([start for start, _ in chunks]))
