"""What branches read that was computed before them: there a cotangent is zero because a branch was not taken.

The return sweep of a branch that is not taken does not run. So what was written inside of it adds nothing, and what
it reads from outside gets the cotangent 0 from it. That 0 meets the partial derivative of the operation that made the
value, and where that is infinite or NaN, their product is NaN:

    r = sqrt(x);  y = where(r > 0, 1 / r, 0)          at x = 0:  r_bar = 0,  x_bar = r_bar * 0.5 / r = 0 * inf

Such a product is to be 0. The operations where it is asked for are those whose results reach a branch: a value that
a branch reads, and all that it was computed from. They are found by a walk that notes, of each value, the values it is
made from, followed backwards from those that branches read (reachability in the graph of data flow).

Arrays that are put together choose by their index, and leave out nothing: each element of a and b is read, in some
iteration. So such choices are not meant, where the ranges of the indices show it.

    concatenate(a, b)[i] = if i < n: a[i] else: b[i - n]          i < n + m:  all of a and all of b
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from ..core.combinators import where
from ..core.dims import Dim, Opaque, arithmetic
from ..core.environment import Env
from ..core.expr import Expr
from ..core.terms import Atom, Block, Literal, Operation, Size, Variable
from ..core.types import Accumulator, Type, dims, i64, rank
from ..interpreters.simplify.implied import DIFFERENCES

Sources = Iterable[int]  # the numbers of values
Facts = Sequence[Dim] | None


def share(rule: Callable[[Expr], Expr], cotangent: Expr) -> Expr:
    """What an operand gets from a cotangent; 0 where that is 0 and the partial derivative is not finite.

    With 0, the product is NaN exactly there. A cotangent of 0 alone would not do as a test: where a derivative of the
    cotangent is not 0, its product with the partial derivative is a derivative of what is given here.
    """
    product = rule(cotangent)
    if product.value is cotangent.value:
        return product
    return where((cotangent == 0.0) & (product != product), 0.0, product)


def before_branches(block: Block, of_procedure: bool = False) -> frozenset[int]:
    """The operations of a term, by identity, whose results a branch reads, or what is computed from them.

    What becomes of the results of a procedure is not known there: a branch may read them, or nobody.
    """
    if not of_procedure and not _has_branches(block):
        return frozenset()
    flow = _Flow()
    results = flow.block(block, Env(), [()] * len(block.binders))
    if of_procedure:
        flow.read.update(results)
    reached = flow.reached()
    return frozenset([id(operation) for operation, values in flow.made if not reached.isdisjoint(values)])


def _has_branches(block: Block) -> bool:
    return any(
        operation.row.chooses
        or operation.row.values
        or operation.op == "call"
        or any(map(_has_branches, operation.blocks))
        for operation in block.bindings
    )


@dataclass(frozen=True)
class _Branch:
    """A branch that the walk is in: the number of its first value, and the indices that its test is about.

    There are none (None) if the test is about anything else.
    """

    start: int
    narrowed: frozenset[int] | None


class _Flow:
    """The values of a term, numbered as they are met: what each is made from, and which ones branches read.

    A literal, a constant array and a size is number 0.
    """

    def __init__(self) -> None:
        self.sources: list[list[int]] = [[]]
        self.read: set[int] = set()
        self.made: list[tuple[Operation, Sequence[int]]] = []
        self.branches: list[_Branch] = []  # those that are open
        self.dims: dict[int, Dim] = {}  # of integers, in which the index of a loop is an opaque atom
        self.ranges: dict[int, tuple[Dim, Dim]] = {}  # of indices, where the walk is
        self.tests: dict[int, tuple[Facts, Facts]] = {}  # what is not negative where a test holds, and where it fails

    def reached(self) -> set[int]:
        """All that is read by a branch, and what that is made from."""
        reached, waiting = set(self.read), list(self.read)
        while waiting:
            found = [value for value in self.sources[waiting.pop()] if value not in reached]
            reached.update(found)
            waiting += found
        return reached

    def new(self, sources: Sequence[Sources]) -> list[int]:
        """Values that are made from these."""
        first = len(self.sources)
        self.sources += [list(given) for given in sources]
        return list(range(first, len(self.sources)))

    def add(self, values: Sequence[int], sources: Sequence[Sources]) -> None:
        """These values are made from these, too."""
        for value, given in zip(values, sources, strict=True):
            self.sources[value] += given

    def value(self, atom: Atom, env: Env[int]) -> int:
        return env.get(atom.index) if isinstance(atom, Variable) else 0

    def use(self, atom: Atom, env: Env[int], indices: Sequence[Dim | None] | None = None) -> int:
        """The number of a value that is used here: an element of it, or the whole."""
        value = self.value(atom, env)
        opened = [branch for branch in self.branches if value < branch.start]
        if value and opened and not isinstance(atom.type, Accumulator):
            if not self.covered(value, atom.type, opened, indices):
                self.read.add(value)
        return value

    def covered(self, value: int, type: Type, opened: Sequence[_Branch], indices: Sequence[Dim | None] | None) -> bool:
        """Whether these branches leave out nothing of a value: loops around them come to each part that is read."""
        narrowed: set[int] = set()
        for branch in opened:
            if branch.narrowed is None or any(index < value for index in branch.narrowed):
                return False
            narrowed |= branch.narrowed
        for index, size in zip(indices or (), dims(type), strict=True) if indices else ():
            if index is None:
                return False
            found = [atom.number for atom in index.atoms() if isinstance(atom, Opaque)]
            if narrowed.isdisjoint(found):
                continue
            low, high = self.ranges[found[0]]
            start = index - Dim.atom(Opaque(found[0]))
            if len(found) > 1 or not start.is_static() or low + start != Dim.of(0) or high + start != size:
                return False
            narrowed.discard(found[0])
        return all((high - low - 1).is_nonnegative() for low, high in [self.ranges[index] for index in narrowed])

    def dim(self, atom: Atom, env: Env[int]) -> Dim | None:
        """An integer as a dim in which a loop's index is an atom, if it is one."""
        match atom:
            case Variable(index):
                return self.dims.get(env.get(index))
            case Literal() if atom.type is i64:
                return Dim.of(int(atom.value))
            case Size(dim):
                return dim
        return None

    def indices(self, extents: Sequence[Dim | None]) -> list[int]:
        """The indices of loops."""
        made = self.new([()] * len(extents))
        for index, extent in zip(made, extents, strict=True):
            if extent is not None and extent.is_static():
                self.dims[index] = Dim.atom(Opaque(index))
                self.ranges[index] = Dim.of(0), extent
        return made

    def primitive(self, name: str, operation: Operation, env: Env[int], result: int) -> None:
        """What is known of an integer, or of a test on indices."""
        first, last = operation.args[0], operation.args[-1]
        if name in ("add", "subtract") and operation.types[0] is i64:
            made = arithmetic(name, [self.dim(first, env), self.dim(last, env)])
            if made is not None:
                self.dims[result] = made
        elif name in DIFFERENCES:
            a, b = self.dim(first, env), self.dim(last, env)
            if a is not None and b is not None:
                holds, fails = [says(b - a) for says in DIFFERENCES[name]]
                self.tests[result] = holds or None, fails or None
        elif name == "logical_and":
            tests = [self.tests.get(self.value(arg, env), (None, None))[0] for arg in operation.args]
            if None not in tests:
                self.tests[result] = [dim for test in tests for dim in test or ()], None

    def narrow(self, facts: Facts) -> frozenset[int] | None:
        """Put what a test says, if all of it is about single indices, into their ranges: these indices."""
        narrowed: dict[int, tuple[Dim, Dim]] = {}
        for fact in facts or ():
            found = [atom.number for atom in fact.atoms() if isinstance(atom, Opaque)]
            if len(found) != 1:
                return None
            index = Dim.atom(Opaque(found[0]))
            low, high = narrowed.get(found[0], self.ranges[found[0]])
            above, below = fact - index, fact + index  # index >= -above, or index <= below
            if above.is_static() and (least := _nearer(low, -above, -1)) is not None:
                narrowed[found[0]] = least, high
            elif below.is_static() and (end := _nearer(high, below + 1, 1)) is not None:
                narrowed[found[0]] = low, end
            else:
                return None
        self.ranges.update(narrowed)
        return frozenset(narrowed) if facts is not None else None

    def branch(self, block: Block, env: Env[int], facts: Facts, data: Sources = ()) -> list[int]:
        """Walk through a branch where these dims are not negative; None: where something else is so.

        Its parameters are the fields of this data.
        """
        ranges = dict(self.ranges)
        narrowed = self.narrow(facts)
        self.branches.append(_Branch(len(self.sources), narrowed))
        results = self.block(block, env, [data] * len(block.binders))
        self.branches.pop()
        self.ranges = ranges
        return results

    def block(self, block: Block, env: Env[int], sources: Sequence[Sources]) -> list[int]:
        """Walk through a block whose parameters are made from these: its results."""
        return self.inside(block, env, self.new(sources))

    def inside(self, block: Block, env: Env[int], binders: Sequence[int]) -> list[int]:
        """Walk through a block whose parameters are these values: its results."""
        env = env.enter(binders)
        for operation in block.bindings:
            values = self.new(self.operation(operation, env))
            if operation.op == "primitive":
                self.primitive(operation.static[0].name, operation, env, values[0])
            self.made.append((operation, values))
            env = env.extend(values)
        return [self.use(result, env) for result in block.results]

    def operation(self, operation: Operation, env: Env[int]) -> Sequence[Sources]:
        """What each result is made from; integers are left out where they only say which element it is."""
        blocks = operation.blocks
        if operation.op == "index":
            indices = [self.dim(arg, env) for arg in operation.args[1:]]
            whole = len(indices) < rank(operation.args[0].type)
            return [[self.use(operation.args[0], env, None if whole else indices)]]
        args = [self.use(arg, env) for arg in operation.args]
        if operation.row.discrete:
            return [()] * len(operation.types)
        match operation.op:
            case "cond" | "case":
                tests = self.tests.get(args[0], (None, None)) if operation.op == "cond" else (None,) * len(blocks)
                data = () if operation.op == "cond" else args
                pairs = zip(blocks, tests, strict=True)
                return _each([self.branch(block, env, facts, data) for block, facts in pairs])
            case "generate":
                return _each([self.inside(blocks[0], env, self.indices([self.dim(operation.args[0], env)]))])
            case _ if operation.row.combines:
                neutrals = args[len(args) - len(operation.types) :]
                [extent] = [self.dim(arg, env) for arg in operation.row.iterations(operation)]
                elements = self.inside(blocks[0], env, self.indices([extent]))[-len(neutrals) :]
                binders = self.new(_each([elements, neutrals]) * 2)
                combined = self.inside(blocks[1], env, binders)
                self.add(binders, _each([combined]) * 2)
                return _each([elements, neutrals, combined])
            case "loop":
                return self.steps(args[1:], blocks[0], env, self.indices([self.dim(operation.args[0], env)]))
            case "while":
                return [*self.steps(args, blocks[1], env, []), ()]
            case "scatter":
                destinations = args[operation.static[1] :]
                extents = [self.dim(arg, env) for arg in operation.row.iterations(operation)]
                elements = self.inside(blocks[0], env, self.indices(extents))[-len(destinations) :]
                return _each([destinations, elements])
            case "custom":
                body = self.block(blocks[0], env, [[arg] for arg in args])
                return [[value, *args] for value in body]
            case "probe":
                return _each([args])
            case "call" | "construct":  # what is given is read in a branch, or by nobody, for all that we know here
                self.read.update(args)
            case "par":
                return _each([list(chain.from_iterable([self.block(block, env, []) for block in blocks]))])
            case "accumulate":
                totals = self.new(_each([args]))
                return [[value] for value in [*totals, *self.inside(blocks[0], env, totals)]]
            case "add_to":
                self.sources[args[0]].append(args[1])
                return []
        results = [self.block(block, env, [()] * len(block.binders)) for block in blocks]
        return [[*args, *chain.from_iterable(results)]] * len(operation.types)

    def steps(self, starts: Sequence[int], body: Block, env: Env[int], index: Sequence[int]) -> Sequence[Sources]:
        """A loop from these states, whose body has them behind its index."""
        count = len(starts)
        states = self.new(_each([starts]))
        results = self.inside(body, env, [*index, *states])
        self.add(states, _each([results[:count]]))
        return [[state] for state in [*states, *results[count:]]]


def _nearer(bound: Dim, other: Dim, sign: int) -> Dim | None:
    """The lesser (sign 1) or greater (sign -1) of two bounds; None where sizes decide that."""
    further = (other - bound) * sign
    return bound if further.is_nonnegative() else other if (-further).is_nonnegative() else None


def _each(columns: Collection[Sequence[int]]) -> list[Sequence[int]]:
    """What the results are made from, one of each of these."""
    return list(zip(*columns, strict=True))
