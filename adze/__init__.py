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
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        bitwise_and,
        bitwise_not,
        bitwise_or,
        bitwise_xor,
        cbrt,
        ceil,
        cos,
        cosh,
        erf,
        erfc,
        exp,
        exp2,
        expm1,
        floor,
        floor_divide,
        hypot,
        isfinite,
        isinf,
        isnan,
        left_shift,
        lgamma,
        log,
        log1p,
        log2,
        log10,
        logaddexp,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        power,
        remainder,
        right_shift,
        sigmoid,
        sign,
        sin,
        sinh,
        sqrt,
        stop_gradient,
        tan,
        tanh,
        trunc,
    )
    from .core.primitives import round_ as round
    from .core.program import Instance, Program, interpret, program
    from .core.reify import Reify
    from .core.special import clip, digamma, log_sigmoid, reciprocal, softplus, square
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
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bool_",
    "cbrt",
    "ceil",
    "check",
    "clip",
    "compile",
    "cond",
    "cos",
    "cosh",
    "digamma",
    "dot",
    "erf",
    "erfc",
    "evaluate",
    "exp",
    "exp2",
    "expm1",
    "f32",
    "f64",
    "floor",
    "floor_divide",
    "fori_loop",
    "full",
    "generate",
    "grad",
    "hypot",
    "i32",
    "i64",
    "interpret",
    "iota",
    "isfinite",
    "isinf",
    "isnan",
    "jvp",
    "left_shift",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_sigmoid",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
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
    "reciprocal",
    "reduce",
    "remainder",
    "right_shift",
    "round",
    "sigmoid",
    "sign",
    "simplify",
    "sin",
    "sinh",
    "size",
    "softplus",
    "sqrt",
    "square",
    "stop_gradient",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "value_and_grad",
    "vjp",
    "where",
    "zeros",
]
