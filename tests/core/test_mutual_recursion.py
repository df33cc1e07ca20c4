"""Definitions that mention each other: what they mean, and that each of them is built once."""

from typing import Any

import numpy as np
import pytest

import adze as az
from adze.core.components import components
from adze.core.terms import Block


@az.fix
def even(self: Any, k: az.i64) -> az.bool_:
    return az.cond(k == 0, lambda: True, lambda: odd(k - 1))


@az.fix
def odd(self: Any, k: az.i64) -> az.bool_:
    return az.cond(k == 0, lambda: False, lambda: even(k - 1))


@az.data
class Formula:
    class Number:
        value: az.f64

    class Sum:
        terms: "Formulas"

    class Product:
        left: "Formula"
        right: "Formula"


@az.data
class Formulas:
    class Nil: ...

    class Cons:
        head: Formula
        tail: "Formulas"


@az.fix
def value(self: Any, f: Formula) -> az.f64:
    return az.case(f, Number=lambda v: v, Sum=lambda terms: total(terms), Product=lambda a, b: value(a) * self(b))


@az.fix
def total(self: Any, terms: Formulas) -> az.f64:
    return az.case(terms, Nil=lambda: 0.0, Cons=lambda f, rest: value(f) + self(rest))


@az.fix
def collatz(self: Any, n: az.i64, steps: az.i64) -> az.i64:
    return az.cond(
        n == 1, lambda: steps, lambda: az.cond(n % 2 == 0, lambda: halved(n, steps), lambda: tripled(n, steps))
    )


@az.function
def halved(n: az.i64, steps: az.i64) -> az.i64:
    return collatz(n // 2, steps + 1)


@az.function
def tripled(n: az.i64, steps: az.i64) -> az.i64:
    return halved(3 * n + 1, steps + 1)


def steps_to_one(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def run(program: Any, *arguments: Any) -> Any:
    """What a program gives, after it was checked, taken apart and put together again, and simplified."""
    program = az.program(program)
    term = program.instance_for(program.bind(arguments, {})).term
    az.check(term)
    assert term.interpret(az.Reify()) == term
    az.check(az.simplify(term))
    return az.evaluate(program)(*arguments)


def count(block: Block, *ops: str) -> int:
    """How many operations there are of these constructs."""
    inside = [count(inner, *ops) for operation in block.bindings for inner in operation.blocks]
    return sum(operation.op in ops for operation in block.bindings) + sum(inside)


# What they mean


@pytest.mark.parametrize("n", [0, 1, 6, 7])
def test_two_functions(n: int) -> None:
    def program(n: az.i64) -> tuple[az.bool_, az.bool_]:
        return even(n), odd(n)

    assert run(program, n) == (n % 2 == 0, n % 2 == 1)


@pytest.mark.unguarded
def test_a_ring_of_three() -> None:
    """One is recursive, two are not written as such; one is left by either of two others."""

    def program(n: az.i64) -> az.i64:
        return collatz(n, 0)

    assert [run(program, n) for n in (1, 2, 7, 9)] == [steps_to_one(n) for n in (1, 2, 7, 9)]


@pytest.mark.unguarded
def test_functions_of_other_signatures() -> None:
    """A formula and a list of formulas; functions by the name outside, and by their first parameter."""
    half, two = Formula.Number(0.5), Formula.Number(2.0)
    terms = Formulas.Cons(half, Formulas.Cons(Formula.Product(two, two), Formulas.Nil()))

    def program(f: Formula) -> az.f64:
        return value(f)

    assert run(program, Formula.Product(Formula.Sum(terms), two)) == (0.5 + 4.0) * 2
    assert run(program, Formula.Sum(Formulas.Nil())) == 0


@pytest.mark.parametrize("written", [az.fix, az.function])
def test_a_function_calls_itself_by_its_name(written: Any) -> None:
    def body(n: az.i64) -> az.i64:
        return az.cond(n <= 1, lambda: 1, lambda: n * factorial(n - 1))

    factorial = az.fix(lambda self, n: body(n), az.i64, result=az.i64) if written is az.fix else az.function(body)

    def program(n: az.i64) -> az.i64:
        return factorial(n)

    assert run(program, 5) == 120
    term = az.program(program).at().term
    assert count(term, "fix") == 1 and count(term, "function") == 0


def test_several_results_structures_and_no_parameters() -> None:
    @az.fix
    def down(self: Any, pair: tuple[az.i64, az.f64]) -> {"k": az.i64, "x": az.f64}:
        k, x = pair
        return az.cond(k <= 0, lambda: {"k": k, "x": x}, lambda: both(k, x)["second"])

    @az.function
    def both(k: az.i64, x: az.f64) -> {"first": az.i64, "second": {"k": az.i64, "x": az.f64}}:
        return {"first": start(), "second": down((k - 2, x * 2))}

    @az.function
    def start() -> az.i64:
        return down((0, 0.0))["k"] + 3

    def program(k: az.i64, x: az.f64) -> Any:
        return down((k, x)), start()

    assert run(program, 5, 0.25) == ({"k": -1, "x": 2.0}, 3)


def test_arrays_in_a_group() -> None:
    vector = az.Array[az.f64, "n"]

    @az.fix
    def doubled(self: Any, x: vector, k: az.i64) -> vector:
        return az.cond(k == 0, lambda: x, lambda: shifted(2 * x, k - 1))

    @az.fix
    def shifted(self: Any, x: vector, k: az.i64) -> vector:
        return az.cond(k == 0, lambda: x, lambda: doubled(x + az.sum(x), k - 1))

    def program(x: vector, k: az.i64) -> vector:
        return doubled(x, k)

    for x in (np.array([0.5, -1.0, 2.0]), np.zeros(0)):
        once = 2 * x + (2 * x).sum()
        np.testing.assert_array_equal(run(program, x, 3), 2 * once)


def test_a_group_among_other_constructs() -> None:
    """Used twice, in the branches of a fork, in a map, in a loop, in a function, and stored in a list."""

    @az.data
    class Functions:
        class Nil: ...

        class Cons:
            head: az.Function[[az.i64], az.bool_]
            tail: "Functions"

    def program(n: az.i64, x: az.Array[az.i64, "m"]) -> Any:
        pair = az.par(lambda: even(n), lambda: odd(n))
        mapped = az.map(lambda k: odd(k), x)
        looped = az.fori_loop(0, n, lambda k, s: s + az.where(even(k), 1, 0), 0)
        applied = az.function(lambda k: even(k + 1), az.i64)(n)
        every = az.fix(
            lambda self, fs: az.case(fs, Nil=lambda: True, Cons=lambda f, rest: f(n) & self(rest)),
            Functions,
            result=az.bool_,
        )
        stored = every(Functions.Cons(even, Functions.Cons(lambda k: odd(k + 1), Functions.Nil())))
        chosen = az.cond(n > 3, lambda: even, lambda: odd)
        return pair, mapped, looped, applied, stored, chosen(n)

    pair, mapped, looped, applied, stored, chosen = run(program, 4, np.array([3, 0, 2, 1]))
    assert pair == (True, False) and list(mapped) == [True, False, False, True] and looped == 2
    assert (applied, stored, chosen) == (False, True, True)


def test_a_group_in_several_programs_and_inlined_ones() -> None:
    """Values belong to one program, definitions to none."""

    @az.program
    def odd_below(n: az.i64) -> az.i64:
        return az.fori_loop(0, n, lambda k, s: s + az.where(odd(k), 1, 0), 0)

    def program(n: az.i64) -> Any:
        return odd_below(n), even(n)

    assert [run(program, n) for n in (4, 5)] == [(2, True), (2, False)]
    assert az.evaluate(odd_below)(7) == 3


def test_a_definition_in_reach_of_a_group_is_made_beside_it() -> None:
    """It is no part of the group, and captures nothing."""

    @az.function
    def square(x: az.i64) -> az.i64:
        return x * x

    @az.fix
    def first(self: Any, k: az.i64) -> az.i64:
        return az.cond(k <= 0, lambda: square(k), lambda: second(square(k)))

    @az.fix
    def second(self: Any, k: az.i64) -> az.i64:
        return az.cond(k > 9, lambda: square(k), lambda: first(k - square(2)))

    def program(k: az.i64) -> az.i64:
        return first(k)

    assert [run(program, k) for k in (-1, 2, 3, 4)] == [1, 0, 625, 256]
    term = az.program(program).at().term
    assert [operation.op for operation in term.bindings] == ["function", "fix", "apply", "apply"]


@pytest.mark.unguarded
def test_derivatives_by_traces() -> None:
    @az.fix
    def grown(self: Any, x: az.f64, k: az.i64) -> az.f64:
        return az.cond(k == 0, lambda: x, lambda: shrunk(x * x, k - 1))

    @az.fix
    def shrunk(self: Any, x: az.f64, k: az.i64) -> az.f64:
        return az.cond(k == 0, lambda: x, lambda: grown(x / 2, k - 1))

    @az.program
    def program(x: az.f64) -> az.f64:
        return grown(x, 4)  # x**4 / 8

    assert az.grad(program, via="trace")(1.5) == 1.5**3 / 2


# How much is built


def all_of(n: int) -> tuple[list[Any], list[int]]:
    """Functions each of which calls all, and how often the body of each was built."""
    functions: list[Any] = []
    built = [0] * n

    def definition(i: int) -> Any:
        def body(self: Any, k: az.i64) -> az.i64:
            built[i] += 1
            return az.cond(k <= 0, lambda: i + 1, lambda: sum(f(k - 1) for f in functions))

        return az.fix(body, az.i64, result=az.i64)

    functions.extend(definition(i) for i in range(n))
    return functions, built


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [3, 12])
def test_each_body_is_built_once(n: int) -> None:
    """Functions all of which call each other: the term has one of each, whatever mentions it."""
    functions, built = all_of(n)

    def program(k: az.i64) -> az.i64:
        return functions[0](k)

    term = az.program(program).at().term
    assert built == [1] * n and count(term, "fix") == 1 and count(term, "function") == n
    assert run(program, 2) == n * n * (n + 1) // 2


def test_a_chain_of_definitions_is_built_once() -> None:
    """Each mentions the next one twice; without types of results, as well."""
    for result in (None, az.f64):
        calls = 0
        last: Any = az.function(lambda x: x, az.f64, result=result)
        for _ in range(40):

            def body(x: Any, before: Any = last) -> Any:
                nonlocal calls
                calls += 1
                return (before(x) + before(x)) / 2

            last = az.function(lambda x, body=body: body(x), az.f64, result=result)
        program = az.program(lambda x: last(x))  # noqa: B023
        term = program.at(az.f64).term
        assert calls == 40 and count(term, "function") == 41


def test_the_order_of_mentions_does_not_matter() -> None:
    """The group is the same from each of its functions."""
    one, other = (program.at(az.i64).term for program in (az.program(lambda n: even(n)), az.program(lambda n: odd(n))))
    assert one.bindings[:-1] == other.bindings[:-1]


def test_printing() -> None:
    text = az.pretty(az.program(lambda n: even(n)).at(az.i64))
    assert text.splitlines()[1] == "  def even_odd() -> ((i64) -> bool, (i64) -> bool):"
    assert "    def odd(k: i64) -> bool:" in text


def test_components() -> None:
    """Against reachability."""
    generator = np.random.default_rng(0)
    for n in (1, 2, 5, 9):
        for _ in range(20):
            edges = generator.random((n, n)) < 1.2 / n
            found = components({i: [int(j) for j in np.flatnonzero(edges[i])] for i in range(n)})
            reached = np.linalg.matrix_power(np.eye(n, dtype=int) + edges, n) > 0
            assert sorted(i for group in found for i in group) == list(range(n))
            for k, group in enumerate(found):
                assert {j for j in range(n) if reached[group[0], j] and reached[j, group[0]]} == set(group)
                later = [j for others in found[k + 1 :] for j in others]
                assert not reached[np.ix_(group, later)].any()
    chain = components({k: [k + 1] if k < 20_000 else [] for k in range(20_001)})
    assert chain[0] == [20_000] and chain[-1] == [0]


# Wrong programs


def test_a_function_that_is_defined_further_down_in_a_program() -> None:
    def nested(n: az.i64) -> az.bool_:
        @az.fix
        def even(self: Any, k: az.i64) -> az.bool_:
            return az.cond(k == 0, lambda: True, lambda: odd(k - 1))

        @az.fix
        def odd(self: Any, k: az.i64) -> az.bool_:
            return az.cond(k == 0, lambda: False, lambda: even(k - 1))

        return even(n)

    line = nested.__code__.co_firstlineno + 3
    said = (
        rf"even mentions 'odd', which has no value yet \(at .*test_mutual_recursion\.py:{line}\); inside of a program"
    )
    with pytest.raises(NameError, match=said):
        az.program(nested).at().term  # noqa: B018


def test_an_unknown_name_is_pythons_error() -> None:
    with pytest.raises(NameError, match="name 'nowhere' is not defined"):
        az.program(lambda n: az.function(lambda k: nowhere(k), az.i64)(n)).at(az.i64).term  # type: ignore[name-defined]  # noqa: B018


def test_a_type_that_depends_on_itself() -> None:
    ping: Any = az.function(lambda x: pong(x), az.f64)
    pong: Any = az.function(lambda x: ping(x), az.f64)
    said = r"calls itself before the type of its result is known: annotate it, or give result= \(at .*\.py:\d+\)"
    with pytest.raises(TypeError, match=said):
        az.program(lambda x: ping(x)).at(az.f64).term  # noqa: B018
    typed = az.function(lambda x: az.cond(x > 8, lambda: x, lambda: untyped(x)), az.f64, result=az.f64)
    untyped = az.function(lambda x: typed(x * 2), az.f64)  # one that is given is enough
    assert [run(lambda x: typed(x), 1.5), run(lambda x: untyped(x), 1.5)] == [12.0, 12.0]


@pytest.mark.unguarded
def test_recursion_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from adze.interpreters.evaluate import functions as evaluate_functions

    monkeypatch.setattr(evaluate_functions, "DEEPEST", 1000)
    there: Any = az.fix(lambda self, k: back(k) + 1, az.i64, result=az.i64)
    back: Any = az.fix(lambda self, k: there(k) + 1, az.i64, result=az.i64)
    with pytest.raises(RecursionError, match=r"1000 deep: this recursion has no end, at .*_recursion\.py:\d+"):
        az.evaluate(az.program(lambda k: there(k)))(0)


@pytest.mark.unguarded
def test_definitions_that_never_end_are_told_by_name() -> None:
    """A new definition for each mention is not the same one."""

    def made() -> Any:
        return az.fix(lambda self, k: again(k), az.i64, result=az.i64)

    def again(k: Any) -> Any:
        return made()(k)

    with pytest.raises(RecursionError, match=r"calls itself .* times deep while the program is built"):
        az.program(lambda k: made()(k)).at(az.i64).term  # noqa: B018
