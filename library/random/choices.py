"""Choices: which of several, and in which order."""

from __future__ import annotations

import math
from typing import Any

from ...core.combinators import argmax, argsort, cumsum, iota, searchsorted, size
from ...core.combinators.operands import axis_of, shape_of
from ...core.expr import Expr, as_expr
from ...core.primitives import minimum
from ...core.source import at_line
from ...core.types import u64
from .continuous import bits, gumbel, integers, uniform


def categorical(key: Any, logits: Any, axis: int = -1) -> Any:
    """The number of one of several, with probabilities that are proportional to exponentials of ``logits``.

    It is the place of the largest logit with Gumbel's numbers added, as i64, along an axis of ``logits``, which the
    result has no more (Gumbel 1954).

    >>> import adze as az, numpy as np
    >>> logits = [[0.0, -np.inf], [-np.inf, 0.0]]
    >>> az.evaluate(lambda key: az.random.categorical(key, logits))(az.random.key(0))
    array([0, 1])
    """
    given = as_expr(logits)
    return argmax(given + gumbel(key, given.shape, given.dtype), axis)


def permutation(key: Any, x: Any) -> Expr:
    """The numbers below an integer in random order, or an array with the parts along its first axis in random order.

    Each place depends on all others: parts of it do not agree with the permutation of a part.

    >>> import adze as az, numpy as np
    >>> np.sort(az.evaluate(lambda key: az.random.permutation(key, 5))(az.random.key(0)))
    array([0, 1, 2, 3, 4])
    """
    given = as_expr(x)
    return argsort(bits(key, given, u64)) if given.ndim == 0 else shuffle(key, given)


def shuffle(key: Any, x: Any, axis: int = 0) -> Expr:
    """An array with the parts along an axis in random order, which is that of :func:`permutation`; x stays as it is.

    >>> import adze as az, numpy as np
    >>> x = np.array([[1.0, 2.0, 3.0]])
    >>> np.sort(az.evaluate(lambda key, x: az.random.shuffle(key, x, axis=1))(az.random.key(0), x))
    array([[1., 2., 3.]])
    """
    given = as_expr(x)
    along = axis_of(given, axis)
    order = argsort(bits(key, given.shape[along], u64))
    return given[(*[slice(None)] * along, order)]


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None) -> Any:
    """Numbers below an integer, or elements of an array along its first axis, by probabilities p or equal ones.

    What counts of p are proportions: it need not sum to one. Without replacement they are the first ones of a
    permutation, all equally probable. Raises ValueError for p then.

    >>> import adze as az, numpy as np
    >>> draw = lambda key: az.random.choice(key, [3.0, 5.0, 9.0], 100, p=[0.5, 0.0, 0.5])
    >>> np.unique(az.evaluate(draw)(az.random.key(0)))
    array([3., 9.])
    """
    given = as_expr(a)
    whole = iota(given) if given.ndim == 0 else given
    if not replace:
        if p is not None:
            raise ValueError(at_line("choice: without replacement all are equally probable, so it takes no p"))
        sizes = shape_of(shape)
        count = math.prod(sizes) if all(isinstance(n, int) for n in sizes) else None
        if len(sizes) != 1 and count is None:
            raise ValueError(at_line("choice: without replacement the shape is one size, or known"))
        drawn = permutation(key, whole)[: sizes[0] if len(sizes) == 1 else count]
        return drawn if len(sizes) == 1 else drawn[0] if not sizes else drawn.reshape(*sizes, *whole.shape[1:])
    if p is None:
        return whole[integers(key, shape, 0, size(whole))]
    shares = cumsum(as_expr(p))
    return whole[minimum(searchsorted(shares, uniform(key, shape) * shares[-1], "right"), size(whole) - 1)]
