"""Compiled programs as functions of XLA's interface: who calls them, and what happens where there is none."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_programs import BY_NAME, jax, jnp, numbers, recurrence, same

import adze as az
from adze.interop import jax_primitives, xla
from adze.interop.jax_operators import JaxOperator

REFUSED = (jax.errors.JaxRuntimeError, ValueError)  # by JAX's slow path, and by its fast one
HEADER = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that Python has run."""
    seen: list[str] = []
    run = JaxOperator.run

    def noted(self: JaxOperator, *arrays: Any) -> Any:
        seen.append(self.program.name)
        return run(self, *arrays)

    monkeypatch.setattr(JaxOperator, "run", noted)
    return seen


def test_later_calls_take_no_python(runs: list[str]) -> None:
    f = jax.jit(az.jax(az.program(lambda x: az.sum(az.sin(x)) + 1)))
    for k in range(3):
        same(f(numbers(5, seed=k)), jnp.sum(jnp.sin(numbers(5, seed=k))) + 1)
    assert len(runs) == 1
    f(numbers(6))  # another shape has frames of its own
    assert len(runs) == 2


def test_constants_and_branches_on_sizes(runs: list[str]) -> None:
    table = np.arange(1000.0)
    f = jax.jit(az.jax(az.program(lambda x: az.sum(x) * az.array(table)[2] + az.max(az.array(table) * x[0]))))
    for size in (2, 70, 20_000):
        for k in range(3):
            x = numbers(size, seed=k)
            same(f(x), jnp.sum(x) * 2 + jnp.max(table * x[0]))
    assert len(runs) == 3


def test_what_python_has_to_run(runs: list[str]) -> None:
    """Functions of Python, recursion, empty arrays: each call is one of Python."""
    doubled = az.operation("doubled", numpy=lambda x: 2 * x, result=lambda x: x)
    f = jax.jit(az.jax(az.program(lambda x: doubled(x))))
    for k in range(3):
        same(f(numbers(4, seed=k)), 2 * numbers(4, seed=k))
    assert len(runs) == 3
    factorial = az.fix(lambda f, n: az.cond(n < 2, lambda: 1.0, lambda: n * f(n - 1)), az.f64, result=az.f64)
    g = jax.jit(az.jax(az.program(lambda x: factorial(x))))
    same((g(5.0), g(3.0)), (jnp.asarray(120.0), jnp.asarray(6.0)))
    assert len(runs) == 5
    same(jax.jit(az.jax(az.program(lambda x: x + 1)))(numbers(0)), numbers(0))


def test_failures_are_run_again_by_python(runs: list[str]) -> None:
    table, f = numbers(3), jax.jit(az.jax(az.program(lambda x, k: x[k])))
    for k in range(3):
        same(f(table, k), table[k])
    for wrong in (3, -4):
        with pytest.raises(REFUSED, match=rf"IndexError: index {wrong} is out of .*test_xla\.py"):
            jax.block_until_ready(f(table, wrong))
    same(f(table, 2), table[2])
    assert len(runs) == 3


def test_memory_that_is_not_there() -> None:
    f = az.jax(az.program(lambda n: az.sum(az.sort(az.generate(n, lambda i: i * 0.5)))))
    with pytest.raises(REFUSED, match="RESOURCE_EXHAUSTED: MemoryError"):
        jax.block_until_ready(jax.jit(f)(1 << 50))


def together(call: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(call, range(count)))


@pytest.mark.parametrize("threads", [1, 2])
def test_many_threads_at_once(threads: int, runs: list[str]) -> None:
    """Of Python's, each in a call, with several calls in the graph of XLA, which it may make side by side."""
    f = az.jax(recurrence, threads=threads)
    run = jax.jit(lambda x: jnp.stack([f(x * k, k / 10) for k in range(1, 5)]))
    meaning = BY_NAME["recurrence"].meaning
    inputs = [numbers(3000, seed=k) for k in range(4)]
    expected = [np.stack([meaning(x * k, k / 10) for k in range(1, 5)]) for x in inputs]
    for number, found in enumerate(together(lambda k: np.asarray(run(inputs[k % 4])), 100)):
        np.testing.assert_allclose(found, expected[number % 4], rtol=1e-10)
    assert len(runs) < 100


@pytest.mark.rest
def test_many_shapes_have_handlers() -> None:
    f = jax.jit(az.jax(az.program(lambda x: x + 1)))
    for size in range(1, 70, 3):
        same(f(jnp.ones(size)), jnp.full(size, 2.0))


def test_without_the_interface(monkeypatch: pytest.MonkeyPatch, runs: list[str]) -> None:
    monkeypatch.setattr(jax_primitives, "target", lambda operator, arrays: None)
    f = az.jax(az.program(lambda x: az.sum(az.cos(x))))
    for k in range(2):
        same(jax.jit(jax.grad(f))(numbers(4, seed=k)), -jnp.sin(numbers(4, seed=k)))
    same(jax.vmap(f)(numbers(3, 2)), jnp.sum(jnp.cos(numbers(3, 2)), 1))
    assert len(runs) == 3


def test_headers() -> None:
    """Only one that declares what is read and written has a version."""
    text = HEADER.read_text()
    version = xla._version(text)
    assert version is not None and version[0] == 0
    assert xla._version(text.replace("#define XLA_FFI_API_MAJOR 0", "#define XLA_FFI_API_MAJOR 1")) is None
    assert xla._version(text.replace("  void* data;\n  int64_t rank;", "  int64_t rank;\n  void* data;")) is None
    assert xla._version(text.replace("XLA_FFI_Metadata* metadata;", "")) is None
    assert xla._version("") is None


def test_the_code_that_xla_keeps_says_which_program() -> None:
    """By a name that is the same in another process, for what JAX keeps on disk; an address would not be."""
    f = az.jax(recurrence)
    text = jax.jit(f).lower(numbers(3), 0.5).as_text()
    assert f"@adze_recurrence_{repr(f._operator(recurrence.at())).rpartition('_')[2]}_3_(" in text
