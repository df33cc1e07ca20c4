"""Chunks on Dask's workers: processes of this machine, which are killed, stopped and told apart here."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load import ROOT, benchmark
from test_chunked_programs import centroids, first_component, likelihood, standardised

import adze as az
from adze.backends.chunked import cluster, lazy, workers
from adze.backends.chunked.chunked import Chunked
from adze.backends.chunked.plan import Around, Plan, Stage
from adze.backends.llvm.control import X86
from adze.backends.llvm.host import LEVELS, lacking
from adze.core import trees

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = [pytest.mark.unguarded, pytest.mark.filterwarnings("ignore::UserWarning")]

Vector = az.Array[az.f64, "n"]


def started(workers: int, threads: int = 1) -> Any:
    made = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=threads, dashboard_address=None, silence_logs=100, local_directory=None
    )
    return distributed.Client(made)


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """A cluster of this machine waits until a worker that was killed has started again, on a busy machine, too."""
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"}):
        yield


def stopped(client: Any) -> None:
    made = client.cluster
    client.close()
    made.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    made = started(2)
    yield made
    stopped(made)


def chunked(f: Any, client: Any, chunk: int | None = 100, **options: Any) -> Chunked:
    return az.compile(f, backend="dask", over="n", client=client, chunk=chunk, **options)


X = np.random.default_rng(5).normal(size=(1003, 4))
GRADIENT = az.value_and_grad(likelihood, argnums=(1, 2))
CALLS = [
    (GRADIENT, (X, X[:3], np.array([0.1, -0.4, 0.2]))),
    (centroids, (X, X[:5], 4)),
    (first_component, (X * [4.0, 1.0, 1.0, 1.0], np.ones(4))),  # which few rounds find
    (standardised, (X,)),
]


def bits(result: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in trees.flatten(result)[0]]


@pytest.mark.rest
@pytest.mark.parametrize(("f", "arguments"), CALLS, ids=lambda each: getattr(each, "name", ""))
def test_the_same_bits_as_on_one_machine(client: Any, f: az.Program, arguments: Any, tmp_path: Path) -> None:
    wanted = bits(chunked(f, None)(*arguments))
    assert bits(chunked(f, client)(*arguments)) == wanted
    x, *rest = arguments
    np.save(tmp_path / "x.npy", x)
    for source in (np.load(tmp_path / "x.npy", mmap_mode="r"), da.from_array(x, chunks=(100, 4)), FromWorkers(x)):
        assert bits(chunked(f, client)(source, *rest)) == wanted
    assert bits(chunked(f, client, None)(client.persist(da.from_array(x, chunks=(100, 4))), *rest)) == wanted


class FromWorkers:
    """An array that workers ask for their ranges."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, place: Any) -> Any:
        return self.array[place]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (1, 3), (4, 1)])
def test_the_same_bits_on_any_number_of_workers(workers: int, threads: int) -> None:
    made = started(workers, threads)
    try:
        for f, arguments in CALLS:
            assert bits(chunked(f, made, 37)(*arguments)) == bits(chunked(f, None, 37)(*arguments))
    finally:
        stopped(made)


@pytest.mark.rest
def test_the_same_bits_in_any_order_of_completion(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, arguments = CALLS[0]
    wanted = bits(chunked(f, None)(*arguments))
    chance = random.Random(1)
    monkeypatch.setattr(cluster, "TASKS_A_THREAD", 4)

    def slowly(*given: Any) -> Any:
        time.sleep(chance.random() / 20)
        return run(*given)

    run = cluster._run
    monkeypatch.setattr(cluster, "_run", slowly)
    for _ in range(3):
        assert bits(chunked(f, client)(*arguments)) == wanted


def test_failures_have_the_users_line_and_the_first_index(client: Any) -> None:
    @az.program
    def looked_up(table: az.Array[az.f64, "k"], i: az.Array[az.i64, "n"]) -> az.f64:
        return az.sum(az.map(lambda j: table[j], i))

    places = np.arange(1000) % 5
    places[[950, 313]] = 9, 8
    with pytest.raises(IndexError, match=r"index 8 is out of range for axis 0 of table.*test_cluster.py"):
        chunked(looked_up, client, 10)(np.arange(5.0), places)
    assert chunked(looked_up, client, 10)(np.arange(5.0), places % 5) == (places % 5).sum()


def test_what_is_large_is_sent_once(client: Any) -> None:
    @az.program
    def weighted(x: Vector, table: az.Array[az.f64, "k"]) -> az.f64:
        return az.sum(x) * az.sum(table) + az.sum(az.map(lambda a: a * table[3], x))

    x, table = np.arange(500.0), np.ones(400_000)
    assert table.nbytes > cluster.LARGE
    assert chunked(weighted, client, 50)(x, table) == chunked(weighted, None, 50)(x, table)


@pytest.mark.rest
def test_a_fit_sends_its_data_once(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @az.program
    def decay(p: az.Array[az.f64, 2], t: Vector, y: Vector) -> Vector:
        return p[0] * az.exp(-p[1] * t) - y

    sent: list[Any] = []
    send = workers.scattered
    monkeypatch.setattr(workers, "scattered", lambda client, value, **how: sent.append(value) or send(client, value))
    t = np.linspace(0.0, 2.0, 500)
    fit = az.least_squares(chunked(decay, client), np.ones(2), (t, 3.0 * np.exp(-0.5 * t)))
    np.testing.assert_allclose(fit.x, [3.0, 0.5], rtol=1e-6)
    assert fit.nfev > 2 and len(sent) == 2  # t and y


class Losing:
    """A client whose connections to workers are closed so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def scatter(self, value: Any, broadcast: bool, hash: bool) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise distributed.comm.core.CommClosedError("Stream is closed")
        return value


def test_a_worker_that_is_lost_while_it_is_sent_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PAUSE", 0.0)
    assert workers.scattered(Losing(workers.SENDINGS - 1), [1]) == [1]
    with pytest.raises(RuntimeError, match="arrays cannot be sent to workers: Stream is closed"):
        workers.scattered(Losing(workers.SENDINGS), [1])


@pytest.mark.parametrize(
    ("holders", "threads", "wanted"),
    [
        ("aaaa", {"a": 1, "b": 1}, "aabb"),
        ("aabbaa", {"a": 1, "b": 1}, "aabbab"),
        ("aaaaaa", {"a": 1, "b": 2}, "aabbbb"),
        ("bbb", {"a": 1, "b": 1}, "bba"),
        (["ab", "ab", "ab", "a"], {"a": 1, "b": 1}, "baba"),  # as it is behind a call that has moved some
        ("xa", {"a": 1, "b": 1}, "ba"),  # x is gone
        ("", {"a": 1}, ""),
    ],
)
def test_each_worker_has_its_share(holders: Sequence[str], threads: dict[str, int], wanted: str) -> None:
    assert "".join(cluster.shared_out(holders, threads)) == wanted


@pytest.fixture
def keeping() -> Iterator[Any]:
    """A client whose scheduler drops no replica and lets no idle worker take tasks of another's."""
    with dask.config.set(
        {"distributed.scheduler.active-memory-manager.start": False, "distributed.scheduler.work-stealing": False}
    ):
        made = started(2)
        yield made
        stopped(made)


def test_what_one_worker_holds_moves_to_others_for_all_calls(keeping: Any) -> None:
    x = da.from_array(X, chunks=(100, 4))
    one, other = keeping.nthreads()
    kept = keeping.persist(x, workers=[one])
    distributed.wait(kept)
    f = chunked(centroids, keeping, None)
    assert bits(f(kept, X[:5], 2)) == bits(chunked(centroids, None)(X, X[:5], 2))
    held = keeping.has_what()
    assert sum(key in held[other] for key in dask.core.flatten(kept.__dask_keys__())) == 5


def test_runs_of_chunks_that_are_no_neighbours_have_what_they_need() -> None:
    found = workers.Ranges.of(cluster.InMemory(X, 0), [(0, 3), (3, 7), (20, 25), (40, 41)])
    assert found.firsts == (0, 20, 40) and sum(map(len, found.arrays)) == 13
    for start, stop in ((0, 3), (3, 7), (20, 25), (40, 41)):
        assert np.array_equal(found.read(start, stop), X[start:stop])


def test_chunks_are_read_where_they_are_or_copied_to_memory_that_is_kept() -> None:
    odd = np.zeros(X.nbytes + 5, np.uint8)[5:].view(X.dtype).reshape(X.shape)  # as they come over a network
    with workers.recycled(2) as first:
        assert not odd.flags.aligned and lazy.read(odd, (0, len(X)), first[0]) is odd
        found = lazy.read(X.T, (0, len(X)), first[1])
        assert found.flags.c_contiguous and np.array_equal(found, X.T)
    with workers.recycled(2) as second:
        assert np.shares_memory(lazy.read(X[:7].T, (0, 7), second[1]), found)


def test_results_are_not_in_memory_that_is_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    same = az.program(lambda x: (x, x[0])).at(az.Array[az.f64, "n d"])
    found, row = chunked(same, None)(np.load(tmp_path / "x.npy", mmap_mode="r"))
    for scheduler in ("synchronous", "threads"):
        assert np.array_equal(found.compute(scheduler=scheduler), X) and np.array_equal(row, X[0])


def pids(client: Any) -> list[int]:
    return list(client.run(os.getpid).values())


def killing(client: Any, after: float) -> threading.Thread:
    """Kill a worker a while from now."""
    victim = random.choice(pids(client))

    def kill() -> None:
        time.sleep(after)
        os.kill(victim, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@az.program
def long(x: Vector, steps: az.i64) -> az.f64:
    """Enough rounds to be hit in one of them."""
    return az.fori_loop(0, steps, lambda i, s: az.sum(az.sin(x + s / 1000.0)) / az.size(x, 0), 0.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("source", ["memory", "dask", "file"])
@pytest.mark.parametrize("after", [0.1, 0.7])
def test_a_worker_that_is_killed_is_replaced(source: str, after: float, tmp_path: Path) -> None:
    made = started(2)
    try:
        x = np.random.default_rng(1).normal(size=20_000)
        np.save(tmp_path / "x.npy", x)
        given = {
            "memory": x,
            "dask": da.from_array(x, chunks=1000),
            "file": np.load(tmp_path / "x.npy", mmap_mode="r"),
        }[source]
        wanted = chunked(long, None, 1000)(x, 40)
        f = chunked(long, made, 1000)
        f(given, 1)  # compiled
        thread = killing(made, after)
        assert f(given, 40) == wanted
        thread.join()
    finally:
        stopped(made)


@pytest.mark.rest
def test_a_slow_worker_changes_no_bits(client: Any) -> None:
    """One that does nothing for a second: the call ends, whoever does its part."""
    f, arguments = CALLS[0]
    wanted, on_workers = bits(chunked(f, None)(*arguments)), chunked(f, client)
    on_workers(*arguments)  # compiled
    victim = pids(client)[0]
    timer = threading.Timer(1.0, os.kill, (victim, signal.SIGCONT))
    os.kill(victim, signal.SIGSTOP)
    timer.start()
    assert bits(on_workers(*arguments)) == wanted
    timer.join()


def stages(plan: Plan) -> Iterator[int]:
    """The numbers of the stages of a plan, those of loops included."""
    for step in plan.steps:
        if isinstance(step, Stage):
            yield step.number
        elif isinstance(step, Around):
            for inner in step.plans:
                yield from stages(inner)


large = benchmark("large")
SIGNS = np.sign(X @ np.array([1.0, -2.0, 0.5, 0.2]))
T, TABLE = np.abs(X[:, 0]), np.linspace(0.0, 1.0, 200_000)
assert TABLE.nbytes > cluster.LARGE


@az.program
def looked_up_sums(x: Vector, table: az.Array[az.f64, "k"]) -> tuple[az.f64, Vector]:
    """Two stages that are given an array which all workers are sent, and a result that is."""
    first = az.sum(az.map(lambda a: a * table[3], x))
    second = az.sum(az.map(lambda a: a * first * table[5], x))
    return second, az.map(lambda a: a + second * table[7], x)


PROGRAMS = [
    ("k-means", centroids, (X, X[:5], 4)),
    ("mixture", GRADIENT, (X, X[:3], np.array([0.1, -0.4, 0.2]))),
    ("logistic regression", az.value_and_grad(large.logistic, argnums=2), (X, SIGNS, np.full(4, 0.1))),
    ("principal component", large.component, (X, np.ones(4), 3)),
    ("histogram", large.normalised, (X[:, 0].copy(), np.empty(32))),
    ("moments", standardised, (X,)),
    ("normal equations", large.normal_equations, (np.array([1.0, 0.5, 0.1]), T, SIGNS)),
    ("what is replicated", looked_up_sums, (X[:, 0].copy(), TABLE)),
]


def from_elsewhere(arguments: Sequence[Any], source: str, folder: Path) -> list[Any]:
    """The arguments of a call, with those that are cut from another source."""
    made = list(arguments)
    for k, each in enumerate(arguments):
        if np.ndim(each) and len(each) == len(X):
            np.save(folder / f"{k}.npy", each)
            chunks = (100, *np.shape(each)[1:])
            mapped = np.load(folder / f"{k}.npy", mmap_mode="r")
            made[k] = {"memory": each, "dask": da.from_array(each, chunks=chunks), "file": mapped}[source]
    return made


def in_each_stage() -> list[Any]:
    """Programs with where their data are from; one that has all kinds of stages is tried each time."""
    each = [(f"{name}, {source}", f, a, source) for name, f, a in PROGRAMS for source in ("memory", "dask", "file")]
    return [
        pytest.param(*rest, id=name, marks=() if name == "moments, memory" else pytest.mark.slow)
        for name, *rest in each
    ]


@pytest.mark.rest
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("f", "arguments", "source"), in_each_stage())
def test_a_worker_that_is_killed_in_each_stage(
    client: Any, f: az.Program, arguments: Any, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = from_elsewhere(arguments, source, tmp_path)
    wanted = bits(chunked(f, None)(*arguments))
    once, gathered = cluster.Cluster._once, cluster.Cluster._gathered
    now: list[int] = []  # the numbers of the stages that have been started
    killed: list[int] = []  # those in which a worker was killed

    def kill(stage: int) -> None:
        killed.append(stage)
        os.kill(random.choice(pids(client)), signal.SIGKILL)

    def noting(self: Any, stage: Any, *others: Any) -> Any:
        now.append(stage.number)
        return once(self, stage, *others)

    def killing_first(self: Any, futures: Any) -> Any:
        if now[-1] == victim and not killed:
            kill(victim)
        return gathered(self, futures)

    monkeypatch.setattr(cluster.Cluster, "_once", noting)
    monkeypatch.setattr(cluster.Cluster, "_gathered", killing_first)
    on_workers = chunked(f, client)
    for victim in [*stages(on_workers.plan), 0]:  # 0: of results over the size, which are computed on demand
        client.wait_for_workers(2)
        killed.clear()
        futures = client.compute(trees.flatten(on_workers(*given))[0])
        if victim == 0:
            kill(victim)
        assert bits(client.gather(futures)) == wanted
        assert killed == [victim]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_sent_to_a_lost_worker_is_sent_again() -> None:
    made = started(2)
    try:
        x, table = np.arange(20_000.0), np.linspace(0, 1, 300_000)

        @az.program
        def f(x: Vector, table: az.Array[az.f64, "k"], steps: az.i64) -> az.f64:
            return az.fori_loop(0, steps, lambda i, s: az.sum(az.cos(x + s * table[i])) / az.size(x, 0), 0.0)

        wanted = chunked(f, None, 1000)(x, table, 30)
        on_workers = chunked(f, made, 1000)
        on_workers(x, table, 1)
        thread = killing(made, 0.4)
        assert on_workers(x, table, 30) == wanted
        thread.join()
    finally:
        stopped(made)


def test_other_versions_and_processors_are_told(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = workers.Maker.here(None)
    for other, message in [
        (workers.Maker("0.0.1", here.target), r"this worker has version .* of adze-lang, the client 0.0.1"),
        (workers.Maker(here.version, replace(here.target, registers=7)), "this worker makes code for"),
    ]:
        monkeypatch.setattr(workers.Maker, "here", staticmethod(lambda _, other=other: other))
        with pytest.raises(RuntimeError, match=message):
            chunked(likelihood, client)(X, X[:2], np.zeros(2))


@pytest.fixture
def claiming(client: Any) -> Iterator[None]:
    """A worker has another processor than the client and the others, it says."""

    def claim(features: frozenset[str] | None) -> None:
        from adze.backends.llvm import host

        host._features.cache_clear()
        host.host.cache_clear()
        if features is not None:
            known = host._features
            host._features = lambda: features  # type: ignore[assignment]
            host._features.cache_clear = lambda: setattr(host, "_features", known)  # type: ignore[attr-defined]

    (worker, *_) = client.scheduler_info()["workers"]
    client.run(claim, frozenset(LEVELS["x86-64-v2"]), workers=[worker])
    yield
    client.run(claim, None, workers=[worker])


@pytest.mark.rest
@pytest.mark.skipif(not X86 or bool(lacking("x86-64-v3")), reason="levels are of x86-64")
def test_processors_that_differ_run_code_for_a_level(client: Any, claiming: None) -> None:
    arguments = X, X[:2], np.zeros(2)
    with pytest.raises(RuntimeError, match='other bits; where processors differ, compile with cpu="x86-64-v3"'):
        chunked(likelihood, client)(*arguments)
    with pytest.raises(RuntimeError, match=r"the processor of this worker has no avx, .*, which cpu='x86-64-v3' asks"):
        chunked(likelihood, client, cpu="x86-64-v3")(*arguments)
    for cpu in ("x86-64", "x86-64-v2"):
        wanted = chunked(likelihood, None, cpu=cpu)(*arguments)
        assert bits(chunked(likelihood, client, cpu=cpu)(*arguments)) == bits(wanted)


@pytest.mark.rest
def test_clients_that_cannot_run() -> None:
    made = started(1)
    f = chunked(likelihood, made)
    stopped(made)
    with pytest.raises(ValueError, match=r"client= is closed, and runs nothing"):
        f(X, X[:2], np.zeros(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        empty = distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=100)
    client = distributed.Client(empty)
    try:
        with pytest.raises(ValueError, match="client= has no workers"):
            chunked(likelihood, client)(X, X[:2], np.zeros(2))
    finally:
        stopped(client)


def test_a_file_that_workers_do_not_see_is_named(client: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    (tmp_path / "x.npy").unlink()
    problem = r"x.npy is not there: each worker must see the file by this path \(on the worker tcp://.*\)"
    with pytest.raises(FileNotFoundError, match=problem):
        chunked(likelihood, client)(mapped, X[:2], np.zeros(2))


def test_an_interrupted_call_leaves_no_tasks(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster.Cluster, "_gathered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        chunked(likelihood, client)(X, X[:2], np.zeros(2))
    idle = 0  # looks in a row: the scheduler may be asked before it has heard of the tasks
    for _ in range(1200):  # a task that runs already, and compiles, goes on to its end
        idle = 0 if any(client.processing().values()) else idle + 1
        if idle == 20:
            break
        time.sleep(0.05)
    assert idle == 20


VANISHING = """
import sys, numpy as np, adze as az
from distributed import Client

@az.program
def long(x: az.Array[az.f64, "n"], steps: az.i64) -> az.f64:
    return az.fori_loop(0, steps, lambda i, s: az.sum(az.sin(x + s / 1000.0)) / az.size(x, 0), 0.0)

f = az.compile(long, backend="dask", over="n", client=Client(sys.argv[1]), chunk=1000)
f(np.ones(20_000), 1)
print("runs", flush=True)
f(np.ones(20_000), 10**6)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_client_that_vanishes_leaves_no_tasks(client: Any) -> None:
    command = [sys.executable, "-c", VANISHING, client.scheduler.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        assert other.stdout is not None and other.stdout.readline() == "runs\n"
        other.kill()  # and it is waited for
    for _ in range(1200):
        if not any(client.processing().values()):
            break
        time.sleep(0.05)
    assert not any(client.processing().values())


def test_calls_beside_each_other(client: Any) -> None:
    f = chunked(likelihood, client)
    wanted = f(X, X[:2], np.zeros(2))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(f(X, X[:2], np.zeros(2)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 3


@pytest.mark.rest
def test_a_cluster_and_an_address_are_clients(client: Any) -> None:
    wanted = chunked(likelihood, None)(X, X[:2], np.zeros(2))
    for each in (client.cluster, client.scheduler.address):
        assert chunked(likelihood, each)(X, X[:2], np.zeros(2)) == wanted


@pytest.mark.rest
def test_processes_that_the_commands_of_dask_start(tmp_path: Path) -> None:
    """``dask scheduler`` and ``dask worker ADDRESS``, as on several machines: here all are on the loopback."""
    place, dask_command = tmp_path / "scheduler.json", [sys.executable, "-m", "dask"]
    f, arguments = CALLS[0]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    here = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place)]
    with contextlib.ExitStack() as processes:

        def start(*command: str) -> None:
            process = processes.enter_context(subprocess.Popen([*dask_command, *command], **quiet))
            processes.callback(process.terminate)

        start("scheduler", *here)
        for _ in range(600):
            if place.exists() and place.stat().st_size:
                break
            time.sleep(0.1)
        address = json.loads(place.read_text())["address"]
        for _ in range(2):
            start("worker", address, "--nthreads", "1", "--no-dashboard")
        with distributed.Client(address) as client:
            client.wait_for_workers(2, timeout=120)
            assert bits(chunked(f, address)(*arguments)) == bits(chunked(f, None)(*arguments))
