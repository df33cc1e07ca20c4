"""The schedule: what it may do can be switched off, its decisions can be read, and results stay what they are."""

import re
from typing import Any

import numpy as np
import pytest
from programs import numbers

import adze as az


@az.program
def softmax(x: az.Array[az.f64, "n k"]) -> az.Array[az.f64, "n k"]:
    def one(row: az.Expr) -> Any:
        e = az.exp(row - az.max(row))
        return e / az.sum(e)

    return az.map(one, x)


@az.program
def distances(x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "m d"]) -> az.Array[az.f64, "n m"]:
    return az.map(lambda a: az.map(lambda b: az.sum((a - b) ** 2), y), x)


@pytest.mark.unguarded
@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"distribute": False},
        {"vectorise": False},
        {"pack": False},
        {"jam": False},
        {"strip": 8},
        {"copies": 2},
        {"strip": 1, "copies": 1, "pack": False},
    ],
    ids=str,
)
def test_each_transformation_can_be_switched_off(schedule: dict[str, bool | int]) -> None:
    x, y = numbers(37, 5), numbers(19, 5, seed=1)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(az.compile(softmax, schedule=schedule)(x), e / e.sum(axis=1)[:, None], rtol=1e-14)
    expected = ((x[:, None] - y) ** 2).sum(axis=2)
    np.testing.assert_allclose(az.compile(distances, schedule=schedule)(x, y), expected, rtol=1e-14)


def test_switches_are_seen_in_the_loops() -> None:
    plain = az.compile(distances).schedule
    assert "lanes" in plain and "jam" in plain and "stored" in az.compile(softmax).schedule
    assert "lanes" not in az.compile(distances, schedule={"vectorise": False}).schedule
    assert "jam" not in az.compile(distances, schedule={"jam": False}).schedule
    assert "_packed" not in az.compile(distances, schedule={"pack": False}).schedule
    assert "stored" not in az.compile(softmax, schedule={"distribute": False}).schedule
    assert "by 16" in az.compile(distances, schedule={"strip": 16}).schedule
    assert az.compile(distances).schedule == plain  # each schedule has a version of its own


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"tile": True}, "no 'tile'; it takes distribute, reassociate, vectorise"),
        ({"jam": 1}, "'jam' as True or False, not 1"),
        ({"strip": 12}, "'strip' as a positive power of two, not 12"),
        ({"copies": True}, "'copies' as a positive power of two, not True"),
    ],
)
def test_what_is_no_schedule_is_refused(schedule: dict[str, bool | int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        az.compile(softmax, schedule=schedule)


@az.program
def nearest(x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "m d"]) -> az.Array[az.i64, "n"]:
    return az.map(lambda a: az.argmin(az.map(lambda b: az.sum((a - b) ** 2), y)), x)


@az.program
def greatest(x: az.Array[az.f64, "n m"]) -> az.f64:
    """Its gradient adds to each row at the place of the greatest element."""
    return az.sum(az.map(az.max, x))


def test_what_an_update_needs_is_found_before() -> None:
    x = numbers(40, 30)
    compiled = az.compile(az.grad(greatest))
    wanted = np.zeros_like(x)
    rows = np.arange(40)
    wanted[rows, x.argmax(1)] = 1.0
    np.testing.assert_array_equal(compiled(x), wanted)
    nests = compiled.nests.split("\n  nest ")
    (updating,) = [nest for nest in nests if re.search(r"(\w+\[.*\]) = \1 \+", nest)]
    assert "for " not in updating  # the loop that finds the place is a nest of its own, whose lanes are rows


def test_what_requirements_need_is_not_stored() -> None:
    """Two requirements of a place that divisions tell: they are no updates, which would each go their way."""

    @az.program
    def interleaved(x: az.Array[az.f64, "n"], m: az.i64) -> az.Array[az.f64, "n"]:
        return az.generate(x.shape[0], lambda i: x[i % m * 2 + i // m] + x[i % m + 1])

    x = numbers(12)
    places = np.arange(12)
    compiled = az.compile(interleaved)
    np.testing.assert_array_equal(compiled(x, 6), x[places % 6 * 2 + places // 6] + x[places % 6 + 1])
    assert "i64[" not in compiled.nests


@az.program
def pulls(places: az.Array[az.f64, "n 3"], masses: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n 3"]:
    """Each axis of a pull is a sum over all bodies, of which the distance does not depend on the axis."""

    def pull(p: az.Expr, k: az.Expr) -> az.Expr:
        def of(q: az.Expr, mass: az.Expr) -> az.Expr:
            square = 0.01 + az.sum((q - p) ** 2)
            return mass / (square * az.sqrt(square)) * (q[k] - p[k])

        return az.sum(az.map(of, places, masses))

    return az.map(lambda p: az.generate(3, lambda k: pull(p, k)), places)


def test_what_is_costly_is_not_computed_again_by_a_loop_between() -> None:
    places, masses = numbers(50, 3), np.abs(numbers(50))
    apart = places[None] - places[:, None]
    square = 0.01 + (apart**2).sum(2)
    wanted = ((masses / square**1.5)[:, :, None] * apart).sum(1)
    np.testing.assert_allclose(az.compile(pulls)(places, masses), wanted, rtol=1e-12, atol=1e-12)
    first, second = az.compile(pulls).nests.split("\n  nest ")[1:]
    assert "sqrt" in first and "/" in first and "sqrt" not in second and "/" not in second


@pytest.mark.parametrize("n", [1, 33, 700])
def test_what_is_combined_in_order_is_not_stored_where_lanes_run_over_a_loop_outside(n: int) -> None:
    """The distances feed an operator on pairs; stored, they would be the largest array of all."""
    x, y = numbers(n, 3).round(), numbers(9, 3, seed=1).round()
    y[4] = y[1]  # the first of equal ones counts
    x[0, 0] = np.nan  # all distances to it are the same NaN
    found = az.compile(nearest)
    squares = ((x[:, None] - y) ** 2).sum(axis=2)
    np.testing.assert_array_equal(found(x, y), az.evaluate(nearest)(x, y))
    np.testing.assert_array_equal(found(x, y)[1:], squares.argmin(axis=1)[1:])
    assert "[m, n]" not in found.loops and "[n, m]" not in found.loops and "lanes" in found.schedule


Points = az.Array[az.f64, "n d"]
Others = az.Array[az.f64, "m d"]


@az.program
def crowded(x: Points, y: Others, e: az.f64) -> Any:
    return az.map(lambda p: az.sum(az.map(lambda q: az.sum((p - q) ** 2) <= e, y)), x)


@az.program
def densities(x: Points, y: Others, e: az.f64) -> Any:
    return az.map(lambda p: az.sum(az.map(lambda q: az.exp(-az.sum((p - q) ** 2) / e), y)), x)


@az.program
def farthest(x: Points, y: Others, e: az.f64) -> Any:
    return az.map(lambda p: az.argmax(az.map(lambda q: az.sqrt(az.sum((p - q) ** 2) + e), y)), x)


@az.program
def potential(x: Points, y: Others, e: az.f64) -> Any:
    return az.sum(az.map(lambda p: az.sum(az.map(lambda q: 1 / (az.sum((p - q) ** 2) + e), y)), x))


def squared(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


PAIRS: dict[Any, Any] = {
    crowded: lambda x, y, e: (squared(x, y) <= e).sum(1),
    densities: lambda x, y, e: np.exp(-squared(x, y) / e).sum(1),
    farthest: lambda x, y, e: np.sqrt(squared(x, y) + e).argmax(1),
    potential: lambda x, y, e: (1 / (squared(x, y) + e)).sum(),
}


@pytest.mark.parametrize("program", PAIRS)
@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (3, 200, 2), (100, 33, 5), (2, 7, 0), (40, 1, 70)])
def test_what_is_made_of_pairs_of_points_is_not_stored(program: Any, n: int, m: int, d: int) -> None:
    r = np.random.default_rng(n)
    x, y = r.standard_normal((n, d)), r.standard_normal((m, d))
    compiled = az.compile(program, threads=1)
    found = compiled(x, y, 1.5)
    np.testing.assert_allclose(found, PAIRS[program](x, y, 1.5), rtol=1e-12)
    np.testing.assert_array_equal(az.compile(program, threads=3)(x, y, 1.5), found)
    large = np.ones((1000, 2)), np.ones((900, 2)), 1.5
    assert compiled.peak_bytes(*large) < 1000 * 900


@pytest.mark.rest
def test_what_varies_with_both_loops_and_products_are_stored() -> None:
    """Lanes along rows would read apart; and products are made in tiles."""

    @az.program
    def windows(u: az.Array[az.f64, "n m"], w: az.Array[az.f64, "p p"]) -> Any:
        def row(y: az.Expr) -> Any:
            def at(x: az.Expr) -> Any:
                return az.sum(w * u[y : y + w.shape[0], x : x + w.shape[0]]) ** 2

            return az.sum(az.generate(u.shape[1] - w.shape[0] + 1, at))

        return az.generate(u.shape[0] - w.shape[0] + 1, row)

    @az.program
    def scores(x: Points, y: Others) -> Any:
        return az.map(lambda p: az.sum(az.map(lambda q: az.exp(az.sum(p * q)), y)), x)

    u, w = np.random.default_rng(0).standard_normal((9, 12)), np.ones((3, 3))
    seen = np.lib.stride_tricks.sliding_window_view(u, (3, 3))
    np.testing.assert_allclose(az.compile(windows)(u, w), (seen.sum((2, 3)) ** 2).sum(1))
    np.testing.assert_allclose(az.compile(scores)(u, u), np.exp(u @ u.T).sum(1))
    for program in (windows, scores):
        assert len(re.findall(r"temporary array", str(az.compile(program).nests))) == 1


def test_in_a_loop_with_state_what_is_combined_in_order_is_computed_side_by_side() -> None:
    @az.program
    def walk(x: az.Array[az.f64, "d"], y: az.Array[az.f64, "m d"], steps: az.i64) -> az.Array[az.f64, "d"]:
        return az.fori_loop(0, steps, lambda _, a: y[az.argmax(az.map(lambda b: az.sum((a - b) ** 2), y))], x)

    x, y = numbers(3), numbers(50, 3, seed=1)
    expected = x
    for _ in range(4):
        expected = y[((expected - y) ** 2).sum(axis=1).argmax()]
    np.testing.assert_array_equal(az.compile(walk)(x, y, 4), expected)
    assert "f64[m]" in az.compile(walk).loops


@pytest.mark.parametrize("n", [0, 1, 511, 512, 515, 1100])
@pytest.mark.parametrize("d", [0, 1, 9, 35])
def test_points_are_packed_chunk_by_chunk(n: int, d: int) -> None:
    """Chunks hold 512 points; the last one fewer."""
    x, y = numbers(n, d), numbers(3, d, seed=1)
    squares = ((x[:, None] - y) ** 2).sum(axis=2)
    np.testing.assert_allclose(az.compile(least)(x, y), squares.min(axis=1), rtol=1e-14)
    np.testing.assert_array_equal(az.compile(nearest)(x, y), squares.argmin(axis=1))


@az.program
def least(x: az.Array[az.f64, "n d"], y: az.Array[az.f64, "m d"]) -> az.Array[az.f64, "n"]:
    return az.map(lambda a: az.min(az.map(lambda b: az.sum((a - b) ** 2), y)), x)


def test_a_chunk_is_packed_where_its_lanes_run() -> None:
    assert "x1_packed" in az.compile(least).loops and "[d, minimum(n, 512) + 8]" in az.compile(least).loops


def test_few_long_points_take_no_whole_chunk() -> None:
    x, y = numbers(3, 20_000), numbers(2, 20_000, seed=1)
    found = az.compile(least, threads=1)
    expected = ((x[:, None] - y) ** 2).sum(axis=2).min(axis=1)
    np.testing.assert_allclose(found(x, y), expected, rtol=1e-12)
    assert found.peak_bytes(x, y) <= 8 * x.nbytes


@pytest.mark.parametrize("m", [0, 1, 4, 7, 9])
def test_the_jams_of_a_nest_with_one_loop_are_shared_out(m: int) -> None:
    @az.program
    def along(a: az.Array[az.f64, "m n"], x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> az.Array[az.f64, "m"]:
        return az.map(lambda row: az.sum(row * (x - y) * x), a)

    a, x, y = numbers(m, 50), numbers(50, seed=1), numbers(50, seed=2)
    found = az.compile(along, threads=2)
    np.testing.assert_allclose(found(a, x, y), a @ ((x - y) * x), rtol=1e-13, atol=1e-15)
    assert "parallel" in found.schedule and "jam" in found.schedule


@az.program
def turned(x: az.Array[az.f64, "n m"], y: az.Array[az.f64, "m n"]) -> az.Array[az.f64, "n m"]:
    return x + 2.0 * y.T


@az.program
def both_ways(x: az.Array[az.f32, "n m"]) -> tuple[az.Array[az.f32, "n m"], az.Array[az.f32, "m n"]]:
    return x + 1.0, x.T


@az.program
def backwards(x: az.Array[az.i64, "l n m"]) -> az.Array[az.i64, "m n l"]:
    return az.generate((x.shape[2], x.shape[1], x.shape[0]), lambda i, j, k: x[k, j, i])


@pytest.mark.parametrize("n", [0, 1, 8, 70])
@pytest.mark.parametrize("m", [1, 7, 33])
def test_what_is_read_across_lanes_is_transposed(n: int, m: int) -> None:
    x, y = numbers(n, m), numbers(m, n, seed=1)
    np.testing.assert_array_equal(az.compile(turned)(x, y), x + 2.0 * y.T)
    single = x.astype(np.float32)
    for found, expected in zip(az.compile(both_ways)(single), (single + np.float32(1), single.T), strict=True):
        np.testing.assert_array_equal(found, expected)
    whole = np.arange(3 * n * m).reshape(3, n, m)
    np.testing.assert_array_equal(az.compile(backwards)(whole), whole.transpose())


def test_squares_are_lanes_and_a_jam() -> None:
    found = az.compile(turned)
    assert "jam" in found.schedule and "jam" not in az.compile(turned, schedule={"jam": False}).schedule
    assert "jam" in az.compile(least).schedule.split("lanes")[0]  # points are packed in squares


@az.program
def couples(a: az.Array[az.f64, "n k"], b: az.Array[az.f64, "n d"]) -> az.Array[az.f64, "k d"]:
    def entry(i: az.Expr, j: az.Expr) -> az.Expr:
        return az.sum(az.generate(a.shape[0], lambda m: az.exp(a[m, i] * b[m, j])))

    return az.generate((a.shape[1], b.shape[1]), entry)


def test_threads_share_out_a_nest_whose_loops_are_lanes_and_a_jam() -> None:
    compiled = [az.compile(couples, threads=threads) for threads in (1, 2, 7)]
    assert re.search(r"parallel task\w+ < .*\n *lanes .*\n *jam ", compiled[0].schedule), compiled[0].schedule
    r = np.random.default_rng(0)
    for n, k, d in ((5, 70, 530), (3, 1025, 17), (4, 33, 1), (2, 1, 600), (0, 40, 40), (3, 0, 20), (3, 20, 0)):
        a, b = r.random((n, k)), r.random((n, d))
        first, *others = [f(a, b) for f in compiled]
        np.testing.assert_allclose(first, np.exp(a[:, :, None] * b[:, None, :]).sum(0), rtol=1e-14)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_threads_share_out_such_a_nest_with_what_its_lanes_read_across() -> None:
    @az.program
    def across(
        a: az.Array[az.f64, "n k"], b: az.Array[az.f64, "n d"], c: az.Array[az.f64, "k n"], e: az.Array[az.f64, "d n"]
    ) -> az.Array[az.f64, "k d"]:
        def entry(i: az.Expr, j: az.Expr) -> az.Expr:
            return az.sum(az.generate(a.shape[0], lambda m: az.exp(a[m, i] * b[m, j]) * (c[i, m] + e[j, m])))

        return az.generate((a.shape[1], b.shape[1]), entry)

    compiled = [az.compile(across, threads=threads) for threads in (1, 2, 7)]
    assert re.search(r"parallel task\w+ < .*\n +temporary \w+_packed", compiled[0].schedule), compiled[0].schedule
    r = np.random.default_rng(0)
    for n, k, d in ((20, 70, 530), (18, 45, 17), (4, 33, 1), (0, 40, 40), (3, 0, 20), (3, 20, 0)):
        a, b, c, e = r.random((n, k)), r.random((n, d)), r.random((k, n)), r.random((d, n))
        first, *others = [f(a, b, c, e) for f in compiled]
        wanted = (np.exp(a[:, :, None] * b[:, None, :]) * (c.T[:, :, None] + e.T[:, None, :])).sum(0)
        np.testing.assert_allclose(first, wanted, rtol=1e-13)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_an_array_that_is_read_at_two_places_is_packed_once() -> None:
    @az.program
    def pairs(x: az.Array[az.f64, "n 5"], y: az.Array[az.f64, "n 5"]) -> az.Array[az.f64, "5 5"]:
        def entry(i: az.Expr, j: az.Expr) -> az.Expr:
            return az.sum(az.generate(x.shape[0], lambda m: az.exp(x[m, i] * x[m, j]) + y[m, j]))

        return az.generate((5, 5), entry)

    compiled = az.compile(pairs)
    packed = re.findall(r"temporary (\w+)_packed\w*:", compiled.loops)
    assert sorted(packed) in (["x1", "y2"], []), compiled.loops  # none where vectors are short
    for n in (0, 1, 37, 1000):
        x, y = np.random.default_rng(n).random((2, n, 5))
        wanted = np.exp(x[:, :, None] * x[:, None, :]).sum(0) + y.sum(0)
        np.testing.assert_allclose(compiled(x, y), wanted, rtol=1e-13)


def test_what_a_loop_in_order_needs_no_state_for_has_lanes() -> None:
    """Weights that take long are computed side by side; the loop only multiplies and adds, with the same bits."""

    @az.program
    def smoothed(x: az.Array[az.f64, "n"], start: az.f64) -> az.Array[az.f64, "n"]:
        def step(level: az.Expr, given: az.Expr) -> Any:
            weight = 1 / (1 + az.exp(-given))
            level = weight * level + (1 - weight) * az.sin(given)
            return level, level

        return az.scan_loop(step, start, x)[1]

    x = numbers(1000)
    compiled = az.compile(smoothed)
    level, wanted = 0.5, []
    for weight, given in zip(1 / (1 + np.exp(-x)), x, strict=True):
        level = weight * level + (1 - weight) * np.sin(given)
        wanted.append(level)
    np.testing.assert_allclose(compiled(x, 0.5), wanted, rtol=1e-12, atol=1e-12)
    in_order = compiled.nests.split("\n  for ")[1]
    assert "exp(" not in in_order and "sin(" not in in_order
    alone = az.compile(smoothed, schedule={"distribute": False})
    np.testing.assert_array_equal(compiled(x, 0.5), alone(x, 0.5))


def test_what_a_loop_in_order_needs_a_state_for_stays_in_it() -> None:
    """So does what is cheap, and all of it where a loop around has lanes already, or that may take any memory."""

    @az.program
    def grown(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.fori_loop(0, x.shape[0], lambda i, s: s + az.exp(x[i] - s), 0.0)

    @az.program
    def sums(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.fori_loop(0, x.shape[0], lambda i, s: 0.5 * s + 2 * x[i] + 1, 0.0)

    @az.program
    def of_each(x: az.Array[az.f64, "m n"]) -> az.Array[az.f64, "m"]:
        return az.map(lambda row: az.fori_loop(0, x.shape[1], lambda i, s: 0.5 * s + az.exp(row[i]), 0.0), x)

    @az.program
    def long(steps: az.i64) -> az.f64:
        return az.fori_loop(0, steps, lambda i, s: 0.5 * s + az.exp(-i.astype(az.f64)), 0.0)

    for program in (grown, sums, of_each, long):
        assert "temporary" not in az.compile(program).nests


@az.program
def chains(x: az.Array[az.f64, "m n d"], w: az.Array[az.f64, "d d"]) -> az.f64:
    """A recurrence along each row; its gradient by the rows is a loop in order that updates, and has a result."""

    def row(r: az.Expr) -> az.Expr:
        return az.sum(az.fori_loop(1, x.shape[1], lambda i, s: az.tanh(w @ s + r[i]), r[0]))

    return az.sum(az.map(row, x))


def test_a_loop_in_order_that_updates_runs_once() -> None:
    x, w = numbers(7, 20, 5), 0.3 * numbers(5, 5)
    by_rows, by_w = az.compile(az.grad(chains, argnums=(0, 1)))(x, w)
    value = az.evaluate(chains)(x, w)
    for place in ((0, 0, 1), (3, 7, 4), (6, 19, 0)):
        moved = x.copy()
        moved[place] += 1e-6
        np.testing.assert_allclose(by_rows[place], (az.evaluate(chains)(moved, w) - value) / 1e-6, rtol=1e-4, atol=1e-6)
    moved = w.copy()
    moved[2, 3] += 1e-6
    np.testing.assert_allclose(by_w[2, 3], (az.evaluate(chains)(x, moved) - value) / 1e-6, rtol=1e-4, atol=1e-6)
    loops = az.compile(az.grad(chains, argnums=(0, 1))).nests
    assert len(re.findall(r"\bfor \w+ < maximum\(0, n", loops)) == 2  # to the end, and back


def stored(program: Any) -> int:
    """How many values a program stores for all iterations of a loop."""
    return az.compile(program).schedule.count("stored for all")


def test_one_value_is_stored_for_several_that_it_is_made_of() -> None:
    """The sums, and the slopes that are made of them, of their exponentials and of quotients."""

    @az.program
    def loss(weights: az.Array[az.f64, "d"], x: az.Array[az.f64, "n d"], labels: az.Array[az.f64, "n"]) -> az.f64:
        scores = x @ weights
        return az.sum(az.log1p(az.exp(scores)) - scores * labels)

    w, x, labels = 0.1 * numbers(33), numbers(70, 33, seed=1), numbers(70, seed=2)
    found = az.compile(az.grad(loss))(w, x, labels)
    np.testing.assert_allclose(found, x.T @ (1.0 / (1.0 + np.exp(-x @ w)) - labels), rtol=1e-12)
    assert az.compile(az.grad(loss)).nests.count("temporary array") == 2


def test_sums_are_stored_beside_what_lanes_make_of_them() -> None:
    """A loop over places that a sum does not vary with uses two functions of it, and neither computes it again."""

    @az.program
    def waves(x: az.Array[az.f64, "n k"], y: az.Array[az.f64, "m"]) -> az.Array[az.f64, "n m"]:
        def row(r: az.Expr) -> az.Expr:
            s = az.sum(r * r)
            a = az.exp(-s)
            b = az.sin(s)
            return az.map(lambda v: a * v + b * v * v, y)

        return az.map(row, x)

    x, y = 0.3 * numbers(9, 40), numbers(23, seed=1)
    s = (x * x).sum(axis=1)[:, None]
    np.testing.assert_allclose(az.compile(waves)(x, y), np.exp(-s) * y + np.sin(s) * y * y, rtol=1e-12)
    assert stored(waves) == 3 and az.compile(waves).loops.count("exp(") == 1
