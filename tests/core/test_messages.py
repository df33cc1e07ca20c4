"""Messages name the user's line and what to write instead, and tracebacks end in the user's frame."""

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.core.program import RUNNERS

X = np.array([1.0, 2.0, 3.0])
M = np.ones((3, 3))

total = az.program(lambda v: az.sum(v * v))
compiled = az.compile(total)


def factorial(n: Any) -> Any:
    return az.cond(n < 1, lambda: 1, lambda: n * factorial(n - 1))


def formatted(v: Any) -> Any:
    return (f"{v:.3f}", v)[1]


def leaking(v: Any) -> Any:
    kept: list[Any] = []
    az.map(lambda e: kept.append(e) or e, v)
    return kept[0] + 1


IRREGULAR = r"irregular array of type .*: an inner size depends on the index.*give all rows one size"
RUNS = r"a program runs on arrays, outside of other programs; inside of one call it as it is, not compiled"

MESSAGES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "lengths of rows": (lambda v: az.map(lambda k: az.iota(k), az.iota(3)), X, IRREGULAR),
    "lengths by index": (lambda v: az.generate(3, lambda k: az.iota(k)), X, IRREGULAR),
    "filtered rows": (lambda m: az.map(lambda r: az.filter(lambda v: v > 0, r), m), M, IRREGULAR),
    "cut rows": (lambda v: az.map(lambda k: v[:k], az.iota(3)), X, IRREGULAR),
    "computed rows": (lambda m: az.map(lambda r: az.filter(lambda v: v > 0, r) + 1, m), M, IRREGULAR),
    "rows in a tuple": (lambda m: az.map(lambda r: (az.sum(r), az.filter(lambda v: v > 0, r)), m), M, IRREGULAR),
    "nested rows": (lambda v: az.map(lambda k: az.map(lambda j: j, az.iota(k)), az.iota(3)), X, IRREGULAR),
    "out of its scope": (leaking, X, "the expression written at .*test_messages.*, was used outside its program"),
    "module of NumPy": (
        lambda m: np.linalg.eig(m),
        M,
        r"np\.linalg\.eig is not an .*az\.foreign brings in a function",
    ),
    "function of NumPy": (lambda v: np.dstack([v, v]), X, r"np\.dstack is not an .*there is np\.stack, and az\.for"),
    "NumPy's variant": (lambda v: np.nansum(v), X, r"np\.nansum is not an .*there is np\.sum, and az\.foreign"),
    "NumPy's other name": (
        lambda m: np.linalg.outer(m, m),
        X,
        r"np\.linalg\.outer is not an .*there is np\.outer, and",
    ),
    "no such function": (
        lambda v: np.ediff1d(v),
        X,
        r"np\.ediff1d is not an .*language; write it with loops, or az",
    ),
    "no such module": (
        lambda m: np.linalg.eig(m),
        M,
        r"np\.linalg\.eig is not an .*language; write it with loops, or",
    ),
    "like by its elements": (lambda v: np.fmax(v, v), X, r"np\.fmax is not an .*language; write it with loops, or"),
    "no such derivative": (lambda v: np.gradient(v), X, r"np\.gradient is not an .*language; write it with loops, or"),
    "sums at places": (lambda v: np.add.at(v, [0, 0], 1.0), X, r"np\.add\.at is not .*az\.histogram combines values"),
    "format": (formatted, X, r"the format '\.3f' of an expression.*az\.inspect\(x\) shows a value"),
    "math": (lambda v: math.sin(v[0]), X, r"float\(\) of an expression.*az\.sin for math\.sin"),
    "range": (lambda v: list(range(v.shape[0])), X, r"az\.fori_loop for range\(\)"),
    "too many operands": (lambda v: az.sin(v, v), X, r"sin takes 1 argument\(s\), got 2"),
    "options of operands": (lambda v: az.sin(v, out=X), X, r"sin takes 1 argument\(s\), got 1 and out="),
    "list": (lambda v: az.sum([v[0], v[1]]), X, r"a list of expressions is not an array: .*az\.array\(list\)"),
    "compiled inside": (lambda v: compiled(v) + 1, X, RUNS),
    "compiled with types inside": (lambda v: az.compile(total.at(az.Array[az.f64, "n"]))(v), X, RUNS),
    "evaluated inside": (lambda v: az.evaluate(total)(v), X, RUNS),
    "at": (lambda v: v.at[0].set(1.0), X, r"no attribute 'at'; for x\.at\[i\]\.set\(v\) write az\.update\(x, i, v\)"),
    "at of an array": (
        lambda v: v.at[np.array([0, 0])].add(1.0),
        X,
        r"\.add\(v\) az\.update.*where i is an array that may name a place twice, x \+ az\.histogram\(np\.add, 0, "
        r"x\.shape\[0\], i, v\).* np\.minimum\(x, az\.histogram\(np\.minimum, np\.inf, x\.shape\[0\], i, v\)\)",
    ),
    "types": (
        lambda v: total.at(X),
        X,
        r"<lambda>\.at takes types, not arguments; for parameter 'v': a value of type nda",
    ),
    "types of a tuple": (
        lambda v: az.program(lambda p: p).at((az.f64, np.float64(2.0))),
        X,
        r"parameter 'p': a value of type float64 is no type, as az\.f64 or az\.Array\[az\.f64, \"n\"\] is",
    ),
    "recursion": (factorial, 3, r"factorial calls itself \d+ times deep .*only az\.fix makes a function"),
    "tangent of an integer": (lambda v: az.jvp(lambda v: az.argmax(v), (v,), (v,))[1], X, "returns nothing.*integer"),
    "nothing": (lambda v: None, X, "returns nothing: is a return missing"),
}


@pytest.mark.parametrize("case", MESSAGES.values(), ids=MESSAGES)
def test_messages_name_the_line_and_what_to_write(case: tuple[Callable[..., Any], Any, str]) -> None:
    function, argument, message = case
    with pytest.raises((TypeError, RuntimeError, AttributeError), match=rf"(?s){message}") as caught:
        az.program(function)(argument)
    assert "test_messages.py:" in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_what_the_advice_for_places_says_is_right(shape: tuple[int, ...]) -> None:
    i, x = np.array([2, 0, 2, 2]), np.ones(shape)
    v = np.arange(4.0 * x[0].size).reshape(4, *shape[1:])
    wanted = x.copy()
    np.add.at(wanted, i, v)
    advised = az.program(lambda x, i, v: x + az.histogram(np.add, 0, x.shape[0], i, v))
    np.testing.assert_array_equal(advised(x, i, v), wanted)


@pytest.mark.parametrize("verb", [az.grad, az.vjp, az.jvp, az.hessian, az.jacobian, az.hvp, az.compile, az.trace])
@pytest.mark.parametrize("ran", [compiled, az.evaluate(total), az.trace(total)], ids=["compiled", "evaluate", "trace"])
def test_what_runs_a_program_is_none(verb: Any, ran: Any) -> None:
    with pytest.raises(TypeError, match=r"runs a program, and is none; give <lambda> itself.*test_messages\.py:\d+"):
        verb(ran)


def test_regular_arrays_are_not_refused() -> None:
    """A size that is computed inside a loop, but from nothing of it, is one size for all rows."""
    rows = az.program(lambda v: az.map(lambda e: az.filter(lambda x: x > 1, v) * e, v))
    assert np.array_equal(az.evaluate(rows)(X), np.outer(X, X[X > 1]))


# Tracebacks


def helper(v: Any) -> Any:
    return v * [v[0], 1.0]


def through_a_map(m: Any) -> Any:
    return az.map(lambda row: helper(row), m)


def files(error: BaseException) -> list[str]:
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]


CALLS: dict[str, Callable[[], Any]] = {
    "program": lambda: az.program(through_a_map)(M),
    "instance": lambda: az.program(through_a_map).at(az.Array[az.f64, "n m"])(M),
    "evaluate": lambda: az.evaluate(through_a_map)(M),
    "compiled": lambda: az.compile(through_a_map)(M),
    "trace": lambda: az.trace(through_a_map)(M),
    "gradient": lambda: az.grad(lambda m: az.sum(through_a_map(m)))(M),
    "pullback": lambda: az.vjp(through_a_map, M),
    "gradient of a trace": lambda: az.grad(lambda m: az.sum(through_a_map(m)), via="trace")(M),
    "inner program": lambda: az.program(lambda m: az.program(through_a_map)(m))(M),
    "printed": lambda: az.pretty(az.program(through_a_map).at(az.Array[az.f64, "n m"])),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tracebacks_end_in_the_frame_of_the_user(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="list of expressions") as caught:
        call()
    assert set(files(caught.value)) == {"test_messages.py"}
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "helper"
    monkeypatch.setenv("ADZE_TRACEBACK", "full")
    with pytest.raises(TypeError, match="list of expressions") as full:
        call()
    assert {"test_messages.py", "program.py", "expr.py"} <= set(files(full.value))


def test_errors_of_a_run_end_where_it_was_called() -> None:
    for run in (az.evaluate(lambda v, i: v[i]), az.compile(lambda v, i: v[i]), az.program(lambda v, i: v[i])):
        with pytest.raises(IndexError, match="out of range") as caught:
            run(X, 7)
        assert files(caught.value) == ["test_messages.py"]


def test_errors_of_the_user_keep_the_frames_of_other_libraries() -> None:
    with pytest.raises(np.linalg.LinAlgError) as caught:
        az.program(lambda v: v + np.linalg.inv(np.zeros((3, 3))))(X)
    names = files(caught.value)
    assert names[:2] == ["test_messages.py"] * 2 and names[-1] == "_linalg.py" and "program.py" not in names


def test_mistakes_of_the_package_keep_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: Any) -> Any:
        raise AssertionError("a mistake")

    monkeypatch.setitem(RUNNERS, "default", mistaken)
    monkeypatch.setitem(globals(), "__name__", "adze.mistake")
    with pytest.raises(AssertionError, match="a mistake") as caught:
        total(X)
    assert "program.py" in files(caught.value)
