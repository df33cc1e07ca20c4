"""Programs and their derivatives on one OpenCL device, against what the device can do.

    python benchmarks/gpu.py [--device NAME] [--peers] [--quick] [--runs 9] [--seconds 2] [--elements N]
                             [--programs gmm scan ...] [--precisions f32 f64] [--no-checks] [--output FILE]

Arguments and results stay on the device. A call is timed from the host, until the queue has finished; kernels by their
events. Each program moves so many bytes and does so many operations at least, by the formulas of ``WORKLOADS``. The
*share* of the ceiling is the time that these would take at the rates that the device reaches in a copy and in a matrix
product (ceilings.py, in the same run), divided by the time taken.

With ``--peers`` JAX and PyTorch (peers.py) do the same on the same device, or on the CPU if that is the device, in
turns with Adze in this process. Nothing wrong is timed: at a small size everybody must agree with ``evaluate``, at each
size that is timed with the LLVM backend in f64. What fails, or takes more than ``--seconds`` a call, is said in the
table.

The tables are printed and written to benchmarks/results/gpu.md; with ``--quick`` sizes are small and f32 alone is run,
and nothing is written but where ``--output`` says. Without an OpenCL device the script says what is missing.
"""

import argparse
import dataclasses
import datetime
import functools
import importlib.metadata
import os
import shlex
import sys
import tempfile
import time
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ceilings import Ceilings, ceilings
from lines.gmm import DIFFERENTIATED, example
from lines.gmm import arguments as random_problem
from measure import error, in_turns, leaves, processor, versions
from peers import Callables, Contender, jax_peers, placed, torch_peers
from programs import kmeans, lstm
from report import RESULTS, table

import adze as az
from adze.backends.compiled import Compiled
from adze.backends.opencl.devices import Device, choose, opened
from adze.core.types import ArrayType, Scalar

Arguments = tuple[Any, ...]
Sizes = dict[str, int]
Vector = az.Array[az.f64, "n"]
Indices = az.Array[az.i64, "n"]

FUNCTIONS = ("gradient", "primal")
SCALARS = {"f32": az.f32, "f64": az.f64}
ADZE = "Adze"
PEERS = (jax_peers, torch_peers)
HEAD = ["program", "call", "range", "kernels", "range", "launches", "GB/s", "GFlop/s"]
HEAD += ["ceiling", "share", "kernels' share", "error"]
ELEMENTS = {"gpu": 1 << 26, "cpu": 1 << 22}


# The programs


@az.program
def total(x: Vector) -> az.f64:
    """The sum of squares."""
    return az.sum(x * x)


@az.program
def running(x: Vector) -> Vector:
    """All prefix sums."""
    return az.cumsum(x)


@az.program
def binned(like: az.Array[az.f64, "b"], indices: Indices, values: Vector) -> az.Array[az.f64, "b"]:
    """The sum of the values of each bin."""
    return az.histogram(lambda a, b: a + b, 0.0, az.size(like), indices, values)


@az.program
def gathered(x: az.Array[az.f64, "m"], indices: Indices) -> Vector:
    return x[indices]


@az.program
def scattered(x: az.Array[az.f64, "m"], indices: Indices, values: Vector) -> az.Array[az.f64, "m"]:
    return az.scatter(x, indices, values)


@az.program
def product(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    return a @ b


def in_precision(program: az.Program, scalar: Scalar) -> az.Program:
    """The program with another floating type in its annotations; numbers that it computes from sizes stay f64."""

    def changed(annotation: Any) -> Any:
        if typing.get_origin(annotation) is tuple:
            return tuple[tuple(map(changed, typing.get_args(annotation)))]
        if isinstance(annotation, ArrayType) and annotation.scalar == az.f64:
            return dataclasses.replace(annotation, scalar=scalar)
        return scalar if annotation == az.f64 else annotation

    given = program.function
    made = types.FunctionType(given.__code__, given.__globals__, given.__name__, given.__defaults__, given.__closure__)
    made.__annotations__ = {name: changed(a) for name, a in given.__annotations__.items() if name != "return"}
    return az.program(made)


# What is measured


@dataclasses.dataclass(frozen=True)
class Work:
    """The least that must be read, written and computed; exp and the like count as one operation."""

    values: float
    indices: float
    operations: float

    def bytes(self, scalar: Scalar) -> float:
        return self.values * scalar.dtype.itemsize + self.indices * az.i64.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Workload:
    """A program with the sizes that it is measured at.

    ``arguments`` and ``work`` take the sizes. The derivative of a number comes with its value, and is a gradient; of an
    array it is a vjp, whose cotangent is the last of ``arguments``, and comes with the array.
    """

    name: str
    program: az.Program
    argnums: tuple[int, ...]
    is_scalar: bool
    arguments: Callable[..., Arguments]
    work: Callable[..., dict[str, Work]]
    small: Sizes
    sizes: Callable[[str, int], list[Sizes]]  # for a kind of device and a number of elements

    def function(self, function: str, scalar: Scalar) -> az.Program:
        program = in_precision(self.program, scalar)
        if function == "primal":
            return program
        verb = az.value_and_grad if self.is_scalar else az.vjp
        return verb(program, argnums=self.argnums)

    def called(self, function: str) -> str:
        return "vjp" if function == "gradient" and not self.is_scalar else function

    def given(self, function: str, arguments: Arguments) -> Arguments:
        """What one of the functions takes."""
        return arguments if self.is_scalar or function == "gradient" else arguments[:-1]


def shown(name: str, sizes: Sizes) -> str:
    return f"{name} {' '.join(f'{size}={value}' for size, value in sizes.items())}"


def vector(random: np.random.Generator, n: int) -> np.ndarray:
    """Numbers that f32 holds."""
    return random.standard_normal(n, dtype=np.float32).astype(np.float64)


def one_vector(n: int) -> Arguments:
    return (vector(np.random.default_rng(1), n),)


def scan_arguments(n: int) -> Arguments:
    random = np.random.default_rng(2)
    return vector(random, n), vector(random, n)


def histogram_arguments(n: int, bins: int) -> Arguments:
    random = np.random.default_rng(3)
    return np.zeros(bins), random.integers(0, bins, n), vector(random, n), vector(random, bins)


def gather_arguments(n: int) -> Arguments:
    random = np.random.default_rng(4)
    return vector(random, n), random.permutation(n), vector(random, n)


def scatter_arguments(n: int) -> Arguments:
    random = np.random.default_rng(5)
    return vector(random, n), random.permutation(n), vector(random, n), vector(random, n)


def product_arguments(n: int) -> Arguments:
    random = np.random.default_rng(6)
    a, b, cotangent = (vector(random, n * n).reshape(n, n) for _ in range(3))
    return a, b, cotangent


def gmm_arguments(d: int, k: int, n: int) -> Arguments:
    rounded = [a.astype(np.float32).astype(np.float64) for a in random_problem(d, k, n)[:-2]]
    return (*rounded, 1.0, 0)


def kmeans_arguments(n: int, k: int, d: int) -> Arguments:
    random = np.random.default_rng(7)
    return vector(random, n * d).reshape(n, d), vector(random, k * d).reshape(k, d)


def lstm_arguments(layers: int, t: int, b: int) -> Arguments:
    random = np.random.default_rng(8)
    h, c = (vector(random, layers * b).reshape(layers, b) for _ in range(2))
    weights, ends = vector(random, layers * 8 * b).reshape(layers, 2, 4, b), vector(random, 3 * b).reshape(3, b)
    return weights, ends, (h, c), vector(random, t * b).reshape(t, b)


def gmm_work(d: int, k: int, n: int) -> dict[str, Work]:
    """The products with the factors, as the program has them: with whole matrices."""
    inputs = k + 2 * k * d + k * d * (d - 1) // 2
    operations = 2 * n * k * d * d
    return {"primal": Work(inputs + n * d, 0, operations), "gradient": Work(2 * inputs + n * d, 0, 3 * operations)}


def lstm_work(layers: int, t: int, b: int) -> dict[str, Work]:
    """A layer: four products and sums, five activations of about five operations, four more; the output: seven."""
    inputs, operations = 10 * layers * b + 3 * b, (t - 1) * b * (37 * layers + 7)
    return {"primal": Work(inputs + t * b, 0, operations), "gradient": Work(2 * inputs + t * b, 0, 3 * operations)}


WORKLOADS = [
    Workload(
        "reduce",
        total,
        (0,),
        True,
        one_vector,
        lambda n: {"primal": Work(n, 0, 2 * n), "gradient": Work(2 * n, 0, 3 * n)},
        {"n": 3000},
        lambda kind, n: [{"n": n}],
    ),
    Workload(
        "scan",
        running,
        (0,),
        False,
        scan_arguments,
        lambda n: {"primal": Work(2 * n, 0, n), "gradient": Work(4 * n, 0, 2 * n)},
        {"n": 3000},
        lambda kind, n: [{"n": n}],
    ),
    Workload(
        "histogram",
        binned,
        (2,),
        False,
        histogram_arguments,
        lambda n, bins: {"primal": Work(n + bins, n, n), "gradient": Work(2 * n + 2 * bins, n, n)},
        {"n": 3000, "bins": 10},
        lambda kind, n: [{"n": n, "bins": 64}, {"n": n, "bins": n // 16}],
    ),
    Workload(
        "gather",
        gathered,
        (0,),
        False,
        gather_arguments,
        lambda n: {"primal": Work(2 * n, n, 0), "gradient": Work(4 * n, n, n)},
        {"n": 3000},
        lambda kind, n: [{"n": n}],
    ),
    Workload(
        "scatter",
        scattered,
        (0, 2),
        False,
        scatter_arguments,
        lambda n: {"primal": Work(3 * n, n, 0), "gradient": Work(6 * n, n, 0)},
        {"n": 3000},
        lambda kind, n: [{"n": n}],
    ),
    Workload(
        "product",
        product,
        (0, 1),
        False,
        product_arguments,
        lambda n: {"primal": Work(3 * n**2, 0, 2 * n**3), "gradient": Work(6 * n**2, 0, 6 * n**3)},
        {"n": 70},
        lambda kind, n: [{"n": 512}, {"n": 1024 if kind == "cpu" else 4096}],
    ),
    Workload(
        "gmm",
        example.objective,
        DIFFERENTIATED,
        True,
        gmm_arguments,
        gmm_work,
        {"d": 5, "k": 7, "n": 90},
        lambda kind, n: [{"d": d, "k": 200, "n": n} for d in (64, 128) for n in (1000, 10000)],
    ),
    Workload(
        "kmeans",
        kmeans.cost,
        (1,),
        True,
        kmeans_arguments,
        lambda n, k, d: {
            "primal": Work((n + k) * d, 0, 3 * n * k * d),
            "gradient": Work((n + 2 * k) * d, 0, 3 * n * k * d),
        },
        {"n": 100, "k": 7, "d": 3},
        lambda kind, n: [{"n": 10000, "k": 1000, "d": 16}],
    ),
    Workload(
        "lstm",
        lstm.loss,
        (0, 1),
        True,
        lstm_arguments,
        lstm_work,
        {"layers": 2, "t": 9, "b": 5},
        lambda kind, n: [{"layers": 2, "t": 1024, "b": 14}, {"layers": 2, "t": 64, "b": 4096}],
    ),
]


# The contenders


def precise(arguments: Arguments, scalar: Scalar) -> Arguments:
    """The arguments with their floating arrays in a precision."""

    def changed(array: np.ndarray) -> np.ndarray:
        return array.astype(scalar.dtype) if array.dtype.kind == "f" else array

    return typing.cast(Arguments, placed(arguments, changed))


@dataclasses.dataclass(frozen=True)
class OnDevice:
    """A compiled program that is called until the device has finished."""

    compiled: Compiled
    queue: Any

    def __call__(self, *arguments: Any) -> Any:
        result = self.compiled(*arguments)
        self.queue.finish()
        return result


def adze_contender(workload: Workload, scalar: Scalar, device: Device, checks: bool) -> Contender:
    """Adze on a device; what is compiled first serves every size."""

    def call(function: str) -> OnDevice:
        program = workload.function(function, scalar)
        return OnDevice(az.compile(program, backend="opencl", device=device, checks=checks), opened(device).queue)

    def build() -> Callables:
        return {function: call(function) for function in FUNCTIONS}

    def convert(arguments: Arguments) -> Arguments:
        return typing.cast(Arguments, placed(arguments, lambda array: az.to_device(array, device)))

    return Contender(ADZE, build, convert)


# The measurement


@dataclasses.dataclass
class Line:
    """What was measured of one function at one size, by one contender; times are in milliseconds."""

    what: str
    contender: str
    scalar: Scalar
    work: Work
    times: np.ndarray | None = None
    kernels: np.ndarray | None = None
    launches: int = 0
    off: float = 0.0
    note: str = ""


@dataclasses.dataclass
class Session:
    """How it is measured, and what was found."""

    device: Device
    ceilings: Ceilings
    options: argparse.Namespace
    lines: list[Line] = dataclasses.field(default_factory=list)
    first: list[list[str]] = dataclasses.field(default_factory=list)  # rows on compile times
    failures: list[str] = dataclasses.field(default_factory=list)
    references: dict[Any, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    absent: dict[str, None] = dataclasses.field(default_factory=dict)  # peers that are not there, and why

    def contenders(self, workload: Workload, scalar: Scalar) -> list[Contender]:
        found = [adze_contender(workload, scalar, self.device, not self.options.no_checks)]
        for peers in PEERS if self.options.peers else ():
            those = peers(workload.name, workload.argnums, workload.is_scalar, self.device.kind != "cpu")
            if isinstance(those, str):
                self.absent[those] = None
            else:
                found += those
        return found

    def failed(self, what: str, error: Exception) -> None:
        first, _, _ = str(error).strip().partition("\n")
        self.failures.append(f"{what}: {type(error).__name__}: {first}")
        print("!", self.failures[-1], flush=True)

    def verified(self, workload: Workload, scalar: Scalar) -> list[tuple[Contender, Callables]]:
        """Those who get a small size right, with what they call; how long they took to the first result is noted."""
        arguments = precise(workload.arguments(**workload.small), scalar)
        wanted = {function: self.wanted(workload, function, arguments, az.evaluate) for function in FUNCTIONS}
        found = []
        for contender in self.contenders(workload, scalar):
            what = f"{shown(workload.name, workload.small)}, {scalar}, {contender.name}"
            try:
                moved = contender.convert(arguments)
                calls = contender.build()
            except Exception as error:
                self.failed(what, error)
                continue
            cells = [f"{workload.name}, {scalar}: {contender.name}"]
            for function in FUNCTIONS:
                try:
                    start = time.perf_counter()
                    result = calls[function](*workload.given(function, moved))
                    taken = time.perf_counter() - start
                    agree(result, wanted[function], scalar)
                    cells.append(f"{taken:.2f}")
                except Exception as error:
                    self.failed(f"{what}, {workload.called(function)}", error)
                    del calls[function]
                    cells.append("failed")
            self.first.append(cells)
            found.append((contender, calls))
        return found

    def wanted(
        self, workload: Workload, function: str, arguments: Arguments, run: Callable[[az.Program], Callable[..., Any]]
    ) -> list[np.ndarray]:
        """What is right, in f64; ``run`` is az.evaluate, or az.compile for the CPU."""
        key = workload.name, function, run
        if key not in self.references:
            self.references[key] = run(workload.function(function, az.f64))
        return leaves(self.references[key](*workload.given(function, precise(arguments, az.f64))))

    def measure(self, workload: Workload, scalar: Scalar) -> None:
        """Both functions at each size."""
        contenders = self.verified(workload, scalar)
        sizes = workload.sizes(self.device.kind, self.options.elements)
        for chosen in [workload.small] if self.options.quick else sizes:
            arguments = precise(workload.arguments(**chosen), scalar)
            moved = [contender.convert(arguments) for contender, _ in contenders]
            for function in FUNCTIONS:
                what = f"{shown(workload.name, chosen)}, {workload.called(function)}"
                work = workload.work(**chosen)[function]
                least = self.ceilings.seconds(str(scalar), work.bytes(scalar), work.operations)
                if least > self.options.seconds:
                    self.lines.append(Line(what, ADZE, scalar, work, note=f"not run, at least {least:.2g} s a call"))
                    continue
                wanted = self.wanted(workload, function, arguments, az.compile)
                self.compare(
                    [
                        (Line(what, contender.name, scalar, work), calls[function], workload.given(function, given))
                        for (contender, calls), given in zip(contenders, moved, strict=True)
                        if function in calls
                    ],
                    wanted,
                )

    def compare(self, entered: list[tuple[Line, Callable[..., Any], Arguments]], wanted: list[np.ndarray]) -> None:
        """Time in turns those who are right and fast enough."""
        ready = []
        for line, call, arguments in entered:
            self.lines.append(line)
            try:
                line.off = agree(call(*arguments), wanted, line.scalar)
                start = time.perf_counter()
                call(*arguments)
                taken = time.perf_counter() - start
            except Exception as error:
                self.failed(f"{line.what}, {line.scalar}, {line.contender}", error)
                line.note = "failed"
                continue
            if taken > self.options.seconds:
                line.note = f"not timed, {taken:.2g} s a call"
            else:
                ready.append((line, call, arguments))
        runs = self.options.runs
        turns = [functools.partial(call, *arguments) for _, call, arguments in ready]
        measured = [1e3 * times for times in in_turns(turns, 0, least=runs, most=runs)]
        for (line, call, arguments), times in zip(ready, measured, strict=True):
            line.times = times
            if isinstance(call, OnDevice):
                profiles = [call.compiled.profile(*arguments) for _ in range(self.options.runs)]
                line.kernels = np.array([1e3 * sum(row.seconds for row in profile.rows) for profile in profiles])
                line.launches = sum(int(row.runs) for row in profiles[0].rows)
            print(f"{line.what}, {line.scalar}, {line.contender}: {np.median(times):.4g} ms", flush=True)


def agree(result: Any, wanted: list[np.ndarray], scalar: Scalar) -> float:
    """The largest error of a result, relative to the largest magnitude; half of the digits must be right."""
    off = error(leaves(result), wanted)
    assert off <= np.sqrt(np.finfo(scalar.dtype).eps), f"off by {off:.1e}"
    return off


# The report


def spread(times: np.ndarray) -> list[str]:
    """The median and the range."""
    least, middle, most = np.percentile(times, (0, 50, 100))
    return [f"{middle:.3g}", f"{least:.3g} to {most:.3g}"]


def of_ceiling(line: Line, limits: Ceilings) -> list[str]:
    """A row: the times, the rates, and the share of the ceiling by the whole call and by the kernels alone."""
    if line.times is None or line.kernels is None:
        return [line.what, line.note, *[""] * (len(HEAD) - 2)]
    count, operations, scalar = line.work.bytes(line.scalar), line.work.operations, str(line.scalar)
    least = limits.seconds(scalar, count, operations)
    seconds, in_kernels = 1e-3 * np.median(line.times), 1e-3 * np.median(line.kernels)
    return [
        line.what,
        *spread(line.times),
        *spread(line.kernels),
        f"{line.launches}",
        f"{1e-9 * count / seconds:.3g}",
        f"{1e-9 * operations / seconds:.3g}",
        "copy" if least == count / limits.copied else "product",
        f"{100 * least / seconds:.3g} %",
        f"{100 * least / in_kernels:.3g} %",
        f"{line.off:.0e}",
    ]


def compared(line: Line) -> list[str]:
    return [
        f"{line.what}, {line.scalar}: {line.contender}",
        *(spread(line.times) if line.times is not None else [line.note, ""]),
    ]


def packages() -> str:
    """What took part, beside what ``versions`` tells."""
    found = []
    for package in ("pyopencl", "torch"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def report(session: Session) -> str:
    device, options = session.device, session.options
    checks = "without the checks of indices" if options.no_checks else "with the checks of indices and sizes"
    parts = [
        "# Programs on an OpenCL device",
        f"{datetime.date.today()}: {device.name} ({device.kind}, {device.compute_units} compute units, "
        f"{device.memory / 2**30:.1f} GiB) of {device.platform}, driver {device.driver}; host {processor()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {versions()}, {packages()}.",
        f"    {shlex.join(['python', 'benchmarks/gpu.py', *_without_output(sys.argv[1:])])}",
        f"Ceilings: {session.ceilings}.",
        f"Medians and ranges of {options.runs} runs in turns, in milliseconds, {checks}, arguments and results on "
        "the device, compile time apart. A *call* is timed from the host until the queue has finished; *kernels* is "
        "the sum of their times by the device's events. GB/s and GFlop/s count what the formulas in the script say "
        "is moved and computed at least, by the time of a call. The *share* is the time that this would take at the "
        "ceilings (the one that binds is named), of the time of a call, and of the kernels'. A gradient comes with "
        "the value, a vjp with the result. The error is relative to the largest magnitude, against f64 on the CPU.",
    ]
    for scalar in options.precisions:
        lines = [line for line in session.lines if line.contender == ADZE and str(line.scalar) == scalar]
        parts += [f"## {scalar}", table(HEAD, [of_ceiling(line, session.ceilings) for line in lines])]
    parts += ["## Against others", *others(session)]
    parts += [
        "## Compile time",
        "Seconds from the program to its first result at a small size, with no code cached. What Adze compiles serves "
        "every size.",
        table(["s", *FUNCTIONS], session.first),
    ]
    if session.failures:
        parts += ["## What failed", "\n".join(f"- {failure}" for failure in session.failures)]
    return "\n\n".join(parts) + "\n"


def _without_output(arguments: Sequence[str]) -> list[str]:
    """The arguments that say what is measured, and not where the tables go."""
    if "--output" not in arguments:
        return list(arguments)
    place = arguments.index("--output")
    return [*arguments[:place], *arguments[place + 2 :]]


def others(session: Session) -> list[str]:
    if not session.options.peers:
        return ["Not run: `--peers` adds JAX and PyTorch."]
    parts = [f"Not run: {reason}." for reason in session.absent]
    if len(session.absent) < len(PEERS):
        where = (
            "on its GPU"
            if session.device.kind != "cpu"
            else f"on the CPU, on their default threads, of {os.cpu_count()} cores"
        )
        parts += [
            f"Milliseconds of a call, as above; JAX (compiled, without TF32) and PyTorch (eager) {where}. "
            "`JAX, Qx - Qμ` multiplies the mixture model's product out, into one matrix product.",
            table(["program", "call", "range"], [compared(line) for line in session.lines]),
        ]
    return parts


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Programs and their derivatives on an OpenCL device.")
    parser.add_argument("--device", help="its index or a part of its name, as az.compile takes it")
    parser.add_argument("--peers", action="store_true", help="run JAX and PyTorch, too")
    parser.add_argument("--quick", action="store_true", help="small sizes in f32, to see that all is right")
    parser.add_argument("--runs", type=int, default=9, help="how often everything is measured (at least 9)")
    parser.add_argument("--seconds", type=float, default=2, help="no call that takes longer is timed")
    parser.add_argument("--elements", type=int, help="of the long vectors")
    parser.add_argument("--programs", nargs="+", help="the names of those to run", choices=[w.name for w in WORKLOADS])
    parser.add_argument("--precisions", nargs="+", choices=list(SCALARS))
    parser.add_argument("--no-checks", action="store_true", help="compile with checks=False")
    parser.add_argument("--output", type=Path, help="the file for the tables")
    options = parser.parse_args()
    if options.runs < 9:
        parser.error("--runs: a median needs at least 9")
    return options


def main() -> int:
    options = read_options()
    with tempfile.TemporaryDirectory() as folder:
        # Compile times are those of a first run.
        os.environ |= {"PYOPENCL_NO_CACHE": "1", "POCL_CACHE_DIR": folder, "CUDA_CACHE_DISABLE": "1"}
        try:
            device = choose(options.device)
        except (ImportError, RuntimeError) as error:
            print(f"not measured: {error}")
            return 0
        options.elements = options.elements or ELEMENTS["cpu" if device.kind == "cpu" else "gpu"]
        options.precisions = options.precisions or [
            s for s in SCALARS if s == "f32" or (device.double and not options.quick)
        ]
        limits = ceilings(device, {name: SCALARS[name].dtype for name in options.precisions}, options.quick)
        print(limits, flush=True)
        session = Session(device, limits, options)
        for workload in WORKLOADS:
            if not options.programs or workload.name in options.programs:
                for scalar in options.precisions:
                    session.measure(workload, SCALARS[scalar])
    text = report(session)
    print(text)
    output = options.output or (None if options.quick else RESULTS / "gpu.md")
    if output is not None:
        output.parent.mkdir(exist_ok=True)
        output.write_text(text, encoding="utf-8")
        print(f"table: {output}")
    return 1 if session.failures else 0


if __name__ == "__main__":
    sys.exit(main())
