"""Counting by running: evaluate, element by element, noting what every run of every block costs.

The values are those of evaluate; ``costs.py`` says what each operation adds. Every operation keeps a frame, in which
the blocks that it enters leave the cost of each of their runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.constructs import CONSTRUCTS, Construct
from ...core.environment import Env
from ...core.terms import Block, Operation, Origin
from ..evaluate import Evaluate
from ..evaluate.batches import Code, Effects, Step
from ..evaluate.combining import Operator
from ..evaluate.functions import deeply, uses_functions
from ..in_place import InPlace
from .costs import FREE, Cost, Runs, cost_of, cost_of_results


class Counting(Evaluate):
    """The meanings for one call of a term."""

    def __init__(self, term: Block, sizes: dict[str, int]) -> None:
        super().__init__(sizes, vectorize=False, show=lambda name, values: None)
        self.term = self.expanded(term)
        self.in_place = InPlace(self.term, elements=False)
        self.cost = FREE
        self.frames: list[dict[int, list[Cost]]] = [{}]

    def count(self, arguments: Sequence[Any]) -> Cost:
        """The cost of running the term on these arguments."""

        def run() -> Cost:
            with np.errstate(all="ignore"):
                results = self.term.interpret(self).run(Env(), arguments)
            return self.frames[0][id(self.term)][0] + cost_of_results(self.term, [_shape(result) for result in results])

        return deeply(run) if uses_functions(self.term) else run()

    def knows(self, construct: Construct) -> bool:
        return False  # what it costs is what it means in terms of others

    def meaning_of_block(self, block: Block) -> Code:
        code = super().meaning_of_block(block)

        def run(env: Env[Any], arguments: Sequence[Any]) -> list[Any]:
            if self.nothing:
                return code.run(env, arguments)
            outer, self.cost = self.cost, FREE
            try:
                return code.run(env, arguments)
            finally:
                self.frames[-1].setdefault(id(block), []).append(self.cost)
                self.cost = outer

        return replace(code, run=run, ufunc=None, fixed=False)

    def meaning_of_operation(self, operation: Operation) -> Step:
        step, places = super().meaning_of_operation(operation), self.in_place.of(operation)
        atoms = [self.meaning_of_atom(atom) for atom in operation.args]

        def run(env: Env[Any]) -> Sequence[Any]:
            if self.nothing:
                return step.run(env)
            self.frames.append({})
            try:
                results = step.run(env)
            finally:
                frame = self.frames.pop()
            runs = [Runs.of(frame.pop(id(block), [])) for block in operation.blocks]
            runs += [Runs.of(costs) for costs in frame.values()]
            args = [_shape(atom.run(env)) for atom in atoms]
            self.cost += cost_of(operation, runs, args, [_shape(result) for result in results], places)
            return results

        return replace(step, run=run)

    def once(self, effects: Effects, row: Sequence[Any]) -> bool:
        """Every run counts."""
        return False

    def check_neutral(
        self,
        construct: str,
        origin: Origin,
        units: Sequence[Any],
        elements: Sequence[Any],
        combine: Operator,
        operator: Code,
        inside: Any = np.True_,
    ) -> None:
        """In a reduce or scan this stands for the combination with the neutral element; a histogram does its own."""
        if CONSTRUCTS[construct].places:
            return
        if origin.combines:
            super().check_neutral(construct, origin, units, elements, combine, operator, inside)
        elif not self.nothing and not operator.effects.ordered:
            self.combined_with_neutral(units, elements, combine, operator)

    def combined_with_neutral(
        self, units: Sequence[Any], elements: Sequence[Any], combine: Operator, operator: Code
    ) -> list[Any]:
        """From one side, which is what a run does."""
        return [*combine(units, elements)]


def _shape(value: Any) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()
