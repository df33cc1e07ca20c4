"""Reverse mode of procedures, data and choices between them: a function also gives the function that leads back.

A program whose functions or data move is brought into first-order form first. Then it consists of blocks that call
procedures and look into data. Each procedure becomes a function that gives, with its results, its *pullback*: the
function from cotangents of the results to those of the parameters. It captures what it needs of the forward sweep, the
pullbacks of the calls inside among it, so the log of a run is a tree of pullbacks, which has the shape of the calls:

    go(xs) =                                  go'(xs) =
      case xs:                                  case xs:
        Nil(): 0                                  Nil(): (0, y_bar -> Nil())
        Cons(h, t): h * h + go(t)                 Cons(h, t): (r, back) = go'(t)
                                                    (h * h + r, y_bar -> Cons(2 * h * y_bar, back(y_bar)))

A branch that calls something is such a function, too: it gives the pullback of its own code, from what the choice gives
to what the branches capture, so no call is made again on the way back. Branches of a ``par`` give one each, and the way
back is the ``par`` of these; what they give is added in the order of the branches. Each result is read by one pullback,
once, after all that reads it has been swept: that is linear factoring (Smeding and Vákár, Parallel dual-numbers reverse
AD, 2025, sections 6 and 12), by the order of the code in the place of a staging map. (Functions to a result and its
backpropagator: Pearlmutter and Siskind, Reverse-mode AD in a functional framework, 2008.)

What comes out is a program like any other, which is evaluated, printed, compiled, and derived again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ..core import terms
from ..core.components import components
from ..core.environment import Env
from ..core.graph import Value
from ..core.procedures import Procedure, called_in, procedures_of
from ..core.terms import Foreign
from ..core.types import FunctionType, Named, Scalar, Type, all_dims, holds_floating, is_data
from ..interpreters.embed import emit_blocks, name_arguments
from .cells import Cell, Entry, Sweep
from .cotangents import arriving_type, cotangent_type, fields_of, nothing, of_fields, plus, zero_like
from .fragment import Fragment, unsupported
from .reverse_meanings import Atom, Block, Cotangents, Emission, Functions, Operation, Pull


class ReverseFunctions(Emission, Fragment[Atom, Operation, Block]):
    """The meanings of these constructs."""

    def differentiated(self, block: terms.Block, entries: Sequence[Entry]) -> tuple[list[Value], Pull]:
        """The forward sweep of a whole term at these entries, with the procedures that it calls; and its pull."""
        meaning, called = self.meaning(block), procedures_of(block)
        blocks = {procedure: self.meaning(procedure.block, of_procedure=True) for procedure in called}
        activities = {procedure: own.activity for procedure, own in blocks.items()}
        self.activity.settle(activities, meaning.activity, entries)
        for procedure in called:
            if acting := [function for each in _reached(procedure) for function in _acting(each)]:
                self.embed.acting[procedure] = acting[0]
        graph = {procedure: list(dict.fromkeys(called_in(procedure.block))) for procedure in blocks}
        for group in components(graph):
            recursive = len(group) > 1 or group[0] in graph[group[0]]
            self._define(group, blocks, recursive, self.embed.functions)
            if any([any(self.activity.procedures[procedure].results) for procedure in group]):
                self._define(group, blocks, recursive, self.functions)
        return meaning.run(Env(), entries)

    # Procedures

    def _define(
        self, group: Sequence[Procedure], blocks: dict[Procedure, Block], recursive: bool, kind: Functions
    ) -> None:
        """Emit the functions of procedures that call each other; they are found in this table from now on.

        What a return sweep runs again has functions of its own where there is something to check, or to show. These
        come first: the return sweep of a function that checks runs them.
        """
        for found_when in self._occasions(group[0]):
            with self.checking(found_when[0]):
                self._emit(group, blocks, recursive, kind, found_when)

    def _occasions(self, procedure: Procedure) -> Sequence[tuple[bool, ...]]:
        """With which ``checks`` a function is found, for each that there is of a procedure."""
        if procedure in self.embed.acting:
            return [(True,)]
        return [(False,), (True,)] if any(map(_is_checked, _reached(procedure))) else [(True, False)]

    def _emit(
        self,
        group: Sequence[Procedure],
        blocks: dict[Procedure, Block],
        recursive: bool,
        kind: Functions,
        found_when: Sequence[bool],
    ) -> None:
        b, outer = self.builder, self.builder.origin
        body = self._with_pullback if kind is self.functions else self._plain
        signatures = [self._signature(procedure, kind is self.functions) for procedure in group]

        def named(procedure: Procedure) -> None:
            b.origin = replace(procedure.origin, name=procedure.name)

        def enter(functions: Sequence[Value]) -> None:
            for checks in found_when:
                kind.update({(each, checks): value for each, value in zip(group, functions, strict=True)})

        def alone(itself: Value, *parameters: Value) -> Sequence[Value]:
            enter([itself])
            made = body(group[0], blocks[group[0]], parameters)
            named(group[0])
            return made

        def together(itself: Value) -> Sequence[Value]:
            def one(procedure: Procedure, *parameters: Value) -> Sequence[Value]:
                enter(b.emit("apply", (), [itself]))
                made = body(procedure, blocks[procedure], parameters)
                named(procedure)
                return made

            pairs = zip(group, signatures, strict=True)
            made = [emit_blocks(b, "function", (type,), [], [partial(one, each)])[0] for each, type in pairs]
            b.origin = replace(outer, name="")
            return made

        if len(group) > 1:
            all_of_them = emit_blocks(b, "fix", (FunctionType((), tuple(signatures)),), [], [together])[0]
            functions = b.emit("apply", (), [all_of_them])
        elif recursive:
            functions = emit_blocks(b, "fix", (signatures[0],), [], [alone])
        else:
            single = partial(body, group[0], blocks[group[0]])
            functions = emit_blocks(b, "function", (signatures[0],), [], [lambda *given: single(given)])
        enter(functions)
        b.origin = outer

    def _signature(self, procedure: Procedure, with_pullback: bool) -> FunctionType:
        parameters, results = tuple(procedure.block.binders), tuple(procedure.results)
        for type in (*parameters, *results):
            if not all(dim.is_static() for dim in all_dims(type)):
                problem = f"{procedure.name} takes or gives an array of type {type}, whose size the run decides"
                instead = "have it take what that is made of, or differentiate via='trace'"
                raise unsupported(
                    self.builder, f"reverse mode does not lead back through a recursion where {problem}: {instead}"
                )
        return FunctionType(parameters, (*results, self._way_back(procedure)) if with_pullback else results)

    def _way_back(self, procedure: Procedure) -> FunctionType:
        moving = self.activity.procedures[procedure]
        given = _moving(procedure.block.binders, moving.parameters)
        return FunctionType(
            tuple(map(arriving_type, _moving(procedure.results, moving.results))), tuple(map(cotangent_type, given))
        )

    def _plain(self, procedure: Procedure, block: Block, parameters: Sequence[Value]) -> Sequence[Value]:
        return block.primal(Env(), parameters)

    def _with_pullback(self, procedure: Procedure, block: Block, parameters: Sequence[Value]) -> Sequence[Value]:
        moving = self.activity.procedures[procedure]
        with self.sweeping(Sweep(self.builder)):
            pairs = zip(parameters, moving.parameters, strict=True)
            entries = [self.moving(value) if moves else Entry(value) for value, moves in pairs]
            values, pull = block.run(Env(), entries)

            def taken() -> list[Value]:
                return [entry.cell.given() for entry in entries if entry.cell is not None]

            back = self.pullback(self._way_back(procedure), pull, moving.results, taken)
        return [*values, back]

    def call(self, procedures: tuple[Procedure, ...], args: Sequence[Atom]) -> Operation:
        """``y = p(x)``:  ``(y, back) = p'(x)``, ``x_bar += back(y_bar)``."""
        [procedure] = procedures  # forks are not written as calls yet

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            self.embed.require_no_effects(procedure)
            moving, b = self.activity.procedures[procedure], self.builder
            values, cells = [arg.primal(env) for arg in args], [arg.cell(env) for arg in args]
            *results, back = b.emit("apply", (), [self.functions[procedure, self.checks], *values])

            def pull(cotangents: Cotangents) -> None:
                found = self._applied(back, results, cotangents, moving.results)
                taken = [cell for cell, moves in zip(cells, moving.parameters, strict=True) if moves]
                _add(taken, found)

            return results, pull

        entries = [arg.entry for arg in args]
        return Operation(
            self.embed.call(procedures, [arg.primal for arg in args]), run, self.activity.call(procedures, entries)
        )

    # Pullbacks

    @contextmanager
    def sweeping(self, sweep: Sweep) -> Iterator[None]:
        """What is emitted meanwhile belongs to a sweep of its own."""
        before, self.sweep = self.sweep, sweep
        try:
            yield
        finally:
            self.sweep = before

    def moving(self, value: Value | None, owes: bool = True) -> Entry:
        """A value that moves, in the sweep that is open, for which a function gives what is owed."""
        assert value is not None
        return Entry(value, Cell(self.sweep, value, owes))

    def pullback(
        self, type: FunctionType, pull: Pull, moving: Sequence[bool], taken: Callable[[], list[Value]]
    ) -> Value:
        """The return sweep of the open one as a function: from the cotangents of what moves to what is taken then."""
        sweep = self.sweep

        def body(*given: Value) -> list[Value]:
            arrived = iter(given)
            name_arguments(given, ["y_bar"] * len(given))
            with self.sweeping(sweep), self.checking(False):
                sweep.restart()
                pull([next(arrived) if moves else None for moves in moving])
                return taken()

        return emit_blocks(self.builder, "function", (type,), [], [body])[0]

    def _applied(
        self, back: Value, results: Sequence[Value], cotangents: Cotangents, moving: Sequence[bool]
    ) -> Sequence[Value]:
        """What a pullback gives for the cotangents of some results, of which these move."""
        b, given = self.builder, []
        for value, cotangent, moves in zip(results, cotangents, moving, strict=True):
            if moves:
                given.append(zero_like(b, value) if cotangent is None else cotangent)
        return b.emit("apply", (), [back, *given])

    # Choices and forks

    def operation(self, operation: terms.Operation, args: Sequence[Atom], blocks: Sequence[Block]) -> Operation:
        """What the method of the construct says; choices and forks in which something is called give pullbacks."""
        if operation.op == "construct":
            named, variant = operation.static
            return self.construct(named, variant, args)
        plain = super().operation(operation, args, blocks)
        row = operation.row
        if row.chooses or operation.op == "par":
            entries, activities = [arg.entry for arg in args], [block.activity for block in blocks]
            activity = self.activity.operation(operation, entries, activities)
            return replace(plain, run=partial(self._with_pullbacks, plain, operation, args, blocks), activity=activity)
        if operation.op == "generate":
            return replace(plain, run=partial(self._gathered, plain, operation, args[0], blocks[0]))
        if row.ordered and not row.combines and not row.places:  # a loop with states
            return replace(plain, run=partial(self._stepped, plain, operation, args, blocks))
        return plain

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Operation:
        """``v = V(x, y)``:  ``x_bar, y_bar += case v_bar: V(a, b): a, b``."""
        b = self.builder

        def primal(env: Env[Entry]) -> Sequence[Value]:
            return b.emit("construct", (type, variant), [field.primal(env) for field in fields])

        def run(env: Env[Entry], active: Sequence[bool]) -> tuple[Sequence[Value], Pull]:
            entries = [field.entry(env) for field in fields]
            values = [self.embed.value(entry) for entry in entries]

            def pull(cotangents: Cotangents) -> None:
                if cotangents[0] is not None:
                    moving = [entry.cell for entry, x in zip(entries, values, strict=True) if holds_floating(x.type)]
                    _add(moving, fields_of(b, cotangents[0], variant, values))

            return primal(env), pull

        return Operation(primal, run, self.activity.construct(type, variant, [field.entry for field in fields]))

    def _with_pullbacks(
        self,
        plain: Operation,
        operation: terms.Operation,
        args: Sequence[Atom],
        blocks: Sequence[Block],
        env: Env[Entry],
        active: Sequence[bool],
    ) -> tuple[Sequence[Value], Pull]:
        """``y = cond c then f else g``:  ``(y, back) = cond c then f' else g'``, ``x_bar += back(y_bar)``.

        This is so where a branch calls or looks into what moves; other branches are swept as everywhere.
        """
        data = args[0].entry(env) if operation.op == "case" and args[0].entry(env).active else None
        if data is None and not self._meets(operation, blocks, env, active):
            apart = operation.op == "par" and _owe_numbers(operation, blocks, env)
            return self._apart(plain, operation, blocks, env) if apart else plain.run(env, active)
        if operation.op == "par":
            return self._forked(operation, blocks, env, active)
        heads = [arg.primal(env) for arg in args]
        branch = _Branches(self, operation.blocks, blocks, env, active, data, operation.static)
        bodies = [partial(branch, number) for number in range(len(blocks))]
        *results, back = emit_blocks(self.builder, operation.op, operation.static, heads, bodies)

        def pull(cotangents: Cotangents) -> None:
            _add(branch.cells, self._applied(back, results, cotangents, active))

        return results, pull

    def _meets(
        self, operation: terms.Operation, blocks: Sequence[Block], env: Env[Entry], active: Sequence[bool]
    ) -> bool:
        """Whether data that moves is a result or captured, or something inside calls or makes what moves."""
        if any([moves and not is_data(type) for moves, type in zip(active, operation.types, strict=True)]):
            return True
        if any(not is_data(_type(entry)) for entry in _captured(operation.blocks, env).values()):
            return True
        self.activity.met = False
        for block in blocks:
            block.activity.of_constants(env)
        return self.activity.met

    def _forked(
        self, operation: terms.Operation, blocks: Sequence[Block], env: Env[Entry], active: Sequence[bool]
    ) -> tuple[Sequence[Value], Pull]:
        """``y, z = par(f, g)``:  ``y, back, z, more = par(f', g')``, ``x_bar += par(more(z_bar), back(y_bar))``.

        What the branches give is added in their order. They are swept from the last one back, as code without forks
        is: one thread then reads the log as it lies in memory.
        """
        b, rest = self.builder, iter(active)
        shares = [[next(rest) for _ in range(block.width)] for block in blocks]
        branches = [
            _Branches(self, [term], [block], env, share)
            for term, block, share in zip(operation.blocks, blocks, shares, strict=True)
        ]
        made = iter(emit_blocks(b, "par", (), [], [partial(branch, 0) for branch in branches]))
        given = [([next(made) for _ in range(block.width)], next(made)) for block in blocks]
        moving = [block.activity(env, []) for block in blocks]
        moves = [any(found.results) or found.updates for found in moving]

        def pull(cotangents: Cotangents) -> None:
            arrived, sweeps = iter(cotangents), list[Callable[[], Sequence[Value]]]()
            for (results, back), share, moved in zip(given, shares, moves, strict=True):
                own = [next(arrived) for _ in results]
                if moved:
                    sweeps.append(partial(self._applied, back, results, own, share))
            swept = [branch.cells for branch, moved in zip(branches, moves, strict=True) if moved]
            found = iter(emit_blocks(b, "par", (), [], sweeps[::-1]))
            taken = [[next(found) for _ in cells] for cells in swept[::-1]]
            for cells, parts in zip(swept, taken[::-1], strict=True):
                _add(cells, parts)

        return [value for results, _ in given for value in results], pull

    def _apart(
        self, plain: Operation, operation: terms.Operation, blocks: Sequence[Block], env: Env[Entry]
    ) -> tuple[Sequence[Value], Pull]:
        """``y, z = par(f, g)`` of numbers:  ``a, b = par(f's return sweep, g's return sweep)``, ``x_bar += a + b``.

        A branch gives what it owes to each number from before the fork, so that none adds to what others add to.
        """
        b, captured = self.builder, [_captured([term], env) for term in operation.blocks]

        def sweep(number: int, cotangents: Cotangents) -> Sequence[Value]:
            with self.sweeping(Sweep(b)):
                own = {index: self.moving(entry.value) for index, entry in captured[number].items()}
                blocks[number].run(_outside(operation.blocks[number], env, own), ())[1](cotangents)
                return [entry.cell.given() for entry in own.values() if entry.cell is not None]

        def pull(cotangents: Cotangents) -> None:
            arrived, sweeps, cells = iter(cotangents), list[Callable[[], Sequence[Value]]](), list[Cell | None]()
            for number, block in enumerate(blocks):
                own = [next(arrived) for _ in range(block.width)]
                if any(block.activity(env, []).results):
                    sweeps.append(partial(sweep, number, own))
                    cells += [entry.cell for entry in captured[number].values()]
            _add(cells, emit_blocks(b, "par", (), [], sweeps) if sweeps else [])

        return plain.primal(env), pull

    # Loops

    def _stepped(
        self,
        plain: Operation,
        operation: terms.Operation,
        args: Sequence[Atom],
        blocks: Sequence[Block],
        env: Env[Entry],
        active: Sequence[bool],
    ) -> tuple[Sequence[Value], Pull]:
        """``s_(k+1) = f(k, s_k)`` with data:  ``back_(k+1)(s_bar) = back_k(f_back_k(s_bar))``, a further state.

        Further arguments of a pullback are the cotangents of what the loop stacks, and the sums so far of those of what
        its body captures. So each one ends with the call of the one before, and a sweep takes no stack.
        """
        moving_data = [moves and not is_data(type) for moves, type in zip(active, operation.types, strict=True)]
        if not any([*moving_data, *[not is_data(_type(x)) for x in _captured(operation.blocks, env).values()]]):
            return plain.run(env, active)
        b, values, cells = self.builder, [arg.primal(env) for arg in args], [arg.cell(env) for arg in args]
        count = len(operation.types) - 1 if operation.op == "while" else len(args) - 1
        term, body, starts = operation.blocks[-1], blocks[-1], values[len(values) - count :]
        moves, stacked = list(active[:count]), [k for k, own in enumerate(active) if own and k >= count]
        captured = _captured([term], env)
        taken = [_type(entry) for entry in captured.values()]
        states = list(map(arriving_type, _moving(operation.types[:count], moves)))
        arrived = tuple([*states, *[operation.types[k] for k in stacked], *map(cotangent_type, taken)])
        type = FunctionType(arrived, (*states, *map(cotangent_type, taken)))
        last = len(arrived) - len(taken)

        def step(*binders: Value) -> list[Value]:
            *given, back = binders
            with self.sweeping(Sweep(b)):
                own = {index: self.moving(entry.value) for index, entry in captured.items()}
                pairs = zip(given[len(given) - count :], moves, strict=True)
                inside = [self.moving(x, owes=False) if own_moves else Entry(x) for x, own_moves in pairs]
                index = [Entry(x) for x in given[: len(given) - count]]
                found, pull = body.run(_outside(term, env, own), [*index, *inside])
                sweep = self.sweep

                def earlier(*arguments: Value) -> Sequence[Value]:
                    rest, stacks = iter(arguments[: len(states)]), iter(arguments[len(states) : last])
                    with self.sweeping(sweep), self.checking(False):
                        sweep.restart()
                        ends = [next(rest) if own_moves else None for own_moves in moves]
                        rows = [
                            b.part(next(stacks), given[:1]) if k in stacked else None for k in range(count, len(found))
                        ]
                        pull([*ends, *rows])
                        before = [entry.cell.total_or_zero() for entry in inside if entry.cell is not None]
                        more = [entry.cell.given() for entry in own.values() if entry.cell is not None]
                        sums = [plus(b, x, y) for x, y in zip(arguments[last:], more, strict=True)]
                        return b.emit("apply", (), [back, *before, *arguments[len(states) : last], *sums])

                made = emit_blocks(b, "function", (type,), [], [earlier])[0]
            return [*found[:count], made, *found[count:]]

        first = emit_blocks(b, "function", (type,), [], [lambda *given: [*given[: len(states)], *given[last:]]])[0]
        if operation.op == "while":
            test = blocks[0]
            found = b.while_loop([*starts, first], lambda *state: test.primal(env, state[:-1])[0], step)
        else:
            found = b.loop(values[0], [*starts, first], step)
        back, results = found[count], [*found[:count], *found[count + 1 :]]

        def pull(cotangents: Cotangents) -> None:
            needed = [k for k in range(count) if moves[k]] + stacked
            given = [zero_like(b, results[k]) if (g := cotangents[k]) is None else g for k in needed]
            sums = [nothing(b, type) for type in taken]
            made = b.emit("apply", (), [back, *given, *sums])
            owners = [cell for cell, own_moves in zip(cells[len(cells) - count :], moves, strict=True) if own_moves]
            _add([*owners, *[entry.cell for entry in captured.values()]], made)

        return results, pull

    def _gathered(
        self,
        plain: Operation,
        operation: terms.Operation,
        extent: Atom,
        body: Block,
        env: Env[Entry],
        active: Sequence[bool],
    ) -> tuple[Sequence[Value], Pull]:
        """``y[i] = f(i)`` where f captures data: its cotangents are added up in the order of the iterations."""
        term, b = operation.blocks[0], self.builder
        captured = {k: entry for k, entry in _captured([term], env).items() if not is_data(_type(entry))}
        if not captured:
            return plain.run(env, active)
        length = extent.primal(env)

        def pull(cotangents: Cotangents) -> None:
            def sweep(i: Value, *sums: Value) -> Sequence[Value]:
                own = {index: self.moving(entry.value) for index, entry in captured.items()}
                inner = [None if g is None else b.part(g, [i]) for g in cotangents]
                body.run(_outside(term, env, own), [Entry(i)])[1](inner)
                more = [entry.cell.given() for entry in own.values() if entry.cell is not None]
                return [plus(b, x, y) for x, y in zip(sums, more, strict=True)]

            starts = [nothing(b, _type(entry)) for entry in captured.values()]
            _add(
                [entry.cell for entry in captured.values()],
                self.sweep.enclose(lambda: b.loop(length, starts, sweep)),
            )

        return plain.primal(env), pull


class _Branches:
    """The branches of a choice, each of which gives its results and a pullback: to what any of them captures, and to
    the data that was chosen by."""

    def __init__(
        self,
        reverse: ReverseFunctions,
        branches: Sequence[terms.Block],
        blocks: Sequence[Block],
        env: Env[Entry],
        active: Sequence[bool],
        data: Entry | None = None,
        variants: Sequence[str] = (),
    ) -> None:
        self.reverse, self.terms, self.blocks, self.env = reverse, branches, blocks, env
        self.active, self.data, self.variants = active, data, variants
        self.captured = _captured(branches, env)
        self.owners = [*self.captured.values(), *([] if data is None else [data])]
        self.cells = [entry.cell for entry in self.owners]
        self.taken = tuple([cotangent_type(_type(entry)) for entry in self.owners])

    def __call__(self, number: int, *fields: Value) -> Sequence[Value]:
        reverse, term = self.reverse, self.terms[number]
        with reverse.sweeping(Sweep(reverse.builder)):
            own = {index: reverse.moving(entry.value) for index, entry in self.captured.items()}
            moves = [self.data is not None and holds_floating(field.type) for field in fields]
            given = [reverse.moving(x) if m else Entry(x) for x, m in zip(fields, moves, strict=True)]
            values, pull = self.blocks[number].run(_outside(term, self.env, own), given)

            def taken() -> list[Value]:
                totals = [entry.cell.given() for entry in own.values() if entry.cell is not None]
                if self.data is not None and self.data.value is not None:
                    inside = [entry.cell.given() for entry in given if entry.cell is not None]
                    totals.append(of_fields(reverse.builder, self.data.value.type, self.variants[number], inside))
                return totals

            type = FunctionType(tuple(map(arriving_type, _moving(term.types, self.active))), self.taken)
            return [*values, reverse.pullback(type, pull, self.active, taken)]


def _owe_numbers(fork: terms.Operation, blocks: Sequence[Block], env: Env[Entry]) -> bool:
    """Whether what moves in the branches of a fork is made of numbers from before it, and nothing is added to."""
    numbers = all([isinstance(_type(entry), Scalar) for entry in _captured(fork.blocks, env).values()])
    return numbers and not any([block.activity(env, []).updates for block in blocks])


def _reached(procedure: Procedure) -> list[terms.Block]:
    """The blocks of a procedure and of those that it calls."""
    return [procedure.block, *[each.block for each in procedures_of(procedure.block)]]


def _is_checked(block: terms.Block) -> bool:
    """Whether a block has statements of its own: requirements, or values that are shown."""
    return any(not (x.row.pure or x.row.calls) or any(map(_is_checked, x.blocks)) for x in block.bindings)


def _acting(block: terms.Block) -> Iterator[Foreign]:
    """The operations with effects in a block."""
    for operation in block.bindings:
        if operation.op == "foreign" and operation.static[0].effects:
            yield operation.static[0]
        for inner in operation.blocks:
            yield from _acting(inner)


def _type(entry: Entry) -> Type:
    assert entry.value is not None
    return entry.value.type


def _captured(blocks: Sequence[terms.Block], env: Env[Entry]) -> dict[int, Entry]:
    """What moves of all that these blocks capture, by its place in the environment."""
    free = {variable.index for block in blocks for variable in block.free}
    return {index: env.get(index) for index in sorted(free) if env.get(index).cell is not None}


def _outside(block: terms.Block, env: Env[Entry], own: dict[int, Entry]) -> Env[Entry]:
    """The environment of a block, in which these entries stand for those at their places."""
    found = [Entry(None)] * (1 + max([variable.index for variable in block.free], default=-1))
    for variable in block.free:
        found[-1 - variable.index] = own.get(variable.index) or env.get(variable.index)
    return Env[Entry]().enter(found)


def _moving(types: Sequence[Type], moves: Sequence[bool]) -> list[Type]:
    return [type for type, own in zip(types, moves, strict=True) if own]


def _add(cells: Sequence[Cell | None], cotangents: Sequence[Value]) -> None:
    for cell, cotangent in zip(cells, cotangents, strict=True):
        if cell is not None:
            cell.add(cotangent)
