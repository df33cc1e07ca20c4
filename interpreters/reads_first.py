"""Anti-dependences: operations in an order with reads before writes, so that arrays are dead when they are updated.

The order of a block is one of many in which arguments precede their users. An array that is read after its update has
to be copied (``in_place.py``); what does not need the update may as well come before it:

    b = scatter(a, i -> a_j)          a_i = a[i]
    a_i = a[i]                  =>    b = scatter(a, i -> a_j)
    c = scatter(b, j -> a_i)          c = scatter(b, j -> a_i)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.environment import Env
from ..core.terms import Atom, Block, Operation, Variable
from ..core.types import ArrayType
from .own_places import Taken, taken_by_elements


def reads_first(block: Block) -> Block:
    """The block with its operations, and those inside them, in such an order."""
    return _block(block, Env(), 0, {}) if _updates(block) else block


def _updates(block: Block) -> bool:
    return any(_updated(x) or any(map(_updates, x.blocks)) for x in block.bindings)


def _updated(op: Operation) -> list[int]:
    """The variables whose memory an operation, or what is in a block of it that runs once, may take.

    As indices where the operation stands.
    """
    row = op.row
    first = len(op.args) if row.takes is None else row.takes(op.static)
    found = [arg.index for arg in op.args[first:] if isinstance(arg, Variable) and isinstance(arg.type, ArrayType)]
    for block in op.blocks if row.inline and not row.holds else ():
        bound = len(block.binders)
        for inner in block.bindings:
            found += [index - bound for index in _updated(inner) if index >= bound]
            bound += len(inner.types)
    return found


def _block(block: Block, env: Env[int], depth: int, elements: Taken) -> Block:
    """A block in its new order; the environment holds the new levels of variables.

    ``elements`` are the arrays that are made where others are, element by element.
    """
    order = _order(block, elements)
    starts, level = [0] * len(order), depth + len(block.binders)
    for position in order:
        starts[position] = level
        level += len(block.bindings[position].types)
    env, before = env.enter(range(depth, depth + len(block.binders))), []
    for operation, start in zip(block.bindings, starts, strict=True):
        before.append(env)
        env = env.extend(range(start, start + len(operation.types)))
    bindings = tuple([_operation(block.bindings[k], before[k], starts[k]) for k in order])
    return Block(block.binders, bindings, tuple([_atom(atom, env, level) for atom in block.results]), block.names)


def _operation(op: Operation, env: Env[int], depth: int) -> Operation:
    args = tuple([_atom(atom, env, depth) for atom in op.args])
    elements = taken_by_elements(op)
    blocks = tuple([_block(block, env, depth, elements) for block in op.blocks])
    return Operation(op.op, op.static, args, blocks, op.types, op.origin)


def _atom(atom: Atom, env: Env[int], depth: int) -> Atom:
    return Variable(depth - 1 - env.get(atom.index), atom.type) if isinstance(atom, Variable) else atom


def _order(block: Block, elements: Taken) -> list[int]:
    """The positions of a block's operations in their new order."""
    order = list(range(len(block.bindings)))
    takes = [[*_updated(each), *elements.get(id(each), {}).values()] for each in block.bindings]
    if not any(takes):
        return order
    starts, level = [], len(block.binders)
    for operation in block.bindings:
        starts.append(level)
        level += len(operation.types)
    uses = [
        {start - 1 - variable.index for variable in x.free} for start, x in zip(starts, block.bindings, strict=True)
    ]
    updated = [{start - 1 - k for k in taken} for start, taken in zip(starts, takes, strict=True)]
    last = {level: position for position, levels in enumerate(uses) for level in levels}
    makes = [range(start, start + len(x.types)) for start, x in zip(starts, block.bindings, strict=True)]
    fixed = [bool(_effects(operation)) for operation in block.bindings]
    at = 0
    while at < len(order):
        update = order[at]
        end = max([last[level] for level in updated[update]], default=0)
        early = _early(update, order[at + 1 :], uses, updated, makes, fixed) if end > update else []
        moved = set(early)
        order[at:] = [*early, update, *[k for k in order[at + 1 :] if k not in moved]] if early else order[at:]
        at += len(early) + 1
    return order


def _early(
    update: int,
    later: Sequence[int],
    uses: Sequence[set[int]],
    updated: Sequence[set[int]],
    makes: Sequence[range],
    fixed: Sequence[bool],
) -> list[int]:
    """The later operations that read what is updated, without needing the update, and what they are made from."""
    after, readers = set(makes[update]), set[int]()
    free: list[int] = []  # what does not need the update
    for k in later:
        if not uses[k].isdisjoint(after) or fixed[k]:
            after.update(makes[k])
            continue
        free.append(k)
        if not uses[k].isdisjoint(updated[update]) and updated[k].isdisjoint(updated[update]):
            readers.add(k)
    wanted: set[int] = set()
    chosen = []
    for k in reversed(free):
        if k in readers or not wanted.isdisjoint(makes[k]):
            wanted |= uses[k]
            chosen.append(k)
    return list(reversed(chosen))


def _effects(op: Operation) -> bool:
    return op.row.statement or any(_effects(x) for block in op.blocks for x in block.bindings)
