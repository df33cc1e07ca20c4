"""Reductions: a variable that a loop combines elements into, or, outside of all loops, chunks side by side."""

from __future__ import annotations

from ...core import terms
from ...core.dims import Dim, Opaque
from ...core.primitive import Primitive
from ...core.types import i64, rank
from ..loops import (
    Allocate,
    Apply,
    Assign,
    Buffer,
    Constant,
    Declare,
    Expression,
    For,
    Let,
    Load,
    MultiplyAdd,
    Reduction,
    Store,
    Variable,
)
from . import nests
from .arrays import Arrays
from .context import ArrayRef, Environment, Operand, Unsupported
from .survey import survey


class Reductions(Arrays):
    """The lowering of reduce."""

    def reduce(self, op: terms.Operation, env: Environment) -> list[Operand]:
        if any(rank(type) for type in op.types):
            raise Unsupported(f"a reduce over arrays is not compiled yet (written at {op.origin}); evaluate runs it")
        named = _operator(op.blocks[1])
        neutrals = [self.scalar(env, a) for a in op.args[1:]]
        if self.inside == 0 and named is not None and isinstance(neutrals[0], Constant):
            return [self.whole_reduction(op, env, named, neutrals[0])]
        names = [self.fresh("sum" if named and named.name == "add" else "total") for _ in neutrals]
        self.out.extend([Declare(name, neutral) for name, neutral in zip(names, neutrals, strict=True)])
        self.reducing_loop(op, env, names, named)
        return [self.let("t", Variable(name, n.type)) for name, n in zip(names, neutrals, strict=True)]

    def reducing_loop(
        self, op: terms.Operation, env: Environment, names: list[str], named: Primitive | None
    ) -> Variable:
        """The loop that combines the elements into variables."""
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as statements:
            self.inside += 1
            self.combine(op, env, variable, names, named)
            self.inside -= 1
        extent = self.scalar(env, op.args[0])
        self.out.append(For(variable.name, extent, "sequential", tuple(statements)))
        neutral = op.args[1]
        if named is not None and isinstance(neutral, terms.Literal):
            constant = Constant(neutral.value, neutral.type)
            self.reductions[variable.name] = Reduction(names[0], named, constant)
        return variable

    def extent_dim(self, op: terms.Operation, env: Environment) -> Dim:
        return self.dim(self.scalar(env, op.args[0])) or Dim.atom(Opaque(-1_000_000 - self.counter))

    def combine(
        self, op: terms.Operation, env: Environment, variable: Expression, names: list[str], named: Primitive | None
    ) -> None:
        """One element, combined into the variables."""
        body = op.blocks[0]
        inner = _merged(body, op) if named is not None else None
        if inner is not None:
            within = env.enter([variable])
            for binding in body.bindings[:-1]:
                within = within.extend(self.operation(binding, within, [None] * len(binding.types)))
            self.reducing_loop(inner, within, names, named)
            return
        elements = self.block(body, env, [variable], [None] * len(names))
        scalars = [value for value in elements if not isinstance(value, ArrayRef)]
        if named is not None:
            self.out.append(Assign(names[0], self.combined(named, names[0], scalars[0])))
            return
        current = [self.frozen(Variable(name, s.type)) for name, s in zip(names, scalars, strict=True)]
        results = self.block(op.blocks[1], env, [*current, *scalars], [None] * len(names))
        for name, result in zip(names, results, strict=True):
            assert not isinstance(result, ArrayRef)
            self.out.append(Assign(name, result))

    def combined(self, named: Primitive, name: str, value: Expression) -> Expression:
        """The variable and an element under the operator; a product that is added is added in one rounding."""
        total = Variable(name, value.type)
        if named.name == "add" and value.type.kind == "float" and self.target.multiply_add:
            product, negated = self.values.get(getattr(value, "name", ""), value), False
            if isinstance(product, Apply) and product.primitive.name == "negative":
                product, negated = self.definition(product.arguments[0]), True
            if isinstance(product, Apply) and product.primitive.name == "multiply":
                a, b = product.arguments
                return MultiplyAdd(self.apply("negative", a) if negated else a, b, total, value.type)
        return Apply(named, (total, value), value.type)

    def definition(self, value: Expression) -> Expression:
        return self.values.get(value.name, value) if isinstance(value, Variable) else value

    def whole_reduction(self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant) -> Expression:
        """A reduction outside of all loops: partial results side by side, combined in order."""
        nested = any(binding.blocks and binding.op != "cond" for binding in op.blocks[0].bindings)
        partials = self.element_partials if nested else self.chunk_partials
        partial = partials(op, env, named, neutral)
        total, index = self.fresh("total"), self.fresh("part")
        self.out.append(Declare(total, neutral))
        value = Load(partial, (Variable(index, i64),))
        merged = Assign(total, Apply(named, (Variable(total, neutral.type), value), neutral.type))
        self.out.append(For(index, partial.extents[0], "sequential", (merged,)))
        return self.let("t", Variable(total, neutral.type))

    def element_partials(self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant) -> Buffer:
        """One partial result an element, where elements are reductions themselves: a nest."""
        extent = self.scalar(env, op.args[0])
        partial = Buffer(self.fresh("partial"), neutral.type, (extent,))
        self.out.append(Allocate(partial))
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        part = self.fresh("part")
        with self.captured() as body:
            self.inside += 1
            self.out.append(Declare(part, neutral))
            self.combine(op, env, variable, [part], named)
            self.out.append(Store(partial, (variable,), Variable(part, neutral.type)))
            self.inside -= 1
        self.nest([nests.Loop(variable, extent)], tuple(body), set())
        return partial

    def chunk_partials(self, op: terms.Operation, env: Environment, named: Primitive, neutral: Constant) -> Buffer:
        """One partial result a chunk of elements, which are lanes where that is possible."""
        chunk, part, lane = self.fresh("chunk"), self.fresh("part"), self.fresh("lane")
        start, length, count = nests.chunks(self.scalar(env, op.args[0]), chunk)
        partial = Buffer(self.fresh("partial"), neutral.type, (count,))
        self.out.append(Allocate(partial))
        variable = self.loop_variable(op.blocks[0].names[0], self.extent_dim(op, env))
        with self.captured() as elements:
            self.inside += 1
            self.out.append(Let(variable.name, self.apply("add", start, Variable(lane, i64))))
            self.combine(op, env, variable, [part], named)
            self.inside -= 1
        found = survey(tuple(elements))
        if found.simple and not found.inner:
            reduction = (Reduction(part, named, neutral),)
            strip = 4 * self.target.lanes(neutral.type)
            loop = For(lane, length, "lanes", tuple(elements), strip, reductions=reduction)
        else:
            loop = For(lane, length, "sequential", tuple(elements))
        store = Store(partial, (Variable(chunk, i64),), Variable(part, neutral.type))
        body = (Declare(part, neutral), loop, store)
        if self.target.parallel:
            grain = Constant(max(1, int(nests.GRAIN / max(1.0, found.work * nests.CHUNK))), i64)
            self.out.append(For(chunk, count, "parallel", body, grain=grain))
        else:
            self.out.append(For(chunk, count, "sequential", body))
        return partial


def _operator(block: terms.Block) -> Primitive | None:
    """The primitive that an operator's block applies to its two elements."""
    if len(block.bindings) == 1 and block.bindings[0].op == "primitive" and len(block.binders) == 2:
        row: Primitive = block.bindings[0].static[0]
        args = [arg.index for arg in block.bindings[0].args if isinstance(arg, terms.Variable)]
        symmetric = row.commutative or row.name in ("minimum", "maximum")
        if sorted(args) == [0, 1] and symmetric and block.results == (terms.Variable(0, block.binders[0]),):
            return row
    return None


def _merged(body: terms.Block, outer: terms.Operation) -> terms.Operation | None:
    """The inner reduction that is all of an element, when both combine in the same way."""
    if not body.bindings or body.bindings[-1].op != "reduce" or len(body.results) != 1:
        return None
    inner = body.bindings[-1]
    same = inner.blocks[1] == outer.blocks[1] and inner.args[1:] == outer.args[1:] and len(inner.types) == 1
    plain = all(binding.op in ("primitive", "index", "size") for binding in body.bindings[:-1])
    is_result = body.results[0] == terms.Variable(0, inner.types[0])
    return inner if same and plain and is_result and isinstance(inner.args[1], terms.Literal) else None
