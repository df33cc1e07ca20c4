"""The loop IR itself: its rules, its text, and the plan of its temporaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import plain_loops
import pytest
from plain_loops import apply, at, const, fma, loop, put, var

from adze.backends import ir
from adze.backends.memory import arena as memory
from adze.core.primitive import lookup
from adze.core.types import bool_, f32, f64, i32, i64

n, m = var("n"), var("m")
A, B, C = ir.Buffer("a", f64, (n, m)), ir.Buffer("b", f64, (n,)), ir.Buffer("c", f64, (n, m))


def function(*body: ir.Statement) -> ir.Function:
    return ir.Function("f", ("n", "m"), (A, B), (C,), body)


def temporary(name: str, *extents: Any, scalar: Any = f64) -> ir.Buffer:
    return ir.Buffer(name, scalar, tuple(map(plain_loops.index, extents)))


PRODUCT = ir.Function(
    "product",
    ("n", "m", "l"),
    (ir.Buffer("a", f64, (n, var("l"))), ir.Buffer("b", f64, (var("l"), m))),
    (C,),
    (
        loop(
            "i",
            "n",
            loop(
                "j",
                "m",
                ir.Declare("t", const(0.0, f64)),
                loop(
                    "k",
                    "l",
                    ir.Assign(
                        "t",
                        fma(
                            at(ir.Buffer("a", f64, (n, var("l"))), "i", "k"),
                            at(ir.Buffer("b", f64, (var("l"), m)), "k", "j"),
                            var("t", f64),
                        ),
                    ),
                ),
                put(C, "i", "j", var("t", f64)),
                kind="lanes",
                factor=32,
            ),
            kind="jam",
            factor=4,
        ),
    ),
)


# Text


def test_the_worked_example_prints_as_in_the_header() -> None:
    assert (
        ir.text(PRODUCT)
        == """\
product(n, m, l; a: f64[n, l], b: f64[l, m]) -> c: f64[n, m]
  jam i < n by 4
    lanes j < m by 32
      var t = 0.0
      for k < l
        t = fma(a[i, k], b[k, j], t)
      c[i, j] = t"""
    )


def test_every_statement_prints() -> None:
    scratch = ir.Buffer("s", f64, (m,))
    total = ir.Reduction("t", lookup("add"), const(0.0, f64))
    half = apply("multiply", const(0.5, f64), apply("add", at(A, "i", "j"), const(-1.0, f64)))
    body = loop(
        "i",
        "n",
        ir.Allocate(scratch),
        ir.Declare("t", const(0.0, f64)),
        loop("j", "m", ir.Assign("t", apply("add", var("t", f64), half)), kind="lanes", factor=8, reductions=(total,)),
        ir.Require(apply("less", var("i"), m), 3, (var("i"), m)),
        ir.If(
            apply("less", var("t", f64), const(1.0, f64)),
            (ir.Let("x", apply("exp", var("t", f64))), put(C, "i", 0, var("x", f64))),
            (put(C, "i", 0, ir.Select(const(True, bool_), var("t", f64), const(2.0, f64), f64)),),
        ),
        kind="parallel",
        grain=const(4),
    )
    ir.check(function(body))
    assert (
        ir.text(function(body))
        == """\
f(n, m; a: f64[n, m], b: f64[n]) -> c: f64[n, m]
  parallel i < n grain 4
    temporary s: f64[m]
    var t = 0.0
    lanes j < m by 8 combining t by add from 0.0
      t = t + 0.5 * (a[i, j] + -1.0)
    require i < m else fail at 3 with i, m
    if t < 1.0
      let x = exp(t)
      c[i, 0] = x
    else
      c[i, 0] = select(True, t, 2.0)"""
    )


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (apply("subtract", n, apply("subtract", m, n)), "n - (m - n)"),
        (apply("subtract", apply("subtract", n, m), n), "n - m - n"),
        (apply("multiply", apply("add", n, m), const(-2)), "(n + m) * -2"),
        (apply("power", const(2.0, f64), apply("negative", var("x", f64))), "2.0 ** negative(x)"),
        (apply("equal", apply("less", n, m), apply("less", m, n)), "(n < m) == (m < n)"),
        (
            apply("logical_and", apply("less", n, m), apply("logical_not", const(False, bool_))),
            "n < m and logical_not(False)",
        ),
    ],
)
def test_operators_print_with_the_parentheses_they_need(expression: Any, wanted: str) -> None:
    assert ir.expression_text(expression) == wanted


# Rules

total, total0 = var("t", f64), const(0.0, f64)
adds = ir.Reduction("t", lookup("add"), const(0.0, f64))
store = put(C, "i", "j", const(0.0, f64))


def lanes(*body: Any, factor: int = 8, **more: Any) -> ir.For:
    return loop("j", "m", *body, kind="lanes", factor=factor, **more)


BROKEN: dict[str, tuple[str, tuple[ir.Statement, ...]]] = {
    "unknown name": ("x is not in scope", (ir.Let("y", var("x")),)),
    "wrong type of a name": ("n is i64, not f64", (ir.Let("y", var("n", f64)),)),
    "out of its block": (
        "x is not in scope",
        (ir.If(const(True, bool_), (ir.Let("x", n),), ()), ir.Let("y", var("x"))),
    ),
    "bound twice": ("n is bound already", (ir.Let("n", m),)),
    "operand types": ("of one type", (ir.Let("y", ir.Apply(lookup("add"), (n, const(1.0, f64)), i64)),)),
    "result type": ("gives bool, not i64", (ir.Let("y", ir.Apply(lookup("less"), (n, m), i64)),)),
    "operand count": ("takes 2 operands", (ir.Let("y", ir.Apply(lookup("add"), (n,), i64)),)),
    "not expanded": ("must be expanded", (ir.Let("y", apply("sign", n)),)),
    "constant": ("1.5 is no i64", (ir.Let("y", const(1.5)),)),
    "large constant": ("is no i32", (ir.Let("y", const(1 << 31, i32)),)),
    "arms": ("is f64, not i64", (ir.Let("y", ir.Select(const(True, bool_), n, const(1.0, f64), i64)),)),
    "fused integers": ("only floating", (ir.Let("y", fma(n, n, n)),)),
    "index count": ("takes 2 indices, got 1", (ir.Let("y", ir.Load(A, (n,))),)),
    "index type": ("is i32, not i64", (ir.Let("y", at(B, const(0, i32))),)),
    "unknown buffer": ("z is not in scope", (ir.Let("y", at(ir.Buffer("z", f64, (n,)), 0)),)),
    "other buffer of the name": ("b is not in scope", (ir.Let("y", at(ir.Buffer("b", f32, (n,)), 0)),)),
    "buffer twice": ("named b exists", (ir.Allocate(ir.Buffer("b", f64, ())),)),
    "argument written": ("an argument is only read", (put(B, 0, const(0.0, f64)),)),
    "stored type": ("is i64, not f64", (put(C, 0, 0, n),)),
    "immutable": ("x is no mutable variable", (ir.Let("x", n), ir.Assign("x", m))),
    "assigned type": ("is f64, not i64", (ir.Declare("x", n), ir.Assign("x", const(0.0, f64)))),
    "test": ("is i64, not bool", (ir.If(n, (), ()),)),
    "extent": ("is f64, not i64", (loop("i", const(1.0, f64)),)),
    "same place": ("every iteration of j stores", (loop("i", "n", lanes(put(C, "i", 0, const(0.0, f64)))),)),
    "same place for copies": (
        "every iteration of i stores",
        (loop("i", "n", lanes(put(C, 0, "j", const(0.0, f64))), kind="jam", factor=2),),
    ),
    "extent varies": ("varies with j", (lanes(loop("k", "j")),)),
    "extent varies by a variable": (
        "varies with j",
        (lanes(ir.Declare("x", n), loop("k", "n", loop("l", "x"), ir.Assign("x", var("j")))),),
    ),
    "test varies": ("varies with j", (lanes(ir.If(apply("less", var("j"), n), (), ())),)),
    "parallel in lanes": ("parallel is nested", (lanes(loop("i", "n", kind="parallel")),)),
    "parallel in parallel": ("parallel is nested", (loop("i", "n", loop("j", "m", kind="parallel"), kind="parallel"),)),
    "lanes in lanes": ("lanes is nested", (lanes(loop("i", "n", kind="lanes")),)),
    "factor": ("power of two", (lanes(factor=12),)),
    "factor of a sequential loop": ("only lanes and jam", (loop("i", "n", factor=2),)),
    "grain": ("only parallel loops", (lanes(grain=const(1)),)),
    "reductions elsewhere": ("only lanes loops", (ir.Declare("t", total0), loop("i", "n", reductions=(adds,)))),
    "outer variable in lanes": ("t is declared outside", (ir.Declare("t", total0), lanes(ir.Assign("t", total0)))),
    "outer variable in parallel": (
        "t is declared outside",
        (ir.Declare("t", total0), loop("i", "n", ir.Assign("t", total0), kind="parallel")),
    ),
    "reduction of nothing": ("no mutable variable", (lanes(reductions=(adds,)),)),
    "reduction read": (
        "has no value inside",
        (ir.Declare("t", total0), loop("i", "n", lanes(put(C, "i", "j", total), reductions=(adds,)))),
    ),
    "reduction replaced": (
        "does not combine",
        (ir.Declare("t", total0), lanes(ir.Assign("t", apply("multiply", total, total)), reductions=(adds,))),
    ),
    "reduction in copies": (
        "t is declared outside",
        (
            ir.Declare("t", total0),
            lanes(
                loop("i", "n", ir.Assign("t", apply("add", total, total0)), kind="jam", factor=2), reductions=(adds,)
            ),
        ),
    ),
    "allocated in lanes": ("no buffer is allocated", (lanes(ir.Allocate(ir.Buffer("s", f64, (n,)))),)),
    "allocated by data": (
        "may change while it lives",
        (ir.Declare("x", n), ir.Allocate(ir.Buffer("s", f64, (var("x"),)))),
    ),
    "while in jam": ("no while stands inside jam", (loop("j", "m", ir.While((), const(True, bool_), ()), kind="jam"),)),
    "stored by lanes that have ended": (
        "lanes that have ended would store",
        (lanes(ir.While((), apply("less", var("j"), n), (put(C, 0, "j", const(0.0, f64)),))),),
    ),
    "while without a test": ("x is i64, not bool", (ir.While((ir.Let("x", n),), var("x"), ()),)),
    "beyond a while": (
        "x is not in scope",
        (ir.While((ir.Let("x", n),), const(True, bool_), ()), ir.Let("y", var("x"))),
    ),
    "returned without need": (
        "only the top level returns",
        (ir.Allocate(ir.Buffer("s", f64, (n,))), ir.Return(0, ir.Buffer("s", f64, (n,)))),
    ),
    "required in lanes": ("no requirement", (lanes(ir.Require(const(True, bool_), 0, ())),)),
    "required values": ("at most 4", (ir.Require(const(True, bool_), 0, (n,) * 5),)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_breaks_the_rules_is_refused(case: str) -> None:
    message, body = BROKEN[case]
    with pytest.raises(ir.InvalidLoops, match=message) as caught:
        ir.check(function(*body))
    assert str(caught.value).startswith("in the loops of f: ")


@pytest.mark.parametrize("times", [0, 2])
def test_each_returned_array_is_returned_once(times: int) -> None:
    made = [ir.Buffer(f"s{k}", f64, (n,)) for k in range(times)]
    body = (*map(ir.Allocate, made), *[ir.Return(0, each) for each in made])
    with pytest.raises(
        ir.InvalidLoops, match="an array is never returned" if not times else "returns each array, once"
    ):
        ir.check(replace(function(*body), returned=1))


def test_what_keeps_the_rules_passes() -> None:
    ir.check(PRODUCT)
    masked = ir.Select(apply("less", at(B, "j"), total0), apply("add", total, at(B, "j")), total, f64)
    ir.check(
        function(
            loop(
                "i",
                "n",
                ir.Declare("t", total0),
                lanes(ir.Assign("t", masked), ir.Assign("t", fma(at(B, "j"), at(B, "j"), total)), reductions=(adds,)),
                lanes(put(C, "i", "j", total)),
                kind="parallel",
            ),
            ir.Let("count", apply("i64", at(B, 0))),
            ir.Allocate(ir.Buffer("s", f64, (var("count"),))),
        )
    )


def test_varying_finds_what_is_assigned_further_down() -> None:
    still, moved, late = ir.Declare("still", n), ir.Declare("moved", n), ir.Declare("late", n)
    body = lanes(
        still,
        moved,
        late,
        loop(
            "k",
            "n",
            ir.Assign("still", apply("add", var("still"), var("k"))),
            ir.Assign("late", var("moved")),
            ir.Assign("moved", var("j")),
        ),
    )
    assert ir.varying(body) == {id(moved), id(late)}


# Temporaries


def plan(*body: ir.Statement) -> memory.Plan:
    ir.check(function(*body))
    return memory.plan(function(*body))


def touch(buffer: ir.Buffer) -> ir.Store:
    return ir.Store(buffer, tuple(const(0) for _ in buffer.extents), const(0, buffer.scalar))


def test_buffers_of_one_size_share_a_slot_when_their_lives_do_not_overlap() -> None:
    r, s, t = (temporary(name, "n", "m") for name in "rst")
    apart = plan(ir.Allocate(r), touch(r), ir.Allocate(s), touch(s), ir.Allocate(t), touch(t))
    assert apart.slot_of == {"r": 0, "s": 0, "t": 0}
    crossed = plan(ir.Allocate(r), touch(r), ir.Allocate(s), touch(s), ir.Allocate(t), touch(r), touch(t))
    assert crossed.slot_of == {"r": 0, "s": 1, "t": 0}
    looped = plan(ir.Allocate(r), ir.Allocate(s), loop("i", "n", touch(r), touch(s)))
    assert looped.slot_of == {"r": 0, "s": 1}


def test_sizes_are_compared_in_normal_form() -> None:
    r = temporary("r", apply("add", n, n), "m")
    s = temporary("s", "m", "w")
    t = temporary("t", apply("multiply", n, m), 4, scalar=f32)
    u = temporary("u", apply("subtract", n, const(1)), "m")
    body = [ir.Let("w", apply("multiply", const(2), n))]
    body += [statement for buffer in (r, s, t, u) for statement in (ir.Allocate(buffer), touch(buffer))]
    planned = plan(*body)
    assert planned.slot_of == {"r": 0, "s": 0, "t": 0, "u": 1}
    assert planned.prelude == ()
    parts = [apply("i64", apply("multiply", const(part, f64), apply("f64", n))) for part in (0.5, 0.25)]
    halves = [temporary(f"h{number}", part) for number, part in enumerate(parts)]
    assert len(plan(*(each for buffer in halves for each in (ir.Allocate(buffer), touch(buffer)))).slots) == 2
    assert plan(body[0], ir.Allocate(s), touch(s)).prelude == (body[0],)


def test_buffers_inside_parallel_loops_are_private() -> None:
    r, s, t = (temporary(name, "n") for name in "rst")
    first = loop("i", "n", ir.Allocate(r), touch(r), kind="parallel")
    second = loop("i", "n", ir.Allocate(s), touch(s), kind="parallel")
    planned = plan(ir.Allocate(t), touch(t), first, second)
    assert planned.slot_of == {"t": 0, "r": 1, "s": 1}
    assert [slot.private for slot in planned.slots] == [False, True]


def test_buffers_of_sizes_that_depend_on_data_are_dynamic() -> None:
    r = temporary("r", "count")
    planned = plan(ir.Let("count", apply("i64", at(B, 0))), ir.Allocate(r), touch(r))
    assert planned.dynamic == {"r"} and not planned.slots


def test_the_plain_run_fills_arrays() -> None:
    a, b, c = np.ones((2, 3)), np.ones((3, 4)), np.zeros((2, 4))
    assert plain_loops.run(PRODUCT, [a, b, c], [2, 4, 3]) == []
    assert (c == 3).all()


def test_a_reduction_must_keep_its_type() -> None:
    broken = replace(adds, primitive=lookup("less"))
    with pytest.raises(ir.InvalidLoops, match="less changes the type"):
        ir.check(function(ir.Declare("t", total0), lanes(reductions=(broken,))))


def test_expressions_have_no_truth_while_code_is_made() -> None:
    """Who asks whether there is one compares it with None; who asks what it is compares it with a constant."""
    with pytest.raises(TypeError, match="known when the code runs"):
        assert var("i") < var("n")


def test_the_names_in_blocks_are_by_what_is_done_with_them() -> None:
    """Again the same, and also of what is made from a block whose names were asked for."""
    head = (ir.Let("h", at(B, 0)),)
    inner = ir.If(
        apply("less", var("h", f64), const(0.0, f64)),
        (ir.Assign("s", const(1.0, f64)),),
        (put(C, "i", 0, const(2.0, f64)),),
    )
    repeated = ir.While(head, apply("less", n, m), (inner, ir.Allocate(temporary("t", "q"))))
    outer = loop("i", "n", ir.Declare("s", const(0.0, f64)), repeated, grain=var("g"))
    for _ in range(2):
        assert ir.mentioned((outer,)) == ({"i", "s", "h", "n", "m", "g", "q"}, {"b", "c", "t"})
        assert ir.read_in((outer,)) == {"b"} and ir.written_in((outer,)) == {"c"}
        assert ir.assigned_in((outer,)) == {"s"} and ir.bound_in((outer,)) == {"i", "s", "h"}
    ir.mentioned((outer,))[0].clear()
    assert ir.mentioned((outer.body[1],))[0] == {"s", "h", "n", "m", "i", "q"}
    renamed = replace(outer, variable="k", grain=None)
    assert ir.mentioned((renamed,))[0] == {"i", "k", "s", "h", "n", "m", "q"} and ir.bound_in((renamed,)) == {
        "k",
        "s",
        "h",
    }


# Canonical forms


def test_forms_of_nested_loops_tell_which_names_are_one() -> None:
    """A loop inside has a form of its own: around it, its names are told apart as they are in the whole block."""

    def block(i: str, k: str, row: str, column: str, target: ir.Buffer) -> ir.Block:
        return (loop(i, "n", loop(k, "m", put(target, i, k, at(A, row, column)))),)

    first = ir.canonical(block("i", "k", "i", "k", C))
    other = ir.canonical(block("p", "q", "p", "q", C))
    assert first.form == other.form and first.buffers == other.buffers == (C, A)
    assert (first.variables, other.variables) == (("i", "n", "k", "m"), ("p", "n", "q", "m"))
    others = [block("i", "k", "k", "i", C), block("i", "k", "i", "i", C), block("i", "k", "i", "k", A)]
    twice = (*block("i", "k", "i", "k", C), *block("i", "k", "i", "k", C))
    apart = (*block("i", "k", "i", "k", C), *block("i", "q", "i", "q", C))
    forms = [first.form, *[ir.canonical(each).form for each in (*others, twice, apart)]]
    assert len(set(forms)) == len(forms)
    bound = ir.canonical(block("i", "k", "i", "k", C), "m")
    assert bound.variables == ("m", "i", "n", "k") and bound.form not in forms
