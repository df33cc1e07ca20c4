"""Lanes: which loop of a nest is the vector, which ones run side by side, and in which order the others run.

A loop costs as lanes what it costs to read and write along it: little where elements are side by side or the same for
all lanes, more where they are transposed or copied first, most where each lane reads elsewhere. Sums may be lanes, too;
these are then to be added up at the end. The cheapest loop is the lane; where sizes decide there is a second choice.
A temporary is contiguous along the lane that fills it, so what its readers pay for that counts, too (``readers.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.types import i64
from .. import ir
from ..target import (
    JAM_COPIES,
    LANE_ACROSS_COST,
    LANE_HALVING_COST,
    LANE_LATENCY,
    LANE_NEAR_COST,
    LANE_SAME_COST,
    LANE_TURNED_COST,
    LONG_STRIP_BINDINGS,
    LONG_STRIP_READ,
    SQUARE_LEAST_BITS,
    STRIP_REGISTERS,
    SURVEY_UNKNOWN_ITERATIONS,
    WAITING_HELD,
    WAITING_STRIP_REGISTERS,
    WIDE_STRIP_BINDINGS,
    Target,
)
from .survey import Access, Survey

# What it costs all those who read an array that one of its axes is the last one in memory.
Reading = Callable[[str, int], float]


def contiguous(access: Access, variable: str, axis: int, near: bool = False) -> bool:
    """Whether the variable moves along this axis alone, one element a step; or by a few, if these are ``near``."""
    others = [each for k, each in enumerate(access.varies) if k != axis]
    moves = access.steps[axis] | access.near[axis] if near else access.steps[axis]
    return variable in moves and not any(variable in each for each in others)


def packable(access: Access, variable: str, loops: Sequence[ir.Axis]) -> bool:
    """Whether a read across the lane is of distinct plain loops, and repeated for some other loop."""
    names = [index.name for index in access.indices if isinstance(index, ir.Variable)]
    around = {loop.variable.name for loop in loops} | set(access.around)
    plain = len(names) == len(access.indices) == len(set(names)) and set(names) <= around
    return plain and variable in names and len(names) < len(around) and access.weight > 1


def gathered(access: Access, variable: str, loops: Sequence[ir.Axis], inner: dict[str, ir.For]) -> int | None:
    """The axis along which a repeated read goes across the lane at a place that is not of plain loops alone."""
    known = {loop.variable.name for loop in loops} | set(inner)
    plain = all(isinstance(index, ir.Variable) and index.name in known for index in access.indices)
    axes = [axis for axis, mentioned in enumerate(access.varies) if variable in mentioned]
    if plain or len(axes) != 1 or access.weight <= 1 or len(loops) < 2 or axes[0] in access.guarded:
        return None
    return axes[0] if access.indices[axes[0]] == ir.Variable(variable) else None


def _load_cost(
    access: Access, variable: str, loops: Sequence[ir.Axis], inner: dict[str, ir.For], whole: bool = False
) -> float:
    if not access.mentions(variable):
        return LANE_SAME_COST
    if access.indices and contiguous(access, variable, len(access.indices) - 1):
        return 1.0
    if access.indices and contiguous(access, variable, len(access.indices) - 1, near=True):
        return LANE_NEAR_COST
    turned = bool(packable(access, variable, loops) if inner else _across(access, variable, loops))
    turned = turned or (whole and gathered(access, variable, loops, inner) is not None)
    return LANE_TURNED_COST if turned else LANE_ACROSS_COST


def _across(access: Access, lane: str, loops: Sequence[ir.Axis]) -> list[str]:
    """The loops of the nest along which something is contiguous that the lane goes across."""
    last = len(access.indices) - 1
    if not access.mentions(lane) or contiguous(access, lane, last):
        return []
    return [loop.variable.name for loop in loops if contiguous(access, loop.variable.name, last)]


@dataclass
class Choice:
    """The roles of a nest's loops."""

    lane: str | None  # a loop of the nest, or an inner reduction
    jam: str | None
    sums: tuple[str, ...] = ()  # inner reductions that are lanes, the lane among them
    strip: int = 1
    copies: int = 1
    whole: bool = False  # arrays that are read where data say are packed whole


def choose(
    loops: Sequence[ir.Axis],
    found: Survey,
    temporaries: set[str],
    reductions: dict[str, ir.Reduction],
    target: Target,
    sides: Collection[str] = (),
    reading: Reading | None = None,
) -> list[Choice]:
    """The roles that cost least (see the module), and a second choice where sizes decide which is better.

    Lanes along a loop of the nest need no sum over lanes, but are idle where that loop is short; lanes along a
    reduction are summed at the end. ``sides``: the loops over rows and columns, if it is a product. ``reading``: what
    it costs others to read a temporary.
    """
    allowed = target.transformations
    if not (found.simple and allowed.vectorise):
        return [Choice(None, None)]
    costs = _Costs(loops, found, temporaries, reductions, target)
    deepest = max((access.weight for access in found.loads), default=1.0)

    def in_sum(variable: str) -> list[float]:
        return [_load_cost(a, variable, loops, found.inner) for a in found.loads if a.weight == deepest]

    def later(choice: Choice) -> float:
        """What it costs with what others pay who read what it stores, for each of its points."""
        own = costs.of[choice.lane or ""]
        if reading is None or len(costs.of) == 1:
            return own
        last = _innermost(loops, found, choice)
        stored = [store for store in found.stores if store.buffer.name in temporaries]
        axes = [(s.buffer.name, k) for s in stored for k, index in enumerate(s.indices) if index == ir.Variable(last)]
        return own + sum([reading(name, axis) for name, axis in dict.fromkeys(axes)]) / points(loops)

    choices = []
    if costs.candidates:
        along = [Choice(name, _jam(loops, found, name, temporaries)) for name in costs.candidates]
        best = min(along, key=later)
        if best.lane not in sides and max(in_sum(best.lane or ""), default=0.0) > 1.0:
            # It packs along a batch as it would along rows or columns, whose results are stored together.
            wanted = [each for each in along if each.lane in sides]
            wanted = [each for each in wanted if sum(in_sum(each.lane or "")) <= sum(in_sum(best.lane or ""))]
            best = min(wanted, key=later, default=best)
        choices.append(best)
    if costs.sums:
        lane = costs.sums[0]
        choices.append(Choice(lane, _jam(loops, found, lane, temporaries), tuple(costs.sums)))
    choices.sort(key=later)
    of = [costs.of[choice.lane or ""] for choice in choices]
    if len(choices) == 2 and (choices[0].sums or of[1] > 2 * of[0]):
        choices.pop()
    choices = [_sized(choice, found, target, loops) for choice in choices]
    if costs.candidates and allowed.pack and not found.private:
        lane = min(costs.candidates, key=lambda name: costs.along(name, True))
        if 2 * costs.along(lane, True) < of[0]:
            wide = Choice(lane, _jam(loops, found, lane, temporaries), whole=True)
            return [_sized(wide, found, target, loops), choices[0]]
    return choices or [Choice(None, None)]


def least(
    loops: Sequence[ir.Axis],
    found: Survey,
    temporaries: set[str],
    reductions: dict[str, ir.Reduction],
    target: Target,
) -> float:
    """What a point of a nest costs along its cheapest loop; without lanes, what it reads one after the other."""
    lanes = found.simple and target.transformations.vectorise
    costs = _Costs(loops, found, temporaries, reductions, target).of if lanes else {}
    one_by_one = LANE_ACROSS_COST * len(found.stores)  # as the results of sums over lanes are stored
    if costs:
        return min([cost + one_by_one * (name in found.inner) for name, cost in costs.items()])
    around = tuple([loop.variable.name for loop in loops])
    turns = [(access, [name for name in (*around, *access.around) if access.mentions(name)]) for access in found.loads]
    return sum([a.weight * _load_cost(a, names[-1], (), found.inner) for a, names in turns if names])


def points(loops: Sequence[ir.Axis]) -> float:
    """How many points a nest has, about."""
    return math.prod([turns(loop.extent) for loop in loops])


def turns(extent: ir.Expression) -> float:
    """How many turns a loop has, about."""
    return max(1.0, float(extent.value)) if isinstance(extent, ir.Constant) else SURVEY_UNKNOWN_ITERATIONS


class _Costs:
    """What a point of a nest costs with lanes along each loop that may have them."""

    def __init__(
        self,
        loops: Sequence[ir.Axis],
        found: Survey,
        temporaries: set[str],
        reductions: dict[str, ir.Reduction],
        target: Target,
    ) -> None:
        self.loops, self.found, self.temporaries = loops, found, temporaries
        self.lanes = _lanes_of(found, target)
        inner = {name: loop.extent for name, loop in found.inner.items()}
        self.extents = {loop.variable.name: loop.extent for loop in loops} | inner
        self.candidates = [loop.variable.name for loop in loops if found.may_widen(loop.variable.name)]
        self.sums = [] if found.private else [min(names, key=self.along) for names in _sums(found, reductions)]
        self.of = {name: self.along(name) for name in self.candidates}
        self.of |= {name: self.along(name, sums=self.sums) for name in self.sums}

    def along(self, variable: str, whole: bool = False, sums: Sequence[str] = ()) -> float:
        """With lanes along a loop; along these ``sums``, where it is one of them."""
        found, extent = self.found, self.extents[variable]
        total = 0.0
        for access in found.loads:
            lane = next((name for name in sums if name in access.around), variable)
            own = access.buffer.name in self.temporaries and access.mentions(lane)  # read where it was written
            own = own or access.buffer in found.private
            total += access.weight * (1.0 if own else _load_cost(access, lane, self.loops, found.inner, whole))
        for store in found.stores:
            if store.buffer in found.private:
                total += 1.0
            elif store.mentions(variable):
                free = store.buffer.name in self.temporaries or contiguous(store, variable, len(store.indices) - 1)
                total += 1.0 if free else LANE_ACROSS_COST
        total *= _idle(extent, self.lanes)
        total += len(sums) * LANE_HALVING_COST * (self.lanes.bit_length() - 1)
        if variable in found.inner and isinstance(extent, ir.Constant):
            total += found.once * (self.lanes - 1)  # a scalar, where other lanes compute several at once
        # Without copies a reduction waits for its own result: too few sums run side by side.
        waits = found.inner and _jam(self.loops, found, variable, self.temporaries) is None
        return total * LANE_LATENCY if waits else total


def _innermost(loops: Sequence[ir.Axis], found: Survey, choice: Choice) -> str:
    """The loop of a nest along which what it stores is contiguous."""
    names = [loop.variable.name for loop in in_memory_order(loops, [*found.loads, *found.stores])]
    return next((name for name in (choice.lane, choice.jam) if name in names), names[-1] if names else "")


def _idle(extent: ir.Expression, lanes: int) -> float:
    """The lanes of registers that a loop takes, for each one that it needs: more than 1 if it is short, and known."""
    needed = int(extent.value) if isinstance(extent, ir.Constant) else 0
    return -(-needed // lanes) * lanes / needed if needed > 0 else 1.0


def _sums(found: Survey, reductions: dict[str, ir.Reduction]) -> list[list[str]]:
    """For each reduction in a body, the loops of it that may be lanes; nothing if the body has other loops."""
    inside = {name: [each.variable for each in ir.of_kind(loop.body, ir.For)] for name, loop in found.inner.items()}
    parts = {part for names in inside.values() for part in names}
    made, variables = list[list[str]](), set[str]()
    for whole in [name for name in inside if name not in parts]:
        names = [whole, *inside[whole]]
        combined = {reductions[name].name for name in names if name in reductions}
        lanes = [name for name in names if name in reductions and name not in found.uniform]
        if len(combined) != 1 or not lanes:
            return []
        variables |= combined
        made.append(lanes)
    return made if len(variables) == found.mutable else []


def _jam(loops: Sequence[ir.Axis], found: Survey, lane: str, temporaries: set[str]) -> str | None:
    """The loop along which most of what the reductions read and compute is shared; without these, see ``_side``."""
    if found.private:
        return None
    if not found.inner:
        return _side(loops, found, lane, temporaries)
    deepest = max((access.weight for access in found.loads), default=1.0)
    best, shared = None, 0
    for loop in reversed(loops):  # of several that are as good the innermost one, whose neighbours are closest
        name = loop.variable.name
        if name == lane or not found.may_widen(name):
            continue
        count = sum(name not in mentioned for weight, mentioned in found.operations if weight == deepest)
        vectors = sum(not a.mentions(name) and a.mentions(lane) for a in found.loads if a.weight == deepest)
        if vectors and count > shared:
            best, shared = name, count
    return best


def _side(loops: Sequence[ir.Axis], found: Survey, lane: str, temporaries: set[str]) -> str | None:
    """The loop that makes squares with the lane of most that is read or written across it, in a small body."""
    moved = [*found.loads, *[store for store in found.stores if store.buffer.name not in temporaries]]
    if found.lets > WIDE_STRIP_BINDINGS or any(access.buffer.scalar.bits < SQUARE_LEAST_BITS for access in moved):
        return None
    loops = [loop for loop in loops if found.may_widen(loop.variable.name)]
    names = [name for access in moved if not access.guarded for name in _across(access, lane, loops)]
    return max(names, key=names.count, default=None)


def _sized(choice: Choice, found: Survey, target: Target, loops: Sequence[ir.Axis]) -> Choice:
    """The strip and the number of copies that the registers hold, or those that were asked for."""
    wanted = target.transformations
    extents = {loop.variable.name: loop.extent for loop in loops}
    sized = _that_registers_hold(choice if wanted.jam else replace(choice, jam=None), found, target, extents)
    copies = wanted.copies or sized.copies if sized.jam else 1
    return replace(sized, strip=wanted.strip or sized.strip, copies=copies)


def _lanes_of(found: Survey, target: Target) -> int:
    """How many of the scalars in a body a register holds."""
    scalars = [access.buffer.scalar for access in (*found.stores, *found.loads) if access.buffer.scalar.kind == "float"]
    return min([target.lanes(scalar) for scalar in scalars], default=target.lanes(i64))


def strip_of(found: Survey, target: Target) -> int:
    """The strip of a body of which no copies run side by side."""
    return target.transformations.strip or _lanes_of(found, target) * _registers(found, target, found.carried)


def _registers(found: Survey, target: Target, held: int, copies: int = 1, waits: bool = False) -> int:
    """How many registers of lanes there are of each scalar, such that those are held that loops inside carry.

    Where a loop ``waits`` for itself there are as many as the processor computes meanwhile. A long chain of bindings
    runs on several as well, if it reads little and holds few values at a time: it would wait for itself.
    """
    if not found.inner:
        if found.lets <= WIDE_STRIP_BINDINGS:
            return STRIP_REGISTERS
        is_chain = LONG_STRIP_READ * len(found.loads) <= found.lets <= LONG_STRIP_BINDINGS
        registers = STRIP_REGISTERS if is_chain else 1
        while registers * found.live > target.registers and registers > 1:
            registers //= 2
        return registers
    registers, room = STRIP_REGISTERS, max(1, target.registers // 2)
    if waits:
        registers, room = WAITING_STRIP_REGISTERS, int(target.registers * WAITING_HELD)
    while copies * registers * max(1, held) > room and registers > 1:
        registers //= 2
    return registers


def _copies(extent: ir.Expression | None) -> int:
    """The copies of a jam: such that none is left over, if its extent is known and has a divisor near the usual number.

    What is left over would run one after the other, and each wait for itself.
    """
    known = int(extent.value) if isinstance(extent, ir.Constant) else 0
    near = (JAM_COPIES, JAM_COPIES + 1, JAM_COPIES - 1)
    return known if 1 < known < JAM_COPIES else next((each for each in near if known % each == 0), JAM_COPIES)


def _that_registers_hold(choice: Choice, found: Survey, target: Target, extents: Mapping[str, ir.Expression]) -> Choice:
    lanes = _lanes_of(found, target)
    if not found.inner and choice.jam:
        return replace(choice, strip=lanes, copies=lanes)
    if choice.sums and choice.jam is None and any(_gathers(access, choice.sums) for access in found.loads):
        return replace(choice, strip=lanes)  # it waits for what it reads, and not for what it adds
    held = found.mutable if choice.sums else found.carried  # short sums have few lanes
    registers = _registers(found, target, held, JAM_COPIES if choice.jam else 1, _waits(choice, found))
    copies = _copies(extents.get(choice.jam)) if choice.jam else 1
    return replace(choice, strip=lanes * registers, copies=copies)


def _waits(choice: Choice, found: Survey) -> bool:
    """Whether each turn of a loop inside waits for the one before: the body is short, and reads nothing along lanes."""
    reads = any(access.weight > 1.0 and access.mentions(choice.lane or "") for access in found.loads)
    return not choice.sums and not reads and found.lets <= WIDE_STRIP_BINDINGS


def _gathers(access: Access, sums: Sequence[str]) -> bool:
    """Whether the lanes of a sum read elements that are apart."""
    lane = next((name for name in sums if name in access.around and access.mentions(name)), None)
    return lane is not None and not contiguous(access, lane, len(access.indices) - 1, near=True)


def in_memory_order(axes: Sequence[ir.Axis], accesses: Sequence[Access]) -> list[ir.Axis]:
    """The axes such that most of what is read and written is passed through as it stands in memory, outermost first.

    (McKinley, Carr and Tseng 1996: memory order.) The axes stay as they are where that makes no difference.
    """
    left, ordered = list(axes), list[ir.Axis]()
    places = [_first_places(access) for access in accesses]  # asked for each pair of axes

    def before(first: str, second: str) -> float:
        """By how much it is better that one axis is around another."""
        total = 0.0
        for access, place in zip(accesses, places, strict=True):
            if first in place and second in place:
                total += access.weight * ((place[first] < place[second]) - (place[second] < place[first]))
        return total

    names = [axis.variable.name for axis in left]
    better = {first: {second: before(first, second) for second in names} for first in names}
    while left:
        names = [axis.variable.name for axis in left]
        gains = [sum([better[name][other] for other in names]) for name in names]
        ordered.append(left.pop(gains.index(max(gains))))
    return ordered


def _first_places(access: Access) -> dict[str, int]:
    """The first index of an access that varies with each name."""
    return {name: k for k, each in reversed(list(enumerate(access.varies))) for name in each}
