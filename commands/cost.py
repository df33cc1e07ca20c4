"""``adze cost`` and ``adze profile``: what a program asks for, what its code is estimated to take, what it takes.

adze cost kmeans.py:cost                              operations, reads, writes, span, for all sizes
adze cost kmeans.py:cost n=1000 d=16 k=8              the same as numbers
adze cost kmeans.py:cost n=1000 d=16 k=8 --target llvm    the time and memory of each nest, estimated
adze cost kmeans.py:cost n=1000000000 d=16 k=8 --over n   how it is cut into chunks of n, and what that reads
adze profile kmeans.py:cost n=1000 d=16 k=8           each nest as it was measured, beside the estimate and the roofline
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from ..backends.chunked.chunked import Chunked
from ..backends.compile import compile
from ..backends.cost import Breakdown, Row
from ..backends.profile import Profile
from ..backends.program_cost import cost
from ..core.program import Instance, Program
from ..core.progress import shown
from ..interpreters.cost.amounts import Amount
from .arguments import fixed, read, version
from .command import Command, UsageError, argument_options, program_options, saved, target_options
from .programs import Named, find
from .report import Code, Line, Part, Report, Table
from .show import compiled

COUNTS = {
    "operations": "on scalars, each as many as the additions it is worth",
    "reads": "elements read from memory",
    "writes": "elements written to memory",
    "span": "the time on unboundedly many processors",
}


def _cost(options: Namespace) -> Report:
    found = find(options)
    if options.over is not None:
        return _chunks(found, options)
    if options.target is not None:
        return _estimate(found, options)
    chosen, words = fixed(found, options.arguments, options.seed)
    if not words:
        counting = version(chosen, [])
        sizes, counts = dict[str, int](), found.call(lambda: _symbolic(counting))
    else:
        sizes, counts = _counted(chosen, words, options.seed)
    rows = [(name, str(counts[name]), meaning) for name, meaning in COUNTS.items()]
    return Report({"program": found.name, "sizes": sizes, **counts}, [Table(("", "count", ""), rows, "lrf")])


def _symbolic(program: Program | Instance) -> dict[str, Any]:
    """The counts as polynomials in the sizes."""
    counted = cost(program)
    return {name: str(getattr(counted, name)) for name in COUNTS}


def _counted(found: Named, words: Sequence[str], seed: int) -> tuple[dict[str, int], dict[str, Any]]:
    """The counts as numbers: for sizes, if they are all that counts depend on, else of a run with arguments."""
    sizes, counted = _sizes(words), cost(found.program)
    if sizes is not None and found.family.annotated and found.call(lambda: _names(counted)) <= sizes.keys():
        counts = found.call(lambda: counted.at(**sizes))
        return sizes, {name: getattr(counts, name) for name in COUNTS}
    given = read(found, words, seed=seed, fill=True)
    with shown(f"counting {found.name}"):
        counts = found.call(lambda: counted(*given.values))
    return dict(given.sizes), {name: getattr(counts, name) for name in COUNTS}


def _sizes(words: Sequence[str]) -> dict[str, int] | None:
    """Words as sizes; None if one of them is something else."""
    pairs = [word.partition("=") for word in words]
    if not all(name.isidentifier() and value.isdecimal() for name, _, value in pairs):
        return None
    return {name: int(value) for name, _, value in pairs}


def _names(counted: Any) -> set[str]:
    """The sizes that counts depend on."""
    return {name for kind in COUNTS for name in Amount.of(getattr(counted, kind)).names()}


def _chunks(found: Named, options: Namespace) -> Report:
    """What is done for a program over chunks, in order; with sizes also how many chunks there are, and their bytes."""
    chosen, words = fixed(found, options.arguments, options.seed)
    sizes = _sizes(words)
    if sizes is None or options.target is not None:
        raise UsageError("--over takes sizes alone, as n=1000000000, and no --target")
    with shown(f"planning {found.name}"):
        chunked: Chunked[Any, Any] = found.call(lambda: compile(chosen.program, backend="dask", over=options.over))
    data = {"program": found.name, "over": options.over, "sizes": sizes}
    data |= {"plan": str(chunked.plan), "stages": chunked.plan.stages}
    parts: list[Part] = [Code(str(chunked.plan), "text")]
    if sizes:
        moved = found.call(lambda: chunked.cost(sizes=sizes))
        data |= {"chunks": moved.chunks, "bytes": moved.bytes}
        parts.append(Line(str(moved)))
    return Report(data, parts)


def _estimate(found: Named, options: Namespace) -> Report:
    """The nests of the code for a target, as the compiler estimates them."""
    given = read(found, options.arguments, seed=options.seed, fill=True)
    options.backend = options.target
    with shown(f"lowering {found.name}"):
        breakdown = found.call(lambda: compiled(found.program, options).cost(*given.values))
    data = {"program": found.name, "target": options.target, "sizes": given.sizes, **_as_data(breakdown)}
    return Report(data, [_table(breakdown), Line("estimated for this machine; adze profile measures it", "dim")])


def _profile(options: Namespace) -> Report:
    found = find(options)
    given = read(found, options.arguments, seed=options.seed, fill=True)
    if options.plot is not None and not options.plot.endswith(".svg"):
        raise UsageError(f"a plot is a file that ends in .svg, and {options.plot} does not")
    with shown(f"profiling {found.name}"):
        measured: Profile = found.call(lambda: compiled(found.program, options).profile(*given.values))
        roofline = measured.roofline
    data = {"program": found.name, "sizes": given.sizes, **_as_data(measured, measured)}
    data["roofline"] = None if roofline is None else roofline.as_data()
    parts: list[Part] = [_table(measured, measured)]
    if roofline is not None:
        parts.append(Line(f"roofline: {roofline}", "dim"))
    if options.plot is not None:
        saved(options.plot, measured.plot().save)
        parts.append(Line(f"{options.plot}: the nests below the roofline", "dim"))
    if not measured.rows:
        parts.append(Line("the code has no loops: it is calls and branches, whose times are not taken apart", "dim"))
    if given.note:
        parts.append(Line(given.note, "dim"))
    return Report(data, parts)


def _as_data(breakdown: Breakdown, profile: Profile | None = None) -> dict[str, Any]:
    rows = []
    for row in breakdown.rows:
        one = {"name": row.name, "seconds": row.seconds, "share": _share(row, breakdown)}
        one |= {"operations": row.operations, "bytes": row.bytes, "runs": row.runs}
        one["lines"] = [{"file": line.file, "line": line.line} for line in row.lines]
        if profile is not None:
            one["estimated_seconds"] = profile.estimates.get(row.number)
            one["roofline_seconds"] = profile.at_best(row)
        rows.append(one)
    return {"seconds": breakdown.seconds, "nests": rows}


def _share(row: Row, breakdown: Breakdown) -> float:
    return row.seconds / breakdown.seconds if breakdown.seconds else 0.0


def _table(breakdown: Breakdown, profile: Profile | None = None) -> Table:
    rows = []
    for row in breakdown.rows:
        times = [time(row.seconds), f"{_share(row, breakdown):.0%}"]
        if profile is not None:
            estimate = profile.estimates.get(row.number)
            times += ["" if estimate is None else time(estimate), _of_roofline(row, profile)]
        rows.append((row.title, *times, f"{row.operations:.3g}", f"{row.bytes:.3g}", f"{row.runs:.0f}"))
    beside = ["estimate", "roofline"] if profile is not None else []
    heads = ["nest", "time", "share", *beside, "operations", "bytes", "runs"]
    total = ("in all", time(breakdown.seconds), *[""] * (len(heads) - 2))
    return Table(tuple(heads), [*rows, total], "f" + "r" * (len(heads) - 1))


def _of_roofline(row: Row, profile: Profile) -> str:
    """How much of its time a nest needs at least, and what for; nothing where that is not known."""
    best = profile.at_best(row)
    if profile.roofline is None or not best or not row.seconds:
        return ""
    return f"{best / row.seconds:.0%} {profile.roofline.bound(row.operations, row.bytes)}"


def time(seconds: float) -> str:
    """A time in the unit in which it is read most easily.

    >>> time(0.000012345), time(2.5), time(0.0)
    ('12.3 µs', '2.5 s', '0 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0 s"


def _cost_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    of = "estimate the nests of the code for the CPU (llvm) or the kernels for a device (opencl) instead"
    parser.add_argument("--target", choices=["llvm", "opencl"], help=of)
    parser.add_argument("--over", metavar="SIZE", help="show how it is cut into chunks of this size instead")
    target_options(parser, backend=False)


def _profile_options(parser: ArgumentParser) -> None:
    program_options(parser)
    argument_options(parser)
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the nests below the roofline")
    target_options(parser)


COST = Command("cost", "Count the operations of a program, or estimate its code.", _cost, _cost_options)
PROFILE = Command("profile", "Measure each loop nest of a call, or each kernel.", _profile, _profile_options)
