"""A picture with places as SVG, which stands for itself: no font, script or style of elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from .layout import LINE, Box, Point, placed
from .picture import Frame, Node

_STYLE = """\
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #22252a; text-anchor: middle; }
.frame { fill: #f7f6f2; stroke: #c9c5bb; } .frame text, .title { text-anchor: start; fill: #6d727b; }
.node { fill: #ffffff; stroke: #6d727b; } .edge { fill: none; stroke: #6d727b; } .dashed { stroke-dasharray: 4 3; }
.head { fill: #6d727b; } .paper { fill: #ffffff; }"""

_ARROW = 6.0


def svg(picture: Frame) -> str:
    """The picture."""
    found = placed(picture)
    width, height = f"{found.width:.0f}", f"{found.height:.0f}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<title>{escape(picture.label)}</title>"]
    lines += [f"<style>{_STYLE}</style>", f'<rect class="paper" width="{width}" height="{height}"/>']
    lines += [_frame(box) for box in found.boxes if isinstance(box.item, Frame)]
    lines += [_edge(points, edge.dashed) for edge, points in found.edges]
    lines += [line for box in found.boxes if isinstance(box.item, Node) for line in _node(box, box.item)]
    return "\n".join([*lines, "</svg>", ""])


def _frame(box: Box) -> str:
    rect = f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>'
    title = f'<text x="{box.x + 12:.1f}" y="{box.y + 18:.1f}" stroke="none">{escape(box.item.label)}</text>'
    return f'<g class="frame">{rect}{title}</g>'


def _node(box: Box, node: Node) -> Iterator[str]:
    if node.shape != "plaintext":
        round = box.height / 2 if node.shape == "ellipse" else 3
        place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        yield f'<rect class="node" {place} rx="{round:.0f}"/>'
    lines = node.label.split("\n")
    first = box.y + box.height / 2 - LINE * (len(lines) - 1) / 2 + 4
    for k, line in enumerate(lines):
        yield f'<text x="{box.x + box.width / 2:.1f}" y="{first + LINE * k:.1f}">{escape(line)}</text>'


def _edge(points: Sequence[Point], dashed: bool) -> str:
    """A curve that leaves and enters each point from above, with the head of an arrow at the end."""
    *_, (x, y) = points
    way = [*points[:-1], (x, y - _ARROW)]
    path = f"M{way[0][0]:.1f} {way[0][1]:.1f}"
    for (a, b), (c, d) in pairwise(way):
        bow = max((d - b) / 2, 8.0)
        path += f" C{a:.1f} {b + bow:.1f} {c:.1f} {d - bow:.1f} {c:.1f} {d:.1f}"
    head = f"M{x:.1f} {y:.1f} l{-_ARROW / 2} {-_ARROW} h{_ARROW} z"
    return f'<path class="edge{" dashed" if dashed else ""}" d="{path}"/><path class="head" d="{head}"/>'
