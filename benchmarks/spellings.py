"""The same program, written in other ways: how much the speed depends on how a program happens to be written.

    python benchmarks/spellings.py [GROUP ...] [--rewritten] [--threads 1] [--seconds 0.5]

A group has the spellings of one program that users might choose between: tables made in either order, maps in maps or
broadcast arrays, products or sums of products, neighbours by slices, by indices or by ``az.roll``. All of them give the
same values (this is checked). They are timed in turns, with their gradients; what is shown is the median of each, and
its ratio to the fastest one's::

    nearest of k centres, n=10000 k=100 d=16            value, ms          gradient, ms
      maps in maps                                      0.48   1.12        0.59   1.07

With ``--rewritten`` the groups are programs of ``programs/variants.py``, in spellings that ``programs/rewriting.py``
makes. Those that are other nests than the program are timed in turns with it; what is shown is the median, and that of
the ratios of pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import confine, error, in_turns, leaves
from programs.rewriting import KINDS, respelled
from programs.variants import VARIANTS, gradient

import adze as az

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
sys.path.append(str(ROOT / "tests"))
import gmm  # noqa: E402
from spelled_alike import nests_of_call  # noqa: E402

CLOSE = 1e-9  # the largest difference of results, relative to their magnitude


@dataclass(frozen=True)
class Group:
    """Spellings of one program by name, and the arguments of a call; their gradients are by the argument ``of``."""

    title: str
    spellings: Mapping[str, Any]
    arguments: Sequence[Any]
    of: int = 0


RANDOM = np.random.default_rng(19)

# The distance to the nearest of some centres, summed over points

Points, Centres = az.Array[az.f64, "n d"], az.Array[az.f64, "k d"]


def _squared(p: az.Expr, q: az.Expr) -> az.Expr:
    return az.sum((p - q) ** 2)


@az.program
def maps_in_maps(x: Points, y: Centres) -> az.f64:
    return az.sum(az.map(lambda p: az.min(az.map(lambda q: _squared(p, q), y)), x))


@az.program
def table_by_points(x: Points, y: Centres) -> az.f64:
    table = az.generate((x.shape[0], y.shape[0]), lambda i, j: _squared(x[i], y[j]))
    return az.sum(az.min(table, axis=1))


@az.program
def table_by_centres(x: Points, y: Centres) -> az.f64:
    table = az.generate((y.shape[0], x.shape[0]), lambda j, i: _squared(x[i], y[j]))
    return az.sum(az.min(table, axis=0))


@az.program
def broadcast_by_points(x: Points, y: Centres) -> az.f64:
    return az.sum(az.min(az.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2), axis=1))


@az.program
def broadcast_by_centres(x: Points, y: Centres) -> az.f64:
    return az.sum(az.min(az.sum((y[:, None, :] - x[None, :, :]) ** 2, axis=2), axis=0))


@az.program
def coordinates_first(x: Points, y: Centres) -> az.f64:
    return az.sum(az.min(az.sum((x.T[:, :, None] - y.T[:, None, :]) ** 2, axis=0), axis=1))


# The greatest of each row of a product of matrices, summed

Left, Right = az.Array[az.f64, "n k"], az.Array[az.f64, "k m"]


@az.program
def product_by_rows(a: Left, b: Right) -> az.f64:
    return az.sum(az.max(a @ b, axis=1))


@az.program
def product_by_columns(a: Left, b: Right) -> az.f64:
    return az.sum(az.max(b.T @ a.T, axis=0))


@az.program
def product_summed(a: Left, b: Right) -> az.f64:
    rows, columns = a.shape[0], b.shape[1]
    products = az.generate((rows, columns), lambda i, j: az.sum(a[i] * b[:, j]))
    return az.sum(az.max(products, axis=1))


@az.program
def rows_times_columns(a: Left, b: Right) -> az.f64:
    return az.sum(az.map(lambda row: az.max(az.map(lambda column: az.sum(row * column), b.T)), a))


# Five neighbours of a square grid, the square of their mean summed over its inside

Grid = az.Array[az.f64, "n m"]


def _of_squares(mean: az.Expr) -> az.Expr:
    return az.sum(mean * mean)


@az.program
def slices(u: Grid) -> az.f64:
    centre, above, below = u[1:-1, 1:-1], u[:-2, 1:-1], u[2:, 1:-1]
    return _of_squares(0.2 * (centre + above + below + u[1:-1, :-2] + u[1:-1, 2:]))


@az.program
def indices(u: Grid) -> az.f64:
    def mean(i: az.Expr, j: az.Expr) -> az.Expr:
        return 0.2 * (u[i + 1, j + 1] + u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2])

    return _of_squares(az.generate((u.shape[0] - 2, u.shape[1] - 2), mean))


@az.program
def rolled(u: Grid) -> az.f64:
    around = az.roll(u, 1, 0) + az.roll(u, -1, 0) + az.roll(u, 1, 1) + az.roll(u, -1, 1)
    return _of_squares((0.2 * (u + around))[1:-1, 1:-1])


@az.program
def padded(u: Grid) -> az.f64:
    p = az.pad(u, 1)
    mean = 0.2 * (u + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    return _of_squares(mean[1:-1, 1:-1])


# A window of 7 x 7 points of a grid, weighed: the squares of its sums, with zeros around the grid or around a torus

Window = az.Array[az.f64, "7 7"]


def _written_out(mode: str) -> az.Program:
    """A term for each point, of slices of a padded grid."""

    @az.program
    def windows(u: Grid, w: Window) -> az.f64:
        (n, m), p = u.shape, az.pad(u, 3, mode=mode)
        points = [w[a, b] * p[a : a + n, b : b + m] for a in range(7) for b in range(7)]
        return az.sum(sum(points[1:], points[0]) ** 2)

    return windows


def _window_by_window(mode: str) -> az.Program:
    """A sum over a part of a padded grid for each point."""

    @az.program
    def windows(u: Grid, w: Window) -> az.f64:
        p = az.pad(u, 3, mode=mode)
        return az.sum(az.generate(u.shape, lambda i, j: az.sum(p[i : i + 7, j : j + 7] * w)) ** 2)

    return windows


@az.program
def windows_by_indices(u: Grid, w: Window) -> az.f64:
    n, m = u.shape

    def at(i: az.Expr, j: az.Expr) -> az.Expr:
        return az.sum(az.generate((7, 7), lambda a, b: u[(i + a - 3) % n, (j + b - 3) % m] * w[a, b]))

    return az.sum(az.generate((n, m), at) ** 2)


# A heat equation: steps in time on a grid whose border stays 0, or that is a torus, and on a ring and in space


def _stepped(times: int, step: Any) -> Any:
    return az.program(lambda u: az.sum(az.fori_loop(0, times, lambda _, v: step(v), u) ** 2))


def _moved(u: az.Expr, around: az.Expr) -> az.Expr:
    return u + 0.1 * (around - 2.0 * u.ndim * u)


def _crossed(p: az.Expr) -> az.Expr:
    """The sum of the neighbours along each axis of a grid with a border of one."""
    inner = [slice(1, -1)] * p.ndim
    sides = [slice(None, -2), slice(2, None)]
    return sum(p[tuple([*inner[:k], side, *inner[k + 1 :]])] for k in range(p.ndim) for side in sides)


def _by_roll(u: az.Expr) -> az.Expr:
    return _moved(u, sum(az.roll(u, shift, axis) for axis in range(u.ndim) for shift in (1, -1)))


def _by_pad(mode: str) -> Any:
    return lambda u: _moved(u, _crossed(az.pad(u, 1, mode=mode)))


def _by_remainders(u: az.Expr) -> az.Expr:
    def around(*place: az.Expr) -> az.Expr:
        moved = [(k, by) for k in range(u.ndim) for by in (-1, 1)]
        return sum(u[tuple([*place[:k], (place[k] + by) % u.shape[k], *place[k + 1 :]])] for k, by in moved)

    return _moved(u, az.generate(u.shape, around))


def _by_joining(u: az.Expr) -> az.Expr:
    rows, columns = az.concatenate([u[-1:], u, u[:1]]), az.concatenate([u[:, -1:], u, u[:, :1]], axis=1)
    return _moved(u, rows[:-2] + rows[2:] + columns[:, :-2] + columns[:, 2:])


def _by_choices(u: az.Expr) -> az.Expr:
    n, m = u.shape

    def at(i: az.Expr, j: az.Expr) -> az.Expr:
        def read(i: az.Expr, j: az.Expr) -> az.Expr:
            return az.cond((i >= 0) & (i < n) & (j >= 0) & (j < m), lambda: u[i, j], lambda: 0.0)

        return u[i, j] + 0.1 * (read(i - 1, j) + read(i + 1, j) + read(i, j - 1) + read(i, j + 1) - 4.0 * u[i, j])

    return az.generate((n, m), at)


_TORUS = {"rolled": _by_roll, "remainders": _by_remainders, "padded": _by_pad("wrap")}


def _heat(times: int, **steps: Any) -> Mapping[str, Any]:
    return {name: _stepped(times, step) for name, step in steps.items()}


# The mixture model, the size of whose packed triangles is known or has a name of its own


def _mixture(triangle: str) -> az.Program:
    def objective(alpha: Any, mu: Any, q: Any, l: Any, x: Any, gamma: Any, m: Any) -> Any:
        return gmm.objective.function(alpha, mu, q, l, x, gamma, m)

    shapes = {"alpha": "k", "mu": "k d", "q": "k d", "l": f"k {triangle}", "x": "n d"}
    types = {name: az.Array[az.f64, shape] for name, shape in shapes.items()}
    objective.__annotations__ = {**types, "gamma": az.f64, "m": az.i64, "return": az.f64}
    return az.program(objective)


def _mixtures(n: int, d: int, k: int) -> Sequence[Any]:
    shapes = (k,), (k, d), (k, d), (k, d * (d - 1) // 2), (n, d)
    return *[RANDOM.random(shape) for shape in shapes], 1.0, 0


GROUPS = {
    "nearest": Group(
        "nearest of k centres, n=10000 k=100 d=16",
        {
            "maps in maps": maps_in_maps,
            "a table by points": table_by_points,
            "a table by centres": table_by_centres,
            "broadcast, points first": broadcast_by_points,
            "broadcast, centres first": broadcast_by_centres,
            "broadcast, coordinates first": coordinates_first,
        },
        (RANDOM.random((10000, 16)), RANDOM.random((100, 16))),
    ),
    "greatest": Group(
        "greatest entries of a product, n=500 k=500 m=500",
        {
            "by rows": product_by_rows,
            "transposed, by columns": product_by_columns,
            "sums of products": product_summed,
            "maps in maps": rows_times_columns,
        },
        (RANDOM.random((500, 500)), RANDOM.random((500, 500))),
    ),
    "stencil": Group(
        "five neighbours, 1000 x 1000",
        {"slices": slices, "indices": indices, "padded": padded, "rolled": rolled},
        (RANDOM.random((1000, 1000)),),
    ),
    "window": Group(
        "windows of 7 x 7 with zeros around, 512 x 512",
        {"written out": _written_out("constant"), "window by window": _window_by_window("constant")},
        (RANDOM.random((512, 512)), RANDOM.random((7, 7))),
    ),
    "around": Group(
        "windows of 7 x 7 of a torus, 512 x 512",
        {
            "written out": _written_out("wrap"),
            "window by window": _window_by_window("wrap"),
            "indices": windows_by_indices,
        },
        (RANDOM.random((512, 512)), RANDOM.random((7, 7))),
    ),
    "heat": Group(
        "heat equation, border 0, 256 x 256, 200 steps",
        _heat(200, padded=_by_pad("constant"), choices=_by_choices),
        (RANDOM.random((256, 256)),),
    ),
    "torus": Group(
        "heat equation on a torus, 256 x 256, 200 steps",
        _heat(200, **_TORUS, joined=_by_joining),
        (RANDOM.random((256, 256)),),
    ),
    "ring": Group("heat equation on a ring, n=10000, 1000 steps", _heat(1000, **_TORUS), (RANDOM.random(10000),)),
    "space": Group(
        "heat equation on a torus, 64 x 64 x 64, 20 steps", _heat(20, **_TORUS), (RANDOM.random((64, 64, 64)),)
    ),
    "gmm": Group(
        "mixture model, n=1000 d=64 k=100",
        {"d * (d - 1) // 2": _mixture("d*(d-1)//2"), "a name of its own": _mixture("t")},
        _mixtures(1000, 64, 100),
        of=1,
    ),
}


def timed(group: Group, derived: bool, options: argparse.Namespace) -> list[float]:
    """The median of each spelling, or of its gradient, in ms; all of them must give the same."""
    programs = [az.grad(each, argnums=group.of) if derived else each for each in group.spellings.values()]
    calls = [az.compile(each, threads=options.threads) for each in programs]
    wanted, *others = [leaves(call(*group.arguments)) for call in calls]
    for name, found in zip(list(group.spellings)[1:], others, strict=True):
        if error(found, wanted) > CLOSE:
            raise ValueError(f"{group.title}: {name} gives other results than {next(iter(group.spellings))}")
    runs = in_turns([partial(call, *group.arguments) for call in calls], options.seconds)
    return [1e3 * float(np.median(run)) for run in runs]


def rewritten(name: str, derived: bool, options: argparse.Namespace) -> None:
    """Print how many spellings of a program, or of its gradient, are the same nests, and the times of the others."""
    variant = VARIANTS[name]
    arguments = variant.arguments(large=True)
    made = {kind: respelled(variant.program, kind, options.seed) for kind in KINDS}
    known = {"": variant.program} | {kind: program for kind, program in made.items() if program is not None}
    programs = {kind: gradient(each, variant.argnums) if derived else each for kind, each in known.items()}
    nests = {kind: nests_of_call(program, arguments) for kind, program in programs.items()}
    other = [kind for kind in programs if kind and nests[kind] != nests[""]]
    same = f"{len(programs) - 1 - len(other)} of {len(programs) - 1} are the same nests"
    print(f"\n{name + (', gradient' if derived else ''):52}{same}")
    calls = [az.compile(programs[kind], threads=options.threads) for kind in ("", *other)]
    wanted = leaves(calls[0](*arguments))
    for kind, call in zip(other, calls[1:], strict=True):
        first, found = in_turns([partial(each, *arguments) for each in (calls[0], call)], options.seconds)
        if error(leaves(call(*arguments)), wanted) > CLOSE:
            raise ValueError(f"{name}: {kind} gives other results")
        print(f"  {kind:46}{1e3 * float(np.median(found)):8.3f} {float(np.median(found / first)):6.2f}", flush=True)


def main() -> None:
    options = read_options()
    print(confine(options.threads))
    if options.rewritten:
        for name in options.groups or VARIANTS:
            rewritten(name, False, options)
            rewritten(name, True, options)
        return
    for name in options.groups or GROUPS:
        group = GROUPS[name]
        print(f"\n{group.title:52}value, ms          gradient, ms")
        columns = [timed(group, derived, options) for derived in (False, True)]
        for spelling, *medians in zip(group.spellings, *columns, strict=True):
            cells = [f"{ms:8.2f} {ms / min(column):6.2f}" for ms, column in zip(medians, columns, strict=True)]
            print(f"  {spelling:46}{'     '.join(cells)}", flush=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time programs that are written in several ways.")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, *VARIANTS, []], help="all, if none is named")
    parser.add_argument("--rewritten", action="store_true", help="spellings that the rewriter makes")
    parser.add_argument("--seed", type=int, default=0, help="that it draws with")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="that each spelling is timed for")
    return parser.parse_args()


if __name__ == "__main__":
    main()
