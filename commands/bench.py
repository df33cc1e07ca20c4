"""``adze bench``: how long calls of a program take, what rates that is, and how far it is from the roofline.

Calls are those that users make, with arguments that are checked. A run is a number of calls that takes at least a
millisecond, and its time is that of one of them; the spread is that of the middle half of the runs. Compiling is apart.
Bytes and operations are those of the compiler's estimate (``compiled.cost``), not of counters: bytes that come from
beyond the first cache or go there, operations as many as the additions they are worth. ``roofline.py`` says what is the
least time for so many.

With ``--compare`` another program, or any Python function of the same arguments, takes turns with it, and the results
must agree.
"""

from __future__ import annotations

import gc
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from ..backends import roofline
from ..backends.compiled import Compiled
from ..backends.cost import Breakdown
from ..backends.runtime import default_threads
from ..core import trees
from ..core.program import Instance, Program
from ..core.progress import shown, still
from .arguments import read
from .command import Command, UsageError, argument_options, program_options, target_options
from .cost import time
from .programs import Named, closing, find, other, split
from .report import Line, Part, Report, Table
from .show import compiled

_RUN = 1e-3  # seconds that a run takes, at least
_RUNS = (5, 1000)  # at least, at most


@dataclass(frozen=True)
class Times:
    """The runs of a call, in seconds a call."""

    runs: np.ndarray[Any, Any]
    calls: int  # of a run

    @property
    def quartiles(self) -> list[float]:
        """The least, the lower quartile, the median, the upper quartile."""
        return [float(each) for each in np.percentile(self.runs, (0, 25, 50, 75))]

    def as_data(self) -> dict[str, Any]:
        least, low, median, high = self.quartiles
        found = {"least": least, "low": low, "median": median, "high": high}
        return {**found, "runs": len(self.runs), "calls_of_a_run": self.calls}

    def __str__(self) -> str:
        least, low, median, high = self.quartiles
        runs = f"{len(self.runs)} runs" + (f" of {self.calls} calls" if self.calls > 1 else "")
        return f"{time(median)}, from {time(low)} to {time(high)} in half of {runs}; least {time(least)}"


def _bench(options: Namespace) -> Report:
    found = find(options)
    given = read(found, options.arguments, seed=options.seed, fill=True)
    if options.seconds <= 0:
        raise UsageError(f"--seconds is a time above 0, not {options.seconds:g}")
    against = None if options.compare is None else other(options.compare, split(options.program)[0], found)
    with shown(f"compiling {found.name}"):
        values, code = given.values, compiled(found.program, options)
        started = perf_counter()
        result = found.call(lambda: code(*values))
        first = perf_counter() - started
    calls = [lambda: code(*values)]
    expected: Any = None
    if against is not None:
        call = _call(against, values, options)
        expected = against.call(call)
        calls.append(call)
    with shown(f"measuring {found.name}"), still():
        times = found.call(lambda: in_turns(calls, options.seconds))
    threads = None if options.backend == "opencl" else options.threads or default_threads()
    parts = [_times(code, times[0], first), _rates(found.call(lambda: code.cost(*values)), times[0])]
    parts.append(_roofline(parts[1].data, [*values, result], times[0], threads))
    if against is not None:
        parts.append(_compared(options.compare, found.name, times, result, expected))
    data: dict[str, Any] = {"program": found.name, "sizes": given.sizes, "generated": given.generated}
    data |= {"backend": options.backend, "threads": threads}
    for part in parts:
        data |= part.data
    sizes = "".join([f", {name} = {size}" for name, size in given.sizes.items()])
    on = "on a device" if threads is None else f"on {threads} thread{'s' if threads > 1 else ''}"
    rows: list[Part] = [
        Line(f"{found.name} {on}{sizes}", "bold"),
        Table((), [row for p in parts for row in p.rows], "lf"),
    ]
    if given.note:
        rows.append(Line(given.note, "dim"))
    return Report(data, rows, failed=any(part.failed for part in parts))


@dataclass(frozen=True)
class _Part:
    """A part of the report: keys of its data, and rows with names."""

    data: dict[str, Any]
    rows: list[tuple[str, str]]
    failed: bool = False


def _times(code: Compiled, times: Times, first: float) -> _Part:
    """How long calls take, and what compiling took."""
    states = sorted({each.state for each in code.specialisations if each.seconds > 0})
    data = {"time": times.as_data(), "compile_seconds": code.compile_seconds, "code": states}
    compiling = f"{time(code.compile_seconds)} ({' and '.join(states) or 'before'}), apart"
    return _Part({**data, "first_call_seconds": first}, [("time", str(times)), ("compiling", compiling)])


def _rates(estimate: Breakdown, times: Times) -> _Part:
    """What the bytes and operations of the estimate are in that time."""
    operations, count = sum([row.operations for row in estimate.rows]), sum([row.bytes for row in estimate.rows])
    median = times.quartiles[2]
    data = {"operations": operations, "bytes": count}
    data |= {"operations_a_second": operations / median, "bytes_a_second": count / median}
    rows = [
        ("memory", f"{1e-9 * count / median:.3g} GB/s ({count:.3g} bytes beyond the first cache, estimated)"),
        ("arithmetic", f"{1e-9 * operations / median:.3g} GFlop/s ({operations:.3g} operations, estimated)"),
    ]
    return _Part(data, rows)


def _roofline(rates: dict[str, Any], values: list[Any], times: Times, threads: int | None) -> _Part:
    """The least time for so many bytes and operations, where threads of this machine run."""
    operations, count, median = rates["operations"], rates["bytes"], times.quartiles[2]
    if threads is None:
        return _Part({"roofline": None}, [("roofline", "not measured on devices")])
    if operations == count == 0:
        says = "says nothing: the estimate has no loops, so neither operations nor bytes"
        return _Part({"roofline": None}, [("roofline", says)])
    roof = roofline.around(threads, values)
    best, bound = roof.seconds(operations, count), roof.bound(operations, count)
    data = {"seconds": best, "share": best / median, "bound": bound, **roof.as_data()}
    says = f"{best / median:.0%} of it: {time(best)} at best, for its {bound} ({roof})"
    return _Part({"roofline": data}, [("roofline", says)])


def _compared(name: str, of: str, times: Sequence[Times], result: Any, expected: Any) -> _Part:
    """The time of what took turns, and whether its result is the same."""
    own, others = times
    ratio = others.quartiles[2] / own.quartiles[2]
    difference, tolerance = differ(result, expected)
    agree = difference <= tolerance
    data = {"with": name, "time": others.as_data(), "ratio": ratio}
    data |= {"difference": difference, "tolerance": tolerance, "agree": agree}
    results = "the results agree" if agree else "the results differ"
    rows = [
        (name, str(others)),
        ("ratio", f"{ratio:.3g}: so many times as long as {of} takes {name}"),
        ("results", f"{results}: by {difference:.2g} at most, of {tolerance:.2g} that rounding may do"),
    ]
    return _Part({"compare": data}, rows, failed=not agree)


def _call(against: Named, values: Sequence[Any], options: Namespace) -> Callable[[], Any]:
    """A call of what is compared with: a program compiled in the same way, or a Python function as it is."""
    if not isinstance(against.program, Program | Instance):
        return lambda: against.program(*values)
    code = compiled(closing(against).program, options)
    return lambda: code(*values)


def in_turns(calls: Sequence[Callable[[], Any]], seconds: float) -> list[Times]:
    """Measure calls, a run of one after a run of the other; about so many seconds for each."""
    once = [min(_run(call, 1), _run(call, 1)) for call in calls]
    run = max(_RUN, max(once) / 8)  # what is short has more calls in a run, beside something long
    counts = [max(1, math.ceil(run / taken)) for taken in once]
    longest = max([taken * count for taken, count in zip(once, counts, strict=True)])
    rounds = min(max(int(seconds / longest), _RUNS[0]), _RUNS[1])
    runs: list[list[float]] = [[] for _ in calls]
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for row, call, count in zip(runs, calls, counts, strict=True):
                row.append(_run(call, count))
    finally:
        gc.enable()
    return [Times(np.array(row), count) for row, count in zip(runs, counts, strict=True)]


def _run(call: Callable[[], Any], count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - started) / count


def differ(result: Any, expected: Any) -> tuple[float, float]:
    """The largest difference of two results, relative to the largest magnitude of the same leaf; and what may be.

    That is the root of the precision of the coarser type. Integers must be equal, infinities and NaN be in the same
    places; what has another shape differs infinitely.

    >>> differ((np.float64(2.0), [1, 2]), (2.5, [1, 2]))
    (0.2, 1.4901161193847656e-08)
    """
    leaves, others = [[np.asarray(leaf) for leaf in trees.flatten(tree)[0]] for tree in (result, expected)]
    types = [leaf.dtype for leaf in [*leaves, *others] if leaf.dtype.kind == "f"]
    tolerance = math.sqrt(max([float(np.finfo(type).eps) for type in types], default=0.0))
    if len(leaves) != len(others):
        return math.inf, tolerance
    return max([_difference(a, b) for a, b in zip(leaves, others, strict=True)], default=0.0), tolerance


def _difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    if a.shape != b.shape:
        return math.inf
    unequal = ~((a == b) | ((a != a) & (b != b)))
    if not unequal.any():
        return 0.0
    if a.dtype.kind != "f" or b.dtype.kind not in "fiu":
        return math.inf
    finite = np.isfinite(a) & np.isfinite(b)
    if (unequal & ~finite).any():
        return math.inf
    largest = max(float(np.max(np.abs(a[finite]))), float(np.max(np.abs(b[finite]))))
    return float(np.max(np.abs(a[unequal] - b[unequal]))) / largest


def _bench_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    with_ = "a program or function of the same arguments: FILE:OTHER, or :OTHER in the same file"
    parser.add_argument("--compare", metavar="OTHER", help=with_)
    parser.add_argument("--seconds", type=float, default=1.0, help="to measure each for, about (default: 1)")
    target_options(parser)


BENCH = Command("bench", "Measure calls: times, rates, and the share of the roofline.", _bench, _bench_options)
