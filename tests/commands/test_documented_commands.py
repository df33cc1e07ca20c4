"""What docs/commands.md shows is what the commands print, and it names every command and every key of JSON."""

import json
import re
import shlex
from pathlib import Path

import pytest
from consoles import check_consoles, write_files
from load import ROOT
from opencl_device import device

from adze.commands import main
from adze.commands.main import COMMANDS

PAGE = ROOT / "docs" / "commands.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page shows, which is the current one, and a cache of its own."""
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


@pytest.mark.rest
@pytest.mark.unguarded
def test_the_page_shows_what_commands_print(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_out = False

    def is_there(mark: str) -> bool:
        nonlocal left_out
        try:
            device()
        except pytest.skip.Exception:
            left_out = True
        return not left_out

    def typed(command: str) -> str:
        name, *words = shlex.split(command)
        assert name == "adze"
        main(words)
        printed = capsys.readouterr()
        return printed.out + printed.err

    check_consoles(PAGE, PAGE.read_text(encoding="utf-8"), is_there, typed)
    if left_out:
        device()  # skips the test, and says what is missing


def test_the_page_has_every_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    heads = [name.strip() for head in re.findall(r"^## (.*)$", text, re.MULTILINE) for name in head.split(",")]
    for command in COMMANDS:
        assert command.name in heads


def keys(value: object) -> set[str]:
    """The keys of all objects in a value, but those of sizes."""
    if isinstance(value, list):
        return {key for part in value for key in keys(part)}
    if not isinstance(value, dict):
        return set()
    return {key for key in value if key != "sizes"} | {
        inner for key, part in value.items() if key != "sizes" for inner in keys(part)
    }


@pytest.mark.unguarded
def test_the_page_names_the_keys_of_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("| command | keys |")[2]
    named = set(re.findall(r"`(\w+)`", section))
    for line in (
        "show kmeans.py",
        "trace kmeans.py [[1,2]] [[0,0]]",
        "check kmeans.py",
        "cost kmeans.py",
        "cost kmeans.py n=10 d=2 k=2 --target llvm",
        "cache --list",
        "bench kmeans.py n=100 d=2 k=2 --seconds 0.01 --compare :with_numpy",
        "profile kmeans.py n=100 d=2 k=2",
        "cache --clear",
    ):
        assert main([*line.split(), "--json"]) == 0
        found = keys(json.loads(capsys.readouterr().out))
        assert found and found <= named, found - named
    assert main(["show", "--json"]) == 2
    assert keys(json.loads(capsys.readouterr().out)) <= named
