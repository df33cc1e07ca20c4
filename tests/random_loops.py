"""Random functions of the loop IR: nests of all kinds, whose arithmetic is exact in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from plain_loops import apply, at, const, loop, put, var

from adze.backends import ir
from adze.core.primitive import lookup
from adze.core.types import Scalar, f64, i64

n, m = var("n"), var("m")
WHERE, GRID, ROW = ir.Buffer("where", i64, (n,)), ir.Buffer("grid", f64, (n, m)), ir.Buffer("row", i64, (m,))
OUT = tuple(ir.Buffer(f"out{number}", f64, (n, m)) for number in range(2))
SUMS = ir.Buffer("sums", f64, (n,))


class Draw:
    """Draws one function; equal seeds give equal functions."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.scope: list[tuple[str, Scalar]] = [("n", i64), ("m", i64)]
        self.count = 0

    def function(self) -> ir.Function:
        first = self.choose(("i", "j"))
        second = "j" if first == "i" else "i"
        kinds = [self.choose(("parallel", "jam", "lanes", "sequential")), self.choose(("jam", "lanes", "sequential"))]
        if kinds == ["lanes", "lanes"]:
            kinds[1] = "jam"
        self.scope.append((first, i64))
        before = self.bindings(1)
        self.scope.append((second, i64))
        inner: ir.Block = (*self.bindings(2), *(put(out, "i", "j", self.number(2)) for out in OUT))
        del self.scope[[name for name, _ in self.scope].index(second) :]
        body: list[ir.Statement] = [*before, self.loop(second, kinds[1], inner)]
        if first == "i":
            body += self.reduction(second, lanes=kinds[0] != "lanes")
        loops = self.loop(first, kinds[0], tuple(body))
        more = () if first == "i" else (loop("i", "n", put(SUMS, "i", const(0.0, f64)), kind="lanes", factor=2),)
        return ir.Function("drawn", ("n", "m"), (WHERE, GRID, ROW), (*OUT, SUMS), (loops, *more))

    def loop(self, variable: str, kind: str, body: ir.Block) -> ir.For:
        factor = {"jam": self.choose((1, 2, 3, 4)), "lanes": self.choose((1, 2, 8, 16, 32))}.get(kind, 1)
        return loop(variable, {"i": "n", "j": "m"}[variable], *body, kind=kind, factor=factor)

    def reduction(self, variable: str, lanes: bool) -> list[ir.Statement]:
        """A sum over one loop, of lanes where that may be."""
        name = self.name("s")
        total = var(name, f64)
        self.scope.append((variable, i64))
        value = apply("add", total, self.number(2))
        if self.random.random() < 0.3:
            value = ir.Select(self.test(), value, total, f64)
        self.scope.pop()
        neutral = const(0.0, f64)
        combine = loop(variable, "m", ir.Assign(name, value))
        if lanes:
            more = (ir.Reduction(name, lookup("add"), neutral),)
            combine = loop(variable, "m", *combine.body, kind="lanes", factor=self.choose((2, 8, 16)), reductions=more)
        return [ir.Declare(name, self.number(1)), combine, put(SUMS, "i", total)]

    def bindings(self, most: int) -> list[ir.Statement]:
        found: list[ir.Statement] = []
        for _ in range(self.random.integers(0, most + 1)):
            scalar = self.choose((i64, f64))
            value = self.integer(2) if scalar == i64 else self.number(2)
            name = self.name("x")
            if self.random.random() < 0.5:
                found.append(ir.Let(name, value))
            else:
                found += [ir.Declare(name, value), self.updates(name, scalar)]
            self.scope.append((name, scalar))
        return found

    def updates(self, name: str, scalar: Scalar) -> ir.For:
        """A loop that assigns to a variable, always or every other time."""
        k = self.name("k")
        self.scope += [(k, i64), (name, scalar)]
        small = apply("remainder", self.integer(1), const(7))
        value = apply("add", var(name, scalar), self.number(1) if scalar == f64 else small)
        del self.scope[-2:]
        change: ir.Statement = ir.Assign(name, value)
        if self.random.random() < 0.4:
            other = ir.Assign(name, const(1, scalar))
            change = ir.If(apply("equal", apply("remainder", var(k), const(2)), const(0)), (change,), (other,))
        return loop(k, 3, change)

    # Expressions

    def integer(self, depth: int) -> ir.Expression:
        names = [name for name, scalar in self.scope if scalar == i64]
        match self.choose(range(6 if depth else 2)):
            case 0:
                return var(self.choose(names))
            case 1:
                return const(self.choose((-3, 0, 1, 2, 5)))
            case 2:
                return apply(self.choose(("add", "subtract")), self.integer(depth - 1), self.integer(depth - 1))
            case 3:
                return apply("multiply", const(self.choose((-1, 2, 3))), self.integer(depth - 1))
            case 4:
                return at(WHERE, self.row(depth - 1))
            case _:
                return at(ROW, self.column(depth - 1))

    def number(self, depth: int) -> ir.Expression:
        names = [name for name, scalar in self.scope if scalar == f64]
        match self.choose(range(6 if depth else 2)):
            case 0:
                return var(self.choose(names), f64) if names else const(0.25, f64)
            case 1:
                return at(GRID, self.row(0), self.column(0))
            case 2:
                return apply(
                    self.choose(("add", "subtract", "minimum")), self.number(depth - 1), self.number(depth - 1)
                )
            case 3:
                return apply("multiply", const(self.choose((-1.0, 2.0)), f64), self.number(depth - 1))
            case 4:
                return apply("f64", apply("remainder", self.integer(depth - 1), const(16)))
            case _:
                return ir.Select(self.test(), self.number(depth - 1), self.number(depth - 1), f64)

    def test(self) -> ir.Expression:
        return apply(self.choose(("less", "equal", "not_equal")), self.integer(1), self.integer(1))

    def row(self, depth: int) -> ir.Expression:
        return self.index("i", n, depth)

    def column(self, depth: int) -> ir.Expression:
        return self.index("j", m, depth)

    def index(self, variable: str, extent: ir.Expression, depth: int) -> ir.Expression:
        """An index in range: the variable, the same backwards, shifted around, or any remainder."""
        if (variable, i64) not in self.scope:
            return apply("remainder", self.integer(max(depth, 0)), extent)
        match self.choose(range(4)):
            case 0:
                return apply("subtract", apply("subtract", extent, const(1)), var(variable))
            case 1:
                return apply("remainder", self.integer(max(depth, 0)), extent)
            case _:
                return var(variable)

    def choose(self, among: Sequence[Any]) -> Any:
        return among[self.random.integers(len(among))]

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"
