"""Functions as values, recursion, fork and join, and meanings given by the user."""

import inspect as python_inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.interpreters.evaluate import functions as evaluate_functions

HERE = r"\(at .*test_functions\.py:\d+\)"


def run(program: Any, *arguments: Any) -> Any:
    """What a program gives, after it was checked, taken apart and put together again, and simplified."""
    program = program if isinstance(program, az.Program) else az.program(program)
    term = program.instance_for(program.bind(arguments, {})).term
    az.check(term)
    assert term.interpret(az.Reify()) == term
    az.check(az.simplify(term))
    return az.evaluate(program)(*arguments)


# Functions


@az.program
def twice(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
    return f(f(x))


def test_a_function_captures_what_is_in_scope() -> None:
    def program(x: az.f64, y: az.f64) -> az.f64:
        add = az.function(lambda z: z + y, az.f64)
        return add(add(x)) * add(0.0)

    assert run(program, 2.0, 3.0) == (2 + 3 + 3) * 3


def test_a_function_is_chosen_while_the_program_runs() -> None:
    def program(up: az.bool_, x: az.f64) -> az.f64:
        step = az.cond(up, lambda: az.function(lambda z: z + 1, az.f64), lambda: az.function(lambda z: z / 2, az.f64))
        return step(step(x))

    assert (run(program, True, 3.0), run(program, False, 3.0)) == (5.0, 0.75)


def test_functions_are_passed_and_returned() -> None:
    @az.function
    def composed(f: az.Function[[az.f64], az.f64], g: az.Function[[az.f64], az.f64]) -> az.Function[[az.f64], az.f64]:
        return lambda x: f(g(x))

    def program(x: az.f64) -> az.f64:
        both = composed(lambda z: z * x, lambda z: z + 1)
        return twice(both, x)

    assert run(program, 3.0) == 3 * (3 * (3 + 1) + 1)


def test_several_parameters_and_results_are_structures() -> None:
    def program(x: az.f64, n: az.i64) -> tuple[az.f64, az.i64, az.f64]:
        @az.function
        def f(pair: tuple[az.f64, az.i64], named: {"u": az.f64}) -> {"sum": az.f64, "rest": tuple[az.i64, az.f64]}:
            return {"sum": pair[0] + named["u"], "rest": (pair[1] + 1, 0)}

        result = f((x, n), {"u": 2.0})
        return result["sum"], *result["rest"]

    assert run(program, 1.5, 4) == (3.5, 5, 0.0)


def test_a_function_of_no_parameters_and_one_of_arrays() -> None:
    def program(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        total = az.function(lambda: az.sum(x))
        scaled = az.function(lambda v: v * total(), az.Array[az.f64, "n"])
        return scaled(scaled(x))

    for x in (np.array([1.0, 2.0]), np.zeros(0), np.array([np.inf, 1.0]), np.array([np.nan])):
        np.testing.assert_array_equal(run(program, x), x * x.sum() * x.sum())


@pytest.mark.parametrize("scalar", [az.f32, az.f64, az.i32, az.i64])
def test_every_scalar_type_of_numbers(scalar: Any) -> None:
    def program(x: Any) -> Any:
        return az.function(lambda z: z * z + 1, scalar)(x)

    x = scalar.dtype.type(3)
    result = run(program, x)
    assert result == 10 and result.dtype == scalar.dtype


def test_functions_enter_and_leave_a_program() -> None:
    """They take and give NumPy's values."""
    assert run(twice, lambda x: x * 3, 2.0) == 18

    @az.program
    def line(a: az.f64, b: az.f64) -> az.Function[[az.f64], tuple[az.f64, az.f64]]:
        return lambda x: (a * x + b, a)

    f = az.evaluate(line)(2.0, 1.0)
    assert f(3.0) == (7.0, 2.0)
    with pytest.raises(TypeError, match=r"argument 1 of a function .* is f64, got .*'a'"):
        f("a")
    with pytest.raises(TypeError, match=r"takes 1 argument\(s\), got 2"):
        f(1.0, 2.0)
    with pytest.raises(TypeError, match=r"the result of twice: argument 'f' is f64, got .*'no'"):
        az.evaluate(twice)(lambda x: "no", 2.0)


def test_functions_in_loops() -> None:
    """A loop around the application of a function runs element by element; one without elements finds the shapes."""

    def program(x: az.Array[az.f64, "n m"]) -> az.Array[az.f64, "n m"]:
        f = az.function(lambda row: row + az.sum(row), az.Array[az.f64, "m"])
        return az.map(f, x)

    for shape in ((2, 3), (0, 3), (3, 0), (1, 1)):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        np.testing.assert_array_equal(run(program, x), x + x.sum(1, keepdims=True))


def test_a_loop_whose_state_is_a_function() -> None:
    def program(n: az.i64, x: az.f64) -> az.f64:
        identity = az.function(lambda z: z, az.f64)
        power = az.fori_loop(0, n, lambda _, f: az.function(lambda z: f(z) * z, az.f64), identity)
        return power(x)

    assert run(program, 4, 2.0) == 32


# Recursion


@az.fix
def factorial(self: Any, n: az.i64) -> az.i64:
    return az.cond(n <= 1, lambda: 1, lambda: n * self(n - 1))


def test_recursion() -> None:
    def program(n: az.i64) -> az.i64:
        return factorial(n)

    assert [run(program, n) for n in (-3, 0, 1, 5, 20)] == [1, 1, 1, 120, 2432902008176640000]


def test_recursion_with_several_results() -> None:
    """Euclid's algorithm with its coefficients."""

    @az.fix
    def euclid(self: Any, a: az.i64, b: az.i64) -> tuple[az.i64, az.i64, az.i64]:
        def smaller() -> Any:
            g, s, t = self(b, a % b)
            return g, t, s - (a // b) * t

        return az.cond(b == 0, lambda: (a, 1, 0), smaller)

    def program(a: az.i64, b: az.i64) -> tuple[az.i64, az.i64, az.i64]:
        return euclid(a, b)

    for a, b in ((12, 18), (35, 64), (7, 0)):
        g, s, t = run(program, a, b)
        assert g == np.gcd(a, b) and s * a + t * b == g


def test_types_are_given_beside_a_lambda() -> None:
    def program(x: az.f64, n: az.i64) -> az.f64:
        power = az.fix(lambda f, k: az.cond(k == 0, lambda: 1.0, lambda: x * f(k - 1)), az.i64, result=az.f64)
        return power(n)

    assert run(program, 1.5, 3) == 1.5**3


def test_recursion_inside_of_recursion() -> None:
    """Ackermann's function, whose inner recursion captures the outer one."""

    def program(m: az.i64, n: az.i64) -> az.i64:
        @az.fix
        def row(self: Any, m: az.i64) -> az.Function[[az.i64], az.i64]:
            def next_row() -> Any:
                below = self(m - 1)
                return az.fix(lambda f, n: below(az.cond(n == 0, lambda: 1, lambda: f(n - 1))), az.i64, result=az.i64)

            return az.cond(m == 0, lambda: az.function(lambda n: n + 1, az.i64), next_row)

        return row(m)(n)

    assert [run(program, 2, n) for n in range(4)] == [2 * n + 3 for n in range(4)]


@pytest.mark.unguarded
@pytest.mark.parametrize("depth", [10_000, pytest.param(150_000, marks=pytest.mark.slow)])
def test_deep_recursion(depth: int) -> None:
    def program(n: az.i64) -> az.i64:
        return az.fix(lambda f, k: az.cond(k == 0, lambda: 0, lambda: 1 + f(k - 1)), az.i64, result=az.i64)(n)

    assert az.evaluate(az.program(program))(depth) == depth


def test_recursion_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate_functions, "DEEPEST", 5000)

    def program(n: az.i64) -> az.i64:
        forever = az.fix(lambda f, k: f(k + 1) + 1, az.i64, result=az.i64)
        return forever(n)

    with pytest.raises(RecursionError, match=r"5000 deep: this recursion has no end, at .*test_functions\.py:\d+"):
        az.evaluate(az.program(program))(0)


def test_an_error_inside_of_recursion_has_its_line() -> None:
    def program(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.fix(lambda f, k: x[k] + f(k + 1), az.i64, result=az.f64)(0)

    with pytest.raises(IndexError, match=r"3 .*test_functions\.py:\d+"):
        az.evaluate(az.program(program))([1.0, 2.0, 3.0])


# Fork and join


def test_par_of_any_number() -> None:
    def program(x: az.f64) -> Any:
        pair = az.par(lambda: x + 1, lambda: {"a": x, "b": (x * 2, 1)})
        listed = az.par([lambda k=k: x * k for k in range(4)])
        return pair, listed, az.par(), az.par([])

    pair, listed, none, empty = run(program, 3.0)
    assert pair == (4.0, {"a": 3.0, "b": (6.0, 1)}) and listed == [0.0, 3.0, 6.0, 9.0]
    assert none == () and empty == []


def test_par_is_sequential_in_meaning() -> None:
    def program(x: az.f64) -> Any:
        return az.par(lambda: az.inspect(x, "first"), lambda: az.inspect(x * 2, "second"))

    shown: list[tuple[str, list[float]]] = []
    az.evaluate(az.program(program), show=lambda name, values: shown.append((name, list(values))))(1.0)
    assert shown == [("first", [1.0]), ("second", [2.0])]


def test_a_size_that_a_branch_decides_is_known_around_the_fork() -> None:
    """Branches from the last one of these on stay side by side; all fail in the order in which they are written."""

    @az.program
    def program(x: az.Array[az.i64, "n"], k: az.i64) -> Any:
        return az.par(
            lambda: x[k], lambda: az.iota(x[k + 1]), lambda: x[k + 2], lambda: az.sum(x), lambda: az.sum(x * x)
        )

    one, integers, two, total, squares = run(program, np.array([1, 3, 2]), 0)
    assert (one, list(integers), two, total, squares) == (1, [0, 1, 2], 2, 6, 14)
    text = az.pretty(program)
    assert text.count("branch") == 3 and text.index("require 0 <= k < n") < text.index("par:")
    for k, failing in ((3, 3), (2, 3), (1, 3), (-1, -1)):
        with pytest.raises(IndexError, match=rf"{failing} is out of range"):
            run(program, np.array([1, 3, 2]), k)


def test_a_function_without_parameters_is_a_branch() -> None:
    def program(x: az.f64) -> Any:
        f, g = az.function(lambda: x + 1), az.function(lambda: x * 2)
        return az.cond(x > 0, f, g), az.par(f, g)

    assert run(program, 3.0) == (4.0, (4.0, 6.0))


@pytest.mark.unguarded
def test_nested_par() -> None:
    """A sum over a binary division of an array, forking to depth ten."""

    @az.program
    def total(x: az.Array[az.f64, "n"]) -> az.f64:
        @az.fix
        def part(self: Any, low: az.i64, high: az.i64) -> az.f64:
            middle = (low + high) // 2

            def halves() -> Any:
                left, right = az.par(lambda: self(low, middle), lambda: self(middle, high))
                return left + right

            return az.cond(high - low == 1, lambda: x[low], halves)

        return part(0, az.size(x))

    x = np.arange(1024.0)
    assert run(total, x) == x.sum()


# Meanings given by the user


def test_custom_derivatives_are_carried_along() -> None:
    @az.custom_jvp
    def f(x: Any, n: Any) -> Any:
        return {"y": x**2, "n": n + 1}

    @f.defjvp
    def tangent(primals: Any, tangents: Any) -> Any:
        (x, _), (dx, dn) = primals, tangents
        assert dn is None
        return {"y": 2 * x * dx, "n": None}

    @f.defvjp
    def cotangents(primals: Any, cotangent: Any) -> Any:
        assert cotangent["n"] is None
        return 2 * primals[0] * cotangent["y"], None

    def program(x: az.Array[az.f64, "n"], n: az.i64) -> Any:
        return f(x, n)

    result = run(program, np.array([1.0, -3.0]), 4)
    assert result["n"] == 5 and list(result["y"]) == [1.0, 9.0]


def test_inspect_shows_whenever_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(az.map(lambda v: az.inspect(v * 2, "twice"), x))

    assert run(program, [1.0, 2.0]) == 6
    assert capsys.readouterr().out == "twice = 2.0\ntwice = 4.0\n"
    assert run(program, []) == 0 and capsys.readouterr().out == ""


def test_foreign_functions() -> None:
    solve = az.foreign("solve", np.linalg.solve, lambda a, b: b)
    qr = az.foreign("qr", lambda a: tuple(np.linalg.qr(a)), lambda a: (a, a))
    three = az.foreign("three", lambda: np.arange(3.0), az.Array[az.f64, 3])

    @az.program
    def program(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> Any:
        q, r = qr(a)
        return solve(a, b), q @ r, three()

    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    solution, product, numbers = run(program, a, b)
    np.testing.assert_allclose(solution, np.linalg.solve(a, b), rtol=1e-15)
    np.testing.assert_allclose(product, a, rtol=1e-14)
    assert list(numbers) == [0, 1, 2]


# Wrong programs


def identity(x: az.f64) -> az.f64:
    return x


def needs_a_result(self: Any, n: az.i64):  # type: ignore[no-untyped-def]
    return self(n)


def untyped(x):  # type: ignore[no-untyped-def]
    return x


WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    ("too few arguments", lambda x: az.function(lambda a, b: a + b, az.f64, az.f64)(x), "there is no partial applicat"),
    ("too many arguments", lambda x: az.function(identity)(x, x), r"\(f64\) -> f64 takes 1 argument\(s\), got more"),
    ("a wrong argument", lambda x: az.function(identity)(x > 0), "argument 1 of a function .* is f64, got bool"),
    (
        "an array for a scalar",
        lambda x: az.function(identity)(np.ones(3)),
        r"is f64, got an array of float64 with shape \(3,\)",
    ),
    (
        "a result that is wrong",
        lambda x: az.function(lambda a: a, az.i64, result=az.f64)(1),
        "the result .* is f64, got",
    ),
    ("no result", lambda x: az.function(lambda a: None, az.f64)(x), "returns nothing: is a return missing"),
    ("a parameter without type", lambda x: az.function(untyped)(x), "parameter 'x' of untyped has no annotation"),
    ("names of no type", lambda x: az.function(lambda a: a, 3), "3 is neither a scalar or array type"),
    ("too many types", lambda x: az.function(identity, az.f64, az.f64), r"identity.* cannot be called with 2 argum"),
    ("a fix without result", lambda x: az.fix(needs_a_result), "fix: needs_a_result needs the type of its result"),
    ("a fix without itself", lambda x: az.fix(lambda: 1, result=az.i64), "the first parameter of .* is the function"),
    ("a recursion of another type", lambda x: az.fix(lambda f, a: f(a > 0), az.f64, result=az.f64), "is f64, got bool"),
    ("an application of a number", lambda x: x(x), "a value of type f64 is not a function"),
    ("arithmetic with a function", lambda x: az.function(identity) + x, "not a value of type"),
    ("functions of two types", lambda x: az.cond(x > 0, lambda: az.function(identity), lambda: x), "differ in type"),
    (
        "a lambda that nothing types",
        lambda x: az.cond(x > 0, lambda: identity, lambda: identity),
        "do not say the type",
    ),
    ("a lambda as a result", lambda x: lambda y: x + y, "is not a value of the language"),
    ("par of a value", lambda x: az.par(lambda: x, x), "par: the branch 2 is a function without parameters, not f64"),
    ("par of a function of x", lambda x: az.par(lambda: x, identity), r"the branch 2 is called without .* takes \(x"),
    (
        "a choice of a value",
        lambda x: az.cond(x > 0, lambda: x, x),
        "the branch orelse is a function without .*, not f64",
    ),
    (
        "a choice of a function of x",
        lambda x: az.cond(x > 0, az.function(identity), lambda: x),
        r"cond: the branch then is called without arguments, but takes \(f64\): write az.cond\(test, lambda: a",
    ),
    ("an attribute of a scalar", lambda x: x.real_part, "an expression of type f64 has no attribute 'real_part'"),
    ("a custom without rule", lambda x: az.custom_jvp(identity)(x), "identity has no rule yet: give it with defjvp"),
    (
        "foreign of no function",
        lambda x: az.foreign("f", 3, az.f64),
        "the operation f takes a function on arrays, not 3",
    ),
    ("foreign of a wrong type", lambda x: az.foreign("f", np.sin, lambda a: 3)(x), "f: 3 is neither a scalar or array"),
]


@pytest.mark.parametrize(("body", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_programs(body: Callable[[Any], Any], message: str) -> None:
    def f(x: az.f64) -> Any:
        return body(x)

    with pytest.raises((TypeError, AttributeError), match=message) as caught:
        az.program(f).at().term  # noqa: B018
    if "neither" not in message and "cannot be" not in message and "not a value of type" not in message:
        assert python_inspect.getsourcefile(identity) in str(caught.value)


def rule_with_two() -> Any:
    f = az.custom_vjp(identity)
    f.defvjp(lambda primals, cotangent: (cotangent, cotangent))
    return f


def test_wrong_rules() -> None:
    def program(x: az.f64) -> Any:
        return rule_with_two()(x)

    wanted = r"vjp rule of identity, written at .*test_functions\.py:\d+: result is a tuple of 1, got a tuple of 2"
    with pytest.raises(TypeError, match=f"{wanted} {HERE}"):
        az.program(program).at().term  # noqa: B018


def test_a_definition_belongs_inside_of_a_program() -> None:
    with pytest.raises(RuntimeError, match="no program is being built here"):
        factorial(3)
    assert repr(factorial) == "<recursive function factorial>"


def test_what_compiles() -> None:
    """A definition is compiled with each program that uses it."""

    @az.program
    def program(n: az.i64) -> az.i64:
        return factorial(n)

    for call in (program, az.compile(program), program.at()):
        assert call(3) == 6


def test_printing() -> None:
    @az.program
    def program(x: az.f64, n: az.i64) -> az.f64:
        @az.fix
        def power(self, k: az.i64) -> az.f64:  # type: ignore[no-untyped-def]
            return az.cond(k == 0, lambda: 1.0, lambda: x * self(k - 1))

        return power(n)

    assert "def power(k: i64) -> f64" in az.pretty(program)
