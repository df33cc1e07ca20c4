"""An interpretation of one's own: bounds on what a program can return.

    python examples/new_interpretation.py

A program means whatever the methods of an ``az.Language`` make of its constructs. Here a number means an interval
that contains it: an atom means ``env -> Interval``, an operation ``env -> intervals``, a block ``(env, arguments) ->
intervals``, where the environment is a tuple whose last entry is what De Bruijn index 0 stands for. Everything else
comes for free. Since a gradient is a program too, its bounds tell how fast a function can grow.

(To stay short: the ends are rounded to nearest, not outwards; infinities may come out, but arguments are numbers;
arrays are not empty; the number of steps of a loop is known, and that of a `while` bounded. Functions and data as
values have no meaning here: the methods that are not defined refuse them, with the line where they were written.)
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import adze as az

# Intervals


@dataclass(frozen=True, eq=False)
class Interval:
    """All numbers (or booleans, or arrays, element by element) from ``low`` to ``high``."""

    low: Any
    high: Any

    @property
    def exact(self) -> bool:
        return bool(np.all(self.low == self.high))


def exactly(value: Any) -> Interval:
    return Interval(value, value)


def hull(a: Interval, b: Interval) -> Interval:
    """The least interval that contains both."""
    return Interval(np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def stack(intervals: Sequence[Interval]) -> Interval:
    return Interval(np.stack([x.low for x in intervals]), np.stack([x.high for x in intervals]))


def product(a: Interval, b: Interval) -> Interval:
    if a is b:  # a square, which is not negative
        near = 0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
        return Interval(near * near, max(a.low * a.low, a.high * a.high))
    corners = np.array([x * y for x in (a.low, a.high) for y in (b.low, b.high)])
    corners[np.isnan(corners)] = 0  # zero times infinity
    return Interval(corners.min(), corners.max())


def quotient(a: Interval, b: Interval) -> Interval:
    if b.low <= 0 <= b.high:
        return Interval(-np.inf, np.inf)
    return product(a, Interval(1 / b.high, 1 / b.low))


def magnitude(x: Interval) -> Interval:
    near = 0 * x.low if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Interval(near, max(abs(x.low), abs(x.high)))


# What primitives mean: those that grow with each operand are applied to the ends, the others have a rule. Of a
# primitive that is in neither table nothing is known, unless its operands are.

INCREASING = {
    "add", "minimum", "maximum", "exp", "log", "expm1", "log1p", "sqrt", "tanh", "sign", "logical_and", "logical_or",
    "stop_gradient", "f32", "f64", "i32", "i64",
}  # fmt: skip

RULES: dict[str, Callable[..., Interval]] = {
    "subtract": lambda a, b: Interval(a.low - b.high, a.high - b.low),
    "negative": lambda x: Interval(-x.high, -x.low),
    "multiply": product,
    "divide": quotient,
    "abs": magnitude,
    "sin": lambda x: Interval(-1.0, 1.0),
    "cos": lambda x: Interval(-1.0, 1.0),
    "less": lambda a, b: Interval(a.high < b.low, a.low < b.high),
    "less_equal": lambda a, b: Interval(a.high <= b.low, a.low <= b.high),
    "greater": lambda a, b: Interval(a.low > b.high, a.high > b.low),
    "greater_equal": lambda a, b: Interval(a.low >= b.high, a.high >= b.low),
    "equal": lambda a, b: Interval(False, a.low <= b.high and b.low <= a.high),
    "not_equal": lambda a, b: Interval(a.high < b.low or b.high < a.low, True),
    "logical_not": lambda x: Interval(not x.high, not x.low),
}


def unknown(dtype: np.dtype[Any]) -> Interval:
    """Any value of a type."""
    if dtype.kind == "b":
        return Interval(False, True)
    if dtype.kind == "f":
        return Interval(-np.inf, np.inf)
    return Interval(np.iinfo(dtype).min, np.iinfo(dtype).max)


# The interpretation

LONGEST = 1000  # steps of a while

Environment = tuple[Interval, ...]
Atom = Callable[[Environment], Interval]
Operation = Callable[[Environment], Sequence[Interval]]
Block = Callable[[Environment, Sequence[Interval]], list[Interval]]


class Bounds(az.Language[Atom, Operation, Block]):
    """The meanings for one call, in which the size names have these values."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.surely = True  # whether what runs now does run, whatever the arguments are

    def variable(self, index: int, type: Any) -> Atom:
        return lambda env: env[-1 - index]

    def literal(self, value: Any, type: Any) -> Atom:
        return lambda env: exactly(type.dtype.type(value))

    def constant(self, array: Any, type: Any) -> Atom:
        return lambda env: exactly(array.array)

    def dim(self, dim: Any) -> Atom:
        return lambda env: exactly(np.int64(dim.evaluate(self.sizes)))

    def primitive(self, primitive: az.Primitive, args: Sequence[Atom]) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            operands = [arg(env) for arg in args]
            low = primitive.numpy(*[x.low for x in operands])
            if primitive.name in INCREASING or all(x.exact for x in operands):
                return [Interval(low, primitive.numpy(*[x.high for x in operands]))]
            if primitive.name in RULES:
                return [RULES[primitive.name](*operands)]
            return [unknown(np.asarray(low).dtype)]

        return run

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            chosen = test(env)
            if chosen.exact:
                return then(env, []) if chosen.low else orelse(env, [])
            with self.perhaps():
                return [hull(a, b) for a, b in zip(then(env, []), orelse(env, []), strict=True)]

        return run

    def loop(self, dim: Any, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            state, outputs = [initial(env) for initial in initials], []
            for i in counting(extent(env)):
                results = body(env, [i, *state])
                state = results[: len(initials)]
                outputs.append(results[len(initials) :])
            return [*state, *map(stack, zip(*outputs, strict=True))]

        return run

    def size(self, array: Atom, axis: int) -> Operation:
        return lambda env: [exactly(np.int64(array(env).low.shape[axis]))]

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            x = array(env)
            inside = [
                slice(np.clip(i.low, 0, n - 1), np.clip(i.high, 0, n - 1) + 1)
                for i, n in zip([index(env) for index in indices], x.low.shape, strict=True)
            ]
            return [Interval(x.low[tuple(inside)].min(), x.high[tuple(inside)].max())]

        return run

    def generate(self, dim: Any, extent: Atom, body: Block) -> Operation:
        return lambda env: [*map(stack, zip(*[body(env, [i]) for i in counting(extent(env))], strict=True))]

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            total = [neutral(env) for neutral in neutrals]
            for i in counting(extent(env)):
                total = operator(env, [*total, *element(env, [i])])
            return total

        return run

    def scan(self, dim: Any, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            totals = [[neutral(env) for neutral in neutrals]]
            for i in counting(extent(env)):
                totals.append(operator(env, [*totals[-1], *element(env, [i])]))
            return [*map(stack, zip(*totals[1:], strict=True))]

        return run

    def histogram(
        self, dim: Any, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            totals = [[neutral(env) for neutral in neutrals] for _ in counting(bins(env))]
            for i in counting(extent(env)):
                bin, *values = element(env, [i])
                for k in range(max(0, bin.low), min(bin.high + 1, len(totals))):
                    with_it = operator(env, [*totals[k], *values])
                    totals[k] = with_it if bin.exact else [hull(a, b) for a, b in zip(totals[k], with_it, strict=True)]
            return [*map(stack, zip(*totals, strict=True))]

        return run

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            written = [Interval(np.array(x.low), np.array(x.high)) for x in [array(env) for array in destinations]]
            for i in np.ndindex(*[len([*counting(extent(env))]) for extent in extents]):
                results = element(env, [exactly(np.int64(k)) for k in i])
                indices, values = results[: -len(written)], results[-len(written) :]
                places = tuple([slice(max(0, k.low), max(0, k.high + 1)) for k in indices])
                for x, value in zip(written, values, strict=True):
                    sure = all(k.exact for k in indices)
                    x.low[places] = value.low if sure else np.minimum(x.low[places], value.low)
                    x.high[places] = value.high if sure else np.maximum(x.high[places], value.high)
            return written

        return run

    def argsort(self, array: Atom) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            x = array(env)
            if x.exact:
                return [exactly(np.argsort(x.low, kind="stable"))]
            return [Interval(np.zeros(len(x.low), np.int64), np.full(len(x.low), len(x.low) - 1))]

        return run

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            state, final = [*[initial(env) for initial in initials], exactly(np.int64(0))], None
            for _ in range(LONGEST):
                (goes_on,) = test(env, state[:-1])
                if not (goes_on.exact and goes_on.low):  # it may stop here
                    final = state if final is None else [hull(a, b) for a, b in zip(final, state, strict=True)]
                if goes_on.exact and not goes_on.low:
                    return final
                with nullcontext() if final is None else self.perhaps():
                    state = [*body(env, state[:-1]), exactly(state[-1].low + 1)]
            raise ValueError(f"a while that may take more than {LONGEST} steps")

        return run

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            totals = [Interval(np.array(x.low), np.array(x.high)) for x in [initial(env) for initial in initials]]
            results = body(env, totals)
            return [*[Interval(total.low[()], total.high[()]) for total in totals], *results]

        return run

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            total, added, at = accumulator(env), value(env), [index(env) for index in indices]
            if not (self.surely and all(i.exact for i in at)):
                added = hull(added, exactly(0.0))
            places = tuple([slice(max(0, i.low), max(0, i.high + 1)) for i in at])
            total.low[places] += added.low
            total.high[places] += added.high
            return []

        return run

    def require(self, test: Atom, failure: Any, values: Sequence[Atom]) -> Operation:
        def run(env: Environment) -> Sequence[Interval]:
            if self.surely and not test(env).high:
                raise failure.error([int(value(env).low) for value in values])
            return []

        return run

    def block(self, binders: Any, bindings: Sequence[az.Binding], results: Sequence[Atom], names: Any) -> Block:
        def run(env: Environment, arguments: Sequence[Interval]) -> list[Interval]:
            env = (*env, *arguments)
            for binding in bindings:
                values = binding.operation(env)
                if len(values) < len(binding.types):  # nothing was stacked
                    raise ValueError(f"{binding.origin}: an array without elements")
                env = (*env, *values)
            return [result(env) for result in results]

        return run

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """What runs inside may run or not."""
        outer, self.surely = self.surely, False
        try:
            yield
        finally:
            self.surely = outer


def counting(extent: Interval) -> Iterator[Interval]:
    """The indices of a loop."""
    if not extent.exact:
        raise ValueError(f"a loop of {extent.low} to {extent.high} steps")
    return map(exactly, np.arange(extent.low))


def bounds(program: az.Program, *arguments: Any) -> list[Interval]:
    """Intervals that contain the results of a program for all arguments within these: intervals, or exact values."""
    boxes = [x if isinstance(x, Interval) else exactly(x) for x in arguments]
    instance = program.at()
    lows, sizes = instance.signature.convert([box.low for box in boxes])
    highs, _ = instance.signature.convert([box.high for box in boxes])
    with np.errstate(all="ignore"):
        meaning = az.interpret(instance, Bounds(sizes))
        return meaning((), [Interval(low, high) for low, high in zip(lows, highs, strict=True)])


# A program to try it on


@az.program
def network(weights: az.Array[az.f64, "h d"], outer: az.Array[az.f64, "h"], x: az.Array[az.f64, "d"]) -> az.f64:
    """A network with one hidden layer, which is linear on either side of zero."""
    hidden = weights @ x
    return az.sum(outer * az.where(hidden > 0, hidden, 0.1 * hidden))


def main() -> None:
    random = np.random.default_rng(2)
    weights, outer, x = random.standard_normal((8, 4)), random.standard_normal(8), random.standard_normal(4)
    box = Interval(x - 0.05, x + 0.05)

    (output,) = bounds(network, weights, outer, box)
    print(f"network(x) = {float(network(weights, outer, x)):.4f}")
    print(f"for all x within 0.05: between {output.low:.4f} and {output.high:.4f}")

    (slope,) = bounds(az.grad(network, argnums=2), weights, outer, box)
    for k, (low, high) in enumerate(zip(slope.low, slope.high, strict=True)):
        print(f"its derivative by x[{k}]: between {low:.4f} and {high:.4f}")

    samples = [network(weights, outer, point) for point in random.uniform(box.low, box.high, (1000, 4))]
    print(f"1000 points of the box: between {min(samples):.4f} and {max(samples):.4f}")


if __name__ == "__main__":
    main()
