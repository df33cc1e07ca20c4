"""Layered layout of a graph in frames (Sugiyama, Tagawa and Toda 1981), one frame at a time.

A frame is laid out for itself, from the inside out, and then stands in the one around it like a node of that size. In
a frame, what an edge leads from stands in a layer above what it leads to:

1. *Layers*: each item stands one below the lowest of those that lead to it (the longest path); what nothing leads to
   stands just above the first that it leads to. A long edge has a *bend* in each layer on its way.
2. *Order*: items of a layer are sorted by the mean place of their neighbours in the layer above, then below, and again
   (the barycentre), which leaves few crossings.
3. *Places*: each item goes to the mean of its neighbours as far as those beside it leave room.

An edge between frames counts, in each frame around both ends, as one between the items that hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .picture import Edge, Frame, Node

CHARACTER, LINE = 7.25, 16.0  # width and height, of a monospaced font of 12 pixels
_PADDING, _BESIDE, _BELOW, _MARGIN, _TITLE = 12.0, 24.0, 34.0, 16.0, 22.0
_SWEEPS = 8

Point = tuple[float, float]


@dataclass
class Box:
    """A node or frame with its size, and where its corner is in the frame around it."""

    item: Node | Frame
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    inside: list[Box] = field(default_factory=list)
    bends: dict[tuple[str, str], list[Point]] = field(default_factory=dict)  # of edges, by the names of items in here

    @property
    def name(self) -> str:
        return self.item.name


@dataclass
class Placed:
    """A picture with places: all boxes, outer before inner, and the points that each edge passes."""

    width: float
    height: float
    boxes: list[Box]
    edges: list[tuple[Edge, list[Point]]]


def placed(picture: Frame) -> Placed:
    """Give everything in a picture its place."""
    edges = list(picture.edges())
    around: dict[str, tuple[str, ...]] = {}
    _note(picture, (), around)
    between: dict[str, set[tuple[str, str]]] = {}
    for where, start, end in [_meeting(edge, around) for edge in edges]:
        between.setdefault(where, set()).add((start, end))
    whole = _frame(picture, between)
    boxes: dict[str, Box] = {}
    _settle(whole, 0.0, 0.0, boxes)
    drawn = [(edge, _way(edge, boxes, around)) for edge in dict.fromkeys(edges)]
    return Placed(whole.width, whole.height, [box for box in boxes.values() if box is not whole], drawn)


def _note(frame: Frame, outer: tuple[str, ...], around: dict[str, tuple[str, ...]]) -> None:
    """Note for each item the frames around it, with itself last."""
    around[frame.name] = path = (*outer, frame.name)
    for item in frame.items:
        if isinstance(item, Node):
            around[item.name] = (*path, item.name)
        elif isinstance(item, Frame):
            _note(item, path, around)


def _meeting(edge: Edge, around: Mapping[str, tuple[str, ...]]) -> tuple[str, str, str]:
    """The innermost frame around both ends of an edge, and the items in it that hold them."""
    start, end = around[edge.start], around[edge.end]
    depth = next(k for k, (a, b) in enumerate(zip(start, end, strict=False)) if a != b)
    return start[depth - 1], start[depth], end[depth]


def _frame(frame: Frame, between: Mapping[str, set[tuple[str, str]]]) -> Box:
    """A frame with everything inside of it; ``between`` has the edges of each frame, by the items that they join."""
    boxes: list[Box] = []
    for item in frame.items:
        if isinstance(item, Node):
            lines = item.label.split("\n")
            width = CHARACTER * max(map(len, lines)) + 2 * _PADDING
            boxes.append(Box(item, width, LINE * len(lines) + _PADDING))
        elif isinstance(item, Frame):
            boxes.append(_frame(item, between))
    return _Layers(frame, boxes, between.get(frame.name, ())).box()


class _Layers:
    """One frame: its boxes, and the edges between them by their names."""

    def __init__(self, frame: Frame, boxes: Sequence[Box], edges: Iterable[tuple[str, str]]) -> None:
        self.frame = frame
        self.boxes = {box.name: box for box in boxes}
        self.widths = {box.name: box.width for box in boxes}
        numbers = {name: number for number, name in enumerate(self.boxes)}
        self.edges = sorted(edges, key=lambda edge: (numbers[edge[0]], numbers[edge[1]]))
        self.layer = self._layers()
        self.ways: dict[tuple[str, str], list[str]] = {}  # the bends of each edge
        self.above: dict[str, list[str]] = {name: [] for name in self.boxes}
        self.below: dict[str, list[str]] = {name: [] for name in self.boxes}
        self._bend()
        count = max(self.layer.values(), default=-1) + 1
        self.rows = [[name for name in self.layer if self.layer[name] == k] for k in range(count)]
        self._sort()
        self.x = self._places()

    def _layers(self) -> dict[str, int]:
        layer = dict.fromkeys(self.boxes, 0)
        leading: dict[str, list[str]] = {name: [] for name in self.boxes}
        following: dict[str, list[str]] = {name: [] for name in self.boxes}
        for start, end in self.edges:
            leading[end].append(start)
            following[start].append(end)
        for name in self.boxes:  # in topological order
            layer[name] = max([layer[each] + 1 for each in leading[name]], default=0)
        for name in self.boxes:
            if not leading[name] and following[name]:
                layer[name] = min([layer[each] for each in following[name]]) - 1
        return layer

    def _bend(self) -> None:
        """Put a bend of every long edge into each layer on its way."""
        for start, end in self.edges:
            way = [f"{start} {end} {k}" for k in range(self.layer[start] + 1, self.layer[end])]
            for k, name in enumerate(way, self.layer[start] + 1):
                self.layer[name], self.widths[name], self.above[name], self.below[name] = k, 2.0, [], []
            self.ways[start, end] = way
            for a, b in zip([start, *way], [*way, end], strict=True):
                self.below[a].append(b)
                self.above[b].append(a)

    def _sort(self) -> None:
        place = {name: float(k) for row in self.rows for k, name in enumerate(row)}
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for row in self.rows if down else self.rows[::-1]:
                wanted = {name: _mean([place[each] for each in self._beside(name, down)], place[name]) for name in row}
                row.sort(key=lambda name: wanted[name])
                place.update({name: float(k) for k, name in enumerate(row)})

    def _beside(self, name: str, down: bool) -> list[str]:
        return self.above[name] if down else self.below[name]

    def _places(self) -> dict[str, float]:
        """The middle of each item."""
        x: dict[str, float] = {}
        for row in self.rows:
            self._put(row, dict.fromkeys(row, 0.0), x)
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for row in self.rows if down else self.rows[::-1]:
                wanted = {name: _mean([x[each] for each in self._beside(name, down)], x[name]) for name in row}
                self._put(row, wanted, x)
        return x

    def _put(self, row: Sequence[str], wanted: Mapping[str, float], x: dict[str, float]) -> None:
        """Between what leaves room to the right of all, and what leaves it to the left: both keep the order."""
        right: list[float] = []
        for k, name in enumerate(row):
            right.append(wanted[name] if k == 0 else max(wanted[name], right[-1] + self._apart(row[k - 1], name)))
        left: list[float] = []
        for k, name in reversed(list(enumerate(row))):
            last = k == len(row) - 1
            left.append(wanted[name] if last else min(wanted[name], left[-1] - self._apart(name, row[k + 1])))
        x.update({name: (a + b) / 2 for name, a, b in zip(row, right, left[::-1], strict=True)})

    def _apart(self, a: str, b: str) -> float:
        return (self.widths[a] + self.widths[b]) / 2 + _BESIDE

    def box(self) -> Box:
        """The frame, with its boxes in their places."""
        least = min([self.x[name] - self.widths[name] / 2 for name in self.x], default=0.0)
        most = max([self.x[name] + self.widths[name] / 2 for name in self.x], default=0.0)
        width = max(most - least, CHARACTER * len(self.frame.label)) + 2 * _MARGIN
        shift = (width - (most - least)) / 2 - least
        top = _MARGIN + _TITLE
        middles: list[float] = []
        for row in self.rows:
            height = max([self.boxes[name].height if name in self.boxes else 0.0 for name in row])
            middles.append(top + height / 2)
            top += height + _BELOW
        for name, box in self.boxes.items():
            box.x = self.x[name] + shift - box.width / 2
            box.y = middles[self.layer[name]] - box.height / 2
        made = Box(self.frame, width, top - (_BELOW if self.rows else 0.0) + _MARGIN, inside=list(self.boxes.values()))
        for edge, way in self.ways.items():
            made.bends[edge] = [(self.x[name] + shift, middles[self.layer[name]]) for name in way]
        return made


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _settle(box: Box, x: float, y: float, boxes: dict[str, Box]) -> None:
    """Places in the picture, instead of in the frame around."""
    box.x, box.y = box.x + x, box.y + y
    boxes[box.name] = box
    box.bends = {edge: [(a + box.x, b + box.y) for a, b in points] for edge, points in box.bends.items()}
    for each in box.inside:
        _settle(each, box.x, box.y, boxes)


def _way(edge: Edge, boxes: Mapping[str, Box], around: Mapping[str, tuple[str, ...]]) -> list[Point]:
    """The points of an edge: from the lower border of a node, by its bends, to the upper border of the other one."""
    frame, start, end = _meeting(edge, around)
    first, last = boxes[edge.start], boxes[edge.end]
    bends = boxes[frame].bends.get((start, end), [])
    return [(first.x + first.width / 2, first.y + first.height), *bends, (last.x + last.width / 2, last.y)]
