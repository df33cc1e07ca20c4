"""The steps of a plan: nodes of one time become one program.

A stage is made for each time at which something is combined: its program computes all that, and makes again whatever
on chunks it needs for it. So nothing that is as long as the size is stored between stages. Between two stages runs one
program that is computed here; sequential loops and choices that have stages inside are run here, step by step.

    time 0    here: what arguments alone decide
    time 1    stage 1; loops that need nothing from a stage; here: what stage 1 has given
    time 2    stage 2; ...
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.builder import Builder
from ...core.dims import Dim, Opaque
from ...core.graph import Value
from ...core.types import Type, i64, map_dims
from .cutting import cut_axis, has_computed_size, refused
from .language import OnChunk
from .nodes import Key, Known, Node, Operated, Place, Ref, Repeated, Slice, Sums
from .parts import Part
from .plan import Around, Here, Plan, Stage, Step


class Steps:
    """Makes the steps of a block, whose nodes are known."""

    def __init__(self, known: Known) -> None:
        self.known = known

    def plan(self, binders: Sequence[Key], results: Sequence[Ref]) -> Plan:
        """The plan of a block with these parameters and results."""
        live = self._live([ref for ref in results if isinstance(ref, int)])
        steps = list[Step]()
        cut = [key for key in results if isinstance(key, int) and self.known.is_cut(self.known.types[key])]
        assert not cut or not self.known.is_inside, "the state of a loop is not cut, nor are the results of a choice"
        checked = [node for node in live if node.place is Place.CHUNK and node.required]
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
        return Plan(str(self.known.size), tuple(binders), tuple(steps), tuple(results), last)

    def _live(self, wanted: Sequence[Key]) -> list[Node]:
        """The nodes of this block that results or requirements need, in order."""
        mine, found = set(self.known.nodes), set[Node]()
        todo = [self.known.makers[key] for key in wanted if key in self.known.makers]
        todo += [node for node in self.known.nodes if node.required]
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += [self.known.makers[key] for key in node.uses if key in self.known.makers]
        return [node for node in self.known.nodes if node in found & mine]

    def _needed(self, nodes: Sequence[Node]) -> tuple[list[Node], list[Key], list[Key]]:
        """What a program that computes some nodes holds, what it is given, and which arguments it reads chunks of."""
        inside, given, cut = dict.fromkeys(nodes), dict[Key, None](), dict[Key, None]()
        todo = list(nodes)
        while todo:
            for key in sorted(todo.pop().uses):
                maker = self.known.makers.get(key)
                if maker is not None and maker.place is Place.CHUNK:
                    if maker not in inside:
                        inside[maker] = None
                        todo.append(maker)
                elif maker is None and self.known.is_cut(self.known.types[key]):
                    cut[key] = None
                elif maker not in inside:
                    given[key] = None
        order = {node: k for k, node in enumerate(dict.fromkeys([*self.known.makers.values(), *self.known.nodes]))}
        return sorted(inside, key=order.__getitem__), sorted(given), sorted(cut)

    def _parameters(self, keys: Sequence[Key], prefix: str = "") -> list[tuple[str, Type]]:
        """The parameters of a part for values of the plan."""
        return [(prefix + self.known.names[key], map_dims(self.known.types[key], _named)) for key in keys]

    def _part(self, label: str, nodes: Sequence[Node], keys: Sequence[Key], made: Sequence[Key], first: bool) -> Part:
        """The program of some nodes, from what is given to it by keys."""
        parameters = [("_total", i64), *([("_first", i64)] if first else []), *self._parameters(keys)]

        def emit(builder: Builder, total: Value, *rest: Value) -> list[Value]:
            start, values = (rest[0], rest[1:]) if first else (None, rest)
            slice = Slice(OnChunk(builder, self.known.size, total, start), dict(zip(keys, values, strict=True)))
            for node in nodes:
                slice.entries.update(zip(node.keys, node.emit(slice), strict=True))
            return [slice.entries[key] for key in made] or [builder.literal(0, i64)]

        return Part.build(f"{self.known.name}_{label}", parameters, emit)

    def _stage(self, combined: Sequence[Node], checks: Sequence[Node]) -> Stage:
        number = next(self.known.stages)
        nodes, given, cut = self._needed([*combined, *checks])
        made = [key for node in combined for key in node.keys]
        part = self._part(f"stage_{number}", nodes, [*given, *cut], made, True)
        about = tuple([f"{', '.join(self.known.names[key] for key in node.keys)}: {_about(node)}" for node in combined])
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
            slice = Slice(OnChunk(builder, self.known.size, total, None), dict(zip(given, rest, strict=False)))
            left, right = list(rest[len(given) :][: len(made)]), list(rest[len(given) + len(made) :])
            found = list[Value]()
            for node in combined:
                count = len(node.keys)
                found += node.merge(slice, left[:count], right[:count])
                left, right = left[count:], right[count:]
            return found

        sides = [*self._parameters(made, "left_"), *self._parameters(made, "right_")]
        return Part.build(
            f"{self.known.name}_merge_{number}", [("_total", i64), *self._parameters(given), *sides], emit
        )

    def _is_given(self, key: Key) -> bool:
        maker = self.known.makers.get(key)
        return not self.known.is_cut(self.known.types[key]) and (maker is None or maker.place is not Place.CHUNK)

    def _beside(self, here: Sequence[Node], live: Sequence[Node], results: Sequence[Ref]) -> Here:
        inside = set(here)
        needed = {key for node in live if node not in inside for key in node.uses}
        needed |= {ref for ref in results if isinstance(ref, int)}
        made = [key for node in here for key in node.keys if key in needed]
        given = sorted({key for node in here for key in node.uses if self.known.makers.get(key) not in inside})
        part = self._part("here", here, given, made, False)
        return Here(part, tuple(given), tuple(made), tuple([self.known.names[key] for key in made]))

    def _around(self, node: Repeated) -> Around:
        return Around(node.operation.op, tuple(node.args), tuple(node.plans), node.keys, node.types, str(node.origin))

    def _last(self, cut: Sequence[Key]) -> Stage:
        makers = [self.known.makers[key] for key in cut if key in self.known.makers]
        nodes, given, read = self._needed(list(dict.fromkeys(makers)))
        read = sorted({*read, *[key for key in cut if key not in self.known.makers]})
        part = self._part("results", nodes, [*given, *read], cut, True)
        for key in cut:
            if has_computed_size(self.known.types[key]):
                origin = self.known.makers[key].origin
                why = f"it is {self.known.types[key]}, with a size that is computed"
                raise refused("an array", self.known.size, origin, why)
        axes = tuple([cut_axis(self.known.types[key], self.known.size) or 0 for key in cut])
        about = tuple([self.known.names[key] for key in cut])
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
