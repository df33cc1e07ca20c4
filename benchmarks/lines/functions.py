"""Functions, recursion, data and forks (programs/functions.py): the first lines are those of the paper.

(Smeding and Vákár, Parallel dual-numbers reverse AD, 2025, section 10.) Arguments are bound before, so no list and no
tree is made of Python's objects, or into these, while time is taken; instead of gradients all give the sums of their
numbers, and programs of Adze make these sums by recursions of their own. C by hand (functions.c) keeps a log with one
record for each run of straight code; it is no peer but a mark, compiled by gcc where there is one. PyTorch is eager.
"""

import ctypes
import functools
import itertools
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Adze, Arguments, Call, Contender, Jax, Line, Tool, Torch, of_jax, of_torch
from programs import functions as models
from programs.functions import List, Row, folded, linked

import adze as az


def drawn(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


# Tools


@dataclass(frozen=True)
class Bound(Adze):
    """Adze on values that were made of the arguments, and bound."""

    given: Callable[..., Arguments] = lambda *arguments: arguments

    def convert(self, arguments: Arguments) -> Arguments:
        return self.given(*arguments)

    def build(self, program: Any) -> Call:
        return _bound(az.compile(program, threads=self.threads), [])

    def compile(self, program: Any, arguments: Arguments) -> Call:
        compiled = az.compile(program, threads=self.threads)
        return _bound(compiled, [(arguments, compiled.bind(*arguments))])


def _bound(compiled: Any, calls: list[tuple[Arguments, Call]]) -> Call:
    """Calls of a program with the arguments that are bound, which are others when others are given."""

    def call(*given: Any) -> Any:
        if not calls or any(own is not other for own, other in zip(calls[0][0], given, strict=True)):
            calls[:] = [(given, compiled.bind(*given))]
        return calls[0][1]()

    return call


def in_adze(
    programs: Mapping[str, Any], given: Callable[..., Arguments] = lambda *arguments: arguments
) -> list[Contender]:
    """On one thread: nothing in these programs forks."""
    return [Contender("Adze", Bound(threads=1, given=given), lambda: programs)]


def in_adze_with_forks(
    programs: Mapping[str, Any], given: Callable[..., Arguments] = lambda *arguments: arguments
) -> list[Contender]:
    """On two threads and on one."""
    one = Contender("Adze, 1 thread", Bound(threads=1, given=given), lambda: programs)
    return [Contender("Adze", Bound(given=given), lambda: programs), one]


@functools.cache
def by_hand() -> ctypes.CDLL:
    """The functions of functions.c."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "functions.so"
        source = Path(__file__).with_suffix(".c")
        options = ["-O3", "-march=native", "-shared", "-fPIC", "-fvisibility=hidden"]
        subprocess.run(["gcc", *options, str(source), "-lm", "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class C(Tool):
    """C on cells that were made of the arguments."""

    given: Callable[..., Arguments] = lambda *arguments: arguments
    library = False
    needs = "gcc"

    def start(self) -> None:
        """Recursions of C run on the stack of the process."""
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK if most < 0 else min(_STACK, most), most))

    def convert(self, arguments: Arguments) -> Arguments:
        return self.given(*arguments)


def function(name: str, result: Any, *parameters: Any) -> Any:
    found = by_hand()[name]
    found.restype, found.argtypes = result, parameters
    return found


def in_c(
    programs: Callable[[], Mapping[str, Any]], given: Callable[..., Arguments] = lambda *arguments: arguments
) -> list[Contender]:
    return [Contender("C, by hand", C(given=given), programs, library=True)] if shutil.which("gcc") else []


_STACK = 1 << 30  # bytes
F, I, P = ctypes.c_double, ctypes.c_int64, ctypes.c_void_p


def filling(name: str, count: int, *parameters: Any) -> Call:
    """A function of C that fills so many numbers."""
    found, numbers = function(name, None, *parameters, P), (F * count)()

    def call(*given: Any) -> Any:
        found(*given, numbers)
        return tuple(numbers)

    return call


# Sums of gradients, by recursions


def of_list(xs: Any) -> Any:
    return models.total(xs)


def of_rows(rows: Any) -> Any:
    return folded(rows, Row, az.f64, 0.0, lambda row, rest: of_list(row) + rest)


def of_swarm(swarm: Any) -> Any:
    return folded(swarm, models.Particle, az.f64, 0.0, lambda p, rest: p.x + p.y + p.u + p.v + rest)


def of_leaves(tree: Any) -> Any:
    add = az.fix(
        lambda self, t: az.case(t, Leaf=lambda x: x, Node=lambda left, right: self(left) + self(right)),
        models.Leaves,
        result=az.f64,
    )
    return add(tree)


def of_numbers(f: Any) -> Any:
    add = az.fix(
        lambda self, f: az.case(
            f,
            Number=lambda v: v,
            Variable=lambda k: 0.0,
            Sum=lambda a, b: self(a) + self(b),
            Product=lambda a, b: self(a) + self(b),
            Sine=lambda a: self(a),
        ),
        models.Expression,
        result=az.f64,
    )
    return add(f)


# One multiplication


@az.program
def both_of_mult(x: az.f64, y: az.f64) -> tuple[az.f64, az.f64, az.f64]:
    value, slopes = az.value_and_grad(models.mult, argnums=(0, 1))(x, y)
    return value, *slopes


# Lists


def two_lists(n: int) -> Arguments:
    return drawn(n), drawn(n, seed=2)


def linked_pair(x: Any, y: Any) -> Arguments:
    return linked(x.tolist()), linked(y.tolist())


@az.program
def both_of_dot(xs: Row, ys: Row) -> tuple[az.f64, az.f64, az.f64]:
    value, (dx, dy) = az.value_and_grad(models.dot, argnums=(0, 1))(xs, ys)
    return value, of_list(dx), of_list(dy)


def cells_of_lists(x: Any, y: Any) -> Arguments:
    make = function("make_list", P, P, I)
    return *[make(each.ctypes.data, len(each)) for each in (x, y)], len(x)


def dot_in_c() -> dict[str, Call]:
    value = function("dot", F, P, P)
    return {"primal": lambda x, y, n: value(x, y), "gradient": filling("dot_gradient", 3, P, P, I)}


def matrix(n: int) -> Arguments:
    return drawn(n, n), drawn(n, seed=2)


def linked_rows(a: Any, x: Any) -> Arguments:
    return linked([linked(row) for row in a.tolist()]), linked(x.tolist())


@az.program
def both_of_sum_mat_vec(rows: List[Row], x: Row) -> tuple[az.f64, az.f64, az.f64]:
    value, (da, dx) = az.value_and_grad(models.sum_mat_vec, argnums=(0, 1))(rows, x)
    return value, of_rows(da), of_list(dx)


# A rotation, of which the return sweep runs for three cotangents


def quaternion() -> Arguments:
    q = drawn(4)
    return q / np.linalg.norm(q), drawn(3, seed=2)


def records(q: Any, v: Any) -> Arguments:
    return models.Quaternion(q[0], models.Vec3(*q[1:])), models.Vec3(*v)


@az.program
def rotated(q: models.Quaternion, v: models.Vec3) -> tuple[az.f64, az.f64, az.f64]:
    found = models.rotate(q, v)
    return found.x, found.y, found.z


@az.program
def three_sweeps(q: models.Quaternion, v: models.Vec3) -> tuple[az.f64, az.f64, az.f64]:
    back, sums = az.vjp(models.rotate, argnums=(0, 1)), []
    for k in range(3):
        unit = models.Vec3(*[1.0 if j == k else 0.0 for j in range(3)])
        _, dq, dv = back(q, v, unit)
        sums.append(dq.w + dq.v.x + dq.v.y + dq.v.z + dv.x + dv.y + dv.z)
    return tuple(sums)


# A network on lists

SIZES = (50, 50, 100, 50)


def layers() -> Arguments:
    sizes = list(itertools.pairwise(SIZES))
    made = [(drawn(m, n, seed=m) / np.sqrt(n), drawn(m, seed=n)) for n, m in sizes]
    return *[part for layer in made for part in layer], drawn(SIZES[0])


def linked_layers(*parts: Any) -> Arguments:
    return tuple([linked([linked(row) for row in x.tolist()]) if x.ndim == 2 else linked(x.tolist()) for x in parts])


@az.program
def both_of_neural(
    first: List[Row], b1: Row, second: List[Row], b2: Row, third: List[Row], b3: Row, x: Row
) -> tuple[az.f64, az.f64]:
    value, slopes = az.value_and_grad(models.neural, argnums=tuple(range(7)))(first, b1, second, b2, third, b3, x)
    sums = [(of_rows if k in (0, 2, 4) else of_list)(slope) for k, slope in enumerate(slopes)]
    return value, sum(sums[1:], sums[0])


def torch_neural(first: Any, b1: Any, second: Any, b2: Any, third: Any, b3: Any, x: Any) -> Any:
    import torch

    x = torch.relu(second @ torch.relu(first @ x + b1) + b2)
    x = torch.softmax(third @ x + b3, 0)
    return x @ torch.arange(1.0, 1 + len(x), dtype=x.dtype)


def sums_in_torch(f: Call, argnums: Sequence[int]) -> dict[str, Call]:
    """A function to a number, and the sum of all numbers of its gradients, in PyTorch."""
    programs = of_torch(f, tuple(argnums), with_value=True)

    def both(*given: Any) -> Any:
        value, slopes = programs["gradient"](*given)
        return value, sum(slope.sum() for slope in (slopes if isinstance(slopes, tuple) else [slopes]))

    return {"primal": f, "gradient": both}


# Particles


def starts(steps: int) -> Arguments:
    return drawn(4, 4) / 2, steps


def linked_starts(x: Any, steps: int) -> Arguments:
    return linked([models.Particle(*row) for row in x.tolist()]), steps


@az.program
def both_of_particles(swarm: List[models.Particle], steps: az.i64) -> tuple[az.f64, az.f64]:
    value, slope = az.value_and_grad(models.particles)(swarm, steps)
    return value, of_swarm(slope)


def jax_particles(start: Any, steps: int) -> Any:
    import jax

    def step(_: Any, state: Any) -> Any:
        x, y, u, v = state
        pull = 1 / (1 + x * x + y * y)
        u, v = u - 0.01 * pull * x, v - 0.01 * pull * y
        return x + 0.01 * u, y + 0.01 * v, u, v

    x, y, _, _ = jax.lax.fori_loop(0, steps, step, tuple(start.T))
    return (x * y).sum()


def sums_in_jax(f: Call) -> dict[str, Call]:
    programs = of_jax(f, with_value=True)

    def both(*given: Any) -> Any:
        value, slope = programs["gradient"](*given)
        return value, slope.sum()

    return {"primal": f, "gradient": both}


def fall_in_c() -> dict[str, Call]:
    return {"primal": function("fall", F, P, I, I), "gradient": filling("fall_gradient", 2, P, I, I)}


# A tree


def leaves(n: int) -> Arguments:
    return (drawn(n),)


def tree_programs(program: az.Program) -> dict[str, Any]:
    @az.program
    def both(tree: models.Leaves) -> tuple[az.f64, az.f64]:
        value, slope = az.value_and_grad(program)(tree)
        return value, of_leaves(slope)

    return {"primal": program, "gradient": both}


def tree_in_c() -> dict[str, Call]:
    value = function("tree_sum", F, P)
    return {"primal": lambda t, n: value(t), "gradient": filling("tree_gradient", 2, P, I)}


# A call, and a fork


def fibonacci(fork: bool) -> az.Program:
    def fibonacci(n: az.i64) -> az.i64:
        @az.fix
        def of(self: Any, n: az.i64) -> az.i64:
            return az.cond(n < 2, lambda: n, lambda: sum(models.both(fork, lambda: self(n - 1), lambda: self(n - 2))))

        return of(n)

    return az.program(fibonacci)


# A formula

VARIABLES = 16


def formula_of(n: int, drawn: np.random.Generator) -> Any:
    """A random formula of about so many nodes."""
    e = models.Expression
    if n <= 1:
        number = drawn.random() < 0.3
        return e.Number(float(drawn.standard_normal())) if number else e.Variable(int(drawn.integers(VARIABLES)))
    if drawn.random() < 0.2:
        return e.Sine(formula_of(n - 1, drawn))
    half = (n - 1) // 2
    return (e.Sum if drawn.random() < 0.6 else e.Product)(formula_of(half, drawn), formula_of(n - 1 - half, drawn))


def formula(n: int) -> Arguments:
    return formula_of(n, np.random.default_rng(1)), drawn(VARIABLES)


@az.program
def both_of_formula(f: models.Expression, x: az.Array[az.f64, "n"]) -> tuple[az.f64, az.f64, az.Array[az.f64, "n"]]:
    value, (numbers, variables) = az.value_and_grad(models.expression, argnums=(0, 1))(f, x)
    return value, of_numbers(numbers), variables


# Quadrature

TOLERANCE = 1e-12


def integral(fork: bool) -> az.Program:
    def integral(a: az.f64, b: az.f64) -> az.f64:
        return models.integral(a, b, TOLERANCE, fork)

    return az.program(integral)


def integral_in_c() -> dict[str, Call]:
    value = function("quadrature", F, F, F, F)
    return {"primal": lambda a, b: value(a, b, TOLERANCE)}


# A network over a tree of words

WIDTH, WORDS = 150, 1000


def sentence(words: int) -> Arguments:
    mixing = np.random.default_rng(2).standard_normal((2, WIDTH, WIDTH)) / 12
    return np.random.default_rng(1).integers(0, WORDS, words), drawn(WORDS, WIDTH), *mixing, drawn(WIDTH)


def phrase(words: Any, *weights: Any) -> Arguments:
    return models.of_words(words), *weights


def both_of_tree_network() -> az.Program:
    network = az.program(models.tree_network_of(WIDTH, fork=True))
    derived = az.value_and_grad(network, argnums=(1, 2, 3, 4))

    @az.program
    def both(
        phrase: models.Phrase,
        table: az.Array[az.f64, "words", WIDTH],
        left: az.Array[az.f64, WIDTH, WIDTH],
        right: az.Array[az.f64, WIDTH, WIDTH],
        bias: az.Array[az.f64, WIDTH],
    ) -> tuple[az.f64, az.f64]:
        value, slopes = derived(phrase, table, left, right, bias)
        return value, sum([az.sum(slope) for slope in slopes[1:]], az.sum(slopes[0]))

    return both


def torch_tree_network(words: Any, table: Any, left: Any, right: Any, bias: Any) -> Any:
    import torch

    numbers = words.tolist()

    def state(low: int, high: int) -> Any:
        if high - low == 1:
            return torch.tanh(table[numbers[low]])
        middle = low + (high - low) // 2
        return torch.tanh(left @ state(low, middle) + right @ state(middle, high) + bias)

    return (state(0, len(numbers)) ** 2).sum()


# The likelihood of a tree

SITES = 1000


def alignment(species: int) -> Arguments:
    lengths = np.abs(drawn(2 * species)) / 10
    return np.random.default_rng(3).integers(0, 4, (species, SITES)), lengths


def with_tree(letters: Any, lengths: Any) -> Arguments:
    return models.of_species(len(letters), iter(lengths)), letters


def of_lengths(tree: Any) -> Any:
    add = az.fix(
        lambda self, t: az.case(
            t, Species=lambda row: 0.0, Split=lambda left, a, right, b: a + b + self(left) + self(right)
        ),
        models.Tree,
        result=az.f64,
    )
    return add(tree)


def phylogeny_programs() -> dict[str, Any]:
    likelihood = az.program(models.phylogeny_of(SITES, fork=True))

    @az.program
    def both(tree: models.Tree, letters: az.Array[az.i64, "species", SITES]) -> tuple[az.f64, az.f64]:
        value, slope = az.value_and_grad(likelihood)(tree, letters)
        return value, of_lengths(slope)

    return {"primal": likelihood, "gradient": both}


def jax_phylogeny(letters: Any, lengths: Any) -> Any:
    import jax
    import jax.numpy as jnp

    numbers = iter(range(len(lengths)))

    def along(length: Any, below: Any) -> Any:
        decay = jnp.exp(-length * 4 / 3)
        return below @ jnp.where(jnp.eye(4) == 1, 0.25 + 0.75 * decay, 0.25 - 0.25 * decay)

    def below(first: int, count: int) -> Any:
        if count == 1:
            return jax.nn.one_hot(letters[first], 4, dtype=jnp.float64)
        half = count // 2
        left, right = below(first, half), below(first + half, count - half)
        return along(lengths[next(numbers)], left) * along(lengths[next(numbers)], right)

    return jnp.log((0.25 * below(0, letters.shape[0])).sum(1)).sum()


def phylogeny_in_jax() -> dict[str, Call]:
    programs = of_jax(jax_phylogeny, 1, with_value=True)

    def both(*given: Any) -> Any:
        value, slope = programs["gradient"](*given)
        return value, slope.sum()

    return {"primal": jax_phylogeny, "gradient": both}


PLAIN = "Adze, no forks"


def without_forks(
    programs: Callable[[], Mapping[str, Any]], given: Callable[..., Arguments] = lambda *arguments: arguments
) -> Contender:
    """The program without its forks, on one thread."""
    return Contender(PLAIN, Bound(threads=1, given=given), programs)


def line(name: str, title: str, sizes: Sequence[dict[str, int]], arguments: Any, contenders: Any, **more: Any) -> Line:
    """Of which the first size is the main one."""
    return Line(name, title, sizes, arguments, contenders, main=sizes[0], **more)


TREE = [{"n": 1 << 20}, {"n": 1 << 10}]
LINES = [
    line(
        "mult",
        "One multiplication",
        [{}],
        lambda: (1.5, 0.5),
        in_adze({"primal": models.mult, "gradient": both_of_mult}),
    ),
    line(
        "dot, lists",
        "Product of two lists",
        [{"n": 10**6}, {"n": 10**3}],
        two_lists,
        [
            *in_adze({"primal": models.dot, "gradient": both_of_dot}, linked_pair),
            *in_c(dot_in_c, cells_of_lists),
        ],
    ),
    line(
        "sum-mat-vec, lists",
        "List of lists times list",
        [{"n": 316}],
        matrix,
        in_adze({"primal": models.sum_mat_vec, "gradient": both_of_sum_mat_vec}, linked_rows),
    ),
    line(
        "rotate",
        "A vector by a quaternion",
        [{}],
        quaternion,
        in_adze({"primal": rotated, "three sweeps": three_sweeps}, records),
        functions=("primal", "three sweeps"),
    ),
    line(
        "neural, lists",
        "A network on lists",
        [{}],
        layers,
        [
            *in_adze({"primal": models.neural, "gradient": both_of_neural}, linked_layers),
            Contender("PyTorch, arrays", Torch(), lambda: sums_in_torch(torch_neural, range(7)), library=True),
        ],
    ),
    line(
        "particles",
        "Four particles",
        [{"steps": 10**5}, {"steps": 10**3}],
        starts,
        [
            *in_adze_with_forks({"primal": models.particles, "gradient": both_of_particles}, linked_starts),
            Contender("JAX", Jax(static=(1,)), lambda: sums_in_jax(jax_particles)),
            *in_c(fall_in_c, lambda x, steps: (x.ctypes.data, len(x), steps)),
        ],
    ),
    line(
        "tree",
        "Sum over a tree",
        TREE,
        leaves,
        [
            *in_adze(tree_programs(models.plain_tree_sum), lambda x: (models.of_leaves(x),)),
            *in_c(tree_in_c, lambda x: (function("make_tree", P, P, I)(x.ctypes.data, len(x)), len(x))),
        ],
    ),
    line(
        "tree, forks",
        "The same, a fork at every node",
        TREE,
        leaves,
        [
            *in_adze_with_forks(tree_programs(models.tree_sum), lambda x: (models.of_leaves(x),)),
            without_forks(lambda: tree_programs(models.plain_tree_sum), lambda x: (models.of_leaves(x),)),
        ],
    ),
    line(
        "tree, a list",
        "Sum over a tree that is a list",
        [{"n": 10**6}],
        leaves,
        in_adze_with_forks(tree_programs(models.tree_sum), lambda x: (models.degenerate(x),)),
    ),
    line(
        "fibonacci",
        "Calls and forks",
        [{"n": 32}],
        lambda n: (n,),
        [
            *in_adze_with_forks({"primal": fibonacci(fork=True)}),
            without_forks(lambda: {"primal": fibonacci(fork=False)}),
            *in_c(lambda: {"primal": function("fibonacci", I, I)}),
        ],
        functions=("primal",),
    ),
    line(
        "formula",
        "A formula as data",
        [{"n": 10**6}, {"n": 10**3}],
        formula,
        in_adze({"primal": models.expression, "gradient": both_of_formula}),
    ),
    line(
        "quadrature",
        "Adaptive quadrature",
        [{}],
        lambda: (0.5, 1e-3),
        [
            *in_adze_with_forks(
                {"primal": integral(True), "gradient": az.value_and_grad(integral(True), argnums=(0, 1))}
            ),
            without_forks(lambda: {"primal": integral(False)}),
            *in_c(integral_in_c),
        ],
    ),
    line(
        "tree network",
        "A network over a tree of words",
        [{"words": 255}],
        sentence,
        [
            *in_adze_with_forks(
                {"primal": az.program(models.tree_network_of(WIDTH, fork=True)), "gradient": both_of_tree_network()},
                phrase,
            ),
            Contender("PyTorch", Torch(), lambda: sums_in_torch(torch_tree_network, range(1, 5))),
        ],
    ),
    line(
        "phylogeny",
        "Likelihood of a tree",
        [{"species": 128}],
        alignment,
        [
            *in_adze_with_forks(phylogeny_programs(), with_tree),
            Contender("JAX, unrolled", Jax(), phylogeny_in_jax),
        ],
    ),
]
