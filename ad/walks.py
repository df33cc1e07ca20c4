"""Walks over values of declared types: recursive functions, which are emitted where they are applied.

    total = fix walk (xs: List[f64]) -> f64: case xs: Nil(): 0; Cons(x, rest): x + walk(rest)

A walk over a type that contains itself is a ``fix``. One over any other type is code in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..core.builder import Builder
from ..core.graph import Value
from ..core.types import FunctionType, Named, Type, reached
from ..interpreters.embed import emit_blocks
from .fragment import unsupported

_MOST = 8  # types of one declaration inside of each other


@dataclass
class Walk:
    """Functions over values of declared types, which are emitted where they are applied; one that recurs is a fix."""

    builder: Builder
    open: dict[Named, Value] = field(default_factory=dict)  # the functions whose bodies are being emitted

    def over(
        self, name: str, type: Named, results: Sequence[Type], args: Sequence[Value], body: Callable[..., list[Value]]
    ) -> list[Value]:
        """``body(*args)``, which may come to a value of the same type again; the function has this name for people.

        Raises Unsupported for a type that is made with ever other types, so that a walk over it has no end.
        """
        b = self.builder
        if type in self.open:
            return list(b.emit("apply", (), [self.open[type], *args]))
        if sum(each.declaration is type.declaration for each in self.open) == _MOST:
            name = type.declaration.name
            raise unsupported(b, f"derivatives find no end of {name}, whose fields have ever other types")
        if not _recurs(type):
            return body(*args)

        signature, outer = FunctionType(tuple([arg.type for arg in args]), tuple(results)), b.origin

        def inner(itself: Value, *parameters: Value) -> list[Value]:
            self.open[type] = itself
            made = body(*parameters)
            del self.open[type]
            b.origin = replace(outer, name=name)
            return made

        b.origin = replace(outer, name="")
        function = emit_blocks(b, "fix", (signature,), [], [inner])[0]
        b.origin = outer
        return list(b.emit("apply", (), [function, *args]))


def _recurs(type: Named) -> bool:
    """Whether values of a declared type may hold others of the same declaration."""
    return any(isinstance(part, Named) and part.declaration is type.declaration for part in reached(type.declaration))
