"""Choices and loops.

The state of a loop is any structure, and keeps its types. A Python number in the initial state is an i64 or f64, or
adopts the type that the body makes of that: ``fori_loop(0, n, lambda i, s: s + x[i], 0)`` sums floats. The body is
then entered once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import trees
from ..builder import current
from ..case import Branch, joined
from ..dims import Dim
from ..expr import Expr, as_expr, broadcast_element, broadcast_sizes, is_number, promoted, same_size
from ..functions import as_typed
from ..graph import Body, Value
from ..source import at_line, user_line
from ..trees import Structure
from ..types import Scalar, bool_, dims, element, i64, is_data, rank
from .operands import Function, conformed, dim_of, extent_of, leaf_names, named, parameter_names, regular, size_value
from .segments import Segments

# Choices


def cond(test: Any, then: Any, orelse: Any) -> Structure:
    """The result of ``then()`` where a scalar bool holds, of ``orelse()`` elsewhere; only that branch is run.

    Both return one structure with the same scalar types and ranks; Python numbers adopt the type of the other branch,
    and where sizes differ the result has the size of the branch taken. Raises TypeError when the test is not a scalar
    bool or the branches are no functions or differ.

    >>> import adze as az
    >>> @az.program
    ... def positive_part(x: az.Array[az.f64, "n"], k: az.i64) -> az.Array[az.f64, "m"]:
    ...     return az.cond(k > 0, lambda: x[:k], lambda: x)
    >>> az.evaluate(positive_part)([1.0, 2.0, 3.0], 2)
    array([1., 2.])
    """
    builder = current()
    test = as_expr(test)
    if test.type != bool_:
        raise TypeError(at_line(f"the test of a cond is a scalar bool, not {test.type}"))
    if any(not callable(f) or (isinstance(f, Expr) and is_data(f.type)) for f in (then, orelse)):
        raise TypeError(at_line("the branches of a cond are functions: write az.cond(test, lambda: a, lambda: b)"))
    origin = user_line()
    branches = [Branch("then", {}, then), Branch("orelse", {}, orelse)]
    (first, second), tree = joined("the branches of a cond", branches, resizable=True)
    builder.origin = origin
    if first.types != second.types:
        first, second = _resized(test.value, first, second)
    values = builder.emit("cond", (), [test.value], [first, second])
    return trees.unflatten(tree, [Expr(value, builder) for value in values])


def _resized(test: Value, *branches: Body) -> list[Body]:
    """Branches whose arrays differ in size, with results of one size: that of the branch taken, found beforehand."""
    builder = current()
    sizes: dict[int, list[Value]] = {}
    for k, (a, b) in enumerate(zip(*[branch.results for branch in branches], strict=True)):
        if a.type != b.type:
            sizes[k] = []
            for axis, (one, two) in enumerate(zip(dims(a.type), dims(b.type), strict=True)):
                size = (
                    builder.size(a, axis) if one == two and one.is_static() else _chosen_size(test, branches, k, axis)
                )
                sizes[k].append(size)

    def widened(branch: Body) -> Body:
        def run() -> Sequence[Value]:
            results = builder.instantiate(branch, [])
            for k, extents in sizes.items():
                array = results[k]
                results[k] = builder.array(extents, lambda *i, array=array: builder.index(array, i))
            return results

        return builder.body([], run)

    return [widened(branch) for branch in branches]


def _chosen_size(test: Value, branches: Sequence[Body], k: int, axis: int) -> Value:
    builder = current()

    def size_in(branch: Body) -> Callable[[], Sequence[Value]]:
        return lambda: [builder.size(builder.instantiate(branch, [])[k], axis)]

    return builder.cond(test, size_in(branches[0]), size_in(branches[1]))[0]


def where(test: Any, a: Any, b: Any) -> Expr:
    """Elementwise choice with broadcasting; lazy: only the operand chosen is computed, and only it is differentiated.

    ``where(x > 0, sqrt(x), 0)`` has derivative 0 at 0. Operands that are also used elsewhere are computed there.
    """
    condition = as_expr(test)
    if condition.dtype != bool_:
        raise TypeError(at_line(f"the test of a where is bool, not {condition.type}"))
    x, y = promoted([a, b])
    builder = current()
    builder.origin = user_line()
    values = [condition.value, x.value, y.value]
    sizes = broadcast_sizes(values, "where")

    def at(*indices: Value) -> Value:
        chosen = broadcast_element(values[0], indices)
        return builder.cond(chosen, lambda: [_entered(values[1], indices)], lambda: [_entered(values[2], indices)])[0]

    return Expr(builder.array(sizes, at), builder)


def _entered(value: Value, indices: Sequence[Value]) -> Value:
    """The element of a broadcast operand; that of an elementwise operand is computed here rather than read."""
    builder = current()
    zero = builder.literal(0, i64)
    last = indices[len(indices) - rank(value.type) :]
    remaining = [zero if dim == Dim.of(1) else i for dim, i in zip(dims(value.type), last, strict=True)]
    while remaining and _is_elementwise(value):
        assert value.source is not None
        body = value.source.bodies[0]
        value = builder.substitute([body.results[value.position]], {body.binders[0]: remaining.pop(0)})[0]
    return builder.index(value, remaining)


def _is_elementwise(value: Value) -> bool:
    """Whether an array is a generate of scalar operations and reads: no inner reduction or loop."""
    if value.source is None or value.source.op != "generate" or value.source.effects:
        return False
    body = value.source.bodies[0]
    inside = frozenset([body.binders[0].number])
    stack, seen = [body.results[value.position]], set()
    while stack:
        source = stack.pop().source
        if source is None or source.number in seen or source.free.isdisjoint(inside):
            continue
        seen.add(source.number)
        if source.op not in ("primitive", "index", "cond", "generate"):
            return False
        stack.extend(source.args)
        for inner in source.bodies:
            inside = inside | {binder.number for binder in inner.binders}
            stack.extend(inner.results)
    return True


# Loops


def fori_loop(lower: Any, upper: Any, body: Function, init: Any, *, checkpoint: Any = "all") -> Structure:
    """``for i in range(lower, upper): state = body(i, state)``: the final state.

    ``lower`` and ``upper`` are integers or i64 expressions; the state is any structure whose types do not change.
    ``checkpoint`` says which states reverse mode keeps: "all", n of them for n steps; "sqrt", about 2 sqrt(n), and the
    steps are run once more; k, about n/k + k of them; (k1, k2, ...), segments of k1 steps that are cut into segments
    of k2, and so on: n/k1 + k1/k2 + ... + kl of them, and the steps are run once more for each number; powers of two
    bisect. The derivatives are the same bit for bit (:func:`checkpoint` names an exception); ``peak_bytes`` of the
    compiled gradient says what it holds. Raises TypeError when ``body`` changes the structure or a type.

    >>> import adze as az
    >>> @az.program
    ... def fibonacci(n: az.i64) -> az.i64:
    ...     return az.fori_loop(0, n, lambda i, s: (s[1], s[0] + s[1]), (0, 1))[0]
    >>> int(az.evaluate(fibonacci)(10))
    55
    """
    builder = current()
    builder.origin = origin = user_line()
    low, high = size_value(lower), size_value(upper)
    span = high if low.literal == 0 else builder.primitive("subtract", high, low)
    extent = builder.primitive("maximum", span, builder.literal(0, i64))
    segments = Segments("fori_loop", checkpoint)
    state = _State("fori_loop", init)
    parameters = parameter_names(body, 2)
    names = [parameters[0] if low.literal == 0 else "", *leaf_names(parameters[1], state.tree)]

    def step(counter: Value, *values: Value) -> Sequence[Value]:
        i = Expr(counter if low.literal == 0 else builder.primitive("add", low, counter), builder)
        return state.next(values, body(i, state.structure(values)))

    def build() -> Body:
        return builder.body([i64, *state.types], step, names, [dim_of(extent)])

    built = state.settled(build)
    builder.origin = origin
    if segments:
        return state.structure(segments.loop(extent, state.initials, built))
    return state.structure(builder.emit("loop", (dim_of(extent),), [extent, *state.initials], [built]))


def scan_loop(
    body: Function, init: Any, xs: Any, length: Any = None, *, checkpoint: Any = "all"
) -> tuple[Structure, Structure]:
    """A loop over the first axis of ``xs``, with outputs a step: ``state, y = body(state, x)``; ``(state, ys)``.

    ``xs`` is an array or a structure of arrays of one length, or None with a ``length``; the outputs (any structure)
    are stacked. The state is any structure whose types do not change. ``checkpoint`` is that of :func:`fori_loop`.
    Raises TypeError when the state's types change, when ``body`` does not return a pair, or when an output's size
    depends on the step.

    >>> import adze as az
    >>> @az.program
    ... def decay(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    ...     return az.scan_loop(lambda s, v: (s / 2 + v, s), 0.0, x)[1]
    >>> az.evaluate(decay)([4.0, 0.0, 1.0])
    array([0., 4., 2.])
    """
    builder = current()
    builder.origin = origin = user_line()
    leaves, tree = trees.flatten(xs)
    arrays = [as_expr(leaf) for leaf in leaves]
    for x in arrays:
        if x.ndim == 0:
            raise TypeError(at_line(f"scan_loop over a scalar of type {x.type}"))
        same_size(arrays[0].value, 0, x.value, 0, "scan_loop")
    if not arrays and length is None:
        raise TypeError(at_line("scan_loop takes an array, or a length"))
    extent = builder.size(arrays[0].value, 0) if arrays else extent_of(length)
    segments = Segments("scan_loop", checkpoint)
    state = _State("scan_loop", init)
    parameters = parameter_names(body, 2)
    shapes: list[trees.Shape] = []

    def step(i: Value, *values: Value) -> Sequence[Value]:
        x = trees.unflatten(tree, [array[Expr(i, builder)] for array in arrays])
        named(x, parameters[1])
        result = body(state.structure(values), x)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(at_line("the body of a scan_loop returns a pair of the next state and an output"))
        outputs, shape = trees.flatten(result[1])
        shapes[:] = [shape]
        return [*state.next(values, result[0]), *[as_expr(output).value for output in outputs]]

    def build() -> Body:
        names = ["", *leaf_names(parameters[0], state.tree)]
        return builder.body([i64, *state.types], step, names, [dim_of(extent)])

    built = state.settled(build)
    builder.origin = origin
    count = len(state.initials)
    if segments:
        values = segments.loop(extent, state.initials, built)
    else:
        values = builder.emit("loop", (dim_of(extent),), [extent, *state.initials], [built])
        regular(values[count:], origin)
    outputs = [Expr(value, builder) for value in values[count:]]
    return state.structure(values[:count]), trees.unflatten(shapes[0], outputs)


def while_loop(test: Function, body: Function, init: Any, *, checkpoint: Any = "all") -> Structure:
    """``while test(state): state = body(state)``: the final state, any structure whose types do not change.

    ``checkpoint`` is that of :func:`fori_loop`; with "sqrt" the segments grow by one step each. Where segments begin,
    the test is asked twice. Raises TypeError when ``test`` does not give a scalar bool or ``body`` changes the
    structure or a type.

    >>> import adze as az
    >>> @az.program
    ... def newton(a: az.f64) -> az.f64:
    ...     return az.while_loop(lambda x: abs(x * x - a) > 1e-12 * a, lambda x: (x + a / x) / 2, a)
    >>> float(az.evaluate(newton)(2.0))
    1.414213562373095
    """
    builder = current()
    builder.origin = origin = user_line()
    segments = Segments("while_loop", checkpoint)
    state = _State("while_loop", init)
    names = leaf_names(parameter_names(body, 1)[0], state.tree)

    def going(*values: Value) -> Sequence[Value]:
        goes_on = as_expr(test(state.structure(values)))
        if goes_on.type != bool_:
            raise TypeError(at_line(f"the test of a while_loop gives a scalar bool, not {goes_on.type}"))
        return [goes_on.value]

    def build() -> Body:
        return builder.body(state.types, lambda *v: state.next(v, body(state.structure(v))), names)

    built = state.settled(build)
    builder.origin = origin
    bodies = [builder.body(state.types, going, names), built]
    if segments:
        return state.structure(segments.while_loop(state.initials, *bodies))
    return state.structure(builder.emit("while", (), state.initials, bodies)[:-1])


class _State:
    """The state of a loop: its structure, its initial values, and the types that they have or adopt."""

    def __init__(self, what: str, init: Any) -> None:
        self.what = what
        self.leaves, self.tree = trees.flatten(init)
        self.adopted: list[Scalar | None] = [None] * len(self.leaves)
        self.changed = False

    @property
    def initials(self) -> list[Value]:
        return [as_expr(leaf, like).value for leaf, like in zip(self.leaves, self.adopted, strict=True)]

    @property
    def types(self) -> list[Any]:
        return [initial.type for initial in self.initials]

    def structure(self, values: Sequence[Value]) -> Structure:
        builder = current()
        return trees.unflatten(self.tree, [Expr(value, builder) for value in values])

    def next(self, values: Sequence[Value], after: Any) -> list[Value]:
        """The leaves of the state that a body returns, of the types that the state had."""
        results, tree = trees.flatten(after)
        if tree != self.tree:
            raise TypeError(at_line(f"the body of a {self.what} returns another structure than the state's"))
        following = []
        for k, (result, old) in enumerate(zip(results, values, strict=True)):
            if not is_data(old.type):
                following.append(as_typed(result, old.type, f"the state of a {self.what}"))
                continue
            new = as_expr(result, element(old.type))
            if new.dtype != element(old.type) and self._adopts(k, new):
                following.append(new.value)
                continue
            if new.dtype != element(old.type) or new.ndim != rank(old.type):
                raise TypeError(at_line(f"the body of a {self.what} changes a state of type {old.type} to {new.type}"))
            following.append(conformed(new.value, old, self.what))
        return following

    def _adopts(self, k: int, new: Expr) -> bool:
        """Whether an initial number takes on the type that the body gives it."""
        if not is_number(self.leaves[k]) or new.ndim or as_expr(self.leaves[k], new.dtype).dtype != new.dtype:
            return False
        if self.adopted[k] == new.dtype:
            return False
        self.adopted[k], self.changed = new.dtype, True
        return True

    def settled(self, build: Callable[[], Body]) -> Body:
        """The body for the types that the state settles on."""
        while True:
            self.changed = False
            body = build()
            if not self.changed:
                return body
