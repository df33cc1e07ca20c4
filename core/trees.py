"""Structured values: nested tuples, lists and dictionaries with leaves.

Programs take and give back such structures; the core knows their leaves only. ``flatten`` takes a structure apart,
``unflatten`` puts leaves back, and the *shape* between them says where they go.

>>> leaves, shape = flatten({"a": 1, "b": (2, 3)})
>>> leaves
[1, 2, 3]
>>> unflatten(shape, [10, 20, 30])
{'a': 10, 'b': (20, 30)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class Structure(Any):  # type: ignore[misc]
        """A structured value, or a leaf. To a type checker it is whatever the context takes it for."""
else:
    Structure = Any


@dataclass(frozen=True)
class Shape:
    """How a structure is built: the container, the keys of a dictionary, and the shapes inside."""

    container: type | None  # None: a leaf
    keys: tuple[Any, ...] = ()
    inner: tuple[Shape, ...] = ()

    @property
    def leaves(self) -> int:
        return 1 if self.container is None else sum(shape.leaves for shape in self.inner)


LEAF = Shape(None)


def flatten(tree: Any, none_is_leaf: bool = False) -> tuple[list[Any], Shape]:
    """The leaves of a structure in order (dictionaries by insertion), and its shape.

    None is a structure without leaves, unless it is said to be a leaf.
    """
    leaves: list[Any] = []

    def shape_of(tree: Any) -> Shape:
        if isinstance(tree, dict):
            return Shape(dict, tuple(tree), tuple([shape_of(value) for value in tree.values()]))
        if tree is None and not none_is_leaf:
            return Shape(type(None))
        if isinstance(tree, tuple | list):
            return Shape(type(tree), (), tuple([shape_of(value) for value in tree]))
        leaves.append(tree)
        return LEAF

    return leaves, shape_of(tree)


def unflatten(shape: Shape, leaves: Sequence[Any]) -> Structure:
    """The structure of this shape with these leaves."""
    structure: Structure = _build(shape, iter(leaves))
    return structure


def _build(shape: Shape, leaves: Iterator[Any]) -> Any:
    if shape.container is None:
        return next(leaves)
    if shape.container is type(None):
        return None
    values = [_build(inner, leaves) for inner in shape.inner]
    if shape.container is dict:
        return dict(zip(shape.keys, values, strict=True))
    if hasattr(shape.container, "_fields"):
        return shape.container(*values)
    return shape.container(values)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Structure:
    """The structure with the function applied to each leaf."""
    leaves, shape = flatten(tree)
    return unflatten(shape, [function(leaf) for leaf in leaves])
