"""Memory of large results: used again, but never while somebody holds the array."""

import gc
import threading

import numpy as np
import pytest

import adze as az
from adze.backends.llvm import results

N = results.LARGE // 8


@az.program
def double(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    return 2 * x


@pytest.fixture(autouse=True)
def nothing_waits() -> None:
    gc.collect()
    results._waiting.clear()


def test_memory_that_nobody_holds_is_used_again() -> None:
    first = results.empty((2, N), np.dtype(np.float64))
    address = first.ctypes.data
    assert address % 64 == 0 and first.flags.writeable and first.flags.c_contiguous and first.shape == (2, N)
    del first
    assert results.waiting_bytes() >= 16 * N
    second = results.empty((2 * N,), np.dtype(np.float64))
    assert second.ctypes.data == address and results.waiting_bytes() == 0


def test_views_hold_it() -> None:
    x = np.arange(float(N))
    whole = double(x)
    part, kept = whole[7::2], memoryview(whole)
    del whole
    np.testing.assert_array_equal(double(-x), -2 * x)
    np.testing.assert_array_equal(part, 2 * x[7::2])
    np.testing.assert_array_equal(np.asarray(kept), 2 * x)


def test_small_results_are_plain_arrays() -> None:
    assert results.empty((3, 2), np.dtype(np.float32)).flags.owndata
    assert double(np.ones(5)).flags.owndata


def test_little_of_it_is_wasted() -> None:
    results.empty((4 * N,), np.dtype(np.float64))
    assert results.empty((N,), np.dtype(np.float64)).nbytes == 8 * N
    assert results.waiting_bytes() > 32 * N  # that block still waits


def test_not_too_much_waits() -> None:
    size = results.MOST // 4
    several = [results.empty((size,), np.dtype(np.uint8)) for _ in range(6)]
    last = several[-1].ctypes.data
    while several:
        del several[0]
    assert results.MOST - 2 * size < results.waiting_bytes() <= results.MOST
    again = [results.empty((size,), np.dtype(np.uint8)) for _ in range(3)]
    assert last in [each.ctypes.data for each in again]
    results.empty((results.MOST + 1,), np.dtype(np.uint8))
    assert results.waiting_bytes() <= results.MOST


def test_threads_never_share_it() -> None:
    wrong = []

    def work(number: int) -> None:
        for _ in range(20):
            mine = results.empty((N,), np.dtype(np.int64))
            mine[:] = number
            if not (mine == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
