"""A Gaussian mixture model: written once, then printed, evaluated, differentiated, compiled and checked.

    python examples/gmm.py [FILE]

``objective`` is the log posterior of a mixture of k Gaussians given n points, the formula of the ADBench suite
(tests/data/README.md); ``gradient`` is its value and its derivatives, a program made from it. FILE holds cases with
the results of an independent implementation, one JSON object a line; without it the cases of tests/data are run.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adze as az

# The program


def logsumexp(v: az.Expr) -> az.Expr:
    """log(sum(exp(v))); what is subtracted against overflow has no part in the derivative."""
    top: az.Expr = az.stop_gradient(az.max(v))
    return top + az.log(az.sum(az.exp(v - top)))


def lower_triangular(log_diagonal: az.Expr, below: az.Expr) -> Any:
    """The matrix with exp(log_diagonal) on its diagonal and, column after column, ``below`` under it."""
    d = log_diagonal.shape[0]

    def entry(row: az.Expr, column: az.Expr) -> Any:
        def under_diagonal() -> az.Expr:
            skipped = column * (2 * d - column - 1) // 2  # the elements of the columns before this one
            return below[skipped + row - column - 1]

        def on_diagonal() -> az.Expr:
            return az.exp(log_diagonal[row])

        return az.cond(row > column, under_diagonal, lambda: az.cond(row == column, on_diagonal, lambda: 0.0))

    return az.generate((d, d), entry)


def log_multigamma(a: az.Expr, d: az.Expr) -> az.Expr:
    """The logarithm of the d-dimensional gamma function."""
    return 0.25 * d * (d - 1) * math.log(math.pi) + az.sum(az.generate(d, lambda j: az.lgamma(a - 0.5 * j)))


def log_wishart(q: az.Expr, factors: az.Expr, gamma: az.Expr, m: az.Expr) -> az.Expr:
    """The Wishart prior of the k precision matrices."""
    k, d = q.shape
    freedom = d + m + 1
    constant: az.Expr = k * (freedom * d * az.log(gamma / math.sqrt(2.0)) - log_multigamma(0.5 * freedom, d))
    return constant - 0.5 * gamma**2 * az.sum(factors**2) + m * az.sum(q)


@az.program
def objective(
    alpha: az.Array[az.f64, "k"],  # weights of the components, as unnormalised logarithms
    mu: az.Array[az.f64, "k d"],  # their means
    q: az.Array[az.f64, "k d"],  # logarithms of the diagonals of their precision factors
    l: az.Array[az.f64, "k d*(d-1)//2"],  # the strictly lower triangles of these, column after column
    x: az.Array[az.f64, "n d"],  # points
    gamma: az.f64,  # the prior's parameters
    m: az.i64,
) -> az.f64:
    """The log posterior of a mixture of k Gaussians in d dimensions given n points."""
    n, d = x.shape
    factors = az.map(lower_triangular, q, l)

    def log_density(point: az.Expr) -> az.Expr:
        def component(weight: az.Expr, mean: az.Expr, log_diagonal: az.Expr, factor: az.Expr) -> az.Expr:
            return weight + az.sum(log_diagonal) - 0.5 * az.sum((factor @ (point - mean)) ** 2)

        return logsumexp(az.map(component, alpha, mu, q, factors))

    scale = 0.5 * d * math.log(2 * math.pi) + logsumexp(alpha)
    likelihood: az.Expr = az.sum(az.map(log_density, x)) - n * scale
    return likelihood + log_wishart(q, factors, gamma, m)


gradient = az.value_and_grad(objective, argnums=(0, 1, 2, 3))

# The cases

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "gmm.jsonl"
PARTS = ("alpha", "mu", "q", "l")


@dataclass
class Case:
    """Arguments of the program, and what the reference says: the objective and its gradient, where known."""

    name: str
    arguments: tuple[Any, ...]
    objective: float | None = None
    gradient: dict[str, np.ndarray] | None = None


def read_cases(path: Path = DATA) -> list[Case]:
    """The cases of a file, one a problem: its objective and its jacobian are two lines of the file."""
    cases: dict[str, Case] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["module"] != "gmm":
            raise ValueError(f"{path} holds cases of {record['module']}, not of gmm")
        given, wanted, name = record["input"], record["output"], record["description"]
        d, k, n = given["d"], given["k"], given["n"]
        shapes = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, d * (d - 1) // 2), "x": (n, d)}
        if name not in cases:
            arrays = [np.array(given[part], dtype=np.float64).reshape(shape) for part, shape in shapes.items()]
            arguments = (*arrays, float(given["gamma"]), int(given["m"]))
            cases[name] = Case(f"d={d} k={k} n={n}", arguments)
        if record["function"] == "objective":
            cases[name].objective = wanted
        else:
            cases[name].gradient = {part: np.array(wanted[part]).reshape(shapes[part]) for part in PARTS}
    return list(cases.values())


def flat(result: Any) -> list[np.ndarray]:
    """The objective and the four parts of its gradient as arrays."""
    value, parts = result
    return [np.asarray(value), *parts]


def error(found: np.ndarray, wanted: Any) -> float:
    """The largest difference, relative to the largest magnitude (at least 1)."""
    size = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    return float(np.max(np.abs(found - wanted), initial=0.0)) / size


def errors(result: Any, case: Case) -> dict[str, float]:
    """The errors of a result of ``gradient``, part by part, where the case knows what is right."""
    value, *parts = flat(result)
    found = {} if case.objective is None else {"objective": error(value, case.objective)}
    if case.gradient is not None:
        found |= {name: error(part, case.gradient[name]) for name, part in zip(PARTS, parts, strict=True)}
    return found


# The demonstration


def milliseconds(call: Callable[..., Any], arguments: Iterable[Any], budget: float = 0.25) -> float:
    """The time of a call: the least of as many as fit into the budget in seconds, after one that warms up."""
    arguments = tuple(arguments)
    call(*arguments)
    started, least = time.perf_counter(), math.inf
    while time.perf_counter() - started < budget:
        before = time.perf_counter()
        call(*arguments)
        least = min(least, time.perf_counter() - before)
    return 1e3 * least


def code_of(compiled: az.Compiled) -> str:
    """Where the code that calls have taken so far is from, and how long that took."""
    parts, told = compiled.specialisations, []
    for state in ("compiled", "loaded from disk"):
        seconds = [part.seconds for part in parts if part.state == state]
        if seconds:
            told.append(f"{len(seconds)} {state} in {sum(seconds):.2f} s")
    return f"{' and '.join(told)}, of {len(parts)} specialisations by size"


def main() -> None:
    cases = read_cases(Path(sys.argv[1])) if len(sys.argv) > 1 else read_cases()

    print("The program:\n")
    print(az.pretty(objective))
    print(
        f"\nIts gradient has {gradient.at().term.count()} constructs, "
        f"{az.simplify(gradient.at().term).count()} after simplification."
    )
    evaluated = az.evaluate(gradient)
    one, two = az.compile(gradient, threads=1), az.compile(gradient, threads=2)

    for case in cases:
        print(f"\n{case.name}\n")
        by_one, by_two = flat(one(*case.arguments)), flat(two(*case.arguments))
        same = all(a.tobytes() == b.tobytes() for a, b in zip(by_one, by_two, strict=True))
        for name, call in (("evaluate", evaluated), ("one thread", one), ("two threads", two)):
            off = ", ".join(f"{part} {e:.0e}" for part, e in errors(call(*case.arguments), case).items())
            print(f"  {name:11} {milliseconds(call, case.arguments):8.2f} ms   error: {off}")
        print(f"  one and two threads agree bit for bit: {'yes' if same else 'NO'}")
        print(f"  code by now: {code_of(one)}")
        if not same:
            sys.exit("the number of threads changed the result")


if __name__ == "__main__":
    main()
