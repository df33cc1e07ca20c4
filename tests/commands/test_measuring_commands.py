"""``adze bench``, ``profile``, ``cost --target`` and ``doctor``: what they say of programs whose costs are known."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine

import adze as az
from adze.backends import roofline
from adze.backends.opencl import devices
from adze.commands import bench, doctor

pytestmark = pytest.mark.unguarded

FILE = """
import numpy as np
import adze as az

@az.program
def scaled(x: az.Array[az.f64, "n m"], t: az.f64) -> az.Array[az.f64, "n m"]:
    return t * x

@az.program
def doubled(x: az.Array[az.f64, "n m"], t: az.f64) -> az.Array[az.f64, "n m"]:
    return x * t + t * x

def with_numpy(x, t):
    return t * x

def other_shape(x, t):
    return (t * x)[0]

def none(x, t):
    raise ValueError("never")
"""


@pytest.fixture
def scaled(commands: CommandLine) -> CommandLine:
    commands.write("scaled.py", FILE)
    return commands


def test_bench_measures_a_program_by_its_sizes(scaled: CommandLine) -> None:
    words = ["n=500", "m=100", "--seconds", "0.02", "--threads", "1"]
    ran = scaled("bench", "scaled.py:scaled", *words, "--compare", ":with_numpy", "--json")
    assert ran.code == 0, ran.err
    data = ran.data
    assert data["sizes"] == {"n": 500, "m": 100} and data["generated"] == ["x: f64[n, m]", "t: f64"]
    assert data["operations"] == 50_000 and data["bytes"] == 800_000 and data["threads"] == 1
    for time in (data["time"], data["compare"]["time"]):
        assert 0 < time["least"] <= time["low"] <= time["median"] <= time["high"] and time["runs"] >= 5
    median = data["time"]["median"]
    assert data["bytes_a_second"] == pytest.approx(800_000 / median)
    assert data["compare"]["ratio"] == pytest.approx(data["compare"]["time"]["median"] / median)
    assert data["compare"]["agree"] and data["compare"]["difference"] == 0
    roof = data["roofline"]
    assert roof["bound"] == "memory" and roof["copied_bytes"] == 800_008
    assert roof["seconds"] == pytest.approx(800_000 / roof["bytes_a_second"])
    assert roof["share"] == pytest.approx(roof["seconds"] / median)


FUNCTIONS = """
from typing import Callable

import numpy as np
import adze as az

@az.program
def folded(x: az.Array[az.f64, "n"], f: az.Function[[az.f64, az.f64], az.f64], start: az.f64 = 2.0) -> az.f64:
    return az.fori_loop(0, x.shape[0], lambda i, s: f(s, x[i]), start)

@az.program
def turned(x: az.Array[az.f64, "n"], f: az.Function[[az.f64, az.f64], az.f64], start: az.f64 = 2.0) -> az.f64:
    return az.fori_loop(0, x.shape[0], lambda i, s: f(s, x[x.shape[0] - 1 - i]), start)

def with_numpy(x, f, start):
    return start + 3 * np.sum(x)

def more(a, b):
    return a + 3 * b

floats = folded.at()

@az.data
class Figure:
    class Point: ...

    class Circle:
        radius: az.f64

@az.program
def area(figure: Figure) -> az.f64:
    return az.case(figure, Point=lambda: 0.0, Circle=lambda radius: np.pi * radius**2)
"""


@pytest.mark.parametrize("compared", [":with_numpy", ":turned"])
@pytest.mark.parametrize("program", ["folded", "floats"])
def test_functions_are_compiled_with_the_program(commands: CommandLine, program: str, compared: str) -> None:
    commands.write("functions.py", FUNCTIONS)
    words = ["f=more", "start=1", "n=50", "--seconds", "0.001", "--threads", "1"]
    ran = commands("bench", f"functions.py:{program}", *words, "--compare", compared, "--json")
    assert ran.code == 0, ran.err
    assert ran.data["compare"]["agree"] and ran.data["sizes"] == {"n": 50}


def test_nests_name_the_lines_of_functions_and_of_what_calls_them(commands: CommandLine) -> None:
    file = commands.write("functions.py", FUNCTIONS)
    lines = file.read_text(encoding="utf-8").splitlines()
    of_function, of_call = [next(k for k, line in enumerate(lines, 1) if text in line) for text in ("a + 3", "x[i]")]
    for command in (["profile", "functions.py:folded"], ["cost", "functions.py:folded", "--target", "llvm"]):
        ran = commands(*command, "f=more", "n=50", "--json")
        assert ran.code == 0, ran.err
        (nest,) = ran.data["nests"]
        assert {line["line"] for line in nest["lines"]} == {of_function, of_call}
        assert {Path(line["file"]).name for line in nest["lines"]} == {file.name}


@pytest.mark.parametrize(
    "words", [["profile", "n=50"], ["dump", "--nests"], ["show", "--grad", "x"], ["grad"], ["cost"]]
)
def test_a_function_that_is_missing_is_asked_for(commands: CommandLine, words: list[str]) -> None:
    commands.write("functions.py", FUNCTIONS)
    command, *rest = words
    ran = commands(command, "functions.py:folded", *rest)
    assert ran.code == 2
    assert "the argument f: (f64, f64) -> f64 of " in ran.err and "Give f=NAME, a function of the file." in ran.err


@pytest.mark.parametrize("program", ["folded", "floats"])
def test_derivatives_have_functions_inside(commands: CommandLine, program: str) -> None:
    """That of start + 3 x[0] + 3 x[1] by x: functions are no parameters, whose places and numbers others keep."""
    commands.write("functions.py", FUNCTIONS)
    name, values = f"functions.py:{program}", ["[1,2]", "more", "start=5"]
    assert commands("grad", name, *values, "--json").data["result"] == [3.0, 3.0]
    assert commands("grad", name, *values, "--by", "2", "--value", "--json").data["result"] == [14.0, 1.0]
    assert commands("jvp", name, *values, "d_x=[1,10]", "d_start=0", "--json").data["result"] == [14.0, 33.0]
    assert "grad(folded)(x: f64[n], start: f64) -> f64[n]:" in commands("grad", name, "f=more").out
    assert " += 3.0\n" in commands("show", name, "--grad", "x", "f=more").out
    assert commands("cost", name, "f=more", "--json").data["operations"] == "2 n"
    assert commands("cost", name, "f=more", "n=5", "--json").data["operations"] == 10
    states = {each["name"]: each["state"] for each in commands("check", name, "--grad", "x", "--json").data["programs"]}
    assert list(states.values()) == ["not checked"]
    assert commands("check", name, "f=more", "--grad", "x", "--json").data["programs"][0]["state"] == "ok"


def test_code_and_pages_have_functions_inside(commands: CommandLine) -> None:
    commands.write("functions.py", FUNCTIONS)
    for words in (
        ["dump", "functions.py:folded", "f=more", "--nests"],
        ["dump", "functions.py:floats", "f=more", "--nests", "--grad", "x"],
    ):
        ran = commands(*words)
        assert ran.code == 0 and "3.0" in ran.out, ran.err
    ran = commands("explore", "functions.py:folded", "f=more", "--no-kernels", "--json")
    page = (commands.folder / ran.data["file"]).read_text(encoding="utf-8")
    assert "derivative" in ran.data["panels"] and "f(s, x[i])" in page and "return a + 3 * b" in page


def test_data_is_measured_as_a_whole(commands: CommandLine) -> None:
    commands.write("functions.py", FUNCTIONS)
    ran = commands("profile", "functions.py:area", '{"Circle": [2.0]}')
    assert ran.code == 0 and "the code has no loops" in ran.out
    ran = commands("bench", "functions.py:area", '{"Circle": [2.0]}', "--seconds", "0.001", "--json")
    assert ran.code == 0 and ran.data["time"]["least"] > 0


def test_the_file_is_executed_once(scaled: CommandLine) -> None:
    scaled.write("once.py", 'print("executed")\n' + FILE)
    ran = scaled("bench", "once.py:scaled", "n=3", "m=4", "--seconds", "0.001", "--compare", ":with_numpy")
    assert ran.code == 0 and ran.err == "executed\n"


def test_a_program_without_loops_has_no_roofline(commands: CommandLine) -> None:
    ran = commands("bench", "models.py:picked", "m=5", "--seconds", "0.001", "--threads", "1")
    assert ran.code == 0 and "roofline    says nothing: the estimate has no loops" in ran.out


@pytest.mark.rest
@pytest.mark.parametrize(
    ("compared", "difference"), [(":doubled", 0.5), ("scaled.py:other_shape", math.inf), (":scaled", 0.0)]
)
def test_results_that_differ_are_a_failure(scaled: CommandLine, compared: str, difference: float) -> None:
    words = ["n=3", "m=4", "--seconds", "0.001", "--threads", "1", "--compare", compared]
    ran = scaled("bench", "scaled.py:scaled", *words)
    assert ran.code == (1 if difference else 0)
    assert ("the results differ" if difference else "the results agree") in ran.out
    data = json.loads(scaled("bench", "scaled.py:scaled", *words, "--json").out)
    assert float(data["compare"]["difference"]) == pytest.approx(difference)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["n=3"], 2, "the size m of x: f64[n, m] is not known\nGive m=1000, say, or arrays.\n"),
        ([], 2, "the size n of x: f64[n, m] is not known\nGive m=1000 n=1000, say, or arrays.\n"),
        (["N=3"], 2, " and the sizes m, n\nDid you mean n?\n"),
        (["n=3", "m=4", "--compare", ":nothing"], 2, "scaled.py has no 'nothing'"),
        (["n=3", "m=4", "--compare", "nothing.py:f"], 2, "there is no file nothing.py"),
        (["n=3", "m=4", "--compare", ":np"], 2, "np is no program, but of type module"),
        (["n=3", "m=4", "--compare", ":none"], 1, "ValueError: never (at scaled.py:19)\n    raise ValueError("),
        (["n=3", "m=4", "--backend", "opencl", "--threads", "2"], 2, 'threads= is for backend="llvm"'),
    ],
)
def test_wrong_benchmarks(scaled: CommandLine, words: list[str], code: int, said: str) -> None:
    if "opencl" in words:
        devices_or_skip()
    ran = scaled("bench", "scaled.py:scaled", *words)
    assert ran.code == code and said in ran.err and ran.out == ""


def devices_or_skip() -> None:
    from opencl_device import device

    device()


def test_bench_on_a_device(opencl: Any, scaled: CommandLine) -> None:
    ran = scaled("bench", "scaled.py:scaled", "n=30", "m=4", "--backend", "opencl", "--seconds", "0.01", "--json")
    assert ran.code == 0 and ran.data["roofline"] is None and ran.data["threads"] is None


def test_differences_of_results() -> None:
    x = np.array([1.0, -4.0, np.inf, np.nan])
    root = float(np.sqrt(np.finfo(np.float64).eps))
    assert bench.differ(x, x) == (0.0, root)
    assert bench.differ(x, np.array([1.0, -3.0, np.inf, np.nan]))[0] == 0.25
    assert bench.differ(x, np.array([1.0, -4.0, -np.inf, np.nan]))[0] == math.inf
    assert bench.differ(x, np.array([1.0, -4.0, np.inf, 0.0]))[0] == math.inf
    assert bench.differ([1, 2], [1, 3]) == (math.inf, 0.0) and bench.differ([1, 2], [1, 2]) == (0.0, 0.0)
    assert bench.differ((x, x), x)[0] == math.inf
    assert bench.differ({"a": np.float32(1)}, [1.0])[1] == pytest.approx(3.45e-4, rel=0.01)


def test_the_roofline_is_the_longer_of_both() -> None:
    roof = roofline.Roofline(operations=100.0, bytes=10.0, copied=1 << 20, threads=1)
    assert roof.seconds(200, 10) == 2.0 and roof.bound(200, 10) == "arithmetic"
    assert roof.seconds(200, 30) == 3.0 and roof.bound(200, 30) == "memory"
    assert roofline.floating([np.dtype(np.float32), np.dtype(np.int64)]) is az.f32
    assert roofline.floating([np.dtype(np.float32), np.dtype(np.float64)]) is az.f64
    assert roofline.floating([np.dtype(np.int64)]) is az.f64


def test_what_the_roofline_measures_computes_what_it_says() -> None:
    """The chains of y * v + v, from v + k, against NumPy; the copy is of the other sign."""
    x = np.array([0.5, -0.25, 0.125])
    expected = x.copy()
    for k in range(roofline._CHAINS):
        y = x + k
        for _ in range(5 * roofline._UNROLLED):
            y = y * x + x
        expected += y
    assert az.evaluate(roofline._multiply_adds(az.f64))(x, 5) == pytest.approx(expected.sum(), rel=1e-14)
    np.testing.assert_array_equal(az.evaluate(roofline._copy(az.f64))(x), -x)


def test_profile_has_the_nests_of_the_estimate(scaled: CommandLine) -> None:
    ran = scaled("profile", "scaled.py:scaled", "n=300", "m=100", "--threads", "1", "--json")
    (nest,) = ran.data["nests"]
    assert ran.code == 0 and nest["operations"] == 30_000 and nest["bytes"] == 480_000 and nest["runs"] == 1
    assert 0 < nest["seconds"] <= ran.data["seconds"] and nest["estimated_seconds"] > 0
    assert nest["share"] == pytest.approx(nest["seconds"] / ran.data["seconds"])
    ran = scaled("cost", "scaled.py:scaled", "n=300", "m=100", "--target", "llvm", "--threads", "1", "--json")
    assert ran.data["nests"][0]["seconds"] == nest["estimated_seconds"] and ran.data["nests"][0]["share"] == 1.0


def test_profile_has_a_roofline(scaled: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    roof = roofline.Roofline(operations=1e9, bytes=4e9, copied=1 << 20, threads=1)
    monkeypatch.setattr(roofline, "measure", lambda *given: roof)
    words = ["profile", "scaled.py:scaled", "n=300", "m=100", "--threads", "1"]
    ran = scaled(*words, "--json")
    (nest,) = ran.data["nests"]
    assert nest["roofline_seconds"] == 120e-6 and ran.data["roofline"] == roof.as_data()
    ran = scaled(*words, "--plot", "nests.svg")
    assert re.search(r"estimate +roofline +operations", ran.out) and re.search(
        r"\d+% memory +3e\+04 +4\.8e\+05 ", ran.out
    )
    assert "\nroofline: 1 GFlop/s of multiply-adds, 4 GB/s of a copy\nnests.svg: the nests below the" in ran.out
    assert Path("nests.svg").read_text(encoding="utf-8").startswith("<svg")
    ran = scaled(*words, "--plot", "nests.png")
    assert ran.code == 2 and ran.err == "adze profile: a plot is a file that ends in .svg, and nests.png does not\n"


# What is on this machine, and what is not


def states(commands: CommandLine) -> dict[str, Any]:
    """The findings of doctor by their names, and its exit code."""
    ran = commands("doctor", "--json")
    return {"code": ran.code, **{each["name"]: each for each in ran.data["findings"]}}


def test_doctor_finds_what_is_there(commands: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    found = states(commands)
    assert found["compiling"]["state"] == "ok" and "and right" in found["compiling"]["detail"]
    assert np.__version__ in found["packages"]["detail"] and found["cache"]["state"] == "ok"
    for each in found.values():
        if isinstance(each, dict) and each["state"] != "ok":
            assert each["mend"] or each["name"] == "libmvec"


def no_threads() -> int:
    raise ValueError("ADZE_THREADS must be a positive integer, got 'none'")


def test_doctor_says_how_to_mend_what_is_missing(commands: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: None if name in ("pyopencl", "torch", "jax") else "1.0")
    monkeypatch.setattr(doctor, "default_threads", no_threads)
    found = states(commands)
    assert found["code"] == 1 and found["threads"]["mend"] == "unset ADZE_THREADS"
    assert found["OpenCL"]["mend"] == "pip install 'adze-lang[opencl]'" and found["OpenCL"]["state"] == "missing"
    assert (
        found["torch"]["mend"] == "pip install 'adze-lang[torch]'"
        and found["jax"]["mend"] == "pip install 'adze-lang[jax]'"
    )
    assert (
        found["cache"]["detail"] == "none: ADZE_CACHE switches it off" and "unset ADZE_CACHE" in found["cache"]["mend"]
    )


def test_doctor_and_devices_without_a_driver(commands: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl")
    monkeypatch.setattr(devices, "_listed", lambda: ())
    found = states(commands)
    assert found["code"] == 0 and found["OpenCL"]["state"] == "missing"
    assert found["OpenCL"]["mend"] == "apt install pocl-opencl-icd"
    ran = commands("devices")
    assert ran.code == 0 and "there is no OpenCL driver on this machine" in ran.out
    ran = commands("dump", "models.py:loss", "--opencl")
    assert ran.code == 1 and ran.err.startswith("RuntimeError: there is no OpenCL driver on this machine")


def test_doctor_finds_a_compiler_that_is_wrong(commands: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "exp", lambda x: x)
    found = states(commands)
    assert found["code"] == 1 and found["compiling"]["state"] == "wrong"


def test_explore_writes_a_page(scaled: CommandLine) -> None:
    ran = scaled("explore", "scaled.py:scaled", "n=5", "m=3", "--no-kernels", "--json")
    assert ran.code == 0, ran.err
    assert ran.data["file"] == "scaled.html" and "assembly" in ran.data["panels"]
    page = (scaled.folder / "scaled.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "return t * x" in page
    ran = scaled("explore", "scaled.py:scaled", "-o", "page.txt")
    assert ran.code == 2 and "a page is a file that ends in .html, and page.txt does not" in ran.err
