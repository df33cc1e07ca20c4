"""Tracing, and the reverse pass over the trace: what a step costs, and what several workers gain.

    make bench                                      # or, where Adze is installed:
    python benchmarks/trace.py [--runs 9] [--workers 2] [--steps 1000 10000 100000 1000000] [--size 1000000]

Nothing is compiled but what the last table compares with. Contenders take turns, one call each a run; a table gives
the median of the runs and their range, and a first call of each is not timed. Python's garbage collector is at work,
as it is for a user. The process is confined to as many cores as there are workers. What is compared must agree, and
with any number of workers to the bit.

The tables are printed and written to benchmarks/results/trace.md.
"""

import argparse
import datetime
import gc
import importlib.metadata
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from lines.gmm import DIFFERENTIATED, example
from measure import confine, leaves, processor, versions
from programs import kmeans
from report import RESULTS, table

import adze as az
from adze.ad.tape import reverse

STEPS = (1_000, 10_000, 100_000, 1_000_000)
MOST_VECTORS = 10_000  # steps of a trace of vectors
MOST_MEASURED = 100_000  # steps of a trace whose memory is measured, which slows Python down
BRANCHES = 4
TURNS = 1_000  # of the loop that is compared
Vector = az.Array[az.f64, "n"]


# What is measured


@az.program
def numbers(x: az.f64, n: az.i64) -> az.f64:
    """A chain of n steps on numbers."""
    return az.fori_loop(0, n, lambda i, y: az.sin(y), x)


@az.program
def vectors(x: Vector, n: az.i64) -> az.f64:
    """A chain of n maps."""
    return az.sum(az.fori_loop(0, n, lambda i, y: az.map(lambda v: az.sin(v), y), x))


@az.program
def elements(x: Vector) -> az.f64:
    """A read of each element, one after the other: a third of the steps."""
    return az.fori_loop(0, az.size(x), lambda i, s: s + x[i] * x[i], 0.0)


@az.program
def wide(x: Vector) -> az.f64:
    """Branches that do not depend on each other, each of heavy work on all elements."""

    def branch(k: int) -> Any:
        return az.sum(az.map(lambda v: az.exp(az.sin(az.tanh(az.cos(v * k)) + az.log1p(v * v))), x))

    return sum([branch(k) for k in range(1, BRANCHES + 1)], 0.0)


@az.program
def loop(x: az.f64, s: az.f64, n: az.i64) -> az.f64:
    return az.fori_loop(0, n, lambda i, y: az.sin(y) * s, x)


CHAINS: dict[str, tuple[az.Program, Callable[[int], tuple[Any, ...]], int]] = {
    "numbers": (numbers, lambda n: (0.5, n), max(STEPS)),
    "elements of an array": (elements, lambda n: (np.linspace(0.0, 1.0, n // 3),), max(STEPS)),
    "maps of 10 elements": (vectors, lambda n: (np.linspace(0.0, 1.0, 10), n), MOST_VECTORS),
}


# The measurement


def in_turns(calls: Sequence[Callable[[], Any]], runs: int) -> list[np.ndarray]:
    """The seconds of each call in each run."""
    times = np.empty((len(calls), runs))
    for call in calls:
        call()
    for run in range(runs):
        for row, call in enumerate(calls):
            gc.collect()
            start = time.perf_counter()
            call()
            times[row, run] = time.perf_counter() - start
    return list(times)


def shown(times: np.ndarray, unit: float) -> list[str]:
    """The median and the range in a unit of so many seconds."""
    least, middle, most = np.percentile(times, (0, 50, 100)) / unit
    return [f"{middle:.3g}", f"{least:.3g} to {most:.3g}"]


def most_bytes(call: Callable[[], Any]) -> int:
    """The most memory that a call takes beyond what was there."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def swept(trace: az.Trace, workers: int = 1) -> list[Any]:
    """The gradient of what was traced."""
    return reverse(trace.block, trace.inputs, trace.values, [1.0], workers)


def same_bits(found: Sequence[Any], wanted: Sequence[Any], what: str) -> None:
    pairs = zip(found, wanted, strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs), f"{what}: other bits"


# The tables


def costs(steps: Sequence[int], runs: int) -> list[list[str]]:
    """Tracing and the reverse pass of chains, a step."""
    rows = []
    for name, (program, arguments, most) in CHAINS.items():
        for n in steps:
            if n > most:
                continue
            given = arguments(n)
            trace = az.trace(program)(*given)
            tracing, sweep = in_turns(
                [lambda p=program, a=given: az.trace(p)(*a), lambda t=trace: swept(t)],  # type: ignore[misc]
                runs if n < max(STEPS) else min(runs, 3),
            )
            memory = ["", ""]
            if n <= MOST_MEASURED:
                calls = [lambda p=program, a=given: az.trace(p)(*a), lambda t=trace: swept(t)]  # type: ignore[misc]
                memory = [f"{most_bytes(call) / len(trace):.0f}" for call in calls]
            unit = 1e-6 * len(trace)
            rows.append([name, f"{len(trace):,}", *shown(tracing, unit), *shown(sweep, unit), *memory])
            print("|", *rows[-1], flush=True)
    return rows


def gains(size: int, length: int, workers: int, runs: int) -> list[list[str]]:
    """The reverse pass by one worker and by several."""
    rows = []
    programs = {
        f"{BRANCHES} branches, each a map of {size:,}": (wide, (np.linspace(0.0, 1.0, size),)),
        f"{BRANCHES} branches, each a map of {size // 1000:,}": (wide, (np.linspace(0.0, 1.0, size // 1000),)),
        f"a chain of {length:,} numbers": (numbers, (0.5, length)),
    }
    for name, (program, arguments) in programs.items():
        trace = az.trace(program)(*arguments)
        same_bits(swept(trace, workers), swept(trace), name)
        one, many = in_turns([lambda t=trace, n=n: swept(t, n) for n in (1, workers)], runs)  # type: ignore[misc]
        rows.append([name, *shown(one, 1e-3), *shown(many, 1e-3), f"{np.median(one) / np.median(many):.2f}"])
    return rows


def compared(runs: int) -> list[list[str]]:
    """The ways to a gradient, and another tool's, on the same programs."""
    case = next(case for case in example.read_cases() if case.name == "d=10 k=25 n=1000")
    wanted = [case.objective, *(case.gradient[part] for part in example.PARTS)]
    random = np.random.default_rng(2026)
    clusters = random.random((1000, 3)), random.random((10, 3))
    rows = []
    for name, program, argnums, arguments, known in (
        ("gmm, d=10 k=25 n=1000", example.objective, DIFFERENTIATED, case.arguments, wanted),
        ("kmeans, n=1000 d=3 k=10", kmeans.cost, (0, 1), clusters, None),
        (f"a loop of {TURNS:,} turns", loop, (0, 1), (0.5, 1.5, TURNS), None),
    ):
        gradient = az.value_and_grad(program, argnums=argnums)
        ways: dict[str, Callable[..., Any]] = {
            "by the trace": az.value_and_grad(program, argnums=argnums, via="trace"),
            "evaluated": az.evaluate(gradient),
            "compiled, 1 thread": az.compile(gradient, threads=1),
        }
        if program is loop and torch_loop() is not None:
            ways["PyTorch, eager"] = torch_loop()
        results = [leaves(way(*arguments)) for way in ways.values()]
        for found in results:
            for part, expected in zip(found, known or results[-1], strict=True):
                np.testing.assert_allclose(part, expected, rtol=1e-8, atol=1e-8)
        times = in_turns([lambda way=way, a=arguments: way(*a) for way in ways.values()], runs)  # type: ignore[misc]
        rows += [[f"{name}: {way}", *shown(row, 1e-3)] for way, row in zip(ways, times, strict=True)]
    return rows


def torch_loop() -> Any:
    """``loop`` with PyTorch's tape, if that is there."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)

    def run(x: float, s: float, n: int) -> Any:
        start, factor = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (x, s))
        y = start
        for _ in range(n):
            y = torch.sin(y) * factor
        y.backward()
        return y.detach().numpy(), (start.grad.numpy(), factor.grad.numpy())

    return run


def torch_version() -> str:
    try:
        return f"torch {importlib.metadata.version('torch')}"
    except importlib.metadata.PackageNotFoundError:
        return "torch not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description="Traces: the cost of a step, and the gain of workers.")
    parser.add_argument("--runs", type=int, default=9, help="how often everything is measured (the longest traces: 3)")
    parser.add_argument("--workers", type=int, default=2, help="threads of the reverse pass, and cores of the process")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="lengths of traces")
    parser.add_argument("--size", type=int, default=1_000_000, help="elements of the arrays of a wide trace")
    options = parser.parse_args()
    if options.runs < 3:
        parser.error("--runs: at least 3")
    if options.workers < 2:
        parser.error("--workers: at least 2")

    cores = confine(options.workers)
    median = ["", "range"]
    cost_rows = costs(options.steps, options.runs)
    gain_rows = gains(options.size, min(10_000, max(options.steps)), options.workers, options.runs)
    compared_rows = compared(options.runs)
    report = [
        "# Traces, float64",
        f"{datetime.date.today()}, {processor()}, {cores}; {versions()}, {torch_version()}.",
        f"Medians and ranges of {options.runs} runs taken in turns (of traces of {max(STEPS):,} steps "
        f"{min(options.runs, 3)}), after one that is not timed.",
        "## A step",
        "Microseconds a step of a chain, and the most bytes a step that are in use meanwhile: of tracing, all of the "
        "trace; of the reverse pass, what it takes beside the trace. One worker.",
        table(["chain", "steps", "tracing", median[1], "reverse", median[1], "bytes", "bytes, reverse"], cost_rows),
        "## Workers",
        f"Milliseconds of the reverse pass by one worker and by {options.workers}. It pays where steps that do not "
        "depend on each other take long, in NumPy, which lets other threads run; where steps are short, Python runs "
        "them one by one.",
        table(["trace", "1 worker", median[1], f"{options.workers} workers", median[1], "gain"], gain_rows),
        "## Ways to a gradient",
        "Milliseconds of a value and its gradient. By the trace each call is traced anew; the others run a program "
        "that was derived beforehand, which is not in their times.",
        table(["program", "median", "range"], compared_rows),
    ]
    text = "\n\n".join(report) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "trace.md").write_text(text, encoding="utf-8")
    print(f"table: {RESULTS / 'trace.md'}")


if __name__ == "__main__":
    main()
