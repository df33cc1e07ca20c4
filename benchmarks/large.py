"""Programs over chunks: on one machine, out of core, and on workers, beside what one would use otherwise.

    python benchmarks/large.py [--points 10000000] [--dimensions 16] [--gigabytes 8] [--quick] [--output FILE]

* *in memory*: plain compiled code, chunks on one machine, one worker process and two (a thread each, the points kept by
  the workers), all on one thread a process; and plain code in two processes at once with half of the points each, which
  is what two cores of the machine gain for programs that share nothing;
* *peers*: the same as one writes them with ``dask.array``, on two workers, from the same kept chunks;
* *out of core*: a file that is read cold (its pages are dropped before each run), with ``memory="1GB"``, beside a plain
  read of it, and the same chunks computed from memory; the memory of the process is measured from outside;
* *fits*: ten steps of k-means, a logistic regression by L-BFGS and the first principal component, in chunks on all
  threads of this machine, beside scikit-learn (of the ``peers``);
* *rounds*: a step over 64 chunks of little work, beside an empty task for each worker;
* *graphs*: what 10^5 chunks take to be planned and combined, simulated.

All agree at a small size before anything is timed. Times are medians of calls in turns, with the range. What was
measured is kept in benchmarks/results/large/large.json, part by part, and its tables in large.md beside that folder;
``report.py`` reads it. With ``--quick`` sizes are small, and tables are written where ``--output`` says, or nowhere.
"""

import argparse
import json
import multiprocessing
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from measure import error, leaves, processor, versions
from programs import large
from report import RESULTS, table

import adze as az

GRADIENT = az.value_and_grad(large.mixture, argnums=(1, 2))
LOSS = az.value_and_grad(large.logistic, argnums=2)
ROUNDS = 5
PACKAGES = ("adze-lang", "numpy", "dask", "distributed", "scikit-learn")
BLOCK = 1 << 26  # bytes of a plain read

Record = dict[str, Any]  # what was measured, as it is kept


def chunked(f: Any, **options: Any) -> Any:
    return az.compile(f, backend="dask", over="n", threads=1, **options)


def client_of(workers: int) -> Any:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    return Client(cluster)


def closed(client: Any) -> None:
    cluster = client.cluster
    client.close()
    cluster.close()


def timed(calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of calls in turns, after one of each."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - start)
    return found


def summary(found: Mapping[str, Sequence[float]]) -> Record:
    """Medians with their ranges, by call."""
    return {
        name: {"median": statistics.median(each), "low": min(each), "high": max(each)} for name, each in found.items()
    }


def shown(times: Mapping[str, float]) -> str:
    return f"{times['median'] * 1e3:.4g} ({times['low'] * 1e3:.4g} to {times['high'] * 1e3:.4g})"


def ratio(row: Record, of: str, over: str) -> float:
    return float(row[of]["median"] / row[over]["median"])


def problem(n: int, d: int, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Points, centroids, weights and labels."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(n, d))
    return x, x[:10].copy(), chance.normal(size=10), np.sign(x @ chance.normal(size=d))


def check() -> None:
    """Everybody agrees at a small size."""
    import dask.array as da

    x, c, weights, y = problem(3000, 4)
    programs: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "step": (large.step, (x, c)),
        "clusters": (large.clusters, (x, c, 5)),
        "mixture": (GRADIENT, (x, c, weights)),
        "logistic": (LOSS, (x, y, np.full(4, 0.1))),
        "component": (large.component, (x, np.ones(4), 9)),
        "normalised": (large.normalised, (x[:, 0].copy(), np.empty(32))),
        "normal equations": (large.normal_equations, (np.array([1.0, 0.5, 0.1]), np.abs(x[:, 0]), y)),
    }
    for name, (f, arguments) in programs.items():
        wanted = leaves(az.evaluate(f)(*arguments))
        assert error(leaves(chunked(f, chunk=400)(*arguments)), wanted) < 1e-10, name
        if name in large.IN_DASK:
            split = [
                da.from_array(a, chunks=(400, *a.shape[1:])) if np.ndim(a) and len(a) == len(x) else a
                for a in arguments
            ]
            assert error(leaves(large.IN_DASK[name](*split)), wanted) < 1e-10, name
    print("all agree at a small size")


PROGRAMS: dict[str, Any] = {"step of k-means": large.step, "gradient of a mixture": GRADIENT}


def points_and_others(n: int, d: int) -> tuple[Any, dict[str, tuple[Any, ...]]]:
    """The points, and what each program takes beside them."""
    x, c, weights, _ = problem(n, d)
    return x, {"step of k-means": (c,), "gradient of a mixture": (c, weights)}


def of_half(half: int, n: int, d: int, asked: Any) -> None:
    """A process that runs plain programs on half of the points, as often as it is asked to."""
    x, others = points_and_others(n, d)
    x = x[half * n // 2 : (half + 1) * n // 2].copy()
    compiled = {name: az.compile(f, threads=1) for name, f in PROGRAMS.items()}
    while (name := asked.recv()) is not None:
        compiled[name](x, *others[name])
        asked.send(name)


def in_memory(n: int, d: int, rounds: int) -> Record:
    """Plain code, plain code in two processes at once, chunks, one worker and two, in turns."""
    import dask.array as da

    x, others = points_and_others(n, d)
    clients = {workers: client_of(workers) for workers in (1, 2)}
    kept = {k: client.persist(da.from_array(x, chunks=(n // 20, d))) for k, client in clients.items()}
    pipes, processes = list[Any](), list[Any]()
    for half in (0, 1):
        here, there = multiprocessing.Pipe()
        pipes.append(here)
        processes.append(multiprocessing.get_context("spawn").Process(target=of_half, args=(half, n, d, there)))
        processes[-1].start()

    def halves(name: str | None) -> None:
        for pipe in pipes:
            pipe.send(name)
        for pipe in pipes if name else ():
            pipe.recv()

    rows = Record()
    for name, f in PROGRAMS.items():
        plain, local, one, two = (
            az.compile(f, threads=1), chunked(f), chunked(f, client=clients[1]), chunked(f, client=clients[2])
        )  # fmt: skip
        calls = {
            "plain": lambda plain=plain, o=others[name]: plain(x, *o),
            "halves": lambda name=name: halves(name),
            "chunks": lambda local=local, o=others[name]: local(x, *o),
            "1": lambda one=one, o=others[name]: one(kept[1], *o),
            "2": lambda two=two, o=others[name]: two(kept[2], *o),
        }
        rows[name] = summary(timed(calls, rounds))
    halves(None)
    for process in processes:
        process.join()
    for client in clients.values():
        closed(client)
    return {"size": f"{n} points of {d}, in memory", "programs": rows}


def beside_peers(n: int, d: int) -> Record:
    """What a user of dask.array has on two workers."""
    import dask.array as da

    x, c, _, y = problem(n, d)
    client = client_of(2)
    kept, labels, column = client.persist([da.from_array(a, n // 20) for a in (x, y, x[:, 0].copy())])
    step, both, bins = (chunked(f, client=client) for f in (large.step, LOSS, large.normalised))
    peers = {
        "step of k-means": compared(step, large.step_in_dask, (kept, c)),
        "logistic regression": compared(both, large.logistic_in_dask, (kept, labels, c[0])),
        "histogram": compared(bins, large.normalised_in_dask, (column, np.empty(64))),
    }
    closed(client)
    return {"size": f"{n} points of {d}, in memory", "programs": peers}


def fits(n: int, d: int) -> Record:
    """Whole fits in chunks, and in scikit-learn, which agree."""
    from scipy.optimize import minimize

    x, c, _, y = problem(n, d)
    x[:, 0] *= 3.0  # one direction of most variance
    clusters, slope, component = (
        az.compile(f, backend="dask", over="n") for f in (large.clusters, LOSS, large.component)
    )

    def regression() -> Any:
        return minimize(lambda w: slope(x, y, w), np.zeros(d), jac=True, method="L-BFGS-B", tol=1e-6).x

    def direction() -> Any:
        found = component(x, np.ones(d), 20)
        return found * np.sign(found[0])

    def direction_in_scikit_learn() -> Any:
        found = large.component_in_scikit_learn(x)
        return found * np.sign(found[0])

    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any], float]] = {
        "k-means, 10 steps": (lambda: clusters(x, c, 10), lambda: large.clusters_in_scikit_learn(x, c, 10), 1e-8),
        "logistic regression": (regression, lambda: large.regression_in_scikit_learn(x, y), 1e-3),
        "principal component": (direction, direction_in_scikit_learn, 1e-6),
    }
    rows = Record()
    for name, (ours, theirs, within) in calls.items():
        assert np.abs(ours() - theirs()).max() < within, name
        rows[name] = summary(timed({"ours": ours, "theirs": theirs}, 3))
    return {"size": f"{n} points of {d}, in memory", "programs": rows}


def fits_text(found: Record) -> list[str]:
    rows = [
        [name, shown(row["ours"]), shown(row["theirs"]), f"{ratio(row, 'ours', 'theirs'):.2f}"]
        for name, row in found["programs"].items()
    ]
    return [
        f"## Beside scikit-learn: {found['size']}, all threads",
        table(["ms", "Adze", "scikit-learn", "share"], rows),
    ]


def compared(ours: Callable[..., Any], theirs: Callable[..., Any], arguments: tuple[Any, ...]) -> Record:
    return summary(timed({"ours": lambda: ours(*arguments), "theirs": lambda: theirs(*arguments)}, 3))


def memory_text(found: Record) -> list[str]:
    rows = [
        [
            name,
            *[shown(row[key]) for key in ("plain", "halves", "chunks", "1", "2")],
            f"{ratio(row, '1', 'plain'):.2f}",
            f"{ratio(row, '1', '2'):.2f}",
            f"{ratio(row, 'plain', 'halves'):.2f}",
        ]
        for name, row in found["programs"].items()
    ]
    columns = ["plain", "2 plain, half each", "chunks here", "1 worker", "2 workers"]
    head = ["ms", *columns, "1 worker over plain", "gain of 2 workers", "gain of 2 plain"]
    return [f"## In memory: {found['size']}", table(head, rows)]


def peers_text(found: Record) -> list[str]:
    rows = [
        [name, shown(row["ours"]), shown(row["theirs"]), f"{ratio(row, 'ours', 'theirs'):.2f}"]
        for name, row in found["programs"].items()
    ]
    return [
        f"## As written with dask.array: {found['size']} on 2 workers",
        table(["ms", "Adze", "dask.array", "share"], rows),
    ]


OUTSIDE = """
import sys, time
sys.path[:0] = {path!r}
import numpy as np, adze as az
from large import GRADIENT, chunked
from programs import large
mapped = np.memmap({file!r}, np.float64, "r", shape=({n}, {d}))
c, weights = np.array(mapped[:10]), np.zeros(10)
f, others = {{
    "sum": (large.total, ()), "step of k-means": (large.step, (c,)), "gradient of a mixture": (GRADIENT, (c, weights))
}}[{name!r}]
run = az.compile(f, backend="dask", over="n", memory="1GB")
run(mapped[:100_000], *others)
in_memory = np.fromfile({file!r}, count={part} * {d}).reshape({part}, {d})  # the map has its pages in memory for long
start = time.perf_counter(); run(in_memory, *others); computed = time.perf_counter() - start
del in_memory
print("ready", computed, flush=True)
input()
start = time.perf_counter(); run(mapped, *others); print(time.perf_counter() - start, flush=True)
"""


def dropped(path: Path) -> None:
    """Leave nothing of a file in the cache of the system."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(path: Path) -> float:
    dropped(path)
    start = time.perf_counter()
    buffer = memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def resident(pid: int) -> float:
    """The megabytes that a process has in memory, mapped files included."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssFile"))) / 1e3


def out_of_core(gigabytes: float, d: int, folder: Path) -> Record:
    n = int(gigabytes * 1e9 / 8 / d)
    path = folder / "points.bin"
    chance = np.random.default_rng(1)
    with path.open("wb") as file:
        for start in range(0, n, 1_000_000):
            file.write(chance.normal(size=(min(1_000_000, n - start), d)).tobytes())
    part, rows = n // 8, Record()
    for name in ("sum", "step of k-means", "gradient of a mixture"):
        read = min(plain_read(path) for _ in range(2))
        script = OUTSIDE.format(path=sys.path[:1], file=str(path), n=n, d=d, part=part, name=name)
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            computed = float(process.stdout.readline().split()[1]) * n / part
            dropped(path)
            peak = 0.0
            process.stdin.write("\n")
            process.stdin.flush()
            os.set_blocking(process.stdout.fileno(), False)
            while not (line := process.stdout.readline()):
                peak = max(peak, resident(process.pid))
                time.sleep(0.01)
            taken = float(line)
        rows[name] = {"cold": taken, "read": read, "computed": computed, "megabytes": peak}
    path.unlink()
    return {"gigabytes": gigabytes, "programs": rows}


def over_the_larger(row: Record) -> float:
    """The time of a cold file, over that of reading or of computing alone."""
    return float(row["cold"] / max(row["read"], row["computed"]))


def file_text(found: Record) -> list[str]:
    rows = [
        [
            name,
            *[f"{row[key]:.2f}" for key in ("cold", "read", "computed")],
            f"{over_the_larger(row):.2f}",
            f"{row['megabytes']:.0f}",
        ]
        for name, row in found["programs"].items()
    ]
    head = ["s", "cold, memory=1GB", "plain cold read", "from memory", "over the larger", "most memory, MB"]
    return [f"## Out of core: a file of {found['gigabytes']:g} GB, all threads", table(head, rows)]


def rounds() -> Record:
    """A step over 64 chunks, beside an empty task for each worker."""
    client = client_of(2)
    x = np.arange(64_000.0)
    f = chunked(large.total, client=client, chunk=1000)
    kept = client.persist(_kept(x.reshape(-1, 1), 1000))
    bare = {"bare": lambda: client.gather([client.submit(int, pure=False) for _ in range(2)]), "step": lambda: f(kept)}
    found = timed(bare, 20)
    closed(client)
    return summary(found)


def rounds_text(found: Record) -> list[str]:
    cells = [shown(found["step"]), shown(found["bare"]), f"{ratio(found, 'step', 'bare'):.2f}"]
    return [
        "## A round of 64 chunks on 2 workers",
        table(["ms", "step", "an empty task a worker", "ratio"], [["sum", *cells]]),
    ]


def _kept(x: Any, chunk: int) -> Any:
    import dask.array as da

    return da.from_array(x, chunks=(chunk, x.shape[1]))


def graphs(chunks: int) -> Record:
    """What so many chunks take of whoever calls: the graph of results that are as long as the size, and the tree."""
    from adze.backends.chunked.trees import Tree

    doubled = az.program(lambda x: 2.0 * x).at(az.Array[az.f64, "n"])
    x = np.zeros(chunks)
    f = chunked(doubled, chunk=1)
    f(x[:10])
    start = time.perf_counter()
    made = f(x)
    graph = dict(made.dask)
    built = time.perf_counter() - start
    start = time.perf_counter()
    depth = Tree(chunks, lambda a, b: max(a, b) + 1)
    for k in range(chunks):
        depth.add(0, k, 0)
    combined = time.perf_counter() - start
    return {"chunks": chunks, "graph": built, "tasks": len(graph), "tree": combined, "depth": depth.root}


def graphs_text(found: Record) -> list[str]:
    numbers = [f"{found[key]:.2f}" for key in ("graph", "tree")]
    row = [f"{found['chunks']}", numbers[0], f"{found['tasks']}", numbers[1], f"{found['depth']}"]
    return ["## Graphs, simulated", table(["chunks", "graph, s", "tasks", "tree, s", "its depth"], [row])]


TEXTS = {
    "memory": memory_text,
    "peers": peers_text,
    "fits": fits_text,
    "file": file_text,
    "rounds": rounds_text,
    "graphs": graphs_text,
}


def tables(parts: Record) -> str:
    """The tables of all parts, and from which run each is."""
    runs: dict[str, list[str]] = {}
    for name in TEXTS:
        if name in parts:
            runs.setdefault(parts[name]["run"], []).append(name)
    sources = [f"{', '.join(names)}: {run}." for run, names in runs.items()]
    text = [line for name, of_part in TEXTS.items() if name in parts for line in of_part(parts[name])]
    return "\n\n".join(["# Programs over chunks", *sources, *text]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10**7)
    parser.add_argument("--dimensions", type=int, default=16)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the part memory")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--parts", nargs="*", default=[name for name in TEXTS if name != "fits" or find_spec("sklearn")]
    )
    given = parser.parse_args()
    n, size, count = (200_000, 0.2, 10_000) if given.quick else (given.points, given.gigabytes, 100_000)
    check()
    run = f"`{shlex.join(['python', *sys.argv])}`, {processor()}; {versions(PACKAGES)}"
    kept = RESULTS / "large" / "large.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() and not given.quick else {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        parts: dict[str, Callable[[], Record]] = {
            "memory": lambda: in_memory(n, given.dimensions, given.rounds),
            "peers": lambda: beside_peers(n, given.dimensions),
            "fits": lambda: fits(n // 10, given.dimensions),
            "file": lambda: out_of_core(size, given.dimensions, Path(folder)),
            "rounds": rounds,
            "graphs": lambda: graphs(count),
        }
        for name in given.parts:
            found[name] = {"run": run, **parts[name]()}
            print("\n\n".join(TEXTS[name](found[name])), flush=True)
    if not given.quick:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    output = given.output or (None if given.quick else RESULTS / "large.md")
    if output is not None:
        output.write_text(tables(found), encoding="utf-8")


if __name__ == "__main__":
    main()
