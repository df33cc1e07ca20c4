"""The derivatives of primitives, ready to be applied to numbers and to whole batches of them.

A primitive's row has one linear function an operand, written in the language (``core/primitive.py``). It becomes a
term once for each choice of types and of operands that move:

    multiply, both operands:   (a, b, y, y_bar) -> (y_bar * b, y_bar * a)

A term that holds nothing but primitives is run as a list of NumPy functions, which is what single numbers need; any
other one by the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from typeguard import typeguard_ignore

from ...core.builder import build
from ...core.environment import Env
from ...core.expr import Expr
from ...core.graph import Value
from ...core.placement import to_block
from ...core.primitive import Primitive
from ...core.terms import Block, Literal, Variable
from ...core.types import Scalar, is_float
from ...interpreters.evaluate.batches import Code
from ...interpreters.simplify import simplify

Types = tuple[Scalar, ...]


class Partials:
    """What some operands of a primitive get from the cotangent of its result."""

    __slots__ = ("_constants", "_program", "_results", "block", "positions", "used")

    def __init__(self, primitive: Primitive, types: Types, positions: Sequence[int]) -> None:
        result = primitive.result_type(types)
        self.positions: tuple[int, ...] = ()  # of those operands that get something
        with build() as b:

            def run(*binders: Value) -> list[Value]:
                if primitive.derivative is None or not is_float(result):
                    return []
                y, cotangent = Expr(binders[-2], b), Expr(binders[-1], b)
                given = primitive.derivative(y, *[Expr(binder, b) for binder in binders[:-2]])
                rules = [(position, given[position]) for position in positions if is_float(types[position])]
                self.positions = tuple([position for position, rule in rules if rule is not None])
                return [rule(cotangent).value for _, rule in rules if rule is not None]

            body = b.body([*types, result, result], run)
            block, _ = to_block(body.binders, body.results, body.statements)
        self.block = simplify(block)
        self.used = _used(self.block)  # the binders that the rules read: operands, then the result
        self._program: list[tuple[Any, tuple[int, ...], Any]] | None = []
        self._constants: list[Any] = []
        self._results: list[int] = []
        self._compile()

    def _compile(self) -> None:
        """The block as NumPy functions on places of a list: constants first, then binders, then what is computed."""
        block = self.block
        if any(binding.op != "primitive" for binding in block.bindings):
            self._program = None
            return
        atoms = [atom for atoms in (*[x.args for x in block.bindings], block.results) for atom in atoms]
        literals = list(dict.fromkeys([atom for atom in atoms if isinstance(atom, Literal)]))
        self._constants = [literal.type.dtype.type(literal.value) for literal in literals]

        def place(atom: Any, bound: int) -> int:
            return literals.index(atom) if isinstance(atom, Literal) else len(literals) + bound - 1 - atom.index

        bound = len(block.binders)
        program = []
        for binding in block.bindings:
            (type,) = binding.types
            assert isinstance(type, Scalar)
            program.append((binding.static[0].numpy, tuple([place(x, bound) for x in binding.args]), type.dtype))
            bound += 1
        self._program = program
        self._results = [place(result, bound) for result in block.results]

    @typeguard_ignore  # once for every number of a trace
    def run(self, values: Sequence[Any], code: Callable[[Block], Code]) -> list[Any]:
        """The contributions, from the operands, the result and its cotangent; ``code`` gives blocks their meaning."""
        program = self._program
        if program is None:
            return code(self.block).run(Env(), values)
        found = [*self._constants, *values]
        for function, places, dtype in program:
            value = function(*[found[place] for place in places])
            if getattr(value, "dtype", None) != dtype:
                value = np.asarray(value).astype(dtype)[()]
            found.append(value)
        return [found[place] for place in self._results]


@lru_cache(maxsize=1024)
def partials(primitive: Primitive, types: Types, positions: tuple[int, ...]) -> Partials:
    """The rules of a primitive for the operands at these positions, of which some may have none."""
    return Partials(primitive, types, positions)


def _used(block: Block) -> frozenset[int]:
    """The binders that a block reads, at all depths."""
    found: set[int] = set()

    def walk(inner: Block, outside: int) -> None:
        bound = outside + len(inner.binders)
        for binding in inner.bindings:
            found.update([bound - 1 - atom.index for atom in binding.args if isinstance(atom, Variable)])
            for deeper in binding.blocks:
                walk(deeper, bound)
            bound += len(binding.types)
        found.update([bound - 1 - atom.index for atom in inner.results if isinstance(atom, Variable)])

    walk(block, 0)
    return frozenset([level for level in found if level < len(block.binders)])
