"""What has been combined so far, and the next element: the step that reductions, scans and histograms are made of.

A *cell* holds one component of what an operator has combined: a mutable variable for a scalar, a place in memory for
an array (or for a scalar that is kept in one). A step reads the cells, gives them and an element to the operator, and
writes its results back. An operator may read any part of an array when it writes an element, so its results go to
memory of their own and are copied; one that needs only what stands at its own place writes where it reads:

    lambda a, b: a @ b      next = for i, j: sum(k: total[i, k] * b[k, j]);  total = next
    lambda a, b: a + b      total = for i, j: total[i, j] + b[i, j]

An element that is a part of a larger array, as the row ``xs[i]``, is read where it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ...core import terms
from ...core.dims import Dim, Opaque
from ...core.primitive import Expansion, Primitive
from ...core.types import Type, dims, element, rank
from .. import ir
from .arrays import Arrays
from .context import ONE, ZERO, ArrayRef, Environment, Operand

Cell = ir.Variable | ArrayRef


class Combining(Arrays):
    """Cells, elements, and the step that combines them."""

    # Cells

    def cells(self, types: Sequence[Type], values: Sequence[Operand]) -> list[Cell]:
        """New cells that hold these values."""
        made: list[Cell] = []
        for type, value in zip(types, values, strict=True):
            if isinstance(value, ArrayRef):
                place = self.allocate("total", type)
                self.copy(value, place)
                made.append(place)
            else:
                made.append(self.declare("total", value))
        return made

    def read(self, cell: Cell) -> Operand:
        """What a cell holds now; the memory of an array."""
        if isinstance(cell, ir.Variable):
            return self.frozen(cell)
        if len(cell.prefix) == len(cell.order):
            return self.let("t", ir.Load(cell.buffer, cell.place(())))
        return cell

    def write(self, cell: Cell, value: Operand) -> None:
        if isinstance(cell, ArrayRef):
            self.copy(value, cell)
        else:
            assert not isinstance(value, ArrayRef)
            self.assign(cell, value)

    def save(self, cells: Sequence[Cell], places: Sequence[ArrayRef]) -> None:
        """Write what cells hold to places."""
        for cell, place in zip(cells, places, strict=True):
            self.copy(self.read(cell), place)

    def restore(self, cells: Sequence[Cell], places: Sequence[ArrayRef]) -> None:
        """Write what stands at places to cells."""
        for cell, place in zip(cells, places, strict=True):
            self.write(cell, self.read(place))

    def fill(self, place: ArrayRef, value: Operand) -> None:
        """Write a value to all parts of an array."""
        axes = len(place.order) - len(place.prefix)
        loops = []
        for axis in range(axes):
            extent = place.extent(axis)
            loops.append(ir.Axis(self.loop_variable("i", self.dim(extent) or self.unknown()), extent))
        indices = [loop.variable for loop in loops]
        if isinstance(value, ArrayRef):
            inner = indices[axes - (len(value.order) - len(value.prefix)) :]
            value = ir.Load(value.buffer, value.place(inner))
        self.nest(loops, (ir.Store(place.buffer, place.place(indices), value),))

    # Steps

    def step(self, op: terms.Operation, env: Environment, cells: Sequence[Cell], element: Sequence[Operand]) -> None:
        """Combine an element into cells."""
        operator = op.blocks[1]
        named = named_operator(operator)
        if named is not None and isinstance(cells[0], ir.Variable):
            assert not isinstance(element[0], ArrayRef)
            self.emit(ir.Assign(cells[0].name, self.combined(named, cells[0].name, element[0])))
            return
        own = _works_in_place(operator, len(cells))
        before = [self.read(cell) for cell in cells]
        places: list[ArrayRef | None] = []
        for cell, type in zip(cells, operator.types, strict=True):
            if rank(type):
                places.append(cell if own and isinstance(cell, ArrayRef) else self.allocate("next", type))
            else:
                places.append(None)
        results = self.block(operator, env, [*before, *element], places)
        for cell, place, result in zip(cells, places, results, strict=True):
            if place is None or place is not cell:
                self.write(cell, result if place is None else place)

    def combined(self, named: Primitive, name: str, value: ir.Expression) -> ir.Expression:
        """The variable and an element under the operator; a product that is added is added in one rounding."""
        total = ir.Variable(name, value.type)
        if named.name == "add" and value.type.kind == "float" and self.target.multiply_add:
            product, negated = self.values.get(getattr(value, "name", ""), value), False
            if isinstance(product, ir.Apply) and product.primitive.name == "negative":
                product, negated = self.definition(product.arguments[0]), True
            if isinstance(product, ir.Apply) and product.primitive.name == "multiply":
                a, b = product.arguments
                return ir.MultiplyAdd(-a if negated else a, b, total, value.type)
        return ir.Apply(named, (total, value), value.type)

    def definition(self, value: ir.Expression) -> ir.Expression:
        return self.values.get(value.name, value) if isinstance(value, ir.Variable) else value

    def element(self, op: terms.Operation, env: Environment, index: ir.Expression) -> list[Operand]:
        """One element; an array that is a part of one from outside is read where it is."""
        body = op.blocks[0]
        env, bound = env.enter([index]), 1
        for number, binding in enumerate(body.bindings):
            part = self.part(binding, env, bound)
            if part is not None and _mentioned(body.bindings[number + 1 :], bound):
                part = None  # who makes an array may overwrite it
            env = env.extend([part] if part else self.operation(binding, env, [None] * len(binding.types)))
            bound += len(binding.types)
        return [self.atom(env, atom) for atom in body.results]

    def part(self, op: terms.Operation, env: Environment, bound: int) -> ArrayRef | None:
        """A generate that is a part of an array bound before the last ``bound`` values, as that part of it."""
        found = _part(op)
        if found is None or (isinstance(found.array, terms.Variable) and found.array.index < bound):
            return None
        array = self.atom(env, found.array)
        assert isinstance(array, ArrayRef)
        for size, atom in zip(dims(found.array.type), found.indices, strict=False):
            array = array.at(self.clamped(self.scalar(env, atom), size, array.extent(0)))
        return array

    # Loops over elements

    def elements(
        self, op: terms.Operation, env: Environment, start: ir.Expression, length: ir.Expression, cells: Sequence[Cell]
    ) -> ir.Variable:
        """The loop that combines so many elements into cells, in order; its variable."""
        variable, index = self.indices(op, env, start)
        with self.over(variable, length):
            self.at(start, variable, index)
            self.step(op, env, cells, self.element(op, env, index))
        return variable

    def index_variable(self, op: terms.Operation, env: Environment) -> ir.Variable:
        """The variable of a loop over all elements."""
        return self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))

    def indices(self, op: terms.Operation, env: Environment, start: ir.Expression) -> tuple[ir.Variable, ir.Variable]:
        """The variable of a loop over elements from a start, and their index, which is known to be in range."""
        index = self.index_variable(op, env)
        return (index, index) if start == ZERO else (self.loop_variable("step", self.unknown()), index)

    def at(self, start: ir.Expression, variable: ir.Variable, index: ir.Variable) -> None:
        """Bind the index of an element."""
        if variable != index:
            self.emit(ir.Let(index.name, start + variable))

    def extent_dim(self, op: terms.Operation, env: Environment) -> Dim:
        """The number of elements that are combined, for proofs."""
        [extent] = op.row.iterations(op)
        return self.dim(self.scalar(env, extent)) or self.unknown()

    def unknown(self) -> Dim:
        """A size of which nothing is known."""
        return Dim.atom(Opaque(-1_000_000 - self.shared.counter))

    @abstractmethod
    def sort(self, array: ArrayRef, result: ArrayRef) -> None:
        """Write the permutation that sorts a vector, stably."""

    @abstractmethod
    def clamped(self, index: ir.Expression, size: Dim, extent: ir.Expression) -> ir.Expression:
        """The index, in range whatever it is."""

    def totals(self, types: Sequence[Type], rows: ir.Expression) -> list[ArrayRef]:
        """Memory for so many totals."""
        return [
            self.array(self.temporary("totals", element(type), (rows, *[self.size(dim) for dim in dims(type)])))
            for type in types
        ]

    # Sizes

    def parts(self, extent: ir.Expression, size: ir.Expression | int) -> ir.Expression:
        """How many parts of a size there are, the last of which may be smaller."""
        return (extent + size - 1) // size

    def scalars(self, types: Sequence[Type]) -> ir.Expression:
        """How many scalars an element of these types consists of."""
        total: ir.Expression = ZERO
        for type in types:
            product: ir.Expression = ONE
            for dim in dims(type):
                product = product * self.size(dim)
            total = total + product
        return total


def named_operator(block: terms.Block) -> Primitive | None:
    """The primitive that an operator's block applies to its two elements."""
    if len(block.bindings) == 1 and block.bindings[0].op == "primitive" and len(block.binders) == 2:
        row: Primitive = block.bindings[0].static[0]
        args = [arg.index for arg in block.bindings[0].args if isinstance(arg, terms.Variable)]
        if sorted(args) == [0, 1] and _symmetric(row) and block.results == (terms.Variable(0, block.binders[0]),):
            return row
    return None


def elementwise_operator(block: terms.Block) -> Primitive | None:
    """The primitive that an operator's block applies to its two arrays, element by element."""
    depth, inner = 0, block
    while len(inner.bindings) == 1 and inner.bindings[0].op == "generate" and _gives(inner):
        depth, inner = depth + 1, inner.bindings[0].blocks[0]
    if depth == 0 or [binding.op for binding in inner.bindings] != ["index", "index", "primitive"] or not _gives(inner):
        return None
    read = []
    for bound, binding in enumerate(inner.bindings[:2]):
        array, *indices = [arg.index - bound if isinstance(arg, terms.Variable) else -1 for arg in binding.args]
        if indices != list(reversed(range(depth))):
            return None
        read.append(array - depth)
    row: Primitive = inner.bindings[2].static[0]
    args = [arg.index for arg in inner.bindings[2].args if isinstance(arg, terms.Variable)]
    whole = dims(block.types[0]) == dims(block.binders[0])
    return row if sorted(read) == sorted(args) == [0, 1] and whole and _symmetric(row) else None


def _symmetric(row: Primitive) -> bool:
    """Whether the order of operands does not matter, of an instruction: what is written in the language is a block."""
    return (row.commutative or row.name in ("minimum", "maximum")) and not isinstance(row.llvm, Expansion)


# Parts of arrays


@dataclass(frozen=True)
class _Part:
    """What is left of an array behind fixed leading indices, as seen from where it stands."""

    array: terms.Atom
    indices: tuple[terms.Atom, ...]


def _part(op: terms.Operation) -> _Part | None:
    """The part of an array that nested generates read element by element, if that is all they do."""
    depth, inner = 0, op
    while inner.op == "generate" and len(inner.blocks[0].bindings) == 1:
        if inner.blocks[0].results != (terms.Variable(0, inner.blocks[0].bindings[0].types[0]),):
            return None
        depth, inner = depth + 1, inner.blocks[0].bindings[0]
    if inner.op != "index" or depth == 0:
        return None
    array, *indices = inner.args
    fixed, moving = indices[:-depth], indices[-depth:]
    own = [terms.Variable(depth - 1 - k, index.type) for k, index in enumerate(moving)]
    outside = [_outside(atom, depth) for atom in (array, *fixed)]
    if moving != own or dims(op.types[0]) != dims(array.type)[len(fixed) :]:
        return None
    first, *rest = outside
    found = tuple([atom for atom in rest if atom is not None])
    return _Part(first, found) if first is not None and len(found) == len(rest) else None


def _outside(atom: terms.Atom, depth: int) -> terms.Atom | None:
    """An atom as seen from outside so many bindings; None for one of them."""
    if not isinstance(atom, terms.Variable):
        return atom
    return terms.Variable(atom.index - depth, atom.type) if atom.index >= depth else None


# Operators that may write where they read


def _works_in_place(operator: terms.Block, count: int) -> bool:
    """Whether an operator needs, for an element of a result, its left operand only at that element's place."""
    left = {level for level in range(count) if rank(operator.binders[level])}
    makers: list[int] = []  # the levels of the arrays that are results, by position
    bound = len(operator.binders)
    made: dict[int, int] = {}  # by level: the binding that makes it
    for number, binding in enumerate(operator.bindings):
        for k in range(len(binding.types)):
            made[bound + k] = number
        bound += len(binding.types)
    for level, result in enumerate(operator.results):
        if level in left:
            if not isinstance(result, terms.Variable) or bound - 1 - result.index not in made:
                return False
            makers.append(bound - 1 - result.index)
    if len(set(makers)) < len(makers):
        return False
    owner = dict(zip(sorted(left), [made[level] for level in makers], strict=True))
    bound = len(operator.binders)
    for number, binding in enumerate(operator.bindings):
        own = {level for level in left if owner[level] == number and binding.op == "generate"}
        if not _reads_own_place(binding, bound, left - own, own, ()):
            return False
        bound += len(binding.types)
    return True


def _reads_own_place(
    op: terms.Operation, bound: int, forbidden: set[int], left: set[int], chain: tuple[int, ...] | None
) -> bool:
    """Whether arrays are read at the variables of the chain of generates around only, and forbidden ones nowhere.

    A chain of None is one that was left: what is computed there is no element of a result.
    """
    levels = [bound - 1 - atom.index if isinstance(atom, terms.Variable) else -1 for atom in op.args]
    if op.op == "index" and levels[0] in left:
        if chain is None or tuple(levels[1:]) != chain:
            return False
        levels = levels[1:]
    if not (forbidden | left).isdisjoint(levels):
        return False
    for block in op.blocks:
        inside = (*chain, bound) if chain is not None and op.op == "generate" else chain
        level = bound + len(block.binders)
        for k, binding in enumerate(block.bindings):
            last = k == len(block.bindings) - 1
            below = inside if binding.op != "generate" or (last and _gives(block)) else None
            if not _reads_own_place(binding, level, forbidden, left, below):
                return False
            level += len(binding.types)
        results = {level - 1 - atom.index for atom in block.results if isinstance(atom, terms.Variable)}
        if not (forbidden | left).isdisjoint(results):
            return False
    return True


def _mentioned(bindings: Sequence[terms.Operation], level: int) -> bool:
    """Whether operations use the value bound last before them, at a level."""
    bound = level + 1
    for binding in bindings:
        if not _reads_own_place(binding, bound, {level}, set(), ()):
            return True
        bound += len(binding.types)
    return False


def _gives(block: terms.Block) -> bool:
    """Whether a block's results are those of its last operation."""
    count = len(block.bindings[-1].types)
    results = [terms.Variable(count - 1 - k, type) for k, type in enumerate(block.bindings[-1].types)]
    return list(block.results) == results
