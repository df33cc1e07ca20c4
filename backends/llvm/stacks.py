"""Stacks and regions: the memory of what recurs, as LLVM IR beside ``launch`` (``frames.py``).

A program with procedures runs on a stack of its own. Room for it is reserved and not touched, so that it takes what the
recursion does, and where it ends is known, so that a recursion without end is an error and no fault. One stack is kept
for the next call, with what the last ones have touched of it: all that the last call used, of what others did a large
page less with each call, and nothing of the deepest recursions. For procedures a stack ends early, until one of them
needs more: then it says so in the first word of the stack, and has twice as much (``deeper``, in ``unit.py``). Stacks
and large chunks are in large pages where the system has them: memory that is touched once and in order costs little
more than zeroing it.

    adze_deep     run a call on such a stack, with its regions
    adze_on       run a function on a stack, and come back to one's own
    adze_stack    a new stack, or none;  adze_trim: what was touched deep down in one is given back
    have_stack    write to a failure record which stack its procedures are on
    adze_room     bytes of a region whose newest chunk is full: from a new one, twice as large, or none where memory
                  is short (``available.py``)
    release       give the chunks of a region back

What changes stacks moves the stack pointer to the top of one, calls, and moves it back, which is a nanosecond:
``swapcontext`` asks the system for the signal mask each time, which takes longer than a short recursion does. Room of
a size that the run decides keeps its own values where they are found without the stack pointer.

A *region* is four words: the next free byte and the end of the newest chunk, that chunk, and how large it is. A chunk
begins with the address of the one before, its bytes, and the chunks that are left of calls before. A call begins with
the newest chunk of the last one, whose others come next; where it has left more than it used, the next one frees a
chunk of that. Each of its threads has a region of its own, which is part of its seat (``work_stealing.py``).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

from ..runtime import once
from .assemble import link
from .available import IR as AVAILABLE
from .stored import load_runtime
from .unit import (
    CELLS,
    COUNT,
    HANDED,
    MARGIN,
    OUT_OF_MEMORY,
    SEAT_WORDS,
    SEATS,
    SHALLOW,
    STACK,
    STACK_WORDS,
)

_MOST = 64 << 30  # bytes of a stack
_LEAST = 64 << 20
_PAGE = 2 << 20  # bytes of a large page: zeroing one takes some fiftieth of what faults of its small ones take
_SHARE = 16  # of a stack: what procedures use of it stays in memory for the next call, unless it is a larger part
_FIRST = 1 << 18  # bytes of the first chunk of a region
_ADVICE = 14  # MADV_HUGEPAGE of Linux: large pages, where the system leaves the choice to programs
_LARGEST = 64 << 20  # of those after it, unless an array is larger; for as much, the system is asked for what it has
_HEADER = 32  # bytes at the beginning of a chunk

_IR = f"""{AVAILABLE}
@spare = internal global ptr null, align 128
@bytes = internal global i64 0

declare ptr @llvm.stacksave.p0()
declare void @llvm.stackrestore.p0(ptr)
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i64 @reserve(i64 %bytes) {{
  store i64 %bytes, ptr @bytes
  %stack = call ptr @adze_stack()
  store ptr %stack, ptr @spare
  %some = icmp ne ptr %stack, null
  %done = zext i1 %some to i64
  ret i64 %done
}}

define internal void @inside(ptr %call) {{
  %function = load ptr, ptr %call
  %buffers.place = getelementptr i64, ptr %call, i64 1
  %buffers = load ptr, ptr %buffers.place
  %sizes.place = getelementptr i64, ptr %call, i64 2
  %sizes = load ptr, ptr %sizes.place
  %arena.place = getelementptr i64, ptr %call, i64 3
  %arena = load ptr, ptr %arena.place
  %threads.place = getelementptr i64, ptr %call, i64 4
  %threads = load i64, ptr %threads.place
  %failure.place = getelementptr i64, ptr %call, i64 5
  %failure = load ptr, ptr %failure.place
  %site = call i64 %function(ptr %buffers, ptr %sizes, ptr %arena, i64 %threads, ptr %failure)
  %site.place = getelementptr i64, ptr %call, i64 6
  store i64 %site, ptr %site.place
  ret void
}}

define i64 @adze_deep(ptr %function, ptr %buffers, ptr %sizes, ptr %arena, i64 %threads, ptr %failure) {{
  %call = alloca [7 x i64], align 16
  %kept = atomicrmw xchg ptr @spare, ptr null acquire
  %none = icmp eq ptr %kept, null
  br i1 %none, label %map, label %go
map:
  %mapped = call ptr @adze_stack()
  %failed = icmp eq ptr %mapped, null
  br i1 %failed, label %missing, label %go
missing:
  store i64 {OUT_OF_MEMORY}, ptr %failure
  ret i64 {OUT_OF_MEMORY}
go:
  %stack = phi ptr [ %kept, %0 ], [ %mapped, %map ]
  call void @have_stack(ptr %failure, ptr %stack)
  %seats.place = getelementptr i64, ptr %failure, i64 {SEATS}
  %seats = load ptr, ptr %seats.place
  %count.place = getelementptr i64, ptr %seats, i64 {COUNT}
  %count = load i64, ptr %count.place
  br label %next
next:
  %number = phi i64 [ 0, %go ], [ %after, %next ]
  %place = mul i64 %number, {SEAT_WORDS}
  %region.word = add i64 %place, {CELLS}
  %region = getelementptr i64, ptr %seats, i64 %region.word
  call void @begin(ptr %region)
  %after = add i64 %number, 1
  %more = icmp slt i64 %after, %count
  br i1 %more, label %next, label %run
run:
  store ptr %function, ptr %call
  %buffers.place = getelementptr i64, ptr %call, i64 1
  store ptr %buffers, ptr %buffers.place
  %sizes.place = getelementptr i64, ptr %call, i64 2
  store ptr %sizes, ptr %sizes.place
  %arena.place = getelementptr i64, ptr %call, i64 3
  store ptr %arena, ptr %arena.place
  %threads.place = getelementptr i64, ptr %call, i64 4
  store i64 %threads, ptr %threads.place
  %failure.place = getelementptr i64, ptr %call, i64 5
  store ptr %failure, ptr %failure.place
  call void @adze_on(ptr %stack, ptr @inside, ptr %call)
  call void @adze_trim(ptr %stack)
  %old = atomicrmw xchg ptr @spare, ptr %stack release
  %alone = icmp eq ptr %old, null
  br i1 %alone, label %done, label %unmap
unmap:
  %bytes = load i64, ptr @bytes
  %unmapped = call i32 @munmap(ptr %old, i64 %bytes)
  br label %done
done:
  %site.place = getelementptr i64, ptr %call, i64 6
  %site = load i64, ptr %site.place
  ret i64 %site
}}

define ptr @adze_stack() {{
  %bytes = load i64, ptr @bytes
  %mapped = call ptr @mmap(ptr null, i64 %bytes, i32 3, i32 {0x2 | 0x20 | 0x4000 | 0x20000}, i32 -1, i64 0)
  %failed = icmp eq ptr %mapped, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %none, label %some
none:
  ret ptr null
some:
  %advised = call i32 @madvise(ptr %mapped, i64 %bytes, i32 {_ADVICE})
  ret ptr %mapped
}}

define void @adze_trim(ptr %stack) {{
  %depth = load i64, ptr %stack
  %stays.place = getelementptr i64, ptr %stack, i64 2
  %stayed = load i64, ptr %stays.place
  %either = or i64 %depth, %stayed
  %shallow = icmp eq i64 %either, 0
  br i1 %shallow, label %done, label %deep
deep:
  %bytes = load i64, ptr @bytes
  %most = udiv i64 %bytes, {_SHARE}
  %over = icmp ugt i64 %depth, %most
  %some = call i64 @llvm.umax.i64(i64 %stayed, i64 {_PAGE})
  %page.less = sub i64 %some, {_PAGE}
  %kept = call i64 @llvm.umax.i64(i64 %depth, i64 %page.less)
  %little = icmp ule i64 %kept, {SHALLOW}
  %none = or i1 %over, %little
  %stays = select i1 %none, i64 0, i64 %kept
  %was = call i64 @llvm.umax.i64(i64 %depth, i64 %stayed)
  store i64 %stays, ptr %stays.place
  %less = icmp ult i64 %stays, %was
  br i1 %less, label %give, label %done
give:
  %at.top = call i64 @llvm.umax.i64(i64 %stays, i64 {SHALLOW})
  %below = sub i64 %bytes, %at.top
  %rest = sub i64 %below, {MARGIN}
  %start = getelementptr i8, ptr %stack, i64 {MARGIN}
  %advised = call i32 @madvise(ptr %start, i64 %rest, i32 4)
  br label %done
done:
  ret void
}}

define void @have_stack(ptr %failure, ptr %stack) {{
entry:
  %depth = load i64, ptr %stack
  %deep = icmp ne i64 %depth, 0
  br i1 %deep, label %forget, label %have
forget:
  store i64 0, ptr %stack
  br label %have
have:
  %bytes = load i64, ptr @bytes
  %stays = sub i64 %bytes, {SHALLOW - MARGIN}
  %limit = getelementptr i8, ptr %stack, i64 %stays
  %limit.place = getelementptr ptr, ptr %failure, i64 {STACK}
  store ptr %limit, ptr %limit.place
  %handed.place = getelementptr ptr, ptr %failure, i64 {HANDED}
  %handed = getelementptr i64, ptr %stack, i64 {STACK_WORDS}
  store ptr %handed, ptr %handed.place
  ret void
}}

define void @adze_on(ptr %stack, ptr %function, ptr %argument) noinline optnone nounwind "frame-pointer"="all" {{
  %bytes = load i64, ptr @bytes
  %end = getelementptr i8, ptr %stack, i64 %bytes
  %top = call ptr @llvm.ptrmask.p0.i64(ptr %end, i64 -64)
  %none = and i64 %bytes, 15
  %room = alloca i8, i64 %none, align 16
  %own = call ptr @llvm.stacksave.p0()
  call void @llvm.stackrestore.p0(ptr %top)
  call void %function(ptr %argument)
  call void @llvm.stackrestore.p0(ptr %own)
  ret void
}}

define ptr @adze_room(ptr %region, i64 %size) {{
  %place = alloca ptr, align 8
  %newest.place = getelementptr i64, ptr %region, i64 2
  %newest = load ptr, ptr %newest.place
  %bytes.place = getelementptr i64, ptr %region, i64 3
  %before = load i64, ptr %bytes.place
  %needed = add i64 %size, {_HEADER}
  %over = icmp ult i64 %needed, %size
  br i1 %over, label %none, label %look
look:
  %first = icmp eq ptr %newest, null
  br i1 %first, label %make, label %ask
ask:
  %kept.place = getelementptr i64, ptr %newest, i64 2
  %left = load ptr, ptr %kept.place
  %empty = icmp eq ptr %left, null
  br i1 %empty, label %make, label %fit
fit:
  %kept.bytes.place = getelementptr i64, ptr %left, i64 1
  %kept.bytes = load i64, ptr %kept.bytes.place
  %fits = icmp uge i64 %kept.bytes, %needed
  br i1 %fits, label %reuse, label %make
reuse:
  %others = load ptr, ptr %left
  br label %some
make:
  %kept = phi ptr [ null, %look ], [ null, %ask ], [ %left, %fit ]
  %doubled = shl i64 %before, 1
  %at.least = call i64 @llvm.umax.i64(i64 %doubled, i64 {_FIRST})
  %at.most = call i64 @llvm.umin.i64(i64 %at.least, i64 {_LARGEST})
  %bytes = call i64 @llvm.umax.i64(i64 %at.most, i64 %needed)
  %asked = icmp uge i64 %bytes, {_LARGEST}
  br i1 %asked, label %count, label %take
count:
  %available = call i64 @available()
  %spared = load i64, ptr @adze_spared
  %wanted = add i64 %bytes, %spared
  %scarce = icmp ugt i64 %wanted, %available
  br i1 %scarce, label %none, label %take
take:
  %large = icmp uge i64 %bytes, {_PAGE}
  %alignment = select i1 %large, i64 {_PAGE}, i64 16
  %failed = call i32 @posix_memalign(ptr %place, i64 %alignment, i64 %bytes)
  %missing = icmp ne i32 %failed, 0
  br i1 %missing, label %none, label %taken
taken:
  %fresh = load ptr, ptr %place
  %fresh.bytes.place = getelementptr i64, ptr %fresh, i64 1
  store i64 %bytes, ptr %fresh.bytes.place
  br i1 %large, label %advise, label %some
advise:
  %advised = call i32 @madvise(ptr %fresh, i64 %bytes, i32 {_ADVICE})
  br label %some
some:
  %chunk = phi ptr [ %left, %reuse ], [ %fresh, %taken ], [ %fresh, %advise ]
  %room = phi i64 [ %kept.bytes, %reuse ], [ %bytes, %taken ], [ %bytes, %advise ]
  %rest = phi ptr [ %others, %reuse ], [ %kept, %taken ], [ %kept, %advise ]
  store ptr %newest, ptr %chunk
  %rest.place = getelementptr i64, ptr %chunk, i64 2
  store ptr %rest, ptr %rest.place
  store ptr %chunk, ptr %newest.place
  %most = call i64 @llvm.umax.i64(i64 %room, i64 %before)
  store i64 %most, ptr %bytes.place
  %end = getelementptr i8, ptr %chunk, i64 %room
  %end.place = getelementptr i64, ptr %region, i64 1
  store ptr %end, ptr %end.place
  %start = getelementptr i8, ptr %chunk, i64 {_HEADER}
  %next = getelementptr i8, ptr %start, i64 %size
  store ptr %next, ptr %region
  ret ptr %start
none:
  ret ptr null
}}

define internal void @begin(ptr %region) {{
  %newest.place = getelementptr i64, ptr %region, i64 2
  %newest = load ptr, ptr %newest.place
  %none = icmp eq ptr %newest, null
  br i1 %none, label %done, label %some
some:
  %unused.place = getelementptr i64, ptr %newest, i64 2
  %unused = load ptr, ptr %unused.place
  br label %test
test:
  %oldest = phi ptr [ %newest, %some ], [ %before, %on ]
  %sum = phi i64 [ 0, %some ], [ %taken, %on ]
  %own.place = getelementptr i64, ptr %oldest, i64 1
  %own = load i64, ptr %own.place
  %taken = add i64 %sum, %own
  %before = load ptr, ptr %oldest
  %last = icmp eq ptr %before, null
  br i1 %last, label %look, label %on
on:
  br label %test
look:
  %chunk = phi ptr [ %unused, %test ], [ %next, %more ]
  %left.sum = phi i64 [ 0, %test ], [ %left.more, %more ]
  %end = icmp eq ptr %chunk, null
  br i1 %end, label %compare, label %more
more:
  %bytes.place = getelementptr i64, ptr %chunk, i64 1
  %bytes = load i64, ptr %bytes.place
  %left.more = add i64 %left.sum, %bytes
  %next = load ptr, ptr %chunk
  br label %look
compare:
  %much = icmp ugt i64 %left.sum, %taken
  br i1 %much, label %drop, label %join
drop:
  %rest = load ptr, ptr %unused
  call void @free(ptr %unused)
  br label %join
join:
  %left = phi ptr [ %unused, %compare ], [ %rest, %drop ]
  store ptr %left, ptr %oldest
  %used = load ptr, ptr %newest
  store ptr %used, ptr %unused.place
  store ptr null, ptr %newest
  %start = getelementptr i8, ptr %newest, i64 {_HEADER}
  store ptr %start, ptr %region
  br label %done
done:
  ret void
}}

define internal void @give_back(ptr %chunk) {{
entry:
  br label %test
test:
  %this = phi ptr [ %chunk, %entry ], [ %before, %some ]
  %none = icmp eq ptr %this, null
  br i1 %none, label %done, label %some
some:
  %before = load ptr, ptr %this
  call void @free(ptr %this)
  br label %test
done:
  ret void
}}

define void @release(ptr %region) {{
  %newest.place = getelementptr i64, ptr %region, i64 2
  %newest = load ptr, ptr %newest.place
  %none = icmp eq ptr %newest, null
  br i1 %none, label %done, label %some
some:
  %unused.place = getelementptr i64, ptr %newest, i64 2
  %unused = load ptr, ptr %unused.place
  call void @give_back(ptr %unused)
  call void @give_back(ptr %newest)
  call void @llvm.memset.p0.i64(ptr %region, i8 0, i64 32, i1 false)
  br label %done
done:
  ret void
}}
"""


_EXPORTS = (
    "adze_deep",
    "adze_room",
    "adze_on",
    "adze_stack",
    "adze_trim",
    "have_stack",
    "release",
    "reserve",
    "available",
    "adze_spared",
)


@dataclass(frozen=True)
class Stacks:
    """The functions, by address, and what gives a region back."""

    deep: int
    room: int
    of_workers: tuple[int, int, int, int, int]  # what workers do with stacks, and how large these are
    release: Callable[[int], None]
    library: object  # which holds the code


@once
def stacks() -> Stacks:
    """The functions in the memory of this process, with room reserved for a stack; MemoryError where there is none."""
    library = load_runtime(_IR, lambda code: link(code, _EXPORTS))
    reserve = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library["reserve"])
    size = _wanted()
    while not reserve(size):
        size //= 2
        if size < _LEAST:
            raise MemoryError(f"no room for a stack of {_LEAST >> 20} MB, on which recursive programs run")
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library["release"])
    deep, room, on, stack, trim, have = [int(library[name]) for name in _EXPORTS[:6]]
    return Stacks(deep, room, (on, stack, trim, have, size), release, library)


def _wanted() -> int:
    """The bytes that ``ADZE_STACK_MB`` says, else a quarter of the memory of this machine, at most 64 GB."""
    wanted = os.environ.get("ADZE_STACK_MB", "").strip()
    if wanted:
        if not wanted.isdecimal() or int(wanted) << 20 < _LEAST:
            raise ValueError(f"ADZE_STACK_MB must be a number of megabytes, at least {_LEAST >> 20}, got {wanted!r}")
        return int(wanted) << 20
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST, min(_MOST, memory // 4))
