"""Common subexpressions of nests: what one computes and a later one would compute again is stored by the first.

Reductions and maps over one range are nests of their own, where the one needs the other's result. An expensive value of
an element that is needed in two of them, as the exponentials that a softmax sums and then divides by their sum, is
computed once::

                                                 temporary shared: f64[n]
    nest i < n combining sum by add              nest i < n combining sum by add
      sum = sum + exp(x[i] - top)                  let e = exp(x[i] - top)
    ...                                     =>     shared[i] = e
    nest i < n                                     sum = sum + e
      y[i] = exp(x[i] - top) * scale             ...
                                                 nest i < n
                                                   y[i] = shared[i] * scale

A value is the same where the expressions are, down to what is bound around the nests and to elements of buffers that
nothing wrote in between. Loops inside of a nest, one in the other, are part of its range. A value is stored if it is
worth about ``CSE_WORTH`` additions, which is what a store and a load cost, and if one of the nests reads or writes an
array of that size anyway: the sum of a function of all pairs needs no memory for pairs.

A temporary that is read for the last time by the nest that writes a result of the same shape, place by place, takes
the memory of that result: above, ``y`` is computed in place, and what is in a cache stays there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....core.types import Scalar, i64
from ....interpreters.simplify.costs import COSTLY
from ... import ir
from ...decisions import writes_text
from ...lowering import Lowered
from ...lowering.context import Context
from ...lowering.roles import Planner
from ...target import CSE_WORTH


def without_common_subexpressions(lowered: Lowered) -> Lowered:
    """A function in which no nest computes again what one before it could store."""
    function = lowered.function
    body = _Sharing(lowered.context, function).block(function.body)
    return replace(lowered, function=_in_results(replace(function, body=body)))


# Ranges


@dataclass(frozen=True)
class _Range:
    """A nest and the loops inside of it, one in the other: they run through all indices of a range."""

    nest: ir.Nest
    loops: tuple[ir.For, ...]

    @staticmethod
    def of(statement: ir.Statement) -> _Range | None:
        """The range of a nest that does nothing but compute and store."""
        if not isinstance(statement, ir.Nest):
            return None
        blocks, loops = [statement.body], list[ir.For]()
        while inner := [each for each in blocks[-1] if isinstance(each, ir.For)]:
            loops.append(inner[0])
            blocks.append(inner[0].body)
        plain = ir.For | ir.Let | ir.Declare | ir.Store | ir.Assign
        if not all(isinstance(each, plain) for block in blocks for each in block):
            return None
        made = _Range(statement, tuple(loops))
        bound = ir.bound_in((statement,))
        one = all(sum(isinstance(each, ir.For) for each in block) <= 1 for block in blocks)
        return made if one and bound.isdisjoint(ir.names_in(made.extents)) else None

    @property
    def place(self) -> tuple[ir.Variable, ...]:
        """The indices."""
        return (*[axis.variable for axis in self.nest.axes], *[ir.Variable(loop.variable) for loop in self.loops])

    @property
    def extents(self) -> tuple[ir.Expression, ...]:
        return (*[axis.extent for axis in self.nest.axes], *[loop.extent for loop in self.loops])

    @property
    def blocks(self) -> list[ir.Block]:
        """The body of the nest, and those of its loops."""
        return [self.nest.body, *[loop.body for loop in self.loops]]

    @property
    def body(self) -> ir.Block:
        """What runs for each index."""
        return self.blocks[-1]

    def with_body(self, body: ir.Block) -> ir.Nest:
        """The same nest and loops around another block."""
        for block, loop in zip(self.blocks[-2::-1], self.loops[::-1], strict=True):
            made = replace(loop, body=body)
            body = tuple([made if each is loop else each for each in block])
        return replace(self.nest, body=body)

    def reading(self, present: Mapping[str, _Made]) -> ir.Nest:
        """The nest reading what is present, by the name that it has here; it computes only what it needs then."""
        if not present:
            return self.nest
        live: set[str] = set()
        body: list[ir.Statement] = []
        filled = [value.buffer for value in present.values()]  # what this nest would have filled is filled by then
        for statement in reversed(self.body):
            if isinstance(statement, ir.Store) and statement.buffer in filled:
                continue
            if isinstance(statement, ir.Let):
                if statement.name not in live:
                    continue
                found = present.get(statement.name)
                if found is not None and found.buffer is not None:
                    statement = ir.Let(statement.name, ir.Load(found.buffer, self.place))
            live |= ir.names_in(ir.expressions_of(statement))
            body.append(statement)
        fills = tuple([buffer for buffer in self.nest.fills if buffer not in filled])
        nest = self.with_body(tuple(body[::-1]))
        return replace(nest, body=ir.without_unused(nest.body), fills=fills)

    def filled_with(self, name: str) -> ir.Buffer | None:
        """The temporary that is filled with what has a name, place by place, and not read in the nest."""
        read = ir.read_in(self.nest.body)
        for statement in self.body:
            match statement:
                case ir.Store(buffer, indices, ir.Variable(stored), ()) if stored == name and indices == self.place:
                    if buffer in self.nest.fills and buffer.name not in read:
                        return buffer
        return None

    @property
    def whole(self) -> bool:
        """Whether an array that has an element for each index is read or written in it."""
        parts = [part for statement in self.body for whole in ir.expressions_of(statement) for part in ir.inside(whole)]
        accesses = [each for each in (*self.body, *parts) if isinstance(each, ir.Store | ir.Load)]
        return any(set(self.place) <= set(access.indices) for access in accesses)


# Values

# What is computed in a range, by numbers of what it is computed from; equal keys are equal values.
Key = tuple[object, ...]


@dataclass
class _Values:
    """Numbers for values: those of the same expressions of the same things are equal."""

    mutable: set[str]  # variables that are assigned to somewhere
    numbers: dict[Key, int] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    reads: list[frozenset[str]] = field(default_factory=list)  # the buffers and variables from which it is computed

    def number(self, expression: ir.Expression, names: Mapping[str, int], changing: set[str]) -> int:
        """The number of an expression; ``names`` are those of what is bound in the range, which changes others."""
        if isinstance(expression, ir.Variable) and expression.name in names:
            return names[expression.name]
        parts = [self.number(each, names, changing) for each in ir.operands(expression)]
        key: Key
        cost, reads = 0.0, frozenset[str]().union(*[self.reads[part] for part in parts])
        match expression:
            case ir.Variable(name):
                if name in changing:
                    return self.new()
                key, reads = (name,), frozenset([name]) & self.mutable
            case ir.Constant(value, scalar):
                key = (ir.Constant, repr(value), scalar)
            case ir.Load(buffer, _, guarded):
                key, reads, cost = (ir.Load, buffer.name, guarded, *parts), reads | {buffer.name}, 1.0
            case ir.Apply(primitive, _, scalar):
                key, cost = (primitive.name, scalar, *parts), float(primitive.cost)
            case ir.Select() | ir.MultiplyAdd():
                key, cost = (type(expression), *parts), 1.0
        return self.of(key, cost + sum(self.costs[part] for part in parts), reads)

    def of(self, key: Key, cost: float, reads: frozenset[str]) -> int:
        """The number of a key."""
        if key not in self.numbers:
            self.numbers[key] = len(self.costs)
            self.costs.append(cost)
            self.reads.append(reads)
        return self.numbers[key]

    def new(self) -> int:
        """The number of what is like nothing else."""
        return self.of((len(self.costs),), 0.0, frozenset())


@dataclass
class _Made:
    """A value that a nest computes: where it is bound, and the buffer that keeps it once somebody asks."""

    position: int  # of the nest, in its block
    range: _Range
    name: str
    scalar: Scalar
    reads: frozenset[str]  # the buffers and variables that it is computed from
    buffer: ir.Buffer | None = None


class _Sharing:
    """Goes through the blocks of a function."""

    def __init__(self, context: Context, function: ir.Function) -> None:
        self.context, self.planner = context, Planner(context, function.body)
        self.sizes = frozenset(function.sizes)
        self.mutable = {statement.name for statement in ir.of_kind(function.body, ir.Declare)}

    def block(self, block: ir.Block) -> ir.Block:
        """A block in which nests share what they compute."""
        values = _Values(self.mutable)
        present: dict[int, _Made] = {}  # by number
        made = [[statement] for statement in block]  # with what is allocated before, in place of each statement
        for position, statement in enumerate(block):
            range = _Range.of(statement)
            written = ir.written_in((statement,)) | ir.assigned_in((statement,))
            # a nest may read what it has written itself
            present = {number: value for number, value in present.items() if written.isdisjoint(value.reads)}
            if range is None:
                made[position] = [self.branches(statement)]
            elif ir.names_in(range.extents) <= self.sizes:
                numbers = dict(_numbered(range, values))
                known = {let.name: present.get(numbers[let.name]) for let in _lets(range.body)}
                wanted = {n: value for n, value in known.items() if value and self.keeps(value, range, n, made)}
                nest = range.reading(wanted)
                made[position] = [nest] if any(not isinstance(each, ir.Let) for each in nest.body) else []
                left = set[str]() if nest.read else ir.bound_in((nest,))  # what nobody reads is not always computed
                for let in [let for let in _lets(range.body) if let.name in left]:
                    number = numbers[let.name]
                    if number not in present and values.costs[number] >= CSE_WORTH and _expensive(let.value):
                        present[number] = _Made(position, range, let.name, let.value.type, values.reads[number])
            present = {number: value for number, value in present.items() if written.isdisjoint(value.reads)}
        return tuple([statement for statements in made for statement in statements])

    def branches(self, statement: ir.Statement) -> ir.Statement:
        """A statement with what stands in its branches shared there.

        Loops are left as they are: what is small enough for many turns is computed again sooner than it is stored.
        """
        if isinstance(statement, ir.If):
            return ir.If(statement.test, self.block(statement.then), self.block(statement.orelse))
        return statement

    def keeps(self, value: _Made, range: _Range, name: str, made: list[list[ir.Statement]]) -> bool:
        """Whether the nest that computes a value stores it, or can; not if its loops would have other roles then.

        Where the one that would compute it again only fills an array with it, that array is filled at once.
        """
        value.buffer = value.buffer or value.range.filled_with(value.name)
        if value.buffer is not None or not (value.range.whole or range.whole):
            return value.buffer is not None
        *before, nest = made[value.position]
        assert isinstance(nest, ir.Nest)
        filled = range.filled_with(name)
        allocated = made.index([ir.Allocate(filled)]) if filled and [ir.Allocate(filled)] in made else None
        buffer = filled if filled and allocated is not None else self.new(value, range)
        store = ir.Store(buffer, value.range.place, ir.Variable(value.name, value.scalar))
        storing = replace(nest, body=_after(nest.body, value.name, store), fills=(*nest.fills, buffer))
        if self.planner.roles(storing) != self.planner.roles(nest):
            return False
        if not self.context.decisions.take("cse", f"{value.name} of {writes_text(nest)} for {writes_text(range.nest)}"):
            return False
        value.buffer, made[value.position] = buffer, [*before, ir.Allocate(buffer), storing]
        if allocated is not None:
            made[allocated] = []
        return True

    def new(self, value: _Made, range: _Range) -> ir.Buffer:
        return ir.Buffer(self.context.fresh("shared"), value.scalar, range.extents)


def _numbered(range: _Range, values: _Values) -> Iterator[tuple[str, int]]:
    """The numbers of all that is bound in a range."""
    changing = ir.assigned_in(range.nest.body) | {each.name for each in ir.of_kind(range.nest.body, ir.Declare)}
    extents = range.extents
    names = {index.name: values.of((k, extents), 0.0, frozenset()) for k, index in enumerate(range.place)}
    for let in [let for block in range.blocks for let in _lets(block)]:
        names[let.name] = values.number(let.value, names, changing)
    yield from names.items()


def _lets(block: ir.Block) -> list[ir.Let]:
    return [statement for statement in block if isinstance(statement, ir.Let)]


def _expensive(value: ir.Expression) -> bool:
    """Whether an expression applies an expensive primitive and is no index, at which a read would be a gather."""
    costly = any(isinstance(part, ir.Apply) and part.primitive.cost > COSTLY for part in ir.inside(value))
    return costly and value.type != i64


def _after(block: ir.Block, name: str, store: ir.Store) -> ir.Block:
    """A block in which a store follows where a name is bound."""
    body: list[ir.Statement] = []
    for statement in block:
        inside = isinstance(statement, ir.For)
        body.append(ir.map_inside(statement, lambda inner: _after(inner, name, store)) if inside else statement)
        if isinstance(statement, ir.Let) and statement.name == name:
            body.append(store)
    return tuple(body)


# In the memory of results


def _in_results(function: ir.Function) -> ir.Function:
    """A function whose temporaries take the memory of results, where these are written in place of them."""
    temporaries = {s.buffer.name: s.buffer for s in function.body if isinstance(s, ir.Allocate)}
    uses: defaultdict[str, list[int]] = defaultdict(list)  # where each buffer is mentioned
    for position, statement in enumerate(function.body):
        if not isinstance(statement, ir.Allocate):
            for name in ir.mentioned((statement,))[1]:
                uses[name].append(position)
    ending: defaultdict[int, list[ir.Buffer]] = defaultdict(
        list
    )  # the temporaries that are mentioned for the last time
    for name, temporary in temporaries.items():
        if uses[name]:
            ending[uses[name][-1]].append(temporary)
    kept: dict[str, ir.Buffer] = {}
    for result in function.results:
        first = uses[result.name][0] if uses[result.name] else -1
        while first >= 0:
            (statement,) = _with_kept((function.body[first],), kept)
            range = _Range.of(statement)
            left = [each for each in ending[first] if each.name not in kept]
            found = None if range is None else _replaced(range, left, result)
            if found is not None:
                kept[found.name] = result
            first = -1 if found is None else uses[found.name][0]
    return replace(function, body=_with_kept(function.body, kept)) if kept else function


def _replaced(range: _Range, ending: Sequence[ir.Buffer], result: ir.Buffer) -> ir.Buffer | None:
    """The first of the temporaries that a range reads for the last time whose memory it may write a result to."""
    like = [each for each in ending if (each.scalar, each.extents) == (result.scalar, result.extents)]
    return next((each for each in like if _replaces(range, each, result)), None)


def _replaces(range: _Range, temporary: ir.Buffer, result: ir.Buffer) -> bool:
    """Whether a range reads a temporary, and then writes a result, each at its own place only."""
    outside = [each for block in range.blocks[:-1] for each in block if not isinstance(each, ir.For)]
    if any({temporary.name, result.name} & ir.mentioned((statement,))[1] for statement in outside):
        return False
    written = False
    for statement in range.body:
        for part in ir.loads(statement):
            if part.buffer.name in (temporary.name, result.name):
                if written or part.buffer == result or part.indices != range.place or part.guarded:
                    return False
        if isinstance(statement, ir.Store) and statement.buffer.name in (temporary.name, result.name):
            if written or statement.buffer == temporary or statement.indices != range.place or statement.guarded:
                return False
            written = True
    return written


def _with_kept(body: ir.Block, kept: Mapping[str, ir.Buffer]) -> ir.Block:
    """A body in which some temporaries are in the memory of results, whose layout is given."""
    rest = tuple([each for each in body if not (isinstance(each, ir.Allocate) and each.buffer.name in kept)])
    return _with_given(ir.with_buffers(rest, lambda buffer: kept.get(buffer.name, buffer)), set(kept.values()))


def _with_given(block: ir.Block, given: set[ir.Buffer]) -> ir.Block:
    """A block whose nests do not choose the layout of some buffers."""
    made = [ir.map_inside(each, lambda inner: _with_given(inner, given)) for each in block]
    return tuple(
        [
            replace(each, fills=tuple([b for b in each.fills if b not in given])) if isinstance(each, ir.Nest) else each
            for each in made
        ]
    )
