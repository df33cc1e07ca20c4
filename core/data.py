"""Declared data types: records and variants, recursive and polymorphic, written as Python classes.

A class with annotations is a record; one with nested classes has a variant for each. Values are immutable Python
objects outside of programs. Inside of them a record is one whose fields are expressions (``records.py``), and a value
of a type with variants, or of one that contains itself, is an expression, taken apart by ``case``. Type arguments are
found from the fields where they determine them; ``List[az.f64].Nil()`` gives them. What classes declare is read in
``declarations.py``.

>>> import adze as az
>>> from typing import Generic, TypeVar
>>> T = TypeVar("T")
>>> @az.data
... class List(Generic[T]):
...     class Nil: ...
...     class Cons:
...         head: T
...         tail: "List[T]"
>>> @az.program
... def total(xs: List[az.f64]) -> az.f64:
...     @az.fix
...     def add(self, xs: List[az.f64]) -> az.f64:
...         return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head + self(tail))
...     return add(xs)
>>> float(az.evaluate(total)(List.Cons(1.0, List.Cons(2.0, List.Nil()))))
3.0

A Python value is like a Python number: it has no type of its own, and adopts the one that is expected. Values may be
deeper than Python's stack, so nothing here recurs over them.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from .annotations import Scope, value_type
from .builder import building, current
from .declarations import Family, Undeclared, variables
from .deep_values import are_equal, hash_of, restored, steps_of, text_of
from .dims import Dim
from .expr import Expr, is_number
from .functions import Definition, as_typed, description
from .graph import Value
from .host_arrays import as_array, scalar_in
from .records import adopted, fitted, is_table
from .source import at_line, user_line
from .trees import LEAVES, Record, Shape
from .types import (
    Declaration,
    FunctionType,
    Named,
    Scalar,
    TupleType,
    Type,
    TypeVariable,
    array_of,
    bool_,
    f64,
    i64,
    instantiated,
    is_data,
    scalar_of,
)

_store: Callable[[Any, tuple[Any, ...]], None] = vars(Record)["_values"].__set__

C = TypeVar("C")


class Data(Record):
    """A value of a declared type, immutable, compared by its fields. Its class is that of its variant."""

    __slots__ = ()

    _family: ClassVar[Family]
    _variant: ClassVar[str]
    _count: ClassVar[int] = -1  # of the fields, where there are values of this class
    __match_args__: ClassVar[tuple[str, ...]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != cls._count or building():
            return cls._made(args, kwargs, None)
        value = object.__new__(cls)  # most values are made here, and there are many
        _store(value, args)
        return value

    @classmethod
    def _made(cls, args: Sequence[Any], kwargs: Mapping[str, Any], type: Named | None) -> Any:
        """A Python value; inside a program one of expressions, or one itself, when a field is or the type is given."""
        if "_variant" not in vars(cls):
            variants = " or ".join(f"{cls.__name__}.{name}" for name in cls._family.fields)
            raise TypeError(at_line(f"{cls.__name__} has variants: make a value with {variants}"))
        values = cls._arguments(args, kwargs)
        if building() and (type is not None or any(map(_of_program, values))):
            return cls._construct(values, type)
        return cls._of(values)

    @classmethod
    def _of(cls, values: Sequence[Any]) -> Any:
        """The Python value with these fields."""
        value = object.__new__(cls)
        _store(value, tuple(values))
        return value

    @classmethod
    def _arguments(cls, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        names = cls._names()
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                problem = "is given twice" if name in given else f"is not one of its fields ({', '.join(names)})"
                raise TypeError(at_line(f"{cls.__qualname__}: {name!r} {problem}"))
            given[name] = value
        if len(args) > len(names) or len(given) < len(names):
            wanted = f"takes {len(names)} field(s) ({', '.join(names)})"
            raise TypeError(at_line(f"{cls.__qualname__} {wanted}, got {len(args) + len(kwargs)}"))
        return tuple([given[name] for name in names])

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return cls.__match_args__

    @classmethod
    def _construct(cls, values: Sequence[Any], type: Named | None) -> Any:
        builder = current()
        named = type or _inferred(cls, values)
        if named.declaration.is_record:
            return fitted(cls._of(values), named)
        fields = named.fields(cls._variant)
        given = zip(values, fields.items(), strict=True)
        parts = [as_typed(value, wanted, f"field {name!r} of {cls.__qualname__}") for value, (name, wanted) in given]
        builder.origin = user_line()
        return Expr(builder.emit("construct", (named, cls._variant), parts)[0], builder)

    # As a structure

    @classmethod
    def _keys(cls) -> tuple[str, ...] | None:
        """The fields of a record; None for the values of other types."""
        return cls.__match_args__ if cls.declared().is_record else None

    def _flat(self) -> Shape | None:
        """The shape of a record of numbers and arrays, outside of programs; None for others."""
        return None if building() or not LEAVES.issuperset(map(type, self._values)) else self._family.flat

    def _parts(self) -> list[tuple[Any, bool]]:
        """The fields of a record as values of their types, and whether each is a leaf whatever it is."""
        if building():
            return [(value, False) for value in self._adopted()._values]
        fields = self.declared().variants[self._variant].values()
        return [(value, is_data(type) and is_table(value)) for value, type in zip(self._values, fields, strict=True)]

    def _adopted(self) -> Data:
        """A record with expressions for what Python says in it."""
        if not any(map(_of_python, self._values)):
            return self
        declaration, bound = self.declared(), _arguments(type(self), self._values)
        result: Data = adopted(self, Named(declaration, tuple([bound.get(p, p) for p in declaration.parameters])))
        return result

    def __class_getitem__(cls, arguments: Any) -> DataType:
        parameters = cls._family.declaration.parameters
        given = arguments if isinstance(arguments, tuple) else (arguments,)
        if len(given) != len(parameters) or cls.__name__ != cls._family.declaration.name:
            takes = f"{len(parameters)} type argument(s)" if parameters else "no type arguments"
            raise TypeError(at_line(f"{cls.__name__} takes {takes}, got {len(given)}"))
        return DataType(cls, given)

    @classmethod
    def declared(cls) -> Declaration:
        """The declaration that the class belongs to."""
        return cls._family.read()

    @classmethod
    def declared_type(cls, scope: Scope) -> Named:
        """The type that the class stands for in an annotation."""
        declaration = cls._family.declaration
        if cls.__name__ != declaration.name:
            raise TypeError(f"{cls.__qualname__} is a variant; the type is {declaration.name}")
        if declaration.parameters:
            arguments = ", ".join(map(str, declaration.parameters))
            raise TypeError(f"{declaration.name} takes type arguments: {declaration.name}[{arguments}]")
        return Named(cls.declared())

    # As a value of a program

    def natural_type(self) -> Named:
        """The type that the content determines; TypeError when it leaves a type argument open."""
        return _inferred(type(self), self._values)

    def as_expression(self) -> Expr:
        """This value as a constant of the program that is being built."""
        return Expr(self.as_typed(self.natural_type(), f"a value of type {self._family.declaration}"), current())

    def as_typed(self, type: Type, what: str) -> Value:
        """This value as a constant of a type."""
        builder = current()
        builder.origin = user_line()

        def construct(named: Named, variant: str, parts: Sequence[Value]) -> Value:
            return builder.emit("construct", (named, variant), parts)[0]

        result: Value = fold(self, type, what, as_typed, lambda parts: builder.emit("pack", (), parts)[0], construct)
        return result

    # As a Python object

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        fields = f"its fields are {', '.join(self._names())}" if self._names() else "it has none"
        raise AttributeError(at_line(f"a {type(self).__qualname__} has no field {name!r}; {fields}"))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__qualname__} is immutable")

    def __repr__(self) -> str:
        return text_of(self)

    def __eq__(self, other: object) -> bool:
        return are_equal(self, other) if isinstance(other, Data) else NotImplemented

    def __hash__(self) -> int:
        return hash_of(self)

    def __reduce__(self) -> Any:
        return restored, (steps_of(self),)


# Walks over values that may be deep


def fold(
    value: Any,
    type: Type,
    what: str,
    leaf: Callable[[Any, Type, str], Any],
    pack: Callable[[Sequence[Any]], Any],
    construct: Callable[[Named, str, Sequence[Any]], Any],
) -> Any:
    """The meaning of a Python value of a type, from the meanings of its parts.

    ``leaf(x, type, what)`` is that of what is neither data nor a tuple. A value of declared type that is met again has
    the meaning that it had. Raises TypeError, beginning with ``what``, for a value of another type.
    """
    root = what
    done: list[Any] = []
    known: dict[tuple[int, int], Any] = {}  # by the identities of a value and its type
    todo: list[tuple[Any, Any, str, bool]] = [(value, type, what, False)]
    fields: dict[tuple[Named, str], list[tuple[Type, str]]] = {}
    while todo:
        value, type, what, entered = todo.pop()
        if entered:
            count = len(type.items) if isinstance(type, TupleType) else len(value._values)
            parts = done[len(done) - count :]
            del done[len(done) - count :]
            if isinstance(type, Named):
                done.append(construct(type, value._variant, parts))
                known[id(value), id(type)] = done[-1]
            else:
                done.append(pack(parts))
        elif (id(value), id(type)) in known:
            done.append(known[id(value), id(type)])
        elif isinstance(type, TupleType) and isinstance(value, tuple | list) and len(value) == len(type.items):
            todo.append((value, type, what, True))
            todo.extend([(x, t, f"{what}[{k}]", False) for k, (x, t) in enumerate(zip(value, type.items))][::-1])
        elif isinstance(type, Named) and isinstance(value, Data) and value._family.declaration is type.declaration:
            key = (type, value._variant)
            if key not in fields:
                name = builtins.type(value).__qualname__
                found = type.fields(value._variant).items()
                fields[key] = [(wanted, f"{root}, field {field!r} of {name}") for field, wanted in found]
            todo.append((value, type, what, True))
            todo.extend([(x, t, w, False) for x, (t, w) in zip(value._values, fields[key])][::-1])
        elif isinstance(type, Named | TupleType) and not isinstance(value, Expr):
            raise TypeError(at_line(f"{what} is {type}, got {_shown(value)}"))
        else:
            done.append(leaf(value, type, what))
    return done[0]


def value_class(declaration: Declaration, variant: str) -> builtins.type[Data]:
    """The class of the values of a variant, made here for a declaration without a class."""
    if variant not in declaration.classes:
        content = {"__slots__": (), "_family": Undeclared(declaration)}
        fields = _fields(f"{declaration.name}.{variant}", declaration.variants[variant], False)
        declaration.classes[variant] = builtins.type(variant, (Data,), content | fields)
    return declaration.classes[variant]


def _shown(value: Any) -> str:
    return f"a {builtins.type(value).__qualname__}" if isinstance(value, Data) else description(value)


def _of_program(value: Any) -> bool:
    """Whether a field is part of the program that is being built."""
    parts = _inside(value)
    return any(map(_of_program, parts)) if parts is not None else isinstance(value, Expr) or callable(value)


def _of_python(value: Any) -> bool:
    """Whether a field, or a part of it, is no part of a program yet."""
    parts = _inside(value)
    return any(map(_of_python, parts)) if parts is not None else not (isinstance(value, Expr) or value is None)


def _inside(value: Any) -> Sequence[Any] | None:
    """What a tuple or record is made of; None for other values."""
    if isinstance(value, Data):
        return None if value._keys() is None else value._values
    return value if isinstance(value, tuple | list) else None


# Type arguments


def _inferred(cls: builtins.type[Data], values: Sequence[Any]) -> Named:
    """The type of a value with these fields; TypeError when they leave a type argument open."""
    declaration = cls.declared()
    bound = _arguments(cls, values)
    missing = [str(parameter) for parameter in declaration.parameters if parameter not in bound]
    if missing:
        arguments = ", ".join(map(str, declaration.parameters))
        text = f"{cls.__qualname__}: its fields do not say what {', '.join(missing)} is"
        variant = "" if cls._family.record else f".{cls._variant}"
        raise TypeError(
            at_line(f"{text}; write {declaration.name}[{arguments}]{variant}(...) with types for {arguments}")
        )
    return Named(declaration, tuple([bound[parameter] for parameter in declaration.parameters]))


def _arguments(cls: builtins.type[Data], values: Sequence[Any]) -> dict[TypeVariable, Type]:
    """The type arguments that fields determine. Expressions say what they are; numbers adopt what is left open."""
    declaration = cls.declared()
    certain: dict[TypeVariable, Type] = {}
    natural: dict[TypeVariable, Type] = {}
    own = Named(declaration, declaration.parameters)
    functions: list[tuple[FunctionType, Any]] = []
    todo: deque[tuple[Type, Any]] = deque(zip(own.fields(cls._variant).values(), values, strict=True))
    while todo:
        wanted, value = todo.popleft()
        if not variables(wanted):
            continue
        if isinstance(value, Definition):
            value = value.as_expression()
        if isinstance(value, Expr):
            _match(wanted, value.type, certain, cls)
        elif isinstance(wanted, TypeVariable):
            found = natural_type(value)
            if found is not None:
                natural[wanted] = wider(natural.get(wanted), found)
        elif isinstance(wanted, TupleType) and isinstance(value, tuple | list):
            todo.extend(zip(wanted.items, value))
        elif isinstance(wanted, Named) and isinstance(value, Data) and value._family.declaration is wanted.declaration:
            todo.extend(zip(wanted.fields(value._variant).values(), value._values, strict=True))
        elif isinstance(wanted, FunctionType) and callable(value):
            functions.append((wanted, value))
    for wanted, value in functions:  # their results are known when their parameters are
        parameters = [instantiated(parameter, natural | certain) for parameter in wanted.parameters]
        if building() and not any(map(variables, parameters)):
            _match(wanted, Definition.of_types(value, parameters).emit().type, certain, cls)
    return natural | certain


def _match(wanted: Type, found: Type, bound: dict[TypeVariable, Type], cls: builtins.type[Data]) -> None:
    """Bind the variables of a type so that it is another; what does not match is left to those who compare."""
    match wanted, found:
        case TypeVariable(), _:
            if bound.setdefault(wanted, found) != found:
                message = f"{cls.__qualname__}: {wanted} is {bound[wanted]} in one field and {found} in another"
                raise TypeError(at_line(message))
        case TupleType(mine), TupleType(theirs):
            for a, b in zip(mine, theirs):
                _match(a, b, bound, cls)
        case FunctionType(), FunctionType():
            for a, b in zip(wanted.parameters + wanted.results, found.parameters + found.results):
                _match(a, b, bound, cls)
        case Named(), Named() if wanted.declaration is found.declaration:
            for a, b in zip(wanted.arguments, found.arguments):
                _match(a, b, bound, cls)


def natural_type(value: Any) -> Type | None:
    """The type that a value has where nothing else decides; None when it does not say."""
    if isinstance(value, Expr):
        return value.type
    if isinstance(value, Data):
        bound, declaration = _arguments(type(value), value._values), value.declared()
        arguments = [bound[parameter] for parameter in declaration.parameters if parameter in bound]
        return Named(declaration, tuple(arguments)) if len(arguments) == len(declaration.parameters) else None
    if isinstance(value, tuple):
        items = [item for item in map(natural_type, value) if item is not None]
        return TupleType(tuple(items)) if len(items) == len(value) else None
    if is_number(value):
        return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f64
    if isinstance(value, np.ndarray | np.generic | list):
        array = as_array(value)
        scalar = scalar_in(array)
        if scalar is not None:
            return array_of(scalar, tuple([Dim.of(n) for n in array.shape]))
    return None


def wider(a: Type | None, b: Type) -> Type:
    """Of two types of numbers the one that holds both; else the first."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return scalar_of(np.result_type(a.dtype, b.dtype)) or a
    return b if a is None else a


# Types with type arguments, and the decorator


class DataType:
    """A declared type with type arguments, as in ``List[az.f64]``: an annotation, and constructors of that type."""

    def __init__(self, cls: builtins.type[Data], arguments: Sequence[Any]) -> None:
        self._cls, self._arguments = cls, tuple(arguments)

    def declared_type(self, scope: Scope) -> Named:
        """The type that this stands for in an annotation."""
        return Named(self._cls.declared(), tuple([value_type(argument, scope) for argument in self._arguments]))

    def __getattr__(self, variant: str) -> Callable[..., Any]:
        classes: Mapping[str, Any] = self._cls._family.declaration.classes
        if variant not in classes or self._cls._family.record:
            raise AttributeError(f"{self!r} has no variant {variant}")
        return lambda *args, **kwargs: classes[variant]._made(args, kwargs, self._type())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._cls._made(args, kwargs, self._type())

    def _type(self) -> Named:
        """The type where a value of it is made: in a program, with the sizes that its names mean there."""
        own = self.declared_type({})
        here = current().size_names.type(own, "a value") if building() else own
        assert isinstance(here, Named)
        return here

    def __repr__(self) -> str:
        return f"{self._cls.__name__}[{', '.join(map(str, self._arguments))}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataType) and self.declared_type({}) == other.declared_type({})

    def __hash__(self) -> int:
        return hash(self._cls)


@dataclass_transform(frozen_default=True)
def data(cls: builtins.type[C]) -> builtins.type[C]:
    """Declare a data type: a record (a class with annotations) or a sum (a class with a nested class a variant).

    A variant may be declared as a function, too (:func:`variant`), which checkers of types understand.

    Fields are scalars, arrays, functions, tuples and declared types, also the type itself, in text if need be.
    ``Generic[T]`` as a base gives it type parameters. A record which does not contain itself is a structure, as a tuple
    is: in parameters and results, and in derivatives by it. Raises TypeError for a class that is neither, and, when
    the type is first used, for a field that has no type.

    >>> import adze as az
    >>> @az.data
    ... class Point:
    ...     x: az.f64
    ...     y: az.f64
    >>> Point(1.0, y=2.0)
    Point(x=1.0, y=2.0)
    >>> @az.program
    ... def mirrored(p: Point) -> Point:
    ...     return Point(p.y, p.x)
    >>> az.evaluate(mirrored)(Point(1.0, 2.0)) == Point(2.0, 1.0)
    True
    """
    family = Family(cls, sys._getframe(1))
    hidden = ("__dict__", "__weakref__", "__annotations__", "__orig_bases__", "__parameters__", *family.fields)
    content = {name: value for name, value in vars(cls).items() if name not in hidden}
    content |= {"__slots__": (), "_family": family}
    own = family.fields.get(cls.__name__, {}) if family.record else {}
    made = builtins.type(cls.__name__, (Data,), content | (_fields(cls.__name__, own, True) if family.record else {}))
    declaration = family.declaration
    declaration.owner = made
    declaration.classes = {cls.__name__: made} if family.record else {}
    for name, fields in () if family.record else family.fields.items():
        inner = {"__slots__": (), "__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.{name}"}
        variant = builtins.type(name, (made,), inner | _fields(f"{cls.__name__}.{name}", fields, False))
        declaration.classes[name] = variant
        setattr(made, name, variant)
    family.locals = {**family.locals, cls.__name__: made}
    return made


def _fields(where: str, fields: Mapping[str, Any], record: bool) -> dict[str, Any]:
    """The attributes of a variant's class: the fields, by name and for matching."""
    for name in fields:
        if name.startswith("_") or hasattr(Data, name) or (record and hasattr(Expr, name)):
            raise TypeError(at_line(f"{where}: a field cannot be called {name!r}, which means something else"))
    content: dict[str, Any] = {name: property(_getter(k)) for k, name in enumerate(fields)}
    return content | {"__match_args__": tuple(fields), "_variant": where.rpartition(".")[2], "_count": len(fields)}


def _getter(position: int) -> Callable[[Any], Any]:
    return lambda value: value._values[position]
