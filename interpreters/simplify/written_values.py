"""Written values: what code behind a loop would compute as a step did, and the step has written, is read.

The return sweep of a loop runs its steps again for their derivatives. Of an array that is written once
(``write_once.py``) the last state has all that the steps wrote: a column of a Cholesky factor, a row of a network's
hidden states. So what a step made of a long sum need not be made again::

    s = loop j < n with s = x:                          ...
      next update(s, j, tanh(f(s, j)))                  loop j < n with t = s_bar:
    loop j < n with t = s_bar:                   =>       p = n - 1 - j
      p = n - 1 - j                                       ... t[p] * (1 - s[p] ** 2) ...
      ... t[p] * (1 - tanh(f(s before p, p)) ** 2) ...

What is written under a test is read where the test holds. Both are the same if the step's expression, with the step and
the place of the reader in it and with what was stored of the states, is one that the reader has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim, DimAtom, Opaque
from ...core.graph import Body, Node, Value, union
from ...core.ranges import index_in_range
from ...core.types import dims, i64
from .costs import is_costly_value
from .loop_rewriting import Pending, Readers, source
from .rules import rewrite
from .value_numbering import made_of, operands


@dataclass(frozen=True)
class _Written:
    """What a step writes to a place of a state, under some tests."""

    value: Value
    tests: tuple[Value, ...]  # at most one
    holds: bool  # or does not
    places: tuple[Value, ...]
    loops: Sequence[tuple[Value, Value]]  # over the places of a step, by variable and extent


# What is read in the place of nodes in the branches of choices, by the numbers of the choices.
Chosen = dict[int, tuple[dict[Node, Value], dict[Node, Value]]]


def read_as_written(
    b: Builder, loop: Pending, number: int, output: Value, readers: Readers, chosen: Chosen
) -> dict[int, Replacement]:
    """What is read in the place of nodes that compute what a loop has written to a state, by the numbers of these.

    ``output`` is what the loop stores of the state, before each step. ``chosen`` has what is read of other states in
    the branches of choices: several may be written under one test.
    """
    step, *states = loop.node.bodies[0].binders
    state, written = states[number], _written(loop, number)
    if written is None:
        return {}
    parts = [written.value, *written.places, *written.tests]
    reads = _reads(parts, state)
    inside = frozenset([step.number, state.number, *[variable.number for variable, _ in written.loops]])
    if reads is None or not all(part.free <= loop.known | inside for part in parts):
        return {}
    replaced: dict[int, Replacement] = {}
    with _simplifying(b, readers):
        for at, places in dict.fromkeys(_places(b, loop, readers, output, written)):
            variables = dict(zip([each for each, _ in written.loops], places, strict=True))
            stored = {read.number: partial(_stored, output, at, read) for read in reads}
            image = Substitution(b, {step: at, state: output, **variables}, None, (), stored)
            found, *rest = image.values(parts)
            if found.source is None or found.source.number not in readers.nodes:
                continue
            last = b.part(loop.results[number], rest[: len(written.places)])
            if written.tests:
                replaced.update(_where(b, readers, chosen, found.source, last, rest[-1], written.holds))
            else:
                replaced[found.source.number] = partial(_made, [last])
    return replaced


def _places(
    b: Builder, loop: Pending, readers: Readers, output: Value, written: _Written
) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """The steps and places at which a reader may compute what is written: those that nodes like it depend on."""
    indices = {number: each for number, each in readers.loops.items() if each is not None}
    node, count = source(written.value), loop.node.args[0].dim
    extents: dict[DimAtom, Dim | None] = {Opaque(number): each.extent.dim for number, each in indices.items()}
    read = dict.fromkeys([each.args[1] for each in readers.reads(output) or ()])
    steps = [x for x in read if x.dim is not None and count is not None and index_in_range(x.dim, count, extents.get)]
    for alike in readers.nodes.values():
        if alike.op == node.op and alike.static == node.static and output.number in alike.free:
            loops = [each for number, each in indices.items() if number in alike.free]
            ways = [
                [x.variable for x in loops if x.extent.dim == extent.dim]
                if extent.literal != 1
                else [b.literal(0, i64)]
                for _, extent in written.loops
            ]
            for at in steps:
                if at.free & readers.loops.keys() <= alike.free:
                    yield from [(at, places) for places in product(*ways)]


@contextmanager
def _simplifying(b: Builder, readers: Readers) -> Iterator[None]:
    """What is emitted meanwhile is simplified as it was where the readers are, whose loops are open there."""
    opened = {loop.variable.number for loop in readers.loops.values() if loop is not None} - b.open
    b.open |= opened
    b.rule, outer = rewrite, b.rule
    try:
        yield
    finally:
        b.rule = outer
        b.open -= opened


def _where(
    b: Builder, readers: Readers, chosen: Chosen, node: Node, read: Value, test: Value, holds: bool
) -> Iterator[tuple[int, Replacement]]:
    """The choices by a test, with a read in the place of a node in the branch where it is as it was for the step."""
    taken = 0 if holds else 1
    for choice in readers.nodes.values():
        branch = choice.bodies[taken] if choice.op == "cond" and choice.args[0] is test else None
        if branch is None or branch.statements or all(each is not node for each in made_of(branch.results, node.free)):
            continue
        reads = chosen.setdefault(choice.number, ({}, {}))
        reads[taken][node] = read
        bodies = [_with_reads(b, readers, *both) for both in zip(choice.bodies, reads, strict=True)]
        yield choice.number, partial(_made, b.make("cond", (), choice.args, bodies))


def _with_reads(b: Builder, readers: Readers, branch: Body, reads: dict[Node, Value]) -> Body:
    """A branch with reads in the place of nodes."""
    if not reads:
        return branch
    free = union([node.free for node in reads])
    variables = [loop.variable for number, loop in readers.loops.items() if loop is not None and number in free]
    replaced = {node.number: partial(_read_alone, read) for node, read in reads.items()}
    results = Substitution(b, {each: each for each in variables}, None, (), replaced).values(branch.results)
    return b.close((), (), tuple(results))


def _read_alone(read: Value, level: Substitution) -> tuple[Value, ...]:
    return (read,)


def _made(values: Sequence[Value], level: Substitution) -> tuple[Value, ...]:
    return tuple(level.values(values))


def _written(loop: Pending, number: int) -> _Written | None:
    """What a loop writes to a state in each step, if that is worth reading, surely in range, and written once."""
    body = loop.node.bodies[0]
    following = body.results[number]
    scatter = source(following)
    count = scatter.static[1]
    inner, arrays = scatter.bodies[0], len(scatter.args) - count
    places, value = inner.results[:-arrays], inner.results[len(inner.results) - arrays + following.position]
    tests, holds = tuple[Value, ...](), True
    loops = list(zip(inner.binders, scatter.args[:count], strict=True))
    if not scatter.static[0] and any(extent.literal != 1 for _, extent in loops):
        return None
    while value.source is not None and (value.source.op == "generate" or (value.source.op == "cond" and not tests)):
        results = [branch.results[value.position] for branch in value.source.bodies]
        if value.source.op == "generate":
            loops.append((value.source.bodies[0].binders[0], value.source.args[0]))
            places, (value,) = (*places, loops[-1][0]), results
            continue
        tests, (then, orelse) = value.source.args, results
        holds = then.literal is None
        if holds is (orelse.literal is None):
            return None
        value = then if holds else orelse
    extents: dict[DimAtom, Dim | None] = {
        Opaque(variable.number): extent.dim for variable, extent in [(body.binders[0], loop.node.args[0]), *loops]
    }
    for place, size in zip(places, dims(following.type), strict=False):
        if place.dim is None or not index_in_range(place.dim, size, extents.get):
            return None
    varying = frozenset([binder.number for binder in (*body.binders, *[variable for variable, _ in loops])])
    worth = any(map(is_costly_value, made_of([value], varying)))
    return _Written(value, tests, holds, places, loops) if worth and value.source is not None else None


def _reads(values: Sequence[Value], state: Value) -> list[Node] | None:
    """The reads of elements of a state that values are made of; None if there are other uses."""
    users = [node for node in made_of(values, frozenset([state.number])) if state in operands(node)]
    return users if all(node.op == "index" and state not in node.args[1:] for node in users) else None


def _stored(output: Value, at: Value, read: Node, level: Substitution) -> tuple[Value, ...]:
    """What was stored of the state that a step reads."""
    return (level.builder.index(output, [at, *level.values(read.args[1:])]),)
