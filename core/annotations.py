"""Annotations of parameters: ``az.f64``, ``az.Array[az.f64, "n d"]``, Python types for static parameters."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import trees
from .dims import Dim
from .types import ArrayType, Scalar, Type, array_of, bool_, f64, i64, scalar_of


class Array:
    """The annotation of an array: ``Array[f64, "n d"]`` has a scalar type and one size an axis.

    Sizes are names, integers or expressions of both without spaces (``"k d*(d-1)//2"``), or Python integers:
    ``Array[f64, 3, 4]``. Raises TypeError or ValueError when they are something else.
    """

    def __class_getitem__(cls, key: Any) -> ArrayType:
        scalar, *sizes = key if isinstance(key, tuple) else (key,)
        if not isinstance(scalar, Scalar):
            raise TypeError(f"Array[...] takes a scalar type such as az.f64 first, not {scalar!r}")
        dims: list[Dim] = []
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, str | int):
                raise TypeError(f"the sizes of an Array are names, integers or expressions of both, not {size!r}")
            try:
                dims.extend([Dim.of(part) for part in size.split()] if isinstance(size, str) else [Dim.of(size)])
            except ValueError as error:
                raise ValueError(f"in the sizes {size!r}, which are separated by spaces: {error}") from None
        if not dims:
            raise TypeError(f"an array has at least one axis: write az.{scalar} for a scalar")
        return ArrayType(scalar, tuple(dims))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a program: a type, or a Python type when it is static, or neither when it is inferred."""

    name: str
    type: Scalar | ArrayType | None
    static: builtins.type[Any] | None = None
    default: Any = inspect.Parameter.empty

    def __str__(self) -> str:
        shown = self.static.__name__ if self.static else self.type
        return self.name if shown is None else f"{self.name}: {shown}"

    def leaves(self, argument: Any) -> list[Any]:
        """The leaves of an argument; an annotated parameter is one leaf."""
        return trees.flatten(argument)[0] if self.type is None else [argument]

    def check_static(self, argument: Any, program: str) -> Any:
        assert self.static is not None
        if not isinstance(argument, self.static):
            got = type(argument).__name__
            raise TypeError(f"{program}: parameter {self.name!r} is a static {self.static.__name__}, got {got}")
        return argument


_STATIC = (int, float, bool, str, tuple, frozenset, bytes)


def read_parameters(function: Callable[..., Any]) -> tuple[list[Parameter], Any]:
    """The parameters of a function and its return annotation, with annotations in text evaluated."""
    signature = inspect.signature(function)
    scope = dict(getattr(function, "__globals__", {}))
    scope.update(inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {})

    def resolved(annotation: Any, where: str) -> Any:
        if annotation is inspect.Parameter.empty or annotation is None or annotation is Any:
            return None
        if isinstance(annotation, str):
            try:
                return eval(annotation, scope)
            except Exception as error:
                name = getattr(function, "__name__", "program")
                raise TypeError(f"{name}: the annotation {annotation!r} of {where} cannot be read: {error}") from error
        return annotation

    parameters = []
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"{function.__name__}: a program has no *{p.name} parameter")
        annotation = resolved(p.annotation, f"parameter {p.name!r}")
        if annotation is None:
            parameters.append(Parameter(p.name, None, None, p.default))
        elif isinstance(annotation, Scalar | ArrayType):
            parameters.append(Parameter(p.name, annotation, None, p.default))
        elif annotation in _STATIC:
            parameters.append(Parameter(p.name, None, annotation, p.default))
        else:
            message = f"{function.__name__}: parameter {p.name!r} has the annotation {annotation!r}, which is neither"
            raise TypeError(f"{message} a scalar or array type of the language nor a static Python type")
    return parameters, resolved(signature.return_annotation, "the result")


def type_of_argument(argument: Any, name: str, program: str) -> Type:
    """The type that a parameter without annotation takes from its argument, with fresh names for its sizes."""
    if isinstance(argument, bool | int | float) and not isinstance(argument, np.generic):
        return bool_ if isinstance(argument, bool) else i64 if isinstance(argument, int) else f64
    array = np.asarray(argument)
    scalar = scalar_of(array.dtype)
    if scalar is None:
        raise TypeError(
            f"{program}: argument {name!r} of type {type(argument).__name__} is not a value of the language"
        )
    return array_of(scalar, tuple([Dim.parse(f"{name}_{axis}") for axis in range(array.ndim)]))
