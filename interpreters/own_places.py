"""Own places: states of loops whose next value may be made where they are, element by element.

A loop over arrays whose next state is a new array needs room for two of them, and writes to one what it reads from the
other. Where each element of the new array is made from the old one at the same place alone, one is enough::

    loop t < steps with x, v:
      v' = for i < n: v[i] - 0.1 * x[i]         v is read at i alone: v' takes its memory
      x' = for i < n: x[i] + 0.1 * v'[i]        x likewise
      -> x', v'

So the chains that lead from the results of a loop's body back to its states are followed: through updates, which are
made in place anyway, and through such arrays. A state may also come to be where another one was. What follows only says
which memory may be taken; whether others read the old array later is for ``in_place.py`` to say, and that they read it
before, if they can, for ``reads_first.py`` to see to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ..core.constructs import Role
from ..core.terms import Atom, Block, Operation, Variable
from ..core.types import rank

Taken = dict[int, dict[int, int]]  # by operation (``id``) and result: the variable, as it stands there, that is taken


def taken_by_elements(op: Operation) -> Taken:
    """For the arrays that a loop's body makes element by element, the variables in whose memory each may be made.

    Nothing where an operation has no states that go from step to step.
    """
    row, found = op.row, Taken()
    if row.takes is None or Role.STEP not in row.roles:
        return found
    body, count = op.blocks[-1], len(op.args) - row.takes(op.static)
    chains = _Chains(body, len(body.binders) - count)
    claimed = set[int]()
    for k, atom in enumerate(body.results[:count]):
        if rank(atom.type):
            ways = [way for way in chains.back(atom) if way[0] not in claimed]
            way = min(ways, key=lambda way: (way[0] != k, len(way[1])), default=None)
            if way is not None:
                claimed.add(way[0])
                for operation, position, variable in way[1]:
                    found.setdefault(id(operation), {})[position] = variable
    return found


Link = tuple[Operation, int, int]  # an operation, one of its results, and the variable that this takes


class _Chains:
    """What leads from values of a body back to its states, which begin at a parameter."""

    def __init__(self, body: Block, first: int) -> None:
        self.body, self.first = body, first
        bound = len(body.binders)
        self.starts = list(accumulate([len(each.types) for each in body.bindings], initial=bound))
        self.made = [(each, k) for each in body.bindings for k in range(len(each.types))]

    def back(self, atom: Atom) -> Iterator[tuple[int, tuple[Link, ...]]]:
        """The states that a result may come to be where they were, each with what is made there on the way."""
        if isinstance(atom, Variable):
            yield from self._back(self.starts[-1] - 1 - atom.index)

    def _back(self, level: int) -> Iterator[tuple[int, tuple[Link, ...]]]:
        bound = len(self.body.binders)
        if level < bound:
            if level >= self.first:
                yield level - self.first, ()
            return
        op, position = self.made[level - bound]
        start = level - position  # of the operation's results
        if op.op == "generate":
            for variable in at_own_places(op, position):
                for state, links in self._back(start - 1 - variable):
                    yield state, (*links, (op, position, variable))
        elif op.row.takes is not None:
            k = op.row.takes(op.static) + position
            if k < len(op.args) and isinstance(atom := op.args[k], Variable):
                yield from self._back(start - 1 - atom.index)


def at_own_places(op: Operation, position: int) -> list[int]:
    """The arrays that a generate reads at the place alone that it makes of one of its results, where it makes that.

    As variables where it stands, of the type of the result.
    """
    type, block = op.types[position], op.blocks[0]
    path = [block]
    while len(path) < rank(type):
        made = _made(block, block.results[position])
        if made is None or made[0].op != "generate" or len(made[0].types) != len(op.types):
            return []
        block, position = made[0].blocks[0], made[1]
        path.append(block)
    arrays = {each.index for each in op.free if each.type == type}
    return sorted(arrays - _elsewhere(path)) if arrays else []


def _made(block: Block, atom: Atom) -> tuple[Operation, int] | None:
    """The operation of a block that makes a value, and which of its results that is."""
    behind = atom.index if isinstance(atom, Variable) else -1
    for op in reversed(block.bindings):
        if 0 <= behind < len(op.types):
            return op, len(op.types) - 1 - behind
        behind -= len(op.types)
    return None


def _elsewhere(path: Sequence[Block]) -> set[int]:
    """What blocks in each other, each of a loop, use of what is around them otherwise than at the place of the loops.

    That is in the last of them alone, when all else has been done for the place.
    """
    found = set[int]()

    def visit(block: Block, bound: int, own: tuple[int, ...]) -> None:
        level = bound + len(block.binders)
        for op in block.bindings:
            here = tuple([level - 1 - place for place in own]) if len(own) == len(path) else None
            indices = tuple([atom.index if isinstance(atom, Variable) else -1 for atom in op.args[1:]])
            used = op.args[1:] if op.op == "index" and indices == here else op.args
            found.update([atom.index - level for atom in used if isinstance(atom, Variable) and atom.index >= level])
            for inner in op.blocks:
                further = len(own) < len(path) and inner is path[len(own)]
                visit(inner, level, (*own, level) if further else own)
            level += len(op.types)
        found.update([x.index - level for x in block.results if isinstance(x, Variable) and x.index >= level])

    visit(path[0], 0, (0,))
    return found
