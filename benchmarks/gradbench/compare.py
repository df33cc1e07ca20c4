"""GradBench's evaluations, run here against Adze and tools of its own, without Docker.

    make gradbench GRADBENCH=CHECKOUT           # inputs of two sizes: half an hour
    make gradbench GRADBENCH=CHECKOUT QUICK=1   # the first input of each evaluation, without JAX and PyTorch: minutes
    python benchmarks/gradbench/compare.py CHECKOUT [--only NAME ...] [--tools NAME ...] [--first K] [--rounds 3]

CHECKOUT is a copy of https://github.com/gradbench/gradbench in which its golden implementation is built:

    make -C cpp && make -C tools/manual -Bj NATIVE=no

This script stands between an evaluation and a tool, as ``gradbench run`` does: it hands on each message and answer. The
evaluations are GradBench's own scripts, which also say whether an answer is valid. Tools take turns, session by
session. Told are the medians of all runs of a function on an input, by the tool's own clock, and beside them what Adze
took to compile the function, as the median of its sessions.

With ``--first K`` an evaluation sends the inputs of its own list, and is hung up on behind the K-th, as by a tool that
ends. Without, its options choose some (``INPUTS``), since the lists are long.

The table goes to benchmarks/results/gradbench.md, or is printed with ``--first``, or goes where ``--output`` says; what
was not valid is in it, too. The exit status is 1 then.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the modules of benchmarks/ are

from measure import confine, processor, versions
from report import RESULTS, number, table

RUN = Path(__file__).resolve().parent / "run.py"
THREADS = 2
SECONDS = 0.3  # of runs of a function in a session, at least
RUNS = 3  # of these, at least

VARIABLES = {"OMP_NUM_THREADS": f"{THREADS}", "ADZE_CACHE": "off"}

# GradBench's adapter for JAX, which would take the time until JAX has begun to compute, told to wait for results.
WAITING = """
import runpy, sys, jax
from gradbench import wrap

def waiting(**given):
    return lambda f: timed(**given)(lambda x: jax.block_until_ready(f(x)))

timed, wrap.multiple_runs = wrap.multiple_runs, waiting
del sys.argv[0]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Of each evaluation the options that choose its inputs, by what tells inputs apart that it describes alike.
INPUTS: dict[str, Mapping[str, str]] = {
    "hello": {"": ""},
    "det": {"": "-l 5 8 10"},
    "gmm": {"": "-d 10 64 -k 25"},
    "ba": {"small": "--min 1 --max 1", "large": "--min 5 --max 5"},
    "ht": {"simple": "--min 5 --max 5 --variant simple", "complicated": "--min 5 --max 5 --variant complicated"},
    "kmeans": {"": "-k 10 100 -n 10000 -d 16"},
    "llsq": {"": "-n 1024 16392"},
    "lse": {"": "-n 10000 320000"},
    "lstm": {"": "-l 2 4 -c 1024"},
    "ode": {"": "-n 1000 100000 -s 10"},
    "particle": {"": ""},
    "saddle": {"": ""},
}


@dataclass(frozen=True)
class Tool:
    """How a tool is started, and which evaluations it has; all of them if ``evaluations`` is empty."""

    command: Sequence[str]
    evaluations: frozenset[str] = frozenset()


def tools(checkout: Path) -> dict[str, Tool]:
    """Adze, and the tools of GradBench that need no more than a C++ compiler or a package of Python's."""
    adze = [sys.executable, str(RUN), "--threads"]
    upstream = checkout / "python" / "gradbench" / "gradbench"

    def known(folder: str, command: Sequence[str]) -> Tool:
        names = (checkout / "tools" / folder / "evals.txt").read_text(encoding="utf-8").splitlines()
        return Tool(command, frozenset(name for name in names if " " not in name))  # "ba error" is one that fails

    manual = [sys.executable, str(upstream / "cpp.py"), "manual"]
    jax = [sys.executable, "-c", WAITING, str(upstream / "tools" / "jax" / "run.py")]
    torch = [sys.executable, str(upstream / "tools" / "pytorch" / "run.py")]
    return {
        "Adze, 1 thread": Tool([*adze, "1"]),
        f"Adze, {THREADS} threads": Tool([*adze, f"{THREADS}"]),
        "manual, 1 thread": known("manual", manual),
        f"manual, {THREADS} threads": known("manual", [*manual, "--multithreaded"]),
        "JAX, 1 thread": known("jax", jax),
        f"JAX, {THREADS} threads": known("jax", [*jax, "--multithreaded"]),
        f"PyTorch, {THREADS} threads": known("pytorch", torch),
    }


@dataclass
class Found:
    """What the sessions of a tool told of a function on an input: nanoseconds, and what was wrong."""

    runs: list[int] = field(default_factory=list)
    prepared: list[int] = field(default_factory=list)
    wrong: str = ""


Row = tuple[str, str, str]  # evaluation, input, function
Rows = dict[str, Found]  # by tools


def converse(evaluation: str, options: str, tool: Tool, checkout: Path, first: int | None = None) -> dict[Row, Found]:
    """One session, which ends behind so many inputs if there is a number of them."""
    package = checkout / "python" / "gradbench"
    script = package / "gradbench" / "evals" / evaluation / "run.py"
    timing = [] if evaluation == "hello" else ["--min-runs", f"{RUNS}", "--min-seconds", f"{SECONDS}"]
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])

    def start(command: Sequence[str]) -> subprocess.Popen[str]:
        pipe, environment = subprocess.PIPE, {**os.environ, **VARIABLES, "PYTHONPATH": path}
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=checkout, env=environment)

    told = Told(evaluation)
    with start([sys.executable, str(script), *options.split(), *timing]) as asking, start(tool.command) as answering:
        assert asking.stdin and asking.stdout
        for line in asking.stdout:
            message = json.loads(line)
            if told.is_beyond(message, first):
                break
            answer = answer_of(answering, line)
            told.note(message, json.loads(answer) if answer else None)
            if not answer:
                return told.found
            asking.stdin.write(answer)
            asking.stdin.flush()
    if asking.returncode:
        raise SystemExit(f"{script} ended with {asking.returncode}: see above")
    return told.found


def answer_of(tool: subprocess.Popen[str], line: str) -> str:
    """What a tool answers to a line; nothing if it has ended, perhaps before it has read the line."""
    assert tool.stdin and tool.stdout
    try:
        tool.stdin.write(line)
        tool.stdin.flush()
    except BrokenPipeError:
        with suppress(BrokenPipeError):
            tool.stdin.close()  # which tries once more to write what nobody reads
        return ""
    return tool.stdout.readline()


class Told:
    """What the messages and answers of a session tell."""

    def __init__(self, evaluation: str) -> None:
        self.evaluation = evaluation
        self.found: dict[Row, Found] = defaultdict(Found)
        self.asked: dict[int, Row] = {}

    def is_beyond(self, message: Mapping[str, Any], first: int | None) -> bool:
        """Whether a message has another input, and so many are known already."""
        known = {row[1] for row in self.found}
        given = message.get("description", "")
        return message["kind"] == "evaluate" and first is not None and given not in known and len(known) >= first

    def note(self, message: Mapping[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Keep what a message and its answer say; None for the answer of a tool that ended."""
        match message["kind"]:
            case "analysis":
                if not message["valid"]:
                    self.found[self.asked[message["of"]]].wrong = message.get("error") or "not valid"
            case "define" | "evaluate" as kind:
                row = self.evaluation, message.get("description", ""), message.get("function", kind)
                self.asked[message["id"]] = row
                if answer is None:
                    self.found[row].wrong = "the tool ended without an answer"
                elif not answer["success"]:
                    self.found[row].wrong = answer.get("error") or "no success"
                elif kind == "evaluate":
                    for timing in answer["timings"]:
                        known = self.found[row].runs if timing["name"] == "evaluate" else self.found[row].prepared
                        known.append(timing["nanoseconds"])


def measured(
    evaluation: str, taking_part: Mapping[str, Tool], checkout: Path, rounds: int, first: int | None = None
) -> dict[Row, Rows]:
    """Of each function on each input of an evaluation what each tool told: on those of INPUTS, or on the first ones."""
    rows: dict[Row, Rows] = defaultdict(lambda: defaultdict(Found))
    for _ in range(1 if evaluation == "hello" else rounds):
        for which, options in ({"": ""} if first else INPUTS[evaluation]).items():
            for name, tool in taking_part.items():
                if tool.evaluations and evaluation not in tool.evaluations:
                    continue
                for (_, given, function), found in converse(evaluation, options, tool, checkout, first).items():
                    known = rows[evaluation, f"{which} {given}".strip(), function][name]
                    known.runs += found.runs
                    known.prepared += found.prepared
                    known.wrong = known.wrong or found.wrong
    return rows


def milliseconds(nanoseconds: Sequence[int]) -> str:
    return number(statistics.median(nanoseconds) / 1e6 if nanoseconds else None)


def shown(found: Found | None) -> str:
    """The median in ms, or what a tool did not do."""
    if found is None:
        return ""
    return "**wrong**" if found.wrong else milliseconds(found.runs)


def report(rows: Mapping[Row, Rows], names: Sequence[str], cores: str, command: str) -> str:
    """The table, as Markdown."""
    first = next(name for name in names if name.startswith("Adze"))
    body = [
        [", ".join(filter(None, row)), *(shown(found.get(name)) for name in names), milliseconds(found[first].prepared)]
        for row, found in rows.items()
    ]
    wrong = [
        f"* {', '.join(filter(None, row))}, {name}: {each.wrong}"
        for row, found in rows.items()
        for name, each in found.items()
        if each.wrong
    ]
    packages = versions(("adze-lang", "numpy", "llvmlite", "jax", "torch"))
    text = [
        "# GradBench",
        f"{datetime.date.today()}, {processor()}, {cores}, load {os.getloadavg()[1]:.2g}; {packages}. `{command}`",
        f"Medians in ms, of at least {RUNS} runs and {SECONDS} s of a function in each session of a tool; tools take"
        " turns. GradBench's evaluations compared every answer with their golden implementation, `manual`, within 1e-4"
        " (`hello` with the formula; `particle` and `saddle` with numbers). The last column is what Adze takes to"
        " compile the function, with nothing in its cache on disk: little where a size before took the same code. JAX's"
        " adapter counts compilation into the first run, which a median leaves out; it does not wait for results, which"
        " it is made to do here. An empty place: GradBench has no such evaluation for the tool, or expects it to fail.",
        table(["evaluation, input, function", *names, "Adze compiles"], body),
        *(["What was wrong:", "\n".join(wrong)] if wrong else []),
    ]
    return "\n\n".join(text) + "\n"


def positive(text: str) -> int:
    """A number from 1 on, for ``argparse``."""
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="GradBench's evaluations with Adze and tools of GradBench's own.")
    parser.add_argument("checkout", type=Path, help="a copy of GradBench's repository, with tools/manual built")
    parser.add_argument("--only", nargs="+", choices=list(INPUTS), default=list(INPUTS), metavar="NAME")
    parser.add_argument("--tools", nargs="+", metavar="NAME", help="all whose name begins so: Adze manual JAX PyTorch")
    parser.add_argument("--rounds", type=int, default=3, help="sessions of each tool and evaluation")
    parser.add_argument("--first", type=positive, metavar="K", help="the first K inputs of each evaluation's own list")
    parser.add_argument("--output", type=Path, help=f"{RESULTS.name}/gradbench.md, unless --first is given")
    options = parser.parse_args()
    output = options.output or (None if options.first else RESULTS / "gradbench.md")
    checkout = options.checkout.resolve()
    if not (checkout / "tools" / "manual" / "bin" / "det").exists():
        parser.error(f"{checkout} has no golden implementation: make -C cpp && make -C tools/manual -Bj NATIVE=no")
    cores = confine(THREADS)
    taking_part = {
        name: tool
        for name, tool in tools(checkout).items()
        if name.startswith("Adze") or not options.tools or name.startswith(tuple(options.tools))
    }
    command = " ".join(["python benchmarks/gradbench/compare.py CHECKOUT", *sys.argv[2:]])
    rows: dict[Row, Rows] = {}
    for evaluation in options.only:
        found = measured(evaluation, taking_part, checkout, options.rounds, options.first)
        for row, of_row in found.items():
            print(*row, {name: shown(each) for name, each in of_row.items()}, flush=True)
        rows |= found
        if output:  # what is there already, should a later one fail
            output.write_text(report(rows, list(taking_part), cores, command), encoding="utf-8")
    print(f"results: {output}" if output else report(rows, list(taking_part), cores, command))
    return int(any(found.wrong for of_row in rows.values() for found in of_row.values()))


if __name__ == "__main__":
    sys.exit(main())
