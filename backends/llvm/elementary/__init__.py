"""Elementary functions of our own, where a machine has fused multiply-add: exact to about one unit in the last place.

A call of a library's vector routine spills every vector register, is tied to the width of the routine, and keeps
what the caller and the function share apart. These are functions of the module that uses them, written once for
scalars and for vectors of any width (``writer.py``) and inlined into the loops that call them. After the first few,
calls in a long module are not inlined: there they would only make it longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....core.types import Scalar
from ..text import Body, Module, register_type, suffix
from .exponential import exp, expm1, tanh
from .logarithm import log, log1p
from .trigonometric import cos, sin
from .writer import Real, Writer

FUNCTIONS: Mapping[str, Callable[[Writer, Real], Real]] = {
    "cos": cos,
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "sin": sin,
    "tanh": tanh,
}

_MOST_INLINED = 32  # calls in one module


class Elementary:
    """The elementary functions of one module, defined on first use."""

    def __init__(self, module: Module, scales: bool, attributes: str) -> None:
        self.module, self.scales, self.attributes = module, scales, attributes
        self._calls = 0

    def call(self, function: str, scalar: Scalar, lanes: int, operands: Sequence[str], body: Body) -> str:
        """Call one of ``FUNCTIONS``; gives the register of the result."""
        self._calls += 1
        inlined = self._calls <= _MOST_INLINED
        name, type = f"{function}.{suffix(scalar, lanes)}" + ("" if inlined else ".apart"), register_type(scalar, lanes)
        if not self.module.defines(name):
            writer = Writer(self.module, scalar, lanes, self.scales)
            result = FUNCTIONS[function](writer, Real(writer, "%x"))
            writer.body.line(f"ret {type} {result.register}")
            how = "alwaysinline" if inlined else "noinline"
            head = f"define internal {type} @{name}({type} %x) {how} memory(none) {self.attributes}"
            self.module.define(name, f"{head} {{\n{writer.body}\n}}")
        return body.value(f"call {type} @{name}({type} {operands[0]})")
