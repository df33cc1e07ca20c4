"""Sizes: what is proved of a dim holds for all sizes."""

import random

import pytest

from adze.core.dims import Dim


def drawn(choose: random.Random, depth: int) -> Dim:
    if depth == 0 or choose.random() < 0.3:
        return choose.choice([Dim.of("n"), Dim.of("m"), Dim.of(choose.randint(-3, 3))])
    a = drawn(choose, depth - 1)
    if choose.random() < 0.3:
        return a // choose.randint(1, 4)
    b = drawn(choose, depth - 1)
    return choose.choice([a + b, a - b, a * choose.randint(-3, 3), a.minimum(b), a.maximum(b)])


@pytest.mark.unguarded
def test_what_is_proved_not_to_be_negative_is_not() -> None:
    choose, proved = random.Random(1), 0
    for _ in range(3000):
        dim = drawn(choose, 3)
        if dim.is_nonnegative():
            proved += 1
            assert all(dim.evaluate({"n": n, "m": m}) >= 0 for n in range(13) for m in range(13)), dim
    assert proved > 500


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("n - n//2*2", True),
        ("n//2*2 - n", False),
        ("n//2*2 - n + 1", True),
        ("n//2 - n//3", True),
        ("n//3 - n//2", False),
        ("n//2 - n//4*2", True),
        ("n//4*2 - n//2 + 1", True),
        ("n - 2*min(m, n//2)", True),
        ("(n+m)//2 - n//2 - m//2", True),
        ("n//2 + m//2 - (n+m)//2", False),
    ],
)
def test_quotients(text: str, holds: bool) -> None:
    assert Dim.parse(text).is_nonnegative() == holds
