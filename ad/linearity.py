"""Linearity analysis: whether a block is linear in its last parameters, by an interpretation over kinds of values.

A value is *constant* (it does not depend on these parameters), *linear* in them, or neither; a zero that is written
out is both constant and linear. The rule of a custom function is derived for the other mode by transposing it, and only
what is linear has a transpose.

    c constant, t linear:    c * t, t / c, t + t, sum(t), t[i], where(c > 0, t, 0) are linear
                             t * t, t + c, maximum(t, 0), where(t > 0, t, 0) are neither

States of loops and operators of reductions are followed until nothing changes, so a linear recurrence is found to be
linear. (Linearity as a property of programs: Radul et al., You Only Linearize Once, 2023, where it is a type.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import terms
from ..core.constructs import Construct
from ..core.dims import Dim
from ..core.environment import Env
from ..core.language import Binding, Language
from ..core.operations import term_of_expansion, term_of_rule
from ..core.primitive import Primitive
from ..core.terms import Constant, Failure, Foreign, Origin, Rules
from ..core.types import ArrayType, FunctionType, Named, Scalar, Type, is_float
from .fixpoints import Fixpoints


@dataclass(frozen=True)
class Kind:
    """How a value depends on the parameters; ``problem`` and ``origin`` say where one that is neither came about.

    It is ``unknown`` when a foreign function made it so, or a ``stop_gradient``: of the value nothing is known then, or
    it does not move, and the rule of a custom function alone says what it is.
    """

    constant: bool = False
    linear: bool = False
    problem: str = ""
    origin: Origin | None = None
    unknown: bool = False


ZERO = Kind(constant=True, linear=True)
CONSTANT = Kind(constant=True)
LINEAR = Kind(linear=True)

Kinds = Env[Any]
Atom = Callable[[Kinds], Any]
Operation = Callable[[Kinds], Sequence[Kind] | Kind]  # one kind: of all results


@dataclass(frozen=True)
class Block:
    run: Callable[[Kinds, Sequence[Any]], list[Kind]]
    types: Sequence[Type]

    @property
    def parameters(self) -> int:
        return len(self.types)

    def __call__(self, env: Kinds, *arguments: Any) -> list[Kind]:
        return self.run(env, arguments)


def nonlinear(block: terms.Block, constants: int) -> Kind | None:
    """The first result that is not linear in a block's parameters behind so many constant ones; None if all are."""
    given = [CONSTANT] * constants + [LINEAR] * (len(block.binders) - constants)
    for kind in block.interpret(Linearity())(Env(), *given):
        if not kind.linear:
            return Kind(problem="a result that does not depend on it") if kind.constant else kind
    return None


def neither(problem: str, *kinds: Kind) -> Kind:
    """Neither constant nor linear: for the reason of the first of these that is so, else for this one."""
    return next((kind for kind in kinds if not (kind.constant or kind.linear)), Kind(problem=problem))


def either(first: Kind, second: Kind) -> Kind:
    """What one of two values is."""
    constant, linear = first.constant and second.constant, first.linear and second.linear
    if constant or linear:
        return Kind(constant, linear)
    return neither("a choice between it and a constant", first, second)


def added(first: Kind, second: Kind) -> Kind:
    """A sum. A constant may be added to nothing but constants."""
    total = either(first, second)
    return total if total.constant or total.linear else neither("a constant added to it", first, second)


def multiplied(first: Kind, second: Kind) -> Kind:
    if ZERO in (first, second):
        return ZERO
    if first.constant and second.constant:
        return CONSTANT
    if (first.constant and second.linear) or (first.linear and second.constant):
        return LINEAR
    return neither("a product of two values that depend on it", first, second)


def divided(first: Kind, second: Kind) -> Kind:
    return first if second.constant else neither("a division by it", first, second)


_LINEAR: dict[str, Callable[..., Kind]] = {
    "add": added,
    "subtract": added,
    "negative": lambda kind: kind,
    "multiply": multiplied,
    "divide": divided,
    "f32": lambda kind: kind,
    "f64": lambda kind: kind,
}


class Linearity(Language[Atom, Operation, Block]):
    """The analysis. An accumulator in scope is a list with the kind of its total so far."""

    def __init__(self) -> None:
        self.fixpoints = Fixpoints(either)
        self.control: list[Kind] = []  # of what decides whether the code at hand runs, where that is not constant
        self.asked: set[Foreign] = set()  # the operations whose rules are being looked at

    def operation(self, operation: terms.Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Operation:
        function = operation.static[0] if operation.op == "foreign" else None
        if function is not None and function.rules:
            return self.by_rule(operation, args)
        if function is not None and function.expansion is not None:
            term = term_of_expansion(function, [arg.type for arg in operation.args])
            return lambda env: self.meaning(term)(Env(), *[arg(env) for arg in args])
        return super().operation(operation, args, blocks)

    def under(self, by: Sequence[Kind], problem: str, kinds: Callable[[], Sequence[Kind]]) -> Sequence[Kind]:
        """What is made under the control of other values, which must be constant."""
        if all(kind.constant for kind in by):
            return kinds()
        self.control.append(neither(problem, *by))
        count = len(kinds())
        return [self.control.pop()] * count

    def opaque_kind(self, name: str, kinds: Sequence[Kind]) -> Kind:
        """What is constant where all that it is made of is, and nothing else."""
        return CONSTANT if all(kind.constant for kind in kinds) else neither(f"{name} of it", *kinds)

    def opaque(self, name: str, args: Sequence[Atom], blocks: Sequence[Block] = ()) -> Operation:
        def run(env: Kinds) -> Kind:
            inner = [kind for block in blocks for kind in block(env, *[CONSTANT] * block.parameters)]
            return self.opaque_kind(name, [*[arg(env) for arg in args], *inner])

        return run

    def unknown(self, plain: Operation) -> Operation:
        """What an operation makes is unknown, but for constants."""

        def run(env: Kinds) -> Kind:
            kind = plain(env)
            assert isinstance(kind, Kind)
            return kind if kind.constant else replace(kind, unknown=True)

        return run

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return lambda env: CONSTANT if value else ZERO

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return lambda env: CONSTANT

    def dim(self, dim: Dim) -> Atom:
        return lambda env: CONSTANT

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        rule = _LINEAR.get(primitive.name)
        if rule is None:
            plain = self.opaque(primitive.name, args)
            return self.unknown(plain) if primitive.name == "stop_gradient" else plain
        return lambda env: [rule(*[arg(env) for arg in args])]

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        def run(env: Kinds) -> Sequence[Kind]:
            def kinds() -> list[Kind]:
                return [either(a, b) for a, b in zip(then(env), orelse(env), strict=True)]

            return self.under([test(env)], "a choice that depends on it", kinds)

        return run

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Kinds) -> Sequence[Kind]:
            starts = [initial(env) for initial in initials]
            problem = "a loop whose length depends on it"

            def kinds() -> list[Kind]:
                return self.fixpoints.of(body.run, starts, lambda state: body(env, CONSTANT, *state))

            return self.under([extent(env)], problem, kinds)

        return run

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        def run(env: Kinds) -> Sequence[Kind]:
            def state() -> list[Kind]:
                starts = [initial(env) for initial in initials]
                return self.fixpoints.of(body.run, starts, lambda state: body(env, *state))

            last = state()
            going = test(env, *last)
            if all(kind.constant for kind in going):
                return [*last, CONSTANT]
            return self.under(going, "a while whose test depends on it", lambda: [*state(), CONSTANT])

        return run

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        return lambda env: [CONSTANT]

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        return lambda env: self.under([i(env) for i in indices], "an index that depends on it", lambda: [array(env)])

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        return lambda env: self.under([extent(env)], "a size that depends on it", lambda: body(env, CONSTANT))

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        """A reduction of elements; what an element has in front of its values says where they go."""

        def run(env: Kinds) -> Sequence[Kind]:
            found = element(env, CONSTANT)
            places = len(found) - len(neutrals)

            def kinds() -> list[Kind]:
                starts = [either(unit(env), kind) for unit, kind in zip(neutrals, found[places:], strict=True)]
                return self.fixpoints.of(operator.run, starts, lambda state: operator(env, *state, *state))

            by = [*[extent(env) for extent in extents], *found[:places]]
            return self.under(by, "a size or a place that depends on it", kinds)

        return run

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        def run(env: Kinds) -> Sequence[Kind]:
            found = element(env, *[CONSTANT] * len(extents))
            places = len(found) - len(destinations)
            kinds = [either(array(env), kind) for array, kind in zip(destinations, found[places:], strict=True)]
            by = [*[extent(env) for extent in extents], *found[:places]]
            return self.under(by, "a size or a place that depends on it", lambda: kinds)

        return run

    def argsort(self, array: Atom) -> Operation:
        return self.opaque("argsort", [array])

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        """Linear if the body is, and if the rule by which it is transposed is linear for constant arguments.

        Of what is unknown the rule alone is asked: a derivative that is the same everywhere is that of a linear one.
        """

        def run(env: Kinds) -> Sequence[Kind]:
            with self.fixpoints.afresh():  # the body is run for several kinds of arguments
                return kinds_in(env)

        def kinds_in(env: Kinds) -> Sequence[Kind]:
            kinds = [arg(env) for arg in args]
            if "vjp" not in rules or all(kind.constant for kind in kinds):
                return body(env, *kinds)

            def itself(*kinds: Kind) -> list[Kind]:  # if its rule is linear, which is seen below
                return [LINEAR if kind.unknown else kind for kind in body(env, *kinds)]

            rule = blocks[rules.index("vjp")]
            primals = [kind if kind.constant else neither("its value in a rule", kind) for kind in kinds]
            moved = rule(env, itself, *primals, *[LINEAR] * (rule.parameters - len(args) - 1))
            floating = [kind for kind, type in zip(kinds, body.types, strict=True) if is_float(type)]
            needed = [after for kind, after in zip(floating, moved, strict=True) if not kind.constant]
            bad = [kind for kind in needed if not kind.linear]
            if bad:
                return [neither("a rule that is not linear", *bad) for _ in body(env, *kinds)]
            return itself(*kinds)

        return run

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        return lambda env: [value(env) for value in values]

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        return self.unknown(self.opaque(function.name, args))

    def by_rule(self, operation: terms.Operation, args: Sequence[Atom]) -> Operation:
        """An operation is linear if its rule is, for constant arguments: the one by which it is transposed.

        A rule that comes to the operation again may take it to be so.
        """
        function, types = operation.static[0], [arg.type for arg in operation.args]
        name, count = "vjp" if "vjp" in function.rules else "jvp", len(operation.types)

        def run(env: Kinds) -> Sequence[Kind]:
            kinds = [arg(env) for arg in args]
            if all(kind.constant for kind in kinds):
                return [CONSTANT] * count
            if function in self.asked:
                return [LINEAR] * count
            self.asked.add(function)
            try:
                with self.fixpoints.afresh():
                    found = in_rule(kinds)
            finally:
                self.asked.remove(function)
            bad = [kind for kind in found if not kind.linear]
            return [neither("a rule that is not linear", *bad) if bad else LINEAR] * count

        def in_rule(kinds: Sequence[Kind]) -> Sequence[Kind]:
            rule = self.meaning(term_of_rule(function, name, types))
            primals = [kind if kind.constant else neither("its value in a rule", kind) for kind in kinds]
            floating = [kind for kind, type in zip(kinds, types, strict=True) if is_float(type)]
            if name == "jvp":
                return rule(Env(), *primals, *[ZERO if kind.constant else LINEAR for kind in floating])
            moved = rule(Env(), *primals, *[LINEAR] * (rule.parameters - len(kinds)))
            return [after for kind, after in zip(floating, moved, strict=True) if not kind.constant]

        return run

    # The higher-order fragment: nothing is known of what functions do, and of what is inside data

    def function(self, type: FunctionType, body: Block) -> Operation:
        return self.opaque("a function", [], [body])

    def fix(self, type: FunctionType, body: Block) -> Operation:
        return self.opaque("a function", [], [body])

    def apply(self, function: Atom, args: Sequence[Atom]) -> Operation:
        """In the rule of a custom, that function is known: it is what its body is."""
        plain = self.opaque("the application of a function", [function, *args])

        def run(env: Kinds) -> Sequence[Kind] | Kind:
            known = function(env)
            return plain(env) if isinstance(known, Kind) else known(*[arg(env) for arg in args])

        return run

    def pack(self, items: Sequence[Atom]) -> Operation:
        return self.opaque("a tuple", items)

    def project(self, value: Atom, position: int) -> Operation:
        return self.opaque("an item", [value])

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Operation:
        return self.opaque(variant, fields)

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        return self.opaque("a case", [value], branches)

    def par(self, branches: Sequence[Block]) -> Operation:
        return lambda env: [kind for branch in branches for kind in branch(env)]

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Kinds) -> Sequence[Kind]:
            totals = [[initial(env)] for initial in initials]
            results = body(env, *totals)
            return [*[total for (total,) in totals], *results]

        return run

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Kinds) -> Sequence[Kind]:
            total, by = accumulator(env), [*self.control, *[i(env) for i in indices]]
            total[0] = self.under(by, "a place that depends on it", lambda: [added(total[0], value(env))])[0]
            return []

        return run

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        return lambda env: []

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        def located(kind: Kind, origin: Origin) -> Kind:
            return replace(kind, origin=origin) if kind.problem and kind.origin is None else kind

        def run(env: Kinds, arguments: Sequence[Any]) -> list[Kind]:
            env = env.enter(arguments)
            for operation, types, origin in bindings:
                found = operation(env)
                kinds = [found] * len(types) if isinstance(found, Kind) else found
                env = env.extend([located(kind, origin) for kind in kinds])
            return [result(env) for result in results]

        return Block(run, binders)
