"""Calls that machine code makes: a frame with the sizes in it, of which it writes the addresses."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.llvm.frames import entries


def shaped(*arrays: Any) -> list[Any]:
    return [SimpleNamespace(shape=np.shape(array)) for array in arrays]


def called(compiled: az.Compiled, arguments: list[Any], results: list[Any]) -> int:
    """What a call gives, of arrays at addresses, numbers too."""
    direct = compiled.direct(shaped(*arguments))
    assert direct is not None
    frame = direct.frame()
    places = [*range(direct.arguments), *range(direct.first_result, direct.first_result + direct.results)]
    for place, array in zip(places, [*arguments, *results], strict=True):
        frame.words[frame.addresses + place] = array.ctypes.data
    quiet = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(entries().quiet)
    return quiet(frame.address, direct.threads)


@az.program
def shifted(x: az.Array[az.f64, "n m"], k: az.i64, y: az.Array[az.f64, "m"]):
    return az.map(lambda row: row[k] * y + az.sum(row), x), k + 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [1, 3, 500])
def test_results(n: int, threads: int) -> None:
    x, y, k = np.arange(4.0 * n).reshape(n, 4), np.arange(4.0), np.array(2)
    made, more = np.empty((n, 4)), np.empty((), np.int64)
    assert called(az.compile(shifted, threads=threads), [x, k, y], [made, more]) == 0
    np.testing.assert_allclose(made, x[:, 2:3] * y + x.sum(1, keepdims=True))
    assert more == 3


def test_failures() -> None:
    x, y, k = np.ones((2, 4)), np.ones(4), np.array(7)
    assert called(az.compile(shifted), [x, k, y], [np.empty((2, 4)), np.empty((), np.int64)]) != 0
    with pytest.raises(ValueError, match=r"m is 4 in argument 'x'.*but 3"):
        az.compile(shifted).direct(shaped(x, k, np.ones(3)))


def test_what_takes_python() -> None:
    x = np.ones(3)
    vector = az.Array[az.f64, "n"]
    doubled = az.foreign("doubled", lambda x: 2 * x, lambda x: x)
    for f in (lambda x: az.filter(lambda v: v > 0, x), lambda x: doubled(x)):
        assert az.compile(az.program(f).at(vector)).direct(shaped(x)) is None
    assert az.compile(az.program(lambda x: x + 1).at(vector)).direct(shaped(x[:0])) is None
