"""Partial evaluation: the body of a parallel loop is straight-line code, an iteration run on names, not numbers.

What is known is computed at once: loops of known extent are unrolled, tests that are known choose their branch, an
index that is known picks one element of an array, and an array of known extents that the body allocates is no array
any more, but a name for each element. Both branches of a test that is not known are run, and what they leave in
variables and elements is selected. Each operation is made once for equal operands, wherever it stood. So this body::

    temporary u: f64[2]
    for j < 2
      u[j] = x[i, j] / r[i]
    var s = 0.0
    for j < 2
      s = fma(u[j], u[j], s)
    y[i] = s

becomes four operations without an array::

    a = x[i, 0] / r[i]
    b = x[i, 1] / r[i]
    y[i] = fma(b, b, fma(a, a, 0.0))

Only equations that hold for all floats are used, so the results have the same bits. A load that ran in one branch
alone runs always, with indices that are 0 where the branch is not taken. A store that one branch alone makes, or that
all iterations make at one place, a requirement, a loop of unknown extent and an index into a local array that is not
known make the body :class:`Irregular`.

A loop that ends by a test stays one, and goes on as long as one iteration side by side does. What it changes is held in
variables, which keep their values where the test does not hold any more; what it does not change is computed before::

    var x1 = x
    while going(x1)                       for one of the lanes
      x1 = select(going(x1), next(x1), x1)

Where states change places, in slots of one buffer that variables number (``state.py``), the numbers are not known in
each turn, but who is where is: each slot stands for the variable that has it as a turn begins.

Several loops over one range may be traced one after the other, which makes them one loop: what an earlier one stored
at an iteration's own place, a later one reads from a name. A store that nothing reads is left to others to remove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from ...core.types import Scalar, bool_, i64
from .. import ir
from ..target import UNROLLED_ITERATIONS, UNROLLED_STATEMENTS, UNROLLING_STEPS
from .context import zero


class Irregular(Exception):
    """The body is not straight-line code, or too long."""


Atom = ir.Constant | ir.Variable
Key = tuple[object, ...]
Cell = tuple[str, tuple[Key, ...]]  # an element: its buffer, and the keys of its indices
K = TypeVar("K")


@dataclass
class _Scope:
    """The head or body of a loop that ends by a test: its code, and what is bound in it."""

    body: list[ir.Statement] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    made: dict[Key, ir.Variable] = field(default_factory=dict)


def _key(atom: ir.Expression) -> Key:
    """Equal for atoms that stand for the same bits: names are told apart by their text, which is quick to hash."""
    if isinstance(atom, ir.Constant):
        return (atom.type, repr(atom.value) if atom.type.kind == "float" else atom.value)
    return (atom.name,) if isinstance(atom, ir.Variable) else (atom,)


def _cell(buffer: ir.Buffer, indices: Sequence[Atom]) -> Cell:
    return buffer.name, tuple([_key(index) for index in indices])


@dataclass
class Straight:
    """Straight-line code for one iteration of loops over ``variable``, which runs to ``extent``.

    ``constants`` holds the buffers all of whose elements are one constant, ``around`` the loops outside: the extents,
    by variable.
    """

    variable: ir.Variable
    extent: ir.Expression
    fresh: Callable[[str], str]
    constants: Mapping[str, ir.Constant]
    around: Mapping[str, ir.Expression]
    body: list[ir.Statement] = field(default_factory=list)
    steps: int = 0
    inside: int = 0  # statements of loops that end by a test, as far as these are written
    read: set[str] = field(default_factory=set)  # buffers of others
    written: set[str] = field(default_factory=set)
    _names: dict[str, Atom] = field(default_factory=dict)
    _local: set[str] = field(default_factory=set)  # buffers that the body allocates
    _cells: dict[Cell, Atom] = field(default_factory=dict)
    _waiting: dict[Cell, ir.Store] = field(default_factory=dict)  # stores in branches, to be made behind them
    _scattered: set[str] = field(default_factory=set)  # written buffers of which it is not known which elements
    _varying: set[str] = field(default_factory=set)  # names of the body whose values vary with the iteration
    _earlier: frozenset[str] = frozenset()  # buffers that earlier loops wrote
    _made: dict[Key, ir.Variable] = field(default_factory=dict)
    _path: Atom | None = None  # what holds where the statement is reached, if not always
    _scopes: list[_Scope] = field(default_factory=list)  # of the loops around that end by a test
    _slots: set[str] = field(default_factory=set)  # names that stand for slots
    _pools: set[str] = field(default_factory=set)  # buffers whose slots have such names

    def run(self, variable: str, body: ir.Block, in_order: bool = False) -> None:
        """Append an iteration of a loop over the same range; Irregular, with nothing changed, if that cannot be.

        The loop must not write what an earlier one read, unless it did so at the iteration's own place. One that is
        written to run ``in_order`` must not need to.
        """
        before = self._copied()
        try:
            self._names[variable] = self.variable
            self._earlier = frozenset(self.written)
            self._block(body)
            if in_order and not self._apart():
                raise Irregular("iterations may store at one place")
        except Irregular:
            self.__dict__.update(before.__dict__)
            raise

    def _copied(self) -> Straight:
        made = Straight(self.variable, self.extent, self.fresh, self.constants, self.around)
        for name, value in self.__dict__.items():
            made.__dict__[name] = type(value)(value) if isinstance(value, list | set | dict) else value
        return made

    def _apart(self) -> bool:
        """Whether no two iterations store at one place: along some axis, each stores at its own number."""
        axes: dict[str, set[int]] = {}
        for store in self.body:
            if isinstance(store, ir.Store):
                own = {axis for axis, index in enumerate(store.indices) if index == self.variable}
                axes[store.buffer.name] = axes.get(store.buffer.name, own) & own
        return all(axes.values())

    # Statements

    def _block(self, block: ir.Block) -> None:
        for statement in block:
            self._statement(statement)

    def _statement(self, statement: ir.Statement) -> None:
        self.steps += 1
        made = len(self.body) + self.inside + sum([len(scope.body) for scope in self._scopes])
        if self.steps > UNROLLING_STEPS or made > UNROLLED_STATEMENTS:
            raise Irregular("it is too long")
        match statement:
            case ir.Let():
                self._names[statement.name] = self.value(statement.value)
            case ir.Declare(name, value):
                self._names[name] = self.value(value)
            case ir.Assign(name, value):
                if name not in self._names:
                    raise Irregular("it changes a variable of those around it")
                self._names[name] = self.value(value)
            case ir.Allocate(buffer, False):
                if not all(isinstance(extent, ir.Constant) for extent in buffer.extents):
                    raise Irregular("it allocates an array of a size that is not known")
                self._local.add(buffer.name)
            case ir.Store():
                self._store(statement)
            case ir.For():
                self._loop(statement)
            case ir.If(test, then, orelse):
                self._if(self.value(test), then, orelse)
            case ir.While():
                self._while(statement)
            case _:
                raise Irregular("it has to run as it is written")

    def _loop(self, loop: ir.For) -> None:
        extent = self.value(loop.extent)
        if not isinstance(extent, ir.Constant) or extent.value > UNROLLED_ITERATIONS or loop.kind == "parallel":
            raise Irregular("it has a loop that is long, or of a length that is not known")
        for number in range(int(extent.value)):
            self._names[loop.variable] = ir.Constant(number)
            self._block(loop.body)

    def _if(self, test: Atom, then: ir.Block, orelse: ir.Block) -> None:
        if isinstance(test, ir.Constant):
            self._block(then if test.value else orelse)
            return
        names, cells, path = dict(self._names), dict(self._cells), self._path
        self._path = self._both(path, test)
        self._block(then)
        taken = self._names, self._cells
        self._names, self._cells = dict(names), dict(cells)
        self._path = self._both(path, self.value(~test))
        self._block(orelse)
        self._path = path
        self._names = self._merged(test, taken[0], self._names)
        if (taken[1].keys() ^ self._cells.keys()) & self._waiting.keys():
            raise Irregular("it stores in one branch")
        self._cells = self._merged(test, taken[1], self._cells)
        if path is None:
            waiting = [name for name, _ in self._waiting]
            if any(waiting.count(name) > 1 for name in self._scattered):
                raise Irregular("it stores at places in a branch that may be one place")
            for cell, store in self._waiting.items():
                self.body.append(replace(store, value=self._cells[cell]))
            self._waiting = {}

    def _while(self, loop: ir.While) -> None:
        inside = (*loop.head, *loop.body)
        local = ir.written_in(inside) - ir.allocated_in(inside)
        if not local <= self._local:
            raise Irregular("it stores in a loop of unknown length")
        names, cells, path = dict(self._names), dict(self._cells), self._path
        pools = self._pools_of(inside)
        local |= pools.keys()  # slots may be exchanged, and nothing stored
        slots = {name: ir.Variable(self.fresh("slot"), i64) for name in sorted(set().union(*pools.values()))}
        entered = {buffer: {_key(names[name]): _key(slots[name]) for name in own} for buffer, own in pools.items()}
        outer = self._slots, self._pools
        self._slots, self._pools = self._slots | {each.name for each in slots.values()}, self._pools | pools.keys()
        # What it changes becomes variables
        changed = sorted((ir.assigned_in(inside) - ir.bound_in(inside)) & names.keys() - slots.keys())
        first: dict[str | Cell, Atom] = {name: names[name] for name in changed}
        first |= {_moved(cell, entered): atom for cell, atom in cells.items() if cell[0] in local}
        variables = {key: ir.Variable(self.fresh("w"), atom.type) for key, atom in first.items()}
        for key, variable in variables.items():
            self._out().append(ir.Declare(variable.name, first[key]))
        self._cells = {cell: atom for cell, atom in cells.items() if cell[0] not in local}
        self._names.update(slots)
        scope = _Scope()
        self._scopes.append(scope)
        before = self._frozen(variables)
        self._put(before)
        self._block(loop.head)
        test = self.value(loop.test)
        if path is not None:
            test = self._both(path, test)
        if isinstance(test, ir.Constant):
            raise Irregular("it has a loop that never begins, or never ends")
        head, scope.body = scope.body, []
        self.inside += len(head)
        self._path = test
        self._block(loop.body)
        self._path = path
        # Slots stand for the variables that have them now
        left = {buffer: {_key(self._names[name]): _key(slots[name]) for name in own} for buffer, own in pools.items()}
        if any(left[buffer].keys() != set(entered[buffer].values()) for buffer in pools):
            raise Irregular("slots are not exchanged")
        after: dict[str | Cell, Atom] = {name: self._names[name] for name in changed}
        after |= {_moved(cell, left): atom for cell, atom in self._cells.items() if cell[0] in local}
        if any(key not in variables and key[0] not in pools for key in after) or variables.keys() - after.keys():
            raise Irregular("it fills a part of an array")
        chosen = {key: self.value(ir.select(test, after[key], before[key])) for key in variables}
        assigned = [
            ir.Assign(variable.name, chosen[key]) for key, variable in variables.items() if chosen[key] != before[key]
        ]
        self._scopes.pop()
        self.inside += len(scope.body) + len(assigned)
        self._slots, self._pools = outer
        made = ir.While(tuple(head), test, (*scope.body, *assigned))
        if {each.name for each in slots.values()} & ir.mentioned((made,))[0]:
            raise Irregular("it computes with the number of a slot")
        self._out().append(made)
        self._names, self._cells = names, {cell: atom for cell, atom in cells.items() if cell[0] not in local}
        back = {buffer: {slot: constant for constant, slot in own.items()} for buffer, own in entered.items()}
        self._put({key if isinstance(key, str) else _moved(key, back): x for key, x in self._frozen(variables).items()})

    def _pools_of(self, block: ir.Block) -> dict[str, set[str]]:
        """Local buffers whose first index is a variable that the block changes, of a known value: these variables."""
        aliases = {
            each.name: each.value.name for each in ir.of_kind(block, ir.Let) if isinstance(each.value, ir.Variable)
        }
        changed = ir.assigned_in(block) - ir.bound_in(block)
        found: dict[str, set[str]] = {}
        for statement in ir.walk(block):
            stored = [(statement.buffer, statement.indices)] if isinstance(statement, ir.Store) else []
            for buffer, indices in (*[(load.buffer, load.indices) for load in ir.loads(statement)], *stored):
                if buffer.name in self._local and indices and isinstance(indices[0], ir.Variable):
                    name = aliases.get(indices[0].name, indices[0].name)
                    if name in changed and isinstance(self._names.get(name), ir.Constant):
                        found.setdefault(buffer.name, set()).add(name)
        moves = [
            {each.name, aliases.get(each.value.name, each.value.name)}
            for each in ir.of_kind(block, ir.Assign)
            if isinstance(each.value, ir.Variable)
        ]
        for names in found.values():
            while more := [move for move in moves if len(move - names) == 1]:  # those that they change places with
                names.update(*more)
            if not all(isinstance(self._names.get(name), ir.Constant) for name in names):
                raise Irregular("a slot is not known")
            if len({_key(self._names[name]) for name in names}) < len(names):
                raise Irregular("two states are in one slot")
        return found

    def _frozen(self, variables: Mapping[str | Cell, ir.Variable]) -> dict[str | Cell, Atom]:
        """Names for what variables hold now."""
        found: dict[str | Cell, Atom] = {}
        for key, variable in variables.items():
            found[key] = self._bound(variable, self._scopes[-1] if self._scopes else None)
        return found

    def _put(self, values: Mapping[str | Cell, Atom]) -> None:
        for key, atom in values.items():
            if isinstance(key, str):
                self._names[key] = atom
            else:
                self._cells[key] = atom

    def _out(self) -> list[ir.Statement]:
        """Where code goes."""
        return self._scopes[-1].body if self._scopes else self.body

    def _bound(self, expression: ir.Expression, scope: _Scope | None) -> ir.Variable:
        """A new name for an expression that varies."""
        found = ir.Variable(self.fresh("t"), expression.type)
        (self.body if scope is None else scope.body).append(ir.Let(found.name, expression))
        if scope is not None:
            scope.names.add(found.name)
        self._varying.add(found.name)
        return found

    def _merged(self, test: Atom, then: dict[K, Atom], orelse: dict[K, Atom]) -> dict[K, Atom]:
        """What is there after a test; what only one branch has is not asked for where the other was taken."""
        merged = {**then, **orelse}
        for name in [each for each in then if each in orelse]:
            a, b = then[name], orelse[name]
            merged[name] = a if _key(a) == _key(b) else self.value(ir.select(test, a, b))
        return merged

    def _both(self, path: Atom | None, test: Atom) -> Atom:
        return test if path is None else self.value(path & test)

    def _store(self, store: ir.Store) -> None:
        buffer, indices = store.buffer, [self.value(index) for index in store.indices]
        value = self.value(store.value)
        cell = _cell(buffer, indices)
        if buffer.name in self._local:
            self._require_known(buffer, indices)
            if self._inside(buffer, indices, store.guarded):
                self._cells[cell] = value
            return
        if buffer.name in self._earlier or buffer.name in self.read:
            raise Irregular("it writes what was read or written")
        if not self._varies(indices):  # of such a scatter at most one iteration writes, or none where that is outside
            raise Irregular("all its iterations store at one place")
        made = ir.Store(buffer, tuple(indices), value, store.guarded)
        if self._path is None:
            self.body.append(made)
        else:
            self._waiting[cell] = made
        if not all(isinstance(index, ir.Constant) or index == self.variable for index in indices):
            self._scattered.add(buffer.name)
        self.written.add(buffer.name)
        self._cells[cell] = value

    # Expressions

    def value(self, expression: ir.Expression) -> Atom:
        """What an expression is, as a constant or a name."""
        match expression:  # patterns without parts first: these are met most often of all
            case ir.Variable():
                return self._names.get(expression.name, expression)
            case ir.Constant():
                return expression
            case ir.Load():
                return self._load(expression)
            case ir.Apply(primitive, arguments, type):
                return self._shared(simplified(ir.Apply(primitive, tuple(map(self.value, arguments)), type)))
            case ir.Select(test, then, orelse, type):
                chosen = self.value(test)
                if isinstance(chosen, ir.Constant):
                    return self.value(then if chosen.value else orelse)
                a, b = self.value(then), self.value(orelse)
                return a if _key(a) == _key(b) else self._shared(ir.select(chosen, a, b))
            case ir.MultiplyAdd(a, b, c, type):
                factors = self.value(a), self.value(b)
                for one, other in (factors, factors[::-1]):
                    if isinstance(one, ir.Constant) and one.value == 1:
                        return self.value(other + c)
                return self._shared(ir.MultiplyAdd(*factors, self.value(c), type))
            case ir.All() | ir.First():
                raise AssertionError("no pass over nests writes this")

    def _shared(self, expression: ir.Expression) -> Atom:
        """The name of an expression of atoms: the one that it has already, or a new one."""
        match expression:
            case ir.Constant() | ir.Variable():
                return expression
            case ir.Apply(primitive, arguments):
                key: Key = (primitive.name, *map(_key, arguments))
            case ir.Select(test, then, orelse):
                key = ("select", _key(test), _key(then), _key(orelse))
            case ir.MultiplyAdd(a, b, c):
                key = ("fma", _key(a), _key(b), _key(c))
            case ir.Load(buffer, indices, guarded):
                key = ("load", buffer.name, guarded, *map(_key, indices))
        for made in (self._made, *[scope.made for scope in self._scopes]):
            if key in made:
                return made[key]
        atoms = ir.operands(expression)
        names = {atom.name for atom in atoms if isinstance(atom, ir.Variable)}
        scope = next((scope for scope in reversed(self._scopes) if not scope.names.isdisjoint(names)), None)
        if self._varies(atoms):
            found = self._bound(expression, scope)
        else:
            found = ir.Variable(self.fresh("t"), expression.type)
            self.body.append(ir.Let(found.name, expression))
        (self._made if scope is None else scope.made)[key] = found
        return found

    def _varies(self, atoms: Sequence[ir.Expression]) -> bool:
        """Whether one of some atoms varies with the iteration."""
        names = [atom.name for atom in atoms if isinstance(atom, ir.Variable)]
        return self.variable.name in names or not self._varying.isdisjoint(names)

    def _load(self, load: ir.Load) -> Atom:
        buffer, indices = load.buffer, [self.value(index) for index in load.indices]
        if buffer.name in self._local:
            self._require_known(buffer, indices)
            nothing = ir.Constant(zero(buffer.scalar), buffer.scalar)
            if not self._inside(buffer, indices, load.guarded):
                return nothing
            # an element that has no value yet is read by nothing that counts
            return self._cells.get(_cell(buffer, indices), nothing)
        if buffer.name in self.constants:
            known = self.constants[buffer.name]
            if not load.guarded or _key(known) == _key(ir.Constant(zero(buffer.scalar), buffer.scalar)):
                return known
        if buffer.name in self.written:
            cell = _cell(buffer, indices)
            if cell not in self._cells or buffer.name in self._scattered:
                raise Irregular("it reads what another iteration wrote")
            return self._cells[cell]
        self.read.add(buffer.name)
        safe = [
            index if axis in load.guarded else self._safe(index, buffer.extents[axis])
            for axis, index in enumerate(indices)
        ]
        return self._shared(ir.Load(buffer, tuple(safe), load.guarded))

    def _require_known(self, buffer: ir.Buffer, indices: Sequence[Atom]) -> None:
        """Irregular unless it is known which element of a local array is meant."""
        for axis, index in enumerate(indices):
            slot = isinstance(index, ir.Variable) and index.name in self._slots
            if slot != (axis == 0 and buffer.name in self._pools) or not (slot or isinstance(index, ir.Constant)):
                raise Irregular("an index into a local array is not known")

    def _inside(self, buffer: ir.Buffer, indices: Sequence[Atom], guarded: Sequence[int]) -> bool:
        """Whether known indices along guarded axes are in range."""
        pairs = [(indices[axis], buffer.extents[axis]) for axis in guarded]
        return all(
            0 <= index.value < extent.value
            for index, extent in pairs
            if isinstance(index, ir.Constant) and isinstance(extent, ir.Constant)
        )

    def _safe(self, index: Atom, extent: ir.Expression) -> Atom:
        """An index that may be used always, where it is in range whenever the statement is reached."""
        if self._path is None or (index == self.variable and extent == self.extent):
            return index
        if isinstance(index, ir.Variable) and self.around.get(index.name) == extent:
            return index
        if isinstance(index, ir.Constant) and isinstance(extent, ir.Constant) and 0 <= index.value < extent.value:
            return index
        return self.value(ir.select(self._path, index, 0))


def _moved(cell: Cell, slots: Mapping[str, Mapping[Key, Key]]) -> Cell:
    """A cell of a pool by another name of its slot."""
    buffer, (*keys,) = cell
    if buffer not in slots:
        return cell
    return buffer, (slots[buffer].get(keys[0], keys[0]), *keys[1:])


def simplified(apply: ir.Apply) -> ir.Expression:
    """An application to atoms as something simpler, by what holds for all numbers, floats too."""
    arguments, row = apply.arguments, apply.primitive
    known = [a for a in arguments if isinstance(a, ir.Constant)]
    if len(known) == len(arguments):
        with np.errstate(all="ignore"):
            found = np.asarray(row.numpy(*[a.type.dtype.type(a.value) for a in known]))
        return ir.Constant(found.astype(apply.type.dtype).item(), apply.type)
    if not known or len(arguments) != 2:
        return apply
    constant = known[0]
    other, first = (arguments[1], True) if arguments[0] is constant else (arguments[0], False)
    match row.name:
        case "add" | "subtract" if _neutral(constant, row.name) and not (first and row.name == "subtract"):
            return other
        case "multiply" if constant.value == 1:
            return other
        case "multiply" if constant.value == 0 and constant.type.kind == "int":
            return constant
        case "divide" | "floor_divide" if constant.value == 1 and not first:
            return other if other.type == apply.type else apply
        case "logical_and":
            return other if constant.value else constant
        case "logical_or":
            return constant if constant.value else other
    return apply


def _neutral(constant: ir.Constant, operation: str) -> bool:
    """Whether adding, or taking away, a zero changes nothing, not even a zero's sign."""
    if constant.value != 0:
        return False
    negative = bool(np.signbit(constant.value))
    return constant.type.kind == "int" or negative == (operation == "add")


def scalar_of(body: Sequence[ir.Statement]) -> Scalar:
    """The widest scalar that straight-line code computes with or moves."""
    types = [each.value.type for each in ir.walk(tuple(body)) if isinstance(each, ir.Let | ir.Store)]
    return max(types, key=lambda type: type.bits, default=bool_)
