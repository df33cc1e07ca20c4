"""Constants of procedures: what a parameter or a result is in every run stands in its place.

Parameters and results are taken to be constants until a call or a block shows that they are not, and only branches
that may run are looked at (Callahan, Cooper, Kennedy and Torczon, Interprocedural constant propagation, 1986; Wegman
and Zadeck, Constant propagation with conditional branches, 1991). Constants are numbers, and cells without fields. ::

    f(xs, s) = case xs: Nil(): 0.0; Cons(h, t): s * h + f(t, s), which is called with s = 1.0 from outside
    =>  f(xs, s) = case xs: Nil(): 0.0; Cons(h, t): 1.0 * h + f(t, 1.0)

A return sweep passes the cotangent of a sum down to all terms, so it is 1.0 everywhere; and a walk that adds up zeros
gives zero. What is then used no more goes (``unused.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ...core.builder import Builder, build
from ...core.environment import Env
from ...core.graph import Value
from ...core.primitive import Primitive
from ...core.procedures import Procedure, procedures_of, shared_out
from ...core.terms import Atom, Block, Literal, Operation, Variable
from ...core.types import Opened
from .. import embed
from ..simplify.algebra import primitive as simplified
from .copies import Copies, Copy


class Known(Enum):
    """What is known of a value that is no constant."""

    NOTHING_YET = "no run gives it, as far as is known"
    NOTHING = "it may be anything"


@dataclass(frozen=True)
class Bare:
    """A cell of a tag that has no fields."""

    tag: int


Fact = Literal | Bare | Known


def with_constants(block: Block) -> Block:
    """A closed term in first-order form with the constants that its procedures take and give."""
    if not procedures_of(block):
        return block
    return _Program(_Facts(block)).block(block)


class _Facts:
    """What is known of the parameters and the results of procedures."""

    def __init__(self, block: Block) -> None:
        self.parameters: dict[Procedure, list[Fact]] = {}
        self.results: dict[Procedure, list[Fact]] = {}
        self._met: list[Procedure] = []
        self._changed = True
        while self._changed:
            self._changed = False
            self._block(block, Env(), [Known.NOTHING] * len(block.binders))
            for procedure in self._met:  # which those are added to that are met in the loop
                given = self._block(procedure.block, Env(), list(self.parameters[procedure]))
                self._join(self.results[procedure], given)

    def _join(self, facts: list[Fact], others: Sequence[Fact]) -> None:
        made = list(map(_either, facts, others))
        self._changed = self._changed or made != facts
        facts[:] = made

    def _block(self, block: Block, env: Env[Fact], arguments: Sequence[Fact]) -> list[Fact]:
        env = env.enter(arguments)
        for operation in block.bindings:
            env = env.extend(self._operation(operation, env))
        return [_of(atom, env) for atom in block.results]

    def _operation(self, operation: Operation, env: Env[Fact]) -> list[Fact]:
        args = [_of(atom, env) for atom in operation.args]
        match operation.op:
            case "primitive":
                return [_computed(operation.static[0], args)]
            case "cell" if not args:
                return [Bare(operation.static[0])]
            case "call":
                shares = shared_out(operation.static, args)
                return [
                    x for called, own in zip(operation.static, shares, strict=True) for x in self._call(called, own)
                ]
            case "cond":
                return self._choice(operation, args[0], _chosen(args[0]), env)
            case "open":
                return self._choice(operation, args[0], _opened(args[0], operation.static), env)
        given = [self._block(each, env, [Known.NOTHING] * len(each.binders)) for each in operation.blocks]
        if operation.row.splits:
            return [fact for each in given for fact in each]
        return [Known.NOTHING] * len(operation.types)

    def _choice(self, operation: Operation, by: Fact, taken: int | None, env: Env[Fact]) -> list[Fact]:
        facts: list[Fact] = [Known.NOTHING_YET] * len(operation.types)
        for number, block in enumerate(operation.blocks):
            if by is not Known.NOTHING_YET and taken in (None, number):
                given = self._block(block, env, [Known.NOTHING] * len(block.binders))
                facts = list(map(_either, facts, given))
        return facts

    def _call(self, procedure: Procedure, args: Sequence[Fact]) -> list[Fact]:
        if procedure not in self.parameters:
            self._met.append(procedure)
            self._changed = True
            start = Known.NOTHING_YET if procedure.fixed else Known.NOTHING
            self.parameters[procedure] = [start] * len(procedure.parameters)
            self.results[procedure] = [start] * len(procedure.results)
        self._join(self.parameters[procedure], args)
        return self.results[procedure]


def _either(one: Fact, other: Fact) -> Fact:
    """What is known of a value that comes from two places."""
    if one is Known.NOTHING_YET or one == other:
        return other
    return one if other is Known.NOTHING_YET else Known.NOTHING


def _of(atom: Atom, env: Env[Fact]) -> Fact:
    if isinstance(atom, Variable):
        return env.get(atom.index)
    return atom if isinstance(atom, Literal) else Known.NOTHING


def _computed(primitive: Primitive, args: Sequence[Fact]) -> Fact:
    """What an operation on scalars gives."""
    if Known.NOTHING_YET in args:
        return Known.NOTHING_YET
    literals = [arg for arg in args if isinstance(arg, Literal)]
    if len(literals) < len(args):
        return Known.NOTHING
    with build() as builder:
        return fact(_folded(builder, primitive, [builder.atom(literal) for literal in literals]))


def _folded(builder: Builder, primitive: Primitive, args: Sequence[Value]) -> Value:
    """What an operation gives, a number where it is given numbers."""
    made = simplified(builder, primitive, args) if all([isinstance(arg.atom, Literal) for arg in args]) else None
    return builder.primitive(primitive, *args) if made is None else made


def _chosen(test: Fact) -> int | None:
    """The branch of a ``cond`` that is taken, if that is known."""
    return (0 if test.bits else 1) if isinstance(test, Literal) else None


def _opened(cell: Fact, variants: Sequence[Opened]) -> int | None:
    """The branch of an ``open`` that is taken, if that is known."""
    if not isinstance(cell, Bare):
        return None
    return next(number for number, (tags, _) in enumerate(variants) if cell.tag in tags)


def fact(value: Value) -> Fact:
    """What a value of a program that is written shows by itself."""
    if isinstance(value.atom, Literal):
        return value.atom
    node = value.source
    return Bare(node.static[0]) if node is not None and node.op == "cell" and not node.args else Known.NOTHING


class _Program(Copies):
    """The program with its constants."""

    def __init__(self, facts: _Facts) -> None:
        super().__init__(lambda builder, _: _Writer(builder, self))
        self.facts = facts

    def given(self, procedure: Procedure, builder: Builder, binders: Sequence[Value]) -> Sequence[Value]:
        return constants(builder, self.facts.parameters.get(procedure), binders)


def constants(builder: Builder, facts: Sequence[Fact] | None, values: Sequence[Value]) -> list[Value]:
    """Values, or what is known of them where that is all."""

    def value(fact: Fact, own: Value) -> Value:
        if isinstance(fact, Literal):
            return builder.atom(fact)
        return builder.emit("cell", (fact.tag,), [])[0] if isinstance(fact, Bare) else own

    return list(values) if facts is None else [value(*each) for each in zip(facts, values, strict=True)]


class _Writer(Copy):
    def __init__(self, builder: Builder, program: _Program) -> None:
        super().__init__(builder, program)
        self.facts = program.facts

    def primitive(self, primitive: Primitive, args: Sequence[embed.Atom]) -> embed.Operation:
        return lambda env: [_folded(self.builder, primitive, [arg(env) for arg in args])]

    def cond(self, test: embed.Atom, then: embed.Block, orelse: embed.Block) -> embed.Operation:
        either = super().cond(test, then, orelse)

        def run(env: embed.Entries) -> Sequence[Value]:
            taken = _chosen(fact(test(env)))
            return either(env) if taken is None else (then, orelse)[taken](env, [])

        return run

    def open(self, cell: embed.Atom, variants: tuple[Opened, ...], branches: Sequence[embed.Block]) -> embed.Operation:
        any_of_them = super().open(cell, variants, branches)

        def run(env: embed.Entries) -> Sequence[Value]:
            opened = cell(env)
            taken = _opened(fact(opened), variants)
            if taken is None:
                return any_of_them(env)
            return branches[taken](env, [opened] if variants[taken][1] is None else [])

        return run

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[embed.Atom]) -> embed.Operation:
        called = super().call(procedures, args)
        facts = [x for each in procedures for x in self.facts.results.get(each, [Known.NOTHING] * len(each.results))]
        return lambda env: constants(self.builder, facts, called(env))
