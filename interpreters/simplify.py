"""Simplify: the same program with less work in it.

One round folds a term into a meaning with two parts. ``analyse`` runs backwards and finds what is needed: results of
loops, branches and accumulators that nobody asks for, states that feed only themselves, updates of accumulators whose
final value is dead. ``emit`` rebuilds what is left through a builder whose rules fold constants, apply algebra, share
common subexpressions and compute cheap array elements where they are read (``rules.py``), and turns accumulators into
reductions (``accumulators.py``). An array that is expensive to compute and read exactly once, in the loops it was
made in, is computed there (fusion without duplicated work). Rounds repeat until nothing changes.

    for i < n: t = for j < m: exp(x[j] + 0)          t = for j < m: exp(x[j])
               y[i] = sum(j < m: t[j] * 1) + z[i]    for i < n: sum(j < m: t[j]) + z[i]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..core.builder import Builder, build, current, resting_collector
from ..core.dims import Dim, DimAtom, Opaque
from ..core.environment import Env
from ..core.graph import Value
from ..core.language import Binding, Language
from ..core.placement import to_block
from ..core.primitive import Primitive
from ..core.program import Instance, Program, instance_of
from ..core.terms import Block, Constant, Failure
from ..core.types import ArrayType, Scalar, Type, map_dims
from .embed import accumulate, name_arguments
from .rules import CHEAP, rewrite

ROUNDS = 8


def simplify(program: Program | Instance | Block, fuse: bool = True) -> Block:
    """The simplified term of a program, equal to it for all inputs (but for signs of zeros).

    Without ``fuse`` an array that is expensive to compute stays where it is made.
    """
    block = program if isinstance(program, Block) else instance_of(program).term
    with resting_collector():
        for _ in range(ROUNDS):
            before, block = block, _round(block, fuse)
            if block == before:
                break
        return block


def _round(block: Block, fuse: bool) -> Block:
    meaning = block.interpret(_Simplify(fuse))
    uses = [Use(()) for _ in block.binders]
    meaning.analyse(Env(), uses, range(len(block.results)), ())
    with build(rewrite) as builder:
        binders = fresh_binders(builder, block)
        results = meaning.emit(Env(), binders, range(len(block.results)))
        simplified, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
        assert not captured
        return simplified


def fresh_binders(builder: Builder, block: Block) -> list[Value]:
    """Binders for a block's parameters; sizes known by number only get numbers of this builder."""
    numbers: dict[int, Dim] = {}

    def renumber(atom: DimAtom) -> Dim | None:
        if not isinstance(atom, Opaque):
            return None
        return numbers.setdefault(atom.number, Dim.atom(Opaque(-1 - atom.number)))

    def renamed(type: Type) -> Type:
        return map_dims(type, lambda dim: dim.substitute(renumber))

    return [builder.variable(renamed(type), name) for type, name in zip(block.binders, block.names, strict=True)]


# What is known of a value while a block is analysed


class Use:
    """How a bound value is used: where it is read as an array, and whether in any other way."""

    __slots__ = ("escapes", "live", "loops", "reads", "results")

    def __init__(self, loops: tuple[Use, ...]) -> None:
        self.loops = loops  # the loop variables around its definition
        self.live = False
        self.reads: dict[int, tuple[list[Use | None], tuple[Use, ...]]] = {}  # by site: indices, loops around it
        self.results = 0  # times it is a result of its own block
        self.escapes = False

    def read_once_in_place(self) -> bool:
        """One read that computes no element twice, nor what some elements share.

        Its indices are the variables of the loops that lie between definition and read, in their order, and besides
        them only values from outside these loops.
        """
        if self.escapes or self.results or len(self.reads) != 1:
            return False
        indices, loops = next(iter(self.reads.values()))
        between = loops[len(self.loops) :]
        moving = [index for index in indices if index is not None and (index in between or self.inside(index))]
        return tuple(moving[: len(between)]) == between

    def inside(self, other: Use) -> bool:
        """Whether another value is bound inside a loop that is not around this one."""
        return len(other.loops) > len(self.loops)

    def only_read(self) -> bool:
        return bool(self.reads) and not self.escapes and not self.results

    def only_a_result(self) -> bool:
        return self.results == 1 and not self.escapes and not self.reads


Effects = set[Use]  # accumulators that are updated; requirements count as updates of this one:
_REQUIREMENTS = Use(())

Uses = Env[Use]


class _Lazy(ABC):
    """An array that is not made: its elements are computed where they are read."""

    @abstractmethod
    def at(self, indices: Sequence[Value]) -> Value:
        """The element at these indices."""


@dataclass(frozen=True)
class _Delayed(_Lazy):
    """A generate that is computed where it is read."""

    body: _Block
    env: Env[_Entry]
    position: int

    def at(self, indices: Sequence[Value]) -> Value:
        return self.body.element(self.env, indices[0], self.position, indices[1:])


@dataclass(frozen=True)
class _Chosen(_Lazy):
    """An array chosen by a cond: the choice is made where it is read, once for each place."""

    cond: _Cond
    env: Env[_Entry]
    position: int
    made: dict[tuple[int, ...], Value] = field(default_factory=dict)

    def at(self, indices: Sequence[Value]) -> Value:
        place = tuple([index.number for index in indices])
        if place not in self.made:
            then, orelse = [partial(self._read, branch, indices) for branch in self.cond.branches]
            self.made[place] = current().cond(self.cond.test.value(self.env), then, orelse)[0]
        return self.made[place]

    def _read(self, branch: _Block, indices: Sequence[Value]) -> list[Value]:
        return [current().index(branch.emit(self.env, [], [self.position])[0], indices)]


_Entry = Value | _Lazy | None  # None: dead, not emitted


class _Atom:
    """A variable; the others override."""

    def __init__(self, index: int) -> None:
        self.index = index

    def use(self, env: Uses) -> Use | None:
        return env.get(self.index)

    def emit(self, env: Env[_Entry]) -> _Entry:
        return env.get(self.index)

    def need(self, env: Uses) -> None:
        use = self.use(env)
        if use is not None:
            use.live = use.escapes = True

    def value(self, env: Env[_Entry]) -> Value:
        value = self.emit(env)
        assert isinstance(value, Value)
        return value


class _Closed(_Atom):
    """A literal, constant or size."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self.make = make

    def use(self, env: Uses) -> Use | None:
        return None

    def emit(self, env: Env[_Entry]) -> _Entry:
        return self.make()


class _Operation:
    """A pure operation without blocks; the others override.

    ``cost`` is about how many additions a scalar result, or an element of an array, takes; infinite with inner loops.
    """

    cost = math.inf

    def __init__(self, args: Sequence[_Atom], emit: Callable[[list[Value]], Sequence[Value]], cost: float = 1) -> None:
        self.args, self.build, self.cost = args, emit, cost

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        """Mark what the live results (and live effects) need; the effects that are live."""
        if live:
            self.need(env, self.args)
        return set()

    def need(self, env: Uses, args: Iterable[_Atom]) -> None:
        for arg in args:
            arg.need(env)

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        """The live results, None for the others."""
        return self.build([arg.value(env) for arg in self.args])

    def lazily(self, env: Env[_Entry], position: int) -> _Lazy:
        """A result that is an array and need not be made."""
        raise NotImplementedError


class _Index(_Operation):
    cost = 1

    def __init__(self, array: _Atom, indices: Sequence[_Atom]) -> None:
        self.array, self.indices = array, indices

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        if live:
            self.need(env, self.indices)
            use = self.array.use(env)
            if use is not None:
                use.live = True
                use.reads[id(self)] = ([index.use(env) for index in self.indices], loops)
        return set()

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        array = self.array.emit(env)
        indices = [index.value(env) for index in self.indices]
        assert array is not None
        return [array.at(indices) if isinstance(array, _Lazy) else current().index(array, indices)]


class _Generate(_Operation):
    def __init__(self, extent: _Atom, body: _Block) -> None:
        self.extent, self.body, self.cost = extent, body, body.cost

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        variable = Use(loops)
        effects = self.body.analyse(env, [variable], sorted(live), (*loops, variable))
        if live or effects:
            self.extent.need(env)
        return effects

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        wanted = sorted(live)
        made = current().generate(self.extent.value(env), lambda i: self.body.emit(env, [i], wanted))
        return _spread(wanted, made, self.body.width)

    def lazily(self, env: Env[_Entry], position: int) -> _Lazy:
        return _Delayed(self.body, env, position)


class _Reduce(_Operation):
    def __init__(self, extent: _Atom, neutrals: Sequence[_Atom], element: _Block, operator: _Block) -> None:
        self.extent, self.neutrals, self.element, self.operator = extent, neutrals, element, operator
        self.combined: Sequence[int] = ()  # all results or none

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        every = range(len(self.neutrals))
        self.combined = every if live else ()
        effects = self._analyse_operator(env, loops)
        if effects and not live:  # its requirements are checked though nobody asks for the result
            self.combined = every
            effects = self._analyse_operator(env, loops)
        variable = Use(loops)
        effects |= self.element.analyse(env, [variable], self.combined, (*loops, variable))
        if self.combined or effects:
            self.extent.need(env)
        if self.combined:
            self.need(env, self.neutrals)
        return effects

    def _analyse_operator(self, env: Uses, loops: tuple[Use, ...]) -> Effects:
        loops = (*loops, Use(()))  # it runs any number of times
        return self.operator.analyse(env, [Use(loops) for _ in range(2 * len(self.neutrals))], self.combined, loops)

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        extent = self.extent.value(env)
        if not self.combined:
            current().generate(extent, lambda i: self.element.emit(env, [i], ()))
            return [None] * len(self.neutrals)
        return current().reduce(
            extent,
            [neutral.value(env) for neutral in self.neutrals],
            lambda i: self.element.emit(env, [i], self.combined),
            lambda *ab: self.operator.emit(env, ab, self.combined),
        )


class _Cond(_Operation):
    def __init__(self, test: _Atom, branches: Sequence[_Block]) -> None:
        self.test, self.branches, self.cost = test, branches, 1 + max([branch.cost for branch in branches])

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        effects: Effects = set()
        for branch in self.branches:
            effects |= branch.analyse(env, [], sorted(live), loops)
        if live or effects:
            self.test.need(env)
        return effects

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        wanted = sorted(live)
        then, orelse = self.branches
        made = current().cond(
            self.test.value(env), lambda: then.emit(env, [], wanted), lambda: orelse.emit(env, [], wanted)
        )
        return _spread(wanted, made, then.width)

    def lazily(self, env: Env[_Entry], position: int) -> _Lazy:
        return _Chosen(self, env, position)


class _Loop(_Operation):
    def __init__(self, extent: _Atom, initials: Sequence[_Atom], body: _Block) -> None:
        self.extent, self.initials, self.body = extent, initials, body
        self.needed: list[int] = []

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        count = len(self.initials)
        wanted = set(live)
        while True:
            variable = Use(loops)
            inner = (*loops, variable)
            state = [Use(inner) for _ in self.initials]
            effects = self.body.analyse(env, [variable, *state], sorted(wanted), inner)
            more = {k for k in range(count) if state[k].live} - wanted
            if not more:
                break
            wanted |= more
        self.needed = sorted(wanted)
        if wanted or effects:
            self.need(env, [self.extent, *[self.initials[k] for k in self.needed if k < count]])
        return effects

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        count = len(self.initials)
        states = [k for k in self.needed if k < count]

        def body(i: Value, *values: Value) -> list[Value]:
            state: list[_Entry] = [None] * count
            for k, value in zip(states, values, strict=True):
                state[k] = value
            return self.body.emit(env, [i, *state], self.needed)

        initials = [self.initials[k].value(env) for k in states]
        return _spread(self.needed, current().loop(self.extent.value(env), initials, body), self.body.width)


class _Accumulate(_Operation):
    def __init__(self, initials: Sequence[_Atom], body: _Block) -> None:
        self.initials, self.body = initials, body

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        cells = [Use(loops) for _ in self.initials]
        for k, cell in enumerate(cells):
            cell.live = k in live
        count = len(cells)
        effects = self.body.analyse(env, cells, [k - count for k in sorted(live) if k >= count], loops)
        self.need(env, [self.initials[k] for k in sorted(live) if k < count])
        return effects - set(cells)

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        count = len(self.initials)
        kept = [k for k in sorted(live) if k < count]
        wanted = [k - count for k in sorted(live) if k >= count]

        def body(*values: Value) -> list[Value]:
            cells: list[_Entry] = [None] * count
            for k, value in zip(kept, values, strict=True):
                cells[k] = value
            return self.body.emit(env, cells, wanted)

        made = accumulate(current(), [self.initials[k].value(env) for k in kept], body)
        return _spread(sorted(live), made, count + self.body.width)


class _AddTo(_Operation):
    def __init__(self, accumulator: _Atom, operands: Sequence[_Atom]) -> None:
        self.accumulator, self.operands = accumulator, operands

    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        cell = self.accumulator.use(env)
        assert cell is not None
        if not cell.live:
            return set()
        self.need(env, self.operands)
        return {cell}

    def emit(self, env: Env[_Entry], live: set[int]) -> Sequence[_Entry]:
        return current().emit("add_to", (), [self.accumulator.value(env), *[x.value(env) for x in self.operands]])


class _Require(_Operation):
    def analyse(self, env: Uses, live: set[int], loops: tuple[Use, ...]) -> Effects:
        self.need(env, self.args)
        return {_REQUIREMENTS}


def _spread(positions: Sequence[int], values: Sequence[Value], width: int) -> list[_Entry]:
    """Values at their positions among ``width`` results, None elsewhere."""
    results: list[_Entry] = [None] * width
    for position, value in zip(positions, values, strict=True):
        results[position] = value
    return results


@dataclass
class _Step:
    """What the analysis found out about one binding."""

    needed: bool = False
    live: set[int] = field(default_factory=set)
    lazy: set[int] = field(default_factory=set)
    only_results: set[int] = field(default_factory=set)


class _Block:
    def __init__(self, bindings: Sequence[Binding], results: Sequence[_Atom], names: Sequence[str], fuse: bool) -> None:
        self.bindings, self.results, self.names, self.fuse = bindings, results, names, fuse
        self.width = len(results)
        self.cost = sum([binding.operation.cost for binding in bindings])
        self.steps: list[_Step] = []

    def analyse(self, env: Uses, arguments: Sequence[Use], wanted: Iterable[int], loops: tuple[Use, ...]) -> Effects:
        env = env.enter(arguments)
        before: list[Uses] = []
        uses: list[list[Use]] = []
        for binding in self.bindings:
            before.append(env)
            uses.append([Use(loops) for _ in binding.types])
            env = env.extend(uses[-1])
        for position in wanted:
            use = self.results[position].use(env)
            if use is not None:
                use.live = True
                use.results += 1
                use.escapes = use.escapes or not any(use is own for step in uses for own in step)
        effects: Effects = set()
        self.steps = [_Step() for _ in self.bindings]
        for k in reversed(range(len(self.bindings))):
            step, operation = self.steps[k], self.bindings[k].operation
            step.live = {position for position, use in enumerate(uses[k]) if use.live}
            own = operation.analyse(before[k], step.live, loops)
            step.needed = bool(step.live or own)
            effects |= own
            if isinstance(operation, _Generate) and self.fuse and not own:
                step.lazy = {p for p in step.live if uses[k][p].read_once_in_place()}
                step.only_results = {p for p in step.live if uses[k][p].only_a_result()}
            elif isinstance(operation, _Cond) and operation.cost <= CHEAP and not own:
                step.lazy = {p for p in step.live if uses[k][p].only_read()}
                step.only_results = {p for p in step.live if uses[k][p].only_a_result()}
        return effects

    def emit(self, env: Env[_Entry], arguments: Sequence[_Entry], wanted: Iterable[int]) -> list[Value]:
        env = self._bindings(env, arguments, None)
        return [self.results[position].value(env) for position in wanted]

    def element(self, env: Env[_Entry], i: Value, position: int, rest: Sequence[Value]) -> Value:
        """One element of a result that is an array (the result itself when no indices are left)."""
        env = self._bindings(env, [i], position if rest else None)
        result = self.results[position].emit(env)
        assert result is not None
        return result.at(rest) if isinstance(result, _Lazy) else current().index(result, rest)

    def _bindings(self, env: Env[_Entry], arguments: Sequence[_Entry], entered: int | None) -> Env[_Entry]:
        """Emit what is needed; the result that will be entered by an index is delayed if it is used for that alone."""
        builder, outer = current(), current().origin
        name_arguments(arguments, self.names)
        env = env.enter(arguments)
        for binding, step in zip(self.bindings, self.steps, strict=True):
            if not step.needed:
                env = env.extend([None] * len(binding.types))
                continue
            builder.origin = binding.origin
            lazy = step.lazy if entered is None else step.lazy | step.only_results
            entries: list[_Entry] = [None] * len(binding.types)
            if lazy != step.live or not lazy:
                entries = list(binding.operation.emit(env, step.live - lazy))
            for position in lazy:
                entries[position] = binding.operation.lazily(env, position)
            env = env.extend(entries)
        builder.origin = outer
        return env


class _Simplify(Language[_Atom, _Operation, _Block]):
    def __init__(self, fuse: bool) -> None:
        self.fuse = fuse

    def variable(self, index: int, type: Type) -> _Atom:
        return _Atom(index)

    def literal(self, value: float | int | bool, type: Scalar) -> _Atom:
        return _Closed(lambda: current().literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> _Atom:
        return _Closed(lambda: current().atom(array))

    def dim(self, dim: Dim) -> _Atom:
        return _Closed(lambda: current().dim(dim))

    def primitive(self, primitive: Primitive, args: Sequence[_Atom]) -> _Operation:
        return _Operation(args, lambda values: current().emit("primitive", (primitive,), values), primitive.cost)

    def cond(self, test: _Atom, then: _Block, orelse: _Block) -> _Operation:
        return _Cond(test, [then, orelse])

    def loop(self, dim: Dim, extent: _Atom, initials: Sequence[_Atom], body: _Block) -> _Operation:
        return _Loop(extent, initials, body)

    def size(self, array: _Atom, axis: int) -> _Operation:
        return _Operation([array], lambda values: [current().size(values[0], axis)])

    def index(self, array: _Atom, indices: Sequence[_Atom]) -> _Operation:
        return _Index(array, indices)

    def generate(self, dim: Dim, extent: _Atom, body: _Block) -> _Operation:
        return _Generate(extent, body)

    def reduce(self, extent: _Atom, neutrals: Sequence[_Atom], element: _Block, operator: _Block) -> _Operation:
        return _Reduce(extent, neutrals, element, operator)

    def accumulate(self, initials: Sequence[_Atom], body: _Block) -> _Operation:
        return _Accumulate(initials, body)

    def add_to(self, accumulator: _Atom, value: _Atom, indices: Sequence[_Atom]) -> _Operation:
        return _AddTo(accumulator, [value, *indices])

    def require(self, test: _Atom, failure: Failure, values: Sequence[_Atom]) -> _Operation:
        def emit(operands: list[Value]) -> Sequence[Value]:
            current().require(operands[0], failure, operands[1:])
            return []

        return _Require([test, *values], emit)

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[_Atom], names: Sequence[str]
    ) -> _Block:
        return _Block(bindings, results, names, self.fuse)
