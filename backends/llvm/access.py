"""Reading and writing buffers: how the offset of an element varies decides which instruction moves it.

The offset is the sum of index times stride over the dimensions. Inside a ``lanes`` loop it splits into a scalar
base and a spread over the lanes: none (one element for all lanes), a row of consecutive elements, forwards or
backwards (one vector load or store), any other stride or a vector of offsets (a gather or scatter). Lanes that are
off are neither read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.types import Scalar, i64
from ..loops import Buffer
from .text import Module, bytes_of, iota, literal, memory_type, suffix
from .values import Value, Widening, join, one, slice_of


@dataclass(frozen=True)
class Place:
    """Where a buffer is: its address, its strides in elements, and the *region* of memory it is part of.

    Buffers of different regions do not overlap; buffers of one region may share memory, one after the other.
    """

    pointer: str
    strides: tuple[str, ...]
    region: str


class Regions:
    """The metadata by which LLVM knows, within one function, that regions do not overlap."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._nodes: dict[str, tuple[str, str, str]] = {}  # its scope, the list of that, the list of the others
        self._written: set[str] = set()

    def tag(self, region: str, write: bool = False) -> str:
        """What an access to the region carries."""
        if region not in self._nodes:
            self._nodes[region] = (self.module.metadata(), self.module.metadata(), self.module.metadata())
        if write:
            self._written.add(region)
        _, own, others = self._nodes[region]
        return f", !alias.scope {own}, !noalias {others}"

    def close(self) -> None:
        """Fill the nodes, once all accesses are known. Of two regions only read, nobody asks if they overlap."""
        if not self._nodes:
            return
        domain = self.module.metadata()
        self.module.fill(domain, f"distinct !{{{domain}}}")
        for region, (scope, own, others) in self._nodes.items():
            self.module.fill(scope, f"distinct !{{{scope}, {domain}}}")
            self.module.fill(own, f"!{{{scope}}}")
            rest = [self._nodes[other][0] for other in self._nodes if other != region and other in self._written]
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


class Access:
    """Emits loads and stores of buffers under a widening."""

    def __init__(self, widening: Widening, regions: Regions) -> None:
        self.widening, self.body, self.regions = widening, widening.body, regions

    def load(self, buffer: Buffer, place: Place, indices: Sequence[Value]) -> Value:
        scalar = buffer.scalar
        address = self._address(scalar, place, indices)
        lanes = 0 if address.single else self.widening.lanes
        type, tag = memory_type(scalar, lanes), self.regions.tag(place.region)
        where = self._where(scalar, address)
        align, strip = f"align {bytes_of(scalar)}", self.widening.strip
        parts = []
        for part in where.parts:
            if lanes == 0 or (address.row and strip and strip.mask is None):
                text = f"load {type}, ptr {part}, {align}{tag}"
            else:
                name, pointer, mask = self._masked("load" if address.row else "gather", scalar, address)
                text = f"call {type} {name}({pointer} {align} {part}, {mask}, {type} zeroinitializer){tag}"
            loaded = self.body.value(text)
            if address.backwards:
                loaded = self._reversed(memory_type(scalar), loaded)
            parts.append(self._from_memory(scalar, loaded, lanes))
        return Value(scalar, tuple(parts), where.axes, lanes)

    def store(self, buffer: Buffer, place: Place, indices: Sequence[Value], value: Value) -> None:
        scalar = buffer.scalar
        address = self._address(scalar, place, indices)
        lanes = 0 if address.single else self.widening.lanes
        type, tag = memory_type(scalar, lanes), self.regions.tag(place.region, write=True)
        where = self._where(scalar, address)
        align, strip = f"align {bytes_of(scalar)}", self.widening.strip
        if lanes:
            value = self.widening.vector(value)
        axes = join((where, value))
        for place_part, value_part in zip(where.along(axes), value.along(axes)):
            stored = self._to_memory(scalar, value_part, lanes)
            if address.backwards:
                stored = self._reversed(memory_type(scalar), stored)
            if lanes == 0 or (address.row and strip and strip.mask is None):
                self.body.line(f"store {type} {stored}, ptr {place_part}, {align}{tag}")
            else:
                name, pointer, mask = self._masked("store" if address.row else "scatter", scalar, address)
                self.body.line(f"call void {name}({type} {stored}, {pointer} {align} {place_part}, {mask}){tag}")

    def _masked(self, operation: str, scalar: Scalar, address: _Address) -> tuple[str, str, str]:
        """The intrinsic that skips lanes that are off, the type of its address, and its mask."""
        strip = self.widening.strip
        assert strip is not None
        lanes = strip.lanes
        mask = strip.active()
        if address.backwards and strip.mask is not None:
            mask = self._reversed("i1", mask)
        pointers = "p0" if address.row else f"v{lanes}p0"
        name = f"@llvm.masked.{operation}.{suffix(scalar, lanes, memory=True)}.{pointers}"
        return name, "ptr" if address.row else f"<{lanes} x ptr>", f"<{lanes} x i1> {mask}"

    def _reversed(self, element: str, vector: str) -> str:
        lanes = self.widening.lanes
        return slice_of(self.body, element, vector, lanes, range(lanes - 1, -1, -1))

    # Addresses

    def _address(self, scalar: Scalar, place: Place, indices: Sequence[Value]) -> _Address:
        widening = self.widening
        base, stride, offsets = one(i64, "0"), 0, None
        for index, step in zip(indices, place.strides):
            unit = one(i64, step)
            if not index.lanes:
                scaled = widening.multiply(Value(i64, index.parts, index.axes), unit)
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
        return _Address(Value(i64, pointers, base.axes), stride, offsets)

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
