"""What was measured, as tables and plots: bench.md, bench.png and growth.png, from the JSON of every module."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
ADZE, ONE_THREAD, INTO = "Adze", "Adze, 1 thread", "Adze, out="
ONE_CORE = "one core"  # what the times on one core are kept as, beside the contenders' on two


@dataclass(frozen=True)
class Measured:
    """One function of one line at one size."""

    line: str
    size: str
    function: str
    record: dict[str, Any]  # of this function
    of_size: dict[str, Any]
    of_line: dict[str, Any]
    controls: dict[str, Any]
    statistic: str = "median"

    @property
    def on_one_core(self) -> Measured:
        """The same where every tool was confined to one core: the least processor times."""
        return replace(self, record=self.record | {"contenders": self.record.get(ONE_CORE, {})}, statistic="least")

    @property
    def is_everyday(self) -> bool:
        return bool(self.of_line.get("everyday"))

    def time(self, contender: str) -> float | None:
        """Seconds."""
        found: float | None = self.record["contenders"].get(contender, {}).get(self.statistic)
        return found

    def peers(self, prefix: str = "", library: bool | None = None) -> dict[str, float]:
        """The times of the other tools whose names begin so; those that call a library, those that do not, or all."""
        found = {name: self.time(name) for name in self.record["contenders"] if not name.startswith(ADZE)}
        return {
            name: seconds
            for name, seconds in found.items()
            if seconds and name.startswith(prefix) and library in (None, name in self.of_line.get("library", ()))
        }

    def fastest(self, prefix: str = "", library: bool | None = None) -> str | None:
        """The name of the fastest of these."""
        peers = self.peers(prefix, library)
        return min(peers, key=peers.__getitem__) if peers else None

    def over(self, prefix: str = "", library: bool | None = None) -> float | None:
        """Adze's time over that of the fastest of these."""
        name, own = self.fastest(prefix, library), self.time(ADZE)
        return own / self.peers()[name] if name and own else None

    @property
    def first_calls(self) -> dict[str, Any]:
        """Compile times and memory of the contenders, of the function for which these were measured."""
        found: dict[str, Any] = self.of_line.get("fresh", {}).get(self.function, {})
        return found

    @property
    def gain(self) -> float | None:
        """Two threads over one."""
        one, two = self.time(ONE_THREAD) or self.on_one_core.time(ADZE), self.time(ADZE)
        return one / two if one and two else None

    @property
    def over_primal(self) -> float | None:
        """The derivative's time over the primal's."""
        if self.function != self.of_line["derivative"]:
            return None
        of_primal = self.of_size["functions"][self.of_line["functions"][0]]
        primal = replace(self, record=of_primal).time(ADZE)
        own = self.time(ADZE)
        return own / primal if primal and own else None


def read_results(folder: Path) -> dict[str, Any]:
    """The records of the modules, by their names."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def read_parts(path: Path) -> dict[str, Any]:
    """What was measured of programs over chunks (``large.py``), by part; nothing where nothing was."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def geometric_mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def compared_with(m: Measured, what: str) -> str | None:
    """Whose first call Adze's is compared with: the slower of JAX and Numba, and the memory of JAX.

    A library's counts where no tool has the same algorithm.
    """
    peers = ("JAX", "Numba") if what == "seconds" else ("JAX",)
    every = {name: row[what] for name, row in m.first_calls.items() if name.startswith(peers) and what in row}
    found = {name: taken for name, taken in every.items() if name not in m.of_line["library"]} or every
    return (max if what == "seconds" else min)(found, key=found.__getitem__, default=None)


def all_measured(results: dict[str, Any]) -> Iterator[Measured]:
    """Everything that was timed."""
    for record in results.values():
        for line, of_line in record["lines"].items():
            for size, of_size in of_line["sizes"].items():
                for function, found in of_size["functions"].items():
                    yield Measured(line, size, function, found, of_size, of_line, record["controls"])


# Markdown


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    widths = [max(3, *(len(row[i]) for row in (head, *rows))) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def milliseconds(row: dict[str, Any] | None) -> str:
    """The median, and from quartile to quartile."""
    if row is None:
        return ""
    if "median" not in row:
        return "failed"
    if row["runs"] == 1:
        return f"{1e3 * row['median']:.3g} (once)"
    return f"{1e3 * row['median']:.3g} ({1e3 * row['low']:.3g} to {1e3 * row['high']:.3g})"


def line_text(name: str, of_line: dict[str, Any], measured: list[Measured]) -> str:
    """The tables of a line."""
    contenders = list(dict.fromkeys(c for m in measured for c in m.record["contenders"] | m.record.get(ONE_CORE, {})))
    head = [f"{name}, ms", *contenders, "over fastest peer", "2 threads over 1", "over primal"]
    rows = []
    for m in measured:
        cells = [milliseconds(m.record["contenders"].get(c)) for c in contenders]
        rows.append([f"{m.size}, {m.function}", *cells, number(m.over()), number(m.gain), number(m.over_primal)])
        if one := m.record.get(ONE_CORE):
            cells = [number(1e3 * one[c]["least"]) if "least" in one.get(c, {}) else "" for c in contenders]
            rows.append([f"{m.size}, {m.function}, {ONE_CORE}", *cells, number(m.on_one_core.over()), "", ""])
    parts = [f"## {of_line['title']}", table(head, rows)]
    if of_line["notes"]:
        parts.insert(1, of_line["notes"])
    if fresh := of_line.get("fresh"):
        parts.append(f"First call, at {of_line['main']}:")
        parts.append(table(["", *(f"{f}: {what}" for f in fresh for what in ("s", "MiB"))], list(first_rows(fresh))))
    failures = [f"- {where}: {why}" for where, why in of_line.get("failed", {}).items()] + [
        f"- {m.size}, {m.function}, {contender}{where}: {row['failed']}"
        for m in measured
        for kept, where in (("contenders", ""), (ONE_CORE, f", {ONE_CORE}"))
        for contender, row in m.record.get(kept, {}).items()
        if "failed" in row
    ]
    return "\n\n".join([*parts, *(["Failed:", "\n".join(failures)] if failures else [])])


def first_rows(fresh: dict[str, Any]) -> Iterator[list[str]]:
    """A row a contender: seconds to the first result, and memory."""
    for contender in dict.fromkeys(c for found in fresh.values() for c in found):
        cells = [contender]
        for found in fresh.values():
            row = found.get(contender, {})
            planned = f" (planned {row['planned'] / 2**20:.3g})" if "planned" in row else ""
            seconds, peak = row.get("seconds"), row.get("peak")
            again = f" (again {row['again']:.3f})" if row.get("again") else ""
            cells += [(number(seconds) or row.get("failed", "")) + again, number(peak and peak / 2**20) + planned]
        yield cells


EVERYDAY = (
    "Each line over the fastest tool that has the same algorithm, as its user would write it, and over the fastest "
    "that calls a library: milliseconds on one core, to which all tools are confined, by the least processor time, and "
    "the median on two. Compile time and memory are those of the first call, of Adze and of the peer that they are "
    "bound by: JAX or Numba, whichever compiles slower, and JAX. What loses most is above."
)


def everyday_text(measured: Sequence[Measured]) -> list[str]:
    """All everyday programs in one table, by the greater of the ratios on one core and on two."""
    cores = ("1 core", "2 cores")
    head = [part for each in cores for part in (each, "same algorithm", "library")]
    head = ["everyday programs, ms", *head, "compiled, s", "memory, MiB"]
    found = sorted((m for m in measured if m.is_everyday), key=worst_ratio, reverse=True)
    rows = []
    for m in found:
        cells = [f"{m.line}, {m.function}"]
        for view in (m.on_one_core, m):
            own = view.time(ADZE)
            cells += [number(own and 1e3 * own), peer_cell(view, False), peer_cell(view, True)]
        rows.append([*cells, first_cell(m, "seconds", 1), first_cell(m, "peak", 2**20)])
    return ["## Everyday programs", EVERYDAY, table(head, rows)] if rows else []


def worst_ratio(m: Measured) -> tuple[bool, float]:
    """Those that have the same algorithm in another tool first."""
    for library in (False, True):
        ratios = [ratio for view in (m, m.on_one_core) if (ratio := view.over(library=library)) is not None]
        if ratios:
            return not library, max(ratios)
    return False, 0.0


def peer_cell(m: Measured, library: bool) -> str:
    """The ratio to the fastest peer of a kind, its name and its milliseconds."""
    name, ratio = m.fastest(library=library), m.over(library=library)
    return f"{ratio:.2g} ({name} {1e3 * m.peers()[name]:.3g})" if name and ratio else ""


def first_cell(m: Measured, what: str, unit: int) -> str:
    own, peer = m.first_calls.get(ADZE, {}), compared_with(m, what)
    of_peer = f" ({peer} {m.first_calls[peer][what] / unit:.3g})" if peer else ""
    return f"{own[what] / unit:.3g}{of_peer}" if what in own else own.get("failed", "")


def ablation_text(results: dict[str, Any]) -> list[str]:
    """What each transformation and each rule gains, as far as it was measured."""
    ablated = {
        name: of_line["ablation"]
        for record in results.values()
        for name, of_line in record["lines"].items()
        if "ablation" in of_line
    }
    if not ablated:
        return []
    switches = list(dict.fromkeys(s for found in ablated.values() for s in found if s))
    rows = []
    for name, found in ablated.items():
        base = found[""].get("median")
        slower = [found.get(s, {}).get("median") for s in switches]
        cells = [
            number(t / base) if t and base else found.get(s, {}).get("failed", "") for s, t in zip(switches, slower)
        ]
        rows.append([name, number(base and 1e3 * base), *cells])
    text = (
        "Derivatives on one thread, at the sizes of the first calls: milliseconds, and how many times as long it takes "
        'with one of the scheduler\'s transformations switched off (`az.compile(f, schedule={"jam": False})`), or one '
        "of the rules before it (`ADZE_WITHOUT=unswitch`)."
    )
    return ["## What each transformation gains", text, table(["", "ms", *(f"no {s}" for s in switches)], rows)]


def control_rows(results: dict[str, Any]) -> list[list[str]]:
    """The controls beside each module."""
    rows = []
    for module, record in results.items():
        control = record["controls"]
        rows.append([module, *(number(1e3 * row["median"]) for row in control.values())])
    return rows


def write_reports(folder: Path) -> str:
    """Write what there is to see in a folder of results; the table of bounds, for the terminal."""
    from bounds import bounds_text, figures_text  # which read what this module keeps

    results = read_results(folder)
    measured = list(all_measured(results))
    bounds = bounds_text(results, read_parts(folder / "large" / "large.json"))
    machines = {
        f"{m['date']}, {m['processor']}, {m['cores']}; {m['versions']}": None
        for m in (record["machine"] for record in results.values())
    }
    parts = [
        "# Adze on the CPU",
        "\n\n".join(f"{machine}." for machine in machines),
        "Float64. Milliseconds a call: the median and the quartiles of runs that the contenders took in turns, compile "
        "time apart. Adze and its peers run on 2 threads where nothing else is said, in a process for each line on two "
        "cores. "
        "Adze is compiled with `flush_subnormals=True`: JAX always counts subnormal numbers as zero, PyTorch and NumPy "
        "never. "
        "[docs/performance.md](../../docs/performance.md) tells how it is measured and how to read it.",
        "## Bounds",
        bounds,
        "![Adze's time over the fastest peer's](bench.png)",
        "The time of Adze, compiled with `flush_subnormals=True`, over that of the fastest other tool, on two cores: "
        "a circle for a program, a triangle for its derivative. Everyday programs are compared with the fastest tool "
        "that has the same algorithm, or with a library (hollow) where there is none.",
        *everyday_text(measured),
        *(
            line_text(name, of_line, [m for m in measured if m.line == name])
            for record in results.values()
            for name, of_line in record["lines"].items()
        ),
        "![Times by size](growth.png)" if plot_growth(results, folder / "growth.png") else "",
        *ablation_text(results),
        "## Controls",
        "Milliseconds of NumPy just before each module: `np.copyto` and a sum of 10^7 doubles, and the same by two "
        "threads, each with half of them; the product of two matrices of order 1000.",
        table(["module", *next(iter(results.values()))["controls"]], control_rows(results)) if results else "",
        *figures_text(measured),
    ]
    (folder / "bench.md").write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    plot_ratios(measured, folder / "bench.png")
    return bounds


# Plots


ROW, LONGEST = 0.19, 32  # inches of a row; rows of a column


def plot_ratios(measured: Sequence[Measured], path: Path) -> None:
    """Adze's time over the fastest peer's, at each line's main size: a row for a line, a mark for a function.

    Suites are on the left. Everyday programs are compared with the same algorithm, or with a library where no other
    tool has that.
    """
    shown = [m for m in measured if plotted_ratio(m) is not None and m.size == m.of_line["main"]]
    columns = [
        (title, rows)
        for title, is_everyday in (("suites", False), ("everyday programs", True))
        if (rows := _rows([m for m in shown if m.is_everyday == is_everyday]))
    ]
    pyplot = _pyplot()
    if pyplot is None or not columns:
        return
    parts = []
    for title, rows in columns:
        step = math.ceil(len(rows) / math.ceil(len(rows) / LONGEST))
        parts += [(title, rows[at : at + step]) for at in range(0, len(rows), step)]
    height = max(len(rows) for _, rows in parts)
    figure, axes = pyplot.subplots(1, len(parts), figsize=(4.2 * len(parts), 1.1 + ROW * height), squeeze=False)
    for axis, (title, rows) in zip(axes.flat, parts, strict=True):
        _draw(axis, title, rows, height)
    limits = [axis.get_xlim() for axis in axes.flat]
    for axis in axes.flat:
        axis.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
    figure.supxlabel(
        "time of Adze (flush_subnormals=True) over the time of the fastest other tool   "
        "(○ program, ▷ derivative; hollow: other tools call a library)",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plotted_ratio(m: Measured) -> float | None:
    return m.over(library=False) or m.over() if m.is_everyday else m.over()


def _rows(measured: Sequence[Measured]) -> list[tuple[str, list[Measured]]]:
    """The functions of each line."""
    names = dict.fromkeys(m.line for m in measured)
    return [(name, [m for m in measured if m.line == name]) for name in names]


def _draw(axis: Any, title: str, rows: Sequence[tuple[str, list[Measured]]], height: int) -> None:
    """A column: green where Adze is faster, red where it is not, and hollow against a library."""
    for y, (_, functions) in enumerate(rows):
        for m in functions:
            ratio = plotted_ratio(m) or 1.0
            colour = "tab:green" if ratio <= 1 else "tab:red"
            filled = not m.is_everyday or m.over(library=False) is not None
            marker = ">" if m.function == m.of_line["derivative"] else "o"
            face = colour if filled else "white"
            axis.plot([1, ratio], [y, y], color=colour, linewidth=0.8, alpha=0.5, zorder=1)
            axis.plot(ratio, y, marker, color=colour, markerfacecolor=face, markersize=4.5, zorder=2)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7.5)
    axis.set_ylim(height - 0.4, -0.6)
    axis.tick_params(axis="x", labelsize=7.5)
    axis.grid(axis="x", linewidth=0.3)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_title(title, fontsize=9)


def plot_growth(results: dict[str, Any], path: Path) -> bool:
    """Times by size, for lines of which one size grows by decades; whether there are any."""
    pyplot = _pyplot()
    grown = [
        (name, of_line, function)
        for record in results.values()
        for name, of_line in record["lines"].items()
        for function in of_line["functions"]
        if _axis(of_line) is not None
    ]
    if pyplot is None or not grown:
        return False
    columns = 4
    rows = -(-len(grown) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 2.8 * rows), squeeze=False)
    for axis in axes.flat[len(grown) :]:
        axis.set_visible(False)
    for axis, (name, of_line, function) in zip(axes.flat, grown, strict=False):
        size = _axis(of_line)
        points: dict[str, list[tuple[float, float]]] = {}
        for of_size in of_line["sizes"].values():
            for contender, row in of_size["functions"][function]["contenders"].items():
                if "median" in row:
                    points.setdefault(contender, []).append((of_size["numbers"][size], 1e3 * row["median"]))
        for contender, pairs in points.items():
            axis.loglog(*zip(*sorted(pairs), strict=True), marker=".", label=contender)
        axis.set_title(f"{name}, {function}", fontsize=9)
        axis.set_xlabel(size, fontsize=8)
        axis.legend(fontsize=6)
    figure.supylabel("milliseconds")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    return True


def _axis(of_line: dict[str, Any]) -> str | None:
    """The one size that differs between at least three sizes of a line."""
    numbers = [of_size["numbers"] for of_size in of_line["sizes"].values()]
    differing = [name for name in (numbers or [{}])[0] if len({n[name] for n in numbers}) > 1]
    return differing[0] if len(numbers) > 2 and len(differing) == 1 else None


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot
