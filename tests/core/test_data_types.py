"""Records and variants, recursive and polymorphic: as values of programs and of Python."""

import copy
import pickle
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import adze as az

T = TypeVar("T")
U = TypeVar("U")


@az.data
class Point:
    x: az.f64
    y: az.f64


@az.data
class List(Generic[T]):
    class Nil: ...

    class Cons:
        head: T
        tail: "List[T]"


@az.data
class Tree(Generic[T]):
    class Leaf: ...

    class Node:
        left: "Tree[T]"
        value: T
        right: "Tree[T]"


@az.data
class Either(Generic[T, U]):
    class Left:
        value: T

    class Right:
        value: U


@az.data
class Rose(Generic[T]):
    """Mutually recursive with Forest, which is declared later."""

    item: T
    branches: "Forest[T]"


@az.data
class Forest(Generic[T]):
    class Empty: ...

    class Grown:
        first: Rose[T]
        others: "Forest[T]"


@az.data
class Fields:
    """One field of every kind."""

    flag: az.bool_
    small: az.i32
    single: az.f32
    vector: az.Array[az.f64, "n"]
    matrix: az.Array[az.i64, 2, "n"]
    pair: tuple[az.f64, tuple[az.i64]]
    function: az.Function[[az.f64], az.f64]
    point: Point


def linked(values: Any) -> Any:
    """A list of the language."""
    result = List.Nil()
    for value in reversed(list(values)):
        result = List.Cons(value, result)
    return result


def listed(xs: Any) -> list[Any]:
    """A list of Python."""
    values = []
    while isinstance(xs, List.Cons):
        values.append(xs.head)
        xs = xs.tail
    assert isinstance(xs, List.Nil)
    return values


def grown(values: Any) -> Any:
    """A balanced tree."""
    values = list(values)
    if not values:
        return Tree.Leaf()
    k = len(values) // 2
    return Tree.Node(grown(values[:k]), values[k], grown(values[k + 1 :]))


def run(program: Any, *arguments: Any) -> Any:
    """What a program gives, after it was checked, taken apart and put together again, and simplified."""
    program = program if isinstance(program, az.Program) else az.program(program)
    term = program.instance_for(program.bind(arguments, {})).term
    az.check(term)
    assert term.interpret(az.Reify()) == term
    az.check(az.simplify(term))
    return az.evaluate(program)(*arguments)


# Values in Python


def test_values_are_immutable_objects() -> None:
    p = Point(1.0, y=2.0)
    assert (p.x, p.y, repr(p)) == (1.0, 2.0, "Point(x=1.0, y=2.0)")
    assert p == Point(1.0, 2.0) != Point(1.0, 3.0) and hash(p) == hash(Point(1.0, 2.0)) and p != (1.0, 2.0)
    with pytest.raises(AttributeError, match="a Point is immutable"):
        p.x = 3.0
    assert copy.copy(p) == copy.deepcopy(p) == p


def test_values_match_patterns() -> None:
    match List.Cons((1, 2.0), List.Nil()):
        case List.Cons((a, b), List.Nil()):
            assert (a, b) == (1, 2.0)
        case _:
            raise AssertionError


def test_classes_of_values() -> None:
    assert isinstance(List.Nil(), List) and isinstance(List.Cons(1, List.Nil()), List.Cons)
    assert not isinstance(List.Nil(), List.Cons) and List.Nil() != Tree.Leaf()
    assert repr(List[az.f64]) == "List[f64]" and List[az.f64] == List[az.f64] != List[az.i64]
    assert repr(List.Cons((1, 2.0), List.Nil())) == "List.Cons(head=(1, 2.0), tail=List.Nil())"
    assert Either.Left(np.arange(2)) == Either.Left(np.arange(2)) != Either.Left(np.arange(3))


@pytest.mark.unguarded
def test_values_deeper_than_the_stack() -> None:
    deep, same = linked(range(20_000)), linked(range(20_000))
    assert deep == same and hash(deep) == hash(same) and deep != List.Cons(-1, deep)
    assert repr(deep).startswith("List.Cons(head=0, tail=List.Cons(head=1, ")
    assert pickle.loads(pickle.dumps(deep)) == deep
    assert copy.deepcopy(deep) == deep


# Records


@az.program
def moved(p: Point, by: Point) -> Point:
    return Point(p.x + by.x, p.y + by.y)


def test_records() -> None:
    assert run(moved, Point(1, 2.5), Point(0.25, np.float64(3))) == Point(1.25, 5.5)


def test_records_among_structures_and_in_loops() -> None:
    @az.program
    def spiral(start: {"p": Point}, n: az.i64) -> tuple[Point, az.f64]:
        end = az.fori_loop(0, n, lambda i, p: Point(-p.y, p.x + 1), start["p"])
        return end, az.cond(end.x > 0, lambda: end, lambda: Point(end.y, 0)).x

    assert run(spiral, {"p": Point(1, 0)}, 3) == (Point(-1, -1), -1.0)


def test_fields_of_every_kind() -> None:
    @az.program
    def used(all: Fields, x: az.Array[az.f64, "n"]) -> tuple[az.Array[az.f64, "n"], az.f64]:
        p, q = all.pair
        sums = all.vector + all.matrix[1] + x
        number = all.function(p) + q[0] + all.small + all.single + all.point.y
        return sums, az.cond(all.flag, lambda: number, lambda: 0.0)

    @az.program
    def made(x: az.Array[az.f64, "n"], flag: az.bool_) -> tuple[az.Array[az.f64, "n"], az.f64]:
        both = np.stack([np.zeros(3), np.ones(3)]).astype(np.int64)
        fields = Fields(flag, 2, 0.5, x, both, (1.0, (3,)), lambda v: v + x[0], Point(1, 2))
        return used(fields, x)

    x = np.array([1.0, 2.0, 3.0])
    for flag in (True, False):
        expected = (2 * x + 1, (1 + 1 + 3 + 2 + 0.5 + 2) * flag)
        argument = Fields(flag, 2, 0.5, list(x), [[0, 0, 0], [1, 1, 1]], (1, [3]), lambda v: v + 1, Point(1, 2))
        for sums, number in (run(used, argument, x), run(made, x, flag)):
            np.testing.assert_array_equal(sums, expected[0])
            assert number == expected[1]


# Variants


@az.fix
def add(self: Any, xs: List[az.f64]) -> az.f64:
    return az.case(xs, Nil=lambda: 0, Cons=lambda head, tail: head + self(tail))


@az.program
def total(xs: List[az.f64]) -> az.f64:
    return add(xs)


@pytest.mark.parametrize("values", [[], [0.5], [1.0, -2.0, 4.0], [np.inf, 1.0], [np.nan]])
def test_fold_of_a_list(values: list[float]) -> None:
    np.testing.assert_equal(run(total, linked(values)), sum(values))


@pytest.mark.parametrize("length", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_fold_of_a_long_list(length: int) -> None:
    """And the list with all elements doubled, which is as deep as the argument."""

    @az.program
    def doubled(xs: List[az.f64]) -> tuple[List[az.f64], az.f64]:
        @az.fix
        def double(self: Any, xs: List[az.f64]) -> List[az.f64]:
            return az.case(xs, Nil=lambda: List.Nil(), Cons=lambda head, tail: List.Cons(2 * head, self(tail)))

        return double(xs), add(xs)

    values = list(range(length))
    result, sum_ = az.evaluate(doubled)(linked(values))
    assert listed(result) == [2.0 * value for value in values] and sum_ == sum(values)


@pytest.mark.parametrize("scalar", [az.f32, az.f64, az.i32, az.i64, az.i8, az.u64, az.bool_])
def test_every_scalar_type_as_an_argument(scalar: Any) -> None:
    @az.program
    def reversed_(xs: List[scalar]) -> List[scalar]:
        @az.fix
        def go(self: Any, xs: List[scalar], done: List[scalar]) -> List[scalar]:
            return az.case(xs, Nil=lambda: done, Cons=lambda head, tail: self(tail, List.Cons(head, done)))

        return go(xs, List.Nil())

    values = np.array([0, 1, 1, 0]).astype(scalar.dtype)
    result = listed(run(reversed_, linked(values)))
    assert all(value.dtype == scalar.dtype for value in result) and result == list(values[::-1])


def test_trees_and_lists_of_tuples() -> None:
    """The nodes of a tree with their depths, in order."""

    @az.program
    def flat(tree: Tree[az.f64]) -> List[tuple[az.f64, az.i64]]:
        @az.fix
        def go(
            self: Any, tree: Tree[az.f64], depth: az.i64, rest: List[tuple[az.f64, az.i64]]
        ) -> List[tuple[az.f64, az.i64]]:
            def node(left: Any, value: Any, right: Any) -> Any:
                return self(left, depth + 1, List.Cons((value, depth), self(right, depth + 1, rest)))

            return az.case(tree, Leaf=lambda: rest, Node=node)

        return go(tree, 0, List.Nil())

    assert listed(run(flat, grown([1.0, 2.0, 3.0, 4.0]))) == [(1.0, 2), (2.0, 1), (3.0, 0), (4.0, 1)]
    assert listed(run(flat, Tree.Leaf())) == []


def test_mutual_recursion() -> None:
    @az.program
    def size(rose: Rose[az.f64]) -> az.i64:
        @az.fix
        def of(self: Any, rose: Rose[az.f64]) -> az.i64:
            branches = az.fix(
                lambda more, forest: az.case(
                    forest, Empty=lambda: 0, Grown=lambda first, others: self(first) + more(others)
                ),
                Forest[az.f64],
                result=az.i64,
            )
            return 1 + branches(rose.branches)

        return of(rose)

    leaf = Rose(1.0, Forest.Empty())
    assert run(size, leaf) == 1
    assert run(size, Rose(1.0, Forest.Grown(leaf, Forest.Grown(leaf, Forest.Empty())))) == 3


def test_polymorphic_functions_are_python_functions() -> None:
    """They are inlined at each use, for the types found there."""

    def mapped(f: Any, xs: Any, source: Any, target: Any) -> Any:
        return az.fix(
            lambda self, xs: az.case(xs, Nil=lambda: List.Nil(), Cons=lambda h, t: List.Cons(f(h), self(t))),
            List[source],
            result=List[target],
        )(xs)

    @az.program
    def program(xs: List[az.i64]) -> List[Either[az.f64, Point]]:
        halves = mapped(lambda n: n / 2, xs, az.i64, az.f64)
        either = Either[az.f64, Point]
        return mapped(
            lambda h: az.cond(h > 1, lambda: either.Left(h), lambda: either.Right(Point(h, h))), halves, az.f64, either
        )

    assert listed(run(program, linked([1, 3]))) == [Either.Right(Point(0.5, 0.5)), Either.Left(1.5)]


def test_functions_in_data_and_dynamic_fork() -> None:
    """A list of functions without parameters, all of which are run side by side."""

    @az.program
    def program(x: az.f64, n: az.i64) -> az.f64:
        task = az.Function[[], az.f64]
        step = lambda i, xs: List.Cons(lambda: x * i, xs)  # noqa: E731
        tasks = az.fori_loop(0, n, step, List[task].Nil())

        @az.fix
        def joined(self: Any, tasks: List[task]) -> az.f64:
            return az.case(tasks, Nil=lambda: 0.0, Cons=lambda f, rest: sum(az.par(f, lambda: self(rest))))

        return joined(tasks)

    assert run(program, 2.0, 5) == 2.0 * 10 and run(program, 2.0, 0) == 0


def test_arrays_in_data_share_sizes_with_arguments() -> None:
    @az.program
    def summed(xs: List[az.Array[az.f64, "n"]], zero: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        @az.fix
        def go(self: Any, xs: List[az.Array[az.f64, "n"]]) -> az.Array[az.f64, "n"]:
            return az.case(xs, Nil=lambda: zero, Cons=lambda head, tail: head + self(tail))

        return go(xs)

    for rows in (np.ones((2, 3)), np.zeros((0, 3)), np.zeros((2, 0))):
        np.testing.assert_array_equal(run(summed, linked(rows), np.zeros(rows.shape[1])), rows.sum(0))
    with pytest.raises(ValueError, match=r"axis 0 of argument 'xs', field 'head' of List\.Cons is n = 3, got 2"):
        az.evaluate(summed)(linked([np.ones(2)]), np.zeros(3))


def test_results_have_memory_of_their_own() -> None:
    @az.program
    def same(xs: List[az.Array[az.f64, 2]]) -> List[az.Array[az.f64, 2]]:
        return xs

    x = np.ones(2)
    result = az.evaluate(same)(List.Cons(x, List.Nil()))
    assert not np.shares_memory(result.head, x)


def test_python_values_are_constants() -> None:
    table = linked([(1, 0.5), (3, 0.25)])

    @az.program
    def looked_up(key: az.i64) -> Either[az.f64, az.bool_]:
        @az.fix
        def find(self: Any, rows: List[tuple[az.i64, az.f64]]) -> Either[az.f64, az.bool_]:
            def row(entry: Any, rest: Any) -> Any:
                return az.cond(entry[0] == key, lambda: Either[az.f64, az.bool_].Left(entry[1]), lambda: self(rest))

            return az.case(rows, Nil=lambda: Either.Right(False), Cons=row)

        return find(table)

    assert (run(looked_up, 3), run(looked_up, 2)) == (Either.Left(0.25), Either.Right(False))


def test_type_arguments_are_inferred() -> None:
    def program(x: az.f32, xs: List[az.f32]) -> Any:
        mixed = List.Cons(1, List.Cons(x, List.Nil()))
        adopted = List.Cons(2, xs)
        numbers = List.Cons(1, List.Cons(0.5, List.Nil()))
        nested = List.Cons((x, Either[az.f64, az.i64].Left(1)), List.Nil())
        return mixed, adopted, numbers, nested

    built = az.program(program).at()
    assert [str(type) for type in built.term.types] == [
        "List[f32]",
        "List[f32]",
        "List[f64]",
        "List[(f32, Either[f64, i64])]",
    ]


def test_data_in_a_parameter_without_annotation() -> None:
    assert run(lambda p, xs: Point(p.x, add(xs)), Point(1.0, 2.0), linked([1.0, 2.0])) == Point(1, 3)


def test_declarations_inside_of_functions() -> None:
    size = az.Array[az.f64, 2]

    @az.data
    class Local:
        values: size

    assert list(run(lambda x: Local(x).values * 2, np.ones(2))) == [2, 2]


def test_terms_with_data_pickle() -> None:
    term = total.at().term
    again = pickle.loads(pickle.dumps(term))
    assert again == term and pickle.loads(pickle.dumps(total)) is total


def test_printing() -> None:
    text = az.pretty(total)
    assert "def add(xs2: List[f64]) -> f64" in text and "case Cons(head, tail)" in text


# Wrong programs

P: Any = Point
L: Any = List
WRONG: list[tuple[str, Callable[[Any, Any, Any], Any], str]] = [
    ("no branch", lambda x, p, xs: az.case(xs, Nil=lambda: x), r"case of List\[f64\]: there is no branch for Cons"),
    (
        "an unknown branch",
        lambda x, p, xs: az.case(xs, Nil=lambda: x, Cons=lambda h, t: h, Snoc=lambda: x),
        "no variant S",
    ),
    (
        "too few fields",
        lambda x, p, xs: az.case(xs, Nil=lambda: x, Cons=lambda h: h),
        r"Cons has 2 field\(s\) \(head, tail",
    ),
    ("too many fields", lambda x, p, xs: az.case(xs, Nil=lambda y: x, Cons=lambda h, t: h), r"Nil has 0 field\(s\)"),
    (
        "a branch that is a value",
        lambda x, p, xs: az.case(xs, Nil=0.0, Cons=lambda h, t: h),
        "Nil is a function of its",
    ),
    (
        "branches of two types",
        lambda x, p, xs: az.case(xs, Nil=lambda: x > 0, Cons=lambda h, t: h),
        r"differ in type: bool and f64 \(Nil and Cons\)",
    ),
    (
        "branches of two structures",
        lambda x, p, xs: az.case(xs, Nil=lambda: x, Cons=lambda h, t: (h, h)),
        "different structures: Nil returns ., Cons ",
    ),
    (
        "a number that is too exact",
        lambda x, p, xs: az.case(xs, Nil=lambda: 0.5, Cons=lambda h, t: h > 0),
        "differ in type|is bool, got 0.5",
    ),
    ("case of a number", lambda x, p, xs: az.case(x, Nil=lambda: x), "case takes a value of a declared type, not f64"),
    (
        "nothing to infer from",
        lambda x, p, xs: az.cond(x > 0, lambda: L.Nil(), lambda: L.Nil()),
        "do not say the type of their result",
    ),
    (
        "one argument of two",
        lambda x, p, xs: Either.Left(x),
        r"fields do not say what U is; write Either\[T, U\]\.Left",
    ),
    ("a result to infer", lambda x, p, xs: L.Nil(), r"do not say what T is; write List\[T\]\.Nil\(\.\.\.\)"),
    (
        "contradicting fields",
        lambda x, p, xs: L.Cons(x > 0, xs),
        "List.Cons: T is bool in one field and f64 in another",
    ),
    ("a wrong field", lambda x, p, xs: P(x, x > 0), "field 'y' of Point is f64, got bool"),
    (
        "a wrong number",
        lambda x, p, xs: List[az.i64].Cons(0.5, L.Nil()),
        r"field 'head' of List\.Cons is i64, got 0\.5",
    ),
    ("another record", lambda x, p, xs: moved(p, x), r"moved: argument 'by' is a Point, got an expression of type f64"),
    ("a missing field", lambda x, p, xs: P(x), r"Point takes 2 field\(s\) \(x, y\), got 1"),
    ("an unknown field", lambda x, p, xs: P(x, z=x), r"Point: 'z' is not one of its fields \(x, y\)"),
    ("a field twice", lambda x, p, xs: P(x, x=x), "Point: 'x' is given twice"),
    ("a field that a record has not", lambda x, p, xs: p.z, "a Point has no field 'z'; its fields are x, y"),
    ("a field of a variant", lambda x, p, xs: xs.head, "take it apart with az.case to get at 'head'"),
    ("a sum as a value", lambda x, p, xs: L(x), r"List has variants: make a value with List\.Nil or List\.Cons"),
    ("arithmetic with data", lambda x, p, xs: p + x, "not a value of type Point"),
    (
        "an array of data",
        lambda x, p, xs: az.generate(3, lambda i: xs),
        r"arrays hold scalars|not a value of type List",
    ),
    (
        "a loop that changes its state",
        lambda x, p, xs: az.fori_loop(0, 3, lambda i, s: x, p),
        r"the body of a fori_loop returns another structure than the state's: \., which is no Point\(\., \.\)",
    ),
]


@pytest.mark.parametrize(("body", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_programs(body: Callable[[Any, Any, Any], Any], message: str) -> None:
    def f(x: az.f64, p: Point, xs: List[az.f64]) -> Any:
        return body(x, p, xs)

    with pytest.raises((TypeError, AttributeError), match=message):
        az.program(f).at().term  # noqa: B018


ARGUMENTS: list[tuple[str, Any, str]] = [
    ("a number", 3.0, r"total: argument 'xs' is List\[f64\], got 3\.0"),
    ("another type", Point(1.0, 2.0), r"argument 'xs' is List\[f64\], got a Point"),
    ("a list of Python", [1.0], r"argument 'xs' is List\[f64\], got \(1\.0,\)"),
    ("a wrong head", linked([1.0, "a"]), r"argument 'xs', field 'head' of List\.Cons is f64, got a value of type str"),
    ("a wrong tail", List.Cons(1.0, Tree.Leaf()), r"field 'tail' of List\.Cons is List\[f64\], got a Tree\.Leaf"),
    ("a number that is not exact", linked([2**53 + 1]), "which is not exactly representable in f64"),
]


@pytest.mark.parametrize(("argument", "message"), [row[1:] for row in ARGUMENTS], ids=[row[0] for row in ARGUMENTS])
def test_wrong_arguments(argument: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        az.evaluate(total)(argument)
    assert "test_data_types.py:" in str(caught.value)


def test_wrong_declarations() -> None:
    with pytest.raises(TypeError, match="a field cannot be called 'shape', which means something else"):

        @az.data
        class Shaped:
            shape: az.f64

    with pytest.raises(TypeError, match="Both has fields of its own and variants"):

        @az.data
        class Both:
            x: az.f64

            class Variant: ...

    @az.data
    class Untyped:
        x: str

    with pytest.raises(TypeError, match=r"field 'x' of Untyped\.Untyped: <class 'str'> is neither"):
        az.program(lambda x: Untyped(x)).at(az.f64).term  # noqa: B018

    @az.data
    class Open:
        x: T

    with pytest.raises(
        TypeError, match=r"T is no parameter of Open, which would be declared class Open\(Generic\[T\]\)"
    ):
        az.program(lambda x: Open(x)).at(az.f64).term  # noqa: B018
    with pytest.raises(TypeError, match=r"List takes 1 type argument\(s\), got 2"):
        List[az.f64, az.f64]
    with pytest.raises(TypeError, match="Point takes no type arguments"):
        Point[az.f64]
    with pytest.raises(TypeError, match=r"parameter 'xs' .*List takes type arguments: List\[T\]"):

        @az.program
        def bare(xs: List) -> az.f64:  # type: ignore[type-arg]
            return add(xs)


def test_sizes_inside_of_data_are_bound_by_arrays() -> None:
    @az.program
    def program(xs: List[az.Array[az.f64, "k"]]) -> az.f64:
        return 0.0

    with pytest.raises(TypeError, match=r"the size k of parameter 'xs', of type List\[f64\[k\]\], cannot be found"):
        az.evaluate(program)(List.Nil())


def test_a_field_in_text_where_all_annotations_are_text() -> None:
    """So it is under ``from __future__ import annotations`` if a type is quoted as well."""
    fields = "        head: 'tuple[az.f64, az.i64]'\n        tail: 'Pairs'"
    text = f"@az.data\nclass Pairs:\n    class End: ...\n    class More:\n{fields}"
    names: dict[str, Any] = {"az": az, "__name__": "pairs"}
    exec(f"from __future__ import annotations\n{text}", names)
    pairs = names["Pairs"]
    first = az.program(lambda xs: az.case(xs, End=lambda: 0.0, More=lambda head, _: head[0]))
    assert az.evaluate(first)(pairs.More((1.5, 2), pairs.End())) == 1.5


@az.data
class Endless:
    """Somebody took fields for variants."""

    Leaf: az.f64
    Node: tuple["Endless", "Endless"]


@az.data
class Turn:
    back: "Return"


@az.data
class Return:
    class Forth:
        turn: Turn

    class Both:
        turns: tuple[Turn, "Return"]


@az.data
class Holding:
    class Nothing: ...

    class Some:
        endless: Endless


@az.data
class Stream:
    """What comes later is a function, which nobody needs to run."""

    head: az.f64
    later: "az.Function[[az.i64], Stream]"


@pytest.mark.parametrize(
    "type, name", [(Endless, "Endless"), (Turn, "Return"), (Return, "Return"), (Holding, "Endless")]
)
def test_types_without_values_are_refused(type: Any, name: str) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=f"{name} has no values: each would contain another"):
            az.program(lambda x: 1.0).at(type)


def test_types_with_values_of_which_some_contain_others_are_not() -> None:
    for type in (Stream, List[az.f64], Rose[az.f64], Forest[az.f64]):
        assert az.pretty(az.program(lambda x: 1.0).at(type)).endswith("return 1.0")


# Variants that are declared by their constructors


@az.data
class Chain(Generic[T]):
    class End: ...

    @az.variant
    def Link(head: T, tail: "Chain[T]") -> Any: ...


def test_a_constructor_declares_the_class_that_a_nested_class_does() -> None:
    @az.program
    def doubled(xs: Chain[az.f64]) -> Chain[az.f64]:
        @az.fix
        def go(self: Any, xs: Chain[az.f64]) -> Chain[az.f64]:
            return az.case(xs, End=lambda: Chain.End(), Link=lambda head, tail: Chain.Link(2 * head, self(tail)))

        return go(xs)

    chain = Chain.Link(1.0, tail=Chain.Link(2.5, Chain.End()))
    assert az.evaluate(doubled)(chain) == Chain.Link(2.0, Chain.Link(5.0, Chain.End()))
    assert isinstance(chain, Chain) and isinstance(chain, Chain.Link) and issubclass(Chain.Link, Chain)
    assert pickle.loads(pickle.dumps(chain)) == chain
    match chain:
        case Chain.Link(head, Chain.Link()):
            assert head == 1.0
        case _:
            raise AssertionError
    with pytest.raises(TypeError, match=r"Chain\.Link takes 2 field\(s\) \(head, tail\), got 1"):
        Chain.Link(1.0)


def test_parameters_of_a_variant_are_fields() -> None:
    with pytest.raises(TypeError, match=r"Link: 'tail' is a field of a variant, and has no type \(at .*\.py:\d+\)"):

        @az.variant
        def Link(head: az.f64, tail): ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="'rest' is a field of a variant, and is not a parameter by position and name"):

        @az.variant
        def Rest(*rest: az.f64) -> Any: ...

    with pytest.raises(TypeError, match="the field 'x' has a default, which fields do not have"):

        @az.variant
        def Default(x: az.f64 = 0.0) -> Any: ...

    class Bare:
        @az.variant
        def Only(x: az.f64) -> Any: ...

    with pytest.raises(TypeError, match=r"Bare\.Only is a variant of a class without @az.data \(at "):
        Bare.Only(1.0)
