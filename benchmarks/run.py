"""The benchmark of the CPU: every line, against JAX, PyTorch, Numba and NumPy.

    make bench                        all lines: about 30 minutes on two cores
    make bench ONLY="gmm kmeans"      some, whose results replace those from before
    make bench QUICK=1                a look in a few minutes; results go to a temporary folder

or, where Adze and its peers are installed,

    python benchmarks/run.py [NAME ...] [--quick | --smallest] [--alone] [--seconds 0.7] [--output FOLDER]
    python benchmarks/run.py --report       write the tables and plots again from the results that are there

Each module in lines/ has a program's contenders. All of them must agree on every input before they are timed; how is
said in measure.py. The results of a module go to results/NAME.json, and from all of these the tables (bench.md), the
plots and the table of bounds (bounds.py) are made. ``--alone`` leaves the other tools out.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib
import json
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lines
import numpy as np
from contenders import THREADS, Adze, Contender, Line, planned, shown, started
from measure import ROUNDS, confine, controls, error, first_call, fresh, in_turns, leaves, processor, summary, versions
from report import RESULTS, write_reports

import adze as az
from adze.backends.llvm import control
from adze.backends.transformations import Transformations

PACKAGES = ("adze", "numpy", "scipy", "llvmlite", "jax", "torch", "numba")
SWITCHES = [field.name for field in dataclasses.fields(Transformations) if field.default is True]
PATIENCE = 120.0  # seconds for a first call in a process of its own
SECONDS = 0.7  # for each contender and function
QUICK = 0.15  # the same, in a quick look


def modules() -> list[str]:
    """The names of the modules in lines/."""
    return sorted(module.name for module in pkgutil.iter_modules(lines.__path__))


def lines_of(module: str) -> list[Line]:
    found: list[Line] = importlib.import_module(f"lines.{module}").LINES
    return found


def line_called(name: str) -> Line:
    return next(line for module in modules() for line in lines_of(module) if line.name == name)


# One line


def measure_line(line: Line, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about a line, as it is kept."""
    there = [c for c in line.contenders if c.is_there and not (options.alone and not isinstance(c.tool, Adze))]
    for contender in there:
        started(contender.tool)
    chosen = [line.sizes[0]] if options.smallest else [line.main] if options.quick else line.sizes
    found: dict[str, Any] = {
        "title": line.title,
        "functions": line.functions,
        "derivative": line.derivative,
        "main": shown(line.main),
        "sibling_of": line.sibling_of,
        "notes": line.notes,
        "sizes": {shown(sizes): measure_size(line, sizes, there, options) for sizes in chosen},
    }
    if not (options.quick or options.smallest):
        function = line.derivative or line.functions[0]
        found["fresh"] = {function: first_calls(line, function, there)}
        if line.ablated:
            found["ablation"] = ablation(line)
    return found


def measure_size(
    line: Line, sizes: dict[str, int], there: list[Contender], options: argparse.Namespace
) -> dict[str, Any]:
    """Both functions at one size."""
    arguments = line.arguments(**sizes)
    found: dict[str, Any] = {"numbers": sizes, "work": line.work(**sizes) if line.work else None, "functions": {}}
    for function in line.functions:
        given = line.given(function, arguments)
        moved = line.moved[function](**sizes) if function in line.moved else None
        timed = compare(line, function, there, given, options, f"{line.name}, {shown(sizes)}, {function}")
        found["functions"][function] = {"moved": moved, "contenders": timed}
    return found


def compare(
    line: Line, function: str, there: list[Contender], given: tuple[Any, ...], options: argparse.Namespace, what: str
) -> dict[str, Any]:
    """The times of those who agree with the first; the others are told with what is wrong."""
    found: dict[str, Any] = {}
    ready: dict[str, Callable[[], Any]] = {}
    wanted: list[np.ndarray] | None = None
    for contender in there:
        if function not in contender.programs():
            continue
        converted = contender.tool.convert(given)
        call = contender.call(function)
        try:
            result = leaves(call(*converted))
            wanted = result if wanted is None else wanted
            off = error(result, wanted)
            assert off <= line.tolerance, f"off by {off:.1e}"
        except Exception as failure:
            found[contender.name] = {"failed": f"{type(failure).__name__}: {str(failure).strip().splitlines()[0]}"}
            print(f"! {what}, {contender.name}: {found[contender.name]['failed']}", flush=True)
            continue
        found[contender.name] = {"off": off}
        ready[contender.name] = lambda call=call, converted=converted: call(*converted)
    for name, runs in zip(ready, in_turns(list(ready.values()), options.seconds, *options.rounds), strict=True):
        found[name] |= summary(runs)
    times = "  ".join(f"{name} {1e3 * row['median']:.4g}" for name, row in found.items() if "median" in row)
    print(f"{what}: {times} ms", flush=True)
    return found


# In a process of its own


def first_calls(line: Line, function: str, there: list[Contender]) -> dict[str, Any]:
    """Seconds to the first result and memory, of each contender on two threads; of Adze from its cache on disk, too."""
    command = [__file__, "--fresh", line.name, function]
    found = {}
    for contender in there:
        if function in contender.programs() and contender.tool not in (Adze(threads=1), Adze(into=True)):
            times = 2 if isinstance(contender.tool, Adze) else 1
            first, *again = fresh([*command, contender.name], PATIENCE, times)
            found[contender.name] = first | ({"again": again[0].get("seconds")} if again else {})
            print(f"  first call of {line.name}, {function}, {contender.name}: {found[contender.name]}", flush=True)
    return found


def first_call_of(line: Line, function: str, name: str) -> dict[str, Any]:
    """What ``first_calls`` asks the new process for."""
    contender = next(c for c in line.contenders if c.name == name)
    started(contender.tool)
    arguments = line.given(function, line.arguments(**line.main))
    size = sum(leaf.nbytes for leaf in leaves(arguments))
    given = contender.tool.convert(arguments)
    del arguments
    kept: list[Any] = []

    def build() -> Callable[[], Any]:
        kept.append(contender.call(function, given))
        return lambda: kept.append(kept[0](*given))

    found: dict[str, Any] = dict(first_call(build, size))
    most = planned(kept[0], given)
    return found if most is None else found | {"planned": most}


def ablation(line: Line) -> dict[str, Any]:
    """The time of the derivative on one thread with each of the scheduler's transformations switched off."""
    found = {}
    for switched_off in ("", *SWITCHES):
        found[switched_off] = fresh([__file__, "--without", line.name, switched_off], PATIENCE)[0]
        print(f"  {line.name} without {switched_off or 'none'}: {found[switched_off]}", flush=True)
    return found


def without(line: Line, switched_off: str, seconds: float) -> dict[str, float]:
    """What ``ablation`` asks the new process for."""
    program = line.contenders[0].programs()[line.derivative]
    schedule = {switched_off: False} if switched_off else None
    call = az.compile(program, threads=1, flush_subnormals=control.X86, schedule=schedule)
    given = line.given(line.derivative, line.arguments(**line.main))
    call(*given)
    return summary(in_turns([lambda: call(*given)], seconds)[0])


# All


def main() -> int:
    options = read_options()
    # The first two cores, of this process and of those that it starts.
    cores = confine(THREADS)
    if options.fresh:
        name, function, contender = options.fresh
        print(json.dumps(first_call_of(line_called(name), function, contender)))
        return 0
    if options.without:
        name, switched_off = options.without
        print(json.dumps(without(line_called(name), switched_off, options.seconds / 2)))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    failed = False
    for module in [] if options.report else options.names or modules():
        start = time.perf_counter()
        machine = {
            "date": f"{datetime.date.today()}",
            "processor": processor(),
            "cores": cores,
            "load": os.getloadavg()[0],
            "versions": versions(PACKAGES),
            "command": f"python benchmarks/run.py {' '.join(sys.argv[1:])}".strip(),
        }
        before = controls(options.seconds)
        measured = {line.name: measure_line(line, options) for line in lines_of(module)}
        machine["minutes"] = (time.perf_counter() - start) / 60
        record = {"machine": machine, "controls": before, "lines": measured}
        path = options.output / f"{module}.json"
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        failed = failed or '"failed"' in json.dumps(measured)
    print(write_reports(options.output))
    print(f"results: {options.output}")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Adze on the CPU against JAX, PyTorch, Numba and NumPy.")
    parser.add_argument("names", nargs="*", choices=[[], *modules()], help="modules of lines/")
    parser.add_argument("--quick", action="store_true", help="the main size of each line, in few runs")
    parser.add_argument("--smallest", action="store_true", help="the first size of each line, in few runs")
    parser.add_argument("--alone", action="store_true", help="Adze without the other tools")
    parser.add_argument("--seconds", type=float, help="for each contender and function")
    parser.add_argument("--output", type=Path, help="the folder for the results")
    parser.add_argument("--report", action="store_true", help="measure nothing, write tables and plots again")
    parser.add_argument("--fresh", nargs=3, metavar=("LINE", "FUNCTION", "CONTENDER"), help=argparse.SUPPRESS)
    parser.add_argument("--without", nargs=2, metavar=("LINE", "SWITCH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    short = options.quick or options.smallest
    options.seconds = options.seconds or (QUICK if short else SECONDS)
    options.rounds = (3, 5) if short else ROUNDS
    options.output = options.output or (Path(tempfile.gettempdir()) / "adze-bench" if short else RESULTS)
    return options


if __name__ == "__main__":
    sys.exit(main())
