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
_CHECKED = [
    "adze.core.combinators",
    "adze.core.primitive",
    "adze.ad.jacobians",
    "adze.ad.sparse",
    "adze.ad.verbs",
]
with install_import_hook(_CHECKED):
    from . import experimental
    from .ad import (
        SparseJacobian,
        grad,
        hessian,
        hvp,
        jacobian,
        jvp,
        linearize,
        sparse_hessian,
        sparse_jacobian,
        value_and_grad,
        vjp,
    )
    from .backends.chunked.chunked import Chunked
    from .backends.compile import compile
    from .backends.compiled import Compiled
    from .backends.opencl.devices import devices, to_device
    from .backends.program_cost import cost
    from .core import elementwise  # noqa: F401  (which documents the primitives)
    from .core.added import construct
    from .core.c_functions import CFunction, c_function
    from .core.case import case
    from .core.checkpoint import checkpoint
    from .core.combinators import (
        All,
        Window,
        all,
        any,
        arange,
        argmax,
        argmin,
        argsort,
        array,
        backpermute,
        bincount,
        broadcast,
        broadcast_to,
        concatenate,
        cond,
        convolve,
        correlate,
        count_nonzero,
        cummax,
        cummin,
        cumprod,
        cumsum,
        diag,
        diagonal,
        diff,
        dot,
        einsum,
        expand_dims,
        eye,
        filter,
        flip,
        fold1,
        fori_loop,
        full,
        full_like,
        generate,
        histogram,
        hstack,
        inner,
        interp,
        iota,
        linspace,
        logsumexp,
        map,
        matmul,
        max,
        mean,
        median,
        meshgrid,
        min,
        moveaxis,
        one_hot,
        ones,
        ones_like,
        outer,
        pad,
        par,
        permute,
        prod,
        quantile,
        ravel,
        reduce,
        repeat,
        replicate,
        reshape,
        reverse,
        roll,
        rotate,
        scan,
        scan_loop,
        scatter,
        searchsorted,
        size,
        slice,
        softmax,
        sort,
        squeeze,
        stack,
        std,
        stencil,
        sum,
        swapaxes,
        take,
        take_along_axis,
        tile,
        transpose,
        tril,
        triu,
        unique,
        update,
        var,
        vstack,
        where,
        while_loop,
        zeros,
        zeros_like,
    )
    from .core.constructs import Role
    from .core.custom import custom_jvp, custom_vjp, inspect
    from .core.data import data
    from .core.expr import Expr
    from .core.functions import fix, function
    from .core.gamma import digamma, lgamma
    from .core.language import Binding, Language, Unsupported
    from .core.operations import equal_sizes, foreign, operation
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
        population_count,
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
    from .core.progress import progress
    from .core.reify import Reify
    from .core.special import clip, gelu, log_sigmoid, nan_to_num, reciprocal, relu, softplus, square
    from .core.vmap import vmap
    from .interop import JaxFunction, TensorFunction, from_jax, from_torch, jax, linear_operator, torch
    from .interpreters.check import check
    from .interpreters.draw import Drawing, draw
    from .interpreters.evaluate import evaluate
    from .interpreters.pretty import pretty
    from .interpreters.simplify import simplify
    from .interpreters.trace import Trace, trace
    from .library import linalg, random
    from .pages import Page, explore
    from .solvers import LeastSquaresResult, least_squares, levenberg_marquardt

if TYPE_CHECKING:
    # To a type checker a parameter is an expression, as which the body uses it, or anything, as a call gives it; its
    # sizes are a remark.
    from builtins import staticmethod as variant
    from collections.abc import Callable as Function
    from typing import Annotated as Array
    from typing import Any, TypeAlias

    class _Value(Expr, Any):  # type: ignore[misc]
        """An expression inside a program, whose result is an array outside of it."""

    bool_: TypeAlias = _Value | Any
    f32: TypeAlias = _Value | Any
    f64: TypeAlias = _Value | Any
    i8: TypeAlias = _Value | Any
    i16: TypeAlias = _Value | Any
    i32: TypeAlias = _Value | Any
    i64: TypeAlias = _Value | Any
    u8: TypeAlias = _Value | Any
    u16: TypeAlias = _Value | Any
    u32: TypeAlias = _Value | Any
    u64: TypeAlias = _Value | Any
else:
    from .core.annotations import Array, Function
    from .core.declarations import variant
    from .core.types import bool_, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

del TYPE_CHECKING, install_import_hook, _CHECKED

__version__ = "0.1.0"

__all__ = [
    "All",
    "Array",
    "Binding",
    "CFunction",
    "Chunked",
    "Compiled",
    "Conversion",
    "Drawing",
    "Expansion",
    "Expr",
    "Function",
    "Instance",
    "Instructions",
    "JaxFunction",
    "Language",
    "LeastSquaresResult",
    "Libm",
    "Page",
    "Primitive",
    "Program",
    "Reify",
    "Role",
    "SparseJacobian",
    "TensorFunction",
    "Trace",
    "Unsupported",
    "Window",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "array",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "backpermute",
    "bincount",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bool_",
    "broadcast",
    "broadcast_to",
    "c_function",
    "case",
    "cbrt",
    "ceil",
    "check",
    "checkpoint",
    "clip",
    "compile",
    "concatenate",
    "cond",
    "construct",
    "convolve",
    "correlate",
    "cos",
    "cosh",
    "cost",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "custom_jvp",
    "custom_vjp",
    "data",
    "devices",
    "diag",
    "diagonal",
    "diff",
    "digamma",
    "dot",
    "draw",
    "einsum",
    "equal_sizes",
    "erf",
    "erfc",
    "evaluate",
    "exp",
    "exp2",
    "expand_dims",
    "experimental",
    "explore",
    "expm1",
    "eye",
    "f32",
    "f64",
    "filter",
    "fix",
    "flip",
    "floor",
    "floor_divide",
    "fold1",
    "foreign",
    "fori_loop",
    "from_jax",
    "from_torch",
    "full",
    "full_like",
    "function",
    "gelu",
    "generate",
    "grad",
    "hessian",
    "histogram",
    "hstack",
    "hvp",
    "hypot",
    "i8",
    "i16",
    "i32",
    "i64",
    "inner",
    "inspect",
    "interp",
    "interpret",
    "iota",
    "isfinite",
    "isinf",
    "isnan",
    "jacobian",
    "jax",
    "jvp",
    "least_squares",
    "left_shift",
    "levenberg_marquardt",
    "lgamma",
    "linalg",
    "linear_operator",
    "linearize",
    "linspace",
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
    "median",
    "meshgrid",
    "min",
    "minimum",
    "moveaxis",
    "nan_to_num",
    "one_hot",
    "ones",
    "ones_like",
    "operation",
    "outer",
    "pad",
    "par",
    "permute",
    "population_count",
    "power",
    "pretty",
    "primitive",
    "prod",
    "program",
    "progress",
    "quantile",
    "random",
    "ravel",
    "reciprocal",
    "reduce",
    "relu",
    "remainder",
    "repeat",
    "replicate",
    "reshape",
    "reverse",
    "right_shift",
    "roll",
    "rotate",
    "round",
    "scan",
    "scan_loop",
    "scatter",
    "searchsorted",
    "sigmoid",
    "sign",
    "simplify",
    "sin",
    "sinh",
    "size",
    "slice",
    "softmax",
    "softplus",
    "sort",
    "sparse_hessian",
    "sparse_jacobian",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stencil",
    "stop_gradient",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tile",
    "to_device",
    "torch",
    "trace",
    "transpose",
    "tril",
    "triu",
    "trunc",
    "u8",
    "u16",
    "u32",
    "u64",
    "unique",
    "update",
    "value_and_grad",
    "var",
    "variant",
    "vjp",
    "vmap",
    "vstack",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]


def __dir__() -> list[str]:
    """What users may use, which is what editors shall offer."""
    return [*__all__, *[name for name in globals() if name.startswith("__")]]
