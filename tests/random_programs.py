"""Random programs, as the text that a user would write, and arguments for them.

A program is drawn as Python text, so that what a test reports can be pasted and run. Its parameters are always the
same: vectors x and y, matrices a and b, scalars r and s, places k (i64 indices into x). The text uses every kind of
construct: elementwise arithmetic with broadcasting, map, generate, reductions, cond and where, slices and gathers,
loops with scalar, array and structured state, scans, histograms, updates, sorting, derivatives of functions that
capture what is around them.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import adze as az

PARAMETERS = {"x": "n", "y": "n", "a": "n m", "b": "m n", "r": "", "s": "", "k": "p"}


@dataclass(frozen=True)
class Scope:
    """The names that may be used: floating values by their dims, and indices by the dim they are below."""

    names: dict[str, str] = field(default_factory=dict)
    indices: dict[str, str] = field(default_factory=dict)

    def of(self, dims: str) -> list[str]:
        """The names of values with these dims; those of inner scopes count thrice."""
        names = [name for name, own in self.names.items() if own == dims]
        return names + 2 * [name for name in names if name not in PARAMETERS]

    def with_name(self, name: str, dims: str) -> Scope:
        return replace(self, names={**self.names, name: dims})

    def with_index(self, name: str, dim: str) -> Scope:
        return replace(self, indices={**self.indices, name: dim})

    def fresh(self, letter: str) -> str:
        return f"{letter}{len(self.names) + len(self.indices)}"


TOP = Scope({name: dims for name, dims in PARAMETERS.items() if name != "k"})
SIZES = {"n": "x.shape[0]", "m": "a.shape[1]"}
ARRAY_OF = {"n": "x", "m": "a[0]"}


class Writer:
    """Draws expressions: ``scalar``, ``vector``, ``matrix`` give text of a floating value of these dims.

    ``pick(n)`` chooses a number below n.
    """

    def __init__(self, pick: Callable[[int], int], polynomial: bool) -> None:
        self.pick, self.polynomial = pick, polynomial

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.pick(len(options))]

    def coin(self) -> bool:
        return self.pick(2) == 1

    def expression(self, scope: Scope, dims: str, depth: int) -> str:
        return [self.scalar, self.vector, self.matrix][len(dims.split())](scope, dims, depth)

    def literal(self) -> str:
        return str((self.pick(13) - 6) / 4)

    # Indices and tests

    def index(self, scope: Scope, dim: str) -> str:
        """An index below a size, which may be any that is not zero."""
        own = [name for name, bound in scope.indices.items() if bound == dim]
        size = SIZES[dim]
        options = ["0", "-1", f"{size} - 1", *own, *[f"{size} - 1 - {name}" for name in own]]
        return str(self.one(options + own))

    def test(self, scope: Scope, depth: int) -> str:
        left, right = self.scalar(scope, "", depth - 1), self.literal()
        operator = self.one(["<", "<=", ">", ">=", "==", "!="])
        simple = f"({left} {operator} {right})"
        if depth > 1 and self.pick(6) == 0:
            return f"({simple} {self.one(['&', '|'])} ~({self.scalar(scope, '', 0)} > 0.25))"
        own = list(scope.indices)
        if own and self.coin():
            return f"({self.one(own)} {operator} {self.pick(4)})"
        return simple

    # Scalars

    def leaf(self, scope: Scope) -> str:
        options = [*scope.of(""), self.literal()]
        options += [f"{name}[{self.index(scope, dim)}]" for dim in SIZES for name in scope.of(dim)]
        return str(self.one([*options, f"a[{self.index(scope, 'n')}, {self.index(scope, 'm')}]"]))

    def scalar(self, scope: Scope, dims: str, depth: int) -> str:
        if depth <= 0:
            return self.leaf(scope) if self.coin() else f"({self.leaf(scope)} {self.one('+-**')} {self.leaf(scope)})"
        kinds = [
            "arithmetic",
            "arithmetic",
            "unary",
            "unary",
            "extreme",
            "cond",
            "element",
            "sum",
            "sum",
            "reduction",
            "slice",
        ]
        kinds += ["dot", "loop", "loops", "gather", "grad", "jvp", "where", "product", "pair", "triangle", "let"]
        kinds += ["place", "bins", "while", "steps", "running"]
        return str(getattr(self, "_" + self.one(kinds))(scope, depth - 1))

    def _arithmetic(self, scope: Scope, depth: int) -> str:
        operator = self.one(["+", "-", "*", "*"])
        return f"({self.scalar(scope, '', depth)} {operator} {self.scalar(scope, '', depth // 2)})"

    def _unary(self, scope: Scope, depth: int) -> str:
        inner = self.scalar(scope, "", depth)
        polynomial = ["-{}", "{} ** 2", "abs({})", "az.stop_gradient({})", "az.sign({}) * r"]
        smooth = ["az.sin({})", "az.tanh({})", "az.exp(az.tanh({}))", "az.sqrt(abs({}) + 1.0)", "1.5 / ({} ** 2 + 1.0)"]
        return "(" + self.one(polynomial if self.polynomial else smooth + polynomial).format(inner) + ")"

    def _extreme(self, scope: Scope, depth: int) -> str:
        function = self.one(["az.minimum", "az.maximum"])
        return f"{function}({self.scalar(scope, '', depth)}, {self.scalar(scope, '', 0)})"

    def _cond(self, scope: Scope, depth: int) -> str:
        then, orelse = self.scalar(scope, "", depth), self.scalar(scope, "", depth // 2)
        return f"az.cond({self.test(scope, 1)}, lambda: az.sum({then}), lambda: az.sum({orelse}))"

    def _where(self, scope: Scope, depth: int) -> str:
        then, orelse = self.scalar(scope, "", depth), self.scalar(scope, "", depth // 2)
        return f"az.where({self.test(scope, 1)}, {then}, {orelse})"

    def _element(self, scope: Scope, depth: int) -> str:
        dims = self.one(["n", "m", "n m"])
        indices = ", ".join(self.index(scope, dim) for dim in dims.split())
        return f"{self.expression(scope, dims, depth)}[{indices}]"

    def _sum(self, scope: Scope, depth: int) -> str:
        return f"az.sum({self.expression(scope, self.one(['n', 'm', 'n', 'n m']), depth)})"

    def _reduction(self, scope: Scope, depth: int) -> str:
        function = self.one(["az.max", "az.min", "az.mean", "az.prod"])
        if self.polynomial and function == "az.mean":
            function = "az.max"
        if function == "az.prod":
            return f"az.prod({self.vector(scope, 'n', min(depth, 1))})"
        if function in ("az.max", "az.min"):  # infinities would hide everything else
            return f"az.maximum(az.minimum({function}({self.vector(scope, self.one(['n', 'm']), depth)}), 8.0), -8.0)"
        return f"{function}({self.vector(scope, 'n', depth)})"

    def _slice(self, scope: Scope, depth: int) -> str:
        key = self.one(["1:", ":-1", "::2", "::-1", "1:3", "-2:"])
        return f"az.sum({self.vector(scope, 'n', depth)}[{key}])"

    def _dot(self, scope: Scope, depth: int) -> str:
        return f"({self.vector(scope, 'n', depth)} @ {self.vector(scope, 'n', depth // 2)})"

    def _gather(self, scope: Scope, depth: int) -> str:
        return f"az.sum({self.vector(scope, 'n', depth)}[k] * {self.scalar(scope, '', 0)})"

    def _loop(self, scope: Scope, depth: int) -> str:
        i, p = scope.fresh("i"), scope.fresh("p")
        start = self.scalar(scope, "", depth // 2)
        if self.coin():  # over the elements
            inside = scope.with_index(i, "n").with_name(p, "")
            bound, factor = SIZES["n"], "* 0.5"
        else:
            inside, bound, factor = scope.with_name(p, ""), str(self.pick(4)), ""
        body = self.scalar(inside, "", min(depth, 2))
        return f"az.fori_loop(0, {bound}, lambda {i}, {p}: {p} {factor} + {body}, az.sum({start}) + 0.0)"

    def _loops(self, scope: Scope, depth: int) -> str:
        """A loop whose state is a scalar and a vector."""
        i, s = scope.fresh("i"), scope.fresh("q")
        first, second = f"{s}['u']", f"{s}['v']"
        inside = scope.with_name(first, "").with_name(second, "n")
        u, v = self.scalar(inside, "", min(depth, 2)), self.vector(inside, "n", min(depth, 1))
        steps = self.pick(3)
        initial = f"{{'u': az.sum({self.scalar(scope, '', 0)}) + 0.0, 'v': {self.vector(scope, 'n', depth // 2)}}}"
        body = f"{{'u': az.sum({u}) + 0.0, 'v': {v}}}"
        result = self.one(["['u']", "['v'][0]"])
        return f"az.fori_loop(0, {steps}, lambda {i}, {s}: {body}, {initial}){result}"

    def _grad(self, scope: Scope, depth: int) -> str:
        """A derivative with respect to a new variable, of something that captures the old ones."""
        v = scope.fresh("v")
        inside = scope.with_name(v, "")
        body, point = self.scalar(inside, "", min(depth, 2)), self.scalar(scope, "", depth // 2)
        return f"az.grad(lambda {v}: {body} * {v})(az.sum({point}) + 0.0)"

    def _jvp(self, scope: Scope, depth: int) -> str:
        v = scope.fresh("v")
        inside = scope.with_name(v, "n")
        body, point = self.scalar(inside, "", min(depth, 2)), self.vector(scope, "n", depth // 2)
        return f"az.jvp(lambda {v}: az.sum({body}) + az.sum({v}), ({point},), ({self.vector(scope, 'n', 0)},))[1]"

    def _product(self, scope: Scope, depth: int) -> str:
        return f"({self.scalar(scope, '', depth)} * {self.scalar(scope, '', depth // 2)})"

    def _pair(self, scope: Scope, depth: int) -> str:
        operator = "lambda p, q: (p[0] + q[0], az.maximum(p[1], q[1]))"
        arrays = f"({self.vector(scope, 'n', depth)}, az.maximum({self.vector(scope, 'n', depth // 2)}, -8.0))"
        return f"az.reduce({operator}, (0.0, -8.0), {arrays})[{self.pick(2)}]"

    def _triangle(self, scope: Scope, depth: int) -> str:
        i, j = scope.fresh("i"), scope.fresh("j")
        inside = scope.with_index(i, "n").with_index(j, "n")
        row = f"az.sum(az.generate({i} + 1, lambda {j}: {self.scalar(inside, '', depth // 2)}))"
        return f"az.sum(az.generate({SIZES['n']}, lambda {i}: {row}))"

    def _let(self, scope: Scope, depth: int) -> str:
        """A value used several times."""
        dims = self.one(["", "n", "n m"])
        t = scope.fresh("t")
        value, body = self.expression(scope, dims, depth), self.scalar(scope.with_name(t, dims), "", depth)
        return f"(lambda {t}: {body})({value})"

    def _place(self, scope: Scope, depth: int) -> str:
        """An element at a place that depends on values."""
        values, keys = self.vector(scope, "n", depth), self.vector(scope, "n", depth // 2)
        place = self.one([f"az.argmax({keys})", f"az.argmin({keys})", f"az.argsort({keys})[{self.index(scope, 'n')}]"])
        return f"{values}[{place}]"

    def _bins(self, scope: Scope, depth: int) -> str:
        """A reduction by index; some bins stay empty, some indices are out of range."""
        operator, neutral = self.one([("p + q", "0.0"), ("az.maximum(p, q)", "-8.0")])
        values = self.scalar(scope, "", 0)
        return (
            f"az.histogram(lambda p, q: {operator}, {neutral}, 3, k - {self.pick(2)}, "
            f"az.maximum({self.vector(scope, 'n', depth)}[k] * {values}, -8.0))[{self.pick(3)}]"
        )

    def _while(self, scope: Scope, depth: int) -> str:
        """A loop that ends after at most so many steps."""
        p = scope.fresh("p")
        body = self.scalar(scope.with_name(f"{p}[1]", ""), "", min(depth, 2))
        test = f"({p}[0] < {self.pick(4)}) & ({p}[1] < {self.literal()})"
        start = self.scalar(scope, "", depth // 2)
        return f"az.while_loop(lambda {p}: {test}, lambda {p}: ({p}[0] + 1, {body}), (0, az.sum({start}) + 0.0))[1]"

    def _steps(self, scope: Scope, depth: int) -> str:
        """A loop with an output a step."""
        u, v = scope.fresh("u"), scope.fresh("v")
        inside = scope.with_name(u, "").with_name(v, "")
        after, output = self.scalar(inside, "", min(depth, 2)), self.scalar(inside, "", min(depth, 1))
        loop = f"lambda {u}, {v}: (0.5 * {u} + {after}, {output})"
        result = self.one(["[0]", "[1][-1]", f"[1][{self.index(scope, 'n')}]"])
        return f"az.scan_loop({loop}, az.sum({self.leaf(scope)}) + 0.0, {self.vector(scope, 'n', depth // 2)}){result}"

    def _running(self, scope: Scope, depth: int) -> str:
        """A scan with an operator that does not commute: compositions of the maps t -> p t + q."""
        slopes = self.one(["az.sign({})", "az.minimum(1.0, abs({}))"]).format(self.vector(scope, "n", 0))
        operator = "lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])"
        options = self.one(["", ", exclusive=True", ", reverse=True"])
        scan = f"az.scan({operator}, (1.0, 0.0), ({slopes}, {self.vector(scope, 'n', depth)}){options})"
        return f"{scan}[1][{self.index(scope, 'n')}]"

    # Vectors

    def vector(self, scope: Scope, dim: str, depth: int) -> str:
        if depth <= 0:
            other = "n" if dim == "m" else "m"
            leaf = [*scope.of(dim)] or [
                f"{matrix}[{self.index(scope, other)}]" for matrix in ("a", "b")[dim == "n" :][:1]
            ]
            return str(self.one(leaf))
        kinds = ["map", "map", "generate", "elementwise", "elementwise", "row", "rows", "where", "slice"]
        kinds += ["product", "cond", "loop", "gradient", "sums"]
        kinds += ["scan", "sorted", "updated", "scattered", "rotated"]
        return str(getattr(self, "_vector_" + self.one(kinds))(scope, dim, depth - 1))

    def _vector_map(self, scope: Scope, dim: str, depth: int) -> str:
        u, v = scope.fresh("u"), scope.fresh("v")
        first, second = self.vector(scope, dim, depth // 2), self.vector(scope, dim, 0)
        body = self.scalar(scope.with_name(u, "").with_name(v, ""), "", depth)
        return f"az.map(lambda {u}, {v}: {body}, {first}, {second})"

    def _vector_generate(self, scope: Scope, dim: str, depth: int) -> str:
        i = scope.fresh("i")
        return f"az.generate({SIZES[dim]}, lambda {i}: {self.scalar(scope.with_index(i, dim), '', depth)})"

    def _vector_elementwise(self, scope: Scope, dim: str, depth: int) -> str:
        operator = self.one(["+", "-", "*"])
        right = self.vector(scope, dim, depth // 2) if self.coin() else self.scalar(scope, "", depth // 2)
        return f"({self.vector(scope, dim, depth)} {operator} {right})"

    def _vector_row(self, scope: Scope, dim: str, depth: int) -> str:
        other = "n" if dim == "m" else "m"
        return f"{self.matrix(scope, f'{other} {dim}', depth)}[{self.index(scope, other)}]"

    def _vector_rows(self, scope: Scope, dim: str, depth: int) -> str:
        other, v = ("n" if dim == "m" else "m"), scope.fresh("v")
        body = self.scalar(scope.with_name(v, other), "", depth)
        return f"az.map(lambda {v}: {body}, {self.matrix(scope, f'{dim} {other}', depth // 2)})"

    def _vector_sums(self, scope: Scope, dim: str, depth: int) -> str:
        other = "n" if dim == "m" else "m"
        function = self.one(["az.sum({}, 0)", "az.maximum(az.max({}, 0), -8.0)"])
        return str(function.format(self.matrix(scope, f"{other} {dim}", depth)))

    def _vector_where(self, scope: Scope, dim: str, depth: int) -> str:
        test = f"{self.vector(scope, dim, 0)} > {self.literal()}"
        return f"az.where({test}, {self.vector(scope, dim, depth)}, {self.vector(scope, dim, depth // 2)})"

    def _vector_slice(self, scope: Scope, dim: str, depth: int) -> str:
        return f"{self.vector(scope, dim, depth)}[::-1]"

    def _vector_product(self, scope: Scope, dim: str, depth: int) -> str:
        other = "n" if dim == "m" else "m"
        return f"({self.matrix(scope, f'{dim} {other}', depth)} @ {self.vector(scope, other, depth // 2)})"

    def _vector_cond(self, scope: Scope, dim: str, depth: int) -> str:
        then, orelse = self.vector(scope, dim, depth), self.vector(scope, dim, depth // 2)
        return f"az.cond({self.test(scope, 1)}, lambda: {then}, lambda: {orelse})"

    def _vector_loop(self, scope: Scope, dim: str, depth: int) -> str:
        i, v = scope.fresh("i"), scope.fresh("v")
        body = self.vector(scope.with_name(v, dim), dim, min(depth, 2))
        steps = self.pick(3)
        return f"az.fori_loop(0, {steps}, lambda {i}, {v}: {body}, {self.vector(scope, dim, depth // 2)})"

    def _vector_gradient(self, scope: Scope, dim: str, depth: int) -> str:
        v = scope.fresh("v")
        body = self.scalar(scope.with_name(v, dim), "", min(depth, 2))
        return f"az.grad(lambda {v}: {body} * az.sum({v}))({self.vector(scope, dim, depth // 2)})"

    def _vector_scan(self, scope: Scope, dim: str, depth: int) -> str:
        function = self.one(["az.cumsum({})", "az.scan(az.maximum, -8.0, az.maximum({}, -8.0))"])
        return str(function.format(self.vector(scope, dim, depth)))

    def _vector_sorted(self, scope: Scope, dim: str, depth: int) -> str:
        return f"az.sort({self.vector(scope, dim, depth)})"

    def _vector_updated(self, scope: Scope, dim: str, depth: int) -> str:
        place, value = self.index(scope, dim), self.scalar(scope, "", depth // 2)
        return f"az.update({self.vector(scope, dim, depth)}, {place}, {value})"

    def _vector_scattered(self, scope: Scope, dim: str, depth: int) -> str:
        """A permutation by a sort, undone or not."""
        keys, values = self.vector(scope, dim, 0), self.vector(scope, dim, depth)
        return f"az.scatter({self.vector(scope, dim, 0)}, az.argsort({keys}), {values})"

    def _vector_rotated(self, scope: Scope, dim: str, depth: int) -> str:
        """The same elements in another order."""
        form = self.one(["az.rotate({}, 1)", "az.reverse({})", "az.concatenate(({0}[1:], {0}[:1]))"])
        return f"(lambda t: {form.format('t')})({self.vector(scope, dim, depth)})"

    # Matrices

    def matrix(self, scope: Scope, dims: str, depth: int) -> str:
        rows, columns = dims.split()
        if rows == columns:
            raise AssertionError(dims)
        if depth <= 0:
            return "a" if rows == "n" else "b"
        kinds = ["generate", "elementwise", "outer", "broadcast", "rows", "transposed", "product"]
        return str(getattr(self, "_matrix_" + self.one(kinds))(scope, rows, columns, depth - 1))

    def _matrix_generate(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        i, j = scope.fresh("i"), scope.fresh("j")
        body = self.scalar(scope.with_index(i, rows).with_index(j, columns), "", depth)
        return f"az.generate(({SIZES[rows]}, {SIZES[columns]}), lambda {i}, {j}: {body})"

    def _matrix_elementwise(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        dims = f"{rows} {columns}"
        return f"({self.matrix(scope, dims, depth)} {self.one(['+', '-', '*'])} {self.matrix(scope, dims, depth // 2)})"

    def _matrix_outer(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        return f"({self.vector(scope, rows, depth)}[:, None] * {self.vector(scope, columns, depth // 2)})"

    def _matrix_broadcast(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        return f"({self.matrix(scope, f'{rows} {columns}', depth)} - {self.vector(scope, columns, depth // 2)})"

    def _matrix_rows(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        v = scope.fresh("v")
        body = self.vector(scope.with_name(v, columns), columns, depth)
        return f"az.map(lambda {v}: {body}, {self.matrix(scope, f'{rows} {columns}', depth // 2)})"

    def _matrix_transposed(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        i, j, t = scope.fresh("i"), scope.fresh("j"), scope.fresh("t")
        flipped = self.matrix(scope, f"{columns} {rows}", depth)
        return (
            f"(lambda {t}: az.generate(({SIZES[rows]}, {SIZES[columns]}), lambda {i}, {j}: {t}[{j}, {i}]))({flipped})"
        )

    def _matrix_product(self, scope: Scope, rows: str, columns: str, depth: int) -> str:
        v = scope.fresh("v")
        row = f"{v} @ {self.matrix(scope, f'{columns} {rows}', 0)} @ {self.matrix(scope, f'{rows} {columns}', 0)}"
        return f"az.map(lambda {v}: {row}, {self.matrix(scope, f'{rows} {columns}', depth)})"


def program_text(pick: Callable[[int], int], polynomial: bool = False, depth: int = 4) -> str:
    """The text of a program; with ``polynomial``, of one whose arithmetic is exact on small inputs."""
    writer = Writer(pick, polynomial)
    shapes = [writer.one(["", "", "n", "m", "n m"]) for _ in range(1 + pick(2))]
    results = [writer.expression(TOP, dims, 1 + pick(depth)) for dims in shapes]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    head = 'x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"], a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m n"]'
    tail = 'r: az.f64, s: az.f64, k: az.Array[az.i64, "p"]'
    return f"def f({head}, {tail}):\n    return {result}\n"


@st.composite
def program_texts(draw: Any, polynomial: bool = False, depth: int = 4) -> str:
    return program_text(lambda n: draw(st.integers(0, n - 1)), polynomial, depth)


def made(text: str) -> az.Program:
    """The program of a text."""
    name = f"<random {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = {"az": az}
    exec(compile(text, name, "exec"), scope)
    return az.program(scope["f"])


quarters = st.integers(-8, 8).map(lambda k: k / 4)
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, -1e-300, 1e30, 5e-324)


@st.composite
def argument_lists(draw: Any, special: bool = False, empty: bool = False) -> tuple[Any, ...]:
    """Arguments of the parameters of every random program: quarters, and places in x.

    With ``special`` some numbers are zeros of both signs, infinities, NaN, tiny or large; with ``empty`` arrays have
    no element, or one.
    """
    numbers = st.one_of(quarters, st.sampled_from(SPECIAL)) if special else quarters
    if empty:
        n, m, p = draw(st.integers(0, 1)), draw(st.integers(0, 1)), 0
    else:
        n, m, p = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 3))

    def array(*shape: int) -> Any:
        count = int(np.prod(shape))
        return np.array(draw(st.lists(numbers, min_size=count, max_size=count))).reshape(shape)

    places = np.array(draw(st.lists(st.integers(0, max(n - 1, 0)), min_size=p, max_size=p)), np.int64)
    return array(n), array(n), array(n, m), array(m, n), draw(numbers), draw(numbers), places
