"""The table of docs/futhark.md: what is written in Futhark, and how it is written here.

    python examples/futhark.py            print the table
    python examples/futhark.py --write    put it into docs/futhark.md

Each row has, beside the two, its meaning in NumPy. What stands for types in Futhark has the type as it is printed. A
test runs what is written here (``tests/project/test_futhark.py``) on ``VALUES``, evaluated and compiled.
"""

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PAGE = Path(__file__).resolve().parent.parent / "docs" / "futhark.md"

VALUES: dict[str, Any] = {
    "xs": np.array([3.0, -1.0, 2.0, 5.0]),
    "ys": np.array([0.5, 1.0, -2.0, 4.0]),
    "is": np.array([2, 0, 9, 2]),
    "bs": np.array([True, False, True, True]),
    "dest": np.array([10.0, 20.0, 30.0]),
    "xss": np.arange(12.0).reshape(3, 4),
    "dxs": np.array([1.0, 0.0, 0.0, 2.0]),
    "x": 1.5,
    "n": 5,
    "i": 2,
    "j": 1,
}


class Row(NamedTuple):
    """A construct of Futhark, what it is here, and its meaning in NumPy (or what a type is printed as)."""

    there: str
    here: str
    meaning: str


CONSTRUCTS = {
    "Arrays": [
        Row("iota n", "az.iota(n)", "np.arange(n)"),
        Row("replicate n x", "az.full(n, x)", "np.full(n, x)"),
        Row(r"tabulate n (\i -> i * i)", "az.generate(n, lambda i: i * i)", "np.arange(n) ** 2"),
        Row(
            r"tabulate_2d n n (\i j -> i + j)",
            "az.generate((n, n), lambda i, j: i + j)",
            "np.arange(n)[:, None] + np.arange(n)",
        ),
        Row("length xs", "az.size(xs)", "len(xs)"),
        Row("xs[i]", "xs[i]", "xs[i]"),
        Row("xss[i, j]", "xss[i, j]", "xss[i, j]"),
        Row("xs[j:i + 1]", "xs[j:i + 1]", "xs[j:i + 1]"),
        Row("take 2 xs, drop 2 xs", "xs[:2], xs[2:]", "xs[:2], xs[2:]"),
        Row("head xs, last xs", "xs[0], xs[-1]", "xs[0], xs[-1]"),
        Row("concat xs ys, xs ++ ys", "az.concatenate([xs, ys])", "np.concatenate([xs, ys])"),
        Row("reverse xs", "az.reverse(xs)", "xs[::-1]"),
        Row("rotate 1 xs", "az.rotate(xs, 1)", "np.roll(xs, -1)"),
        Row("transpose xss", "xss.T", "xss.T"),
        Row("flatten xss", "az.ravel(xss)", "xss.ravel()"),
        Row("unflatten (xs :> [2 * 2]f64)", "az.reshape(xs, (2, -1))", "xs.reshape(2, 2)"),
    ],
    "Second-order array combinators": [
        Row(r"map (\x -> x * x) xs", "az.map(lambda x: x * x, xs)", "xs * xs"),
        Row("map f64.exp xs", "az.exp(xs)", "np.exp(xs)"),
        Row("map2 (*) xs ys", "xs * ys", "xs * ys"),
        Row(r"map2 (\x y -> x * y + 1) xs ys", "az.map(lambda x, y: x * y + 1, xs, ys)", "xs * ys + 1"),
        Row("map f64.sum xss", "az.map(az.sum, xss)", "xss.sum(1)"),
        Row("map (map (+ 1)) xss", "xss + 1", "xss + 1"),
        Row(r"let (as, bs) = unzip (map (\x -> (x, -x)) xs)", "az.map(lambda x: (x, -x), xs)", "(xs, -xs)"),
        Row("reduce (+) 0 xs", "az.sum(xs)", "xs.sum()"),
        Row("reduce f64.max (-f64.inf) xs", "az.max(xs)", "xs.max()"),
        Row(
            r"reduce (\a b -> a * b + a + b) 0 xs",
            "az.reduce(lambda a, b: a * b + a + b, 0.0, xs)",
            "np.prod(xs + 1) - 1",
        ),
        Row("reduce_comm (+) 0 xs", "az.reduce(lambda a, b: a + b, 0.0, xs)", "xs.sum()"),
        Row("scan (+) 0 xs", "az.cumsum(xs)", "np.cumsum(xs)"),
        Row(
            r"scan (\a b -> f64.max a b) (-f64.inf) xs",
            "az.scan(az.maximum, -np.inf, xs)",
            "np.maximum.accumulate(xs)",
        ),
        Row("filter (> 0) xs", "az.filter(lambda x: x > 0, xs)", "xs[xs > 0]"),
        Row(
            "partition (> 0) xs",
            "az.filter(lambda x: x > 0, xs), az.filter(lambda x: ~(x > 0), xs)",
            "(xs[xs > 0], xs[~(xs > 0)])",
        ),
        Row("any id bs, and bs", "az.any(bs), az.all(bs)", "(bs.any(), bs.all())"),
        Row(
            "scatter dest is xs",
            'az.scatter(dest, is_, xs, unique=False, mode="drop")',
            "np.array([-1.0, 20.0, 5.0])",
        ),
        Row(
            "hist (+) 0 n is xs",
            "az.histogram(lambda a, b: a + b, 0.0, n, is_, xs)",
            "np.bincount(is_[is_ < n], xs[is_ < n], n)",
        ),
        Row(
            "reduce_by_index dest (+) 0 is xs",
            "dest + az.histogram(lambda a, b: a + b, 0.0, dest.shape[0], is_, xs)",
            "dest + np.bincount(is_[is_ < 3], xs[is_ < 3], 3)",
        ),
    ],
    "Control and values": [
        Row("if x > 0 then f64.sqrt x else 0", "az.cond(x > 0, lambda: az.sqrt(x), lambda: 0.0)", "np.sqrt(x)"),
        Row(
            "loop s = 0 for i < n do s + i * i",
            "az.fori_loop(0, n, lambda i, s: s + i * i, 0)",
            "sum(k * k for k in range(n))",
        ),
        Row(
            "loop s = 1 for x in xs do s * x + 1",
            "az.fori_loop(0, xs.shape[0], lambda i, s: s * xs[i] + 1, 1.0)",
            "(((3 + 1) * -1 + 1) * 2 + 1) * 5.0 + 1",
        ),
        Row("loop s = x while s < 100 do s * 2", "az.while_loop(lambda s: s < 100, lambda s: s * 2, x)", "x * 2**7"),
        Row("xs with [i] = x", "az.update(xs, i, x)", "np.where(np.arange(4) == i, x, xs)"),
        Row("f64.i64 n", "n.astype(az.f64)", "float(n)"),
        Row("i64.f64 x", "x.astype(az.i64)", "int(x)"),
        Row("(x, n)", "(x, n)", "(x, n)"),
        Row("{value = x, count = n}", '{"value": x, "count": n}', '{"value": x, "count": n}'),
        Row("trace x", 'az.inspect(x, "x")', "x"),
    ],
    "Derivatives": [
        Row("jvp f xs dxs", "az.jvp(f)(xs, dxs)[1]", "2 * xs @ dxs"),
        Row("jvp2 f xs dxs", "az.jvp(f)(xs, dxs)", "(xs @ xs, 2 * xs @ dxs)"),
        Row("vjp f xs 1", "az.grad(f)(xs)", "2 * xs"),
        Row("vjp2 f xs x", "az.vjp(f)(xs, x)", "(xs @ xs, 2 * xs * x)"),
        Row(r"jvp (\xs -> vjp f xs 1) xs dxs", "az.jvp(az.grad(f))(xs, dxs)[1]", "2 * dxs"),
    ],
}

TYPES = [
    Row("f64, i32, bool", "az.f64, az.i32, az.bool_", "f64, i32, bool"),
    Row("[n]f64", 'az.Array[az.f64, "n"]', "f64[n]"),
    Row("[n][m]f32", 'az.Array[az.f32, "n m"]', "f32[n, m]"),
    Row("[n + 1][8]i64", 'az.Array[az.i64, "n+1 8"]', "i64[n + 1, 8]"),
    Row("f64 -> i64 -> f64", "az.Function[[az.f64, az.i64], az.f64]", "(f64, i64) -> f64"),
]

PROGRAMS = [
    ("`entry f [n] (xs: [n]f64): f64 = ...`", '`@az.program` above `def f(xs: az.Array[az.f64, "n"]) -> az.f64: ...`'),
    ("`def f 't (x: t) = ...`", "a function of Python without annotations; it is inlined where it is called"),
    ("`(f64, i64)`, `{value: f64, count: i64}`", '`tuple[az.f64, az.i64]`, `{"value": az.f64, "count": az.i64}`'),
    ("`type t = #circle f64 \\| #point`, `match`", "a class under `@az.data` with a class for each variant, `az.case`"),
    ("`*[n]f64`, `copy xs`", "nothing: arrays are values, and the compiler finds what may be written in place"),
    ("`xs :> [m]f64`", "nothing: sizes that must be equal are proved, or compared before the program runs"),
    ("`assert c x`", "nothing; indices and sizes are checked, with the user's line in the error"),
    ("modules, `module type`", "functions, classes and modules of Python, while the program is built"),
    ("`futhark multicore`, `ispc`, `opencl`, `cuda`", '`az.compile(f, threads=8)`, `az.compile(f, backend="opencl")`'),
    ("`futhark repl`, `futhark run`", "`az.evaluate(f)`, or calling `f`, which compiles it first"),
    ("`futhark bench`, `futhark profile`", "`adze bench`, `adze profile` ([commands.md](commands.md))"),
    ("`futhark dev`", "`az.pretty(f)`, `adze dump`, `az.explore(f)`"),
]


def _cell(text: str) -> str:
    """Code in a cell; a bar would end it."""
    return "`" + text.replace("|", "\\|") + "`"


def table() -> str:
    """The tables, as Markdown."""
    parts = []
    for title, rows in [*CONSTRUCTS.items(), ("Types", TYPES)]:
        lines = [f"| {_cell(row.there)} | {_cell(row.here)} |" for row in rows]
        parts.append("\n".join([f"### {title}\n", "| Futhark | here |", "|---|---|", *lines]))
    lines = [f"| {there} | {here} |" for there, here in PROGRAMS]
    parts.append("\n".join(["### Programs and tools\n", "| Futhark | here |", "|---|---|", *lines]))
    return "\n\n".join(parts) + "\n"


def with_table(page: str) -> str:
    """The page with the tables in their place: below the heading "Names", as far as the next one."""
    return re.sub(r"(?<=\n<!-- futhark.py -->\n).*?(?=\n## )", lambda _: f"\n{table()}", page, flags=re.DOTALL)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table(), end="")
