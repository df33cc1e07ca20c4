"""What a term means on a chunk: arrays over the cut size are parts of themselves, numbers are those of the whole.

    sum i < n: f64(i) * x[i]    on a chunk of x that begins at `first`:    sum i < n: f64(first + i) * x[i]

The index of a loop over the size is *here*: an index of the chunk where it reads an array that is cut, and a number of
the whole range everywhere else. The size as a number is the whole size. A loop over the size inside of another one, or
a read at another place, has no meaning on a chunk and is refused, with its line.

With ``first`` None the language says what is computed *here*, beside all chunks: then nothing is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...core.builder import Builder
from ...core.dims import Dim
from ...core.graph import Value
from ...core.terms import Atom, Operation, Variable
from ...core.types import dims, element, i64, is_float
from ...interpreters.embed import Atom as Meaning
from ...interpreters.embed import Block, Embed, Entries, accumulate, emit_blocks
from ...interpreters.embed import Operation as Operations
from .cutting import INSTEAD, cut_axis, goes_over, is_combination, mentions, refuse


class Here:
    """The index of a loop over the cut size: its place in the chunk."""

    def __init__(self, local: Value) -> None:
        self.local = local


@dataclass(frozen=True)
class Later:
    """A result of an operation that is emitted when one of its results is read."""

    results: Callable[[], Sequence[Value]]
    place: int


class OnChunk(Embed):
    """The meaning on the chunk that begins at ``first`` of a size that is ``total`` long."""

    def __init__(self, builder: Builder, size: Dim, total: Value, first: Value | None) -> None:
        super().__init__(builder)
        self.over, self.total, self.first = size, total, first
        self._inside = False  # of a loop over the size
        self._indices: set[int] = set()  # the numbers of the indices of such loops
        self._shared: set[int] = set()  # the numbers of accumulators that all chunks add to

    def entry(self, value: Value) -> Any:
        return Here(value) if value.number in self._indices else super().entry(value)

    def value(self, entry: Any) -> Value:
        if isinstance(entry, Here):
            assert self.first is not None
            return self.builder.primitive("add", self.first, entry.local)
        if isinstance(entry, Later):
            return entry.results()[entry.place]
        return super().value(entry)

    def later(self, operation: Operation, env: Entries) -> Entries:
        """The environment behind an operation that is emitted only if it is read."""
        results = cache(lambda: self.meaning_of_operation(operation)(env))
        return env.extend([Later(results, place) for place in range(len(operation.types))])

    def dim(self, dim: Dim) -> Meaning:
        """Sizes as numbers: the cut one is that of the whole."""
        if not self.over.names() & dim.names():
            return super().dim(dim)
        return lambda env: _number(self.builder, dim, self.over, self.total)

    def operation(self, operation: Operation, args: Sequence[Meaning], blocks: Sequence[Block]) -> Operations:
        if goes_over(operation, self.over):
            return self._over(operation, args, blocks)
        match operation.op:
            case "index":
                return self._index(operation)
            case "add_to":
                return self._add_to(operation)
            case "size":
                if dims(operation.args[0].type)[operation.static[0]] == self.over:
                    return lambda env: [self.total]
            case "accumulate" if self.first is not None and is_combination(operation, self.over):
                return self._accumulate(args, blocks[0])
            case "accumulate" | "cond":
                pass
            case _ if any(mentions(arg.type, self.over) for arg in operation.args):
                raise refuse(operation, self.over)
        return super().operation(operation, args, blocks)

    def _over(self, operation: Operation, args: Sequence[Meaning], blocks: Sequence[Block]) -> Operations:
        """A loop over the size: over the chunk, whose indices are here."""
        row = operation.row
        if row.ordered or not (row.name == "generate" or row.combines):
            raise refuse(operation, self.over)

        def run(env: Entries) -> Sequence[Value]:
            if self._inside:
                raise refuse(operation, self.over, INSTEAD["generate"])
            if self.first is None:
                raise refuse(operation, self.over, INSTEAD["operator"])
            (at,) = range(len(operation.args))[row.extents(operation.static)]  # type: ignore[misc]
            values = [arg(env) if k != at else self.builder.dim(self.over) for k, arg in enumerate(args)]

            def element_of(i: Value) -> Sequence[Value]:
                self._inside = True
                self._indices.add(i.number)
                try:
                    return blocks[0](env, [i])
                finally:
                    self._inside = False

            others = [lambda *binders, each=each: each(env, binders) for each in blocks[1:]]
            return emit_blocks(self.builder, operation.op, operation.static, values, [element_of, *others])

        return run

    def _accumulate(self, initials: Sequence[Meaning], body: Block) -> Operations:
        """An accumulator that all chunks add to: the first one begins as it does, others with zeros."""

        def run(env: Entries) -> Sequence[Value]:
            given = [initial(env) for initial in initials]
            if self._inside:
                return accumulate(self.builder, given, lambda *cells: body(env, cells))
            others = [zeros(self.builder, each.type) for each in given]
            starts = self.builder.cond(self._is_first(), lambda: given, lambda: others)
            return accumulate(self.builder, starts, lambda *cells: body(env, self.shared(cells)))

        return run

    def shared(self, cells: Sequence[Value]) -> Sequence[Value]:
        """Accumulators that all chunks add to: what stands in no loop over the size is added by the first chunk."""
        self._shared |= {cell.number for cell in cells}
        return cells

    def _is_first(self) -> Value:
        """Whether it is the first chunk."""
        assert self.first is not None
        return self.builder.primitive("equal", self.first, self.builder.literal(0, i64))

    def _index(self, operation: Operation) -> Operations:
        array, *indices = operation.args

        def run(env: Entries) -> Sequence[Value]:
            values = self.meaning_of_atom(array)(env)
            here, places = self._places(array, indices, env, operation)
            if here is None:
                return [self.builder.index(values, places)]
            absent = self.builder.literal(-0.0 if is_float(values.type) else 0, element(values.type))  # adds nothing
            return self.builder.cond(here, lambda: [self.builder.index(values, places)], lambda: [absent])

        return run

    def _add_to(self, operation: Operation) -> Operations:
        accumulator, value, *indices = operation.args

        def run(env: Entries) -> Sequence[Value]:
            cell, added = self.meaning_of_atom(accumulator)(env), self.meaning_of_atom(value)(env)
            here, places = self._places(accumulator, indices, env, operation)
            if cell.number in self._shared and self.first is not None and not self._inside:
                here = self._is_first()  # one chunk adds it

            def add() -> Sequence[Value]:
                return self.builder.emit("add_to", (), [cell, added, *places])

            return add() if here is None else self.builder.cond(here, add, lambda: [])

        return run

    def _places(
        self, array: Atom, indices: Sequence[Atom], env: Entries, operation: Operation
    ) -> tuple[Value | None, list[Value]]:
        """Indices as places in the chunk; and where no loop over the size has chosen them, whether the chunk has it."""
        axis = cut_axis(array.type, self.over)
        if axis is None:
            return None, [self.meaning_of_atom(index)(env) for index in indices]
        index = indices[axis]
        entry = env.get(index.index) if isinstance(index, Variable) else None
        others = [self.meaning_of_atom(each)(env) for k, each in enumerate(indices) if k != axis]
        if isinstance(entry, Here):
            return None, [*others[:axis], entry.local, *others[axis:]]
        if self._inside:
            raise refuse(operation, self.over, INSTEAD["index"])
        if self.first is None:
            raise refuse(operation, self.over, INSTEAD["operator"])
        builder, place = self.builder, self.meaning_of_atom(index)(env)
        local = builder.primitive("subtract", place, self.first)
        after = builder.primitive("less_equal", builder.literal(0, i64), local)
        here = builder.primitive("logical_and", after, builder.primitive("less", local, builder.dim(self.over)))
        return here, [*others[:axis], local, *others[axis:]]


def _number(builder: Builder, dim: Dim, size: Dim, total: Value) -> Value:
    """A dim as a number, where one size in it has the value that is given."""
    if dim == size:
        return total
    terms = list[Value]()
    for monomial, coefficient in dim.terms:
        value = builder.literal(coefficient, i64)
        for atom in monomial:
            inner = Dim.atom(atom)
            if inner != size and size.names() & inner.names():
                left, right = (_number(builder, part, size, total) for part in (atom.left, atom.right))  # type: ignore[union-attr]
                name = {"//": "floor_divide", "min": "minimum", "max": "maximum"}[atom.operator]  # type: ignore[union-attr]
                factor = builder.primitive(name, left, right)
            else:
                factor = total if inner == size else builder.dim(inner)
            value = builder.primitive("multiply", value, factor)
        terms.append(value)
    whole = builder.literal(0, i64)
    for term in terms:
        whole = builder.primitive("add", whole, term)
    return whole


def zeros(builder: Builder, type: Any) -> Value:
    """A scalar or an array of zeros."""
    return builder.array([builder.dim(dim) for dim in dims(type)], lambda *_: builder.literal(0, element(type)))
