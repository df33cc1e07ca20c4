"""The digest of a term: the same in every process, and different for terms that mean anything different.

A term is written as text, with everything that a derivative or a compiler may look at, and the text is hashed. Two
things are written as the number of their first occurrence, so that a program is recognised after it has moved: the
places where operations were written (:class:`Origin`), and opaque sizes. Whoever keeps something by the digest of a
term, and mentions places in it, says their numbers in :attr:`Digest.origins`; the same holds for captured arrays, and
for the classes of structures and the declarations of data types, which may be others of the same name.

    sum(x * x) of x: f64[n]   ->   ((f64[n]) (reduce (n) (s n;l f64 0) ...

An operation that a function of C computes is known by the version of its library; with it stand its rules, which
derivatives ask. Other operations, and rows of primitives that a user has added, mean what the user's process says: a
term with such a one has no digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import gamma, primitives, special
from .c_functions import CFunction
from .constructs import PROPERTIES, Construct
from .custom import RuleByKey
from .dims import Compound, Dim, Name, Opaque
from .language import EXPANSION
from .operations import term_of_expansion, term_of_rule
from .primitive import PRIMITIVES, Primitive
from .terms import Block, Constant, Failure, Foreign, Literal, Operation, Origin, Size, Variable
from .trees import Shape
from .types import (
    Accumulator,
    ArrayType,
    Declaration,
    FunctionType,
    Itself,
    Named,
    Scalar,
    TupleType,
    Type,
    TypeVariable,
)

_TABLES = (primitives, special, gamma)  # which have entered the rows of the language into the table
_OWN = dict(PRIMITIVES)
_MOST_RULES = 64  # of operations at some types


class NoDigest(TypeError):
    """What a term holds means something in this process alone."""


@dataclass(frozen=True)
class Digest:
    """The digest, and what it knows by number."""

    value: bytes
    origins: tuple[Origin, ...]
    constants: tuple[Constant, ...]
    containers: tuple[type, ...]  # of structures
    functions: tuple[CFunction, ...]
    declarations: tuple[Declaration, ...]


def digest(*parts: Any) -> Digest:
    """The digest of terms, types, structures, strings and numbers. NoDigest for anything else."""
    if any(PRIMITIVES.get(name) is not row for name, row in _OWN.items()):
        raise NoDigest("a primitive of the language has been replaced")
    writer = _Writer()
    writer.sequence(parts)
    value = hashlib.blake2b("".join(writer.text).encode("utf-8", "surrogatepass"), digest_size=20).digest()
    return Digest(
        value,
        tuple(writer.origins),
        tuple(writer.constants),
        tuple(writer.containers),
        tuple(writer.functions),
        tuple(writer.declarations),
    )


class _Writer:
    def __init__(self) -> None:
        self.text: list[str] = []
        self.origins: dict[Origin, int] = {}
        self.constants: dict[Constant, int] = {}
        self.containers: dict[type, int] = {}
        self.functions: dict[CFunction, int] = {}
        self.declarations: dict[Declaration, int] = {}
        self._rules: dict[tuple[Foreign, tuple[Type, ...]], int] = {}
        self._opaque: dict[Opaque, int] = {}

    def sequence(self, parts: Any) -> None:
        self.text.append("(")
        for part in parts:
            self.part(part)
        self.text.append(")")

    def part(self, part: Any) -> None:
        write = _WRITERS.get(type(part))
        if write is None:
            raise NoDigest(f"a {type(part).__name__} has no digest")
        write(self, part)

    def plain(self, part: Any) -> None:
        self.text.append(f"{part!r} ")

    def block(self, part: Block) -> None:
        self.sequence((part.binders, part.bindings, part.results))

    def operation(self, part: Operation) -> None:
        self.sequence((part.op, part.static, part.args, part.blocks, part.types, part.origin))
        if part.static and isinstance(part.static[0], Construct):
            self.part(self.definition(part))
        if part.static and isinstance(part.static[0], Foreign):
            self.rules(part.static[0], tuple([arg.type for arg in part.args]))

    def later_rule(self, part: RuleByKey) -> None:
        """One of this package's, by its name."""
        self.sequence(("rule", part.name, *part.key))

    def foreign(self, part: Foreign) -> None:
        """What is known of an operation elsewhere: the version of its function of C."""
        if part.c is None or part.c.version is None:
            raise NoDigest(f"the operation {part.name} means what this process says")
        error = f"{part.c.error.__module__}.{part.c.error.__qualname__}"
        known = part.name, part.effects, part.c.symbol, *part.c.version, part.c.message, error
        self.sequence((*known, _numbered(self.functions, part.c)))

    def rules(self, part: Foreign, types: tuple[Type, ...]) -> None:
        """The rules of an operation at arguments of some types, and its work area there: once."""
        known, number = len(self._rules), _numbered(self._rules, (part, types))
        self.part(number)
        if number < known:
            return
        if known == _MOST_RULES:
            raise NoDigest(f"the rules of {part.name} come to it again at ever other types")
        assert part.c is not None
        self.part(None if part.c.words is None else part.c.words(types))
        self.sequence((part.small, None if part.expansion is None else term_of_expansion(part, types)))
        for name in sorted(part.rules):
            self.sequence((name, term_of_rule(part, name, types)))
        for places, other in sorted(part.fewer.items()):
            self.sequence((*places, other))
            self.rules(other, types)

    def construct(self, part: Construct) -> None:
        """One that was added: its properties stand here, its expansion where it is used."""
        if part.own or part.blocks:
            raise NoDigest(f"the construct {part.name} means what Python functions say")
        self.sequence((part.name, *[getattr(part, name) for name in PROPERTIES]))

    def definition(self, part: Operation) -> Block:
        """What an operation without blocks means in terms of others, for arguments of its types."""
        types = tuple([arg.type for arg in part.args])
        args = tuple([Variable(len(types) - 1 - k, type) for k, type in enumerate(types)])
        alone = Operation(part.op, part.static, args, (), part.types)
        results = tuple([Variable(len(part.types) - 1 - k, type) for k, type in enumerate(part.types)])
        return EXPANSION["default"](Block(types, (alone,), results), lambda construct: False)

    def variable(self, part: Variable) -> None:
        self.sequence(("v", part.index, part.type))

    def literal(self, part: Literal) -> None:
        self.sequence(("l", part.bits, part.type))

    def size(self, part: Size) -> None:
        self.sequence(("s", part.dim, part.type))

    def constant(self, part: Constant) -> None:
        self.sequence(("c", _numbered(self.constants, part), part.type, part.digest))

    def origin(self, part: Origin) -> None:
        self.text.append(f"@{_numbered(self.origins, part)}{'c' * part.combines} ")

    def failure(self, part: Failure) -> None:
        steps = () if part.path is None else part.path.steps
        self.sequence(("failure", part.kind, part.message, part.origin, *steps))

    def primitive(self, part: Primitive) -> None:
        if _OWN.get(part.name) is not part:
            raise NoDigest(f"the primitive {part.name} has been added to the language")
        self.text.append(f"{part.name} ")

    def dim(self, part: Dim) -> None:
        self.sequence(("dim", *part.terms))

    def opaque(self, part: Opaque) -> None:
        self.text.append(f"?{_numbered(self._opaque, part)} ")

    def compound(self, part: Compound) -> None:
        self.sequence(("compound", part.operator, part.left, part.right))

    def scalar(self, part: Scalar) -> None:
        self.text.append(f"{part.name} ")

    def array(self, part: ArrayType) -> None:
        self.sequence(("array", part.scalar, part.dims))

    def accumulator(self, part: Accumulator) -> None:
        self.sequence(("accumulator", part.of))

    def product(self, part: TupleType) -> None:
        self.sequence(("tuple", part.items))

    def function(self, part: FunctionType) -> None:
        self.sequence((type(part).__name__, part.parameters, part.results))

    def parameter(self, part: TypeVariable) -> None:
        self.sequence(("parameter", part.name))

    def named(self, part: Named) -> None:
        self.sequence(("named", part.declaration, part.arguments))

    def declaration(self, part: Declaration) -> None:
        """What it declares stands where it is met first, and may mention the declaration itself."""
        known, number = len(self.declarations), _numbered(self.declarations, part)
        self.text.append(f"&{number} ")
        if number == known:
            variants = [(name, *fields.items()) for name, fields in part.variants.items()]
            self.sequence((part.name, part.parameters, variants))

    def shape(self, part: Shape) -> None:
        container = part.container
        if container is None:
            self.sequence(("leaf",))
            return
        named = f"{container.__module__}.{container.__qualname__}", _numbered(self.containers, container)
        self.sequence(("shape", named, part.keys, part.inner))


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    **dict.fromkeys((str, bytes, bool, int, float, type(None), Name), _Writer.plain),
    **dict.fromkeys((tuple, list), _Writer.sequence),
    Block: _Writer.block,
    Operation: _Writer.operation,
    Variable: _Writer.variable,
    Literal: _Writer.literal,
    Size: _Writer.size,
    Constant: _Writer.constant,
    Origin: _Writer.origin,
    Failure: _Writer.failure,
    Primitive: _Writer.primitive,
    Construct: _Writer.construct,
    Foreign: _Writer.foreign,
    RuleByKey: _Writer.later_rule,
    Dim: _Writer.dim,
    Opaque: _Writer.opaque,
    Compound: _Writer.compound,
    Scalar: _Writer.scalar,
    ArrayType: _Writer.array,
    Accumulator: _Writer.accumulator,
    TupleType: _Writer.product,
    FunctionType: _Writer.function,
    Itself: _Writer.function,
    TypeVariable: _Writer.parameter,
    Named: _Writer.named,
    Declaration: _Writer.declaration,
    Shape: _Writer.shape,
}


def _numbered(known: dict[Any, int], part: Any) -> int:
    return known.setdefault(part, len(known))
