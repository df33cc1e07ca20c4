"""Forward mode through functions that are values, recursion, tuples, data and forks."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from directions import close, combined, differences, direction, floats, inner, moving
from programs.case import Case, X
from programs.functions import (
    BUSH,
    FORMULA,
    HIGHER_ORDER,
    SOME,
    Formula,
    Line,
    List,
    Maybe,
    Tree,
    folded,
    folded_tree,
    formula,
    linked,
    list_map,
    list_sum,
    tree_map,
)

import adze as az
from adze.core.types import is_data
from adze.interpreters.evaluate import evaluate_block

pytestmark = pytest.mark.unguarded

# Where a program has no derivative: at a tie, at a jump, of nothing; and one whose recursion ends at some numbers alone
KINKS = {"in_a_while": [1], "tree_sort": [1], "safe_division": [1], "in_a_reduction": [2], "root_by_halving": [0]}


def calls(most: int, kept: Callable[[Case], bool] = lambda case: True) -> pytest.MarkDecorator:
    """Calls of each program at which it has a derivative, at most so many of one."""
    found = [
        pytest.param(case, case.arguments[k], id=f"{case.name}-{k}")
        for case in HIGHER_ORDER
        if moving(case.program) and kept(case)
        for k in [k for k in range(len(case.arguments)) if k not in KINKS.get(case.name, ())][:most]
    ]
    return pytest.mark.parametrize(("case", "arguments"), found)


def traceable(case: Case) -> bool:
    """Whether a trace can give the results: numbers and arrays."""
    made = case.program.instance_for(case.program.bind(case.arguments[0], {}))
    return all(map(is_data, made.term.types))


# Every program


@calls(4)
def test_tangents_are_differences(case: Case, arguments: Any) -> None:
    chosen = moving(case.program)
    tangents = [direction(arguments[k], 10 + k) for k in chosen]

    def at(*values: Any) -> Any:
        given = list(arguments)
        for k, value in zip(chosen, values, strict=True):
            given[k] = value
        return az.evaluate(case.program)(*given)

    result, tangent = az.evaluate(az.jvp(case.program))(*arguments, *tangents)
    assert repr(result) == repr(az.evaluate(case.program)(*arguments))
    close(tangent, differences(at, [arguments[k] for k in chosen], tangents))


@calls(1)
def test_second_order(case: Case, arguments: Any) -> None:
    """Forward over forward, where the first tangents stay the same."""
    chosen = moving(case.program)
    first, second = ([direction(arguments[k], seed + k) for k in chosen] for seed in (20, 30))
    pushed = az.jvp(case.program)

    def at(*values: Any) -> Any:
        given = list(arguments)
        for k, value in zip(chosen, values, strict=True):
            given[k] = value
        return az.evaluate(pushed)(*given, *first)

    fixed = [combined(lambda x: 0 * x, tangent) for tangent in first]
    twice = az.jvp(pushed)
    again = az.evaluate(twice)(*arguments, *first, *second, *fixed)[1]
    close(again, differences(at, [arguments[k] for k in chosen], second))


@calls(1, traceable)
def test_forward_mode_is_the_transpose_of_the_sweep_over_the_trace(case: Case, arguments: Any) -> None:
    tangents = [direction(arguments[k], 40 + k) for k in moving(case.program)]
    result, tangent = az.evaluate(az.jvp(case.program))(*arguments, *tangents)
    cotangent = direction(result, 50)
    cotangents = az.vjp(case.program, *arguments, via="trace")[1](cotangent)
    np.testing.assert_allclose(inner(tangent, cotangent), inner(tangents, cotangents), rtol=1e-10, atol=1e-12)


@calls(1)
def test_a_derivative_is_a_program(case: Case, arguments: Any) -> None:
    """It is well typed, printed, counted, pickled and simplified as others are."""
    pushed = az.jvp(case.program)
    given = [*arguments, *[direction(arguments[k], k) for k in moving(case.program)]]
    made = pushed.instance_for(pushed.bind(given, {}))
    az.check(made.term)
    assert az.pretty(made).startswith(f"def jvp({case.name})(")
    assert az.cost(pushed)(*given) == az.cost(pushed)(*given)
    assert pickle.loads(pickle.dumps(made.term)) == made.term
    assert made.term.interpret(az.Reify()) == made.term


def test_compiled_code_gives_the_same() -> None:
    two = linked([1.0, 2.0])
    for program, arguments in (
        (list_sum, (SOME, SOME)),
        (formula, (FORMULA, X, FORMULA, X)),
        (tree_map, (BUSH, 2.0, BUSH, 0.5)),
    ):
        pushed = az.jvp(program)
        close(az.compile(pushed)(*arguments), floats(az.evaluate(pushed)(*arguments)))
    with pytest.raises(ValueError, match=r"^the tangent of xs\.tail\.tail is List\.Nil"):
        az.compile(az.jvp(list_sum))(SOME, two)


def test_the_text_of_a_derivative() -> None:
    """The tangent is walked beside its value once; after that, a list of pairs goes through the program."""
    text = """\
def jvp(list_sum)(xs: List[f64], d_xs: List[f64]) -> (f64, f64):
  def joined(value: List[f64], tangent: List[f64], path: i64, length: i64) -> List[(f64, f64)]:
    return match value:
      case Nil():
        match tangent:
          case Nil(): nothing
          case Cons(_, _):
            require False
        yield List.Nil()
      case Cons(head, tail):
        t1, t2 = match tangent:
          case Nil():
            require False
            yield head, tail
          case Cons(d_head, d_tail): d_head, d_tail
        yield List.Cons((head, t1), joined(tail, t2, path, 1 + length))
  def function(xs2: List[(f64, f64)]) -> (f64, f64):
    t3, t4 = match xs2:
      case Nil(): 0.0, 0.0
      case Cons(head, tail):
        t5 = function(tail)
        yield head[0] + t5[0], head[1] + t5[1]
    return (t3, t4)
  t6 = function(joined(xs, d_xs, 0, 0))
  return t6[0], t6[1]"""
    assert az.pretty(az.jvp(list_sum).at()) == text


# What moves


@az.program
def scaled(xs: List[az.f64], y: az.f64) -> az.f64:
    return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x * y + rest)


def test_what_does_not_move_stays_as_it_is() -> None:
    """A list that is constant is no list of pairs, and functions of constants are as they were."""
    text = az.pretty(az.jvp(scaled, argnums="y").at())
    assert "(xs2: List[f64]) -> (f64, f64)" in text and "joined" not in text
    assert az.evaluate(az.jvp(scaled, argnums="y"))(SOME, 2.0, 1.0) == (6.5, 3.25)

    @az.program
    def scaled_by_a_power(x: az.f64, n: az.i64, c: az.f64) -> az.f64:
        power = az.fix(
            lambda self, c, k: az.cond(k == 0, lambda: 1.0, lambda: c * self(c, k - 1)), az.f64, az.i64, result=az.f64
        )
        return x * power(c, n)

    text = az.pretty(az.jvp(scaled_by_a_power, argnums=0).at())
    assert "(c2: f64, k: i64) -> f64" in text


def test_a_parameter_that_does_not_move_has_no_tangent() -> None:
    """An exponent of zero tangent at a negative base would make a NaN."""

    @az.program
    def powers(x: az.f64, p: az.f64) -> az.f64:
        go = az.fix(
            lambda self, x, p, k: az.cond(k == 0, lambda: x, lambda: self(x**p, p, k - 1)),
            az.f64,
            az.f64,
            az.i64,
            result=az.f64,
        )
        return go(x, p, 2)

    value, tangent = az.evaluate(az.jvp(powers, argnums="x"))(-2.0, 3.0, 1.0)
    assert value == -512.0 and np.isclose(tangent, 9 * 256.0)


def test_branches_that_are_not_taken_add_nothing() -> None:
    @az.program
    def f(x: az.f64, m: Maybe[az.f64]) -> az.f64:
        root = az.fix(
            lambda self, z, k: az.cond(
                k == 0, lambda: z, lambda: az.cond(z > 0, lambda: self(az.sqrt(z), k - 1), lambda: self(z * 2, k - 1))
            ),
            az.f64,
            az.i64,
            result=az.f64,
        )
        return root(x, 2) + az.case(m, Nothing=lambda: az.cond(x > 0, lambda: 1 / x, lambda: x), Just=lambda y: 1 / y)

    assert az.evaluate(az.jvp(f))(0.0, Maybe.Nothing(), 1.0, Maybe.Nothing()) == (0.0, 5.0)


def test_constant_data_that_meets_what_moves() -> None:
    """A list of constants is one of pairs from where it is made; a function is one on duals wherever it goes."""

    @az.program
    def f(x: az.f64, xs: List[az.f64], up: az.bool_) -> az.f64:
        chosen = az.cond(up, lambda: List.Cons(x, List.Cons(3.0, xs)), lambda: xs)
        g = az.cond(up, lambda: az.function(lambda z: z * z, az.f64), lambda: az.function(lambda z: z * x, az.f64))
        return folded(chosen, az.f64, az.f64, 0.0, lambda y, rest: g(y) + rest)

    pushed = az.evaluate(az.jvp(f, argnums="x"))
    assert pushed(2.0, linked([1.0, 5.0]), True, 1.0) == (39.0, 4.0)
    assert pushed(2.0, linked([1.0, 5.0]), False, 1.0) == (12.0, 6.0)


def test_results_that_are_functions() -> None:
    """The tangent gives the tangents of its results, at arguments that do not move."""

    @az.program
    def f(x: az.f64) -> tuple[az.Function[[az.f64, az.i64], az.f64], Line]:
        return az.function(lambda z, k: z * x * x + k, az.f64, az.i64), Line(lambda z: x * z, x * x)

    (g, line), (dg, dline) = az.evaluate(az.jvp(f))(3.0, 10.0)
    assert (g(2.0, 1), dg(2.0, 1)) == (19.0, 120.0)
    assert (line.at(2.0), line.slope, dline.at(2.0), dline.slope) == (6.0, 9.0, 20.0, 60.0)


def test_inside_of_programs() -> None:
    """What is captured is constant, data and functions, too; a function of the program is known by its code."""

    @az.program
    def f(xs: List[az.f64], t: az.f64) -> az.f64:
        square = az.fix(
            lambda self, z, k: az.cond(k == 0, lambda: z, lambda: self(z * z * t, k - 1)), az.f64, az.i64, result=az.f64
        )
        slope = az.jvp(lambda y: square(y, 1) * scaled(xs, y), (t,), (1.0,))[1]
        return slope + az.jvp(scaled, (xs, t), (xs, 1.0))[1]

    total, t = 3.25, 2.0
    assert az.evaluate(f)(SOME, t) == 3 * t**3 * total + total * t + total
    first = az.jvp(az.program(lambda t: f(SOME, t)))
    close(az.evaluate(first)(t, 1.0)[1], differences(lambda t: az.evaluate(f)(SOME, t), [t], [1.0]))


def test_a_hessian_product_is_reverse_over_forward_and_forward_over_reverse() -> None:
    @az.program
    def slope(f: Formula, x: az.Array[az.f64, "n"], v: az.Array[az.f64, "n"]) -> az.f64:
        return az.jvp(lambda x: formula(f, x), (x,), (v,))[1]

    v = np.arange(5.0)
    hessian = np.zeros((5, 5))
    hessian[1, 1] = 2.0
    np.testing.assert_array_equal(az.grad(slope, argnums="x", via="trace")(FORMULA, X, v), hessian @ v)
    np.testing.assert_array_equal(az.evaluate(az.grad(slope, argnums="x"))(FORMULA, X, v), hessian @ v)
    np.testing.assert_array_equal(az.evaluate(az.hvp(formula, argnums="x"))(FORMULA, X, v), hessian @ v)


# Tangents of data


def test_integers_in_tangents_are_not_looked_at() -> None:
    F = Formula
    tangent = F.Sum(
        F.Product(F.Variable(77), F.Variable(-1)), F.Product(F.Number(1.0), F.Sum(F.Variable(0), F.Number(0.5)))
    )
    assert az.evaluate(az.jvp(formula))(FORMULA, X, tangent, 0 * X)[1] == (X[4] - 2.0) + 0.5 * 0.5
    result = az.evaluate(az.jvp(az.program(lambda f: f)))(FORMULA, tangent)
    assert result[1] == combined(lambda _, d: d, FORMULA, tangent)


def of_data(tree: Tree[tuple[az.f64, List[az.f64]]]) -> az.f64:
    go = az.fix(
        lambda self, tree: az.case(
            tree,
            Leaf=lambda: 0.0,
            Node=lambda l, v, r: self(l) + v[0] * folded(v[1], az.f64, az.f64, 0.0, lambda x, s: x + s) + self(r),
        ),
        Tree[tuple[az.f64, List[az.f64]]],
        result=az.f64,
    )
    return go(tree)


def test_another_variant_is_refused_with_its_path() -> None:
    pushed = az.evaluate(az.jvp(list_sum))
    with pytest.raises(
        ValueError,
        match=r"^the tangent of xs\.tail\.tail is List\.Nil, and the value there is List\.Cons, at .*\.py:\d",
    ):
        pushed(SOME, linked([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"the tangent of xs is List\.Cons, and the value there is List\.Nil"):
        pushed(linked([]), SOME)
    many = [0.0] * 100
    with pytest.raises(ValueError, match=r"the tangent of xs\.tail \(100 times\) is List\.Cons"):
        pushed(linked(many), linked([*many, 1.0]))
    program = az.program(of_data)
    leaf, item = Tree.Leaf(), (1.0, linked([1.0, 2.0, 3.0]))
    tree = Tree.Node(leaf, item, Tree.Node(Tree.Node(leaf, item, leaf), item, leaf))
    shorter = Tree.Node(leaf, item, Tree.Node(Tree.Node(leaf, (1.0, linked([1.0])), leaf), item, leaf))
    assert az.evaluate(az.jvp(program))(tree, tree) == (18.0, 36.0)
    with pytest.raises(ValueError, match=re.escape("the tangent of tree.right.left.value[1].tail is List.Nil")):
        az.evaluate(az.jvp(program))(tree, shorter)
    deep = Tree.Leaf()
    for _ in range(40):
        deep = Tree.Node(Tree.Node(leaf, item, leaf), item, deep)
    other = combined(lambda x: x, deep)
    with pytest.raises(ValueError, match=r"the tangent of tree\[\.\.\.\]\.right \(21 times\) is Tree\.Node"):
        az.evaluate(az.jvp(program))(deep, replaced_end(other, tree))


def replaced_end(tree: Any, end: Any) -> Any:
    return end if isinstance(tree, Tree.Leaf) else Tree.Node(tree.left, tree.value, replaced_end(tree.right, end))


def test_values_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"argument 'd_xs' is List\[f64\], got a Tree.Node"):
        az.evaluate(az.jvp(list_sum))(SOME, BUSH)

    @az.program
    def wrong(xs: List[az.f64]) -> az.f64:
        return az.jvp(list_sum, (xs,), (2.0,))[1]

    with pytest.raises(TypeError, match=r"argument 'd_xs' is List\[f64\], got 2\.0"):
        az.evaluate(wrong)(SOME)


def test_what_holds_nothing_floating_has_no_tangent() -> None:
    assert az.evaluate(az.jvp(list_map))(SOME, SOME)[1] is None

    @az.program
    def counted(xs: List[az.i64], x: az.f64) -> az.f64:
        return x * folded(xs, az.i64, az.i64, 0, lambda x, rest: x + rest)

    assert az.evaluate(az.jvp(counted))(linked([1, 2]), 2.0, 1.0) == (6.0, 3.0)
    with pytest.raises(TypeError, match=r"parameter 'xs' .*is of type List\[i64\]; derivatives are taken"):
        az.jvp(counted, argnums="xs")


# Meanings of the user's


@az.custom_jvp
def product(x: Any, y: Any) -> Any:
    return x * y


@product.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return 100 * tangents[0] + tangents[1]


@az.custom_vjp
def reverse_product(x: Any, y: Any) -> Any:
    return x * y


@reverse_product.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return 100 * cotangent, cotangent


@pytest.mark.parametrize("rule", [product, reverse_product])
def test_rules_inside_of_functions(rule: Any) -> None:
    @az.program
    def f(xs: List[az.f64], y: az.f64) -> az.f64:
        return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: rule(x, y) + rest)

    assert az.evaluate(az.jvp(f))(SOME, 2.0, SOME, 1.0) == (6.5, 330.0)


def test_rules_that_capture_and_take_data() -> None:
    """What the function captures moves as its body says; what a rule captures is a value like others."""

    @az.program
    def captures(xs: List[az.f64], y: az.f64) -> az.f64:
        f = az.custom_jvp(lambda y: scaled(xs, y))
        f.defjvp(lambda primals, tangents: 2 * scaled(xs, tangents[0]))
        return f(y)

    assert az.evaluate(az.jvp(captures))(SOME, 2.0, SOME, 1.0) == (6.5, 6.5 + 6.5)

    @az.program
    def takes(xs: List[az.f64], y: az.f64) -> az.f64:
        f = az.custom_jvp(lambda xs, y: scaled(xs, y))
        f.defjvp(lambda primals, tangents: 2 * scaled(primals[0], tangents[1]))
        return f(xs, y)

    assert az.evaluate(az.jvp(takes, argnums="y"))(SOME, 2.0, 1.0) == (6.5, 6.5)
    with pytest.raises(
        az.Unsupported, match=r"its derivatives are given for numbers and arrays.*a declared type moves"
    ):
        az.evaluate(az.jvp(takes))(SOME, 2.0, SOME, 1.0)


def test_probes_checkpoints_and_what_is_stopped(capsys: Any) -> None:
    @az.program
    def f(xs: List[az.f64], y: az.f64) -> az.f64:
        def total(xs: Any) -> Any:
            return folded(xs, az.f64, az.f64, 0.0, lambda x, rest: x * x * az.stop_gradient(y) + rest)

        return az.checkpoint(total)(az.inspect(xs, "xs"))

    two = linked([1.0, 2.0])
    assert az.evaluate(az.jvp(f))(two, 3.0, two, 1.0) == (15.0, 30.0)
    shown = "List.Cons(head=1.0, tail=List.Cons(head=2.0, tail=List.Nil()))"
    assert capsys.readouterr().out == f"xs = {shown}\nxs tangent = {shown}\n"
    assert "checkpoint" in az.pretty(az.jvp(f).at())


def test_probed_data_move_on(capsys: Any) -> None:
    @az.program
    def f(xs: List[az.f64], y: az.f64) -> az.f64:
        return folded(az.inspect(xs, "xs"), az.f64, az.f64, 0.0, lambda x, rest: x * x * y + rest)

    two = linked([1.0, 2.0])
    assert az.evaluate(az.jvp(f, argnums="xs"))(two, 3.0, two) == (15.0, 30.0)
    assert capsys.readouterr().out.count("xs") == 2


def test_numbers_that_do_not_move_have_a_tangent_of_zero() -> None:
    """In results, beside others that move."""

    @az.program
    def f(x: az.f64, y: az.f64) -> List[tuple[az.f64, az.f64]]:
        pairs = List[tuple[az.f64, az.f64]]
        return pairs.Cons((x * y, y + 1), pairs.Cons((x, 2.0), pairs.Nil()))

    assert az.evaluate(az.jvp(f, argnums="x"))(3.0, 4.0, 0.5)[1] == linked([(2.0, 0.0), (0.5, 0.0)])


def test_a_function_as_result_has_results_that_do_not_move() -> None:
    @az.program
    def f(x: az.f64) -> Any:
        return az.function(lambda z: (z * x, z), az.f64)

    value, tangent = az.evaluate(az.jvp(f))(3.0, 0.5)
    assert value(2.0) == (6.0, 2.0) and tangent(2.0) == (1.0, 0.0)


# What is refused


def test_functions_from_outside() -> None:
    """Nobody knows their derivatives; where nothing that they take moves, they are as they were."""

    @az.program
    def f(g: az.Function[[az.f64], az.f64], x: az.f64, y: az.f64) -> az.f64:
        return g(y) * x

    assert az.evaluate(az.jvp(f, argnums="x"))(lambda v: v * v, 2.0, 3.0, 1.0) == (18.0, 9.0)
    with pytest.raises(az.Unsupported, match=r"a function from outside moves, \(f64\) -> f64 in g: make it in what is"):
        az.evaluate(az.jvp(f))(lambda v: v * v, 2.0, 3.0, 1.0, 1.0)

    @az.program
    def of_a_record(line: Line, x: az.f64) -> az.f64:
        return line.at(x) * line.slope

    line = Line(lambda v: v, 2.0)
    assert az.evaluate(az.jvp(of_a_record, argnums=[]))(line, 3.0)[0] == 6.0
    with pytest.raises(az.Unsupported, match="a function from outside moves"):
        az.evaluate(az.jvp(of_a_record, argnums="x"))(line, 3.0, 1.0)


def test_deep_data() -> None:
    many = linked([0.5] * 4000)
    assert az.evaluate(az.jvp(list_sum))(many, many) == (2000.0, 2000.0)
    assert az.evaluate(az.jvp(tree_map))(BUSH, 2.0, BUSH, 0.0)[1] == combined(lambda x: 2 * x, BUSH)


def test_evaluated_terms_of_duals_are_those_of_programs() -> None:
    """Simplified once more, a derivative means the same."""
    made = az.jvp(scaled).at()
    term = az.simplify(made.term)
    assert az.simplify(term) == term
    assert list(evaluate_block(term, [SOME, np.float64(2.0), SOME, np.float64(1.0)], {})) == [6.5, 9.75]


def test_a_jacobian_by_several_parameters() -> None:
    """Each column moves one parameter, and nothing else."""

    @az.program
    def f(x: az.Array[az.f64, "n"], p: az.f64) -> az.Array[az.f64, "n"]:
        power = az.fix(
            lambda self, y, p, k: az.cond(k == 0, lambda: y, lambda: self(y**p, p, k - 1)),
            az.f64,
            az.f64,
            az.i64,
            result=az.f64,
        )
        return az.map(lambda y: power(y, p, 1), x)

    by_x, by_p = az.evaluate(az.jacobian(f, argnums=("x", "p"), mode="forward"))(np.array([-2.0, 3.0]), 2.0)
    np.testing.assert_array_equal(by_x, np.diag([-4.0, 6.0]))
    np.testing.assert_allclose(by_p, [np.nan, 9 * np.log(3.0)])


def test_directions_in_a_map() -> None:
    @az.program
    def f(tree: Tree[az.f64], s: az.f64, directions: az.Array[az.f64, "m"]) -> az.Array[az.f64, "m"]:
        def along(d: Any) -> Any:
            moved = az.jvp(tree_map, (tree, s), (tree, d))[1]
            return folded_tree(moved, az.f64, az.f64, 0.0, lambda left, v, right: left + v + right)

        return az.map(along, directions)

    total = 6.25
    np.testing.assert_array_equal(az.evaluate(f)(BUSH, 2.0, np.array([0.0, 1.0])), [2 * total, 3 * total])
