"""The types of terms: scalars, regular arrays of scalars, and accumulators.

A scalar type is a row of one table; a new one is an addition here. Arrays are regular, hold scalars, and carry
one dim an axis. An accumulator is the write-only view of an array (or of one scalar) to which statements add.

>>> print(ArrayType(f64, (Dim.of("n"), Dim.of(3))))
f64[n, 3]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .dims import Dim


@dataclass(frozen=True)
class Scalar:
    """A scalar type: its name, its kind ("float", "int" or "bool") and its width in bits."""

    name: str
    kind: str
    bits: int

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the same values."""
        return np.dtype({"float": "float", "int": "int", "bool": "bool"}[self.kind] + self._width())

    def _width(self) -> str:
        return "" if self.kind == "bool" else str(self.bits)


f32 = Scalar("f32", "float", 32)
f64 = Scalar("f64", "float", 64)
i32 = Scalar("i32", "int", 32)
i64 = Scalar("i64", "int", 64)
bool_ = Scalar("bool", "bool", 8)

SCALARS = {scalar.name: scalar for scalar in (f32, f64, i32, i64, bool_)}


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


Type = Scalar | ArrayType | Accumulator


def element(type: Type) -> Scalar:
    """The scalar type of a scalar, of an array's elements, or of what an accumulator adds up."""
    if isinstance(type, Accumulator):
        return element(type.of)
    return type.scalar if isinstance(type, ArrayType) else type


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
    return not isinstance(type, Accumulator) and element(type).kind == "float"


def scalar_of(dtype: np.dtype[Any]) -> Scalar | None:
    """The row of the table with this NumPy type, or None."""
    for scalar in SCALARS.values():
        if scalar.dtype == dtype:
            return scalar
    return None
