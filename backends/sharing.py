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
from .loops import (
    Allocate,
    Apply,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    MultiplyAdd,
    Select,
    Statement,
    Store,
    Variable,
    walk,
)
from .loops_walk import assigned_in, expressions, inside, loads, mentioned, names_in, operands, unused_names, written_in
from .lowering.rewriting import with_buffers
from .sweeps import Sweep, sweep_of

WORTH = 20


def shared(function: Function) -> Function:
    """A function in which no sweep computes again what one before it could store."""
    mutable = {statement.name for statement in walk(function.body) if isinstance(statement, Declare)}
    fresh = partial(unused_names(function), "shared")
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

    def number(self, expression: Expression, names: Mapping[str, int], changing: set[str]) -> int:
        """The number of an expression; ``names`` are those of what is bound in the sweep, which changes others."""
        if isinstance(expression, Variable) and expression.name in names:
            return names[expression.name]
        parts = [self.number(each, names, changing) for each in operands(expression)]
        key: Key
        cost, reads = 0.0, frozenset[str]().union(*[self.reads[part] for part in parts])
        match expression:
            case Variable(name):
                if name in changing:
                    return self.new()
                key, reads = (name,), frozenset([name]) & self.mutable
            case Constant(value, scalar):
                key = (Constant, repr(value), scalar)
            case Load(buffer, _, guarded):
                key, reads, cost = (Load, buffer.name, guarded, *parts), reads | {buffer.name}, 1.0
            case Apply(primitive, _, scalar):
                key, cost = (primitive.name, scalar, *parts), float(primitive.cost)
            case Select() | MultiplyAdd():
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
    buffer: Buffer | None = None


@dataclass
class _Sharing:
    """Goes through blocks; ``sizes`` are those of the function."""

    sizes: frozenset[str]
    mutable: set[str]
    fresh: Callable[[], str]

    def block(self, block: Block, lets: Mapping[str, Expression]) -> Block:
        """A block in which sweeps share what they compute."""
        known, values = dict(lets), _Values(self.mutable)
        present: dict[int, _Made] = {}  # by number
        all: list[_Made] = []
        statements = list(block)
        for position, statement in enumerate(block):
            if isinstance(statement, Let):
                known[statement.name] = statement.value
            sweep = sweep_of(statement, known)
            written = written_in((statement,)) | assigned_in((statement,))
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

    def branches(self, statement: Statement, lets: Mapping[str, Expression]) -> Statement:
        """A statement with what stands in its branches shared there.

        Loops are left as they are: what is small enough for many turns is computed again sooner than it is stored.
        """
        if isinstance(statement, If):
            return If(statement.test, self.block(statement.then, lets), self.block(statement.orelse, lets))
        return statement

    def static(self, sweep: Sweep) -> bool:
        """Whether the sizes of the function say how large a sweep is."""
        parts = [part for extent in sweep.extents for part in inside(extent)]
        return all(part.name in self.sizes for part in parts if isinstance(part, Variable))

    def reading(self, sweep: Sweep, numbers: Mapping[str, int], present: Mapping[int, _Made]) -> Block:
        """The body of a sweep that reads what is present, and computes only what it needs then."""
        live: set[str] = set()
        body: list[Statement] = []
        replaced = False
        for statement in reversed(sweep.body):
            if isinstance(statement, Let):
                if statement.name not in live:
                    continue
                found = present.get(numbers[statement.name])
                if found is not None and found.sweep.order == sweep.order and (found.sweep.whole or sweep.whole):
                    if found.buffer is None:
                        extents = tuple([sweep.extents[axis] for axis in sweep.order])
                        found.buffer = Buffer(self.fresh(), found.scalar, extents)
                    statement, replaced = Let(statement.name, Load(found.buffer, sweep.place)), True
            live |= names_in(expressions(statement))
            body.append(statement)
        return tuple(body[::-1]) if replaced else sweep.body

    def storing(self, statements: list[Statement], kept: list[_Made]) -> Iterator[Statement]:
        """The statements of a block, with stores of the values that are to be kept."""
        for position, statement in enumerate(statements):
            for made in kept:
                if made.position == position and made.buffer is not None:
                    store = Store(made.buffer, made.sweep.place, Variable(made.name, made.scalar))
                    statement = _after(statement, made.name, store)
                    yield Allocate(made.buffer)
            yield statement


def _numbered(sweep: Sweep, values: _Values) -> Iterator[tuple[str, int]]:
    """The numbers of all that is bound in a sweep."""
    names = {loop.variable: values.new() for loop in sweep.loops}
    changing = {each.name for each in walk((sweep.loops[0],)) if isinstance(each, Declare | Assign)}
    for position, index in enumerate(sweep.indices):
        names[index] = values.of((position, sweep.extents), 0.0, frozenset())
    for loop in sweep.loops:
        for let in _lets(loop.body):
            if let.name not in names:
                names[let.name] = values.number(let.value, names, changing)
    yield from names.items()


def _lets(block: Block) -> list[Let]:
    return [statement for statement in block if isinstance(statement, Let)]


def _expensive(value: Expression) -> bool:
    """Whether an expression applies an expensive primitive."""
    return any(isinstance(part, Apply) and part.primitive.cost > COSTLY for part in inside(value))


def _after(loop: Statement, name: str, store: Store) -> Statement:
    """Loops in which a store follows where a name is bound."""
    assert isinstance(loop, For)
    body: list[Statement] = []
    for statement in loop.body:
        body.append(_after(statement, name, store) if isinstance(statement, For) else statement)
        if isinstance(statement, Let) and statement.name == name:
            body.append(store)
    return replace(loop, body=tuple(body))


# In the memory of results


def _in_results(function: Function) -> Function:
    """A function whose temporaries take the memory of results, where these are written in place of them."""
    lets = {statement.name: statement.value for statement in function.body if isinstance(statement, Let)}
    temporaries = {s.buffer.name: s.buffer for s in function.body if isinstance(s, Allocate)}
    uses: defaultdict[str, list[int]] = defaultdict(list)  # where each buffer is mentioned
    for position, statement in enumerate(function.body):
        if not isinstance(statement, Allocate):
            for name in mentioned((statement,))[1]:
                uses[name].append(position)
    ending: defaultdict[int, list[Buffer]] = defaultdict(list)  # the temporaries that are mentioned for the last time
    for name, temporary in temporaries.items():
        if uses[name]:
            ending[uses[name][-1]].append(temporary)
    kept: dict[str, Buffer] = {}
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


def _replaced(sweep: Sweep, ending: Sequence[Buffer], result: Buffer) -> Buffer | None:
    """The first of the temporaries that a sweep reads for the last time whose memory it may write a result to."""
    like = [each for each in ending if (each.scalar, each.extents) == (result.scalar, result.extents)]
    return next((each for each in like if _replaces(sweep, each, result)), None)


def _replaces(sweep: Sweep, temporary: Buffer, result: Buffer) -> bool:
    """Whether a sweep reads a temporary, and then writes a result, each at its own place only."""
    outside = [s for loop in sweep.loops for s in loop.body if not isinstance(s, For) and s not in sweep.body]
    if any({temporary.name, result.name} & mentioned((statement,))[1] for statement in outside):
        return False
    written = False
    for statement in sweep.body:
        for part in loads(statement):
            if part.buffer.name in (temporary.name, result.name):
                if written or part.buffer == result or part.indices != sweep.place or part.guarded:
                    return False
        if isinstance(statement, Store) and statement.buffer.name in (temporary.name, result.name):
            if written or statement.buffer == temporary or statement.indices != sweep.place or statement.guarded:
                return False
            written = True
    return written


def _with_kept(body: Block, kept: Mapping[str, Buffer]) -> Block:
    """A body in which some temporaries are in the memory of results."""
    rest = tuple([each for each in body if not (isinstance(each, Allocate) and each.buffer.name in kept)])
    return with_buffers(rest, lambda buffer: kept.get(buffer.name, buffer))
