"""From a term to a plan: its operations become nodes with places and times, and those of one time one program.

A stage is made for each time at which something is combined: its program computes all that, and makes again whatever
on chunks it needs for it. So nothing that is as long as the size is stored between stages. Between two stages runs one
program that is computed here; sequential loops and choices that have stages inside are run here, step by step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ...core.builder import Builder
from ...core.dims import Dim, Opaque
from ...core.graph import Value
from ...core.terms import Block, Operation, Size
from ...core.types import Accumulator, Type, accumulator_of, all_dims, i64, map_dims
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
    refused,
    runs_in_order,
    touches,
)
from .fission import block_of_zeros, combinations_alone, with_combinations_alone
from .language import OnChunk
from .nodes import Alias, Chosen, Key, Node, Operated, Place, Ref, Refs, Repeated, Slice, Sums, Total, Updated, resolved
from .parts import Part
from .plan import Around, Here, Plan, Stage, Step


def planned(term: Block, name: str, size: str, checks: bool) -> Plan:
    """The plan of a program over chunks of a size; Unsupported, with the line, where that cannot be cut."""
    over = Dim.of(size)
    prepared = simplify(legalised(term, checks))
    block = with_combinations_alone(decided(prepared) if checks else prepared, over)
    return _Planner(name, over).plan(block)


class _Planner:
    """Makes the plan of a block; those of the blocks inside of it are made by planners that know this one's nodes."""

    def __init__(self, name: str, size: Dim, outer: _Planner | None = None) -> None:
        self.name, self.size, self.outer = name, size, outer
        self.keys: itertools.count[int] = itertools.count() if outer is None else outer.keys
        self.nodes: list[Node] = []  # of this block
        self.makers: dict[Key, Node] = {} if outer is None else dict(outer.makers)
        self.types: dict[Key, Type] = {} if outer is None else outer.types
        self.names: dict[Key, str] = {} if outer is None else outer.names
        self.times: dict[Key, int] = {}  # of values of this block
        self.statements: list[Operated] = []  # those that update accumulators that are open
        self.stages: itertools.count[int] = itertools.count(1) if outer is None else outer.stages

    # Nodes

    def plan(self, block: Block, env: Refs | None = None) -> Plan:
        binders = [self._key(type, name) for type, name in zip(block.binders, block.names, strict=True)]
        refs = (Refs() if env is None else env).enter(binders)
        results = self._opened(block, refs)
        return self._scheduled(binders, block, results)

    def _opened(self, block: Block, refs: Refs) -> list[Ref]:
        """The nodes of a block, after those that there are; what its results stand for."""
        for operation in block.bindings:
            keys = [self._key(type) for type in operation.types]
            self._operation(operation, refs, keys)
            refs = refs.extend(keys)
        return [resolved(atom, refs) for atom in block.results]

    def _key(self, type: Type, name: str = "") -> Key:
        key = next(self.keys)
        self.types[key], self.names[key] = type, name or f"t{key}"
        return key

    def _operation(self, operation: Operation, refs: Refs, keys: Sequence[Key]) -> None:
        if operation.op == "accumulate" and touches(operation, self.size):
            self._accumulate(operation, refs, keys)
            return
        place = self._placed(operation)
        if place is Place.CHUNK and combines(operation, self.size):
            node = self._chosen(operation, refs, keys)
        else:
            node = Operated(operation, refs, keys, self.size)
        node.uses = frozenset([key for key in node.read if not isinstance(self.types[key], Accumulator)])
        ready = self._time(node.uses)
        node.place, node.time = place, ready
        if node.place is Place.COMBINED:
            node.time = ready + 1
        if node.place is Place.RUN:
            self._repeated(operation, refs, keys, ready + 1)
            return
        if node.cells:
            self.statements.append(node)
        if keys or (node.required and not node.cells):
            self._add(node)

    def _time(self, keys: Iterable[Key]) -> int:
        """When all of these can be had; what is from outside of this block is there when it begins."""
        return max([self.times.get(key, 0) for key in keys], default=0)

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        for key in node.keys:
            self.makers[key], self.times[key] = node, node.time

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
            found.append([self._key(type) for type in types])
            if types:
                blocks = [combinations_alone(block, places[branch]), block_of_zeros(types)]
                first = Operation(
                    "cond", (), operation.args, tuple(blocks[:: 1 - 2 * branch]), tuple(types), operation.origin
                )
                self._operation(first, refs, found[branch])
        return Chosen(operation, refs, keys, size, places, found)

    def _accumulate(self, operation: Operation, refs: Refs, keys: Sequence[Key]) -> None:
        """The body of an accumulate is part of this block; its statements are gathered."""
        (block,) = operation.blocks
        initials = [resolved(atom, refs) for atom in operation.args]
        cells = [self._key(type) for type in block.binders]
        before = len(self.statements)
        results = self._opened(block, refs.enter(cells))
        updates = [each for each in self.statements[before:] if not each.cells.keys().isdisjoint(cells)]
        types = [accumulator_of(atom.type) for atom in operation.args]
        whole = {cell: type for cell, type in zip(cells, types, strict=True) if not self._is_cut(type)}
        parts = self._sums(whole, updates)
        cut, starts, finals = dict[Key, Accumulator](), list[Ref](), list[Key]()
        for cell, type, initial, key in zip(cells, types, initials, keys, strict=False):
            if cell in whole:
                time = self._time([key for key in [initial, *parts[cell]] if isinstance(key, int)])
                self._add(Total(initial, parts[cell], key, type.of, time, operation.origin))
            else:
                cut[cell] = type
                starts.append(initial)
                finals.append(key)
        if cut:
            mine = [each for each in updates if not each.cells.keys().isdisjoint(cut)]
            node = Updated(cut, starts, mine, finals, 0, operation.origin)
            node.time = self._time(node.uses)
            self._add(node)
        for ref, key in zip(results, keys[len(cells) :], strict=True):
            self._add(self._alias(ref, key, operation))
        self.statements[before:] = [each for each in self.statements[before:] if each.cells.keys() - set(cells)]

    def _alias(self, ref: Ref, key: Key, operation: Operation) -> Alias:
        type = self.types[key]
        place = Place.CHUNK if self._is_cut(type) else Place.HERE
        return Alias(ref, key, type, place, self._time([ref] if isinstance(ref, int) else []), operation.origin)

    def _is_cut(self, type: Type) -> bool:
        return cut_axis(type, self.size) is not None

    def _sums(self, cells: dict[Key, Accumulator], updates: Sequence[Operated]) -> dict[Key, list[Key]]:
        """For each accumulator, what is added to it at each time."""
        found: dict[Key, list[Key]] = {cell: [] for cell in cells}
        groups: dict[tuple[int, Place], list[Operated]] = {}
        for each in updates:
            if not each.cells.keys().isdisjoint(cells):
                on_chunks = each.place is not Place.HERE
                time = self._time(each.uses) + on_chunks
                groups.setdefault((time, Place.COMBINED if on_chunks else Place.HERE), []).append(each)
        for (time, place), statements in groups.items():
            mine = {c: t for c, t in cells.items() if any(c in each.cells for each in statements)}
            keys = [self._key(type.of) for type in mine.values()]
            self._add(Sums(mine, statements, keys, place, time))
            for cell, key in zip(mine, keys, strict=True):
                found[cell].append(key)
        return found

    def _repeated(self, operation: Operation, refs: Refs, keys: Sequence[Key], time: int) -> None:
        if any(isinstance(free.type, Accumulator) for block in operation.blocks for free in block.free):
            raise refuse(operation, self.size, "it adds to an accumulator in a sequential loop")
        plans = [_Planner(self.name, self.size, self).plan(block, refs) for block in operation.blocks]
        self._add(Repeated(operation, refs, keys, plans, time))

    # Steps

    def _scheduled(self, binders: Sequence[Key], block: Block, results: Sequence[Ref]) -> Plan:
        live = self._live([ref for ref in results if isinstance(ref, int)])
        steps = list[Step]()
        cut = [key for key in results if isinstance(key, int) and self._is_cut(self.types[key])]
        assert not cut or self.outer is None, "the state of a loop is not cut, nor are the results of a choice"
        checked = {node for node in live if node.place is Place.CHUNK and node.required}
        for time in range(max([node.time for node in live], default=0) + 1):
            now = [node for node in live if node.time == time]
            combined = [node for node in now if node.place is Place.COMBINED]
            checks = [node for node in checked if node.time == time - 1]
            if combined or checks:
                steps.append(self._stage(combined, checks))
            for node in now:
                if isinstance(node, Repeated):
                    steps.append(self._around(node))
            here = [node for node in now if node.place is Place.HERE]
            if here:
                steps.append(self._beside(here, live, results))
        late = [node for node in checked if node.time == max(each.time for each in live)]
        if late:
            steps.append(self._stage([], late))
        last = self._last(list(dict.fromkeys(cut))) if cut else None
        return Plan(str(self.size), tuple(binders), block.types, tuple(steps), tuple(results), last, self.names)

    def _live(self, wanted: Sequence[Key]) -> list[Node]:
        """The nodes of this block that results or requirements need, in order."""
        mine, found = set(self.nodes), set[Node]()
        todo = [self.makers[key] for key in wanted if key in self.makers]
        todo += [node for node in self.nodes if node.required]
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += [self.makers[key] for key in node.uses if key in self.makers]
        return [node for node in self.nodes if node in found & mine]

    def _needed(self, nodes: Sequence[Node]) -> tuple[list[Node], list[Key], list[Key]]:
        """What a program that computes some nodes holds, what it is given, and which arguments it reads chunks of."""
        inside, given, cut = dict.fromkeys(nodes), dict[Key, None](), dict[Key, None]()
        todo = list(nodes)
        while todo:
            for key in sorted(todo.pop().uses):
                maker = self.makers.get(key)
                if maker is not None and maker.place is Place.CHUNK:
                    if maker not in inside:
                        inside[maker] = None
                        todo.append(maker)
                elif maker is None and self._is_cut(self.types[key]):
                    cut[key] = None
                elif maker not in inside:
                    given[key] = None
        order = {node: k for k, node in enumerate(dict.fromkeys([*self.makers.values(), *self.nodes]))}
        return sorted(inside, key=order.__getitem__), sorted(given), sorted(cut)

    def _parameters(self, keys: Sequence[Key], prefix: str = "") -> list[tuple[str, Type]]:
        """The parameters of a part for values of the plan."""
        return [(prefix + self.names[key], map_dims(self.types[key], _named)) for key in keys]

    def _part(self, label: str, nodes: Sequence[Node], keys: Sequence[Key], made: Sequence[Key], first: bool) -> Part:
        """The program of some nodes, from what is given to it by keys."""
        parameters = [("_total", i64), *([("_first", i64)] if first else []), *self._parameters(keys)]

        def emit(builder: Builder, total: Value, *rest: Value) -> list[Value]:
            start, values = (rest[0], rest[1:]) if first else (None, rest)
            slice = Slice(OnChunk(builder, self.size, total, start), dict(zip(keys, values, strict=True)))
            for node in nodes:
                slice.entries.update(zip(node.keys, node.emit(slice), strict=True))
            return [slice.entries[key] for key in made] or [builder.literal(0, i64)]

        return Part.build(f"{self.name}_{label}", parameters, emit)

    def _stage(self, combined: Sequence[Node], checks: Sequence[Node]) -> Stage:
        number = next(self.stages)
        nodes, given, cut = self._needed([*combined, *checks])
        made = [key for node in combined for key in node.keys]
        part = self._part(f"stage_{number}", nodes, [*given, *cut], made, True)
        about = tuple([f"{', '.join(self.names[key] for key in node.keys)}: {_about(node)}" for node in combined])
        merge, merge_given = self._merge(number, combined, made)
        return Stage(number, part, tuple(given), tuple(cut), tuple(made), merge, tuple(merge_given), (), about)

    def _merge(self, number: int, combined: Sequence[Node], made: Sequence[Key]) -> tuple[Part | None, list[Key]]:
        """The program that combines two runs of chunks."""
        if not made:
            return None, []
        given = sorted({key for node in combined for key in node.uses if self._is_given(key)})
        part = self._merge_of(number, combined, made, given)
        captured = [key for key, read in zip(given, part.reads[1:], strict=False) if read]  # by operators
        return self._merge_of(number, combined, made, captured), captured

    def _merge_of(self, number: int, combined: Sequence[Node], made: Sequence[Key], given: Sequence[Key]) -> Part:
        def emit(builder: Builder, total: Value, *rest: Value) -> list[Value]:
            slice = Slice(OnChunk(builder, self.size, total, None), dict(zip(given, rest, strict=False)))
            left, right = list(rest[len(given) :][: len(made)]), list(rest[len(given) + len(made) :])
            found = list[Value]()
            for node in combined:
                count = len(node.keys)
                found += node.merge(slice, left[:count], right[:count])
                left, right = left[count:], right[count:]
            return found

        sides = [*self._parameters(made, "left_"), *self._parameters(made, "right_")]
        return Part.build(f"{self.name}_merge_{number}", [("_total", i64), *self._parameters(given), *sides], emit)

    def _is_given(self, key: Key) -> bool:
        maker = self.makers.get(key)
        return not self._is_cut(self.types[key]) and (maker is None or maker.place is not Place.CHUNK)

    def _beside(self, here: Sequence[Node], live: Sequence[Node], results: Sequence[Ref]) -> Here:
        inside = set(here)
        needed = {key for node in live if node not in inside for key in node.uses}
        needed |= {ref for ref in results if isinstance(ref, int)}
        made = [key for node in here for key in node.keys if key in needed]
        given = sorted({key for node in here for key in node.uses if self.makers.get(key) not in inside})
        part = self._part("here", here, given, made, False)
        return Here(part, tuple(given), tuple(made), tuple([self.names[key] for key in made]))

    def _around(self, node: Repeated) -> Around:
        return Around(node.operation.op, tuple(node.args), tuple(node.plans), node.keys, node.types, str(node.origin))

    def _last(self, cut: Sequence[Key]) -> Stage:
        makers = [self.makers[key] for key in cut if key in self.makers]
        nodes, given, read = self._needed(list(dict.fromkeys(makers)))
        read = sorted({*read, *[key for key in cut if key not in self.makers]})
        part = self._part("results", nodes, [*given, *read], cut, True)
        for key in cut:
            if any(isinstance(atom, Opaque) for dim in all_dims(self.types[key]) for atom in dim.atoms()):
                origin = self.makers[key].origin
                why = f"it is {self.types[key]}, with a size that is computed"
                raise refused("an array", self.size, origin, why)
        axes = tuple([cut_axis(self.types[key], self.size) or 0 for key in cut])
        about = tuple([self.names[key] for key in cut])
        return Stage(0, part, tuple(given), tuple(read), tuple(cut), None, (), axes, about)


def _named(dim: Dim) -> Dim:
    """A dim in which computed sizes have names: a part is given arrays of these sizes, and finds them there."""
    return dim.substitute(lambda atom: Dim.of(f"size_{atom.number}") if isinstance(atom, Opaque) else None)


def _about(node: Node) -> str:
    """What a combined node is, for people."""
    if isinstance(node, Sums):
        return "added up"
    assert isinstance(node, Operated)
    operation = node.operation
    while operation.op == "generate":
        operation = operation.blocks[0].bindings[-1]
    return f"{operation.op}, at {node.origin}"
