"""The unit tests on each Python that the package declares and this machine has, and with the lowest dependencies.

    make test-all-pythons                  # what has not passed at this state of the tree
    python tests/pythons.py -k primitives  # the same with arguments for pytest
    make next-python                       # what can be known of the next Python without one
    nox                                    # the same for who knows nox: noxfile.py

Each Python gets an environment in ``.pythons``, made once, with the package and what its tests need: the newest
packages, and for the lowest Python also one with the lowest versions of what ``pyproject.toml`` says that the package
needs. Where ``.pythons`` says that the same files have passed with the same arguments, nothing is run again: so a run
that was cut short is taken up where it was.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".pythons"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ".[test,examples]"
NEXT = "3.14"

# As in the Makefile, those tests that typeguard checks and those that it does not.
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
CHOSEN = [["-m", "not slow and not unguarded"], ["-m", "not slow and unguarded", "--typeguard-packages="]]
PASSED = [0, 5]  # 5: no test is selected


def declared() -> list[str]:
    """The versions of Python that the package is for: 3.11, 3.12, ..."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    return [match[1] for match in found if match]


def interpreter(version: str) -> str | None:
    """A Python of a version: the newest of pyenv's, or that on the path."""
    ours = sorted(
        (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"),
        key=lambda path: [int(part) for part in re.findall(r"\d+", path.parts[-3])],
    )
    return str(ours[-1]) if ours else shutil.which(f"python{version}")


def lowest() -> list[str]:
    """The packages that the package needs, in the lowest versions."""
    return [package.replace(">=", "==") for package in PROJECT["dependencies"]]


def environment(name: str, python: str) -> Path:
    """The Python of an environment, which is made if it is not there."""
    folder = FOLDER / name
    own = folder / "bin" / "python"
    needed = lowest() if name.endswith("-lowest") else PROJECT["dependencies"]
    optional = [package for extra in PROJECT["optional-dependencies"].values() for package in extra]
    wanted, stamp = "\n".join([EXTRAS, *needed, *optional]), folder / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *needed, "--editable", EXTRAS], cwd=ROOT, check=True)
        stamp.write_text(wanted)
    return own


def state() -> str:
    """A digest of all files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    digest = hashlib.sha256()
    for name in sorted(listed.stdout.decode().splitlines()):
        path = ROOT / name
        if path.is_file():
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def passes(own: Path, arguments: list[str]) -> bool:
    """Whether the unit tests pass."""
    runs = ([str(own), *PYTEST, *chosen, *arguments] for chosen in CHOSEN)
    return all(subprocess.run(command, cwd=ROOT).returncode in PASSED for command in runs)


def next_python() -> int:
    """Whether the package may work on the next Python, with which no test is run.

    There are wheels of what it needs, its files compile to byte code, if that Python is here, and mypy takes them.
    """
    python = interpreter(NEXT)
    wheels = ["--dry-run", "--ignore-installed", "--target", "nowhere", "--only-binary=:all:", "--python-version", NEXT]
    steps = [[sys.executable, "-m", "pip", "install", "--quiet", *wheels, *PROJECT["dependencies"]]]
    if python is None:
        print(f"this machine has no Python {NEXT}: nothing is compiled to byte code")
    else:
        steps.append([python, "-c", "import sys, compileall; sys.exit(not compileall.compile_dir('adze', quiet=1))"])
    steps.append([sys.executable, "-m", "mypy", "--strict", "--python-version", NEXT, "-p", "adze"])
    failed = [step for step in steps if subprocess.run(step, cwd=ROOT).returncode]
    for step in failed:
        print(f"failed: {' '.join(step)}")
    return bool(failed)


def main(arguments: list[str]) -> int:
    if arguments == ["--next"]:
        return next_python()
    FOLDER.mkdir(exist_ok=True)
    failed = []
    first = declared()[0]
    for name, version in [*[(version, version) for version in declared()], (f"{first}-lowest", first)]:
        python = interpreter(version)
        if python is None:
            print(f"{name}: this machine has no Python {version}")
            continue
        passed, key = FOLDER / f"{name}.passed", f"{state()} {arguments}"
        if passed.exists() and passed.read_text().startswith(key):
            print(f"{name}: passed, {passed.read_text().splitlines()[-1]}")
            continue
        own = environment(name, python)
        print(f"{name}: {own}", flush=True)
        if passes(own, arguments):
            passed.write_text(f"{key}\n{datetime.datetime.now():%Y-%m-%d %H:%M}")
        else:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all that are here passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
