"""Local rewriting: what an operation becomes when it is about to be emitted.

Operations on scalars are folded and simplified (``algebra.py``). Reading an array that is cheap to compute computes it
(``index(generate f, i) = f(i)``): this alone makes rows, slices, broadcasts and elementwise chains free.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...core.builder import Builder
from ...core.dims import Dim, DimAtom, Opaque
from ...core.graph import NONE, Body, Node, Value, numbers
from ...core.indexing import extents_of
from ...core.primitive import Primitive
from ...core.ranges import never_negative
from ...core.types import declarations, dims, i64
from .accumulators import rewrite_accumulate
from .algebra import is_zero, operands_of, primitive
from .costs import CHEAP, cost_within, nodes_within
from .deltas import conjunction, one_term, single_steps
from .implied import without_implied, without_repeated
from .unrolling import iterations
from .unswitching import is_before_loops

# A read looks behind so many updates.
UPDATES = 32
# A function is entered where it is applied when it has at most so many nodes.
INLINED = 200

Args = tuple[Value, ...]
Bodies = tuple[Body, ...]
Answer = Sequence[Value] | None


def rewrite(builder: Builder, op: str, static: tuple[Any, ...], args: Args, bodies: Bodies) -> tuple[Value, ...] | None:
    """The builder's rule (see ``Builder``): other values for this operation, or None."""
    rule = _RULES.get(op)
    answer = rule(builder, static, args, bodies) if rule else None
    return None if answer is None else tuple(answer)


def _primitive(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    answer = primitive(b, static[0], args)
    return None if answer is None else [answer]


# Control


def _cond(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    then, orelse = bodies
    if args[0].literal is not None:
        return b.instantiate(then if args[0].literal else orelse, [])
    if (inner := operands_of(args[0], "logical_not")) is not None:
        return b.emit("cond", (), [inner[0]], [orelse, then])
    pruned = without_implied(b, args[0], bodies)
    if any(x is not y for x, y in zip(pruned, bodies, strict=True)):
        return b.emit("cond", (), args, pruned)
    if not then.statements and not orelse.statements:
        decided = [_decided(b, args[0], body, holds) for body, holds in ((then, True), (orelse, False))]
        if any(x is not y for x, y in zip(decided, bodies, strict=True)):
            return b.emit("cond", (), args, decided)
        if all(x is y for x, y in zip(then.results, orelse.results, strict=True)):
            return then.results
        return _cond_without_invariants(b, args[0], then, orelse)
    return None


def _decided(b: Builder, test: Value, body: Body, holds: bool) -> Body:
    """A branch whose results choose by what is known there: the test around it, or a part of it that holds.

    What was chosen before all loops is not computed in them.
    """
    known = {test.number, *[part.number for part in conjunction(test) if holds]}
    results = list(body.results)
    for k, result in enumerate(results):
        while (node := result.source) is not None and node.op == "cond" and node.args[0].number in known:
            chosen = node.bodies[0 if holds else 1].results[result.position]
            if node.effects or (chosen.source is not None and is_before_loops(b, node)):
                break
            result = chosen
        results[k] = result
    if all(x is y for x, y in zip(results, body.results, strict=True)):
        return body
    return b.close((), (), tuple(results), body.partial)


def _cond_without_invariants(b: Builder, test: Value, then: Body, orelse: Body) -> Answer:
    """Results that both branches agree on leave the cond."""
    differ = [k for k, (x, y) in enumerate(zip(then.results, orelse.results, strict=True)) if x is not y]
    if len(differ) == len(then.results):
        return None
    branches = [b.close((), (), tuple([body.results[k] for k in differ])) for body in (then, orelse)]
    chosen = dict(zip(differ, b.emit("cond", (), [test], branches), strict=True))
    return [chosen.get(k, value) for k, value in enumerate(then.results)]


def _loop(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """A state that no iteration changes is its initial value; of outputs that are the same one is enough.

    A loop of no iteration is its initial states, and one of one iteration is that.
    """
    if args[0].literal in (0, 1) and len(bodies[0].results) == len(args) - 1:
        return b.instantiate(bodies[0], [b.literal(0, i64), *args[1:]]) if args[0].literal else args[1:]
    answer = _without_constant_states(b, "loop", static, args[:1], args[1:], bodies)
    if answer is not None:
        return answer
    states, outputs = bodies[0].results[: len(args) - 1], bodies[0].results[len(args) - 1 :]
    different = tuple(dict.fromkeys(outputs))
    if len(different) == len(outputs):
        return None
    body = b.close(bodies[0].binders, bodies[0].statements, (*states, *different), bodies[0].partial)
    made = b.emit("loop", static, args, [body])
    return [*made[: len(states)], *[made[len(states) + different.index(output)] for output in outputs]]


def _while(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    if bodies[0].results[0].literal is False and not bodies[0].statements:
        return [*args, b.literal(0, i64)]
    return _without_constant_states(b, "while", static, (), args, bodies)


def _without_constant_states(
    b: Builder, op: str, static: tuple[Any, ...], extent: Args, initials: Args, bodies: Bodies
) -> Answer:
    """A state that no iteration changes is its initial value; one to which one iteration adds is that sum."""
    body, first = bodies[-1], len(extent)
    constant = {
        k: initial
        for k, initial in enumerate(initials)
        if body.results[k] is body.binders[first + k] or body.results[k] is initial
    }
    if op == "loop" and not body.partial:
        constant = single_steps(b, extent[0], initials, body) | constant
    if not constant:
        return None
    varying = [k for k in range(len(initials)) if k not in constant]

    def within(part: Body) -> Body:
        """A test, or the body, as a function of the states that are left."""

        def enter(*binders: Value) -> list[Value]:
            states = dict(zip(varying, binders[first:], strict=True)) | constant
            results = b.instantiate(part, [*binders[:first], *[states[k] for k in range(len(initials))]])
            return results if tested else [result for k, result in enumerate(results) if k not in constant]

        tested = op == "while" and part is bodies[0]
        kept = [*part.binders[:first], *[part.binders[first + k] for k in varying]]
        extents = [value.dim for value in extent if value.dim is not None]
        return b.body([binder.type for binder in kept], enter, [binder.name for binder in kept], extents)

    made = list(b.emit(op, static, [*extent, *[initials[k] for k in varying]], [within(part) for part in bodies]))
    return [constant[k] if k in constant else made.pop(0) for k in range(len(initials))] + made


def _require(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    return [] if args[0].literal is True else None


# Arrays


def _index(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """``index(generate f, i) = f(i)``, where that is little more work than the read; what was just written is known."""
    array, indices = args[0], args[1:]
    if array.source is not None and array.source.op == "scatter":
        return _index_of_update(b, array, indices)
    if array.source is None or array.source.op != "generate" or _cost_of_read(array, len(indices), NONE) > CHEAP:
        return None
    body = array.source.bodies[0]
    inner = b.substitute([body.results[array.position]], {body.binders[0]: indices[0]})[0]
    return [b.index(inner, indices[1:])]


def _index_of_update(b: Builder, array: Value, indices: Args) -> Answer:
    """An element of an updated array, where it is certain which write it meets, or that it meets none.

    What is updated may be overwritten, and so is not read beside updates, but for single elements at a known distance,
    unless it is computed where it is read.
    """
    found = old = array
    for _ in range(UPDATES):
        node = old.source
        if node is None or node.op != "scatter" or node.effects:
            break
        count, body, apart = node.static[1], node.bodies[0], list[int | None]()
        if all([extent.literal == 1 for extent in node.args[:count]]):
            results = b.instantiate(body, [b.literal(0, i64)] * count)
            axes = len(results) - len(node.results)
            apart = [_distance(x, y) for x, y in zip(indices, results[:axes], strict=False)]
            if all([distance == 0 for distance in apart]):
                return [b.index(results[axes + old.position], indices[axes:])]
        if not any(apart) and not _passed_by(b, node, indices):
            break
        old = node.args[count + old.position]
        if (any(apart) and found.source is node) or _cost_of_read(old, len(indices), NONE) <= CHEAP:
            found = old
    return None if found is array else [b.index(found, indices)]


def _passed_by(b: Builder, update: Node, indices: Args) -> bool:
    """Whether no iteration of an update writes at a place, since all of them are before it along an axis, or after."""
    count, body = update.static[1], update.bodies[0]
    own = {binder.number: extent.dim for binder, extent in zip(body.binders, update.args[:count], strict=True)}
    around = extents_of(b)

    def extents(atom: DimAtom) -> Dim | None:
        return own.get(atom.number) if isinstance(atom, Opaque) and atom.number in own else around(atom)

    for x, y in zip(indices, body.results[: len(body.results) - len(update.results)], strict=False):
        if x.dim is not None and y.dim is not None:
            apart = x.dim - y.dim
            if never_negative(apart - 1, extents) or never_negative(-apart - 1, extents):
                return True
    return False


def _distance(x: Value, y: Value) -> int | None:
    """The difference of two integers, if it is known."""
    if x is y:
        return 0
    return None if x.dim is None or y.dim is None else (x.dim - y.dim).constant


def _cost_of_read(array: Value, axes: int, inside: frozenset[int]) -> float:
    """About how many additions it takes to compute an element instead of the array, inside these binders."""
    if axes == 0:
        return cost_within(array, inside)
    if array.free.isdisjoint(inside) and inside:
        return 1  # an array that is there anyway
    if array.source is None or array.source.op != "generate" or array.source.effects:
        return float("inf")
    body = array.source.bodies[0]
    return _cost_of_read(body.results[array.position], axes - 1, inside | {body.binders[0].number})


def _generate(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """Results that are copies of other arrays are these, and equal ones are one.

    What each iteration requires alike is required once, and so is what loops before have required.
    """
    body = bodies[0]
    if not body.results and (not body.statements or iterations(b, args[0], body) is not None):
        return []
    if not body.results and _required_once(body):
        some = b.primitive("less", b.literal(0, i64), args[0])
        return b.cond(some, lambda: b.instantiate(body, [b.literal(0, i64)]), lambda: [])
    if body.statements:
        left = without_repeated(b, args[0], body)
        return None if left is body else b.emit("generate", static, args, [left])
    different = tuple(dict.fromkeys(body.results))
    if len(different) < len(body.results):
        once = b.emit("generate", static, args, [b.close(body.binders, (), different, body.partial)])
        return [once[different.index(result)] for result in body.results]
    copies: dict[int, Value] = {}
    for k, result in enumerate(body.results):
        array = _reads_in_order(result, [body.binders[0]])
        if array is not None and dims(array.type) == (args[0].dim, *dims(result.type)):
            copies[k] = array
    if not copies:
        return None
    others = tuple([result for k, result in enumerate(body.results) if k not in copies])
    made = iter(b.emit("generate", static, args, [b.close(body.binders, (), others, body.partial)]) if others else ())
    return [copies[k] if k in copies else next(made) for k in range(len(body.results))]


def _required_once(body: Body) -> bool:
    """Whether a loop's body only requires something, and that does not depend on the loop's variable."""
    pending = list(body.statements)
    while pending:
        node = pending.pop()
        loop = node.row.control and not node.results
        if body.binders[0].number in node.free or node.partial or not (loop or node.op == "require"):
            return False
        pending += [statement for inner in node.bodies for statement in inner.statements]
    return True


def _reads_in_order(value: Value, binders: list[Value]) -> Value | None:
    """The array a of ``generate i. generate j. a[i, j]``, when that is what the body says."""
    while value.source is not None and value.source.op == "generate" and not value.source.effects:
        if len(value.source.bodies[0].results) != 1:
            return None
        binders.append(value.source.bodies[0].binders[0])
        value = value.source.bodies[0].results[0]
    source = value.source
    if source is None or source.op != "index" or list(source.args[1:]) != binders:
        return None
    array = source.args[0]
    if not array.free.isdisjoint({binder.number for binder in binders}):
        return None
    return array


def _reduce(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """A sum of zeros is zero, one of zeros and one term that term; a reduction of nothing its neutral element, of one
    element that element."""
    element, operator = bodies
    if args[0].literal == 0:
        return args[1:]
    if args[0].literal == 1 and not operator.statements:
        return b.instantiate(element, [b.literal(0, i64)])
    if not operator.statements and (elements := iterations(b, args[0], element)) is not None:
        return functools.reduce(lambda x, y: b.instantiate(operator, [*x, *y]), elements)
    if len(element.results) == 1 and component_operator(operator) == "add" and not element.statements:
        if is_zero(element.results[0]):
            return [element.results[0]]
        if (term := one_term(b, args[0], element)) is not None:
            return [term]
    return None


def component_operator(operator: Body, component: int = 0) -> str | None:
    """The primitive that an operator applies to one component of its two elements, if that is all it does there."""
    source = operator.results[component].source
    mates = operator.binders[component], operator.binders[len(operator.results) + component]
    if source is not None and source.op == "primitive" and len(source.args) == 2 and set(source.args) == set(mates):
        row: Primitive = source.static[0]
        if row.commutative or source.args == mates or row.name in ("minimum", "maximum"):
            return row.name
    return None


# The higher-order fragment


def _apply(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """A known function of moderate size is entered where it is applied.

    Functions of recursive types are not: through these a function may come to apply itself without end.
    """
    function = args[0]
    if function.source is None or function.source.op != "function":
        return None
    if any(declaration.is_recursive for declaration in declarations(function.source.static[0])):
        return None
    body = function.source.bodies[0]
    return b.instantiate(body, args[1:]) if _size(body) <= INLINED else None


def _function(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """``function x: f(x)`` is ``f``."""
    [body] = bodies
    if len(body.statements) != 1:
        return None
    [node] = body.statements
    if node.op != "apply" or node.args[1:] != body.binders or node.results != body.results:
        return None
    return [node.args[0]] if node.args[0].free.isdisjoint(numbers(body.binders, ())) else None


def _size(body: Body) -> int:
    """How many nodes depend on a body's parameters or stand in it; any number above INLINED when there are more."""
    stack, inside, seen = [body], NONE, 0
    while stack:
        body = stack.pop()
        inside |= numbers(body.binders, body.statements)
        for node in nodes_within(body.results, inside):
            seen += 1
            stack.extend(node.bodies)
            if seen > INLINED:
                return seen
        for statement in body.statements:
            seen += 1
            stack.extend(statement.bodies)
            seen += sum(1 for _ in nodes_within(statement.args, inside))
    return seen


def _project(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    source = args[0].source
    return [source.args[static[0]]] if source is not None and source.op == "pack" else None


def _case(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """The branch of a known variant."""
    source = args[0].source
    if source is None or source.op != "construct":
        return None
    return b.instantiate(bodies[static.index(source.static[1])], source.args)


def _par(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    """One branch alone is no fork."""
    return None if len(bodies) > 1 else [value for body in bodies for value in b.instantiate(body, [])]


# Effects


def _accumulate(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    return rewrite_accumulate(b, args, bodies[0])


def _add_to(b: Builder, static: tuple[Any, ...], args: Args, bodies: Bodies) -> Answer:
    return [] if is_zero(args[1]) else None


_RULES: dict[str, Callable[[Builder, tuple[Any, ...], Args, Bodies], Answer]] = {
    "primitive": _primitive,
    "cond": _cond,
    "loop": _loop,
    "while": _while,
    "require": _require,
    "index": _index,
    "generate": _generate,
    "reduce": _reduce,
    "function": _function,
    "apply": _apply,
    "project": _project,
    "case": _case,
    "par": _par,
    "accumulate": _accumulate,
    "add_to": _add_to,
}
