"""The builder: a hash-consed graph through which all new code is emitted.

Equal operations are one node, so sharing needs no thought: an expression used twice, or written twice, is computed
once. Bodies are interned up to the names of their binders when they close. A builder belongs to one build and one
thread; ``build`` makes it current, and ``placement.to_block`` turns the finished graph into a term.

    with build() as b:
        x = b.variable(f64, "x")
        y = b.primitive(add, x, x)
        assert b.primitive(add, x, x) is y

A builder may hold *rules*: they see each operation before it is made and may answer with other values. This is how
``simplify`` works (``interpreters/simplify/``); programs are built without rules, as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from . import terms
from .alpha_equivalence import code_and_values
from .constructs import CONSTRUCTS, Construct, Role, construct
from .dims import Dim, Opaque, arithmetic
from .graph import ACTION, NONE, REQUIREMENT, Body, Node, Value, needs, numbers, out_of_order, sources, union
from .limits import lifted_limits
from .primitive import PRIMITIVES, Primitive
from .requirements import without_requirements
from .size_names import SizeNames
from .source import at_line
from .terms import NOWHERE, Failure, Origin
from .types import Accumulator, ArrayType, Itself, Scalar, Type, dims, i64, rank
from .weak_types import Inference

# The effects of constructs that are statements by themselves, besides updates.
_REQUIRES = frozenset({REQUIREMENT})
_ACTS = frozenset({REQUIREMENT, ACTION})

# What stands for the results of a node, where a substitution meets it.
Replacement = Callable[["Substitution"], "tuple[Value, ...]"]

Rule = Callable[["Builder", str, tuple[Any, ...], tuple[Value, ...], tuple[Body, ...]], "tuple[Value, ...] | None"]


class Scope:
    """A body that is open: the statements recorded so far.

    What may not end is *anchored* to the innermost scope with binders: it is free in the first of them, and so never
    leaves a loop that may run no iteration. (Accumulators are bound by what runs once, and may vanish.)
    """

    def __init__(self, binders: tuple[Value, ...], outer: Scope | None = None) -> None:
        self.binders = binders
        self.statements: list[Node] = []
        self.required: set[int] = set()  # the tests that hold from here on
        self.partial = False  # whether something inside may not end
        self.anchor: frozenset[int] = NONE
        if binders and not isinstance(binders[0].type, Accumulator):
            self.anchor = frozenset([binders[0].number])
        elif outer is not None:
            self.anchor = outer.anchor


class Builder:
    """Makes values, nodes and bodies (see the module)."""

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule = rule
        self.origin: Origin = NOWHERE
        self.scopes: list[Scope] = [Scope(())]
        self.open: set[int] = set()  # numbers of the binders in scope
        self._count = 0
        self._atoms: dict[terms.Atom, Value] = {}
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self._made: list[Node] = []  # those with effects, too
        self._codes: dict[tuple[Any, ...], int] = {}
        self._bodies: dict[tuple[int, ...], Body] = {}
        self._by_dim: dict[Dim, Value] = {}  # integer values, for sizes that are one
        self.extents: dict[int, Dim] = {}  # of loop variables, and of other indices, for proofs about these
        self.inference: Inference | None = None  # of the types of states that begin as numbers
        self.size_names = SizeNames()  # in the types that the body writes
        self.definitions: dict[Any, Any] = {}  # functions with the types that they have here, by these

    def fresh(self) -> int:
        self._count += 1
        return self._count

    def forget(self) -> None:
        """Let go of the graph when its term is made.

        Nodes and their results know each other: what is long would wait for the collector of garbage, and cost it more
        than a tenth of the time in which the graph was made.
        """
        for node in self._made:
            node.args = node.bodies = node.results = node.sizes = ()
        for kept in (self._made, self._atoms, self._nodes, self._codes, self._bodies, self._by_dim):
            kept.clear()

    # Atoms and binders

    def atom(self, atom: terms.Atom) -> Value:
        value = self._atoms.get(atom)
        if value is None:
            value = self._atoms[atom] = Value(self.fresh(), atom.type, NONE, atom=atom)
        return value

    def literal(self, value: float | int | bool, type: Scalar) -> Value:
        return self.atom(terms.Literal.of(value, type))

    def dim(self, dim: Dim) -> Value:
        """The value of a static dim."""
        constant = dim.constant
        return self.atom(terms.Size(dim)) if constant is None else self.literal(constant, i64)

    def variable(self, type: Type, name: str = "") -> Value:
        """A fresh binder, in scope from now on until :meth:`close` takes it."""
        number = self.fresh()
        value = Value(number, type, frozenset((number,)), name=name)
        if value.dim is not None:
            self._by_dim[value.dim] = value
        self.open.add(number)
        return value

    # Nodes

    def emit(
        self, op: str, static: tuple[Any, ...], args: Sequence[Value], bodies: Sequence[Body] = ()
    ) -> tuple[Value, ...]:
        """The results of an operation, which is recorded as a statement of the open scope if it has an effect."""
        args, bodies = tuple(args), tuple(bodies)
        if op == "primitive" and args[0].dim is not None:
            folded = self._fold_dim(static[0], args)
            if folded is not None:
                return (folded,)
        if self.rule is not None:
            rewritten = self.rule(self, op, static, args, bodies)
            if rewritten is not None:
                return rewritten
        return self.make(op, static, args, bodies)

    def make(
        self, op: str, static: tuple[Any, ...], args: Sequence[Value], bodies: Sequence[Body] = ()
    ) -> tuple[Value, ...]:
        """:meth:`emit` without the rules."""
        args, bodies = tuple(args), tuple(bodies)
        pure = op == "apply" and isinstance(args[0].type, Itself)  # where it is known, its body's effects are seen
        row = construct(op, static)
        effects, partial = NONE, row.partial and not pure
        wanted = len(bodies[0].results) if op == "generate" else None  # others are what it requires
        if bodies:
            if row.makes_elements or op == "cond":
                bodies = without_requirements(self, row, static, args, bodies)
            running = bodies[: len(row.blocks)] if row.more is Role.RULE else bodies  # rules run in derivatives only
            for k, body in enumerate(running):
                if ACTION in body.effects and row.role(k).unordered:
                    raise TypeError(out_of_order(row, body))
            if not row.functions:  # a function has its effects where it is applied
                effects = union([body.effects for body in running])
            partial = partial or any([body.partial for body in running])
        if row.writes:
            effects = args[0].free
        elif not (row.pure or pure):
            effects = _ACTS if row.acts else _REQUIRES
        anchor = NONE
        if partial:
            self.scopes[-1].partial = True
            anchor = self.scopes[-1].anchor
        key = (op, static, tuple([arg.number for arg in args]), tuple([body.number for body in bodies]), anchor)
        node = self._nodes.get(key) if not effects else None
        if node is None:
            node = self._node(row, static, args, bodies, effects, anchor)
            node.partial = partial
            if not effects:
                self._nodes[key] = node
            else:
                self.scopes[-1].statements.append(node)
                self.open.add(node.number)
        return node.results[:wanted]

    def check(self, extents: Sequence[Value], binders: tuple[Value, ...], statements: tuple[Node, ...]) -> None:
        """Statements over loops, as generates without results."""
        if len(binders) > 1:
            self.scopes.append(Scope(binders[:1], self.scopes[-1]))
            self.check(extents[1:], binders[1:], statements)
            statements = tuple(self.scopes.pop().statements)
        self.make("generate", (_dim(extents[0]),), extents[:1], [Body(self.fresh(), binders[:1], statements, ())])

    def _node(
        self,
        row: Construct,
        static: tuple[Any, ...],
        args: tuple[Value, ...],
        bodies: tuple[Body, ...],
        effects: frozenset[int],
        anchor: frozenset[int],
    ) -> Node:
        op = row.name
        types = row.types(static, [arg.type for arg in args], [body.types for body in bodies])
        node = Node()
        node.op, node.row, node.static, node.args, node.bodies, node.effects = op, row, static, args, bodies, effects
        node.free = union([anchor, *[arg.free for arg in args], *[body.free for body in bodies]])
        node.sizes = self._sizes_in(types)
        node.number, node.origin = self.fresh(), self.origin
        self._made.append(node)
        free = node.free | {node.number} if effects else node.free
        node.results = tuple([Value(self.fresh(), type, free, node, k) for k, type in enumerate(types)])
        for value in node.results:
            if value.type is i64:
                if op == "primitive":
                    value.dim = arithmetic(static[0].name, [arg.dim for arg in args]) or value.dim
                elif op == "size":
                    value.dim = dims(args[0].type)[static[0]]
                elif op == "index" and args[0].source is not None and args[0].source.row.permutes:
                    self.extents[value.number] = dims(args[0].type)[0]
                self._by_dim[_dim(value)] = value
        return node

    def _sizes_in(self, types: Sequence[Type]) -> tuple[Value, ...]:
        """The computed integers that types mention: they must be known where a value of such a type is."""
        sizes = [dim for type in types if isinstance(type, ArrayType) for dim in type.dims if not dim.is_static()]
        atoms = {atom for dim in sizes for atom in dim.atoms() if isinstance(atom, Opaque)}
        values = [self._by_dim.get(Dim.atom(atom)) for atom in sorted(atoms, key=lambda atom: atom.number)]
        return tuple([value for value in values if value is not None and value.source is not None])

    def _fold_dim(self, primitive: Primitive, args: tuple[Value, ...]) -> Value | None:
        """Integer arithmetic on static dims is a static dim."""
        if any(arg.atom is None or arg.dim is None for arg in args):
            return None
        dim = arithmetic(primitive.name, [arg.dim for arg in args])
        return None if dim is None else self.dim(dim)

    # Constructs

    def primitive(self, name: str | Primitive, *args: Value) -> Value:
        row = PRIMITIVES[name] if isinstance(name, str) else name
        return self.emit("primitive", (row,), args)[0]

    def size(self, array: Value, axis: int) -> Value:
        """The length of an axis: a static dim, an integer in scope that is equal, or an operation that asks."""
        dim = dims(array.type)[axis]
        return self.known(dim) or self.emit("size", (axis,), [array])[0]

    def known(self, dim: Dim) -> Value | None:
        """A static dim, or an integer in scope that is equal, if there is one."""
        if dim.is_static():
            return self.dim(dim)
        value = self._by_dim.get(dim)
        return value if value is not None and value.free <= self.open else None

    def needs(self, size: Opaque) -> frozenset[int]:
        """The numbers of the variables that a computed size depends on, itself if it is one."""
        value = self._by_dim.get(Dim.atom(size))
        return frozenset([size.number]) if value is None else value.free | {size.number}

    def sizes(self, array: Value) -> list[Value]:
        return [self.size(array, axis) for axis in range(rank(array.type))]

    def index(self, array: Value, indices: Sequence[Value]) -> Value:
        """An element; the array itself when there are no indices."""
        return self.emit("index", (), [array, *indices])[0] if indices else array

    def part(self, array: Value, indices: Sequence[Value]) -> Value:
        """An element, or the subarray that is left when there are fewer indices than axes."""
        sizes = [self.size(array, axis) for axis in range(len(indices), rank(array.type))]
        return self.array(sizes, lambda *rest: self.index(array, [*indices, *rest]))

    def generate(self, extent: Value, body: Callable[[Value], Sequence[Value]], name: str = "") -> tuple[Value, ...]:
        return self.emit("generate", (_dim(extent),), [extent], [self.body([i64], body, [name], [_dim(extent)])])

    def array(self, extents: Sequence[Value], element: Callable[..., Value]) -> Value:
        """The array of elements over these extents, which is the element itself when there are none."""

        def build(prefix: tuple[Value, ...]) -> Value:
            if len(prefix) == len(extents):
                return element(*prefix)
            return self.generate(extents[len(prefix)], lambda i: [build((*prefix, i))])[0]

        return build(())

    def each(self, extents: Sequence[Value], statements: Callable[..., object]) -> None:
        """Run statements for all indices."""

        def build(prefix: tuple[Value, ...]) -> None:
            if len(prefix) == len(extents):
                statements(*prefix)
                return

            def body(i: Value) -> Sequence[Value]:
                build((*prefix, i))
                return []

            self.generate(extents[len(prefix)], body)

        build(())

    def reduce(
        self,
        extent: Value,
        neutrals: Sequence[Value],
        element: Callable[[Value], Sequence[Value]],
        operator: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        return self.combination("reduce", [extent], neutrals, element, operator, names)

    def scan(
        self,
        extent: Value,
        neutrals: Sequence[Value],
        element: Callable[[Value], Sequence[Value]],
        operator: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        return self.combination("scan", [extent], neutrals, element, operator, names)

    def histogram(
        self,
        bins: Value,
        extent: Value,
        neutrals: Sequence[Value],
        element: Callable[[Value], Sequence[Value]],
        operator: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """``element(i)`` is the bin and the values."""
        return self.combination("histogram", [bins, extent], neutrals, element, operator, names)

    def scatter(
        self,
        unique: bool,
        extents: Sequence[Value],
        destinations: Sequence[Value],
        element: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """``element(*i)`` is the indices and the values."""
        body = self.body([i64] * len(extents), element, names, extents=[_dim(extent) for extent in extents])
        return self.emit("scatter", (unique, len(extents)), [*extents, *destinations], [body])

    def while_loop(
        self,
        initials: Sequence[Value],
        test: Callable[..., Value],
        body: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """The final state and the number of trips."""
        types = [initial.type for initial in initials]
        bodies = [self.body(types, lambda *state: [test(*state)], names), self.body(types, body, names)]
        return self.emit("while", (), initials, bodies)

    def combination(
        self,
        op: str,
        extents: Sequence[Value],
        neutrals: Sequence[Value],
        element: Callable[[Value], Sequence[Value]],
        operator: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """A construct that combines elements: there are as many as the last extent says."""
        types = [neutral.type for neutral in neutrals]
        bodies = [self.body([i64], element, extents=[_dim(extents[-1])]), self.body([*types, *types], operator, names)]
        return self.combined(op, extents, neutrals, bodies)

    def combined(
        self, op: str, extents: Sequence[Value], neutrals: Sequence[Value], bodies: Sequence[Body]
    ) -> tuple[Value, ...]:
        """A construct that combines elements, of the bodies of an element and of the operator."""
        static = (_dim(extents[0]),) if CONSTRUCTS[op].stacked else ()
        return self.emit(op, static, [*extents, *neutrals], bodies)

    def sum(self, extent: Value, element: Callable[[Value], Value], type: Scalar) -> Value:
        zero = self.literal(0, type)
        return self.reduce(extent, [zero], lambda i: [element(i)], lambda a, b: [self.primitive("add", a, b)])[0]

    def cond(
        self, test: Value, then: Callable[[], Sequence[Value]], orelse: Callable[[], Sequence[Value]]
    ) -> tuple[Value, ...]:
        return self.emit("cond", (), [test], [self.body([], then), self.body([], orelse)])

    def loop(
        self, extent: Value, initials: Sequence[Value], body: Callable[..., Sequence[Value]], names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        types = [i64, *[initial.type for initial in initials]]
        return self.emit("loop", (_dim(extent),), [extent, *initials], [self.body(types, body, names, [_dim(extent)])])

    def require(self, test: Value, failure: Failure, values: Sequence[Value]) -> None:
        if test.literal is True or any(test.number in scope.required for scope in self.scopes):
            return
        self.scopes[-1].required.add(test.number)
        self.emit("require", (failure,), [test, *values])

    # Bodies

    def body(
        self,
        types: Sequence[Type],
        function: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
        extents: Sequence[Dim] = (),
    ) -> Body:
        """The body of a function on fresh binders; statements emitted meanwhile are its own.

        The first binders are loop variables with these extents.
        """
        names = names or [""] * len(types)
        binders = tuple([self.variable(type, name) for type, name in zip(types, names, strict=True)])
        opened = self._count
        self.scopes.append(Scope(binders, self.scopes[-1]))
        self.extents.update({binder.number: extent for binder, extent in zip(binders, extents, strict=False)})
        try:
            results = tuple(function(*binders))
        finally:
            scope = self.scopes.pop()
            self.open.difference_update(numbers(binders, scope.statements))
        return self.close(binders, tuple(scope.statements), results, scope.partial, opened)

    def close(
        self,
        binders: tuple[Value, ...],
        statements: tuple[Node, ...],
        results: tuple[Value, ...],
        partial: bool | None = None,
        opened: int = 0,
    ) -> Body:
        """A body; bodies that differ in their binders only are one.

        ``partial`` says that something in it may not end (if that is not said, what may not end in the open scope may
        be there), ``opened`` the number of the last node made before it.
        """
        if partial is None:
            partial = self.scopes[-1].partial
        if any(node.effects for node in statements):
            partial = partial or any(node.partial for node in statements)
            return Body(self.fresh(), binders, statements, results, partial, opened)
        key, values = code_and_values(binders, results)
        code = self._codes.setdefault(key, len(self._codes))
        closure = (code, *[value.number for value in values])
        body = self._bodies.get(closure)
        if body is None:
            body = Body(self.fresh(), binders, statements, results, partial, opened, code, values)
            self._bodies[closure] = body
        return body

    def instantiate(
        self, body: Body, arguments: Sequence[Value], known: Mapping[Node, tuple[Value, ...]] = MappingProxyType({})
    ) -> list[Value]:
        """The results of a body for these arguments, of whose nodes some are known; its statements go to the scope."""
        inside = Substitution(self, dict(zip(body.binders, arguments, strict=True)), None, body.statements)
        inside.memo.update({node.number: results for node, results in known.items()})
        return inside.apply(body)

    def substitute(self, values: Sequence[Value], mapping: dict[Value, Value]) -> list[Value]:
        """Values with binders replaced."""
        return Substitution(self, mapping, None).values(values)


class Substitution:
    """The one function that rewrites a graph: a mapping of binders, nested as the bodies it enters are.

    A value's image is remembered at the innermost level whose binders it mentions, since a body shared by two
    places is entered once for each. Nodes that are ``replaced``, by number, have other results instead of their image,
    also where they mention no binder of the mapping, and what uses them does.
    """

    def __init__(
        self,
        builder: Builder,
        mapping: Mapping[Value, Value],
        parent: Substitution | None,
        statements: Sequence[Node] = (),
        replaced: Mapping[int, Replacement] = MappingProxyType({}),
    ) -> None:
        self.builder, self.mapping, self.parent, self.replaced = builder, mapping, parent, replaced
        self.numbers = numbers(mapping, statements)
        self.memo: dict[int, tuple[Value, ...]] = {}

    def level(self, free: frozenset[int]) -> Substitution | None:
        level: Substitution | None = self
        while level is not None and free.isdisjoint(level.numbers):
            level = level.parent
        return level

    def value(self, value: Value) -> Value:
        level = self.level(value.free)
        if level is None:
            replaced = None if value.source is None else self.replaced.get(value.source.number)
            return value if replaced is None else replaced(self)[value.position]
        if value.source is None:
            return level.mapping[value]
        return level.memo[value.source.number][value.position]

    def values(self, values: Sequence[Value]) -> list[Value]:
        self.rebuild(sources(values))
        return [self.value(value) for value in values]

    def rebuild(self, nodes: Iterable[Node]) -> None:
        """Emit the images of these nodes and of all that they need from here, which have none yet.

        Arguments have lower numbers than their users. What bodies need from here comes first, but for those of a
        ``par``, which keep what was made in them. Statements are emitted in their order, before what uses them.
        """
        needed: dict[int, Node] = {}
        stack = list(nodes)
        while stack:
            node = stack.pop()
            level = self.level(node.free)
            if node.effects or level is None or node.number in needed or node.number in level.memo:
                continue
            needed[node.number] = node
            stack.extend(needs(node))
        for number in sorted(needed):
            level = self.level(needed[number].free)
            assert level is not None
            level.memo[number] = level.image(needed[number])

    def image(self, node: Node) -> tuple[Value, ...]:
        """What stands for a node whose arguments have their images already."""
        return self.replaced[node.number](self) if node.number in self.replaced else self.copy(node)

    def copy(self, node: Node) -> tuple[Value, ...]:
        """Emit such a node."""
        args = [self.value(arg) for arg in node.args]
        static = (_dim(args[0]),) if node.static and isinstance(node.static[0], Dim) else node.static
        bodies: list[Body] = []
        for body in node.bodies:
            types = node.row.binders(static, [arg.type for arg in args], [earlier.types for earlier in bodies])
            bodies.append(self.body(body, types))
        self.builder.origin, outer = node.origin, self.builder.origin
        results = self.builder.emit(node.op, static, args, bodies)
        self.builder.origin = outer
        return results

    def body(self, body: Body, types: Sequence[Type]) -> Body:
        level = self.level(body.free)
        if level is None:
            return body

        def enter(*binders: Value) -> list[Value]:
            mapping = dict(zip(body.binders, binders, strict=True))
            return Substitution(self.builder, mapping, level, body.statements, self.replaced).apply(body)

        return self.builder.body(types, enter, [binder.name for binder in body.binders])

    def apply(self, body: Body) -> list[Value]:
        for statement in body.statements:
            self.rebuild(needs(statement))
            self.memo[statement.number] = self.image(statement)
        return self.values(body.results)


def _dim(extent: Value) -> Dim:
    assert extent.dim is not None
    return extent.dim


# The current builder

_current: ContextVar[Builder | None] = ContextVar("adze_builder", default=None)


@contextmanager
def build(rule: Rule | None = None) -> Iterator[Builder]:
    """Make a builder current while a program is built or transformed."""
    builder = Builder(rule)
    token = _current.set(builder)
    try:
        with lifted_limits():
            yield builder
    finally:
        _current.reset(token)
        builder.forget()


def current() -> Builder:
    """The builder of the program that is being built; RuntimeError when there is none."""
    builder = _current.get()
    if builder is None:
        raise RuntimeError(at_line("no program is being built here: operations on expressions belong inside a program"))
    return builder


def building() -> bool:
    """Whether a program is being built."""
    return _current.get() is not None
