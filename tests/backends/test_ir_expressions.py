"""Arithmetic on expressions of the loop IR: the nodes that operators make, and what they compute at once."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adze.backends import ir
from adze.core.primitive import lookup
from adze.core.types import bool_, f32, i64

n, i, x = ir.Variable("n"), ir.Variable("i"), ir.Variable("x", f32)
holds, other = ir.Variable("holds", bool_), ir.Variable("other", bool_)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (n + 1, "n + 1"),
        (1 + n, "1 + n"),
        (n - 2 * i, "n - 2 * i"),
        (5 - (n - i), "5 - (n - i)"),
        ((n + 31) // 32, "(n + 31) // 32"),
        (100 // n % 3, "100 // n % 3"),
        (-n, "negative(n)"),
        ((i >= 0) & (i < n), "0 <= i and i < n"),
        ((n > i) | (n >= 7), "i < n or 7 <= n"),
        (~holds & other, "logical_not(holds) and other"),
        (ir.minimum(n, 8) + ir.maximum(0, i), "minimum(n, 8) + maximum(0, i)"),
        (ir.equal(i, n), "i == n"),
        (ir.select(holds, n, 0), "select(holds, n, 0)"),
        (ir.ceil_divide(n, 8), "(n + 7) // 8"),
        (ir.ceil_divide(n, i), "(n + (i - 1)) // i"),
        (x * x + x, "x * x + x"),
        (ir.apply("exp", x), "exp(x)"),
    ],
)
def test_operators_make_nodes(made: ir.Expression, text: str) -> None:
    assert ir.expression_text(made) == text


def test_integers_are_constants_of_i64() -> None:
    assert n + 1 == n + ir.Constant(1) and (1 + n).arguments[0] == ir.Constant(1, i64)  # type: ignore[union-attr]
    assert (holds & True, holds & False) == (holds, ir.Constant(False, bool_))
    with pytest.raises(TypeError, match="operands of one type"):
        x + 1


@pytest.mark.parametrize("a", [-7, 0, 3, 2**62])
@pytest.mark.parametrize("b", [-2, 1, 5])
@pytest.mark.parametrize(
    "what", [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.lt, operator.le]
)
def test_what_is_known_is_computed(what: Callable[[Any, Any], Any], a: int, b: int) -> None:
    with np.errstate(over="ignore"):
        wanted = what(np.int64(a), np.int64(b))
    for made in (what(ir.Constant(a), b), what(ir.Constant(a), ir.Constant(b)), what(a, ir.Constant(b))):
        assert isinstance(made, ir.Constant) and made.value == wanted
        assert made.type == (bool_ if what in (operator.lt, operator.le) else i64)


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_what_holds_is_computed(a: bool, b: bool) -> None:
    known = ir.Constant(a, bool_), ir.Constant(b, bool_)
    assert known[0] & known[1] == ir.Constant(a and b, bool_)
    assert known[0] | known[1] == ir.Constant(a or b, bool_)
    assert ~known[0] == ir.Constant(not a, bool_)
    assert (known[0] & holds, holds & known[0]) == ((holds, holds) if a else (known[0], known[0]))
    assert (known[0] | holds, holds | known[0]) == ((known[0], known[0]) if a else (holds, holds))


def test_constructors_compute_nothing() -> None:
    sum = n + 1
    assert isinstance(sum, ir.Apply)
    same = ir.Apply(sum.primitive, (ir.Constant(2), ir.Constant(1)), i64)
    assert isinstance(same, ir.Apply) and ir.expression_text(same) == "2 + 1"


def test_a_comparison_is_no_answer() -> None:
    for asked in (lambda: bool(i < n), lambda: 0 <= i < n, lambda: max(i, n), lambda: sorted([i, n]), lambda: not i):
        with pytest.raises(TypeError, match="when the code runs"):
            asked()


@pytest.mark.parametrize("known", [False, True])
def test_what_is_combined_into_a_reduction_mentions_it(known: bool) -> None:
    found = ir.Reduction("found", lookup("logical_or"), ir.Constant(False, bool_))
    combined = found.combined(ir.Constant(known, bool_))
    loop = ir.For("i", n, "lanes", (combined,), 4, reductions=(found,))
    ir.check(ir.Function("f", ("n",), (), (), (ir.Declare("found", found.neutral), loop)))
    assert ir.expression_text(combined.value) == f"found or {known}"
