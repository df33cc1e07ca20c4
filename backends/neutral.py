"""Neutral elements are verified: once for each reduction, scan and histogram that was written, before anything else.

Compiled code combines the neutral element in as often as there are pieces, so what is not neutral would be wrong by an
amount that depends on sizes and threads. Of an operator that is a primitive the neutral element is known. Otherwise the
operator is applied once to it and the first element, and once more the other way round if it is not known to commute:

    reduce i < n: x[i] combining a with b, from e: f      =>      if 0 < n: require f(e, x[0]) = x[0] = f(x[0], e)

In an array whose elements are reductions, the first one is verified, beside its loop; inside of loops with a state none
is, and neither are those that derivatives make. Results may differ by rounding, as ``evaluate`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core.builder import Builder, build
from ..core.combinators.operands import extreme
from ..core.environment import Env
from ..core.graph import Value
from ..core.placement import to_block
from ..core.primitive import Primitive
from ..core.terms import Block, Failure, Literal, Operation, Variable
from ..core.types import Scalar, i64
from ..interpreters import embed
from ..interpreters.simplify import fresh_binders

# Where the neutral elements are among the arguments, behind the extent.
_NEUTRALS = {"reduce": 1, "scan": 1, "histogram": 2}

# Where the extent is of what has a first iteration.
_EXTENTS = {"generate": 0, "reduce": 0, "scan": 0, "histogram": 1}

# An operator may round, by so many units of the last place.
_ROUNDING = 16


def verified(block: Block) -> Block:
    """The closed block with requirements that neutral elements are neutral.

    ValueError for sums and products whose neutral element is a number other than 0 and 1.
    """
    maps = not _updates(block)  # iterations that write to what is outside are not run again
    if not _is_open(block, maps):
        return block
    with build() as builder:
        binders = fresh_binders(builder, block)
        results = block.interpret(_Verify(builder, maps))(Env(), binders)
        made, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
        assert not captured
        return made


def _updates(block: Block) -> bool:
    return any(x.op == "add_to" or any(map(_updates, x.blocks)) for x in block.bindings)


def _is_open(block: Block, maps: bool, reached: bool = True) -> bool:
    """Whether a block holds neutral elements to be verified; ``reached`` says whether it has a first iteration."""
    found = False
    for x in block.bindings:
        combines = x.op in _NEUTRALS and not _is_neutral(x) and x.origin.combines
        found = found or (reached and combines)
        for k, inner in enumerate(x.blocks):
            inside = x.op == "cond" or (maps and k == 0 and x.op in _EXTENTS)
            found = _is_open(inner, maps, reached and inside) or found
    return found


def _is_neutral(x: Operation) -> bool:
    """Whether a number is known to be the neutral element of a primitive; ValueError where it is known not to be."""
    primitive, unit = _primitive(x.blocks[1]), x.args[_NEUTRALS[x.op]]
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


def _failure(x: Operation, problem: str) -> Failure:
    units = x.args[_NEUTRALS[x.op] :]
    numbers = ", ".join([str(unit.value) for unit in units if isinstance(unit, Literal)])
    shown = f"{numbers}: " if numbers else ""
    return Failure("neutral", f"{x.op}: the neutral element is not neutral: {shown}{problem}", x.origin)


class _Verify(embed.Embed):
    """The term again, with requirements beside its reductions."""

    def __init__(self, builder: Builder, maps: bool) -> None:
        super().__init__(builder)
        self.maps, self.reached = maps, True

    def meaning_of_operation(self, operation: Operation) -> embed.Operation:
        plain = super().meaning_of_operation(operation)
        if not operation.blocks or operation.op == "cond":
            return plain
        iterates = self.maps and operation.op in _EXTENTS and _is_open(operation.blocks[0], True)
        combines = operation.op in _NEUTRALS and operation.origin.combines and not _is_neutral(operation)
        args = [self.meaning_of_atom(atom) for atom in operation.args]
        blocks = [self.meaning_of_block(block) for block in operation.blocks]

        def run(env: embed.Entries) -> Sequence[Value]:
            reached, self.reached = self.reached, False
            results = plain(env)
            self.reached = reached
            if reached and (iterates or combines):
                self.reached = self.maps
                self._first(operation, env, args, blocks, combines)
                self.reached = True
            return results

        return run

    def _first(
        self,
        x: Operation,
        env: embed.Entries,
        args: Sequence[embed.Atom],
        blocks: Sequence[embed.Block],
        combines: bool,
    ) -> None:
        """What is required of the first iteration, if there is one."""
        builder = self.builder
        zero, extent = builder.literal(0, i64), args[_EXTENTS[x.op]](env)

        def first() -> Sequence[Value]:
            values = blocks[0](env, [zero])
            if not combines:
                return []
            units = [arg(env) for arg in args[_NEUTRALS[x.op] :]]
            if x.op != "histogram":
                self._require(x, units, values, lambda *ab: blocks[1](env, ab))
                return []
            place, *values = values
            inside = [builder.primitive("less_equal", zero, place), builder.primitive("less", place, args[0](env))]
            self._if(
                builder.primitive("logical_and", *inside),
                lambda: self._require(x, units, values, lambda *ab: blocks[1](env, ab)),
            )
            return []

        self._if(builder.primitive("less", zero, extent), first)

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
        primitive = _primitive(x.blocks[1])
        made = [operator(*units, *values)]
        if primitive is None or not primitive.commutative:
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
        eps = self.builder.literal(_ROUNDING * float(np.finfo(b.type.dtype).eps), b.type)
        near = apply("less_equal", apply("abs", apply("subtract", a, b)), apply("multiply", eps, apply("abs", b)))
        return apply("logical_or", apply("logical_or", same, nan), near)
