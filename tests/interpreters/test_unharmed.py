"""Dependence tests of updates: the analysis alone, on terms written with the builder."""

from collections.abc import Callable

import pytest

from adze.core.builder import Builder, build
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.terms import Block, Operation
from adze.core.types import f64, i64
from adze.interpreters.unharmed import Unharmed

Index = Callable[[Builder, Value, Value, Value], Value]  # of a size, an integer from outside, and the loop variable


def add(b: Builder, x: Value, y: Value | int) -> Value:
    return b.primitive("add", x, y if isinstance(y, Value) else b.literal(y, i64))


def times(b: Builder, x: Value, y: int) -> Value:
    return b.primitive("multiply", x, b.literal(y, i64))


def scatters(block: Block) -> list[Operation]:
    inner = [found for operation in block.bindings for part in operation.blocks for found in scatters(part)]
    return [*inner, *[operation for operation in block.bindings if operation.op == "scatter"]]


def unharmed(written: Index, read: Index, below: Index = lambda b, n, k, i: n) -> bool:
    """Whether ``for i < below: a[written, i] = a[read, i]`` does no harm to what it reads."""
    with build() as b:
        n, k = b.variable(i64, "n"), b.variable(i64, "k")
        a = b.array([n, n], lambda i, j: b.primitive("f64", add(b, i, j)))
        extent = below(b, n, k, k)
        made = b.scatter(True, [extent], [a], lambda i: [written(b, n, k, i), i, b.index(a, [read(b, n, k, i), i])])
        block, _ = to_block([n, k], made)
    (scatter,) = scatters(block)
    return bool(Unharmed(block).of(scatter))


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        (lambda b, n, k, i: i, lambda b, n, k, i: i, True),
        (lambda b, n, k, i: add(b, i, k), lambda b, n, k, i: add(b, k, i), True),
        (lambda b, n, k, i: add(b, i, 1), lambda b, n, k, i: i, False),
        (lambda b, n, k, i: add(b, add(b, i, k), 1), lambda b, n, k, i: k, True),
        (lambda b, n, k, i: add(b, i, k), lambda b, n, k, i: k, False),
        (lambda b, n, k, i: add(b, i, 1), lambda b, n, k, i: k, False),
        (lambda b, n, k, i: times(b, i, 2), lambda b, n, k, i: add(b, times(b, i, 2), 1), True),
        (lambda b, n, k, i: times(b, i, 6), lambda b, n, k, i: add(b, times(b, i, 4), 3), True),
        (lambda b, n, k, i: times(b, i, 6), lambda b, n, k, i: add(b, times(b, i, 4), 2), False),
        (lambda b, n, k, i: add(b, times(b, k, 2), i), lambda b, n, k, i: add(b, times(b, k, 2), -1), True),
        (lambda b, n, k, i: times(b, i, 1 << 40), lambda b, n, k, i: b.literal(1, i64), False),  # it wraps around
        (lambda b, n, k, i: b.primitive("floor_divide", i, b.literal(2, i64)), lambda b, n, k, i: i, False),
    ],
)
def test_indices(written: Index, read: Index, expected: bool) -> None:
    assert unharmed(written, read) == expected


def test_below_an_integer() -> None:
    """What ends at an integer does not reach it; nor does what wraps around, though it looks like that."""
    assert unharmed(lambda b, n, k, i: i, lambda b, n, k, i: k, below=lambda b, n, k, i: k)
    assert unharmed(lambda b, n, k, i: i, lambda b, n, k, i: n, below=lambda b, n, k, i: n)
    less = lambda b, n, k, i: add(b, k, -1)  # noqa: E731
    assert not unharmed(lambda b, n, k, i: i, lambda b, n, k, i: k, below=less)


def test_rows() -> None:
    """Row k is read while those behind it are written, as a whole or by a sum; not if they are the same."""

    def program(first: int, reader: str) -> bool:
        with build() as b:
            n, k = b.variable(i64, "n"), b.variable(i64, "k")
            a = b.array([n, n], lambda i, j: b.primitive("f64", add(b, i, j)))

            def element(i: Value) -> list[Value]:
                at = add(b, add(b, k, i), first)
                if reader == "row":
                    return [at, b.array([n], lambda j: b.index(a, [k, add(b, i, j)]))]
                if reader == "itself":
                    return [at, b.array([n], lambda j: b.index(a, [at, b.primitive("subtract", n, j)]))]
                return [at, b.array([n], lambda j: b.sum(i, lambda m: b.index(a, [k, add(b, j, m)]), f64))]

            block, _ = to_block([n, k], b.scatter(True, [n], [a], element))
        (scatter,) = scatters(block)
        return bool(Unharmed(block).of(scatter))

    assert [program(1, reader) for reader in ("row", "itself", "sum")] == [True, True, True]
    assert [program(0, reader) for reader in ("row", "itself", "sum")] == [False, True, False]


def test_data_that_say_the_place() -> None:
    """An index that data say is equal to itself in its own iteration alone."""

    def program(shift: int) -> bool:
        with build() as b:
            n = b.variable(i64, "n")
            places = b.array([n], lambda i: i)
            a = b.array([n], lambda i: b.primitive("f64", i))

            def element(i: Value) -> list[Value]:
                at = b.index(b.scatter(True, [], [places], lambda: [i, i])[0], [i])
                return [at, b.index(a, [add(b, at, shift)])]

            block, _ = to_block([n], b.scatter(True, [n], [a], element))
        return len(Unharmed(block).of(scatters(block)[-1])) > 0

    assert program(0)
    assert not program(1)
