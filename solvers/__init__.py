"""Solvers: what runs compiled programs and their derivatives until an equation holds, or something is smallest.

A solver knows the program that it is given. So it derives the Jacobian itself, chooses by sizes how it is stored or
whether it is stored at all, and has each step computed by compiled programs; the linear algebra of a step is NumPy's
and SciPy's.
"""

from __future__ import annotations

from .inside import levenberg_marquardt
from .least_squares import least_squares
from .result import LeastSquaresResult

__all__ = ["LeastSquaresResult", "least_squares", "levenberg_marquardt"]
