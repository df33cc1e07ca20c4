"""Reassociation: sums over a stored product are made without it, where that is less work and memory.

What the forward sweep stored, the return sweep sums over. Where that is itself a sum of products, the sums may change
places, and what they share is made first. So a gradient needs no more than sums over points, and the stored product
has no reader left but the forward sweep, which need not keep it::

    y[i, k, r] = sum(j: q[k, r, j] * c[i, k, j])                 t[k, j, s] = sum(i: w[i, k] * c[i, k, j] * c[i, k, s])
    g[k, r, s] = sum(i: w[i, k] * y[i, k, r] * c[i, k, s])  =>   g[k, r, s] = sum(j: q[k, r, j] * t[k, j, s])

A sum of products is written as its loops and its factors; the factor that reads the stored product is replaced by the
loops and the factors of that; and then one loop after the other is *eliminated*: the factors that mention it become
one, an array of the sum of their product over that loop. The loop that leaves the fewest loops around goes first, as
when a tensor network is contracted (Bertele and Brioschi 1972, Nonserial Dynamic Programming). An array that stays the
same when two of its axes are exchanged is computed where one index is not below the other.

No sum gets more loops by that, one inside the other, than it had. Which way is less depends on sizes: multiplications
are counted, and what is stored counts as ``STORED_COST`` of them an element, but for what caches hold. The target says
how many a nest costs that is one more, and how many more one costs in a sum over several loops, which is no product of
matrices and has no tiles: on a device both are much. Where the sizes are not known, both ways are forms of the program
(``forms.py``), of which a call takes one.

Rounding errors have the same bounds in any order of the sums. Where a sum over nothing would meet an infinite factor
the order does matter; so the new way is taken for sums over something only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from ....core.builder import Builder, Replacement, Substitution, build
from ....core.dims import Dim
from ....core.environment import Env
from ....core.graph import Node, Value, sources
from ....core.placement import to_block
from ....core.terms import Block
from ....core.types import Scalar, dims, element
from ....interpreters.embed import Embed, fresh_binders
from ....interpreters.simplify.rules import component_operator, rewrite
from ....interpreters.simplify.value_numbering import operands
from ...decisions import Decisions, origin_text
from ...forms import Condition, Form
from ...target import CACHED_ELEMENTS, STORED_COST, Target


def reassociated(block: Block, target: Target, decisions: Decisions | None = None) -> tuple[Form, ...]:
    """The forms of a scheduled block: one whose sums are made in the order that is less, and the block itself."""
    before = decisions or Decisions()
    unchanged = Form(block, decisions=before)
    if not any(each.op == "generate" for each in block.bindings):
        return (unchanged,)
    if not all(dim.is_static() for type in block.types for dim in dims(type)):
        return (unchanged,)
    with build(rewrite) as builder:
        binders = fresh_binders(builder, block)
        results = block.interpret(Embed(builder))(Env(), binders)
        statements = builder.scopes[0].statements
        outside = frozenset([*[binder.number for binder in binders], *[each.number for each in statements]])
        plan = _Plan(builder, outside, results, statements, target, before.copy())
        unchanged = Form(block, decisions=before.declining(plan.decisions))
        condition = plan.condition()
        if not plan.replaced or condition.known() is False:
            return (unchanged,)
        mapping = {binder: binder for binder in binders}
        rewriting = Substitution(builder, mapping, None, statements, plan.replaced)
        rewriting.memo.update({statement.number: statement.results for statement in statements})
        made, _ = to_block(binders, rewriting.values(results), statements, block.names)
    if condition.known():
        return (Form(made, None, plan.decisions),)
    return Form(made, condition, plan.decisions, "; ".join(plan.told)), unchanged


@dataclass(frozen=True)
class _Sum:
    """A sum of products: the binders of its loops, and the factors."""

    loops: tuple[Value, ...]
    factors: tuple[Value, ...]


@dataclass
class _Product:
    """An array whose elements are sums of products, and who reads it."""

    array: Value
    loops: tuple[Value, ...]
    sum: _Sum
    readers: list[_Reader] = field(default_factory=list)
    others: int = 0  # operations at the top of the program that read it otherwise


@dataclass(frozen=True)
class _Reader:
    """A sum that has an element of a product as a factor, and what it is with the product's own factors instead."""

    node: Node
    old: _Sum
    new: _Sum
    loops: tuple[int, ...]  # the numbers of the loops around it and in it, outermost first


@dataclass(frozen=True)
class _Step:
    """A loop that is eliminated, and the numbers of all loops that its factors mention."""

    loop: Value
    around: frozenset[int]


@dataclass(frozen=True)
class _Top:
    """An operation that is in no loop, and all that is inside of it, each after what it uses."""

    node: Node
    inside: Sequence[Node]

    def loops(self) -> list[int]:
        """The numbers of the binders of its loops, outermost first."""
        nodes = [node for node in reversed(self.inside) if node.row.parallel]
        return [node.bodies[0].binders[0].number for node in nodes]

    def containing(self, array: Value) -> set[int]:
        """The numbers of the nodes that read an array, themselves or inside of them."""
        found: set[int] = set()
        for node in self.inside:
            if array in node.args or any(source.number in found for source in _sources(node)):
                found.add(node.number)
        return found


class _Plan:
    """The sums of a program that are replaced, what by, and where that is less."""

    def __init__(
        self,
        builder: Builder,
        outside: frozenset[int],
        results: Sequence[Value],
        statements: Sequence[Node],
        target: Target,
        decisions: Decisions,
    ) -> None:
        self.builder, self.outside, self.target = builder, outside, target
        self.replaced: dict[int, Replacement] = {}
        self.decisions = decisions
        self.told: list[str] = []
        self._less: list[Dim] = []  # below 0 where the new way is less
        self._filled: set[Dim] = set()  # lengths, which must not be 0
        self._loops: dict[int, tuple[Value, Value]] = {}  # binders and extents, by the numbers of the binders
        self._tops = self._all(results, statements)
        readers = self._readers()
        for product in self._products(results):
            for top in readers.get(product.array.number, []):
                self._find(product, top)
            self._decide(product)

    def condition(self) -> Condition:
        """Where the new way is less, and no sum is empty."""
        return Condition(tuple(self._less), tuple(sorted(self._filled, key=str)))

    # What there is

    def _all(self, results: Sequence[Value], statements: Sequence[Node]) -> list[_Top]:
        """The operations at the top."""
        found: dict[int, _Top] = {}
        waiting = [*[value.source for value in results if value.source is not None], *statements]
        while waiting:
            node = waiting.pop()
            if node.number not in found:
                inside, outer = self._inside(node)
                found[node.number] = _Top(node, inside)
                waiting.extend(outer)
        return [found[number] for number in sorted(found)]

    def _inside(self, top: Node) -> tuple[list[Node], list[Node]]:
        """What is inside of an operation at the top, with itself, and what that uses of the others."""
        found, outer, stack = {top.number: top}, list[Node](), [top]
        while stack:
            node = stack.pop()
            if node.row.parallel:
                [binder] = node.bodies[0].binders
                self._loops.setdefault(binder.number, (binder, node.args[0]))
            for source in _sources(node):
                if source.free <= self.outside:
                    outer.append(source)
                elif source.number not in found:
                    found[source.number] = source
                    stack.append(source)
        return [found[number] for number in sorted(found)], outer

    def _readers(self) -> dict[int, list[_Top]]:
        """The operations at the top that read elements of an array, by its number."""
        found: dict[int, list[_Top]] = {}
        for top in self._tops:
            for number in {node.args[0].number for node in top.inside if node.op == "index"}:
                found.setdefault(number, []).append(top)
        return found

    def _products(self, results: Sequence[Value]) -> Iterator[_Product]:
        """The arrays of sums of products that are read element by element."""
        whole = {value.number for value in results}
        for top in self._tops:
            for node in top.inside:
                whole.update([value.number for value in node.args[1 if node.op == "index" else 0 :]])
                whole.update([value.number for body in node.bodies for value in body.results])
        for array in [value for top in self._tops for value in top.node.results if value.number not in whole]:
            loops, value = _nest(array)
            if loops and value.source is not None and self._is_sum(value.source):
                sum = self._sum(value, {value.source.number})
                if sum is not None:
                    yield _Product(array, loops, sum)

    def _is_sum(self, node: Node) -> bool:
        """Whether a node adds up floating numbers."""
        return (
            node.op == "reduce"
            and len(node.results) == 1
            and getattr(node.results[0].type, "kind", "") == "float"
            and node.args[1].literal == 0
            and component_operator(node.bodies[1]) == "add"
            and not any(body.statements for body in node.bodies)
        )

    def _sum(self, value: Value, entered: Collection[int]) -> _Sum | None:
        """A value as a sum of products, of which only these sums are loops."""
        loops, factors, stack = list[Value](), list[Value](), [value]
        while stack:
            factor = stack.pop()
            node = factor.source
            name = node.static[0].name if node is not None and node.op == "primitive" else ""
            if node is None:
                factors.append(factor)
            elif name == "multiply":
                stack.extend(reversed(node.args))
            elif name == "negative":
                stack.extend([node.args[0], self._number(-1.0, factor)])
            elif name == "add" and node.args[0] is node.args[1]:
                stack.extend([node.args[0], self._number(2.0, factor)])
            elif node.number in entered and self._is_sum(node):
                [binder] = node.bodies[0].binders
                if binder in loops:
                    return None
                loops.append(binder)
                stack.append(node.bodies[0].results[0])
            else:
                factors.append(factor)
        return _Sum(tuple(loops), tuple(factors))

    def _number(self, value: float, like: Value) -> Value:
        return self.builder.literal(value, element(like.type))

    # Who reads a product

    def _find(self, product: _Product, top: _Top) -> None:
        """Note the sums over a product in an operation, and whether it reads it otherwise."""
        containing = top.containing(product.array)
        stack, seen, otherwise = [top.node], set[int](), False
        while stack:
            node = stack.pop()
            if node.number not in containing or node.number in seen:
                continue
            seen.add(node.number)
            reader = self._reader(product, node, top, containing) if self._is_sum(node) else None
            if reader is not None:
                product.readers.append(reader)
                continue
            otherwise = otherwise or product.array in node.args
            stack.extend(_sources(node))
        product.others += otherwise

    def _reader(self, product: _Product, node: Node, top: _Top, containing: Collection[int]) -> _Reader | None:
        """A sum as a reader of a product, if it is one that can do without."""
        old = self._sum(node.results[0], containing)
        if old is None:
            return None
        reads = [each for each in old.factors if each.source is not None and each.source.number in containing]
        if len(reads) != 1 or reads[0].source is None or reads[0].source.args[0] is not product.array:
            return None
        indices = reads[0].source.args[1:]
        mapping = dict(zip(product.loops, indices, strict=True))
        if not all(self._over(index, loop) for loop, index in mapping.items()):
            return None
        rest = [each for each in old.factors if each is not reads[0]]
        factors = self.builder.substitute(product.sum.factors, mapping)
        new = _Sum((*old.loops, *product.sum.loops), (*rest, *factors))
        mentioned, loops = _free((*old.factors, *new.factors)) - self.outside, {loop.number for loop in new.loops}
        if not all(map(self._is_plain, mentioned)) or not loops <= mentioned or len(loops) < len(new.loops):
            return None
        steps = list(self._steps(new))
        deepest = max([len(step.around) for step in self._steps(old)])
        if steps[0].loop not in old.loops or any(len(step.around) > deepest for step in steps):
            return None
        return _Reader(node, old, new, (*top.loops(), *[loop.number for loop in product.sum.loops]))

    def _is_plain(self, number: int) -> bool:
        """Whether a binder is that of a loop whose length sizes decide."""
        return number in self._loops and self._length(number).is_static()

    def _over(self, index: Value, loop: Value) -> bool:
        """Whether an index is the variable of a loop as long as another one."""
        return index.number in self._loops and self._length(index.number) == self._length(loop.number)

    def _length(self, number: int) -> Dim:
        dim = self._loops[number][1].dim
        assert dim is not None
        return dim

    # Which order is less

    def _steps(self, sum: _Sum) -> Iterator[_Step]:
        """The loops in the order in which they are eliminated."""
        loops, factors = list(sum.loops), [each.free - self.outside for each in sum.factors]

        def around(loop: Value) -> frozenset[int]:
            return frozenset([loop.number]).union(*[each for each in factors if loop.number in each])

        while loops:
            loop = min(loops, key=lambda each: len(around(each)))
            step = _Step(loop, around(loop))
            yield step
            loops.remove(loop)
            factors = [*[each for each in factors if loop.number not in each], step.around - {loop.number}]

    def _work(self, sum: _Sum) -> Dim:
        """The multiplications of a sum, with those for which its arrays stand."""
        *before, last = self._steps(sum)
        stored = [self._size(step.around - {step.loop.number}) * STORED_COST for step in before]
        return reduce(Dim.__add__, [*[self._size(step.around) for step in (*before, last)], *stored])

    def _size(self, loops: Collection[int]) -> Dim:
        return reduce(Dim.__mul__, [self._length(number) for number in loops], Dim.of(1))

    def _decide(self, product: _Product) -> None:
        """Replace the sums over a product, if nothing but one operation reads it then, and it may be less work."""
        if not product.readers or product.others > 1:
            return
        less = (self._size([loop.number for loop in product.loops]) - CACHED_ELEMENTS) * -STORED_COST
        if not product.others:
            less -= self._size([loop.number for loop in (*product.loops, *product.sum.loops)]) + self.target.start_work
        for reader in product.readers:
            less += self._work(reader.new) - self._work(reader.old)
            less += self.target.start_work * (len(reader.new.loops) - 1)
            if len(reader.old.loops) > 1:
                less -= self._size(_free(reader.old.factors) - self.outside) * self.target.untiled_work
        source = product.array.source
        assert source is not None
        what = origin_text(source.origin, [product.array.type])
        told = f"summed before it is multiplied: {what}"
        if not self.decisions.take("reassociate", what, told, wanted=not less.is_nonnegative()):
            return
        self.told.append(told)
        if not self.decisions.is_forced("reassociate", what):
            self._less.append(less)
        for reader in product.readers:
            value = self._made(reader)
            self.replaced[reader.node.number] = partial(_image, value)
            self._filled.update([self._length(loop.number) for loop in reader.new.loops])

    # The new sums

    def _made(self, reader: _Reader) -> Value:
        """The new form of a sum, as a value on the binders of the loops around it."""
        factors, type = list(reader.new.factors), reader.node.results[0].type
        assert isinstance(type, Scalar)
        steps = list(self._steps(reader.new))
        for step in steps:
            group = [each for each in factors if step.loop.number in each.free] or [self.builder.literal(1, type)]
            rest = [each for each in factors if step.loop.number not in each.free]
            last = step is steps[-1]
            factors = [*rest, self._summed(step, group) if last else self._stored(step, group, reader.loops)]
        return _product(self.builder, sorted(factors, key=lambda each: each.literal is None))

    def _summed(self, step: _Step, group: Sequence[Value]) -> Value:
        """The sum over a loop of the product of factors."""
        product, extent = self._in_two(step, group), self._loops[step.loop.number][1]
        return self.builder.sum(extent, lambda at: self._at(product, [step.loop], [at]), element(product.type))

    def _at(self, value: Value, loops: Sequence[Value], indices: Sequence[Value]) -> Value:
        """A value for other variables of its loops; what is made of these shares no binder with what is there."""
        return self.builder.substitute([value], dict(zip(loops, indices, strict=True)))[0]

    def _in_two(self, step: _Step, group: Sequence[Value]) -> Value:
        """The product of factors, as that of two, one of which varies with a loop that the other does not vary with."""
        b = self.builder
        for number in sorted(step.around - {step.loop.number}, reverse=True):
            along = [each for each in group if number in each.free]
            others = [each for each in group if number not in each.free]
            if along and not _free(others) <= _free(along):
                return b.primitive("multiply", _product(b, others), _product(b, along))
        return _product(b, group)

    def _stored(self, step: _Step, group: Sequence[Value], order: Sequence[int]) -> Value:
        """An element of an array of such sums, for the loops around, whose axes are in this order."""
        b, value = self.builder, self._summed(step, group)
        numbers = sorted(step.around - {step.loop.number}, key=order.index)
        loops = [self._loops[number][0] for number in numbers]
        pair = self._symmetric(loops, group)
        extents = [self._loops[loop.number][1] for loop in loops]
        array = b.array(extents, lambda *at: self._at(value, loops, at))
        if pair is None:
            return b.index(array, loops)
        first, second = pair
        turned = [second if loop is first else first if loop is second else loop for loop in loops]
        below = b.primitive("greater_equal", first, second)
        return b.cond(below, lambda: [b.index(array, loops)], lambda: [b.index(array, turned)])[0]

    def _symmetric(self, loops: Sequence[Value], group: Sequence[Value]) -> tuple[Value, Value] | None:
        """Two loops of the same length that may be exchanged in the product of factors."""
        numbers = sorted([each.number for each in group])
        for k, first in enumerate(loops):
            for second in loops[k + 1 :]:
                if self._length(first.number) == self._length(second.number):
                    exchanged = self.builder.substitute(group, {first: second, second: first})
                    if sorted([each.number for each in exchanged]) == numbers:
                        return first, second
        return None


def _sources(node: Node) -> Iterator[Node]:
    """The nodes that a node uses, and those in its bodies."""
    yield from sources(operands(node))
    for body in node.bodies:
        yield from body.statements


def _nest(value: Value) -> tuple[tuple[Value, ...], Value]:
    """The binders of perfectly nested generates, and their element.

    What has effects stays where it is, and so do the elements of arrays that are made with it.
    """
    loops = list[Value]()
    while (source := value.source) is not None and source.op == "generate":
        [body] = source.bodies
        if body.statements:
            break
        loops.append(body.binders[0])
        value = body.results[value.position]
    return tuple(loops), value


def _image(value: Value, rewriting: Substitution) -> tuple[Value, ...]:
    """What stands for a node that a value replaces."""
    return tuple(rewriting.values([value]))


def _free(values: Sequence[Value]) -> frozenset[int]:
    return frozenset().union(*[value.free for value in values])


def _product(b: Builder, factors: Sequence[Value]) -> Value:
    return reduce(lambda x, y: b.primitive("multiply", x, y), factors)
