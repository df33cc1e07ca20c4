"""The boundary of a program whose parameters or results are data: they are parts inside (``interpreters/first_order``).

What is compiled is another instance of the program: its leaves are the parts of those that were declared, scalars,
arrays and addresses of cells. A call takes its arguments apart, with the checks and messages of the program as it was
declared, and puts its results together (``marshalling.py``). Cells of arguments are in memory of the call's; those of
results are read before the next call takes theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core import trees
from ..core.arguments import Signature
from ..core.program import Instance
from ..core.source import at_line
from ..core.types import Type, is_data
from ..interpreters.first_order import FirstOrder, first_order
from ..interpreters.first_order.cells import held
from ..interpreters.first_order.optimisation import optimised
from ..interpreters.first_order.tasks import with_tasks
from .marshalling import Cells, Kinds
from .task_cost import is_long


@dataclass(kw_only=True)
class InParts(Instance):
    """A program with the parts of its parameters and results in place of these."""

    general: Instance
    form: FirstOrder

    @cached_property
    def declared(self) -> Signature:
        return Signature(self.program.name, self.names, self.types)

    def _build(self) -> None:
        self._term = with_tasks(optimised(self.form.block), is_long)
        self._equalities = tuple(self.general.equalities)
        self._outputs = trees.Shape(tuple, (), (trees.LEAF,) * len(self._term.results))


def boundary_of(instance: Instance) -> Boundary | None:
    """The boundary of an instance, if it takes or gives anything but scalars and arrays."""
    written = instance.written_term
    if all(map(is_data, instance.types)) and (written is None or all(map(is_data, written.types))):
        return None
    return Boundary(instance)


class Boundary:
    """What leads from the leaves of an instance to those of its parts, and back."""

    def __init__(self, general: Instance) -> None:
        self.general = general
        form = first_order(general.term)
        self._kinds = Kinds(form.layouts)
        types = tuple([held(type) for type in form.block.binders])
        self.instance = InParts(
            program=general.program, types=types, names=form.block.names, inputs=general.inputs,
            statics=general.statics, general=general, form=form,
        )  # fmt: skip
        self._results = general.term.types
        self._counts = [self._kinds.of(type).width for type in self._results]
        self._outputs, leaves = general.outputs, (trees.LEAF,) * len(self._results)
        self._plain = all(map(is_data, self._results))  # parts are leaves then
        self._single, self._flat = self._outputs == trees.LEAF, self._outputs == trees.Shape(tuple, (), leaves)
        for type in general.term.binders:
            self._kinds.of(type)

    def entered(self, leaves: Sequence[Any]) -> Entered:
        """The parts of the leaves of a call's arguments. Raises what the program itself raises for these."""
        made: list[Cells] = []

        def in_cells(value: Any, type: Type, what: str, sizes: Mapping[str, int]) -> Any:
            if not made:
                made.append(Cells(self._kinds, sizes))
            return made[0].parts(value, type, what)

        values, sizes = self.general.signature.convert(leaves, data=in_cells)
        parts: list[Any] = []
        for value, type in zip(values, self.general.term.binders, strict=True):
            parts += [value] if is_data(type) else value
        return Entered(parts, made[0] if made else Cells(self._kinds, sizes))

    def left(self, parts: Sequence[Any], entered: Sequence[Any]) -> Any:
        """The result of a call, of its parts."""
        assert isinstance(entered, Entered)
        values, first = parts, 0
        if not self._plain:
            values = []
            for type, count in zip(self._results, self._counts, strict=True):
                own = parts[first : first + count]
                first += count
                values.append(own[0] if is_data(type) else entered.cells.value(type, own))
        if self._single:
            return values[0]
        return tuple(values) if self._flat else trees.unflatten(self._outputs, values)

    def given(self, out: Any) -> None:
        """Refuse arrays for results: ValueError."""
        if out is not None:
            raise ValueError(at_line(f"{self.general.program.name}: out= is for results that are scalars and arrays"))


class Entered(list[Any]):
    """The parts of a call's arguments, with the memory of their cells."""

    def __init__(self, parts: Sequence[Any], cells: Cells) -> None:
        super().__init__(parts)
        self.cells = cells
