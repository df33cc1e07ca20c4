"""The printer: a program of records (``resolved.py``, ``surface.py``) as lines of text.

Expressions are made by ``expressions.py``; here is what has lines of its own. The words:

    for i < n, j < m: x              the array of all x; ``for v in x: y`` the array of all y (a map)
    sum(i < n: x), max, cumsum...    reductions and running reductions over i
    reduce i < n: x                  one with another operator, in the lines that begin with ``combining``
    loop i < n with s = a: next b    one step after the other: what the state becomes
    loop with s = a while t: next b  as long as t holds
    accumulate a = x: ...            a total, to which the statements inside add
    scatter y = x over i < n: ...    y is x with the writes of the statements inside
    custom a = x: y                  y, with the derivatives in the lines that begin with ``with``
    yield x, return x                what a block gives
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...core.constructs import CONSTRUCTS
from ...core.type_rules import rules_of
from ...core.types import FunctionType
from .expressions import ATOM, REDUCED, RUNNING, Expressions
from .resolved import Argument, Bound, ResolvedBlock, ResolvedOperation, reduction_name

LINE = 96  # the longest line that holds a loop and its body


class Printer(Expressions):
    """Prints one program."""

    def body(self, block: ResolvedBlock, give: str) -> None:
        """The lines of a block, ending with what it gives."""
        last = block.operations[-1] if block.operations else None
        tail = (
            last is not None
            and bool(last.results)
            and block.results == last.results
            and all(value.uses == 1 for value in last.results)
        )
        if not tail or last is None:
            self.operations(block.operations)
            if block.results:
                made = [result.source for result in block.results if isinstance(result, Bound)]
                with self.showing(*[operation.origin for operation in made if operation is not None]):
                    self.give(give, [self.atom(result) for result in block.results])
            return
        self.operations(block.operations[:-1])
        with self.showing(last.origin):
            expression = self.expression(last) if len(last.results) == 1 else None
            if expression is not None:
                self.line(f"{give} {expression[0]}")
            elif last.op in CONSTRUCTS and (last.row.updates or last.row.functions):  # bound before it is made
                self.statement(last, None)
                self.give(give, [self.atom(result) for result in block.results])
            else:
                self.statement(last, give)

    def give(self, keyword: str, results: Sequence[str]) -> None:
        """What a block gives, on as many lines as it has results if they do not fit on one."""
        text = f"{keyword} {', '.join(results)}"
        if len(text) + 2 * self.depth <= LINE or len(results) == 1:
            self.line(text)
            return
        self.line(f"{keyword} (")
        with self.indented():
            for result in results:
                self.line(f"{result},")
        self.line(")")

    def headed(self, header: str, block: ResolvedBlock, give: str = "yield") -> None:
        """A header and a block, on one line if it fits."""
        with self.scope():
            count = self.count
            results = self.inline(block)
            if results:
                given = ", ".join([result[0] for result in results])
                text = f"{header} {given}" if give == "yield" else f"{header} {give} {given}"
                if len(text) + 2 * self.depth <= LINE:
                    self.line(text)
                    return
                self.count = count
            elif results is not None:
                self.line(f"{header} nothing")
                return
            self.line(header)
            with self.indented():
                self.body(block, give)

    # Operations with lines of their own

    def statement(self, operation: ResolvedOperation, give: str | None) -> None:
        """An operation with lines of its own: its results get names, or are given by the block."""
        args = operation.args
        match operation.op:
            case "add_to":
                target, value, *indices = args
                self.line(f"{self.atom(target)}{self.subscript(indices)} += {self.atom(value)}")
            case "require":
                self.line(f"require {self.atom(args[0])}")
            case "probe":
                self.call(operation, give, f"probe {operation.static[0]!r}: {self.joined(args)}")
            case "accumulate":
                self.accumulate(operation)
            case "scatter":
                self.scatter(operation)
            case "function" | "fix":
                self.function(operation)
            case "foreign":
                self.call(operation, give, f"foreign.{operation.static[0].name}({self.joined(args)})")
            case "apply":
                self.call(operation, give, f"{self.atom(args[0], ATOM)}({self.joined(args[1:])})")
            case "call":
                self.call(operation, give, self.called(operation.static, args))
            case "generate" | "map":
                self.generate(operation, give)
            case "cond":
                self.cond(operation, give)
            case "case":
                self.case(operation, give)
            case "par":
                self.par(operation, give)
            case "loop":
                self.loop(operation, give)
            case "while":
                self.while_loop(operation, give)
            case "custom":
                self.custom(operation, give)
            case _ if operation.row.combines:
                self.reduce(operation, give)
            case _:
                self.added(operation, give)

    def subscript(self, indices: Sequence[Argument]) -> str:
        return f"[{self.joined(indices)}]" if indices else ""

    @contextmanager
    def bound(self, operation: ResolvedOperation, give: str | None) -> Iterator[str]:
        """How a statement with results begins; their names hold after it."""
        if give is not None or not operation.results:
            yield "" if give is None else f"{give} "
            return
        names = [self.bind(value) for value in operation.results]
        yield f"{', '.join(names)} = "

    def call(self, operation: ResolvedOperation, give: str | None, text: str) -> None:
        with self.bound(operation, give) as start:
            self.line(f"{start}{text}")

    def added(self, operation: ResolvedOperation, give: str | None) -> None:
        """A construct that was added: its blocks, by name, stand below it."""
        row, text = operation.row, f"{operation.op}({self.joined(operation.args)})"
        if not operation.blocks:
            self.call(operation, give, text)
            return
        with self.bound(operation, give) as start:
            self.line(f"{start}{text}:")
            with self.indented():
                for name, block in zip(row.blocks, operation.blocks, strict=True):
                    with self.scope():
                        names = [self.bind(binder) for binder in block.binders]
                        self.headed(f"{name} ({', '.join(names)}):", block)

    def generate(self, operation: ResolvedOperation, give: str | None) -> None:
        with self.bound(operation, give) as start, self.scope():
            if operation.op == "map":
                names, arrays = self.elements(operation), self.joined(operation.args)
                source = arrays if len(names) == 1 else f"zip({arrays})"
                self.headed(f"{start}for {', '.join(names)} in {source}:", operation.blocks[0])
                return
            ranges = []
            while True:
                block = operation.blocks[0]
                ranges.append(self.range(block.binders[0], operation.args[0]))
                inner = self.only_operation(block)
                if inner is None or inner.op != "generate":
                    break
                operation = inner
                self.shown.add(operation.origin)
            self.headed(f"{start}for {', '.join(ranges)}:", block)

    def cond(self, operation: ResolvedOperation, give: str | None) -> None:
        with self.bound(operation, give) as start:
            test = self.atom(operation.args[0])
            for header, block in ((f"{start}if {test}:", operation.blocks[0]), ("else:", operation.blocks[1])):
                if block.operations or block.results or header != "else:":
                    self.headed(header, block)

    def case(self, operation: ResolvedOperation, give: str | None) -> None:
        with self.bound(operation, give) as start:
            self.line(f"{start}match {self.atom(operation.args[0])}:")
            with self.indented():
                for variant, block in zip(operation.static, operation.blocks, strict=True):
                    with self.scope():
                        fields = [self.bind(field) if field.uses else "_" for field in block.binders]
                        self.headed(f"case {variant}({', '.join(fields)}):", block)

    def par(self, operation: ResolvedOperation, give: str | None) -> None:
        with self.bound(operation, give) as start:
            branches = [self.inline(block) for block in operation.blocks]
            text = ", ".join([part for branch in branches if branch for part, _ in branch])
            if all(branch and len(branch) == 1 for branch in branches) and len(text) <= REDUCED:
                self.line(f"{start}par({text})")
                return
            self.line(f"{start}par:")
            with self.indented():
                for block in operation.blocks:
                    self.headed("branch:", block)

    def reduce(self, operation: ResolvedOperation, give: str | None) -> None:
        """A reduction, running reduction or histogram, with its operator where that has no name."""
        neutrals = operation.args[-len(operation.results) :]
        element, operator = operation.blocks
        name = reduction_name(operation)
        with self.bound(operation, give) as start:
            with self.scope():
                row = operation.row
                word = RUNNING[name] if name and row.ordered else name or operation.op
                if row.places:
                    word = f"{operation.op}{f' {name}' if name else ''} of {self.atom(operation.args[0])} bins over"
                [extent] = operation.row.iterations(operation)
                self.headed(f"{start}{word} {self.range(element.binders[0], extent)}:", element)
            if name is not None:
                return
            with self.scope():
                names = [self.bind(value) for value in operator.binders]
                half = len(names) // 2
                sides = [
                    ", ".join(side) if half == 1 else f"({', '.join(side)})" for side in (names[:half], names[half:])
                ]
                self.headed(f"combining {' with '.join(sides)}, from {self.joined(neutrals)}:", operator)

    def loop(self, operation: ResolvedOperation, give: str | None) -> None:
        extent, *initials = operation.args
        block = operation.blocks[0]
        with self.bound(operation, give) as start, self.scope():
            span = self.range(block.binders[0], extent)
            state = self.state(block.binders[1:], initials)
            header = f"{start}loop {span} with {state}:" if state else f"{start}loop {span}:"
            if len(block.results) == len(initials):
                self.headed(header, block, "next")
                return
            self.line(header)
            with self.indented(), self.scope():
                self.operations(block.operations)
                after, outputs = block.results[: len(initials)], block.results[len(initials) :]
                for word, values in (("next", after), ("yield", outputs)):
                    if values:
                        self.line(f"{word} {self.joined(values)}")

    def state(self, binders: Sequence[Bound], initials: Sequence[Argument]) -> str:
        return ", ".join([f"{self.bind(v)} = {self.atom(a)}" for v, a in zip(binders, initials, strict=True)])

    def while_loop(self, operation: ResolvedOperation, give: str | None) -> None:
        test, block = operation.blocks
        with self.bound(operation, give) as start, self.scope():
            state = self.state(block.binders, operation.args)
            for tested, value in zip(test.binders, block.binders, strict=True):
                tested.text = value.text
            header = f"{start}loop with {state} while" if state else f"{start}loop while"
            condition = self.inline(test)
            if condition is not None:
                self.headed(f"{header} {condition[0][0]}:", block, "next")
                return
            self.line(f"{header}:")
            with self.indented():
                self.body(test, "yield")
            self.headed("do:", block, "next")

    def custom(self, operation: ResolvedOperation, give: str | None) -> None:
        body, *rules = operation.blocks
        with self.bound(operation, give) as start:
            with self.scope():
                kind = "custom" if rules else "checkpoint"
                self.headed(f"{start}{kind} {self.state(body.binders, operation.args)}:", body)
            for rule, block in zip(rules_of(operation.static), rules, strict=True):
                with self.scope():
                    _, *names = [self.bind(binder) for binder in block.binders]
                    self.headed(f"with {rule} ({', '.join(names)}):", block)

    def function(self, operation: ResolvedOperation) -> None:
        """A function with lines of its own is defined, as Python does it; a recursive one knows its name."""
        result, block = operation.results[0], operation.blocks[0]
        itself, parameters = (block.binders[:1], block.binders[1:]) if operation.op == "fix" else ([], block.binders)
        result.hint = result.hint or (itself[0].hint if itself else "") or "f"
        self.bind(result)
        for value in itself:
            value.text = result.text
        assert isinstance(result.type, FunctionType)
        given = ", ".join(map(str, result.type.results))
        returns = given if len(result.type.results) == 1 else f"({given})"
        with self.scope():
            self.headed(f"def {result.text}({self.parameters(parameters)}) -> {returns}:", block, "return")

    def scatter(self, operation: ResolvedOperation) -> None:
        """The results have their names inside too, where elements of them are written."""
        unique, count = operation.static
        extents, destinations = operation.args[:count], operation.args[count:]
        targets = [self.bind(value) for value in operation.results]
        starts = [f"{name} = {self.atom(old)}" for name, old in zip(targets, destinations, strict=True)]
        block = operation.blocks[0]
        with self.scope():
            ranges = [self.range(index, extent) for index, extent in zip(block.binders, extents, strict=True)]
            header = f"scatter {', '.join(starts)}"
            header += f" over {', '.join(ranges)}" if ranges else ""
            header += ":" if unique or not ranges else " in order:"
            if self.inline(block) is not None:
                writes = self.writes(block, targets)
                if len(writes) == 1:
                    self.line(f"{header} {writes[0]}")
                    return
            self.line(header)
            with self.indented(), self.scope():
                self.operations(block.operations)
                for write in self.writes(block, targets):
                    self.line(write)

    def writes(self, block: ResolvedBlock, targets: Sequence[str]) -> Sequence[str]:
        texts = [self.atom(result) for result in block.results]
        places, values = ", ".join(texts[: -len(targets)]), texts[-len(targets) :]
        return [f"{name}[{places}] = {value}" for name, value in zip(targets, values, strict=True)]

    def accumulate(self, operation: ResolvedOperation) -> None:
        """The totals have the names of their accumulators; other results are bound to names of their own."""
        block = operation.blocks[0]
        finals, others = operation.results[: len(operation.args)], operation.results[len(operation.args) :]
        names = [self.bind(value) for value in others]
        totals = []
        for final, accumulator, initial in zip(finals, block.binders, operation.args, strict=True):
            accumulator.hint = accumulator.hint or final.hint
            accumulator.text = final.text = self.bind(accumulator)
            totals.append(f"{final.text} = {self.atom(initial)}")
        start = f"{', '.join(names)} = " if names else ""
        self.line(f"{start}accumulate {', '.join(totals)}:")
        with self.indented(), self.scope():
            self.body(block, "yield")
