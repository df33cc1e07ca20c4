"""Printed programs, word for word: people read them."""

import ast
import functools
from typing import Any

import numpy as np
import pytest
from programs import CASES, Case

import adze as az
from adze.core.builder import build
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.terms import Block
from adze.core.types import Accumulator, Type, f64, i64

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]


def assert_text(function: Any, wanted: str, simplified: bool = False) -> None:
    assert az.pretty(az.program(function), simplified=simplified) + "\n" == wanted


@pytest.mark.unguarded
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("simplified", [False, True])
def test_every_program_is_printed_the_same_again(case: Case, simplified: bool) -> None:
    instance = case.program.instance_for(case.program.bind(case.arguments[0], {}))
    first = az.pretty(instance, simplified=simplified)
    assert first == az.pretty(instance, simplified=simplified)
    assert first.startswith(f"def {case.name}(") and "  return " in first
    assert all(len(line) <= 120 for line in first.splitlines() if line.startswith("  "))


def test_the_program_of_the_readme() -> None:
    @az.program
    def cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
        def nearest(p: Any) -> Any:
            return az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids))

        return az.sum(az.map(nearest, points))

    assert_text(
        cost.function,
        """\
def cost(points: f64[n, d], centroids: f64[k, d]) -> f64:
  return sum(map(lambda p: min(sum((p - centroids) ** 2, 1)), points))
""",
        simplified=True,
    )
    assert_text(
        cost.function,
        """\
def cost(points: f64[n, d], centroids: f64[k, d]) -> f64:
  return sum(map(lambda p: min(sum((p - centroids) ** 2, 1)), points))
""",
    )


EXPRESSIONS = [
    "x - (y - z)",
    "x - y - z",
    "(x + y) * z",
    "x + y * z",
    "-x ** y",
    "(-x) ** y",
    "x ** y ** z",
    "(x ** y) ** z",
    "x / (y / z)",
    "x / y / z",
    "x * y / z",
    "x * (y / z)",
    "-(-x)",
    "x * -y",
    "-x * y",
    "-(x * y)",
    "-(x + y)",
    "x - -2.0",
    "x ** -0.5",
    "(x - y) ** 2",
    "-x ** 2",
    "exp(x + y) * 2.0",
    "x + (y + z)",
    "minimum(x - y, z)",
    "(x < y) == (y < z)",
    "not x < y and y < z",
    "x < y or y < z and x < z",
    "(x < y or y < z) and x < z",
    "not (x < y or y < z)",
    "x < y < z",
    "x <= y < z",
    "not not x < y",
    "x if x < y else y if y < z else z",
    "(x if x < y else y) * z",
    "(x if x < y else y) if y < z else z",
    "x * (y if x < y else z) + 1.0",
]


class Logic:
    """Python's ``and``, ``or``, ``not`` and ``if`` on expressions, by rewriting the text."""

    @staticmethod
    def program(text: str) -> az.Program:
        tree = Rewrite().visit(ast.parse(text, mode="eval"))
        code = compile(ast.fix_missing_locations(tree), "<expression>", "eval")
        scope = {"az": az, "exp": az.exp, "minimum": az.minimum, "np": np}

        def f(x: az.f64, y: az.f64, z: az.f64) -> Any:
            return eval(code, {**scope, "x": x, "y": y, "z": z})

        return az.program(f)


class Rewrite(ast.NodeTransformer):
    """Python's syntax for what it cannot overload, as calls."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return functools.reduce(lambda a, b: ast.BinOp(a, operator, b), node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return ast.UnaryOp(ast.Invert(), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        parts: list[ast.expr] = [ast.Compare(a, [op], [b]) for a, op, b in zip(operands, node.ops, operands[1:])]
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b), parts)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        branches = [ast.Lambda(NO_ARGUMENTS, branch) for branch in (node.body, node.orelse)]
        return ast.Call(ast.parse("az.cond", mode="eval").body, [node.test, *branches], [])


NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_printed_as_they_are_written(expression: str) -> None:
    """The printed text is the Python text, so it means what Python means, and has no parentheses too many."""
    assert az.pretty(Logic.program(expression), simplified=False).partition("  return ")[2] == expression


def test_names() -> None:
    def f(x: Vector, i: az.f64, t1: az.f64, n2: Matrix) -> Any:
        def inner(i: Any, row: Any) -> Any:
            return az.exp(row[0]) + az.exp(row[0]) ** 2 * i

        squares = az.generate((2, 2), lambda j, k: t1 * i + k)
        return az.map(inner, x, n2), squares, az.map(lambda lambda_, _: lambda_ * lambda_ - 1, x, x)

    assert_text(
        f,
        """\
def f(x: f64[n], i: f64, t1: f64, n2: f64[n, m]) -> (f64[n], f64[2, 2], f64[n]):
  if 0 < n:
    require 0 < m
  t1_2 = for j < n:
    t2 = exp(n2[j, 0])
    yield t2 + t2 ** 2 * x[j]
  t3 = t1 * i
  t4 = for k < 2: t3 + f64(k)
  t5 = for j < 2: t4
  return t1_2, t5, x ** 2 - 1.0
""",
        simplified=True,
    )


def test_numbers() -> None:
    def f(x: az.f32, y: az.f64, i: az.i32, b: az.bool_) -> Any:
        return x * 0.1, y * 0.1, y + float("inf"), i + 2, b == True, y * -1e-9, -y  # noqa: E712

    assert_text(
        f,
        """\
def f(x: f32, y: f64, i: i32, b: bool) -> (f32, f64, f64, i32, bool, f64, f64):
  return x * 0.1, y * 0.1, y + inf, i + 2, b == True, y * -1e-09, -y
""",
    )


def test_reductions() -> None:
    def f(a: Matrix, b: az.Array[az.bool_, "n"], i: az.Array[az.i32, "n"]) -> Any:
        return az.sum(a), az.prod(a, 0), az.max(a), az.min(i), az.any(b), az.all(b), az.max(i)

    assert_text(
        f,
        """\
def f(a: f64[n, m], b: bool[n], i: i32[n]) -> (f64, f64[m], f64, i32, bool, bool, i32):
  return sum(a), prod(a, 0), max(a), min(i), any(b), all(b), max(i)
""",
        simplified=True,
    )


def test_a_reduction_by_another_operator() -> None:
    def f(x: Vector) -> Any:
        def larger(a: Any, b: Any) -> Any:
            return az.cond(a[0] >= b[0], lambda: a, lambda: b)

        best = az.reduce(larger, (-float("inf"), -1), (x, az.iota(x.shape[0])))
        return best, az.reduce(lambda a, b: a + b, 0.0, x), az.reduce(lambda a, b: a - b, 1.0, x)

    assert_text(
        f,
        """\
def f(x: f64[n]) -> ((f64, i64), f64, f64):
  t1, t2 = reduce i < n: x[i], i
  combining (a1, a2) with (b1, b2), from -inf, -1:
    yield if a1 >= b1: a1, a2
    else: b1, b2
  t3 = reduce i < n: x[i]
  combining a with b, from 1.0: a - b
  return ((t1, t2), sum(x), t3)
""",
        simplified=True,
    )


def test_branches() -> None:
    def f(x: Vector, s: az.f64) -> Any:
        def long() -> Any:
            t = az.exp(s) * az.sin(s)
            return t + 1 / t

        return (
            az.cond(s > 0, lambda: s, lambda: -s),
            az.cond(s > 1, long, lambda: s),
            az.cond(s < 1, lambda: x, lambda: x * s),
        )

    assert_text(
        f,
        """\
def f(x: f64[n], s: f64) -> (f64, f64, f64[n]):
  t1 = if s > 1.0:
    t2 = exp(s) * sin(s)
    yield t2 + 1.0 / t2
  else: s
  return s if s > 0.0 else -s, t1, x if s < 1.0 else x * s
""",
    )


def test_loops() -> None:
    def f(x: Vector, n: az.i64, s: az.f64) -> Any:
        power = az.fori_loop(0, n, lambda i, p: p * s + i, 1.0)

        def step(i: Any, state: Any) -> Any:
            row = state["x"] * state["scale"]
            return {"x": row, "scale": state["scale"] + row[0]}

        return power, az.fori_loop(2, 5, step, {"x": x, "scale": s})["x"]

    assert_text(
        f,
        """\
def f(x: f64[n], n2: i64, s: f64) -> (f64, f64[n]):
  t1, t2 = loop i < 3 with x2 = x, scale = s:
    require 0 < n
    next x2 * scale, scale + x2[0] * scale
  t3 = loop i < maximum(n2, 0) with p = 1.0: next p * s + f64(i)
  return t3, t1
""",
        simplified=True,
    )


def test_constants_and_structure() -> None:
    small, large = np.array([1.0, 2.5]), np.arange(100.0)

    def f(x: az.f64) -> Any:
        return {"a": [x, (small,)], "b": x + large}

    assert_text(
        f,
        """\
def f(x: f64) -> {'a': [f64, (f64[2],)], 'b': f64[100]}:
  c1 = a captured f64[100]
  c2 = [1.0, 2.5]
  return {'a': [x, (c2,)], 'b': x + c1}
""",
    )


def test_requirements() -> None:
    def f(x: Vector, i: az.i64, k: az.i64) -> Any:
        return x[i] * 2, k // i, x[-1]

    assert_text(
        f,
        """\
def f(x: f64[n], i: i64, k: i64) -> (f64, i64, f64):
  require 0 <= i < n
  require i != 0
  require 0 <= n - 1 < n
  return x[i] * 2.0, k // i, x[n - 1]
""",
    )


def test_accumulators() -> None:
    def function(x: Value, at: Value) -> tuple[Value, ...]:
        b = builder
        n, zero = b.size(x, 0), b.literal(0, f64)
        zeros = b.array([b.literal(3, i64), n], lambda *_: zero)

        def body(sums: Value, total: Value) -> list[Value]:
            def add(i: Value) -> None:
                b.emit("add_to", (), [sums, b.index(x, [i]), b.index(at, [i]), i])
                b.emit("add_to", (), [total, b.index(x, [i])])

            b.each([n], add)
            return [b.literal(7, i64)]

        types = [Accumulator(zeros.type), Accumulator(zero.type)]  # type: ignore[arg-type]
        return b.emit("accumulate", (), [zeros, zero], [b.body(types, body, ["sums", "total"])])

    with build() as builder:
        x, at = builder.variable(vector(az.f64), "x"), builder.variable(vector(az.i64), "at")
        block, _ = to_block([x, at], function(x, at))
    assert (
        az.pretty(block) + "\n"
        == """\
def program(x: f64[n], at: i64[n]) -> (f64[3, n], f64, i64):
  t1 = accumulate sums = zeros(3, n), total = 0.0:
    for i < n:
      sums[at[i], i] += x[i]
      total += x[i]
    yield 7
  return sums, total, t1
"""
    )


def vector(scalar: Any) -> Type:
    return az.Array[scalar, "n"]  # type: ignore[return-value]


def test_a_block_is_printed_as_it_is() -> None:
    block = az.program(lambda x: x).at(f64).term
    assert az.pretty(block) == "def program(x: f64) -> f64:\n  return x"
    assert az.pretty(Block((), (), ())) == "def program() -> ():"
