"""The arguments and results of programs: structures, arrays of other libraries, static parameters, pickling."""

import array
import dataclasses
import enum
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest

import adze as az
from adze.core.annotations import type_of_argument

Vector = az.Array[az.f64, "n"]


@dataclasses.dataclass
class Layer:
    weights: az.Array[az.f64, "m n"]
    bias: az.Array[az.f64, "m"]
    note: str = dataclasses.field(default="a note", init=False)


class Pair(NamedTuple):
    first: az.f64
    second: Vector


class Named(TypedDict):
    scale: az.f64
    parts: tuple[Vector, az.i64]


class Mode(enum.Enum):
    SUM = 1
    PRODUCT = 2


@az.program
def dense(layer: Layer, x: Vector) -> az.Array[az.f64, "m"]:
    return layer.weights @ x + layer.bias


@az.program
def named(x: Named, y: {"u": az.f64}, z: None = None) -> {"v": Vector, "w": tuple[az.f64, az.i64]}:
    return {"v": x["parts"][0] * x["scale"], "w": (y["u"], x["parts"][1])}


@az.program
def power(x: az.f64, n: int = 2, mode: Mode = Mode.PRODUCT) -> az.f64:
    return x**n if mode is Mode.PRODUCT else x * n


@az.program
def square(x: az.f64) -> az.f64:
    return x * x


both = pytest.mark.parametrize("run", [az.evaluate, az.compile], ids=["evaluate", "compile"])


# Structures


@both
def test_dataclasses(run: Any) -> None:
    w, b, x = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]), np.ones(3), np.array([1.0, -1.0])
    np.testing.assert_array_equal(run(dense)(Layer(w, b), x), w @ x + b)
    np.testing.assert_array_equal(run(dense)(Layer(np.zeros((0, 2)), np.zeros(0)), x), np.zeros(0))

    @az.program
    def updated(layer: Layer) -> Layer:
        return Layer(layer.weights * 2, layer.bias)

    result = run(updated)(Layer(w, b))
    assert isinstance(result, Layer) and result.note == "a note"
    np.testing.assert_array_equal(result.weights, 2 * w)


@both
def test_dictionaries_and_tuples(run: Any) -> None:
    result = run(named)({"parts": ([1.0, 2.0], 3), "scale": 2.0}, {"u": 0.5})
    assert list(result) == ["v", "w"] and result["w"] == (0.5, 3)
    np.testing.assert_array_equal(result["v"], [2.0, 4.0])


@both
def test_named_tuples(run: Any) -> None:
    @az.program
    def swapped(p: Pair) -> tuple[Vector, Pair]:
        return p.second * p.first, p

    v, p = run(swapped)(Pair(2.0, [1.0, 2.0]))
    assert list(v) == [2, 4] and isinstance(p, Pair) and p.first == 2.0
    assert list(run(swapped)((2.0, [1.0, 2.0]))[0]) == [2, 4]


@both
def test_structures_without_annotations(run: Any) -> None:
    @az.program
    def f(x, y):  # type: ignore[no-untyped-def]
        return {"a": x["u"] * 2, "b": [y, (x["v"][1], None)]}

    result = run(f)({"u": 1.5, "v": (1, np.arange(3))}, Pair(True, 2.0))
    assert result["a"] == 3.0 and result["b"][0] == Pair(True, 2.0) and result["b"][1][1] is None
    assert list(result["b"][1][0]) == [0, 1, 2]


@pytest.mark.rest
@pytest.mark.unguarded
@both
def test_calls_with_other_structures_and_kinds(run: Any) -> None:
    @az.program
    def weighed(p, like: {"w": Vector, "b": Vector}, times: int = 1):  # type: ignore[no-untyped-def]
        return times * (az.sum(p["x"]) + 10 * az.sum(p["y"])) + 100 * az.sum(like["w"]) + 1000 * az.sum(like["b"])

    call, ones, twos = run(weighed), np.ones(3), np.full(3, 2.0)
    for _ in range(2):
        for same in (ones, twos):
            for x, y in [(ones, same), (twos, same), (2.0, ones), (np.int32(2), 3), (np.ones((2, 0)), np.ones(1) > 0)]:
                for times in (1, 2):
                    right = times * (np.sum(x) + 10 * np.sum(y)) + 100 * same.sum() + 3000
                    assert call({"x": x, "y": y}, {"w": same, "b": ones}, times) == right
                    assert call({"y": y, "x": x}, {"b": ones, "w": same}, times=times) == right
    with pytest.raises(KeyError, match="'y'"):
        call({"x": ones, "z": ones}, {"w": ones, "b": ones})
    with pytest.raises(TypeError, match="argument 'like' is a dictionary with the keys 'w', 'b', got"):
        call({"x": ones, "y": ones}, {"w": ones, "c": ones})
    with pytest.raises(TypeError, match="argument 'p_x' of type ndarray \\(float16\\)"):
        call({"x": ones.astype(np.float16), "y": ones}, {"w": ones, "b": ones})


def test_types_of_arguments_are_made_once_for_each_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(argument: Any, name: str, program: str) -> Any:
        asked.append(name)
        return type_of_argument(argument, name, program)

    monkeypatch.setattr("adze.core.arguments.type_of_argument", counted)
    f = az.program(lambda p, k: az.sum(p[0]) + k * az.sum(p[1]["v"]))
    compiled = az.compile(f)
    for run in (compiled, lambda *args: az.evaluate(f)(*args), f, lambda p, k: compiled(k=k, p=p)):
        for n in (3, 4, 3, 100):
            assert run((np.ones(n), {"v": np.ones((n, 2))}), 2.0) == 5 * n
    assert asked == ["p_0", "p_1_v", "k"]
    compiled((np.ones(3), {"v": np.ones(3)}), 2.0)
    assert len(asked) == 6


def test_structures_among_expressions() -> None:
    @az.program
    def caller(w: az.Array[az.f64, "k k"], x: az.Array[az.f64, "k"]) -> az.Array[az.f64, "k"]:
        return dense(Layer(w, az.zeros(x.shape)), x) + named({"scale": 2, "parts": [x, 1]}, {"u": 0})["v"]

    w, x = np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, 2.0])
    np.testing.assert_array_equal(az.evaluate(caller)(w, x), w @ x + 2 * x)


WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    (
        "a missing key",
        lambda: named({"scale": 1.0}, {"u": 1.0}),
        TypeError,
        "'x' is a dictionary with the keys 'scale', ",
    ),
    (
        "a wrong key",
        lambda: named({"scale": 1.0, "parts": ([], 1)}, {"v": 1.0}),
        TypeError,
        "argument 'y' is a dictionary",
    ),
    (
        "a tuple of three",
        lambda: named({"scale": 1.0, "parts": ([], 1, 2)}, {"u": 1.0}),
        TypeError,
        r"named: argument \"x\['parts'\]\" is a tuple of 2, got a tuple of 3",
    ),
    (
        "a wrong leaf",
        lambda: named({"scale": 1.0, "parts": ([], 1.5)}, {"u": 1.0}),
        TypeError,
        r"argument \"x\['parts'\]\[1\]\" is i64, got the number 1\.5",
    ),
    ("not a dataclass", lambda: dense((1, 2), [1.0]), TypeError, "argument 'layer' is a Layer, got a tuple of 2"),
    (
        "sizes in a dataclass",
        lambda: dense(Layer(np.ones((3, 2)), np.ones(3)), [1.0]),
        ValueError,
        r"n is 2 in argument 'layer\.weights' .*, but 1 in argument 'x'",
    ),
    ("a float for an int", lambda: power(1.0, 2.5), TypeError, "parameter 'n' is a static int, got float"),
    ("a bool for an int", lambda: power(1.0, True), TypeError, "parameter 'n' is a static int, got bool"),
    ("another static", lambda: power(1.0, 2, 1), TypeError, "parameter 'mode' is a static Mode, got int"),
    (
        "too large for i64",
        lambda: az.evaluate(az.program(lambda n: n).at(az.i64))(2**70),
        TypeError,
        "is i64, got the integer 1180591620717411303424, which i64 cannot hold exactly",
    ),
    ("too large for f64", lambda: square(10**400), TypeError, r"the integer 10+\.\.\., which f64 cannot hold exactly"),
    ("static of an instance", lambda: power.at(n=3)(2.0, n=2), TypeError, "the static parameter 'n' is 3 here"),
    (
        "another structure",
        lambda: az.program(lambda x: x["a"]).at({"a": az.f64})({"b": 1.0}),
        TypeError,
        "the keys 'a', got",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_arguments.py:" in str(caught.value)


def test_wrong_annotations() -> None:
    with pytest.raises(
        TypeError, match=r"parameter 'x' has the annotation tuple\[f64, \.\.\.\]: a tuple of any length"
    ):

        @az.program
        def unbounded(x: tuple[az.f64, ...]) -> az.f64:
            return x[0]

    with pytest.raises(TypeError, match=r"the result has the annotation .*: <class 'str'> is neither a scalar"):

        @az.program
        def text(x: az.f64) -> tuple[az.f64, str]:
            return x, "no"


def test_results_have_the_declared_structure() -> None:
    def one_leaf(x: az.f64) -> az.f64:
        return x, x  # type: ignore[return-value]

    def pair(x: az.f64) -> tuple[az.f64, az.i64]:
        return x, x

    def keys(x: az.f64) -> {"a": az.f64}:
        return {"b": x}

    for function, message in (
        (one_leaf, r"declared to return f64, but its body returns \(f64, f64\)"),
        (pair, r"pair\[1\] is declared to return i64, but its body returns f64"),
        (keys, r"declared to return \{'a': f64\}, but its body returns"),
    ):
        with pytest.raises(TypeError, match=message):
            az.program(function).at().term  # noqa: B018


# Arrays of others


class Capsule:
    """An object with DLPack's protocol only, as other libraries' arrays have it."""

    def __init__(self, content: Any) -> None:
        self.content = np.asarray(content)

    def __dlpack__(self, **options: Any) -> Any:
        return self.content.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.content.__dlpack_device__()


@both
@pytest.mark.parametrize("make", [Capsule, lambda x: array.array("d", x), lambda x: memoryview(array.array("d", x))])
def test_arrays_by_protocol(run: Any, make: Callable[[Any], Any]) -> None:
    """With an annotation, without one, and inside of a structure."""
    annotated = az.program(lambda x: az.sum(x)).at(Vector)
    assert run(annotated)(make([1.0, 2.5])) == 3.5
    assert run(az.program(lambda x: az.sum(x)))(make([1.0, 2.5])) == 3.5
    assert run(dense)(Layer(np.ones((1, 2)), make([1.0])), make([1.0, 2.5])) == 4.5


def test_exact_integers() -> None:
    assert square(2**70) == float(2**140)
    assert az.evaluate(az.program(lambda x: x).at(az.i64))(-(2**63)) == -(2**63)
    with pytest.raises(TypeError, match="got 9223372036854775808, which is not exactly representable in i64"):
        az.evaluate(az.program(lambda x: x).at(az.Array[az.i64, "n"]))([2**63])


# Static parameters and instances


@both
def test_static_parameters(run: Any) -> None:
    assert run(power)(3.0) == 9 and run(power)(3.0, np.int64(3)) == 27 and run(power)(3.0, mode=Mode.SUM) == 6
    assert power.instance_for(power.bind((1.0, np.int64(3)), {})) is power.instance_for(power.bind((1.0, 3), {}))

    @az.program
    def applied(f: Callable[[Any], Any], x: az.f64) -> az.f64:
        return f(f(x))

    assert run(applied)(square, 3.0) == 81


@both
def test_static_values_that_are_equal_and_differ(run: Any) -> None:
    @az.program
    def f(x: az.f64, by: float, parts: tuple) -> az.f64:  # type: ignore[type-arg]
        return x / by + sum(isinstance(part, float) for part in parts)

    call, infinity = run(f), float("inf")
    assert call(1.0, 0.0, ()) == infinity and call(1.0, -0.0, ()) == -infinity
    assert call(1.0, 1.0, (1, 1)) == 1 and call(1.0, 1.0, (1.0, 1)) == 2
    not_a_number = [f.instance_for(f.bind((1.0, value, ()), {})) for value in (float("nan"), -float("nan"))]
    assert not_a_number[0] is not_a_number[1]


@both
def test_a_size_that_divides_by_zero(run: Any) -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "m"], z: az.Array[az.f64, "n//(m-1)"]) -> az.f64:
        return az.sum(z)

    assert run(f)(np.ones(4), np.ones(3), np.ones(2)) == 2
    with pytest.raises(ValueError, match=r"axis 0 of argument 'z' is .*, which divides by zero \(with m = 1, n = 4\)"):
        run(f)(np.ones(4), np.ones(1), np.ones(2))


@both
def test_instances_run(run: Any) -> None:
    assert run(power.at(n=3))(2.0) == 8 and run(power.at())(3.0) == 9
    assert run(power.at(n=3))(2.0, 3, Mode.PRODUCT) == 8 and run(power.at(n=3))(x=2.0) == 8
    assert power.at(n=3)(2.0) == 8
    total = az.program(lambda x: az.sum(x["a"]) + x["b"][0])
    assert run(total.at({"a": Vector, "b": (az.f64,)}))({"b": (2.0,), "a": [1.0]}) == 3
    assert az.compile(power.at(n=3)).llvm_ir


def test_instances_are_chosen() -> None:
    with pytest.raises(TypeError, match="power has no static parameter k"):
        power.at(k=3)
    with pytest.raises(TypeError, match="parameter 'n' is a static int, got str"):
        power.at(n="3")
    assert power.at() is power.at(n=2) and repr(power.at()) == "<instance power(f64)>"


def test_gradients_of_structures() -> None:
    @az.program
    def loss(layer: Layer, x: Vector) -> az.f64:
        return az.sum(dense(layer, x) ** 2)

    w, b, x = np.array([[1.0, 2.0]]), np.array([0.5]), np.array([1.0, -1.0])
    gradient = az.evaluate(az.grad(loss))(Layer(w, b), x)
    assert isinstance(gradient, Layer)
    residual = w @ x + b
    np.testing.assert_allclose(gradient.weights, 2 * np.outer(residual, x), rtol=1e-15)
    np.testing.assert_allclose(gradient.bias, 2 * residual, rtol=1e-15)


# Pickling


def test_programs_pickle_by_reference() -> None:
    assert pickle.loads(pickle.dumps(square)) is square
    assert pickle.loads(pickle.dumps(power.at(n=3))) is power.at(n=3)
    gradient = pickle.loads(pickle.dumps(az.grad(az.grad(square))))
    assert gradient.name == "grad(grad(square))" and gradient(3.0) == 2
    assert pickle.loads(pickle.dumps(az.grad(square).at()))(3.0) == 6
    assert pickle.loads(pickle.dumps(az.compile(square)))(3.0) == 9
    named_elsewhere = az.program(successor)
    assert pickle.loads(pickle.dumps(named_elsewhere))(2.0) == 3


def successor(x: az.f64) -> az.f64:
    return x + 1


def test_local_programs_do_not_pickle() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(az.program(lambda x: x))


def test_a_size_that_only_the_fields_of_data_mention_is_refused() -> None:
    @az.data
    class Layers:
        class End: ...

        class Layer:
            weights: az.Array[az.f64, "k k"]
            rest: "Layers"

    @az.program
    def first(layers: Layers, x: az.Array[az.f64, "m"]) -> az.f64:
        return az.case(layers, End=lambda: 0.0, Layer=lambda weights, rest: weights[0, 0])

    with pytest.raises(TypeError, match=r"first: the size k of parameter 'layers', of type Layers, cannot be found"):
        first(Layers.End(), np.ones(2))
