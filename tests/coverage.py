"""Which constructs a program nests in which, and how often their bodies ran: the table behind "everything is tested".

An interpretation: evaluate, in which every operation with blocks also notes how many times it ran them. A *cell* of
the table is (outer construct, construct directly inside it, how often the outer one ran in some call), with the classes
"empty", "one" and "odd" (an odd number above one); a cond counts its branches instead, as "then" and "else".

    cells = Cells()
    cells.run(program, arguments)
    ("scan", "while", "empty") in cells.seen
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adze as az
from adze.core import terms
from adze.core.environment import Env
from adze.interpreters.evaluate import Evaluate

CLASSES = ("empty", "one", "odd")
BRANCHES = ("then", "else")
_MARKS = {"empty": "0", "one": "1", "odd": "3", "then": "t", "else": "e"}


def size_class(count: int) -> str | None:
    """The class of a number of iterations."""
    return "empty" if count == 0 else "one" if count == 1 else "odd" if count % 2 else None


class _Counting(Evaluate):
    """Evaluate element by element, noting what each operation with blocks did."""

    def __init__(self, sizes: dict[str, int], note: Callable[[terms.Operation, str | None], None]) -> None:
        super().__init__(sizes, vectorize=False)
        self.note = note

    def meaning_of_operation(self, operation: terms.Operation) -> Any:
        step = super().meaning_of_operation(operation)
        if not operation.blocks:
            return step
        atoms = [self.meaning_of_atom(atom) for atom in operation.args]

        def run(env: Env[Any]) -> Sequence[Any]:
            results: Sequence[Any] = step.run(env)
            if self.batch:
                return results  # no iteration: run once for the shape of nothing
            self.note(operation, self._class(operation, [atom.run(env) for atom in atoms], results))
            return results

        return type(step)(run, step.effects, step.applies)

    def _class(self, operation: terms.Operation, args: Sequence[Any], results: Sequence[Any]) -> str | None:
        if operation.op == "cond":
            return "then" if args[0] else "else"
        if operation.op == "while":
            return size_class(int(results[-1]))
        extents = operation.row.extents
        return (
            None if extents is None else size_class(int(np.prod([max(0, n) for n in args[extents(operation.static)]])))
        )


class Cells:
    """The cells that some runs have reached."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str, str]] = set()

    def run(self, program: az.Program | az.Instance, arguments: Sequence[Any]) -> None:
        """Run a program, as it is written and simplified, and note its cells."""
        instance = program if isinstance(program, az.Instance) else program.instance_for(program.bind(arguments, {}))
        arrays, sizes = instance.signature.convert(instance.program.leaves(arguments))
        for term in (instance.term, az.simplify(instance)):
            with np.errstate(all="ignore"):
                term.interpret(_Counting(sizes, self._note)).run(Env(), arrays)

    def _note(self, operation: terms.Operation, found: str | None) -> None:
        if found is None:
            return
        blocks = operation.blocks
        if operation.op == "cond":
            blocks = operation.blocks[:1] if found == "then" else operation.blocks[1:]
        for block in blocks:
            self.seen.update([(operation.op, inner.op, found) for inner in block.bindings])

    def table(self, outer: Sequence[str], inner: Sequence[str]) -> str:
        """The table as text: a row an outer construct, a mark for each class that was reached."""
        width = max(map(len, outer))
        lines = [" " * width + "  " + " ".join(f"{name:>9}" for name in inner)]
        for row in outer:
            marks = [
                "".join(_MARKS[c] if (row, name, c) in self.seen else "." for c in classes_of(row)) for name in inner
            ]
            lines.append(f"{row:{width}}  " + " ".join(f"{mark:>9}" for mark in marks))
        return "\n".join(lines)


def classes_of(outer: str) -> tuple[str, ...]:
    return BRANCHES if outer == "cond" else CLASSES
