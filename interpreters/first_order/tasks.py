"""Task extraction: branches of a ``par`` become procedures (lambda lifting), whose calls may run side by side.

A branch is worth a task when it calls a procedure, which recurs: nobody knows how long that takes. So is one that takes
long and has no loops that threads could share; who asks for tasks says which. Any other runs in its place, behind the
task before it, where there is one before it and one behind. So failures stay in their order. A branch that is one call
is that procedure. ::

    a, b = par(f(x + 1), sin(g(y)))   =>   a, b = par(f(x + 1), branch(y)), where branch(y) = sin(g(y))

Branches that add to an accumulator from outside, call functions of Python, or give arrays of sizes that the run decides
run one after the other. So do branches without calls in a loop whose iterations may run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from ...core.builder import Builder, build
from ...core.constructs import Role
from ...core.dims import Opaque
from ...core.environment import Env
from ...core.graph import Value
from ...core.placement import to_block
from ...core.procedures import Procedure, procedures_of
from ...core.terms import Block, Literal, Operation, Variable
from ...core.types import dims, is_data
from .. import embed
from .copies import Copies, Copy

# A procedure, and what it is called with
Call = tuple[Procedure, Sequence[Value]]


def with_tasks(block: Block, is_long: Callable[[Block], bool]) -> Block:
    """A closed term in first-order form whose tasks are procedures; ``is_long`` tells closed terms without calls."""
    blocks = (block, *_blocks_called(block))
    if not any(map(_forks, blocks)):
        return block
    alone = {id(fork) for each in blocks for fork in _forks_outside_of_loops(each)}
    return Copies(lambda builder, copies: _Tasks(builder, copies, alone, is_long)).block(block)


class _Tasks(Copy):
    def __init__(
        self, builder: Builder, copies: Copies, alone: Collection[int], is_long: Callable[[Block], bool]
    ) -> None:
        super().__init__(builder, copies)
        self.alone, self.is_long = alone, is_long  # ``alone``: the identities of forks that no parallel loop is around

    def operation(
        self, operation: Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        if operation.op != "par":
            return super().operation(operation, args, blocks)
        alone = id(operation) in self.alone
        costly = [k for k, term in enumerate(operation.blocks) if _calls(term) or (alone and self._is_long(term))]
        if len(costly) < 2 or any(map(_stays, operation.blocks)):
            return lambda env: [value for branch in blocks for value in branch(env, ())]
        first, last = costly[0], costly[-1] + 1
        shares = [slice(start, end) for start, end in pairwise([*costly, last])]

        def run(env: embed.Entries) -> Sequence[Value]:
            before = [value for branch in blocks[:first] for value in branch(env, ())]
            tasks = [self._task(operation.blocks[share], blocks[share], env) for share in shares]
            given = [value for _, values in tasks for value in values]
            made = self.builder.emit("call", tuple([procedure for procedure, _ in tasks]), given)
            return [*before, *made, *[value for branch in blocks[last:] for value in branch(env, ())]]

        return run

    def _is_long(self, branch: Block) -> bool:
        if any([not dim.is_static() for variable in branch.free for dim in dims(variable.type)]) or _stays(branch):
            return False
        with build() as builder:
            binders = [builder.variable(variable.type) for variable in branch.free]
            results = branch.interpret(embed.Embed(builder))(_outside(branch.free, binders), ())
            closed, _ = to_block(binders, results, builder.scopes[0].statements)
        return self.is_long(closed)

    def _task(self, terms: Sequence[Block], branches: Sequence[embed.Block], env: embed.Entries) -> Call:
        """The procedure that some branches are, one after the other, and what it is called with."""
        free = sorted({variable for term in terms for variable in term.free}, key=lambda variable: variable.index)
        values = [env.get(variable.index) for variable in free]

        def run(*parameters: Value) -> Sequence[Value]:
            outside = _outside(free, parameters)
            return [value for branch in branches for value in branch(outside, ())]

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


def _outside(free: Sequence[Variable], values: Sequence[Value]) -> embed.Entries:
    """The environment of a block whose free variables have these values."""
    found: list[Value | None] = [None] * (1 + max([variable.index for variable in free], default=-1))
    for variable, value in zip(free, values, strict=True):
        found[-1 - variable.index] = value
    return Env[Value | None]().enter(found)


def _blocks_called(block: Block) -> list[Block]:
    return [procedure.block for procedure in procedures_of(block)]


def _forks(block: Block) -> bool:
    return any(x.op == "par" or any(map(_forks, x.blocks)) for x in block.bindings)


def _forks_outside_of_loops(block: Block) -> Iterator[Operation]:
    """The forks of a block that no loop is around whose iterations may run side by side."""
    for x in block.bindings:
        if x.op == "par":
            yield x
        for k, inner in enumerate(x.blocks):
            if x.row.role(k) not in (Role.ELEMENT, Role.OPERATOR):
                yield from _forks_outside_of_loops(inner)


def _calls(block: Block) -> bool:
    """Whether a branch calls a procedure."""
    return any(x.op == "call" or any(map(_calls, x.blocks)) for x in block.bindings)


def _stays(block: Block) -> bool:
    """Whether a branch cannot be a procedure."""
    open = any(isinstance(atom, Opaque) for type in block.types for dim in dims(type) for atom in dim.atoms())
    own = not all([is_data(variable.type) for variable in block.free])
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
