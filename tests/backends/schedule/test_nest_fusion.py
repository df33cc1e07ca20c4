"""Neighbouring nests are one, on both backends, and temporaries between them are not stored."""

from typing import Any

import numpy as np
import pytest
from load import benchmark

import adze as az

pytestmark = pytest.mark.unguarded

Vector = az.Array[az.f64, "n"]


def loops_of(program: Any, **schedule: Any) -> str:
    return str(az.compile(program, schedule=schedule).loops)


def nests(text: str) -> int:
    return text.count("lanes ")


@az.program
def neighbours(x: Vector, y: Vector) -> Any:
    return x + y, x * y, x - 2 * y


@az.program
def chain(x: Vector, m: az.i64) -> Any:
    """A state that is a sum of what two others are made of."""

    def step(i: az.Expr, state: Any) -> Any:
        a, b = state
        return a + b, az.exp(-(a * b))

    return az.fori_loop(0, m, step, (x, x))


@az.program
def shifted(x: Vector) -> Any:
    y = az.exp(x) + 1
    return y, az.generate(x.shape[0], lambda i: az.cond(i > 0, lambda: y[i - 1], lambda: 0.0))


@az.program
def matrices(x: az.Array[az.f64, "n m"], y: az.Array[az.f64, "m n"]) -> Any:
    return x + 1, x * x, y + 2


@az.program
def scanned(x: Vector, c: az.Array[az.f64, "m"]) -> Any:
    """A scan for each number, and what is made of it in order, once as it comes and once from its end."""

    def sums(v: az.Expr) -> Any:
        powers = az.cumprod(az.map(lambda d: v + d, c))
        return c @ powers, c @ powers[::-1], powers

    return az.map(sums, x)


@pytest.mark.parametrize("n", [0, 1, 7, 33, 5000])
@pytest.mark.parametrize("program", [neighbours, chain, shifted, matrices, scanned], ids=lambda program: program.name)
def test_values(program: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    arguments: dict[str, tuple[Any, ...]] = {
        "neighbours": (rng.random(n), rng.random(n)),
        "chain": (rng.random(n), 3),
        "shifted": (rng.random(n),),
        "matrices": (rng.random((n, 5)), rng.random((5, n))),
        "scanned": (rng.random(n), rng.random(n % 6)),
    }
    given = arguments[program.name]
    together, apart = COMPILED[program.name]
    for a, b, expected in zip(together(*given), apart(*given), az.evaluate(program)(*given), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, expected, rtol=1e-14)


COMPILED = {
    program.name: (az.compile(program), az.compile(program, schedule={"fuse": False}))
    for program in (neighbours, chain, shifted, matrices, scanned)
}


def test_nests_of_one_extent_are_one() -> None:
    assert nests(loops_of(neighbours)) == 1
    assert nests(loops_of(matrices)) == 2  # the third is of other extents
    assert nests(loops_of(matrices, fuse=False)) == 3


def test_a_read_of_another_iteration_keeps_nests_apart() -> None:
    assert nests(loops_of(shifted)) == 2


def test_a_temporary_between_nests_is_not_stored() -> None:
    @az.program
    def gradient(x: Vector) -> Any:
        return az.grad(lambda x: az.sum(az.exp(x) * az.sin(x) * az.exp(x)))(x)

    x = np.linspace(-1, 1, 100)
    expected = np.exp(2 * x) * (2 * np.sin(x) + np.cos(x))
    np.testing.assert_allclose(az.compile(gradient)(x), expected, rtol=1e-14)
    assert "temporary" not in loops_of(gradient)


def test_a_scan_is_summed_while_it_is_made() -> None:
    @az.program
    def polynomials(x: Vector, c: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda v: c @ az.cumprod(az.map(lambda _: v, c)), x)

    x, c = np.linspace(-1, 1, 100), np.array([2.0, -1.0, 3.0])
    np.testing.assert_allclose(az.compile(polynomials)(x, c), x * np.polyval(c[::-1], x), rtol=1e-13)
    assert "temporary" not in loops_of(polynomials)
    assert loops_of(polynomials).count("for ") == 1


def test_a_scan_that_is_read_from_its_end_is_made_before() -> None:
    @az.program
    def reversed_sums(x: Vector, c: az.Array[az.f64, "m"]) -> Any:
        return az.map(lambda v: c @ az.cumprod(az.map(lambda _: v, c))[::-1], x)

    x, c = np.linspace(-1, 1, 100), np.array([2.0, -1.0, 3.0])
    np.testing.assert_allclose(az.compile(reversed_sums)(x, c), x * np.polyval(c, x), rtol=1e-13)
    assert loops_of(reversed_sums, memory_order=False).count("for ") == 2


def test_what_a_total_was_before_it_changed_is_not_what_it_is_afterwards() -> None:
    """Fused nests read totals again and again, and each time they are others."""

    @az.program
    def folded(a: Vector, b: Vector) -> az.f64:
        def one(c: az.Expr) -> az.Expr:
            return az.reduce(lambda x, y: x + y + c * x * y, 0.0, a)

        return az.sum(az.map(one, b))

    a, b = np.array([0.5, -0.75, 2.0, 0.25]), np.array([1.0, 0.5, -0.25, 2.0])
    by_a, by_b = az.compile(az.grad(folded, argnums=(0, 1)))(a, b)
    products = np.prod(1 + np.outer(b, a), 1)
    np.testing.assert_allclose(by_a, (products[:, None] / (1 + np.outer(b, a))).sum(0), rtol=1e-13)
    slopes = products * (a / (1 + np.outer(b, a))).sum(1)
    np.testing.assert_allclose(by_b, (slopes * b - (products - 1)) / b**2, rtol=1e-13)


def test_zeros_of_different_signs_stay_apart() -> None:
    @az.program
    def reciprocals(x: Vector) -> Any:
        def element(zero: float) -> Any:
            def at(i: az.Expr) -> Any:
                product = i.astype(az.f64) * zero
                return 1 / product + product

            return at

        n = x.shape[0]
        return az.generate(n, element(0.0)), az.generate(n, element(-0.0))

    positive, negative = az.compile(reciprocals)(np.ones(5))
    np.testing.assert_array_equal(positive, np.full(5, np.inf))
    np.testing.assert_array_equal(negative, np.full(5, -np.inf))
    assert nests(loops_of(reciprocals)) == 1


@az.program
def picked(x: Vector, k: az.Array[az.i64, "m"]) -> Any:
    return x[k]


@az.program
def picked_and_bounded(x: Vector, k: az.Array[az.i64, "m"]) -> Any:
    """Both need the indices, and only one of them a requirement."""
    return x[k], az.map(lambda i: az.maximum(i, 0), k)


@az.program
def picked_from_both(x: Vector, y: Vector, k: az.Array[az.i64, "m"]) -> Any:
    return az.map(lambda i: x[i] + y[az.size(y) - 1 - i], k)


@pytest.mark.parametrize("m", [0, 1, 33, 4096, 9001])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_required_is_tested_while_it_is_used(m: int, threads: int) -> None:
    assert loops_of(picked).count("lanes ") == 1
    assert loops_of(picked, fuse=False).count("lanes ") == 2
    rng = np.random.default_rng(m)
    x, y, k = rng.normal(size=700), rng.normal(size=700), rng.integers(0, 700, m)
    for program, arguments, wanted in (
        (picked, (x,), x[k]),
        (picked_and_bounded, (x,), (x[k], k)),
        (picked_from_both, (x, y), x[k] + y[699 - k]),
    ):
        compiled = az.compile(program, threads=threads)
        found = compiled(*arguments, k)
        for a, b in zip(
            found if isinstance(found, tuple) else (found,),
            wanted if isinstance(wanted, tuple) else (wanted,),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
        for place in {0, m // 2, m - 1} if m else ():
            for outside in (-1, 700, 2**62):
                wrong = k.copy()
                wrong[place] = outside
                with pytest.raises(IndexError, match=f"index {outside} "):
                    compiled(*arguments, wrong)


def test_what_is_required_of_an_array_is_tested_before_it_is_overwritten() -> None:
    @az.program
    def followed(x: Vector, k: az.Array[az.i64, "n"], steps: az.i64) -> Any:
        return az.fori_loop(0, steps, lambda _, k: az.map(lambda i: k[i], k), k), x

    k = np.random.default_rng(0).permutation(9000)
    wanted = k
    for steps in range(3):
        np.testing.assert_array_equal(az.compile(followed)(np.zeros(9000), k, steps)[0], wanted)
        wanted = wanted[wanted]
    k[8999] = 9000
    with pytest.raises(IndexError, match="index 9000 "):
        az.compile(followed)(np.zeros(9000), k, 1)


# Roles are kept


@az.program
def layer(x: az.Array[az.f64, "n k"], w: az.Array[az.f64, "k m"], b: az.Array[az.f64, "m"]) -> Any:
    """A product, and what is made of its elements."""
    z = x @ w + b
    return z, az.maximum(z, 0.0)


def test_what_is_made_of_a_product_is_done_behind_its_sum() -> None:
    compiled, apart = az.compile(layer), az.compile(layer, schedule={"fuse": False})
    assert compiled.nests.count("nest ") == 1 and apart.nests.count("nest ") == 2
    assert "tiles of" in compiled.schedule
    rng = np.random.default_rng(1)
    for n, k, m in [(0, 3, 2), (1, 1, 1), (7, 0, 5), (65, 130, 33), (200, 300, 100)]:
        x, w, b = rng.normal(size=(n, k)), rng.normal(size=(k, m)), rng.normal(size=m)
        found, once = compiled(x, w, b), apart(x, w, b)
        for a, other, expected in zip(found, once, (x @ w + b, np.maximum(x @ w + b, 0)), strict=True):
            np.testing.assert_array_equal(a, other)
            np.testing.assert_allclose(a, expected, rtol=1e-12, atol=1e-12)


def test_nests_whose_lanes_would_turn_stay_apart() -> None:
    @az.program
    def transposed(x: az.Array[az.f64, "n m"]) -> Any:
        n, m = x.shape
        return az.map(lambda row: az.map(az.exp, row), x), az.generate((m, n), lambda j, i: 2 * x[i, j])

    compiled = az.compile(transposed)
    assert compiled.nests.count("nest ") == 2
    x = np.random.default_rng(2).normal(size=(37, 53))
    assert_close(compiled(x), (np.exp(x), 2 * x.T))


def test_axes_are_matched_by_what_they_index() -> None:
    """Both tables run along the points; the second one has its axes the other way round."""

    @az.program
    def tables(x: az.Array[az.f64, "n n"]) -> Any:
        n = x.shape[0]
        first = az.generate((n, n), lambda i, j: az.exp(x[i, j]) * az.sin(x[i, j]))
        return first, az.sum(az.generate((n, n), lambda j, i: first[i, j] * (1 + first[i, j])), axis=0)

    x = np.random.default_rng(3).normal(size=(41, 41))
    first = np.exp(x) * np.sin(x)
    assert_close(az.compile(tables)(x), (first, (first * (1 + first)).T.sum(0)))


def test_points_that_add_to_one_place_stay_apart_from_others() -> None:
    @az.program
    def counted(x: Vector, k: az.Array[az.i64, "n"]) -> Any:
        sums = az.permute(lambda a, b: a + b, az.zeros(4), lambda i: k[i], x)
        return sums, x * 2.0, x + 1.0

    rng = np.random.default_rng(4)
    x, k = rng.integers(-4, 5, size=9000).astype(float), rng.integers(0, 4, 9000)
    for threads in (1, 2):
        sums = np.bincount(k, x, 4)
        assert_close(az.compile(counted, threads=threads)(x, k), (sums, x * 2, x + 1))


def test_a_loop_that_does_nothing() -> None:
    """What only requires something inside of a checkpoint, and whose requirements hold, leaves such loops."""

    @az.program
    def unused(x: Vector, a: az.Array[az.f64, "n m"]) -> Any:
        n, m = x.shape[0], a.shape[1]
        az.checkpoint(lambda _: az.generate((n, m), lambda i, j: a[(j + 1) % n, m - 1 - j]))(a)
        return az.ones((m, m, m)), x * 2.0

    for n, m in ((0, 0), (3, 2)):
        assert_close(az.compile(unused)(np.ones(n), np.ones((n, m))), (np.ones((m, m, m)), np.full(n, 2.0)))


def test_updates_of_one_array_are_no_reason_to_fuse() -> None:
    """What is read of an array before it changes is read before."""

    @az.program
    def updated(x: Vector, k: az.Array[az.i64, "n"]) -> Any:
        y = x * 2.0
        z = az.map(lambda i: y[i], k)
        return az.scatter(y, k, x), z

    rng = np.random.default_rng(5)
    x, k = rng.normal(size=5000), rng.permutation(5000)
    scattered = x * 2
    scattered[k] = x
    assert_close(az.compile(updated)(x, k), (scattered, (x * 2)[k]))


# Nests that combine


@az.program
def statistics(x: Vector) -> Any:
    """An array, what is combined of it, and of what it is made from."""
    y = az.exp(-x)
    return y, az.sum(y), az.max(x) + 1.0, az.sum(x * x), az.min(y)


@az.program
def variance(x: Vector) -> Any:
    """The second sum needs the first one."""
    mean = az.sum(x) / x.shape[0]
    return az.sum((x - mean) ** 2), az.max(x)


@az.program
def single(x: az.Array[az.f32, "n"]) -> Any:
    """A sum of f32 has parts of its own, which a maximum has not."""
    return az.sum(x), az.max(x), az.sum(x * x), x * 2


@az.program
def whole(k: az.Array[az.i64, "n"]) -> Any:
    return az.sum(k), az.max(k), az.map(lambda i: i + 1, k)


COMBINED = [statistics, variance, single, whole]


@pytest.mark.parametrize("n", [0, 1, 31, 33, 4096, 4097, 70_001])
@pytest.mark.parametrize("program", COMBINED, ids=lambda program: program.name)
def test_what_is_combined_is_the_same_alone_and_beside_others(program: Any, n: int) -> None:
    """The same bits with nests fused and apart, and on any number of threads; the values of evaluate."""
    type = {"single": np.float32, "whole": np.int64}.get(program.name, np.float64)
    x = (np.random.default_rng(n).normal(size=n) * 3).astype(type)
    fused, apart = COMPILED_COMBINED[program.name]
    wanted, expected = apart(x), az.evaluate(program)(x)
    for compiled in fused:
        for a, b, c in zip(compiled(x), wanted, expected, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=1e-4 if type is np.float32 else 1e-12)


COMPILED_COMBINED = {
    program.name: (
        [az.compile(program, threads=threads) for threads in (1, 2, 5)],
        az.compile(program, schedule={"fuse": False}),
    )
    for program in COMBINED
}


def test_one_nest_stores_and_combines() -> None:
    text = az.compile(statistics).nests
    assert text.count("nest ") == 1 and text.count(" combining ") == 4 and text.count("exp(") == 1
    assert az.compile(variance).nests.count("nest ") == 2
    assert az.compile(single).nests.count("nest ") == 2
    assert az.compile(whole).nests.count("nest ") == 1


@pytest.mark.rest
def test_no_more_is_combined_at_once_than_registers_hold() -> None:
    @az.program
    def moments(x: Vector) -> Any:
        return tuple([az.sum(x**k) for k in range(1, 40)])

    x = np.random.default_rng(8).uniform(0.5, 1.0, size=5000)
    assert 1 < az.compile(moments).nests.count("nest ") < 39
    assert_close(az.compile(moments)(x), [np.sum(x**k) for k in range(1, 40)])


def test_bindings_between_nests_stay_before_or_follow() -> None:
    @az.program
    def scaled(x: Vector, y: Vector) -> Any:
        total = az.sum(x)
        inverse = 1.0 / total
        shift = y[0] * 2.0
        return az.map(lambda v: v + shift, x), inverse * 3.0, az.max(x)

    x, y = np.arange(1.0, 5001.0), np.arange(5.0, 5005.0)
    compiled = az.compile(scaled)
    assert compiled.nests.count("nest ") == 1
    assert_close(compiled(x, y), (x + 10, 3 / x.sum(), x.max()))
    assert_close(az.compile(scaled, backend="opencl")(x, y), (x + 10, 3 / x.sum(), x.max()))


@pytest.mark.rest
def test_nests_move_past_what_has_nothing_to_do_with_them() -> None:
    @az.program
    def apart(x: Vector, y: az.Array[az.f64, "m"]) -> Any:
        first = az.sum(x)
        kept = az.filter(lambda v: v > 1.0, y)
        return first, az.sum(kept), az.max(x), kept, x - 1.0, az.min(y)

    x, y = np.linspace(0, 1, 700), np.linspace(0, 900, 1300)
    kept = y[y > 1]
    for backend in ("llvm", "opencl"):
        compiled = az.compile(apart, backend=backend)
        assert_close(compiled(x, y), (x.sum(), kept.sum(), x.max(), kept, x - 1, y.min()))
    [nest] = [line for line in az.compile(apart).nests.splitlines() if line.count(" combining ") == 2]
    assert "by maximum" in nest and "by add" in nest


def assert_close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)


# On a device


@pytest.mark.rest
@pytest.mark.parametrize("program", [neighbours, layer, matrices, picked_and_bounded, statistics])
def test_fused_nests_are_one_kernel(program: Any) -> None:
    rng = np.random.default_rng(6)
    arguments: dict[str, tuple[Any, ...]] = {
        "neighbours": (rng.random(700), rng.random(700)),
        "layer": (rng.random((70, 40)), rng.random((40, 50)), rng.random(50)),
        "matrices": (rng.random((30, 5)), rng.random((5, 30))),
        "picked_and_bounded": (rng.random(700), rng.integers(0, 700, 300)),
        "statistics": (rng.random(70_000),),
    }
    given = arguments[program.name]
    together = az.compile(program, backend="opencl")
    apart = az.compile(program, backend="opencl", schedule={"fuse": False})
    for a, b, expected in zip(together(*given), apart(*given), az.evaluate(program)(*given), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        np.testing.assert_allclose(np.asarray(a), expected, rtol=1e-12)
    assert together.loops.count("kernel ") < apart.loops.count("kernel ")


def test_a_kernel_that_requires_something_tells_the_first_failure() -> None:
    compiled = az.compile(picked_and_bounded, backend="opencl")
    x, k = np.ones(700), np.zeros(300, np.int64)
    k[[17, 250]] = 700, -3
    with pytest.raises(IndexError, match=r"index (700|-3) "):
        compiled(x, k)


@pytest.mark.rest
def test_what_unrolled_nests_read_is_not_stored_beside_requirements() -> None:
    """The Jacobians of bundle adjustment: straight-line code keeps the weights and angles of an observation."""
    assert "temporary" not in loops_of(benchmark("ba").jacobian)
