"""A case: a program, its arguments, and how it is compiled; all of it drawn from a seed.

case = drawn(7)
print(case.text())            # the program
case.program, case.arguments  # what is run
"""

from __future__ import annotations

import hashlib
import linecache
import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import adze as az

from . import arrays, control, elements
from .drawing import Node, Scope, Size, Writer
from .views import view

GRAMMAR = (arrays, control, elements)  # importing them enters their rules
PARAMETERS = {
    "x": "n", "y": "n", "z": "p", "a": "n m", "b": "m n", "c": "n n", "g": "n p", "e": "4 4", "w": "4", "u": "n+1",
    "t": "n m m", "r": "", "s": "",
}  # fmt: skip
INTEGERS = {"k": "n", "l": "p", "h": ""}
INTEGER_TYPES = ["az.i64"] * 3 + ["az.i32", "az.i16", "az.u8", "az.u16"]
SMALL, MIDDLE, LARGE = (0, 1, 1, 2, 2, 7), (2, 7, 33), (7, 33, 130, 257, 1025)
SPECIAL = "[0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, 0.5, -1.25, 2.0]"
TINY = {"az.f32": "1e-45", "az.f64": "5e-324"}
SWITCHES = (
    "distribute", "reassociate", "vectorise", "materialise", "pack", "regroup", "contract", "bound", "fuse",
    "fuse_tiles", "cse", "fuse_rows", "hoist", "fuse_loops", "jam", "inline", "unroll", "memory_order", "prefetch",
    "split", "skew",
)  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """How a case is compiled, and which derivative is looked at."""

    threads: int = 1
    schedule: tuple[tuple[str, Any], ...] = ()
    annotated: bool = True
    derivative: str = "reverse"  # or "forward", "trace"
    bounds: bool = False  # with ADZE_DEBUG=bounds
    optimised: bool = True  # otherwise with ADZE_DEBUG=unoptimised

    @property
    def debug(self) -> str:
        """ADZE_DEBUG."""
        return ",".join(["bounds"] * self.bounds + ["unoptimised"] * (not self.optimised))

    def options(self) -> str:
        schedule = f", schedule={dict(self.schedule)!r}" if self.schedule else ""
        return f"threads={self.threads}{schedule}"


@dataclass(frozen=True)
class Case:
    seed: int
    sizes: dict[str, int]
    statements: tuple[tuple[str, Node], ...]
    results: tuple[Node, ...]
    float: str = "az.f64"
    special: bool = False
    large: bool = False  # too large for one element at a time
    configuration: Configuration = field(default_factory=Configuration)
    integer: str = "az.i64"

    @property
    def body(self) -> str:
        lines = [f"    {name} = {node}\n" for name, node in self.statements]
        result = str(self.results[0]) if len(self.results) == 1 else f"({', '.join(map(str, self.results))})"
        return "".join(lines) + f"    return {result}\n"

    @property
    def parameters(self) -> dict[str, str]:
        """Those that the body uses, with their sizes; at least one, and one for each size that is mentioned."""
        words = set(re.findall(r"(?<![\w.])([a-z])\b(?![\w=]*\()", self.body))
        used = {name: dims for name, dims in {**PARAMETERS, **INTEGERS}.items() if name in words}
        if not used or ("u" in used and not {"n", "n m", "n n", "n p", "m n", "n m m"} & set(used.values())):
            used = {"x": "n", **used}
        return used

    def source(self) -> str:
        """The function as text."""
        parameters = []
        for name, dims in self.parameters.items():
            scalar = self.integer if name in INTEGERS else self.float
            annotation = f'az.Array[{scalar}, "{dims}"]' if dims else scalar
            parameters.append(f"{name}: {annotation}" if self.configuration.annotated else name)
        return f"def f({', '.join(parameters)}):\n{self.body}"

    def argument(self, name: str) -> str:
        """The text of an argument."""
        number = self.seed * 100 + sum(map(ord, name))
        dims = {**PARAMETERS, **INTEGERS}[name].split()
        extents = [
            self.sizes["n"] + 1 if dim == "n+1" else self.sizes.get(dim) or int(self.sizes.get(dim, dim))
            for dim in dims
        ]
        shape = ", ".join(map(str, extents)) + ("," if len(extents) == 1 else "")
        generator, scalar = f"np.random.default_rng({number})", f"np.{self.float[3:].replace('f', 'float')}"
        if name in INTEGERS:
            drawn = f"{generator}.integers(-1, {max(self.sizes['n'], 2)}, ({shape}))"
            drawn = drawn if dims else f"{generator}.integers(-1, 6)"
            return drawn if self.integer == "az.i64" else f"{drawn}.astype({self.integer}.dtype)"
        if self.special:
            numbers = SPECIAL[:-1] + f", {TINY[self.float]}]"
            return f"{generator}.choice({numbers}, ({shape})).astype({scalar})"
        quarters = f"{generator}.integers(-8, 9, ({shape})) / 4"
        return f"({quarters}).astype({scalar})" if dims else f"{scalar}({generator}.integers(-8, 9) / 4)"

    def text(self) -> str:
        """All of it, to be pasted and run, but for what is then called."""
        arguments = "".join(f"    {self.argument(name)},\n" for name in self.parameters)
        head = "import os\n\nimport adze as az\nimport numpy as np\n\n\n"
        return f"{head}@az.program\n{self.source()}\n\narguments = (\n{arguments})\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.text()}{self.configuration}".encode()).hexdigest()[:12]

    def arguments(self) -> tuple[Any, ...]:
        return tuple([eval(self.argument(name), {"np": np, "az": az}) for name in self.parameters])

    def program(self) -> az.Program:
        source = self.source()
        name = f"<fuzz {self.seed} {hash(source) & 0xFFFFFF:06x}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        scope: dict[str, Any] = {"az": az, "np": np}
        exec(compile(source, name, "exec"), scope)
        return az.program(scope["f"])


def drawn_sizes(pick: random.Random) -> dict[str, int]:
    """n, m and p, where p often equals n and m sometimes does."""
    kind = pick.randrange(5)
    n = pick.choice((SMALL, SMALL, MIDDLE, MIDDLE, LARGE)[kind])
    m = pick.choice((SMALL, SMALL, MIDDLE, SMALL, SMALL)[kind])
    m = n if n <= 33 and pick.randrange(4) == 0 else m
    p = n if pick.randrange(2) else pick.choice((SMALL, SMALL, MIDDLE, MIDDLE, (1, 7, 33, 130))[kind])
    return {"n": n, "m": m, "p": p}


def drawn_configuration(pick: random.Random) -> Configuration:
    schedule: tuple[tuple[str, bool | int], ...] = ()
    kind = pick.randrange(8)
    if kind < 5:
        schedule = ((pick.choice(SWITCHES), False),)
    elif kind == 5:
        schedule = (pick.choice([("strip", 2), ("strip", 16), ("copies", 2), ("copies", 4)]),)
    derivative = pick.choice(["forward", "reverse", "trace"])
    threads, annotated, bounds = pick.choice([1, 2, 3, 5]), pick.randrange(4) > 0, pick.randrange(3) == 0
    optimised = not bounds and pick.randrange(8) < 3  # LLVM's optimisation takes as long as all else
    return Configuration(threads, schedule, annotated, derivative, bounds, optimised)


def scope_of(sizes: dict[str, int], budget: int) -> Scope:
    known = {
        **{name: Size("", value) for name, value in sizes.items()},
        "4": Size("4", 4),
        "n+1": Size("", sizes["n"] + 1),
    }
    scope = Scope(budget=budget)
    calls = {"n": "x.shape[0]", "m": "a.shape[1]", "p": "z.shape[0]", "4": "4", "n+1": "u.shape[0]"}
    for name, dims in {**PARAMETERS, **INTEGERS}.items():
        axes = [replace(known[dim], text=calls[dim]) for dim in dims.split()]
        scope = scope.with_name(name, "i" if name in INTEGERS else "f", tuple(axes))
    return scope


def drawn(seed: int) -> Case:
    """The case of a seed."""
    pick = random.Random(seed)
    sizes, exact, large = drawn_sizes(pick), pick.randrange(3) > 0, pick.randrange(6) == 0
    draw = Writer(pick, exact, "az.f32" if pick.randrange(5) == 0 else "az.f64")
    scope = scope_of(sizes, 1 << 21 if large else 1 << 14)
    kept = pick.sample(scope.names, 5)  # a program uses few parameters, so that they meet
    scope = replace(scope, names=tuple([name for name in scope.names if name in kept or name.text in "xr"]))
    statements = []
    for _ in range(pick.randrange(4)):
        name, depth = draw.fresh("v"), pick.randrange(1, 4)
        found = view(draw, scope, name, depth) if pick.randrange(2) else None
        if found is None:
            axes = drawn_axes(draw, scope)
            found = draw.value(scope, "f", axes, depth), axes
        statements.append((name, found[0]))
        scope = scope.with_name(name, "f", found[1])
    results = []
    for _ in range(1 + (pick.randrange(4) == 0)):
        found = view(draw, scope, "", pick.randrange(3)) if pick.randrange(3) == 0 else None
        results.append(found[0] if found else draw.value(scope, "f", drawn_axes(draw, scope), pick.randrange(2, 6)))
    special = pick.randrange(5) == 0
    configuration = drawn_configuration(pick)
    integer = pick.choice(INTEGER_TYPES)
    return Case(seed, sizes, tuple(statements), tuple(results), draw.float, special, large, configuration, integer)


def drawn_axes(draw: Writer, scope: Scope) -> tuple[Size, ...]:
    """The sizes of a value, of those in scope."""
    axes: tuple[Size, ...] = ()
    for _ in range(draw.one([0, 0, 1, 1, 1, 2, 2, 3])):
        room = scope.budget // 8
        for size in axes:
            room //= max(1, size.value)
        if room >= 1:
            axes = (*axes, draw.one(axes) if axes and draw.chance(3) else draw.another(scope, room))
    return axes
