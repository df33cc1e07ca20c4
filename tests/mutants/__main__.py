"""``make mutants``: the tests must notice every wrong rule.

Each mutant (``changes.py``) is one wrong version of a derivative: a scalar partial with its sign turned, or one place
in a module of rules (``mutations.py`` says how). The tests of derivatives run against it until one fails, and then it
is killed. A mutant that survives them all is printed, and the run fails: a test is missing. Mutants that mean the same
as the original are listed in ``equivalent.py``, each with its reason; an entry there that fits no mutant fails the run.

How it is fast: pytest collects the tests once. Some forks of that process run all of them and note which places
of the rules and which partials each of them reaches; a test that fails there fails the run. Each mutant is a fork, too,
in which the functions have other code (``living.py``); it runs the tests that reach its place, those that have killed
most so far first. Programs are evaluated and not compiled: what is tested here is the rules. So tests of compiled
programs (with "compile" in their names), slow tests and tests that count operations are not run.

So that the run says something, the tests must pass without a mutant, one that changes nothing must survive, and each
other must change the code of a function that is there.

A mutant may do anything: its memory is limited, and a test that takes ``PATIENCE`` seconds of processor time has
noticed it.

    python tests/mutants                 all mutants
    python tests/mutants combining 127   those whose description holds all these words
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from changes import ROOT, Mutant, Nothing, all_mutants, files, module
from equivalent import EQUIVALENT
from living import Living
from mutations import noting, source

import adze as az
from adze.core.primitive import PRIMITIVES
from adze.core.program import RUNNERS, Instance
from adze.core.trees import unflatten
from adze.interpreters.evaluate import convert, evaluate_block

TESTS = (
    "checkpoint", "combining", "custom", "derivative", "forward", "in_place", "jacobian", "reverse", "rule", "tape",
    "trace_corners", "trace_gradients",
)  # fmt: skip
HOLD_SOME = ("primitives",)  # files of which only the tests with such names are run
LEFT_OUT = ("compile", "cost", "linear_time", "printed", "the_work_of")
PATIENCE = 60  # seconds of processor time for one test
MEMORY = 4 << 30  # bytes of address space that a mutant may add
PROCESSORS = os.cpu_count() or 1
PROCESSES = multiprocessing.get_context("fork")
NOTE = "_note_spot"


# Tests


def is_wanted(name: str) -> bool:
    return any(word in name for word in TESTS) and not any(word in name for word in LEFT_OUT)


@dataclass
class Use:
    """What a test did: whether it passed, how long it took, and the spots that it reached."""

    passed: bool
    seconds: float
    spots: set[object]


def passes(item: pytest.Item) -> bool:
    """Run a test; a process of its own ends when it runs for too long."""
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    reports = runtestprotocol(item, log=False, nextitem=None)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return all(report.passed for report in reports)


def watched(items: Sequence[pytest.Item], living: Living) -> Iterator[Use]:
    """Run the tests as they are, and see what they reach."""
    reached: set[object] = set()
    for file in files():
        setattr(module(file), NOTE, noted_in(file, reached))
        living.change(file, noting(ROOT, file, NOTE))
    for row in PRIMITIVES.values():
        if row.derivative is not None:
            object.__setattr__(row, "derivative", noted(row.name, row.derivative, reached))
    for item in items:
        reached.clear()
        forget()
        start = time.perf_counter()
        passed = passes(item)
        yield Use(passed, time.perf_counter() - start, set(reached))


def forget() -> None:
    """Empty the caches of the rules: what one test has left there the next one would not be seen to reach."""
    for file in files():
        for found in vars(module(file)).values():
            if hasattr(found, "cache_clear"):
                found.cache_clear()


def noted_in(file: str, reached: set[object]) -> Callable[[int], None]:
    return lambda spot: reached.add((file, spot))


def noted(name: str, rule: Callable[..., Any], reached: set[object]) -> Callable[..., Any]:
    def noting(*arguments: Any) -> Any:
        reached.add(name)
        return rule(*arguments)

    return noting


def evaluated_only() -> None:
    """From here on what is compiled elsewhere is evaluated."""
    evaluate, block, converted, structure = az.evaluate, evaluate_block, convert, unflatten

    def values(instance: Instance, leaves: Sequence[Any]) -> Any:
        return structure(instance.outputs, block(instance.term, *converted(instance, leaves), True, silent))

    def compiled(program: Any, **options: Any) -> Any:
        return evaluate(program, show=silent)

    def silent(name: str, values: Sequence[Any]) -> None:
        """Compiled programs show no probes."""

    RUNNERS["default"], az.compile = _as_in_the_package(values), _as_in_the_package(compiled)


def _as_in_the_package(function: FunctionType) -> Any:
    """The function as if it stood in ``adze/__init__.py``: no line of it is taken for the user's."""
    made = FunctionType(function.__code__, vars(az), closure=function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# Runs


class Run:
    """All mutants against the tests that pytest has collected."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self.items = [item for item in items if is_wanted(item.nodeid.removeprefix("tests/"))]
        self.living = Living(ROOT, [file for file in files() if module(file)])
        self.kills: dict[str, int] = {}
        self.uses: dict[str, Use] = {}

    def faults(self, mutants: Sequence[Mutant], whole: bool) -> Iterator[str]:
        """Mutants that survive, and whatever else is wrong."""
        for file in files():
            if self.living.change(file, source(ROOT, file)):
                yield f"{file}: its functions are not those of its source"
        self.watch()
        for name, use in self.uses.items():
            if not use.passed:
                yield f"fails without a mutant: {name}"
        for mutant, (end, what) in self.results([Nothing(min(mutants, key=self.facing_count).spot)]):
            if end == "killed":
                yield f"{mutant} is killed by {what}"
        for mutant, (end, what) in self.results([mutant for mutant in mutants if mutant.key not in EQUIVALENT]):
            if end == "killed":
                self.kills[what] = self.kills.get(what, 0) + 1
            else:
                yield f"{end} {mutant}"
        if whole:
            for key in EQUIVALENT.keys() - {mutant.key for mutant in mutants}:
                yield f"listed as equivalent, but no mutant: {key}"

    def watch(self) -> None:
        """See what the tests reach, in as many processes as there are processors."""

        def work(items: Sequence[pytest.Item], send: Any) -> None:
            quiet()
            try:
                send.send({item.nodeid: use for item, use in zip(items, watched(items, self.living), strict=True)})
            except Exception:
                send.send(traceback.format_exc())

        watchers = [start(work, self.items[number::PROCESSORS]) for number in range(PROCESSORS)]
        for receive, child in watchers:
            try:
                found = receive.recv()
            except EOFError:
                found = f"a process in which tests were watched has ended: does a test take {PATIENCE} s?"
            if isinstance(found, str):
                raise RuntimeError(found)
            self.uses |= found
            child.join()

    def facing(self, mutant: Mutant) -> list[pytest.Item]:
        """The tests that reach what a mutant changes, the likeliest killers first."""

        def order(item: pytest.Item) -> float:
            return -(self.kills.get(item.nodeid, 0) + 0.2) / (self.uses[item.nodeid].seconds + 0.02)

        return sorted([item for item in self.items if self.reaches(item, mutant)], key=order)

    def facing_count(self, mutant: Mutant) -> float:
        return len(self.facing(mutant)) or math.inf

    def reaches(self, item: pytest.Item, mutant: Mutant) -> bool:
        use = self.uses[item.nodeid]
        return use.passed and mutant.spot in use.spots

    def results(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, tuple[str, str]]]:
        """Each mutant with its end, in the order in which they end; so many at once as there are processors."""
        waiting, running = list(reversed(mutants)), dict[Any, tuple[Mutant, Any]]()
        while waiting or running:
            while waiting and len(running) < PROCESSORS:
                mutant = waiting.pop()
                receive, child = start(self.work, mutant)
                running[receive] = mutant, child
            for ready in connection.wait(list(running)):
                mutant, child = running.pop(ready)
                try:
                    result = ready.recv()  # type: ignore[union-attr]
                except EOFError:
                    result = "killed", "the end of the process"
                child.join()
                yield mutant, result

    def work(self, mutant: Mutant, send: Any) -> None:
        quiet()
        limit = address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            changes = mutant.install(self.living)
        except Exception as error:
            send.send((f"cannot be made ({error!r}):", ""))
            return
        if not changes:
            send.send(("changes nothing:", ""))
            return
        killer = next((item.nodeid for item in self.facing(mutant) if not passes(item)), None)
        send.send(("survived:", "") if killer is None else ("killed", killer))


def start(work: Callable[[Any, Any], None], given: Any) -> tuple[Any, Any]:
    """A fork of this process, and where it sends what it finds."""
    receive, send = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=work, args=(given, send))
    child.start()
    send.close()
    return receive, child


def address_space() -> int:
    """How many bytes of it this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def quiet() -> None:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)


class Plugin:
    """In place of pytest's loop over the tests."""

    def __init__(self, mutants: Sequence[Mutant], whole: bool) -> None:
        self.mutants, self.whole = mutants, whole
        self.faults = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        begin = time.perf_counter()
        run = Run(session.items)
        gc.freeze()
        for fault in run.faults(self.mutants, self.whole):
            self.faults += 1
            print(fault, flush=True)
        killed, equivalent = sum(run.kills.values()), sum(mutant.key in EQUIVALENT for mutant in self.mutants)
        seconds = time.perf_counter() - begin
        print(f"{len(self.mutants)} mutants, {killed} killed, {equivalent} equivalent, {seconds:.0f} s", flush=True)
        return True


def main(words: Sequence[str]) -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    os.chdir(ROOT)
    chosen = [mutant for mutant in all_mutants() if all(word in str(mutant) for word in words)]
    if not chosen:
        print("there is no such mutant")
        return 1
    names = sorted(path.name for path in Path("tests").glob("test_*.py"))
    names = [name for name in names if is_wanted(name) or any(word in name for word in HOLD_SOME)]
    plugin = Plugin(chosen, whole=not words)
    evaluated_only()
    options = [
        "-qq",
        "-s",
        "--tb=no",
        "--disable-warnings",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:timeout",
    ]
    options += ["-o", "addopts=", "-p", "no:xdist", *[f"tests/{name}" for name in names]]
    status = pytest.main(options, plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    return 1 if plugin.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
