"""What the documentation says is true: its code runs, its examples run, the README shows what they print.

Code that needs an OpenCL device stands behind the comment ``<!-- on a device -->``, what needs PyTorch or JAX behind
``<!-- with PyTorch -->`` or ``<!-- with JAX -->``. Without, it is left out, and the test of its document is skipped
once everything else in it has run.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load import ROOT, example
from opencl_device import device
from other_libraries import jax_with_x64, pytorch
from programs import CASES, Case

import adze as az
from adze.core import trees

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# what skips the test where it is not
NEEDED = {"<!-- on a device -->\n": device, "<!-- with PyTorch -->\n": pytorch, "<!-- with JAX -->\n": jax_with_x64}
A_FILE = r"<!-- file: \S+ -->\n"  # which is no step of its document: other tests type what is done with it
BLOCK = re.compile(rf"^({'|'.join([*NEEDED, A_FILE])})?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
UPDATE = bool(os.environ.get("UPDATE"))  # write what the code in documents gives instead of testing it

# The documents


def run(source: str, file: str, line: int, scope: dict[str, Any], mode: str) -> str:
    """What a piece of code prints, or the message of what it raises; messages find it at its place."""
    printed = io.StringIO()
    code = compile("\n" * (line - 1) + source, file, mode, dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, scope)
        except Exception as error:
            if mode == "exec":
                raise
            return "Traceback (most recent call last):\n" + "".join(traceback.format_exception_only(error))
    return printed.getvalue()


def as_shown(step: doctest.Example, output: str) -> str:
    """A step and its output as they stand in a document; source lines in messages are left out."""
    first, *rest = step.source.splitlines()
    lines = [f">>> {first}", *[f"... {line}".rstrip() for line in rest]]
    return "\n".join(lines) + "\n" + re.sub(r"/\S+\.md:\d+", "...", output)


def checked(document: Path, block: str, line: int, scope: dict[str, Any], wrong: list[str]) -> str:
    """Run a block that starts at a line, note what it shows wrongly, and give the block as it should be."""
    if not block.startswith(">>>"):
        run(block, str(document), line, scope, "exec")
        return block
    steps = []
    for step in doctest.DocTestParser().get_examples(block):
        output = run(step.source, str(document), line + step.lineno, scope, "single")
        if doctest.OutputChecker().check_output(step.want, output, FLAGS):
            output = step.want
        else:
            place = f"{document.name}:{line + step.lineno}"
            wrong.append(f"{place}: {step.source}expected:\n{step.want}got:\n{output}")
        steps.append(as_shown(step, output))
    return "".join(steps)


def is_there(mark: str) -> bool:
    try:
        NEEDED[mark]()
    except pytest.skip.Exception:
        return False
    return True


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_documents_runs(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Python block runs, in order, in one scope a document; steps (``>>>``) give what they show."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    text = document.read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "__main__", "az": az, "np": np}
    wrong: list[str] = []
    marks = dict.fromkeys([block[1] for block in BLOCK.finditer(text) if block[1] in NEEDED])
    missing = [mark for mark in marks if not is_there(mark)]

    def checked_block(match: re.Match[str]) -> str:
        mark, code = match[1] or "", match[2]
        if mark in missing or re.fullmatch(A_FILE, mark):
            return match[0]
        line = text.count("\n", 0, match.start(2)) + 1
        return f"{mark}```python\n{checked(document, code, line, scope, wrong)}```"

    right = BLOCK.sub(checked_block, text)
    if UPDATE:
        document.write_text(right, encoding="utf-8")
    else:
        assert not wrong, "\n".join([*wrong, "UPDATE=1 in the environment puts into the documents what was got"])
    for mark in missing:
        NEEDED[mark]()  # skips the test, and says what is missing


def test_links_in_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[\w-]+)?\)", document.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_manual_names_everything_that_is_public() -> None:
    manual = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    code = " ".join(re.findall(r"```.*?```|`[^`]+`", manual, re.DOTALL))
    assert [name for name in az.__all__ if not re.search(rf"\b{name}\b", code)] == []


def test_the_readme_shows_what_its_script_prints() -> None:
    readme = example("readme")
    if UPDATE:
        readme.write()
    made, shown = readme.pieces(), readme.shown((ROOT / "README.md").read_text(encoding="utf-8"))
    assert list(made) == list(shown)
    for name in made:
        assert shown[name] == made[name], f"{name}: UPDATE=1 in the environment puts it into the README"


# The examples, run as users run them


def output(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints when it is started in a folder."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.rest
def test_gmm(tmp_path: Path) -> None:
    text = output("gmm", tmp_path)
    assert re.match(r"The program:\s+def objective\(\s*alpha: f64\[k\],\s+mu: f64\[k, d\],", text)
    assert re.search(r"Its gradient has \d+ constructs, \d+ after simplification\.\n", text)
    took = r"\d+ (compiled|loaded from disk) in \d+\.\d\d s"
    assert len(re.findall(rf"  code by now: {took}( and {took})?, of \d+ specialisations by size", text)) == 3
    for sizes in ("d=2 k=5 n=1000", "d=2 k=25 n=1000", "d=10 k=25 n=1000"):
        assert sizes in text
    rows = re.findall(r"^  (evaluate|one thread|two threads) +[\d.]+ ms   error: (.*)$", text, re.MULTILINE)
    assert len(rows) == 9
    for _, row in rows:
        errors = dict(part.split() for part in row.split(", "))
        assert list(errors) == ["objective", "alpha", "mu", "q", "l"]
        assert all(float(error) <= 1e-10 for error in errors.values())
    assert text.count("agree bit for bit: yes") == 3


@pytest.mark.slow
def test_gmm_takes_a_file(tmp_path: Path) -> None:
    lines = (ROOT / "tests" / "data" / "gmm.jsonl").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "one.jsonl"
    file.write_text(lines[0] + "\n", encoding="utf-8")
    text = output("gmm", tmp_path, "one.jsonl")
    assert text.count("agree bit for bit: yes") == 1 and "d=2 k=5 n=1000" in text


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("new_primitive", "def loss(x: f64[n], y: f64[n]) -> f64:\n"),
        ("new_construct", "def loss(a: f64[n], x: f64[n]) -> f64:\n"),
        ("new_operation", "def cooling(heat: f64[rods, n], conductivity: f64[n]) -> f64:\n"),
        ("new_interpretation", "network(x) = "),
        ("readme", "-- program\nimport adze as az\n"),
        ("data_types", "def value(formula: Formula, x: f64) -> f64:\n"),
        ("dual_numbers", "def running(x: f64, y: f64) -> f64:\n"),
        ("stages", "-- written\ndef program(scores: f64[n, k]) -> f64[n, k]:\n"),
    ],
)
def test_example(name: str, start: str, tmp_path: Path) -> None:
    assert output(name, tmp_path).startswith(start)


@pytest.mark.rest
def test_phylogeny(tmp_path: Path) -> None:
    """The fit is more likely than the tree that made the data, and near to it."""
    text = output("phylogeny", tmp_path)
    values = [float(found) for found in re.findall(r": (-[\d.]+)$", text, re.MULTILINE)]
    assert len(values) == 5 and values[0] < values[1] < values[4] < values[2] <= values[3]
    off = re.search(r"^lengths are off by ([\d.]+) in the mean, ([\d.]+) at most$", text, re.MULTILINE)
    assert off is not None and float(off[1]) < 0.02 and float(off[2]) < 0.05


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers of a line of what an example prints."""
    found = re.search(rf"^{pattern}$", text, re.MULTILINE)
    assert found is not None, text
    return [float(number) for number in found.groups()]


@pytest.mark.rest
def test_gaussian_process(tmp_path: Path) -> None:
    text = output("gaussian_process", tmp_path)
    own, density = numbers(r"misfit at the start ([\d.]+); by scipy.stats ([\d.]+)", text)
    assert own == density
    assert numbers(r"gradient off from differences by (\S+)", text)[0] < 1e-3
    misfit, noise = numbers(r"fitted: misfit (-[\d.]+), size .*, noise ([\d.]+) \(made with 0.1\)", text)
    assert misfit < -20 and abs(noise - 0.1) < 0.03
    assert numbers(r"the mean is off from the function by ([\d.]+)", text)[0] < 0.06


@pytest.mark.rest
def test_kalman_smoother(tmp_path: Path) -> None:
    text = output("kalman_smoother", tmp_path)
    assert numbers(r"smoothed states off from least squares by (\S+)", text)[0] < 1e-9
    measured, smoothed = numbers(r"places are off by ([\d.]+) as measured, by ([\d.]+) as smoothed", text)
    assert smoothed < measured / 2
    assert numbers(r"gradient off from differences by (\S+) of it", text)[0] < 1e-4


@pytest.mark.rest
def test_option_greeks(tmp_path: Path) -> None:
    """Within four deviations of the means; the paths are not stored."""
    text = output("option_greeks", tmp_path)
    for name, deviation in (("price", 0.016), ("delta", 0.0006), ("vega", 0.08), ("rho", 0.05)):
        simulated, exact = numbers(rf"{name} +([\d.]+) +([\d.]+)", text)
        assert abs(simulated - exact) < 4 * deviation, name
    assert numbers(r"([\d.]+) MB, not 8 MB", text)[0] < 1


@pytest.mark.rest
def test_backends(tmp_path: Path) -> None:
    """Both codes, and results that agree; without a device, what is missing."""
    text = output("backends", tmp_path, "--backend", "opencl")
    assert text.startswith("The program:\ndef density(points: f32[n], places: f32[m], width: f32) -> f32[m]:\n")
    assert re.search(r"^backend=\"llvm\", .*\n[\w.]+:\n  %.* = phi .*\n(  .*\n)*.* call .*fma", text, re.MULTILINE)
    if not is_there("<!-- on a device -->\n"):
        assert "\nNo OpenCL here: " in text and "\nRun with llvm: " in text
        device()  # skips the rest
    assert re.search(
        r"^backend=\"opencl\" for <device .*\n// .*\n__attribute.*\nkernel void \w+\(\n", text, re.MULTILINE
    )
    ran = re.search(r"^Run with opencl: ([\d.]+) points are near ([\d.]+)\.$", text, re.MULTILINE)
    assert ran is not None
    assert abs(float(ran[1]) - 10_000 / 3) < 100  # 1 / sqrt(1 + 2 (0.1 / 0.05)^2) of them, and noise
    assert abs(float(ran[2]) - 0.5) < 0.02
    assert "\nThe results of both agree: " in text


def test_mandelbrot_counts_steps() -> None:
    """As Python counts them; after many more steps the rounding of compiled code may decide for another step."""
    mandelbrot = example("mandelbrot")
    real, imaginary = mandelbrot.grid(40, 32)
    times = np.zeros((32, 40), np.int64)
    for place in np.ndindex(*times.shape):
        x, y, a, b = 0.0, 0.0, real[place[1]], imaginary[place[0]]
        while x * x + y * y <= 4 and times[place] < 20:
            x, y = x * x - y * y + a, 2 * x * y + b
            times[place] += 1
    for language in (az.evaluate, az.compile):
        np.testing.assert_array_equal(language(mandelbrot.escape_times)(real, imaginary, 20), times)


@pytest.mark.rest
def test_mandelbrot_draws(tmp_path: Path) -> None:
    """The points of the set are black, and no others."""
    from matplotlib.image import imread

    text = output("mandelbrot", tmp_path, "--width", "150", "--limit", "50", "--output", "set.png")
    assert text.startswith("def escape_times(real: f64[w], imaginary: f64[h], limit: i64) -> i64[h, w]:\n")
    mandelbrot = example("mandelbrot")
    times = mandelbrot.escape_times(*mandelbrot.grid(150, 120), 50)
    assert f"18000 points, {times.sum()} steps, " in text
    picture = imread(tmp_path / "set.png")
    assert picture.shape == (120, 150, 4)
    np.testing.assert_array_equal(np.all(picture[..., :3] == 0, axis=-1), times == 50)


# The interpretation from outside the package means the same as those inside


def sample() -> list[Case]:
    """The programs that the example covers: all but those with empty arrays or arguments that are not numbers.

    Nor those that round numbers to integers: bounds of these are the limits of their type, which overflow.
    """
    empty = {
        "comparisons",
        "statistics",
        "slices",
        "differences",
        "prefix_sums",
        "fibonacci_table",
        "aindex_generate_1",
    }
    rounded = {"aindex_map_2", "aindex_map_3", "aindex_map_4", "aindex_acond", "acond_cond1", "cond_2"}
    return [
        case
        for case in CASES
        if case.name not in empty | rounded and all(parameter.type is not None for parameter in case.program.parameters)
    ]


@pytest.mark.unguarded
@pytest.mark.parametrize("case", sample(), ids=lambda case: case.name)
def test_bounds_contain_the_result(case: Case) -> None:
    intervals = example("new_interpretation")
    for arguments in case.arguments:
        if any(np.size(argument) == 0 or np.any(argument != argument) for argument in map(np.asarray, arguments)):
            continue
        results = trees.flatten(az.evaluate(case.program)(*arguments))[0]
        for exact, result in zip(intervals.bounds(case.program, *arguments), results, strict=True):
            np.testing.assert_allclose(exact.low, result, rtol=1e-12)
            np.testing.assert_allclose(exact.high, result, rtol=1e-12)
        boxes = [intervals.Interval(x - 0.25, x + 0.25) if np.asarray(x).dtype.kind == "f" else x for x in arguments]
        for box, result in zip(intervals.bounds(case.program, *boxes), results, strict=True):
            assert np.all(box.low <= result) and np.all(result <= box.high)


@pytest.mark.rest
def test_the_page_of_names_is_what_its_script_makes() -> None:
    """In a process of its own, where no test has made primitives of NumPy's functions."""
    script, page = ROOT / "examples" / "names.py", ROOT / "docs" / "names.md"
    made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    if UPDATE:
        page.write_text(made, encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert text == made, "UPDATE=1 in the environment writes it"
    for name in re.findall(r"`az\.([\w.]+)", text):
        found: Any = az
        for part in name.split("."):
            found = getattr(found, part)
