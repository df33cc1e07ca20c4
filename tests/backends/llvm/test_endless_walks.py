"""A walk over data without end, which is not made, has no end either: it takes no memory, and can be interrupted."""

import signal
from typing import Any

import pytest

import adze as az


@az.data
class Numbers:
    class Nil: ...

    class Cons:
        head: az.f64
        tail: "Numbers"


def test_a_walk_without_end_can_be_interrupted() -> None:
    @az.program
    def endless(x: az.f64) -> az.f64:
        make = az.fix(lambda self, n: Numbers.Cons(n, self(n + 1.0)), az.f64, result=Numbers)
        walk = az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: self(tail)), Numbers, result=az.f64
        )
        return walk(make(x)) + x

    compiled = az.compile(endless, threads=1)
    assert "cell" not in str(compiled.loops)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(1.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
