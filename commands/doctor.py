"""``adze doctor``: what Adze finds on this machine, what is missing, and the command that mends it.

A row is a question with an answer: "ok"; "missing", for what is optional and not there; "wrong", for what is there and
does not work, which is exit code 1. Nothing is changed, but that a small program is compiled and run.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from ..backends import disk_cache
from ..backends.compile import compile
from ..backends.llvm.host import host
from ..backends.opencl.devices import NO_PLATFORM, NO_PYOPENCL, devices
from ..backends.runtime import cpus, default_threads
from ..core.combinators import sum
from ..core.dims import Dim
from ..core.primitives import exp
from ..core.program import program
from ..core.progress import shown
from ..core.types import ArrayType, f64
from .command import Command, installed_version
from .report import Report, Table

OK, MISSING, WRONG = "ok", "missing", "wrong"
_FEATURES = ("sse2", "avx2", "fma", "avx512f", "neon", "sve")  # that the compiler or LLVM makes much of
_LIBRARIES = ("torch", "jax")  # optional packages, which extras of these names bring


@dataclass(frozen=True)
class Finding:
    """The answer to a question, and the command or the change that mends what is not ok."""

    name: str
    state: str
    detail: str
    mend: str = ""


def findings() -> Iterator[Finding]:
    """All questions, one after the other."""
    for question in (_versions, _packages, _processor, _vectors, _threads, _compiling, _cache, _opencl, _libraries):
        yield from question()


def _versions() -> Iterator[Finding]:
    yield Finding("Adze", OK, f"{installed_version()}, {Path(__file__).parent.parent}")
    yield Finding("Python", OK, f"{platform.python_version()}, {sys.executable}")


def _packages() -> Iterator[Finding]:
    names = ("numpy", "scipy", "llvmlite", "typeguard", "typing_extensions", "rich")
    yield Finding("packages", OK, ", ".join([f"{name} {_installed(name)}" for name in names]))


def _installed(name: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> Iterator[Finding]:
    present = {name for name, there in llvm.get_host_cpu_features().items() if there}
    features = [name for name in _FEATURES if name in present]
    target = host().target
    caches = f"{target.l1_bytes >> 10} KB and {target.l2_bytes >> 10} KB of cache"
    vectors = f"{target.registers} registers of {target.register_bytes} bytes"
    name = f"{platform.machine()}, {llvm.get_host_cpu_name()}"
    yield Finding("processor", OK, f"{name}: {', '.join(features)}; {vectors}; {caches}")
    if not target.multiply_add:
        slower = "no fused multiply-add: exp, log and their like are the C library's"
        yield Finding("multiply-add", MISSING, slower, "another processor; everything works, and slower")


def _vectors() -> Iterator[Finding]:
    routine = host().routine("atan", f64, 1)
    if routine is not None:
        yield Finding("libmvec", OK, f"{routine[1]} lanes of {routine[0]}")
    elif platform.machine() == "x86_64":
        lost = "functions of the C library are called lane by lane"
        yield Finding("libmvec", MISSING, lost, "apt install libc6 (glibc 2.22 or newer; musl has none)")
    else:
        yield Finding("libmvec", MISSING, "is for x86-64; functions of the C library are called lane by lane")


def _threads() -> Iterator[Finding]:
    said = os.environ.get("ADZE_THREADS", "").strip()
    try:
        count = default_threads()
    except ValueError as error:
        yield Finding("threads", WRONG, str(error), "unset ADZE_THREADS")
        return
    yield Finding(
        "threads", OK, f"{count}, of {cpus()} that this process may use" + (" (ADZE_THREADS)" if said else "")
    )


def _compiling() -> Iterator[Finding]:
    """Compile and run the sum of some exponentials, whose value is known."""

    def total(x: Any) -> Any:
        return sum(exp(x))

    total.__annotations__ = {"x": ArrayType(f64, (Dim.of("n"),))}
    code, x = compile(program(total)), np.linspace(-1.0, 1.0, 1001)
    value = float(code(x))
    expected = float(np.exp(x).sum())
    if abs(value - expected) <= 1e-12 * expected:
        (state, *_) = [each.state for each in code.specialisations if each.seconds > 0] or ["compiled"]
        yield Finding("compiling", OK, f"a small program: {state} in {code.compile_seconds:.2f} s, and right")
    else:
        wrong = f"a small program gives {value!r}, where NumPy gives {expected!r}"
        yield Finding("compiling", WRONG, wrong, "please report this, with the output of adze doctor --json")


def _cache() -> Iterator[Finding]:
    where, problem = disk_cache.folder(), disk_cache.problem()
    if where is None:
        yield Finding("cache", MISSING, f"none: {problem}", "unset ADZE_CACHE, or let it name a folder")
    elif problem is not None:
        yield Finding("cache", WRONG, f"{where} is not used: {problem}", _mended(where))
    elif not where.exists():
        yield Finding("cache", OK, f"{where}, which is made when something is compiled")
    else:
        yield Finding("cache", OK, f"{where}, mode {where.stat().st_mode & 0o777:o}; adze cache lists what is in it")
    try:
        disk_cache.bound()
    except ValueError as error:
        yield Finding("cache size", WRONG, str(error), "unset ADZE_CACHE_MB")


def _mended(where: Path) -> str:
    """What makes a cache folder one that is used."""
    try:
        own = where.stat().st_uid == os.geteuid()
    except OSError:
        own = False
    return f"chmod 700 {where}" if own and where.is_dir() else "export ADZE_CACHE=FOLDER, one of your own"


def _opencl() -> Iterator[Finding]:
    if _installed("pyopencl") is None:
        yield Finding("OpenCL", MISSING, "no package pyopencl", NO_PYOPENCL.partition(": ")[2])
        return
    try:
        found = devices()
    except (ImportError, RuntimeError) as error:
        yield Finding("OpenCL", WRONG, str(error), "pip install --force-reinstall pyopencl")
        return
    if not found:
        yield Finding("OpenCL", MISSING, NO_PLATFORM, "apt install pocl-opencl-icd")
    for device in found:
        name = f"{device.name} ({device.kind} of {device.platform})"
        if device.usable:
            yield Finding("OpenCL", OK, f"{name}, by pyopencl {_installed('pyopencl')}")
        else:
            mend = "reinstall its driver, or name another device: export ADZE_OPENCL_DEVICE=..."
            yield Finding("OpenCL", WRONG, f"{name} builds or runs no kernel: {device.problem}", mend)


def _libraries() -> Iterator[Finding]:
    for package in _LIBRARIES:
        version = _installed(package)
        if version is not None:
            yield Finding(package, OK, version)
        else:
            yield Finding(package, MISSING, "not installed", f"pip install 'adze-lang[{package}]'")


def _doctor(options: Namespace) -> Report:
    with shown("looking"):
        found = list(findings())
    rows = []
    for each in found:
        detail = each.detail if not each.mend else f"{each.detail}\n-> {each.mend}"
        rows.append((each.name, each.state, detail))
    wrong = any(each.state == WRONG for each in found)
    return Report({"findings": [asdict(each) for each in found]}, [Table((), rows, "llf")], failed=wrong)


def _no_options(parser: ArgumentParser) -> None:
    """There are none."""


DOCTOR = Command("doctor", "Look at this machine: what is missing, and what mends it.", _doctor, _no_options)
