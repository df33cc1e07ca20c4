"""A program that was compiled for chunks: what ``az.compile(f, backend="dask", over="n")`` gives."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from ...core.limits import lifted_limits
from ...core.presented import SignatureOf
from ...core.program import Instance, P, Program, R, instance_of
from ...core.showing import Shown
from ...core.source import at_line, ending_at_user
from ..compiled import Compiled
from .cluster import Connected
from .parts import Options
from .plan import Plan
from .version import Kept, Moved, Version

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class Chunked(Shown, Generic[P, R]):
    """A program over chunks: call it like the program itself. Made by :func:`compile` with ``backend="dask"``.

    Results whose types mention the size that is cut are arrays of Dask's, others are NumPy's.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def variance(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.mean((x - az.mean(x)) ** 2)
    >>> float(az.compile(variance, backend="dask", over="n", chunk=2)(np.array([1.0, 2.0, 3.0, 4.0, 5.0])))
    2.0
    """

    __signature__ = SignatureOf(lambda chunked: inspect.signature(chunked.program))

    def __init__(
        self,
        program: Program[P, R] | Instance,
        over: str,
        options: Options,
        threads: int | None,
        client: Any,
        chunk: int | None,
        memory: int | None,
    ) -> None:
        self.program, self.over, self._options, self._threads = program, over, options, threads
        self._client = Connected(client) if client is not None and not isinstance(client, Connected) else client
        self._chunk, self._memory = chunk, memory
        written = program.program if isinstance(program, Instance) else program
        self.__name__, self.__doc__ = written.name, written.__doc__
        if isinstance(program, Program) and not program.annotated:
            problem = "leaves types to its arguments: annotate its parameters, or compile f.at(types)"
            raise TypeError(at_line(f"{program.name} {problem}"))
        self._instance = instance_of(program)
        self._kept: Kept | None = None  # of a program that is called with the same arrays
        with lifted_limits():
            self._version = Version(self._instance, over, options)

    @ending_at_user
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the program: arrays over the size may be NumPy's, files (``np.memmap``), Dask's, zarr's or h5py's.

        Raises what the program itself raises, with indices of the whole arrays; ValueError where ``memory=`` has no
        room for a chunk.
        """
        leaves = self._instance.leaves(self.program.bind(args, kwargs))
        kept = self._kept or Kept()
        result: R = self._version.run(leaves, self._threads, self._client, self._chunk, self._memory, kept)
        return result

    @property
    def instance(self) -> Instance:
        """The version of the program that runs."""
        return self._instance

    def same_chunks(self, program: Program[Any, Any]) -> Chunked[Any, Any]:
        """Another program, compiled for the same chunks, client and options."""
        return Chunked(program, self.over, self._options, self._threads, self._client, self._chunk, self._memory)

    def keep_arrays(self, keep: bool) -> None:
        """Whether calls from now on take arrays that stay as they are: workers are not sent the same one again."""
        self._kept = Kept() if keep else None

    @property
    def plan(self) -> Plan:
        """What is done, in order: stages of all chunks, what is computed between them, and loops around them.

        >>> import adze as az
        >>> @az.program
        ... def variance(x: az.Array[az.f64, "n"]) -> az.f64:
        ...     return az.mean((x - az.mean(x)) ** 2)
        >>> print(az.compile(variance, backend="dask", over="n").plan)
        here: t2
        stage 1, of each chunk: t1: reduce, at ...
        here: t3
        stage 2, of each chunk: t4: reduce, at ...
        here: t5
        """
        return self._version.plan

    @ending_at_user
    def cost(self, *args: Any, **kwargs: Any) -> Moved:
        """What a call with these arguments, or ``sizes=``, moves: chunks, stages (of loops: one round), bytes read.

        Raises what a call raises for its arguments; TypeError when sizes have other names than those of the program.

        >>> import adze as az
        >>> @az.program
        ... def variance(x: az.Array[az.f64, "n"]) -> az.f64:
        ...     return az.mean((x - az.mean(x)) ** 2)
        >>> print(az.compile(variance, backend="dask", over="n").cost(sizes={"n": 10**9}))
        120 chunks, 2 stages, 16000.0 MB read
        """
        parameters = {parameter.name for parameter in self._instance.program.parameters}
        if "sizes" not in kwargs or "sizes" in parameters:
            call, _ = self._version.call(self._instance.leaves(self.program.bind(args, kwargs)), self._chunk, Kept())
            return self._version.moved(call.sizes, len(call.chunks))
        sizes, names = kwargs["sizes"], self._instance.declared.bound
        if args or len(kwargs) > 1:
            raise TypeError(at_line(f"{self.__name__}: cost takes arguments of a call, or sizes= alone"))
        if not isinstance(sizes, Mapping) or sizes.keys() != names:
            known = ", ".join(sorted(names))
            raise TypeError(at_line(f"{self.__name__}: cost takes a value for each size, which are: {known}"))
        return self._version.moved(sizes, self._version.count(sizes, self._chunk))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or not hasattr(Compiled, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            problem = f"has no {name}: it is a small program for each part of .plan"
            raise AttributeError(at_line(f"{self!r} {problem}; without over= az.compile gives what has one"))

    def __repr__(self) -> str:
        return f"<{self.__name__} compiled for chunks of {self.over}>"


def bytes_of(memory: int | str | None) -> int | None:
    """A bound on memory as a number of bytes; ValueError for what is none.

    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of(None)
    (2000000000, 1610612736, None)
    """
    if memory is None or (type(memory) is int and memory > 0):
        return memory
    if isinstance(memory, str):
        for unit, factor in UNITS.items():
            number = memory.removesuffix(unit).strip()
            if number != memory.strip() and number.replace(".", "", 1).isdigit():
                return round(float(number) * factor)
    raise ValueError(at_line(f"memory= is a number of bytes, or a text such as '2GB', not {memory!r}"))
