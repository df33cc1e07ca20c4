"""Adze as a tool of GradBench: sessions of its protocol, with answers from elsewhere.

Inputs and answers are those of tests/data where there are some, which GradBench's golden implementation computed. A
determinant and its gradient are NumPy's; of the two programs with derivatives inside of derivatives there is a second
version here, in which derivatives are complex steps and formulas.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from load import ROOT, benchmark, example

import adze as az

RUN = ROOT / "benchmarks" / "gradbench" / "run.py"
TOLERANCE = 1e-8
SECONDS = 0.01  # of runs of a function
NESTED = ("ff", "fr", "rf", "rr")  # forward and reverse mode, outside and inside
Message = dict[str, Any]


def answers(messages: Sequence[Message | str], *options: str) -> list[Message]:
    """What the tool answers in a session; a message may be a line that is none."""
    lines = "".join(f"{m if isinstance(m, str) else json.dumps(m)}\n" for m in messages)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(RUN), *options],
        input=lines,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(messages)
    return found


# What must come out: of each module some (function, input, output)

Expected = Iterator[tuple[str, Any, Any]]


def hello() -> Expected:
    for x in (3.0, -0.5):
        yield "square", x, x * x
        yield "double", x, 2 * x


def det() -> Expected:
    random = np.random.default_rng(1)
    for n in (1, 4):
        a = random.standard_normal((n, n))
        given = {"A": a.ravel().tolist(), "ell": n}
        yield "primal", given, np.linalg.det(a)
        yield "gradient", given, (np.linalg.det(a) * np.linalg.inv(a).T).ravel()


def gmm() -> Expected:
    for line in example("gmm").DATA.read_text(encoding="utf-8").splitlines()[:2]:
        record = json.loads(line)
        yield record["function"], record["input"], record["output"]


def of_data(module: str) -> Expected:
    """The cases of tests/data; some functions have longer names there, as the programs do."""
    for case in benchmark("cases").read_cases(module):
        for function, wanted in case.wanted.items():
            yield function.removeprefix("surface "), case.given, wanted


def descended(f: Callable[[np.ndarray], Any], slope: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """Where the descent leads that GradBench's solver describes; with complex numbers, whose real parts decide."""

    def length(v: np.ndarray) -> float:
        return float(np.sqrt(np.sum(v.real**2)))

    value, g, rate, steps = f(x), slope(x), 1e-5, 0
    while length(g) > 1e-5:
        if steps == 10:
            rate, steps = 2 * rate, 0
            continue
        to = x - rate * g
        if length(to - x) <= 1e-5:
            break
        there = f(to)
        if there.real < value.real:
            x, value, g, steps = to, there, slope(to), steps + 1
        else:
            rate, steps = rate / 2, 0
    return x


def by_complex_steps(f: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """The gradient of an analytic function at a real vector."""
    tiny = 1e-30
    return lambda x: np.array([f(x + 1j * tiny * e).imag / tiny for e in np.eye(len(x))])


def squared_miss(w: np.ndarray) -> Any:
    """How far from the origin the particle crosses the axis; its acceleration by a formula."""
    charges = np.array([[10.0, 10.0 - w[0]], [10.0, 0.0]])
    x, speed = np.array([0.0, 8.0]), np.array([0.75, 0.0])
    while ((x + 0.1 * speed)[1]).real > 0:
        away = x - charges
        force = np.sum(away / np.sum(away**2, axis=1, keepdims=True) ** 1.5, axis=0)
        x, speed = x + 0.1 * speed, speed + 0.1 * force
    return (x[0] - x[1] / speed[1] * speed[0]) ** 2


def particle() -> Expected:
    for w in (0.0, 0.3):
        found = descended(squared_miss, by_complex_steps(squared_miss), np.array([w]))[0]
        assert abs(found - 0.2071918746486116) < 1e-4  # GradBench's number, from 0
        for function in NESTED:
            yield function, {"w": w}, found


def saddle() -> Expected:
    for start in (np.array([1.0, 1.0]), np.array([0.5, -2.0])):
        found = saddle_point(start)
        for function in NESTED:
            yield function, {"start": start.tolist()}, found


def saddle_point(start: np.ndarray) -> np.ndarray:
    def height(x: np.ndarray, y: np.ndarray) -> Any:
        return np.sum(x**2) - np.sum(y**2)

    def highest(x: np.ndarray) -> np.ndarray:
        return descended(lambda y: -height(x, y), lambda y: 2 * y, start)

    def greatest(x: np.ndarray) -> Any:
        return height(x, highest(x))

    x = descended(greatest, by_complex_steps(greatest), start)
    return np.concatenate([x, highest(x)])


MODULES: dict[str, Callable[[], Expected]] = {
    "hello": hello,
    "det": det,
    "gmm": gmm,
    "particle": particle,
    "saddle": saddle,
    **{name: lambda name=name: of_data(name) for name in ("ba", "ht", "kmeans", "llsq", "lse", "lstm", "ode")},
}
# What is long to compile: modules that are left to the long run, and functions of others.
LONG = {"ba", "gmm", "ht", "lstm", "ode"}
LONG_FUNCTIONS = {("particle", "ff"), ("particle", "rr"), ("saddle", "ff"), ("saddle", "rr")}


def close(found: Any, wanted: Any) -> None:
    """The same structure, and each number is right, relative to itself (to 1, where it is small)."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name, part in wanted.items():
            close(found[name], part)
        return
    a, b = np.asarray(found), np.asarray(wanted)
    assert a.shape == b.shape
    scale = np.maximum(1.0, np.maximum(abs(a), abs(b)))
    assert np.max(abs(a - b) / scale, initial=0.0) <= TOLERANCE


def check(modules: Sequence[str], *options: str, but: Collection[tuple[str, str]] = ()) -> None:
    """A session with all functions of some modules, but some."""
    asked: list[Message] = [{"kind": "start", "eval": "all"}]
    wanted: list[Any] = [None]
    for module in modules:
        asked.append({"kind": "define", "module": module})
        wanted.append(None)
        for function, given, output in MODULES[module]():
            if (module, function) in but:
                continue
            given = {**given, "min_runs": 2, "min_seconds": SECONDS} if isinstance(given, dict) else given
            asked.append({"kind": "evaluate", "module": module, "function": function, "input": given})
            wanted.append(output)
    for question, output, answer in zip(asked, wanted, answers(numbered(asked), *options), strict=True):
        if question["kind"] == "evaluate":
            assert answer.get("success"), answer
            close(answer["output"], output)
            check_timings(answer["timings"], repeated=isinstance(question["input"], dict))


def check_timings(timings: Sequence[Message], repeated: bool) -> None:
    """One for the compiler, then one a run; these until there are enough, and they have taken long enough."""
    assert [timing["name"] for timing in timings] == ["prepare", *["evaluate"] * (len(timings) - 1)]
    runs = [timing["nanoseconds"] for timing in timings[1:]]
    assert all(isinstance(run, int) for run in runs)
    if repeated:
        assert len(runs) >= 2 and sum(runs) >= 1e9 * SECONDS
        assert len(runs) == 2 or sum(runs[:-1]) < 1e9 * SECONDS
    else:
        assert len(runs) == 1


def numbered(messages: Sequence[Message]) -> list[Message]:
    return [{"id": number, **message} for number, message in enumerate(messages)]


# Sessions


def test_all_evaluations_are_there() -> None:
    listed = (RUN.parent / "evals.txt").read_text(encoding="utf-8").split()
    assert listed == sorted(MODULES)


@pytest.mark.rest
def test_a_session() -> None:
    check([module for module in MODULES if module not in LONG], but=LONG_FUNCTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("module", sorted({*LONG, *dict(LONG_FUNCTIONS)}))
def test_a_long_session(module: str) -> None:
    check([module], "--threads", "2")


@pytest.mark.rest
def test_other_messages_are_acknowledged() -> None:
    asked = [{"kind": "start"}, {"kind": "analysis", "of": 8, "valid": False, "error": "no"}, {"kind": "farewell"}]
    found = answers([{"id": 7 - number, **message} for number, message in enumerate(asked)], "--threads", "2")
    config = {"threads": 2, "version": az.__version__}
    assert found == [{"id": 7, "tool": "adze", "config": config}, {"id": 6}, {"id": 5}]


@pytest.mark.rest
def test_what_is_wrong_is_answered_and_the_session_goes_on() -> None:
    def evaluate(module: str, function: str, given: Any) -> Message:
        return {"kind": "evaluate", "module": module, "function": function, "input": given}

    wrong: dict[str, Message | str] = {
        "there is no module 'foo'; there are ba, det": {"kind": "define", "module": "foo"},
        "there is no module 'os'": evaluate("os", "getcwd", 1.0),
        "there is no function 'cube' in hello; there are square, double": evaluate("hello", "cube", 1.0),
        "there is no function 'surface objective' in ht": evaluate("ht", "surface objective", {}),
        "'x' is missing": evaluate("lse", "primal", {}),
        "'input' is missing": {"kind": "evaluate", "module": "hello", "function": "square"},
        "could not convert string to float": evaluate("hello", "square", "three"),
        "axis 0 of argument 'start' is 2, got 3": evaluate("saddle", "ff", {"start": [1.0, 2.0, 3.0]}),
        "not finite": evaluate("hello", "square", 1e200),
        "the message is not JSON": "{",
        "the message is not an object": "[1]",
        "the message is not an object:": "null",
    }
    given = [m if isinstance(m, str) else {"id": 5, **m} for m in wrong.values()]
    *found, missing, last = answers([*given, {"kind": "start"}, {"id": 6, **evaluate("hello", "square", 3.0)}])
    for answer, message, error in zip(found, given, wrong, strict=True):
        assert answer["id"] == (None if isinstance(message, str) else 5)
        assert answer["success"] is False and error in answer["error"], (error, answer)
    assert missing == {"id": None, "success": False, "error": "'id' is missing"}
    assert last["output"] == 9.0


# The comparison with other tools


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/gradbench/compare.py."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "gradbench")
    return importlib.import_module("compare")


EVALUATION = """
import json

def send(**message):
    print(json.dumps(message), flush=True)
    return json.loads(input())

send(id=0, kind="start")
assert send(id=1, kind="define", module="hello")["success"]
for number, function in enumerate(("square", "cube", "double")):
    answer = send(id=2 * number + 2, kind="evaluate", module="hello", function=function, input=3.0, description="x=3")
    if answer["success"]:
        valid = answer["output"] == 9.0
        send(id=2 * number + 3, kind="analysis", of=2 * number + 2, valid=valid, **({} if valid else {"error": "no 9"}))
"""


@pytest.mark.rest
def test_an_evaluation_is_handed_on(compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python" / "gradbench" / "gradbench" / "evals" / "hello" / "run.py"
    script.parent.mkdir(parents=True)
    script.write_text(EVALUATION, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tools = {"Adze, 1 thread": compare.Tool([sys.executable, str(RUN)]), "none": compare.Tool([], frozenset({"ode"}))}
    rows = compare.measured("hello", tools, tmp_path, rounds=1)
    assert [function for _, _, function in rows] == ["square", "cube", "double"]
    assert len(rows["hello", "x=3", "square"]["Adze, 1 thread"].runs) == 1
    text = compare.report(rows, list(tools), "2 cores", "command")
    assert "| hello, x=3, cube" in text and text.count("**wrong**") == 2
    assert "* hello, x=3, cube, Adze, 1 thread: LookupError: there is no function 'cube'" in text
    assert "* hello, x=3, double, Adze, 1 thread: no 9" in text


def test_a_tool_that_ends_is_told(compare: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "python" / "gradbench" / "gradbench" / "evals" / "hello" / "run.py"
    script.parent.mkdir(parents=True)
    script.write_text(EVALUATION, encoding="utf-8")
    answering = "import json; print(json.dumps({'id': json.loads(input())['id']}), flush=True)"
    tool = compare.Tool([sys.executable, "-c", answering])
    assert compare.converse("hello", "", tool, tmp_path) == {
        ("hello", "", "define"): compare.Found(wrong="the tool ended without an answer")
    }


def test_a_tool_that_has_ended_answers_nothing(compare: ModuleType) -> None:
    """It may end before it reads a line, or after."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", "print(1)"], stdin=pipe, stdout=pipe, text=True) as tool:
        tool.wait()
        assert compare.answer_of(tool, "a line\n") == ""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=pipe, stdout=pipe, text=True) as tool:
        assert compare.answer_of(tool, "a line\n") == ""


MANY_INPUTS = """
import json

def send(**message):
    print(json.dumps(message), flush=True)
    return json.loads(input())

try:
    send(id=0, kind="start")
    for x in range(100):
        send(id=2 * x + 1, kind="evaluate", module="hello", function="square", input=float(x), description=f"x={x}")
        send(id=2 * x + 2, kind="evaluate", module="hello", function="double", input=float(x), description=f"x={x}")
except EOFError:  # as GradBench's own do
    pass
"""


@pytest.mark.rest
def test_the_first_inputs_alone(compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python" / "gradbench" / "gradbench" / "evals" / "hello" / "run.py"
    script.parent.mkdir(parents=True)
    script.write_text(MANY_INPUTS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setitem(compare.INPUTS, "hello", {"": "--options that=are --not passed"})
    rows = compare.measured("hello", {"Adze": compare.Tool([sys.executable, str(RUN)])}, tmp_path, rounds=1, first=2)
    assert [row[1:] for row in rows] == [(f"x={x}", function) for x in (0, 1) for function in ("square", "double")]
    assert not any(found["Adze"].wrong for found in rows.values())
