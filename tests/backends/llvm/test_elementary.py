"""Elementary functions of our own: how exact they are, where they have no number to give, and the same in any width."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends import ir
from adze.backends.llvm.assemble import compile_text
from adze.backends.llvm.elementary import FUNCTIONS
from adze.backends.llvm.emit import emit
from adze.backends.llvm.host import host
from adze.backends.llvm.jit import Executable
from adze.core.primitive import PRIMITIVES, Libm
from adze.core.types import Scalar, f32, f64, i64

pytestmark = pytest.mark.skipif(not host().target.multiply_add, reason="no fused multiply-add here")

ROWS = {row.llvm.function: row for row in PRIMITIVES.values() if isinstance(row.llvm, Libm)}
N = ir.Variable("n", i64)


def elementwise(name: str, scalar: Scalar, kinds: dict[ir.Kind, int]) -> ir.Function:
    """A function of one argument in loops of several kinds, each with a result of its own."""
    x, i = ir.Buffer("x", scalar, (N,)), ir.Variable("i", i64)
    results = tuple(ir.Buffer(kind, scalar, (N,)) for kind in kinds)
    value = ir.Apply(ROWS[name], (ir.Load(x, (i,)),), scalar)

    def loop(result: ir.Buffer, kind: ir.Kind, factor: int) -> ir.For:
        body: ir.Block = (ir.Store(result, (i,), value),)
        return ir.For("i", N, kind, body, factor)

    loops = tuple(loop(result, kind, factor) for result, (kind, factor) in zip(results, kinds.items(), strict=True))
    return ir.Function("f", ("n",), (x,), results, loops)


def made(text: str) -> Executable:
    return Executable(compile_text(text).machine_code, False)


def run(executable: Executable, x: np.ndarray[Any, Any], results: int) -> list[np.ndarray[Any, Any]]:
    found = [np.empty_like(x) for _ in range(results)]
    assert executable.run([each.ctypes.data for each in (x, *found)], [len(x)], 1) is None
    return found


@pytest.fixture(scope="module", params=[(name, scalar) for name in FUNCTIONS for scalar in (f64, f32)], ids=str)
def subject(request: pytest.FixtureRequest) -> tuple[str, Scalar, Executable]:
    name, scalar = request.param
    return name, scalar, made(str(emit(elementwise(name, scalar, {"lanes": 32, "sequential": 1}), host())))


def spread(low: float, high: float) -> Callable[[np.random.Generator], np.ndarray[Any, Any]]:
    return lambda rng: rng.uniform(low, high, 4001)


def scattered(low: float, high: float) -> Callable[[np.random.Generator], np.ndarray[Any, Any]]:
    """Of all sizes, and both signs."""
    return lambda rng: 2 ** rng.uniform(low, high, 4001) * rng.choice([-1, 1], 4001)


def quarter_turns(most: int) -> Callable[[np.random.Generator], np.ndarray[Any, Any]]:
    return lambda rng: rng.integers(0, most, 4001) * (np.pi / 2)


_TURNING = [spread(-1, 1), spread(-2000, 2000), spread(-4e6, 4e6), scattered(-100, 120), quarter_turns(10**6)]
INPUTS = {
    "cos": _TURNING,
    "exp": [spread(-1, 1), spread(-104, 89), spread(-745, 710), scattered(-60, 0)],
    "expm1": [spread(-1, 1), spread(0.33, 0.4), spread(-40, 89), scattered(-100, 0)],
    "log": [spread(0.5, 2), spread(0, 1e4), scattered(-126, 127), scattered(-149, -126), scattered(-1074, -1022)],
    "log1p": [spread(-0.99, 1), spread(0, 1e4), scattered(-100, 100)],
    "sin": _TURNING,
    "tanh": [spread(-0.2, 0.2), spread(-1, 1), spread(-23, 23), scattered(-100, 0)],
}
UNITS = {"cos": 1, "exp": 1.05, "expm1": 1.5, "log": 1, "log1p": 1, "sin": 1, "tanh": 2.4}


def test_they_are_exact_to_about_one_unit_in_the_last_place(subject: tuple[str, Scalar, Executable]) -> None:
    name, scalar, executable = subject
    rng = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        x = np.concatenate([make(rng) for make in INPUTS[name]]).astype(scalar.dtype)
        wanted = ROWS[name].numpy(x.astype(np.longdouble))  # eleven more digits
        inside = np.isfinite(x) & np.isfinite(wanted.astype(scalar.dtype))
    x, wanted = x[inside], wanted[inside]
    for found in run(executable, x, 2):
        unit = np.spacing(np.abs(wanted.astype(scalar.dtype))).astype(np.longdouble)
        assert np.max(np.abs(found - wanted) / unit) < UNITS[name] + 0.01  # the reference is rounded, too


def test_a_value_does_not_depend_on_its_place(subject: tuple[str, Scalar, Executable]) -> None:
    name, scalar, executable = subject
    rng = np.random.default_rng(8)
    with np.errstate(over="ignore"):
        x = np.concatenate([make(rng)[:400] for make in INPUTS[name]]).astype(scalar.dtype)
    whole, alone = run(executable, x, 2)
    np.testing.assert_array_equal(whole, alone)
    for start, size in ((0, 1), (5, 7), (9, 33), (17, 63)):
        part, _ = run(executable, x[start : start + size].copy(), 2)
        np.testing.assert_array_equal(part, whole[start : start + size])


def test_special_values(subject: tuple[str, Scalar, Executable]) -> None:
    """Those of NumPy, signs of zeros too."""
    name, scalar, executable = subject
    tiny, huge = np.finfo(scalar.dtype).smallest_subnormal, np.finfo(scalar.dtype).max
    x = np.array([0.0, -0.0, inf, -inf, nan, tiny, -tiny, 1, -1, 710, -746, 90, -105, huge, -huge, 1e30], scalar.dtype)
    with np.errstate(all="ignore"):
        wanted = ROWS[name].numpy(x)
    for found in run(executable, x, 2):
        near = dict(rtol=4 * np.finfo(scalar.dtype).eps, atol=tiny)
        np.testing.assert_allclose(found, wanted, **near)
        zero = wanted == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(wanted[zero]))


def test_without_them_the_library_is_called() -> None:
    """As it is on a machine without fused multiply-add."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return az.exp(x)

    assert "exp" in az.compile(f, schedule={"inline": False}).llvm_ir
    assert "llvm.fma.v" in az.compile(f).llvm_ir
    function = elementwise("exp", f64, {"lanes": 32})
    machine = host()
    off = replace(machine.target, transformations=replace(machine.target.transformations, inline=False))
    assert "@exp.v32f64" in str(emit(function, machine))
    for target in (off, replace(machine.target, multiply_add=False)):
        assert "@exp.v32f64" not in str(emit(function, replace(machine, target=target)))


def test_in_two_factors_the_last_product_is_rounded_once() -> None:
    """The same bits where no instruction multiplies by a power of two."""
    function = elementwise("exp", f64, {"lanes": 32})
    x = np.concatenate([np.linspace(-746, -700, 200), np.linspace(700, 710, 200)])
    machine = host()
    found = []
    for scales in {False, machine.scales}:
        found += run(made(str(emit(function, replace(machine, scales=scales)))), x, 1)
    for each in found:
        np.testing.assert_array_equal(each, found[0])


@pytest.mark.rest
def test_in_a_long_module_they_are_inlined_no_more() -> None:
    x, y, i = ir.Buffer("x", f64, (N,)), ir.Buffer("y", f64, (N,)), ir.Variable("i", i64)
    value: ir.Load | ir.Apply = ir.Load(x, (i,))
    for _ in range(40):
        value = ir.Apply(ROWS["sin"], (value,), f64)
    function = ir.Function("f", ("n",), (x,), (y,), (ir.For("i", N, "lanes", (ir.Store(y, (i,), value),), 32),))
    text = str(emit(function, host()))
    assert text.count("call <32 x double> @sin.v32f64(") == 32 and "@sin.v32f64.apart(" in text
    numbers = np.linspace(-3, 3, 70)
    wanted = numbers
    for _ in range(40):
        wanted = np.sin(wanted)
    np.testing.assert_allclose(run(made(text), numbers, 1)[0], wanted, rtol=1e-13)
