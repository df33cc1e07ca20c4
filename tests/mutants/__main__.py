"""``make mutants``: the tests must notice every wrong rule.

Each mutant (``mutations.py`` says what they are) is one wrong version of a derivative: of one scalar partial, or of
one place in a module of ``ad/``. The tests that derivatives have run against it until one fails, and then it is
killed. A mutant that survives them all is printed, and the run fails: a test is missing. Mutants that mean the same as
the original are listed in ``equivalent.py``, each with its reason.

How it is fast: pytest collects the tests once. One process of its own runs all of them and notes which lines of
``ad/`` and which partials each of them uses; these are the tests that a mutant there has to face. Each mutant is a fork
of the process that has collected; it reads ``adze.ad`` again, with the changed source in place of the file (the
checkout is never touched), and runs the tests that have killed most so far first. Programs are evaluated and
not compiled: what is tested here is the rules.

    python tests/mutants                 all mutants
    python tests/mutants combining 127   those whose description holds all these words
"""

from __future__ import annotations

import importlib
import importlib.machinery
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from equivalent import EQUIVALENT
from mutations import Mutation, mutated, mutations

import adze as az
from adze.core.primitive import PRIMITIVES, Primitive
from adze.core.program import RUNNERS

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; a mutant that takes longer is one that the tests notice
TESTS = (
    "derivative", "forward", "reverse", "primitives", "accelerate", "jacobian", "hessian", "sparse", "custom",
    "checkpoint", "inspect", "stepping",
)  # fmt: skip
COSTS = "costs"  # these files count operations: they are slow, and say nothing of values
PROCESSORS = os.cpu_count() or 1
MAIN = multiprocessing.get_context("fork")


# Mutants


@dataclass(frozen=True)
class Partial:
    """The sign of what one operand of a primitive moves, turned."""

    primitive: str
    operand: int

    @property
    def spot(self) -> object:
        return self

    @property
    def reason(self) -> str | None:
        return EQUIVALENT.get((self.primitive, self.operand))

    def install(self) -> None:
        row = PRIMITIVES[self.primitive]
        rule = row.derivative
        assert rule is not None

        def wrong(y: Any, *operands: Any) -> tuple[Any, ...]:
            shares = list(rule(y, *operands))
            right = shares[self.operand]
            shares[self.operand] = lambda t: -right(t)
            return tuple(shares)

        object.__setattr__(row, "derivative", wrong)

    def __str__(self) -> str:
        return f"the partial of {self.primitive} by operand {self.operand}, negated"


@dataclass(frozen=True)
class Source:
    """A changed module of ``ad/``."""

    mutation: Mutation

    @property
    def reason(self) -> str | None:
        m = self.mutation
        return EQUIVALENT.get((m.file, m.function, m.kind, m.code))

    def install(self) -> None:
        """Read ``adze.ad`` again, with the changed source."""
        path, text = f"{ROOT}/adze/{self.mutation.file}", mutated(ROOT, self.mutation)
        loader: Any = importlib.machinery.SourceFileLoader
        read, stats = loader.get_data, loader.path_stats

        def get_data(self: Any, given: str) -> bytes:
            return text.encode() if os.path.realpath(given) == os.path.realpath(path) else read(self, given)

        def path_stats(self: Any, given: str) -> Any:
            found = stats(self, given)  # of another size than the file, so that no bytecode is used
            return {**found, "size": -1} if os.path.realpath(given) == os.path.realpath(path) else found

        loader.get_data, loader.path_stats = get_data, path_stats
        sys.dont_write_bytecode = True
        for name in [name for name in sys.modules if name.split(".")[:2] == ["adze", "ad"]]:
            del sys.modules[name]
        importlib.reload(az)

    def __str__(self) -> str:
        return str(self.mutation)


Mutant = Partial | Source


def all_mutants() -> list[Mutant]:
    found: list[Mutant] = []
    for row in PRIMITIVES.values():
        found += [Partial(row.name, k) for k, moves in enumerate(moving(row)) if moves]
    for path in sorted((ROOT / "ad").glob("*.py")):
        found += [Source(mutation) for mutation in mutations(ROOT, f"ad/{path.name}")]
    return found


def moving(row: Primitive) -> Sequence[bool]:
    from adze.ad.activity import moving_operands

    return moving_operands(row)


# What the tests use


@dataclass
class Use:
    """What a test did: whether it passed, how long it took, and the lines and partials that it used."""

    passed: bool
    seconds: float
    lines: set[tuple[str, int]] = field(default_factory=set)
    partials: set[str] = field(default_factory=set)


def passes(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return all(report.passed for report in reports)


def watched(items: Sequence[pytest.Item]) -> Iterator[Use]:
    """Run the tests as they are, and see what they use."""
    use = Use(True, 0.0)
    folder = str(ROOT / "ad") + os.sep
    real: dict[str, str | None] = {}

    def lines(frame: Any, event: str, argument: Any) -> Any:
        use.lines.add((real[frame.f_code.co_filename] or "", frame.f_lineno))
        return lines

    def calls(frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in real:
            whole = os.path.realpath(name)
            real[name] = "ad/" + whole.removeprefix(folder) if whole.startswith(folder) else None
        return None if real[name] is None else lines(frame, event, argument)

    for row in PRIMITIVES.values():
        if row.derivative is not None:
            object.__setattr__(row, "derivative", noting(row.name, row.derivative, lambda name: use.partials.add(name)))
    for item in items:
        use = Use(True, 0.0)
        start = time.perf_counter()
        sys.settrace(calls)
        use.passed = passes(item)
        sys.settrace(None)
        use.seconds = time.perf_counter() - start
        yield use


def noting(name: str, rule: Callable[..., Any], note: Callable[[str], None]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        note(name)
        return rule(*arguments)

    return noted


# Runs


def evaluated_only() -> None:
    """From here on what is compiled elsewhere is evaluated."""
    RUNNERS["default"] = _as_in_the_package(lambda instance, leaves: evaluate(instance)(*leaves))  # type: ignore[name-defined]
    az.compile = _as_in_the_package(lambda program, **options: evaluate(program))  # type: ignore[name-defined]


def _as_in_the_package(function: FunctionType) -> Any:
    """The function as if it stood in ``adze/__init__.py``: no line of it is taken for the user's."""
    made = FunctionType(function.__code__, vars(az), closure=function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def quiet() -> None:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)


def killer(mutant: Mutant, items: Sequence[pytest.Item]) -> str | None:
    """The name of the first test that fails on a mutant."""
    try:
        mutant.install()
        evaluated_only()
    except Exception as error:
        return f"{type(error).__name__} when it is read"
    return next((item.nodeid for item in items if not passes(item)), None)


class Run:
    """All mutants against the tests that pytest has collected."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self.items = items
        self.kills: dict[str, int] = {}
        self.uses: dict[str, Use] = {}

    def survivors(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        start = time.perf_counter()
        self.watch()
        used = [use for use in self.uses.values() if use.passed]
        shown = f"{len(used)} tests, {sum(use.seconds for use in used):.0f} s"
        print(f"{shown}; {len(mutants)} mutants", flush=True)
        for name, use in self.uses.items():
            if not use.passed:
                print(f"not used, since it fails when nothing is compiled: {name}")
        found: list[Mutant] = []
        for mutant, killed_by in self.results(mutants):
            if killed_by is None and mutant.reason is None:
                found.append(mutant)
                print(f"survived {mutant}", flush=True)
            elif killed_by is not None and mutant.reason is not None:
                print(f"listed as equivalent, but killed by {killed_by}: {mutant}")
                found.append(mutant)
            elif killed_by is not None:
                self.kills[killed_by] = self.kills.get(killed_by, 0) + 1
        print(f"{len(mutants) - len(found)} of {len(mutants)} killed in {time.perf_counter() - start:.0f} s")
        return found

    def watch(self) -> None:
        """See what the tests use, in as many processes as there are processors."""

        def work(items: Sequence[pytest.Item], send: Any) -> None:
            quiet()
            evaluated_only()
            send.send({item.nodeid: use for item, use in zip(items, watched(items), strict=True)})

        watchers = []
        for number in range(PROCESSORS):
            receive, send = MAIN.Pipe(duplex=False)
            child = MAIN.Process(target=work, args=(self.items[number::PROCESSORS], send))
            child.start()
            send.close()
            watchers.append((receive, child))
        for receive, child in watchers:
            self.uses |= receive.recv()
            child.join()

    def facing(self, mutant: Mutant) -> list[pytest.Item]:
        """The tests that use what a mutant changes, the likeliest killers first."""

        def uses(use: Use) -> bool:
            if isinstance(mutant, Partial):
                return mutant.primitive in use.partials
            m = mutant.mutation
            return any((m.file, line) in use.lines for line in range(m.line, m.end_line + 1))

        def order(item: pytest.Item) -> float:
            return -(self.kills.get(item.nodeid, 0) + 0.2) / (self.uses[item.nodeid].seconds + 0.02)

        return sorted([x for x in self.items if self.uses[x.nodeid].passed and uses(self.uses[x.nodeid])], key=order)

    def results(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str | None]]:
        """Each mutant with its killer, in the order in which they end; so many at once as there are processors."""
        waiting, running = list(reversed(mutants)), {}
        while waiting or running:
            while waiting and len(running) < PROCESSORS:
                mutant = waiting.pop()
                receive, send = MAIN.Pipe(duplex=False)
                child = MAIN.Process(target=self.work, args=(mutant, send))
                child.start()
                send.close()
                running[receive] = (mutant, child, time.perf_counter() + PATIENCE)
            for ready in connection.wait(list(running), timeout=1.0):
                mutant, child, _ = running.pop(ready)  # type: ignore[index]
                try:
                    result = ready.recv()  # type: ignore[union-attr]
                except EOFError:
                    result = "the end of the process"
                child.join()
                yield mutant, result
            for receive, (mutant, child, end) in list(running.items()):
                if time.perf_counter() > end:
                    child.kill()
                    child.join()
                    del running[receive]
                    yield mutant, "no end"

    def work(self, mutant: Mutant, send: Any) -> None:
        quiet()
        send.send(killer(mutant, self.facing(mutant)))


class Plugin:
    """In place of pytest's loop over the tests."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants = mutants
        self.survived: list[Mutant] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.survived = Run(session.items).survivors(self.mutants)
        return True


def main(words: Sequence[str]) -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    os.chdir(ROOT)
    chosen = [mutant for mutant in all_mutants() if all(word in str(mutant) for word in words)]
    names = sorted(path.name for path in Path("tests").glob("test_*.py") if COSTS not in path.name)
    files = [f"tests/{name}" for name in names if any(word in name for word in TESTS)]
    plugin = Plugin(chosen)
    options = ["-qq", "-s", "--tb=no", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:timeout"]
    status = pytest.main([*options, "-o", "addopts=", "-p", "no:xdist", *files], plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    return 1 if plugin.survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
