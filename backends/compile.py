"""``az.compile``: a program as machine code, or as kernels of a device.

A compiled program serves every size of its named dims (``compiled.py``). What the sizes of a call take of it is built
when it is first taken (or asked for): simplify, schedule, lower (``pipeline.py``), emit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.program import RUNNERS, Instance, P, R, as_program
from ..core.source import ending_at_user
from ..core.verb import Function
from .backend import LLVM, OpenCL
from .compiled import Compiled
from .constant_sizes import code_for_leaves
from .llvm.control import X86
from .opencl.devices import choose
from .runtime import debugged
from .transformations import ALL, Schedule, transformations_of


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
) -> Compiled[P, R]:
    """Compile a program, or one version of it (``f.at(...)``): for the cores of this machine, or for an OpenCL device.

    ``checks=False`` leaves out the requirements (indices in range, sizes that fit, divisors other than zero, neutral
    elements that are neutral).

    ``backend="llvm"`` is for the CPU. ``threads`` is the number of threads (default: ADZE_THREADS, or all cores), which
    never changes the result. With ``flush_subnormals=True`` numbers below 2.2e-308 (1.2e-38 in f32) count as zero, as
    they do in JAX: some processors take a hundred times as long to multiply them. For x86-64.

    ``backend="opencl"`` is for a ``device`` of :func:`adze.devices`: its index, a part of its name, or itself (default:
    ADZE_OPENCL_DEVICE, or the first usable GPU, else CPU). Where threads add to one place, they do so in any order,
    and the last bits of a result may differ from run to run; ``deterministic=True`` gives the same bits in each (on
    the CPU they always are).

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
    if backend == "llvm":
        if device is not None:
            raise ValueError('device= is for backend="opencl"')
        if threads is not None and (type(threads) is not int or threads < 1):
            raise ValueError(f"a program runs on at least one thread, a whole number of them, not {threads!r}")
        if flush_subnormals and not X86:
            raise ValueError("flush_subnormals= is for processors of the kind x86-64")
        return Compiled(chosen, LLVM(threads, checks, flush_subnormals, allowed, debugged()))
    if backend == "opencl":
        if threads is not None:
            raise ValueError('threads= is for backend="llvm"; a device runs as many as it has')
        if flush_subnormals:
            raise ValueError('flush_subnormals= is for backend="llvm"')
        return Compiled(chosen, OpenCL(choose(device), checks, deterministic, allowed))
    raise ValueError(f"there is no backend {backend!r}; there are 'llvm' and 'opencl'")


def _run_first(instance: Instance, leaves: Sequence[Any]) -> Any:
    """How a program called with arrays runs: compiled on first use, with the options of the first call of any."""
    default = LLVM(None, True, False, ALL, debugged())

    def run(instance: Instance, leaves: Sequence[Any]) -> Any:
        return default.run(default.version(code_for_leaves(instance, leaves)), leaves)

    RUNNERS["default"] = run
    return run(instance, leaves)


RUNNERS["default"] = _run_first
