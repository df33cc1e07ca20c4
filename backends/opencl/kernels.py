"""A function for a device with memory of its own: kernels, and what the host does around them.

The device runs what touches arrays. A parallel loop outside of all others is a *kernel*; so is a stretch of sequential
statements, which one thread runs (or one group, where there are lanes among them). Loops and branches with kernels
inside are the host's, and so are scalars that it can compute from sizes and from scalar arguments. A scalar that the
device computes, and that another kernel or the host needs, is kept in the device's memory, in an array of such
scalars; where the host needs one, it brings it back (*reads it back*), which waits for all that was started before.

    total = 0.0                          kernel compute_partial
    parallel chunk < chunks                parallel chunk < chunks
      ... partial[chunk] = part              ... partial[chunk] = part
    for k < chunks                =>     kernel compute_total
      total = total + partial[k]           var total = 0.0
    parallel i < n                         for k < chunks: total = total + partial[k]
      y[i] = x[i] / total                  f64_scalars[0] = total
                                         kernel compute_y
                                           let total = f64_scalars[0]
                                           parallel i < n: y[i] = x[i] / total

A ``while`` whose test the device computes would be read back in each turn. Instead the host runs more and more turns
between two looks at the test (*speculation*). The test is kept in ``active``; when it has failed, the kernels of the
turns that are left do nothing. All that the loop changes is the device's then, since the host does not know how far it
came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from ...core.types import Scalar, bool_
from .. import ir
from ..memory.scratch import decided_inside

# A kernel for one thread holds about so many statements: compilers are slow on very long functions.
LONG = 400
# The most turns of a while between two looks at its test.
TURNS = 32
_TRUE = ir.Constant(True, bool_)


def split(function: ir.Function) -> ir.Function:
    """The function with all that touches arrays in kernels; on the host, a load is a read-back."""
    placed = _placed(function)
    splitter = _Splitter(function, placed)
    body = splitter.block(function.body, None)
    return _with_cells(replace(function, body=body), placed)


# Where scalars live


@dataclass
class _Placed:
    """The scalars that the device computes, and the whiles that run ahead of their tests."""

    function: ir.Function
    device: dict[str, Scalar] = field(default_factory=dict)
    mutable: set[str] = field(default_factory=set)
    speculated: set[int] = field(default_factory=set)  # by the ``id`` of the statement

    def __post_init__(self) -> None:
        self.scalar_arguments = {buffer.name for buffer in self.function.arguments if not buffer.extents}

    def on_device(self, expression: ir.Expression) -> bool:
        """Whether the host would have to read something back to know a value."""
        for part in ir.inside(expression):
            if isinstance(part, ir.Load) and part.buffer.name not in self.scalar_arguments:
                return True
            if isinstance(part, ir.Variable) and part.name in self.device:
                return True
        return False

    def reads_back(self, block: ir.Block) -> bool:
        """Whether the host needs something from the device, or gives something away, in a block that it drives."""
        for statement in block:
            match statement:
                case ir.Return():
                    return True
                case ir.Require() | ir.Let() | ir.Declare() | ir.Assign():
                    pass
                case ir.For() | ir.If() | ir.While() if self.measures_on_device(statement):
                    return True
                case ir.For(kind="parallel"):
                    pass
                case ir.For() | ir.If() | ir.While() if not driven(statement):
                    pass
                case _:
                    if any(map(self.on_device, ir.expressions_of(statement))):
                        return True
                    if any(map(self.reads_back, ir.blocks_of(statement))):
                        return True
        return False

    def measures_on_device(self, statement: ir.Statement) -> bool:
        """Whether the device computes how many threads a kernel has, or how much memory each."""
        own = [each.buffer for each in ir.of_kind((statement,), ir.Allocate)]
        memory = [extent for buffer in own for extent in buffer.extents]
        decided = any(decided_inside(buffer, (statement,)) for buffer in own)
        return decided or any(map(self.on_device, [*memory, *_extents(statement)]))

    def visit(self, block: ir.Block, speculated: bool) -> None:
        for statement in block:
            match statement:
                case ir.Let(name, value) | ir.Declare(name, value):
                    if isinstance(statement, ir.Declare):
                        self.mutable.add(name)
                    if self.on_device(value):
                        self.device[name] = value.type
                case ir.Assign(name, value):
                    if speculated or self.on_device(value):
                        self.device[name] = value.type
                case ir.For(kind="parallel"):
                    pass
                case ir.For() | ir.If() | ir.While() if not driven(statement):
                    self.device.update(
                        {name: each for name, each in changed((statement,)).items() if name in self.mutable}
                    )
                case ir.While(head, test, body):
                    ahead = self.on_device(test) and not self.reads_back((*head, *body))
                    self.speculated -= {id(statement)}
                    self.speculated |= {id(statement)} if ahead else set()
                    self.visit(head, speculated or ahead)
                    self.visit(body, speculated or ahead)
                case ir.For() | ir.If():
                    for inner in ir.blocks_of(statement):
                        self.visit(inner, speculated)
                case _:
                    pass


def _placed(function: ir.Function) -> _Placed:
    """Where scalars live: on the host as long as nothing says otherwise."""
    placed = _Placed(function)
    while True:
        before = len(placed.device), set(placed.speculated)
        placed.visit(function.body, False)
        if before == (len(placed.device), placed.speculated):
            return placed


def driven(statement: ir.Statement) -> bool:
    """Whether a loop or a branch is the host's: there are parallel loops inside, which are kernels of their own."""
    inner = (each for block in ir.blocks_of(statement) for each in ir.walk(block))
    return any(isinstance(each, ir.For) and each.kind == "parallel" for each in inner)


def _extents(statement: ir.Statement) -> list[ir.Expression]:
    """Those of the parallel loops in a statement."""
    return [each.extent for each in ir.of_kind((statement,), ir.For) if each.kind == "parallel"]


def changed(block: ir.Block) -> dict[str, Scalar]:
    """The variables that a block assigns to, or combines into."""
    names: dict[str, Scalar] = {}
    for statement in ir.walk(block):
        if isinstance(statement, ir.Assign):
            names[statement.name] = statement.value.type
        elif isinstance(statement, ir.For):
            names.update({reduction.name: reduction.neutral.type for reduction in statement.reductions})
    return names


# Kernels


class _Splitter:
    """Puts statements into kernels; those for one thread are gathered as long as nothing has to come between."""

    def __init__(self, function: ir.Function, placed: _Placed) -> None:
        self.placed = placed
        self.taken = {function.name, *(buffer.name for buffer in (*function.arguments, *function.results))}
        self.names = set(function.sizes).union(*ir.mentioned(function.body))

    def block(self, block: ir.Block, active: ir.Expression | None) -> ir.Block:
        """A block of the host's; its kernels do nothing unless ``active`` holds."""
        made: list[ir.Statement] = []
        waiting: list[ir.Statement] = []
        length = 0

        def flush() -> None:
            nonlocal length
            if waiting:
                made.append(self.kernel(tuple(waiting), active))
                waiting.clear()
                length = 0

        for statement in block:
            match statement:
                case ir.Let(name) | ir.Declare(name) if name not in self.placed.device:
                    made.append(statement)
                case ir.Assign(name) if name not in self.placed.device:
                    flush()
                    made.append(statement)
                case ir.Allocate():
                    if any(map(self.placed.on_device, statement.buffer.extents)):
                        flush()
                    made.append(statement)
                case ir.Require(test) if not self.placed.on_device(test) and active is None:
                    flush()
                    made.append(statement)
                case ir.For(kind="parallel"):
                    flush()
                    made.append(self.kernel((statement,), active))
                case ir.Return():
                    flush()
                    made.append(statement)
                case ir.For() | ir.If() | ir.While() if driven(statement):
                    flush()
                    made.extend(self.drive(statement, active))
                case _:
                    waiting.append(statement)
                    length += sum(1 for _ in ir.walk((statement,)))
                    if length >= LONG:
                        flush()
        flush()
        return tuple(made)

    def drive(self, statement: ir.Statement, active: ir.Expression | None) -> list[ir.Statement]:
        """A loop or a branch of the host's."""
        match statement:
            case ir.For(variable, extent):
                return [ir.For(variable, extent, "sequential", self.block(statement.body, active))]
            case ir.While(head, test, body) if id(statement) in self.placed.speculated:
                return self.ahead(head, test, body, active)
            case ir.If() | ir.While():
                return [ir.map_inside(statement, lambda inner: self.block(inner, active))]
        raise AssertionError(statement)

    def ahead(
        self, head: ir.Block, test: ir.Expression, body: ir.Block, active: ir.Expression | None
    ) -> list[ir.Statement]:
        """A while that the host runs for several turns at a time, without knowing whether they are still to be run."""
        own, turns = ir.Variable(self.fresh("active"), bool_), ir.Variable(self.fresh("turns"))
        self.placed.device[own.name] = bool_
        self.placed.mutable.add(own.name)
        start = self.kernel((ir.Declare(own.name, _TRUE if active is None else active),), None)
        look = self.block((*head, ir.Assign(own.name, test)), own)
        turn = ir.For(self.fresh("turn"), turns, "sequential", (*self.block(body, own), *look))
        more = ir.Assign(turns.name, ir.minimum(turns + turns, TURNS))
        first = ir.Declare(turns.name, ir.Constant(1))
        return [start, *look, first, ir.While((), own, (turn, more))]

    def fresh(self, stem: str) -> str:
        """A name that the function does not have yet."""
        name = next(name for k in count(1) if (name := f"{stem}{k}") not in self.names)
        self.names.add(name)
        return name

    def kernel(self, body: ir.Block, active: ir.Expression | None) -> ir.Kernel:
        if active is not None:
            body = (ir.If(active, body, ()),)
        return ir.Kernel(self.name(body), body)

    def name(self, body: ir.Block) -> str:
        """A name that says what a kernel computes: the first array that it writes, or scalar that it binds."""
        own = ir.allocated_in(body)
        written = [each.buffer.name for each in ir.walk(body) if isinstance(each, ir.Store | ir.Update)]
        written = [name for name in written if name not in own]
        bound = [each.name for each in ir.walk(body) if isinstance(each, ir.Let | ir.Declare | ir.Assign)]
        stem = f"compute_{[*written, *bound, 'nothing'][0]}"
        name, k = stem, 1
        while name in self.taken:
            k += 1
            name = f"{stem}_{k}"
        self.taken.add(name)
        return name


# Scalars that kernels hand to each other


class _Cells:
    """Places for scalars on the device, in one array for each type."""

    def __init__(self, scalars: dict[str, Scalar], mutable: set[str]) -> None:
        self.mutable = mutable
        self.places: dict[str, ir.Load] = {}
        numbers: dict[Scalar, int] = {}
        for scalar in scalars.values():
            numbers[scalar] = numbers.get(scalar, 0) + 1
        self.buffers = {s: ir.Buffer(f"{s}_scalars", s, (ir.Constant(count),)) for s, count in numbers.items()}
        for name, scalar in scalars.items():
            numbers[scalar] -= 1
            self.places[name] = ir.Load(self.buffers[scalar], (ir.Constant(numbers[scalar]),))

    def host(self, block: ir.Block, known: frozenset[str]) -> ir.Block:
        """A block of the host's, which reads back what the device has: what does not change, once."""
        made: list[ir.Statement] = []
        for statement in block:
            for name in sorted(self._needed(statement) - self.mutable - known):
                made.append(ir.Let(name, self.places[name]))
                known |= {name}
            match statement:
                case ir.Kernel(name, body):
                    made.append(ir.Kernel(name, self.guarded(body, known)))
                case ir.For():
                    made.append(
                        replace(statement, extent=self.read(statement.extent), body=self.host(statement.body, known))
                    )
                case ir.If(test, then, orelse):
                    made.append(ir.If(self.read(test), self.host(then, known), self.host(orelse, known)))
                case ir.While(head, test, body):
                    looked = self._needed_in(test) - self.mutable - known
                    read = [ir.Let(name, self.places[name]) for name in sorted(looked)]
                    first = (*self.host(head, known), *read)
                    made.append(ir.While(first, self.read(test), self.host(body, known | looked)))
                case _:
                    made.extend(ir.map_block((statement,), self.read, lambda store: store))
        return tuple(made)

    def _needed(self, statement: ir.Statement) -> set[str]:
        """The device's scalars that the host needs for a statement, before it begins.

        For a kernel, they are those that say how many threads it has, and how much memory each.
        """
        match statement:
            case ir.Kernel(_, body):
                own = [each.buffer for each in ir.of_kind(body, ir.Allocate)]
                bound = {each.name for each in ir.walk(body) if isinstance(each, ir.Let | ir.Declare)}
                memory = [extent for buffer in own for extent in buffer.extents]
                return self._needed_in(*memory, *[each for inner in body for each in _extents(inner)]) - bound
            case ir.While():
                return set()
        return self._needed_in(*ir.expressions_of(statement))

    def _needed_in(self, *wholes: ir.Expression) -> set[str]:
        return ir.names_in(wholes) & self.places.keys()

    def read(self, expression: ir.Expression) -> ir.Expression:
        if isinstance(expression, ir.Variable) and expression.name in self.mutable & self.places.keys():
            return self.places[expression.name]
        return ir.map_operands(expression, self.read)

    def guarded(self, body: ir.Block, known: frozenset[str]) -> ir.Block:
        """A kernel's body; what it waits for, in a while that runs ahead, is read first."""
        match body:
            case (ir.If(ir.Variable(name), inner, ()),) if name in self.places:
                return (ir.If(self.places[name], self.kernel(inner, known), ()),)
        return self.kernel(body, known)

    def kernel(self, body: ir.Block, known: frozenset[str]) -> ir.Block:
        """A kernel's body, with the scalars of other kernels read before it and its own stored behind it."""
        bound = {each.name for each in body if isinstance(each, ir.Let | ir.Declare)}
        assigned = changed(body)
        before: list[ir.Statement] = []
        after: list[ir.Statement] = []
        for name in sorted(used(body) & self.places.keys() - known):
            place = self.places[name]
            if name not in bound:
                before.append(ir.Declare(name, place) if name in assigned else ir.Let(name, place))
            if name in bound or name in assigned:
                after.append(ir.Store(place.buffer, place.indices, ir.Variable(name, place.type)))
        return (*before, *body, *after)


def used(body: ir.Block) -> set[str]:
    """The variables that a kernel needs or binds; those that say how large its arrays are, too."""
    return ir.mentioned(body)[0] | {part.name for part in ir.variables_of(body)}


def _with_cells(function: ir.Function, placed: _Placed) -> ir.Function:
    """The function with the scalars that cross the borders of kernels in memory."""
    crossing = {name: placed.device[name] for name in sorted(_crossing(function.body) & placed.device.keys())}
    if not crossing:
        return function
    cells = _Cells(crossing, placed.mutable)
    body = (*[ir.Allocate(buffer) for buffer in cells.buffers.values()], *cells.host(function.body, frozenset()))
    return replace(function, body=body)


def _crossing(body: ir.Block) -> set[str]:
    """The names that are mentioned in more than one kernel, or in a kernel and on the host."""
    seen: set[str] = set()
    crossing: set[str] = set()
    for names in _mentions(body, set()):
        crossing |= seen & names
        seen |= names
    return crossing


def _mentions(block: ir.Block, kernels: set[str]) -> Iterator[set[str]]:
    """The variables of each kernel, which may stand in two places, and of each statement of the host's."""
    for statement in block:
        if isinstance(statement, ir.Kernel):
            if statement.name not in kernels:
                kernels.add(statement.name)
                yield used(statement.body)
            continue
        yield ir.names_in(ir.expressions_of(statement))
        for inner in ir.blocks_of(statement):
            yield from _mentions(inner, kernels)
