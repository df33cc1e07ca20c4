"""The loop IR run one scalar at a time with NumPy's arithmetic, and short names to write it with."""

from __future__ import annotations

from typing import Any

import numpy as np

import adze.core.primitives  # noqa: F401  (enters the rows of the table)
from adze.backends.loops import (
    Allocate,
    Apply,
    Assign,
    Block,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    MultiplyAdd,
    Require,
    Select,
    Store,
    Variable,
    While,
)
from adze.core.primitive import lookup
from adze.core.types import Scalar, f64, i64


def var(name: str, type: Scalar = i64) -> Variable:
    return Variable(name, type)


def const(value: int | float | bool, type: Scalar = i64) -> Constant:
    return Constant(value, type)


def apply(name: str, *arguments: Expression) -> Apply:
    """A primitive of the table applied, with the type it gives."""
    primitive = lookup(name)
    return Apply(primitive, arguments, primitive.result_type([argument.type for argument in arguments]))


def at(buffer: Buffer, *indices: str | int | Expression) -> Load:
    return Load(buffer, tuple(map(index, indices)))


def put(buffer: Buffer, *rest: str | int | Expression) -> Store:
    """A store: the indices, then the value."""
    *indices, value = rest
    assert not isinstance(value, str | int)
    return Store(buffer, tuple(map(index, indices)), value)


def index(each: str | int | Expression) -> Expression:
    return var(each) if isinstance(each, str) else const(each) if isinstance(each, int) else each


def fma(a: Expression, b: Expression, c: Expression) -> MultiplyAdd:
    return MultiplyAdd(a, b, c, a.type)


def loop(variable: str, extent: str | int | Expression, *body: Any, kind: str = "sequential", **more: Any) -> For:
    return For(variable, index(extent), kind, body, **more)  # type: ignore[arg-type]


def run(function: Function, arrays: list[np.ndarray], sizes: list[int]) -> list[tuple[int, list[int]]]:
    """Run a function in order, writing its results; gives the failures, with what they recorded."""
    names: dict[str, Any] = {name: np.int64(size) for name, size in zip(function.sizes, sizes)}
    memory = {buffer.name: array for buffer, array in zip((*function.arguments, *function.results), arrays)}
    failures: list[tuple[int, list[int]]] = []

    def inside(buffer: Buffer, place: tuple[Any, ...], guarded: tuple[int, ...]) -> bool:
        return all(0 <= place[axis] < memory[buffer.name].shape[axis] for axis in guarded)

    def value(expression: Expression) -> Any:
        match expression:
            case Constant(number, type):
                return type.dtype.type(number)
            case Variable(name):
                return names[name]
            case Apply(primitive, arguments, type):
                return type.dtype.type(primitive.numpy(*map(value, arguments)))
            case Select(test, then, orelse):
                return value(then) if value(test) else value(orelse)
            case MultiplyAdd(a, b, c, type):
                exact = np.longdouble(value(a)) * np.longdouble(value(b)) + np.longdouble(value(c))
                return type.dtype.type(exact)
            case Load(buffer, indices, guarded):
                place = tuple(map(value, indices))
                return memory[buffer.name][place] if inside(buffer, place, guarded) else buffer.scalar.dtype.type(0)

    def block(statements: Block) -> None:
        for statement in statements:
            match statement:
                case Let(name, expression) | Declare(name, expression) | Assign(name, expression):
                    names[name] = value(expression)
                case Store(buffer, indices, expression, guarded):
                    place = tuple(map(value, indices))
                    if inside(buffer, place, guarded):
                        memory[buffer.name][place] = value(expression)
                case Allocate(buffer):
                    shape = tuple(int(value(extent)) for extent in buffer.extents)
                    memory[buffer.name] = np.zeros(shape, buffer.scalar.dtype)
                case For(variable, extent):
                    for number in range(int(value(extent))):
                        names[variable] = np.int64(number)
                        block(statement.body)
                case If(test, then, orelse):
                    block(then if value(test) else orelse)
                case While(head, test, body):
                    block(head)
                    while value(test):
                        block(body)
                        block(head)
                case Require(test, site, values):
                    if not value(test):
                        failures.append((site, [int(value(each)) for each in values]))

    with np.errstate(all="ignore"):
        block(function.body)
    return failures


__all__ = ["apply", "at", "const", "f64", "fma", "i64", "loop", "put", "run", "var"]
