"""Programs that the tests of ``az.torch`` and ``az.jax`` share."""

import adze as az


@az.program
def layer(w: az.Array[az.f64, "m n"], b: az.Array[az.f64, "m"], x: az.Array[az.f64, "batch n"]):
    return az.tanh(x @ w.T + b)


@az.program
def scalars(x: az.f64, y: az.f64) -> az.f64:
    return az.sin(x) * y**3


@az.program
def mixed(x: az.Array[az.f64, "n"], k: az.i64, chosen: az.Array[az.bool_, "n"]):
    found = az.where(chosen, x**2 * k, az.sin(x))
    return {"found": found, "sums": (az.sum(found), az.sum(az.where(chosen, 1, 0)), chosen)}


@az.program
def recurrence(x: az.Array[az.f64, "n"], rate: az.f64) -> az.f64:
    return az.sum(az.fori_loop(0, 5, lambda i, s: az.sin(s) + rate * x, x))


@az.program
def picked(table: az.Array[az.f64, "rows d"], rows: az.Array[az.i64, "n"]):
    return az.map(lambda row: az.logsumexp(table[row]), rows)


@az.program
def positive(x: az.Array[az.f64, "n"]):
    return az.filter(lambda v: v > 0, x**3)
