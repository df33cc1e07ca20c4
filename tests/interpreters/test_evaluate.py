"""The reference interpreter against NumPy."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain import Plain, instance
from programs import CASES, Case, numbers

import adze as az
from adze.core import trees
from adze.core.builder import Builder, build, current
from adze.core.dims import Dim
from adze.core.environment import Env
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.terms import Foreign
from adze.core.types import SCALARS, ArrayType, Itself, Scalar, Type, bool_, dims, f64, i64
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
def triangular_sums_of_no_columns(x: Any) -> Any:
    return az.generate((x.shape[0], 0), lambda i, j: az.sum(az.generate(i + 1, lambda k: x[k] * x[j])))


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
    monkeypatch.setattr("adze.interpreters.evaluate.batches.LARGEST_BATCH", 20)

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


# Whole constructs, as terms. Each runs at once, in Python, and element by element by the second interpreter.

N, M = Dim.of("n"), Dim.of("m")
VECTOR, INDICES, MATRIX, STACK = (
    ArrayType(f64, (N,)),
    ArrayType(i64, (N,)),
    ArrayType(f64, (N, M)),
    ArrayType(f64, (N, M, M)),
)


def run_term(function: Callable[..., Sequence[Value]], types: Sequence[Type], *arguments: Any) -> list[Any]:
    """The results of a term on arguments, which all ways to run it agree on."""
    with build() as b:
        binders = [b.variable(type) for type in types]
        results = function(b, *binders)
        block, _ = to_block(binders, results, b.scopes[0].statements)
    az.check(block)
    sizes: dict[str, int] = {}
    for type, argument in zip(types, arguments, strict=True):
        sizes.update(zip(map(str, dims(type)), np.shape(argument), strict=True))
    ways = [evaluate_block(block, arguments, sizes, vectorize) for vectorize in (True, False)]
    ways.append(block.interpret(Plain(sizes))(Env(), arguments))
    for way in ways[1:]:
        for x, y in zip(ways[0], way, strict=True):
            assert np.shape(x) == np.shape(y) and x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-13)
    return ways[0]


def added(b: Builder) -> Callable[[Value, Value], list[Value]]:
    return lambda x, y: [b.primitive("add", x, y)]


def doubled(b: Builder) -> Callable[[Value, Value], list[Value]]:
    """Addition, in a form that is not one of NumPy's functions."""
    return lambda x, y: [b.primitive("add", b.primitive("multiply", b.literal(1, f64), x), y)]


def product_of(b: Builder, n: Value) -> Callable[[Value, Value], list[Value]]:
    """The product of two matrices."""

    def entry(p: Value, q: Value, i: Value, j: Value) -> Value:
        return b.sum(n, lambda k: b.primitive("multiply", b.index(p, [i, k]), b.index(q, [k, j])), f64)

    return lambda p, q: [b.array([n, n], lambda i, j: entry(p, q, i, j))]


def identity(b: Builder, n: Value, beside: float = 0) -> Value:
    def entry(i: Value, j: Value) -> Value:
        one, zero = b.literal(1, f64), b.literal(beside, f64)
        return b.cond(b.primitive("equal", i, j), lambda: [one], lambda: [zero])[0]

    return b.array([n, n], entry)


OPERATORS = pytest.mark.parametrize("operator", [added, doubled])
SHAPES = pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (3, 5)])


@OPERATORS
@SHAPES
def test_scans_in_a_loop(operator: Any, shape: tuple[int, int]) -> None:
    def rows(b: Builder, x: Value) -> Sequence[Value]:
        zero = b.literal(0, f64)
        return b.generate(
            b.size(x, 0), lambda i: b.scan(b.size(x, 1), [zero], lambda j: [b.index(x, [i, j])], operator(b))
        )

    x = numbers(*shape)
    np.testing.assert_array_equal(run_term(rows, [MATRIX], x)[0], np.cumsum(x, 1))


@OPERATORS
@SHAPES
def test_histograms_in_a_loop(operator: Any, shape: tuple[int, int]) -> None:
    """Bins from -1 to 3, of which 0 to 2 exist."""

    def rows(b: Builder, x: Value) -> Sequence[Value]:
        def row(i: Value) -> Sequence[Value]:
            def element(j: Value) -> Sequence[Value]:
                bin = b.primitive("remainder", b.primitive("add", i, j), b.literal(5, i64))
                return [b.primitive("subtract", bin, b.literal(1, i64)), b.index(x, [i, j])]

            return b.histogram(b.literal(3, i64), b.size(x, 1), [b.literal(0, f64)], element, operator(b))

        return b.generate(b.size(x, 0), row)

    x = numbers(*shape)
    wanted = np.zeros((shape[0], 3))
    for i, j in np.ndindex(shape):
        if 1 <= (i + j) % 5 <= 3:
            wanted[i, (i + j) % 5 - 1] += x[i, j]
    np.testing.assert_array_equal(run_term(rows, [MATRIX], x)[0], wanted)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_operators_on_matrices(size: int) -> None:
    """Elements are arrays, and are combined in order of their indices."""

    def combine(b: Builder, x: Value) -> Sequence[Value]:
        count, n, two = b.size(x, 0), b.size(x, 1), b.literal(2, i64)
        one, operator = identity(b, n), product_of(b, n)

        def element(i: Value) -> Sequence[Value]:
            return [b.part(x, [i])]

        def with_bin(i: Value) -> Sequence[Value]:
            return [b.primitive("remainder", i, two), *element(i)]

        return [
            *b.reduce(count, [one], element, operator),
            *b.scan(count, [one], element, operator),
            *b.histogram(two, count, [one], with_bin, operator),
            *b.generate(two, lambda _: b.scan(count, [one], element, operator)),
        ]

    x = numbers(size, 3, 3)
    running = [np.eye(3)]
    for matrix in x:
        running.append(running[-1] @ matrix)
    halves = [functools.reduce(np.matmul, x[k::2], np.eye(3)) for k in range(2)]
    total, scanned, bins, twice = run_term(combine, [STACK], x)
    np.testing.assert_allclose(total, running[-1])
    np.testing.assert_allclose(scanned, np.reshape(running[1:], (size, 3, 3)))
    np.testing.assert_allclose(bins, halves)
    np.testing.assert_allclose(twice, [scanned, scanned])


@pytest.mark.parametrize("construct", ["reduce", "scan", "histogram"])
def test_neutral_elements_that_are_arrays(construct: str) -> None:
    def combine(b: Builder, x: Value) -> Sequence[Value]:
        count, n = b.size(x, 0), b.size(x, 1)
        one, operator = identity(b, n, beside=1), product_of(b, n)
        b.origin = replace(b.origin, combines=True)  # as the user's reductions do
        if construct == "histogram":
            return b.histogram(count, count, [one], lambda i: [i, b.part(x, [i])], operator)
        make = b.reduce if construct == "reduce" else b.scan
        return make(count, [one], lambda i: [b.part(x, [i])], operator)

    message = rf"{construct}: the neutral element is not neutral: \[\[1., 1.\], \[1., 1.\]\]: combined with"
    with pytest.raises(ValueError, match=message):
        run_term(combine, [STACK], np.array([[[1.0, 2.0], [3.0, 4.0]]]))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_the_last_write_of_a_scatter_wins(size: int) -> None:
    """``y[at[i]] = x[i] + x[k] + x[r]`` for i and k, in every element r of a loop: writes outside are ignored."""

    def scattered(b: Builder, x: Value, at: Value) -> Sequence[Value]:
        n = b.size(x, 0)

        def row(r: Value) -> Sequence[Value]:
            def element(i: Value, k: Value) -> Sequence[Value]:
                value = b.primitive("add", b.primitive("add", b.index(x, [i]), b.index(x, [k])), b.index(x, [r]))
                return [b.index(at, [i]), value]

            return b.scatter(False, [n, n], [x], element)

        return b.generate(n, row)

    x, at = numbers(size), np.array([1, 9, 1, -1, 0])[:size]
    wanted = np.tile(x, (size, 1))
    for r in range(size):
        for i in range(size):
            if 0 <= at[i] < size:
                wanted[r, at[i]] = x[i] + x[-1] + x[r]
    before = x.copy()
    np.testing.assert_array_equal(run_term(scattered, [VECTOR, INDICES], x, at)[0], wanted)
    np.testing.assert_array_equal(x, before)


def test_scatter_of_rows() -> None:
    """Values that are arrays, into two destinations, of which one is a vector."""

    def scattered(b: Builder, x: Value, y: Value) -> Sequence[Value]:
        n, m = b.size(x, 0), b.size(x, 1)

        def element(i: Value) -> Sequence[Value]:
            place = b.primitive("subtract", b.primitive("subtract", n, b.literal(1, i64)), i)
            return [place, b.part(x, [i]), b.index(x, [i, b.literal(0, i64)])]

        def both(k: Value) -> Sequence[Value]:
            zeros = b.array([n, m], lambda i, j: b.index(y, [k]))
            return b.scatter(True, [n], [zeros, y], element)

        return b.generate(n, both)

    x, y = numbers(3, 4), numbers(3, seed=1)
    rows, column = run_term(scattered, [MATRIX, VECTOR], x, y)
    np.testing.assert_array_equal(rows, np.tile(x[::-1], (3, 1, 1)))
    np.testing.assert_array_equal(column, np.tile(x[::-1, 0], (3, 1)))


@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_argsort(scalar: Scalar) -> None:
    """The order of NumPy's stable sort: NaN last, and zeros are equal. Rows of a matrix, in a loop."""

    def sorted_rows(b: Builder, x: Value) -> Sequence[Value]:
        return b.generate(b.size(x, 0), lambda i: b.emit("argsort", (), [b.part(x, [i])]))

    for shape in ((0, 3), (3, 0), (1, 1), (3, 7)):
        x = numbers(*shape, seed=4).astype(scalar.dtype)
        if x.size == 21 and scalar.kind == "float":
            x[1] = [np.nan, 0.0, np.inf, -0.0, -np.nan, -np.inf, 0.0]
        got = run_term(sorted_rows, [ArrayType(scalar, (N, M))], x)[0]
        np.testing.assert_array_equal(got, np.argsort(x, 1, kind="stable"))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_while_loops_of_differing_length(size: int) -> None:
    """Each element doubles until it is large, with an array in the state; some do nothing at all."""

    def loops(b: Builder, x: Value) -> Sequence[Value]:
        n = b.size(x, 0)

        def element(i: Value) -> Sequence[Value]:
            return b.while_loop(
                [b.index(x, [i]), b.array([n], lambda k: b.index(x, [k]))],
                lambda s, v: b.primitive("less", s, b.literal(10, f64)),
                lambda s, v: [
                    b.primitive("multiply", s, b.literal(2, f64)),
                    b.array([n], lambda k: b.primitive("add", b.index(v, [k]), s)),
                ],
            )

        return b.generate(n, element)

    x = np.abs(numbers(size)) * 4 + 0.5
    values, arrays, trips = run_term(loops, [VECTOR], x)
    wanted = np.maximum(0, np.ceil(np.log2(10 / x))).astype(int)
    np.testing.assert_array_equal(trips, wanted)
    np.testing.assert_array_equal(values, x * 2.0**wanted)
    np.testing.assert_allclose(arrays, x + (values - x)[:, None])


def test_a_while_loop_in_a_branch_that_is_not_taken() -> None:
    """It would not end for the elements that do not take it."""

    def loops(b: Builder, x: Value) -> Sequence[Value]:
        zero = b.literal(0, f64)

        def halved(v: Value) -> Sequence[Value]:
            one, half = b.literal(1, f64), b.literal(0.5, f64)
            test = b.while_loop(
                [v], lambda s: b.primitive("not_equal", s, one), lambda s: [b.primitive("multiply", s, half)]
            )
            return test[1:]

        def element(i: Value) -> Sequence[Value]:
            v = b.index(x, [i])
            return b.cond(b.primitive("less", zero, v), lambda: halved(v), lambda: [b.literal(-1, i64)])

        return b.generate(b.size(x, 0), element)

    assert list(run_term(loops, [VECTOR], np.array([8.0, -1.0, 1.0, -np.inf]))[0]) == [3, -1, 0, -1]
    assert list(run_term(loops, [VECTOR], np.array([-1.0]))[0]) == [-1]


def test_a_while_loop_that_never_runs() -> None:
    """In an empty loop nothing runs, though the test holds."""

    def loops(b: Builder, x: Value) -> Sequence[Value]:
        forever = b.literal(True, bool_)
        return b.generate(b.size(x, 0), lambda i: b.while_loop([i], lambda s: forever, lambda s: [s]))

    assert [result.shape for result in run_term(loops, [VECTOR], numbers(0))] == [(0,), (0,)]


# Meanings given by the user


def test_probes_show_every_element_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    @az.program
    def f(x: Vector) -> Vector:
        def square(i: Any) -> Any:
            b = current()
            b.emit("probe", ("x",), [x[i].value, i.value])
            return x[i] * x[i]

        return az.generate(x.shape[0], square)

    x = np.array([1.5, 2.5, 3.5])
    assert list(az.evaluate(f)(x)) == [2.25, 6.25, 12.25]
    assert capsys.readouterr().out == "x = 1.5, 0\nx = 2.5, 1\nx = 3.5, 2\n"
    shown: list[Any] = []
    az.evaluate(f, show=lambda name, values: shown.append((name, *values)))(x)
    assert shown == [("x", 1.5, 0), ("x", 2.5, 1), ("x", 3.5, 2)]
    assert Plain.run(instance(f, [x]), [x]).shown == shown
    assert az.evaluate(f)(x[:0]).shape == (0,) and capsys.readouterr().out == ""


def test_a_custom_construct_runs_its_body() -> None:
    def custom(b: Builder, x: Value) -> Sequence[Value]:
        def each(i: Value) -> Sequence[Value]:
            body = b.body([f64], lambda v: [b.primitive("multiply", v, v)])
            rule = b.body([Itself((f64,), (f64,)), f64, f64], lambda itself, v, t: [t])
            return b.emit("custom", ("jvp",), [b.index(x, [i])], [body, rule])

        return b.generate(b.size(x, 0), each)

    x = numbers(5)
    np.testing.assert_array_equal(run_term(custom, [VECTOR], x)[0], x * x)


def inverse(function: Callable[..., Any]) -> Foreign:
    return Foreign("inverse", function, lambda types: [types[0]])


def inverses(function: Callable[..., Any]) -> Callable[..., Sequence[Value]]:
    return lambda b, x: b.generate(b.size(x, 0), lambda i: b.emit("foreign", (inverse(function),), [b.part(x, [i])]))


def test_foreign_functions() -> None:
    x = numbers(4, 3, 3) + 10 * np.eye(3)
    np.testing.assert_allclose(run_term(inverses(np.linalg.inv), [STACK], x)[0], np.linalg.inv(x))
    np.testing.assert_allclose(run_term(inverses(np.linalg.inv), [STACK], x[:0])[0], np.zeros((0, 3, 3)))


def test_a_foreign_function_that_keeps_its_result() -> None:
    memory = np.zeros((3, 3))
    x = numbers(4, 3, 3)
    with build() as b:
        variable = b.variable(STACK)
        block, _ = to_block([variable], inverses(lambda a: np.multiply(a, 2, out=memory))(b, variable))
    np.testing.assert_array_equal(evaluate_block(block, [x], {"n": 4, "m": 3})[0], 2 * x)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda a: a[0], r"f64\[3\]"),
        (lambda a: a.astype(np.float32), r"f32\[3, 3\]"),
        (lambda a: (a, a), r"f64\[3, 3\], f64\[3, 3\]"),
        (lambda a: a.astype(np.complex128), r"complex128\[3, 3\]"),
    ],
)
def test_foreign_functions_keep_their_promise(function: Any, got: str) -> None:
    with pytest.raises(TypeError, match=rf"inverse promised to give \(f64\[3, 3\]\), but gave \({got}\), at"):
        run_term(inverses(function), [STACK], numbers(2, 3, 3))


def test_foreign_functions_cannot_write_to_their_arguments() -> None:
    def overwrite(a: Any) -> Any:
        a[0] = 1
        return a

    with pytest.raises(ValueError, match="read-only"):
        run_term(lambda b, x: b.emit("foreign", (inverse(overwrite),), [x]), [STACK], numbers(2, 3, 3))


# Sizes that depend on data


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_sizes_that_depend_on_data(vectorize: bool, size: int) -> None:
    """What is left of a filter is a result, and its size may differ from iteration to iteration where it is reduced."""

    @az.program
    def f(x: Vector) -> Any:
        large = az.map(lambda v: az.sum(az.filter(lambda w: w > v, x)), x)
        return az.filter(lambda v: v > 0, x), large

    x = numbers(size)
    kept, large = az.evaluate(f, vectorize=vectorize)(x)
    np.testing.assert_array_equal(kept, x[x > 0])
    np.testing.assert_array_equal(large, [x[x > v].sum() for v in x])


# Errors name the element that fails first, the array and the line, however loops run

X, PLACES = np.arange(5.0), np.array([0, 2, 7, 9])
READ = r"index {} is out of range for axis 0 of x, of type f64\[n\], whose size is 5, at .*test_evaluate.py:\d+"
NEUTRAL = "{}: the neutral element is not neutral: 1.0: combined with 1.0 it gives 2.0, at .*test_evaluate.py"
FAILURES: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "read": (lambda x, at: az.map(lambda k: x[k], at), IndexError, READ.format(7)),
    "read in a loop": (lambda x, at: az.generate((5, 3), lambda i, j: x[i + j]), IndexError, READ.format(5)),
    "triangle": (
        lambda x, at: az.generate(5, lambda i: az.sum(az.generate(i + 2, lambda j: x[j]))),
        IndexError,
        READ.format(5),
    ),
    "branch": (
        lambda x, at: az.generate(5, lambda k: az.cond(k > 0, lambda: x[k - 1], lambda: x[k + 9])),
        IndexError,
        READ.format(9),
    ),
    "while": (
        lambda x, at: az.while_loop(lambda s: s[1] < 20, lambda s: (s[0] + 1, s[1] + x[s[0]]), (0, 0.0)),
        IndexError,
        READ.format(5),
    ),
    "scatter": (lambda x, at: az.scatter(x, at, az.ones(4)), IndexError, READ.format(7)),
    "update": (lambda x, at: az.map(lambda k: az.update(x, k, 1.0)[0], at), IndexError, READ.format(7)),
    "division": (
        lambda x, at: az.map(lambda k: 7 // (k - 2), at),
        ZeroDivisionError,
        "integer division by zero, at .*test_evaluate.py",
    ),
    "size": (
        lambda x, at: az.map(lambda k: az.sum(az.ones(2 - k)), at),
        ValueError,
        "a size of -5, at .*test_evaluate.py",
    ),
    "sizes": (lambda x, at: x + az.ones(at[1]), ValueError, r"add: the sizes n = 5 and .* = 2 of .* differ, at .*"),
    "scan": (lambda x, at: az.scan(lambda a, b: a + b, 1.0, az.ones(4)), ValueError, NEUTRAL.format("scan")),
    "histogram": (
        lambda x, at: az.histogram(lambda a, b: a + b, 1.0, 5, at % 5, az.ones(4)),
        ValueError,
        NEUTRAL.format("histogram"),
    ),
}


@pytest.mark.parametrize("vectorize", [True, False], ids=["at-once", "in-python"])
@pytest.mark.parametrize("name", FAILURES)
def test_errors(name: str, vectorize: bool) -> None:
    body, error, message = FAILURES[name]

    @az.program
    def f(x: Vector, at: az.Array[az.i64, "m"]) -> Any:
        return body(x, at)

    with pytest.raises(error, match=message):
        az.evaluate(f, vectorize=vectorize)(X, PLACES)


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


def test_annotations_that_only_a_type_checker_reads() -> None:
    """``az.Expr``, ``Any`` and None say nothing of the type, also where they are text."""

    @az.program
    def f(x: az.f64) -> Any:
        def square(y: az.Expr, factor: "Any") -> "az.Expr":
            return factor * y * y

        return az.grad(square)(x, 2)

    assert az.evaluate(f)(3.0) == 12
    assert az.evaluate(az.program(lambda x: f(x)))(3.0) == 12


def test_writes_inside_of_more_than_one_batch_holds() -> None:
    """The inner loop runs in Python then, and what it computes does not vary with the loop around."""
    x, v, y = np.arange(3.0), np.arange(1000.0), np.ones(2000)
    k = np.arange(1000) % 3
    scattered = az.program(lambda x, k, v, y: az.map(lambda s: az.sum(az.scatter(x * s, k, v, unique=False)), y))
    highest = az.program(lambda k, v, y: az.map(lambda s: az.sum(az.histogram(az.maximum, -np.inf, 3, k, v) * s), y))
    for result in (az.evaluate(scattered)(x, k, v, y), az.evaluate(highest)(k, v, y)):
        np.testing.assert_array_equal(result, np.full(2000, 997.0 + 998.0 + 999.0))


@pytest.mark.parametrize(
    "large",
    [
        lambda n: az.ones((n, n)),
        lambda n: az.iota(n),
        lambda n: az.cumsum(az.iota(n)),
        lambda n: az.sort(az.iota(n)),
        lambda n: az.map(lambda i: az.ones(n), az.iota(n)),
        lambda n: az.scan_loop(lambda s, i: (s + 1.0, s), 0.0, az.iota(n))[1],
    ],
)
def test_arrays_beyond_memory_are_refused_at_once(large: Any) -> None:
    with pytest.raises(MemoryError, match=r"no memory for an array of shape \(1099511627776,.*test_evaluate\.py:\d+"):
        az.evaluate(large)(2**40)


def test_arrays_beyond_memory_are_refused_where_each_row_is_the_same() -> None:
    with pytest.raises(
        MemoryError, match=r"no memory for an array of shape \(1125899906842624,.*test_evaluate\.py:\d+"
    ):
        az.evaluate(lambda n: (az.sum(az.ones(n // n)), az.ones(n)))(2**50)


LONG = 2**50
EMPTY: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "generate": (lambda n: az.generate((n, 0), lambda i, j: 2.0 * (i + j)), (LONG,), (LONG, 0)),
    "generate across": (lambda n: az.generate((0, n), lambda i, j: 2.0 * (i + j)), (LONG,), (0, LONG)),
    "the same rows": (lambda n: az.generate((0, n), lambda i, j: 2.0), (LONG,), (0, LONG)),
    "booleans": (lambda n: az.generate((0, n), lambda i, j: True), (2**62,), (0, 2**62)),
    "nested": (
        lambda n, m: az.generate(n, lambda i: az.generate(m, lambda j: 1.0 * i * j)),
        (LONG, 0),
        (LONG, 0),
    ),
    "three axes": (lambda n: az.generate((n, 0, n), lambda i, j, k: i + j + k), (2**20,), (2**20, 0, 2**20)),
    "map": (lambda x: az.map(lambda r: r + 1.0, x), (np.zeros((LONG, 0)),), (LONG, 0)),
    "whole": (lambda x: az.exp(x) * 2.0, (np.zeros((0, LONG)),), (0, LONG)),
    "reduce": (lambda x: az.reduce(lambda a, b: a + b + a * b, np.zeros(0), x), (np.zeros((LONG, 0)),), (0,)),
    "sum": (lambda x: az.sum(x, axis=0), (np.zeros((LONG, 0)),), (0,)),
    "scan": (lambda x: az.scan(lambda a, b: a + b + a * b, np.zeros(0), x), (np.zeros((LONG, 0)),), (LONG, 0)),
    "cumsum": (lambda x: az.cumsum(x, axis=0), (np.zeros((LONG, 0)),), (LONG, 0)),
    "cumsum of rows": (lambda x: az.cumsum(x, axis=1), (np.zeros((LONG, 0)),), (LONG, 0)),
    "sort": (lambda x: az.sort(x, axis=0), (np.zeros((LONG, 0)),), (LONG, 0)),
    "sort of rows": (lambda x: az.sort(x, axis=1), (np.zeros((LONG, 0)),), (LONG, 0)),
    "histogram": (
        lambda x: az.histogram(lambda a, b: a + b, 0.0, 3, az.map(lambda r: 0, x), x),
        (np.zeros((LONG, 0)),),
        (3, 0),
    ),
    "loop": (lambda n, x: az.fori_loop(0, n, lambda i, s: s * 2.0, x), (LONG, np.zeros(0)), (0,)),
}


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("name", EMPTY)
def test_empty_arrays_are_made_at_once_however_long_they_are(name: str, vectorize: bool) -> None:
    function, arguments, shape = EMPTY[name]
    assert az.evaluate(function, vectorize=vectorize)(*arguments).shape == shape


@pytest.mark.parametrize("name", [name for name in EMPTY if name != "loop"])
def test_traces_make_empty_arrays_at_once(name: str) -> None:
    function, arguments, shape = EMPTY[name]
    assert az.evaluate(az.trace(function)(*arguments).program)(*arguments).shape == shape


def joined(a: Any, b: Any) -> Any:
    return a + b + a * b


# What combines elements, with what NumPy makes of them: (1 + a)(1 + b) - 1 = a + b + ab.
COMBINED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reduce": (lambda x: az.map(lambda r: az.reduce(joined, 0.0, r), x), lambda x: np.prod(1 + x, axis=1) - 1),
    "reduce of rows": (lambda x: az.reduce(joined, az.zeros(x.shape[1]), x), lambda x: np.prod(1 + x, axis=0) - 1),
    "scan": (lambda x: az.map(lambda r: az.scan(joined, 0.0, r), x), lambda x: np.cumprod(1 + x, axis=1) - 1),
    "scan of rows": (lambda x: az.scan(joined, az.zeros(x.shape[1]), x), lambda x: np.cumprod(1 + x, axis=0) - 1),
    "loop": (
        lambda x: az.map(lambda r: az.fori_loop(0, r.shape[0], lambda j, s: joined(s, r[j]), 0.0), x),
        lambda x: np.prod(1 + x, axis=1) - 1,
    ),
    "loop over rows": (
        lambda x: az.fori_loop(0, x.shape[0], lambda i, s: joined(s, x[i]), az.zeros(x.shape[1])),
        lambda x: np.prod(1 + x, axis=0) - 1,
    ),
    "least": (
        lambda x: az.map(lambda r: az.argmin(az.concatenate([r, az.ones(1)])), x),
        lambda x: np.argmin(np.pad(x, ((0, 0), (0, 1)), constant_values=1.0), axis=1),
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_few_rows_of_few_elements(name: str) -> None:
    function, expected = COMBINED[name]
    program = az.program(function)
    for vectorize, *shape in itertools.product([True, False], range(4), range(4)):
        x, run = np.random.default_rng(0).uniform(size=shape), az.evaluate(program, vectorize=vectorize)
        np.testing.assert_allclose(run(x), expected(x), rtol=1e-14, atol=1e-15, err_msg=str(shape))


@pytest.mark.parametrize("vectorize", [True, False])
def test_what_empty_rows_require_is_required_of_each(vectorize: bool) -> None:
    def read(i: az.Array[az.i64, "n"], y: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda k: az.ones(0) * y[k], i)

    def chosen(i: az.Array[az.i64, "n"], y: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda k: az.ones(0) * az.cond(k > 0, lambda: y[9], lambda: 1.0), i)

    assert az.evaluate(read, vectorize=vectorize)([0, 1, 0], [3.0, 4.0]).shape == (3, 0)
    for program, places in ((read, [0, 1, 9]), (chosen, [0, 0, 1])):
        with pytest.raises(IndexError, match="index 9 is out of range"):
            az.evaluate(program, vectorize=vectorize)(places, [3.0, 4.0])


@pytest.mark.parametrize("keep", ["arrays", "reals"])
def test_sizes_of_long_empty_arrays_in_traces(keep: str) -> None:
    trace = az.trace(lambda x: x + az.sum(az.sum(az.generate((2**50, 0), lambda i, j: x * i), axis=0)), keep=keep)
    assert az.evaluate(trace(2.0).program)(2.0) == 2.0


def test_arrays_that_numpy_has_not_are_refused() -> None:
    with pytest.raises(ValueError, match=r"NumPy has no array of shape .*4611686018427387904.*test_evaluate\.py:\d+"):
        az.evaluate(lambda n: az.generate((0, n), lambda i, j: 2.0 * (i + j)))(2**62)


def test_arrays_have_as_many_axes_as_numpy_has() -> None:
    def nested(depth: int, x: az.Expr) -> az.Expr:
        return az.map(lambda _: nested(depth - 1, x), az.ones(1)) if depth else x

    assert az.evaluate(lambda x: nested(64, x))(2.0).ndim == 64
    with pytest.raises(ValueError, match=r"an array of 65 axes: there are at most 64, as in NumPy.*test_evaluate\.py"):
        az.evaluate(lambda x: nested(65, x))(2.0)
    with pytest.raises(ValueError, match="at most 64 axes, as in NumPy, not 65"):
        az.Array[az.f64, " ".join(["n"] * 65)]
