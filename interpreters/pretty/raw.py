"""Terms as they are: one line an operation, De Bruijn indices, types, blocks indented.

    (x: f64[n]) ->
      reduce n, 0.0: f64
        (i64) ->
          index %1, %0: f64
          primitive[multiply] %0, %0: f64
          => %0
        (f64, f64) ->
          primitive[add] %1, %0: f64
          => %0
      => %0

``%0`` is the value bound last; a line binds as many values as it has types behind the colon, a statement binds none.
Static parts stand in brackets, ``=>`` gives the results of a block. Numbers that are not f64, i64 or bool carry their
type. This printer is a language like any other: an atom means its text, an operation or block its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core import terms
from ...core.dims import Dim
from ...core.language import Binding, Fold
from ...core.terms import Block, Operation
from ...core.types import ArrayType, Scalar, Type

Lines = list[str]

# What is shown of the static part, where that is not all of it
_SHOWN: dict[str, Callable[[tuple[Any, ...]], Sequence[Any]]] = {
    "scatter": lambda static: ["unique", static[1]] if static[0] else [static[1]],
    "probe": lambda static: [repr(static[0])],
    "foreign": lambda static: [static[0].name],
    "function": lambda static: [],
    "fix": lambda static: [],
    "construct": lambda static: [static[1]],
    "require": lambda static: [static[0].kind],
}


def raw(block: Block) -> str:
    """The text of a term (see the module)."""
    lines: Lines = block.interpret(_Raw())
    return "\n".join(lines)


class _Raw(Fold[str, Lines, Lines]):
    """One line an operation; the lines of its blocks are indented below it."""

    # Atoms

    def variable(self, index: int, type: Type) -> str:
        return f"%{index}"

    def literal(self, value: float | int | bool, type: Scalar) -> str:
        text = str(np.float32(value)) if type.name == "f32" else str(value)
        return text if type.name in ("f64", "i64", "bool") else f"{text}:{type}"

    def constant(self, array: terms.Constant, type: ArrayType) -> str:
        return f"{type}#{array.digest.hex()[:8]}"

    def dim(self, dim: Dim) -> str:
        return str(dim)

    # Operations

    def operation(self, operation: Operation, args: Sequence[str], blocks: Sequence[Lines]) -> Lines:
        static = [part for part in _SHOWN.get(operation.op, list)(operation.static) if part is not operation.row]
        start = f"{operation.op}[{', '.join(map(str, static))}]" if static else operation.op
        return [f"{start} {', '.join(args)}".rstrip(), *_indented(line for block in blocks for line in block)]

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[str], names: Sequence[str]
    ) -> Lines:
        parameters = [f"{name}: {type}" if name else str(type) for name, type in zip(names, binders, strict=True)]
        lines = []
        for binding in bindings:
            first, *rest = binding.operation
            lines += [f"{first}: {', '.join(map(str, binding.types))}" if binding.types else first, *rest]
        return [f"({', '.join(parameters)}) ->", *_indented([*lines, f"=> {', '.join(results)}".rstrip()])]


def _indented(lines: Lines | Iterator[str]) -> Lines:
    return ["  " + line for line in lines]
