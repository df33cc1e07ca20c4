"""The engine of one machine: chunks one after the other, each on all threads, while the next one is read.

Of what has to be read two chunks are in memory at a time, the one that is computed and the one that is read, or one
where ``memory`` has no room for two. The bound says what the call may have beside its arguments: chunks that are read,
temporaries and results. It never changes the chunks, so it never changes bits; too small a one is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...core.progress import shown
from ...core.source import at_line
from .call import Call, Chunk, OfCall, combined
from .files import Buffer
from .lazy import lazy_arrays
from .plan import Stage


class Local(OfCall):
    """Runs the stages of one call."""

    def __init__(self, call: Call, threads: int | None, memory: int | None) -> None:
        super().__init__(call, threads)
        self._memory = memory

    def run(self, stage: Stage, given: Sequence[Any], merge_given: Sequence[Any]) -> Sequence[Any]:
        with shown(f"{self.call.name}: stage {stage.number}"):
            chunks = self._shown(self._read(stage, given))
            return list(combined(stage, self.call, chunks, given, merge_given, self.threads).root)

    def _shown(self, chunks: Iterable[tuple[Chunk, Sequence[Any]]]) -> Iterator[tuple[int, Chunk, Sequence[Any]]]:
        """The chunks with their numbers, each shown while it is computed."""
        for number, (chunk, arrays) in enumerate(chunks):
            with shown(f"chunk {number + 1} of {len(self.call.chunks)}"):
                yield number, chunk, arrays

    def arrays(self, stage: Stage, given: Sequence[Any]) -> Sequence[Any]:
        return lazy_arrays(stage, self.call, given, self.threads)

    def _read(self, stage: Stage, given: Sequence[Any]) -> Iterator[tuple[Chunk, list[Any]]]:
        """The chunks with their arrays, in order."""
        call, sources = self.call, [self.call.sources[key] for key in stage.cut]

        if all(source.in_memory for source in sources):
            for chunk in call.chunks:
                arrays = [source.read(*chunk) for source in sources]
                self._check_memory(stage, chunk, given, arrays, 0)
                yield chunk, arrays
            return
        buffers = [[Buffer() for _ in sources] for _ in range(2)]

        def read(chunk: Chunk, buffers: Sequence[Buffer]) -> list[Any]:
            return [source.read(*chunk, buffer) for source, buffer in zip(sources, buffers, strict=True)]

        with ThreadPoolExecutor(1, "adze read-ahead") as reader:
            arrays = read(call.chunks[0], buffers[0])
            size = sum(np.asarray(a).nbytes for a, s in zip(arrays, sources, strict=True) if not s.in_memory)
            ahead = self._has_room(stage, call.chunks[0], given, arrays, size)
            for number, (chunk, following) in enumerate(itertools.zip_longest(call.chunks, call.chunks[1:])):
                free = buffers[(number + 1) % 2 if ahead else 0]
                coming = reader.submit(read, following, free) if ahead and following is not None else None
                yield chunk, arrays
                if following is not None:
                    arrays = coming.result() if coming is not None else read(following, free)

    def _has_room(self, stage: Stage, chunk: Chunk, given: Sequence[Any], arrays: Sequence[Any], size: int) -> bool:
        """Whether there is room to read ahead; ValueError where there is none for one chunk."""
        needed = self._check_memory(stage, chunk, given, arrays, size)
        return self._memory is None or needed + size <= self._memory

    def _check_memory(self, stage: Stage, chunk: Chunk, given: Sequence[Any], arrays: Sequence[Any], size: int) -> int:
        """The bytes that a chunk takes; ValueError where there are less."""
        if self._memory is None:
            return 0
        call = self.call
        values = [np.int64(call.total), np.int64(chunk[0]), *given, *arrays]
        arguments = stage.part.arguments(values, call.of_chunk(chunk))
        needed = size + stage.part.version(call.options).peak_bytes(arguments, self.threads)
        if needed > self._memory:
            problem = f"a chunk of {chunk[1] - chunk[0]} takes {needed} bytes, and memory= allows {self._memory}"
            raise ValueError(at_line(f"{call.name}: {problem}; chunk= makes smaller ones"))
        return needed
