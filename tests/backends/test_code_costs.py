"""What the code of a program costs, nest by nest: estimated (``backends/cost.py``), and measured by a profile."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case
from programs.case import sampled

import adze as az


@az.program
def product(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    return a @ b


@az.program
def scaled(x: az.Array[az.f64, "n m"], t: az.f64) -> az.Array[az.f64, "n m"]:
    return t * x


@az.program
def steps(x: az.Array[az.f64, "n"], count: az.i64) -> az.Array[az.f64, "n"]:
    """Each step takes a sum of all, so that it is a nest, and a map."""
    return az.fori_loop(0, count, lambda i, s: s * 0.5 + az.sum(s), x)


@az.program
def gathered(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"]) -> az.Array[az.f64, "m"]:
    return x[places]


def test_operations_and_bytes_are_counted() -> None:
    (row,) = az.compile(scaled).cost(sizes={"n": 1000, "m": 2000}).rows
    assert row.operations == 1000 * 2000 and row.bytes == 2 * 8 * 1000 * 2000 and row.runs == 1
    multiplied = az.compile(product).cost(sizes={"n": 500, "m": 400, "k": 300})
    operations = sum(row.operations for row in multiplied.rows)
    assert operations == pytest.approx(2 * 500 * 400 * 300, rel=0.1)  # parts of the tiles at borders are idle


def test_sizes_cost_what_arguments_of_these_sizes_do() -> None:
    compiled = az.compile(product, threads=2)
    by_arguments = compiled.cost(np.empty((300, 200)), np.empty((200, 100)))
    assert by_arguments == compiled.cost(sizes={"n": 300, "m": 200, "k": 100})
    assert by_arguments.seconds == pytest.approx(sum(row.seconds for row in by_arguments.rows))


def test_what_does_more_costs_more() -> None:
    """Larger arrays; rows that are not read in the order of memory; places that data tells; one thread."""
    compiled = az.compile(scaled, threads=1)
    seconds = [compiled.cost(sizes={"n": n, "m": 1000}).seconds for n in (10, 100, 1000, 10_000)]
    assert all(3 < more / less < 40 for less, more in itertools.pairwise(seconds))
    two = az.compile(scaled, threads=2).cost(sizes={"n": 1000, "m": 1000}).seconds
    assert 1.5 < seconds[2] / two <= 2
    n = 4_000_000
    copied = az.compile(az.program(lambda x: x * 2.0).at(az.Array[az.f64, "n"]), threads=1)
    apart = az.compile(gathered, threads=1).cost(sizes={"n": n, "m": n}).seconds
    assert apart > 3 * copied.cost(sizes={"n": n}).seconds


def test_loops_whose_extents_vary_are_taken_in_the_middle() -> None:
    @az.program
    def triangle(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return az.generate(x.shape[0], lambda i: az.fori_loop(0, i, lambda j, s: s + az.sin(x[j]), 0.0))

    n = 1001
    compiled = az.compile(triangle, schedule={"distribute": False})
    (row,) = [row for row in compiled.cost(sizes={"n": n}).rows if row.operations > n]
    cost = az.sin.cost + 1
    assert row.operations == pytest.approx(cost * n * (n - 1) / 2, rel=0.05)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_profile_has_the_rows_of_the_estimate(threads: int) -> None:
    x = np.random.default_rng(0).standard_normal(5000)
    compiled = az.compile(steps, threads=threads)
    found, estimated = compiled.profile(x, 7), compiled.cost(x, 7)
    assert {row.number: row.name for row in found.rows} == {row.number: row.name for row in estimated.rows}
    assert {row.number: row.runs for row in found.rows} == {row.number: row.runs for row in estimated.rows}
    assert 7.0 in {row.runs for row in found.rows}
    assert all(row.seconds > 0 for row in found.rows if row.runs)
    assert 0 < sum(row.seconds for row in found.rows) < found.seconds
    assert [row.seconds for row in found.rows] == sorted([row.seconds for row in found.rows], reverse=True)
    lines = str(found).splitlines()
    assert len(lines) == len(found.rows) + 2 and "operations" in lines[0] and lines[-1].startswith("in all")


def test_a_profile_of_code_that_sizes_choose() -> None:
    """Branches are made on demand, each a module of its own that reads the clock, too."""
    a, b = np.ones((200, 150)), np.ones((150, 100))
    compiled = az.compile(product)
    np.testing.assert_array_equal(compiled(a, b), 150.0)
    rows = compiled.profile(a, b).rows
    assert any(row.seconds > 0 and row.runs == 1 for row in rows) and any(row.runs == 0 for row in rows)
    small = compiled.profile(np.ones((2, 3)), np.ones((3, 2))).rows
    assert {row.number for row in rows if row.runs} != {row.number for row in small if row.runs}


def test_what_raises_in_a_call_raises_in_a_profile() -> None:
    with pytest.raises(IndexError, match=r"test_code_costs\.py"):
        az.compile(gathered).profile(np.ones(3), np.array([5]))
    with pytest.raises(TypeError, match=r"scaled: cost takes a value for each size, which are: m, n \(at .*costs.py"):
        az.compile(scaled).cost(sizes={"n": 3})


def test_the_cost_of_a_program_may_be_that_of_its_code() -> None:
    x = np.ones((1000, 2000))
    code = az.cost(scaled, target="llvm")
    assert code.at(n=1000, m=2000).rows[0].operations == az.cost(scaled).at(n=1000, m=2000).operations == 2_000_000
    assert code(x, 2.0) == az.compile(scaled).cost(x, 2.0)
    with pytest.raises(TypeError, match=r"scaled: cost takes a value for each size, which are: m, n \(at .*costs.py"):
        code.at(n=3)
    with pytest.raises(ValueError, match="'cuda'"):
        az.cost(scaled, target="cuda")
    with pytest.raises(TypeError, match=r"of a program, not of a term.*costs.py"):
        az.cost(scaled.at().term, target="llvm")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"simplified= is for counts.*costs.py"):
        az.cost(scaled, simplified=False, target="llvm")  # type: ignore[call-overload]


def test_a_parameter_may_be_called_sizes() -> None:
    @az.program
    def named(sizes: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return sizes + 1

    assert az.compile(named).cost(sizes=np.ones(10_000)).rows[0].operations == pytest.approx(10_000, rel=0.01)


@pytest.mark.unguarded
@sampled(CASES)
def test_every_program_has_an_estimate(case: Case) -> None:
    compiled = az.compile(case.program)
    for arguments in case.arguments:
        rows = compiled.cost(*arguments).rows
        numbers: list[Any] = [n for r in rows for n in (r.seconds, r.operations, r.bytes, r.runs)]
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
