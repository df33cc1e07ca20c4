"""Loop interchange: reductions, scans and histograms of rows become rows of such, before they are derived.

An operator may combine arrays, such as rows, element by element: its results are generates that read their operands at
their own index alone. Then the elements at each index are combined by themselves, and the rules of single numbers
hold for them (``reverse_reductions.py``): affine maps in place of a loop from the end, one place for an extremum.

    scan(lambda p, q: p * q, ones(m), a)       is, for i < m: scan(lambda p, q: p * q, 1.0, a[:, i]), transposed

The outermost axis is taken off, again and again: a scan of batches of matrices becomes a batch of scans of matrices.
Sums of arrays stay, as they have a rule. (Schenck et al. 2022, section 5.2: transpose, map of scan, transpose.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ..core import terms
from ..core.builder import Builder, Replacement, Substitution, build
from ..core.constructs import Construct
from ..core.environment import Env
from ..core.graph import Body, Node, Value
from ..core.placement import to_block
from ..core.types import ArrayType, Type, array_of, dims, element
from ..interpreters.embed import Atom, Block, Embed, Entries, Operation, fresh_binders
from .reductions import adds_arrays


def interchanged(block: terms.Block) -> terms.Block:
    """The term with operators on single elements where they were on arrays; the same object when there are none."""
    if not _combines_arrays(block):
        return block
    with build() as builder:
        binders, embed = fresh_binders(builder, block), _Interchange(builder)
        results = block.interpret(embed)(Env(), binders)
        if not embed.changed:
            return block
        return to_block(binders, results, builder.scopes[0].statements, block.names)[0]


def _combines_arrays(block: terms.Block) -> bool:
    return any(
        (operation.row.combines and any(isinstance(type, ArrayType) for type in operation.blocks[1].types))
        or any(map(_combines_arrays, operation.blocks))
        for operation in block.bindings
    )


class _Interchange(Embed):
    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.changed = False

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        return lambda env: self._combined(construct, env, [a(env) for a in extents], neutrals, element, operator)

    def _combined(
        self,
        construct: Construct,
        env: Entries,
        extents: Sequence[Value],
        neutrals: Sequence[Atom],
        element: Block,
        operator: Block,
    ) -> Sequence[Value]:
        """The construct of the innermost elements that can be reached, and outside of these the axes around."""
        combine, length = partial(self.builder.combination, construct.name, extents), extents[-1]
        places = int(construct.places)  # the results of an element that say where it goes
        b, units = self.builder, [unit(env) for unit in neutrals]
        types = [unit.type for unit in units]
        body = b.body([*types, *types], lambda *ab: operator(env, ab))
        if not _peels(body) or all(adds_arrays(body, k) for k in range(len(units))):
            return combine(units, lambda i: element(env, [i]), lambda *ab: operator(env, ab))
        self.changed = True
        items = b.generate(length, lambda i: element(env, [i]))

        def inside(body: Body, outer: Sequence[Value]) -> Sequence[Value]:
            """The results, with the axes inside that the construct gives them."""
            if _peels(body):
                size = b.size(units[0], len(outer))
                return b.generate(size, lambda i: inside(_peeled(b, body, i), [*outer, i]))

            def at(i: Value) -> list[Value]:
                own = [b.part(array, [i, *outer]) for array in items[places:]]
                return [*[b.index(array, [i]) for array in items[:places]], *own]

            return combine([b.part(unit, outer) for unit in units], at, lambda *ab: b.instantiate(body, ab))

        made, depth = inside(body, []), _depth(b, body)
        return [_turned(b, array, depth) for array in made] if construct.stacked else made


def _depth(b: Builder, body: Body) -> int:
    """How many axes are taken off an operator's elements."""
    return 1 + _depth(b, _peeled(b, body, b.size(body.binders[0], 0))) if _peels(body) else 0


def _turned(b: Builder, array: Value, depth: int) -> Value:
    """An array whose axis ``depth`` comes first."""
    first, *others = [b.size(array, depth), *[b.size(array, axis) for axis in range(depth)]]
    return b.array([first, *others], lambda i, *outer: b.part(array, [*outer, i]))


# Operators that work along the first axis


def _peels(operator: Body) -> bool:
    """Whether all results are generates over the first axis that read the operands at their own index alone."""
    half, types = len(operator.results), operator.types
    firsts = {dims(type)[:1] for type in types}
    if operator.statements or len(firsts) != 1 or firsts == {()}:
        return False
    operands = frozenset([binder.number for binder in operator.binders])
    assert len(operator.binders) == 2 * half
    for value in operator.results:
        node = value.source
        if node is None or node.op != "generate" or node.bodies[0].statements:
            return False
        index, result = node.bodies[0].binders[0], node.bodies[0].results[value.position]
        if not all(_reads_at(use, index, operands) for use in _uses([result], operands)):
            return False
        if result.number in operands:
            return False
    return True


def _uses(values: Sequence[Value], binders: frozenset[int]) -> Iterator[Node]:
    """The nodes that depend on these binders, in bodies, too."""
    stack = [value.source for value in values if value.source is not None]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node.number in seen or node.free.isdisjoint(binders):
            continue
        seen.add(node.number)
        yield node
        stack.extend([arg.source for arg in node.args if arg.source is not None])
        for body in node.bodies:
            stack.extend([result.source for result in body.results if result.source is not None])
            stack.extend(body.statements)


def _reads_at(node: Node, index: Value, operands: frozenset[int]) -> bool:
    """Whether a node uses operands only to read them at an index, if it does."""
    own = [arg.number in operands for arg in node.args]
    given = [result.number in operands for body in node.bodies for result in body.results]
    if any(own[1:]) or any(given):
        return False
    if not own or not own[0]:
        return True
    return node.op == "size" or (node.op == "index" and node.args[1] is index)


def _peeled(b: Builder, operator: Body, i: Value) -> Body:
    """The operator on the parts of its operands at index i."""
    types = [_inner(binder.type) for binder in operator.binders]

    def run(*parts: Value) -> Sequence[Value]:
        part_of = dict(zip(operator.binders, parts, strict=True))
        return [_part(b, value, part_of, i) for value in operator.results]

    return b.body(types, run)


def _inner(type: Type) -> Type:
    return array_of(element(type), dims(type)[1:])


def _part(b: Builder, value: Value, part_of: dict[Value, Value], i: Value) -> Value:
    """The part at i of a result of the operator, whose operands have these parts there."""
    assert value.source is not None
    body = value.source.bodies[0]
    result = body.results[value.position]
    replaced: dict[int, Replacement] = {}
    for node in _uses([result], frozenset([operand.number for operand in part_of])):
        if node.args and node.args[0] in part_of:
            replaced[node.number] = _read(b, node, part_of[node.args[0]], i)
    mapping = {**{operand: operand for operand in part_of}, body.binders[0]: i}
    return Substitution(b, mapping, None, (), replaced).values([result])[0]


def _read(b: Builder, node: Node, part: Value, i: Value) -> Replacement:
    """What stands for the read of an operand, or for its size."""
    if node.op == "index":
        return lambda inside: (b.index(part, [inside.value(index) for index in node.args[2:]]),)
    axis = node.static[0]
    return lambda inside: (b.size(part, axis - 1) if axis else b.size(node.args[0], 0),)
