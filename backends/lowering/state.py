"""State and effects: sequential loops, accumulators and their updates."""

from __future__ import annotations

from ...core import terms
from ...core.types import Type, dims, rank
from ..loops import Allocate, Assign, Buffer, Declare, Expression, For, If, Load, Store, Variable
from .arrays import Arrays
from .context import ZERO, ArrayRef, Destinations, Environment, Operand


class State(Arrays):
    """The lowering of loop, accumulate and add_to."""

    def loop(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A sequential loop: scalars of the state are variables, arrays are written anew and copied back."""
        count = len(op.args) - 1
        body = op.blocks[0]
        extent = self.scalar(env, op.args[0])
        state: list[Operand] = []
        following: list[ArrayRef | None] = []
        results: list[Operand] = []
        for k in range(count):
            initial, type = self.atom(env, op.args[1 + k]), op.types[k]
            if isinstance(initial, ArrayRef):
                place = destinations[k] or self.allocate("state", type)
                self.copy(initial, place)
                state.append(place)
                following.append(self.allocate("next", type))
                results.append(place)
            else:
                name = self.fresh("state")
                self.out.append(Declare(name, initial))
                state.append(Variable(name, initial.type))
                following.append(None)
                results.append(Variable(name, initial.type))
        outputs = [
            destination or self.array(self.output(op, type, env))
            for type, destination in zip(op.types[count:], destinations[count:], strict=True)
        ]
        variable = self.loop_variable(body.names[0], op.static[0])
        with self.captured() as statements:
            current = [s if isinstance(s, ArrayRef) else self.frozen(s) for s in state]
            places = [*following, *[output.at(variable) for output in outputs]]
            after = self.block(body, env, [variable, *current], places)
            for old, new, written in zip(state, after, following, strict=False):
                if isinstance(old, ArrayRef):
                    assert written is not None
                    self.copy(written, old)
                elif isinstance(old, Variable) and not isinstance(new, ArrayRef):
                    self.out.append(Assign(old.name, new))
        self.out.append(For(variable.name, extent, "sequential", tuple(statements)))
        finals = [self.frozen(r) if isinstance(r, Variable) else r for r in results]
        return [*finals, *outputs]

    def output(self, op: terms.Operation, type: Type, env: Environment) -> Buffer:
        buffer = self.stored(op, type, env)
        self.out.append(Allocate(buffer))
        return buffer

    def accumulate(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """Accumulators are arrays that updates are added to, in place."""
        count = len(op.args)
        finals: list[ArrayRef] = []
        for k in range(count):
            place = destinations[k] or self.allocate("accumulator", op.types[k])
            self.copy(self.atom(env, op.args[k]), place)
            finals.append(place)
        results = self.block(op.blocks[0], env, finals, destinations[count:])
        values: list[Operand] = []
        for final, type in zip(finals, op.types, strict=False):
            values.append(final if rank(type) else self.let("t", Load(final.buffer, final.place(()))))
        return [*values, *results]

    def add_to(self, op: terms.Operation, env: Environment) -> None:
        """An update; one that is not proved in range is tested, and outside it has no effect."""
        target, value = self.atom(env, op.args[0]), self.scalar(env, op.args[1])
        assert isinstance(target, ArrayRef)
        indices = [self.scalar(env, a) for a in op.args[2:]]
        place = target.place(indices)
        update = Store(target.buffer, place, self.apply("add", Load(target.buffer, place), value))
        inside: Expression | None = None
        for axis, index in enumerate(indices):
            if not self.proved(index, dims(op.args[0].type)[axis]):
                below = self.apply("less", index, target.extent(axis))
                fits = self.apply("logical_and", self.apply("less_equal", ZERO, index), below)
                inside = fits if inside is None else self.apply("logical_and", inside, fits)
        self.out.append(update if inside is None else If(inside, (update,), ()))
