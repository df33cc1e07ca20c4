"""One call: its sizes, its chunks, and where they come from; and what of a stage is done for a run of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .nodes import Key
from .parts import Options, Part
from .plan import Stage
from .sources import Source
from .trees import Tree

Chunk = tuple[int, int]  # where it begins and ends


@dataclass(frozen=True, eq=False)
class Call:
    """What engines know of a call."""

    name: str
    sizes: Mapping[str, int]
    size: str  # the name of the one that is cut
    chunks: tuple[Chunk, ...]
    sources: Mapping[Key, Source]
    given: tuple[Any, ...]  # arguments that are not cut
    options: Options

    @property
    def total(self) -> int:
        return self.sizes[self.size]

    @property
    def alone(self) -> Call:
        """The call without its arrays, as tasks take it."""
        return replace(self, sources={}, given=())

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


def combined(
    stage: Stage,
    call: Call,
    chunks: Iterable[tuple[int, Chunk, Sequence[Any]]],
    given: Sequence[Any],
    merge_given: Sequence[Any],
    threads: int | None,
) -> Tree:
    """What numbered chunks with these arrays give, combined as far as whole subtrees go."""
    tree = Tree(len(call.chunks), merging(stage, call, merge_given, threads))
    for number, chunk, arrays in chunks:
        tree.add(0, number, chunk_results(stage, call, chunk, given, arrays, threads))
    return tree


class OfCall:
    """What engines have in common: the call that they run stages of, and the threads of this machine for it."""

    def __init__(self, call: Call, threads: int | None) -> None:
        self.call, self.threads = call, threads

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.call.sizes

    @property
    def total(self) -> int:
        return self.call.total

    def here(self, part: Part, arguments: Sequence[Any]) -> Sequence[Any]:
        """The results of a part that is computed beside all chunks."""
        return part.run(arguments, self.sizes, self.call.options, self.threads)
