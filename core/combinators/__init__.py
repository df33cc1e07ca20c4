"""The combinators: Python functions from which programs are written.

Each is defined once, here, from the core constructs (``language.py``). Functions given to a combinator are ordinary
Python functions; they are entered once, with fresh variables. Axis defaults are NumPy's.

    arrays.py       from indices: generate, map, iota, full
    shapes.py       the same elements in other places: transpose, reshape, concatenate, roll
    reductions.py   reduce, sum and their relatives        scans.py     scan, cumsum
    scattering.py   histogram, scatter, update, filter     sorting.py   argsort, sort
    linear.py       matmul, einsum, diagonals              control.py   cond, where, loops
    series.py       ranges, diff, interp, convolve         order.py     median, quantile, unique
    accelerate.py   replicate, slice, backpermute, permute, stencil
"""

import numpy as _np

from ..methods import METHODS as _METHODS
from ..methods import ArrayMethods as _ArrayMethods
from ..numpy_calls import NUMPY as _NUMPY
from .accelerate import All, Window, backpermute, fold1, permute, replicate, slice, stencil
from .arrays import full, full_like, generate, iota, map, ones, ones_like, size, zeros, zeros_like
from .control import cond, fori_loop, scan_loop, where, while_loop
from .fork import par
from .linear import diag, diagonal, dot, einsum, eye, inner, matmul, one_hot, outer, tril, triu
from .order import median, quantile, repeat, unique
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
    softmax,
    std,
    sum,
    var,
)
from .scans import cummax, cummin, cumprod, cumsum, scan
from .scattering import bincount, filter, histogram, scatter, update
from .series import arange, convolve, correlate, diff, interp, linspace
from .shapes import (
    array,
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    hstack,
    meshgrid,
    moveaxis,
    pad,
    ravel,
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
    vstack,
)
from .sorting import argsort, searchsorted, sort

broadcast = broadcast_to

# Those that have the arguments of NumPy's functions of the same name
_NUMPY |= {
    getattr(_np, function.__name__): function
    for function in (
        all, any, argmax, argmin, argsort, bincount, broadcast_to, concatenate, convolve, correlate, count_nonzero,
        cumprod, cumsum, diag, diagonal, diff, dot, einsum, expand_dims, flip, full_like, hstack, inner, interp,
        linspace, matmul, max, mean, median, meshgrid, min, moveaxis, ones_like, outer, pad, prod, quantile, ravel,
        repeat, reshape, roll, searchsorted, sort, squeeze, stack, std, sum, swapaxes, take, take_along_axis, tile,
        transpose, tril, triu, unique, var, vstack, where, zeros_like,
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
    "arange",
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
    "convolve",
    "correlate",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "diag",
    "diagonal",
    "diff",
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
    "hstack",
    "inner",
    "interp",
    "iota",
    "linspace",
    "logsumexp",
    "map",
    "matmul",
    "max",
    "mean",
    "median",
    "meshgrid",
    "min",
    "moveaxis",
    "one_hot",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "par",
    "permute",
    "prod",
    "quantile",
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
    "softmax",
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
    "unique",
    "update",
    "var",
    "vstack",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]
