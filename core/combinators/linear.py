"""Products of vectors, matrices and stacks of matrices; diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

from ..builder import current
from ..dims import Dim
from ..expr import Expr, as_expr, promoted, same_size, scalar_type
from ..graph import Value
from ..indexing import as_index
from ..source import at_line, user_line
from ..types import bool_, dims, f64, i64
from .arrays import generate
from .control import where
from .operands import added, axis_moved, axis_of, permuted

# Products


def matmul(a: Any, b: Any) -> Expr:
    """The matrix product ``a @ b``: the last axis of a against the last but one of b (the only one of a vector).

    Axes in front of the last two count matrices, and broadcast. Of booleans it says whether some product is true.
    Raises TypeError for scalars and sizes that differ.
    """
    a, b = promoted([a, b])
    if a.dtype == bool_:
        return matmul(a.astype(i64), b.astype(i64)) != 0
    if a.ndim == 0 or b.ndim == 0:
        raise TypeError(at_line(f"a product of {a.type} and {b.type}: vectors and matrices are multiplied"))
    same_size(a.value, a.ndim - 1, b.value, max(b.ndim - 2, 0), "matmul")
    builder = current()
    builder.origin = user_line()
    rows = [builder.size(a.value, a.ndim - 2)] if a.ndim > 1 else []
    columns = [builder.size(b.value, b.ndim - 1)] if b.ndim > 1 else []
    inner = builder.size(a.value, a.ndim - 1)
    batch = batch_sizes(a, b, "matmul")

    def at(*indices: Value) -> Value:
        place, rest = indices[: len(batch)], indices[len(batch) :]
        i, j = rest[: len(rows)], rest[len(rows) :]
        left, right = _in_batch(a, place), _in_batch(b, place)

        def product(k: Value) -> Value:
            return builder.primitive(
                "multiply", builder.index(a.value, [*left, *i, k]), builder.index(b.value, [*right, k, *j])
            )

        return builder.sum(inner, product, a.dtype)

    return Expr(builder.array([*batch, *rows, *columns], at), builder)


def batch_sizes(a: Expr, b: Expr, what: str) -> list[Value]:
    """The shape that the axes in front of the matrices broadcast to."""
    builder = current()
    sizes = []
    for axis in range(-max(a.ndim, b.ndim), -2):
        stretched = [x for x in (a, b) if x.ndim >= -axis and dims(x.type)[axis] != Dim.of(1)]
        for x in stretched[1:]:
            same_size(stretched[0].value, axis, x.value, axis, what)
        if stretched:
            sizes.append(builder.size(stretched[0].value, stretched[0].ndim + axis))
        else:
            sizes.append(builder.literal(1, i64))
    return sizes


def _in_batch(x: Expr, place: tuple[Value, ...]) -> list[Value]:
    """The indices of x's own matrices in a broadcast stack of them."""
    own = max(x.ndim - 2, 0)
    zero = current().literal(0, i64)
    last = place[len(place) - own :]
    return [zero if dim == Dim.of(1) else i for dim, i in zip(dims(x.type)[:own], last, strict=True)]


def dot(a: Any, b: Any) -> Expr:
    """The inner product of two vectors, or the matrix product, as ``np.dot`` for up to two dimensions."""
    left, right = promoted([a, b])
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    if left.ndim > 2 or right.ndim > 2:
        raise TypeError(at_line(f"dot of {left.type} and {right.type}: use az.matmul for stacks of matrices"))
    return matmul(left, right)


def outer(a: Any, b: Any) -> Expr:
    """The products of all elements of two vectors: ``outer(a, b)[i, j] == a[i] * b[j]``."""
    left, right = promoted([a, b])
    if left.ndim != 1 or right.ndim != 1:
        raise TypeError(at_line(f"outer takes vectors, not values of type {left.type} and {right.type}"))
    return left[:, None] * right[None, :]


def inner(a: Any, b: Any) -> Expr:
    """The sums of products over the last axes of both, for all combinations of the others; of a scalar a product.

    Raises TypeError when the last axes differ.
    """
    x, y = as_expr(a), as_expr(b)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    letters = [chr(ord("a") + k) for k in range(x.ndim + y.ndim - 2)]
    left, right = "".join(letters[: x.ndim - 1]), "".join(letters[x.ndim - 1 :])
    return einsum(f"{left}Z,{right}Z->{left}{right}", x, y)


def einsum(subscripts: str, *arrays: Any) -> Expr:
    """The sum of products that the subscripts say, as ``np.einsum`` with explicit letters (no ellipsis).

    A letter names an axis; those that the result leaves out are summed over.

    >>> import adze as az
    >>> @az.program
    ... def quadratic(x: az.Array[az.f64, "n"], a: az.Array[az.f64, "n n"]) -> az.f64:
    ...     return az.einsum("i,ij,j->", x, a, x)
    >>> float(az.evaluate(quadratic)([1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]]))
    5.0
    """
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    operands = promoted(arrays)
    if operands and operands[0].dtype == bool_:
        return einsum(subscripts, *[x.astype(i64) for x in operands]) != 0
    letters = sorted(set(inputs) - {","})
    if not arrow:
        output = "".join([letter for letter in letters if inputs.count(letter) == 1])
    fits = [len(term) for term in terms] == [x.ndim for x in operands]
    if not fits or not all(letter.isalpha() for letter in letters) or len(set(output)) < len(output):
        shown = ", ".join(str(x.type) for x in operands)
        raise TypeError(at_line(f"einsum: the subscripts {subscripts!r} do not fit operands of type {shown}"))
    if not set(output) <= set(letters):
        raise TypeError(at_line(f"einsum: the result of {subscripts!r} has letters that no operand has"))
    builder = current()
    builder.origin = user_line()
    axes: dict[str, list[tuple[Expr, int]]] = {letter: [] for letter in letters}
    for x, term in zip(operands, terms, strict=True):
        for k, letter in enumerate(term):
            axes[letter].append((x, k))
    for places in axes.values():
        for x, k in places[1:]:
            same_size(places[0][0].value, places[0][1], x.value, k, "einsum")
    sizes = {letter: builder.size(places[0][0].value, places[0][1]) for letter, places in axes.items()}
    summed = [letter for letter in letters if letter not in output]

    def product(at: dict[str, Value]) -> Value:
        factors = [builder.index(x.value, [at[k] for k in term]) for x, term in zip(operands, terms, strict=True)]
        result = factors[0]
        for factor in factors[1:]:
            result = builder.primitive("multiply", result, factor)
        return result

    def total(at: dict[str, Value], rest: list[str]) -> Value:
        if not rest:
            return product(at)
        return builder.sum(sizes[rest[0]], lambda i: total({**at, rest[0]: i}, rest[1:]), operands[0].dtype)

    def element(*indices: Value) -> Value:
        return total(dict(zip(output, indices, strict=True)), summed)

    return Expr(builder.array([sizes[letter] for letter in output], element), builder)


# Diagonals and triangles, of the last two axes


def eye(n: Any, m: Any = None, k: Any = 0, dtype: Any = f64) -> Expr:
    """The matrix n by m (by default n by n) with ones on its diagonal ``k`` and zeros elsewhere."""
    ones: Expr = generate((n, n if m is None else m), lambda i, j: i + k == j)
    return ones.astype(dtype)


def one_hot(x: Any, classes: Any, dtype: Any = f64, axis: Any = -1) -> Expr:
    """For each integer of x a vector of zeros with a one at its place, along a new axis; no one where there is none.

    Raises TypeError when x is not of integers.

    >>> import adze as az, numpy as np
    >>> az.evaluate(lambda x: az.one_hot(x, 3))(np.array([2, 0]))
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    places = as_expr(x)
    if places.dtype.kind != "int":
        raise TypeError(at_line(f"one_hot of integers, not of {places.type}"))
    index = Expr(as_index(places), places.builder)
    hot: Any = generate(classes, lambda k: index == k)
    moved = axis_moved(hot, 0, axis_of(hot, axis))
    return moved.astype(scalar_type(dtype))


def diagonal(x: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Expr:
    """A diagonal of a matrix, ``x[i, i + offset]``; of more axes, that of two of them, which comes last."""
    x = _with_last(_matrices(x, "diagonal"), axis1, axis2)
    builder = current()
    builder.origin = user_line()
    rows, columns = [builder.size(x.value, axis) for axis in (x.ndim - 2, x.ndim - 1)]
    down, right = builder.literal(max(-offset, 0), i64), builder.literal(max(offset, 0), i64)
    below, beside = builder.primitive("subtract", rows, down), builder.primitive("subtract", columns, right)
    length = builder.primitive("maximum", builder.primitive("minimum", below, beside), builder.literal(0, i64))

    def at(*indices: Value) -> Value:
        row, column = builder.primitive("add", indices[-1], down), builder.primitive("add", indices[-1], right)
        return builder.index(x.value, [*indices[:-1], row, column])

    return Expr(builder.array([*builder.sizes(x.value)[:-2], length], at), builder)


def _with_last(x: Expr, axis1: Any, axis2: Any) -> Expr:
    """x with two axes behind the others, in this order."""
    last = [axis_of(x, axis1), axis_of(x, axis2)]
    if last[0] == last[1]:
        raise ValueError(at_line(f"a diagonal of {x.type} by axis {axis1} and axis {axis2}, which are the same"))
    return permuted(x, [*[axis for axis in range(x.ndim) if axis not in last], *last])


def diag(x: Any, k: Any = 0) -> Expr:
    """The diagonal ``k`` of a matrix, or the matrix with this diagonal and zeros elsewhere, as in NumPy."""
    x = as_expr(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise TypeError(at_line(f"diag takes a vector or a matrix, not a value of type {x.type}"))
    builder = current()
    builder.origin = user_line()
    length = added(builder.size(x.value, 0), builder.literal(abs(k), i64))
    shift, zero = builder.literal(k, i64), builder.literal(0, x.dtype)

    def at(i: Value, j: Value) -> Value:
        on = builder.primitive("equal", builder.primitive("add", i, shift), j)
        return builder.cond(on, lambda: [builder.index(x.value, [i if k >= 0 else j])], lambda: [zero])[0]

    return Expr(builder.array([length, length], at), builder)


def triu(x: Any, k: Any = 0) -> Expr:
    """Matrices with zeros below the diagonal ``k``."""
    x = _matrices(x, "triu")
    return where(generate(x.shape[-2:], lambda i, j: i + k <= j), x, _zero(x))


def tril(x: Any, k: Any = 0) -> Expr:
    """Matrices with zeros above the diagonal ``k``."""
    x = _matrices(x, "tril")
    return where(generate(x.shape[-2:], lambda i, j: j <= i + k), x, _zero(x))


def _zero(x: Expr) -> Expr:
    return Expr(x.builder.literal(0, x.dtype), x.builder)


def _matrices(x: Any, what: str) -> Expr:
    given = as_expr(x)
    if given.ndim < 2:
        raise TypeError(at_line(f"{what} takes a matrix, not a value of type {given.type}"))
    return given
