"""The machine that code is compiled for and run on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from ...core.types import Scalar
from .. import ir
from ..target import Target

# The letters by which the x86 vector ABI names register sizes, widest first; AArch64 has one
_X86 = ((64, "e", "avx512f"), (32, "d", "avx2"), (16, "b", "sse2"))
_ARM = ((16, "n", "neon"),)


@dataclass(frozen=True)
class Machine:
    """A target, and what LLVM needs to know of it beyond that."""

    target: Target
    vector_abi: tuple[tuple[int, str], ...]  # register bytes and the ABI's letter, best first
    scales: bool = False  # one instruction multiplies by powers of two
    bounds: bool = False  # code is made to check its memory (``bounds.py``)
    optimised: bool = True  # by LLVM
    located: bool = False  # instructions say which line of the loops' text they are from (``locations.py``)
    clock: int = 0  # where code notes the time of each nest, the address of ``Clock``'s words; 0: nowhere

    def routine(self, function: str, scalar: Scalar, arity: int) -> tuple[str, int] | None:
        """The vector version of a function of the C library, and how many lanes it takes, or None."""
        for size, letter in self.vector_abi:
            lanes = 8 * size // scalar.bits
            symbol = f"_ZGV{letter}N{lanes}{'v' * arity}_{function}"
            if _has(symbol):
                return symbol, lanes
        return None

    def strip(self, loop: ir.For) -> int:
        """How many lanes of a loop fill one register, given the widest scalar that its body moves."""
        widest = 8
        for statement in ir.walk(loop.body):
            if isinstance(statement, ir.Store):
                widest = max(widest, statement.buffer.scalar.bits)
            for load in ir.loads(statement):
                widest = max(widest, load.buffer.scalar.bits)
        return max(1, 8 * self.target.register_bytes // widest)


@cache
def _has(symbol: str) -> bool:
    return bool(llvm.address_of_symbol(symbol))


@cache
def host() -> Machine:
    """This machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    abi = tuple((size, letter) for size, letter, feature in (*_X86, *_ARM) if feature in features)
    with suppress(RuntimeError):  # without vector mathematics: scalar functions, lane by lane
        llvm.load_library_permanently("libmvec.so.1")
    target = Target(
        register_bytes=max((size for size, _ in abi), default=16),
        registers=32 if features & {"avx512f", "neon"} else 16,
        l1_bytes=_cache_bytes(1, 32 << 10),
        l2_bytes=_cache_bytes(2, 512 << 10),
        parallel=True,
        multiply_add=bool(features & {"fma", "avx512f", "neon"}),
    )
    return Machine(target, abi, scales="avx512f" in features)


def host_target() -> Target:
    """What the scheduler may know of this machine."""
    return host().target


def _cache_bytes(level: int, default: int) -> int:
    """The size of a core's cache for data, where the system tells."""
    for each in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with suppress(OSError, ValueError):
            told = {name: (each / name).read_text().strip() for name in ("level", "type", "size")}
            if told["level"] == str(level) and told["type"] != "Instruction":
                return int(told["size"].removesuffix("K")) << 10
    return default
