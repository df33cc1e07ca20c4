"""Marshalling: Python's values as cells and other parts, and back, which programs in first-order form take and give.

A value of a type that does not recur is its parts, as the program has them (``interpreters/first_order/layouts.py``). A
cell is words of memory: the number of its variant, and a word for each part of its fields; of an array the address.
Machine code copies objects to cells and cells to objects, each once, however often it is met (``llvm/copying.py``). A
cell of an argument that comes back is the object that it was written for.

    List.Cons(1.0, List.Nil())   ->   1 | 1.0 | *    and, at *,    0

It takes what is just as its type says, and Python's numbers where they convert without a loss. Anything else is
converted, or refused with a message, by ``core/arguments.py``, and tried again.

Results become objects at once, all of them. Parts that are made when they are looked at would have to be found in the
memory of the call. So it would have to stay, with all that was made of it (else what is shared would be made twice), in
a circle of references that only the collector of garbage breaks. All of it takes 0.1 to 0.2 us a node.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.arguments import value_of
from ..core.data import value_class
from ..core.source import at_line
from ..core.types import ArrayType, Named, Scalar, TupleType, Type, dims, element
from ..interpreters.first_order.layouts import Layouts
from .llvm.copying import copying
from .llvm.objects import CODES, DIFFERS, FITS, STORED, WALK

Array = np.ndarray[Any, Any]
Class = type[Any]


@dataclass(eq=False)
class Kind:
    """How values of a type are written and read: the words that machine code reads, and what they say."""

    type: Type
    parts: Sequence[Type]  # the types of the parts of values
    words: Array
    items: tuple[Kind, ...] = ()  # of a tuple
    variants: list[tuple[Class, tuple[Kind, ...]]] = field(default_factory=list)  # their classes and fields
    boxed: bool = False  # values are cells
    kept: list[Any] = field(default_factory=list)  # what words have the addresses of

    def __post_init__(self) -> None:
        self.width, self.address = len(self.parts), int(self.words.ctypes.data)
        self.words[1] = self.width


class Kinds:
    """The kinds of the types of a program."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._known: dict[Type, Kind] = {}
        self._shapes: dict[ArrayType, int] = {}  # the words of their shapes
        self._absent: set[ArrayType] = set()  # the types of arrays that a value may have or not

    def of(self, type: Type) -> Kind:
        """The kind of a type, made when it is first asked for: a type may contain itself."""
        if type not in self._known:
            variants = len(type.declaration.variants) if isinstance(type, Named) else 0
            parts = self._layouts.parts(self._layouts.stored(type))
            kind = self._known[type] = Kind(type, parts, np.zeros(max(9, 4 + variants), np.int64))
            self._describe(kind, type)
        return self._known[type]

    def _describe(self, kind: Kind, type: Type) -> None:
        words, kept = kind.words, kind.kept
        match type:
            case Scalar():
                words[0], words[2:4], words[5] = CODES["scalar"], (id(type.dtype), id(type.dtype.type)), type.bytes
                words[4] = id(float) if type.kind == "float" else 0
                words[6:8] = (0, id(bool)) if type.kind == "bool" else (id(int), 0)
                words[8] = STORED[type.name if type.kind != "int" else "signed" if type.signed else "unsigned"]
            case ArrayType(scalar, axes):
                words[0], words[2:5] = CODES["array"], (id(scalar.dtype), len(axes), self._shape(type))
                words[5:7] = id(np.ndarray), scalar.bytes
            case TupleType(items):
                kind.items, words[0] = tuple(map(self.of, items)), CODES["tuple"]
                words[2] = self._variant(kept, tuple, kind.items, 0)
            case Named():
                kind.boxed = self._layouts.boxed(type)
                words[0], words[2] = CODES["boxed" if kind.boxed else "sum"], len(type.declaration.variants)
                start = int(len(type.declaration.variants) > 1)
                for number, variant in enumerate(type.declaration.variants):
                    cls = value_class(type.declaration, variant)
                    kind.variants.append((cls, tuple(map(self.of, type.fields(variant).values()))))
                    words[4 + number] = self._variant(kept, *kind.variants[-1], start)
                    start += _width(kind.variants[-1][1])
                if not kind.boxed:
                    absent = [(k, part) for k, part in enumerate(kind.parts) if isinstance(part, ArrayType)]
                    places = [word for k, part in absent for word in (k, self._shape(part))]
                    self._absent.update([part for _, part in absent])
                    words[3] = _kept(kept, [len(absent), *places])
            case _:
                kept.append(f"a compiled program gives no functions, and its result holds one of type {type}")
                words[0], words[2:4] = CODES["function"], (id(TypeError), id(kept[0]))

    def _variant(self, kept: list[Any], cls: Class, fields: Sequence[Kind], start: int) -> int:
        """The address of the words of a variant."""
        only = cls._of(()) if not fields and cls is not tuple else None
        kept += [cls, only]
        kinds = [each.address for each in fields]
        return _kept(kept, [id(cls), len(fields), start, id(only), _width(fields), *kinds])

    def _shape(self, type: ArrayType) -> int:
        following = sum([1 + len(other.dims) for other in self._shapes])
        return self._shapes.setdefault(type, following)

    def shapes(self, sizes: Mapping[str, int]) -> list[Array]:
        """The shapes of arrays in a call with these sizes, in words, and the zeros that these have the addresses of.

        Nothing, if there are no arrays.
        """
        if not self._shapes:
            return []
        words: list[int] = []
        zeros: list[Array] = []
        for type in self._shapes:
            shape = _shape(type, sizes)
            zeros += [np.zeros(shape, type.scalar.dtype)] if type in self._absent else []
            words += [zeros[-1].ctypes.data if type in self._absent else 0, *shape]
        return [np.array(words, np.int64), *zeros]


class Cells:
    """The cells of the arguments of one call, whose sizes these are; they stay as long as this does."""

    def __init__(self, kinds: Kinds, sizes: Mapping[str, int]) -> None:
        self._kinds, self._sizes, self._copying = kinds, sizes, copying()
        self._kept: list[Any] = kinds.shapes(sizes)
        walk = (ctypes.c_int64 * WALK)()
        walk[6] = self._kept[0].ctypes.data if self._kept else 0
        walk[8] = id(self._kept)
        self._walk = ctypes.addressof(walk)
        weakref.finalize(self, _release, self._copying.release, walk).atexit = False

    def parts(self, value: Any, type: Type, what: str) -> list[Any]:
        """The parts of an argument. TypeError, ValueError, beginning with ``what``, for one that does not fit."""
        kind = self._kinds.of(type)
        words = (ctypes.c_int64 * kind.width)()
        place = ctypes.addressof(words)
        result = self._copying.write(self._walk, kind.address, value, place)
        if result == DIFFERS:
            value = value_of(value, type, what, self._sizes)
            result = self._copying.write(self._walk, kind.address, value, place)
        if result == DIFFERS:  # nothing else is left
            raise TypeError(at_line(f"{what} holds a function, and a compiled program takes none"))
        if result != FITS:
            raise MemoryError(at_line(f"{what}: no memory for what it holds"))
        self._kept.append(value)
        return [self._part(type, place + 8 * k, value) for k, type in enumerate(kind.parts)]

    def _part(self, type: Type, place: int, value: Any) -> Any:
        """The part of a value in the word at a place: a number, an array, or the address of a cell."""
        if isinstance(type, Scalar):
            return _memory(place, type.dtype, ())[()]
        word = ctypes.c_int64.from_address(place).value
        return (
            _memory(word, type.scalar.dtype, _shape(type, self._sizes), value) if isinstance(type, ArrayType) else word
        )

    def value(self, type: Type, parts: Sequence[Any]) -> Any:
        """The value of a type with these parts, which a run has given. A cell that is met twice is one object."""
        return self._value(self._kinds.of(type), parts)

    def _value(self, kind: Kind, parts: Sequence[Any]) -> Any:
        if kind.boxed:
            try:
                return self._copying.read(self._walk, kind.address, int(parts[0]))
            except TypeError as error:  # it is a function
                raise TypeError(at_line(str(error))) from None
        if kind.items:
            return tuple(self._values(kind.items, parts))
        if not kind.variants:
            part = parts[0]
            return part if isinstance(part, np.ndarray | np.generic) else element(kind.type).dtype.type(part)
        number, first = (int(parts[0]), 1) if len(kind.variants) > 1 else (0, 0)
        first += sum([_width(fields) for _, fields in kind.variants[:number]])
        cls, fields = kind.variants[number]
        return cls._of(self._values(fields, parts[first:]))

    def _values(self, kinds: Sequence[Kind], parts: Sequence[Any]) -> list[Any]:
        values, first = [], 0
        for kind in kinds:
            values.append(self._value(kind, parts[first:]))
            first += kind.width
        return values


def _width(kinds: Sequence[Kind]) -> int:
    return sum([kind.width for kind in kinds])


def _kept(kept: list[Any], words: Sequence[int]) -> int:
    """The address of words, which are kept."""
    kept.append(np.array(words, np.int64))
    return int(kept[-1].ctypes.data)


def _shape(type: ArrayType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([max(0, dim.evaluate(sizes)) for dim in dims(type)])


def _memory(address: int, dtype: np.dtype[Any], shape: tuple[int, ...], owner: object = None) -> Array:
    """The elements at an address, in memory of an owner's."""
    size = dtype.itemsize * math.prod(shape)
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    memory.owner = owner
    return np.ndarray(shape, dtype, memory)


def _release(release: Callable[[int], None], walk: Any) -> None:
    release(ctypes.addressof(walk))
