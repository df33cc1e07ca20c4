"""Loops store what is read of their arrays, equal loops are one, and reads of what was just written are known.

Every program is simplified and run on several sizes, nothing among them, and gives the bits that it gives as written.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain import Plain, instance

import adze as az
from adze.core import terms
from adze.core.environment import Env
from adze.core.program import Program
from adze.core.types import rank
from adze.interpreters.simplify import simplify
from adze.interpreters.simplify.minimum_cut import minimum_cut

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


def simplified(program: Program) -> terms.Block:
    """The simplified term, with equal results on vectors of 0, 1, 2 and 5 numbers."""
    for n in (0, 1, 2, 5):
        x = np.linspace(0.5, 1.0, n)
        block = simplify(instance(program, (x,)).term)
        az.check(block)
        results = block.interpret(Plain({"n": n}))(Env(), [x])
        expected = az.evaluate(program)(x)
        for result, value in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert np.asarray(result).tobytes() == np.asarray(value).tobytes()
    return block


def stored(block: terms.Block) -> list[int]:
    """The ranks of what the loops of a block store, in their order."""
    return [
        rank(type)
        for operation in block.bindings
        if operation.op == "loop"
        for type in operation.types[len(operation.args) - 1 :]
    ]


def count(block: terms.Block, name: str) -> int:
    """How often a construct or a primitive stands in a block."""
    return sum(
        [
            (operation.static[0].name if operation.op == "primitive" else operation.op) == name
            for operation in block.bindings
        ]
        + [count(inner, name) for operation in block.bindings for inner in operation.blocks]
    )


def states(x: Any, step: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The last state, and the state before each step i, which makes ``step(i, s)`` of s."""
    last, before = az.scan_loop(lambda s, i: (step(i, s), s), x, az.iota(az.size(x)))
    return last, before


def halved(i: Any, s: Any) -> Any:
    """Two steps write each place: what is written once is stored nowhere (``write_once.py``)."""
    return az.update(s, i // 2, s[i] * 0.5 + s[0])


def back(n: Any, read: Callable[[Any], Any]) -> Any:
    """A loop in order over the steps, from the last to the first."""
    return az.fori_loop(0, n, lambda j, t: t * 0.5 + read(n - 1 - j), 0.0)


@az.program
def one_element(x: Vector) -> az.f64:
    n, (_, before) = az.size(x), states(x, halved)
    return back(n, lambda p: before[p, p] * before[p, 0])


@az.program
def in_the_same_order(x: Vector) -> az.f64:
    _, before = states(x, halved)
    return az.fori_loop(0, az.size(x), lambda j, t: t * 0.5 + before[j, j], 0.0)


@az.program
def in_a_map(x: Vector) -> Vector:
    _, before = states(x, halved)
    return az.generate(az.size(x), lambda i: before[i, i] + 1.0)


@az.program
def sums(x: Vector) -> az.f64:
    n, (_, before) = az.size(x), states(x, halved)
    return back(n, lambda p: az.sum(before[p]))


@az.program
def with_the_last_state(x: Vector) -> tuple[az.f64, Vector]:
    n, (last, before) = az.size(x), states(x, halved)
    return back(n, lambda p: before[p, p]), last


@az.program
def costly_at_two_places(x: Vector) -> az.f64:
    n, (_, before) = az.size(x), states(x, halved)

    def step(j: Any, t: Any) -> Any:
        p = n - 1 - j
        y = az.exp(before[p, p])
        return t * y + az.sum(before[p] * y)

    return az.fori_loop(0, n, step, 0.0)


@az.program
def of_an_updated_state(x: Vector) -> az.f64:
    n, (_, before) = az.size(x), states(x, halved)
    return back(n, lambda p: az.update(before[p], p, 2.0)[p * 3 % n])


@pytest.mark.parametrize(
    "program",
    [one_element, in_the_same_order, in_a_map, sums, with_the_last_state, costly_at_two_places, of_an_updated_state],
    ids=lambda program: program.name,
)
def test_numbers_are_stored_where_numbers_are_read(program: Program) -> None:
    assert set(stored(simplified(program))) == {1}


def test_what_is_costly_and_needed_at_two_places_runs_once() -> None:
    assert count(simplified(costly_at_two_places), "exp") == 1


@az.program
def given(x: Vector) -> tuple[az.f64, az.Array[az.f64, "n n"]]:
    n, (_, before) = az.size(x), states(x, halved)
    return back(n, lambda p: before[p, p]), before


@az.program
def of_all_steps(x: Vector) -> az.f64:
    n, (_, before) = az.size(x), states(x, halved)
    return back(n, lambda p: az.sum(before[:, p]))


@az.program
def at_a_place_known_later(x: Vector) -> az.f64:
    n, (_, before) = az.size(x), states(x, halved)

    def step(j: Any, state: Any) -> Any:
        t, place = state
        return t * 0.5 + before[n - 1 - j, place], (place * 3 + 1) % n

    return az.fori_loop(0, n, step, (0.0, 0))[0]


@pytest.mark.parametrize("program", [given, of_all_steps, at_a_place_known_later], ids=lambda program: program.name)
def test_arrays_are_stored_where_they_are_needed(program: Program) -> None:
    assert 2 in stored(simplified(program))


# What is computed anyway


def back_over(x: Any, step: Callable[[Any, Any], Any]) -> Any:
    """A loop in order from the last step to the first, whose state is a vector."""
    n = az.size(x)
    return az.sum(az.fori_loop(0, n, lambda j, t: step(n - 1 - j, t), x))


@az.program
def computed_again(x: Vector) -> az.f64:
    _, before = states(x, lambda i, s: az.tanh(s * 0.5 + x))
    return back_over(x, lambda p, t: (t + before[p]) * az.tanh(before[p] * 0.5 + x))


@az.program
def of_two_arrays(x: Vector) -> az.f64:
    """The forward sweep makes an array that the other only reads elements of."""

    def step(state: Any, _: Any) -> Any:
        c, h = state
        c = c * az.exp(h) + x
        return (c, az.tanh(c)), state

    _, (c, h) = az.scan_loop(step, (x, x), az.iota(az.size(x)))
    return back_over(x, lambda p, t: (t + h[p]) * az.tanh(c[p] * az.exp(h[p]) + x) * c[p])


@az.program
def of_the_step_alone(x: Vector) -> az.f64:
    _, before = states(x, lambda i, s: az.tanh(s * 0.5) * az.exp(x[i] * x))
    return back_over(x, lambda p, t: t * az.tanh(before[p] * 0.5) * before[p] + az.exp(x[p] * x) * t)


@az.program
def in_inner_loops(x: Vector) -> az.f64:
    n = az.size(x)

    def layer(y: Any, w: Any) -> Any:
        y = az.tanh(y * w + x)
        return y, y

    def step(h: Any, i: Any) -> Any:
        return az.scan_loop(layer, x[i] + x, h)[1], h

    _, before = az.scan_loop(step, az.generate((3, n), lambda l, k: x[k] * 0.5), az.iota(n))

    def again(p: Any, t: Any) -> Any:
        _, ys = az.scan_loop(layer, x[p] + x, before[p])
        return t * ys[0] + ys[1] * before[p, 2]

    return back_over(x, again)


@az.program
def in_a_test(x: Vector) -> az.f64:
    """What a branch asks for runs always."""
    _, before = states(x, lambda i, s: az.tanh(s * 0.5 + x))

    def again(p: Any, t: Any) -> Any:
        def choice(t: Any, s: Any, v: Any) -> Any:
            return az.cond(az.tanh(s * 0.5 + v) > 0.7, lambda: t * s, lambda: t - s)

        return az.map(choice, t, before[p], x)

    return back_over(x, again)


@pytest.mark.parametrize(
    "program",
    [computed_again, of_two_arrays, of_the_step_alone, in_inner_loops, in_a_test],
    ids=lambda program: program.name,
)
def test_what_is_costly_and_computed_anyway_is_stored(program: Program) -> None:
    last = [operation for operation in simplified(program).bindings if operation.op == "loop"][-1]
    assert [count(last.blocks[0], name) for name in ("tanh", "exp", "loop")] == [0, 0, 0]


@az.program
def derived(x: Vector) -> az.f64:
    """Cosines are not computed by the forward sweep: to store them saves nothing."""
    _, before = states(x, lambda i, s: az.sin(s * 0.5 + x))
    return back_over(x, lambda p, t: (t + before[p]) * az.cos(before[p] * 0.5 + x))


def test_inner_loops_that_require_something_run_once() -> None:
    """The return sweep requires nothing, and finds what the loop stored in the forward sweep."""

    @az.program
    def f(x: Vector, at: az.Array[az.i64, "m"]) -> az.f64:
        def row(above: Any, v: Any) -> Any:
            def cell(left: Any, given: Any) -> Any:
                y = az.tanh(left * given[0] + x[given[1]])
                return y, y

            ys = az.scan_loop(cell, v, (above, at))[1]
            return ys, az.sum(ys)

        return az.sum(az.scan_loop(row, az.zeros(at.shape[0]), x)[1])

    x, at = np.linspace(0.2, 1.0, 4), np.array([3, 0, 2])
    block = simplify(instance(az.grad(f), (x, at)).term)
    assert count(block, "loop") == 4  # rows and cells, forwards and back
    step = 1e-6 * np.eye(4)
    slopes = [(az.evaluate(f)(x + e, at) - az.evaluate(f)(x - e, at)) / 2e-6 for e in step]
    [found] = [block.interpret(Plain({"n": 4, "m": 3}))(Env(), [x, at])]
    np.testing.assert_allclose(found[0], slopes, rtol=1e-7)
    with pytest.raises(IndexError):
        az.evaluate(az.grad(f))(x, np.array([3, 4, 2]))


def test_what_is_not_computed_anyway_stays() -> None:
    assert stored(simplified(derived)) == [2]


def test_segments_run_again() -> None:
    """The states of the inner steps would take the memory that checkpoints are there to save."""

    @az.program
    def f(x: Vector) -> az.f64:
        step = lambda i, s: az.tanh(s * 0.5 + x)  # noqa: E731
        return az.sum(az.fori_loop(0, 10 * az.size(x), step, x, checkpoint="sqrt"))

    block = simplify(instance(az.grad(f), (np.ones(3),)).term)
    outer = next(operation for operation in block.bindings if operation.op == "loop")
    assert [rank(type) for type in outer.types[1:]] == [2]


# Cuts


def test_the_cut_is_the_lightest() -> None:
    """Against all sets of vertices, in small random graphs."""
    random = np.random.default_rng(0)
    for _ in range(60):
        vertices = list(range(random.integers(1, 7)))
        weights = {v: int(random.integers(0, 5)) for v in vertices}
        before = {v: [u for u in vertices[:v] if random.random() < 0.5] for v in vertices if random.random() < 0.8}
        sinks = [v for v in vertices if random.random() < 0.4]

        def separates(cut: set[int], before: dict[int, list[int]] = before, sinks: list[int] = sinks) -> bool:
            reached, waiting = set[int](), [v for v in sinks if v not in cut]
            while waiting:
                v = waiting.pop()
                if v not in before:
                    return False
                new = [u for u in before[v] if u not in cut and u not in reached]
                reached.update(new)
                waiting.extend(new)
            return True

        cut = minimum_cut(weights, before, sinks)
        sets = itertools.chain.from_iterable(itertools.combinations(vertices, k) for k in range(len(vertices) + 1))
        assert separates(cut)
        assert sum(weights[v] for v in cut) == min(sum(weights[v] for v in s) for s in sets if separates(set(s)))


def test_the_cut_and_what_is_behind_it_cost_least() -> None:
    """Against all divisions: what is in front is stored if something behind needs it, what is behind has its price."""
    random = np.random.default_rng(1)
    for _ in range(60):
        vertices = list(range(random.integers(1, 7)))
        weights = {v: int(random.integers(0, 5)) for v in vertices}
        before = {v: [u for u in vertices[:v] if random.random() < 0.5] for v in vertices if random.random() < 0.8}
        sinks = [v for v in vertices if random.random() < 0.4]
        prices = {v: int(random.integers(0, 5)) for v in before}

        def cost(behind: set[int], weights: Any = weights, before: Any = before, given: Any = (sinks, prices)) -> int:
            """What must be stored, and what is computed again, if the others are computed in front."""
            needed, computed, stack = set[int](), set[int](), list(given[0])
            while stack:
                v = stack.pop()
                if v not in needed | computed:
                    (computed if v in behind else needed).add(v)
                    stack.extend(before[v] if v in behind else ())
            return sum(weights[v] for v in needed) + sum(given[1][v] for v in computed)

        cut = minimum_cut(weights, before, sinks, prices)
        inner = itertools.chain.from_iterable(itertools.combinations(before, k) for k in range(len(before) + 1))
        assert cost(set(before) - cut) == min(cost(set(behind)) for behind in inner)


# Merging. Requirements have an order, so of two loops with such in them both stay as they are.


def doubled(i: Any, s: Any) -> Any:
    return az.update(s, i, s[i] * 2.0)


@az.program
def two_outputs(x: Vector) -> tuple[Vector, Vector, Vector]:
    places = az.iota(az.size(x))
    last, first = az.scan_loop(lambda s, i: (doubled(i, s), s[i]), x, places)
    _, second = az.scan_loop(lambda s, i: (doubled(i, s), s[i] * 0.5), x, places)
    return first, second, last


@az.program
def of_what_the_first_gives(x: Vector) -> tuple[Vector, Vector]:
    places = az.iota(az.size(x))
    _, first = az.scan_loop(lambda s, i: (doubled(i, s), s[i]), x, places)
    _, second = az.scan_loop(lambda s, i: (doubled(i, s), s[i] + az.sum(first)), x, places)
    return first, second


@az.program
def from_elsewhere(x: Vector) -> tuple[Vector, Vector]:
    places = az.iota(az.size(x))
    _, first = az.scan_loop(lambda s, i: (doubled(i, s), s[i]), x, places)
    _, second = az.scan_loop(lambda s, i: (doubled(i, s), s[i] * 0.5), x + 1.0, places)
    return first, second


def merged(program: Program) -> int:
    """How many loops are left. (A loop that stores arrays is what makes loops be compared.)"""

    @az.program
    def beside(x: Vector) -> Any:
        return program(x), states(x, doubled)[1] * 2.0

    return count(simplify(instance(beside, (np.ones(3),)).term), "loop") - 1


def test_loops_through_the_same_states_are_one() -> None:
    assert merged(two_outputs) == 0
    assert count(simplified(two_outputs), "loop") == 2


@pytest.mark.parametrize("program", [of_what_the_first_gives, from_elsewhere], ids=lambda program: program.name)
def test_other_loops_are_not(program: Program) -> None:
    assert merged(program) == 1
    assert count(simplified(program), "loop") == 2


def test_loops_with_requirements_stay() -> None:
    @az.program
    def two(x: Vector) -> tuple[Vector, Vector]:
        places = az.iota(az.size(x))
        _, first = az.scan_loop(lambda s, i: (halved(i, s), s[i]), x, places)
        _, second = az.scan_loop(lambda s, i: (halved(i, s), s[0]), x, places)
        return first, second

    assert merged(two) == 2


def test_a_loop_with_requirements_stores_for_one_without() -> None:
    @az.program
    def two(x: Vector) -> tuple[Vector, Vector]:
        places = az.iota(az.size(x))
        _, first = az.scan_loop(lambda s, i: (doubled(i, s), x[s[i].astype(az.i64)]), x, places)
        _, second = az.scan_loop(lambda s, i: (doubled(i, s), s[i]), x, places)
        return first, second

    assert merged(two) == 0
