"""``vmap``: from a program the one that does the same along an axis of its arguments.

It is ``map`` with JAX's arguments: each argument, or each leaf of a structure, says along which of its axes the calls
are, or that all of them share it. What no call depends on alone is computed once, as everywhere::

    vmap(f, in_axes=(0, None, 1), out_axes=-1)(x, y, z)

    is  moveaxis(generate(n, lambda i: f(x[i], y, z[:, i])), 0, -1)

An annotated parameter stays one, with an axis more, whose size is called ``batch``.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import trees
from .annotations import Declared, Omitted, Parameter, fresh
from .builder import current
from .combinators.arrays import generate, size
from .combinators.operands import axis_moved, axis_of
from .dims import Dim
from .expr import Expr, as_expr, same_size
from .functions import description
from .program import P, Program, R
from .source import at_line, ending_at_user
from .types import Type, array_of, dims, element, is_data, rank
from .verb import Function, program_of

if TYPE_CHECKING:
    Axes = int | None | Sequence[Any] | dict[Any, Any]
else:  # checked below, which says more
    Axes = Any


@ending_at_user
def vmap(f: Function[P, R], in_axes: Axes = 0, out_axes: Axes = 0) -> Program[P, R]:
    """The program that calls f along an axis of its arguments, and stacks the results.

    ``in_axes`` is the axis of all arguments, or one a parameter: an axis, None for what all calls share, or a structure
    of these for the parts of an argument. Static parameters are shared, and may be left out, as may those at the end
    that have defaults. A default is shared where nothing is given in its place and ``in_axes`` has no part for it.
    ``out_axes`` says in the same way where the axis is in each result; None is for results that are the same in all
    calls. Verbs and ``vmap`` nest in any order.

    Raises ValueError where nothing is mapped over, an argument has no such axis, or a result that depends on the call
    has the axis None; TypeError where lengths differ or a structure of axes does not fit.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def line(x: az.f64, slope: az.f64, offset: az.f64) -> az.f64:
    ...     return slope * x + offset
    >>> az.vmap(line, in_axes=(0, None, 0))(np.array([1.0, 2.0]), 10.0, np.array([0.0, 5.0]))
    array([10., 25.])
    >>> az.vmap(az.grad(line), in_axes=(0, None, None))(np.array([1.0, 2.0, 3.0]), 10.0, 0.0)
    array([10., 10., 10.])
    >>> az.vmap(lambda x, slope=2.0: slope * x)(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    program = program_of("vmap", f)
    name = f"vmap({program.name})"
    axes, said = _for_each(name, program.parameters, in_axes)
    if all(each is None for each in axes):
        raise ValueError(at_line(f"{name}: in_axes is None for all parameters, so there is nothing to map over"))
    taken = [size for p in program.parameters if p.declared for type in p.declared.types for size in _names(type)]
    batch = Dim.of(fresh("batch", taken))
    parameters = [_batched(name, p, each, batch) for p, each in zip(program.parameters, axes, strict=True)]
    parameters = [
        _omissible(p, batched) if k >= said or isinstance(p.default, Omitted) else batched
        for k, (p, batched) in enumerate(zip(program.parameters, parameters, strict=True))
    ]
    out_axes = _frozen(out_axes)
    key = "vmap", said, *[(tuple(leaves), shape) for leaves, shape in map(_axes_of, (axes, out_axes))]
    if key not in program.made:
        program.made[key] = Program(_Mapped(name, program, axes, out_axes), name, parameters)
    return program.made[key]


def _for_each(name: str, parameters: Sequence[Parameter], in_axes: Any) -> tuple[tuple[Any, ...], int]:
    """The axes of each parameter, as they were given, those of static ones None; and how many parameters have their own
    part."""
    moving, said = [k for k, parameter in enumerate(parameters) if not parameter.static], len(parameters)
    if not isinstance(in_axes, tuple | list):
        in_axes, said = [in_axes] * len(parameters), 0
    elif len(in_axes) < len(moving) and all(_has_default(parameters[k]) for k in moving[len(in_axes) :]):
        said = moving[len(in_axes)]
        in_axes = [*in_axes, *[0] * (len(moving) - len(in_axes))]
    if len(in_axes) == len(moving):
        rest = iter(in_axes)
        in_axes = [None if parameter.static else next(rest) for parameter in parameters]
    if len(in_axes) != len(parameters):
        names = ", ".join([parameter.name for parameter in parameters])
        problem = f"in_axes has {len(in_axes)} parts, one for each parameter are {len(parameters)} ({names})"
        raise TypeError(at_line(f"{name}: {problem}"))
    return tuple([None if p.static else _frozen(each) for p, each in zip(parameters, in_axes, strict=True)]), said


def _has_default(parameter: Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _frozen(axes: Any) -> Any:
    """Axes as Python's integers, in structures of their own."""
    if axes is None:
        return None
    leaves, shape = _axes_of(axes)
    if shape != trees.LEAF:
        return trees.unflatten(shape, [_frozen(leaf) for leaf in leaves])
    try:
        if isinstance(axes, bool):
            raise TypeError
        return operator.index(axes)
    except TypeError:
        raise TypeError(at_line(f"vmap: an axis is a Python integer or None, not {description(axes)}")) from None


def _axes_of(axes: Any) -> tuple[list[Any], trees.Shape]:
    return trees.flatten(axes, plain=True)


def _names(type: Type) -> set[str]:
    return set().union(*[dim.names() for dim in dims(type)]) if is_data(type) else set()


def _batched(name: str, parameter: Parameter, axes: Any, batch: Dim) -> Parameter:
    """The parameter of a batch of arguments."""
    declared = parameter.declared
    if declared is None or axes is None:
        return parameter if parameter.like is None else replace(parameter, like=None)
    places = _spread(f"{name}: in_axes of {parameter.name!r}", axes, declared.shape)
    types = []
    for type, axis in zip(declared.types, places, strict=True):
        if axis is not None and not is_data(type):
            raise TypeError(at_line(f"{name}: parameter {parameter.name!r} is {type}, of which there are no arrays"))
        types.append(type if axis is None else _with_axis(f"{name}: parameter {parameter.name!r}", type, axis, batch))
    one = types[0] if declared.shape == trees.LEAF else None
    structure = None if one is not None else Declared(declared.shape, tuple(types))
    return replace(parameter, type=one, structure=structure, default=inspect.Parameter.empty)


def _omissible(one: Parameter, batched: Parameter) -> Parameter:
    """The parameter of a batch where one call has a default, which all of them share."""
    if one.static or not _has_default(one):
        return batched
    declared = one.omitted or one.declared
    if declared is None:
        return replace(batched, default=Omitted(one.default))
    alone = Declared(trees.Shape(Omitted, ("value",), (declared.shape,)), declared.types)
    return replace(batched, default=Omitted(one.default), omitted=alone)


def _with_axis(what: str, type: Type, axis: int, batch: Dim) -> Type:
    place, sizes = _place(what, axis, rank(type)), list(dims(type))
    sizes.insert(place, batch)
    return array_of(element(type), tuple(sizes))


def _place(what: str, axis: int, count: int) -> int:
    """Where an axis is in front of, between or behind so many others."""
    if not -count - 1 <= axis <= count:
        raise ValueError(at_line(f"{what}: axis {axis} of an array of {count + 1} axes"))
    return axis % (count + 1)


def _spread(what: str, axes: Any, shape: trees.Shape) -> list[int | None]:
    """One axis a leaf, from axes that may stand for whole structures."""
    try:
        return trees.spread(axes, shape)
    except TypeError as error:
        path, problem = error.args
        raise TypeError(at_line(f"{what} {path and f'at {path} '}{problem}")) from None


@dataclass(frozen=True)
class _Mapped:
    """What the program of ``vmap`` does with its arguments."""

    name: str
    f: Program
    in_axes: tuple[Any, ...]
    out_axes: Any

    def __call__(self, *args: Any) -> Any:
        parts = [self._parts(*each) for each in zip(self.f.parameters, args, self.in_axes, strict=True)]
        mapped = [(x, axis) for part in parts for x, axis in part.leaves if axis is not None]
        if not mapped:
            raise ValueError(at_line(f"{self.name}: no argument has anything to map over"))
        first, along = mapped[0]
        for x, axis in mapped:
            same_size(first.value, along, x.value, axis, self.name)
        around = frozenset(current().open)
        results: list[Expr] = []
        shapes: list[trees.Shape] = []
        places: list[int | None] = []

        def call(i: Expr) -> Any:
            found, shape = trees.flatten(self.f(*[part.at(i) for part in parts]))
            results[:], shapes[:] = map(as_expr, found), [shape]
            places[:] = _spread(f"{self.name}: out_axes", self.out_axes, shape)
            for x, place in zip(results, places, strict=True):
                if place is None and not x.value.free <= around:
                    message = f"{self.name}: out_axes is None for a result that is another in each call: {x.described}"
                    raise ValueError(at_line(message))
            return [x for x, place in zip(results, places, strict=True) if place is not None]

        stacked = iter(generate(size(first, along), call))
        return trees.unflatten(
            shapes[0],
            [
                x if place is None else axis_moved(next(stacked), 0, _place(self.name, place, x.ndim))
                for x, place in zip(results, places, strict=True)
            ],
        )

    def _parts(self, parameter: Parameter, argument: Any, axes: Any) -> _Parts:
        if parameter.static:
            return _Parts(trees.LEAF, [(argument, None)])
        if isinstance(argument, Omitted):
            argument, axes = argument.value, None
        leaves, shape = trees.flatten(argument)
        what = f"{self.name}: in_axes of {parameter.name!r}"
        found = []
        for leaf, axis in zip(leaves, _spread(what, axes, shape), strict=True):
            x = leaf if axis is None else as_expr(leaf)
            if axis is not None and x.ndim == 0:
                problem = (
                    f"argument {parameter.name!r} is a scalar, which has no axes; None in in_axes has calls share it"
                )
                raise ValueError(at_line(f"{self.name}: {problem}"))
            found.append((x, None if axis is None else axis_of(x, axis)))
        return _Parts(shape, found)


@dataclass(frozen=True)
class _Parts:
    """An argument: its leaves, each with the axis that the calls are along."""

    shape: trees.Shape
    leaves: list[tuple[Any, int | None]]

    def at(self, i: Expr) -> Any:
        """What one call gets."""
        return trees.unflatten(
            self.shape,
            [x if axis is None else x[(*[slice(None)] * axis, i)] for x, axis in self.leaves],
        )
