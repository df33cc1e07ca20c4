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

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...core import terms
from ...core.dims import Dim
from ...core.language import Binding, Language
from ...core.primitive import Primitive
from ...core.terms import Block, Failure, Foreign
from ...core.types import ArrayType, FunctionType, Named, Scalar, Type

Lines = list[str]


def raw(block: Block) -> str:
    """The text of a term (see the module)."""
    lines: Lines = block.interpret(_Raw())
    return "\n".join(lines)


class _Raw(Language[str, Lines, Lines]):
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

    def line(
        self, op: str, args: Sequence[str] = (), blocks: Sequence[Lines] = (), static: Sequence[Any] = ()
    ) -> Lines:
        start = f"{op}[{', '.join(map(str, static))}]" if static else op
        return [f"{start} {', '.join(args)}".rstrip(), *_indented(line for block in blocks for line in block)]

    def primitive(self, primitive: Primitive, args: Sequence[str]) -> Lines:
        return self.line("primitive", args, static=[primitive.name])

    def cond(self, test: str, then: Lines, orelse: Lines) -> Lines:
        return self.line("cond", [test], [then, orelse])

    def loop(self, dim: Dim, extent: str, initials: Sequence[str], body: Lines) -> Lines:
        return self.line("loop", [extent, *initials], [body], [dim])

    def size(self, array: str, axis: int) -> Lines:
        return self.line("size", [array], static=[axis])

    def index(self, array: str, indices: Sequence[str]) -> Lines:
        return self.line("index", [array, *indices])

    def generate(self, dim: Dim, extent: str, body: Lines) -> Lines:
        return self.line("generate", [extent], [body], [dim])

    def reduce(self, extent: str, neutrals: Sequence[str], element: Lines, operator: Lines) -> Lines:
        return self.line("reduce", [extent, *neutrals], [element, operator])

    def scan(self, dim: Dim, extent: str, neutrals: Sequence[str], element: Lines, operator: Lines) -> Lines:
        return self.line("scan", [extent, *neutrals], [element, operator], [dim])

    def histogram(
        self, dim: Dim, bins: str, extent: str, neutrals: Sequence[str], element: Lines, operator: Lines
    ) -> Lines:
        return self.line("histogram", [bins, extent, *neutrals], [element, operator], [dim])

    def scatter(self, unique: bool, extents: Sequence[str], destinations: Sequence[str], element: Lines) -> Lines:
        static = ["unique", len(extents)] if unique else [len(extents)]
        return self.line("scatter", [*extents, *destinations], [element], static)

    def argsort(self, array: str) -> Lines:
        return self.line("argsort", [array])

    def while_loop(self, initials: Sequence[str], test: Lines, body: Lines) -> Lines:
        return self.line("while", initials, [test, body])

    def custom(self, rules: tuple[str, ...], args: Sequence[str], body: Lines, blocks: Sequence[Lines]) -> Lines:
        return self.line("custom", args, [body, *blocks], rules)

    def probe(self, name: str, values: Sequence[str]) -> Lines:
        return self.line("probe", values, static=[repr(name)])

    def foreign(self, function: Foreign, args: Sequence[str]) -> Lines:
        return self.line("foreign", args, static=[function.name])

    def function(self, type: FunctionType, body: Lines) -> Lines:
        return self.line("function", blocks=[body])

    def fix(self, type: FunctionType, body: Lines) -> Lines:
        return self.line("fix", blocks=[body])

    def apply(self, function: str, args: Sequence[str]) -> Lines:
        return self.line("apply", [function, *args])

    def pack(self, items: Sequence[str]) -> Lines:
        return self.line("pack", items)

    def project(self, value: str, position: int) -> Lines:
        return self.line("project", [value], static=[position])

    def construct(self, type: Named, variant: str, fields: Sequence[str]) -> Lines:
        return self.line("construct", fields, static=[variant])

    def case(self, value: str, variants: tuple[str, ...], branches: Sequence[Lines]) -> Lines:
        return self.line("case", [value], branches, variants)

    def par(self, branches: Sequence[Lines]) -> Lines:
        return self.line("par", blocks=branches)

    def accumulate(self, initials: Sequence[str], body: Lines) -> Lines:
        return self.line("accumulate", initials, [body])

    def add_to(self, accumulator: str, value: str, indices: Sequence[str]) -> Lines:
        return self.line("add_to", [accumulator, value, *indices])

    def require(self, test: str, failure: Failure, values: Sequence[str]) -> Lines:
        return self.line("require", [test, *values], static=[failure.kind])

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
