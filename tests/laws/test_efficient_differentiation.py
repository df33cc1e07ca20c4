"""Shaikhha et al. 2019 (*Efficient differentiable programming*), row by row: S1 to S24, what their system is to do.

The paper's language F~ builds arrays, reads them, and folds (``programs/linear_algebra.py``); its derivative of a
program is rewritten until the loop over directions is gone. Each row has a test here that carries its number, or one
in the module that has more to say of it: S16 and S22 in ``ad/test_jacobian_costs.py``, S19 in
``laws/test_transformations.py``, S20 in ``project/test_benchmarks.py``, S21 and S23 in ``ad/test_side_by_side.py``, S24
in ``backends/opencl/test_opencl_programs.py``. What Adze does otherwise, and why, is in ``docs/papers.md``.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import leaves
from load import ROOT, benchmark
from programs import CASES, linear_algebra
from programs.linear_algebra import (
    build,
    ifold,
    length,
    matrix_eye,
    matrix_mul,
    matrix_trace,
    matrix_transpose,
    vector_add,
    vector_dot,
    vector_map,
    vector_map2,
    vector_smul,
    vector_sum,
    vector_to_matrix,
    vector_zip,
)

import adze as az
from adze.core import terms
from adze.interpreters.simplify import simplify

pytestmark = pytest.mark.unguarded

Vector, Matrix, Square = az.Array[az.f64, "n"], az.Array[az.f64, "m n"], az.Array[az.f64, "n n"]
Left = az.Array[az.f64, "m"]
RUNS = [az.evaluate, az.compile]

X, Y, V, K = 1.25, -0.75, np.array([0.5, -1.5, np.inf, 2.0]), 2


def of_all(f: Callable[..., Any]) -> az.Program:
    """A program of two numbers, a vector and an integer."""

    def program(x: az.f64, y: az.f64, v: Vector, k: az.i64) -> Any:
        return f(x, y, v, k)

    return az.program(program)


@pytest.mark.parametrize("row", range(1, 25))
def test_every_row_has_a_test(row: int) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    carried = re.compile(rf'def test_s{row:02}_|"S{row}: |"""[^"]*\(S{row}\)')
    assert any(map(carried.search, texts))


# The language


@pytest.mark.parametrize("run", RUNS)
def test_s01_functions_take_all_their_arguments_at_once(run: Any) -> None:
    """And may be results, which the paper's may not."""
    with pytest.raises(TypeError, match="no partial application"):
        az.pretty(of_all(lambda x, y, v, k: az.function(lambda a, b: a + b, az.f64, az.f64)(x)))

    def curried(x: Any, y: Any, v: Any, k: Any) -> Any:
        return az.function(lambda a: az.function(lambda b: a - b, az.f64), az.f64)(x)(y)

    assert run(of_all(curried))(X, Y, V, K) == X - Y


WRONG: dict[str, Callable[..., Any]] = {
    "a number as a test": lambda x, y, v, k: az.cond(x, lambda: x, lambda: y),
    "branches of unlike types": lambda x, y, v, k: az.cond(x > y, lambda: x, lambda: v),
    "a read at a number that is no integer": lambda x, y, v, k: v[x],
    "a length that is no integer": lambda x, y, v, k: build(x, lambda i: y),
    "an array as a state that is a number": lambda x, y, v, k: ifold(lambda s, i: v, x, k),
    "an array of arrays and numbers": lambda x, y, v, k: az.array([x, v]),
}


@pytest.mark.parametrize("name", WRONG)
def test_s01_ill_typed_programs_are_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        az.pretty(of_all(WRONG[name]))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_s02_folds_run_from_the_first_step_to_the_last(run: Any, n: int) -> None:
    """Also no step at all; pairs, lengths, reads, choices."""

    def folded(x: Any, y: Any, v: Any, k: Any) -> Any:
        digits, steps = ifold(lambda s, i: (s[0] * 10 + i, s[1] + 1), (0, 0), k)
        squares = build(k, lambda i: i * i)
        return digits, steps, length(squares), az.cond(k > 1, lambda: squares[1], lambda: -1)

    wanted = [int("0" + "".join(map(str, range(n)))), n, n, 1 if n > 1 else -1]
    assert list(run(of_all(folded))(X, Y, V, n)) == wanted


# Figure 4, and the five functions that the paper uses beside it
LIBRARY = """
range fill hot map map2 zip add emul smul sum dot norm slice to_matrix out_prod zeros sub cross: vector
rows cols zeros ones eye hot map map2 add transpose mul trace zip: matrix
"""


def test_s03_the_linear_algebra_library_is_written_in_the_language_alone() -> None:
    """Its values are compared with NumPy's where all programs are, evaluated and compiled."""
    kinds = [line.split(": ") for line in LIBRARY.strip().splitlines()]
    functions = [getattr(linear_algebra, f"{kind}_{name}") for names, kind in kinds for name in names.split()]
    used = {name for function in functions for name in re.findall(r"az\.(\w+)", inspect.getsource(function))}
    assert used <= {"cond", "sqrt"}
    assert sum(case.program.function.__module__ == linear_algebra.__name__ for case in CASES) >= 4


# Derivatives

TERMS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, v, k: x + y,
    "subtract": lambda x, y, v, k: x - y,
    "multiply": lambda x, y, v, k: x * y,
    "divide": lambda x, y, v, k: x / y,
    "power": lambda x, y, v, k: x**y,
    "a power that is known": lambda x, y, v, k: y**3,
    "negative": lambda x, y, v, k: -x,
    "sin": lambda x, y, v, k: az.sin(x),
    "cos": lambda x, y, v, k: az.cos(x),
    "tan": lambda x, y, v, k: az.tan(x),
    "log": lambda x, y, v, k: az.log(x),
    "exp": lambda x, y, v, k: az.exp(y),
    "variable, constant": lambda x, y, v, k: (x, 2.0),
    "application, abstraction": lambda x, y, v, k: az.function(lambda a: a * y, az.f64)(x),
    "let": lambda x, y, v, k: (lambda a: a * a)(x * y),
    "if": lambda x, y, v, k: az.cond(x > y, lambda: x * y, lambda: y),
    "build": lambda x, y, v, k: build(k, lambda i: x * i + v[i]),
    "ifold": lambda x, y, v, k: ifold(lambda s, i: s * y + v[i], x, k),
    "get": lambda x, y, v, k: v[k] * x,
    "length": lambda x, y, v, k: length(v) * x,
    "pair, fst, snd": lambda x, y, v, k: ifold(lambda s, i: (s[1], s[0] * v[i]), (x, y), k),
}


@pytest.mark.parametrize("name", TERMS)
def test_s04_each_rule_against_differences(name: str) -> None:
    """All of figure 7, by the numbers and the vector, along one direction."""
    f, v = of_all(TERMS[name]), np.array([0.5, -1.5, 0.75, 2.0])
    dx, dy, dv, h = 0.5, -2.0, np.array([1.0, -1.0, 0.5, 2.0]), 1e-6
    found = az.evaluate(az.jvp(f, argnums=(0, 1, 2)))(X, Y, v, K, dx, dy, dv)[1]
    ends = [leaves(az.evaluate(f)(X + s * dx, Y + s * dy, v + s * dv, K)) for s in (h, -h)]
    for one, up, down in zip(leaves(found), *ends, strict=True):
        np.testing.assert_allclose(one, (up - down) / (2 * h), rtol=1e-7, atol=1e-8)


def test_s04_the_text_of_a_derivative_grows_as_that_of_the_program() -> None:
    """Operands have names: the product rule does not write the derivative of a factor twice."""

    def operations(block: terms.Block) -> int:
        return sum([1 + sum(map(operations, each.blocks)) for each in block.bindings])

    def length_of(count: int) -> int:
        def nested(x: Any, y: Any, v: Any, k: Any) -> Any:
            for _ in range(count):
                x = x * az.sin(x)
            return x

        return operations(simplify(az.jvp(of_all(nested))))

    assert length_of(24) - length_of(16) == length_of(16) - length_of(8) <= 8 * 8


def product(u: Left, m: Matrix, v: Vector) -> Any:
    row, column = vector_to_matrix(u), matrix_transpose(vector_to_matrix(v))
    return matrix_mul(row, matrix_mul(m, column))[0][0]


def dot(u: Vector, v: Vector) -> Any:
    return vector_dot(u, v)


def trace(m: Square) -> Any:
    return matrix_trace(m)


def trace_of_product(m: Square, a: Square) -> Any:
    return matrix_trace(matrix_mul(m, a))


def scalars(a: az.f64, b: az.f64) -> Any:
    return a * b


def twice_transposed(m: Matrix) -> Any:
    return matrix_transpose(matrix_transpose(m))


def by(f: Callable[..., Any], name: str) -> az.Program:
    return az.jacobian(az.program(f), name, mode="forward")


def body(program: az.Program) -> list[str]:
    return [line.strip() for line in az.pretty(program).splitlines()[1:]]


IDENTITIES = [
    pytest.param(by(scalars, "a"), ["return b"], id="example 3, by a number"),
    pytest.param(by(dot, "u"), ["return v"], id="example 7, by a vector"),
    pytest.param(by(product, "m"), ["return map(lambda w: w * v, u)"], id="example 1, by a matrix"),
    pytest.param(by(trace, "m"), ["return for i < n, j < n: 1.0 if j == i else 0.0"], id="tr(M)"),
    pytest.param(by(trace_of_product, "m"), ["return a.T"], id="tr(M A)"),
    pytest.param(az.program(twice_transposed), ["return m2"], id="example 5, transposed twice"),
]


@pytest.mark.parametrize(("program", "wanted"), IDENTITIES)
def test_s05_s15_what_is_derived_prints_as_by_hand(program: az.Program, wanted: list[str]) -> None:
    """By a number, a vector or a matrix, beside others that do not move."""
    assert body(program) == wanted


def test_s15_a_product_with_the_unit_matrix_stays() -> None:
    """Example 6 is ``v`` for real numbers: infinity times zero is NaN, and the sum with it."""

    def product(x: Any, y: Any, v: Any, k: Any) -> Any:
        return matrix_mul(vector_to_matrix(v), matrix_eye(length(v)))[0]

    for run in RUNS:
        np.testing.assert_array_equal(run(of_all(product))(X, Y, V[[0, 1]], K), V[[0, 1]])
        np.testing.assert_array_equal(run(of_all(product))(X, Y, V, K), [np.nan, np.nan, np.inf, np.nan])


def curve(s: az.f64) -> Any:
    return build(3, lambda i: s**2 * i)


def surface(s: az.f64) -> Any:
    return build(3, lambda i: build(2, lambda j: s * i * j))


def doubled(v: Vector) -> Any:
    return vector_smul(v, 2.0)


TABLE_2 = {
    "diff": (lambda s: s * s, az.f64, 3.0, ()),
    "vdiff": (curve, az.f64, 3.0, (3,)),
    "mdiff": (surface, az.f64, 3.0, (3, 2)),
    "grad": (vector_sum, Vector, np.ones(4), (4,)),
    "jacob": (doubled, Vector, np.ones(4), (4, 4)),
    "mgrad": (matrix_trace, Square, np.ones((4, 4)), (4, 4)),
}


@pytest.mark.parametrize("name", TABLE_2)
@pytest.mark.parametrize("mode", [None, "forward", "reverse"])
def test_s06_one_verb_has_the_shapes_of_table_2(name: str, mode: str | None) -> None:
    f, type, point, shape = TABLE_2[name]

    def program(x: type) -> Any:  # type: ignore[valid-type]
        return f(x)  # type: ignore[operator]

    assert np.shape(az.evaluate(az.jacobian(az.program(program), mode=mode))(point)) == shape


def test_s07_nested_derivatives_are_not_confused() -> None:
    """Example 4: the derivative of ``x * d/dy (x + y)`` by x is 1, and not 2."""

    def nested(x: Any, y: Any, v: Any, k: Any) -> Any:
        return az.grad(lambda x: x * az.grad(lambda y: x + y)(y))(x)

    assert body(of_all(nested)) == ["return 1.0"]

    def cubed(v: Vector) -> Any:
        return vector_sum(vector_map(v, lambda a: a**3))

    hessian = az.jacobian(by(cubed, "v"), mode="forward")
    np.testing.assert_allclose(az.evaluate(hessian)(np.array([1.0, 2.0])), [[6.0, 0.0], [0.0, 12.0]])


# Rules


RULES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "S8: a function that is applied": (
        lambda x, y, v, k: az.function(lambda a: a * y, az.f64)(x),
        lambda x, y, v, k: x * y,
    ),
    "S8: a name within a function": (
        lambda x, y, v, k: az.function(lambda y: (lambda x: x - y)(az.sin(y)), az.f64)(x),
        lambda x, y, v, k: az.sin(x) - x,
    ),
    "S8: what nobody needs": (lambda x, y, v, k: (vector_sum(vector_map(v, az.exp)), x)[1], lambda x, y, v, k: x),
    "S8: equal operations": (
        lambda x, y, v, k: az.sin(x + y) * az.sin(x + y),
        lambda x, y, v, k: (lambda t: t * t)(az.sin(x + y)),
    ),
    "S8: what a loop does not change": (
        lambda x, y, v, k: vector_map(v, lambda a: a * az.sin(x)),
        lambda x, y, v, k: (lambda t: vector_smul(v, t))(az.sin(x)),
    ),
    "S9: one as a factor, zero as a summand": (lambda x, y, v, k: (1.0 * x - 0.0) * 1.0, lambda x, y, v, k: x),
    "S9: zero as a factor, of integers": (lambda x, y, v, k: k * 0 + k - k, lambda x, y, v, k: 0 * k),
    "S10: an element of an array": (
        lambda x, y, v, k: build(length(v), lambda i: v[i] * x)[1],
        lambda x, y, v, k: v[1] * x,
    ),
    "S10: the length of an array": (
        lambda x, y, v, k: length(build(k, lambda i: x)),
        lambda x, y, v, k: length(build(k, lambda i: y)),
    ),
    "S10: a chain": (
        lambda x, y, v, k: vector_sum(vector_map2(vector_map(v, az.cos), vector_add(v, v), lambda a, b: a * b)),
        lambda x, y, v, k: ifold(lambda s, i: s + az.cos(v[i]) * (v[i] + v[i]), 0.0, length(v)),
    ),
    "S11: a test that holds": (lambda x, y, v, k: az.cond(k == k, lambda: x, lambda: y), lambda x, y, v, k: x),
    "S11: a test that does not": (lambda x, y, v, k: az.cond(k < k, lambda: x, lambda: y), lambda x, y, v, k: y),
    "S11: equal branches": (lambda x, y, v, k: az.cond(x > y, lambda: x, lambda: x), lambda x, y, v, k: x),
    "S11: a test that is known": (
        lambda x, y, v, k: az.cond(x > y, lambda: az.cond(x > y, lambda: x, lambda: az.sin(x)), lambda: y),
        lambda x, y, v, k: az.cond(x > y, lambda: x, lambda: y),
    ),
    "S12: no step": (lambda x, y, v, k: ifold(lambda s, i: s * y, x, 0), lambda x, y, v, k: x),
    "S12: a single step": (lambda x, y, v, k: ifold(lambda s, i: s - y, x, 1), lambda x, y, v, k: x - y),
    "S12: a state that stays": (lambda x, y, v, k: ifold(lambda s, i: s, x, k), lambda x, y, v, k: x),
    "S13: a part of a pair": (
        lambda x, y, v, k: ifold(lambda s, i: (s[0] + v[i], s[1] * v[i]), (x, y), k)[0],
        lambda x, y, v, k: ifold(lambda s, i: s + v[i], x, k),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_s08_to_s13_rules(name: str) -> None:
    """Figure 8: both sides are one program, with values alike."""
    left, right = map(of_all, RULES[name])
    assert re.sub(r"state\d", "state", az.pretty(left)) == az.pretty(right)
    for k in (0, 2, 4):
        for one, other in zip(*[leaves(az.evaluate(f)(X, Y, V, k)) for f in (left, right)], strict=True):
            np.testing.assert_array_equal(one, other)


def test_s12_a_loop_whose_state_changes_in_one_step() -> None:
    """Rule 8e, with the test that the step is one of the loop's."""

    def folded(x: Any, y: Any, v: Any, k: Any) -> Any:
        return ifold(lambda s, i: s + az.cond(i == k, lambda: v[i], lambda: 0.0), x, length(v))

    assert body(of_all(folded)) == ["return x + v[k] if 0 <= k < n else x"]
    for k in (-1, 0, 3, 4):
        assert az.evaluate(of_all(folded))(X, Y, V, k) == (X + V[k] if k in range(4) else X)


# Where no rule applies: what numbers of the machine do not obey, what would be more work, what depends on itself
STAYS: dict[str, tuple[Callable[..., Any], str]] = {
    "S9: zero as a factor": (lambda x, y, v, k: x * 0.0, "return 0.0 * x"),
    "S9: a difference": (lambda x, y, v, k: x - x, "return x - x"),
    "S9: a common factor": (lambda x, y, v, k: x * y + x * az.sin(x), "return x * y + x * sin(x)"),
    "S11: a function of a choice": (
        lambda x, y, v, k: az.sin(az.cond(x > y, lambda: x * y, lambda: y)),
        "return sin(x * y if x > y else y)",
    ),
    "S12: two steps": (
        lambda x, y, v, k: ifold(lambda s, i: s * y, x, 2),
        "return loop i < 2 with state = x: next state * y",
    ),
    "S12: a factor in one step": (
        lambda x, y, v, k: ifold(lambda s, i: s * az.cond(i == k, lambda: v[i], lambda: 1.0), x, length(v)),
        "return loop i < n with state = x: next state * (v[i] if i == k else 1.0)",
    ),
    "S13: both of a pair": (
        lambda x, y, v, k: ifold(lambda s, i: (s[0] + v[i], s[1] * v[i]), (x, y), length(v)),
        "return loop i < n with state1 = x, state2 = y: next state1 + v[i], state2 * v[i]",
    ),
    "S13: a part that needs the other": (
        lambda x, y, v, k: ifold(lambda s, i: (s[0] + v[i], s[1] * s[0]), (x, y), length(v))[1],
        "t1, t2 = loop i < n with state1 = x, state2 = y: next state1 + v[i], state2 * state1",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_s09_to_s13_where_rules_do_not_fire(name: str) -> None:
    program, line = STAYS[name]
    assert line in body(of_all(program))


def test_s10_a_chain_of_maps_and_a_sum_stores_nothing() -> None:
    """But cosines, for the loop in order has no lanes; without distribution not these either."""
    left, _ = RULES["S10: a chain"]
    nests = az.compile(of_all(left), schedule={"distribute": False}).nests
    assert nests.count("  for ") == 1 and "nest " not in nests and "temporary" not in nests
    assert az.compile(of_all(left)).nests.count("temporary") == 1


def test_s14_what_no_point_decides_is_computed_before_the_loop_over_points() -> None:
    """The angle of a camera, its sine and its cosine, in the program and in its Jacobian."""
    programs = benchmark("jacobians")
    scalars = az.jacobian(programs.project_scalars, "camera")
    for program in (programs.project_scalars, programs.project, scalars):
        before, inside = az.pretty(program).split("for p in points")
        for function in ("sqrt(", "sin(", "cos("):
            assert before.count(function) == 1 and function not in inside


def test_s17_numbers_and_their_tangents_are_in_arrays_of_their_own() -> None:
    """An array of pairs is a pair of arrays, in a program, in its derivative and in compiled code."""

    def pairs(v: Vector) -> Any:
        return vector_zip(v, vector_smul(v, 2.0))

    compiled = az.compile(az.jvp(az.program(pairs)))
    assert re.findall(r"result\d+: (.*?)(?:,|$)", compiled.nests.splitlines()[0]) == ["f64[n]"] * 4
    _, (first, second) = compiled(np.arange(3.0), np.ones(3))
    np.testing.assert_array_equal(np.stack([first, second]), [[1.0] * 3, [2.0] * 3])


def test_s18_compiled_code_allocates_nothing() -> None:
    """What it needs besides the results is in one arena, whose size is known before the run."""

    def centred(v: Vector) -> Any:
        w = vector_map(v, az.exp)
        return vector_smul(vector_add(w, vector_map(w, az.sin)), 1.0 / vector_sum(w))

    compiled = az.compile(az.vjp(az.program(centred)))
    assert "temporary" in compiled.nests
    assert not re.search(r"@(malloc|calloc|realloc|free)\b", compiled.llvm_ir)
    assert compiled.peak_bytes(np.ones(1000), np.ones(1000)) < 5 * 8000
