"""Simplify: the same program with less work in it.

One round folds a term into a meaning with two parts (``constructs.py``): what is live is found (``liveness.py``), then
emitted again through a builder whose rules fold constants, apply algebra, share common subexpressions and compute cheap
array elements where they are read (``rules.py``), and turn accumulators into reductions (``accumulators.py``). An array
that is expensive to compute and read exactly once, in the loops it was made in, is computed there (fusion without
duplicated work). Rounds repeat until nothing changes.

    for i < n: t = for j < m: exp(x[j] + 0)          t = for j < m: exp(x[j])
               y[i] = sum(j < m: t[j] * 1) + z[i]    for i < n: sum(j < m: t[j]) + z[i]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core import terms
from ...core.builder import build, current
from ...core.constructs import Construct
from ...core.dims import Dim
from ...core.environment import Env
from ...core.graph import Value
from ...core.language import Binding, Language
from ...core.limits import lifted_limits
from ...core.placement import to_block
from ...core.primitive import Primitive
from ...core.procedures import Procedure
from ...core.program import instance_of
from ...core.terms import Constant, Failure, Foreign, Rules
from ...core.types import ArrayType, Opened, Scalar, Type
from ...core.verb import Function
from ..embed import fresh_binders
from .constructs import (
    Accumulate,
    AddTo,
    Choice,
    Combine,
    Elsewhere,
    Generate,
    Index,
    Loop,
    Par,
    Scatter,
    Statement,
    While,
    Whole,
)
from .liveness import Atom, Block, Closed, Nesting, Operation, Use
from .redundant_loops import RedundantLoops
from .rematerialisation import Rematerialisation, stores_arrays
from .rules import rewrite
from .stored_parts import StoredParts
from .switches import is_on
from .unswitching import unswitched
from .write_once import WriteOnce

ROUNDS = 8


def simplify(program: Function[..., Any] | terms.Block, fuse: bool = True, unswitch: bool = True) -> terms.Block:
    """The simplified term of a program, equal to it for all inputs (but for signs of zeros).

    Without ``fuse`` an array that is expensive to compute stays where it is made, and loops store what they do, as in
    what is scheduled. Without ``unswitch`` what a branch computes stays in the branch, as what is differentiated is.
    """
    block = program if isinstance(program, terms.Block) else instance_of(program).term
    fuse_arrays, unswitch = fuse and is_on("fuse_arrays"), unswitch and is_on("unswitch")
    with lifted_limits():
        for _ in range(ROUNDS):
            settled = _settled(block, fuse_arrays)
            block = _rewritten(settled) if fuse else settled
            block = unswitched(block) if unswitch else block
            if block is settled:
                break
        return block


def _settled(block: terms.Block, fuse: bool) -> terms.Block:
    for _ in range(ROUNDS):
        before, block = block, _round(block, fuse)
        if block == before:
            break
    return block


def _round(block: terms.Block, fuse: bool) -> terms.Block:
    meaning = block.interpret(_Simplify(fuse))
    uses = [Use(()) for _ in block.binders]
    meaning.analyse(Env(), uses, range(len(block.results)), ())
    with build(rewrite) as builder:
        binders = fresh_binders(builder, block)
        results = meaning.emit(Env(), binders, range(len(block.results)))
        simplified, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
        assert not captured
        return simplified


def _rewritten(block: terms.Block) -> terms.Block:
    """The term with fewer loops, or loops that store less; the same object when there are none."""
    for change in (RedundantLoops, WriteOnce, Rematerialisation, StoredParts) if stores_arrays(block) else ():
        with build() as builder:
            binders, loops = fresh_binders(builder, block), change(builder)
            results = block.interpret(loops)(Env(), binders)
            if loops.changed:
                block = to_block(binders, results, builder.scopes[0].statements, block.names)[0]
    return block


class _Simplify(Language[Atom, Operation, Block]):
    later_rules = True

    def __init__(self, fuse: bool) -> None:
        self.fuse, self.nesting = fuse, Nesting()

    def knows(self, construct: Construct) -> bool:
        return True

    def operation(self, operation: terms.Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Operation:
        op, static, row = operation.op, operation.static, operation.row
        if row.functions or row.expansion is not None:
            return Whole(op, static, args, blocks)
        return self._plain(op, static, args) if row.values and row.pure else super().operation(operation, args, blocks)

    def variable(self, index: int, type: Type) -> Atom:
        return Atom(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return Closed(lambda: current().literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return Closed(lambda: current().atom(array))

    def dim(self, dim: Dim) -> Atom:
        return Closed(lambda: current().dim(dim))

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        operation = self._plain("primitive", (primitive,), args, primitive.cost)
        if primitive.name in ("add", "subtract"):
            operation.summands = args
        return operation

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        return Choice("cond", (), test, [then, orelse], self.nesting)

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        return Loop(extent, initials, body)

    def size(self, array: Atom, axis: int) -> Operation:
        return Operation([array], lambda values: [current().size(values[0], axis)])

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        return Index(array, indices, self.nesting)

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        return Generate(extent, body, self.fuse, self.nesting)

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        return Combine(construct, extents, neutrals, element, operator)

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        return Scatter(unique, extents, destinations, element)

    def argsort(self, array: Atom) -> Operation:
        return self._plain("argsort", (), [array], math.inf)

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        return While(initials, test, body)

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        return Whole("custom", rules, args, [body, *blocks])

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        return Statement(values, lambda operands: current().emit("probe", (name,), operands))

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        if function.effects:
            return Statement(args, lambda operands: current().emit("foreign", (function,), operands))
        return Elsewhere(function, args)

    # The higher-order fragment

    def apply(self, function: Atom, args: Sequence[Atom]) -> Operation:
        return Statement([function, *args], lambda operands: current().emit("apply", (), operands))

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[Atom]) -> Operation:
        return Statement(args, lambda operands: current().emit("call", procedures, operands))

    def cell(self, number: int, fields: Sequence[Atom]) -> Operation:
        return self._plain("cell", (number,), fields, math.inf)

    def open(self, cell: Atom, variants: tuple[Opened, ...], branches: Sequence[Block]) -> Operation:
        return Choice("open", variants, cell, branches, self.nesting)

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        return Choice("case", variants, value, branches, self.nesting)

    def par(self, branches: Sequence[Block]) -> Operation:
        return Par(branches)

    def _plain(self, op: str, static: tuple[Any, ...], args: Sequence[Atom], cost: float = 1) -> Operation:
        """A pure construct without blocks."""
        return Operation(args, lambda values: current().emit(op, static, values), cost)

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        return Accumulate(initials, body)

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        return AddTo(accumulator, [value, *indices])

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        def emit(operands: list[Value]) -> Sequence[Value]:
            current().require(operands[0], failure, operands[1:])
            return []

        return Statement([test, *values], emit)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        return Block(bindings, results, names, self.nesting)
