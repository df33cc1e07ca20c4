"""What all commands have in common: reports as text and JSON, widths, colours, exit codes, other processes."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine
from load import ROOT

import adze as az
from adze.commands import main
from adze.commands.main import COMMANDS
from adze.commands.report import Code, Line, Report, Table, Value, as_json, complain, show


class Terminal(io.StringIO):
    """What looks like a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal with colours, to which the standard output and the standard error go from now on."""
    made = Terminal()
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    return made


# Help and usage


def test_help_lists_the_commands_and_says_that_files_are_executed(commands: CommandLine) -> None:
    ran = commands("--help")
    assert ran.code == 0 and all(f"    {command.name} " in ran.out for command in COMMANDS)
    assert "FILE is executed" in ran.out
    assert commands("--version").out == f"adze {az.__version__}\n"
    for command in COMMANDS:
        ran = commands(command.name, "--help")
        assert ran.code == 0 and command.summary in ran.out
        says = "FILE is executed, as Python imports it" in " ".join(ran.out.split())
        assert says == ("\n  FILE:PROGRAM" in ran.out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ""),
        (["nothing"], "invalid choice: 'nothing'"),
        (["--nothing"], "unrecognized arguments: --nothing"),
        (["shwo", "models.py:loss"], "\nDid you mean show?\n"),
        (["models.py:loss"], "\nDid you mean adze show models.py:loss?\n"),
        (["show", "models.loss"], "neither a file nor a module models.loss\nDid you mean models:loss?\n"),
        (["dump", "models.py:loss", "--lops"], "unrecognized arguments: --lops\nDid you mean --loops?\n"),
        (["show", "model.py:loss"], "adze show: there is no file model.py\nDid you mean models.py?\n"),
        (["explore", "models.py:loss", "-o", "no/x.html", "--no-kernels"], "no/x.html cannot be written: No such file"),
        (["cost", "models.py:loss", "[1]", "--over", "n"], "--over takes sizes alone"),
        (["show"], "the following arguments are required: FILE:PROGRAM"),
        (["show", "models.py:loss", "--style", "poem"], "argument --style: invalid choice: 'poem'"),
        (["show", "models.py:loss", "--nothing"], "adze show: error: unrecognized arguments: --nothing"),
        (["show", "models.py:loss", "--sty", "loops"], "unrecognized arguments: --sty"),
        (["devices", "x"], "unrecognized arguments: x"),
        (["cache", "--list", "--clear"], "not allowed with argument --list"),
        (["dump", "models.py:loss"], "nothing to dump is named\nName some of --nests --loops --schedule --llvm --asm"),
        (["dump", "models.py:loss", "--nests", "--threads", "0"], "a program runs on at least one thread"),
        (["dump", "models.py:loss", "--nests", "--device", "0"], 'device= is for backend="opencl"'),
        (["bench", "models.py:loss", "n=3", "--seconds", "0"], "--seconds is a time above 0, not 0"),
    ],
)
def test_wrong_command_lines(commands: CommandLine, words: list[str], said: str) -> None:
    ran = commands(*words)
    assert ran.code == 2 and said in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["show"], 2, ("UsageError", "the following arguments are required: FILE:PROGRAM", None, None)),
        (["shwo"], 2, ("UsageError", "argument COMMAND: invalid choice: 'shwo'", "Did you mean show?", None)),
        (
            ["dump", "models.py:loss", "--lops"],
            2,
            ("UsageError", "unrecognized arguments: --lops", "Did you mean --loops?", None),
        ),
        (
            ["cost", "models.py:loss", "--seed", "x"],
            2,
            ("UsageError", "argument --seed: invalid seed value", None, None),
        ),
        (["show", "models.py:los"], 2, ("UsageError", "models.py has no 'los'", "models.py has loss", None)),
        (["trace", "models.py:loss", "[1]", "[1,2]"], 1, ("ValueError", "n is 1 in argument 'x'", None, 6)),
        (
            ["show", "models.py:loss", "--grad", "y"],
            1,
            ("TypeError", "argnums is the number or name of a parameter", None, 6),
        ),
    ],
)
def test_errors_are_json_too(commands: CommandLine, words: list[str], code: int, error: tuple[Any, ...]) -> None:
    ran = commands(*words, "--json")
    found = ran.data["error"]
    type, message, hint, line = error
    assert (ran.code, found["type"], found["line"]) == (code, type, line)
    assert (
        message in found["message"]
        and (found["hint"] or "").startswith(hint or "")
        and (hint is None) == (found["hint"] is None)
    )
    assert found["file"] == (None if line is None else "models.py")
    assert found["message"].partition("\n")[0] in ran.err and "Traceback" not in ran.err


def test_how_a_program_is_cut(commands: CommandLine) -> None:
    """8 bytes of each of two arrays an index: 64 MiB hold 2**22 indices."""
    ran = commands("cost", "models.py:loss", "n=10000000", "--over", "n", "--json")
    assert ran.code == 0, ran.err
    assert (ran.data["chunks"], ran.data["stages"], ran.data["bytes"]) == (3, 1, 160_000_000)
    assert ran.data["plan"].startswith("stage 1, of each chunk: ")
    ran = commands("cost", "models.py:loss", "--over", "m")
    assert ran.code == 1 and "over='m' is no size of its parameters alone, which are: n" in ran.err


# Reports


def test_what_json_does_not_have_is_text() -> None:
    value = {"x": np.array([[1.0, np.nan]]), "y": (np.float32(0.5), np.bool_(True), [np.int8(3), -np.inf]), "z": None}
    assert as_json(value) == {"x": [[1.0, "nan"]], "y": [0.5, True, [3, "-inf"]], "z": None}


WIDE = Table(
    ("nest", "time", "runs"), [("first: parallel, lanes of 32", "12.0 µs", "1"), ("in all", "12.0 µs", "")], "frr"
)
REPORT = Report({"n": 1}, [Line("a line"), WIDE, Table((), [("folder", "/a/b")], "lf"), Value((np.arange(3.0), 2))])


def test_a_table_that_fits_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    show(REPORT, as_data=False)
    assert capsys.readouterr().out == (
        "a line\n"
        "nest                             time  runs\n"
        "first: parallel, lanes of 32  12.0 µs     1\n"
        "in all                        12.0 µs\n"
        "folder  /a/b\n"
        "[0]  [0., 1., 2.]\n"
        "[1]  2\n"
    )


def test_a_table_that_does_not_fit_is_read_row_by_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show(REPORT, as_data=False)
    out = capsys.readouterr().out
    assert out.startswith(
        "a line\nfirst: parallel, lanes of 32\n  time  12.0 µs\n  runs  1\nin all\n  time  12.0 µs\nfolder  /a/b\n"
    )
    assert max(map(len, out.splitlines())) <= 40


@pytest.mark.parametrize("words", [["cost", "models.py:loss"], ["check", "models.py"], ["doctor", "--help"]])
def test_commands_fit_into_40_columns(commands: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = commands(*words).out.splitlines()
    assert len(lines) > 4 and max(map(len, lines)) <= 40


def test_code_is_never_broken_into_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = f"def f():\n  return {' + '.join(['x'] * 40)}"
    show(Report({}, [Code(text)]), as_data=False)
    assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.parametrize("coloured", [True, False])
def test_terminals_have_colours(monkeypatch: pytest.MonkeyPatch, coloured: bool) -> None:
    to = terminal(monkeypatch)
    if not coloured:
        monkeypatch.setenv("NO_COLOR", "1")
    show(REPORT, as_data=False)
    show(Report({}, [Code("def f(x):\n  return x")]), as_data=False)
    complain("wrong", "mend it")
    text = to.getvalue()
    if coloured:
        assert "\x1b[31mwrong" in text and text.count("\x1b[") > 10
    else:
        assert "\x1b" not in text and text.endswith("def f(x):\n  return x\nwrong\nmend it\n")


def test_what_is_no_terminal_has_no_colours(commands: CommandLine) -> None:
    for words in (["show", "models.py:loss"], ["check", "models.py"], ["show", "models.py"]):
        ran = commands(*words)
        assert "\x1b" not in ran.out + ran.err and not any(line.endswith(" ") for line in ran.out.splitlines())


def test_markup_in_texts_is_text(commands: CommandLine) -> None:
    """Brackets, as rich's markup has them, are those of types and messages here."""
    commands.write(
        "odd.py", 'import adze as az\n@az.program\ndef f(x: az.Array[az.f64, "red"]):\n    return x[[bold]]\n'
    )
    ran = commands("show", "odd.py")
    assert ran.code == 1 and "NameError: name 'bold' is not defined (at odd.py:4)\n" in ran.err
    commands.write("odd.py", 'import adze as az\n@az.program\ndef f(x: az.Array[az.f64, "red"]):\n    return x\n')
    assert "(f64[red]) -> f64[red]" in commands("check", "odd.py").out


# Commands


def test_every_style_of_show(commands: CommandLine) -> None:
    assert "sum(i < n: (x[i] * w[i]) ** 2)" in commands("show", "models.py:loss", "--style", "loops").out
    assert commands("show", "models.py:loss", "--style", "de-bruijn").out.startswith("(x: f64[n], w: f64[n]) ->\n")
    ran = commands("show", "models.py:polynomial", "coefficients=(2,0,1)", "--as-written")
    assert ran.out == "def polynomial(x: f64) -> f64:\n  return (2.0 * x + 0.0) * x + 1.0\n"
    ran = commands("show", "models.py:free", "random:2x3")
    assert ran.out == "def free(x: f64[x_0, x_1]) -> f64:\n  return sum(x)\n"
    ran = commands("show", "models.py:free")
    assert ran.code == 2 and "free takes the type of x from its argument\nGive one: x=random:1000, say.\n" in ran.err
    ran = commands("show", "models.py:polynomial")
    assert ran.code == 2 and "the argument coefficients: tuple of polynomial is static" in ran.err


def test_check_looks_at_all_programs(commands: CommandLine) -> None:
    ran = commands("check", "models.py", "--json")
    states = {each["name"]: each["state"] for each in ran.data["programs"]}
    left = {"free": "not checked", "polynomial": "not checked"}
    assert ran.code == 0
    assert states == {name: left.get(name, "ok") for name in ("loss", "Model.norm", "picked", *left, "line", "slope")}
    commands.write("wrong.py", "import adze as az\n@az.program\ndef f(x: az.f64) -> az.f64:\n    return x.nope\n")
    ran = commands("check", "wrong.py")
    assert ran.code == 1 and "has no attribute 'nope' (at wrong.py:4)" in ran.out
    assert commands("check", "models.py:free", "x=random:3").code == 0
    assert commands("check", "wrong.py", "--traceback").err.startswith("Traceback")


def test_derivatives_have_the_values_of_formulas(commands: CommandLine) -> None:
    x, w = np.array([1.0, 2.0]), np.array([3.0, -0.5])
    ran = commands("grad", "models.py:loss", "--value", "--by", "w", "[1,2]", "[3,-0.5]", "--json")
    value, gradient = ran.data["result"]
    assert value == np.sum((x * w) ** 2) and gradient == (2 * w * x**2).tolist()
    ran = commands("jvp", "models.py:loss", "--by", "x", "[1,2]", "[3,-0.5]", "d_x=[1,10]", "--json")
    assert ran.data["result"] == [value, float(np.sum(2 * w**2 * x * [1, 10]))]
    ran = commands("jvp", "models.py:loss", "[1,2]", "[3,-0.5]", "d_x=ones")
    assert ran.code == 2 and "the argument d_w: f64[n] of jvp(loss) is missing" in ran.err


def test_cost_has_the_counts_of_az_cost(commands: CommandLine) -> None:
    assert commands("cost", "models.py:loss", "--json").data["operations"] == "3 n"
    assert commands("cost", "models.py:loss", "n=7", "--json").data["operations"] == 21
    ran = commands("cost", "models.py:loss", "m=7")
    assert ran.code == 2 and "there is no parameter or size m" in ran.err
    ran = commands("cost", "models.py:free")
    assert ran.code == 2 and "takes the type of x" in ran.err
    assert commands("cost", "models.py:free", "x=random:5", "--json").data["reads"] == 5


@pytest.mark.unguarded
def test_dump_shows_stages(commands: CommandLine) -> None:
    ran = commands("dump", "models.py:loss", "--nests", "--llvm", "--asm", "--threads", "1")
    assert ran.code == 0
    _, nests, llvm, asm = ran.out.split("== ")
    assert nests.startswith("nests\nloss(n; x1: f64[n]") and "define " in llvm and "ret" in asm
    ran = commands("dump", "models.py:loss", "--nests")
    assert ran.out.startswith("loss(n; ")


def test_dump_of_opencl_needs_its_backend(opencl: Any, commands: CommandLine) -> None:
    ran = commands("dump", "models.py:loss", "--opencl")
    assert ran.code == 0 and "kernel void " in ran.out
    ran = commands("dump", "models.py:loss", "--llvm", "--backend", "opencl")
    assert ran.code == 2 and "--llvm is not there for --backend opencl" in ran.err
    ran = commands("dump", "models.py:loss", "--opencl", "--device", "no such device")
    assert ran.code == 2 and "there is no such OpenCL device" in ran.err
    ran = commands("devices", "--json")
    assert ran.code == 0 and any(each["problem"] is None for each in ran.data["devices"])


# Other processes


def adze(folder: Path, words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell's command line in a folder, where ``adze`` is this package's."""
    words = words.replace("adze ", f"{sys.executable} -m adze ")
    given = {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache" / "plain")}
    command = ["bash", "-c", f"set -o pipefail; {words}"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **given, **environment}, capture_output=True, text=True, timeout=300
    )


@pytest.mark.rest
def test_a_closed_pipe_has_read_enough(commands: CommandLine) -> None:
    ran = adze(commands.folder, "adze show models.py:slope | true")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.rest
def test_it_works_from_an_empty_folder(tmp_path: Path) -> None:
    """Exit codes are those of the process, and nothing is left in the folder."""
    ran = adze(tmp_path, "adze show nothing.py:f", COLUMNS="40", TERM="xterm-256color")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", "adze show: there is no file nothing.py\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_works_without_a_place_to_write_to(commands: CommandLine) -> None:
    """A closed output, a full one, and one in ASCII."""
    ran = adze(
        commands.folder,
        "adze show models.py:slope >&- && adze profile models.py:loss n=3 --threads 1 | grep -o '[0-9] .s' | head -1",
        PYTHONIOENCODING="ascii",
    )
    assert ran.returncode == 0 and ran.stderr == "" and "s\n" in ran.stdout
    ran = adze(commands.folder, "adze show models.py:slope >/dev/full")
    assert (ran.returncode, ran.stderr) == (1, "adze: what was found cannot be written: No space left on device\n")


def test_what_programs_print_is_no_part_of_the_report(commands: CommandLine) -> None:
    text = "import adze as az\n@az.program\ndef f(x: az.f64) -> az.f64:\n    return 2 * az.inspect(x, 'x')\n"
    commands.write("printing.py", text)
    ran = commands("trace", "printing.py", "3", "--json")
    assert ran.code == 0 and ran.data["result"] == 6.0 and "3.0" in ran.err


def test_an_interrupt_has_its_own_code(commands: CommandLine) -> None:
    commands.write("stopped.py", "raise KeyboardInterrupt\n")
    assert main(["show", "stopped.py:f"]) == 130
