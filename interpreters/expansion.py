"""Expansion: constructs that were added, written in those that an interpretation knows (``core/added.py``).

The term is built again, and where such a construct stands its expansion is emitted. What that holds of others that
were added is expanded in turn.
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
from ..core.source import at_line
from . import embed

Knows = Callable[[Construct], bool]


def expanded(block: terms.Block, knows: Knows) -> terms.Block:
    """A closed term without constructs that an interpretation does not know; the same object if there are none."""
    while _mentions(block, knows):
        block = embed.rebuilt(block, lambda builder: _Expand(builder, knows))
    return block


def _mentions(block: terms.Block, knows: Knows) -> bool:
    return any(_is_unknown(x.row, knows) or any(_mentions(inner, knows) for inner in x.blocks) for x in block.bindings)


def _is_unknown(row: Construct, knows: Knows) -> bool:
    return row.expansion is not None and not knows(row)


class _Expand(embed.Embed):
    def __init__(self, builder: Builder, known: Knows) -> None:
        super().__init__(builder)
        self.known = known

    def operation(
        self, operation: terms.Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        row, builder = operation.row, self.builder
        if not _is_unknown(row, self.known):
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
