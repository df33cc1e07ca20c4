"""What the printer recognises is exactly the term: printed programs are run by NumPy, and near misses stay loops."""

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import CASES, Case
from test_pretty import Matrix, Vector, assert_text

import adze as az
from adze.core import trees
from adze.core.dims import Dim
from adze.core.primitive import PRIMITIVES
from adze.core.types import dims
from adze.interpreters.pretty.lifting import slice_text

# NumPy's meaning of printed text


def reduction(function: Callable[..., Any], neutral: Any = None) -> Callable[..., Any]:
    def reduced(x: Any, axis: int | None = None) -> Any:
        x = np.asarray(x)
        if neutral is None:
            return function(x, axis=axis)
        extreme = neutral if x.dtype.kind == "f" else np.iinfo(x.dtype).max * int(np.sign(neutral))
        return function(x, axis=axis, initial=extreme)

    return reduced


def scatter(target: Any, places: Any, values: Any, unique: bool = True) -> Any:
    result = np.array(target)
    for k, place in enumerate(places):
        if 0 <= place < len(result):
            result[place] = values[k] if np.ndim(values) else values
    return result


def histogram(operator: Callable[..., Any], bins: int, places: Any, values: Any) -> Any:
    values = np.broadcast_to(values, (len(places), *np.shape(values)[1:]))
    return np.array([operator(values[places == k], 0) for k in range(bins)])


def update(target: Any, place: Any, value: Any) -> Any:
    result = np.array(target)
    result[place] = value
    return result


NAMES: dict[str, Any] = {
    **{name: row.numpy for name, row in PRIMITIVES.items()},
    "sum": reduction(lambda x, axis: np.sum(x, axis, dtype=x.dtype)),
    "prod": reduction(lambda x, axis: np.prod(x, axis, dtype=x.dtype)),
    "max": reduction(np.max, -np.inf),
    "min": reduction(np.min, np.inf),
    "all": reduction(np.all),
    "any": reduction(np.any),
    "cumsum": lambda x, axis=None: np.cumsum(x, axis, dtype=np.asarray(x).dtype),
    "cumprod": lambda x, axis=None: np.cumprod(x, axis, dtype=np.asarray(x).dtype),
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
    "map": lambda f, *arrays: np.array([f(*elements) for elements in zip(*arrays, strict=True)]),
    "where": np.where,
    "iota": np.arange,
    "zeros": lambda *shape: np.zeros(shape),
    "ones": lambda *shape: np.ones(shape),
    "full": np.full,
    "transpose": np.transpose,
    "scatter": scatter,
    "histogram": histogram,
    "update": update,
    "argsort": lambda x: np.argsort(x, kind="stable"),
    "size": np.size,
    "inf": np.inf,
    "nan": np.nan,
    "f64": np.float64,
    "f32": np.float32,
    "i64": np.int64,
    "i32": np.int32,
    "bool": np.bool_,
    "array": np.array,
}


def as_python(text: str) -> ast.Module | None:
    """A printed program as a function of Python, without its requirements; None when it has loops of its own."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.endswith(":") or line.startswith(") ->"))
    names = re.findall(r"(\w+): [a-z]", " ".join(lines[: start + 1]).partition("->")[0])
    kept = [f"def f({', '.join(names)}):"]
    for line in lines[start + 1 :]:
        if line.lstrip().startswith("require "):
            continue
        kept.append(re.sub(r"^(  c\d+) = (\[.*\])$", r"\1 = array(\2)", line))
    body = [re.match(r"  for .*:$", line) is None for line in kept]  # loops that only require
    try:
        return ast.parse("\n".join([line for line, keep in zip(kept, body, strict=True) if keep]))
    except SyntaxError:
        return None


def run(module: ast.Module, instance: az.Instance, arguments: list[Any]) -> list[Any]:
    scope = dict(NAMES)
    for type, argument in zip(instance.types, arguments, strict=True):
        for dim, size in zip(dims(type), np.shape(argument), strict=True):
            scope.update({str(dim): size} if str(dim).isidentifier() else {})
    exec(compile(module, "<printed>", "exec"), scope)
    with np.errstate(all="ignore"):
        return trees.flatten(scope["f"](*map(np.asarray, arguments)))[0]


@pytest.mark.unguarded
@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_printed_programs_mean_what_they_say(case: Case, simplified: bool) -> None:
    """A program that is printed without loops is run as NumPy, and gives what evaluate gives."""
    for arguments in case.arguments:
        instance = case.program.instance_for(case.program.bind(arguments, {}))
        module = as_python(az.pretty(instance, simplified=simplified))
        if module is None:
            return
        leaves = [np.asarray(leaf) for leaf in case.program.leaves(arguments)]
        maps = any(isinstance(node, ast.Name) and node.id == "map" for node in ast.walk(module))
        if maps and any(leaf.size == 0 for leaf in leaves):
            continue  # NumPy does not know the shape of the elements of nothing
        wanted = trees.flatten(az.evaluate(case.program)(*arguments))[0]
        results = run(module, instance, case.program.leaves(arguments))
        for result, value in zip(results, wanted, strict=True):
            assert np.size(result) == np.size(value)
            shaped = np.reshape(result, np.shape(value))
            np.testing.assert_allclose(shaped, value, rtol=1e-12, atol=1e-12)


@pytest.mark.unguarded
def test_most_programs_are_printed_without_loops() -> None:
    instances = [case.program.instance_for(case.program.bind(case.arguments[0], {})) for case in CASES]
    assert sum(as_python(az.pretty(instance, simplified=False)) is not None for instance in instances) > len(CASES) / 3


# Forms, and programs that nearly have them

Square = az.Array[az.f64, "n n"]
Cube = az.Array[az.f64, "n m k"]


def nest(*extents: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A program ``f(a: f64[n, m], b: f64[m, k], c: f64[k, m], x: f64[n], y: f64[m])``: an array over these sizes."""

    def program(element: Callable[..., Any]) -> Callable[..., Any]:
        def f(
            a: Matrix, b: az.Array[az.f64, "m k"], c: az.Array[az.f64, "k m"], x: Vector, y: az.Array[az.f64, "m"]
        ) -> Any:
            sizes = {"n": a.shape[0], "m": a.shape[1], "k": b.shape[1]}
            shape = tuple(sizes[extent] for extent in extents)
            if not shape:
                return element(sizes, a, b, c, x, y)
            return az.generate(shape, lambda *i: element(sizes, a, b, c, x, y, *i))

        return f

    return program


def total(n: Any, element: Callable[[Any], Any]) -> Any:
    return az.sum(az.generate(n, element))


FORMS: list[tuple[tuple[str, ...], Callable[..., Any], str]] = [
    # products
    (("n", "k"), lambda s, a, b, c, x, y, i, j: total(s["m"], lambda p: a[i, p] * b[p, j]), "a @ b"),
    (("n", "k"), lambda s, a, b, c, x, y, i, j: total(s["m"], lambda p: a[i, p] * c[j, p]), "a @ c.T"),
    (("k", "n"), lambda s, a, b, c, x, y, i, j: total(s["m"], lambda p: a[j, p] * b[p, i]), "b.T @ a.T"),
    (("m", "m"), lambda s, a, b, c, x, y, i, j: total(s["n"], lambda p: a[p, i] * a[p, j]), "a.T @ a"),
    (("n",), lambda s, a, b, c, x, y, i: total(s["m"], lambda p: a[i, p] * y[p]), "a @ y"),
    (("m",), lambda s, a, b, c, x, y, i: total(s["n"], lambda p: a[p, i] * x[p]), "x @ a"),
    ((), lambda s, a, b, c, x, y: total(s["m"], lambda p: y[p] * y[p]), "sum(y ** 2)"),
    ((), lambda s, a, b, c, x, y: x @ (a @ y), "x @ (a @ y)"),
    ((), lambda s, a, b, c, x, y: az.sum(x * az.exp(x - 1)), "x @ exp(x - 1.0)"),
    ((), lambda s, a, b, c, x, y: az.sum(x * (x - 1)), "sum(x * (x - 1.0))"),
    (
        ("n", "m"),
        lambda s, a, b, c, x, y, i, j: total(s["m"], lambda p: a[i, p] * b[p, 0]),
        "map(lambda v: full(m, v @ b[:, 0]), a)",
    ),
    # transposes, slices, parts
    (("m", "n"), lambda s, a, b, c, x, y, i, j: a[j, i], "a.T"),
    (("m", "n"), lambda s, a, b, c, x, y, i, j: a[j, i] * 2 + x[j], "2.0 * a.T + x"),
    (("n",), lambda s, a, b, c, x, y, i: a[i, 0], "a[:, 0]"),
    ((), lambda s, a, b, c, x, y: a[1:, ::-1], "a[1:, ::-1]"),
    ((), lambda s, a, b, c, x, y: x[-2:], "x[-2:]"),
    ((), lambda s, a, b, c, x, y: x[1::3], "x[1::3]"),
    # reductions
    (("m",), lambda s, a, b, c, x, y, j: total(s["n"], lambda i: a[i, j]), "sum(a, 0)"),
    (("n",), lambda s, a, b, c, x, y, i: total(s["m"], lambda j: a[i, j] * y[j] + 1), "sum(1.0 + a * y, 1)"),
    ((), lambda s, a, b, c, x, y: total(s["n"], lambda i: total(s["m"], lambda j: a[i, j])), "sum(a)"),
    # elementwise choice, maps
    (("n",), lambda s, a, b, c, x, y, i: az.cond(x[i] > 0, lambda: x[i], lambda: 0.0), "where(x > 0.0, x, 0.0)"),
    (("n", "m"), lambda s, a, b, c, x, y, i, j: x[i] * y[j], "map(lambda v: v * y, x)"),
    (("n", "m"), lambda s, a, b, c, x, y, i, j: x[i], "map(lambda v: full(m, v), x)"),
]


@pytest.mark.parametrize(("extents", "element", "wanted"), FORMS)
def test_forms(extents: tuple[str, ...], element: Callable[..., Any], wanted: str) -> None:
    text = az.pretty(az.program(nest(*extents)(element)))
    assert text.rpartition("  return ")[2] == wanted


NEAR_MISSES: list[tuple[tuple[str, ...], Callable[..., Any], str]] = [
    (
        ("n",),
        lambda s, a, b, c, x, y, i: total(s["n"], lambda p: a[i, 0] * a[p, 0]),
        "map(lambda v: sum(v[0] * a[:, 0]), a)",
    ),
    (("n", "m"), lambda s, a, b, c, x, y, i, j: y[j], "for i < n: y"),
    (("n", "m"), lambda s, a, b, c, x, y, i, j: a[i, j] + x[i], "for i < n: a[i] + x[i]"),
    (("n",), lambda s, a, b, c, x, y, i: x[i] * i, "for i < n: x[i] * f64(i)"),
    (("n",), lambda s, a, b, c, x, y, i: x[(i * 2) % s["n"]], "for i < n: x[i * 2 % n]"),
    (
        ("n",),
        lambda s, a, b, c, x, y, i: az.exp(x[i]) + az.exp(x[i]) ** 2,
        "for v in x:\n    t1 = exp(v)\n    yield t1 + t1 ** 2",
    ),
    (
        (),
        lambda s, a, b, c, x, y: az.reduce(az.maximum, 0.0, x),
        "reduce i < n: x[i]\n  combining t1 with t2, from 0.0: maximum(t1, t2)",
    ),
    (
        (),
        lambda s, a, b, c, x, y: az.reduce(lambda p, q: p + q, 1.0, x),
        "reduce i < n: x[i]\n  combining p with q, from 1.0: p + q",
    ),
    (
        (),
        lambda s, a, b, c, x, y: az.reduce(lambda p, q: p - q, 0.0, x),
        "reduce i < n: x[i]\n  combining p with q, from 0.0: p - q",
    ),
    ((), lambda s, a, b, c, x, y: az.generate(3, lambda p: x[p]), "for p < 3: x[p]"),
    (
        ("n",),
        lambda s, a, b, c, x, y, i: az.generate(s["n"], lambda j: a[i, i % s["m"]])[0],
        "for i < n: full(n, a[i, i % m])[0]",
    ),
]


@pytest.mark.parametrize(("extents", "element", "wanted"), NEAR_MISSES)
def test_near_misses(extents: tuple[str, ...], element: Callable[..., Any], wanted: str) -> None:
    """What is nearly a form, but not one, says what it is."""
    text = az.pretty(az.program(nest(*extents)(element)), simplified=False)
    assert text.rpartition("  return ")[2] == wanted


ends = st.none() | st.integers(-4, 4)


@pytest.mark.unguarded
@given(ends, ends, st.sampled_from([1, 2, 3, -1, -2]), st.none() | st.integers(0, 5))
def test_slices_mean_what_they_say(start: int | None, stop: int | None, step: int, size: int | None) -> None:
    """A slice is printed as a slice, or as a loop; as a slice it is one of NumPy's with these elements."""

    def f(x: az.Array[az.f64, "n" if size is None else size]) -> Any:  # type: ignore[valid-type]
        return x[start:stop:step]

    program = az.program(f)
    module = as_python(az.pretty(program))
    for n in range(8) if size is None else [size]:
        if module is not None:
            x = np.arange(float(n))
            assert np.array_equal(run(module, program.at(), [x])[0], x[start:stop:step])


@pytest.mark.unguarded
@given(
    st.sampled_from(["0", "1", "2", "n-1", "n-2", "n+1", "min(1,n)", "max(n-2,0)", "m"]),
    st.sampled_from([-2, -1, 1, 2, 3]),
    st.sampled_from(["n", "n-1", "n-2", "n+1", "m", "2", "(n+1)//2", "n//2", "max(n-1,0)", "max(n-2,0)", "min(2,n)"]),
)
def test_slices_of_any_reads(start: str, step: int, count: str) -> None:
    text = slice_text(Dim.parse(start), step, Dim.parse(count), Dim.parse("n"))
    for n in range(7) if text is not None else []:
        for m in range(7):
            first, length = [Dim.parse(dim).evaluate({"n": n, "m": m}) for dim in (start, count)]
            wanted = [first + step * i for i in range(length)]
            assert eval(f"list(range({n}))[{text}]") == wanted


def test_extents_are_compared_with_sizes() -> None:
    """A loop over another size than the array's is not the whole array."""

    def f(x: Vector, y: az.Array[az.f64, "m"]) -> Any:
        return az.generate(x.shape[0], lambda i: x[i] + y[i])

    assert_text(
        f,
        """\
def f(x: f64[n], y: f64[m]) -> f64[n]:
  for i < n:
    require 0 <= i < m
  return for i < n: x[i] + y[i]
""",
    )


def test_the_diagonal_is_not_the_matrix() -> None:
    def f(a: Square) -> Any:
        n = a.shape[0]
        return az.generate(n, lambda i: a[i, i]), az.sum(az.generate(n, lambda i: a[i, i] * a[0, i]))

    assert_text(
        f,
        """\
def f(a: f64[n, n]) -> (f64[n], f64):
  t1 = for i < n: a[i, i]
  return t1, sum(i < n: a[i, i] * a[0, i])
""",
        simplified=True,
    )


def test_axes_of_three() -> None:
    def f(a: Cube, b: az.Array[az.f64, "n m k"]) -> Any:
        turned = az.generate((a.shape[2], a.shape[0], a.shape[1]), lambda p, q, r: a[q, r, p])
        return turned, az.sum(a, 1), az.sum(a * b), az.sum(a * b, 2), a[0] + a[:, 0, 0, None]

    assert_text(
        f,
        """\
def f(a: f64[n, n, k], b: f64[n, n, k]) -> (f64[k, n, n], f64[n, k], f64, f64[n, n], f64[n, k]):
  require 0 < n
  require 0 < k
  t1 = sum(a * b, 2)
  t2 = for i < n: a[0, i] + a[i, 0, 0]
  return transpose(a, (2, 0, 1)), sum(a, 1), sum(t1), t1, t2
""",
        simplified=True,
    )
