"""The arguments of a call: converted to NumPy, checked against a program's types, and the sizes they bind.

A *signature* is made once for an instance of a program. A call gives its leaves to :meth:`Signature.convert`, which
gives back C-contiguous arrays (scalars as NumPy scalars) and the value of every size name. Arrays must have the
declared scalar type; Python numbers and lists of them convert when that loses nothing. A name is bound by the axes
whose size is that name alone; sizes that are expressions are then compared with what their names say.

>>> from adze.core.annotations import Array
>>> from adze.core.types import f64
>>> signature = Signature("f", ("x", "y"), (Array[f64, "n"], Array[f64, "n 2*n"]))
>>> arrays, sizes = signature.convert([[1, 2], np.zeros((2, 4))])
>>> sizes
{'n': 2}
>>> signature.convert([[1, 2], np.zeros((3, 6))])
Traceback (most recent call last):
ValueError: f: n is 2 in argument 'x' (axis 0 of shape (2,)), but 3 in argument 'y' (axis 0 of shape (3, 6)) (at ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .dims import Dim, Name
from .source import at_line
from .types import Type, dims, element, rank, scalar_of

if TYPE_CHECKING:
    from .program import Instance

_KINDS = ("bool", "int", "float")


class Signature:
    """The names and types of a program's array and scalar parameters, ready to check calls.

    Raises TypeError when a size name occurs in size expressions only, since no argument would bind it.
    """

    def __init__(self, program: str, names: Sequence[str], types: Sequence[Type]) -> None:
        self.program, self.names, self.types = program, tuple(names), tuple(types)
        self.scalars = [element(type) for type in types]
        self.dtypes = [scalar.dtype for scalar in self.scalars]
        self.ranks = [rank(type) for type in types]
        # (leaf, axis, name) for the axes that bind names; (leaf, axis, dim) for the others
        self.binding: list[tuple[int, int, str]] = []
        self.derived: list[tuple[int, int, Dim]] = []
        for leaf, type in enumerate(types):
            for axis, dim in enumerate(dims(type)):
                match dim.terms:
                    case (((Name(name),), 1),):
                        self.binding.append((leaf, axis, name))
                    case _:
                        self.derived.append((leaf, axis, dim))
        self.bound = frozenset([name for _, _, name in self.binding])
        for leaf, _, dim in self.derived:
            for name in sorted(dim.names() - self.bound):
                raise TypeError(
                    f"{program}: the size {name} of parameter {self.names[leaf]!r}, of type {types[leaf]}, cannot be "
                    f"found from the arguments: no axis of a parameter has the size {name} alone"
                )

    def convert(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        """Arrays and NumPy scalars of the declared types, and the value of each size name.

        Raises TypeError for a wrong scalar type, rank or kind of object, ValueError for sizes that contradict each
        other; both name the program, the argument and the line of the call.
        """
        values = [self._converted(leaf, position) for position, leaf in enumerate(leaves)]
        sizes: dict[str, int] = {}
        for leaf, axis, name in self.binding:
            actual = values[leaf].shape[axis]
            if sizes.setdefault(name, actual) != actual:
                self._contradiction(values, name, leaf, axis)
        for leaf, axis, dim in self.derived:
            expected, actual = dim.evaluate(sizes), values[leaf].shape[axis]
            if expected != actual:
                shape = values[leaf].shape
                known = ", ".join(f"{name} = {sizes[name]}" for name in sorted(dim.names()))
                wanted = f"{dim} = {expected} (with {known})" if known else str(dim)
                message = f"axis {axis} of argument {self.names[leaf]!r} is {wanted}, got {actual} (shape {shape})"
                raise ValueError(at_line(f"{self.program}: {message}"))
        return values, sizes

    def _contradiction(self, values: Sequence[Any], name: str, leaf: int, axis: int) -> None:
        first, first_axis = next((other, k) for other, k, bound in self.binding if bound == name)
        places = [
            f"{values[k].shape[a]} in argument {self.names[k]!r} (axis {a} of shape {values[k].shape})"
            for k, a in ((first, first_axis), (leaf, axis))
        ]
        raise ValueError(at_line(f"{self.program}: {name} is {places[0]}, but {places[1]}"))

    def _converted(self, leaf: Any, position: int) -> Any:
        dtype, wanted_rank = self.dtypes[position], self.ranks[position]
        if type(leaf) is np.ndarray and leaf.dtype == dtype and leaf.ndim == wanted_rank and wanted_rank:
            return leaf if leaf.flags.carray else np.require(leaf, requirements=["C", "A"])
        array, from_python = self._as_array(leaf, position)
        if array.ndim != wanted_rank:
            self._refuse(position, _shown(leaf, array))
        if array.dtype != dtype:
            array = self._cast(array, leaf, position, from_python)
        return array[()] if wanted_rank == 0 else np.require(array, requirements=["C", "A"])

    def _as_array(self, leaf: Any, position: int) -> tuple[np.ndarray[Any, Any], bool]:
        """The leaf as an array of a numeric type, and whether it was made of Python numbers."""
        if hasattr(leaf, "apply_primitive"):
            self._refuse(position, f"{leaf!r}: a program runs on arrays, outside of other programs")
        from_python = isinstance(leaf, bool | int | float | list | tuple) and not isinstance(leaf, np.generic)
        try:
            if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray | np.generic):
                array = np.from_dlpack(leaf)
            else:
                array = np.asarray(leaf)
        except (ValueError, TypeError, OverflowError, BufferError) as error:
            self._refuse(position, f"a value of type {type(leaf).__name__} that is not a regular array ({error})")
        if array.dtype.kind not in "biufc":
            self._refuse(position, f"a value of type {type(leaf).__name__} that is not numeric: {_short(leaf)}")
        return array, from_python

    def _cast(self, array: np.ndarray[Any, Any], leaf: Any, position: int, from_python: bool) -> Any:
        """The array in the declared scalar type, where that is the same type or loses nothing."""
        scalar = self.scalars[position]
        if array.dtype.newbyteorder("=") == scalar.dtype:
            return array.astype(scalar.dtype)
        given = scalar_of(array.dtype)
        if not from_python:
            self._refuse(position, _shown(leaf, array))
        if array.size == 0:
            return array.astype(scalar.dtype)
        if given is None or _KINDS.index(given.kind) > _KINDS.index(scalar.kind):
            self._refuse(position, _shown(leaf, array))
        with np.errstate(all="ignore"):
            converted = array.astype(scalar.dtype)
            back = converted.astype(array.dtype)
        same = (back == array) | ((array != array) & (back != back))
        if not same.all():
            wrong = array[~same].flat[0] if array.ndim else array[()]
            self._refuse(position, f"{wrong}, which is not exactly representable in {scalar}")
        return converted

    def _refuse(self, position: int, got: str) -> None:
        name, wanted = self.names[position], self.types[position]
        raise TypeError(at_line(f"{self.program}: argument {name!r} is {wanted}, got {got}"))


def convert(instance: Instance, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
    """The arguments of a call of an instance as arrays, and the sizes they bind (see :meth:`Signature.convert`)."""
    return instance.signature.convert(leaves)


def _shown(leaf: Any, array: np.ndarray[Any, Any]) -> str:
    if array.ndim == 0:
        python = isinstance(leaf, bool | int | float) and not isinstance(leaf, np.generic)
        return f"the {'number' if python else 'scalar'} {_short(leaf)} ({array.dtype})"
    return f"an array of {array.dtype} with shape {array.shape}"


def _short(leaf: Any) -> str:
    text = repr(leaf)
    return text if len(text) <= 60 else text[:57] + "..."
