"""Files: ranges of bytes, read into memory that is used again, through the system's cache or past it.

    at least half of a range is in the cache        from there
    it is read once, or the cache has no room       past it, by the disk into its place
    else                                            through it, so that it is there the next time

To read through the cache costs a copy, on a core that computes otherwise, and memory of whoever had something there.
Past it (``O_DIRECT``, open(2)) whole blocks are read to addresses that are multiples of a block, too: a range is put
where it is as far behind such an address as in the file, with room for the blocks that it begins and ends in::

    file     |....xxxx|xxxxxxxx|xxx.....|        x: the range
    memory   |    xxxx|xxxxxxxx|xxx     |        |: multiples of a block

File systems that have no such reads say so, and are read through the cache.

(Once or again: Johnson and Shasha, 2Q, 1994: what is read for the first time does not drive out what is used.)
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

BLOCK = 4096  # bytes; that of disks and of pages, or a multiple of it
PIECE = 1 << 30  # bytes of a request, at most: of more, systems read a part

_mincore = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class Buffer:
    """Memory for one range after another: fresh pages would cost about as much as to copy into them."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def blocks(self, size: int) -> Bytes:
        """Blocks with room for so many bytes, whose content is whatever was there."""
        size = -(-size // BLOCK) * BLOCK
        if size + BLOCK > self._memory.nbytes:
            self._memory = np.empty(size + BLOCK, np.uint8)
        first = -self._memory.ctypes.data % BLOCK
        return self._memory[first : first + size]

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array in it."""
        size = dtype.itemsize * math.prod(shape)
        return self.blocks(size)[:size].view(dtype).reshape(shape)


def check(path: str, needed: int) -> int:
    """The length of a file; FileNotFoundError and OSError, with the path, where it is not there or too short."""
    try:
        length = os.stat(path).st_size
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is not there: each worker must see the file by this path") from error
    if length < needed:
        raise _cut_off(path, needed, length)
    return length


def _cut_off(path: str, needed: int, length: int) -> OSError:
    return OSError(f"{path} is cut off: {needed} bytes are needed, and it has {length}")


def read(path: str, at: int, size: int, buffer: Buffer, past: bool) -> Bytes:
    """A range of a file; past the cache where that is wanted, the cache does not have it, and the file system can."""
    before = at % BLOCK
    memory = buffer.blocks(before + size)
    found = memory[before : before + size]
    past = past and not _is_cached(path, at, size)
    if not (past and _read_past(path, at - before, before + size, memory)):
        _read(path, 0, at, size, found)
    return found


@contextmanager
def _opened(path: str, flags: int = 0) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | flags)
    try:
        yield file
    finally:
        os.close(file)


def _read(path: str, flags: int, at: int, size: int, memory: Bytes) -> None:
    """Read at least so many bytes into memory that may have room for more."""
    done = 0
    with _opened(path, flags) as file:
        while done < size:
            count = os.preadv(file, [memory[done : done + PIECE].data], at + done)
            if count == 0:
                raise _cut_off(path, at + size, at + done)
            done += count


def _read_past(path: str, at: int, size: int, memory: Bytes) -> bool:
    """Read past the cache, from a block of the file to blocks of memory; False where the file system cannot."""
    try:
        _read(path, os.O_DIRECT, at, size, memory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def _is_cached(path: str, at: int, size: int) -> bool:
    """Whether the system's cache has at least half of a range; of files of others, systems say that it has."""
    if size == 0:
        return True
    first = at // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    length = at + size - first
    pages = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
    with _opened(path) as file, mmap.mmap(file, length, prot=mmap.PROT_READ, offset=first) as mapped:
        address = np.frombuffer(mapped, np.uint8).ctypes.data  # no page of it is read
        if _mincore(address, length, pages.ctypes.data):
            raise OSError(ctypes.get_errno(), "mincore")
    return bool(2 * np.count_nonzero(pages & 1) >= len(pages))


def available() -> int:
    """The bytes that the system's cache may have."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
