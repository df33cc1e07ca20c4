"""Arguments of declared types on the command line: records, variants, tuples, functions, and what is none of them."""

from typing import Any

import numpy as np
import pytest
from command_line import CommandLine

DECLARED = """
import dataclasses
from typing import Callable, Generic, NamedTuple, TypeVar

import adze as az

T = TypeVar("T")


@az.data
class Layer:
    weights: az.Array[az.f32, "n m"]
    bias: az.Array[az.f64, "m"]


@az.data
class Net:
    layer: Layer
    pair: tuple[az.f64, az.i64]


@az.program
def applied(net: Net, x: az.Array[az.f64, "n"]):
    return az.sum(x @ net.layer.weights.astype(az.f64) + net.layer.bias) * net.pair[0] + net.pair[1]


@az.data
class List(Generic[T]):
    class Nil: ...
    class Cons:
        head: T
        tail: "List[T]"


@az.fix
def add(self, xs: List[az.f64]) -> az.f64:
    return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, tail: head + self(tail))


@az.program
def total(xs: List[az.f64]) -> az.f64:
    return add(xs)


@az.data
class Offset:
    bias: az.Array[az.f64, 2]


@az.data
class Shape:
    class Dot: ...
    class Polygon:
        points: az.Array[az.f32, 2, 2]
    class Moved:
        by: Offset
        shapes: tuple[az.f64, List[az.f64]]


@az.program
def area(shape: Shape) -> az.f64:
    return az.case(
        shape,
        Dot=lambda: 0.0,
        Polygon=lambda points: az.sum(points).astype(az.f64),
        Moved=lambda by, shapes: az.sum(by.bias) + shapes[0] + add(shapes[1]),
    )


class Point(NamedTuple):
    x: az.f64
    y: az.f64


@dataclasses.dataclass
class Line:
    start: Point
    ends: tuple[az.f64, az.f64]


@az.program
def length(line: Line) -> az.f64:
    return (line.start.x - line.ends[0]) ** 2 + (line.start.y - line.ends[1]) ** 2


@az.program
def twice(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
    return f(f(x))


@az.program
def fixed(x: az.f64, f: Callable) -> az.f64:
    return f(x)


def square(x):
    return x * x


class Inner:
    @staticmethod
    def half(x):
        return x / 2


_hidden = square
number = 3
"""

NET = '{"layer": {"weights": [[1, 2], [3, 4]], "bias": [0.5, 1]}, "pair": [2.0, 3]}'


@pytest.fixture
def declared(commands: CommandLine) -> CommandLine:
    """The command line, with programs whose parameters have declared types."""
    commands.write("declared.py", DECLARED)
    return commands


def traced(commands: CommandLine, program: str, *words: str) -> Any:
    ran = commands("trace", f"declared.py:{program}", *words, "--json")
    assert ran.code == 0, ran.err
    return ran.data["result"]


@pytest.mark.parametrize("net", [NET, NET.replace('"', "'"), f"net={NET}", NET.replace("[2.0, 3]", "(2.0, 3)")])
def test_records_are_objects(declared: CommandLine, net: str) -> None:
    assert traced(declared, "applied", net, "[1, 10]") == (31 + 42 + 1.5) * 2 + 3


def test_a_record_has_the_declared_types(declared: CommandLine) -> None:
    net = NET.replace("[[1, 2], [3, 4]]", "[[0.1, 0], [0, 0]]")
    assert traced(declared, "applied", net, "[1, 10]") == (float(np.float32(0.1)) + 1.5) * 2 + 3


def test_sizes_follow_from_records(declared: CommandLine) -> None:
    """What is missing is generated, of the size that the record says."""
    ran = declared("bench", "declared.py:applied", NET, "--seconds", "0.001", "--json")
    assert ran.code == 0 and ran.data["sizes"] == {"n": 2, "m": 2} and ran.data["generated"] == ["x: f64[n]"]


def test_the_parts_of_a_record_have_names(declared: CommandLine) -> None:
    words = ["net_layer_weights=[[1, 2], [3, 4]]", "net_layer_bias=[0.5, 1]", "net_pair_0=2", "net_pair_1=3", "[1, 10]"]
    assert traced(declared, "applied", *words) == traced(declared, "applied", NET, "[1, 10]")
    assert traced(declared, "applied", "ones", "ones", "n=2", "m=3") == 10


@pytest.mark.parametrize(
    ("xs", "result"),
    [
        ("Nil", 0.0),
        ('"Nil"', 0.0),
        ('{"Nil": {}}', 0.0),
        ('{"Nil": []}', 0.0),
        ('{"Cons": [1.5, "Nil"]}', 1.5),
        ('xs={"Cons": {"head": 1.5, "tail": {"Cons": [2, "Nil"]}}}', 3.5),
        ('{"Cons": {"tail": "Nil", "head": 1}}', 1.0),
    ],
)
def test_variants_are_written_by_their_constructors(declared: CommandLine, xs: str, result: float) -> None:
    assert traced(declared, "total", xs) == result


def test_constructors_take_arrays_records_and_tuples(declared: CommandLine) -> None:
    assert traced(declared, "area", "Dot") == 0.0
    assert traced(declared, "area", '{"Polygon": [[[0.1, 2], [3, 4]]]}') == np.sum(np.float32([0.1, 2, 3, 4]))
    assert traced(declared, "area", '{"Moved": [{"bias": [0.5, 1]}, [2.0, {"Cons": [4, "Nil"]}]]}') == 7.5


def test_long_lists(declared: CommandLine) -> None:
    count = 700
    assert traced(declared, "total", '{"Cons": [1, ' * count + '"Nil"' + "]}" * count) == count
    count = 20_000
    ran = declared("trace", "declared.py:total", '{"Cons": [1, ' * count + '"Nil"' + "]}" * count)
    assert ran.code == 2 and ran.err.startswith("adze trace: xs=") and "is n" in ran.err  # no value, or nested too deep


def test_a_compiled_program_takes_them(declared: CommandLine) -> None:
    ran = declared("grad", "declared.py:total", "--value", '{"Cons": [1.5, {"Cons": [2, "Nil"]}]}', "--json")
    assert ran.code == 0 and ran.data["result"][0] == 3.5
    assert ran.data["result"][1] == "List.Cons(head=1.0, tail=List.Cons(head=1.0, tail=List.Nil()))"


def test_structures_with_names_are_objects(declared: CommandLine) -> None:
    assert traced(declared, "length", '{"start": {"x": 1, "y": 2.5}, "ends": [4, 6.5]}') == 25.0
    assert traced(declared, "length", '{"start": [1, 2.5], "ends": [4, 6.5]}') == 25.0


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["twice", "square", "3"], 81.0),
        (["twice", "f=Inner.half", "x=8"], 2.0),
        (["twice", "az.sqrt", "16"], 2.0),
        (["fixed", "3", "square"], 9.0),
        (["fixed", "f=az.sqrt", "x=16"], 4.0),
    ],
)
def test_functions_are_named(declared: CommandLine, words: list[str], result: float) -> None:
    assert traced(declared, *words) == result


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["applied", "3"], 'net is {"layer": ..., "pair": ...}, not 3\n'),
        (["applied", '{"layer": 1}'], 'net is {"layer": ..., "pair": ...}, not {\'layer\': 1}\n'),
        (["applied", NET.replace("bias", "bia")], 'net.layer is {"weights": ..., "bias": ...}, not {'),
        (["applied", NET.replace(", 3]", "]")], "net.pair is [..., ...], not [2.0]\n"),
        (
            ["total", '{"cons": []}'],
            "xs is List[f64], not {'cons': []}\n"
            'Give xs=Nil or {"Cons": {"head": f64, "tail": List[f64]}}. Did you mean Cons?\n',
        ),
        (["total", "[1, 2]"], "xs is List[f64], not [1, 2]\nGive xs=Nil or"),
        (["total", '{"Cons": [1]}'], 'xs, Cons is {"head": ..., "tail": ...}, not [1]\n'),
        (["total", '{"Cons": [1, "Nul"]}'], "xs, Cons.tail is List[f64], not Nul\n"),
        (["total", '{"Cons": [1, "Nil"], "Nil": []}'], "xs is List[f64], not {'Cons': [1, 'Nil'], 'Nil': []}\n"),
        (["total", "Cons"], 'xs, Cons is {"head": ..., "tail": ...}, not []\n'),
        (["total"], 'the argument xs: List[f64] of total is missing\nGive xs=Nil or {"Cons": '),
        (["total", "random"], "no List[f64] is generated, which xs is\nGive xs=Nil or"),
        (["twice", "squar", "3"], "f is a function, and declared.py has none that is called squar\nName one of"),
        (["twice", "squar", "3"], "Did you mean square?\n"),
        (["twice", "number", "3"], "has none that is called number\n"),
        (["twice", "lambda x: x", "3"], "has none that is called lambda x: x\n"),
        (["twice", "f=random", "3"], "has none that is called random\n"),
        (["twice", "x=3"], "the argument f: (f64) -> f64 of twice is missing\nGive f=NAME, a function of the file.\n"),
        (["fixed", "3", "sin"], "f is a function, and declared.py has none that is called sin\n"),
    ],
)
def test_what_is_no_value_of_a_declared_type(declared: CommandLine, words: list[str], said: str) -> None:
    program, *arguments = words
    ran = declared("trace", f"declared.py:{program}", *arguments)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith("adze trace: ") and said in ran.err and "Traceback" not in ran.err


def test_what_is_no_array_is_not_generated(declared: CommandLine) -> None:
    missing = "the argument f: (f64) -> f64 of twice is missing"
    for program, said in (("total", "no List[f64] is generated"), ("twice", missing)):
        ran = declared("bench", f"declared.py:{program}")
        assert ran.code == 2 and said in ran.err
