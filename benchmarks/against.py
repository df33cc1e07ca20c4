"""Two commits side by side: what a change did to the times of all lines, to compile times, memory and results.

    python benchmarks/against.py COMMIT [NAME ...] [--quick | --main] [--threads 1 2] [--seconds 0.7] [--output FILE]
    python benchmarks/against.py . --bare    # the other one is this tree: what programs lose without annotations

COMMIT is what git knows as one, or a folder with another copy of Adze; NAMEs are modules of lines/. Here are the
programs and the sizes, there is the package they are run with: what this commit asks of the other one must be in it.

Two processes, one for each package, compile a program and call it once. Then they take *turns* on the same cores: one
is called for a few hundredths of a second while the other waits, and the other way round. Clocks and other programs
change the speed of a machine from second to second, but little from one turn to the next; so what is told is the median
of the ratios of neighbouring turns (new over old), with its quartiles, and not a ratio of medians::

    line, size, function            threads   old ms   new ms   new/old   quartiles      compile   peak   results
    lse, n=10000, gradient                1   0.0057   0.0055     0.965   0.95  0.98     1.02      1      same bits

Compile is the time to the first result of a process that has compiled other programs, peak the bytes that the plan of
memory asks for. Results are compared by their bits; where these differ, the largest difference is told, relative to
the largest magnitude.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Adze, Call, Line, planned, shown, started
from measure import REST, ROUNDS, TURN, WARMED, confine, error, leaves
from run import QUICK, SECONDS, line_called, lines_of, modules

import adze
from adze.core.program import as_program

HERE = Path(__file__).resolve()
HEADER = f"{'line, size, function':60} threads   old ms   new ms  new/old  quartiles   compile    peak  results"


# The processes


class Package:
    """A process that runs programs with the package of a folder, when it is told to."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder), "ADZE_CACHE": "off"}
        command = [sys.executable, str(HERE), "--serve", str(folder)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **question: Any) -> Any:
        """The answer to a question, after which the process waits for the next one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process ended with status {self.process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def serve(folder: Path) -> None:
    """Answer questions until there are none: the other side of ``Package.ask``."""
    assert Path(adze.__file__).resolve().is_relative_to(folder.resolve()), f"{adze.__file__} is not in {folder}"
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may be written between the answers
    asked: dict[str, Any] = {}
    for question in sys.stdin:
        match json.loads(question):
            case {"line": name, "size": size, "function": function, "threads": threads, "file": file, "bare": bare}:
                tool = (Bare if bare else Adze)(threads=threads)
                try:
                    asked, answer = prepared(line_called(name), size, function, tool, Path(file))
                except Exception as failure:
                    answer = {"failed": f"{type(failure).__name__}: {str(failure).strip().splitlines()[0]}"}
            case {"calls": calls, "warm": warm}:
                answer = turn(asked["call"], calls, warm)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Bare(Adze):
    """Adze with programs whose parameters have no annotations."""

    def build(self, program: Any) -> Call:
        sys.path.append(str(HERE.parents[1] / "tests"))
        from stripped import without_annotations

        return super().build(without_annotations(as_program(program)))


def prepared(
    line: Line, size: dict[str, int], function: str, tool: Adze, file: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is to be called, and what the first call has told; its results go to a file."""
    contender = replace(next(c for c in line.contenders if isinstance(c.tool, Adze)), tool=tool)
    started(contender.tool)
    given = line.given(function, line.arguments(**size))
    start = time.perf_counter()
    program = contender.call(function)
    results = leaves(program(*given))
    seconds = time.perf_counter() - start
    np.savez(file, *results)
    digest = hashlib.sha256(b"".join([result.tobytes() for result in results])).hexdigest()
    peak = planned(program, given) or 0
    call = functools.partial(program, *given)
    once = min(turn(call, 1, False), turn(call, 1, False))
    return {"call": call}, {"seconds": seconds, "peak": peak, "digest": digest, "once": once}


def turn(call: Callable[[], Any], calls: int, warm: bool) -> float:
    """Seconds a call, after a rest in which threads go to sleep, and a call that is not timed if it shall be warm."""
    time.sleep(REST)
    if warm:
        call()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


# What they say


def compared(
    old: Package, new: Package, question: dict[str, Any], seconds: float, rounds: tuple[int, int]
) -> dict[str, Any]:
    """What two packages make of one program: medians, ratios of neighbouring turns, and the rest."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "old.npz", Path(folder) / "new.npz"]
        asked = [question | {"bare": False}, question]
        first = [side.ask(**each, file=str(file)) for side, each, file in zip((old, new), asked, files, strict=True)]
        sides = zip(("old", "new"), first, strict=True)
        if failed := [f"{side}: {told['failed']}" for side, told in sides if "failed" in told]:
            return {"failed": "; ".join(failed)}
        off = 0.0
        if first[0]["digest"] != first[1]["digest"]:
            off = error(*[[loaded[name] for name in loaded.files] for loaded in map(np.load, files)])
    once = max(told["once"] for told in first)
    calls = max(1, math.ceil(TURN / once))
    warm = once < WARMED
    count = min(max(int(seconds / (REST + (calls + warm) * once)), rounds[0]), rounds[1])
    times: list[list[float]] = [[], []]
    for k in range(count):
        for side in (0, 1) if k % 2 else (1, 0):  # none of the two is always the first
            times[side].append((old, new)[side].ask(calls=calls, warm=warm))
    low, ratio, high = np.percentile(np.array(times[1]) / np.array(times[0]), (25, 50, 75))
    return {
        "old": float(np.median(times[0])),
        "new": float(np.median(times[1])),
        "ratio": float(ratio),
        "low": float(low),
        "high": float(high),
        "compile": first[1]["seconds"] / first[0]["seconds"],
        "peak": (first[1]["peak"] or 1) / (first[0]["peak"] or 1),
        "same": first[0]["digest"] == first[1]["digest"],
        "off": off,
    }


def text(name: str, threads: int, found: dict[str, Any]) -> str:
    """A row of the table."""
    if "failed" in found:
        return f"{name:60} {threads:7}   {found['failed']}"
    results = "same bits" if found["same"] else f"off by {found['off']:.0e}"
    return (
        f"{name:60} {threads:7} {1e3 * found['old']:8.4g} {1e3 * found['new']:8.4g} {found['ratio']:8.3f}"
        f"  {found['low']:.2f}  {found['high']:.2f} {found['compile']:8.2f} {found['peak']:7.3g}  {results}"
    )


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


@contextlib.contextmanager
def folder_of(commit: str) -> Iterator[Path]:
    """A folder with the package of a commit, or the folder that was named."""
    if Path(commit).is_dir():
        yield Path(commit)
        return
    repository = HERE.parent.parent
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(repository), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> int:
    options = read_options()
    if options.serve:
        serve(options.serve)
        return 0
    print(f"on {confine(2)}; new is {HERE.parent.parent}, old is {options.commit}\n\n{HEADER}", flush=True)
    rows: list[dict[str, Any]] = []
    with folder_of(options.commit) as folder:
        sides = old, new = Package(folder), Package(HERE.parent.parent)
        try:
            for line in [line for module in options.names or modules() for line in lines_of(module)]:
                for size in [line.main] if options.quick or options.main else line.sizes:
                    for function in line.functions:
                        for threads in options.threads:
                            question = {"line": line.name, "size": size, "function": function}
                            question |= {"threads": threads, "bare": options.bare}
                            rounds = (3, 5) if options.quick else ROUNDS
                            found = compared(old, new, question, options.seconds, rounds)
                            print(text(f"{line.name}, {shown(size)}, {function}", threads, found), flush=True)
                            rows.append(question | found)
        finally:
            for side in sides:
                side.close()
    told = [row for row in rows if "ratio" in row]
    for threads in options.threads:
        ratios = [row["ratio"] for row in told if row["threads"] == threads]
        print(f"geometric mean of {len(ratios)} rows, threads {threads}: {mean(ratios):.3f}")
    print(f"geometric mean of the times to the first result: {mean([row['compile'] for row in told]):.3f}")
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if len(told) < len(rows) else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Two commits of Adze side by side, on the CPU.")
    parser.add_argument("commit", nargs="?", default="HEAD", help="a commit, or a folder with a copy of Adze")
    parser.add_argument("names", nargs="*", choices=[[], *modules()], help="modules of lines/")
    parser.add_argument("--quick", action="store_true", help="the main size of each line, in few turns")
    parser.add_argument("--main", action="store_true", help="the main size of each line alone")
    parser.add_argument("--bare", action="store_true", help="leave out this side's annotations")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, help="for each program and side")
    parser.add_argument("--output", type=Path, help="a file for all numbers, as JSON")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seconds = options.seconds or (QUICK if options.quick else SECONDS)
    return options


if __name__ == "__main__":
    sys.exit(main())
