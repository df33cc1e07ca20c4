"""What docs/firsthand.md types in an empty folder, typed: its commands print what the page says.

A block behind ``<!-- file: NAME -->`` is a file, ``...`` in what is printed stands for what varies. With UPDATE=1 the
page gets what is printed now.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from load import ROOT
from other_libraries import pytorch

pytestmark = [pytest.mark.slow, pytest.mark.unguarded]

PAGE = ROOT / "docs" / "firsthand.md"
FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^(<!-- with PyTorch -->\n)?```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
UPDATE = bool(os.environ.get("UPDATE"))
SECTIONS = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("section", SECTIONS, ids=[section.partition("\n")[0][3:] for section in SECTIONS])
def test_what_is_typed_prints_what_is_shown(section: str, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {
        "PATH": path,
        "ADZE": str(ROOT),
        "ADZE_CACHE": str(folder / "entries"),
        "MYPYPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    wrong = []

    def typed(match: re.Match[str]) -> str:
        if match[1]:
            pytorch()
        steps = []
        for step in re.split(r"^\$ ", match[2], flags=re.MULTILINE)[1:]:
            command, _, want = step.partition("\n")
            everything = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            ran = subprocess.run(["bash", "-c", command], cwd=folder, env=os.environ | own, **everything)
            got = ran.stdout if ran.stdout.endswith("\n") or not ran.stdout else f"{ran.stdout}\n"
            if not doctest.OutputChecker().check_output(want, got, FLAGS):
                wrong.append(f"$ {command}\nexpected:\n{want}got:\n{got}")
                want = got
            steps.append(f"$ {command}\n{want}")
        return f"{match[1] or ''}```console\n{''.join(steps)}```"

    right = CONSOLE.sub(typed, section)
    if UPDATE:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page.replace(section, right), encoding="utf-8")
    else:
        assert not wrong, "\n".join(wrong)
