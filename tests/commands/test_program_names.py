"""FILE:PROGRAM: what is found, and what is said about what is not."""

import sys

import pytest
from command_line import CommandLine

LOSS = "def loss(x: f64[n], w: f64[n]) -> f64:\n  return sum((x * w) ** 2)\n"
NORM = "def norm(x: f64[n]) -> f64:\n  return sum(x ** 2)\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("models.py:loss", LOSS),
        ("./models.py:loss", LOSS),
        ("models:loss", LOSS),
        ("models.py:Model.norm", NORM),
        ("deep/one.py", NORM),
        ("deep.one:norm", NORM),
        ("deep.one", NORM),
        ("compiled.py:fast", NORM),
    ],
)
def test_programs_are_found(commands: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    one = 'import adze as az\n@az.program\ndef norm(x: az.Array[az.f64, "n"]) -> az.f64:\n    return az.sum(x * x)\n'
    commands.write("deep/one.py", one)
    commands.write("compiled.py", f"{one}\nfast = az.compile(norm)\n")
    ran = commands("show", name)
    for module in ("models", "deep", "deep.one"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert (ran.code, ran.out, ran.err) == (0, text, "")


def test_the_files_folder_is_looked_in_for_imports(commands: CommandLine) -> None:
    commands.write("deep/beside.py", "FACTOR = 7.0\n")
    text = "import adze as az\nfrom beside import FACTOR\n@az.program\ndef f(x: az.f64):\n    return FACTOR * x\n"
    commands.write("deep/f.py", text)
    assert "7.0 * x" in commands("show", "deep/f.py").out


def test_a_file_is_imported_and_not_run_as_a_script(commands: CommandLine) -> None:
    """What it prints is no part of the report, and it sees no arguments of the command."""
    text = """
        import sys
        import adze as az
        print("printed", sys.argv)
        f = az.program(lambda x: x + 1.0)
        g = f.at(az.f64)
        if __name__ == "__main__":
            raise SystemExit("run as a script")
    """
    commands.write("script.py", text)
    ran = commands("show", "script.py:g", "--json")
    assert ran.code == 0 and ran.data["text"].startswith("def <lambda>(x: f64)")
    assert ran.err == "printed ['script.py']\n"


def test_a_changed_file_is_read_again(commands: CommandLine) -> None:
    for operator in ("+", "-"):
        text = f"import adze as az\n@az.program\ndef f(x: az.f64) -> az.f64:\n    return 2.0 {operator} x\n"
        commands.write("f.py", text)
        assert f"2.0 {operator} x" in commands("show", "f.py").out
    assert not (commands.folder / "__pycache__").exists()


def test_annotations_in_text_are_found(commands: CommandLine) -> None:
    text = """
        from __future__ import annotations
        from dataclasses import dataclass
        import adze as az

        @dataclass
        class Line:
            slope: az.f64
            offset: az.f64

        @az.program
        def f(line: Line, x: az.f64) -> az.f64:
            return line.slope * x + line.offset
    """
    commands.write("line.py", text)
    assert commands("show", "line.py").out.startswith("def f(line_slope: f64, line_offset: f64, x: f64)")


# What is not found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("models.py", "models.py has 7 programs\nName one: models.py:loss, models.py:Model.norm, models.py:picked, "),
        (
            "models.py:los",
            "models.py has no 'los'\nmodels.py has loss, Model.norm, picked, free, polynomial, line, slope.",
        ),
        ("models.py:los", "Did you mean loss?\n"),
        ("models.py:Model.nrom", "Did you mean Model.norm?\n"),
        ("models.py:Model", "Model is a class, and no program\nName one of its programs: Model.norm\n"),
        (
            "models.py:plain",
            "plain is a function, and no program (at models.py:43)\nMake it one where it is written: @az.p",
        ),
        (
            "models.py:nameless",
            "nameless is a lambda, and no program (at models.py:47)\nMake it one where it is written: ",
        ),
        ("models.py:number", "number is no program, but of type int\n"),
        ("models.py:", "'' in 'models.py:' is no name of a program\n"),
        ("models.py:loss()", "'loss()' in 'models.py:loss()' is no name of a program\n"),
        (":loss", "no FILE is named\n"),
        ("nothing.py:f", "there is no file nothing.py\n"),
        ("nothing:f", "there is neither a file nor a module nothing\n"),
        ("models.nothing:f", "there is neither a file nor a module models.nothing\n"),
        (".models:f", "'.models' is no name of a module: "),
        ("empty.py", "empty.py has no programs\n"),
        ("empty.py:f", "empty.py has no 'f'\nempty.py has no programs.\n"),
        ("folder/", "folder is a folder, and no file\n"),
    ],
)
def test_what_is_not_found(commands: CommandLine, name: str, said: str) -> None:
    commands.write("empty.py", "import adze\n")
    (commands.folder / "folder").mkdir()
    ran = commands("show", name)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith("adze show: ") and said in ran.err and "Traceback" not in ran.err


def test_programs_that_a_file_imports_are_not_its_own(commands: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.write("more.py", "import adze as az\nfrom models import loss\nnorm = az.program(lambda x: x)\n")
    ran = commands("check", "more.py", "--json")
    monkeypatch.delitem(sys.modules, "models")
    assert [each["name"] for each in ran.data["programs"]] == ["norm"]


# Files that do not import


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ndef f(:\n    pass\n", '  File "broken.py", line 2\n    def f(:\n'),
        ("x = 1\ny = z\n", "NameError: name 'z' is not defined (at broken.py:2)\n    y = z\n"),
        (
            "def f():\n    return 1 / 0\nf()\n",
            "ZeroDivisionError: division by zero (at broken.py:2)\n    return 1 / 0\n",
        ),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all' (at broken.py:1)\n"),
        ("from . import x\n", "ImportError: attempted relative import with no known parent package (at broken.py:1)\n"),
        ("import sys\nsys.exit(3)\n", "RuntimeError: broken.py ends by sys.exit(3) while it is imported; put what is"),
        ("\0", "null bytes"),
        (
            "import adze as az\n@az.program\ndef f(x: az.Array[az.f64]) -> az.f64:\n    return x\n",
            "TypeError: an array has at least one axis: write az.f64 for a scalar (at broken.py:3)",
        ),
    ],
)
def test_files_that_do_not_import(commands: CommandLine, text: str, said: str) -> None:
    (commands.folder / "broken.py").write_text(text, encoding="utf-8")
    ran = commands("show", "broken.py:f")
    assert ran.code == 1 and ran.out == ""
    assert said in ran.err and "Traceback" not in ran.err


def test_a_traceback_is_printed_where_it_is_asked_for(commands: CommandLine) -> None:
    commands.write("broken.py", "def f():\n    return undefined\nf()\n")
    ran = commands("show", "broken.py:f", "--traceback")
    assert ran.code == 1 and ran.err.startswith("Traceback (most recent call last):\n")
    assert ran.err.endswith("NameError: name 'undefined' is not defined\n")
    assert commands("show", "nothing.py", "--traceback").code == 2


def test_an_error_of_the_program_names_its_line(commands: CommandLine) -> None:
    text = 'import adze as az\n@az.program\ndef f(x: az.Array[az.f64, "n"]) -> az.f64:\n    return az.sum(x.nope)\n'
    commands.write("wrong.py", text)
    ran = commands("show", "wrong.py")
    assert (
        ran.code == 1 and "has no attribute 'nope' (at wrong.py:4)\nwhile building the program f(f64[n])\n" in ran.err
    )


# Gradients


def test_gradients_of_programs(commands: CommandLine) -> None:
    assert commands("show", "models.py:loss", "--grad", "w").out == commands("show", "models.py:slope").out
    ran = commands("show", "models.py:loss", "--grad", "0,w")
    assert ran.code == 0 and ran.out.startswith("def grad(loss)(x: f64[n], w: f64[n]) -> (f64[n], f64[n]):")
    for by, said in (("z", "argnums is the number or name of a parameter"), ("5", "loss has 2 parameters")):
        ran = commands("show", "models.py:loss", "--grad", by)
        assert ran.code == 1 and said in ran.err and "models.py:6" in ran.err
    ran = commands("grad", "models.py:picked", "--by", "k")
    assert ran.code == 1 and "'k' (argnums 1) is of type i64" in ran.err
