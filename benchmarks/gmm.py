"""The Gaussian mixture model: Adze against JAX, objective and gradient, in float64.

    make bench                                      # or, where Adze and its peers are installed:
    python benchmarks/gmm.py [--runs 21] [--threads 2] [--sizes 10,25,1000 64,100,1000]

Every contender runs in this one process, which is confined to as many cores as Adze gets threads. They
take turns: in each round each contender is called once untimed and then for about 20 ms, and a run is the
mean time of these calls. The tables give the median and the spread of the runs; compile time stands apart.
Before anything is measured every contender must reproduce a known case (tests/data), and at every size all
of them must agree.

The tables are printed and written to benchmarks/results/gmm.md; with matplotlib there is a plot, gmm.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import gc
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import adze as az

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SIZES = ((10, 25, 1000), (64, 100, 1000))  # d, k, n
FUNCTIONS = ("gradient", "primal")
TURN = 0.02  # seconds of timed calls a turn, at least one call
DIFFERENTIATED = (0, 1, 2, 3)  # alpha, mu, q and l

Problem = tuple[Any, ...]  # alpha, mu, q, l, x, gamma, m
Callables = dict[str, Callable[..., Any]]  # the gradient and the primal
Times = dict[str, tuple[float, float]]  # for each: seconds to something callable, seconds to the first result


# The contenders


@dataclasses.dataclass(frozen=True)
class Contender:
    """``build`` makes the callables for a problem and measures how long that takes."""

    name: str
    build: Callable[[Problem], tuple[Callables, Times]]
    convert: Callable[[Problem], Problem]  # arguments as the contender likes them: not part of a run


def load_example() -> ModuleType:
    """examples/gmm.py as a module."""
    spec = importlib.util.spec_from_file_location("example_gmm", ROOT / "examples" / "gmm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def adze_contender(example: ModuleType, threads: int) -> Contender:
    """Adze on a number of threads; what is compiled first serves every size."""
    compiled: tuple[Callables, Times] | None = None

    def build(problem: Problem) -> tuple[Callables, Times]:
        nonlocal compiled
        if compiled is None:
            calls: Callables = {}
            times: Times = {}
            for function in FUNCTIONS:
                start = time.perf_counter()
                program = example.objective
                if function == "gradient":
                    program = az.value_and_grad(program, argnums=DIFFERENTIATED)
                call = az.compile(program, threads=threads)
                callable_after = time.perf_counter() - start
                call(*problem)
                calls[function], times[function] = call, (callable_after, time.perf_counter() - start)
            compiled = calls, times
        return compiled

    plural = "" if threads == 1 else "s"
    return Contender(f"Adze, {threads} thread{plural}", build, lambda problem: problem)


def jax_contenders() -> list[Contender]:
    """JAX, if it is there, with the formula as it stands and with one rewriting that helps it."""
    try:
        import jax
    except ImportError:
        return []
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from jax.scipy.special import gammaln, logsumexp

    def objective(distances: Callable[..., Any]) -> Callable[..., Any]:
        def gmm(alpha: Any, mu: Any, q: Any, l: Any, x: Any, gamma: Any, m: Any) -> Any:
            (n, d), k = x.shape, alpha.shape[0]
            # The position in l of every strictly lower element, which are stored column by column. A gather
            # and a mask are faster here than a scatter into zeros.
            column, row = np.triu_indices(d, 1)
            position = np.zeros((d, d), dtype=np.int64)
            position[row, column] = np.arange(row.size)
            lower = jnp.where(np.tri(d, k=-1, dtype=bool), l[:, position], 0.0) if d > 1 else 0.0
            diagonal = jnp.exp(q)
            factors = lower + diagonal[:, :, None] * np.eye(d)

            sum_q = jnp.sum(q, axis=1)
            beta = alpha + sum_q - 0.5 * distances(factors, mu, x)
            wishart = d + m + 1
            log_gamma = d * (d - 1) / 4 * math.log(math.pi) + jnp.sum(gammaln((wishart - np.arange(d)) / 2))
            return (
                jnp.sum(logsumexp(beta, axis=1))
                - n * (d / 2 * math.log(2 * math.pi) + logsumexp(alpha))
                + k * (wishart * d * jnp.log(gamma / math.sqrt(2)) - log_gamma)
                - gamma**2 / 2 * (jnp.sum(diagonal**2) + jnp.sum(l**2))
                + m * jnp.sum(sum_q)
            )

        return gmm

    def direct(factors: Any, mu: Any, x: Any) -> Any:
        """|Q (x - mu)|^2, one matrix product a component."""

        def component(factor: Any, mean: Any) -> Any:
            return jnp.sum(((x - mean) @ factor.T) ** 2, axis=1)

        return jax.vmap(component, out_axes=1)(factors, mu)

    def expanded(factors: Any, mu: Any, x: Any) -> Any:
        """|Q x - Q mu|^2, a single large matrix product."""
        at_points = jnp.einsum("kij,nj->kin", factors, x)
        at_means = jnp.einsum("kij,kj->ki", factors, mu)
        return jnp.sum((at_points - at_means[:, :, None]) ** 2, axis=1).T

    def contender(name: str, distances: Callable[..., Any]) -> Contender:
        def build(problem: Problem) -> tuple[Callables, Times]:
            calls: Callables = {}
            times: Times = {}
            for function in FUNCTIONS:
                start = time.perf_counter()
                program = objective(distances)
                if function == "gradient":
                    program = jax.value_and_grad(program, argnums=DIFFERENTIATED)
                jitted = jax.jit(program)
                compiled = jitted.lower(*problem).compile()
                callable_after = time.perf_counter() - start
                jax.block_until_ready(compiled(*problem))
                times[function] = callable_after, time.perf_counter() - start
                # What is timed is the jitted function: it has JAX's fast path for calls, `compiled` has not.
                calls[function] = lambda *arguments, run=jitted: jax.block_until_ready(run(*arguments))
            return calls, times

        return Contender(name, build, lambda problem: tuple(jnp.asarray(value) for value in problem))

    jax.block_until_ready(jnp.zeros(2) + 1.0)  # the platform is initialised outside of the compile times
    return [contender("JAX", direct), contender("JAX, Qx - Qμ", expanded)]


# The problems


def known_case(name: str) -> tuple[Problem, list[Any]]:
    """A case of tests/data and its objective and gradient: ``name`` gives its sizes, as d_k_n."""
    outputs: dict[str, Any] = {}
    problem: Problem = ()
    for line in (ROOT / "tests" / "data" / "gmm.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["description"] == name:
            given = case["input"]
            d, k = given["d"], given["k"]
            shapes = {
                "alpha": (k,),
                "mu": (k, d),
                "q": (k, d),
                "l": (k, d * (d - 1) // 2),
                "x": (given["n"], d),
            }
            arrays = [np.array(given[key], dtype=np.float64).reshape(shape) for key, shape in shapes.items()]
            problem = (*arrays, float(given["gamma"]), int(given["m"]))
            outputs[case["function"]] = case["output"]
    jacobian = outputs["jacobian"]
    return problem, [outputs["objective"], *(jacobian[key] for key in ("alpha", "mu", "q", "l"))]


def random_problem(d: int, k: int, n: int) -> Problem:
    """Random arguments, distributed as those of ADBench."""
    random = np.random.default_rng(2026)
    return (
        random.standard_normal(k),
        random.random((k, d)),
        random.standard_normal((k, d)),
        random.standard_normal((k, d * (d - 1) // 2)),
        random.standard_normal((n, d)),
        1.0,
        0,
    )


def flat(result: Any) -> list[Any]:
    """(value, (alpha, mu, q, l)) as NumPy arrays in a list."""
    value, gradient = result
    return [np.asarray(value), *(np.asarray(part) for part in gradient)]


def error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference, relative to the largest magnitude in the same array (at least 1)."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b, dtype=np.float64)
        assert a.shape == b.shape, f"shape {a.shape}, where {b.shape} is expected"
        if b.size:
            worst = max(worst, float(np.max(np.abs(a - b)) / max(1.0, float(np.max(np.abs(b))))))
    return worst


def check(contender: Contender, calls: Callables, problem: Problem, wanted: Sequence[Any], what: str) -> float:
    """Refuse a contender whose gradient or primal is wrong; the error otherwise."""
    arguments = contender.convert(problem)
    found = flat(calls["gradient"](*arguments))
    off = max(error(found, wanted), error([np.asarray(calls["primal"](*arguments))], wanted[:1]))
    assert off <= 1e-8, f"{contender.name} is off by {off:.1e} on {what}"
    return off


# The measurement


def measure(calls: Sequence[tuple[Callable[..., Any], Problem]], runs: int) -> list[np.ndarray]:
    """The mean time of a call in milliseconds, for each of the callables and each of the runs."""
    repeats = []
    for call, arguments in calls:
        call(*arguments)
        start = time.perf_counter()
        call(*arguments)
        repeats.append(max(1, math.ceil(TURN / (time.perf_counter() - start))))
    times = np.empty((len(calls), runs))
    gc.collect()
    gc.disable()
    try:
        for run in range(runs):
            for row, (call, arguments) in enumerate(calls):
                call(*arguments)
                start = time.perf_counter()
                for _ in range(repeats[row]):
                    call(*arguments)
                times[row, run] = (time.perf_counter() - start) / repeats[row]
    finally:
        gc.enable()
    return list(times * 1e3)


def confine(threads: int) -> str:
    """Confine this process to as many cores as there are threads, and say so."""
    if not hasattr(os, "sched_setaffinity"):
        return f"{os.cpu_count()} cores, to which this process could not be confined"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:threads])
    used = min(threads, len(cores))
    return f"{used} of {len(cores)} cores" + ("" if used == threads else f", fewer than the {threads} threads")


def processor() -> str:
    """The name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> str:
    """What took part."""
    found = [f"Python {platform.python_version()}"]
    for package in ("adze", "numpy", "llvmlite", "jax"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


# The report


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    widths = [max(3, *(len(row[i]) for row in (head, *rows))) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])


def plot(measured: Sequence[tuple[str, list[tuple[str, dict[str, np.ndarray]]]]], path: Path) -> None:
    """Medians as bars, from quartile to quartile as lines; one picture a size."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(measured), figsize=(5.5 * len(measured), 3.8), squeeze=False)
    for axis, (title, rows) in zip(axes[0], measured, strict=True):
        for offset, function in enumerate(reversed(FUNCTIONS)):
            low, middle, high = np.percentile([times[function] for _, times in rows], (25, 50, 75), axis=1)
            place = np.arange(len(rows)) + 0.4 * (offset - 0.5)
            bars = axis.bar(place, middle, 0.38, yerr=(middle - low, high - middle), capsize=3, label=function)
            axis.bar_label(bars, fmt="%.3g", fontsize=8)
        axis.set_xticks(range(len(rows)), [name.replace(", ", ",\n") for name, _ in rows])
        axis.set_title(title)
        axis.set_ylabel("milliseconds")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"plot: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Adze against JAX on the Gaussian mixture model.")
    parser.add_argument("--runs", type=int, default=21, help="how often everything is measured (at least 9)")
    parser.add_argument("--threads", type=int, default=2, help="threads of Adze and cores of the process")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="d,k,n of each problem", type=read_size)
    options = parser.parse_args()
    if options.runs < 9:
        parser.error("--runs: a median needs at least 9")
    if options.threads < 1:
        parser.error("--threads: at least 1")

    cores = confine(options.threads)
    example = load_example()
    contenders = [adze_contender(example, threads) for threads in sorted({options.threads, 1}, reverse=True)]
    peers = jax_contenders()
    contenders += peers

    # The known case: compile times from scratch, and the check.
    known, wanted = known_case("10_25_1000")
    compile_rows = []
    for contender in contenders:
        calls, times = contender.build(contender.convert(known))
        off = check(contender, calls, known, wanted, "the known case")
        seconds = [f"{value:.2f}" for function in FUNCTIONS for value in times[function]]
        compile_rows.append([contender.name, *seconds, f"{off:.1e}"])

    # The sizes.
    run_tables = []
    measured = []
    for d, k, n in options.sizes:
        problem = random_problem(d, k, n)
        built = [(c, *c.build(c.convert(problem))) for c in contenders]
        reference = flat(built[-1][1]["gradient"](*contenders[-1].convert(problem)))
        for contender, calls, _ in built:
            check(contender, calls, problem, reference, f"d={d} k={k} n={n}, by {contenders[-1].name},")
        pairs = [(c, function) for c in range(len(built)) for function in FUNCTIONS]
        results = measure(
            [(built[c][1][function], contenders[c].convert(problem)) for c, function in pairs], options.runs
        )
        by_pair = dict(zip(pairs, results, strict=True))
        rows = []
        for c, (contender, _, times) in enumerate(built):
            cells = [contender.name]
            for function in FUNCTIONS:
                least, low, middle, high = np.percentile(by_pair[c, function], (0, 25, 50, 75))
                cells += [f"{middle:.3g}", f"{least:.3g}", f"{low:.3g} to {high:.3g}"]
            if contender in peers:
                compile_rows.append(
                    [f"{contender.name}, d={d} k={k}", *(f"{v:.2f}" for f in FUNCTIONS for v in times[f]), ""]
                )
            rows.append(cells)
        head = ["ms", *(h for f in FUNCTIONS for h in (f, "least", "quartiles"))]
        run_tables.append(f"## d={d} k={k} n={n}\n\n{table(head, rows)}")
        measured.append(
            (
                f"d={d} k={k} n={n}",
                [(c.name, {f: by_pair[i, f] for f in FUNCTIONS}) for i, c in enumerate(contenders)],
            )
        )

    head = ["s", *(h for f in FUNCTIONS for h in (f"{f}: callable", "first result")), "error"]
    report = [
        "# Gaussian mixture model, float64",
        f"{datetime.date.today()}, {processor()}, {cores}; {versions()}.",
        f"Milliseconds a call, over {options.runs} runs taken in turns, after a warm-up; compile time is not "
        "in them. A gradient comes with the value of the objective. "
        + (
            "JAX runs on its default thread pool, one thread a core that the process may use. `JAX` computes "
            "Q (x - μ) as the formula says, `JAX, Qx - Qμ` multiplies out, which is one large matrix product."
            if peers
            else "JAX is not installed, so Adze was measured alone: `pip install jax` adds it."
        ),
        *run_tables,
        "## Compile time",
        "Seconds from the program to something callable, and to its first result, in the order of the rows "
        "in one process, and the error on the known case (d=10 k=25 n=1000). What Adze compiles serves every "
        "size" + ("; JAX compiles again for each, as the rows with sizes show." if peers else "."),
        table(head, compile_rows),
    ]
    text = "\n\n".join(report) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gmm.md").write_text(text, encoding="utf-8")
    print(f"table: {RESULTS / 'gmm.md'}")
    plot(measured, RESULTS / "gmm.png")


def read_size(text: str) -> tuple[int, int, int]:
    """Three integers of a command line."""
    d, k, n = map(int, text.split(","))
    return d, k, n


if __name__ == "__main__":
    main()
