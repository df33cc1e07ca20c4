"""``adze cache``: the machine code that is kept on disk (``backends/disk_cache.py`` knows the files).

``--clear`` removes what has our name and our checksum, and nothing else; it follows no link.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from ..backends import disk_cache
from .command import Command
from .report import Line, Part, Report, Table

CLEAR = "adze cache --clear"


def _cache(options: Namespace) -> Report:
    where, problem = disk_cache.folder(), disk_cache.problem()
    data: dict[str, Any] = {"folder": None if where is None else str(where), "problem": problem}
    if problem is not None:
        return Report(data, [Line(f"not used: {where or 'the cache'}: {problem}")], failed=where is not None)
    assert where is not None
    if options.clear:
        return _cleared(data, where)
    found = _entries(where)
    total, bound = sum([entry.bytes for entry in found]), disk_cache.bound()
    data |= {"count": len(found), "bytes": total, "bound": bound}
    if options.size:
        return Report(data, [Line(f"{_size(total)} in {_count(len(found))}, of {_size(bound)} at most")])
    if options.list:
        data["entries"] = [{"key": each.key, "bytes": each.bytes, "used": each.used} for each in found]
        rows = [(each.key, _size(each.bytes), _when(each.used)) for each in found]
        return Report(data, [Table(("key", "size", "last use"), rows, "lrr") if rows else Line("no entries")])
    parts: list[Part] = [
        Table(
            (),
            [
                ("folder", str(where)),
                ("entries", f"{len(found)}"),
                ("size", f"{_size(total)}, of {_size(bound)} at most (ADZE_CACHE_MB)"),
            ],
            "lf",
        )
    ]
    return Report(data, parts)


def _entries(where: Path) -> list[disk_cache.Stored]:
    try:
        return disk_cache.entries()
    except OSError as error:
        raise _refused(where, error) from None


def _cleared(data: dict[str, Any], where: Path) -> Report:
    try:
        removed, left = disk_cache.clear()
    except OSError as error:
        raise _refused(where, error) from None
    total = sum([entry.bytes for entry in removed])
    data |= {"removed": len(removed), "bytes": total, "left": left}
    parts: list[Part] = [Line(f"removed {_count(len(removed))}, {_size(total)}, from {where}")]
    if left:
        parts.append(Line(f"left alone what is no entry of Adze's: {', '.join(left)}"))
    return Report(data, parts)


def _refused(where: Path, error: OSError) -> OSError:
    """The error about a folder that is not looked into, with the reason."""
    if where.is_symlink():
        return OSError(f"{where} is a link, which is not followed; let ADZE_CACHE name the folder: {where.resolve()}")
    return OSError(f"{error.strerror or error}: {where}" if error.strerror else str(error))


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _size(count: int) -> str:
    """A number of bytes, as ``ADZE_CACHE_MB`` counts them: a megabyte is a million."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.0f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _cache_options(parser: ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--list", action="store_true", help="the key, the size and the last use of each entry")
    one.add_argument("--size", action="store_true", help="how large all entries are together")
    one.add_argument("--clear", action="store_true", help="remove all entries, and nothing else")


CACHE = Command("cache", "Look at, or clear, the machine code that is kept on disk.", _cache, _cache_options)
