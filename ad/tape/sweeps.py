"""The return sweep through a block, at the top of a trace or in a batch of lanes.

A *scope* is a block that was run: its values, in the batch where they were computed. ``Sweep.backward`` goes through
its plan (``plan.py``): a step whose slots are all filled is *resolved*: its cotangents are summed, its rule gives the
contributions to what it used, and these fill slots in turn. No order is fixed beforehand (van Hus, section 4.1).

A construct with blocks is a scope of its own: the block is run again for all lanes at once, with every value kept,
and swept backwards with vectors. What a block reads from outside gets one contribution from the whole construct,
summed over the lanes (van Hus, section 4.3.1: the unofficial ancestors). The rules of primitives are in
``partials.py``, those of folds in ``folds.py``; a construct without a rule here is derived by reverse mode on terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from typeguard import typeguard_ignore

from ...core.environment import Env
from ...core.language import Unsupported
from ...core.terms import Atom, Block, Failure, Foreign, Operation, Variable
from ...core.types import Type, element, rank
from ...interpreters.evaluate import Evaluate, Show
from ...interpreters.evaluate.batches import Atom as AtomMeaning
from ...interpreters.evaluate.batches import Code, Irregular, Step, extent_of
from .cotangents import Sparse, combined
from .plan import Plan, Use, make_plan, shape_of, variables

Contributions = dict[int, Any]  # by the index of a variable
Rule = Callable[["Visit", list[Any]], None]  # gives the contributions, for the cotangents of the results


@dataclass(frozen=True)
class Final:
    """What an accumulator is in a return sweep: the cotangent of its final value, or None."""

    cotangent: Any


class Values(Evaluate):
    """The reference interpreter for values that were computed before: they need no checks, and are not shown again."""

    quiet = True

    def add_to(self, accumulator: AtomMeaning, value: AtomMeaning, indices: Sequence[AtomMeaning]) -> Step:
        step = super().add_to(accumulator, value, indices)
        return Step(lambda env: () if isinstance(accumulator.run(env), Final) else step.run(env), step.effects)

    def require(self, test: AtomMeaning, failure: Failure, values: Sequence[AtomMeaning]) -> Step:
        step = super().require(test, failure, values)
        return Step(lambda env: () if self.quiet else step.run(env), step.effects)

    def foreign(self, function: Foreign, args: Sequence[AtomMeaning]) -> Step:
        step = super().foreign(function, args)

        def run(env: Env[Any]) -> Sequence[Any]:
            if function.effects and self.quiet:
                raise Unsupported(f"{function.name} has effects, and the sweep over the trace would run it again")
            return step.run(env)

        return Step(run, step.effects)

    def probe(self, name: str, values: Sequence[AtomMeaning]) -> Step:
        step = super().probe(name, values)
        return Step(
            lambda env: [value.run(env) for value in values] if self.quiet else step.run(env),
            step.effects,
        )


@dataclass
class Scope:
    """A block that was run: ``environments[k]`` is what step k saw."""

    plan: Plan
    values: Sequence[Any]
    environments: Sequence[Env[Any]] | Mapping[int, Env[Any]]
    outer: Env[Any]


class Sweep:
    """The return sweep of one thread: the rule of each construct, and what probes do (``probes``: with which names)."""

    def __init__(self, rules: Callable[[str], Rule], show: Show, probes: Mapping[str, str]) -> None:
        self.rules, self.probes = rules, probes
        self.evaluate = Values({}, show=show)
        self._codes: dict[Block, Code] = {}
        self._steps: dict[Operation, Step] = {}
        self._plans: dict[Any, Plan] = {}
        self._atoms: dict[Atom, Any] = {}

    # Meanings, looked up once

    @property
    def batch(self) -> tuple[int, ...]:
        return self.evaluate.batch

    def code(self, block: Block) -> Code:
        found = self._codes.get(block)
        if found is None:
            found = self._codes[block] = block.interpret(self.evaluate)
        return found

    def step(self, operation: Operation) -> Step:
        found = self._steps.get(operation)
        if found is None:
            found = self._steps[operation] = self.evaluate.meaning_of_operation(operation)
        return found

    def plan(self, block: Block, visit: Visit, *moving: tuple[bool, ...]) -> Plan:
        """The plan for a block of a construct: which of its parameters, results and accumulators move."""
        key = block, visit.active, visit.sinks, moving
        found = self._plans.get(key)
        if found is None:
            binders, seeded, *finals = moving
            found = self._plans[key] = make_plan(block, visit.active, binders, seeded, visit.sinks, *finals)
        return found

    def value(self, atom: Atom, env: Env[Any]) -> Any:
        if isinstance(atom, Variable):
            return env.get(atom.index)
        return self.constant(atom)

    def constant(self, atom: Atom) -> Any:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self.evaluate.meaning_of_atom(atom).run(Env())
        return found

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Code that runs for the first time, meanwhile: its requirements are checked, and its probes shown."""
        self.evaluate.quiet = False
        try:
            yield
        finally:
            self.evaluate.quiet = True

    # A block forward, with its values kept

    def forward(self, plan: Plan, env: Env[Any], binders: Sequence[Any]) -> Scope:
        """Run those steps of a block whose values its return sweep reads."""
        outer, env = env, env.enter(binders)
        values, environments = list(binders), []
        for operation, needed in zip(plan.block.bindings, plan.needed, strict=True):
            environments.append(env)
            made = self.step(operation).run(env) if needed else (None,) * len(operation.types)
            values.extend(made)
            env = env.extend(made)
        return Scope(plan, values, environments, outer)

    # ... and backward

    def backward(self, scope: Scope, seeds: Sequence[Any]) -> tuple[list[Any], Contributions]:
        """The cotangents of the block's parameters, and those of what it reads from outside by index."""
        state = State(scope.plan)
        ready = state.begin(seeds)
        while ready:
            self.resolve(scope, state, ready.pop(), ready)
        return self.finish(scope, state)

    def finish(self, scope: Scope, state: State) -> tuple[list[Any], Contributions]:
        """What a sweep gives when all is resolved."""
        plan, found = scope.plan, {}
        for index, given in state.outer.items():
            found[index] = combined(given, shape_of(plan.outer_types[index], scope.outer.get(index)), self.batch)
        return [self.total(scope, state, level) for level in range(len(plan.block.binders))], found

    def wholes(self, scope: Scope, totals: Sequence[Any]) -> list[Any]:
        """The cotangents of a block's parameters as arrays."""
        types = scope.plan.block.binders
        return [
            total.dense(self.shape(scope, level), self.batch, element(types[level]).dtype.type(0))
            if isinstance(total, Sparse)
            else total
            for level, total in enumerate(totals)
        ]

    @typeguard_ignore  # once for every step of a trace
    def total(self, scope: Scope, state: State, level: int) -> Any:
        """The cotangent of a value, all of whose contributions have arrived: their sum, in the order of the slots."""
        given, state.given[level] = state.given[level], None
        total = None
        for contribution in given or ():
            if type(contribution) is Sparse and len(given) > 1:  # type: ignore[arg-type]
                return combined(given, self.shape(scope, level), self.batch)  # type: ignore[arg-type]
            if contribution is not None:
                total = contribution if total is None else total + contribution
        return total

    def shape(self, scope: Scope, level: int) -> tuple[int, ...]:
        block, k = scope.plan.block, scope.plan.owner[level]
        type = block.binders[level] if k < 0 else block.bindings[k].types[level - scope.plan.starts[k]]
        return shape_of(type, scope.values[level])

    @typeguard_ignore  # once for every step of a trace
    def operands(self, scope: Scope, start: int, atoms: Sequence[Atom]) -> list[Any]:
        """The values of atoms of the step whose results begin at a level."""
        values, found = scope.values, []
        for atom in atoms:
            if type(atom) is Variable:
                level = start - 1 - atom.index
                found.append(values[level] if level >= 0 else scope.outer.get(~level))
            else:
                found.append(self.constant(atom))
        return found

    @typeguard_ignore  # once for every step of a trace
    def resolve(self, scope: Scope, state: State, k: int, ready: list[int]) -> None:
        """Sum a step's cotangents, and fill the slots of what it used; steps that are complete then are ready."""
        plan = scope.plan
        uses = plan.uses[k]
        assert uses is not None
        start = plan.starts[k]
        operation = plan.block.bindings[k]
        rule = plan.rules[k]
        if rule is not None:  # y = f(a): a_bar += (df/da) y_bar
            cotangent = self.total(scope, state, start)
            if cotangent is None:
                contributions: Sequence[Any] = [None] * len(uses)
            else:
                found = self.operands(scope, start, operation.args)
                found.append(scope.values[start])
                found.append(cotangent)
                contributions = rule.run(found, self.code)
        elif operation.op == "index":  # y = a[i]: a_bar[i] += y_bar
            cotangent = self.total(scope, state, start)
            places = None if cotangent is None else tuple(self.operands(scope, start, operation.args[1:]))
            contributions = [None if places is None else Sparse([(places, cotangent)])]
        else:
            cotangents = [self.total(scope, state, start + j) for j in range(len(operation.types))]
            if plan.sinks[k] or any(cotangent is not None for cotangent in cotangents):
                given = self.construct(scope, k, operation, cotangents)
                contributions = [given.get(start - 1 - level) for level, _ in uses]
            else:
                contributions = [None] * len(uses)
        state.fill(uses, contributions, ready)

    def construct(self, scope: Scope, k: int, operation: Operation, cotangents: list[Any]) -> Contributions:
        """The contributions of a construct to the variables that it reads, by index."""
        start, uses = scope.plan.starts[k], scope.plan.uses[k]
        assert uses is not None
        results = scope.values[start : start + len(operation.types)]
        active = frozenset([start - 1 - level for level, _ in uses])
        visit = Visit(self, operation, scope.environments[k], active, scope.plan.sinks[k], results)
        try:
            self.rules(operation.op)(visit, cotangents)
        except Unsupported as error:
            if error.origin is None:
                error.origin = operation.origin
            raise
        return visit.contributions()

    # Loops at once

    def once(
        self, visit: Visit, body: Block, binders: Sequence[Any], seeds: Sequence[Any], finals: Sequence[Any] = ()
    ) -> None:
        """Sweep a block for one value of its parameters, which are constant, and give what it reads its share.

        ``finals`` are the cotangents of parameters that are accumulators.
        """
        seeded, taking = [tuple([one is not None for one in given]) for given in (seeds, finals)]
        plan = self.plan(body, visit, (), seeded, taking)
        visit.add(self.backward(self.forward(plan, visit.env, binders), seeds)[1])

    def lanes(
        self, visit: Visit, body: Block, extents: Sequence[int], columns: Sequence[Any], rows: Any = None
    ) -> None:
        """Sweep a loop's body for all indices (or first indices ``rows``), and give what it reads its share.

        ``columns`` are the cotangents of the body's results (or None): the axes of the loop, then their own, then those
        of the batch. As many lanes run at once as evaluate allows; where something differs along the batch that must
        not, or has an order, they run one by one.
        """
        if 0 in extents:
            return
        rows = np.arange(extents[0]) if rows is None else rows
        seeded = tuple([column is not None for column in columns])
        plan = self.plan(body, visit, (), seeded)
        lanes = math.prod(self.batch) * math.prod(extents[1:])
        chunk = max(1, self.evaluate.largest // max(1, lanes))
        ordered = self.code(body).effects.ordered
        for low in range(0, extents[0], chunk):
            part = (min(chunk, extents[0] - low), *extents[1:])
            if not ordered:
                try:
                    here = slice(low, low + part[0])
                    self._at_once(visit, plan, rows[here], part, [None if c is None else c[here] for c in columns])
                    continue
                except Irregular:
                    pass
            for index in np.ndindex(part):
                place = (low + index[0], *index[1:])
                scope = self.forward(plan, visit.env, [rows[place[0]], *[np.int64(i) for i in place[1:]]])
                visit.add(self.backward(scope, [None if c is None else c[place] for c in columns])[1])

    def _at_once(self, visit: Visit, plan: Plan, rows: Any, extents: Sequence[int], columns: Sequence[Any]) -> None:
        axes, behind = len(extents), self.batch
        batch = (*reversed(extents), *behind)
        indices, seeds = [], []
        for axis, extent in enumerate(extents):
            index = np.arange(extent) if axis else rows
            indices.append(index.reshape((extent,) + (1,) * (len(behind) + axis)))
        for column in columns:
            if column is not None:
                own = range(axes, np.ndim(column) - len(behind))
                rest = range(np.ndim(column) - len(behind), np.ndim(column))
                column = column.transpose(*own, *reversed(range(axes)), *rest)
            seeds.append(column)
        with self.evaluate.inside(batch, self.evaluate.mask):
            found = self.backward(self.forward(plan, visit.env, indices), seeds)[1]
        visit.add(self.outside(found, plan, visit.env, batch, axes))

    def outside(
        self, found: Contributions, plan: Plan, env: Env[Any], batch: tuple[int, ...], axes: int
    ) -> Contributions:
        """Contributions from a batch as they are outside of its innermost loops."""
        left: Contributions = {}
        for index, given in found.items():
            if given is None:
                continue
            type = plan.outer_types[index]
            for axis in range(axes):
                inner = batch[axis:]
                if isinstance(given, Sparse):
                    given = given.outside(inner)
                else:
                    with self.evaluate.inside(inner, self.evaluate.mask):
                        given = self.evaluate.filled(given, rank(type)).sum(axis=rank(type))
            if isinstance(given, Sparse):
                shape, behind = shape_of(type, env.get(index)), batch[axes:]
                if given.count(behind) > math.prod(shape) * math.prod(behind):
                    given = given.dense(shape, behind, element(type).dtype.type(0))
            left[index] = given
        return left


class State:
    """How far a sweep is: the contributions that have arrived, and for how many each step still waits."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.given: list[list[Any] | None] = [[None] * n if n else None for n in plan.slots]
        self.waiting = list(plan.waiting)
        self.outer: dict[int, list[Any]] = {index: [None] * n for index, n in plan.outer.items()}

    def begin(self, seeds: Sequence[Any]) -> list[int]:
        """Give the results their cotangents: the steps that are ready then."""
        ready = self.plan.ready
        for use, seed in zip(self.plan.results, seeds, strict=True):
            if use is not None:
                self.fill([use], [seed], ready)
        return ready

    @typeguard_ignore  # once for every step of a trace
    def fill(self, uses: Sequence[Use], contributions: Sequence[Any], ready: list[int]) -> None:
        """Put contributions into their slots; the steps that are complete by that are ready."""
        given, waiting, owner = self.given, self.waiting, self.plan.owner
        for (level, slot), contribution in zip(uses, contributions, strict=True):
            if level < 0:
                self.outer[~level][slot] = contribution
                continue
            given[level][slot] = contribution  # type: ignore[index]
            k = owner[level]
            if k >= 0:
                waiting[k] -= 1
                if waiting[k] == 0:
                    ready.append(k)


class Visit:
    """A construct that a sweep has come to: what it reads, and what it gives to that.

    ``active`` are the variables that move and ``sinks`` the accumulators with a cotangent, by their indices.
    """

    def __init__(
        self,
        sweep: Sweep,
        operation: Operation,
        env: Env[Any],
        active: frozenset[int],
        sinks: frozenset[int],
        results: Sequence[Any],
    ) -> None:
        self.sweep, self.operation, self.env = sweep, operation, env
        self.active, self.sinks, self.results = active, sinks, results
        self._found: dict[int, list[Any]] = {}

    def value(self, atom: Atom) -> Any:
        return self.env.get(atom.index) if isinstance(atom, Variable) else self.sweep.constant(atom)

    def extent(self, atom: Atom) -> int:
        return extent_of(self.value(atom))

    def whole(self, cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of the results as arrays."""
        made = []
        for cotangent, type, result in zip(cotangents, self.operation.types, self.results, strict=True):
            if isinstance(cotangent, Sparse):
                cotangent = cotangent.dense(shape_of(type, result), self.sweep.batch, element(type).dtype.type(0))
            made.append(cotangent)
        return made

    def moves(self, atom: Atom) -> bool:
        return isinstance(atom, Variable) and atom.index in self.active

    def give(self, atom: Atom, contribution: Any) -> None:
        """A contribution to an operand, if that moves."""
        if isinstance(atom, Variable) and atom.index in self.active and contribution is not None:
            self._found.setdefault(atom.index, []).append(contribution)

    def add(self, found: Contributions) -> None:
        """Contributions to variables by index."""
        for index, contribution in found.items():
            if contribution is not None:
                self._found.setdefault(index, []).append(contribution)

    def contributions(self) -> Contributions:
        """One contribution a variable: the sum of what was given, in order."""
        made: Contributions = {}
        for index, given in self._found.items():
            shape = shape_of(self.types[index], self.env.get(index)) if len(given) > 1 else ()
            made[index] = combined(given, shape, self.sweep.batch)
        return made

    @cached_property
    def types(self) -> dict[int, Type]:
        """The types of all that the construct reads, by index."""
        return {atom.index: atom.type for atom in variables(self.operation) if isinstance(atom, Variable)}
