"""Alpha-equivalence of bodies in the graph: those that differ only in which nodes their binders are have one key.

    generate(i < n: x[i] + 1)        generate(j < n: x[j] + 1)        one body, so one node

A body is a *closure*: code with holes, and the values of outer scopes that stand in these (as in closure conversion).
The code is numbered, so that a loop in a loop is its number and its values, and is not looked into again for each loop
around it.

    generate(i < n: sum(j < m: x[i] * y[j]))     code of the sum: sum(j < m: _ * _[j]), for x[i] and y

A body with statements is equal to itself alone: what has effects is never shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph import Body, Node, Value


def code_and_values(binders: tuple[Value, ...], results: tuple[Value, ...]) -> tuple[tuple[Any, ...], list[Value]]:
    """A key that bodies of equal code share, and the values from outside that the code is for.

    Code is the nodes that mention the binders, numbered in depth-first order.
    """
    bound = {binder.number: -1 - k for k, binder in enumerate(binders)}
    numbering: dict[int, int] = {}
    nodes: list[tuple[Any, ...]] = []
    holes: dict[int, int] = {}
    values: list[Value] = []

    def reference(value: Value) -> tuple[int, int]:
        if value.number in bound:
            return (bound[value.number], 0)
        if value.source is not None and value.source.number in numbering:
            return (numbering[value.source.number], 1 + value.position)
        if not value.free:
            return (value.number, -1)
        if value.number not in holes:
            holes[value.number] = len(values)
            values.append(value)
        return (holes[value.number], -2)

    def body_key(body: Body) -> tuple[Any, ...] | int:
        return body.number if body.code is None else (body.code, tuple(map(reference, body.values)))

    stack: list[tuple[Node, bool]] = []

    def push(values: Sequence[Value]) -> None:
        stack.extend([(value.source, False) for value in reversed(values) if value.source is not None])

    push(results)
    while stack:
        node, ready = stack.pop()
        if node.number in numbering or node.free.isdisjoint(bound):
            continue
        if not ready:
            stack.append((node, True))
            for body in reversed(node.bodies):
                push(body.values)
            push(node.args)
        else:
            key = (node.op, node.static, tuple(map(reference, node.args)), tuple(map(body_key, node.bodies)))
            numbering[node.number] = len(nodes)
            nodes.append(key)
    return (tuple([binder.type for binder in binders]), tuple(map(reference, results)), tuple(nodes)), values
