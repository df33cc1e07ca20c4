"""The benchmark of devices runs, and says what it measured; no test looks at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *options]
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


FEW = ("reduce", "histogram", "product", "kmeans")
ALL = ("reduce", "scan", "histogram", "gather", "scatter", "product", "gmm", "kmeans", "lstm")


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("programs", [FEW, pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "all"])
def test_the_benchmark_of_devices_runs_at_small_sizes(programs: tuple[str, ...], tmp_path: Path) -> None:
    """Its own checks against evaluate and LLVM are part of the run; a failure is its exit status."""
    done = run("--quick", "--programs", *programs, "--output", str(tmp_path / "gpu.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in (tmp_path / "gpu.md").read_text(encoding="utf-8").splitlines() if " % |" in line]
    assert [row.split()[1] for row in rows] == [program for program in programs for _ in ("gradient", "primal")]


def test_without_a_device_the_benchmark_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    done = run("--quick", OCL_ICD_VENDORS=str(tmp_path), ADZE_OPENCL_DEVICE="")
    assert done.returncode == 0 and done.stdout.startswith("not measured: there is no OpenCL driver"), done.stdout
