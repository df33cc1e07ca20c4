"""Where forward mode begins and ends: values and their tangents become dual values, and dual values become both again.

The tangent of a value of a declared type is a value of the same type. Recursive functions in the derivative walk over
both at once and make one value of dual numbers (``forms.py``); they require that the variants agree. Another one walks
over a dual result, and makes the result and its tangent:

    List.Cons(2.0, List.Nil()), List.Cons(1.0, List.Nil())   <->   List.Cons((2.0, 1.0), List.Nil())

What is no floating number is the value's own in both. The tangent of a function that is a result is the function that
gives the tangents of its results, at arguments that do not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..core.builder import Builder
from ..core.graph import Value
from ..core.terms import Failure, Path
from ..core.types import (
    FunctionType,
    Named,
    TupleType,
    Type,
    TypeVariable,
    bool_,
    declarations,
    i64,
    is_float,
    reached,
)
from ..interpreters.embed import emit_blocks, name_arguments
from ..interpreters.simplify.accumulators import zeros_like
from .forms import Form
from .fragment import unsupported
from .walks import Walk

# In


@dataclass
class _Place:
    """Where a walk is: the path from the whole, as two integers."""

    digits: Value
    length: Value


class Joining:
    """A value and its tangent become a dual value; ``what`` is the name of the value, in messages."""

    def __init__(self, builder: Builder, what: str) -> None:
        self.builder, self.what, self.walk = builder, what, Walk(builder)

    def __call__(self, form: Form, value: Value, tangent: Value | None) -> Value:
        """The dual value of this form; without a tangent, all that moves has a tangent of zero.

        Raises Unsupported for a function in which something moves: nobody knows how.
        """
        self.path = Path(_steps(form.type))
        zero = self.builder.literal(0, i64)
        return self._joined(form, value, tangent, _Place(zero, zero))

    def _joined(self, form: Form, value: Value, tangent: Value | None, place: _Place) -> Value:
        b = self.builder
        if not form:
            return value
        match form.type:
            case TupleType():
                inside = [self._inside(place, f"[{k}]", tangent) for k in range(len(form.items))]
                items = [
                    self._joined(item, self._item(value, k), None if tangent is None else self._item(tangent, k), inner)
                    for k, (item, inner) in enumerate(zip(form.items, inside, strict=True))
                ]
                return b.emit("pack", (), items)[0]
            case FunctionType():
                where = f" in {self.what}" if self.what else ""
                message = f"forward mode does not know how a function from outside moves, {form.type}{where}"
                raise unsupported(b, f"{message}: make it in what is differentiated, or call a function of Python")
            case Named():
                args = [value] if tangent is None else [value, tangent, place.digits, place.length]
                return self.walk.over("joined", form.type, [form.dual], args, partial(self._fields, form))[0]
        return b.emit("pack", (), [value, zeros_like(b, value) if tangent is None else tangent])[0]

    def _fields(self, form: Form, value: Value, tangent: Value | None = None, *path: Value) -> list[Value]:
        """The dual value of a declared type, its fields joined."""
        b, named = self.builder, form.type
        assert isinstance(named, Named)
        place = _Place(*path or [b.literal(0, i64)] * 2)
        for parameter, name in zip([value, tangent, *path], ["value", "tangent", "path", "length"], strict=False):
            if parameter is not None:
                name_arguments([parameter], [name])

        def joined(variant: str, *fields: Value) -> list[Value]:
            names = list(named.fields(variant))
            name_arguments(fields, names)
            moving = [None] * len(fields) if tangent is None else self._beside(named, variant, fields, tangent, place)
            steps = [self._inside(place, f".{name}", tangent) for name in names]
            parts = zip(form.fields(variant), fields, moving, steps, strict=True)
            return [b.emit("construct", (form.dual, variant), [self._joined(*part) for part in parts])[0]]

        variants = tuple(named.declaration.variants)
        return list(emit_blocks(b, "case", variants, [value], [partial(joined, variant) for variant in variants]))

    def _beside(
        self, named: Named, variant: str, fields: Sequence[Value], tangent: Value, place: _Place
    ) -> Sequence[Value]:
        """The fields of a tangent, which is required to be of this variant; ``fields`` are those of the value."""
        b, name = self.builder, named.declaration.name

        def branch(found: str, *tangents: Value) -> Sequence[Value]:
            if found == variant:
                name_arguments(tangents, [f"d_{field}" for field in named.fields(variant)])
                return tangents
            message = f"the tangent of {self.what}{{path}} is {name}.{found}, and the value there is {name}.{variant}"
            failure = Failure("variant", message, b.origin, path=self.path)
            b.require(b.literal(False, bool_), failure, [place.digits, place.length])
            return fields

        variants = tuple(named.declaration.variants)
        return emit_blocks(b, "case", variants, [tangent], [partial(branch, found) for found in variants])

    def _inside(self, place: _Place, step: str, tangent: Value | None) -> _Place:
        """The path with one step more, where there is a tangent, and something in there to compare."""
        if tangent is None or step not in self.path.steps:
            return place
        b, digit = self.builder, self.path.steps.index(step)
        moved = b.primitive("multiply", place.digits, b.literal(self.path.base, i64))
        one = b.literal(1, i64)
        return _Place(b.primitive("add", moved, b.literal(digit, i64)), b.primitive("add", place.length, one))

    def _item(self, value: Value, k: int) -> Value:
        return self.builder.emit("project", (k,), [value])[0]


def _steps(type: Type) -> tuple[str, ...]:
    """How one gets from a value to the values of declared types that may be in it."""
    parts = reached(type)
    arguments = [argument for part in parts if isinstance(part, Named) for argument in part.arguments]
    leading = TypeVariable if declarations(*arguments) else ()
    found: dict[str, None] = {}
    for part in parts:
        inside: list[tuple[str, Type]] = []
        if isinstance(part, TupleType):
            inside = [(f"[{k}]", item) for k, item in enumerate(part.items)]
        elif isinstance(part, Named):
            fields = [field for own in part.declaration.variants.values() for field in own.items()]
            inside = [(f".{name}", type) for name, type in fields]
        found.update({step: None for step, type in inside if declarations(type) or isinstance(type, leading)})
    return tuple(found)


# Out


class Parting:
    """A value becomes the plain value and its tangent, which is zero where it does not move."""

    def __init__(self, builder: Builder) -> None:
        self.builder, self.walk = builder, Walk(builder)

    def __call__(self, form: Form, value: Value) -> tuple[Value, Value]:
        """The parts of a value of this form.

        Raises Unsupported for a function that takes functions, which would have to move.
        """
        b = self.builder
        match form.type:
            case TupleType():
                items = [self(item, b.emit("project", (k,), [value])[0]) for k, item in enumerate(form.items)]
                primals, tangents = zip(*items, strict=True)
                return b.emit("pack", (), primals)[0], b.emit("pack", (), tangents)[0]
            case FunctionType():
                return self._function(form, value, 0), self._function(form, value, 1)
            case Named():
                types = [form.type, form.type]
                primal, tangent = self.walk.over("parted", form.type, types, [value], partial(self._fields, form))
                return primal, tangent
        if form:
            return b.emit("project", (0,), [value])[0], b.emit("project", (1,), [value])[0]
        return value, zeros_like(b, value) if is_float(form.type) else value

    def _fields(self, form: Form, value: Value) -> list[Value]:
        b, named = self.builder, form.type
        assert isinstance(named, Named)
        name_arguments([value], ["value"])

        def made(variant: str, *fields: Value) -> list[Value]:
            name_arguments(fields, list(named.fields(variant)))
            parts = [self(part, x) for part, x in zip(form.fields(variant), fields, strict=True)]
            both = [[part[k] for part in parts] for k in range(2)]
            return [b.emit("construct", (named, variant), some)[0] for some in both]

        variants = tuple(named.declaration.variants)
        branches = [partial(made, variant) for variant in variants]
        return list(emit_blocks(b, "case", variants, [value], branches))

    def _function(self, form: Form, function: Value, part: int) -> Value:
        """The function that gives the results, or the one that gives their tangents."""
        b = self.builder

        def run(*parameters: Value) -> list[Value]:
            join = Joining(b, "the parameters of a function that is a result")
            args = [join(p, x, None) for p, x in zip(form.parameters, parameters, strict=True)]
            results = b.emit("apply", (), [function, *args])
            return [self(result, y)[part] for result, y in zip(form.results, results, strict=True)]

        return emit_blocks(b, "function", (form.type,), [], [run])[0]
