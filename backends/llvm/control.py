"""What happens to subnormal numbers: the control register of a thread's floating-point arithmetic.

Numbers below 2.2e-308 (1.2e-38 in single precision) are *subnormal*: the smaller, the fewer digits. Some processors
take a hundred times as long to multiply one. Two bits of the control register (MXCSR of x86-64) have a thread *flush*
them: what is subnormal counts as zero, among operands and results.

A call of a program that was compiled so sets the bits and puts the register back when it is over (``frames.py``).
Workers take over the register of the thread that opens a region (``pool.py``): whatever that thread has set, the result
does not depend on who computes what.
"""

from __future__ import annotations

import platform

X86 = platform.machine() in ("x86_64", "AMD64")
FLUSH = 0x8040  # flush to zero, and denormals are zero

# LLVM's functions that write the register to memory and read it from there, where there are any
DECLARATIONS = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)" if X86 else ""


def saved(place: str) -> str:
    """The instruction that writes the register to four bytes of memory."""
    return f"call void @llvm.x86.sse.stmxcsr(ptr {place})" if X86 else ""


def restored(place: str) -> str:
    """The instruction that sets the register to what is in memory."""
    return f"call void @llvm.x86.sse.ldmxcsr(ptr {place})" if X86 else ""
