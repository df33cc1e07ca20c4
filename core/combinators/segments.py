"""Loops in segments: ``checkpoint=``, which trades time for memory in reverse mode.

A loop is built as a nest of loops, before anything is differentiated: segments of k steps, one after the other.

    for i < n: s = step(i, s)           for j < ceil(n / k):
                                            for i < min(k, n - j k): s = step(j k + i, s)

The rule of loops then gives what is wanted by itself. The forward sweep stores the state before each step of the
outer loop alone, n / k states; the return sweep enters a segment, runs it again and stores its k states; then it
walks back over them. The order of all sums is that of the plain loop, so the derivatives are the same bit for bit.
This is strip-mining (Schenck et al. 2022, section 4.3); the number of steps need not be a power or a multiple.

A ``while`` has no number of steps beforehand. Its segments end after k steps, or when the test fails; for "sqrt",
segment j has j + 1 steps, and so both the number of segments and the longest are about sqrt(2 n).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..builder import current
from ..expr import Expr
from ..graph import Body, Value
from ..source import at_line, user_line
from ..terms import Failure
from ..types import Scalar, accumulator_of, bool_, element, f64, i64, rank
from .operands import size_value

Step = Callable[..., Sequence[Value]]


class Segments:
    """What ``checkpoint`` asks of a loop: the lengths of its segments, outermost first; none for a plain loop.

    Raises ValueError or TypeError, with the line, for what is not "all", "sqrt", a positive integer or a tuple of
    these integers.
    """

    def __init__(self, what: str, checkpoint: Any) -> None:
        self.what, self.by_root = what, checkpoint == "sqrt" if isinstance(checkpoint, str) else False
        self.lengths: tuple[Value, ...] = ()
        if isinstance(checkpoint, str) and checkpoint in ("all", "sqrt"):
            return
        if isinstance(checkpoint, str) or (isinstance(checkpoint, tuple) and not checkpoint):
            raise ValueError(self._refused(repr(checkpoint)))
        self.lengths = tuple([self._length(k) for k in (checkpoint if isinstance(checkpoint, tuple) else [checkpoint])])

    def _refused(self, shown: str) -> str:
        wanted = f'checkpoint of a {self.what} is "all", "sqrt", a number of steps or a tuple of such numbers'
        return at_line(f"the {wanted}, not {shown}")

    def _length(self, given: Any) -> Value:
        """A number of steps, which is at least one: checked here, or by a requirement of the run."""
        builder, one = current(), current().literal(1, i64)
        message = f"the segments of a {self.what} with checkpoints have at least one step, not"
        if isinstance(given, Expr) and not given.ndim and given.dtype.kind == "int":
            value = size_value(given)
            builder.origin = user_line()
            failure = Failure("size", f"{message} {{0}}", user_line())
            builder.require(builder.primitive("less_equal", one, value), failure, [value])
            return builder.primitive("maximum", value, one)
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            shown = f"an expression of type {given.type}" if isinstance(given, Expr) else repr(given)
            raise TypeError(self._refused(shown))
        if given < 1:
            raise ValueError(at_line(f"{message} {given}"))
        return size_value(given)

    def __bool__(self) -> bool:
        return self.by_root or bool(self.lengths)

    # Loops of so many steps

    def loop(self, count: Value, initials: Sequence[Value], body: Body) -> Sequence[Value]:
        """The final state of the loop with this body, then its outputs, stacked."""
        builder, states = current(), len(initials)
        lengths = (_root(count),) if self.by_root else self.lengths
        names = ["", *[binder.name for binder in body.binders[1:]]]

        def run(totals: Sequence[Value]) -> Sequence[Value]:
            def step(i: Value, *state: Value) -> Sequence[Value]:
                results = builder.instantiate(body, [i, *state])
                for total, output in zip(totals, results[states:], strict=True):
                    _put(total, i, output)
                return results[:states]

            extent, segment = _cut(count, step, lengths, names)
            return builder.loop(extent, initials, segment, names)

        outputs = body.results[states:]
        if not outputs:
            return run([])
        # Outputs of segments of several lengths are not stacked: each is added at its place to what holds nothing.
        starts = [self._nothing(count, output) for output in outputs]
        inside = builder.body([accumulator_of(start.type) for start in starts], lambda *totals: run(totals))
        values = builder.emit("accumulate", (), starts, [inside])
        return [*values[len(starts) :], *map(_taken, values, outputs)]

    def _nothing(self, count: Value, output: Value) -> Value:
        """An array of ``count`` outputs to which nothing was added: x + -0.0 is x, whatever x."""
        builder = current()
        sizes = [builder.size(output, axis) for axis in range(rank(output.type))]
        if any(not size.free <= builder.open for size in sizes):
            raise TypeError(at_line(f"irregular array: the size of {output.type} depends on the step of {self.what}"))
        scalar = _added(element(output.type))
        zero = builder.literal(-0.0 if scalar.kind == "float" else 0, scalar)
        return builder.array([count, *sizes], lambda *_: zero)

    # Loops whose number of steps nobody knows

    def while_loop(self, initials: Sequence[Value], test: Body, body: Body) -> Sequence[Value]:
        """The final state of the while with this test and body."""
        builder = current()
        names = [binder.name for binder in body.binders]
        types = [initial.type for initial in initials]
        one = builder.literal(1, i64)

        def run(limit: Value, state: Sequence[Value], lengths: Sequence[Value]) -> Sequence[Value]:
            """The number of steps done, at most ``limit``, and the state behind them."""

            def going(done: Value, *state: Value) -> Value:
                more = builder.primitive("less", done, limit)
                stop = builder.literal(False, bool_)
                return builder.cond(more, lambda: builder.instantiate(test, state), lambda: [stop])[0]

            def step(done: Value, *state: Value) -> Sequence[Value]:
                if not lengths:
                    return [builder.primitive("add", done, one), *builder.instantiate(body, state)]
                left = builder.primitive("subtract", limit, done)
                length, *inner = lengths
                count, *after = run(builder.primitive("minimum", length, left), state, inner)
                return [builder.primitive("add", done, count), *after]

            return builder.while_loop([builder.literal(0, i64), *state], going, step, ["", *names])[:-1]

        if self.by_root:

            def segment(j: Value, *state: Value) -> Sequence[Value]:
                following = builder.primitive("add", j, one)
                return [following, *run(following, state, [])[1:]]

            starts = [builder.literal(0, i64), *initials]
            goes_on = builder.body([i64, *types], lambda _, *state: builder.instantiate(test, state), ["", *names])
            inside = builder.body([i64, *types], segment, ["", *names])
            return builder.emit("while", (), starts, [goes_on, inside])[1:-1]
        length, *inner = self.lengths
        segments = builder.body(types, lambda *state: run(length, state, inner)[1:], names)
        return builder.emit("while", (), initials, [test, segments])[:-1]


def _cut(count: Value, step: Step, lengths: Sequence[Value], names: Sequence[str]) -> tuple[Value, Step]:
    """``count`` steps as so many segments, of which the last may be shorter."""
    if not lengths:
        return count, step
    b = current()
    length, *inner = lengths

    def segment(j: Value, *state: Value) -> Sequence[Value]:
        first = b.primitive("multiply", j, length)
        own = b.primitive("minimum", length, b.primitive("subtract", count, first))
        extent, one = _cut(own, lambda i, *state: step(b.primitive("add", first, i), *state), inner, names)
        return b.loop(extent, state, one, names)

    whole = b.primitive("add", count, b.primitive("subtract", length, b.literal(1, i64)))
    return b.primitive("floor_divide", whole, length), segment


def _root(count: Value) -> Value:
    """The least integer whose square is at least ``count``; at least 1."""
    b = current()
    root = b.primitive("ceil", b.primitive("sqrt", Expr(count, b).astype(f64).value))
    return b.primitive("maximum", Expr(root, b).astype(i64).value, b.literal(1, i64))


# Outputs


def _added(scalar: Scalar) -> Scalar:
    """The scalar type as which values are added up: booleans are 0 and 1."""
    return i64 if scalar.kind == "bool" else scalar


def _put(total: Value, i: Value, output: Value) -> None:
    """Add one output at its place."""
    b, scalar = current(), _added(element(output.type))

    def one(*indices: Value) -> None:
        value = Expr(b.index(output, indices), b).astype(scalar).value
        b.emit("add_to", (), [total, value, i, *indices])

    b.each(b.sizes(output), one)


def _taken(total: Value, output: Value) -> Value:
    """The stacked outputs, of the type that one of them has."""
    b, scalar = current(), element(output.type)
    if _added(scalar) == scalar:
        return total
    zero = b.literal(0, _added(scalar))
    return b.array(b.sizes(total), lambda *indices: b.primitive("not_equal", b.index(total, indices), zero))
