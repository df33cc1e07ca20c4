"""Forward mode: a language in which every floating value carries its tangent.

An environment entry is a value and its tangent, or no tangent where the value does not depend on what is
differentiated. Each construct is the same construct over pairs: arrays of tangents beside arrays, states beside
states, an accumulator of tangents beside an accumulator. (Schenck et al. 2022, section 3.)

    y = sum(i < n: sin(x[i]))        dy = sum(i < n: cos(x[i]) * dx[i])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.builder import Builder
from ..core.dims import Dim
from ..core.environment import Env
from ..core.expr import Expr
from ..core.graph import Value
from ..core.language import Binding, Language
from ..core.primitive import Primitive
from ..core.terms import Constant, Failure
from ..core.types import Accumulator, ArrayType, Scalar, Type, is_float
from ..interpreters.accumulators import plus, zeros_like
from ..interpreters.rules import operator_name


@dataclass(frozen=True)
class Dual:
    """A value and its tangent; None: the tangent is zero."""

    primal: Value
    tangent: Value | None = None


Duals = Env[Dual]
Atom = Callable[[Duals], Dual]
Operation = Callable[[Duals], Sequence[Dual]]
Block = Callable[[Duals, Sequence[Dual]], list[Dual]]


class Forward(Language[Atom, Operation, Block]):
    """Dual numbers over any construct, emitted into a builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def _tangent(self, dual: Dual) -> Value:
        """The tangent as a value, zero if need be."""
        return zeros_like(self.builder, dual.primal) if dual.tangent is None else dual.tangent

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return lambda env: Dual(self.builder.literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return lambda env: Dual(self.builder.atom(array))

    def dim(self, dim: Dim) -> Atom:
        return lambda env: Dual(self.builder.dim(dim))

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            b = self.builder
            duals = [a(env) for a in args]
            (y,) = b.emit("primitive", (primitive,), [dual.primal for dual in duals])
            if not is_float(y.type) or all(dual.tangent is None for dual in duals):
                return [Dual(y)]
            assert primitive.derivative is not None
            rules = primitive.derivative(Expr(y, b), *[Expr(dual.primal, b) for dual in duals])
            total: Value | None = None
            for dual, rule in zip(duals, rules, strict=True):
                if dual.tangent is not None and rule is not None:
                    part = rule(Expr(dual.tangent, b)).value
                    total = part if total is None else plus(b, total, part)
            return [Dual(y, total)]

        return run

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            def branch(block: Block) -> Callable[[], Sequence[Value]]:
                def values() -> Sequence[Value]:
                    duals = block(env, [])
                    tangents = [self._tangent(dual) for dual in duals if is_float(dual.primal.type)]
                    return [*[dual.primal for dual in duals], *tangents]

                return values

            return _paired(self.builder.cond(test(env).primal, branch(then), branch(orelse)))

        return run

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        """Every floating state has a tangent state, every floating output a tangent output."""

        def run(env: Duals) -> Sequence[Dual]:
            starts = [a(env) for a in initials]
            floating = [k for k, dual in enumerate(starts) if is_float(dual.primal.type)]
            count = len(starts)

            def step(i: Value, *state: Value) -> Sequence[Value]:
                tangents = dict(zip(floating, state[count:], strict=True))
                duals = body(env, [Dual(i), *[Dual(state[k], tangents.get(k)) for k in range(count)]])
                after, outputs = duals[:count], duals[count:]
                moved = [self._tangent(after[k]) for k in floating]
                output_tangents = [self._tangent(dual) for dual in outputs if is_float(dual.primal.type)]
                return [*[d.primal for d in after], *moved, *[d.primal for d in outputs], *output_tangents]

            initial = [*[dual.primal for dual in starts], *[self._tangent(starts[k]) for k in floating]]
            values = self.builder.loop(extent(env).primal, initial, step)
            states = _paired(values[: len(initial)])
            return [*states, *_paired(values[len(initial) :])]

        return run

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        return lambda env: [Dual(self.builder.size(array(env).primal, axis))]

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            dual, places = array(env), [i(env).primal for i in indices]
            tangent = None if dual.tangent is None else self.builder.index(dual.tangent, places)
            return [Dual(self.builder.index(dual.primal, places), tangent)]

        return run

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            shape: list[bool] = []

            def inner(i: Value) -> Sequence[Value]:
                duals = body(env, [Dual(i)])
                shape[:] = [dual.tangent is not None for dual in duals]
                return [*[dual.primal for dual in duals], *[d.tangent for d in duals if d.tangent is not None]]

            values = list(self.builder.generate(extent(env).primal, inner))
            tangents = iter(values[len(shape) :])
            return [Dual(value, next(tangents) if active else None) for value, active in zip(values, shape, strict=False)]

        return run

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        """The operator on duals, which is associative as it is; a sum's tangent is the sum of tangents."""

        def run(env: Duals) -> Sequence[Dual]:
            b = self.builder
            length, units = extent(env).primal, [a(env) for a in neutrals]

            def at(i: Value) -> list[Dual]:
                return element(env, [Dual(i)])

            plain = b.reduce(
                length,
                [unit.primal for unit in units],
                lambda i: [dual.primal for dual in at(i)],
                lambda *ab: [dual.primal for dual in operator(env, [Dual(value) for value in ab])],
            )
            source = plain[0].source
            if len(plain) == 1 and source is not None and source.op == "reduce" and is_float(plain[0].type):
                if operator_name(source.bodies[1]) == "add":
                    zero = zeros_like(b, units[0].primal)
                    total = b.reduce(
                        length, [zero], lambda i: [self._tangent(at(i)[0])], lambda x, y: [b.primitive("add", x, y)]
                    )
                    return [Dual(plain[0], total[0])]
            return self._reduce_duals(env, length, units, at, operator)

        return run

    def _reduce_duals(
        self, env: Duals, length: Value, units: Sequence[Dual], at: Callable[[Value], list[Dual]], operator: Block
    ) -> Sequence[Dual]:
        count = len(units)
        floating = [k for k, unit in enumerate(units) if is_float(unit.primal.type)]

        def flat(duals: Sequence[Dual]) -> list[Value]:
            return [*[dual.primal for dual in duals], *[self._tangent(duals[k]) for k in floating]]

        def duals(values: Sequence[Value]) -> list[Dual]:
            tangents = dict(zip(floating, values[count:], strict=True))
            return [Dual(values[k], tangents.get(k)) for k in range(count)]

        def combine(*values: Value) -> list[Value]:
            half = len(values) // 2
            return flat(operator(env, [*duals(values[:half]), *duals(values[half:])]))

        values = self.builder.reduce(length, flat([Dual(unit.primal) for unit in units]), lambda i: flat(at(i)), combine)
        return duals(values)

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            starts = [a(env) for a in initials]
            floating = [k for k, dual in enumerate(starts) if is_float(dual.primal.type)]
            values = [*[dual.primal for dual in starts], *[self._tangent(starts[k]) for k in floating]]

            def inner(*cells: Value) -> Sequence[Value]:
                tangents = dict(zip(floating, cells[len(starts) :], strict=True))
                duals = body(env, [Dual(cells[k], tangents.get(k)) for k in range(len(starts))])
                results = [self._tangent(dual) for dual in duals if is_float(dual.primal.type)]
                return [*[dual.primal for dual in duals], *results]

            types = [Accumulator(value.type) for value in values if not isinstance(value.type, Accumulator)]
            made = self.builder.emit("accumulate", (), values, [self.builder.body(types, inner)])
            return [*_paired(made[: len(values)]), *_paired(made[len(values) :])]

        return run

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            target, dual, places = accumulator(env), value(env), [i(env).primal for i in indices]
            self.builder.emit("add_to", (), [target.primal, dual.primal, *places])
            if target.tangent is not None and dual.tangent is not None:
                self.builder.emit("add_to", (), [target.tangent, dual.tangent, *places])
            return []

        return run

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        def run(env: Duals) -> Sequence[Dual]:
            self.builder.require(test(env).primal, failure, [v(env).primal for v in values])
            return []

        return run

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        def run(env: Duals, arguments: Sequence[Dual]) -> list[Dual]:
            env, outer = env.enter(arguments), self.builder.origin
            for operation, _, origin in bindings:
                self.builder.origin = origin
                env = env.extend(operation(env))
            self.builder.origin = outer
            return [result(env) for result in results]

        return run


def _paired(values: Sequence[Value]) -> list[Dual]:
    """Duals from values followed by the tangents of the floating ones among them."""
    count = len(values)
    while count and count + sum(is_float(value.type) for value in values[:count]) > len(values):
        count -= 1
    tangents = iter(values[count:])
    return [Dual(value, next(tangents) if is_float(value.type) else None) for value in values[:count]]
