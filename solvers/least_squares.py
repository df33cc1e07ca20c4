"""``az.least_squares``: what users call, with its options checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends.chunked.chunked import Chunked
from ..core import trees
from ..core.functions import description
from ..core.program import Program
from ..core.source import at_line, ending_at_user
from ..core.verb import program_of
from .chunked import ChunkedProblem, read_chunked
from .iteration import Iteration, Tolerances
from .losses import LOSSES, Loss
from .problem import Problem
from .result import MESSAGES, LeastSquaresResult, Step
from .unknowns import Array, Unknowns, read

EVALUATIONS = 200  # for each unknown and one more, if no limit is given
ROUNDED = 64  # units in the last place of a cost that rounding may move
LEAST_EVALUATIONS = 1000  # where there are few


@ending_at_user
def least_squares(
    residuals: Program | Chunked | Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    *,
    method: str = "lm",
    loss: str = "linear",
    f_scale: float = 1.0,
    x_scale: Any = "jac",
    max_nfev: int | None = None,
    gtol: float | None = None,
    ftol: float | None = None,
    xtol: float | None = None,
    callback: Callable[[Step], object] | None = None,
    bounds: Any = None,
) -> LeastSquaresResult:
    """The unknowns for which half the sum of the squares of a program's results is smallest, from x0 on.

    ``residuals(x, *args)`` is a program, or a Python function of expressions, that returns an array of f64 or f32, a
    number, or a structure of these. ``x0`` is what its first parameter takes: a number, an array, or a structure of
    them (a dictionary, tuple, list or record). Derivatives are those of ``az.jacobian``. There may be fewer residuals
    than unknowns. What :func:`compile` made of a program with ``backend="dask"`` is gone through in chunks, as long as
    memory has no room for it: J is multiplied and added up chunk by chunk, and is never there as a whole.

    ``loss`` is ``"linear"``, ``"huber"``, ``"soft_l1"``, ``"cauchy"`` or ``"arctan"``, and ``f_scale`` the magnitude
    from which on a residual is an outlier, as in SciPy. ``x_scale`` is ``"jac"``, by which steps are scaled by the
    norms of the Jacobian's columns, or the sizes of typical changes of the unknowns: a number, or what has the
    structure of x0. It ends when all columns of J are orthogonal to the residuals up to ``gtol`` (the cosine), when
    the cost falls by less than its ``ftol``-th part, when a step is shorter than ``xtol`` of x, or after ``max_nfev``
    evaluations. By default ``ftol`` is 64 times the precision, ``1.4e-14`` in f64 and ``7.6e-6`` in f32, the others are
    its power 2/3, ``3.7e-11`` and ``2.4e-5``, and there are 200 (n + 1) evaluations, but at least 1,000.

    ``callback(step)`` is called after each step with its ``number``, ``cost``, ``damping`` and ``x``; it ends the fit
    by returning True, and what it raises goes to the caller.

    Where a step leads to NaN or infinity, it is refused, and a shorter one tried. A fit that does not converge is no
    error: see ``success`` and ``message`` of the :class:`LeastSquaresResult`.

    Raises TypeError for unknowns or residuals that are not floating numbers, ValueError for residuals or derivatives
    that are not finite at x0, for a loss or method of another name, and for ``bounds``. The method is that of
    Levenberg and Marquardt with Nielsen's damping (Madsen, Nielsen and Tingleff, *Methods for non-linear least squares
    problems*, 2004).

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def misfit(p: az.Array[az.f64, 2], t: az.Array[az.f64, "m"], y: az.Array[az.f64, "m"]):
    ...     return p[0] * az.exp(-p[1] * t) - y
    >>> t = np.linspace(0.0, 2.0, 9)
    >>> fit = az.least_squares(misfit, np.array([1.0, 1.0]), args=(t, 3.0 * np.exp(-0.5 * t)))
    >>> fit.x.round(6), fit.success
    (array([3. , 0.5]), True)
    """
    if not isinstance(args, tuple | list):
        raise TypeError(at_line(f"least_squares: args is a tuple of what follows x0, not {description(args)}"))
    chunks = residuals if isinstance(residuals, Chunked) else None
    f = program_of("least_squares", residuals, 1 + len(args)) if chunks is None else chunks.instance.program
    name = f"least_squares({f.name})"
    if bounds is not None:
        problem = "it has no bounds=; scipy.optimize.least_squares has, and takes az.jacobian"
        raise ValueError(at_line(f"{name}: {problem}(residuals) as jac="))
    if method != "lm":
        raise ValueError(at_line(f"{name}: the method is 'lm', not {method!r}"))
    if callback is not None and not callable(callback):
        raise TypeError(at_line(f"{name}: callback is a function of a step, not {description(callback)}"))
    chosen = _loss(name, loss, f_scale)
    problem_: Problem | ChunkedProblem
    if chunks is None:
        unknowns, x, rest = read(name, f, x0, args)
        problem_ = Problem(name, f, unknowns, x, rest, chosen)
    else:
        unknowns, x, rest = read_chunked(name, chunks, x0, args)
        problem_ = ChunkedProblem(name, chunks, unknowns, x, rest, chosen)
    around = problem_.linearised(x)
    if around is None:
        raise ValueError(at_line(f"{name}: {problem_.derivative_that_is_not_finite(x)} is not finite at x0"))
    tolerances = _tolerances(name, unknowns, gtol, ftol, xtol, max_nfev)
    iteration = Iteration(problem_, x, around, _scales(name, unknowns, x_scale), tolerances, callback)
    try:
        status = iteration.run()
    finally:
        problem_.finish()
    found = iteration.x
    return LeastSquaresResult(
        x=unknowns.of(found),
        cost=iteration.cost,
        grad=iteration.around.gradient,
        nfev=problem_.nfev,
        njev=problem_.njev,
        steps=len(iteration.history) - 1,
        status=status,
        message=f"{MESSAGES[status].format(max_nfev=tolerances.evaluations)}, after {len(iteration.history) - 1} steps",
        history=iteration.history,
        _fun=partial(problem_.residuals, found),
        _jac=partial(_weighted_jacobian, problem_, found),
        _name=name,
        _factor=partial(problem_.factor, found) if isinstance(problem_, ChunkedProblem) else None,
    )


def _weighted_jacobian(problem: Problem | ChunkedProblem, x: Array) -> Any:
    return problem.weighted(x)[0] if isinstance(problem, Problem) else problem.jacobian(x)


def _loss(name: str, loss: Any, scale: Any) -> Loss:
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(at_line(f"{name}: the loss is one of {', '.join(map(repr, LOSSES))}, not {loss!r}"))
    if not 0 < _number(scale) < math.inf:
        raise ValueError(at_line(f"{name}: f_scale is a positive number, not {scale!r}"))
    return Loss(loss, _number(scale))


def _number(given: Any) -> float:
    """An option that is a real number, also as an array without axes; NaN for anything else."""
    number = isinstance(given, int | float | np.number | np.ndarray) and np.ndim(given) == 0 and np.isrealobj(given)
    return float(given) if number else math.nan


def _tolerances(name: str, unknowns: Unknowns, gtol: Any, ftol: Any, xtol: Any, max_nfev: Any) -> Tolerances:
    found: dict[str, float] = {}
    for what, given in (("gtol", gtol), ("ftol", ftol), ("xtol", xtol)):
        default = ROUNDED * unknowns.epsilon if what == "ftol" else unknowns.epsilon ** (2 / 3)
        value = default if given is None else _number(given)
        if not 0 <= value < 1:
            raise ValueError(at_line(f"{name}: {what} is a number from 0 to 1, not {given!r}"))
        found[what] = value
    if max_nfev is None:
        max_nfev = max(LEAST_EVALUATIONS, EVALUATIONS * (unknowns.count + 1))
    if isinstance(max_nfev, bool) or not _number(max_nfev).is_integer() or max_nfev < 1:
        raise ValueError(at_line(f"{name}: max_nfev is a positive whole number, not {max_nfev!r}"))
    return Tolerances(found["gtol"], found["ftol"], found["xtol"], int(max_nfev))


def _scales(name: str, unknowns: Unknowns, x_scale: Any) -> Array | None:
    """What the unknowns are multiplied with, so that their steps are of like size; None: by the columns of J."""
    if isinstance(x_scale, str) and x_scale == "jac":
        return None
    said = "x_scale is 'jac', a positive number, or positive numbers in the structure of x0"
    try:
        if np.ndim(x_scale) == 0 and not isinstance(x_scale, dict):
            sizes = np.full(unknowns.count, float(x_scale))
        else:
            leaves = trees.matched(unknowns.structure, x_scale)
            shaped = zip(leaves, unknowns.shapes, strict=True)
            sizes = np.concatenate([np.ravel(np.broadcast_to(np.asarray(leaf, float), s)) for leaf, s in shaped])
    except (TypeError, ValueError):
        raise ValueError(at_line(f"{name}: {said}, not {description(x_scale)}")) from None
    if not np.all((sizes > 0) & np.isfinite(sizes)):
        raise ValueError(at_line(f"{name}: {said}"))
    return np.asarray(1 / sizes)
