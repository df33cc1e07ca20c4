"""What the scheduler may know of the machine it schedules for: sizes and counts, and no names."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.types import Scalar


@dataclass(frozen=True)
class Target:
    """Registers and caches of one core, and whether there is more than one core to run on."""

    register_bytes: int
    registers: int  # vector registers
    l1_bytes: int
    l2_bytes: int
    parallel: bool
    multiply_add: bool  # a fused multiply-add costs what a multiplication does

    def lanes(self, scalar: Scalar) -> int:
        """How many of these scalars one register holds, at least one."""
        return max(1, 8 * self.register_bytes // scalar.bits)
