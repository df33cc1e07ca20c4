"""Random numbers that are functions of a key and a place: the same in every interpretation, on any number of threads.

A generator with a state would have an order. A counter-based one has none: element i of an array of random numbers is
made from the key and from i alone (generator.py). So slices, batches and shards agree with the whole, and nothing has
to be stored to be there again in a return sweep.

A key is an array of two u32, as in JAX. Whoever draws twice takes two keys, from ``split`` or ``fold_in``. What numbers
are for is part of the counter, so that a key that is split, and drawn from by mistake, does not repeat itself.

    >>> import adze as az
    >>> @az.program
    ... def mean(key: az.Array[az.u32, 2]) -> az.f64:
    ...     return az.mean(az.random.normal(key, 10000))
    >>> abs(float(mean(az.random.key(7)))) < 0.05
    True
"""

from .choices import categorical, choice, permutation, shuffle
from .continuous import bernoulli, bits, exponential, gumbel, integers, laplace, multivariate_normal, normal, uniform
from .counts import binomial, poisson
from .gammas import beta, dirichlet, gamma, loggamma, student_t
from .generator import fold_in, key, split
from .truncated import truncated_normal

__all__ = [
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "integers",
    "key",
    "laplace",
    "loggamma",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "shuffle",
    "split",
    "student_t",
    "truncated_normal",
    "uniform",
]
