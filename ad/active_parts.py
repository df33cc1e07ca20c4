"""Activity analysis of functions, tuples and values of declared types: which of their parts move.

The state of such a value is its form (``forms.py``). What makes a value has a form of its own, which stays the same
however often the analysis comes by: a function that is applied to something that moves has a parameter that moves
wherever it is applied, and its body is looked at again. So the analysis goes over a program until no form changes; then
forms are *settled*, and duals are emitted by them.

    f = function z: z * y                    y does not move: nothing does
    f(x)                                     x moves: z does, so z * y does, so f gives something that moves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.environment import Env
from ..core.terms import Rules
from ..core.types import FunctionType, Named, Type
from .activity import Active, Activity, Atom, Block, Operation, State, either
from .forms import Form, Progress


class ActiveParts(Activity):
    """The analysis with forms. They belong to the term whose meaning was taken last."""

    def __init__(self, entry_is_active: Callable[[Any], State]) -> None:
        super().__init__(entry_is_active)
        self.progress = Progress()

    def is_active(self, entry: Any) -> State:
        return entry if isinstance(entry, Form) else super().is_active(entry)

    def form(self, type: Type) -> Form:
        """A form of its own, in which nothing moves so far."""
        return Form.of(type, self.progress)

    def settle(self, progress: Progress, block: Block, arguments: Sequence[State]) -> None:
        """Find which parts move in a closed block, for arguments that do."""
        progress.settled, progress.changed = False, True
        while progress.changed:
            progress.changed = False
            block(Env(), arguments)
        progress.settled = True

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        """As for numbers; what the body and the rules do with functions and data is looked at."""

        def run(env: Env[Any]) -> Active:
            moving = [self.is_active(arg(env)) for arg in args]
            if "checkpoint" in rules:
                return body(env, moving)
            fixed = [state if isinstance(state, Form) else False for state in moving]
            captured = body(env, fixed)
            for rule in blocks:
                rule(env, [False, *fixed, *[False] * (rule.parameters - 1 - len(fixed))])
            results = [moves if isinstance(moves, Form) else any(moving) or moves for moves in captured.results]
            return Active(results, captured.updates)

        return run

    # The higher-order fragment

    def function(self, type: FunctionType, body: Block) -> Operation:
        return self._function(self.form(type), body, False)

    def fix(self, type: FunctionType, body: Block) -> Operation:
        return self._function(self.form(type), body, True)

    def _function(self, form: Form, body: Block, recursive: bool) -> Operation:
        progress, itself = self.progress, [form] if recursive else []

        def run(env: Env[Any]) -> Active:
            if not progress.settled:
                found = body(env, [*itself, *[parameter.state for parameter in form.parameters]])
                for result, state in zip(form.results, found.results, strict=True):
                    result.take(state)
            return Active([form])

        return run

    def apply(self, function: Atom, args: Sequence[Atom]) -> Operation:
        def run(env: Env[Any]) -> Active | bool:
            form = self.is_active(function(env))
            if not isinstance(form, Form):
                return False  # the function of a custom operation, in a rule of it
            for parameter, arg in zip(form.parameters, args, strict=True):
                parameter.take(self.is_active(arg(env)))
            return Active([result.state for result in form.results])

        return run

    def typed_pack(self, type: Type, items: Sequence[Atom]) -> Operation:
        """``pack``, with the type of the tuple."""
        form = self.form(type)
        return lambda env: self._made(env, form, form.items, items)

    def project(self, value: Atom, position: int) -> Operation:
        return lambda env: Active([self.is_active(value(env)).items[position].state])

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Operation:
        form = self.form(type)
        return lambda env: self._made(env, form, form.fields(variant), fields)

    def _made(self, env: Env[Any], form: Form, parts: Sequence[Form], given: Sequence[Atom]) -> Active:
        for part, atom in zip(parts, given, strict=True):
            part.take(self.is_active(atom(env)))
        return Active([form])

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        def run(env: Env[Any]) -> Active:
            form = self.is_active(value(env))
            fields = [[part.state for part in form.fields(variant)] for variant in variants]
            return either([branch(env, own) for branch, own in zip(branches, fields, strict=True)])

        return run
