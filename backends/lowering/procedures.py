"""Procedures and cells: what recurs in a program, which the loop IR only knows to be invoked (``ir.Invoke``).

A procedure is a function of the loop IR of its own. Scalars that it takes and gives travel in registers, of an array
the address, and where its type does not say them its extents; the caller makes room for the arrays that it gives. What
a procedure does last, in any of its branches, it does in the place of what it gives: a call there is a jump. ::

    go(x, n) = cond(n == 0, x, go(x / 2, n - 1))

    take x: f64, n: i64
    if n == 0
      give x
    else
      go on with 0 on x / 2.0, n - 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import or_

from ...core import terms
from ...core.dims import Dim
from ...core.environment import Env
from ...core.language import Unsupported
from ...core.procedures import Procedure, shared_out
from ...core.types import Opened, Type, dims, element, rank
from .. import ir
from .calls import Calls
from .constructing import Last, are_results, last
from .context import ArrayRef, Destinations, Environment, Operand, zero

# A branch of a choice, from what it is given to its statements
Branch = Callable[[Sequence[Operand]], None]

# The addresses of words that a procedure writes what it gives to, if it does so
Words = Sequence[ir.Variable] | None


class Procedures(Calls):
    """The lowering of calls of procedures, of cells, and of a procedure itself."""

    def procedure(self, procedure: Procedure, block: terms.Block, sizes: Sequence[str]) -> ir.Function:
        """A procedure whose block is scheduled, in a program with these sizes."""
        self.inside = self.around = 1
        operands: list[Operand] = []
        scalars: list[ir.Variable] = []
        extents: list[ir.Variable] = []
        entered: list[ir.Buffer] = []
        for type, name in zip(block.binders, block.names, strict=True):
            if not rank(type):
                scalars.append(self.variable(name or "x", element(type)))
                operands.append(scalars[-1])
                continue
            for dim in _open(type):
                if dim not in self.run_sizes:
                    extents.append(self.variable("extent"))
                    self.run_sizes[dim] = extents[-1]
            entered.append(self.buffer(name or "array", type))
            operands.append(self.array(entered[-1]))
        places = [self.array(self.buffer("result", type)) if rank(type) else None for type in block.types]
        entered += [place.buffer for place in places if place is not None]
        self.lasting = {buffer.name for buffer in entered}
        message = f"calls of {procedure.name} are too deep for the stack: this recursion has no end, or needs more room"
        self.shared.failures.append(terms.Failure("recursion", message, procedure.origin, RecursionError))
        taken = self.variable("taken")
        words = [self.variable("word") for _ in block.types] if procedure in self.shared.writing else None
        bound = (*scalars, *extents, *(words or ()))
        zeros = () if words is not None else tuple([_zero(type) for type in block.types if not rank(type)])
        site = len(self.shared.failures) - 1
        self.emit(ir.Invoke(taken.name, site, (), (), kind="take", values=zeros, binds=bound, enters=tuple(entered)))
        self.tail(block, Env(), operands, places, words)
        body = tuple(self.out)
        mentioned = ir.mentioned(body)[1]
        hidden = tuple([buffer for buffer in self.shared.constants.values() if buffer.name in mentioned])
        return ir.Function(procedure.name, tuple(sizes), hidden, (), body)

    def tail(
        self,
        block: terms.Block,
        env: Environment,
        arguments: Sequence[Operand],
        places: Destinations,
        words: Words = None,
    ) -> None:
        """A block whose results are those of the procedure."""
        own = last(block, self.shared.writing) if words is not None else None
        if own is not None:
            self.construct(block, own, env, arguments, words or ())
            return
        operation = block.bindings[-1] if block.bindings else None
        if operation is None or not (operation.row.calls or operation.row.chooses) or not are_results(operation, block):
            results = self.block(block, env, arguments, places)
            self.give([value for value in results if not isinstance(value, ArrayRef)], words)
            return
        before = terms.Block(block.binders, block.bindings[:-1], (), block.names)
        self.leave(operation, self.bindings(before, env.enter(arguments), ()), places, words)

    def construct(
        self,
        block: terms.Block,
        own: Last,
        env: Environment,
        arguments: Sequence[Operand],
        words: Sequence[ir.Variable],
    ) -> None:
        """A block of which an operation can be the last: what is behind it is first, with holes for what it gives."""
        operation = block.bindings[own.position]
        before = terms.Block(block.binders, block.bindings[: own.position], (), block.names)
        env = self.bindings(before, env.enter(arguments), ())
        behind, level = env.extend([_zero(type) for type in operation.types]), own.first + own.count
        holes: dict[int | None, ir.Variable] = {}
        for each in block.bindings[own.position + 1 :]:
            made = self.operation(each, behind, [None] * len(each.types))
            for field, atom in enumerate(each.args):
                number = own.result(level, atom)
                if number is not None:
                    holes[number] = self.variable("place")
                    name, cell = holes[number].name, self._scalar_of(made[0])
                    self.emit(ir.Invoke(name, 0, (), (), kind="place", values=(cell,), places=(field,)))
            behind, level = behind.extend(made), level + len(each.types)
        for word, atom in zip(words, block.results, strict=True):
            number = own.result(level, atom)
            if number is None:
                self.put(word, self.scalar(behind, atom))
            else:
                holes[number] = word
        self.leave(operation, env, [None] * own.count, [holes[number] for number in range(own.count)])

    def leave(self, last: terms.Operation, env: Environment, places: Destinations, words: Words) -> None:
        """A call or a choice whose results are those of the procedure."""
        branches = [partial(self.tail, block, env, places=places, words=words) for block in last.blocks]
        match last.op:
            case "call" if len(last.static) == 1 and (words is not None) == (last.static[0] in self.shared.writing):
                self.jump(last, env, places, words)
            case "call":
                results = self.call(last, env, places)
                self.give([value for value in results if not isinstance(value, ArrayRef)], words)
            case "cond":
                test = self.scalar(env, last.args[0])
                arms: list[list[ir.Statement]] = []
                for branch in branches:
                    with self.captured() as arm:
                        branch(())
                    arms.append(arm)
                self.emit(ir.If(test, tuple(arms[0]), tuple(arms[1])))
            case "open":
                self.by_tag(self.scalar(env, last.args[0]), last.static, branches)

    def give(self, values: Sequence[ir.Expression], words: Words = None) -> None:
        """The end of a procedure."""
        for word, value in zip(words or (), values, strict=words is not None):
            self.put(word, value)
        present = () if words is not None else tuple(map(self._now, values))
        self.emit(ir.Invoke(self.fresh("given"), 0, (), (), kind="give", values=present))

    def put(self, word: ir.Variable, value: ir.Expression) -> None:
        """Write what a procedure gives."""
        self.emit(ir.Invoke(self.fresh("given"), 0, (), (), kind="put", values=(word, self._now(value))))

    def _now(self, value: ir.Expression) -> ir.Expression:
        return self.present.get(value.name, value) if isinstance(value, ir.Variable) else value

    def jump(self, op: terms.Operation, env: Environment, places: Destinations, words: Words) -> None:
        """A call that is the last thing that a procedure does, which leaves its memory behind."""
        values, reads = self.handed(op.static[0], op.args, env)
        writes = tuple([place.buffer for place in places if place is not None])
        if all([buffer.name in self.lasting for buffer in reads]):
            number = self.shared.numbers[op.static[0]]
            values = (*values, *(words or ()))
            self.emit(ir.Invoke(self.fresh("called"), number, reads, writes, kind="jump", values=values))
            return
        results = self.call(op, env, places)
        self.give([value for value in results if not isinstance(value, ArrayRef)], words)

    # Calls

    def call(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        """The results of a procedure, or of several, for which there is room before any of them runs."""
        if self.target.group:
            raise Unsupported(
                f"{op.static[0].name} calls itself, and a device has no stack for that (written at {op.origin}): "
                "write the recursion as az.fori_loop or az.while_loop, or compile it for the CPU"
            )
        calls: list[ir.Invoke] = []
        results: list[Operand] = []
        places = iter(destinations)
        for procedure, args in zip(op.static, shared_out(op.static, op.args), strict=True):
            values, reads = self.handed(procedure, args, env)
            types = op.types[len(results) :][: len(procedure.results)]
            own = [(type, next(places)) for type in types]
            writes = tuple([self._made(*each) for each in own if rank(each[0])])
            binds = tuple([self.variable("t", element(type)) for type in types if not rank(type)])
            number, name = self.shared.numbers[procedure], self.fresh("called")
            calls.append(ir.Invoke(name, number, reads, writes, kind="procedure", values=values, binds=binds))
            scalars, arrays = iter(binds), iter(writes)
            results += [self.array(next(arrays)) if rank(type) else next(scalars) for type in types]
        self.emit(calls[0] if len(calls) == 1 else ir.Fork(tuple(calls)))
        return results

    def handed(
        self, procedure: Procedure, args: Sequence[terms.Atom], env: Environment
    ) -> tuple[tuple[ir.Expression, ...], tuple[ir.Buffer, ...]]:
        """The scalars and the arrays that a procedure takes."""
        scalars: list[ir.Expression] = []
        extents: dict[Dim, ir.Expression] = {}
        reads: list[ir.Buffer] = []
        for type, atom in zip(procedure.block.binders, args, strict=True):
            if not rank(type):
                scalars.append(self.scalar(env, atom))
                continue
            value = self.atom(env, atom)
            assert isinstance(value, ArrayRef)
            for axis, dim in enumerate(dims(type)):
                if not dim.is_static():
                    extents.setdefault(dim, value.extent(axis))
            reads.append(self._given(value))
        return (*scalars, *extents.values()), tuple(reads)

    # Cells

    def cell(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        self._refuse_on_device(op)
        made = self.variable("cell")
        values, reads = list[ir.Expression](), list[ir.Buffer]()
        places: tuple[list[int], list[int]] = [], []
        for place, atom in enumerate(op.args):
            value = self.atom(env, atom)
            if isinstance(value, ArrayRef):
                reads.append(self._given(value))
            else:
                values.append(self.scalar(env, atom))
            places[isinstance(value, ArrayRef)].append(place)
        words = (*places[0], *places[1])
        self.emit(ir.Invoke(made.name, op.static[0], tuple(reads), (), kind="cell", values=tuple(values), places=words))
        return [made]

    def open(self, op: terms.Operation, env: Environment, destinations: Destinations) -> list[Operand]:
        self._refuse_on_device(op)
        places = [
            (destination or self.allocate("chosen", type)) if rank(type) else None
            for type, destination in zip(op.types, destinations, strict=True)
        ]
        chosen = [None if rank(type) else self.declare("chosen", _zero(type)) for type in op.types]

        def branch(block: terms.Block) -> Branch:
            def run(fields: Sequence[Operand]) -> None:
                results = self.block(block, env, fields, places)
                for variable, value in zip(chosen, results, strict=True):
                    if variable is not None:
                        self.assign(variable, self._scalar_of(value))

            return run

        self.by_tag(self.scalar(env, op.args[0]), op.static, [branch(block) for block in op.blocks])
        return [place or self._settled(variable) for place, variable in zip(places, chosen, strict=True)]

    def by_tag(self, cell: ir.Expression, variants: Sequence[Opened], branches: Sequence[Branch]) -> None:
        """The branch for the variant of a cell, on its fields. The one that most tags lead to needs no test."""
        if len(branches) == 1:
            branches[0](self.fields(cell, variants[0]))
            return
        tag = self.variable("tag")
        self.emit(ir.Invoke(tag.name, 0, (), (), kind="tag", values=(cell,)))
        arms: list[tuple[tuple[int, ...], ir.Block]] = []
        for variant, branch in zip(variants, branches, strict=True):
            with self.captured() as arm:
                branch(self.fields(cell, variant))
            arms.append((variant[0], tuple(arm)))
        _, chosen = arms.pop(max(range(len(arms)), key=lambda k: (len(arms[k][0]), k)))
        for tags, body in reversed(arms):
            test = reduce(or_, [ir.equal(tag, each) for each in tags])
            chosen = (ir.If(test, body, chosen),)
        self.emit(*chosen)

    def fields(self, cell: ir.Expression, variant: Opened) -> list[Operand]:
        """The fields of a cell of a variant."""
        types = variant[1]
        if not types:
            return [cell] if types is None else []
        found = [self.buffer("field", t) if rank(t) else self.variable("field", element(t)) for t in types]
        scalars = [(k, each) for k, each in enumerate(found) if isinstance(each, ir.Variable)]
        arrays = [(k, each) for k, each in enumerate(found) if isinstance(each, ir.Buffer)]
        places = tuple([k for k, _ in (*scalars, *arrays)])
        binds, enters = tuple([each for _, each in scalars]), tuple([each for _, each in arrays])
        self.lasting |= {buffer.name for buffer in enters}
        name = self.fresh("opened")
        self.emit(ir.Invoke(name, 0, (), (), kind="fields", values=(cell,), binds=binds, enters=enters, places=places))
        return [self.array(each) if isinstance(each, ir.Buffer) else each for each in found]

    def _scalar_of(self, value: Operand) -> ir.Expression:
        assert not isinstance(value, ArrayRef)
        return value

    def _settled(self, variable: ir.Variable | None) -> ir.Expression:
        assert variable is not None
        return variable

    def _refuse_on_device(self, op: terms.Operation) -> None:
        if self.target.group:
            raise Unsupported(
                f"recursive data are cells of memory, and on a device there are none (written at {op.origin}): "
                "keep them in arrays, or compile for the CPU"
            )


def _open(type: Type) -> list[Dim]:
    """The sizes in a type that only the run knows."""
    return [dim for dim in dims(type) if not dim.is_static()]


def _zero(type: Type) -> ir.Constant:
    return ir.Constant(zero(element(type)), element(type))
