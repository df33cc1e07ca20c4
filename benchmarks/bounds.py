"""What Adze is held to: the table of bounds, and what was measured for each.

A bound is on the times of one run of ``make bench``. *Of JAX* is of its fastest version there. Of least squares and
hand tracking it is of the formula as the suite has it, and the row tells of the fastest tool, too. Where several
programs share a bound, each has a row.

Everyday programs are held to bounds together: how many of all functions of all lines are not slower than the fastest
tool with the same algorithm, how slow the slowest is, and the geometric mean, on one core and on two. What a library
has a routine for is shown, and bound where a row says so: those of ``OF_PEERS``, and convolutions.

Programs over chunks are measured by ``large.py``, in runs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from report import ADZE, INTO, ONE_THREAD, Measured, all_measured, compared_with, geometric_mean, number, table

NO_FORKS = "Adze, no forks"
ENOUGH = 2e-3  # seconds of work on one thread, from which on two threads must pay
GAIN = 1.7
SHARE_OF_GAIN = 0.9
SIBLING = 0.7
SHARE, WORST, MEAN = 0.9, 1.5, 0.6  # of everyday programs, over the fastest tool with the same algorithm
CONVOLUTIONS, CONVOLUTION, PRODUCT = "convolutions", 1.0, 0.7  # of JAX and PyTorch, or of a matrix product's rate


@dataclass(frozen=True)
class Row:
    """A bound, what was found, and whether that is enough."""

    work: str
    bound: str
    found: str
    met: bool | None  # None: not measured

    def cells(self) -> list[str]:
        return [self.work, self.bound, self.found, {True: "met", False: "**not met**", None: "not measured"}[self.met]]


BY_HAND = "C, by hand"  # a log with a record for each run of straight code; its ratios, where these bounds were set

# Of a peer's time: the line, its size, the function, whose, how much.
OF_PEERS: list[tuple[str, str, str, str, float]] = [
    ("gmm", "d=64 k=100 n=1000", "gradient", "JAX", 0.07),
    ("gmm", "d=128 k=200 n=1000", "gradient", "JAX", 0.06),
    ("gmm", "d=10 k=25 n=1000", "gradient", "JAX", 0.35),
    ("kmeans", "n=10000 k=1000 d=16", "direction", "JAX", 0.06),
    ("kmeans", "n=10000 k=1000 d=16", "cost", "JAX", 0.6),
    ("llsq", "n=16392 m=128", "gradient", "JAX, Vandermonde", 0.05),
    ("lse", "n=160000", "gradient", "JAX", 0.5),
    ("ode", "n=100000 s=100", "gradient", "JAX", 0.35),
    ("lstm", "l=6 c=4096", "gradient", "JAX", 0.15),
    ("ba", "n=372 m=47423 p=204472", "assembled", "JAX", 1.0),
    ("ht", "v=544 p=100", "jacobian", "JAX, all vertices", 1.0),
    ("ht", "v=8674 p=100", "jacobian", "JAX, all vertices", 1.0),
    ("exp sin", "n=10000000", "gradient", "JAX", 0.15),
    ("matmul", "n=1000", "product", "NumPy", 1 / 0.8),
    ("matmul", "n=1000", "gradient", "NumPy", 1 / 0.8),
    ("fourier", "stages=14", "primal", "SciPy", 3.0),
    ("gaussian process", "n=300", "primal", "JAX, cholesky", 1.2),
    ("gaussian process", "n=300", "gradient", "JAX, cholesky", 1.2),
    ("uniforms", "n=10000000", "primal", "JAX", 1.0),
    ("normals", "n=10000000", "primal", "JAX", 1.0),
    ("monte carlo", "paths=1000000", "primal", "JAX", 0.3),
    ("monte carlo", "paths=1000000", "gradient", "JAX", 0.3),
    ("small solves", "m=100000", "primal", "JAX", 0.1),
    ("small factors", "m=100000", "gradient", "JAX", 0.1),
    ("kalman", "t=1000", "gradient", "JAX", 0.2),
    ("large solve", "n=500", "gradient", "JAX", 1.0),
    ("large slogdet", "n=500", "gradient", "JAX", 1.0),
    ("large factors", "n=1000", "cholesky", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "lu", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "qr", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "eigh", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "eigvalsh", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "svd", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "svdvals", "SciPy, 1 thread", 1.1),
    ("large factors", "n=1000", "cholesky", "SciPy", 1.3),
    ("large factors", "n=1000", "lu", "SciPy", 1.3),
    ("large factors", "n=1000", "qr", "SciPy", 1.3),
    ("large factors", "n=1000", "triangle", "SciPy", 1.3),
    ("process of 300", "n=300", "gradient", "JAX", 1.0),
    ("process of 1500", "n=1500", "gradient", "JAX", 1.0),
    ("dot, lists", "n=1000", "primal", BY_HAND, 8 / 4),
    ("dot, lists", "n=1000", "gradient", BY_HAND, 25 / 7),
    ("dot, lists", "n=1000000", "primal", BY_HAND, 40 / 21),
    ("dot, lists", "n=1000000", "gradient", BY_HAND, 90 / 36),
    ("particles", "steps=1000", "primal", BY_HAND, 5 / 3),
    ("particles", "steps=1000", "gradient", BY_HAND, 18 / 9),
    ("particles", "steps=100000", "primal", BY_HAND, 6 / 3),
    ("particles", "steps=100000", "gradient", BY_HAND, 22 / 11),
    ("tree", "n=1048576", "primal", BY_HAND, 20 / 12),
    ("tree", "n=1048576", "gradient", BY_HAND, 120 / 65),
    ("quadrature", "", "primal", BY_HAND, 1.3),
    ("tree network", "words=255", "primal", "PyTorch", 0.5),
    ("tree network", "words=255", "gradient", "PyTorch", 0.5),
    ("phylogeny", "species=128", "gradient", "JAX, unrolled", 1.0),
    ("factorisation", "m=1000 n=1000 k=10", "default", "JAX", 0.5),
    ("factorisation", "m=4000 n=4000 k=10", "default", "JAX", 0.5),
    ("project", "n=10000", "jacobian", "JAX, vmap jacfwd", 0.2),
    ("project", "n=1000000", "jacobian", "JAX, vmap jacfwd", 0.2),
    ("project, scalars", "n=1000000", "jacobian", "JAX, vmap jacfwd", 0.2),
    ("orbit", "n=100000", "jacobian", "JAX", 1.0),
    ("bundle, to a cost", "c=49 p=7776 o=31843", "to a cost", "SciPy, trf", 0.1),
]

# The same where all tools are confined to one core, in processor time.
ON_ONE_CORE: list[tuple[str, str, str, str, float]] = [
    ("uniforms", "n=10000000", "primal", "NumPy", 1.0),
    ("normals", "n=10000000", "primal", "NumPy", 0.5),
]

# Of the time of the same line's primal. On one core of Zen 3 `project` takes 5.5 to 6.4 ns a point and its Jacobian
# 39 to 42; a fill of the 176 bytes that it writes takes 18. Ten steps of the large fit, which are eleven passes, take
# 28 to 30 times the residuals on two cores: a place takes 16 ns on one thread, 8 of them for the exponentials.
OF_PRIMAL: list[tuple[str, str, str, float]] = [
    ("lstm", "l=6 c=4096", "gradient", 3.5),
    ("ht", "v=544 p=100", "jacobian", 12.0),
    ("ht", "v=8674 p=100", "jacobian", 12.0),
    ("quadrature", "", "gradient", 5.0),
    ("phylogeny", "species=128", "gradient", 5.0),
    ("project", "n=1000000", "jacobian", 5.0),
    ("project, scalars", "n=1000000", "jacobian", 5.0),
    ("large fit", "n=1000000", "ten steps", 30.0),
]

# Of the time of another function of the same line: of one mode over the other's.
OF_OTHERS: list[tuple[str, str, str, str, float]] = [
    *[(f"gradient of {f}", f"n={10**k}", "forward", "reverse", 1.1) for f in ("dot", "max") for k in range(3, 8)],
    ("factorisation", "m=1000 n=1000 k=10", "forward", "reverse", 1.5),
    ("factorisation", "m=4000 n=4000 k=10", "forward", "reverse", 1.5),
    *[
        ("factorisation", size, "default", mode, 1.25)
        for size in ("m=1000 n=1000 k=10", "m=4000 n=4000 k=10")
        for mode in ("forward", "reverse")
    ],
]

# Of the bytes a second of np.copyto: the line, its size, the function, how much.
OF_COPY: list[tuple[str, str, str, float]] = [
    ("map", "n=10000000", "primal", 0.8),
    ("reduce", "n=10000000", "primal", 0.8),
    ("scan", "n=10000000", "primal", 0.6),
    ("gather", "n=10000000", "primal", 0.5),
    ("ba", "n=372 m=47423 p=204472", "jacobian", 1 / 3),
    ("jacobian of u + v", "n=1000", "jacobian", 0.8),
    ("jacobian of u + v", "n=4000", "jacobian", 0.8),
    ("jacobian of s v", "n=10000000", "jacobian", 0.8),
]

# The most bytes that a derivative plans for.
PLANNED: dict[str, float] = {"monte carlo": 1e7}

# The most seconds of a call.
CALLS: list[tuple[str, str, str, float]] = [
    ("calls, a scalar", "", "primal", 5e-6),
    ("calls, a vector", "n=10", "primal", 5e-6),
    ("mult", "", "primal", 5e-6),
    ("rotate", "", "three sweeps", 7e-6),
    ("sum-mat-vec, lists", "n=316", "primal", 10e-9 * 316**2),
    ("sum-mat-vec, lists", "n=316", "gradient", 40e-9 * 316**2),
    ("neural, lists", "", "gradient", 300e-6),
    ("formula", "n=1000000", "primal", 30e-3),
    ("formula", "n=1000000", "gradient", 120e-3),
    ("bundle", "c=49 p=7776 o=31843", "ten steps", 2.5),
    ("bundle", "c=372 p=47423 o=204472", "ten steps", 15.0),
]

# The same on one thread.
CALLS_ON_ONE_THREAD: list[tuple[str, str, str, float]] = [
    ("project", "n=1000000", "jacobian", 45e-3),
    ("project, scalars", "n=1000000", "jacobian", 45e-3),
    ("many small fits", "k=100000", "primal", 1.0),
]

# Forks on one thread, over the same without: of its time, or by so many seconds more.
FORKS_OVER, FORKS_MORE = 1.5, {"fibonacci": 30e-9 * 3_524_577}

# The most seconds to the first result of the derivative in a second process.
AGAIN = {"gmm": 0.05}

# Programs over chunks: of the plain program's time, of one worker's, of dask.array's, of reading or computing alone, of
# an empty task; megabytes beside a file, with memory="1GB"; seconds of a graph of 10^5 chunks.
ONE_WORKER, TWO_WORKERS, OF_DASK, OUT_OF_CORE, ROUND = 1.1, 1.7, 0.3, 1.25, 3.0
MEGABYTES, GRAPH_SECONDS = 1300, 5.0

# Memory that a hand-written loop would move with less gain from a second thread than a computation has.
BOUND_BY_MEMORY = {"map": "copy", "reduce": "read", "scan": "copy", "gather": "copy", "scatter": "copy"}

# JAX's milliseconds on this kind of machine, where a copy took FIGURE_COPY: of the formulas as they stand.
FIGURES: dict[tuple[str, str, str], float] = {
    ("gmm", "d=64 k=100 n=1000", "primal"): 66,
    ("gmm", "d=64 k=100 n=1000", "gradient"): 188,
    ("gmm", "d=10 k=25 n=1000", "primal"): 0.49,
    ("gmm", "d=10 k=25 n=1000", "gradient"): 1.56,
    ("kmeans", "n=10000 k=1000 d=16", "cost"): 7.7,
    ("kmeans", "n=10000 k=1000 d=16", "direction"): 170,
    ("llsq", "n=16392 m=128", "primal"): 22,
    ("llsq", "n=16392 m=128", "gradient"): 13,
    ("lse", "n=160000", "primal"): 0.24,
    ("lse", "n=160000", "gradient"): 0.45,
    ("ode", "n=100000 s=100", "primal"): 23,
    ("ode", "n=100000 s=100", "gradient"): 94,
    ("exp sin", "n=10000000", "gradient"): 81,
}
FIGURE_COPY = 4.3e-3
FIGURE_SLACK = 1.3

Key = tuple[str, str, str]


def rows(results: dict[str, Any]) -> Iterator[Row]:
    """Every bound, in the order of the table."""
    found = {(m.line, m.size, m.function): m for m in all_measured(results)}
    everyday = [m for m in found.values() if m.is_everyday]
    suites = {key: m for key, m in found.items() if not m.is_everyday}
    named = {(line, size, function) for line, size, function, peer, _ in OF_PEERS if "," not in peer or peer == BY_HAND}
    named |= {(line, size, function) for line, size, function, _ in (*OF_COPY, *CALLS)}
    for line, size, function, peer, most in OF_PEERS:
        yield of_peer(found.get((line, size, function)), (line, size, function), peer, most)
    for line, size, function, peer, most in ON_ONE_CORE:
        measured = found.get((line, size, function))
        yield of_peer(measured and measured.on_one_core, (line, size, function, "1 core"), peer, most)
    for line, size, function, most in OF_PRIMAL:
        yield of_primal(found.get((line, size, function)), (line, size, function), most)
    for line, size, function, other, most in OF_OTHERS:
        yield of_other(found, (line, size, function), other, most)
    for line, size, function, least in OF_COPY:
        yield of_copy(found.get((line, size, function)), (line, size, function), least)
    for line, size, function, most in CALLS:
        yield of_call(found.get((line, size, function)), (line, size, function), most)
    yield from forks(found)
    for line, size, function, most in CALLS_ON_ONE_THREAD:
        yield of_call(found.get((line, size, function)), (line, size, function), most, ONE_THREAD)
    yield from siblings(found)
    yield from others(suites, named)
    yield from gains(suites)
    yield from compile_times(results)
    yield from second_processes(results)
    yield from planned(found.values())
    yield from together([m.on_one_core for m in everyday], "1 core")
    yield from together(everyday, "2 cores")
    yield first_calls_together(everyday, "seconds", "compiled not above JAX or Numba, the slower of them")
    yield first_calls_together(everyday, "peak", "memory not above JAX")
    yield from convolutions(results)


def _name(key: Sequence[str]) -> str:
    return ", ".join(part for part in key if part)


def of_peer(m: Measured | None, key: Sequence[str], peer: str, most: float) -> Row:
    bound = f"at most {most:.3g} of {peer}"
    ratio = m.over(peer) if m else None
    if m is None or ratio is None:
        return Row(_name(key), bound, "", None)
    others = ", ".join(f"{name} {1e3 * t:.3g} ms" for name, t in m.peers(peer).items())
    fastest, over = m.fastest(), m.over()
    if fastest is not None and fastest not in m.peers(peer):
        others += f"; {over:.3g} of the fastest, {fastest} {1e3 * m.peers()[fastest]:.3g} ms"
    return Row(_name(key), bound, f"{ratio:.3g} ({1e3 * (m.time(ADZE) or 0):.3g} ms; {others})", ratio <= most)


def of_primal(m: Measured | None, key: Key, most: float) -> Row:
    ratio = m.over_primal if m else None
    return Row(
        _name(key), f"at most {most:g} times its primal", number(ratio), None if ratio is None else ratio <= most
    )


def of_copy(m: Measured | None, key: Key, least: float) -> Row:
    bound = f"at least {least:.2g} of a copy's bytes a second"
    found = {name: share for name in (INTO, ADZE, ONE_THREAD) if m and (share := copy_share(m, name)) is not None}
    if m is None or not found:
        return Row(_name(key), bound, "", None)
    (_, share), *others = found.items()
    text = f"{share:.2g} ({', '.join(f'{name} {number(other, 2)}' for name, other in others)})"
    return Row(_name(key), bound, text, share >= least)


def copy_share(m: Measured, contender: str) -> float | None:
    """The bytes a second that are moved at least, over those of np.copyto on one thread.

    That writes to an array which is there, and so does ``Adze, out=``.
    """
    taken, moved = m.time(contender), m.record["moved"]
    return None if taken is None or not moved else moved / taken / (1.6e8 / m.controls["copy"]["median"])


def of_other(found: dict[Key, Measured], key: Key, other: str, most: float) -> Row:
    times = [m.time(ADZE) if m else None for m in (found.get(key), found.get((*key[:2], other)))]
    ratio = times[0] / times[1] if times[0] and times[1] else None
    return Row(_name(key), f"at most {most:g} of {other}", number(ratio), None if ratio is None else ratio <= most)


def of_call(m: Measured | None, key: Key, most: float, contender: str = ADZE) -> Row:
    taken = m.time(contender) if m else None
    found = "" if taken is None else f"{1e6 * taken:.3g} µs"
    bound = f"at most {1e6 * most:g} µs a call" + (" on 1 thread" if contender == ONE_THREAD else "")
    return Row(_name(key), bound, found, None if taken is None else taken <= most)


def forks(found: dict[Key, Measured]) -> Iterator[Row]:
    """What forks cost where nobody takes them."""
    for key, m in found.items():
        own, without = m.time(ONE_THREAD), m.time(NO_FORKS)
        if own is None or without is None:
            continue
        more = FORKS_MORE.get(m.line)
        most = FORKS_OVER * without if more is None else without + more
        bound = f"at most {FORKS_OVER} times" if more is None else f"at most {1e3 * more:.3g} ms more than"
        text = f"{1e3 * own:.3g} ms; {1e3 * without:.3g} ms without"
        yield Row(_name(key), f"forks on 1 thread: {bound} without", text, own <= most)


def siblings(found: dict[Key, Measured]) -> Iterator[Row]:
    """The rate of each sibling over that of its line, at the same sizes."""
    for (line, size, function), m in found.items():
        tuned = found.get((m.of_line["sibling_of"], size, function))
        if tuned is None or m.of_size["work"] is None:
            continue
        own, other = m.time(ADZE), tuned.time(ADZE)
        if own and other:
            share = (m.of_size["work"] / own) / (tuned.of_size["work"] / other)
            what = f"at least {SIBLING} of the rate of {m.of_line['sibling_of']}"
            yield Row(_name((line, size, function)), what, f"{share:.2g}", share >= SIBLING)


def others(found: dict[Key, Measured], named: set[Key]) -> Iterator[Row]:
    """What no other row is about: not slower than the fastest peer."""
    for key, m in found.items():
        ratio = m.over()
        if key not in named and ratio is not None and m.fastest() != BY_HAND:
            text = f"{ratio:.3g} ({1e3 * (m.time(ADZE) or 0):.3g} ms; {m.fastest()})"
            yield Row(_name(key), "not above the fastest peer", text, ratio <= 1)


def gains(found: dict[Key, Measured]) -> Iterator[Row]:
    """Two threads over one."""
    for key, m in found.items():
        one, gain = m.time(ONE_THREAD), m.gain
        if one is None or gain is None or one < ENOUGH:
            continue
        kind = BOUND_BY_MEMORY.get(m.line)
        least, bound = GAIN, f"2 threads over 1: at least {GAIN}"
        if kind:
            control = m.controls[kind]["median"] / m.controls[f"{kind}, 2 threads"]["median"]
            least = min(GAIN, SHARE_OF_GAIN * control)
            bound = f"2 threads over 1: at least {SHARE_OF_GAIN} of a {kind}'s {control:.2f}"
        yield Row(_name(key), bound, f"{gain:.2f}", gain >= least)


def compile_times(results: dict[str, Any]) -> Iterator[Row]:
    """To the first result, in a process of its own, against JAX's fastest."""
    for record in results.values():
        for line, of_line in record["lines"].items():
            calls = of_line.get("fresh", {}).get(of_line["derivative"], {})
            own = calls.get(ADZE, {}).get("seconds")
            peers = [row["seconds"] for name, row in calls.items() if name.startswith("JAX") and "seconds" in row]
            if own is not None and peers and not of_line.get("everyday"):
                text = f"{own:.2f} s (JAX {', '.join(f'{t:.2f}' for t in peers)})"
                yield Row(f"{line}, {of_line['derivative']}", "compiled not above JAX", text, own <= min(peers))


def second_processes(results: dict[str, Any]) -> Iterator[Row]:
    """To the first result in a second process, which finds the code on disk."""
    for line, most in AGAIN.items():
        records = [record["lines"][line] for record in results.values() if line in record["lines"]]
        calls = [of_line.get("fresh", {}).get(of_line["derivative"], {}).get(ADZE, {}) for of_line in records]
        again = next((call["again"] for call in calls if call.get("again")), None)
        found = "" if again is None else f"{1e3 * again:.0f} ms"
        bound = f"at most {1e3 * most:.0f} ms in a second process"
        yield Row(f"{line}, first result", bound, found, None if again is None else again <= most)


def planned(measured: Iterable[Measured]) -> Iterator[Row]:
    """The bytes that the plan of memory asks for, at the main size of a line."""
    for line, most in PLANNED.items():
        calls = [m.first_calls.get(ADZE, {}) for m in measured if m.line == line]
        found = next((call["planned"] for call in calls if "planned" in call), None)
        text = "" if found is None else f"{found / 1e6:.1f} MB"
        yield Row(f"{line}, memory", f"at most {most / 1e6:g} MB", text, None if found is None else found <= most)


def together(measured: Sequence[Measured], cores: str) -> Iterator[Row]:
    """Everyday programs over the fastest tool with the same algorithm: how many are not slower, the worst, the mean."""
    ratios = {f"{m.line}, {m.function}": ratio for m in measured if (ratio := m.over(library=False)) is not None}
    work = f"everyday programs, {cores}"
    share = sum(ratio <= 1 for ratio in ratios.values()) / (len(ratios) or 1)
    worst, mean = max(ratios, key=ratios.__getitem__, default=""), geometric_mean(ratios.values())
    above = sum(ratio > WORST for ratio in ratios.values())
    for bound, found, met in (
        (f"not slower on {100 * SHARE:.0f} %", f"{100 * share:.0f} % of {len(ratios)}", share >= SHARE),
        (f"at most {WORST} of it", f"{above} above; {ratios.get(worst, 0):.3g} ({worst})", not above),
        (f"at most {MEAN} of it in the geometric mean", f"{mean:.3g}", mean <= MEAN),
    ):
        yield Row(work, f"same algorithm: {bound}", found if ratios else "", met if ratios else None)


def first_calls_together(measured: Sequence[Measured], what: str, bound: str) -> Row:
    """Compile times, or the memory, of first calls of everyday programs over those of their peers."""
    over: dict[str, float] = {}
    for m in measured:
        own, peer = m.first_calls.get(ADZE, {}).get(what), compared_with(m, what)
        if own is not None and peer is not None:
            over[m.line] = (own or 1) / (m.first_calls[peer][what] or 1)  # a byte, where the kernel saw no growth
    if not over:
        return Row("everyday programs", bound, "", None)
    met, worst = sum(ratio <= 1 for ratio in over.values()), max(over, key=over.__getitem__)
    return Row("everyday programs", bound, f"{met} of {len(over)}; {over[worst]:.3g} ({worst})", met == len(over))


def convolutions(results: dict[str, Any]) -> Iterator[Row]:
    """Each over the fastest of JAX and PyTorch, or by its operations a second over those of a matrix product."""
    for m in all_measured({name: record for name, record in results.items() if name == CONVOLUTIONS}):
        own, ratios = m.time(ADZE), [ratio for peer in ("JAX", "PyTorch") if (ratio := m.over(peer)) is not None]
        if own is None or not ratios:
            continue
        passes = 3 if m.function == m.of_line["derivative"] else 1  # forward, and back to the image and to the weights
        product = 2 * 2e9 / m.controls["matrix product"]["median"]  # of numbers half as long
        rate = passes * m.of_size["work"] / own / product
        found = f"{max(ratios):.3g} ({1e3 * own:.3g} ms); {rate:.2g} of the rate"
        bound = f"at most {CONVOLUTION:g} of JAX and PyTorch, or {PRODUCT} of a product's rate"
        yield Row(f"{m.line}, {m.function}", bound, found, max(ratios) <= CONVOLUTION or rate >= PRODUCT)


def over_chunks(parts: dict[str, Any]) -> Iterator[Row]:
    """Programs over chunks, as far as they were measured."""
    memory, peers, file = (parts.get(name, {}) for name in ("memory", "peers", "file"))
    for name, row in memory.get("programs", {}).items():
        plain, halves, one, two = (row[key]["median"] for key in ("plain", "halves", "1", "2"))
        work = f"{name}, in memory"
        yield Row(work, f"1 worker: at most {ONE_WORKER} of plain", f"{one / plain:.2f}", one <= ONE_WORKER * plain)
        found = f"{one / two:.2f}; two plain processes, half each: {plain / halves:.2f}"
        yield Row(work, f"2 workers over 1: at least {TWO_WORKERS}", found, one >= TWO_WORKERS * two)
    for name, row in peers.get("programs", {}).items():
        share = row["ours"]["median"] / row["theirs"]["median"]
        yield Row(f"{name}, 2 workers", f"at most {OF_DASK} of dask.array", f"{share:.2f}", share <= OF_DASK)
    for name, row in file.get("programs", {}).items():
        work, over = f"{name}, a file of {file['gigabytes']:g} GB", row["cold"] / max(row["read"], row["computed"])
        bound = f"at most {OUT_OF_CORE} of the larger of reading and computing"
        yield Row(work, bound, f"{over:.2f}", over <= OUT_OF_CORE)
        found = row["megabytes"]
        yield Row(work, f"below {MEGABYTES} MB in memory, of 1 GB", f"{found:.0f} MB", found < MEGABYTES)
    if "rounds" in parts:
        over = parts["rounds"]["step"]["median"] / parts["rounds"]["bare"]["median"]
        yield Row(
            "a round of 64 chunks", f"at most {ROUND:g} times an empty task a worker", f"{over:.2f}", over <= ROUND
        )
    if "graphs" in parts:
        count, seconds, depth = (parts["graphs"][key] for key in ("chunks", "graph", "depth"))
        least = math.ceil(math.log2(count))
        work = f"graph of {count} chunks, simulated"
        yield Row(work, f"in {GRAPH_SECONDS:g} s", f"{seconds:.2f} s", seconds <= GRAPH_SECONDS)
        yield Row(work, f"its tree is {least} deep, a binary one's depth", f"{depth}", depth <= least)


def bounds_text(results: dict[str, Any], chunks: dict[str, Any]) -> str:
    """The table, and how many are met; ``chunks`` are the parts that ``large.py`` has measured."""
    every = [*rows(results), *over_chunks(chunks)]
    met, missed = sum(row.met is True for row in every), sum(row.met is False for row in every)
    count = f"{met} met, {missed} not met, {len(every) - met - missed} not measured."
    if chunks:
        count += " Programs over chunks are from runs of their own ([large.md](large.md)), at the end."
    return f"{count}\n\n{table(['work', 'bound', 'measured', ''], [row.cells() for row in every])}"


def figures_text(measured: Sequence[Measured]) -> list[str]:
    """The peers against what they were seen to reach before, rescaled by the copy."""
    cells = []
    for m in measured:
        figure, jax = FIGURES.get((m.line, m.size, m.function)), m.fastest("JAX")
        if figure is None or jax is None:
            continue
        ratio = 1e3 * m.peers()[jax] / (figure * m.controls["copy"]["median"] / FIGURE_COPY)
        mark = "to be explained" if ratio > FIGURE_SLACK else ""
        cells.append([f"{m.line}, {m.size}, {m.function}: {jax}", f"{figure:g}", f"{ratio:.2f}", mark])
    if not cells:
        return []
    text = "JAX's milliseconds in an earlier measurement, and its time now over that, rescaled by the time of a copy."
    return ["## Peers as before", text, table(["", "before", "now over before", ""], cells)]
