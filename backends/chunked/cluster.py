"""The engine of Dask's workers: a task has several chunks, and gives back subtrees of them that are combined.

There are two tasks for each thread of the workers, fewer where there are fewer chunks; each has neighbours, or what one
worker holds already. Where a worker holds more than its share, as Dask often leaves it behind a ``persist``, the rest
goes to the others, and moves there in the first stage: of two replicas Dask then drops that where less room is left.
What a stage is travels as bytes that a worker unpacks once; its code is compiled once a process,
and comes from the cache on disk afterwards. Arrays of Dask's go to the tasks as their blocks, files as where they are.
Arrays in the caller's memory are sent once a call, a run of chunks to one worker; what is given beside chunks is part
of the tasks, or sent once, if it is large. Dask starts tasks of a lost worker again; what was sent to it is sent again
here, and the stage repeated.
"""

from __future__ import annotations

import itertools
import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.source import at_line
from .call import Call, Chunk, OfCall, combined, merging
from .lazy import lazy_arrays, need_dask, read
from .plan import Stage
from .sources import Blocks, InMemory
from .trees import Node, Tree
from .workers import Maker, Once, Sent, recycled, scattered

TASKS_A_THREAD = 2
LARGE = 1 << 20  # bytes of what is given that are sent once instead of with each task
ATTEMPTS = 4  # of a stage, where what was sent to workers is lost with them


class Connected:
    """A client of ``dask.distributed`` for what users give: a client, a cluster or an address.

    A client of our own is closed with what it was made for.
    """

    def __init__(self, given: Any) -> None:
        need_dask("client= is one of dask.distributed", "dask.array", "distributed")
        from distributed import Client

        self.client = given
        if not isinstance(given, Client):
            self.client = Client(given)
            weakref.finalize(self, self.client.close)

    def running(self) -> Any:
        """The client; ValueError where it runs nothing."""
        if self.client.status != "running":
            raise ValueError(at_line(f"client= is {self.client.status}, and runs nothing"))
        return self.client


class Cluster(OfCall):
    """Runs the stages of one call."""

    def __init__(self, call: Call, client: Any, threads: int | None, sent: Sent) -> None:
        super().__init__(call, threads)
        self._client, self._sent = client, sent
        self._runs, self._places = self._divided()
        self._alone = Once(call.alone)
        self._stages: dict[Stage, Once[Stage]] = {}
        self._maker = Maker.here(call.options.cpu)
        self._arguments = [*call.given, *[each.array for each in call.sources.values() if isinstance(each, InMemory)]]
        sent.keep(self._arguments)

    def run(self, stage: Stage, given: Sequence[Any], merge_given: Sequence[Any]) -> Sequence[Any]:
        for attempt in range(ATTEMPTS):
            try:
                found = self._once(stage, given, merge_given)
                break
            except CancelledError:  # what was sent to a worker is lost with it
                self._sent.keep([])
                if attempt + 1 == ATTEMPTS:
                    raise
        tree = Tree(len(self.call.chunks), merging(stage, self.call, merge_given, self.threads))
        for nodes in found:
            for level, place, value in nodes:
                tree.add(level, place, value)
        return list(tree.root)

    def arrays(self, stage: Stage, given: Sequence[Any]) -> Sequence[Any]:
        return lazy_arrays(stage, self.call, given, 1)

    def _once(self, stage: Stage, given: Sequence[Any], merge_given: Sequence[Any]) -> list[list[Node]]:
        """The subtrees of all runs."""
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        once = self._stages.setdefault(stage, Once(stage))
        name = f"{self.call.name}-{uuid.uuid4().hex}"
        values, others = ([self._given(value) for value in each] for each in (given, merge_given))
        layer: dict[Any, Any] = {}
        for number, run in enumerate(self._runs):
            work = _Work(once, self._alone, tuple(run), self._maker)
            arrays = [self._arrays(key, number, run) for key in stage.cut]
            layer[f"{name}-{number}"] = (_run, work, values, others, arrays)
        sources = [self.call.sources[key] for key in stage.cut]
        inputs = [source.array for source in sources if isinstance(source, Blocks)]
        tasks = MaterializedLayer(layer, self._wishes(name))
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=inputs)
        futures = self._client.compute([Delayed(key, graph, layer=name) for key in layer], optimize_graph=False)
        try:
            return self._gathered(futures)
        except BaseException:
            self._client.cancel(futures)
            raise

    def _gathered(self, futures: Sequence[Any]) -> list[list[Node]]:
        """The results; where the program failed, the exception of the first run of chunks that did."""
        found: list[list[Node] | Exception] = self._client.gather(futures)
        for each in found:
            if isinstance(each, Exception):
                raise each
        return [each for each in found if not isinstance(each, Exception)]

    def _given(self, value: Any) -> Any:
        """What tasks are given of a value: it, or what stands for it on all workers; of an argument, in all stages."""
        if not isinstance(value, np.ndarray) or value.nbytes <= LARGE:
            return value
        if any(value is argument for argument in self._arguments):
            return self._sent.whole(self._client, value)
        return scattered(self._client, value, broadcast=True)

    def _wishes(self, name: str) -> dict[str, Any] | None:
        """Where tasks are to run, as annotations of Dask's: on another worker, if that one is gone."""
        if not self._places:
            return None
        places = {f"{name}-{number}": [place] for number, place in enumerate(self._places)}
        return {"workers": places.__getitem__, "allow_other_workers": True}

    def _divided(self) -> tuple[list[list[tuple[int, Chunk]]], list[str]]:
        """The chunks of each task, runs of neighbours or those of one worker's share, and the workers of these."""
        threads = self._client.nthreads()
        if not threads:
            raise ValueError(at_line(f"{self.call.name}: client= has no workers"))
        numbered = list(enumerate(self.call.chunks))
        holders = self._holders()
        if holders is None:
            return _cut(numbered, TASKS_A_THREAD * sum(threads.values())), []
        shares: dict[str, list[tuple[int, Chunk]]] = {}
        for each, worker in zip(numbered, shared_out(holders, threads), strict=True):
            shares.setdefault(worker, []).append(each)
        runs = [(run, worker) for worker in shares for run in _cut(shares[worker], TASKS_A_THREAD * threads[worker])]
        return [run for run, _ in runs], [worker for _, worker in runs]

    def _holders(self) -> list[Sequence[str]] | None:
        """The workers that have each block of an argument in memory; None where there is no such argument."""
        from distributed import futures_of

        for source in self.call.sources.values():
            futures = {future.key: future for future in futures_of(source.array)} if isinstance(source, Blocks) else {}
            keys = [source.key(number) for number in range(len(self.call.chunks))] if isinstance(source, Blocks) else []
            if keys and all(key in futures for key in keys):
                known = self._client.who_has(list(futures.values()))
                holders: list[Sequence[str]] = [tuple(known.get(key, ())) for key in keys]
                return holders if all(holders) else None  # some are not computed yet
        return None

    def _arrays(self, key: int, number: int, run: Sequence[tuple[int, Chunk]]) -> Any:
        """What the task of a run is given of an argument: one for each chunk, or what they are read from."""
        source = self.call.sources[key]
        if isinstance(source, Blocks):
            return [source.key(place) for place, _ in run]
        if not isinstance(source, InMemory):
            return source
        return self._sent.ranges(self._client, source, self._runs)[number]


def shared_out(holders: Sequence[Sequence[str]], threads: Mapping[str, int]) -> list[str]:
    """The worker of each chunk: one that has it, as long as that has no more than its share, which its threads say.

    >>> shared_out([("a",), ("a",), ("a", "b"), ("a",)], {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    """
    total = sum(threads.values())
    room = {worker: -(-len(holders) * count // total) for worker, count in threads.items()}
    found = [""] * len(holders)

    def give(number: int, workers: Iterable[str]) -> None:
        worker = max(workers, key=room.__getitem__, default="")
        if worker:
            room[worker] -= 1
        found[number] = worker

    for number in sorted(range(len(holders)), key=lambda number: len(holders[number])):
        give(number, [worker for worker in holders[number] if room.get(worker, 0) > 0])
    for number, worker in enumerate(found):
        if not worker:
            give(number, room)
    return found


def _cut(chunks: Sequence[tuple[int, Chunk]], count: int) -> list[list[tuple[int, Chunk]]]:
    """So many parts of about the same length, or one for each chunk."""
    count = min(len(chunks), count)
    bounds = [len(chunks) * k // count for k in range(count + 1)]
    return [list(chunks[start:stop]) for start, stop in itertools.pairwise(bounds)]


@dataclass(frozen=True, eq=False)
class _Work:
    """What the task of a run of chunks is to do."""

    stage: Once[Stage]
    call: Once[Call]
    run: tuple[tuple[int, Chunk], ...]
    client: Maker


def _run(
    work: _Work, given: Sequence[Any], merge_given: Sequence[Any], arrays: Sequence[Any]
) -> list[Node] | Exception:
    """A task: the subtrees of a run of chunks, or the exception that the program raised, which is a result of it."""
    Maker.here(work.client.cpu).check(work.client)
    places = {number: place for place, (number, _) in enumerate(work.run)}

    def of_chunk(number: int, chunk: Chunk) -> list[Any]:
        """The arrays of a chunk; those of the one before are no longer read."""
        given = [each[places[number]] if isinstance(each, list) else each for each in arrays]
        return [read(array, chunk, buffer) for array, buffer in zip(given, buffers, strict=True)]

    try:
        with recycled(len(arrays)) as buffers:
            chunks = ((number, chunk, of_chunk(number, chunk)) for number, chunk in work.run)
            return combined(work.stage.value, work.call.value, chunks, given, merge_given, 1).nodes
    except OSError as error:  # of a file, which others may see
        from distributed import get_worker

        return type(error)(f"{error} (on the worker {get_worker().address})")
    except Exception as error:
        return error
