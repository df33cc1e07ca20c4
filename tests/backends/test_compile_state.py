"""Compiled code that writes: updates in place, states of loops, while, sorting, sizes that the run decides.

An array is overwritten only where nobody can tell. Random programs of updates look for a place where somebody can:
they keep old arrays, swap states, update in branches and read elsewhere what they overwrite.
"""

from typing import Any

import numpy as np
import pytest
from programs import numbers
from sampling import some
from test_compile import assert_same

import adze as az

Vector = az.Array[az.f64, "n"]
Places = az.Array[az.i64, "n"]


def check(program: Any, *arguments: Any) -> Any:
    """Compiled code gives what evaluate gives, on any number of threads, and leaves its arguments alone."""
    before = [np.array(argument) for argument in arguments]
    expected = az.evaluate(program)(*arguments)
    single = az.compile(program, threads=1)(*arguments)
    assert_same(single, expected)
    for threads in (2, 7):
        assert_same(az.compile(program, threads=threads)(*arguments), single, exact=True)
    for argument, old in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(argument, old)
    return expected


# Random programs of updates


class Writer:
    """Writes a random program over arrays of one length."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def pick(self, values: list[Any]) -> Any:
        return values[self.random.integers(len(values))]

    def place(self, scalars: list[Any]) -> Any:
        if self.random.random() < 0.5:
            return int(self.random.integers(5))
        return abs(self.pick(scalars)) % 5

    def arrays(self, arrays: list[Any], scalars: list[Any], depth: int, steps: int) -> list[Any]:
        """All arrays after some steps: old ones stay among them."""
        arrays = list(arrays)
        for _ in range(steps):
            arrays += self.step(arrays, scalars, depth)
        return arrays

    def some(self, arrays: list[Any], count: int) -> tuple[Any, ...]:
        """Some arrays, later ones more often, and one now and then twice."""
        return tuple(arrays[-1 - int(self.random.integers(min(len(arrays), 5)))] for _ in range(count))

    def step(self, arrays: list[Any], scalars: list[Any], depth: int) -> list[Any]:
        a, b = self.some(arrays, 2)
        kind = self.random.integers(9 if depth else 5)
        if kind <= 1:
            return [az.update(a, self.place(scalars), b[self.place(scalars)] + 1.0)]
        if kind == 2:
            return [az.update(a, slice(1, 4), b[int(self.random.integers(3)) :][:3])]
        if kind == 3:
            return [az.generate(5, lambda i: a[4 - i] + b[i])]
        if kind == 4:
            unique = bool(self.random.integers(2))
            places = self.random.permutation(5) if unique else self.random.integers(0, 5, 5)
            values = (lambda i: a[(2 * i + 1) % 5]) if self.random.integers(2) else (lambda i: a[i] - b[4 - i])
            return [az.scatter(a, places, az.generate(5, values), unique=unique)]
        if kind == 5:
            test = self.pick(scalars) % 2 == 0
            return list(az.cond(test, lambda: self.branch(arrays, scalars, depth), lambda: (a, b)))
        if kind == 6:
            test = a[self.place(scalars)] < b[self.place(scalars)]
            branches = [lambda: self.branch(arrays, scalars, depth) for _ in range(2)]
            return list(az.cond(test, *branches))
        count = int(self.random.integers(1, 4))
        initial = (0, *self.some(arrays, count))

        def body(state: Any) -> Any:
            inside = self.arrays([*arrays[-3:], *state[1:]], [*scalars, state[0]], depth - 1, 2)
            return (state[0] + 1, *self.some(inside, count))

        if kind == 7:
            return list(az.fori_loop(0, 3, lambda i, state: body((i + state[0], *state[1:])), initial)[1:])
        return list(az.while_loop(lambda s: s[0] < 2, body, initial)[1:])

    def branch(self, arrays: list[Any], scalars: list[Any], depth: int) -> tuple[Any, ...]:
        return self.some(self.arrays(arrays, scalars, depth - 1, 2), 2)


def written(seed: int) -> az.Program:
    @az.program
    def random_updates(x: az.Array[az.f64, "5"], y: az.Array[az.f64, "5"], k: az.i64) -> Any:
        writer = Writer(seed)
        made = writer.arrays([x, y], [k], 2, 5)
        return writer.some(made, 3)

    return random_updates


@pytest.mark.unguarded
@pytest.mark.parametrize("seed", range(12))
def test_random_updates(seed: int) -> None:
    program = written(seed)
    for k in (0, 3):
        check(program, numbers(5), numbers(5, seed=1), k)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(12, 400), 8, long=0))
def test_more_random_updates(seed: int) -> None:
    program = written(seed)
    for k in (0, 1, 4):
        check(program, numbers(5), numbers(5, seed=1), k)


# Updates that could be seen


def test_old_arrays_stay() -> None:
    @az.program
    def program(x: Vector, i: az.i64) -> Any:
        y = x + 1.0
        a, b = az.update(y, i, 10.0), az.update(y, i, 20.0)
        return x, az.update(x, i, 5.0), y, a, b, az.update(a, 0, b[i]), az.sum(y)

    for n in (1, 2, 7):
        check(program, numbers(n), n // 2)


def test_results_are_in_memory_of_their_own() -> None:
    @az.program
    def program(x: Vector) -> Any:
        y = az.fori_loop(0, az.size(x), lambda i, y: az.update(y, i, y[i] + 1.0), x)
        return y, y, x, az.update(y, 0, 0.0)

    x = numbers(5)
    results = az.compile(program)(x)
    assert not any(np.shares_memory(a, b) for a in results for b in (*results, x) if a is not b)
    check(program, x)


@pytest.mark.rest
def test_an_update_that_reads_the_old_array_elsewhere() -> None:
    @az.program
    def rotated(x: Vector) -> Any:
        """Slices that overlap, forwards and backwards, and every element from its neighbour."""
        n = az.size(x)
        y = az.update(x + 0.0, slice(1, None), (x + 0.0)[:-1])
        z = az.scatter(y, az.iota(n), az.generate(n, lambda i: y[n - 1 - i]))
        return az.update(z, slice(0, 2), z[1:3])

    for n in (3, 4, 17):
        check(rotated, numbers(n))


def test_rows_of_a_state() -> None:
    @az.program
    def program(a: az.Array[az.f64, "n n"]) -> Any:
        """Each row is the sum of the rows above it, then the last row goes on top."""

        def step(i: Any, a: Any) -> Any:
            return az.update(a, i, az.generate(az.size(a), lambda j: a[i, j] + a[i - 1, az.size(a) - 1 - j]))

        b = az.fori_loop(1, az.size(a), step, a)
        return az.update(b, 0, b[-1])

    for n in (1, 2, 5, 20):
        check(program, numbers(n, n))


def test_states_swap_and_rotate() -> None:
    @az.program
    def program(x: Vector, y: Vector, z: Vector, steps: az.i64) -> Any:
        def step(i: Any, s: Any) -> Any:
            a, b, c = s
            return b, az.update(c, i % az.size(a), a[0]), a + c

        return az.fori_loop(0, steps, step, (x, y, z))

    for steps in range(7):
        check(program, *(numbers(4, seed=seed) for seed in range(3)), steps)


def test_two_states_from_one() -> None:
    @az.program
    def program(x: Vector, steps: az.i64) -> Any:
        return az.fori_loop(0, steps, lambda i, s: (s[1], az.update(s[1], 0, s[1][0] + s[0][0])), (x, x))

    for steps in range(5):
        check(program, numbers(4), steps)


def test_nested_loops_with_states() -> None:
    @az.program
    def program(x: Vector, a: az.Array[az.f64, "n n"]) -> Any:
        n = az.size(x)

        def outer(i: Any, s: Any) -> Any:
            x, a = s
            x = az.fori_loop(0, i, lambda j, x: az.update(x, j, x[j] + a[i, j]), x)
            y = az.while_loop(lambda s: s[1] < 2, lambda s: (s[0][::-1] + x, s[1] + 1), (x, 0))[0]
            return y, az.update(a, i, x)

        return az.fori_loop(0, n, outer, (x, a))

    for n in (1, 2, 6):
        check(program, numbers(n), numbers(n, n))


def test_loops_inside_parallel_loops() -> None:
    @az.program
    def program(a: az.Array[az.f64, "n m"]) -> Any:
        def row(r: Any) -> Any:
            m = az.size(r)
            total = az.fori_loop(1, m, lambda j, y: az.update(y, j, y[j] + y[j - 1]), r)
            swapped = az.fori_loop(0, m, lambda j, s: (s[1], s[0] + total), (r, total))
            large = az.while_loop(
                lambda s: (s[1] < m) & (s[0] < 10.0), lambda s: (s[0] + abs(r[s[1]]), s[1] + 1), (0.0, 0)
            )
            return total, swapped[0], large

        return az.map(row, a)

    for shape in ((0, 3), (1, 1), (3, 4), (40, 9)):
        check(program, numbers(*shape))


def test_states_in_an_array_that_is_read_across() -> None:
    @az.program
    def program(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m n"]) -> Any:
        def states(j: Any, i: Any) -> Any:
            start = az.generate(3, lambda k: a[i, j] * k)
            return az.fori_loop(0, 3, lambda k, s: az.update(s, k, s[k] + a[i, j] * b[j, i]), start)

        t = az.generate((a.shape[1], a.shape[0]), states)
        return az.generate(a.shape, lambda i, j: az.sum(t[j, i])), az.transpose(t, (2, 1, 0))

    for n, m in ((1, 1), (3, 5), (20, 9)):
        check(program, numbers(n, m), numbers(m, n))


@pytest.mark.unguarded
@pytest.mark.parametrize("dtype", [az.f32, az.f64, az.i32, az.i64, az.u8, az.u16, az.u64, az.bool_], ids=str)
def test_every_scalar_type(dtype: Any) -> None:
    @az.program
    def program(x: az.Array[dtype, "n"], at: az.Array[az.i64, "m"], v: az.Array[dtype, "m"]) -> Any:  # type: ignore[valid-type]
        y = az.fori_loop(0, az.size(x), lambda i, y: az.update(y, az.size(x) - 1 - i, x[i]), x)
        z = az.while_loop(lambda s: s[1] < 3, lambda s: (s[0][::-1], s[1] + 1), (x, 0))[0]
        return az.scatter(x, at, v, unique=False), y, z, az.argsort(x), az.sort(v)

    for n, m in ((1, 0), (1, 3), (5, 2), (33, 40)):
        x, v = numbers(n, dtype=dtype.dtype), numbers(m, seed=2, dtype=dtype.dtype)
        check(program, x, np.arange(m) * 3 % n, v)


def test_an_update_out_of_range() -> None:
    @az.program
    def program(x: Vector, i: az.i64) -> Any:
        return az.fori_loop(0, 3, lambda k, x: az.update(x, i + k, 1.0), x)

    for i in (-1, 3, 2**62):
        with pytest.raises(IndexError, match=r"out of range.*test_compile_state"):
            az.compile(program)(numbers(5), i)
    check(program, numbers(5), 2)
    np.testing.assert_array_equal(az.compile(program, checks=False)(numbers(5), 4), [*numbers(5)[:4], 1.0])


# What is never copied


def inner_loops(program: az.Program) -> list[str]:
    """The loops inside the sequential loop of a program."""
    lines = az.compile(program).loops.splitlines()
    starts = [k for k, line in enumerate(lines) if line.lstrip().startswith(("for ", "while "))]
    first = starts[0]
    depth = len(lines[first]) - len(lines[first].lstrip())
    body = []
    for line in lines[first + 1 :]:
        if len(line) - len(line.lstrip()) <= depth:
            break
        body.append(line.strip())
    return [line for line in body if line.split()[0] in ("for", "while", "parallel", "lanes", "jam")]


def test_an_update_in_a_loop_costs_one_store() -> None:
    @az.program
    def ordinary(x: Vector) -> Any:
        return az.fori_loop(0, az.size(x), lambda i, x: az.update(x, i, x[i] + x[az.size(x) - 1 - i]), x)

    @az.program
    def chosen(x: Vector) -> Any:
        def step(i: Any, x: Any) -> Any:
            return az.cond(x[i] > 0.0, lambda: az.update(x, i, 0.0), lambda: x)

        return az.fori_loop(0, az.size(x), step, x)

    @az.program
    def searching(x: Vector) -> Any:
        def step(s: Any) -> Any:
            return s[0] + 1, az.update(s[1], s[0], 0.0), az.update(s[2], 0, s[1][s[0]])

        return az.while_loop(lambda s: s[0] < az.size(x), step, (0, x, x))

    for program in (ordinary, chosen, searching):
        assert inner_loops(program) == []
        for n in (1, 5):
            check(program, numbers(n))


def test_a_new_state_is_written_once() -> None:
    @az.program
    def program(x: Vector, steps: az.i64) -> Any:
        return az.fori_loop(0, steps, lambda i, x: x[::-1] + 1.0, x)

    assert sum(line.startswith("lanes") for line in inner_loops(program)) == 1
    for steps in (0, 1, 2, 5):
        check(program, numbers(7), steps)


# Sizes that the run decides


def test_results_of_a_size_that_the_run_decides() -> None:
    @az.program
    def program(x: Vector, k: az.i64) -> Any:
        y = az.generate(k, lambda i: x[i % az.size(x)] * 2.0)
        table = az.generate((k, k + 1), lambda i, j: y[i] + j)
        return y, y, x, table, table.T, az.sum(table), az.sort(y)

    for k in (0, 1, 7, 500):
        check(program, numbers(5), k)
    kept = [az.compile(program)(numbers(5), 300)[3] for _ in range(20)]
    for table in kept:
        np.testing.assert_array_equal(table, kept[0])


def test_a_filter() -> None:
    @az.program
    def positive(x: Vector) -> Any:
        keep = x > 0.0
        place = az.cumsum(az.where(keep, 1, 0))
        found = az.generate(place[-1], lambda i: 0.0)

        def put(i: Any, found: Any) -> Any:
            return az.cond(keep[i], lambda: az.update(found, place[i] - 1, x[i]), lambda: found)

        return az.fori_loop(0, az.size(x), put, found)

    for n in (1, 2, 5, 1000):
        x = numbers(n)
        np.testing.assert_array_equal(check(positive, x), x[x > 0])


@pytest.mark.rest
@pytest.mark.unguarded
def test_inner_arrays_whose_size_depends_on_the_loop_around() -> None:
    @az.program
    def triangles(x: Vector) -> Any:
        def middle(i: Any) -> Any:
            return az.sort(az.generate(i + 1, lambda j: x[(j * 7 + i) % az.size(x)]))[i // 2]

        def walked(i: Any) -> Any:
            part = az.generate(i + 1, lambda j: x[j])
            part = az.fori_loop(0, i, lambda k, y: az.update(y, k + 1, y[k] + y[k + 1]), part)
            return az.fori_loop(0, 3, lambda k, y: y[::-1] + 1.0, part)[0]

        def step(i: Any, total: Any) -> Any:
            return total + az.sum(az.cumsum(az.generate(i, lambda j: x[j])) ** 2)

        large = az.cond(x[0] > 0.0, lambda: az.sum(az.sort(az.generate(az.size(x), middle))), lambda: 0.0)
        return (
            az.generate(az.size(x), middle),
            az.generate(az.size(x), walked),
            az.fori_loop(0, az.size(x), step, 0.0),
            large,
        )

    for n in (1, 2, 9, 60):
        check(triangles, numbers(n))


def test_no_memory() -> None:
    @az.program
    def program(x: Vector, k: az.i64) -> Any:
        return az.generate(az.size(x), lambda i: az.sort(az.generate(k + i, lambda j: 1.0 * j))[0])

    for k in (2**45, 2**60):
        with pytest.raises(MemoryError):
            az.compile(program)(numbers(3), k)
    check(program, numbers(3), 5)


def test_memory_that_is_kept_for_the_next_call() -> None:
    @az.program
    def program(x: Vector, k: az.i64) -> Any:
        stored = az.scan_loop(lambda s, i: (s + x[0], s), 0.0, az.iota(k))[1]
        return az.sum(stored[::-1] * stored)

    compiled, interpreted = az.compile(program), az.evaluate(program)
    for k in (3, 0, 1000, 7, 10_000, 5):
        assert compiled(numbers(3), k) == interpreted(numbers(3), k)
    with pytest.raises(MemoryError):
        compiled(numbers(3), 2**50)
    assert compiled(numbers(3), 6) == interpreted(numbers(3), 6)


# Sorting


@pytest.mark.unguarded
@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 32, 33, 100, 1000, 4095, 4096, 4097, 8193, 50_000])
def test_argsort(n: int) -> None:
    @az.program
    def order(x: Vector) -> Any:
        return az.argsort(x)

    generator = np.random.default_rng(n)
    few = generator.integers(-3, 4, n) * 1.0
    special = generator.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], n)
    up = np.arange(n) * 1.0
    for x in (few, special, up, up[::-1].copy(), generator.normal(size=n)):
        expected = np.argsort(x, kind="stable")
        for threads in (1, 2, 7):
            np.testing.assert_array_equal(az.compile(order, threads=threads)(x), expected)


def test_argsort_in_parallel_loops() -> None:
    @az.program
    def rows(a: az.Array[az.f64, "n m"]) -> Any:
        return az.map(lambda row: az.argsort(row), a), az.map(lambda row: az.sort(row + row[0])[0], a)

    for shape in ((0, 3), (3, 0), (1, 1), (5, 40), (30, 5000)):
        a = numbers(*shape)
        if shape[1]:
            np.testing.assert_array_equal(check(rows, a)[0], np.argsort(a, axis=-1, kind="stable"))


# Failures


def test_requirements_in_loops() -> None:
    @az.program
    def collected(x: Vector, k: az.i64) -> Any:
        def step(s: Any) -> Any:
            return s[0] + 1, s[1] + x[s[0]] + 1.0 * (7 // (k - s[0]))

        return az.while_loop(lambda s: s[0] < 4, step, (0, 0.0))

    check(collected, numbers(4), 4)
    with pytest.raises(ZeroDivisionError, match=r"test_compile_state"):
        az.compile(collected)(numbers(4), 2)
    with pytest.raises(IndexError, match=r"index 3 is out of range.*test_compile_state"):
        az.compile(collected)(numbers(3), 4)
    az.compile(collected, checks=False)(numbers(3), 2)


@pytest.mark.parametrize("n", [1, 31, 33, 5000])
def test_one_requirement_of_many_fails(n: int) -> None:
    """They are tested side by side; the failure names the element, wherever it is."""

    @az.program
    def read(x: Vector, places: Places) -> Any:
        def guarded(i: Any) -> Any:
            return az.cond(places[i] != 7, lambda: x[places[i]], lambda: 0.0)

        return az.map(lambda place: x[place], places), az.generate(az.size(x), guarded)

    @az.program
    def table(x: Vector, places: Places) -> Any:
        return az.generate((3, az.size(x)), lambda k, i: x[places[i]] + k)

    x, good = numbers(n), np.arange(n)[::-1].copy()
    check(read, x, good)
    for at in {0, n // 2, n - 1}:
        places = good.copy()
        places[at] = n + 2
        for program in (read, table):
            for threads in (1, 2):
                with pytest.raises(IndexError, match=rf"index {n + 2} is out of range.*size is {n}, at "):
                    az.compile(program, threads=threads)(x, places)


# What is inlined, left out, or refused


def test_custom_operations_are_their_bodies() -> None:
    @az.custom_jvp
    def twice(x: Any) -> Any:
        return x + x

    @twice.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return 7.0 * tangents[0]

    @az.program
    def program(x: Vector) -> az.f64:
        return az.sum(az.map(twice, x)) + twice(x[0])

    check(program, numbers(5))


def test_a_probe_shows_nothing() -> None:
    @az.program
    def program(x: Vector) -> az.f64:
        return az.inspect(az.sum(az.inspect(x, "x")), "total")

    assert az.compile(program)(numbers(5)) == numbers(5).sum()


def test_branches_of_par_run() -> None:
    @az.program
    def program(x: Vector) -> Any:
        return az.par(lambda: az.sum(x), lambda: az.sort(x))

    check(program, numbers(5))


def test_a_requirement_that_fails_ends_an_endless_loop() -> None:
    @az.program
    def halved(x: Vector) -> Any:
        return az.while_loop(lambda s: az.size(s) > 1, lambda s: s[: az.size(s) // 2], x)

    @az.program
    def divided(n: az.Array[az.i64, "n"]) -> Any:
        return az.map(lambda k: az.while_loop(lambda s: s != 0, lambda s: s // (s - 2), k), n)

    with pytest.raises(ValueError, match="the sizes n = 8 and n//2 = 4"):
        az.compile(halved)(np.ones(8))
    with pytest.raises(ZeroDivisionError):
        az.compile(divided)(np.array([2, 1, 2]))


@az.program
def summed_at(x: az.Array[az.f64, "n"], steps: az.i64, stride: az.i64) -> az.f64:
    return az.fori_loop(0, steps, lambda i, total: total + x[stride * i], 0.0)


@az.program
def positive_and_summed(x: az.Array[az.f64, "n"], steps: az.i64, stride: az.i64) -> Any:
    """An array whose size the run decides, and then what may fail."""
    total = summed_at(x, steps, stride)
    return az.filter(lambda e: e > total, x), az.generate(3, lambda k: summed_at(x, steps, stride + k))


@pytest.mark.parametrize("program", [summed_at, positive_and_summed])
def test_a_failure_ends_the_loop(program: az.Program) -> None:
    """The steps that are left would take hours."""
    compiled = az.compile(program)
    for _ in range(3):
        with pytest.raises(IndexError, match="index 3 is out of range"):
            compiled(np.ones(3), 2**45, 1)
        compiled(np.ones(3), 1, 1)
