"""Checked memory: what ``ADZE_DEBUG=bounds`` adds to compiled code, to find mistakes of the compiler.

A test by array and index, which finds more than one by address (AddressSanitizer; Serebryany et al. 2012): before every
read and write each index is compared with the extent of its axis, in every lane that is on. Between the slots of the
arena there are *canaries* (Cowan et al. 1998), bytes that nobody writes, looked at when the function ends. Memory is
*poisoned*: the arena, results and other temporaries begin as NaN and -1, so that what is read before it is written
shows. The first violation is recorded as a failure and ends the run, also where a requirement has failed before::

    arena    canary | slot 0 | canary | slot 1 | canary | private slots of thread 0, each with its canary | ...
    record   -2 - the number of the array, the axis (-1: its canary), the index, the extent
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.source import at_line
from .. import ir
from ..runtime import Failure
from .text import Module

CANARY = 128  # bytes, at least: the alignment of slots
NEITHER = -1  # of the axes of an array: its canary
_FIRST = -2  # in the failure record: the array of number 0

_OUTSIDE = f"""\
define internal void @outside(ptr %record, i64 %array, i64 %axis, i64 %index, i64 %extent, i1 %inside) \
cold noinline nounwind {{
  %site = sub i64 {_FIRST}, %array
  br i1 %inside, label %end, label %look
look:
  %state = load atomic i64, ptr %record monotonic, align 8
  %known = icmp slt i64 %state, 0
  br i1 %known, label %end, label %take
take:
  %old = cmpxchg ptr %record, i64 %state, i64 %site monotonic monotonic
  %first = extractvalue {{ i64, i1 }} %old, 1
  br i1 %first, label %write, label %look
write:
  %values = getelementptr i64, ptr %record, i64 1
  store i64 %axis, ptr %values
  %values.1 = getelementptr i64, ptr %record, i64 2
  store i64 %index, ptr %values.1
  %values.2 = getelementptr i64, ptr %record, i64 3
  store i64 %extent, ptr %values.2
  br label %end
end:
  ret void
}}"""

_CANARY = f"""\
define internal void @canary(ptr %record, i64 %array, ptr %place, i64 %bytes) noinline nounwind {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %some = icmp slt i64 %k, %bytes
  br i1 %some, label %body, label %end
body:
  %at = getelementptr i8, ptr %place, i64 %k
  %byte = load i8, ptr %at
  %alive = icmp eq i8 %byte, -1
  call void @outside(ptr %record, i64 %array, i64 {NEITHER}, i64 %k, i64 0, i1 %alive)
  %next = add i64 %k, 1
  br label %head
end:
  ret void
}}"""


class OutOfBounds(AssertionError):
    """Compiled code was about to touch memory outside of an array, or did: a mistake of the compiler."""


def arrays_of(function: ir.Function) -> tuple[str, ...]:
    """The arrays of a function by number: arguments, results, temporaries."""
    own = [statement.buffer for statement in ir.of_kind(function.body, ir.Allocate)]
    return tuple(dict.fromkeys([buffer.name for buffer in (*function.arguments, *function.results, *own)]))


def error(program: str, arrays: Sequence[str], failure: Failure) -> OutOfBounds:
    """What a recorded violation is raised as."""
    axis, index, extent, *_ = failure.values
    array = arrays[_FIRST - 1 - failure.site]  # sites of failures are recorded plus one
    where = f"byte {index} behind {array}, or before it, was written, which is of no array"
    if axis != NEITHER:
        where = f"index {index} is outside of axis {axis} of {array}, whose extent is {extent}"
    return OutOfBounds(
        at_line(
            f"{program}: {where} (az.compile(...).loops shows the array). "
            "This is a mistake of Adze, not of the program: please report it with the program and its arguments"
        )
    )


class Bounds:
    """The checks of one module."""

    def __init__(self, function: ir.Function, module: Module) -> None:
        self.numbers = {name: number for number, name in enumerate(arrays_of(function))}
        self._module = module

    def outside(self) -> str:
        """The name of the function that records a violation, unless a flag says that there is none."""
        return self._defined("outside", _OUTSIDE)

    def canary(self) -> str:
        """The name of the function that looks at a canary."""
        self.outside()
        return self._defined("canary", _CANARY)

    def _defined(self, name: str, text: str) -> str:
        if not self._module.defines(name):
            self._module.define(name, text)
        return name
