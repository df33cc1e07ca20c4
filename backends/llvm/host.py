"""The machine that code is compiled for and run on: this one, or any that has what a name promises.

Code for this processor uses all that it has, and knows its caches. Where several processors are to make the same code
(the workers of a cluster), they compile for a *level* that all of them have (x86-64 psABI, section 3.1.1): its
instructions, and caches of a common size.
"""

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

# What a processor of each level has, by LLVM's names
_V2 = ("sse2", "cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS = {"x86-64": ("sse2",), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}

_L1_BYTES, _L2_BYTES = 32 << 10, 512 << 10  # of caches that are not known


@dataclass(frozen=True)
class Machine:
    """A target, and what LLVM needs to know of it beyond that."""

    target: Target
    vector_abi: tuple[tuple[int, str], ...]  # register bytes and the ABI's letter, best first
    scales: bool = False  # one instruction multiplies by powers of two
    bounds: bool = False  # code is made to check its memory (``bounds.py``)
    optimised: bool = True  # by LLVM
    located: bool = False  # instructions say which line of the loops' text they are from (``locations.py``)
    cpu: str = ""  # the level that it is of; empty: this processor
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
    return _machine(_features(), "", _cache_bytes(1, _L1_BYTES), _cache_bytes(2, _L2_BYTES))


def machine_of(cpu: str | None) -> Machine:
    """A machine of a level; None: this one."""
    return host() if cpu is None else _of_level(cpu)


@cache
def _of_level(cpu: str) -> Machine:
    return _machine(frozenset(LEVELS[cpu]), cpu, _L1_BYTES, _L2_BYTES)


def lacking(cpu: str) -> list[str]:
    """What a level has and this processor has not."""
    return sorted(set(LEVELS[cpu]) - _features())


@cache
def _features() -> frozenset[str]:
    return frozenset([name for name, present in llvm.get_host_cpu_features().items() if present])


def _machine(features: frozenset[str], cpu: str, l1_bytes: int, l2_bytes: int) -> Machine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    abi = tuple((size, letter) for size, letter, feature in (*_X86, *_ARM) if feature in features)
    with suppress(RuntimeError):  # without vector mathematics: scalar functions, lane by lane
        llvm.load_library_permanently("libmvec.so.1")
    target = Target(
        register_bytes=max((size for size, _ in abi), default=16),
        registers=32 if features & {"avx512f", "neon"} else 16,
        l1_bytes=l1_bytes,
        l2_bytes=l2_bytes,
        parallel=True,
        multiply_add=bool(features & {"fma", "avx512f", "neon"}),
    )
    return Machine(target, abi, scales="avx512f" in features, cpu=cpu)


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
