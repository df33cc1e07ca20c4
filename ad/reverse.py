"""Reverse mode: a language in which an operation means its own code and the code of its return sweep.

The meaning of an operation emits its primal into the builder and gives a *pull*: a Python function that, when the
cotangents of the results are known, emits the return sweep. Pulls exist only while code is generated; the program
that comes out has no tape. A scope that the return sweep enters runs its own forward part again, and what of that
is not needed is dead code (Schenck et al. 2022, sections 4 and 5).

The rules are a table: one construct a method, whose docstring is the formula (``y_bar`` is the cotangent of y, ``^T``
the transpose) and where it is from. S is Schenck et al., AD for an array language with nested parallelism (2022); M is
the thesis of Smeding on reverse AD for Accelerate (2021); V is Smeding and Vakar, Parallel dual-numbers reverse AD
(2025). What has no mark is ours.

Where cotangents are kept is the matter of ``cells.py``. The rules of longer constructs have modules of their own:
``reverse_loops.py`` (loop, while), ``reverse_reductions.py`` (reduce, scan, histogram), ``reverse_scatter.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..core import terms
from ..core.dims import Dim
from ..core.environment import Env
from ..core.expr import Expr
from ..core.graph import Value
from ..core.language import Binding
from ..core.operations import term_of_expansion
from ..core.primitive import Primitive
from ..core.source import Standing
from ..core.terms import Constant, Failure, Foreign, Origin, Rules
from ..core.types import ArrayType, Scalar, Type, is_float
from ..interpreters.embed import emit_blocks, name_arguments
from ..interpreters.simplify.accumulators import zeros_like
from .activity import active_results
from .branches import before_branches, share
from .cells import Cell, Entry, Sweep
from .custom import CustomPullback, cotangents_by_rule, probe_name
from .fragment import refused
from .reverse_functions import ReverseFunctions
from .reverse_loops import Steps
from .reverse_meanings import Atom, Block, Cotangents, Operation, Pull
from .reverse_reductions import Histogram, Reduction, Scan
from .reverse_scatter import Scatter


class Reverse(ReverseFunctions):
    """The language of return sweeps.

    Only active operations (``activity.py``) are run with a pull, and only their active results have a cell.
    """

    later_rules = True

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep)
        self.before_branches: frozenset[int] = frozenset()
        self.before_branch = False  # of the operation whose meaning is found

    def meaning(self, block: terms.Block, of_procedure: bool = False) -> Block:
        block = self.expanded(block)
        self.before_branches = before_branches(block, of_procedure)
        return self.meaning_of_block(block)

    def meaning_of_operation(self, operation: terms.Operation) -> Operation:
        self.before_branch = id(operation) in self.before_branches
        return super().meaning_of_operation(operation)

    # Atoms

    def variable(self, index: int, type: Type) -> Atom:
        """A variable has the cell of what it stands for; literals, constants and sizes have none."""
        return Atom(self.embed.variable(index, type), lambda env: env.get(index))

    def _inactive(self, primal: Callable[[Env[Any]], Value]) -> Atom:
        return Atom(primal, lambda env: Entry(primal(env)))

    def literal(self, value: float | int | bool, type: Scalar) -> Atom:
        return self._inactive(self.embed.literal(value, type))

    def constant(self, array: Constant, type: ArrayType) -> Atom:
        return self._inactive(self.embed.constant(array, type))

    def dim(self, dim: Dim) -> Atom:
        return self._inactive(self.embed.dim(dim))

    # Scalars and control

    def primitive(self, primitive: Primitive, args: Sequence[Atom]) -> Operation:
        """``y = f(a, b)``:  ``a_bar += (df/da) y_bar``, ``b_bar += (df/db) y_bar`` (S 4.2, equation 3).

        The partial derivatives are the column of the primitive's row, as linear functions. Where a branch reads what
        y is for, and 0 meets a partial derivative that is not finite, their product is 0 (``branches.py``).
        """
        primal = self.embed.primitive(primitive, [a.primal for a in args])
        b, masked = self.builder, self.before_branch and not primitive.finite

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, cells = [a.primal(env) for a in args], [a.cell(env) for a in args]
            (y,) = b.emit("primitive", (primitive,), values)

            def pull(cotangents: Cotangents) -> None:
                assert primitive.derivative is not None and cotangents[0] is not None
                rules = primitive.derivative(Expr(y, b), *[Expr(value, b) for value in values])
                for cell, rule in zip(cells, rules, strict=True):
                    if cell is not None and rule is not None:
                        g = Expr(cotangents[0], b)
                        cell.add((share(rule, g) if masked else rule(g)).value)

            return [y], pull

        return Operation(primal, run, self.activity.primitive(primitive, _entries(args)))

    def cond(self, test: Atom, then: Block, orelse: Block) -> Operation:
        """``y = cond c then f else g``:  ``cond c then f's return sweep else g's`` (S figure 2)."""
        primal = self.embed.cond(test.primal, then.primal, orelse.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, condition = primal(env), test.primal(env)

            def pull(cotangents: Cotangents) -> None:
                sweeps = [partial(self._swept, branch, env, cotangents) for branch in (then, orelse)]
                if any(g is not None and isinstance(g.type, ArrayType) for g in cotangents):
                    self.sweep.choose(condition, sweeps)
                else:
                    self.sweep.enclose(lambda: self.builder.cond(condition, *sweeps))

            return values, pull

        return Operation(primal, run, self.activity.cond(test.entry, then.activity, orelse.activity))

    def loop(self, dim: Dim, extent: Atom, initials: Sequence[Atom], body: Block) -> Operation:
        """``s_(i+1) = f(i, s_i)``:  from the last step back, ``s_i_bar = (df/ds_i)^T s_(i+1)_bar`` (S figure 3).

        The forward loop stores the states; the return loop runs each step again and back (``reverse_loops.py``).
        """
        primal = self.embed.loop(dim, extent.primal, [a.primal for a in initials], body.primal)
        b, count = self.builder, len(initials)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            length, starts = extent.primal(env), [a.primal(env) for a in initials]
            cells = [a.cell(env) for a in initials]

            def step(i: Value, *state: Value) -> Sequence[Value]:
                return [*body.primal(env, [i, *state]), *state]

            values = b.loop(length, starts, step)
            plain, stored = values[: len(values) - count], values[len(values) - count :]

            steps = Steps(self, length, starts, cells, active, lambda i, state: body.run(env, [Entry(i), *state]))

            def pull(cotangents: Cotangents) -> None:
                steps.pull(stored, cotangents)

            return plain, pull

        return Operation(primal, run, self.activity.loop(dim, extent.entry, _entries(initials), body.activity))

    # Arrays

    def size(self, array: Atom, axis: int) -> Operation:
        """``n = size a``: an integer, which does not move."""
        primal = self.embed.size(array.primal, axis)
        return Operation(primal, _never, self.activity.size(array.entry, axis))

    def index(self, array: Atom, indices: Sequence[Atom]) -> Operation:
        """``y = a[i]``:  ``a_bar[i] += y_bar`` (S 4.2; M 3.3.2: many reads of an element add up)."""
        primal = self.embed.index(array.primal, [i.primal for i in indices])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            cell, places = array.cell(env), [i.primal(env) for i in indices]

            def pull(cotangents: Cotangents) -> None:
                if cell is not None and cotangents[0] is not None:
                    cell.add_at(places, cotangents[0])

            return [self.builder.index(array.primal(env), places)], pull

        return Operation(primal, run, self.activity.index(array.entry, _entries(indices)))

    def generate(self, dim: Dim, extent: Atom, body: Block) -> Operation:
        """``y[i] = f(i)``:  for all i the return sweep of f, given ``y_bar[i]`` (S 5.4).

        What f reads from outside is an accumulator, to which all iterations add.
        """
        primal = self.embed.generate(dim, extent.primal, body.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            length = extent.primal(env)

            def pull(cotangents: Cotangents) -> None:
                def sweep(i: Value) -> Sequence[Value]:
                    inner = [None if g is None else self.builder.part(g, [i]) for g in cotangents]
                    body.run(env, [Entry(i)])[1](inner)
                    return []

                self.sweep.enclose(lambda: self.builder.generate(length, sweep))

            return primal(env), pull

        return Operation(primal, run, self.activity.generate(dim, extent.entry, body.activity))

    def reduce(self, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        """``y = l_i op a_i op r_i``:  ``a_i_bar = (d(l_i op a_i op r_i) / da_i)^T y_bar`` for all i (S 5.1).

        Sums, extrema and single numbers have shorter rules: ``reverse_reductions.py``.
        """
        units = [a.primal for a in neutrals]
        primal = self.embed.reduce(extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, length = primal(env), extent.primal(env)
            return values, Reduction(self, env, length, [unit(env) for unit in units], element, operator, values).pull

        activity = self.activity.reduce(extent.entry, _entries(neutrals), element.activity, operator.activity)
        return Operation(primal, run, activity)

    def scan(self, dim: Dim, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block) -> Operation:
        """``y_i = y_(i-1) op a_i``:  ``r_i = y_i_bar + (dy_(i+1) / dy_i)^T r_(i+1)``, ``a_i_bar = (dy_i/da_i)^T r_i``.

        (S 5.2; ``recurrences.py``.) Sums:  ``a_bar`` is the running sum of ``y_bar`` from the end.
        """
        units = [a.primal for a in neutrals]
        primal = self.embed.scan(dim, extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, length = primal(env), extent.primal(env)
            return values, Scan(self, env, length, [unit(env) for unit in units], element, operator, values).pull

        activity = self.activity.scan(dim, extent.entry, _entries(neutrals), element.activity, operator.activity)
        return Operation(primal, run, activity)

    def histogram(
        self, dim: Dim, bins: Atom, extent: Atom, neutrals: Sequence[Atom], element: Block, operator: Block
    ) -> Operation:
        """``y[k] = op of the a_i with k_i = k``:  as a reduce (S 5.1.2); sums:  ``a_i_bar = y_bar[k_i]``."""
        units = [a.primal for a in neutrals]
        primal = self.embed.histogram(dim, bins.primal, extent.primal, units, element.primal, operator.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, length = primal(env), extent.primal(env)
            starts = [unit(env) for unit in units]
            return values, Histogram(self, env, length, starts, element, operator, values, bins.primal(env)).pull

        entries = bins.entry, extent.entry, _entries(neutrals)
        return Operation(primal, run, self.activity.histogram(dim, *entries, element.activity, operator.activity))

    def scatter(self, unique: bool, extents: Sequence[Atom], destinations: Sequence[Atom], element: Block) -> Operation:
        """``y = x with y[k_i] = v_i``:  ``v_i_bar = y_bar[k_i]``, ``x_bar = y_bar with x_bar[k_i] = 0`` (S 5.3).

        Of several values for one place, the last one is there, and has its cotangent (``reverse_scatter.py``).
        """
        primal = self.embed.scatter(
            unique, [a.primal for a in extents], [a.primal for a in destinations], element.primal
        )

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            lengths, cells = [a.primal(env) for a in extents], [a.cell(env) for a in destinations]
            arrays = [a.primal(env) for a in destinations]
            return primal(env), Scatter(self, env, unique, lengths, arrays, cells, element).pull

        activity = self.activity.scatter(unique, _entries(extents), _entries(destinations), element.activity)
        return Operation(primal, run, activity)

    def argsort(self, array: Atom) -> Operation:
        """A permutation is integers, which do not move; the sorted values are an index by it."""
        return Operation(self.embed.argsort(array.primal), _never, self.activity.argsort(array.entry))

    def while_loop(self, initials: Sequence[Atom], test: Block, body: Block) -> Operation:
        """The steps are counted; the return sweep is that of a loop of so many steps (S 6.2, the inspector)."""
        primal = self.embed.while_loop([a.primal for a in initials], test.primal, body.primal)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, starts = primal(env), [a.primal(env) for a in initials]
            cells = [a.cell(env) for a in initials]
            steps = Steps(self, values[-1], starts, cells, active[:-1], lambda _, state: body.run(env, state))

            def pull(cotangents: Cotangents) -> None:
                def step(_: Value, *state: Value) -> Sequence[Value]:
                    return [*body.primal(env, state), *state]

                stored = self.builder.loop(values[-1], starts, step)[len(starts) :]
                steps.pull(stored, cotangents[:-1])

            return values, pull

        activity = self.activity.while_loop(_entries(initials), test.activity, body.activity)
        return Operation(primal, run, activity)

    # Meanings given by the user

    def custom(self, rules: Rules, args: Sequence[Atom], body: Block, blocks: Sequence[Block]) -> Operation:
        """By its rules, ``x_bar += rule(x, y_bar)``; a checkpoint runs its body anew (``custom.py``)."""
        primal = self.embed.custom(rules, [a.primal for a in args], body.primal, [block.primal for block in blocks])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            values, entries = primal(env), [a.entry(env) for a in args]
            return values, CustomPullback(self, env, rules, entries, body, blocks, values).pull

        return Operation(primal, run, self.activity.custom(rules, _entries(args), body.activity, []))

    def probe(self, name: str, values: Sequence[Atom]) -> Operation:
        """``y = x``, shown:  ``x_bar += y_bar``, shown under a name of its own."""
        self.probes.add(name)
        primal = self.embed.probe(name, [v.primal for v in values])
        b = self.builder

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            cells = [v.cell(env) for v in values]

            def pull(cotangents: Cotangents) -> None:
                moving = [(c, g) for c, g in zip(cells, cotangents, strict=True) if c is not None and g is not None]
                shown: Sequence[Value] = [cotangent for _, cotangent in moving]
                if self.showing:
                    shown = b.emit("probe", (probe_name(name, "cotangent", self.probes),), shown)
                for (cell, _), cotangent in zip(moving, shown, strict=True):
                    cell.add(cotangent)

            return primal(env), pull

        return Operation(primal, run, self.activity.probe(name, _entries(values)))

    # The higher-order fragment

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        """As ``cond``, of more branches, where data is constant and nothing is called (``reverse_functions.py``)."""
        primal = self.embed.case(value.primal, variants, [branch.primal for branch in branches])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            data = value.primal(env)

            def pull(cotangents: Cotangents) -> None:
                sweeps = [partial(self._swept, branch, env, cotangents) for branch in branches]
                self.sweep.enclose(lambda: emit_blocks(self.builder, "case", variants, [data], sweeps))

            return primal(env), pull

        return Operation(primal, run, self.activity.case(value.entry, variants, [b.activity for b in branches]))

    def par(self, branches: Sequence[Block]) -> Operation:
        """``y, z = par(f, g)``:  ``par(f's return sweep, g's return sweep)``, for updates commute (V 12.1)."""
        primal = self.embed.par([branch.primal for branch in branches])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            def pull(cotangents: Cotangents) -> None:
                parts, sweeps = iter(cotangents), []
                for branch in branches:
                    own = [next(parts) for _ in range(branch.width)]
                    results, updates = branch.activity(env, [])
                    if updates or any(results):
                        sweeps.append(partial(self._swept, branch, env, own))
                self.sweep.enclose(lambda: emit_blocks(self.builder, "par", (), [], sweeps))

            return primal(env), pull

        return Operation(primal, run, self.activity.par([branch.activity for branch in branches]))

    def _swept(self, block: Block, env: Env[Entry], cotangents: Cotangents, *binders: Value) -> Sequence[Value]:
        """The return sweep of a block with constant parameters, as the body of a statement."""
        block.run(env, self.constants(binders))[1](cotangents)
        return []

    def by_rule(
        self, op: str, static: tuple[Any, ...], args: Sequence[Atom], rule: Callable[..., Sequence[Expr | None]]
    ) -> Operation:
        """``y = f(x)``:  ``x_bar += rule(y_bar, y, x)``, for a construct without blocks that was added.

        The rule gets the cotangents of the results, the results and the operands, and gives one cotangent, or None for
        0, for each operand. A result that nothing is differentiated by has the cotangent 0.
        """
        b = self.builder

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            operands, cells = [arg.primal(env) for arg in args], [arg.cell(env) for arg in args]
            results = b.emit(op, static, operands)

            def pull(cotangents: Cotangents) -> None:
                given = [zeros_like(b, y) if g is None else g for g, y in zip(cotangents, results, strict=True)]
                found = rule(*[Expr(value, b) for value in [*given, *results, *operands]])
                for cell, cotangent in zip(cells, found, strict=True):
                    if cell is not None and cotangent is not None:
                        cell.add(cotangent.value)

            return results, pull

        return replace(self.opaque(op, static, args), run=run)

    def foreign(self, function: Foreign, args: Sequence[Atom]) -> Operation:
        """By its rule, ``x_bar += rule(x, y_bar)`` (``custom.py``), or as its expansion; refused without either."""
        plain = replace(super().foreign(function, args), primal=self.embed.foreign(function, [a.primal for a in args]))
        if not function.rules and function.expansion is not None:
            return replace(plain, run=lambda env, active: self._expanded(function, [arg.entry(env) for arg in args]))
        if not function.rules:
            return plain

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            results, operands = plain.primal(env), [arg.primal(env) for arg in args]
            cells = [arg.cell(env) for arg, value in zip(args, operands, strict=True) if is_float(value.type)]

            def pull(cotangents: Cotangents) -> None:
                found = cotangents_by_rule(self, function, operands, results, cotangents)
                for cell, cotangent in zip(cells, found, strict=True):
                    if cell is not None:
                        cell.add(cotangent)

            return results, pull

        return replace(plain, run=run)

    def _expanded(self, function: Foreign, entries: Sequence[Entry]) -> tuple[Sequence[Value], Pull]:
        """The expansion of an operation in its place."""
        term = term_of_expansion(function, [self.embed.value(entry).type for entry in entries])
        self.before_branches |= before_branches(term)
        return self.meaning_of_block(self.expanded(term)).run(Env(), entries)

    def opaque(
        self, op: str, static: tuple[Any, ...], args: Sequence[Atom], blocks: Sequence[Block] = (), name: str = ""
    ) -> Operation:
        """What is refused where it moves (``fragment.py``)."""

        def primal(env: Env[Entry]) -> Sequence[Value]:
            bodies = [lambda *binders, block=block: block.primal(env, binders) for block in blocks]
            return emit_blocks(self.builder, op, static, [arg.primal(env) for arg in args], bodies)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            raise refused(self.builder, "reverse", op, name)

        return Operation(primal, run, self.activity.opaque(op, static, _entries(args), [b.activity for b in blocks]))

    # Effects

    def accumulate(self, initials: Sequence[Atom], body: Block) -> Operation:
        """``y = accumulate x: y[k_j] += v_j``:  ``x_bar += y_bar``, ``v_j_bar += y_bar[k_j]`` (S 5.4).

        Inside, the accumulator is its final's cotangent, which is only read.
        """
        primal = self.embed.accumulate([a.primal for a in initials], body.primal)
        count = len(initials)

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            cells = [a.cell(env) for a in initials]

            def pull(cotangents: Cotangents) -> None:
                for cell, cotangent in zip(cells, cotangents, strict=False):
                    if cell is not None and cotangent is not None:
                        cell.add(cotangent)
                body.run(env, [Entry(None, None, g) for g in cotangents[:count]])[1](cotangents[count:])

            return primal(env), pull

        return Operation(primal, run, self.activity.accumulate(_entries(initials), body.activity))

    def add_to(self, accumulator: Atom, value: Atom, indices: Sequence[Atom]) -> Operation:
        """``acc[k] += v``:  ``v_bar += y_bar[k]``, where y is the final of the accumulator."""
        primal = self.embed.add_to(accumulator.primal, value.primal, [i.primal for i in indices])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            final, cell, places = accumulator.entry(env).final, value.cell(env), [i.primal(env) for i in indices]
            assert final is not None and cell is not None
            return [], lambda cotangents: cell.add(self.builder.index(final, places))

        activity = self.activity.add_to(accumulator.entry, value.entry, _entries(indices))
        return Operation(primal, run, activity)

    def require(self, test: Atom, failure: Failure, values: Sequence[Atom]) -> Operation:
        """A statement about integers: it belongs to the forward sweep."""
        primal = self.embed.require(test.primal, failure, [v.primal for v in values])
        return Operation(primal, _never, self.activity.require(test.entry, failure, _entries(values)))

    # Blocks

    def block(
        self, binders: Sequence[Type], bindings: Sequence[Binding], results: Sequence[Atom], names: Sequence[str]
    ) -> Block:
        """``s_1; ...; s_n``:  forward ``s_1 ... s_n``, then the pulls of ``s_n ... s_1`` (S 4.2, vjp_stms)."""
        primals = [Binding(binding.operation.primal, binding.types, binding.origin) for binding in bindings]
        primal = self.embed.block(binders, primals, [result.primal for result in results], names)
        activities = [Binding(binding.operation.activity, binding.types, binding.origin) for binding in bindings]
        activity = self.activity.block(binders, activities, _entries(results), names)
        steps = list(zip(bindings, activities, strict=True))

        def run(env: Env[Entry], arguments: Sequence[Entry]) -> tuple[list[Value], Pull]:
            name_arguments([argument.value for argument in arguments], names)
            return self._run_block(env.enter(arguments), steps, results)

        return Block(primal, run, activity, len(results))

    def _run_block(
        self, env: Env[Entry], bindings: Sequence[tuple[Binding, Binding]], results: Sequence[Atom]
    ) -> tuple[list[Value], Pull]:
        steps: list[tuple[Pull, list[Cell | None], bool, Origin]] = []
        outer = self.builder.origin
        for (operation, _, origin), activity in bindings:
            self.builder.origin = origin
            active, updates = active_results(activity, env)
            if updates or any(active):
                self.builder.origin = origin.derived
                with Standing(origin):
                    values, pull = operation.run(env, active)
                moving = zip(values, active, strict=True)
                cells = [Cell(self.sweep, value) if moves else None for value, moves in moving]
                steps.append((pull, cells, updates, origin))
                env = env.extend([Entry(value, cell) for value, cell in zip(values, cells, strict=True)])
            else:
                env = env.extend([Entry(value) for value in operation.primal(env)])
        self.builder.origin = outer
        finals = [result.cell(env) for result in results]

        def pull_all(cotangents: Cotangents) -> None:
            for cell, cotangent in zip(finals, cotangents, strict=True):
                if cell is not None and cotangent is not None:
                    cell.add(cotangent)
            before = self.builder.origin
            for pull, cells, updates, origin in reversed(steps):
                self.builder.origin = origin.derived
                arrived = [None if cell is None else cell.read() for cell in cells]
                if updates or any(cotangent is not None for cotangent in arrived):
                    with Standing(origin):
                        pull(arrived)
            self.builder.origin = before

        return [result.primal(env) for result in results], pull_all


def _entries(atoms: Sequence[Atom]) -> list[Callable[[Env[Entry]], Entry]]:
    return [atom.entry for atom in atoms]


def _never(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
    raise AssertionError("an operation without active results is not run")
