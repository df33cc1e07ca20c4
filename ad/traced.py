"""Derivatives of one run: the verbs of reverse mode, by a trace and the return sweep over it.

``az.grad(f, via="trace")`` is a Python function. Each call runs f, records the trace, and sweeps back over it; nothing
is derived beforehand and nothing is compiled. So it takes everything that evaluate runs: recursion, closures, lists and
trees, of which the cotangent is a list or tree of cotangents. Inside a program there is no run to trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import trees
from ..core.annotations import fresh
from ..core.arguments import array_of_type
from ..core.builder import building
from ..core.dims import Dim
from ..core.expr import Expr
from ..core.functions import description
from ..core.language import Unsupported
from ..core.limits import lifted_limits
from ..core.presented import presented
from ..core.program import Instance, Program
from ..core.source import at_line
from ..core.types import Type, array_of, element, is_float
from ..interpreters.evaluate import call
from ..interpreters.trace import Trace, traced
from ..interpreters.trace.keeping import Keeping
from .differentiating import without_aux
from .tape import reverse


def goes_via_trace(verb: str, f: Any, via: Any, workers: Any) -> bool:
    """Whether a verb goes via the trace. Raises ValueError for another way, and for workers that it has no use for."""
    if via not in ("program", "trace"):
        raise ValueError(at_line(f"{verb}: via is 'program' or 'trace', not {via!r}"))
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(at_line(f"{verb}: workers is a number of threads, at least 1, not {workers!r}"))
    if via == "program" and workers != 1:
        compiled = f"a compiled program takes threads: az.compile(..., threads={workers})"
        raise ValueError(at_line(f"{verb}: workers are for via='trace'; {compiled}"))
    if via == "trace" and isinstance(f, Instance):
        message = (
            f"{verb} via='trace' takes a program, not one version of it: the arguments of a call choose the version"
        )
        raise TypeError(at_line(f"{message}; write az.{verb}({f.program.name}, via='trace')"))
    return bool(via == "trace")


@dataclass(frozen=True)
class Run:
    """A run of a program, recorded."""

    verb: str
    program: Program
    trace: Trace
    output: trees.Shape  # of what is differentiated: the first part of the result where something comes with it
    workers: int

    @staticmethod
    def of(
        verb: str, program: Program, args: Sequence[Any], kwargs: dict[str, Any], has_aux: bool, workers: int
    ) -> Run:
        if building() or any(isinstance(leaf, Expr) for leaf in trees.flatten((*args, *kwargs.values()))[0]):
            message = (
                f"{verb}({program.name}): via='trace' differentiates a run on numbers, and here a program is built"
            )
            raise TypeError(at_line(f"{message}; use az.{verb}({program.name})"))
        instance, arrays, sizes = call(program, args, kwargs)
        trace = traced(instance, arrays, sizes, Keeping("arrays"))
        if trace.without_rules is not None:
            what = "a function with derivatives of its own, which are lost as it captures a function that is a value"
            instead = "give it that function as a function of Python, which is inlined"
            error = Unsupported(f"{verb}({program.name}): via='trace' takes apart {what}: {instead}")
            error.origin = trace.without_rules
            raise error
        name, output = f"{verb}({program.name})", trace.outputs
        return Run(verb, program, trace, without_aux(name, program, output) if has_aux else output, workers)

    @property
    def name(self) -> str:
        return f"{self.verb}({self.program.name})"

    @property
    def result(self) -> Any:
        """What is differentiated."""
        return self.trace.result if self.output is self.trace.outputs else self.trace.result[0]

    @property
    def aux(self) -> Any:
        """What comes with it."""
        return self.trace.result[1]

    def pullback(self, seeds: Sequence[Any | None], argnums: Sequence[int] | None) -> list[Any]:
        """The cotangents of parameters (None: of those with floating parts), in their structure, None at the rest."""
        trace = self.trace
        dynamic = [number for number, parameter in enumerate(self.program.parameters) if not parameter.static]
        chosen = [argnums is None or dynamic[owner] in argnums for owner in trace.given.owners]
        seeds = [*seeds, *[None] * (len(trace.block.results) - len(seeds))]
        with lifted_limits():
            found = reverse(trace.block, trace.inputs, trace.values, seeds, self.workers, chosen=chosen)
        cotangents = dict(zip(dynamic, trace.given.arguments(lambda k: found[k]), strict=True))
        floating = [number for number, cotangent in cotangents.items() if trees.flatten(cotangent)[0]]
        for number in argnums or ():
            if number not in floating:
                name = self.program.parameters[number].name
                raise TypeError(at_line(f"{self.name}: parameter {name!r} has no floating part to differentiate"))
        return [cotangents[number] for number in (floating if argnums is None else argnums)]

    def scalar(self) -> list[Any]:
        """The cotangent 1 of a result that is a floating scalar; TypeError where it is none."""
        types = self.trace.block.types
        if self.output != trees.LEAF or not is_float(types[0]) or types[0] != element(types[0]):
            given = types[0] if self.output == trees.LEAF else description(self.result)
            message = f"{self.name}: the gradient is that of one floating scalar, but {self.program.name}"
            raise TypeError(at_line(f"{message} returns {given}; az.vjp takes a cotangent of any result"))
        return [1.0]

    def fitting(self, cotangent: Any) -> list[Any | None]:
        """The leaves of a cotangent of the result, None where nothing moves; TypeError if it does not fit."""
        what = f"{self.name}: the cotangent"
        try:
            leaves = trees.matched(self.output, cotangent)
        except TypeError as error:
            path, problem = error.args
            message = f"{what} has another structure than the result: {path or 'it'} {problem}"
            raise TypeError(at_line(message)) from None
        types = self.trace.block.types[: len(leaves)]
        typed = zip(leaves, types, trees.paths(self.output), strict=True)
        return [
            None if leaf is None or not is_float(type) else self._of_type(leaf, type, f"{what}{path}")
            for leaf, type, path in typed
        ]

    def _of_type(self, leaf: Any, type: Type, what: str) -> Any:
        array = array_of_type(leaf, type, what)
        given = array_of(element(type), tuple(map(Dim.of, array.shape)))
        if given != type:
            raise ValueError(at_line(f"{what} is {given}, but belongs to a result of type {type}"))
        return array


def gradient(
    verb: str, f: Program, argnums: Sequence[int], single: bool, has_aux: bool, workers: int
) -> Callable[..., Any]:
    """``grad`` or ``value_and_grad`` of each call."""

    def run(*args: Any, **kwargs: Any) -> Any:
        made = Run.of(verb, f, args, kwargs, has_aux, workers)
        gradients = made.pullback(made.scalar(), argnums)
        found: Any = gradients[0] if single else tuple(gradients)
        if verb == "value_and_grad":
            return made.trace.result, found
        return (found, made.aux) if has_aux else found

    return presented(run, verb, f)


def pulled(f: Program, argnums: Sequence[int] | None, has_aux: bool, workers: int) -> Callable[..., Any]:
    """``vjp`` of each call: the result, then the cotangents, then what comes with the result."""
    name = fresh("cotangent", [parameter.name for parameter in f.parameters])

    def run(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(f.parameters):
            kwargs = {name: args[-1], **kwargs}
            args = args[:-1]
        if name not in kwargs:
            raise TypeError(at_line(f"vjp({f.name}) takes the arguments of {f.name}, and a cotangent of its result"))
        cotangent = kwargs.pop(name)
        result, pullback, *aux = pull(f, f.bind(args, kwargs), argnums, has_aux, workers)
        return (result, *pullback(cotangent), *aux)

    return presented(run, "vjp", f, [name])


def pull(
    f: Program, primals: Sequence[Any], argnums: Sequence[int] | None, has_aux: bool, workers: int
) -> tuple[Any, ...]:
    """The result of a run, and the function from its cotangents to those of the arguments: the trace is made once.

    With ``has_aux`` what comes with the result is third.
    """
    run = Run.of("vjp", f, primals, {}, has_aux, workers)

    def pulled_back(cotangent: Any) -> tuple[Any, ...]:
        return tuple(run.pullback(run.fitting(cotangent), argnums))

    return (run.result, pulled_back, run.aux) if has_aux else (run.result, pulled_back)
