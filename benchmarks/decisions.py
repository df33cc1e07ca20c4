"""Whether the scheduler decides well: each of its decisions either way, timed in turns, with the estimates of both.

    python benchmarks/decisions.py [NAME ...] [--threads 1] [--seconds 0.3] [--smallest] [--switches] [--most 12]

NAMEs are modules of lines/; a program is taken at its main size, or at its smallest one. A decision is forced the other
way (``schedule={"force": ...}``); with ``--switches`` whole transformations are switched off. It counts where the loops
are others then. What is told: how much slower the choice made is than the better side (1 where it is better); and of
the pairs whose sides differ by more than a tenth, how many the scheduler and the estimates of ``compiled.cost`` get
right.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from contenders import Adze, Line, shown
from costs import program_of
from measure import confine, in_turns
from run import lines_of, modules

import adze as az
from adze.backends import transformations
from adze.backends.compiled import Compiled
from adze.backends.llvm import control

SWITCHES = [field.name for field in fields(transformations.Transformations) if field.default is True]
CLOSE = 1.1  # sides that differ by less are equal


@dataclass(frozen=True)
class Pair:
    """Two ways to compile a program: the seconds of a call as it is and otherwise, measured and estimated."""

    place: str
    name: str
    measured: tuple[float, float]
    estimated: tuple[float, float]

    @property
    def regret(self) -> float:
        """How much slower it is to leave it as it is than the better side."""
        return self.measured[0] / min(self.measured)

    @property
    def apart(self) -> bool:
        return max(self.measured) > CLOSE * min(self.measured)

    @property
    def told(self) -> bool:
        """Whether the estimates put the sides in the right order."""
        return (self.estimated[0] < self.estimated[1]) == (self.measured[0] < self.measured[1])


def others(program: Compiled, given: Sequence[Any], switches: bool, most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What else may be done: a name of it, and its ``schedule=``. ``most`` decisions are taken evenly from all."""
    if switches:
        yield from [(switch, {switch: False}) for switch in SWITCHES]
        return
    rows = program.decisions(*given).rows
    for k in np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int):
        name, taken = rows[k].name, rows[k].taken
        yield f"{name} ({'taken' if taken else 'not taken'})", {"force": {name: not taken}}


def pairs(
    line: Line, size: dict[str, int], function: str, threads: int, seconds: float, switches: bool, most: int
) -> Iterator[Pair]:
    """The ways that have other loops than a program has."""
    program, given = program_of(line, size, function, Adze(threads=threads))
    if program is None:
        return
    place = f"{line.name}, {shown(size)}, {function}"
    for name, schedule in others(program, given, switches, most):
        other = az.compile(program.program, threads=threads, flush_subnormals=control.X86, schedule=schedule)
        if other.loops == program.loops:
            continue
        other(*given)  # has its code by now
        measured = [float(np.median(times)) for times in timed((program, other), given, seconds)]
        estimated = [each.cost(*given).seconds for each in (program, other)]
        yield Pair(place, name, (measured[0], measured[1]), (estimated[0], estimated[1]))


def timed(sides: Sequence[Compiled], given: Sequence[Any], seconds: float) -> list[Any]:
    """The times of calls that take turns."""
    return in_turns([lambda side=side: side(*given) for side in sides], seconds, least=5)


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description="Decisions of the scheduler either way, measured and estimated.")
    parser.add_argument("names", nargs="*", choices=[[], *modules()], help="modules of lines/")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each pair")
    parser.add_argument("--smallest", action="store_true", help="the smallest size of each line, not the main one")
    parser.add_argument("--switches", action="store_true", help="whole transformations, not single decisions")
    parser.add_argument("--most", type=int, default=12, help="how many decisions of a program are looked at")
    options = parser.parse_args()
    print(f"on {confine(2)}, {options.threads} thread(s); times as it is over those of the other way")
    print(f"{'measured':>9} {'estimated':>9} {'as is, ms':>9}  decision, line", flush=True)
    found: list[Pair] = []
    for line in [line for module in options.names or modules() for line in lines_of(module)]:
        for function in line.functions:
            size = line.sizes[0] if options.smallest else line.main
            ways = options.threads, options.seconds, options.switches, options.most
            for pair in pairs(line, size, function, *ways):
                found.append(pair)
                (on, off), (likely_on, likely_off) = pair.measured, pair.estimated
                likely = likely_on / likely_off if likely_off else math.nan
                print(f"{on / off:9.2f} {likely:9.2f} {1e3 * on:9.3g}  {pair.name}, {pair.place}", flush=True)
    apart = [pair for pair in found if pair.apart]
    regrets = [pair.regret for pair in found]
    right, told = [sum(which) for which in ([each.regret == 1 for each in apart], [each.told for each in apart])]
    print(f"{len(found)} pairs; over the better side {mean(regrets):.3f} in the mean, {max(regrets):.2f} at most")
    print(f"of {len(apart)} that differ by more than a tenth the scheduler gets {right} right, the estimates {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
