"""A construct of one's own: a row, what it means in terms of others, and what some interpretations say better.

    python examples/new_construct.py

``az.construct`` adds a row to the table of constructs. This one is the linear recurrence of state space models,

    y[0] = x[0],    y[i] = a[i] y[i-1] + x[i]

whose expansion is a scan of pairs: that is its meaning wherever nothing else is said, in forward mode, a trace, a cost
or a pattern of zeros. Three interpretations do better. Evaluating it is one loop over NumPy arrays, its return sweep is
the same recurrence from the end, and compiled code is one loop that keeps y[i-1] in a variable. In terms and in printed
programs it stays one operation, in those of its gradient, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

import adze as az
from adze.ad.reverse import Reverse
from adze.backends import ir
from adze.backends.lowering.lower import Lowering
from adze.core.expr import same_size
from adze.core.types import dims, element, rank
from adze.interpreters.evaluate import Evaluate
from adze.interpreters.evaluate.batches import Step


def result_type(a: Any, x: Any) -> Any:
    """The type of y, which is that of x; TypeError where a does not fit. Sizes may turn out to be equal later."""
    if element(a) != element(x) or rank(a) != 1 or rank(x) != 1 or dims(a)[0].compare(dims(x)[0]) is False:
        raise TypeError(f"two vectors of one size and scalar type, got {a} and {x}")
    return x


def as_scan(a: az.Expr, x: az.Expr) -> az.Expr:
    """Steps y -> a y + x, which are pairs, combine to such steps."""
    pairs = az.scan(lambda one, two: (one[0] * two[0], one[1] * two[0] + two[1]), (1.0, 0.0), (a, x))
    return pairs[1]


recurrence = az.construct(
    "recurrence",
    types=result_type,
    expansion=as_scan,
    pure=True,  # it is no statement,
    partial=False,  # it ends,
    external=False,  # it runs no code but what is said here,
    holds=False,  # and its result is an array of its own.
)


def linear_recurrence(a: az.Expr, x: az.Expr) -> az.Expr:
    """What users call: y for a and x, whose sizes are required to be equal where that is not known."""
    same_size(a.value, 0, x.value, 0, "linear_recurrence")
    return recurrence(a, x)  # type: ignore[return-value]


@recurrence.method(Evaluate)
def evaluated(self: Evaluate, static: Any, args: Sequence[Any], blocks: Any) -> Step:
    """A loop along the first axis. The axes behind it are those of the loops around, which run at once."""

    def run(env: Any) -> Sequence[Any]:
        a, x = [self.filled(arg.run(env), 1) for arg in args]
        y = np.array(x)
        for i in range(1, len(y)):
            y[i] += a[i] * y[i - 1]
        return (y,)

    return Step(run)


@recurrence.method(Reverse)
def reversed_(self: Reverse, static: Any, args: Sequence[Any], blocks: Any) -> Any:
    """``r[i] = y_bar[i] + a[i+1] r[i+1]``:  ``x_bar = r``,  ``a_bar[i] = y[i-1] r[i]``."""

    def rule(y_bar: az.Expr, y: az.Expr, a: az.Expr, x: az.Expr) -> Sequence[az.Expr]:
        later, before = az.pad(a, (0, 1))[1:], az.pad(y, (1, 0))[:-1]
        r = az.flip(recurrence(az.flip(later), az.flip(y_bar)))
        return [before * r, r]

    return self.by_rule(recurrence.row.name, static, args, rule)


@recurrence.method(Lowering)
def lowered(self: Lowering, op: Any, env: Any, destinations: Any) -> Sequence[Any]:
    """``for i < n: state = a[i] * state + x[i]; y[i] = state``, on all targets."""
    a, x = [self.atom(env, arg) for arg in op.args]
    y = destinations[0] or self.allocate("recurrence", op.types[0])
    state = self.declare("state", ir.Constant(0.0, element(op.types[0])))
    i = self.loop_variable("i", dims(op.types[0])[0])
    with self.over(i, y.extent(0)):
        before = ir.Load(a.buffer, a.place([i]), self.guarded(a, [i], dims(op.args[0].type))) * state
        self.assign(state, before + ir.Load(x.buffer, x.place([i])))
        self.emit(ir.Store(y.buffer, y.place([i]), state))
    return [y]


@az.program
def loss(a: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(linear_recurrence(az.sigmoid(a), x) ** 2)


def main() -> None:
    gradient = az.grad(loss, argnums=(0, 1))
    print(az.pretty(loss))
    print()
    print(az.pretty(gradient))
    a, x = np.linspace(-3.0, 3.0, 1000), np.cos(np.arange(1000.0))
    evaluated, compiled = az.evaluate(gradient)(a, x), az.compile(gradient)(a, x)
    off = max(float(np.max(abs(one - two))) for one, two in zip(evaluated, compiled, strict=True))
    print(f"\nloss {float(loss(a, x)):.6f}; the compiled gradient differs from the evaluated one by {off:.0e}")


if __name__ == "__main__":
    main()
