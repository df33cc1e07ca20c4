"""Primitives as OpenCL C: templates, conversions, and the functions that the longer ones become.

A primitive's spelling (the column ``opencl``) stands in place where it is an expression that mentions each operand
once. What is longer, or mentions one again, is a *helper*: a function with the primitive's name and its operands' type.

    x + y        $0 + $1                               x // y       long floor_divide_long(long a, long b) {
    fmod(x, y)   fmod($0, $1)                                           if (b == 0) return 0; ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...core.language import Unsupported
from ...core.primitive import Conversion, Expansion, Primitive
from ...core.types import SCALARS, Scalar, bool_
from .names import identifier

# The types of values, and of elements in memory
_C = {"float": {32: "float", 64: "double"}, "int": {8: "char", 16: "short", 32: "int", 64: "long"}, "bool": {8: "bool"}}
REGISTER = {row: "u" * (not row.signed) + _C[row.kind][row.bits] for row in SCALARS.values()}
MEMORY = {**REGISTER, bool_: "uchar"}

# How tightly a text binds
ATOM, UNARY, TERNARY, ANY = 15, 14, 3, 0
# What an operator's text binds like, and what its operands must at least; tighter than C demands where people err
_OPERATORS = {
    **dict.fromkeys(("*", "/", "%"), (13, 13, 14)),
    **dict.fromkeys(("+", "-"), (12, 12, 13)),
    **dict.fromkeys(("<<", ">>"), (11, UNARY, UNARY)),
    **dict.fromkeys(("<", "<=", ">", ">="), (10, 12, 12)),
    **dict.fromkeys(("==", "!="), (9, 12, 12)),
    "&": (8, UNARY, UNARY),
    "^": (7, UNARY, UNARY),
    "|": (6, UNARY, UNARY),
    "&&": (5, 5, 6),
    "||": (4, 4, 6),
    "?": (TERNARY, UNARY, UNARY),
}
_PARAMETERS = "abcdefgh"
_OPERAND = re.compile(r"\$(\d)")


class C(NamedTuple):
    """A text, how tightly it binds, and for a whole number the text where its type matters to nobody."""

    text: str
    binds: int = ATOM
    bare: str = ""

    def within(self, least: int) -> str:
        """The text, in parentheses if it binds less than that."""
        return self.text if self.binds >= least else f"({self.text})"

    def untyped(self) -> C:
        """The same number without its type."""
        return C(self.bare, self.binds) if self.bare else self


def literal(value: int | float | bool, scalar: Scalar) -> C:
    """A constant, exactly."""
    if scalar.kind == "bool":
        return C("true" if value else "false")
    if scalar.kind == "int":
        return _whole(int(value), scalar)
    with np.errstate(over="ignore"):
        number = scalar.dtype.type(value)
    if np.isfinite(number):
        text = str(number) + ("f" if scalar.bits == 32 else "")
        return C(text, UNARY if text.startswith("-") else ATOM)
    cast = "" if scalar.bits == 32 else "(double)"  # the macros are of single precision
    name = "NAN" if np.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
    return C(cast + name, ATOM if cast + name == name.lstrip("-") else UNARY)


def _whole(value: int, scalar: Scalar) -> C:
    if scalar.signed and scalar.bits >= 32 and value == scalar.least:
        return C("INT_MIN" if scalar.bits == 32 else "LONG_MIN")
    binds = UNARY if value < 0 else ATOM
    if scalar.bits < 32:
        return C(f"({REGISTER[scalar]}){value}", UNARY, str(value))
    text = str(value) + "U" * (not scalar.signed) + "L" * (scalar.bits == 64)
    return C(text, binds, str(value) if abs(value) < 2**31 else text)


def binary(operator: str, left: C, right: C) -> C:
    """Two operands with an operator between them."""
    binds, low, high = _OPERATORS[operator]
    if not (left.bare and right.bare):  # one of them makes the operation one of its type
        left, right = left.untyped(), right.untyped()
    return C(f"{left.within(low)} {operator} {right.within(high)}", binds)


def cast(type: str, operand: C) -> C:
    return C(f"({type}){operand.within(UNARY)}", UNARY)


def narrowed(result: C, scalar: Scalar) -> C:
    """What C has computed as an int, which it makes of all that is narrower, in its own type again."""
    return cast(REGISTER[scalar], result) if scalar.kind == "int" and scalar.bits < 32 else result


def call(function: str, *operands: C) -> C:
    """A call of one of the helpers, whose parameters have types of their own."""
    return C(f"{function}({', '.join(operand.untyped().text for operand in operands)})")


class Speller:
    """Spells applications of primitives, and keeps the helper functions that they need: by name, in their order."""

    def __init__(self) -> None:
        self.helpers: dict[str, str] = {}

    def spell(self, primitive: Primitive, types: Sequence[Scalar], operands: Sequence[C]) -> C:
        """A primitive applied to operands of these types."""
        if isinstance(primitive.llvm, Conversion):
            return self._convert(types[0], primitive.llvm.target, operands[0])
        assert not isinstance(primitive.llvm, Expansion), f"{primitive} must be expanded before code is emitted"
        template = primitive.opencl.get(types[0].spelling) or primitive.opencl.get(types[0].kind)
        if template is None:
            raise Unsupported(
                f"the primitive {primitive} has no spelling in OpenCL C for {types[0]} operands: "
                f'add one to its row, as in az.primitive("{primitive}", ..., opencl="{_example(primitive)}")'
            )
        unsigned = "ulong" if types[0].bits == 64 else "uint"
        template = template.replace("$last", str(types[0].bits - 1)).replace("u$t", unsigned)
        template = template.replace("$t", REGISTER[types[0]])
        scalar = primitive.result_type(types)
        if _stands_in_place(template):
            return narrowed(_filled(template, operands), scalar)
        result = REGISTER[scalar]
        distinct = types if primitive.mixed else types[:1]
        name = "_".join([identifier(primitive.name), *[REGISTER[type] for type in distinct]])
        parameters = ", ".join(f"{REGISTER[type]} {letter}" for type, letter in zip(types, _PARAMETERS))
        self.define(name, f"{result} {name}({parameters})", _body(template))
        return call(name, *operands)

    def define(self, name: str, head: str, body: str) -> None:
        """A helper function, unless it is there already."""
        lines = "\n".join(line if line.startswith("#") else "  " + line for line in body.split("\n"))
        self.helpers.setdefault(name, f"{head} {{\n{lines}\n}}")

    def _convert(self, source: Scalar, target: Scalar, operand: C) -> C:
        """With NumPy's meaning of ``astype``."""
        if source == target:
            return operand
        if target.kind == "bool":
            return binary("!=", operand, C("0"))
        if source.kind == "float" and target.kind == "int":
            return self._truncated(source, target, operand)
        return cast(REGISTER[target], operand)

    def _truncated(self, source: Scalar, target: Scalar, operand: C) -> C:
        """Float to integer, towards zero; what is out of range gives the nearest integer, what is no number 0."""
        before, after = REGISTER[source], REGISTER[target]
        name = f"{after}_of_{before}"
        least, most = (literal(limit, target).text for limit in (target.least, target.most))
        low, high = (literal(float(limit), source).text for limit in (target.least, target.most + 1))
        body = f"if (a <= {low}) return {least};\nreturn a >= {high} ? {most} : a == a ? ({after})a : 0;"
        self.define(name, f"{after} {name}({before} a)", body)
        return call(name, operand)


def _example(primitive: Primitive) -> str:
    return f"{primitive}({', '.join(f'${number}' for number in range(primitive.arity))})"


def _stands_in_place(template: str) -> bool:
    mentioned = _OPERAND.findall(template)
    return len(mentioned) == len(set(mentioned)) and not re.search(r"\breturn\b", template)


def _body(template: str) -> str:
    """The statements of a function for a template."""
    text = _OPERAND.sub(lambda match: _PARAMETERS[int(match[1])], template)
    return text if re.search(r"\breturn\b", text) else f"return {text};"


def _filled(template: str, operands: Sequence[C]) -> C:
    """An expression with its operands put in; in parentheses where they stand neither alone nor beside an operator."""
    words = template.split(" ")
    if len(words) == 3 and words[0] == "$0" and words[2] == "$1" and words[1] in _OPERATORS:
        return binary(words[1], *operands)

    def put(match: re.Match[str]) -> str:
        before, after = template[: match.start()], template[match.end() :]
        alone = before.endswith(("(", ", ")) and after.startswith((")", ","))
        return operands[int(match[1])].within(ANY if alone else UNARY if before.endswith((")", " ")) else ATOM)

    return C(_OPERAND.sub(put, template), _binding(template))


@lru_cache(maxsize=1024)
def _binding(template: str) -> int:
    """How tightly a template binds: like its loosest operator outside of parentheses."""
    outside, inner = template, ""
    while outside != inner:
        outside, inner = re.sub(r"\([^()]*\)", "@", outside), outside
    if re.fullmatch(r"\$\d|\w+@?|@", outside):
        return ATOM
    if re.fullmatch(r"[-~!@]+(\$\d|\w*@?)", outside):
        return UNARY
    return min((_OPERATORS[word][0] for word in outside.split() if word in _OPERATORS), default=ANY)
