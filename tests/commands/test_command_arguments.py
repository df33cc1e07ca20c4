"""Arguments on the command line: what words stand for, and what is said about those that stand for nothing."""

import os
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine

X, W = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
LOSS = float(np.sum((X * W) ** 2))


@pytest.fixture
def files(commands: CommandLine) -> CommandLine:
    """The command line, with files of arrays."""
    np.save("x.npy", X)
    np.save("short.npy", X[:2])
    np.save("single.npy", X.astype(np.float32))
    np.savez("both.npz", x=X, w=W)
    np.savez("other.npz", x=X, weight=W)
    np.save("objects.npy", np.array([{}], object))
    commands.write("text.npy", "no array\n")
    return commands


def traced(files: CommandLine, program: str, *words: str) -> Any:
    """The result that a trace has, which is that of a run."""
    ran = files("trace", f"models.py:{program}", *words, "--json")
    assert ran.code == 0, ran.err
    return ran.data["result"]


@pytest.mark.parametrize(
    "words",
    [
        ["[1,2,3]", "[0.5,-1,2]"],
        ["w=[0.5,-1,2]", "[1,2,3]"],
        ["x=x.npy", "w=[0.5,-1,2]"],
        ["x.npy", "(0.5,-1,2)"],
        ["both.npz"],
        ["x=range:3", "w=[0.5,-1,2]"],
        ["x=ones", "w=[0.5,-1,2]"],
        ["x=zeros", "w=normal", "n=3"],
        ["x=ones:3", "w=ones"],
    ],
)
def test_words_are_arguments(files: CommandLine, words: list[str]) -> None:
    expected = {"x=range:3": 17.0, "x=ones": 5.25, "x=zeros": 0.0, "x=ones:3": 3.0}
    assert traced(files, "loss", *words) == expected.get(words[0], LOSS)


def test_arguments_of_other_kinds(files: CommandLine) -> None:
    assert traced(files, "picked", "[0.1,0.2]", "k=1") == float(np.float32(0.2))  # rounded to the declared type
    assert traced(files, "polynomial", "3", "coefficients=(2,0,1)") == 19.0
    assert traced(files, "polynomial", "inf", "coefficients=(1,0)") == "inf"
    assert traced(files, "polynomial", "x=-3.0", "coefficients=(1,0)") == -3.0
    assert traced(files, "polynomial", "-3.0", "coefficients=(1,0)") == -3.0
    assert traced(files, "line", "{'slope': 2.0, 'offset': 1.0}", "3") == 7.0
    assert traced(files, "line", "model_slope=2", "model_offset=1", "x=3") == 7.0
    assert traced(files, "free", "[1,2]") == 3
    assert traced(files, "free", "[[1.5,2],[3,4]]") == 10.5
    np.savez("line.npz", model_slope=2.0, model_offset=1.0, x=3.0)
    assert traced(files, "line", "line.npz") == 7.0


def test_options_may_stand_between_arguments(files: CommandLine) -> None:
    ran = files("trace", "models.py:loss", "[1,2,3]", "--keep", "scalars", "w=[0.5,-1,2]", "--json")
    assert ran.code == 0 and ran.data["result"] == LOSS


# Generated arrays


def test_structures_are_generated(files: CommandLine) -> None:
    """All leaves by one word, or those that are missing where sizes suffice; each from a stream of its own."""
    assert traced(files, "line", "model=ones", "x=3") == 4.0
    assert traced(files, "line", "model_slope=2", "model_offset=zeros", "x=3") == 6.0
    slope, offset, x = [np.random.default_rng([0, *stream]).random() for stream in ([0, 0], [0, 1], [1, 0])]
    assert len({slope, offset, x}) == 3
    assert traced(files, "line", "random", "random") == pytest.approx(slope * x + offset, rel=1e-15)


def test_static_parameters(files: CommandLine) -> None:
    text = """
        import enum
        import adze as az
        Kind = enum.Enum("Kind", "PLAIN SQUARED")
        @az.program
        def f(x: az.f64, kind: Kind, label: str, steps: int = 2) -> az.f64:
            return (x * x if kind is Kind.SQUARED else x) * steps * len(label)
    """
    files.write("static.py", text)
    for words, result in ((["3", "SQUARED", "ab"], 36.0), (["3", "kind=PLAIN", "label=abc", "steps=1"], 9.0)):
        assert files("trace", "static.py:f", *words, "--json").data["result"] == result
    for words, said in (
        (["3", "CUBED", "a"], "kind=CUBED: Kind has PLAIN, SQUARED\n"),
        (["3", "PLAIN"], "the argument label: str of f is missing\nGive label=....\n"),
    ):
        ran = files("trace", "static.py:f", *words)
        assert ran.code == 2 and said in ran.err


def test_random_arrays_are_those_of_the_seed(files: CommandLine) -> None:
    """Each parameter has a stream of its own: what the other one is does not matter."""
    first = traced(files, "free", "random:5x2")
    assert first == pytest.approx(np.random.default_rng([0, 0]).random((5, 2)).sum())
    assert first == traced(files, "free", "random:5x2") != traced(files, "free", "random:5x2", "--seed", "1")
    w = np.random.default_rng([0, 1]).random(3)
    for x in ("ones", "[1,1,1]", "random:3:1:1.0000000000000002"):
        assert traced(files, "loss", f"x={x}", "w=random", "n=3") == pytest.approx(np.sum(w**2))


@pytest.mark.parametrize(
    ("word", "low", "high"), [("random:1000", 0, 1), ("random:1000:-2:3", -2, 3), ("random:1000:0.5:0.75", 0.5, 0.75)]
)
def test_random_numbers_are_in_range(files: CommandLine, word: str, low: float, high: float) -> None:
    files.write("same.py", "import adze as az\nf = az.program(lambda x: x)\n")
    ran = files("grad", "models.py:free", "--value", word, "--json")
    assert ran.code == 0 and low * 1000 <= ran.data["result"][0] <= high * 1000
    numbers = files("trace", "same.py:f", word, "--json").data["result"]
    assert low <= min(numbers) < low + 0.02 * (high - low) and high - 0.02 * (high - low) < max(numbers) < high


def test_generated_arrays_have_the_declared_types(files: CommandLine) -> None:
    text = """
        import adze as az
        @az.program
        def f(i: az.Array[az.i32, "n"], u: az.Array[az.u8, "n n+1"], b: az.Array[az.bool_, "n"], x: az.f32, k: az.i64):
            return i, u, b, x, k
    """
    files.write("kinds.py", text)
    i, u, b, x, k = traced_file(files, "kinds.py", "i=random", "u=random:4x5:0:200", "b=random", "random", "random")
    assert i == [0, 0, 0, 0] and np.shape(u) == (4, 5) and 100 < np.max(u) < 200
    assert all(isinstance(each, bool) for each in b) and np.float32(x) == x and 0 <= x < 1 and k == 0
    ones, _, _, _, k = traced_file(files, "kinds.py", *[f"{name}=ones" for name in "iubxk"], "n=2")
    assert ones == [1, 1] and k == 1


def traced_file(files: CommandLine, file: str, *words: str) -> Any:
    ran = files("trace", file, *words, "--json")
    assert ran.code == 0, ran.err
    return ran.data["result"]


def test_a_name_of_both_a_parameter_and_a_size_is_both(files: CommandLine) -> None:
    text = 'import adze as az\n@az.program\ndef f(x: az.Array[az.f64, "n"], n: az.i64):\n    return az.sum(x) * n\n'
    files.write("both.py", text)
    assert traced_file(files, "both.py", "x=ones", "n=4") == 16.0


def test_missing_arguments_are_made_from_sizes(files: CommandLine) -> None:
    """By cost, which counts a run here: the sum depends on the data of k steps."""
    ran = files("cost", "models.py:line", "x=1", "--json")
    assert ran.code == 0 and ran.data["operations"] == 2
    ran = files("cost", "models.py:loss", "x=x.npy", "--json")
    assert ran.code == 0 and ran.data["sizes"] == {"n": 3} and ran.data["operations"] == 9


# Words that stand for nothing


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("loss", ["[1,2"], "x=[1,2 is no value\nNumbers and lists are written as in Python: 3.0, [1,2,3];"),
        ("loss", ["x=__import__('os')"], "x=__import__('os') is no value\n"),
        ("loss", ["x=" + "[" * 3000], "... is no value\n"),
        ("loss", ["1+1"], "x=1+1 is no value\n"),
        ("loss", ["[1]", "x=[2]"], "the argument x is given twice\n"),
        ("loss", ["[1]", "[2]", "[3]"], "'[3]' is one argument too many: loss has the parameters x: f64[n], w: f64[n]"),
        (
            "loss",
            ["[1]", "v=[2]"],
            "there is no parameter or size v: loss has the parameters x: f64[n], w: f64[n] and ",
        ),
        ("line", ["model_slop=1"], "Did you mean model"),
        ("loss", ["[1]"], "the argument w: f64[n] of loss is missing\nGive w=..., or w=random.\n"),
        ("line", ["model_slope=1", "x=2"], "the argument model_offset of line is missing\n"),
        ("free", [], "the argument x of free is missing\nGive x=..., or x=random:1000.\n"),
        ("loss", ["n=3", "x=ones"], "the argument w: f64[n] of loss is missing\n"),
        (
            "loss",
            ["x=random", "w=random"],
            "the size n of x: f64[n] is not known\nGive n=1000, say, or arrays.\n",
        ),
        ("loss", ["x=random:3y4", "w=ones"], "random:3y4: a shape is written 1000x16\n"),
        ("loss", ["x=random:3:1:0", "w=ones"], "random:3:1:0: there is no number from 1 to below 0\n"),
        ("loss", ["x=random:3:a:b", "w=ones"], "random:3:a:b: 'a' and 'b' are to be numbers\n"),
        ("loss", ["x=ones:3:0:2", "w=ones"], "ones:3:0:2: only random has a least number"),
        ("loss", ["x=random:999999999x999999999", "w=ones"], "of shape 999999999x999999999 in f64 cannot be made: "),
        ("picked", ["[1]", "k=random:3:0.2:0.4"], "in i64 cannot be made: "),
        ("loss", ["n=-3"], "n=-3: a size is a whole number, from 0\n"),
        ("loss", ["n=many"], "n=many: a size is a whole number, from 0\n"),
        ("loss", ["nothing.npy"], "nothing.npy cannot be read: No such file or directory\n"),
        ("loss", ["nothing.npz"], "nothing.npz cannot be read: No such file or directory\n"),
        ("loss", ["x=text.npy", "w=ones"], "text.npy is no file of arrays: "),
        ("loss", ["x=objects.npy", "w=ones"], "objects.npy is no file of arrays: Object arrays cannot be loaded when"),
        (
            "loss",
            ["other.npz"],
            "other.npz has an array 'weight': loss has the parameters x: f64[n], w: f64[n] and the",
        ),
        ("loss", ["both.npz", "x=[1]"], "the argument x is given twice\n"),
    ],
)
def test_wrong_words(files: CommandLine, program: str, words: list[str], said: str) -> None:
    ran = files("trace", f"models.py:{program}", *words)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith("adze trace: ") and said in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["[[1]]", "[2]"],
            "TypeError: loss: argument 'x' is f64[n], got an array of int64 with shape (1, 1) (at models",
        ),
        (["x.npy", "short.npy"], "ValueError: loss: n is 3 in argument 'x' (axis 0 of shape (3,)), but 2 in argument "),
        (["single.npy", "x.npy"], "TypeError: loss: argument 'x' is f64[n], got an array of float32 with shape (3,)"),
        (["n=2", "x=x.npy", "w=random"], "ValueError: loss: n is 3 in argument 'x' (axis 0 of shape (3,)), but 2 in"),
        (["{'a': 1}", "[1]"], "TypeError: loss: argument 'x' "),
    ],
)
def test_arguments_that_do_not_fit_are_the_programs_errors(files: CommandLine, words: list[str], said: str) -> None:
    """The line is that of the program, where its parameters are declared."""
    ran = files("trace", "models.py:loss", *words)
    assert ran.code == 1 and ran.err.startswith(said) and ran.err.endswith("(at models.py:6)\n")


def test_an_error_of_the_run_names_the_programs_line(files: CommandLine) -> None:
    ran = files("trace", "models.py:picked", "[1,2]", "k=5")
    assert ran.code == 1 and ran.err.startswith("IndexError: index 5 is out of range") and "models.py:19" in ran.err
    assert "Traceback" not in ran.err and os.path.basename(__file__) not in ran.err


@pytest.mark.parametrize("seed", ["-1", "one"])
def test_a_seed_is_a_whole_number(files: CommandLine, seed: str) -> None:
    ran = files("trace", "models.py:free", "random:3", "--seed", seed)
    assert ran.code == 2 and "argument --seed: invalid seed value" in ran.err
