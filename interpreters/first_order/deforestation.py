"""Deforestation: cells that one procedure makes for another to take apart are not made (Wadler, Deforestation, 1990).

A *reader* is a procedure that opens what it is given at one place, and reads in turn what the fields lead to. Where the
result of a call goes to a reader and nowhere else, both become one procedure, in which the reader stands where a cell
was made: it finds the tag known, and the fields there::

    total(xs) = case xs: Nil(): 0; Cons(h, t): h + total(t)
    squares(xs) = case xs: Nil(): Nil(); Cons(h, t): Cons(h * h, squares(t))

    total(squares(xs))  =>  both(xs),   both(xs) = case xs: Nil(): 0; Cons(h, t): h * h + both(t)

So a gradient of data is filled with zeros while it is made, a walk over it needs no gradient, and where a cotangent is
known beforehand, as that of each term of a sum is, a return sweep takes place on the way and there is no log.

What the reader takes besides, as another list that it goes along, must be known before the call, for each level out of
that of the level above: what it makes of these is computed first, and what needs the fields last.

A reader is written once for each cell. In a chain of recursions that make two cells of each, the last one would be
written 2^n times: so what is written of readers is at most four times the program, and the cells behind are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...core.builder import Builder, build
from ...core.environment import Env
from ...core.graph import Value
from ...core.placement import to_block
from ...core.procedures import Procedure, called_in, procedures_of, shared_out
from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import Accumulator
from .. import embed
from .inlining import inlined
from .merging import merged

_ROUNDS = 4  # a reader of a reader of a reader of what a call gives
_GROWTH = 4  # how many times as many operations a program may have before no reader is written any more
_NESTED = 4  # cells in cells that are read: a reader's choice may hold what it makes of a field in both branches


def deforested(block: Block) -> Block:
    """A closed term in cells, in which no procedure makes what a reader alone is given, as far as there is room."""
    limit = _GROWTH * _size_of_program(block)
    for _ in range(_ROUNDS if procedures_of(block) else 0):
        block = merged(block)
        room = limit - _size_of_program(block)
        if room <= 0:
            break
        program = _Program(room)
        made = program.whole(block)
        if not program.fused:
            break
        block = inlined(made)
    return merged(block)


@dataclass(frozen=True)
class Reader:
    """A procedure, and which of its arguments it takes apart."""

    procedure: Procedure
    place: int

    @property
    def others(self) -> list[int]:
        """The places of its other arguments."""
        return [k for k in range(len(self.procedure.parameters)) if k != self.place]


@dataclass(frozen=True)
class Wanted:
    """The reader that a value goes to, and what that takes besides; without one the value goes nowhere."""

    reader: Reader | None
    others: Sequence[Value]

    @property
    def count(self) -> int:
        """How many values there are in the place of this one."""
        return 0 if self.reader is None else len(self.reader.procedure.results)


NOWHERE = Wanted(None, ())


@dataclass
class Later:
    """A value that is not there yet."""

    value: Value | None = None


@dataclass(frozen=True)
class Read:
    """What a reader gives for a value, in the place of that."""

    values: Sequence[Value]


class TheCell:
    """The cell of which a reader knows the tag."""


Part = TypeVar("Part", Procedure, Block)
Signature = tuple[tuple[int, Reader | None], ...]  # which results of a procedure go to which readers, or nowhere


class _Program:
    """The procedures of one program, which are made as they are called."""

    def __init__(self, room: int) -> None:
        self.room = room  # how many operations of readers may be written
        self.fused = False  # whether any result went to a reader
        self._made: dict[tuple[Procedure, Signature], Procedure] = {}
        self._waiting: list[tuple[Procedure, Signature]] = []
        self._readers: dict[Reader, bool] = {}
        self._gives_cell: dict[tuple[Procedure, int], bool] = {}

    def whole(self, block: Block) -> Block:
        """The copy of the program, whose procedures have their blocks by then."""
        made = self._block(block, ())
        while self._waiting:
            key = self._waiting.pop()
            self._made[key].block = self._block(key[0].block, key[1])
        return made

    def procedure(self, procedure: Procedure, signature: Signature = ()) -> Procedure:
        """A procedure whose results go to these readers: it takes what they take besides, and gives what they give."""
        key = procedure, signature
        if key not in self._made:
            self.fused = self.fused or bool(signature)
            takes, gives = list(procedure.parameters), [[type] for type in procedure.results]
            for number, reader in signature:
                takes += [] if reader is None else [reader.procedure.parameters[k] for k in reader.others]
                gives[number] = [] if reader is None else list(reader.procedure.results)
            results = tuple([type for types in gives for type in types])
            self._made[key] = Procedure(procedure.name, tuple(takes), results, procedure.origin)
            self._waiting.append(key)
        return self._made[key]

    def _block(self, block: Block, signature: Signature) -> Block:
        with build() as builder:
            binders = embed.fresh_binders(builder, block)
            wanted: list[Wanted | None] = [None] * len(block.results)
            others: list[Value] = []
            for number, reader in signature:
                if reader is None:
                    wanted[number] = NOWHERE
                    continue
                own = [builder.variable(reader.procedure.parameters[k]) for k in reader.others]
                for k, value in zip(reader.others, own, strict=True):
                    value.name = reader.procedure.block.names[k]
                wanted[number] = Wanted(reader, own)
                others += own
            results = _Writer(builder, self).written(block, Env(), binders, wanted)
            names = (*block.names, *[value.name for value in others])
            made, captured = to_block([*binders, *others], results, builder.scopes[0].statements, names)
            assert not captured
            return made

    # What can be fused

    def has_room(self, reader: Reader | None) -> bool:
        """Take the room that a reader needs in the place of a cell, if there is as much."""
        assert reader is not None
        needed = _size(reader.procedure.block)
        if needed > self.room:
            return False
        self.room -= needed
        return True

    def reads(self, reader: Reader) -> bool:
        """Whether a procedure takes an argument apart, and all that it calls itself for are fields of that, each read
        once, with what is known without the fields."""
        if reader not in self._readers:
            before = dict(self._readers)
            self._readers[reader] = True  # as long as nothing says that it does not
            if not self._reads(reader):
                self._readers = {**before, reader: False}  # answers that were found meanwhile may rest on that
        return self._readers[reader]

    def _reads(self, reader: Reader) -> bool:
        procedure = reader.procedure
        called = procedures_of(procedure.block)
        blocks = [procedure.block, *[each.block for each in called]]
        tags = _tags(procedure.block, reader.place)
        if procedure not in called or not tags or not procedure.fixed or any(map(_has_effects, blocks)):
            return False
        group = {each for each in called if procedure in procedures_of(each.block)}
        for tag in tags:
            with build() as builder:
                others = [builder.variable(procedure.parameters[k]) for k in reader.others]
                reading = _Reading(_Writer(builder, None), self, Wanted(reader, others), tag)
                if reading.needs_cell or any([not group.isdisjoint(_called(each.operation)) for each in reading.late]):
                    return False
        return True

    def gives(self, operation: Operation, number: int) -> bool:
        """Whether a result of an operation is a cell that is made in it, for nothing else."""
        return self._gives(operation, number, set())

    def _gives(self, operation: Operation, number: int, met: set[tuple[Procedure, int]]) -> bool:
        match operation.op:
            case "cell":
                return True
            case "call":
                maker = _part_of(operation.static, number)
                if maker in self._gives_cell or maker in met:
                    return self._gives_cell.get(maker, False)
                met.add(maker)
                found = maker[0].fixed and self._makes(maker[0].block, maker[1], met)
                if found or met == {maker}:  # a result that leads back to another one says nothing by itself
                    self._gives_cell[maker] = found
                return found
            case "par":
                return self._makes(*_part_of(operation.blocks, number), met)
        return operation.row.chooses and any([self._makes(each, number, met) for each in operation.blocks])

    def _makes(self, block: Block, number: int, met: set[tuple[Procedure, int]]) -> bool:
        places = _Places(block)
        made = places.made(block.results[number])
        return made is not None and self._gives(block.bindings[made[0]], made[1], met)


class _Places:
    """Where what a block binds comes from, and how often it is used, where some of its results are not; levels count
    its binders first."""

    def __init__(self, block: Block, unused: Collection[int] = ()) -> None:
        self.block = block
        self.starts: list[int] = []
        self._sources: list[tuple[int, int] | None] = [None] * len(block.binders)
        for k, operation in enumerate(block.bindings):
            self.starts.append(len(self._sources))
            self._sources += [(k, number) for number in range(len(operation.types))]
        self.uses = [0] * len(self._sources)
        for number, atom in enumerate(block.results):
            if number not in unused:
                self._use(atom, len(self._sources))
        for start, operation in zip(reversed(self.starts), reversed(block.bindings), strict=True):
            if self.is_dead(operation, start):
                continue
            inside = [variable for inner in operation.blocks for variable in (*inner.free, *inner.free)]
            for atom in (*operation.args, *inside):  # a use inside counts as two: so it is not the only one here
                self._use(atom, start)

    def is_dead(self, operation: Operation, start: int) -> bool:
        """Whether nobody needs an operation, whose first result has this level."""
        if any(self.uses[start : start + len(operation.types)]) or _acts(operation) or operation.row.writes:
            return False
        adds = any([isinstance(variable.type, Accumulator) for inner in operation.blocks for variable in inner.free])
        return not adds and not any(_called(operation)) and not any(map(_has_effects, operation.blocks))

    def _use(self, atom: Atom, end: int) -> None:
        level = self.level(atom, end)
        if level is not None and level >= 0:
            self.uses[level] += 1

    @staticmethod
    def level(atom: Atom, end: int) -> int | None:
        """The level of a variable where so many are bound: negative outside of the block; None for other atoms."""
        return end - 1 - atom.index if isinstance(atom, Variable) else None

    def made(self, atom: Atom, end: int | None = None) -> tuple[int, int] | None:
        """Which operation gives an atom (by default, a result) that is used there alone, and as which result."""
        level = self.level(atom, len(self._sources) if end is None else end)
        return self._sources[level] if level is not None and level >= 0 and self.uses[level] == 1 else None


class _Writer(embed.Embed):
    """Writes blocks; without a program, as they are."""

    def __init__(self, builder: Builder, program: _Program | None) -> None:
        super().__init__(builder)
        self.program = program

    def value(self, entry: Any) -> Value:
        found = entry.value if isinstance(entry, Later) else entry
        assert isinstance(found, Value)
        return found

    def written(
        self, block: Block, env: Env[Any], arguments: Sequence[Any], wanted: Sequence[Wanted | None] = ()
    ) -> list[Value]:
        """The results of a block; of those that go to readers, what these give."""
        embed.name_arguments(arguments, block.names)
        return _Body(self, block, env.enter(arguments), wanted or [None] * len(block.results)).results()

    def emitted(self, operation: Operation, env: Env[Any]) -> Sequence[Value]:
        """What an operation gives, as it is."""
        self.builder.origin = operation.origin
        args = [self.atom(each, env) for each in operation.args]
        if operation.op == "call":
            return self.call_of(operation.static, args)
        atoms = [lambda _, value=value: value for value in args]
        blocks = [lambda _, given, inner=inner: self.written(inner, env, given) for inner in operation.blocks]
        made: Sequence[Value] = self.operation(operation, atoms, blocks)(Env())
        return made

    def atom(self, atom: Atom, env: Env[Any]) -> Value:
        found: Value = self.meaning_of_atom(atom)(env)
        return found

    def call_of(self, procedures: Sequence[Procedure], args: Sequence[Value]) -> Sequence[Value]:
        """What procedures of the program give."""
        known = procedures if self.program is None else [self.program.procedure(each) for each in procedures]
        return self.builder.emit("call", tuple(known), args)


class _Body:
    """One block that is written."""

    def __init__(self, writer: _Writer, block: Block, env: Env[Any], wanted: Sequence[Wanted | None]) -> None:
        self.writer, self.block, self.env, self.wanted = writer, block, env, wanted
        self.places = _Places(block, [k for k, each in enumerate(wanted) if each is NOWHERE])
        self.wanted_of: dict[tuple[int, int], Wanted] = {}  # by the operation and the result
        self.cells_read: dict[int, _Reading] = {}  # of cells
        self.reader_calls: dict[int, tuple[Reader, int, int]] = {}  # with the operation that each reads, and the result

    def results(self) -> list[Value]:
        """The results, all operations being written."""
        outer = self.writer.builder.origin
        if self.writer.program is not None:
            for atom, wanted in zip(self.block.results, self.wanted, strict=True):
                if wanted is not None and wanted.reader is not None:
                    self._ask(self.writer.program, self.places.made(atom), wanted)
            self._find_readers(self.writer.program)
            self._find_unused()
        for k, operation in enumerate(self.block.bindings):
            self.writer.builder.origin = operation.origin
            self.env = self.env.extend(self._operation(k, operation))
        self.writer.builder.origin = outer
        return [
            value
            for x, wanted in zip(self.block.results, self.wanted, strict=True)
            for value in self._result(x, wanted)
        ]

    def _ask(self, program: _Program, made: tuple[int, int] | None, wanted: Wanted, around: int = 0) -> None:
        """Have an operation give what a reader makes of its result, if it can; so many cells are around that."""
        if made is None:
            return
        operation = self.block.bindings[made[0]]
        if operation.op == "cell":
            if around == _NESTED or not program.has_room(wanted.reader):
                return
            reading = self.cells_read[made[0]] = _Reading(self.writer, program, wanted, operation.static[0])
            for number, inner in reading.inner.items():
                atom, end = operation.args[number], self.places.starts[made[0]]
                self._ask(program, self.places.made(atom, end), inner.wanted, around + 1)
        elif program.gives(operation, made[1]):
            self.wanted_of[made] = wanted

    def _find_readers(self, program: _Program) -> None:
        """The calls of readers in this block to which an operation before gives its result."""
        for k, operation in enumerate(self.block.bindings):
            if operation.op != "call" or len(operation.static) > 1:
                continue
            end = self.places.starts[k]
            for place, atom in enumerate(operation.args):
                made = self.places.made(atom, end)
                reader = Reader(operation.static[0], place)
                if made is None or made in self.wanted_of or made[0] in self.reader_calls:
                    continue
                if self.block.bindings[made[0]].op == "cell" or any([asked == k for asked, _ in self.wanted_of]):
                    continue
                before = self.places.starts[made[0]]
                levels = [self.places.level(operation.args[other], end) for other in reader.others]
                known = all([level is None or level < before for level in levels])
                if known and program.gives(self.block.bindings[made[0]], made[1]) and program.reads(reader):
                    self.reader_calls[k] = reader, *made
                    break

    def _find_unused(self) -> None:
        """The results of calls and choices that go nowhere."""
        for k, (start, operation) in enumerate(zip(self.places.starts, self.block.bindings, strict=True)):
            numbers = range(len(operation.types))
            unused = [number for number in numbers if not self.places.uses[start + number]]
            if operation.row.calls or operation.row.splits or operation.row.chooses:
                self.wanted_of.update({(k, number): NOWHERE for number in unused})

    def _operation(self, k: int, operation: Operation) -> Sequence[Any]:
        if self.places.is_dead(operation, self.places.starts[k]):
            return [Read(()) for _ in operation.types]
        if k in self.cells_read:
            return [Read(self.cells_read[k].finished([self._entry(atom) for atom in operation.args]))]
        if k in self.reader_calls:
            _, position, number = self.reader_calls[k]
            level = self.places.starts[position] + number
            found = self.env.get(self.places.starts[k] - 1 - level)
            assert isinstance(found, Read)
            return found.values
        wanted = [self.wanted_of.get((k, number)) for number in range(len(operation.types))]
        for reading, (reader, position, number) in self.reader_calls.items():
            if position == k:
                ahead = self.places.starts[reading] - self.places.starts[k]
                args = [self.block.bindings[reading].args[other] for other in reader.others]
                moved = [Variable(x.index - ahead, x.type) if isinstance(x, Variable) else x for x in args]
                wanted[number] = Wanted(reader, [self.writer.atom(each, self.env) for each in moved])
        if not any(wanted):
            return self.writer.emitted(operation, self.env)
        made = iter(self._call(operation, wanted) if operation.op == "call" else self._choice(operation, wanted))
        return [next(made) if each is None else Read([next(made) for _ in range(each.count)]) for each in wanted]

    def _call(self, operation: Operation, wanted: Sequence[Wanted | None]) -> Sequence[Value]:
        program = self.writer.program
        assert program is not None
        args = [self.writer.atom(each, self.env) for each in operation.args]
        procedures, given, left = list[Procedure](), list[Value](), list(wanted)
        for procedure, own in zip(operation.static, shared_out(operation.static, args), strict=True):
            mine, left = left[: len(procedure.results)], left[len(procedure.results) :]
            asked = [(number, each) for number, each in enumerate(mine) if each is not None]
            procedures.append(program.procedure(procedure, tuple([(number, each.reader) for number, each in asked])))
            given += [*own, *[value for _, each in asked for value in each.others]]
        return self.writer.builder.emit("call", tuple(procedures), given)

    def _choice(self, operation: Operation, wanted: Sequence[Wanted | None]) -> Sequence[Value]:
        env, left = self.env, list(wanted)
        entries = []
        for inner in operation.blocks:
            mine = left[: len(inner.results)]
            if operation.op == "par":
                left = left[len(inner.results) :]
            entries.append(lambda *given, inner=inner, mine=mine: self.writer.written(inner, env, given, mine))
        args = [self.writer.atom(each, env) for each in operation.args]
        return embed.emit_blocks(self.writer.builder, operation.op, operation.static, args, entries)

    def _entry(self, atom: Atom) -> Any:
        return self.env.get(atom.index) if isinstance(atom, Variable) else self.writer.atom(atom, self.env)

    def _result(self, atom: Atom, wanted: Wanted | None) -> Sequence[Value]:
        if wanted is NOWHERE:
            return []
        found = self._entry(atom)
        if isinstance(found, Read):
            return found.values
        value = self.writer.value(found)
        if wanted is None or wanted.reader is None:
            return [value]
        args = dict(zip(wanted.reader.others, wanted.others, strict=True)) | {wanted.reader.place: value}
        return self.writer.call_of([wanted.reader.procedure], [args[k] for k in range(len(args))])


@dataclass
class Inner:
    """A call for a field of a cell, by which a reader reads on; what it gives."""

    wanted: Wanted
    results: list[Later]


@dataclass
class Waiting:
    """An operation of a reader that waits for fields of a cell."""

    operation: Operation
    env: Env[Any]
    results: list[Later]
    field: int | None = None  # the field that the operation reads on with


@dataclass
class _Reading:
    """A reader, written for a cell whose tag is known: what needs no field of it at once, the rest in the end."""

    writer: _Writer
    program: _Program
    wanted: Wanted
    tag: int
    fields: list[Later] = field(default_factory=list)
    inner: dict[int, Inner] = field(default_factory=dict)  # by fields
    late: list[Waiting] = field(default_factory=list)
    needs_cell: bool = False  # as a whole
    _uses: Sequence[int] = ()

    def __post_init__(self) -> None:
        reader = self.wanted.reader
        assert reader is not None
        entries: dict[int, Any] = dict(zip(reader.others, self.wanted.others, strict=True))
        entries[reader.place] = TheCell()
        block = reader.procedure.block
        self.gives = self._block(block, Env[Any]().enter([entries[k] for k in range(len(entries))]))
        self.needs_cell = self.needs_cell or any([isinstance(each, TheCell) for each in self.gives])

    def _block(self, block: Block, env: Env[Any]) -> list[Any]:
        for operation in block.bindings:
            env = env.extend(self._operation(operation, env))
        return [env.get(x.index) if isinstance(x, Variable) else self.writer.atom(x, env) for x in block.results]

    def _operation(self, operation: Operation, env: Env[Any]) -> Sequence[Any]:
        args = [env.get(x.index) if isinstance(x, Variable) else x for x in operation.args]
        if operation.op == "open" and isinstance(args[0], TheCell):
            return self._opened(operation, env)
        read = [*args, *[env.get(variable.index) for block in operation.blocks for variable in block.free]]
        self.needs_cell = self.needs_cell or any([isinstance(each, TheCell) for each in read])
        if self.needs_cell:
            return [Later() for _ in operation.types]
        if not any([isinstance(each, Later) for each in read]):
            return self.writer.emitted(operation, env)
        results = [Later() for _ in operation.types]
        self.late.append(Waiting(operation, env, results))
        if operation.op == "call" and len(operation.static) == 1:
            self._read_on(operation, args, env, self.late[-1])
        return results

    def _opened(self, operation: Operation, env: Env[Any]) -> Sequence[Any]:
        """The branch for the tag."""
        [k] = [k for k, (tags, _) in enumerate(operation.static) if self.tag in tags]
        block, fields = operation.blocks[k], operation.static[k][1]
        if fields is None:
            return self._block(block, env.enter([TheCell()]))
        self.needs_cell = self.needs_cell or bool(self.fields)  # opened twice: its fields have two names
        self.fields, self._uses = [Later() for _ in fields], _Places(block).uses
        return self._block(block, env.enter(self.fields))

    def _read_on(self, operation: Operation, args: Sequence[Any], env: Env[Any], waiting: Waiting) -> None:
        """Have a field go to a reader, if it goes nowhere else and all else is known."""
        later = [place for place, each in enumerate(args) if isinstance(each, Later)]
        if len(later) > 1:
            return
        reader = Reader(operation.static[0], later[0])
        for number, each in enumerate(self.fields):
            if each is args[later[0]] and self._uses[number] == 1 and self.program.reads(reader):
                others = [self.writer.atom(operation.args[k], env) for k in reader.others]
                self.inner[number] = Inner(Wanted(reader, others), waiting.results)
                waiting.field = number
        if waiting.field is not None and self.writer.program is None:
            self.late.remove(waiting)

    def finished(self, entries: Sequence[Any]) -> list[Value]:
        """What the reader gives, where the fields are these, or what other readers have made of them."""
        for place, entry in zip(self.fields, entries, strict=True):
            place.value = None if isinstance(entry, Read) else self.writer.value(entry)
        for each in self.late:
            entry = None if each.field is None else entries[each.field]
            values = entry.values if isinstance(entry, Read) else self.writer.emitted(each.operation, each.env)
            for place, value in zip(each.results, values, strict=True):
                place.value = value
        return [self.writer.value(each) for each in self.gives]


def _part_of(parts: Sequence[Part], number: int) -> tuple[Part, int]:
    """The procedure, or the branch, that gives one of all their results, and which of its own that is."""
    for part in parts:
        if number < len(part.results):
            return part, number
        number -= len(part.results)
    raise AssertionError("a call, or a fork, gives what its parts give")


def _tags(block: Block, level: int) -> Sequence[int]:
    """The tags by which a block opens one of its binders."""
    places = _Places(block)
    return [
        tag
        for start, operation in zip(places.starts, block.bindings, strict=True)
        if operation.op == "open" and places.level(operation.args[0], start) == level
        for tags, _ in operation.static
        for tag in tags
    ]


def _called(operation: Operation) -> Iterator[Procedure]:
    """The procedures that an operation calls, in its blocks, too."""
    if operation.op == "call":
        yield from operation.static
    for inner in operation.blocks:
        yield from called_in(inner)


def _size_of_program(block: Block) -> int:
    return sum([_size(each) for each in (block, *[procedure.block for procedure in procedures_of(block)])])


def _size(block: Block) -> int:
    """How many operations there are in a block."""
    return sum([1 + sum(map(_size, operation.blocks)) for operation in block.bindings])


def _has_effects(block: Block) -> bool:
    """Whether a block does anything but to compute its results."""
    return any([_acts(x) or any(map(_has_effects, x.blocks)) for x in block.bindings])


def _acts(operation: Operation) -> bool:
    row = operation.row
    return row.acts or not (row.pure or row.calls or row.writes)
