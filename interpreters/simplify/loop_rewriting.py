"""Loop rewriting: a term is rebuilt with loops that wait until their block has been emitted, and may be changed then.

Code behind a pending loop is built on binders in the place of the loop's results. So it is known what depends on these,
and it can be given the results of another loop, as in ``rematerialisation.py`` and ``redundant_loops.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim
from ...core.environment import Env
from ...core.graph import Node, Value, sources
from ...core.language import Binding
from ...core.types import Type
from .. import embed


@dataclass
class Pending:
    """A loop, and the binders that stand for its results in the code behind it."""

    node: Node
    results: list[Value]
    known: frozenset[int]  # what is in scope before the loop
    position: int  # how many statements of its block are before it
    places: Sequence[int]  # the results of the node that the binders stand for

    @property
    def outputs(self) -> list[Value]:
        return self.results[len(self.node.args) - 1 :]


Loops = Sequence[Pending]


class LoopRewriting(embed.Embed):
    """Rebuilds a term with other loops; ``changed`` says whether there was one."""

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.changed = False
        self.pending: list[list[Pending]] = []  # of the blocks that are open

    @abstractmethod
    def rewrites(self, node: Node) -> bool:
        """Whether a loop may be changed."""

    @abstractmethod
    def change(self, loops: Loops, results: Sequence[Value], statements: list[Node]) -> dict[int, Replacement]:
        """Give loops of a block, in their order, other nodes; what is read of these then, by the number of a node.

        The results of the block and its statements from the first loop on are on the loops' binders.
        """

    def loop(self, dim: Dim, extent: embed.Atom, initials: Sequence[embed.Atom], body: embed.Block) -> embed.Operation:
        emit = super().loop(dim, extent, initials, body)

        def run(env: Env[Value]) -> Sequence[Value]:
            b = self.builder
            known, position = frozenset(b.open), len(b.scopes[-1].statements)
            values = emit(env)
            if not values or not self.rewrites(source(values[0])):
                return values
            results = [b.variable(value.type, value.name) for value in values]
            self.pending[-1].append(Pending(source(values[0]), results, known, position, range(len(values))))
            return results

        return run

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[embed.Atom], names: Sequence[str]
    ) -> embed.Block:
        rebuild = super().block(binders, bindings, results, names)

        def run(env: Env[Value], arguments: Sequence[Value]) -> list[Value]:
            self.pending.append([])
            values = rebuild(env, arguments)
            loops = self.pending.pop()
            return self._settled(loops, values) if loops else values

        return run

    def _settled(self, loops: Sequence[Pending], results: Sequence[Value]) -> list[Value]:
        """The results of the open block, with its loops as they should be in the place of the binders for them."""
        b, scope = self.builder, self.builder.scopes[-1]
        first = loops[0].position
        statements = scope.statements[first:]
        replaced = self.change(loops, results, statements)
        del scope.statements[first:]
        b.open.difference_update([binder.number for loop in loops for binder in loop.results])
        b.open.difference_update([node.number for node in statements])
        return _rewritten(b, loops, statements, results, replaced)


def _rewritten(
    b: Builder,
    loops: Sequence[Pending],
    statements: Sequence[Node],
    results: Sequence[Value],
    replaced: Mapping[int, Replacement],
) -> list[Value]:
    """Emit the statements and give the results, with the results of loops in the place of the binders for these."""
    mapping = {binder: binder for loop in loops for binder in loop.results}
    rewriting = Substitution(b, mapping, None, statements, replaced)
    waiting = deque(loops)

    def settle() -> None:
        loop = waiting.popleft()
        made = rewriting.values([loop.node.results[place] for place in loop.places])
        mapping.update(zip(loop.results, made, strict=True))

    for position, statement in enumerate(statements, loops[0].position):
        while waiting and waiting[0].position <= position and waiting[0].node is not statement:
            settle()
        rewriting.rebuild(sources(statement.args))
        rewriting.memo[statement.number] = rewriting.image(statement)
        if waiting and waiting[0].node is statement:
            settle()
    while waiting:
        settle()
    return rewriting.values(results)


def source(value: Value) -> Node:
    """The node of a value that is the result of one."""
    assert value.source is not None
    return value.source
