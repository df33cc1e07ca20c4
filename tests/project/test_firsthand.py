"""What docs/firsthand.md types in an empty folder, typed: its commands print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from consoles import check_consoles, write_files
from load import ROOT
from other_libraries import library

pytestmark = [pytest.mark.slow, pytest.mark.unguarded]

PAGE = ROOT / "docs" / "firsthand.md"
# What stands behind a mark needs these packages, and is skipped without them; what installs those without an extra.
NEEDED = {
    "with PyTorch": ["torch"],
    "with JAX": ["jax"],
    "with mkdocs": ["mkdocs", "material"],
    "with build and nox": ["build", "nox"],
}
INSTALL = {
    **dict.fromkeys(["mkdocs", "material"], "make .venv/.installed-docs"),
    **dict.fromkeys(["build", "nox"], "make .venv/.installed-dev"),
}
SECTIONS = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


def is_there(mark: str) -> bool:
    """True, or the test is skipped, or fails where all has to be there."""
    (packages,) = [packages for name, packages in NEEDED.items() if name in mark]
    for package in packages:
        library(package, INSTALL.get(package, ""))
    return True


@pytest.mark.parametrize("section", SECTIONS, ids=[section.partition("\n")[0][3:] for section in SECTIONS])
def test_what_is_typed_prints_what_is_shown(section: str, tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    around = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}
    own = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "ADZE": str(ROOT),
        "ADZE_CACHE": str(tmp_path / "entries"),
        "MYPYPATH": str(ROOT),
        "NO_COLOR": "1",
    }

    def typed(command: str) -> str:
        everything = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        printed = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=around | own, **everything).stdout
        return printed if printed.endswith("\n") or not printed else f"{printed}\n"

    check_consoles(PAGE, section, is_there, typed)
