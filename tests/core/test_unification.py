"""Sizes that a program requires to be equal: one name for them in every interpretation, and calls that compare them."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az
from adze.ad import differentiating
from adze.core.dims import Dim
from adze.core.program import Instance
from adze.core.terms import NOWHERE, Failure
from adze.core.types import ArrayType
from adze.core.unification import Equality, Unifier

Left, Right = az.Array[az.f64, "a b"], az.Array[az.f64, "c d"]


def product(x: Any, y: Any) -> Any:
    return x @ y


def loss(x: Any, y: Any) -> Any:
    return az.sum(az.tanh(x @ y))


def types(program: Any, *given: Any) -> list[str]:
    return [str(type) for type in program.at(*given).term.binders]


# What is one size


def test_names_that_must_be_equal_are_one_name() -> None:
    assert types(az.program(product), Left, Right) == ["f64[a, b]", "f64[b, d]"]
    assert types(az.grad(loss, argnums=(0, 1)), Left, Right) == ["f64[a, b]", "f64[b, d]"]
    assert types(az.vjp(product), Left, Right, az.Array[az.f64, "e f"]) == ["f64[a, b]", "f64[b, d]", "f64[a, d]"]
    assert types(az.jvp(product), Left, Right, Left, Right)[2:] == ["f64[a, b]", "f64[b, d]"]
    assert types(az.hvp(loss), Left, Right, az.Array[az.f64, "e f"])[2:] == ["f64[a, b]"]
    assert types(az.hessian(loss), Left, Right) == ["f64[a, b]", "f64[b, d]"]
    assert types(az.jacobian(product, argnums=1), Left, Right) == ["f64[a, b]", "f64[b, d]"]


@pytest.mark.parametrize("size, wanted", [("3", "3"), ("2*n", "2*n"), ("n+1", "n + 1"), ("n*(n-1)//2", "n*(n-1)//2")])
def test_names_are_what_inlined_programs_say(size: str, wanted: str) -> None:
    @az.program
    def inner(x: az.Array[az.f64, "n"], y: az.Array[az.f64, size]) -> az.f64:  # type: ignore[valid-type]
        return az.sum(x) * az.sum(y)

    vectors = az.Array[az.f64, "n"], az.Array[az.f64, "m"]
    assert types(az.program(lambda x, y: inner(x, y)), *vectors) == ["f64[n]", f"f64[{wanted}]"]


@pytest.mark.parametrize("order", list(permutations(["n+1", "n", "m n"])))
def test_names_are_bound_by_whichever_argument_has_them(order: Sequence[str]) -> None:
    """Also where the program around has other sizes by these names, and derivatives inline the program."""
    x, y, z = (az.Array[az.f64, size] for size in order)  # type: ignore[valid-type]

    @az.program
    def inner(x: x, y: y, z: z) -> az.f64:  # type: ignore[valid-type]
        return az.sum(x * x) + 3 * az.sum(y * y) + 5 * az.sum(z * z)

    arrays = [{"n+1": np.arange(4.0), "n": np.arange(3.0), "m n": np.ones((2, 3))}[size] for size in order]
    total = sum(weight * np.sum(array**2) for weight, array in zip((1, 3, 5), arrays, strict=True))
    types = {"n+1": az.Array[az.f64, "n"], "n": az.Array[az.f64, "m"], "m n": az.Array[az.f64, "k l"]}
    around = az.program(lambda x, y, z: inner(x, y, z)).at(*[types[size] for size in order])
    assert az.evaluate(around)(*arrays) == total
    assert az.evaluate(az.jvp(inner))(*arrays, *arrays) == (total, 2 * total)
    gradients = az.evaluate(az.grad(inner, (0, 1, 2)))(*arrays)
    for factor, array, gradient in zip((2, 6, 10), arrays, gradients, strict=True):
        np.testing.assert_array_equal(gradient, factor * array)
    arrays[order.index("n+1")] = np.arange(5.0)
    with pytest.raises(ValueError, match=r"inner: axis 0 of argument '.' is n \+ 1 = 4, got 5"):
        az.evaluate(around)(*arrays)


def test_derivatives_compile_where_a_later_argument_has_a_name() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n+1"], y: az.Array[az.f64, "n m"]) -> az.Array[az.f64, "k"]:
        return az.ones(3) * x

    compiled = az.compile(az.jvp(f))
    for found in compiled(np.arange(3.0), np.ones((2, 0)), np.arange(3.0), np.ones((2, 0))):
        np.testing.assert_array_equal(found, np.arange(3.0))


def test_names_that_no_argument_binds_are_not_those_of_the_program_around() -> None:
    @az.program
    def inner(x: az.Array[az.f64, "n+1"]) -> az.f64:
        return az.sum(x)

    around = az.program(lambda x, y: inner(y))
    with pytest.raises(TypeError, match=r"inner: the size n of argument 'x', .* cannot be found from the arguments"):
        around.at(az.Array[az.f64, "n"], az.Array[az.f64, "m"]).term  # noqa: B018


def test_solutions_are_sizes_where_they_can_be() -> None:
    """Of n = m - 1 comes m = n + 1, which is never below zero; what no integer solves, or no name, is left."""

    def solved(left: str, right: str) -> dict[str, str] | None:
        unifier = Unifier([ArrayType(az.f64, tuple(map(Dim.parse, "mnk")))])
        found = unifier.add(Equality(Dim.parse(left), Dim.parse(right), Failure("size", "", NOWHERE), ()))
        return {name: str(dim) for name, dim in unifier.meaning.items()} if found else None

    assert solved("n", "m - 1") == {"m": "n + 1"} and solved("n", "m + 1") == {"n": "m + 1"}
    assert solved("m", "n") == solved("n", "m") == {"n": "m"}
    assert solved("2*m", "4*n") == {"m": "2*n"} and solved("2*m", "3*n") is None
    assert solved("m*n", "m*k") is None and solved("n*n", "n") is None and solved("n", "n") is None
    assert solved("k", "max(n - 1, 0)") == {"k": "max(0, n - 1)"} and solved("n", "max(n - 1, 0)") is None
    assert solved("n", "-1") is None and solved("n", "0") == {"n": "0"}


def test_requirements_of_loops_and_branches_are_not_believed() -> None:
    def chosen(x: Any, y: Any, take: Any) -> Any:
        return az.cond(take, lambda: az.sum(x + y), lambda: az.sum(x))

    def repeated(x: Any, y: Any, times: Any) -> Any:
        return az.fori_loop(0, times, lambda i, total: total + az.sum(x + y), 0.0)

    def mapped(x: Any, y: Any, rows: Any) -> Any:
        return az.sum(az.map(lambda row: row * az.sum(x + y), rows))

    x, y = np.ones(3), np.ones(4)
    for f, never, once in ((chosen, False, True), (repeated, 0, 1), (mapped, np.ones(0), np.ones(1))):
        for run in (az.evaluate(f), az.compile(f), az.evaluate(az.grad(f))):
            run(x, y, never)
            with pytest.raises(ValueError, match=r"add: the sizes x_0 = 3 and y_0 = 4 .*test_unification.py"):
                run(x, y, once)
            run(x, x, once)


def test_names_that_are_equal_in_calls_are_assumed_to_be() -> None:
    """Who reads gain[j] for all j < d has not said that gain has d elements: code is as if it was said."""

    def scaled(x: Any, gain: Any) -> Any:
        return az.map(lambda row: az.generate(row.shape[0], lambda j: row[j] * gain[j] / az.sum(row)), x)

    @az.program
    def unstated(x: az.Array[az.f64, "n d"], gain: az.Array[az.f64, "m"]) -> Any:
        return scaled(x, gain)

    @az.program
    def stated(x: az.Array[az.f64, "n d"], gain: az.Array[az.f64, "d"]) -> Any:
        return scaled(x, gain)

    x = numbers(4, 20)
    fast, wanted = az.compile(unstated), az.evaluate(stated)(x, numbers(20))
    assert np.array_equal(fast(x, numbers(20)), wanted)
    assert [each.condition for each in fast.specialisations] == ["d = m"]
    text = az.compile(stated).loops
    assert fast.loops.partition("->")[2] == text.partition("->")[2]
    with pytest.raises(IndexError, match=r"index 19 is out of range for axis 0 of gain, .*test_unification.py"):
        fast(x, numbers(19))
    assert np.array_equal(fast(x, np.append(numbers(20), 1.0)), wanted)
    assert np.array_equal(unstated(x, numbers(20)), wanted)
    assert np.array_equal(fast(x, numbers(20)), wanted)


def test_sizes_of_the_run_are_not_believed() -> None:
    def f(x: Any, y: Any) -> Any:
        return az.filter(lambda v: v > 0, x) + y

    program = az.compile(f)
    assert program(np.array([1.0, -1.0, 2.0]), np.ones(2)).tolist() == [2, 3]
    for run in (program, az.evaluate(f)):
        with pytest.raises(ValueError, match="differ"):
            run(np.array([1.0, -1.0, 2.0]), np.ones(3))


# Calls


FAILING: list[tuple[str, Callable[[], Any], Any]] = [
    ("program", lambda: az.program(product), ()),
    ("evaluate", lambda: az.evaluate(product), ()),
    ("compile", lambda: az.compile(product), ()),
    ("without checks", lambda: az.compile(product, checks=False), ()),
    ("bind", lambda: az.compile(product).bind, ()),
    ("peak_bytes", lambda: az.compile(product).peak_bytes, ()),
    ("trace", lambda: az.trace(product), ()),
    ("cost", lambda: az.cost(az.program(product)), ()),
    ("grad", lambda: az.grad(loss), ()),
    ("grad by trace", lambda: az.grad(loss, via="trace"), ()),
    ("jvp", lambda: az.evaluate(az.jvp(product)), (np.ones((2, 3)), np.ones((4, 5)))),
    ("vjp", lambda: az.evaluate(az.vjp(product)), (np.ones((2, 5)),)),
    ("jacobian", lambda: az.evaluate(az.jacobian(product)), ()),
    ("sparse_jacobian", lambda: az.sparse_jacobian(product), ()),
    ("of the types", lambda: az.program(product).at(Left, Right), ()),
]


@pytest.mark.parametrize("make, more", [case[1:] for case in FAILING], ids=[case[0] for case in FAILING])
def test_every_call_compares_sizes(make: Callable[[], Any], more: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^matmul: the sizes (x_1|b) = 3 and (y_0|c) = 4 .*, at .*test_unification.py:\d+$"
    ):
        make()(np.ones((2, 3)), np.ones((4, 5)), *more)


@pytest.mark.usefixtures("opencl")
def test_calls_of_devices_compare_sizes() -> None:
    f = az.compile(loss, backend="opencl")
    x, y = numbers(2, 3), numbers(3, 5)
    np.testing.assert_allclose(f(x, y), np.sum(np.tanh(x @ y)))
    with pytest.raises(ValueError, match=r"the sizes x_1 = 3 and y_0 = 4 "):
        f(x, numbers(4, 5))


def test_nothing_runs_before_sizes_are_compared() -> None:
    shown: list[str] = []

    def f(x: Any, y: Any) -> Any:
        return az.inspect(az.sum(x), "seen") + az.sum(x[0] + y)

    run = az.evaluate(f, show=lambda name, values: shown.append(name))
    with pytest.raises(ValueError, match="the sizes"):
        run(np.ones((0, 3)), np.ones(4))  # which is an index error otherwise
    assert not shown


def test_a_contradiction_is_an_error_of_the_run() -> None:
    """With sizes that are equal this cannot be built; the requirement that fails is told all the same."""

    def f(x: Any, y: Any) -> Any:
        return az.sum(x + y) + az.sum(az.concatenate([x, az.ones(1)]) + y)

    for run in (az.evaluate(f), az.compile(f), az.evaluate(az.grad(f))):
        with pytest.raises(ValueError, match="the sizes x_0 = 3 and y_0 = 4 "):
            run(np.ones(3), np.ones(4))
        with pytest.raises(ValueError, match=r"the sizes x_0 \+ 1 = 4 and y_0 = 3 "):
            run(np.ones(3), np.ones(3))


def test_declared_results_are_checked() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "m"]:
        return x + y

    @az.program
    def wrong(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "m+1"]:
        return x + y

    assert types(f) == ["f64[n]", "f64[n]"] and f(np.ones(2), np.ones(2)).tolist() == [2, 2]
    with pytest.raises(ValueError, match=r"wrong returns .* but axis 0 has size 2, not 3"):
        wrong(np.ones(2), np.ones(2))


def test_functions_with_rules_of_their_own() -> None:
    """What they require they require always."""

    @az.custom_vjp
    def inner(x: Any, y: Any) -> Any:
        return az.sum(x * y)

    @inner.defvjp
    def rule(primals: Any, cotangent: Any) -> Any:
        x, y = primals
        return 2 * cotangent * y, cotangent * x

    def f(x: Any, y: Any) -> Any:
        return inner(x, y)

    vectors = az.Array[az.f64, "n"], az.Array[az.f64, "m"]
    assert types(az.program(f), *vectors) == ["f64[n]", "f64[n]"]
    assert az.evaluate(az.grad(f))(np.ones(2), np.array([1.0, 2.0])).tolist() == [2, 4]


# What it costs


def test_derivatives_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[int] = []
    of = differentiating.Differentiated.of

    def counted(*args: Any) -> Any:
        derived.append(1)
        return of(*args)

    monkeypatch.setattr(differentiating.Differentiated, "of", staticmethod(counted))
    az.grad(loss).at(Left, Right).term  # noqa: B018
    assert len(derived) == 1


CALL = """
import numpy as np, adze as az
from adze.backends import multiversioning
def loss(x, y): return az.sum(az.tanh(x @ y))
compiled = []
loops_of = multiversioning.loops_of
multiversioning.loops_of = lambda *args: compiled.append(1) or loops_of(*args)
run = az.grad(loss)
print(run(np.ones((2, 3)), np.zeros((3, 2))).tolist(), len(compiled))
try:
    run(np.ones((2, 3)), np.ones((4, 2)))
except ValueError as error:
    print(error)
"""


@pytest.mark.rest
def test_code_from_the_disk_compares_sizes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    (tmp_path / "call.py").write_text(CALL)
    said = []
    for compiled in (1, 0):
        done = subprocess.run([sys.executable, str(tmp_path / "call.py")], capture_output=True, text=True, check=True)
        first, error = done.stdout.splitlines()
        assert first == f"[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]] {compiled}"
        said.append(error)
    assert said[0] == said[1] and "the sizes x_1 = 3 and y_0 = 4 " in said[0] and "call.py:4" in said[0]


def test_instances_keep_the_types_they_were_asked_for() -> None:
    instance = az.program(product).at(Left, Right)
    assert isinstance(instance, Instance) and [str(type) for type in instance.types] == ["f64[a, b]", "f64[c, d]"]
    assert az.evaluate(instance)(np.ones((2, 3)), np.ones((3, 2))).tolist() == [[3, 3], [3, 3]]
