"""Wrong programs and wrong arguments: each gives an error that names the program, the argument and the line."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adze as az

Vector = az.Array[az.f64, "n"]
X = np.arange(3.0)


@az.program
def inner(x: Vector, y: Vector) -> az.f64:
    return az.sum(x * y)


class Buffer:
    """An object with NumPy's array interface."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


class Capsule:
    """An object with DLPack's protocol only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


HERE = r"test_errors\.py:\d+"

CALLS: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("too few", (X,), TypeError, r"inner takes 2 argument\(s\) \(x, y\); missing: y"),
    ("too many", (X, X, X), TypeError, r"inner takes 2 argument\(s\) \(x, y\); got 3"),
    ("f32", (X, X.astype("f4")), TypeError, r"inner: argument 'y' is f64\[n\], got an array of float32 with shape"),
    ("an array of integers", (X, np.arange(3)), TypeError, r"argument 'y' is f64\[n\], got an array of int64"),
    ("complex", (X, 1j * X), TypeError, r"argument 'y' is f64\[n\], got an array of complex128"),
    ("two axes", (X, X[None]), TypeError, r"argument 'y' is f64\[n\], got an array of float64 with shape \(1, 3\)"),
    ("no axis", (X, 1.0), TypeError, r"argument 'y' is f64\[n\], got the number 1.0"),
    ("another length", (X, X[:2]), ValueError, r"inner: n is 3 in argument 'x' .* but 2 in argument 'y' \(axis 0 of"),
    ("None", (X, None), TypeError, "argument 'y' is .* got a value of type NoneType that is not numeric"),
    ("text", (X, "abc"), TypeError, "argument 'y' is .* got a value of type str that is not numeric: 'abc'"),
    ("an object", (X, object()), TypeError, "argument 'y' is .* got a value of type object that is not numeric"),
    ("a dictionary", (X, {"a": X}), TypeError, "argument 'y' is .* got a value of type dict that is not numeric"),
    ("a ragged list", (X, [[1.0], [1.0, 2.0]]), TypeError, "argument 'y' is .* that is not a regular array"),
    ("an array of text", (np.array(["a"]), X), TypeError, "argument 'x' is .* not numeric"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_wrong_calls(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"{message}.*{HERE}"):
        az.evaluate(inner)(*arguments)


def test_wrong_keywords() -> None:
    with pytest.raises(TypeError, match=rf"inner\(x, y\) got the argument 'z' but has no such parameter.*{HERE}"):
        az.evaluate(inner)(X, z=X)
    with pytest.raises(TypeError, match=r"inner\(x, y\) got the argument 'x' twice"):
        az.evaluate(inner)(X, x=X)
    assert az.evaluate(inner)(y=X, x=X) == 5


@pytest.mark.parametrize(
    "argument",
    [[0, 1, 2], (0.0, 1.0, 2.0), [0, True, 2.0], memoryview(X), Buffer(X), Capsule(X), X[::-1][::-1], X.astype(">f8")],
    ids=["ints", "floats", "mixed", "buffer", "interface", "dlpack", "strided", "big-endian"],
)
def test_what_converts(argument: Any) -> None:
    assert az.evaluate(inner)(argument, X) == 5


def test_lists_of_nothing_convert_to_any_type() -> None:
    @az.program
    def count(x: az.Array[az.i32, "n"]) -> az.i64:
        return az.sum(x)

    assert az.evaluate(count)([]) == 0
    with pytest.raises(TypeError, match=r"argument 'x' is i32\[n\], got an array of float64 with shape"):
        az.evaluate(count)(np.zeros(0))


@pytest.mark.parametrize(
    ("type", "number", "message"),
    [
        (az.i32, 2**31, "2147483648, which is not exactly representable in i32"),
        (az.i32, 2.0, r"the number 2.0 \(float64\)"),
        (az.f32, 0.1, "0.1, which is not exactly representable in f32"),
        (az.f64, 2**53 + 1, "9007199254740993, which is not exactly representable in f64"),
        (az.i64, 2**64, "the integer 18446744073709551616, which i64 cannot hold exactly"),
        (az.bool_, 1, r"the number 1 \(int64\)"),
        (az.f64, np.float32(1), r"the scalar np.float32\(1.0\) \(float32\)"),
    ],
)
def test_numbers_convert_when_exact(type: Any, number: Any, message: str) -> None:
    def same(x: Any) -> Any:
        return x

    same.__annotations__ = {"x": type}
    with pytest.raises(TypeError, match=f"same: argument 'x' is {type}, got ({message})"):
        az.evaluate(az.program(same))(number)


@pytest.mark.parametrize(
    ("type", "number"), [(az.f64, 3), (az.f32, 0.5), (az.i32, True), (az.f32, math.nan), (az.f64, True)]
)
def test_exact_numbers(type: Any, number: Any) -> None:
    def same(x: Any) -> Any:
        return x

    same.__annotations__ = {"x": type}
    np.testing.assert_equal(az.evaluate(az.program(same))(number), type.dtype.type(number))


def test_composite_sizes_are_checked() -> None:
    @az.program
    def lower(q: az.Array[az.f64, "d"], l: az.Array[az.f64, "d*(d-1)//2"]) -> az.f64:
        return az.sum(q) + az.sum(l)

    assert az.evaluate(lower)(np.ones(3), np.ones(3)) == 6
    message = r"lower: axis 0 of argument 'l' is d\*\(d-1\)//2 = 3 \(with d = 3\), got 4 \(shape \(4,\)\)"
    with pytest.raises(ValueError, match=f"{message}.*{HERE}"):
        az.evaluate(lower)(np.ones(3), np.ones(4))


def test_integer_sizes_are_checked() -> None:
    @az.program
    def three(x: az.Array[az.f64, 3]) -> az.f64:
        return az.sum(x)

    with pytest.raises(ValueError, match=r"three: axis 0 of argument 'x' is 3, got 4 \(shape \(4,\)\)"):
        az.evaluate(three)(np.ones(4))


def test_a_size_that_nothing_binds() -> None:
    @az.program
    def lower(l: az.Array[az.f64, "d*(d-1)//2"]) -> az.f64:
        return az.sum(l)

    message = r"lower: the size d of parameter 'l', of type f64\[d\*\(d-1\)//2\], cannot be found from the arguments"
    with pytest.raises(TypeError, match=message):
        lower.at().term  # noqa: B018
    with pytest.raises(TypeError, match=message):
        az.evaluate(lower)(np.ones(3))


# Programs


def run(body: Callable[[Any], Any], argument: Any = X, type: Any = Vector) -> Any:
    """Evaluate a program of one parameter."""

    def f(x: Any) -> Any:
        return body(x)

    f.__annotations__ = {"x": type}
    return az.evaluate(az.program(f))(argument)


LEAKED: list[Any] = []


def leak(x: Any) -> Any:
    LEAKED[:] = [x + 1]
    return x


def leak_from_map(x: Any) -> Any:
    az.map(lambda v: LEAKED.append(v * 2) or v, x)  # type: ignore[func-returns-value]
    return x + LEAKED[-1]


def assign(x: Any) -> Any:
    x[0] = 1.0
    return x


Three = az.Array[az.f64, 3]
BODIES: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("if", lambda x: 1.0 if x[0] > 0 else 2.0, TypeError, "the truth of an expression of type bool: .*use az.cond"),
    ("and", lambda x: x[0] > 0 and x[0] < 1, TypeError, "the truth of an expression of type bool"),
    ("not", lambda x: not x, TypeError, r"the truth of an expression of type f64\[n\]"),
    ("len", len, TypeError, r"len\(\) of an expression of type f64\[n\]: .*use x.shape\[0\]"),
    ("float", lambda x: float(x[0]), TypeError, r"float\(\) of an expression of type f64: .*astype\(az.f64\)"),
    ("int", lambda x: int(x[0]), TypeError, r"int\(\) of an expression of type f64"),
    ("math", lambda x: math.exp(x[0]), TypeError, r"float\(\) of an expression of type f64"),
    ("iteration", list, TypeError, "iteration over an axis of size n: .*use az.map"),
    ("iteration over a scalar", lambda x: list(x[0]), TypeError, "iteration over a scalar"),
    ("Python's sum", lambda x: __builtins__["sum"](x), TypeError, "iteration over an axis of size n"),
    ("in", lambda x: 1.0 in x, TypeError, "'in' of an expression"),
    ("range", lambda x: range(x.shape[0]), TypeError, "a Python index of an expression of type i64"),
    ("a ragged list", lambda x: x * [[1.0], [2.0, 3.0]], ValueError, "of type list is not a regular array"),
    ("a ragged index", lambda x: x[[[0], [1, 2]]], ValueError, "of type list is not a regular array"),
    ("assignment", assign, TypeError, r"an expression of type f64\[n\] cannot be changed"),
    ("np.asarray", np.asarray, TypeError, "the elements, as a NumPy array, of an expression"),
    ("np.trim_zeros", np.trim_zeros, TypeError, "np.trim_zeros is not an operation of the language"),
    ("np.nextafter", lambda x: np.nextafter(x, x), TypeError, "np.nextafter is not an operation of the language"),
    ("np.add.reduce", np.add.reduce, TypeError, "np.add.reduce is not an operation of the language"),
    ("no return", lambda x: None, TypeError, "f returns nothing: is a return missing"),
    ("a result of text", lambda x: "abc", TypeError, "'abc' of type str is not a value of the language"),
    ("text as an operand", lambda x: x + "a", TypeError, "'a' of type str is not a value of the language"),
    ("an array of text", lambda x: x * np.array(["a"]), TypeError, "is not a value of the language"),
    ("bool arithmetic", lambda x: (x > 0) - (x > 0), TypeError, "subtract takes float or int operands, got bool, bool"),
    ("logic on floats", lambda x: x & x, TypeError, "bitwise_and takes int or bool operands, got f64, f64"),
    ("an index of floats", lambda x: x[1.0], TypeError, "an index into a value of type f64.n. is an integer, not f64"),
    ("an index of bools", lambda x: x[x > 0], TypeError, "an index into .* is an integer, not bool"),
    ("an index of text", lambda x: x["a"], TypeError, "'a' of type str is not a value of the language"),
    ("two indices", lambda x: x[0, 0], IndexError, r"2 indices into a value of type f64\[n\]"),
    ("a slice of floats", lambda x: x[1.5:], TypeError, "the end of a slice is an integer, not f64"),
    ("a step of zero", lambda x: x[::0], TypeError, "the step of a slice is a Python integer other than zero"),
    ("an axis", lambda x: az.sum(x, 1), ValueError, r"axis 1 of a value of type f64\[n\]"),
    ("a cond of a number", lambda x: az.cond(x[0], lambda: 1, lambda: 2), TypeError, "the test .* is a scalar bool"),
    ("a cond of an array", lambda x: az.cond(x > 0, lambda: 1, lambda: 2), TypeError, "scalar bool, not bool"),
    ("branches", lambda x: az.cond(x[0] > 0, lambda: x, lambda: 2.0), TypeError, r"differ in type: f64\[n\] and f64"),
    ("structures", lambda x: az.cond(x[0] > 0, lambda: (x, x), lambda: x), TypeError, "return different structures"),
    ("a where of a number", lambda x: az.where(x, 1.0, 2.0), TypeError, "the test of a where is bool"),
    ("a state's type", lambda x: az.fori_loop(0, 3, lambda i, s: s > 0, 1.0), TypeError, "state of type f64 to bool"),
    ("a state's structure", lambda x: az.fori_loop(0, 3, lambda i, s: (s, s), 1.0), TypeError, "another structure"),
    ("a loop's bound", lambda x: az.fori_loop(0, x[0], lambda i, s: s, x), TypeError, "a size is an integer, not f64"),
    ("a neutral's structure", lambda x: az.reduce(lambda a, b: a, (0.0, 1.0), x), TypeError, "the neutral element"),
    ("an operator's type", lambda x: az.reduce(lambda a, b: a > b, 1.0, x), TypeError, "returned a value of type bool"),
    ("a reduced scalar", lambda x: az.reduce(lambda a, b: a, 0.0, x[0]), ValueError, "axis 0 of a value of type f64"),
    ("a mapped scalar", lambda x: az.map(lambda v: v, x[0]), TypeError, "map over a scalar of type f64"),
    ("nothing to map", lambda x: az.map(lambda v: v), TypeError, "map takes at least one array"),
    ("a size", lambda x: az.generate(x[0], lambda i: 1.0), TypeError, "a size is an integer, not f64"),
    ("a negative size", lambda x: az.generate(-1, lambda i: 1.0), ValueError, "a size of -1"),
    ("irregular", lambda x: az.generate(3, az.iota), TypeError, "irregular array .*an inner size depends on the index"),
    ("a product", lambda x: x[0] @ x, TypeError, "vectors and matrices are multiplied"),
    ("a neutral's type", lambda x: az.reduce(lambda a, b: a, 0, x > 0), TypeError,
     "the neutral element of a reduce over bool is of type i64, not bool"),
    ("a neutral's axes", lambda x: az.reduce(lambda a, b: a, np.zeros((2, 2)), x), TypeError,
     r"the neutral element of a reduce over axis 0 of f64\[n\] has no axes, not 2"),
    ("axes mapped over", lambda x: az.scan(lambda a, b: a, (0.0, 0.0), (x, x[:, None])), TypeError,
     r"scan: f64\[n\] is mapped over 0 axes, f64\[n, 1\] over 1"),
    ("nothing to reduce", lambda x: az.reduce(lambda a, b: a, (), ()), TypeError, "reduce takes at least one array"),
    ("an operator's structure", lambda x: az.scan(lambda a, b: (a, b), 0.0, x), TypeError,
     "the operator of a scan returns the structure of an element"),
    ("an operator's axes", lambda x: az.scan(lambda a, b: a * np.ones(2), 0.0, x), TypeError,
     r"the operator of a scan over f64 returned a value of type f64\[2\]"),
    ("two axes alike", lambda x: az.sum(x[:, None], (0, -2)), ValueError, "names an axis of a value of type .* twice"),
    ("an axis of floats", lambda x: az.cumsum(x, 0.0), TypeError, "an axis is a Python integer, not 0.0"),
    ("bins of floats", lambda x: az.histogram(lambda a, b: a, 0.0, 3, x, x), TypeError,
     r"the indices of a histogram are integers, not f64\[n\]"),
    ("bins of two axes", lambda x: az.histogram(lambda a, b: a, 0.0, 3, az.zeros((2, 2), az.i64), x), TypeError,
     "the bins of a histogram are a vector of integers"),
    ("a scatter's indices", lambda x: az.scatter(x, x, x), TypeError, "the indices of a scatter are integers, not f64"),
    ("a scatter's mode", lambda x: az.scatter(x, [0], x, mode="wrap"), ValueError, "is 'error' or 'drop', not 'wrap'"),
    ("a scatter's structure", lambda x: az.scatter((x, x), [0], x), TypeError, "have the structure of the destination"),
    ("a scatter's type", lambda x: az.scatter(az.zeros(3, az.i64), [0], x[:1]), TypeError,
     r"scatter: values of type f64\[.*\] do not go into an array of type i64\[3\]"),
    ("too many indices", lambda x: az.scatter(x, ([0], [0]), 1.0), TypeError, "scatter: 2 indices into a destination"),
    ("an update's type", lambda x: az.update(az.iota(3), 0, 0.5), TypeError,
     r"update: values of type f64 do not go into an array of type i64\[3\]"),
    ("an update's axes", lambda x: az.update(x, 0, x), TypeError, r"update: values of type f64\[n\] have more axes"),
    ("an update of a scalar", lambda x: az.update(x[0], 0, 1.0), TypeError, "update of a scalar of type f64"),
    ("a mask", lambda x: x[x > 0], TypeError, "only the run knows how much a mask selects; use az.where .*az.filter"),
    ("a Python bool as index", lambda x: x[True], TypeError, "is an integer, not bool"),
    ("two ellipses", lambda x: x[..., ...], IndexError, "more than one ellipsis"),
    ("a filter's function", lambda x: az.filter(lambda v: v, x), TypeError, "gives a scalar bool for each element"),
    ("an order of axes", lambda x: az.transpose(x[:, None], (0, 0)), ValueError, r"\(0, 0\) is not an order of"),
    ("a squeezed axis", lambda x: az.squeeze(x, 0), ValueError, r"squeeze: axis 0 of f64\[n\] has size n, not 1"),
    ("two sizes left", lambda x: az.reshape(x, (-1, -1)), ValueError, "more than one size -1"),
    ("a broadcast", lambda x: az.broadcast_to(x[None], (3,)), TypeError, r"broadcast of f64\[1, n\] to 1 axes"),
    ("concatenated ranks", lambda x: az.concatenate([x, x[None]]), TypeError,
     r"the same number of axes, got f64\[n\], f64\[1, n\]"),
    ("arrays that are not a list", lambda x: az.concatenate(x, x), TypeError, "takes a tuple or list of arrays"),
    ("branches that are values", lambda x: az.cond(x[0] > 0, x[0], 2.0), TypeError, "write az.cond.test, lambda: a"),
    ("nothing concatenated", lambda x: az.concatenate([]), TypeError, "concatenate takes at least one array"),
    ("stacked shapes", lambda x: az.stack([x, x[0]]), TypeError, r"arrays of one shape, got f64\[n\] and f64"),
    ("a border", lambda x: az.pad(x, 1, mode="median"), ValueError, "pad: the mode is .* not 'median'"),
    ("a matrix of a vector", lambda x: az.triu(x), TypeError, r"triu takes a matrix, not a value of type f64\[n\]"),
    ("an outer product", lambda x: az.outer(x, x[0]), TypeError, "outer takes vectors"),
    ("subscripts", lambda x: az.einsum("ij->i", x), TypeError, "the subscripts 'ij->i' do not fit operands"),
    ("subscripts of the result", lambda x: az.einsum("i->j", x), TypeError, "has letters that no operand has"),
    ("a search", lambda x: az.searchsorted(x[None], x), TypeError, "searchsorted in a vector, not in a value of type"),
    ("a search's side", lambda x: az.searchsorted(x, x, "middle"), ValueError, "is 'left' or 'right', not 'middle'"),
    ("replicated axes", lambda x: az.replicate((3, 2), x), TypeError, "0 axes are All, but a value of type .* has 1"),
    ("a sliced axis", lambda x: az.slice(x, (0, 0)), TypeError, "slice: 2 entries for the axes of a value of type"),
    ("a permuted place", lambda x: az.permute(az.maximum, x, lambda i: x[i], x), TypeError, r"\(f64\) is not an index"),
    ("a boundary", lambda x: az.stencil(lambda w: w[0], "nearest", x), ValueError,
     "is 'clamp', 'mirror', 'edge', 'wrap', 'reflect', 'symmetric' or a value, not 'nearest'"),
    ("shifts along axes", lambda x: az.roll(x, (1, 2), (0, 0, 0)), ValueError, "roll: 2 shifts along 3 axes"),
    ("an axis of several", lambda x: az.roll(x, 1, (0, 1)), ValueError, r"axis 1 of a value of type f64\[n\]"),
    ("a boundary's type", lambda x: az.stencil(lambda w: w[1], True, x > 1) & az.stencil(lambda w: w[1], 2.5, x > 1),
     TypeError, "has the structure and type of an element: bool"),
    ("a window's offset", lambda x: az.stencil(lambda w: w[x[0]], "wrap", x), TypeError, "takes 1 integer offset"),
    ("a step's pair", lambda x: az.scan_loop(lambda s, v: s, 0.0, x), TypeError, "returns a pair of the next state"),
    ("a step over nothing", lambda x: az.scan_loop(lambda s, v: (s, v), 0.0, None), TypeError, "an array, or a length"),
    ("irregular outputs", lambda x: az.scan_loop(lambda s, v: (s + 1, az.iota(s)), 0, x), TypeError,
     "irregular array|changes a state"),
    ("a while's test", lambda x: az.while_loop(lambda s: s, lambda s: s, x), TypeError, "gives a scalar bool, not f64"),
    ("a while's state", lambda x: az.while_loop(lambda s: s[0] > 0, lambda s: s[0], x), TypeError,
     r"the body of a while_loop changes a state of type f64\[n\] to f64"),
    ("outside a combinator", leak_from_map, RuntimeError, f"the expression written at .*{HERE}, of type f64, was used"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "error", "message"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_wrong_programs(body: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        run(body)
    assert re.search(HERE, str(caught.value)) or "returns nothing" in message
    assert any("while building the program f(f64[n])" in note for note in caught.value.__notes__)


STATIC: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("shapes", lambda x: x + np.ones(4), TypeError, r"add: the shapes of f64\[3\] and f64\[4\] differ: 3 is not 4"),
    ("lengths", lambda x: az.map(lambda v, w: v, x, np.ones(2)), TypeError, r"map: the shapes .* 3 is not 2"),
    ("matmul", lambda x: np.ones((2, 2)) @ x, TypeError, r"matmul: the shapes .* 2 is not 3"),
    ("an index", lambda x: x[3], IndexError, r"index 3 is out of range for axis 0 of type f64\[3\]"),
    ("a reshape", lambda x: az.reshape(x, (2, 2)), TypeError, r"reshape of f64\[3\] to another number .*3 is not 4"),
    ("stacked", lambda x: az.stack([x, np.ones(2)]), TypeError, "stack: the shapes .* 3 is not 2"),
    ("a stretch", lambda x: az.broadcast_to(x, (2, 4)), TypeError, "to another size: 3 is not 4"),
    ("a neutral", lambda x: az.reduce(lambda a, b: a, np.zeros(2), az.stack([x, x])), TypeError, ".*3 is not 2"),
    ("captured indices", lambda x: x[[0, -4]], IndexError, r"index -4 is out of range for axis 0 of type f64\[3\]"),
    ("a place", lambda x: az.update(x, slice(1), np.ones(2)), TypeError, "do not fit the place in f64.3.*: 2 is not 1"),
    ("argmax of nothing", lambda x: az.argmax(x[:0]), ValueError, "argmax of nothing"),
    ("a contraction", lambda x: az.einsum("i,i->", x, np.ones(2)), TypeError, "einsum: the shapes .* 3 is not 2"),
    ("a stencil", lambda x: az.stencil(lambda v, w: v[0], 0.0, x, np.ones(2)), TypeError, ".* 3 is not 2"),
    ("an index from the end", lambda x: x[-4], IndexError, r"index -4 is out of range for axis 0 of type f64\[3\]"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "error", "message"), [b[1:] for b in STATIC], ids=[b[0] for b in STATIC])
def test_what_is_wrong_for_all_sizes_is_refused_when_built(
    body: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"{message}.*{HERE}"):
        run(body, type=Three)


DYNAMIC: list[tuple[str, Callable[[Any], Any], Any, Any, type[Exception], str]] = [
    ("an index", lambda x: x[3], X, Vector, IndexError, "index 3 is out of range for axis 0 of x, .*whose size is 3"),
    ("from the end", lambda x: x[-4], X, Vector, IndexError, "index -4 is out of range for axis 0 of x"),
    ("computed", lambda k: az.iota(3)[k], 3, az.i64, IndexError, "index 3 is out of range .* whose size is 3"),
    ("negative", lambda k: az.iota(3)[k], -1, az.i64, IndexError, "index -1 is out of range"),
    ("in a map", lambda x: az.generate(4, lambda i: x[i]), X, Vector, IndexError, "index 3 is out of range"),
    ("gathered", lambda i: np.ones(3)[0] * az.full(3, 1.0)[i], np.array([0, 3]), az.Array[az.i64, "m"], IndexError,
     "index 3 is out of range"),
    ("a matrix", lambda x: x[:, None][0, 0] + x[None, :][0, 5], X, Vector, IndexError, "index 5 is out of range"),
    ("in a branch", lambda x: az.cond(x[0] < 1, lambda: x[7], lambda: 0.0), X, Vector, IndexError, "index 7 is"),
    ("division", lambda k: 1 // k, 0, az.i64, ZeroDivisionError, "integer division by zero"),
    ("remainder", lambda k: az.sum(az.iota(3) % k), 0, az.i64, ZeroDivisionError, "integer division by zero"),
    ("a size", lambda k: az.sum(az.iota(k)), -2, az.i64, ValueError, "a size of -2"),
    ("shapes", lambda x: x + np.ones(4), X, Vector, ValueError, "add: the sizes n = 3 and 4 = 4 of .* differ"),
    ("a reshape", lambda x: az.reshape(x, (2, -1)), X, Vector, ValueError, "reshape of .* to another number .*= 3 is"),
    ("twice in one place", lambda i: az.scatter(az.zeros(3), i, 1.0), np.array([2, 0, 2]), az.Array[az.i64, "m"],
     ValueError, r"scatter: 2 values go to the place \[2\] of a destination of type f64\[3\]; unique=False"),
    ("scattered", lambda i: az.scatter(az.zeros(3), i, 1.0), np.array([3]), az.Array[az.i64, "m"], IndexError,
     "index 3 is out of range for axis 0"),
    ("argmin of nothing", az.argmin, X[:0], Vector, ValueError, "argmin of nothing"),
    ("captured indices", lambda x: x[[0, -4]], X, Vector, IndexError, "index -4 is out of range for axis 0 of x"),
    ("a place", lambda x: az.update(x, slice(0, 2), x), X, Vector, ValueError, "do not fit the place in f64"),
    ("stacked", lambda x: az.stack([x, np.ones(2)]), X, Vector, ValueError, "stack: the sizes n = 3 and 2 = 2"),
    ("an element's size", lambda x: az.reduce(lambda a, b: a[1:], np.zeros(3), x[:, None] * x), X, Vector, ValueError,
     "the operator of a reduce: the sizes"),
    ("a state's size", lambda x: az.fori_loop(0, 3, lambda i, s: s[1:], x), X, Vector, ValueError,
     r"fori_loop: the sizes n = 3 and .* = 2 of"),
]  # fmt: skip


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize(
    ("body", "argument", "type", "error", "message"), [b[1:] for b in DYNAMIC], ids=[b[0] for b in DYNAMIC]
)
def test_what_is_wrong_for_some_values_fails_in_the_run(
    body: Callable[[Any], Any], argument: Any, type: Any, error: type[Exception], message: str, vectorize: bool
) -> None:
    def f(x: Any) -> Any:
        return body(x)

    f.__annotations__ = {"x": type}
    with pytest.raises(error, match=f"{message}.*{HERE}"):
        az.evaluate(az.program(f), vectorize=vectorize)(argument)


def test_a_branch_that_is_not_taken_does_not_fail() -> None:
    assert run(lambda x: az.cond(x[0] > 1, lambda: x[7], lambda: 0.5)) == 0.5
    assert list(run(lambda x: az.generate(5, lambda i: az.cond(i < 3, lambda: x[i], lambda: 0.0)))) == [0, 1, 2, 0, 0]


def test_an_expression_outside_its_program() -> None:
    run(leak)
    with pytest.raises(RuntimeError, match=f"no program is being built here.*{HERE}"):
        LEAKED[0] + 1
    with pytest.raises(
        RuntimeError, match=rf"the expression written at .*, of type f64\[n\], was used outside.*{HERE}"
    ):
        run(lambda x: x + LEAKED[0])
    with pytest.raises(RuntimeError, match="no program is being built here"):
        az.sum(X)


def test_arrays_on_the_left() -> None:
    assert list(run(lambda x: np.ones(3) * x)) == list(X)
    assert list(run(lambda x: np.float64(2) - x)) == list(2 - X)
    assert list(run(lambda x: np.eye(3) @ x)) == list(X)
    assert list(run(lambda x: np.maximum(1.0, np.exp(0 * x) * np.ones(3)))) == [1, 1, 1]
    assert run(np.sum) == 3
    assert list(run(lambda x: np.arange(3) < x + 1)) == [True] * 3


# Declarations


def test_annotations() -> None:
    def wrong(x: list) -> None:  # type: ignore[type-arg]
        pass

    with pytest.raises(TypeError, match="wrong: parameter 'x' has the annotation <class 'list'>, which is neither"):
        az.program(wrong)
    with pytest.raises(TypeError, match=r"the parameters of a program are named one by one, but there is \*args"):
        az.program(lambda *args: 0)
    with pytest.raises(TypeError, match=r"Array\[...\] takes a scalar type such as az.f64, or a record, first"):
        az.Array[float, "n"]
    with pytest.raises(ValueError, match="'n/2' is not a size"):
        az.Array[az.f64, "n/2"]
    with pytest.raises(ValueError, match=r"in the sizes 'n [+] 1', which are separated by spaces: '[+]' is not a size"):
        az.Array[az.f64, "n + 1"]
    with pytest.raises(TypeError, match="an array has at least one axis"):
        az.Array[az.f64, ""]
    for size in ("-1", "n -n-1", "n-n-2", "2*-3", str(2**63), f"{2**63}*n", f"n+min(n,{2**63})"):
        with pytest.raises(ValueError, match=r"a size of .*; sizes are from 0 to 2\*\*63 - 1"):
            az.Array[az.f64, size]
    with pytest.raises(ValueError, match="in the sizes -1: a size of -1"):
        az.Array[az.f64, 3, -1]
    assert str(az.Array[az.f64, f"n-1 {2**63 - 1}"]) == f"f64[n - 1, {2**63 - 1}]"


def test_results_are_what_was_declared() -> None:
    @az.program
    def scalar(x: Vector) -> az.f64:
        return x

    @az.program
    def grown(x: Vector) -> az.Array[az.f64, "n+1"]:
        return x

    @az.program
    def sliced(x: Vector, k: az.i64) -> Vector:
        return x[k:]

    @az.program
    def new(k: az.i64) -> az.Array[az.i64, "m"]:
        return az.iota(k)

    with pytest.raises(TypeError, match=r"scalar is declared to return f64, but its body returns f64\[n\]"):
        az.evaluate(scalar)(X)
    with pytest.raises(TypeError, match=r"grown is declared to return f64\[n \+ 1\], its body returns f64\[n\]"):
        az.evaluate(grown)(X)
    assert list(az.evaluate(sliced)(X, 0)) == list(X)
    with pytest.raises(ValueError, match=rf"sliced returns f64\[n\], but axis 0 has size 2, not 3, at .*{HERE}"):
        az.evaluate(sliced)(X, 1)
    assert list(az.evaluate(new)(2)) == [0, 1]


def test_static_parameters() -> None:
    @az.program
    def power(x: Vector, times: int) -> Vector:
        return x**times

    assert list(az.evaluate(power)(X, 2)) == [0, 1, 4]
    with pytest.raises(TypeError, match="power: parameter 'times' is a static int, got float"):
        az.evaluate(power)(X, 2.5)
    with pytest.raises(TypeError, match="power: the static parameters times need values"):
        power.at()


def test_inlined_programs_check_their_arguments() -> None:
    with pytest.raises(TypeError, match=rf"inner: argument 'y' is f64\[n\], got f64 \(at .*{HERE}"):
        run(lambda x: inner(x, 1.0))
    with pytest.raises(TypeError, match=r"inner, size n: the shapes of f64\[3\] and f64\[2\] differ"):
        run(lambda x: inner(x, np.ones(2)), type=Three)
    with pytest.raises(ValueError, match="inner, size n: the sizes n = 3 and 2 = 2"):
        run(lambda x: inner(x, np.ones(2)))
    assert run(lambda x: inner(x, x)) == 5


HUGE = 2**62


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
@pytest.mark.parametrize(
    "f",
    [
        lambda n: az.concatenate((az.iota(HUGE), az.iota(HUGE))),
        lambda n: az.concatenate((az.iota(n), az.iota(1), az.iota(n))),
        lambda n: az.tile(az.iota(HUGE), 2),
        lambda n: az.tile(az.iota(n), 4),
        lambda n: az.tile(az.iota(n), n),
        lambda n: az.pad(az.iota(HUGE), HUGE),
        lambda n: az.ravel(az.generate((2**33, 2**32), lambda i, j: i)),
        lambda n: az.reshape(az.zeros(0), (n, n)),
        lambda n: az.reshape(az.zeros(0), (4, n)),
        lambda n: az.reshape(az.zeros(0), (-1, n, n)),
    ],
)
def test_sizes_that_overflow(run: Any, f: Any) -> None:
    """Sums and products of sizes that no integer of 64 bits holds are errors, also of arrays that are never made."""
    with pytest.raises((ValueError, OverflowError), match=r"a size of .*does not fit i64.*test_errors\.py"):
        run(lambda n: az.size(f(n)))(HUGE)


def of_rows(n: Any) -> tuple[Any, ...]:
    """Arithmetic on a number of rows."""
    square = n * n
    return square, -square, 4 * square + 1, (square + 5) // 3, np.maximum(8 * square + 3, 7), (3 * square + 7) % 1000


@pytest.mark.parametrize("run", [az.evaluate, az.compile, lambda f: az.evaluate(az.jvp(f))])
@pytest.mark.parametrize("rows", [2**33 + 1, 2**32, 2**31, 3])
def test_numbers_made_of_sizes_wrap_around(run: Any, rows: int) -> None:
    """As other integers do: rows of no bytes may be more than 2**32."""

    @az.program
    def f(x: az.Array[az.f64, "n 0"]) -> Any:
        return of_rows(x.shape[0])

    x = np.zeros((rows, 0))
    found = run(f)(x) if run in (az.evaluate, az.compile) else run(f)(x, x)[0]
    np.testing.assert_array_equal(found, np.concatenate(of_rows(np.array([rows]))))


@pytest.mark.parametrize("run", [az.evaluate, az.trace])
def test_arrays_of_sizes_that_overflow(run: Any) -> None:
    """Of a size that wraps around there is no array."""

    @az.program
    def f(x: az.Array[az.f64, "n 0"]) -> az.f64:
        return az.sum(az.iota(x.shape[0] ** 2) * 2.0)

    with pytest.raises(OverflowError, match=r"a size of n\*n, which is .*, does not fit i64 .*test_errors\.py"):
        run(f)(np.zeros((2**32, 0)))


def test_sizes_that_overflow_on_a_device(opencl: Any) -> None:
    with pytest.raises(ValueError, match=r"a size of 4 times 4611686018427387904 does not fit i64.*test_errors\.py"):
        az.compile(lambda n: az.size(az.reshape(az.zeros(0), (4, n))), backend="opencl")(HUGE)


INTERPRETERS: dict[str, Callable[[Any], object]] = {
    "program": az.program, "compile": az.compile, "evaluate": az.evaluate, "trace": az.trace, "pretty": az.pretty,
    "check": az.check, "simplify": az.simplify, "draw": az.draw, "cost": az.cost,
}  # fmt: skip


@pytest.mark.unguarded
@pytest.mark.parametrize("name", INTERPRETERS)
def test_what_is_no_program_is_refused_where_it_is_given(name: str) -> None:
    interpreter = INTERPRETERS[name]
    told = "a program or a Python function is expected here, not "
    for given, described in (("text", "'text'"), (np.ones(3), r"an array of float64 with shape \(3,\)"), (None, "")):
        with pytest.raises(TypeError, match=rf"{told}{described}.* \(at .*test_errors.py:\d+\)$"):
            interpreter(given)
    told = "of a matrix there is az.linalg.trace" if name == "trace" else rf"{told}f64\[a_0, a_1\]"
    with pytest.raises(TypeError, match=rf"{told} \(at .*test_errors.py:\d+\)"):
        az.evaluate(lambda a: interpreter(a) and a)(np.eye(2))


@pytest.mark.unguarded
def test_annotated_functions_are_interpreted_as_they_are() -> None:
    def square(x: az.f64) -> Any:
        return x * x

    given: Any = square  # types ask for a program
    assert az.pretty(given) == az.pretty(az.program(square))
