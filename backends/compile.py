"""``az.compile``: a program as machine code.

A compiled program serves every size of its named dims. It is built when it is first called (or asked for its code):
simplify, schedule, lower, emit. Calls check and convert their arguments, allocate the results and run; a requirement
that failed during the run is raised as the exception it stands for, with the user's line.
"""

from __future__ import annotations

import ctypes
import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..core import trees
from ..core.arguments import convert
from ..core.program import RUNNERS, Instance, Program, as_program, instance_of
from ..core.source import at_line
from ..core.types import Type, dims, element
from ..interpreters.simplify import simplify
from .llvm.host import host_target
from .llvm.jit import Executable
from .llvm.unit import ALIGNMENT
from .loops_check import check as check_loops
from .loops_text import text as loops_text
from .lowering import lower, returned
from .peak import Peak
from .prepare import open_checkpoints, prepare
from .runtime import default_threads
from .schedule import schedule

_free = ctypes.CDLL(None).free  # of the C library


class Compiled:
    """A compiled program: call it like the program itself. Made by :func:`compile`."""

    def __init__(self, program: Program | Instance, threads: int | None, checks: bool) -> None:
        self.program, self.threads, self.checks = program, threads, checks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arrays: NumPy's in, NumPy's out. Raises what the program itself raises."""
        instance, arguments = self._chosen(args, kwargs)
        return version(instance, self.checks).run(instance.leaves(arguments), self.threads)

    def _chosen(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Instance, list[Any]]:
        """The instance that arguments choose, and one argument a parameter."""
        arguments = self.program.bind(args, kwargs)
        chosen = self.program if isinstance(self.program, Instance) else self.program.instance_for(arguments)
        return chosen, arguments

    def peak_bytes(self, *args: Any, **kwargs: Any) -> int:
        """The most memory that a call with these arguments takes: its temporaries and its results, in bytes.

        Nothing is run. The arguments themselves do not count, and of most of them only the shape matters: ``np.empty``
        of that shape will do. Scalars and integer arrays may decide sizes, such as those of the checkpoints of a loop
        with so many steps. What is taken differently in different iterations is bounded by the largest. ``threads``
        matters, as each has temporaries of its own in parallel loops. Raises ValueError where a size is computed from
        floating numbers or by a ``while``: that is known after the run; and what a call raises for its arguments.

        >>> import adze as az
        >>> def grow(checkpoint):
        ...     @az.program
        ...     def f(x: az.Array[az.f64, "m"], steps: az.i64) -> az.f64:
        ...         return az.sum(az.fori_loop(0, steps, lambda i, s: az.sin(s * x), x, checkpoint=checkpoint))
        ...     return az.compile(az.grad(f), threads=1)
        >>> state = np.empty(1000)
        >>> [round(grow(c).peak_bytes(state, 400) / state.nbytes) for c in ("all", "sqrt")]
        [405, 47]
        """
        instance, arguments = self._chosen(args, kwargs)
        return version(instance, self.checks).peak_bytes(instance.leaves(arguments), self.threads)

    def __repr__(self) -> str:
        return f"<compiled {self.program!r}>"

    @property
    def _annotated(self) -> Version:
        return version(instance_of(self.program), self.checks)

    @property
    def loops(self) -> str:
        """The loop IR, as text. This and what follows needs a program whose parameters are all annotated."""
        return loops_text(self._annotated.lowered.function)

    @property
    def llvm_ir(self) -> str:
        """The LLVM IR, after optimisation."""
        return self._annotated.executable.llvm_ir

    @property
    def assembly(self) -> str:
        """The machine code, as assembly."""
        return self._annotated.executable.assembly

    @property
    def compile_seconds(self) -> float:
        """How long it took from the program to machine code."""
        return self._annotated.seconds


class Version:
    """The machine code of one instance. One serves all sizes, and may be called from several threads at once."""

    def __init__(self, instance: Instance, checks: bool) -> None:
        started = time.perf_counter()
        self.instance = instance
        term = open_checkpoints(schedule(simplify(prepare(instance.term))))
        self.lowered = lower(term, _identifier(instance.program.name), host_target(), checks)
        check_loops(self.lowered.function)
        self.executable = Executable(self.lowered.function)
        self.constants = [constant.array for constant in self.lowered.constants]
        self.results = [_Returned(type) if returned(type) else _Result(type) for type in term.types]
        self.seconds = time.perf_counter() - started

    def run(self, leaves: Sequence[Any], threads: int | None) -> Any:
        """Run on the leaves of a call's arguments; the results have memory of their own."""
        arrays, sizes = convert(self.instance, leaves)
        buffers = [_readable(array) for array in arrays]
        results = [result.allocate(sizes) for result in self.results]
        loose = [result for result, how in zip(results, self.results, strict=True) if isinstance(how, _Returned)]
        written = [result for result, how in zip(results, self.results, strict=True) if isinstance(how, _Result)]
        addresses = [array.ctypes.data for array in (*buffers, *self.constants, *written, *loose)]
        extents = [sizes[name] for name in self.lowered.function.sizes]
        failure = self.executable.run(addresses, extents, threads or default_threads())
        results = [how.finish(result) for result, how in zip(results, self.results, strict=True)]
        if failure is not None:
            raise self.lowered.failures[failure.site].error(failure.values)
        values = [result if result.ndim else result[()] for result in results]
        return trees.unflatten(self.instance.outputs, values)

    @cached_property
    def _peak(self) -> Peak:
        return Peak(self.lowered.function)

    def peak_bytes(self, leaves: Sequence[Any], threads: int | None) -> int:
        """The bytes of the arena, of temporaries beside it and of the results of a call."""
        arrays, sizes = convert(self.instance, leaves)
        function, threads = self.lowered.function, threads or default_threads()
        named = zip(function.arguments, (*arrays, *self.constants), strict=True)
        try:
            dynamic = self._peak.bytes({buffer.name: array for buffer, array in named}, sizes, threads, ALIGNMENT)
        except LookupError as error:
            raise ValueError(
                at_line(
                    f"{self.instance.program.name}: how much memory a call takes is known when it has run: "
                    f"the size of the temporary {error.args[0]} (see az.compile(...).loops) is computed on the way"
                )
            ) from None
        arena = self.executable.arena_bytes([sizes[name] for name in function.sizes], threads)
        return arena + dynamic + sum(how.bytes(sizes) for how in self.results)


class _Result:
    """How to allocate a result for given sizes."""

    def __init__(self, type: Type) -> None:
        self.dims, self.dtype = dims(type), element(type).dtype

    def allocate(self, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        return np.empty(tuple([dim.evaluate(sizes) for dim in self.dims]), self.dtype)

    def bytes(self, sizes: Mapping[str, int]) -> int:
        return math.prod([dim.evaluate(sizes) for dim in self.dims]) * self.dtype.itemsize

    def finish(self, result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return result


class _Returned:
    """How to take over a result whose size the run decides: the function writes its address and extents to a record."""

    def __init__(self, type: Type) -> None:
        self.rank, self.dtype = len(dims(type)), element(type).dtype

    def allocate(self, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        return np.zeros(1 + self.rank, np.int64)

    def bytes(self, sizes: Mapping[str, int]) -> int:
        return 0  # a temporary, until it is handed over

    def finish(self, record: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        address, *shape = map(int, record)
        shape = [max(0, length) for length in shape]
        memory = (ctypes.c_char * (math.prod(shape) * self.dtype.itemsize)).from_address(address)
        weakref.finalize(memory, _free, ctypes.c_void_p(address))
        return np.frombuffer(memoryview(memory), self.dtype).reshape(shape)


def _readable(array: np.ndarray[Any, Any] | np.generic) -> np.ndarray[Any, Any]:
    """An argument in row-major order; an empty one with room for one along each axis.

    A read whose index is clamped then touches the argument's own memory, even in an empty array.
    """
    if array.size == 0:
        return np.zeros([max(1, length) for length in array.shape], array.dtype)
    return np.ascontiguousarray(array)


def version(instance: Instance, checks: bool) -> Version:
    """The compiled form of an instance, made on first use and kept with it."""
    found = instance.compiled.get(checks)
    if found is None:
        found = instance.compiled[checks] = Version(instance, checks)
    return found


def compile(
    program: Program | Instance | Callable[..., Any],
    *,
    backend: str = "llvm",
    threads: int | None = None,
    checks: bool = True,
) -> Compiled:
    """Compile a program, or one version of it (``f.at(...)``), for the cores of this machine.

    ``threads`` is the number of threads (default: ADZE_THREADS, or all cores), which never changes the result.
    ``checks=False`` leaves out the requirements (indices in range, sizes that fit, divisors other than zero).
    Raises ValueError for another backend; TypeError, when the code is built, for programs that only evaluate takes.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> fast = az.compile(norm2, threads=1)
    >>> float(fast(np.array([3.0, 4.0])))
    25.0
    """
    if backend != "llvm":
        raise ValueError(f"there is no backend {backend!r}; there is 'llvm'")
    if threads is not None and threads < 1:
        raise ValueError(f"a program runs on at least one thread, not {threads}")
    chosen = program if isinstance(program, Instance) else as_program(program)
    return Compiled(chosen, threads, checks)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _run(instance: Instance, leaves: Sequence[Any]) -> Any:
    """How a program called with arrays runs: compiled on first use."""
    return version(instance, True).run(leaves, None)


RUNNERS["default"] = _run
