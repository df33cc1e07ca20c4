"""The laws of tracing, on every program: a trace means what the program means, and is its own trace.

With ``t = az.trace(f)(*x)``: evaluating ``t.program`` on ``t.arguments`` gives ``f(*x)``, to the bit (A1), and tracing
it gives ``t.block`` again (A2). That is to be so for every program and every choice of the types that are kept which
admits the result. And a trace is a program like any other: it is printed, compiled and differentiated.

(van Hus: Maintaining parallelism in reverse-mode automatic differentiation, section 3.1.)
"""

from typing import Any

import numpy as np
import pytest
from agreement import magnitude, rounded
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import instance
from programs import CASES, Case, sampled
from programs.functions import HIGHER_ORDER
from programs.models import MODELS
from programs.recursion import RECURSION
from random_programs import argument_lists, made, program_texts
from trace_programs import MICRO, MODES, RECURSIVE, admits, bits, is_scalar, is_straight, kinds, leaves, same_bits

import adze as az
from adze.core import trees

pytestmark = pytest.mark.unguarded

COMPILED = {
    "row_norms", "where_sqrt", "cond_in_map", "power_loop", "matrix_power_loop", "histograms", "sorting", "prefix_sums",
    "loop_in_map", "scattered_twice",
}  # fmt: skip


def kept(program: az.Program, arguments: Any) -> list[Any]:
    """The choices of types that admit the result."""
    types = instance(program, arguments).term.types
    return [keep for keep in MODES if admits(keep, types)]


def laws(program: az.Program, arguments: Any, keep: Any) -> Any:
    """Both, and that the trace is well typed and straight; gives the trace.

    Where arrays are dropped, the additions of a sum go from left to right, and evaluate's do not: what evaluate gives
    is then compared to rounding.
    """
    wanted = az.evaluate(program)(*arguments)
    trace = az.trace(program, keep=keep)(*arguments)
    assert is_straight(trace.block) and ("arrays" in kinds(keep) or is_scalar(trace.block))
    az.check(trace.block)
    if "arrays" in kinds(keep) or bits(trace.result) == bits(wanted):
        same_bits(trace.result, wanted)
    else:
        made = instance(program, arguments)
        rounded(trace.result, wanted, magnitude(made.term, *made.signature.convert(program.leaves(arguments))))
    same_bits(az.evaluate(trace.program)(*trace.arguments), trace.result)
    again = az.trace(trace.program, keep=keep)(*trace.arguments)
    assert again.block == trace.block
    same_bits(again.result, trace.result)
    same_bits(again.values, trace.values)
    return trace


def holds(program: az.Program, arguments: Any) -> None:
    for keep in kept(program, arguments):
        laws(program, arguments, keep)


def printed(trace: Any, name: str) -> None:
    assert str(trace).startswith(f"trace of {name} at") and repr(trace).startswith(f"<trace of {name}: ")
    text = az.pretty(trace.program)
    assert text.startswith(f"def {name}(") and "return " in text and "while " not in text, text
    assert az.pretty(trace.program, style="de-bruijn")


cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@cases
def test_the_laws(case: Case) -> None:
    """For one input, and arrays kept. The trace can be printed, too."""
    printed(laws(case.program, case.arguments[0], "arrays"), case.name)


@pytest.mark.slow
@cases
def test_the_laws_for_each_input_and_choice(case: Case) -> None:
    for arguments in case.arguments:
        holds(case.program, arguments)


SCALAR = [case for case in CASES if "scalars" in kept(case.program, case.arguments[0])]


@pytest.mark.parametrize("case", SCALAR, ids=lambda case: case.name)
def test_the_laws_without_arrays(case: Case) -> None:
    laws(case.program, case.arguments[-1], "scalars")


@pytest.mark.parametrize("case", HIGHER_ORDER, ids=lambda case: case.name)
def test_the_laws_of_higher_order_programs(case: Case) -> None:
    for arguments in case.arguments:
        holds(case.program, arguments)


@pytest.mark.unguarded
@sampled([*RECURSION, *MODELS])
def test_the_laws_of_more_higher_order_programs(case: Case) -> None:
    for arguments in case.arguments:
        holds(case.program, arguments)


@pytest.mark.parametrize("case", [*MICRO, *RECURSIVE], ids=lambda case: case.name)
def test_the_laws_of_small_and_recursive_programs(case: Any) -> None:
    holds(case.program, case.arguments)
    printed(az.trace(case.program)(*case.arguments), case.name)


# Random programs


def hold(text: str, arguments: Any) -> None:
    """The laws, or the same error."""
    program = made(text)
    try:
        with np.errstate(all="ignore"):
            az.evaluate(program)(*arguments)
    except (IndexError, ValueError) as failure:
        with pytest.raises(type(failure)) as raised:
            az.trace(program)(*arguments)
        assert str(raised.value) == str(failure)
    else:
        holds(program, arguments)


@given(program_texts(depth=3), argument_lists())
def test_the_laws_of_random_programs(text: str, arguments: Any) -> None:
    hold(text, arguments)


@settings(max_examples=10)
@given(program_texts(polynomial=True, depth=3), st.one_of(argument_lists(special=True), argument_lists(empty=True)))
def test_the_laws_at_special_numbers_and_empty_arrays(text: str, arguments: Any) -> None:
    hold(text, arguments)


@pytest.mark.slow
@settings(max_examples=100)
@given(program_texts(depth=5), argument_lists())
def test_the_laws_of_larger_random_programs(text: str, arguments: Any) -> None:
    hold(text, arguments)


@pytest.mark.slow
@settings(max_examples=100)
@given(program_texts(depth=3), argument_lists(special=True))
def test_the_laws_of_random_programs_at_special_numbers(text: str, arguments: Any) -> None:
    hold(text, arguments)


# A trace is a program


def test_traces_are_simplified_to_traces() -> None:
    for case in MICRO:
        trace = az.trace(case.program)(*case.arguments)
        simplified = az.simplify(trace.block)
        az.check(simplified)
        assert is_straight(simplified) and simplified.count() <= trace.block.count()


def compiled(case: Case) -> None:
    for arguments in case.arguments:
        trace = az.trace(case.program)(*arguments)
        got, wanted = az.compile(trace.program, threads=1)(*trace.arguments), trace.result
        largest = max([1.0, *[float(np.max(np.abs(x), initial=0)) for step in trace.values for x in floating(step)]])
        rounded(got, wanted, largest if np.isfinite(largest) else None)


def floating(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in leaves(tree) if np.asarray(leaf).dtype.kind == "f"]


@pytest.mark.parametrize("case", [c for c in CASES if c.name in COMPILED], ids=lambda case: case.name)
def test_traces_are_compiled(case: Case) -> None:
    compiled(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c.name not in COMPILED], ids=lambda case: case.name)
def test_more_traces_are_compiled(case: Case) -> None:
    compiled(case)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in COMPILED], ids=lambda case: case.name)
def test_traces_are_differentiated(case: Case) -> None:
    differentiated(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c.name not in COMPILED], ids=lambda case: case.name)
def test_more_traces_are_differentiated(case: Case) -> None:
    differentiated(case)


def differentiated(case: Case) -> None:
    """The derivative of the trace is that of the program, at the input that was traced."""
    for arguments in case.arguments:
        trace = az.trace(case.program)(*arguments)
        if not floating(trace.result) or not floating(arguments):
            continue
        cotangent = trees.tree_map(lambda leaf: np.ones_like(leaf)[()] if floating(leaf) else None, trace.result)
        _, *wanted = az.evaluate(az.vjp(case.program))(*arguments, cotangent)
        _, *got = az.evaluate(az.vjp(trace.program))(*trace.arguments, cotangent)
        for x, y in zip(leaves(got), leaves(wanted), strict=True):
            assert np.asarray(x).dtype == np.asarray(y).dtype
            size = float(np.max(np.abs(y), where=np.isfinite(y), initial=1.0))
            np.testing.assert_allclose(x, y, rtol=1e-11, atol=size * np.finfo(np.asarray(y).dtype).eps * 64)


def test_the_gradient_of_a_trace_is_that_of_the_program() -> None:
    for case in MICRO:
        trace = az.trace(case.program)(*case.arguments)
        moving = tuple(range(len(case.arguments)))
        wanted = az.grad(case.program, argnums=moving, via="trace")(*case.arguments)
        got = az.evaluate(az.grad(trace.program, argnums=moving))(*trace.arguments)
        for x, y in zip(got, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
