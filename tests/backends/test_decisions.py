"""Decisions (``backends/decisions.py``): each can be had either way, and says what either way costs."""

from typing import Any

import numpy as np
import pytest
from agreement import magnitude, rounded
from programs import CASES, Case, sampled

import adze as az

pytestmark = pytest.mark.unguarded  # each decision schedules a program again


@az.program
def spread(x: az.Array[az.f64, "n"]) -> az.f64:
    y = az.exp(x)
    return az.sum(y) + az.max(y)


@az.program
def softmax(x: az.Array[az.f64, "n k"]) -> az.Array[az.f64, "n k"]:
    return az.map(lambda r: az.exp(r - az.max(r)) / az.sum(az.exp(r - az.max(r))), x)


@az.program
def layer(x: az.Array[az.f64, "n k"], w: az.Array[az.f64, "k m"]) -> Any:
    z = x @ w
    return z, az.tanh(z)


def test_decisions_are_told_with_what_either_side_costs() -> None:
    rows = az.compile(spread, threads=1).decisions(sizes={"n": 100_000}).rows
    assert [(row.name.split(":")[0], row.taken) for row in rows] == [("fuse", True), ("fuse", True)]
    for row in rows:
        other = az.compile(spread, threads=1, schedule={"force": {row.name: False}})
        assert row.otherwise == other.cost(sizes={"n": 100_000}).seconds
        assert row.seconds == az.compile(spread, threads=1).cost(sizes={"n": 100_000}).seconds
    assert rows[1].seconds < rows[1].otherwise  # the exponentials are read again


def test_decisions_of_a_call_are_those_of_its_sizes() -> None:
    compiled = az.compile(softmax, threads=1)
    assert compiled.decisions(np.ones((30, 40))) == compiled.decisions(sizes={"n": 30, "k": 40})
    assert compiled.decisions(np.ones((30, 40))).rows[0].seconds < compiled.decisions(np.ones((90, 40))).rows[0].seconds


def test_names_are_of_the_program_where_they_can_be() -> None:
    names = [row.name for row in az.compile(softmax).decisions(sizes={"n": 9, "k": 9}).rows]
    assert names and all("test_decisions.py:" in name for name in names if name.startswith("distribute"))
    table = str(az.compile(softmax).decisions(sizes={"n": 9, "k": 9})).splitlines()
    assert table[0].split() == ["taken", "us", "other", "side"] and len(table) == len(names) + 1


def test_what_is_forced_is_seen_in_the_code() -> None:
    product = az.compile(layer).decisions(sizes={"n": 9, "k": 9, "m": 9}).rows
    assert [row.name.split(":")[0] for row in product] == ["fuse", "contract", "memory_order"]
    apart = {product[0].name: False}
    assert az.compile(layer).nests.count("nest ") == 1
    assert az.compile(layer, schedule={"force": apart}).nests.count("nest ") == 2
    assert "panel" in az.compile(layer).loops
    name = next(row.name for row in product if row.name.startswith("contract"))
    assert "panel" not in az.compile(layer, schedule={"force": {name: False}}).loops


def test_what_is_not_decided_here_cannot_be_forced() -> None:
    with pytest.raises(ValueError, match=r"forces 'fuse: y with x', which is not decided here; .* are: 'fuse: "):
        az.compile(spread, schedule={"force": {"fuse: y with x": False}}).warm()
    with pytest.raises(ValueError, match=r"'force' as a dictionary from names of decisions to True or False, not True"):
        az.compile(spread, schedule={"force": True})
    with pytest.raises(TypeError, match="decisions takes a value for each size, which are: n"):
        az.compile(spread).decisions(sizes={"m": 3})


@pytest.mark.rest
def test_what_other_code_of_a_program_decides_may_be_forced() -> None:
    """Small sizes that nobody annotated have code of their own."""

    def scores(x: Any, w: Any) -> Any:
        z = x @ w
        return az.tanh(z), az.sum(az.exp(z)), az.max(z)

    few, many = (np.ones((3, 4)), np.ones((4, 5))), (np.ones((300, 40)), np.ones((40, 5)))
    names, others = ([row.name for row in az.compile(scores).decisions(*given).rows] for given in (few, many))
    name = next(name for name in names if name not in others)
    compiled = az.compile(scores, schedule={"force": {name: False}})
    compiled(*few)
    with pytest.warns(UserWarning, match="which is not decided here"):
        found = compiled(*many)
    np.testing.assert_allclose(found[0], np.tanh(40.0))


def test_what_is_forced_is_true_or_false() -> None:
    with pytest.raises(ValueError, match=r"to True or False, not {'fuse: y with x': 1}"):
        az.compile(spread, schedule={"force": {"fuse: y with x": 1}})
    with pytest.raises(ValueError, match="from names of decisions"):
        az.compile(spread, schedule={"force": {"fuse: y with x": True, 2: False}})


@pytest.mark.rest
def test_a_sum_that_changes_places_is_forced_for_all_sizes() -> None:
    @az.program
    def chain(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"], v: az.Array[az.f64, "k"]) -> Any:
        return az.map(lambda row: az.sum(az.map(lambda z, s: z * s, row, v)), a @ b)

    compiled = az.compile(chain)
    rows = compiled.decisions(sizes={"n": 40, "m": 30, "k": 20}).rows
    (name,) = [row.name for row in rows if row.name.startswith("reassociate")]
    forced = {side: az.compile(chain, schedule={"force": {name: side}}) for side in (True, False)}
    a, b, v = np.ones((4, 3)), np.arange(6.0).reshape(3, 2), np.array([1.0, -2.0])
    for side, run in forced.items():
        np.testing.assert_allclose(run(a, b, v), a @ b @ v)
        (found,) = [row for row in run.decisions(a, b, v).rows if row.name == name]
        assert found.taken == side
    assert forced[False].loops != forced[True].loops
    assert "reassociat" not in forced[False].schedule and "summed before" not in forced[False].schedule


@sampled(CASES, 8, long=3)
def test_the_other_side_of_a_decision_means_the_same(case: Case) -> None:
    arguments = case.arguments[0]
    instance = case.program.instance_for(case.program.bind(arguments, {}))
    arrays, sizes = instance.signature.convert(case.program.leaves(arguments))
    largest = magnitude(instance.term, arrays, sizes)
    wanted = az.evaluate(case.program)(*arguments)
    for row in az.compile(case.program).decisions(*arguments).rows:
        other = az.compile(case.program, schedule={"force": {row.name: not row.taken}})
        rounded(other(*arguments), wanted, largest)
