"""Structured values: nested tuples, lists, dictionaries, named tuples, dataclasses and records, with leaves.

Programs take and give back such structures; the core knows their leaves only. ``flatten`` takes a structure apart,
``unflatten`` puts leaves back, and the *shape* between them says where they go. None is a structure without leaves.

>>> leaves, shape = flatten({"a": 1, "b": (2, 3)})
>>> leaves
[1, 2, 3]
>>> unflatten(shape, [10, 20, 30])
{'a': 10, 'b': (20, 30)}
>>> paths(shape)
["['a']", "['b'][0]", "['b'][1]"]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .types import SCALARS

if TYPE_CHECKING:

    class Structure(Any):  # type: ignore[misc]
        """A structured value, or a leaf. To a type checker it is whatever the context takes it for."""
else:
    Structure = Any


@dataclass(frozen=True)
class Shape:
    """How a structure is built: the container, the names of its parts if they have any, and the shapes inside."""

    container: type | None  # None: a leaf
    keys: tuple[Any, ...] = ()
    inner: tuple[Shape, ...] = ()

    def __hash__(self) -> int:
        """That of the outermost container: calls look shapes up, and those of one program differ little inside."""
        return hash((self.container, self.keys, len(self.inner)))

    @cached_property
    def is_flat(self) -> bool:
        """Whether all parts are leaves."""
        return all(inner is LEAF or inner == LEAF for inner in self.inner)

    @property
    def leaves(self) -> int:
        return 1 if self.container is None else sum(shape.leaves for shape in self.inner)

    def __str__(self) -> str:
        """The structure with a dot for each leaf: ``(., {'a': .})``."""
        parts = [str(shape) for shape in self.inner]
        if self.container is None:
            return "."
        if self.container is type(None):
            return "None"
        if self.container is dict:
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(self.keys, parts, strict=True)) + "}"
        if self.container is list:
            return f"[{', '.join(parts)}]"
        if self.container is tuple:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        return f"{self.container.__name__}({', '.join(parts)})"


LEAF = Shape(None)


class Record:
    """What classes derive from whose values may be structures with named parts: declared data types (``data.py``)."""

    __slots__ = ("_cell", "_values")

    _cell: Any  # empty; while machine code walks over values, where it has copied this one to
    _values: tuple[Any, ...]  # the parts as they were given

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        """The names of the parts."""
        raise NotImplementedError

    @classmethod
    def _keys(cls) -> tuple[str, ...] | None:
        """The names of the parts of a structure; None where a value is a leaf."""
        raise NotImplementedError

    @classmethod
    def _of(cls, values: Sequence[Any]) -> Any:
        """The value with these parts."""
        raise NotImplementedError

    def _flat(self) -> Shape | None:
        """The shape, where all parts are leaves as they are; None to look at them one by one."""
        raise NotImplementedError

    def _parts(self) -> list[tuple[Any, bool]]:
        """The parts as values of their types, and whether each is a leaf whatever it is."""
        raise NotImplementedError


# The classes of most leaves that are no expressions
LEAVES = frozenset([np.ndarray, float, int, bool, *[scalar.dtype.type for scalar in SCALARS.values()]])


def flatten(tree: Any, plain: bool = False, records: bool = True) -> tuple[list[Any], Shape]:
    """The leaves of a structure in order (dictionaries by insertion), and its shape.

    None is a structure without leaves, and what a record holds takes its type. A *plain* structure holds no values of
    programs, but numbers of axes: None is a leaf, too. Records may be said to be leaves.
    """
    leaves: list[Any] = []

    def leaf(tree: Any) -> Shape:
        leaves.append(tree)
        return LEAF

    def shape_of(tree: Any) -> Shape:
        if type(tree) in LEAVES:
            return leaf(tree)
        if isinstance(tree, tuple | list):
            return Shape(type(tree), getattr(tree, "_fields", ()), tuple([shape_of(value) for value in tree]))
        if isinstance(tree, dict):
            return Shape(dict, tuple(tree), tuple([shape_of(value) for value in tree.values()]))
        if tree is None and not plain:
            return Shape(type(None))
        if isinstance(tree, Record) and records:
            flat = tree._flat()
            if flat is not None:
                leaves.extend(tree._values)
                return flat
            keys = tree._keys()
            if keys is not None:
                parts = [(value, False) for value in tree._values] if plain else tree._parts()
                inner = [leaf(part) if whole else shape_of(part) for part, whole in parts]
                return Shape(type(tree), keys, tuple(inner))
        if hasattr(type(tree), "__dataclass_fields__"):
            keys = field_names(type(tree))
            return Shape(type(tree), keys, tuple([shape_of(getattr(tree, key)) for key in keys]))
        return leaf(tree)

    return leaves, shape_of(tree)


def kinds(leaves: Sequence[Any], sizes: bool = False) -> tuple[Any, ...] | None:
    """What tells leaves apart that have other types: dtypes and ranks of arrays, or their sizes; classes of numbers.

    None when a leaf is something else.
    """
    if not LEAVES.issuperset(map(type, leaves)):
        return None
    if sizes:
        return tuple([(leaf.dtype, leaf.shape) if type(leaf) is np.ndarray else type(leaf) for leaf in leaves])
    return tuple([(leaf.dtype, leaf.ndim) if type(leaf) is np.ndarray else type(leaf) for leaf in leaves])


def parts(tree: Any) -> list[Any] | None:
    """What a structure is directly made of; None for a leaf."""
    leaves, shape = flatten(tree)
    if shape.container is None:
        return None
    found = iter(leaves)
    return [unflatten(inner, [next(found) for _ in range(inner.leaves)]) for inner in shape.inner]


def field_names(container: type) -> tuple[str, ...]:
    """The fields that a dataclass is made of."""
    fields = container.__dataclass_fields__  # type: ignore[attr-defined]
    return tuple([name for name, field in fields.items() if field.init and field._field_type.name == "_FIELD"])


def structure(x: Any) -> Structure:
    """A structured value, to a type checker."""
    value: Structure = x
    return value


def unflatten(shape: Shape, leaves: Sequence[Any]) -> Structure:
    """The structure of this shape with these leaves."""
    return structure(_build(shape, iter(leaves)))


def _build(shape: Shape, leaves: Iterator[Any]) -> Any:
    container: Any = shape.container
    if container is None:
        return next(leaves)
    if container is type(None):
        return None
    values = [_build(inner, leaves) for inner in shape.inner]
    if container is dict:
        return dict(zip(shape.keys, values, strict=True))
    if issubclass(container, Record):
        return container._of(values)
    return container(**dict(zip(shape.keys, values, strict=True))) if shape.keys else container(values)


def grafted(shape: Shape, inner: Sequence[Shape]) -> Shape:
    """A shape with other shapes in the places of its leaves."""
    rest = iter(inner)

    def grow(shape: Shape) -> Shape:
        return next(rest) if shape.container is None else replace(shape, inner=tuple(map(grow, shape.inner)))

    return grow(shape)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Structure:
    """The structure with the function applied to each leaf."""
    leaves, shape = flatten(tree)
    return unflatten(shape, [function(leaf) for leaf in leaves])


# Structures that are declared


def matched(shape: Shape, tree: Any, path: str = "") -> list[Any]:
    """The leaves of a structure that should have a shape, in the shape's order; what is a leaf there is not entered.

    A list may stand for a tuple and a tuple for a list or a named tuple; the keys of a dictionary may be in another
    order. Raises TypeError with two arguments: the path to a part that differs, and how it does.
    """
    container = shape.container
    parts: Sequence[Any]
    if container is None:
        return [tree]
    if container is type(None):
        if tree is not None:
            raise _unlike(path, "None", tree)
        return []
    if container is dict:
        if not isinstance(tree, dict) or tree.keys() != set(shape.keys):
            raise _unlike(path, f"a dictionary with the keys {', '.join(map(repr, shape.keys))}", tree)
        parts = [tree[key] for key in shape.keys]
    elif issubclass(container, tuple | list):
        if not isinstance(tree, tuple | list) or len(tree) != len(shape.inner):
            raise _unlike(path, f"a {container.__name__} of {len(shape.inner)}", tree)
        parts = tree
    else:
        if not isinstance(tree, container):
            raise _unlike(path, f"a {container.__name__}", tree)
        parts = tree._values if isinstance(tree, Record) else [getattr(tree, key) for key in shape.keys]
    if shape.is_flat:
        return list(parts)
    leaves: list[Any] = []
    for k, (inner, part) in enumerate(zip(shape.inner, parts, strict=True)):
        if inner.container is None:
            leaves.append(part)
        else:
            leaves += matched(inner, part, path + _step(shape, k))
    return leaves


def spread(prefix: Any, shape: Shape, path: str = "") -> list[Any]:
    """What a structure that may end early says of each leaf of a shape; raises what ``matched`` raises.

    >>> spread((0, None), flatten(({"a": 1, "b": 2}, 3))[1])
    [0, 0, None]
    """
    if prefix is None or flatten(prefix, plain=True)[1].container is None:
        return [prefix] * shape.leaves
    if shape.container is None:
        raise _unlike(path, "for one leaf", prefix)
    parts = matched(replace(shape, inner=(LEAF,) * len(shape.inner)), prefix, path)
    return [
        leaf
        for k, (inner, part) in enumerate(zip(shape.inner, parts, strict=True))
        for leaf in spread(part, inner, path + _step(shape, k))
    ]


def _unlike(path: str, wanted: str, got: Any) -> TypeError:
    """What is raised for a part at this path that is something else than wanted."""
    shown = f"an expression of type {got.type}" if hasattr(got, "apply_primitive") else type(got).__name__
    if isinstance(got, dict):
        shown = f"a dictionary with the keys {', '.join(map(repr, got))}"
    elif isinstance(got, tuple | list):
        shown = f"a {shown} of {len(got)}"
    return TypeError(path, f"is {wanted}, got {shown}")


def steps(shape: Shape) -> list[str]:
    """How one goes from a structure to its parts, as it is written in Python."""
    return [_step(shape, k) for k in range(len(shape.inner))]


def _step(shape: Shape, k: int) -> str:
    key = shape.keys[k] if shape.keys else k
    return f".{key}" if shape.keys and shape.container is not dict else f"[{key!r}]"


def paths(shape: Shape) -> list[str]:
    """How one gets at each leaf, as it is written in Python."""
    if shape.container is None:
        return [""]
    return [step + path for step, inner in zip(steps(shape), shape.inner, strict=True) for path in paths(inner)]


def leaf_names(name: str, shape: Shape) -> list[str]:
    """A name for each leaf of a structure that has a name: identifiers made of their paths."""
    return [identifier(name + path) for path in paths(shape)]


def identifier(place: str) -> str:
    """A place in a structure that has a name, as an identifier."""
    return re.sub(r"\W+", "_", place.replace("'", "")).rstrip("_")
