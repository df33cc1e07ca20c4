"""Where reverse mode of functions and data begins and ends: values in parts, and their cotangents.

Reverse mode is derived of the first-order form (``interpreters/first_order``), in which a value is its parts. Here the
values of a program become their parts, and parts become values again; so do cotangents, which a value of a declared
type has as another value of this type:

    ((x, k), List.Cons(1.0, List.Nil()))  <->  x, k, List.Cons(1.0, List.Nil())

A term that is first-order as it is has values that are their own parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..core.builder import Builder
from ..core.environment import Env
from ..core.graph import Value
from ..core.terms import Block
from ..core.types import FunctionType, Named, TupleType, Type, holds_floating, is_data
from ..interpreters.embed import emit_blocks
from ..interpreters.first_order import FirstOrder, Shape, first_order, is_first_order
from .activity import Active, Activity, Atom, Operation
from .activity import Block as ActiveBlock
from .cotangents import emptied, filled
from .fragment import unsupported
from .walks import Walk


class TakenApart:
    """A term in the form that reverse mode derives, with what its parameters and results are in parts."""

    def __init__(self, builder: Builder, block: Block, moving: Sequence[bool]) -> None:
        self.builder, self._parameters, self._results = builder, block.binders, block.types
        self._form: FirstOrder | None = None
        self.block = block
        self.inputs: tuple[Shape, ...] = tuple(block.binders)
        self.outputs: tuple[Shape, ...] = tuple(block.types)
        if _moves_values(block, moving):
            for type in (*block.binders, *block.types):
                if isinstance(type, FunctionType):
                    problem = f"reverse mode does not know how a function from outside moves, {type}"
                    instead = "make it in what is differentiated, or call a function of Python"
                    raise unsupported(builder, f"{problem}: {instead}")
            self._form = first_order(block, rules=True)
            self.block, self.inputs, self.outputs = self._form.block, self._form.inputs, self._form.outputs

    def parts(self, number: int, value: Value) -> list[Value]:
        """The parts of a parameter."""
        return self._apart(self.inputs[number], value)

    def result(self, number: int, parts: Sequence[Value]) -> Value:
        """A result, from its parts."""
        return self._together(self._results[number], self.outputs[number], parts)

    def split(self, values: Sequence[Value]) -> list[list[Value]]:
        """The parts of all results, each by itself."""
        if self._form is None:
            return [[value] for value in values]
        return [list(parts) for parts in self._form.layouts.split(values, self.outputs)]

    def cotangents(self, number: int, values: Sequence[Value], given: Value | None) -> list[Value | None]:
        """The cotangents of the parts of a result, from one that is a value like the result."""
        shape = self.outputs[number]
        if given is None:
            return [None] * len(values)
        pairs = zip(values, self._apart(shape, given), strict=True)
        return [emptied(self.builder, value, part) if holds_floating(part.type) else None for value, part in pairs]

    def filled(self, number: int, parts: Sequence[Value], cotangents: Sequence[Value | None]) -> Value:
        """The cotangent of a parameter as a value like it, from the parts of both."""
        pairs = zip(parts, cotangents, strict=True)
        made = [filled(self.builder, value, cotangent) for value, cotangent in pairs]
        return self._together(self._parameters[number], self.inputs[number], made)

    # Values

    def _apart(self, shape: Shape, value: Value) -> list[Value]:
        """The parts of a value of a shape."""
        return self._parts(Walk(self.builder), shape, value)

    def _parts(self, walk: Walk, shape: Shape, value: Value) -> list[Value]:
        b = self.builder
        if isinstance(shape, tuple):
            items = [b.emit("project", (k,), [value])[0] for k in range(len(shape))]
            return [part for item, inner in zip(items, shape, strict=True) for part in self._parts(walk, inner, item)]
        if self._form is None or not isinstance(shape, Named):
            return [value]
        named, layouts = shape, self._form.layouts

        def body(value: Value) -> list[Value]:
            def branch(number: int, *fields: Value) -> Sequence[Value]:
                shapes = layouts.variants(named)[number][1]
                parts = [part for own, x in zip(shapes, fields, strict=True) for part in self._parts(walk, own, x)]
                return layouts.make(b, named, number, parts)

            names = tuple([name for name, _ in layouts.variants(named)])
            branches = [partial(branch, number) for number in range(len(names))]
            return list(emit_blocks(b, "case", names, [value], branches))

        if not layouts.boxed(named):
            return body(value)
        if layouts.declared(named) == named:
            return [value]
        return walk.over("parts", named, [layouts.declared(named)], [value], body)

    def _together(self, type: Type, shape: Shape, parts: Sequence[Value]) -> Value:
        """The value that has these parts."""
        return self._whole(Walk(self.builder), type, shape, parts)

    def _whole(self, walk: Walk, type: Type, shape: Shape, parts: Sequence[Value]) -> Value:
        b = self.builder
        if self._form is None or not isinstance(shape, Named | tuple):
            return parts[0]
        layouts = self._form.layouts
        if isinstance(shape, tuple):
            assert isinstance(type, TupleType)
            split = zip(type.items, shape, layouts.split(parts, shape), strict=True)
            return b.emit("pack", (), [self._whole(walk, *item) for item in split])[0]
        named = shape

        def body(*parts: Value) -> list[Value]:
            def branch(number: int, given: Sequence[Value]) -> Sequence[Value]:
                variant, shapes = layouts.variants(named)[number]
                split = zip(named.fields(variant).values(), shapes, layouts.split(given, shapes), strict=True)
                return b.emit("construct", (named, variant), [self._whole(walk, *field) for field in split])

            branches = [partial(branch, number) for number in range(len(layouts.variants(named)))]
            return list(layouts.choose(b, named, parts, branches))

        if not layouts.boxed(named):
            return body(*parts)[0]
        declared = layouts.declared(named)
        return parts[0] if declared == named else walk.over("value", declared, [named], parts, body)[0]


class _Finder(Activity):
    """The activity analysis that notes whether a function, a tuple or data moves."""

    found = False

    def opaque(
        self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[ActiveBlock] = (), name: str = ""
    ) -> Operation:
        plain = super().opaque(op, static, args, blocks, name)

        def run(env: Env[Any]) -> Active | bool:
            moves = plain(env)
            self.found = self.found or (op != "foreign" and moves is True)
            return moves

        return run


def _moves_values(block: Block, moving: Sequence[bool]) -> bool:
    """Whether a function, a tuple or data moves in a term, for parameters that do."""
    if is_first_order(block):
        return False
    finder = _Finder(bool)
    block.interpret(finder)(Env(), moving)
    return finder.found or any(moves and not is_data(type) for moves, type in zip(moving, block.binders, strict=True))
