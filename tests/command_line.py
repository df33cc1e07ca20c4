"""The fixture ``commands``: the command line in this process, in an empty folder with files of the test's own."""

import json
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MODELS = '''
"""Programs for tests of the command line."""

import adze as az


@az.program
def loss(x: az.Array[az.f64, "n"], w: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum((x * w) ** 2)


class Model:
    @az.program
    def norm(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(x * x)


@az.program
def picked(table: az.Array[az.f32, "m"], k: az.i64) -> az.f32:
    return table[k]


@az.program
def free(x):
    return az.sum(x)


@az.program
def polynomial(x: az.f64, coefficients: tuple) -> az.f64:
    total = coefficients[0]
    for c in coefficients[1:]:
        total = total * x + c
    return total


@az.program
def line(model: {"slope": az.f64, "offset": az.f64}, x: az.f64) -> az.f64:
    return model["slope"] * x + model["offset"]


slope = az.grad(loss, argnums=1)


def plain(x):
    return x


nameless = lambda x: x
number = 3
'''


@dataclass(frozen=True)
class Ran:
    """What a command left behind: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """The command line, in a folder."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Ran:
        """Run ``adze`` with these words."""
        from adze.commands import main

        code = main(list(words))
        printed = self.capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
        return file


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in an empty folder, where models.py is; it finds no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    made = CommandLine(tmp_path, capsys)
    made.write("models.py", MODELS)
    return made
