"""What mypy and pyright know of programs, and what Python's ``inspect`` and ``help`` tell of them.

A line of ``CALLS`` that ends in ``# wrong`` must be an error of both, and no other line may be one.
"""

import inspect
import json
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from load import ROOT

import adze as az

CALLS = """\
from typing import Any, Generic, TypeVar

import numpy as np

import adze as az

T = TypeVar("T")


@az.program
def loss(points: az.Array[az.f64, "n d"], weights: az.Array[az.f64, "d"], steps: int = 3) -> az.f64:
    scaled = az.fori_loop(0, steps, lambda i, x: x / 2, points)
    return az.sum((scaled @ weights) ** 2) + weights.shape[0] + points.mean()


@az.program
def halves(x: az.Array[az.f64, "n"]) -> tuple[az.f64, az.f64]:
    return az.sum(x[:2]), az.sum(x[2:])


@az.data
class Line:
    slope: az.f64
    offset: az.f64

    def at(self, x: az.f64) -> az.f64:
        return self.slope * x + self.offset


@az.program
def height(line: Line, x: az.f64) -> az.f64:
    return line.at(x)


def plain(x: az.Array[az.f64, "n"], y: az.f64) -> az.f64:
    return az.sum(x * y)


print(az.pretty(plain).upper(), az.pretty(loss), az.pretty(az.simplify(plain)))
az.check(plain)
az.check(loss.at())
az.check(az.simplify(loss))
az.draw(plain).save("plain.svg")
az.cost(plain).at(n=3).operations
az.cost(plain, target="llvm").at(n=3).rows
az.interpret(plain, az.Reify()).count
az.pretty(3)  # wrong
az.check("plain")  # wrong
az.draw(None)  # wrong
az.simplify([plain])  # wrong
az.cost(3)  # wrong
az.interpret(3, az.Reify())  # wrong

points, weights = np.ones((4, 2)), np.ones(2)
number: float = loss(points, weights)
loss(points, weights, steps=2).tolist()
loss(points)  # wrong
loss(points, weights, 1, 2)  # wrong
loss(points, weights, step=2)  # wrong
loss(points, weights, steps="many")  # wrong
loss.taem  # wrong

gradient = az.grad(loss, argnums="weights")
gradient(points, weights).sum()
gradient(points)  # wrong
value, slope = az.value_and_grad(loss)(points, weights)
value, slope, more = az.value_and_grad(loss)(points, weights)  # wrong

fast = az.compile(gradient, threads=2)
fast(points, weights, out=np.empty(2))
fast(points, weights).tolist()
fast(points)  # wrong
print(fast.llvm_ir.upper(), fast.bind(points, weights)())
az.compile(loss, thread=2)  # wrong
az.evaluate(loss)(points)  # wrong
az.trace(loss)(points, weights).values
az.trace(loss)(points)  # wrong

first, second = halves(weights)
first, second, third = halves(weights)  # wrong
az.jacobian(halves)(weights, weights)  # wrong
az.hessian(loss, argnums=1)(points, weights)
az.vmap(loss, in_axes=(0, None))(np.ones((3, 4, 2)), weights)
az.vmap(loss, in_axes=(0, None))(weights)  # wrong
az.jvp(halves)(weights, weights)
az.hvp(loss, argnums=1)(points, weights, weights)
az.sparse_jacobian(halves)(weights).toarray()
az.sparse_jacobian(halves)()  # wrong
az.torch(loss)(points)  # wrong
az.jax(loss)(points)  # wrong

height(Line(1.0, offset=2.0), 3.0)
Line(1.0)  # wrong
Line(1.0, 2.0, 3.0)  # wrong


@az.data
class List(Generic[T]):
    @az.variant
    def Nil() -> Any: ...

    @az.variant
    def Cons(head: T, tail: "List[T]") -> Any: ...


@az.program
def largest(xs: List[az.f64]) -> az.f64:
    return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: az.maximum(head, 0.0))


largest(List.Cons(1.0, List.Nil()))
largest(List.Cons(head=1.0, tail=List[az.f64].Nil()))
largest()  # wrong
List.Cons(1.0)  # wrong
List.Cons(1.0, tial=List.Nil())  # wrong
List.Cons(1.0, 2.0)  # wrong
List.Nil(1.0)  # wrong
List.Snoc(List.Nil(), 1.0)  # wrong


@az.program
def curvature(x: az.f64) -> az.f64:
    slope, push = az.linearize(lambda x: az.sin(x) ** 2, x)
    return az.grad(lambda x: az.jvp(lambda x: x**3, (x,), (1.0,))[1])(x) + push(1.0) + slope
"""

ROW = [number for number, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# wrong")]


def wrong_to_mypy(file: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--check-untyped-defs", "--config-file=", "--output=json", str(file)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert not found.stderr, found.stderr
    messages = [json.loads(line) for line in found.stdout.splitlines()]
    return {message["line"] for message in messages if message["file"].endswith(file.name)}


def wrong_to_pyright(file: Path) -> set[int]:
    settings = {"extraPaths": [str(ROOT)]}  # an editable package is found by running Python
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", f"--pythonpath={sys.executable}"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=file.parent).stdout)
    return {message["range"]["start"]["line"] + 1 for message in found["generalDiagnostics"]}


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize("checker", [wrong_to_mypy, wrong_to_pyright])
def test_wrong_calls_are_errors_in_the_editor(checker: Callable[[Path], set[int]], tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS, encoding="utf-8")
    lines = CALLS.splitlines()
    assert [lines[number - 1] for number in sorted(checker(file))] == [lines[number - 1] for number in ROW]


@az.program
def weighted(x: az.Array[az.f64, "n d"], pair: tuple[az.f64, az.i64], rest, steps: int = 2, *, scale: az.f64 = 1.0):  # type: ignore[no-untyped-def]
    """The weighted sum.

    And more of it.
    """
    return az.sum(x) * pair[0] * scale + az.sum(rest)


WEIGHTED = "x: f64[n, d], pair: (f64, i64), rest, steps: int = 2, *, scale: f64 = 1.0"
BY_PLACE = WEIGHTED.replace("*, ", "")  # programs of verbs take all their arguments by place, too


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        (weighted, f"({WEIGHTED})"),
        (az.compile(weighted), f"({WEIGHTED})"),
        (az.evaluate(weighted), f"({WEIGHTED})"),
        (az.grad(weighted), f"({BY_PLACE})"),
        (az.sparse_jacobian(weighted), f"({WEIGHTED})"),
        (az.grad(weighted, via="trace"), f"({WEIGHTED})"),
        (az.trace(weighted), f"({WEIGHTED}) -> adze.interpreters.trace.Trace"),
        (az.vjp(weighted), f"({BY_PLACE}, *, cotangent)"),
    ],
    ids=lambda part: None if isinstance(part, str) else type(part).__name__,
)
def test_signatures_are_those_of_the_program(called: Any, shown: str) -> None:
    assert str(inspect.signature(called)) == shown


def test_a_signature_says_what_is_returned() -> None:
    @az.program
    def double(x: az.f64) -> az.f64:
        return 2 * x

    assert str(inspect.signature(double)) == str(inspect.signature(az.compile(double))) == "(x: f64) -> f64"
    assert "backend" in inspect.signature(az.Compiled).parameters  # of the class: what makes one


@pytest.mark.parametrize("called", [weighted, az.compile(weighted), az.evaluate(weighted)])
def test_help_is_the_docstring_of_the_program(called: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(called))
    assert "The weighted sum." in text and "And more of it." in text


def test_names_that_are_completed_are_public() -> None:
    """Those of the package, but its modules: nothing that it imports for itself shows up behind ``az.``."""
    completed = {name for name in dir(az) if not name.startswith("_") and not isinstance(getattr(az, name), ModuleType)}
    assert completed == {name for name in az.__all__ if not isinstance(getattr(az, name), ModuleType)}
    assert re.fullmatch(r"\d+\.\d+\.\d+", az.__version__)
