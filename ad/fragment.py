"""What has no derivative of its own: operations without a rule, and functions and data where a mode does not look.

Each mode has its way through functions that are values, recursion, tuples and data: forward mode makes them dual
(``forward_functions.py``), reverse mode leads through their first-order form (``taken_apart.py``). Where nothing in
them moves they are constant, and cost nothing:

    x * fibonacci(n)      by x:   fibonacci(n) is constant, whatever it is
    solve(a, b)           by b:   refused in both modes, unless the operation solve has a rule (``custom.py``)

A language that inherits from ``Fragment`` says in one method, ``opaque``, what is left of all these.
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


def unsupported(builder: Builder, message: str) -> Unsupported:
    """The error that says so, at the builder's line."""
    error = Unsupported(message)
    error.origin = builder.origin
    return error


def refused(builder: Builder, mode: str, op: str, name: str) -> Unsupported:
    """Why a construct at the builder's line, which something moves, has no derivative in a mode."""
    if op == "foreign":
        give = "give az.operation a rule as its derivative, or wrap it in az.custom_vjp or az.custom_jvp"
        message = f"{mode} mode does not know the derivative of the foreign function {name}: {give}"
    else:
        message = f"{mode} mode does not look into functions and data that the rule of a derivative makes ({op})"
    return unsupported(builder, message)


def again(builder: Builder, function: Foreign, mode: str) -> Unsupported:
    """Why an operation with effects, at the builder's line, cannot be where derivatives run code twice."""
    message = f"{function.name} has effects, and {mode} mode would run it again here"
    return unsupported(builder, f"{message}: do it before or after what is differentiated")


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
