"""What Smeding and Vákár say of parallel dual numbers, row by row of the table in ``docs/papers.md``.

A test is named for its row. Gradients are taken in evaluate, by a trace, and in compiled code on one, two and three
threads, which agree to the bit; they are compared with derivatives by complex steps of plain Python, or with formulas.
"""

import functools
import math
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from directions import direction, floats, inner, moving
from load import benchmark, example
from programs.functions import HIGHER_ORDER, List, Maybe, linked
from random_functions import random_function

import adze as az

pytestmark = pytest.mark.unguarded

models, stages = benchmark("functions"), example("dual_numbers")


def everywhere(program: az.Program, *arguments: Any) -> list[float]:
    """The gradient by all that moves, as its numbers: that of all interpretations."""
    numbers = tuple(moving(program))
    derivative = az.grad(program, argnums=numbers)
    one, *more = [floats(az.compile(derivative, threads=threads)(*arguments)) for threads in (1, 2, 3)]
    for other in more:
        np.testing.assert_array_equal(np.hstack(one), np.hstack(other))
    for other in (derivative, az.grad(program, argnums=numbers, via="trace")):
        run = az.evaluate(other) if other is derivative else other
        np.testing.assert_allclose(np.hstack(floats(run(*arguments))), np.hstack(one), rtol=1e-11, atol=1e-13)
    return [float(x) for x in np.hstack(one)]


def by_complex_steps(f: Callable[[list[Any]], Any], numbers: Sequence[float]) -> list[float]:
    """The derivatives of an analytic function of numbers, without a difference and so without rounding."""
    steps = [[complex(x, 1e-30 * (k == place)) for k, x in enumerate(numbers)] for place in range(len(numbers))]
    return [f(moved).imag / 1e-30 for moved in steps]


def work(program: az.Program, *arguments: Any) -> int:
    cost = az.cost(program)(*arguments)
    return cost.operations + cost.reads + cost.writes


# The language (sections 5 and 11)


def test_r01_derivatives_are_well_typed() -> None:
    """And what is ill-typed is refused."""
    for case in HIGHER_ORDER[::3]:
        if moving(case.program) and floats(az.evaluate(case.program)(*case.arguments[0])):
            derivative = az.vjp(case.program, argnums=moving(case.program))
            cotangent = direction(az.evaluate(case.program)(*case.arguments[0]), 1)
            az.check(derivative.instance_for(derivative.bind((*case.arguments[0], cotangent), {})).term)
    for wrong in (lambda x: x(x), lambda x: az.function(lambda a: a, az.f64)(x, x), lambda x: az.sin(lambda a: a)):
        with pytest.raises(TypeError):
            az.evaluate(az.program(wrong))(1.0)


OPERATIONS: dict[str, tuple[Any, Any]] = {
    "add": (lambda v, x: v + x, lambda v, x: v + x),
    "subtract": (lambda v, x: v - 2 * x, lambda v, x: v - 2 * x),
    "multiply": (lambda v, x: v * x, lambda v, x: v * x),
    "divide": (lambda v, x: v / (2 + x), lambda v, x: v / (2 + x)),
    "negative": (lambda v, x: -v, lambda v, x: -v),
    "power": (lambda v, x: (v * v + 1) ** x, lambda v, x: (v * v + 1) ** x),
    "exp": (lambda v, x: az.exp(-v), lambda v, x: np.exp(-v)),
    "log": (lambda v, x: az.log(v * v + x), lambda v, x: np.log(v * v + x)),
    "sin": (lambda v, x: az.sin(v), lambda v, x: np.sin(v)),
    "cos": (lambda v, x: az.cos(v), lambda v, x: np.cos(v)),
    "tanh": (lambda v, x: az.tanh(v), lambda v, x: np.tanh(v)),
    "sqrt": (lambda v, x: az.sqrt(v * v + 1), lambda v, x: np.sqrt(v * v + 1)),
    "maximum": (lambda v, x: az.maximum(v, x * x), lambda v, x: v if v.real > (x * x).real else x * x),
    "minimum": (lambda v, x: az.minimum(v, x * x), lambda v, x: v if v.real < (x * x).real else x * x),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_r02_partial_derivatives(name: str) -> None:
    """Of an operation that is a function, applied three times by a recursion."""
    operation, in_numpy = OPERATIONS[name]

    @az.program
    def repeated(x: az.f64, n: az.i64) -> az.f64:
        f = az.function(lambda v: operation(v, x), az.f64)
        go = az.fix(
            lambda self, k, v: az.cond(k == 0, lambda: v, lambda: self(k - 1, f(v))), az.i64, az.f64, result=az.f64
        )
        return go(n, 1.5 * x)

    def plain(numbers: list[Any]) -> Any:
        (x,) = numbers
        return in_numpy(in_numpy(in_numpy(1.5 * x, x), x), x)

    np.testing.assert_allclose(everywhere(repeated, 0.7, 3), by_complex_steps(plain, [0.7]), rtol=1e-12)


def test_r03_the_running_example() -> None:
    """Section 5: ``s -> (t, t_ -> s_)`` of ``x (x + y)`` at (12, 13), for a cotangent of 1."""
    assert everywhere(stages.running, 12.0, 13.0) == [37, 12]
    result, *cotangents = az.compile(az.vjp(stages.running, argnums=(0, 1)))(12.0, 13.0, 1.0)
    assert (result, cotangents) == (300, [37, 12])


def test_r11_recursion_choices_and_numbers_that_do_not_move() -> None:
    """Data decide how deep a recursion goes; there are sums of types, signs, and integers."""

    @az.program
    def halved(x: az.f64, there: Maybe[az.f64], k: az.i64) -> az.f64:
        go = az.fix(
            lambda self, v, steps: az.cond(v < 1, lambda: v * steps, lambda: self(v / 2, steps + k)),
            az.f64,
            az.i64,
            result=az.f64,
        )
        return az.case(there, Nothing=lambda: 0.0, Just=lambda y: y * go(x, 1)) + az.sign(x) * x

    for x, steps in ((0.5, 1), (6.0, 7), (1000.0, 21)):
        scale = 2.0 ** -((steps - 1) // 2)
        assert everywhere(halved, x, Maybe.Just(3.0), 2) == [3 * scale * steps + 1, x * scale * steps]
        assert everywhere(halved, x, Maybe.Nothing(), 2) == [1]


@pytest.mark.rest
def test_r11_a_derivative_ends_where_the_program_does() -> None:
    program = """
import adze as az
@az.program
def f(x: az.f64, n: az.i64) -> az.f64:
    go = az.fix(lambda self, k: az.cond(k == 0, lambda: 1.0, lambda: x * self(k - 1)), az.i64, result=az.f64)
    return go(n)
for run in (az.compile(f), az.compile(az.grad(f))):
    try:
        run(2.0, -1)
    except RecursionError as error:
        print("no end")
    print(run(2.0, 3))
"""
    surroundings = {**os.environ, "ADZE_STACK_MB": "64"}
    said = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:4] == ["no end", "8.0", "no end", "12.0"]


def test_r12_types_of_the_user() -> None:
    values = [0.5, -1.0, 2.0, 3.5, -0.25]
    wanted = [math.sin(v) + v * math.cos(v) for v in values]
    for tree in (models.of_leaves(values), models.degenerate(values)):
        np.testing.assert_allclose(everywhere(models.tree_sum, tree), wanted, rtol=1e-12)

    @az.program
    def pairs(xs: List[tuple[az.f64, az.i64]]) -> az.f64:
        go = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: 1.0, Cons=lambda p, rest: p[0] * p[1] * self(rest)),
            List[tuple[az.f64, az.i64]],
            result=az.f64,
        )
        return go(xs)

    assert everywhere(pairs, linked([(2.0, 3), (5.0, 1)])) == [15, 6]


# Each backpropagator once (sections 6 to 10)


@pytest.mark.parametrize("n", [1, 2, 7, 14])
def test_r04_calls_of_backpropagators(n: int) -> None:
    """Without factoring as many as there are paths; the gradients of Adze grow as the program."""
    found = [stages.calls(stage(), n) for stage in (stages.Naive, stages.Staged, stages.Accumulated)]
    assert found == [2**n - 1, n, n] and everywhere(stages.doublings(n), 1.0) == [2.0**n]
    assert work(az.grad(doubled), 1.0, 2 * n) - work(az.grad(doubled), 1.0, n) <= 20 * n


@az.program
def doubled(x: az.f64, n: az.i64) -> az.f64:
    go = az.fix(
        lambda self, y, k: az.cond(k == 0, lambda: y, lambda: self(az.inspect(y, "y") + y, k - 1)),
        az.f64,
        az.i64,
        result=az.f64,
    )
    return go(x, n)


def test_r05_cotangents_meet_before_they_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Section 6: 25 is due at x and 12 at the sum after the product. A value that is read twice is swept once."""
    run = stages.Staged()
    steps = [(list(known), due) for known, due in run.maps(run.run(stages.running, 12.0, 13.0), 1.0)]
    assert steps[1] == ([0, 0], {0: 25, 2: 12})
    assert az.evaluate(az.grad(doubled))(1.0, 3) == 8
    shown = re.findall(r"y cotangent = ([\d.]+)", capsys.readouterr().out)
    assert shown == ["1.0", "2.0", "4.0"]  # from one of two reads; the other is the value beside what is shown


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_r05_each_entry_is_resolved_once_after_all_that_read_it(threads: int) -> None:
    """Of a recursion with forks whose numbers are read by both branches, and by what comes after: 0 is evaluate."""
    happened: list[tuple[str, int]] = []

    def noted(what: str, **rules: Any) -> Any:
        def note(number: Any, x: Any) -> Any:
            happened.append((what, int(number)))
            return x

        return az.operation(what, numpy=note, result=lambda number, x: x, **rules)

    pulled = noted("pulled")
    entry = noted("entry", derivative={"vjp": lambda primals, bar: (None, pulled(primals[0], bar))})

    @az.program
    def tree(x: az.f64, depth: az.i64) -> az.f64:
        @az.fix
        def node(self: Any, number: az.i64, v: az.f64) -> az.f64:
            def inner() -> Any:
                mine = entry(number, v * 1.01)
                left, right = az.par(lambda: self(2 * number, mine), lambda: self(2 * number + 1, mine))
                return left * right + mine

            return az.cond(number >= 2**depth, lambda: entry(number, v * v), inner)

        return node(1, x)

    depth, run = 6, az.evaluate if not threads else functools.partial(az.compile, threads=threads)
    slope = run(az.grad(tree))(0.5, depth)
    order = {event: place for place, event in enumerate(happened)}
    assert len(order) == len(happened) == 2 * (2 ** (depth + 1) - 1)
    for number in range(1, 2**depth):
        for child in (2 * number, 2 * number + 1):
            assert order["entry", number] < order["entry", child] < order["pulled", child] < order["pulled", number]
    assert math.isclose(slope, (run(tree)(0.5 + 1e-6, depth) - run(tree)(0.5 - 1e-6, depth)) / 2e-6, rel_tol=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_r06_all_stages_agree(seed: int) -> None:
    """On random programs in which numbers are shared. (The Cayley transform is no stage here: see the table.)"""
    random = np.random.default_rng(seed)
    picks = random.integers(0, 4, 12), random.integers(0, 1000, (12, 2))

    @az.program
    def straight(x: az.f64, y: az.f64) -> az.f64:
        numbers: list[Any] = [x, y]
        for which, places in zip(*picks, strict=True):
            a, b = [numbers[-1 - place % min(len(numbers), 4)] for place in places]
            numbers.append((a + b, a * az.sin(b), a - 0.5 * b, az.exp(-a * a))[which])
        return numbers[-1]

    inputs = tuple(random.uniform(-1, 1, 2))
    wanted = [float(x or 0) for x in az.evaluate(az.grad(straight, argnums=(0, 1)))(*inputs)]
    for stage in stages.STAGES:
        run = stage()
        np.testing.assert_allclose(run.pull(run.run(straight, *inputs), 1.0), wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_r07_the_gradient_has_the_shape_of_the_input(run: Any) -> None:
    """Nested tuples, variants, lists; where an input is no floating number there is None, or the number itself."""
    Input = tuple[tuple[az.f64, az.i64], Maybe[az.f64], List[Maybe[az.f64]]]

    @az.program
    def total(given: Input) -> az.f64:
        (x, k), y, rest = given

        def of(maybe: Any) -> Any:
            return az.case(maybe, Nothing=lambda: 1.0, Just=lambda v: v)

        go = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: 1.0, Cons=lambda m, more: of(m) * self(more)),
            List[Maybe[az.f64]],
            result=az.f64,
        )
        return x * k * of(y) * go(rest)

    rest = linked([Maybe.Just(5.0), Maybe.Nothing(), Maybe.Just(7.0)])
    (x, k), y, found = run(az.grad(total))(((2.0, 3), Maybe.Just(4.0), rest))
    assert (x, k, y) == (420, None, Maybe.Just(210.0))
    assert found == linked([Maybe.Just(168.0), Maybe.Nothing(), Maybe.Just(120.0)])
    assert run(az.grad(total))(((2.0, 3), Maybe.Nothing(), List.Nil())) == ((3, None), Maybe.Nothing(), List.Nil())


@pytest.mark.rest
def test_r08_the_work_of_a_gradient_is_linear() -> None:
    """No logarithm: work for each operation of the program is the same from 10^2 to 10^4."""
    ratios = []
    for n in (100, 1000, 10_000):
        xs = models.linked([1.0] * n)
        ratios.append(work(az.grad(models.dot, argnums=(0, 1)), xs, xs) / work(models.dot, xs, xs))
    assert max(ratios) < 1.02 * min(ratios) < 7


def test_r09_the_log_is_data() -> None:
    """An entry is a cell: the entry before it, and the two partial derivatives that the forward sweep has found.

    There is a log where the cotangent is not known before the end of the forward sweep, as here.
    """

    @az.program
    def half_square(xs: models.Row, ys: models.Row) -> az.f64:
        return models.dot(xs, ys) ** 2 / 2

    text = az.compile(az.grad(half_square, argnums=(0, 1))).loops
    (entry, *_) = re.findall(r"= cell \d+ of (\S.*)", text)
    before, *partials = entry.split(", ")
    assert len(partials) == 2 and re.search(rf"let t\d+: f64, {before}: i64 = call", text)
    assert all(re.search(rf"{partial}: f64", text) for partial in partials)


def test_r10_the_log_of_a_trace() -> None:
    """What the forward sweep has written can be swept by itself; ``everywhere`` compares the gradients."""
    xs, ys = models.linked([2.0, 3.0]), models.linked([5.0, 7.0])
    assert az.trace(models.dot)(xs, ys).result == 31
    assert everywhere(models.dot, xs, ys) == [5, 7, 2, 3]


# Forks (section 12)


def forked(fork: bool) -> az.Program:
    """A product of sums that forks at its start, by two, by three, by a list, and by nothing, and forks inside."""

    def side_by_side(*branches: Any) -> Any:
        return az.par(*branches) if fork else tuple(branch() for branch in branches)

    def sums(x: az.f64, y: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64, v: az.f64) -> az.f64:
            def more() -> Any:
                one, two, three = side_by_side(
                    lambda: self(k - 1, v * x), lambda: self(k - 2, v + y), lambda: az.sin(v) * x
                )
                return one * two + three

            return az.cond(k < 1, lambda: az.cos(v) * y, more)

        first, second = side_by_side(lambda: go(n, x), lambda: go(n - 1, y))
        listed = az.par([lambda k=k: go(k, second) for k in range(3)]) if fork else [go(k, second) for k in range(3)]
        empty, constant = side_by_side(lambda: (), lambda: 2.0)
        return first * sum(listed) + constant * len(empty) + first

    return az.program(sums)


@pytest.mark.rest
def test_r13_forks_mean_what_their_branches_mean() -> None:
    for n in (0, 1, 4):
        with_forks, without = [everywhere(forked(fork), 0.75, -0.5, n) for fork in (True, False)]
        np.testing.assert_allclose(with_forks, without, rtol=1e-12)


def test_r14_a_fork_at_the_start_and_branches_of_nothing() -> None:
    @az.program
    def begins(x: az.f64, n: az.i64) -> az.f64:
        go = az.fix(lambda self, k: az.cond(k == 0, lambda: x, lambda: self(k - 1) * 2), az.i64, result=az.f64)
        a, b, _ = az.par(lambda: go(n), lambda: go(n + 1), lambda: az.par())
        return a * b

    assert everywhere(begins, 3.0, 2) == [2 * 3.0 * 4 * 8]


@pytest.mark.parametrize("seed", range(5))
def test_r15_forks_lead_back_by_forks(seed: int) -> None:
    """What comes after a join is swept before what its branches have done, and that before what came before."""

    @az.program
    def between(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64, v: az.f64) -> az.f64:
            def more() -> Any:
                before = v * az.sin(v)
                left, right = az.par(lambda: self(k // 2, before), lambda: self(k - k // 2 - 1, before + v))
                after = left * right
                last, other = az.par(lambda: self(k // 3, after), lambda: self(k // 4, before * after))
                return last + other

            return az.cond(k < 1, lambda: v * 0.5, more)

        return go(n, x)

    x = float(np.random.default_rng(seed).uniform(0.5, 1.5))
    slope = everywhere(between, x, 6)
    value = az.compile(between)
    h = 1e-6
    np.testing.assert_allclose(slope, (value(x + h, 6) - value(x - h, 6)) / (2 * h), rtol=1e-7)


def test_r16_both_branches_add_to_one_number() -> None:
    """10^5 times each, exactly."""

    @az.program
    def added(x: az.f64, n: az.i64) -> az.f64:
        go = az.fix(
            lambda self, k, s: az.cond(k == 0, lambda: s, lambda: self(k - 1, s + x * 3.0)),
            az.i64,
            az.f64,
            result=az.f64,
        )
        return sum(az.par(lambda: go(n, 0.0), lambda: go(n, 1.0)))

    for threads in (1, 2, 3):
        for _ in range(3):
            assert az.compile(az.grad(added), threads=threads)(1.0, 10**5) == 600_000


def test_r17_nested_forks_end_on_any_number_of_threads() -> None:
    @az.program
    def nested(x: az.f64, depth: az.i64) -> az.f64:
        go = az.fix(
            lambda self, k: az.cond(
                k == 0, lambda: x * x, lambda: sum(az.par(lambda: self(k - 1), lambda: self(k - 1)))
            ),
            az.i64,
            result=az.f64,
        )
        return go(depth)

    for threads in (1, 2, 3, 8):
        assert az.compile(az.value_and_grad(nested), threads=threads)(3.0, 10) == (9 * 2.0**10, 6 * 2.0**10)


SWARM = [(0.5 * i, 0.1, 1.0, 1.0) for i in range(1, 5)]


def test_r18_particles_on_any_number_of_threads() -> None:
    """To the bit. How much faster it is is measured: ``make bench ONLY=functions``."""
    swarm = models.linked([models.Particle(*numbers) for numbers in SWARM])
    one, *more = [az.compile(az.grad(models.particles), threads=threads)(swarm, 1000) for threads in (1, 2, 3, 4)]
    assert all(floats(other) == floats(one) for other in more)
    assert everywhere(models.particles, swarm, 30) == everywhere(models.plain_particles, swarm, 30)


# The programs of the evaluation (section 13)


@az.program
def rotated(q: models.Quaternion, v: models.Vec3) -> az.f64:
    result = models.rotate(q, v)
    return result.x - 2 * result.y + 0.5 * result.z


def rotation(numbers: list[Any]) -> Any:
    w, q, v = numbers[0], np.array(numbers[1:4]), np.array(numbers[4:])
    t = 2 * np.cross(q, v)
    return np.dot([1.0, -2.0, 0.5], v + w * t + np.cross(q, t))


def network(sizes: Sequence[int]) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The parameters of the network with layers of these sizes as lists, and its meaning in numbers."""
    random, shapes = np.random.default_rng(3), [*zip(sizes[1:], sizes, strict=False)]
    arrays = [array for n, m in shapes for array in (random.normal(size=(n, m)), random.normal(size=n))]
    arrays.append(random.normal(size=sizes[0]))

    def plain(numbers: list[Any]) -> Any:
        left = iter(numbers)
        *layers, x = [np.array([next(left) for _ in range(a.size)]).reshape(a.shape) for a in arrays]
        for k in range(0, len(layers), 2):
            x = layers[k] @ x + layers[k + 1]
            x = np.where(x.real > 0, x, 0) if k + 2 < len(layers) else x
        powers = np.exp(x - x[np.argmax(x.real)])
        return np.sum(np.arange(1, len(x) + 1) * powers) / np.sum(powers)

    return [models.linked([models.linked(r) if a.ndim > 1 else r for r in a.tolist()]) for a in arrays], plain


def simulated(numbers: list[Any]) -> Any:
    total = 0
    for k in range(0, len(numbers), 4):
        x, y, u, v = numbers[k : k + 4]
        for _ in range(50):
            pull = 1 / (1 + x * x + y * y)
            u, v = u - 0.01 * pull * x, v - 0.01 * pull * y
            x, y = x + 0.01 * u, y + 0.01 * v
        total += x * y
    return total


def evaluation() -> dict[str, tuple[az.Program, tuple[Any, ...], Callable[[list[Any]], Any]]]:
    """The six programs, each with arguments and its meaning in numbers."""
    xs, ys = [1.0, 2.0, -3.0, 0.5], [3.0, 5.0, 7.0, -9.0]
    rows = [xs, ys, [0.25, -1.0, 4.0, 2.0]]
    parameters, plain = network((5, 7, 4, 3))
    swarm = models.linked([models.Particle(*numbers) for numbers in SWARM])
    q, v = models.Quaternion(4.0, models.Vec3(5.0, 6.0, 7.0)), models.Vec3(1.0, 2.0, 3.0)
    return {
        "mult": (models.mult, (3.0, 4.0), lambda n: n[0] * n[1]),
        "dot": (models.dot, (models.linked(xs), models.linked(ys)), lambda n: np.dot(n[:4], n[4:])),
        "sum_mat_vec": (
            models.sum_mat_vec,
            (models.linked([*map(models.linked, rows)]), models.linked(ys)),
            lambda n: np.sum(np.reshape(n[:12], (3, 4)) @ np.array(n[12:])),
        ),
        "rotate": (rotated, (q, v), rotation),
        "neural": (models.neural, tuple(parameters), plain),
        "particles": (models.particles, (swarm, 50), simulated),
    }


@pytest.mark.parametrize("name", evaluation())
def test_r20_and_r21_the_six_programs(name: str) -> None:
    """Their gradients are right to 1e-9, and their work is that of the program, and what goes in, times 7 at most."""
    program, arguments, plain = evaluation()[name]
    numbers = [float(x) for x in floats(arguments)]
    np.testing.assert_allclose(everywhere(program, *arguments), by_complex_steps(plain, numbers), rtol=1e-9)
    both = az.value_and_grad(program, argnums=tuple(moving(program)))
    assert work(both, *arguments) <= 7 * (work(program, *arguments) + len(numbers))


def test_r19_several_cotangents_on_one_log(capsys: pytest.CaptureFixture[str]) -> None:
    """The Jacobian of the rotation by three sweeps; the program runs once."""

    @az.program
    def by_sweeps(q: models.Quaternion, v: models.Vec3) -> Any:
        def turned(v: Any) -> Any:
            return models.rotate(q, models.Vec3(az.inspect(v.x, "x"), v.y, v.z))

        _, pullback = az.vjp(turned, v)
        return [pullback(models.Vec3(*[float(i == k) for k in range(3)]))[0] for i in range(3)]

    q, v = models.Quaternion(4.0, models.Vec3(5.0, 6.0, 7.0)), models.Vec3(1.0, 2.0, 3.0)
    x, y, z = 5.0, 6.0, 7.0
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(
            np.reshape(floats(run(by_sweeps)(q, v)), (3, 3)), np.eye(3) + 8 * skew + 2 * skew @ skew, rtol=1e-13
        )
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "cotangent" not in line] == ["x = 1.0"] and len(shown) == 4


def test_r22_memory_is_a_few_numbers_for_an_operation_and_is_given_back() -> None:
    """The log of a product of lists has at most 48 bytes for each of its two operations an element."""
    compiled = az.compile(az.grad(models.dot, argnums=(0, 1)))
    most = max(len(fields.split(",")) for fields in re.findall(r"= cell \d+ of (\S.*)", compiled.loops))
    assert 8 * (1 + most) <= 2 * 48
    xs = compiled.bind(models.linked([1.0] * 2000), models.linked([2.0] * 2000))
    for _ in range(10):
        xs()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        xs()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kilobytes


def test_r23_an_array_operation_is_one_entry() -> None:
    """However long the array is: the trace, and the log of compiled code, grow with the recursion alone."""

    @az.program
    def repeated(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        vector = az.Array[az.f64, "n"]
        go = az.fix(
            lambda self, k, v: az.cond(k == 0, lambda: az.sum(v), lambda: self(k - 1, az.sin(v) * x)),
            az.i64,
            vector,
            result=az.f64,
        )
        return go(k, x)

    def entries(n: int, k: int) -> int:
        return len(az.trace(repeated)(np.linspace(0.1, 0.9, n), k).program.at().term.bindings)

    assert entries(10, 3) == entries(1000, 3) < entries(10, 6)

    def plain(numbers: list[Any]) -> Any:
        v = x = np.array(numbers)
        for _ in range(3):
            v = np.sin(v) * x
        return np.sum(v)

    x = np.linspace(0.1, 0.9, 10)
    np.testing.assert_allclose(everywhere(repeated, x, 3), by_complex_steps(plain, x.tolist()), rtol=1e-12)


@pytest.mark.parametrize("seed", range(5000, 5015))
def test_r24_forward_mode_is_the_transpose_of_reverse_mode(seed: int) -> None:
    """On random programs with functions, data, recursion and forks, evaluated and compiled."""
    program, arguments, expected = random_function(seed, 3)
    numbers = moving(program)
    if numbers and floats(expected):
        w, v = direction(expected, 1), [direction(arguments[k], k + 5) for k in numbers]
        for run in (az.evaluate, az.compile):
            moved = run(az.jvp(program, argnums=numbers))(*arguments, *v)[1]
            found = run(az.vjp(program, argnums=numbers))(*arguments, w)[1:]
            np.testing.assert_allclose(inner(found, v), inner(w, moved), rtol=1e-9, atol=1e-9)
