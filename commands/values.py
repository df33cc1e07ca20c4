"""Values on the command line: what a text stands for, where an argument of a type is expected.

    2.5    [1,2,3]                              a literal of Python, or JSON: numbers and arrays
    {"w": [[1,2]], "b": [0]}                    a structure with names: a dictionary, a dataclass, a record of az.data
    Nil    {"Cons": [1.5, "Nil"]}               a value of a type with variants: its constructor, and what that takes
    {"Cons": {"head": 1.5, "tail": "Nil"}}      the same, with the names of the fields
    square    az.tanh                           a function, by its name in the file of the program
    points.npy                                  an array of NumPy's

Literals are read by ``ast.literal_eval`` and ``json``, and by nothing else: no text is code, and a function has a name.
A structure that has other parts than the declared one is refused here. Arrays go to the program as they are, but for
floating literals, which are rounded to a declared f32: what does not fit is its error.
"""

from __future__ import annotations

import ast
import enum
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..core import trees
from ..core.annotations import Declared
from ..core.limits import CALLS, nested_calls
from ..core.trees import LEAF, Shape
from ..core.types import FunctionType, Named, TupleType, Type, element, f64, is_data
from .command import UsageError, closest


def value_of(text: str, name: str, declared: Declared | None, static: Any, module: ModuleType) -> Any:
    """What a text stands for; functions have the names that a module gives them. UsageError for what is no value."""
    if static is str:
        return text
    if static is Callable or is_function(declared):
        return _function(text, name, module)
    if isinstance(static, type) and issubclass(static, enum.Enum):
        if text not in static.__members__:
            raise UsageError(f"{name}={text}: {static.__name__} has {', '.join(static.__members__)}")
        return static[text]
    if text.endswith(".npy"):
        return _npy(text)
    if static is not None:
        return _literal(text, name)
    if declared is None:
        return _undeclared(_literal(text, name))
    bare = text.isidentifier() and isinstance(only_type(declared), Named)  # a constructor without fields
    try:
        with nested_calls(CALLS):
            return _Typed(module).structure(text if bare else _literal(text, name), declared, name)
    except RecursionError:
        raise UsageError(f"{name}={_short(text)} is nested too deep for a command line") from None


def is_function(declared: Declared | None) -> bool:
    """Whether a value of one function type is declared."""
    return isinstance(only_type(declared), FunctionType)


def written(name: str, type: Type | None, static: Any = None) -> str:
    """How an argument is written: ``x=...``, ``f=NAME``, or by the constructors of its type."""
    if static is Callable or isinstance(type, FunctionType):
        return f"{name}=NAME, a function of the file"
    if not isinstance(type, Named):
        return f"{name}=..."
    ways = []
    for variant in type.declaration.variants:
        fields = ", ".join([f'"{field}": {wanted}' for field, wanted in type.fields(variant).items()])
        ways.append(f'{{"{variant}": {{{fields}}}}}' if fields else variant)
    return f"{name}={' or '.join(ways)}"


def only_type(declared: Declared | None) -> Type | None:
    """The type of what is declared, if that is one value."""
    return declared.types[0] if declared is not None and declared.shape == LEAF else None


def _literal(text: str, name: str) -> Any:
    """A literal of Python, or JSON; inf and nan by themselves, too."""
    for read in (ast.literal_eval, json.loads, _infinite):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return read(text.strip())
    ways = "Numbers and lists are written as in Python: 3.0, [1,2,3]; or x=random:1000x16, or a file: x=points.npy."
    raise UsageError(f"{name}={_short(text)} is no value", ways)


def _infinite(text: str) -> float:
    if not re.fullmatch(r"[+-]?(inf|nan)", text):
        raise ValueError(text)
    return float(text)


def _undeclared(value: Any) -> Any:
    """A list as an array, where nothing is declared."""
    if not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:  # rows of several lengths: a structure
        return value
    return array if array.dtype.kind in "bif" else value


@dataclass(frozen=True)
class _Typed:
    """Values of declared types; functions have the names that a module gives them."""

    module: ModuleType

    def structure(self, value: Any, declared: Declared, where: str) -> Any:
        """The structure that a value is, with leaves of the declared types."""
        leaves = zip(_leaves(value, declared.shape, where), declared.types, strict=True)
        return trees.unflatten(declared.shape, [self.leaf(leaf, type, at) for (leaf, at), type in leaves])

    def leaf(self, value: Any, type: Type, where: str) -> Any:
        """The value of one type. UsageError for what has other parts than that."""
        match type:
            case FunctionType():
                return _function(value, where, self.module)
            case Named() if type.declaration.is_record:
                return self.structure(value, Declared(LEAF, (type,)).expanded(), where)
            case TupleType(items):
                return self.structure(value, Declared(_tuple(len(items)), items), where)
            case Named():
                return self.constructed(value, type, where)
        return _rounded(value, type)

    def constructed(self, value: Any, type: Named, where: str) -> Any:
        """The value of a type with variants: ``"Nil"``, or ``{"Cons": ...}`` with the fields in order or by name."""
        variants = type.declaration.variants
        variant, given = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (value, [])
        if not isinstance(variant, str) or variant not in variants:
            hint = closest(variant, list(variants)) if isinstance(variant, str) else ""
            raise UsageError(f"{where} is {type}, not {_short(value)}", f"Give {written(where, type)}. {hint}".rstrip())
        fields, made = type.fields(variant), type.declaration.classes[variant]
        declared = Declared(Shape(made, tuple(fields), (LEAF,) * len(fields)), tuple(fields.values()))
        if isinstance(given, list | tuple) and len(given) == len(fields):
            given = dict(zip(fields, given, strict=True))
        return self.structure(given, declared, f"{where}, {variant}")


def _tuple(count: int) -> Shape:
    return Shape(tuple, (), (LEAF,) * count)


def _leaves(value: Any, shape: Shape, where: str) -> Iterator[tuple[Any, str]]:
    """What a value has for each leaf of a shape, and where that is. UsageError for what has other parts."""
    if shape.container is None:
        yield value, where
        return
    if shape.container is type(None):
        fits, parts = value is None, []
    elif isinstance(value, dict):
        fits, parts = value.keys() == set(shape.keys), [value.get(key) for key in shape.keys]
    else:
        by_position = issubclass(shape.container, tuple | list) and isinstance(value, tuple | list)
        fits, parts = by_position and len(value) == len(shape.inner), value
    if not fits:
        raise UsageError(f"{where} is {_outline(shape)}, not {_short(value)}")
    for part, inner, step in zip(parts, shape.inner, trees.steps(shape), strict=True):
        yield from _leaves(part, inner, where + step)


def _outline(shape: Shape) -> str:
    """How a structure is written, without what is in it."""
    if shape.container is type(None):
        return "null"
    if shape.keys:
        return "{" + ", ".join([f"{json.dumps(key)}: ..." for key in shape.keys]) + "}"
    return f"[{', '.join(['...'] * len(shape.inner))}]"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _rounded(value: Any, type: Type) -> Any:
    """A floating literal rounded to a declared type that is narrower than its own."""
    if not is_data(type) or element(type).kind != "float" or element(type) is f64:
        return value
    try:
        array = np.array(value)
    except ValueError:
        return value
    return array.astype(element(type).dtype)[()] if array.dtype.kind in "if" else value


def _function(name: Any, where: str, module: ModuleType) -> Callable[..., Any]:
    """The function that has a name, with dots, in a module."""
    found: Any = module
    for part in name.split(".") if isinstance(name, str) else [""]:
        found = getattr(found, part, None)
    if not callable(found):
        known = [key for key, each in vars(module).items() if callable(each) and not key.startswith("_")]
        hint = closest(name, known) if isinstance(name, str) else ""
        file = Path(module.__file__ or module.__name__).name
        problem = f"{where} is a function, and {file} has none that is called {_short(name)}"
        raise UsageError(problem, f"Name one of the file, as square or az.tanh. {hint}".rstrip())
    return found  # type: ignore[no-any-return]


# Files


def _npy(file: str) -> Any:
    array = _loaded(file)
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{file} holds several arrays: give it by itself, as an .npz by the names of parameters")
    return array


def arrays_of(file: str) -> dict[str, Any]:
    """The arrays of an .npz, by their names."""
    arrays = _loaded(file)
    if isinstance(arrays, np.ndarray):
        raise UsageError(f"{file} holds one array without a name: write x={file.removesuffix('z')}y, with its suffix")
    with arrays:
        return {name: _unpickled(file, partial(arrays.__getitem__, name))[()] for name in arrays.files}


def _loaded(file: str) -> Any:
    return _unpickled(file, lambda: np.load(file, allow_pickle=False))


def _unpickled(file: str, load: Callable[[], Any]) -> Any:
    """What is in a file; objects of Python are not loaded, since that would run code."""
    try:
        return load()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{file} is no file of arrays: {error}") from None
