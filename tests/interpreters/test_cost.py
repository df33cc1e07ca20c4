"""Costs: counted with symbols, counted by running, and by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain import Plain
from programs import CASES, Case, numbers

import adze as az
from adze.core.builder import Builder, build
from adze.core.dims import Compound, Dim, Opaque
from adze.core.graph import Value
from adze.core.language import Unsupported
from adze.core.placement import to_block
from adze.core.terms import Block, Foreign, Variable
from adze.core.types import ArrayType, FunctionType, f64, i64, rank
from adze.interpreters.cost import ProgramCost
from adze.interpreters.cost.amounts import Amount, Log2, larger, log2
from adze.interpreters.cost.costs import Cost

Vector = az.Array[az.f64, "n"]
Matrix = az.Array[az.f64, "n m"]

# Amounts

I, N, K = Opaque(0), Dim.of("n"), Dim.of("k")
INDEX = Dim.atom(I)
AMOUNTS = {
    "constant": Amount.of(3),
    "powers": Amount.of(INDEX * INDEX * INDEX * 2 - INDEX + K),
    "quotient": Amount.of((INDEX + 1) // 2 + K * INDEX),
    "minimum": Amount.of(INDEX.minimum(K)),
    "maximum": Amount.of(K - INDEX.maximum(Dim.of(2)) + INDEX),
    "logarithm": Amount.atom(Log2(Amount.of(INDEX + K))) * Amount.of(INDEX),
}


def value(amount: Amount, i: int, n: int, k: int) -> int:
    return amount.named({0: "i"}).evaluate({"i": i, "n": n, "k": k})


@given(st.sampled_from(list(AMOUNTS)), st.integers(0, 9), st.integers(0, 9))
def test_sums_over_an_index(name: str, n: int, k: int) -> None:
    """Exact for polynomials; nothing is below what it bounds."""
    amount = AMOUNTS[name]
    values = [value(amount, i, n, k) for i in range(n)]
    total = value(amount.sum(I, N), 0, n, k)
    assert total == sum(values) if name in ("constant", "powers") else total >= sum(values)
    if values:
        assert value(amount.highest(I, N), 0, n, k) >= max(values)


@given(st.sampled_from(list(AMOUNTS)), st.sampled_from(list(AMOUNTS)), st.integers(0, 9), st.integers(1, 9))
def test_the_join_of_two_amounts_bounds_both(one: str, other: str, i: int, k: int) -> None:
    joined = AMOUNTS[one].join(AMOUNTS[other])
    assert value(joined, i, 0, k) >= max(value(AMOUNTS[one], i, 0, k), value(AMOUNTS[other], i, 0, k))


def test_the_text_of_amounts() -> None:
    n, m = Amount.of(N), Amount.of(Dim.of("m"))
    assert str(3 * n * m + n * n - n + 2) == "3 m n + n^2 - n + 2"
    assert str(Amount.of(INDEX * N).sum(I, N)) == "n^3/2 - n^2/2"
    assert str(n * log2(n * m)) == "n log2(m n)"
    assert str(3 * Amount.of(Dim.parse("max(n - 1, 0)"))) == "3 max(0, n - 1)"
    assert str(3 * Amount.of(Dim.parse("(n + 1)//2"))) == "3 ((n+1)//2)"
    assert str(Amount.of(0)) == "0" and n != m and n == Amount.of(Dim.of("n")) and Amount.of(3) == 3


def test_logarithms_count_rounds() -> None:
    assert [log2(k) for k in range(6)] == [0, 0, 1, 2, 2, 3]
    assert log2(Amount.of(8)) == 3 and larger(3, 4) == 4


# All programs: symbols, running, and the second interpreter

SMALL = 500

# Constructs that the second interpreter counts in its own way.
COUNTED_OTHERWISE = {"add_to", "histogram", "scatter", "argsort", "foreign"}


def at(counted: ProgramCost, case: Case, arguments: Sequence[Any]) -> tuple[Cost, bool]:
    """The counts by symbols for a call, and whether they do not depend on data."""
    instance = case.program.instance_for(case.program.bind(arguments, {}))
    leaves = case.program.leaves(arguments)
    values, sizes = instance.signature.convert(leaves)
    for name, x in zip(instance.names, values, strict=True):
        if np.ndim(x) == 0 and x.dtype == np.int64:
            sizes |= {f"{name}2" if name in sizes else name: int(x)}
    amounts = [Amount.of(number) for number in counted.symbolic.numbers]
    data = {name for amount in amounts for name in amount.names()} - set(sizes)
    return counted.at(**sizes, **dict.fromkeys(data, 1000)), not data


def constructs(block: Block) -> set[str]:
    inside = [constructs(inner) for operation in block.bindings for inner in operation.blocks]
    return {operation.op for operation in block.bindings}.union(*inside)


def outside(block: Block) -> list[Any]:
    """The arrays among the results that the block does not make, or gives back twice."""
    made = sum(len(binding.types) for binding in block.bindings)
    arrays = [atom for atom in block.results if rank(atom.type)]
    inside = [atom for atom in arrays if isinstance(atom, Variable) and atom.index < made]
    return [atom for k, atom in enumerate(arrays) if atom not in inside or atom in arrays[:k]]


def copies(block: Block) -> bool:
    """Whether a loop stores an array that its body did not make."""
    blocks = [inner for operation in block.bindings for inner in operation.blocks]
    return any(outside(inner) or copies(inner) for inner in blocks)


@pytest.mark.unguarded
@pytest.mark.parametrize("simplified", [True, False], ids=["simplified", "as-written"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_symbols_and_running_agree(case: Case, simplified: bool) -> None:
    """They are equal where nothing depends on data and no array is empty; else symbols give an upper bound.

    Small calls only: to count by running takes its time.
    """
    for arguments in case.arguments:
        if sum(map(np.size, case.program.leaves(arguments))) > SMALL:
            continue
        instance = case.program.instance_for(case.program.bind(arguments, {}))
        counted = az.cost(instance, simplified=simplified)
        term = counted.term(instance)
        symbolic, exact = at(counted, case, arguments)
        ran = counted(*arguments)
        assert all(x <= y for x, y in zip(ran.numbers, symbolic.numbers, strict=True)), case.name  # type: ignore[operator]
        filled = all(np.size(leaf) for leaf in case.program.leaves(arguments))
        if exact and filled and not constructs(term) & {"cond", "while", "histogram", "case"}:
            assert ran.numbers[:3] == symbolic.numbers[:3]
        alike = not (constructs(term) & COUNTED_OTHERWISE or outside(term) or copies(term))
        if alike:
            plain = Plain.run(instance, case.program.leaves(arguments), term)
            assert ran.operations + ran.reads == plain.operations


# By hand


def check(program: Callable[..., Any], *counts: str, simplified: bool = True) -> ProgramCost:
    counted = az.cost(az.program(program), simplified=simplified)
    assert tuple(map(str, counted.symbolic.numbers)) == counts
    return counted


def test_reductions() -> None:
    def norms(a: Matrix) -> Any:
        return az.sum(a * a, 1)

    counted = check(norms, "2 m n", "m n", "n", "log2(m) + 3")
    assert counted.at(n=3, m=8) == Cost(48, 24, 3, 6) == counted(numbers(3, 8))
    check(norms, "2 m n", "2 m n", "m n + n", "log2(m) + 6", simplified=False)
    assert str(counted) == "operations: 2 m n\nreads:      m n\nwrites:     n\nspan:       log2(m) + 3"
    assert str(counted.work) == "3 m n + n"


def test_scans_and_histograms() -> None:
    def running(x: Vector) -> Any:
        return az.cumsum(x)

    def counts(x: az.Array[az.i64, "n"]) -> Any:
        return az.histogram(lambda a, b: a + b, 0, 10, x, az.ones(az.size(x), az.i64))

    assert str(check(running, "n", "n", "n", "log2(n) + 1")(numbers(5)).span) == "4"
    bins = np.array([1, 1, 12, -1, 3])
    counted = az.cost(az.program(counts))
    assert counted(bins).operations == 3  # what lies outside is not counted
    assert Amount.of(counted.operations) == Amount.of(Dim.of("n")) and counted.at(n=5).writes == 15


def test_triangular_loops() -> None:
    def sums(x: Vector) -> Any:
        return az.generate(x.shape[0], lambda i: az.sum(az.generate(i, lambda j: x[i] * j)))

    counted = az.cost(az.program(sums))
    assert str(counted.operations) == "3 n^2/2 - 3 n/2"  # a conversion, a product and a sum
    assert counted(numbers(7)).operations == counted.at(n=7).operations == 63


def test_loops_take_their_time_one_step_after_the_other() -> None:
    def horner(x: Vector) -> az.f64:
        return az.fori_loop(0, x.shape[0], lambda i, s: s * 0.5 + x[i], 0.0)

    check(horner, "2 n", "n", "0", "3 n")


def test_while_loops_have_trips() -> None:
    def halved(x: az.f64) -> Any:
        return az.while_loop(lambda s: s > 1.0, lambda s: s * 0.5, x)

    counted = check(halved, "2 trips + 1", "0", "0", "2 trips + 1")
    assert counted(8.0) == counted.at(trips=3) and counted(0.5).operations == 1


def test_branches_are_bounded_by_both() -> None:
    def either(x: Vector, s: az.f64) -> az.f64:
        return az.cond(s > 0, lambda: az.sum(x), lambda: s * s * s)

    counted = check(either, "n + 3", "n", "0", "log2(n) + 3")
    assert counted(numbers(4), 1.0).operations == 5 and counted(numbers(4), -1.0).operations == 3


def test_integers_that_are_arguments_are_sizes() -> None:
    def powers(x: az.f64, n: az.i64) -> az.f64:
        return az.fori_loop(0, n, lambda i, p: p * x, 1.0)

    counted = az.cost(az.program(powers))
    assert counted.at(n=5).operations == counted(2.0, 5).operations
    assert counted.at(n=-5).operations == counted(2.0, -5).operations


def test_integers_that_depend_on_data_have_names() -> None:
    def prefix(x: Vector, ends: az.Array[az.i64, "m"]) -> Any:
        def total(end: Any) -> Any:
            length = az.minimum(end * end, x.shape[0])
            return az.sum(az.generate(length, lambda i: x[i]))

        return az.map(total, ends)

    counted = az.cost(az.program(prefix))
    with pytest.raises(TypeError, match="the cost depends on end, m, n: give a value for each"):
        counted.at()
    x, ends = numbers(9), np.array([1, 2, 3])
    names = {name for number in counted.symbolic.numbers for name in Amount.of(number).names()} - {"n", "m"}
    bound = counted.at(n=9, m=3, **dict.fromkeys(names, 9))
    assert all(a <= b for a, b in zip(counted(x, ends).numbers, bound.numbers, strict=True))  # type: ignore[operator]


def test_sizes_and_integers_of_one_name() -> None:
    def repeat(x: Vector, n: az.i64) -> az.f64:
        return az.fori_loop(0, n, lambda i, p: p * az.sum(x), 1.0)

    names = Amount.of(az.cost(az.program(repeat), simplified=False).operations).names()
    assert names == {"n", "n2"}


# Memory


def updating(rest: Callable[[Builder, Value, Value], Value]) -> Block:
    """Writes of ``1.0`` at all i < m into an array of n elements that this program makes."""
    with build() as b:
        n, m, one = b.variable(i64, "n"), b.variable(i64, "m"), b.literal(1, f64)
        old = b.array([n], lambda i: b.literal(0, f64))
        new = b.loop(m, [old], lambda i, a: b.scatter(True, [], [a], lambda: [i, one]))[0]
        return to_block([n, m], [rest(b, old, new)], names=["n", "m"])[0]


def test_updates_happen_in_place() -> None:
    zero = 0

    def last(b: Builder, old: Value, new: Value) -> Value:
        return b.index(new, [b.literal(zero, i64)])

    def both(b: Builder, old: Value, new: Value) -> Value:
        return b.primitive("add", last(b, old, new), b.index(old, [b.literal(zero, i64)]))

    assert str(az.cost(updating(last)).writes) == "m + n"
    assert str(az.cost(updating(both)).writes) == "m + 2 n"


def test_an_argument_is_copied_before_it_is_updated() -> None:
    def fill(x: Vector) -> Any:
        return az.fori_loop(0, x.shape[0], lambda i, y: az.update(y, i, 1.0), x)

    counted = az.cost(az.program(fill))
    assert str(counted.writes) == "2 n" and counted(numbers(5)).writes == 10


def test_results_are_copies_of_arguments() -> None:
    def twice(x: Vector) -> Any:
        y = x + 1
        return x, y, y

    counted = az.cost(az.program(twice))
    assert str(counted.writes) == "3 n" and counted(numbers(4)).writes == 12


def test_arrays_from_outside_are_copied_into_a_result() -> None:
    def rows(x: Vector, y: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda v: y, x)

    counted = az.cost(az.program(rows), simplified=False)
    assert counted(numbers(3), numbers(4)).writes == counted.at(n=3, m=4).writes == 12


# Derivatives cost a small multiple of their program


def kmeans(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
    def nearest(p: Any) -> Any:
        return az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids))

    return az.sum(az.map(nearest, points))


def chain(a: az.Array[az.f64, "n n"], x: Vector) -> az.f64:
    return az.sum(az.fori_loop(0, 10, lambda i, v: az.tanh(a @ v), x))


def least_squares(a: Matrix, x: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum((a @ x) ** 2)


@pytest.mark.unguarded
@pytest.mark.parametrize(("function", "argnums"), [(kmeans, 1), (chain, 0), (least_squares, 1)])
def test_gradients_are_cheap(function: Callable[..., Any], argnums: int) -> None:
    program = az.program(function)
    primal, gradient = az.cost(program), az.cost(az.grad(program, argnums=argnums))
    for size in (4, 16, 64, 256):
        sizes = {"n": 2 * size, "m": size, "k": size, "d": size}
        arrays = sum(
            int(np.prod([dim.evaluate(sizes) for dim in type.dims]))
            for type in program.at().types
            if isinstance(type, ArrayType)
        )
        work = gradient.at(**sizes).work, primal.at(**sizes).work
        assert isinstance(work[0], int) and isinstance(work[1], int)
        assert work[0] <= 6 * (work[1] + 2 * arrays)


# Other constructs


def test_foreign_functions_read_and_write() -> None:
    inverse = Foreign("inverse", np.linalg.inv, lambda types: [types[0]])
    with build() as b:
        x = b.variable(ArrayType(f64, (N, N)))
        block, _ = to_block([x], b.emit("foreign", (inverse,), [x]))
    assert az.cost(block).symbolic.numbers == (0, Amount.of(N * N), Amount.of(N * N), Amount.of(N * N * 2))


def test_functions_are_entered_where_they_are_applied() -> None:
    type = FunctionType((f64,), (f64,))
    with build() as b:
        x = b.variable(f64)
        square = b.emit("function", (type,), [], [b.body([f64], lambda v: [b.primitive("multiply", v, v)])])[0]
        twice = b.emit("apply", (), [square, *b.emit("apply", (), [square, x])])
        block, _ = to_block([x], twice, b.scopes[0].statements)
    assert az.cost(block).symbolic.numbers == (2, 0, 0, 4)


def power(x: az.f64, n: az.i64) -> az.f64:
    @az.fix
    def go(go: Any, k: az.i64) -> az.f64:
        return az.cond(k == 0, lambda: 1.0, lambda: x * go(k - 1))

    result: az.Expr = go(n)
    return result


def leaves(depth: az.i64) -> az.f64:
    """The leaves of a full binary tree, which are counted by fork and join."""

    @az.fix
    def go(go: Any, k: az.i64) -> az.f64:
        def both() -> Any:
            left, right = az.par(lambda: go(k - 1), lambda: go(k - 1))
            return left + right

        return az.cond(k == 0, lambda: 1.0, both)

    count: az.Expr = go(depth)
    return count


@pytest.mark.unguarded
def test_recursion_is_counted_by_running() -> None:
    counted = az.cost(az.program(power))
    for n in (0, 1, 10, 3000):
        # a comparison a call; a subtraction and a product, where it calls again
        assert counted(2.0, n) == Cost(operations=1 + 3 * n, span=2 + 4 * n)
    with pytest.raises(
        Unsupported, match=r"cost of a recursive function depends on .*az.cost\(f\)\(\*arguments\).*test_"
    ):
        str(counted)


def test_branches_that_run_side_by_side() -> None:
    counted = az.cost(az.program(leaves))
    for depth in range(6):
        cost = counted(depth)
        assert cost.operations == 1 + 4 * (2**depth - 1) and cost.span == 2 + 5 * depth


def test_terms_are_counted_by_symbols_only() -> None:
    counted = az.cost(az.program(kmeans).at().term)
    assert Amount.of(counted.operations).names() == {"d", "k", "n"}
    with pytest.raises(TypeError, match="a term has no arguments to convert"):
        counted(numbers(3))


def test_maxima_of_what_may_be_negative_stay() -> None:
    assert str(Amount.of(Dim.atom(Compound("max", Dim.of(0), INDEX))).named({0: "k"})) == "max(0, k)"


def test_an_annotated_function_is_counted_as_its_program() -> None:
    def total(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(x)

    assert str(az.cost(total)) == str(az.cost(az.program(total)))
