"""Programs as text that a person would write.

    def cost(points: f64[n, d], centroids: f64[k, d]) -> f64:
      return sum(i < n: min(j < k: sum(l < d: (points[i, l] - centroids[j, l]) ** 2)))

Values used once, in the block that computes them, are printed where they are used; others get a name: that of the
parameter or the user's own, or ``t1``, ``t2``... Keywords: ``for i < n, j < m: x`` is the array of all x; ``sum(i < n:
x)``, ``max``, ``min``, ``prod``, ``any``, ``all`` are reductions over i; ``reduce ... combining`` is one with another
operator; ``loop i < n with s = a`` runs one step after the other and says with ``next`` what the state becomes;
``yield`` gives the value of a block; ``accumulate a = x`` starts a total to which the statements inside add.

The text of a program is the same in every run, so tests compare it. (``resolved.py`` turns indices into records that
know how often they are used; this module prints them, operation by operation.)
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..core import trees
from ..core.program import Instance, Program, instance_of
from ..core.terms import Block, Constant, Literal, Size
from ..core.types import ArrayType, dims
from .resolved import Argument, Bound, ResolvedBlock, ResolvedOperation, reduction_name, resolve, square

INLINE = 56  # the longest expression that is printed where it is used
REDUCED = 80  # the longest expression inside a reduction
SHORT = 12  # the longest read of an array or comparison that is printed wherever it is used
LINE = 96  # the longest line that holds a loop and its body

# Precedence, loosest first
IF, OR, AND, NOT, COMPARE, ADD, MULTIPLY, NEGATE, POWER, ATOM = range(10)
_INFIX = {
    "or": OR, "and": AND, "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "==": COMPARE, "!=": COMPARE,
    "+": ADD, "-": ADD, "*": MULTIPLY, "/": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY, "**": POWER,
}  # fmt: skip


class _NeedsLines(Exception):
    """A block is not expressions only."""


class _Printer:
    """Prints one program; holds the names in use and the lines so far."""

    def __init__(self, reserved: set[str]) -> None:
        self.taken = set(reserved)
        self.scoped: list[str] = []  # the names taken, in order
        self.expressions_only = False
        self.needs_lines: set[int] = set()  # the blocks known not to be expressions
        self.count = 0
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[Constant, str] = {}

    # Names

    def free(self, hint: str) -> str:
        """A name like the hint that means nothing else here."""
        name, number = hint, 1
        while name in self.taken or keyword.iskeyword(name):
            number += 1
            name = f"{hint}_{number}" if hint[-1].isdigit() else f"{hint}{number}"
        return self.take(name)

    def take(self, name: str) -> str:
        self.taken.add(name)
        self.scoped.append(name)
        return name

    def bind(self, value: Bound) -> str:
        if value.hint.isidentifier() and not value.hint.startswith("_"):
            value.text = self.free(value.hint)
        else:
            self.count += 1
            value.text = self.free(f"t{self.count}")
        return value.text

    def bind_index(self, value: Bound) -> str:
        hint = value.hint if value.hint.isidentifier() and not value.hint.startswith("_") else ""
        choices = [hint] if hint else []
        choices += ["i", "j", "k", "l", "p", "q", "r"]
        chosen = next((name for name in choices if name not in self.taken), None)
        value.text = self.free("i") if chosen is None else self.take(chosen)
        return value.text

    @contextmanager
    def scope(self) -> Iterator[None]:
        outer = len(self.scoped)
        try:
            yield
        finally:
            self.taken.difference_update(self.scoped[outer:])
            del self.scoped[outer:]

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def line(self, text: str) -> None:
        if self.expressions_only:
            raise _NeedsLines
        self.lines.append("  " * self.depth + text)

    # Expressions

    def atom(self, arg: Argument, least: int = IF) -> str:
        """An argument as text, in parentheses where it binds less tightly than asked."""
        match arg:
            case Bound(text=text, precedence=precedence):
                pass
            case Literal():
                text = _number(arg)
                precedence = NEGATE if text.startswith("-") else ATOM
            case Size(dim):
                text = str(dim)
                precedence = ADD if len(dim.terms) > 1 else MULTIPLY if not text.isidentifier() else ATOM
            case Constant():
                if arg not in self.constants:
                    self.constants[arg] = self.free(f"c{len(self.constants) + 1}")
                return self.constants[arg]
            case _:
                raise TypeError(f"unexpected atom {arg!r}")
        return text if precedence >= least else f"({text})"

    def expression(self, operation: ResolvedOperation) -> tuple[str, int] | None:
        """The operation as one expression, or None when it needs lines of its own."""
        match operation.op:
            case "primitive":
                return self.primitive(operation)
            case "index":
                array, *indices = operation.args
                return f"{self.atom(array, ATOM)}[{', '.join(map(self.atom, indices))}]", ATOM
            case "size":
                return f"size({self.atom(operation.args[0])}, {operation.static[0]})", ATOM
            case "cond":
                branches = [self.inline(block) for block in operation.blocks]
                if branches[0] is None or branches[1] is None or len(operation.results) != 1:
                    return None
                then, test = _parenthesised(branches[0][0], IF + 1), self.atom(operation.args[0], IF + 1)
                return f"{then} if {test} else {branches[1][0][0]}", IF
            case "reduce":
                return self.reduction(operation)
            case "generate":
                return self.filled(operation)
        return None

    def primitive(self, operation: ResolvedOperation) -> tuple[str, int]:
        primitive, args = operation.static[0], operation.args
        if primitive.name == "negative":
            return f"-{self.atom(args[0], POWER)}", NEGATE
        if primitive.name == "logical_not":
            return f"not {self.atom(args[0], NOT)}", NOT
        if square("primitive", operation.static, args) is not None:
            return f"{self.atom(args[0], ATOM)} ** 2", POWER
        level = _INFIX.get(primitive.infix or "")
        if level is None or len(args) != 2:
            return f"{primitive.name}({', '.join(map(self.atom, args))})", ATOM
        left, right = level, level + 1
        if level == COMPARE:
            left = level + 1
        elif level == POWER:
            left, right = ATOM, NEGATE
        elif level in (AND, OR):
            right = level
        parts = self.atom(args[0], left), primitive.infix, self.atom(args[1], right)
        if level == COMPARE:
            operation.results[0].comparison = parts
        elif level == AND:
            chain = [arg.comparison if isinstance(arg, Bound) and arg.precedence == COMPARE else None for arg in args]
            match chain:
                case [(low, ("<" | "<=") as first, middle), (same, ("<" | "<=") as second, high)] if middle == same:
                    return f"{low} {first} {middle} {second} {high}", COMPARE
        return " ".join(parts), level

    def reduction(self, operation: ResolvedOperation) -> tuple[str, int] | None:
        """A reduction by a named operator, with nested ones of the same name in one pair of parentheses."""
        name = reduction_name(operation)
        if name is None:
            return None
        count = self.count
        with self.scope():
            ranges = []
            while True:
                extent, element = operation.args[0], operation.blocks[0]
                ranges.append(f"{self.bind_index(element.binders[0])} < {self.atom(extent, ADD)}")
                inner = self.only_operation(element)
                if inner is None or reduction_name(inner) != name:
                    break
                operation = inner
            body = self.inline(element)
        if body is None or len(body[0][0]) > REDUCED:
            self.count = count
            return None
        return f"{name}({', '.join(ranges)}: {body[0][0]})", ATOM

    def filled(self, operation: ResolvedOperation) -> tuple[str, int] | None:
        """An array of one literal."""
        body = operation.blocks[0]
        if len(body.results) != 1:
            return None
        if (
            len(body.operations) == 1
            and body.operations[0].op == "generate"
            and body.results == body.operations[0].results
        ):
            if self.filled(body.operations[0]) is None:
                return None
        elif body.operations:
            return None
        value, extents = body.results[0], [self.atom(operation.args[0])]
        if isinstance(value, Bound) and value.fill is not None:
            number, inner = value.fill
            extents += inner
        elif isinstance(value, Literal):
            number = _number(value)
        else:
            return None
        operation.results[0].fill = number, extents
        shape = ", ".join(extents)
        if number in ("0.0", "0", "1.0", "1"):
            return f"{'zeros' if number.startswith('0') else 'ones'}({shape})", ATOM
        return f"full({shape if len(extents) == 1 else f'({shape})'}, {number})", ATOM

    def inline(self, block: ResolvedBlock) -> list[tuple[str, int]] | None:
        """The results of a block that is expressions only, None for another one (nothing is printed then)."""
        if id(block) in self.needs_lines:
            return None
        outer, self.expressions_only = self.expressions_only, True
        count = self.count
        try:
            with self.scope():
                self.operations(block.operations)
            return [(self.atom(r), r.precedence if isinstance(r, Bound) else ATOM) for r in block.results]
        except _NeedsLines:
            self.count = count
            self.needs_lines.add(id(block))
            return None
        finally:
            self.expressions_only = outer

    def only_operation(self, block: ResolvedBlock) -> ResolvedOperation | None:
        """The operation whose results a block gives, if nothing before it needs a line."""
        if not block.operations or block.results != block.operations[-1].results:
            return None
        outer, self.expressions_only = self.expressions_only, True
        count = self.count
        try:
            with self.scope():
                self.operations(block.operations[:-1])
        except _NeedsLines:
            return None
        finally:
            self.expressions_only, self.count = outer, count
        return block.operations[-1]

    # Blocks

    def operations(self, operations: Sequence[ResolvedOperation]) -> None:
        for operation in operations:
            expression = self.expression(operation) if len(operation.results) == 1 else None
            if expression is None:
                self.statement(operation, None)
                continue
            value = operation.results[0]
            once = (
                value.uses <= 1
                and not value.inside
                and len(expression[0]) <= (REDUCED if operation.op == "reduce" else INLINE)
            )
            cheap = operation.op == "index" or value.comparison is not None
            short = cheap and not value.hint and len(expression[0]) <= SHORT
            if once or short or value.fill is not None:
                value.text, value.precedence = expression
            else:
                self.line(f"{self.bind(value)} = {expression[0]}")

    def body(self, block: ResolvedBlock, give: str) -> None:
        """The lines of a block, ending with what it gives."""
        last = block.operations[-1] if block.operations else None
        tail = (
            last is not None
            and bool(last.results)
            and block.results == last.results
            and all(value.uses == 1 for value in last.results)
            and last.op != "accumulate"
        )
        self.operations(block.operations[:-1] if tail else block.operations)
        if tail and last is not None:
            expression = self.expression(last) if len(last.results) == 1 else None
            if expression is None:
                self.statement(last, give)
            else:
                self.line(f"{give} {expression[0]}")
        elif block.results:
            self.give(give, [self.atom(result) for result in block.results])

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

    def statement(self, operation: ResolvedOperation, give: str | None) -> None:
        """An operation with lines of its own: its results get names, or are given by the block."""
        args = operation.args
        match operation.op:
            case "add_to":
                target, value, *indices = args
                place = f"[{', '.join(map(self.atom, indices))}]" if indices else ""
                self.line(f"{self.atom(target)}{place} += {self.atom(value)}")
            case "require":
                self.line(f"require {self.atom(args[0])}")
            case "accumulate":
                self.accumulate(operation)
            case "generate":
                self.generate(operation, give)
            case "cond":
                self.cond(operation, give)
            case "reduce":
                self.reduce(operation, give)
            case "loop":
                self.loop(operation, give)
            case _:
                raise TypeError(f"no construct is called {operation.op!r}")

    @contextmanager
    def bound(self, operation: ResolvedOperation, give: str | None) -> Iterator[str]:
        """How a statement with results begins; their names hold after it."""
        if give is not None or not operation.results:
            yield "" if give is None else f"{give} "
            return
        names = [self.bind(value) for value in operation.results]
        yield f"{', '.join(names)} = "

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
            self.line(header)
            with self.indented():
                self.body(block, give)

    def generate(self, operation: ResolvedOperation, give: str | None) -> None:
        with self.bound(operation, give) as start, self.scope():
            ranges = []
            while True:
                block = operation.blocks[0]
                ranges.append(f"{self.bind_index(block.binders[0])} < {self.atom(operation.args[0], ADD)}")
                inner = self.only_operation(block)
                if inner is None or inner.op != "generate" or self.filled(inner) is not None:
                    break
                operation = inner
            self.headed(f"{start}for {', '.join(ranges)}:", block)

    def cond(self, operation: ResolvedOperation, give: str | None) -> None:
        with self.bound(operation, give) as start:
            test = self.atom(operation.args[0])
            for header, block in ((f"{start}if {test}:", operation.blocks[0]), ("else:", operation.blocks[1])):
                if not block.operations and not block.results:
                    if header != "else:":
                        self.line(f"{header} nothing")
                    continue
                self.headed(header, block)

    def reduce(self, operation: ResolvedOperation, give: str | None) -> None:
        extent, *neutrals = operation.args
        element, operator = operation.blocks
        name = reduction_name(operation)
        with self.bound(operation, give) as start:
            with self.scope():
                header = f"{start}{name or 'reduce'} {self.bind_index(element.binders[0])} < {self.atom(extent, ADD)}:"
                self.headed(header, element)
            if name is not None:
                return
            with self.scope():
                names = [self.bind(value) for value in operator.binders]
                half = len(names) // 2
                sides = [
                    ", ".join(side) if half == 1 else f"({', '.join(side)})" for side in (names[:half], names[half:])
                ]
                start = ", ".join(map(self.atom, neutrals))
                self.headed(f"combining {' with '.join(sides)}, from {start}:", operator)

    def loop(self, operation: ResolvedOperation, give: str | None) -> None:
        extent, *initials = operation.args
        block = operation.blocks[0]
        with self.bound(operation, give) as start, self.scope():
            index = self.bind_index(block.binders[0])
            state = [f"{self.bind(v)} = {self.atom(a)}" for v, a in zip(block.binders[1:], initials, strict=True)]
            header = f"{start}loop {index} < {self.atom(extent, ADD)}"
            header = f"{header} with {', '.join(state)}:" if state else f"{header}:"
            if len(block.results) == len(state):
                self.headed(header, block, "next")
                return
            self.line(header)
            with self.indented(), self.scope():
                self.operations(block.operations)
                after, outputs = block.results[: len(state)], block.results[len(state) :]
                for word, values in (("next", after), ("yield", outputs)):
                    if values:
                        self.line(f"{word} {', '.join(map(self.atom, values))}")

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


def _number(literal: Literal) -> str:
    if literal.type.name == "f32":
        return str(np.float32(literal.value))
    return str(literal.value)


def _parenthesised(expression: tuple[str, int], least: int) -> str:
    return expression[0] if expression[1] >= least else f"({expression[0]})"


# Programs


def pretty(program: Program | Instance | Block, *, simplified: bool = True) -> str:
    """The text of a program, simplified first unless ``simplified=False``; a term is printed as it is.

    A program must have its types in its annotations; print ``f.at(types...)`` for another choice.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> print(az.pretty(norm2))
    def norm2(x: f64[n]) -> f64:
      return sum(i < n: x[i] ** 2)
    """
    if isinstance(program, Block):
        return _text("program", program, program.names, None)
    instance = instance_of(program)
    term = instance.term
    if simplified:
        from .simplify import simplify

        term = simplify(term)
    return _text(instance.program.name, term, instance.names, instance.outputs)


def _text(name: str, block: Block, names: Sequence[str], outputs: trees.Shape | None) -> str:
    resolved = resolve(block)
    printer = _Printer(_size_names(block))
    parameters = []
    for value, hint in zip(resolved.binders, names, strict=True):
        value.hint = hint or "x"
        parameters.append(f"{printer.bind(value)}: {value.type}")
    several = trees.Shape(tuple, (), (trees.LEAF,) * len(resolved.results))
    structure = outputs or (trees.LEAF if len(resolved.results) == 1 else several)
    if structure == trees.LEAF or (structure.container is tuple and len(structure.inner) == structure.leaves != 1):
        printer.body(resolved, "return")
    else:
        printer.operations(resolved.operations)
        printer.line("return " + _structured(structure, [printer.atom(result) for result in resolved.results]))
    types = _structured(structure, [str(type) for type in block.types])
    constants = [f"  {given} = {_content(constant)}" for constant, given in printer.constants.items()]
    header = f"def {name}({', '.join(parameters)}) -> {types}:"
    if len(header) > LINE:
        header = "\n".join([f"def {name}(", *[f"  {parameter}," for parameter in parameters], f") -> {types}:"])
    return "\n".join([header, *constants, *printer.lines])


def _structured(shape: trees.Shape, leaves: Sequence[str]) -> str:
    """The leaves in their containers."""
    if shape.container is None:
        return leaves[0]
    if shape.container is type(None):
        return "None"
    parts, start = [], 0
    for inner in shape.inner:
        parts.append(_structured(inner, leaves[start : start + inner.leaves]))
        start += inner.leaves
    if shape.container is dict:
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(shape.keys, parts, strict=True)) + "}"
    if shape.container is list:
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _size_names(block: Block) -> set[str]:
    """The names of sizes in the types of the parameters."""
    return {name for type in block.binders for dim in dims(type) for name in dim.names()}


def _content(constant: Constant) -> str:
    """A captured array: its elements if they are few."""
    if constant.array.size <= 8:
        return f"{constant.array.tolist()}"
    return f"a captured {ArrayType(constant.type.scalar, constant.type.dims)}"
