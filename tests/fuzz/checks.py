"""What must hold for a case. A check that fails raises :class:`Wrong`, with its name and how to see it.

*Base*: the term is well-typed and folds to itself; evaluate gives the same one element at a time and in batches;
the simplified term is well-typed; compiled code gives the same, with the case's configuration, and the same bits on
another number of threads, signs of zeros included; and one derivative: forward against differences, reverse against
forward, or a trace against reverse, each compiled, too. *Cross*: all derivatives, every switch of the schedule, two of
its decisions the other way, without checks, without annotations, and the plain interpreter. *OpenCL*: the program and
its gradient on a device.

A program that evaluate refuses, or that fails in it with an error of the user's, must fail in the same way everywhere.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any
from unittest import mock

import numpy as np
from agreement import leaves, same_bits
from plain import Plain
from richardson import along

import adze as az
from adze.core import trees

from .cases import SWITCHES, Case, Configuration
from .sensitivity import Reference

ERRORS = (ValueError, IndexError, ZeroDivisionError, TypeError, OverflowError)  # of the user's program
MODES = ("base", "cross", "opencl")
DIRECTIONS = """random = np.random.default_rng(0)
quarters = lambda x: (random.integers(-8, 9, np.shape(x)) / 4).astype(np.asarray(x).dtype)
"""


@dataclass(frozen=True)
class Outcome:
    """``kind`` is "passed", "refused" (with the same error everywhere), "failed", "crash" or "timeout"."""

    kind: str
    check: str = ""
    message: str = ""
    calls: str = ""  # what to write after the text of the case

    @property
    def signature(self) -> tuple[str, str, str]:
        """What stays while a failure shrinks."""
        return self.kind, self.check, self.message.split(":")[0] if self.kind == "failed" else ""


class Wrong(Exception):
    def __init__(self, check: str, message: str, calls: str) -> None:
        super().__init__(check, message, calls)
        self.outcome = Outcome("failed", check, message, calls)


class Refused(Exception):
    """The program is refused, or fails, for a reason of its own."""


def checked(case: Case, mode: str = "base") -> Outcome:
    """Check a case in one of the modes."""
    try:
        with np.errstate(all="ignore"):
            Checks(case).run(mode)
    except Refused as refused:
        return Outcome("refused", message=str(refused))
    except Wrong as wrong:
        return wrong.outcome
    return Outcome("passed")


class Checks:
    def __init__(self, case: Case) -> None:
        self.case, self.configuration = case, case.configuration
        self.program, self.arguments = case.program(), case.arguments()
        self.file = f"<fuzz {case.seed} "

    def run(self, mode: str) -> None:
        reference = self.evaluated()
        if mode == "opencl":
            self.on_device(reference)
            return
        self.compiled("compile", self.program, "f", self.arguments, reference, self.configuration)
        for kind in ("forward", "reverse", "trace") if mode == "cross" else (self.configuration.derivative,):
            self.derivative(kind, reference)
        if mode == "cross":
            self.cross(reference)

    @cached_property
    def pushforward(self) -> az.Program:
        return az.jvp(self.program)

    @cached_property
    def pullback(self) -> az.Program:
        return az.vjp(self.program)

    # Running

    @contextmanager
    def running(self, check: str, calls: str) -> Iterator[None]:
        """What goes wrong inside, and is no error of the user's program, is a failure of this check."""
        try:
            yield
        except (Wrong, Refused):
            raise
        except BaseException as error:
            raise Wrong(check, f"{type(error).__name__}: {innermost(error)}", calls) from error

    def outcome(self, run: Callable[[], Any]) -> Any:
        """What a call gives: its result, or the error of the user's program that it raised."""
        try:
            return run()
        except ERRORS as error:
            if self.is_user_error(error):
                return error
            raise

    def is_user_error(self, error: BaseException) -> bool:
        """Whether it names the program's file, or comes from Python that is written there (``2 % 0``)."""
        says = self.file in str(error) or any(self.file in note for note in getattr(error, "__notes__", ()))
        return says or traceback.extract_tb(error.__traceback__)[-1].filename.startswith(self.file)

    def agree(self, check: str, calls: str, reference: Any, run: Callable[[], Any]) -> Any:
        """Run it, and compare with a reference: a :class:`Reference`, or an error."""
        with self.running(check, calls):
            found = self.outcome(run)
        if isinstance(reference, BaseException) or isinstance(found, BaseException):
            wanted = reference if isinstance(reference, BaseException) else None
            if type(found) is not type(wanted):
                if isinstance(reference, Reference) and not reference.disturbed:
                    raise Refused("a requirement is decided by rounding")
                raise Wrong(check, f"errors: {found!r:.300}, not {wanted!r:.300}", calls)
            raise Refused(f"{type(found).__name__} {str(found)[:60]}")
        problem = reference.agrees(found)
        if problem:
            raise Wrong(check, f"values: {problem}", calls)
        return found

    # Checks

    def evaluated(self) -> Any:
        """Evaluate in all its ways; what the program means, or the error that it is."""
        program, arguments = self.program, self.arguments
        calls = "az.check(f)\nprint(az.evaluate(f)(*arguments))\n"
        with self.running("build", calls):
            found = self.outcome(lambda: program.instance_for(program.bind(arguments, {})))
            term = found if isinstance(found, BaseException) else self.outcome(lambda: found.term)
            if isinstance(term, BaseException):
                raise Refused(f"built: {type(term).__name__} {str(term)[:60]}")
            az.check(term)
            if term.interpret(az.Reify()) != term:
                raise AssertionError("a term does not fold to itself")
            result = self.outcome(lambda: az.evaluate(program)(*arguments))
        reference = self.reference(program, arguments, result)
        if not self.case.large:
            calls += "print(az.evaluate(f, vectorize=False)(*arguments))\n"
            with suppress(Refused):
                self.agree("elements", calls, reference, lambda: az.evaluate(program, vectorize=False)(*arguments))
        with self.running("simplify", "az.pretty(f)\n"):
            az.check(az.simplify(found))
        return reference

    def reference(self, program: az.Program, arguments: Sequence[Any], result: Any, finite: bool = False) -> Any:
        if isinstance(result, BaseException):
            return result
        return Reference(program, arguments, self.case.large, result, finite)

    def compiled(
        self,
        check: str,
        program: Any,
        name: str,
        arguments: Sequence[Any],
        reference: Any,
        how: Configuration,
        lines: str = "",
    ) -> None:
        """Compiled code gives the reference's results, and the same bits on another number of threads."""
        threads = 1 if how.threads > 1 else 3
        calls = f'os.environ["ADZE_DEBUG"] = "{how.debug}"\n' if how.debug else ""
        calls += f"{lines}print({name_of(name)}(*arguments))\nprint(az.compile({name}, {how.options()})(*arguments))\n"
        with mock.patch.dict(os.environ, ADZE_DEBUG=how.debug):
            run = az.compile(program, threads=how.threads, schedule=dict(how.schedule))
            found = self.agree(check, calls, reference, lambda: run(*arguments))
            calls = calls + f"print(az.compile({name}, {replace(how, threads=threads).options()})(*arguments))\n"
            with self.running(f"{check} on threads", calls):
                same_bits(az.compile(program, threads=threads, schedule=dict(how.schedule))(*arguments), found)

    def derivative(self, kind: str, reference: Any) -> None:
        """By the floating parameters, in a direction or with a cotangent of quarters."""
        program, arguments = self.program, self.arguments
        places = [k for k, argument in enumerate(arguments) if np.asarray(argument).dtype.kind == "f"]
        if not places or isinstance(reference, BaseException):
            return
        value = reference.result
        random = np.random.default_rng(self.case.seed)

        def quarters(like: Any) -> Any:
            array = np.asarray(like)
            if array.dtype.kind != "f":
                return np.zeros(array.shape, array.dtype)[()]
            return (random.integers(-8, 9, array.shape) / 4).astype(array.dtype)[()]

        direction = [quarters(arguments[k]) for k in places]
        floating = [leaf for leaf in leaves(value) if leaf.dtype.kind == "f"]
        cotangent = trees.tree_map(quarters, value)
        lines = DIRECTIONS
        if kind == "forward":
            call = [*arguments, *self.tangents(direction)]
            wanted = range(len(arguments)) if not self.configuration.annotated else places
            lines += f"tangents = [quarters(arguments[k]) if k in {places} else None for k in {list(wanted)}]\n"
            lines += "arguments = (*arguments, *tangents)\n"
            tangent = self.verb("jvp", self.pushforward, "az.jvp(f)", call, lines)
            if tangent is not None and self.case.float == "az.f64" and not self.case.large:
                self.against_differences(direction, [x for x in leaves(tangent[1]) if x.dtype.kind == "f"], lines)
            return
        if len(floating) != len(leaves(value)):
            return
        lines += "arguments = (*arguments, az.core.trees.tree_map(quarters, az.evaluate(f)(*arguments)))\n"
        call = [*arguments, cotangent]
        if kind == "reverse":
            pulled = self.verb("vjp", self.pullback, "az.vjp(f)", call, lines)
            if pulled is not None:
                self.transposed(direction, cotangent, pulled[1:], lines)
            return
        with self.running("trace", lines + 'az.vjp(f, via="trace")(*arguments)\n'):
            traced = self.outcome(lambda: az.vjp(program, via="trace")(*call))
        result = self.outcome(lambda: az.evaluate(self.pullback)(*call))
        self.agree("trace", lines + 'print(az.vjp(f, via="trace")(*arguments), az.evaluate(az.vjp(f))(*arguments))\n',
                   self.reference(self.pullback, call, result, self.case.special), lambda: traced)  # fmt: skip

    def verb(self, check: str, program: az.Program, name: str, call: Sequence[Any], lines: str) -> Any:
        """Evaluate and compile a derivative."""
        calls = lines + f"print(az.evaluate({name})(*arguments))\n"
        with self.running(check, calls):
            result = self.outcome(lambda: az.evaluate(program)(*call))
            if isinstance(result, BaseException):
                raise Wrong(check, f"errors: {result!r:.300}, and the program has none", calls)
        reference = self.reference(program, call, result, self.case.special)
        self.compiled(f"compiled {check}", program, name, call, reference, self.configuration, lines)
        return result

    def tangents(self, direction: Sequence[Any]) -> list[Any]:
        """One for each parameter that may be floating: those without an annotation, too."""
        if self.configuration.annotated:
            return list(direction)
        remaining = iter(direction)
        return [next(remaining) if np.asarray(x).dtype.kind == "f" else None for x in self.arguments]

    def transposed(self, direction: Sequence[Any], cotangent: Any, pulled: Sequence[Any], lines: str) -> None:
        """<v, J u> = <J^T v, u>."""
        call = [*self.arguments, *self.tangents(direction)]
        with self.running("jvp", lines):
            tangent = leaves(az.evaluate(self.pushforward)(*call)[1])
        kept = [part for part in pulled if part is not None]
        pairs = [zip(leaves(cotangent), tangent, strict=True), zip(kept, direction, strict=True)]
        left, right = (sum(float(np.sum(np.float64(a) * b)) for a, b in terms) for terms in pairs)
        if not (np.isfinite(left) and np.isfinite(right)):
            return
        count = sum(map(np.size, tangent)) + sum(map(np.size, direction))
        roundings = 512 * max(count, 1) * float(np.finfo(leaves(cotangent)[0].dtype).eps)
        if abs(left - right) <= roundings:  # whatever is largest
            return
        reference = Reference(self.pushforward, call, self.case.large, tangent)
        backward = Reference(self.pullback, [*self.arguments, cotangent], self.case.large, pulled)
        if reference.plain.overflowed or backward.plain.overflowed:
            return
        bound = roundings * max(reference.plain.largest, backward.plain.largest)
        if abs(left - right) > bound and not self.kinked(reference, backward):
            raise Wrong("transposed", f"values: <v, J u> = {left}, <J^T v, u> = {right}", lines)

    def kinked(self, *references: Reference) -> bool:
        """Whether errors of rounding move the derivatives by much more than these: something is decided by them."""
        for reference in references:
            runs = reference.disturbed
            if not runs:
                return True
            for other in runs:
                for a, b in zip(other, runs[0], strict=True):
                    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True):
                        return True
        return False

    def against_differences(self, direction: Sequence[Any], tangent: Sequence[Any], lines: str) -> None:
        if (
            self.case.special
            or "stop_gradient" in self.case.body
            or not all(np.all(np.isfinite(part)) for part in tangent)
        ):
            return
        if sum(map(np.size, self.arguments)) > 300:
            return
        try:
            difference = along(self.program, self.arguments, direction)
        except ERRORS:  # sizes or places that move with the arguments
            return
        if not difference.reliable or any(np.shape(a) != np.shape(b) for a, b in zip(difference.values, tangent)):
            return
        for got, value, error in zip(tangent, difference.values, difference.errors, strict=True):
            allowed = 16 * error + 1e-6 * np.maximum(1.0, np.abs(value))
            if np.any(np.abs(got - value) > allowed):
                raise Wrong(
                    "differences", f"values: {got} and {value}", lines + "print(az.evaluate(az.jvp(f))(*arguments))\n"
                )

    # More than that

    def cross(self, reference: Any) -> None:
        f, arguments = self.program, self.arguments
        for number, switch in enumerate(SWITCHES, self.case.seed):
            how = Configuration(1, ((switch, False),), optimised=number % 3 == 0)
            self.compiled(f"compile without {switch}", f, "f", arguments, reference, how)
        for name, taken in self.decisions():
            how = Configuration(1, (("force", {name: not taken}),))
            self.compiled("compile with another decision", f, "f", arguments, reference, how)
        calls = "print(az.evaluate(f)(*arguments))\nprint(az.compile(f, checks=False)(*arguments))\n"
        if not isinstance(reference, BaseException):
            self.agree("compile without checks", calls, reference, lambda: az.compile(f, checks=False)(*arguments))
        other = Checks(
            replace(self.case, configuration=replace(self.configuration, annotated=not self.configuration.annotated))
        )
        if not other.is_refused_by_types():
            other.compiled("compile annotated otherwise", other.program, "f", arguments, reference, self.configuration)
        if not self.case.large and isinstance(reference, Reference):
            instance = f.instance_for(f.bind(arguments, {}))

            def plain() -> Any:
                return trees.unflatten(instance.outputs, Plain.run(instance, f.leaves(arguments)).results)

            self.agree("plain", "# tests/plain.py\n", reference, plain)

    def decisions(self) -> list[tuple[str, bool]]:
        """Two decisions of the scheduler, drawn from those for the arguments, and whether they are taken."""
        run = az.compile(self.program, threads=1)
        with self.running("decisions", "print(az.compile(f).decisions(*arguments))\n"):
            found = self.outcome(lambda: run.decisions(*self.arguments))
        rows = [] if isinstance(found, BaseException) else found.rows
        return Random(self.case.seed).sample([(row.name, row.taken) for row in rows], min(2, len(rows)))

    def is_refused_by_types(self) -> bool:
        """Whether sizes of annotations contradict each other in a place that a run need not come to.

        Without annotations such a program is one that runs as long as it does not come there.
        """
        if not self.configuration.annotated:
            return False
        return isinstance(self.outcome(lambda: self.program.at().term), TypeError)

    def on_device(self, reference: Any) -> None:
        f, arguments = self.program, self.arguments
        calls = 'print(az.evaluate(f)(*arguments))\nprint(az.compile(f, backend="opencl")(*arguments))\n'
        self.agree("opencl", calls, reference, lambda: az.compile(f, backend="opencl")(*arguments))
        if isinstance(reference, BaseException):
            return
        places = [k for k, argument in enumerate(arguments) if np.asarray(argument).dtype.kind == "f"]
        if places and all(leaf.dtype.kind == "f" for leaf in leaves(reference.result)):
            ones = trees.tree_map(np.ones_like, reference.result)
            call, program = [*arguments, trees.tree_map(lambda x: x[()], ones)], self.pullback
            lines = "arguments = (*arguments, az.core.trees.tree_map(np.ones_like, az.evaluate(f)(*arguments)))\n"
            calls = lines + 'print(az.compile(az.vjp(f), backend="opencl")(*arguments))\n'
            result = az.evaluate(program)(*call)
            self.agree("opencl vjp", calls, self.reference(program, call, result, self.case.special),
                       lambda: az.compile(program, backend="opencl")(*call))  # fmt: skip


def name_of(name: str) -> str:
    return f"az.evaluate({name})"


def innermost(error: BaseException) -> str:
    """Where in the package an error was raised, and what it says."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}fuzz{os.sep}" not in frame.filename
    ]
    where = f"{os.path.basename(frames[-1].filename)} in {frames[-1].name}" if frames else ""
    return f"{where}: {str(error)[:300]}"
