"""What is called like a program, to ``inspect``, ``help`` and editors: the names, types and defaults of parameters.

Programs are made at run time, and so are their parameters. Python asks an object for its ``__signature__``:

>>> import inspect, adze as az
>>> @az.program
... def line(x: az.Array[az.f64, "n"], slope: az.f64, steps: int = 1) -> az.Array[az.f64, "n"]:
...     return slope * x
>>> inspect.signature(line)
<Signature (x: f64[n], slope: f64, steps: int = 1) -> f64[n]>
>>> inspect.signature(az.compile(az.grad(line)))
<Signature (x: f64[n], slope: f64, steps: int = 1)>

Type checkers, which run nothing, read ``Program[P, R]`` instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from .annotations import Parameter
from .source import ending_at_user

Run = TypeVar("Run", bound=Callable[..., Any])


class SignatureOf:
    """The ``__signature__`` of objects of a class; that of the class itself is the one of its constructor."""

    def __init__(self, signature: Callable[[Any], inspect.Signature]) -> None:
        self.signature = signature

    def __get__(self, called: Any, cls: type) -> inspect.Signature:
        if called is None:
            raise AttributeError("__signature__")
        return self.signature(called)


def signature(parameters: Sequence[Parameter], named: Collection[str], result: Any) -> inspect.Signature:
    """The signature of a function with such parameters and result; those that are ``named`` are given by name only."""
    nothing = inspect.Parameter.empty
    shown: list[inspect.Parameter] = []
    for each in parameters:
        follows_default = each.default is nothing and any(before.default is not nothing for before in shown)
        by_name = each.name in named or follows_default
        kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
        annotation = each.static or each.declared or nothing
        shown.append(inspect.Parameter(each.name, kind, default=each.default, annotation=annotation))
    return inspect.Signature(shown, return_annotation=result or nothing)


def presented(run: Run, verb: str, program: Any, more: Sequence[str] = (), result: Any = None) -> Run:
    """A function that runs a program, with the name, parameters and documentation of what it does.

    ``more`` are parameters that follow those of the program, and ``result`` is what it returns.
    """
    signed: Any = ending_at_user(run)
    signed.__name__ = signed.__qualname__ = f"{verb}({program.name})"
    signed.program, signed.__doc__ = program, program.__doc__
    parameters = [*program.parameters, *[Parameter(name, None) for name in more]]
    signed.__signature__ = signature(parameters, program.named, result)
    found: Run = signed
    return found
