"""Every scalar operation: its columns, its values against an independent reference, compiled against evaluated,
its derivatives against differences, and what the operators of expressions make of types.

Tables below say for each row what cannot be read from the row itself: a reference in Python's own numbers, and points
at which its derivative is smooth. A row that is missing in a table fails the first test.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from sampling import some
from versions import newest

import adze as az
from adze.core.expr import Expr
from adze.core.primitive import PRIMITIVES, Conversion, Expansion, Instructions, Libm, Primitive
from adze.core.primitives import CONVERSIONS
from adze.core.types import SCALARS, Scalar

pytestmark = pytest.mark.unguarded

# A scalar program, less than a vector, a vector and a tail, several vectors and a tail.
SIZES = (1, 7, 33, 77)
ROWS = {name: row for name, row in PRIMITIVES.items()}
TYPES: dict[str, Any] = dict(SCALARS)
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    -2.5,
    3.0,
    -4.0,
    0.1,
    -7.25,
    0.99,
    20.0,
    -20.0,
    700.0,
    -700.0,
    math.inf,
    -math.inf,
    math.nan,
    1e300,
    -1e300,
    1e-300,
    -1e-300,
    5e-324,
    1e-40,
    1e10,
    2.0**53 + 1,
    2.0**31,
    0.49999999999999994,
    -123.456,
    1e5 + 0.5,
    math.pi,
    -math.pi,
    2.0,
    1e-8,
    -1e-8,
]
INTEGERS = [0, 1, -1, 2, 3, -3, 7, 31, 32, 33, 63, 64, 65, -31, -64, 100, -12345]
Array = np.ndarray[Any, Any]


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _sign(x: float) -> float:
    return x if x != x else (x > 0) - (x < 0)


def _or_nan(choose: Callable[..., float]) -> Callable[..., float]:
    return lambda a, b: math.nan if a != a or b != b else choose(a, b)


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: x if not math.isfinite(x) else function(x)


def _logaddexp(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high)) if high > low else a + b if a != b else a + math.log(2)


def _power(a: float, b: float) -> float:
    return math.nan if a < 0 and math.isfinite(a) and math.isfinite(b) and b != int(b) else math.pow(a, b)


def _fmod(a: float, b: float) -> float:
    return a - b * _truncated(a, b) if isinstance(a, int) else math.fmod(a, b)


def _bits(function: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
    return lambda a, b, bits: function(a, b if 0 <= b < bits else bits)


def _digamma(x: float) -> float:
    """The series far out, and the reflection, which has no value at the poles."""
    if x <= 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.remainder(x, 1))
    if x > 1e15:
        return math.log(x)
    z = x + 40
    series = [-1 / (2 * z), -1 / 12 / z**2, 1 / 120 / z**4, -1 / 252 / z**6, 1 / 240 / z**8]
    return math.fsum([math.log(z), *series, *[-1 / (x + k) for k in range(40)]])


# What each row means, in Python's numbers; what Python refuses is not finite (a division of integers by zero: zero).
REFERENCE: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "acos": math.acos,
    "acosh": math.acosh,
    "add": operator.add,
    "asin": math.asin,
    "asinh": math.asinh,
    "atan": math.atan,
    "atan2": math.atan2,
    "atanh": math.atanh,
    "bitwise_and": operator.and_,
    "bitwise_not": operator.invert,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "cbrt": math.cbrt,
    "ceil": _whole(math.ceil),
    "cos": math.cos,
    "cosh": math.cosh,
    "digamma": _digamma,
    "divide": operator.truediv,
    "equal": operator.eq,
    "erf": math.erf,
    "erfc": math.erfc,
    "exp": math.exp,
    "exp2": math.exp2,
    "expm1": math.expm1,
    "floor": _whole(math.floor),
    "floor_divide": operator.floordiv,
    "floor_quotient": lambda a, b: math.nan if math.isinf(a) and b else a // b,
    "floor_remainder": operator.mod,
    "fmod": _fmod,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "hypot": math.hypot,
    "integer_power": lambda a, b: a ** max(b, 0) if b < 200 else pow(a, b, 1 << 64),
    "isfinite": math.isfinite,
    "isinf": math.isinf,
    "isnan": math.isnan,
    "left_shift": _bits(lambda a, b: a << b),
    "less": operator.lt,
    "less_equal": operator.le,
    "lgamma": math.lgamma,
    "log": math.log,
    "log10": math.log10,
    "log1p": math.log1p,
    "log2": math.log2,
    "logaddexp": _logaddexp,
    "logical_and": operator.and_,
    "logical_not": operator.not_,
    "logical_or": operator.or_,
    "logical_xor": operator.xor,
    "maximum": _or_nan(max),
    "minimum": _or_nan(min),
    "multiply": operator.mul,
    "negative": operator.neg,
    "not_equal": operator.ne,
    "population_count": lambda a, bits: (a % (1 << bits)).bit_count(),
    "power": _power,
    "remainder": operator.mod,
    "right_shift": _bits(lambda a, b: a >> b),
    "round": _whole(round),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x)) if x < 0 else x,
    "sign": _sign,
    "sin": math.sin,
    "sinh": math.sinh,
    "sqrt": math.sqrt,
    "stop_gradient": lambda x: x,
    "subtract": operator.sub,
    "tan": math.tan,
    "tanh": math.tanh,
    "trunc": _whole(math.trunc),
}

# Rows whose result may be the small difference of large terms: errors are measured against one, not the result.
CANCELLING = {"digamma", "lgamma", "logaddexp"}

# Where a derivative is smooth: points of the first operand, and of the second.
SMOOTH: dict[str, Sequence[Sequence[float]]] = {
    "acosh": [(1.25, 2.0, 30.0)],
    "digamma": [(0.1, 1.0, 2.5, 30.0, -0.5, -3.7)],
    "lgamma": [(0.1, 1.0, 2.5, 30.0, -0.5, -3.7)],
    "log": [(0.1, 1.0, 30.0)],
    "log10": [(0.1, 1.0, 30.0)],
    "log1p": [(-0.5, 0.0, 30.0)],
    "log2": [(0.1, 1.0, 30.0)],
    "power": [(0.5, 1.0, 3.0), (-1.5, 0.5, 2.0)],
    "sqrt": [(0.1, 1.0, 30.0)],
}
DEFAULT = ((-0.7, 0.3, 0.9), (0.4, -1.3, 0.6))

# Rows whose meaning depends on how many bits there are.
OF_WIDTH = {"left_shift", "population_count", "right_shift"}

# Rows whose value moves but whose derivative says otherwise.
STOPPED = {"stop_gradient"}


def kinds(row: Primitive) -> list[Scalar]:
    """The scalar types that a row takes."""
    return [scalar for scalar in SCALARS.values() if scalar.kind in row.operands]


CASES = [(name, scalar.name) for name, row in ROWS.items() if name not in CONVERSIONS for scalar in kinds(row)]
FLOATING = [name for name, row in ROWS.items() if row.derivative is not None and name not in CONVERSIONS]


def values(scalar: Scalar) -> Array:
    if scalar.kind == "float":
        with np.errstate(all="ignore"):
            return np.array(FLOATS).astype(scalar.dtype)
    if scalar.kind == "int":
        ends = [scalar.most, scalar.least, scalar.most - 1, scalar.least + 1]
        return np.array([*[n for n in INTEGERS if scalar.least <= n <= scalar.most], *ends], scalar.dtype)
    return np.array([True, False])


def operands(row: Primitive, scalar: Scalar) -> list[Array]:
    """All values, or all pairs of them."""
    grid = np.meshgrid(*[values(scalar)] * row.arity)
    return [np.ascontiguousarray(x.ravel()) for x in grid]


def allowed(row: Primitive, last: Any) -> Any:
    """Whether the last operand passes the row's guard."""
    return np.full(np.shape(last), True) if row.guard is None else row.guard.test(last)


def units(found: Any, wanted: Any, least: float = 0.0) -> Any:
    """The difference in units in the last place of what is wanted (or of ``least``); infinite where only one is."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    if wanted.dtype.kind != "f":
        return np.where(found == wanted, 0, math.inf)
    same = (found == wanted) | ((found != found) & (wanted != wanted))
    with np.errstate(all="ignore"):
        size = np.maximum(abs(wanted), np.maximum(np.finfo(wanted.dtype).tiny, wanted.dtype.type(least)))
        distance = abs(found.astype(np.float64) - wanted) / np.spacing(size)
    return np.where(same, 0, np.where(np.isfinite(found) & np.isfinite(wanted), distance, math.inf))


def exact(row: Primitive) -> bool:
    """Whether the result is that of IEEE arithmetic or of integers, so that all agree to the bit."""
    return row.name not in ("digamma", "logaddexp", "sigmoid") and not isinstance(row.llvm, Libm)


@cache
def mapped(name: str, type: str) -> az.Program:
    """The row on every element of arrays."""
    row, T = ROWS[name], TYPES[type]
    if row.arity == 1:

        @az.program
        def unary(x: az.Array[T, "n"]):
            return az.map(row, x)

        return unary

    @az.program
    def binary(x: az.Array[T, "n"], y: az.Array[T, "n"]):
        return az.map(row, x, y)

    return binary


@cache
def on_scalars(name: str) -> az.Program:
    """The row on two numbers, or one."""
    row = ROWS[name]

    @az.program
    def unary(x: az.f64):
        return row(x)

    @az.program
    def binary(x: az.f64, y: az.f64):
        return row(x, y)

    return unary if row.arity == 1 else binary


# Columns


def test_every_row_has_every_column() -> None:
    for name, row in ROWS.items():
        assert row.name == name and row.operands and row.arity in (1, 2) and callable(row.numpy)
        floating = "float" in row.operands and (row.result is None or row.result.kind == "float")
        assert (row.derivative is not None) == floating
        match row.llvm:
            case Instructions(by_kind):
                assert set(by_kind) - {"unsigned"} == set(row.operands) == set(row.opencl) - {"unsigned"}
            case Libm():
                assert row.operands == ("float",) == tuple(row.opencl)
            case Conversion(target):
                assert target == row.result and not row.opencl
            case Expansion(definition):
                assert callable(definition) and not row.opencl
        for kind, other in row.otherwise.items():
            assert kind not in row.operands and (other is None or other in ROWS)
    assert set(REFERENCE) | set(CONVERSIONS) == set(ROWS)


@pytest.mark.parametrize("name", FLOATING)
def test_a_derivative_has_a_function_an_operand(name: str) -> None:
    row, found = ROWS[name], []

    @az.program
    def f(y: az.f64, a: az.f64, b: az.f64) -> az.f64:
        assert row.derivative is not None
        rules = row.derivative(y, *(a, b)[: row.arity])
        assert len(rules) == row.arity
        found.extend([rule(y) for rule in rules if rule is not None])
        return y

    assert f.at().term.count() >= 0
    assert all(isinstance(tangent, Expr) and tangent.type == az.f64 for tangent in found)


# Values


def reference(name: str, scalar: Scalar, *arguments: Any) -> Any:
    """The value in Python's numbers; None where it is only known not to be finite."""
    function = REFERENCE[name]
    try:
        value = function(*arguments, scalar.bits) if name in OF_WIDTH else function(*arguments)
    except ZeroDivisionError:
        value = 0 if scalar.kind == "int" else None
    except (ValueError, OverflowError):
        value = None
    if isinstance(value, int) and not isinstance(value, bool) and scalar.kind == "int":
        value = (value - scalar.least) % (1 << scalar.bits) + scalar.least
    return value


@pytest.mark.unguarded
@pytest.mark.parametrize(("name", "type"), CASES)
def test_the_meaning_in_numpy(name: str, type: str) -> None:
    row, scalar = ROWS[name], SCALARS[type]
    arguments = operands(row, scalar)
    found = np.asarray(row(*arguments)).astype(row.result_type([scalar] * row.arity).dtype)
    wanted = [reference(name, scalar, *point) for point in zip(*[x.tolist() for x in arguments])]
    known = np.array([value is not None for value in wanted])
    assert not np.isfinite(found[~known]).any()
    with np.errstate(all="ignore"):
        own = found.dtype if found.dtype.kind in "iu" else None
        expected = np.array([value for value in wanted if value is not None], own).astype(found.dtype)
    worst = units(found[known], expected, 1.0 if name in CANCELLING else 0.0)
    assert worst.max() <= 4, [(x[known][worst.argmax()]) for x in arguments]


@pytest.mark.unguarded
@pytest.mark.parametrize(("name", "type"), CASES)
def test_evaluated_and_compiled(name: str, type: str) -> None:
    row, scalar = ROWS[name], SCALARS[type]
    arguments = operands(row, scalar)
    wanted = np.asarray(row(*arguments)).astype(row.result_type([scalar] * row.arity).dtype)
    meant = allowed(row, arguments[-1])
    assert az.evaluate(mapped(name, type))(*[x[meant] for x in arguments]).tobytes() == wanted[meant].tobytes()
    compiled = az.compile(mapped(name, type), checks=False)
    whole = compiled(*arguments)
    worst = units(whole, wanted, 1.0 if name in CANCELLING else 0.0)
    assert worst.max() <= (0 if exact(row) else 8), [(x[worst.argmax()]) for x in arguments]
    if name not in ("minimum", "maximum") and exact(row):
        assert (np.signbit(whole) == np.signbit(wanted))[wanted == wanted].all()
    for n in SIZES:  # a value does not depend on its place in an array
        for start in (0, 3):
            part = [x[start : start + n] for x in arguments]
            assert compiled(*part).tobytes() == whole[start : start + n].tobytes()
    assert compiled(*[x[:0] for x in arguments]).tobytes() == b""


@pytest.mark.unguarded
@pytest.mark.parametrize("type", SCALARS)
def test_scalars(type: str) -> None:
    """All rows of a type at once, on scalars."""
    scalar, T = SCALARS[type], TYPES[type]
    rows = [ROWS[name] for name, own in CASES if own == type]

    @az.program
    def f(x: T, y: T):
        return tuple(row(*(x, y)[: row.arity]) for row in rows)

    compiled, evaluated = az.compile(f, checks=False), az.evaluate(f)
    some = values(scalar)
    for point in zip(some, np.roll(some, 5)):
        expected = [
            np.asarray(row(*point[: row.arity])).astype(row.result_type([scalar] * row.arity).dtype) for row in rows
        ]
        if all(allowed(row, point[-1]) for row in rows):
            assert [np.asarray(x).tobytes() for x in evaluated(*point)] == [x.tobytes() for x in expected]
        for row, found, wanted in zip(rows, compiled(*point), expected, strict=True):
            assert units(found, wanted, 1.0 if row.name in CANCELLING else 0.0) <= (0 if exact(row) else 8), (
                row,
                point,
            )


# Derivatives


def points(name: str) -> list[Array]:
    """Where the derivative is smooth: all combinations of the points of each operand."""
    chosen = SMOOTH.get(name, DEFAULT)[: ROWS[name].arity]
    return [np.ascontiguousarray(x.ravel()) for x in np.meshgrid(*map(np.array, chosen))]


@pytest.mark.unguarded
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("name", [name for name in FLOATING if name not in STOPPED])
def test_derivatives(name: str, type: str) -> None:
    row, at, step = ROWS[name], points(name), 1e-5
    dtype, tolerance = SCALARS[type].dtype, {"f32": 4e-5, "f64": 1e-8}[type]
    arguments = [x.astype(dtype) for x in at]
    program = mapped(name, type)
    for run in (az.evaluate, az.compile) if type == "f64" else (az.evaluate,):
        forward, reverse = run(az.jvp(program)), run(az.vjp(program))
        same, *pulled = reverse(*arguments, np.ones_like(arguments[0]))
        for k in range(row.arity):
            moved = [[x + sign * step * (j == k) for j, x in enumerate(at)] for sign in (1, -1)]
            difference = (row(*moved[0]) - row(*moved[1])) / (2 * step)
            value, pushed = forward(*arguments, *[np.full_like(x, j == k) for j, x in enumerate(arguments)])
            assert pushed.dtype == pulled[k].dtype == dtype
            assert units(pulled[k], pushed, 1.0).max() <= 8
            assert units(value, same).max() <= (0 if exact(row) else 8)
            assert (abs(pushed - difference) <= tolerance * np.maximum(1.0, abs(difference))).all()


@pytest.mark.unguarded
@pytest.mark.parametrize("name", [name for name in FLOATING if name not in STOPPED])
def test_second_derivatives(name: str) -> None:
    row, at, step = ROWS[name], points(name), 1e-5
    gradient = az.grad(on_scalars(name))
    twice = az.evaluate(az.grad(gradient))
    once = az.evaluate(gradient)
    for point in zip(*at):
        difference = (once(point[0] + step, *point[1:]) - once(point[0] - step, *point[1:])) / (2 * step)
        found = twice(*point)
        assert abs(found - difference) <= 1e-7 * max(1.0, abs(found)), (row, point)


Case = tuple[Callable[..., Any], Sequence[float], Sequence[float]]  # a function, a point, and its gradient there


def check_gradients(cases: Sequence[Case]) -> None:
    """All in one program: evaluated, and compiled in both modes."""

    @az.program
    def program(x: az.Array[az.f64, "n"]) -> az.f64:
        total, start = 0.0, 0
        for f, point, _ in cases:
            total = total + f(*[x[start + k] for k in range(len(point))])
            start += len(point)
        return total

    at = np.array([x for _, point, _ in cases for x in point])
    wanted = [x for _, _, gradient in cases for x in gradient]
    forward = az.compile(az.jvp(program))
    for found in (
        az.evaluate(az.grad(program))(at),
        az.compile(az.grad(program))(at),
        np.array([forward(at, unit)[1] for unit in np.eye(len(at))]),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.unguarded
def test_derivatives_at_kinks() -> None:
    cases: list[Case] = [
        (az.abs, [0.0], [0.0]),
        (az.abs, [-0.0], [0.0]),
        (az.hypot, [0.0, 0.0], [0.0, 0.0]),
        (lambda x: az.clip(x, 0.0, 1.0), [0.0], [1.0]),
        (lambda x: az.clip(x, 0.0, 1.0), [1.0], [1.0]),
        (lambda x: az.clip(x, 0.0, 1.0), [-1.0], [0.0]),
        (lambda x: az.clip(x, 0.0, 1.0), [2.0], [0.0]),
        (az.minimum, [2.0, 2.0], [1.0, 0.0]),
        (az.maximum, [2.0, 2.0], [1.0, 0.0]),
        (az.softplus, [0.0], [0.5]),
        (az.logaddexp, [3.0, 3.0], [0.5, 0.5]),
        (az.logaddexp, [-math.inf, -math.inf], [1.0, 1.0]),
        (lambda x, y: x // y, [7.0, 2.0], [0.0, 0.0]),
        (lambda x, y: x % y, [7.0, 2.0], [1.0, -3.0]),
        (lambda x, y: x % y, [-7.0, 2.0], [1.0, 4.0]),
        (az.power, [0.0, 0.0], [0.0, 0.0]),
        (lambda x: az.stop_gradient(x) * x, [3.0], [3.0]),
    ]
    for step in (az.floor, az.ceil, az.round, az.trunc, az.sign):
        cases += [(step, [0.5], [0.0]), (lambda x, step=step: step(x) * x, [2.0], [float(step(2.0))])]
    check_gradients(cases)


@pytest.mark.unguarded
def test_derivatives_far_out() -> None:
    """No intermediate of a derivative overflows or vanishes where the derivative does not."""
    check_gradients(
        [
            (az.hypot, [3e200, 4e200], [0.6, 0.8]),
            (az.hypot, [3e-200, 4e-200], [0.6, 0.8]),
            (az.atan2, [3e200, 4e200], [0.16e-200, -0.12e-200]),
            (az.atan2, [3e-200, 4e-200], [0.16e200, -0.12e200]),
            (az.asinh, [1e200], [1e-200]),
            (az.acosh, [1e200], [1e-200]),
            (az.sigmoid, [-800.0], [0.0]),
            (az.sigmoid, [800.0], [0.0]),
            (az.softplus, [800.0], [1.0]),
            (az.log_sigmoid, [-800.0], [1.0]),
        ]
    )


# Functions written in the language


@pytest.mark.unguarded
def test_digamma_and_its_derivative() -> None:
    @az.program
    def psi(x: az.f64) -> az.f64:
        return az.digamma(x)

    gamma = 0.5772156649015329
    known = {
        1.0: -gamma,
        0.5: -gamma - 2 * math.log(2),
        10.0: 2.251752589066721,
        -0.5: 0.03648997397857652,
        -1000.5: math.log(1001.5) - 1 / 2003 - 1 / (12 * 1001.5**2) + 1 / (120 * 1001.5**4),
        1e-300: -1e300,
        -1e-300: 1e300,
        1e10: math.log(1e10) - 5e-11,
        math.inf: math.inf,
    }
    for run in (az.evaluate, az.compile):
        for x, wanted in known.items():
            assert run(psi)(x) == pytest.approx(wanted, rel=1e-14)
        assert not any(math.isfinite(run(psi)(x)) for x in (0.0, -1.0, -20.0, math.nan, -math.inf))
        assert run(az.grad(psi))(1.0) == pytest.approx(math.pi**2 / 6, rel=1e-14)
        assert run(az.grad(az.grad(psi)))(1.0) == pytest.approx(-2.4041138063191885, rel=1e-13)


def test_sigmoids_without_overflow() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]):
        return az.sigmoid(x), az.softplus(x), az.log_sigmoid(x), az.logaddexp(x, -x)

    x = np.array([-math.inf, -800.0, -30.0, 0.0, 30.0, 800.0, math.inf])
    tiny = math.exp(-30.0)
    wanted = (
        [0.0, 0.0, tiny / (1 + tiny), 0.5, 1 / (1 + tiny), 1.0, 1.0],
        [0.0, 0.0, math.log1p(tiny), math.log(2), 30 + tiny, 800.0, math.inf],
        [-math.inf, -800.0, -30 - tiny, -math.log(2), -math.log1p(tiny), 0.0, 0.0],
        [math.inf, 800.0, 30.0, math.log(2), 30.0, 800.0, math.inf],
    )
    for run in (az.evaluate, az.compile):
        for found, values in zip(run(f)(x), wanted):
            np.testing.assert_allclose(found, values, rtol=1e-15)


def test_clip() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], low: az.f64):
        return az.clip(x, low, 1), az.clip(x, None, 0.5), az.clip(x, low), np.clip(x, x - 1, 0.25)

    x = np.array([-2.0, -0.5, 0.0, 0.75, 3.0, math.nan, math.inf])
    for run in (az.evaluate, az.compile):
        for found, wanted in zip(
            run(f)(x, -1.0), (np.clip(x, -1, 1), np.clip(x, None, 0.5), np.clip(x, -1, None), np.clip(x, x - 1, 0.25))
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("scalar", ["f32", "f64"])
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extrema_order_zeros_and_keep_what_is_not_a_number(name: str, scalar: str) -> None:
    T, operation = TYPES[scalar], getattr(az, name)

    @az.program
    def pairs(x: az.Array[T, "n"], y: az.Array[T, "n"]) -> az.Array[T, "n"]:
        return operation(x, y)

    numbers = np.array([0.0, -0.0, 1.0, -1.0, 1e-40, math.inf, -math.inf, math.nan, -math.nan], SCALARS[scalar].dtype)
    x, y = (each.ravel() for each in np.meshgrid(numbers, numbers))
    found = az.compile(pairs)(x, y)
    np.testing.assert_array_equal(found, getattr(np, name)(x, y))
    zeros = (x == 0) & (y == 0)
    signs = np.signbit(x) | np.signbit(y) if name == "minimum" else np.signbit(x) & np.signbit(y)
    np.testing.assert_array_equal(np.signbit(found)[zeros], signs[zeros])
    for a, b, wanted in zip(x, y, found, strict=True):
        (alone,) = az.compile(pairs)(a[None], b[None])
        assert alone.tobytes() == wanted.tobytes()


# Conversions


def near_the_limits(scalar: Scalar) -> Array:
    """Floating numbers around the least and the largest integer of each type."""
    edges = [float(edge) for each in SCALARS.values() if each.kind == "int" for edge in (each.least, each.most + 1)]
    near = [n for edge in edges for n in (edge, edge - 0.5, edge + 0.5, edge - 1, edge + 1)]
    numbers = np.array([*near, 0.75, -0.75], scalar.dtype)
    return np.concatenate([numbers, np.nextafter(numbers, np.inf), np.nextafter(numbers, -np.inf)])


def converted(x: Array, target: Scalar) -> Array:
    """As in NumPy; an integer of a floating number is the nearest that there is, in Python's numbers."""
    if x.dtype.kind == "f" and target.kind == "int":
        ends = {math.inf: target.most, -math.inf: target.least}
        whole = [0 if v != v else ends[v] if math.isinf(v) else int(v) for v in x.tolist()]
        return np.array([min(max(v, target.least), target.most) for v in whole], target.dtype)
    with np.errstate(all="ignore"):
        return x.astype(target.dtype)


@pytest.mark.parametrize("source", SCALARS)
def test_conversions(source: str) -> None:
    S, targets = TYPES[source], list(SCALARS.values())

    @az.program
    def f(x: az.Array[S, "n"]):
        return tuple(x.astype(target) for target in targets)

    @az.program
    def g(x: S):
        return tuple(x.astype(target.dtype) for target in targets)

    x = np.concatenate([values(SCALARS[source])] * 2)
    if SCALARS[source].kind == "float":
        x = np.concatenate([x, near_the_limits(SCALARS[source])])
    wanted = [converted(x, target) for target in targets]
    for run in (az.evaluate, az.compile):
        assert [each.tobytes() for each in run(f)(x)] == [each.tobytes() for each in wanted]
        for k in range(0, len(x), 5):
            assert [np.asarray(each).tobytes() for each in run(g)(x[k])] == [each[k].tobytes() for each in wanted]


@pytest.mark.parametrize("wrong", [np.float16, "text", "c16", 3])
def test_types_that_do_not_exist(wrong: Any) -> None:
    @az.program
    def f(x: az.f64):
        return x.astype(wrong)

    with pytest.raises(
        TypeError, match=r"is not a scalar type of the language; there are .* \(at .*test_primitives.py:\d+\)"
    ):
        az.evaluate(f)(1.0)


# Operators: types and values as in NumPy


def power(a: Any, b: Any) -> Any:
    """``a**b``. Of truth values to the power 2.0 the operator gives int8 in NumPy 2.0, and floats later."""
    return np.power(a, b) if isinstance(a, np.ndarray) and isinstance(b, float) else a**b


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": power, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "minimum": np.minimum, "maximum": np.maximum,
    "arctan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
SAMPLES = {
    "f32": np.array([0.5, 2.0, -3.25], np.float32),
    "f64": np.array([1.5, -2.0, 7.0]),
    "i32": np.array([5, 2, -7], np.int32),
    "i64": np.array([3, 1, 4]),
    "u8": np.array([200, 3, 1], np.uint8),
    "u64": np.array([2**63 + 2**40, 2, 4], np.uint64),
    "bool": np.array([True, False, True]),
}
# What has requirements on integers.
GUARDED_OPERATORS = {"//", "%", "**", "fmod"}


Operands = dict[str, Any]  # one operand of each scalar type


def as_in_numpy(functions: Sequence[Callable[[Operands], Any]]) -> None:
    """Functions of the samples give on expressions what they give on arrays, and are refused where NumPy refuses.

    The language has no f16, where NumPy uses it for functions of booleans and bytes: f64 takes its place.
    """
    bytes_as_floats = {**SAMPLES, "bool": SAMPLES["bool"] * 1.0, "u8": SAMPLES["u8"] * 1.0}
    wanted = []
    with np.errstate(all="ignore"):
        for f in functions:
            try:
                wanted.append(f(SAMPLES))
            except TypeError:
                wanted.append(None)
            if wanted[-1] is not None and wanted[-1].dtype == np.float16:
                wanted[-1] = f(bytes_as_floats)
    accepted = [f for f, array in zip(functions, wanted) if array is not None]
    refused = [f for f, array in zip(functions, wanted) if array is None]

    def program(results: Callable[[Operands], Any]) -> az.Program:
        @az.program
        def over(
            a: az.Array[az.f32, "n"],
            b: az.Array[az.f64, "n"],
            c: az.Array[az.i32, "n"],
            d: az.Array[az.i64, "n"],
            e: az.Array[az.u8, "n"],
            f: az.Array[az.u64, "n"],
            g: az.Array[az.bool_, "n"],
        ):
            return results(dict(zip(SAMPLES, (a, b, c, d, e, f, g))))

        return over

    all_at_once = program(lambda samples: tuple(f(samples) for f in accepted))
    for run in (az.evaluate, az.compile):
        results = run(all_at_once)(*SAMPLES.values())
        for found, array in zip(results, [array for array in wanted if array is not None], strict=True):
            assert found.dtype == array.dtype
            assert units(found, array, 1.0).max() <= 4
    for f in refused:
        with pytest.raises(TypeError, match=r"takes .* operands, got .*test_primitives.py:\d+"):
            az.evaluate(program(f))(*SAMPLES.values())


@pytest.mark.unguarded
@pytest.mark.parametrize("name", some(OPERATORS, 3))
def test_operators_on_all_pairs_of_types(name: str) -> None:
    function = OPERATORS[name]

    def applied(a: str, b: str) -> Callable[[Operands], Any]:
        if name in GUARDED_OPERATORS and "f" not in a + b:
            one = True if a + b == "boolbool" else 1
            return lambda samples: function(samples[a], abs(samples[b]) | one)
        return lambda samples: function(samples[a], samples[b])

    as_in_numpy([applied(a, b) for a in SAMPLES for b in SAMPLES])


@pytest.mark.unguarded
@pytest.mark.parametrize("number", [True, 2, 0.5, 2.0])
@pytest.mark.parametrize("name", ["+", "-", "*", "/", "//", "%", "**", "<", "==", "&", "|", "^", "<<", ">>"])
def test_python_numbers_adopt_the_type_of_what_they_meet(name: str, number: Any) -> None:
    function = OPERATORS[name]

    def applied(a: str) -> list[Callable[[Operands], Any]]:
        if name in GUARDED_OPERATORS and a == "bool" and isinstance(number, int):
            return [] if name == "**" else [lambda samples: function(samples[a], number)]  # in NumPy these are i8
        divisor = (lambda x: abs(x) | 1) if name in GUARDED_OPERATORS and a[0] in "iu" else abs
        return [lambda samples: function(samples[a], number), lambda samples: function(number, divisor(samples[a]))]

    as_in_numpy([f for a in SAMPLES for f in applied(a)])


UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "~": operator.invert, "abs": abs, "floor": newest(np.floor), "ceil": newest(np.ceil),
    "trunc": newest(np.trunc), "fix": newest(np.fix), "sign": np.sign,
    "fabs": np.fabs, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "logical_not": np.logical_not, "arcsin": np.arcsin, "arccosh": np.arccosh, "sqrt": np.sqrt, "cbrt": np.cbrt,
    "exp2": np.exp2, "log10": np.log10, "deg2rad": np.deg2rad, "degrees": np.degrees,
    "clip": lambda x: np.clip(x, 0, 1), "an array": lambda x: np.array([1.0, 2.0, 3.0]) + x,
}  # fmt: skip
UNARY_ON_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "+": operator.pos, "positive": np.positive, "round": np.round, "round to 1": lambda x: np.round(x, 1),
    "round to tens": lambda x: np.round(x * 7, -1), "square": np.square, "divmod": lambda x: divmod(x, 2)[1],
    "np.divmod": lambda x: np.divmod(x, 2)[0], "rdivmod": lambda x: divmod(7, x * x + 1)[0],
    "array.divmod": lambda x: divmod(np.array([5, 6, 7], np.int32), x * x + 1)[1],
}  # fmt: skip


@pytest.mark.unguarded
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_numpy(name: str) -> None:
    as_in_numpy([lambda samples, a=a: UNARY[name](samples[a]) for a in SAMPLES])


@pytest.mark.unguarded
@pytest.mark.parametrize("name", ROWS)
def test_calls_with_numbers_give_the_types_of_programs(name: str) -> None:
    row, given = ROWS[name], {"float": SAMPLES["f32"], "int": SAMPLES["i32"], "bool": SAMPLES["bool"]}
    for kind in {*row.operands, *row.otherwise} - ({"bool"} if name in ("fmod", "power") else set()):
        numbers = [np.abs(given[kind]) for _ in range(row.arity)]
        program = (lambda x: row(x)) if row.arity == 1 else (lambda x, y: row(x, y))
        wanted = az.evaluate(az.program(program))(*numbers)
        found = row(*numbers)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        assert row(*[number[0] for number in numbers]).dtype == wanted.dtype


@pytest.mark.parametrize("name", UNARY_ON_NUMBERS)
def test_functions_of_numpy_on_numbers(name: str) -> None:
    as_in_numpy([lambda samples, a=a: UNARY_ON_NUMBERS[name](samples[a]) for a in SAMPLES if a != "bool"])


def test_functions_of_numpy_on_floats() -> None:
    as_in_numpy([lambda samples, a=a, f=f: f(samples[a]) for a in ("f32", "f64") for f in (np.reciprocal, np.rint)])

    @az.program
    def f(x: az.f64, i: az.i64):
        return round(x), round(i), np.rint(i), 1 / i

    for run in (az.evaluate, az.compile):
        assert run(f)(2.5, 2**53 + 1) == (2.0, 2**53 + 1, 2**53 + 1, 1 / float(2**53 + 1))


@pytest.mark.parametrize("exponent", [-33, -3, -2, -1, 0, 1, 2, 3, 7, 32, 40, 2.0, -1.0, 0.5, 2.5, True])
def test_powers_with_a_number(exponent: Any) -> None:
    x = np.array([0.5, 1.25, 2.0, 3.0, 0.0, 1e10])

    @az.program
    def f(x: az.Array[az.f64, "n"]):
        return x**exponent

    with np.errstate(all="ignore"):
        wanted = x**exponent
    for run in (az.evaluate, az.compile):
        assert units(run(f)(x), wanted).max() <= abs(exponent) + 2
    if exponent >= 0:
        as_in_numpy([lambda samples, a=a: samples[a] ** exponent for a in ("i32", "i64")])


def test_long_integers_wrap() -> None:
    @az.program
    def f(x: az.Array[az.i64, "n"], y: az.Array[az.i64, "n"]):
        return x**y, x * y, x // y, x % y, -x, az.abs(x)

    least = np.iinfo(np.int64).min
    x, y = np.array([3, -7, 2, least, least]), np.array([50, 33, 63, 1, 3])
    for run in (az.evaluate, az.compile):
        for found, wanted in zip(run(f)(x, y), (x**y, x * y, x // y, x % y, -x, abs(x))):
            np.testing.assert_array_equal(found, wanted)
        found = run(f)(np.array([least]), np.array([1]))[2]
        assert found[0] == least


@pytest.mark.parametrize("type", ["i8", "i16", "i32", "i64"])
def test_the_least_integer_divided_by_minus_one(type: str) -> None:
    T, dtype = TYPES[type], SCALARS[type].dtype

    @az.program
    def f(x: az.Array[T, "n"], y: az.Array[T, "n"]):
        return x // y, x % y, *divmod(x, y), np.fmod(x, y)

    x, y = np.full(19, np.iinfo(dtype).min, dtype), np.full(19, -1, dtype)
    for run in (az.evaluate, az.compile):
        quotient, rest, *both, fmod = run(f)(x, y)
        for found, wanted in ((quotient, x), (rest, 0 * x), (both[0], x), (both[1], 0 * x), (fmod, 0 * x)):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, wanted)


# Errors

Operation = Callable[[Any, Any], Any]
GUARDED: list[tuple[Operation, int, type[Exception], str]] = [
    (lambda a, b: a // b, 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: a % b, 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: divmod(a, b)[0], 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: np.floor_divide(a, b), 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: np.divmod(a, b)[1], 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: np.fmod(a, b), 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: az.remainder(a, b), 0, ZeroDivisionError, "integer division by zero, at "),
    (lambda a, b: a**b, -1, ValueError, "an integer to a negative power, at "),
    (lambda a, b: az.power(a, b), -1, ValueError, "an integer to a negative power, at "),
]


@pytest.mark.unguarded
@pytest.mark.parametrize("type", ["i8", "i32", "i64"])
@pytest.mark.parametrize(("operation", "wrong", "error", "message"), GUARDED)
def test_guards(operation: Operation, wrong: int, error: type[Exception], message: str, type: str) -> None:
    T, dtype = TYPES[type], SCALARS[type].dtype

    @az.program
    def each(x: az.Array[T, "n"], y: az.Array[T, "n"]):
        return operation(x, y)

    @az.program
    def single(x: T, y: T):
        return operation(x, y)

    @az.program
    def literal(x: az.Array[T, "n"]):
        return operation(x, wrong)

    x, y = np.arange(1, 20).astype(dtype), np.full(19, 2, dtype)
    line = rf"{message}.*test_primitives.py:\d+"
    for run in (az.evaluate, az.compile):
        assert run(each)(x, y).dtype == dtype
        bad = y.copy()
        bad[13] = wrong
        with pytest.raises(error, match=line):
            run(each)(x, bad)
        with pytest.raises(error, match=line):
            run(single)(dtype.type(1), dtype.type(wrong))
        with pytest.raises(error, match=line):
            run(literal)(x)
        assert run(each)(x[:0], y[:0]).shape == (0,)
    assert az.compile(each, checks=False)(x, bad)[13] == (0 if wrong == 0 else 1)


def test_floats_are_not_guarded() -> None:
    @az.program
    def f(x: az.f64, y: az.f64):
        return x // y, x % y, x**y, x / y

    for run in (az.evaluate, az.compile):
        np.testing.assert_array_equal(run(f)(1.0, 0.0), (math.inf, math.nan, 1.0, math.inf))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (lambda x, i: i.astype(az.i32) + 2**40, OverflowError, "the number 1099511627776 does not fit i32"),
        (lambda x, i: i + 2**63, OverflowError, "the number 9223372036854775808 does not fit i64"),
        (lambda x, i: i < 2**70, OverflowError, "does not fit i64"),
        (lambda x, i: x + 10**400, OverflowError, "does not fit f64"),
        (lambda x, i: -(x > 0), TypeError, "negative takes float or int operands, got bool"),
        (lambda x, i: (x > 0) - (x < 0), TypeError, "subtract takes float or int operands, got bool, bool"),
        (lambda x, i: np.sign(x > 0), TypeError, "sign takes float or int operands, got bool"),
        (lambda x, i: i.astype(az.u8) - 256, OverflowError, "the number 256 does not fit u8"),
        (lambda x, i: i.astype(az.u32) + -1, OverflowError, "the number -1 does not fit u32"),
        (lambda x, i: x << 1, TypeError, "left_shift takes int operands, got f64, f64"),
        (lambda x, i: ~x, TypeError, "bitwise_not takes int or bool operands, got f64"),
        (lambda x, i: x ^ i, TypeError, "bitwise_xor takes int or bool operands, got f64, f64"),
        (lambda x, i: np.add(x, x, where=True), TypeError, "np.add with where is not an operation of the language"),
        (lambda x, i: np.add.outer(x, x), TypeError, "np.add.outer is not an operation of the language"),
    ],
)
def test_refused(body: Callable[[Any, Any], Any], error: type[Exception], message: str) -> None:
    @az.program
    def f(x: az.f64, i: az.i64):
        return body(x, i)

    with pytest.raises(error, match=rf"{message}.*\(at .*test_primitives.py:\d+\)"):
        az.evaluate(f)(1.0, 1)


def test_shapes_in_numpy() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n 3"]):
        assert np.ndim(x) == 2 and np.shape(x)[1] == np.size(x, 1) == 3
        return np.size(x), np.shape(x)[0]

    assert az.evaluate(f)(np.zeros((4, 3))) == (12, 4)


def test_a_large_literal_is_infinite_in_single_precision() -> None:
    @az.program
    def f(x: az.f32) -> az.f32:
        return x - 1e300

    assert az.evaluate(f)(1.0) == az.compile(f)(1.0) == -math.inf


# Simplification keeps the bits


def test_algebra_of_signed_zeros_and_small_divisors() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f32, "n"]):
        return x + -0.0, x + 0.0, x - -0.0, x - 0.0, x * 1, x * -1, x / -4.0, x / 5e-324, y / 2.0**-140, 0.0 - x

    text = az.pretty(az.simplify(f))
    assert text.count("x[i] +") + text.count("+ x[i]") + text.count("x[i] -") <= 2  # + 0.0 and - -0.0 remain
    x = values(SCALARS["f64"])
    y = values(SCALARS["f32"])
    for found, wanted in zip(az.compile(f)(x, y), az.evaluate(f)(x, y)):
        assert units(found, wanted).max() == 0
        known = wanted == wanted
        assert (np.signbit(found) == np.signbit(wanted))[known].all()


def test_the_largest_and_smallest_powers_of_two_still_divide() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        return x / 2.0**-1074

    assert az.compile(f)(0.0) == 0.0 and az.compile(f)(2.0**-1074) == 1.0


def test_algebra_of_integers() -> None:
    @az.program
    def f(i: az.Array[az.i32, "n"]):
        return i * 0, i // 1, i % 1, abs(-i), abs(abs(i)), np.minimum(i, i), i + 0, i * 1

    text = az.pretty(az.simplify(f)).partition("\n")[2]
    assert not any(word in text for word in ("*", "//", "%", "-", "minimum", "+")) and text.count("abs(") == 1
    i = values(SCALARS["i32"])
    for found, wanted in zip(az.compile(f)(i), az.evaluate(f)(i)):
        np.testing.assert_array_equal(found, wanted)
