"""A rewriter of programs: other spellings of a program, chosen by a seed, that mean exactly the same.

``respelled(program, kind, seed)`` is a program with the same parameters. What a kind of rewrite does is one small class
below; it is tried at every place, and a coin that the seed throws decides. Most are interpretations of the program's
term: they build it again (``interpreters/embed.py``), and the one method that they have is that of the construct which
they write in another way. Inheritance puts them together, as in ``_Together``. The last three change what stands around
a function: its annotations, or who calls it.

    sum(x[i] * y[i])    commuted      sum(y[i] * x[i])
                        arithmetic    sum(x[(i + 1) - 1] * y[i])
                        stored        t = generate(i: x[i] * y[i]); sum(t[i])

A value that is written twice, and one that is bound in a loop although it does not vary there, need no kinds: they are
one node, in the outermost place where it can be computed, as soon as a program is built.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import adze as az
from adze.core import trees
from adze.core.annotations import Declared
from adze.core.builder import Builder, current
from adze.core.constructs import Construct
from adze.core.dims import Dim
from adze.core.environment import Env
from adze.core.expr import Expr
from adze.core.graph import Value
from adze.core.primitive import Primitive
from adze.core.types import Type, all_dims, i64, is_float, map_dims
from adze.interpreters import embed

# Throws of the coins, until one of them changes the program
TRIES = 8


def respelled(program: az.Program, kind: str, seed: int) -> az.Program | None:
    """Another spelling of an annotated program; ``kind`` is one of ``KINDS``. None if it has no place for this kind."""
    for attempt in range(TRIES):
        other = KINDS[kind](program, random.Random(f"{program.name}, {kind}, {seed}, {attempt}"))
        if other.at().term != program.at().term:
            return other
    return None


# Rewrites of terms


class _Rewriting(embed.Embed):
    """Builds a term again; a rewrite takes place where ``now`` says so."""

    def __init__(self, builder: Builder, chance: random.Random) -> None:
        super().__init__(builder)
        self.chance = chance

    def now(self) -> bool:
        return self.chance.random() < 0.5

    def read(self, array: Value, indices: Sequence[Value]) -> Sequence[Value]:
        return [self.builder.index(array, indices)]

    def index(self, array: embed.Atom, indices: Sequence[embed.Atom]) -> embed.Operation:
        return lambda env: self.read(array(env), [i(env) for i in indices])


class _Commuted(_Rewriting):
    """The operands of commutative operations, in the other order."""

    def primitive(self, primitive: Primitive, args: Sequence[embed.Atom]) -> embed.Operation:
        turned = primitive.commutative and self.now()
        return super().primitive(primitive, args[::-1] if turned else args)


class _Arithmetic(_Rewriting):
    """Indices computed in a roundabout way."""

    def read(self, array: Value, indices: Sequence[Value]) -> Sequence[Value]:
        return super().read(array, [self.roundabout(i, indices[0]) if self.now() else i for i in indices])

    def roundabout(self, i: Value, j: Value) -> Value:
        """``i``, which another integer may help to spell."""
        of, one = self.builder.primitive, self.builder.literal(1, i64)
        ways: Sequence[Callable[[], Value]] = (
            lambda: of("subtract", of("add", i, one), one),
            lambda: of("add", one, of("subtract", i, one)),
            lambda: of("subtract", of("add", i, j), j),
            lambda: of("add", of("subtract", j, j), of("multiply", i, one)),
            lambda: of("subtract", of("multiply", self.builder.literal(2, i64), i), i),
        )
        return self.chance.choice(ways)()


class _Rows(_Rewriting):
    """An element taken from a row that was taken before, as in maps in maps."""

    def read(self, array: Value, indices: Sequence[Value]) -> Sequence[Value]:
        if len(indices) > 1 and self.now():
            return super().read(self.builder.part(array, indices[:1]), indices[1:])
        return super().read(array, indices)


class _Joined(_Rewriting):
    """What reads a map computes it: two maps become one, and what is read twice is computed twice."""

    def read(self, array: Value, indices: Sequence[Value]) -> Sequence[Value]:
        if array.source is not None and array.source.op == "generate" and self.now():
            body = array.source.bodies[0]
            inner = self.builder.substitute([body.results[array.position]], {body.binders[0]: indices[0]})[0]
            return self.read(inner, indices[1:]) if len(indices) > 1 else [inner]
        return super().read(array, indices)


class _Permuted(_Rewriting):
    """Tables made with their first two axes in the other order, and read so."""

    def __init__(self, builder: Builder, chance: random.Random) -> None:
        super().__init__(builder, chance)
        self.turned: dict[int, Value] = {}  # by the number of a table, the same with its axes in the other order

    def read(self, array: Value, indices: Sequence[Value]) -> Sequence[Value]:
        if array.number in self.turned and len(indices) > 1:
            return super().read(self.turned[array.number], [indices[1], indices[0], *indices[2:]])
        return super().read(array, indices)

    def generate(self, dim: Dim, extent: embed.Atom, body: embed.Block) -> embed.Operation:
        made = super().generate(dim, extent, body)
        return lambda env: [self.table(value) for value in made(env)]

    def table(self, rows: Value) -> Value:
        if rows.source is None or rows.source.op != "generate" or len(rows.source.results) > 1:
            return rows
        (i,), (row,) = rows.source.bodies[0].binders, rows.source.bodies[0].results
        inner = row.source
        if inner is None or inner.op != "generate" or len(inner.results) > 1 or i.number in inner.args[0].free:
            return rows
        if not self.now():
            return rows
        (j,), (element,) = inner.bodies[0].binders, inner.bodies[0].results
        b, n, m = self.builder, rows.source.args[0], inner.args[0]

        def entry(column: Value, row: Value) -> Value:
            return b.substitute(b.substitute([element], {j: column}), {i: row})[0]

        turned = b.array([m, n], entry)
        table = b.array([n, m], lambda row, column: b.part(turned, [column, row]))
        self.turned[table.number] = turned
        return table


class _Stored(_Rewriting):
    """Scalars that loops compute in an array of their own: maps are split, or what does not vary is hoisted by hand.

    Not in branches: what is not chosen there may have no derivative.
    """

    fewer = False  # whether the array has fewer axes than there are loops

    def __init__(self, builder: Builder, chance: random.Random) -> None:
        super().__init__(builder, chance)
        self.loops: dict[Value, Value] = {}  # of the variables of loops in scope, their extents
        self.around = frozenset(builder.open)  # what is in scope before all loops
        self.branches = 0

    def cond(self, test: embed.Atom, then: embed.Block, orelse: embed.Block) -> embed.Operation:
        return super().cond(test, self.within(then), self.within(orelse))

    def within(self, branch: embed.Block) -> embed.Block:
        def run(env: embed.Entries, arguments: Sequence[Value]) -> list[Value]:
            self.branches += 1
            results = branch(env, arguments)
            self.branches -= 1
            return results

        return run

    def generate(self, dim: Dim, extent: embed.Atom, body: embed.Block) -> embed.Operation:
        return super().generate(dim, extent, self.over(extent, body))

    def combination(
        self,
        construct: Construct,
        extents: Sequence[embed.Atom],
        neutrals: Sequence[embed.Atom],
        element: embed.Block,
        operator: embed.Block,
    ) -> embed.Operation:
        return super().combination(construct, extents, neutrals, self.over(extents[-1], element), operator)

    def over(self, extent: embed.Atom, body: embed.Block) -> embed.Block:
        def run(env: embed.Entries, arguments: Sequence[Value]) -> list[Value]:
            self.loops[arguments[0]] = extent(env)
            results = body(env, arguments)
            del self.loops[arguments[0]]
            return results

        return run

    def primitive(self, primitive: Primitive, args: Sequence[embed.Atom]) -> embed.Operation:
        made = super().primitive(primitive, args)
        return lambda env: [self.stored(value) for value in made(env)]

    def stored(self, scalar: Value) -> Value:
        varies = {i: extent for i, extent in self.loops.items() if i.number in scalar.free}
        inside = self.around | {i.number for i in self.loops}
        computed = not scalar.free <= inside or any(not extent.free <= self.around for extent in varies.values())
        unlike = not varies or (len(varies) < len(self.loops)) != self.fewer
        if computed or unlike or self.branches or not is_float(scalar.type) or not self.now():
            return scalar
        array = self.builder.array(
            list(varies.values()),
            lambda *at: self.builder.substitute([scalar], dict(zip(varies, at, strict=True)))[0],
        )
        return self.builder.index(array, list(varies))


class _Hoisted(_Stored):
    fewer = True


class _Together(_Commuted, _Arithmetic, _Rows, _Joined, _Permuted, _Hoisted):
    """All of these at once."""


def _of_term(rewriting: type[_Rewriting], program: az.Program, chance: random.Random) -> az.Program:
    instance = program.at()
    if instance.equalities:
        raise ValueError(f"{program.name}: state in the annotations which sizes are equal")

    def function(*arguments: Any) -> Any:
        values = [leaf.value for leaf in trees.flatten(list(arguments))[0]]
        results = instance.term.interpret(rewriting(current(), chance))(Env(), values)
        return trees.unflatten(instance.outputs, [Expr(value, current()) for value in results])

    return like(program, function)


# Rewrites of what is around a function


def like(
    program: az.Program, function: Callable[..., Any], other: Callable[[Type], Type] = lambda type: type
) -> az.Program:
    """A program of a function, with the parameters of another program, but for their types."""
    parameters = []
    for parameter in program.parameters:
        declared = parameter.declared
        if declared is None:
            raise ValueError(f"{program.name}: {parameter.name} has no annotation")
        types = tuple(map(other, declared.types))
        whole = parameter.type is not None
        changed = {"type": types[0]} if whole else {"structure": Declared(declared.shape, types)}
        parameters.append(replace(parameter, **changed))
    return az.Program(function, program.name, parameters)


def _called(program: az.Program, chance: random.Random) -> az.Program:
    """A program that calls it, and has other names for its sizes."""
    return like(program, lambda *arguments: program(*arguments), _renaming(program, chance))


def _renamed(program: az.Program, chance: random.Random) -> az.Program:
    """The names of sizes exchanged, so that they are sorted in another order, too."""
    return like(program, lambda *arguments: program.apply(arguments), _renaming(program, chance))


def _renaming(program: az.Program, chance: random.Random) -> Callable[[Type], Type]:
    names = sorted({name for type in program.at().types for dim in all_dims(type) for name in dim.names()})
    others = dict(zip(names, map(Dim.of, chance.sample(names, len(names))), strict=True))
    return lambda type: map_dims(type, lambda dim: dim.substitute(lambda atom: others.get(str(atom))))


def _unstated(program: az.Program, chance: random.Random) -> az.Program:
    """Names of their own for sizes that annotations say to be equal, or to be computed from others."""
    numbers, stated = count(), set[str]()

    def size(dim: Dim) -> Dim:
        first = dim.constant is not None or (str(dim) in dim.names() and str(dim) not in stated)
        if not first and chance.random() < 0.5:
            return Dim.of(f"own{next(numbers)}")
        stated.update(dim.names())
        return dim

    return like(program, lambda *arguments: program.apply(arguments), lambda type: map_dims(type, size))


KINDS: dict[str, Callable[[az.Program, random.Random], az.Program]] = {
    "commuted": partial(_of_term, _Commuted),
    "arithmetic": partial(_of_term, _Arithmetic),
    "rows": partial(_of_term, _Rows),
    "joined": partial(_of_term, _Joined),
    "permuted": partial(_of_term, _Permuted),
    "stored": partial(_of_term, _Stored),
    "hoisted": partial(_of_term, _Hoisted),
    "together": partial(_of_term, _Together),
    "called": _called,
    "renamed": _renamed,
    "unstated": _unstated,
}
