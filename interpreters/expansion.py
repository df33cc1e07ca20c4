"""Expansion: what has a meaning in terms of others, written so: constructs that were added, and operations.

The term is built again, and where such a construct stands that an interpretation does not know (``core/added.py``), or
an operation whose expansion is wanted (``core/operations.py``), that is emitted. What it holds of others is expanded
in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def expanded(block: terms.Block, knows: Knows) -> terms.Block:
    """A closed term without constructs that an interpretation does not know; the same object if there are none."""

    def unknown(operation: terms.Operation) -> bool:
        return operation.row.expansion is not None and not knows(operation.row)

    return _without(block, unknown, lambda builder: _Expand(builder, unknown))


def operations_expanded(block: terms.Block, wants: Wants) -> terms.Block:
    """A closed term with the expansions of the operations that are wanted so; the same object if there are none."""

    def wanted(operation: terms.Operation) -> bool:
        if operation.op != "foreign" or operation.static[0].expansion is None:
            return False
        return wants(operation.static[0], [arg.type for arg in operation.args])

    return _without(block, wanted, lambda builder: _ExpandOperations(builder, wanted))


def _without(block: terms.Block, chosen: Chosen, language: Callable[[Builder], embed.Embed]) -> terms.Block:
    while _mentions(block, chosen):
        block = embed.rebuilt(block, language)
    return block


def _mentions(block: terms.Block, chosen: Chosen) -> bool:
    return any(chosen(x) or any(_mentions(inner, chosen) for inner in x.blocks) for x in block.bindings)


class _ExpandOperations(embed.Embed):
    def __init__(self, builder: Builder, wanted: Chosen) -> None:
        super().__init__(builder)
        self.wanted = wanted

    def operation(
        self, operation: terms.Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        if not self.wanted(operation):
            return super().operation(operation, args, blocks)
        function: Foreign = operation.static[0]

        def run(env: embed.Entries) -> Sequence[Value]:
            return expansion_of(function, [arg(env) for arg in args])

        return run


class _Expand(embed.Embed):
    def __init__(self, builder: Builder, unknown: Chosen) -> None:
        super().__init__(builder)
        self.unknown = unknown

    def operation(
        self, operation: terms.Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        row, builder = operation.row, self.builder
        if not self.unknown(operation):
            return super().operation(operation, args, blocks)

        def run(env: embed.Entries) -> Sequence[Value]:
            def entered(block: embed.Block) -> Callable[..., object]:
                def function(*arguments: object) -> object:
                    results = [Expr(value, builder) for value in block(env, flat(arguments))]
                    return results[0] if len(results) == 1 else tuple(results)

                return function

            assert row.expansion is not None
            origin = builder.origin
            values = [Expr(arg(env), builder) for arg in args]
            results = flat(row.expansion(*values, *map(entered, blocks)))
            builder.origin = origin
            made = [value.type for value in results]
            wanted = row.types(operation.static, [x.type for x in values], [block.types for block in operation.blocks])
            if made != list(wanted):
                promised, given = [", ".join(map(str, types)) for types in (wanted, made)]
                raise TypeError(at_line(f"{row.name} promised to give ({promised}), but its expansion gives ({given})"))
            return results

        return run


EXPANSION["default"] = expanded
