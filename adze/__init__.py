"""Adze: a typed, differentiable array language embedded in Python.

A program is written once, with the combinators below, and then interpreted: evaluated, printed, differentiated,
compiled. The names here are the public ones; everything else may change.

>>> import adze as az
>>> @az.program
... def cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
...     def nearest(p):
...         return az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids))
...     return az.sum(az.map(nearest, points))
>>> float(az.evaluate(cost)([[0.0, 1.0], [4.0, 4.0]], [[0.0, 0.0], [4.0, 5.0]]))
2.0
"""

from typing import TYPE_CHECKING

from typeguard import install_import_hook

# Where programs are built, arguments are checked against the annotations: a wrong one is refused at the user's call.
with install_import_hook(["adze.core.combinators", "adze.core.primitive", "adze.ad.verbs"]):
    from .ad import grad, jvp, value_and_grad, vjp
    from .backends.compile import Compiled, compile
    from .core.combinators import (
        all,
        any,
        cond,
        dot,
        fori_loop,
        full,
        generate,
        iota,
        logsumexp,
        map,
        matmul,
        max,
        mean,
        min,
        ones,
        prod,
        reduce,
        size,
        sum,
        where,
        zeros,
    )
    from .core.expr import Expr
    from .core.language import Binding, Language
    from .core.primitive import Conversion, Expansion, Instructions, Libm, Primitive, primitive
    from .core.primitives import abs_ as abs
    from .core.primitives import (
        cos,
        exp,
        expm1,
        floor_divide,
        lgamma,
        log,
        log1p,
        maximum,
        minimum,
        power,
        remainder,
        sign,
        sin,
        sqrt,
        stop_gradient,
        tanh,
    )
    from .core.program import Instance, Program, interpret, program
    from .core.reify import Reify
    from .core.special import digamma
    from .interpreters.check import check
    from .interpreters.evaluate import evaluate
    from .interpreters.pretty import pretty
    from .interpreters.simplify import simplify

if TYPE_CHECKING:
    # To a type checker a parameter is the expression that it is inside the program, with its sizes as a remark.
    from typing import Annotated as Array

    from .core.expr import Expr as bool_
    from .core.expr import Expr as f32
    from .core.expr import Expr as f64
    from .core.expr import Expr as i32
    from .core.expr import Expr as i64
else:
    from .core.annotations import Array
    from .core.types import bool_, f32, f64, i32, i64

__all__ = [
    "Array",
    "Binding",
    "Compiled",
    "Conversion",
    "Expansion",
    "Expr",
    "Instance",
    "Instructions",
    "Language",
    "Libm",
    "Primitive",
    "Program",
    "Reify",
    "abs",
    "all",
    "any",
    "bool_",
    "check",
    "compile",
    "cond",
    "cos",
    "digamma",
    "dot",
    "evaluate",
    "exp",
    "expm1",
    "f32",
    "f64",
    "floor_divide",
    "fori_loop",
    "full",
    "generate",
    "grad",
    "i32",
    "i64",
    "interpret",
    "iota",
    "jvp",
    "lgamma",
    "log",
    "log1p",
    "logsumexp",
    "map",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "ones",
    "power",
    "pretty",
    "primitive",
    "prod",
    "program",
    "reduce",
    "remainder",
    "sign",
    "simplify",
    "sin",
    "size",
    "sqrt",
    "stop_gradient",
    "sum",
    "tanh",
    "value_and_grad",
    "vjp",
    "where",
    "zeros",
]
