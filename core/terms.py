"""The typed syntax tree: atoms, operations and blocks, in A-normal form with De Bruijn indices.

An *operation* is applied to atoms and blocks and yields any number of results; a *block* binds parameters, then
the results of its operations in order, and gives back some atoms. A block is every let and every lambda, so trees
are as deep as the program is nested, never as deep as it is long. ``Variable(0)`` is the value bound last; an
operation with ``k`` results binds ``k`` values, a statement binds none.

    sum(x * x) of x: f64[n]

    Block((f64[n],),                                             # x
          (Operation("reduce", (n,), (Size(n), Literal(0.0)), (
              Block((i64,), (Operation("index", (), (Variable(1), Variable(0))), ...)),
              Block((f64, f64), (Operation("primitive", (add,), (Variable(1), Variable(0))),), (Variable(0),)),
          )),),
          (Variable(0),))

Terms are immutable and compare by structure; hashes are computed once, at construction. Names and source lines
(:class:`Origin`) are kept for people and ignored by equality. ``block.interpret(language)`` gives a term a meaning.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from .c_functions import CFunction
from .constructs import Construct, construct
from .dims import Dim
from .source import NOWHERE as NOWHERE
from .source import Origin as Origin
from .trees import Shape
from .types import ArrayType, Scalar, Type, i64, scalar_of

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


# What to write where a neutral element is not neutral
NOT_NEUTRAL = "; a start is combined afterwards, as in op(start, reduce(op, neutral, xs))"

# Atoms


@dataclass(frozen=True)
class Variable:
    """The value bound ``index`` bindings ago."""

    index: int
    type: Type


@dataclass(frozen=True)
class Literal:
    """A scalar constant, known by its type and its bits: 0.0 and -0.0 differ, NaN equals itself."""

    bits: int
    type: Scalar

    @staticmethod
    def of(value: float | int | bool, type: Scalar) -> Literal:
        if type.kind == "float":
            code, number = ("<d", "<Q") if type.bits == 64 else ("<f", "<I")
            return Literal(struct.unpack(number, struct.pack(code, value))[0], type)
        return Literal(int(value), type)

    @property
    def value(self) -> float | int | bool:
        if self.type.kind == "float":
            code, number = ("<d", "<Q") if self.type.bits == 64 else ("<f", "<I")
            return float(struct.unpack(code, struct.pack(number, self.bits))[0])
        return bool(self.bits) if self.type.kind == "bool" else self.bits


@dataclass(frozen=True, eq=False)
class Constant:
    """An array captured from Python, copied at capture; known by its type and the digest of its content."""

    array: np.ndarray[Any, Any]
    type: ArrayType
    digest: bytes

    @staticmethod
    def capture(array: np.ndarray[Any, Any]) -> Constant:
        scalar = scalar_of(array.dtype)
        if scalar is None or array.ndim == 0:
            raise TypeError(f"an array of {array.dtype} cannot be a constant of a program")
        copy = np.array(array, order="C")
        copy.flags.writeable = False
        type = ArrayType(scalar, tuple(map(Dim.of, copy.shape)))
        return Constant(copy, type, hashlib.blake2b(copy.tobytes(), digest_size=16).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (self.type, self.digest) == (other.type, other.digest)

    def __hash__(self) -> int:
        return hash((self.type, self.digest))


@dataclass(frozen=True)
class Size:
    """The value of a dim that the sizes of a call determine."""

    dim: Dim
    type: Scalar = i64


Atom = Variable | Literal | Constant | Size


_ERRORS: dict[str, type[Exception]] = {
    "index": IndexError,
    "division": ZeroDivisionError,
    "linalg": np.linalg.LinAlgError,
}


@dataclass(frozen=True)
class Path:
    """Paths into values of declared types as two integers: a digit for each step, and how many there are.

    >>> path = Path((".left", ".right"))
    >>> path.text(0b011, 3), path.text(0, 100)
    ('.left.right.right', '[...].left (64 times)')
    """

    steps: tuple[str, ...]

    @property
    def base(self) -> int:
        """Of the digits: a power of two, so that i64 keeps the last ones of a long path."""
        return 1 << (len(self.steps) - 1).bit_length()

    def text(self, digits: int, length: int) -> str:
        """As one writes it in Python; of a long path the end, and each step once that comes again and again."""
        bits = self.base.bit_length() - 1
        known = min(length, 64 // bits) if bits else length
        runs: list[list[Any]] = []
        for k in reversed(range(known)):
            step = self.steps[digits >> k * bits & self.base - 1] if bits else self.steps[0]
            if runs and runs[-1][0] == step:
                runs[-1][1] += 1
            else:
                runs.append([step, 1])
        parts = [step * times if times <= 4 else f"{step} ({times} times)" for step, times in runs]
        return "[...]" * (known < length) + "".join(parts)


@dataclass(frozen=True)
class Failure:
    """What a failed requirement says: its kind ("index", "division", "size"...) and a message with ``{0}`` fields.

    Where it is about a part of a value of a declared type, the first two integers are the path to it (``Path``), and
    the message has a field ``{path}``.
    """

    kind: str
    message: str
    origin: Origin
    exception: type[Exception] | None = None  # where the kind does not say which
    path: Path | None = None

    def text(self, values: Sequence[int]) -> str:
        advice = NOT_NEUTRAL if self.kind == "neutral" else ""
        path = "" if self.path is None else self.path.text(*values[:2])
        return f"{self.message.format(*values, path=path)}, at {self.origin}{advice}"

    def error(self, values: Sequence[int]) -> Exception:
        """The exception to raise for these values."""
        return (self.exception or _ERRORS.get(self.kind, ValueError))(self.text(values))


@dataclass(frozen=True, eq=False)
class Foreign:
    """A function on arrays written elsewhere: its name, its meaning on NumPy arrays, its rule for types.

    ``result_types`` gives the types of the results for those of the arguments, or raises TypeError. The rest is what
    the user says besides (``core/operations.py``).
    """

    name: str
    numpy: Callable[..., Any] | None  # where there is none, it is what the function of C computes
    result_types: Callable[[Sequence[Type]], Sequence[Type]]
    outputs: Shape | None = None  # how the results are structured, where that is declared
    rules: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # of derivatives: "jvp", "vjp"
    cost: Callable[..., Any] | None = None  # additions, for the shapes of the arguments
    views: bool = False  # compiled code gives views of its memory instead of copies
    c: CFunction | None = None  # what compiled code calls
    expansion: Callable[..., Any] | None = None  # its meaning in terms of others, on expressions
    small: int = 0  # the largest extents of arguments for which code for a CPU has the expansion
    effects: bool = False  # it is a statement: run just as often, and in the order, as the program says
    fills: bool = False  # `numpy` is handed arrays for its results, and fills them
    fewer: Mapping[tuple[int, ...], Foreign] = field(
        default_factory=dict
    )  # what gives the results at these places alone

    def __repr__(self) -> str:
        return self.name


class LaterRule(ABC):
    """A rule of a custom operation that uses nothing from outside: it is built where a derivative asks for it.

    It stands in the static part of the operation, in the place of the rule's name, and has no block there.
    """

    name: str  # "jvp" or "vjp"
    key: tuple[Any, ...]  # which rule it is, among those of this package

    @abstractmethod
    def moved(self, primals: Sequence[Any], results: Sequence[Type], moves: Sequence[Any]) -> list[Any]:
        """What the rule gives, emitted here: for the operation's operands and results, and for what moves."""

    @abstractmethod
    def block(self, operands: tuple[Type, ...], results: tuple[Type, ...]) -> Block:
        """The block of the rule, as an operation with these types has it whose rules are built."""


Rules = tuple[str | LaterRule, ...]  # of a custom operation, by their names where they are built


def rule_names(static: Sequence[Any]) -> tuple[str, ...]:
    """The names of the rules of a custom operation, whether they are built or not."""
    return tuple([rule.name if isinstance(rule, LaterRule) else rule for rule in static])


class Operation:
    """A construct applied to atoms and blocks. ``types`` are the types of its results."""

    __slots__ = ("_hash", "args", "blocks", "op", "origin", "static", "types")

    def __init__(
        self,
        op: str,
        static: tuple[Any, ...],
        args: tuple[Atom, ...],
        blocks: tuple[Block, ...],
        types: tuple[Type, ...],
        origin: Origin = NOWHERE,
    ) -> None:
        self.op, self.static, self.args, self.blocks, self.types, self.origin = op, static, args, blocks, types, origin
        self._hash = hash((op, static, args, blocks, types))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Operation) or self._hash != other._hash:
            return False
        mine = (self.op, self.static, self.args, self.types, self.blocks)
        return mine == (other.op, other.static, other.args, other.types, other.blocks)

    def __repr__(self) -> str:
        return f"Operation({self.op!r}, {self.static}, {self.args}, {self.blocks})"

    @property
    def row(self) -> Construct:
        """What is known of the construct."""
        return construct(self.op, self.static)

    @property
    def free(self) -> tuple[Variable, ...]:
        """The variables that the operation reads, with the indices that they have in front of it."""
        given = [atom for atom in self.args if isinstance(atom, Variable)]
        return (*given, *[variable for block in self.blocks for variable in block.free])

    @property
    def with_rules(self) -> Operation:
        """The operation with a block for each of its rules."""
        later = [rule for rule in self.static if isinstance(rule, LaterRule)] if self.op == "custom" else []
        if not later:
            return self
        rules = [rule.block(tuple([arg.type for arg in self.args]), self.types) for rule in later]
        return Operation(self.op, rule_names(self.static), self.args, (*self.blocks, *rules), self.types, self.origin)

    def __reduce__(self) -> Any:
        made = self.with_rules  # those that are built later mean what functions of this process say
        return Operation, (made.op, made.static, made.args, made.blocks, made.types, made.origin)


class Meaning(Protocol[B_co]):
    """What gives terms a meaning."""

    def meaning(self, block: Block) -> B_co: ...


class Block:
    """Parameters, operations in order, and the atoms given back."""

    __slots__ = ("_free", "_hash", "binders", "bindings", "names", "results")

    def __init__(
        self,
        binders: tuple[Type, ...],
        bindings: tuple[Operation, ...],
        results: tuple[Atom, ...],
        names: tuple[str, ...] = (),
    ) -> None:
        self.binders, self.bindings, self.results = binders, bindings, results
        self.names = names or ("",) * len(binders)
        self._hash = hash((binders, bindings, results))
        self._free: tuple[Variable, ...] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Block) or self._hash != other._hash:
            return False
        return (self.binders, self.bindings, self.results) == (other.binders, other.bindings, other.results)

    def __repr__(self) -> str:
        return f"Block({self.binders}, {self.bindings}, {self.results})"

    def __reduce__(self) -> Any:
        return Block, (self.binders, self.bindings, self.results, self.names)

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of the results."""
        return tuple(result.type for result in self.results)

    @property
    def free(self) -> tuple[Variable, ...]:
        """The variables from outside that the block reads, in order, with the indices that they have in front of it."""
        if self._free is None:
            found: dict[int, Variable] = {}

            def note(atoms: Sequence[Atom], bound: int) -> None:
                for atom in atoms:
                    if isinstance(atom, Variable) and atom.index >= bound:
                        found[atom.index - bound] = Variable(atom.index - bound, atom.type)

            bound = len(self.binders)
            for operation in self.bindings:
                note(operation.free, bound)
                bound += len(operation.types)
            note(self.results, bound)
            self._free = tuple([found[index] for index in sorted(found)])
        return self._free

    def origin(self, atom: Atom) -> Origin:
        """Where what makes one of its values was written."""
        origins = [binding.origin for binding in self.bindings for _ in binding.types]
        return origins[-1 - atom.index] if isinstance(atom, Variable) and atom.index < len(origins) else NOWHERE

    def interpret(self, language: Meaning[B]) -> B:
        """The meaning of this block in a language (``language.Language``): a fold, one method a construct."""
        return language.meaning(self)

    def count(self) -> int:
        """How many operations the block holds, at all depths: the size of a program."""
        return sum(1 + sum(block.count() for block in binding.blocks) for binding in self.bindings)
