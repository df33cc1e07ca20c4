"""What says itself how it moves: functions and operations with rules of the user's, and checkpoints, in both modes.

A rule speaks of the arguments of its function. What the function captures from outside moves it as its body says:

    y = f(x) with the body g(x, w):        dy = rule(x, dx) + (dg / dw) dw        w_bar = (dg / dw)^T y_bar

and what a rule captures is an ordinary value of the derivative, which can be differentiated again. A checkpoint is
stored as a whole by the forward sweep; the return sweep runs its body anew, in a checkpoint of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count

from ..core.builder import Builder
from ..core.environment import Env
from ..core.graph import Value
from ..core.language import Unsupported
from ..core.operations import moved_by
from ..core.placement import to_block
from ..core.terms import Foreign, LaterRule, Rules, rule_names
from ..core.types import Itself, Type, is_data, is_float
from ..interpreters.embed import Known, emit_blocks
from ..interpreters.simplify import simplify
from ..interpreters.simplify.accumulators import plus, zeros_like
from .cells import Entry
from .duals import Block as DualBlock
from .duals import Dual, Pick
from .duals import Emission as DualEmission
from .forms import Form
from .fragment import unsupported
from .linearity import nonlinear
from .reverse_meanings import Block, Emission


@dataclass(frozen=True)
class CustomPullback:
    """The return sweep of a custom operation with these ``results``."""

    reverse: Emission
    env: Env[Entry]
    rules: Rules
    args: Sequence[Entry]
    body: Block
    blocks: Sequence[Block]
    results: Sequence[Value]

    def pull(self, cotangents: Sequence[Value | None]) -> None:
        if "checkpoint" in self.rules:
            self.again(cotangents)
            return
        if self.reverse.transposing and "vjp" not in rule_names(self.rules):
            self.body.run(self.env, self.args)[1](cotangents)
            return
        self.require_numbers(cotangents)
        if any(self.body.activity.of_constants(self.env).results):
            self.body.run(self.env, [Entry(arg.value) for arg in self.args])[1](cotangents)
        if any([arg.active for arg in self.args]):
            floating = [arg for arg in self.args if arg.value is not None and is_float(arg.value.type)]
            for arg, cotangent in zip(floating, self.by_rule(cotangents), strict=True):
                if arg.cell is not None:
                    arg.cell.add(cotangent)

    def require_numbers(self, cotangents: Sequence[Value | None]) -> None:
        """Unsupported where data moves as an argument or a result: rules do not say how."""
        arguments = [arg.value for arg in self.args if arg.active]
        results = [value for value, g in zip(self.results, cotangents, strict=True) if g is not None]
        if any(value is not None and not is_data(value.type) for value in (*arguments, *results)):
            raise _no_numbers(self.reverse.builder, "reverse")

    def again(self, cotangents: Sequence[Value | None]) -> None:
        """Run the body of a checkpoint again, and back, in a scope of its own: what is computed there stays there.

        The cotangents so far go in and come out with more added to them: they are summed in the order of a plain body.
        Meanwhile their cells belong to that scope, for what the body captures is found in the same cells.
        """
        b, reverse = self.reverse.builder, self.reverse
        here = [arg.cell for arg in self.args if arg.cell is not None and arg.cell.scope is b.scopes[-1]]
        cells = list(dict.fromkeys(here))
        before = [cell.read() for cell in cells]
        given = [value for value in (*[arg.value for arg in self.args], *cotangents, *before) if value is not None]

        def body(*binders: Value) -> list[Value]:
            rest = iter(binders)
            entries = [replace(arg, value=next(rest)) for arg in self.args]
            arrived = [None if cotangent is None else next(rest) for cotangent in cotangents]
            outside = [(cell.scope, cell.held) for cell in cells]
            for cell, total in zip(cells, before, strict=True):
                cell.restart()
                cell.held.total = None if total is None else next(rest)
            self.body.run(self.env, entries)[1](arrived)
            totals = [cell.total_or_zero() for cell in cells]
            for cell, state in zip(cells, outside, strict=True):
                cell.scope, cell.held = state
            return totals

        totals = reverse.sweep.enclose(lambda: emit_blocks(b, "custom", ("checkpoint",), given, [body]))
        for cell, total in zip(cells, totals, strict=True):
            cell.close(total)

    def by_rule(self, cotangents: Sequence[Value | None]) -> Sequence[Value]:
        """The cotangents of the floating arguments."""
        b = self.reverse.builder
        arrived = [
            zeros_like(b, result) if cotangent is None else cotangent
            for result, cotangent in zip(self.results, cotangents, strict=True)
            if is_float(result.type)
        ]
        values = [arg.value for arg in self.args if arg.value is not None]
        itself = Known(Itself(types_of(values), types_of(self.results)), self.itself)
        with self.reverse.checking():

            def moved(name: str, *moves: Value) -> Sequence[Value]:
                number = rule_names(self.rules).index(name)
                rule = self.rules[number]
                if isinstance(rule, LaterRule):
                    return rule.moved(values, types_of(self.results), moves)
                return self.blocks[number].primal(self.env, [itself, *values, *moves])

            if "vjp" in rule_names(self.rules):
                return moved("vjp", *arrived)
            likes = [value for value in values if is_float(value.type)]
            return transposed_rule(self.reverse, b.origin.name, "jvp", likes, partial(moved, "jvp"), arrived)

    def itself(self, *args: Value) -> Sequence[Value]:
        """The operation at other arguments, as a rule may want it."""
        blocks = [lambda *binders, block=block: block.primal(self.env, binders) for block in (self.body, *self.blocks)]
        return emit_blocks(self.reverse.builder, "custom", self.rules, args, blocks)


@dataclass(frozen=True)
class CustomPushforward:
    """A custom operation in forward mode."""

    forward: DualEmission
    env: Env[Dual]
    rules: Rules
    args: Sequence[Dual]
    body: DualBlock
    blocks: Sequence[DualBlock]

    def push(self, active: Pick) -> Sequence[Dual]:
        """The results, with the tangents of the active ones."""
        b, moving = self.forward.builder, [arg.moves for arg in self.args]
        if "checkpoint" in self.rules:

            def body(*binders: Value) -> list[Value]:
                return self.forward.flat(self.body.run(self.env, self.forward.duals(binders, moving)), active)

            made = emit_blocks(b, "custom", self.rules, self.forward.flat(self.args, moving), [body])
            return self.forward.duals(made, active)
        self.require_numbers(moving, active)
        results = self.itself(*[arg.primal for arg in self.args])
        tangents: list[Value | None] = [None] * len(results)
        fixed = [self.forward.fixed(arg) for arg in self.args]
        if any(self.body.activity(self.env, [arg.moves for arg in fixed]).results):
            with self.forward.checking(False):
                captured = self.body.run(self.env, fixed)
            tangents = [dual.tangent for dual in captured]
        if any(moving):
            given = iter(self.by_rule(results))
            for k, result in enumerate(results):
                if is_float(result.type):
                    own, more = tangents[k], next(given)
                    tangents[k] = more if own is None else plus(b, own, more)
        moved = [tangent for tangent in tangents if tangent is not None]
        return self.forward.duals([*results, *moved], [tangent is not None for tangent in tangents])

    def require_numbers(self, moving: Pick, active: Pick) -> None:
        """Unsupported where something moves inside of an argument, or may inside of a result: rules do not say how."""
        given, made = ([state for state in states if isinstance(state, Form)] for states in (moving, active))
        if any([*given, *made]) or (any(moving) and any([form.cells for form in made])):
            raise _no_numbers(self.forward.builder, "forward")

    def itself(self, *args: Value) -> Sequence[Value]:
        """The operation, with its rules, as it is."""
        blocks = [partial(self.forward.primals, block, self.env) for block in (self.body, *self.blocks)]
        return emit_blocks(self.forward.builder, "custom", self.rules, args, blocks)

    def by_rule(self, results: Sequence[Value]) -> Sequence[Value]:
        """The tangents of the floating results."""
        tangents = [self.forward.tangent(arg) for arg in self.args if is_float(arg.primal.type)]
        values = [arg.primal for arg in self.args]
        itself = Known(Itself(types_of(values), types_of(results)), self.itself)

        def moved(name: str, *moves: Value) -> Sequence[Value]:
            number = rule_names(self.rules).index(name)
            rule = self.rules[number]
            if isinstance(rule, LaterRule):
                return rule.moved(values, types_of(results), moves)
            return self.forward.primals(self.blocks[number], self.env, itself, *values, *moves)

        if "jvp" in rule_names(self.rules):
            return moved("jvp", *tangents)
        likes = [result for result in results if is_float(result.type)]
        reverse, name = self.forward.reverse(), self.forward.builder.origin.name
        return transposed_rule(reverse, name, "vjp", likes, partial(moved, "vjp"), tangents)


def _no_numbers(builder: Builder, mode: str) -> Unsupported:
    """Why a function with rules at the builder's line, in which data moves, has no derivative in a mode."""
    message = f"{builder.origin.name}: its derivatives are given for numbers and arrays, and {mode} mode does not know"
    return unsupported(builder, f"{message} how a function, a tuple or a value of a declared type moves")


def cotangents_by_rule(
    reverse: Emission,
    function: Foreign,
    operands: Sequence[Value],
    results: Sequence[Value],
    cotangents: Sequence[Value | None],
) -> Sequence[Value]:
    """The cotangents of the floating operands of an operation, by its rule, or by the transpose of the other one."""
    pairs = zip(results, cotangents, strict=True)
    arrived = [zeros_like(reverse.builder, y) if g is None else g for y, g in pairs if is_float(y.type)]
    made = types_of(results)
    with reverse.checking():
        if "vjp" in function.rules:
            return moved_by(function, "vjp", operands, made, *arrived)
        likes = [value for value in operands if is_float(value.type)]
        rule = partial(moved_by, function, "jvp", operands, made)
        return transposed_rule(reverse, function.name, "jvp", likes, rule, arrived)


def tangents_by_rule(
    forward: DualEmission, function: Foreign, operands: Sequence[Dual], results: Sequence[Value]
) -> Sequence[Value]:
    """The tangents of the floating results of an operation, by its rule, or by the transpose of the other one."""
    tangents = [forward.tangent(operand) for operand in operands if is_float(operand.primal.type)]
    primals, made = [operand.primal for operand in operands], types_of(results)
    if "jvp" in function.rules:
        return moved_by(function, "jvp", primals, made, *tangents)
    likes = [result for result in results if is_float(result.type)]
    rule = partial(moved_by, function, "vjp", primals, made)
    return transposed_rule(forward.reverse(), function.name, "vjp", likes, rule, tangents)


def probe_name(name: str, what: str, taken: Collection[str]) -> str:
    """The name under which a tangent or cotangent of a probe is shown: another one than those of the program."""
    plain = f"{name} {what}"
    candidates = chain([plain], (f"{plain} {k}" for k in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def types_of(values: Sequence[Value]) -> tuple[Type, ...]:
    return tuple([value.type for value in values])


_MOVING = {"jvp": "the tangents", "vjp": "the cotangents"}
_OTHER = {"jvp": "vjp", "vjp": "jvp"}
_MODE = {"jvp": "forward", "vjp": "reverse"}


def transposed_rule(
    reverse: Emission,
    owner: str,
    name: str,
    likes: Sequence[Value],
    rule: Callable[..., Sequence[Value]],
    given: Sequence[Value],
) -> Sequence[Value]:
    """The transpose of a rule in what moves, which is like these values: the return sweep of the rule, at zeros.

    Raises Unsupported when the rule is not linear.
    """
    b = reverse.builder
    body = b.body([like.type for like in likes], rule)
    block, captured = to_block(body.binders, body.results, body.statements)
    block = simplify(block)
    problem = nonlinear(block, len(captured))
    if problem is not None:
        where = "" if problem.origin is None else f" at {problem.origin}"
        message = (
            f"{owner}: its {name} rule is not linear in {_MOVING[name]} ({problem.problem}{where}), so"
            f" {_MODE[_OTHER[name]]} mode cannot be derived from it: give it a {_OTHER[name]} rule of its own"
        )
        raise unsupported(b, message)
    entries = reverse.constants([*captured, *[zeros_like(b, like) for like in likes]])
    cells = reverse.give_cells(entries[len(captured) :])
    pull = reverse.meaning(block).run(Env(), entries)[1]
    with reverse.checking(False), reverse.transposed():
        pull(given)
    return [cell.total_or_zero() for cell in cells if cell is not None]
