"""What a trace is made of while it is recorded: values that have names, steps, and blocks copied into place.

A value of the run is :class:`Known`; its name is its De Bruijn level in the trace (the number of variables bound
before it, so that a step's place is its name), an atom if it is a constant, or None if its type is traced away. A
:class:`Recorder` is a block that grows at its end: the trace itself, or a sub-trace inside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.dims import Dim
from ...core.terms import Atom, Block, Constant, Literal, Operation, Variable
from ...core.types import Scalar, Type, i64

Name = int | Atom | None


class Known:
    """A scalar or an array of the run: its value (with the axes of the batch behind its own), type and name."""

    __slots__ = ("name", "type", "value")

    def __init__(self, value: Any, type: Type, name: Name = None) -> None:
        self.value, self.type, self.name = value, type, name

    @property
    def level(self) -> int:
        """The name of a step's result."""
        assert isinstance(self.name, int)
        return self.name

    def __repr__(self) -> str:
        return f"Known({self.value!r}, {self.type}, {self.name})"


class Recorder:
    """The steps so far of a block, in which ``depth`` variables are in scope."""

    def __init__(self, depth: int, binders: Sequence[Type] = (), names: Sequence[str] = ()) -> None:
        self.binders, self.names = tuple(binders), tuple(names)
        self.inner = self.depth = depth + len(self.binders)  # what is bound from here on is bound inside
        self.bindings: list[Operation] = []
        self.values: list[tuple[Any, ...]] = []

    def emit(self, operation: Operation, values: Sequence[Any]) -> list[Known]:
        """Record a step, whose arguments and blocks are already in their place; its results, with their names."""
        first = self.depth
        self.bindings.append(operation)
        self.values.append(tuple(values))
        self.depth = first + len(operation.types)
        return [Known(v, t, first + k) for k, (v, t) in enumerate(zip(values, operation.types, strict=True))]

    def atom(self, name: int | Atom, type: Type) -> Atom:
        """What stands for a named value here."""
        return Variable(self.depth - 1 - name, type) if isinstance(name, int) else name

    def block(self, results: Sequence[Atom]) -> Block:
        return Block(self.binders, tuple(self.bindings), tuple(results), self.names)


def constant_atom(value: Any, type: Type) -> Literal | Constant:
    """The atom of a number or an array; an array of what, if it is not of this scalar type itself."""
    return (
        Literal.of(value.item(), type) if isinstance(type, Scalar) and np.ndim(value) == 0 else Constant.capture(value)
    )


# Blocks


def free_variables(operation: Operation) -> dict[int, Type]:
    """The variables of an operation's blocks that are bound before it, by index there."""
    return dict(sorted([(variable.index, variable.type) for block in operation.blocks for variable in block.free]))


def sized_from_outside(operation: Operation) -> list[tuple[Dim, int]]:
    """The sizes inside of an operation's blocks that are variables bound before it, with these."""
    found: list[tuple[Dim, int]] = []
    todo = [(block, 0) for block in operation.blocks]
    while todo:
        block, bound = todo.pop()
        bound += len(block.binders)
        for inner in block.bindings:
            if inner.static and isinstance(inner.static[0], Dim) and not inner.static[0].is_static():
                extent = inner.args[0]
                if isinstance(extent, Variable) and extent.index >= bound:
                    found.append((inner.static[0], extent.index - bound))
            todo.extend([(b, bound) for b in inner.blocks])
            bound += len(inner.types)
    return found


def rebuilt(
    block: Block, free: Callable[[Variable, int], Atom], concrete: Callable[[Any], Any] = lambda part: part
) -> Block:
    """A block at another place. ``free(variable, bound)`` is what a variable from outside of it becomes, which has the
    index that it has in front of the block, where ``bound`` more variables are in scope. ``concrete`` is applied to the
    types and sizes.
    """

    def atom(a: Atom, bound: int) -> Atom:
        if not isinstance(a, Variable):
            return concrete(a)  # type: ignore[no-any-return]
        if a.index >= bound:
            return free(Variable(a.index - bound, a.type), bound)
        return Variable(a.index, concrete(a.type))

    def placed(block: Block, bound: int) -> Block:
        bound += len(block.binders)
        operations: list[Operation] = []
        for o in block.bindings:
            static, types = (tuple([concrete(part) for part in parts]) for parts in (o.static, o.types))
            args, blocks = tuple([atom(a, bound) for a in o.args]), tuple([placed(b, bound) for b in o.blocks])
            operations.append(Operation(o.op, static, sized(static, args), blocks, types, o.origin))
            bound += len(types)
        results = tuple([atom(a, bound) for a in block.results])
        return Block(tuple([concrete(type) for type in block.binders]), tuple(operations), results, block.names)

    return placed(block, 0)


def sized(static: tuple[Any, ...], args: tuple[Atom, ...]) -> tuple[Atom, ...]:
    """The arguments of an operation: the extent that is a size in its type is a number if that is one."""
    extent = static[0].constant if static and isinstance(static[0], Dim) else None
    return args if extent is None else (Literal.of(extent, i64), *args[1:])


def shifted(block: Block, by: int) -> Block:
    """A block behind so many more variables."""
    return rebuilt(block, lambda variable, bound: Variable(variable.index + bound + by, variable.type))
