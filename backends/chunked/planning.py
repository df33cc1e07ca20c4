"""From a term to a plan: its operations become nodes with places and times, and those of one time one program.

Each operation is asked whether it has to do with what is cut, and how: one that combines, one on chunks, or one that is
run here because it holds others. What cannot be any of these is refused. The programs are made in ``steps.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.dims import Dim
from ...core.terms import Block, Operation, Size
from ...core.types import Accumulator, accumulator_of
from ...interpreters.simplify import simplify
from ..schedule.terms.bounds_checks import decided
from ..schedule.terms.legalisation import legalised
from .cutting import (
    INSTEAD,
    block_touches,
    combinations,
    combines,
    cut_axis,
    is_combination,
    mentions,
    of_state,
    partly_over,
    refuse,
    runs_in_order,
    touches,
)
from .distribution import with_chunks_alone
from .fission import block_of_zeros, combinations_alone, with_combinations_alone
from .nodes import Alias, Chosen, Key, Known, Operated, Place, Ref, Refs, Repeated, Sums, Total, Updated, resolved
from .plan import Plan
from .steps import Steps


def planned(term: Block, name: str, size: str, checks: bool) -> Plan:
    """The plan of a program over chunks of a size; Unsupported, with the line, where that cannot be cut."""
    over = Dim.of(size)
    prepared = simplify(legalised(term, checks))
    block = with_chunks_alone(with_combinations_alone(decided(prepared) if checks else prepared, over), over)
    return _Planner(Known(name, over)).plan(block)


class _Planner:
    """Makes the plan of a block; those of the blocks inside of it are made by planners that know this one's nodes."""

    def __init__(self, known: Known) -> None:
        self.known, self.size = known, known.size
        self.statements: list[Operated] = []  # those that update accumulators that are open

    def plan(self, block: Block, env: Refs | None = None) -> Plan:
        binders = [self.known.key(type, name) for type, name in zip(block.binders, block.names, strict=True)]
        refs = (Refs() if env is None else env).enter(binders)
        results = self._opened(block, refs)
        return Steps(self.known).plan(binders, results)

    def _opened(self, block: Block, refs: Refs) -> list[Ref]:
        """The nodes of a block, after those that there are; what its results stand for."""
        for operation in block.bindings:
            keys = [self.known.key(type) for type in operation.types]
            self._operation(operation, refs, keys)
            refs = refs.extend(keys)
        return [resolved(atom, refs) for atom in block.results]

    def _operation(self, operation: Operation, refs: Refs, keys: Sequence[Key]) -> None:
        if operation.op == "accumulate" and touches(operation, self.size):
            self._accumulate(operation, refs, keys)
            return
        place = self._placed(operation)
        if place is Place.CHUNK and combines(operation, self.size):
            node = self._chosen(operation, refs, keys)
        else:
            node = Operated(operation, refs, keys, self.size)
        node.uses = frozenset([key for key in node.read if not isinstance(self.known.types[key], Accumulator)])
        ready = self.known.time(node.uses)
        node.place, node.time = place, ready
        if node.place is Place.COMBINED:
            node.time = ready + 1
        if node.place is Place.RUN:
            self._repeated(operation, refs, keys, ready + 1)
            return
        if node.cells:
            self.statements.append(node)
        if keys or (node.required and not node.cells):
            self.known.add(node)

    def _placed(self, operation: Operation) -> Place:
        """Where an operation is computed; Unsupported where it cannot be."""
        size = self.size
        if not touches(operation, size):
            return Place.HERE
        part = partly_over(operation, size)
        if part is not None:
            raise refuse(operation, size, f"it goes over {part}; go over {size}, or over what is not cut")
        if not operation.types:  # a statement on chunks
            return Place.CHUNK
        cut = [cut_axis(type, size) is not None for type in operation.types]
        expressions = [type for type in operation.types if mentions(type, size) and cut_axis(type, size) is None]
        if expressions:
            raise refuse(operation, size, f"it makes {expressions[0]}; make arrays over {size} alone")
        if is_combination(operation, size):
            return Place.COMBINED
        inside = any(block_touches(block, size) for block in operation.blocks)
        if runs_in_order(operation) and inside:
            if any(isinstance(extent, Size) and extent.dim == size for extent in operation.row.iterations(operation)):
                raise refuse(operation, size, INSTEAD["loop"])
            if any(cut) or any(mentions(arg.type, size) for arg in operation.args):
                raise of_state(operation, size)
            return Place.RUN
        if operation.op == "cond" and inside and not any(cut):
            return Place.RUN
        if cut and all(cut):
            return Place.CHUNK
        raise refuse(operation, size, INSTEAD["choice"] if combines(operation, size) else "")

    def _chosen(self, operation: Operation, refs: Refs, keys: Sequence[Key]) -> Operated:
        """A choice on each chunk; the combinations in its branches are computed before it, by a choice of their own."""
        size = self.size
        if operation.op != "cond" or any(
            combines(inner, size) and not is_combination(inner, size)
            for block in operation.blocks
            for inner in block.bindings
        ):
            raise refuse(operation, size, INSTEAD["choice"])
        places = [combinations(block, size) for block in operation.blocks]
        found = list[list[Key]]()
        for branch, block in enumerate(operation.blocks):
            types = [type for place in places[branch] for type in block.bindings[place].types]
            found.append([self.known.key(type) for type in types])
            if types:
                blocks = [combinations_alone(block, places[branch]), block_of_zeros(operation, types, size)]
                first = Operation(
                    "cond", (), operation.args, tuple(blocks[:: 1 - 2 * branch]), tuple(types), operation.origin
                )
                self._operation(first, refs, found[branch])
        return Chosen(operation, refs, keys, size, places, found)

    def _accumulate(self, operation: Operation, refs: Refs, keys: Sequence[Key]) -> None:
        """The body of an accumulate is part of this block; its statements are gathered."""
        (block,) = operation.blocks
        initials = [resolved(atom, refs) for atom in operation.args]
        cells = [self.known.key(type) for type in block.binders]
        before = len(self.statements)
        results = self._opened(block, refs.enter(cells))
        updates = [each for each in self.statements[before:] if not each.cells.keys().isdisjoint(cells)]
        types = [accumulator_of(atom.type) for atom in operation.args]
        whole = {cell: type for cell, type in zip(cells, types, strict=True) if not self.known.is_cut(type)}
        parts = self._sums(whole, updates)
        cut, starts, finals = dict[Key, Accumulator](), list[Ref](), list[Key]()
        for cell, type, initial, key in zip(cells, types, initials, keys, strict=False):
            if cell in whole:
                time = self.known.time([key for key in [initial, *parts[cell]] if isinstance(key, int)])
                self.known.add(Total(initial, parts[cell], key, type.of, time, operation.origin))
            else:
                cut[cell] = type
                starts.append(initial)
                finals.append(key)
        if cut:
            mine = [each for each in updates if not each.cells.keys().isdisjoint(cut)]
            node = Updated(cut, starts, mine, finals, 0, operation.origin)
            node.time = self.known.time(node.uses)
            self.known.add(node)
        for ref, key in zip(results, keys[len(cells) :], strict=True):
            self.known.add(self._alias(ref, key, operation))
        self.statements[before:] = [each for each in self.statements[before:] if each.cells.keys() - set(cells)]

    def _alias(self, ref: Ref, key: Key, operation: Operation) -> Alias:
        type = self.known.types[key]
        place = Place.CHUNK if self.known.is_cut(type) else Place.HERE
        return Alias(ref, key, type, place, self.known.time([ref] if isinstance(ref, int) else []), operation.origin)

    def _sums(self, cells: dict[Key, Accumulator], updates: Sequence[Operated]) -> dict[Key, list[Key]]:
        """For each accumulator, what is added to it at each time."""
        found: dict[Key, list[Key]] = {cell: [] for cell in cells}
        groups: dict[tuple[int, Place], list[Operated]] = {}
        for each in updates:
            if not each.cells.keys().isdisjoint(cells):
                on_chunks = each.place is not Place.HERE
                time = self.known.time(each.uses) + on_chunks
                groups.setdefault((time, Place.COMBINED if on_chunks else Place.HERE), []).append(each)
        for (time, place), statements in groups.items():
            mine = {c: t for c, t in cells.items() if any(c in each.cells for each in statements)}
            keys = [self.known.key(type.of) for type in mine.values()]
            self.known.add(Sums(mine, statements, keys, place, time))
            for cell, key in zip(mine, keys, strict=True):
                found[cell].append(key)
        return found

    def _repeated(self, operation: Operation, refs: Refs, keys: Sequence[Key], time: int) -> None:
        if any(isinstance(free.type, Accumulator) for block in operation.blocks for free in block.free):
            raise refuse(operation, self.size, INSTEAD["choice of updates"])
        plans = [_Planner(self.known.inside()).plan(block, refs) for block in operation.blocks]
        self.known.add(Repeated(operation, refs, keys, plans, time))
