"""Expansion: what has a meaning in terms of others, written so: constructs that were added, and operations.

The term is built again, and where such a construct stands that an interpretation does not know (``core/added.py``), or
an operation whose expansion is wanted (``core/operations.py``), that is emitted. What it holds of others is expanded
in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..core import terms
from ..core.added import flat
from ..core.builder import Builder
from ..core.constructs import Construct
from ..core.expr import Expr
from ..core.graph import Value
from ..core.language import EXPANSION
from ..core.operations import expansion_of
from ..core.source import at_line
from ..core.terms import Foreign
from ..core.types import Type
from . import embed

Knows = Callable[[Construct], bool]
Wants = Callable[[Foreign, Sequence[Type]], bool]  # whether an operation is expanded, for the types of its arguments
Chosen = Callable[[terms.Operation], bool]
Entered = Callable[[Sequence[Value]], Sequence[Value]]  # a block of an operation, where it stands
Meaning = Callable[[Builder, terms.Operation, Sequence[Value], Sequence[Entered]], Sequence[Value]]


def expanded(block: terms.Block, knows: Knows) -> terms.Block:
    """A closed term without constructs that an interpretation does not know; the same object if there are none."""

    def unknown(operation: terms.Operation) -> bool:
        return operation.row.expansion is not None and not knows(operation.row)

    return _without(block, unknown, _of_construct)


def operations_expanded(block: terms.Block, wants: Wants) -> terms.Block:
    """A closed term with the expansions of the operations that are wanted so; the same object if there are none."""

    def wanted(operation: terms.Operation) -> bool:
        if operation.op != "foreign" or operation.static[0].expansion is None:
            return False
        return wants(operation.static[0], [arg.type for arg in operation.args])

    return _without(block, wanted, _of_operation)


def _without(block: terms.Block, chosen: Chosen, meaning: Meaning) -> terms.Block:
    while _mentions(block, chosen):
        block = embed.rebuilt(block, lambda builder: _Expand(builder, chosen, meaning))
    return block


def _mentions(block: terms.Block, chosen: Chosen) -> bool:
    return any(chosen(x) or any(_mentions(inner, chosen) for inner in x.blocks) for x in block.bindings)


class _Expand(embed.Embed):
    """Rebuilds a term with other values where operations are chosen."""

    def __init__(self, builder: Builder, chosen: Chosen, expand: Meaning) -> None:
        super().__init__(builder)
        self.chosen, self.expand = chosen, expand

    def operation(
        self, operation: terms.Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        if not self.chosen(operation):
            return super().operation(operation, args, blocks)
        return lambda env: self.expand(
            self.builder, operation, [arg(env) for arg in args], [partial(block, env) for block in blocks]
        )


def _of_operation(
    builder: Builder, operation: terms.Operation, args: Sequence[Value], blocks: Sequence[Entered]
) -> Sequence[Value]:
    return expansion_of(operation.static[0], args)


def _of_construct(
    builder: Builder, operation: terms.Operation, args: Sequence[Value], blocks: Sequence[Entered]
) -> Sequence[Value]:
    def function_of(block: Entered) -> Callable[..., object]:
        def function(*arguments: object) -> object:
            results = [Expr(value, builder) for value in block(flat(arguments))]
            return results[0] if len(results) == 1 else tuple(results)

        return function

    row, origin = operation.row, builder.origin
    assert row.expansion is not None
    values = [Expr(arg, builder) for arg in args]
    results = flat(row.expansion(*values, *map(function_of, blocks)))
    builder.origin = origin
    made = [value.type for value in results]
    wanted = row.types(operation.static, [x.type for x in values], [block.types for block in operation.blocks])
    if made != list(wanted):
        promised, given = [", ".join(map(str, types)) for types in (wanted, made)]
        raise TypeError(at_line(f"{row.name} promised to give ({promised}), but its expansion gives ({given})"))
    return results


EXPANSION["default"] = expanded
