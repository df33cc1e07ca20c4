"""LAPACK's threads: one while a call is under way, and afterwards as many as before."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.linalg

import adze as az
from adze.library.linalg.one_thread import _found, on_one_thread

N = 300  # from some size on OpenBLAS adds in another order on several threads


LIBRARIES = list(_found())

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="NumPy and SciPy have no OpenBLAS with threads of its own here")


def numbers() -> set[int]:
    """How many threads the libraries have that NumPy and SciPy call."""
    return {library.number() for library in LIBRARIES}


def set_numbers(number: int) -> None:
    for library in LIBRARIES:
        library.set_number(number)


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    """Two threads for the libraries, on any machine."""
    before = [library.number() for library in LIBRARIES]
    set_numbers(2)
    yield
    for library, number in zip(LIBRARIES, before, strict=True):
        library.set_number(number)


def test_the_libraries_of_wheels_are_found() -> None:
    builds = [np.show_config(mode="dicts"), scipy.show_config(mode="dicts")]
    wheels = [build for build in builds if "scipy-openblas" in build["Build Dependencies"]["blas"]["name"]]
    assert len(LIBRARIES) >= len(wheels)


def positive(n: int) -> Any:
    x = np.random.default_rng(3).standard_normal((n, n))
    return x @ x.T + n * np.eye(n)


def program(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> az.f64:
    return b @ az.linalg.solve(a, b) + az.linalg.slogdet(a).logabsdet + az.sum(az.linalg.cholesky(a))


def test_one_thread_during_a_call_and_what_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    found, factor = list[set[int]](), np.linalg.cholesky

    def recording(a: Any) -> Any:
        found.append(numbers())
        return factor(a)

    monkeypatch.setattr(np.linalg, "cholesky", recording)
    compiled = az.compile(lambda a: az.linalg.cholesky((a @ a.T)[None]))
    assert numbers() == {2}
    assert np.allclose(compiled(positive(5))[0], factor(positive(5) @ positive(5)))
    assert found == [{1}]
    assert numbers() == {2}


def test_fits_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    found, factor = list[set[int]](), np.linalg.qr

    def recording(*args: Any, **options: Any) -> Any:
        found.append(numbers())
        return factor(*args, **options)

    monkeypatch.setattr(np.linalg, "qr", recording)
    fit = az.least_squares(lambda x: x - 1.0, np.zeros(3), callback=lambda step: found.append(numbers()))
    assert fit.success and {1} in found and {2} in found  # the callback has as many as before
    assert found.count({2}) == fit.steps
    assert numbers() == {2}


def test_the_last_of_several_calls_puts_back_what_was() -> None:
    inside, go = threading.Event(), threading.Event()

    def waiting() -> None:
        inside.set()
        go.wait(60)

    other = threading.Thread(target=on_one_thread(waiting))
    other.start()
    assert inside.wait(60)
    assert on_one_thread(numbers)() == {1}
    assert numbers() == {1}
    go.set()
    other.join()
    assert numbers() == {2}


def test_a_call_that_fails_puts_back_what_was() -> None:
    with pytest.raises(ZeroDivisionError):
        on_one_thread(lambda: 1 // 0)()
    assert numbers() == {2}


def test_beside_scipy_in_another_thread() -> None:
    a, b = positive(60), np.arange(60.0)
    expected, found, stop = scipy.linalg.solve(a, b), list[Any](), threading.Event()

    def others() -> None:
        while not stop.is_set():
            found.append(scipy.linalg.solve(a, b))

    other = threading.Thread(target=others)
    other.start()
    try:
        solved = az.compile(lambda a, b: az.linalg.solve(a, b))
        results = [solved(a, b) for _ in range(50)]
    finally:
        stop.set()
        other.join()
    assert found and all(np.allclose(x, expected) for x in [*found, *results])
    assert numbers() == {2}


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("interpret", [az.evaluate, az.compile])
def test_bits_do_not_depend_on_the_threads_of_the_library(interpret: Callable[..., Any]) -> None:
    a, b = positive(N), np.linspace(-1, 1, N)
    found = []
    for number in (1, 2):
        set_numbers(number)
        found.append(interpret(az.value_and_grad(program, argnums=0))(a, b))
    assert found[0][0] == found[1][0]
    if interpret is az.compile:  # evaluated, products are NumPy's own
        assert np.array_equal(found[0][1], found[1][1])


def test_a_forked_child_has_the_threads_of_before() -> None:
    def child() -> bool:
        pid = os.fork()
        if pid == 0:
            on_one_thread(numbers)()
            os._exit(0 if numbers() == {2} else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    assert on_one_thread(child)()
