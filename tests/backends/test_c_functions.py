"""Functions of C in programs: how they are found, what they are given, their errors, and what is kept on disk.

Most of them are written here in LLVM's language, and come as PyCapsules; those of libraries are of the C library, which
every process has.
"""

import ctypes
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends.llvm.assemble import compile_text, link
from adze.core.types import dims

HERE = re.escape(Path(__file__).name) + r":\d+"
pytestmark = pytest.mark.unguarded

# y = s x + 1 by way of a work area of two numbers for each of x, or the error 5 for the first NaN
SCALED = """
define i32 @scaled(ptr %x, i64 %n, ptr %s, ptr %y, i64 %m, ptr %work, i64 %words) {
entry:
  %twice = mul i64 %n, 2
  %right = icmp eq i64 %words, %twice
  %same = icmp eq i64 %n, %m
  %fine = and i1 %right, %same
  %factor = load double, ptr %s
  br i1 %fine, label %head, label %wrong
head:
  %i = phi i64 [ 0, %entry ], [ %next, %good ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %from = getelementptr double, ptr %x, i64 %i
  %v = load double, ptr %from
  %number = fcmp ord double %v, 0.0
  br i1 %number, label %good, label %nan
good:
  %product = fmul double %v, %factor
  %last = add i64 %n, %i
  %area = getelementptr double, ptr %work, i64 %last
  store volatile double %product, ptr %area
  %again = load volatile double, ptr %area
  %sum = fadd double %again, 1.0
  %to = getelementptr double, ptr %y, i64 %i
  store double %sum, ptr %to
  %next = add i64 %i, 1
  br label %head
end:
  ret i32 0
nan:
  ret i32 5
wrong:
  ret i32 77
}
"""

# How many of the first column are true, and the last of the integers, of two arrays of types of their own
COUNTED = """
define i32 @counted(ptr %b, i64 %rows, i64 %columns, ptr %k, i64 %n, ptr %count, ptr %last) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %sum = phi i64 [ 0, %entry ], [ %total, %body ]
  %more = icmp slt i64 %i, %rows
  br i1 %more, label %body, label %end
body:
  %row = mul i64 %i, %columns
  %at = getelementptr i8, ptr %b, i64 %row
  %bit = load i8, ptr %at
  %one = zext i8 %bit to i64
  %total = add i64 %sum, %one
  %next = add i64 %i, 1
  br label %head
end:
  %before = sub i64 %n, 1
  %place = getelementptr i32, ptr %k, i64 %before
  %v = load i32, ptr %place
  store i64 %sum, ptr %count
  store i32 %v, ptr %last
  ret i32 0
}
"""

# Waits until the flag at an address is set, which takes another thread of Python; the error 1 where it is in vain
WAITING = """
declare i32 @usleep(i32)
define i32 @waiting(ptr %address, ptr %made) {
entry:
  %word = load i64, ptr %address
  %flag = inttoptr i64 %word to ptr
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %set = load volatile i64, ptr %flag
  %done = icmp ne i64 %set, 0
  br i1 %done, label %end, label %again
again:
  %slept = call i32 @usleep(i32 1000)
  %next = add i64 %i, 1
  %late = icmp sgt i64 %next, 20000
  br i1 %late, label %failed, label %head
end:
  store i64 %set, ptr %made
  ret i32 0
failed:
  ret i32 1
}
"""

# How far an array is behind a multiple of 8
BEHIND = """
define i32 @behind(ptr %x, i64 %n, ptr %made) {
  %address = ptrtoint ptr %x to i64
  %rest = and i64 %address, 7
  store i64 %rest, ptr %made
  ret i32 0
}
"""

_linked: list[Any] = []


def capsule(text: str) -> Any:
    """The function that a text defines, compiled, in a capsule."""
    name = str(re.findall(r"define i32 @(\w+)", text)[0])
    _linked.append(link(compile_text(text).machine_code, (name,)))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(_linked[-1][name], None, None)


def scaled_vjp(primals: Any, cotangent: Any) -> Any:
    x, s = primals
    return cotangent * s, az.sum(cotangent * x)


scaled = az.operation(
    "scaled",
    c=az.c_function(
        capsule(SCALED), work=lambda x, s: dims(x)[0] * 2, error=ArithmeticError, message="no number (code {0})"
    ),
    result=lambda x, s: x,
    derivative={"vjp": scaled_vjp},
)
counted = az.operation("counted", c=az.c_function(capsule(COUNTED)), result=(az.i64, az.i32))
behind = az.operation("behind", c=az.c_function(capsule(BEHIND)), result=az.i64)
waiting = az.operation("waiting", c=az.c_function(capsule(WAITING)), result=az.i64)

ROWS = np.random.default_rng(3).standard_normal((300, 7))

# Calls


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("checks", [True, False])
def test_calls_at_the_top_and_inside_loops(threads: int, checks: bool) -> None:
    @az.program
    def f(m: az.Array[az.f64, "n k"], s: az.f64) -> Any:
        rows = az.map(lambda row: scaled(row, s), m)
        total = az.sum(az.map(lambda row: az.sum(scaled(row * 2.0, s)), m))
        last = az.fori_loop(0, 3, lambda i, x: scaled(x, 0.5), m[0])
        return rows, total, last, scaled(m[:, 1], s), scaled(m[0, :0], s)

    wanted = (ROWS * 3 + 1, (ROWS * 6 + 1).sum(), ROWS[0] / 8 + 1.75, ROWS[:, 1] * 3 + 1, np.zeros(0))
    compiled = az.compile(f, threads=threads, checks=checks)
    for run in (az.evaluate(f), compiled):
        for one, two in zip(run(ROWS, 3.0), wanted, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-15)
    assert "call capsule.0 on" in compiled.loops


def test_several_results_and_types() -> None:
    program = az.program(lambda b, k: counted(b, k))
    b, k = np.array([[True, False], [False, True], [True, True]]), np.array([3, 4], np.int32)
    for run in (az.evaluate(program), az.compile(program), az.compile(program, threads=1)):
        count, last = run(b, k)
        assert (count, last) == (2, 4) and last.dtype == np.int32
        assert run(b.T, k) == (1, 4)


def test_arrays_are_aligned_for_functions_of_c() -> None:
    program = az.program(lambda x: (behind(x), behind(x[1:]), az.sum(x))).at(az.Array[az.f64, "n"])
    odd = np.zeros(8 * 5 + 3, np.uint8)[3:].view(np.float64)
    odd[:] = 1.5
    assert not odd.flags.aligned
    for run in (az.evaluate(program), az.compile(program)):
        assert run(odd) == (0, 0, 7.5)
    with pytest.raises(ValueError, match=r"'x' is read where it is, .* and aligned for functions of C"):
        az.compile(program).bind(odd)


@pytest.mark.rest
def test_derivatives_by_a_rule() -> None:
    program = az.program(lambda m, s: az.sum(az.map(lambda row: az.sum(scaled(row, s) ** 2), m)))
    gradient = az.grad(program, argnums=(0, 1))
    wanted = 6 * (ROWS * 3 + 1), (2 * ROWS * (ROWS * 3 + 1)).sum()
    for run in (az.compile(gradient), az.evaluate(gradient), az.grad(program, (0, 1), via="trace")):
        for one, two in zip(run(ROWS, 3.0), wanted, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12)
    tangent = az.compile(az.jvp(program))(ROWS, 3.0, ROWS, 1.0)[1]
    np.testing.assert_allclose(tangent, (wanted[0] * ROWS).sum() + wanted[1], rtol=1e-12)
    np.testing.assert_allclose(az.compile(az.hessian(program, argnums=1))(ROWS, 3.0), 2 * (ROWS**2).sum(), rtol=1e-12)


def test_the_meaning_of_evaluate_may_be_another_one() -> None:
    both = az.operation("both", numpy=lambda x, s: -x, c=scaled.function.c, result=lambda x, s: x)
    program = az.program(lambda x: both(x, 2.0))
    np.testing.assert_array_equal(az.evaluate(program)(ROWS[0]), -ROWS[0])
    np.testing.assert_array_equal(az.compile(program)(ROWS[0]), 2 * ROWS[0] + 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_lock_of_the_interpreter_is_free_meanwhile(threads: int) -> None:
    flag = np.zeros(1, np.int64)
    compiled = az.compile(lambda addresses: az.map(lambda a: waiting(a), addresses), threads=threads)
    setter = threading.Timer(0.3, lambda: flag.fill(4))
    setter.start()
    found = compiled(np.full(40, flag.ctypes.data))
    setter.join()
    np.testing.assert_array_equal(found, np.full(40, 4))


def test_effects_of_functions_of_c() -> None:
    """A function that fails, of which nobody wants the results."""
    acting = az.operation("acting", c=scaled.function.c, result=lambda x, s: x, effects=True)

    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        acting(x, 2.0)
        return az.sum(x)

    with pytest.raises(ArithmeticError):
        az.compile(f)(np.array([np.nan]))


def test_calls_in_a_forked_child() -> None:
    compiled = az.compile(lambda m: az.map(lambda row: scaled(row, 2.0), m), threads=2)
    wanted = compiled(ROWS)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(compiled(ROWS), wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Errors


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("checks", [True, False])
def test_the_code_of_an_error_is_an_exception_with_the_line(threads: int, checks: bool) -> None:
    @az.program
    def f(m: az.Array[az.f64, "n k"]) -> Any:
        return az.map(lambda row: scaled(row, 2.0), m)  # the line

    line = f.function.__code__.co_firstlineno + 2
    compiled = az.compile(f, threads=threads, checks=checks)
    wrong = ROWS.copy()
    wrong[[20, 250], 3] = np.nan
    for run in (compiled, az.evaluate(f), compiled):
        with pytest.raises(ArithmeticError, match=rf"^scaled: no number \(code 5\), at {__file__}:{line}$"):
            run(wrong)
        np.testing.assert_array_equal(compiled(ROWS), 2 * ROWS + 1)


def test_an_error_ends_a_while() -> None:
    endless = az.program(lambda x: az.while_loop(lambda v: v[0] != v[0], lambda v: scaled(v, 2.0), x))
    with pytest.raises(ArithmeticError, match="code 5"):
        az.compile(endless)(np.array([np.nan]))


def test_no_memory_for_a_work_area() -> None:
    huge = az.c_function(capsule(SCALED), work=lambda x, s: dims(x)[0] * 10**15)
    program = az.program(lambda x: az.operation("huge", c=huge, result=lambda x, s: x)(x, 1.0))
    with pytest.raises(MemoryError):
        az.compile(program)(ROWS[0])


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: az.c_function("libc.so.6", "no_such"), ValueError, r"libc\.so\.6 has no symbol 'no_such'"),
    (
        lambda: az.c_function("libm.so.6", "getentropy"),
        ValueError,
        r"libm\.so\.6 has no symbol 'getentropy' itself: that is one of .*libc\.so\.6",
    ),
    (
        lambda: az.c_function(ctypes.CDLL("libm.so.6"), "strlen"),
        ValueError,
        r"libm\.so\.6 has no symbol 'strlen' itself",
    ),
    (lambda: az.c_function("/no/such/library.so", "f"), OSError, r"the library /no/such/library\.so cannot be loaded"),
    (lambda: az.c_function(7, "f"), TypeError, "a library is a path or a ctypes.CDLL, not 7"),
    (lambda: az.c_function("libc.so.6"), TypeError, "c_function takes a library and a symbol, or a PyCapsule"),
    (lambda: az.c_function(capsule(SCALED), "f"), TypeError, "a PyCapsule is one function: it has no symbol 'f'"),
    (
        lambda: az.operation("f", c="libc.so.6", result=az.f64),
        TypeError,
        r"the operation f: c is an az\.c_function, not 'libc\.so\.6'",
    ),
    (lambda: az.operation("f", result=az.f64), TypeError, "the operation f takes a function on arrays, not a"),
]


@pytest.mark.parametrize(("make", "error", "message"), WRONG)
def test_wrong_functions(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"{message}.*\(at .*{HERE}\)"):
        make()


# Libraries


@pytest.mark.parametrize("library", ["libm.so.6", Path("libm.so.6"), ctypes.CDLL("libm.so.6"), ctypes.CDLL(None)])
def test_symbols_of_libraries(library: Any) -> None:
    """The state of the mathematical library: four words, which are not all zero."""
    state = az.operation("state", c=az.c_function(library, "fegetenv"), result=az.Array[az.i64, 4])
    program = az.program(lambda n: az.count_nonzero(state()) + n)
    assert az.compile(program)(3) == az.evaluate(program)(3) > 3


def test_the_code_that_a_library_returns() -> None:
    """Eight bytes are compared: a number with the first of an array."""
    same = az.operation("same", c=az.c_function("libc.so.6", "bcmp"), result=lambda a, b: a)
    program = az.program(lambda a, b: same(a, b) * 0.0 + a)
    x = np.arange(1.0, 9.0)
    for run in (az.compile(program), az.evaluate(program)):
        with pytest.raises(RuntimeError, match=rf"same: the error -?\d+, at .*{HERE}"):
            run(2.0, x)
    assert az.compile(program)(1.0, x) == 1.0
