"""The type rule of each construct, used by whoever builds terms and by ``check``.

A rule gets the static part, the types of the arguments and the result types of the blocks, and gives the types of
the results. It raises TypeError, in terms of the construct, when they do not fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .types import Accumulator, ArrayType, Scalar, Type, array_of, bool_, dims, element, i64, rank


def result_types(
    op: str, static: tuple[Any, ...], args: Sequence[Type], blocks: Sequence[Sequence[Type]]
) -> tuple[Type, ...]:
    """The types of an operation's results (see the module)."""
    match op:
        case "primitive":
            return (static[0].result_type([_scalar(op, type) for type in args]),)
        case "size":
            _expect(isinstance(args[0], ArrayType) and 0 <= static[0] < rank(args[0]), "size of an axis", args)
            return (i64,)
        case "index":
            _expect(isinstance(args[0], ArrayType) and len(args) - 1 == rank(args[0]), "one index an axis", args)
            _integers(op, args[1:])
            return (element(args[0]),)
        case "cond":
            _expect(args[0] == bool_, "a bool as test", args)
            _expect(tuple(blocks[0]) == tuple(blocks[1]), "branches of one type", [*blocks[0], *blocks[1]])
            return tuple(blocks[0])
        case "generate":
            _integers(op, args)
            return tuple(_stacked(static[0], type) for type in blocks[0])
        case "reduce":
            _integers(op, args[:1])
            neutrals = tuple(args[1:])
            _expect(tuple(blocks[0]) == neutrals, "elements of the neutral's type", [*blocks[0], *neutrals])
            _expect(tuple(blocks[1]) == neutrals, "an operator that gives an element", [*blocks[1], *neutrals])
            return neutrals
        case "loop":
            _integers(op, args[:1])
            state = tuple(args[1:])
            _expect(tuple(blocks[0][: len(state)]) == state, "a body that keeps the state's type", [*blocks[0], *state])
            return state + tuple(_stacked(static[0], type) for type in blocks[0][len(state) :])
        case "accumulate":
            return (*args, *blocks[0])
        case "add_to":
            target = args[0]
            _expect(isinstance(target, Accumulator), "an accumulator", args)
            _expect(args[1] == element(target), "a value of the accumulator's scalar type", args)
            _expect(len(args) - 2 == rank(target), "one index an axis", args)
            _integers(op, args[2:])
            return ()
        case "require":
            _expect(args[0] == bool_, "a bool as test", args)
            _integers(op, args[1:])
            return ()
    raise TypeError(f"no construct is called {op!r}")


def binder_types(op: str, args: Sequence[Type], blocks: int) -> list[tuple[Type, ...]]:
    """The types of the parameters of an operation's blocks."""
    match op:
        case "cond":
            return [(), ()]
        case "generate":
            return [(i64,)]
        case "reduce":
            return [(i64,), (*args[1:], *args[1:])]
        case "loop":
            return [(i64, *args[1:])]
        case "accumulate":
            return [tuple(Accumulator(_plain(type)) for type in args)]
    return [()] * blocks


def _stacked(dim: Any, type: Type) -> Type:
    return array_of(element(type), (dim, *dims(_plain(type))))


def _plain(type: Type) -> Scalar | ArrayType:
    if isinstance(type, Accumulator):
        raise TypeError("an accumulator is not a value")
    return type


def _scalar(op: str, type: Type) -> Scalar:
    if not isinstance(type, Scalar):
        raise TypeError(f"{op} takes scalars, got {type}")
    return type


def _integers(op: str, types: Sequence[Type]) -> None:
    for type in types:
        if type != i64:
            raise TypeError(f"{op} takes i64 sizes and indices, got {type}")


def _expect(condition: bool, wanted: str, got: Sequence[Type]) -> None:
    if not condition:
        raise TypeError(f"expected {wanted}, got {', '.join(map(str, got))}")
