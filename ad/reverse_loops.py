"""The return sweep of steps that follow each other: loop and while.

The forward sweep stores the state before each step. The return sweep walks from the last step to the first, runs the
step again from its state, and turns the cotangents of the state behind it into those of the state before it:

    s[i+1] = body(i, s[i])        s_bar[i] = (d body / d s)^T s_bar[i+1]

Free variables of the body are reached through accumulators (Schenck et al. 2022, section 4.2). A ``while`` counts its
steps, and is then a loop of so many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.graph import Value
from ..core.types import i64
from ..interpreters.simplify.accumulators import zeros_like
from .cells import Cell, Entry
from .reverse_meanings import Emission, Pull


@dataclass
class Steps:
    """So many steps from these initial states, whose cells are given; ``active`` are states, then outputs.

    ``run`` emits the forward part of step i at a state and gives its pull.
    """

    reverse: Emission
    length: Value
    starts: Sequence[Value]
    cells: Sequence[Cell | None]
    active: Sequence[bool]
    run: Callable[[Value, Sequence[Entry]], tuple[list[Value], Pull]]

    def pull(self, stored: Sequence[Value], cotangents: Sequence[Value | None]) -> None:
        """Walk back over the stored states.

        ``cotangents`` are those of the final states, then those of the outputs, stacked.
        """
        reverse, b, count = self.reverse, self.reverse.builder, len(self.starts)
        moving = [k for k in range(count) if self.active[k]]

        def back(j: Value, *state: Value) -> Sequence[Value]:
            last = b.primitive("subtract", self.length, b.literal(1, i64))
            i = b.primitive("subtract", last, j)
            known = dict(zip(moving, state, strict=True))
            entries = reverse.constants([b.part(array, [i]) for array in stored])
            own = reverse.give_cells([entries[k] for k in moving])
            outputs = [None if g is None else b.part(g, [i]) for g in cotangents[count:]]
            self.run(i, entries)[1]([*[known.get(k) for k in range(count)], *outputs])
            return [cell.total_or_zero() for cell in own if cell is not None]

        incoming = [cotangents[k] for k in moving]
        ends = [zeros_like(b, self.starts[k]) if g is None else g for k, g in zip(moving, incoming, strict=True)]
        results = reverse.sweep.enclose(lambda: b.loop(self.length, ends, back))
        for k, result in zip(moving, results, strict=True):
            cell = self.cells[k]
            if cell is not None:
                cell.add(result)
