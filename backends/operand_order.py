"""Operands of commutative operations in an order that does not depend on how a program was written.

``y * x`` is ``x * y`` to the bit. What is compiled has one of them, so that two spellings of a program are one code;
the term that people read stays as it was written. An operand is told by what it depends on, the outermost binders
first, and then by how it is computed, down to a few operations. Operations stand in the order in which operands need
them (``core/placement.py``): one order of operands is one term::

    let a = g(y); let b = f(x); b * a                let b = f(x); let a = g(y); b * a
    let b = f(x); let a = g(y); a * b         =>     let b = f(x); let a = g(y); b * a

What is alike as far as that stays in the order in which it was written.

(Operands have had an order since values are numbered: Cocke and Schwartz, Programming Languages and their Compilers,
1970.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.builder import Builder
from ..core.graph import Body, Value
from ..core.primitive import Primitive
from ..core.terms import Block, Constant, Literal
from ..interpreters.embed import Embed, rebuilt

# How many operations an operand is looked into, one inside the other.
DEPTH = 4


def in_order(block: Block) -> Block:
    """A closed block with the operands of its commutative operations in order."""
    return rebuilt(block, Embed, _ordered)


def _ordered(
    builder: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Value, ...] | None:
    if op == "primitive" and static[0].commutative and _precedes(args[1], args[0], static[0].infix in ("==", "!=")):
        return builder.make(op, static, (args[1], args[0]))
    return None


def _precedes(x: Value, y: Value, compared: bool) -> bool:
    """Whether an operand comes before another one; a literal comes last where it is compared, and else first."""
    if x is y or x.literal is not None or y.literal is not None:
        return (y if compared else x).literal is not None
    if x.free != y.free:
        return sorted(x.free) < sorted(y.free)
    places = {number: place for place, number in enumerate(sorted(x.free))}
    return _computed(x, places, DEPTH) < _computed(y, places, DEPTH)


def _computed(value: Value, places: Mapping[int, int], depth: int) -> str:
    """How a value is computed, as text in which the binders that it depends on have these places."""
    match value.atom:
        case Literal():
            return f"{value.atom.bits} {value.atom.type}"
        case Constant():
            return value.atom.digest.hex()
    node = value.source
    if node is None:
        return f"{places.get(value.number, -1):06}"
    name = " ".join([node.op, *[each.name for each in node.static if isinstance(each, Primitive)]])
    inner = [*node.args, *[result for body in node.bodies for result in body.results]] if depth else []
    return f"{name} {value.position}({', '.join([_computed(each, places, depth - 1) for each in inner])})"
