"""Neutral elements are verified: once for each reduction, scan and histogram that was written, before anything else.

Compiled code combines the neutral element in as often as there are pieces, so what is not neutral would be wrong by an
amount that depends on sizes and threads. Of an operator that is a primitive the neutral element is known. Otherwise the
operator is applied once to it and the first element (of a histogram: the first that falls into a bin), and once more
the other way round if it is not known to commute:

    reduce i < n: x[i] combining a with b, from e: f      =>      if 0 < n: require f(e, x[0]) = x[0] = f(x[0], e)

What a loop combines in its body is verified for its first iteration, which is run once more beside the loop (peeling):
with index 0, and with the initial state where there is one. It requires nothing else and adds to nothing outside, so
that simplifying leaves of it what the verified elements are made of. What derivatives make is not verified. Results may
differ by rounding, as ``evaluate`` has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ....core.builder import Builder
from ....core.combinators.operands import extreme
from ....core.graph import Value
from ....core.primitive import Primitive
from ....core.terms import Atom, Block, Failure, Literal, Operation, Variable
from ....core.types import Scalar, bool_, i64
from ....interpreters import embed
from ...lowering.commutativity import commutes
from ...target import NEUTRAL_ROUNDING


def verified(block: Block) -> Block:
    """The closed block with requirements that neutral elements are neutral.

    ValueError for sums and products whose neutral element is a number other than 0 and 1.
    """
    if not _is_open(block):
        return block
    return embed.rebuilt(block, _Verify)


def _is_open(block: Block, reached: bool = True) -> bool:
    """Whether a block holds neutral elements to be verified; ``reached`` says whether it has a first iteration."""
    found = False
    for x in block.bindings:
        found = (_combines(x) and reached) or found
        for k, inner in enumerate(x.blocks):
            inside = x.row.inline or x.row.role(k).iterated
            found = _is_open(inner, reached and inside) or found
    return found


def _combines(x: Operation) -> bool:
    """Whether an operation combines elements with a neutral element that is to be verified."""
    return x.row.combines and not _is_neutral(x) and x.origin.combines


def _is_neutral(x: Operation) -> bool:
    """Whether a number is known to be the neutral element of a primitive; ValueError where it is known not to be."""
    primitive, unit = _primitive(x.blocks[1]), _neutrals(x)[0]
    if primitive is None or not isinstance(unit, Literal):
        return False
    number, one = unit.type.dtype.type(unit.value), unit.type.dtype.type(1)
    match primitive.name:
        case "add" | "multiply" if (result := primitive(number, one)) != one:
            raise _failure(x, f"combined with {one} it gives {result}").error([])
        case "add" | "multiply":
            return bool(number == (primitive.name == "multiply"))
        case "logical_or" | "logical_and":
            return bool(number) == (primitive.name == "logical_and")
        case "minimum" | "maximum":
            return bool(number == extreme(unit.type, 1 if primitive.name == "minimum" else -1))
    return False


def _primitive(operator: Block) -> Primitive | None:
    """The primitive that an operator is."""
    match operator:
        case Block(bindings=(Operation(op="primitive", args=(Variable() as a, Variable() as b)) as x,)):
            if {a.index, b.index} == {0, 1} and operator.results == (Variable(0, x.types[0]),):
                primitive: Primitive = x.static[0]
                return primitive
    return None


def _neutrals(x: Operation) -> Sequence[Atom]:
    """The neutral elements, which stand behind the extents."""
    return x.args[len(x.args) - len(x.types) :]


def _failure(x: Operation, problem: str) -> Failure:
    units = _neutrals(x)
    numbers = ", ".join([str(unit.value) for unit in units if isinstance(unit, Literal)])
    shown = f"{numbers}: " if numbers else ""
    return Failure("neutral", f"{x.op}: the neutral element is not neutral: {shown}{problem}", x.origin)


class _Verify(embed.Embed):
    """The term again, with requirements beside its reductions.

    ``reached`` says whether code is emitted that runs, or the first iteration of it.
    """

    def __init__(self, builder: Builder) -> None:
        super().__init__(builder)
        self.reached = True
        self.cells: list[Value] = []  # the accumulators around, those of a first iteration's own last
        self.outer = 0  # how many of them are outside of the first iteration

    def meaning_of_operation(self, operation: Operation) -> embed.Operation:
        plain = super().meaning_of_operation(operation)
        if not operation.blocks or operation.row.inline or operation.row.expansion is not None:
            return plain
        combines = _combines(operation)
        if not combines and not any(
            [_is_open(b) for k, b in enumerate(operation.blocks) if operation.row.role(k).iterated]
        ):
            return plain
        args = [self.meaning_of_atom(atom) for atom in operation.args]
        blocks = [self.meaning_of_block(block) for block in operation.blocks]

        def run(env: embed.Entries) -> Sequence[Value]:
            if not self.reached:
                return plain(env)
            outside = self.checks, self.outer
            self.checks, self.outer = False, len(self.cells)
            self._first(operation, env, [arg(env) for arg in args], blocks, combines)
            self.checks, self.outer = outside
            self.builder.origin = operation.origin
            self.reached = False
            results = plain(env)
            self.reached = True
            return results

        return run

    def accumulate(self, initials: Sequence[embed.Atom], body: embed.Block) -> embed.Operation:
        def entered(env: embed.Entries, cells: Sequence[Value]) -> list[Value]:
            count = len(self.cells)
            self.cells += cells
            results = body(env, cells)
            del self.cells[count:]
            return results

        return super().accumulate(initials, entered)

    def add_to(self, accumulator: embed.Atom, value: embed.Atom, indices: Sequence[embed.Atom]) -> embed.Operation:
        plain = super().add_to(accumulator, value, indices)
        return lambda env: [] if accumulator(env) in self.cells[: self.outer] else plain(env)

    def _first(
        self,
        x: Operation,
        env: embed.Entries,
        args: Sequence[Value],
        blocks: Sequence[embed.Block],
        combines: bool,
    ) -> None:
        """What is required of the first iteration, if there is one."""
        builder, zero = self.builder, self.builder.literal(0, i64)
        if x.op == "while":
            self._if(blocks[0](env, args)[0], lambda: blocks[1](env, args))
            return
        assert x.row.extents is not None
        extents = args[x.row.extents(x.static)]
        state = args[1:] if x.op == "loop" else []

        def first() -> None:
            values = blocks[0](env, [*[zero] * len(extents), *state])
            if combines and x.row.places:
                self._first_in_bin(x, env, args, blocks)
            elif combines:
                self._require(x, args[len(args) - len(values) :], values, lambda *ab: blocks[1](env, ab))

        some = [builder.primitive("less", zero, extent) for extent in extents]
        self._if(functools.reduce(lambda a, b: builder.primitive("logical_and", a, b), some), first)

    def _first_in_bin(
        self, x: Operation, env: embed.Entries, args: Sequence[Value], blocks: Sequence[embed.Block]
    ) -> None:
        """What is required of the first element that falls into a bin."""
        apply, zero, (bins, extent, *units) = self.builder.primitive, self.builder.literal(0, i64), args

        def element(k: Value) -> list[Value]:
            reached, self.reached = self.reached, False
            values = blocks[0](env, [k])
            self.reached = reached
            return values

        def outside(k: Value) -> Sequence[Value]:
            place = element(k)[0]
            return [apply("logical_or", apply("less", place, zero), apply("less_equal", bins, place))]

        def searching(k: Value) -> Value:
            none = self.builder.literal(False, bool_)
            return self.builder.cond(apply("less", k, extent), lambda: outside(k), lambda: [none])[0]

        k, _ = self.builder.while_loop([zero], searching, lambda k: [apply("add", k, self.builder.literal(1, i64))])
        self._if(
            apply("less", k, extent), lambda: self._require(x, units, element(k)[1:], lambda *ab: blocks[1](env, ab))
        )

    def _if(self, test: Value, then: Callable[[], object]) -> None:
        if test.literal is True:
            then()
            return

        def statements() -> Sequence[Value]:
            then()
            return []

        self.builder.cond(test, statements, lambda: [])

    def _require(
        self, x: Operation, units: Sequence[Value], values: Sequence[Value], operator: Callable[..., Sequence[Value]]
    ) -> None:
        """Require that the neutral elements do not change these values."""
        builder = self.builder
        made = [operator(*units, *values)]
        if not commutes(x.blocks[1]):
            made.append(operator(*values, *units))
        failure = _failure(x, "combined with the first element it gives another one")
        builder.origin = x.origin
        for results in made:
            for result, value in zip(results, values, strict=True):

                def check(*i: Value, result: Value = result, value: Value = value) -> None:
                    builder.require(self._same(builder.index(result, i), builder.index(value, i)), failure, [])

                builder.each(builder.sizes(value), check)

    def _same(self, a: Value, b: Value) -> Value:
        """Whether two numbers are equal but for rounding; NaN equals NaN."""
        apply = self.builder.primitive
        same = apply("equal", a, b)
        if not isinstance(b.type, Scalar) or b.type.kind != "float":
            return same
        nan = apply("logical_and", apply("not_equal", a, a), apply("not_equal", b, b))
        eps = self.builder.literal(NEUTRAL_ROUNDING * float(np.finfo(b.type.dtype).eps), b.type)
        near = apply("less_equal", apply("abs", apply("subtract", a, b)), apply("multiply", eps, apply("abs", b)))
        return apply("logical_or", apply("logical_or", same, nan), near)
