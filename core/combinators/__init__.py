"""The combinators: Python functions from which programs are written.

Each is defined once, here, from the core constructs (``language.py``). Functions given to a combinator are ordinary
Python functions; they are entered once, with fresh variables. Axis defaults are NumPy's.

    arrays.py       from indices: generate, map, iota, full
    shapes.py       the same elements in other places: transpose, reshape, concatenate, roll
    reductions.py   reduce, sum and their relatives        scans.py     scan, cumsum
    scattering.py   histogram, scatter, update, filter     sorting.py   argsort, sort
    linear.py       matmul, einsum, diagonals              control.py   cond, where, loops
    accelerate.py   replicate, slice, backpermute, permute, stencil
"""

import numpy as _np

from ..methods import METHODS as _METHODS
from ..methods import ArrayMethods as _ArrayMethods
from ..numpy_calls import NUMPY as _NUMPY
from .accelerate import All, Window, backpermute, fold1, permute, replicate, slice, stencil
from .arrays import full, full_like, generate, iota, map, ones, ones_like, size, zeros, zeros_like
from .control import cond, fori_loop, scan_loop, where, while_loop
from .linear import diag, diagonal, dot, einsum, eye, matmul, outer, tril, triu
from .reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    logsumexp,
    max,
    mean,
    min,
    prod,
    reduce,
    std,
    sum,
    var,
)
from .scans import cummax, cummin, cumprod, cumsum, scan
from .scattering import bincount, filter, histogram, scatter, update
from .shapes import (
    array,
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    moveaxis,
    pad,
    ravel,
    repeat,
    reshape,
    reverse,
    roll,
    rotate,
    squeeze,
    stack,
    swapaxes,
    take,
    take_along_axis,
    tile,
    transpose,
)
from .sorting import argsort, searchsorted, sort

broadcast = broadcast_to

# Those that have the arguments of NumPy's functions of the same name
_NUMPY |= {
    getattr(_np, function.__name__): function
    for function in (
        all, any, argmax, argmin, argsort, bincount, broadcast_to, concatenate, count_nonzero, cumprod, cumsum, diag,
        diagonal, dot, einsum, expand_dims, flip, full_like, matmul, max, mean, min, moveaxis, ones_like, outer, pad,
        prod, ravel, repeat, reshape, roll, searchsorted, sort, squeeze, stack, std, sum, swapaxes, take,
        take_along_axis, tile, transpose, tril, triu, var, where, zeros_like,
    )
}  # fmt: skip
_NUMPY[_np.trace] = _ArrayMethods.trace

# Those that are methods of expressions, or an operator
_METHODS |= {
    function.__name__: function
    for function in (
        all, any, argmax, argmin, argsort, cumprod, cumsum, diagonal, dot, matmul, max, mean, min, prod, ravel, repeat,
        reshape, squeeze, std, sum, swapaxes, take, transpose, var,
    )
}  # fmt: skip

__all__ = [
    "All",
    "Window",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "array",
    "backpermute",
    "bincount",
    "broadcast",
    "broadcast_to",
    "concatenate",
    "cond",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "diag",
    "diagonal",
    "dot",
    "einsum",
    "expand_dims",
    "eye",
    "filter",
    "flip",
    "fold1",
    "fori_loop",
    "full",
    "full_like",
    "generate",
    "histogram",
    "iota",
    "logsumexp",
    "map",
    "matmul",
    "max",
    "mean",
    "min",
    "moveaxis",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "permute",
    "prod",
    "ravel",
    "reduce",
    "repeat",
    "replicate",
    "reshape",
    "reverse",
    "roll",
    "rotate",
    "scan",
    "scan_loop",
    "scatter",
    "searchsorted",
    "size",
    "slice",
    "sort",
    "squeeze",
    "stack",
    "std",
    "stencil",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tile",
    "transpose",
    "tril",
    "triu",
    "update",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]
