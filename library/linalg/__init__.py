"""Linear algebra: the functions of ``numpy.linalg``, on matrices and stacks of them, with derivatives of any order.

LAPACK computes, through NumPy and SciPy. Each factorisation and each solve is one operation, whose rule for reverse
mode is written with operations again; forward mode, and derivatives of derivatives, follow from it::

    x = solve(a, b)             y = solve(a.T, x_bar)        a_bar = -y x.T        b_bar = y

Axes in front count matrices, and broadcast. Integers are computed with in f64. What LAPACK cannot factorise is a
``LinAlgError``, with the line of the call as a note.

The rules are those of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), for solves, inverses, determinants and symmetric eigenvalues; of Murray, "Differentiation of
the Cholesky decomposition" (2016); of Walter and Lehmann, "Algorithmic differentiation of linear algebra functions with
application in optimum experimental design" (2010), for QR; of Townsend, "Differentiating the singular value
decomposition" (2016); and of Golub and Pereyra (1973) for the pseudoinverse. Where eigenvalues or singular values are
equal, their vectors have no derivatives: these are infinite or NaN.
"""

from __future__ import annotations

import numpy as np

from ...core.numpy_calls import NUMPY
from .factors import (
    EighResult,
    QRResult,
    SlogdetResult,
    SVDResult,
    cho_solve,
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
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
)

__all__ = [
    "EighResult",
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
]

NUMPY |= {
    getattr(np.linalg, function.__name__): function
    for function in (
        cholesky, cond, det, eigh, eigvalsh, inv, matrix_power, matrix_rank, multi_dot, norm, pinv, qr, slogdet, solve,
        svd,
    )
}  # fmt: skip
