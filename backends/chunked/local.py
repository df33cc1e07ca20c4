"""The engine of one machine: chunks one after the other, each on all threads, while the next one is read.

Of what has to be read two chunks are in memory at a time, the one that is computed and the one that is read, or one
where ``memory`` has no room for two. The bound says what the call may have beside its arguments: chunks that are read,
temporaries and results. It never changes the chunks, so it never changes bits; too small a one is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...core.progress import shown
from ...core.source import at_line
from .call import Call, Chunk, chunk_results, merging
from .lazy import lazy_arrays
from .parts import Options, Part
from .plan import Stage
from .trees import Tree


class Local:
    """Runs the stages of one call."""

    def __init__(self, call: Call, threads: int | None, memory: int | None) -> None:
        self._call, self._threads, self._memory = call, threads, memory

    @property
    def sizes(self) -> Mapping[str, int]:
        return self._call.sizes

    @property
    def total(self) -> int:
        return self._call.total

    @property
    def options(self) -> Options:
        return self._call.options

    def here(self, part: Part, arguments: Sequence[Any]) -> Sequence[Any]:
        return part.run(arguments, self.sizes, self.options, self._threads)

    def run(self, stage: Stage, given: Sequence[Any], merge_given: Sequence[Any]) -> Sequence[Any]:
        call = self._call
        tree = Tree(len(call.chunks), merging(stage, call, merge_given, self._threads))
        with shown(f"{call.name}: stage {stage.number}"):
            for number, (chunk, arrays) in enumerate(self._read(stage, given)):
                with shown(f"chunk {number + 1} of {len(call.chunks)}"):
                    tree.add(0, number, chunk_results(stage, call, chunk, given, arrays, self._threads))
        return list(tree.root)

    def arrays(self, stage: Stage, given: Sequence[Any]) -> Sequence[Any]:
        return lazy_arrays(stage, self._call, given, self._threads)

    def _read(self, stage: Stage, given: Sequence[Any]) -> Iterator[tuple[Chunk, list[Any]]]:
        """The chunks with their arrays, in order."""
        call, sources = self._call, [self._call.sources[key] for key in stage.cut]

        def read(chunk: Chunk) -> list[Any]:
            return [source.read(*chunk) for source in sources]

        if all(source.in_memory for source in sources):
            for chunk in call.chunks:
                self._check_memory(stage, chunk, given, read(chunk), 0)
                yield chunk, read(chunk)
            return
        ahead = len(call.chunks) > 1
        with ThreadPoolExecutor(1, "adze read-ahead") as reader:
            coming = reader.submit(read, call.chunks[0])
            for number, chunk in enumerate(call.chunks):
                arrays = coming.result()
                if number == 0:
                    size = sum(np.asarray(a).nbytes for a, s in zip(arrays, sources, strict=True) if not s.in_memory)
                    ahead = ahead and self._has_room(stage, chunk, given, arrays, size)
                following = call.chunks[number + 1] if number + 1 < len(call.chunks) else None
                if following is not None and ahead:
                    coming = reader.submit(read, following)
                yield chunk, arrays
                del arrays
                if following is not None and not ahead:
                    coming = reader.submit(read, following)

    def _has_room(self, stage: Stage, chunk: Chunk, given: Sequence[Any], arrays: Sequence[Any], size: int) -> bool:
        """Whether there is room to read ahead; ValueError where there is none for one chunk."""
        needed = self._check_memory(stage, chunk, given, arrays, size)
        return self._memory is None or needed + size <= self._memory

    def _check_memory(self, stage: Stage, chunk: Chunk, given: Sequence[Any], arrays: Sequence[Any], size: int) -> int:
        """The bytes that a chunk takes; ValueError where there are less."""
        if self._memory is None:
            return 0
        call = self._call
        values = [np.int64(call.total), np.int64(chunk[0]), *given, *arrays]
        arguments = stage.part.arguments(values, call.of_chunk(chunk))
        needed = size + stage.part.version(call.options).peak_bytes(arguments, self._threads)
        if needed > self._memory:
            problem = f"a chunk of {chunk[1] - chunk[0]} takes {needed} bytes, and memory= allows {self._memory}"
            raise ValueError(at_line(f"{call.name}: {problem}; chunk= makes smaller ones"))
        return needed
