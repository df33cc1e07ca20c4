"""Compiled recursion and data: depth, memory, failures, and what calls and programs say of themselves.

Values of all programs are compared in ``tests/laws/test_programs_higher_order.py``.
"""

import os
import resource
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from programs.functions import HIGHER_ORDER, List, linked, listed

import adze as az

pytestmark = pytest.mark.unguarded

PROGRAMS = {case.name: case for case in HIGHER_ORDER}
Row = az.Array[az.f64, "n"]


@az.program
def harmonic(n: az.i64) -> az.f64:
    go = az.fix(lambda self, k: az.cond(k == 0, lambda: 0.0, lambda: 1.0 / k + self(k - 1)), az.i64, result=az.f64)
    return go(n)


@az.program
def total(xs: List[az.f64]) -> az.f64:
    go = az.fix(
        lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head + self(tail)),
        List[az.f64],
        result=az.f64,
    )
    return go(xs)


def test_the_loops_of_a_recursion_as_text() -> None:
    """A call that is the last thing is a jump."""

    @az.program
    def gcd(a: az.i64, b: az.i64) -> az.i64:
        go = az.fix(
            lambda self, a, b: az.cond(b == 0, lambda: a, lambda: self(b, a % b)), az.i64, az.i64, result=az.i64
        )
        return go(a, b)

    text = az.compile(gcd, checks=False).loops
    assert "take a" in text and "give a" in text and "go on with 0 on b" in text and text.count("call 0") == 1
    assert az.compile(gcd)(12, 18) == 6


def test_a_million_calls_deep() -> None:
    n = 1_000_000
    assert np.isclose(az.compile(harmonic)(n), np.sum(1.0 / np.arange(1, n + 1)), rtol=1e-12)
    xs = linked([1.0] * 100_000)
    assert az.compile(total)(xs) == 100_000.0


def test_tail_calls_take_no_memory() -> None:
    """To itself, and to another: as many as a stack could not hold."""

    @az.program
    def steps(n: az.i64) -> az.i64:
        @az.fix
        def down(self: Any, k: az.i64, s: az.i64) -> az.i64:
            other = az.function(lambda j: self(j - 1, s + 1), az.i64)
            return az.cond(k <= 0, lambda: s, lambda: az.cond(k % 2 == 0, lambda: other(k), lambda: self(k - 1, s)))

        return down(n, 0)

    assert az.compile(steps)(100_000_000) == 50_000_000


@pytest.mark.rest
def test_a_recursion_without_end() -> None:
    """It is an error with the line, and the process and the next call are well."""
    program = """
import adze as az
@az.program
def f(n: az.i64) -> az.i64:
    return az.fix(lambda self, k: az.cond(k == 0, lambda: 0, lambda: 1 + self(k - 1)), az.i64, result=az.i64)(n)
compiled = az.compile(f)
try:
    compiled(-1)
except RecursionError as error:
    print(error)
print(compiled(10))
"""
    surroundings = {**os.environ, "ADZE_STACK_MB": "64"}
    said = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=True)
    message, value = said.stdout.splitlines()
    assert "too deep for the stack: this recursion has no end" in message and "<string>:5" in message
    assert value == "10"


def test_a_stack_of_another_size_is_a_number() -> None:
    recursion = "az.fix(lambda self, k: self(k), az.i64, result=az.i64)"
    program = f"import adze as az\naz.compile(az.program(lambda n: {recursion}(n)))(1)"
    surroundings = {**os.environ, "ADZE_STACK_MB": "some"}
    said = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True)
    assert "ADZE_STACK_MB must be a number of megabytes, at least 64, got 'some'" in said.stderr


def test_a_requirement_fails_inside_a_recursion() -> None:
    @az.program
    def summed(x: Row, k: az.i64) -> az.f64:
        go = az.fix(lambda self, k: az.cond(k < 0, lambda: 0.0, lambda: x[k] + self(k - 1)), az.i64, result=az.f64)
        return go(k)

    compiled = az.compile(summed)
    with pytest.raises(IndexError, match=r"index 7 is out of range .* whose size is 5, at .*test_procedures\.py:\d+"):
        compiled(np.ones(5), 7)
    assert compiled(np.ones(5), 4) == 5.0


def test_recursions_in_loops_and_loops_in_recursions() -> None:
    @az.program
    def program(x: Row, k: az.i64) -> tuple[Row, az.f64, Row]:
        halved = az.fix(
            lambda self, y, k: az.cond(k == 0, lambda: y, lambda: self(y / 2, k - 1)), az.f64, az.i64, result=az.f64
        )
        smoothed = az.fix(
            lambda self, v, k: az.cond(k == 0, lambda: v, lambda: self((v + az.roll(v, 1)) / 2, k - 1)),
            Row,
            az.i64,
            result=Row,
        )
        each = az.map(lambda t: halved(t, k), x)
        return each, az.reduce(az.maximum, -np.inf, az.map(lambda t: halved(t, 1), x)), smoothed(x, k)

    for n in (0, 1, 7, 1000):
        x = np.arange(n) / 4
        expected = x.copy()
        for _ in range(3):
            expected = (expected + np.roll(expected, 1)) / 2
        each, most, smooth = az.compile(program)(x, 3)
        assert np.array_equal(each, x / 8) and most == np.max(x / 2, initial=-np.inf)
        assert np.allclose(smooth, expected, rtol=1e-15)


@pytest.mark.parametrize(("type", "dtype"), [(az.f32, np.float32), (az.f64, np.float64), (az.i64, np.int64)])
def test_reductions_in_recursions_have_lanes(type: Any, dtype: Any) -> None:
    """As those inside of maps."""

    @az.program
    def reduced(x: az.Array[type, "n m"], k: az.i64) -> tuple[type, type]:
        @az.fix
        def go(self: Any, k: az.i64) -> tuple[type, type]:
            def more() -> Any:
                total, most = self(k - 1)
                return total + az.sum(x[k] * x[k + 1]), az.maximum(most, az.max(x[k]))

            return az.cond(k < 0, lambda: (x[0, 0], x[0, 0]), more)

        return go(k)

    compiled, random = az.compile(reduced), np.random.default_rng(3)
    code = compiled.loops.partition("procedure 0")[2]
    assert code.count("combining") >= 2 and "maximum from" in code and "add from" in code
    for m in (1, 16, 37, 1000):
        x = random.integers(-9, 9, size=(5, m)).astype(dtype)
        total, most = compiled(x, 3)
        assert (total, most) == (x[0, 0] + np.sum(x[:4] * x[1:]), x[:4].max())


def test_arrays_in_data() -> None:
    """A cell holds a copy of an array that is a temporary; the same array of a caller is shared."""

    @az.program
    def rows(x: Row, k: az.i64) -> tuple[List[Row], Row]:
        build = az.fix(
            lambda self, k, y: az.cond(k == 0, lambda: List[Row].Nil(), lambda: List[Row].Cons(y, self(k - 1, 2 * y))),
            az.i64,
            Row,
            result=List[Row],
        )
        add = az.fix(
            lambda self, rows: az.case(rows, Nil=lambda: az.zeros(az.size(x)), Cons=lambda y, ys: y + self(ys)),
            List[Row],
            result=Row,
        )
        made = build(k, x)
        return made, add(made)

    for n in (0, 1, 40):
        x = np.arange(n) / 4
        made, added = az.compile(rows)(x, 4)
        assert [np.array_equal(row, x * 2**k) for k, row in enumerate(listed(made))] == [True] * 4
        assert np.array_equal(added, 15 * x)


def test_data_of_all_scalar_types() -> None:
    @az.data
    class Mixed:
        class End: ...

        class More:
            a: az.f32
            b: az.bool_
            c: az.i32
            d: az.f64
            rest: "Mixed"

    @az.program
    def turned(m: Mixed) -> Mixed:
        go = az.fix(
            lambda self, m: az.case(
                m, End=lambda: Mixed.End(), More=lambda a, b, c, d, rest: Mixed.More(-a, ~b, c + 1, d * 2, self(rest))
            ),
            Mixed,
            result=Mixed,
        )
        return go(m)

    given = Mixed.More(
        np.float32(0.1), True, np.int32(-7), 0.25, Mixed.More(np.float32(2), False, np.int32(9), np.inf, Mixed.End())
    )
    made = az.compile(turned)(given)
    assert made == az.evaluate(turned)(given)
    assert [type(made.a), type(made.b), type(made.c), type(made.d)] == [np.float32, np.bool_, np.int32, np.float64]


def test_what_comes_back_is_what_was_given() -> None:
    """Cells of arguments that are part of a result are the objects that they were."""

    @az.program
    def rest(xs: List[az.f64]) -> List[az.f64]:
        return az.case(xs, Nil=lambda: List[az.f64].Nil(), Cons=lambda _, tail: tail)

    xs = linked([1.0, 2.0, 3.0])
    assert az.compile(rest)(xs) is xs.tail


def test_memory_is_given_back() -> None:
    """A thousand calls take no more than ten."""

    @az.program
    def counted(n: az.i64) -> List[az.i64]:
        return az.fori_loop(0, n, lambda k, xs: List.Cons(k, xs), List[az.i64].Nil())

    compiled = az.compile(counted)
    for _ in range(10):
        assert compiled(2000).head == 1999
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        compiled(2000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kilobytes


def test_results_of_all_kinds_in_registers_and_words() -> None:
    """Six floats of two sizes, five integers and two truth values, of which each call uses those of the next."""
    kinds = (az.f64, az.f32, az.i64, az.bool_, az.f64, az.f32, az.i32, az.i64, az.f64, az.i64, az.f64, az.i64, az.bool_)

    @az.program
    def program(n: az.i64, x: az.f64, y: az.f32, z: az.i32) -> Any:
        def step(k: Any, rest: Any) -> Any:
            a, b, c, p, d, e, f, g, h, i, j, m, q = rest
            return a + x, b * y, c + k, q, d - a, e + b, f, g - c, h * x, i + g, j + h, m + i, ~p

        zero = x, y, 1, True, x * x, y, z, 5, x, 7, x, 9, False
        go = az.fix(
            lambda self, k: az.cond(k == 0, lambda: zero, lambda: step(k, self(k - 1))), az.i64, result=tuple(kinds)
        )
        return go(n)

    for n in (0, 1, 40):
        arguments = n, 0.75, np.float32(1.01), np.int32(3)
        for found, expected in zip(az.compile(program)(*arguments), az.evaluate(program)(*arguments), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_calls_from_several_threads() -> None:
    compiled, found = az.compile(harmonic), list[float]()

    def work() -> None:
        found.extend([float(compiled(1000)) for _ in range(50)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [float(compiled(1000))] * 200


def test_bound_calls_and_forked_children() -> None:
    compiled = az.compile(total)
    bound = compiled.bind(linked([1.0, 2.0]))
    assert bound() == bound() == 3.0
    child = os.fork()
    if not child:
        os._exit(int(compiled(linked([2.0, 4.0]))))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


def test_out_is_for_arrays() -> None:
    with pytest.raises(ValueError, match="total: out= is for results that are scalars and arrays"):
        az.compile(total)(linked([1.0]), out=np.zeros(()))


def test_data_of_another_type() -> None:
    with pytest.raises(TypeError, match=r"argument 'xs', field 'head' of List\.Cons is f64, got .*'a'"):
        az.compile(total)(linked([1.0, "a"]))
    with pytest.raises(TypeError, match=r"argument 'xs' is List\[f64\], got the number 3|is List\[f64\], got 3"):
        az.compile(total)(3)
    assert az.compile(total)(linked([1, 2])) == 3.0  # integers of Python convert, as elsewhere


@pytest.mark.parametrize("name", ["formula", "list_of_arrays", "factorial", "of_arrays", "tree_sort"])
def test_what_is_said_of_compiled_programs(name: str) -> None:
    case = PROGRAMS[name]
    compiled, arguments = az.compile(case.program), case.arguments[0]
    assert compiled.cost(*arguments).seconds >= 0 and compiled.profile(*arguments).seconds > 0
    assert compiled.peak_bytes(*arguments) > 0
    for text in (compiled.nests, compiled.loops, compiled.schedule, compiled.llvm_ir, compiled.assembly):
        assert text
    assert name == "of_arrays" or ("procedure 0: " in compiled.loops and "call 0 on" in compiled.schedule)
