"""Verbs: what makes a program of a program (``grad``, ``jacobian``), and what they are applied to.

A verb is a record of its options and of the program ``f`` that it is applied to, and it is the function of the program
that it makes. Equal verbs make one program, so what was built and compiled for ``az.grad(f)`` serves whoever writes
``az.grad(f)`` again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .annotations import Parameter
from .expr import Expr
from .functions import description
from .program import Instance, P, Program, R, as_program
from .source import at_line

if TYPE_CHECKING:
    # What a verb takes: a program, or a function of expressions.
    Function = Callable[P, R]
else:

    class Function:
        """At run time ``program_of`` checks what a verb is applied to, and says more than a type does."""

        def __class_getitem__(cls, parameters: object) -> object:
            return Any


@dataclass(frozen=True)
class Verb(ABC):
    """A verb applied to a program, waiting for arguments: the function of the program that the verb makes.

    What it does depends on its fields and on what ``f`` means alone. The first parameters of the program that it makes
    are those of ``f``; ``name`` is that of this program.
    """

    verb: str
    f: Program

    @abstractmethod
    def __call__(self, *args: Any) -> Any:
        """What the program that it makes returns."""

    @property
    def name(self) -> str:
        return f"{self.verb}({self.f.name})"

    def program(self, parameters: Sequence[Parameter], name: str | None = None) -> Program[Any, Any]:
        """The program of this verb, one for all that ask for it; ``name``, if not the verb's."""
        if self not in self.f.made:
            self.f.made[self] = Program(self, name or self.name, parameters, of=self.f)
        return self.f.made[self]


def program_of(verb: str, f: Function[P, R], count: int | None = None) -> Program[P, R]:
    """The program that a verb is applied to, for so many arguments if known. Raises TypeError for what is none."""
    given: Any = f
    if isinstance(given, Instance):
        message = f"{verb} takes a program, not one version of it: write az.{verb}({given.program.name}).at(...)"
        raise TypeError(at_line(message))
    if not callable(given) or isinstance(given, Expr):
        raise TypeError(at_line(f"{verb} takes a program or a Python function, not {description(given)}"))
    return as_program(f, count)
