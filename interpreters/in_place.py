"""In-place update analysis: where a new array may take the memory of an old one.

Arrays are values, and an update makes a new one. When nothing reads the old array afterwards, the new one may be made
by writing into the old one's memory, and costs what is written instead of the whole. Whether it may is decided here,
once, for all interpretations.

The idea: each array has a *home*, the memory that it is in. An operation puts an array into a home of its own, except
that it may *take* the home of an operand. A home may be taken by

* a scatter, from a destination: the writes happen in place;
* a loop or while, from an initial value, when each next state is in the memory of the last one;
* an accumulate, from an initial value;
* a generate, from an array that it reads at its own place alone, on the way from a state of a loop to the next
  (``own_places.py``);

if the block that runs there *owns* it and nothing else reads it. A block owns the homes that it makes; the body of a
loop owns the homes of its states; a branch and the body of an accumulate own what the block around them does, for
they run once. Arguments, constants and what a loop has captured are owned by nobody. A home is read by the uses, later
in the block, of every array in it; and by the operation itself, as another operand or from inside its blocks. A
scatter may read what it overwrites if it writes once, or if its writes, each to a place of its own, do no harm to
what is read (``unharmed.py``). A loop whose output is a state as an iteration finds it writes that output first, so
this is no use later.

    a = zeros(n)                                # home A
    b = for i < m with s = a:                   # the state is in a home S of its own
      t = scatter(s, [i] -> i * i)              # s is not read later: t takes S, which is where the next s must be
      -> t
    # each next state is where the last one was, and a is not read later: b takes A, and nothing is ever copied

Whoever overwrites arrays keeps to the homes: an operation's result is in memory of its own unless it is said here to
be elsewhere (a branch that gives a captured array, for example, copies it unless both branches give that array).

(The uniqueness types of Futhark, Henriksen et al. 2017, found by inference: Henriksen, Thesis 2017, chapter 4.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count

from ..core.terms import Atom, Block, Literal, Operation, Variable
from ..core.types import ArrayType, Type
from .own_places import Taken, taken_by_elements
from .unharmed import Unharmed


@dataclass(frozen=True)
class Places:
    """Where the arrays that an operation makes are.

    ``taken`` says, for each destination of a scatter and for each initial value of a loop, while or accumulate, that
    the result takes its memory; for each result of a cond, that it is where both branches have it.

    ``sources`` is for loop and while: for each state, the state in whose memory its next value is, or None when that
    is in memory of its own. No state is the source of two. ``intact`` says for each that nothing in an iteration writes
    where the state is.

    ``reads`` is for scatter: the values that are written read memory that is overwritten.
    ``elements`` is for generate: for each result, the variable whose memory it takes, where there is one.
    """

    taken: tuple[bool, ...] = ()
    sources: tuple[int | None, ...] = ()
    reads: bool = False
    intact: tuple[bool, ...] = ()
    elements: tuple[int | None, ...] = ()


class InPlace:
    """The places of all operations of a term, by the operation itself (an object of this term, not an equal one).

    >>> from adze.core.builder import build
    >>> from adze.core.placement import to_block
    >>> from adze.core.types import f64, i64
    >>> with build() as b:
    ...     n, i, x = b.variable(i64), b.variable(i64), b.variable(f64)
    ...     zeros = b.array([n], lambda _: b.literal(0.0, f64))
    ...     once = b.scatter(True, [], [zeros], lambda: [i, x])[0]
    ...     twice = b.scatter(True, [], [once], lambda: [i, b.index(once, [n])])[0]
    ...     last, alone = [b.index(twice, [i])], [b.index(twice, [i]), b.index(zeros, [i])]
    ...     blocks = [to_block([n, i, x], results)[0] for results in (last, alone)]
    >>> for block in blocks:
    ...     places = InPlace(block)
    ...     [places.of(operation).taken for operation in block.bindings if operation.op == "scatter"]
    [(True,), (True,)]
    [(False,), (True,)]
    """

    def __init__(self, block: Block, elements: bool = True) -> None:
        """``elements``: whether a generate may take the memory of what it reads."""
        self.block = block
        denied: set[int] = set()
        unharmed = Unharmed(block)
        while True:
            walk = _Walk(denied, unharmed, elements)
            walk.block(block, [], _Scope(walk.unowned(block.binders)))
            if not walk.denied - denied:
                break
            denied |= walk.denied
        self._places = walk.places

    def of(self, operation: Operation) -> Places:
        """The places of an operation of the term; empty where nothing is to be said."""
        return self._places.get(id(operation), _NOWHERE)


_NOWHERE = Places()

Home = int | None  # None for what is no array


def _nothing(home: int) -> bool:
    return False


@dataclass
class _Scope:
    """What a block may do: the homes of its parameters, those that it owns, and which are read after it.

    ``first``: those of its results that are written before all else.
    """

    parameters: Sequence[Home]
    owned: set[int] = field(default_factory=set)
    read_after: Callable[[int], bool] = _nothing
    first: Collection[int] = ()


class _Here:
    """The state of the walk at one operation of a block."""

    def __init__(self, env: list[Home], scope: _Scope, uses: list[set[int]]) -> None:
        self.env, self.scope, self.position = env, scope, 0
        self.last: dict[int, int] = {}  # by level: the last operation that uses it
        for position, levels in enumerate(uses):
            self.last.update(dict.fromkeys(levels, position))
        self.busy: dict[int, int] = {}  # by home: the last operation that uses an array in it
        for level in self.last:
            if level < len(env):
                self.note(level)

    def note(self, level: int) -> None:
        home = self.env[level]
        if home is not None:
            self.busy[home] = max(self.busy.get(home, -1), self.last.get(level, -1))

    def read_later(self, home: int) -> bool:
        return self.busy.get(home, -1) > self.position or self.scope.read_after(home)

    def home(self, atom: Atom) -> Home:
        return self.env[len(self.env) - 1 - atom.index] if isinstance(atom, Variable) else None


class _Walk:
    """One walk over a term. Operations in ``denied`` take nothing."""

    def __init__(self, denied: set[int], unharmed: Unharmed, takes_elements: bool) -> None:
        self.unharmed, self.takes_elements = unharmed, takes_elements
        self.places: dict[int, Places] = {}
        self.denied = set(denied)
        self.escaped: set[int] = set()
        self.written: set[int] = set()
        self.elements: Taken = {}
        self._numbers = count()

    def unowned(self, types: Sequence[Type]) -> list[Home]:
        return [next(self._numbers) if isinstance(type, ArrayType) else None for type in types]

    def fresh(self, types: Sequence[Type], here: _Here) -> list[Home]:
        """Homes that the block around makes, and so owns."""
        homes = self.unowned(types)
        here.scope.owned.update([home for home in homes if home is not None])
        return homes

    # Blocks

    def block(self, block: Block, env: list[Home], scope: _Scope) -> list[Home]:
        """The homes of a block's results."""
        depth = len(env)
        env.extend(scope.parameters)
        uses, level = [], len(env)
        for operation in block.bindings:
            uses.append({level - 1 - index for index in self.free(operation)})
            level += len(operation.types)
        last = [atom for k, atom in enumerate(block.results) if k not in scope.first]
        uses.append({level - 1 - atom.index for atom in last if isinstance(atom, Variable)})
        here = _Here(env, scope, uses)
        for position, operation in enumerate(block.bindings):
            here.position = position
            homes = self.operation(operation, here)
            env.extend(homes)
            for k in range(len(homes)):
                here.note(len(env) - 1 - k)
        results = [here.home(atom) for atom in block.results]
        del env[depth:]
        return results

    def free(self, operation: Operation) -> frozenset[int]:
        """The variables that an operation uses, as indices where it stands."""
        return frozenset([variable.index for variable in operation.free])

    # Operations

    def operation(self, op: Operation, here: _Here) -> list[Home]:
        match op.op:
            case "scatter":
                return self.scatter(op, here)
            case "loop" | "while":
                return self.loop(op, here)
            case "accumulate":
                return self.accumulate(op, here)
            case "cond":
                return self.cond(op, here)
            case "generate" if id(op) in self.elements:
                return self.generate(op, here)
        for block in op.blocks:
            self.block(block, here.env, _Scope(self.unowned(block.binders)))
        if op.row.holds:  # what goes into it is nobody's from there on
            used = [here.env[len(here.env) - 1 - index] for index in self.free(op)]
            self.escaped.update([home for home in used if home is not None])
            return self.unowned(op.types)
        return self.fresh(op.types, here)

    def say(self, op: Operation, places: Places) -> Places:
        """Note the places of an operation; one that stands twice, with different answers, takes nothing."""
        known = self.places.setdefault(id(op), places)
        if known != places:
            self.denied.add(id(op))
        return known

    def may_take(self, op: Operation, position: int, here: _Here, inside: Sequence[Block]) -> bool:
        """Whether the result may take the home of the argument at a position, which these blocks must not read."""
        home = here.home(op.args[position])
        if home is None or id(op) in self.denied or home in self.escaped:
            return False
        others = [here.home(arg) for k, arg in enumerate(op.args) if k != position]
        reads = home in others or any(self.reads(block, home, here) for block in inside)
        return home in here.scope.owned and not reads and not here.read_later(home)

    def reads(self, block: Block, home: int, here: _Here) -> bool:
        return any(here.env[len(here.env) - 1 - variable.index] == home for variable in block.free)

    def results(self, op: Operation, taken: Sequence[bool], first: int, here: _Here) -> list[Home]:
        """The homes of the results that may take those of the arguments from ``first`` on."""
        homes = self.fresh(op.types[: len(taken)], here)
        return [here.home(op.args[first + k]) if take else homes[k] for k, take in enumerate(taken)]

    def scatter(self, op: Operation, here: _Here) -> list[Home]:
        extents, element = op.static[1], op.blocks[0]
        self.block(element, here.env, _Scope(self.unowned(element.binders)))
        taken, reads = [], False
        for k in range(extents, len(op.args)):
            home = here.home(op.args[k])
            read = home is not None and self.reads(element, home, here)
            harmless = read and (_writes_once(op) or (op.static[0] and self.unharmed_in(op, home, here)))
            taken.append(self.may_take(op, k, here, () if harmless else op.blocks))
            reads = reads or (read and taken[-1])
        places = self.say(op, Places(tuple(taken), reads=reads))
        homes = self.results(op, places.taken, extents, here)
        self.written.update([home for home in homes if home is not None])
        return homes

    def unharmed_in(self, op: Operation, home: Home, here: _Here) -> bool:
        """Whether the writes of a scatter do no harm to what it reads of a home."""
        inside = [variable.index for variable in op.blocks[0].free]
        return self.unharmed.of(op).issuperset([k for k in inside if here.env[len(here.env) - 1 - k] == home])

    def generate(self, op: Operation, here: _Here) -> list[Home]:
        (block,) = op.blocks
        self.block(block, here.env, _Scope(self.unowned(block.binders)))
        elements = [self.elements[id(op)].get(k) for k in range(len(op.types))]
        homes = [None if k is None else here.env[len(here.env) - 1 - k] for k in elements]
        used = [here.env[len(here.env) - 1 - k] for k in self.free(op)]
        for k, home in enumerate(homes):
            owned = home in here.scope.owned and home not in self.escaped and id(op) not in self.denied
            if home is None or not owned or here.read_later(home) or used.count(home) > 1:
                elements[k] = None
        taken = self.say(op, Places(elements=tuple(elements))).elements
        self.written.update([home for k, home in zip(taken, homes) if k is not None and home is not None])
        made = self.fresh(op.types, here)
        return [new if k is None else home for k, home, new in zip(taken, homes, made, strict=True)]

    def loop(self, op: Operation, here: _Here) -> list[Home]:
        assert op.row.takes is not None
        if self.takes_elements:
            self.elements.update(taken_by_elements(op))
        first = op.row.takes(op.static)
        states = op.types[: len(op.args) - first]
        homes = self.unowned(states)
        body = op.blocks[-1]
        if op.op == "while":
            self.block(op.blocks[0], here.env, _Scope(homes))
        owned = {home for home in homes if home is not None}
        early = written_first(body, len(states))
        after = self.block(body, here.env, _Scope([*[None] * first, *homes], owned, first=early))
        sources: list[int | None] = [None] * len(states)
        for k, home in enumerate(homes):
            if home is not None and after[k] == home:
                sources[k] = k
        for k, home in enumerate(after[: len(states)]):
            if home is not None and home in homes and sources[k] is None and homes.index(home) not in sources:
                sources[k] = homes.index(home)
        intact = tuple([home not in self.written for home in homes])
        taken = []
        for k, home in enumerate(homes):
            stays = home is not None and sources[k] == k
            unchanged = stays and intact[k] and id(op) not in self.denied
            unchanged = unchanged and here.home(op.args[first + k]) is not None
            taken.append(unchanged or (stays and self.may_take(op, first + k, here, op.blocks)))
            if taken[-1] and not unchanged:
                self.written.add(here.home(op.args[first + k]) or 0)
        places = self.say(op, Places(tuple(taken), tuple(sources), intact=intact))
        return [*self.results(op, places.taken, first, here), *self.fresh(op.types[len(states) :], here)]

    def accumulate(self, op: Operation, here: _Here) -> list[Home]:
        body = op.blocks[0]
        taken = tuple([self.may_take(op, k, here, op.blocks) for k in range(len(op.args))])
        places = self.say(op, Places(taken))
        results = self.block(body, here.env, self._once(here, [None] * len(body.binders)))
        homes = self.results(op, places.taken, 0, here)
        self.written.update([home for home in homes if home is not None])
        return [*homes, *results]

    def cond(self, op: Operation, here: _Here) -> list[Home]:
        branches = [self.block(block, here.env, self._once(here, ())) for block in op.blocks]
        kept = [a is not None and a == b and id(op) not in self.denied for a, b in zip(*branches, strict=True)]
        places = self.say(op, Places(tuple(kept)))
        homes = self.fresh(op.types, here)
        return [branches[0][k] if keep else homes[k] for k, keep in enumerate(places.taken)]

    def _once(self, here: _Here, parameters: Sequence[Home]) -> _Scope:
        """The scope of a block that runs once, as a part of the block around it."""
        return _Scope(parameters, here.scope.owned, here.read_later)


def written_first(body: Block, states: int) -> dict[int, int]:
    """The results of a body, behind those for so many states, that are arrays it is given: by position, which one."""
    bound = sum([len(binding.types) for binding in body.bindings])
    given = {
        k: len(body.binders) - 1 - (atom.index - bound)
        for k, atom in enumerate(body.results)
        if k >= states and isinstance(atom, Variable) and isinstance(atom.type, ArrayType) and atom.index >= bound
    }
    return {k: parameter for k, parameter in given.items() if parameter >= 0}


def own_updates(body: Block, first: int) -> dict[int, tuple[Operation, int]]:
    """The results of a body that are updates of its parameters, no element of which is written twice.

    Result ``k`` is one of parameter ``first + k``: by ``k``, the operation, and which of its destinations that is.
    """
    starts = list(accumulate([len(binding.types) for binding in body.bindings], initial=len(body.binders)))
    found: dict[int, tuple[Operation, int]] = {}
    for k, atom in enumerate(body.results[: len(body.binders) - first]):
        level = starts[-1] - 1 - atom.index if isinstance(atom, Variable) else -1
        if level < starts[0]:
            continue
        number = bisect_right(starts, level) - 1
        op, which = body.bindings[number], level - starts[number]
        if op.op != "scatter" or not op.static[0]:
            continue
        old = op.args[op.static[1] + which]
        if isinstance(old, Variable) and starts[number] - 1 - old.index == first + k:
            found[k] = op, which
    return found


def segment_of(op: Operation) -> Operation | None:
    """The loop that is all that a loop does in an iteration: over the same states, with no other results.

    It does not read the arrays that the states were before its first iteration.
    """
    body, count = op.blocks[0], len(op.args) - 1
    inner = body.bindings[-1] if body.bindings else None
    if inner is None or inner.op != "loop" or not len(op.types) == len(inner.types) == len(inner.args) - 1 == count:
        return None
    bound = sum([len(binding.types) for binding in body.bindings])
    given = [arg.index if isinstance(arg, Variable) else None for arg in inner.args[1:]]
    made = [atom.index if isinstance(atom, Variable) else None for atom in body.results]
    same = given == [bound - 1 - k for k in range(count)] and made == [count - 1 - k for k in range(count)]
    arrays = {arg.index for arg in inner.args[1:] if isinstance(arg, Variable) and isinstance(arg.type, ArrayType)}
    apart = arrays.isdisjoint([variable.index for block in inner.blocks for variable in block.free])
    scalars = all(not isinstance(type, ArrayType) for binding in body.bindings[:-1] for type in binding.types)
    return inner if count and same and apart and scalars else None


def _writes_once(op: Operation) -> bool:
    return all(isinstance(extent, Literal) and extent.value == 1 for extent in op.args[: op.static[1]])
