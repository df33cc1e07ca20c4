"""The shape of the repository: the linked folders, the direction of imports, the checks at run time."""

import ast
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import typeguard
from count_construct import files, table
from load import ROOT

import adze as az
from adze.backends import pipeline
from adze.backends.llvm.host import host_target
from adze.core.constructs import CONSTRUCTS
from adze.core.program import as_program

pytestmark = pytest.mark.skipif(
    not (ROOT / "core").exists(), reason="of the repository: a source distribution has its folders in adze/ alone"
)

# What each folder may import of the others.
MAY_IMPORT = {
    "core": {"core"},
    "library": {"library", "core"},
    "interpreters": {"interpreters", "core"},
    "ad": {"ad", "core", "interpreters"},
    "backends": {"backends", "core", "interpreters"},
    "solvers": {"solvers", "backends", "ad", "interpreters", "library", "core"},
    "interop": {"interop", "backends", "ad", "core"},
    "pages": {"pages", "backends", "ad", "interpreters", "core"},
    "commands": {"commands", "pages", "interop", "solvers", "backends", "ad", "interpreters", "library", "core"},
}


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the absolute name of every import in a file of the package, also inside functions."""
    package = ["adze", *file.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            for alias in node.names:
                yield node.lineno, ".".join([*base, *filter(None, [node.module]), alias.name])


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_links(folder: str) -> None:
    link = ROOT / "adze" / folder
    assert link.is_symlink() and str(link.readlink()) == f"../{folder}"
    module = importlib.import_module(f"adze.{folder}")
    assert module.__name__ == f"adze.{folder}"


def test_what_few_programs_need_is_not_imported_at_once() -> None:
    heavy = ["scipy.sparse", "pyopencl", "matplotlib", "torch", "jax", "rich", "dask", "distributed"]
    script = f"import sys, adze; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_modules_have_one_name() -> None:
    for folder in MAY_IMPORT:
        wrong = [name for name in sys.modules if name == folder or name.startswith(f"{folder}.")]
        assert not wrong, f"imported without the package's name: {wrong}"


@pytest.mark.rest
@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_never_point_up(folder: str) -> None:
    wrong = []
    for file in sorted((ROOT / folder).rglob("*.py")):
        for line, name in imported(file):
            parts = name.split(".")
            if parts[0] in MAY_IMPORT or (parts[0] == "adze" and parts[1:2] not in [[f] for f in MAY_IMPORT[folder]]):
                wrong.append(f"{file.relative_to(ROOT)}:{line}: {name}")
    assert not wrong, f"{folder} may import only {sorted(MAY_IMPORT[folder])} of adze: " + ", ".join(wrong)


@pytest.mark.rest
def test_imports_have_no_circle() -> None:
    """Between files, also inside functions and for type checkers."""
    files = {}
    for file in [file for folder in MAY_IMPORT for file in (ROOT / folder).rglob("*.py")]:
        parts = file.relative_to(ROOT).with_suffix("").parts
        files[".".join(["adze", *parts]).removesuffix(".__init__")] = file
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        named = [name if name in files else name.rpartition(".")[0] for _, name in imported(file)]
        graph[module] = {name for name in named if name in files} - {module}
    graphlib.TopologicalSorter(graph).prepare()


NAMED = re.compile(r"(?:[a-z_]+/)+[a-z_]*\.py|(?<=`)[a-z_]+\.py(?=`)")


@pytest.mark.rest
def test_files_that_texts_name_are_there() -> None:
    """In documents and in docstrings: from the root, from ``backends/``, or a neighbour of what names it."""
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    texts += [file for folder in MAY_IMPORT for file in (ROOT / folder).rglob("*.py")]
    all_files = [f"/{file.relative_to(ROOT)}" for file in ROOT.rglob("*.py") if ".venv" not in file.parts]
    wrong = []
    for text in texts:
        for name in NAMED.findall(text.read_text(encoding="utf-8")):
            if not any(file.endswith(f"/{name}") for file in all_files):
                wrong.append(f"{text.relative_to(ROOT)}: {name}")
    assert not wrong, ", ".join(wrong)


def test_the_pipeline_is_as_its_table_says() -> None:
    """The pipeline enters modules in the order that its header says, and CONTRIBUTING.md."""
    named = re.findall(r"``((?:\w+/)+(?:\w+\.py)?)``", pipeline.__doc__ or "")
    assert len(named) > 15
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_back and frame.f_back.f_code.co_filename == pipeline.__file__:
            entered.update({name: None for name in named if f"/{name}" in frame.f_code.co_filename})

    instance = as_program(lambda x: az.sum(x)).at(az.Array[az.f64, "n"])
    sys.setprofile(note)
    try:
        (form, *_) = pipeline.forms_of(instance, host_target())
        pipeline.loops_of(form, "f", host_target(), checks=True)
    finally:
        sys.setprofile(None)
    assert list(entered) == named
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [a-z ]+ \| `backends/((?:schedule|lowering)/[^`]*)`", text, re.MULTILINE)
    assert list(dict.fromkeys(row for name in named for row in rows if name.startswith(row))) == rows


def is_bare(node: ast.expr) -> bool:
    """Whether a number is written there, other than the small ones that say nothing of a machine or a budget."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number not in (-1, 0, 1, 2)
        case ast.Constant(value=int() | float() as number):
            return number not in (-1, 0, 1, 2)
    return False


def test_numbers_of_the_scheduler_have_names() -> None:
    """Those by which it compares, multiplies and divides stand in ``backends/target.py``."""
    folders = [ROOT / "backends" / name for name in ("schedule", "lowering")]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    files += [file for file in [ROOT / "backends" / "cost.py"] if file.exists()]
    wrong = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Compare(left=left, comparators=others):
                    operands = [left, *others]
                case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.FloorDiv() | ast.LShift(), right=right):
                    operands = [left, right]
                case _:
                    continue
            wrong += [f"{file.relative_to(ROOT)}:{each.lineno}" for each in operands if is_bare(each)]
    assert not wrong, ", ".join(wrong)


@pytest.mark.guarded
def test_the_package_is_checked_at_run_time(request: pytest.FixtureRequest) -> None:
    assert request.config.getoption("typeguard_packages") == "adze"
    hooks = [finder for finder in sys.meta_path if type(finder).__module__.startswith(typeguard.__name__)]
    assert any(getattr(finder, "should_instrument", lambda name: False)(az.__name__) for finder in hooks)


def test_the_table_of_constructs_is_up_to_date() -> None:
    assert table() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "write it anew: tests/count_construct.py"


@pytest.mark.rest
@pytest.mark.parametrize("name", ["scan", "histogram"])
def test_few_files_name_a_construct(name: str) -> None:
    found = files(CONSTRUCTS[name])
    assert len(found) <= 15, ", ".join(found)


@pytest.mark.rest
def test_only_the_table_has_sets_of_constructs() -> None:
    """What several constructs have in common is asked of their rows."""
    wrong = []
    for file in [file for folder in MAY_IMPORT for file in sorted((ROOT / folder).rglob("*.py"))]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Compare(
                    ops=[ast.In() | ast.NotIn()], comparators=[ast.Tuple() | ast.List() | ast.Set() as held]
                ):
                    names = held.elts
                case ast.Call(func=ast.Name(id="frozenset"), args=[ast.Tuple() | ast.List() | ast.Set() as held]):
                    names = held.elts
                case ast.Assign(value=ast.Tuple() | ast.List() | ast.Set() as held, targets=[ast.Name(id=target)]):
                    names = [] if target == "__all__" else held.elts
                case _:
                    continue
            if names and all([isinstance(name, ast.Constant) and name.value in CONSTRUCTS for name in names]):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, ", ".join(wrong)
