"""Programs over chunks: each that can be cut gives what evaluate gives, in chunks of any length; others are refused."""

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case
from programs.case import numbers
from sampling import some

import adze as az
from adze.backends.chunked.chunked import Chunked
from adze.backends.chunked.plan import Around, Stage
from adze.core import trees
from adze.core.language import Unsupported

pytestmark = pytest.mark.unguarded

Matrix = az.Array[az.f64, "n d"]
Vector = az.Array[az.f64, "n"]


def leaves(result: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in trees.flatten(result)[0]]


def chunked(f: Any, over: str = "n", **options: Any) -> Chunked:
    return az.compile(f, backend="dask", over=over, **options)


def cut(f: az.Program, over: str) -> Chunked | None:
    """The program over chunks; None where it says that it cannot be cut."""
    try:
        return chunked(f, over)
    except Unsupported as error:
        assert f"over={over!r}" in str(error) and "cannot be cut" in str(error)
    except ValueError as error:
        assert "cuts one axis that has this size alone" in str(error) or "no size of its parameters alone" in str(error)
    return None


def check(f: az.Program, calls: Sequence[tuple[Any, ...]], lengths: Sequence[int]) -> int:
    """Compare with evaluate; the number of calls that could be compared."""
    count = 0
    for over in sorted(f.at().declared.bound):
        made = cut(f, over)
        for arguments in calls if made is not None else ():
            assert made is not None
            wanted = leaves(az.evaluate(f)(*arguments))
            for length in lengths:
                made._chunk = length  # as compile's, without planning again
                for expected, found in zip(wanted, leaves(made(*arguments)), strict=True):
                    assert found.dtype == expected.dtype
                    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{over}, {length}")
                count += 1
            made._version._chunks = lambda _, sizes, __, over=over: of_any_length(sizes[over])  # type: ignore[method-assign,misc]
            for expected, found in zip(wanted, leaves(made(*arguments)), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{over}, of any length")
    return count


def of_any_length(total: int) -> tuple[tuple[int, int], ...]:
    """Chunks of unequal lengths, some of which have nothing, as arrays of Dask's may have them."""
    bounds = sorted([0, 0, total, total, total, *[min(total, k * k) for k in range(5)]])
    return tuple(itertools.pairwise(bounds))


def first_order() -> list[Case]:
    return [case for case in CASES if case.program.annotated and all(map(trees_of_arrays, case.program.parameters))]


def trees_of_arrays(parameter: Any) -> bool:
    return parameter.declared is not None and parameter.static is None


@pytest.mark.parametrize("case", some(first_order(), 8, 1), ids=lambda case: case.name)
def test_programs(case: Case) -> None:
    check(case.program, [a for a in case.arguments if succeeds(case.program, a)], (1, 2, 3, 7))


def succeeds(f: az.Program, arguments: tuple[Any, ...]) -> bool:
    try:
        az.evaluate(f)(*arguments)
    except Exception:
        return False
    return True


def floating(case: Case) -> bool:
    return all(np.asarray(leaf).dtype.kind == "f" for a in case.arguments for leaf in trees.flatten(a)[0])


@pytest.mark.parametrize("case", some(filter(floating, first_order()), 10, 1), ids=lambda case: case.name)
def test_derivatives(case: Case) -> None:
    calls = [(*a, *[0.5 * np.asarray(x) for x in a]) for a in case.arguments if succeeds(case.program, a)]
    derivative = az.jvp(case.program)
    check(derivative, [a for a in calls if succeeds(derivative, a)], (2, 3))
    if case.program.result == az.f64:
        gradient = az.grad(case.program)
        check(gradient, [a for a in case.arguments if succeeds(gradient, a)], (2, 3))


def test_accumulators_of_a_branch_are_those_of_each_chunk() -> None:
    """The gradient adds to arrays that are not cut, in a branch whose result is."""
    (case,) = [case for case in CASES if case.name == "tuple3"]
    assert check(az.grad(case.program), case.arguments, (2, 3)) > 0


# Programs that are written for chunks


@az.program
def standardised(x: Matrix) -> tuple[Matrix, az.Array[az.f64, "d"]]:
    mean = az.mean(x, axis=0)
    spread = az.sqrt(az.mean((x - mean) ** 2, axis=0))
    return (x - mean) / spread, spread


@az.program
def centroids(x: Matrix, start: az.Array[az.f64, "k d"], steps: az.i64) -> az.Array[az.f64, "k d"]:
    def step(_: Any, c: Any) -> Any:
        nearest = az.map(lambda p: az.argmin(az.sum((p - c) ** 2, axis=1)), x)
        count = az.histogram(lambda a, b: a + b, 0.0, az.size(c, 0), nearest, az.map(lambda _: 1.0, nearest))
        return az.histogram(lambda a, b: a + b, 0.0, az.size(c, 0), nearest, x) / az.maximum(count, 1.0)[:, None]

    return az.fori_loop(0, steps, step, start)


def numpy_centroids(x: Any, c: Any, steps: int) -> Any:
    for _ in range(steps):
        nearest = ((x[:, None] - c) ** 2).sum(2).argmin(1)
        c = np.array([x[nearest == k].sum(0) / max((nearest == k).sum(), 1) for k in range(len(c))])
    return c


@az.program
def first_component(x: Matrix, start: az.Array[az.f64, "d"]) -> az.Array[az.f64, "d"]:
    """The direction of largest variance, by power iteration until it stays."""

    def step(state: Any) -> Any:
        v, _ = state
        w = x.T @ (x @ v)
        w = w / az.sqrt(az.sum(w * w))
        return w, az.max(az.abs(w - v))

    return az.while_loop(lambda state: state[1] > 1e-13, step, (start, 1.0))[0]


@az.program
def likelihood(x: Matrix, mean: az.Array[az.f64, "k d"], weight: az.Array[az.f64, "k"]) -> az.f64:
    def of(p: Any) -> Any:
        return az.logsumexp(weight - 0.5 * az.sum((p - mean) ** 2, axis=1))

    return az.sum(az.map(of, x)) - az.size(x, 0) * az.logsumexp(weight)


@az.program
def trimmed(x: Vector, low: az.f64, robust: az.bool_) -> az.f64:
    """A choice here, around what is combined."""
    return az.cond(robust, lambda: az.sum(az.clip(x, low, -low)), lambda: az.mean(x) * az.max(x))


@az.program
def along_columns(x: az.Array[az.f64, "d n"], w: Vector) -> tuple[az.Array[az.f64, "d"], az.Array[az.f64, "d n"]]:
    product = x @ w
    return product, x - product[:, None]


@az.program
def places(x: Vector, i: az.i64) -> tuple[az.f64, Vector]:
    """Elements at places that no loop chooses, and numbers of the whole range."""
    return x[i] * x[0], az.map(lambda k: x[k] * k / az.size(x, 0), az.arange(az.size(x, 0)))


@az.program
def centred_if(x: Vector, b: az.f64) -> Vector:
    """A choice on each chunk, one branch of which needs what all chunks give, and an element that one of them has."""
    return az.cond(b > 0.0, lambda: 2 * x, lambda: (x - az.mean(x)) * x[3])


@az.program
def spread_product(x: Vector) -> az.f64:
    """Its derivative adds the largest element at the place of the smallest one, if there is one."""
    return az.max(x) * az.min(x)


@az.program
def explained(x: Matrix, y: Vector) -> az.f64:
    """In its derivative, arrays over the size stand before reductions in loops over columns."""
    z = (x - az.mean(x, axis=0)) / az.std(x, axis=0)
    rest = y - z @ (z.T @ y / az.size(y, 0))
    return az.sum(rest * rest) / az.sum((y - az.mean(y)) ** 2)


@az.program
def loss_again(x: Matrix, w: az.Array[az.f64, "d"]) -> az.f64:
    return az.checkpoint(lambda v: az.mean((x @ v) ** 2))(w)


@az.program
def dot(x: Vector, y: az.Array[az.f64, "m"]) -> az.f64:
    """Two sizes that are required to be equal, of which one is cut."""
    return x @ y


@az.program
def largest(x: Matrix, w: az.Array[az.f64, "d"]) -> az.f64:
    """Its derivative chooses, for each column, whether there is a place of the largest element, and reads there."""
    return az.sum(az.max(x * w, axis=0) ** 2)


@az.program
def by_kind(x: Matrix, kind: az.Array[az.i64, "d"]) -> az.Array[az.f64, "d"]:
    """A choice in a loop: a branch has two reductions, the second of which needs the first, another has a choice."""

    def of_column(j: Any) -> Any:
        def spread() -> Any:
            mean = az.mean(x[:, j])
            return mean * az.sum((x[:, j] - mean) ** 2)

        return az.cond(kind[j] > 0, spread, lambda: az.cond(kind[j] < 0, lambda: 2 * az.max(x[:, j]), lambda: 1.0 * j))

    return az.generate(az.size(x, 1), of_column)


KIND = np.array([1, -1, 0])


@az.program
def descent(x: Matrix, y: Vector, w: az.Array[az.f64, "d"], steps: az.i64) -> az.f64:
    """Steps of gradient descent, and the loss then: its derivative by the data adds to them in each step."""
    last = az.fori_loop(0, steps, lambda _, w: w - 0.1 * x.T @ (x @ w - y) / az.size(y, 0), w)
    return az.mean((x @ last - y) ** 2)


@az.program
def loop_in_a_loop(x: Vector, s: az.f64, steps: az.i64) -> az.f64:
    def outer(_: Any, s: Any) -> Any:
        return az.fori_loop(0, 2, lambda _, t: az.sin(t) + az.mean(az.cos(x * t)) * az.sum(x), s)

    return az.fori_loop(0, steps, outer, s)


@az.program
def fixed_point(x: Vector, s: az.f64) -> az.f64:
    """Rounds of stages until the state stays."""

    def step(state: Any) -> Any:
        new = 0.5 * az.mean(az.sqrt(x * x + state[0]))
        return new, az.abs(new - state[0])

    return az.while_loop(lambda state: state[1] > 1e-9, step, (s, 1.0))[0]


@az.program
def choice_in_a_loop(x: Vector, s: az.f64, steps: az.i64) -> az.f64:
    def step(i: Any, s: Any) -> Any:
        return az.cond(i % 2 == 0, lambda: s + az.mean(x * s), lambda: s * 0.5 + az.sum(az.sin(x)))

    return az.fori_loop(0, steps, step, s)


@az.program
def stages_in_a_loop(x: Vector, s: az.f64, steps: az.i64) -> az.f64:
    """What is on chunks in a step needs what a stage of the step gives, and another stage needs it."""

    def step(_: Any, s: Any) -> Any:
        y = x * s - az.mean(x)
        return s + az.mean(y * y) / (1.0 + az.max(az.abs(y)))

    return az.fori_loop(0, steps, step, s)


@az.program
def flag(b: az.Array[az.bool_, "n"], i: az.i64) -> az.bool_:
    return b[i]


X = numbers(11, 3) + 0.01 * np.arange(33).reshape(11, 3)
CALLS = [
    (standardised, (X,), lambda x: ((x - x.mean(0)) / x.std(0), x.std(0))),
    (centroids, (X, X[[0, 4]], 5), numpy_centroids),
    (first_component, (X, np.ones(3)), lambda x, _: abs(np.linalg.svd(x)[2][0])),
    (trimmed, (X[:, 0], -1.5, True), lambda x, low, _: x.clip(low, -low).sum()),
    (trimmed, (X[:, 0], -1.5, False), lambda x, *_: x.mean() * x.max()),
    (along_columns, (X.T, X[:, 1]), lambda x, w: (x @ w, x - (x @ w)[:, None])),
    (places, (X[:, 2], 7), lambda x, i: (x[i] * x[0], x * np.arange(11) / 11)),
    (centred_if, (X[:, 0], 1.0), lambda x, _: 2 * x),
    (centred_if, (X[:, 0], -1.0), lambda x, _: (x - x.mean()) * x[3]),
    (loss_again, (X, X[0]), lambda x, w: np.mean((x @ w) ** 2)),
    (dot, (X[:, 0], X[:, 1]), lambda x, y: x @ y),
    (flag, (X[:, 0] > 0, 3), lambda b, i: b[i]),
    (by_kind, (X, KIND), lambda x, _: np.array([x[:, 0].mean() * x[:, 0].var() * 11, 2 * x[:, 1].max(), 2])),
]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 11, 100])
@pytest.mark.parametrize(("f", "arguments", "numpy"), CALLS, ids=lambda each: getattr(each, "__name__", ""))
def test_against_numpy(f: az.Program, arguments: tuple[Any, ...], numpy: Any, length: int) -> None:
    for found, wanted in zip(leaves(chunked(f, chunk=length)(*arguments)), leaves(numpy(*arguments)), strict=True):
        if f is first_component:
            found = abs(found)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


DERIVATIVES = [
    (az.vjp(centred_if), (X[:, 0], -1.0, X[:, 1])),
    (az.jvp(centred_if), (X[:, 0], -1.0, X[:, 1], 1.0)),
    (az.grad(spread_product), (X[:, 0],)),
    (az.value_and_grad(spread_product), (X[:, 0],)),
    (az.grad(explained, argnums=(0, 1)), (X, X[:, 1])),
    (az.jvp(az.grad(explained, argnums=1)), (X, X[:, 1], X[::-1], X[:, 2])),
    (az.value_and_grad(loss_again, argnums=(0, 1)), (X, X[0])),
    (az.grad(dot, argnums=(0, 1)), (X[:, 0], X[:, 1])),
    (az.grad(largest, argnums=(0, 1)), (X, np.array([1.0, -2.0, 0.5]))),
    (az.vjp(by_kind), (X, KIND, np.array([1.0, 2.0, 3.0]))),
]


OF_LOOPS = [
    (az.grad(descent, argnums=(0, 1, 2)), (X, X[:, 1], X[0], 3)),
    (az.grad(descent, argnums=(0, 1, 2)), (X, X[:, 1], X[0], 0)),
    (az.value_and_grad(loop_in_a_loop, argnums=(0, 1)), (X[:, 0], 0.3, 3)),
    (az.grad(fixed_point), (X[:, 0], 1.3)),
    (az.grad(choice_in_a_loop), (X[:, 0], 0.3, 3)),
    (az.grad(stages_in_a_loop, argnums=(0, 1)), (X[:, 0], 0.3, 3)),
    (az.jvp(az.grad(descent, argnums=1)), (X, X[:, 1], X[0], 2, X[::-1], X[:, 2], X[1])),
]


@pytest.mark.rest
@pytest.mark.parametrize("case", some(OF_LOOPS, 4, 1), ids=lambda case: case[0].name)
def test_derivatives_of_sequential_loops_by_what_is_cut(case: tuple[az.Program, tuple[Any, ...]]) -> None:
    """What is as long as the size is computed behind the loop, which is a round of stages for each step."""
    f, arguments = case
    made = chunked(f)
    assert any(isinstance(step, Around) for step in made.plan.steps)
    wanted = leaves(az.evaluate(f)(*arguments))
    for length in (1, 4, 100):
        made._chunk = length  # as compile's, without planning again
        for found, expected in zip(leaves(made(*arguments)), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_slopes_of_data_in_a_loop_against_differences() -> None:
    x = X[:, 0].copy()
    slope = np.asarray(chunked(az.grad(stages_in_a_loop), chunk=4)(x, 0.3, 3))
    for k in (0, 5, 10):
        moved = [
            float(az.evaluate(stages_in_a_loop)(x + step * (np.arange(11) == k), 0.3, 3)) for step in (1e-5, -1e-5)
        ]
        np.testing.assert_allclose(slope[k], (moved[0] - moved[1]) / 2e-5, rtol=1e-5, atol=1e-8)


@pytest.mark.rest
@pytest.mark.parametrize("length", [1, 3, 100])
@pytest.mark.parametrize(("f", "arguments"), DERIVATIVES, ids=lambda each: getattr(each, "name", ""))
def test_derivatives_of_these(f: az.Program, arguments: tuple[Any, ...], length: int) -> None:
    for found, wanted in zip(
        leaves(chunked(f, chunk=length)(*arguments)), leaves(az.evaluate(f)(*arguments)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)


def test_gradients_against_differences() -> None:
    mean, weight = X[:2] + 0.5, np.array([0.3, -0.2])
    value, slopes = chunked(az.value_and_grad(likelihood, argnums=(1, 2)), chunk=4)(X, mean, weight)
    for k, (argument, slope) in enumerate(zip((mean, weight), slopes, strict=True)):
        for place in np.ndindex(argument.shape):
            moved = [np.copy(mean), np.copy(weight)]
            sides = []
            for step in (1e-5, -1e-5):
                moved[k][place] = argument[place] + step
                sides.append(float(az.evaluate(likelihood)(X, *moved)))
            np.testing.assert_allclose(slope[place], (sides[0] - sides[1]) / 2e-5, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(value, az.evaluate(likelihood)(X, mean, weight), rtol=1e-12)


@pytest.mark.parametrize("length", [1, 5])
def test_no_rows(length: int) -> None:
    total = chunked(az.program(lambda x: (az.sum(x), 2 * x)).at(Vector), chunk=length)
    value, doubled = total(np.empty(0))
    assert value == 0.0 and doubled.compute().shape == (0,)


@pytest.mark.rest
@pytest.mark.parametrize("length", [1, 2, 5, 11])
def test_threads_and_memory_change_no_bits(length: int) -> None:
    gradient = az.grad(likelihood, argnums=1)
    arguments = X, X[:2] + 0.5, np.array([0.3, -0.2])
    bits = {
        chunked(gradient, chunk=length, threads=threads, memory=memory)(*arguments).tobytes()
        for threads in (1, 2, 3)
        for memory in (None, "1MB")
    }
    assert len(bits) == 1


def test_solvers_of_other_libraries() -> None:
    from scipy.optimize import minimize

    @az.program
    def loss(x: Matrix, y: Vector, w: az.Array[az.f64, "d"]) -> az.f64:
        return az.mean(az.log1p(az.exp(-y * (x @ w)))) + 0.01 * az.sum(w * w)

    y = np.sign(X @ np.array([1.0, -2.0, 0.5]) + 0.1)
    fits = []
    for compiled in (
        az.compile(az.value_and_grad(loss, argnums=2)),
        chunked(az.value_and_grad(loss, argnums=2), chunk=3),
    ):
        fits.append(minimize(lambda w, f=compiled: f(X, y, w), np.zeros(3), jac=True, method="L-BFGS-B").x)
    np.testing.assert_allclose(*fits, rtol=1e-6)


@az.data
class Pair:
    x: az.f64
    y: az.f64


clipped = az.foreign("clipped", lambda x: np.clip(x, -0.5, 0.5), lambda x: x)


@pytest.mark.rest
def test_records_operations_and_random_numbers() -> None:
    x, y = X[:, 0].copy(), X[:, 1].copy()
    pairs = az.program(lambda p: az.sum(p.x * p.y)).at(az.Array[Pair, "n"])
    np.testing.assert_allclose(chunked(pairs, chunk=4)(Pair(x, y)), x @ y)
    each = az.program(lambda x: az.sum(az.map(clipped, x))).at(Vector)
    np.testing.assert_allclose(chunked(each, chunk=4)(x), x.clip(-0.5, 0.5).sum())
    means = az.program(lambda x: clipped(az.mean(x, axis=0))).at(Matrix)
    np.testing.assert_allclose(chunked(means, chunk=4)(X), X.mean(0).clip(-0.5, 0.5))

    @az.program
    def noisy(x: Vector, seed: az.i64) -> tuple[Vector, az.f64]:
        keys = az.random.split(az.random.key(seed), az.size(x, 0))
        noise = az.random.normal(az.random.key(seed), (az.size(x, 0),))
        return x + noise, az.sum(az.map(lambda a, k: a * az.random.normal(k), x, keys))

    for found, wanted in zip(leaves(chunked(noisy, chunk=4)(x, 5)), leaves(az.evaluate(noisy)(x, 5)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_values_that_are_inspected(capsys: pytest.CaptureFixture[str]) -> None:
    shown = az.program(lambda x: az.sum(az.inspect(az.sum(x), "total") * x)).at(Vector)
    assert chunked(shown, chunk=2)(np.arange(5.0)) == 100.0
    assert capsys.readouterr().out == ""  # compiled code shows nothing


# What is said


def test_plan_as_text() -> None:
    lines = str(chunked(standardised).plan).splitlines()
    assert [line.partition(",")[0].partition(":")[0] for line in lines] == [
        "here", "stage 1", "here", "stage 2", "here", "results over n",
    ]  # fmt: skip
    assert "reduce, at" in lines[1]
    loop = str(chunked(centroids).plan).splitlines()
    inside = [line for line in loop if line.startswith("  ")]
    assert any(line.startswith("loop, at ") for line in loop) and inside[0].startswith("  stage 1, of each chunk")


def test_what_combines_runs_of_chunks_is_given_what_operators_capture() -> None:
    @az.program
    def scaled(x: Vector, w: az.Array[az.f64, "d"], largest: az.bool_) -> az.f64:
        chosen = az.reduce(lambda a, b: az.where(largest, az.maximum(a, b), a + b), 0.0, az.abs(x))
        return chosen + az.sum(x * az.sum(w))

    made = chunked(scaled, chunk=2)
    (stage,) = [step for step in made.plan.steps if isinstance(step, Stage)]
    assert len(stage.given) == 2 and len(stage.merge_given) == 1
    assert stage.merge is not None and stage.merge.names[:2] == ("_total", "largest")
    for largest, wanted in ((True, 4.0), (False, 10.0)):
        assert made(np.array([1.0, -2.0, 3.0, -4.0]), np.zeros(2), largest) == wanted


def test_cost() -> None:
    found = chunked(standardised).cost(sizes={"n": 10**9, "d": 4})
    assert (found.stages, found.bytes) == (3, 3 * 32 * 10**9)
    assert found.chunks == -(-(10**9) // ((64 << 20) // 32))
    with pytest.raises(TypeError, match="cost takes a value for each size, which are: d, n"):
        chunked(standardised).cost(sizes={"n": 3})
    with pytest.raises(TypeError, match=r"cost takes arguments of a call, or sizes= alone.*test_chunked_programs.py"):
        chunked(standardised).cost(X, sizes={"n": 3, "d": 4})
    with pytest.raises(TypeError, match=r"argument 'x' is f64\[n, d\], got .*test_chunked_programs.py"):
        chunked(standardised).cost({"n": 3, "d": 4})
    of_call = chunked(standardised, chunk=4).cost(X)
    assert (of_call.chunks, of_call.stages, of_call.bytes) == (3, 3, 3 * X.nbytes)


def outer(x: Any, count: Any) -> Any:
    """For each number below a computed one, a sum over all of x."""
    return az.generate(count, lambda j: az.sum(x * j))


def refused(f: Any, verb: Any = lambda f: f) -> str:
    with pytest.raises(Unsupported) as found:
        chunked(verb(az.program(f)).at(Vector))
    assert "test_chunked_programs.py" in str(found.value)
    return str(found.value)


def chosen_spread(x: Any) -> Any:
    """A choice in a loop whose derivative has reductions, and adds to the slope of x what they have given."""

    def spread(s: Any) -> Any:
        m = az.mean(x * s)
        return s + az.mean((x - m) ** 2 * s)

    return az.fori_loop(0, 3, lambda i, s: az.cond(i % 2 == 0, lambda: spread(s), lambda: s * 0.5), 0.3)


def test_what_is_to_be_written_instead_of_a_choice_in_a_loop_is_cut() -> None:
    def spread(x: Any, s: Any) -> Any:
        m = az.mean(x * s)
        return s + az.mean((x - m) ** 2 * s)

    def weighed(x: Any, s: Any, w: Any) -> Any:
        return w * spread(x, s) + (1.0 - w) * s * 0.5

    f = az.program(lambda x: az.fori_loop(0, 3, lambda i, s: weighed(x, s, az.where(i % 2 == 0, 1.0, 0.0)), 0.3))
    slope, wanted = az.grad(f).at(Vector), az.evaluate(az.grad(az.program(chosen_spread)))(X[:, 0])
    np.testing.assert_allclose(chunked(slope, chunk=4)(X[:, 0]), wanted, rtol=1e-12)


def test_what_cannot_be_cut_is_refused_with_what_to_write() -> None:
    assert "a running combination needs what all places before have given" in refused(lambda x: az.cumsum(x))
    product = refused(lambda x: az.prod(x), az.grad)
    assert "write az.exp(az.sum(az.log(x))) for a product that is differentiated" in product
    assert "sorting needs all places at once" in refused(lambda x: az.sort(x))
    assert "its state is as long as the size" in refused(lambda x: az.fori_loop(0, 3, lambda _, y: 2 * y, x))
    assert "reads all pairs" in refused(lambda x: az.map(lambda a: az.sum(x * a), x))
    assert "a place that is not the loop's own" in refused(
        lambda x: az.map(lambda i: x[az.size(x, 0) - 1 - i], az.arange(az.size(x, 0)))
    )
    assert "its iterations run in order" in refused(
        lambda x: az.fori_loop(0, az.size(x, 0), lambda i, s: s * 0.5 + x[i], 0.0)
    )
    assert "write az.where(test, a, b) instead of a choice" in refused(
        lambda x: az.cond(
            x[0] > 0.0, lambda: az.cond(x[1] > 0.0, lambda: x * az.sum(x), lambda: x + 1.0), lambda: 2 * x
        )
    )
    assert "w * a + (1.0 - w) * b with w = az.where(test, 1.0, 0.0)" in refused(
        chosen_spread, lambda f: az.grad(f, argnums=0)
    )
    assert "a library operation needs its whole arguments" in refused(lambda x: az.sum(clipped(x)))
    assert "a reduction in a branch is part of f64[?0], with a size that is computed" in refused(
        lambda x: az.cond(x[0] > 0.0, lambda: x * az.sum(outer(x, az.argmax(x))), lambda: x)
    )
    assert "it goes over 2*n" in refused(lambda x: az.concatenate([x, x]))


def test_wrong_options() -> None:
    f = standardised
    with pytest.raises(ValueError, match=r"over='m' is no size of its parameters alone, which are: d, n"):
        chunked(f, "m")
    of_three = az.program(lambda x, w: az.sum(x @ w)).at(az.Array[az.f64, "n 3"], az.Array[az.f64, "3"])
    for no_name in ("3", "n + 1", ""):
        with pytest.raises(ValueError, match="is no name of a size; one that is a number is not cut"):
            chunked(of_three, no_name)
    with pytest.raises(ValueError, match=r"over='m' is required to be n, which is its name then: write over='n'"):
        chunked(dot, "m")
    square = az.program(lambda x: az.sum(x)).at(az.Array[az.f64, "n n"])
    with pytest.raises(ValueError, match="cuts one axis that has this size alone"):
        chunked(square)
    pair = az.program(lambda x, y: az.sum(x) + az.sum(y)).at(Vector, az.Array[az.f64, "n+1"])
    with pytest.raises(ValueError, match="cuts one axis that has this size alone"):
        chunked(pair)
    with pytest.raises(TypeError, match="annotate its parameters"):
        chunked(az.program(lambda x: az.sum(x)))
    with pytest.raises(ValueError, match="takes over=, the name of the size"):
        az.compile(f, backend="dask")
    with pytest.raises(ValueError, match="at least one index"):
        chunked(f, chunk=0)
    for memory in ("2 XB", "much", -3, 0, 1.5):
        with pytest.raises(ValueError, match="memory= is a number of bytes"):
            chunked(f, memory=memory)
    for name, value in {"over": "n", "client": 1, "chunk": 3, "memory": "1GB"}.items():
        with pytest.raises(ValueError, match=f'{name}= is for backend="dask"'):
            az.compile(f, **{name: value})
    with pytest.raises(ValueError, match='device= is for backend="opencl"'):
        chunked(f, device=0)


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks on one machine need nothing of it but for results over the size; what needs it says so when compiled."""
    for name in [each for each in sys.modules if each.partition(".")[0] in ("dask", "distributed", "cloudpickle")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("dask", "distributed", "cloudpickle"):
        monkeypatch.setitem(sys.modules, name, None)
    assert chunked(az.program(lambda x: az.sum(x)).at(Vector), chunk=3)(np.arange(10.0)) == 45.0
    with pytest.raises(
        ImportError, match=r"results over n are arrays of Dask's, and dask.array is not.*adze-lang\[dask\]"
    ):
        chunked(az.program(lambda x: 2 * x).at(Vector))
    with pytest.raises(
        ImportError, match=r"client= is one of dask.distributed, and dask.array is not .*adze-lang\[dask\]"
    ):
        chunked(az.program(lambda x: az.sum(x)).at(Vector), client="tcp://nowhere:1")


def test_what_compiled_programs_have_beside_is_refused_with_a_reason() -> None:
    found = chunked(az.program(lambda x: az.sum(x)).at(Vector))
    with pytest.raises(AttributeError, match=r"has no llvm_ir: it is a small program for each part of .plan.*\.py:\d+"):
        found.llvm_ir  # noqa: B018
    assert not hasattr(found, "nothing") and not hasattr(found, "_nothing")


def test_failures_have_indices_of_the_whole() -> None:
    @az.program
    def looked_up(table: az.Array[az.f64, "k"], i: az.Array[az.i64, "n"]) -> az.f64:
        return az.sum(az.map(lambda j: table[j], i))

    places = np.arange(20) % 5
    f = chunked(looked_up, chunk=3)
    assert f(np.arange(5.0), places) == places.sum()
    places[13], places[17] = 9, 8
    with pytest.raises(IndexError, match=r"index 9 is out of range for axis 0 of table.*whose size is 5"):
        f(np.arange(5.0), places)
    picked = az.program(lambda x, i: x[i]).at(Vector, az.i64)
    with pytest.raises(IndexError, match=r"index 20 is out of range.*whose size is 20"):
        chunked(picked, chunk=3)(np.arange(20.0), 20)


def test_it_looks_like_the_program() -> None:
    import inspect

    f = chunked(standardised)
    assert repr(f) == "<standardised compiled for chunks of n>" and f.__name__ == "standardised"
    assert list(inspect.signature(f).parameters) == ["x"]
    with pytest.raises(TypeError, match="compile what comes out"):
        az.grad(f)
