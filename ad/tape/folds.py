"""Reduce, scan and histogram in the return sweep of a trace: folds, and folds mirrored.

Elements are computed for all indices at once, then their cotangents, then the element block is swept with these.
Sums, products and extrema of numbers have rules of their own. Any other operator is folded in *segments*: every row
of elements is cut into pieces of about the square root of its length, which are folded side by side, as the lanes of
a batch; then the results of the pieces are joined in order. All that was computed is kept, and the return sweep is
the mirror image: from the last join to the first, then from the end of all pieces to their beginnings at once.
(van Hus, section 4.3.2; the operator is associative, so grouping is free, and order is kept.)

    a0 a1 a2 | a3 a4 a5 | a6 a7        (a0 a1) a2 | (a3 a4) a5 | a6 a7       2 steps of 3 lanes
    s0         s1         s2           (s0 s1) s2                            2 steps
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import is_float, rank
from ...interpreters.evaluate.batches import Irregular, mesh
from .cotangents import picked
from .sweeps import Scope, Visit

Element = Sequence[Any]  # one array a component: rows first, then its own axes, then those of the batch
Cotangents = list[Any]


# Operators with a rule of their own


def known_operator(operator: Block, component: int) -> str | None:
    """The primitive with a rule that combines one component with its like, element by element if that is an array."""
    count = len(operator.results)
    return _combination(operator, 0, operator.results[component], {component, count + component}, [])


def _combination(block: Block, outside: int, result: Atom, mates: set[int], indices: list[int]) -> str | None:
    """The same for the result of a block inside the operator; values go by their levels, counted from the outside."""
    made: dict[int, tuple[Operation, int]] = {}
    bound = outside + len(block.binders)
    for operation in block.bindings:
        for k in range(len(operation.types)):
            made[bound + k] = operation, bound
        bound += len(operation.types)

    def level(atom: Atom, bound: int) -> int:
        return bound - 1 - atom.index if isinstance(atom, Variable) else -1

    def read(array: int) -> int:
        """The array whose element at the indices this is."""
        if array not in made or made[array][0].op != "index":
            return -1
        operation, bound = made[array]
        array, *places = [level(atom, bound) for atom in operation.args]
        return array if places == indices else -1

    last = level(result, bound)
    if last not in made:
        return None
    operation, before = made[last]
    if operation.op == "generate" and len(operation.types) == 1:
        inner = operation.blocks[0]
        return _combination(inner, before, inner.results[0], mates, [*indices, before])
    if operation.op != "primitive" or operation.static[0].name not in _RULES:
        return None
    args = [level(atom, before) for atom in operation.args]
    if (set(map(read, args)) if indices else set(args)) != mates:
        return None
    name: str = operation.static[0].name
    return name


def _sum(column: Any, cotangent: Any) -> Any:
    return np.broadcast_to(cotangent, column.shape)


def _product(column: Any, cotangent: Any) -> Any:
    """All others, multiplied from both ends: zeros need no division."""
    before, behind = np.ones_like(column), np.ones_like(column)
    np.cumprod(column[:-1], axis=0, out=before[1:])
    behind[:-1] = np.cumprod(column[:0:-1], axis=0)[::-1]
    return cotangent * before * behind


def _extremum(name: str) -> Callable[[Any, Any], Any]:
    def rule(column: Any, cotangent: Any) -> Any:
        """The first element that attains it."""
        here = np.expand_dims(_FIRST[name](column, axis=0), 0) == mesh(column.shape)[0]
        return np.where(here, cotangent, column.dtype.type(0))

    return rule


_FIRST: dict[str | None, Callable[..., Any]] = {"minimum": np.argmin, "maximum": np.argmax}
_RULES = {"add": _sum, "multiply": _product, "minimum": _extremum("minimum"), "maximum": _extremum("maximum")}


# The constructs


def reduce(visit: Visit, cotangents: Cotangents) -> None:
    """``y = a_0 op a_1 op ...``:  known operators by their rules, others by a fold and its mirror image."""
    operation, (element, operator) = visit.operation, visit.operation.blocks
    count = visit.extent(operation.args[0])
    if count == 0:
        return
    cotangents = _filled(visit, cotangents)
    names = _independent(visit, operator, cotangents)
    if names is not None:
        only_sums = all(name in (None, "add") for name in names)
        columns = _shapes(visit, element, count) if only_sums else _columns(visit, element, count)
        given: Cotangents = [None] * len(names)
        for k, (name, column, cotangent) in enumerate(zip(names, columns, cotangents, strict=True)):
            if name in _FIRST and not rank(operation.types[k]):  # one element moves: the others are not looked at
                seeds = [cotangent if j == k else None for j in range(len(names))]
                visit.sweep.once(visit, element, [_FIRST[name](column, axis=0)], seeds)
            elif name is not None:
                given[k] = _RULES[name](column, cotangent)
        if all(one is None for one in given):
            return
    else:
        fold = Segments(Folding(visit, operator, cotangents), _columns(visit, element, count), np.array([count]))
        given = fold.back([None if g is None else g[None] for g in cotangents])
    visit.sweep.lanes(visit, element, [count], given)


def scan(visit: Visit, cotangents: Cotangents) -> None:
    """``y_i = y_(i-1) op a_i``:  a sum's by sums from the end; others' by folding segments, as for a reduce.

    Each segment is scanned, and what stands before a segment is combined with all of its running results.
    """
    operation, (element, operator) = visit.operation, visit.operation.blocks
    count = visit.extent(operation.args[0])
    if count == 0:
        return
    cotangents = visit.whole(cotangents)
    names = _independent(visit, operator, cotangents)
    if names is not None and all(name in (None, "add") for name in names):
        given = [None if g is None else np.cumsum(g[::-1], axis=0, dtype=g.dtype)[::-1] for g in cotangents]
    else:
        fold = Segments(Folding(visit, operator, cotangents), _columns(visit, element, count), np.array([count]))
        given = fold.back_running(cotangents)
    visit.sweep.lanes(visit, element, [count], given)


def histogram(visit: Visit, cotangents: Cotangents) -> None:
    """``y[k] = op of the a_i with k_i = k``:  sums ``a_i_bar = y_bar[k_i]``; others: elements by bins, then folds."""
    operation, (element, operator) = visit.operation, visit.operation.blocks
    size, count = visit.extent(operation.args[0]), visit.extent(operation.args[1])
    if count == 0 or size == 0:
        return
    cotangents = visit.whole(cotangents)
    places, *columns = _columns(visit, element, count)
    inside = (places >= 0) & (places < size)
    names = _independent(visit, operator, cotangents)
    if names is not None and all(name in (None, "add") for name in names):
        within = np.where(inside, places, 0)
        owns = visit.sweep.code(element).ranks[1:]
        given = [None if g is None else picked(g, [within], r, inside) for g, r in zip(cotangents, owns, strict=True)]
    else:
        if visit.sweep.batch:
            raise Irregular  # each lane has its own order
        order = np.argsort(np.where(inside, places, size), kind="stable")[: np.count_nonzero(inside)]
        lengths = np.bincount(places[order], minlength=size)
        bins = np.nonzero(lengths)[0]
        if not len(bins):
            return
        fold = Segments(Folding(visit, operator, cotangents), [column[order] for column in columns], lengths[bins])
        back = fold.back([None if g is None else g[bins] for g in cotangents])
        given = [_set(None, order, g, column) for g, column in zip(back, columns, strict=True)]
    visit.sweep.lanes(visit, element, [count], [None, *given])


def _filled(visit: Visit, cotangents: Cotangents) -> Cotangents:
    """Cotangents of the results as arrays with all the axes of the batch."""
    made = visit.whole(cotangents)
    return [
        None if g is None else visit.sweep.evaluate.filled(g, rank(type))
        for g, type in zip(made, visit.operation.types, strict=True)
    ]


def _columns(visit: Visit, element: Block, count: int) -> list[Any]:
    """The elements, computed again."""
    code, evaluate = visit.sweep.code(element), visit.sweep.evaluate
    columns = evaluate.for_all(count, lambda i: code.run(visit.env, [i]), code.effects, code.ranks)
    return [evaluate.filled(column, r + 1) for column, r in zip(columns, code.ranks, strict=True)]


def _shapes(visit: Visit, element: Block, count: int) -> list[Any]:
    """Something of the shape of the elements of a reduce, whose results have it, too."""
    return [
        np.broadcast_to(np.int8(0), (count, *np.shape(visit.sweep.evaluate.filled(result, rank(type)))))
        for result, type in zip(visit.results, visit.operation.types, strict=True)
    ]


def _independent(visit: Visit, operator: Block, cotangents: Cotangents) -> list[str | None] | None:
    """For each component with a cotangent its rule, if all of these have one and depend on their like alone."""
    names = [None if g is None else known_operator(operator, k) for k, g in enumerate(cotangents)]
    if any(g is not None and name is None for name, g in zip(names, cotangents, strict=True)):
        return None
    return names


# Folding


class Folding:
    """An operator applied to many pairs at once, and back; its free variables get their share as they come."""

    def __init__(self, visit: Visit, operator: Block, cotangents: Cotangents) -> None:
        self.visit, self.operator, self.evaluate = visit, operator, visit.sweep.evaluate
        self.batch, self.ranks = visit.sweep.batch, visit.sweep.code(operator).ranks
        count = len(operator.results)
        floating = tuple([is_float(type) for type in operator.binders])
        moving = [g is not None for g in cotangents]
        while True:  # a component that gets its cotangent from another one moves, too
            self.plan = visit.sweep.plan(operator, visit, floating, tuple(moving))
            reached = [self.plan.slots[k] + self.plan.slots[count + k] > 0 for k in range(count)]
            more = [was or now for was, now in zip(moving, reached, strict=True)]
            if more == moving:
                break
            moving = more

    def apply(self, left: Element, right: Element) -> tuple[list[Any], Scope]:
        """The results of all pairs, and the run to go back through."""
        lanes = len(left[0])
        binders = [np.moveaxis(x, 0, r) for x, r in zip((*left, *right), (*self.ranks, *self.ranks), strict=True)]
        with self.evaluate.inside((lanes, *self.batch), self.evaluate.mask):
            scope = self.visit.sweep.forward(self.plan, self.visit.env, binders)
            results = self.visit.sweep.code(self.operator).run(self.visit.env, binders)
            return [self.evaluate.gathered(value, r) for value, r in zip(results, self.ranks, strict=True)], scope

    def back(self, scope: Scope, cotangents: Cotangents, lanes: int) -> tuple[Cotangents, Cotangents]:
        """The cotangents of both operands of all pairs."""
        batch = (lanes, *self.batch)
        with self.evaluate.inside(batch, self.evaluate.mask):
            seeds = [None if g is None else np.moveaxis(g, 0, r) for g, r in zip(cotangents, self.ranks, strict=True)]
            binders, found = self.visit.sweep.backward(scope, seeds)
            binders = self.visit.sweep.wholes(scope, binders)
            both = [
                None if g is None else self.evaluate.gathered(g, r)
                for g, r in zip(binders, (*self.ranks, *self.ranks), strict=True)
            ]
        self.visit.add(self.visit.sweep.outside(found, self.plan, self.visit.env, batch, 1))
        return both[: len(self.ranks)], both[len(self.ranks) :]


class Steps:
    """Runs of consecutive rows, folded side by side from left to right: step j takes row j of all that are longer."""

    def __init__(self, folding: Folding, rows: Element, starts: Any, lengths: Any) -> None:
        self.folding, self.rows = folding, rows
        self.order = np.argsort(-lengths, kind="stable")  # the longest first: those still going are the first ones
        self.starts, self.lengths = starts[self.order], lengths[self.order]
        self.going = [int(np.searchsorted(-self.lengths, -j)) for j in range(1, int(self.lengths[0]))]
        self.scopes: list[Scope] = []
        self.states = [[row[self.starts] for row in rows]]
        for j, going in enumerate(self.going):
            left = [x[:going] for x in self.states[-1]]
            made, scope = folding.apply(left, [row[self.starts[:going] + j + 1] for row in rows])
            self.scopes.append(scope)
            self.states.append(made)

    @property
    def results(self) -> list[Any]:
        """What each run came to."""
        made = [np.array(x) for x in self.states[0]]
        for going, state in zip(self.going, self.states[1:], strict=True):
            for x, new in zip(made, state, strict=True):
                x[:going] = new
        back = np.argsort(self.order)
        return [x[back] for x in made]

    def running(self) -> list[Any]:
        """The running results, in the order of the rows."""
        made = [np.empty_like(row) for row in self.rows]
        for j, state in enumerate(self.states):
            for x, new in zip(made, state, strict=True):
                x[self.starts[: len(new)] + j] = new
        return made

    def back(self, last: Cotangents, running: Cotangents | None = None) -> Cotangents:
        """The cotangents of the rows, from those of the results (and of the running results)."""
        given: Cotangents = [None] * len(self.rows)
        state = [None if g is None else np.array(g)[self.order] for g in last]
        for j in reversed(range(len(self.going))):
            going = self.going[j]
            here = self.starts[:going] + j + 1
            arrived = [None if g is None else np.array(g[:going]) for g in state]
            if running is not None:
                arrived = [_plus(g, None if r is None else r[here]) for g, r in zip(arrived, running, strict=True)]
            left, right = self.folding.back(self.scopes[j], arrived, going)
            state = [_set(g, slice(going), a, x) for g, a, x in zip(state, left, self.states[0], strict=True)]
            given = [_set(g, here, b, row) for g, b, row in zip(given, right, self.rows, strict=True)]
        if running is not None:
            first = [None if r is None else r[self.starts] for r in running]
            state = [_plus(g, r) for g, r in zip(state, first, strict=True)]
        return [_set(g, self.starts, own, row) for g, own, row in zip(given, state, self.rows, strict=True)]


class Segments:
    """Groups of consecutive rows, each folded in pieces of about the square root of the length of all."""

    def __init__(self, folding: Folding, rows: Element, lengths: Any) -> None:
        self.folding, self.rows, self.count = folding, rows, int(np.sum(lengths))
        piece = max(1, math.isqrt(self.count))
        pieces = -(-lengths // piece)
        ends = np.cumsum(lengths)
        starts = np.concatenate([np.arange(e - n, e, piece) for e, n in zip(ends, lengths, strict=True)])
        until = np.minimum(starts + piece, np.repeat(ends, pieces))
        self.starts, self.lengths = starts, until - starts
        self.inner = Steps(folding, rows, starts, self.lengths)
        self.outer = Steps(folding, self.inner.results, np.cumsum(pieces) - pieces, pieces)

    def back(self, cotangents: Cotangents) -> Cotangents:
        """The cotangents of the rows, from those of the groups' results."""
        return self.inner.back(self.outer.back(cotangents))

    def back_running(self, cotangents: Cotangents) -> Cotangents:
        """The same for the running results of one group."""
        first = int(self.lengths[0])
        if len(self.starts) == 1:
            return self.inner.back([None] * len(self.rows), cotangents)
        local = [x[first:] for x in self.inner.running()]
        before = np.repeat(np.arange(len(self.starts) - 1), self.lengths[1:])
        _, scope = self.folding.apply([x[before] for x in self.outer.running()], local)
        rest = [None if g is None else g[first:] for g in cotangents]
        left, right = self.folding.back(scope, rest, self.count - first)
        carried: Cotangents = []
        for a, row in zip(left, self.outer.rows, strict=True):
            carried.append(None if a is None else _sums(before, a, row))
        running = [_set(None, slice(first, None), b, row) for b, row in zip(right, self.rows, strict=True)]
        start = [None if g is None else g[:first] for g in cotangents]
        running = [_set(g, slice(first), c, row) for g, c, row in zip(running, start, self.rows, strict=True)]
        last = self.outer.back([None] * len(self.rows), carried)
        return self.inner.back(last, running)


def _set(target: Any, where: Any, value: Any, like: Any) -> Any:
    """An array like another one, zero at first, with a value (None: zero) set somewhere; None while nothing is."""
    if target is None:
        if value is None:
            return None
        target = np.zeros_like(like)
    target[where] = 0 if value is None else value
    return target


def _sums(places: Any, values: Any, like: Any) -> Any:
    """Values added up at places of an array like another one."""
    total = np.zeros_like(like)
    np.add.at(total, places, values)
    return total


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b
