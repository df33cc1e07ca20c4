"""Global code motion: the graph becomes a term, in which each node has its place and De Bruijn indices.

A scope is the inside of a body. From each place of use a node rises out of scopes as far as its free binders allow,
but not out of a branch of ``cond``: so what is used in both branches alone is computed in each, what is used
outside too is computed there, and everything leaves the loops it does not depend on. There are three exceptions. What
holds a loop itself leaves a branch if that takes it out of a surrounding loop, for it would run again and again
there. What several branches of a choice by a loop's index share, as elements of an array that is written out do, is
computed once before the loop, since each branch is taken (``index_choices.py``). And a choice of which there would be
many copies leaves the branches of another one that wants it in all of them: each copy has copies of the choice that it
is made of itself, so that a chain

    y1 = cond(p1, sin(y0), y0 * 2)
    y2 = cond(p2, sin(y1), y1 * 2)
    ...

would double with each. (Muchnick, Advanced compiler design and implementation, 1997, section 13.5: what is very busy.)

What a branch of a ``par`` made stays in it, for that is what runs side by side; what was there before it is computed
before it. A constant (``Nil()``, an array of zeros) does not leave a function: it is made again there, not captured.
Statements stay where they were recorded. Both walks use explicit stacks: a program may be as long as memory
allows. (Click, Global code motion, global value numbering, 1995.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Any

from . import terms
from .constructs import Construct
from .dims import Dim, DimAtom, Opaque
from .graph import Body, Node, Value, numbers
from .index_choices import IndexChoices
from .terms import Block, Operation
from .types import Scalar, Type, dims, i64, map_dims

# A choice with more copies than these leaves branches. A few are of use: what takes long, and is wanted in one branch
# of each choice of a chain, is computed once where the choices stand in each other.
COPIES = 8


class _Region:
    """A scope of the program being laid out, with the nodes placed in it; ``of`` is the construct it belongs to."""

    __slots__ = ("body", "bound", "inner", "node", "number", "of", "order", "parent")

    def __init__(self, parent: _Region | None, body: Body, node: Node | None, number: int = 0) -> None:
        self.parent, self.body, self.node, self.number = parent, body, node, number
        self.of: Construct | None = None if node is None else node.row
        self.bound = numbers(body.binders, body.statements)
        self.order: list[Node] = []
        self.inner: dict[tuple[int, int], _Region] = {}

    def enter(self, node: Node, k: int) -> _Region:
        region = self.inner.get((node.number, k))
        if region is None:
            region = self.inner[node.number, k] = _Region(self, node.bodies[k], node, k)
        return region

    def forget(self) -> None:
        """Let go of all scopes inside, which know this one."""
        for region in self.inner.values():
            region.forget()
            region.parent = None

    def nearest(self, regions: set[_Region], inside: bool = False) -> _Region | None:
        """The innermost of some scopes that this one is in; ``inside`` of the function that it is in."""
        region: _Region | None = self
        while region is not None and region not in regions:
            region = None if inside and region.is_function else region.parent
        return region

    @property
    def is_function(self) -> bool:
        return self.of is not None and self.of.functions


def _is_constant(node: Node) -> bool:
    """Whether a node is a value that is made of nothing in a few steps, or an array that has it everywhere."""
    if node.free or node.effects or any([arg.source is not None for arg in node.args]):
        return False
    if not node.row.elements:
        return node.row.cheap
    inner = [value for body in node.bodies for value in body.results]
    return all([value.literal is not None or (value.source and _is_constant(value.source)) for value in inner])


def _is_open(node: Node) -> bool:
    """Whether a node gives an array whose size the run decides, in steps that end."""
    open = any([not dim.is_static() for value in node.results for dim in dims(value.type)])
    return open and not node.effects and not node.partial


def _risen(node: Node, region: _Region, stays: bool) -> _Region:
    """The outermost scope in which a node used in ``region`` may be computed; in a function that it is in, if it
    ``stays`` there."""
    if node.effects:
        while node.number not in region.bound:
            assert region.parent is not None, "a statement outside the scope that holds it"
            region = region.parent
        return region
    home, branch = region, False
    long = bool(node.bodies) or not (node.row.elementwise or node.row.cheap)
    while region.parent is not None and node.free.isdisjoint(region.bound) and not (stays and region.is_function):
        of, opened = region.of, region.body.opened
        assert of is not None, "the root has no parent"
        branch = branch or of.branches or (of.splits and node.number > opened)
        leaves_loop = of.loops
        region = region.parent
        if not branch or (leaves_loop and long):
            home, branch = region, False
    return home


def _taken(node: Node, region: _Region) -> _Region | None:
    """The scope around loops of a known length, some iteration of which takes the branches that ``region`` is in."""
    choices, inner = IndexChoices(), region
    while inner.parent is not None and inner.node is not None and node.free.isdisjoint(inner.bound):
        if inner.node.op == "cond":
            known = choices.enter(inner.node.args[0], inner.body is inner.node.bodies[0])
        else:
            known = inner.node.op == "generate" and choices.leave(inner.node)
        if not known:
            return None
        inner = inner.parent
        if choices.taken:
            return inner
    return None


def _may_leave_choices(node: Node) -> bool:
    """Whether a node is a choice itself, whose results are as they are wherever it is made."""
    static = all([dim.is_static() for value in node.results for dim in dims(value.type)])
    return node.row.chooses and static and not node.effects


def _is_computed_size(value: Value) -> bool:
    """Whether a value is an integer that is known by those that it is computed from."""
    computed = value.source is not None and value.dim is not None
    return computed and value.dim != Dim.atom(Opaque(value.number))


class _Layout:
    """Both walks over the graph from a root body."""

    def __init__(self, root: Body, sizes: Collection[int], functions: bool, remade: bool) -> None:
        self.root, self.sizes, self.functions, self.remade = _Region(None, root, None), sizes, functions, remade
        self.homes: dict[int, set[_Region]] = {}
        self.captured: dict[int, Value] = {}

    def run(self) -> None:
        self._collect()
        self._order()

    def _stays(self, node: Node) -> bool:
        """Whether a node does not leave a function, but is made again there."""
        return _is_constant(node) or (self.remade and _is_open(node))

    def _is_captured(self, value: Value) -> bool:
        """A value of an outer scope: it has free binders, none of them bound here.

        A size that is computed from others is computed here again, from those: so types that mention it say the same.
        One that nothing free is needed for is captured if the types of what is bound mention it, by its number.
        """
        if not value.free:
            return value.number in self.sizes
        if self.functions and value.source is not None and value.source.row.functions:
            return False
        return value.free.isdisjoint(self._all_bound) and not _is_computed_size(value)

    def _collect(self) -> None:
        """Find all scopes that want a node, and keep the outermost ones.

        Users come before what they use, for these have lower numbers: so all scopes that want a node are known before
        it is entered.
        """
        self._all_bound = set(self.root.bound)
        self._wanted: dict[int, Node] = {}
        self._heap: list[int] = []
        self._enter(self.root)
        while self._heap:
            number = -heappop(self._heap)
            node, homes = self._wanted.pop(number), self.homes[number]
            if len(homes) > 1 and not node.row.cheap and not node.effects:
                self._share(node, homes)
            self._keep_outermost(node, homes)
            if len(homes) > COPIES and _may_leave_choices(node):
                self._hoist(node, homes)
                self._keep_outermost(node, homes)
            for home in homes:
                self._push(node.args, home)
                self._push(node.sizes, home)
                for k in range(len(node.bodies)):
                    self._enter(home.enter(node, k))

    def _keep_outermost(self, node: Node, homes: set[_Region]) -> None:
        """Leave out the scopes that are inside of others."""
        if len(homes) > 1:
            stays = self._stays(node)
            homes.difference_update([r for r in homes if self._has_outer(r, homes, stays)])

    def _has_outer(self, region: _Region, homes: set[_Region], stays: bool) -> bool:
        """Whether another of the scopes is around one, inside of the same function where the node ``stays`` in it."""
        if region.parent is None or (stays and region.is_function):
            return False
        return region.parent.nearest(homes, stays) is not None

    def _share(self, node: Node, homes: set[_Region]) -> None:
        """Compute what several branches of a choice by an index want before the loop."""
        around: dict[_Region, list[_Region]] = {}
        for home in homes:
            if (outer := _taken(node, home)) is not None:
                around.setdefault(outer, []).append(home)
        for outer, some in around.items():
            if len(some) > 1:
                homes.difference_update(some)
                homes.add(_risen(node, outer, self._stays(node)))

    def _hoist(self, node: Node, homes: set[_Region]) -> None:
        """Compute before choices what all their branches want, one choice after the other outwards."""
        while True:
            beside: dict[tuple[Any, ...], list[_Region]] = {}
            for home in homes:
                choice = home.node
                if choice is not None and choice.row.chooses and node.free.isdisjoint(home.bound):
                    beside.setdefault((home.parent, choice.op, choice.args, len(choice.bodies)), []).append(home)
            moved = False
            for (around, _, _, count), branches in beside.items():
                if len({branch.number for branch in branches}) == count:
                    homes.difference_update(branches)
                    homes.add(_risen(node, around, self._stays(node)))
                    moved = True
            if not moved:
                return

    def _enter(self, region: _Region) -> None:
        self._all_bound.update(region.bound)
        for statement in region.body.statements:
            self._want(statement, region)
        self._push(region.body.results, region)

    def _push(self, values: Sequence[Value], region: _Region) -> None:
        for value in values:
            if self._is_captured(value):
                self.captured.setdefault(value.number, value)
            elif value.source is not None:
                self._want(value.source, region)

    def _want(self, node: Node, region: _Region) -> None:
        homes = self.homes.get(node.number)
        if homes is None:
            homes = self.homes[node.number] = set()
            self._wanted[node.number] = node
            heappush(self._heap, -node.number)
        homes.add(_risen(node, region, self._stays(node)))

    def _home(self, node: Node, region: _Region) -> _Region:
        home = region.nearest(self.homes[node.number])
        assert home is not None, "a node that was not collected"
        return home

    def _order(self) -> None:
        """Put the nodes of each scope in an order in which arguments precede their users."""
        done: set[tuple[int, int]] = set()
        stack: list[tuple[Node, _Region, bool]] = []

        def push(values: Sequence[Value], region: _Region) -> None:
            for value in reversed(values):
                if value.source is not None and value.number not in self.captured:
                    stack.append((value.source, region, False))

        push(self.root.body.results, self.root)
        stack.extend((statement, self.root, False) for statement in reversed(self.root.body.statements))
        while stack:
            node, region, ready = stack.pop()
            if ready:
                region.order.append(node)
                continue
            home = self._home(node, region)
            if (node.number, id(home)) in done:
                continue
            done.add((node.number, id(home)))
            stack.append((node, home, True))
            for k, body in reversed(list(enumerate(node.bodies))):
                inner = home.enter(node, k)
                push(body.results, inner)
                stack.extend((statement, inner, False) for statement in reversed(body.statements))
            push(node.args, home)
            push(node.sizes, home)


def _opaque_sizes(values: Sequence[Value]) -> set[int]:
    """The numbers of the integers that the types of values mention."""
    atoms = [atom for value in values for dim in dims(value.type) for atom in dim.atoms()]
    return {atom.number for atom in atoms if isinstance(atom, Opaque)}


def to_block(
    binders: Sequence[Value],
    results: Sequence[Value],
    statements: Sequence[Node] = (),
    names: Sequence[str] = (),
    functions: bool = False,
    remade: bool = False,
) -> tuple[Block, list[Value]]:
    """The term of a body, and the values of outer scopes that it uses, which are bound before its binders.

    With ``functions``, a function that is defined in an outer scope is not among these, but in the term: it is its code
    and what that uses.

    An opaque size in it is known by a number: the first numbers are those of the integers among all these, in order.
    """
    root = Body(0, tuple(binders), tuple(statements), tuple(results))
    sizes = _opaque_sizes(binders)
    while True:
        layout = _Layout(root, sizes, functions, remade)
        layout.run()
        captured = list(layout.captured.values())
        bound = [*captured, *binders]
        mentioned = _opaque_sizes(captured)
        if mentioned <= sizes:
            break
        sizes |= mentioned
        layout.root.forget()
    block = _Writer([value.number for value in bound if value.type == i64]).block(layout.root, bound, names)
    layout.root.forget()
    return block, captured


class _Writer:
    """Writes a finished layout as a term, whose parameters have the integers of these numbers among them."""

    def __init__(self, integers: Sequence[int]) -> None:
        self.levels: dict[int, int] = {}
        self.depth = 0
        self.opaque = {integer: Opaque(number) for number, integer in enumerate(integers)}

    def block(self, region: _Region, binders: Sequence[Value], names: Sequence[str] = ()) -> Block:
        base, around = self.depth, dict[int, int | None]()

        def bind(value: Value) -> None:
            around[value.number] = self.levels.get(value.number)  # a constant is made again in a function
            self.levels[value.number] = self.depth
            self.depth += 1

        for binder in binders:
            bind(binder)
        operations = []
        for node in region.order:
            args = tuple([self.atom(arg) for arg in node.args])
            blocks = tuple(
                [self.block(region.inner[node.number, k], body.binders) for k, body in enumerate(node.bodies)]
            )
            static = tuple([self.dim(x) if isinstance(x, Dim) else x for x in node.static])
            types = tuple([self.type(value.type) for value in node.results])
            operations.append(Operation(node.op, static, args, blocks, types, node.origin))
            for value in node.results:
                bind(value)
        results = tuple([self.atom(value) for value in region.body.results])
        for number, level in around.items():
            if level is None:
                del self.levels[number]
            else:
                self.levels[number] = level
        self.depth = base
        types = tuple([self.type(binder.type) for binder in binders])
        return Block(types, tuple(operations), results, tuple(names) or tuple([binder.name for binder in binders]))

    def atom(self, value: Value) -> terms.Atom:
        if value.atom is not None:
            return value.atom
        level = self.levels.get(value.number)
        if level is None:
            raise LookupError(value.name or repr(value))
        return terms.Variable(self.depth - 1 - level, self.type(value.type))

    def type(self, type: Type) -> Type:
        """The type with opaque sizes numbered in the order in which they occur."""
        return type if isinstance(type, Scalar) else map_dims(type, self.dim)

    def dim(self, dim: Dim) -> Dim:
        if dim.is_static():
            return dim

        def renumber(atom: DimAtom) -> Dim | None:
            if not isinstance(atom, Opaque):
                return None
            return Dim.atom(self.opaque.setdefault(atom.number, Opaque(len(self.opaque))))

        return dim.substitute(renumber)
