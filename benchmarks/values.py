"""What values of declared types cost: to make one in Python, and to take it into a compiled program and out of it.

    python benchmarks/values.py          # lists of 10^3 to 10^6 numbers, a tree of 2^18 leaves
    python benchmarks/values.py --quick  # small ones

Times are the least of some runs, in microseconds for each node, or for each field of a node on the way in. Integers for
numbers of f64 are converted. A value that was bound is in cells by then, so that row is the work itself, a sum.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from programs.functions import Leaves, List

import adze as az


@az.program
def total(xs: List[az.f64]) -> az.f64:
    @az.fix
    def add(self: Any, xs: List[az.f64], done: az.f64) -> az.f64:
        return az.case(xs, Nil=lambda: done, Cons=lambda head, tail: self(tail, done + head))

    return add(xs, 0.0)


@az.program
def squares(xs: List[az.f64]) -> az.f64:
    @az.fix
    def add(self: Any, xs: List[az.f64], done: az.f64) -> az.f64:
        return az.case(xs, Nil=lambda: done, Cons=lambda head, tail: self(tail, done + head * head))

    return add(xs, 0.0)


@az.program
def count(n: az.i64) -> List[az.f64]:
    @az.fix
    def down(self: Any, n: az.i64, done: List[az.f64]) -> List[az.f64]:
        return az.cond(n <= 0, lambda: done, lambda: self(n - 1, List.Cons(1.0 * n, done)))

    return down(n, List.Nil())


@az.program
def leaves(tree: Leaves) -> az.f64:
    @az.fix
    def add(self: Any, tree: Leaves) -> az.f64:
        return az.case(tree, Leaf=lambda value: value, Node=lambda left, right: self(left) + self(right))

    return add(tree)


@az.program
def grown(depth: az.i64) -> Leaves:
    @az.fix
    def grow(self: Any, depth: az.i64) -> Leaves:
        return az.cond(depth <= 0, lambda: Leaves.Leaf(1.0), lambda: Leaves.Node(self(depth - 1), self(depth - 1)))

    return grow(depth)


def made(n: int, number: type = float) -> Any:
    xs = List.Nil()
    for k in range(n):
        xs = List.Cons(number(k), xs)
    return xs


def least(run: Callable[[], Any], runs: int) -> float:
    """The microseconds that a run takes; what it gives is dropped outside of that time."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - started)
        del result
    return 1e6 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    run, run_leaves, counting, growing = map(az.compile, (total, leaves, count, grown))
    gradient = az.compile(az.grad(squares))
    for n in (10**3, 10**4) if quick else (10**3, 10**4, 10**6):
        runs, xs = (5 if n > 10**5 else 20), made(n)
        bound, integers = run.bind(xs), made(n, int)
        print(f"a list of {n} numbers")
        print(f"  made in Python      {least(lambda n=n: made(n), runs) / n:8.3f}")
        print(f"  in, a field         {least(lambda xs=xs: run(xs), runs) / (2 * n):8.3f}")
        print(f"  in, converted       {least(lambda xs=integers: run(xs), 3) / (2 * n):8.3f}")
        print(f"  bound               {least(bound, runs) / n:8.3f}")
        print(f"  out                 {least(lambda n=n: counting(n), runs) / n:8.3f}")
        print(f"  in, and a gradient  {least(lambda xs=xs: gradient(xs), runs) / n:8.3f}")
    depth = 10 if quick else 18
    n, tree = 2 ** (depth + 1) - 1, growing(depth)
    print(f"a tree of {n} nodes")
    print(f"  in, a field         {least(lambda: run_leaves(tree), 5) / (1.5 * n):8.3f}")
    print(f"  out                 {least(lambda: growing(depth), 5) / n:8.3f}")


if __name__ == "__main__":
    main()
