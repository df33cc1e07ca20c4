"""Results in their containers: what a program gives, as its structure says (``core/trees.py``)."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import trees
from .printer import LINE, Printer


def give(printer: Printer, structure: trees.Shape, leaves: Sequence[str]) -> None:
    """The structured result, on as many lines as it has parts if they do not fit on one."""
    text = structured(structure, leaves)
    if len(text) + 2 * printer.depth <= LINE or len(structure.inner) < 2:
        printer.line(f"return {text}")
        return
    opening, parts, closing = _parts(structure, leaves)
    printer.line(f"return {opening}")
    with printer.indented():
        for part in parts:
            printer.line(f"{part},")
    printer.line(closing)


def structured(shape: trees.Shape, leaves: Sequence[str]) -> str:
    """The leaves in their containers."""
    if shape.container is None:
        return leaves[0]
    if shape.container is type(None):
        return "None"
    opening, parts, closing = _parts(shape, leaves)
    return f"{opening}{', '.join(parts)}{',' if shape.container is tuple and len(parts) == 1 else ''}{closing}"


def _parts(shape: trees.Shape, leaves: Sequence[str]) -> tuple[str, list[str], str]:
    """A container's brackets, and what stands between them."""
    parts, start = [], 0
    for inner in shape.inner:
        parts.append(structured(inner, leaves[start : start + inner.leaves]))
        start += inner.leaves
    if shape.container is dict:
        return "{", [f"{key!r}: {part}" for key, part in zip(shape.keys, parts, strict=True)], "}"
    if shape.container is list:
        return "[", parts, "]"
    if shape.container is tuple or shape.container is None:
        return "(", parts, ")"
    return f"{shape.container.__name__}(", parts, ")"
