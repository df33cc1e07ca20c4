"""Linear algebra: the functions of ``numpy.linalg``, on matrices and stacks of them, with derivatives of any order.

LAPACK computes, through NumPy and SciPy, or for matrices that are small by their type a program of the language
(``small.py``). Each factorisation and each solve is one operation (``operands.py``), whose rule for reverse mode is
written with operations again; forward mode, and derivatives of derivatives, follow from it::

    x = solve(a, b)             y = solve(a.T, x_bar)        a_bar = -y x.T        b_bar = y

Axes in front count matrices, and broadcast. Integers are computed with in f64. What has no factor is a
``LinAlgError``, with the line of the call and the number of the matrix.

The rules are those of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), for solves, inverses, determinants and symmetric eigenvalues; of Murray, "Differentiation of
the Cholesky decomposition" (2016); of de Hoog, Anderssen and Lukas, "Differentiation of matrix functionals using
triangular factorization" (2011); of Walter and Lehmann, "Algorithmic differentiation of linear algebra functions with
application in optimum experimental design" (2010), for QR; of Townsend, "Differentiating the singular value
decomposition" (2016); and of Golub and Pereyra (1973) for the pseudoinverse. Where eigenvalues or singular values are
equal, their vectors have no derivatives: these are infinite or NaN.
"""

from __future__ import annotations

import numpy as np

from ...core.numpy_calls import NUMPY
from .functions import (
    cond,
    cross,
    expm,
    kron,
    matrix_power,
    matrix_rank,
    multi_dot,
    norm,
    tensordot,
    trace,
)
from .gauss import LUResult, SlogdetResult, det, inv, lu, lu_factor, lu_solve, slogdet, solve
from .orthogonal import (
    EighResult,
    LstsqResult,
    QRResult,
    SVDResult,
    eigh,
    eigvalsh,
    lstsq,
    pinv,
    qr,
    svd,
    svdvals,
)
from .triangles import cho_solve, cholesky, solve_triangular

__all__ = [
    "EighResult",
    "LUResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "kron",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
]

NUMPY |= {
    getattr(np.linalg, function.__name__): function
    for function in (
        cholesky, cond, cross, det, eigh, eigvalsh, inv, lstsq, matrix_power, matrix_rank, multi_dot, norm, pinv, qr,
        slogdet, solve, svd, svdvals, tensordot, trace,
    )
    if hasattr(np.linalg, function.__name__)
}  # fmt: skip
