"""The reference interpreter against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case, numbers

import adze as az
from adze.core import trees
from adze.core.builder import build
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.types import f64, i64
from adze.interpreters.evaluate import evaluate_block

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]


def assert_same(got: Any, wanted: Any) -> None:
    """The same structure, shapes, scalar types (up to Python numbers) and, to rounding, numbers."""
    (leaves, tree), (expected, expected_tree) = trees.flatten(got), trees.flatten(wanted)
    assert tree == expected_tree
    for x, y in zip(leaves, expected, strict=True):
        exact = np.asarray(y)
        assert isinstance(x, np.ndarray | np.generic) and np.shape(x) == exact.shape
        assert x.dtype.kind == exact.dtype.kind
        assert x.dtype == exact.dtype or isinstance(y, int | float)
        np.testing.assert_allclose(x, exact, rtol=1e-12)


@pytest.mark.parametrize("vectorize", [True, False], ids=["at-once", "in-python"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_programs(case: Case, vectorize: bool) -> None:
    for arguments in case.arguments:
        with np.errstate(all="ignore"):
            wanted = case.numpy(*arguments)
        assert_same(az.evaluate(case.program, vectorize=vectorize)(*arguments), wanted)


# Loops at once and in Python

IRREGULAR: dict[str, Callable[..., Any]] = {}


def irregular(function: Callable[..., Any]) -> Callable[..., Any]:
    IRREGULAR[function.__name__] = function
    return function


@irregular
def triangular_sums(x: Any) -> Any:
    return az.generate(x.shape[0], lambda i: az.sum(az.generate(i + 1, lambda j: x[j] * x[i])))


@irregular
def arrays_in_a_batch(x: Any) -> Any:
    def row(v: Any) -> Any:
        y = az.map(lambda w: v * w, x)
        return az.map(lambda w: w + y[0], y), az.sum(y)

    return az.map(row, x)


@irregular
def reads_of_an_outer_array(x: Any) -> Any:
    def outer(v: Any) -> Any:
        y = x * v
        return az.map(lambda w: az.sum(az.map(lambda u: u * w, y)) + y[-1], x)

    return az.map(outer, x)


@irregular
def loops_in_a_batch(x: Any) -> Any:
    def step(i: Any, state: Any) -> Any:
        total, row = state
        return total + row[i], az.map(lambda u: u * 0.5, row)

    return az.map(lambda v: az.fori_loop(0, x.shape[0], step, (0.0, x * v)), x)


@irregular
def loops_of_differing_length(x: Any) -> Any:
    return az.generate(x.shape[0], lambda i: az.fori_loop(0, i, lambda k, s: s * 0.5 + x[k], 1.0))


@irregular
def branches_with_arrays(x: Any) -> Any:
    return az.map(lambda v: az.cond(v > 0, lambda: x * v, lambda: x - v), x)


@irregular
def branches_with_loops(x: Any) -> Any:
    n = x.shape[0]
    return az.generate(n, lambda i: az.cond(i > 1, lambda: az.sum(az.generate(i, lambda j: x[j])), lambda: 0.0))


@irregular
def branches_with_reads(x: Any) -> Any:
    n = x.shape[0]
    return az.generate(n, lambda i: az.cond(i > 0, lambda: x[i - 1], lambda: x[i]))


@irregular
def a_general_reduction(x: Any) -> Any:
    def larger(a: Any, b: Any) -> Any:
        return az.cond(abs(a[0]) >= abs(b[0]), lambda: a, lambda: b)

    return az.map(lambda v: az.reduce(larger, (0.0, -1), (x * v, az.iota(x.shape[0]))), x)


@irregular
def division_and_remainder(x: Any) -> Any:
    return az.generate(x.shape[0], lambda i: az.cond(i > 0, lambda: 7 // i + 7 % i, lambda: 0))


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("name", IRREGULAR)
def test_loops_at_once_mean_loops_in_python(name: str, size: int) -> None:
    function = IRREGULAR[name]
    function.__annotations__ = {"x": Vector}
    program = az.program(function)
    x = numbers(size)
    assert_same(az.evaluate(program)(x), az.evaluate(program, vectorize=False)(x))


def test_batches_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adze.interpreters.batches.LARGEST_BATCH", 20)

    @az.program
    def f(a: Matrix, b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
        return a @ b

    a, b = numbers(7, 5), numbers(5, 6)
    np.testing.assert_allclose(az.evaluate(f)(a, b), a @ b)


# Accumulators


@pytest.mark.parametrize("vectorize", [True, False])
def test_accumulators(vectorize: bool) -> None:
    """Sums of x at places, and the total: ``sums[at[i]] += x[i]; total += x[i]``, twice around."""
    with build() as b:
        x, at = b.variable(az.Array[az.f64, "n"], "x"), b.variable(az.Array[az.i64, "n"], "at")  # type: ignore[arg-type]
        n, zero = b.size(x, 0), b.literal(0, f64)
        zeros = b.array([b.literal(3, i64)], lambda _: zero)

        def body(sums: Value, total: Value) -> list[Value]:
            def add(i: Value, j: Value) -> None:
                b.emit("add_to", (), [sums, b.index(x, [i]), b.index(at, [i])])
                b.emit("add_to", (), [total, b.index(x, [j])])

            b.each([n, n], add)
            return [b.literal(7, i64)]

        types = b_types(zeros, zero)
        results = b.emit("accumulate", (), [zeros, zero], [b.body(types, body)])
        block, _ = to_block([x, at], results)
    az.check(block)
    values, places = numbers(4), np.array([2, 0, 2, 9])
    sums, total, seven = evaluate_block(block, [values, places], {"n": 4}, vectorize)
    np.testing.assert_array_equal(sums, 4 * np.array([values[1], 0, values[0] + values[2]]))  # what is outside is lost
    assert total == 4 * values.sum() and seven == 7


def b_types(*values: Value) -> list[Any]:
    from adze.core.types import Accumulator

    return [Accumulator(value.type) for value in values]  # type: ignore[arg-type]


@pytest.mark.parametrize("vectorize", [True, False])
def test_accumulators_inside_a_loop(vectorize: bool) -> None:
    """One accumulator a row of the result."""
    with build() as b:
        x = b.variable(az.Array[az.f64, "n"], "x")  # type: ignore[arg-type]
        n, zero = b.size(x, 0), b.literal(0, f64)
        zeros = b.array([n], lambda _: zero)

        def row(i: Value) -> list[Value]:
            def body(sums: Value) -> list[Value]:
                def add(j: Value) -> None:
                    product = b.primitive("multiply", b.index(x, [i]), b.index(x, [j]))
                    b.emit("add_to", (), [sums, product, b_remainder(b, i, j)])

                b.each([n], add)
                return []

            return list(b.emit("accumulate", (), [zeros], [b.body(b_types(zeros), body)]))

        block, _ = to_block([x], b.generate(n, row))
    az.check(block)
    x_value = numbers(4)
    wanted = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            wanted[i, (i + j) % 4] += x_value[i] * x_value[j]
    np.testing.assert_allclose(evaluate_block(block, [x_value], {"n": 4}, vectorize)[0], wanted)


def b_remainder(b: Any, i: Value, j: Value) -> Value:
    value: Value = b.primitive("remainder", b.primitive("add", i, j), b.literal(4, i64))
    return value


# Values


def test_results_share_no_memory() -> None:
    table = np.arange(3.0)

    @az.program
    def f(x: Vector) -> Any:
        return x, x, table, x[:]

    x = np.arange(3.0)
    results = az.evaluate(f)(x)
    for k, result in enumerate(results):
        assert result.flags.writeable and not np.shares_memory(result, x) and not np.shares_memory(result, table)
        assert not any(np.shares_memory(result, other) for other in results[:k])


def test_a_captured_array_is_copied() -> None:
    table = np.arange(3.0)

    @az.program
    def f(x: az.f64) -> Vector:
        return x * table

    assert list(az.evaluate(f)(1.0)) == [0, 1, 2]
    table[:] = 9
    assert list(az.evaluate(f)(1.0)) == [0, 1, 2]


def test_scalar_types_are_kept() -> None:
    @az.program
    def f(x: az.f32, i: az.i32, b: az.bool_) -> Any:
        return x * x + 1, i * i, b & (x > 0), i.astype(az.f64) * 0.5

    results = az.evaluate(f)(np.float32(3e38), np.int32(2**31 - 1), True)
    assert [result.dtype.name for result in results] == ["float32", "int32", "bool", "float64"]
    assert np.isinf(results[0]) and results[1] == 1  # what is too large wraps


def test_integer_division_is_that_of_python() -> None:
    @az.program
    def f(a: az.Array[az.i64, "n"], b: az.Array[az.i64, "n"]) -> Any:
        return a // b, a % b

    a, b = np.array([7, -7, 7, -7, -(2**63)]), np.array([2, 2, -2, -2, -1])
    quotients, rests = az.evaluate(f)(a, b)
    assert list(quotients[:4]) == [3, -4, -4, 3] and list(rests[:4]) == [1, 1, -1, -1]
    assert quotients[4] == -(2**63) and rests[4] == 0


@pytest.mark.parametrize(
    ("neutral", "op", "message"),
    [
        (1.0, lambda a, b: a + b, "1.0: combined with -3.25 it gives -2.25"),
        (0.0, az.maximum, "0.0: combined with -3.25 it gives 0.0"),
    ],
)
def test_a_neutral_element_is_verified(neutral: float, op: Any, message: str) -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        return az.reduce(op, neutral, x)

    with pytest.raises(ValueError, match=f"the neutral element is not neutral: {message}.*test_evaluate.py"):
        az.evaluate(f)(numbers(3))
    assert az.evaluate(f)(numbers(0)) == neutral


def test_an_instance_is_evaluated() -> None:
    @az.program
    def double(x: Any, times: int) -> Any:
        return x * 2**times

    single = double.at(az.f32, times=3)  # type: ignore[arg-type]
    result = az.evaluate(single)(np.float32(0.5))
    assert result == az.evaluate(single)(np.float32(0.5), 3)
    assert result == 4 and result.dtype == np.float32
    assert list(az.evaluate(double)(np.array([1, 2]), times=1)) == [2, 4]
    with pytest.raises(TypeError, match="argument 'x' is f32, got the scalar"):
        az.evaluate(single)(np.float64(0.5), 3)


def test_parameters_without_annotation() -> None:
    @az.program
    def f(x, y):  # type: ignore[no-untyped-def]
        return {"sum": x["a"] + y, "first": x["b"][0]}

    got = az.evaluate(f)({"a": numbers(2), "b": [1, True]}, np.float32(2))
    assert_same(got, {"sum": numbers(2) + 2, "first": 1})
    got = az.evaluate(f)({"a": 1, "b": [numbers(2, 2), True]}, 1)
    assert_same(got, {"sum": 2, "first": numbers(2, 2)})
