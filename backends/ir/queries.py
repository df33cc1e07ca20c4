"""Questions that every user of the loop IR asks: what a statement mentions, and what varies with a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from itertools import count
from typing import Any, NamedTuple, TypeVar

from .expressions import All, Apply, Constant, Expression, First, Load, MultiplyAdd, Select, Variable
from .loops import (
    WITH_BLOCKS,
    Allocate,
    Assign,
    Barrier,
    Block,
    Call,
    Declare,
    For,
    Fork,
    Function,
    If,
    Invoke,
    Kernel,
    Let,
    Nest,
    Prefetch,
    Require,
    Return,
    Statement,
    Store,
    Update,
    While,
    contains,
    of_kind,
    walk,
)

_LEAVES = frozenset((Variable, Constant))


def operands(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that an expression is made from: the extents that guard a load are among them."""
    if type(expression) in _LEAVES:  # no pattern: this is asked most often of all, and one that does not fit takes long
        return ()
    match expression:
        case Apply():
            return expression.arguments
        case Load():
            if not expression.guarded:
                return expression.indices
            return (*expression.indices, *[expression.buffer.extents[axis] for axis in expression.guarded])
        case Select():
            return (expression.test, expression.then, expression.orelse)
        case MultiplyAdd():
            return (expression.a, expression.b, expression.c)
        case All():
            return (expression.test,)
        case First():
            return (expression.of,)
    return ()


def inside(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made from."""
    pending = [expression]
    while pending:
        expression = pending.pop()
        yield expression
        pending.extend(operands(expression))


def expressions_of(statement: Statement) -> tuple[Expression, ...]:
    """The expressions that stand in a statement itself, not in its blocks."""
    match statement:
        case Let() | Assign():
            return (statement.value,)
        case Declare():
            return (statement.initial,)
        case Store(buffer, indices, value, guarded) | Update(buffer, indices, _, value, guarded):
            return (*indices, value, *[buffer.extents[axis] for axis in guarded])
        case Prefetch(_, indices):
            return indices
        case Allocate(buffer):
            return buffer.extents
        case For():
            return (statement.extent,) if statement.grain is None else (statement.extent, statement.grain)
        case Nest(axes):
            extents = tuple([axis.extent for axis in axes])
            return extents if statement.alone is None else (*extents, statement.alone)
        case If(test) | While(_, test):
            return (test,)
        case Require(test, _, values):
            return (test, *values)
        case Invoke(_, _, reads, writes):
            buffers = (*reads, *writes, *statement.enters)
            return (*statement.values, *[extent for buffer in buffers for extent in buffer.extents])
        case Call(_, _, reads, writes, iteration):
            return (*iteration, *[extent for buffer in (*reads, *writes) for extent in buffer.extents])
        case Return() | Barrier() | Kernel() | Fork():
            return ()


def loads(statement: Statement) -> Iterator[Load]:
    """The reads in a statement itself, not in its blocks."""
    for whole in expressions_of(statement):
        if not isinstance(whole, Variable | Constant) and names_of(whole)[1]:
            yield from (part for part in inside(whole) if isinstance(part, Load))


def accesses(block: Block) -> Iterator[Load | Store]:
    """The reads and the stores of a block."""
    for statement in walk(block):
        if isinstance(statement, Store):
            yield statement
        yield from loads(statement)


def unused_names(function: Function) -> Callable[[str], str]:
    """What gives names with a stem that neither a function has nor was given before."""
    own = [buffer.name for buffer in (*function.arguments, *function.results)]
    taken, numbers = set(own).union(*mentioned(function.body)), count()
    return lambda stem: next(name for number in numbers if (name := f"{stem}{number}") not in taken)


def blocks_of(statement: Statement) -> tuple[Block, ...]:
    """The blocks inside a statement."""
    match statement:
        case For() | Nest() | Kernel() | Fork():
            return (statement.body,)
        case If(_, then, orelse):
            return (then, orelse)
        case While(head, _, body):
            return (head, body)
    return ()


class _Names:
    """The names of variables and buffers in statements, by what is done with them there."""

    __slots__ = ("assigned", "bound", "buffers", "read", "variables", "written")

    def __init__(self, block: Block) -> None:
        self.variables: set[str] = set()  # of all that is mentioned
        self.buffers: set[str] = set()
        self.bound: set[str] = set()
        self.assigned: set[str] = set()
        self.read: set[str] = set()
        self.written: set[str] = set()
        for statement in block:
            if type(statement) in WITH_BLOCKS:
                self._include(_names_of(statement))
            else:
                self._add(statement)

    def _add(self, statement: Statement) -> None:
        """The names in a statement itself, not in its blocks."""
        match statement:
            case Let() | Declare():
                self.variables.add(statement.name)
                self.bound.add(statement.name)
            case Call(name, _, reads, writes):
                self.variables.add(name)
                self.bound.add(name)
                self.read.update([buffer.name for buffer in reads])
                self.written.update([buffer.name for buffer in writes])
                self.buffers.update([buffer.name for buffer in (*reads, *writes)])
                if isinstance(statement, Invoke):
                    self.variables.update([variable.name for variable in statement.binds])
                    self.bound.update([variable.name for variable in statement.binds])
                    self.buffers.update([buffer.name for buffer in statement.enters])
            case Assign(name):
                self.variables.add(name)
                self.assigned.add(name)
            case For():
                self.variables.add(statement.variable)
                self.bound.add(statement.variable)
                self.variables.update([reduction.name for reduction in statement.reductions])
            case Nest(axes):
                self.variables.update([axis.variable.name for axis in axes])
                self.variables.update([reduction.name for reduction in statement.combines])
                self.bound.update([axis.variable.name for axis in axes])
            case Store(buffer) | Update(buffer):
                self.buffers.add(buffer.name)
                self.written.add(buffer.name)
            case Prefetch(buffer) | Allocate(buffer) | Return(_, buffer):
                self.buffers.add(buffer.name)
        for whole in expressions_of(statement):
            if isinstance(whole, Variable):
                self.variables.add(whole.name)
            elif not isinstance(whole, Constant):
                variables, buffers = names_of(whole)
                self.variables |= variables
                self.buffers |= buffers
                self.read |= buffers

    def _include(self, other: _Names) -> None:
        self.variables |= other.variables
        self.buffers |= other.buffers
        self.bound |= other.bound
        self.assigned |= other.assigned
        self.read |= other.read
        self.written |= other.written


def names_of(expression: Expression) -> tuple[set[str], set[str]]:
    """The names of the variables and of the buffers in an expression, kept with it: statements share expressions."""
    kept: dict[str, Any] = vars(expression)
    if "names" not in kept:
        variables, buffers, pending = set[str](), set[str](), [expression]
        while pending:
            part = pending.pop()
            if isinstance(part, Variable):
                variables.add(part.name)
            elif isinstance(part, Constant):
                continue
            elif (known := vars(part).get("names")) is not None:
                variables |= known[0]
                buffers |= known[1]
            else:
                pending.extend(operands(part))
                if isinstance(part, Load):
                    buffers.add(part.buffer.name)
        kept["names"] = variables, buffers
    found: tuple[set[str], set[str]] = kept["names"]
    return found


def _names_of(statement: Statement) -> _Names:
    """The names in a statement and its blocks, kept with it: passes ask for them again at each level of loops."""
    kept: dict[str, Any] = vars(statement)
    if "names" not in kept:
        names = _Names(tuple([part for block in blocks_of(statement) for part in block]))
        names._add(statement)
        kept["names"] = names
    found: _Names = kept["names"]
    return found


def mentioned(block: Block) -> tuple[set[str], set[str]]:
    """The names of the variables and of the buffers that a block reads, writes or binds."""
    names = _Names(block)
    return names.variables, names.buffers


def read_in(block: Block) -> set[str]:
    """The names of the buffers that a block reads; an update reads nothing."""
    return _Names(block).read


def allocated_in(block: Block) -> set[str]:
    """The names of the buffers that a block allocates."""
    return {allocation.buffer.name for allocation in of_kind(block, Allocate)}


def written_in(block: Block) -> set[str]:
    """The names of the buffers that a block stores to or updates."""
    found: set[str] = set()
    for statement in block:
        match statement:
            case Store(buffer) | Update(buffer):
                found.add(buffer.name)
            case Call(_, _, _, writes):
                found.update([buffer.name for buffer in writes])
            case For() | Nest() | If() | While() | Kernel() | Fork():
                found |= _names_of(statement).written
    return found


def writes_elements(block: Block) -> Expression | None:
    """Whether the arrays that loops write have elements; they do nothing if not.

    None where that is known, or they do something else, or only fill vectors, whose elements they count.
    """
    stores = [each for each in walk(block) if isinstance(each, Store | Update | Require | Call | Return | Kernel)]
    if assigned_in(block) - bound_in(block):
        return None
    own, test = allocated_in(block), None
    for store in stores:
        if not isinstance(store, Store):
            return None
        if store.buffer.name in own:
            continue
        some = [extent > 0 for extent in store.buffer.extents if not isinstance(extent, Constant)]
        if len(store.buffer.extents) < 2 or not some:
            return None
        filled = functools.reduce(lambda a, b: a & b, some)
        test = filled if test is None or test == filled else test | filled
    return test


def invokes(function: Function) -> bool:
    """Whether a function invokes procedures, or makes or opens cells."""
    return contains(function.body, Invoke)


def assigned_in(block: Block) -> set[str]:
    """The names of the variables that a block assigns to."""
    found: set[str] = set()
    for statement in block:
        match statement:
            case Assign(name):
                found.add(name)
            case For() | Nest() | If() | While() | Kernel() | Fork():
                found |= _names_of(statement).assigned
    return found


def bound_in(block: Block) -> set[str]:
    """The names that a block binds."""
    found: set[str] = set()
    for statement in block:
        match statement:
            case Let(name) | Declare(name) | Call(name):
                found.add(name)
            case For() | Nest() | If() | While() | Kernel() | Fork():
                found |= _names_of(statement).bound
    return found


def conflict(block: Block, others: Sequence[Statement]) -> bool:
    """Whether some statements make or change what others mention, or the other way round: they keep their order."""
    theirs = list(map(touched, others))
    return any(
        not (mine.changed.isdisjoint(its.mentioned) and its.changed.isdisjoint(mine.mentioned))
        for mine in map(touched, block)
        for its in theirs
    )


class Touched(NamedTuple):
    """The names of variables and buffers that a statement mentions, and of those that it makes or changes."""

    mentioned: Set[str]
    changed: Set[str]


def touched(statement: Statement) -> Touched:
    """What a statement touches, kept with it: fusion asks for each pair of them."""
    kept: dict[str, Any] = vars(statement)
    if "touched" not in kept:
        names = _Names((statement,))
        changed = names.assigned | names.written
        if isinstance(statement, Let | Declare | Call):
            changed.add(statement.name)
            if isinstance(statement, Invoke):
                changed.update([each.name for each in statement.binds], [each.name for each in statement.enters])
        elif isinstance(statement, Fork):
            changed |= names.bound
        elif isinstance(statement, Allocate):
            changed.add(statement.buffer.name)
        kept["touched"] = Touched(names.variables | names.buffers, changed)
    found: Touched = kept["touched"]
    return found


def grid(body: Block) -> tuple[Block, list[For], Block]:
    """What stands before a grid, its loops from the outside in, and their body; no loops where there is none."""
    loops: list[For] = []
    before: Block = ()
    if body and isinstance(body[-1], For) and body[-1].kind == "parallel":
        before, loop = body[:-1], body[-1]
        loops.append(loop)
        while len(loop.body) == 1 and isinstance(loop.body[0], For) and loop.body[0].kind == "parallel":
            loop = loop.body[0]
            loops.append(loop)
        return before, loops, loop.body
    return before, loops, body


def wholes(statement: Statement) -> Iterator[Expression]:
    """The expressions of a statement, and those that say how large the buffers are that it mentions."""
    buffers = [statement.buffer] if isinstance(statement, Store | Update | Allocate) else []
    yield from expressions_of(statement)
    buffers += [load.buffer for load in loads(statement)]
    for buffer in buffers:
        yield from buffer.extents


def variables_of(body: Block) -> Iterator[Variable]:
    """The variables that a block mentions."""
    for statement in walk(body):
        yield from variables_in(wholes(statement))


def variables_in(many: Iterable[Expression]) -> Iterator[Variable]:
    for whole in many:
        yield from (part for part in inside(whole) if isinstance(part, Variable))


def names_in(many: Iterable[Expression]) -> set[str]:
    """The names of the variables that expressions mention."""
    found: set[str] = set()
    for whole in many:
        if isinstance(whole, Variable):
            found.add(whole.name)
        elif not isinstance(whole, Constant):
            found |= names_of(whole)[0]
    return found


def bindings_of(wholes: Iterable[Expression], lets: Sequence[Let]) -> tuple[Let, ...]:
    """Those of some bindings that expressions need, directly or through each other."""
    names = names_in(wholes)
    needed: list[Let] = []
    for let in reversed(lets):
        if let.name in names:
            needed.append(let)
            names |= names_in([let.value])
    return tuple(reversed(needed))


S = TypeVar("S", bound=Statement)


def apart(block: Sequence[S], names: Set[str]) -> tuple[list[Let], list[S]]:
    """The bindings of a block that are the same whatever these variables are given, and its other statements."""
    steady, others, varying = list[Let](), list[S](), set(names)
    for statement in block:
        if isinstance(statement, Let) and varying.isdisjoint(names_in([statement.value])):
            steady.append(statement)
            continue
        others.append(statement)
        if isinstance(statement, Let):
            varying.add(statement.name)
    return steady, others


def decided_by(names: Container[str], expression: Expression) -> bool:
    """Whether the variables of these names alone decide an expression."""
    variables, buffers = names_of(expression)
    return not buffers and all(name in names for name in variables)


def unchanged_by(names: Set[str], expression: Expression) -> bool:
    """Whether an expression has the same value whatever these variables are given, and whatever is stored."""
    variables, buffers = names_of(expression)
    return not buffers and variables.isdisjoint(names)


def decided_by_sizes(function: Function) -> tuple[Let, ...]:
    """The bindings at the top of a function that its sizes decide."""
    names, found = set(function.sizes), list[Let]()
    for statement in function.body:
        if isinstance(statement, Let) and decided_by(names, statement.value):
            names.add(statement.name)
            found.append(statement)
    return tuple(found)


def varying(loop: For) -> frozenset[int]:
    """The Let and Declare statements in a loop's body, by ``id``, whose values vary with the loop's variable.

    The reductions of the loop vary with it. A mutable variable varies if one of the values assigned to it does;
    as those may be assigned further down, the body is looked through until nothing new is found.
    """
    found: set[int] = set()
    while True:
        before = len(found)
        binders: dict[str, int | None] = {reduction.name: 0 for reduction in loop.reductions}
        binders[loop.variable] = 0
        _look(loop.body, binders, found)
        if len(found) == before:
            return frozenset(found)


def _look(block: Block, binders: dict[str, int | None], found: set[int]) -> None:
    """``binders`` maps names to the statement that binds them; 0 is the loop itself, None what does not vary."""

    def varies(expression: Expression) -> bool:
        for part in inside(expression):
            if isinstance(part, Variable) and (binder := binders.get(part.name)) is not None:
                if binder == 0 or binder in found:
                    return True
        return False

    binders = dict(binders)
    for statement in block:
        match statement:
            case Let(name, value) | Declare(name, value):
                binders[name] = id(statement)
                if varies(value):
                    found.add(id(statement))
            case Assign(name, value):
                if binders.get(name) and varies(value):
                    found.add(binders[name] or 0)
            case For():
                _look(statement.body, {**binders, statement.variable: None}, found)
            case Nest(axes, inner):
                _look(inner, {**binders, **{axis.variable.name: None for axis in axes}}, found)
            case Kernel(_, inner) | Fork(inner):
                _look(inner, binders, found)
            case If(_, then, orelse):
                _look(then, binders, found)
                _look(orelse, binders, found)
            case While(head, _, inner):
                _look((*head, *inner), binders, found)
            case Store() | Update() | Prefetch() | Barrier() | Allocate() | Require() | Return():
                pass
            case Call(name):
                binders[name] = None
