"""What the scheduler may know of the machine it schedules for: sizes and counts, and no names."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.types import Scalar
from .transformations import ALL, Transformations


@dataclass(frozen=True)
class Target:
    """Registers and caches of one core, whether there is more than one, and whether threads come in groups."""

    register_bytes: int
    registers: int  # vector registers
    l1_bytes: int
    l2_bytes: int
    parallel: bool
    multiply_add: bool  # a fused multiply-add costs what a multiplication does
    group: int = 0  # threads that run side by side, share memory and wait for each other; 0: lanes are of vectors
    shared_bytes: int = 0  # memory of a group
    threads: int = 1  # iterations at work at a time, where threads are many and light
    atomics: bool = False  # iterations may update the same place
    transformations: Transformations = ALL  # what the scheduler may do for it

    def lanes(self, scalar: Scalar) -> int:
        """How many of these scalars one register holds, at least one; where threads come in groups, those of one."""
        if self.group:
            return self.group
        return max(1, 8 * self.register_bytes // scalar.bits)
