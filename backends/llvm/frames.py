"""The memory of a call, and what writes and runs it in machine code, so that a call takes a few microseconds.

A *frame* is made once and kept for later calls: the addresses of arguments and results, the values of sizes, and the
arena of temporaries. Two small functions do what would be slow in Python:

    bind     look at the arrays among the arguments: when each is a NumPy array of the declared type, rank and sizes,
             contiguous and not empty, write its address, and what its axes say of the sizes, into the frame
    launch   write the addresses of the arrays for results into the frame, and run the compiled function

A third one, ``quiet``, is for machine code that has written all addresses itself and knows nothing of Python: it runs
the compiled function without the interpreter's lock, and looks at no signals.

The first two read NumPy's array objects as extension modules do: the fields of ``PyArrayObject`` are part of NumPy's
binary interface. The words of a frame and of the table that says what ``bind`` shall find:

    frame    0 the compiled function  1 addresses  2 slots  3 arena  4 how many pairs of  5 an object and the place of
             its address  6 objects to bind  7 bits of the control register to set (``control.py``)
    table    0 how many objects  1 how many slots  2 the class of arrays  3 what the slots hold at first; then a record
             an object: the number of its address, its scalar type, its rank, the slot of each axis

A *slot* holds the value of a size name or a fixed size, and is -1 before it is known; axes of one slot must agree.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.source import at_line
from ..runtime import once
from . import control, interrupts, packing
from .assemble import link
from .stored import load_runtime
from .unit import ALIGNMENT, CELLS, COUNT, KEPT, REGION, RING, RING_WORD, SEAT_WORDS, SEATS, STOP, TABLE, TICK

# Bytes before the arena: of the failure record, and of what says where memory is that is kept for later calls.
HEAD = ALIGNMENT + -(-16 * KEPT // ALIGNMENT) * ALIGNMENT
UNSET = -1  # in a slot

_free = ctypes.CDLL(None).free  # of the C library
_HEADER = object.__basicsize__  # of every Python object; the fields of an array follow
_WORDS = 8  # of a frame, before what it points to

_EXPORTS = ("bind", "launch", "quiet", "look", "begin", "pack")
_IR = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{control.DECLARATIONS}
{interrupts.IR}
{packing.IR}
define i64 @bind(ptr %table, ptr %frame) {{
entry:
  %addresses.place = getelementptr i64, ptr %frame, i64 1
  %addresses = load ptr, ptr %addresses.place
  %slots.place = getelementptr i64, ptr %frame, i64 2
  %slots = load ptr, ptr %slots.place
  %objects.place = getelementptr i64, ptr %frame, i64 6
  %objects = load ptr, ptr %objects.place
  %count = load i64, ptr %table
  %slot.count.place = getelementptr i64, ptr %table, i64 1
  %slot.count = load i64, ptr %slot.count.place
  %class.place = getelementptr i64, ptr %table, i64 2
  %class = load ptr, ptr %class.place
  %layout.place = getelementptr i64, ptr %table, i64 3
  %layout = load i64, ptr %layout.place
  %wanted.flags = trunc i64 %layout to i32
  %initial = getelementptr i64, ptr %table, i64 4
  %bytes = mul i64 %slot.count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %initial, i64 %bytes, i1 false)
  %records = getelementptr i64, ptr %initial, i64 %slot.count
  br label %array
array:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %record = phi ptr [ %records, %entry ], [ %record.next, %next ]
  %some = icmp slt i64 %k, %count
  br i1 %some, label %look, label %good
look:
  %object.place = getelementptr ptr, ptr %objects, i64 %k
  %object = load ptr, ptr %object.place
  %type.place = getelementptr i8, ptr %object, i64 {_HEADER - 8}
  %type = load ptr, ptr %type.place
  %is.array = icmp eq ptr %type, %class
  br i1 %is.array, label %fields, label %bad
fields:
  %scalar.place = getelementptr i8, ptr %object, i64 {_HEADER + 40}
  %scalar = load ptr, ptr %scalar.place
  %wanted.scalar.place = getelementptr i64, ptr %record, i64 1
  %wanted.scalar = load ptr, ptr %wanted.scalar.place
  %same.scalar = icmp eq ptr %scalar, %wanted.scalar
  %rank.place = getelementptr i8, ptr %object, i64 {_HEADER + 8}
  %rank.word = load i32, ptr %rank.place
  %rank = sext i32 %rank.word to i64
  %wanted.rank.place = getelementptr i64, ptr %record, i64 2
  %wanted.rank = load i64, ptr %wanted.rank.place
  %same.rank = icmp eq i64 %rank, %wanted.rank
  %flags.place = getelementptr i8, ptr %object, i64 {_HEADER + 48}
  %flags = load i32, ptr %flags.place
  %lies = and i32 %flags, %wanted.flags
  %contiguous = icmp eq i32 %lies, %wanted.flags
  %fits = and i1 %same.scalar, %same.rank
  %taken = and i1 %fits, %contiguous
  br i1 %taken, label %take, label %bad
take:
  %data.place = getelementptr i8, ptr %object, i64 {_HEADER}
  %data = load ptr, ptr %data.place
  %number = load i64, ptr %record
  %address.place = getelementptr ptr, ptr %addresses, i64 %number
  store ptr %data, ptr %address.place
  %extents.place = getelementptr i8, ptr %object, i64 {_HEADER + 16}
  %extents = load ptr, ptr %extents.place
  %axes = getelementptr i64, ptr %record, i64 3
  br label %axis
axis:
  %a = phi i64 [ 0, %take ], [ %a.next, %axis.agrees ]
  %axes.left = icmp slt i64 %a, %rank
  br i1 %axes.left, label %extent.of.axis, label %next
extent.of.axis:
  %extent.place = getelementptr i64, ptr %extents, i64 %a
  %extent = load i64, ptr %extent.place
  %slot.number.place = getelementptr i64, ptr %axes, i64 %a
  %slot.number = load i64, ptr %slot.number.place
  %slot = getelementptr i64, ptr %slots, i64 %slot.number
  %known = load i64, ptr %slot
  %unset = icmp eq i64 %known, {UNSET}
  %value = select i1 %unset, i64 %extent, i64 %known
  store i64 %value, ptr %slot
  %agrees = icmp eq i64 %extent, %value
  %filled = icmp sgt i64 %extent, 0
  %fine = and i1 %agrees, %filled
  br i1 %fine, label %axis.agrees, label %bad
axis.agrees:
  %a.next = add i64 %a, 1
  br label %axis
next:
  %k.next = add i64 %k, 1
  %record.next = getelementptr i64, ptr %axes, i64 %rank
  br label %array
good:
  ret i64 1
bad:
  ret i64 0
}}

define i64 @launch(ptr %frame, i64 %threads) {{
start:
  %arena.place = getelementptr i64, ptr %frame, i64 3
  %arena = load ptr, ptr %arena.place
  %failure = getelementptr i8, ptr %arena, i64 -{HEAD}
  %count.place = getelementptr i64, ptr %frame, i64 4
  %count = load i64, ptr %count.place
  %pairs.place = getelementptr i64, ptr %frame, i64 5
  %pairs = load ptr, ptr %pairs.place
  br label %result
result:
  %k = phi i64 [ 0, %start ], [ %k.next, %write ]
  %some = icmp slt i64 %k, %count
  br i1 %some, label %write, label %words
write:
  %pair = getelementptr [2 x ptr], ptr %pairs, i64 %k
  %object = load ptr, ptr %pair
  %place.place = getelementptr ptr, ptr %pair, i64 1
  %place = load ptr, ptr %place.place
  %data.place = getelementptr i8, ptr %object, i64 {_HEADER}
  %data = load ptr, ptr %data.place
  store ptr %data, ptr %place
  %k.next = add i64 %k, 1
  br label %result
words:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @main
  %is.main = icmp eq i64 %self, %main
  %looking = load i64, ptr @looking
  %none.looks = icmp eq i64 %looking, 0
  %ours = and i1 %is.main, %none.looks
  %tick = select i1 %ours, ptr @tick, ptr @never
  %stop = select i1 %ours, ptr @stop, ptr @never
  %tick.place = getelementptr ptr, ptr %failure, i64 {TICK}
  store ptr %tick, ptr %tick.place
  %stop.place = getelementptr ptr, ptr %failure, i64 {STOP}
  store ptr %stop, ptr %stop.place
  br i1 %ours, label %heard, label %unheard
unheard:
  %state = call ptr @adze_save()
  %site.unheard = call i64 @run(ptr %frame, i64 %threads, ptr %failure)
  call void @adze_restore(ptr %state)
  ret i64 %site.unheard
heard:
  store atomic i64 1, ptr @active seq_cst, align 8
  %asleep = load atomic i64, ptr @asleep seq_cst, align 8
  %awake = icmp eq i64 %asleep, 0
  br i1 %awake, label %go, label %wake
wake:
  call void @wake()
  br label %go
go:
  %state.heard = call ptr @adze_save()
  store ptr %state.heard, ptr @state
  %site.heard = call i64 @run(ptr %frame, i64 %threads, ptr %failure)
  call void @adze_restore(ptr %state.heard)
  store atomic i64 0, ptr @active monotonic, align 8
  %stopped = load i64, ptr @stop
  %as.usual = icmp eq i64 %stopped, 0
  br i1 %as.usual, label %done, label %forget
forget:
  store atomic i64 0, ptr @stop monotonic, align 8
  store atomic i64 0, ptr @tick monotonic, align 8
  br label %done
done:
  ret i64 %site.heard
}}

define i64 @quiet(ptr %frame, i64 %threads) {{
  %arena.place = getelementptr i64, ptr %frame, i64 3
  %arena = load ptr, ptr %arena.place
  %failure = getelementptr i8, ptr %arena, i64 -{HEAD}
  %tick.place = getelementptr ptr, ptr %failure, i64 {TICK}
  store ptr @never, ptr %tick.place
  %stop.place = getelementptr ptr, ptr %failure, i64 {STOP}
  store ptr @never, ptr %stop.place
  %site = call i64 @run(ptr %frame, i64 %threads, ptr %failure)
  ret i64 %site
}}

define internal i64 @run(ptr %frame, i64 %threads, ptr %failure) {{
  %register = alloca i32
  %changed = alloca i32
  %entry = load ptr, ptr %frame
  %addresses.place = getelementptr i64, ptr %frame, i64 1
  %addresses = load ptr, ptr %addresses.place
  %sizes.place = getelementptr i64, ptr %frame, i64 2
  %sizes = load ptr, ptr %sizes.place
  %arena.place = getelementptr i64, ptr %frame, i64 3
  %arena = load ptr, ptr %arena.place
  %bits.place = getelementptr i64, ptr %frame, i64 7
  %bits = load i32, ptr %bits.place
  %as.it.is = icmp eq i32 %bits, 0
  br i1 %as.it.is, label %plain, label %controlled
plain:
  %site = call i64 %entry(ptr %addresses, ptr %sizes, ptr %arena, i64 %threads, ptr %failure)
  ret i64 %site
controlled:
  store i32 0, ptr %register
  {control.saved("%register")}
  %before = load i32, ptr %register
  %with = or i32 %before, %bits
  store i32 %with, ptr %changed
  {control.restored("%changed")}
  %site.controlled = call i64 %entry(ptr %addresses, ptr %sizes, ptr %arena, i64 %threads, ptr %failure)
  {control.restored("%register")}
  ret i64 %site.controlled
}}
"""


@dataclass(frozen=True)
class Entries:
    """The three functions."""

    bind: Callable[[int, int], int]  # table, frame -> whether all objects fit
    launch: Callable[[int, int], int]  # frame, threads -> what the compiled function gives; raises what handlers raise
    quiet: int  # the address of launch for who has no lock
    look: int  # the address of what loops call to look for signals
    pack: int  # the address of what lays out arenas
    library: object  # which holds the code


@once
def entries() -> Entries:
    """The functions in the memory of this process."""
    library = load_runtime(_IR, lambda code: link(code, _EXPORTS, interrupts.IMPORTS))
    # both look at objects, so they hold the lock; the second gives it away for the run
    bind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(library["bind"])
    launch = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(library["launch"])
    begin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library["begin"])

    def start() -> None:
        begin(threading.main_thread().ident)

    start()
    os.register_at_fork(after_in_child=start)
    return Entries(bind, launch, library["quiet"], library["look"], library["pack"], library)


def _release(kept: np.ndarray[Any, Any]) -> None:
    """Give memory back that was kept."""
    for address in kept[::2]:
        _free(ctypes.c_void_p(int(address)))


class Frame:
    """The memory of one call: so many addresses, slots, pairs and objects, words to take, and the arena.

    ``bits`` are set in the control register of floating-point arithmetic during the call.
    """

    def __init__(
        self, entry: int, bits: int, addresses: int, slots: int, pairs: int = 0, objects: int = 0, room: int = 0
    ) -> None:
        self.addresses = _WORDS  # the numbers of words; what follows is at these
        self.slots = self.addresses + addresses
        self.pairs = self.slots + slots
        self.objects = self.pairs + 2 * pairs
        self._free = self.objects + objects
        self._memory = np.zeros(self._free + room, np.int64)
        self.words: Any = self._memory.data
        self.address = int(self._memory.ctypes.data)
        self.words[0], self.words[4], self.words[7] = entry, pairs, bits
        for word, first in ((1, self.addresses), (2, self.slots), (5, self.pairs), (6, self.objects)):
            self.words[word] = self.place(first)
        self.wanted: tuple[Any, ...] = ()  # the sizes and threads that the arena is known to be large enough for
        self._room = -1
        self._arena: Any = None
        self._seats: np.ndarray[Any, Any] | None = None
        self._rings: np.ndarray[Any, Any] | None = None
        self.owners: Sequence[np.ndarray[Any, Any]] = ()  # the arrays of a call, where something looks at them
        self._kept = np.zeros((HEAD - ALIGNMENT) // 8, np.int64)  # addresses and bytes of memory for later calls
        self._release = weakref.finalize(self, _release, self._kept)

    def place(self, word: int) -> int:
        """The address of a word."""
        return self.address + 8 * word

    def take(self, words: int) -> np.ndarray[Any, Any]:
        """Some of the words that are free."""
        first = self._free
        self._free += words
        return self._memory[first : self._free]

    def reserve(self, size: int, table: int) -> None:
        """Have an arena of so many bytes at least, and the address of the table of branches before it."""
        if size > self._room:
            try:
                arena = np.empty(size + HEAD + ALIGNMENT, np.uint8)
            except (MemoryError, ValueError):  # where NumPy has no arrays of that many bytes
                raise MemoryError(at_line(f"no memory for {size / 2**30:.2f} GiB of temporary arrays")) from None
            start = -arena.ctypes.data % ALIGNMENT
            self._keep(arena[start + ALIGNMENT : start + HEAD].view(np.int64))
            self._arena, self._room = arena, size
            self.words[3] = arena.ctypes.data + start + HEAD
            ctypes.c_int64.from_address(self.words[3] - HEAD + 8 * TABLE).value = table

    def _keep(self, words: np.ndarray[Any, Any]) -> None:
        """Let other words say what memory is kept for later calls."""
        words[:] = self._kept
        self._release.detach()
        self._kept, self._release = words, weakref.finalize(self, _release, words)
        self._release.atexit = False

    def have_seats(self, threads: int, release: Callable[[int], None]) -> None:
        """Have seats for so many threads, whose cells are given back with the frame, and their address with the record.

        Cells of the last run, where results may be, go with the seats that there were.
        """
        if self._seats is None or len(self._seats) < threads:
            seats = np.zeros((threads, SEAT_WORDS), np.int64)
            rings = np.zeros((threads, RING if threads > 1 else 0), np.int64)  # touched as far as they are used
            seats[:, RING_WORD] = [ring.ctypes.data for ring in rings]
            seats[:, COUNT] = threads
            regions = [seat.ctypes.data for seat in seats[:, CELLS:]]
            weakref.finalize(seats, lambda: [*map(release, regions)]).atexit = False
            self._seats, self._rings = seats, rings  # all of it, or nothing where a signal has raised
        for word, address in ((SEATS, self._seats.ctypes.data), (REGION, self._seats[0, CELLS:].ctypes.data)):
            ctypes.c_int64.from_address(self.record + 8 * word).value = address

    @property
    def cells(self) -> int:
        """The bytes of the regions of the last run, each a chain of chunks (``stacks.py``)."""
        total, chunks = 0, [] if self._seats is None else self._seats[:, CELLS + 2].tolist()
        for chunk in chunks:
            while chunk:
                chunk, own = (ctypes.c_int64 * 2).from_address(chunk)
                total += own
        return total

    def leave_arena(self) -> None:
        """Have an arena of its own for the next call, since somebody looks at this one."""
        self._keep(np.empty_like(self._kept))
        self._arena, self._room, self.wanted = None, -1, ()

    @property
    def block(self) -> np.ndarray[Any, Any]:
        """The memory that the arena is in."""
        block: np.ndarray[Any, Any] = self._arena
        return block

    @property
    def arena(self) -> int:
        """The address of the arena."""
        return int(self.words[3])

    @property
    def record(self) -> int:
        """The address of the failure record."""
        return self.arena - HEAD

    def failure(self, count: int) -> Sequence[int]:
        """The first words of the failure record."""
        return list((ctypes.c_int64 * count).from_address(self.record))
