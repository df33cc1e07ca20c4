"""How far from its own a row reads, of loops that are written down: no name is taken for what it is elsewhere."""

import itertools
import time

import pytest

from adze.backends import ir
from adze.backends.decisions import Decisions
from adze.backends.schedule.loops.time_skewing import skewed
from adze.core.types import bool_, f64

n, i, k, near = (ir.Variable(name) for name in ("n", "i", "k", "near"))
U = ir.Buffer("u", f64, (ir.Constant(2), n))
SIDE = ir.Variable("side", bool_)


def _is_skewed(*rows: ir.Statement, extent: ir.Expression = n) -> bool:
    """Whether steps go through several at a time, whose rows are these statements."""
    steps = ir.For("t", ir.Variable("n"), "sequential", (ir.For("i", extent, "parallel", rows),))
    made = skewed(ir.Function("f", ("n",), (), (), (steps,)), Decisions({}))
    return any(isinstance(each, ir.Let) for each in made.body)


def _moved(row: ir.Expression) -> ir.Store:
    """What a row of the next step is made of: another row of this one."""
    return ir.Store(U, (ir.Constant(1), i), ir.Load(U, (ir.Constant(0), row), (1,)))


def _loop(extent: int) -> ir.For:
    return ir.For("k", ir.Constant(extent), "sequential", (_moved(i + k),))


def test_a_name_that_several_branches_bind() -> None:
    few, many = (ir.If(SIDE, (_loop(a),), (_loop(b),)) for a, b in ((3, 2), (1000, 2)))
    assert _is_skewed(few) and not _is_skewed(many)
    let = (ir.Let("k", ir.Constant(1)), _moved(i + k))
    assert not _is_skewed(ir.If(SIDE, (_loop(1000),), let))
    data = (ir.Declare("k", ir.Load(ir.Buffer("p", n.type, (n,)), (i,))), _moved(i + k))
    assert not _is_skewed(ir.If(SIDE, let, data)) and _is_skewed(*let)


@pytest.mark.parametrize("extent", [n, ir.Constant(50)])
def test_clamped_rows(extent: ir.Expression) -> None:
    last = ir.Constant(49) if isinstance(extent, ir.Constant) else n - 1
    clamped = ir.maximum(ir.minimum(i + 2, last), 0)
    assert _is_skewed(_moved(clamped), extent=extent)
    assert not _is_skewed(_moved(last - i), extent=extent)


def test_names_that_are_used_twice_are_looked_into_once() -> None:
    """Each is one row further, or not: 60 of them would take years by all ways."""
    names = [i, *[ir.Variable(f"r{place}") for place in range(60)]]
    lets = [ir.Let(b.name, ir.select(SIDE, a + 1, a)) for a, b in itertools.pairwise(names)]
    start = time.perf_counter()
    assert _is_skewed(*lets, _moved(names[-1]))
    assert time.perf_counter() - start < 5
