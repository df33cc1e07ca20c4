"""Redundant-check elimination: requirements that are implied by tests around them, or loops before, are dropped.

A test that compares integers says, in either branch, that certain differences are not negative. A requirement whose
own comparisons follow from these, and from the ranges of loop variables, always holds:

    for i < n: if i > 0: require 0 <= i - 1        i > 0 says 0 <= i - 1, and so nothing is left to require

So does one that follows from what a loop before has required of the same iterations, where two arrays are read at the
same places for example:

    for i < n: require 0 <= p[i] < m
    for i < n: require 0 <= p[i] < m + 1           nothing is left

What follows is found by linear arithmetic: ``goal >= 0`` holds where ``goal - fact`` is proved not to be negative,
for one fact or for the sum of two. Integers wrap around, which this arithmetic does not: a test says something only
where what it compares is *exact*, such as a size, a loop variable, a sum of these, or any number by itself; another
integer is nothing but itself. What is required may also be an integer that is proved to lie between two exact ones:
it has not wrapped around then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

from ...core.builder import Builder
from ...core.dims import Compound, Dim, DimAtom, Name, parts_of
from ...core.graph import REQUIREMENT, Body, Node, Value, numbers
from ...core.indexing import extents_of
from ...core.ranges import never_negative
from .leaves import with_statements

# A proof looks at so many facts.
MOST = 8
# Sums of so many sizes and loop variables do not wrap around.
FEW = 1 << 16

# A statement, and what its variables stand for: it has been run for these.
Run = tuple[Node, Mapping[Value, Value]]

# What a comparison of two integers says of their difference ``y - x`` where it holds, and where it does not.
DIFFERENCES: dict[str, tuple[Callable[[Dim], list[Dim]], Callable[[Dim], list[Dim]]]] = {
    "less": (lambda d: [d - 1], lambda d: [-d]),
    "less_equal": (lambda d: [d], lambda d: [-d - 1]),
    "greater": (lambda d: [-d - 1], lambda d: [d]),
    "greater_equal": (lambda d: [-d], lambda d: [d - 1]),
    "equal": (lambda d: [d, -d], lambda d: []),
    "not_equal": (lambda d: [], lambda d: [d, -d]),
}


def without_implied(b: Builder, test: Value, bodies: Sequence[Body]) -> list[Body]:
    """The branches of a cond without the requirements that its test implies."""
    return [
        _pruned(b, body, facts) if REQUIREMENT in body.effects and (facts := known(b, test, holds)) else body
        for body, holds in zip(bodies, (True, False), strict=True)
    ]


def without_repeated(b: Builder, extent: Value, body: Body) -> Body:
    """The body of a loop without what the loops before it have required of the same iterations."""
    if REQUIREMENT not in body.effects:
        return body
    before: list[Run] = [(node, {}) for scope in b.scopes for node in scope.statements[-MOST:]]
    return _unmet(b, extent, body, before)


def _unmet(b: Builder, extent: Value, body: Body, before: Sequence[Run]) -> Body:
    """A loop's body without the requirements that are met when some statements have been run."""
    held = list(_iterations(b, extent, body.binders[0], before))
    if not held:
        return body
    tests = [b.substitute([node.args[0]], dict(values))[0] for node, values in held if node.op == "require"]
    parts = {part.number for test in tests for part in _conjuncts(test)}
    facts = [fact for test in tests for fact in known(b, test, True)]
    statements: list[Node] = []
    for node in body.statements:
        if node.op == "require":
            test = node.args[0]
            met = parts.issuperset([part.number for part in _conjuncts(test)]) or implied(b, test, facts)
            statements += [] if met else [node]
        elif _is_loop(node):
            inner = _unmet(b, node.args[0], node.bodies[0], held)
            statements += with_statements(b, node, [inner.statements])
        else:
            statements.append(node)
    return _with(b, body, statements)


def _iterations(b: Builder, extent: Value, binder: Value, before: Sequence[Run]) -> Iterator[Run]:
    """What the loops among some statements have run, where they have this extent, for a value of their variable.

    What depends on results of other statements, which were those of that run, is left out.
    """
    for node, values in before:
        if _is_loop(node) and b.substitute([node.args[0]], dict(values))[0].dim == extent.dim:
            [body] = node.bodies
            inside, bound = {**values, body.binders[0]: binder}, numbers((), body.statements)
            yield from [(statement, inside) for statement in body.statements if statement.free.isdisjoint(bound)]


def _is_loop(node: Node) -> bool:
    """Whether a statement is a loop that requires something and makes nothing."""
    return node.op == "generate" and not node.results and REQUIREMENT in node.effects


def known(b: Builder, test: Value, holds: bool) -> list[Dim]:
    """Dims that are not negative where a test holds, or where it does not."""
    node = test.source
    if node is None or node.op != "primitive":
        return []
    name = node.static[0].name
    if name == "logical_not":
        return known(b, node.args[0], not holds)
    if name == ("logical_and" if holds else "logical_or"):
        return [fact for arg in node.args for fact in known(b, arg, holds)]
    sides = _compared(test)
    if sides is None:
        return []
    x, y = (_machine(b, side) for side in sides)
    return DIFFERENCES[name][not holds](y - x)


def implied(b: Builder, test: Value, facts: Sequence[Dim]) -> bool:
    """Whether a test holds where no fact is negative."""
    parts = _conjuncts(test)
    if all(_holds(b, part, facts, partial(_machine, b)) for part in parts):
        return True
    return all(_holds(b, part, facts, lambda dim: dim) for part in parts) and _between(b, parts)


def _conjuncts(test: Value) -> list[Value]:
    node = test.source
    if node is None or node.op != "primitive" or node.static[0].name != "logical_and":
        return [test]
    return [part for arg in node.args for part in _conjuncts(arg)]


def _compared(test: Value) -> tuple[Dim, Dim] | None:
    """The two integers that a test compares."""
    node = test.source
    if node is None or node.op != "primitive" or node.static[0].name not in DIFFERENCES:
        return None
    x, y = node.args[0].dim, node.args[1].dim
    return None if x is None or y is None else (x, y)


def _holds(b: Builder, test: Value, facts: Sequence[Dim], meaning: Callable[[Dim], Dim]) -> bool:
    """Whether a test holds where no fact is negative, if what it compares means these dims."""
    node, sides = test.source, _compared(test)
    if node is None or node.op != "primitive":
        return test.literal is True
    if node.static[0].name == "logical_or":
        return any(implied(b, arg, facts) for arg in node.args)
    if sides is None:
        return False
    goals = DIFFERENCES[node.static[0].name][0](meaning(sides[1]) - meaning(sides[0]))
    return bool(goals) and all(_follows(b, goal, facts) for goal in goals)


def _between(b: Builder, parts: Sequence[Value]) -> bool:
    """Whether each integer of these comparisons, all of which hold, is exact or stands between two that are."""
    below: set[Dim] = set()  # those that an exact one is above
    above: set[Dim] = set()
    for part in parts:
        node, sides = part.source, _compared(part)
        if node is not None and sides is not None:
            small, large = sides if node.static[0].name.startswith("less") else sides[::-1]
            below |= {small} if is_exact(b, large) else set()
            above |= {large} if is_exact(b, small) else set()
    compared = {side for part in parts for side in _compared(part) or ()}
    return all(is_exact(b, dim) or dim in below & above for dim in compared)


def _machine(b: Builder, dim: Dim) -> Dim:
    """The integer that a dim is computed as: the dim where it is exact, else an unknown number of its own."""
    return dim if is_exact(b, dim) else Dim.atom(Compound("wrapped", dim, Dim.of(-1)))


def few_of_each(dim: Dim) -> bool:
    """Whether few of each variable are added up, and a small number."""
    return all(abs(c) <= FEW and len(monomial) <= 1 for monomial, c in dim.terms)


def is_exact(b: Builder, dim: Dim) -> bool:
    """Whether a dim is a number by itself, or a sum of sizes and loop variables, which does not wrap around."""
    if dim.constant is not None:
        return True
    monomial, factor = dim.terms[0]
    parts = [part for atoms, _ in dim.terms for atom in atoms for part in parts_of(atom)]
    if not all(is_exact(b, part) for part in parts):
        return False
    return (len(dim.terms) == len(monomial) == factor == 1) or all(_ends(b, dim))


def _ends(b: Builder, dim: Dim) -> tuple[bool, bool]:
    """Whether a dim is no further below zero, and above it, than a sum of a few sizes is."""
    extents, below, above = extents_of(b), True, True
    for atoms, c in dim.terms:
        ends = [_ends_of(b, atom) for atom in atoms if not isinstance(atom, Name) and extents(atom) is None]
        if abs(c) > FEW:
            return False, False
        if len(atoms) > 1:
            ends = [(all(each), all(each)) for each in ends]
        for low, high in ends:
            below, above = below and (low if c > 0 else high), above and (high if c > 0 else low)
    return below, above


def _ends_of(b: Builder, atom: DimAtom) -> tuple[bool, bool]:
    """The same of an atom that is neither a size nor a loop variable."""
    if not isinstance(atom, Compound) or atom.operator not in ("min", "max", "//"):
        return False, False
    (low, high), (other_low, other_high) = _ends(b, atom.left), _ends(b, atom.right)
    if atom.operator == "min":
        return low and other_low, high or other_high
    if atom.operator == "max":
        return low or other_low, high and other_high
    return (low and high,) * 2


def _follows(b: Builder, goal: Dim, facts: Sequence[Dim]) -> bool:
    few = facts[-MOST:]
    extents = extents_of(b)
    sums = [Dim({}), *few, *[x + y for x, y in combinations(few, 2)]]
    return any(never_negative(goal - fact, extents) for fact in sums)


def _pruned(b: Builder, body: Body, facts: Sequence[Dim]) -> Body:
    return _with(b, body, [new for old in body.statements for new in _left(b, old, facts)])


def _with(b: Builder, body: Body, statements: Sequence[Node]) -> Body:
    """A body with these statements, the same one if they are its own."""
    if len(statements) == len(body.statements) and all(x is y for x, y in zip(statements, body.statements)):
        return body
    return b.close(body.binders, tuple(statements), body.results, body.partial)


def _left(b: Builder, statement: Node, facts: Sequence[Dim]) -> list[Node]:
    """What is left of a statement."""
    if statement.op == "require":
        return [] if implied(b, statement.args[0], facts) else [statement]
    if not statement.row.control or statement.results or REQUIREMENT not in statement.effects:
        return [statement]
    inner = []
    for body, holds in zip(statement.bodies, (True, False), strict=False):
        more = known(b, statement.args[0], holds) if statement.op == "cond" else []
        inner.append([new for old in body.statements for new in _left(b, old, [*facts, *more])])
    return with_statements(b, statement, inner)
