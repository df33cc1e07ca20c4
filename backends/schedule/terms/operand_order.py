"""Canonical order of operands: that of a commutative operation does not depend on how a program was written.

``y * x`` is ``x * y`` to the bit. What is compiled has one of them, so that two spellings of a program are one code;
the term that people read stays as it was written. An operand is told by what it depends on, the outermost binders
first, and then by how it is computed: by its operation, and by the first of the values used that differ. Operations
stand in the order in which operands need them (``core/placement.py``): one order of operands is one term::

    let a = g(y); let b = f(x); b * a                let b = f(x); let a = g(y); b * a
    let b = f(x); let a = g(y); a * b         =>     let b = f(x); let a = g(y); b * a

What differs in names of sizes alone stays in the order in which it was written.

(Operands have had an order since values are numbered: Cocke and Schwartz, Programming Languages and their Compilers,
1970.)
"""

from __future__ import annotations

from typing import Any

from ....core.builder import Builder
from ....core.graph import Body, Node, Value
from ....core.primitive import Primitive
from ....core.terms import Block, Constant, Literal
from ....interpreters.embed import Embed, rebuilt
from ...target import OPERAND_DEPTH


def in_order(block: Block) -> Block:
    """A closed block with the operands of its commutative operations in order."""
    return rebuilt(block, Embed, _ordered)


def _ordered(
    builder: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Value, ...] | None:
    if op == "primitive" and static[0].commutative:
        x, y = args
        known = x.literal is not None, y.literal is not None
        if any(known):  # a literal comes last where it is compared, and else first
            changed = known == ((True, False) if static[0].infix in ("==", "!=") else (False, True))
        else:
            changed = _precedes(y, x)
        if changed:
            return builder.make(op, static, (y, x))
    return None


def _precedes(x: Value, y: Value) -> bool:
    """Whether an operand comes before another one. Equal values are the same object: the first that differ decide."""
    in_body = False
    for _ in range(OPERAND_DEPTH):
        if x.free != y.free and not in_body:
            return sorted(x.free) < sorted(y.free)
        if _kind(x) != _kind(y):
            return _kind(x) < _kind(y)
        first, second = x.source, y.source
        if first is None or second is None:
            return False
        values = [*zip(first.args, second.args, strict=True), *zip(_results(first), _results(second), strict=True)]
        differing = [k for k, (a, b) in enumerate(values) if a is not b]
        if not differing:
            return False
        in_body = in_body or differing[0] >= len(first.args)
        x, y = values[differing[0]]
    return False


def _kind(value: Value) -> tuple[str | int, ...]:
    """What says how a value is computed, without the values that it is computed from."""
    match value.atom:
        case Literal(bits, type):
            return "literal", str(type), bits
        case Constant():
            return "constant", str(value.type), value.atom.digest.hex()
    node = value.source
    if node is None:
        return ("binder",)
    named = " ".join([each.name for each in node.static if isinstance(each, Primitive)])
    return "node", node.op, named, value.position, len(node.args), len(_results(node))


def _results(node: Node) -> list[Value]:
    return [result for body in node.bodies for result in body.results]
