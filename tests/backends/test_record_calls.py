"""Records as arguments and results of compiled calls: conversions, ``bind``, ``out=``, the cache on disk, a device."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.backends import multiversioning
from adze.backends.opencl.devices import Device

Vector = az.Array[az.f64, "n"]


@az.data
class Params:
    w: Vector
    b: az.f64
    count: az.i64


@az.data
class Model:
    inner: Params
    scale: tuple[az.f64, Vector]


@az.program
def scaled(p: Params, x: Vector) -> Params:
    return Params(p.w * x, p.b + az.sum(x), p.count + 1)


W, X = np.array([1.0, 2.0, 4.0]), np.array([3.0, -1.0, 0.5])
P = Params(W, 0.5, 2)


def agrees(found: Any, w: Any, b: Any, count: Any) -> None:
    assert isinstance(found, Params)
    np.testing.assert_array_equal(found.w, w)
    assert (found.b, found.count) == (b, count)


def test_arguments_are_converted() -> None:
    fast = az.compile(scaled)
    for p in (P, Params(w=[1, 2, 4], b=np.float64(0.5), count=2), Params(W[::-1][::-1], 0.5, np.int64(2))):
        agrees(fast(p, list(X)), W * X, 3.0, 3)
    assert fast(P, X).w is not fast(P, X).w


WRONG: list[tuple[Any, Any, type[Exception], str]] = [
    ({"w": W}, X, TypeError, r"scaled: argument 'p' is a Params, got a dictionary with the keys 'w'"),
    (W, X, TypeError, "argument 'p' is a Params, got ndarray"),
    (Params(W, "a", 2), X, TypeError, r"argument 'p\.b' is f64, got a value of type str"),
    (Params(W, 0.5, 2.5), X, TypeError, r"argument 'p\.count' is i64, got the number 2\.5"),
    (Params(W.astype(np.float32), 0.5, 2), X, TypeError, r"argument 'p\.w' is f64\[n\], got an array of float32"),
    (
        Params(W[:, None], 0.5, 2),
        X,
        TypeError,
        r"argument 'p\.w' is f64\[n\], got an array of float64 with shape \(3, 1",
    ),
    (Params(None, 0.5, 2), X, TypeError, r"argument 'p\.w' is f64\[n\], got"),
    (Params(W[:2], 0.5, 2), X, ValueError, r"n is 2 in argument 'p\.w' .*, but 3 in argument 'x'"),
]


@pytest.mark.parametrize("run", [az.evaluate, az.compile], ids=["evaluate", "compile"])
@pytest.mark.parametrize(("p", "x", "error", "message"), WRONG, ids=[row[3][:40] for row in WRONG])
def test_wrong_arguments(run: Any, p: Any, x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        run(scaled)(p, x)
    assert "test_record_calls.py:" in str(caught.value)


def test_wrong_arguments_without_annotation() -> None:
    f = az.compile(az.program(lambda p: p.b * 2))
    for value, found in (("a", "of type str"), (np.float32(1), r"is f64, got the scalar .* \(float32\)")):
        with pytest.raises(TypeError, match=rf"argument 'p[._]b' {found}"):
            f(Params(W, value, 2))


def test_results_in_memory_that_is_given() -> None:
    fast = az.compile(scaled)
    memory = np.empty(3)
    found = fast(P, X, out=Params(memory, None, None))
    assert found.w is memory
    agrees(found, W * X, 3.0, 3)
    with pytest.raises(TypeError, match=r"scaled: out is a Params, got a tuple of 3"):
        fast(P, X, out=(memory, None, None))
    with pytest.raises(ValueError, match=r"scaled: out\.w "):
        fast(P, X, out=Params(np.empty(2), None, None))
    with pytest.raises(ValueError, match=r"scaled: out\.w overlaps an argument"):
        fast(P, X, out=Params(X, None, None))


def test_bound_calls() -> None:
    w, memory = W.copy(), np.empty(3)
    bound = az.compile(scaled).bind(Params(w, 0.5, 2), X, out=Params(memory, None, None))
    assert bound().w is memory
    agrees(bound(), W * X, 3.0, 3)
    w[0] = 10.0
    agrees(bound(), w * X, 3.0, 3)
    with pytest.raises(ValueError, match=r"the bound argument 'p\.w'"):
        az.compile(scaled).bind(Params(np.ones(6)[::2], 0.5, 2), X)


def test_structures_of_records() -> None:
    @az.program
    def f(models: {"m": Model, "n": Params}) -> tuple[Model, az.f64]:
        m = models["m"]
        return Model(models["n"], (m.scale[0] * 2, m.scale[1] + m.inner.w)), az.sum(m.inner.w)

    given = {"n": P, "m": Model(P, (1.5, X))}
    for run in (az.evaluate, az.compile):
        model, total = run(f)(given)
        agrees(model.inner, W, 0.5, 2)
        assert (model.scale[0], total) == (3.0, 7.0)
        np.testing.assert_array_equal(model.scale[1], X + W)
    with pytest.raises(TypeError, match=r"argument \"models\['m'\]\.scale\" is a tuple of 2, got float"):
        az.compile(f)({"n": P, "m": Model(P, 1.5)})


def test_calls_with_other_kinds() -> None:
    """What the latest call was is remembered; others are told from it."""
    f = az.compile(az.program(lambda p, x: (p.w * x).sum() + p.b * p.count))
    annotated = az.compile(scaled)
    for _ in range(2):
        for w, b, count in ((W, 0.5, 2), (W[:2], 1.5, 3), ([1, 2, 4], 1, 0), (W[::2], np.float64(0.5), np.int64(7))):
            x = X[: len(w)]
            assert f(Params(w, b, count), x) == (np.array(w) * x).sum() + b * count
            agrees(annotated(Params(w, b, count), x), np.array(w) * x, b + x.sum(), count + 1)


TEXT = """
@az.data
class Params:
    w: az.Array[az.f64, "n"]
    b: az.f64

@az.program
def f(p: Params) -> Params:
    return Params(p.w * 2 + p.b, p.b)
"""


def test_the_cache_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of a record that is declared anew, as in another process, is found, and gives its own records."""
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    compiled, loops_of = [], multiversioning.loops_of
    monkeypatch.setattr(multiversioning, "loops_of", lambda *args: compiled.append(args) or loops_of(*args))
    for _ in range(2):
        scope: dict[str, Any] = {"az": az}
        exec(compile(TEXT, "/somewhere/user.py", "exec"), scope)
        found = az.compile(scope["f"])(scope["Params"](W, 0.5))
        assert type(found) is scope["Params"] and list(found.w) == list(W * 2 + 0.5)
    assert len(compiled) == 1


def test_pickling() -> None:
    instance = scaled.at()
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    again = pickle.loads(pickle.dumps(instance))
    assert again is instance
    assert pickle.loads(pickle.dumps(scaled.at(Params, az.Array[az.f64, 3]))).types[0] == instance.types[0]
    result = pickle.loads(pickle.dumps(az.compile(scaled)(P, X)))
    agrees(result, W * X, 3.0, 3)


def test_on_a_device(opencl: Device) -> None:
    f32 = az.Array[az.f32, "n"]

    @az.data
    class Weights:
        w: f32
        b: az.f32

    @az.program
    def step(p: Weights, x: f32) -> tuple[Weights, az.f32]:
        def loss(p: Any) -> Any:
            return az.sum((p.w * x + p.b) ** 2)

        value, by_p = az.value_and_grad(loss)(p)
        return Weights(p.w - 0.5 * by_p.w, p.b - 0.5 * by_p.b), value

    given = Weights(W.astype(np.float32), np.float32(0.5)), X.astype(np.float32)
    found, value = az.compile(step, backend="opencl", device=opencl)(*given)
    expected, exactly = az.evaluate(step)(*given)
    assert isinstance(found, Weights)
    np.testing.assert_allclose(np.asarray(found.w), expected.w, rtol=1e-6)
    np.testing.assert_allclose([found.b, value], [expected.b, exactly], rtol=1e-6)
    moved = az.to_device(given[0], opencl)
    found, _ = az.compile(step, backend="opencl", device=opencl)(moved, given[1])
    np.testing.assert_allclose(found.w.get(), expected.w, rtol=1e-6)
