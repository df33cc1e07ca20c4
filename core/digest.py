"""The digest of a term: the same in every process, and different for terms that mean anything different.

A term is written as text, with everything that a derivative or a compiler may look at, and the text is hashed. Two
things are written as the number of their first occurrence, so that a program is recognised after it has moved: the
places where operations were written (:class:`Origin`), and opaque sizes. Whoever keeps something by the digest of a
term, and mentions places in it, says their numbers in :attr:`Digest.origins`; the same holds for captured arrays.

    sum(x * x) of x: f64[n]   ->   ((f64[n]) (reduce (n) (s n;l f64 0) ...

Rows of primitives that a user has added mean what the user's process says. A term with such a row has no digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from . import gamma, primitives, special
from .dims import Compound, Dim, Name, Opaque
from .primitive import PRIMITIVES, Primitive
from .terms import Block, Constant, Failure, Literal, Operation, Origin, Size, Variable
from .trees import Shape
from .types import Accumulator, ArrayType, FunctionType, Scalar, TupleType

_TABLES = (primitives, special, gamma)  # which have entered the rows of the language into the table
_OWN = dict(PRIMITIVES)


class NoDigest(TypeError):
    """What a term holds means something in this process alone."""


@dataclass(frozen=True)
class Digest:
    """The digest, and what it knows by number."""

    value: bytes
    origins: tuple[Origin, ...]
    constants: tuple[Constant, ...]


def digest(*parts: Any) -> Digest:
    """The digest of terms, types, structures, strings and numbers. NoDigest for anything else."""
    if any(PRIMITIVES.get(name) is not row for name, row in _OWN.items()):
        raise NoDigest("a primitive of the language has been replaced")
    writer = _Writer()
    writer.sequence(parts)
    value = hashlib.blake2b("".join(writer.text).encode("utf-8", "surrogatepass"), digest_size=20).digest()
    return Digest(value, tuple(writer.origins), tuple(writer.constants))


class _Writer:
    def __init__(self) -> None:
        self.text: list[str] = []
        self.origins: dict[Origin, int] = {}
        self.constants: dict[Constant, int] = {}
        self._opaque: dict[Opaque, int] = {}

    def sequence(self, parts: Any) -> None:
        self.text.append("(")
        for part in parts:
            self.part(part)
        self.text.append(")")

    def part(self, part: Any) -> None:
        match part:
            case Block():
                self.sequence((part.binders, part.bindings, part.results))
            case Operation():
                self.sequence((part.op, part.static, part.args, part.blocks, part.types, part.origin))
            case Variable(index, scalar):
                self.sequence(("v", index, scalar))
            case Literal(bits, scalar):
                self.sequence(("l", bits, scalar))
            case Size(dim, scalar):
                self.sequence(("s", dim, scalar))
            case Constant():
                self.sequence(("c", _numbered(self.constants, part), part.type, part.digest))
            case Origin():
                self.text.append(f"@{_numbered(self.origins, part)} ")
            case Failure(kind, message, origin):
                self.sequence(("failure", kind, message, origin))
            case Primitive():
                self.text.append(f"{self.own(part)} ")
            case _ if type(part) in (str, bytes, bool, int, float):
                self.text.append(f"{part!r} ")
            case None:
                self.text.append("None ")
            case tuple() | list():
                self.sequence(part)
            case Dim() | Compound() | Opaque() | Name():
                self.dim(part)
            case Scalar(name):
                self.text.append(f"{name} ")
            case ArrayType(scalar, dims):
                self.sequence(("array", scalar, dims))
            case Accumulator(of):
                self.sequence(("accumulator", of))
            case TupleType(items):
                self.sequence(("tuple", items))
            case FunctionType(parameters, results):
                self.sequence((type(part).__name__, parameters, results))
            case Shape(container, keys, inner):
                named = "" if container is None else f"{container.__module__}.{container.__qualname__}"
                self.sequence(("shape", named, keys, inner))
            case _:
                raise NoDigest(f"a {type(part).__name__} has no digest")

    def dim(self, dim: Any) -> None:
        match dim:
            case Dim():
                self.sequence(("dim", *dim.terms))
            case Name():
                self.text.append(f"name {str(dim)!r} ")
            case Opaque():
                self.text.append(f"?{self._opaque.setdefault(dim, len(self._opaque))} ")
            case Compound(operator, left, right):
                self.sequence(("compound", operator, left, right))

    def own(self, row: Primitive) -> str:
        if _OWN.get(row.name) is not row:
            raise NoDigest(f"the primitive {row.name} has been added to the language")
        return row.name


def _numbered(known: dict[Any, int], part: Any) -> int:
    return known.setdefault(part, len(known))
