"""Forward mode: a language in which every active value carries its tangent.

An environment entry is a value and its tangent, or no tangent where the value does not depend on what is
differentiated (``activity.py``). Each construct is the same construct over pairs: arrays of tangents beside arrays,
states beside states, an accumulator of tangents beside an accumulator. The rules are a table, one construct a method,
with the formula as its docstring (``dy`` is the tangent of y). They are those of Schenck et al. 2022, section 3, who
give the first (2.0.1) and the principle: a construct of pairs.

    y = sum(i < n: sin(x[i]))        dy = sum(i < n: cos(x[i]) * dx[i])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..core import terms
from ..core.constructs import Construct
from ..core.dims import Dim
from ..core.environment import Env
from ..core.expr import Expr
from ..core.graph import Value
from ..core.language import Binding
from ..core.operations import term_of_expansion
from ..core.primitive import Primitive
from ..core.source import Standing
from ..core.terms import Constant, Failure, Foreign, Rules
from ..core.types import ArrayType, Scalar, Type, is_float
from ..interpreters.embed import accumulate, emit_blocks, name_arguments
from .activity import State, active_results
from .boundary import Joining, Parting
from .cells import Sweep
from .custom import CustomPushforward, probe_name, tangents_by_rule
from .duals import Atom, Block, Dual, Duals, Operation, Pick
from .forms import Form, Progress, is_structured
from .forward_functions import ForwardFunctions
from .forward_reductions import Combination, Histogram, Reduction, Scan
from .fragment import Fragment, again, refused
from .reverse import Reverse


class Forward(ForwardFunctions, Fragment[Atom, Operation, Block]):
    """Dual numbers over any construct, emitted into a builder."""

    later_rules = True

    def reverse(self) -> Reverse:
        return Reverse(Sweep(self.builder))

    def meaning(self, block: terms.Block) -> Block:
        """A term that is closed: its parameters are values and tangents, and so are its results.

        What moves inside of functions and data is found first, for the whole term (``active_parts.py``).
        """
        progress = self.activity.progress = Progress()
        inner = super().meaning(block)
        structured = any(map(is_structured, block.binders))

        def run(env: Duals, arguments: Sequence[Dual]) -> list[Dual]:
            if not structured and not progress.forms:
                return inner.run(env, arguments)
            if progress.settled:  # by another run, in which other arguments may have moved
                return self.meaning(block).run(env, arguments)
            states = [self._state(dual, progress) for dual in arguments]
            self.activity.settle(progress, inner.activity, states)
            named = zip(arguments, states, block.names, strict=True)
            return [self._apart(dual) for dual in inner.run(env, [self._joined(*each) for each in named])]

        return replace(inner, run=run)

    def _state(self, dual: Dual, progress: Progress) -> State:
        type, moves = dual.primal.type, dual.tangent is not None
        return Form.of(type, progress, moves) if is_structured(type) else moves

    def _joined(self, dual: Dual, state: State, name: str) -> Dual:
        """A value and its tangent as they are inside."""
        if not isinstance(state, Form):
            return dual
        return Dual(Joining(self.builder, name)(state, dual.primal, dual.tangent), form=state)

    def _apart(self, dual: Dual) -> Dual:
        """The other way round."""
        if dual.form is None or not dual.form.cells:
            return dual
        primal, tangent = Parting(self.builder)(dual.form, dual.primal)
        return Dual(primal, tangent)

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        """A variable has the tangent of what it stands for; literals, constants and sizes have none."""
        return lambda env: env.get(index)

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return lambda env: Dual(self.builder.literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return lambda env: Dual(self.builder.atom(array))

    def dim(self, dim: Dim) -> Atom:
        return lambda env: Dual(self.builder.dim(dim))

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        """``y = f(a, b)``:  ``dy = (df/da) da + (df/db) db`` (S 2.0.1, equation 2)."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            b = self.builder
            duals = [a(env) for a in args]
            (y,) = b.emit("primitive", (primitive,), [dual.primal for dual in duals])
            if not active[0]:
                return [Dual(y)]
            assert primitive.derivative is not None
            rules = primitive.derivative(Expr(y, b), *[Expr(dual.primal, b) for dual in duals])
            moving = zip(duals, rules, strict=True)
            shares = [(rule, dual.tangent) for dual, rule in moving if dual.tangent is not None and rule is not None]
            return [Dual(y, self.sum_of(shares) if shares else None)]

        return Operation(run, self.activity.primitive(primitive, args))

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        """The same test; each branch gives its values and their tangents."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            def branch(block: Block) -> Callable[[], Sequence[Value]]:
                return lambda: self.flat(block.run(env, []), active)

            return self.duals(self.builder.cond(test(env).primal, branch(then), branch(orelse)), active)

        return Operation(run, self.activity.cond(test, then.activity, orelse.activity))

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        """``s' = f(i, s)``:  ``ds' = (df/ds) ds``: active states and outputs have tangents beside them."""
        count = len(initials)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            moving, outputs = active[:count], active[count:]

            def step(i: Value, *state: Value) -> Sequence[Value]:
                results = body.run(env, [Dual(i), *self.duals(state, moving)])
                return [*self.flat(results[:count], moving), *self.flat(results[count:], outputs)]

            starts = self.flat([a(env) for a in initials], moving)
            values = self.builder.loop(extent(env).primal, starts, step)
            return [*self.duals(values[: len(starts)], moving), *self.duals(values[len(starts) :], outputs)]

        return Operation(run, self.activity.loop(dim, extent, initials, body.activity))

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        """``n = size a``: an integer, which does not move."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            return [Dual(self.builder.size(array(env).primal, axis))]

        return Operation(run, self.activity.size(array, axis))

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        """``y = a[i]``:  ``dy = da[i]``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            dual, places = array(env), [i(env).primal for i in indices]
            tangent = None if dual.tangent is None else self.element_of(dual.tangent, places)
            return [Dual(self.builder.index(dual.primal, places), tangent)]

        return Operation(run, self.activity.index(array, indices))

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        """``y[i] = f(i)``:  ``dy[i] = df(i)``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            def at(i: Value) -> Sequence[Value]:
                return self.flat(body.run(env, [Dual(i)]), active)

            return self.duals(self.builder.generate(extent(env).primal, at), active)

        return Operation(run, self.activity.generate(dim, extent, body.activity))

    def combination(
        self, construct: Construct, extents: Sequence[Atom], neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        """Sums of tangents, the operator on duals, or an extremal element's tangent (``forward_reductions.py``)."""
        rule: type[Combination] = Histogram if construct.places else Scan if construct.stacked else Reduction

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            units, sizes = [a(env) for a in neutrals], [a(env).primal for a in extents]
            return rule(self, construct, env, sizes, units, element, operator, active).push()

        activity = self.activity.combination(construct, extents, neutrals, element.activity, operator.activity)
        return Operation(run, activity)

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        """``y = x with y[k_i] = v_i``:  ``dy = dx with dy[k_i] = dv_i``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            sizes = [a(env).primal for a in extents]
            arrays = self.flat([a(env) for a in destinations], active)
            places = element.width - len(destinations)

            def at(*i: Value) -> list[Value]:
                found = element.run(env, self.constants(i))
                return [*[dual.primal for dual in found[:places]], *self.flat(found[places:], active)]

            return self.duals(self.builder.scatter(unique, sizes, arrays, at), active)

        return Operation(run, self.activity.scatter(unique, extents, destinations, element.activity))

    def argsort(self, array: Atom) -> Operation:
        """A permutation is integers, which do not move; the sorted values are an index by it."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            return [Dual(value) for value in self.builder.emit("argsort", (), [array(env).primal])]

        return Operation(run, self.activity.argsort(array))

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        """``s' = f(s) while p(s)``:  active states have tangents beside them; the test sees primals."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            moving = active[:-1]

            def holds(*state: Value) -> Value:
                return test.run(env, self.duals(state, moving))[0].primal

            def step(*state: Value) -> Sequence[Value]:
                return self.flat(body.run(env, self.duals(state, moving)), moving)

            *state, trips = self.builder.while_loop(self.flat([a(env) for a in initials], moving), holds, step)
            return [*self.duals(state, moving), Dual(trips)]

        return Operation(run, self.activity.while_loop(initials, test.activity, body.activity))

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        """By its rules, ``dy = rule(x, dx)``; a checkpoint is one of duals (``custom.py``)."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            return CustomPushforward(self, env, rules, [a(env) for a in args], body, blocks).push(active)

        return Operation(run, self.activity.custom(rules, args, body.activity, [block.activity for block in blocks]))

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        """``y = x``, shown:  ``dy = dx``, shown under a name of its own."""
        self.probes.add(name)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            b, given = self.builder, [v(env) for v in values]
            if not self.checks:
                return given
            duals = [self._apart(dual) for dual in given]
            primals = b.emit("probe", (name,), [dual.primal for dual in duals])
            moving = [dual.tangent for dual in duals if dual.tangent is not None]
            tangents = b.emit("probe", (probe_name(name, "tangent", self.probes),), moving) if moving else ()
            shown = self.duals([*primals, *tangents], [dual.tangent is not None for dual in duals])
            return [dual if dual.form else same for dual, same in zip(given, shown, strict=True)]

        return Operation(run, self.activity.probe(name, values))

    # Fork and join, and what is written elsewhere

    def par(self, branches: Sequence[Block]) -> Operation:
        """``y, z = par(f, g)``:  ``(y, dy), (z, dz) = par((f, df), (g, dg))``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            moves = iter(active)
            picks = [[next(moves) for _ in range(branch.width)] for branch in branches]
            pairs = list(zip(branches, picks, strict=True))
            bodies = [lambda block=block, own=own: self.flat(block.run(env, []), own) for block, own in pairs]
            values = iter(emit_blocks(self.builder, "par", (), [], bodies))
            made = [[next(values) for _ in range(len(own) + own.count(True))] for own in picks]
            return [dual for some, own in zip(made, picks, strict=True) for dual in self.duals(some, own)]

        return Operation(run, self.activity.par([branch.activity for branch in branches]))

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        """By its rule, ``dy = rule(x, dx)`` (``custom.py``), or as its expansion; refused without either."""
        plain = super().foreign(function, args)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if function.effects and not self.checks:
                raise again(self.builder, function, "forward")
            operands = [arg(env) for arg in args]
            if not function.rules and function.expansion is not None and any(active):
                term = term_of_expansion(function, [operand.primal.type for operand in operands])
                return self.meaning(term).run(Env(), operands)
            if not function.rules:
                return plain.run(env, active)
            results = self.builder.emit("foreign", (function,), [operand.primal for operand in operands])
            if not any(active):
                return self.constants(results)
            tangents = iter(tangents_by_rule(self, function, operands, results))
            return [Dual(value, next(tangents) if is_float(value.type) else None) for value in results]

        return replace(plain, run=run)

    def opaque(
        self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[Block] = (), name: str = ""
    ) -> Operation:
        """An operation without a rule, which is refused where it moves (``fragment.py``)."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if any(active):
                raise refused(self.builder, "forward", op, name)
            return self.constants(emit_blocks(self.builder, op, static, [arg(env).primal for arg in args], []))

        return Operation(run, self.activity.opaque(op, static, args))

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        """``y = accumulate x: y[k_j] += v_j``:  ``dy = accumulate dx: dy[k_j] += dv_j``."""
        count = len(initials)

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            moving, rest = active[:count], active[count:]
            starts = self.flat([a(env) for a in initials], moving)

            def inner(*cells: Value) -> Sequence[Value]:
                return self.flat(body.run(env, self.duals(cells, moving)), rest)

            values = accumulate(self.builder, starts, inner)
            return [*self.duals(values[: len(starts)], moving), *self.duals(values[len(starts) :], rest)]

        return Operation(run, self.activity.accumulate(initials, body.activity))

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        """``acc[k] += v``:  ``dacc[k] += dv``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            target, dual, places = accumulator(env), value(env), [i(env).primal for i in indices]
            self.builder.emit("add_to", (), [target.primal, dual.primal, *places])
            if dual.tangent is not None:
                assert target.tangent is not None
                self.builder.emit("add_to", (), [target.tangent, dual.tangent, *places])
            return []

        return Operation(run, self.activity.add_to(accumulator, value, indices))

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        """A statement about integers, checked once."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            if self.checks:
                self.builder.require(test(env).primal, failure, [v(env).primal for v in values])
            return []

        return Operation(run, self.activity.require(test, failure, values))

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        inner = [Binding(binding.operation.activity, binding.types, binding.origin) for binding in bindings]
        steps = list(zip(bindings, inner, strict=True))

        def run(env: Duals, arguments: Sequence[Dual]) -> list[Dual]:
            name_arguments([dual.primal for dual in arguments], names)
            env, outer = env.enter(arguments), self.builder.origin
            for (operation, _, origin), activity in steps:
                active = active_results(activity, env).results
                self.builder.origin = origin.derived if any(active) else origin
                with Standing(origin):
                    env = env.extend(operation.run(env, active))
            self.builder.origin = outer
            return [result(env) for result in results]

        return Block(run, self.activity.block(binders, inner, results, names), len(results), names)
