"""Calls of functions that are written elsewhere: their arguments and results are whole buffers, row-major.

    y = solve(a, b)      =>      temporary y: f64[n]
                                 let failed = call 0 on a, b for y
                                 require failed == 0 else fail at 3

An argument that is a buffer is read where it is; others, such as a row of a matrix or a number, are copied before. What
the function raises is kept by who runs the code (``llvm/callbacks.py``), and the requirement says that it did.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import terms
from ...core.c_functions import CFunction
from ...core.language import Unsupported
from ...core.types import Type, element, f64, i64, rank
from .. import ir
from .combining import Combining
from .context import ZERO, ArrayRef, Destinations, Environment, Operand, Site


def indices_around(block: terms.Block) -> dict[int, tuple[int, ...]]:
    """For each call in a closed term the variables that are the indices of the loops around it, the outermost first."""
    found: dict[int, tuple[int, ...]] = {}

    def visit(block: terms.Block, level: int, indices: tuple[int, ...]) -> None:
        """``level`` is how many values are bound, ``indices`` the numbers of those that are indices of loops."""
        level += len(block.binders)
        for op in block.bindings:
            if op.op == "foreign":
                found[id(op)] = tuple([level - 1 - index for index in indices])
            for number, inner in enumerate(op.blocks):
                own = range(level, level + len(op.row.iterations(op)) * (number == 0))
                visit(inner, level, (*indices, *own))
            level += len(op.types)

    visit(block, 0, ())
    return found


def _failure(function: terms.Foreign, origin: terms.Origin) -> terms.Failure:
    """What a call that failed says; what a function of Python raises is raised instead."""
    if function.c is None:
        return terms.Failure("call", f"{function.name} failed", origin)
    return terms.Failure("call", f"{function.name}: {function.c.message}", origin, function.c.error)


class Calls(Combining):
    """The lowering of calls."""

    def foreign(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        function: terms.Foreign = op.static[0]
        if self.target.group:
            raise Unsupported(
                f"the function {function.name}, which is written elsewhere, runs on the host, and not on a device "
                f"(written at {op.origin})"
            )
        reads = tuple([self._given(self.atom(env, argument)) for argument in op.args])
        writes = tuple([self._made(*each) for each in zip(op.types, destinations, strict=True)])
        symbol = ""
        if function.c is not None:
            same = [site.symbol for site in self.shared.calls if site.function.c is function.c]
            symbol = same[0] if same else f"{function.c.symbol}.{len(self.shared.calls)}"
            writes = (*writes, *self._area(function.c, op))
        failed = self.variable("failed")
        iteration = tuple([self.scalar(env, terms.Variable(index, i64)) for index in self.loops_around.get(id(op), ())])
        self.emit(ir.Call(failed.name, len(self.shared.calls), reads, writes, iteration, symbol))
        given = tuple([argument.type for argument in op.args])
        self.shared.calls.append(Site(function, given, op.types, len(iteration), op.origin, symbol))
        self.emit(ir.Require(ir.apply("equal", failed, ZERO), len(self.shared.failures), (failed,) if symbol else ()))
        self.shared.failures.append(_failure(function, op.origin))
        return [
            self.array(buffer) if rank(type) else self.let("t", ir.Load(buffer, ()))
            for type, buffer in zip(op.types, writes, strict=False)
        ]

    def _area(self, function: CFunction, op: terms.Operation) -> Sequence[ir.Buffer]:
        """The work area of a function of C, if it has one."""
        if function.words is None:
            return ()
        words = function.words([argument.type for argument in op.args])
        return (self.temporary("work", f64, [self.size(words)]),)

    def _given(self, value: Operand) -> ir.Buffer:
        """The buffer of an argument: its own, where that is all of it, or one that it is copied to."""
        if not isinstance(value, ArrayRef):
            buffer = self.temporary("given", value.type, [])
            self.emit(ir.Store(buffer, (), value))
            return buffer
        if value == self.array(value.buffer):
            return value.buffer
        axes = range(len(value.order) - len(value.prefix))
        buffer = self.temporary("given", value.buffer.scalar, [value.extent(axis) for axis in axes])
        self.copy(value, self.array(buffer))
        return buffer

    def _made(self, type: Type, destination: ArrayRef | None) -> ir.Buffer:
        """Where a result goes: to its destination, where that is a whole buffer."""
        if not rank(type):
            return self.temporary("made", element(type), [])
        if destination is not None and destination == self.array(destination.buffer):
            return destination.buffer
        return self.allocate("made", type).buffer
