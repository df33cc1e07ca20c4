"""Index-set splitting (Allen and Kennedy 2002, section 5.7; Wolfe 1989): lanes away from borders ask of no border.

What wraps around, is padded or chosen by its place needs a remainder, a test or a guard for each element, and reads
what lies anywhere. But most elements are inside, where all of these are known and reads are contiguous::

    lanes j < m by 32                                  lanes j < m by 32
      let t = (j - 1) % m                                let last = -1 % m
      let s = x[i, t?]                                   if all(1 <= j and j < m)
      let r = select(j + 1 < m, x[i, j + 1?], 0.0)  =>     let s = x[i, j - 1]
      y[i, j] = s + r                                      ...
                                                         else
                                                           let t = select(last + j < m, last + j, last + j - m)
                                                           ...

Such *conditions* are comparisons of an index that moves with the lane by one, with what does not vary: guards of rows
that are read or written, remainders, integers that are compared, clamped ones. Those of guards hold inside, and a
remainder wraps nothing there. A comparison is known inside if it changes near an end of the loop, so that no more than
a constant number of lanes lie beyond; one of rows, as ``0 <= i - 1``, if it changes near an end of the loop over these.
What holds in the inside of all conditions is code of its own, for the strips that lie there as a whole. Each strip asks
by its first and last lane: so sums along the lanes add the same numbers in the same order whether or not the loop is
split, and the loop stays one loop.

Loops inside, as over the points of a stencil, move an index further: what holds for all of their iterations holds where
it does for the worst of them. So of ``x[i, j + k - 1?]`` with ``k < 3`` the inside is ``1 <= j and j + 1 < m``.

Quotients by what the run says are one number in most strips, another condition (``strip_quotients.py``). Elsewhere, the
remainder of a lane below the divisor is one subtraction: that of its offset is the same in all lanes.

It comes after what fuses, chunks or hoists: these should meet each loop once, and with one body.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ....core.dims import Dim, DimAtom, Name, Opaque
from ....core.ranges import never_negative
from ....core.types import bool_, i64
from ... import ir
from ...decisions import Decisions, writes_text
from ...target import (
    FARTHEST_BORDER,
    GUARD_COST,
    LANE_ACROSS_COST,
    SPLIT_GAIN,
    SPLIT_INDEX_PARTS,
    SPLIT_STATEMENTS,
    SURVEY_UNKNOWN_ITERATIONS,
    Target,
)
from .affine_lanes import ZERO, Affine, factor_of, in_range, with_values
from .strip_quotients import DIVISIONS, Quotients, rows_of

# What conditions decide, of two integers.
_DECIDED = frozenset(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "minimum", "maximum"])


def split(function: ir.Function, target: Target, decisions: Decisions) -> ir.Function:
    """A function whose lanes are split into those inside and those at borders."""
    sizes = {size: Dim.atom(Name(size)) for size in function.sizes}
    splitting = _Splitting(target, ir.unused_names(function), decisions, _with_decided(function.body))
    return replace(function, body=splitting.block(function.body, sizes, {}, frozenset()))


def _with_decided(block: ir.Block) -> set[int]:
    """The lanes in which conditions may decide something, and all that they stand in, by ``id``."""
    found = set[int]()
    for statement in block:
        if isinstance(statement, ir.For) and statement.kind == "lanes":
            inner = {id(statement)} if any(map(_is_decided, _parts(statement.body))) else set[int]()
        else:
            inner = set[int]().union(*map(_with_decided, ir.blocks_of(statement)))
        found |= inner | {id(statement)} if inner else inner
    return found


@dataclass
class _Splitting:
    """Goes through blocks; ``known`` are the integers in scope, ``copies`` the names that vary with a jam around.

    ``around`` are the extents of the loops around, but of those over blocks, which may be few. ``wanted`` are the lanes
    that it is for, and what they stand in, by ``id``.
    """

    target: Target
    fresh: Callable[[str], str]
    decisions: Decisions
    wanted: set[int]

    def block(
        self, block: ir.Block, known: Mapping[str, Dim], around: Mapping[Name, Dim], copies: frozenset[str]
    ) -> ir.Block:
        if self.wanted.isdisjoint(map(id, block)):
            return block
        made: list[ir.Statement] = []
        scope = dict(known)
        for statement in block:
            match statement:
                case ir.Let(name, value):
                    _know(scope, name, value)
                    copies |= {name} if not copies.isdisjoint(ir.names_in([value])) else frozenset()
                case ir.Declare(name):
                    copies |= {name} if copies else frozenset()
                case ir.For(kind="lanes"):
                    if id(statement) in self.wanted:
                        lanes = _Lanes(statement, scope, around, copies, self.target, self.fresh)
                        statement = lanes.split(self.decisions)
                case ir.For(variable, extent, kind):
                    # It is never negative, as sizes are.
                    turn = Dim.of(0) if extent == ir.Constant(1) else Dim.atom(Name(variable))
                    within = {**scope, variable: turn}
                    inner = copies | {variable} if kind == "jam" else copies
                    turns = ir.dim_of(extent, scope)
                    loops = {**around, Name(variable): turns} if turns is not None and _is_plain(turns) else around
                    statement = replace(statement, body=self.block(statement.body, within, loops, inner))
                case _:
                    inside = functools.partial(self.block, known=scope, around=around, copies=copies)
                    statement = ir.map_inside(statement, inside)
            made.append(statement)
        return tuple(made)


def _know(scope: dict[str, Dim], name: str, value: ir.Expression) -> None:
    """Enter an integer as far as it is known; any other is nothing but itself."""
    dim = ir.dim_of(value, scope) if value.type == i64 else None
    scope[name] = Dim.atom(Opaque(len(scope))) if dim is None else dim


class _Lanes:
    """A loop along lanes. A *condition* is an integer that is not negative inside."""

    def __init__(
        self,
        loop: ir.For,
        known: Mapping[str, Dim],
        around: Mapping[Name, Dim],
        copies: frozenset[str],
        target: Target,
        fresh: Callable[[str], str],
    ) -> None:
        self.loop, self.around, self.target, self.fresh = loop, around, target, fresh
        self.lets = {each.name: each for each in loop.body if isinstance(each, ir.Let)}
        self.inner_lets, self.turns = _inside(loop.body, self.lets)
        seen = {*self.lets, *self.inner_lets, *self.turns}
        self.hidden = (ir.bound_in(loop.body) - seen) | ir.assigned_in(loop.body) | copies  # no conditions of these
        self.written = ir.written_in(loop.body)
        self.known = dict(known) | {name: Dim.atom(Name(name)) for name in self.turns}
        for name, let in (self.lets | self.inner_lets).items():
            _know(self.known, name, let.value)
        self.extents = {Name(name): self.dim(extent) for name, extent in self.turns.items()}
        self.conditions: list[Affine] = []
        self.quotients = Quotients(loop, fresh)
        self.moves: dict[str, Affine | None] = {}
        self.affines: dict[int, tuple[ir.Expression, Affine | None]] = {}  # by ``id``, for these conditions and moves
        self.still: frozenset[str] = frozenset()  # what varies with no lane, inside or at borders
        self.look()
        self.still = frozenset([name for name in self.lets if (found := self.moves[name]) and found.step == 0])

    def split(self, decisions: Decisions) -> ir.For:
        """The loop, with another body for the strips inside if that is worth it."""
        loop, body = self.loop, self.loop.body
        if sum(1 for _ in ir.walk(body)) > SPLIT_STATEMENTS:
            return loop
        offsets: list[ir.Let] = []
        outside = self.rewritten(body, lambda e: self.wrapped(e, offsets))
        now = self.cost(ir.without_unused(body))
        while self.added(body, self.of_operation) or self.divided(body):
            pass  # what is decided may be an operand of what will be
        self.added(self.rewritten(body, self.decided), self.of_access)
        inside, tests = self.rewritten(body, self.decided), self.tests()
        least = self.cost(inside)
        if least >= now:
            return loop
        if not tests:
            return replace(loop, body=inside)
        quotients = self.quotients.lets
        values = [*tests, *[each.value for each in (*offsets, *quotients)]]
        before = ir.bindings_of(values, list(self.lets.values()))
        if not self.room() or any(not self.written.isdisjoint(ir.names_of(each.value)[1]) for each in before):
            return loop
        wanted = least <= (1 - SPLIT_GAIN) * now
        if not decisions.take("split", f"lanes of {writes_text(loop)}", wanted=wanted):
            return loop
        moved = {each.name for each in before}
        blocks = [tuple([s for s in b if not (isinstance(s, ir.Let) and s.name in moved)]) for b in (inside, outside)]
        choice = ir.If(ir.All(functools.reduce(lambda a, b: a & b, tests)), blocks[0], blocks[1])
        return replace(loop, body=(*before, *quotients, *offsets, choice))

    # What moves with the lane

    def look(self) -> None:
        """Find how what is bound at the top of the body moves, where the conditions hold that there are so far."""
        self.moves = {self.loop.variable: Affine(1, ZERO)}
        self.affines.clear()
        for name, let in self.lets.items():
            moving = None if name in self.hidden else self.affine(let.value)
            if moving is not None and not moving.step and self.chosen(let.value) is None:
                if name in self.still or not self.conditions:
                    moving = Affine(0, ir.Variable(name, let.value.type))
                elif _is_long(moving.base):
                    moving = None  # opened, since it is still where the conditions hold alone, and these come first
            self.moves[name] = moving
        # Further inside an integer is opened: a condition stands before the lanes, where its name is not bound.
        for name, let in self.inner_lets.items():
            moving = None if name in self.hidden else self.affine(let.value)
            if moving is not None and (let.value.type != i64 or _is_long(moving.base)):
                moving = None if moving.step else Affine(0, ir.Variable(name, let.value.type))
            self.moves[name] = moving

    def affine(self, e: ir.Expression) -> Affine | None:
        """How an expression moves with the lane; None if not by a constant.

        It is looked for once: a choice asks for its operands, and so do those who ask which of them it is.
        """
        if id(e) not in self.affines:
            self.affines[id(e)] = e, self.affine_of_parts(e)
        return self.affines[id(e)][1]

    def affine_of_parts(self, e: ir.Expression) -> Affine | None:
        """The same, from how its parts move."""
        match e:
            case ir.Variable(name):
                return None if name in self.hidden else self.moves.get(name, Affine(0, e))
            case ir.Constant():
                return Affine(0, e)
        chosen = self.chosen(e)
        if chosen is not None:
            return chosen
        parts = [self.affine(each) for each in ir.operands(e)]
        match e, parts:
            case ir.Apply(primitive), [Affine() as a, Affine() as b] if e.type == i64 and (a.step or b.step):
                return a.plus(b) if primitive.name == "add" else a.less(b) if primitive.name == "subtract" else None
        if isinstance(e, ir.Load) and e.buffer.name in self.written:
            return None
        still = [part.base for part in parts if part is not None and part.step == 0]
        if len(still) < len(parts):
            return None
        opened = iter(still)
        return Affine(0, ir.map_operands(e, lambda _: next(opened)))

    def chosen(self, e: ir.Expression) -> Affine | None:
        """Which of its operands a clamped integer is, or the first one of a remainder, where the conditions hold."""
        if not isinstance(e, ir.Apply) or e.type != i64 or (e.primitive.name == "remainder" and not self.conditions):
            return None
        operand = self.decided(e)
        return None if operand is None else self.affine(operand)

    def row(self, indices: Sequence[ir.Expression]) -> bool:
        """Whether indices are those of elements side by side."""
        *others, last = [self.affine(index) for index in indices] or [None]
        return last is not None and abs(last.step) == 1 and all(each and each.step == 0 for each in others)

    def within(self, index: ir.Expression, extent: ir.Expression) -> list[Affine]:
        """The conditions by which an index is in range; none if it moves otherwise."""
        i, n = self.affine(index), self.affine(extent)
        return in_range(i, n) if i is not None and n is not None and n.step == 0 and abs(i.step) <= 1 else []

    # Conditions

    def added(self, body: ir.Block, wanted: Callable[[ir.Expression | ir.Store], Sequence[Affine]]) -> bool:
        """Add the conditions that parts of a body want; whether there were new ones."""
        before = len(self.conditions)
        for condition in [each for part in _parts(body) for each in wanted(part)]:
            worst = self.worst(condition)
            if worst is not None and (worst.step or self.near(worst)) and not self.holds(worst):
                self.conditions.append(worst)
                self.affines.clear()
        self.look()
        return len(self.conditions) > before

    def divided(self, body: ir.Block) -> bool:
        """Add the conditions that quotients want to be one number for a strip; whether there were new ones."""
        before, parts = len(self.conditions), list(_parts(body))
        rows = [each for part in parts for each in rows_of(part, self.lets | self.inner_lets)]
        for part in parts:
            match part:
                case ir.Apply(primitive, (a, b)) if part.type == i64 and primitive.name in DIVISIONS:
                    if self.decided(part) is None and (a, b) not in rows and self.is_before(a) and self.is_before(b):
                        self.conditions += self.quotients.add(self.affine(a), self.affine(b))
                        self.affines.clear()
        self.look()
        return len(self.conditions) > before

    def is_before(self, e: ir.Expression) -> bool:
        """Whether an integer that moves with the lane by a constant may be computed before the body."""
        moving = self.affine(e)
        names = ir.names_in([moving.base]) if moving is not None else set()
        loads = moving is None or any(isinstance(part, ir.Load) for part in ir.inside(moving.base))
        return not loads and (self.turns.keys() | self.inner_lets.keys()).isdisjoint(names)

    def worst(self, condition: Affine) -> Affine | None:
        """What a condition is in the iteration of the loops inside that meets it last; None if that is not known."""
        dim, values = self.dim(condition.base), dict[str, ir.Expression]()
        for name in ir.names_in([condition.base]) & self.turns.keys():
            factor = factor_of(dim, Name(name)) if dim else 0
            if not factor:
                return None
            values[name] = ZERO if factor > 0 else self.turns[name] - 1
        base = with_values(condition.base, values) if values else condition.base
        read = any(isinstance(part, ir.Load) for part in ir.inside(base))  # perhaps in no iteration
        bound = not self.inner_lets.keys().isdisjoint(ir.names_in([base]))
        return None if read or bound else replace(condition, base=base)

    def of_access(self, part: ir.Expression | ir.Store) -> Sequence[Affine]:
        """What should hold inside, so that elements side by side are read or written without a guard."""
        if not isinstance(part, ir.Load | ir.Store) or not part.guarded or not self.row(part.indices):
            return []
        axes = [(part.indices[axis], part.buffer.extents[axis]) for axis in part.guarded]
        return [condition for index, extent in axes for condition in self.within(index, extent)]

    def of_operation(self, part: ir.Expression | ir.Store) -> Sequence[Affine]:
        """What should hold inside, so that a remainder is what it is of, or a comparison or a clamped integer known."""
        match part:
            case ir.Apply(primitive, (a, b)) if part.type == i64 and primitive.name == "remainder":
                both = self.within(a, b)
                few = bool(both) and ((both[0].step != 0 and self.below(b)) or all(map(self.near, both)))
                return both if few else []
            case ir.Apply():
                sides = self.sides(part)
                if not sides or any(self.holds(side) for side, _ in sides):
                    return []
                near = [side for side, _ in sides if abs(side.step) <= 1 and self.near(side)]
                return [side for side in near if all(self.more(side, other) for other in near)][:1]
        return []

    def sides(self, e: ir.Apply) -> list[tuple[Affine, ir.Expression]]:
        """The conditions that each decide a comparison, or a clamped integer, and what it then is."""
        if e.primitive.name not in _DECIDED or any(each.type != i64 for each in e.arguments):
            return []
        a, b = (self.affine(each) for each in e.arguments)
        if a is None or b is None:
            return []
        yes, no = ir.Constant(True, bool_), ir.Constant(False, bool_)
        above, below = b.less(a), a.less(b)
        match e.primitive.name:
            case "less":
                return [(above.plus(-1), yes), (below, no)]
            case "less_equal":
                return [(above, yes), (below.plus(-1), no)]
            case "greater":
                return [(above, no), (below.plus(-1), yes)]
            case "greater_equal":
                return [(above.plus(-1), no), (below, yes)]
            case "equal":
                return [(above.plus(-1), no), (below.plus(-1), no)]
            case "not_equal":
                return [(above.plus(-1), yes), (below.plus(-1), yes)]
            case "minimum":
                return [(above, e.arguments[0]), (below, e.arguments[1])]
            case "maximum":
                return [(above, e.arguments[1]), (below, e.arguments[0])]
        return []

    def near(self, condition: Affine) -> bool:
        """Whether all but a constant number of lanes meet a condition."""
        beyond = self.beyond(condition)
        return beyond is not None and self.is_nonnegative(Dim.of(FARTHEST_BORDER) - beyond)

    def is_nonnegative(self, dim: Dim) -> bool:
        """Whether a dim is never below 0, whatever the iterations of the loops inside."""

        def extent(atom: DimAtom) -> Dim | None:
            return self.extents.get(atom) if isinstance(atom, Name) else None

        return never_negative(dim, extent)

    def beyond(self, condition: Affine) -> Dim | None:
        """How many lanes do not meet a condition, or iterations of the loop around that decides it, if above 0."""
        base, extent = self.dim(condition.base), self.dim(self.loop.extent)
        if base is None or extent is None:
            return None
        step = condition.step
        if not step:
            deciding = [name for name in self.around if name in base.atoms()]
            step = factor_of(base, deciding[0]) if len(deciding) == 1 else 0
            if abs(step) != 1:
                return None
            base, extent = base - Dim.atom(deciding[0]) * step, self.around[deciding[0]]
        return -base if step > 0 else extent - 1 - base

    def more(self, one: Affine, other: Affine) -> bool:
        """Whether as many lanes meet a condition as another one, or more."""
        few, many = self.beyond(one), self.beyond(other)
        return few is not None and many is not None and self.is_nonnegative(many - few)

    def dim(self, e: ir.Expression) -> Dim | None:
        return ir.dim_of(e, self.known)

    def holds(self, condition: Affine) -> bool:
        """Whether a condition is one of those that hold inside, or follows from one of them."""
        base = self.dim(condition.base)
        if self.always(condition) or (not condition.step and base is not None and self.is_nonnegative(base)):
            return True
        for each in self.conditions:
            if each.step == condition.step:
                other = self.dim(each.base)
                if each.base == condition.base:
                    return True
                if base is not None and other is not None and self.is_nonnegative(base - other):
                    return True
        return False

    def below(self, size: ir.Expression) -> bool:
        """Whether all lanes are below a size: then no more than one of them wraps around."""
        size_dim, extent = self.dim(size), self.dim(self.loop.extent)
        return size_dim is not None and extent is not None and (size_dim - extent).is_nonnegative()

    # The range inside

    def tests(self) -> list[ir.Expression]:
        """What all lanes of a strip that lies inside meet."""
        lane, found = ir.Variable(self.loop.variable), [*self.quotients.tests]
        lows = [ZERO - each.base for each in self.conditions if each.step > 0]
        highs = [each.plus(1).base for each in self.conditions if each.step < 0]
        found += [each.base >= ZERO for each in self.conditions if not each.step]
        if lows:
            found.append(functools.reduce(ir.maximum, lows) <= lane)
        if highs:
            found.append(lane < functools.reduce(ir.minimum, highs))
        return found

    def always(self, condition: Affine) -> bool:
        """Whether all lanes meet a condition."""
        beyond = self.beyond(condition)
        return beyond is not None and self.is_nonnegative(-beyond)

    def room(self) -> bool:
        """Whether a register of lanes lies inside, as far as that is known."""
        for first, last in product(self.conditions, self.conditions):
            count = self.dim(first.plus(last).plus(1).base)
            if first.step > 0 > last.step and count is not None and (-count).is_nonnegative():
                return False
        extent, width = self.dim(self.loop.extent), self.target.lanes(i64)
        if extent is not None and (Dim.of(width) - extent).is_nonnegative():
            return False  # some of so few lanes are outside
        moving = [each for each in self.conditions if each.step]
        beyond = [self.beyond(each) for each in moving]
        counts = [0 if each is None else each.constant for each in beyond]
        if extent is None or extent.constant is None or None in counts:
            return True
        low = max([n for n, each in zip(counts, moving) if n is not None and each.step > 0], default=0)
        high = max([n for n, each in zip(counts, moving) if n is not None and each.step < 0], default=0)
        return max(low, 0) // -width * -width + width <= extent.constant - max(high, 0)

    # The body inside, and elsewhere

    def rewritten(self, body: ir.Block, rewrite: Callable[[ir.Expression], ir.Expression | None]) -> ir.Block:
        """A body in which expressions are others where these are known, with what follows from that."""
        values: dict[str, ir.Expression] = {}
        combined = {each.name for each in self.loop.reductions}  # they stay what something is combined into

        def expression(e: ir.Expression) -> ir.Expression:
            if isinstance(e, ir.Variable):
                return values.get(e.name, e)
            other = rewrite(e)
            if other is not None:
                return expression(other)
            e = ir.map_operands(e, expression)
            combines = any([isinstance(each, ir.Variable) and each.name in combined for each in ir.operands(e)])
            return e if combines else _folded(e)

        def store(s: ir.Store) -> ir.Store:
            return replace(s, guarded=self.unsure(s)) if rewrite == self.decided else s

        made: list[ir.Statement] = []
        for statement in ir.map_block(body, lambda e: e, store):
            (statement,) = ir.map_block((statement,), expression, lambda s: s)
            if isinstance(statement, ir.Let) and isinstance(statement.value, ir.Constant | ir.Variable):
                values[statement.name] = statement.value
            else:
                made.append(statement)
        return ir.without_unused(made)

    def decided(self, e: ir.Expression) -> ir.Expression | None:
        """What an expression is inside, if conditions decide that."""
        match e:
            case ir.Load() if e.guarded and (left := self.unsure(e)) != e.guarded:
                return replace(e, guarded=left)
            case ir.Apply(primitive, (a, b)) if e.type == i64 and primitive.name in DIVISIONS:
                both = self.within(a, b) if primitive.name == "remainder" else []
                if both and all(map(self.holds, both)):
                    return a
                quotient = self.quotients.of(self.affine(a), self.affine(b))
                return quotient if quotient is None or primitive.name == "floor_divide" else a - quotient * b
            case ir.Apply():
                return next((value for side, value in self.sides(e) if self.holds(side)), None)
        return None

    def unsure(self, access: ir.Load | ir.Store) -> tuple[int, ...]:
        """The axes that stay guarded inside."""

        def sure(axis: int) -> bool:
            both = self.within(access.indices[axis], access.buffer.extents[axis])
            return bool(both) and all(map(self.holds, both))

        return tuple([axis for axis in access.guarded if not sure(axis)])

    def wrapped(self, e: ir.Expression, offsets: list[ir.Let]) -> ir.Expression | None:
        """A remainder without a division in each lane: that of its offset is the same in all lanes."""
        match e:
            case ir.Apply(primitive, (a, n)) if e.type == i64 and primitive.name == "remainder":
                moving = self.affine(a)
                if not self.within(a, n) or moving is None or moving.step == 0 or not self.below(n):
                    return None
                lane, start = ir.Variable(self.loop.variable), self.bound(moving.base % n, offsets)
                if moving.step > 0:
                    return ir.select(start + lane < n, start + lane, start + lane - n)
                return ir.select(lane <= start, start - lane, start - lane + n)
        return None

    def bound(self, offset: ir.Expression, offsets: list[ir.Let]) -> ir.Expression:
        """The name of an offset before the lanes, where it is the same in all iterations of the loops inside."""
        if not (self.turns.keys() | self.inner_lets.keys()).isdisjoint(ir.names_in([offset])):
            return offset
        name = next((each.name for each in offsets if each.value == offset), None)
        if name is None:
            name = self.fresh("offset")
            offsets.append(ir.Let(name, offset))
        return ir.Variable(name)

    def cost(self, block: ir.Block) -> float:
        """About how many additions a lane takes."""
        total = 0.0
        for statement in block:
            for part in _parts((statement,), deep=False):
                match part:
                    case ir.Load(_, indices, guarded) | ir.Store(_, indices, _, guarded):
                        across = any((moving := self.affine(i)) is None or moving.step for i in indices)
                        total += 1 if not across or self.row(indices) else LANE_ACROSS_COST
                        total += GUARD_COST * len(guarded)
                    case ir.Apply(primitive) if (moving := self.affine(part)) is None or moving.step:
                        total += primitive.cost
                    case ir.Select() | ir.MultiplyAdd():
                        total += 1
            total += sum(map(self.cost, ir.blocks_of(statement))) * (
                SURVEY_UNKNOWN_ITERATIONS if isinstance(statement, ir.For) else 1
            )
        return total


def _is_long(e: ir.Expression) -> bool:
    return sum(1 for _ in ir.inside(e)) > SPLIT_INDEX_PARTS


def _is_plain(dim: Dim) -> bool:
    """Whether an extent is made of sizes and other variables, without a quotient as of blocks, or an extremum."""
    return all(isinstance(atom, Name) for monomial, _ in dim.terms for atom in monomial)


def _inside(body: ir.Block, outside: Container[str]) -> tuple[dict[str, ir.Let], dict[str, ir.Expression]]:
    """What is bound further inside of lanes, and the variables of loops that run in order, with their extents.

    These extents are the same in all lanes. A name that is bound twice, as in two branches, is left out.
    """
    bound = ir.bound_in(body) | ir.assigned_in(body)
    binding = [each for each in ir.walk(body) if isinstance(each, ir.Let | ir.For)]
    times = Counter([each.name if isinstance(each, ir.Let) else each.variable for each in binding])
    lets = {each.name: each for each in binding if isinstance(each, ir.Let) and each.name not in outside}
    loops = [each for each in binding if isinstance(each, ir.For) and each.kind == "sequential"]
    turns = {each.variable: each.extent for each in loops if bound.isdisjoint(ir.names_in([each.extent]))}
    once = {name for name, count in times.items() if count == 1}
    return {name: lets[name] for name in lets if name in once}, {name: turns[name] for name in turns if name in once}


def _is_decided(part: ir.Expression | ir.Store) -> bool:
    """Whether conditions may decide something: a guard, a remainder, a comparison or a clamped integer."""
    match part:
        case ir.Load() | ir.Store():
            return bool(part.guarded)
        case ir.Apply(primitive, arguments):
            return primitive.name in (*_DECIDED, *DIVISIONS) and arguments[0].type == i64
    return False


def _parts(block: ir.Block, deep: bool = True) -> Iterator[ir.Expression | ir.Store]:
    """The expressions of a block, and what they are made from, and its stores."""
    for statement in ir.walk(block) if deep else block:
        if isinstance(statement, ir.Prefetch):
            continue  # its indices need not be in range
        if isinstance(statement, ir.Store):
            yield statement
        for whole in ir.expressions_of(statement):
            yield from ir.inside(whole)


def _folded(e: ir.Expression) -> ir.Expression:
    """An expression whose parts may be known now."""
    match e:
        case ir.Select(ir.Constant(holds), then, orelse):
            return then if holds else orelse
        case ir.Apply(primitive, (a, b)) if primitive.name == "logical_and":
            return a & b
        case ir.Apply(primitive, (a, b)) if primitive.name == "logical_or":
            return a | b
        case ir.Apply(primitive, (ir.Constant() as a,)) if primitive.name == "logical_not":
            return ~a
    return e
