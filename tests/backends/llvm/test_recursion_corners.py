"""Corners of recursion, data and forks in compiled programs and their gradients: no end, no memory, many threads."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from directions import floats
from load import benchmark
from programs.functions import List, linked

import adze as az
from adze.core.language import Unsupported

pytestmark = pytest.mark.unguarded
models = benchmark("functions")

PROGRAMS = """
import ctypes, resource
import adze as az, numpy as np
from adze.backends.llvm.stacks import stacks

@az.fix
def left(self, k: az.i64) -> az.i64:
    return az.cond(k == 0, lambda: 1, lambda: k - right(k - 1) // 2)

@az.fix
def right(self, k: az.i64) -> az.i64:
    return az.cond(k == 0, lambda: 0, lambda: k - left(k - 1) // 2)

def down(self, k, x):
    return az.cond(k == 0, lambda: x, lambda: self(k - 1, az.sin(x)) + 1)

def both(n, x):
    return sum(az.value_and_grad(lambda y: az.fix(down, az.i64, az.f64, result=az.f64)(n, y))(x))

def attempt(run, *arguments):
    try:
        print(run(*arguments))
    except (RecursionError, MemoryError) as error:
        print(type(error).__name__, error)
"""

ENDLESS = """
programs = [
    (lambda n: left(n), 4),
    (lambda n: az.sum(az.map(lambda k: left(k), n)), np.array([4, 6])),
    (lambda n: both(n, 0.0), 4),
]
for program, good in programs:
    run = az.compile(program, threads=2)
    attempt(run, -good)
    attempt(run, good)
"""

FULL = """
def onto(self, k, xs):
    return az.cond(k == 0, lambda: xs, lambda: self(k - 1, List.Cons(k, xs)))

@az.data
class List:
    class Nil: ...
    class Cons:
        head: az.i64
        tail: "List"

def listed(n):
    xs = az.fix(onto, az.i64, List, result=List)(n, List.Nil())
    return az.case(xs, Nil=lambda: 0, Cons=lambda head, tail: head)

def stepped(n, x):
    go = az.fix(lambda self, k, y: az.cond(k == 0, lambda: y, lambda: self(k - 1, az.sin(y))),
                az.i64, az.f64, result=az.f64)
    return go(n, x)

runs = [(az.compile(listed), (4,)), (az.compile(az.grad(stepped, argnums=1)), (4, 0.0))]
for run, good in runs:
    run(*good)
library = stacks().library
available = ctypes.CFUNCTYPE(ctypes.c_int64)(library["available"])
spared = ctypes.c_int64.from_address(int(library["adze_spared"]))
as_ever, spared.value = spared.value, available() - (1 << 29)
for run, good in runs:
    attempt(run, -1, *good[1:])
spared.value = as_ever
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 28),) * 2)
for run, good in runs:
    attempt(run, -1, *good[1:])
    attempt(run, *good)
"""


def said(program: str) -> list[str]:
    """What a program prints in a process of its own, whose stacks are small."""
    surroundings = {**os.environ, "ADZE_STACK_MB": "64"}
    done = subprocess.run([sys.executable, "-c", PROGRAMS + program], env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_no_end_and_no_memory_are_errors_and_the_next_call_is_well() -> None:
    """Recursions of two functions that call each other, in a parallel loop, and in a derivative, with their lines; too
    long a list, and too much that a gradient keeps of calls, where the system or a limit has no more memory."""
    mutual, one, in_a_loop, two, derived, three, *short, lists, four, log, five = said(ENDLESS + FULL)
    for message, line in ((mutual, "[69]"), (in_a_loop, "[69]"), (derived, "18")):
        wanted = rf"RecursionError calls of \w+ are too deep for the stack: .*, at <string>:{line}$"
        assert re.match(wanted, message), message
    assert len(short) == 2
    for message in (*short, lists, log):
        assert re.match(r"MemoryError no memory for more data than the 0\.\d\d GiB .* \(at <string>:\d+\)$", message), (
            message
        )
    assert (one, two, three, four, five) == ("3", "7", "5.0", "1", "1.0")


def grown(rng: np.random.Generator, leaves: int) -> Any:
    """A tree of any shape."""
    if leaves == 1:
        return models.Leaves.Leaf(float(rng.normal()))
    left = int(rng.integers(1, leaves))
    return models.Leaves.Node(grown(rng, left), grown(rng, leaves - left))


@pytest.mark.parametrize("program", [models.tree_sum, az.grad(models.tree_sum)], ids=["value", "gradient"])
def test_bits_do_not_depend_on_threads(program: az.Program) -> None:
    """On trees of random shape."""
    rng = np.random.default_rng(7)
    trees = [grown(rng, leaves) for leaves in (1, 2, 30, 300)]
    expected = [floats(az.compile(program, threads=1)(tree)) for tree in trees]
    for threads in (2, 3, 8, 2 * (os.cpu_count() or 1) + 1):
        compiled = az.compile(program, threads=threads)
        for tree, numbers in zip(trees, expected, strict=True):
            bound = compiled.bind(tree)
            assert all(floats(bound()) == numbers for _ in range(50)), threads


def test_four_threads_of_python_and_forked_children_take_gradients() -> None:
    """A child is forked before the first call, and after it."""
    tree = grown(np.random.default_rng(1), 200)
    compiled = az.compile(az.value_and_grad(models.tree_sum), threads=2)
    expected = az.compile(az.value_and_grad(models.tree_sum), threads=1)(tree)

    def in_a_child() -> int:
        child = os.fork()
        if not child:
            os._exit(0 if compiled(tree) == expected else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert in_a_child() == 0
    found = list[bool]()

    def call() -> None:
        found.extend([compiled(tree) == expected for _ in range(20)])

    others = [threading.Thread(target=call) for _ in range(4)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert found == [True] * 80 and in_a_child() == 0


def test_a_million_forks_in_one_arm() -> None:
    """Each has an arm that is short and another that forks again; so has the way back."""

    @az.program
    def program(x: az.f64, n: az.i64) -> az.f64:
        small = az.fix(
            lambda self, k, y: az.cond(k < 1, lambda: y, lambda: self(k - 1, y / 2)), az.i64, az.f64, result=az.f64
        )
        go = az.fix(
            lambda self, k: az.cond(
                k == 0, lambda: 0.0, lambda: sum(az.par(lambda: self(k - 1), lambda: small(k % 2, x)))
            ),
            az.i64,
            result=az.f64,
        )
        return go(n)

    n = 1_000_000
    for threads in (1, 2):
        assert az.compile(az.value_and_grad(program), threads=threads)(4.0, n) == (3.0 * n, 0.75 * n)


@pytest.mark.skipif(sys.platform != "linux", reason="counts the pages that Linux gives to a thread")
def test_later_calls_have_the_memory_of_the_first() -> None:
    """Cells, and what a deep recursion has touched of its stack."""
    import resource

    @az.program
    def slopes(xs: models.Row, ys: models.Row) -> az.f64:
        return models.total(az.grad(models.dot)(xs, ys))

    n = 100_000
    xs = models.linked([1.0] * n)
    bound = az.compile(slopes, threads=1).bind(xs, xs)

    def pages() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    assert [float(bound()) for _ in range(2)] == [n, n]
    before = pages()
    assert [float(bound()) for _ in range(10)] == [n] * 10
    assert pages() - before < 10


# What is refused


Rows = List[az.Array[az.f64, "n"]]


def test_arrays_in_data_whose_sizes_contradict_each_other() -> None:
    @az.program
    def summed(xs: Rows, zero: az.Array[az.f64, "n"]) -> az.f64:
        go = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: az.sum(zero), Cons=lambda h, t: az.sum(h * h) + self(t)),
            Rows,
            result=az.f64,
        )
        return go(xs)

    for run in (az.compile(summed), az.compile(az.grad(summed))):
        with pytest.raises(ValueError, match=r"axis 0 of argument 'xs', field 'head' of List\.Cons is n = 3, got 2"):
            run(linked([np.ones(3), np.ones(2)]), np.zeros(3))
    assert az.compile(summed)(linked([np.ones(3), np.ones(3)]), np.zeros(3)) == 6.0


def test_functions_are_no_parameters_or_results_of_gradients() -> None:
    @az.program
    def applied(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
        return f(x) * x

    @az.program
    def given(x: az.f64) -> az.Function[[az.f64], az.f64]:
        return az.function(lambda y: x * y, az.f64)

    with pytest.raises(Unsupported, match=r"a function from outside .*: make it in what is differentiated.* at "):
        az.compile(az.grad(applied, argnums=1))(lambda x: x, 1.0)
    with pytest.raises(TypeError, match=r"argument 'cotangent' of type function is not a value of the language .*at "):
        az.compile(az.vjp(given))(1.0, lambda x: x)


def operation(**derivative: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = az.operation("cubed", numpy=lambda x: x**3, result=lambda x: x, **derivative)
    return made


@pytest.mark.parametrize("inside", [False, True])
def test_operations_of_python_inside_of_recursions_and_beside(inside: bool) -> None:
    """One without a derivative is refused where something moves through it, by name and line."""

    def program(cubed: Any) -> az.Program:
        def powers(x: az.f64, n: az.i64) -> az.f64:
            @az.fix
            def go(self: Any, k: az.i64) -> az.f64:
                step = cubed(x) if inside else x
                return az.cond(k == 0, lambda: 1.0, lambda: step * self(k - 1))

            return go(n) + cubed(x)

        return az.program(powers)

    known = program(operation(derivative={"vjp": lambda primals, cotangent: (3 * primals[0] ** 2 * cotangent,)}))
    power = 6 if inside else 2
    for threads in (1, 2):
        assert az.compile(known, threads=threads)(2.0, 2) == 2.0**power + 8
        assert az.compile(az.grad(known), threads=threads)(2.0, 2) == power * 2.0 ** (power - 1) + 12
    with pytest.raises(
        Unsupported, match=r"derivative of the foreign function cubed.* at .*test_recursion_corners\.py:"
    ):
        az.compile(az.grad(program(operation())))(2.0, 2)
