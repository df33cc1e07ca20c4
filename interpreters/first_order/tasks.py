"""Task extraction: branches of a ``par`` become procedures (lambda lifting), whose calls may run side by side.

A branch is worth a task when it calls a procedure, which recurs: nobody knows how long that takes. Any other is made of
operations and loops, which are parallel themselves: it runs in its place, behind the task before it, where there is
one before it and one behind. So failures stay in their order. A branch that is one call is that procedure. ::

    a, b = par(f(x + 1), sin(g(y)))   =>   a, b = par(f(x + 1), branch(y)), where branch(y) = sin(g(y))

Branches that add to an accumulator from outside, call functions of Python, or give arrays of sizes that the run decides
run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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


def with_tasks(block: Block) -> Block:
    """A closed term in first-order form whose tasks are procedures."""
    return Copies(_Tasks).block(block) if any(map(_forks, (block, *_blocks_called(block)))) else block


class _Tasks(Copy):
    def operation(
        self, operation: Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        if operation.op != "par":
            return super().operation(operation, args, blocks)
        costly = [k for k, block in enumerate(operation.blocks) if _calls(block)]
        if len(costly) < 2 or any(map(_stays, operation.blocks)):
            return lambda env: [value for branch in blocks for value in branch(env, ())]
        first, last = costly[0], costly[-1] + 1
        starts = [*costly, last]
        shares = [blocks[start:end] for start, end in pairwise(starts)]

        def run(env: embed.Entries) -> Sequence[Value]:
            before = [value for branch in blocks[:first] for value in branch(env, ())]
            tasks = [self._task(share, env) for share in shares]
            given = [value for _, values in tasks for value in values]
            made = self.builder.emit("call", tuple([procedure for procedure, _ in tasks]), given)
            return [*before, *made, *[value for branch in blocks[last:] for value in branch(env, ())]]

        return run

    def _task(self, branches: Sequence[embed.Block], env: embed.Entries) -> Call:
        """The procedure that some branches are, one after the other, and what it is called with."""
        body = self.builder.body([], lambda: [value for branch in branches for value in branch(env, ())])
        block, captured = to_block((), body.results, body.statements)
        call = block.bindings[-1]
        if _is_call(block, call):
            before = Block(block.binders, block.bindings[:-1], call.args, block.names)
            return call.static[0], before.interpret(embed.Embed(self.builder))(Env(), captured)
        procedure = Procedure("branch", block.binders, block.types, self.builder.origin)
        procedure.block = block
        return procedure, captured


def _blocks_called(block: Block) -> list[Block]:
    return [procedure.block for procedure in procedures_of(block)]


def _forks(block: Block) -> bool:
    return any(x.op == "par" or any(map(_forks, x.blocks)) for x in block.bindings)


def _calls(block: Block) -> bool:
    """Whether a branch is worth a task."""
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
