"""Dependence tests of updates: which arrays a scatter may read while they are overwritten.

The writes of a scatter are made in any order. One of them does no harm to an array that others read, if each read is

* at the place which the same iteration writes, where that comes first: ``a[i] = f(a[i])``;
* or at a place that no iteration writes: along some axis, its index and all those written are apart.

Apart are indices whose difference, a sum of loop variables and sizes, is never 0: it is always above or below, or
all its terms but a number have a common factor that the number does not have.

    scatter a over i < n - k - 1, j < n - k - 1:            row k is read, and rows k + 1 + i are written
      a[k + 1 + i, k + 1 + j] -= c[i] * a[k, k + 1 + j]
    scatter a over i < n // 2: a[1 + 2 * i] = a[2 * i]      even places are read, odd ones written

(Banerjee's test and that of the greatest common divisor: Allen & Kennedy, Optimizing Compilers for Modern
Architectures, 2001, chapter 3.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from math import gcd

from ..core.dims import Dim, DimAtom, Name, Opaque, arithmetic
from ..core.ranges import never_negative
from ..core.terms import Atom, Block, Literal, Operation, Size, Variable
from ..core.types import ArrayType, Type, i64
from .simplify.implied import few_of_each

Place = Sequence[Dim | None]

_MODULAR = ("add", "subtract", "negative", "multiply")


@dataclass
class _Scatter:
    """A scatter that is walked through: how many variables are around its element, and what that reads of them."""

    outside: int
    reads: list[tuple[int, Place]] = field(default_factory=list)  # by level; a whole array at no place


class Unharmed:
    """The arrays that scatters read without harm, by the operation itself.

    >>> import adze as az
    >>> @az.program
    ... def program(x: az.Array[az.f64, "n"]):
    ...     x = az.update(x, slice(1, -1, 2), 0.5 * (x[:-2:2] + x[2::2]))
    ...     return az.update(x, slice(1, -1), 0.5 * (x[:-2] + x[2:]))
    >>> block = az.simplify(program)
    >>> unharmed = Unharmed(block)
    >>> [len(unharmed.of(operation)) for operation in block.bindings if operation.op == "scatter"]
    [1, 0]
    """

    def __init__(self, block: Block) -> None:
        self._env: list[Dim | None] = []
        self._numbers = count(-1, -1)  # sizes that the run decides have others
        self._extents: dict[DimAtom, Dim] = {}  # of loop variables
        self._around: list[_Scatter] = []
        self._found: dict[int, frozenset[int]] = {}
        self._block(block)

    def of(self, operation: Operation) -> frozenset[int]:
        """The arrays, as variables where a scatter stands, that its element reads and its writes do no harm to."""
        return self._found.get(id(operation), frozenset())

    # The walk

    def _block(self, block: Block, extents: Sequence[Dim | None] = ()) -> None:
        """Walk through a block whose first parameters are loop variables with these extents."""
        depth = len(self._env)
        self._enter(block, extents)
        del self._env[depth:]

    def _enter(self, block: Block, extents: Sequence[Dim | None]) -> Place:
        """Walk through a block and stay at its end; its results."""
        variables = [self._unknown(type) for type in block.binders]
        self._env.extend(variables)
        for variable, extent in zip(variables, extents, strict=False):
            if variable is not None:
                known = extent if extent is not None and self._exact(extent) else self._integer()
                self._extents.update(dict.fromkeys(variable.atoms(), known))
        for operation in block.bindings:
            self._operation(operation)
        self._read_whole(block.results)
        return [self._dim(atom) for atom in block.results]

    def _unknown(self, type: Type) -> Dim | None:
        return self._integer() if type is i64 else None

    def _integer(self) -> Dim:
        return Dim.atom(Opaque(next(self._numbers)))

    def _dim(self, atom: Atom) -> Dim | None:
        match atom:
            case Variable(index):
                return self._env[len(self._env) - 1 - index]
            case Literal() if atom.type is i64:
                return Dim.of(int(atom.value))
            case Size(dim):
                return dim
        return None

    def _read(self, atom: Atom, place: Place) -> None:
        if isinstance(atom, Variable) and isinstance(atom.type, ArrayType):
            level = len(self._env) - 1 - atom.index
            for scatter in self._around:
                if level < scatter.outside:
                    scatter.reads.append((level, place))

    def _read_whole(self, atoms: Sequence[Atom]) -> None:
        for atom in atoms:
            self._read(atom, ())

    def _operation(self, op: Operation) -> None:
        made: Dim | None = None
        if op.op == "index":
            self._read(op.args[0], [self._dim(atom) for atom in op.args[1:]])
        elif op.op != "size":
            self._read_whole(op.args)
        if op.op == "primitive":
            made = self._primitive(op)
        elif op.op == "scatter":
            self._scatter(op)
        else:
            row = op.row
            extents = [self._dim(atom) for atom in op.args[row.extents(op.static)]] if row.extents is not None else []
            for k, block in enumerate(op.blocks):
                self._block(block, extents if k == 0 else ())
        self._env.extend([made or self._unknown(type) for type in op.types])

    def _primitive(self, op: Operation) -> Dim | None:
        """An integer as a sum of what is known, which may have wrapped around."""
        name, operands = op.static[0].name, [self._dim(arg) for arg in op.args]
        if op.types != (i64,):
            return None
        exact = all(operand is not None and self._exact(operand) for operand in operands)
        return arithmetic(name, operands) if name in _MODULAR or exact else None

    def _exact(self, dim: Dim) -> bool:
        """Whether a sum has not wrapped around: one of loop variables, sizes and small numbers, or one integer."""
        alone = len(dim.terms) == 1 and len(dim.terms[0][0]) == dim.terms[0][1] == 1
        return alone or (few_of_each(dim) and all(map(self._small, dim.atoms())))

    def _small(self, atom: DimAtom) -> bool:
        return isinstance(atom, Name) or atom in self._extents

    # Dependences

    def _scatter(self, op: Operation) -> None:
        element, count = op.blocks[0], op.static[1]
        scatter, first = _Scatter(len(self._env)), next(self._numbers)
        self._around.append(scatter)
        results = self._enter(element, [self._dim(atom) for atom in op.args[:count]])
        self._around.pop()
        del self._env[scatter.outside :]
        written = results[: len(results) - (len(op.args) - count)]
        elsewhere = [None if index is None else self._renamed(index, first) for index in written]
        harmed = {level for level, place in scatter.reads if not self._harmless(place, written, elsewhere)}
        unharmed = frozenset([len(self._env) - 1 - level for level, _ in scatter.reads if level not in harmed])
        self._found[id(op)] = self._found.get(id(op), unharmed) & unharmed

    def _harmless(self, place: Place, written: Place, elsewhere: Place) -> bool:
        """Whether a read does not meet a write, but that of its own iteration."""
        if None not in written and list(place[: len(written)]) == list(written):
            return True
        return any(self._apart(a, b) for a, b in zip(place, elsewhere, strict=False) if a is not None and b is not None)

    def _renamed(self, dim: Dim, first: int) -> Dim:
        """A dim in another iteration, which has values of its own from some number on."""

        def other(atom: DimAtom) -> Dim | None:
            if not isinstance(atom, Opaque) or atom.number > first:
                return None
            if atom not in names:
                names[atom] = Opaque(next(self._numbers))
                if atom in self._extents:
                    self._extents[names[atom]] = self._extents[atom]
            return Dim.atom(names[atom])

        names: dict[Opaque, Opaque] = {}
        return dim.substitute(other)

    def _apart(self, a: Dim, b: Dim) -> bool:
        """Whether two integers are never equal."""
        difference = a - b
        if not self._bounded(difference):
            return False
        rest = sum([c for atoms, c in difference.terms if not atoms])
        factor = gcd(*[c for atoms, c in difference.terms if atoms])
        if rest % factor if factor else rest:
            return True
        extents = self._extents.get
        return never_negative(difference - 1, extents) or never_negative(-difference - 1, extents)

    def _bounded(self, dim: Dim) -> bool:
        """Whether a difference that is not 0 is not 0 in the machine's integers: all but one in it are small."""
        large = [c for atoms, c in dim.terms if not all(map(self._small, Dim({atoms: 1}).atoms()))]
        return few_of_each(dim) and len(large) <= 1 and all(abs(c) == 1 for c in large)
