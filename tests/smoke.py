"""A smoke test of an installed Adze: a script, run in isolated mode from an empty folder.

    cd "$(mktemp -d)" && /path/to/venv/bin/python -I /path/to/adze/tests/smoke.py

It fails unless Adze comes from site-packages with its folders whole, and a small program evaluates,
differentiates and compiles to the right numbers. What needs a package that is not installed says which.
"""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

import adze as az


def check_installation() -> None:
    """Adze lies in site-packages, and what are links in the source tree are folders there."""
    assert az.__file__ is not None
    package = Path(az.__file__).parent
    site = Path(sysconfig.get_path("purelib"))
    assert package.resolve() == (site / "adze").resolve(), f"adze was imported from {package}, not from {site}"
    for name in ("core", "interpreters", "ad", "backends", "solvers", "interop", "pages", "commands"):
        folder = package / name
        assert folder.is_dir() and not folder.is_symlink(), f"{folder} is not a real folder"
    assert (package / "py.typed").is_file(), "py.typed is missing"
    assert "</style>" in str(az.explore(f, kernels=False)), "the style of pages is missing"


@az.program
def f(x: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(x * x)


def check_program() -> None:
    """Value and gradient, evaluated and compiled. The numbers are exact in floating point."""
    x = np.array([0.5, -1.0, 2.25, 4.0])
    value, gradient = 22.3125, 2 * x
    text = az.pretty(f)
    print(text)
    assert isinstance(text, str) and text.strip()
    np.testing.assert_array_equal(az.evaluate(f)(x), value)
    np.testing.assert_array_equal(f(x), value)
    np.testing.assert_array_equal(az.evaluate(az.grad(f))(x), gradient)
    np.testing.assert_array_equal(az.grad(f)(x), gradient)
    for threads in (1, 2):
        np.testing.assert_array_equal(az.compile(f, threads=threads)(x), value)
        np.testing.assert_array_equal(az.compile(az.grad(f), threads=threads)(x), gradient)


def check_commands() -> None:
    """The command line is there, as a module and as a script."""
    for command in ([sys.executable, "-I", "-m", "adze"], [str(Path(sys.executable).with_name("adze"))]):
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        assert said == f"adze {az.__version__}\n", said


def check_opencl() -> None:
    """Without pyopencl everything else works, and what needs it says how one gets it."""
    if importlib.util.find_spec("pyopencl") is None:
        for needs_it in (az.devices, lambda: az.to_device(1.0)):
            try:
                needs_it()
            except ImportError as error:
                assert "pip install 'adze-lang[opencl]'" in str(error), error
            else:
                raise AssertionError("OpenCL without pyopencl")


if __name__ == "__main__":
    check_installation()
    check_program()
    check_commands()
    check_opencl()
    print("smoke test passed")
