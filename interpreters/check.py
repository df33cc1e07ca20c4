"""The type checker: types a term again, and rejects one that is ill-typed. Run between passes under test.

A walk over the operations with an environment of types (``core/type_rules.py`` has the rule of each construct). What
the rules do not say is said here: a variable's index leads to a value of its type; blocks bind what their operation
hands them; an accumulator is only written to and never leaves its scope; and an opaque size stands for one integer
variable in scope. For that, every i64 variable has a *value* as a dim, as in the builder: the value of a computed
extent must be what the type that it makes says it is.

>>> from adze.core.types import f64, i64
>>> from adze.core.terms import Block, Variable
>>> check(Block((i64,), (), (Variable(0, f64),)))
Traceback (most recent call last):
TypeError: ill-typed term: variable 0 is written with type f64, but bound with type i64; in the results (%0: f64)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.dims import Compound, Dim, DimAtom, Opaque, arithmetic
from ..core.environment import Env
from ..core.limits import lifted_limits
from ..core.program import instance_of
from ..core.terms import Atom, Block, Literal, Operation, Size, Variable
from ..core.types import Accumulator, Type, dims, i64
from ..core.verb import Function


@dataclass(frozen=True)
class _Entry:
    """A bound value: its type, and its value as a dim when it is an integer."""

    type: Type
    value: Dim | None


class _IllTyped(Exception):
    """What is wrong, without the place."""


def check(program: Function[..., Any] | Block) -> None:
    """Type a program or term; TypeError, with the operation printed, when it is ill-typed."""
    block = program if isinstance(program, Block) else instance_of(program).term
    checker = _Checker()
    try:
        with lifted_limits():
            checker.block(block, Env(), block.binders, whole=True)
    except _IllTyped as error:
        raise TypeError(f"ill-typed term: {error}") from None


class _Checker:
    """The sizes that opaque dims of the term stand for, in terms of the checker's own numbers."""

    def __init__(self) -> None:
        self.count = 0
        self.sizes: dict[int, Dim] = {}
        self.guessed: dict[int, Dim] = {}  # sizes that are fresh numbers, with what a dim that mentions them is
        self.sealed = 0  # values bound before the innermost function, which may outlive their scope

    # Blocks and operations

    def block(self, block: Block, env: Env[_Entry], binders: Sequence[Type], whole: bool = False) -> tuple[Type, ...]:
        """The types of the results of a block that is handed parameters of these types.

        A result of the whole term may have a size that the run decides; that of another block may not.
        """
        first = self.count
        if tuple(block.binders) != tuple(binders):
            raise _IllTyped(f"a block binds ({_types(block.binders)}) where its operation gives ({_types(binders)})")
        entries = [self.entry(type) for type in block.binders]
        if whole:
            self.introduce(entries)
        env = env.enter(entries)
        for position, operation in enumerate(block.bindings):
            try:
                env = env.extend(self.operation(operation, env))
            except (_IllTyped, TypeError) as error:
                place = f"operation {position}, {_text(operation)}, written at {operation.origin}"
                raise _IllTyped(f"{error}; in {place}") from None
        try:
            for result in block.results:
                self.atom(result, env)
                if isinstance(result.type, Accumulator):
                    raise _IllTyped("an accumulator leaves its scope")
        except _IllTyped as error:
            raise _IllTyped(f"{error}; in the results ({', '.join(map(_atom, block.results))})") from None
        if not whole:
            self.leave(first)
            for result in block.results:
                self.known(result.type, "leaves the block that makes it")
        return block.types

    def operation(self, operation: Operation, env: Env[_Entry]) -> list[_Entry]:
        """Check an operation; what it binds."""
        entries = [self.atom(arg, env) for arg in operation.args]
        types = [arg.type for arg in operation.args]
        row = operation.row
        for position, type in enumerate(types):
            if isinstance(type, Accumulator) and not (row.writes and position == 0):
                raise _IllTyped("an accumulator is only written to, by add_to")
        if operation.static and isinstance(operation.static[0], Dim):
            self.extent(operation.static[0], entries[0])
        count = row.count(operation.static)
        if count is not None and count != len(operation.blocks):
            raise _IllTyped(f"{operation.op} has {count} blocks, not {len(operation.blocks)}")
        if row.writes and operation.args[0].index >= len(env) - self.sealed:  # type: ignore[union-attr]
            raise _IllTyped("an accumulator is written to by a function, which may be applied outside its scope")
        outer = self.sealed
        if row.functions:
            self.sealed = len(env)
        blocks: list[tuple[Type, ...]] = []
        for block in operation.blocks:
            binders = row.binders(operation.static, types, blocks)
            blocks.append(self.block(block, env, binders))
        self.sealed = outer
        expected = row.types(operation.static, types, blocks)
        if expected != operation.types:
            raise _IllTyped(f"it yields ({_types(expected)}), but binds ({_types(operation.types)})")
        for type in expected:
            self.known(type, "is the size of nothing in scope")
        bound = [self.entry(type) for type in expected]
        if operation.op == "primitive" and expected == (i64,):
            value = arithmetic(operation.static[0].name, [entry.value for entry in entries])
            bound = [_Entry(i64, value or bound[0].value)]
        elif operation.op == "size":
            bound = [_Entry(i64, self.resolved(dims(types[0])[operation.static[0]]))]
        return bound

    def atom(self, atom: Atom, env: Env[_Entry]) -> _Entry:
        match atom:
            case Variable(index, type):
                if not 0 <= index < len(env):
                    raise _IllTyped(f"variable {index} is not bound: {len(env)} values are in scope")
                entry = env.get(index)
                if entry.type != type:
                    raise _IllTyped(f"variable {index} is written with type {type}, but bound with type {entry.type}")
                return entry
            case Literal(bits, type):
                return _Entry(type, Dim.of(bits) if type == i64 else None)
            case Size(dim):
                if not dim.is_static():
                    raise _IllTyped(f"the size {dim} is not known from the arguments of a call")
                return _Entry(i64, dim)
        return _Entry(atom.type, None)

    # Opaque sizes

    def fresh(self) -> Dim:
        self.count += 1
        return Dim.atom(Opaque(self.count))

    def entry(self, type: Type) -> _Entry:
        return _Entry(type, self.fresh() if type == i64 else None)

    def resolved(self, dim: Dim) -> Dim:
        """A dim of the term in the checker's own numbers."""

        def own(atom: DimAtom) -> Dim | None:
            if not isinstance(atom, Opaque):
                return None
            if atom.number not in self.sizes:
                raise _IllTyped(f"the size {atom} is the size of nothing in scope")
            return self.sizes[atom.number]

        return dim if dim.is_static() else dim.substitute(own)

    def introduce(self, parameters: Sequence[_Entry]) -> None:
        """The sizes that the parameters of the whole term have: integers among them, by number, or of outer scopes."""
        integers = [entry.value for entry in parameters if entry.value is not None]
        self.sizes.update(enumerate(integers))
        for entry in parameters:
            for dim in dims(entry.type):
                for atom in dim.atoms():
                    if isinstance(atom, Opaque):
                        self.sizes.setdefault(atom.number, self.fresh())

    def extent(self, dim: Dim, extent: _Entry) -> None:
        """The dim of a loop is its extent; a new opaque size in it is thereby known.

        Where a dim cannot be solved its sizes are guessed, until another dim says what they are.
        """
        if extent.value is None:
            raise _IllTyped(f"an extent of type {extent.type}")
        numbers = {atom.number for atom in dim.atoms() if isinstance(atom, Opaque)}
        new = [number for number in sorted(numbers) if number not in self.sizes or number in self.guessed]
        found = self.solution(dim, extent.value, new[0]) if len(new) == 1 else None
        if found is not None:
            self.sizes[new[0]] = found
            self.guessed.pop(new[0], None)
        elif new:
            self.guessed.update(dict.fromkeys(new, extent.value))
            self.sizes.update({number: self.fresh() for number in new if number not in self.sizes})
            return
        if self.resolved(dim).compare(extent.value) is not True:
            raise _IllTyped(f"its size is written {dim}, but its extent is {extent.value}")

    def solution(self, dim: Dim, value: Dim, number: int) -> Dim | None:
        """What an opaque size is when a dim that mentions it has a value: solves ``? + rest`` and ``max(0, ?)``."""
        held = [(monomial, c) for monomial, c in dim.terms if Opaque(number) in Dim({monomial: c}).atoms()]
        if len(held) != 1:
            return None
        monomial, c = held[0]
        rest = value - self.resolved(dim - Dim({monomial: c}))
        match monomial, rest.terms:
            case (Opaque(),), _ if c in (1, -1):
                return rest * c
            case (Compound() as pattern,), (((Compound() as own,), factor),) if (pattern.operator, c) == (
                own.operator,
                factor,
            ):
                for part, part_value in ((pattern.left, own.left), (pattern.right, own.right)):
                    if Opaque(number) in part.atoms():
                        return self.solution(part, part_value, number)
        return None

    def known(self, type: Type, problem: str) -> None:
        for dim in dims(type):
            for atom in dim.atoms():
                if isinstance(atom, Opaque) and atom.number not in self.sizes:
                    raise _IllTyped(f"the size {atom} of a value of type {type} {problem}")

    def leave(self, first: int) -> None:
        """Forget the sizes that stand for variables of the block that ends; a guessed one, if its dim's value does."""
        self.sizes = {
            number: dim
            for number, dim in self.sizes.items()
            if all(
                not isinstance(atom, Opaque) or atom.number <= first for atom in self.guessed.get(number, dim).atoms()
            )
        }


# Text


def _atom(atom: Atom) -> str:
    match atom:
        case Variable(index, type):
            return f"%{index}: {type}"
        case Literal():
            return f"{atom.value}: {atom.type}"
        case Size(dim):
            return f"size {dim}"
    return f"constant: {atom.type}"


def _text(operation: Operation) -> str:
    static = "".join(f" {x}" for x in operation.static if not hasattr(x, "message"))
    bound = f"{_types(operation.types)} = " if operation.types else ""
    return f"{bound}{operation.op}{static}({', '.join(map(_atom, operation.args))})"


def _types(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))
