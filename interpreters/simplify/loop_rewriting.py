"""Loop rewriting: a term is rebuilt with loops that wait until their block has been emitted, and may be changed then.

Code behind a pending loop is built on binders in the place of the loop's results. So it is known what depends on these,
and it can be given the results of another loop, as in ``rematerialisation.py`` and ``redundant_loops.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...core.builder import Builder, Replacement, Substitution
from ...core.dims import Dim
from ...core.environment import Env
from ...core.graph import Body, Node, Value, sources
from ...core.language import Binding
from ...core.types import Type, rank
from .. import embed
from .value_numbering import operands


@dataclass
class Pending:
    """A loop, and the binders that stand for its results in the code behind it."""

    node: Node
    results: list[Value]
    known: frozenset[int]  # what is in scope before the loop
    position: int  # how many statements of its block are before it
    places: Sequence[int | None]  # the results of the node that the binders stand for; None: nothing reads the binder

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

    def rewrites(self, node: Node) -> bool:
        """Whether a loop may be changed: one that stores an array a step, if nothing else is said."""
        return any(rank(output.type) > 1 for output in node.results[len(node.args) - 1 :])

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

    def replace(self, loops: Loops, loop: Pending, body: Body, statements: list[Node]) -> None:
        """Give a loop of a block another body."""
        scope, node = self.builder.scopes[-1], loop.node
        loop.node = source(self.builder.make("loop", node.static, node.args, [body])[0])
        if loop.node.effects:
            statements[loop.position - loops[0].position] = scope.statements.pop()
        self.changed = True

    def drop(
        self, loops: Loops, loop: Pending, dropped: Collection[int], stored: Sequence[Value], statements: list[Node]
    ) -> None:
        """Have a loop not give some of its results, which nothing reads any more, and ``stored`` behind the others."""
        body, kept = loop.node.bodies[0], [k for k in range(len(loop.results)) if k not in dropped]
        loop.places = [None if k in dropped else kept.index(k) for k in range(len(loop.results))]
        results = (*[body.results[k] for k in kept], *stored)
        self.replace(loops, loop, self.builder.close(body.binders, body.statements, results, body.partial), statements)

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
        read = {binder: place for binder, place in zip(loop.results, loop.places, strict=True) if place is not None}
        mapping.update(zip(read, rewriting.values([loop.node.results[place] for place in read.values()]), strict=True))

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


# The code behind a loop


def statements_in(node: Node) -> Iterator[Node]:
    """The statements of the bodies of a node."""
    for body in node.bodies:
        yield from body.statements


class Readers:
    """The code behind the loops of a block: its nodes, and the loops in it."""

    def __init__(self, known: frozenset[int], results: Sequence[Value], statements: Sequence[Node]) -> None:
        self.results, self.statements = results, statements
        self.nodes: dict[int, Node] = {}
        self.always: set[int] = set()  # the nodes outside of branches
        self.loops: dict[int, Index | None] = {}  # by the number of the loop variable
        stack = [(node, False) for node in [*statements, *sources(results)]]
        while stack:
            node, branch = stack.pop()
            if node.number in (self.nodes if branch else self.always) or node.free <= known:
                continue
            self.nodes[node.number] = node
            if not branch:
                self.always.add(node.number)
            for binder, extent in node.loop_variables():
                index = Index(binder, extent, node.op == "loop")
                if self.loops.setdefault(binder.number, index) != index:
                    self.loops[binder.number] = None  # a body of several loops
            inside = [value for body in node.bodies for value in body.results]
            stack.extend([(inner, branch) for inner in sources(node.args)])
            branch = branch or node.row.branches
            stack.extend([(inner, branch) for inner in [*sources(inside), *statements_in(node)]])

    @cached_property
    def _users(self) -> dict[Value, list[Node]]:
        users: dict[Value, list[Node]] = {}
        for node in self.nodes.values():
            for value in dict.fromkeys(operands(node)):
                users.setdefault(value, []).append(node)
        return users

    def reads(self, output: Value) -> list[Node] | None:
        """The reads of what a loop stored for a step; None if there are other uses of it."""
        users = self._users.get(output, [])
        plain = all([node.op == "index" and output not in node.args[1:] for node in users])
        return users if plain and output not in self.results else None


@dataclass(frozen=True)
class Index:
    """A loop variable, its extent, and whether its loop runs in order anyway."""

    variable: Value
    extent: Value
    in_order: bool
