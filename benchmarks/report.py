"""What was measured, as tables and plots: bench.md, bench.png and growth.png, from the JSON of every module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
ADZE, ONE_THREAD, INTO = "Adze", "Adze, 1 thread", "Adze, out="


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

    def median(self, contender: str) -> float | None:
        """Seconds."""
        found: float | None = self.record["contenders"].get(contender, {}).get("median")
        return found

    def peers(self, prefix: str = "") -> dict[str, float]:
        """The medians of the other tools whose names begin so."""
        return {
            name: row["median"]
            for name, row in self.record["contenders"].items()
            if not name.startswith(ADZE) and name.startswith(prefix) and "median" in row
        }

    def fastest(self, prefix: str = "") -> str | None:
        """The name of the fastest of these."""
        peers = self.peers(prefix)
        return min(peers, key=peers.__getitem__) if peers else None

    def over(self, prefix: str = "") -> float | None:
        """Adze's time over that of the fastest of these."""
        name, own = self.fastest(prefix), self.median(ADZE)
        return own / self.peers()[name] if name and own else None

    @property
    def gain(self) -> float | None:
        """Two threads over one."""
        one, two = self.median(ONE_THREAD), self.median(ADZE)
        return one / two if one and two else None

    @property
    def over_primal(self) -> float | None:
        """The derivative's time over the primal's."""
        if self.function != self.of_line["derivative"]:
            return None
        primal = self.of_size["functions"][self.of_line["functions"][0]]["contenders"].get(ADZE, {}).get("median")
        own = self.median(ADZE)
        return own / primal if primal and own else None


def read_results(folder: Path) -> dict[str, Any]:
    """The records of the modules, by their names."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


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
    contenders = list(dict.fromkeys(c for m in measured for c in m.record["contenders"]))
    head = [f"{name}, ms", *contenders, "over fastest peer", "2 threads over 1", "over primal"]
    rows = [
        [
            f"{m.size}, {m.function}",
            *(milliseconds(m.record["contenders"].get(c)) for c in contenders),
            number(m.over()),
            number(m.gain),
            number(m.over_primal),
        ]
        for m in measured
    ]
    parts = [f"## {of_line['title']}", table(head, rows)]
    if of_line["notes"]:
        parts.insert(1, of_line["notes"])
    if fresh := of_line.get("fresh"):
        parts.append(f"First call, at {of_line['main']}:")
        parts.append(table(["", *(f"{f}: {what}" for f in fresh for what in ("s", "MiB"))], list(first_rows(fresh))))
    failures = [
        f"- {m.size}, {m.function}, {contender}: {row['failed']}"
        for m in measured
        for contender, row in m.record["contenders"].items()
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


def ablation_text(results: dict[str, Any]) -> list[str]:
    """What each of the scheduler's transformations gains, as far as it was measured."""
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
        'with one of the scheduler\'s transformations switched off (`az.compile(f, schedule={"jam": False})`).'
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
    bounds = bounds_text(results)
    machines = {
        f"{m['date']}, {m['processor']}, {m['cores']}; {m['versions']}": None
        for m in (record["machine"] for record in results.values())
    }
    parts = [
        "# Adze on the CPU",
        "\n\n".join(f"{machine}." for machine in machines),
        "Float64. Milliseconds a call: the median and the quartiles of runs that the contenders took in turns, compile "
        "time apart. Adze and its peers run on 2 threads where nothing else is said, in one process on two cores. "
        "Adze is compiled with `flush_subnormals=True`: JAX always counts subnormal numbers as zero, PyTorch and NumPy "
        "never. "
        "[docs/performance.md](../../docs/performance.md) tells how it is measured and how to read it.",
        "## Bounds",
        bounds,
        "![Adze's time over the fastest peer's](bench.png)",
        "The time of Adze, compiled with `flush_subnormals=True`, over that of the fastest other tool.",
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


def plot_ratios(measured: Sequence[Measured], path: Path) -> None:
    """Adze's time over the fastest peer's, a bar for each function of each line at its main size."""
    shown = [m for m in measured if m.over() is not None and m.size == m.of_line["main"]]
    pyplot = _pyplot()
    if pyplot is None or not shown:
        return
    figure, axis = pyplot.subplots(figsize=(8, 0.6 + 0.22 * len(shown)))
    ratios = [m.over() or 1.0 for m in shown]
    colours = ["tab:green" if ratio <= 1 else "tab:red" for ratio in ratios]
    bars = axis.barh(range(len(shown)), [ratio - 1 for ratio in ratios], left=1, color=colours)
    axis.bar_label(bars, [f" {ratio:.2g} " for ratio in ratios], fontsize=7)
    axis.set_xscale("log")
    axis.set_yticks(range(len(shown)), [f"{m.line}, {m.function}" for m in shown], fontsize=7)
    axis.invert_yaxis()
    axis.margins(x=0.12, y=0.01)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("time of Adze (flush_subnormals=True) over the time of the fastest other tool")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


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
    differing = [name for name in numbers[0] if len({n[name] for n in numbers}) > 1]
    return differing[0] if len(numbers) > 2 and len(differing) == 1 else None


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot
