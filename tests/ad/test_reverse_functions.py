"""Reverse mode through functions that are values, recursion, tuples, data and forks, as programs."""

from typing import Any

import numpy as np
import pytest
from directions import close, differences, direction, floats, inner, moving
from programs.case import Case, Vector, X, sampled
from programs.functions import FORMULA, HIGHER_ORDER, SINGLE, Formula, List, Maybe, Tree, formula, linked
from programs.models import MODELS
from programs.recursion import RECURSION

import adze as az

pytestmark = pytest.mark.unguarded


def has_cotangents(case: Case) -> bool:
    return bool(moving(case.program)) and bool(floats(az.evaluate(case.program)(*case.arguments[0])))


both = pytest.mark.parametrize("run", [az.evaluate, az.compile], ids=["evaluate", "compile"])

CASES = [case for case in (*HIGHER_ORDER, *RECURSION, *MODELS) if has_cotangents(case)]


def pulled(case: Case, run: Any) -> tuple[Any, Any]:
    """The cotangents of a program at a random one of its result, and that cotangent."""
    arguments = case.arguments[0]
    cotangent = direction(az.evaluate(case.program)(*arguments), 1)
    return run(az.vjp(case.program, argnums=moving(case.program)))(*arguments, cotangent)[1:], cotangent


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_reverse_mode_is_the_transpose_of_forward_mode(case: Case) -> None:
    """For random directions v of the parameters and w of the result: the products of w with J v and of J^T w with v."""
    arguments, numbers = case.arguments[0], moving(case.program)
    found, w = pulled(case, az.evaluate)
    v = [direction(arguments[k], k + 5) for k in numbers]
    moved = az.evaluate(az.jvp(case.program, argnums=numbers))(*arguments, *v)[1]
    np.testing.assert_allclose(inner(found, v), inner(w, moved), rtol=1e-9, atol=1e-9)


@pytest.mark.rest
@sampled(CASES)
def test_compiled_cotangents_are_those_that_evaluate_gives(case: Case) -> None:
    for one, other in zip(*[floats(pulled(case, run)[0]) for run in (az.compile, az.evaluate)], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


# Derivatives of derivatives


@az.program
def power(x: az.f64, n: az.i64) -> az.f64:
    @az.fix
    def go(self: Any, n: az.i64) -> az.f64:
        return az.cond(n == 0, lambda: 1.0, lambda: x * self(n - 1))

    return go(n)


def test_higher_derivatives() -> None:
    assert az.evaluate(az.grad(power))(2.0, 5) == 80
    assert az.evaluate(az.grad(az.grad(power)))(2.0, 5) == 160
    assert az.evaluate(az.grad(az.grad(az.grad(power))))(2.0, 5) == 240
    assert az.compile(az.hvp(power))(2.0, 5, 10.0) == 1600
    assert az.evaluate(az.hessian(power))(2.0, 5) == 160
    assert az.evaluate(az.jvp(az.grad(power), argnums=0))(2.0, 5, 1.0) == (80, 160)


def test_a_hessian_product_by_data_has_its_structure() -> None:
    @az.program
    def cubes(xs: List[az.f64]) -> az.f64:
        @az.fix
        def go(self: Any, xs: List[az.f64]) -> az.f64:
            return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head**3 + self(tail))

        return go(xs)

    xs, v = linked([1.0, 2.0, 3.0]), linked([1.0, 0.0, -1.0])
    assert az.evaluate(az.hvp(cubes))(xs, v) == linked([6.0, 0.0, -18.0])


def test_a_gradient_inside_of_a_program() -> None:
    @az.program
    def squared(x: az.f64, n: az.i64) -> az.f64:
        slope = az.grad(lambda x: power(x, n))(x)
        return slope * slope

    assert az.compile(az.grad(squared))(2.0, 3) == 2 * 12 * 12  # of 9 x^4


def test_a_pullback_is_called_in_a_map_over_cotangents() -> None:
    @az.program
    def scaled(xs: List[az.f64], w: az.f64) -> az.Array[az.f64, 3]:
        @az.fix
        def go(self: Any, xs: List[az.f64]) -> az.f64:
            return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: w * head * head + self(tail))

        _, pullback = az.vjp(lambda w: go(xs) * w, w)
        return az.map(lambda c: pullback(c)[0], az.array([1.0, 2.0, 3.0]))

    np.testing.assert_array_equal(az.compile(scaled)(linked([1.0, 2.0]), 2.0), [10.0, 20.0, 30.0])


# Data


@both
def test_the_gradient_by_data_is_a_value_of_its_type(run: Any) -> None:
    """Integers are its own; what was not looked at is zero."""

    @az.data
    class Row:
        class End: ...

        class Item:
            count: az.i64
            weight: az.f64
            rest: "Row"

    @az.program
    def first(row: Row) -> az.f64:
        return az.case(row, End=lambda: 0.0, Item=lambda count, weight, rest: count * weight)

    row = Row.Item(3, 2.0, Row.Item(4, 5.0, Row.End()))
    assert run(az.grad(first))(row) == Row.Item(3, 3.0, Row.Item(4, 0.0, Row.End()))
    assert run(az.grad(first))(Row.End()) == Row.End()


@both
def test_what_is_shared_is_added_up(run: Any) -> None:
    """A subtree that stands in two places has one cotangent, in which both are."""

    @az.program
    def shared(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def grown(self: Any, n: az.i64) -> Tree[az.f64]:
            def node() -> Any:
                below = self(n - 1)
                return Tree.Node(below, x, below)

            return az.cond(n == 0, lambda: Tree.Leaf(), node)

        @az.fix
        def total(self: Any, tree: Tree[az.f64]) -> az.f64:
            return az.case(tree, Leaf=lambda: 0.0, Node=lambda left, x, right: self(left) + x + self(right))

        return total(grown(n))

    assert run(az.grad(shared))(0.5, 10) == 2**10 - 1


@both
def test_a_list_in_a_map(run: Any) -> None:
    @az.program
    def horner(xs: Vector, ys: List[az.f64]) -> az.f64:
        @az.fix
        def at(self: Any, ys: List[az.f64], x: az.f64) -> az.f64:
            return az.case(ys, Nil=lambda: 0.0, Cons=lambda y, rest: y + x * self(rest, x))

        return az.sum(az.map(lambda x: at(ys, x) ** 2, xs))

    arguments = X, linked([1.0, -2.0, 0.5])
    by_trace = az.grad(horner, argnums=(0, 1), via="trace")(*arguments)
    close(run(az.grad(horner, argnums=(0, 1)))(*arguments), floats(by_trace))


@both
def test_what_comes_with_a_value_may_be_data(run: Any) -> None:
    @az.program
    def weighed(x: az.f64, n: az.i64) -> tuple[az.f64, Maybe[az.f64]]:
        return power(x, n), Maybe.Just(x * x)

    assert run(az.grad(weighed, has_aux=True))(2.0, 5) == (80, Maybe.Just(4.0))


@both
def test_data_in_a_while_loop(run: Any) -> None:
    """Beside it are a state that moves, one that does not, and what the loop captures."""

    @az.program
    def consumed(xs: List[az.f64], y: az.f64) -> az.f64:
        def step(state: Any) -> Any:
            xs, total, count = state
            head, tail = az.case(xs, Nil=lambda: (0.0, xs), Cons=lambda head, tail: (head, tail))
            return tail, total * y + head * head, count + 1

        def more(state: Any) -> Any:
            return az.case(state[0], Nil=lambda: False, Cons=lambda head, tail: True)

        _, total, count = az.while_loop(more, step, (xs, y, 0))
        return total * count

    arguments = linked([1.0, -2.0, 0.5]), 0.7
    by_trace = az.grad(consumed, argnums=(0, 1), via="trace")(*arguments)
    close(run(az.grad(consumed, argnums=(0, 1)))(*arguments), floats(by_trace))


@both
def test_data_in_a_loop_that_stacks_its_results(run: Any) -> None:
    """Some of these move, and some do not."""

    @az.program
    def running(y: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def total(self: Any, xs: List[az.f64]) -> az.f64:
            return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head * head + self(tail))

        def step(state: Any, k: Any) -> Any:
            xs, last = state
            grown = List.Cons(last * y, xs)
            return (grown, last + y), (total(grown) * k, k)

        (xs, last), (totals, ks) = az.scan_loop(step, (List[az.f64].Nil(), y), az.arange(3))
        return az.sum(totals * ks) + last + total(xs) * n

    by_trace = az.grad(running, via="trace")(0.7, 2)
    np.testing.assert_allclose(run(az.grad(running))(0.7, 2), by_trace, rtol=1e-13)


@both
def test_a_formula_as_data(run: Any) -> None:
    by_formula, by_x = run(az.grad(formula, argnums=("f", "x")))(FORMULA, X)
    steps = differences(lambda f: az.evaluate(formula)(f, X), [FORMULA], [direction(FORMULA, 3)])
    np.testing.assert_allclose(inner(by_formula, direction(FORMULA, 3)), steps[0], rtol=1e-6)
    np.testing.assert_allclose(by_x, az.grad(formula, argnums="x", via="trace")(FORMULA, X))
    assert isinstance(by_formula, Formula.Sum)


# Arrays


@az.program
def squares(x: Vector) -> az.f64:
    @az.fix
    def go(self: Any, i: az.i64) -> az.f64:
        return az.cond(i == x.shape[0], lambda: 0.0, lambda: x[i] ** 2 + self(i + 1))

    return go(0)


def test_a_read_in_a_recursion_adds_to_one_element() -> None:
    for n in (0, 1, 7):
        x = np.arange(float(n))
        np.testing.assert_array_equal(az.evaluate(az.grad(squares))(x), 2 * x)


def test_compiled_reads_in_a_recursion_add_to_one_element() -> None:
    """What is owed is written down: no call adds whole arrays, and the work is that of the value times a constant."""
    compiled = az.compile(az.grad(squares), threads=1)
    x = np.arange(1e5)
    np.testing.assert_array_equal(compiled(x), 2 * x)  # whole arrays would be 80 GB


@both
def test_whole_arrays_and_elements_are_owed_in_one_recursion(run: Any) -> None:
    @az.program
    def mixed(x: Vector, k: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64, v: Vector) -> az.f64:
            return az.cond(k == 0, lambda: az.sum(v * x), lambda: x[k] * self(k - 1, v * x + v))

        return go(k, x)

    by_trace = az.grad(mixed, via="trace")(X, 3)
    np.testing.assert_allclose(run(az.grad(mixed))(X, 3), by_trace, rtol=1e-13)


def test_a_recursion_in_a_map_owes_to_an_array_outside() -> None:
    @az.program
    def powers(x: Vector) -> az.f64:
        @az.fix
        def go(self: Any, k: az.i64) -> az.f64:
            return az.cond(k == 0, lambda: az.sum(x), lambda: x[k] * self(k - 1))

        return az.sum(az.map(lambda k: go(k), az.arange(3)))

    np.testing.assert_allclose(az.evaluate(az.grad(powers))(X), az.grad(powers, via="trace")(X), rtol=1e-13)


@both
def test_arrays_in_data(run: Any) -> None:
    @az.program
    def layers(weights: List[az.Array[az.f64, "n"]], x: Vector) -> az.f64:
        @az.fix
        def go(self: Any, weights: List[az.Array[az.f64, "n"]], x: Vector) -> Vector:
            return az.case(weights, Nil=lambda: x, Cons=lambda w, rest: self(rest, az.sin(w * x)))

        return az.sum(go(weights, x))

    weights = List.Cons(X, List.Cons(X / 2, List.Nil()))
    by_trace = floats(az.grad(layers, argnums=(0, 1), via="trace")(weights, X))
    close(run(az.grad(layers, argnums=(0, 1)))(weights, X), by_trace)


# Meanings given by the user, and what does not move


@az.custom_vjp
def twice(x: Any) -> Any:
    return 2 * x


@twice.defvjp
def _(primals: Any, cotangent: Any) -> Any:
    return (10 * cotangent,)


def test_rules_hold_inside_of_a_recursion() -> None:
    @az.program
    def f(x: az.f64, y: az.f64, n: az.i64) -> az.f64:
        @az.custom_jvp
        def scaled(x: Any) -> Any:
            return x * y

        @scaled.defjvp
        def push(primals: Any, tangents: Any) -> Any:
            return tangents[0] * y * 3

        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: 1.0, lambda: twice(x) + scaled(x) * self(n - 1))

        return go(n)

    by_trace = az.grad(f, argnums=(0, 1), via="trace")(2.0, 0.5, 4)
    assert az.evaluate(az.grad(f, argnums=(0, 1)))(2.0, 0.5, 4) == by_trace
    assert az.evaluate(az.grad(f))(2.0, 0.5, 1) == 10 + 3 * 0.5


@both
def test_a_checkpoint_in_a_recursion_and_what_is_stopped(run: Any) -> None:
    @az.program
    def f(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            step = az.checkpoint(lambda y: az.sin(y) * self(n - 1) + az.stop_gradient(x))
            return az.cond(n == 0, lambda: x, lambda: step(x))

        return go(n)

    by_trace = az.grad(f, via="trace")(0.7, 3)
    np.testing.assert_allclose(run(az.grad(f))(0.7, 3), by_trace, rtol=1e-14)


@both
def test_a_branch_that_is_not_taken_gives_no_nan(run: Any) -> None:
    """The root has an infinite derivative at 0, and a call that does not read it gives 0 for it."""

    @az.program
    def f(x: az.f64) -> az.f64:
        root = az.sqrt(x)

        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            return az.cond(n > 0, lambda: self(n - 1), lambda: az.cond(x > 0, lambda: root, lambda: x))

        return go(2)

    assert run(az.grad(f))(0.0) == 1
    assert run(az.grad(f))(4.0) == 0.25


def test_what_does_not_move_has_no_pullback() -> None:
    """The recursion is on a number that nothing is differentiated by: it is called as it is."""

    @az.program
    def f(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def harmonic(self: Any, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: 0.0, lambda: 1.0 / n + self(n - 1))

        return x * harmonic(n)

    assert "->" not in az.pretty(az.grad(f)).replace(") -> f64:", "")
    np.testing.assert_allclose(az.evaluate(az.grad(f))(2.0, 3), 1 + 1 / 2 + 1 / 3)


# What is printed


PRINTED = """
def grad(power)(x: f64, n: i64) -> f64:
  t1 = fun (y_bar: f64): 0.0
  def go(x2: f64, n2: i64) -> (f64, (f64) -> f64):
    return if n2 == 0: 1.0, t1
    else:
      t2, t3 = go(x2, n2 - 1)
      yield x2 * t2, fun (y_bar: f64): y_bar * t2 + t3(y_bar * x2)
  t4, t5 = go(x, n)
  return t5(1.0)
"""


def test_a_function_gives_the_function_that_leads_back() -> None:
    assert az.pretty(az.grad(power)).strip() == PRINTED.strip()


@az.fix
def up(self: Any, x: az.f64, n: az.i64) -> az.f64:
    return az.cond(n == 0, lambda: 1.0, lambda: x * down(az.sin(x), n - 1))


@az.fix
def down(self: Any, x: az.f64, n: az.i64) -> az.f64:
    return az.cond(n == 0, lambda: x, lambda: x + up(x * x, n - 1))


@az.program
def ups(x: az.f64, n: az.i64) -> az.f64:
    return up(x, n)


def test_functions_that_call_each_other() -> None:
    for n in range(5):
        by_trace = az.grad(ups, via="trace")(0.7, n)
        np.testing.assert_allclose(az.evaluate(az.grad(ups))(0.7, n), by_trace, rtol=1e-14)
    np.testing.assert_allclose(az.compile(az.grad(ups))(0.7, 4), by_trace, rtol=1e-14)
    printed = az.pretty(az.grad(ups))
    assert "def up(" in printed
    assert "def down(" in printed


def test_forks_lead_back_by_forks() -> None:
    @az.program
    def spread(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64, y: az.f64) -> az.f64:
            def both() -> Any:
                left, right = az.par(lambda: self(n - 1, y * 1.5), lambda: self(n - 1, y * 0.5))
                return left + right

            return az.cond(n == 0, lambda: y * y, both)

        return go(n, x)

    printed = az.pretty(az.grad(spread))
    assert "par:" in printed and "= par(" in printed
    np.testing.assert_allclose(az.compile(az.grad(spread))(3.0, 6), 2 * 3.0 * 2.5**6)


APART = """
def grad(spread)(x: f64, y: f64) -> (f64, f64):
  t1 = exp(x)
  t2, t3 = par(x * y, t1 * y)
  t4, t5, t6, t7 = par:
    branch: t3 * x, t3 * y
    branch: t2 * y, t2 * t1
  return t5 + t6 * t1, t4 + t7
"""


@az.program
def walks(x: az.f64, v: Vector, n: az.i64) -> az.f64:
    """Branches of numbers, inside of others, of an array from before, in a map, and that do not move."""

    def walk(start: Any, c: Any) -> Any:
        return az.fori_loop(0, n, lambda i, s: az.cond(s > c, lambda: az.sin(s) * x, lambda: s + c * x), start)

    a, (b, c), _ = az.par(
        lambda: walk(x, 0.5), lambda: az.par(lambda: walk(x * 2, 0.2), lambda: walk(x + 1, x)), lambda: 2.0 * n
    )
    d, e = az.par(lambda: walk(v[0], x) * a, lambda: az.sum(v) * b)
    each = az.map(lambda u: sum(az.par(lambda: walk(u, c), lambda: u * x)), v)
    return d * e + az.sum(each)


def test_forks_of_numbers_lead_back_apart() -> None:
    """A branch adds to nothing that others add to, so what recurs not is tasks on the way back, too."""

    @az.program
    def spread(x: az.f64, y: az.f64) -> az.f64:
        z = az.exp(x)
        a, b = az.par(lambda: x * y, lambda: z * y)
        return a * b

    assert az.pretty(az.grad(spread, argnums=(0, 1))).strip() == APART.strip()

    v = np.array([0.3, 0.75, -0.5])
    for n in (0, 1, 6):
        wanted = az.grad(walks, argnums=(0, 1), via="trace")(0.7, v, n)
        for one, other in zip(az.evaluate(az.grad(walks, argnums=(0, 1)))(0.7, v, n), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    slope, h = az.grad(walks), 1e-6
    second = az.evaluate(az.grad(lambda x: slope(x, v, 5)))(0.7)
    differences = (az.evaluate(slope)(0.7 + h, v, 5) - az.evaluate(slope)(0.7 - h, v, 5)) / (2 * h)
    np.testing.assert_allclose(second, differences, rtol=1e-6)


@pytest.mark.rest
def test_compiled_forks_of_numbers_lead_back_apart() -> None:
    v, slopes = np.array([0.3, 0.75, -0.5]), az.grad(walks, argnums=(0, 1))
    for n in (0, 1, 6):
        for one, other in zip(az.compile(slopes)(0.7, v, n), az.evaluate(slopes)(0.7, v, n), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert az.compile(az.grad(walks)).loops.count("fork") > az.compile(walks).loops.count("fork")


def test_values_in_a_recursion_in_a_map_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The return sweep runs the recursion again, without what it shows and requires."""

    @az.program
    def products(x: Vector, places: az.Array[az.i64, "m"]) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: 1.0, lambda: az.inspect(x[n], "x") * self(n - 1))

        return az.sum(az.map(lambda n: go(n), places))

    x, places = np.array([1.0, 2.0, 3.0]), np.array([2, 1])
    np.testing.assert_array_equal(az.evaluate(az.grad(products))(x, places), [0, 4, 2])
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "cotangent" not in line] == ["x = 3.0", "x = 2.0", "x = 2.0"]
    assert sorted(line for line in shown if "cotangent" in line) == [f"x cotangent = {c}.0" for c in (1, 2, 3)]
    np.testing.assert_array_equal(az.compile(az.grad(products))(x, places), [0, 4, 2])
    assert az.pretty(az.grad(products)).count("require") == 1
    for run in (az.evaluate, az.compile):
        with pytest.raises(IndexError, match=r"index 3 is out of range"):
            run(az.grad(products))(x, np.array([3]))


# Errors


def test_parameters_that_are_refused() -> None:
    total = az.program(lambda xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head))
    assert az.evaluate(az.grad(total))(SINGLE) == List.Cons(1.0, List.Nil())
    with pytest.raises(TypeError, match=r"has no floating part to differentiate"):
        az.evaluate(az.grad(az.program(lambda xs: az.case(xs, Nil=lambda: 0.0, Cons=lambda h, t: 1.0))))(linked([1, 2]))


# What it costs


@pytest.mark.rest
def test_the_work_of_a_gradient_is_a_multiple_of_that_of_the_program() -> None:
    """However long the recursion: operations, reads and writes, counted in calls."""

    @az.program
    def halves(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64, y: az.f64) -> az.f64:
            def both() -> Any:
                left, right = az.par(lambda: self(n // 2, y * x), lambda: self(n - n // 2, y + x))
                return left * right

            return az.cond(n <= 1, lambda: az.sin(y), both)

        return go(n, x)

    def work(program: az.Program, *arguments: Any) -> int:
        cost = az.cost(program)(*arguments)
        return cost.operations + cost.reads + cost.writes

    for program, first in ((power, lambda n: 1.0), (squares, np.ones), (halves, lambda n: 0.5)):
        rest = (lambda n: ()) if program is squares else lambda n: (n,)
        short, long = ([work(each, first(n), *rest(n)) for each in (program, az.grad(program))] for n in (20, 400))
        assert long[1] / long[0] < 1.05 * short[1] / short[0] < 6


# Zeros, and what does not move


def head(xs: Any) -> Any:
    return az.case(xs, Nil=lambda: 0.3, Cons=lambda head, tail: head)


@both
def test_zeros_give_no_nan_through_calls_and_data(run: Any) -> None:
    """A result that nobody reads, or that a branch reads which is not taken, and so with the fields of data."""

    @az.program
    def unread(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64) -> tuple[az.f64, az.f64]:
            return az.cond(n == 0, lambda: (az.sqrt(x), x), lambda: self(n - 1))

        return go(n)[1] * 3

    @az.program
    def untaken(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: az.sqrt(x), lambda: self(n - 1))

        root = go(n)
        return az.where(root > 0, 1 / root, 0.0)

    @az.program
    def in_data(x: az.f64, n: az.i64) -> az.f64:
        root = az.sqrt(x)
        xs = az.cond(n > 0, lambda: List.Cons(root, List.Nil()), lambda: List[az.f64].Nil())
        inverse = lambda x: az.cond(x > 0, lambda: 1 / x, lambda: 0.0)  # noqa: E731
        return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: inverse(head))

    @az.program
    def roots(xs: List[az.f64]) -> az.f64:
        @az.fix
        def go(self: Any, xs: List[az.f64]) -> List[az.f64]:
            return az.case(xs, Nil=lambda: xs, Cons=lambda head, tail: List.Cons(az.sqrt(head), self(tail)))

        return head(go(xs))

    assert run(az.grad(unread))(0.0, 1) == 3
    assert run(az.grad(untaken))(0.0, 1) == 0
    assert run(az.grad(in_data))(0.0, 1) == 0
    assert run(az.grad(roots))(linked([4.0, 0.0, 1.0])) == linked([0.25, 0.0, 0.0])


@both
def test_data_that_does_not_move_costs_no_pullbacks(run: Any) -> None:
    """Loops and choices beside it are derived as those beside numbers, and compiled with arrays of any size."""

    @az.program
    def beside(x: az.f64, xs: List[az.f64], n: az.i64) -> az.f64:
        return az.case(xs, Nil=lambda: x, Cons=lambda head, tail: az.fori_loop(0, n, lambda i, s: az.sin(s * head), x))

    xs = linked([1.0, -2.0])
    by_trace = az.grad(beside, via="trace")(0.5, xs, 3)
    np.testing.assert_allclose(run(az.grad(beside))(0.5, xs, 3), by_trace, rtol=1e-14)
    assert "fun " not in az.pretty(az.grad(beside))


@az.data
class First:
    class End: ...

    class Node:
        value: az.f64
        first: "First"
        second: "Second"
        third: "Third"


@az.data
class Second:
    class End: ...

    class Node:
        value: az.f64
        first: First
        second: "Second"
        third: "Third"


@az.data
class Third:
    class End: ...

    class Node:
        value: az.f64
        first: First
        second: Second
        third: "Third"


@az.program
def squared_root(x: First) -> az.f64:
    return az.case(x, End=lambda: 0.0, Node=lambda value, first, second, third: value * value)


def test_a_gradient_by_types_in_each_other_is_short() -> None:
    """Zeros are filled in by one function for each type, however many variants meet."""
    assert len(az.pretty(az.grad(squared_root))) < 6 * len(az.pretty(az.jvp(squared_root)))

    def nodes(one: float, other: float) -> First:
        inside = Second.Node(other, First.End(), Second.End(), Third.End())
        return First.Node(one, First.End(), inside, Third.End())

    assert az.evaluate(az.grad(squared_root))(nodes(3.0, 1.0)) == nodes(6.0, 0.0)


# More that is refused


@both
def test_cotangents_of_other_variants_are_refused(run: Any) -> None:
    @az.program
    def squared(xs: List[az.f64]) -> List[az.f64]:
        @az.fix
        def go(self: Any, xs: List[az.f64]) -> List[az.f64]:
            return az.case(xs, Nil=lambda: xs, Cons=lambda head, tail: List.Cons(head * head, self(tail)))

        return go(xs)

    xs = linked([1.0, 2.0])
    with pytest.raises(ValueError, match=r"the cotangent of a result has List\.Nil where the result has List\.Cons"):
        run(az.vjp(squared))(xs, linked([1.0]))
    with pytest.raises(ValueError, match=r"the cotangent of a result has List\.Cons where the result has List\.Nil"):
        run(az.vjp(squared))(xs, linked([1.0, 2.0, 3.0]))


def test_data_that_moves_is_no_argument_of_a_rule() -> None:
    @az.program
    def f(x: az.f64, xs: List[az.f64]) -> az.f64:
        @az.custom_vjp
        def scaled(x: Any, xs: Any) -> Any:
            return x * head(xs)

        @scaled.defvjp
        def rule(primals: Any, cotangent: Any) -> Any:
            return cotangent * head(primals[1]), None

        return scaled(x, xs)

    assert az.evaluate(az.grad(f))(2.0, linked([3.0])) == 3
    with pytest.raises(az.Unsupported, match=r"scaled has rules for numbers and arrays.*, written at .*test_reverse"):
        az.evaluate(az.grad(f, argnums=(0, 1)))(2.0, linked([3.0]))


def test_data_that_moves_is_no_result_of_a_rule() -> None:
    @az.program
    def f(x: az.f64) -> az.f64:
        @az.custom_vjp
        def listed(x: Any) -> Any:
            return List.Cons(x, List.Nil())

        @listed.defvjp
        def rule(primals: Any, cotangent: Any) -> Any:
            return (0.0 * primals[0],)

        return head(listed(x))

    with pytest.raises(az.Unsupported, match=r"reverse mode does not know how a function, a tuple or .*test_reverse"):
        az.evaluate(az.grad(f))(2.0)


def test_compiled_functions_with_rules_in_a_recursion() -> None:
    @az.program
    def f(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: 1.0, lambda: twice(x) * self(n - 1))

        return go(n)

    assert az.compile(f)(3.0, 2) == 36
    assert az.compile(az.value_and_grad(f))(3.0, 2) == (36, 2 * 10 * 6)


def test_effects_are_not_run_again() -> None:
    say = az.operation(
        "say", numpy=lambda x: x, result=lambda x: x, effects=True, derivative={"vjp": lambda p, c: (c,)}
    )

    @az.program
    def f(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64, y: az.f64) -> az.f64:
            return az.cond(n == 0, lambda: say(y), lambda: y * self(n - 1, y))

        return az.fori_loop(0, n, lambda i, s: s + go(2, s), x)

    @az.program
    def of_constants(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def go(self: Any, n: az.i64) -> az.f64:
            return az.cond(n == 0, lambda: say(2.0), lambda: self(n - 1))

        return az.fori_loop(0, n, lambda i, s: s * go(i), x) + power(x, n)

    for program in (f, of_constants):
        with pytest.raises(az.Unsupported, match=r"say has effects, and reverse mode would run it again here"):
            az.evaluate(az.grad(program))(2.0, 2)


# What is owed to rows


@az.program
def neighbours(table: az.Array[az.f64, "m 3"], v: az.Array[az.f64, "m"], n: az.i64) -> az.f64:
    """Each call reads two rows of a table, and in loops over these an element of an array."""

    @az.fix
    def go(self: Any, k: az.i64) -> az.f64:
        def more() -> Any:
            own = az.sum(az.generate(3, lambda j: v[k] * table[k, j] * table[k - 1, j] * (j + v[k - 1])))
            return own + self(k - 1)

        return az.cond(k == 0, lambda: 0.0, more)

    return go(n)


def test_recursions_owe_rows_and_elements() -> None:
    table, v = np.random.default_rng(3).normal(size=(5, 3)), np.random.default_rng(4).normal(size=5)
    derived = az.grad(neighbours, argnums=(0, 1))
    text = str(az.pretty(derived))
    assert text.count("Owed[f64[m, 3]].Part1(") == text.count("Owed[f64[m]].At(") == 2 and "].Whole(" not in text
    az.check(derived)
    by_table, by_v, j = np.zeros((5, 3)), np.zeros(5), np.arange(3)
    for k in range(1, 5):
        a, b = table[k], table[k - 1]
        by_table[k] += v[k] * b * (j + v[k - 1])
        by_table[k - 1] += v[k] * a * (j + v[k - 1])
        by_v[k] += np.sum(a * b * (j + v[k - 1]))
        by_v[k - 1] += np.sum(v[k] * a * b)
    for run in (az.evaluate, az.compile):
        found = run(derived)(table, v, 4)
        np.testing.assert_allclose(found[0], by_table, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found[1], by_v, rtol=1e-12, atol=1e-14)
