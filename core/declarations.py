"""Declarations of data types: what the annotations of a class, and of the classes inside of it, say of its fields.

A *family* is a declaration with what its fields are read from, which is done when the type is first used: they may
mention types that are declared further down. A variant is a nested class, or a function whose parameters are the
fields. What is made of a declaration, the classes of values, is in ``data.py``::

    class List(Generic[T]):                  Declaration("List", (T,)), variants
        class Nil: ...                  =>     Nil:  {}
        class Cons:                            Cons: {"head": T, "tail": List[T]}
            head: T
            tail: "List[T]"
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from types import FrameType
from typing import Any

from .annotations import Scope, value_type
from .source import at_line
from .trees import LEAF, Shape
from .types import Declaration, Type, TypeVariable, declarations, map_type, without_values


class Family:
    """A declaration whose fields are read when they are first needed: they may mention types declared later."""

    def __init__(self, cls: type, frame: FrameType) -> None:
        self.globals: Scope = frame.f_globals
        self.locals: Scope = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
        parameters = tuple([TypeVariable(p.__name__) for p in getattr(cls, "__parameters__", ())])
        self.declaration = Declaration(cls.__name__, parameters)
        inner = {name: _declared(value) for name, value in vars(cls).items() if isinstance(value, type | Variant)}
        own = inspect.get_annotations(cls)
        if inner and own:
            raise TypeError(at_line(f"{cls.__name__} has fields of its own and variants: a type has one or the other"))
        self.record = not inner
        self.fields = inner
        if self.record:
            self.fields = {cls.__name__: own}
        self._read = False

    def read(self) -> Declaration:
        """The declaration, with its fields."""
        if not self._read:
            self._read = True
            scope = {**self.globals, **self.locals}
            try:
                for variant, fields in self.fields.items():
                    self.declaration.variants[variant] = {
                        name: self._type(annotation, scope, f"field {name!r} of {self.declaration.name}.{variant}")
                        for name, annotation in fields.items()
                    }
                self._must_have_values()
            except TypeError:
                self._read = False
                raise
        return self.declaration

    def _must_have_values(self) -> None:
        """Refuse a type whose every value contains another one; while one around it is read, that waits for the end."""
        group = {self.declaration, *declarations(*self.declaration.field_types)}
        families = [each.owner._family for each in group if each.owner is not None]  # type: ignore[attr-defined]
        if all(set(family.declaration.variants) == set(family.fields) for family in families):
            for name in sorted([each.name for each in without_values(group)])[:1]:
                for family in families:
                    family._read = False
                raise TypeError(
                    f"{name} has no values: each would contain another {name}. Variants are classes inside of class "
                    f"{name}, and one of them contains none"
                )

    @cached_property
    def flat(self) -> Shape | None:
        """The shape of a record whose fields are leaves; None for another type."""
        if not self.read().is_record:
            return None
        ((variant, cls),) = self.declaration.classes.items()
        keys = tuple(self.fields[variant])
        return Shape(cls, keys, (LEAF,) * len(keys))

    def _type(self, annotation: Any, scope: Scope, where: str) -> Type:
        try:
            type = value_type(annotation, scope)
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        for variable in variables(type):
            if variable not in self.declaration.parameters:
                message = f"{where}: {variable} is no parameter of {self.declaration.name}"
                raise TypeError(
                    f"{message}, which would be declared class {self.declaration.name}(Generic[{variable}])"
                )
        return type


class Variant:
    """A variant that is declared as a function: its parameters are the fields."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name, self.fields = function.__qualname__, dict[str, Any]()
        annotations = inspect.get_annotations(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in annotations or parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
                problem = "has no type" if name not in annotations else "is not a parameter by position and name"
                raise TypeError(at_line(f"{self.name}: {name!r} is a field of a variant, and {problem}"))
            if parameter.default is not inspect.Parameter.empty:
                raise TypeError(at_line(f"{self.name}: the field {name!r} has a default, which fields do not have"))
            self.fields[name] = annotations[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(at_line(f"{self.name} is a variant of a class without @az.data"))


def variant(function: Callable[..., Any]) -> Variant:
    """A variant of a data type, by its constructor: what checkers of types know, which see no fields in nested classes.

    Parameters are the fields, each with a type; what is returned is for checkers alone. To mypy and pyright it is a
    static method. Raises TypeError for a parameter without a type, with a default, or with a star.

    >>> import adze as az
    >>> from typing import Any
    >>> @az.data
    ... class Figure:
    ...     @az.variant
    ...     def Point() -> Any: ...
    ...     @az.variant
    ...     def Circle(radius: az.f64) -> Any: ...
    >>> Figure.Circle(radius=2.0), isinstance(Figure.Point(), Figure)
    (Figure.Circle(radius=2.0), True)
    """
    return Variant(function)


def _declared(variant: builtins.type | Variant) -> Mapping[str, Any]:
    """The fields of a variant, with their annotations."""
    return variant.fields if isinstance(variant, Variant) else inspect.get_annotations(variant)


def variables(type: Type) -> list[TypeVariable]:
    """The type variables in a type."""
    found: list[TypeVariable] = []

    def note(part: Type) -> Type:
        if isinstance(part, TypeVariable):
            found.append(part)
        return part

    map_type(type, note)
    return found


class Undeclared(Family):
    """The family of a declaration that no class declares."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration, self.record = declaration, False
        self.fields = {variant: dict(fields) for variant, fields in declaration.variants.items()}
        self._read = True
