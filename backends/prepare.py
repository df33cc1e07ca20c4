"""The first step of compiling: constructs that machine code does not have are inlined, left out, or refused.

A custom operation is its body, for its derivatives have been taken by now. The branches of a ``par`` run one after
the other: their loops are parallel themselves. A probe shows nothing, since nobody looks. What remains of functions,
tuples and declared types as values, and functions written elsewhere, are for evaluate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ..core.builder import build
from ..core.environment import Env
from ..core.language import Language, Unsupported
from ..core.placement import to_block
from ..core.terms import Block, Foreign
from ..interpreters import embed
from ..interpreters.simplify import fresh_binders

_OTHERS = frozenset(
    {"custom", "probe", "foreign", "function", "fix", "apply", "pack", "project", "construct", "case", "par"}
)


def prepare(block: Block) -> Block:
    """The closed block in the constructs that compiled code has; Unsupported, with the line, for the others."""
    if not _mentions(block):
        return block
    with build() as builder:
        binders = fresh_binders(builder, block)
        results = block.interpret(_Prepare(builder))(Env(), binders)
        prepared, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
        assert not captured
        return prepared


def _mentions(block: Block) -> bool:
    return any(x.op in _OTHERS or any(map(_mentions, x.blocks)) for x in block.bindings)


class _Prepare(embed.Embed):
    def refuse(self, construct: str) -> NoReturn:
        raise Unsupported(f"az.compile takes programs on scalars and arrays; {construct} runs in az.evaluate only")

    def custom(
        self,
        rules: tuple[str, ...],
        args: Sequence[embed.Atom],
        body: embed.Block,
        blocks: Sequence[embed.Block],
    ) -> embed.Operation:
        return lambda env: body(env, [a(env) for a in args])

    def par(self, branches: Sequence[embed.Block]) -> embed.Operation:
        return lambda env: [value for branch in branches for value in branch(env, [])]

    def probe(self, name: str, values: Sequence[embed.Atom]) -> embed.Operation:
        return lambda env: []

    def foreign(self, function: Foreign, args: Sequence[embed.Atom]) -> embed.Operation:
        self.refuse(f"the foreign function {function.name}")

    function = Language.function
    fix = Language.fix
    apply = Language.apply
    pack = Language.pack
    project = Language.project
    construct = Language.construct
    case = Language.case
