"""Functions as values: ``function``, ``fix``, and their application.

A helper function of Python is inlined where it is called. One that recurs, that is chosen while the program runs, or
that is stored in data must be a value: an expression whose type is a function type, and which can be called. Its
parameters and results are scalars, arrays, functions and data; structures of these are taken apart, as those of a
program are, but for records: these are one value where a function takes or gives them, as ``Function[[Point], Point]``
says, and a record of expressions to the user. The bodies may use outer expressions.

>>> import adze as az
>>> @az.program
... def power(x: az.f64, n: az.i64) -> az.f64:
...     @az.fix
...     def raised(self, k: az.i64) -> az.f64:
...         return az.cond(k == 0, lambda: 1.0, lambda: x * self(k - 1))
...     return raised(n)
>>> float(az.evaluate(power)(2.0, 10))
1024.0

Outside of a program ``function`` and ``fix`` give *definitions*, and what mentions a definition becomes a value of the
program. Definitions may mention each other, in any order: those that do are one group (``letrec.py``).

>>> @az.fix
... def even(self, k: az.i64) -> az.bool_:
...     return az.cond(k == 0, lambda: True, lambda: odd(k - 1))
>>> @az.fix
... def odd(self, k: az.i64) -> az.bool_:
...     return az.cond(k == 0, lambda: False, lambda: even(k - 1))
>>> bool(az.evaluate(az.program(lambda n: even(n)))(10))
True

(Smeding and Vákár, Parallel dual-numbers reverse AD, 2025, sections 5.1 and 11: letrec.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import trees
from .annotations import Declared, Parameter, read_annotation, read_parameters
from .builder import Builder, building, current
from .dims import Dim
from .expr import Expr, as_expr
from .graph import Body, Value
from .letrec import Letrec
from .methods import METHODS
from .size_names import Place
from .source import at_line, user_line, without_value
from .terms import Failure, Origin
from .trees import Shape, Structure
from .types import (
    ArrayType,
    FunctionType,
    Named,
    Scalar,
    TupleType,
    Type,
    dims,
    element,
    is_data,
    rank,
    record_of,
)

# Values of the core and what users see of them


def expression_of(value: Value, builder: Builder) -> Any:
    """What users see of a value: an expression; a tuple or record that is one value is one of expressions."""
    if isinstance(value.type, TupleType):
        builder.origin = user_line()
        items = range(len(value.type.items))
        return tuple([expression_of(builder.emit("project", (k,), [value])[0], builder) for k in items])
    record = record_of(value.type)
    if record is not None:
        cls, fields = record
        return cls._of([field_of(value, k, builder) for k in range(len(fields))])
    return Expr(value, builder)


def field_of(value: Value, number: int, builder: Builder) -> Any:
    """What users see of a field of a value whose type has one variant."""
    builder.origin = user_line()
    assert isinstance(value.type, Named)
    (variant,) = value.type.declaration.variants
    fields = value.type.fields(variant)
    body = builder.body(list(fields.values()), lambda *values: [values[number]], list(fields))
    return expression_of(builder.emit("case", (variant,), [value], [body])[0], builder)


def as_typed(x: Any, type: Type, what: str) -> Value:
    """The value of a type that a user's ``x`` is: numbers, functions, tuples and data of Python adopt the type.

    ``what`` begins the message of the TypeError for what does not fit. A size that is not proved is required.
    """
    builder, given = current(), x
    if isinstance(type, TupleType):
        if not isinstance(x, tuple | list) or len(x) != len(type.items):
            raise TypeError(at_line(f"{what} is {type}, got {description(x)}"))
        items = zip(x, type.items, strict=True)
        return builder.emit("pack", (), [as_typed(part, item, f"{what}[{k}]") for k, (part, item) in enumerate(items)])[
            0
        ]
    if isinstance(x, Expr):
        x = as_expr(x, type if isinstance(type, Scalar) else None)
    else:
        if isinstance(x, Definition):
            x = x.as_expression()
        elif isinstance(type, FunctionType) and callable(x):
            x = Definition.of_types(x, type.parameters, type.results).emit()
        elif hasattr(x, "as_typed"):
            value: Value = x.as_typed(type, what)
            return value
        elif is_data(type):
            x = converted(x, element(type), type, what)
        else:
            raise TypeError(at_line(f"{what} is {type}, got {description(x)}"))
    found: Type = x.type
    own: Value = x.value
    if found == type:
        return own
    same_kind = isinstance(found, Scalar | ArrayType) and isinstance(type, Scalar | ArrayType)
    if not same_kind or element(found) != element(type) or rank(found) != rank(type):
        raise TypeError(at_line(f"{what} is {type}, got {description(given)}"))
    return _resized(own, type, what)


def converted(x: Any, like: Scalar, type: Type, what: str) -> Expr:
    """A user's ``x`` as an expression, a number as one of ``like``; TypeError, beginning with ``what``, for others."""
    try:
        return as_expr(x, like)
    except (TypeError, ValueError) as error:
        raise TypeError(at_line(f"{what} is {type}, got {description(x)}")) from error


def _resized(value: Value, type: Type, what: str) -> Value:
    """An array with the sizes of a type, which it is required to have."""
    builder = current()
    sizes: list[Value] = []
    for axis, (wanted, actual) in enumerate(zip(dims(type), dims(value.type), strict=True)):
        equal = wanted.compare(actual)
        if equal is False or not wanted.is_static():
            raise TypeError(at_line(f"{what} is {type}, got {value.type}"))
        sizes.append(builder.dim(wanted))
        if equal is None:
            both = [sizes[-1], builder.size(value, axis)]
            message = f"{what}: axis {axis} of {type} is {_said(wanted)}, got {{1}}"
            builder.require(builder.primitive("equal", *both), Failure("size", message, user_line()), both)
    return builder.array(sizes, lambda *indices: builder.index(value, indices))


def _said(dim: Dim) -> str:
    return str(dim) if dim.constant is not None else f"{dim} = {{0}}"


def description(x: Any) -> str:
    """What a message says of a user's value."""
    if isinstance(x, Expr):
        return str(x.type)
    if isinstance(x, tuple | list) and x:
        return f"({', '.join(map(description, x))}{',' if len(x) == 1 else ''})"
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype} with shape {x.shape}"
    return f"{x!r}" if isinstance(x, bool | int | float | str) else f"a value of type {type(x).__name__}"


# Functions


class FunctionExpr(Expr):
    """A function whose results have a structure that is known: that of its definition."""

    __slots__ = ("outputs",)

    def __init__(self, value: Value, builder: Builder, outputs: Shape) -> None:
        super().__init__(value, builder)
        self.outputs = outputs


def apply(function: Expr, arguments: Sequence[Any]) -> Structure:
    """The results of a function that is a value.

    Structures of arguments are taken apart. Several results are a tuple, or what the function's definition returns.
    Raises TypeError when the arguments do not have the types of the parameters.
    """
    builder, type = current(), function.type
    if not isinstance(type, FunctionType):
        raise TypeError(at_line(f"a value of type {type} is not a function"))
    values: list[Value] = []

    def take(argument: Any) -> None:
        if len(values) < len(type.parameters):
            wanted = type.parameters[len(values)]
            packed = isinstance(wanted, Named) or (isinstance(wanted, TupleType) and isinstance(argument, tuple | list))
            parts = None if packed else trees.parts(argument)
            if parts is None:
                values.append(as_typed(argument, wanted, f"argument {len(values) + 1} of a function {type}"))
            for part in parts or ():
                take(part)
            return
        raise TypeError(at_line(f"a function {type} takes {len(type.parameters)} argument(s), got more"))

    for argument in arguments:
        take(argument)
    if len(values) < len(type.parameters):
        missing = f"takes {len(type.parameters)} argument(s), got {len(values)}: there is no partial application"
        raise TypeError(at_line(f"a function {type} {missing}"))
    builder.origin = user_line()
    results = [expression_of(value, builder) for value in builder.emit("apply", (), [function.value, *values])]
    if isinstance(function, FunctionExpr):
        return trees.unflatten(function.outputs, results)
    return trees.structure(results[0] if len(results) == 1 else tuple(results))


METHODS["apply"] = apply


class Definition:
    """A function on its way to a value, which it becomes in each program that mentions it.

    It is a leaf of structures, so no dataclass.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        parameters: Sequence[Declared],
        names: Sequence[str],
        result: Declared | None,
        recursive: bool,
        origin: Origin,
    ) -> None:
        self.function, self.name, self.parameters, self.names = function, name, tuple(parameters), tuple(names)
        self.result, self.recursive, self.origin = result, recursive, origin
        self.place: Place | None = None  # the one whose sizes its types have

    def __repr__(self) -> str:
        return f"<{'recursive ' if self.recursive else ''}function {self.name}>"

    def __call__(self, *arguments: Any) -> Structure:
        """Apply it, inside a program."""
        return apply(self.as_expression(), arguments)

    @staticmethod
    def of_types(
        function: Callable[..., Any], types: Sequence[Type], results: tuple[Type, ...] | None = None
    ) -> Definition:
        """A Python function as a function of parameters of these types."""
        parameters = tuple([Declared(trees.LEAF, (type,)) for type in types])
        result = None if results is None else Declared(trees.LEAF, results)
        if results is not None and len(results) != 1:
            result = Declared(Shape(tuple, (), (trees.LEAF,) * len(results)), results)
        names = _positional(function, len(parameters))
        return Definition(function, _name_of(function), parameters, names, result, False, user_line())

    def as_expression(self) -> FunctionExpr:
        """The function as a value of the program that is being built, which mentions it."""
        value, outputs = Letrec.mention(self.here(current()))
        return FunctionExpr(value, current(), outputs)

    def here(self, builder: Builder) -> Definition:
        """The function with the sizes that its types mean in the program which is being built."""
        names = builder.size_names
        what = f"a parameter or result of {self.name}"
        *parameters, result = [
            None if one is None else Declared(one.shape, tuple([names.type(type, what) for type in one.types]))
            for one in (*self.parameters, self.result)
        ]
        if (*parameters, result) == (*self.parameters, self.result):
            return self
        key = self, tuple(parameters), result
        if key not in builder.definitions:
            known = [one for one in parameters if one is not None]
            made = Definition(self.function, self.name, known, self.names, result, self.recursive, self.origin)
            made.place, builder.definitions[key] = names.place, made
        found: Definition = builder.definitions[key]
        return found

    def emit(self) -> FunctionExpr:
        """The function as a value, from a body that may use whatever is in scope."""
        builder = current()
        body, outputs = self.body(builder)
        return FunctionExpr(self.value(builder, body, self.recursive), builder, outputs)

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of the leaves of its parameters."""
        return tuple([type for parameter in self.parameters for type in parameter.types])

    @property
    def leaves(self) -> list[str]:
        """The names of the leaves of its parameters."""
        named = zip(self.names, self.parameters, strict=True)
        return [leaf for name, parameter in named for leaf in trees.leaf_names(name, parameter.shape)]

    def body(self, builder: Builder) -> tuple[Body, Shape]:
        """Its body, which begins with the function itself if that is recursive, and the structure of its result."""
        types = self.types
        outputs: list[Shape] = [self.result.shape] if self.result is not None else []

        def run(*binders: Value) -> Sequence[Value]:
            arguments: list[Any] = []
            if self.recursive:
                arguments.append(FunctionExpr(binders[0], builder, outputs[0]))
                binders = binders[1:]
            leaves = iter([expression_of(binder, builder) for binder in binders])
            for parameter in self.parameters:
                own = [next(leaves) for _ in parameter.types]
                arguments.append(trees.unflatten(parameter.shape, own))
            try:
                with builder.size_names.at(self.place or builder.size_names.place):
                    result = self.function(*arguments)
            except NameError as error:
                without_value(error, self.name)
                raise
            return self._results(result, outputs)

        names: Sequence[str] = self.leaves
        if self.recursive:
            assert self.result is not None
            types, names = (FunctionType(types, self.result.types), *types), [self.name, *names]
        return builder.body(types, run, names), outputs[0]

    def value(self, builder: Builder, body: Body, recursive: bool) -> Value:
        """The value of the function with this body; that of a recursive one begins with the function itself."""
        builder.origin = Origin(self.origin.file, self.origin.line, self.name)
        type = FunctionType(self.types, body.types)
        return builder.emit("fix" if recursive else "function", (type,), [], [body])[0]

    def _results(self, result: Any, outputs: list[Shape]) -> list[Value]:
        if result is None:
            raise TypeError(at_line(f"{self.name} returns nothing: is a return missing?"))
        if self.result is None:
            leaves, shape = trees.flatten(result, records=False)
            outputs.append(shape)
            return [as_expr(leaf).value for leaf in leaves]
        try:
            leaves = trees.matched(self.result.shape, result)
        except TypeError:
            raise TypeError(at_line(f"the result of {self.name} is {self.result}, got {description(result)}")) from None
        what = f"the result of {self.name}"
        return [as_typed(leaf, type, what) for leaf, type in zip(leaves, self.result.types, strict=True)]


def function(f: Any, *parameters: Any, result: Any = None) -> Any:
    """A Python function as a function of the language, that is, a value which can be passed, stored and called.

    The types of the parameters are given here, or by the function's annotations; that of the result may be left out.
    Inside a program this is an expression; outside it is a definition that becomes one in each program that uses it.
    Raises TypeError when a parameter has no type.

    >>> import adze as az
    >>> @az.program
    ... def twice(x: az.f64, y: az.f64) -> az.f64:
    ...     added, multiplied = az.function(lambda z: z + y, az.f64), az.function(lambda z: z * y, az.f64)
    ...     g = az.cond(x > 0, lambda: added, lambda: multiplied)
    ...     return g(g(x))
    >>> [float(az.evaluate(twice)(x, 3.0)) for x in (1.0, -1.0)]
    [7.0, -9.0]
    """
    definition = _define("function", f, parameters, result, recursive=False)
    return definition.here(current()).emit() if building() else definition


def fix(f: Any, *parameters: Any, result: Any = None) -> Any:
    """The recursive function whose body is ``f(self, ...)``: there ``self`` is the function itself.

    The types of the parameters and of the result are given here, or by the function's annotations. As ``function``,
    this is an expression inside a program and a definition outside. Raises TypeError when a type is missing.

    >>> import adze as az
    >>> @az.fix
    ... def fibonacci(self, n: az.i64) -> az.i64:
    ...     return az.cond(n < 2, lambda: n, lambda: self(n - 1) + self(n - 2))
    >>> @az.program
    ... def number(n: az.i64) -> az.i64:
    ...     return fibonacci(n)
    >>> int(az.evaluate(number)(10))
    55
    """
    definition = _define("fix", f, parameters, result, recursive=True)
    return definition.here(current()).emit() if building() else definition


def _define(what: str, f: Any, given: Sequence[Any], result: Any, recursive: bool) -> Definition:
    name = _name_of(f)
    if isinstance(f, Definition) or not callable(f):
        raise TypeError(at_line(f"{what} takes a Python function, not {description(f)}"))
    declared: list[Declared] = []
    if given:
        declared = [read_annotation(annotation) for annotation in given]
        names = _positional(f, len(declared) + recursive)[int(recursive) :]
        annotated = None
    else:
        own, annotated = read_parameters(f)
        if recursive and not own:
            raise TypeError(at_line(f"fix: the first parameter of {name} is the function itself"))
        own = own[1:] if recursive else own
        names = tuple([parameter.name for parameter in own])
        declared = [_declared(what, name, parameter) for parameter in own]
    chosen = annotated if result is None else read_annotation(result)
    if recursive and chosen is None:
        raise TypeError(at_line(f"fix: {name} needs the type of its result: annotate it, or give result="))
    return Definition(f, name, tuple(declared), names, chosen, recursive, user_line(name))


def _declared(what: str, name: str, parameter: Parameter) -> Declared:
    if parameter.declared is None:
        problem = "a static Python type" if parameter.static else "no annotation"
        message = f"{what}: parameter {parameter.name!r} of {name} has {problem}; give its type"
        raise TypeError(at_line(message))
    return parameter.declared


def _name_of(f: Any) -> str:
    name = getattr(f, "__name__", "function")
    return "function" if name == "<lambda>" else str(name)


def _positional(f: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Names for the parameters of a function that is called with ``count`` arguments; TypeError when it cannot be."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return ("",) * count
    try:
        signature.bind(*[None] * count)
    except TypeError:
        message = f"{_name_of(f)}{signature} cannot be called with {count} argument(s)"
        raise TypeError(at_line(message)) from None
    names = [p.name for p in signature.parameters.values() if p.kind != p.VAR_POSITIONAL][:count]
    return tuple(names + [""] * (count - len(names)))
