"""Programs on an OpenCL device: equal to evaluate, as are their derivatives, of first and of second order.

Each kernel of a program is built when it first runs, which takes longer than the rest. So the fast tests run every
program, and the gradients that need every construct; the long run has all derivatives in both precisions, the property
suite, compositions and random programs. Some run with groups that are small and few: then small inputs, too, come to
what several groups do together. (``test_opencl_oclgrind.py`` runs all programs so.)
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from agreement import exact, magnitude, rounded, same_bits
from appendix import ROWS, Row
from hypothesis import given, settings
from nesting import INNER, OUTER, expected, nested
from opencl_groups import groups
from precision import cast
from programs import CASES, Case, numbers, sampled
from random_programs import PARAMETERS, argument_lists, made, program_texts
from richardson import floating
from sampling import some, sooner
from test_accelerate_derivatives import Derivatives, derivatives, for_each
from test_accelerate_derivatives import close as close_to
from test_compile import assert_same
from test_derivatives import (
    COMPILED,
    CURVED,
    DIFFERENTIABLE,
    OTHERS,
    SINGLE,
    Point,
    assert_close,
    generic,
    leaves,
    scalar,
)
from test_random_programs import squares

import adze as az
from adze.backends.opencl.devices import Device
from adze.core.types import f32, f64

pytestmark = [pytest.mark.unguarded, pytest.mark.usefixtures("opencl")]

RANDOM = np.random.default_rng(7)

# Gradients of these are run every time: what others of ``COMPILED`` have, too, is long to build.
TOO_LONG = {
    "statistics", "extremes_of_all", "slices", "histogram_of_rows", "running_sum", "log_sum_exp",
    "outputs_of_array_steps", "where_broadcast", "sorting", "gather", "powers", "row_norms", "generate_two",
    "gather_pairs", "dot", "cond_structure", "power_loop", "heat", "series", "matrix_power_loop", "swapped_states",
}  # fmt: skip
EVERY_TIME = COMPILED - TOO_LONG


def each_of(fast: set[str]) -> pytest.MarkDecorator:
    """The differentiable programs but for those of the property suite: those not fast in the long run and the sweep."""
    own = [case for case in DIFFERENTIABLE if case.name in OTHERS]
    return pytest.mark.parametrize("case", sooner(own, lambda case: case.name in fast, 8), ids=lambda case: case.name)


@pytest.fixture
def small(opencl: Device) -> Iterator[Device]:
    """The device with few small groups."""
    with groups(opencl, size=4, threads=16) as device:
        yield device


def compiled(program: Any, **options: Any) -> az.Compiled:
    return az.compile(program, backend="opencl", **options)


def agrees(program: Any, arguments: Sequence[Any], tolerance: float = 1e-12, **options: Any) -> Any:
    """A program gives on the device what it gives in evaluate; with Nones where there is no derivative."""
    got, wanted = compiled(program, **options)(*arguments), az.evaluate(program)(*arguments)
    for x, y in zip(leaves(got), leaves(wanted), strict=True):
        assert x is None or x.dtype == y.dtype
    assert_close(leaves(got), leaves(wanted), tolerance)
    return got


def precision(case: Case) -> float:
    return 1e-5 if case.name in SINGLE else 1e-12


# Programs


@sampled(CASES, 8, long=3)
def test_equals_evaluate(case: Case) -> None:
    """The same results on all targets (S24)."""
    run = compiled(case.program)
    for arguments in case.arguments:
        assert_same(run(*arguments), az.evaluate(case.program)(*arguments))


# Derivatives


@pytest.mark.rest
@each_of(EVERY_TIME)
def test_reverse_mode(case: Case) -> None:
    point = Point(case)
    agrees(az.vjp(case.program), (*point.arguments, point.cotangent), precision(case))


@each_of({"extremes", "cond_in_map", "scan_in_map"})
def test_forward_mode(case: Case) -> None:
    point = Point(case)
    agrees(az.jvp(case.program), (*point.arguments, *point.tangents), precision(case))


@pytest.mark.rest
@each_of({"product"})
def test_the_other_precision(case: Case) -> None:
    """Both modes of the program in f32 on the device, against those in f64 at the same arguments."""
    if case.name in SINGLE:
        point = Point(case, f64)
        agrees(az.vjp(point.program), (*point.arguments, point.cotangent))
        return
    single, double = Point(case, f32), Point(case, f64)
    for verb, inputs in ((az.jvp, single.tangents), (az.vjp, [single.cotangent])):
        got = compiled(verb(single.program))(*single.arguments, *inputs)
        wanted = az.evaluate(verb(double.program))(*cast(single.arguments, f64), *cast(tuple(inputs), f64))
        for x, y in zip(leaves(got), leaves(wanted), strict=True):
            if np.asarray(y).dtype.kind != "f":
                continue
            assert x.dtype == np.float32
            scale = np.max(np.abs(y), initial=1.0, where=np.isfinite(y))
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(sorted(CURVED), 3, long=0))
def test_second_order(name: str) -> None:
    """The product of the Hessian with a vector, forward and in reverse over reverse mode."""
    point = Point.double(next(case for case in CASES if case.name == name))
    gradient = az.grad(scalar(point.program), argnums=tuple(point.floating))
    agrees(az.jvp(gradient), (*point.arguments, *point.tangents), 1e-11)
    agrees(az.vjp(gradient), (*point.arguments, tuple(point.tangents)), 1e-11)


# The property suite, compositions and random programs


@pytest.mark.slow
@pytest.mark.parametrize("row", some(ROWS, 6, long=0), ids=lambda row: row.name)
def test_gradients_of_the_property_suite(row: Row) -> None:
    own: Derivatives = derivatives(row.program)
    reverse, forward = compiled(own.reverse), compiled(own.forward)

    def test(at: Any) -> bool:
        assert floating(own.program, at.arguments)
        close_to(reverse(*at.arguments, 1.0), (at.primal, *at.cotangents), 1e-12 * at.largest())
        close_to(forward(*at.arguments, *at.direction), (at.value, at.tangent), 1e-12 * at.largest())
        return True

    for_each(row, 10, test)


@pytest.mark.slow
@pytest.mark.parametrize("inside", INNER)
@pytest.mark.parametrize("outside", some(OUTER, 3, long=0))
def test_every_construct_inside_every_other_one(outside: str, inside: str, small: Device) -> None:
    program = nested(outside, inside)
    run = compiled(program, device=small)
    for size in (0, 1, 3, 33):
        exact(run(numbers(size)), expected(outside, numbers(size)))


def agree(program: az.Program, arguments: Sequence[Any], compare: Any, device: Device | None = None) -> None:
    """What ``agreement.everywhere`` says of other interpretations."""
    instance = program.instance_for(program.bind(arguments, {}))
    given = instance.signature.convert(program.leaves(arguments))
    largest = () if compare is exact else (magnitude(instance.term, *given),)
    compare(compiled(program, device=device)(*arguments), az.evaluate(program)(*arguments), *largest)


@pytest.mark.rest
@settings(max_examples=3)
@given(program_texts(polynomial=True), argument_lists())
def test_random_programs(text: str, arguments: tuple[Any, ...]) -> None:
    agree(made(text), arguments, exact)


@pytest.mark.slow
@settings(max_examples=15)
@given(program_texts(polynomial=True, depth=5), argument_lists())
def test_larger_random_programs(text: str, arguments: tuple[Any, ...]) -> None:
    agree(made(text), arguments, exact)


@pytest.mark.slow
@settings(max_examples=30)
@given(program_texts(depth=3), argument_lists(special=True))
def test_random_programs_of_infinities_and_nan(text: str, arguments: tuple[Any, ...]) -> None:
    agree(made(text), arguments, rounded)


@pytest.mark.slow
@settings(max_examples=30)
@given(program_texts(polynomial=True, depth=3), argument_lists(empty=True))
def test_random_programs_of_empty_arrays(text: str, arguments: tuple[Any, ...]) -> None:
    """Reading an element of nothing is an error on the device, too."""
    program = made(text)
    try:
        az.evaluate(program)(*arguments)
    except (IndexError, ValueError) as failure:
        with pytest.raises(type(failure)):
            compiled(program)(*arguments)
    else:
        agree(program, arguments, exact)


@pytest.mark.slow
@settings(max_examples=25)
@given(program_texts(polynomial=True, depth=3), argument_lists())
def test_gradients_of_random_programs(text: str, arguments: tuple[Any, ...]) -> None:
    program = az.grad(squares(made(text)), argnums=tuple(range(len(PARAMETERS) - 1)))
    agree(program, arguments, rounded)


# Options: the same bits in each run, and no requirements


@az.program
def gathered(x: az.Array[az.f64, "n"], places: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> az.f64:
    """Its gradient adds many numbers to few places."""
    return az.sum(x[places] * x[places] * w)


@az.program
def binned(places: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> Any:
    return az.histogram(lambda p, q: p + q, 0.0, 50, places, w), az.sum(w * w), az.cumsum(w)


PLACES, WEIGHTS = RANDOM.integers(0, 50, size=30_000), RANDOM.normal(size=30_000)
ADDING = [
    pytest.param(az.grad(gathered), (RANDOM.normal(size=50), PLACES, WEIGHTS), id="accumulator"),
    pytest.param(binned, (PLACES, WEIGHTS), id="histogram"),
]


@pytest.mark.rest
@pytest.mark.parametrize(("program", "arguments"), ADDING)
def test_the_same_bits_in_each_run(program: Any, arguments: tuple[Any, ...]) -> None:
    run = compiled(program, deterministic=True)
    first = run(*arguments)
    assert_close(leaves(first), leaves(az.evaluate(program)(*arguments)), 1e-10)
    for _ in range(10):
        same_bits(run(*arguments), first)
    agrees(program, arguments, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gather", "gather_pairs", "histograms", "product", "linear_recurrence", "statistics"])
def test_the_same_bits_in_each_run_of_a_gradient(name: str, small: Device) -> None:
    point = Point(next(case for case in CASES if case.name == name))
    program, arguments = az.vjp(point.program), (*point.arguments, point.cotangent)
    first = agrees(program, arguments, device=small, deterministic=True)
    for _ in range(5):
        same_bits(compiled(program, device=small, deterministic=True)(*arguments), first)


@pytest.mark.parametrize("name", ["gather", "histograms", "updated_element"])
def test_without_requirements(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    agrees(case.program, case.arguments[0], checks=False)


# Every size: one compiled program for all


@az.program
def mixed(A: az.Array[az.f64, "n m"], B: az.Array[az.f64, "m k"], x: az.Array[az.f64, "m"]) -> Any:
    """A product, sums of rows and columns, a product with a vector, a transposed read, a scan and a sort."""
    product = A @ B
    return (
        product,
        az.sum(product, axis=1),
        az.sum(A, axis=0),
        A @ x,
        az.sum(A),
        az.generate((A.shape[1], A.shape[0]), lambda j, i: A[i, j] * x[j]),
        az.cumsum(x),
        az.argsort(x),
        az.histogram(lambda p, q: p + q, 0.0, 5, az.iota(az.size(x)) % 5, x),
        az.sum(az.map(lambda row: az.max(row) - az.min(row), A)),
    )


SIZES = [(0, 3, 4), (3, 0, 4), (1, 1, 1), (5, 7, 3), (33, 65, 17), (7, 200, 64), (130, 5, 70), (2, 3000, 2)]


def every_size(device: Device | None) -> None:
    run = compiled(mixed, device=device)
    for n, m, k in SIZES:
        arguments = numbers(n, m), numbers(m, k, seed=1), numbers(m, seed=2)
        exact(run(*arguments), az.evaluate(mixed)(*arguments))


@pytest.mark.slow
def test_every_size() -> None:
    every_size(None)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "threads"), [(1, 1), (2, 8), (8, 8), (16, 4096), (128, 1024)])
def test_every_size_for_groups_of_each_size(size: int, threads: int, opencl: Device) -> None:
    with groups(opencl, size, threads) as device:
        every_size(device)


# Sizes that the run decides


@az.program
def selected(x: az.Array[az.f64, "n"]) -> Any:
    """Of results, of what is reduced at once, and of what each iteration makes for itself."""
    larger = az.map(lambda v: az.sum(az.sort(az.filter(lambda w: w > v, x)) * v), x)
    return az.filter(lambda v: v > 0, x), larger


@az.program
def squared(x: az.Array[az.f64, "n"]) -> az.f64:
    """Each element runs a loop of its own length, whose steps the gradient has to keep."""

    def steps(v: Any) -> Any:
        return az.while_loop(lambda s: s[1] < 9.0, lambda s: (s[0] + 1, s[1] * s[1] + abs(v)), (0, 1.5))[1]

    return az.sum(az.map(steps, x)) + az.sum(az.filter(lambda v: v > 0, x) ** 2)


@az.program
def settled(x: az.Array[az.f64, "n"]) -> az.f64:
    """The device decides how long a loop of arrays is."""
    return az.sum(az.while_loop(lambda s: az.sum(s * s) > 1.0, lambda s: az.sin(s) * s[::-1], x))


@pytest.mark.rest
@pytest.mark.parametrize("n", [0, 1, 5, 300])
def test_sizes_that_the_run_decides(n: int) -> None:
    kept, larger = compiled(selected)(numbers(n))
    wanted = az.evaluate(selected)(numbers(n))
    np.testing.assert_array_equal(kept, wanted[0])
    np.testing.assert_allclose(larger, wanted[1], rtol=1e-12)


@pytest.mark.rest
@pytest.mark.parametrize("program", [squared, settled], ids=lambda program: str(program.name))
def test_gradients_of_loops_whose_length_the_run_decides(program: az.Program, small: Device) -> None:
    for n in (0, 1, 33):
        x = generic(numbers(n), 5)
        agrees(az.grad(program), (x,), 1e-10, device=small)


@pytest.mark.rest
@pytest.mark.parametrize("checkpoint", ["all", "sqrt", 3])
def test_checkpoints(checkpoint: Any) -> None:
    @az.program
    def grown(x: az.Array[az.f64, "n"], steps: az.i64) -> az.f64:
        return az.sum(az.fori_loop(0, steps, lambda i, s: az.sin(s) * x * 0.25 + 0.5 * s, x, checkpoint=checkpoint))

    for steps in (0, 1, 20):
        agrees(az.grad(grown), (generic(numbers(70), 3), steps), 1e-10)


@pytest.mark.rest
@pytest.mark.parametrize("dtype", some([np.int32, np.float32, np.int64], 3))
def test_other_scalar_types(dtype: Any) -> None:
    """The constructs that combine, in types whose updates are spelled in other ways."""
    element = {np.int32: az.i32, np.int64: az.i64, np.float32: az.f32}[dtype]

    @az.program
    def combined(x: az.Array[element, "n"], at: az.Array[az.i64, "n"]) -> Any:
        zero, one = np.zeros((), dtype)[()], np.ones((), dtype)[()]
        bins = [
            az.histogram(lambda p, q: p + q, zero, 7, at, x),
            az.histogram(lambda p, q: p * q, one, 7, at, x),
            az.histogram(lambda p, q: az.maximum(p, q), zero, 7, at, abs(x)),
        ]
        return az.sum(x), az.max(x), az.cumsum(x), az.sort(x), az.any(x > 0), az.all(x > 0), tuple(bins)

    x, at = numbers(300, dtype=np.int64).astype(dtype), np.arange(300) % 90
    x[:] = np.where(abs(x) > 1, x, 1) // 2 + 1
    exact(compiled(combined)(x, at), az.evaluate(combined)(x, at))
