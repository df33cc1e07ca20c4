"""Requirements leave pure constructs: what is required of the elements of an array is a statement beside it.

What remains has no effect: it may be shared, moved and fused like everything else. Where it takes long to know whether
something holds, that is one more result of the construct, so that it is not computed again::

    y = for i < n: f = factor(a[i])                  y, ok = for i < n: f = factor(a[i])
                   require regular(f)         =>                        yield solve(f), regular(f)
                   yield solve(f)                    for i < n: require ok[i]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .constructs import Construct
from .graph import REQUIREMENT, Body, Node, Value, numbers, sources
from .types import bool_, element, is_data


def without_requirements(
    b: Any, row: Construct, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Body, ...]:
    """The bodies of a construct without requirements, which the builder ``b`` has beside it.

    A generate may have more results then.
    """
    checking = bodies if row.chooses else bodies[:1]
    if not any(body.statements for body in checking):
        return bodies
    for body in bodies:
        bound = frozenset([statement.number for statement in body.statements])
        dependent = any(not result.free.isdisjoint(bound) for result in body.results)
        if dependent or body.effects - {REQUIREMENT} or (body.statements and body not in checking):
            return bodies
    flags = _flags_of(bodies[0], frozenset(b.open)) if row.name == "generate" else {}
    if flags:
        [body] = bodies
        more = [node.results[k] for node, places in flags.items() for k in places]
        flagged = b.close(body.binders, (), (*body.results, *more), body.partial)
        _check_flags(b, args[0], body, flags, b.make(row.name, static, args, [flagged])[len(body.results) :])
        return (flagged,)
    if not bodies[0].results:
        return bodies
    if row.extents is None:
        b.make(row.name, static, args, [Body(b.fresh(), (), body.statements, ()) for body in checking])
    else:
        b.check(args[row.extents(static)], bodies[0].binders, bodies[0].statements)
    return tuple([b.close(body.binders, (), body.results, body.partial) for body in bodies])


def _check_flags(
    b: Any, extent: Value, body: Body, flags: Mapping[Node, Sequence[int]], stored: Sequence[Value]
) -> None:
    """The statements of a body over a loop, in which these results of its nodes are read."""

    def check(i: Value) -> list[Value]:
        arrays = iter(stored)
        known = {}
        for node, places in flags.items():
            read = {k: b.part(next(arrays), [i]) for k in places}
            known[node] = tuple([read.get(k, result) for k, result in enumerate(node.results)])
        made: list[Value] = b.instantiate(Body(b.fresh(), body.binders, body.statements, ()), [i], known)
        return made

    b.generate(extent, check)


def _flags_of(body: Body, scope: frozenset[int]) -> dict[Node, list[int]]:
    """The loops of a body of which its statements need Booleans alone, and which ones; in a scope with these binders.

    They are what is required of each element and takes long, such as that a matrix has been factorised.
    """
    bound = numbers(body.binders, ())
    used: dict[Node, set[int]] = {}
    stack, seen = list(body.statements), set[int]()
    while stack:
        node = stack.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        stack += [statement for inner in node.bodies for statement in inner.statements]
        for value in [*node.args, *[result for inner in node.bodies for result in inner.results]]:
            source = value.source
            if source is None or source.free.isdisjoint(bound):
                continue
            if source.free <= scope | bound and not source.effects and _takes_long(source):
                used.setdefault(source, set()).add(value.position)
            else:
                stack.append(source)
    places = {node: sorted(positions) for node, positions in used.items()}
    return {
        node: positions
        for node, positions in places.items()
        if all(is_data(each := node.results[k].type) and element(each) is bool_ for k in positions)
    }


def _takes_long(node: Node) -> bool:
    """Whether a node has a loop in which more is done than to read elements and compute with them."""
    if not node.row.control:
        return node.row.loops
    return any(_takes_long(inner) for body in node.bodies for inner in _inside(body))


def _inside(body: Body) -> Iterator[Node]:
    """The nodes of a body that vary with what it binds, but for those in bodies inside."""
    bound = numbers(body.binders, body.statements)
    stack, seen = [*sources(body.results), *body.statements], set[int]()
    while stack:
        node = stack.pop()
        if node.number not in seen and not node.free.isdisjoint(bound):
            seen.add(node.number)
            stack += sources(node.args)
            yield node
