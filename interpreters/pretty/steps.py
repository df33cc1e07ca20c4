"""Traces as text: one line a step, with the value that it had.

    trace of f at x1 = 5.0, x2 = 3.0
      t1 = x1 * x2  # 15.0
      t2 = x1 + t1  # 20.0
      return t2

A step is printed as ``az.pretty(f, style="loops")`` prints that operation, but it keeps its own line and its own name
even where its value is used once, or never. What a construct does for every element (its sub-trace) stands behind it,
or below it and indented; of this, numbers that are not used are left out, such as those that only a test compared.
Arrays of more than a few elements are shown by some of them.

(van Hus: Maintaining parallelism in reverse-mode automatic differentiation on functional parallel array languages,
section 3: a trace is a list of named operations.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import trees
from ...core.limits import lifted_limits
from ...core.terms import Block
from ...core.types import Scalar, Type
from .names import Names, is_name
from .printer import LINE, Printer
from .resolved import Argument, ResolvedBlock, ResolvedOperation, count_uses, resolve
from .structures import give
from .surface import recognise

SHOWN = 6  # the most elements of an array that are all shown
COLUMN = 48  # values stand in one column, unless a step is longer than this


def printed(
    name: str, term: Block, inputs: Sequence[Any], values: Sequence[tuple[Any, ...]], outputs: trees.Shape
) -> str:
    """The text of a trace (see the module): of the program with this name, whose steps had these values."""
    with lifted_limits():
        printer = Printer(set())
        block = steps(term, printer)
        for operation in block.operations:
            for inner in operation.blocks:
                _leave_out_unused(inner, set())
        recognise(block, loops=True)
        count_uses(block)
        given = [
            input_text(printer.bind(binder), binder.type, value)
            for binder, value in zip(block.binders, inputs, strict=True)
        ]
        remarks: dict[int, str] = {}
        for operation, had in zip(block.operations, values, strict=True):
            if operation.results:
                shown = [value_text(result.type, value) for result, value in zip(operation.results, had, strict=True)]
                remarks[len(printer.lines)] = ", ".join(shown)
            _step(printer, operation)
        give(printer, outputs, [printer.atom(result) for result in block.results])
        constants = [f"  {name} = {value_text(c.type, c.array)}" for c, name in printer.constants.items()]
        return "\n".join([*_header(name, given), *constants, *_with_remarks(printer.lines, remarks)])


def steps(term: Block, names: Names) -> ResolvedBlock:
    """The steps as records. Those without a name are ``t1``, ``t2``...: the values in sub-traces come after them."""
    block = resolve(term)
    for number, value in enumerate(block.binders, 1):
        value.hint = value.hint or f"x{number}"
    for operation in block.operations:
        for value in operation.results:
            if not is_name(value.hint):
                names.count += 1
                value.hint = f"t{names.count}"
    return block


def _leave_out_unused(block: ResolvedBlock, used: set[Argument]) -> None:
    """Leave out the scalars that nothing in a sub-trace uses; ``used`` is what is used by what comes after."""
    used.update(block.results)
    kept = []
    for operation in reversed(block.operations):
        if operation.row.elementwise and not operation.blocks and used.isdisjoint(operation.results):
            continue
        used.update(operation.args)
        for inner in operation.blocks:
            _leave_out_unused(inner, used)
        kept.append(operation)
    block.operations = kept[::-1]


def _step(printer: Printer, operation: ResolvedOperation) -> None:
    expression = printer.expression(operation) if len(operation.results) == 1 else None
    if expression is None:
        printer.statement(operation, None)
    else:
        printer.line(f"{printer.bind(operation.results[0])} = {expression[0]}")


def _header(name: str, inputs: list[str]) -> list[str]:
    header = f"trace of {name}"
    if not inputs:
        return [header]
    line = f"{header} at {', '.join(inputs)}"
    if len(line) <= LINE:
        return [line]
    return [f"{header} at", *[f"  {text}" for text in inputs]]


def _with_remarks(lines: list[str], remarks: dict[int, str]) -> list[str]:
    column = max((len(lines[k]) for k in remarks if len(lines[k]) <= COLUMN), default=0)
    return [f"{line.ljust(column)}  # {remarks[k]}" if k in remarks else line for k, line in enumerate(lines)]


# Values


def input_text(name: str, type: Type, value: Any) -> str:
    """An input with its value, and with its type where the value does not say it."""
    return f"{name} = {value_text(type, value)}" if _plain(type) else f"{name}: {type} = {value_text(type, value)}"


def typed_text(type: Type, value: Any) -> str:
    """A value, with its type where the value does not say it."""
    return value_text(type, value) if _plain(type) else f"{type}: {value_text(type, value)}"


def value_text(type: Type, value: Any) -> str:
    """A value in a few words: a scalar in full, an array by a few of its elements.

    >>> from adze.core.dims import Dim
    >>> from adze.core.types import ArrayType, f64
    >>> value_text(f64, 0.1 + 0.2)
    '0.30000000000000004'
    >>> value_text(ArrayType(f64, (Dim.of(9),)), np.linspace(0.0, 1.0, 9))
    '[0.0, 0.125, 0.25, ..., 1.0]'
    >>> value_text(ArrayType(f64, (Dim.of(3), Dim.of(4))), np.ones((3, 4)))
    '[[1.0, 1.0, 1.0, 1.0], ...]'
    """
    if isinstance(type, Scalar):
        return str(np.asarray(value, type.dtype)[()])
    array = np.asarray(value)
    return _elements(array, array.size > SHOWN) if array.size else "[]"


def _plain(type: Type) -> bool:
    """Whether a value shows its type: 1.0, 1 and True do."""
    return str(type) in ("f64", "i64", "bool")


def _elements(array: Any, shortened: bool) -> str:
    if np.ndim(array) == 0:
        return _number(array)
    if shortened and array.ndim > 1:
        return f"[{_elements(array[0], shortened)}{', ...' if len(array) > 1 else ''}]"
    if shortened and len(array) > SHOWN:
        return f"[{', '.join(map(_number, array[:3]))}, ..., {_number(array[-1])}]"
    return f"[{', '.join([_elements(part, shortened) for part in array])}]"


def _number(value: Any) -> str:
    """An element of an array, to five digits."""
    if not isinstance(value, np.floating):
        return str(value)
    text = f"{value:.5g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text
