"""Results that are as long as the size: arrays of Dask's, whose chunks are computed when somebody asks for them."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ...core.source import at_line
from ...core.types import dims, element
from .call import Call, Chunk, chunk_results
from .files import Buffer
from .plan import Stage
from .sources import Blocks, Source, in_order
from .workers import Maker, Once, Ranges, recycled


def need_dask(what: str, *modules: str) -> None:
    """ImportError with the command, where parts of Dask are not installed that something needs."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            command = "pip install 'adze-lang[dask]'"
            raise ImportError(at_line(f"{what}, and {module} is not installed: {command}")) from error


def lazy_arrays(stage: Stage, call: Call, given: Sequence[Any], threads: int | None) -> list[Any]:
    """The results of a stage that are chunks, one array of Dask's each; arguments must stay as they are till then."""
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph

    token = f"{call.name}-{uuid.uuid4().hex}"
    sources = [call.sources[key] for key in stage.cut]
    work = _Work(Once(stage), Once(call.alone), Maker.here(call.options.cpu), threads)
    beside = f"{token}-given"  # one for all tasks, as Dask moves it to whoever needs it
    layer: dict[Any, Any] = {beside: list(given)}
    for number, chunk in enumerate(call.chunks):
        arrays = [_reference(source, number, chunk) for source in sources]
        layer[token, number] = (_of_chunk, work, chunk, beside, arrays)
    inputs = [source.array for source in sources if isinstance(source, Blocks)]
    found = []
    for place, (key, axis) in enumerate(zip(stage.made, stage.axes, strict=True)):
        type = stage.part.term.results[place].type
        shape = [dim.evaluate(call.sizes) for dim in dims(type)]
        name = f"{token}-{key}"
        chunks: list[tuple[int, ...]] = [(extent,) for extent in shape]
        chunks[axis] = tuple([stop - start for start, stop in call.chunks])
        own: dict[Any, Any] = {
            (name, *[number if k == axis else 0 for k in range(len(shape))]): (operator.getitem, (token, number), place)
            for number in range(len(call.chunks))
        }
        graph = HighLevelGraph.from_collections(name, {**layer, **own}, dependencies=inputs)
        found.append(da.Array(graph, name, chunks, dtype=element(type).dtype))
    return found


def _reference(source: Source, number: int, chunk: Chunk) -> Any:
    """What a task is given for a chunk: the key of a block, or what can be read."""
    if isinstance(source, Blocks):
        return source.key(number)
    return source.part(*chunk)


@dataclass(frozen=True, eq=False)
class _Work:
    """What all tasks have to do."""

    stage: Once[Stage]
    call: Once[Call]
    client: Maker
    threads: int | None


def _of_chunk(work: _Work, chunk: Chunk, given: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    Maker.here(work.client.cpu).check(work.client)
    with recycled(len(arrays)) as buffers:
        found = [read(array, chunk, buffer) for array, buffer in zip(arrays, buffers, strict=True)]
        return chunk_results(work.stage.value, work.call.value, chunk, given, found, work.threads)


def read(array: Any, chunk: Chunk, buffer: Buffer) -> np.ndarray[Any, Any]:
    """The array of a chunk that a task was given."""
    if isinstance(array, Source):
        return array.read(*chunk, buffer)
    return in_order(array.read(*chunk) if isinstance(array, Ranges) else np.asarray(array), buffer)
