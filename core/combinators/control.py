"""Choices and loops.

The state of a loop is any structure, and keeps its types. A Python number in the initial state takes the type that
the body gives it: ``fori_loop(0, n, lambda i, s: s + x[i], 0)`` is of the type of ``x``. Where that is not the i64 or
f64 which a number is by itself, the body is entered once more (``weak_types.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import trees
from ..builder import current
from ..case import Branch, branch_bodies
from ..dims import Dim
from ..expr import Expr, as_expr, broadcast_element, broadcast_sizes, is_weak, promoted, same_size, weak_states
from ..functions import as_typed
from ..graph import Body, Value
from ..source import at_line, user_line
from ..trees import Structure
from ..types import Scalar, bool_, dims, element, i64, is_data, rank
from ..weak_types import Inference, Meeting, Place, adapts
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
    origin = user_line()
    branches = [Branch("then", {}, then, "cond"), Branch("orelse", {}, orelse, "cond")]
    (first, second), tree, states = branch_bodies("the branches of a cond", branches, resizable=True)
    builder.origin = origin
    if first.types != second.types:
        first, second = _resized(test.value, first, second)
    values = builder.emit("cond", (), [test.value], [first, second])
    return trees.unflatten(tree, [Expr(value, builder, *weak) for value, weak in zip(values, states, strict=True)])


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

    return Expr(builder.array(sizes, at), builder, *weak_states([a, b]))


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
        if not (source.row.elementwise or source.op == "generate"):
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
        return state.final(segments.loop(extent, state.initials, built))
    return state.final(builder.emit("loop", (dim_of(extent),), [extent, *state.initials], [built]))


def scan_loop(
    body: Function, init: Any, xs: Any, length: Any = None, *, reverse: bool = False, checkpoint: Any = "all"
) -> tuple[Structure, Structure]:
    """A loop over the first axis of ``xs``, with outputs a step: ``state, y = body(state, x)``; ``(state, ys)``.

    ``xs`` is an array or a structure of arrays of one length, or None with a ``length``; the outputs (any structure)
    are stacked. The state is any structure whose types do not change. In ``reverse`` the loop goes from the last
    element to the first, and each output is still where its element is. ``checkpoint`` is that of :func:`fori_loop`.
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
    length = Expr(extent, builder)
    segments = Segments("scan_loop", checkpoint)
    state = _State("scan_loop", init)
    parameters = parameter_names(body, 2)
    shapes: list[trees.Shape] = []

    def turned(i: Value) -> Expr:
        """The number of a step, from the front or from the back."""
        return length - 1 - Expr(i, builder) if reverse else Expr(i, builder)

    def step(i: Value, *values: Value) -> Sequence[Value]:
        x = trees.unflatten(tree, [array[turned(i)] for array in arrays])
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
    if reverse:
        outputs = [output[::-1] for output in outputs]
    return state.final(values[:count]), trees.unflatten(shapes[0], outputs)


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
        return state.final(segments.while_loop(state.initials, *bodies))
    return state.final(builder.emit("while", (), state.initials, bodies)[:-1])


class _State:
    """The state of a loop: its structure, its initial values, and the types that they have or take."""

    def __init__(self, what: str, init: Any) -> None:
        self.what = what
        self.leaves, self.tree = trees.flatten(init)
        self.open = [k for k, leaf in enumerate(self.leaves) if is_weak(leaf)]  # those whose types the body decides
        self.known: dict[int, Scalar] = {}  # their types
        self.weak: dict[int, int] = {}  # their numbers, while types are inferred
        self.made: dict[int, Meeting] = {}  # what the body made of them
        self.place: Place = ()

    @property
    def initials(self) -> list[Value]:
        return [as_expr(leaf, self.known.get(k)).value for k, leaf in enumerate(self.leaves)]

    @property
    def types(self) -> list[Any]:
        return [initial.type for initial in self.initials]

    def structure(self, values: Sequence[Value]) -> Structure:
        """The state inside the loop."""
        leaves = [Expr(value, current()) for value in values]
        for k, number in self.weak.items():
            leaves[k] = Expr(values[k], current(), frozenset([number]), True)
        return trees.unflatten(self.tree, leaves)

    def final(self, values: Sequence[Value]) -> Structure:
        """The state after the loop. While types are inferred, a number is of the type that the body made of it."""
        leaves = [Expr(value, current()) for value in values]
        for k, number in self.weak.items():
            made = self.made[k]
            leaves[k] = Expr(leaves[k].astype(made.scalar).value, current(), frozenset([number]), made.weak)
        return trees.unflatten(self.tree, leaves)

    def next(self, values: Sequence[Value], after: Any) -> list[Value]:
        """The leaves of the state that a body returns, of the types that the state had."""
        results, tree = trees.flatten(after)
        if tree != self.tree:
            differ = f"another structure than the state's: {tree}, which is no {self.tree}"
            raise TypeError(at_line(f"the body of a {self.what} returns {differ}"))
        following = []
        for k, (result, old) in enumerate(zip(results, values, strict=True)):
            if not is_data(old.type):
                following.append(as_typed(result, old.type, f"the state of a {self.what}"))
                continue
            scalar = element(old.type)
            new = as_expr(result, None if k in self.weak else scalar)
            if k in self.open and not new.ndim:
                new = self._open(k, new, is_weak(result), scalar)
            if new.dtype != scalar or new.ndim != rank(old.type):
                raise TypeError(at_line(f"the body of a {self.what} changes a state of type {old.type} to {new.type}"))
            following.append(conformed(new.value, old, self.what))
        return following

    def _open(self, k: int, new: Expr, weak: bool, scalar: Scalar) -> Expr:
        """What a body makes of an initial number, noted and as the scalar type that it has now."""
        inference = current().inference
        assert inference is not None
        if k in self.weak:
            self.made[k] = inference.bound(self.weak[k], Meeting(new.dtype, weak, new.states))
        elif new.dtype == scalar or not adapts(self._own(k).scalar, new.dtype):
            return new
        elif not inference.retyped((*self.place, k), scalar, new.dtype):
            problem = f"makes {new.dtype} of a state of type {scalar}, and {scalar} of one of type {new.dtype}"
            advice = f"give its initial value a type, as in np.{scalar.dtype.name}({self.leaves[k]!r})"
            raise TypeError(at_line(f"the body of a {self.what} {problem}: its type never settles; {advice}"))
        return new.astype(scalar)

    def _own(self, k: int) -> Meeting:
        """What an initial number, or weak expression, is by itself."""
        x = as_expr(self.leaves[k])
        return Meeting(x.dtype, True, x.states)

    def settled(self, build: Callable[[], Body]) -> Body:
        """The body for the types that the state settles on."""
        builder = current()
        if builder.inference is not None:
            return self._entered(build, builder.inference)
        if not self.open:
            return build()
        builder.inference = inference = Inference()
        try:
            while True:
                try:
                    body = self._entered(build, inference)
                except Exception:
                    if not (inference.weak and inference.narrowed):
                        raise
                    inference.restart({})  # perhaps a weak state was taken for less than it is
                    continue
                if inference.is_settled():
                    self.weak = {}
                    return body
        finally:
            builder.inference = None

    def _entered(self, build: Callable[[], Body], inference: Inference) -> Body:
        with inference.scope() as self.place:
            own = {k: self._own(k) for k in self.open}
            if inference.weak:
                self.weak = {k: inference.state((*self.place, k), own[k]) for k in self.open}
            else:
                self.weak, self.known = {}, {k: inference.types.get((*self.place, k), own[k].scalar) for k in self.open}
            return build()
