"""How time and memory are measured: contenders in turns, compile time and memory in a process of its own.

Clocks, caches and other programs change the speed of a machine from second to second. So the contenders of a
comparison take turns. In each *round* each of them rests until the threads of the one before have gone to sleep (some
wait in a loop for the next call, on the cores that the next one needs), is called once untimed, which warms the caches
up, and then so often that it takes ``TURN`` seconds; the mean of these calls is one *run*. What is told of a contender
is the median and the quartiles of its runs. Contenders that take long have fewer runs, and one whose call takes more
than ``LONG`` seconds has one. On one core the clock is the processor time of all threads, which other programs hardly
change, and the least is reported.

What a process does for the first time (compiling, asking for memory) cannot be measured in a process that did it
before: ``fresh`` starts a new one. So it is with the number of threads: tools ask for the cores when they start, and
``confined`` says how many a new process has.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

TURN = 0.015  # seconds of timed calls in a round, at least one call
WARMED = 0.2  # seconds: calls that take longer are not preceded by an untimed one
LONG = 1.0  # seconds: a call that takes longer is timed once
ROUNDS = (9, 15)  # at least, at most
Clock = Callable[[], float]

REST = 0.03  # seconds; OpenBLAS's threads need OPENBLAS_THREAD_TIMEOUT=25 to sleep by then
LEAST_WARMED = 256 << 20  # bytes of memory that are used before a first call
COPIED = 10**7  # elements of the arrays of the control


def in_turns(
    calls: Sequence[Callable[[], Any]],
    seconds: float,
    least: int = ROUNDS[0],
    most: int = ROUNDS[1],
    clock: Clock = time.perf_counter,
) -> list[np.ndarray]:
    """The runs of each call, in seconds a call; about ``seconds`` are spent on each, within so many rounds."""
    taken = [_once(call, clock) for call in calls]
    repeats = [max(1, math.ceil(TURN / t)) for t in taken]
    turns = [REST + t * (r + (t < WARMED)) for t, r in zip(taken, repeats, strict=True)]
    rounds = [min(max(int(seconds / turn), least), most) for turn in turns]
    runs: list[list[float]] = [[] for _ in calls]
    gc.collect()
    gc.disable()
    try:
        for turn in range(max(rounds, default=0)):
            for row, call in enumerate(calls):
                if taken[row] > LONG:
                    runs[row] = [taken[row]]
                elif turn < rounds[row]:
                    runs[row].append(_mean(call, repeats[row], taken[row] < WARMED, clock))
    finally:
        gc.enable()
    return [np.array(row) for row in runs]


def _mean(call: Callable[[], Any], repeats: int, warm: bool, clock: Clock) -> float:
    time.sleep(REST)
    if warm:
        call()
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _once(call: Callable[[], Any], clock: Clock) -> float:
    """The time of a call, the second where the first is short."""
    first = _mean(call, 1, False, clock)
    return first if first > WARMED else _mean(call, 1, False, clock)


def summary(runs: np.ndarray) -> dict[str, float]:
    """What is told of the runs, in seconds."""
    least, low, middle, high = (float(q) for q in np.percentile(runs, (0, 25, 50, 75)))
    return {"median": middle, "low": low, "high": high, "least": least, "runs": len(runs)}


# Controls: what the machine does at this moment, by code that is not ours


def controls(seconds: float = 0.5) -> dict[str, dict[str, float]]:
    """Copies, sums and a matrix product by NumPy; on two threads each does half of the elements."""
    random = np.random.default_rng(2026)
    x, matrix = random.standard_normal(COPIED), random.standard_normal((1000, 1000))
    y, product = np.empty_like(x), np.empty_like(matrix)
    halves = [slice(0, COPIED // 2), slice(COPIED // 2, COPIED)]
    with ThreadPoolExecutor(2) as pool:
        calls: dict[str, Callable[[], Any]] = {
            "copy": lambda: np.copyto(y, x),
            "copy, 2 threads": lambda: list(pool.map(lambda half: np.copyto(y[half], x[half]), halves)),
            "read": lambda: np.add.reduce(x),
            "read, 2 threads": lambda: list(pool.map(lambda half: np.add.reduce(x[half]), halves)),
            "matrix product": lambda: np.matmul(matrix, matrix, out=product),
        }
        return {name: summary(runs) for name, runs in zip(calls, in_turns(list(calls.values()), seconds), strict=True)}


# A process of its own


def fresh(
    command: Sequence[str], timeout: float, times: int = 1, environment: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """The JSON that a new process prints last, or what went wrong; of so many processes, one after the other.

    The first finds nothing in the caches of compiled code, the others what those before them left there.
    """
    with tempfile.TemporaryDirectory() as folder:
        caches = {"XDG_CACHE_HOME": folder, "ADZE_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        return [_process(command, timeout, {**os.environ, **caches, **environment}) for _ in range(times)]


def _process(command: Sequence[str], timeout: float, environment: dict[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"takes more than {timeout:.0f} s"}
    if done.returncode < 0:
        return {"failed": f"ended by {signal.Signals(-done.returncode).name}"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def first_call(build: Callable[[], Callable[[], Any]], size: int) -> dict[str, float]:
    """Seconds to the first result of what ``build`` compiles, and the bytes that this call took beyond what was there.

    To be called in a fresh process, with the bytes of the arguments. The memory is what the kernel counts as resident:
    the peak is set back after the compilation where the kernel allows that (Linux), else the compilation's own is part
    of it. A virtual machine takes ten times as long for pages that its host has to find first, as for those that some
    process had just before; how many of these there are depends on what a tool did with the arguments. So as much
    memory as a call is likely to take is used and given back before.
    """
    np.ones(max(2 * size, LEAST_WARMED) // 8)
    gc.collect()
    start = time.perf_counter()
    call = build()
    built = time.perf_counter() - start
    before = _resident("VmRSS")
    _forget_the_peak()
    start = time.perf_counter()
    call()
    return {"seconds": built + time.perf_counter() - start, "peak": float(max(_resident("VmHWM") - before, 0))}


def _forget_the_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _resident(what: str) -> int:
    """Bytes that this process has in memory now (VmRSS), or had at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(what):
            return 1024 * int(line.split()[1])
    return 0


# The machine


def confine(threads: int) -> str:
    """Confine this process to as many cores as there are threads, and say so."""
    if not hasattr(os, "sched_setaffinity"):
        return f"{os.cpu_count()} cores, to which this process could not be confined"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:threads])
    used = min(threads, len(cores))
    return f"{used} of {len(cores)} cores" + ("" if used == threads else f", fewer than the {threads} threads")


@contextlib.contextmanager
def confined(count: int) -> Iterator[None]:
    """Processes that are started inside have so many of the cores of this one, the last ones."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def processor() -> str:
    """The name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(packages: Sequence[str] = ("adze-lang", "numpy", "llvmlite", "jax")) -> str:
    """What took part."""
    found = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


# Results


def leaves(result: Any) -> list[np.ndarray]:
    """The arrays of a result, as NumPy's: those of tuples, lists and dictionaries one after another."""
    if isinstance(result, Mapping):
        return [leaf for name in sorted(result) for leaf in leaves(result[name])]
    if isinstance(result, tuple | list):
        return [leaf for part in result for leaf in leaves(part)]
    if hasattr(result, "indptr"):  # SciPy's compressed rows
        return [result.indptr, result.indices, result.data]
    if hasattr(result, "detach"):
        return [result.detach().cpu().numpy()]
    return [result.get() if hasattr(result, "get") else np.asarray(result)]


def error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference, relative to the largest magnitude in the same array (at least 1)"""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        assert a.shape == b.shape, f"shape {a.shape}, where {b.shape} is expected"
        assert np.array_equal(np.isnan(a), np.isnan(b)), "NaN, where a number is expected, or the other way round"
        differ = ~np.isnan(b) & (a != b)
        off = np.abs(a[differ] - b[differ])
        if off.size:
            worst = max(worst, float(np.max(off)) / max(1.0, float(np.nanmax(np.abs(b)))))
    return worst
