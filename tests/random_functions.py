"""Random well-typed programs of the higher-order fragment, each with its meaning in plain Python.

A program is drawn as a tree of the small language below: functions as arguments and results, declared types made at
random, recursion that descends on a value or a counter, definitions that call each other, forks anywhere, loops, and
vectors of three numbers. A node of the tree says twice what it is: ``text`` is what a user would write in Adze, and
``value`` what it means in Python, which knows nothing of Adze. So what a test reports can be pasted and run.

    program, arguments, expected = random_function(seed)
    exact(az.evaluate(program)(*arguments), expected)

Whatever is drawn ends, for a recursion gets a part of its value, or a smaller counter. Programs that take long, or
whose numbers would not be exact in any order of operations, are drawn again.
"""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

import adze as az

LEAST, STEPS = 12, 6_000  # of the meaning in Python
LARGEST, FINEST = 2.0**20, 2.0**16  # numbers are below the first, and multiples of one by the second


class Unsuited(Exception):
    """A program that takes long, or rounds."""


# Types


@dataclass(frozen=True)
class Type:
    """A type: a name, or a tuple or function of other types."""

    text: str
    items: tuple[Type, ...] = ()  # of a tuple
    parameters: tuple[Type, ...] = ()
    result: Type | None = None  # of a function


REAL, INT, BOOL, VECTOR = Type("az.f64"), Type("az.i64"), Type("az.bool_"), Type("az.Array[az.f64, 3]")


def tuple_of(*items: Type) -> Type:
    return Type(f"tuple[{', '.join(item.text for item in items)}]", items)


def function_of(parameters: Sequence[Type], result: Type) -> Type:
    text = f"az.Function[[{', '.join(type.text for type in parameters)}], {result.text}]"
    return Type(text, (), tuple(parameters), result)


@dataclass(frozen=True)
class Declaration:
    """A declared type: the fields of each variant. Those of its own type make it recursive; the first has none."""

    name: str
    variants: dict[str, list[Type]]

    @property
    def type(self) -> Type:
        return Type(self.name)

    @property
    def is_plain(self) -> bool:
        """Whether its values hold no function."""
        return all(type.result is None for fields in self.variants.values() for type in fields)

    @property
    def text(self) -> str:
        lines = ["@az.data", f"class {self.name}:"]
        for variant, fields in self.variants.items():
            named = [f"        f{k}: {type.text!r}" for k, type in enumerate(fields)]
            lines += [f"    class {variant}:", *(named or ["        ..."])]
        return "\n".join(lines)


@dataclass(frozen=True)
class Data:
    """A value of a declared type, in Python."""

    type: str
    variant: str
    fields: tuple[Any, ...]


# Terms


class Run:
    """The meaning of a program in Python, while it runs: how many steps it has taken."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise Unsuited

    def number(self, x: Any) -> Any:
        """A number that is exact in any order of operations."""
        if isinstance(x, float) and not (abs(x) < LARGEST and (x * FINEST).is_integer()):
            raise Unsuited
        return x


Env = Mapping[str, Any]


class Term:
    """A node: what it is in Adze, and what it means in Python."""

    @property
    def text(self) -> str:
        raise NotImplementedError

    def value(self, env: Env, run: Run) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Literal(Term):
    number: float | int | bool

    @property
    def text(self) -> str:
        return f"({self.number!r})"

    def value(self, env: Env, run: Run) -> Any:
        return self.number


@dataclass(frozen=True)
class Name(Term):
    name: str

    @property
    def text(self) -> str:
        return self.name

    def value(self, env: Env, run: Run) -> Any:
        return env[self.name]


# An operation on numbers as it is written, and in Python
OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("({} + {})", operator.add),
    "subtract": ("({} - {})", operator.sub),
    "multiply": ("({} * {})", operator.mul),
    "half": ("({} / 2.0)", lambda x: x / 2.0),
    "negative": ("(-{})", operator.neg),
    "maximum": ("az.maximum({}, {})", max),
    "minimum": ("az.minimum({}, {})", min),
    "modular": ("(({} * 2 + {}) % 7)", lambda a, b: (a * 2 + b) % 7),
    "real": ("az.where({} > 2, 0.5, -1.5)", lambda k: 0.5 if k > 2 else -1.5),
    "less": ("({} < {})", operator.lt),
    "below": ("({} < {})", operator.lt),
    "equal": ("({} == {})", operator.eq),
    "both": ("({} & {})", lambda a, b: a and b),
    "either": ("({} | {})", lambda a, b: a or b),
    "not": ("az.logical_not({})", operator.not_),
}
LOGIC = [("both", [BOOL, BOOL]), ("either", [BOOL, BOOL])]
SIGNATURES: dict[Type, list[tuple[str, list[Type]]]] = {
    REAL: [(name, [REAL, REAL]) for name in ("add", "subtract", "multiply", "maximum", "minimum")]
    + [("half", [REAL]), ("negative", [REAL]), ("real", [INT])],
    INT: [("modular", [INT, INT]), ("maximum", [INT, INT]), ("minimum", [INT, INT])],
    BOOL: [("less", [REAL, REAL]), ("below", [INT, INT]), ("equal", [INT, INT]), ("not", [BOOL]), *LOGIC],
}


@dataclass(frozen=True)
class Operation(Term):
    name: str
    operands: tuple[Term, ...]

    @property
    def text(self) -> str:
        return OPERATIONS[self.name][0].format(*[operand.text for operand in self.operands])

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        return run.number(OPERATIONS[self.name][1](*[operand.value(env, run) for operand in self.operands]))


@dataclass(frozen=True)
class Choice(Term):
    test: Term
    then: Term
    other: Term

    @property
    def text(self) -> str:
        return f"az.cond({self.test.text}, lambda: {self.then.text}, lambda: {self.other.text})"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        return (self.then if self.test.value(env, run) else self.other).value(env, run)


@dataclass(frozen=True)
class Let(Term):
    name: str
    bound: Term
    body: Term

    @property
    def text(self) -> str:
        return f"(lambda {self.name}: {self.body.text})({self.bound.text})"

    def value(self, env: Env, run: Run) -> Any:
        return self.body.value({**env, self.name: self.bound.value(env, run)}, run)


@dataclass(frozen=True)
class Fork(Term):
    names: tuple[str, ...]
    branches: tuple[Term, ...]
    body: Term

    @property
    def text(self) -> str:
        branches = ", ".join(f"lambda: {branch.text}" for branch in self.branches)
        return f"(lambda {', '.join(self.names)}: {self.body.text})(*az.par({branches}))"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        values = [branch.value(env, run) for branch in self.branches]
        return self.body.value({**env, **dict(zip(self.names, values, strict=True))}, run)


@dataclass(frozen=True)
class Loop(Term):
    """A loop of so many steps; the state starts as a part of the program says, and is an expression."""

    steps: Term
    index: str
    state: str
    body: Term
    start: Term

    @property
    def text(self) -> str:
        body = f"lambda {self.index}, {self.state}: {self.body.text}"
        return f"az.fori_loop(0, {self.steps.text} % 4, {body}, {self.start.text})"

    def value(self, env: Env, run: Run) -> Any:
        state = self.start.value(env, run)
        for k in range(self.steps.value(env, run) % 4):
            run.step()
            state = self.body.value({**env, self.index: k, self.state: state}, run)
        return state


@dataclass(frozen=True)
class Made(Term):
    """A value of a declared type."""

    type: str
    variant: str
    fields: tuple[Term, ...]

    @property
    def text(self) -> str:
        return f"{self.type}.{self.variant}({', '.join(field.text for field in self.fields)})"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        return Data(self.type, self.variant, tuple([field.value(env, run) for field in self.fields]))


@dataclass(frozen=True)
class Case(Term):
    subject: Term
    branches: dict[str, tuple[tuple[str, ...], Term]]

    @property
    def text(self) -> str:
        branches = [
            f"{variant}=lambda {', '.join(names)}: {body.text}".replace("lambda :", "lambda:")
            for variant, (names, body) in self.branches.items()
        ]
        return f"az.case({self.subject.text}, {', '.join(branches)})"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        subject = self.subject.value(env, run)
        names, body = self.branches[subject.variant]
        return body.value({**env, **dict(zip(names, subject.fields, strict=True))}, run)


@dataclass(frozen=True)
class Function(Term):
    """A function; one with a name for itself is recursive."""

    itself: str | None
    names: tuple[str, ...]
    type: Type
    body: Term

    @property
    def text(self) -> str:
        assert self.type.result is not None
        names = ", ".join([self.itself, *self.names] if self.itself else self.names)
        types = "".join(f"{type.text}, " for type in self.type.parameters)
        made = "fix" if self.itself else "function"
        return f"az.{made}(lambda {names}: {self.body.text}, {types}result={self.type.result.text})".replace(
            "lambda :", "lambda:"
        )

    def value(self, env: Env, run: Run) -> Any:
        def function(*arguments: Any) -> Any:
            run.step()
            own = {self.itself: function} if self.itself else {}
            return self.body.value({**env, **own, **dict(zip(self.names, arguments, strict=True))}, run)

        return function


@dataclass(frozen=True)
class Call(Term):
    function: Term
    arguments: tuple[Term, ...]

    @property
    def text(self) -> str:
        return f"{self.function.text}({', '.join(argument.text for argument in self.arguments)})"

    def value(self, env: Env, run: Run) -> Any:
        function = self.function.value(env, run)
        return function(*[argument.value(env, run) for argument in self.arguments])


@dataclass(frozen=True)
class Tuple(Term):
    items: tuple[Term, ...]

    @property
    def text(self) -> str:
        return f"({', '.join(item.text for item in self.items)},)"

    def value(self, env: Env, run: Run) -> Any:
        return tuple([item.value(env, run) for item in self.items])


@dataclass(frozen=True)
class Item(Term):
    whole: Term
    position: int

    @property
    def text(self) -> str:
        return f"{self.whole.text}[{self.position}]"

    def value(self, env: Env, run: Run) -> Any:
        return self.whole.value(env, run)[self.position]


# Vectors, which are tuples in Python


@dataclass(frozen=True)
class Generated(Term):
    index: str
    body: Term

    @property
    def text(self) -> str:
        return f"az.generate(3, lambda {self.index}: {self.body.text})"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        return tuple([self.body.value({**env, self.index: k}, run) for k in range(3)])


@dataclass(frozen=True)
class Mapped(Term):
    name: str
    body: Term
    vector: Term

    @property
    def text(self) -> str:
        return f"az.map(lambda {self.name}: {self.body.text}, {self.vector.text})"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        return tuple([self.body.value({**env, self.name: x}, run) for x in self.vector.value(env, run)])


@dataclass(frozen=True)
class Element(Term):
    vector: Term
    index: Term

    @property
    def text(self) -> str:
        return f"{self.vector.text}[{self.index.text} % 3]"

    def value(self, env: Env, run: Run) -> Any:
        return self.vector.value(env, run)[self.index.value(env, run) % 3]


@dataclass(frozen=True)
class Total(Term):
    vector: Term

    @property
    def text(self) -> str:
        return f"az.sum({self.vector.text})"

    def value(self, env: Env, run: Run) -> Any:
        run.step()
        return run.number(sum(self.vector.value(env, run), 0.0))


# Drawing terms


@dataclass(frozen=True)
class Descent:
    """A recursive function where its body is drawn: its first argument is one of those that make it end."""

    function: str
    first: tuple[Term, ...]
    others: tuple[Type, ...]
    result: Type


@dataclass(frozen=True)
class Scope:
    """The names that may be used, with their types, and the recursions that may go on."""

    names: tuple[tuple[str, Type], ...] = ()
    descents: tuple[Descent, ...] = ()

    def of(self, type: Type) -> list[Term]:
        """The variables of a type, and items of those that are tuples."""
        own: list[Term] = [Name(name) for name, found in self.names if found == type]
        items = [(Name(name), k) for name, found in self.names for k, item in enumerate(found.items) if item == type]
        return own + [Item(whole, k) for whole, k in items]

    def calls(self, type: Type) -> list[tuple[str, Type]]:
        """The functions that give a type."""
        return [(name, found) for name, found in self.names if found.result == type]

    def with_names(self, *named: tuple[str, Type]) -> Scope:
        return replace(self, names=self.names + named)


@dataclass
class Writer:
    """Draws terms of a type, in a scope."""

    rng: np.random.Generator
    declarations: list[Declaration] = field(default_factory=list)
    _names: count[int] = field(default_factory=count)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def coin(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def fresh(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"

    # Types

    def declaration(self, number: int) -> Declaration:
        """Two or three variants, of numbers, vectors, tuples, functions, earlier types and the type itself."""
        name = f"D{number}"
        options = [REAL, REAL, INT, BOOL, VECTOR, tuple_of(REAL, INT), *[own.type for own in self.declarations]]
        if self.coin(0.3):
            options.append(function_of([REAL], REAL))
        first = [self.pick(options) for _ in range(self.rng.integers(2))]
        variants = {"End": first, "More": [self.pick(options), Type(name)]}
        if self.coin():
            variants["Two"] = [Type(name), self.pick(options), Type(name)]
        return Declaration(name, variants)

    def of_name(self, type: Type) -> Declaration | None:
        return next((own for own in self.declarations if own.type == type), None)

    def simple(self) -> Type:
        return self.pick([REAL, REAL, REAL, INT, BOOL, VECTOR, *[own.type for own in self.declarations]])

    def any(self) -> Type:
        """A type of a parameter or a result."""
        if self.coin(0.15):
            return function_of(
                [self.pick([REAL, INT]) for _ in range(1 + self.rng.integers(2))], self.pick([REAL, INT])
            )
        return tuple_of(self.pick([REAL, INT]), REAL) if self.coin(0.15) else self.simple()

    # Terms

    def term(self, type: Type, scope: Scope, depth: int) -> Term:
        descents = [descent for descent in scope.descents if descent.result == type]
        if descents and depth > 0 and self.coin(0.6):
            return self.descend(self.pick(descents), scope, depth - 1)
        if depth <= 0:
            return self.leaf(type, scope)
        kinds = [self.own, self.own, self.own, self.choice, self.let, self.fork, self.call, self.call, self.loop]
        if self.declarations:
            kinds += [self.case]
        return self.pick(kinds)(type, scope, depth - 1)

    def leaf(self, type: Type, scope: Scope) -> Term:
        """A variable, or what has no others inside."""
        found = scope.of(type)
        if found and self.coin(0.8):
            return self.pick(found)
        return self.own(type, scope, 0)

    def own(self, type: Type, scope: Scope, depth: int) -> Term:
        """What makes values of this type."""
        declared = self.of_name(type)
        if declared is not None:
            variant = self.pick(list(declared.variants)) if depth > 0 else "End"
            fields = [self.term(one, scope, depth - 1) for one in declared.variants[variant]]
            return Made(declared.name, variant, tuple(fields))
        if type.items:
            return Tuple(tuple([self.term(item, scope, depth - 1) for item in type.items]))
        if type.result is not None:
            return self.function(type, scope, depth)
        if type == VECTOR:
            return self.vector(scope, depth)
        if depth <= 0:
            return Literal({REAL: self.quarter(), INT: int(self.rng.integers(5)), BOOL: self.coin()}[type])
        if type == REAL and self.coin(0.25):
            vector = self.term(VECTOR, scope, depth - 1)
            return Total(vector) if self.coin() else Element(vector, self.leaf(INT, scope))
        name, operands = self.pick(SIGNATURES[type])
        return Operation(name, tuple([self.term(operand, scope, depth - 1) for operand in operands]))

    def quarter(self) -> float:
        return int(self.rng.integers(-8, 9)) / 4

    def vector(self, scope: Scope, depth: int) -> Term:
        name = self.fresh("v")
        if depth > 0 and self.coin():
            body = self.term(REAL, scope.with_names((name, REAL)), depth - 1)
            return Mapped(name, body, self.term(VECTOR, scope, depth - 1))
        return Generated(name, self.term(REAL, scope.with_names((name, INT)), depth - 1))

    def function(self, type: Type, scope: Scope, depth: int) -> Term:
        assert type.result is not None
        named = [(self.fresh("a"), parameter) for parameter in type.parameters]
        body = self.term(type.result, scope.with_names(*named), depth - 1)
        return Function(None, tuple([name for name, _ in named]), type, body)

    def choice(self, type: Type, scope: Scope, depth: int) -> Term:
        return Choice(self.term(BOOL, scope, depth // 2), self.term(type, scope, depth), self.term(type, scope, depth))

    def let(self, type: Type, scope: Scope, depth: int) -> Term:
        name, bound = self.fresh("t"), self.any()
        return Let(name, self.term(bound, scope, depth), self.term(type, scope.with_names((name, bound)), depth))

    def fork(self, type: Type, scope: Scope, depth: int) -> Term:
        """The types of branches are those of values; one is the type wanted."""
        named = [(self.fresh("p"), own) for own in [type, *[self.any() for _ in range(self.rng.integers(1, 3))]]]
        branches = [self.term(own, scope, depth) for _, own in named]
        body = self.term(type, scope.with_names(*named), depth)
        return Fork(tuple([name for name, _ in named]), tuple(branches), body)

    def call(self, type: Type, scope: Scope, depth: int) -> Term:
        """A function of the scope, or one that is made here: it may recur on a counter, or on a value."""
        known = scope.calls(type)
        if known and self.coin(0.7):
            name, own = self.pick(known)
            return Call(Name(name), tuple([self.term(one, scope, depth - 1) for one in own.parameters]))
        declared = [own for own in self.declarations if len(own.variants["More"]) > 1]
        if self.coin(0.4) or not declared:
            others = [self.any() for _ in range(self.rng.integers(2))]
            name = self.fresh("f")
            own = function_of([self.simple(), *others], type)
            body = scope.with_names((name, own))
            return Let(name, self.own(own, scope, depth), self.call(type, body, depth))
        subject = self.pick([None, *declared])
        first = INT if subject is None else subject.type
        own = function_of([first, *[self.any() for _ in range(self.rng.integers(2))]], type)
        arguments = [self.term(one, scope, depth - 1) for one in own.parameters]
        if subject is None:
            arguments[0] = Literal(int(self.rng.integers(4)))
        elif scope.of(first) and self.coin(0.7):
            arguments[0] = self.pick(scope.of(first))
        return Call(self.recursion(self.fresh("go"), own, subject, scope, depth), tuple(arguments))

    def recursion(self, itself: str, type: Type, subject: Declaration | None, scope: Scope, depth: int) -> Function:
        """A function that calls itself with a part of its first argument, or with a smaller counter."""
        named = [(self.fresh("r"), parameter) for parameter in type.parameters]
        inside = scope.with_names(*named)
        body = self.descending([itself], type, named[0][0], subject, inside, depth)
        return Function(itself, tuple([name for name, _ in named]), type, body)

    def descending(
        self, functions: Sequence[str], type: Type, first: str, subject: Declaration | None, scope: Scope, depth: int
    ) -> Term:
        assert type.result is not None
        result, others = type.result, type.parameters[1:]
        if subject is None:
            smaller: tuple[Term, ...] = (Operation("subtract", (Name(first), Literal(1))),)
            descents = tuple([Descent(function, smaller, others, result) for function in functions])
            step = self.term(result, replace(scope, descents=scope.descents + descents), max(depth, 1))
            return Choice(Operation("below", (Name(first), Literal(1))), self.term(result, scope, depth), step)
        branches: dict[str, tuple[tuple[str, ...], Term]] = {}
        for variant, fields in subject.variants.items():
            named = [(self.fresh("d"), one) for one in fields]
            parts = tuple([Name(name) for name, one in named if one == subject.type])
            descents = tuple([Descent(function, parts, others, result) for function in functions if parts])
            inside = replace(scope.with_names(*named), descents=scope.descents + descents)
            branches[variant] = (tuple([name for name, _ in named]), self.term(result, inside, max(depth, 1)))
        return Case(Name(first), branches)

    def descend(self, descent: Descent, scope: Scope, depth: int) -> Term:
        others = [self.term(one, scope, depth - 1) for one in descent.others]
        return Call(Name(descent.function), (self.pick(descent.first), *others))

    def loop(self, type: Type, scope: Scope, depth: int) -> Term:
        """The state is of the type wanted, a function included."""
        index, state = self.fresh("i"), self.fresh("s")
        body = self.term(type, scope.with_names((index, INT), (state, type)), depth)
        return Loop(self.leaf(INT, scope), index, state, body, self.leaf(type, scope))

    def case(self, type: Type, scope: Scope, depth: int) -> Term:
        declared = self.pick(self.declarations)
        branches = {}
        for variant, fields in declared.variants.items():
            named = [(self.fresh("c"), one) for one in fields]
            body = self.term(type, scope.with_names(*named), depth)
            branches[variant] = (tuple([name for name, _ in named]), body)
        return Case(self.term(declared.type, scope, depth), branches)


# Programs


@dataclass(frozen=True)
class Definition:
    """A recursive function outside of the program, which may call those beside it."""

    name: str
    function: Function

    @property
    def text(self) -> str:
        return f"{self.name} = {self.function.text}"


@dataclass(frozen=True)
class Drawn:
    """A program: declared types, definitions, parameters, and results."""

    declarations: tuple[Declaration, ...]
    definitions: tuple[Definition, ...]
    parameters: tuple[tuple[str, Type], ...]
    types: tuple[Type, ...]  # of the results
    results: Tuple

    @property
    def text(self) -> str:
        types = "".join(f"{declared.text}\n\n" for declared in self.declarations)
        definitions = "".join(f"{definition.text}\n" for definition in self.definitions)
        parameters = ", ".join(f"{name}: {type.text}" for name, type in self.parameters)
        return f"{types}{definitions}\ndef f({parameters}):\n    return {self.results.text}\n"

    def value(self, arguments: Sequence[Any], run: Run) -> Any:
        env: dict[str, Any] = {}
        for definition in self.definitions:
            env[definition.name] = definition.function.value(env, run)
        named = {name: value for (name, _), value in zip(self.parameters, arguments, strict=True)}
        return self.results.value({**env, **named}, run)


def drawn(rng: np.random.Generator, depth: int = 4) -> Drawn:
    """A program of two results, and one more if there are definitions."""
    writer = Writer(rng)
    for number in range(rng.integers(3)):
        writer.declarations.append(writer.declaration(number))
    definitions = _group(writer, depth)
    plain = [own.type for own in writer.declarations if _without_functions(own, writer)]
    parameters = [("x", REAL), ("k", INT), ("v", VECTOR), *[(f"d{k}", type) for k, type in enumerate(plain)]]
    scope = Scope((*parameters, *[(own.name, own.function.type) for own in definitions]))
    types = [REAL, writer.pick([REAL, INT, BOOL, VECTOR, *plain])]
    results = [writer.term(type, scope, depth) for type in types]
    for definition in definitions[:1]:
        own = definition.function.type
        results.append(Call(Name(definition.name), tuple([writer.term(one, scope, 1) for one in own.parameters])))
        types.append(own.result or REAL)
    return Drawn(tuple(writer.declarations), tuple(definitions), tuple(parameters), tuple(types), Tuple(tuple(results)))


def _without_functions(declared: Declaration, writer: Writer) -> bool:
    inner = [writer.of_name(type) for fields in declared.variants.values() for type in fields if type != declared.type]
    return declared.is_plain and all(_without_functions(own, writer) for own in inner if own is not None)


def _group(writer: Writer, depth: int) -> list[Definition]:
    """Up to three definitions of one type, each of which may call all of them with a smaller counter, or a part."""
    names = [writer.fresh("g") for _ in range(writer.rng.integers(4))]
    subject = writer.pick([None, *writer.declarations])
    first = INT if subject is None else subject.type
    result = writer.pick([REAL, REAL, INT, VECTOR, tuple_of(REAL, INT)])
    type = function_of([first, *[writer.any() for _ in range(writer.rng.integers(2))]], result)
    definitions = []
    for name in names:
        named = [(writer.fresh("r"), parameter) for parameter in type.parameters]
        scope = Scope(tuple(named))
        body = writer.descending(names, type, named[0][0], subject, scope, depth - 1)
        own = tuple([parameter for parameter, _ in named])
        definitions.append(Definition(name, Function(writer.fresh("self"), own, type, body)))
    return definitions


def _argument(type: Type, writer: Writer, depth: int = 3) -> Any:
    declared = writer.of_name(type)
    if declared is not None:
        variant = writer.pick(list(declared.variants)) if depth > 0 else "End"
        fields = [_argument(one, writer, depth - 1) for one in declared.variants[variant]]
        return Data(declared.name, variant, tuple(fields))
    if type.items:
        return tuple([_argument(item, writer) for item in type.items])
    if type == VECTOR:
        return tuple([writer.quarter() for _ in range(3)])
    return {REAL: writer.quarter(), INT: int(writer.rng.integers(4)), BOOL: writer.coin()}[type]


def random_function(seed: int, depth: int = 4) -> tuple[az.Program, tuple[Any, ...], Any]:
    """A program, arguments for it, and what it gives for them by its meaning in Python.

    What a test reports is ``text_of(program)``.
    """
    for attempt in count():
        rng = np.random.default_rng((seed, attempt))
        one = drawn(rng, depth)
        writer = Writer(rng, list(one.declarations))
        arguments = [_argument(type, writer) for _, type in one.parameters]
        run = Run()
        try:
            results = one.value(arguments, run)
        except Unsuited:
            continue
        if run.steps >= LEAST:
            break
    program, classes = made(one)

    def outside(value: Any, type: Type) -> Any:
        """A value of Python as Adze takes and gives it."""
        if isinstance(value, Data):
            (declared,) = [own for own in one.declarations if own.name == value.type]
            fields = zip(value.fields, declared.variants[value.variant], strict=True)
            return getattr(classes[value.type], value.variant)(*[outside(*field) for field in fields])
        if type == VECTOR:
            return np.array(value)
        return tuple(map(outside, value, type.items)) if type.items else value

    given = tuple([outside(value, type) for value, (_, type) in zip(arguments, one.parameters, strict=True)])
    return program, given, tuple(map(outside, results, one.types))


def made(one: Drawn) -> tuple[az.Program, dict[str, Any]]:
    """The program as a user would write it, and the names of its text."""
    name = f"<random function {hash(one.text)}>"
    linecache.cache[name] = (len(one.text), None, one.text.splitlines(True), name)
    scope: dict[str, Any] = {"az": az, "__name__": "random_function"}
    exec(compile(one.text, name, "exec", dont_inherit=True), scope)
    return az.program(scope["f"]), scope


def text_of(program: az.Program) -> str:
    """The text of such a program."""
    return "".join(linecache.getlines(program.function.__code__.co_filename))
