"""``make mutants``: the tests must notice every wrong rule. ``make mutants-backends``: and a wrong compiler.

Each mutant (``changes.py``) is one wrong version of a derivative: a scalar partial with its sign turned, or one place
in a module of rules (``mutations.py`` says how). The tests of derivatives run against it until one fails, and then it
is killed. A mutant that survives them all is printed, and the run fails: a test is missing. Mutants that mean the same
as the original are listed, each with its reason (``equivalent.py``, ``compiler.py``); an entry that fits no mutant
fails the run.

How it is fast: pytest collects the tests once. Some forks of that process run all of them and note which places
of the rules and which partials each of them reaches; a test that fails there fails the run. Each mutant is a fork, too,
in which the functions have other code (``living.py``); it runs the tests that reach its place, those that have killed
most so far first. Programs are evaluated and not compiled: what is tested here is the rules. So tests of compiled
programs (with "compile" in their names), slow tests and tests that count operations are not run.

So that the run says something, the tests must pass without a mutant, one that changes nothing must survive, and each
other must change the code of a function that is there.

A mutant may do anything: its memory is limited, and a test that takes ``PATIENCE`` seconds of processor time has
noticed it.

Those of the compiler (``compiler.py``) are drawn from very many, and run in hours. What became of each is written to
``.mutants/`` at once, and is not tried again while no source has changed and the test that killed it is the same (or
all tests are, when none did): such a run may be stopped.

    python tests/mutants                  all mutants of derivatives
    python tests/mutants combining 127    those whose description holds all these words
    python tests/mutants --backends       those of the compiler
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from types import FunctionType
from typing import Any

import compiler
import pytest
from _pytest.runner import runtestprotocol
from changes import (
    ROOT,
    Mutant,
    Nothing,
    Source,
    files_of_backends,
    files_of_rules,
    module,
    of_the_backends,
    of_the_rules,
)
from equivalent import EQUIVALENT
from living import Living
from mutations import Kinds, noting, of_rules, source

import adze as az
from adze.core.primitive import PRIMITIVES
from adze.core.program import RUNNERS, Instance, Program
from adze.core.trees import unflatten
from adze.interpreters.evaluate import evaluate_block

TESTS_OF_RULES = (
    "before_branches", "checkpoint", "combining", "custom", "derivative", "forward", "in_place", "jacobian", "reverse",
    "rule", "side_by_side", "tape", "trace_corners", "trace_gradients",
)  # fmt: skip
HOLD_SOME = ("new_construct", "primitives")  # files of which only the tests with such names are run
LEFT_OUT = ("compile", "cost", "linear_time", "printed", "the_work_of")
PATIENCE = 60  # seconds of processor time for one test
MEMORY = 4 << 30  # bytes of address space that a mutant may add
PROCESSORS = os.cpu_count() or 1
PROCESSES = multiprocessing.get_context("fork")
NOTE = "_note_spot"


# Suites


@dataclass(frozen=True)
class Suite:
    """Modules that are changed, the mutants of these, and the tests that must notice."""

    files: Sequence[str]
    mutants: Sequence[Mutant]
    kinds: Kinds
    words: Sequence[str]  # the names of tests have one of these, and none of those
    left_out: Sequence[str]
    hold_some: Sequence[str]  # words of the files in which only some tests have such names
    equivalent: Mapping[object, str]  # by key: why a mutant means the same as the original
    known: Set[object]  # the keys of all mutants, also of those that were not drawn
    records: Path | None  # where it is written what became of each mutant

    def wants(self, name: str) -> bool:
        return any(word in name for word in self.words) and not any(word in name for word in self.left_out)


def rules() -> Suite:
    mutants = of_the_rules()
    known = {mutant.key for mutant in mutants}
    return Suite(files_of_rules(), mutants, of_rules, TESTS_OF_RULES, LEFT_OUT, HOLD_SOME, EQUIVALENT, known, None)


def compilers() -> Suite:
    mutants, records = of_the_backends(), ROOT / ".mutants"
    known, drawn, same = {mutant.key for mutant in mutants}, mutants[: compiler.COUNT], compiler.EQUIVALENT
    return Suite(files_of_backends(), drawn, compiler.kinds, compiler.TESTS, (), (), same, known, records)


# Tests


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


def watched(items: Sequence[pytest.Item], living: Living, suite: Suite, programs: Sequence[Program]) -> Iterator[Use]:
    """Run the tests as they are, and see what they reach."""
    reached: set[object] = set()
    for file in suite.files:
        setattr(module(file), NOTE, noted_in(file, reached))
        living.change(file, noting(ROOT, file, NOTE, suite.kinds))
    for row in PRIMITIVES.values():
        if row.derivative is not None:
            object.__setattr__(row, "derivative", noted(row.name, row.derivative, reached))
    for item in items:
        reached.clear()
        forget(suite.files, programs)
        start = time.perf_counter()
        passed = passes(item)
        yield Use(passed, time.perf_counter() - start, set(reached))


def forget(files: Sequence[str], programs: Sequence[Program]) -> None:
    """Empty the caches of modules, and what programs of several tests keep of their code and of their derivatives: what
    one test has left there the next one would not be seen to reach."""
    for program in programs:
        program.made.clear()
        for instance in program.instances():
            instance.compiled.clear()
    for file in files:
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
    evaluate, block, structure = az.evaluate, evaluate_block, unflatten

    def values(instance: Instance, leaves: Sequence[Any]) -> Any:
        return structure(instance.outputs, block(instance.term, *instance.signature.convert(leaves), True, silent))

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

    def __init__(self, items: Sequence[pytest.Item], suite: Suite) -> None:
        self.suite = suite
        self.items = [item for item in items if suite.wants(f"{item.path.name}::{item.nodeid.partition('::')[2]}")]
        self.living = Living(ROOT, [file for file in suite.files if module(file)])
        self.programs = [each for each in gc.get_objects() if issubclass(type(each), Program)]
        self.kills: dict[str, int] = {}
        self.kills_in: dict[tuple[str, str], int] = {}  # by file and test
        self.uses: dict[str, Use] = {}
        self.records = Records(suite.records) if suite.records is not None else None

    def faults(self, mutants: Sequence[Mutant], whole: bool) -> Iterator[str]:
        """Mutants that survive, and whatever else is wrong."""
        for file in self.suite.files:
            if self.living.change(file, source(ROOT, file)):
                yield f"{file}: its functions are not those of its source"
        self.uses = self.records.uses if self.records is not None else {}
        if not self.uses:
            self.watch()
            if self.records is not None:
                self.records.keep(self.uses)
        for name, use in self.uses.items():
            if not use.passed:
                yield f"fails without a mutant: {name}"
        for mutant, (end, what) in self.results([Nothing(min(mutants, key=self.facing_count).spot)]):
            if end == "killed":
                yield f"{mutant} is killed by {what}"
        for mutant, (end, what) in self.ends([mutant for mutant in mutants if mutant.key not in self.suite.equivalent]):
            if end == "killed":
                self.kills[what] = self.kills.get(what, 0) + 1
                if isinstance(mutant, Source):
                    place = mutant.mutation.file, what
                    self.kills_in[place] = self.kills_in.get(place, 0) + 1
            else:
                yield f"{end} {mutant}"
        if whole:
            for key in self.suite.equivalent.keys() - self.suite.known:
                yield f"listed as equivalent, but no mutant: {key}"

    def ends(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, tuple[str, str]]]:
        """Each mutant with its end: those that are on record first."""
        known = self.records.ends if self.records is not None else {}
        yield from [(mutant, known[str(mutant)]) for mutant in mutants if str(mutant) in known]
        for mutant, end in self.results([mutant for mutant in mutants if str(mutant) not in known]):
            if self.records is not None:
                self.records.add(mutant, end)
            yield mutant, end

    def watch(self) -> None:
        """See what the tests reach, in as many processes as there are processors."""

        def work(items: Sequence[pytest.Item], send: Any) -> None:
            quiet()
            try:
                uses = watched(items, self.living, self.suite, self.programs)
                send.send({item.nodeid: use for item, use in zip(items, uses, strict=True)})
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

        file = mutant.mutation.file if isinstance(mutant, Source) else ""

        def order(item: pytest.Item) -> float:
            kills = self.kills.get(item.nodeid, 0) + 4 * self.kills_in.get((file, item.nodeid), 0)
            return -(kills + 0.2) / (self.uses[item.nodeid].seconds + 0.02)

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


class Records:
    """What is known of mutants from runs on these very sources.

    One that was killed stays so while the test that did it stands; one that survived has survived these tests.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        sources = digest([*ROOT.glob("[abci]*/**/*.py"), ROOT / "pyproject.toml"])
        self._tests = digest(ROOT.glob("tests/**/*.py"))
        self._ends, self._uses = folder / f"{sources}.jsonl", folder / f"{sources}.{self._tests}.uses"
        lines = self._ends.read_text().splitlines() if self._ends.exists() else []
        self.ends: dict[str, tuple[str, str]] = {
            name: (end, what) for name, end, what, tests in map(json.loads, lines) if self._holds_for(what) == tests
        }

    def _holds_for(self, killer: str) -> str:
        """The digest of the tests of which a record tells: the file of the killer, or else all."""
        file = ROOT / killer.partition("::")[0]
        return digest([file]) if "::" in killer and file.exists() else self._tests

    @property
    def uses(self) -> dict[str, Use]:
        """What each test reaches; nothing when that was not seen yet."""
        found: dict[str, Use] = pickle.loads(self._uses.read_bytes()) if self._uses.exists() else {}
        return found

    def keep(self, uses: dict[str, Use]) -> None:
        self._uses.write_bytes(pickle.dumps(uses))

    def add(self, mutant: Mutant, end: tuple[str, str]) -> None:
        with self._ends.open("a") as file:
            file.write(json.dumps([str(mutant), *end, self._holds_for(end[1])]) + "\n")


def digest(files: Iterable[Path]) -> str:
    made = hashlib.blake2b(digest_size=10)
    for file in sorted(files):
        made.update(file.read_bytes())
    return made.hexdigest()


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

    def __init__(self, suite: Suite, mutants: Sequence[Mutant]) -> None:
        self.suite, self.mutants = suite, mutants
        self.whole = len(mutants) == len(suite.mutants)
        self.faults = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        begin = time.perf_counter()
        gc.unfreeze()  # what the suite has frozen: functions and programs are found among all objects
        run = Run(session.items, self.suite)
        gc.freeze()
        for fault in run.faults(self.mutants, self.whole):
            self.faults += 1
            print(fault, flush=True)
        killed, equivalent = (
            sum(run.kills.values()),
            sum(mutant.key in self.suite.equivalent for mutant in self.mutants),
        )
        seconds = time.perf_counter() - begin
        print(f"{len(self.mutants)} mutants, {killed} killed, {equivalent} equivalent, {seconds:.0f} s", flush=True)
        return True


def main(words: Sequence[str]) -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    os.chdir(ROOT)
    suite = compilers() if "--backends" in words else rules()
    words = [word for word in words if word != "--backends"]
    chosen = [mutant for mutant in suite.mutants if all(word in str(mutant) for word in words)]
    if not chosen:
        print("there is no such mutant")
        return 1
    files = sorted(Path("tests").rglob("test_*.py"))
    files = [file for file in files if suite.wants(file.name) or any(word in file.name for word in suite.hold_some)]
    plugin = Plugin(suite, chosen)
    if suite.records is None:
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
    options += ["-o", "addopts=", "-p", "no:xdist", *map(str, files)]
    status = pytest.main(options, plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    return 1 if plugin.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
