"""Arrays that a loop writes once: where no step writes what another one did, the last state has all states in it.

Before step p, an element that step t writes is what it will be at the end if t < p, and what it was at the beginning if
not. So what reads earlier states, as the return sweep does, needs none of them stored.

    s, h = loop j < n with s = x:              s = loop j < n with s = x:
      next update(s, (:, j), f(s, j))            next update(s, (:, j), f(s, j))
      yield s                                  ... s[i, k] if k < p else x[i, k] ...
    ... h[p, i, k] ...

That is so where the index of an axis, of all that a step writes, is the step plus something constant, or that minus the
step: the columns of a Cholesky factor, or the unknowns of a triangular system from the last to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...core.builder import Builder, Replacement, Substitution
from ...core.graph import Node, Value
from ...core.types import rank
from .loop_rewriting import LoopRewriting, Loops, Pending, Readers
from .written_values import Chosen, read_as_written


class WriteOnce(LoopRewriting):
    """Rebuilds a term with loops that do not store the states of arrays that are written once."""

    def change(self, loops: Loops, results: Sequence[Value], statements: list[Node]) -> dict[int, Replacement]:
        readers = Readers(loops[0].known, results, [*statements, *[loop.node for loop in loops]])
        replaced: dict[int, Replacement] = {}
        chosen: Chosen = {}
        for loop in loops:
            count = len(loop.node.args) - 1
            dropped: list[int] = []
            for position, output in enumerate(loop.outputs, count):
                history, reads = _history(self.builder, loop, position), readers.reads(output)
                if history is not None and reads is not None:
                    if not history.after:
                        number = history.number
                        replaced.update(read_as_written(self.builder, loop, number, output, readers, chosen))
                    dropped.append(position)
                    replaced.update({node.number: partial(_read, loop, history, node.args[1:]) for node in reads})
            if dropped:
                self.drop(loops, loop, dropped, [], statements)
        return replaced


@dataclass(frozen=True)
class _History:
    """What a loop stores of the state of a number: step t writes it at ``offset`` + t of an axis, or - t ``backwards``.

    It is stored before the step, or ``after`` it.
    """

    number: int
    axis: int
    offset: Value
    backwards: bool
    after: bool


def _history(b: Builder, loop: Pending, position: int) -> _History | None:
    """What an output of a loop is, if it is the history of an array that is written once."""
    body = loop.node.bodies[0]
    step, *states = body.binders
    stored = body.results[position]
    for number, (state, following) in enumerate(zip(states, body.results, strict=False)):
        scatter = following.source
        if stored not in (state, following) or scatter is None or scatter.op != "scatter":
            continue
        destinations = scatter.args[scatter.static[1] :]
        if destinations[following.position] is not state:
            continue
        places = scatter.bodies[0].results[: -len(destinations)]
        for axis, place in enumerate(places):
            if place.dim is None or step.dim is None:
                continue
            for backwards, dim in enumerate((place.dim - step.dim, place.dim + step.dim)):
                offset = b.known(dim)
                if offset is not None and offset.free <= loop.known:
                    return _History(number, axis, offset, bool(backwards), stored is following)
    return None


def _read(loop: Pending, history: _History, indices: Sequence[Value], level: Substitution) -> tuple[Value, ...]:
    """What is read at a step and a place, where the last state is read instead."""
    b, ends = level.builder, (loop.results[history.number], loop.node.args[1 + history.number])
    last, first, step, *places = level.values([*ends, *indices])
    sizes = [b.size(first, axis) for axis in range(len(places), rank(first.type))]

    def element(*rest: Value) -> Value:
        at = [*places, *rest]
        pair = (history.offset, at[history.axis])
        written = b.primitive("subtract", *(pair if history.backwards else pair[::-1]))
        test = b.primitive("less_equal" if history.after else "less", written, step)
        return b.cond(test, lambda: [b.index(last, at)], lambda: [b.index(first, at)])[0]

    return (b.array(sizes, element),)
