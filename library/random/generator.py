"""The generator, its keys, and arrays whose elements have words of their own.

Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") scrambles a counter of 128 bits with
a key of 64 bits, in ten rounds of products and exclusive ors. The counter says whose words these are: the place of an
element, the number of its block, and what the block is for. An element may take as many blocks as it needs, since no
other has them::

    draw(k)  =  philox((i, i >> 32, k, use), key)        of element i
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.builder import building, current
from ...core.combinators import broadcast_to, generate, stack
from ...core.combinators.operands import shape_of
from ...core.expr import Expr, as_expr, broadcast_sizes, scalar_type
from ...core.functions import description
from ...core.source import at_line
from ...core.types import Scalar, dims, f32, f64, i64, u32, u64

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85  # of the key, from round to round
_ROUNDS = 10
_DRAWN, _SPLIT, _FOLDED = 0, 1, 2  # what a block is for

Words = tuple[Expr, Expr, Expr, Expr]
Draw = Callable[[Any], Words]  # the words of an element, by the number of the block


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
    """So many new keys, along the first axis: u32[num, 2].

    >>> import adze as az
    >>> az.evaluate(lambda key: az.random.split(key, 3))(az.random.key(0)).shape
    (3, 2)
    """
    words = _words(key)

    def at(i: Expr) -> Expr:
        return stack(list(_block(i, 0, _SPLIT, words)[:2]))

    made: Expr = generate(num, at)
    return made


def fold_in(key: Any, data: Any) -> Expr:
    """A new key from a key and an integer, such as the number of a step.

    >>> import adze as az
    >>> az.evaluate(lambda key, step: az.random.fold_in(key, step))(az.random.key(0), 7).shape
    (2,)
    """
    number = as_expr(data)
    if number.dtype.kind != "int" or number.ndim:
        raise TypeError(at_line(f"fold_in takes a key and an integer, not a value of type {number.type}"))
    return stack(list(_block(number.astype(i64), 0, _FOLDED, _words(key))[:2]))


def _block(i: Expr, number: Any, use: int, words: tuple[Expr, Expr]) -> Words:
    place = i.astype(u64)
    return philox((place.astype(u32), (place >> 32).astype(u32), number, use), words)


# Elements


def drawn(what: str, key: Any, shape: Any, element: Callable[..., Any], *parameters: Expr) -> Any:
    """An array of ``element(draw, *parameters)``, with the words and the parameters of each; a scalar for the shape ().

    Parameters broadcast to the shape. Where that is None, they broadcast with each other and give it.
    """
    words = _words(key)
    if shape is None:
        extents = broadcast_sizes([x.value for x in parameters], what)
        sizes: tuple[Any, ...] = tuple([Expr(extent, current()) for extent in extents])
    else:
        sizes = shape_of(shape)
    spread = [broadcast_to(x, sizes) for x in parameters]

    def at(*places: Expr) -> Any:
        i = as_expr(0)
        for place, extent in zip(places, sizes, strict=True):
            i = i * extent + place
        return element(lambda number: _block(i, number, _DRAWN, words), *[x[places] for x in spread])

    return generate(sizes, at) if sizes else at()


def wide(low: Expr, high: Expr) -> Expr:
    """64 bits of two words."""
    return low.astype(u64) | (high.astype(u64) << 32)


def floats(dtype: Any) -> Scalar:
    """The scalar type of floating random numbers. Raises TypeError for others."""
    scalar = scalar_type(dtype)
    if scalar not in (f32, f64):
        raise TypeError(at_line(f"random numbers of f32 or f64, not of {scalar}"))
    return scalar


def fraction(scalar: Scalar, *words: Expr, inside: bool = False) -> Expr:
    """A number of one or two words that is at least 0 and below 1, or in the middle of such steps: above 0.

    It has the bits of its words, or as many as fit its scalar type.
    """
    number = words[0] if scalar == f32 or len(words) == 1 else wide(*words)
    half, most = (0.5, -1) if inside else (0.0, 0)
    kept = min(number.dtype.bits, most + (24 if scalar == f32 else 53))
    return ((number >> (number.dtype.bits - kept)).astype(scalar) + half) * 2.0**-kept
