"""What a sweep computes and a later one over the same range would compute again is stored by the first.

Reductions and maps over one range each have their own loops. Where an expensive value of an element is needed in two of
them, as the exponentials that a softmax sums and then divides by their sum, it is computed once::

    parallel chunk: lanes i                         temporary shared: f64[n]
      sum = sum + exp(x[i] - top)                   parallel chunk: lanes i
    ...                                               let e = exp(x[i] - top)
    parallel chunk: lanes i                    =>     shared[i] = e
      y[i] = exp(x[i] - top) * scale                  sum = sum + e
                                                    ...
                                                    parallel chunk: lanes i
                                                      y[i] = shared[i] * scale

A value is the same where the expressions are, down to what is bound around the sweeps and to elements of buffers that
nothing wrote in between. It is stored if it is worth about ``WORTH`` additions, which is what a store and a load cost,
and if one of the sweeps reads or writes an array of that size anyway: the sum of a function of all pairs needs no
memory for pairs.

A temporary that is read for the last time by the sweep that writes a result of the same shape, place by place, takes
the memory of that result: above, ``y`` is computed in place, and what is in a cache stays there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ..core.types import Scalar
from ..interpreters.simplify.leaves import COSTLY
from . import ir
from .sweeps import Sweep, sweep_of

WORTH = 20


def shared(function: ir.Function) -> ir.Function:
    """A function in which no sweep computes again what one before it could store."""
    mutable = {statement.name for statement in ir.of_kind(function.body, ir.Declare)}
    fresh = partial(ir.unused_names(function), "shared")
    body = _Sharing(frozenset(function.sizes), mutable, fresh).block(function.body, {})
    return _in_results(replace(function, body=body))


# Values

# What is computed in a sweep, by numbers of what it is computed from; equal keys are equal values.
Key = tuple[object, ...]


@dataclass
class _Values:
    """Numbers for values: those of the same expressions of the same things are equal."""

    mutable: set[str]  # variables that are assigned to somewhere
    numbers: dict[Key, int] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    reads: list[frozenset[str]] = field(default_factory=list)  # the buffers and variables from which it is computed

    def number(self, expression: ir.Expression, names: Mapping[str, int], changing: set[str]) -> int:
        """The number of an expression; ``names`` are those of what is bound in the sweep, which changes others."""
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
    """A value that a sweep computes: where it is bound, and the buffer that keeps it once somebody asks."""

    position: int  # of the sweep, in its block
    sweep: Sweep
    name: str
    scalar: Scalar
    reads: frozenset[str]  # the buffers and variables that it is computed from
    buffer: ir.Buffer | None = None


@dataclass
class _Sharing:
    """Goes through blocks; ``sizes`` are those of the function."""

    sizes: frozenset[str]
    mutable: set[str]
    fresh: Callable[[], str]

    def block(self, block: ir.Block, lets: Mapping[str, ir.Expression]) -> ir.Block:
        """A block in which sweeps share what they compute."""
        known, values = dict(lets), _Values(self.mutable)
        present: dict[int, _Made] = {}  # by number
        all: list[_Made] = []
        statements = list(block)
        for position, statement in enumerate(block):
            if isinstance(statement, ir.Let):
                known[statement.name] = statement.value
            sweep = sweep_of(statement, known)
            written = ir.written_in((statement,)) | ir.assigned_in((statement,))
            # a sweep may read what it has written itself
            present = {number: made for number, made in present.items() if written.isdisjoint(made.reads)}
            if sweep is None:
                statements[position] = self.branches(statement, known)
            elif self.static(sweep):
                numbers = dict(_numbered(sweep, values))
                statements[position] = sweep.with_body(self.reading(sweep, numbers, present))
                for let in _lets(sweep.body):
                    number = numbers[let.name]
                    if number not in present and values.costs[number] >= WORTH and _expensive(let.value):
                        made = _Made(position, sweep, let.name, let.value.type, values.reads[number])
                        present[number] = made
                        all.append(made)
            present = {number: made for number, made in present.items() if written.isdisjoint(made.reads)}
        return tuple(self.storing(statements, [made for made in all if made.buffer is not None]))

    def branches(self, statement: ir.Statement, lets: Mapping[str, ir.Expression]) -> ir.Statement:
        """A statement with what stands in its branches shared there.

        Loops are left as they are: what is small enough for many turns is computed again sooner than it is stored.
        """
        if isinstance(statement, ir.If):
            return ir.If(statement.test, self.block(statement.then, lets), self.block(statement.orelse, lets))
        return statement

    def static(self, sweep: Sweep) -> bool:
        """Whether the sizes of the function say how large a sweep is."""
        parts = [part for extent in sweep.extents for part in ir.inside(extent)]
        return all(part.name in self.sizes for part in parts if isinstance(part, ir.Variable))

    def reading(self, sweep: Sweep, numbers: Mapping[str, int], present: Mapping[int, _Made]) -> ir.Block:
        """The body of a sweep that reads what is present, and computes only what it needs then."""
        live: set[str] = set()
        body: list[ir.Statement] = []
        replaced = False
        for statement in reversed(sweep.body):
            if isinstance(statement, ir.Let):
                if statement.name not in live:
                    continue
                found = present.get(numbers[statement.name])
                if found is not None and found.sweep.order == sweep.order and (found.sweep.whole or sweep.whole):
                    if found.buffer is None:
                        extents = tuple([sweep.extents[axis] for axis in sweep.order])
                        found.buffer = ir.Buffer(self.fresh(), found.scalar, extents)
                    statement, replaced = ir.Let(statement.name, ir.Load(found.buffer, sweep.place)), True
            live |= ir.names_in(ir.expressions_of(statement))
            body.append(statement)
        return tuple(body[::-1]) if replaced else sweep.body

    def storing(self, statements: list[ir.Statement], kept: list[_Made]) -> Iterator[ir.Statement]:
        """The statements of a block, with stores of the values that are to be kept."""
        for position, statement in enumerate(statements):
            for made in kept:
                if made.position == position and made.buffer is not None:
                    store = ir.Store(made.buffer, made.sweep.place, ir.Variable(made.name, made.scalar))
                    statement = _after(statement, made.name, store)
                    yield ir.Allocate(made.buffer)
            yield statement


def _numbered(sweep: Sweep, values: _Values) -> Iterator[tuple[str, int]]:
    """The numbers of all that is bound in a sweep."""
    names = {loop.variable: values.new() for loop in sweep.loops}
    changing = {each.name for each in ir.walk((sweep.loops[0],)) if isinstance(each, ir.Declare | ir.Assign)}
    for position, index in enumerate(sweep.indices):
        names[index] = values.of((position, sweep.extents), 0.0, frozenset())
    for loop in sweep.loops:
        for let in _lets(loop.body):
            if let.name not in names:
                names[let.name] = values.number(let.value, names, changing)
    yield from names.items()


def _lets(block: ir.Block) -> list[ir.Let]:
    return [statement for statement in block if isinstance(statement, ir.Let)]


def _expensive(value: ir.Expression) -> bool:
    """Whether an expression applies an expensive primitive."""
    return any(isinstance(part, ir.Apply) and part.primitive.cost > COSTLY for part in ir.inside(value))


def _after(loop: ir.Statement, name: str, store: ir.Store) -> ir.Statement:
    """Loops in which a store follows where a name is bound."""
    assert isinstance(loop, ir.For)
    body: list[ir.Statement] = []
    for statement in loop.body:
        body.append(_after(statement, name, store) if isinstance(statement, ir.For) else statement)
        if isinstance(statement, ir.Let) and statement.name == name:
            body.append(store)
    return replace(loop, body=tuple(body))


# In the memory of results


def _in_results(function: ir.Function) -> ir.Function:
    """A function whose temporaries take the memory of results, where these are written in place of them."""
    lets = {statement.name: statement.value for statement in function.body if isinstance(statement, ir.Let)}
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
            sweep = sweep_of(statement, lets)
            left = [each for each in ending[first] if each.name not in kept]
            found = None if sweep is None else _replaced(sweep, left, result)
            if found is not None:
                kept[found.name] = result
            first = -1 if found is None else uses[found.name][0]
    return replace(function, body=_with_kept(function.body, kept)) if kept else function


def _replaced(sweep: Sweep, ending: Sequence[ir.Buffer], result: ir.Buffer) -> ir.Buffer | None:
    """The first of the temporaries that a sweep reads for the last time whose memory it may write a result to."""
    like = [each for each in ending if (each.scalar, each.extents) == (result.scalar, result.extents)]
    return next((each for each in like if _replaces(sweep, each, result)), None)


def _replaces(sweep: Sweep, temporary: ir.Buffer, result: ir.Buffer) -> bool:
    """Whether a sweep reads a temporary, and then writes a result, each at its own place only."""
    outside = [s for loop in sweep.loops for s in loop.body if not isinstance(s, ir.For) and s not in sweep.body]
    if any({temporary.name, result.name} & ir.mentioned((statement,))[1] for statement in outside):
        return False
    written = False
    for statement in sweep.body:
        for part in ir.loads(statement):
            if part.buffer.name in (temporary.name, result.name):
                if written or part.buffer == result or part.indices != sweep.place or part.guarded:
                    return False
        if isinstance(statement, ir.Store) and statement.buffer.name in (temporary.name, result.name):
            if written or statement.buffer == temporary or statement.indices != sweep.place or statement.guarded:
                return False
            written = True
    return written


def _with_kept(body: ir.Block, kept: Mapping[str, ir.Buffer]) -> ir.Block:
    """A body in which some temporaries are in the memory of results."""
    rest = tuple([each for each in body if not (isinstance(each, ir.Allocate) and each.buffer.name in kept)])
    return ir.with_buffers(rest, lambda buffer: kept.get(buffer.name, buffer))
