"""Dual types: which parts of a function, a tuple or a value of a declared type carry tangents, and what it is then.

A number that moves, as a part of such a value, is the pair of itself and its tangent. The rest is as before, part by
part, as in the first stage of the paper: ``D[f64] = (f64, f64)``, ``D[(s, t)] = (D[s], D[t])``,
``D[s -> t] = D[s] -> D[t]``, and a declared type has its fields so.

    (f64, i64) -> f64                     ((f64, f64), i64) -> (f64, f64)
    List[f64]                             List[(f64, f64)]

Not everything moves. A *form* is a type with a cell for each number in it, which says whether that one does; of a
declared type there is one cell for all numbers inside, so that a list is dual or it is not. Where a value goes from
one place to another as it is, both places have one form: their cells are united, as in binding-time analysis by
unification (Henglein 1991), and nothing is ever converted on its way. A number by itself needs no such agreement: it
may get a tangent of zero. (Smeding and Vákár, Parallel dual-numbers reverse AD, 2025, sections 5.2 and 11.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any

from ..core.types import Declaration, FunctionType, Itself, Named, TupleType, Type, is_data, is_float, reached


def is_structured(type: Type) -> bool:
    """Whether values of a type are functions, tuples or of declared types; the function that a rule has is none."""
    return isinstance(type, TupleType | FunctionType | Named) and not isinstance(type, Itself)


@dataclass(eq=False)
class Progress:
    """Of an analysis: whether a cell has changed in this round, and whether all is known and none may change."""

    changed: bool = False
    settled: bool = False
    forms: int = 0  # how many there are


class Cell:
    """Whether a number moves; united cells are one."""

    __slots__ = ("_active", "_parent", "_progress")

    def __init__(self, progress: Progress, active: bool) -> None:
        self._progress, self._active = progress, active
        self._parent: Cell | None = None

    def _root(self) -> Cell:
        root = self
        while root._parent is not None:
            root = root._parent
        if root is not self:
            self._parent = root
        return root

    @property
    def active(self) -> bool:
        return self._root()._active

    def rise(self) -> None:
        """It moves."""
        root = self._root()
        if not root._active:
            assert not root._progress.settled, "a number moves that was found to be constant"
            root._active = root._progress.changed = True

    def unite(self, other: Cell) -> None:
        """If one moves, so does the other."""
        mine, theirs = self._root(), other._root()
        if mine is not theirs:
            if theirs._active:
                mine.rise()
            elif mine._active:
                theirs.rise()
            theirs._parent = mine


@dataclass(frozen=True, eq=False)
class Form:
    """A type with its cells. It is true if anything moves; ``|`` unites two."""

    type: Type
    cells: tuple[Cell, ...]

    @staticmethod
    def of(type: Type, progress: Progress, active: bool = False) -> Form:
        """A form of its own."""
        progress.forms += 1
        return Form(type, tuple([Cell(progress, active) for _ in range(cell_count(type))]))

    def __bool__(self) -> bool:
        return any([cell.active for cell in self.cells])

    def __or__(self, other: Form) -> Form:
        for mine, theirs in zip(self.cells, other.cells, strict=True):
            mine.unite(theirs)
        return self

    @property
    def state(self) -> Any:
        """What activity analysis says of it: of a number or an array, a truth value."""
        return bool(self) if is_data(self.type) else self

    def take(self, state: Any) -> None:
        """A value of that state comes to this place."""
        if isinstance(state, Form):
            self | state
        elif state and self.cells:
            self.cells[0].rise()

    # Parts

    @cached_property
    def items(self) -> list[Form]:
        """Of a tuple."""
        assert isinstance(self.type, TupleType)
        return self._split(self.type.items)

    @cached_property
    def parameters(self) -> list[Form]:
        """Of a function."""
        assert isinstance(self.type, FunctionType)
        return self._split((*self.type.parameters, *self.type.results))[: len(self.type.parameters)]

    @cached_property
    def results(self) -> list[Form]:
        """Of a function."""
        assert isinstance(self.type, FunctionType)
        return self._split((*self.type.parameters, *self.type.results))[len(self.type.parameters) :]

    def fields(self, variant: str) -> list[Form]:
        """Of a value of a declared type: all numbers in them have its one cell."""
        assert isinstance(self.type, Named)
        return [Form(type, self.cells * cell_count(type)) for type in self.type.fields(variant).values()]

    def _split(self, types: tuple[Type, ...]) -> list[Form]:
        cells = iter(self.cells)
        return [Form(type, tuple([next(cells) for _ in range(cell_count(type))])) for type in types]

    # What it says

    @property
    def dual(self) -> Type:
        """The type of such values."""
        match self.type:
            case TupleType():
                return TupleType(tuple([item.dual for item in self.items]))
            case FunctionType():
                parts = [tuple([part.dual for part in parts]) for parts in (self.parameters, self.results)]
                return self.type.__class__(*parts)
        return dual_type(self.type) if self else self.type


def cell_count(type: Type) -> int:
    """How many cells a form has: one a floating number or array, one a declared type with such inside."""
    match type:
        case TupleType(items):
            return sum(map(cell_count, items))
        case FunctionType(parameters, results):
            return sum(map(cell_count, (*parameters, *results)))
        case Named(declaration, arguments):
            return int(_declares_floating(declaration) or any(map(cell_count, arguments)))
    return int(is_float(type))


def dual_type(type: Type) -> Type:
    """The type of dual numbers for a type, all of whose numbers move."""
    match type:
        case TupleType(items):
            return TupleType(tuple(map(dual_type, items)))
        case FunctionType(parameters, results):
            return type.__class__(tuple(map(dual_type, parameters)), tuple(map(dual_type, results)))
        case Named(declaration, arguments):
            return Named(dual_declaration(declaration), tuple(map(dual_type, arguments)))
    return TupleType((type, type)) if is_float(type) else type


# Declarations


class DualDeclaration(Declaration):
    """The declaration of dual numbers in the place of the floating numbers of another."""

    def __init__(self, of: Declaration) -> None:
        super().__init__(f"Dual{of.name}", of.parameters)
        self.of = of

    def __reduce__(self) -> Any:
        """By reference, too."""
        return dual_declaration, (self.of,)


_DUALS = "a dual"
_making = RLock()


def dual_declaration(declaration: Declaration) -> Declaration:
    """The declaration with dual numbers in its fields: itself, where all numbers in it are type arguments.

    There is one for each declaration, as long as that lives.
    """
    if not _declares_floating(declaration):
        return declaration
    with _making:
        found = declaration.derived.get(_DUALS)
        if found is None:
            found = declaration.derived[_DUALS] = DualDeclaration(declaration)
            for variant, fields in declaration.variants.items():
                found.variants[variant] = {name: dual_type(type) for name, type in fields.items()}
    return found


def _declares_floating(declaration: Declaration) -> bool:
    """Whether floating numbers stand in the fields of a declaration, or in those of one that it mentions."""
    return any(map(is_float, reached(declaration)))
