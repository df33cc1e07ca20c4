"""The arguments of a call: converted to NumPy, checked against a program's types, and the sizes they bind.

A *signature* is made once for an instance of a program. A call gives its leaves to :meth:`Signature.convert`, which
gives back C-contiguous arrays (scalars as NumPy scalars) and the value of every size name. Arrays must have the
declared scalar type; Python numbers and lists of them convert when that loses nothing. A name is bound by the axes
whose size is that name alone; sizes that are expressions are then compared with what their names say, and so are the
arrays inside of data; and sizes that the program requires to be equal with each other (``unification.py``). An array in
the memory of an OpenCL device is fetched, unless the call runs on that device.

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

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from . import trees
from .annotations import Declared, type_of_argument
from .data import Data, fold, natural_type, value_class
from .declarations import variables
from .dims import Dim, DimAtom, Name
from .expr import INLINE
from .host_arrays import MASKED, advice, is_masked, on_device, read_array, scalar_in
from .source import at_line
from .trees import Shape
from .types import (
    ArrayType,
    FunctionType,
    Named,
    Scalar,
    Type,
    all_dims,
    array_of,
    bool_,
    dims,
    element,
    f64,
    is_data,
    map_dims,
    rank,
    reached,
)
from .unification import Equality

_KINDS = ("bool", "int", "float")

# From a value, its type, how messages begin, and the sizes of a call
Converter = Callable[[Any, Type, str, Mapping[str, int]], Any]


class Signature:
    """The names and types of a program's parameters, ready to check calls.

    Raises TypeError when a size name occurs in size expressions or in data only, since no argument would bind it.
    """

    def __init__(
        self, program: str, names: Sequence[str], types: Sequence[Type], equalities: Sequence[Equality] = ()
    ) -> None:
        self.program, self.names, self.types, self.equalities = program, tuple(names), tuple(types), tuple(equalities)
        self.dtypes = [element(type).dtype if is_data(type) else None for type in types]
        self.ranks = [rank(type) for type in types]
        self.values = [k for k, type in enumerate(types) if not is_data(type)]  # data and functions
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
        inside = [(leaf, dim) for leaf in self.values for part in reached(types[leaf]) for dim in all_dims(part)]
        for leaf, dim in [(leaf, dim) for leaf, _, dim in self.derived] + inside:
            for name in sorted(dim.names() - self.bound):
                raise TypeError(
                    f"{program}: the size {name} of parameter {self.names[leaf]!r}, of type {types[leaf]}, cannot be "
                    f"found from the arguments: no axis of a parameter has the size {name} alone"
                )

    def convert(
        self, leaves: Sequence[Any], context: Any = None, data: Converter | None = None
    ) -> tuple[list[Any], dict[str, int]]:
        """Arrays, NumPy scalars and data of the declared types, and the value of each size name.

        What is neither an array nor a scalar is what ``data`` makes of it, if that is given. With the OpenCL context of
        a device, arrays in row-major order that are in its memory stay what they are.
        Raises TypeError for a wrong scalar type, rank or kind of object, ValueError for sizes that contradict each
        other or an array of another context; both name the program, the argument and the line of the call.
        """
        values = [self._converted(leaf, position, context) for position, leaf in enumerate(leaves)]
        sizes = self.fitting(values)
        for leaf in self.values:
            values[leaf] = (data or value_of)(values[leaf], self.types[leaf], self._argument(leaf), sizes)
        return values, sizes

    def fitting(self, values: Sequence[Any]) -> dict[str, int]:
        """The value of each size name, for what has the shapes of the arguments; ValueError where they contradict."""
        sizes: dict[str, int] = {}
        for leaf, axis, name in self.binding:
            actual = values[leaf].shape[axis]
            if sizes.setdefault(name, actual) != actual:
                self._contradiction(values, name, leaf, axis)
        for leaf, axis, dim in self.derived:
            try:
                expected, actual = dim.evaluate(sizes), values[leaf].shape[axis]
            except ZeroDivisionError:
                problem = f"is {dim}, which divides by zero (with {_known(dim, sizes)})"
                raise ValueError(
                    at_line(f"{self.program}: axis {axis} of argument {self.names[leaf]!r} {problem}")
                ) from None
            if expected != actual:
                _wrong_size(self._argument(leaf), values[leaf], axis, dim, sizes)
        for equality in self.equalities:
            equality.check(sizes)
        return sizes

    def sizes(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The value of each size name, before :meth:`convert` has said whether the arguments are right."""
        sizes: dict[str, int] = {}
        for leaf, axis, name in self.binding:
            array = leaves[leaf]
            if type(array) is not np.ndarray or array.ndim != self.ranks[leaf]:
                return self.convert(leaves)[1]
            if sizes.setdefault(name, array.shape[axis]) != array.shape[axis]:
                return self.convert(leaves)[1]  # which refuses them
        return sizes

    def requiring(self, equalities: Sequence[Equality]) -> Signature:
        """The signature that checks these equalities, too."""
        return Signature(self.program, self.names, self.types, equalities)

    def _contradiction(self, values: Sequence[Any], name: str, leaf: int, axis: int) -> None:
        first, first_axis = next((other, k) for other, k, bound in self.binding if bound == name)
        places = [
            f"{values[k].shape[a]} in argument {self.names[k]!r} (axis {a} of shape {values[k].shape})"
            for k, a in ((first, first_axis), (leaf, axis))
        ]
        raise ValueError(at_line(f"{self.program}: {name} is {places[0]}, but {places[1]}"))

    def _converted(self, leaf: Any, position: int, context: Any) -> Any:
        dtype, wanted_rank = self.dtypes[position], self.ranks[position]
        if type(leaf) is np.ndarray and leaf.dtype == dtype and leaf.ndim == wanted_rank and wanted_rank:
            return leaf if leaf.flags.c_contiguous else np.ascontiguousarray(leaf)
        if dtype is None:
            return leaf
        if on_device(leaf):
            return self._from_device(leaf, position, context)
        return array_of_type(leaf, self.types[position], self._argument(position))

    def _from_device(self, array: Any, position: int, context: Any) -> Any:
        """An array on a device, as it is where that is the device of the call; fetched for any other call."""
        type, what = self.types[position], self._argument(position)
        if array.dtype != self.dtypes[position] or len(array.shape) != self.ranks[position]:
            _refuse(type, what, f"an array of {array.dtype} with shape {array.shape}, on a device")
        if context is not None and array.shape and array.context != context:
            problem = "is an array on another device or in another context than the call's; az.to_device moves it"
            raise ValueError(at_line(f"{what} {problem}"))
        if context is None or not array.shape or not array.flags.c_contiguous:
            return array_of_type(array, type, what)
        return array

    def _argument(self, position: int) -> str:
        return f"{self.program}: argument {self.names[position]!r}"


# Types of arguments without annotation


def types_of(leaves: Sequence[Any], shape: Shape, name: str, program: str) -> tuple[Type, ...]:
    """The types of the leaves of an argument: as they are by themselves, or as records say that they are.

    The sizes that a record names are its own, so those of two records of one type may differ. TypeError for what is
    not a value of the language.
    """
    named = zip(leaves, trees.leaf_names(name, shape), _declared(leaves, shape, name), strict=True)
    return tuple([_type_of(leaf, name, type, program) for leaf, name, type in named])


def _declared(leaves: Sequence[Any], shape: Shape, place: str) -> list[Type | None]:
    """What records say of each leaf of a part of an argument; None where they say nothing."""
    if shape.container is None:
        return [None]
    if issubclass(shape.container, Data):
        declared = _own_sizes(trees.unflatten(shape, leaves), trees.identifier(place))
        return [None if type is None or variables(type) else type for type in _aligned(shape, declared)]
    rest, found = iter(leaves), list[Type | None]()
    for inner, step in zip(shape.inner, trees.steps(shape), strict=True):
        found += _declared([next(rest) for _ in range(inner.leaves)], inner, place + step)
    return found


def _own_sizes(record: Data, name: str) -> Declared:
    """The fields of a record, their sizes named after an argument. Type arguments may be open."""
    declaration, natural = record.declared(), natural_type(record)
    arguments = list(natural.arguments if isinstance(natural, Named) else declaration.parameters)
    for k, type in enumerate(arguments):
        if isinstance(type, ArrayType):
            sizes = [Dim.of(f"{declaration.parameters[k]}_{axis}") for axis in range(rank(type))]
            arguments[k] = ArrayType(type.scalar, tuple(sizes))
    declared = Declared(trees.LEAF, (Named(declaration, tuple(arguments)),)).expanded()

    def own(atom: DimAtom) -> Dim | None:
        return Dim.atom(Name(f"{name}_{atom.name}")) if isinstance(atom, Name) else None

    return Declared(declared.shape, tuple([map_dims(type, lambda dim: dim.substitute(own)) for type in declared.types]))


def _aligned(shape: Shape, declared: Declared) -> list[Type | None]:
    """The types of the leaves of a shape that should have a declared one; None where it is another."""
    wanted, types = declared.shape, list(declared.types)
    if not shape.inner or len(shape.inner) != len(wanted.inner):
        return list(types) if shape == wanted else [None] * shape.leaves
    found: list[Type | None] = []
    for inner, other in zip(shape.inner, wanted.inner, strict=True):
        found += _aligned(inner, Declared(other, tuple(types[: other.leaves])))
        del types[: other.leaves]
    return found


def _type_of(leaf: Any, name: str, type: Type | None, program: str) -> Type:
    """The type of a leaf, where a record may say which; an array may have more axes, as an array of records has."""
    if type is not None and not is_data(type):
        return type
    own = type_of_argument(leaf, name, program)
    if type is None:
        return own
    more = max(rank(own) - rank(type), 0)
    return array_of(element(type), dims(own)[:more] + dims(type))


# Values


def value_of(value: Any, type: Type, what: str, sizes: Mapping[str, int]) -> Any:
    """A value of any type: data and tuples part by part, a function as one from values to a list of values.

    ``what`` begins the messages of the errors, TypeError and ValueError.
    """

    def leaf(x: Any, type: Type, what: str) -> Any:
        if isinstance(type, Scalar) and _holds_just(type, x):
            return type.dtype.type(x)
        if not isinstance(type, Scalar | ArrayType):
            return _function(x, type, what, sizes)
        array = array_of_type(x, type, what)
        for axis, dim in enumerate(dims(type)):
            if dim.evaluate(sizes) != array.shape[axis]:
                _wrong_size(what, array, axis, dim, sizes)
        return array

    def construct(named: Named, variant: str, parts: Sequence[Any]) -> Any:
        return value_class(named.declaration, variant)._of(parts)

    return fold(value, type, what, leaf, tuple, construct)


def _holds_just(scalar: Scalar, x: Any) -> bool:
    """Whether a scalar type has just this number, for most that a value is made of: who does not know says no."""
    given = x.__class__
    if given is int:
        return (
            scalar.least <= x <= scalar.most if scalar.kind == "int" else scalar.kind == "float" and abs(x) <= 1 << 24
        )
    return given is scalar.dtype.type or (given is float and scalar is f64) or (given is bool and scalar is bool_)


def _function(x: Any, type: Type, what: str, sizes: Mapping[str, int]) -> Callable[..., list[Any]]:
    if not isinstance(type, FunctionType) or not callable(x) or hasattr(x, "as_expression"):
        _refuse(type, what, f"a value of type {_class(x)}")

    def run(*arguments: Any) -> list[Any]:
        results = x(*arguments)
        given = [results] if len(type.results) == 1 else list(results)
        of = f"the result of {what}"
        return [value_of(result, t, of, sizes) for result, t in zip(given, type.results, strict=True)]

    run.__wrapped__ = x  # type: ignore[attr-defined]
    return run


def _wrong_size(what: str, array: Any, axis: int, dim: Dim, sizes: Mapping[str, int]) -> NoReturn:
    shape, expected = array.shape, dim.evaluate(sizes)
    known = _known(dim, sizes)
    wanted = f"{dim} = {expected}" if known else str(dim)
    if known and known != wanted:
        wanted += f" (with {known})"
    program, colon, place = what.partition(": ")
    raise ValueError(at_line(f"{program}{colon}axis {axis} of {place} is {wanted}, got {shape[axis]} (shape {shape})"))


def _known(dim: Dim, sizes: Mapping[str, int]) -> str:
    return ", ".join([f"{name} = {sizes[name]}" for name in sorted(dim.names())])


def _refuse(type: Type, what: str, got: str) -> NoReturn:
    raise TypeError(at_line(f"{what} is {type}, got {got}"))


def array_of_type(leaf: Any, type: Type, what: str) -> Any:
    """A NumPy scalar or a C-contiguous array of a type; TypeError when it is another or would lose something."""

    def refuse(got: str) -> NoReturn:
        _refuse(type, what, got)

    scalar, wanted = element(type), rank(type)
    if hasattr(leaf, "apply_primitive"):
        refuse(f"{leaf!r}: {INLINE}")
    if is_masked(leaf):
        refuse(MASKED)
    from_python = isinstance(leaf, bool | int | float | list | tuple) and not isinstance(leaf, np.generic)
    try:
        array = read_array(leaf)
    except (ValueError, TypeError, OverflowError, BufferError) as error:
        refuse(f"a value of type {_class(leaf)} that is not a regular array ({error})")
    if from_python and (array.dtype == object or (array.dtype.kind == "f" and scalar.kind == "int")):
        array = _of_integers(np.asarray(leaf, object), scalar, refuse)
    if array.dtype.kind not in "biufc":
        refuse(f"a value of type {_class(leaf)} that is not numeric: {_short(leaf)}")
    if array.ndim != wanted:
        refuse(_shown(leaf, array) + advice(array.dtype, scalar))
    if array.dtype != scalar.dtype:
        array = _cast(array, leaf, scalar, from_python, refuse)
    return array[()] if wanted == 0 else np.require(array, requirements=["C"])


def _of_integers(array: np.ndarray[Any, Any], scalar: Scalar, refuse: Callable[[str], NoReturn]) -> Any:
    """An array of objects, since some integers are too large for NumPy's usual ones: exact as a type, or refused."""
    for number in array.flat:
        if not isinstance(number, int | float):
            return array
        if isinstance(number, int) and abs(number) >= 2**63 and not _holds(scalar, number):
            refuse(f"the integer {_short(number)}, which {scalar} cannot hold exactly")
    whole = scalar.kind == "int" and all(isinstance(number, int) for number in array.flat)
    return array.astype(scalar.dtype if whole else np.float64)


def _holds(scalar: Scalar, number: int) -> bool:
    if scalar.kind == "int":
        return scalar.least <= number <= scalar.most
    try:
        return scalar.kind == "float" and int(float(number)) == number
    except OverflowError:
        return False


def _cast(
    array: np.ndarray[Any, Any], leaf: Any, scalar: Scalar, from_python: bool, refuse: Callable[[str], NoReturn]
) -> Any:
    """The array in the declared scalar type, where that is the same type or loses nothing."""
    given = scalar_in(array)
    if given is scalar:
        return array.astype(scalar.dtype)
    if not from_python:
        refuse(_shown(leaf, array) + advice(array.dtype, scalar))
    if array.size == 0:
        return array.astype(scalar.dtype)
    if given is None or _KINDS.index(given.kind) > _KINDS.index(scalar.kind):
        refuse(_shown(leaf, array) + advice(array.dtype, scalar))
    with np.errstate(all="ignore"):
        result = array.astype(scalar.dtype)
        back = result.astype(array.dtype)
    same = ((back == array) & ((result < 0) == (array < 0))) | ((array != array) & (back != back))
    if not same.all():
        wrong = array[~same].flat[0] if array.ndim else array[()]
        refuse(f"{wrong}, which is not exactly representable in {scalar}")
    return result


def _class(leaf: Any) -> str:
    return type(leaf).__qualname__ if isinstance(leaf, Data) else type(leaf).__name__


def _shown(leaf: Any, array: np.ndarray[Any, Any]) -> str:
    if array.ndim == 0:
        python = isinstance(leaf, bool | int | float) and not isinstance(leaf, np.generic)
        return f"the {'number' if python else 'scalar'} {_short(leaf)} ({array.dtype})"
    return f"an array of {array.dtype} with shape {array.shape}"


def _short(leaf: Any) -> str:
    text = repr(leaf)
    return text if len(text) <= 60 else text[:57] + "..."
