"""Pieces: a pass that looks at one operation at a time repeats itself where it has changed something, and only there.

A pass over a whole program that is repeated until nothing changes goes through all of it as often as its deepest nest
wants. Here each operation with blocks is a program of its own, whose parameters are what it uses of the others. What
that becomes is put in its place, and its operations are pieces in turn, until each is left as it is. Pieces that are
alike, as those of a network's layers are, are looked at once. ::

    a = for i: f(x[i])       piece(x) = for i: f(x[i])       piece(x): A = ..; for i: g(A[i])       A = ..; a = ..
    b = for i: f(y[i])                                                                              B = ..; b = ..

An array that is the same number everywhere is part of the pieces that use it. A program with sizes that its run decides
is one piece: types in it mention its integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ....core.dims import Dim
from ....core.terms import Atom, Block, Operation, Variable
from ....core.types import Type, all_dims
from ....interpreters.embed import Embed, rebuilt

Step = Callable[[Block], Block]  # what a pass does with a closed block, once
Place = int | Atom  # of a value in a block: its level, or the atom that it is


class Pieces:
    """Repeats a step for pieces of programs, as long as it changes them, with ``between`` in between."""

    def __init__(self, step: Step, between: Step) -> None:
        self._step, self._between = step, between
        self._settled: dict[tuple[Block, tuple[object, ...]], Block | None] = {}  # None: left as it is

    def settled(self, block: Block, rounds: int) -> Block:
        """A closed block after so many rounds, or when the step leaves all pieces as they are.

        It is the same object if it did so in the first. What is one piece has one round.
        """
        return self._piecewise(block, rounds) if _is_static(block) else self._of(block, 1) or block

    def _piecewise(self, block: Block, rounds: int) -> Block:
        writer, values = _Writer(block.binders), _Values(block)
        places, changed = list[Place](range(len(block.binders))), False

        def place(index: int) -> Place:
            return places[-1 - index]

        for operation in block.bindings:
            piece, levels = values.piece(operation) if operation.blocks and rounds else (None, ())
            settled = None if piece is None else self._of(piece, rounds)
            values.bind(operation)
            if settled is None:
                places += writer.write(operation, place)
            else:
                changed = True
                places += writer.inline(settled, [places[level] for level in levels])
        return writer.block(block.results, place, block.names) if changed else block

    def _of(self, piece: Block, rounds: int) -> Block | None:
        """What a piece settles as; None if it is left as it is."""
        key = piece, tuple(_labels(piece))
        if key not in self._settled:
            made = self._step(piece)
            if made == piece or (made.count() == piece.count() and made == rebuilt(piece, Embed)):  # in another order
                self._settled[key] = None
            else:
                self._settled[key] = made if rounds == 1 else self.settled(self._between(made), rounds - 1)
        return self._settled[key]


class _Writer:
    """Writes operations of other blocks one after the other, as a block with these parameters.

    ``place(index)`` is where a value is here that has this index there.
    """

    def __init__(self, binders: Sequence[Type]) -> None:
        self._binders, self._bindings, self._bound = tuple(binders), list[Operation](), len(binders)

    def write(self, operation: Operation, place: Callable[[int], Place]) -> list[Place]:
        """An operation; the places of its results."""
        self._bindings.append(_moved(operation, 0, lambda variable: self._atom(variable, place)))
        start, self._bound = self._bound, self._bound + len(operation.types)
        return list(range(start, self._bound))

    def inline(self, block: Block, arguments: Sequence[Place]) -> list[Place]:
        """The operations of a block for these arguments; the places of its results."""
        places = [*arguments]

        def place(index: int) -> Place:
            return places[-1 - index]

        for operation in block.bindings:
            places += self.write(operation, place)
        return [place(each.index) if isinstance(each, Variable) else each for each in block.results]

    def block(self, results: Sequence[Atom], place: Callable[[int], Place], names: Sequence[str] = ()) -> Block:
        """The block with these results."""
        atoms = [self._atom(each, place) if isinstance(each, Variable) else each for each in results]
        return Block(self._binders, tuple(self._bindings), tuple(atoms), tuple(names))

    def _atom(self, variable: Variable, place: Callable[[int], Place]) -> Atom:
        found = place(variable.index)
        return Variable(self._bound - 1 - found, variable.type) if isinstance(found, int) else found


class _Values:
    """What is bound so far in a block, and which arrays of it are the same number everywhere."""

    def __init__(self, block: Block) -> None:
        self._bound = len(block.binders)
        self._uniform: dict[int, tuple[int, Operation]] = {}  # by level: the first level of what makes it, and that

    def bind(self, operation: Operation) -> None:
        """Go behind an operation."""
        start, self._bound = self._bound, self._bound + len(operation.types)
        if _is_uniform(operation) and all(start - 1 - each.index in self._uniform for each in operation.free):
            self._uniform.update(dict.fromkeys(range(start, self._bound), (start, operation)))

    def piece(self, operation: Operation) -> tuple[Block, Sequence[int]]:
        """An operation as a closed block, and the levels of what its parameters are."""
        found, uniform = dict[int, Type](), dict[int, Operation]()  # by level
        self._collect(operation, self._bound, found, uniform)
        parameters = dict(sorted(found.items()))
        writer, places = _Writer(list(parameters.values())), dict[int, Place]()
        places.update(zip(parameters, range(len(parameters)), strict=True))

        def place(bound: int, index: int) -> Place:
            return places[bound - 1 - index]

        for level, each in [*sorted(uniform.items()), (self._bound, operation)]:
            written = writer.write(each, partial(place, level))
            places.update(enumerate(written, level))
        results = [Variable(len(operation.types) - 1 - k, type) for k, type in enumerate(operation.types)]
        return writer.block(results, partial(place, self._bound + len(results))), list(parameters)

    def _collect(
        self, operation: Operation, bound: int, parameters: dict[int, Type], uniform: dict[int, Operation]
    ) -> None:
        """Find what an operation uses where so much is bound."""
        for variable in operation.free:
            level = bound - 1 - variable.index
            if level in self._uniform:
                start, made = self._uniform[level]
                if start not in uniform:
                    uniform[start] = made
                    self._collect(made, start, parameters, uniform)
            else:
                parameters[level] = variable.type


def _moved(operation: Operation, bound: int, outside: Callable[[Variable], Atom]) -> Operation:
    """An operation in a block, where so much is bound, with other atoms for the variables from outside of that."""

    def atoms(those: Sequence[Atom], bound: int) -> tuple[Atom, ...]:
        return tuple([atom(each, bound) if isinstance(each, Variable) else each for each in those])

    def atom(variable: Variable, bound: int) -> Atom:
        if variable.index < bound:
            return variable
        found = outside(Variable(variable.index - bound, variable.type))
        return Variable(bound + found.index, found.type) if isinstance(found, Variable) else found

    def moved(block: Block) -> Block:
        if not block.free:
            return block
        inside, bindings = bound + len(block.binders), list[Operation]()
        for each in block.bindings:
            bindings.append(_moved(each, inside, outside))
            inside += len(each.types)
        return Block(block.binders, tuple(bindings), atoms(block.results, inside), block.names)

    args, blocks = atoms(operation.args, bound), tuple(map(moved, operation.blocks))
    return Operation(operation.op, operation.static, args, blocks, operation.types, operation.origin)


def _is_uniform(operation: Operation) -> bool:
    """Whether an operation makes an array that is the same number everywhere, if what it uses is."""
    within = [inner for block in operation.blocks for inner in block.bindings]
    return operation.row.elements and all(map(_is_uniform, within))


def _is_static(block: Block) -> bool:
    """Whether no size in a block is decided by the run."""
    types = [*block.binders, *[type for each in block.bindings for type in each.types]]
    dims = [dim for type in types for dim in all_dims(type)]
    dims += [part for each in block.bindings for part in each.static if isinstance(part, Dim)]
    inner = [_is_static(inner) for each in block.bindings for inner in each.blocks]
    return all(inner) and all([dim.is_static() for dim in dims])


def _labels(block: Block) -> Iterator[object]:
    """Names in a block, and where its operations were written, which equality ignores."""
    for operation in block.bindings:
        yield operation.origin
        for inner in operation.blocks:
            yield inner.names
            yield from _labels(inner)
