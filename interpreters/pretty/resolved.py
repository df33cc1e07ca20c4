"""Name resolution: terms with shared records instead of De Bruijn indices, for printing and drawing.

A bound value becomes one record, which knows its type and the operation that makes it. The printer also wants to know
how often a value is used, and whether it is used in a block inside the one that binds it: :func:`count_uses` finds
that for a term as it is, or after ``surface.py`` has changed it. What a reader sees in a term beyond its constructs,
whatever its style, is recognised here: a reduction by a primitive with its usual neutral element has a name, and a
value multiplied with itself is a square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import terms
from ...core.constructs import CONSTRUCTS, Construct, construct
from ...core.environment import Env
from ...core.primitive import PRIMITIVES, Primitive
from ...core.terms import Block, Literal, Origin, Variable
from ...core.types import Type

_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip


@dataclass(eq=False)
class Bound:
    """A bound value: how often it is used, and how it is written."""

    type: Type
    hint: str = ""
    source: ResolvedOperation | None = None  # what makes it; None for a parameter of a block
    alias: Argument | None = None  # the value that it was found to be
    uses: int = 0
    inside: bool = False  # used in a block inside the one that binds it
    text: str = ""
    precedence: int = 100  # how tightly the text binds; a name binds tightest
    comparison: tuple[str, str, str] | None = None  # left, operator, right: ``0 <= i and i < n`` is ``0 <= i < n``
    fill: bool = False  # an array of one literal
    origins: frozenset[Origin] = frozenset()  # of what stands in the text, where that is no name


Argument = Bound | terms.Atom


@dataclass(eq=False)
class ResolvedOperation:
    """An operation on records."""

    op: str
    static: tuple[Any, ...]
    args: list[Argument]
    blocks: list[ResolvedBlock]
    results: list[Bound]
    origin: Origin = terms.NOWHERE

    @property
    def row(self) -> Construct:
        """What is known of the construct. TypeError for what only print has."""
        return construct(self.op, self.static)

    def __post_init__(self) -> None:
        for result in self.results:
            if result.source is not None and not self.origin.file:  # it takes the place of another one
                self.origin = result.source.origin
            result.source = self


@dataclass(eq=False)
class ResolvedBlock:
    """A block of records."""

    binders: list[Bound]
    operations: list[ResolvedOperation] = field(default_factory=list)
    results: list[Argument] = field(default_factory=list)


def resolve(block: Block) -> ResolvedBlock:
    """The block with a record for each bound value."""
    return _resolve(block, Env())


def _resolve(block: Block, env: Env[Bound]) -> ResolvedBlock:
    resolved = ResolvedBlock([Bound(type, name) for type, name in zip(block.binders, block.names, strict=True)])
    env = env.enter(resolved.binders)

    def use(atom: terms.Atom) -> Argument:
        return env.get(atom.index) if isinstance(atom, Variable) else atom

    for operation in [binding.with_rules for binding in block.bindings]:
        args = [use(arg) for arg in operation.args]
        blocks = [_resolve(inner, env) for inner in operation.blocks]
        hint = operation.origin.name if len(operation.types) == 1 else ""
        results = [Bound(type, hint) for type in operation.types]
        resolved.operations.append(
            ResolvedOperation(operation.op, operation.static, args, blocks, results, operation.origin)
        )
        env = env.extend(results)
    resolved.results = [use(result) for result in block.results]
    return resolved


def real(arg: Argument) -> Argument:
    """The value that an argument was found to be."""
    while isinstance(arg, Bound) and arg.alias is not None:
        arg = arg.alias
    return arg


def count_uses(block: ResolvedBlock) -> None:
    """Note how often each value is used, and where; what was found to be another value goes."""
    _count_uses(block, {})


def _count_uses(block: ResolvedBlock, homes: dict[Bound, ResolvedBlock]) -> None:
    def use(arg: Argument) -> Argument:
        value = real(arg)
        if isinstance(value, Bound):
            value.uses += 1
            value.inside = value.inside or homes[value] is not block
        return value

    homes.update(dict.fromkeys(block.binders, block))
    block.operations = [x for x in block.operations if not x.results or any(y.alias is None for y in x.results)]
    for operation in block.operations:
        operation.args = [use(arg) for arg in operation.args]
        squared = square(operation.op, operation.static, operation.args)
        if squared is not None:
            squared.uses -= 1
        for inner in operation.blocks:
            _count_uses(inner, homes)
        homes.update(dict.fromkeys(operation.results, block))
    block.results = [use(result) for result in block.results]


def square(op: str, static: tuple[Any, ...], args: Sequence[Argument]) -> Bound | None:
    """The value that an operation multiplies with itself: printed as a power, which shows the value once."""
    if op == "primitive" and static[0].name == "multiply" and isinstance(args[0], Bound) and args[0] is args[1]:
        return args[0]
    return None


def reduction_name(operation: ResolvedOperation) -> str | None:
    """What combining by a primitive operator with its usual neutral element is called: ``sum``, ``max``..."""
    if operation.op not in CONSTRUCTS or not operation.row.combines or len(operation.results) != 1:
        return None
    operator, neutral = operation.blocks[1], operation.args[-1]
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
