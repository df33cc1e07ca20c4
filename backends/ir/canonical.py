"""Canonical forms: blocks that are the same up to names have the same form, and their code can be one function.

A form is what a block consists of, in order, with a number for each name, counted by first mention; the extents of a
buffer stand where it is mentioned first. Behind names of the same numbers is what the blocks differ in::

    for i < n: y[i] = 2.0 * x[i]        names i, n; buffers y, x
    for k < m: b[k] = 2.0 * a[k]        names k, m; buffers b, a: the same form

Inside a form, a loop or a branch is its own form, with the numbers that its names have around it; that form is kept
with it. So what stands in many loops and branches, each of which is asked for its form, is written once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from ...core.primitive import Primitive
from ...core.types import Scalar, i64
from .expressions import Apply, Buffer, Constant, Variable
from .loops import Block, For, If, Kernel, While

_PLAIN = frozenset((Scalar, int, bool, type(None)))
_NESTED = frozenset((For, If, Kernel, While))


@dataclass(frozen=True)
class Canonical:
    """The form of a block, and the variables and buffers that it mentions, in order."""

    form: bytes
    variables: tuple[str, ...]
    buffers: tuple[Buffer, ...]


def canonical(block: Block, *bound: str) -> Canonical:
    """The canonical form of a block; the names of variables that are bound around it may be given their numbers first.

    >>> from adze.backends import ir
    >>> def doubled(name, array):
    ...     return (ir.Let(name, 2 * ir.Variable("n")), ir.Store(ir.Buffer(array, i64, ()), (), ir.Variable(name)))
    >>> from adze.core.types import i64
    >>> a, b = canonical(doubled("s", "x")), canonical(doubled("t", "y"))
    >>> a.form == b.form, a.variables, b.variables
    (True, ('s', 'n'), ('t', 'n'))
    """
    form = _Form(bound)
    form.parts(block)
    return form.canonical()


def _canonical_of(statement: For | If | Kernel | While) -> Canonical:
    """The canonical form of a statement with blocks, kept with it."""
    kept: dict[str, Any] = vars(statement)
    if "canonical" not in kept:
        form = _Form(())
        form.fields(statement)
        kept["canonical"] = form.canonical()
    found: Canonical = kept["canonical"]
    return found


class _Form:
    """A form being written; ``names`` has the number of each variable."""

    def __init__(self, bound: tuple[str, ...]) -> None:
        self.text: list[str] = []
        self.names = {name: str(number) for number, name in enumerate(bound)}
        self.buffers: dict[str, Buffer] = {}
        self._numbers: dict[str, str] = {}  # of buffers

    def canonical(self) -> Canonical:
        digest = hashlib.blake2b(" ".join(self.text).encode(), digest_size=20).digest()
        return Canonical(digest, tuple(self.names), tuple(self.buffers.values()))

    def parts(self, parts: tuple[Any, ...]) -> None:
        write = self.text.append
        write("(")
        for part in parts:
            self.part(part)
        write(")")

    def part(self, part: Any) -> None:
        """A node, or what one has in a field: a name where it is a string."""
        kind = type(part)  # no patterns: this is asked of all that there is
        if kind is Variable:
            self.name(part.name)
            if part.type is not i64:
                self.text.append(str(part.type))
        elif kind is Apply:
            self.text.append(f"{part.primitive.name} {part.type} {part.chained}")
            self.parts(part.arguments)
        elif kind is tuple:
            self.parts(part)
        elif kind is Constant:
            self.text.append(f"{part.value!r} {part.type}")
        elif kind is str:
            self.name(part)
        elif kind is Buffer:
            self.buffer(part)
        elif kind is Primitive:
            self.text.append(part.name)
        elif kind in _PLAIN:
            self.text.append(str(part))
        elif kind in _NESTED:
            self.form(_canonical_of(part))
        else:
            self.fields(part)

    def fields(self, node: Any) -> None:
        """A node, by what it has in its fields."""
        self.text.append(type(node).__name__)
        for field in node.__match_args__:
            value = getattr(node, field)
            if field == "kind":
                self.text.append(value)
            else:
                self.part(value)

    def form(self, inside: Canonical) -> None:
        """A part with a form of its own: what the form's names are here says what it is."""
        self.text.append(inside.form.hex())
        for name in inside.variables:
            self.name(name)
        for buffer in inside.buffers:
            self.buffer(buffer)

    def name(self, name: str) -> None:
        self.text.append(self.names.setdefault(name, str(len(self.names))))

    def buffer(self, buffer: Buffer) -> None:
        number = self._numbers.get(buffer.name)
        if number is not None:
            self.text.append(number)
            return
        self._numbers[buffer.name] = number = f"b{len(self._numbers)}"
        self.buffers[buffer.name] = buffer
        self.text.append(f"{number} {buffer.scalar}")
        self.parts(buffer.extents)
