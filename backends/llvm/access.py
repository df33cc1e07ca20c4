"""Reading and writing buffers: how the offset of an element varies decides which instruction moves it.

The offset is the sum of index times stride over the dimensions. Inside a ``lanes`` loop it splits into a scalar
base and a spread over the lanes: none (one element for all lanes), a row of consecutive elements, forwards or
backwards (one vector load or store), any other stride or a vector of offsets (a gather or scatter). Elements a few
places apart are read as rows, from which lanes pick their own. Lanes that are off, or whose guard does not hold, are
neither read nor written. Reads ask for no alignment, so arrays of callers may be at any address; processors of today
read them as fast, but for a cache line more now and then. What is written is ours, or was checked, and is aligned.

Where a loop stands for two, ``x[n // m, n % m]`` with rows of m elements is a row in n.

Where lanes are anywhere, but the copies of a jam side by side, as many as lanes, the elements are a *square*, of
which each lane has a row in memory: rows are read or written, and transposed in registers. So arrays are packed::

    jam i by 8, lanes j by 8: packed[j, i] = x[i, j]     eight rows of x loaded, transposed, eight of packed stored
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product, repeat
from math import prod

from ...core.types import Scalar, i64
from .. import ir
from ..target import NEAR
from .text import Module, constant, indices, iota, literal, memory_type, register_type, suffix
from .values import Axis, Value, Widening, join, one, slice_of, transposed

_ANYWHERE = "align 1"  # what is read is so aligned


@dataclass(frozen=True)
class Place:
    """Where a buffer is: its address, its strides in elements and, in code that checks its memory, its extents."""

    buffer: str
    pointer: str
    strides: tuple[str, ...]
    extents: tuple[str, ...] = ()


class Apart:
    """The metadata by which LLVM knows, within one function, that buffers do not overlap, unless they may.

    Those that may are in the same memory one after the other.
    """

    def __init__(self, module: Module, may_overlap: Callable[[str, str], bool]) -> None:
        self.module, self._may_overlap = module, may_overlap
        self._nodes: dict[str, tuple[str, str, str]] = {}  # its scope, the list of that, the list of the others
        self._written: set[str] = set()

    def tag(self, buffer: str, write: bool = False) -> str:
        """What an access to a buffer carries."""
        if buffer not in self._nodes:
            self._nodes[buffer] = (self.module.metadata(), self.module.metadata(), self.module.metadata())
        if write:
            self._written.add(buffer)
        _, own, others = self._nodes[buffer]
        return f", !alias.scope {own}, !noalias {others}"

    def close(self) -> None:
        """Fill the nodes, once all accesses are known. Of two buffers only read, nobody asks if they overlap."""
        if not self._nodes:
            return
        domain = self.module.metadata()
        self.module.fill(domain, f"distinct !{{{domain}}}")
        for buffer, (scope, own, others) in self._nodes.items():
            self.module.fill(scope, f"distinct !{{{scope}, {domain}}}")
            self.module.fill(own, f"!{{{scope}}}")
            written = [each for each in self._nodes if each in self._written and each != buffer]
            rest = [self._nodes[each][0] for each in written if not self._may_overlap(buffer, each)]
            self.module.fill(others, "!{" + ", ".join(rest) + "}")


@dataclass(frozen=True)
class _Address:
    """The address of an access: pointers, one a copy, and the spread over lanes as a stride or as offsets."""

    pointers: Value
    stride: int
    offsets: Value | None

    @property
    def single(self) -> bool:
        """All lanes are at one element."""
        return self.stride == 0 and self.offsets is None

    @property
    def row(self) -> bool:
        """The lanes are at consecutive elements, forwards or backwards."""
        return self.stride in (1, -1) and self.offsets is None

    @property
    def backwards(self) -> bool:
        return self.row and self.stride == -1

    @property
    def varying(self) -> tuple[Value, ...]:
        """What the address of a copy is made from."""
        return (self.pointers,) if self.offsets is None else (self.pointers, self.offsets)


def _groups(axes: Sequence[Axis], along: Axis) -> Iterator[list[int]]:
    """The numbers of the copies along one axis, for each copy along the others."""
    apart = prod(axis.factor for axis in axes if axis > along)
    for first in range(prod(axis.factor for axis in axes)):
        if first // apart % along.factor == 0:
            yield [first + apart * step for step in range(along.factor)]


class Access:
    """Emits loads and stores of buffers under a widening."""

    def __init__(self, widening: Widening, apart: Apart) -> None:
        self.widening, self.body, self.apart = widening, widening.body, apart

    def load(self, buffer: ir.Buffer, place: Place, indices: Sequence[Value], guard: Value | None = None) -> Value:
        """What is at some indices; 0 where a guard does not hold."""
        scalar, indices = buffer.scalar, self._joined(buffer, indices)
        first, may_be_off = one(i64, "0"), guard is not None
        if guard is not None and not guard.lanes and self._address(scalar, place, indices).row:
            # A row elsewhere, since what is masked off is slow to read where there is no memory.
            indices = [self._select(guard, index, first) if index.uniform else index for index in indices]
            guard, may_be_off = self.widening.vector(guard), False
        if guard is not None and not guard.lanes:
            # The first element is there even where the guard does not hold: an empty buffer has room for one.
            if all([index.uniform for index in indices]):
                return self._single(guard, scalar, place, self._address(scalar, place, indices).pointers)
            there = self.load(buffer, place, [self._select(guard, index, first) for index in indices])
            return self._select(guard, there, one(scalar, constant(0, scalar)))
        address = self._address(scalar, place, indices)
        lanes = 0 if address.single else self.widening.lanes
        type, tag = memory_type(scalar, lanes), self.apart.tag(place.buffer)
        square = self._square(address, guard)
        if square is not None:
            return self._load_square(scalar, address, square, tag)
        near = address.offsets is None and 1 < address.stride <= NEAR
        where = address.pointers if near else self._where(scalar, address)
        axes = where.axes if guard is None else join((where, guard))
        guards = repeat(None) if guard is None else guard.along(axes)
        parts = []
        for part, inside in zip(where.along(axes), guards):
            if may_be_off and (near or address.row):
                part = self._where_memory_is(place, part, inside)
            if near:
                loaded = self._near(scalar, part, address.stride, tag, self._mask(inside))
                parts.append(self._from_memory(scalar, loaded, lanes))
                continue
            if lanes == 0 or self._plain(address, inside):
                text = f"load {type}, ptr {part}, {_ANYWHERE}{tag}"
            elif address.offsets is not None or self._apart(address, inside):
                loaded = self._load_each(scalar, type, place, part, self._mask(inside), f"{_ANYWHERE}{tag}")
                parts.append(self._from_memory(scalar, loaded, lanes))
                continue
            else:
                name, pointer, mask = self._masked("load" if address.row else "gather", scalar, address, inside)
                text = f"call {type} {name}({pointer} {_ANYWHERE} {part}, {mask}, {type} zeroinitializer){tag}"
            loaded = self.body.value(text)
            if address.backwards:
                loaded = self._reversed(memory_type(scalar), loaded)
            parts.append(self._from_memory(scalar, loaded, lanes))
        return Value(scalar, tuple(parts), axes, lanes)

    def _single(self, guard: Value, scalar: Scalar, place: Place, pointers: Value) -> Value:
        """The element that is one for all lanes; 0 where a guard does not hold.

        In loops of scalars that is a branch, which is nearly always taken and costs nothing. Where iterations run side
        by side, no branch shall part them: the first element is read where the guard does not hold.
        """
        load = f"load {memory_type(scalar)}, ptr %s, {_ANYWHERE}{self.apart.tag(place.buffer)}"
        axes, type, zero = join((guard, pointers)), register_type(scalar), constant(0, scalar)
        parts, value = list[str](), self.body.value
        for pointer, inside in zip(pointers.along(axes), guard.along(axes)):
            if self.widening.strip is None and not self.widening.axes:
                parts.append(self._read_if(inside, scalar, load % pointer))
                continue
            there = value(f"select i1 {inside}, ptr {pointer}, ptr {place.pointer}")
            read = self._from_memory(scalar, value(load % there), 0)
            parts.append(value(f"select i1 {inside}, {type} {read}, {type} {zero}"))
        return Value(scalar, tuple(parts), axes)

    def _read_if(self, inside: str, scalar: Scalar, load: str) -> str:
        """What a load gives, or 0 where it is not done."""
        type = register_type(scalar)
        slot = self.body.slot(type)
        self.body.line(f"store {type} {constant(0, scalar)}, ptr {slot}")
        with self._where_holds(inside):
            self.body.line(f"store {type} {self._from_memory(scalar, self.body.value(load), 0)}, ptr {slot}")
        return self.body.value(f"load {type}, ptr {slot}")

    def store(
        self, buffer: ir.Buffer, place: Place, indices: Sequence[Value], value: Value, guard: Value | None = None
    ) -> None:
        """Write at some indices, where a guard holds."""
        scalar, indices = buffer.scalar, self._joined(buffer, indices)
        address = self._address(scalar, place, indices)
        lanes = 0 if address.single else self.widening.lanes
        type, tag = memory_type(scalar, lanes), self.apart.tag(place.buffer, write=True)
        square = self._square(address, guard, store=True)
        if square is not None:
            self._store_square(scalar, address, square, self.widening.vector(value), tag)
            return
        where = self._where(scalar, address)
        align = f"align {scalar.bytes}"
        if lanes:
            value = self.widening.vector(value)
            guard = None if guard is None else self.widening.vector(guard)
        axes = join((where, value) if guard is None else (where, value, guard))
        guards = repeat(None) if guard is None else guard.along(axes)
        for place_part, value_part, inside in zip(where.along(axes), value.along(axes), guards):
            stored = self._to_memory(scalar, value_part, lanes)
            if address.backwards:
                stored = self._reversed(memory_type(scalar), stored)
            if lanes == 0:
                self._store_if(inside, f"store {type} {stored}, ptr {place_part}, {align}{tag}")
            elif self._plain(address, inside):
                self.body.line(f"store {type} {stored}, ptr {place_part}, {align}{tag}")
            elif self._apart(address, inside):
                self._store_each(scalar, type, stored, place_part, f"{align}{tag}")
            else:
                name, pointer, mask = self._masked("store" if address.row else "scatter", scalar, address, inside)
                self.body.line(f"call void {name}({type} {stored}, {pointer} {align} {place_part}, {mask}){tag}")

    def prefetch(self, buffer: ir.Buffer, place: Place, indices: Sequence[Value], write: bool) -> None:
        """Have what is at some indices brought to the second cache, which takes more lines at a time than the first."""
        address = self._address(buffer.scalar, place, indices)
        for part in self._where(buffer.scalar, address).parts:
            lanes = 0 if address.single or address.row else self.widening.lanes
            for lane in range(max(1, lanes)):
                one = self.body.value(f"extractelement <{lanes} x ptr> {part}, i64 {lane}") if lanes else part
                self.body.line(f"call void @llvm.prefetch.p0(ptr {one}, i32 {int(write)}, i32 2, i32 1)")

    def _store_if(self, inside: str | None, store: str) -> None:
        if inside is None:
            self.body.line(store)
            return
        with self._where_holds(inside):
            self.body.line(store)

    @contextmanager
    def _where_holds(self, test: str) -> Iterator[None]:
        """A branch around what is emitted inside."""
        within, after = self.body.name("within"), self.body.name("after")
        self.body.line(f"br i1 {test}, label %{within}, label %{after}")
        self.body.label(within)
        yield
        self.body.branch(after)
        self.body.label(after)

    def _select(self, guard: Value, then: Value, orelse: Value) -> Value:
        def select(parts: Sequence[str], lanes: int) -> str:
            test, type = f"<{lanes} x i1>" if lanes else "i1", register_type(then.scalar, lanes)
            return self.body.value(f"select {test} {parts[0]}, {type} {parts[1]}, {type} {parts[2]}")

        return self.widening.lift(then.scalar, [guard, then, orelse], select)

    def _plain(self, address: _Address, inside: str | None) -> bool:
        """Whether all lanes of a row are read or written."""
        strip = self.widening.strip
        return address.row and strip is not None and strip.mask is None and inside is None

    def _apart(self, address: _Address, inside: str | None) -> bool:
        """Whether all lanes write elements that are not side by side: stores of single elements beat a scatter."""
        strip = self.widening.strip
        return not address.row and strip is not None and strip.mask is None and inside is None

    def _load_each(self, scalar: Scalar, type: str, buffer: Place, places: str, mask: str | None, how: str) -> str:
        """A vector of the elements at as many places; 0 in lanes that are off or outside, which read the first element.

        That is there even of an empty buffer. A masked gather takes a branch for each lane on processors without one,
        which data decide, and longer than single loads on the others.
        """
        lanes, vector = self.widening.lanes, "poison"
        on = f"select <{lanes} x i1> {mask}, "  # if there is a mask
        if mask is not None:
            first = self.body.value(f"insertelement <{lanes} x ptr> poison, ptr {buffer.pointer}, i64 0")
            first = slice_of(self.body, "ptr", first, lanes, [0] * lanes)
            places = self.body.value(f"{on}<{lanes} x ptr> {places}, <{lanes} x ptr> {first}")
        for lane in range(lanes):
            place = self.body.value(f"extractelement <{lanes} x ptr> {places}, i64 {lane}")
            part = self.body.value(f"load {memory_type(scalar)}, ptr {place}, {how}")
            vector = self.body.value(f"insertelement {type} {vector}, {memory_type(scalar)} {part}, i64 {lane}")
        return vector if mask is None else self.body.value(f"{on}{type} {vector}, {type} zeroinitializer")

    def _store_each(self, scalar: Scalar, type: str, vector: str, places: str, how: str) -> None:
        """Store the elements of a vector at as many places."""
        lanes = self.widening.lanes
        for lane in range(lanes):
            place = self.body.value(f"extractelement <{lanes} x ptr> {places}, i64 {lane}")
            part = self.body.value(f"extractelement {type} {vector}, i64 {lane}")
            self.body.line(f"store {memory_type(scalar)} {part}, ptr {place}, {how}")

    def _where_memory_is(self, place: Place, row: str, inside: str | None) -> str:
        """The address of a row, or where no lane is inside that of the buffer.

        Processors take a hundred cycles and more for what is masked off, where there is no memory.
        """
        if inside is None:
            return row
        lanes = self.widening.lanes
        some = self.body.value(f"call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> {inside})")
        return self.body.value(f"select i1 {some}, ptr {row}, ptr {place.pointer}")

    def _masked(self, operation: str, scalar: Scalar, address: _Address, inside: str | None) -> tuple[str, str, str]:
        """The intrinsic that skips lanes that are off or outside, the type of its address, and its mask."""
        lanes, mask = self.widening.lanes, self._mask(inside) or "splat (i1 true)"
        if address.backwards and mask.startswith("%"):
            mask = self._reversed("i1", mask)
        pointers = "p0" if address.row else f"v{lanes}p0"
        name = f"@llvm.masked.{operation}.{suffix(scalar, lanes, memory=True)}.{pointers}"
        return name, "ptr" if address.row else f"<{lanes} x ptr>", f"<{lanes} x i1> {mask}"

    def _mask(self, inside: str | None) -> str | None:
        """Which lanes are on and inside, where not all are."""
        strip = self.widening.strip
        if strip is None or strip.mask is None or inside is None:
            return inside or (None if strip is None else strip.mask)
        return self.body.value(f"and <{strip.lanes} x i1> {inside}, {strip.mask}")

    def _reversed(self, element: str, vector: str) -> str:
        lanes = self.widening.lanes
        return slice_of(self.body, element, vector, lanes, range(lanes - 1, -1, -1))

    # Squares

    def _square(self, address: _Address, guard: Value | None, store: bool = False) -> Axis | None:
        """The axis whose copies are side by side in memory and as many as the lanes, which are elsewhere.

        Those that are read may be a few elements apart.
        """
        if guard is not None or address.single or address.row:
            return None
        far = () if address.offsets is None else address.offsets.axes
        for axis in address.pointers.axes:
            near = 0 < (address.pointers.slope(axis) or 0) <= (1 if store else NEAR)
            if axis not in far and axis.factor == self.widening.lanes > 1 and near:
                return axis
        return None

    def _load_square(self, scalar: Scalar, address: _Address, square: Axis, tag: str) -> Value:
        """Lanes that are off read the row of the first one: what is theirs may be in a page that is not there."""
        lanes, apart = self.widening.lanes, address.pointers.slope(square) or 1
        axes = join(address.varying)
        parts = [""] * prod(axis.factor for axis in axes)
        for copies in _groups(axes, square):
            (first, _), *others = self._rows(scalar, address, axes, copies[0])
            places = [first]
            for row, on in others:
                places.append(row if on is None else self.body.value(f"select i1 {on}, ptr {row}, ptr {first}"))
            rows = [self._near(scalar, p, apart, tag) for p in places]
            for copy, column in zip(copies, transposed(self.body, memory_type(scalar), rows), strict=True):
                parts[copy] = self._from_memory(scalar, column, lanes)
        return Value(scalar, tuple(parts), axes, lanes)

    def _near(self, scalar: Scalar, first: str, apart: int, tag: str, mask: str | None = None) -> str:
        """A vector of elements that are as many places apart: as many rows, of which it has its own from each.

        The last row ends with the last element, so none is read that is not between two others.
        """
        body, lanes, type = self.body, self.widening.lanes, memory_type(scalar, self.widening.lanes)
        vector = ""
        for row in range(apart):
            start = min(row * lanes, (lanes - 1) * apart + 1 - lanes)
            place = body.value(f"getelementptr inbounds {memory_type(scalar)}, ptr {first}, i64 {start}")
            if mask is None:
                part = body.value(f"load {type}, ptr {place}, {_ANYWHERE}{tag}")
            else:
                own = [at // apart if at % apart == 0 else lanes for at in range(start, start + lanes)]
                masks = f"<{lanes} x i1> {mask}, <{lanes} x i1> zeroinitializer"
                on = f"<{lanes} x i1> " + body.value(f"shufflevector {masks}, {indices(own)}")
                name = f"@llvm.masked.load.{suffix(scalar, lanes, memory=True)}.p0"
                part = body.value(f"call {type} {name}(ptr {_ANYWHERE} {place}, {on}, {type} zeroinitializer){tag}")
            if not row:
                vector, found = part, [lane * apart % lanes for lane in range(lanes)]
                continue
            here = range(row * lanes, (row + 1) * lanes)
            chosen = [lanes + k * apart - start if k * apart in here else found[k] for k in range(lanes)]
            vector = body.value(f"shufflevector {type} {vector}, {type} {part}, {indices(chosen)}")
            found = list(range(lanes))
        return vector

    def _store_square(self, scalar: Scalar, address: _Address, square: Axis, value: Value, tag: str) -> None:
        lanes, type = self.widening.lanes, memory_type(scalar, self.widening.lanes)
        axes = join((*address.varying, value))
        stored = value.along(axes)
        for copies in _groups(axes, square):
            columns = [self._to_memory(scalar, stored[copy], lanes) for copy in copies]
            rows = transposed(self.body, memory_type(scalar), columns)
            for part, (row, on) in zip(rows, self._rows(scalar, address, axes, copies[0]), strict=True):
                self._store_if(on, f"store {type} {part}, ptr {row}, align {scalar.bytes}{tag}")

    def _rows(
        self, scalar: Scalar, address: _Address, axes: tuple[Axis, ...], copy: int
    ) -> Iterator[tuple[str, str | None]]:
        """Where each lane's row of a square begins, and whether the lane is on, where that is not sure."""
        strip = self.widening.strip
        assert strip is not None
        lanes, body = strip.lanes, self.body
        first = address.pointers.along(axes)[copy]
        for lane in range(lanes):
            step = str(lane * address.stride)
            if address.offsets is not None:
                offsets = address.offsets.along(axes)[copy]
                step = body.value(f"extractelement <{lanes} x i64> {offsets}, i64 {lane}")
            row = body.value(f"getelementptr inbounds {memory_type(scalar)}, ptr {first}, i64 {step}")
            on = None
            if strip.mask is not None:
                on = body.value(f"extractelement <{lanes} x i1> {strip.mask}, i64 {lane}")
            yield row, on

    # Addresses

    def _joined(self, buffer: ir.Buffer, indices: Sequence[Value]) -> Sequence[Value]:
        """The indices with one for two axes, where these are the quotient and the remainder of a number by the second.

        The number counts the elements along the second axis, and goes on where the next row begins.
        """
        places = list(indices)
        for axis in range(1, len(places)):
            high, low, size = places[axis - 1].digit, places[axis].digit, buffer.extents[axis]
            if high and low and high.number is low.number and high.size == low.size == size:
                if (high.primitive, low.primitive) == ("floor_divide", "remainder"):
                    places[axis - 1 : axis + 1] = one(i64, "0"), low.number
        return places

    def _address(self, scalar: Scalar, place: Place, indices: Sequence[Value]) -> _Address:
        widening = self.widening
        base, stride, offsets = one(i64, "0"), 0, None
        for index, step in zip(indices, place.strides):
            unit = one(i64, step)
            index, apart = self._first(index)
            for each in apart:
                scaled = widening.multiply(each, unit)
                assert scaled is not None
                base = widening.add(base, scaled)
            if not index.lanes:
                scaled = widening.multiply(Value(i64, index.parts, index.axes, slopes=index.slopes), unit)
                assert scaled is not None
                base = widening.add(base, scaled)
            if index.uniform:
                continue
            known = literal(step)
            if index.stride and known is not None:
                stride += index.stride * known
            elif index.stride:
                offsets = self._sum(offsets, self._times(self._iota(index.stride), unit))
            else:
                offsets = self._sum(offsets, self._times(index, unit))
        if stride and offsets is not None:
            offsets, stride = self._sum(offsets, self._iota(stride)), 0
        type = memory_type(scalar)
        pointers = tuple(
            self.body.value(f"getelementptr inbounds {type}, ptr {place.pointer}, i64 {part}") for part in base.parts
        )
        return _Address(Value(i64, pointers, base.axes, slopes=base.slopes), stride, offsets)

    def _first(self, index: Value) -> tuple[Value, list[Value]]:
        """The vector of the first copy, and by how much the others differ, where all lanes do by the same constant."""
        if not index.lanes or not index.slopes or None in index.slopes:
            return index, []
        steps = [[k * (slope or 0) for k in range(axis.factor)] for axis, slope in zip(index.axes, index.slopes)]
        apart = tuple([str(sum(each)) for each in product(*steps)])
        return Value(i64, index.parts[:1], lanes=index.lanes), [Value(i64, apart, index.axes, slopes=index.slopes)]

    def _where(self, scalar: Scalar, address: _Address) -> Value:
        """The address of the only element, of the lowest one of a row, or of the elements of all lanes."""
        lanes, type = self.widening.lanes, memory_type(scalar)
        step = f"getelementptr inbounds {type}, ptr"
        if address.single or (address.row and not address.backwards):
            return address.pointers
        if address.row:
            lowest = [self.body.value(f"{step} {pointer}, i64 {1 - lanes}") for pointer in address.pointers.parts]
            return Value(i64, tuple(lowest), address.pointers.axes)
        offsets = address.offsets or self._iota(address.stride)
        axes = join((address.pointers, offsets))
        each = [
            self.body.value(f"{step} {pointer}, <{lanes} x i64> {offset}")
            for pointer, offset in zip(address.pointers.along(axes), offsets.along(axes))
        ]
        return Value(i64, tuple(each), axes, lanes)

    def _iota(self, stride: int) -> Value:
        return Value(i64, (iota(self.widening.lanes, stride),), lanes=self.widening.lanes)

    def _sum(self, a: Value | None, b: Value) -> Value:
        return b if a is None else self._vectors("add", a, b)

    def _times(self, a: Value, b: Value) -> Value:
        return a if b.parts == ("1",) else self._vectors("mul", a, b)

    def _vectors(self, operation: str, a: Value, b: Value) -> Value:
        return self.widening.lift(
            i64, [a, b], lambda parts, lanes: self.body.value(f"{operation} <{lanes} x i64> {parts[0]}, {parts[1]}")
        )

    # Booleans take a byte in memory

    def _from_memory(self, scalar: Scalar, part: str, lanes: int) -> str:
        if scalar.kind != "bool":
            return part
        return self.body.value(f"icmp ne {memory_type(scalar, lanes)} {part}, zeroinitializer")

    def _to_memory(self, scalar: Scalar, part: str, lanes: int) -> str:
        if scalar.kind != "bool":
            return part
        before = f"<{lanes} x i1>" if lanes else "i1"
        return self.body.value(f"zext {before} {part} to {memory_type(scalar, lanes)}")
