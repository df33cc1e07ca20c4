"""Traces as text, word for word and in general, and the picture of the one that the manual shows."""

import gc
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from load import ROOT
from programs import CASES
from trace_programs import RECURSIVE

import adze as az
from adze.core.dims import Dim
from adze.core.primitive import PRIMITIVES
from adze.core.terms import Block, Operation, Origin, Variable
from adze.core.types import ArrayType, Scalar, Type, bool_, f32, f64, i32, i64
from adze.interpreters.pretty.steps import input_text, typed_text, value_text
from adze.interpreters.trace import Trace

Vector = az.Array[az.f64, "n"]
TRACED: list[tuple[az.Program, tuple[Any, ...]]] = [
    *[(case.program, case.arguments[0]) for case in CASES],
    *[(case.program, case.arguments) for case in RECURSIVE],
]


def assert_printed(trace: Any, wanted: str) -> None:
    assert str(trace) + "\n" == wanted


@az.program
def example(x1: az.f64, x2: az.f64) -> az.f64:
    return x1 + x1 * x2


def test_the_example() -> None:
    assert_printed(
        az.trace(example)(5.0, 3.0),
        """\
trace of example at x1 = 5.0, x2 = 3.0
  t1 = x1 * x2  # 15.0
  t2 = x1 + t1  # 20.0
  return t2
""",
    )


def test_the_picture_in_the_manual_is_this_graph() -> None:
    labels = re.findall(r'label="(.*?)"', str(az.draw(az.trace(example)(5.0, 3.0))))
    drawn = re.findall(r"<text .*?>(.*?)</text>", (ROOT / "docs" / "tracing.svg").read_text(encoding="utf-8"))
    assert drawn == [line for label in labels for line in label.split(r"\n")]


@pytest.mark.unguarded
@pytest.mark.parametrize(("program", "arguments"), TRACED, ids=[program.name for program, _ in TRACED])
def test_every_step_of_every_program_has_a_line(program: az.Program, arguments: tuple[Any, ...]) -> None:
    trace = az.trace(program)(*arguments)
    text = str(trace)
    assert text.startswith(f"trace of {program.name}")
    assert len(re.findall(r"^  \S.*  # ", text, re.MULTILINE)) == len([x for x in trace.block.bindings if x.types])
    bound = re.findall(r"^  (\w+) = ", text, re.MULTILINE)
    assert len(bound) == len(set(bound))
    assert str(az.trace(program)(*arguments)) == text


# Values


def array(scalar: Scalar, *sizes: int) -> ArrayType:
    return ArrayType(scalar, tuple(map(Dim.of, sizes)))


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (f64, 0.1 + 0.2, "0.30000000000000004"),
        (f64, np.float64(-0.0), "-0.0"),
        (f32, np.float32(0.1), "0.1"),
        (i64, np.asarray(3), "3"),
        (bool_, np.True_, "True"),
        (array(f64, 6), np.array([1.0, -0.0, np.nan, np.inf, 1e-9, 1e20]), "[1.0, -0.0, nan, inf, 1e-09, 1e+20]"),
        (array(f64, 7), np.arange(7.0) / 3, "[0.0, 0.33333, 0.66667, ..., 2.0]"),
        (array(i64, 2, 2), np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]"),
        (array(i64, 3, 7), np.arange(21).reshape(3, 7), "[[0, 1, 2, ..., 6], ...]"),
        (array(i64, 1, 7), np.arange(7).reshape(1, 7), "[[0, 1, 2, ..., 6]]"),
        (array(f64, 1000, 0), np.zeros((1000, 0)), "[]"),
        (array(bool_, 2), np.array([True, False]), "[True, False]"),
    ],
)
def test_values_are_short(type: Type, value: Any, text: str) -> None:
    assert value_text(type, value) == text


def test_types_are_shown_where_values_do_not_say_them() -> None:
    assert input_text("x", f64, 1.0) == "x = 1.0"
    assert input_text("x", i32, 1) == "x: i32 = 1"
    assert input_text("x", array(f64, 2), np.ones(2)) == "x: f64[2] = [1.0, 1.0]"
    assert typed_text(f32, 1.0) == "f32: 1.0" and typed_text(bool_, True) == "True"


# What is printed of steps


def test_names_are_unique_and_unused_steps_are_shown() -> None:
    def step(name: str, type: Any = f64) -> Operation:
        multiply = PRIMITIVES["multiply"]
        return Operation("primitive", (multiply,), (Variable(0, type),) * 2, (), (type,), Origin("f.py", 1, name))

    block = Block((f64, f64), (step("speed"), step("speed"), step("t1"), step("")), (Variable(1, f64),), ("speed", ""))
    values = [(np.float64(value),) for value in (4.0, 16.0, 256.0, 65536.0)]
    trace = replace(az.trace(az.program(lambda speed, x: speed))(3.0, 2.0), name="f", block=block, values=values)
    assert_printed(
        trace,
        """\
trace of f at speed = 3.0, x2 = 2.0
  speed2 = x2 ** 2      # 4.0
  speed3 = speed2 ** 2  # 16.0
  t1 = speed3 ** 2      # 256.0
  t1_2 = t1 ** 2        # 65536.0
  return t1
""",
    )


def test_constructs() -> None:
    @az.program
    def f(x: az.Array[az.f64, 4], a: az.f64) -> Any:
        y = az.map(lambda v: v * a + 1.0, x)
        signs = az.map(lambda v: az.cond(v > 3.0, lambda: v, lambda: -v), x)
        table = az.histogram(lambda p, q: p + q, 0.0, 2, np.array([0, 1, 1, 0]), y)
        total = az.reduce(lambda p, q: p + q + p * q, 0.0, y)
        return {"total": total, "others": (table, az.argsort(y), az.update(x, 1, a), az.cumsum(signs))}

    assert_printed(az.trace(f)(np.array([1.0, 2.0, 3.0, 4.0]), 2.0), CONSTRUCTS)


CONSTRUCTS = """\
trace of f at x: f64[4] = [1.0, 2.0, 3.0, 4.0], a = 2.0
  c1 = [0, 1, 1, 0]
  c2 = [0, 1, 2]
  c3 = [3]
  t1 = for i < 4: x[i] * a + 1.0               # [3.0, 5.0, 7.0, 9.0]
  t2 = reduce i < 4: t1[i]                     # 1919.0
  combining p with q, from 0.0: p + q + p * q
  t3 = histogram(sum, 2, i < 4: c1[i], t1[i])  # [12.0, 12.0]
  t4 = for i < 4: t1[i]                        # [3.0, 5.0, 7.0, 9.0]
  t5 = argsort(t4)                             # [0, 1, 2, 3]
  t6 = update(x, 1, a)                         # [1.0, 2.0, 3.0, 4.0]
  t7 = for i < 3: -x[c2[i]]                    # [-1.0, -2.0, -3.0]
  t8 = for i < 1: x[c3[i]]                     # [4.0]
  t9 = full(4, -0.0)                           # [-0.0, -0.0, -0.0, -0.0]
  accumulate t10 = t9:                         # [-1.0, -2.0, -3.0, 4.0]
    for i < 3:
      t10[c2[i]] += t7[i]
    for i < 1:
      t10[c3[i]] += t8[i]
  t11 = cumsum(i < 4: t10[i])                  # [-1.0, -3.0, -6.0, -2.0]
  return {'total': t2, 'others': (t3, t5, t6, t11)}
"""


def test_many_inputs_stand_on_lines_of_their_own() -> None:
    @az.program
    def f(first: Vector, second: Vector, third: Vector) -> az.f64:
        return first[0]

    x = np.arange(8.0)
    assert str(az.trace(f)(x, x, x)).splitlines()[:4] == [
        "trace of f at",
        "  first: f64[8] = [0.0, 1.0, 2.0, ..., 7.0]",
        "  second: f64[8] = [0.0, 1.0, 2.0, ..., 7.0]",
        "  third: f64[8] = [0.0, 1.0, 2.0, ..., 7.0]",
    ]


def test_no_inputs_and_no_steps() -> None:
    f, g = az.program(lambda: 1.5), az.program(lambda x: {"same": x, "nothing": None})
    assert_printed(az.trace(f)(), f"trace of {f.name}\n  return 1.5\n")
    assert_printed(az.trace(g)(2.0), f"trace of {g.name} at x = 2.0\n  return {{'same': x, 'nothing': None}}\n")


def test_statements() -> None:
    @az.program
    def f(x: Vector, i: az.i64) -> az.f64:
        return az.inspect(x[i], "chosen") * 2.0

    text = str(az.trace(f, show=lambda *_: None)(np.ones(3), 2))
    assert "  require t3\n" in text and "  chosen = probe 'chosen': t4  # 1.0\n" in text


def test_rules_of_ones_own_are_shown() -> None:
    @az.custom_vjp
    def clipped(x: Any) -> Any:
        return az.where(x > 1.0, 1.0, x)

    @clipped.defvjp
    def rule(primals: Any, cotangent: Any) -> Any:
        return (cotangent,)

    f = az.program(lambda x: clipped(x) * 2.0)
    assert str(az.trace(f)(3.0)).splitlines()[1:] == [
        "  clipped = custom x2 = x: 1.0 if x2 > 1.0 else x2  # 1.0",
        "  with vjp (t2, t3): t3",
        "  t1 = clipped * 2.0  # 2.0",
        "  return t1",
    ]


# Time


def chain(steps: int) -> Trace:
    multiply = PRIMITIVES["multiply"]
    operations = [
        Operation("primitive", (multiply,), (Variable(0, f64), Variable(k, f64)), (), (f64,), Origin("f.py", 1, name))
        for k, name in zip(range(steps), ["speed", ""] * steps, strict=False)
    ]
    block = Block((f64,), tuple(operations), (Variable(0, f64),), ("x",))
    return replace(az.trace(az.program(lambda x: x))(1.0), block=block, values=[(np.float64(1.0),)] * steps)


@pytest.mark.slow
@pytest.mark.unguarded
@pytest.mark.parametrize("show", [str, az.draw], ids=["printed", "drawn"])
def test_time_is_linear_in_the_steps(show: Callable[[Trace], Any]) -> None:
    times = []
    for steps in (1_000, 4_000, 16_000):
        trace = chain(steps)
        gc.disable()
        try:
            times.append(min(_time(show, trace) for _ in range(3)))
        finally:
            gc.enable()
    assert all(later < 12 * earlier for earlier, later in pairwise(times)), times


def _time(show: Callable[[Trace], Any], trace: Trace) -> float:
    start = time.process_time()
    show(trace)
    return time.process_time() - start
