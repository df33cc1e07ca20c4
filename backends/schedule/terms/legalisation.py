"""Legalisation, the first step: constructs that machine code does not have are written as others, or left out.

Functions, tuples and declared types become what they are in first-order form (``interpreters/first_order``): choices
and parts, and where they recur, procedures and cells. A custom operation is its body, for its derivatives have been
taken by now; a primitive that says something to them alone, as ``stop_gradient`` does, is its operand. The
branches of a ``par`` that recur are procedures that are called side by side, and so are those that take long step by
step; others run one after the other, for their loops are parallel themselves. A probe shows nothing, since nobody
looks.

A checkpoint stays a scope while the program is simplified and scheduled: what is computed again must not be found
equal to what was computed before, and then be kept. Just before the program is lowered, ``open_checkpoints`` puts its
operations where it stands, as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....core.builder import Builder
from ....core.constructs import ADDED
from ....core.environment import Env
from ....core.primitive import Primitive
from ....core.terms import Atom, Block, Foreign, Operation, Rules, Variable
from ....core.types import Type, dims
from ....interpreters import embed
from ....interpreters.expansion import expanded, operations_expanded
from ....interpreters.first_order import first_order, is_first_order
from ....interpreters.first_order.optimisation import optimised
from ....interpreters.first_order.tasks import with_tasks
from ...lowering.lower import Lowering
from ...task_cost import is_long


def legalised(block: Block, checks: bool = True, groups: bool = False) -> Block:
    """The closed block in the constructs that compiled code has; Unsupported where functions are parameters or results.

    Without ``checks`` it requires nothing: so simplifying drops what only requirements need. A target whose threads
    come in ``groups`` has all operations expanded that can be, others those on small arrays.
    """
    if not is_first_order(block):
        block = optimised(first_order(_without_rules(block)).block)
    block = block if groups else with_tasks(block, is_long)
    block = expanded(block, lambda row: hasattr(Lowering, row.method)) if ADDED else block
    block = operations_expanded(block, lambda function, types: groups or _small(function, types))
    if not _mentions(block, checks):
        return block
    block = _without_rules(block)

    def preparing(builder: Builder) -> _Prepare:
        language = _Prepare(builder)
        language.checks = checks
        return language

    return embed.rebuilt(block, preparing)


def _small(function: Foreign, types: Sequence[Type]) -> bool:
    """Whether all extents are constants for which an operation says that its expansion is better."""
    extents = [dim.constant for type in types for dim in dims(type)]
    return all([extent is not None and extent <= function.small for extent in extents]) and function.small > 0


def _mentions(block: Block, checks: bool) -> bool:
    """Whether a block has anything that ``_Prepare`` does not rebuild as it is."""
    return any(_is_changed(x, checks) or any(_mentions(inner, checks) for inner in x.blocks) for x in block.bindings)


def _is_changed(x: Operation, checks: bool) -> bool:
    if x.op == "primitive":
        identity: bool = x.static[0].identity
        return identity
    own, inherited = [getattr(language, x.row.method, None) for language in (_Prepare, embed.Embed)]
    return (x.op == "require" and not checks) or own is not inherited


def _without_rules(block: Block) -> Block:
    """The block without the rules of customs, which derivatives have used."""
    made = []
    for x in block.bindings:
        kept = x.blocks[:1] if x.op == "custom" else x.blocks
        static = tuple([rule for rule in x.static if rule == "checkpoint"]) if x.op == "custom" else x.static
        made.append(Operation(x.op, static, x.args, tuple(map(_without_rules, kept)), x.types, x.origin))
    return Block(block.binders, tuple(made), block.results, block.names)


class _Prepare(embed.Embed):
    def primitive(self, primitive: Primitive, args: Sequence[embed.Atom]) -> embed.Operation:
        return (lambda env: [args[0](env)]) if primitive.identity else super().primitive(primitive, args)

    def custom(
        self,
        rules: Rules,
        args: Sequence[embed.Atom],
        body: embed.Block,
        blocks: Sequence[embed.Block],
    ) -> embed.Operation:
        if "checkpoint" in rules:
            return super().custom(rules, args, body, blocks)
        return lambda env: body(env, [a(env) for a in args])

    def par(self, branches: Sequence[embed.Block]) -> embed.Operation:
        return lambda env: [value for branch in branches for value in branch(env, [])]

    def probe(self, name: str, values: Sequence[embed.Atom]) -> embed.Operation:
        return lambda env: [value(env) for value in values]


# Checkpoints

Place = int | Atom  # the level of a variable, or what is no variable


def open_checkpoints(block: Block) -> Block:
    """The block with the operations of its checkpoints in their places."""
    return _opened(block, Env(), 0) if _has_checkpoints(block) else block


def _has_checkpoints(block: Block) -> bool:
    return any(x.op == "custom" or any(map(_has_checkpoints, x.blocks)) for x in block.bindings)


def _opened(block: Block, env: Env[Place], depth: int) -> Block:
    level = depth + len(block.binders)
    made: list[Operation] = []
    places, level = _run(block, env.enter(range(depth, level)), level, made)
    results = [_atom(place, atom.type, level) for place, atom in zip(places, block.results, strict=True)]
    return Block(block.binders, tuple(made), tuple(results), block.names)


def _run(block: Block, env: Env[Place], level: int, made: list[Operation]) -> tuple[list[Place], int]:
    """Append the operations of a block at a level; where its results are, and the level behind them."""
    for op in block.bindings:
        places = [_place(arg, env) for arg in op.args]
        if op.op == "custom":
            results, level = _run(op.blocks[0], env.enter(places), level, made)
            env = env.extend(results)
            continue
        args = tuple([_atom(place, arg.type, level) for place, arg in zip(places, op.args, strict=True)])
        blocks = tuple([_opened(inner, env, level) for inner in op.blocks])
        made.append(Operation(op.op, op.static, args, blocks, op.types, op.origin))
        env = env.extend(range(level, level + len(op.types)))
        level += len(op.types)
    return [_place(atom, env) for atom in block.results], level


def _place(atom: Atom, env: Env[Place]) -> Place:
    return env.get(atom.index) if isinstance(atom, Variable) else atom


def _atom(place: Place, type: Type, level: int) -> Atom:
    return Variable(level - 1 - place, type) if isinstance(place, int) else place
