"""The types of terms: scalars, regular arrays of scalars, accumulators, and those of the higher-order fragment.

A scalar type is a row of one table; a new one is an addition here. Arrays are regular, hold scalars, and carry
one dim an axis. An accumulator is the write-only view of an array (or of one scalar) to which statements add.
Tuples, functions and nominal types (variants, recursive and polymorphic ones, records in these) are first-class values
of programs that evaluate runs; array programs that are compiled hold scalars and arrays only.

>>> print(ArrayType(f64, (Dim.of("n"), Dim.of(3))))
f64[n, 3]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .dims import Dim


@dataclass(frozen=True, eq=False)
class Scalar:
    """A scalar type: its name, its kind ("float", "int" or "bool"), its width in bits, and whether it has a sign.

    A row of the table ``SCALARS`` and equal to itself alone: types are compared for every operation of a program.
    """

    name: str
    kind: str
    bits: int
    signed: bool = True

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def bytes(self) -> int:
        """What it takes in memory, which is also its alignment."""
        return self.bits // 8

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the same values."""
        return np.dtype("bool" if self.kind == "bool" else f"{'' if self.signed else 'u'}{self.kind}{self.bits}")

    @cached_property
    def least(self) -> int:
        """The smallest number of an integer type."""
        return int(np.iinfo(self.dtype).min)

    @cached_property
    def most(self) -> int:
        """The largest number of an integer type."""
        return int(np.iinfo(self.dtype).max)

    @property
    def spelling(self) -> str:
        """Its kind as primitives spell it: integers without a sign are a kind of their own."""
        return self.kind if self.signed else "unsigned"

    def __reduce__(self) -> tuple[Callable[[str], Scalar], tuple[str]]:
        return _row, (self.name,)


def _row(name: str) -> Scalar:
    return SCALARS[name]


f32 = Scalar("f32", "float", 32)
f64 = Scalar("f64", "float", 64)
i8 = Scalar("i8", "int", 8)
i16 = Scalar("i16", "int", 16)
i32 = Scalar("i32", "int", 32)
i64 = Scalar("i64", "int", 64)
u8 = Scalar("u8", "int", 8, signed=False)
u16 = Scalar("u16", "int", 16, signed=False)
u32 = Scalar("u32", "int", 32, signed=False)
u64 = Scalar("u64", "int", 64, signed=False)
bool_ = Scalar("bool", "bool", 8)

MOST_AXES = 64  # of an array of NumPy's
SCALARS = {scalar.name: scalar for scalar in (f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_)}


@dataclass(frozen=True)
class ArrayType:
    """A regular array of scalars, one dim an axis; at least one axis."""

    scalar: Scalar
    dims: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.scalar}[{', '.join(map(str, self.dims))}]"

    __repr__ = __str__


@dataclass(frozen=True)
class Accumulator:
    """The write-only view of a scalar or array: a commutative sum of updates."""

    of: Scalar | ArrayType

    def __str__(self) -> str:
        return f"accumulator({self.of})"

    __repr__ = __str__


@dataclass(frozen=True)
class TupleType:
    """A tuple as one value: an element of a list, a type argument."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))}{',' if len(self.items) == 1 else ''})"

    __repr__ = __str__


@dataclass(frozen=True)
class FunctionType:
    """A function as a value: the types of its parameters and of its results."""

    parameters: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        results = str(self.results[0]) if len(self.results) == 1 else f"({', '.join(map(str, self.results))})"
        return f"({', '.join(map(str, self.parameters))}) -> {results}"

    __repr__ = __str__


@dataclass(frozen=True)
class Itself(FunctionType):
    """The type of the function of a custom operation, which each of its rules has as first parameter."""


@dataclass(frozen=True)
class TypeVariable:
    """A parameter of a declaration; values have types without them."""

    name: str

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(eq=False)
class Declaration:
    """A nominal type: its parameters and, by the names of its variants, the types of their fields.

    A record has one variant. Variants may mention the declaration itself, so they are filled in after it is made.
    ``classes`` are the Python classes of values, by variant, and ``owner`` is the class that declares the type.
    ``derived`` are the declarations that are made of it, by what they are.
    """

    name: str
    parameters: tuple[TypeVariable, ...] = ()
    variants: dict[str, dict[str, Type]] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)
    owner: type | None = None
    derived: dict[object, Declaration] = field(default_factory=dict)

    @property
    def field_types(self) -> list[Type]:
        """The types of all fields of all variants."""
        return [type for fields in self.variants.values() for type in fields.values()]

    @cached_property
    def is_recursive(self) -> bool:
        """Whether a value may hold others of this type, directly or through other declared types."""
        return self in declarations(*self.field_types)

    @cached_property
    def is_record(self) -> bool:
        """Whether values are structures: there is one variant, with a class, and it does not contain itself."""
        return self.owner is not None and len(self.variants) == 1 and not self.is_recursive

    def __reduce__(self) -> Any:
        """By reference to the class that declares it: a copy would be another type."""
        if self.owner is None:
            return super().__reduce__()
        return operator.methodcaller("declared"), (self.owner,)

    def __repr__(self) -> str:
        return f"<declaration {self.name}>"


@dataclass(frozen=True)
class Named:
    """A declared type with its type arguments. Two are equal when they have one declaration."""

    declaration: Declaration
    arguments: tuple[Type, ...] = ()

    def fields(self, variant: str) -> dict[str, Type]:
        """The fields of a variant, with the type arguments in place; KeyError when there is no such variant."""
        bound = dict(zip(self.declaration.parameters, self.arguments, strict=True))
        return {name: instantiated(type, bound) for name, type in self.declaration.variants[variant].items()}

    def __str__(self) -> str:
        name = self.declaration.name
        return f"{name}[{', '.join(map(str, self.arguments))}]" if self.arguments else name

    __repr__ = __str__


Type = Scalar | ArrayType | Accumulator | TupleType | FunctionType | TypeVariable | Named

# A variant of cells: their tags, and the types of the fields; None: the cell is the only field itself.
Opened = tuple[tuple[int, ...], tuple[Type, ...] | None]


def map_type(type: Type, leaf: Callable[[Type], Type]) -> Type:
    """The type with a function applied to its scalars, arrays, accumulators and type variables."""
    match type:
        case TupleType(items):
            return TupleType(tuple([map_type(item, leaf) for item in items]))
        case FunctionType(parameters, results):
            inner = [tuple([map_type(part, leaf) for part in parts]) for parts in (parameters, results)]
            return type.__class__(*inner)
        case Named(declaration, arguments):
            return Named(declaration, tuple([map_type(argument, leaf) for argument in arguments]))
    return leaf(type)


def map_dims(type: Type, dim: Callable[[Dim], Dim]) -> Type:
    """The type with a function applied to every dim in it."""

    def leaf(type: Type) -> Type:
        match type:
            case ArrayType(scalar, sizes):
                return ArrayType(scalar, tuple([dim(size) for size in sizes]))
            case Accumulator(ArrayType(scalar, sizes)):
                return Accumulator(ArrayType(scalar, tuple([dim(size) for size in sizes])))
        return type

    return map_type(type, leaf)


def all_dims(type: Type) -> list[Dim]:
    """Every dim in a type, at all depths."""
    found: list[Dim] = []

    def note(dim: Dim) -> Dim:
        found.append(dim)
        return dim

    map_dims(type, note)
    return found


def instantiated(type: Type, bound: Mapping[TypeVariable, Type]) -> Type:
    """The type with type variables replaced."""
    return map_type(type, lambda part: bound.get(part, part) if isinstance(part, TypeVariable) else part)


def declarations(*types: Type) -> set[Declaration]:
    """The declared types that types are made with, those of fields included."""
    return {part.declaration for type in types for part in reached(type) if isinstance(part, Named)}


def without_values(found: Iterable[Declaration]) -> list[Declaration]:
    """Those of some declared types, all fields of which are known, that have no finite value.

    A value of such a type has a field of a type that has none either. Lists may be empty, and functions are not run.
    """

    def has(type: Type) -> bool:
        match type:
            case Named(declaration):
                return declaration in inhabited
            case TupleType(items):
                return all(map(has, items))
        return True

    waiting, inhabited = list(found), set[Declaration]()
    while new := {each for each in waiting if any(all(map(has, part.values())) for part in each.variants.values())}:
        inhabited |= new
        waiting = [each for each in waiting if each not in new]
    return [each for each in waiting if each not in inhabited]


def record_of(type: Type) -> tuple[Any, dict[str, Type]] | None:
    """The class and the fields of a record: a declared type with one variant, which does not contain itself.

    None for any other type. A record is a structure, as a tuple is; a value of another declared type is one value.
    """
    if isinstance(type, Named) and type.declaration.is_record:
        ((variant, cls),) = type.declaration.classes.items()
        return cls, type.fields(variant)
    return None


def is_data(type: Type) -> bool:
    """Whether values of a type are scalars or arrays: what array programs compute with."""
    return isinstance(type, Scalar | ArrayType)


def accumulator_of(type: Type) -> Accumulator:
    """The type of an accumulator for values of a type; TypeError for what cannot be added up."""
    if not isinstance(type, Scalar | ArrayType):
        raise TypeError(f"values of type {type} are not added up: scalars and arrays are")
    return Accumulator(type)


def element(type: Type) -> Scalar:
    """The scalar type of a scalar, of an array's elements, or of what an accumulator adds up; TypeError for others."""
    match type:
        case Scalar():
            return type
        case ArrayType(scalar):
            return scalar
        case Accumulator(of):
            return element(of)
    raise TypeError(f"a scalar or an array is needed here, not a value of type {type}")


def dims(type: Type) -> tuple[Dim, ...]:
    """The dims of an array type (or of an accumulator's array); none for a scalar."""
    if isinstance(type, Accumulator):
        return dims(type.of)
    return type.dims if isinstance(type, ArrayType) else ()


def rank(type: Type) -> int:
    return len(dims(type))


def array_of(scalar: Scalar, sizes: tuple[Dim, ...]) -> Scalar | ArrayType:
    """The array type with these dims, which is the scalar itself when there are none."""
    return ArrayType(scalar, sizes) if sizes else scalar


def is_float(type: Type) -> bool:
    """Whether values of this type have tangents: floating scalars and arrays of them."""
    return is_data(type) and element(type).kind == "float"


def reached(start: Type | Declaration, functions: bool = True) -> list[Type]:
    """The types that are in a type or declaration, and in the fields of those that it mentions, all as declared.

    Without ``functions`` those are left out that functions take and give.
    """
    seen, found = set[Declaration](), list[Type]()
    todo: list[Type | Declaration] = [start]
    while todo:
        part = todo.pop()
        if isinstance(part, Declaration):
            if part not in seen:
                seen.add(part)
                todo += [type for fields in part.variants.values() for type in fields.values()][::-1]
            continue
        found.append(part)
        match part:
            case TupleType(items):
                todo += items
            case FunctionType(parameters, results):
                todo += [*parameters, *results] if functions else []
            case Named(declaration, arguments):
                todo += [*arguments, declaration]
    return found


def holds_floating(type: Type) -> bool:
    """Whether values of a type have tangents: floating ones, tuples and data with such inside, but no functions."""
    return any(map(is_float, reached(type, functions=False)))


def scalar_of(dtype: np.dtype[Any]) -> Scalar | None:
    """The row of the table with this NumPy type, or None."""
    for scalar in SCALARS.values():
        if scalar.dtype == dtype:
            return scalar
    return None
