"""Letrec: definitions that mention each other, as values of one program; each is built once.

A definition is a function of Python with the types of its parameters (``functions.py``). It becomes a value where a
program mentions it, and so do those that its body mentions, in any order.

While a body is built, a variable stands for each definition that it mentions. When all bodies are there, those
definitions that lead to each other are one group, and become one ``fix``: a function without parameters, which gives
all functions of the group. Where one of these mention another, it takes it from what that gives::

    even_odd = fix(self: function(k: _, odd = self(); ... odd(k - 1)),
                         function(k: even, _ = self(); ... even(k - 1)))
    even, odd = even_odd()

So n functions all of which call each other are n bodies, however often they do. (Were each built where it is mentioned,
inside of the one that mentions it, there would be a body for each way to reach it: more than two to the power n.) A
function that calls itself alone is a ``fix`` of its own, and one that nothing leads back to is made before those that
mention it. (Letrec and its dependency analysis: Peyton Jones, The implementation of functional programming languages,
1987, chapter 6.)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol

from .annotations import Declared
from .builder import Builder, Substitution, current
from .components import components
from .graph import Body, Value
from .source import at_line
from .terms import Origin
from .trees import Shape
from .types import FunctionType, Type


class Mentioned(Hashable, Protocol):
    """A definition, as it is seen here: what ``functions.Definition`` has."""

    @property
    def name(self) -> str: ...
    @property
    def result(self) -> Declared | None: ...
    @property
    def recursive(self) -> bool: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def types(self) -> tuple[Type, ...]: ...
    @property
    def leaves(self) -> list[str]: ...

    def body(self, builder: Builder) -> tuple[Body, Shape]: ...

    def value(self, builder: Builder, body: Body, recursive: bool) -> Value: ...


class Letrec:
    """The definitions that are reached from one, on their way to values."""

    def __init__(self, builder: Builder) -> None:
        self.builder, self.scopes = builder, list(builder.scopes)
        self.mentions: dict[Mentioned, dict[Mentioned, None]] = {}  # by the one whose body it is, in order
        self.variables: dict[Mentioned, tuple[Value, Shape]] = {}  # and the structures of their results
        self.bodies: dict[Mentioned, Body] = {}
        self.waiting: list[Mentioned] = []
        self.open: Mentioned | None = None  # whose body is built now

    @staticmethod
    def mention(definition: Mentioned) -> tuple[Value, Shape]:
        """The value of a definition in the program that is being built, or what stands for it inside of another one.

        With it, the structure of what the definition returns.

        Raises TypeError where a type is needed that is not known yet: that of a function which calls itself.
        """
        builder, outer = current(), _letrec.get()
        if outer is not None and outer.builder is builder:
            return outer.variable(definition)
        letrec = Letrec(builder)
        token = _letrec.set(letrec)
        try:
            _, outputs = letrec.variable(definition)
            while letrec.waiting:
                letrec.build(letrec.waiting.pop())
        finally:
            _letrec.reset(token)
        return letrec.values()[definition], outputs

    def variable(self, definition: Mentioned) -> tuple[Value, Shape]:
        """What stands for a definition. Its body is built later, or now where that alone says what its type is."""
        if self.open is not None:
            self.mentions[self.open][definition] = None
        if definition not in self.mentions:
            self.mentions[definition] = {}
            if definition.result is None:
                self.build(definition)
            else:
                self.enter(definition, definition.result.types, definition.result.shape)
                self.waiting.append(definition)
        if definition not in self.variables:
            problem = "calls itself before the type of its result is known: annotate it, or give result="
            raise TypeError(at_line(f"{definition.name} {problem}"))
        return self.variables[definition]

    def enter(self, definition: Mentioned, results: tuple[Type, ...], outputs: Shape) -> None:
        variable = self.builder.variable(FunctionType(definition.types, results), definition.name)
        self.variables[definition] = variable, outputs

    def build(self, definition: Mentioned) -> None:
        """Build a body in the scope of the first mention, beside those that are open."""
        builder, outer = self.builder, self.open
        scopes, builder.scopes, self.open = builder.scopes, list(self.scopes), definition
        try:
            body, outputs = definition.body(builder)
        finally:
            builder.scopes, self.open = scopes, outer
        self.bodies[definition] = body
        if definition not in self.variables:
            self.enter(definition, body.types, outputs)

    def values(self) -> dict[Mentioned, Value]:
        """The values of all, when all bodies are there."""
        values: dict[Mentioned, Value] = {}
        known: dict[Value, Value] = {}
        for component in components(self.mentions):
            group = sorted(component, key=lambda one: (one.origin.file, one.origin.line))
            if len(group) > 1:
                made = self.group(group, known)
            elif group[0] in self.mentions[group[0]]:
                made = [self.itself(group[0], known)]
            else:
                made = [self.single(group[0], known)]
            for one, value in zip(group, made, strict=True):
                values[one] = known[self.variables[one][0]] = value
        self.builder.open.difference_update([variable.number for variable in known])
        return values

    def single(self, one: Mentioned, known: Mapping[Value, Value]) -> Value:
        """The value of a definition that mentions those only which are there."""
        body = self.bodies[one]
        types = [binder.type for binder in body.binders]
        return one.value(self.builder, Substitution(self.builder, known, None).body(body, types), one.recursive)

    def itself(self, one: Mentioned, known: Mapping[Value, Value]) -> Value:
        """The value of a definition that mentions itself, by the name that it has outside."""
        types = [FunctionType(one.types, self.bodies[one].types), *one.types]

        def run(value: Value, *binders: Value) -> Sequence[Value]:
            return self.results(one, binders, {one: value}, known)

        return one.value(self.builder, self.builder.body(types, run, [one.name, *one.leaves]), True)

    def group(self, group: Sequence[Mentioned], known: Mapping[Value, Value]) -> Sequence[Value]:
        """The values of definitions that mention each other."""
        builder = self.builder

        def function(one: Mentioned, gives_all: Value) -> Value:
            def run(*binders: Value) -> Sequence[Value]:
                members = dict(zip(group, builder.emit("apply", (), [gives_all]), strict=True))
                return self.results(one, binders, members, known)

            return one.value(builder, builder.body(one.types, run, one.leaves), False)

        def functions(gives_all: Value) -> Sequence[Value]:
            return [function(one, gives_all) for one in group]

        type = FunctionType((), tuple([FunctionType(one.types, self.bodies[one].types) for one in group]))
        name = "_".join([one.name for one in group])
        body = builder.body([type], functions, [name])
        builder.origin = Origin(group[0].origin.file, group[0].origin.line, name)
        return builder.emit("apply", (), builder.emit("fix", (type,), [], [body]))

    def results(
        self,
        one: Mentioned,
        binders: Sequence[Value],
        members: Mapping[Mentioned, Value],
        known: Mapping[Value, Value],
    ) -> Sequence[Value]:
        """What the body of a definition gives for these parameters, when its group has these values."""
        body = self.bodies[one]
        arguments = [members[one], *binders] if one.recursive else binders
        own = {self.variables[member][0]: value for member, value in members.items()}
        inside = {**known, **own, **dict(zip(body.binders, arguments, strict=True))}
        return Substitution(self.builder, inside, None, body.statements).apply(body)


_letrec: ContextVar[Letrec | None] = ContextVar("adze_letrec", default=None)
