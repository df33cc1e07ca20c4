"""Who takes part: a tool with the programs that somebody who knows it would write.

A *line* of the benchmark is a program with its derivative at several sizes. Its contenders are tools, each with its
own version of both functions: Adze, JAX (compiled, 64 bits), PyTorch, Numba, NumPy. Where there are two good ways to
write a program in a tool, both take part under names of their own. Programs are made when they are needed, since that
imports the tool.

    Contender("JAX", Jax(), lambda: {"cost": cost, "direction": direction})
"""

import contextlib
import functools
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import adze as az
from adze.backends.compiled import Compiled
from adze.backends.llvm import control

Arguments = tuple[Any, ...]
Sizes = dict[str, int]
Call = Callable[..., Any]
Programs = Callable[[], Mapping[str, Any]]

# Of every tool, where nothing else is said: two, or one in a process that was confined to one core before it began.
THREADS = min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


@dataclass(frozen=True)
class Then:
    """A program of a tool, and what Python makes of its result in each call."""

    program: Any
    finish: Call


@dataclass(frozen=True)
class Tool:
    """NumPy and SciPy, and what other tools do differently."""

    package = "numpy"
    library = True  # whether it calls routines that are compiled already

    def start(self) -> None:
        """What a process does once, before anything is compiled or timed."""

    def convert(self, arguments: Arguments) -> Arguments:
        """Arguments as the tool likes them, which is no part of a run."""
        return arguments

    def build(self, program: Any) -> Call:
        """What is timed: the program, which may be compiled when it is first called."""
        return program  # type: ignore[no-any-return]

    def compile(self, program: Any, arguments: Arguments) -> Call:
        """The program compiled for such arguments without running it, where the tool can do that."""
        return self.build(program)


@dataclass(frozen=True)
class Adze(Tool):
    """Adze, which flushes subnormal numbers as JAX does.

    With ``into`` results are written over those of the first call (``out=``).
    """

    threads: int = THREADS
    into: bool = False
    package = "adze"
    library = False

    def start(self) -> None:
        az.compile(_twice)(np.zeros(3))

    def build(self, program: Any) -> Call:
        compiled = az.compile(program, threads=self.threads, flush_subnormals=control.X86)
        if not self.into:
            return compiled
        results: list[Any] = []

        def call(*given: Any) -> Any:
            results.append(compiled(*given, out=results.pop()) if results else compiled(*given))
            return results[0]

        return call

    def compile(self, program: Any, arguments: Arguments) -> Call:
        compiled = az.compile(program, threads=self.threads, flush_subnormals=control.X86)
        compiled.bind(*arguments)  # compiles what a call with these takes, and runs nothing
        return compiled


def planned(call: Call, arguments: Arguments) -> int | None:
    """The most bytes that a call of a program of Adze's takes; None for others, and where the run decides them."""
    if isinstance(call, Compiled):
        with contextlib.suppress(ValueError):
            return call.peak_bytes(*arguments)
    return None


@az.program
def _twice(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    return 2 * x


@dataclass(frozen=True)
class Jax(Tool):
    """JAX; ``static`` are the arguments that are compiled in, such as sizes."""

    static: tuple[int, ...] = ()
    package = "jax"
    library = False

    def start(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.block_until_ready(jax.jit(lambda x: 2 * x)(jax.numpy.zeros(3)))

    def convert(self, arguments: Arguments) -> Arguments:
        import jax

        def converted(value: Any) -> Any:
            return jax.numpy.asarray(value) if isinstance(value, np.ndarray) else value

        return tuple(v if k in self.static else jax.tree.map(converted, v) for k, v in enumerate(arguments))

    def build(self, program: Any) -> Call:
        """What is timed is the jitted function: it has JAX's fast path for calls."""
        import jax

        jitted = jax.jit(program, static_argnums=self.static)
        return lambda *given: jax.block_until_ready(jitted(*given))

    def compile(self, program: Any, arguments: Arguments) -> Call:
        import jax

        compiled = jax.jit(program, static_argnums=self.static).lower(*arguments).compile()
        return lambda *given: jax.block_until_ready(
            compiled(*(value for k, value in enumerate(given) if k not in self.static))
        )


@dataclass(frozen=True)
class Torch(Tool):
    """PyTorch, eager."""

    package = "torch"

    def start(self) -> None:
        import torch

        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        torch.set_num_threads(THREADS)
        (2 * torch.zeros(3)).sum()

    def convert(self, arguments: Arguments) -> Arguments:
        import torch

        def converted(value: Any) -> Any:
            if isinstance(value, tuple | list):
                return type(value)(map(converted, value))
            if isinstance(value, dict):
                return {name: converted(part) for name, part in value.items()}
            return torch.as_tensor(value) if isinstance(value, np.ndarray) else value

        return tuple(map(converted, arguments))

    def build(self, program: Any) -> Call:
        import torch

        return torch.no_grad()(program)


@dataclass(frozen=True)
class CompiledTorch(Torch):
    """PyTorch with programs made by ``torch_compiled``, whose compiler needs one for C++."""

    library = False
    needs = "g++"


def torch_compiled(f: Call) -> Call:
    """A function that PyTorch compiles, and differentiates, when it is first called."""
    import torch

    return torch.compile(f)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Numba(Tool):
    """Numba: loops over NumPy's arrays, compiled; those over ``numba.prange`` run on all threads."""

    package = "numba"
    library = False

    def start(self) -> None:
        import numba

        numba.set_num_threads(THREADS)
        numba.njit(lambda x: 2 * x)(np.zeros(3))

    def build(self, program: Any) -> Call:
        import numba

        return numba.njit(program, parallel=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Contender:
    """A tool, and the functions of a line by their names; not every tool has every function.

    ``library`` says that a program calls a routine of the library for all of it, in a tool that compiles others.
    """

    name: str
    tool: Tool
    programs: Programs
    library: bool = False

    def call(self, function: str, arguments: Arguments | None = None) -> Call:
        """What is timed, or what is compiled for these arguments before."""
        program = self.programs()[function]
        inner = program.program if isinstance(program, Then) else program
        call = self.tool.build(inner) if arguments is None else self.tool.compile(inner, arguments)
        return (lambda *given: program.finish(call(*given))) if isinstance(program, Then) else call

    @property
    def is_library(self) -> bool:
        return self.library or self.tool.library

    @property
    def is_there(self) -> bool:
        needed = getattr(self.tool, "needs", "")
        return importlib.util.find_spec(self.tool.package) is not None and (not needed or bool(shutil.which(needed)))


def adze(programs: Mapping[str, Any]) -> list[Contender]:
    """Adze on two threads and on one."""
    return [
        Contender("Adze", Adze(), lambda: programs),
        Contender("Adze, 1 thread", Adze(threads=1), lambda: programs),
    ]


def adze_into(programs: Mapping[str, Any]) -> Contender:
    """Adze on two threads, which writes to arrays that are there."""
    return Contender("Adze, out=", Adze(into=True), lambda: programs)


# Derivatives, as each tool has them


def of_jax(f: Call, argnums: int | tuple[int, ...] = 0, with_value: bool = False) -> dict[str, Call]:
    """A function to a number and its gradient, in JAX."""
    import jax

    return {"primal": f, "gradient": (jax.value_and_grad if with_value else jax.grad)(f, argnums=argnums)}


def of_torch(f: Call, argnums: Sequence[int] = (0,), with_value: bool = False) -> dict[str, Call]:
    """A function to a number and its gradient, in PyTorch; argument by argument."""
    import torch

    def gradient(*given: Any) -> Any:
        with torch.enable_grad():
            arguments = list(given)
            for k in argnums:
                arguments[k] = given[k].detach().requires_grad_()
            value = f(*arguments)
            slopes = torch.autograd.grad(value, [arguments[k] for k in argnums])
        slope = slopes[0] if len(argnums) == 1 else slopes
        return (value.detach(), slope) if with_value else slope

    return {"primal": f, "gradient": gradient}


def pulled_by_jax(f: Call, argnums: Sequence[int]) -> dict[str, Call]:
    """A function to an array and its vjp, which takes a cotangent last and gives the result, too; in JAX."""
    import jax

    def pulled(*given: Any) -> Any:
        *arguments, cotangent = given

        def chosen(*parts: Any) -> Any:
            replaced = dict(zip(argnums, parts, strict=True))
            return f(*(replaced.get(k, a) for k, a in enumerate(arguments)))

        result, pullback = jax.vjp(chosen, *(arguments[k] for k in argnums))
        return result, pullback(cotangent)

    return {"primal": f, "vjp": pulled}


def pulled_by_torch(f: Call, argnums: Sequence[int]) -> dict[str, Call]:
    """The same in PyTorch."""
    import torch

    def pulled(*given: Any) -> Any:
        *arguments, cotangent = given
        with torch.enable_grad():
            for k in argnums:
                arguments[k] = arguments[k].detach().requires_grad_()
            result = f(*arguments)
            return result.detach(), torch.autograd.grad(result, [arguments[k] for k in argnums], cotangent)

    return {"primal": f, "vjp": pulled}


# Lines


@dataclass(frozen=True)
class Line:
    """A program with its derivative, the sizes at which it is measured, and who takes part.

    ``arguments`` takes the sizes; ``given`` chooses from these what a function takes, where they differ. ``main`` is
    the size for compile time and memory. ``work`` counts the operations of the formula, to compare a program with its
    *sibling*, one that differs in what nobody tuned for. ``moved`` counts the bytes that each function must read and
    write at least, where these bind.
    """

    name: str
    title: str
    sizes: Sequence[Sizes]
    arguments: Callable[..., Arguments]
    contenders: Sequence[Contender]
    functions: tuple[str, ...] = ("primal", "gradient")
    main: Sizes = field(default_factory=dict)
    given: Callable[[str, Arguments], Arguments] = lambda function, arguments: arguments
    work: Callable[..., float] | None = None
    sibling_of: str = ""
    moved: Mapping[str, Callable[..., float]] = field(default_factory=dict)
    tolerance: float = 1e-8
    notes: str = ""
    ablated: bool = False  # whether it is measured what each transformation gains for its derivative

    def __post_init__(self) -> None:
        assert self.main in self.sizes, f"{self.name}: {self.main} is none of its sizes"

    @property
    def derivative(self) -> str:
        return self.functions[1] if len(self.functions) > 1 else ""


def shown(sizes: Sizes) -> str:
    """Sizes as they are written."""
    return " ".join(f"{name}={value}" for name, value in sizes.items())


@functools.cache
def started(tool: Tool) -> None:
    """Start a tool, once."""
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    tool.start()
