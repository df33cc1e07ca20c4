"""A construct from outside: those of examples/new_construct.py and of this file in every interpretation."""

import pickle
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from load import example

import adze as az
from adze.ad.reverse import Reverse
from adze.core.constructs import ADDED, CONSTRUCTS
from adze.core.digest import NoDigest, digest
from adze.core.terms import Block

SIZES = (0, 1, 2, 33)


@pytest.fixture(scope="module")
def new() -> Iterator[ModuleType]:
    """The example; afterwards no interpretation knows its construct."""
    module = example("new_construct")
    yield module
    row = module.recurrence.row
    for interpretation in row.own:
        delattr(interpretation, row.method)
    del ADDED[row.name], sys.modules[module.__name__]


@pytest.fixture
def first() -> Iterator[Any]:
    """The first index below n for which a block holds, or n: a construct with a block, of which nothing is stated."""

    def search(n: Any, holds: Any) -> Any:
        return az.while_loop(lambda i: az.cond(i < n, lambda: ~holds(i), lambda: False), lambda i: i + 1, 0)

    yield az.construct(
        "first",
        types=lambda n, found: n,
        expansion=search,
        blocks={"holds": (az.Role.TEST, lambda n: (az.i64,))},
    )
    del ADDED["first"]


@pytest.fixture(scope="module")
def rows(new: ModuleType) -> az.Program:
    @az.program
    def rows(a: az.Array[az.f64, "m n"], x: az.Array[az.f64, "m n"]) -> az.Array[az.f64, "m n"]:
        return az.map(new.recurrence, a, x)

    return rows


@pytest.fixture(scope="module")
def total(new: ModuleType) -> az.Program:
    @az.program
    def total(a: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(new.recurrence(a, x) ** 2)

    return total


def reference(a: Any, x: Any) -> Any:
    """By the formula in closed form: ``y[i]`` is the sum of ``x[j] a[j+1] ... a[i]``."""
    terms = [[x[j] * np.prod(a[j + 1 : i + 1]) for j in range(i + 1)] for i in range(len(x))]
    return np.array([np.sum(row) for row in terms], x.dtype)


def derivative(a: Any, x: Any, i: int, at: int) -> Any:
    """The derivative of the sum of squares by the element ``at`` of argument i: an imaginary step, which is exact."""
    arguments = [np.array(a, complex), np.array(x, complex)]
    arguments[i][at] += 1e-30j
    return float(np.imag(np.sum(reference(*arguments) ** 2))) / 1e-30


def inputs(n: int) -> tuple[Any, Any]:
    return np.cos(np.arange(n) * 1.7) * 0.9, np.sin(np.arange(n) * 0.7 + 0.3)


def operations(block: Block) -> list[str]:
    return [name for x in block.bindings for name in [x.op, *[n for inner in x.blocks for n in operations(inner)]]]


def test_it_is_one_operation_of_terms_and_of_derivatives(new: ModuleType, total: az.Program) -> None:
    assert "recurrence" not in CONSTRUCTS
    for program, count in [(total, 1), (az.grad(total, argnums=(0, 1)), 2)]:
        term = program.at().term
        az.check(term)
        assert term.interpret(az.Reify()) == term == pickle.loads(pickle.dumps(term))
        assert operations(az.simplify(term)).count("recurrence") == count
        assert "scan" not in operations(term)
    assert az.pretty(total).endswith("return sum(recurrence(a, x) ** 2)")
    assert "recurrence %1, %0: f64[n]" in az.pretty(total, style="de-bruijn")
    assert "recurrence" in az.draw(total).dot


def test_simplify_computes_it_once_and_drops_it(new: ModuleType) -> None:
    @az.program
    def twice(a: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        new.recurrence(x, a)
        return new.recurrence(a, x) + new.recurrence(a, x)

    assert operations(az.simplify(twice.at().term)).count("recurrence") == 1


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_values_and_derivatives(run: Any, rows: az.Program, total: az.Program) -> None:
    values, gradient, pushed = [run(program) for program in (rows, az.grad(total, argnums=(0, 1)), az.jvp(total))]
    for n in SIZES:
        a, x = inputs(n)
        stacked = np.stack([a, x, a]), np.stack([x, a, a])
        wanted = np.array([reference(*row) for row in zip(*stacked, strict=True)]).reshape(3, n)
        np.testing.assert_allclose(values(*stacked), wanted, rtol=1e-13, atol=1e-13)
        moved = np.array([[derivative(a, x, i, at) for at in range(n)] for i in range(2)])
        np.testing.assert_allclose(gradient(a, x), moved, rtol=1e-12, atol=1e-12)
        along = pushed(a, x, x, a)[1]
        np.testing.assert_allclose(along, np.sum(moved * [x, a]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_derivatives_of_some_of_several_results(wanted: int) -> None:
    """What no cotangent comes to has the cotangent 0 for the rule, and an operand that does not move is left out."""

    def both(x: Any, y: Any) -> Any:
        return x * y, az.sin(x) + y

    polar = az.construct("both", types=lambda x, y: (x, y), expansion=both, pure=True, partial=False)

    @polar.method(Reverse)
    def reversed_(self: Reverse, static: Any, args: Any, blocks: Any) -> Any:
        def rule(p_bar: Any, s_bar: Any, p: Any, s: Any, x: Any, y: Any) -> Any:
            return p_bar * y + s_bar * az.cos(x), p_bar * x + s_bar

        return self.by_rule("both", static, args, rule)

    @az.program
    def f(x: az.f64, y: az.f64) -> az.f64:
        product, total = polar(x, y)
        return (product, total, product * total)[wanted]

    x, y = 0.7, -1.3
    p, s = x * y, np.sin(x) + y
    moved = [(y, x), (np.cos(x), 1.0), (y * s + p * np.cos(x), x * s + p)][wanted]
    np.testing.assert_allclose(az.evaluate(az.grad(f, argnums=(0, 1)))(x, y), moved, rtol=1e-13)
    np.testing.assert_allclose(az.evaluate(az.grad(f, argnums=1))(x, y), moved[1], rtol=1e-13)
    delattr(Reverse, polar.row.method)
    del ADDED["both"]


def test_compiled_code_is_the_loop_that_it_says(rows: az.Program) -> None:
    assert re.search(r"(state\d+) = array\d+\[i\d+\] \* \1 \+ array", az.compile(rows).loops)


def test_traces_and_derivatives_via_traces(total: az.Program) -> None:
    a, x = inputs(7)
    for keep in ("scalars", "arrays"):
        trace = az.trace(total, keep=keep)(a, x)
        np.testing.assert_allclose(az.evaluate(trace.program)(a, x), np.sum(reference(a, x) ** 2), rtol=1e-13)
    found = az.grad(total, argnums=(0, 1), via="trace")(a, x)
    wanted = [[derivative(a, x, i, at) for at in range(7)] for i in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_costs_and_patterns_of_zeros_are_those_of_the_expansion(new: ModuleType, total: az.Program) -> None:
    @az.program
    def expanded(a: az.Array[az.f64, "n"], x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(new.as_scan(a, x) ** 2)

    assert str(az.cost(total)) == str(az.cost(expanded))
    assert str(az.cost(total)(*inputs(9))) == str(az.cost(expanded)(*inputs(9)))

    @az.program
    def last(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return new.recurrence(az.zeros_like(x) + 0.5, x)

    jacobian = az.sparse_jacobian(last)(np.ones(5)).toarray()
    np.testing.assert_allclose(jacobian, [[0.5 ** (i - j) if j <= i else 0.0 for j in range(5)] for i in range(5)])


def test_opencl(opencl: Any, rows: az.Program, total: az.Program) -> None:
    a, x = inputs(33)
    stacked = np.stack([a, x, a]), np.stack([x, a, a])
    for program, given in [(rows, stacked), (az.grad(total, argnums=(0, 1)), (a, x)), (az.jvp(total), (a, x, x, a))]:
        found, wanted = az.compile(program, backend="opencl")(*given), az.evaluate(program)(*given)
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def test_a_construct_with_a_block(first: Any) -> None:
    @az.program
    def roots(x: az.Array[az.f64, "m n"], limit: az.f64) -> az.f64:
        def root(row: az.Expr) -> az.Expr:
            k = first(row.shape[0], lambda i: row[i] * row[i] > limit)
            return az.cond(k < row.shape[0], lambda: az.sin(row[k]), lambda: 0.0)

        return az.sum(az.map(root, x))

    x = np.arange(12.0).reshape(3, 4) / 4
    value, slope = np.sum(np.sin([x[1, 1], x[2, 0]])), np.zeros((3, 4))
    slope[1, 1], slope[2, 0] = np.cos(x[1, 1]), np.cos(x[2, 0])
    gradient = az.grad(roots)
    assert operations(az.simplify(roots.at().term)).count("first") == 1
    assert "first(n):\n" in az.pretty(roots) and "holds (" in az.pretty(roots)
    az.check(gradient.at().term)
    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(roots)(x, 1.5), value, rtol=1e-14)
        np.testing.assert_allclose(run(gradient)(x, 1.5), slope, rtol=1e-14)
    np.testing.assert_allclose(az.grad(roots, via="trace")(x, 1.5), slope, rtol=1e-14)


@pytest.mark.parametrize("pure", [False, True])
def test_blocks_that_are_elements_and_operators(pure: bool) -> None:
    """Passes that look into loops know the extents of those of the language alone."""

    def halves(n: Any, at: Any, op: Any) -> Any:
        """From both ends at once."""
        return op(
            az.reduce(op, 0.0, az.generate(n // 2, at)),
            az.reduce(op, 0.0, az.generate(n - n // 2, lambda i: at(n - 1 - i))),
        )

    folded = az.construct(
        "folded",
        types=lambda n, element, combined: element[0],
        expansion=halves,
        blocks={
            "element": (az.Role.ELEMENT, lambda n: (az.i64,)),
            "operator": (az.Role.OPERATOR, lambda n: (az.f64, az.f64)),
        },
        pure=pure,
        partial=not pure,
        external=not pure,
        holds=not pure,
    )

    @az.program
    def f(x: az.Array[az.f64, "m n"], k: az.i64) -> az.f64:
        rows = az.map(lambda row: folded(row.shape[0], lambda i: az.sin(row[i + k]) * row[i], lambda a, b: a + b), x)
        return az.sum(rows * rows)

    x = np.arange(12.0).reshape(3, 4) / 7
    sums = np.sum(np.sin(x) * x, axis=1, keepdims=True)
    slope = 2 * sums * (np.sin(x) + x * np.cos(x))
    az.check(az.simplify(f.at().term))
    run: Any = az.compile if pure else az.evaluate
    np.testing.assert_allclose(run(f)(x, 0), np.sum(sums**2), rtol=1e-13)
    np.testing.assert_allclose(run(az.jvp(f))(x, 0, x)[1], np.sum(slope * x), rtol=1e-12)
    np.testing.assert_allclose(az.evaluate(az.grad(f))(x, 0), slope, rtol=1e-12)
    with pytest.raises(IndexError, match=r"_construct\.py"):
        run(f)(x, 1)
    del ADDED["folded"]


def test_what_is_not_pure_stays(first: Any) -> None:
    @az.program
    def unused(n: az.i64) -> az.i64:
        first(n, lambda i: i > 2)
        return n

    assert "first" in operations(az.simplify(unused.at().term))


def test_the_definition_is_part_of_the_key(new: ModuleType) -> None:
    def program(construct: Any) -> Any:
        @az.program
        def f(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
            return construct(x)

        return f.at().term

    keys = []
    for times in (2, 2, 3):
        construct = az.construct("multiplied", types=lambda x: x, expansion=lambda x, k=times: x * k, pure=True)
        keys.append(digest(program(construct)).value)
    assert keys[0] == keys[1] != keys[2]
    del ADDED["multiplied"]
    with pytest.raises(NoDigest, match="recurrence"):
        digest(new.loss.at().term)
    text = pickle.dumps(program(az.construct("gone", types=lambda x: x, expansion=lambda x: x)))
    del ADDED["gone"]
    with pytest.raises(TypeError, match="'gone' here: import the module that adds it"):
        pickle.loads(text)


def test_errors_name_the_line(new: ModuleType) -> None:
    def lengths(a: Any, x: Any) -> az.Expr:
        return az.sum(new.linear_recurrence(a, x))

    for run in (az.evaluate, az.compile):
        np.testing.assert_allclose(run(az.grad(lengths, argnums=1))(np.ones(3), np.ones(3)), [3.0, 2.0, 1.0])
        with pytest.raises(ValueError, match=r"the sizes .* differ, at .*new_construct.py:"):
            run(lengths)(np.ones(3), np.ones(2))
        with pytest.raises(TypeError, match=r"two vectors of one size and scalar type, got .*_construct.py:"):
            run(lengths)(np.ones(3), np.ones(3, np.float32))
    for name in ("scan", "variable", "not a name"):
        with pytest.raises(ValueError, match="is no name, or it is taken"):
            az.construct(name, types=lambda x: x, expansion=lambda x: x)
    with pytest.raises(ValueError, match="no property 'loops'"):
        az.construct("other", types=lambda x: x, expansion=lambda x: x, loops=True)
    wrong = az.construct("wrong", types=lambda x: az.i64, expansion=lambda x: x)

    @az.program
    def promised(x: az.f64) -> az.i64:
        return wrong(x)

    with pytest.raises(TypeError, match=r"wrong promised to give \(i64\), but its expansion gives \(f64\)"):
        az.evaluate(promised)(1.0)
    del ADDED["wrong"]
