"""``az.compile``: a program as machine code, or as kernels of a device.

A compiled program serves every size of its named dims (``compiled.py``). What the sizes of a call take of it is built
when it is first taken (or asked for): simplify, schedule, lower (``pipeline.py``), emit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from ..core.program import RUNNERS, Instance, P, R, as_program
from ..core.source import at_line, ending_at_user
from ..core.verb import Function
from .backend import LLVM, OpenCL
from .chunked.chunked import Chunked, bytes_of
from .chunked.parts import Options
from .compiled import Compiled
from .constant_sizes import code_for_leaves
from .llvm.control import X86
from .llvm.host import LEVELS, lacking
from .opencl.devices import choose
from .runtime import debugged
from .transformations import ALL, Schedule, transformations_of


@overload
def compile(
    program: Function[P, R],
    *,
    backend: Literal["dask"],
    over: str,
    client: Any = None,
    chunk: int | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    checks: bool = True,
    flush_subnormals: bool = False,
    cpu: str | None = None,
    schedule: Schedule | None = None,
) -> Chunked[P, R]: ...
@overload
def compile(
    program: Function[P, R],
    *,
    backend: str = "llvm",
    threads: int | None = None,
    device: Any = None,
    checks: bool = True,
    flush_subnormals: bool = False,
    deterministic: bool = False,
    cpu: str | None = None,
    schedule: Schedule | None = None,
) -> Compiled[P, R]: ...
@ending_at_user
def compile(
    program: Function[P, R],
    *,
    backend: str = "llvm",
    threads: int | None = None,
    device: Any = None,
    checks: bool = True,
    flush_subnormals: bool = False,
    deterministic: bool = False,
    schedule: Schedule | None = None,
    over: str | None = None,
    client: Any = None,
    chunk: int | None = None,
    memory: int | str | None = None,
    cpu: str | None = None,
) -> Any:
    """Compile a program, or one version of it (``f.at(...)``): for the cores of this machine, or for an OpenCL device.

    ``checks=False`` leaves out the requirements (indices in range, sizes that fit, divisors other than zero, neutral
    elements that are neutral).

    ``backend="llvm"`` is for the CPU. ``threads`` is the number of threads (default: ADZE_THREADS, or all cores), which
    never changes the result. With ``flush_subnormals=True`` numbers below 2.2e-308 (1.2e-38 in f32) count as zero, as
    they do in JAX: some processors take a hundred times as long to multiply them. For x86-64. ``cpu`` is a level of
    processors, ``"x86-64"``, ``"x86-64-v2"``, ``"x86-64-v3"`` or ``"x86-64-v4"``, to use no more than what all of that
    level have (default: all that this one has); then results have the same bits on each of them.

    ``backend="opencl"`` is for a ``device`` of :func:`adze.devices`: its index, a part of its name, or itself (default:
    ADZE_OPENCL_DEVICE, or the first usable GPU, else CPU). Where threads add to one place, they do so in any order,
    and the last bits of a result may differ from run to run; ``deterministic=True`` gives the same bits in each (on
    the CPU they always are).

    ``backend="dask"`` is for arrays that are larger than memory, or than one machine: they are cut along the size
    ``over``, and the result has the same bits for any number of workers and threads. ``client`` is one of
    ``dask.distributed``, a cluster or an address; without one, chunks are streamed through this machine, within
    ``memory`` bytes ("2GB"). ``chunk`` is how many indices a chunk has (default: 64 MB of what is cut). See
    :class:`adze.Chunked`; raises Unsupported, a TypeError, with the line, for what cannot be cut.

    ``schedule`` is for experiments: it switches transformations of the scheduler off, as ``{"jam": False}``, or chooses
    a number that it would choose itself, as ``{"strip": 16}``. The names are the fields of ``Transformations``
    (``backends/transformations.py``). Under ``"force"`` single decisions are given by name, True or False; see
    :meth:`Compiled.decisions`. Results may differ in their last bits from those of another schedule.

    Raises ValueError for another backend or an option that it does not have; what is wrong with devices is said at
    once; TypeError, when the code is built, for programs that only evaluate takes.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> fast = az.compile(norm2, threads=1)
    >>> float(fast(np.array([3.0, 4.0])))
    25.0
    """
    chosen = program if isinstance(program, Instance) else as_program(program)
    allowed = transformations_of(schedule)
    if backend != "dask":
        for name, value in {"over": over, "client": client, "chunk": chunk, "memory": memory}.items():
            if value is not None:
                raise ValueError(at_line(f'{name}= is for backend="dask"'))
    if backend in ("llvm", "dask"):
        _check_cpu(cpu)
        if device is not None:
            raise ValueError(at_line('device= is for backend="opencl"'))
        if threads is not None and (type(threads) is not int or threads < 1):
            raise ValueError(at_line(f"a program runs on at least one thread, a whole number of them, not {threads!r}"))
        if flush_subnormals and not X86:
            raise ValueError(at_line("flush_subnormals= is for processors of the kind x86-64"))
    if backend == "dask":
        if over is None:
            raise ValueError(at_line('backend="dask" takes over=, the name of the size that is cut'))
        if chunk is not None and (type(chunk) is not int or chunk < 1):
            raise ValueError(at_line(f"a chunk has at least one index, a whole number of them, not {chunk!r}"))
        options = Options(checks, allowed, flush_subnormals, debugged(), cpu)
        return Chunked(chosen, over, options, threads, client, chunk, bytes_of(memory))
    if backend == "llvm":
        return Compiled(chosen, LLVM(threads, checks, flush_subnormals, allowed, debugged(), cpu))
    if backend == "opencl":
        if threads is not None:
            raise ValueError(at_line('threads= is for backend="llvm"; a device runs as many as it has'))
        if cpu is not None:
            raise ValueError(at_line('cpu= is for backend="llvm" and backend="dask"; a device has its own compiler'))
        if flush_subnormals:
            raise ValueError(at_line('flush_subnormals= is for backend="llvm"'))
        return Compiled(chosen, OpenCL(choose(device), checks, deterministic, allowed))
    raise ValueError(at_line(f"there is no backend {backend!r}; there are 'llvm', 'opencl' and 'dask'"))


def _check_cpu(cpu: str | None) -> None:
    """ValueError for a level of processors that there is not, or that this one is not of."""
    if cpu is None:
        return
    if not X86:
        raise ValueError(at_line("cpu= is for processors of the kind x86-64"))
    if cpu not in LEVELS:
        raise ValueError(at_line(f"cpu= is one of {', '.join(map(repr, LEVELS))}, not {cpu!r}"))
    if lacking(cpu):
        raise ValueError(at_line(f"this processor has no {', '.join(lacking(cpu))}, which cpu={cpu!r} asks for"))


def _run_first(instance: Instance, leaves: Sequence[Any]) -> Any:
    """How a program called with arrays runs: compiled on first use, with the options of the first call of any."""
    default = LLVM(None, True, False, ALL, debugged())

    def run(instance: Instance, leaves: Sequence[Any]) -> Any:
        return default.run(default.version(code_for_leaves(instance, leaves)), leaves)

    RUNNERS["default"] = run
    return run(instance, leaves)


RUNNERS["default"] = _run_first
