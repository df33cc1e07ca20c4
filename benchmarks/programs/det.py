"""The determinant of a matrix by expansion by minors.

    det A = sum_j (-1)^j A[0, j] det(A without row 0 and column j)        the determinant of no rows at all is 1

A minor is no array but a function, from places to entries of the matrix, so that none is copied: its column k is column
k of the larger matrix, or k + 1 from the one on that is left out. The recursion is Python's, over the number of rows,
and makes a nest of as many loops. Minors share nothing, so n! products are added up. That is meant: it is much
arithmetic on little data.

Source: GradBench (det), there from cmpad (det_by_minor).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import adze as az


def expansion(entry: Callable[[Any, Any], Any], order: int) -> Any:
    """The determinant of the matrix of so many rows with these entries."""
    if order == 0:
        return 1.0

    def term(j: az.Expr) -> Any:
        minor = expansion(lambda i, k: entry(i + 1, k + (k >= j)), order - 1)
        return az.where(j % 2 == 0, 1.0, -1.0) * entry(0, j) * minor

    return az.sum(az.generate(order, term))


@az.program
def determinant(a: az.Array[az.f64, "n n"], order: int) -> az.f64:
    """The determinant of the first ``order`` rows and columns."""
    return expansion(lambda i, k: a[i, k], order)


gradient = az.grad(determinant)

FUNCTIONS = {"primal": determinant, "gradient": gradient}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The matrix, and how many rows it has."""
    order = int(given["ell"])
    return np.array(given["A"], dtype=np.float64).reshape(order, order), order


def answer(function: str, result: Any) -> Any:
    """The determinant; or its derivatives, row by row."""
    return result if function == "primal" else result.ravel()
