"""The rows of the property suite for derivatives: names, programs, and strategies for their inputs.

The first 59 are those of the thesis' appendix A (see ``programs/accelerate.py``) with its inputs: V is a vector of at
most 20 numbers between -10 and 10, with a refinement in some rows. Its star is ``rough``: the programs, or their
derivatives, jump somewhere. The last three are folds that it excludes. Numbers are f32 numbers, so that the same
inputs serve both precisions; and they are drawn as hypothesis likes them: with zeros, ties and whole numbers.

    *fold1_2           for all a in V, #a > 0
    fold1_2_friendly   for all a in V with the largest element 0.5 above the others
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from programs import accelerate as programs

import adze as az

Inputs = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Row:
    """A name of the thesis, the program, a strategy for its arguments; ``rough`` if it is not smooth everywhere."""

    name: str
    program: az.Program
    inputs: Inputs
    rough: bool


def between(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers of f32, inside of these bounds."""
    inside = [float(np.nextafter(np.float32(end), np.float32(0))) for end in (low, high)]
    return st.floats(*inside, width=32, allow_subnormal=False)


def vectors(elements: st.SearchStrategy[float], at_least: int = 0, at_most: int = 20) -> Inputs:
    return st.lists(elements, min_size=at_least, max_size=at_most).map(lambda xs: np.array(xs, np.float64))


def numbers_near_integers() -> st.SearchStrategy[float]:
    """allNiceRound: within 0.4 of an integer."""
    return st.builds(lambda k, x: float(np.float32(k + x)), st.integers(-9, 9), between(-0.4, 0.4))


@st.composite
def with_a_peak(draw: Any) -> Any:
    """uniqueMax: no other element reaches the largest one less 0.5."""
    others = draw(st.lists(between(-10, 9), max_size=19))
    peak = draw(between(9.5, 10))
    at = draw(st.integers(0, len(others)))
    return np.array([*others[:at], peak, *others[at:]])


NUMBERS = between(-10, 10)
V = vectors(NUMBERS)
FULL = vectors(NUMBERS, 1)  # V | #v > 0
THREE = vectors(NUMBERS, 3)  # V | #v >= 3
EVEN = V.map(lambda v: v[: len(v) // 2 * 2])
NON_ZERO = vectors(between(0.1, 10).flatmap(lambda x: st.sampled_from([x, -x])))
AWAY_FROM_2 = V.filter(lambda v: abs(np.sum(v) - 2) > 0.1)
NICE_ROUND = vectors(numbers_near_integers())
WIDTH = st.integers(1, 15)

# Rows with several parameters, and rows with a refinement; the inputs of the others are V.
INPUTS: dict[str, tuple[Inputs, ...]] = {
    "acond_2a_friendly": (AWAY_FROM_2,),
    "acond_2b_friendly": (AWAY_FROM_2,),
    "zipWith": (V, V),
    "fold_3_friendly": (NON_ZERO,),
    "fold1_1": (FULL,),
    "fold1_2": (FULL,),
    "fold1_2_friendly": (with_a_peak(),),
    "replicate_2": (FULL,),
    "replicate_3": (FULL,),
    "slice_2": (st.integers(0, 61), st.integers(0, 61), FULL),
    "reshape_1": (EVEN,),
    "reshape_2": (EVEN,),
    "backpermute_1": (st.integers(5, 15), FULL),
    "backpermute_2": (st.integers(5, 15), FULL),
    "aindex_map_1": (THREE,),
    "aindex_map_2_friendly": (NICE_ROUND,),
    "aindex_only": (FULL,),
    "nonfloat_lam_friendly": (NICE_ROUND,),
    "logsumexp1": (FULL,),
    "logsumexp2": (FULL,),
    "logsumexp3": (FULL,),
    "tuple2": (V, V),
    "tuple3": (FULL, FULL),
    "tuple4": (V, V),
    "neural": (WIDTH, WIDTH, FULL, THREE),
    "acond_cond1": (FULL,),
    "cond_0_friendly": (NON_ZERO,),
    "fold_pairs": (V, V),
    "fold_indexed": (V, vectors(NUMBERS, 0, 6)),
    "fold_from_sum": (V, V),
}

NAMES = """\
acond_0 acond_0a acond_1 *acond_2a acond_2a_friendly *acond_2b acond_2b_friendly acond_3a acond_3b
map zipWith fold_1 fold_2 *fold_3 fold_3_friendly fold1_1 *fold1_2 fold1_2_friendly
replicate_1 replicate_2 replicate_3 replicate_4 slice_1 slice_2 reshape_1 reshape_2 backpermute_1 backpermute_2
aindex_generate_1 aindex_generate_2 aindex_generate_3 aindex_generate_4
aindex_map_1 *aindex_map_2 aindex_map_2_friendly *aindex_map_3 *aindex_map_4 *aindex_acond aindex_only
a_ignore_argument *nonfloat_lam nonfloat_lam_friendly logsumexp1 *logsumexp2 *logsumexp3
tuple1 *tuple2 tuple3 tuple4 neural
*acond_cond1 *cond_0 cond_0_friendly cond_1 cond_2 *cond_3a *cond_3b *cond_4 ignore_argument
fold_pairs fold_indexed fold_from_sum
"""
RENAMED = {"map": "map_1", "zipWith": "zip_with_1"}


def rows() -> Iterator[Row]:
    for name in NAMES.split():
        plain = name.removeprefix("*")
        program = getattr(programs, RENAMED.get(plain, plain.removesuffix("_friendly")))
        yield Row(plain, program, st.tuples(*INPUTS.get(plain, (V,))), name != plain)


ROWS = list(rows())
