"""What is given away, and what runs elsewhere: the source distribution, the hosted CI, GradBench's image.

Nobody here can start what runs elsewhere. So its files are read: what they name has to be there.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import Any

import pytest
import pythons
import yaml
from load import ROOT

GRADBENCH = ROOT / "benchmarks" / "gradbench"
# What is no part of a checkout: environments, caches, what was built.
LEFT_OUT = shutil.ignore_patterns(
    ".venv",
    ".pythons",
    ".nox",
    ".git",
    ".fuzz",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "*.egg-info",
)


def run(command: list[str], cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done


# The hosted CI

# Actions by the versions that they have, and machines that are lent.
ACTIONS = {"actions/checkout": {"v4", "v5"}, "actions/setup-python": {"v5", "v6"}}
MACHINES = {"ubuntu-24.04": "x86-64", "ubuntu-24.04-arm": "AArch64"}


def workflow() -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"].values() for step in job["steps"]]


def test_the_hosted_workflow_has_the_keys_of_one() -> None:
    """By https://json.schemastore.org/github-workflow.json, of which these are the parts in use."""
    found = workflow()
    assert set(found) == {"name", True, "permissions", "jobs"}  # `on` is a truth value in YAML 1.1
    assert set(found[True]) <= {"push", "pull_request"}
    assert found["permissions"] == {"contents": "read"}
    for job in found["jobs"].values():
        assert set(job) <= {"strategy", "runs-on", "container", "timeout-minutes", "steps"}
        assert all(
            len({"uses", "run"} & set(step)) == 1 and set(step) <= {"uses", "run", "with"} for step in job["steps"]
        )


def test_the_hosted_workflow_runs_on_both_processors() -> None:
    everything, others = workflow()["jobs"]["everything"], workflow()["jobs"]["pythons"]
    assert everything["runs-on"] == "${{ matrix.machine }}"
    assert {MACHINES[name] for name in everything["strategy"]["matrix"]["machine"]} == {"x86-64", "AArch64"}
    assert others["runs-on"] in MACHINES


def test_the_commands_of_the_hosted_workflow_are_those_of_the_repository() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = [shlex.split(step["run"]) for step in steps() if "run" in step]
    assert ["bash", ".ci/run"] in commands and (ROOT / ".ci" / "run").is_file()
    assert all(program == "bash" or (program == "make" and target in targets) for program, target in commands)


def test_the_actions_of_the_hosted_workflow_are_there() -> None:
    for name, _, version in [step["uses"].partition("@") for step in steps() if "uses" in step]:
        assert version in ACTIONS[name]


def test_the_hosted_workflow_has_all_pythons() -> None:
    (asked,) = [step["with"]["python-version"] for step in steps() if "with" in step]
    assert asked.split() == pythons.declared()
    assert workflow()["jobs"]["everything"]["container"].startswith(f"python:{pythons.declared()[0]}-")


# The source distribution


@pytest.mark.slow
def test_tests_run_from_the_source_distribution(tmp_path: Path) -> None:
    """It has all files of a checkout, and some tests that read such files pass in it."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=LEFT_OUT)
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), "."], checkout)
    (archive,) = tmp_path.glob("adze_lang-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    found = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    wanted = {path.relative_to(checkout) for path in checkout.rglob("*") if path.is_file()}
    missing = [str(path) for path in wanted if not {path, Path("adze", path)} & found]  # linked folders are there alone
    assert missing == [".gitignore"]
    chosen = ["tests/core/test_dims.py", "tests/project", "tests/commands", "-m", "not slow and not rest and not sweep"]
    own = {**os.environ, "PYTHONPATH": str(unpacked), "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    ended = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--typeguard-packages=", *chosen],
        unpacked,
        env=own,
    )
    assert " passed" in ended.stdout and " failed" not in ended.stdout


# GradBench's image


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    lines = dockerfile.read_text(encoding="utf-8").splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]


@pytest.mark.slow
def test_the_image_of_gradbench_is_made_and_answers(tmp_path: Path) -> None:
    """The Dockerfile step by step, in a folder instead of an image, and a new environment instead of its Python."""
    context, image, python = tmp_path / "gradbench", tmp_path / "image", tmp_path / "python"
    shutil.copytree(ROOT, context / "tools" / "adze" / "adze", symlinks=True, ignore=LEFT_OUT)  # as README.md says
    for name in ("Dockerfile", "README.md", "evals.txt"):
        shutil.copy(GRADBENCH / name, context / "tools" / "adze")
    path = os.pathsep.join([str(python / "bin"), os.environ["PATH"]])
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    entry: list[str] = []
    for name, what in instructions(context / "tools" / "adze" / "Dockerfile"):
        match name:
            case "FROM":
                assert what == f"python:{pythons.declared()[0]}-slim"
                venv.create(python, with_pip=True)
            case "WORKDIR":
                image = image / what.lstrip("/")
                image.mkdir(parents=True)
            case "COPY":
                source, to = what.split()
                shutil.copytree(context / source, image / to, symlinks=True)
            case "RUN":
                run(["sh", "-c", what], image, env=own)
            case "ENTRYPOINT":
                entry = json.loads(what)
            case "LABEL":
                assert what == "org.opencontainers.image.source=https://github.com/gradbench/gradbench"
            case _:
                raise AssertionError(f"{name}: an instruction that nobody plays here")
    messages = [
        {"id": 0, "kind": "start", "eval": "hello"},
        {"id": 1, "kind": "define", "module": "hello"},
        {"id": 2, "kind": "evaluate", "module": "hello", "function": "double", "input": 3.0},
    ]
    for options, threads in (([], 1), (["--multithreaded"], len(os.sched_getaffinity(0)))):
        said = "".join(f"{json.dumps(message)}\n" for message in messages)
        start, define, double = map(json.loads, run([*entry, *options], image, env=own, input=said).stdout.splitlines())
        assert start["tool"] == "adze" and start["config"]["threads"] == threads
        assert define["success"] and double["output"] == 6.0
