"""Constructs that users add: a row of the table, and what it means in terms of other constructs.

The *expansion* is written in the language, as a program is: it is the meaning in every interpretation that says
nothing else. Until such a one asks for it, the construct is one operation: in terms, in printed programs and in what
derivatives and simplification make of them. An interpretation that can do better gets a method of the construct's name.

    recurrence = az.construct("recurrence", types=lambda a, x: x, expansion=lambda a, x: az.scan(...)[1])

    @recurrence.method(Evaluate)
    def evaluated(self, static, args, blocks): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from . import trees
from .builder import Builder, current
from .constructs import ADDED, CONSTRUCTS, Construct, Role
from .expr import Expr, as_expr
from .graph import Body, Value
from .language import Language
from .source import at_line, user_line
from .types import Type, is_data

M = TypeVar("M", bound=Callable[..., Any])

# What a block is, and the types of its parameters for those of the arguments.
BlockRule = tuple[Role, Callable[..., Sequence[Any]]]


# What may be stated of a construct from outside.
STATED = ("pure", "partial", "external", "holds", "movable", "cheap", "discrete")


class Added:
    """A construct that was added, ready to be applied in programs. Made by :func:`construct`."""

    def __init__(self, row: Construct) -> None:
        self.row = row

    def __repr__(self) -> str:
        return f"<construct {self.row.name}>"

    def __call__(self, *arguments: Any) -> trees.Structure:
        """Apply it to scalars and arrays, and to a function for each of its blocks, inside a program."""
        builder, row = current(), self.row
        count = len(arguments) - len(row.blocks)
        if count < 0 or not all([callable(function) for function in arguments[count:]]):
            named = ", ".join(row.blocks)
            raise TypeError(at_line(f"{row.name} takes a function for each of its blocks ({named}) last"))
        values = [as_expr(argument).value for argument in arguments[:count]]
        for value in values:
            if not is_data(value.type):
                raise TypeError(at_line(f"{row.name} takes scalars and arrays, not a value of {value.type}"))
        builder.origin = user_line()
        bodies, types = list[Body](), [value.type for value in values]
        try:
            for function in arguments[count:]:
                binders = row.binders((row,), types, [body.types for body in bodies])
                bodies.append(builder.body(binders, _entered(builder, function)))
            results = [Expr(value, builder) for value in builder.emit(row.name, (row,), values, bodies)]
        except TypeError as error:
            raise TypeError(at_line(f"{row.name}: {error}")) from error
        return trees.structure(results[0] if len(results) == 1 else tuple(results))

    def method(self, interpretation: type[Any]) -> Callable[[M], M]:
        """Give an interpretation a meaning of the construct, which it has instead of the expansion.

        It is a method that gets the static part of an operation, the meanings of its arguments and those of its blocks.
        For the lowering, which is no ``Language``, it gets the operation, the environment and the destinations.
        """

        def entered(method: M) -> M:
            setattr(interpretation, self.row.method, method)
            self.row.own.add(interpretation)
            return method

        return entered


def _entered(builder: Builder, function: Callable[..., Any]) -> Callable[..., Sequence[Value]]:
    """A user's function of expressions as a body."""

    def body(*binders: Value) -> Sequence[Value]:
        return flat(function(*[Expr(binder, builder) for binder in binders]))

    return body


def flat(results: Any) -> list[Value]:
    """The values of a user's results."""
    return [as_expr(leaf).value for leaf in trees.flatten(results)[0]]


def construct(
    name: str,
    *,
    types: Callable[..., Any],
    expansion: Callable[..., Any],
    blocks: Mapping[str, BlockRule] | None = None,
    **properties: bool,
) -> Added:
    """Add a construct to the language and give it back; it is at once part of every interpretation.

    ``types`` gives the type of the result, or a tuple of them, for the types of the arguments, followed by the types of
    each block's results; TypeError says that they do not fit. ``expansion`` is what it means in terms of others, on
    expressions, followed by a function for each block. ``blocks`` says by name what each block is (:class:`Role`),
    and the types of its parameters for those of the arguments.

    ``properties`` are those of a row (``core/constructs.py``) that ``STATED`` names, such as ``pure=True,
    partial=False``. What is not stated is what is safe to assume. A construct with the name of one that was added
    replaces it, in programs that are built from then on. ValueError for a name that the language or an interpretation
    has already.

    >>> import adze as az
    >>> double = az.construct("double", types=lambda x: x, expansion=lambda x: x + x, pure=True, partial=False)
    >>> @az.program
    ... def f(x: az.f64) -> az.f64:
    ...     return double(x) * x
    >>> print(az.pretty(f))
    def f(x: f64) -> f64:
      return double(x) * x
    >>> float(az.evaluate(f)(3.0)), float(az.evaluate(az.grad(f))(3.0))
    (18.0, 12.0)
    """
    if not name.isidentifier() or name in CONSTRUCTS or (name not in ADDED and name in _names(Language)):
        raise ValueError(at_line(f"az.construct: {name!r} is no name, or it is taken"))
    rules = blocks or {}
    roles = {block: role for block, (role, _) in rules.items()}

    def result_types(static: Any, args: Sequence[Type], results: Sequence[Sequence[Type]]) -> tuple[Type, ...]:
        found = types(*args, *results)
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    def binders(static: Any, args: Sequence[Type], earlier: Sequence[Sequence[Type]]) -> tuple[Type, ...]:
        return tuple(list(rules.values())[len(earlier)][1](*args))

    for stated in properties:
        if stated not in STATED:
            raise ValueError(at_line(f"az.construct: there is no property {stated!r}, but {', '.join(STATED)}"))
    said: dict[str, Any] = {"blocks": roles, "binders": binders, "expansion": expansion, **properties}
    row = ADDED[name] = Construct(name, name, result_types, lambda s, a, b: (s, a, b), **said)
    return Added(row)


def _names(interpretation: type[Any]) -> set[str]:
    """The names that the interpretations have."""
    return set(dir(interpretation)).union(*map(_names, interpretation.__subclasses__()))
