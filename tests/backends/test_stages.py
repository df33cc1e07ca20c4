"""Stages: what logs tell of building, compiling and calling, and the line that a terminal shows of what takes long."""

import dis
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from load import ROOT

import adze as az
from adze.backends.backend import LLVM
from adze.backends.compiled import Compiled
from adze.backends.llvm.calls import Calls
from adze.backends.llvm.frames import entries
from adze.backends.llvm.pool import workers
from adze.backends.llvm.version import Version
from adze.commands.report import complain
from adze.core import progress, stages
from adze.core.stages import building_term, compiling, stage, subject

pytestmark = pytest.mark.unguarded

STAGES = ["simplify", "schedule terms", "lower", "schedule nests", "schedule loops", "emit", "LLVM", "link"]


def fresh() -> Any:
    """A program that nothing was made of yet."""

    @az.program
    def loss(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(x * x)

    return loss


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What another process prints."""
    unset = {name: value for name, value in os.environ.items() if name != "ADZE_LOG"}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env={**unset, **environment}
    )


# Logs


def test_stages_are_logged_with_their_times(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "adze")
    f = az.compile(fresh(), threads=1)
    f(np.ones(3))
    caplog.clear()
    started = time.perf_counter()
    assert f(np.ones(3)) == 3.0 and not caplog.records
    az.compile(az.grad(fresh()), threads=1)(np.ones(3))
    elapsed = time.perf_counter() - started
    built = [record.args for record in caplog.records if record.name == "adze.build"]
    assert [args[0] for args in built] == ["loss", "grad(loss)"]
    compiled = [record.args for record in caplog.records if record.name == "adze.compile"]
    assert {args[0] for args in compiled} == {"grad(loss)"}
    *parts, total = compiled
    assert [args[1] for args in parts] == STAGES
    building, inside = (sum(args[-1] for args in each) for each in (built, parts))
    assert min(args[-1] for args in [*built, *parts]) >= 0
    assert 0 < inside <= total[1] and building + inside <= elapsed  # a term may be built before compiling begins
    assert re.fullmatch(r"grad\(loss\): \d+\.\d{3} s in all", caplog.messages[-2])  # the last one is of the call


def test_applications_see_one_line_a_program_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "adze")
    az.compile(fresh(), threads=1)(np.ones(3))
    assert [record.name for record in caplog.records] == ["adze.compile"]


def test_a_stage_takes_what_those_inside_of_it_do_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "adze")
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    with compiling("f"):
        now += 1
        with stage("outer"):
            now += 2
            with building_term("g"):
                now += 4
                with compiling("h"):  # which the function that is being built calls
                    now += 8
            with compiling("f"):  # a part of it
                now += 16
    expected = ["h: 8.000 s in all", "g: build, 4.000 s", "f: outer, 18.000 s", "f: 31.000 s in all"]
    assert caplog.messages == expected


def test_a_stage_that_fails_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "adze")
    with pytest.raises(ZeroDivisionError), compiling("f"), stage("LLVM"):
        raise ZeroDivisionError
    assert not caplog.records and subject() == "runtime"


def test_what_the_disk_has(caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries(), workers()  # what all programs share is there already, and not kept in this folder
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    caplog.set_level(logging.DEBUG, "adze.cache")
    az.compile(fresh(), threads=1)(np.ones(3))
    [file] = (tmp_path / "entries").glob("*.entry")
    missing, kept = caplog.messages
    assert missing == f"loss: no entry {file}: No such file or directory"
    assert re.fullmatch(f"loss: kept {file}, [0-9]+ bytes", kept)
    caplog.clear()
    az.compile(fresh(), threads=1)(np.ones(3))
    assert [message.split(",")[0] for message in caplog.messages] == [f"loss: found {file}"]
    caplog.clear()
    first, *rest = file.read_bytes()
    file.write_bytes(bytes([first ^ 1, *rest]))
    az.compile(fresh(), threads=1)(np.ones(3))
    damaged, kept = caplog.messages
    assert damaged.startswith(f"loss: damaged, and removed: {file}") and kept.startswith(f"loss: kept {file}")


def test_why_a_program_is_not_kept(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path))
    caplog.set_level(logging.DEBUG, "adze.cache")
    twice = az.primitive(
        "twice",
        numpy=lambda x: 2 * x,
        derivative=lambda y, x: (lambda t: 2 * t,),
        llvm=az.Expansion(lambda x: x + x),
    )
    assert az.compile(lambda x: twice(x), threads=1)(1.0) == 2.0
    [message] = caplog.messages
    assert message == "<lambda>: neither looked for nor kept: the primitive twice has been added to the language"


def test_calls_that_take_other_code_or_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "adze.call")
    f = az.compile(lambda x: az.sum(x * x), threads=1)
    for size in (3, 3, 30, 30):
        f(np.ones(size))
    f(x=np.ones(30))
    taken = [message.partition(", 1 threads")[0] for message in caplog.messages]
    assert taken == [
        "<lambda>: arguments take the code for (f64[3],)",
        "<lambda>: sizes []",
        "<lambda>: arguments take the code for (f64[x_0],)",
        "<lambda>: sizes [30]",
        "<lambda>: arguments take the code for (f64[x_0],)",
    ]


@pytest.mark.parametrize("function", [Compiled.__call__, LLVM.run, Version.run, Calls.run])
def test_the_way_of_a_call_mentions_no_log(function: Any) -> None:
    """Of the bytecode, as typeguard wraps none of it: what was looked up would take time in each call."""
    code = getattr(function, "__wrapped__", function).__code__
    named = {each.argval for each in dis.get_instructions(code) if isinstance(each.argval, str)}
    assert named and not named & {"CALL", "COMPILE", "stages", "stage", "compiling", "isEnabledFor", "debug"}


@pytest.mark.parametrize("annotated", [True, False])
def test_a_call_like_the_one_before_enters_no_log(annotated: bool) -> None:
    f = az.compile(fresh() if annotated else (lambda x: az.sum(x * x)), threads=1)
    x = np.ones(30)
    f(x)
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        f(x)
    finally:
        sys.setprofile(None)
    own = {stages.__file__, progress.__file__, logging.__file__}
    assert entered and not own & set(entered)


CALL = "import adze as az, numpy as np; print(az.compile(lambda x: az.sum(x * x), threads=1)(np.ones(3)))"


@pytest.mark.rest
def test_the_environment_asks_for_logs() -> None:
    found = python(CALL, ADZE_LOG="compile, build")
    assert found.stdout == "3.0\n"
    lines = found.stderr.splitlines()
    assert {line.split(":")[0] for line in lines} == {"adze.build", "adze.compile"}
    assert all(re.search(r", \d+\.\d{3} s$|: \d+\.\d{3} s in all$", line) for line in lines)
    assert {line.split(": ")[2].split(",")[0] for line in lines if " in all" not in line} == {"build", *STAGES}


def test_the_environment_asks_for_all_logs() -> None:
    script = "import logging, adze; print([logging.getLogger(f'adze.{each}').level for each in NAMES.split()])"
    found = python(script.replace("NAMES", "'build compile cache call'"), ADZE_LOG="all")
    assert found.stdout == f"{[logging.DEBUG] * 4}\n" and not found.stderr


def test_a_wrong_name_in_the_environment() -> None:
    found = python("import adze", ADZE_LOG="compile,compil")
    assert found.returncode == 1
    message = "ValueError: ADZE_LOG knows no 'compil'; it takes build, compile, cache, call, all"
    assert found.stderr.splitlines()[-1] == message


SLOW = """
import logging, time, adze
from adze.core.stages import compiling, stage
print([type(each).__name__ for each in logging.getLogger("adze").handlers], logging.getLogger("adze").level)
with compiling("f"), stage("LLVM"):
    time.sleep(1.3)
"""


@pytest.mark.rest
def test_nothing_is_printed_that_nobody_asked_for() -> None:
    """Standard error is a pipe here: no line of progress either."""
    found = python(SLOW)
    assert (found.returncode, found.stdout, found.stderr) == (0, "['NullHandler'] 0\n", "")


# Progress


class Terminal:
    """A terminal that is standard error, and what was written to it."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._read = b""

    @property
    def written(self) -> str:
        os.set_blocking(self.master, False)
        try:
            while True:
                self._read += os.read(self.master, 4096)
        except BlockingIOError:
            return self._read.decode()

    @property
    def lines(self) -> list[str]:
        """What was shown, one state of the line after the other, and what is above it."""
        return re.split(r"\r\x1b\[K|\r\n", self.written)

    @property
    def visible(self) -> str:
        """What the line says at last."""
        return self.lines[-1]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made.stream))  # pytest sets that of a test
    monkeypatch.setattr(progress, "_PATIENCE", 0.2)
    yield made
    until(lambda: not tickers())
    made.stream.close()
    os.close(made.master)


def tickers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "adze progress"]


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    given_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < given_up
        time.sleep(0.01)


def test_what_takes_more_than_a_second_is_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 1.0)
    with compiling("grad(loss)"):
        with stage("LLVM"):
            until(lambda: terminal.written)
            first, said = terminal.lines[0], terminal.lines[1].partition(", ")
            assert (first, said[0]) == ("", "compiling grad(loss): LLVM") and float(said[2].removesuffix(" s")) >= 1
        until(lambda: re.fullmatch(r"compiling grad\(loss\), \d+\.\d s", terminal.visible))
        assert [thread.daemon for thread in tickers()] == [True]
    assert terminal.visible == "" and "\n" not in terminal.written
    written = terminal.written
    until(lambda: not tickers())
    assert terminal.written == written


def test_the_patience_of_a_terminal() -> None:
    assert progress._PATIENCE == 1.0


def test_nothing_is_shown_of_what_is_over_soon(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 60.0)
    with compiling("f"), stage("LLVM"):
        time.sleep(0.3)
        assert tickers()
    assert terminal.written == ""


def test_the_line_of_a_program(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_INTERVAL", 0.001)
    assert az.compile(fresh(), threads=1)(np.ones(3)) == 3.0
    shown = {line.rpartition(", ")[0] for line in terminal.lines if line}
    assert "compiling loss: LLVM" in shown
    assert shown <= {"building loss", "compiling loss", *[f"compiling loss: {name}" for name in ("build", *STAGES)]}
    assert terminal.visible == ""


def test_a_term_that_takes_long(terminal: Terminal) -> None:
    @az.program
    def slow(x: az.f64) -> az.f64:
        until(lambda: terminal.visible.startswith("building slow, 0."))
        return x

    assert "return x" in str(az.pretty(slow))
    assert terminal.visible == ""


def test_nothing_is_shown_after_an_exception(terminal: Terminal) -> None:
    with pytest.raises(KeyboardInterrupt), compiling("f"), stage("LLVM"):
        until(lambda: terminal.visible.startswith("compiling f: LLVM"))
        raise KeyboardInterrupt
    assert terminal.visible == ""
    written = terminal.written
    until(lambda: not tickers())
    assert terminal.written == written


def test_progress_is_silenced(terminal: Terminal) -> None:
    with az.progress(False):
        with compiling("f"):
            assert not tickers()
        with az.progress(True), compiling("g"):
            until(lambda: terminal.visible.startswith("compiling g"))
        until(lambda: not tickers())
        with compiling("h"):
            assert not tickers()
    with compiling("k"):
        until(lambda: terminal.visible.startswith("compiling k"))


def test_progress_is_silenced_meanwhile(terminal: Terminal) -> None:
    with compiling("f"):
        until(lambda: terminal.visible)
        with az.progress(False):
            written = terminal.written
            time.sleep(0.3)
            assert terminal.visible == "" and terminal.written == written
        until(lambda: terminal.visible.startswith("compiling f"))


def test_progress_says_what_it_takes() -> None:
    with pytest.raises(TypeError, match="True or False, not 'no'"):
        az.progress("no")  # type: ignore[arg-type]
    with az.progress(False) as nothing:
        assert nothing is None
        assert repr(az.progress(False)) == "<progress is not shown>"
    assert repr(az.progress(True)) == "<progress is shown>"


def test_terminals_that_cannot_write_a_line_anew(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with compiling("f"):
        assert not tickers()


class Bare:
    """What may stand in for standard error."""

    def write(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize("stream", [None, Bare()])
def test_what_is_no_terminal(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    with compiling("f"):
        assert not tickers()


def test_long_lines_are_cut(terminal: Terminal) -> None:
    with compiling("f" * 300):
        until(lambda: terminal.visible)
    assert {len(line) for line in terminal.lines if line} == {79}


def test_two_threads_share_the_line(terminal: Terminal) -> None:
    def second() -> None:
        with compiling("second"), stage("emit"):
            until(lambda: terminal.visible.startswith("compiling second"))

    other = threading.Thread(target=second)
    with compiling("first"), stage("LLVM"):
        other.start()
        until(lambda: terminal.visible)
        time.sleep(0.3)
        assert len(tickers()) == 1
    other.join()
    shown = [line.rpartition(", ")[0] for line in terminal.lines if line]
    assert list(dict.fromkeys(shown)) == ["compiling first: LLVM", "compiling second: emit"]
    assert shown == sorted(shown) and terminal.visible == ""


def test_logs_stand_above_the_line(terminal: Terminal) -> None:
    with compiling("f"), stage("LLVM"):
        until(lambda: terminal.visible)
        progress.write_above("adze.cache: f: kept")
        until(lambda: terminal.visible.startswith("compiling f: LLVM"))
    assert "\r\x1b[Kadze.cache: f: kept\r\n" in terminal.written


def test_what_is_shown_inside_of_a_task_is_a_part_of_it(terminal: Terminal) -> None:
    with progress.shown("running f"):
        until(lambda: terminal.visible.startswith("running f, 0."))
        with progress.shown("reading files"):
            until(lambda: terminal.visible.startswith("running f: reading files, "))
        with compiling("g"), stage("LLVM"):
            until(lambda: terminal.visible.startswith("running f: LLVM, "))
        until(lambda: terminal.visible.startswith("running f, "))
    assert terminal.visible == ""


def test_no_thread_runs_while_something_is_measured(terminal: Terminal) -> None:
    with compiling("f"):
        until(lambda: terminal.visible.startswith("compiling f, "))
    with progress.shown("measuring f"), progress.still():
        assert not tickers() and terminal.visible == "measuring f ..."
        with compiling("g"), stage("LLVM"), progress.still():  # what is compiled on the way
            assert not tickers() and terminal.visible == "measuring f: LLVM ..."
        time.sleep(0.3)
        assert not tickers() and terminal.visible == "measuring f: LLVM ..."
    assert terminal.visible == ""


def test_the_line_moves_on_when_something_was_measured(terminal: Terminal) -> None:
    with progress.shown("exploring f"):
        until(lambda: terminal.visible)
        with progress.still():
            written = terminal.written
            assert not tickers() and terminal.visible == "exploring f ..."
            time.sleep(0.3)
            assert terminal.written == written
        until(lambda: terminal.visible.startswith("exploring f, "))


def test_nothing_is_shown_of_what_is_measured_alone(terminal: Terminal) -> None:
    """By somebody's own program: ``compiled.profile``."""
    with progress.still():
        assert not tickers()
    assert terminal.written == ""


def test_a_measurement_that_is_silenced_or_fails(terminal: Terminal) -> None:
    with az.progress(False), progress.shown("measuring f"), progress.still():
        assert terminal.written == ""
    with pytest.raises(KeyboardInterrupt), progress.shown("measuring f"), progress.still():
        raise KeyboardInterrupt
    assert terminal.visible == ""
    with compiling("f"):
        until(lambda: terminal.visible.startswith("compiling f, "))


def test_a_profile_has_no_thread_beside_it(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = list[int]()
    monkeypatch.setattr(progress, "_INTERVAL", 2.0)  # for which a thread would stay that nobody ends

    def look(x: Any) -> Any:
        beside.append(len(tickers()))
        return x

    looked = az.operation("looked", numpy=look, result=az.f64)
    code = az.compile(az.program(lambda x: looked(x)), threads=1)
    code.profile(1.0)
    assert len(beside) == 2 and beside[1] == 0


def test_what_is_written_meanwhile_stands_above_the_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with progress.shown("measuring f"), progress.still():
        complain("UserWarning: f is slow")
        assert terminal.visible == "measuring f ..."
        assert re.sub(r"\x1b\[\d*m", "", terminal.lines[-3]) == "UserWarning: f is slow"
    assert terminal.visible == ""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle(terminal: Terminal) -> None:
    """The child has no thread that writes, and none to wait for; it may compile, and be shown, itself."""
    with compiling("f"), stage("LLVM"):
        until(lambda: terminal.visible)
        child = os.fork()
        if child == 0:
            try:
                with stage("link"):
                    pass
                alone = progress._line._ticker is None and not tickers()
                task = progress.Task("child")
                progress._line.begin(task)
                shown = len(tickers()) == 1
                progress._line.end(task)
                os._exit(0 if alone and shown else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert terminal.visible == ""


@pytest.mark.rest
def test_a_process_ends_while_something_is_shown(terminal: Terminal) -> None:
    script = """
import threading, time, adze
from adze.core.stages import compiling
def endless():
    with compiling("f"):
        time.sleep(1000)
threading.Thread(target=endless, daemon=True).start()
time.sleep(2)
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stderr=terminal.stream, timeout=60)
    assert found.returncode == 0
    assert "compiling f, " in terminal.written
