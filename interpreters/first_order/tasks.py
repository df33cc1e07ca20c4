"""Task extraction: branches of a ``par`` become procedures (lambda lifting), whose calls may run side by side.

A branch is worth a task when it calls a procedure, which recurs: nobody knows how long that takes. So is one that takes
long and has no loops that threads could share; who asks for tasks says which. Any other runs in its place, behind the
task before it, where there is one before it and one behind. So failures stay in their order. A branch that is one call
is that procedure. ::

    a, b = par(f(x + 1), sin(g(y)))   =>   a, b = par(f(x + 1), branch(y)), where branch(y) = sin(g(y))

A branch that adds to an accumulator from outside adds to a total of its own, and the totals are added to it in the
order of the branches. So each takes as much memory as the accumulator, which it may where the fork is in no loop and no
procedure; elsewhere such branches run one after the other. So do branches that call functions of Python, or give
arrays of sizes that the run decides, and those without calls in a loop whose iterations may run side by side. ::

    par: a += f(x), a += g(x)   =>   b, c = par(f(x), g(x)); a += b; a += c
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from ...core.builder import Builder, build
from ...core.constructs import Role
from ...core.dims import Opaque
from ...core.environment import Env
from ...core.graph import Value
from ...core.placement import to_block
from ...core.procedures import Procedure, procedures_of
from ...core.terms import Block, Literal, Operation, Variable
from ...core.types import Accumulator, dims, element
from .. import embed
from .copies import Copies, Copy

# A procedure, and what it is called with
Call = tuple[Procedure, Sequence[Value]]


def with_tasks(block: Block, is_long: Callable[[Block], bool]) -> Block:
    """A closed term in first-order form whose tasks are procedures; ``is_long`` tells closed terms without calls."""
    blocks = (block, *_blocks_called(block))
    if not any(map(_forks, blocks)):
        return block
    alone = {id(fork) for each in blocks for fork in _forks_outside(each, (Role.ELEMENT, Role.OPERATOR))}
    once = {id(fork) for fork in _forks_outside(block, [role for role in Role if role.repeated])}
    return Copies(lambda builder, copies: _Tasks(builder, copies, alone, once, is_long)).block(block)


class _Tasks(Copy):
    """``alone`` are the identities of forks that no parallel loop is around, ``once`` of those that run once a call."""

    def __init__(
        self,
        builder: Builder,
        copies: Copies,
        alone: Collection[int],
        once: Collection[int],
        is_long: Callable[[Block], bool],
    ) -> None:
        super().__init__(builder, copies)
        self.alone, self.once, self.is_long = alone, once, is_long

    def operation(
        self, operation: Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        if operation.op != "par":
            return super().operation(operation, args, blocks)
        alone = id(operation) in self.alone
        costly = [k for k, term in enumerate(operation.blocks) if _calls(term) or (alone and self._is_long(term))]
        adding = id(operation) not in self.once and any(map(_accumulators, operation.blocks))
        if len(costly) < 2 or adding or any(map(_stays, operation.blocks)):
            return lambda env: [value for branch in blocks for value in branch(env, ())]
        first, last = costly[0], costly[-1] + 1
        shares = [slice(start, end) for start, end in pairwise([*costly, last])]

        def run(env: embed.Entries) -> Sequence[Value]:
            before = [value for branch in blocks[:first] for value in branch(env, ())]
            tasks = [self._task(operation.blocks[share], blocks[share], env) for share in shares]
            given = [value for _, values in tasks for value in values]
            made = iter(self.builder.emit("call", tuple([procedure for procedure, _ in tasks]), given))
            results = list[Value]()
            for share in shares:
                terms = operation.blocks[share]
                results += [next(made) for term in terms for _ in term.results]
                for variable in _accumulators(*terms):
                    self._add(env.get(variable.index), next(made))
            return [*before, *results, *[value for branch in blocks[last:] for value in branch(env, ())]]

        return run

    def _is_long(self, branch: Block) -> bool:
        if any([not dim.is_static() for variable in branch.free for dim in dims(variable.type)]) or _stays(branch):
            return False
        own = _accumulators(branch)
        read = [variable for variable in branch.free if variable not in own]
        with build() as builder:
            binders = [builder.variable(variable.type) for variable in read]
            meaning = branch.interpret(embed.Embed(builder))
            results = _with_totals(builder, own, dict(zip(read, binders, strict=True)), lambda env: meaning(env, ()))
            closed, _ = to_block(binders, results, builder.scopes[0].statements)
        return self.is_long(closed)

    def _add(self, accumulator: Value | None, total: Value) -> None:
        """Add what a task gives to an accumulator."""
        b = self.builder
        assert accumulator is not None
        b.each(b.sizes(total), lambda *i: b.emit("add_to", (), [accumulator, b.index(total, i), *i]))

    def _task(self, terms: Sequence[Block], branches: Sequence[embed.Block], env: embed.Entries) -> Call:
        """The procedure that some branches are, one after the other, and what it is called with.

        It gives their results, and then the totals of what they add to.
        """
        own = _accumulators(*terms)
        read = [variable for variable in _free(*terms) if variable not in own]
        values = [env.get(variable.index) for variable in read]

        def run(*parameters: Value) -> Sequence[Value]:
            given = dict(zip(read, parameters, strict=True))
            return _with_totals(
                self.builder, own, given, lambda inner: [x for branch in branches for x in branch(inner, ())]
            )

        body = self.builder.body([value.type for value in values], run, [value.name for value in values])
        block, sizes = to_block(body.binders, body.results, body.statements)
        values = [*sizes, *values]
        if block.bindings and _is_call(block, block.bindings[-1]):
            call = block.bindings[-1]
            before = Block(block.binders, block.bindings[:-1], call.args, block.names)
            return call.static[0], before.interpret(embed.Embed(self.builder))(Env(), values)
        procedure = Procedure("branch", block.binders, block.types, self.builder.origin)
        procedure.block = block
        return procedure, values


def _with_totals(
    builder: Builder,
    own: Sequence[Variable],
    given: Mapping[Variable, Value],
    run: Callable[[embed.Entries], Sequence[Value]],
) -> Sequence[Value]:
    """What some branches give for these values of what they read, and then the totals of what they add to."""
    if not own:
        return run(_outside(given))
    zeros = []
    for variable in own:
        assert isinstance(variable.type, Accumulator)
        sizes = [builder.known(dim) for dim in dims(variable.type)]
        zero = builder.literal(0, element(variable.type.of))
        zeros.append(builder.array([size for size in sizes if size is not None], lambda *_, zero=zero: zero))
    made = embed.accumulate(
        builder, zeros, lambda *totals: run(_outside({**given, **dict(zip(own, totals, strict=True))}))
    )
    return [*made[len(own) :], *made[: len(own)]]


def _outside(values: Mapping[Variable, Value]) -> embed.Entries:
    """The environment of blocks whose free variables have these values."""
    found: list[Value | None] = [None] * (1 + max([variable.index for variable in values], default=-1))
    for variable, value in values.items():
        found[-1 - variable.index] = value
    return Env[Value | None]().enter(found)


def _free(*blocks: Block) -> list[Variable]:
    return sorted({variable for block in blocks for variable in block.free}, key=lambda variable: variable.index)


def _accumulators(*blocks: Block) -> list[Variable]:
    """What blocks add to, from outside."""
    return [variable for variable in _free(*blocks) if isinstance(variable.type, Accumulator)]


def _blocks_called(block: Block) -> list[Block]:
    return [procedure.block for procedure in procedures_of(block)]


def _forks(block: Block) -> bool:
    return any(x.op == "par" or any(map(_forks, x.blocks)) for x in block.bindings)


def _forks_outside(block: Block, loops: Collection[Role]) -> Iterator[Operation]:
    """The forks of a block that no block of these roles is around."""
    for x in block.bindings:
        if x.op == "par":
            yield x
        for k, inner in enumerate(x.blocks):
            if x.row.role(k) not in loops:
                yield from _forks_outside(inner, loops)


def _calls(block: Block) -> bool:
    """Whether a branch calls a procedure."""
    return any(x.op == "call" or any(map(_calls, x.blocks)) for x in block.bindings)


def _stays(block: Block) -> bool:
    """Whether a branch cannot be a procedure."""
    open = any(isinstance(atom, Opaque) for type in block.types for dim in dims(type) for atom in dim.atoms())
    own = any([not dim.is_static() for variable in _accumulators(block) for dim in dims(variable.type)])
    return open or own or any(map(_calls_python, (block, *_blocks_called(block))))


def _calls_python(block: Block) -> bool:
    return any(
        (x.op == "foreign" and x.static[0].c is None) or any(map(_calls_python, x.blocks)) for x in block.bindings
    )


def _is_call(block: Block, last: Operation) -> bool:
    """Whether a block is the call of one procedure, on what is computed of scalars."""
    count, atoms = len(last.types), [atom for x in block.bindings for atom in x.args]
    gives = [Variable(count - 1 - k, type) for k, type in enumerate(last.types)]
    plain = all([x.op == "primitive" for x in block.bindings[:-1]]) and last.op == "call" and len(last.static) == 1
    return plain and list(block.results) == gives and all([isinstance(x, Variable | Literal) for x in atoms])
