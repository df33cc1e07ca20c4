"""What has no derivative of its own: operations without a rule; in reverse mode functions, tuples and data as values.

Reverse mode is for programs on scalars and arrays. Functions that are values, recursion, tuples that are one value and
data may stand beside what is differentiated: while nothing in them moves they are constant, and cost nothing. Where
something does, they are refused, with the reason and the user's line:

    x * fibonacci(n)      by x:   fibonacci(n) is constant, whatever it is
    solve(a, b)           by b:   refused in both modes, unless the operation solve has a rule (``custom.py``)

A language that inherits from ``Fragment`` says in one method, ``opaque``, what all of them mean. The two constructs of
the fragment that are of first order, ``case`` and ``par``, are derived (``reverse.py``). Forward mode derives them all
(``forward_functions.py``): there ``opaque`` is for operations alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from ..core.builder import Builder
from ..core.language import Language, Unsupported
from ..core.terms import Foreign, Operation

A = TypeVar("A")
O = TypeVar("O")
B = TypeVar("B")

_REASONS = {
    "function": "a function that is a value captures what is differentiated",
    "fix": "a recursive function captures what is differentiated",
    "apply": "a function that is a value is applied to what is differentiated",
    "pack": "a tuple that is one value holds what is differentiated",
    "project": "an item of a tuple that is one value depends on what is differentiated",
    "construct": "a value of a declared type holds what is differentiated",
}
_INSTEAD = {
    "function": "call a function of Python, which is inlined",
    "fix": "write the recursion as az.fori_loop or az.while_loop",
    "apply": "call a function of Python, which is inlined, or write a recursion as az.fori_loop or az.while_loop",
}


def refused(builder: Builder, mode: str, op: str, name: str) -> Unsupported:
    """Why a construct at the builder's line, which something moves, has no derivative in a mode."""
    if op == "foreign":
        give = "give az.operation a rule as its derivative, or wrap it in az.custom_vjp or az.custom_jvp"
        message = f"{mode} mode does not know the derivative of the foreign function {name}: {give}"
    else:
        instead = _INSTEAD.get(op, "keep it in tuples and dictionaries of Python")
        message = f"{mode} mode is for programs on scalars and arrays, but {_REASONS[op]}: {instead}"
        message += ", or differentiate via='trace', or by az.jvp"
    error = Unsupported(message)
    error.origin = builder.origin
    return error


def again(builder: Builder, function: Foreign, mode: str) -> Unsupported:
    """Why an operation with effects, at the builder's line, cannot be where derivatives run code twice."""
    message = f"{function.name} has effects, and {mode} mode would run it again here"
    error = Unsupported(f"{message}: do it before or after what is differentiated")
    error.origin = builder.origin
    return error


class Fragment(Language[A, O, B]):
    """A language in which these constructs have one meaning."""

    @abstractmethod
    def opaque(
        self, op: str, static: tuple[Any, ...], args: Sequence[A], blocks: Sequence[B] = (), name: str = ""
    ) -> O:
        """The construct ``op``; ``name`` is that of a foreign function."""

    def operation(self, operation: Operation, args: Sequence[A], blocks: Sequence[B]) -> O:
        if operation.row.values:
            return self.opaque(operation.op, operation.static, args, blocks)
        return super().operation(operation, args, blocks)

    def foreign(self, function: Foreign, args: Sequence[A]) -> O:
        return self.opaque("foreign", (function,), args, name=function.name)
