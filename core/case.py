"""``case``: taking a value of a declared type apart.

Each branch is a function of the fields of its variant; all branches return one structure, whose types are found by
looking at all of them: what is certain in one branch (an expression) decides for the others, where a Python number,
function or data value adopts it.

>>> import adze as az
>>> @az.data
... class Shape:
...     class Circle:
...         radius: az.f64
...     class Rectangle:
...         width: az.f64
...         height: az.f64
>>> @az.program
... def area(shape: Shape) -> az.f64:
...     return az.case(shape, Circle=lambda r: 3.0 * r * r, Rectangle=lambda w, h: w * h)
>>> float(az.evaluate(area)(Shape.Rectangle(2.0, 4.0)))
8.0
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import trees
from .builder import current
from .data import Data, natural_type, wider
from .expr import Expr, as_expr, is_number, is_weak, weak_states
from .functions import Definition, as_typed, description, expression_of, field_of
from .graph import Body, Value
from .methods import METHODS
from .source import at_line, user_line
from .trees import Shape, Structure
from .types import Declaration, FunctionType, Named, Scalar, Type, element, is_data, rank
from .weak_types import scope


def case(value: Any, /, **branches: Any) -> Structure:
    """The result of the branch for the variant of a value, which is called with its fields.

    There is one branch for each variant, by name. Raises TypeError for a value of another type, for a branch that is
    missing or too many, that takes another number of fields, or whose result has another type than the others'.
    """
    builder = current()
    if isinstance(value, Data) and value._keys() is not None:
        return _of_record(value, branches)
    x = as_expr(value)
    named = x.type
    if not isinstance(named, Named):
        raise TypeError(at_line(f"case takes a value of a declared type, not {named}"))
    _check_names(str(named), named.declaration, branches)
    variants = tuple(named.declaration.variants)
    origin = user_line()
    made = [Branch(name, named.fields(name), branches[name]) for name in variants]
    bodies, shape, _ = branch_bodies(f"the branches of a case of {named}", made)
    builder.origin = origin
    values = builder.emit("case", variants, [x.value], bodies)
    return trees.unflatten(shape, [expression_of(value, builder) for value in values])


def _of_record(value: Data, branches: Mapping[str, Any]) -> Structure:
    """The result of the only branch, called with the fields of a record."""
    declaration = value.declared()
    _check_names(declaration.name, declaration, branches)
    branch = Branch(value._variant, declaration.variants[value._variant], branches[value._variant])
    leaves, shape = trees.flatten(branch.function(*value._adopted()._values))
    return trees.unflatten(shape, [as_expr(leaf) for leaf in leaves])


def _check_names(type: str, declaration: Declaration, branches: Mapping[str, Any]) -> None:
    """Make sure that there is one branch for each variant."""
    variants = declaration.variants
    missing = [name for name in variants if name not in branches]
    unknown = [name for name in branches if name not in variants]
    if missing or unknown:
        problem = f"no branch for {', '.join(missing)}" if missing else f"no variant {', '.join(unknown)}"
        raise TypeError(at_line(f"case of {type}: there is {problem}; its variants are {', '.join(variants)}"))


def field(x: Expr, name: str) -> Any:
    """A field of a type with one variant; AttributeError for other expressions, with what the expression is."""
    named = x.type
    variants = named.declaration.variants if isinstance(named, Named) else {}
    if isinstance(named, Named) and len(variants) == 1:
        (fields,) = variants.values()
        if name in fields:
            return field_of(x.value, list(fields).index(name), x.builder)
        raise AttributeError(at_line(f"a {named} has no field {name!r}; its fields are {', '.join(fields)}"))
    if variants:
        raise AttributeError(at_line(f"a {named} has variants: take it apart with az.case to get at {name!r}"))
    instead = _INSTEAD.get(name)
    said = f"an expression of type {named} has no attribute {name!r}"
    raise AttributeError(at_line(f"{said}; {instead}" if instead else said))


METHODS["field"] = field

# What to write instead of attributes that arrays of other libraries have
_INSTEAD = {
    "at": (
        "for x.at[i].set(v) write az.update(x, i, v), for x.at[i].add(v) az.update(x, i, x[i] + v); where i is an "
        "array that may name a place twice, x + az.histogram(np.add, 0, x.shape[0], i, v), and for x.at[i].min(v) "
        "np.minimum(x, az.histogram(np.minimum, np.inf, x.shape[0], i, v))"
    ),
    "item": "it has no content yet, and is a scalar as it is",
    "tolist": "it has no content yet; use az.map on its elements",
    "fill": "make an array with az.full_like(x, value)",
    "append": "put arrays together with az.concatenate",
}


# What to write for a branch that is none
_WRITTEN = {"cond": ": write az.cond(test, lambda: a, lambda: b)", "par": ": write az.par(lambda: a, lambda: b)"}


@dataclass(frozen=True)
class Branch:
    """A function of the fields of a variant; those of constructs other than ``case`` are called without arguments."""

    name: str
    fields: dict[str, Type]
    function: Any
    of: str = "case"

    def __post_init__(self) -> None:
        instead = _WRITTEN.get(self.of, "")
        if not callable(self.function) or (isinstance(self.function, Expr) and self._parameters is None):
            wanted = "a function of its fields" if self.of == "case" else "a function without parameters"
            shown = description(self.function)
            raise TypeError(at_line(f"{self.of}: the branch {self.name} is {wanted}, not {shown}{instead}"))
        if (taken := self._mistaken()) is not None:
            fields = f"{len(self.fields)} field(s) ({', '.join(self.fields)})"
            problem = f"the variant {self.name} has {fields}, but its branch takes {taken}"
            if self.of != "case":
                problem = f"the branch {self.name} is called without arguments, but takes {taken}"
            raise TypeError(at_line(f"{self.of}: {problem}{instead}"))

    @property
    def _parameters(self) -> tuple[Type, ...] | None:
        """The types of the parameters of a function that is a value."""
        type = self.function.type if isinstance(self.function, Expr) else None
        return type.parameters if isinstance(type, FunctionType) else None

    def _mistaken(self) -> str | None:
        """What a function takes that cannot be called with the fields."""
        if self._parameters is not None:  # one of the wrong fields is refused where it is applied
            return f"({', '.join(map(str, self._parameters))})" if self._parameters and not self.fields else None
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return None
        try:
            signature.bind(*self.fields)
        except TypeError:
            return str(signature)
        return None


def branch_bodies(
    what: str, branches: Sequence[Branch], resizable: bool = False
) -> tuple[list[Body], Shape, list[tuple[frozenset[int], bool]]]:
    """The bodies of branches whose results have one structure and the same types.

    Sizes that differ are required to be equal, unless they are left to the caller (``resizable``). A branch with a
    Python value whose type another branch decides is built a second time. For each result there are the states of
    loops whose types its own depends on, and whether it is weak.
    """
    builder = current()
    shapes: list[Shape] = []
    results: list[list[Any]] = [[] for _ in branches]  # of each branch: types of expressions, and Python values

    def build(k: int, targets: Sequence[Type] | None) -> Body:
        branch = branches[k]

        def run(*fields: Value) -> list[Value]:
            leaves, shape = trees.flatten(branch.function(*[expression_of(value, builder) for value in fields]))
            leaves = [leaf.as_expression() if isinstance(leaf, Definition) else leaf for leaf in leaves]
            shapes.append(shape)
            if shape != shapes[0]:
                first = f"{branches[0].name} returns {shapes[0]}"
                raise TypeError(at_line(f"{what} return different structures: {first}, {branch.name} {shape}"))
            results[k] = [_Certain(leaf) if isinstance(leaf, Expr) and not leaf.weak else leaf for leaf in leaves]
            if targets is not None:
                result = f"the result of the branch {branch.name}"
                return [
                    leaf.value
                    if resizable and isinstance(leaf, Expr) and not leaf.weak
                    else as_typed(leaf, type, result)
                    for leaf, type in zip(leaves, targets, strict=True)
                ]
            return [as_expr(leaf).value for leaf in leaves if isinstance(leaf, Expr) or is_number(leaf)]

        with scope(builder.inference, k):
            return builder.body(list(branch.fields.values()), run, list(branch.fields))

    with scope(builder.inference):
        bodies = [build(k, None) for k in range(len(branches))]
        names = [branch.name for branch in branches]
        columns = list(zip(*results, strict=True))
        targets = [_common(what, names, column) for column in columns]
        bodies = [body if body.types == tuple(targets) else build(k, targets) for k, body in enumerate(bodies)]
    given = [[x.expression if isinstance(x, _Certain) else x for x in column] for column in columns]
    return bodies, shapes[0], [weak_states(column) for column in given]


@dataclass(frozen=True)
class _Certain:
    """A result that is an expression of a type."""

    expression: Expr

    @property
    def type(self) -> Type:
        return self.expression.type


def _common(what: str, names: Sequence[str], column: Sequence[Any]) -> Type:
    """The type of one result of all branches."""
    certain = [(name, x.type) for name, x in zip(names, column, strict=True) if isinstance(x, _Certain)]
    for name, x in zip(names, column, strict=True) if certain else ():
        wanted, own = certain[0][1], x.type if isinstance(x, _Certain) else natural_type(x) if is_weak(x) else None
        adopts = is_weak(x) and isinstance(wanted, Scalar)
        if own is not None and not adopts and not _alike(own, wanted):
            raise TypeError(at_line(f"{what} differ in type: {wanted} and {own} ({certain[0][0]} and {name})"))
    if certain:
        return certain[0][1]
    found: Type | None = None
    for x in column:
        own = natural_type(x)
        found = found if own is None else wider(found, own)
    if found is None:
        raise TypeError(at_line(f"{what} do not say the type of their result, {description(column[0])}"))
    return found


def _alike(a: Type, b: Type) -> bool:
    """Whether types are equal but for the sizes of an array."""
    return a == b or (is_data(a) and is_data(b) and (element(a), rank(a)) == (element(b), rank(b)))
