"""Loops that hold a reduction over the cut size beside other work become two: the reductions, and the rest.

    for j < d: sum(x[:, j]) / f64(n)    becomes    t = for j < d: sum(x[:, j])
                                                   for j < d: t[j] / f64(n)

The first is done chunk by chunk, the second once, with what all chunks have given. What stands before the reduction in
the loop is computed in both. (Loop fission with scalar expansion: Allen and Kennedy, 2001, sections 5.3 and 6.2.)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.builder import Builder
from ...core.dims import Dim
from ...core.graph import Value
from ...core.terms import Block, Operation
from ...interpreters.embed import Atom, Embed, Entries, emit_blocks, rebuilt
from ...interpreters.embed import Block as Meaning
from ...interpreters.embed import Operation as Operations
from .cutting import goes_over, is_combination, partly_over


def with_combinations_alone(block: Block, size: Dim) -> Block:
    """The closed block in which reductions over the size have loops of their own."""
    while _held(block, size):
        block = rebuilt(block, lambda builder: _Fission(builder, size))
    return block


def _held(block: Block, size: Dim) -> bool:
    around = [operation for operation in block.bindings if not goes_over(operation, size)]
    return any(
        _position(operation, size) is not None or any(_held(inner, size) for inner in operation.blocks)
        for operation in around
    )


def _position(operation: Operation, size: Dim) -> int | None:
    """Where the block of a loop has a reduction over the size beside other work."""
    if not operation.row.makes_elements or goes_over(operation, size) or partly_over(operation, size) is not None:
        return None
    bindings = () if is_combination(operation, size) else operation.blocks[0].bindings
    return next((k for k, inner in enumerate(bindings) if is_combination(inner, size)), None)


class _Fission(Embed):
    def __init__(self, builder: Builder, size: Dim) -> None:
        super().__init__(builder)
        self._size, self._inside = size, Embed(builder)

    def meaning_of_operation(self, operation: Operation) -> Operations:
        """Loops over the size stay as they are, with all that is in them."""
        if goes_over(operation, self._size):
            self._inside.checks = self.checks
            return self._inside.meaning_of_operation(operation)
        return super().meaning_of_operation(operation)

    def operation(self, operation: Operation, args: Sequence[Atom], blocks: Sequence[Meaning]) -> Operations:
        position = _position(operation, self._size)
        if position is None:
            return super().operation(operation, args, blocks)
        block, extents = operation.blocks[0], operation.row.iterations(operation)
        before, reduction, after = block.bindings[:position], block.bindings[position], block.bindings[position + 1 :]

        def run(env: Entries) -> Sequence[Value]:
            sizes = [self.meaning_of_atom(extent)(env) for extent in extents]

            def combined(*index: Value) -> Sequence[Value]:
                checks, self.checks = self.checks, False  # the rest has the same requirements
                try:
                    return self._after(before, env.enter(index), reduction)
                finally:
                    self.checks = checks

            arrays = self._for_each(sizes, combined)

            def element(*index: Value) -> Sequence[Value]:
                inside = self._extended(before, env.enter(index))
                inside = inside.extend([self.builder.part(array, index) for array in arrays])
                inside = self._extended(after, inside)
                return [self.meaning_of_atom(result)(inside) for result in block.results]

            others = [lambda *binders, each=each: each(env, binders) for each in blocks[1:]]
            values = [arg(env) for arg in args]
            return emit_blocks(self.builder, operation.op, operation.static, values, [element, *others])

        return run

    def _for_each(self, sizes: Sequence[Value], body: object) -> Sequence[Value]:
        """The arrays of a body over indices."""

        def build(index: tuple[Value, ...]) -> Sequence[Value]:
            if len(index) == len(sizes):
                return body(*index)  # type: ignore[operator, no-any-return]
            return self.builder.generate(sizes[len(index)], lambda i: build((*index, i)))

        return build(())

    def _extended(self, operations: Sequence[Operation], env: Entries) -> Entries:
        for operation in operations:
            self.builder.origin = operation.origin
            env = env.extend(self.meaning_of_operation(operation)(env))
        return env

    def _after(self, before: Sequence[Operation], env: Entries, operation: Operation) -> Sequence[Value]:
        return self.meaning_of_operation(operation)(self._extended(before, env))
