"""Expressions: what the user's functions compute with while a program is being built.

An ``Expr`` wraps a value of the builder's graph. Its operators are elementwise with NumPy's broadcasting and
promotion; Python numbers adopt the other operand's type. An expression has a type but no content: whatever would
need its content now (``if``, ``float``, iteration over a size that is a name) raises TypeError with the user's line
and names the combinator to use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import trees
from .builder import Builder, building, current
from .dims import Dim
from .graph import Value
from .host_arrays import advice, as_array, refusal, scalar_in
from .methods import ArrayMethods, method
from .numpy_calls import called, meaning
from .primitive import PRIMITIVES, Guard, Primitive
from .source import at_line, user_line
from .terms import Constant, Failure
from .types import SCALARS, Scalar, Type, bool_, dims, element, f64, i8, i64, rank, scalar_of
from .weak_types import adapts, join

# What is said of expressions that are given to what runs on arrays
INLINE = "a program runs on arrays, outside of other programs; inside of one call it as it is, not compiled"


class Expr(ArrayMethods):
    """An expression of a program that is being built. Made by parameters and combinators, never by hand."""

    __slots__ = ("_value", "builder", "states", "weak")

    def __init__(
        self, value: Value, builder: Builder, states: frozenset[int] = frozenset(), weak: bool = False
    ) -> None:
        self._value, self.builder = value, builder
        self.states, self.weak = states, weak  # whose types its own depends on (weak_types.py)

    @property
    def value(self) -> Value:
        """The graph value, checked to be in scope."""
        if not building() or current() is not self.builder or not self._value.free <= self.builder.open:
            raise RuntimeError(at_line(f"{self.described}, was used outside its program"))
        return self._value

    @property
    def described(self) -> str:
        """What messages call it: where it was written, or the name of the variable that it is."""
        source = self._value.source
        written = f"written at {source.origin}" if source is not None else f"{self._value.name or 'a variable'}"
        return f"the expression {written}, of type {self.type}"

    # Type and shape

    @property
    def type(self) -> Type:
        """Its scalar or array type."""
        return self._value.type

    @property
    def dtype(self) -> Scalar:
        """Its scalar type; TypeError where it is no scalar or array."""
        try:
            return element(self.type)
        except TypeError as error:
            raise TypeError(at_line(str(error))) from None

    @property
    def ndim(self) -> int:
        return rank(self.type)

    @property
    def shape(self) -> tuple[Any, ...]:
        """One entry an axis: an int where the size is known, an i64 expression elsewhere."""
        return tuple([self.axis_size(axis) for axis in range(self.ndim)])

    @property
    def size(self) -> Any:
        """The number of elements: an int where it is known, an i64 expression elsewhere."""
        count: Any = 1
        for n in self.shape:
            count = n * count
        return count

    def axis_size(self, axis: int) -> Any:
        size = self.builder.size(self.value, axis)
        return size.literal if size.literal is not None else Expr(size, self.builder)

    def __repr__(self) -> str:
        return f"<expression of type {self.type}>"

    # Functions and records

    def __call__(self, *arguments: Any) -> Any:
        """The results of a function that is a value."""
        return method("apply")(self, arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return method("field")(self, name)

    # Elementwise operators

    def apply_primitive(self, primitive: Primitive, arguments: Sequence[Any]) -> Expr:
        return elementwise(primitive, arguments)

    def __add__(self, other: Any) -> Expr:
        return _operator("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _operator("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _operator("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _operator("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _operator("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _operator("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _operator("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _operator("divide", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return _operator("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return _operator("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expr:
        return _operator("remainder", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _operator("remainder", other, self)

    def __divmod__(self, other: Any) -> tuple[Expr, Expr]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Expr, Expr]:
        return other // self, other % self

    def __pow__(self, other: Any) -> Expr:
        return _literal_power(self, other) if is_number(other) else _operator("power", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return _operator("power", other, self)

    def __matmul__(self, other: Any) -> Expr:
        return method("matmul")(self, other)

    def __rmatmul__(self, other: Any) -> Expr:
        return method("matmul")(other, self)

    def __pos__(self) -> Expr:
        return self

    def __neg__(self) -> Expr:
        return _operator("negative", self)

    def __abs__(self) -> Expr:
        return _operator("abs", self)

    def __round__(self) -> Expr:
        return _operator("round", self)

    def __lt__(self, other: Any) -> Expr:
        return _operator("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return _operator("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _operator("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _operator("greater_equal", self, other)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return _operator("equal", self, other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return _operator("not_equal", self, other)

    def __and__(self, other: Any) -> Expr:
        return _operator("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _operator("bitwise_and", other, self)

    def __or__(self, other: Any) -> Expr:
        return _operator("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _operator("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Expr:
        return _operator("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Expr:
        return _operator("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Expr:
        return _operator("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return _operator("left_shift", other, self)

    def __rshift__(self, other: Any) -> Expr:
        return _operator("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return _operator("right_shift", other, self)

    def __invert__(self) -> Expr:
        return _operator("bitwise_not", self)

    __hash__ = object.__hash__

    def astype(self, scalar: Any) -> Expr:
        """The elements converted to another scalar type (``az.f32`` or ``np.float32``), as NumPy's ``astype`` does.

        Floating numbers are cut towards zero for an integer type; what it cannot hold becomes the nearest integer that
        it does, NaN becomes 0. Integers wrap around. What is not zero becomes True for a boolean.
        """
        target = scalar_type(scalar)
        if self.dtype != target:
            return elementwise(PRIMITIVES[target.name], [self])
        return Expr(self._value, self.builder) if self.states else self

    # Indexing

    def __getitem__(self, key: Any) -> Expr:
        return method("getitem")(self, key)

    def __iter__(self) -> Iterator[Expr]:
        length = self.axis_size(0) if self.ndim else None
        if not isinstance(length, int):
            what = f"iteration over an axis of size {dims(self.type)[0]}" if self.ndim else "iteration over a scalar"
            raise TypeError(at_line(f"{what}: the size is not known while the program is built; use az.map"))
        return iter([self[i] for i in range(length)])

    # What an expression cannot do

    def _refuse(self, what: str, instead: str) -> TypeError:
        return TypeError(at_line(f"{what} of an expression of type {self.type}: it has no content yet; {instead}"))

    def __bool__(self) -> bool:
        raise self._refuse("the truth", "use az.cond or az.where (and & | ~ for and, or, not)")

    def __len__(self) -> int:
        raise self._refuse("len()", "use x.shape[0] or az.size(x)")

    def __float__(self) -> float:
        raise self._refuse("float()", "use x.astype(az.f64), and az.sin for math.sin")

    def __int__(self) -> int:
        raise self._refuse("int()", "use x.astype(az.i64)")

    def __index__(self) -> int:
        raise self._refuse("a Python index", "use az.fori_loop for range(), and az.zeros for np.zeros")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._refuse(f"the format {spec!r}", "az.inspect(x) shows a value while the program runs")
        return str(self)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._refuse("the elements, as a NumPy array,", "use az.array for an array of expressions")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(at_line(f"an expression of type {self.type} cannot be changed; make a new one with az.update"))

    def __contains__(self, item: Any) -> bool:
        raise self._refuse("'in'", "use az.any(x == value)")

    # NumPy

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            how = f".{method}" if method != "__call__" else f" with {', '.join(options)}"
            instead = "; az.histogram combines values that go to the same place" if method == "at" else ""
            raise TypeError(at_line(f"np.{ufunc.__name__}{how} is not an operation of the language{instead}"))
        return meaning(ufunc)(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return called(function, args, options)


# Conversion to expressions


def is_number(x: Any) -> bool:
    """Whether x is a Python number, which adopts the type of what it meets."""
    return isinstance(x, bool | int | float) and not isinstance(x, np.generic)


def as_expr(x: Any, like: Scalar | None = None) -> Expr:
    """An expression: as it is, or a literal or captured array of NumPy; a Python number becomes ``like``.

    Raises TypeError for anything else.
    """
    builder = current()
    if isinstance(x, Expr):
        x.value  # noqa: B018  (checks the scope)
        return _strong(x, like) if x.weak and like is not None else x
    if is_number(x):
        own = bool_ if isinstance(x, bool) else i64 if isinstance(x, int) else f64
        if like is not None and adapts(own, like):
            own = like
        return Expr(builder.literal(_converted(x, own), own), builder)
    if isinstance(x, np.ndarray | np.generic | list | tuple):
        if isinstance(x, list | tuple) and any(isinstance(leaf, Expr) for leaf in trees.flatten(x)[0]):
            kind = type(x).__name__
            raise TypeError(at_line(f"a {kind} of expressions is not an array: make it one with az.array({kind})"))
        array = as_array(x)
        scalar = scalar_in(array)
        if scalar is None:
            raise TypeError(at_line(refusal(array.dtype, like)))
        if array.ndim == 0:
            return Expr(builder.literal(array.item(), scalar), builder)
        return Expr(builder.atom(Constant.capture(np.asarray(array, scalar.dtype))), builder)
    if hasattr(x, "as_expression"):  # data, and functions on their way to a value
        expression: Expr = x.as_expression()
        return expression
    instead = advice(np.dtype(complex), None) if isinstance(x, complex) else ""
    raise TypeError(at_line(f"{x!r} of type {type(x).__name__} is not a value of the language{instead}"))


def _converted(x: bool | int | float, scalar: Scalar) -> bool | int | float:
    """A Python number as the scalar type holds it; OverflowError when an integer does not fit."""
    try:
        if scalar.kind == "int" and not scalar.least <= x <= scalar.most:
            raise OverflowError
        with np.errstate(over="ignore"):
            number: bool | int | float = scalar.dtype.type(x).item()
            return number
    except OverflowError:
        raise OverflowError(at_line(f"the number {x} does not fit {scalar}")) from None


def scalar_type(given: Any) -> Scalar:
    """A scalar type of the language, or the one with a type of NumPy or Python; TypeError when there is none."""
    if isinstance(given, Scalar):
        return given
    try:
        found = scalar_of(np.dtype(given))
    except TypeError:
        found = None
    if found is None:
        known = ", ".join(SCALARS)
        raise TypeError(at_line(f"{given!r} is not a scalar type of the language; there are {known}"))
    return found


def is_weak(x: Any) -> bool:
    """Whether x adopts the type of what it meets: a Python number, or a weak state of a loop."""
    return x.weak if isinstance(x, Expr) else is_number(x)


def _strong(x: Expr, like: Scalar) -> Expr:
    """A weak expression where a type is expected, as a Python number is there."""
    inference = x.builder.inference
    if not adapts(x.dtype, like) or inference is None:
        return x
    if join([x.dtype, like]) != like:
        inference.narrowed = True
    return Expr(x.astype(like).value, x.builder, x.states)


def weak_states(arguments: Sequence[Any]) -> tuple[frozenset[int], bool]:
    """The states whose types the type of promoted operands depends on, and whether it is weak."""
    states: frozenset[int] = frozenset().union(*[x.states for x in arguments if isinstance(x, Expr)])
    return states, bool(states) and all([is_weak(x) for x in arguments])


def promoted(arguments: Sequence[Any]) -> list[Expr]:
    """Expressions of one scalar type, by NumPy's rules; Python numbers adopt the type of the others."""
    kinds = [argument.dtype for argument in arguments if isinstance(argument, Expr) and not argument.weak]
    kinds += [
        as_expr(argument).dtype for argument in arguments if not isinstance(argument, Expr) and not is_number(argument)
    ]
    common = join(kinds) if kinds else None
    expressions = [as_expr(argument, common) for argument in arguments]
    target = join([expression.dtype for expression in expressions])
    return [expression.astype(target) for expression in expressions]


# Elementwise application


# What the operands of a primitive that takes one kind are converted to, if they are of another one.


def floating(x: Any) -> Expr:
    """An expression of floating numbers: integers and booleans as f64."""
    given = as_expr(x)
    return given if given.dtype.kind == "float" else given.astype(f64)


_COMMON = {"float": f64, "int": i8, "bool": bool_}


def elementwise(primitive: Primitive, arguments: Sequence[Any]) -> Expr:
    """A primitive applied to elements, with broadcasting; the operands are made to fit it, and guarded."""
    operands = [as_expr(x) for x in arguments] if primitive.mixed else promoted(arguments)
    while (kind := operands[0].dtype.kind) in primitive.otherwise and kind not in primitive.operands:
        other = primitive.otherwise[kind]
        if other is None:
            return operands[0]
        primitive = PRIMITIVES[other]
    if len(primitive.operands) == 1:
        common = _COMMON[primitive.operands[0]]
        if (kind, common.kind) != ("float", "int"):
            operands = [x if x.dtype.kind == common.kind else x.astype(common) for x in operands]
    try:
        result = primitive.result_type([x.dtype for x in operands])
    except TypeError as error:
        raise TypeError(at_line(str(error))) from None
    if primitive.guard is not None:
        _guard(primitive.guard, operands[-1])
    builder = current()
    builder.origin = user_line()
    sizes = broadcast_sizes([x.value for x in operands], primitive.name)

    def at(*indices: Value) -> Value:
        return builder.primitive(primitive, *[broadcast_element(x.value, indices) for x in operands])

    value = builder.array(sizes, at)
    if builder.inference is None or primitive.mixed or result != operands[0].dtype:
        return Expr(value, builder)
    return Expr(value, builder, *weak_states(arguments))


def broadcast_sizes(values: Sequence[Value], what: str) -> list[Value]:
    """The shape that all operands broadcast to, as NumPy does: aligned at the last axis, 1 stretches."""
    builder = current()
    total = max((rank(value.type) for value in values), default=0)
    sizes: list[Value] = []
    for axis in range(-total, 0):
        chosen: tuple[Value, int] | None = None
        for value in values:
            if rank(value.type) < -axis or dims(value.type)[axis] == Dim.of(1):
                continue
            if chosen is None:
                chosen = (value, axis)
            else:
                same_size(chosen[0], axis, value, axis, what)
        sizes.append(builder.size(chosen[0], rank(chosen[0].type) + axis) if chosen else builder.literal(1, i64))
    return sizes


def broadcast_element(value: Value, indices: Sequence[Value]) -> Value:
    """The element of a broadcast operand at these indices."""
    builder = current()
    own = rank(value.type)
    zero = builder.literal(0, i64)
    last = indices[len(indices) - own :]
    return builder.index(
        value, [zero if dim == Dim.of(1) else i for dim, i in zip(dims(value.type), last, strict=True)]
    )


def same_size(a: Value, axis_a: int, b: Value, axis_b: int, what: str) -> None:
    """Make sure that two axes have one size: proved, refused, or left to a requirement of the run."""
    first, second = dims(a.type)[axis_a], dims(b.type)[axis_b]
    equal = first.compare(second)
    if equal is False:
        raise TypeError(at_line(f"{what}: the shapes of {a.type} and {b.type} differ: {first} is not {second}"))
    if equal is None:
        builder = current()
        sizes = [builder.size(a, axis_a % rank(a.type)), builder.size(b, axis_b % rank(b.type))]
        message = f"{what}: the sizes {first} = {{0}} and {second} = {{1}} of {a.type} and {b.type} differ"
        builder.require(builder.primitive("equal", *sizes), Failure("size", message, user_line()), sizes)


def _operator(name: str, *arguments: Any) -> Expr:
    return elementwise(PRIMITIVES[name], arguments)


def _guard(guard: Guard, operand: Expr) -> None:
    """Require that all elements pass the guard's test, unless the operand is a literal that does."""
    builder = current()
    literal = operand.value.literal
    if operand.dtype.kind != "int" or (literal is not None and guard.test(literal)):
        return
    origin = user_line()
    failure = Failure(guard.kind, guard.message, origin)

    def check(*indices: Value) -> None:
        element = Expr(builder.index(operand.value, indices), builder)
        builder.require(guard.test(element).value, failure, [])

    builder.origin = origin
    builder.each(builder.sizes(operand.value), check)


# Powers with a floating base and a whole exponent up to this one are products: quick, exact to about as many units.
_LARGEST_EXPONENT = 32


def _literal_power(x: Expr, exponent: bool | int | float) -> Expr:
    """A power with a Python number: products by squaring, reciprocals and roots where the exponent is one of these."""
    if isinstance(exponent, float) and x.dtype.kind != "float":
        x = x.astype(f64)
    floating = x.dtype.kind == "float"
    if floating and exponent == 0.5:
        return _operator("sqrt", x)
    products = abs(exponent) <= _LARGEST_EXPONENT and exponent == int(exponent) if floating else exponent >= 0
    if not products or x.dtype == bool_ or isinstance(exponent, bool):
        return _operator("power", x, exponent)
    return 1.0 / _product(x, int(-exponent)) if exponent < 0 else _product(x, int(exponent))


def _product(x: Expr, exponent: int) -> Expr:
    """x multiplied with itself, by squaring; ones for no factor."""
    result: Expr | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return ones_like(x) if result is None else result


def ones_like(x: Expr) -> Expr:
    """An expression of ones with the type of x."""
    one = x.builder.literal(1, x.dtype)
    return Expr(x.builder.array(x.builder.sizes(x.value), lambda *_: one), x.builder)
