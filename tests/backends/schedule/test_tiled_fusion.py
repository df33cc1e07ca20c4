"""Tiled fusion: what is stored for a range and then summed over it is summed chunk by chunk."""

from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest

import adze as az
from adze.backends import ir
from adze.backends.decisions import Decisions
from adze.backends.llvm.host import host_target
from adze.backends.schedule.loops import tiled_fusion as chunking
from adze.backends.schedule.loops.tiled_fusion import summed_in_chunks
from adze.backends.transformations import Transformations
from adze.core.types import f64, i64

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]
Coefficients = az.Array[az.f64, "m"]


def powers(v: az.Expr, x: az.Expr) -> Any:
    return az.cumprod(az.generate(x.shape[0], lambda _: v))


@az.program
def fitted(t: Vector, x: Coefficients) -> Any:
    """The gradient of a polynomial's squared distances: powers of t are summed with the residuals."""

    def loss(x: az.Expr) -> Any:
        return az.sum(az.map(lambda v: (x @ powers(v, x) - v) ** 2, t))

    return az.grad(loss)(x)


@az.program
def several(t: Vector, x: Coefficients) -> Any:
    """Several reductions of what is stored."""
    rows = az.map(lambda v: powers(v, x), t)

    def reduced(reduce: Any) -> Any:
        return az.generate(x.shape[0], lambda j: reduce(az.generate(t.shape[0], lambda i: t[i] * rows[i, j])))

    return reduced(az.max), reduced(az.sum), reduced(az.min)


@az.program
def backwards(t: Vector, x: Coefficients) -> Any:
    """A sum in which each point meets another one."""
    rows = az.map(lambda v: powers(v, x), t)
    return az.generate(x.shape[0], lambda j: az.sum(az.generate(t.shape[0], lambda i: rows[i, j] * rows[::-1][i, j])))


@az.program
def kept(t: Vector, x: Coefficients) -> Any:
    """Sums of what another loop reads, too."""
    rows = az.map(lambda v: powers(v, x), t)
    sums = az.generate(x.shape[0], lambda j: az.sum(az.generate(t.shape[0], lambda i: t[i] * rows[i, j])))
    return sums, az.map(lambda r: r @ sums, rows)


def expected(name: str, t: Any, x: Any) -> tuple[Any, ...]:
    rows = t[:, None] ** np.arange(1, len(x) + 1)
    weighted = t[:, None] * rows
    match name:
        case "fitted":
            return (2 * (rows @ x - t) @ rows,)
        case "several":
            return np.max(weighted, 0, initial=-np.inf), np.sum(weighted, 0), np.min(weighted, 0, initial=np.inf)
        case "backwards":
            return (np.sum(rows * rows[::-1], axis=0),)
    return t @ rows, rows @ (t @ rows)


PROGRAMS = (fitted, several, backwards, kept)


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


@pytest.mark.parametrize("m", [0, 1, 6, 33])
@pytest.mark.parametrize("n", [0, 1, 7, 511, 512, 513, 2600])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_values(program: Any, n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    t, x = rng.uniform(-1, 1, n), rng.standard_normal(m)
    found = [az.compile(program, threads=threads)(t, x) for threads in (1, 2, 3)]
    for one, *others, wanted in zip(*[np_results(each) for each in found], expected(program.name, t, x), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-12, atol=1e-12)
        for other in others:
            np.testing.assert_array_equal(one, other)


def np_results(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_loops_touch_nothing_of_other_chunks(program: Any) -> None:
    t, x = np.linspace(-1, 1, 1030), np.ones(3)
    found = np_results(plain_loops.lowered(program, host_target(), (t, x)))
    for each, wanted in zip(found, expected(program.name, t, x), strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-12, atol=1e-12)


def test_what_is_stored_is_as_long_as_a_chunk() -> None:
    text = loops_of(fitted)
    assert "f64[m, minimum(n, 512) + 8]" in text and "f64[m, n]" not in text
    assert "f64[m, n]" in loops_of(fitted, fuse_tiles=False)
    planned = az.compile(fitted, threads=1).peak_bytes
    assert planned(np.ones(20000), np.ones(100)) < 1e6 and planned(np.ones(10), np.ones(100)) < 1e5


def test_sums_of_other_points_are_made_afterwards() -> None:
    assert loops_of(backwards) == loops_of(backwards, fuse_tiles=False)


def test_several_reductions_are_made_in_the_same_chunks() -> None:
    text = loops_of(several)
    assert "f64[m, n]" not in text and text.count("lanes") == 4


def test_what_others_read_is_stored_whole() -> None:
    text = loops_of(kept)
    assert "f64[m, n]" in text and text != loops_of(kept, fuse_tiles=False)


def test_what_is_not_a_number_stays_in_its_column() -> None:
    t, x = np.linspace(-1, 1, 2000), np.ones(4)
    t[700] = -np.inf
    largest, total, least = az.compile(several)(t, x)
    np.testing.assert_array_equal(largest, [np.inf, 1.0, np.inf, 1.0])
    np.testing.assert_array_equal(total, [np.inf, -np.inf, np.inf, -np.inf])
    assert (least[[1, 3]] == -np.inf).all()
    t[1500] = np.nan
    assert np.isnan(np.stack(az.compile(several)(t, x))).all()


def test_what_is_stored_before_a_sum_keeps_it_apart() -> None:
    """A row that stores something else before its sum would store it once a chunk."""
    target = replace(host_target(), transformations=Transformations(fuse_tiles=False, memory_order=False))
    function = plain_loops.loops_of(fitted, target, (np.ones(3), np.ones(3)))
    assert summed_in_chunks(function, Decisions()) != function
    last = function.body[-1]
    assert isinstance(last, ir.For)
    result, row = function.results[0], (ir.Variable(last.variable, i64),)
    storing = replace(last, body=(ir.Store(result, row, ir.Constant(0.0, f64)), *last.body))
    other = replace(function, body=(*function.body[:-1], storing))
    assert summed_in_chunks(other, Decisions()) == other


def test_chunks_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(host_target(), transformations=Transformations(fuse_tiles=False, memory_order=False))
    function = plain_loops.loops_of(several, target, (np.ones(3), np.ones(3)))
    assert summed_in_chunks(function, Decisions()) != function
    monkeypatch.setattr(chunking, "TILED_FUSION_STATEMENTS", 5)
    assert summed_in_chunks(function, Decisions()) == function
