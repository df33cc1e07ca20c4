"""What derivatives cost: at most so many times what their programs cost, at growing sizes; and what they do not run.

The promise is ``cost(derivative) <= c (cost(program) + size of arguments and results)``, where a cost is operations,
reads and writes together, counted by running (``az.cost``). c is 4 for perfect nests (maps and sums, without choices)
and 6 for all else. Programs that cost more stand in one table, with their factor and the reason. The span of a
derivative is that of its program, times at most a logarithm.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from plain import instance
from programs import CASES, Case

import adze as az
from adze.core import trees
from adze.core.terms import Block, Operation
from adze.core.types import dims, is_float
from adze.interpreters.cost.costs import Cost
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

FACTOR, PERFECT = 6.0, 4.0

# What costs more than that: so many times, and the reason.
EXCEPTIONS: dict[str, tuple[float, str]] = {
    "log_gamma": (4.5, "its derivative is another special function, which costs four times as much"),
    "fold_indexed": (
        8.5,
        "an operator with a free variable: two scans, and pulls for elements and variable",
    ),
    "matrix_products": (10.0, "a scan of elements of four numbers: compositions of four by four matrices"),
}

# General histograms are sorted: so many times the logarithm of the sizes.
SORTED: dict[str, float] = {"histograms": 1.2, "histogram_of_maps": 1.4, "permute_maps": 1.0}

# The span of a derivative is at most so many times that of its program, times the logarithm of the sizes.
SPAN = 3.0

SCALES = (1, 2, 4)

# Scatters whose places must differ.
SCATTERED = {"scattered", "scattered_rows"}

# Those that are tested every time: one of each construct.
FAST = {
    "product", "reduce_columns", "composed_affine", "power_loop", "running_sum", "linear_recurrence", "histograms",
    "histogram_of_rows", "gather_pairs", "updated_element", "where_sqrt", "generate_two", "sorting", "heat",
}  # fmt: skip


def leaves(tree: Any) -> list[Any]:
    return trees.flatten(tree, plain=True)[0]


# Programs at growing sizes


def resized(array: Any, shape: tuple[int, ...], spread: bool) -> Any:
    """The numbers of an array, again and again along each axis; to ``spread`` places, each time the next ones."""
    for axis, (old, new) in enumerate(zip(np.shape(array), shape, strict=True)):
        if old:
            moved = np.arange(new) // old * (np.max(array) + 1 if spread and array.dtype.kind == "i" else 0)
            along = [-1 if k == axis else 1 for k in range(len(shape))]
            array = np.take(array, np.arange(new) % old, axis) + moved.reshape(along).astype(array.dtype)
    return array


def enlarged(case: Case, scale: int) -> tuple[Any, ...]:
    """The arguments with every named size so many times as large; what they hold is repeated."""
    own = instance(case.program, case.arguments[0])
    values, sizes = own.signature.convert(case.program.leaves(case.arguments[0]))
    larger = {name: scale * size for name, size in sizes.items()}
    shapes = [tuple([dim.evaluate(larger) for dim in dims(type)]) for type in own.types]
    spread = case.name in SCATTERED
    return tuple([resized(x, shape, spread) if shape else x for x, shape in zip(values, shapes, strict=True)])


@dataclass(frozen=True)
class Counted:
    """What a call of a program costs, and what both of its derivatives cost there."""

    size: int  # of arguments and results
    program: Cost
    forward: Cost
    reverse: Cost


def counted(case: Case) -> Iterator[Counted]:
    """At three sizes; once where all sizes are fixed."""
    arguments = case.arguments[0]
    own = instance(case.program, arguments)
    floating = [k for k, type in enumerate(own.types) if is_float(type)]
    costs = [az.cost(program) for program in (case.program, az.jvp(case.program), az.vjp(case.program))]
    named = own.signature.convert(case.program.leaves(arguments))[1]
    for scale in SCALES if named else (1,):
        arguments = enlarged(case, scale)
        result = az.evaluate(case.program)(*arguments)
        more: list[list[Any]] = [[], [arguments[k] for k in floating], [result]]
        size = sum(np.size(leaf) for leaf in leaves((arguments, result)))
        yield Counted(size, *[cost(*arguments, *given) for cost, given in zip(costs, more, strict=True)])


def is_differentiable(case: Case) -> bool:
    arguments = case.arguments[0]
    floating = any(is_float(type) for type in instance(case.program, arguments).types)
    return floating and any(
        np.asarray(leaf).dtype.kind == "f" for leaf in leaves(az.evaluate(case.program)(*arguments))
    )


def is_sum(operation: Operation) -> bool:
    return operation.op == "primitive" and operation.static[0].name == "add"


def constructs(block: Block) -> set[str]:
    """The constructs in a term; a reduction with additions alone is a sum."""
    found = set()
    for operation in block.bindings:
        inner = [constructs(each) for each in operation.blocks]
        if operation.op == "reduce":
            steps = operation.blocks[1].bindings
            sums = len(steps) == len(operation.types) and all(is_sum(step) for step in steps)
            found.add("sum" if sums else "reduce")
            inner = inner[:1]
        elif operation.op != "primitive":
            found.add(operation.op)
        found = found.union(*inner)
    return found


def is_perfect(case: Case) -> bool:
    """Whether a program is maps and sums only."""
    return constructs(simplify(instance(case.program, case.arguments[0]))) <= {"generate", "sum", "index", "size"}


def allowed_factor(case: Case) -> float:
    promised = PERFECT if is_perfect(case) else FACTOR
    return EXCEPTIONS[case.name][0] if case.name in EXCEPTIONS else promised


# The promise

DIFFERENTIABLE = [case for case in CASES if is_differentiable(case)]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in FAST else pytest.mark.slow) for case in DIFFERENTIABLE],
)
def test_a_derivative_costs_a_small_multiple_of_its_program(case: Case) -> None:
    """In both modes, at all sizes; where the span is longer, it is by a factor that grows as a logarithm at most."""
    delays = []
    for found in counted(case):
        factor = SORTED[case.name] * math.log2(found.size) if case.name in SORTED else allowed_factor(case)
        allowed = factor * (found.program.work + found.size)
        assert found.forward.work <= allowed and found.reverse.work <= allowed
        longest = max(found.forward.span, found.reverse.span)
        delays.append(longest / (found.program.span + 1) / math.log2(found.size + 2))
    assert max(delays) <= SPAN
    assert delays == sorted(delays, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_are_exceptions(name: str) -> None:
    """What is in the table costs more than is promised."""
    (case,) = [case for case in DIFFERENTIABLE if case.name == name]
    promised = PERFECT if is_perfect(case) else FACTOR
    *_, last = counted(case)
    assert max(last.forward.work, last.reverse.work) > promised * (last.program.work + last.size)


@az.program
def power(x: az.f64, steps: az.i64) -> az.f64:
    return az.fori_loop(0, steps, lambda i, s: s * x, 1.0)


def test_the_shortest_steps_of_loops() -> None:
    """A step of one multiplication costs seven times as much: its state is stored, read, and used in two products."""
    program, derivative = az.cost(power), az.cost(az.vjp(power))
    for steps in (10, 100, 1000):
        assert derivative(1.5, steps, 1.0).work <= 7 * (program(1.5, steps).work + 4)


# Perfect nests run nothing again (Schenck et al. 2022, section 4.1)

Matrix = az.Array[az.f64, "n m"]


@az.program
def branches(cs: az.Array[az.bool_, "n"], ass: Matrix, cotangent: Matrix) -> Matrix:
    """The return sweep of figure 2: a map of a choice of a map."""

    def f(ass: Any) -> Any:
        return az.map(lambda c, row: az.cond(c, lambda: row * 3.0, lambda: az.map(lambda a: a * a, row)), cs, ass)

    return az.vjp(f, ass)[1](cotangent)[0]


BRANCHES = """\
def branches(cs: bool[n], ass: f64[n, m], cotangent: f64[n, m]) -> f64[n, m]:
  return for i < n:
    c = cs[i]
    yield for j < m:
      t1 = if c: 0.0
      else:
        t2 = cotangent[i, j] * ass[i, j]
        yield t2 + t2
      yield (3.0 * cotangent[i, j] if c else 0.0) + t1
"""


@az.program
def factors(a: az.Array[az.f64, "m q"], b: az.Array[az.f64, "q n"], cotangent: az.Array[az.f64, "m n"]) -> Any:
    """The return sweep of a product of matrices, as a map of maps of sums of maps."""

    def product(a: Any, b: Any) -> Any:
        def element(row: Any, column: Any) -> Any:
            return az.reduce(lambda x, y: x + y, 0.0, az.map(lambda x, y: x * y, row, column))

        return az.map(lambda row: az.map(lambda column: element(row, column), b.T), a)

    return az.vjp(product, a, b)[1](cotangent)


FACTORS = """\
def factors(a: f64[m, q], b: f64[q, n], cotangent: f64[m, n]) -> (f64[m, q], f64[q, n]):
  return cotangent @ b.T, a.T @ cotangent
"""


@az.program
def sums(x: az.Array[az.f64, "n m k"], cotangent: Matrix) -> Any:
    """The return sweep of a map of maps of sums of maps of a longer function."""

    def f(x: Any) -> Any:
        return az.map(lambda rows: az.map(lambda row: az.sum(az.map(lambda v: az.sin(v * v), row)), rows), x)

    return az.vjp(f, x)[1](cotangent)[0]


SUMS = """\
def sums(x: f64[n, m, k], cotangent: f64[n, m]) -> f64[n, m, k]:
  return for i < n, j < m:
    t1 = cotangent[i, j]
    yield for l < k:
      t2 = t1 * cos(x[i, j, l] ** 2) * x[i, j, l]
      yield t2 + t2
"""


@pytest.mark.parametrize(
    ("program", "text"), [(branches, BRANCHES), (factors, FACTORS), (sums, SUMS)], ids=lambda x: getattr(x, "name", "")
)
def test_perfect_nests_run_nothing_again(program: az.Program, text: str) -> None:
    """No element, sum or choice of the forward sweep is left, but for the numbers that the derivative itself needs."""
    assert az.pretty(program) == text.rstrip()


# The logarithm of a sum of exponentials

Vector = az.Array[az.f64, "n"]


def by_hand(x: Any) -> Any:
    top = az.max(x)
    return az.log(az.sum(az.exp(x - top))) + top


@pytest.mark.parametrize("function", [by_hand, az.logsumexp], ids=["by hand", "az.logsumexp"])
def test_the_derivative_of_logsumexp_is_softmax(function: Any) -> None:
    """By fusion: at most 4 times the cost, a product with the Hessian too; without overflow, and with infinities."""

    @az.program
    def f(x: Vector) -> az.f64:
        return function(x)

    cost, derivatives = az.cost(f), [az.cost(az.vjp(f)), az.cost(az.jvp(f)), az.cost(az.hvp(f))]
    for n in (8, 32, 128):
        x = np.sin(np.arange(float(n)))
        allowed = 4 * (cost(x).work + n + 1)
        assert all(derivative(x, v).work <= allowed for derivative, v in zip(derivatives, (1.0, x, x), strict=True))
    gradient, push = az.compile(az.grad(f), threads=1), az.evaluate(az.jvp(f))
    for x in (np.array([1e4, -1e4, 1e4 + 1, 0.0]), np.array([-np.inf, 3.0, -np.inf, 2.5]), np.array([7.0])):
        softmax = np.exp(x - x.max()) / np.sum(np.exp(x - x.max()))
        for got in (gradient(x), az.evaluate(az.grad(f))(x)):
            np.testing.assert_allclose(got, softmax, rtol=1e-14, atol=1e-15)
        v = np.arange(1.0, 1 + len(x))
        assert push(x, v)[1] == pytest.approx(softmax @ v, rel=1e-14)
        hessian = np.diag(softmax) - np.outer(softmax, softmax)
        np.testing.assert_allclose(az.evaluate(az.hvp(f))(x, v), hessian @ v, rtol=1e-12, atol=1e-15)


# Elements of several numbers


@pytest.mark.slow
@pytest.mark.parametrize("side", [2, 3, 4, 5, "d"])
def test_products_of_matrices(side: Any) -> None:
    """Running products of elements of d numbers, at most 16, cost at most 5 d times as much, in logarithmic span.

    Larger elements and those of unknown size go through a loop: 4 times the work, but a step for each. A product of
    all, which has two scans, is neither.
    """

    def unit(m: Any) -> Any:
        return az.generate(m.shape[1:], lambda i, j: az.where(i == j, 1.0, 0.0))

    @az.program
    def running(m: az.Array[az.f64, f"n {side} {side}"]) -> Any:
        return az.scan(lambda a, b: a @ b, unit(m), m)

    @az.program
    def total(m: az.Array[az.f64, f"n {side} {side}"]) -> Any:
        return az.reduce(lambda a, b: a @ b, unit(m), m)

    width = 4 if side == "d" else side
    for program in (running, total):
        primal, derivative, spans = az.cost(program), az.cost(az.vjp(program)), []
        factor = PERFECT if width**2 > 16 or side == "d" else 5 * width**2
        for n in (4, 8, 16):
            m = np.sin(np.arange(n * width**2)).reshape(n, width, width)
            result = az.evaluate(program)(m)
            own, found = primal(m), derivative(m, result)
            assert found.work <= (factor if program is running else FACTOR) * (own.work + m.size + np.size(result))
            spans.append(found.span)
        steps = program is running and factor == PERFECT
        assert spans[2] - spans[1] > 1.5 * (spans[1] - spans[0]) if steps else spans[2] < 2 * spans[0]
