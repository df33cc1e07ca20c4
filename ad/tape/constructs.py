"""The rules of constructs in the return sweep of a trace, one a function; folds have theirs in ``folds.py``.

A rule is given the construct it was come to (``sweeps.Visit``) and the cotangents of its results, and gives what it
reads its contributions: one a variable, summed over all the lanes of a loop. ``y_bar`` is the cotangent of y.
"""

from __future__ import annotations

import functools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from ...core.builder import build
from ...core.environment import Env
from ...core.graph import Value
from ...core.placement import to_block
from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import Accumulator, element, is_float, rank
from ...interpreters.evaluate.batches import mesh
from ...interpreters.simplify import simplify
from ...interpreters.trace.recording import rebuilt
from .. import cells
from ..reverse import Reverse
from .cotangents import Sparse, picked
from .folds import histogram, reduce, scan
from .plan import variables
from .sweeps import Final, Rule, Visit


def generate(visit: Visit, cotangents: list[Any]) -> None:
    """``y[i] = f(i)``:  the return sweep of f for all i at once, given ``y_bar[i]``: a map again (van Hus 4.3.1).

    Where all cotangents are sparse only the elements that have one are swept.
    """
    extent = visit.extent(visit.operation.args[0])
    rows = None
    sparse = [cotangent for cotangent in cotangents if isinstance(cotangent, Sparse)]
    if sparse and not visit.sinks and len(sparse) == sum(cotangent is not None for cotangent in cotangents):
        touched = np.zeros(extent, bool)
        for places in [np.ravel(places[0]) for given in sparse for places, _ in given.parts]:
            touched[places[(places >= 0) & (places < extent)]] = True
        rows = None if touched.all() else np.flatnonzero(touched)
    columns = visit.whole(cotangents)
    if rows is not None:
        columns = [None if column is None else column[rows] for column in columns]
    visit.sweep.lanes(visit, visit.operation.blocks[0], [extent if rows is None else len(rows)], columns, rows)


def scatter(visit: Visit, cotangents: list[Any]) -> None:
    """``y = x with y[k_i] = v_i``:  ``v_i_bar = y_bar[k_i]`` if v_i is there, ``x_bar = y_bar`` where nothing is."""
    operation, sweep = visit.operation, visit.sweep
    count = operation.static[1]
    extents, destinations = operation.args[:count], operation.args[count:]
    (body,) = operation.blocks
    axes = len(body.results) - len(destinations)
    if not extents and axes == rank(destinations[0].type) and not sweep.batch:
        _update(visit, cotangents)
        return
    cotangents = visit.whole(cotangents)
    counts = [visit.extent(extent) for extent in extents]
    code = sweep.code(body)
    columns = sweep.evaluate.for_each(counts, lambda *i: code.run(visit.env, i), code.effects, code.ranks)[:axes]
    columns = [sweep.evaluate.filled(column, len(counts)) for column in columns]
    places = [column.reshape(math.prod(counts), *sweep.batch) for column in columns]
    shape = np.shape(visit.value(destinations[0]))[:axes]
    inside = functools.reduce(
        np.logical_and, [(place >= 0) & (place < n) for place, n in zip(places, shape, strict=True)]
    )
    if not inside.any():
        for destination, cotangent in zip(destinations, cotangents, strict=True):
            visit.give(destination, cotangent)
        return
    chosen = np.nonzero(inside)
    winner = np.full((*shape, *sweep.batch), -1)
    winner[(*[place[chosen] for place in places], *chosen[1:])] = chosen[0]  # of two writes, the last one stays
    within = [np.where(inside, place, 0) for place in places]
    numbers, *behind = mesh(inside.shape)
    there = inside & (winner[(*within, *behind)] == numbers)
    seeds: list[Any] = [None] * axes
    for destination, cotangent in zip(destinations, cotangents, strict=True):
        if cotangent is None:
            seeds.append(None)
            continue
        own = rank(destination.type) - axes
        free = winner.reshape(*shape, *(1,) * own, *sweep.batch) < 0
        visit.give(destination, np.where(free, cotangent, cotangent.dtype.type(0)))
        rows = picked(cotangent, within, own, there)
        seeds.append(rows.reshape(*counts, *rows.shape[1:]))
    if counts:
        sweep.lanes(visit, body, counts, seeds)
    else:
        sweep.once(visit, body, [], seeds)


def _update(visit: Visit, cotangents: list[Any]) -> None:
    """One element written, outside of all loops: sparse cotangents stay so."""
    (body,), destinations = visit.operation.blocks, visit.operation.args
    made = visit.sweep.code(body).run(visit.env, ())
    at = tuple([int(place) for place in made[: len(made) - len(destinations)]])
    shape = np.shape(visit.value(destinations[0]))
    inside = all(0 <= place < n for place, n in zip(at, shape, strict=True))
    seeds: list[Any] = [None] * len(at)
    for destination, cotangent in zip(destinations, cotangents, strict=True):
        if cotangent is None or not inside:
            visit.give(destination, cotangent)
            seeds.append(None)
        elif isinstance(cotangent, Sparse):
            zero = element(destination.type).dtype.type(0)
            taken, parts = zero, []
            for places, values in cotangent.parts:
                here = functools.reduce(np.logical_and, [p == q for p, q in zip(places, at, strict=True)])
                if np.ndim(here) == 0 and not here:
                    parts.append((places, values))
                    continue
                taken = taken + np.sum(np.where(here, values, zero))
                if np.ndim(here):
                    parts.append((places, np.where(here, zero, values)))
            visit.give(destination, Sparse(parts) if parts else None)
            seeds.append(taken)
        else:
            seeds.append(cotangent[at])
            rest = np.array(cotangent)
            rest[at] = 0
            visit.give(destination, rest)
    visit.sweep.once(visit, body, [], seeds)


def accumulate(visit: Visit, cotangents: list[Any]) -> None:
    """``y = accumulate x: y[k_j] += v_j``:  ``x_bar = y_bar``, and inside, the accumulator stands for y_bar."""
    initials = visit.operation.args
    for initial, cotangent in zip(initials, cotangents, strict=False):
        visit.give(initial, cotangent)
    cotangents = visit.whole(cotangents)
    finals = cotangents[: len(initials)]
    visit.sweep.once(visit, visit.operation.blocks[0], [Final(f) for f in finals], cotangents[len(initials) :], finals)


def add_to(visit: Visit, cotangents: list[Any]) -> None:
    """``acc[k] += v``:  ``v_bar = y_bar[k]``, where y is the accumulator's final value."""
    accumulator, value, *indices = visit.operation.args
    final = visit.value(accumulator).cotangent
    if indices:
        places = [visit.value(place) for place in indices]
        behind = final.shape[len(places) :]
        shape = np.broadcast_shapes(behind, *map(np.shape, places))
        tests = [(place >= 0) & (place < n) for place, n in zip(places, final.shape, strict=False)]
        inside = np.broadcast_to(functools.reduce(np.logical_and, tests), shape)
        if final.size == 0:
            final = np.zeros(shape, final.dtype)
        else:
            within = [np.where(test, place, 0) for test, place in zip(tests, places, strict=True)]
            final = np.where(inside, final[(*within, *mesh(behind))], final.dtype.type(0))[()]
    visit.give(value, final)


def custom(visit: Visit, cotangents: list[Any]) -> None:
    """By its rule ``x_bar = rule(x, y_bar)``; what its body captures moves it as the body says."""
    operation, sweep = visit.operation.with_rules, visit.sweep
    if "vjp" not in operation.static:
        derived(visit, cotangents)
        return
    cotangents = visit.whole(cotangents)
    body, rule = operation.blocks[0], operation.blocks[1 + operation.static.index("vjp")]
    values = [visit.value(arg) for arg in operation.args]
    if any(map(visit.moves, body.free)):
        sweep.once(visit, body, values, cotangents)
    if not any(map(visit.moves, operation.args)):
        return
    arrived = [
        sweep.evaluate.filled(np.zeros(np.shape(result)[: rank(type)], element(type).dtype), rank(type))
        if cotangent is None
        else cotangent
        for cotangent, result, type in zip(cotangents, visit.results, operation.types, strict=True)
        if is_float(type)
    ]
    code = sweep.code(body)

    def itself(*arguments: Any) -> list[Any]:
        return code.run(visit.env, arguments)

    with sweep.checking():
        made = sweep.code(rule).run(visit.env, [itself, *values, *arrived])
    for arg, contribution in zip([arg for arg in operation.args if is_float(arg.type)], made, strict=True):
        visit.give(arg, sweep.evaluate.filled(contribution, rank(arg.type)) if rank(arg.type) else contribution)


def probe(visit: Visit, cotangents: list[Any]) -> None:
    """``y = x``, shown:  ``x_bar = y_bar``, shown under a name of its own."""
    sweep, args = visit.sweep, visit.operation.args
    cotangents = visit.whole(cotangents)
    moving = [g for arg, g in zip(args, cotangents, strict=True) if g is not None and visit.moves(arg)]
    sweep.evaluate.show(sweep.probes[visit.operation.static[0]], moving)
    for arg, cotangent in zip(args, cotangents, strict=True):
        visit.give(arg, cotangent)


# What has no rule here: reverse mode on terms, of one operation


def derived(visit: Visit, cotangents: list[Any]) -> None:
    """The return sweep that reverse mode (``reverse.py``) makes of the operation as a program of its own."""
    cotangents = visit.whole(cotangents)
    found = tuple(dict.fromkeys([atom for atom in variables(visit.operation) if isinstance(atom, Variable)]))
    found = tuple([x for x in found if not isinstance(x.type, Accumulator) or x.index in visit.sinks])
    active = tuple([visit.moves(variable) for variable in found])
    term = _derived(visit.operation, found, active, tuple([cotangent is not None for cotangent in cotangents]))
    values = [visit.value(variable) for variable in found]
    values = [value.cotangent if isinstance(value, Final) else value for value in values]
    code = visit.sweep.code(term)
    made = code.run(Env(), [*values, *[cotangent for cotangent in cotangents if cotangent is not None]])
    moving = [variable for variable in found if visit.moves(variable)]
    for variable, contribution in zip(moving, made, strict=True):
        r = rank(variable.type)
        visit.give(variable, visit.sweep.evaluate.filled(contribution, r) if r else contribution)


@lru_cache(maxsize=256)
def _derived(
    operation: Operation, found: tuple[Variable, ...], active: tuple[bool, ...], given: tuple[bool, ...]
) -> Block:
    """The term of a return sweep: of the variables and the cotangents, giving those of the active variables."""
    places = {variable.index: len(found) - 1 - k for k, variable in enumerate(found)}
    inner = Block(
        tuple([variable.type for variable in found]),
        (_renumbered(operation, places),),
        tuple([Variable(len(operation.types) - 1 - k, type) for k, type in enumerate(operation.types)]),
    )
    moved = [type for type, one in zip(operation.types, given, strict=True) if one]
    with build() as builder:

        def run(*binders: Value) -> list[Value]:
            sweep = cells.Sweep(builder)
            entries = [
                cells.Entry(None, None, value)
                if isinstance(variable.type, Accumulator)
                else cells.Entry(value, cells.Cell(sweep, value) if moves else None)
                for variable, value, moves in zip(found, binders, active, strict=False)
            ]
            reverse, rest = Reverse(sweep), iter(binders[len(found) :])
            _, pull = reverse.meaning(inner).run(Env(), entries)
            reverse.checks = False
            pull([next(rest) if one else None for one in given])
            return [entry.cell.total_or_zero() for entry in entries if entry.cell is not None]

        types = [type.of if isinstance(type, Accumulator) else type for type in inner.binders]
        body = builder.body([*types, *moved], run)
        block, _ = to_block(body.binders, body.results, body.statements)
    return simplify(block)


def _renumbered(operation: Operation, places: dict[int, int]) -> Operation:
    """The operation where variables from outside are bound at other indices."""

    def moved(variable: Variable, bound: int) -> Atom:
        return Variable(places[variable.index] + bound, variable.type)

    args = tuple([moved(atom, 0) if isinstance(atom, Variable) else atom for atom in operation.args])
    blocks = tuple([rebuilt(block, moved) for block in operation.blocks])
    return Operation(operation.op, operation.static, args, blocks, operation.types, operation.origin)


def _folded(rule: Rule) -> Rule:
    """A rule of a fold, for operators that run in batches; what has an order is left to reverse mode on terms."""

    def run(visit: Visit, cotangents: list[Any]) -> None:
        ordered = visit.sweep.code(visit.operation.blocks[1]).effects.ordered
        (derived if ordered else rule)(visit, cotangents)

    return run


RULES: dict[str, Rule] = {
    "generate": generate,
    "reduce": _folded(reduce),
    "scan": _folded(scan),
    "histogram": _folded(histogram),
    "scatter": scatter,
    "accumulate": accumulate,
    "add_to": add_to,
    "custom": custom,
    "probe": probe,
}


def rule_of(op: str) -> Rule:
    """The rule of a construct."""
    return RULES.get(op, derived)
