"""Random numbers: Philox by known answers, the same bits everywhere, and distributions by their statistics."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

import adze as az
from adze.core.expr import as_expr
from adze.library.random.generator import philox

pytestmark = pytest.mark.unguarded

KEY = az.random.key(2024)
COUNT = 20_000

# The generator

# Random123's known answers for philox4x32-10: a counter, a key, and the four words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def in_python(counter: Any, key: Any, width: int, multipliers: Any, steps: Any) -> list[int]:
    """Philox with words of any width, in Python's integers."""
    mask, (a, b, c, d), (k, l) = (1 << width) - 1, counter, key
    for number in range(10):
        if number:
            k, l = (k + steps[0]) & mask, (l + steps[1]) & mask
        first, second = a * multipliers[0], c * multipliers[1]
        a, b, c, d = (second >> width) ^ b ^ k, second & mask, (first >> width) ^ d ^ l, first & mask
    return [a, b, c, d]


NARROW = 32, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
WIDE = 64, (0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def test_the_generator_in_python_is_numpys() -> None:
    """NumPy's is of 64-bit words: so the code that the 32-bit one is compared with is known to be right."""
    made = np.random.Philox(key=np.array([3, 4], np.uint64), counter=[5, 6, 7, 8]).random_raw(4)
    assert made.tolist() == in_python((6, 6, 7, 8), (3, 4), *WIDE)


@pytest.mark.parametrize("run", [az.evaluate, az.compile])
def test_the_generator_by_known_answers(run: Callable[..., Any]) -> None:
    @az.program
    def words(counter: az.Array[az.u32, 4], key: az.Array[az.u32, 2]) -> az.Array[az.u32, 4]:
        return az.stack(list(philox([counter[k] for k in range(4)], [key[k] for k in range(2)])))

    for counter, key, wanted in KNOWN:
        assert in_python(counter, key, *NARROW) == list(wanted)
        assert run(words)(np.array(counter, np.uint32), np.array(key, np.uint32)).tolist() == list(wanted)


DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "bits": lambda key, n: az.random.bits(key, n),
    "wide bits": lambda key, n: az.random.bits(key, n, az.u64),
    "uniform": lambda key, n: az.random.uniform(key, n),
    "uniform, f32": lambda key, n: az.random.uniform(key, n, az.f32),
    "integers": lambda key, n: az.random.integers(key, n, -3, 1000),
    "bernoulli": lambda key, n: az.random.bernoulli(key, 0.3, n),
    "permutation": lambda key, n: az.random.permutation(key, n),
    "split": lambda key, n: az.random.split(key, n),
}
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "normal": lambda key, n: az.random.normal(key, n),
    "normal, f32": lambda key, n: az.random.normal(key, n, az.f32),
    "exponential": lambda key, n: az.random.exponential(key, n),
    "gumbel": lambda key, n: az.random.gumbel(key, n),
    "laplace": lambda key, n: az.random.laplace(key, n),
}


def program_of(draw: Callable[[Any, Any], Any]) -> Any:
    return az.program(lambda key, n: draw(key, n)).at(az.Array[az.u32, 2], az.i64)


@pytest.mark.parametrize("name", [*DRAWS, *FUNCTIONS])
def test_the_same_numbers_everywhere(name: str) -> None:
    program = program_of({**DRAWS, **FUNCTIONS}[name])
    for n in (0, 1, 5, 1000):
        wanted = az.evaluate(program)(KEY, n)
        found = [az.compile(program, threads=threads)(KEY, n) for threads in (1, 2, 3)]
        for each in found[1:]:
            np.testing.assert_array_equal(each, found[0])
        if name in DRAWS:
            np.testing.assert_array_equal(found[0], wanted)
        np.testing.assert_allclose(found[0], wanted, rtol=1e-6 if "f32" in name else 1e-12)


@pytest.mark.parametrize("name", ["bits", "wide bits", "uniform", "uniform, f32", "integers", "split"])
def test_the_same_numbers_on_a_device(name: str, opencl: Any) -> None:
    program = program_of(DRAWS[name])
    np.testing.assert_array_equal(az.compile(program, backend="opencl")(KEY, 1000), az.evaluate(program)(KEY, 1000))


def test_an_element_depends_on_its_place_alone() -> None:
    few, many = (az.compile(program_of(DRAWS["uniform"]))(KEY, n) for n in (10, 1000))
    np.testing.assert_array_equal(few, many[:10])
    table = az.compile(lambda key: az.random.uniform(key, (5, 4)))(KEY)
    np.testing.assert_array_equal(table.ravel(), many[:20])
    one = az.compile(lambda key: az.random.uniform(key))(KEY)
    assert one.shape == () and one == many[0]


# Keys


def test_keys() -> None:
    assert az.random.key(5).tolist() == [5, 0] and az.random.key(1 << 33).tolist() == [0, 2]
    assert az.random.key(-1).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
    generator = np.random.default_rng(1)
    assert az.random.key(generator).dtype == np.uint32 and not np.array_equal(*(az.random.key(generator) for _ in "ab"))
    made = az.compile(az.program(lambda seed: az.random.key(seed)).at(az.i64))
    assert made(1 << 33).tolist() == [0, 2] and made(-1).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
    for wrong in (1.5, True, "a", [1, 2]):
        with pytest.raises(TypeError, match=r"key takes an integer or a generator of NumPy's, not .*test_random.py"):
            az.random.key(wrong)


def test_new_keys_are_apart() -> None:
    keys = az.compile(lambda key: az.random.split(key, 1000))(KEY)
    folded = az.compile(lambda key: az.map(lambda i: az.random.fold_in(key, i), az.iota(1000)))(KEY)
    drawn = az.compile(lambda key: az.random.bits(key, 2000))(KEY)
    assert len({tuple(key) for key in [*keys, *folded, KEY]}) == 2001
    assert len({*keys.ravel().tolist(), *folded.ravel().tolist(), *drawn.tolist()}) > 5995


def test_neighbouring_keys_are_not_alike() -> None:
    drawn = [az.evaluate(lambda key: az.random.uniform(key, COUNT))(az.random.key(seed)) for seed in range(4)]
    for k, first in enumerate(drawn):
        for second in drawn[k + 1 :]:
            assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(COUNT)


# Distributions, of fixed seeds


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("uniform", scipy.stats.uniform),
        ("uniform, f32", scipy.stats.uniform),
        ("normal", scipy.stats.norm),
        ("normal, f32", scipy.stats.norm),
        ("exponential", scipy.stats.expon),
        ("gumbel", scipy.stats.gumbel_r),
        ("laplace", scipy.stats.laplace),
    ],
)
def test_distributions(name: str, distribution: Any) -> None:
    drawn = az.compile(program_of({**DRAWS, **FUNCTIONS}[name]))(KEY, COUNT)
    assert scipy.stats.kstest(drawn, distribution.cdf).pvalue > 1e-3
    assert abs(np.mean(drawn) - distribution.mean()) < 4 * distribution.std() / math.sqrt(COUNT)


def test_bits_and_integers_are_equally_probable() -> None:
    drawn = az.compile(program_of(DRAWS["bits"]))(KEY, COUNT)
    for k in range(32):
        assert abs(np.mean(drawn >> np.uint32(k) & np.uint32(1)) - 0.5) < 4 / math.sqrt(4 * COUNT)
    numbers = az.compile(lambda key: az.random.integers(key, COUNT, 10, 17))(KEY)
    assert numbers.dtype == np.int64 and set(numbers) == set(range(10, 17))
    assert scipy.stats.chisquare(np.bincount(numbers - 10)).pvalue > 1e-3
    assert (az.evaluate(lambda key: az.random.integers(key, 5, 3, 3))(KEY) == 3).all()


@pytest.mark.rest
def test_choices() -> None:
    p = np.array([0.1, 0.0, 0.6, 0.3])
    drawn = az.compile(lambda key, p: az.random.choice(key, 4, COUNT, p=p))(KEY, p)
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == 0 and scipy.stats.chisquare(counts[[0, 2, 3]], COUNT * p[[0, 2, 3]]).pvalue > 1e-3
    proportions = az.evaluate(lambda key, p: az.random.choice(key, 4, COUNT, p=p / 4))
    assert np.array_equal(proportions(KEY, p), drawn)
    logits = np.log(np.tile([0.1, 0.6, 0.3], (COUNT, 1)))
    counts = np.bincount(az.compile(lambda key, x: az.random.categorical(key, x))(KEY, logits))
    assert scipy.stats.chisquare(counts, COUNT * np.array([0.1, 0.6, 0.3])).pvalue > 1e-3
    letters = np.array([10.0, 20.0, 30.0])
    assert set(az.compile(lambda key, x: az.random.choice(key, x, (4, 5)))(KEY, letters).ravel()) == {10, 20, 30}
    few = az.compile(lambda key, x: az.random.choice(key, x, 2, replace=False))(KEY, letters)
    assert len(set(few)) == 2 and set(few) <= {10, 20, 30}
    with pytest.raises(ValueError, match="without replacement all are equally probable"):
        az.evaluate(lambda key, p: az.random.choice(key, 4, 2, replace=False, p=p))(KEY, p)


@pytest.mark.rest
def test_permutations() -> None:
    order = az.compile(lambda key: az.random.permutation(key, 50))(KEY)
    assert sorted(order) == list(range(50)) and order.tolist() != list(range(50))
    rows = np.arange(12.0).reshape(6, 2)
    moved = az.compile(lambda key, x: az.random.permutation(key, x))(KEY, rows)
    assert sorted(map(tuple, moved)) == sorted(map(tuple, rows))
    for axis in (1, -1):
        shuffled = az.evaluate(lambda key, x: az.random.shuffle(key, x.T, axis=axis))  # noqa: B023
        assert np.array_equal(shuffled(KEY, rows).T, moved)
    with pytest.raises(ValueError, match="axis 0 of a value of type f64"):
        az.evaluate(lambda key: az.random.shuffle(key, 3.0))(KEY)
    keys = az.evaluate(lambda key: az.random.split(key, 6000))(KEY)
    firsts = az.compile(lambda keys: az.map(lambda key: az.random.permutation(key, 3), keys))(keys)
    counts = np.unique(firsts, axis=0, return_counts=True)[1]
    assert len(counts) == 6 and scipy.stats.chisquare(counts).pvalue > 1e-3


def test_normal_vectors() -> None:
    mean, factor = np.array([1.0, -2.0]), np.array([[1.0, 0.0], [0.5, 2.0]])
    drawn = az.compile(lambda key, m, c: az.random.multivariate_normal(key, m, c, COUNT))(KEY, mean, factor @ factor.T)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), factor @ factor.T, atol=0.15)


# In programs


def test_derivatives_go_through_what_is_done_with_numbers() -> None:
    """The price of an option by paths that are drawn again in the return sweep: against the formula."""

    @az.program
    def price(spot: az.f64, volatility: az.f64, key: az.Array[az.u32, 2]) -> az.f64:
        z = az.random.normal(key, 100_000)
        end = spot * az.exp(volatility * z - volatility**2 / 2)
        return az.mean(az.maximum(end - 1.0, 0.0))

    (value, (delta, vega)) = az.compile(az.value_and_grad(price, (0, 1)))(1.1, 0.2, KEY)
    d1 = math.log(1.1) / 0.2 + 0.1
    normal = scipy.stats.norm
    assert abs(value - (1.1 * normal.cdf(d1) - normal.cdf(d1 - 0.2))) < 3e-3
    assert abs(delta - normal.cdf(d1)) < 1e-2 and abs(vega - 1.1 * normal.pdf(d1)) < 1e-2


def test_numbers_that_are_summed_are_not_stored() -> None:
    estimate = az.compile(
        az.program(lambda key, n: az.mean(az.random.normal(key, n) ** 2)).at(az.Array[az.u32, 2], az.i64)
    )
    assert estimate.peak_bytes(KEY, 1_000_000) < 100_000
    assert abs(estimate(KEY, 1_000_000) - 1) < 0.01


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda key: az.random.uniform(key[0], 3), "a key is an array of two u32"),
    (lambda key: az.random.uniform(az.stack([key[0], key[1], key[0]]), 3), "a key is an array of two u32"),
    (lambda key: az.random.normal(as_expr(np.array([1, 2])), 3), "a key is an array of two u32"),
    (lambda key: az.random.normal(key, 3, az.i64), "random numbers of f32 or f64, not of i64"),
    (lambda key: az.random.bits(key, 3, az.u8), "random bits are u32 or u64, not u8"),
    (lambda key: az.random.fold_in(key, 0.5), "fold_in takes a key and an integer"),
    (lambda key: az.random.key(az.sum(key) * 0.5), "key takes an integer, not a value of type f64"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=[match for _, match in WRONG])
def test_what_is_no_key(wrong: tuple[Callable[[Any], Any], str]) -> None:
    call, match = wrong
    with pytest.raises(TypeError, match=rf"{match}.*test_random.py:\d+"):
        az.evaluate(az.program(lambda key: call(key)))(KEY)


def test_negative_sizes() -> None:
    with pytest.raises(ValueError, match="a size of -1"):
        az.evaluate(program_of(DRAWS["uniform"]))(KEY, -1)
