"""Layouts: what a value is without tuples, records, variants and functions.

A value of a type that does not contain itself is its *parts*, each a scalar, an array or a value that recurs:

    a tuple, a record           its fields
    a value of several variants a number, which says the variant, and the fields of all variants
    a function                  which one of its flow it is, as a variant, and what that captures

What contains itself is a *cell*: one value of a declared type, whose fields are parts in turn. So is a variant that
holds cells, for where it holds none there is nothing that could stand for one. Where a declaration is other in parts
than it was written, as one of tuples is, there is another one for its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...core.builder import Builder
from ...core.graph import Value
from ...core.language import Unsupported
from ...core.types import ArrayType, Declaration, Named, Scalar, Type, all_dims, dims, element, i64
from ..embed import emit_blocks
from .flows import Flow, Flows, Function, Shape
from .tags import Closures

Parts = tuple[Value, ...]
Sum = Named | Flow  # values of one of several variants

# A declared type that reaches more others of its declaration, one after the other, is taken to have no end.
_INSTANCES = 12


class Layouts:
    """The layouts of the values of one program, by their shapes."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._boxed: dict[Sum, bool] = {}
        self._declared: dict[Sum, Named] = {}

    # Types

    def stored(self, type: Type) -> Shape:
        """The shape of values of a type that come from outside, or from data."""
        return self._flows.stored(type)

    def parts(self, shape: Shape) -> tuple[Type, ...]:
        """The types of the parts of values of a shape."""
        if isinstance(shape, tuple):
            return self.of_all(shape)
        if not isinstance(shape, Named | Flow):
            return (shape,)
        if self.boxed(shape):
            return (self.declared(shape),)
        fields = [part for _, fields in self.variants(shape) for part in self.of_all(fields)]
        return tuple(fields) if len(self.variants(shape)) < 2 else (i64, *fields)

    def of_all(self, shapes: Sequence[Shape]) -> tuple[Type, ...]:
        """The types of the parts of several values, one after the other."""
        return tuple([part for shape in shapes for part in self.parts(shape)])

    def split(self, values: Sequence[Value], shapes: Sequence[Shape]) -> list[Parts]:
        """The parts of several values, each by itself."""
        left = iter(values)
        return [tuple([next(left) for _ in self.parts(shape)]) for shape in shapes]

    def variants(self, of: Sum) -> list[tuple[str, tuple[Shape, ...]]]:
        """The variants, each with the shapes of its fields."""
        if isinstance(of, Flow):
            return [(f"{each.name}{each.number}", each.captured) for each in of.functions]
        return [(name, tuple(map(self._flows.stored, of.fields(name).values()))) for name in of.declaration.variants]

    def boxed(self, of: Sum) -> bool:
        """Whether values are cells: they contain themselves, or are of several variants and hold cells."""
        key = of.root if isinstance(of, Flow) else of
        if key not in self._boxed:
            held = list(self._held(key))
            self._boxed[key] = key in self._reached(held)
            if not self._boxed[key] and len(self.variants(key)) > 1:
                self._boxed[key] = any(map(self.boxed, held)) or any(
                    isinstance(part, Named) for _, fields in self.variants(key) for part in self.of_all(fields)
                )
        return self._boxed[key]

    def cannot_hold(self, function: Function) -> bool:
        """Whether a function that is one of several, or in a cell, captures an array whose size the run decides."""
        flow = function.flow.root
        return (len(flow.functions) > 1 or self.boxed(flow)) and any(map(self._is_open, function.captured))

    def _is_open(self, shape: Shape) -> bool:
        """Whether an array whose size the run decides is among the parts of values of a shape."""
        match shape:
            case tuple():
                return any(map(self._is_open, shape))
            case Flow():
                return not self.boxed(shape) and any(self._is_open(x) for f in shape.functions for x in f.captured)
        return not all([dim.is_static() for dim in all_dims(shape)])

    def _held(self, of: Sum) -> Iterator[Sum]:
        """The sums that the fields are made of, but for what these hold in turn."""
        pending = [shape for _, fields in self.variants(of) for shape in fields]
        while pending:
            shape = pending.pop()
            if isinstance(shape, tuple):
                pending.extend(shape)
            elif isinstance(shape, Flow):
                yield shape.root
            elif isinstance(shape, Named):
                yield shape

    def _reached(self, held: Sequence[Sum]) -> set[Sum]:
        """All sums that some are made of, themselves included."""
        found: set[Sum] = set()
        pending = [(of, 0) for of in held]  # and how often types before it were instances of one declaration
        while pending:
            of, again = pending.pop()
            if of in found:
                continue
            found.add(of)
            for inner in self._held(of):
                same = isinstance(of, Named) and isinstance(inner, Named) and of.declaration is inner.declaration
                if isinstance(of, Named) and again == _INSTANCES:
                    raise _endless(of)
                pending.append((inner, again + same))
        return found

    def declared(self, of: Sum) -> Named:
        """The declared type of the cells of a sum, whose fields are parts."""
        key = of.root if isinstance(of, Flow) else of
        if key not in self._declared:
            if isinstance(key, Named) and self._plain(key):
                self._declared[key] = key
                return key
            name = key.functions[0].name if isinstance(key, Flow) else str(key)
            declaration = Closures(name) if isinstance(key, Flow) else Declaration(name)
            self._declared[key] = Named(declaration)
            for variant, fields in self.variants(key):
                declaration.variants[variant] = dict(self._named_parts(key, variant, fields))
        return self._declared[key]

    def _named_parts(self, of: Sum, variant: str, fields: Sequence[Shape]) -> Iterator[tuple[str, Type]]:
        names = list(of.fields(variant)) if isinstance(of, Named) else [f"captured{k}" for k in range(len(fields))]
        for name, shape in zip(names, fields, strict=True):
            parts = self.parts(shape)
            for k, part in enumerate(parts):
                if not all(dim.is_static() for dim in all_dims(part)):
                    raise _unknown_size(part)
                yield (name if len(parts) == 1 else f"{name}.{k}"), part

    def _plain(self, named: Named) -> bool:
        """Whether the fields of a boxed type, and of those that it reaches, are parts as they are written."""
        for each in (named, *self._reached(list(self._held(named)))):
            if not isinstance(each, Named) or not self.boxed(each):
                return False
            if any(isinstance(shape, tuple | Flow) for _, fields in self.variants(each) for shape in fields):
                return False
        return True

    # Values

    def make(self, builder: Builder, of: Sum, number: int, fields: Sequence[Value]) -> Parts:
        """The parts of a value of a variant, by its place among these, from the parts of its fields."""
        variants = self.variants(of)
        if self.boxed(of):
            return builder.emit("construct", (self.declared(of), variants[number][0]), fields)
        if len(variants) == 1:
            return tuple(fields)
        made = [builder.literal(number, i64)]
        for k, (_, shapes) in enumerate(variants):
            made += fields if k == number else [nothing(builder, type) for type in self.of_all(shapes)]
        return tuple(made)

    def choose(
        self, builder: Builder, of: Sum, parts: Parts, branches: Sequence[Callable[[Sequence[Value]], Sequence[Value]]]
    ) -> Sequence[Value]:
        """What the branch for the variant of a value makes of the parts of its fields."""
        variants = self.variants(of)
        if self.boxed(of):
            names = tuple([name for name, _ in variants])
            return emit_blocks(builder, "case", names, parts, [lambda *given, b=b: b(given) for b in branches])
        if len(variants) == 1:
            return branches[0](parts)
        fields, left = [], iter(parts[1:])
        for _, shapes in variants:
            fields.append([next(left) for _ in self.of_all(shapes)])

        def from_(k: int) -> Sequence[Value]:
            if k == len(variants) - 1:
                return branches[k](fields[k])
            test = builder.primitive("equal", parts[0], builder.literal(k, i64))
            return builder.cond(test, lambda: branches[k](fields[k]), lambda: from_(k + 1))

        return from_(0)


def _endless(named: Named) -> Unsupported:
    """Why a type that contains itself at ever larger arguments has no layout."""
    declaration = named.declaration
    [field, *_] = [
        f"{variant}.{name}"
        for variant, fields in declaration.variants.items()
        for name, type in fields.items()
        if isinstance(type, Named) and type.declaration is declaration and type.arguments != declaration.parameters
    ] or ["another type"]
    name = declaration.name
    return Unsupported(f"{name} contains itself at ever larger types, by its field {field}: these have no end")


def _unknown_size(type: Type) -> Unsupported:
    """Why a value that may be one of several functions cannot hold an array of a type, nor make it again."""
    problem = f"one of several functions captures an array of type {type}, whose size the run decides"
    why = "it is the state of a loop, or made by what may not end"
    return Unsupported(f"{problem}, and cannot make it again, for {why}: such a function may capture numbers")


def nothing(builder: Builder, type: Type) -> Value:
    """What stands for a part that is not there: zeros."""
    if not isinstance(type, Scalar | ArrayType):
        raise Unsupported(
            f"no function of the program comes to be applied here, and so nothing gives a value of {type}"
        )
    sizes = [builder.known(dim) for dim in dims(type)]
    zero = builder.literal(0, element(type))
    if any(size is None for size in sizes):
        raise _unknown_size(type)
    return builder.array([size for size in sizes if size is not None], lambda *_: zero)
