"""Random numbers that are functions of a key and a place: the same in every interpretation, on any number of threads.

A generator with a state would have an order. Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3") has none: it scrambles a counter of 128 bits with a key of 64 bits, in ten rounds of products and exclusive
ors. Element i of an array of random numbers is made from the key and from i alone. So slices, batches and shards agree
with the whole, and nothing has to be stored to be there again in a return sweep::

    bits(key, shape)[i]  =  philox((i, i >> 32, 0, use), key)

A key is an array of two u32, as in JAX. Whoever draws twice takes two keys, from ``split`` or ``fold_in``. What numbers
are for is part of the counter, so that a key that is split, and drawn from by mistake, does not repeat itself.

    >>> import adze as az
    >>> @az.program
    ... def mean(key: az.Array[az.u32, 2]) -> az.f64:
    ...     return az.mean(az.random.normal(key, 10000))
    >>> abs(float(mean(az.random.key(7)))) < 0.05
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.builder import building
from ..core.combinators import argmax, argsort, cumsum, generate, iota, matmul, searchsorted, size, stack
from ..core.combinators.operands import shape_of
from ..core.expr import Expr, as_expr, scalar_type
from ..core.functions import description
from ..core.primitive import PRIMITIVES
from ..core.source import at_line
from ..core.types import Scalar, dims, f32, f64, i64, u32, u64
from .linalg import cholesky

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "integers",
    "key",
    "laplace",
    "multivariate_normal",
    "normal",
    "permutation",
    "split",
    "uniform",
]

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85  # of the key, from round to round
_ROUNDS = 10
_DRAWN, _SPLIT, _FOLDED = 0, 1, 2  # what a block is for

Words = tuple[Expr, Expr, Expr, Expr]


def philox(counter: Sequence[Any], key: Sequence[Any]) -> Words:
    """Four words of 32 bits from a counter of four and a key of two.

    In between they are held in 64 bits, and lose what is above 32 where they are multiplied: there is one instruction
    for that, on lanes, while a conversion to u32 and back is two more for each word.
    """
    a, b, c, d = (as_expr(word, u32).astype(u64) for word in counter)
    keys = [as_expr(word, u32).astype(u32) for word in key]
    for number in range(_ROUNDS):
        if number:
            keys = [word + step for word, step in zip(keys, _STEPS, strict=True)]
        first, second = ((x & 0xFFFFFFFF) * m for x, m in zip((a, c), _MULTIPLIERS, strict=True))
        a, b = (second >> 32) ^ b ^ keys[0].astype(u64), second
        c, d = (first >> 32) ^ d ^ keys[1].astype(u64), first
    a, b, c, d = (word.astype(u32) for word in (a, b, c, d))
    return a, b, c, d


# Keys


def key(seed: Any) -> Any:
    """A key from an integer, from an i64 inside a program, or from a NumPy generator, which gives 64 bits.

    Outside of programs it is an array of NumPy's.

    >>> key(5)
    array([5, 0], dtype=uint32)
    """
    if isinstance(seed, Expr):
        if seed.dtype.kind != "int" or seed.ndim:
            raise TypeError(at_line(f"key takes an integer, not a value of type {seed.type}"))
        number = seed.astype(u64)
        return stack([number.astype(u32), (number >> 32).astype(u32)])
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(0, 1 << 64, dtype=np.uint64))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(at_line(f"key takes an integer or a generator of NumPy's, not {description(seed)}"))
    low, high = int(seed) & 0xFFFFFFFF, (int(seed) >> 32) & 0xFFFFFFFF
    words = np.array([low, high], np.uint32)
    return as_expr(words) if building() else words


def _words(key: Any) -> tuple[Expr, Expr]:
    given = as_expr(key)
    if given.dtype != u32 or given.ndim != 1 or (dims(given.type)[0].constant not in (None, 2)):
        raise TypeError(at_line(f"a key is an array of two u32, from az.random.key, not a value of type {given.type}"))
    return given[0], given[1]


def split(key: Any, num: Any = 2) -> Expr:
    """So many new keys, along the first axis."""
    words = _words(key)

    def at(i: Expr) -> Expr:
        return stack(list(_block(i, _SPLIT, words)[:2]))

    made: Expr = generate(num, at)
    return made


def fold_in(key: Any, data: Any) -> Expr:
    """A new key from a key and an integer, such as the number of a step."""
    number = as_expr(data)
    if number.dtype.kind != "int" or number.ndim:
        raise TypeError(at_line(f"fold_in takes a key and an integer, not a value of type {number.type}"))
    return stack(list(_block(number.astype(i64), _FOLDED, _words(key))[:2]))


def _block(i: Expr, use: int, words: tuple[Expr, Expr]) -> Words:
    place = i.astype(u64)
    return philox((place.astype(u32), (place >> 32).astype(u32), 0, use), words)


# Bits, and numbers of equal probability


def _drawn(key: Any, shape: Any, element: Callable[[Words], Expr]) -> Any:
    """An array whose elements are made of words of their own; a scalar for the shape ()."""
    words, sizes = _words(key), shape_of(shape)

    def at(*places: Expr) -> Expr:
        number = as_expr(0)
        for place, extent in zip(places, sizes, strict=True):
            number = number * extent + place
        return element(_block(number, _DRAWN, words))

    return generate(sizes, at) if sizes else at()


def _wide(low: Expr, high: Expr) -> Expr:
    """64 bits of two words."""
    return low.astype(u64) | (high.astype(u64) << 32)


def _floats(dtype: Any) -> Scalar:
    scalar = scalar_type(dtype)
    if scalar not in (f32, f64):
        raise TypeError(at_line(f"random numbers of f32 or f64, not of {scalar}"))
    return scalar


def _fraction(low: Expr, high: Expr, scalar: Scalar, inside: bool = False) -> Expr:
    """A number of two words that is at least 0 and below 1, or in the middle of such steps: above 0."""
    number, most = (low, 24) if scalar == f32 else (_wide(low, high), 53)
    half, kept = (0.5, most - 1) if inside else (0.0, most)
    return ((number >> (number.dtype.bits - kept)).astype(scalar) + half) * 2.0**-kept


def bits(key: Any, shape: Any = (), dtype: Any = u32) -> Any:
    """Random bits, as u32 or u64."""
    scalar = scalar_type(dtype)
    if scalar not in (u32, u64):
        raise TypeError(at_line(f"random bits are u32 or u64, not {scalar}"))
    return _drawn(key, shape, lambda words: words[0] if scalar == u32 else _wide(*words[:2]))


def uniform(key: Any, shape: Any = (), dtype: Any = f64, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Numbers from ``minval`` on, below ``maxval``, which broadcast: 53 random bits of a f64, 24 of a f32."""
    scalar = _floats(dtype)
    drawn = _drawn(key, shape, lambda words: _fraction(words[0], words[1], scalar))
    if isinstance(minval, float) and isinstance(maxval, float) and (minval, maxval) == (0.0, 1.0):
        return drawn
    low, high = as_expr(minval).astype(scalar), as_expr(maxval).astype(scalar)
    return low + drawn * (high - low)


def integers(key: Any, shape: Any, minval: Any, maxval: Any) -> Any:
    """i64 from ``minval`` on, below ``maxval``: the remainder of 64 random bits, which prefers none by 2**-32 if both
    are 32 bits or less. Where there is none, it is ``minval``."""
    low, high = as_expr(minval).astype(i64), as_expr(maxval).astype(i64)
    count = PRIMITIVES["maximum"]((high - low).astype(u64), 1)
    return low + (_drawn(key, shape, lambda words: _wide(*words[:2])) % count).astype(i64)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = ()) -> Any:
    """Booleans that hold with probability p."""
    return uniform(key, shape) < p


# Other distributions


def normal(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Standard normal numbers (Box and Muller 1958)."""
    scalar = _floats(dtype)

    def element(words: Words) -> Any:
        radius: Any = PRIMITIVES["sqrt"](-2.0 * PRIMITIVES["log"](_fraction(words[0], words[1], scalar, inside=True)))
        return radius * PRIMITIVES["cos"]((2 * math.pi) * _fraction(words[2], words[3], scalar))

    return _drawn(key, shape, element)


def exponential(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Exponentially distributed numbers with the mean 1."""
    return -PRIMITIVES["log"](_inside(key, shape, dtype))


def gumbel(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Numbers of the standard Gumbel distribution: the largest of logits with these is a categorical draw."""
    return -PRIMITIVES["log"](exponential(key, shape, dtype))


def laplace(key: Any, shape: Any = (), dtype: Any = f64) -> Any:
    """Numbers of the standard Laplace distribution."""
    u = _inside(key, shape, dtype) - 0.5
    return -PRIMITIVES["sign"](u) * PRIMITIVES["log1p"](-2.0 * PRIMITIVES["abs"](u))


def _inside(key: Any, shape: Any, dtype: Any) -> Any:
    """Numbers above 0 and below 1."""
    scalar = _floats(dtype)
    return _drawn(key, shape, lambda words: _fraction(words[0], words[1], scalar, inside=True))


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = ()) -> Any:
    """Normal vectors with a mean and a covariance, along the last axis."""
    centre = as_expr(mean)
    noise = normal(key, (*shape_of(shape), size(centre)), centre.dtype)
    return centre + matmul(noise, cholesky(cov).T)


# Choices


def categorical(key: Any, logits: Any, axis: int = -1) -> Any:
    """The number of one of several, with probabilities that are proportional to exponentials of ``logits``."""
    given = as_expr(logits)
    return argmax(given + gumbel(key, given.shape, given.dtype), axis)


def permutation(key: Any, x: Any) -> Expr:
    """The numbers below an integer in random order, or an array with the parts along its first axis in random order.

    Each place depends on all others: parts of it do not agree with the permutation of a part.
    """
    given = as_expr(x)
    if given.ndim == 0:
        return argsort(bits(key, given, u64))
    return given[argsort(bits(key, size(given), u64))]


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None) -> Any:
    """Numbers below an integer, or elements of an array along its first axis, by probabilities p or equal ones.

    Without replacement they are the first ones of a permutation, all equally probable. Raises ValueError for p then.
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
    return whole[
        PRIMITIVES["minimum"](searchsorted(shares, uniform(key, shape) * shares[-1], "right"), size(whole) - 1)
    ]
