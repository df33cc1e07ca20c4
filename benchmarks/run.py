"""The benchmark of the CPU: every line, against JAX, PyTorch, Numba and NumPy.

    make bench                        the field's suites: about 40 minutes on two cores
    make bench-everyday               everyday programs, on two cores and on one: about 40 minutes
    make bench ONLY="gmm stencils"    some modules of either, whose results replace those from before
    make bench QUICK=1                a look in a few minutes; results go to a temporary folder

or, where Adze and its peers are installed,

    python benchmarks/run.py [NAME ...] [--everyday] [--quick | --smallest] [--alone] [--cores 1 2] [--seconds 0.7]
                             [--output FOLDER]
    python benchmarks/run.py --report       write the tables and plots again from the results that are there
    python benchmarks/run.py jacobians --ablation [SWITCH ...] [--smallest]   what transformations and rules gain

Each module in lines/ and lines/everyday/ has the contenders of some programs. All of them must agree on every input
before they are timed; how is said in measure.py. Each line is measured in a process of its own, everyday programs in a
second one that is confined to one core (``--cores 1`` measures that alone): a line that fails is reported, and the
others go on. The results of a module go to results/NAME.json as soon as it ends, and from all of these the tables
(bench.md), the plots and the table of bounds (bounds.py) are made. ``--alone`` leaves the other tools out.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lines
import lines.everyday
import numpy as np
from contenders import THREADS, Adze, Contender, Line, planned, shown, started
from measure import (
    ROUNDS,
    confine,
    confined,
    controls,
    error,
    first_call,
    fresh,
    in_turns,
    leaves,
    processor,
    summary,
    versions,
)
from report import INTO, ONE_CORE, ONE_THREAD, RESULTS, ablation_text, write_reports

import adze as az
from adze.backends.llvm import control
from adze.backends.transformations import Transformations
from adze.interpreters.simplify.switches import RULES

PACKAGES = ("adze-lang", "numpy", "scipy", "llvmlite", "jax", "torch", "numba")
SWITCHES = [field.name for field in dataclasses.fields(Transformations) if field.default is True]
PATIENCE = 120.0  # seconds for a first call in a process of its own
PATIENCE_WITH_SIZE = 400.0  # seconds for all contenders of a line, for each of its sizes
SECONDS = 0.7  # for each contender and function
SECONDS_EVERYDAY = 0.35  # the same for everyday programs, of which there are more
ROUNDS_EVERYDAY = (5, 15)
QUICK = 0.15  # the same, in a quick look


def suites() -> list[str]:
    """The names of the modules in lines/."""
    return sorted(module.name for module in pkgutil.iter_modules(lines.__path__) if not module.ispkg)


def everyday() -> list[str]:
    """The names of the modules in lines/everyday/."""
    return sorted(module.name for module in pkgutil.iter_modules(lines.everyday.__path__))


def modules() -> list[str]:
    return [*suites(), *everyday()]


def lines_of(module: str) -> list[Line]:
    folder = "lines.everyday" if module in everyday() else "lines"
    found: list[Line] = importlib.import_module(f"{folder}.{module}").LINES
    return found


def line_called(name: str) -> Line:
    return next(line for module in modules() for line in lines_of(module) if line.name == name)


# One line


def measure_line(line: Line, is_everyday: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about a line, as it is kept; what is measured, in processes of their own."""
    found: dict[str, Any] = {
        "title": line.title,
        "functions": line.functions,
        "derivative": line.derivative,
        "main": shown(line.main),
        "everyday": is_everyday,
        "library": [contender.name for contender in line.contenders if contender.is_library],
        "sibling_of": line.sibling_of,
        "notes": line.notes,
        "sizes": {},
    }
    for cores in options.cores or ((THREADS, 1) if is_everyday else (THREADS,)):
        command = [__file__, "--time", line.name, *passed(options, is_everyday), "--cores", str(cores)]
        with confined(cores):
            timed = fresh(command, PATIENCE_WITH_SIZE * len(line.sizes))[0]
        if "failed" in timed:
            found.setdefault("failed", {})[f"on {cores_text(cores)}"] = timed["failed"]
            print(f"! {line.name}, on {cores_text(cores)}: {timed['failed']}", flush=True)
            continue
        for told in told_of(line, cores, timed["sizes"]):
            print(told, flush=True)
        for size, of_size in timed["sizes"].items():
            known = found["sizes"].setdefault(size, of_size)
            for function, record in of_size["functions"].items():
                known["functions"][function] = {"contenders": {}} | known["functions"][function] | record
    if not (options.quick or options.smallest or options.cores):
        function = line.derivative or line.functions[0]
        found["fresh"] = {function: first_calls(line, function, is_everyday, options)}
        if line.ablated:
            found["ablation"] = ablation(line, options)
    return found


def passed(options: argparse.Namespace, is_everyday: bool) -> list[str]:
    """What the process of a line must know."""
    seconds, rounds = (SECONDS_EVERYDAY, ROUNDS_EVERYDAY) if is_everyday else (SECONDS, ROUNDS)
    if options.quick or options.smallest:
        seconds, rounds = QUICK, (3, 5)
    flags = [f"--{name}" for name in ("quick", "smallest", "alone") if getattr(options, name)]
    return [*flags, "--seconds", str(options.seconds or seconds), "--rounds", *map(str, rounds)]


def cores_text(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def told_of(line: Line, cores: int, sizes: dict[str, Any]) -> Iterator[str]:
    """What the terminal shows of a line."""
    for size, of_size in sizes.items():
        for function, record in of_size["functions"].items():
            what = f"{line.name}, {size}, {function}, {cores_text(cores)}"
            rows = record[ONE_CORE if cores == 1 else "contenders"]
            yield from (f"! {what}, {name}: {row['failed']}" for name, row in rows.items() if "failed" in row)
            times = "  ".join(f"{name} {1e3 * row['median']:.4g}" for name, row in rows.items() if "median" in row)
            yield f"{what}: {times} ms"


def taking_part(line: Line, options: argparse.Namespace) -> list[Contender]:
    return [c for c in line.contenders if c.is_there and not (options.alone and not isinstance(c.tool, Adze))]


def measure_sizes(line: Line, options: argparse.Namespace) -> dict[str, Any]:
    """What the process of a line measures: all functions at all sizes, on the cores that it has."""
    there = taking_part(line, options)
    for contender in there:
        started(contender.tool)
    chosen = [line.sizes[0]] if options.smallest else [line.main] if options.quick else line.sizes
    return {"sizes": {shown(sizes): measure_size(line, sizes, there, options) for sizes in chosen}}


def measure_size(
    line: Line, sizes: dict[str, int], there: list[Contender], options: argparse.Namespace
) -> dict[str, Any]:
    """All functions at one size."""
    arguments = line.arguments(**sizes)
    found: dict[str, Any] = {"numbers": sizes, "work": line.work(**sizes) if line.work else None, "functions": {}}
    for function in line.functions:
        given = line.given(function, arguments)
        moved = line.moved[function](**sizes) if function in line.moved else None
        timed = compare(line, function, there, given, options)
        found["functions"][function] = {"moved": moved, ONE_CORE if options.cores == [1] else "contenders": timed}
    return found


def compare(
    line: Line, function: str, there: list[Contender], given: tuple[Any, ...], options: argparse.Namespace
) -> dict[str, Any]:
    """The times of those who agree with the first; the others are told with what is wrong."""
    found: dict[str, Any] = {}
    ready: dict[str, Callable[[], Any]] = {}
    wanted: list[np.ndarray] | None = None
    for contender in there:
        try:
            if function not in contender.programs():
                continue
            converted = contender.tool.convert(given)
            call = contender.call(function)
            result = leaves(call(*converted))
            wanted = result if wanted is None else wanted
            off = error(result, wanted)
            assert off <= line.tolerance, f"off by {off:.1e}"
        except Exception as failure:
            told = str(failure).strip().splitlines()[:1]
            found[contender.name] = {"failed": ": ".join([type(failure).__name__, *told])}
            continue
        found[contender.name] = {"off": off}
        ready[contender.name] = lambda call=call, converted=converted: call(*converted)
    clock = time.process_time if options.cores == [1] else time.perf_counter
    for name, runs in zip(ready, in_turns(list(ready.values()), options.seconds, *options.rounds, clock), strict=True):
        found[name] |= summary(runs)
    return found


# In a process of its own


def first_calls(line: Line, function: str, is_everyday: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds to the first result and memory, of each contender on two threads; of Adze from its cache on disk, too.

    Of everyday programs only of tools that compile, and not from the cache.
    """
    command = [__file__, "--fresh", line.name, function]
    found = {}
    for contender in taking_part(line, options):
        if contender.name in (ONE_THREAD, INTO) or (is_everyday and contender.tool.library):
            continue
        if function in contender.programs():
            times = 2 if isinstance(contender.tool, Adze) and not is_everyday else 1
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


def ablation(line: Line, options: argparse.Namespace) -> dict[str, Any]:
    """The time of the derivative on one thread with each transformation of the scheduler switched off, and each rule.

    Rules apply when programs are derived and simplified, and are switched off for a process. All results must agree.
    """
    found: dict[str, Any] = {}
    wanted: list[float] = []
    for switched_off in ("", *(options.ablation or (*SWITCHES, *RULES))):
        command = [__file__, "--without", line.name, switched_off, *(["--smallest"] if options.smallest else [])]
        environment = {"ADZE_WITHOUT": switched_off} if switched_off in RULES else {}
        row = fresh([*command, "--seconds", f"{options.seconds or SECONDS / 2}"], PATIENCE, environment=environment)[0]
        if "result" in row:
            sums = row.pop("result")
            wanted = wanted or sums
            off = error([sums], [wanted])
            row = row if off <= line.tolerance else {"failed": f"off by {off:.1e}"}
        found[switched_off] = row
        print(f"  {line.name} without {switched_off or 'none'}: {found[switched_off]}", flush=True)
    return found


def without(line: Line, switched_off: str, options: argparse.Namespace) -> dict[str, Any]:
    """What ``ablation`` asks the new process for; of the result, for each array its sum, weighted by place."""
    function = line.derivative or line.functions[-1]
    schedule = {switched_off: False} if switched_off in SWITCHES else None
    program = line.contenders[0].programs()[function]
    call = az.compile(program, threads=1, flush_subnormals=control.X86, schedule=schedule)
    given = line.given(function, line.arguments(**(line.sizes[0] if options.smallest else line.main)))
    sums = [float(np.cos(np.arange(leaf.size)) @ np.ravel(leaf)) for leaf in leaves(call(*given))]
    return {**summary(in_turns([lambda: call(*given)], options.seconds)[0]), "result": sums}


def ablations(options: argparse.Namespace) -> bool:
    """Measure what transformations and rules gain, alone; whether all could be."""
    chosen = [line for module in options.names or suites() for line in lines_of(module) if line.ablated]
    found = {line.name: {"ablation": ablation(line, options)} for line in chosen}
    print("\n\n".join(ablation_text({"": {"lines": found}})))
    return '"failed"' not in json.dumps(found)


# All


def main() -> int:
    options = read_options()
    # The first two cores, of this process and of those that it starts.
    cores = confine(THREADS)
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "25")  # for those: its threads sleep soon after a call (REST)
    if options.fresh:
        name, function, contender = options.fresh
        print(json.dumps(first_call_of(line_called(name), function, contender)))
        return 0
    if options.time:
        print(json.dumps(measure_sizes(line_called(options.time), options)))
        return 0
    if options.without:
        name, switched_off = options.without
        print(json.dumps(without(line_called(name), switched_off, options)))
        return 0
    if options.ablation is not None:
        return 0 if ablations(options) else 1
    options.output.mkdir(parents=True, exist_ok=True)
    failed = False
    chosen = options.names or (everyday() if options.everyday else suites())
    for module in [] if options.report else chosen:
        start = time.perf_counter()
        machine = {
            "date": f"{datetime.date.today()}",
            "processor": processor(),
            "cores": cores,
            "load": os.getloadavg()[0],
            "versions": versions(PACKAGES),
            "command": f"python benchmarks/run.py {' '.join(sys.argv[1:])}".strip(),
        }
        before = controls(options.seconds or QUICK)
        measured = {line.name: measure_line(line, module in everyday(), options) for line in lines_of(module)}
        machine["minutes"] = (time.perf_counter() - start) / 60
        record = {"machine": machine, "controls": before, "lines": measured}
        path = options.output / f"{module}.json"
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{module}: {machine['minutes']:.1f} minutes", flush=True)
        failed = failed or '"failed"' in json.dumps(measured)
    print(write_reports(options.output))
    print(f"results: {options.output}")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Adze on the CPU against JAX, PyTorch, Numba and NumPy.")
    parser.add_argument("names", nargs="*", choices=[[], *modules()], help="modules of lines/ and lines/everyday/")
    parser.add_argument("--everyday", action="store_true", help="all modules of lines/everyday/")
    parser.add_argument("--quick", action="store_true", help="the main size of each line, in few runs")
    parser.add_argument("--smallest", action="store_true", help="the first size of each line, in few runs")
    parser.add_argument("--alone", action="store_true", help="Adze without the other tools")
    parser.add_argument("--cores", type=int, nargs="+", help="measure times alone, on so many cores")
    parser.add_argument("--seconds", type=float, help="for each contender and function")
    parser.add_argument("--rounds", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="the folder for the results")
    parser.add_argument(
        "--ablation", nargs="*", choices=[*SWITCHES, *RULES], help="what these transformations and rules gain, or all"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing, write tables and plots again")
    parser.add_argument("--time", metavar="LINE", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", nargs=3, metavar=("LINE", "FUNCTION", "CONTENDER"), help=argparse.SUPPRESS)
    parser.add_argument("--without", nargs=2, metavar=("LINE", "SWITCH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    short = options.quick or options.smallest or options.cores
    options.output = options.output or (Path(tempfile.gettempdir()) / "adze-bench" if short else RESULTS)
    return options


if __name__ == "__main__":
    sys.exit(main())
