"""Calls of compiled programs: from a call's arguments to its results, through the frames of ``frames.py``.

There are two ways into a frame. Arrays that are what the program declares are bound by machine code, and scalars of
the very types are written as they are; everything else is converted, or refused with a message, by
``core/arguments.py``, which also says what is right. Results are new arrays, or those that ``out=`` gives:

    leaves -> bind, or convert -> sizes -> allocate results -> launch -> raise, or put the results together

A :class:`Bound` call does the first half once: it runs again and again on the memory of the same arguments.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from ...core import trees
from ...core.arguments import Signature
from ...core.dims import Dim, Name
from ...core.host_arrays import MASKED, is_masked, no_memory, too_long
from ...core.source import at_line
from ...core.terms import Constant, Failure
from ...core.types import Scalar, Type, dims, element, rank
from ...core.unification import Equality
from ..boundary import Boundary
from ..lowering import returned
from ..memory.arena import room
from ..runtime import default_threads
from . import bounds
from .frames import UNSET, Frame, entries
from .jit import Executable
from .layout_conversion import row_major
from .objects import ALIGNED, ROW_MAJOR
from .results import empty

Array = np.ndarray[Any, Any]

# The classes of the numbers that are taken as they are for a scalar of a type; others may lose something
_EXACT: Mapping[str, tuple[type, ...]] = {"f64": (float, np.float64), "i64": (int, np.int64), "bool": (bool, np.bool_)}

_free = ctypes.CDLL(None).free  # of the C library


@dataclass(frozen=True)
class Interface:
    """What calls have to know of machine code: what it takes and gives, and what its failures say."""

    sizes: tuple[str, ...]  # in the order in which the code takes them
    arguments: tuple[Type, ...]  # their types in terms of these sizes
    equalities: tuple[Equality, ...]  # what makes the types of a call's arguments these
    constants: tuple[Constant, ...]  # hidden arguments, behind those of the program
    results: tuple[Type, ...]
    outputs: trees.Shape  # the structure of the results
    failures: tuple[Failure, ...]
    parallel: bool
    arrays: tuple[str, ...]  # by number, where the code checks its memory
    deep: bool = False  # it invokes procedures, or makes cells


class Calls:
    """How to call the machine code of one instance of a program, from any number of threads at once."""

    def __init__(self, executable: Executable, signature: Signature, interface: Interface) -> None:
        self._executable, self._signature, self._interface = executable, signature, interface
        types, self._name = interface.arguments, signature.program
        self._arrays = [k for k, type in enumerate(types) if rank(type)]
        self._scalars = [(k, _exact(element(type))) for k, type in enumerate(types) if not rank(type)]
        self._slots = _Slots(types, interface.sizes)
        self._layout = ROW_MAJOR | ALIGNED * executable.calls_c  # code reads at any address, functions of C do not
        self._table = np.array(self._slots.table(self._arrays, types, self._layout), np.int64)
        self._table_address = self._table.ctypes.data
        self._bind = entries().bind
        self._hidden = [self._readable(constant.array) for constant in interface.constants]
        self._kinds = [_kind(type, self._slots) for type in interface.results]
        self._results = [kind for kind in self._kinds if kind.array]
        self._only_arrays = len(self._results) == len(self._kinds)
        self._single = interface.outputs == trees.LEAF
        self._paths = trees.paths(interface.outputs)
        self._flat = interface.outputs == trees.Shape(tuple, (), (trees.LEAF,) * len(self._kinds))
        self._frames: list[_CallFrame] = []
        self.boundary: Boundary | None = None  # what puts results together that are not arrays

    def run(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Any:
        """Run on the leaves of a call's arguments; the results have memory of their own, or that of ``out``."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._frame()
        threads = self._threads(threads)
        converted = None if self._bound(frame, leaves) else self._convert(frame, leaves, threads)
        sizes = frame.sizes()
        given = None if out is None else self._given(out, sizes, [*leaves, *(converted or ())])
        result = self._launched(frame, sizes, given, threads, leaves, converted)
        self._frames.append(frame)
        return result

    def bound(self, leaves: Sequence[Any], threads: int | None, out: Any = None) -> Bound:
        """The call with these arguments, to be made again and again; what it takes is compiled."""
        frame = self._frame()
        converted: Sequence[Any] = ()
        if not self._bound(frame, leaves):
            converted = self._convert(frame, leaves, 1)
            for position in self._arrays:
                leaf = leaves[position]
                if isinstance(leaf, np.ndarray) and leaf.size and not np.may_share_memory(leaf, converted[position]):
                    what = f"{self._name}: the bound argument {self._signature.names[position]!r}"
                    problem = "is read where it is, so it must be in row-major order and in native byte order"
                    problem += ", and aligned for functions of C" if self._layout & ALIGNED else ""
                    raise ValueError(at_line(f"{what} {problem}"))
        sizes = frame.sizes()
        self._executable.make_branches(sizes)
        given = None if out is None else self._given(out, sizes, [*leaves, *converted])
        return Bound(self, frame, sizes, given, self._threads(threads), (leaves, converted))

    def direct(self, arguments: Sequence[Any], threads: int | None) -> Direct | None:
        """Calls with arguments of these shapes, made by machine code; None where Python has to be there.

        Python has to be there for results of unknown size, empty arrays, functions of Python, and cells. Raises what a
        call raises for sizes that do not fit.
        """
        interface = self._interface
        sizes = self._signature.fitting(arguments)
        if (
            interface.deep
            or self._executable.calls_python
            or any([kind.loose for kind in self._kinds])
            or not all([0 not in each.shape for each in arguments])
        ):
            return None
        hidden, types = [array.ctypes.data for array in self._hidden], interface.arguments
        ordered = [sizes[name] for name in interface.sizes]
        return Direct(self._executable, ordered, self._threads(threads), hidden, len(types), len(self._kinds))

    def bytes(self, sizes: Mapping[str, int]) -> int:
        """The bytes of the results."""
        ordered = [sizes[name] for name in self._interface.sizes]
        return sum(math.prod(kind.shape(ordered)) * kind.dtype.itemsize for kind in self._kinds if not kind.loose)

    def _threads(self, threads: int | None) -> int:
        shared = self._interface.parallel or self._executable.calls_python
        return (threads or default_threads()) if shared else 1

    # Into the frame

    def _frame(self) -> _CallFrame:
        return _CallFrame(self._executable, self._signature.types, self._hidden, self._kinds, self._slots)

    def _bound(self, frame: _CallFrame, leaves: Sequence[Any]) -> bool:
        """Write arguments into the frame, if they are just what is declared."""
        if self._scalars:
            for (position, exact), place in zip(self._scalars, frame.inputs, strict=True):
                leaf = leaves[position]
                if type(leaf) not in exact:
                    return False
                try:
                    place[0] = leaf
                except OverflowError:
                    return False
        if not self._arrays:
            return True
        words, word = frame.words, frame.objects
        for position in self._arrays:
            words[word] = id(leaves[position])
            word += 1
        return bool(self._bind(self._table_address, frame.address)) and self._slots.agree(frame)

    def _convert(self, frame: _CallFrame, leaves: Sequence[Any], threads: int) -> list[Any]:
        """Check arguments and write what they are converted to into the frame; that is to be kept for the run."""
        leaves = [row_major(leaf, threads) if type(leaf) is np.ndarray else leaf for leaf in leaves]
        values, sizes = self._signature.convert(leaves)
        buffers = [self._readable(value) for value in values]
        for position in self._arrays:
            frame.words[frame.addresses + position] = buffers[position].ctypes.data
        for (position, _), place in zip(self._scalars, frame.inputs, strict=True):
            place[0] = values[position]
        for word, name in enumerate(self._interface.sizes, frame.slots):
            frame.words[word] = sizes[name]
        return buffers

    def _readable(self, value: Any) -> Array:
        """An argument as code takes it; an empty one with room for what is read where an index is clamped."""
        array: Array = np.asarray(value)
        if array.size == 0:
            try:
                return np.zeros(room(array.shape), array.dtype)
            except (MemoryError, ValueError):
                raise no_memory(array.shape) from None
        return np.require(array, requirements=["C", "A"] if self._layout & ALIGNED else ["C"])

    # Results

    def _allocated(self, sizes: Sequence[int]) -> list[Array]:
        """New arrays for the results that are arrays of known sizes."""
        return [empty(kind.shape(sizes), kind.dtype) for kind in self._results]

    def _beside(self, given: Sequence[Array | None], sizes: Sequence[int]) -> list[Array]:
        """The arrays that are given, and new ones for the others."""
        places = zip(given, self._kinds, strict=True)
        return [empty(k.shape(sizes), k.dtype) if place is None else place for place, k in places if k.array]

    def _given(self, out: Any, sizes: Sequence[int], arguments: Sequence[Any]) -> list[Array | None]:
        """The leaves of ``out``, which results are written to; None where there is none. TypeError, ValueError."""
        leaves = [out] if self._single else self._matched(out)
        taken = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        for place, kind, path in zip(leaves, self._kinds, self._paths, strict=True):
            if place is None:
                continue
            refused = _refused(place, kind, sizes)
            if refused is not None:
                error, problem = refused
                raise error(at_line(f"{self._name}: out{path} {problem}"))
            for other in taken:
                if np.may_share_memory(place, other):
                    raise ValueError(at_line(f"{self._name}: out{path} overlaps an argument or another result"))
            taken.append(place)
        return leaves

    def _matched(self, out: Any) -> list[Any]:
        if self._flat and type(out) is tuple and len(out) == len(self._kinds):
            return list(out)
        try:
            return trees.matched(self._interface.outputs, out)
        except TypeError as error:
            path, problem = error.args
            raise TypeError(at_line(f"{self._name}: out{path} {problem}")) from None

    def _launched(
        self,
        frame: _CallFrame,
        sizes: Sequence[int],
        given: Sequence[Array | None] | None,
        threads: int,
        leaves: Sequence[Any],
        converted: Sequence[Any] | None,
    ) -> Any:
        """Run, and put the results together: new ones, or those that are given."""
        arguments = converted or leaves
        words = frame.words
        results: Sequence[Any]
        if not self._results:
            results = ()  # the code leaves numbers in the frame
        elif given is None:
            results = self._allocated(sizes)
        elif self._only_arrays and not [place for place in given if place is None]:
            results, given = given, None  # as good as new ones
        else:
            results = self._beside(given, sizes)
        for word, result in zip(frame.results, results):
            words[word] = id(result)
        if self._executable.views:
            frame.owners = [x for x in (*arguments, *results, *self._hidden) if isinstance(x, np.ndarray) and x.ndim]
        try:
            failure = self._executable.launch(frame, sizes, threads)
        except BaseException:  # no memory, or what the handler of a signal raises
            self._executable.raised(frame)
            self._abandon(frame)
            raise
        if failure is not None:
            raised = self._executable.raised(frame)
            self._abandon(frame)
            if raised is not None:
                raise raised
            if failure.site < 0:
                raise bounds.error(self._name, self._interface.arrays, failure)
            raise self._interface.failures[failure.site].error(failure.values)
        values: Sequence[Any] = results
        if not self._results:
            values = [kind.taken(place) for kind, place in zip(self._kinds, frame.outputs)]
        elif not self._only_arrays:
            arrays, places = iter(results), iter(frame.outputs)
            values = [next(arrays) if kind.array else kind.taken(next(places)) for kind in self._kinds]
        if self.boundary is not None:
            return self.boundary.left(values, leaves)
        if given is not None:
            values = [_stored(value, place) for value, place in zip(values, given, strict=True)]
        if self._single:
            return values[0]
        return tuple(values) if self._flat else trees.unflatten(self._interface.outputs, values)

    def _abandon(self, frame: _CallFrame) -> None:
        """Free the arrays that a run has returned which did not come to its end."""
        places = iter(frame.outputs)
        for kind in self._kinds:
            if not kind.array:
                kind.abandon(next(places))


class Bound:
    """A call whose arguments are bound: it reads their memory anew each time. Made by ``Compiled.bind``.

    Calls from several threads come one after the other.
    """

    def __init__(
        self,
        calls: Calls,
        frame: _CallFrame,
        sizes: Sequence[int],
        given: Sequence[Array | None] | None,
        threads: int,
        kept: Any,
    ) -> None:
        self._calls, self._frame, self._sizes, self._given, self._threads = calls, frame, sizes, given, threads
        self._kept = kept  # the arguments, as they were given and as they are read
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        """Run; raises what a call raises when a requirement does not hold."""
        with self._lock:
            leaves, converted = self._kept
            return self._calls._launched(self._frame, self._sizes, self._given, self._threads, leaves, converted)


@dataclass(frozen=True)
class Direct:
    """Calls that machine code makes: it writes the addresses of arguments and results, and calls ``quiet``.

    A number is an address, too. What the call gives is 0, or something else where Python should run the program, to
    say what is wrong.
    """

    executable: Executable
    sizes: Sequence[int]
    threads: int
    hidden: Sequence[int]  # the addresses of constants
    arguments: int
    results: int

    @property
    def first_result(self) -> int:
        """The number of its address; those of the arguments are the first ones."""
        return self.arguments + len(self.hidden)

    def frame(self) -> Frame:
        """A frame for one call at a time."""
        executable = self.executable
        frame = Frame(executable.entry, executable.bits, self.first_result + self.results, len(self.sizes))
        for word, address in enumerate(self.hidden, frame.addresses + self.arguments):
            frame.words[word] = address
        for word, size in enumerate(self.sizes, frame.slots):
            frame.words[word] = size
        executable.prepare(frame, self.sizes, self.threads)
        return frame


class _Slots:
    """The slots of the frames of a program: those of its size names first, then fixed sizes, then expressions."""

    def __init__(self, types: Sequence[Type], names: Sequence[str]) -> None:
        self.names = names
        self.initial = [UNSET] * len(names)
        self._numbers: dict[Dim, int] = {Dim.atom(Name(name)): number for number, name in enumerate(names)}
        self._expressions: list[tuple[int, Dim]] = []
        for type in types:
            for dim in dims(type):
                if dim not in self._numbers:
                    self._numbers[dim] = len(self.initial)
                    if dim.names():
                        self._expressions.append((len(self.initial), dim))
                    self.initial.append(UNSET if dim.names() else dim.evaluate({}))

    def table(self, positions: Sequence[int], types: Sequence[Type], layout: int) -> list[int]:
        """What ``bind`` shall find, for the arguments at these positions: arrays with all flags of a layout."""
        table = [len(positions), len(self.initial), id(np.ndarray), layout, *self.initial]
        for position in positions:
            type = types[position]
            table += [position, id(element(type).dtype), rank(type), *[self._numbers[dim] for dim in dims(type)]]
        return table

    def agree(self, frame: Frame) -> bool:
        """Whether the sizes that are expressions are what their names say."""
        if not self._expressions:
            return True
        words, first = frame.words, frame.slots
        sizes = {name: words[first + number] for number, name in enumerate(self.names)}
        try:
            return all([words[first + slot] == dim.evaluate(sizes) for slot, dim in self._expressions])
        except ZeroDivisionError:
            return False

    def shape(self, wanted: Sequence[Dim]) -> Callable[[Sequence[int]], tuple[int, ...]]:
        """The function from the values of the size names, in order, to a shape."""
        numbers = [self._numbers.get(dim, len(self.names)) for dim in wanted]
        if all([number < len(self.names) for number in numbers]):
            if len(numbers) == 1:
                [only] = numbers
                return lambda sizes: (sizes[only],)
            return itemgetter(*numbers) if numbers else lambda sizes: ()
        # the run refuses sizes below zero, with the user's line
        return lambda sizes: tuple([max(0, dim.evaluate(dict(zip(self.names, sizes, strict=True)))) for dim in wanted])


class _CallFrame(Frame):
    """A frame with room for scalar arguments and results, and for the records of results of unknown size."""

    def __init__(
        self,
        executable: Executable,
        types: Sequence[Type],
        hidden: Sequence[Array],
        kinds: Sequence[_Kind],
        slots: _Slots,
    ) -> None:
        arrays = sum([kind.array for kind in kinds])
        objects = sum([rank(type) > 0 for type in types])
        room = len(types) - objects + sum([kind.words for kind in kinds])
        addresses = len(types) + len(hidden) + len(kinds)
        super().__init__(executable.entry, executable.bits, addresses, len(slots.initial), arrays, objects, room)
        self._names = len(slots.names)
        self.inputs = [
            self._placed(position, element(type).dtype, 1) for position, type in enumerate(types) if not rank(type)
        ]
        for number, array in enumerate(hidden, len(types)):
            self.words[self.addresses + number] = array.ctypes.data
        first = len(types) + len(hidden)
        places: dict[int, Array] = {}
        self.results: list[int] = []  # the words for the objects of arrays
        # the code takes the records of results of unknown size last
        order = sorted(range(len(kinds)), key=lambda k: kinds[k].loose)
        for number, k in enumerate(order, first):
            if kinds[k].array:
                word = self.pairs + 2 * len(self.results)
                self.words[word + 1] = self.place(self.addresses + number)
                self.results.append(word)
            else:
                places[k] = self._placed(number, kinds[k].stored, kinds[k].words)
        self.outputs = [places[k] for k in sorted(places)]

    def _placed(self, number: int, dtype: np.dtype[Any], words: int) -> Array:
        """Words of the frame's own for the address of this number, as an array."""
        memory = self.take(words)
        self.words[self.addresses + number] = memory.ctypes.data
        return memory.view(dtype)

    def sizes(self) -> list[int]:
        """The values of the size names."""
        values: list[int] = self.words[self.slots : self.slots + self._names].tolist()
        return values


# The kinds of results


class _Kind:
    """An array for which there is memory before the run; its sizes are known from those of the arguments."""

    array, loose, words = True, False, 0

    def __init__(self, type: Type, slots: _Slots) -> None:
        self.dtype = self.stored = element(type).dtype
        self.shape = slots.shape(dims(type))

    def taken(self, place: Array) -> Any:
        raise NotImplementedError

    def abandon(self, place: Array) -> None:
        """Free what nobody takes."""


class _Number(_Kind):
    """A scalar, which the code leaves in the frame."""

    array, words = False, 1

    def taken(self, place: Array) -> Any:
        return place[0]


class _Returned(_Kind):
    """An array whose size the run decides: the code leaves its address and its extents in the frame."""

    array, loose = False, True

    def __init__(self, type: Type, slots: _Slots) -> None:
        self.dtype, self.stored = element(type).dtype, np.dtype(np.int64)
        self.words = 1 + rank(type)

    def taken(self, place: Array) -> Any:
        address, *shape = place.tolist()
        place[:] = 0
        shape = [max(0, length) for length in shape]
        memory = (ctypes.c_char * (math.prod(shape) * self.dtype.itemsize)).from_address(address)
        # not when the interpreter ends: what runs then may still look at the array
        weakref.finalize(memory, _free, ctypes.c_void_p(address)).atexit = False
        try:
            return np.frombuffer(memoryview(memory), self.dtype).reshape(shape)
        except ValueError:
            raise too_long(shape) from None

    def abandon(self, place: Array) -> None:
        address = int(place[0])
        place[:] = 0
        _free(ctypes.c_void_p(address))  # of none there is, nothing


def _kind(type: Type, slots: _Slots) -> _Kind:
    if returned(type):
        return _Returned(type, slots)
    return _Kind(type, slots) if rank(type) else _Number(type, slots)


def _stored(value: Any, place: Array | None) -> Any:
    """A result where it was wanted: a scalar is copied there."""
    if place is None or value is place:
        return value
    place[()] = value
    return place


def _exact(scalar: Scalar) -> tuple[type, ...]:
    return _EXACT.get(scalar.name, (scalar.dtype.type,))


def _refused(place: Any, kind: _Kind, sizes: Sequence[int]) -> tuple[type[Exception], str] | None:
    """Why a result of a kind cannot be written to a place, if it cannot."""
    if kind.loose:
        return ValueError, "is not None, but the size of this result is known after the run only"
    if is_masked(place):
        return TypeError, f"is {MASKED}"
    if not isinstance(place, np.ndarray):
        return TypeError, f"is an array to write to (or None), not a {type(place).__name__}"
    if place.dtype != kind.dtype:
        return TypeError, f"is an array of {kind.dtype}, not of {place.dtype}"
    if place.shape != kind.shape(sizes):
        return ValueError, f"has the shape {kind.shape(sizes)} here, not {place.shape}"
    if not place.flags.carray:
        return ValueError, "is a writable and aligned array in row-major order"
    return None
