"""Eigenvalues and singular values of one matrix, by rotations of its rows (Hestenes 1958; one-sided Jacobi).

Rows are rotated in pairs until all are orthogonal. A round rotates disjoint pairs at once, each row with the one that
it meets, and then moves the rows on, as players at the tables of a tournament (Brent and Luk 1985)::

    repeat:   t[i] = the tangent that makes rows i and j = met(i) orthogonal
              w[i] = (w[o] - t[o] w[met(o)]) / sqrt(1 + t[o] ** 2)          o = the place that moves on to i

So every round is the same code, with places that are constants where it is written out, and after as many rounds as
there are places all have met. It ends when so many rounds in a row had nothing to do, or after a bound on sweeps,
which NaN does not reach: what has no comparison has nothing to do.

The rows that are rotated are, for singular values, the columns of a matrix, beside those of the identity: the lengths
are the singular values, and the other halves are the right vectors. For eigenvalues they are those of ``1 + a / size``
with a ``size`` of twice a norm, which is positive definite, with numbers from a half to one and a half: rows become
multiples of the eigenvectors, and the eigenvalues are the quotients of Rayleigh, which have the square of their errors.
(Demmel and Veselic 1992 on how exact such numbers are.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.combinators import all as all_of
from ...core.combinators import concatenate, count_nonzero, eye, generate, where, while_loop
from ...core.combinators import max as largest
from ...core.combinators import sum as total
from ...core.primitive import PRIMITIVES
from .operands import read, turned
from .small import orthonormal

SWEEPS = 30  # at most; some six to ten are usual


def _tables(n: int) -> int:
    """How many rounds a sweep has: so many rows move around, and the last of an even number stays where it is."""
    return max(n - 1 + n % 2, 1)


def _met(n: int, i: Any) -> Any:
    """The row that row i meets, which is itself where it has a rest."""
    around = _tables(n)
    met = (2 * around - 2 - i) % around
    return met if n % 2 else where(i == n - 1, n - 2, where(i == n - 2, n - 1, met))


def _before(n: int, i: Any) -> Any:
    """The row that moves on to place i."""
    around = _tables(n)
    return where(i == around, i, (i + around - 1) % around)


def _dot(w: Any, length: Any, i: Any, j: Any) -> Any:
    return total(generate(length, lambda k: read(w, i, k) * read(w, j, k)))


def _rotated(w: Any, length: int) -> Any:
    """The rows of w after rotations that make the first ``length`` elements of all orthogonal."""
    n, width = w.shape
    around = _tables(n)
    tolerance = length * float(np.finfo(w.dtype.dtype).eps) ** 2

    def round(state: Any) -> Any:
        turn, still, w = state
        squares = generate(n, lambda i: _dot(w, length, i, i))

        def tangent(i: Any) -> Any:
            j = _met(n, i)
            dot, other = _dot(w, length, i, j), read(squares, j)
            ratio = (other - squares[i]) / (2 * dot)
            # Rows of one length turn by 45 degrees, one of the two in each direction.
            size = 1 / (PRIMITIVES["abs"](ratio) + PRIMITIVES["sqrt"](1 + ratio * ratio))
            found = where((ratio > 0) | ((ratio == 0) & (i < j)), size, -size)
            return where((i == j) | (dot == 0), 0.0, found), (i != j) & (dot * dot > tolerance * squares[i] * other)

        tangents, moves = generate(n, tangent)
        cosines = generate(n, lambda i: 1 / PRIMITIVES["sqrt"](1 + tangents[i] * tangents[i]))

        def element(i: Any, k: Any) -> Any:
            o = _before(n, i)
            return read(cosines, o) * (read(w, o, k) - read(tangents, o) * read(w, _met(n, o), k))

        return turn + 1, where(all_of(~moves), still + 1, 0), generate((n, width), element)

    return while_loop(lambda state: (state[0] < SWEEPS * around) & (state[1] < around), round, (0, 0, w))[2]


def _places(keys: Any) -> Any:
    """The place of each key in ascending order; those that have no comparison have one each, too."""
    n = keys.shape[0]

    def place(i: Any) -> Any:
        smaller = generate(n, lambda j: where(j < i, ~(keys[i] < keys[j]), keys[j] < keys[i]))
        return count_nonzero(smaller)

    return generate(n, place)


def _at_places(places: Any, rows: Any) -> Any:
    """The rows at their places."""
    n, width = rows.shape
    return generate((n, width), lambda k, c: total(generate(n, lambda i: where(places[i] == k, rows[i, c], 0.0))))


def eigh(a: Any) -> tuple[Any, Any]:
    """Eigenvalues in ascending order, and vectors, of the matrix with this lower triangle."""
    n = a.shape[0]
    whole = generate((n, n), lambda i, j: where(i >= j, a[i, j], a[j, i]))
    norm = largest(total(PRIMITIVES["abs"](whole), 1))
    size = where(norm > 0, 2 * norm, 1.0)
    w = _rotated(eye(n, dtype=a.dtype) + whole / size, n)
    lengths = generate(n, lambda i: PRIMITIVES["sqrt"](_dot(w, n, i, i)))
    vectors = generate((n, n), lambda i, k: w[i, k] / lengths[i])

    def quotient(i: Any) -> Any:
        return total(generate(n, lambda k: vectors[i, k] * total(generate(n, lambda l: whole[k, l] * vectors[i, l]))))

    values = generate(n, quotient)
    places = _places(values)
    return _at_places(places, values[:, None])[:, 0], turned(_at_places(places, vectors))


def svd(a: Any) -> tuple[Any, Any, Any]:
    """Left vectors, singular values in descending order, and right vectors in rows."""
    length, n = a.shape
    if length < n:
        u, values, vh = svd(turned(a))
        return turned(vh), values, turned(u)
    norm = largest(PRIMITIVES["abs"](a))
    size = where(norm > 0, norm, 1.0)
    w = _rotated(concatenate([turned(a) / size, eye(n, dtype=a.dtype)], axis=1), length)
    lengths = generate(n, lambda i: PRIMITIVES["sqrt"](_dot(w, length, i, i)))
    w = _at_places(_places(-lengths), w)
    # Those of no length have a direction, too: that of a basis.
    basis, triangle = orthonormal(turned(w[:, :length]))
    u = generate((length, n), lambda k, i: where(triangle[i, i] < 0, -basis[k, i], basis[k, i]))
    return u, generate(n, lambda i: size * PRIMITIVES["sqrt"](_dot(w, length, i, i))), w[:, length:]
