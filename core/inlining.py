"""The arguments of a program that is inlined: expressions, checked against the annotations of its parameters.

The counterpart of ``arguments.py`` while a program is built. A size name of an annotation stands for a dim of the
arguments: the first axis that has the name binds it, of whichever argument. When all names are bound, the other sizes
are proved equal, refused, or required in the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import trees
from .annotations import Parameter
from .builder import current
from .dims import Dim, DimAtom, Name
from .expr import Expr, as_expr, same_size
from .functions import as_typed, description
from .graph import Value
from .source import at_line, user_line
from .terms import Failure
from .types import Type, all_dims, dims, element, is_data, map_dims, rank


class Inlining:
    """What the size names of one program's annotations stand for, and the checks against them."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.sizes: dict[str, Dim] = {}
        self.axes: dict[str, tuple[Value, int]] = {}  # where a name was bound by an axis

    def arguments(self, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> list[Any]:
        """The arguments as the program's function gets them. Raises TypeError for one that does not fit."""
        parameters = [p.taking(a) for p, a in zip(parameters, arguments, strict=True)]
        taken = [
            ([a], trees.LEAF) if p.static or p.like is not None else p.flatten(a, self.program)
            for p, a in zip(parameters, arguments)
        ]
        known = []  # expressions, with their types as annotated
        waiting = []  # Python's data, functions and tuples: they take their types when all sizes are known
        for parameter, (leaves, shape) in zip(parameters, taken, strict=True):
            if parameter.static:
                leaves[0] = parameter.check_static(leaves[0], self.program)
            elif parameter.like is not None:
                pass  # the verb fits it to what it is a tangent or cotangent of
            elif parameter.declared is None:
                leaves[:] = [leaf if callable(leaf) else as_expr(leaf) for leaf in leaves]
            else:
                for k, (path, type) in enumerate(zip(trees.paths(shape), parameter.declared.types, strict=True)):
                    what = f"argument {parameter.name + path!r}"
                    if is_data(type) or isinstance(leaves[k], Expr):
                        leaves[k] = self.expression(leaves[k], type, what)
                        known.append((leaves[k], type, what))
                    else:
                        waiting.append((leaves, k, type, what))
        for array in (True, False):  # names are bound by axes, and those that no axis has by sizes inside of data
            for x, type, _ in known:
                if is_data(type) is array:
                    self.bind(x, type)
        for x, type, what in known:
            self.check(x, type, what)
        for leaves, k, type, what in waiting:
            self.check_bound(type, what)
            wanted = map_dims(type, self.actual)
            leaves[k] = Expr(as_typed(leaves[k], wanted, f"{self.program}: {what}"), current())
        return [trees.unflatten(shape, leaves) for leaves, shape in taken]

    def actual(self, dim: Dim) -> Dim:
        """A dim of an annotation in terms of the arguments' sizes."""

        def known(atom: DimAtom) -> Dim | None:
            return self.sizes.get(atom.name) if isinstance(atom, Name) else None

        return dim.substitute(known)

    def expression(self, leaf: Any, wanted: Type, what: str) -> Expr:
        """An argument as an expression, whose type is the wanted one but for sizes."""
        if isinstance(leaf, tuple | dict) and any(isinstance(part, Expr) for part in trees.flatten(leaf)[0]):
            raise TypeError(at_line(f"{self.program}: {what} is {wanted}, got {description(leaf)}"))
        x = as_expr(leaf, element(wanted) if is_data(wanted) else None)
        if _without_sizes(x.type) != _without_sizes(wanted):
            raise TypeError(at_line(f"{self.program}: {what} is {wanted}, got {x.type}"))
        return x

    def bind(self, x: Expr, wanted: Type) -> None:
        """Let the sizes of an argument be what the names mean that have no meaning yet."""
        for axis, dim, own in _axes(x, wanted):
            match dim.terms:
                case (((Name(name),), 1),) if name not in self.sizes:
                    self.sizes[name] = own
                    if is_data(wanted):
                        self.axes[name] = (x.value, axis)

    def check_bound(self, wanted: Type, what: str) -> None:
        """Raise TypeError for a size name that no argument has bound: it is no name of the program around."""
        for name in sorted({name for dim in all_dims(wanted) for name in dim.names()} - self.sizes.keys()):
            problem = f"the size {name} of {what}, of type {wanted}, cannot be found from the arguments"
            raise TypeError(at_line(f"{self.program}: {problem}: no axis of a parameter has the size {name} alone"))

    def check(self, x: Expr, wanted: Type, what: str) -> None:
        """Make sure that the sizes of an argument are what its annotation says."""
        self.check_bound(wanted, what)
        for axis, dim, own in _axes(x, wanted):
            match dim.terms:
                case (((Name(name),), 1),) if is_data(wanted):
                    same_size(*self.axes[name], x.value, axis, f"{self.program}, size {name}")
                case _:
                    self.check_size(x, axis, dim, own, what)

    def check_size(self, x: Expr, axis: int, dim: Dim, own: Dim, what: str) -> None:
        """Make sure that a size is what an annotation says."""
        expected = self.actual(dim)
        equal = expected.compare(own)
        if equal is False or (equal is None and not is_data(x.type)):
            place = f"axis {axis} of " if is_data(x.type) else "a size in "
            raise TypeError(at_line(f"{self.program}: {place}{what} is {expected}, got {x.type}"))
        if equal is None and expected.is_static():
            builder = current()
            values = [builder.dim(expected), builder.size(x.value, axis)]
            message = f"{self.program}: axis {axis} of {what} is {dim} = {{0}}, got {{1}}"
            builder.require(builder.primitive("equal", *values), Failure("size", message, user_line()), values)


def _axes(x: Expr, wanted: Type) -> list[tuple[int, Dim, Dim]]:
    """The sizes of a type with those of an expression, and their axes: the last ones, if there are more."""
    sizes, own = all_dims(wanted), all_dims(x.type)
    more = len(own) - len(sizes)
    return [(axis, dim, own[axis]) for axis, dim in enumerate(sizes, more)]


def _without_sizes(type: Type) -> Type:
    return map_dims(type, lambda _: Dim.of(0))


def check_results(program: str, wanted: Type, result: Expr, bound: frozenset[str]) -> Value:
    """A result of a program of the type that is declared for it, in terms of the sizes of its call.

    A size that mentions a name which no argument binds is not checked. Raises TypeError for another type.
    """
    if result.dtype != element(wanted) or result.ndim != rank(wanted):
        raise TypeError(at_line(f"{program} is declared to return {wanted}, but its body returns {result.type}"))
    for axis, (dim, actual) in enumerate(zip(dims(wanted), dims(result.type), strict=True)):
        if not dim.names() <= bound:
            continue
        equal = dim.compare(actual)
        if equal is False:
            raise TypeError(at_line(f"{program} is declared to return {wanted}, its body returns {result.type}"))
        if equal is None and dim.is_static():
            builder = current()
            values = [builder.dim(dim), builder.size(result.value, axis)]
            message = f"{program} returns {wanted}, but axis {axis} has size {{1}}, not {{0}}"
            builder.require(builder.primitive("equal", *values), Failure("size", message, user_line()), values)
    return result.value
