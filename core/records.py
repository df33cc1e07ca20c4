"""Records in programs: Python objects whose fields are expressions.

A record is a structure (``trees.py``), so no operation makes one: ``Params(p.w * 2, 0)`` in a program is an object that
holds two expressions. Its fields are looked at when it is made, as arguments of a program are (``inlining.py``). They
have the scalar types that are declared, and the sizes as far as these are known; a name of a size means the same in all
fields. An array of records is a record of arrays, so a field may have more axes in front. None is for what has no
value, such as the gradient by an integer.

What Python says adopts the declared types when a record is made in a program, and where one from outside comes into it:

    Point(x, 1)         x: f64              Point(x=<expression of type f64>, y=<expression of type f64>)
    Point(x > 0, 1)                         field 'x' of Point is f64, got bool
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import trees
from .annotations import Declared
from .builder import current
from .expr import Expr, is_number
from .functions import as_typed, converted, description
from .inlining import Inlining
from .source import at_line
from .trees import Record, Structure
from .types import FunctionType, Named, Type, element, is_data, rank


def fitted(record: Record, type: Named) -> Structure:
    """The record of this type with the fields of another one; TypeError where they do not fit."""
    name, declared = record.__class__.__qualname__, Declared(trees.LEAF, (type,)).expanded()
    try:
        leaves = trees.matched(declared.shape, record)
    except TypeError as error:
        path, problem = error.args
        raise TypeError(at_line(f"field {path[1:]!r} of {name} {problem}")) from None
    sizes, known = Inlining(name), []
    for k, (wanted, path) in enumerate(zip(declared.types, trees.paths(declared.shape), strict=True)):
        what = f"field {path[1:]!r} of {name}"
        if leaves[k] is not None:
            leaves[k] = x = _of_type(leaves[k], wanted, what)
            if is_data(wanted):
                if x.ndim < rank(wanted):
                    raise TypeError(at_line(f"{what} is {wanted}, got {x.type}"))
                known.append((x, wanted, f"field {path[1:]!r}"))
    for x, wanted, _ in known:
        sizes.bind(x, wanted)
    for x, wanted, what in known:
        sizes.check(x, wanted, what)
    return trees.unflatten(declared.shape, leaves)


def adopted(record: Record, type: Named) -> Structure:
    """A record from outside of the program, with expressions for what Python says in it, the rest as it is."""
    declared = Declared(trees.LEAF, (type,)).expanded()
    try:
        leaves = trees.matched(declared.shape, record)
    except TypeError:  # it holds something else, as a Jacobian does
        return trees.structure(record)
    name, paths = record.__class__.__qualname__, trees.paths(declared.shape)
    for k, (leaf, wanted, path) in enumerate(zip(leaves, declared.types, paths, strict=True)):
        if _is_plain(leaf, wanted):
            leaves[k] = _of_type(leaf, wanted, f"field {path[1:]!r} of {name}")
    return trees.unflatten(declared.shape, leaves)


def _of_type(leaf: Any, type: Type, what: str) -> Expr:
    """A leaf as an expression of a type, but for its axes."""
    if not is_data(type):
        return Expr(as_typed(leaf, type, what), current())
    x = converted(leaf, element(type), type, what)
    if x.type != type and (not is_data(x.type) or x.dtype != element(type)):
        raise TypeError(at_line(f"{what} is {type}, got {description(leaf)}"))
    return x


def _is_plain(leaf: Any, type: Type) -> bool:
    """Whether a leaf is a value of Python which may be of a type, and no part of a program yet."""
    if isinstance(leaf, Expr) or leaf is None:
        return False
    if is_data(type):
        return is_number(leaf) or isinstance(leaf, np.ndarray | np.generic) or is_table(leaf)
    return (isinstance(type, FunctionType) and callable(leaf)) or (isinstance(type, Named) and isinstance(leaf, Record))


def is_table(x: Any) -> bool:
    """Whether x stands for an array: a list without expressions and records, or a tuple of numbers."""
    if isinstance(x, list):
        return not any(isinstance(leaf, Expr | Record) for leaf in trees.flatten(x, records=False)[0])
    return isinstance(x, tuple) and all(map(is_number, trees.flatten(x)[0]))
