"""What the branches of a choice by an index share is computed before the loop, if each of them is taken."""

from typing import Any

import numpy as np
import pytest

import adze as az


def printed(f: Any) -> str:
    return az.pretty(az.program(f))


def test_an_array_that_is_written_out_shares_a_costly_part() -> None:
    def f(x: az.f64, y: az.f64) -> Any:
        t = az.sin(x) * az.exp(y)
        return az.array([t * x, t * y, t + x])

    program = az.program(f)
    text = az.pretty(program)
    assert text.count("sin") == text.count("exp") == 1 and text.index("sin") < text.index("for i < 3")
    assert az.cost(program)(1.0, 2.0).operations <= 55
    t = np.sin(1.0) * np.exp(2.0)
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(program)(1.0, 2.0), [t, 2 * t, t + 1], rtol=1e-15)


def test_an_array_of_two_axes() -> None:
    def f(x: az.f64) -> Any:
        return az.array([[az.sin(x), az.sin(x) + 1], [x, az.sin(x) + x]])

    assert printed(f).count("sin(x)") == 1
    np.testing.assert_allclose(
        az.evaluate(az.program(f))(0.5), [[np.sin(0.5), np.sin(0.5) + 1], [0.5, np.sin(0.5) + 0.5]]
    )


@pytest.mark.parametrize("size", ["n", 3])
def test_a_branch_that_may_not_be_taken_keeps_what_is_in_it(size: Any) -> None:
    """The loop may be short, or the test another one."""

    def f(x: az.f64, v: az.Array[az.f64, size]) -> Any:
        def element(i: Any) -> Any:
            test = i < 1 if size == "n" else v[i] > 0.0
            other = i < 2 if size == "n" else v[i] > 1.0
            return az.cond(test, lambda: az.exp(x) * 2.0, lambda: az.cond(other, lambda: az.exp(x) + 1.0, lambda: v[i]))

        return az.generate(v.shape[0], element)

    assert printed(f).count("exp(x)") == 2


def test_what_depends_on_the_index_stays_in_the_loop() -> None:
    def f(x: az.f64) -> Any:
        def element(i: Any) -> Any:
            t = az.sin(x * i.astype(az.f64))
            return az.cond(i < 1, lambda: t * x, lambda: az.cond(i < 2, lambda: t + x, lambda: x))

        return az.generate(3, element)

    found = az.evaluate(az.program(f))(0.5)
    np.testing.assert_allclose(found, [0.0, np.sin(0.5) + 0.5, 0.5])
    text = printed(f)
    assert text.index("for i < 3") < text.index("sin")
