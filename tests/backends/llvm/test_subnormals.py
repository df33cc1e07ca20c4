"""Subnormal numbers: kept by default, flushed on demand, and the same whoever computes them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.llvm import control
from adze.backends.llvm.assemble import compile_text, link

SMALL = 2.0**-1060
MANY = 400_000  # enough for several threads

Vector = az.Array[az.f64, "n"]

pytestmark = pytest.mark.skipif(not control.X86, reason="the control register of x86-64")

_IR = f"""
{control.DECLARATIONS}
define void @save(ptr %place) {{
  {control.saved("%place")}
  ret void
}}
define void @restore(ptr %place) {{
  {control.restored("%place")}
  ret void
}}
"""


@az.program
def halved(x: Vector) -> Vector:
    return az.map(lambda each: each * 0.5, x)


@az.program
def total(x: Vector) -> az.f64:
    return az.sum(x)


@az.program
def element(x: Vector, i: az.i64) -> az.f64:
    return x[i] * 0.5


@pytest.fixture
def flushed() -> Iterator[None]:
    """This thread flushes subnormal numbers, as after ``torch.set_flush_denormal(True)``."""
    library = link(compile_text(_IR).machine_code, ("save", "restore"))
    save, restore = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library[name]) for name in ("save", "restore"))
    register = np.zeros(1, np.uint32)
    save(register.ctypes.data)
    restore((register | control.FLUSH).ctypes.data)
    yield
    restore(register.ctypes.data)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_and_operands_are_flushed_on_demand(threads: int) -> None:
    x = np.full(MANY, SMALL)
    x[0] = 2.0**-1022  # the smallest number that is not subnormal; half of it is
    assert np.array_equal(az.compile(halved, threads=threads)(x), x / 2)
    assert not az.compile(halved, threads=threads, flush_subnormals=True)(x).any()
    assert az.compile(total, threads=threads, flush_subnormals=True)(x) == x[0]


def test_single_precision() -> None:
    f = az.program(lambda x: az.map(lambda each: each * np.float32(0.5), x))
    x = np.full(5, 2.0**-126, np.float32)
    assert np.array_equal(az.compile(f)(x), x / 2)
    assert not az.compile(f, flush_subnormals=True)(x).any()


def test_the_thread_is_left_as_it_was() -> None:
    x = np.full(3, SMALL)
    assert az.compile(element, flush_subnormals=True)(x, 1) == 0
    assert np.all(x * 0.5 > 0)
    with pytest.raises(IndexError):
        az.compile(element, flush_subnormals=True)(x, 5)
    assert np.all(x * 0.5 > 0)
    assert az.compile(element)(x, 1) == SMALL / 2


def test_calls_that_are_bound() -> None:
    x = np.full(3, SMALL)
    assert not np.any(az.compile(halved, flush_subnormals=True).bind(x)())
    assert np.array_equal(az.compile(halved).bind(x)(), [SMALL / 2] * 3)


@pytest.mark.usefixtures("flushed")
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_workers_do_as_the_thread_that_calls(threads: int) -> None:
    """The result does not depend on the number of threads, whatever this one does with subnormal numbers."""
    x = np.full(MANY, SMALL)
    for _ in range(20):
        assert not az.compile(halved, threads=threads)(x).view(np.int64).any()


def test_workers_keep_them_after_others_flushed() -> None:
    x = np.full(MANY, SMALL)
    flushing, keeping = az.compile(halved, threads=2, flush_subnormals=True), az.compile(halved, threads=2)
    wanted: Any = x / 2
    for _ in range(20):
        assert not flushing(x).any()
        assert np.array_equal(keeping(x), wanted)


def test_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r'flush_subnormals= is for backend="llvm"'):
        az.compile(halved, backend="opencl", flush_subnormals=True)
    monkeypatch.setattr("adze.backends.compile.X86", False)
    with pytest.raises(ValueError, match="x86-64"):
        az.compile(halved, flush_subnormals=True)
