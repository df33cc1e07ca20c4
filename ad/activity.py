"""Activity analysis: which values depend on what is differentiated, by an interpretation over truth values.

Both modes ask before they enter a construct: what is not active has no tangent and no cotangent, costs nothing and
can cause no NaN. The environment is the one of the language that asks; its entries stand for the values bound
outside, plain truth values for what is bound inside. A state of a loop is active when any step makes it so, and an
accumulator when anything active is added to it.

Of a function, a tuple or a value of a declared type it is one truth value here. Reverse mode looks at programs in
first-order form, with data and procedures (``active_calls.py``). Forward mode asks for the parts that move
(``active_parts.py``): there the state is a form, and ``|`` of two unites them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ..core.active_operands import active_operands
from ..core.constructs import Construct
from ..core.dims import Dim
from ..core.environment import Env
from ..core.language import Binding
from ..core.primitive import Primitive
from ..core.terms import Constant, Failure, Rules
from ..core.types import ArrayType, Scalar, Type, is_data, is_float
from .fixpoints import Fixpoints
from .fragment import Fragment

State = Any  # a truth value; or what says it of the parts of a value


class Active(NamedTuple):
    """Which results are active, and whether something active is added to an accumulator bound outside."""

    results: Sequence[State]
    updates: bool = False


class Mark:
    """An accumulator of the code that is looked at."""

    def __init__(self, active: bool) -> None:
        self.active = active


Atom = Callable[[Env[Any]], Any]
Operation = Callable[[Env[Any]], Active | bool]  # one truth value: that of all results


@dataclass(frozen=True)
class Block:
    run: Callable[[Env[Any], Sequence[Any]], Active]
    parameters: int

    def __call__(self, env: Env[Any], arguments: Sequence[Any]) -> Active:
        return self.run(env, arguments)

    def of_constants(self, env: Env[Any]) -> Active:
        """What is active when no argument is."""
        return self.run(env, [False] * self.parameters)


class Activity(Fragment[Atom, Operation, Block]):
    """The analysis; ``entry_is_active`` reads the entries of the language that asks."""

    def __init__(self, entry_is_active: Callable[[Any], bool]) -> None:
        self.entry_is_active = entry_is_active
        self.fixpoints: Fixpoints[State] = Fixpoints(or_)

    def is_active(self, entry: Any) -> State:
        if isinstance(entry, bool):
            return entry
        return entry.active if isinstance(entry, Mark) else self.entry_is_active(entry)

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return lambda env: False

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return lambda env: False

    def dim(self, dim: Dim) -> Atom:
        return lambda env: False

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        moving = [arg for arg, moves in zip(args, active_operands(primitive), strict=True) if moves]
        return lambda env: Active([any([self.is_active(arg(env)) for arg in moving])])

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        return self._branches([then, orelse])

    def _branches(self, branches: Sequence[Block]) -> Operation:
        """One of these is run, with parameters that are constant."""
        return lambda env: either([branch.of_constants(env) for branch in branches])

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Env[Any]) -> Active:
            starts = [self.is_active(initial(env)) for initial in initials]
            return self._followed(body, starts, lambda state: body(env, [False, *state]))

        return run

    def _followed(self, body: Block, starts: Sequence[bool], step: Callable[[Sequence[bool]], Active]) -> Active:
        """What the state of a loop with this body becomes, and what else a step gives."""
        last = Active(())

        def results(state: Sequence[bool]) -> Sequence[bool]:
            nonlocal last
            last = step(state)
            return last.results

        return Active(self.fixpoints.of(body.run, starts, results), last.updates)

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        return lambda env: Active([False])

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        return lambda env: Active([self.is_active(array(env))])

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        return lambda env: body(env, [False])

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        def run(env: Env[Any]) -> Active:
            elements = element(env, [False])
            values = elements.results[len(elements.results) - len(neutrals) :]
            starts = _united([self.is_active(neutral(env)) for neutral in neutrals], values)
            total = self._followed(operator, starts, lambda state: operator(env, [*state, *state]))
            return Active(total.results, elements.updates or total.updates)

        return run

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        def run(env: Env[Any]) -> Active:
            found = element(env, [False] * len(extents))
            values = found.results[len(found.results) - len(destinations) :]
            return Active(_united([self.is_active(array(env)) for array in destinations], values), found.updates)

        return run

    def argsort(self, array: Atom) -> Operation:
        return lambda env: Active([False])

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        def run(env: Env[Any]) -> Active:
            starts = [self.is_active(initial(env)) for initial in initials]
            found = self._followed(body, starts, lambda state: body(env, state))
            return Active([*found.results, False], found.updates)

        return run

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        """With rules, all results move with each argument; with what the body captures they move as it says."""

        def run(env: Env[Any]) -> Active:
            moving = [self.is_active(arg(env)) for arg in args]
            if "checkpoint" in rules:
                return body(env, moving)
            captured = body.of_constants(env)
            return Active([any(moving) or moves for moves in captured.results], captured.updates)

        return run

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        return lambda env: Active([self.is_active(value(env)) for value in values])

    # The higher-order fragment

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        return self._branches(branches)

    def par(self, branches: Sequence[Block]) -> Operation:
        def run(env: Env[Any]) -> Active:
            found = [branch(env, ()) for branch in branches]
            return Active([moves for one in found for moves in one.results], any(one.updates for one in found))

        return run

    def opaque(
        self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[Block] = (), name: str = ""
    ) -> Operation:
        """All of it is active if any operand is, or what a function captures and gives."""

        def run(env: Env[Any]) -> bool:
            moving = [self.is_active(arg(env)) for arg in args]
            return any(moving) or any(any(block.of_constants(env).results) for block in blocks)

        return run

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Env[Any]) -> Active:
            marks = [Mark(self.is_active(initial(env))) for initial in initials]
            inner = body(env, marks)
            return Active([*[mark.active for mark in marks], *inner.results], inner.updates)

        return run

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Active:
            target = accumulator(env)
            if not self.is_active(value(env)):
                return Active(())
            if not isinstance(target, Mark):
                return Active((), self.is_active(target))
            target.active = True
            return Active(())

        return run

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        return lambda env: Active(())

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        def run(env: Env[Any], arguments: Sequence[Any]) -> Active:
            env, updates = env.enter(arguments), False
            for binding in bindings:
                active = active_results(binding, env)
                env = env.extend(active.results)
                updates = updates or active.updates
            return Active([self.is_active(result(env)) for result in results], updates)

        return Block(run, len(binders))


def active_results(binding: Binding, env: Env[Any]) -> Active:
    """What is active of an operation's results: nothing made of integers or booleans."""
    said = binding.operation(env)
    active: Active = Active([said] * len(binding.types)) if isinstance(said, bool) else said
    typed = zip(active.results, binding.types, strict=True)
    return Active([a and is_float(type) if is_data(type) else a for a, type in typed], active.updates)


def either(found: Sequence[Active]) -> Active:
    """What is active where one of several is run."""
    return Active(reduce(_united, [one.results for one in found]), any(one.updates for one in found))


def _united(first: Sequence[State], second: Sequence[State]) -> list[State]:
    return [a | b for a, b in zip(first, second, strict=True)]
