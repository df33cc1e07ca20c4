"""Models over lists and trees (benchmarks/programs/functions.py): values, code, derivatives, any number of threads."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from directions import close, differences, direction, floats, inner, moving
from load import benchmark
from programs.case import Case, sampled

import adze as az

pytestmark = pytest.mark.unguarded
models = benchmark("functions")


def listed(xs: Any) -> list[Any]:
    """A list of Python."""
    values = []
    while isinstance(xs, models.List.Cons):
        values.append(xs.head)
        xs = xs.tail
    return values


# What they mean


def _product(xs: Any, ys: Any) -> float:
    return sum((a * b for a, b in zip(listed(xs), listed(ys), strict=False)), 0.0)


def _sum_mat_vec(rows: Any, x: Any) -> float:
    return sum((_product(row, x) for row in listed(rows)), 0.0)


def _network(first: Any, b1: Any, second: Any, b2: Any, third: Any, b3: Any, x: Any) -> Any:
    def matrix(rows: Any, width: int) -> Any:
        return np.array([listed(row) for row in listed(rows)]).reshape(-1, width)

    for weights, biases, last in ((first, b1, False), (second, b2, False), (third, b3, True)):
        given = np.array(listed(x) if isinstance(x, models.List) else x)
        x = matrix(weights, len(given)) @ given + np.array(listed(biases))
        x = x if last else np.maximum(x, 0)
    largest = max(x, default=-math.inf)
    powers = np.exp(x - largest) if len(x) else np.zeros(0)
    return float((powers / powers.sum()) @ np.arange(1, 1 + len(x))) if len(x) else 0.0


def _rotated(q: Any, v: Any) -> Any:
    a, b, w = np.array([q.v.x, q.v.y, q.v.z]), np.array([v.x, v.y, v.z]), q.w
    t = 2 * np.cross(a, b)
    return models.Vec3(*map(float, b + w * t + np.cross(a, t)))


def _fallen(swarm: Any, steps: int) -> float:
    found = 0.0
    for p in listed(swarm):
        x, y, u, v = p.x, p.y, p.u, p.v
        for _ in range(steps):
            pull = 1 / (1 + x * x + y * y)
            u, v = u - 0.01 * pull * x, v - 0.01 * pull * y
            x, y = x + 0.01 * u, y + 0.01 * v
        found += x * y
    return found


def _summed(tree: Any) -> float:
    if isinstance(tree, models.Leaves.Leaf):
        return tree.value * math.sin(tree.value)
    return _summed(tree.left) + _summed(tree.right)


def _value(f: Any, x: Any) -> float:
    match f:
        case models.Expression.Number(value):
            return value
        case models.Expression.Variable(place):
            return float(x[place])
        case models.Expression.Sum(left, right):
            return _value(left, x) + _value(right, x)
        case models.Expression.Product(left, right):
            return _value(left, x) * _value(right, x)
    return math.sin(_value(f.of, x))


def _quadrature(a: float, b: float, tolerance: float = 1e-6) -> float:
    def f(x: float) -> float:
        return math.exp(a * x) / (b + x * x)

    def part(
        low: float, high: float, at_low: float, at_middle: float, at_high: float, whole: float, eps: float
    ) -> float:
        middle = (low + high) / 2
        left, right = f((low + middle) / 2), f((middle + high) / 2)
        first = (middle - low) / 6 * (at_low + 4 * left + at_middle)
        second = (high - middle) / 6 * (at_middle + 4 * right + at_high)
        off = first + second - whole
        if abs(off) < 15 * eps:
            return first + second + off / 15
        return part(low, middle, at_low, left, at_middle, first, eps / 2) + part(
            middle, high, at_middle, right, at_high, second, eps / 2
        )

    low, middle, high = f(-1.0), f(0.0), f(1.0)
    return part(-1.0, 1.0, low, middle, high, 2 / 6 * (low + 4 * middle + high), tolerance)


def _state(phrase: Any, table: Any, left: Any, right: Any, bias: Any) -> Any:
    if isinstance(phrase, models.Phrase.Word):
        return np.tanh(table[phrase.number])
    one, other = _state(phrase.left, table, left, right, bias), _state(phrase.right, table, left, right, bias)
    return np.tanh(left @ one + right @ other + bias)


def _tree_network(*arguments: Any) -> float:
    return float(np.sum(_state(*arguments) ** 2))


def _below(tree: Any, letters: Any) -> Any:
    if isinstance(tree, models.Tree.Species):
        return (letters[tree.row][:, None] == np.arange(4)).astype(float)

    def along(length: float, below: Any) -> Any:
        same, other = 0.25 + 0.75 * math.exp(-length * 4 / 3), 0.25 - 0.25 * math.exp(-length * 4 / 3)
        return below @ np.where(np.eye(4) == 1, same, other)

    return along(tree.to_left, _below(tree.left, letters)) * along(tree.to_right, _below(tree.right, letters))


def _phylogeny(tree: Any, letters: Any) -> float:
    return float(np.sum(np.log(np.sum(0.25 * _below(tree, letters), 1))))


# Cases

of = models.linked
EMPTY, SOME = of([]), of([1.5, -2.0, 0.25, 4.0, -0.5])
WEIGHTS = of([of([0.5, -0.25, 1.0, 0.25, -1.5]), of([0.25, 1.5, -0.5, 0.25, 0.75])])
SQUARE = of([of([0.5, -0.25]), of([1.25, 0.75])])
LAYERS = (WEIGHTS, of([0.25, -0.5]), SQUARE, of([0.5, 0.25]), SQUARE, of([0.5, -0.75]))
SWARM = of([models.Particle(0.5 + k / 4, -0.25 * k, 0.25 - k / 8, 0.5) for k in range(4)])
LEAVES = models.of_leaves([1.5, -2.0, 0.25, 4.0, -0.5])
E = models.Expression
FORMULA = E.Sum(
    E.Product(E.Variable(1), E.Sine(E.Variable(0))), E.Product(E.Number(0.5), E.Sum(E.Variable(2), E.Number(-2.0)))
)
TABLE = np.array([[0.5, -0.25, 1.0], [0.25, 0.75, -0.5]])
MIX = np.array([[0.5, 0.25, -0.5], [-0.25, 0.5, 0.25], [1.0, -0.5, 0.25]])
PHRASE = (models.of_words([0, 1, 1, 0, 1]), TABLE, MIX, MIX.T.copy(), np.array([0.25, 0.0, -0.5]))
LETTERS = np.array([[0, 1, 2, 3, 0], [0, 1, 1, 3, 2], [0, 2, 2, 3, 1]])


def made(program: Any, meaning: Callable[..., Any], *arguments: tuple[Any, ...]) -> Case:
    return Case(program.name, program, meaning, arguments)


CASES = [
    made(models.mult, lambda x, y: x * y, (2.0, 0.5)),
    made(models.dot, _product, (SOME, SOME), (SOME, of([2.0])), (EMPTY, SOME)),
    made(models.sum_mat_vec, _sum_mat_vec, (of([SOME, of([0.5] * 5)]), SOME), (EMPTY, SOME)),
    made(models.neural, _network, (*LAYERS, SOME)),
    made(models.rotate, _rotated, (models.Quaternion(0.5, models.Vec3(0.5, -0.5, 0.5)), models.Vec3(1.0, 2.0, -0.25))),
    made(models.particles, _fallen, (SWARM, 5), (of([]), 2)),
    made(models.plain_particles, _fallen, (SWARM, 5)),
    made(models.tree_sum, _summed, (LEAVES,), (models.degenerate([1.5, -2.0, 0.25]),), (models.of_leaves([0.5]),)),
    made(models.plain_tree_sum, _summed, (LEAVES,)),
    made(models.expression, _value, (FORMULA, np.array([0.5, -1.5, 2.0])), (E.Variable(1), np.array([0.5, -1.5]))),
    made(models.quadrature, _quadrature, (0.5, 0.25), (-1.0, 0.0625)),
    made(models.plain_quadrature, _quadrature, (0.5, 0.25)),
    made(az.program(models.tree_network_of(3, fork=True)), _tree_network, PHRASE),
    made(
        az.program(models.phylogeny_of(5, fork=True)),
        _phylogeny,
        (models.of_species(3, iter([0.25, 0.5, 0.125, 1.0])), LETTERS),
    ),
]
every = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
some_cases = sampled([case for case in CASES if case.program is not models.mult])


@every
def test_they_mean_what_numpy_says(case: Case) -> None:
    for arguments in case.arguments:
        close(az.evaluate(case.program)(*arguments), floats(case.numpy(*arguments)))


@every
def test_their_code_gives_the_same_on_any_number_of_threads(case: Case) -> None:
    for arguments in case.arguments:
        found = [az.compile(case.program, threads=threads)(*arguments) for threads in (1, 2, 3)]
        close(found[0], floats(az.evaluate(case.program)(*arguments)))
        for other in found[1:]:
            np.testing.assert_array_equal(floats(other), floats(found[0]))


@pytest.mark.rest
@some_cases
def test_their_cotangents_are_those_of_differences(case: Case) -> None:
    """And the same bits on any number of threads."""
    arguments, numbers = case.arguments[0], moving(case.program)
    cotangent = direction(az.evaluate(case.program)(*arguments), 1)
    back = az.vjp(case.program, argnums=numbers)
    found = [az.compile(back, threads=threads)(*arguments, cotangent)[1:] for threads in (1, 2, 3)]
    v = [direction(arguments[k], k + 5) for k in numbers]

    def along(*moving: Any) -> Any:
        given = list(arguments)
        for k, value in zip(numbers, moving, strict=True):
            given[k] = value
        return az.evaluate(case.program)(*given)

    moved = differences(along, [arguments[k] for k in numbers], v)
    wanted = sum(float(np.sum(a * b)) for a, b in zip(floats(cotangent), moved, strict=True))
    np.testing.assert_allclose(inner(found[0], v), wanted, rtol=1e-5, atol=1e-7)
    for other in found[1:]:
        for one, same in zip(floats(other), floats(found[0]), strict=True):
            np.testing.assert_array_equal(one, same)
