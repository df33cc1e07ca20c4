"""A graph in frames: nodes with labels, edges between them, and frames that hold both, in the order of their making.

A node is made before the edges that lead to it, so the order is topological. ``source`` is the graph in Graphviz's
language::

    digraph "f" {
      n1 [label="x: f64", shape=ellipse];
      n2 [label="y = exp(x)"];
      n1 -> n2;
    }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Shape = Literal["box", "ellipse", "plaintext"]


@dataclass(frozen=True)
class Node:
    """A label of one line or several in a shape."""

    name: str
    label: str
    shape: Shape = "box"


@dataclass(frozen=True)
class Edge:
    """An arrow between two nodes, by their names, wherever they are."""

    start: str
    end: str
    dashed: bool = False


@dataclass
class Frame:
    """A frame around nodes and other frames; the outermost one is the picture."""

    name: str
    label: str
    items: list[Node | Edge | Frame] = field(default_factory=list)

    def edges(self) -> Iterator[Edge]:
        """All edges, at all depths."""
        for item in self.items:
            if isinstance(item, Edge):
                yield item
            elif isinstance(item, Frame):
                yield from item.edges()


def source(picture: Frame) -> str:
    """The picture in Graphviz's language."""
    head = [f"digraph {_quoted(picture.label)} {{", '  node [shape=box, fontname="Helvetica"];']
    return "\n".join([*head, *_lines(picture, "  "), "}"])


def _lines(frame: Frame, indent: str) -> Iterator[str]:
    for item in frame.items:
        match item:
            case Node(name, label, shape):
                style = "" if shape == "box" else f", shape={shape}"
                yield f"{indent}{name} [label={_quoted(label)}{style}];"
            case Edge(start, end, dashed):
                yield f"{indent}{start} -> {end}{' [style=dashed]' if dashed else ''};"
            case Frame(name, label):
                yield f"{indent}subgraph {name} {{"
                yield f"{indent}  label={_quoted(label)}; style=rounded;"
                yield from _lines(item, indent + "  ")
                yield f"{indent}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
