"""Nests for targets whose threads come in groups: grids, groups that share a reduction, tiles, and accumulators."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agreement import exact
from plain_loops import loops_of, lowered
from programs import CASES, Case, sampled
from test_compile import assert_same
from test_derivatives import DIFFERENTIABLE, SINGLE, Point, assert_close, leaves

import adze as az
from adze.backends import ir
from adze.backends.target import Target

GROUPS = Target(
    register_bytes=8,
    registers=32,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    parallel=True,
    multiply_add=True,
    group=4,
    shared_bytes=32 << 10,
    threads=32,
    atomics=True,
)
ALONE = replace(GROUPS, atomics=False)
RANDOM = np.random.default_rng(6)


def quarters(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers whose sums and products are exact in any order."""
    return RANDOM.integers(-8, 9, shape) / 4


def agrees(program: Any, *arguments: Any, target: Target = GROUPS, **options: Any) -> None:
    """A program of exact arithmetic gives what evaluate gives, and no two threads meet."""
    exact(lowered(program, target, arguments, **options), az.evaluate(program)(*arguments))


def loops_in(block: Sequence[ir.Statement]) -> list[ir.For]:
    return [statement for statement in ir.walk(tuple(block)) if isinstance(statement, ir.For)]


def kinds(function: ir.Function) -> list[str]:
    return [loop.kind for loop in loops_in(function.body)]


def forms(function: ir.Function) -> list[Sequence[ir.Statement]]:
    """The ways to run a function whose body is one choice after the other."""
    found: list[Sequence[ir.Statement]] = []
    block: Sequence[ir.Statement] = function.body
    while len(block) == 1 and isinstance(block[0], ir.If):
        found.append(block[0].then)
        block = block[0].orelse
    return [*found, block]


# Grids


@az.program
def elementwise(x: az.Array[az.f64, "n"]) -> Any:
    return x * x + 1


@az.program
def across(a: az.Array[az.f64, "n m"], x: az.Array[az.f64, "m"]) -> Any:
    return az.generate((az.size(a, 1), az.size(a)), lambda j, i: a[i, j] * x[j])


@az.program
def cube(a: az.Array[az.f64, "n m k"]) -> Any:
    return az.transpose(a, (2, 0, 1)) + 1, az.map(az.transpose, a)


@az.program
def outer(x: az.Array[az.i64, "n"], y: az.Array[az.i64, "m"]) -> Any:
    return az.generate((az.size(x), az.size(y), 2, 3), lambda i, j, k, l: x[i] * y[j] + k - l)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("m", [0, 1, 3])
def test_maps_over_one_to_four_dimensions(n: int, m: int) -> None:
    agrees(elementwise, quarters(n))
    agrees(across, quarters(n, m), quarters(m))
    agrees(cube, quarters(n, m, 2))
    agrees(outer, np.arange(n), np.arange(m))


def test_all_loops_of_a_nest_are_one_grid() -> None:
    function = loops_of(outer, GROUPS, (np.arange(2), np.arange(3)))
    assert kinds(function) == ["parallel"] * 4
    assert len(function.body) == 1


def test_the_last_loop_is_the_one_that_moves_through_memory() -> None:
    function = loops_of(across, GROUPS, (quarters(2, 3), quarters(3)))
    (store,) = [s for s in ir.walk(function.body) if isinstance(s, ir.Store)]
    assert loops_in(function.body)[-1].variable == str(getattr(store.indices[-1], "name", ""))

    @az.program
    def passing(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "n m"]) -> Any:
        turned = az.generate((az.size(a, 1), az.size(a)), lambda j, i: az.sin(a[i, j]) + b[i, j])
        return az.generate((az.size(a), az.size(a, 1)), lambda i, j: turned[j, i] + turned[j // 2, i])

    body = loops_of(passing, GROUPS, (quarters(2, 3), quarters(2, 3))).body
    first = next(
        s for s in body if isinstance(s, ir.For) and any(isinstance(inner, ir.Store) for inner in ir.walk((s,)))
    )
    (store,) = [s for s in ir.walk((first,)) if isinstance(s, ir.Store)]
    (load, _) = [
        p for s in ir.walk((first,)) for e in ir.expressions_of(s) for p in ir.inside(e) if isinstance(p, ir.Load)
    ]
    assert store.indices == load.indices  # the temporary has the layout of what it is made from
    arguments = (RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3)))
    assert_same(lowered(passing, GROUPS, arguments), az.evaluate(passing)(*arguments))


@az.program
def rows_and_branches(a: az.Array[az.f64, "n m"], p: az.Array[az.i64, "n"]) -> Any:
    """Bodies with loops that end differently, branches, temporaries and requirements."""

    def steps(i: Any) -> Any:
        return az.while_loop(lambda s: s[1] < 20, lambda s: (s[0] + 1, s[1] + s[0]), (1, i))[0]

    def row(r: Any, i: Any) -> Any:
        doubled = az.fori_loop(0, 3, lambda _, u: az.generate(az.size(u), lambda j: u[j] + u[az.size(u) - 1 - j]), r)
        return az.cond(i % 2 == 0, lambda: doubled, lambda: r + 1)

    return az.map(steps, p), az.map(row, a, p), az.map(lambda i: a[i % 3, 0], p)


def test_bodies_of_any_kind() -> None:
    agrees(rows_and_branches, quarters(3, 4), np.array([2, 5, 1]))
    function = loops_of(rows_and_branches, GROUPS, (quarters(3, 4), np.array([2, 5, 1])))
    assert set(kinds(function)) == {"parallel", "sequential"}


def test_a_failing_requirement_is_reported() -> None:
    with pytest.raises(IndexError):
        lowered(gathered, GROUPS, (quarters(3), np.array([0, 3, 1]), quarters(3)))


@az.program
def repeated(x: az.Array[az.f64, "m"], n: az.i64) -> Any:
    return az.generate(n, lambda i: x + 1)


def test_a_nest_that_is_all_of_the_body_of_another_belongs_to_its_grid() -> None:
    agrees(repeated, quarters(3), np.int64(4))
    function = loops_of(repeated, GROUPS, (quarters(3), np.int64(4)))
    assert "sequential" not in kinds(function)


# A group an element


@az.program
def row_sums(a: az.Array[az.f64, "n m"]) -> Any:
    return az.sum(a, axis=1) * 2


@az.program
def column_sums(a: az.Array[az.f64, "n m"]) -> Any:
    return az.sum(a, axis=0)


@az.program
def block_sums(a: az.Array[az.f64, "n m k"]) -> Any:
    return az.sum(a, axis=(1, 2)), az.max(a, axis=(0, 1))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (5, 7), (5, 8), (2, 21), (40, 9)])
def test_sums_of_rows_and_columns(shape: tuple[int, int]) -> None:
    agrees(row_sums, quarters(*shape))
    agrees(column_sums, quarters(*shape))


@pytest.mark.parametrize("shape", [(3, 2, 9), (2, 9, 2), (1, 1, 1), (3, 0, 2)])
def test_sums_over_two_axes(shape: tuple[int, int, int]) -> None:
    agrees(block_sums, quarters(*shape))


def test_long_reductions_are_shared_by_a_group() -> None:
    shared, alone = forms(loops_of(row_sums, GROUPS, (quarters(2, 3),)))
    assert [loop.kind for loop in loops_in(shared)] == ["parallel", "lanes"]
    assert [loop.kind for loop in loops_in(alone)] == ["parallel", "sequential"]


@az.program
def nearest(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "k"]) -> Any:
    """Sums of what other loops compute."""
    return az.map(lambda row: az.sum(az.map(lambda v: az.min(az.map(lambda c: (v - c) ** 2, b)), row)) + b[0], a)


def test_elements_of_a_shared_reduction_may_have_loops() -> None:
    agrees(nearest, quarters(3, 9), quarters(3))
    agrees(nearest, quarters(3, 2), quarters(3))
    function = loops_of(nearest, GROUPS, (quarters(3, 9), quarters(3)))
    assert "lanes" in kinds(function)


@pytest.mark.parametrize(("n", "m", "group"), [(8, 7, False), (8, 8, True), (1000, 8, True)])
def test_known_sizes_decide_at_once(n: int, m: int, group: bool) -> None:
    @az.program
    def sums(a: az.Array[az.f64, n, m]) -> Any:
        return az.sum(a, axis=1)

    assert ("lanes" in kinds(loops_of(sums, GROUPS, (quarters(n, m),)))) == group

    @az.program
    def columns(a: az.Array[az.f64, m, n]) -> Any:
        return az.sum(a, axis=0)

    # where threads read side by side anyway, a group an element is for few elements
    assert ("lanes" in kinds(loops_of(columns, GROUPS, (quarters(m, n),)))) == (group and n < GROUPS.threads)


# Matrix products


def product(scalar: Any) -> az.Program:
    @az.program
    def f(a: az.Array[scalar, "n k"], b: az.Array[scalar, "k m"]) -> Any:
        return a @ b

    return f


@az.program
def turned(a: az.Array[az.f64, "k n"], b: az.Array[az.f64, "m k"]) -> Any:
    return az.transpose(a) @ az.transpose(b)


@az.program
def gram(a: az.Array[az.f64, "n k"]) -> Any:
    return az.transpose(a) @ a


@az.program
def batched(a: az.Array[az.f64, "b n k"], b: az.Array[az.f64, "b k m"]) -> Any:
    return az.map(lambda x, y: x @ y, a, b)


@az.program
def layer(a: az.Array[az.f64, "n k"], b: az.Array[az.f64, "k m"], c: az.Array[az.f64, "m"]) -> Any:
    """What is around a sum, and operands that are computed."""

    def place(i: Any, j: Any) -> Any:
        total = az.sum(az.generate(az.size(b), lambda k: (a[i, k] * 2 + 1) * b[k, j]))
        return az.maximum(total * 0.5 + c[j], 0)

    return az.generate((az.size(a), az.size(b, 1)), place)


SIZES = [(1, 1, 1), (4, 16, 4), (7, 16, 9), (8, 33, 17), (3, 40, 40), (9, 0, 9), (0, 20, 8)]


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
def test_products(n: int, k: int, m: int) -> None:
    a, b = quarters(n, k), quarters(k, m)
    agrees(product(az.f64), a, b)
    agrees(turned, a.T.copy(), b.T.copy())
    agrees(gram, quarters(n, k).T.copy())
    agrees(layer, a, b, quarters(m))
    agrees(batched, quarters(2, n, k), quarters(2, k, m))
    agrees(product(az.f32), a.astype(np.float32), b.astype(np.float32))
    agrees(product(az.i64), (4 * a).astype(np.int64), (4 * b).astype(np.int64))


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (product(az.f64), [(1, 1), (1, 1)]),
        (turned, [(1, 1), (1, 1)]),
        (gram, [(1, 1)]),
        (layer, [(1, 1), (1, 1), (1,)]),
        (batched, [(1, 1, 1), (1, 1, 1)]),
    ],
    ids=["plain", "turned", "gram", "layer", "batched"],
)
def test_products_are_tiled(program: Any, shapes: Any) -> None:
    arguments = [quarters(*shape) for shape in shapes]
    tiled, *others = forms(loops_of(program, GROUPS, arguments))
    assert any(isinstance(statement, ir.Barrier) for statement in ir.walk(tuple(tiled)))
    assert not any(isinstance(statement, ir.Barrier) for other in others for statement in ir.walk(tuple(other)))


@pytest.mark.unguarded
@pytest.mark.parametrize("group", [1, 2, 8, 64])
def test_tiles_of_other_groups(group: int) -> None:
    target = replace(GROUPS, group=group)
    a, b = quarters(17, 17), quarters(17, 18)
    agrees(product(az.f64), a, b, target=target)
    assert any(isinstance(s, ir.Barrier) for s in ir.walk(loops_of(product(az.f64), target, (a, b)).body))


def test_a_tile_adds_in_the_order_of_the_sum() -> None:
    plain = replace(GROUPS, shared_bytes=0, threads=1)  # no room for tiles, no reason for groups
    arguments = (RANDOM.normal(size=(9, 37)), RANDOM.normal(size=(37, 11)))
    f = product(az.f64)
    assert not any(isinstance(s, ir.Barrier) for s in ir.walk(loops_of(f, plain, arguments).body))
    assert lowered(f, GROUPS, arguments).tobytes() == lowered(f, plain, arguments).tobytes()


def test_infinities_stay_in_their_rows() -> None:
    a, b = quarters(9, 20), quarters(20, 9)
    a[8, 3], b[19, 8] = np.inf, np.nan
    agrees(product(az.f64), a, b)


# Accumulators


@az.program
def gathered(x: az.Array[az.f64, "n"], p: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(az.map(lambda i, a: x[i] * x[i] * a, p, w))


@az.program
def gathered_rows(x: az.Array[az.f64, "n k"], p: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> az.f64:
    return az.sum(az.generate((az.size(w), az.size(x, 1)), lambda i, j: x[p[i], j] * x[p[i], 0] * w[i]))


@az.program
def squares(a: az.Array[az.f64, "n k"], x: az.Array[az.f64, "k"]) -> az.f64:
    return az.sum((a @ x) ** 2)


GRADIENTS = [
    (az.grad(gathered), lambda n: (quarters(5), RANDOM.integers(0, 5, n), quarters(n))),
    (az.grad(gathered), lambda n: (quarters(300), RANDOM.integers(0, 300, n), quarters(n))),
    (az.grad(gathered_rows), lambda n: (quarters(5, 2), RANDOM.integers(0, 5, n), quarters(n))),
    (az.grad(gathered_rows), lambda n: (quarters(2, 40), RANDOM.integers(0, 2, n), quarters(n))),
    (az.grad(squares, argnums=(0, 1)), lambda n: (quarters(n, 3), quarters(3))),
]


@pytest.mark.rest
@pytest.mark.unguarded
@pytest.mark.parametrize(("gradient", "draw"), GRADIENTS)
@pytest.mark.parametrize("n", [0, 1, 50])
def test_accumulators(gradient: Any, draw: Any, n: int) -> None:
    arguments = draw(n)
    agrees(gradient, *arguments)
    agrees(gradient, *arguments, deterministic=True)
    agrees(gradient, *arguments, target=ALONE)


def test_updates_are_atomic_unless_the_order_shall_be_the_same() -> None:
    arguments = (quarters(5), np.array([1, 1]), quarters(2))
    for target, deterministic, atomic in [(GROUPS, False, True), (GROUPS, True, False), (ALONE, False, False)]:
        function = loops_of(az.grad(gathered), target, arguments, deterministic=deterministic)
        assert any(isinstance(statement, ir.Update) for statement in ir.walk(function.body)) == atomic


# Scatter


@az.program
def written(x: az.Array[az.f64, "n"], p: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> Any:
    return az.scatter(x, p, w, unique=False)


@az.program
def written_once(x: az.Array[az.f64, "n"], p: az.Array[az.i64, "m"], w: az.Array[az.f64, "m"]) -> Any:
    return az.scatter(x, p, w)


@pytest.mark.parametrize(("n", "m"), [(5, 0), (5, 1), (5, 40), (4000, 3)])
def test_of_several_writes_to_one_place_the_last_wins(n: int, m: int) -> None:
    places = RANDOM.integers(0, n, m)
    for target in (GROUPS, ALONE):
        agrees(written, quarters(n), places, quarters(m), target=target)


def test_writes_to_places_of_their_own() -> None:
    agrees(written_once, quarters(5), np.array([3, 1, 4]), quarters(3))
    function = loops_of(written_once, GROUPS, (quarters(5), np.array([3, 1, 4]), quarters(3)))
    last = function.body[-1]
    assert isinstance(last, ir.For) and last.kind == "parallel"


def test_gradients_of_writes() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"], w: az.Array[az.f64, "m"], p: az.Array[az.i64, "m"]) -> Any:
        return az.sum(az.scatter(x, p, w, unique=False) ** 2)

    agrees(az.grad(f, argnums=(0, 1)), quarters(4), quarters(9), RANDOM.integers(0, 4, 9))


# Everything


@pytest.mark.unguarded
@sampled(CASES)
def test_equals_evaluate(case: Case) -> None:
    for arguments in case.arguments[:2]:
        assert_same(lowered(case.program, GROUPS, arguments), az.evaluate(case.program)(*arguments))


@pytest.mark.unguarded
@pytest.mark.parametrize("case", DIFFERENTIABLE[::8], ids=lambda case: case.name)
@pytest.mark.parametrize("deterministic", [False, True])
def test_cotangents(case: Case, deterministic: bool) -> None:
    point = Point(case)
    program, arguments = az.vjp(case.program), (*point.arguments, point.cotangent)
    got = lowered(program, GROUPS, arguments, deterministic=deterministic)
    wanted = az.evaluate(program)(*arguments)
    assert_close(leaves(got), leaves(wanted), 1e-5 if case.name in SINGLE else 1e-12)
