"""Which mode a Jacobian is derived by: the one that costs less, counted when it has been derived by both.

The number of directions says little of what they cost: what directions share is computed once, and many need no loop
(``directions.py``). So both programs are simplified and counted (``interpreters/cost``): operations, reads and writes
together, which are polynomials in the sizes. Where one of them is less for all sizes, or nearly, it is the Jacobian.
Else the program holds both, as a choice by sizes, of which only the branch that a call takes is compiled:

    if 4*n**2 + 12*n <= 2*k*n + n**2: columns, by forward mode
    else:                             rows, by reverse mode

What sorts has logarithms in its cost. A choice by sizes takes them for a number of rounds, the one with which it
chooses best at the sizes looked at.

Rows that are accumulated count half as much again: they take longer than is counted, as they are not made in lanes.
That is so at the top of a program; inside of a derivative, or of a loop, the mode with fewer directions is taken then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from ..core import terms
from ..core.builder import Builder
from ..core.dims import Dim
from ..core.graph import Body, Value
from ..core.language import Unsupported
from ..core.placement import to_block
from ..core.types import bool_, dims
from ..interpreters.cost import Symbolic
from ..interpreters.cost.amounts import Amount
from ..interpreters.simplify import simplify

# Programs of more operations are not derived twice.
LONG = 2000
# What is nearly as little: so many times, or so much more.
NEARLY, LITTLE = 1.05, 64
# Sizes at which costs are compared.
SIZES = (1, 4, 16, 256, 1 << 14)
# So many times as much as it is counted takes a program with rows that are accumulated.
ACCUMULATED = Fraction(3, 2)
# At most so many sizes are.
MOST = 4
# Rounds of a logarithm are fewer, at these sizes.
ROUNDS = 16

Derive = Callable[[], Sequence[Value]]


def by_cost(b: Builder, block: terms.Block, fewer: str, ways: Mapping[str, Derive]) -> Sequence[Value]:
    """The results of the way that costs less, or of a choice by sizes; of the one with ``fewer`` directions if unknown.

    Of the only way, if the other mode is refused, as where a rule that a user gives serves one mode alone.
    ``block`` is what is differentiated.
    """
    if _length(block) > LONG:
        return ways[fewer]()
    bodies, errors = dict[str, Body](), dict[str, Unsupported]()
    for mode, derive in ways.items():
        try:
            bodies[mode] = b.body([], derive)
        except Unsupported as error:
            errors[mode] = error
    if errors:
        if not bodies:
            raise errors[fewer]
        [only] = bodies.values()
        return b.instantiate(only, [])
    sizes = {name for type in block.binders for dim in dims(type) for name in dim.names()}
    works = {mode: _work(body, sizes) for mode, body in bodies.items()}
    forward, reverse = works["forward"], works["reverse"]
    if forward is None or reverse is None:
        return b.instantiate(bodies[fewer], [])
    names = sorted(forward.names() | reverse.names())
    better = _better(forward, reverse, names) if len(names) <= MOST else fewer
    if better is None and len(b.scopes) > 1:
        better = fewer
    if better is not None:
        return b.instantiate(bodies[better], [])
    test = _at_most(b, *_without_logarithms(forward, reverse, names))
    return b.emit("cond", (), [test], [bodies["forward"], bodies["reverse"]])


def cheaper_way(b: Builder, block: terms.Block, plain: Derive, other: Derive) -> Sequence[Value]:
    """The results of the other way in one mode, if it costs less than the plain one at all sizes, and not only nearly.

    Where sizes would decide, the other one is taken, and the plain one where costs are not known.
    """
    if _length(block) > LONG:
        return plain()
    bodies = [b.body([], derive) for derive in (plain, other)]
    sizes = {name for type in block.binders for dim in dims(type) for name in dim.names()}
    first, second = [_work(body, sizes, Fraction(1)) for body in bodies]
    if first is None or second is None:
        return b.instantiate(bodies[0], [])
    names = sorted(first.names() | second.names())
    taken = "forward" if len(names) > MOST else _better(first, second, names)
    return b.instantiate(bodies[0 if taken == "forward" else 1], [])


def _length(block: terms.Block) -> int:
    return sum([1 + sum(map(_length, operation.blocks)) for operation in block.bindings])


def _work(body: Body, sizes: Collection[str], accumulated: Fraction = ACCUMULATED) -> Amount | None:
    """What a body costs with all that it needs, by these sizes; None if it depends on anything else."""
    block, _ = to_block(_variables(body), body.results, body.statements)
    try:
        block = simplify(block)
        work = Amount.of(Symbolic(block).total(block.names).work)
        work = work * accumulated if _accumulates(block, False) else work
    except Unsupported:
        return None
    return work if work.names() <= set(sizes) else None


def _accumulates(block: terms.Block, looped: bool) -> bool:
    """Whether arrays are accumulated in a loop that makes arrays."""
    return any(
        (looped and operation.op == "accumulate")
        or any(_accumulates(inner, looped or operation.op == "generate") for inner in operation.blocks)
        for operation in block.bindings
    )


def _variables(body: Body) -> list[Value]:
    """The variables around a body that it depends on."""
    found: dict[int, Value] = {}
    seen: set[int] = set()
    waiting = [*body.results, *[arg for statement in body.statements for arg in statement.args]]
    nodes = list(body.statements)
    while waiting or nodes:
        if waiting:
            value = waiting.pop()
            if value.source is not None:
                nodes.append(value.source)
            elif value.number in body.free:
                found[value.number] = value
            continue
        node = nodes.pop()
        if node.number not in seen:
            seen.add(node.number)
            waiting += node.args
            for inner in node.bodies:
                waiting += inner.results
                nodes += inner.statements
    return list(found.values())


def _better(forward: Amount, reverse: Amount, names: Sequence[str]) -> str | None:
    """The mode that costs less, or little more, at all sizes that are looked at; None if sizes decide.

    Forward mode, if both are: it has no accumulators.
    """
    never = set[str]()
    for _, costs in _sampled(forward, reverse, names):
        for mode, own, other in (("forward", *costs), ("reverse", *costs[::-1])):
            if own > NEARLY * other + LITTLE:
                never.add(mode)
    left = [mode for mode in ("forward", "reverse") if mode not in never]
    return left[0] if left else None


def _without_logarithms(forward: Amount, reverse: Amount, names: Sequence[str]) -> tuple[Amount, Amount]:
    """Both amounts as polynomials, which choose at most a little worse than they do."""

    def loses(rounds: int) -> Fraction:
        """How many times as much as the other mode costs the one that is chosen, where that is worst."""
        simple = [amount.with_rounds(rounds) for amount in (forward, reverse)]
        worst = Fraction(0)
        for sizes, costs in _sampled(forward, reverse, names):
            first = simple[0].evaluate(sizes) <= simple[1].evaluate(sizes)
            taken, other = costs if first else costs[::-1]
            worst = max(worst, Fraction(taken + LITTLE, other + LITTLE))
        return worst

    best = min(range(ROUNDS), key=loses)
    return forward.with_rounds(best), reverse.with_rounds(best)


def _sampled(
    forward: Amount, reverse: Amount, names: Sequence[str]
) -> Iterator[tuple[Mapping[str, int], tuple[int, int]]]:
    """The sizes that are looked at, and what both cost there."""
    for values in itertools.product(SIZES, repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        costs = forward.evaluate(sizes), reverse.evaluate(sizes)
        if min(costs) >= 0:  # else no sizes of a call
            yield sizes, costs


def _at_most(b: Builder, first: Amount, second: Amount) -> Value:
    """Whether one amount is at most another one: no number that is subtracted is left on either side."""
    difference = first - second
    scale = math.lcm(*[c.denominator for _, c in difference.terms])
    sides: list[dict[tuple[object, ...], int]] = [{}, {}]
    for monomial, c in difference.terms:
        sides[c < 0][monomial] = abs(int(c * scale))
    if not all(sides):
        return b.literal(not sides[0], bool_)
    return b.primitive("less_equal", *[b.dim(Dim(side)) for side in sides])  # type: ignore[arg-type]
