"""Terms as people read them: shared records instead of De Bruijn indices, for printing.

A bound value becomes one record, which knows its type, how often it is used, and whether it is used in a block inside
the one that binds it. What a reader sees in a term beyond its constructs is recognised here too: a reduction by a
primitive with its usual neutral element has a name, and a value multiplied with itself is a square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core import terms
from ..core.environment import Env
from ..core.primitive import PRIMITIVES, Primitive
from ..core.terms import Block, Literal, Origin, Variable
from ..core.types import Type

_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip


@dataclass(eq=False)
class Bound:
    """A bound value: how often it is used, and how it is written."""

    type: Type
    hint: str = ""
    uses: int = 0
    inside: bool = False  # used in a block inside the one that binds it
    text: str = ""
    precedence: int = 100  # how tightly the text binds; a name binds tightest
    comparison: tuple[str, str, str] | None = None  # left, operator, right: ``0 <= i and i < n`` is ``0 <= i < n``
    fill: tuple[str, list[str]] | None = None  # an array of one number: the number and the extents


Argument = Bound | terms.Atom


@dataclass(eq=False)
class ResolvedOperation:
    """An operation on records."""

    op: str
    static: tuple[Any, ...]
    args: list[Argument]
    blocks: list[ResolvedBlock]
    results: list[Bound]
    origin: Origin


@dataclass(eq=False)
class ResolvedBlock:
    """A block of records."""

    binders: list[Bound]
    operations: list[ResolvedOperation] = field(default_factory=list)
    results: list[Argument] = field(default_factory=list)


def resolve(block: Block) -> ResolvedBlock:
    """The block with a record for each bound value."""
    return _resolve(block, Env())


def _resolve(block: Block, env: Env[tuple[Bound, ResolvedBlock]]) -> ResolvedBlock:
    resolved = ResolvedBlock([Bound(type, name) for type, name in zip(block.binders, block.names, strict=True)])
    env = env.enter([(value, resolved) for value in resolved.binders])

    def use(atom: terms.Atom) -> Argument:
        if not isinstance(atom, Variable):
            return atom
        value, home = env.get(atom.index)
        value.uses += 1
        value.inside = value.inside or home is not resolved
        return value

    for operation in block.bindings:
        args = [use(arg) for arg in operation.args]
        squared = square(operation.op, operation.static, args)
        if squared is not None:
            squared.uses -= 1
        blocks = [_resolve(inner, env) for inner in operation.blocks]
        hint = operation.origin.name if len(operation.types) == 1 else ""
        results = [Bound(type, hint) for type in operation.types]
        resolved.operations.append(
            ResolvedOperation(operation.op, operation.static, args, blocks, results, operation.origin)
        )
        env = env.extend([(value, resolved) for value in results])
    resolved.results = [use(result) for result in block.results]
    return resolved


def square(op: str, static: tuple[Any, ...], args: Sequence[Argument]) -> Bound | None:
    """The value that an operation multiplies with itself: printed as a power, which shows the value once."""
    if op == "primitive" and static[0].name == "multiply" and isinstance(args[0], Bound) and args[0] is args[1]:
        return args[0]
    return None


def reduction_name(operation: ResolvedOperation) -> str | None:
    """What a reduction by a primitive operator with its usual neutral element is called."""
    if operation.op != "reduce" or len(operation.results) != 1:
        return None
    operator, neutral = operation.blocks[1], operation.args[1]
    if len(operator.operations) != 1 or operator.results != operator.operations[0].results:
        return None
    applied = operator.operations[0]
    if applied.op != "primitive" or set(map(id, applied.args)) != set(map(id, operator.binders)):
        return None
    primitive: Primitive = applied.static[0]
    if not isinstance(neutral, Literal) or PRIMITIVES.get(primitive.name) is not primitive:
        return None
    name = _REDUCTIONS.get(primitive.name)
    return name if name is not None and neutral.value == _usual_neutral(name, neutral) else None


def _usual_neutral(name: str, neutral: Literal) -> Any:
    if name in ("max", "min"):
        sign = -1 if name == "max" else 1
        if neutral.type.kind == "float":
            return sign * float("inf")
        limits = np.iinfo(neutral.type.dtype)
        return limits.min if sign < 0 else limits.max
    return {"sum": 0, "prod": 1, "all": True, "any": False}[name]
