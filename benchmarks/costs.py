"""How good estimates are: ``compiled.cost`` against ``compiled.profile``, nest by nest, on all lines.

    python benchmarks/costs.py [NAME ...] [--threads 1] [--repeat 5] [--worst 20]

NAMEs are modules of lines/; each program is taken at the smallest and at the main size of its line. What is told of are
nests that take 20 us or more, and each run of which takes 1 us: how many estimates are within a factor of two of the
measured time, and how well they put nests in order by their time an operation (Spearman's rank correlation). Numbers in
``backends/target.py`` were chosen by hand on the lines with an even number; those with an odd number tell what they are
worth elsewhere.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from contenders import Adze, Line, shown, started
from measure import confine
from run import lines_of, modules
from scipy.stats import spearmanr

from adze.backends.compiled import Compiled

BRIEF, BRIEF_RUN = 20e-6, 1e-6  # seconds: nests that take less are not told of; a look at the clock takes 0.03 us


@dataclass(frozen=True)
class Nest:
    """A nest: where it is, what was measured, what was estimated, and how many operations it has."""

    place: str
    name: str
    measured: float
    estimated: float
    operations: float

    @property
    def ratio(self) -> float:
        return self.estimated / self.measured


def nests(line: Line, size: dict[str, int], function: str, threads: int, repeat: int) -> Iterator[Nest]:
    """The nests of a program that take a while."""
    program, given = program_of(line, size, function, Adze(threads=threads))
    if program is None:
        return
    runs = [{row.number: row.seconds for row in program.profile(*given).rows} for _ in range(repeat)]
    for row in program.cost(*given).rows:
        seconds = float(np.median([run[row.number] for run in runs]))
        if seconds >= BRIEF and seconds >= BRIEF_RUN * row.runs:
            place = f"{line.name}, {shown(size)}, {function}"
            yield Nest(place, row.name, seconds, row.seconds, row.operations)


def program_of(line: Line, size: dict[str, int], function: str, tool: Adze) -> tuple[Compiled | None, Sequence[Any]]:
    """A program that was called once, with its arguments; None where a line calls several."""
    started(tool)
    contender = replace(next(each for each in line.contenders if isinstance(each.tool, Adze)), tool=tool)
    given: Sequence[Any] = line.given(function, line.arguments(**size))
    program = contender.call(function)
    if not isinstance(program, Compiled):
        return None, given
    program(*given)
    return program, given


def told(name: str, found: Sequence[Nest]) -> str:
    """How good the estimates of some nests are."""
    if len(found) < 3:
        return f"{name}: {len(found)} nests"
    within = sum([0.5 <= nest.ratio <= 2 for nest in found]) / len(found)
    busy = [nest for nest in found if nest.operations]
    pairs = [(nest.estimated / nest.operations, nest.measured / nest.operations) for nest in busy]
    order = spearmanr(*zip(*pairs, strict=True)).statistic
    bias = math.exp(float(np.mean([math.log(max(nest.ratio, 1e-9)) for nest in found])))
    return (
        f"{name}: {len(found)} nests, {100 * within:.0f} % within a factor of 2, "
        f"Spearman {order:.2f}, geometric mean of estimated over measured {bias:.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Estimates of nests against what they take.")
    parser.add_argument("names", nargs="*", choices=[[], *modules()], help="modules of lines/")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="profiles of a call, of which the median counts")
    parser.add_argument("--worst", type=int, default=20, help="how many of the worst estimates are shown")
    options = parser.parse_args()
    print(f"on {confine(2)}, {options.threads} thread(s)", flush=True)
    halves: tuple[list[Nest], list[Nest]] = [], []
    lines = [line for module in options.names or modules() for line in lines_of(module)]
    for number, line in enumerate(lines):
        sizes = [line.sizes[0]] if line.sizes[0] == line.main else [line.sizes[0], line.main]
        for size in sizes:
            for function in line.functions:
                halves[number % 2].extend(nests(line, size, function, options.threads, options.repeat))
    found = [nest for half in halves for nest in half]
    print(f"{'measured us':>12} {'estimated us':>12} {'ratio':>8}  nest")
    for nest in sorted(found, key=lambda nest: -abs(math.log(max(nest.ratio, 1e-9))))[: options.worst]:
        print(f"{1e6 * nest.measured:12.1f} {1e6 * nest.estimated:12.1f} {nest.ratio:8.2f}  {nest.place}: {nest.name}")
    print(told("even lines", halves[0]), told("odd lines", halves[1]), told("all", found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
