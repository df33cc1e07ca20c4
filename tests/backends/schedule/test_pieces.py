"""Pieces: what a pass does operation by operation is what it does with the whole, and no more often than it changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az
from adze.backends.schedule.terms.pieces import Pieces
from adze.core.program import instance_of
from adze.core.terms import Block, Literal, Operation, Variable
from adze.core.types import f64
from adze.interpreters.evaluate import evaluate_block
from adze.interpreters.simplify import simplify

Row = az.Array[az.f64, "n"]


def _ran(block: Block, *arguments: Any, **sizes: int) -> list[np.ndarray[Any, Any]]:
    """What a closed block gives."""
    return [np.asarray(each) for each in evaluate_block(block, list(arguments), sizes)]


def _halved(block: Block) -> Block:
    """A step that halves the largest argument of an operation, once, if that is above 1."""
    literals = [arg.value for each in _operations(block) for arg in each.args if isinstance(arg, Literal)]
    largest = max([value for value in literals if isinstance(value, float) and value > 1.0], default=None)
    return block if largest is None else _with(block, Literal.of(largest, f64), Literal.of(largest / 2, f64))


def _operations(block: Block) -> list[Operation]:
    return [found for each in block.bindings for found in (each, *[x for b in each.blocks for x in _operations(b)])]


def _with(block: Block, old: Literal, new: Literal) -> Block:
    def atoms(those: Any) -> Any:
        return tuple([new if each == old else each for each in those])

    def operation(x: Operation) -> Operation:
        blocks = tuple([_with(inner, old, new) for inner in x.blocks])
        return Operation(x.op, x.static, atoms(x.args), blocks, x.types, x.origin)

    return Block(block.binders, tuple(map(operation, block.bindings)), atoms(block.results), block.names)


def _scaled(x: az.Expr, by: float) -> az.Expr:
    return az.map(lambda e: az.exp(e) * by, x)


def _settled(program: Any, rounds: int = 10) -> tuple[Block, list[Block]]:
    """A program whose literals above 1 are halved until they are 1, and the pieces that were looked at."""
    seen = list[Block]()

    def step(piece: Block) -> Block:
        seen.append(piece)
        return _halved(piece)

    block = simplify(instance_of(program).term)
    return Pieces(step, lambda piece: piece).settled(block, rounds), seen


def test_pieces_that_are_alike_are_looked_at_once() -> None:
    @az.program
    def alike(x: Row, y: Row, z: Row) -> Any:
        return [_scaled(each, 8.0) for each in (x, y, z)]

    made, seen = _settled(alike)
    assert [len(piece.bindings) for piece in seen] == [1] * 4  # with 8, 4, 2 and 1
    given = [numbers(5, seed=k) for k in range(3)]
    for result, x in zip(_ran(made, *given, n=5), given, strict=True):
        np.testing.assert_allclose(result, np.exp(x), rtol=1e-15)


def test_pieces_of_different_lines_are_different() -> None:
    """A requirement in one of them names its own line."""

    @az.program
    def apart(x: Row, y: Row) -> Any:
        first = az.map(lambda e: az.exp(e) * 2.0, x)
        return first, az.map(lambda e: az.exp(e) * 2.0, y)

    _, seen = _settled(apart)
    assert len(seen) == 4


def test_each_piece_has_as_many_rounds_as_it_wants() -> None:
    @az.program
    def unlike(x: Row, y: Row) -> Any:
        return _scaled(x, 2.0) + _scaled(x + y, 16.0)

    made, seen = _settled(unlike)
    x, y = numbers(4), numbers(4, seed=1)
    np.testing.assert_allclose(_ran(made, x, y, n=4)[0], np.exp(x) + np.exp(x + y), rtol=1e-14)
    assert all(len(piece.bindings) == 1 for piece in seen)


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_no_more_rounds_than_asked_for(rounds: int) -> None:
    @az.program
    def scaled(x: Row) -> Any:
        return _scaled(x, 64.0)

    made, seen = _settled(scaled, rounds)
    assert len(seen) == rounds
    x = numbers(3)
    np.testing.assert_allclose(_ran(made, x, n=3)[0], np.exp(x) * 64 / 2**rounds, rtol=1e-15)


def test_an_array_of_one_number_is_part_of_the_pieces_that_use_it() -> None:
    @az.program
    def summed(x: Row, y: Row) -> Any:
        n = x.shape[0]
        first = az.fori_loop(0, 3, lambda _, s: s + x * 2.0, az.zeros(n))
        return first, az.fori_loop(0, 5, lambda _, s: s * y, az.zeros(n) + 2.0)

    made, seen = _settled(summed)
    loops = [piece for piece in seen if piece.bindings[-1].op == "loop"]
    assert loops and all([each.op for each in piece.bindings] == ["generate", "loop"] for piece in loops)
    assert all(len(piece.binders) == 1 for piece in loops)
    x, y = numbers(4), numbers(4, seed=1)
    for result, wanted in zip(_ran(made, x, y, n=4), (3 * x, 2 * y**5), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-15)


def test_what_takes_several_arguments_and_gives_several_results_or_a_number() -> None:
    """Pieces that become what they are given, or a literal."""

    @az.program
    def several(x: Row, y: Row) -> Any:
        n = x.shape[0]
        return az.fori_loop(0, n, lambda i, state: (state[1] + x[i] * 2.0, state[0] * y[i]), (0.0, 1.0)), _scaled(
            y, 2.0
        )

    def step(piece: Block) -> Block:
        if piece.bindings[-1].op == "loop":
            return Block(piece.binders, (), (Literal.of(3.0, f64), Literal.of(4.0, f64)), piece.names)
        return Block(piece.binders, (), (Variable(0, piece.binders[-1]),), piece.names)

    block = simplify(instance_of(several).term)
    x, y = numbers(4), numbers(4, seed=1)
    three, four, rest = _ran(Pieces(step, lambda piece: piece).settled(block, 3), x, y, n=4)
    assert (three, four) == (3.0, 4.0) and np.array_equal(rest, y)


def test_a_program_whose_run_decides_sizes_is_one_piece() -> None:
    @az.program
    def sized(x: Row, count: az.i64) -> Any:
        return _scaled(x, 4.0), az.generate(count, lambda i: az.exp(x[0]) * 4.0)

    made, seen = _settled(sized)
    assert len(seen) == 1 and len(seen[0].bindings) > 1
    x = numbers(3)
    np.testing.assert_allclose(_ran(made, x, np.int64(2), n=3)[0], np.exp(x) * 2, rtol=1e-15)


def test_the_same_block_is_given_where_nothing_changes() -> None:
    block = simplify(instance_of(az.program(lambda x: _scaled(x, 0.5)).at(Row)).term)
    assert Pieces(_halved, lambda piece: piece).settled(block, 3) is block
