"""The combinators: Python functions from which programs are written.

Each is defined once, here, from the core constructs (``language.py``). Functions given to a combinator are ordinary
Python functions; they are called once, with fresh variables. Axis defaults are NumPy's.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import trees
from .builder import current
from .dims import Dim, Opaque, bounds
from .expr import Expr, as_expr, broadcast_element, broadcast_sizes, is_number, promoted, same_size
from .graph import Value
from .indexing import extents_of
from .primitive import PRIMITIVES
from .source import at_line, user_line
from .terms import Failure
from .trees import Structure
from .types import Scalar, bool_, dims, element, f64, i64, rank

Function = Callable[..., Any]

# Arrays from indices


def generate(shape: Any, f: Function) -> Structure:
    """The array (or structure of arrays) of ``f(i, j, ...)`` over all indices of a shape.

    ``shape`` is a size or a tuple of sizes (integers or i64 expressions). ``f`` may return a scalar, an array (which
    adds its axes) or a structure of these. Raises TypeError when a size is not an integer.
    """
    extents = [_extent(n) for n in (shape if isinstance(shape, tuple | list) else (shape,))]
    return _generate(extents, _parameter_names(f, len(extents)), f)


def _generate(extents: Sequence[Value], names: Sequence[str], f: Function) -> Structure:
    builder = current()
    origin = user_line()
    shapes: list[trees.Shape] = []

    def build(prefix: tuple[Expr, ...]) -> Sequence[Value]:
        if len(prefix) == len(extents):
            leaves, tree = trees.flatten(f(*prefix))
            shapes[:] = [tree]
            return [as_expr(leaf).value for leaf in leaves]
        builder.origin = origin
        depth = len(prefix)
        values = builder.generate(extents[depth], lambda i: build((*prefix, Expr(i, builder))), names[depth])
        _regular([value for value in values], origin)
        return values

    values = build(())
    return trees.unflatten(shapes[0], [Expr(value, builder) for value in values])


def map(f: Function, *arrays: Any) -> Structure:
    """``f`` applied along the first axis of one or more arrays (structures of arrays count leaf by leaf).

    ``map(f, xs, ys)[i] == f(xs[i], ys[i])``; the results are stacked. Raises TypeError when the arrays have no axis
    or their lengths differ.
    """
    builder = current()
    if not arrays:
        raise TypeError(at_line("map takes at least one array"))
    leaves, tree = trees.flatten(arrays)
    expressions = [as_expr(leaf) for leaf in leaves]
    for x in expressions:
        if x.ndim == 0:
            raise TypeError(at_line(f"map over a scalar of type {x.type}"))
        same_size(expressions[0].value, 0, x.value, 0, "map")
    names = _parameter_names(f, len(arrays))

    def at(i: Expr) -> Any:
        arguments = trees.unflatten(tree, [x[i] for x in expressions])
        for name, argument in zip(names, arguments, strict=True):
            _name(argument, name)
        return f(*arguments)

    return _generate([builder.size(expressions[0].value, 0)], [""], at)


def iota(n: Any) -> Expr:
    """The i64 array 0, 1, ..., n - 1."""
    result = generate(n, lambda i: i)
    assert isinstance(result, Expr)
    return result


def full(shape: Any, value: Any) -> Structure:
    """An array filled with one value (a number or a scalar expression)."""
    return generate(shape, lambda *_: value)


def zeros(shape: Any, dtype: Any = f64) -> Structure:
    """An array of zeros."""
    return full(shape, as_expr(0, dtype).astype(dtype))


def ones(shape: Any, dtype: Any = f64) -> Structure:
    """An array of ones."""
    return full(shape, as_expr(1, dtype).astype(dtype))


def size(x: Any, axis: int = 0) -> Any:
    """The length of an axis: an int where it is known, an i64 expression elsewhere."""
    return as_expr(x).shape[axis]


# Reductions


def reduce(op: Function, neutral: Any, xs: Any, axis: int = 0) -> Structure:
    """Combine the elements along an axis with an associative ``op`` whose neutral element is ``neutral``.

    ``xs`` is an array or a structure of arrays; ``neutral`` and the arguments and results of ``op`` have the structure
    of one element. The other axes are mapped over: reducing a matrix over axis 0 gives a vector. Raises TypeError when
    the structures or types do not fit.

    >>> import adze as az
    >>> @az.program
    ... def largest(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.reduce(lambda a, b: az.where(a > b, a, b), -float("inf"), x)
    >>> float(largest(np.array([1.0, 3.0, 2.0])))
    3.0
    """
    builder = current()
    leaves, tree = trees.flatten(xs)
    arrays = [as_expr(leaf) for leaf in leaves]
    neutrals, neutral_tree = trees.flatten(neutral)
    if tree != neutral_tree:
        raise TypeError(at_line("the neutral element of a reduce has the structure of an element"))
    first = arrays[0]
    axis = _axis(first, axis)
    others = [k for k in range(first.ndim) if k != axis]
    for x in arrays[1:]:
        for k in range(first.ndim):
            same_size(first.value, k, x.value, k, "reduce")
    units = [as_expr(unit, x.dtype).astype(x.dtype).value for unit, x in zip(neutrals, arrays, strict=True)]
    names = [leaf for name in _parameter_names(op, 2) for leaf in _leaf_names(name, tree)]

    def operator(*values: Value) -> list[Value]:
        half = len(values) // 2
        a, b = ([Expr(v, builder) for v in part] for part in (values[:half], values[half:]))
        results, result_tree = trees.flatten(op(trees.unflatten(tree, a), trees.unflatten(tree, b)))
        if result_tree != tree:
            raise TypeError(at_line("the operator of a reduce returns the structure of an element"))
        scalars = [as_expr(r, x.dtype) for r, x in zip(results, arrays, strict=True)]
        for r, x in zip(scalars, arrays, strict=True):
            if r.type != x.dtype:
                raise TypeError(at_line(f"the operator of a reduce over {x.dtype} returned a value of type {r.type}"))
        return [r.value for r in scalars]

    builder.origin = user_line()
    extent = builder.size(first.value, axis)

    def build(prefix: tuple[Value, ...]) -> tuple[Value, ...]:
        if len(prefix) < len(others):
            return builder.generate(builder.size(first.value, others[len(prefix)]), lambda i: build((*prefix, i)))

        def at(i: Value) -> list[Value]:
            indices = [*prefix[:axis], i, *prefix[axis:]]
            return [builder.index(x.value, indices) for x in arrays]

        return builder.reduce(extent, units, at, operator, names)

    return trees.unflatten(tree, [Expr(value, builder) for value in build(())])


def _named_reduction(x: Any, axis: int | None, primitive: str, neutral: Callable[[Scalar], Any]) -> Expr:
    total = as_expr(x)
    if total.dtype == bool_ and primitive not in ("logical_and", "logical_or"):
        total = total.astype(i64)
    row = PRIMITIVES[primitive]
    if axis is not None:
        return reduce(row, neutral(total.dtype), total, axis)
    while total.ndim:
        total = reduce(row, neutral(total.dtype), total, total.ndim - 1)
    return total


def sum(x: Any, axis: int | None = None) -> Expr:
    """The sum over one axis, or over all (the default). Booleans count as integers."""
    return _named_reduction(x, axis, "add", lambda scalar: 0)


def prod(x: Any, axis: int | None = None) -> Expr:
    """The product over one axis, or over all."""
    return _named_reduction(x, axis, "multiply", lambda scalar: 1)


def max(x: Any, axis: int | None = None) -> Expr:
    """The largest element over one axis, or over all; minus infinity (integers: the least value) of nothing."""
    return _named_reduction(x, axis, "maximum", lambda scalar: _extreme(scalar, -1))


def min(x: Any, axis: int | None = None) -> Expr:
    """The smallest element over one axis, or over all; infinity (integers: the largest value) of nothing."""
    return _named_reduction(x, axis, "minimum", lambda scalar: _extreme(scalar, 1))


def any(x: Any, axis: int | None = None) -> Expr:
    """Whether some element is true."""
    return _named_reduction(as_expr(x).astype(bool_), axis, "logical_or", lambda scalar: False)


def all(x: Any, axis: int | None = None) -> Expr:
    """Whether all elements are true."""
    return _named_reduction(as_expr(x).astype(bool_), axis, "logical_and", lambda scalar: True)


def mean(x: Any, axis: int | None = None) -> Expr:
    """The mean over one axis, or over all."""
    x = as_expr(x)
    count: Any = 1
    for n in x.shape if axis is None else (x.shape[_axis(x, axis)],):
        count = n * count
    average: Expr = sum(x, axis) / count
    return average


def logsumexp(x: Any, axis: int | None = None) -> Expr:
    """``log(sum(exp(x)))`` over one axis, or over all, without overflow; minus infinity of nothing.

    Its gradient does not go through the maximum that is subtracted.
    """
    x = as_expr(x)
    top = PRIMITIVES["stop_gradient"](max(x, axis))
    finite = where(abs(top) < float("inf"), top, 0.0)
    spread = finite if axis is None else _insert_axis(finite, _axis(x, axis))
    return finite + PRIMITIVES["log"](sum(PRIMITIVES["exp"](x - spread), axis))


def dot(a: Any, b: Any) -> Expr:
    """The inner product of two vectors, or the matrix product, as ``np.dot`` for up to two dimensions."""
    return matmul(a, b)


def matmul(a: Any, b: Any) -> Expr:
    """The matrix product of matrices and vectors, as ``a @ b``: the last axis of a against the first of b."""
    a, b = promoted([a, b])
    if a.ndim not in (1, 2) or b.ndim not in (1, 2):
        raise TypeError(at_line(f"a product of {a.type} and {b.type}: vectors and matrices are multiplied"))
    same_size(a.value, a.ndim - 1, b.value, 0, "matmul")
    builder = current()
    builder.origin = user_line()
    rows = [builder.size(a.value, 0)] if a.ndim == 2 else []
    columns = [builder.size(b.value, 1)] if b.ndim == 2 else []
    inner = builder.size(a.value, a.ndim - 1)

    def at(*indices: Value) -> Value:
        i, j = indices[: len(rows)], indices[len(rows) :]

        def product(k: Value) -> Value:
            return builder.primitive("multiply", builder.index(a.value, [*i, k]), builder.index(b.value, [k, *j]))

        return builder.sum(inner, product, a.dtype)

    return Expr(builder.array([*rows, *columns], at), builder)


# Control


def cond(test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Structure:
    """The result of ``then()`` where a scalar bool holds, of ``orelse()`` elsewhere; only that branch is run.

    Both return one structure with the same types; Python numbers adopt the type of the other branch. Raises TypeError
    when the test is not a scalar bool or the branches differ.
    """
    builder = current()
    test = as_expr(test)
    if test.type != bool_:
        raise TypeError(at_line(f"the test of a cond is a scalar bool, not {test.type}"))
    origin = user_line()
    built: list[tuple[list[Any], trees.Shape]] = []

    def branch(function: Callable[[], Any]) -> Callable[[], Sequence[Value]]:
        def run() -> Sequence[Value]:
            leaves, tree = trees.flatten(function())
            leaves = [leaf if is_number(leaf) else as_expr(leaf) for leaf in leaves]
            if not built:
                built.append((leaves, tree))
            elif tree != built[0][1]:
                raise TypeError(at_line("the branches of a cond return different structures"))
            mates = built[0][0] if len(built) else leaves
            values = []
            for leaf, mate in zip(leaves, mates, strict=True):
                like = mate.dtype if isinstance(mate, Expr) else None
                values.append(as_expr(leaf, like).value)
            return values

        return run

    first, second = builder.body([], branch(then)), builder.body([], branch(orelse))
    if first.types != second.types:
        # A Python number of the first branch adopts the type found in the second.
        retyped = [
            s if is_number(leaf) else f for leaf, f, s in zip(built[0][0], first.types, second.types, strict=True)
        ]
        first = builder.body(
            [], lambda: [as_expr(x, element(t)).value for x, t in zip(_call(then), retyped, strict=True)]
        )
    if first.types != second.types:
        shown = [", ".join(str(t) for t in body.types) for body in (first, second)]
        raise TypeError(at_line(f"the branches of a cond differ in type: {shown[0]} and {shown[1]}"))
    builder.origin = origin
    values = builder.emit("cond", (), [test.value], [first, second])
    return trees.unflatten(built[0][1], [Expr(value, builder) for value in values])


def _call(function: Callable[[], Any]) -> list[Any]:
    return trees.flatten(function())[0]


def where(test: Any, a: Any, b: Any) -> Expr:
    """Elementwise choice with broadcasting; lazy: only the operand chosen is computed, and only it is differentiated.

    ``where(x > 0, sqrt(x), 0)`` has derivative 0 at 0. Operands that are also used elsewhere are computed there.
    """
    condition = as_expr(test)
    if condition.dtype != bool_:
        raise TypeError(at_line(f"the test of a where is bool, not {condition.type}"))
    x, y = promoted([a, b])
    builder = current()
    builder.origin = user_line()
    values = [condition.value, x.value, y.value]
    sizes = broadcast_sizes(values, "where")

    def at(*indices: Value) -> Value:
        chosen = broadcast_element(values[0], indices)
        return builder.cond(chosen, lambda: [_entered(values[1], indices)], lambda: [_entered(values[2], indices)])[0]

    return Expr(builder.array(sizes, at), builder)


def _entered(value: Value, indices: Sequence[Value]) -> Value:
    """The element of a broadcast operand; that of an elementwise operand is computed here rather than read."""
    builder = current()
    zero = builder.literal(0, i64)
    last = indices[len(indices) - rank(value.type) :]
    remaining = [zero if dim == Dim.of(1) else i for dim, i in zip(dims(value.type), last, strict=True)]
    while remaining and _is_elementwise(value):
        assert value.source is not None
        body = value.source.bodies[0]
        value = builder.substitute([body.results[value.position]], {body.binders[0]: remaining.pop(0)})[0]
    return builder.index(value, remaining)


def _is_elementwise(value: Value) -> bool:
    """Whether an array is a generate of scalar operations and reads: no inner reduction or loop."""
    if value.source is None or value.source.op != "generate" or value.source.effects:
        return False
    body = value.source.bodies[0]
    inside = frozenset([body.binders[0].number])
    stack, seen = [body.results[value.position]], set()
    while stack:
        source = stack.pop().source
        if source is None or source.number in seen or source.free.isdisjoint(inside):
            continue
        seen.add(source.number)
        if source.op not in ("primitive", "index", "cond", "generate"):
            return False
        stack.extend(source.args)
        for inner in source.bodies:
            inside = inside | {binder.number for binder in inner.binders}
            stack.extend(inner.results)
    return True


def fori_loop(lower: Any, upper: Any, body: Function, init: Any) -> Structure:
    """``for i in range(lower, upper): state = body(i, state)``: the final state.

    ``lower`` and ``upper`` are integers or i64 expressions; the state is any structure whose types do not change.
    Raises TypeError when ``body`` changes the structure or a type.
    """
    builder = current()
    builder.origin = origin = user_line()
    low, high = _size_value(lower), _size_value(upper)
    leaves, tree = trees.flatten(init)
    initials = [as_expr(leaf) for leaf in leaves]
    span = high if low.literal == 0 else builder.primitive("subtract", high, low)
    extent = builder.primitive("maximum", span, builder.literal(0, i64))

    def step(counter: Value, *state: Value) -> Sequence[Value]:
        i = Expr(counter if low.literal == 0 else builder.primitive("add", low, counter), builder)
        values = [Expr(value, builder) for value in state]
        results, result_tree = trees.flatten(body(i, trees.unflatten(tree, values)))
        if result_tree != tree:
            raise TypeError(at_line("the body of a fori_loop returns another structure than the state's"))
        after = [as_expr(r, old.dtype) for r, old in zip(results, values, strict=True)]
        for new, old in zip(after, values, strict=True):
            if new.dtype != old.dtype or new.ndim != old.ndim:
                raise TypeError(at_line(f"the body of a fori_loop changes a state of type {old.type} to {new.type}"))
        return [_like(new.value, old.value, "fori_loop") for new, old in zip(after, values, strict=True)]

    builder.origin = origin
    parameters = _parameter_names(body, 2)
    names = [parameters[0] if low.literal == 0 else "", *_leaf_names(parameters[1], tree)]
    values = builder.loop(extent, [x.value for x in initials], step, names)
    return trees.unflatten(tree, [Expr(value, builder) for value in values])


def _like(x: Value, other: Value, what: str) -> Value:
    """x with the type of another array, whose sizes it is required to have where that is not proved."""
    if x.type == other.type:
        return x
    builder = current()
    for axis in range(rank(x.type)):
        same_size(other, axis, x, axis, what)
    return builder.array(builder.sizes(other), lambda *indices: builder.index(x, indices))


# Shared by the combinators


def _size_value(n: Any) -> Value:
    value = as_expr(n)
    if rank(value.type) or value.dtype.kind != "int":
        raise TypeError(at_line(f"a size is an integer, not {value.type}"))
    return value.astype(i64).value


def _extent(n: Any) -> Value:
    """A size that is not negative: proved, refused, or left to a requirement of the run."""
    builder, value = current(), _size_value(n)
    assert value.dim is not None
    if value.literal is not None and value.literal < 0:
        raise ValueError(at_line(f"a size of {value.literal}"))
    range = bounds(value.dim, extents_of(builder))
    known = value.source is not None and value.source.op == "size"
    if not known and (range is None or not range[0].is_nonnegative()):
        builder.origin = user_line()
        test = builder.primitive("less_equal", builder.literal(0, i64), value)
        builder.require(test, Failure("size", "a size of {0}", user_line()), [value])
    return value


def _axis(x: Expr, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(at_line(f"axis {axis} of a value of type {x.type}"))
    return axis % x.ndim


def _insert_axis(x: Expr, axis: int) -> Expr:
    return x[(slice(None),) * axis + (None,)] if x.ndim else x


def _extreme(scalar: Scalar, sign: int) -> Any:
    if scalar.kind == "float":
        return sign * float("inf")
    limits = np.iinfo(scalar.dtype)
    return int(limits.max if sign > 0 else limits.min)


def _regular(values: Sequence[Value], origin: Any) -> None:
    """Refuse arrays of arrays whose size depends on the index."""
    for value in values:
        assert value.source is not None
        inner = {binder.number for binder in value.source.bodies[0].binders}
        for dim in dims(value.type):
            if inner & {atom.number for atom in dim.atoms() if isinstance(atom, Opaque)}:
                message = f"irregular array of type {value.type}: an inner size depends on the index, at {origin}"
                raise TypeError(message)


def _parameter_names(f: Function, count: int) -> list[str]:
    """The names of a function's positional parameters, for printing; empty where unknown."""
    try:
        names = [p.name for p in inspect.signature(f).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    return (names + [""] * count)[:count]


def _leaf_names(name: str, tree: trees.Shape) -> list[str]:
    """Names for the leaves of a structure that has a name: a dictionary's keys, else the name with a number."""
    if not name or tree == trees.LEAF:
        return [name] * tree.leaves
    if tree.container is dict and builtins.all(inner == trees.LEAF for inner in tree.inner):
        return [str(key) for key in tree.keys]
    return [f"{name}{k + 1}" for k in range(tree.leaves)]


def _name(x: Any, name: str) -> None:
    """Note a name for a value that has none, for printing."""
    if isinstance(x, Expr) and name and x._value.source is not None and not x._value.source.origin.name:
        source = x._value.source
        source.origin = type(source.origin)(source.origin.file, source.origin.line, name)
