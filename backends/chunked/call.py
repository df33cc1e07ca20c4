"""One call: its sizes, its chunks, and where they come from; and what of a stage is done for a run of chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .nodes import Key
from .parts import Options
from .plan import Stage
from .sources import Source
from .trees import Node, Tree

Chunk = tuple[int, int]  # where it begins and ends


@dataclass(frozen=True, eq=False)
class Call:
    """What engines know of a call."""

    name: str
    sizes: Mapping[str, int]
    size: str  # the name of the one that is cut
    chunks: tuple[Chunk, ...]
    sources: Mapping[Key, Source]
    options: Options

    @property
    def total(self) -> int:
        return self.sizes[self.size]

    def of_chunk(self, chunk: Chunk) -> dict[str, int]:
        """The sizes of a chunk."""
        return {**self.sizes, self.size: chunk[1] - chunk[0]}


def chunk_results(
    stage: Stage, call: Call, chunk: Chunk, given: Sequence[Any], arrays: Sequence[Any], threads: int | None
) -> list[Any]:
    """What a stage gives for one chunk."""
    values = [np.int64(call.total), np.int64(chunk[0]), *given, *arrays]
    return stage.part.run(values, call.of_chunk(chunk), call.options, threads)[: len(stage.made)]


def merging(stage: Stage, call: Call, given: Sequence[Any], threads: int | None) -> Callable[[Any, Any], Any]:
    """What combines the results of two runs of chunks."""

    def merge(left: Sequence[Any], right: Sequence[Any]) -> Sequence[Any]:
        if stage.merge is None:
            return left
        return stage.merge.run([np.int64(call.total), *given, *left, *right], call.sizes, call.options, threads)

    return merge


def combined_run(
    stage: Stage,
    call: Call,
    numbered: Sequence[tuple[int, Chunk]],
    given: Sequence[Any],
    merge_given: Sequence[Any],
    arrays: Callable[[int, Chunk], Sequence[Any]],
    threads: int | None,
) -> list[Node]:
    """The subtrees that a run of neighbouring chunks makes up, combined; ``arrays`` gives those of a chunk."""
    tree = Tree(len(call.chunks), merging(stage, call, merge_given, threads))
    for number, chunk in numbered:
        tree.add(0, number, chunk_results(stage, call, chunk, given, arrays(number, chunk), threads))
    return tree.nodes
