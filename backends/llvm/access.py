"""Reading and writing buffers: how the offset of an element varies decides which instruction moves it.

The offset is the sum of index times stride over the dimensions. Inside a ``lanes`` loop it splits into a scalar
base and a spread over the lanes: none (one element for all lanes), consecutive (one vector load or store), any
other constant stride or a vector of offsets (a gather or scatter). Lanes that are off are neither read nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.types import Scalar, i64
from ..loops import Buffer
from .text import Module, bytes_of, iota, literal, memory_type, suffix
from .values import Value, Widening, one


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


class Access:
    """Emits loads and stores of buffers under a widening."""

    def __init__(self, widening: Widening, regions: Regions) -> None:
        self.widening, self.body, self.regions = widening, widening.body, regions

    def load(self, buffer: Buffer, place: Place, indices: Sequence[Value]) -> Value:
        scalar, strip = buffer.scalar, self.widening.strip
        address = self._address(scalar, place, indices)
        tag = self.regions.tag(place.region)
        align = bytes_of(scalar)
        if not address.stride and address.offsets is None:
            type = memory_type(scalar)

            def read(parts: Sequence[str], lanes: int) -> str:
                return self._from_memory(scalar, self.body.value(f"load {type}, ptr {parts[0]}, align {align}{tag}"), 0)

            return self.widening.lift(scalar, [address.pointers], read)
        assert strip is not None
        lanes, type = strip.lanes, memory_type(scalar, strip.lanes)
        if address.stride == 1 and address.offsets is None:
            if strip.mask is None:
                texts = [f"load {type}, ptr {pointer}, align {align}{tag}" for pointer in address.pointers.parts]
            else:
                name = f"@llvm.masked.load.{suffix(scalar, lanes, memory=True)}.p0"
                texts = [
                    f"call {type} {name}(ptr align {align} {pointer}, {_mask(strip.lanes)} {strip.mask}, "
                    f"{type} zeroinitializer){tag}"
                    for pointer in address.pointers.parts
                ]
            axes = address.pointers.axes
        else:
            places = self._places(scalar, address)
            name = f"@llvm.masked.gather.{suffix(scalar, lanes, memory=True)}.v{lanes}p0"
            texts = [
                f"call {type} {name}(<{lanes} x ptr> align {align} {pointers}, {_mask(strip.lanes)} {strip.active()}, "
                f"{type} zeroinitializer){tag}"
                for pointers in places.parts
            ]
            axes = places.axes
        parts = tuple(self._from_memory(scalar, self.body.value(text), lanes) for text in texts)
        return Value(scalar, parts, axes, lanes)

    def store(self, buffer: Buffer, place: Place, indices: Sequence[Value], value: Value) -> None:
        scalar, strip = buffer.scalar, self.widening.strip
        address = self._address(scalar, place, indices)
        tag = self.regions.tag(place.region, write=True)
        align = bytes_of(scalar)
        if not address.stride and address.offsets is None:
            type = memory_type(scalar)
            for pointer, part in self._pairs(address.pointers, value):
                part = self._to_memory(scalar, part, 0)
                self.body.line(f"store {type} {part}, ptr {pointer}, align {align}{tag}")
            return
        assert strip is not None
        lanes, type = strip.lanes, memory_type(scalar, strip.lanes)
        value = self.widening.vector(value)
        if address.stride == 1 and address.offsets is None:
            for pointer, part in self._pairs(address.pointers, value):
                part = self._to_memory(scalar, part, lanes)
                if strip.mask is None:
                    self.body.line(f"store {type} {part}, ptr {pointer}, align {align}{tag}")
                else:
                    name = f"@llvm.masked.store.{suffix(scalar, lanes, memory=True)}.p0"
                    self.body.line(
                        f"call void {name}({type} {part}, ptr align {align} {pointer}, "
                        f"{_mask(strip.lanes)} {strip.mask}){tag}"
                    )
            return
        name = f"@llvm.masked.scatter.{suffix(scalar, lanes, memory=True)}.v{lanes}p0"
        for pointers, part in self._pairs(self._places(scalar, address), value):
            part = self._to_memory(scalar, part, lanes)
            self.body.line(
                f"call void {name}({type} {part}, <{lanes} x ptr> align {align} {pointers}, "
                f"{_mask(strip.lanes)} {strip.active()}){tag}"
            )

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

    def _places(self, scalar: Scalar, address: _Address) -> Value:
        """The addresses of all lanes."""
        lanes = self.widening.lanes
        offsets = address.offsets or self._iota(address.stride)
        axes = tuple(sorted({*address.pointers.axes, *offsets.axes}))
        parts = tuple(
            self.body.value(f"getelementptr inbounds {memory_type(scalar)}, ptr {pointer}, <{lanes} x i64> {offset}")
            for pointer, offset in zip(address.pointers.along(axes), offsets.along(axes))
        )
        return Value(i64, parts, axes, lanes)

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

    def _pairs(self, places: Value, value: Value) -> list[tuple[str, str]]:
        """Address and value of every copy, in the order of the copies."""
        axes = tuple(sorted({*places.axes, *value.axes}))
        return list(zip(places.along(axes), value.along(axes)))

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


def _mask(lanes: int) -> str:
    return f"<{lanes} x i1>"
