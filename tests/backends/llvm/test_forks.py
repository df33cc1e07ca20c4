"""Branches of ``par`` as tasks: the same bits on any number of threads, failures in order, memory, signals, and calls
beside each other.

What steals how often is chance, so programs here have branches long enough to be stolen, and run several times.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
from programs.functions import List

import adze as az
from adze.backends import ir
from adze.backends.llvm.open_calls import CALLS
from adze.core.types import f64

T = TypeVar("T")
THREADS = (1, 2, 4)
_LATER = 0.05


@az.data
class Tree(Generic[T]):
    class Leaf:
        value: T

    class Node:
        left: "Tree[T]"
        right: "Tree[T]"


@az.program
def total(tree: Tree[az.f64]) -> az.f64:
    @az.fix
    def go(self: Any, tree: Tree[az.f64]) -> az.f64:
        def node(left: az.Expr, right: az.Expr) -> az.Expr:
            a, b = az.par(lambda: self(left), lambda: self(right))
            return a + b

        return az.case(tree, Leaf=lambda x: x * az.sin(x), Node=node)

    return go(tree)


@az.program
def squared(tree: Tree[az.f64]) -> Tree[az.f64]:
    @az.fix
    def go(self: Any, tree: Tree[az.f64]) -> Tree[az.f64]:
        return az.case(
            tree,
            Leaf=lambda x: Tree.Leaf(x * x),
            Node=lambda left, right: Tree.Node(*az.par(lambda: self(left), lambda: self(right))),
        )

    return go(tree)


@az.program
def counted(n: az.i64, m: az.i64) -> az.i64:
    """Calls: 1 + those of two branches, which take a while where ``m`` is large."""

    @az.fix
    def down(self: Any, m: az.i64, s: az.i64) -> az.i64:
        return az.cond(m <= 0, lambda: s, lambda: self(m - 1, (s * 3 + m) % 7))

    @az.fix
    def go(self: Any, n: az.i64) -> az.i64:
        return az.cond(n <= 0, lambda: down(m, n), lambda: 1 + sum(az.par(lambda: self(n - 1), lambda: self(n - 1))))

    return go(n)


def leaves(tree: Any) -> list[float]:
    """The values of a tree, from left to right."""
    found, todo = [], [tree]
    while todo:
        each = todo.pop()
        if isinstance(each, Tree.Leaf):
            found.append(float(each.value))
        else:
            todo += [each.right, each.left]
    return found


def balanced(values: list[float]) -> Any:
    if len(values) == 1:
        return Tree.Leaf(values[0])
    middle = len(values) // 2
    return Tree.Node(balanced(values[:middle]), balanced(values[middle:]))


def degenerate(values: list[float], left: bool) -> Any:
    tree = Tree.Leaf(values[0])
    for value in values[1:]:
        tree = Tree.Node(tree, Tree.Leaf(value)) if left else Tree.Node(Tree.Leaf(value), tree)
    return tree


def values(count: int) -> list[float]:
    return list(np.random.default_rng(count).normal(size=count))


def same_bits(program: az.Program, *arguments: Any, repeats: int = 5) -> Any:
    """The result of a program, which has the same bits on any number of threads."""
    expected = az.compile(program, threads=1)(*arguments)
    for threads in THREADS[1:]:
        compiled = az.compile(program, threads=threads)
        for _ in range(repeats):
            found = compiled(*arguments)
            assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), threads
    return expected


def test_the_loops_of_a_fork_as_text() -> None:
    """Branches that are calls are those procedures; cheap ones run in their place, or behind a task."""

    @az.program
    def program(n: az.i64, x: az.f64) -> tuple[az.f64, az.f64, az.f64, az.f64]:
        go = az.fix(lambda self, k: az.cond(k == 0, lambda: x, lambda: self(k - 1) / 2), az.i64, result=az.f64)
        return az.par(lambda: x + 1, lambda: go(n), lambda: x * 2, lambda: az.sin(go(n + 1)))

    lines = [line.strip() for line in az.compile(program, checks=False).loops.splitlines()]
    fork = lines.index("fork")
    assert "call 0 on" in lines[fork + 1] and "call 1 on" in lines[fork + 2]
    names = [line for line in lines if line.startswith("procedure")]
    assert len(names) == 3 and all("branch" in name for name in names[:2])
    np.testing.assert_allclose(az.compile(program, threads=2)(2, 8.0), [9.0, 2.0, 16.0, np.sin(1.0)])


def test_a_fork_is_of_calls_that_do_not_need_each_other() -> None:
    a, b = (ir.Variable(name, f64) for name in "ab")
    first = ir.Invoke("called1", 0, (), (), values=(ir.Constant(1.0, f64),), binds=(a,))
    second = ir.Invoke("called2", 0, (), (), values=(ir.Constant(2.0, f64),), binds=(b,))
    result = ir.Buffer("result", f64, ())
    stored = ir.Store(result, (), a + b)

    def function(*calls: ir.Invoke) -> ir.Function:
        return ir.Function("f", (), (), (result,), (ir.Fork(calls), stored))

    ir.check(function(first, second))
    assert ir.text(function(first, second)).splitlines()[1:4] == [
        "  fork", "    let a: f64 = call 0 on 1.0", "    let b: f64 = call 0 on 2.0",
    ]  # fmt: skip
    needs = ir.Invoke("called2", 0, (), (), values=(a,), binds=(b,))
    with pytest.raises(ir.InvalidLoops, match="what runs side by side mentions what another call makes"):
        ir.check(function(first, needs))
    with pytest.raises(ir.InvalidLoops, match="a fork calls procedures, two or more"):
        ir.check(function(first))


def test_trees() -> None:
    """A tree of 2^10 leaves, and lists of trees, deeper than what is pushed at once."""
    assert all("fork" in az.compile(program).loops for program in (total, squared))
    own = values(1 << 10)
    for tree in (balanced(own), degenerate(own, True), degenerate(own, False)):
        found = same_bits(total, tree)
        np.testing.assert_allclose(found, np.sum(np.multiply(own, np.sin(own))), rtol=1e-11)
    assert same_bits(total, balanced(own[:100])) == az.evaluate(total)(balanced(own[:100]))


@pytest.mark.parametrize("first", [False, True])
def test_a_recursion_that_forks_deep_down(first: bool) -> None:
    """More tasks than have room wait at once, or each branch that is stolen forks again."""

    @az.program
    def program(n: az.i64) -> az.f64:
        half = az.fix(
            lambda self, k, x: az.cond(k < 1, lambda: x, lambda: self(k - 1, x / 2)), az.i64, az.f64, result=az.f64
        )

        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            branches = [lambda: self(n - 1), lambda: half(n % 7, 1.0)]
            return az.cond(n == 0, lambda: 0.0, lambda: sum(az.par(branches[::-1] if first else branches)))

        return go(n)

    n = 100_000
    found = same_bits(program, n, repeats=2)
    np.testing.assert_allclose(found, np.sum(0.5 ** (np.arange(1, n + 1) % 7)), rtol=1e-11)


def test_cells_that_a_branch_has_made_last_as_long_as_the_call() -> None:
    own = values(1 << 10)
    trees = (balanced(own), degenerate(own, True), degenerate(own, False))
    for threads in THREADS:
        compiled = az.compile(squared, threads=threads)
        for _ in range(5):
            for tree in trees:
                assert leaves(compiled(tree)) == list(np.square(leaves(tree)))


def test_long_lists_in_branches() -> None:
    """Made in one branch, and summed in another one."""

    @az.program
    def program(n: az.i64) -> tuple[az.f64, az.f64]:
        @az.fix
        def upto(self: Any, n: az.i64) -> List[az.f64]:
            return az.cond(n == 0, List[az.f64].Nil, lambda: List.Cons(n.astype(az.f64), self(n - 1)))

        total = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head + self(tail)),
            List[az.f64],
            result=az.f64,
        )
        a, b = az.par(lambda: upto(n), lambda: upto(n + 1))
        return az.par(lambda: total(b), lambda: total(a))

    for threads in THREADS:
        compiled = az.compile(program, threads=threads)
        for _ in range(3):
            assert compiled(100_000) == (5000150001.0, 5000050000.0)


def test_branches_take_and_give_more_than_there_are_registers() -> None:
    """Numbers of all kinds, truth values, arrays, and nothing."""

    @az.program
    def program(n: az.i64, x: az.Array[az.f64, "m"], flag: az.bool_) -> Any:
        @az.fix
        def go(
            self: Any,
            k: az.i64,
            a: az.f64,
            b: az.f64,
            c: az.i64,
            d: az.i64,
            e: az.i64,
            f: az.i64,
            g: az.i64,
            p: az.bool_,
        ) -> tuple[az.f64, az.f64, az.f64, az.i64, az.i64, az.i64, az.i64, az.bool_]:
            here = a + x[0], b, a * b, c + d, e, f, g, p
            return az.cond(k == 0, lambda: here, lambda: self(k - 1, a + 1, b, c, d, e, f, g + 1, ~p))

        scaled = az.fix(
            lambda self, k, y: az.cond(k == 0, lambda: y, lambda: self(k - 1, y * 0.5 + x)),
            az.i64, az.Array[az.f64, "m"], result=az.Array[az.f64, "m"],
        )  # fmt: skip
        return az.par(
            lambda: go(n, 1.0, 2.0, 3, 4, 5, 6, 7, flag),
            lambda: scaled(n, x),
            lambda: go(n + 1, 3.0, 4.0, 5, 6, 7, 8, 9, flag),
        )

    x = np.array([0.5, 1.5, 2.5])
    for n in (0, 3, 200):
        expected = az.evaluate(program)(n, x, True)
        for threads in THREADS:
            first, second, third = az.compile(program, threads=threads)(n, x, True)
            np.testing.assert_array_equal(first, expected[0])
            np.testing.assert_array_equal(second, expected[1])
            np.testing.assert_array_equal(third, expected[2])


def failing() -> az.Program:
    @az.program
    def program(x: az.Array[az.f64, "n"], first: az.i64, second: az.i64, k: az.i64) -> az.f64:
        """Branches that read an element after so many steps."""

        @az.fix
        def go(self: Any, k: az.i64, i: az.i64, s: az.f64) -> az.f64:
            return az.cond(k <= 0, lambda: s + x[i], lambda: self(k - 1, i, s * 0.5 + 1.0))

        a, (b, c) = az.par(
            lambda: go(k, first, 0.0), lambda: az.par(lambda: go(1, 0, 0.0), lambda: go(k // 100, second, 0.0))
        )
        return a + b + c

    return program


def test_the_first_branch_that_fails_has_failed() -> None:
    """Whoever is faster; and the next call is well."""
    for threads in THREADS:
        compiled = az.compile(failing(), threads=threads)
        for k in (1, 3_000_000):
            for _ in range(3):
                with pytest.raises(IndexError, match="index 7 is out of range"):
                    compiled(np.ones(5), 7, 8, k)
                with pytest.raises(IndexError, match="index 8 is out of range"):
                    compiled(np.ones(5), 1, 8, k)
                assert compiled(np.ones(5), 1, 2, 1) > 0


def test_a_branch_behind_one_that_fails_need_not_end() -> None:
    @az.program
    def program(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64, s: az.f64) -> az.f64:
            return az.cond(k == 0, lambda: s + x[7], lambda: self(k - 1, s * 0.5 + 1.0))

        a, (b, c) = az.par(
            lambda: go(k, 0.0), lambda: az.par(lambda: go(-1, 1.0), lambda: go(-1, 2.0))
        )  # the others never end
        return a + b + c

    for threads in THREADS:
        with pytest.raises(IndexError, match="index 7 is out of range"):
            az.compile(program, threads=threads)(np.ones(5), 10_000_000)


@az.fix
def down(self: Any, m: az.i64, s: az.i64) -> az.i64:
    """It ends if m is not negative."""
    return az.cond(m == 0, lambda: s, lambda: self(m - 1, (s * 3 + m) % 7))


@az.fix
def spread(self: Any, n: az.i64, m: az.i64) -> az.i64:
    both = lambda: sum(az.par(lambda: self(n - 1, m), lambda: self(n - 1, m)))  # noqa: E731
    return az.cond(n <= 0, lambda: down(m, n), both)


@az.program
def first_fails(x: az.Array[az.f64, "n"], m: az.i64) -> az.f64:
    """The first branch forks, and fails behind its join; the second forks, and never ends."""

    def first() -> Any:
        return x[spread(6, m) * 0 + 7]

    return sum(az.par(first, lambda: spread(6, -1).astype(az.f64)))


@pytest.mark.rest
def test_who_waits_runs_nothing_but_what_it_waits_for() -> None:
    """Nobody is kept by a task without end while its own failure would end that, nor while a signal would."""

    class Alarm(Exception):
        pass

    def ring(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for threads in (2, 3, 4):
            compiled = az.compile(first_fails, threads=threads)
            for _ in range(4):
                with pytest.raises(IndexError, match="index 7 is out of range"):
                    compiled(np.ones(5), 50_000)
            for _ in range(3):
                signal.setitimer(signal.ITIMER_REAL, _LATER)
                with pytest.raises(Alarm):
                    compiled(np.ones(5), -1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.rest
def test_a_recursion_without_end_in_a_branch() -> None:
    """It is an error with the line, and the next call is well."""
    program = """
import adze as az
@az.program
def f(n: az.i64, m: az.i64) -> az.i64:
    go = az.fix(lambda self, k: az.cond(k == 0, lambda: 0, lambda: 1 + self(k - 1)), az.i64, result=az.i64)
    return sum(az.par(lambda: go(n), lambda: go(m)))
for threads in (1, 2, 4):
    compiled = az.compile(f, threads=threads)
    for n, m in ((1000, -1), (-1, 1000), (-1, -1)):
        try:
            compiled(n, m)
        except RecursionError as error:
            print("too deep for the stack" in str(error) and "<string>:5" in str(error))
        print(compiled(10, 20))
"""
    surroundings = {**os.environ, "ADZE_STACK_MB": "64"}
    said = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "30"] * 9


def test_two_threads_of_python_call_at_once() -> None:
    tree, own = balanced(values(1 << 10)), balanced(values(500))
    compiled = az.compile(total, threads=2), az.compile(squared, threads=4)
    expected = compiled[0](tree), leaves(compiled[1](own))
    wrong: list[Any] = []

    def check(run: Callable[[], Any], wanted: Any) -> None:
        for _ in range(20):
            found = run()
            if found != wanted:
                wrong.append(found)

    checks = [(lambda: compiled[0](tree), expected[0]), (lambda: leaves(compiled[1](own)), expected[1])]
    others = [threading.Thread(target=check, args=each) for each in checks * 2]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert not wrong


def test_more_calls_than_can_be_open_run_alone() -> None:
    tree = balanced(values(1 << 10))
    compiled = az.compile(total, threads=2)
    expected, found = compiled(tree), list[Any]()
    others = [threading.Thread(target=lambda: found.append(compiled(tree))) for _ in range(CALLS + 4)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert found == [expected] * len(others)


def test_a_forked_child_starts_workers_of_its_own() -> None:
    compiled = az.compile(counted, threads=2)
    expected = compiled(6, 1000)
    child = os.fork()
    if child == 0:
        os._exit(0 if [compiled(6, 1000) for _ in range(5)] == [expected] * 5 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert compiled(6, 1000) == expected


@pytest.mark.rest
def test_one_thread_starts_no_thread() -> None:
    program = """
import os, adze as az
@az.program
def f(n: az.i64) -> az.i64:
    @az.fix
    def go(self, k: az.i64) -> az.i64:
        return az.cond(k < 2, lambda: k, lambda: sum(az.par(lambda: self(k - 1), lambda: self(k - 2))))
    return go(n)
compiled = az.compile(f, threads=1)
compiled(1)  # which starts the ticker
before = len(os.listdir("/proc/self/task"))
print(compiled(20), len(os.listdir("/proc/self/task")) - before)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["6765", "0"]


@pytest.mark.parametrize("threads", THREADS)
def test_branches_are_interrupted(threads: int) -> None:
    """By a signal, which the main thread hears of wherever it is."""

    class Alarm(Exception):
        pass

    def ring(*_: Any) -> None:
        raise Alarm

    compiled = az.compile(counted, threads=threads)
    expected = compiled(3, 10)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, _LATER)
        started = time.monotonic()
        with pytest.raises(Alarm):
            compiled(8, 1 << 50)
        assert time.monotonic() - started < 20
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert compiled(3, 10) == expected


@pytest.mark.rest
def test_forks_and_loops() -> None:
    """A fork in a loop, loops in branches, and loops around the call, which may be parallel."""

    @az.program
    def program(x: az.Array[az.f64, "n"], k: az.i64) -> tuple[az.Array[az.f64, "n"], az.f64, az.f64]:
        @az.fix
        def tree(self: Any, k: az.i64, y: az.f64) -> az.f64:
            return az.cond(
                k == 0,
                lambda: az.sum(az.map(lambda z: az.sin(z * y), x)),
                lambda: sum(az.par(lambda: self(k - 1, y * 0.5), lambda: self(k - 1, y + 1.0))),
            )

        each = az.map(lambda y: tree(k, y), az.exp(x))
        a, b = az.par(lambda: tree(k + 1, 0.5), lambda: az.fori_loop(0, 3, lambda i, s: s * 0.5 + tree(k, s), 0.25))
        return az.tanh(each), a, b

    @az.program
    def plain(x: az.Array[az.f64, "n"]) -> tuple[az.f64, az.f64]:
        return az.par(lambda: az.sum(az.exp(x)), lambda: az.sum(az.sin(x)))

    x = np.random.default_rng(1).normal(size=40)
    expected = az.compile(program, threads=1)(x, 3)
    for threads in THREADS[1:]:
        found = az.compile(program, threads=threads)(x, 3)
        assert [np.asarray(each).tobytes() for each in found] == [np.asarray(each).tobytes() for each in expected]
    evaluated = az.evaluate(program)(x, 3)
    for mine, its in zip(expected, evaluated, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-9)
    wide = np.random.default_rng(2).normal(size=1_000_000)
    one, two = (az.compile(plain, threads=threads)(wide) for threads in (1, 2))
    assert one == two


def test_branches_that_stay_in_their_place() -> None:
    """Those that call functions of Python."""
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return x

    noted = az.operation("noted", numpy=note, result=lambda x: x)

    @az.program
    def program(k: az.i64) -> Any:
        go = az.fix(
            lambda self, k, s: az.cond(k == 0, lambda: s, lambda: self(k - 1, s + 1.0)), az.i64, az.f64, result=az.f64
        )
        return az.par(lambda: noted(go(k, 0.0)), lambda: noted(go(k, 1.0)))

    assert "fork" not in az.compile(program).loops
    assert az.compile(program, threads=2)(2) == (2.0, 3.0) and seen == [2.0, 3.0]


# Branches without recursion


def walked(x: Any, n: Any, scale: float) -> Any:
    """Steps of which each needs the one before."""
    return az.fori_loop(0, n, lambda i, s: az.sin(s) * scale + 0.5, x)


@pytest.mark.rest
@pytest.mark.unguarded
def test_branches_that_take_long_step_by_step() -> None:
    """Numbers, small arrays, arrays from before the fork, and forks in branches."""

    @az.program
    def program(x: az.Array[az.f64, 3], table: az.Array[az.f64, "m"], n: az.i64) -> Any:
        def read(s: Any) -> Any:
            return az.fori_loop(0, n, lambda i, s: az.cos(s) + table[i % az.size(table)], s)

        both = az.par(lambda: walked(x[0], n, 0.5), lambda: walked(x[1], n, 0.25))
        return both, az.par(lambda: walked(x, n, 0.7), lambda: az.par(lambda: read(x[1]), lambda: read(both[0]) + 1.0))

    arguments = np.array([0.1, 0.2, 0.3]), np.linspace(0.0, 1.0, 7), 10_000
    compiled = [az.compile(program, threads=threads) for threads in THREADS]
    assert compiled[0].loops.count("fork") == 3
    one, *more = [[each(*arguments) for _ in range(20)] for each in compiled]
    for found in [*one, *itertools.chain(*more)]:
        np.testing.assert_equal(found, one[0])
    (a, b), (c, (d, e)) = one[0]
    (a2, b2), (c2, (d2, e2)) = az.evaluate(program)(*arguments)
    np.testing.assert_allclose([a, b, *c, d, e], [a2, b2, *c2, d2, e2], rtol=1e-12)


@pytest.mark.rest
@pytest.mark.unguarded
def test_branches_add_to_totals_of_their_own() -> None:
    """Return sweeps of branches that read an array from before: tasks, whose totals are added in their order."""

    @az.program
    def both(x: az.Array[az.f64, "m"], y: az.f64, n: az.i64) -> az.f64:
        def walk(start: float) -> Any:
            return az.fori_loop(0, n, lambda i, s: az.sin(s * x[i % az.size(x)]) + y, start)

        a, b = az.par(lambda: walk(0.5), lambda: walk(0.75))
        return a * b

    @az.program
    def many(x: az.Array[az.f64, "m"], y: az.f64, n: az.i64) -> az.f64:
        return az.fori_loop(0, 3, lambda _, s: s + both(x, s, n), y)

    def forks(program: az.Program) -> int:
        return az.compile(az.grad(program, argnums=(0, 1)), threads=2).loops.count("fork")

    assert forks(both) == 2
    assert forks(many) == 2  # both lead forward: a total for each step would be too much
    x = np.linspace(-1.0, 1.0, 7)
    for program in (both, many):
        gradient = az.grad(program, argnums=(0, 1))
        one, *more = [az.compile(gradient, threads=threads)(x, 0.25, 5000) for threads in THREADS]
        for found in more:
            assert [np.asarray(part).tobytes() for part in found] == [np.asarray(part).tobytes() for part in one]
        for part, wanted in zip(one, az.evaluate(gradient)(x, 0.25, 5000), strict=True):
            np.testing.assert_allclose(part, wanted, rtol=1e-12)


@pytest.mark.unguarded
@pytest.mark.parametrize(
    ("branch", "is_task"),
    [
        (lambda x, n, k: walked(x[0], n, k), True),
        (lambda x, n, k: walked(x[0], 100, k), False),
        (lambda x, n, k: walked(x[0], 100_000, k), True),
        (lambda x, n, k: az.while_loop(lambda s: s < x[1], lambda s: s * 2 + k, x[0]), True),
        (lambda x, n, k: az.sum(az.exp(x * k)), False),
        (lambda x, n, k: az.fori_loop(0, n, lambda i, s: az.sin(s) * k, x), False),
        (lambda x, n, k: walked(x[0], n, k) + az.sum(x * k), False),
        (lambda x, n, k: k * x[0], False),
    ],
    ids=["steps", "few steps", "many steps", "a while", "a sum", "steps of an array", "steps and a sum", "a product"],
)
def test_which_branches_are_tasks(branch: Callable[..., Any], is_task: bool) -> None:
    @az.program
    def program(x: az.Array[az.f64, "m"], n: az.i64) -> Any:
        return az.par(lambda: branch(x, n, 0.5), lambda: branch(x, n, 0.75))

    @az.program
    def mapped(x: az.Array[az.f64, "m"], n: az.i64) -> Any:
        return az.map(lambda y: az.par(lambda: branch(x, n, 0.5 * y), lambda: branch(x, n, y)), x)

    compiled = az.compile(program, threads=2)
    assert ("fork" in compiled.loops) == is_task
    assert "fork" not in az.compile(mapped).loops  # the loop is for all threads
    x = np.array([0.25, 7.0, 0.5])
    for found, wanted in zip(compiled(x, 50), az.evaluate(program)(x, 50), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_first_branch_without_recursion_that_fails_has_failed() -> None:
    @az.program
    def program(x: az.Array[az.f64, "n"], k: az.i64, m: az.i64) -> Any:
        def read(first: Any, by: int) -> Any:
            return az.fori_loop(0, k, lambda i, s: s * 0.5 + x[first + i * by], 0.0)

        return az.par(lambda: read(m, 0), lambda: read(m, 1), lambda: read(m + 1, 1))

    x = np.ones(1000)
    for threads in THREADS:
        compiled = az.compile(program, threads=threads)
        assert "fork" in compiled.loops and compiled(x, 900, 0)[0] == compiled(x, 900, 0)[1]
        with pytest.raises(IndexError, match=r"index 2000 is out of range"):
            compiled(x, 900, 2000)
        with pytest.raises(IndexError, match=r"index 1000 is out of range"):
            compiled(x, 900, 500)
