"""Calls of machine code: straight and converted arguments, results written to given arrays, bound calls, frames."""

import copy
import pickle
import subprocess
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from load import ROOT

import adze as az
from adze.backends.llvm import layout_conversion as arranging
from adze.backends.target import SQUARE_LEAST_BITS
from adze.core.trees import tree_map
from adze.core.types import SCALARS, Scalar


@az.program
def scaled(x: az.Array[az.f64, "n m"], by: az.f64) -> az.Array[az.f64, "n m"]:
    return x * by


@az.program
def total(x: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(x)


class Pair(NamedTuple):
    double: Any
    sum: Any


@az.program
def both(x: az.Array[az.f64, "n"]) -> Any:
    return Pair(2 * x, az.sum(x))


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape) / 4


# Straight and converted arguments


@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_all_scalar_types_go_in_and_out(scalar: Scalar) -> None:
    f = az.compile(lambda x, y: (x, y)).program.at(az.Array[scalar, "n"], scalar)
    x = np.array([0, 1, 1], scalar.dtype)
    straight, converted = az.compile(f)(x, x[1]), az.compile(f)(x[::-1][::-1].tolist(), np.array(x[1]))
    for array, number in (straight, converted):
        assert array.dtype == x.dtype and array.tolist() == x.tolist() and array is not x
        assert type(number) is scalar.dtype.type and number == x[1]


# fmt: off
LAYOUTS = {
    "straight": lambda x: x,
    "transposed": lambda x: np.asfortranarray(x),
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "a subclass": lambda x: x.view(np.recarray),
    "lists": lambda x: x.tolist(),
    "misaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
}
# fmt: on


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arguments_of_any_layout(layout: str) -> None:
    x = numbers(5, 3)
    given = LAYOUTS[layout](x)
    np.testing.assert_array_equal(az.compile(scaled)(given, 2.0), 2 * x)
    np.testing.assert_array_equal(scaled(given, 2), 2 * x)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_small_and_empty_arguments(shape: tuple[int, int]) -> None:
    np.testing.assert_array_equal(az.compile(scaled)(numbers(*shape), 2.0), 2 * numbers(*shape))


def test_what_is_wrong_is_refused_after_a_call_that_was_right() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n+1"], z: az.Array[az.f64, 2], k: az.i64) -> az.f64:
        return az.sum(x) + az.sum(y) + az.sum(z) + k

    call, x, y, z = az.compile(f), numbers(3), numbers(4), numbers(2)
    right = x.sum() + y.sum() + z.sum() + 7
    assert call(x, y, z, 7) == right
    with pytest.raises(ValueError, match=r"axis 0 of argument 'y' is n \+ 1 = 4 .* got 3"):
        call(x, x, z, 7)
    with pytest.raises(ValueError, match="axis 0 of argument 'z' is 2, got 3"):
        call(x, y, x, 7)
    with pytest.raises(TypeError, match=r"argument 'x' is .* got an array of float32"):
        call(x.astype(np.float32), y, z, 7)
    with pytest.raises(TypeError, match="argument 'k' is i64"):
        call(x, y, z, 7.0)
    with pytest.raises(TypeError, match="argument 'k' is i64"):
        call(x, y, z, 2**70)
    with pytest.raises(TypeError, match="missing"):
        call(x, y, z)
    assert call(x, y, z, 7) == call(k=7, z=z, y=y, x=x) == right


def test_sizes_change_from_call_to_call() -> None:
    call = az.compile(scaled)
    for n in (1, 100, 2, 5000, 3):
        np.testing.assert_array_equal(call(numbers(n, 3), 3.0), 3 * numbers(n, 3))


def test_structures_change_from_call_to_call() -> None:
    """A call like the one before takes its version: what is like it has the order of leaves, sizes and kinds."""
    vector = az.Array[az.f64, "n"]
    annotated = az.compile(az.program(_annotated({"a": vector, "b": (vector, az.f64)})))
    free = az.compile(az.program(lambda p: az.sum(p["a"]) - az.sum(p["b"][0]) * p["b"][1]))
    for call in (annotated, free):
        for n in (3, 0, 3, 40):
            a, b = numbers(n), numbers(n) + 1
            right = a.sum() - 2 * b.sum()
            for _ in range(2):
                assert call({"a": a, "b": (b, 2.0)}) == right
            for _ in range(2):
                assert call({"b": (b, 2.0), "a": a}) == right
            for _ in range(2):
                assert call({"b": [b, np.float64(2)], "a": a}) == right
            assert call({"a": a, "b": (a, 2.0)}) == call({"b": (a, 2.0), "a": a}) == -a.sum()
    with pytest.raises(TypeError, match=r"argument \"p\['a'\]\" is f64\[n\], got an array of float32"):
        annotated({"a": numbers(3).astype(np.float32), "b": (numbers(3), 2.0)})
    with pytest.raises(TypeError, match="a tuple of 2, got ndarray"):
        annotated({"a": numbers(3), "b": numbers(3)})
    with pytest.raises(ValueError, match="n is 3 in argument"):
        annotated({"a": numbers(3), "b": (numbers(4), 2.0)})


def _annotated(declared: Any) -> Any:
    def difference(p: declared) -> az.f64:
        return az.sum(p["a"]) - az.sum(p["b"][0]) * p["b"][1]

    return difference


def test_results_do_not_share_memory_with_later_ones() -> None:
    call = az.compile(both)
    first, second = call(numbers(4)), call(numbers(4) + 1)
    assert isinstance(first, Pair) and first.sum == numbers(4).sum()
    np.testing.assert_array_equal(first.double, 2 * numbers(4))
    assert not np.shares_memory(first.double, second.double)


def test_a_failure_is_of_its_call_alone() -> None:
    @az.program
    def pick(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        return x[k]

    call = az.compile(pick)
    bound = call.bind(numbers(3), 3)
    for _ in range(2):
        with pytest.raises(IndexError, match="3"):
            call(numbers(3), 3)
        with pytest.raises(IndexError, match="3"):
            bound()
        assert call(numbers(3), 2) == 0.5


def test_threads_call_at_once() -> None:
    call, wrong = az.compile(both), []

    def work(n: int) -> None:
        for _ in range(200):
            result = call(numbers(n))
            if result.sum != numbers(n).sum() or result.double.tolist() != (2 * numbers(n)).tolist():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_compiled_program_that_has_run_is_pickled_and_copied() -> None:
    call, x = az.compile(total, threads=1), numbers(3)
    assert call(x) == pickle.loads(pickle.dumps(call))(x) == copy.deepcopy(call)(x) == x.sum()


def test_a_result_whose_size_would_be_negative_is_refused_as_anywhere() -> None:
    @az.program
    def steps(x: az.Array[az.f64, "n"]) -> Any:
        return az.generate(x.shape[0] - 1, lambda i: x[i + 1] - x[i])

    call = az.compile(steps)
    for n in (0, 3, 1, 0):
        if n:
            np.testing.assert_array_equal(call(numbers(n)), np.diff(numbers(n)))
            continue
        for run in (call, az.evaluate(steps)):
            with pytest.raises(ValueError, match=r"a size of -1, at .*test_calls\.py"):
                run(numbers(n))


@pytest.mark.parametrize("m", [1 << 30, 1 << 31, 1 << 40])
def test_more_temporary_memory_than_a_word_tells(m: int) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n m"]) -> az.f64:
        square = az.exp(x.T @ x)
        return az.sum(square @ square)

    call = az.compile(f)
    square = np.exp(2 * np.ones((3, 3)))
    np.testing.assert_allclose(call(np.ones((2, 3))), (square @ square).sum())
    with pytest.raises(MemoryError, match=r"no memory for .*test_calls\.py:\d+"):
        call(np.zeros((0, m)))


LONG: dict[str, Any] = {
    "elements": lambda x: x + 1,
    "transposed": lambda x: 2 * x.T,
    "sums of rows": lambda x: az.sum(x, axis=0),
    "product": lambda x: x.T @ x,
    "cumulated": lambda x: (az.cumsum(x, axis=0), az.cumsum(x, axis=1)),
    "sorted": lambda x: az.sort(x, axis=1),
    "joined": lambda x: az.concatenate([x, x]),
    "updated": lambda x: az.update(x, 0, 1.0),
    "in a loop": lambda x: az.fori_loop(0, 3, lambda i, s: 2 * s + x, x),
    "flat": lambda x: x.reshape(-1),
    "pushed": lambda x: az.vjp(lambda y: az.exp(y) ** 2)(x, x),
}


@pytest.mark.parametrize("name", LONG)
def test_an_empty_array_that_is_longer_than_memory(name: str) -> None:
    """It takes no memory, and loops over its rows, which have no elements, take no time."""

    @az.program
    def f(x: az.Array[az.f64, "n m"]) -> Any:
        return LONG[name](x)

    x = np.empty((2**50, 0))
    found, wanted = az.compile(f)(x), az.evaluate(f)(x)
    assert tree_map(np.shape, found) == tree_map(np.shape, wanted)


def test_reads_of_empty_arrays_are_errors_and_touch_nothing() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n m k"], i: az.i64, j: az.i64) -> Any:
        return az.sum(x[i, j])

    for shape in ((2**50, 0, 4), (0, 3, 4), (0, 2**40, 0), (2**40, 2**8, 0), (0, 1, 10**7)):
        for run in (az.evaluate(f), az.compile(f)):
            if shape[0]:
                assert shape[1] == 0 or run(np.empty(shape), 2**39, 2) == 0
            else:
                with pytest.raises(IndexError, match="index 1 is out of range for axis 0"):
                    run(np.empty(shape), 1, 0)
            if shape[1] == 0:
                with pytest.raises(IndexError, match="index 2 is out of range for axis 1"):
                    run(np.empty(shape), 2**39, 2)


def test_results_and_arguments_beyond_memory_name_the_line_of_the_call() -> None:
    @az.program
    def outer(x: az.Array[az.f64, "n m"]) -> Any:
        return x @ x.T, x[0]

    for shape, wanted in (((2**50, 0), (2**50, 2**50)), ((2**20, 0), (2**20, 2**20)), ((0, 2**50), (0, 2**50))):
        with pytest.raises(MemoryError) as caught:
            az.compile(outer)(np.empty(shape))
        assert str(caught.value).startswith(f"no memory for an array of shape {wanted} (at ")
        assert "test_calls.py:" in str(caught.value)


@pytest.mark.rest
def test_an_array_of_computed_size_lives_to_the_end_of_the_interpreter() -> None:
    script = """if True:
        import atexit
        kept = []
        atexit.register(lambda: print(kept[0].sum()))
        import adze as az
        kept.append(az.compile(lambda n: az.generate(n, lambda i: i))(1_000_000))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == [str(999_999 * 500_000)]


@pytest.mark.unguarded
@pytest.mark.parametrize("threads", [0, -1, 2.0, True, "2"])
def test_a_number_of_threads_that_is_none(threads: Any) -> None:
    with pytest.raises(ValueError, match=f"at least one thread, a whole number of them, not {threads!r}"):
        az.compile(total, threads=threads)


# Results written to given arrays


def test_results_are_written_to_given_arrays() -> None:
    call, x, memory, sum = az.compile(both), numbers(4), np.zeros(4), np.zeros(())
    result = call(x, out=(memory, sum))
    assert isinstance(result, Pair) and result.double is memory and result.sum is sum
    assert memory.tolist() == (2 * x).tolist() and sum == x.sum()
    partly = call(x + 1, out=Pair(memory, None))
    assert partly.double is memory and partly.sum == (x + 1).sum() and sum == x.sum()
    part = np.zeros((3, 4))
    call(x, out=(part[1], None))
    assert part.tolist() == [[0] * 4, (2 * x).tolist(), [0] * 4]


def test_arrays_that_results_cannot_be_written_to_are_refused() -> None:
    call, x = az.compile(both), numbers(4)
    right, locked = np.zeros(4), np.zeros(4)
    locked.flags.writeable = False
    for out, error, message in (
        (right, TypeError, r"both: out is a Pair of 2"),
        ((right,), TypeError, r"both: out is a Pair of 2"),
        (([0.0] * 4, None), TypeError, r"out\.double is an array to write to \(or None\), not a list"),
        ((np.zeros(4, np.float32), None), TypeError, r"out\.double is an array of float64, not of float32"),
        ((np.zeros(5), None), ValueError, r"out\.double has the shape \(4,\) here, not \(5,\)"),
        ((np.zeros(8)[::2], None), ValueError, "writable and aligned array in row-major order"),
        ((locked, None), ValueError, "writable and aligned array in row-major order"),
        ((x, None), ValueError, r"out\.double overlaps an argument or another result"),
        ((right, right[1:2].reshape(())), ValueError, r"out\.sum overlaps an argument or another result"),
    ):
        with pytest.raises(error, match=message):
            call(x, out=out)
        with pytest.raises(error, match=message):
            call.bind(x, out=out)
    with pytest.raises(ValueError, match="overlaps an argument"):
        az.compile(scaled)(x.reshape(2, 2).T, 2.0, out=x.reshape(2, 2))
    assert x.tolist() == numbers(4).tolist()


def test_a_result_of_unknown_size_is_not_written_anywhere() -> None:
    @az.program
    def count(n: az.i64) -> Any:
        return az.generate(n, lambda i: 2 * i)

    call = az.compile(count)
    assert call(3, out=None).tolist() == call.bind(3)().tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="known after the run only"):
        call(3, out=np.zeros(3, np.int64))


def test_a_parameter_may_be_called_out() -> None:
    @az.program
    def f(x: az.f64, out: az.f64) -> az.f64:
        return x - out

    assert az.compile(f)(3.0, out=1.0) == az.compile(f).bind(3.0, out=1.0)() == 2.0


# Bound calls


def test_bound_calls_read_their_arguments_anew() -> None:
    x = numbers(2, 3)
    bound = az.compile(scaled).bind(x, by=2.0)
    first = bound()
    x += 1
    second = bound()
    np.testing.assert_array_equal(first, 2 * numbers(2, 3))
    np.testing.assert_array_equal(second, 2 * x)
    memory = np.empty((2, 3))
    assert az.compile(scaled).bind(x, 3.0, out=memory)() is memory
    np.testing.assert_array_equal(memory, 3 * x)


def test_bound_arguments_live_as_long_as_the_call() -> None:
    bound = az.compile(total).bind(numbers(1000))
    noise = [np.full(1000, np.nan) for _ in range(10)]
    assert bound() == numbers(1000).sum() and len(noise) == 10


def test_arguments_that_would_be_copied_are_not_bound() -> None:
    with pytest.raises(ValueError, match="bound argument 'x' is read where it is"):
        az.compile(scaled).bind(numbers(3, 2).T, 2.0)
    assert az.compile(total).bind([1.0, 2.0])() == 3.0
    assert az.compile(total).bind(np.zeros(0))() == 0.0


def at_odd_address(x: np.ndarray) -> np.ndarray:
    found = np.empty(x.nbytes + 64, np.uint8)
    found = found[-found.ctypes.data % 64 + 3 :][: x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def rows_and_columns(x: az.Array[az.f64, "n d"], k: az.Array[az.i64, "n"]) -> Any:
    """What is read as one element, as vectors forwards, backwards and near each other, in squares, and gathered."""
    n, d = az.size(x, 0), az.size(x, 1)
    mirrored = az.generate(n, lambda i: az.sum(x[n - 1 - i]) + az.sum(x[i, ::3]))
    return x[0, d - 1], x.T @ x, mirrored, az.map(lambda at: x[at, 1], k), az.cumsum(x.T, axis=1)


def test_arguments_at_odd_addresses_are_read_where_they_are() -> None:
    x, k = numbers(67, 13), np.random.default_rng(1).integers(0, 67, 67)
    odd, places = at_odd_address(x), at_odd_address(k)
    assert not odd.flags.aligned and not places.flags.aligned
    call = az.compile(rows_and_columns)
    bound = call.bind(odd, places)
    for factor in (1.0, 3.0):  # the same bits, of what is there in each call
        x *= factor
        odd[...] = x
        for found, again, wanted in zip(call(odd, places), bound(), call(x, k), strict=True):
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(again, wanted)
    np.testing.assert_array_equal(call(odd, places)[3], x[k, 1])
    np.testing.assert_allclose(call(odd, places)[1], x.T @ x, rtol=1e-13)


@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_any_type_is_read_at_odd_addresses(scalar: Scalar) -> None:
    x = np.random.default_rng(1).integers(0, 2, 101).astype(scalar.dtype)
    mirrored = az.program(lambda x: az.generate(az.size(x, 0), lambda i: x[az.size(x, 0) - 1 - i]))
    bound = az.compile(mirrored.at(az.Array[scalar, "n"])).bind(at_odd_address(x))
    np.testing.assert_array_equal(bound(), x[::-1])


def test_a_bound_call_from_several_threads() -> None:
    bound, found = az.compile(total, threads=2).bind(numbers(50_000)), []
    threads = [threading.Thread(target=lambda: found.extend(bound() for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200 and len(set(found)) == 1


# Large arguments in another order


@pytest.mark.parametrize("order", [(1, 0), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize("scalar", SCALARS.values(), ids=str)
def test_axes_in_another_order_are_put_right(
    order: tuple[int, ...], scalar: Scalar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arranging, "LEAST", 0)
    for extents in ((1, 1, 1), (8, 70, 3), (33, 9, 16), (0, 5, 2)):
        lying = np.random.default_rng(1).integers(0, 2, extents[: len(order)]).astype(scalar.dtype)
        array = lying.transpose(order)
        found = arranging.row_major(array, 2)
        assert found.flags.c_contiguous or scalar.bits < SQUARE_LEAST_BITS
        np.testing.assert_array_equal(found, array)


def test_large_arguments_of_any_stride() -> None:
    whole = np.random.default_rng(1).standard_normal((700, 801))
    found = az.compile(scaled)
    for x in (whole.T, np.asfortranarray(whole), whole[:, ::2], whole[::-1], whole[:, :700].T):
        np.testing.assert_array_equal(found(x, 2.0), 2.0 * x)
    swapped = np.zeros((30, 100, 100)).swapaxes(0, 1)
    for x in (whole[:, ::2], whole[::-1], whole[:, :700].T, swapped):  # NumPy's
        assert arranging.row_major(x, 1) is x
