"""What docs/firsthand.md types in an empty folder, typed: its commands print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from consoles import check_consoles, write_files
from load import ROOT
from other_libraries import pytorch

pytestmark = [pytest.mark.slow, pytest.mark.unguarded]

PAGE = ROOT / "docs" / "firsthand.md"
SECTIONS = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("section", SECTIONS, ids=[section.partition("\n")[0][3:] for section in SECTIONS])
def test_what_is_typed_prints_what_is_shown(section: str, tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    own = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "ADZE": str(ROOT),
        "ADZE_CACHE": str(tmp_path / "entries"),
        "MYPYPATH": str(ROOT),
        "NO_COLOR": "1",
    }

    def typed(command: str) -> str:
        everything = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        printed = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=os.environ | own, **everything).stdout
        return printed if printed.endswith("\n") or not printed else f"{printed}\n"

    check_consoles(PAGE, section, lambda mark: bool(pytorch()), typed)  # without it, the section is skipped
