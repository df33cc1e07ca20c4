"""Every construct inside every other one: small programs made by composition.

An *inner* snippet is an addition of two numbers that goes through one construct (``pair[0] + pair[1]`` read from a
generate, the last element of a scan...). An *outer* snippet runs some addition inside one construct, over the elements
of an array. Whatever is put into whatever else, the result is known: it is what the outer one does with plain ``+``.

    nested("scan", "while")     the running sums of x, each addition being done by a while loop

Inputs are quarters, so sums are exact. ``coverage.py`` says which constructs a program really nests, and how often
their bodies ran.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import adze as az

Addition = Callable[[Any, Any], Any]

INNER: dict[str, Addition] = {}
OUTER: dict[str, tuple[Callable[[Addition, Any], Any], Callable[[Any], Any]]] = {}


def inner(construct: str) -> Callable[[Addition], Addition]:
    """Enter an addition of two scalars that uses a construct."""

    def add(snippet: Addition) -> Addition:
        INNER[construct] = snippet
        return snippet

    return add


def outer(construct: str, numpy: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a use of an addition inside a construct, with what it gives for a vector x, in NumPy."""

    def add(snippet: Callable[[Addition, Any], Any]) -> Any:
        OUTER[construct] = snippet, numpy
        return snippet

    return add


# Additions


@inner("primitive")
def _(a: Any, b: Any) -> Any:
    return a + b


def pair(a: Any, b: Any) -> Any:
    """The array of two numbers."""
    return az.generate(2, lambda k: az.cond(k == 0, lambda: a, lambda: b))


@inner("generate")
def _(a: Any, b: Any) -> Any:
    both = pair(a, b)
    return both[0] + both[1]


@inner("cond")
def _(a: Any, b: Any) -> Any:
    return az.cond(a > b, lambda: a + b, lambda: b + a)


@inner("reduce")
def _(a: Any, b: Any) -> Any:
    both = pair(a, b)  # of more elements than are unrolled
    return az.reduce(lambda p, q: q + p, 0.0, az.generate(8, lambda k: both[k // 4])) / 4


@inner("scan")
def _(a: Any, b: Any) -> Any:
    return az.scan(lambda p, q: p + q, 0.0, pair(a, b))[1]


@inner("histogram")
def _(a: Any, b: Any) -> Any:
    return az.histogram(lambda p, q: p + q, 0.0, 2, np.array([1, 1]), pair(a, b))[1]


@inner("scatter")
def _(a: Any, b: Any) -> Any:
    swapped = az.scatter(pair(a, a), np.array([1, 0]), pair(a, b))
    return swapped[0] + swapped[1]


@inner("argsort")
def _(a: Any, b: Any) -> Any:
    both = pair(a, b)
    order = az.argsort(both)
    return both[order[0]] + both[order[1]]


@inner("loop")
def _(a: Any, b: Any) -> Any:
    both = pair(a, b)
    return az.fori_loop(0, 2, lambda k, total: total + both[k], 0.0)


@inner("while")
def _(a: Any, b: Any) -> Any:
    state = az.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + 0.5 * b), (1, a))
    return state[1]


# Uses of an addition f, over the elements of a vector x


@outer("generate", lambda x: x + 1)
def _(f: Addition, x: Any) -> Any:
    return az.map(lambda v: f(v, 1.0), x)


@outer("cond", lambda x: x.size + (2.0 if x.size > 1 else -1.0))
def _(f: Addition, x: Any) -> Any:
    count = az.size(x).astype(az.f64)
    return az.cond(az.size(x) > 1, lambda: f(count, 2.0), lambda: f(count, -1.0))


@outer("reduce", lambda x: x.sum())
def _(f: Addition, x: Any) -> Any:
    return az.reduce(f, 0.0, x)


@outer("scan", np.cumsum)
def _(f: Addition, x: Any) -> Any:
    return az.scan(f, 0.0, x)


@outer("histogram", lambda x: np.array([x[k::3].sum() for k in range(3)]))
def _(f: Addition, x: Any) -> Any:
    return az.histogram(f, 0.0, 3, az.iota(az.size(x)) % 3, x)


@outer("scatter", lambda x: x[::-1] + 1)
def _(f: Addition, x: Any) -> Any:
    n = az.size(x)
    return az.scatter(0.0 * x, n - 1 - az.iota(n), az.map(lambda v: f(v, 1.0), x))


@outer("loop", lambda x: (x.sum(), np.cumsum(x)))
def _(f: Addition, x: Any) -> Any:
    def step(total: Any, v: Any) -> Any:
        after = f(total, v)
        return after, after

    return az.scan_loop(step, 0.0, x)


@outer("while", lambda x: (x.size, x.sum()))
def _(f: Addition, x: Any) -> Any:
    return az.while_loop(lambda s: s[0] < az.size(x), lambda s: (s[0] + 1, f(s[1], x[s[0]])), (0, 0.0))


def nested(outside: str, inside: str) -> az.Program:
    """The program that runs an addition by one construct inside another one."""
    use, addition = OUTER[outside][0], INNER[inside]

    def combined(x: az.Array[az.f64, "n"]) -> Any:
        return use(addition, x)

    combined.__name__ = f"{inside}_in_{outside}"
    return az.program(combined)


def expected(outside: str, x: Any) -> Any:
    """What such a program gives for a vector."""
    return OUTER[outside][1](x)
