"""Routines of LAPACK and BLAS, called through the pointers that SciPy has for them, without the interpreter's lock.

So several are under way at a time where compiled code calls them from its threads. (SciPy's own functions in
``scipy.linalg.lapack`` keep the lock.) Arguments are those of Fortran, and :func:`run` gives LAPACK's ``info``::

    packed, pivots = np.array(a, order="F"), np.empty(n, np.intc)
    run("getrf", a.dtype, n, n, packed, n, pivots)              dgetrf(&n, &n, packed, &n, pivots, &info)

An array is the address of its memory, and a matrix is there column by column: a row-major one is its transpose. An
element of a matrix is the address from which on a part of it is: ``Matrix(packed).at(row, column)``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ...core.c_functions import c_function
from ...core.source import at_line

_LETTERS = {"f": "s", "d": "d"}  # by the character of NumPy's type
_LARGEST = 2**31 - 1
_SILENT = {"larfb", "laset"}  # routines of LAPACK that report no errors


def run(name: str, dtype: Any, *arguments: Any) -> int:
    """Call a routine for numbers of this type, on arrays, numbers and letters; the code of its error, or 0."""
    routine, reports, number = _routine(name, dtype.char)
    code = ctypes.c_int(0)
    words = [_word(x, number) for x in arguments]
    routine(*words, *([ctypes.byref(code)] if reports else []))
    return code.value


class Matrix:
    """A matrix column by column in memory: an array of its columns."""

    def __init__(self, columns: Any) -> None:
        self.columns, self.rows = columns, columns.shape[1]
        self._start, self._size = columns.ctypes.data, columns.itemsize

    def at(self, row: int, column: int) -> ctypes.c_void_p:
        """The address of an element."""
        return ctypes.c_void_p(self._start + (column * self.rows + row) * self._size)


def clear_above(matrix: Any) -> None:
    """Set what is above the diagonal of a square matrix, or of a part of one, in rows to 0."""
    n = len(matrix)
    if n > 1:
        between = matrix.strides[0] // matrix.itemsize
        run("laset", matrix.dtype, "L", n - 1, n - 1, 0.0, 0.0, matrix[0, 1:], between)


def _word(x: Any, number: Any) -> Any:
    match x:  # in the order of how many there are
        case int():
            if x > _LARGEST:
                raise ValueError(at_line(f"LAPACK takes extents of at most {_LARGEST}, not {x}"))
            return ctypes.byref(ctypes.c_int(x))
        case ctypes.c_void_p():
            return x
        case str():
            return x.encode()
        case np.ndarray():
            return ctypes.c_void_p(x.ctypes.data)
    return ctypes.byref(number(x))


@cache
def load() -> tuple[Mapping[str, object], Mapping[str, object]]:
    """SciPy's pointers to the routines of BLAS and of LAPACK, by their symbols.

    To have them takes 0.1 s and 16 MB. What calls them does so when it is built, and not in its first run.
    """
    of_blas, of_lapack = [import_module(f"scipy.linalg.cython_{each}").__pyx_capi__ for each in ("blas", "lapack")]
    return of_blas, of_lapack


@cache
def _routine(name: str, character: str) -> tuple[Callable[..., None], bool, Any]:
    """A routine, whether it reports errors, and the type of its numbers."""
    symbol, (of_blas, of_lapack) = _LETTERS[character] + name, load()
    in_lapack = symbol not in of_blas
    found = c_function((of_lapack if in_lapack else of_blas)[symbol])
    reports = in_lapack and name not in _SILENT
    return ctypes.CFUNCTYPE(None)(found.address), reports, ctypes.c_float if character == "f" else ctypes.c_double
