"""Values of declared types into compiled programs and out of them: fields of every kind, depth, sharing, refusals.

What is compared is what ``az.evaluate`` gives, which has no cells, and plain Python.
"""

import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
from programs.functions import List, Maybe, linked, listed

import adze as az

pytestmark = pytest.mark.unguarded

T = TypeVar("T")
N = 1_000_000


@az.data
class Point:
    x: az.f64
    y: az.i32


@az.data
class Plant:
    """Mutually recursive with Bed; one field of every kind."""

    class Seed:
        flag: az.bool_

    class Grown:
        small: az.i8
        unsigned: az.u64
        single: az.f32
        pair: tuple[az.f64, tuple[az.i64, Point]]
        vector: az.Array[az.f64, "n"]
        perhaps: Maybe[az.Array[az.f32, "n 2"]]
        either: Maybe[tuple[az.bool_, az.f64]]
        beds: "Bed"


@az.data
class Bed:
    class End: ...

    class More:
        first: Plant
        others: "Bed"


@az.data
class Dag:
    class End: ...

    class Pair:
        one: "Dag"
        other: "Dag"


@az.program
def total(xs: List[az.f64]) -> az.f64:
    go = az.fix(
        lambda self, xs, done: az.case(xs, Nil=lambda: done, Cons=lambda x, rest: self(rest, done + x)),
        List[az.f64],
        az.f64,
        result=az.f64,
    )
    return go(xs, 0.0)


@az.program
def reverse(xs: List[az.f64]) -> List[az.f64]:
    go = az.fix(
        lambda self, xs, done: az.case(xs, Nil=lambda: done, Cons=lambda x, rest: self(rest, List.Cons(x, done))),
        List[az.f64],
        List[az.f64],
        result=List[az.f64],
    )
    return go(xs, List.Nil())


@az.program
def again(x: az.Array[az.f64, "n"], plant: Plant) -> Plant:
    """The same plant, all of it made anew."""

    @az.fix
    def bed(self: Any, bed: Bed, plant: az.Function[[Plant], Plant]) -> Bed:
        return az.case(bed, End=lambda: Bed.End(), More=lambda p, ps: Bed.More(plant(p), self(ps, plant)))

    @az.fix
    def go(self: Any, plant: Plant) -> Plant:
        def grown(a: Any, b: Any, c: Any, pair: Any, v: Any, perhaps: Any, either: Any, beds: Any) -> Any:
            x, (k, p) = pair
            inside = az.case(
                perhaps,
                Nothing=lambda: Maybe[az.Array[az.f32, "n 2"]].Nothing(),
                Just=lambda m: Maybe[az.Array[az.f32, "n 2"]].Just(2 * m),
            )
            return Plant.Grown(-a, b, c, (x, (k + 1, Point(p.x, p.y))), v + 1, inside, either, bed(beds, self))

        return az.case(plant, Seed=lambda flag: Plant.Seed(~flag), Grown=grown)

    return go(plant)


def some_plant(rng: np.random.Generator, n: int, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.2:
        return Plant.Seed(bool(rng.integers(2)))
    beds = Bed.End()
    for _ in range(rng.integers(4)):
        beds = Bed.More(some_plant(rng, n, depth - 1), beds)
    number = float(rng.normal())
    return Plant.Grown(
        np.int8(rng.integers(-9, 9)),
        np.uint64(2**64 - 1 - int(rng.integers(9))),
        np.float32(number),
        (rng.choice([0.0, -0.0, np.inf, number]), (int(rng.integers(-9, 9)), Point(number, np.int32(7)))),
        rng.normal(size=n),
        Maybe.Just(rng.normal(size=(n, 2)).astype(np.float32)) if rng.integers(2) else Maybe.Nothing(),
        Maybe.Just((True, np.float64(number))) if rng.integers(2) else Maybe.Nothing(),
        beds,
    )


def long_list() -> Any:
    return linked([float(k) for k in range(N)])


def kinds(value: Any) -> list[Any]:
    """The classes of a value's parts, without recursion over cells."""
    found, todo = list[Any](), [value]
    while todo:
        item = todo.pop()
        found.append((item.dtype, item.shape) if isinstance(item, np.ndarray) else type(item))
        todo.extend(item if isinstance(item, tuple) else getattr(item, "_values", ()))
    return found


# Fields


@pytest.mark.parametrize("n", [0, 1, 5])
def test_fields_of_every_kind(n: int) -> None:
    rng, compiled = np.random.default_rng(n), az.compile(again)
    for _ in range(20):
        plant = some_plant(rng, n, 3)
        made, expected = compiled(np.zeros(n), plant), az.evaluate(again)(np.zeros(n), plant)
        assert made == expected and kinds(made) == kinds(expected)
        assert repr(made) == repr(expected)


def test_what_is_not_just_as_its_type_says_is_converted() -> None:
    """Numbers of other classes of Python's, lists for tuples and arrays, arrays in another order."""
    compiled, x = az.compile(again), np.arange(3.0)
    plant = Plant.Grown(
        -3, 2**64 - 1, 0.5, [1, [2, Point(3, 4)]], [1, 2, 3], Maybe.Just(np.ones((2, 3), np.float32).T),
        Maybe.Just([False, 1]), Bed.More(Plant.Seed(np.bool_(True)), Bed.End()),
    )  # fmt: skip
    made, expected = compiled(x, plant), az.evaluate(again)(x, plant)
    assert made == expected and kinds(made) == kinds(expected)
    backwards = linked([np.arange(4.0)[::-1], np.arange(8.0)[::2]])
    row = az.Array[az.f64, "n"]

    @az.program
    def added(x: row, rows: List[row]) -> row:
        go = az.fix(
            lambda self, rows: az.case(rows, Nil=lambda: az.zeros(az.size(x)), Cons=lambda y, ys: y + self(ys)),
            List[row],
            result=row,
        )
        return go(rows)

    assert np.array_equal(az.compile(added)(np.zeros(4), backwards), [3, 4, 5, 6])


@az.data
class Numbers:
    class End: ...

    class More:
        a: az.f32
        b: az.f64
        c: az.i8
        d: az.i64
        e: az.u8
        f: az.u64
        g: az.bool_
        others: "Numbers"


@az.program
def same(numbers: Numbers, made: az.bool_) -> Numbers:
    def more(*fields: Any) -> Any:
        *own, others = fields
        return az.cond(made, lambda: Numbers.More(*own, others), lambda: numbers)

    return az.case(numbers, End=lambda: Numbers.End(), More=more)


@pytest.mark.parametrize("made", [False, True])
def test_numbers_of_python_convert(made: bool) -> None:
    """Each where it loses nothing; and what comes back has the numbers that the program has seen."""
    good: list[list[Any]] = [
        [0.5, -0.0, np.inf, 2**24, -7, np.float32(0.1), float(np.float32(0.1))],
        [0.1, -0.0, 2**53, -(2**53), 2**70, -7, np.float64(1), np.nan],
        [-128, 127, 0, np.int8(3)],
        [-(2**63), 2**63 - 1, np.int64(-1)],
        [0, 255, np.uint8(7)],
        [0, 2**63, 2**64 - 1, np.uint64(7)],
        [True, False, np.bool_(True)],
    ]
    bad: list[list[Any]] = [
        [0.1, 1e300, 2**24 + 1, np.float64(1)],
        [2**53 + 1, -(2**53) - 1, np.float32(1), "1"],
        [-129, 128, 2**64, 1.5, np.int16(1)],
        [-(2**63) - 1, 2**63, 0.5, np.int32(1)],
        [-1, 256, 0.5, np.int8(1)],
        [-1, 2**64, 0.5],
        [2, 0.5, np.int8(1), None],
    ]
    compiled, other = az.compile(same), Numbers.More(1.5, 1.5, 1, 1, 1, 1, True, Numbers.End())
    for k in range(7):
        for number in good[k] + bad[k]:
            fields: list[Any] = [1.5, 1.5, 1, 1, 1, 1, True]
            fields[k] = number
            given = Numbers.More(*fields, other)
            if not any(number is each for each in good[k]):
                texts = []
                for run in (az.evaluate(same), compiled):
                    with pytest.raises(TypeError) as caught:
                        run(given, made)
                    texts.append(str(caught.value))
                assert texts[0] == texts[1]
                continue
            bound, expected = compiled.bind(given, made), az.evaluate(same)(given, made)
            for result in (compiled(given, made), bound(), bound()):
                assert repr(result) == repr(expected) and kinds(result) == kinds(expected)


def test_what_comes_back_converted_is_one_object() -> None:
    @az.program
    def twice(xs: List[az.f64]) -> tuple[List[az.f64], List[az.f64]]:
        return xs, az.case(xs, Nil=lambda: xs, Cons=lambda _, rest: rest)

    compiled = az.compile(twice)
    for xs in (linked([1, 2, 3]), linked([1.0, 2, 3.0])):
        bound = compiled.bind(xs)
        for whole, rest in (compiled(xs), bound(), bound()):
            assert whole.tail is rest and whole is not xs and whole == xs and type(rest.head) is np.float64
    xs = linked([1.0, 2.0])
    assert compiled(xs)[0] is xs


def grown(**changed: Any) -> Any:
    fields = {
        "small": np.int8(1), "unsigned": np.uint64(1), "single": np.float32(1), "pair": (1.0, (1, Point(1.0, 1))),
        "vector": np.ones(2), "perhaps": Maybe.Nothing(), "either": Maybe.Nothing(), "beds": Bed.End(),
    }  # fmt: skip
    return Plant.Grown(**(fields | changed))


@pytest.mark.parametrize(
    "wrong",
    [
        3,
        None,
        Bed.End(),
        grown(small=128),
        grown(small=np.int16(1)),
        grown(unsigned=-1),
        grown(unsigned=1.5),
        grown(single=0.1),
        grown(single=np.float64(1)),
        grown(pair=(1.0, 2)),
        grown(pair=(1.0, (2, Bed.End()))),
        grown(pair=(1.0, (2**63, Point(1.0, 1)))),
        grown(vector=np.ones(3)),
        grown(vector=np.ones((2, 1))),
        grown(vector=np.ones(2, np.float32)),
        grown(vector=np.ma.masked_array(np.ones(2), [0, 1])),
        grown(vector="ab"),
        grown(perhaps=Maybe.Just(np.ones((2, 2)))),
        grown(either=Maybe.Just(True)),
        grown(beds=Plant.Seed(True)),
        grown(beds=Bed.More(Bed.End(), Bed.End())),
        grown(beds=Bed.More(Plant.Seed(2), Bed.End())),
        grown(beds=Bed.More(Plant.Seed("yes"), Bed.End())),
    ],
    ids=str,
)
def test_what_is_refused_and_how(wrong: Any) -> None:
    """In the words of ``evaluate``; and the next call is well."""
    compiled, texts = az.compile(again), list[str]()
    for run in (az.evaluate(again), compiled, compiled.bind):
        with pytest.raises((TypeError, ValueError)) as caught:
            run(np.zeros(2), wrong)
        texts.append(str(caught.value))
        assert "test_marshalling.py:" in texts[-1]
    assert texts[0] == texts[1] == texts[2]
    assert compiled(np.zeros(2), grown()) == az.evaluate(again)(np.zeros(2), grown())


def test_a_value_without_fields_is_refused() -> None:
    """Python can make one, and machine code does not fall for it."""
    with pytest.raises(AttributeError):
        az.compile(total)(List.Cons(1.0, object.__new__(List.Cons)))


def test_functions_in_data() -> None:
    @az.data
    class Steps:
        class End: ...

        class Step:
            function: az.Function[[az.f64], az.f64]
            others: "Steps"

    @az.program
    def applied(steps: Steps, x: az.f64) -> az.f64:
        go = az.fix(
            lambda self, steps, x: az.case(steps, End=lambda: x, Step=lambda f, rest: self(rest, f(x))),
            Steps,
            az.f64,
            result=az.f64,
        )
        return go(steps, x)

    @az.program
    def made(x: az.f64) -> Steps:
        return az.cond(x > 0, lambda: Steps.Step(az.function(lambda y: y + x, az.f64), Steps.End()), Steps.End)

    assert az.compile(applied)(Steps.End(), 2.0) == 2.0 and az.compile(made)(-1.0) == Steps.End()
    with pytest.raises(TypeError, match=r"applied: argument 'steps' holds a function, .* takes none .*\.py:"):
        az.compile(applied)(Steps.Step(lambda x: x, Steps.End()), 2.0)
    with pytest.raises(TypeError, match=r"gives no functions, and its result holds one of type \(f64\) -> f64 .*\.py:"):
        az.compile(made)(1.0)


# Sharing


def test_what_is_shared_is_converted_once() -> None:
    """Two ways to the next node, sixty times: 2 ** 60 ways to the last."""

    @az.program
    def doubled(n: az.i64) -> Dag:
        def step(_: Any, dag: Any) -> Any:
            return Dag.Pair(dag, dag)

        return az.fori_loop(0, n, step, Dag.End())

    @az.program
    def depth(dag: Dag) -> az.i64:
        go = az.fix(lambda self, d: az.case(d, End=lambda: 0, Pair=lambda a, _: 1 + self(a)), Dag, result=az.i64)
        return go(dag)

    dag, run = az.compile(doubled)(60), az.compile(depth)
    assert run(dag) == run(dag.one) + 1 == az.evaluate(depth)(dag) == 60
    while isinstance(dag, Dag.Pair):
        assert dag.one is dag.other
        dag = dag.one


def test_a_value_of_two_types() -> None:
    """An empty list is of both; what comes back of each is the object."""

    @az.program
    def both(xs: List[az.f64], ys: List[az.i64]) -> tuple[List[az.f64], List[az.i64]]:
        return xs, ys

    empty, compiled = List.Nil(), az.compile(both)
    xs, ys = compiled(empty, empty)
    assert xs is empty and ys is empty
    for pair in ((linked([1.0]), empty), (empty, linked([1]))):
        assert compiled(*pair) == pair

    @az.data
    class Two:
        class Lists:
            floats: List[Maybe[az.f64]]
            arrays: List[Maybe[az.Array[az.f64, 2]]]
            again: "Two"

        class None_: ...

    @az.program
    def same(two: Two) -> Two:
        return az.case(two, Lists=lambda a, b, c: Two.Lists(b=a, a=b, c=c) if False else two, None_=lambda: two)

    nothing = List.Cons(Maybe.Nothing(), List.Nil())
    given = Two.Lists(nothing, nothing, Two.None_())
    assert az.compile(same)(given) == given


# Depth


@pytest.mark.rest
def test_a_million_deep() -> None:
    xs = long_list()
    assert az.compile(total)(xs) == N * (N - 1) / 2
    compiled = az.compile(reverse)
    made = compiled(xs)
    assert made.head == N - 1 and type(made.head) is np.float64 and made != xs
    assert compiled(made) == xs
    del made, xs  # without an overflow of the stack of C


# The life of values


@pytest.mark.rest
def test_results_outlive_their_program_and_the_arguments() -> None:
    x, program = np.ones(2), az.program(again.function)
    compiled = az.compile(program)
    plant = grown(beds=Bed.More(grown(perhaps=Maybe.Just(np.ones((2, 2), np.float32))), Bed.End()))
    expected = az.evaluate(again)(x, plant)
    made = compiled(x, plant)
    bound = compiled.bind(x, plant)
    dropped = weakref.ref(compiled)
    del compiled, program, plant
    gc.collect()
    again_made = bound()
    del bound
    gc.collect()
    assert dropped() is None and made == again_made == expected
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == copy.copy(made) == expected
    match made:
        case Plant.Grown(beds=Bed.More(first=Plant.Grown(small=small))):
            assert small == -1
        case _:
            raise AssertionError(made)
    with pytest.raises(AttributeError):
        made.small = 3


def test_arrays_of_results_have_memory_of_their_own() -> None:
    x, plant = np.ones(2), grown()
    compiled = az.compile(again)
    made = compiled(x, plant)
    compiled(x, grown(vector=np.full(2, 9.0)))
    plant.vector[:] = 7
    assert made.vector.tolist() == [2, 2] and made.vector.flags.owndata


@pytest.mark.rest
@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_left_behind(collects: bool) -> None:
    """As many objects after many calls as before, and the collector of garbage as it was."""
    compiled, x, rng = az.compile(again), np.ones(3), np.random.default_rng(1)
    plants = [some_plant(rng, 3, 3) for _ in range(20)]
    watched = [np.dtype(np.float64), np.float32, np.ndarray, Plant.Grown, Bed.More, np.True_, *plants]

    def refuse() -> None:
        for plant in plants:
            with pytest.raises(TypeError):
                compiled(x, grown(vector=x, beds=Bed.More(plant, 3)))

    def changed(call: Callable[[], Any], watched: Sequence[Any]) -> int:
        call()
        gc.collect()
        before = [sys.getrefcount(each) for each in watched]
        if not collects:
            gc.disable()
        try:
            call()
            assert gc.isenabled() == collects
        finally:
            gc.enable()
        gc.collect()
        return max([abs(sys.getrefcount(each) - old) for each, old in zip(watched, before, strict=True)])

    assert changed(lambda: [compiled(x, plant) for plant in plants], watched) < 10
    assert changed(refuse, watched[1:]) < 10  # NumPy does not give back its types where conversion fails


def test_threads_that_convert_one_value_at_once() -> None:
    xs, compiled = linked([float(k) for k in range(2000)]), az.compile(reverse)
    found: list[bool] = []
    shared: list[Callable[[], Any]] = [lambda: compiled(xs), lambda: az.evaluate(total)(linked([1.0, 2.0]))]

    def work() -> None:
        for _ in range(20):
            made = shared[0]()
            found.append(made.head == 1999 and listed(made)[::-1] == listed(xs) and shared[1]() == 3.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80
