"""Library operations (``az.operation``) in every interpretation: meanings, types, requirements, rules."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load import example
from test_custom_derivatives import has_derivatives
from test_operation_derivatives import (
    PROGRAMS,
    RANDOM,
    A,
    B,
    Counted,
    Square,
    Vector,
    objective,
    solve,
    weights,
)

import adze as az
from adze.core.dims import Dim
from adze.core.types import dims

HERE = re.escape(Path(__file__).name) + r":\d+"


# Meanings


@pytest.mark.unguarded
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_as_evaluated_with_derivatives(name: str) -> None:
    program, arguments = PROGRAMS[name]
    value, gradient = az.evaluate(az.value_and_grad(program))(*arguments)
    for found in (az.compile(program)(*arguments), az.evaluate(program)(*arguments)):
        np.testing.assert_allclose(found, value, rtol=1e-11)
    for found in (az.compile(az.grad(program))(*arguments), az.grad(program, via="trace")(*arguments)):
        np.testing.assert_allclose(found, gradient, rtol=1e-11, atol=1e-13)


def test_one_step_of_a_trace() -> None:
    trace = az.trace(objective)(A, B)
    assert [operation.op for operation in trace.block.bindings].count("foreign") == 2


def test_costs_and_zeros() -> None:
    cost = az.cost(az.program(lambda a, b: solve(a, b)).at(Square, Vector))
    assert str(cost.symbolic.operations) == "n^3"
    assert az.cost(az.program(lambda a, b: solve(a, b)))(A, B).operations == 64
    jacobian = az.sparse_jacobian(az.program(lambda a, b: solve(a, b)), argnums=1)(A, B)
    np.testing.assert_allclose(jacobian.toarray(), np.linalg.inv(A), rtol=1e-10)


def test_equal_applications_are_one() -> None:
    program = az.program(lambda a, b: solve(a, b) + solve(a, b * 1.0)).at(Square, Vector)
    assert str(az.pretty(az.simplify(program.term))).count("foreign.solve") == 1


# Types and requirements


def test_what_types_require_of_the_run() -> None:
    @az.program
    def apart(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "k"]) -> Any:
        return solve(a, b)  # the line

    line = apart.function.__code__.co_firstlineno + 2
    for run in (az.evaluate(apart), az.compile(apart), az.trace(apart)):
        with pytest.raises(ValueError, match=rf"solve: a is square: n = 3 is not m = 4, at {__file__}:{line}"):
            run(A[:3], B)
        with pytest.raises(ValueError, match=rf"solve: b has a row .* n = 4 is not k = 3, at {__file__}:{line}"):
            run(A, B[:3])
    np.testing.assert_allclose(az.evaluate(apart)(A, B), np.linalg.solve(A, B))


def test_what_types_require_when_the_program_is_built() -> None:
    with pytest.raises(TypeError, match=rf"solve: a is square: 3 is not 4 \(at .*{HERE}\)"):
        az.pretty(az.program(lambda a, b: solve(a, b)).at(az.Array[az.f64, 3, 4], Vector))
    some = az.operation("some", numpy=np.copy, result=lambda x: az.equal_sizes(dims(x)[0] + 1, dims(x)[0], "no") or x)
    with pytest.raises(TypeError, match=rf"some: no: n \+ 1 is not n \(at .*{HERE}\)"):
        az.pretty(az.program(lambda x: some(x)).at(Vector))


def test_sizes_of_no_argument_cannot_be_required() -> None:
    odd = az.operation("odd", numpy=np.copy, result=lambda x: az.equal_sizes(dims(x)[0] * 2, Dim.of(4), "x") or x)
    with pytest.raises(TypeError, match=rf"odd: the size .* is that of no argument \(at .*{HERE}\)"):
        az.pretty(az.program(lambda x: odd(az.filter(lambda v: v > 0, x))).at(Vector))


# Wrong operations

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: az.operation("f", numpy=3, result=az.f64), "the operation f takes a function on arrays, not 3"),
    (
        lambda: az.operation("f", numpy=np.sin, result=az.f64, derivative={"grad": np.sin}),
        "f: a rule is called 'jvp' or 'vjp', not 'grad'",
    ),
    (
        lambda: az.operation("f", numpy=np.sin, result=az.f64, derivative={"jvp": lambda x: x}),
        r"the jvp rule of f takes a function of two arguments, \(primals, tangents\), not of \(x\)",
    ),
    (
        lambda: az.operation("f", numpy=np.sin, result=az.f64, derivative={"vjp": 4}),
        r"the vjp rule of f takes a function of two arguments, \(primals, cotangent\), not 4",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_wrong_operations(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=rf"{message}.*\(at .*{HERE}\)"):
        make()


# Effects


class Log:
    """An operation that notes what it is given, and gives it back."""

    def __init__(self) -> None:
        self.lines: list[float] = []
        rules = {"vjp": lambda primals, cotangent: (3.0 * cotangent,)}
        self.write = az.operation("write", numpy=self.noted, result=lambda x: x, effects=True, derivative=rules)

    def noted(self, x: Any) -> Any:
        self.lines.append(float(np.sum(x)))
        return x

    def of(self, run: Any, *arguments: Any) -> list[float]:
        """What a run notes."""
        self.lines.clear()
        run(*arguments)
        return list(self.lines)


@pytest.fixture
def log() -> Log:
    return Log()


def everywhere(program: Any) -> list[Any]:
    """The program as each interpretation runs it."""
    compiled = [az.compile(program, threads=threads, checks=checks) for threads in (1, 2) for checks in (True, False)]
    return [az.evaluate(program), az.evaluate(program, vectorize=False), az.trace(program), *compiled]


@pytest.mark.unguarded
def test_effects_happen_as_often_and_in_the_order_of_the_program(log: Log) -> None:
    """None is merged, dropped, moved out of a loop or of a branch, or done for a branch that is not taken."""

    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        log.write(x)
        log.write(x)  # the same, whose result nobody wants
        squares = az.sum(x * x)
        log.write(squares)

        def step(i: Any, total: Any) -> Any:
            log.write(x)  # the same in every step
            return total + log.write(i * 1.0)

        total = az.fori_loop(0, k, step, 0.0)
        az.cond(k > 2, lambda: log.write(100.0), lambda: log.write(200.0))
        last = az.while_loop(lambda v: v < 50.0, lambda v: log.write(v * 2.0), squares)
        return total + az.sum(az.map(lambda v: v * last, x)) + log.write(7.0)

    x = np.array([1.0, 2.0])
    for k in (0, 3):
        steps = [entry for i in range(k) for entry in (3.0, float(i))]
        wanted = [3.0, 3.0, 5.0, *steps, 100.0 if k > 2 else 200.0, 10.0, 20.0, 40.0, 80.0, 7.0]
        for run in everywhere(f):
            assert log.of(run, x, k) == wanted


def test_effects_beside_fused_loops(log: Log) -> None:
    """Loops before and after are fused with others, but not around it."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        y = az.map(lambda v: v * 2.0, x)
        log.write(y)
        z = az.map(lambda v: v + 1.0, y)
        return az.sum(log.write(z)), z

    for run in everywhere(f):
        assert log.of(run, np.arange(50.0)) == [2450.0, 2500.0]


def test_effects_inside_of_scopes_that_run_once(log: Log) -> None:
    ruled = az.custom_vjp(lambda x: log.write(x) * 2.0)
    ruled.defvjp(lambda primals, cotangent: (cotangent * 2.0,))

    @az.program
    def f(x: az.f64) -> az.f64:
        log.write(1.0)
        y = az.checkpoint(lambda v: az.sin(log.write(v)))(x)
        log.write(2.0)
        return ruled(x) + y

    for run in everywhere(f):
        assert log.of(run, 0.5) == [1.0, 0.5, 2.0, 0.5]


def test_what_follows_a_failure_does_not_happen(log: Log) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        log.write(1.0)
        y = x[k] * 2.0
        log.write(y)
        return y

    for run in (az.evaluate(f), az.trace(f), az.compile(f)):
        log.lines.clear()
        with pytest.raises(IndexError):
            run(np.ones(3), 7)
        assert log.lines == [1.0]


def test_effects_and_derivatives(log: Log) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(log.write(x) * 2.0)

    x = np.ones(3)
    for verb in (az.evaluate, az.compile):
        for program in (az.grad(f), az.jvp(f)):
            arguments = (x, x) if program is not az.grad(f) and len(program.parameters) == 2 else (x,)
            run = verb(program)
            assert log.of(run, *arguments) == [3.0]
        np.testing.assert_array_equal(verb(az.grad(f))(x), 6 * np.ones(3))
    assert "foreign.write" in str(az.pretty(f))


def test_effects_are_refused_where_derivatives_run_again(log: Log) -> None:
    @az.program
    def looped(x: az.f64) -> az.f64:
        return az.fori_loop(0, 3, lambda i, s: az.sin(log.write(s)), x)  # the line

    @az.program
    def kept(x: az.f64) -> az.f64:
        return az.checkpoint(lambda v: az.sin(log.write(v)))(x)  # the line

    for program in (looped, kept):
        line = program.function.__code__.co_firstlineno + 2
        message = rf"write has effects, and reverse mode would run it again here: .* at {__file__}:{line}"
        with pytest.raises(az.Unsupported, match=message):
            az.evaluate(az.grad(program))(0.5)
        assert log.of(az.evaluate(az.jvp(program)), 0.5, 1.0)[0] == 0.5
    with pytest.raises(az.Unsupported, match="write has effects, and the sweep over the trace would run it again"):
        az.grad(az.program(lambda x: az.sin(log.write(x))), via="trace")(0.5)
    beside = az.program(lambda x, y: x * log.write(y))
    assert log.of(az.grad(beside, via="trace"), 0.5, 2.0) == [2.0]


ORDERLESS: dict[str, Callable[[Any, Any], Any]] = {
    "generate": lambda write, x: az.map(write, x),
    "reduce": lambda write, x: az.sum(az.map(lambda v: write(v), x)),
    "scan": lambda write, x: az.scan(lambda a, b: write(a + b), 0.0, x),
    "scatter": lambda write, x: az.scatter(x, [0], az.map(write, x[:1])),
    "par": lambda write, x: az.par(lambda: write(x), lambda: x),
}


@pytest.mark.parametrize("name", ORDERLESS)
def test_effects_are_refused_in_what_has_no_order(name: str, log: Log) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        inner = az.program(lambda x: az.cond(az.size(x) > 1, lambda: log.write(x), lambda: x))
        return ORDERLESS[name](lambda v: inner(v) if getattr(v, "ndim", 0) else log.write(v), x)

    with pytest.raises(TypeError, match=rf"write has effects, and cannot be inside a \w+, which .*, at .*{HERE}"):
        az.evaluate(f)(np.ones(3))
    vectors = az.program(lambda x: az.vmap(lambda v: log.write(v))(x))
    with pytest.raises(TypeError, match="write has effects, and cannot be inside a generate"):
        az.evaluate(vectors)(np.ones(3))


# Expansions


@pytest.mark.unguarded
def test_small_arrays_have_the_expansion() -> None:
    """On the CPU where all extents are constants, and at most what was said."""
    counted = Counted(small=4)
    program = az.program(lambda a, x: counted.apply(a, x) * 2.0)
    for n, calls in ((4, 0), (5, 1)):
        a, x = weights(n)
        wanted = np.tril(a) @ np.sin(x) * 2
        counted.calls = 0
        for types in ((Square, Vector), (az.Array[az.f64, n, n], az.Array[az.f64, n])):
            np.testing.assert_allclose(az.compile(program.at(*types))(a, x), wanted, rtol=1e-12)
        rows = az.program(lambda a, xs: az.map(lambda row: counted.apply(a, row), xs))
        compiled = az.compile(rows.at(az.Array[az.f64, n, n], az.Array[az.f64, "m", n]))
        np.testing.assert_allclose(compiled(a, np.stack([x, x])) * 2, [wanted, wanted], rtol=1e-12)
        assert ("call 0" in compiled.loops) == bool(calls)
    assert "foreign.weighted" in str(az.pretty(program.at(Square, Vector)))


def test_expansions_that_give_something_else() -> None:
    def compiled(expansion: Any, **more: Any) -> Any:
        wrong = az.operation("wrong", numpy=np.sin, result=lambda x: x, expansion=expansion, small=9, **more)
        return az.compile(az.program(lambda x: wrong(x)).at(az.Array[az.f64, 3]))(np.ones(3))

    with pytest.raises(TypeError, match="the expansion of wrong: result 1"):
        compiled(lambda x: az.sum(x))
    with pytest.raises(TypeError, match="the expansion of wrong gives 2 values, where 1 were promised"):
        compiled(lambda x: (x, x))
    with pytest.raises(TypeError, match="the operation wrong has effects, which an expansion does not have"):
        compiled(lambda x: x, effects=True)


def test_an_expansion_may_hold_other_operations() -> None:
    outer = az.operation("outer", numpy=np.copy, result=lambda x: x, expansion=lambda x: inner(x) + 1.0, small=9)
    inner = az.operation("inner", numpy=np.copy, result=lambda x: x, expansion=lambda x: x * 2.0, small=9)
    compiled = az.compile(az.program(lambda x: outer(x)).at(az.Array[az.f64, 3]))
    np.testing.assert_array_equal(compiled(np.ones(3)), np.full(3, 3.0))


@pytest.mark.usefixtures("opencl")
def test_on_opencl_all_that_can_be_is_expanded() -> None:
    counted = Counted(small=0)
    program = az.program(lambda a, x: az.sum(counted.apply(a, x) ** 2))
    a, x = weights(20)
    for one in (program, az.grad(program)):
        np.testing.assert_allclose(az.compile(one, backend="opencl")(a, x), az.evaluate(one)(a, x), rtol=1e-11)
    counted.calls = 0
    az.compile(program, backend="opencl")(a, x)
    assert counted.calls == 0
    with pytest.raises(az.Unsupported, match=rf"the function solve, .* runs on the host.*{HERE}"):
        az.compile(az.program(lambda a, x: solve(a, x)), backend="opencl")(a, x)


# The example


@pytest.fixture(scope="module")
def new() -> Any:
    return example("new_operation")


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_the_example_in_every_interpretation(new: Any, n: int) -> None:
    """By NumPy, by C, and in small arrays of constant size by its expansion."""
    heat, conductivity = RANDOM.standard_normal((6, n)), RANDOM.random(n)
    program, gradient = new.cooling, az.grad(new.cooling, argnums=1)
    wanted = az.evaluate(az.value_and_grad(program, argnums=1))(heat, conductivity)
    for types in ((), (az.Array[az.f64, 6, n], az.Array[az.f64, n])):
        compiled = az.compile(program.at(*types) if types else program)
        np.testing.assert_allclose(compiled(heat, conductivity), wanted[0], rtol=1e-11)
        assert ("call " in compiled.loops) == (not types or n > 8)
        slope = az.compile(gradient.at(*types) if types else gradient)
        np.testing.assert_allclose(slope(heat, conductivity), wanted[1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(az.grad(program, 1, via="trace")(heat, conductivity), wanted[1], rtol=1e-10, atol=1e-12)


@pytest.mark.rest
@pytest.mark.unguarded
def test_derivatives_of_the_example(new: Any) -> None:
    has_derivatives(new.cooling, RANDOM.standard_normal((2, 4)), RANDOM.random(4))


@pytest.mark.usefixtures("opencl")
def test_the_example_on_opencl(new: Any) -> None:
    heat, conductivity = RANDOM.standard_normal((40, 21)), RANDOM.random(21)
    gradient = az.value_and_grad(new.cooling, argnums=1)
    found = az.compile(gradient, backend="opencl")(heat, conductivity)
    for one, two in zip(found, az.evaluate(gradient)(heat, conductivity), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


def test_errors_of_the_example(new: Any) -> None:
    program = az.program(lambda a, b: new.solve(a, b, a, a))
    with pytest.raises(ValueError, match=rf"thomas: diagonal is as long as right: .* = 3 .* = 4, at .*{HERE}"):
        az.compile(program)(np.ones(4), np.ones(3))
    if new.solve.function.c is not None:
        with pytest.raises(np.linalg.LinAlgError, match=rf"thomas: a pivot is 0, at .*{HERE}"):
            az.compile(program)(np.ones(20), np.zeros(20))
