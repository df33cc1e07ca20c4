"""An array of which either axis may be the last one in memory lies as those want it who read it."""

from typing import Any

import numpy as np
import pytest

import adze as az

pytestmark = pytest.mark.unguarded

Points = az.Array[az.f64, "n k"]
Centres = az.Array[az.f64, "m k"]


def distances(x: Any, w: Any) -> Any:
    """Along lanes of points it costs what it does along lanes of centres."""
    return az.generate((x.shape[0], w.shape[0]), lambda i, j: az.sum(abs(x[i] - w[j])))


@az.program
def over_points(x: Points, w: Centres) -> az.Array[az.f64, "m"]:
    return az.logsumexp(distances(x, w), 0)


@az.program
def over_centres(x: Points, w: Centres) -> az.Array[az.f64, "n"]:
    return az.logsumexp(distances(x, w), 1)


@az.program
def ranks(x: Points, w: Centres) -> az.Array[az.i64, "n m"]:
    return az.map(az.argsort, distances(x, w))


@az.program
def ranks_of_points(x: Points, w: Centres) -> az.Array[az.i64, "m n"]:
    return az.map(az.argsort, distances(x, w).T)


@pytest.mark.parametrize(
    ("program", "layout"),
    [(over_points, "n, m"), (over_centres, "m, n"), (ranks, "n, m"), (ranks_of_points, "m, n")],
)
def test_the_layout_of_an_array_is_what_its_readers_want(program: Any, layout: str) -> None:
    r = np.random.default_rng(1)
    x, w = r.standard_normal((70, 5)), r.standard_normal((40, 5))
    compiled = az.compile(program)
    assert f": f64[{layout}]" in str(compiled.loops)
    assert f": f64[{', '.join(reversed(layout.split(', ')))}]" not in str(compiled.loops)
    np.testing.assert_allclose(compiled(x, w), az.evaluate(program)(x, w), rtol=1e-12)
