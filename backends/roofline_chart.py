"""The roofline as a picture: nests by their operations a byte, and their operations a second (Williams et al. 2009).

Both axes are logarithmic. The roof rises with the rate of the memory as far as the ridge, and is flat from there on: no
nest is above it, unless its bytes come from a cache that is faster than the copy was. Nests are disks with the area of
their share of the time; a number leads to the name below, with how much of its time the roof allows. A nest without
bytes, or with hardly an operation, has no place between the axes, and is listed alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .cost import Row
from .roofline import Roofline

_WIDTH, _LEFT, _TOP, _PLOT, _LINE = 720.0, 64.0, 24.0, 320.0, 18.0
_LARGEST = 20.0  # the radius of a nest that takes all of the time
_LISTED = 12  # nests that are shown at most, those that take longest
_COUNTED = 1e-3  # operations a byte, below which a nest moves memory and does nothing else
_LONGEST = 96  # letters of a line

_STYLE = """\
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #22252a; }
.paper { fill: #ffffff; } .grid { stroke: #e4e1d8; } .axis { fill: #6d727b; } .middle { text-anchor: middle; }
.end { text-anchor: end; } .roof { fill: none; stroke: #6d727b; stroke-width: 2; }
.nest { fill: #2f6fb3; fill-opacity: 0.35; stroke: #2f6fb3; }"""


@dataclass(frozen=True)
class Chart:
    """A picture as SVG, which a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write it to a file, which ends in ``.svg``; ValueError for another ending."""
        path = Path(path)
        if path.suffix != ".svg":
            raise ValueError(f"a chart is saved as .svg, not as {path.name!r}")
        path.write_text(self.svg, encoding="utf-8")


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis of whole decades, from one place in the picture to another."""

    low: int
    high: int
    start: float
    end: float

    @staticmethod
    def over(numbers: Sequence[float], start: float, end: float) -> _Axis:
        return _Axis(math.floor(math.log10(min(numbers) / 2)), math.ceil(math.log10(max(numbers) * 2)), start, end)

    def at(self, number: float) -> float:
        """Where a number is."""
        return self.start + (self.end - self.start) * (math.log10(number) - self.low) / (self.high - self.low)

    @property
    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def chart(rows: Sequence[Row], roofline: Roofline) -> Chart:
    """The nests that ran, those that take longest first, below the roofline."""
    ran = [row for row in rows if row.seconds > 0][:_LISTED]
    placed = [row for row in ran if row.bytes > 0 and row.operations / row.bytes >= _COUNTED]
    ridge = roofline.operations / roofline.bytes
    x = _Axis.over([ridge, *[row.operations / row.bytes for row in placed]], _LEFT, _WIDTH - 16)
    rates = [row.operations / row.seconds for row in placed]
    y = _Axis.over([roofline.operations, *rates], _TOP + _PLOT, _TOP)
    whole, height = math.fsum([row.seconds for row in rows]), _TOP + _PLOT + 56 + _LINE * len(ran)
    size = f'width="{_WIDTH:.0f}" height="{height:.0f}" viewBox="0 0 {_WIDTH:.0f} {height:.0f}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<title>roofline: {roofline}</title>"]
    lines += [f"<style>{_STYLE}</style>", f'<rect class="paper" width="{_WIDTH:.0f}" height="{height:.0f}"/>']
    lines += [*_grid(x, y), _roof(x, y, roofline)]
    lines += [_disk(ran.index(row) + 1, row, x, y, row.seconds / whole) for row in placed]
    for number, row in enumerate(ran, 1):
        text = f"{number}  {row.seconds / whole:4.0%} of the time  {_of_the_roof(row, roofline)}  {row.title}"
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
        place = f'x="16" y="{_TOP + _PLOT + 52 + _LINE * number:.0f}"'
        lines.append(f'<text {place} xml:space="preserve">{escape(text)}</text>')
    return Chart("\n".join([*lines, "</svg>", ""]))


def _of_the_roof(row: Row, roofline: Roofline) -> str:
    """How much of its time a nest needs at least, and what that is due to."""
    if row.operations == row.bytes == 0:
        return "nothing that is counted"
    share = roofline.seconds(row.operations, row.bytes) / row.seconds
    return f"{share:4.0%} of the roof ({roofline.bound(row.operations, row.bytes)})"


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    """A line and its number for each decade of both axes, and what they are."""
    for number in x.decades:
        across = f"{x.at(number):.1f}"
        yield f'<line class="grid" x1="{across}" x2="{across}" y1="{y.end:.0f}" y2="{y.start:.0f}"/>'
        yield f'<text class="axis middle" x="{across}" y="{y.start + 16:.0f}">{number:g}</text>'
    for number in y.decades:
        up = y.at(number)
        yield f'<line class="grid" x1="{x.start:.0f}" x2="{x.end:.0f}" y1="{up:.1f}" y2="{up:.1f}"/>'
        yield f'<text class="axis end" x="{x.start - 6:.0f}" y="{up + 4:.1f}">{1e-9 * number:g}</text>'
    middle = (x.start + x.end) / 2
    yield f'<text class="axis middle" x="{middle:.0f}" y="{y.start + 34:.0f}">operations a byte</text>'
    yield f'<text class="axis" x="8" y="{y.end - 8:.0f}">10^9 operations a second</text>'


def _roof(x: _Axis, y: _Axis, roofline: Roofline) -> str:
    """From where the memory alone bounds, over the ridge, to the right end."""
    left, right = x.decades[0], x.decades[-1]
    lowest = max(left, y.decades[0] / roofline.bytes)
    corners = [(lowest, lowest * roofline.bytes), (roofline.operations / roofline.bytes, roofline.operations)]
    points = [f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in [*corners, (right, roofline.operations)]]
    return f'<polyline class="roof" points="{" ".join(points)}"/>'


def _disk(number: int, row: Row, x: _Axis, y: _Axis, share: float) -> str:
    """A nest, with its number in the middle."""
    across, up = x.at(row.operations / row.bytes), y.at(row.operations / row.seconds)
    radius = max(_LARGEST * math.sqrt(share), 3.0)
    place = f'cx="{across:.1f}" cy="{up:.1f}" r="{radius:.1f}"'
    disk = f'<circle class="nest" {place}><title>{escape(row.title)}</title></circle>'
    return f'{disk}<text class="middle" x="{across:.1f}" y="{up + 4:.1f}">{number}</text>'
