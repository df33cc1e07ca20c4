"""Which operands of a primitive its derivative depends on."""

from __future__ import annotations

from functools import cache

from .builder import build
from .expr import Expr
from .primitive import Primitive
from .types import f64


@cache
def active_operands(primitive: Primitive) -> tuple[bool, ...]:
    """Whether each operand's tangent has a share in the result's (``stop_gradient`` and ``sign`` have none)."""
    if primitive.derivative is None:
        return (False,) * primitive.arity
    with build() as builder:
        values = [Expr(builder.variable(f64), builder) for _ in range(1 + primitive.arity)]
        return tuple([rule is not None for rule in primitive.derivative(*values)])
