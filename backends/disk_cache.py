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

``entries``, ``clear`` and ``problem`` are for people who look after the folder (``adze cache``). They follow no link,
and take for an entry only what has our name and our checksum.

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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.source import warn_user
from ..core.stages import CACHE, subject

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
    except OSError as error:
        CACHE.debug("%s: no entry %s: %s", subject(), file, error.strerror)
        return None
    checksum, contents = whole[:_CHECKSUM], whole[_CHECKSUM:]
    valid = checksum == _checksum(key, contents)
    with suppress(OSError):  # a folder that cannot be written to has entries, too
        if valid:
            os.utime(file)
        else:
            file.unlink()
    CACHE.debug("%s: %s %s, %d bytes", subject(), "found" if valid else "damaged, and removed:", file, len(contents))
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
        CACHE.debug("%s: kept %s, %d bytes", subject(), where / (key + _SUFFIX), len(contents))
        _shrink(where)
    except OSError as error:
        CACHE.debug("%s: nothing is kept in %s: %s", subject(), where, error)


def _trusted(where: Path, path: Path, status: os.stat_result) -> bool:
    """Whether nobody but this user can have written to the folder, or to an entry in it; else one warning says why."""
    problem = _distrusted(status)
    if problem is None:
        return True
    if where not in _refused:
        _refused.add(where)
        instead = "let ADZE_CACHE name a folder of your own, or be off"
        warn_user(f"code that is kept on disk is not used, since {path} {problem}; {instead}", RuntimeWarning)
    return False


def _distrusted(status: os.stat_result) -> str | None:
    """Why somebody else than this user can have written to a folder or an entry; None when nobody can."""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by others than its owner"
    return None


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
        CACHE.debug("removed %s, %d bytes, as there is no room", path, size)
        excess -= size


def _remove(path: str) -> None:
    """Remove a file, unless another process did."""
    with suppress(FileNotFoundError):
        os.unlink(path)


# For people: what is there


@dataclass(frozen=True)
class Stored:
    """An entry: its key, its size in bytes, and when it was last used, in seconds since 1970."""

    key: str
    bytes: int
    used: float


def problem() -> str | None:
    """Why the folder is not used; None where it is, or would be made when something is kept for the first time."""
    where = folder()
    if where is None:
        return "ADZE_CACHE switches it off" if os.environ.get("ADZE_CACHE") else "there is no home folder to put it in"
    try:
        status = where.lstat()
    except FileNotFoundError:
        return _problem_of_missing(where)
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        status = where.stat() if where.exists() else status
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if _distrusted(status) is not None:
        return f"it {_distrusted(status)}"
    return None if os.access(where, os.R_OK | os.W_OK | os.X_OK) else "its permissions do not let this user write to it"


def _problem_of_missing(where: Path) -> str | None:
    """Why a folder that is not there cannot be made."""
    around = next((each for each in where.parents if each.exists()), Path("/"))
    return None if os.access(around, os.W_OK | os.X_OK) else f"it is not there, and {around} may not be written to"


def entries() -> list[Stored]:
    """The entries, the one that was used last first. Raises OSError where the folder is a link or cannot be read."""
    with _Opened() as files:
        found = [entry for _, entry in files.checked() if entry is not None]
    return sorted(found, key=lambda entry: (-entry.used, entry.key))


def clear() -> tuple[list[Stored], list[str]]:
    """Remove all entries: those that are gone, and the names of the files that are none and were left alone.

    PermissionError where the folder is another user's, or others can write to it; OSError where it is a link.
    """
    removed, left = list[Stored](), list[str]()
    with _Opened() as files:
        files.refuse_others()
        for name, entry in files.checked():
            if entry is None:
                left.append(name)
            else:
                files.remove(name)
                removed.append(entry)
    return removed, sorted(left)


class _Opened:
    """The folder, opened once: what happens to its path meanwhile leads nowhere else. Links in it are not followed."""

    def __enter__(self) -> _Opened:
        self._where = folder()
        self._handle: int | None = None
        if self._where is not None:
            with suppress(FileNotFoundError):
                self._handle = os.open(self._where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def refuse_others(self) -> None:
        wrong = None if self._handle is None else _distrusted(os.fstat(self._handle))
        if wrong is not None:
            raise PermissionError(f"{self._where} {wrong}")

    def checked(self) -> Iterator[tuple[str, Stored | None]]:
        """The names of all files, with the entry that each is; None for what is none."""
        for name in sorted(os.listdir(self._handle)) if self._handle is not None else []:
            yield name, self._entry(name)

    def _entry(self, name: str) -> Stored | None:
        if not name.endswith(_SUFFIX):
            return None
        try:
            # without waiting: a pipe of this name has no contents
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=self._handle), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    return None
                whole = file.read()
        except OSError:
            return None
        key = name.removesuffix(_SUFFIX)
        valid = whole[:_CHECKSUM] == _checksum(key, whole[_CHECKSUM:])
        return Stored(key, status.st_size, status.st_mtime) if valid else None

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):  # another process did
            os.unlink(name, dir_fd=self._handle)
