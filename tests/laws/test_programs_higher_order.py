"""The programs of the higher-order fragment, in every interpretation that has a meaning for them."""

import inspect
from itertools import product
from typing import Any

import numpy as np
import pytest
from agreement import exact
from programs.case import Case
from programs.functions import HIGHER_ORDER
from programs.models import FAILING, MODELS, Failing
from programs.recursion import RECURSION
from sampling import some

import adze as az
from adze.core import trees
from adze.core.constructs import CONSTRUCTS
from adze.core.language import Unsupported
from adze.core.procedures import procedures_of
from adze.core.program import Instance
from adze.core.terms import Block, Origin
from adze.interpreters.evaluate import evaluate_block
from adze.interpreters.first_order import first_order
from adze.interpreters.first_order.cells import in_cells
from adze.interpreters.first_order.constants import with_constants
from adze.interpreters.first_order.inlining import inlined
from adze.interpreters.first_order.unused import without_unused

MORE = [*RECURSION, *MODELS]


def more(every: int) -> list[Any]:
    """Those of the further programs, in processes without checks of types; all but every so many are marked slow."""
    marks = [[] if number % every == 0 else [pytest.mark.slow] for number in range(len(MORE))]
    return [pytest.param(case, marks=[pytest.mark.unguarded, *own]) for case, own in zip(MORE, marks, strict=True)]


every_case = pytest.mark.parametrize("case", [*HIGHER_ORDER, *more(1)], ids=lambda case: case.name)
cases = pytest.mark.parametrize("case", [*HIGHER_ORDER, *more(4)], ids=lambda case: case.name)
FRAGMENT = {name for name, row in CONSTRUCTS.items() if row.higher_order}


def instance(case: Case, arguments: Any) -> Instance:
    return case.program.instance_for(case.program.bind(arguments, {}))


def constructs(block: Block) -> set[str]:
    inside = [constructs(inner) for operation in block.bindings for inner in operation.blocks]
    return {operation.op for operation in block.bindings}.union(*inside)


def test_there_are_enough_programs() -> None:
    found = set().union(*(constructs(instance(case, case.arguments[0]).term) for case in HIGHER_ORDER))
    assert (
        len(HIGHER_ORDER) >= 25
        and len(MORE) >= 50
        and found >= {*FRAGMENT, "par", "cond", "loop", "while", "generate", "reduce"}
    )


@every_case
def test_programs(case: Case) -> None:
    for arguments in case.arguments:
        exact(az.evaluate(case.program)(*arguments), case.numpy(*arguments))


@cases
def test_programs_in_python(case: Case) -> None:
    for arguments in case.arguments:
        exact(az.evaluate(case.program, vectorize=False)(*arguments), case.numpy(*arguments))


@pytest.mark.parametrize("case", FAILING, ids=lambda case: case.program.name)
@pytest.mark.parametrize("run", [az.evaluate, az.trace, az.compile])
def test_programs_that_fail_inside_of_a_recursion(case: Failing, run: Any) -> None:
    """The error is of its class, and names the line that fails."""
    source, first = inspect.getsourcelines(case.program.function)
    line = first + next(k for k, text in enumerate(source) if text.endswith("# fails\n"))
    with pytest.raises(case.error, match=rf"{case.says}.*programs/models\.py:{line}"):
        run(case.program)(*case.arguments)


@cases
def test_simplified_programs(case: Case) -> None:
    """They are well typed before and after, and mean the same; simplifying again changes nothing."""
    for arguments in case.arguments:
        made = instance(case, arguments)
        az.check(made.term)
        simplified = az.simplify(made.term)
        az.check(simplified)
        assert az.simplify(simplified) == simplified
        values, sizes = made.signature.convert(case.program.leaves(arguments))
        exact(trees.unflatten(made.outputs, evaluate_block(simplified, values, sizes)), case.numpy(*arguments))


@cases
def test_reify_is_the_identity(case: Case) -> None:
    term = instance(case, case.arguments[0]).term
    assert term.interpret(az.Reify()) == term


def origins(block: Block) -> list[Origin]:
    inside = [origins(inner) for operation in block.bindings for inner in operation.blocks]
    return [operation.origin for operation in block.bindings] + [origin for found in inside for origin in found]


@cases
def test_every_operation_knows_its_line(case: Case) -> None:
    found = origins(instance(case, case.arguments[0]).term)
    assert all("/programs/" in origin.file and origin.line for origin in found)


@pytest.mark.unguarded
@pytest.mark.parametrize("style", ["surface", *some(["loops", "procedures", "de-bruijn"], 0)])
@pytest.mark.parametrize("simplified", [False, True])
@cases
def test_printing(case: Case, simplified: bool, style: str) -> None:
    made = instance(case, case.arguments[0])
    text = az.pretty(made, simplified=simplified, style=style)
    assert text == az.pretty(made, simplified=simplified, style=style)
    assert style == "de-bruijn" or (text.startswith(f"def {case.name}(") and "return " in text)


@pytest.mark.unguarded
@cases
def test_costs(case: Case) -> None:
    """By running, and the same each time; what works at all takes time."""
    for arguments in case.arguments:
        counted = az.cost(case.program)(*arguments)
        assert all(number >= 0 for number in counted.numbers)
        assert counted.span > 0 or not counted.operations + counted.reads + counted.writes
        assert counted == az.cost(case.program)(*arguments)


@pytest.mark.unguarded
def test_the_span_of_a_fork() -> None:
    """Halving an array forks to the depth of its logarithm; going along it would not."""
    (case,) = [case for case in HIGHER_ORDER if case.name == "forked_array_sum"]
    small, large = (az.cost(case.program)(np.ones(n)) for n in (64, 1024))
    assert 14 * small.operations < large.operations < 18 * small.operations and large.span < 2 * small.span


@cases
def test_first_order_form(case: Case) -> None:
    """It is well typed, holds no functions and no tuples, and means the same; so does what procedures become."""
    for arguments, becomes in product(case.arguments, [lambda form: form, inlined, without_unused, _with_less]):
        made = instance(case, arguments)
        form = becomes(first_order(made.term).block)
        blocks = [form, *[procedure.block for procedure in procedures_of(form)]]
        for block in blocks:
            az.check(block)
            assert constructs(block).isdisjoint({"function", "fix", "apply", "pack", "project"})
        if form.binders == made.term.binders and form.types == made.term.types:
            values, sizes = made.signature.convert(case.program.leaves(arguments))
            exact(trees.unflatten(made.outputs, evaluate_block(form, values, sizes)), case.numpy(*arguments))


def _with_less(form: Block) -> Block:
    return without_unused(with_constants(form))


@every_case
def test_compiled(case: Case) -> None:
    compiled = az.compile(case.program)
    for arguments in case.arguments:
        exact(compiled(*arguments), case.numpy(*arguments))


@pytest.mark.unguarded
@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("case", HIGHER_ORDER, ids=lambda case: case.name)
def test_devices_run_what_does_not_recur(case: Case) -> None:
    """Others are refused, with the line and what there is instead."""
    form = in_cells(first_order(instance(case, case.arguments[0]).term).block)
    recurs = bool(procedures_of(form)) or "cell" in constructs(form) or "open" in constructs(form)
    compiled = az.compile(case.program, backend="opencl")
    if recurs:
        with pytest.raises(Unsupported, match=r"on a device|a device has no stack.* at .*programs/functions\.py:\d+"):
            compiled(*case.arguments[0])
    else:
        for arguments in case.arguments:
            exact(compiled(*arguments), case.numpy(*arguments))
