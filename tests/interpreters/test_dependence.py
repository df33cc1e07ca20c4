"""The dependence of results on inputs, against dense Jacobians of all test programs."""

import numpy as np
import pytest
from programs import CASES, Case

import adze as az
from adze.core import trees
from adze.core.types import is_float
from adze.interpreters.sparsity import Found, dependence
from adze.interpreters.sparsity.sets import Sets


def found(program: az.Program, *arguments: object, simplified: bool = True) -> Found:
    instance = program.instance_for(program.bind(arguments, {}))
    leaves, sizes = instance.signature.convert(program.leaves(program.bind(arguments, {})))
    return dependence(az.simplify(instance.term) if simplified else instance.term, leaves, sizes)


def dense(program: az.Program, arguments: tuple[object, ...]) -> np.ndarray | None:
    """The Jacobian by all floating parameters, a row for each floating number of the result; None without any."""
    instance = program.instance_for(program.bind(arguments, {}))
    shapes = zip(program.dynamic, instance.inputs.inner, strict=True)
    types = iter(instance.types)
    floating = [p for p, shape in shapes if any([is_float(next(types)) for _ in range(shape.leaves)])]
    if not floating or not any(is_float(type) for type in instance.term.types):
        return None
    argnums = tuple([program.parameters.index(p) for p in floating])
    blocks = trees.flatten(az.evaluate(az.jacobian(program, argnums, mode="forward"))(*arguments))[0]
    leaves = instance.leaves(program.bind(arguments, {}))
    sizes = [np.size(leaf) for leaf, type in zip(leaves, instance.types, strict=True) if is_float(type)]
    rows = [blocks[k : k + len(sizes)] for k in range(0, len(blocks), len(sizes))]
    count = [np.asarray(row[0]).size // max(sizes[0], 1) for row in rows]
    if 0 in sizes:
        return np.zeros((0, 0))
    return np.concatenate(
        [
            np.concatenate([np.reshape(x, (n, size)) for x, size in zip(row, sizes, strict=True)], axis=1)
            for row, n in zip(rows, count, strict=True)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_covers_the_jacobian(case: Case) -> None:
    for arguments in case.arguments:
        jacobian = dense(case.program, arguments)
        if jacobian is None:
            continue
        for simplified in (True, False):
            pattern = found(case.program, *arguments, simplified=simplified).pattern
            if jacobian.size:
                assert pattern.shape == jacobian.shape
                assert not np.any((jacobian != 0) & ~pattern.toarray())


@az.program
def branches(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    return az.generate(
        x.shape[0], lambda i: az.cond(i > 0, lambda: az.where(x[i] > 0, x[i - 1], az.floor(x[i])), lambda: 2 * x[i])
    )


def test_a_floating_test_unites_branches_and_an_integer_test_chooses() -> None:
    at = found(branches, np.array([1.0, -1.0, 1.0]))
    np.testing.assert_array_equal(at.pattern.toarray(), [[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert at.holds_everywhere


def test_what_goes_through_integers_holds_here_only() -> None:
    @az.program
    def sorted_(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return az.sort(x)

    at = found(sorted_, np.array([3.0, 1.0, 2.0]))
    np.testing.assert_array_equal(at.pattern.toarray(), [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert not at.holds_everywhere


@az.program
def halved(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    def body(y: az.Expr) -> az.Expr:
        return az.concatenate([y[1:], y[:1]]) / 2

    return az.while_loop(lambda y: az.max(y) > 1, body, x)


@pytest.mark.parametrize(("size", "trips"), [(1.0, 0), (2.0, 1), (4.0, 2)])
def test_a_while_loop_has_the_trips_of_the_point(size: float, trips: int) -> None:
    at = found(halved, np.full(4, size))
    np.testing.assert_array_equal(at.pattern.toarray(), np.roll(np.eye(4), trips, axis=1))
    assert not at.holds_everywhere


@az.custom_vjp
def through(x: az.Expr, y: az.Expr) -> az.Expr:
    return az.floor(x) + az.floor(y[::-1])


@through.defvjp
def _through(primals: tuple[az.Expr, ...], cotangent: az.Expr) -> tuple[az.Expr, ...]:
    return cotangent, cotangent[::-1]


def test_given_derivatives_say_what_depends() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return through(x, 2 * x)

    pattern = np.eye(3) + np.eye(3)[::-1] > 0
    np.testing.assert_array_equal(found(f, np.ones(3)).pattern.toarray(), pattern)

    @az.program
    def rows(x: az.Array[az.f64, "m n"]) -> az.Array[az.f64, "m n"]:
        return az.map(lambda row: through(row, row), x)

    np.testing.assert_array_equal(found(rows, np.ones((2, 3))).pattern.toarray(), np.kron(np.eye(2), pattern))


@pytest.mark.parametrize("collide", [False, True], ids=["hashes differ", "all have one hash"])
def test_unions_are_those_of_plain_sets(collide: bool) -> None:
    """Of inputs, and then of what was united, some of it known already."""
    draw, sets = np.random.default_rng(4), Sets(12)
    if collide:
        sets._random[:], sets._mixed = 0, np.zeros(10_000, np.uint64)
    members = {0: set[int](), **{k + 1: {k} for k in range(12)}}
    for _ in range(4):
        groups = draw.choice(np.array(sorted(members)), (30, 3))
        found = sets.united(groups)
        for group, number in zip(groups, found, strict=True):
            wanted = set.union(*[members[k] for k in group.tolist()])
            assert set(sets.matrix(np.array([number])).indices.tolist()) == wanted
            members[int(number)] = wanted
        if not collide:
            assert len({frozenset(each) for each in members.values()}) == len(members)


def test_layers_that_repeat_or_are_the_same_are_united_as_all_are() -> None:
    draw, sets = np.random.default_rng(5), Sets(12)
    for _ in range(20):
        table, row, column = [draw.integers(0, 13, shape).astype(np.int32) for shape in ((3, 4), (4,), (3, 1))]
        layers = [table, row, column, table.copy(), table[[1, 2, 0]], np.broadcast_to(row, (3, 4))]
        layers = [layers[k] for k in draw.permutation(6)[: draw.integers(2, 7)]]
        found = sets.joined(layers)
        full = np.broadcast_arrays(*layers)
        assert found.shape == full[0].shape
        for place, number in np.ndenumerate(found):
            wanted = {int(layer[place]) - 1 for layer in full} - {-1}
            assert set(sets.matrix(np.array([number])).indices.tolist()) == wanted
