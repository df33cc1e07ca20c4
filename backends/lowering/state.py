"""Sequential loops, for and while: their scalars are variables, their arrays stay in memory and are never copied.

Where a next state is, is known beforehand (``interpreters/in_place.py``). A state that is updated where it is needs
no more than its memory. States of which some are new in every iteration, or which change places, share a *pool*, one
buffer of several slots, and variables that say who is in which; an iteration ends by exchanging these numbers:

    u = loop t < steps with u: for i < n: u[i-1] + u[i+1]

    pool: f64[2, n];  now, free = 0, 1
    for t < steps
      for i < n
        pool[free, i] = pool[now, i-1] + pool[now, i+1]
      now, free = free, now
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...core import terms
from ...core.types import Type, element, rank
from ...interpreters.in_place import own_updates, segment_of, written_first
from .. import ir
from .arrays import Arrays
from .context import ZERO, ArrayRef, Destinations, Environment, Operand


@dataclass
class _Pool:
    """States that change places, and where new ones go: the numbers of their slots are variables."""

    buffer: ir.Buffer
    members: list[int]  # the states
    fresh: list[int]  # those of which an iteration makes a new one
    slots: dict[int, ir.Variable]  # by member: where it is
    free: list[ir.Variable]


@dataclass
class _Inside:
    """A state in an iteration: its values, where new ones go, and the present numbers of slots."""

    values: list[Operand]
    places: list[ArrayRef | None]
    slots: dict[int, ir.Expression]  # by state
    free: dict[int, ir.Expression]  # by state that is made anew


class State(Arrays):
    """The lowering of loop and while."""

    def loop(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """A loop of so many iterations, whose outputs are written as they come."""
        count = len(op.args) - 1
        extent = self.scalar(env, op.args[0])
        inner = segment_of(op)
        if inner is not None and all(source != k for k, source in enumerate(self.places.of(inner).sources)):
            return self.in_segments(op, inner, extent, env, destinations)
        states = _States(self, op, 1, env, destinations)
        outputs = [
            destination or self.output(op, type, env)
            for type, destination in zip(op.types[count:], destinations[count:], strict=True)
        ]
        body = op.blocks[0]
        variable = self.loop_variable(body.names[0], op.static[0])
        with self.over(variable, extent), self.turns_of(states, body, 1, variable):
            inside = states.enter()
            given, places = [variable, *inside.values], [*inside.places, *[output.at(variable) for output in outputs]]
            for k, parameter in written_first(body, count).items():
                destination, places[k] = places[k], None
                assert destination is not None
                self.copy(given[parameter], destination)
            states.leave(inside, self.block(body, env, given, places))
        return [*states.results(), *outputs]

    def in_segments(
        self,
        op: terms.Operation,
        inner: terms.Operation,
        extent: ir.Expression,
        env: Environment,
        destinations: Destinations,
    ) -> list[Operand]:
        """A loop of which each iteration is nothing but some of the iterations of a loop over the same states.

        That is a loop with checkpoints, where no derivative wants these. The states are those of all iterations.
        """
        body, steps = op.blocks[0], inner.blocks[0]
        initials = [self.atom(env, arg) for arg in op.args[1:]]
        states = _States(self, inner, 1, env, destinations, initials)
        turn = self.declare("turn", ZERO)
        variable = self.loop_variable(body.names[0], op.static[0])
        with self.over(variable, extent):
            before = terms.Block(body.binders, body.bindings[:-1], ())
            within = self.bindings(before, env.enter([variable, *states.enter().values]), ())
            length = self.scalar(within, inner.args[0])
            step = self.loop_variable(steps.names[0], inner.static[0])
            with self.over(step, length), self.turns_of(states, steps, 1, turn):
                inside = states.enter()
                states.leave(inside, self.block(steps, within, [step, *inside.values], inside.places))
                self.assign(turn, turn + 1)
        return states.results()

    def output(self, op: terms.Operation, type: Type, env: Environment) -> ArrayRef:
        buffer = self.stored(op, type, env)
        self.emit(ir.Allocate(buffer))
        return self.array(buffer)

    def while_loop(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """As long as the test holds; the trips are counted."""
        states = _States(self, op, 0, env, destinations)
        trips = self.declare("trips", ZERO)
        with self.captured() as head:
            inside = states.enter()
            (test,) = self.block(op.blocks[0], env, inside.values, [None])
            assert not isinstance(test, ArrayRef)
            test = self.let("test", test)
        with self.captured() as body:
            with self.turns_of(states, op.blocks[1], 0, trips):
                states.leave(inside, self.block(op.blocks[1], env, inside.values, inside.places))
            self.assign(trips, trips + 1)
        self.emit(ir.While(tuple(head), test, tuple(body)))
        return [*states.results(), self.frozen(trips)]

    @contextmanager
    def turns_of(self, states: _States, body: terms.Block, first: int, turn: ir.Expression) -> Iterator[None]:
        """Tell updates of states that make the next ones in which turns of the loop all of a slot is to be written.

        Where nothing else writes into the slots, what such an update leaves is the same in each turn. After as many
        turns as states change places, all slots have it.
        """
        around, self.whole_turns = self.whole_turns, {}
        for k, (op, which) in own_updates(body, first).items():
            pool = states.pool_of(k)
            if pool is not None and len(pool.fresh) == 1 and all(states.intact[member] for member in pool.members):
                self.whole_turns[id(op), which] = turn < len(pool.members)
        yield
        self.whole_turns = around


class _States:
    """The states of one loop."""

    def __init__(
        self,
        lowering: State,
        op: terms.Operation,
        first: int,
        env: Environment,
        destinations: Destinations,
        initials: Sequence[Operand] | None = None,
    ) -> None:
        self.lowering = lowering
        count = len(op.args) - first
        self.types = op.types[:count]
        places = lowering.places.of(op)
        self.sources = places.sources or (None,) * count
        self.intact = places.intact or (True,) * count  # whether no iteration writes where a state is
        self.held: dict[int, Operand] = {}  # variables of scalars, and the memory of arrays that stay where they are
        self.pools: list[_Pool] = []
        initials = [lowering.atom(env, arg) for arg in op.args[first:]] if initials is None else initials
        for k, (initial, type) in enumerate(zip(initials, self.types, strict=True)):
            if not isinstance(initial, ArrayRef):
                self.held[k] = lowering.declare("state", initial)
            elif self.sources[k] == k:
                place = initial if places.taken[k] else destinations[k] or lowering.allocate("state", type)
                if place != initial:
                    lowering.copy(initial, place)
                self.held[k] = place
        for members in _cycles([k for k, type in enumerate(self.types) if rank(type)], self.sources):
            if members[0] not in self.held:
                self.pools.append(self.pool(members, initials))

    def pool(self, members: list[int], initials: Sequence[Operand]) -> _Pool:
        lowering = self.lowering
        like = lowering.buffer("states", self.types[members[0]])
        fresh = [k for k in members if self.sources[k] is None]
        slots = ir.Constant(len(members) + len(fresh))
        pool = _Pool(
            ir.Buffer(like.name, element(self.types[members[0]]), (slots, *like.extents)), members, fresh, {}, []
        )
        lowering.emit(ir.Allocate(pool.buffer))
        for number, k in enumerate((*members, *fresh)):
            variable = lowering.declare("slot", ir.Constant(number))
            if number < len(members):
                pool.slots[k] = variable
                lowering.copy(initials[k], lowering.array(pool.buffer).at(ir.Constant(number)))
            else:
                pool.free.append(variable)
        return pool

    def pool_of(self, state: int) -> _Pool | None:
        """Where a state changes places, if it does."""
        return next((pool for pool in self.pools if state in pool.members), None)

    def enter(self) -> _Inside:
        """The states in an iteration."""
        frozen = self.lowering.frozen
        values: dict[int, Operand] = {}
        for k, held in self.held.items():
            values[k] = held if isinstance(held, ArrayRef) else frozen(held)
        inside = _Inside([], [None] * len(self.types), {}, {})
        for pool in self.pools:
            whole = self.lowering.array(pool.buffer)
            for k in pool.members:
                inside.slots[k] = frozen(pool.slots[k])
                values[k] = whole.at(inside.slots[k])
            for k, variable in zip(pool.fresh, pool.free, strict=True):
                inside.free[k] = frozen(variable)
                inside.places[k] = whole.at(inside.free[k])
        inside.values = [values[k] for k in range(len(self.types))]
        return inside

    def leave(self, inside: _Inside, after: Sequence[Operand]) -> None:
        """The end of an iteration, which made the next states."""
        assign: list[ir.Statement] = []
        for k, held in self.held.items():
            value = after[k]
            if isinstance(held, ir.Variable) and not isinstance(value, ArrayRef):
                assign.append(ir.Assign(held.name, value))
            else:
                assert held == value
        for pool in self.pools:
            for k in pool.members:
                source = self.sources[k]
                assert source is None or after[k] == inside.values[source]
                assign.append(ir.Assign(pool.slots[k].name, inside.free[k] if source is None else inside.slots[source]))
            left = [inside.slots[k] for k in pool.members if k not in self.sources]
            assign.extend([ir.Assign(variable.name, slot) for variable, slot in zip(pool.free, left, strict=True)])
        self.lowering.out.extend(assign)

    def results(self) -> list[Operand]:
        """The final states."""
        final = self.enter()
        return final.values


def _cycles(states: Sequence[int], sources: Sequence[int | None]) -> list[list[int]]:
    """The states in groups: those that change places with each other."""
    group = {k: [k] for k in states}
    for k in states:
        source = sources[k]
        if source is not None and group[k] is not group[source]:
            group[k].extend(group[source])
            for member in group[source]:
                group[member] = group[k]
    return [members for k, members in group.items() if members[0] == k]
