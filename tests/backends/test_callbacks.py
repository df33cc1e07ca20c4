"""Functions of Python in compiled programs: where they stand, what they are given, and what they raise."""

import gc
import os
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sampling import some
from test_interrupts import handled

import adze as az
from adze.core.types import ArrayType, bool_, dims, f32

pytestmark = pytest.mark.unguarded

RANDOM = np.random.default_rng(11)
ROWS, SQUARE = RANDOM.standard_normal((40, 5)), np.eye(4) * 3 + RANDOM.standard_normal((4, 4))
V = RANDOM.standard_normal(4)

solve = az.foreign("solve", np.linalg.solve, lambda a, b: b)
total = az.foreign("total", lambda x: np.float64(np.sum(x)), az.f64)
ordered = az.foreign("ordered", np.sort, lambda x: x)
split = az.foreign("split", lambda x: (np.floor(x), x > 0), lambda x: (x, ArrayType(bool_, dims(x))))
plus = az.foreign("plus", lambda a, b: a + b, lambda a, b: a)


def agrees(program: Any, *arguments: Any, **options: Any) -> Any:
    """Compiled, on one thread and on two, a program gives what evaluate gives."""
    wanted = az.evaluate(program)(*arguments)
    for threads in (1, 2):
        found = az.compile(program, threads=threads, **options)(*arguments)
        for mine, theirs in zip(flat(found), flat(wanted), strict=True):
            assert np.asarray(mine).dtype == np.asarray(theirs).dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    return found


def flat(found: Any) -> list[Any]:
    return [part for each in found for part in flat(each)] if isinstance(found, tuple | list) else [found]


# Where they stand


def test_at_the_top() -> None:
    @az.program
    def f(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> Any:
        y = solve(a, b * 2.0)
        return y + 1.0, solve(a.T, y), total(y) * total(b), az.sum(ordered(b) * y)

    agrees(f, SQUARE, V)


def test_in_a_map_and_a_reduction() -> None:
    @az.program
    def f(m: az.Array[az.f64, "n k"]) -> Any:
        sums = az.map(lambda row: total(row) * 2.0, m)
        rows = az.map(lambda row: ordered(row) + az.sum(row), m)
        return (
            sums,
            rows,
            az.sum(az.map(lambda row: az.exp(-(total(row) ** 2)), m)),
            az.generate(3, lambda i: total(m[i])),
        )

    agrees(f, ROWS)
    agrees(f, ROWS[:3, :0])


def test_in_loops_and_branches() -> None:
    @az.program
    def f(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"], steps: az.i64) -> Any:
        last = az.fori_loop(0, steps, lambda i, x: solve(a, x) + ordered(x), b)
        states = az.scan_loop(lambda s, x: (plus(s, x), total(az.stack([s, x]))), 0.5, b)
        ended = az.while_loop(lambda x: total(x) < 100.0, lambda x: plus(x, x * x + 1.0), b)
        chosen = az.cond(steps > 2, lambda: ordered(b), lambda: solve(a, b))
        return last, states, ended, chosen

    for steps in (0, 3):
        agrees(f, SQUARE, V, steps)


@pytest.mark.rest
def test_what_sizes_decide() -> None:
    """A call stands in a branch that is compiled on demand, and in a piece of a long block."""

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        sums = []
        for k in range(40):
            x = plus(x, x * 0.1 + k)
            sums.append(total(x))
        product = az.outer(x, x) @ az.outer(x, x)
        return az.stack(sums), total(product), az.cond(az.size(x) > 50, lambda: total(x), lambda: total(x * 2))

    for n in (3, 100):
        agrees(f, RANDOM.standard_normal(n))


def test_sizes_that_the_run_decides() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        some = az.filter(lambda v: v > 0, x)
        return ordered(some), total(some)

    agrees(f, ROWS.ravel())
    agrees(f, -np.ones(3))


def test_several_results_and_types() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        whole, positive = split(x)
        return whole, az.count_nonzero(positive), positive

    agrees(f, V)
    wide = az.foreign("wide", lambda k, t: np.int64(k) * 2 + t, az.i64)
    agrees(az.program(lambda k, t: wide(k, t)).at(az.i32, az.bool_), np.int32(7), True)
    single = az.foreign("single", lambda x: x.astype(np.float32), lambda x: ArrayType(f32, dims(x)))
    agrees(az.program(lambda x: single(x) * 2).at(az.Array[az.f64, "m"]), V)


def test_with_rules_for_derivatives() -> None:
    @az.custom_jvp
    def solved(a: Any, b: Any) -> Any:
        return solve(a, b)

    @solved.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        a, b = primals
        return solved(a, tangents[1] - tangents[0] @ solved(a, b))

    @az.program
    def f(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.sin(solved(a, b)))

    found = agrees(az.jvp(f), SQUARE, V, np.eye(4), V)
    step = 1e-6
    run = az.compile(f)
    slope = (run(SQUARE + step * np.eye(4), V + step * V) - run(SQUARE - step * np.eye(4), V - step * V)) / (2 * step)
    np.testing.assert_allclose(found[1], slope, rtol=1e-6)


def test_what_says_something_to_derivatives_alone_is_not_compiled() -> None:
    program = az.program(lambda x: ordered(az.stop_gradient(x))).at(az.Array[az.f64, "n"])
    compiled = az.compile(program)
    assert "temporary" not in str(compiled.schedule) and "call 0 on x" in compiled.loops
    np.testing.assert_array_equal(compiled(V), np.sort(V))


def test_bound_calls_and_places_for_results() -> None:
    compiled = az.compile(az.program(lambda x: ordered(x)).at(az.Array[az.f64, "n"]))
    x, out = V.copy(), np.empty(4)
    bound = compiled.bind(x)
    np.testing.assert_array_equal(bound(), np.sort(V))
    x[0] = 100.0
    np.testing.assert_array_equal(bound(), np.sort(x))
    assert compiled(x, out=out) is out and out[-1] == 100.0
    assert "call 0 on x" in compiled.loops
    assert re.search(r"call 0 on x\w* for \w+ \(Python, one thread at a time\)", str(compiled.schedule))
    assert compiled.profile(x).rows is not None and compiled.peak_bytes(x) >= x.nbytes


# What they are given


def test_arguments_cannot_be_written_to_and_may_be_kept() -> None:
    kept: list[np.ndarray] = []

    def keep(x: np.ndarray) -> np.ndarray:
        assert not x.flags.writeable
        kept.append(x)
        return x * 2

    keeping = az.foreign("keeping", keep, lambda x: x)
    compiled = az.compile(az.program(lambda m: az.map(keeping, m)).at(az.Array[az.f64, "n k"]))
    wanted = 2 * ROWS
    for _ in range(3):
        np.testing.assert_array_equal(compiled(ROWS), wanted)
    assert len(kept) == 3 * len(ROWS)
    np.testing.assert_array_equal(sorted(map(tuple, kept[: len(ROWS)])), sorted(map(tuple, ROWS)))


def test_views_as_arguments_are_what_they_show() -> None:
    @az.program
    def f(m: az.Array[az.f64, "n k"]) -> Any:
        return total(m[1]), ordered(m[:, 2]), ordered(m[::-1, 0]), total(m.T), total(m[0, 1])

    agrees(f, ROWS)


def test_a_function_may_call_compiled_programs() -> None:
    inner = az.compile(az.program(lambda x: az.sum(x * x)).at(az.Array[az.f64, "n"]))
    squares = az.foreign("squares", inner, az.f64)
    agrees(az.program(lambda m: az.map(squares, m)).at(az.Array[az.f64, "n k"]), ROWS)


def test_calls_from_several_threads_at_once() -> None:
    barrier = threading.Barrier(2, timeout=20)
    meeting = az.foreign("meeting", lambda x: [barrier.wait(), x + x[0]][1], lambda x: x)
    compiled = az.compile(az.program(lambda x: meeting(x)).at(az.Array[az.f64, "n"]))
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda k=k: found.update({k: compiled(np.full(3, k + 1.0))})) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(found[0], [2, 2, 2])
    np.testing.assert_array_equal(found[1], [4, 4, 4])


def test_functions_go_with_their_programs() -> None:
    class Halves:
        def __call__(self, x: Any) -> Any:
            return x / 2

    function = Halves()
    gone = weakref.ref(function)
    compiled = az.compile(
        az.program(lambda x: az.foreign("halves", function, lambda x: x)(x)).at(az.Array[az.f64, "n"])
    )
    np.testing.assert_array_equal(compiled(V), V / 2)
    del compiled, function
    gc.collect()
    assert gone() is None


# What they raise


def raising(x: np.ndarray) -> np.ndarray:
    if x[0] < 0:
        raise KeyError("a negative one")
    return x


fails = az.foreign("fails", raising, lambda x: x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("checks", [True, False])
def test_exceptions_reach_the_caller(threads: int, checks: bool) -> None:
    @az.program
    def f(m: az.Array[az.f64, "n k"]) -> Any:
        return az.map(lambda row: fails(row), m), fails(m[0])  # the line

    compiled = az.compile(f, threads=threads, checks=checks)
    positive = np.abs(ROWS)
    for _ in range(2):
        with pytest.raises(KeyError, match="a negative one") as caught:
            compiled(ROWS)
        [note] = caught.value.__notes__
        assert note == f"in fails, which is called at {__file__}:{f.function.__code__.co_firstlineno + 2}"
        np.testing.assert_array_equal(compiled(positive)[0], positive)


def test_nothing_is_called_after_an_exception() -> None:
    count = []

    def counted(x: np.ndarray) -> np.ndarray:
        count.append(1)
        raise ZeroDivisionError

    compiled = az.compile(
        az.program(lambda m: az.map(az.foreign("counted", counted, lambda x: x), m)).at(az.Array[az.f64, "n k"]),
        threads=1,
    )
    with pytest.raises(ZeroDivisionError):
        compiled(ROWS)
    assert len(count) == 1


@pytest.mark.parametrize("depth", [1, 2])
def test_the_exception_of_the_first_iteration_is_raised(depth: int) -> None:
    """Two calls raise at once, in two threads; the one of the later iteration raises first."""
    meet, first = threading.Barrier(2, timeout=20), threading.Event()
    called = []

    def failing(x: np.ndarray) -> np.ndarray:
        called.append(x[0])
        meet.wait()
        if x[0] == min(called):
            assert first.wait(timeout=20)
        else:
            threading.Timer(0.2, first.set).start()
        raise ValueError(f"iteration {int(x[0])}")

    operation = az.operation("failing", numpy=failing, result=lambda x: x)
    rows = np.repeat(np.arange(200.0)[:, None], 5, 1)
    if depth == 1:
        compiled = az.compile(lambda m: az.map(lambda row: operation(row) + 1.0, m), threads=2)
        argument = rows
    else:
        compiled = az.compile(lambda m: az.map(lambda part: az.map(operation, part), m), threads=2)
        argument = rows.reshape(40, 5, 5)
    with pytest.raises(ValueError) as caught:
        compiled(argument)
    assert len(called) == 2 and str(caught.value) == f"iteration {int(min(called))}"


def test_what_ends_python_comes_before_exceptions() -> None:
    meet, called = threading.Barrier(2, timeout=20), list[float]()

    def failing(x: np.ndarray) -> np.ndarray:
        called.append(x[0])
        meet.wait()
        raise KeyboardInterrupt if x[0] == max(called) else ValueError

    operation = az.operation("failing", numpy=failing, result=lambda x: x)
    compiled = az.compile(lambda m: az.map(operation, m), threads=2)
    with pytest.raises(KeyboardInterrupt):
        compiled(np.repeat(np.arange(40.0)[:, None], 5, 1))


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_that_are_interrupted(threads: int) -> None:
    """The signal comes while a function runs, in whichever thread; the program can be called again."""
    interrupting = [True]

    def interrupted(x: np.ndarray) -> np.ndarray:
        if interrupting and x[0] == 1:
            interrupting.clear()
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(200):
                time.sleep(0.01)
                if threading.current_thread() is not threading.main_thread():
                    break
        return x

    operation = az.operation("interrupted", numpy=interrupted, result=lambda x: x)
    compiled = az.compile(lambda m: az.map(operation, m), threads=threads)
    rows = np.repeat(np.arange(40.0)[:, None], 5, 1)
    with handled(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        compiled(rows)
        time.sleep(1)  # where the signal comes as the call ends
    np.testing.assert_array_equal(compiled(rows), rows)


def test_a_signal_that_comes_just_before_a_call_ends_the_run() -> None:
    """Python runs the handler as it enters the callback, where ctypes drops what it raises."""

    class Stop(Exception):
        pass

    def stop(number: int, frame: object) -> None:
        raise Stop

    operation = az.operation("passed", numpy=lambda x: x, result=lambda x: x)

    def step(i: Any, state: Any) -> Any:
        return operation(az.fori_loop(0, 20_000, lambda j, x: az.sin(x) + 0.5, state))

    compiled = az.compile(lambda x: az.fori_loop(0, 20_000, step, x), threads=1)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with pytest.raises(Stop):
                compiled(1.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert sys.unraisablehook.__module__ != "adze.backends.llvm.callbacks"


def test_calls_in_a_forked_child() -> None:
    compiled = az.compile(lambda m: az.map(lambda row: ordered(row) * 2.0, m), threads=2)
    wanted = compiled(ROWS)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(compiled(ROWS), wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Views


def test_views_are_of_the_memory_of_the_call() -> None:
    seen: list[tuple[int, bool]] = []

    def look(x: np.ndarray) -> np.float64:
        seen.append((x.ctypes.data, x.flags.writeable))
        return np.float64(x.sum())

    looking = az.operation("looking", numpy=look, result=az.f64, views=True)
    x = RANDOM.standard_normal(1000)
    assert az.compile(lambda x: looking(x))(x) == x.sum()
    assert seen == [(x.ctypes.data, False)]
    with pytest.raises(ValueError, match="read-only"):
        az.compile(lambda x: az.operation("w", numpy=lambda x: x.fill(0), result=az.f64, views=True)(x))(x)
    np.testing.assert_allclose(az.compile(lambda m: az.map(looking, m))(ROWS), ROWS.sum(1))
    assert az.compile(lambda m: looking(m[:0]) + looking(m * 2.0))(ROWS) == pytest.approx(2 * ROWS.sum())


@pytest.mark.parametrize("views", [False, True])
def test_functions_fill_their_results(views: bool) -> None:
    def divided(x: np.ndarray, y: np.ndarray, quotients: np.ndarray, remainders: np.ndarray, most: np.ndarray) -> None:
        np.divmod(x, y, quotients, remainders)
        most[...] = remainders.max(initial=0.0)

    operation = az.operation("divided", numpy=divided, result=lambda x, y: (x, x, az.f64), views=views, fills=True)
    x, y = 10.0 * RANDOM.standard_normal(100), 1.0 + RANDOM.random(100)
    program = az.program(lambda x, y: operation(x, y)).at(az.Array[az.f64, "n"], az.Array[az.f64, "n"])
    compiled = az.compile(program)
    wanted = (*np.divmod(x, y), np.remainder(x, y).max())
    for k in (100, 1, 0):
        for run in (compiled, az.evaluate(program)):
            found = run(x[:k], y[:k])
            np.testing.assert_array_equal(found[0], wanted[0][:k])
            np.testing.assert_array_equal(found[1], wanted[1][:k])
            assert found[2] == wanted[1][:k].max(initial=0.0)
    rows = az.compile(lambda m, y: az.map(lambda x: operation(x, y)[1], m))(np.stack([x, 2 * x, y]), y)
    np.testing.assert_array_equal(rows, np.remainder([x, 2 * x, y], y))


def test_what_a_function_fills_may_be_kept() -> None:
    kept: list[np.ndarray] = []

    def doubled(x: np.ndarray, y: np.ndarray) -> None:
        np.multiply(x, 2, y)
        kept.append(y)

    doubling = az.operation("doubling", numpy=doubled, result=lambda x: x, fills=True)
    compiled = az.compile(az.program(lambda x: az.sum(doubling(x))).at(az.Array[az.f64, "n"]))
    x = RANDOM.standard_normal(500)
    for k in range(3):
        compiled(x + k)
    for k in range(3):
        np.testing.assert_array_equal(kept[k], 2 * (x + k))
    giving = az.operation("giving", numpy=lambda x, y: x, result=lambda x: x, fills=True)
    for run in (az.compile(lambda x: giving(x)), az.evaluate(lambda x: giving(x))):
        with pytest.raises(TypeError, match=r"giving promised to fill its results, but gave f64\[500\], at"):
            run(x)
    with pytest.raises(TypeError, match="the operation random has no function on arrays that would fill its results"):
        az.operation("random", c=az.c_function("libc.so.6", "getentropy"), result=az.f64, fills=True)


def test_a_function_with_fewer_results_is_called_where_they_are_enough() -> None:
    called: list[str] = []

    def noting(name: str, *results: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (called.append(name), tuple(result(x) for result in results))[1]

    first = az.operation("first", numpy=noting("first", np.floor), result=lambda x: (x,))
    both = az.operation("both", numpy=noting("both", np.floor, np.ceil), result=lambda x: (x, x, az.f64)[:2])
    least, middle, most = (lambda x: np.floor(x)), (lambda x: np.sum(x)), (lambda x: np.ceil(x))
    outer = az.operation("outer", numpy=noting("outer", least, most), result=lambda x: (x, x))
    three = az.operation(
        "three",
        numpy=noting("three", least, middle, most),
        result=lambda x: (x, az.f64, x),
        fewer={(0,): first, (0, 2): outer},
    )
    x = RANDOM.standard_normal(9)
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda x: three(x)[0], "first"),
        (lambda x: three(x)[2], "outer"),
        (lambda x: three(x)[::2], "outer"),
        (lambda x: three(x)[1], "three"),
        (lambda x: three(x)[:2], "three"),
        (lambda x: az.map(lambda y: three(x * y)[0], x), "first"),
        (lambda x: both(x)[0], "both"),
    ]
    for program, name in cases:
        wanted = az.evaluate(program)(x)
        called.clear()
        found = az.compile(program, threads=1)(x)
        assert {*called} == {name}
        for mine, theirs in zip(flat(found), flat(wanted), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (
            {(1,): first},
            {},
            r"f: fewer: first gives \(f64\[n\]\), where its results \(1,\) are \(f64\) \(at .*test_call",
        ),
        ({(0, 9): outer}, {}, r"f: fewer: outer gives \(f64\[n\], f64\[n\]\), where its results \(0, 9\) are"),
        ({(2, 0): outer}, {}, "the operation f: fewer has operations by the places of their results, ascending"),
        ({(): outer}, {}, "the operation f: fewer has operations by the places"),
        ({0: first}, {}, "the operation f: fewer has operations by the places"),
        ({(True,): first}, {}, "the operation f: fewer has operations by the places"),
        ({(0,): np.floor}, {}, "the operation f: fewer has operations by the places"),
        ({(0,): first}, {"effects": True}, "the operation f has effects, and so is never another one"),
    ]
    for fewer, options, told in wrong:
        with pytest.raises(TypeError, match=told):
            f = az.operation("f", numpy=np.modf, result=lambda x: (x, az.f64, x), fewer=fewer, **options)
            az.pretty(az.program(lambda x, f=f: f(x)[0]).at(az.Array[az.f64, "n"]))


def test_a_function_with_fewer_results_and_rules_is_not_called() -> None:
    def rule(primals: Any, cotangents: Any) -> Any:
        x = primals[0]
        return (2 * x * cotangents[0] + 3 * x**2 * cotangents[1],)

    square = az.operation("square", numpy=lambda x: x * x, result=lambda x: x)
    known = az.operation(
        "known", numpy=lambda x: x * x, result=lambda x: x, derivative={"vjp": lambda x, y: (2 * x[0] * y,)}
    )
    x = RANDOM.standard_normal(5)
    for fewer in ({(0,): square}, {(0,): known}):
        powers = az.operation(
            "powers",
            numpy=lambda x: (x * x, x**3),
            result=lambda x: (x, x),
            derivative={"vjp": rule},
            fewer=fewer,
        )
        gradient = az.grad(lambda x, powers=powers: az.sum(powers(x)[0]))
        for run in (az.evaluate, az.compile):
            np.testing.assert_allclose(run(gradient)(x), 2 * x)
        assert az.pretty(gradient.at(az.Array[az.f64, "n"])).count("foreign") <= 1
    with_expansion = az.operation(
        "with_expansion",
        numpy=lambda x: (x * x, x**3),
        result=lambda x: (x, x),
        expansion=lambda x: (x * x, x * x * x),
        fewer={(0,): square},
    )
    np.testing.assert_allclose(az.compile(az.grad(lambda x: az.sum(with_expansion(x)[0])))(x), 2 * x)


def test_views_keep_the_arena_of_their_call() -> None:
    kept: list[np.ndarray] = []
    keeping = az.operation("keeping", numpy=lambda x: [kept.append(x[::2]), 1.0][1], result=az.f64, views=True)
    compiled = az.compile(az.program(lambda x: keeping(x * 2.0)).at(az.Array[az.f64, "n"]))
    x = RANDOM.standard_normal(500)
    bound = compiled.bind(x)
    for k in range(3):
        compiled(x + k)
        bound()
    for k in range(3):
        np.testing.assert_array_equal(kept[2 * k], 2.0 * (x + k)[::2])
        np.testing.assert_array_equal(kept[2 * k + 1], 2.0 * x[::2])
    held = [weakref.ref(view.base) for view in kept]
    kept.clear()
    compiled(x)
    assert not [one for one in held if one() is not None]
    kept.clear()
    before = compiled(x), kept[0].base
    kept.clear()
    compiled(x)  # the arena is that of a call again, when nobody looks
    assert kept[0].base is not before[1]


@pytest.mark.rest
@pytest.mark.parametrize("threads", some([2, 1], 2))
def test_views_keep_whatever_memory_they_show(threads: int) -> None:
    """That of arguments, results, the arena and the threads' own; what the run has allocated itself is copied."""
    kept: list[np.ndarray] = []
    keeping = az.operation("keeping", numpy=lambda x: [kept.append(x), x.sum()][1], result=az.f64, views=True)

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> Any:
        y = ordered(x)
        some = az.filter(lambda v: v > 0, x)
        return y, keeping(x), keeping(y), keeping(some), az.map(keeping, az.outer(x, x))

    compiled = az.compile(f, threads=threads)
    x = RANDOM.standard_normal(300)
    for _ in range(2):
        kept.clear()
        y, *_ = compiled(x)
        first, second, third, *rows = kept
        assert first.base is x and second.base is y and len(rows) == 300
        np.testing.assert_array_equal(third, x[x > 0])
        x = np.array(first)
        del y
        gc.collect()
        assert all(np.isfinite(view).all() for view in kept)


def test_an_exception_that_holds_a_view() -> None:
    def failing(x: np.ndarray) -> np.ndarray:
        raise ValueError(x)

    operation = az.operation("failing", numpy=failing, result=az.f64, views=True)
    compiled = az.compile(lambda x: operation(x * 2.0))
    errors = []
    for k in range(3):
        with pytest.raises(ValueError) as caught:
            compiled(np.full(300, float(k)))
        errors.append(caught.value)
    for k, error in enumerate(errors):
        np.testing.assert_array_equal(error.args[0], np.full(300, 2.0 * k))


def test_an_exception_ends_a_while() -> None:
    endless = az.program(lambda x: az.while_loop(lambda s: s[0] < 0.0, fails, x)).at(az.Array[az.f64, "n"])
    with pytest.raises(KeyError):
        az.compile(endless)(-np.ones(2))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_what_ends_python_does_so(raised: type[BaseException]) -> None:
    def interrupted(x: np.ndarray) -> np.ndarray:
        raise raised

    compiled = az.compile(
        az.program(lambda x: az.foreign("interrupted", interrupted, lambda x: x)(x)).at(az.Array[az.f64, "n"])
    )
    with pytest.raises(raised):
        compiled(V)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda x: x[:2], r"\(f64\[2\]\)"),
        (lambda x: x.astype(np.float32), r"\(f32\[4\]\)"),
        (lambda x: np.float64(1.0), r"\(f64\)"),
        (lambda x: (x, x), r"\(f64\[4\], f64\[4\]\)"),
    ],
)
def test_functions_keep_their_promise(function: Callable[[Any], Any], got: str) -> None:
    program = az.program(lambda x: az.foreign("other", function, lambda x: x)(x)).at(az.Array[az.f64, "n"])
    for run in (az.evaluate, az.compile):
        with pytest.raises(TypeError, match=rf"other promised to give \(f64\[4\]\), but gave {got}, at .*:\d+"):
            run(program)(V)


def test_the_error_of_a_library_is_its_own() -> None:
    program = az.program(lambda a, b: solve(a, b)).at(az.Array[az.f64, "n n"], az.Array[az.f64, "n"])
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        az.compile(program)(np.zeros((2, 2)), np.ones(2))
