"""The builder's graph: what a term is while it is being built.

Values have no names and no indices here: a *value* is a binder, an atom without binder, or a result of a node; a
*node* is an operation; a *body* is a block, with binders of unique number. Where a node is computed is decided at
the end (``placement.py``), so an expression may be used anywhere its free binders are in scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import terms
from .constructs import Construct
from .dims import Dim, Opaque
from .terms import Origin
from .types import Type, i64

# The effect of a requirement, and of what acts outside of the program; that of an update is the number of the
# binder of its accumulator.
REQUIREMENT = -1
ACTION = -2

NONE: frozenset[int] = frozenset()


class Value:
    """A binder (no source, no atom), a literal, constant or size (atom), or a node's result (source, position)."""

    __slots__ = ("atom", "dim", "free", "name", "number", "position", "source", "type")

    def __init__(
        self,
        number: int,
        type: Type,
        free: frozenset[int],
        source: Node | None = None,
        position: int = 0,
        atom: terms.Atom | None = None,
        name: str = "",
    ) -> None:
        self.number, self.type, self.free = number, type, free
        self.source, self.position, self.atom, self.name = source, position, atom, name
        self.dim: Dim | None = None
        if type is i64:
            match atom:
                case terms.Literal(bits):
                    self.dim = Dim.of(bits)
                case terms.Size(dim):
                    self.dim = dim
                case _:
                    self.dim = Dim.atom(Opaque(number))

    @property
    def literal(self) -> float | int | bool | None:
        """The Python value of a literal, None for every other value."""
        return self.atom.value if isinstance(self.atom, terms.Literal) else None

    def __repr__(self) -> str:
        return f"<{self.atom or (self.source and self.source.op) or 'binder'} {self.number}: {self.type}>"


class Node:
    """An operation in the graph."""

    __slots__ = (
        "args", "bodies", "effects", "free", "number", "op", "origin", "partial", "results", "row", "sizes", "static",
    )  # fmt: skip

    op: str
    row: Construct
    static: tuple[Any, ...]
    args: tuple[Value, ...]
    bodies: tuple[Body, ...]
    results: tuple[Value, ...]
    sizes: tuple[Value, ...]  # computed integers that the types of the results mention
    free: frozenset[int]
    effects: frozenset[int]
    number: int
    partial: bool  # it may not end
    origin: Origin

    def loop_variables(self) -> Iterator[tuple[Value, Value]]:
        """The binders of the first body that are indices, each with its extent."""
        extents = self.row.iterations(self)
        return zip(self.bodies[0].binders, extents, strict=False) if extents else iter(())


class Body:
    """A block in the graph: ``statements`` are its nodes with effects, in order.

    A statement may have results (a loop that updates an accumulator and yields a state). They are bound by the body
    as its binders are: their ``free`` holds the statement's number, which keeps what uses them in its scope.
    """

    __slots__ = (
        "_outside", "binders", "code", "effects", "free", "number", "opened", "partial", "results", "statements",
        "values",
    )  # fmt: skip

    binders: tuple[Value, ...]
    statements: tuple[Node, ...]
    results: tuple[Value, ...]
    free: frozenset[int]
    effects: frozenset[int]
    number: int
    partial: bool  # holds something that may not end
    opened: int  # nodes of lower number were there before
    code: int | None  # the number of its code (``alpha_equivalence.py``), if it has no statements
    values: Sequence[Value]  # from outside, that the code is for

    def __init__(
        self,
        number: int,
        binders: tuple[Value, ...],
        statements: tuple[Node, ...],
        results: tuple[Value, ...],
        partial: bool = False,
        opened: int = 0,
        code: int | None = None,
        values: Sequence[Value] = (),
    ) -> None:
        self.partial, self.opened, self.code, self.values = partial, opened, code, values
        bound = numbers(binders, statements)
        self.number, self.binders, self.statements, self.results = number, binders, statements, results
        used = union([value.free for value in results] + [node.free for node in statements])
        self.free = used - bound if bound else used
        self.effects = union([node.effects for node in statements]) - bound
        self._outside: tuple[Node, ...] | None = None

    @property
    def outside(self) -> tuple[Node, ...]:
        """The nodes that what is inside uses, or what is in bodies inside, and that do not depend on what it binds.

        Those of a ``par`` inside are left out.
        """
        if self._outside is None:
            bound = numbers(self.binders, self.statements)
            found: dict[int, Node] = {}
            stack, seen = [*sources(self.results), *self.statements], set[int]()
            while stack:
                node = stack.pop()
                if node.number in seen:
                    continue
                seen.add(node.number)
                if node.number not in bound and node.free.isdisjoint(bound):
                    found[node.number] = node
                else:
                    stack.extend(needs(node))
            self._outside = tuple(found.values())
        return self._outside

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(value.type for value in self.results)


def sources(values: Iterable[Value]) -> list[Node]:
    """The nodes of the values that are results."""
    return [value.source for value in values if value.source is not None]


def needs(node: Node) -> list[Node]:
    """The nodes that a node uses, and those that its bodies use from outside, but for the bodies of a ``par``."""
    bodies = () if node.row.splits else node.bodies
    return [*sources(node.args), *[outer for body in bodies for outer in body.outside]]


def numbers(binders: Iterable[Value], statements: Iterable[Node]) -> frozenset[int]:
    """The numbers of what a scope binds."""
    return frozenset([*[binder.number for binder in binders], *[statement.number for statement in statements]])


def union(sets: list[frozenset[int]]) -> frozenset[int]:
    """The union, sharing an operand where one contains the others (most programs have few binders)."""
    total = NONE
    for one in sets:
        if one is not total and not one <= total:
            total = one if total <= one else total | one
    return total


def out_of_order(row: Construct, body: Body) -> str:
    """Why a construct cannot run a body that acts outside of the program: it does not run it in order."""
    nodes = list(body.statements)
    while not (node := nodes.pop()).row.acts:
        nodes.extend([statement for inner in node.bodies for statement in inner.statements])
    problem = f"has effects, and cannot be inside a {row.name}, which runs in no order"
    return f"{node.static[0].name} {problem}: write az.fori_loop, at {node.origin}"
