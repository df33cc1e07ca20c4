"""The reverse pass over a trace: against reverse mode on terms, by hand, and that order and threads change nothing."""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case, numbers

import adze as az
from adze.ad.tape import plan as plans
from adze.ad.tape import reverse, sweeps
from adze.ad.tape.folds import known_operator
from adze.core import trees
from adze.core.builder import current
from adze.core.dims import Dim
from adze.core.environment import Env
from adze.core.expr import Expr, as_expr
from adze.core.graph import Value
from adze.core.language import Unsupported
from adze.core.primitive import PRIMITIVES
from adze.core.terms import Atom, Block, Literal, Operation, Size, Variable
from adze.core.types import ArrayType, Type, f32, f64, i64, is_float, map_dims
from adze.interpreters.evaluate import Evaluate, batches, call
from adze.interpreters.simplify import simplify

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]
Cotangents = list[Any]


# Straight-line blocks, their values, and what reverse mode on terms gives


def concrete(block: Block, sizes: dict[str, int]) -> Block:
    """The block at these sizes."""

    def dim(dim: Dim) -> Dim:
        try:
            return Dim.of(dim.evaluate(sizes))
        except LookupError:  # it is known only inside
            return dim

    def typed(type: Type) -> Type:
        return map_dims(type, dim)

    def atom(x: Atom) -> Atom:
        if isinstance(x, Variable):
            return Variable(x.index, typed(x.type))
        return Size(dim(x.dim), x.type) if isinstance(x, Size) else x

    def operation(x: Operation) -> Operation:
        static = tuple(dim(part) if isinstance(part, Dim) else part for part in x.static)
        types, args = tuple(map(typed, x.types)), tuple(map(atom, x.args))
        return Operation(x.op, static, args, tuple(map(inside, x.blocks)), types, x.origin)

    def inside(x: Block) -> Block:
        results = tuple(map(atom, x.results))
        return Block(tuple(map(typed, x.binders)), tuple(map(operation, x.bindings)), results, x.names)

    return inside(block)


def run(block: Block, inputs: Sequence[Any]) -> tuple[list[Sequence[Any]], list[Any]]:
    """The results of each step, and those of the block."""
    language, env, values = Evaluate({}, show=lambda name, values: None), Env[Any]().enter(inputs), []
    with np.errstate(all="ignore"):
        for binding in block.bindings:
            made = tuple(language.meaning_of_operation(binding).run(env))
            values.append(made)
            env = env.extend(made)
        return values, [language.meaning_of_atom(result).run(env) for result in block.results]


def pulled(block: Block, *inputs: Any, seeds: Sequence[Any] | None = None, **options: Any) -> Cotangents:
    """The cotangents of the inputs; seeds are ones."""
    values, results = run(block, inputs)
    if seeds is None:
        seeds = [np.ones_like(x) if is_float(type) else None for x, type in zip(results, block.types, strict=True)]
    return reverse(block, inputs, values, seeds, **options)


def straight(program: az.Program, arguments: Sequence[Any], simplified: bool = False) -> tuple[Any, Block, list[Any]]:
    instance, inputs, sizes = call(program, arguments, {})
    block = concrete(instance.term, sizes)
    return instance, simplify(block) if simplified else block, inputs


def agree(program: az.Program, *arguments: Any, tolerance: float = 1e-9, **options: Any) -> bool:
    """Whether there is a derivative; if so it is seen to be that of reverse mode on terms."""
    instance, block, inputs = straight(program, arguments)
    try:
        results = run(block, inputs)[1]
        seeds = seeds_of(block, results)
        pullback = az.evaluate(az.vjp(program))
        wanted = trees.flatten(pullback(*arguments, trees.unflatten(instance.outputs, seeds))[1:])[0]
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return False
    for one in (block, simplify(block)):
        found = reverse(one, inputs, run(one, inputs)[0], seeds, **options)
        for x, y in zip(present(found), present(wanted), strict=True):
            assert (x.dtype, np.shape(x)) == (np.asarray(y).dtype, np.shape(y))
            bound = 1e-4 if x.dtype == np.float32 else tolerance
            np.testing.assert_allclose(x, y, rtol=bound, atol=bound)
    return True


def seeds_of(block: Block, results: Sequence[Any]) -> list[Any]:
    random = np.random.default_rng(0)
    return [
        np.asarray(random.integers(-8, 9, np.shape(x)) / 4, np.asarray(x).dtype)[()] if is_float(type) else None
        for x, type in zip(results, block.types, strict=True)
    ]


def present(values: Sequence[Any]) -> Cotangents:
    return [value for value in values if value is not None]


def without_nan(arguments: Sequence[Any]) -> bool:
    """The element that an extremum with NaN moves with is not specified."""
    return not any(np.isnan(np.asarray(x, np.float64)).any() for x in trees.flatten(arguments)[0])


@pytest.mark.unguarded
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_reverse_mode_on_terms(case: Case) -> None:
    for arguments in filter(without_nan, case.arguments):
        agree(case.program, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_on_the_terms_of_derivatives(case: Case) -> None:
    """They hold accumulators, and scans of affine maps."""
    arguments = case.arguments[0]
    instance, block, inputs = straight(case.program, arguments)
    seeds = seeds_of(block, run(block, inputs)[1])
    if without_nan(arguments) and present(seeds) and any(map(is_float, instance.types)):
        agree(az.vjp(case.program), *arguments, trees.unflatten(instance.outputs, seeds), tolerance=1e-7)


# Steps on numbers


def steps(count: int, *operations: tuple[str, *tuple[int, ...]], results: Sequence[int] = (0,)) -> Block:
    """A block of so many numbers; an operation is a primitive and the indices of its operands."""
    bindings = [
        Operation("primitive", (PRIMITIVES[name],), tuple([Variable(index, f64) for index in indices]), (), (f64,))
        for name, *indices in operations
    ]
    return Block((f64,) * count, tuple(bindings), tuple([Variable(index, f64) for index in results]))


def test_the_example_of_the_thesis() -> None:
    block = steps(2, ("multiply", 1, 0), ("add", 2, 0))  # x1 + x1 * x2
    assert pulled(block, np.float64(5), np.float64(3)) == [4.0, 5.0]


def test_an_operand_used_twice() -> None:
    assert pulled(steps(1, ("multiply", 0, 0)), np.float64(1.5)) == [3.0]


def test_dead_code_holds_up_nobody() -> None:
    block = steps(2, ("multiply", 1, 1), ("sin", 0), ("multiply", 3, 2))  # a * b; sin(a * a) is dead
    assert pulled(block, np.float64(2), np.float64(3)) == [3.0, 2.0]


def test_an_input_as_result_and_a_result_twice() -> None:
    block = steps(1, ("multiply", 0, 0), results=(1, 0, 0))
    assert pulled(block, np.float64(3)) == [1 + 2 * 6.0]
    assert pulled(steps(1, results=(0, 0)), np.float64(3), seeds=[2.0, 0.25]) == [2.25]


def test_literal_results_and_seeds_of_none() -> None:
    block = steps(1, ("sin", 0), ("multiply", 0, 1), results=(0, 1))
    block = Block(block.binders, block.bindings, (*block.results, Literal.of(1.0, f64), Literal.of(1, i64)))
    x = np.float64(0.5)
    assert pulled(block, x, seeds=[None, 1.0, 1.0, None]) == [np.cos(x)]
    assert pulled(block, x, seeds=[None, None, None, None]) == [0.0]


def test_unused_and_integer_parameters() -> None:
    square = Operation("primitive", (PRIMITIVES["multiply"],), (Variable(2, f64),) * 2, (), (f64,))
    vector = ArrayType(f32, (Dim.of(3),))
    block = Block((f64, i64, vector), (square,), (Variable(0, f64),))
    dx, dn, dv = pulled(block, np.float64(3), np.int64(2), np.ones(3, np.float32))
    assert dx == 6
    assert dn is None
    assert dv.dtype == np.float32
    np.testing.assert_array_equal(dv, np.zeros(3))


def test_parameters_that_are_not_chosen() -> None:
    block = steps(2, ("multiply", 1, 0))
    assert pulled(block, np.float64(2), np.float64(3), chosen=[False, True]) == [None, 2.0]


def test_results_share_no_memory() -> None:
    @az.program
    def both(x: Vector) -> Any:
        return x, x * 2.0

    _, block, inputs = straight(both, (numbers(4),))
    seed = np.ones(4)
    (dx,) = pulled(block, *inputs, seeds=[seed, None])
    dx[:] = 7
    np.testing.assert_array_equal(seed, np.ones(4))


def test_stopped_gradients_and_whole_numbers_do_not_move() -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        return az.sum(az.stop_gradient(x) * x + az.floor(x) * az.round(x))

    assert agree(f, numbers(5))
    _, block, inputs = straight(f, (numbers(5),))
    np.testing.assert_array_equal(pulled(block, *inputs)[0], numbers(5))


def test_no_nan_from_what_does_not_count() -> None:
    @az.program
    def f(x: Vector) -> Any:
        return az.sqrt(x[0]), az.sum(x)

    _, block, inputs = straight(f, (np.zeros(3),))
    (dx,) = pulled(block, *inputs, seeds=[None, 1.0])
    np.testing.assert_array_equal(dx, np.ones(3))


def test_no_nan_from_elements_that_are_not_read() -> None:
    @az.program
    def f(x: Vector) -> Any:
        roots = az.map(az.sqrt, x)
        return roots[1] * roots[1], az.max(az.sqrt(x)), az.map(lambda s: az.max(az.sqrt(x) * s), x)[1:2]

    x = np.array([0.0, 4.0, 1.0])
    for simplified in (False, True):
        _, block, inputs = straight(f, (x,), simplified)
        (dx,) = pulled(block, *inputs)
        np.testing.assert_array_equal(dx, [0.0, 1 + 0.25 + 2 + 1, 0.0])


# Maps


def program(function: Callable[..., Any]) -> az.Program:
    return az.program(function)


def nested(x: Vector, y: Vector) -> Any:
    """Free numbers and free arrays, in three loops."""
    return az.map(lambda s: az.map(lambda t: az.sum(az.map(lambda u: u * s * t + x[0] * y[1], x)) * az.sin(s), y), x)


def gathered(x: Vector, y: Vector) -> Any:
    k = az.map(lambda t: az.floor(t * 3).astype(az.i64) % x.shape[0], y)
    inner = az.map(lambda i: az.sum(az.map(lambda j: x[(i + j) % x.shape[0]] * y[j], k)), k)
    return x[k] * y, inner, x[::-1] * y[0]


def products(x: Vector, y: Vector) -> Any:
    a, b = az.map(lambda s: x * s, y), az.map(lambda s: y - s, x)
    return az.matmul(a, b), az.transpose(a), az.reshape(b, (x.shape[0] * y.shape[0],))


def constants(x: Vector, y: Vector) -> Any:
    """The identity, a constant, and an outer variable."""
    return az.map(lambda s: s, x), az.map(lambda s: y[0], x), az.generate(3, lambda i: 1.0), az.map(lambda s: y, x)


def scattered(x: Vector, y: Vector) -> Any:
    k = az.map(lambda t: az.floor(t * 3).astype(az.i64) % x.shape[0], y)
    rows = az.map(lambda s: az.scatter(x * s, k, y, unique=False), y)
    return az.scatter(x * y, k, x + y, unique=False), rows


def updated(x: Vector, y: Vector) -> Any:
    z = az.update(x, 0, y[1] * x[0])
    z = az.update(z, 1, z[0] * z[1])
    return z[0] + z[1], z, az.map(lambda s: az.update(x * s, 1, s * s), y)


def lanes(x: Vector, y: Vector) -> Any:
    return az.map(lambda s: az.scan(lambda a, b: a + b, 0.0, x * s)[1] + az.cumsum(y * s) * x[0], y)


# Folds


def affine(a: Any, b: Any) -> Any:
    return a[0] * b[0], a[1] * b[0] + b[1]


def folded(x: Vector, y: Vector) -> Any:
    w = az.sum(y) * 0.125
    free = az.reduce(lambda a, b: a + b + w * a * b, 0.0, x)
    return az.reduce(affine, (1.0, 0.0), (x, y)), az.reduce(az.logaddexp, -np.inf, x * y), free


def scanned(x: Vector, y: Vector) -> Any:
    w = az.sum(y) * 0.125
    free = az.scan(lambda a, b: a + b + w * a * b, 0.0, x)
    extremes = az.scan(az.maximum, -np.inf, x), az.scan(az.minimum, np.inf, y)
    return az.scan(affine, (1.0, 0.0), (x, y)), az.cumprod(x) * y, free, extremes


def in_rows(x: Vector, y: Vector) -> Any:
    first = az.map(lambda s: az.reduce(affine, (1.0, 0.0), (x * s, y)), y)
    second = az.map(lambda s: az.scan(affine, (1.0, 0.0), (x * s, y)), y)
    return first, second, az.map(lambda s: az.scan(lambda a, b: a + b + s * a * b, 0.0, x), y)


def extremes(x: Vector, y: Vector) -> Any:
    rows = az.map(lambda s: az.prod(x + s) + az.max(x * s) + az.min(x * s), y)
    m = az.map(lambda s: x * s, y)
    return rows, az.prod(x), az.max(x), az.min(m, axis=0), az.prod(m, axis=1), az.sum(m, axis=0)


def matrices(x: Vector, y: Vector) -> Any:
    m = az.map(lambda s, t: az.generate((2, 2), lambda i, j: s * 0.5 + t * i.astype(az.f64) - j.astype(az.f64)), x, y)
    unit = np.eye(2)
    return az.reduce(az.matmul, unit, m), az.scan(az.matmul, unit, m), az.sum(m, axis=0)


def binned(x: Vector, y: Vector) -> Any:
    k = az.map(lambda t: az.floor(t * 3).astype(az.i64) % 5 - 1, y)
    w = az.sum(y) * 0.125
    rows = az.map(lambda s: az.histogram(lambda a, b: a + b + s * a * b, 0.0, 4, k, x), y)
    free = az.histogram(lambda a, b: a + b + w * a * b, 0.0, 4, k, x)
    return (
        rows,
        free,
        az.map(lambda s: az.histogram(lambda a, b: a + b, 0.0, 4, k, x * s), y),
        az.histogram(az.maximum, -9.0, 4, k, x),
    )


MAPS = [nested, gathered, products, constants, scattered, updated, lanes]
FOLDS = [folded, scanned, in_rows, extremes, matrices, binned]


@pytest.mark.unguarded
@pytest.mark.parametrize("function", MAPS + FOLDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("length", [2, 3, 5, 17])
def test_constructs(function: Any, length: int) -> None:
    random = np.random.default_rng(length)
    assert agree(program(function), random.integers(-8, 9, length) / 8, random.integers(-8, 9, length) / 8)


@pytest.mark.unguarded
@pytest.mark.parametrize("function", MAPS + FOLDS, ids=lambda f: f.__name__)
def test_chunks_of_lanes_and_single_elements(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    x, y = random.integers(-8, 9, 5) / 8, random.integers(-8, 9, 5) / 8
    for largest in (0, 7, 30):
        monkeypatch.setattr(batches, "LARGEST_BATCH", largest)
        assert agree(program(function), x, y)


@pytest.mark.parametrize("name", ["add", "multiply", "minimum", "maximum"])
def test_special_folds_equal_the_general_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @az.program
    def f(x: Vector) -> Any:
        return az.reduce(lambda a, b: PRIMITIVES[name](a, b), _NEUTRAL[name], x)

    for x in (numbers(7), np.array([0.0, 2.0, 0.0]), np.array([2.0, 0.0, 3.0]), np.array([1.0, 1.0])):
        _, block, inputs = straight(f, (x,))
        (special,) = pulled(block, *inputs, seeds=[0.75])
        with monkeypatch.context() as patched:
            patched.setattr("adze.ad.tape.folds.known_operator", lambda operator, component: None)
            (general,) = pulled(block, *inputs, seeds=[0.75])
        np.testing.assert_array_equal(special, general)


_NEUTRAL = {"add": 0.0, "multiply": 1.0, "minimum": np.inf, "maximum": -np.inf}


def test_operators_that_are_known() -> None:
    def operator(function: Any, *like: Any) -> Block:
        @az.program
        def f(x: az.Array[az.f64, "n m"], y: Vector) -> Any:
            return function(x, y)

        block = simplify(f.at().term)
        (reduce,) = [binding for binding in block.bindings if binding.op == "reduce"]
        return reduce.blocks[1]

    assert known_operator(operator(lambda x, y: az.sum(y)), 0) == "add"
    assert known_operator(operator(lambda x, y: az.reduce(lambda a, b: a + b, az.zeros(x.shape[1]), x)), 0) == "add"
    assert known_operator(operator(lambda x, y: az.reduce(lambda a, b: a + b[::-1], az.zeros(4), x)), 0) is None
    pair = operator(lambda x, y: az.reduce(lambda a, b: (a[0] + b[0], az.maximum(a[1], b[1])), (0.0, -np.inf), (y, y)))
    assert [known_operator(pair, k) for k in (0, 1)] == ["add", "maximum"]
    crossed = operator(lambda x, y: az.reduce(lambda a, b: (a[0] + b[1], a[1] + b[0]), (0.0, 0.0), (y, y)))
    assert [known_operator(crossed, k) for k in (0, 1)] == [None, None]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_empty_and_single_arrays(shape: tuple[int, int]) -> None:
    @az.program
    def f(a: Matrix, y: Vector) -> Any:
        rows = az.map(lambda row, s: az.sum(row) * s + az.prod(row), a, y)
        return (
            rows,
            az.cumsum(y),
            az.sum(a),
            az.histogram(lambda a, b: a + b, 0.0, 2, az.map(lambda s: 0, y), y),
            az.exp(a),
        )

    assert agree(f, numbers(*shape), numbers(shape[0], seed=1))


def test_arrays_of_three_axes_in_single_precision() -> None:
    @az.program
    def f(a: az.Array[az.f32, "n m k"], s: az.f32) -> Any:
        return az.map(lambda m: az.map(lambda row: az.sum(az.sin(row) * s) + az.max(row * row), m), a), az.sum(
            a, axis=1
        )

    assert agree(f, numbers(2, 3, 4, dtype=np.float32), np.float32(0.5))


def test_conversions_between_precisions() -> None:
    @az.program
    def f(x: az.Array[az.f32, "n"], y: Vector) -> az.f64:
        return az.sum(x.astype(az.f64) * y) + az.sum(y.astype(az.f32) * x).astype(az.f64)

    assert agree(f, numbers(4, dtype=np.float32), numbers(4, seed=1))


@pytest.mark.unguarded
@pytest.mark.parametrize("function", [gathered, scattered, binned], ids=lambda f: f.__name__)
def test_accumulators(function: Any) -> None:
    """The terms of derivatives add to accumulators, from several loops at once."""
    x, y = numbers(3) / 4, numbers(3, seed=1) / 4
    results = az.evaluate(program(function))(x, y)
    assert agree(az.vjp(program(function)), x, y, trees.tree_map(lambda z: np.full_like(z, 0.5), results))


def test_elements_written_one_by_one_have_sparse_cotangents() -> None:
    """Of a chain of updates, of which two elements are read in the end."""
    count = 5
    array = ArrayType(f64, (Dim.of(count),))

    def at(k: int) -> Block:
        """Write the square of the element before; the array was bound last."""
        read = Operation("index", (), (Variable(0, array), Literal.of(k - 1, i64)), (), (f64,))
        square = Operation("primitive", (PRIMITIVES["multiply"],), (Variable(0, f64), Variable(0, f64)), (), (f64,))
        return Block((), (read, square), (Literal.of(k, i64), Variable(0, f64)))

    bindings = [Operation("scatter", (True, 0), (Variable(0, array),), (at(k),), (array,)) for k in (1, 2, 9)]
    for k in (4, 2):
        bindings.append(Operation("index", (), (Variable(int(k == 2), array), Literal.of(k, i64)), (), (f64,)))
    block = Block((array,), tuple(bindings), (Variable(1, f64), Variable(0, f64)))
    x = np.array([3.0, 7.0, 7.0, 7.0, 7.0])
    np.testing.assert_array_equal(pulled(block, x)[0], [4 * 3.0**3, 0.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(pulled(block, x, seeds=[None, 0.5])[0], [2 * 3.0**3, 0.0, 0.0, 0.0, 0.0])


# Order and threads


def straight_program(function: Any) -> tuple[Block, list[Any]]:
    _, block, inputs = straight(program(function), (numbers(6) / 4 + 0.3, numbers(6, seed=2) / 8))
    return block, inputs


def bits(cotangents: Cotangents) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in cotangents]


def wide(x: Vector, y: Vector) -> Any:
    """Many branches that are used many times."""
    parts = [az.sum(az.sin(x * k) * az.exp(y / k)) for k in range(1, 9)]
    total = parts[0]
    for k, part in enumerate(parts):
        total = total * 0.3 + part * parts[k - 1] + x[k % 2]
    return total, parts[3]


@pytest.mark.parametrize("function", [wide, folded, scattered], ids=lambda f: f.__name__)
def test_order_and_threads_change_no_bit(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    block, inputs = straight_program(function)
    wanted = bits(pulled(block, *inputs))
    for workers in (2, 3, 8):
        for _ in range(3):
            assert bits(pulled(block, *inputs, workers=workers)) == wanted

    fill, random = sweeps.State.fill, np.random.default_rng(0)

    def shuffled(self: Any, uses: Any, contributions: Any, ready: list[int]) -> None:
        fill(self, uses, contributions, ready)
        random.shuffle(ready)

    monkeypatch.setattr(sweeps.State, "fill", shuffled)
    for _ in range(5):
        assert bits(pulled(block, *inputs)) == wanted


def test_several_threads_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two branches that wait for each other: only two threads come through."""
    meeting, meet = threading.Barrier(2, timeout=20), az.custom_vjp(lambda t: t)

    def wait(x: Any) -> Any:
        meeting.wait()
        return x

    together = az.foreign("together", wait, lambda type: type)
    meet.defvjp(lambda primals, cotangent: (together(cotangent),))

    @az.program
    def f(x: Vector, y: Vector) -> az.f64:
        return az.sum(meet(x * 2.0)) + az.sum(meet(y * 3.0))

    _, block, inputs = straight(f, (numbers(3), numbers(3)))
    dx, dy = pulled(block, *inputs, workers=2)
    np.testing.assert_array_equal(dx, np.full(3, 2.0))
    np.testing.assert_array_equal(dy, np.full(3, 3.0))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_a_worker_raises_comes_out(workers: int) -> None:
    broken = az.custom_vjp(lambda t: t)

    def fail(x: Any) -> Any:
        raise RuntimeError("out of cheese")

    failing = az.foreign("failing", fail, lambda type: type)
    broken.defvjp(lambda primals, cotangent: (failing(cotangent),))

    @az.program
    def f(x: Vector) -> az.f64:
        return az.sum(broken(x * 2.0)) + az.sum(az.sin(x))

    _, block, inputs = straight(f, (numbers(3),))
    with pytest.raises(RuntimeError, match="out of cheese"):
        pulled(block, *inputs, workers=workers)


# Meanings given by the user


def test_rules() -> None:
    """Of arguments by the rule, of what is captured by the body; a rule may apply the function."""

    def function(x: Vector, y: Vector) -> Any:
        w = az.sum(y)
        backward = az.custom_vjp(lambda t: az.where(t > 0, az.sin(t), t) * w)
        backward.defvjp(lambda primals, c: (c * az.cos(primals[0]) * 3 + backward(primals[0]) * c,))
        forward = az.custom_jvp(lambda t: az.sin(t) * w)
        forward.defjvp(lambda primals, tangents: tangents[0] * az.cos(primals[0]) * 3)
        rows = az.map(lambda s: az.sum(backward(x * s)), y)
        return az.map(lambda s: backward(s) * forward(s), x), backward(x[0]) * forward(x[1]), rows

    assert agree(program(function), numbers(4) / 4, numbers(4, seed=1) / 4)


def test_checkpoints() -> None:
    def function(x: Vector, y: Vector) -> Any:
        return az.checkpoint(lambda t: az.sin(t) * y)(x), az.map(lambda s: az.checkpoint(lambda t: t * t * s)(s), x)

    assert agree(program(function), numbers(4), numbers(4, seed=1))


def test_probes_show_cotangents() -> None:
    @az.program
    def f(x: az.f64, y: Vector) -> az.f64:
        return az.inspect(x * 2.0, "twice") ** 2 + az.sum(az.map(lambda s: az.inspect(s * s, "each"), y))

    shown: list[tuple[str, list[float]]] = []
    _, block, inputs = straight(f, (np.float64(3.0), np.array([1.0, 2.0])))
    dx, dy = pulled(block, *inputs, show=lambda name, values: shown.append((name, [float(value) for value in values])))
    assert dx == 24
    np.testing.assert_array_equal(dy, [2.0, 4.0])
    assert sorted(shown) == [("each cotangent", [1.0]), ("each cotangent", [1.0]), ("twice cotangent", [12.0])]


def test_single_elements_are_added_to_a_cotangent_in_any_order_of_its_axes() -> None:
    """A rule may give an array in column-major order."""

    @az.custom_vjp
    def doubled(a: Any) -> Any:
        return 2 * a

    doubled.defvjp(lambda primals, cotangent: (3 * column_major(cotangent),))
    column_major = az.foreign("column_major", np.asfortranarray, lambda a: a)
    weights = numbers(3, 3)
    gradient = az.grad(lambda a: az.sum(doubled(a) * weights) + az.sum(a.T * weights), via="trace")
    np.testing.assert_allclose(gradient(numbers(3, 3)), 3 * weights + weights.T)


def test_foreign_functions_are_refused_where_they_move() -> None:
    halved = az.foreign("halved", lambda x: x / 2, lambda type: type)

    @az.program
    def f(x: Vector, y: Vector) -> az.f64:
        return az.sum(halved(x) * y)

    _, block, inputs = straight(f, (numbers(3), numbers(3)))
    with pytest.raises(Unsupported, match=r"foreign function halved: give az.operation a rule .*test_tape\.py:\d+"):
        pulled(block, *inputs)

    @az.program
    def constant(y: Vector) -> az.f64:
        return az.sum(halved(np.ones(3)) * y)

    _, block, inputs = straight(constant, (numbers(3),))
    np.testing.assert_array_equal(pulled(block, *inputs)[0], np.full(3, 0.5))


def test_there_is_a_worker() -> None:
    with pytest.raises(ValueError, match=r"at least one worker, not 0 \(at .*test_tape\.py:\d+"):
        pulled(steps(1, ("sin", 0)), np.float64(1), workers=0)


# Cost


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python are called."""
    count = 0

    def tick(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def chain(length: int) -> tuple[Block, list[Any]]:
    names = ["multiply", "sin", "add", "tanh"]
    arities = {"multiply": (0, 1), "add": (1, 0), "sin": (0,), "tanh": (0,)}
    return steps(2, *[(names[k % 4], *arities[names[k % 4]]) for k in range(length)]), [
        np.float64(1.3),
        np.float64(0.9),
    ]


def reads(length: int) -> tuple[Block, list[Any]]:
    """The sum of an array's elements, one by one."""
    array, bindings = ArrayType(f64, (Dim.of(length),)), []
    total: Atom = Literal.of(0.0, f64)
    for k in range(length):
        bindings.append(Operation("index", (), (Variable(2 * k, array), Literal.of(k, i64)), (), (f64,)))
        bindings.append(Operation("primitive", (PRIMITIVES["add"],), (total, Variable(0, f64)), (), (f64,)))
        total = Variable(1, f64)
    return Block((array,), tuple(bindings), (Variable(0, f64),)), [np.arange(length) / 4]


@pytest.mark.unguarded
@pytest.mark.parametrize("make", [chain, reads], ids=lambda f: f.__name__)
def test_cost_is_linear_in_the_steps(make: Any) -> None:
    counts = []
    for length in (500, 5000):
        block, inputs = make(length)
        values, _ = run(block, inputs)
        reverse(block, inputs, values, [1.0])
        counts.append(calls(lambda: reverse(block, inputs, values, [1.0])))  # noqa: B023
    assert counts[1] < 10.5 * counts[0]


@pytest.mark.slow
@pytest.mark.unguarded
def test_a_long_trace_is_swept_without_recursion() -> None:
    block, inputs = reads(20_000)
    np.testing.assert_array_equal(pulled(block, *inputs)[0], np.ones(20_000))


def test_only_what_is_read_is_computed_again() -> None:
    """The values of a map's inner loop are not needed to go back through it."""

    @az.program
    def f(x: Vector, y: Vector) -> az.Array[az.f64, "n n"]:
        return az.map(lambda s: az.map(lambda t: s * t, y), x)

    _, block, _ = straight(f, (numbers(3), numbers(3)))
    (outer,) = block.bindings
    plan = plans.make_plan(outer.blocks[0], frozenset({0, 1}), (), (True,))
    assert [op.op for op, needed in zip(outer.blocks[0].bindings, plan.needed, strict=True) if needed] == ["index"]


# Parts that are easily left out


def put(arrays: Sequence[Any], place: Any, *values: Any) -> list[Any]:
    """One element written in each of these arrays, outside of all loops."""
    builder = current()

    def element() -> list[Value]:
        return [as_expr(x).value for x in (place, *values)]

    made = builder.scatter(True, [], [array.value for array in arrays], element)
    return [Expr(value, builder) for value in made]


def single_writes(x: Vector, y: Vector) -> Any:
    """What replaces elements that are read one by one, twice, in a loop, or with the whole array."""
    twice, looped, whole = [put([x], 1, y[0] * y[k] * x[0])[0] for k in (0, 1, 1)]
    away = put([x], x.shape[0], y[0])[0]
    some = az.sum(az.generate(2, lambda i: looped[i] * y[i]))
    return twice[1] * y[1] + twice[1] * twice[0], some, whole * y, away[0], away * y


def writes_of_rows_and_pairs(x: Vector, y: Vector) -> Any:
    """Of a pair only the second array counts."""
    m = az.map(lambda s: x * s, y)
    pair = put([x, y], 1, x[0] * y[1], x[1] * y[0])
    rows = az.map(lambda s: put([x * s], 1, s * s)[0] * y, y)
    both = az.scatter((x, y), az.iota(2), (y[:2] * x[0], x[:2] * y[1]))
    return put([m], 1, x * y)[0], pair[1], rows, both[1]


def writes_over_two_axes(x: Vector, y: Vector) -> Any:
    """Of different lengths, and some of them to one place."""
    places = az.generate((2, 3), lambda i, j: (2 * i + j) % x.shape[0])
    values = az.generate((2, 3), lambda i, j: y[i] * x[j % 2] + y[j % 2] * y[i])
    return az.scatter(x, places, values, unique=False)


def one_component_counts(x: Vector, y: Vector) -> Any:
    """The others move it: as the left operand, as the right one, and with one before that does not."""

    def after(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[0] * b[1] + a[1]

    def third(a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] * b[1], a[2] * b[1] + b[2]

    found = []
    for fold in (az.reduce, az.scan):
        found += [fold(affine, (1.0, 0.0), (x, y))[1], fold(after, (1.0, 0.0), (x, y))[1]]
        found.append(fold(third, (0.0, 1.0, 0.0), (x, x, y))[2])
    return tuple(found)


def operands_of_branching_rules(x: Vector, y: Vector) -> Any:
    """Which are computed again only where the rule reads them, in a branch."""
    return az.map(lambda s, t: az.hypot(s * t + 2, s + 3) + (s * s + 1) ** (t * s), x, y)


def rules_of_pairs(x: Vector, y: Vector) -> Any:
    """With both modes, with a result that does not count, and where the cotangent is the same in all lanes."""
    both = az.custom_vjp(lambda t: t * t)
    both.defvjp(lambda primals, c: (c * primals[0] * 3,))
    both.defjvp(lambda primals, tangents: tangents[0] * primals[0] * 5)
    pair = az.custom_vjp(lambda t: (t * t, az.sin(t)))
    pair.defvjp(lambda primals, c: (c[0] * 2 + c[1] * primals[0],))
    still = az.custom_vjp(lambda t: az.sum(t))
    still.defvjp(lambda primals, c: (weights(primals[0]),))
    unit = az.custom_vjp(lambda t: t)
    unit.defvjp(lambda primals, c: (3.0,))
    weighted = az.custom_jvp(lambda t: az.sum(t))
    weighted.defjvp(lambda primals, tangents: az.sum(tangents[0] * weights(tangents[0])))

    def row(v: Any) -> Any:
        return still(v) + az.sum(v * v), unit(weighted(v)) + az.sum(v * v)

    return both(x), pair(x)[1], az.map(lambda s: pair(x * s)[1] * pair(s)[1], y), az.map(lambda s: row(x * s), y)


def weights(x: Any) -> Any:
    return az.generate(x.shape[0], lambda i: i.astype(az.f64) + 1)


PARTS = [
    single_writes, writes_of_rows_and_pairs, writes_over_two_axes, one_component_counts, operands_of_branching_rules,
    rules_of_pairs,
]  # fmt: skip


@pytest.mark.unguarded
@pytest.mark.parametrize("function", PARTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("largest", [1 << 20, 7])
def test_parts_that_are_easily_left_out(function: Any, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LARGEST_BATCH", largest)
    random = np.random.default_rng(7)
    for length in (2, 5):
        assert agree(program(function), random.integers(-8, 9, length) / 8, random.integers(-8, 9, length) / 8)


def test_an_operator_that_ends_with_a_constant() -> None:
    @az.program
    def f(x: Vector) -> az.f64:
        return az.reduce(lambda a, b: az.minimum(az.maximum(a, b), 1.5), -np.inf, x)

    assert agree(f, np.array([0.5, 1.0, -2.0]))
    _, block, inputs = straight(f, (np.array([0.5, 2.0, -2.0]),))
    np.testing.assert_array_equal(pulled(block, *inputs)[0], np.zeros(3))
