"""Files that outlive the process: what was made once for a key is read the next time, by whatever process.

An entry is a file with the key's name. It is written beside its place and moved there in one step, so that a reader
finds all of it or none, however many processes write. It begins with a checksum of the key and the contents: what was
cut off, changed or renamed is no entry, is removed and is made anew. The time of a file is that of its last use; when
all entries together are larger than the bound, those that were not used for the longest time go.

Whatever goes wrong with files (no such folder, no permission, no space) means that there is no cache, and no error.
Files with other names are left alone, so the folder may be one that has other uses.

    ADZE_CACHE      the folder, or "off" or 0 (default: adze in XDG_CACHE_HOME, which is ~/.cache by default)
    ADZE_CACHE_MB   the bound in megabytes (default: 256)

A name that means no folder (of a user whom nobody knows, say) is ignored, as is an XDG_CACHE_HOME that is relative.

Entries hold machine code. So a folder, or an entry, that belongs to another user, or that the group or others can write
to, is not used, and one warning says so. The folder is made for its owner alone, and so are those around it that
are missing.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

from ..core.source import at_line

_SUFFIX = ".entry"
_UNFINISHED = ".unfinished"
_CHECKSUM = 20  # bytes
_LEFT_BEHIND = 3600  # seconds after which a file that nobody finished goes


def folder() -> Path | None:
    """Where entries are; None when there shall be none."""
    wanted = os.environ.get("ADZE_CACHE", "")
    if wanted in ("off", "0"):
        return None
    with suppress(RuntimeError):  # there is no such user
        if wanted:
            return Path(wanted).expanduser()
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (home if home.is_absolute() else Path.home() / ".cache") / "adze"
    except RuntimeError:
        return None


def bound() -> int:
    """How many bytes all entries may have together. ValueError when the environment says anything but a number."""
    wanted = os.environ.get("ADZE_CACHE_MB", "")
    if not wanted.strip():
        return 256_000_000
    try:
        megabytes = float(wanted)
    except ValueError:
        megabytes = math.nan
    if not 0 <= megabytes < math.inf:
        raise ValueError(f"ADZE_CACHE_MB must be a number of megabytes, got {wanted!r}")
    return int(megabytes * 1e6)


def fetch(key: str) -> bytes | None:
    """The contents of an entry, if there is one."""
    where = folder()
    if where is None:
        return None
    bound()  # which may be an error: then it is one on all calls, not on those alone that make an entry
    file = where / (key + _SUFFIX)
    try:
        if not _trusted(where, where, where.stat()):
            return None
        with open(file, "rb") as opened:
            if not _trusted(where, file, os.fstat(opened.fileno())):
                return None
            whole = opened.read()
    except OSError:
        return None
    checksum, contents = whole[:_CHECKSUM], whole[_CHECKSUM:]
    valid = checksum == _checksum(key, contents)
    with suppress(OSError):  # a folder that cannot be written to has entries, too
        if valid:
            os.utime(file)
        else:
            file.unlink()
    return contents if valid else None


def store(key: str, contents: bytes) -> None:
    """Make an entry; one that is there is replaced."""
    where = folder()
    if where is None:
        return
    try:
        for each in [each for each in (*reversed(where.parents), where) if not each.exists()]:
            each.mkdir(mode=0o700, exist_ok=True)
        if not _trusted(where, where, where.stat()):
            return
        handle, unfinished = tempfile.mkstemp(suffix=_UNFINISHED, dir=where)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_checksum(key, contents) + contents)
            os.replace(unfinished, where / (key + _SUFFIX))
        except OSError:
            os.unlink(unfinished)
            raise
        _shrink(where)
    except OSError:
        return


def _trusted(where: Path, path: Path, status: os.stat_result) -> bool:
    """Whether nobody but this user can have written to the folder, or to an entry in it; else one warning says why."""
    if status.st_uid != os.geteuid():
        problem = "belongs to another user"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = "can be written by others than its owner"
    else:
        return True
    if where not in _refused:
        _refused.add(where)
        message = f"code that is kept on disk is not used where {path} {problem}; ADZE_CACHE names another folder"
        warnings.warn(at_line(message), RuntimeWarning, stacklevel=2)
    return False


_refused: set[Path] = set()  # folders of which a warning has said so


def _checksum(key: str, contents: bytes) -> bytes:
    return hashlib.blake2b(contents, digest_size=_CHECKSUM, key=key.encode()[:64]).digest()


def _shrink(where: Path) -> None:
    """Remove what was not used for the longest time, as far as the bound asks for it, and what nobody finished."""
    found: list[tuple[float, int, str]] = []
    with os.scandir(where) as files:
        for file in files:
            status = file.stat()
            if file.name.endswith(_SUFFIX):
                found.append((status.st_mtime, status.st_size, file.path))
            elif file.name.endswith(_UNFINISHED) and status.st_mtime < time.time() - _LEFT_BEHIND:
                _remove(file.path)
    excess = sum([size for _, size, _ in found]) - bound()
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        _remove(path)
        excess -= size


def _remove(path: str) -> None:
    """Remove a file, unless another process did."""
    with suppress(FileNotFoundError):
        os.unlink(path)
