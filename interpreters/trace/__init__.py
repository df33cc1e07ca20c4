"""The straight-line program that one input takes: a run, recorded step by step, with no control flow left.

    trace = az.trace(f)(5.0, 3.0)
    print(trace)                    # every step, with its value
    trace.program                   # a program again: print it, evaluate it, differentiate it, compile it

A trace keeps some types and traces the others away: functions, tuples and declared types always, and what ``keep``
leaves out. An operation whose result is kept is a step; of a branch only what was chosen is seen, of a loop every
turn, of a function its body where it is applied. ``keeping.py`` says what stays as it is, ``control.py`` what
becomes of control flow, ``lanes.py`` and ``elements.py`` of the array constructs, with arrays kept and without.

Two laws hold, and are tested over all programs. Evaluating the trace's program on the same input gives the same
result; and its trace is itself. (van Hus: Maintaining parallelism in reverse-mode automatic differentiation on
functional parallel array languages, section 3; the laws are his equations 8 and 9.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core import trees
from ...core.builder import build, current
from ...core.environment import Env
from ...core.expr import Expr, as_expr
from ...core.functions import as_typed
from ...core.limits import lifted_limits
from ...core.placement import to_block
from ...core.presented import presented
from ...core.program import Instance, P, Program, as_program
from ...core.showing import Shown
from ...core.source import at_line
from ...core.terms import Block, Literal, Operation, Origin, Variable
from ...core.types import FunctionType, element, i64
from ...core.verb import Function
from ..embed import Embed
from ..evaluate import Show, call, print_probe
from ..evaluate.functions import deeply, uses_functions
from ..pretty.steps import printed
from .elements import Elements
from .inputs import Inputs
from .keeping import Keeping, has_order
from .lanes import Lanes
from .recording import Known, Recorder


@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """The steps of one run. ``block`` is straight-line: binding k is step k, and ``values[k]`` are its results."""

    name: str  # of the program
    block: Block
    given: Inputs  # what the parameters of the block are
    values: Sequence[tuple[Any, ...]]
    outputs: trees.Shape  # the structure of the result
    keep: frozenset[str]
    without_rules: Origin | None  # where a function with derivatives of its own was taken apart, and lost them

    @property
    def inputs(self) -> Sequence[Any]:
        """The values of the block's parameters."""
        return self.given.values

    @cached_property
    def program(self) -> Program:
        """The trace as a program, of arguments with the sizes of this run."""
        return Program.of_term(
            self.block, self.outputs, _Inlined(self.block, self.outputs), self.name, self.given.parameters
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the program takes to do this run again."""
        leaves, found = iter(self.inputs), []
        for parameter in self.given.parameters:
            assert parameter.declared is not None
            shape = parameter.declared.shape
            found.append(trees.unflatten(shape, [next(leaves) for _ in range(shape.leaves)]))
        return tuple(found)

    @property
    def result(self) -> trees.Structure:
        """What the program gave."""
        bound = [*self.inputs, *[value for values in self.values for value in values]]
        found = [self._value(atom, bound) for atom in self.block.results]
        return trees.unflatten(self.outputs, [np.array(value, order="C")[()] for value in found])

    def _value(self, atom: Any, bound: Sequence[Any]) -> Any:
        if isinstance(atom, Variable):
            return bound[len(bound) - 1 - atom.index]
        return atom.type.dtype.type(atom.value) if isinstance(atom, Literal) else atom.array

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.block.bindings)

    def __repr__(self) -> str:
        return f"<trace of {self.name}: {len(self)} step{'' if len(self) == 1 else 's'}>"

    def __str__(self) -> str:
        return printed(self.name, self.block, self.inputs, self.values, self.outputs)


def trace(
    program: Function[P, Any],
    *,
    keep: str | Iterable[str] = "arrays",
    show: Show = print_probe,
) -> Callable[P, Trace]:
    """The program as a function that runs it, and gives the trace of the run.

    ``keep`` says which types stay: "reals", "scalars", "arrays" (scalars and arrays), or a collection of "reals",
    "integers", "booleans" and "arrays". Raises ValueError for a choice that is impossible, TypeError when the result
    has a type that does not stay, and what ``evaluate`` raises for arguments that do not fit.

    >>> import adze as az
    >>> @az.program
    ... def power(x: az.f64, n: az.i64) -> az.f64:
    ...     return az.fori_loop(0, n, lambda i, y: y * x, 1.0)
    >>> print(az.trace(power, keep="reals")(2.0, 3))
    trace of power at x = 2.0, n = 3
      t1 = 1.0 * x  # 2.0
      t2 = t1 * x   # 4.0
      t3 = t2 * x   # 8.0
      return t3
    """
    if isinstance(program, Expr):
        raise TypeError(at_line("az.trace runs a program and shows its steps; of a matrix there is az.linalg.trace"))
    family = program.program if isinstance(program, Instance) else as_program(program)
    runnable, keeping = (program if isinstance(program, Instance) else family), Keeping(keep)

    def run(*args: P.args, **kwargs: P.kwargs) -> Trace:
        instance, arrays, sizes = call(runnable, args, kwargs)
        return traced(instance, arrays, sizes, keeping, show)

    return presented(run, "trace", family, result=Trace)


def traced(
    instance: Instance, arguments: Sequence[Any], sizes: dict[str, int], keeping: Keeping, show: Show = print_probe
) -> Trace:
    """The trace of an instance at arguments that are converted."""
    _check_results(instance, keeping)
    tracer = (Lanes if keeping.arrays else Elements)(sizes, keeping, show)
    tracer.shows = has_order(instance.term)
    inputs = Inputs(instance, arguments)
    tracer.recorder = recorder = Recorder(0, inputs.types, inputs.names)
    entries = inputs.leaves(
        lambda level: _entry(tracer, Known(inputs.values[level], inputs.types[level], level)),
        lambda value, type, what: _function(tracer, value, type, f"{instance.program.name}: argument {what!r}"),
    )

    def run() -> Block:
        with np.errstate(all="ignore"), lifted_limits():
            results = instance.term.interpret(tracer).run(Env(), entries)
            return recorder.block(tracer.atoms(results))

    block = deeply(run) if uses_functions(instance.term) else run()
    name = instance.program.name
    return Trace(name, block, inputs, recorder.values, instance.outputs, keeping.kinds, tracer.without_rules)


def _check_results(instance: Instance, keeping: Keeping) -> None:
    for type, path in zip(instance.term.types, trees.paths(instance.outputs), strict=True):
        if not keeping(type):
            kept = ", ".join(sorted(keeping.kinds))
            message = f"trace({instance.program.name}): the result{path} is {type}, which is traced away"
            raise TypeError(at_line(f"{message} (kept: {kept})"))


def _entry(tracer: Lanes | Elements, known: Known) -> Any:
    """An argument: dropped, or kept, or read element by element."""
    keeping, recorder = tracer.keeping, tracer.recorder
    if keeping(known.type):
        return known
    if not keeping.parts(known.type):
        return Known(known.value, known.type)
    assert isinstance(tracer, Elements)
    parts, scalar = tracer.entry(known.value, known.type), element(known.type)
    for place in np.ndindex(parts.shape):
        atoms = (recorder.atom(known.level, known.type), *[Literal.of(i, i64) for i in place])
        (parts[place],) = recorder.emit(Operation("index", (), atoms, (), (scalar,)), [known.value[place]])
    return parts


def _function(tracer: Lanes | Elements, value: Any, type: FunctionType, what: str) -> Any:
    """A function given from Python, which must be one of expressions, too: its steps are to be seen."""
    try:
        with build() as builder:
            function = as_typed(value.__wrapped__, tracer.concrete(type), what)
            block, _ = to_block([], [function], builder.scopes[0].statements, [])
    except Exception as error:
        error.add_note(f"while reading {what} as a function of expressions, whose steps a trace can see")
        raise
    tracer.shows = tracer.shows or has_order(block)
    return block.interpret(tracer).run(Env(), [])[0]


@dataclass(frozen=True)
class _Inlined:
    """A term as a function of expressions."""

    block: Block
    outputs: trees.Shape

    def __call__(self, *arguments: Any) -> trees.Structure:
        """The result, built where the arguments are."""
        builder = current()
        leaves = [as_expr(leaf).value for leaf in trees.flatten(arguments)[0]]
        results = self.block.interpret(Embed(builder))(Env(), leaves)
        return trees.unflatten(self.outputs, [Expr(value, builder) for value in results])
