"""Annotations of parameters and fields: types of the language, structures of them, Python types for static ones.

A *declaration* of a parameter is a structure with types at its leaves: ``az.f64``, ``az.Array[az.f64, "n d"]``, a
declared data type, ``az.Function[[az.f64], az.f64]``, and tuples, dictionaries, named tuples and dataclasses of
these, written as Python writes them. A record is one type, which programs take apart (:meth:`Declared.expanded`):

>>> from adze.core.types import f64
>>> declared = read_annotation(tuple[f64, Array[f64, "n"]])
>>> declared.types, str(declared.shape)
((f64, f64[n]), '(., .)')
"""

from __future__ import annotations

import builtins
import collections.abc
import contextlib
import enum
import functools
import inspect
import operator
import sys
import types as python_types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import trees
from .dims import Dim, Name
from .expr import INLINE, Expr
from .host_arrays import MASKED, advice, as_array, is_masked, on_device, scalar_in
from .source import at_line
from .trees import Shape
from .types import (
    MOST_AXES,
    ArrayType,
    FunctionType,
    Named,
    Scalar,
    TupleType,
    Type,
    TypeVariable,
    array_of,
    bool_,
    dims,
    element,
    f64,
    i64,
    is_data,
    record_of,
)


class Array:
    """The annotation of an array: ``Array[f64, "n d"]`` has a scalar type and one size an axis.

    Sizes are names, integers or expressions of both without spaces (``"k d*(d-1)//2"``), or Python integers:
    ``Array[f64, 3, 4]``. Of a record, as in ``Array[Point, "n"]``, it is the record whose fields have these axes in
    front. Raises TypeError or ValueError when they are something else, or no array can have them:
    below zero whatever the names stand for, or with an integer of 2**63 or more.
    """

    def __class_getitem__(cls, key: Any) -> Any:
        scalar, *sizes = key if isinstance(key, tuple) else (key,)
        if not isinstance(scalar, Scalar) and not hasattr(scalar, "declared_type"):
            raise TypeError(f"Array[...] takes a scalar type such as az.f64, or a record, first, not {scalar!r}")
        dims: list[Dim] = []
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, str | int):
                raise TypeError(f"the sizes of an Array are names, integers or expressions of both, not {size!r}")
            try:
                parts = [Dim.of(part) for part in size.split()] if isinstance(size, str) else [Dim.of(size)]
            except ValueError as error:
                raise ValueError(f"in the sizes {size!r}, which are separated by spaces: {error}") from None
            for dim in parts:
                if (-dim - 1).is_nonnegative() or not dim.fits():
                    raise ValueError(f"in the sizes {size!r}: a size of {dim}; sizes are from 0 to 2**63 - 1")
            dims.extend(parts)
        if not dims:
            single = f"az.{scalar} for a scalar" if isinstance(scalar, Scalar) else "the type alone for a record"
            raise TypeError(f"an array has at least one axis: write {single}")
        if len(dims) > MOST_AXES:
            raise ValueError(f"an array has at most {MOST_AXES} axes, as in NumPy, not {len(dims)}")
        return ArrayType(scalar, tuple(dims)) if isinstance(scalar, Scalar) else RecordArray(scalar, tuple(dims))


@dataclass(frozen=True)
class RecordArray:
    """An array of records, which is a record of arrays: those of its fields, with these axes in front."""

    record: Any
    dims: tuple[Dim, ...]

    def __repr__(self) -> str:
        return f"az.Array[{getattr(self.record, '__name__', self.record)}, '{' '.join(map(str, self.dims))}']"

    def declared(self, scope: Scope) -> Declared:
        """The record as a structure of types. Raises TypeError for a type that is no record of numbers and arrays."""
        type: Named = self.record.declared_type(scope)
        fields = Declared(trees.LEAF, (type,)).expanded()
        other = [field for field in fields.types if not is_data(field)]
        if other:
            problem = "has variants" if other == [type] else f"has a field of type {other[0]}"
            raise TypeError(f"an array of records is a record of arrays, and {type} {problem}")
        arrays = [array_of(element(field), self.dims + dims(field)) for field in fields.types]
        return Declared(fields.shape, tuple(arrays))


class Function:
    """The annotation of a function that is a value: ``Function[[f64, i64], f64]``.

    Structures of parameters and results are taken apart: several results are ``Function[[f64], tuple[f64, f64]]``.
    Raises TypeError when a parameter or the result is no type.
    """

    def __class_getitem__(cls, key: Any) -> FunctionType:
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], list | tuple):
            raise TypeError(f"Function[[parameters], result] takes a list and a result, not {key!r}")
        parameters = [type for part in key[0] for type in read_annotation(part).types]
        return FunctionType(tuple(parameters), read_annotation(key[1]).types)


@dataclass(frozen=True)
class Declared:
    """A structure with types at its leaves."""

    shape: Shape
    types: tuple[Type, ...]

    def __str__(self) -> str:
        return str(self.types[0]) if self.shape == trees.LEAF else _shown(self.shape, list(self.types))

    __repr__ = __str__

    @property
    def type(self) -> Type:
        """The type of the whole as one value: that of a tuple where there are several leaves."""
        return self.types[0] if self.shape == trees.LEAF else TupleType(self.types)

    def expanded(self) -> Declared:
        """The same with the fields of records in their places: what programs take and give."""
        parts = [_expanded(type) for type in self.types]
        shape = trees.grafted(self.shape, [part.shape for part in parts])
        return Declared(shape, tuple([type for part in parts for type in part.types]))


def _expanded(type: Type) -> Declared:
    """A type as a structure of types: a record as its fields, a tuple in one as its items."""
    record = record_of(type)
    if record is not None:
        cls, fields = record
        container, keys, types = cls, tuple(fields), tuple(fields.values())
    elif isinstance(type, TupleType):
        container, keys, types = tuple, (), type.items
    else:
        return Declared(trees.LEAF, (type,))
    return Declared(Shape(container, keys, (trees.LEAF,) * len(types)), types).expanded()


def _shown(shape: Shape, types: list[Type]) -> str:
    if shape.container is None:
        return str(types.pop(0))
    parts = [_shown(inner, types) for inner in shape.inner]
    if shape.container is dict:
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(shape.keys, parts, strict=True)) + "}"
    name = "" if shape.container is tuple else shape.container.__name__
    return f"{name}({', '.join(parts)}{',' if len(parts) == 1 and not name else ''})"


Scope = Mapping[str, Any]

_NO_SCOPE: Scope = {}


def read_annotation(annotation: Any, scope: Scope = _NO_SCOPE) -> Declared:
    """What an annotation declares; ``scope`` holds the names that annotations in text may use.

    Raises TypeError for what is no type of the language and no structure of such types.
    """
    if isinstance(annotation, str):
        return read_annotation(_evaluated(annotation, scope), scope)
    if isinstance(annotation, typing.ForwardRef):
        return read_annotation(_evaluated(annotation.__forward_arg__, scope), scope)
    if isinstance(annotation, typing.TypeVar):
        return Declared(trees.LEAF, (TypeVariable(annotation.__name__),))
    if isinstance(annotation, Scalar | ArrayType | TupleType | FunctionType | TypeVariable | Named):
        return Declared(trees.LEAF, (annotation,))
    if isinstance(annotation, RecordArray):
        return annotation.declared(scope)
    if hasattr(annotation, "declared_type"):
        return Declared(trees.LEAF, (annotation.declared_type(scope),))
    if annotation is None or annotation is type(None):
        return Declared(Shape(type(None)), ())
    if isinstance(annotation, tuple | list):
        return _structure(type(annotation), getattr(annotation, "_fields", ()), annotation, scope)
    if isinstance(annotation, dict):
        return _structure(dict, tuple(annotation), list(annotation.values()), scope)
    if typing.get_origin(annotation) is tuple:
        return _structure(tuple, (), typing.get_args(annotation), scope)
    if isinstance(annotation, type):
        scope = {**scope, **vars(sys.modules.get(annotation.__module__, builtins))}
        fields = inspect.get_annotations(annotation)
        if typing.is_typeddict(annotation):
            return _structure(dict, tuple(fields), list(fields.values()), scope)
        if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
            return _structure(annotation, annotation._fields, [fields[key] for key in annotation._fields], scope)
        if hasattr(annotation, "__dataclass_fields__"):
            keys = trees.field_names(annotation)
            declared = annotation.__dataclass_fields__
            return _structure(annotation, keys, [declared[key].type for key in keys], scope)
    if hasattr(annotation, "__array__") and not isinstance(annotation, type):
        raise TypeError(
            f'a value of type {type(annotation).__name__} is no type, as az.f64 or az.Array[az.f64, "n"] is'
        )
    raise TypeError(
        f"{annotation!r} is neither a scalar or array type of the language, nor a data type, nor a structure of these "
        "(tuple[...], a dictionary of types, a named tuple or a dataclass)"
    )


def _structure(container: type, keys: tuple[Any, ...], parts: Sequence[Any], scope: Scope) -> Declared:
    if builtins.any(part is Ellipsis for part in parts):
        raise TypeError("a tuple of any length is no type of the language: its items are written one by one")
    inner = [read_annotation(part, scope) for part in parts]
    shape = Shape(container, keys, tuple([part.shape for part in inner]))
    return Declared(shape, tuple([type for part in inner for type in part.types]))


def _evaluated(text: str, scope: Scope) -> Any:
    try:
        return eval(text, dict(scope))
    except Exception as error:
        raise TypeError(f"the annotation {text!r} cannot be read: {error}") from error


def value_type(annotation: Any, scope: Scope = _NO_SCOPE) -> Type:
    """The type of one value that an annotation declares: a structure of several leaves is a tuple.

    This is how fields and type arguments are read. Raises TypeError for a structure other than a tuple.
    """
    while isinstance(annotation, str):
        annotation = _evaluated(annotation, scope)
    origin = typing.get_origin(annotation)
    if isinstance(annotation, tuple) or origin is tuple:
        parts = annotation if isinstance(annotation, tuple) else typing.get_args(annotation)
        if builtins.any(part is Ellipsis for part in parts):
            raise TypeError("a tuple of any length is no type of the language: its items are written one by one")
        return TupleType(tuple([value_type(part, scope) for part in parts]))
    declared = read_annotation(annotation, scope)
    if declared.shape != trees.LEAF:
        raise TypeError(f"{annotation!r} is not the type of one value: write a tuple, or declare a data type")
    return declared.types[0]


@dataclass(frozen=True)
class Omitted:
    """The default of a parameter that takes arguments of another type, as a batch: a structure of its own."""

    value: Any

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a program: a type, a structure of types, a Python type when it is static, or inferred."""

    name: str
    type: Type | None
    static: Any = None
    default: Any = inspect.Parameter.empty
    structure: Declared | None = None  # of a parameter that has several leaves
    # A tangent of the parameter of this number, or a cotangent of this program's result, whose types it follows
    like: Any = None
    omitted: Declared | None = None  # what a default that is `Omitted` is declared to be, besides arguments

    def __str__(self) -> str:
        shown = _python_name(self.static) if self.static else self.declared
        return self.name if shown is None else f"{self.name}: {shown}"

    @property
    def declared(self) -> Declared | None:
        """What its annotation says; None when it is static or takes its type from an argument."""
        return self.structure if self.type is None else Declared(trees.LEAF, (self.type,))

    def taking(self, argument: Any) -> Parameter:
        """The same with the type of what it takes: of an argument, or of its default."""
        if self.omitted is None or not isinstance(argument, Omitted):
            return self
        return replace(self, type=None, structure=self.omitted)

    def expanded(self) -> Parameter:
        """The same with the fields of records in their places."""
        if self.declared is None:
            return self
        declared = self.declared.expanded()
        one = declared.types[0] if declared.shape == trees.LEAF else None
        return replace(self, type=one, structure=declared if one is None else None)

    def flatten(self, argument: Any, program: str) -> tuple[list[Any], Shape]:
        """The leaves of an argument, and its shape: the declared one, if there is one.

        Raises TypeError when the argument has another structure.
        """
        if self.type is not None:
            return [argument], trees.LEAF
        if self.structure is None:
            return trees.flatten(argument)
        return self.of_shape(argument, self.structure.shape, program), self.structure.shape

    def of_shape(self, argument: Any, shape: Shape, program: str) -> list[Any]:
        """The leaves of an argument of a shape; TypeError when it has another one."""
        try:
            return trees.matched(shape, argument)
        except TypeError as error:
            path, problem = error.args
            raise TypeError(at_line(f"{program}: argument {self.name + path!r} {problem}")) from None

    def check_static(self, argument: Any, program: str) -> Any:
        """The value of a static parameter, NumPy's scalars as Python's; TypeError when it is of another type."""
        if isinstance(argument, np.bool_) and self.static is bool:
            return bool(argument)
        if isinstance(argument, np.integer) and self.static is int:
            return operator.index(argument)
        if isinstance(argument, np.floating | int | float) and self.static is float and not isinstance(argument, bool):
            return float(argument)
        fits = callable(argument) if self.static is collections.abc.Callable else isinstance(argument, self.static)
        if not fits or (isinstance(argument, bool) and self.static is int):
            message = f"{program}: parameter {self.name!r} is a static {_python_name(self.static)}"
            raise TypeError(at_line(f"{message}, got {_described(argument)}"))
        try:
            hash(argument)
        except TypeError:
            message = f"{program}: parameter {self.name!r} is static, so its value must be hashable"
            raise TypeError(at_line(f"{message}, got {_described(argument)}")) from None
        return argument


def told_apart(static: Any) -> Any:
    """A static value, told from those that are equal to it and mean something else: 0.0 and -0.0, 1 and True."""
    if isinstance(static, float):
        return type(static), static.hex()
    if isinstance(static, tuple):
        return type(static), tuple(map(told_apart, static))
    if isinstance(static, frozenset):
        return type(static), frozenset(map(told_apart, static))
    return type(static), static


def fresh(name: str, taken: Sequence[str]) -> str:
    """The name, or the first of name2, name3, ... that is not taken."""
    numbered = (f"{name}{k}" for k in range(2, len(taken) + 3))
    return next(candidate for candidate in (name, *numbered) if candidate not in taken)


def _described(argument: Any) -> str:
    return "an expression" if hasattr(argument, "apply_primitive") else type(argument).__name__


def _python_name(static: Any) -> str:
    return str(getattr(static, "__name__", static))


_STATIC = (int, float, bool, str, tuple, frozenset, bytes, collections.abc.Callable)


def _static_type(annotation: Any) -> Any:
    """The Python type of a static parameter, or None."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return annotation
    if annotation is typing.Callable or typing.get_origin(annotation) is collections.abc.Callable:
        return collections.abc.Callable
    return next((static for static in _STATIC if annotation is static), None)


def _static_default(default: Any) -> Any:
    """The Python type of a parameter without annotation, if its default is no value of the language."""
    if default is inspect.Parameter.empty or hasattr(default, "as_expression"):
        return None
    if isinstance(default, enum.Enum):
        return type(default)
    if isinstance(default, str | bytes):
        return type(default)
    return collections.abc.Callable if callable(default) else None


def read_parameters(function: Callable[..., Any], count: int | None = None) -> tuple[list[Parameter], Declared | None]:
    """The parameters of a function, and what its return annotation declares if there is one.

    With the ``count`` of the arguments ``*xs`` stands for those that are left. Raises TypeError, with the name of the
    parameter, for annotations that mean nothing here.
    """
    signature = inspect.signature(function)
    name = getattr(function, "__name__", "program")
    scope = scope_of(function)
    parameters = []
    for p in _named(signature, name, count):
        where = f"{name}: parameter {p.name!r}"
        annotation = _resolved(p.annotation, scope, where)
        static = _static_default(p.default) if annotation is None else _static_type(annotation)
        if annotation is None or static is not None:
            parameters.append(Parameter(p.name, None, static, p.default))
        else:
            declared = _declared(annotation, scope, where, ", nor a static Python type")
            one = declared.types[0] if declared.shape == trees.LEAF else None
            parameters.append(Parameter(p.name, one, None, p.default, declared if one is None else None))
    result = _resolved(signature.return_annotation, scope, f"{name}: the result")
    return parameters, None if result is None else _declared(result, scope, f"{name}: the result", "")


def _named(signature: inspect.Signature, name: str, count: int | None) -> list[inspect.Parameter]:
    """The parameters one by one: ``*xs`` is ``xs_0, xs_1, ...``, where it is known how many these are."""
    named: list[inspect.Parameter] = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL and count is not None:
            named += [p.replace(name=f"{p.name}_{k}", kind=p.POSITIONAL_ONLY) for k in range(count - len(named))]
        elif p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            given = f"**{p.name}" if p.kind is p.VAR_KEYWORD else f"*{p.name}"
            raise TypeError(at_line(f"{name}: the parameters of a program are named one by one, but there is {given}"))
        else:
            named.append(p)
    return named


def scope_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that annotations of a function in text may use: its module's, and those that it captures."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    scope = dict(getattr(function, "__globals__", {}))
    if isinstance(function, python_types.FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # it is defined further down
                scope[name] = cell.cell_contents
    return scope


def _resolved(annotation: Any, scope: Scope, where: str) -> Any:
    """An annotation, evaluated if it is text; None when there is none, or one that only a type checker reads."""
    try:
        meant = _evaluated(annotation, scope) if isinstance(annotation, str) else annotation
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from error
    return None if any(meant is none for none in (inspect.Parameter.empty, None, Any, Expr)) else meant


def _declared(annotation: Any, scope: Scope, where: str, also: str) -> Declared:
    try:
        return read_annotation(annotation, scope)
    except TypeError as error:
        whole = f"{annotation!r} is "
        problem = str(error).removeprefix(whole)
        if str(error).startswith(whole):
            raise TypeError(f"{where} has the annotation {annotation!r}, which is {problem}{also}") from None
        raise TypeError(f"{where} has the annotation {annotation!r}: {problem}") from None


def type_of_argument(argument: Any, name: str, program: str) -> Type:
    """The type that a parameter without annotation takes from its argument, with fresh names for its sizes."""
    if hasattr(argument, "natural_type"):
        found: Type = argument.natural_type()
        return found
    if isinstance(argument, bool | int | float) and not isinstance(argument, np.generic):
        return bool_ if isinstance(argument, bool) else i64 if isinstance(argument, int) else f64
    what = f"{program}: argument {name!r}"
    if isinstance(argument, Expr):
        raise TypeError(at_line(f"{what} is {argument!r}: {INLINE}"))
    if is_masked(argument):
        raise TypeError(at_line(f"{what} is {MASKED}"))
    array = argument if on_device(argument) else as_array(argument)
    scalar = scalar_in(array)
    if scalar is None:
        given = "" if array.dtype == object else f" ({array.dtype})"
        problem = f"of type {type(argument).__name__}{given} is not a value of the language"
        raise TypeError(at_line(f"{what} {problem}{advice(array.dtype, None)}"))
    return array_of(scalar, tuple([Dim.atom(Name(f"{name}_{axis}")) for axis in range(len(array.shape))]))
