"""Cotangents of data: what is added up for a value of a declared type, part by part.

Such a cotangent is zero as a whole, or has the variant of its value and the cotangents of those fields that may move:

    List:       Nil() | Cons(count: i64, head: f64, tail: List)
    cotangent:  Zero() | Nil() | Cons(head: f64, tail: cotangent)

What nobody has looked at stays ``Zero()``, so two cotangents are added in the time in which both were made, and a
list of which the first item is read gets ``Cons(1, Zero())``. Where a program ends, a walk over the value puts the
zeros in, and its integers: the gradient by data is a value of the same type (``filled``).

What functions and data owe to an array is written down, not added up: a recursion that reads one element in each call
would add two whole arrays in each. It is paid where the array was made, in one go over the debts (``pay``):

    owed to a matrix:  Nothing() | At(i, j, number) | Part1(i, row) | Whole(matrix) | Both(owed, owed)

The cotangent of a number is a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

from ..core.annotations import fresh
from ..core.builder import Builder
from ..core.graph import Value
from ..core.terms import Failure
from ..core.types import (
    ArrayType,
    Declaration,
    FunctionType,
    Named,
    Scalar,
    Type,
    accumulator_of,
    bool_,
    dims,
    element,
    holds_floating,
    i64,
    is_data,
)
from ..interpreters.embed import emit_blocks, name_arguments
from ..interpreters.simplify import accumulators
from .walks import Walk


class CotangentDeclaration(Declaration):
    """The declaration of cotangents of values of a declared type; its first variant is zero."""

    def __init__(self, of: Named) -> None:
        super().__init__(f"Cotangent[{of}]")
        self.of = of

    def __reduce__(self) -> Any:
        """By reference, too."""
        return _declaration, (self.of,)


_making = RLock()
_OWED: WeakValueDictionary[ArrayType, Declaration] = WeakValueDictionary()


def _declaration(of: Named) -> Declaration:
    """There is one for each type, as long as its declaration lives."""
    with _making:
        found = of.declaration.derived.get(("a cotangent", of))
        if found is None:
            found = of.declaration.derived["a cotangent", of] = CotangentDeclaration(of)
            found.variants[fresh("Zero", list(of.declaration.variants))] = {}
            for variant in of.declaration.variants:
                fields = of.fields(variant).items()
                moving = {name: cotangent_type(type) for name, type in fields if holds_floating(type)}
                found.variants[variant] = moving
    return found


def cotangent_type(type: Type) -> Type:
    """The type of what functions and data give for a value of a type: a number, what is owed to an array, or data."""
    match type:
        case Named():
            return Named(_declaration(type))
        case ArrayType():
            return Named(_owed(type))
    assert isinstance(type, Scalar), f"{type} is taken apart before it is differentiated"
    return type


def arriving_type(type: Type) -> Type:
    """The type of what pullbacks take for a result of a type: of an array it is an array."""
    return type if is_data(type) else cotangent_type(type)


def zero_like(b: Builder, value: Value) -> Value:
    """The cotangent of a value that nothing was added to, of its arriving type."""
    return accumulators.zeros_like(b, value) if is_data(value.type) else nothing(b, value.type)


def nothing(b: Builder, type: Type) -> Value:
    """What functions and data give for a value of a type that nothing was added to."""
    if isinstance(type, Scalar):
        return b.literal(0, type)
    named = cotangent_type(type)
    assert isinstance(named, Named)
    return b.emit("construct", (named, next(iter(named.declaration.variants))), [])[0]


def plus(b: Builder, x: Value, y: Value) -> Value:
    """The sum of two cotangents of one value."""
    return _plus(b, Walk(b), x, y)


def of_fields(b: Builder, named: Type, variant: str, fields: Sequence[Value]) -> Value:
    """The cotangent of a value of a variant, from those of the fields that may move."""
    assert isinstance(named, Named)
    return b.emit("construct", (Named(_declaration(named)), variant), fields)[0]


def fields_of(b: Builder, cotangent: Value, variant: str, fields: Sequence[Value]) -> Sequence[Value]:
    """The cotangents of those fields that may move, of a value of this variant with these fields."""
    moving = [field for field in fields if holds_floating(field.type)]

    def branch(found: str, *parts: Value) -> Sequence[Value]:
        return parts if found == variant else [nothing(b, field.type) for field in moving]

    return _case(b, cotangent, branch)


def filled(b: Builder, value: Value, cotangent: Value | None) -> Value:
    """A cotangent as a value like the one that it belongs to: zero where nothing was added, integers as they are.

    What holds nothing that moves has none.
    """
    return value if cotangent is None else _Filling(b)(value, cotangent)


def emptied(b: Builder, value: Value, given: Value) -> Value:
    """The cotangent of a value that is given as a value like it, whose integers are not looked at.

    It is required to have the variants of the value.
    """
    return given if is_data(value.type) else _emptied(b, Walk(b), value, given)


# Arrays


class OwedDeclaration(Declaration):
    """The declaration of what is owed to an array."""

    def __init__(self, of: ArrayType) -> None:
        super().__init__(f"Owed[{of}]")
        self.of = of
        places = {f"i{axis}": i64 for axis in range(len(of.dims))}
        self.variants["Nothing"] = {}
        self.variants["At"] = {**places, "number": of.scalar}
        for count in range(1, len(of.dims)):
            inside = {name: i64 for name in list(places)[:count]}
            self.variants[f"Part{count}"] = {**inside, "part": ArrayType(of.scalar, of.dims[count:])}
        self.variants["Whole"] = {"array": of}
        self.variants["Both"] = {"first": Named(self), "second": Named(self)}
        self.stack = Declaration(f"Stack[{self.name}]")
        self.stack.variants["Done"] = {}
        self.stack.variants["More"] = {"top": Named(self), "rest": Named(self.stack)}

    def __reduce__(self) -> Any:
        """By reference, too."""
        return _owed, (self.of,)


def _owed(of: ArrayType) -> Declaration:
    """There is one for each type, as long as it is used."""
    with _making:
        return _OWED.setdefault(of, OwedDeclaration(of))


def whole(b: Builder, cotangent: Value) -> Value:
    """A cotangent that is known, as what functions and data give."""
    if not isinstance(cotangent.type, ArrayType):
        return cotangent
    return b.emit("construct", (cotangent_type(cotangent.type), "Whole"), [cotangent])[0]


def at(b: Builder, type: Type, places: Sequence[Value], part: Value) -> Value:
    """What is owed to an element of an array of a type, or to the part that is left where indices are missing."""
    assert isinstance(type, ArrayType)
    variant = "At" if len(places) == len(type.dims) else f"Part{len(places)}"
    return b.emit("construct", (cotangent_type(type), variant), [*places, part])[0]


def pay(b: Builder, owed: Value, add: Callable[[Sequence[Value], Value], object]) -> None:
    """Add all that is owed to an array, in its order: ``add(places, number)`` emits an update."""
    assert isinstance(owed.type, Named) and isinstance(owed.type.declaration, OwedDeclaration)
    stack = Named(owed.type.declaration.stack)

    def pushed(top: Value, rest: Value) -> Value:
        return b.emit("construct", (stack, "More"), [top, rest])[0]

    def more(waiting: Value) -> Value:
        test = {"Done": [b.literal(False, bool_)], "More": [b.literal(True, bool_)]}
        return _case(b, waiting, lambda variant, *_: test[variant])[0]

    def step(waiting: Value) -> Sequence[Value]:
        def top(variant: str, *fields: Value) -> Sequence[Value]:
            return _case(b, fields[0], partial(settle, fields[1])) if variant == "More" else [waiting]

        def settle(rest: Value, variant: str, *parts: Value) -> Sequence[Value]:
            if variant == "Both":
                return [pushed(parts[0], pushed(parts[1], rest))]
            if variant != "Nothing":
                *places, part = parts
                b.each(b.sizes(part), lambda *i: add([*places, *i], b.index(part, i)))
            return [rest]

        return _case(b, waiting, top)

    done = b.emit("construct", (stack, "Done"), [])[0]
    b.while_loop([pushed(owed, done)], more, step, ["owed"])


def paid(b: Builder, owed: Value, total: Value) -> Value:
    """An array with all that is owed to it."""

    def updates(accumulator: Value) -> Sequence[Value]:
        pay(b, owed, lambda places, number: b.emit("add_to", (), [accumulator, number, *places]))
        return []

    return b.emit("accumulate", (), [total], [b.body([accumulator_of(total.type)], updates)])[0]


def _is_zero(cotangent: Value) -> bool:
    source = cotangent.source
    return source is not None and source.op == "construct" and source.static[1] == next(iter(_variants(cotangent)))


def _variants(value: Value) -> tuple[str, ...]:
    assert isinstance(value.type, Named)
    return tuple(value.type.declaration.variants)


def _case(b: Builder, value: Value, branch: Callable[..., Sequence[Value]]) -> Sequence[Value]:
    """A choice by the variant, of which a branch is told."""
    named, variants = value.type, _variants(value)
    assert isinstance(named, Named)

    def run(variant: str, *fields: Value) -> Sequence[Value]:
        name_arguments(fields, list(named.fields(variant)))
        return branch(variant, *fields)

    return emit_blocks(b, "case", variants, [value], [partial(run, variant) for variant in variants])


def _plus(b: Builder, walk: Walk, x: Value, y: Value) -> Value:
    if is_data(x.type):
        return accumulators.plus(b, x, y)
    if _is_zero(x):
        return y
    if _is_zero(y):
        return x
    named = x.type
    assert isinstance(named, Named)
    if isinstance(named.declaration, OwedDeclaration):
        return b.emit("construct", (named, "Both"), [x, y])[0]
    zero = _variants(x)[0]

    def body(x: Value, y: Value) -> list[Value]:
        name_arguments([x, y], ["x", "y"])

        def left(variant: str, *mine: Value) -> Sequence[Value]:
            def right(other: str, *theirs: Value) -> Sequence[Value]:
                if other != variant:
                    return [x]  # as zero is added; cotangents of one value have no other variants
                parts = [_plus(b, walk, one, two) for one, two in zip(mine, theirs, strict=True)]
                return b.emit("construct", (named, variant), parts)

            return [y] if variant == zero else _case(b, y, right)

        return list(_case(b, x, left))

    return walk.over("plus", named, [named], [x, y], body)[0]


@dataclass
class _Filling:
    """Walks that put zeros and integers into cotangents. What is zero as a whole is filled by a function of its own,
    one for each type."""

    builder: Builder
    zeros: dict[Type, Value] = field(default_factory=dict)

    def __call__(self, value: Value, cotangent: Value) -> Value:
        for type in _declared_in(value.type):
            signature = FunctionType((type,), (type,))
            walk = Walk(self.builder)
            made = emit_blocks(self.builder, "function", (signature,), [], [lambda x, w=walk: [self._zeroed(w, x)]])
            self.zeros[type] = made[0]
        return self._filled(Walk(self.builder), value, cotangent)

    def _zeroed(self, walk: Walk, value: Value) -> Value:
        b, named = self.builder, value.type
        if not holds_floating(named):
            return value
        if not isinstance(named, Named):
            return accumulators.zeros_like(b, value)

        def body(value: Value) -> list[Value]:
            name_arguments([value], ["value"])

            def branch(variant: str, *fields: Value) -> Sequence[Value]:
                return b.emit("construct", (named, variant), [self._zeroed(walk, field) for field in fields])

            return list(_case(b, value, branch))

        return walk.over("zeros", named, [named], [value], body)[0]

    def _filled(self, walk: Walk, value: Value, cotangent: Value) -> Value:
        b, named = self.builder, value.type
        if not isinstance(named, Named):
            return cotangent if is_data(cotangent.type) else paid(b, cotangent, accumulators.zeros_like(b, value))

        def body(value: Value, cotangent: Value) -> list[Value]:
            name_arguments([value, cotangent], ["value", "cotangent"])

            def branch(variant: str, *parts: Value) -> Sequence[Value]:
                if variant == _variants(cotangent)[0]:
                    return b.emit("apply", (), [self.zeros[named], value])
                rest = iter(parts)
                fields = _fields(b, value, variant)
                made = [self._filled(walk, x, next(rest)) if holds_floating(x.type) else x for x in fields]
                return b.emit("construct", (named, variant), made)

            return list(_case(b, cotangent, branch))

        return walk.over("filled", named, [named], [value, cotangent], body)[0]


def _fields(b: Builder, value: Value, variant: str) -> Sequence[Value]:
    """The fields of a value that has this variant, as its cotangent does."""
    named = value.type
    assert isinstance(named, Named)
    if not named.fields(variant):
        return []
    types = list(named.fields(variant).values())

    def branch(found: str, *fields: Value) -> Sequence[Value]:
        return fields if found == variant else [value if type == named else _placeholder(b, type) for type in types]

    return _case(b, value, branch)


def _placeholder(b: Builder, type: Type) -> Value:
    """A value of a type, for a place where nothing looks at it: a small one."""
    if isinstance(type, Named):
        variant = _finite_variant(type, frozenset())
        assert variant is not None, f"no value of {type} ends"
        fields = [_placeholder(b, each) for each in type.fields(variant).values()]
        return b.emit("construct", (type, variant), fields)[0]
    zero = b.literal(0, element(type))
    sizes = [size for size in map(b.known, dims(type)) if size is not None]
    assert len(sizes) == len(dims(type)), f"data holds no {type}, whose size the run decides"
    return b.array(sizes, lambda *_: zero)


def _finite_variant(named: Named, around: frozenset[Declaration]) -> str | None:
    """A variant that has values which end: its fields hold none of the declarations around it."""
    around |= {named.declaration}
    for variant in named.declaration.variants:
        inner = [type for type in named.fields(variant).values() if isinstance(type, Named)]
        if all([each.declaration not in around and _finite_variant(each, around) is not None for each in inner]):
            return variant
    return None


def _declared_in(type: Type) -> list[Named]:
    """The declared types that are a type or in its fields, and hold floating numbers."""
    found: dict[Named, None] = {}
    todo = [type]
    while todo:
        part = todo.pop()
        if isinstance(part, Named) and part not in found and holds_floating(part):
            found[part] = None
            todo += [inner for variant in part.declaration.variants for inner in part.fields(variant).values()]
    return list(found)


def _emptied(b: Builder, walk: Walk, value: Value, given: Value) -> Value:
    named = value.type
    if not isinstance(named, Named):
        return whole(b, given)

    def body(value: Value, given: Value) -> list[Value]:
        name_arguments([value, given], ["value", "given"])

        def branch(variant: str, *fields: Value) -> Sequence[Value]:
            def beside(found: str, *parts: Value) -> Sequence[Value]:
                if found != variant:
                    of = named.declaration.name
                    message = f"the cotangent of a result has {of}.{found} where the result has {of}.{variant}"
                    b.require(b.literal(False, bool_), Failure("variant", message, b.origin), [])
                    return [nothing(b, named)]
                pairs = [(x, y) for x, y in zip(fields, parts, strict=True) if holds_floating(x.type)]
                return [of_fields(b, named, variant, [_emptied(b, walk, x, y) for x, y in pairs])]

            return _case(b, given, beside)

        return list(_case(b, value, branch))

    return walk.over("cotangent", named, [cotangent_type(named)], [value, given], body)[0]
