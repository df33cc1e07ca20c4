"""Primitives as LLVM instructions: templates, calls of the mathematical library, conversions.

Functions of the mathematical library are our own (``elementary``) where there is one. The others are called as
vectors, scalars too: the scalar functions round differently, and a value must not depend on whether its loop was
widened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from ...core.primitive import Conversion, Instructions, Libm, Primitive
from ...core.types import Scalar, i64
from .division import DIVISIONS, scalar_division, vector_division
from .elementary import FUNCTIONS, Elementary
from .text import Body, Module, constant, register_type, suffix
from .values import concatenate, slice_of

# The vector version of a function of the C library: its symbol and its lanes, or None where there is none
VectorRoutine = Callable[[str, Scalar, int], tuple[str, int] | None]

_SPLAT = re.compile(r"splat \(i64 (-?\d+)\)")
_TOKEN = re.compile(r"\$(\w+)|%([A-Za-z_]\w*)")


class Speller:
    """Emits applications of primitives to scalars (``lanes`` 0) or to vectors."""

    def __init__(
        self, module: Module, body: Body, routine: VectorRoutine, elementary: Elementary | None, attributes: str
    ) -> None:
        self.module, self.body, self.routine, self.attributes = module, body, routine, attributes
        self.elementary = elementary

    def apply(
        self,
        primitive: Primitive,
        types: Sequence[Scalar],
        result: Scalar,
        operands: Sequence[str],
        lanes: int,
        chained: bool = False,
    ) -> str:
        """The register with the result of a primitive; ``types`` are those of the operands.

        ``chained`` where the next step of a loop waits for it.
        """
        spelling = primitive.llvm
        if primitive.name in DIVISIONS and result == i64 and (lanes or not self.body.repeats):
            if not _shifts(operands[1]):
                return self._divided(primitive, operands, lanes)
        if isinstance(spelling, Instructions):
            template = spelling.of(types[0], chained and not lanes)
            return self._instructions(template, types[0], result, operands, lanes)
        if isinstance(spelling, Libm):
            if self.elementary is not None and spelling.function in FUNCTIONS:
                return self.elementary.call(spelling.function, result, lanes, operands, self.body)
            return self._library(spelling.function, result, operands, lanes)
        if isinstance(spelling, Conversion):
            return self._convert(types[0], result, operands[0], lanes)
        raise AssertionError(f"{primitive} has no instructions: it must be expanded before code is emitted")

    def _divided(self, primitive: Primitive, operands: Sequence[str], lanes: int) -> str:
        """A quotient or remainder, which is a function of the module."""

        def one_by_one(body: Body) -> str:
            assert isinstance(primitive.llvm, Instructions)
            own = Speller(self.module, body, self.routine, None, self.attributes)
            return own._instructions(primitive.llvm.of(i64), i64, i64, ("%a", "%b"), lanes)

        if lanes:
            name = vector_division(self.module, primitive.name, lanes, self.attributes, one_by_one)
        else:
            name = scalar_division(self.module, primitive.name, self.attributes, one_by_one)
        return self.body.once((name, *operands), lambda: self._call(name, register_type(i64, lanes), operands))

    def _instructions(self, template: str, type: Scalar, result: Scalar, operands: Sequence[str], lanes: int) -> str:
        key = template, type, result, *operands, lanes
        return self.body.once(key, lambda: self._filled(template, type, result, operands, lanes))

    def _filled(self, template: str, type: Scalar, result: Scalar, operands: Sequence[str], lanes: int) -> str:
        stem = self.body.name("o") + "."
        words = {
            "t": register_type(type, lanes),
            "u": register_type(result, lanes),
            "m": f"<{lanes} x i1>" if lanes else "i1",
            "v": suffix(type, lanes),
            "b": f"<{lanes} x i{type.bits}>" if lanes else f"i{type.bits}",
            "one": _literal(type, 1, lanes),
            "last": _literal(type, type.bits - 1, lanes),
            **{str(number): operand for number, operand in enumerate(operands)},
        }
        for line in _pieces(template):
            self.body.line(
                "".join(
                    words[word] if kind == "$" else f"%{stem}{word}" if kind == "%" else word for kind, word in line
                )
            )
        return f"%{stem}r"

    # The mathematical library

    def _library(self, function: str, scalar: Scalar, operands: Sequence[str], lanes: int) -> str:
        name = function + ("f" if scalar.bits == 32 else "")
        found = self.routine(name, scalar, len(operands))
        if found is None:
            called = self._by_lane(name, scalar, len(operands), lanes) if lanes else name
            return self._call(called, register_type(scalar, lanes), operands)
        symbol, width = found
        element = register_type(scalar)
        if not lanes:
            # also a scalar, in one lane: the others hold what no routine takes long for
            filled = f"splat ({element} {constant(0.5, scalar)})"
            piece = [
                self.body.value(f"insertelement <{width} x {element}> {filled}, {element} {operand}, i64 0")
                for operand in operands
            ]
            vector = self._call(symbol, f"<{width} x {element}>", piece)
            return self.body.value(f"extractelement <{width} x {element}> {vector}, i64 0")
        pieces = []
        for start in range(0, lanes, width):
            # a short vector is repeated to the width of the routine, so that one routine computes every value
            chosen = [(start + lane) % lanes for lane in range(width)]
            piece = list(operands)
            if lanes != width:
                piece = [slice_of(self.body, element, operand, lanes, chosen) for operand in operands]
            pieces.append(self._call(symbol, f"<{width} x {element}>", piece))
        whole = concatenate(self.body, element, pieces, width)
        return whole if lanes >= width else slice_of(self.body, element, whole, width, range(lanes))

    def _call(self, name: str, type: str, operands: Sequence[str]) -> str:
        if not self.module.defines(name):
            arguments = ", ".join([type] * len(operands))
            self.module.declare(name, f"declare {type} @{name}({arguments}) nounwind willreturn memory(none)")
        return self.body.value(f"call {type} @{name}(" + ", ".join(f"{type} {each}" for each in operands) + ")")

    def _by_lane(self, name: str, scalar: Scalar, arity: int, lanes: int) -> str:
        """A function of the module that calls a scalar function once a lane."""
        own = f"{name}.by.{lanes}"
        if self.module.defines(own):
            return own
        vector, element = register_type(scalar, lanes), register_type(scalar)
        loops = Speller(self.module, Body(), self.routine, None, self.attributes)
        body = loops.body
        memory = [body.slot(vector) for _ in range(arity + 1)]
        for number in range(arity):
            body.line(f"store {vector} %x{number}, ptr {memory[number]}")
        with body.loop("0", str(lanes), 1) as lane:
            places = [body.value(f"getelementptr {element}, ptr {each}, i64 {lane}") for each in memory]
            scalars = [body.value(f"load {element}, ptr {place}") for place in places[:arity]]
            result = loops._call(name, element, scalars)
            body.line(f"store {element} {result}, ptr {places[arity]}")
        body.line(f"ret {vector} {body.value(f'load {vector}, ptr {memory[arity]}')}")
        arguments = ", ".join(f"{vector} %x{number}" for number in range(arity))
        head = f"define internal {vector} @{own}({arguments}) noinline memory(none) {self.attributes}"
        self.module.define(own, f"{head} {{\n{body}\n}}")
        return own

    # Conversions, with NumPy's meaning of astype

    def _convert(self, source: Scalar, target: Scalar, operand: str, lanes: int) -> str:
        if source == target:
            return operand
        before, after = register_type(source, lanes), register_type(target, lanes)
        if target.kind == "bool":
            test = "fcmp une" if source.kind == "float" else "icmp ne"
            return self.body.value(f"{test} {before} {operand}, zeroinitializer")
        if source.kind == "float" and target.kind == "int":
            return self._truncate(source, target, operand, lanes)
        if before == after:
            return operand
        narrower, signed = target.bits < source.bits, source.kind == "int" and source.signed
        if source.kind == "float":
            operation = "fptrunc" if narrower else "fpext"
        elif target.kind == "float":
            operation = "sitofp" if signed else "uitofp"
        else:
            operation = "trunc" if narrower else "sext" if signed else "zext"
        return self.body.value(f"{operation} {before} {operand} to {after}")

    def _truncate(self, source: Scalar, target: Scalar, operand: str, lanes: int) -> str:
        """Float to integer, towards zero; what is out of range gives the nearest integer, what is no number 0.

        LLVM has intrinsics for that, which look at the elements of vectors one by one.
        """
        before, after = register_type(source, lanes), register_type(target, lanes)
        mask = f"<{lanes} x i1>" if lanes else "i1"
        result = self.body.value(f"fpto{'s' if target.signed else 'u'}i {before} {operand} to {after}")
        cases = [("ule", target.least, target.least), ("oge", target.most + 1, target.most), ("uno", 0, 0)]
        for test, limit, instead in cases[: 2 + target.signed]:
            outside = self.body.value(f"fcmp {test} {before} {operand}, {_literal(source, float(limit), lanes)}")
            other = _literal(target, instead, lanes)
            result = self.body.value(f"select {mask} {outside}, {after} {other}, {after} {result}")
        return result


def _shifts(divisor: str) -> bool:
    """Whether a divisor is a power of two in all lanes, by which a vector is divided in a shift."""
    found = _SPLAT.fullmatch(divisor)
    return found is not None and int(found[1]).bit_count() == 1 and int(found[1]) > 0


def _literal(scalar: Scalar, value: float | int, lanes: int) -> str:
    text = constant(value, scalar)
    return f"splat ({register_type(scalar)} {text})" if lanes else text


@lru_cache(maxsize=1024)
def _pieces(template: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """A template as lines of (sign, word): "$" for what is put in, "%" for registers, "" for text as it stands."""
    lines = []
    for line in template.strip().split("\n"):
        pieces: list[tuple[str, str]] = []
        position = 0
        for match in _TOKEN.finditer(line):
            pieces.append(("", line[position : match.start()]))
            pieces.append(("$", match[1]) if match[1] else ("%", match[2]))
            position = match.end()
        pieces.append(("", line[position:]))
        lines.append(tuple(pieces))
    return tuple(lines)
