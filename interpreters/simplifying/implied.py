"""Requirements that are implied by the tests around them are dropped.

A test that compares integers says, in either branch, that certain differences are not negative. A requirement whose
own comparisons follow from these, and from the ranges of loop variables, always holds:

    for i < n: if i > 0: require 0 <= i - 1        i > 0 says 0 <= i - 1, and so nothing is left to require

What follows is found by linear arithmetic: ``goal >= 0`` holds where ``goal - fact`` is proved not to be negative,
for one fact or for the sum of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from ...core.builder import Builder
from ...core.dims import Dim, never_negative
from ...core.graph import REQUIREMENT, Body, Node, Value
from ...core.indexing import extents_of
from .leaves import with_statements

# A proof looks at so many facts.
MOST = 8

# What a comparison of two integers says of their difference ``y - x`` where it holds, and where it does not.
_DIFFERENCES: dict[str, tuple[Callable[[Dim], list[Dim]], Callable[[Dim], list[Dim]]]] = {
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
        _pruned(b, body, facts) if REQUIREMENT in body.effects and (facts := known(test, holds)) else body
        for body, holds in zip(bodies, (True, False), strict=True)
    ]


def known(test: Value, holds: bool) -> list[Dim]:
    """Dims that are not negative where a test holds, or where it does not."""
    node = test.source
    if node is None or node.op != "primitive":
        return []
    name = node.static[0].name
    if name == "logical_not":
        return known(node.args[0], not holds)
    if name == ("logical_and" if holds else "logical_or"):
        return [fact for arg in node.args for fact in known(arg, holds)]
    if name not in _DIFFERENCES or node.args[0].dim is None or node.args[1].dim is None:
        return []
    return _DIFFERENCES[name][not holds](node.args[1].dim - node.args[0].dim)


def implied(b: Builder, test: Value, facts: Sequence[Dim]) -> bool:
    """Whether a test holds where no fact is negative."""
    node = test.source
    if node is None or node.op != "primitive":
        return test.literal is True
    name = node.static[0].name
    if name in ("logical_and", "logical_or"):
        return (all if name == "logical_and" else any)([implied(b, arg, facts) for arg in node.args])
    if name not in _DIFFERENCES or node.args[0].dim is None or node.args[1].dim is None:
        return False
    goals = _DIFFERENCES[name][0](node.args[1].dim - node.args[0].dim)
    return bool(goals) and all(_follows(b, goal, facts) for goal in goals)


def _follows(b: Builder, goal: Dim, facts: Sequence[Dim]) -> bool:
    few = facts[-MOST:]
    extents = extents_of(b)
    sums = [Dim({}), *few, *[x + y for x, y in combinations(few, 2)]]
    return any(never_negative(goal - fact, extents) for fact in sums)


def _pruned(b: Builder, body: Body, facts: Sequence[Dim]) -> Body:
    statements = [new for old in body.statements for new in _left(b, old, facts)]
    if len(statements) == len(body.statements) and all(x is y for x, y in zip(statements, body.statements)):
        return body
    return b.close(body.binders, tuple(statements), body.results, body.partial)


def _left(b: Builder, statement: Node, facts: Sequence[Dim]) -> list[Node]:
    """What is left of a statement."""
    if statement.op == "require":
        return [] if implied(b, statement.args[0], facts) else [statement]
    if statement.op not in ("generate", "cond") or statement.results or REQUIREMENT not in statement.effects:
        return [statement]
    inner = []
    for body, holds in zip(statement.bodies, (True, False), strict=False):
        more = known(statement.args[0], holds) if statement.op == "cond" else []
        inner.append([new for old in body.statements for new in _left(b, old, [*facts, *more])])
    return with_statements(b, statement, inner)
