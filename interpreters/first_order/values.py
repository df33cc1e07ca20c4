"""Python's values in cells and other parts, and back: what programs in first-order form take and give.

A value of a type that does not recur is its parts, as the program has them (``layouts.py``). A cell is words of memory:
the number of its variant, and a word for each part of its fields; of an array the address. Cells of arguments are
written here, from the outside in, each once, however often it is met; cells of results are read where the program has
left them. A cell of an argument that comes back is the object that it was written for.

Values may be deeper than Python's stack, so nothing here recurs over them.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.arguments import value_of
from ...core.data import value_class
from ...core.types import ArrayType, Named, Scalar, TupleType, Type, bool_, dims, element, f64, i64
from .layouts import Layouts

Array = np.ndarray[Any, Any]
Class = type[Any]

_FIRST = 256  # words of the first chunk of cells
_LARGEST = 1 << 20
_REGULAR: Mapping[str, tuple[type, ...]] = {
    "f64": (float, np.float64),
    "i64": (int, np.int64),
    "bool": (bool, np.bool_),
}


class _Irregular(Exception):
    """A value is not just what its type says, and has to be converted, or refused."""


@dataclass(eq=False)
class _Kind:
    """How values of a type are written and read: how many parts they have, and of what they are made."""

    type: Type
    width: int = 1
    classes: tuple[Class, ...] = ()  # of the numbers that are written as they are
    items: tuple[_Kind, ...] = ()  # of a tuple
    variants: list[tuple[Class, tuple[_Kind, ...]]] = field(default_factory=list)  # their classes and fields
    numbers: dict[Class, int] = field(default_factory=dict)  # of the variants, by their classes
    boxed: bool = False


class Kinds:
    """The kinds of the types of a program."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._known: dict[Type, _Kind] = {}

    def parts(self, kind: _Kind) -> Sequence[Type]:
        """The types of the parts of values of a kind."""
        return self._layouts.parts(self._layouts.stored(kind.type))

    def of(self, type: Type) -> _Kind:
        """The kind of a type, made when it is first asked for: a type may contain itself."""
        if type in self._known:
            return self._known[type]
        kind = self._known[type] = _Kind(type, len(self._layouts.parts(self._layouts.stored(type))))
        match type:
            case Scalar():
                kind.classes = _REGULAR.get(type.name, (type.dtype.type,))
            case TupleType(items):
                kind.items = tuple(map(self.of, items))
            case Named():
                kind.boxed = self._layouts.boxed(type)
                for number, variant in enumerate(type.declaration.variants):
                    cls = value_class(type.declaration, variant)
                    kind.variants.append((cls, tuple(map(self.of, type.fields(variant).values()))))
                    kind.numbers[cls] = number
        return kind


class Cells:
    """The cells of the arguments of one call, whose sizes these are; they stay as long as this does."""

    def __init__(self, kinds: Kinds, sizes: Mapping[str, int]) -> None:
        self._kinds, self.sizes = kinds, sizes
        self._kept: list[Any] = []  # chunks and arrays
        self._next = self._end = self._address = 0
        self._words: Any = None
        self._numbers: Any = None
        self._addresses: dict[int, int] = {}  # of values, by their identities
        self.values: dict[int, Any] = {}  # and the values, by the addresses
        self._waiting: list[tuple[Any, _Kind, Any, Any, int]] = []  # cells that have room and no content yet

    def parts(self, value: Any, type: Type, what: str) -> list[Any]:
        """The parts of an argument. TypeError, ValueError, beginning with ``what``, for one that does not fit."""
        kind = self._kinds.of(type)
        try:
            return self._written(value, kind)
        except _Irregular:
            self._waiting.clear()
            self._addresses.clear()
            value = value_of(value, type, what, self.sizes)
            self._kept.append(value)  # the identities of its parts are known by now
            return self._written(value, kind)

    def _written(self, value: Any, kind: _Kind) -> list[Any]:
        parts = self._parts(value, kind)
        while self._waiting:
            value, kind, words, numbers, place = self._waiting.pop()
            number = kind.numbers.get(value.__class__)
            if number is None:
                raise _Irregular
            words[place] = number
            for each, x in zip(kind.variants[number][1], value._values, strict=True):
                place += 1
                if each.type is f64:
                    if x.__class__ not in each.classes:
                        raise _Irregular
                    numbers[place] = x
                elif each.boxed:
                    words[place] = self._cell(x, each)
                else:
                    place -= 1
                    for part in self._parts(x, each):
                        place += 1
                        self._store(part, words, numbers, place)
        return parts

    def _parts(self, value: Any, kind: _Kind) -> list[Any]:
        """The parts of a value; what is a cell is written later."""
        if kind.boxed:
            return [self._cell(value, kind)]
        if kind.classes:
            if value.__class__ not in kind.classes:
                raise _Irregular
            return [value]
        if isinstance(kind.type, ArrayType):
            return [self._array(value, kind.type)]
        if kind.items:
            if value.__class__ is not tuple or len(value) != len(kind.items):
                raise _Irregular
            return [part for x, item in zip(value, kind.items, strict=True) for part in self._parts(x, item)]
        number = kind.numbers.get(value.__class__)
        if number is None:
            raise _Irregular
        own = [
            part
            for x, each in zip(value._values, kind.variants[number][1], strict=True)
            for part in self._parts(x, each)
        ]
        if len(kind.variants) == 1:
            return own
        made: list[Any] = [number]
        for k, (_, others) in enumerate(kind.variants):
            made += own if k == number else [part for each in others for part in self._nothing(each)]
        return made

    def _nothing(self, kind: _Kind) -> list[Any]:
        """What stands for the parts of a value that is not there: zeros."""
        if isinstance(kind.type, Scalar | ArrayType):
            shape = [dim.evaluate(self.sizes) for dim in dims(kind.type)]
            return [np.zeros(shape, element(kind.type).dtype)[()]]
        inner = kind.items or [each for _, fields in kind.variants for each in fields]
        tag = [0] if len(kind.variants) > 1 else []
        return [*tag, *[part for each in inner for part in self._nothing(each)]]

    def _array(self, value: Any, type: ArrayType) -> Array:
        fits = value.__class__ is np.ndarray and value.dtype == type.scalar.dtype and value.ndim == len(type.dims)
        if not fits or value.shape != tuple([dim.evaluate(self.sizes) for dim in type.dims]):
            raise _Irregular
        array = np.ascontiguousarray(value)
        self._kept.append(array)
        return array

    def _cell(self, value: Any, kind: _Kind) -> int:
        """The address of the cell of a value, which is written later if it has none yet."""
        known = self._addresses.get(id(value))
        if known is not None:
            return known
        number = kind.numbers.get(value.__class__)
        if number is None:
            raise _Irregular
        count = 1 + sum([each.width for each in kind.variants[number][1]])
        start = self._next
        self._next += count
        if self._next > self._end:
            self._chunk(count)
            start, self._next = 0, count
        address = self._address + 8 * start
        self._addresses[id(value)] = address
        self.values[address] = value
        self._waiting.append((value, kind, self._words, self._numbers, start))
        return address

    def _store(self, part: Any, words: Any, numbers: Any, place: int) -> None:
        if isinstance(part, np.ndarray):
            words[place] = part.ctypes.data
        elif isinstance(part, float):
            numbers[place] = part
        elif isinstance(part, np.floating):
            words[place] = int(part.view(f"i{part.itemsize}"))
        else:
            words[place] = int(part)

    def _chunk(self, least: int) -> None:
        """Take a new chunk, twice as large as the last one."""
        size = max(least, min(_LARGEST, 2 * self._end or _FIRST))
        chunk = np.empty(size, np.int64)
        self._kept.append(chunk)
        self._words, self._numbers, self._end = chunk.data, chunk.view(np.float64).data, size
        self._address = chunk.ctypes.data


class Region:
    """The cells that a run has left in chunks of memory, each its first address and its bytes."""

    def __init__(self, kinds: Kinds, cells: Cells, chunks: Sequence[tuple[int, int]]) -> None:
        self._kinds, self._known, self._sizes = kinds, dict(cells.values), cells.sizes
        ordered = sorted(chunks)
        self._starts = [start for start, _ in ordered]
        self._views = [(start, *_views(start, size)) for start, size in ordered]
        self._start = self._end = 0  # of the chunk that was read last
        self._words: Any = None
        self._numbers: Any = None

    def value(self, type: Type, parts: Sequence[Any]) -> Any:
        """The value of a type with these parts. A cell that is met twice is one object."""
        done: list[Any] = []
        todo: list[tuple[Any, Any, Any]] = [(self._kinds.of(type), parts, None)]
        known = self._known
        while todo:
            kind, given, cls = todo.pop()
            if cls is not None:  # the fields of a value are done
                first = len(done) - kind
                fields = done[first:]
                del done[first:]
                made = tuple(fields) if cls is tuple else cls._of(fields)
                if given is not None:
                    known[given] = made
                done.append(made)
                continue
            address = None
            if kind.boxed:
                address = int(given[0])
                found = known.get(address)
                if found.__class__ in kind.numbers:  # cells without fields may be one, of several types
                    done.append(found)
                    continue
                number, given = self._opened(address, kind)
                cls, fields = kind.variants[number]
            elif kind.items:
                cls, fields = tuple, kind.items
            elif kind.variants:
                number, given = _variant(kind, given)
                cls, fields = kind.variants[number]
            else:
                done.append(self._leaf(kind.type, given[0]))
                continue
            todo.append((len(fields), address, cls))
            last = len(given)
            for each in reversed(fields):
                todo.append((each, given[last - each.width : last], None))
                last -= each.width
        return done[0]

    def _opened(self, address: int, kind: _Kind) -> tuple[int, list[Any]]:
        """Which variant a cell is of, and the parts of its fields."""
        if not self._start <= address < self._end:
            place = bisect_right(self._starts, address) - 1
            self._start, self._words, self._numbers = self._views[place]
            self._end = self._start + 8 * len(self._words)
        place = (address - self._start) >> 3
        number = self._words[place]
        parts: list[Any] = []
        for each in kind.variants[number][1]:
            if each.type is f64:
                place += 1
                parts.append(np.float64(self._numbers[place]))
            elif each.type is i64:
                place += 1
                parts.append(np.int64(self._words[place]))
            elif each.boxed:
                place += 1
                parts.append(self._words[place])
            else:
                for type in self._kinds.parts(each):
                    place += 1
                    parts.append(self._part(type, place))
        return number, parts

    def _part(self, type: Type, place: int) -> Any:
        """A part in a word of a cell: a number, the address of a cell, or an array."""
        word = self._words[place]
        if isinstance(type, Named) or type is i64:
            return word
        if isinstance(type, ArrayType):
            shape = tuple([max(0, dim.evaluate(self._sizes)) for dim in dims(type)])
            return _memory(word, type.scalar.dtype, shape).copy()
        if type is f64:
            return self._numbers[place]
        bits = np.int64(word).tobytes()[: 1 if type is bool_ else element(type).bytes]
        return np.frombuffer(bits, element(type).dtype)[0]

    def _leaf(self, type: Type, part: Any) -> Any:
        return part if isinstance(part, np.ndarray | np.generic) else element(type).dtype.type(part)


def _variant(kind: _Kind, parts: Sequence[Any]) -> tuple[int, Sequence[Any]]:
    """Which variant a value is of, and the parts of its fields."""
    if len(kind.variants) == 1:
        return 0, parts
    number, first = int(parts[0]), 1
    widths = [sum([each.width for each in fields]) for _, fields in kind.variants]
    first += sum(widths[:number])
    return number, parts[first : first + widths[number]]


def _views(start: int, size: int) -> tuple[Any, Any]:
    """The words of a chunk as integers and as numbers."""
    words = _memory(start, np.dtype(np.int64), (size // 8,))
    return words.data, words.view(np.float64).data


def _memory(address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The elements at an address."""
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memory)
