"""Materialisation: what several loops compute for the same indices is computed once, and stored.

Reverse mode runs the body of a loop again for its derivatives, and what the body computed is computed again with it.
Where this is a sum, of which the first loop keeps a function, an array of it costs far less than to compute it again:

    y = for i < n, j < m: tanh(sum(k: x[i, k] * w[k, j]))        y = for i < n, j < m: tanh(sum(k: x[i, k] * w[k, j]))
    ... for i < n, j < m: 1 - tanh(sum(k: x[i, k] * w[k, j]))**2   ... for i < n, j < m: 1 - y[i, j]**2

Two values are the same where their expressions are, up to the names of the loops around. What is looked for are large
sums and other reductions, costly functions of these, and reductions over them; the widest expressions that recur are
stored. The loops around are those that run whatever the data are: what stands in a branch or a loop with a state is
left as it is, and so is what a statement has computed before. What is small beside the rest of the program is not
worth a loop of its own, unless it would read again all that another loop stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....core.builder import Builder, Replacement, Substitution, build
from ....core.environment import Env
from ....core.graph import Body, Node, Value, sources
from ....core.placement import to_block
from ....core.terms import Block
from ....core.types import dims
from ....interpreters.embed import Embed, fresh_binders
from ....interpreters.simplify import simplify
from ....interpreters.simplify.costs import is_costly
from ....interpreters.simplify.value_numbering import ValueNumbering as Alike
from ....interpreters.simplify.value_numbering import amount, operands, own_work
from ...decisions import Decisions, origin_text
from ...target import MATERIALISED_PART, MATERIALISED_WORTH

Loops = tuple[tuple[Value, Value], ...]  # by binder and extent, from outside


def materialised(block: Block, decisions: Decisions | None = None) -> Block:
    """The simplified program with what recurs in its loops stored; the same object when there is nothing."""
    if _reductions(block) < 2:
        return block
    with build() as builder:
        binders = fresh_binders(builder, block)
        results = block.interpret(Embed(builder))(Env(), binders)
        root = Body(0, tuple(binders), tuple(builder.scopes[0].statements), tuple(results))
        wanted = decisions or Decisions()
        recurring = [each for each in _recurring(builder, root) if wanted.take("materialise", each.text())]
        if not recurring:
            return block
        builder.scopes[0].statements.clear()
        replaced: dict[int, Replacement] = {}
        for each in recurring:
            replaced.update(each.stored(builder, root, dict(replaced)))
        made = _again(builder, root, {}, replaced).apply(root)
        stored, captured = to_block(binders, made, builder.scopes[0].statements, block.names)
        assert not captured
    return simplify(stored)


def _reductions(block: Block) -> int:
    return sum([(x.op == "reduce") + sum(map(_reductions, x.blocks)) for x in block.bindings])


def _again(b: Builder, root: Body, mapping: Mapping[Value, Value], replaced: Mapping[int, Replacement]) -> Substitution:
    """What rewrites the program, or a part of it whose binders are mapped."""
    statements = () if mapping else root.statements
    return Substitution(b, {**{binder: binder for binder in root.binders}, **mapping}, None, statements, replaced)


@dataclass(frozen=True)
class _Recurring:
    """Nodes that compute the same, each with the loops around it, in the same order."""

    occurrences: Sequence[tuple[Node, Loops]]

    def text(self) -> str:
        """What is stored, and for which loops."""
        node, loops = self.occurrences[0]
        extents = ", ".join([str(extent.dim) for _, extent in loops])
        return f"{origin_text(node.origin, [value.type for value in node.results])} for all of {extents}"

    def stored(self, b: Builder, root: Body, replaced: Mapping[int, Replacement]) -> dict[int, Replacement]:
        """How each is read from arrays of all its values, which read in turn what was replaced before."""
        node, loops = self.occurrences[0]

        def arrays(places: tuple[Value, ...]) -> Sequence[Value]:
            if len(places) < len(loops):
                return b.generate(loops[len(places)][1], lambda i: arrays((*places, i)))
            mapping = dict(zip([binder for binder, _ in loops], places, strict=True))
            return _again(b, root, mapping, replaced).values(node.results)

        made = arrays(())

        def reading(loops: Loops) -> Replacement:
            return lambda level: tuple([b.index(array, [level.value(binder) for binder, _ in loops]) for array in made])

        return {node.number: reading(loops) for node, loops in self.occurrences}


def _recurring(b: Builder, root: Body) -> list[_Recurring]:
    """What is worth to be stored; what others are made of comes first."""
    found = _in_loops(root)
    most = max([_work(node, loops) for node, loops in found], default=0)
    sums = [
        (node, loops) for node, loops in found if node.op == "reduce" and _work(node, loops) * MATERIALISED_PART >= most
    ]
    made_of_sums = {node.number for each in _groups(b, sums) for node, _ in each.occurrences}
    if not made_of_sums:
        return []
    made, costly, work = list[tuple[Node, Loops]](), set[int](), dict[int, int]()
    for node, loops in found:
        if node.number in made_of_sums or not made_of_sums.isdisjoint(_used(node)):
            made_of_sums.add(node.number)
            made.append((node, loops))
            whole = own_work(node) + sum([work.get(used, 0) for used in _used(node)])
            work[node.number] = min(MATERIALISED_WORTH, whole)
            if whole >= MATERIALISED_WORTH and (node.op == "reduce" or (node.op == "primitive" and is_costly(node))):
                costly.add(node.number)
    groups = sorted(_groups(b, made), key=lambda each: each.occurrences[0][0].number)
    return _widest(groups, costly, _users(root))


def _widest(
    groups: Sequence[_Recurring], costly: Collection[int], users: Mapping[int, Sequence[int]]
) -> list[_Recurring]:
    """The groups that hold work, but for those that are only used in others that recur as often."""
    known = {node.number: (each, set(loops)) for each in groups for node, loops in each.occurrences}

    def is_part(each: _Recurring, node: Node, loops: Loops) -> bool:
        """Whether all that uses a node recurs with it, with no more elements."""
        wider = [known.get(number) for number in users[node.number]]
        return all(
            found is not None and len(found[0].occurrences) == len(each.occurrences) and found[1] <= set(loops)
            for found in wider
        )

    widest, passed_on = list[_Recurring](), set[int]()
    for each in groups:
        nodes = [node for node, _ in each.occurrences]
        if any(node.number in costly or not passed_on.isdisjoint(_used(node)) for node in nodes):
            if all(is_part(each, *occurrence) for occurrence in each.occurrences):
                passed_on.update([node.number for node in nodes])
            else:
                widest.append(each)
    return widest


def _users(root: Body) -> dict[int, list[int]]:
    """The numbers of the nodes that use a node, themselves or as the result of a body, by its number."""
    found: dict[int, list[int]] = {}
    waiting, seen = [*sources(root.results), *root.statements], set[int]()
    while waiting:
        node = waiting.pop()
        if node.number not in seen:
            seen.add(node.number)
            used = list(sources(operands(node)))
            for each in used:
                found.setdefault(each.number, []).append(node.number)
            waiting.extend([*used, *[statement for body in node.bodies for statement in body.statements]])
    return found


def _used(node: Node) -> set[int]:
    return {each.number for each in sources(operands(node))}


def _groups(b: Builder, found: Sequence[tuple[Node, Loops]]) -> list[_Recurring]:
    """The nodes of which there are several that compute the same."""
    alike, images, groups = Alike(b), dict[Loops, Substitution](), dict[tuple[int, ...], list[tuple[Node, Loops]]]()
    for node, loops in found:
        if loops not in images:
            images[loops] = Substitution(b, _canonical(alike, loops), None)
        image = images[loops].values(node.results)
        groups.setdefault(tuple([value.number for value in image]), []).append((node, loops))
    return [_Recurring(group) for group in groups.values() if len(group) > 1]


def _work(node: Node, loops: Loops) -> int:
    """About how many additions a reduction is in all iterations of the loops around it."""
    return own_work(node) * amount([dim for _, extent in loops if (dim := extent.dim)]) if node.op == "reduce" else 0


def _canonical(alike: Alike, loops: Loops) -> dict[Value, Value]:
    """The loops' binders as variables that stand for all loops of these extents."""
    extents = [extent.dim for _, extent in loops]
    mapping = {}
    for k, (binder, _) in enumerate(loops):
        extent = extents[k]
        assert extent is not None
        mapping[binder] = alike.variable(extent, extents[:k].count(extent))
    return mapping


def _in_loops(root: Body) -> list[tuple[Node, Loops]]:
    """The operations in loops that depend on these and on the program's parameters alone, each after its arguments."""
    parameters = frozenset([binder.number for binder in root.binders])
    found: dict[int, tuple[Node, Loops] | None] = {}
    entered: set[tuple[int, Loops]] = set()
    waiting: list[tuple[Node, Loops]] = []

    def push(nodes: Iterable[Node | None], loops: Loops) -> None:
        waiting.extend([(node, loops) for node in nodes if node is not None])

    def enter(body: Body, loops: Loops) -> None:
        push(body.statements, loops)
        push([result.source for result in body.results], loops)

    enter(root, ())
    while waiting:
        node, loops = waiting.pop()
        around = tuple([loop for loop in loops if loop[0].number in node.free])
        if (node.number, around) in entered:
            continue
        entered.add((node.number, around))
        push([arg.source for arg in node.args], loops)
        binders = frozenset([binder.number for binder, _ in around])
        if around and node.free <= parameters | binders and _storable(node):
            # A body that two loops of different extents share has two images, and none of them is stored.
            found[node.number] = None if node.number in found else (node, around)
        if node.op == "accumulate":
            enter(node.bodies[0], loops)
        if node.row.elements:
            [(binder, extent)] = node.loop_variables()
            if extent.free <= parameters:
                enter(node.bodies[0], (*loops, (binder, extent)))
    return [each for number in sorted(found) if (each := found[number]) is not None]


def _storable(node: Node) -> bool:
    """Whether the results of an operation are scalars that have no effects."""
    return not node.effects and not node.partial and not any([dims(value.type) for value in node.results])
