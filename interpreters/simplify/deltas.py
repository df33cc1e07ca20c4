"""Kronecker deltas: what one iteration of a loop does, and no other, is done without the loop.

A test like ``j == i`` holds in one iteration at most. Where it is all that a sum has terms for, the sum is that term;
where a state gets something in that iteration only, the loop is that step:

    sum(j < n: a[j] if j == i else 0.0)                  a[i] if 0 <= i < n else 0.0
    loop j < n with s: next s + (a[j] if j == i else 0.0)          s + a[i] if 0 <= i < n else s

The test is solved for the loop variable, which it may have with a sign and an offset: ``j + l == i`` holds at
``l = i - j``. Integers wrap around, and so does the solution: it is the only one. Where ``2 * l == i`` holds, if
anywhere, is not known without a division, and such a test stays. (The sifting property of the delta; rule 8e of
Shaikhha et al. 2019, who leave out the test of the range.)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.builder import Builder
from ...core.graph import Body, Value, numbers, union
from ...core.indexing import extents_of
from ...core.ranges import index_in_range
from ...core.types import i64
from .algebra import operands_of
from .index_set_shifting import slope
from .switches import is_on


def tested(value: Value) -> tuple[Value, Value] | None:
    """The test and the value of a scalar that is zero where the test does not hold."""
    source = value.source
    if source is None or source.op != "cond" or source.effects:
        return None
    then, orelse = (body.results[value.position] for body in source.bodies)
    return (source.args[0], then) if orelse.literal == 0 and not isinstance(orelse.literal, bool) else None


def conjunction(test: Value) -> list[Value]:
    """The tests that all hold where a test holds."""
    source = test.source
    if source is None or source.op != "primitive" or source.static[0].name != "logical_and":
        return [test]
    return [part for operand in source.args for part in conjunction(operand)]


def place(b: Builder, test: Value, i: Value) -> Value | None:
    """The only value of a loop variable for which a test may hold, if the test says which."""
    source = test.source
    if source is None or source.op != "primitive" or source.static[0].name != "equal":
        return None
    for line, other in (source.args, source.args[::-1]):
        if not other.free.isdisjoint(i.free):
            continue
        if line is i:
            return other
        falls = slope(line, i)
        if falls is not None:
            offset = b.substitute([line], {i: b.literal(0, i64)})[0]
            return b.primitive("subtract", *((offset, other) if falls else (other, offset)))
    return None


def single(b: Builder, i: Value, length: Value, tests: Sequence[Value]) -> tuple[Value, list[Value]] | None:
    """The only iteration in which all these tests may hold, and what is left to be tested of it; None if unknown."""
    for test in tests if is_on("single_terms") else ():
        at = place(b, test, i)
        if at is None:
            continue
        left = b.substitute([one for one in tests if one is not test], {i: at})
        assert at.dim is not None and length.dim is not None
        if not index_in_range(at.dim, length.dim, extents_of(b)):
            left.append(in_range(b, [at], [length]))
        return at, [test for test in left if test.literal is not True]
    return None


def one_term(b: Builder, length: Value, element: Body) -> Value | None:
    """The sum of elements that are zero but for one, or None."""
    (i,), (value,) = element.binders, element.results
    tests: list[Value] = []
    while (found := tested(value)) is not None:
        tests += conjunction(found[0])
        value = found[1]
    where = single(b, i, length, tests)
    if where is None:
        return None
    at, left = where
    return only_where(b, left, b.substitute([value], {i: at})[0], b.literal(0, value.type))  # type: ignore[arg-type]


def single_steps(b: Builder, extent: Value, initials: Sequence[Value], body: Body) -> dict[int, Value]:
    """What the states of a loop end as to which one step adds at most, and that nothing else in the loop reads.

    A state that is chosen anew by a test stays in the loop: such are rows of an elimination, whose loops have lanes.
    """
    i, states = body.binders[0], body.binders[1:]
    bound, found = numbers(body.binders, body.statements), dict[int, Value]()
    for k, (state, initial) in enumerate(zip(states, initials, strict=True)):
        tests, changed = _change(b, state, body.results[k])
        others = bound - {i.number}
        if not tests or any(not test.free.isdisjoint(others) for test in tests) or changed.free & others - state.free:
            continue
        readers = union(
            [x.free for x in (*body.results[:k], *body.results[k + 1 :])] + [x.free for x in body.statements]
        )
        where = None if state.number in readers else single(b, i, extent, tests)
        if where is not None:
            (last,) = b.substitute([changed], {i: where[0], state: initial})
            found[k] = only_where(b, where[1], last, initial)
    return found


def _change(b: Builder, state: Value, result: Value) -> tuple[list[Value], Value]:
    """The tests without which a step adds zero to a state, and the next state where they hold."""
    tests: list[Value] = []
    summands = operands_of(result, "add") or ()
    if state not in summands:
        return tests, result
    added = summands[0] if summands[1] is state else summands[1]
    while (under := tested(added)) is not None:
        tests += conjunction(under[0])
        added = under[1]
    return tests, b.primitive("add", state, added)


def only_where(b: Builder, tests: Sequence[Value], value: Value, other: Value) -> Value:
    """One value where all tests hold, elsewhere another."""
    for test in reversed(tests):
        value = b.cond(test, lambda value=value: [value], lambda: [other])[0]  # type: ignore[misc]
    return value


def in_range(b: Builder, indices: Sequence[Value], sizes: Sequence[Value]) -> Value:
    """Whether a place lies inside an array."""
    tests = []
    for index, size in zip(indices, sizes, strict=True):
        tests.append(b.primitive("less_equal", b.literal(0, i64), index))
        tests.append(b.primitive("less", index, size))
    total = tests[0]
    for test in tests[1:]:
        total = b.primitive("logical_and", total, test)
    return total
