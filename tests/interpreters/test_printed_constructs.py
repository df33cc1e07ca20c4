"""Each construct as it is printed: word for word, in the style for people and as the raw term."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from programs import CASES, Case

import adze as az
from adze.core.builder import Builder, build
from adze.core.dims import Dim
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.terms import Block, Foreign
from adze.core.types import (
    ArrayType,
    Declaration,
    FunctionType,
    Itself,
    Named,
    Scalar,
    Type,
    TypeVariable,
    f32,
    f64,
    i64,
)
from adze.interpreters.simplify import simplify


def array(scalar: Scalar, *sizes: str) -> ArrayType:
    return ArrayType(scalar, tuple(map(Dim.of, sizes)))


def block_of(parameters: dict[str, Type], function: Callable[..., Sequence[Value]]) -> Block:
    """The term of a function of a builder and values."""
    with build() as builder:
        binders = [builder.variable(type, name) for name, type in parameters.items()]
        results = function(builder, *binders)
        block, _ = to_block(binders, results, builder.scopes[0].statements)
    az.check(block)
    return block


def assert_block(block: Block, wanted: str, style: str = "surface") -> None:
    assert az.pretty(block, style=style) + "\n" == wanted


VECTOR, MATRIX = array(f64, "n"), array(f64, "n", "m")


def combined(name: str) -> Callable[[Value, Value], list[Value]]:
    from adze.core.builder import current

    return lambda a, b: [current().primitive(name, a, b)]


def test_scans() -> None:
    def f(b: Builder, x: Value, a: Value) -> Sequence[Value]:
        n, zero, one = b.size(x, 0), b.literal(0, f64), b.literal(1, i64)
        lowest = b.literal(float("-inf"), f64)

        def backwards(i: Value) -> list[Value]:
            return [b.index(x, [b.primitive("subtract", b.primitive("subtract", n, one), i)])]

        def row(i: Value) -> Sequence[Value]:
            return b.scan(b.size(a, 1), [lowest], lambda j: [b.index(a, [i, j])], combined("maximum"))

        def pairs(i: Value) -> list[Value]:
            return [b.index(x, [i]), b.primitive("exp", b.index(x, [i]))]

        def operator(p: Value, q: Value, r: Value, s: Value) -> list[Value]:
            return [b.primitive("multiply", p, r), b.primitive("add", b.primitive("multiply", q, r), s)]

        return [
            *b.scan(n, [zero], lambda i: [b.index(x, [i])], combined("add")),
            *b.scan(n, [zero], backwards, combined("add")),
            *b.generate(b.size(a, 0), row),
            *b.scan(n, [b.literal(1, f64)], lambda i: [b.primitive("exp", b.index(x, [i]))], combined("add")),
            *b.scan(n, [b.literal(1, f64), zero], pairs, operator),
        ]

    block = block_of({"x": VECTOR, "a": MATRIX}, f)
    assert_block(
        block,
        """\
def program(x: f64[n], a: f64[n, m]) -> (f64[n], f64[n], f64[n, m], f64[n], f64[n], f64[n]):
  t1 = scan i < n: exp(x[i])
  combining t2 with t3, from 1.0: t2 + t3
  t4, t5 = scan i < n: x[i], exp(x[i])
  combining (t6, t7) with (t8, t9), from 1.0, 0.0: t6 * t8, t7 * t8 + t9
  return cumsum(x), cumsum(x[::-1]), cummax(a, 1), t1, t4, t5
""",
    )
    assert_block(
        block,
        """\
def program(x: f64[n], a: f64[n, m]) -> (f64[n], f64[n], f64[n, m], f64[n], f64[n], f64[n]):
  t1 = for i < n: cummax(j < m: a[i, j])
  t2 = scan i < n: exp(x[i])
  combining t3 with t4, from 1.0: t3 + t4
  t5, t6 = scan i < n: x[i], exp(x[i])
  combining (t7, t8) with (t9, t10), from 1.0, 0.0: t7 * t9, t8 * t9 + t10
  return cumsum(i < n: x[i]), cumsum(i < n: x[n - 1 - i]), t1, t2, t5, t6
""",
        "loops",
    )


def test_histograms() -> None:
    def f(b: Builder, x: Value, at: Value) -> Sequence[Value]:
        n, bins, zero = b.size(x, 0), b.literal(10, i64), b.literal(0, f64)

        def element(i: Value) -> list[Value]:
            return [b.index(at, [i]), b.index(x, [i])]

        def operator(p: Value, q: Value, r: Value, s: Value) -> list[Value]:
            return [b.primitive("subtract", p, r), b.primitive("add", q, s)]

        one = b.literal(1, i64)
        return [
            *b.histogram(bins, n, [zero], element, combined("add")),
            *b.histogram(bins, n, [b.literal(0, i64)], lambda i: [b.index(at, [i]), one], combined("add")),
            *b.histogram(bins, n, [zero], lambda i: [i, b.index(x, [i])], combined("add")),
            *b.histogram(bins, n, [zero, zero], lambda i: [*element(i), b.index(x, [i])], operator),
        ]

    assert_block(
        block_of({"x": VECTOR, "at": array(i64, "n")}, f),
        """\
def program(x: f64[n], at: i64[n]) -> (f64[10], i64[10], f64[10], f64[10], f64[10]):
  t1, t2 = histogram of 10 bins over i < n: at[i], x[i], x[i]
  combining (t3, t4) with (t5, t6), from 0.0, 0.0: t3 - t5, t4 + t6
  return (
    histogram(sum, 10, at, x),
    histogram(sum, 10, at, 1),
    histogram(sum, 10, i < n: i, x[i]),
    t1,
    t2,
  )
""",
    )


def test_scatters_and_argsort() -> None:
    def f(b: Builder, x: Value, a: Value, at: Value, v: Value, i: Value) -> Sequence[Value]:
        m, number = b.size(at, 0), b.literal(2.5, f64)
        one = b.literal(1, i64)

        def two(j: Value, k: Value) -> list[Value]:
            return [b.index(at, [j]), b.index(v, [j]), b.primitive("exp", b.index(v, [k]))]

        return [
            *b.scatter(True, [m], [x], lambda j: [b.index(at, [j]), b.index(v, [j])]),
            *b.scatter(False, [m], [x], lambda j: [b.index(at, [j]), number]),
            *b.scatter(True, [m], [x], lambda j: [j, b.index(v, [j])]),
            *b.scatter(True, [], [a], lambda: [i, x]),
            *b.scatter(True, [one], [a], lambda _: [i, i, number]),
            *b.scatter(False, [m, m], [x, x], two),
            *b.emit("argsort", (), [v]),
        ]

    types: dict[str, Type] = {"x": VECTOR, "a": array(f64, "n", "n"), "at": array(i64, "m"), "v": array(f64, "m")}
    block = block_of({**types, "i": i64}, f)
    assert_block(
        block,
        """\
def program(
  x: f64[n],
  a: f64[n, n],
  at: i64[m],
  v: f64[m],
  i: i64,
) -> (f64[n], f64[n], f64[n], f64[n, n], f64[n, n], f64[n], f64[n], i64[m]):
  scatter t1 = x over j < m: t1[j] = v[j]
  scatter t2 = x, t3 = x over j < m, k < m in order:
    t2[at[j]] = v[j]
    t3[at[j]] = exp(v[k])
  return (
    scatter(x, at, v),
    scatter(x, at, 2.5, unique=False),
    t1,
    update(a, i, x),
    update(a, (i, i), 2.5),
    t2,
    t3,
    argsort(v),
  )
""",
    )


def test_while() -> None:
    def f(b: Builder, s: Value) -> Sequence[Value]:
        one, two = b.literal(1, f64), b.literal(2, f64)

        def test(t: Value) -> Value:
            e = b.primitive("exp", t)
            return b.primitive("less", b.primitive("multiply", e, b.primitive("sin", e)), one)

        def step(s: Value, t: Value) -> list[Value]:
            return [b.primitive("multiply", s, two), b.primitive("add", t, s)]

        return [
            *b.while_loop([s, one], lambda s, t: b.primitive("less", s, b.literal(10, f64)), step, ["s", "t"]),
            *b.while_loop([s], test, lambda t: [b.primitive("add", t, one)]),
        ]

    assert_block(
        block_of({"s": f64}, f),
        """\
def program(s: f64) -> (f64, f64, i64, f64, i64):
  t1, t2, t3 = loop with s2 = s, t = 1.0 while s2 < 10.0: next s2 * 2.0, t + s2
  t4, t5 = loop with t6 = s while:
    t7 = exp(t6)
    yield t7 * sin(t7) < 1.0
  do: next t6 + 1.0
  return t1, t2, t3, t4, t5
""",
    )


def test_meanings_given_by_the_user() -> None:
    def f(b: Builder, x: Value, s: Value) -> Sequence[Value]:
        solve = Foreign("solve", lambda x: x, lambda types: [types[0]])
        pair = Foreign("split", lambda x: (x, x), lambda types: [types[0], types[0]])

        def rule(itself: Value, a: Value, d: Value) -> list[Value]:
            return [b.primitive("multiply", d, b.primitive("exp", a))]

        b.emit("probe", ("state",), [s, x])
        types = [Itself((f64,), (f64,)), f64, f64]
        rules = [b.body(types, rule, ["f", "a", "d"]), b.body(types, rule, ["f", "a", "c"])]
        body = b.body([f64], lambda a: [b.primitive("exp", a)], ["a"])
        return [
            *b.emit("foreign", (solve,), [x]),
            *b.emit("foreign", (pair,), [x]),
            *b.emit("custom", ("jvp", "vjp"), [s], [body, *rules]),
        ]

    assert_block(
        block_of({"x": VECTOR, "s": f64}, f),
        """\
def program(x: f64[n], s: f64) -> (f64[n], f64[n], f64[n], f64):
  t1, t2 = probe 'state': s, x
  t3, t4 = foreign.split(x)
  t5 = custom a = s: exp(a)
  with jvp (a, d): d * exp(a)
  with vjp (a, d): d * exp(a)
  return foreign.solve(x), t3, t4, t5
""",
    )


ITEM = TypeVariable("T")
LIST = Declaration("List", (ITEM,))
LIST.variants.update({"Nil": {}, "Cons": {"head": ITEM, "tail": Named(LIST, (ITEM,))}})
POINT = Declaration("Point")
POINT.variants.update({"Point": {"x": f64, "y": f64}})


def higher_order(b: Builder, n: Value, s: Value) -> Sequence[Value]:
    one, numbers, whole = b.literal(1, i64), Named(LIST, (f64,)), FunctionType((i64,), (i64,))

    def factorial(f: Value, k: Value) -> Sequence[Value]:
        def smaller() -> list[Value]:
            return [b.primitive("multiply", k, b.emit("apply", (), [f, b.primitive("subtract", k, one)])[0])]

        return b.cond(b.primitive("less", k, one), lambda: [one], smaller)

    def two(y: Value) -> list[Value]:
        e = b.primitive("exp", y)
        return [b.primitive("multiply", e, e), b.primitive("add", e, y)]

    (fact,) = b.emit("fix", (whole,), [], [b.body([whole, i64], factorial, ["fact", "k"])])
    scale_type, two_type = FunctionType((f64,), (f64,)), FunctionType((f64,), (f64, f64))
    (scale,) = b.emit("function", (scale_type,), [], [b.body([f64], lambda y: [b.primitive("multiply", y, s)], ["y"])])
    (both,) = b.emit("function", (two_type,), [], [b.body([f64], two, ["y"])])
    (empty,) = b.emit("construct", (numbers, "Nil"), [])
    (cons,) = b.emit("construct", (numbers, "Cons"), [s, empty])
    (point,) = b.emit("construct", (Named(POINT), "Point"), [s, s])
    branches = [
        b.body([], lambda: [b.literal(0, f64)]),
        b.body([f64, numbers], lambda head, tail: [b.primitive("add", head, s)], ["head", "tail"]),
    ]
    (packed,) = b.emit("pack", (), [s, n])
    b.emit("apply", (), [scale, s])
    call = b.body([], lambda: b.emit("apply", (), [fact, n]))
    return [
        *b.emit("apply", (), [fact, n]),
        *b.emit("apply", (), [both, s]),
        cons,
        *b.emit("case", ("Nil", "Cons"), [cons], branches),
        *b.emit("case", ("Point",), [point], [b.body([f64, f64], lambda x, y: [y], ["x", "y"])]),
        packed,
        *b.emit("project", (0,), [packed]),
        *b.emit("par", (), [], [call, b.body([], lambda: b.emit("apply", (), [fact, one]))]),
        *b.emit("par", (), [], [call, b.body([], lambda: b.emit("apply", (), [both, s]))]),
        scale,
    ]


def test_the_higher_order_fragment() -> None:
    assert_block(
        block_of({"n": i64, "s": f64}, higher_order),
        """\
def program(
  n: i64,
  s: f64,
) -> (i64, f64, f64, List[f64], f64, f64, (f64, i64), f64, i64, i64, i64, f64, f64, (f64) -> f64):
  t1 = fun (y: f64): y * s
  t1(s)
  def fact(k: i64) -> i64: return 1 if k < 1 else k * fact(k - 1)
  def f(y: f64) -> (f64, f64):
    t2 = exp(y)
    return t2 ** 2, t2 + y
  t3, t4 = f(s)
  t5, t6 = par(fact(n), fact(1))
  t7, t8, t9 = par:
    branch: fact(n)
    branch:
      yield f(s)
  t10 = List.Cons(s, List.Nil())
  t11 = match t10:
    case Nil(): 0.0
    case Cons(head, _): head + s
  t12 = (s, n)
  return fact(n), t3, t4, t10, t11, Point(s, s).y, t12, t12[0], t5, t6, t7, t8, t9, t1
""",
    )


def test_raw_terms() -> None:
    def f(b: Builder, x: Value, y: Value, i: Value) -> Sequence[Value]:
        tenth, zero = b.literal(0.1, f32), b.literal(0, i64)
        scaled = b.generate(b.size(x, 0), lambda k: [b.primitive("multiply", b.index(x, [k]), tenth)])
        written = b.scatter(True, [], [y], lambda: [i, b.literal(1, f64)])
        b.emit("probe", ("here",), [i])
        return [*scaled, *written, *b.cond(b.primitive("less", i, zero), lambda: [zero], lambda: [i])]

    block = block_of({"x": array(f32, "n"), "y": VECTOR, "i": i64}, f)
    assert_block(
        block,
        """\
(x: f32[n], y: f64[n], i: i64) ->
  probe['here'] %0: i64
  generate[n] n: f32[n]
    (i64) ->
      index %4, %0: f32
      primitive[multiply] %0, 0.1:f32: f32
      => %0
  scatter[unique, 0] %3: f64[n]
    () ->
      => %2, 1.0
  primitive[less] %3, 0: bool
  cond %0: i64
    () ->
      => 0
    () ->
      => %4
  => %3, %2, %0
""",
        "de-bruijn",
    )


def test_raw_terms_of_the_higher_order_fragment() -> None:
    assert_block(
        block_of({"n": i64, "s": f64}, higher_order),
        """\
(n: i64, s: f64) ->
  function: (f64) -> f64
    (y: f64) ->
      primitive[multiply] %0, %1: f64
      => %0
  apply %0, %1: f64
  fix: (i64) -> i64
    (fact: (i64) -> i64, k: i64) ->
      primitive[less] %0, 1: bool
      cond %0: i64
        () ->
          => 1
        () ->
          primitive[subtract] %1, 1: i64
          apply %3, %0: i64
          primitive[multiply] %3, %0: i64
          => %0
      => %0
  apply %0, %4: i64
  function: (f64) -> (f64, f64)
    (y: f64) ->
      primitive[exp] %0: f64
      primitive[multiply] %0, %0: f64
      primitive[add] %1, %2: f64
      => %1, %0
  apply %0, %5: f64, f64
  par: i64, i64
    () ->
      apply %4, %8: i64
      => %0
    () ->
      apply %4, 1: i64
      => %0
  par: i64, f64, f64
    () ->
      apply %6, %10: i64
      => %0
    () ->
      apply %4, %9: f64, f64
      => %1, %0
  construct[Nil]: List[f64]
  construct[Cons] %13, %0: List[f64]
  case[Nil, Cons] %0: f64
    () ->
      => 0.0
    (head: f64, tail: List[f64]) ->
      primitive[add] %1, %16: f64
      => %0
  construct[Point] %15, %15: Point
  case[Point] %0: f64
    (x: f64, y: f64) ->
      => %0
  pack %17, %18: (f64, i64)
  project[0] %0: f64
  => %15, %13, %12, %5, %4, %2, %1, %0, %11, %10, %9, %8, %7, %18
""",
        "de-bruijn",
    )


# Any program, in any style


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_derivatives_are_printed(case: Case) -> None:
    """The tangents of every program and, where it has one, its cotangents; as derived and simplified."""
    if any(parameter.type is None for parameter in case.program.parameters):
        return
    for verb in (az.jvp, az.vjp):
        if not derivable(verb, case.program):
            continue
        term = verb(case.program).at().term
        for printed in (term, simplify(term)):
            for style in ("surface", "loops", "de-bruijn"):
                assert "\n" in az.pretty(printed, style=style)


def derivable(verb: Callable[..., Any], program: az.Program) -> bool:
    try:
        verb(program).at().term  # noqa: B018
    except (TypeError, NotImplementedError):
        return False
    return True


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="style is one of 'surface', 'loops', 'procedures', 'de-bruijn', got 'latex'"):
        az.pretty(Block((), (), ()), style="latex")


LONG_PROGRAMS = """
import gc, time
import adze as az

def seconds(length):
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.f64):
        for k in range(length // 4):
            x = (x * y if k % 2 else az.sin(x)) + float(k)
            y = az.sum(x) if k % 5 == 0 else y + 1
        return x, y

    block = f.at().term
    start = time.perf_counter()
    for style in ("surface", "loops", "de-bruijn"):
        assert az.pretty(block, style=style).count("\\n") > length / 40
    assert str(az.draw(block)).count("\\n") > length
    return time.perf_counter() - start

gc.disable()
seconds(1000)
short, long = seconds(2_500), seconds(25_000)
assert long < 25 * short, (short, long)
"""


@pytest.mark.slow
def test_long_programs_are_printed_in_linear_time() -> None:
    """In a process of its own, without the type checks of the test run."""
    run = subprocess.run([sys.executable, "-c", LONG_PROGRAMS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
