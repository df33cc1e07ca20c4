"""Unused parameters and results of procedures go, and so does what is computed for these alone.

A result is used where a call of its procedure needs it, a parameter where the block of its procedure does: for a result
that is used, for something that acts, or for a parameter that is used of what it calls. All others are handed along in
a round, and nobody looks at them. ::

    add(log, xs) = case log: Leaf(a): a; Node(l, r): add(l, left of xs) + add(r, right of xs)    => add(log)

A call whose results are not used goes, too, if it does nothing else, and *ends*: each recursion in it goes on with a
part of what it was given, as a walk over a list does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from ...core.builder import Builder
from ...core.components import components
from ...core.environment import Env
from ...core.graph import NONE, Value
from ...core.procedures import Procedure, called_in, procedures_of, shared_out
from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import Accumulator, Type
from .. import embed
from .copies import Copies, Copy

Part = TypeVar("Part", Procedure, Block)


def without_unused(block: Block) -> Block:
    """A closed term in first-order form whose procedures take and give what is used."""
    return _Program(_Uses(block)).block(block) if procedures_of(block) else block


class _Uses:
    """What is used of the parameters and results of procedures, and of what operations give."""

    def __init__(self, block: Block) -> None:
        procedures = procedures_of(block)
        self._silent = _silent(procedures)
        whole = [each for each in procedures if not each.fixed]
        self.parameters = {each: set(range(len(each.parameters) if each in whole else 0)) for each in procedures}
        self.results = {each: set(range(len(each.results) if each in whole else 0)) for each in procedures}
        self._operations: dict[int, set[int]] = {}  # which results are used, by the operation's identity
        self._acts: dict[int, bool] = {}
        self._changed = True
        while self._changed:
            self._changed = False
            self._block(block, range(len(block.results)))
            for each in procedures:
                read = self._block(each.block, self.results[each])
                self._use(self.parameters[each], [level for level in read if level < len(each.parameters)])

    def of(self, operation: Operation) -> list[int]:
        """The results of an operation that are used."""
        return sorted(self._operations[id(operation)])

    def drops(self, operation: Operation) -> bool:
        """Whether nobody needs an operation."""
        return not self._operations.get(id(operation)) and not self.acts(operation)

    def acts(self, operation: Operation) -> bool:
        """Whether an operation does anything but to compute its results."""
        if id(operation) not in self._acts:
            row, inner = operation.row, [each for block in operation.blocks for each in block.bindings]
            outside = [variable.type for block in operation.blocks for variable in block.free]
            adds = row.writes or any([isinstance(type, Accumulator) for type in outside])
            acts = row.acts or not (row.pure or row.calls or row.writes)
            calls = row.calls and not self._silent.issuperset(operation.static)
            self._acts[id(operation)] = adds or acts or calls or any(map(self.acts, inner))
        return self._acts[id(operation)]

    def _use(self, used: set[int], more: Collection[int]) -> None:
        self._changed = self._changed or not used.issuperset(more)
        used.update(more)

    def _block(self, block: Block, results: Collection[int]) -> set[int]:
        """The levels of what a block reads for some of its results: binders come first, negative ones are outside."""
        level = len(block.binders) + sum([len(each.types) for each in block.bindings])
        read = set(_levels([block.results[number] for number in results], level))
        for operation in reversed(block.bindings):
            level -= len(operation.types)
            used = self._operations.setdefault(id(operation), set())
            self._use(used, [k for k in range(len(operation.types)) if level + k in read])
            if used or self.acts(operation):
                read.update(self._operation(operation, used, level))
        return read

    def _operation(self, operation: Operation, used: Collection[int], end: int) -> Iterator[int]:
        """The levels of what an operation reads where so many are bound."""
        args: Sequence[Atom] = operation.args
        if operation.op == "call":
            for procedure, numbers in _shares([len(each.results) for each in operation.static], operation.static, used):
                self._use(self.results[procedure], numbers)
            shares = zip(operation.static, shared_out(operation.static, args), strict=True)
            args = [own[number] for called, own in shares for number in self.parameters[called]]
        yield from _levels(args, end)
        for block, numbers in _used_of_blocks(operation, used):
            yield from [end + level for level in self._block(block, numbers) if level < 0]


def _levels(atoms: Sequence[Atom], end: int) -> list[int]:
    return [end - 1 - atom.index for atom in atoms if isinstance(atom, Variable)]


def _used_of_blocks(operation: Operation, used: Collection[int]) -> list[tuple[Block, list[int]]]:
    """The blocks of an operation, and which results of each are used where these of its own are."""
    row, blocks = operation.row, operation.blocks
    if row.splits:
        return _shares([len(block.results) for block in blocks], blocks, used)
    return [(block, sorted(used) if row.chooses else list(range(len(block.results)))) for block in blocks]


def _shares(counts: Sequence[int], parts: Sequence[Part], used: Collection[int]) -> list[tuple[Part, list[int]]]:
    """What each of some parts gives of these results of all."""
    found, first = list[tuple[Part, list[int]]](), 0
    for part, count in zip(parts, counts, strict=True):
        found.append((part, [number - first for number in sorted(used) if first <= number < first + count]))
        first += count
    return found


# What does nothing but to give its results, and ends

Origin = tuple[int, bool] | None  # the parameter that a value is, or, where that is said, a proper part of


def _silent(procedures: Sequence[Procedure]) -> set[Procedure]:
    """The procedures that need not run where their results are not used."""
    graph, found = {each: list(called_in(each.block)) for each in procedures}, set[Procedure]()
    for group in components(graph):
        known = found.union(group)
        recurs = any([called in group for each in group for called in graph[each]])
        if all([_is_silent(each.block, known) for each in group]) and (not recurs or _descends(group)):
            found.update(group)
    return found


def _is_silent(block: Block, known: Collection[Procedure]) -> bool:
    for operation in block.bindings:
        row = operation.row
        if row.calls:
            silent = all([called in known for called in operation.static])
        else:
            silent = not (row.acts or row.external or row.partial) and (row.pure or row.writes)
        if not silent or not all([_is_silent(inner, known) for inner in operation.blocks]):
            return False
    return True


def _descends(group: Collection[Procedure]) -> bool:
    """Whether each recursion among some procedures goes on with a proper part of a parameter, which ends."""
    calls = {each: list(_calls(each.block, group)) for each in group}
    good = {each: set(range(len(each.parameters))) for each in group}
    while True:
        bad = [
            (each, number)
            for each in group
            for number in good[each]
            if not all([any([args[k] == (number, True) for k in good[called]]) for called, args in calls[each]])
        ]
        if not bad:
            return all(good.values())
        for each, number in bad:
            good[each].discard(number)


def _calls(block: Block, group: Collection[Procedure]) -> Iterator[tuple[Procedure, Sequence[Origin]]]:
    """The calls of a group in the block of a procedure, and where their arguments come from."""
    found: list[tuple[Procedure, Sequence[Origin]]] = []

    def origin(atom: Atom, env: Env[Origin]) -> Origin:
        return env.get(atom.index) if isinstance(atom, Variable) else None

    def walk(block: Block, env: Env[Origin], arguments: Sequence[Origin]) -> list[Origin]:
        env = env.enter(arguments)
        for operation in block.bindings:
            args = [origin(atom, env) for atom in operation.args]
            if operation.op == "call":
                shares = zip(operation.static, shared_out(operation.static, args), strict=True)
                found.extend([each for each in shares if each[0] in group])
            part = (args[0][0], True) if operation.op == "open" and args[0] is not None else None
            given = []
            for number, inner in enumerate(operation.blocks):
                whole = part is not None and operation.static[number][1] is None
                given.append(walk(inner, env, [args[0] if whole else part] * len(inner.binders)))
            same = operation.row.chooses and all([each == given[0] for each in given])
            env = env.extend(given[0] if same else [None] * len(operation.types))
        return [origin(atom, env) for atom in block.results]

    walk(block, Env(), [(number, False) for number in range(len(block.binders))])
    yield from found


class _Program(Copies):
    """The program with what is used."""

    def __init__(self, uses: _Uses) -> None:
        super().__init__(lambda builder, _: _Writer(builder, self))
        self.uses = uses

    def keeps(self, procedure: Procedure) -> tuple[list[int], list[int]]:
        return sorted(self.uses.parameters[procedure]), sorted(self.uses.results[procedure])


class _Writer(Copy):
    def __init__(self, builder: Builder, program: _Program) -> None:
        super().__init__(builder, program)
        self.uses = program.uses

    def operation(
        self, operation: Operation, args: Sequence[embed.Atom], blocks: Sequence[embed.Block]
    ) -> embed.Operation:
        if self.uses.drops(operation):
            return lambda env: [Absent(type) for type in operation.types]
        if operation.op == "call":
            return self._call(operation, args)
        if not (operation.row.chooses or operation.row.splits):
            return super().operation(operation, args, blocks)
        used = self.uses.of(operation)
        parts = zip(blocks, [numbers for _, numbers in _used_of_blocks(operation, used)], strict=True)
        run = self._with_blocks(operation.op, operation.static, args, [_narrowed(*each) for each in parts])
        return lambda env: _spread(operation, used, run(env))

    def _call(self, operation: Operation, args: Sequence[embed.Atom]) -> embed.Operation:
        procedures, used = operation.static, list[int]()
        kept, first = [self.copies.keeps(each) for each in procedures], 0
        for procedure, (_, gives) in zip(procedures, kept, strict=True):
            used += [first + number for number in gives]
            first += len(procedure.results)
        shares = zip(shared_out(procedures, args), [takes for takes, _ in kept], strict=True)
        run = super().call(procedures, [own[number] for own, takes in shares for number in takes])
        return lambda env: _spread(operation, used, run(env))


class Absent(Value):
    """What nobody uses."""

    __slots__ = ()

    def __init__(self, type: Type) -> None:
        super().__init__(0, type, NONE)


def _narrowed(block: embed.Block, numbers: Sequence[int]) -> embed.Block:
    """A block that gives these of its results."""

    def run(env: embed.Entries, arguments: Sequence[Value]) -> list[Value]:
        results = block(env, arguments)
        return [results[number] for number in numbers]

    return run


def _spread(operation: Operation, used: Sequence[int], made: Sequence[Value]) -> list[Value]:
    """The results of an operation, of which these are there."""
    found = dict(zip(used, made, strict=True))
    return [found[k] if k in found else Absent(type) for k, type in enumerate(operation.types)]
