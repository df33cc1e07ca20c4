"""Random programs of every kind, and the tools that draw them, check each in a process of its own, and shrink them."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzz import checks, shrinking, workers
from fuzz.cases import Case, Configuration, drawn
from fuzz.checks import Outcome
from fuzz.drawing import Node
from fuzz.sensitivity import Reference
from load import ROOT
from sampling import some

import adze as az


def test_a_case_is_drawn_from_its_seed_and_its_text_can_be_run() -> None:
    assert drawn(11) == drawn(11) and drawn(11).digest != drawn(12).digest
    case = replace(drawn(11), configuration=Configuration())
    scope: dict[str, Any] = {}
    exec(case.text(), scope)
    pasted, own = scope["arguments"], case.arguments()
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(pasted, own, strict=True))


def test_crashes_hangs_and_failures_belong_to_the_case_that_caused_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(case: Any, mode: str) -> Outcome:
        if case.seed == 1:
            signal.raise_signal(signal.SIGSEGV)
        if case.seed == 2:
            signal.raise_signal(signal.SIGXCPU)
        if case.seed == 3:
            raise KeyError("planted")
        return Outcome("passed")

    monkeypatch.setattr(workers, "checked", checked)
    found = {case.seed: outcome for case, outcome in workers.outcomes(map(drawn, range(5)), jobs=2)}
    assert [found[seed].kind for seed in range(5)] == ["passed", "crash", "timeout", "failed", "passed"]
    assert found[1].check == "SIGSEGV" and "planted" in found[3].message


def test_a_failure_shrinks_to_what_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails here is each program that has a sort in it and can be built."""

    def outcomes(cases: Any, *rest: Any) -> Any:
        for case in cases:
            try:
                program = case.program()
                built = bool(program.instance_for(program.bind(case.arguments(), {})).term)
            except Exception:
                built = False
            failed = built and "az.sort(" in case.body
            yield case, Outcome("failed", "planted", "values: 1") if failed else Outcome("passed")

    monkeypatch.setattr(shrinking, "outcomes", outcomes)
    case = next(case for case in map(drawn, range(1000)) if len(case.body) > 400 and "az.sort(" in case.body)
    smaller, outcome = shrinking.shrunk(case, Outcome("failed", "planted", "values: 2"), "base", seconds=20)
    assert outcome.message == "values: 1" and "az.sort(" in smaller.body
    assert len(smaller.body) < 80 and max(smaller.sizes.values()) == 0


def reference(f: Any, *arguments: Any) -> Reference:
    program = az.program(f)
    return Reference(program, arguments, False, az.evaluate(program)(*arguments))


def test_what_rounding_explains_is_no_failure_and_what_it_does_not_is() -> None:
    x = np.array([1e15, 0.3, -1e15])

    def cancelled(x: az.Array[az.f64, "n"]) -> Any:
        return az.sum(x), az.sum(x) > 0.3

    sums = reference(cancelled, x)
    assert not sums.agrees((np.float64(0.3), np.bool_(True)))
    assert "result 0" in sums.agrees((np.float64(1000.0), np.bool_(True)))

    def decided(x: az.Array[az.f64, "n"]) -> Any:
        return az.argmax(az.sin(x) ** 2 + az.cos(x) ** 2), az.argmax(x)

    places = reference(decided, x)
    assert not places.agrees((np.int64(2), np.int64(0)))
    assert "result 1" in places.agrees((np.int64(0), np.int64(2)))
    assert "float32" in places.agrees((np.float32(0), np.int64(0)))


def test_a_wrong_value_a_wrong_bit_and_an_internal_error_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in map(drawn, range(99)) if checks.checked(case).kind == "passed" and not case.special)

    class Wrong:
        def __init__(self, run: Any, change: Any, threads: int) -> None:
            self.run, self.change, self.threads = run, change, threads

        def __call__(self, *arguments: Any) -> Any:
            return az.core.trees.tree_map(lambda x: self.change(np.asarray(x), self.threads), self.run(*arguments))

    def failure(change: Any) -> str:
        def compile(program: Any, threads: int = 1, **rest: Any) -> Any:
            return Wrong(az.evaluate(program), change, threads)

        with monkeypatch.context() as patch:
            patch.setattr(checks.az, "compile", compile)
            return checks.checked(case).check

    assert failure(lambda x, threads: x + 1e-3) == "compile"
    assert failure(lambda x, threads: x * (1 + 1e-15 * threads)) == "compile on threads"
    assert failure(lambda x, threads: {}["no such key"]) == "compile"


def test_types_that_refuse_a_branch_no_call_takes_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotations say that w has 4 elements, and x none behind the first n of them; without them the call says it."""
    monkeypatch.setattr(checks, "SWITCHES", ())
    branches = "az.cond(4 == x[x.shape[0]:].shape[0], lambda: x[0] * (w @ x[x.shape[0]:]), lambda: 2.0)"
    untyped = Configuration(annotated=False)
    case = Case(0, {"n": 2, "m": 1, "p": 1}, (), (Node(("f", ()), branches),), configuration=untyped)
    assert checks.checked(case, "cross").kind == "passed"
    assert checks.checked(replace(case, configuration=Configuration()), "cross").kind == "refused"


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("count", some([15, 60], 2))
def test_random_programs_of_every_kind(count: int) -> None:
    """The process that forks into one for each program is a new one, which has no threads."""
    command = [sys.executable, "-m", "fuzz", "--count", str(count), "--jobs", "1", "--shrink", "60", "--folder", ""]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stdout + run.stderr
