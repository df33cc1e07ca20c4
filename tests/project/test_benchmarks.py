"""The benchmarks run, and say what they measured; no test looks at a time."""

import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from load import ROOT, benchmark
from sampling import some

import adze as az


def run(*options: str, script: str = "gpu.py", **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


# How it is measured


def test_contenders_take_turns(module: Callable[[str], ModuleType]) -> None:
    called: list[str] = []

    def contender(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            called.append(name)
            time.sleep(seconds)

        return call

    runs = module("measure").in_turns([contender("a", 0.02), contender("b", 0.02)], 0.0, least=3, most=3)
    assert [len(row) for row in runs] == [3, 3] and all(row.min() >= 0.02 for row in runs)
    assert "".join(called) == "aabb" + 3 * "aabb"  # a look at how long they take, then an untimed call and a timed one


def test_what_takes_long_is_timed_once(module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    measure = module("measure")
    monkeypatch.setattr(measure, "WARMED", 0.005)
    monkeypatch.setattr(measure, "LONG", 0.01)
    called: list[None] = []
    (runs,) = measure.in_turns([lambda: (called.append(None), time.sleep(0.02))], 1.0)
    assert len(runs) == len(called) == 1


@pytest.mark.slow
def test_another_clock_may_be_read(module: Callable[[str], ModuleType]) -> None:
    """Rest takes no processor time, so a call that sleeps takes none by that clock."""
    (runs,) = module("measure").in_turns([lambda: time.sleep(0.02)], 0.0, least=2, most=2, clock=time.process_time)
    assert len(runs) == 2 and runs.max() < 0.01


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are confined on Linux")
def test_new_processes_are_confined(module: Callable[[str], ModuleType]) -> None:
    measure, before = module("measure"), os.sched_getaffinity(0)
    code = "import os; print('{\"cores\": %d}' % len(os.sched_getaffinity(0)))"
    with measure.confined(1):
        assert measure.fresh(["-c", code], 60) == [{"cores": 1}]
    assert os.sched_getaffinity(0) == before


def test_a_process_that_is_killed_is_told(module: Callable[[str], ModuleType]) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert module("measure").fresh(["-c", code], 60) == [{"failed": "ended by SIGSEGV"}]


def test_an_error_is_relative_and_knows_of_nan(module: Callable[[str], ModuleType]) -> None:
    error, nan = module("measure").error, math.nan
    assert error([np.array([1.0, 201.0])], [np.array([1.0, 200.0])]) == 1 / 200
    assert error([np.array([nan, math.inf])], [np.array([nan, math.inf])]) == 0
    with pytest.raises(AssertionError, match="NaN, where a number is expected"):
        error([np.array([nan])], [np.array([1.0])])
    with pytest.raises(AssertionError, match="shape"):
        error([np.zeros(2)], [np.zeros(3)])


# What is told


def measured(**medians: float) -> dict[str, Any]:
    names = {
        "adze": "Adze",
        "one": "Adze, 1 thread",
        "jax": "JAX, direct",
        "fast": "JAX, multiplied out",
        "np": "NumPy",
    }
    return {
        "moved": 1.6e8,
        "contenders": {
            names[name]: {"median": t, "low": t, "high": t, "least": t, "runs": 9} for name, t in medians.items()
        },
    }


def results(line: str, size: str, functions: dict[str, Any], **more: Any) -> dict[str, Any]:
    control = {"median": 4e-3, "low": 4e-3, "high": 4e-3, "least": 4e-3, "runs": 9}
    of_line = {
        "title": line,
        "functions": list(functions),
        "derivative": list(functions)[-1],
        "main": size,
        "sibling_of": "",
        "notes": "",
        "sizes": {size: {"numbers": {"n": 1}, "work": 6.0, "functions": functions}},
        **more,
    }
    machine = {"date": "2026-01-01", "processor": "P", "cores": "2 cores", "versions": "V"}
    controls = dict.fromkeys(("copy", "copy, 2 threads", "read", "read, 2 threads", "matrix product"), control)
    return {"module": {"machine": machine, "controls": controls, "lines": {line: of_line}}}


def test_bounds_are_of_the_fastest_version_of_a_peer(module: Callable[[str], ModuleType]) -> None:
    bounds, size = module("bounds"), "n=10000 k=1000 d=16"
    functions = {"cost": measured(adze=2.0, one=3.0, jax=90.0, fast=4.0), "direction": measured(adze=7.0, jax=100.0)}
    rows = {(row.work, row.bound): row for row in bounds.rows(results("kmeans", size, functions))}
    cost = rows[f"kmeans, {size}, cost", "at most 0.6 of JAX"]
    assert cost.met and cost.found.startswith("0.5 ")
    assert not rows[f"kmeans, {size}, direction", "at most 0.06 of JAX"].met
    assert not rows[f"kmeans, {size}, cost", "2 threads over 1: at least 1.7"].met
    assert rows["gmm, d=64 k=100 n=1000, gradient", "at most 0.07 of JAX"].met is None


def test_bounds_of_programs_over_chunks(module: Callable[[str], ModuleType]) -> None:
    def times(**medians: float) -> dict[str, Any]:
        return {name: {"median": t, "low": t, "high": t} for name, t in medians.items()}

    parts = {
        "memory": {
            "programs": {"step": {**times(plain=1.0, halves=0.8), "1": times(x=1.2)["x"], "2": times(x=0.6)["x"]}}
        },
        "peers": {"programs": {"step": times(ours=1.0, theirs=4.0)}},
        "file": {"gigabytes": 8, "programs": {"sum": {"cold": 3.0, "read": 2.5, "computed": 1.0, "megabytes": 1400}}},
        "rounds": times(step=0.2, bare=0.1),
        "graphs": {"chunks": 1000, "graph": 6.0, "depth": 10},
    }
    rows = list(module("bounds").over_chunks(parts))
    assert [(row.found, row.met) for row in rows] == [
        ("1.20", False), ("2.00; two plain processes, half each: 1.25", True), ("0.25", True), ("1.20", True),
        ("1400 MB", False), ("2.00", True), ("6.00 s", False), ("10", True),
    ]  # fmt: skip
    assert list(module("bounds").over_chunks({})) == []


@pytest.mark.rest
def test_tables_of_programs_over_chunks_are_of_what_is_kept() -> None:
    """In a process of its own, where ``programs`` are those of the benchmarks."""
    code = (
        "import large, report; print(large.tables(report.read_parts(report.RESULTS / 'large' / 'large.json')), end='')"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    made = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert made.stdout == (ROOT / "benchmarks" / "results" / "large.md").read_text(encoding="utf-8")


def test_bounds_on_one_core_are_of_processor_time(module: Callable[[str], ModuleType]) -> None:
    function = measured(adze=1.0, np=1.0) | {"one core": measured(adze=1.0, np=3.0)["contenders"]}
    rows = list(module("bounds").rows(results("normals", "n=10000000", {"primal": function})))
    (row,) = [row for row in rows if row.work.endswith("1 core") and row.work.startswith("normals")]
    assert row.bound == "at most 0.5 of NumPy" and row.met and row.found.startswith("0.333 ")


def test_planned_memory_is_bound(module: Callable[[str], ModuleType]) -> None:
    functions = {"primal": measured(adze=1.0), "gradient": measured(adze=1.0)}
    calls = {"gradient": {"Adze": {"seconds": 1.0, "planned": 3.3e6}}}
    rows = list(module("bounds").rows(results("monte carlo", "paths=1000000", functions, fresh=calls)))
    (row,) = [row for row in rows if row.work == "monte carlo, memory"]
    assert row.bound == "at most 10 MB" and row.met and row.found == "3.3 MB"


def test_bounds_by_memory_count_bytes_and_compare_gains(module: Callable[[str], ModuleType]) -> None:
    functions = {"primal": measured(adze=5e-3, one=4.75e-3, np=9e-3)}
    rows = list(module("bounds").rows(results("map", "n=10000000", functions)))
    found = {row.bound: row for row in rows if row.work.startswith("map")}
    assert found["at least 0.8 of a copy's bytes a second"].found == "0.8 (Adze, 1 thread 0.84)"
    assert found["2 threads over 1: at least 0.9 of a copy's 1.00"].met


def test_a_sibling_is_held_to_the_rate_of_its_line(module: Callable[[str], ModuleType]) -> None:
    both = results("tuned", "n=1", {"primal": measured(adze=1.0)})["module"]
    sibling = results("other", "n=1", {"primal": measured(adze=1.5)}, sibling_of="tuned")["module"]
    both["lines"] |= sibling["lines"]
    (row,) = [row for row in module("bounds").rows({"module": both}) if row.work.startswith("other")]
    assert row.bound == "at least 0.7 of the rate of tuned" and row.found == "0.67" and row.met is False


def test_compile_times_are_compared_with_the_fastest(module: Callable[[str], ModuleType]) -> None:
    calls = {
        "Adze": {"seconds": 1.0},
        "JAX": {"seconds": 2.0},
        "JAX, other": {"seconds": 0.5},
        "PyTorch": {"failed": ""},
    }
    functions = {"primal": measured(adze=1e-3), "gradient": measured(adze=1e-3)}
    (row,) = module("bounds").compile_times(results("l", "n=1", functions, fresh={"primal": {}, "gradient": calls}))
    assert row.met is False and row.found == "1.00 s (JAX 2.00, 0.50)"


Times = dict[str, float]


def everyday(*given: tuple[str, Times, Times], **more: Any) -> dict[str, Any]:
    """Lines with one function each, by their times on one core and on two; the last one has more."""
    lines: dict[str, Any] = {}
    for name, one, two in given:
        function = measured(**two) | {"one core": measured(**one)["contenders"]}
        record = results(name, "n=1", {"gradient": function}, everyday=True, library=["NumPy"])
        lines |= record["module"]["lines"]
    lines[name] |= more
    return {"module": record["module"] | {"lines": lines}}


WON: tuple[str, Times, Times] = ("won", {"adze": 1e-2, "jax": 2e-2, "np": 1e-3}, {"adze": 9e-3, "jax": 1e-2})
LOST: tuple[str, Times, Times] = ("lost", {"adze": 8e-2, "jax": 1e-2}, {"adze": 9e-3, "jax": 1e-2})
LIBRARY: tuple[str, Times, Times] = ("by a library", {"adze": 9e-2, "np": 1e-2}, {"adze": 9e-2, "np": 1e-2})


def test_everyday_programs_are_bound_together(module: Callable[[str], ModuleType]) -> None:
    """By the tools with the same algorithm alone; no line has a row of its own for its time or its compile time."""
    calls = {
        "Adze": {"seconds": 2.0, "peak": 3.0},
        "JAX": {"seconds": 1.0, "peak": 4.0},
        "Numba": {"seconds": 4.0, "peak": 1.0},
    }
    rows = list(module("bounds").rows(everyday(WON, LIBRARY, LOST, fresh={"gradient": calls})))
    found = {(row.work, row.bound): (row.found, row.met) for row in rows if row.met is not None}
    compiled = "compiled not above JAX or Numba, the slower of them"
    assert found == {
        ("everyday programs, 1 core", "same algorithm: not slower on 90 %"): ("50 % of 2", False),
        ("everyday programs, 1 core", "same algorithm: at most 1.5 of it"): ("1 above; 8 (lost, gradient)", False),
        ("everyday programs, 1 core", "same algorithm: at most 0.6 of it in the geometric mean"): ("2", False),
        ("everyday programs, 2 cores", "same algorithm: not slower on 90 %"): ("100 % of 2", True),
        ("everyday programs, 2 cores", "same algorithm: at most 1.5 of it"): ("0 above; 0.9 (won, gradient)", True),
        ("everyday programs, 2 cores", "same algorithm: at most 0.6 of it in the geometric mean"): ("0.9", False),
        ("everyday programs", compiled): ("1 of 1; 0.5 (lost)", True),
        ("everyday programs", "memory not above JAX"): ("1 of 1; 0.75 (lost)", True),
    }


def test_convolutions_may_reach_the_rate_of_a_product_instead(module: Callable[[str], ModuleType]) -> None:
    """The control's is 2e9 / 4e-3 operations a second in f64, and twice as many in f32; a gradient has three passes."""
    functions = {"primal": measured(adze=2e-3, jax=1e-3), "gradient": measured(adze=3e-3, jax=2e-3)}
    record = results("convolution", "n=1", functions, everyday=True)["module"]
    record["lines"]["convolution"]["sizes"]["n=1"]["work"] = 1e9
    rows = [row for row in module("bounds").rows({"convolutions": record}) if row.work.startswith("convolution")]
    assert [(row.found, row.met) for row in rows] == [
        ("2 (2 ms); 0.5 of the rate", False),
        ("1.5 (3 ms); 1 of the rate", True),
    ]


def test_everyday_programs_are_sorted_by_what_they_lose(module: Callable[[str], ModuleType]) -> None:
    report = module("report")
    _, _, text = report.everyday_text(list(report.all_measured(everyday(WON, LIBRARY, LOST))))
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()[2:]]
    assert [row[0].split(",")[0] for row in cells] == ["lost", "won", "by a library"]
    assert cells[1][1:7] == ["10", "0.5 (JAX, direct 20)", "10 (NumPy 1)", "9", "0.9 (JAX, direct 10)", ""]


def test_a_second_process_finds_what_the_first_left(module: Callable[[str], ModuleType]) -> None:
    code = (
        "import os, pathlib; left = pathlib.Path(os.environ['ADZE_CACHE']) / 'left'; "
        "print('noise'); print('{\"found\": %d}' % left.exists()); left.touch()"
    )
    assert module("measure").fresh(["-c", code], 60, times=2) == [{"found": 0}, {"found": 1}]
    assert module("measure").fresh(["-c", "raise ValueError('no')"], 60) == [{"failed": "ValueError: no"}]


def powers(x: az.Array[az.f64, "n"], times: int, scale: float = 2.0) -> az.Array[az.f64, "n"]:
    return scale * x**times


@az.program
def halved(x: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(az.while_loop(lambda s: az.sum(s) > 1, lambda s: az.sin(s) / 2, x))


FIRST = {
    "without annotations": (az.program(lambda x: 2 * x["a"]), ({"a": np.ones(1000)},), 8000),
    "static": (az.program(powers), (np.ones(1000), 3), 8000),
    "sizes that the run decides": (az.grad(halved), (np.ones(1000),), None),
}


@pytest.mark.parametrize("program, given, bytes", FIRST.values(), ids=FIRST)
def test_a_first_call(
    program: Any, given: tuple[Any, ...], bytes: int | None, module: Callable[[str], ModuleType]
) -> None:
    contenders = module("contenders")
    size = {"n": 1000}
    line = contenders.Line("line", "", [size], lambda n: given, contenders.adze({"f": program}), ("f",), size)
    found = module("run").first_call_of(line, "f", "Adze")
    assert found["seconds"] > 0 and found.get("planned", 0) >= (bytes or 0) and ("planned" in found) == bool(bytes)


# Programs that no suite has cases for


def test_sparse_kmeans_is_kmeans() -> None:
    values, columns = np.array([3.0, 4.0, 1.0, 2.0]), np.array([0, 2, 1, 2])
    rows, centroids = np.array([0, 2, 2, 4]), np.array([[3.0, 0.0, 3.0], [0.0, 1.0, 0.0]])
    dense = np.array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]])
    wanted = np.min(np.sum((dense[:, None] - centroids) ** 2, axis=2), axis=1).sum()
    assert benchmark("kmeans_sparse").cost(values, columns, rows, centroids) == wanted == 6.0


@pytest.mark.unguarded
def test_the_lstm_on_a_batch_is_its_formula() -> None:
    d, hidden, n, bs = 2, 3, 4, 5
    random = np.random.default_rng(0)
    shapes = [(d, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,), (hidden, d), (n, bs, d), (n, bs, d)]
    wx, wh, bias, wy, inputs, targets = given = [random.standard_normal(shape) for shape in shapes]
    h, c, off = np.zeros((bs, hidden)), np.zeros((bs, hidden)), []
    for x, target in zip(inputs, targets):
        i, f, o, g = np.split(x @ wx + h @ wh + bias, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        off.append(h @ wy - target)
    np.testing.assert_allclose(benchmark("lstm_batch").loss(*given), np.mean(np.square(off)), rtol=1e-12)


# The harness as a whole


def harness(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    """The records of the lines that were measured."""
    done = run(*options, "--smallest", "--seconds", "0.01", "--output", str(tmp_path), script="run.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "bench.md").read_text(encoding="utf-8").startswith("# Adze on the CPU\n")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.json")]
    return [line for record in records for line in record["lines"].values()]


@pytest.mark.slow
def test_the_benchmark_of_the_cpu_runs_alone(tmp_path: Path) -> None:
    found = [f for line in harness(tmp_path, "lse", "--alone") for f in line["sizes"]["n=10000"]["functions"].values()]
    assert len(found) == 4
    for function in found:
        assert function["contenders"].keys() == {"Adze", "Adze, 1 thread"}
        assert all(row["median"] > 0 and row["off"] == 0 for row in function["contenders"].values())


@pytest.mark.rest
def test_what_values_cost_is_told() -> None:
    done = run("--quick", script="values.py")
    assert done.returncode == 0, done.stderr
    assert "a list of 1000 numbers" in done.stdout and "a tree of 2047 nodes" in done.stdout


@pytest.mark.rest
def test_a_line_that_fails_is_told(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On one core here; what two cores gave is kept, and reported beside it."""
    run, size = module("run"), {"n": 1}
    line = module("contenders").Line("line", "", [size], lambda n: (np.ones(n),), [], ("f",), size)
    functions = {"f": {"moved": None, "contenders": measured(adze=1.0)["contenders"]}}
    timed = {"sizes": {"n=1": {"numbers": size, "work": None, "functions": functions}}}

    def fresh(command: list[str], timeout: float) -> list[dict[str, Any]]:
        return [{"failed": "ended by SIGSEGV"} if command[-2:] == ["--cores", "1"] else timed]

    monkeypatch.setattr(run, "fresh", fresh)
    monkeypatch.setattr(sys, "argv", ["run.py", "--alone", "--quick"])
    options = run.read_options()
    monkeypatch.setattr(run, "THREADS", 2)
    found = run.measure_line(line, True, options)
    assert found["failed"] == {"on 1 core": "ended by SIGSEGV"}
    record = results("line", "n=1", functions)["module"] | {"lines": {"line": found}}
    (tmp_path / "module.json").write_text(json.dumps(record), encoding="utf-8")
    module("report").write_reports(tmp_path)
    assert "Failed:\n\n- on 1 core: ended by SIGSEGV\n" in (tmp_path / "bench.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("cores, kept", [("2", "contenders"), ("1", "one core")])
def test_the_process_of_an_everyday_program(cores: str, kept: str) -> None:
    options = ("--alone", "--smallest", "--seconds", "0.01", "--rounds", "2", "2", "--cores", cores)
    done = run("--time", "convolution, depthwise", *options, script="run.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])["sizes"]["c=32 n=56"]["functions"]
    assert found.keys() == {"primal", "gradient"}
    for function in found.values():
        assert function.keys() == {"moved", kept} and function[kept].keys() == {"Adze"}
        assert function[kept]["Adze"]["least"] > 0 and function[kept]["Adze"]["runs"] == 2


@pytest.mark.slow
def test_an_ablation_alone() -> None:
    """A transformation of the scheduler, and a rule before it, switched off; results agree."""
    options = ("--smallest", "--seconds", "0.01", "--ablation", "unroll", "single_terms")
    done = run("lse", *options, script="run.py")
    assert done.returncode == 0, done.stdout + done.stderr
    head, row = done.stdout.splitlines()[-3], done.stdout.splitlines()[-1]
    assert [cell.strip() for cell in head.split("|")[2:-1]] == ["ms", "no unroll", "no single_terms"]
    assert all(float(cell) > 0 for cell in row.split("|")[2:-1])


MODULES = sorted(path.stem for path in (ROOT / "benchmarks" / "lines").rglob("*.py") if path.stem != "__init__")


@pytest.mark.slow
@pytest.mark.parametrize("module", some(MODULES, 8, long=0))
def test_all_contenders_agree(module: str, tmp_path: Path) -> None:
    """Whoever is off is named, and is the exit status; Jacobians (S20) among them."""
    assert harness(tmp_path, module)


@pytest.mark.slow
def test_two_packages_are_compared(tmp_path: Path) -> None:
    """One with itself, with annotations and without, so results have the same bits, and plans the same memory."""
    options = ("--bare", "--quick", "--threads", "1", "--output", str(tmp_path / "rows"))
    done = run(str(ROOT), "lse", *options, script="against.py")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows").read_text(encoding="utf-8"))
    assert {(row["line"], row["function"]) for row in rows} >= {("lse", "primal"), ("lse", "gradient")}
    assert all(row["same"] and row["peak"] == 1 and row["low"] <= row["ratio"] <= row["high"] for row in rows)
    assert done.stdout.count("same bits") == len(rows)


# Devices

FEW = ("reduce",)
ALL = ("reduce", "scan", "histogram", "gather", "scatter", "product", "gmm", "kmeans", "lstm")


@pytest.mark.usefixtures("opencl")
@pytest.mark.slow
@pytest.mark.parametrize("programs", some([FEW, ALL], 2, long=0), ids=["few", "all"])
def test_the_benchmark_of_devices_runs_at_small_sizes(programs: tuple[str, ...], tmp_path: Path) -> None:
    """Its own checks against evaluate and LLVM are part of the run; a failure is its exit status."""
    done = run("--quick", "--programs", *programs, "--output", str(tmp_path / "gpu.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in (tmp_path / "gpu.md").read_text(encoding="utf-8").splitlines() if " % |" in line]
    assert [row.split()[1] for row in rows] == [program for program in programs for _ in ("gradient", "primal")]


@pytest.mark.rest
def test_without_a_device_the_benchmark_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    done = run("--quick", OCL_ICD_VENDORS=str(tmp_path), ADZE_OPENCL_DEVICE="")
    assert done.returncode == 0 and done.stdout.startswith("not measured: there is no OpenCL driver"), done.stdout
