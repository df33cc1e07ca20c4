"""The first-order form: a program without functions as values, and with data only where it recurs.

Functions become what is known of them. Which ones reach an application is found by a flow analysis (``flows.py``). One
that does not recur is entered where it is applied. Others are *procedures*, closed blocks that call each other by name;
what a function captures is then handed over as further arguments (lambda lifting). Where several functions reach an
application, their value is a variant of what they capture, and the application a choice (defunctionalisation; Reynolds,
Definitional interpreters for higher-order programming languages, 1972). Tuples, records and variants are their parts
(``layouts.py``), so what is left are recursive procedures, and cells of recursive data.

    f = cond(c, plus y, times z); f(x)      number = cond(c, 0, 1); cond(number == 0, x + y, x * z)

What is one of several functions cannot hold an array whose size the run decides: it holds what that is made of, and
makes it again.

A program that has none of these is first-order as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.builder import Builder
from ...core.constructs import construct
from ...core.graph import Body, Value
from ...core.language import Unsupported
from ...core.terms import Block
from ...core.types import FunctionType, TupleType, Type, is_data
from ..embed import Embed, rebuilt
from ..simplify.rules import rewrite
from .conversion import Conversion, has_values
from .flows import Flow, Flows, Shape
from .layouts import Layouts


@dataclass(frozen=True)
class FirstOrder:
    """A program in first-order form, with the shapes that its parameters and results had, and what these are in
    parts."""

    block: Block
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    layouts: Layouts


def is_first_order(block: Block) -> bool:
    """Whether nothing in a closed term is a function, a tuple or of a declared type."""
    return all(map(is_data, block.binders)) and not has_values(block)


def first_order(block: Block, rules: bool = False) -> FirstOrder:
    """A closed term in first-order form; with ``rules``, those of derivatives stay where they are given.

    Unsupported where functions are among its parameters and results.
    """
    for type in (*block.binders, *block.types):
        if _is_function(type):
            what = "what is differentiated in reverse" if rules else "a compiled program"
            problem = f"{what} takes and gives no functions, and here is one of type {type}"
            raise Unsupported(f"{problem}: pass a program as a static parameter")
    known = rebuilt(block, Embed, _known)
    flows = Flows(known)
    layouts = Layouts(flows)
    if any(map(layouts.cannot_hold, flows.functions.values())):
        known = rebuilt(known, Embed, remade=True)
        flows = Flows(known)
        layouts = Layouts(flows)
    inputs = tuple([flows.stored(type) for type in known.binders])
    made = Conversion(flows, layouts, rules).program(known, inputs)
    return FirstOrder(made, inputs, tuple(flows.outputs), layouts)


def _known(
    b: Builder, op: str, static: tuple[Any, ...], args: tuple[Value, ...], bodies: tuple[Body, ...]
) -> tuple[Value, ...] | None:
    """What is known of functions and data is used before flows are looked at, so that fewer of these meet."""
    return rewrite(b, op, static, args, bodies) if construct(op, static).higher_order else None


def _is_function(type: Type) -> bool:
    """Whether a value is a function, or a tuple that holds one."""
    return isinstance(type, FunctionType) or (isinstance(type, TupleType) and any(map(_is_function, type.items)))


__all__ = ["FirstOrder", "Flow", "Layouts", "Shape", "first_order", "is_first_order"]
