"""Rules of the package's own functions, which are built when a derivative asks for them: the same as built before."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import adze as az
from adze.core.digest import digest
from adze.core.program import Program
from adze.core.terms import Block, LaterRule, Operation

Square = az.Array[az.f64, "2 2"]
MATRIX = np.array([[4.0, 1.0], [1.0, 5.0]])

FUNCTIONS: dict[str, Any] = {
    "cholesky": az.linalg.cholesky,
    "eigenvalues": lambda a: az.linalg.eigh(a).eigenvalues,
    "inverse": az.linalg.inv,
    "triangle": lambda a: az.linalg.solve_triangular(a, a, lower=True),
}


def customs(block: Block) -> Iterator[Operation]:
    """The custom operations of a term, at all depths."""
    for operation in block.bindings:
        if operation.op == "custom":
            yield operation
        for inner in operation.blocks:
            yield from customs(inner)


def with_rules(block: Block) -> Block:
    """The term with a block for each rule."""
    made = []
    for x in [each.with_rules for each in block.bindings]:
        made.append(Operation(x.op, x.static, x.args, tuple(map(with_rules, x.blocks)), x.types, x.origin))
    return Block(block.binders, tuple(made), block.results, block.names)


def program(name: str) -> Program[Any, Any]:
    def total(a: Square) -> az.f64:
        return az.sum(FUNCTIONS[name](a) ** 2)

    return az.program(total)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rules_that_are_built_later_are_those_built_before(name: str) -> None:
    later, before = program(name), program(name)
    term = later.at().term
    found = list(customs(term))
    assert found
    assert all(isinstance(rule, LaterRule) for each in found for rule in each.static)
    assert all(len(each.blocks) == 1 for each in found)
    before.at()._term = with_rules(term)
    assert_array_equal(*[az.evaluate(az.grad(f))(MATRIX) for f in (later, before)])
    first, second = [az.evaluate(az.jvp(f))(MATRIX, MATRIX) for f in (later, before)]
    assert first == second


def test_pickled_terms_have_the_blocks_of_their_rules() -> None:
    term = program("triangle").at().term
    read = pickle.loads(pickle.dumps(term))
    assert all(each.static == ("vjp",) and len(each.blocks) == 2 for each in customs(read) if len(each.static))
    assert read == with_rules(term)


def test_digests_tell_rules_with_other_options() -> None:
    """The value of both is their second argument."""

    def rule(lower: bool) -> Any:
        f = az.program(lambda a: az.linalg.solve_triangular(a, a, lower=lower)).at(Square)
        (found,) = {each.static for each in customs(f.term)}
        return found

    assert digest(rule(True)).value != digest(rule(False)).value
    assert digest(rule(True)).value == digest(rule(True)).value
