"""Alpha-equivalence of bodies in the graph: those that differ only in which nodes their binders are have one key.

    generate(i < n: x[i] + 1)        generate(j < n: x[j] + 1)        one body, so one node

A body with statements is equal to itself alone: what has effects is never shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph import Body, Node, Value


def alpha_key(binders: tuple[Value, ...], results: tuple[Value, ...]) -> tuple[Any, ...]:
    """A key that equal bodies share: the nodes that mention the binders, numbered in depth-first order."""
    bound = {binder.number: -1 - k for k, binder in enumerate(binders)}
    inside = set(bound)
    numbering: dict[int, int] = {}
    nodes: list[tuple[Any, ...]] = []

    def reference(value: Value) -> tuple[int, int]:
        if value.number in bound:
            return (bound[value.number], 0)
        if value.source is not None and value.source.number in numbering:
            return (numbering[value.source.number], 1 + value.position)
        return (value.number, -1)

    def is_outer(body: Body) -> bool:
        return bool(body.statements) or body.free.isdisjoint(inside)

    def body_key(body: Body) -> tuple[Any, ...] | int:
        if is_outer(body):
            return body.number
        return (tuple([binder.type for binder in body.binders]), tuple(map(reference, body.results)))

    stack: list[tuple[Node, int]] = []

    def push(values: Sequence[Value]) -> None:
        stack.extend([(value.source, 0) for value in reversed(values) if value.source is not None])

    push(results)
    while stack:
        node, stage = stack.pop()
        if node.number in numbering or node.free.isdisjoint(inside):
            continue
        if stage == 0:  # what it needs from outside its bodies, then what is in them, then the node
            stack.append((node, 1 if node.bodies else 2))
            push(node.args)
        elif stage == 1:
            stack.append((node, 2))
            for body in node.bodies:
                if not is_outer(body):
                    for binder in body.binders:
                        bound.setdefault(binder.number, -1 - len(bound))
                        inside.add(binder.number)
                    push(body.results)
        else:
            key = (node.op, node.static, tuple(map(reference, node.args)), tuple(map(body_key, node.bodies)))
            numbering[node.number] = len(nodes)
            nodes.append(key)
    return (tuple([binder.type for binder in binders]), tuple(map(reference, results)), tuple(nodes))
