"""``adze cache``: what it lists, what it removes, and what it does not touch. ``disk_cache.entries`` and ``clear``."""

import os
import stat
import time
from pathlib import Path

import pytest
from command_line import CommandLine

from adze.backends import disk_cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two entries, which is in use."""
    where = tmp_path / "entries"
    monkeypatch.setenv("ADZE_CACHE", str(where))
    monkeypatch.delenv("ADZE_CACHE_MB", raising=False)
    disk_cache.store("first", b"1" * 980)
    disk_cache.store("second", b"2" * 1980)
    os.utime(where / "first.entry", (1e9, 1e9))
    return where


def test_entries_are_listed(folder: Path, commands: CommandLine) -> None:
    ran = commands("cache", "--list", "--json")
    first, second = sorted(ran.data["entries"], key=lambda entry: entry["key"])
    assert first == {"key": "first", "bytes": 1000, "used": 1e9}
    assert second["bytes"] == 2000 and abs(second["used"] - time.time()) < 600
    assert [entry["key"] for entry in ran.data["entries"]] == ["second", "first"]
    day = time.strftime("%Y-%m-%d", time.localtime(1e9))
    assert f"first   1 kB  {day}" in commands("cache", "--list").out
    assert commands("cache", "--size").out == "3 kB in 2 entries, of 256.0 MB at most\n"
    ran = commands("cache")
    assert f"folder   {folder}\n" in ran.out and "entries  2\n" in ran.out and "3 kB, of 256.0 MB" in ran.out


def test_looking_changes_nothing(folder: Path, commands: CommandLine) -> None:
    before = {file.name: file.stat().st_mtime for file in folder.iterdir()}
    for words in (["--list"], ["--size"], []):
        commands("cache", *words)
    assert before == {file.name: file.stat().st_mtime for file in folder.iterdir()}
    assert disk_cache.fetch("first") == b"1" * 980


def test_only_entries_are_removed(folder: Path, commands: CommandLine, tmp_path: Path) -> None:
    """Not what only has their names: other contents, other names, links to entries, folders, pipes."""
    whole = (folder / "first.entry").read_bytes()
    outside = tmp_path / "outside.entry"
    (tmp_path / "elsewhere").mkdir()
    outside.write_bytes(whole)
    others = [
        "cut.entry",
        "renamed.entry",
        "notes.txt",
        "link.entry",
        "loop.entry",
        "folder.entry",
        "pipe.entry",
        "empty.entry",
    ]
    (folder / "cut.entry").write_bytes(whole[:-1])
    (folder / "renamed.entry").write_bytes(whole)
    (folder / "notes.txt").write_text("mine")
    (folder / "empty.entry").write_bytes(b"")
    (folder / "link.entry").symlink_to(outside)
    (folder / "loop.entry").symlink_to(folder / "loop.entry")
    (folder / "folder.entry").mkdir()
    os.mkfifo(folder / "pipe.entry")
    (folder / "second.entry").rename(folder / "kept")
    (folder / "second.entry").symlink_to(folder / "kept")  # it is an entry, but a link leads to it
    ran = commands("cache", "--clear", "--json")
    assert ran.code == 0 and ran.data["removed"] == 1 and ran.data["bytes"] == 1000
    assert ran.data["left"] == sorted([*others, "kept", "second.entry"])
    assert sorted(file.name for file in folder.iterdir()) == ran.data["left"]
    assert outside.read_bytes() == whole
    assert "left alone what is no entry of Adze's: cut.entry, " in commands("cache", "--clear").out


def test_a_folder_that_is_a_link_is_not_followed(
    folder: Path, commands: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "link"))
    for words in (["--clear"], ["--list"]):
        ran = commands("cache", *words)
        assert (
            ran.code == 1
            and f"link is a link, which is not followed; let ADZE_CACHE name the folder: {folder}" in ran.err
        )
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("words", [[], ["--list"], ["--size"], ["--clear"]])
def test_the_folder_of_another_user_is_refused(
    folder: Path, commands: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    ran = commands("cache", *words)
    assert ran.code == 1 and ran.out == f"not used: {folder}: it belongs to another user\n"
    with pytest.raises(PermissionError, match="belongs to another user"):
        disk_cache.clear()
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_others_may_write_to_is_refused(folder: Path, commands: CommandLine) -> None:
    folder.chmod(0o770)
    ran = commands("cache", "--clear")
    assert ran.code == 1 and "it can be written by others than its owner" in ran.out
    ran = commands("doctor", "--json")
    (found,) = [each for each in ran.data["findings"] if each["name"] == "cache"]
    assert (
        ran.err.startswith("RuntimeWarning: code that is kept on disk is not used, since ") and ran.err.count("\n") == 1
    )
    assert ran.code == 1 and found["state"] == "wrong" and found["mend"] == f"chmod 700 {folder}"
    folder.chmod(stat.S_IRWXU)
    assert commands("cache", "--clear").code == 0 and list(folder.iterdir()) == []


def test_no_folder(commands: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", "off")
    ran = commands("cache")
    assert ran.code == 0 and ran.out == "not used: the cache: ADZE_CACHE switches it off\n"
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "none" / "yet"))
    assert commands("cache", "--list").out == "no entries\n"
    assert commands("cache", "--clear", "--json").data["removed"] == 0 and not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "file"))
    ran = commands("cache")
    assert ran.code == 1 and ran.out == f"not used: {tmp_path / 'file'}: it is no folder\n"
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    monkeypatch.setenv("ADZE_CACHE_MB", "many")
    ran = commands("cache")
    assert ran.code == 1 and "ADZE_CACHE_MB must be a number of megabytes, got 'many'" in ran.err
