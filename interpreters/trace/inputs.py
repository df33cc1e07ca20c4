"""The arguments of a run as the parameters of its trace.

A scalar or an array is a parameter as it is. In data of a declared type, every scalar and array is a parameter by
itself: the data is taken apart, as it is in the run. A function is none: its steps are in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from ...core import trees
from ...core.annotations import Declared, Parameter
from ...core.data import fold, value_class
from ...core.dims import Dim
from ...core.program import Instance
from ...core.types import FunctionType, Named, Type, array_of, element, is_data


class Inputs:
    """The parameters of a trace: their values, types and names, and how arguments are made of them."""

    def __init__(self, instance: Instance, arguments: Sequence[Any]) -> None:
        self.values: list[Any] = []
        self.types: list[Type] = []
        self.names: list[str] = []
        self.owners: list[int] = []  # which argument each belongs to, of those that are not static
        self._leaves = list(zip(arguments, instance.types, instance.names, strict=True))
        self._shapes = instance.inputs.inner
        taken = {name for name, type in zip(instance.names, instance.types, strict=True) if is_data(type)}
        owners = [number for number, shape in enumerate(self._shapes) for _ in range(shape.leaves)]
        for (value, type, name), owner in zip(self._leaves, owners, strict=True):
            numbered = (f"{name}_{k}" for k in count())
            self._read(value, type, name, numbered if not is_data(type) else iter([name]), taken)
            self.owners += [owner] * (len(self.values) - len(self.owners))
        self.parameters = self._parameters(instance)

    def _read(self, value: Any, type: Type, argument: str, names: Iterator[str], taken: set[str]) -> None:
        def leaf(value: Any, type: Type, what: str) -> None:
            if isinstance(type, FunctionType):
                return
            self.names.append(next(name for name in names if name == argument or name not in taken))
            self.values.append(np.array(value, order="C")[()])  # the caller may write to it later
            self.types.append(array_of(element(type), tuple(map(Dim.of, value.shape))))

        fold(value, type, argument, leaf, tuple, lambda named, variant, parts: None)

    def _parameters(self, instance: Instance) -> list[Parameter]:
        """Those of the program, if its arguments are scalars and arrays; one for each part otherwise."""
        if not all(map(is_data, instance.types)):
            return [Parameter(name, type) for name, type in zip(self.names, self.types, strict=True)]
        found, types = [], iter(self.types)
        for parameter, shape in zip(instance.program.dynamic, self._shapes, strict=True):
            leaves = tuple([next(types) for _ in range(shape.leaves)])
            one = leaves[0] if shape == trees.LEAF else None
            found.append(Parameter(parameter.name, one, structure=None if one is not None else Declared(shape, leaves)))
        return found

    def leaves(self, part: Callable[[int], Any], function: Callable[[Any, FunctionType, str], Any]) -> list[Any]:
        """The leaves of the arguments, made of what the parameters with these numbers stand for, and of functions."""
        numbers = iter(range(len(self.values)))

        def leaf(value: Any, type: Type, what: str) -> Any:
            return function(value, type, what) if isinstance(type, FunctionType) else part(next(numbers))

        def construct(named: Named, variant: str, parts: Sequence[Any]) -> Any:
            return value_class(named.declaration, variant)._of(parts)

        return [fold(value, type, name, leaf, tuple, construct) for value, type, name in self._leaves]

    def arguments(self, part: Callable[[int], Any]) -> list[Any]:
        """The same in the structure of the arguments, one for each parameter that is not static; None for functions."""
        leaves = iter(self.leaves(part, lambda value, type, what: None))
        return [trees.unflatten(shape, [next(leaves) for _ in range(shape.leaves)]) for shape in self._shapes]
