"""Which types stay in a trace, and which operations may stay as they are.

The types that are kept are named by the kinds of scalars, and "arrays": arrays of kept scalars. A kept type must not be
built from dropped ones (van Hus, section 3), so arrays ask for a kind of scalar. Functions, tuples and declared types
are always taken apart: what runs on one input needs none.

An operation is *straight* if nothing in it decides what is computed: no branch, no loop with a state, no function. It
stays one step, blocks and all, if what it and its blocks compute is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ...core.source import at_line
from ...core.terms import Block, Constant, Operation
from ...core.types import ArrayType, Scalar, Type, is_data
from .recording import free_variables

_KINDS = {"reals": "float", "integers": "int", "booleans": "bool"}
_SCALARS = frozenset(_KINDS)
PRESETS = {"scalars": _SCALARS, "arrays": _SCALARS | {"arrays"}}
_TAKEN_APART = ("functions", "tuples", "sums", "data")


class Keeping:
    """The kept types, by what the user says. Raises ValueError for a choice that is impossible."""

    def __init__(self, keep: Any) -> None:
        chosen = PRESETS.get(keep, (keep,)) if isinstance(keep, str) else keep
        if not isinstance(chosen, Iterable):
            refuse(keep)
        for kind in chosen:
            if kind not in (*_KINDS, "arrays"):
                refuse(kind)
        self.kinds = frozenset(chosen)
        if not self.kinds & _SCALARS:
            what = "arrays are built from scalars" if self.kinds else "nothing would be left of a trace"
            raise ValueError(at_line(f"keep={sorted(self.kinds)}: {what}; keep 'reals', 'integers' or 'booleans', too"))
        self.arrays = "arrays" in self.kinds
        if self.arrays and "booleans" in self.kinds and "integers" not in self.kinds:
            why = "arrays of booleans that are put together from parts are made of integers"
            raise ValueError(at_line(f"keep={sorted(self.kinds)}: {why}; keep 'integers', too"))
        self.scalars = frozenset([_KINDS[kind] for kind in self.kinds if kind in _KINDS])
        self._straight: dict[Operation, bool] = {}

    def __call__(self, type: Type) -> bool:
        """Whether values of a type are kept."""
        if isinstance(type, Scalar):
            return type.kind in self.scalars
        return isinstance(type, ArrayType) and self.arrays and type.scalar.kind in self.scalars

    def parts(self, type: Type) -> bool:
        """Whether an array is not kept but its elements are."""
        return isinstance(type, ArrayType) and not self.arrays and type.scalar.kind in self.scalars

    def stays(self, operation: Operation) -> bool:
        """Whether an operation is one step of the trace as it stands."""
        if not self.straight(operation):
            return False
        if not self.arrays and (
            (operation.blocks and operation.row.straight)
            or any(isinstance(type, ArrayType) for type in outer_types(operation))
        ):
            return False
        if operation.op == "require":
            return all(map(self, [a.type for a in operation.args]))
        if not operation.blocks or operation.op == "custom":
            return all(map(self, operation.types))
        return self._computed(operation)

    def _computed(self, operation: Operation) -> bool:
        """Whether all that an operation and its blocks compute is kept, or is read from an array of constants."""
        read = operation.op == "index" and isinstance(operation.args[0], Constant)
        if not read and not all(map(self, operation.types)):
            return False
        return operation.op == "custom" or all(self._computed(inner) for b in operation.blocks for inner in b.bindings)

    def combines(self, operation: Operation) -> bool:
        """Whether the operator of an operation is straight, and all that it computes kept."""
        operator = operation.blocks[1]
        straight = all(_branch_free(o) and self._computed(o) for o in operator.bindings)
        return straight and all(is_data(variable.type) for variable in operator.free)

    def straight(self, operation: Operation) -> bool:
        """Whether nothing decides what an operation computes, and all that it reads from outside is data."""
        known = self._straight.get(operation)
        if known is None:
            known = _branch_free(operation) and all(is_data(type) for type in outer_types(operation))
            self._straight[operation] = known
        return known


def refuse(kind: Any) -> NoReturn:
    if kind in _TAKEN_APART:
        why = f"{kind} are taken apart by tracing: a trace has scalars and arrays only"
    else:
        why = f"there is no {kind!r}"
    choices = "'reals', 'scalars', 'arrays' or a collection of 'reals', 'integers', 'booleans' and 'arrays'"
    raise ValueError(at_line(f"keep: {why}; it is {choices}"))


def outer_types(operation: Operation) -> list[Type]:
    """The types of what an operation reads, and of its results."""
    return [*[a.type for a in operation.args], *free_variables(operation).values(), *operation.types]


def has_effect(operation: Operation) -> bool:
    """Whether an operation is, or holds, a statement."""
    blocks = operation.blocks[:1] if operation.op == "custom" else operation.blocks
    statement = not operation.row.pure and not operation.row.higher_order
    return statement or any(has_effect(inner) for b in blocks for inner in b.bindings)


def has_order(block: Block) -> bool:
    """Whether a block shows values, or calls what was written elsewhere: its elements are run one by one."""
    return any(o.row.external or any(map(has_order, o.blocks)) for o in block.bindings)


def _branch_free(operation: Operation) -> bool:
    if operation.op == "custom":  # like a primitive, with rules of its own
        return "checkpoint" not in operation.static
    return operation.row.straight and all(_branch_free(o) for b in operation.blocks for o in b.bindings)
