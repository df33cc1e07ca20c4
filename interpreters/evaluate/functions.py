"""What the higher-order constructs mean in the reference interpreter.

A function is a Python function from values to a list of values, a tuple a tuple, and a value of a declared type an
object of the class of its variant (``core/data.py``). They cannot be in the batch of loops that run at once, so
loops around them run element by element. The branches of a ``par`` run one after the other.

Recursion is Python's own, in a thread whose stack is large enough for it; what goes deeper than ``DEEPEST`` calls is
taken to have no end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np

from ...core import terms
from ...core.arguments import value_of
from ...core.data import fold, value_class
from ...core.environment import Env
from ...core.language import Language
from ...core.limits import nested_calls
from ...core.procedures import Procedure, shared_out
from ...core.source import at_line
from ...core.types import FunctionType, Named, Type, dims, element, is_data
from .batches import ORDERED, PURE, Atom, Batches, Code, Refused, Step

R = TypeVar("R")

# Calls of functions inside of each other. Stack is mapped for as many, and used as far as they go.
DEEPEST = 200_000
_STACK = 1 << 30
_FRAMES_OF_A_CALL = 60


class Functions(Batches, Language[Atom, Step, Code]):
    """The meanings of functions, tuples, declared types and ``par``."""

    depth = 0

    def __init__(self, sizes: dict[str, int], vectorize: bool) -> None:
        super().__init__(sizes, vectorize)
        self.procedures: dict[Procedure, Code] = {}

    def function(self, type: FunctionType, body: Code) -> Step:
        return Step(lambda env: (lambda *arguments: body.run(env, arguments),), ORDERED)

    def fix(self, type: FunctionType, body: Code) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            def recursive(*arguments: Any) -> list[Any]:
                return body.run(env, (recursive, *arguments))

            return (recursive,)

        return Step(run, ORDERED)

    def apply(self, function: Atom, args: Sequence[Atom]) -> Step:
        assert isinstance(function.type, FunctionType)
        return self._called(function.run, function.type.results, args)

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[Atom]) -> Step:
        def run(procedure: Procedure, values: Sequence[Any]) -> Sequence[Any]:
            if procedure not in self.procedures:
                self.procedures[procedure] = self.meaning(procedure.block)
            return self.procedures[procedure].run(Env(), values)

        def called(env: Env[Any]) -> Callable[..., Sequence[Any]]:
            return lambda *values: [
                result
                for each, own in zip(procedures, shared_out(procedures, values), strict=True)
                for result in run(each, own)
            ]

        return self._called(called, [type for each in procedures for type in each.results], args)

    def _called(
        self, called: Callable[[Env[Any]], Callable[..., Sequence[Any]]], results: Sequence[Type], args: Sequence[Atom]
    ) -> Step:
        runs = [arg.run for arg in args]

        def run(env: Env[Any]) -> Sequence[Any]:
            if self.nothing:
                return [self.placeholder(type) for type in results]
            if self.depth >= DEEPEST:
                raise Refused(RecursionError, f"functions call each other {DEEPEST} deep: this recursion has no end")
            function, values = called(env), [run(env) for run in runs]
            self.depth += 1
            try:
                return function(*values)
            finally:
                self.depth -= 1

        return Step(run, ORDERED)

    def pack(self, items: Sequence[Atom]) -> Step:
        return Step(lambda env: (tuple([item.run(env) for item in items]),), ORDERED)

    def project(self, value: Atom, position: int) -> Step:
        def run(env: Env[Any]) -> Sequence[Any]:
            items = value.run(env)
            return (self.placeholder(value.type.items[position]) if items is None else items[position],)  # type: ignore[union-attr]

        return Step(run, ORDERED)

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Step:
        cls = value_class(type.declaration, variant)
        return Step(lambda env: (cls._of([field.run(env) for field in fields]),), ORDERED)

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Code]) -> Step:
        assert isinstance(value.type, Named)
        named, chosen = value.type, dict(zip(variants, branches, strict=True))
        effects = ORDERED
        for branch in branches:
            effects = effects | branch.effects

        def run(env: Env[Any]) -> Sequence[Any]:
            data = value.run(env)
            if data is None:
                fields = [self.placeholder(type) for type in named.fields(variants[0]).values()]
                return branches[0].run(env, fields)
            return chosen[data._variant].run(env, data._values)

        return Step(run, effects)

    def par(self, branches: Sequence[Code]) -> Step:
        effects = PURE
        for branch in branches:
            effects = effects | branch.effects
        return Step(lambda env: [value for branch in branches for value in branch.run(env, ())], effects)

    def placeholder(self, type: Type) -> Any:
        """A value of a type where nothing is computed but shapes: None for what has none."""
        if not is_data(type):
            return None
        return np.zeros([dim.evaluate(self.sizes) for dim in dims(type)], element(type).dtype)[()]


# Running


def uses_functions(block: terms.Block) -> bool:
    """Whether a term applies functions, which may recur."""
    todo = [block]
    while todo:
        for operation in todo.pop().bindings:
            if operation.row.calls:
                return True
            todo.extend(operation.blocks)
    return False


class _Depth(threading.local):
    reached = False


_depth = _Depth()
_lock = threading.Lock()
_running: list[int] = []  # the limits of Python's recursion that were there before


def deeply(run: Callable[[], R]) -> R:
    """The result of a function, run with the stack that deep recursion takes."""
    if _depth.reached:
        return run()
    outcome: list[Any] = [None, None]

    def work() -> None:
        _depth.reached = True
        try:
            outcome[0] = run()
        except BaseException as error:
            outcome[1] = error

    with nested_calls(DEEPEST * _FRAMES_OF_A_CALL):
        with _lock:
            size = threading.stack_size(_STACK)
            thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
            thread.start()
            threading.stack_size(size)
        thread.join()
    if outcome[1] is not None:
        raise outcome[1].with_traceback(None)  # as deep as the recursion was, and all of it inside the interpreter
    result: R = outcome[0]
    return result


def result_value(value: Any, type: Type, sizes: Mapping[str, int]) -> Any:
    """A result as the user gets it: with memory of its own, and functions that take and give Python's values."""

    def leaf(x: Any, type: Type, what: str) -> Any:
        return _released_function(x, type, sizes) if isinstance(type, FunctionType) else np.array(x, order="C")[()]

    def construct(named: Named, variant: str, parts: Sequence[Any]) -> Any:
        return value_class(named.declaration, variant)._of(parts)

    return fold(value, type, "a result", leaf, tuple, construct)


def _released_function(function: Callable[..., Any], type: FunctionType, sizes: Mapping[str, int]) -> Any:
    def run(*arguments: Any) -> Any:
        count = len(type.parameters)
        if len(arguments) != count:
            raise TypeError(at_line(f"a function {type} takes {count} argument(s), got {len(arguments)}"))
        given = enumerate(zip(arguments, type.parameters, strict=True))
        values = [value_of(x, t, f"argument {k + 1} of a function {type}", sizes) for k, (x, t) in given]
        with np.errstate(all="ignore"):
            results = deeply(lambda: function(*values))
        made = [result_value(result, t, sizes) for result, t in zip(results, type.results, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    return run
