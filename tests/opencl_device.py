"""What tests of OpenCL run on: a device that builds kernels, and a simulator of one that finds races.

Both are fixtures. Where one is missing the test is skipped, with what to install; it fails instead if the environment
variable ADZE_REQUIRE_OPENCL is set, as it is in continuous integration. A whole module asks for the device by

    pytestmark = pytest.mark.usefixtures("opencl")

This module imports Adze late, so that the run-time checks of the tests see it imported first.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from adze.backends.opencl.devices import Device

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = Path("lib/oclgrind/liboclgrind-rt-icd.so")  # below the prefix of the program oclgrind


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail where OpenCL is required."""
    if os.environ.get("ADZE_REQUIRE_OPENCL"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@cache
def _chosen() -> Device | str:
    """The device of the tests, or why there is none."""
    from adze.backends.opencl.devices import choose

    try:
        return choose()
    except (ImportError, RuntimeError) as error:
        return str(error)


def device() -> Device:
    """The device that tests run on: what ADZE_OPENCL_DEVICE names, or the first that is usable."""
    found = _chosen()
    return missing(found) if isinstance(found, str) else found


@pytest.fixture
def opencl() -> Device:
    """A usable device."""
    return device()


def simulated(folder: Path, code: str, timeout: float = 120) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run Python code in a process whose only OpenCL device is Oclgrind's: the run, and what Oclgrind found wrong."""
    program = shutil.which("oclgrind")
    library = Path(program).resolve().parent.parent / LIBRARY if program else None
    if library is None or not library.is_file():
        missing("the simulator oclgrind is not installed: apt install oclgrind")
    if importlib.util.find_spec("pyopencl") is None:
        missing("pyopencl is not installed: pip install 'adze-lang[opencl]'")
    (folder / "oclgrind.icd").write_text(f"{library}\n")
    log = folder / "oclgrind.log"
    environment = {key: value for key, value in os.environ.items() if key != "ADZE_OPENCL_DEVICE"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "OCL_ICD_VENDORS": str(folder)}
    environment |= {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_CHECK_API": "1", "OCLGRIND_LOG": str(log)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    return run, log.read_text() if log.exists() else ""


@pytest.fixture
def oclgrind(tmp_path: Path) -> Callable[[str], str]:
    """Run Python code on a simulated device, and give back what it printed.

    The test fails if the code does, or if the simulator saw a data race, an access outside of memory, barriers that
    not all threads of a group reach, or a wrong call of OpenCL.
    """

    def checked(code: str) -> str:
        run, found = simulated(tmp_path, code)
        assert run.returncode == 0 and not found, f"{run.stdout}\n{run.stderr}\n{found}"
        return run.stdout

    return checked
