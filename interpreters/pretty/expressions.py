"""Operations as expressions: what binds how tightly, and how long what is printed inside something else may be.

Values used once, in the block that computes them, are printed where they are used; others get a name. An operation is
an expression if it can be; what needs lines of its own is the printer's (``printer.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ...core.constructs import ADDED, CONSTRUCTS
from ...core.procedures import Procedure, shared_out
from ...core.source import Origin
from ...core.terms import Constant, Literal, Size
from ...core.types import Named, rank
from .lifting import PLACE, WHOLE
from .names import Names
from .resolved import Argument, Bound, ResolvedBlock, ResolvedOperation, reduction_name, square

INLINE = 56  # the longest expression that is printed where it is used
REDUCED = 80  # the longest reduction or map that is printed where it is used
SHORT = 12  # the longest read of an array or comparison that is printed wherever it is used

# Precedence, loosest first
IF, OR, AND, NOT, COMPARE, BITOR, BITAND, ADD, MULTIPLY, NEGATE, POWER, ATOM = range(12)
_INFIX = {
    "or": OR, "and": AND, "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "==": COMPARE, "!=": COMPARE,
    "|": BITOR, "&": BITAND, "+": ADD, "-": ADD, "*": MULTIPLY, "/": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY,
    "**": POWER,
}  # fmt: skip
_ON_ARRAYS = {"and": "&", "or": "|"}  # NumPy's spelling

RUNNING = {"sum": "cumsum", "prod": "cumprod", "max": "cummax", "min": "cummin", "all": "cumall", "any": "cumany"}

_LONG = ("fold", "map")

Expression = tuple[str, int]


class _NeedsLines(Exception):
    """A block is not expressions only."""


class Expressions(Names, ABC):
    """Prints operations as expressions; holds the names in use and the lines so far."""

    @abstractmethod
    def statement(self, operation: ResolvedOperation, give: str | None) -> None:
        """Print an operation that is no expression: its results get names, or are given by the block."""

    def __init__(self, reserved: set[str]) -> None:
        super().__init__(reserved)
        self.expressions_only = False
        self.needs_lines: set[int] = set()  # the blocks known not to be expressions
        self.lines: list[str] = []
        self.origins: list[frozenset[Origin]] = []  # of each line: where what stands in it was written
        self.shown: set[Origin] = set()  # of what is being printed
        self.depth = 1
        self.constants: dict[Constant, str] = {}

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def line(self, text: str) -> None:
        if self.expressions_only:
            raise _NeedsLines
        self.lines.append("  " * self.depth + text)
        self.origins.append(frozenset([origin for origin in self.shown if origin.file]))

    @contextmanager
    def showing(self, *origins: Origin) -> Iterator[None]:
        """What is printed inside a ``with`` block was written there, and where what is printed in it was."""
        outer, self.shown = self.shown, set(origins)
        try:
            yield
        finally:
            self.shown = outer

    # Expressions

    def atom(self, arg: Argument, least: int = IF) -> str:
        """An argument as text, in parentheses where it binds less tightly than asked."""
        match arg:
            case Bound(text=text, precedence=precedence):
                self.shown |= arg.origins
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

    def joined(self, args: Sequence[Argument]) -> str:
        return ", ".join(map(self.atom, args))

    def called(self, procedures: Sequence[Procedure], args: Sequence[Argument]) -> str:
        """A call of a procedure, or of several side by side."""
        shares = zip(procedures, shared_out(procedures, args), strict=True)
        calls = [f"{procedure.name}({self.joined(own)})" for procedure, own in shares]
        return calls[0] if len(calls) == 1 else f"par({', '.join(calls)})"

    def place(self, indices: Sequence[Argument]) -> str:
        """Indices as one argument of a function."""
        return self.atom(indices[0]) if len(indices) == 1 else f"({self.joined(indices)})"

    def expression(self, operation: ResolvedOperation) -> Expression | None:
        """The operation as one expression, or None when it needs lines of its own."""
        args, static = operation.args, operation.static
        match operation.op:
            case "primitive":
                return self.primitive(operation)
            case "index":
                return self.read(args, [PLACE] * (len(args) - 1), ())
            case "read":
                return self.read(args, *static)
            case "where":
                return f"where({self.joined(args)})", ATOM
            case "size":
                return f"size({self.atom(args[0])}, {static[0]})", ATOM
            case "cond":
                return self.choice(operation)
            case "grouped":
                return f"histogram({static[0]}, {self.joined(args)})", ATOM
            case "fold" | "running":
                name, axis = static
                along = "" if axis is None or (operation.op == "running" and rank(args[0].type) == 1) else f", {axis}"
                return f"{name if operation.op == 'fold' else RUNNING[name]}({self.atom(args[0])}{along})", ATOM
            case "product":
                return self.product(operation)
            case "fill":
                return self.filled(operation)
            case "iota" | "argsort":
                return f"{operation.op}({self.atom(args[0])})", ATOM
            case "map":
                return self.map(operation)
            case "put":
                target, *places, value = args
                order = "" if static[0] else ", unique=False"
                return f"scatter({self.atom(target)}, {self.place(places)}, {self.atom(value)}{order})", ATOM
            case "scatter":
                return self.update(operation)
            case "foreign":
                return f"foreign.{static[0].name}({self.joined(args)})", ATOM
            case "function":
                return self.lambda_(operation)
            case "apply":
                return f"{self.atom(args[0], ATOM)}({self.joined(args[1:])})", ATOM
            case "call":
                return self.called(static, args), ATOM
            case "pack":
                return f"({self.joined(args)}{',' if len(args) == 1 else ''})", ATOM
            case "project":
                return f"{self.atom(args[0], ATOM)}[{static[0]}]", ATOM
            case "case":
                return self.field(operation)
            case "construct":
                return f"{_variant(static[0], static[1])}({self.joined(args)})", ATOM
            case op if op in CONSTRUCTS and operation.row.combines:
                return self.named_histogram(operation) if operation.row.places else self.reduction(operation)
        if operation.op not in ADDED or operation.blocks:
            return None
        return f"{operation.op}({self.joined(args)})", ATOM

    def primitive(self, operation: ResolvedOperation) -> Expression:
        primitive, args = operation.static[0], operation.args
        whole = rank(operation.results[0].type) > 0
        if primitive.name == "negative":
            return f"-{self.atom(args[0], POWER)}", NEGATE
        if primitive.name == "logical_not":
            return (f"~{self.atom(args[0], POWER)}", NEGATE) if whole else (f"not {self.atom(args[0], NOT)}", NOT)
        if square("primitive", operation.static, args) is not None:
            return f"{self.atom(args[0], ATOM)} ** 2", POWER
        infix = _ON_ARRAYS.get(primitive.infix, primitive.infix) if whole else primitive.infix
        level = _INFIX.get(infix or "")
        if level is None or len(args) != 2:
            return f"{primitive.name}({self.joined(args)})", ATOM
        left, right = level, level + 1
        if level == COMPARE:
            left = level + 1
        elif level == POWER:
            left, right = ATOM, NEGATE
        elif level in (AND, OR):
            right = level
        parts = self.atom(args[0], left), infix, self.atom(args[1], right)
        if level == COMPARE and not whole:
            operation.results[0].comparison = parts
        elif level == AND:
            chain = [arg.comparison if isinstance(arg, Bound) and arg.precedence == COMPARE else None for arg in args]
            match chain:
                case [(low, ("<" | "<=") as first, middle), (same, ("<" | "<=") as second, high)] if middle == same:
                    return f"{low} {first} {middle} {second} {high}", COMPARE
        return " ".join(parts), level

    def read(self, args: Sequence[Argument], selectors: Sequence[str | None], order: Sequence[int]) -> Expression:
        """A read of an array: indices, slices, and the transpose that puts its axes in order."""
        base, *places = args
        rest = iter(places)
        parts = [self.atom(next(rest)) if selector is PLACE else selector for selector in selectors]
        while parts and parts[-1] == WHOLE and selectors[len(parts) - 1] is not PLACE:
            parts.pop()
        text = self.atom(base, ATOM)
        text = f"{text}[{', '.join(parts)}]" if parts else text
        axes = sorted(order)
        if list(order) == axes:
            return text, ATOM
        if list(order) == axes[::-1]:
            return f"{text}.T", ATOM
        return f"transpose({text}, ({', '.join(str(axes.index(axis)) for axis in order)}))", ATOM

    def choice(self, operation: ResolvedOperation) -> Expression | None:
        branches = [self.inline(block) for block in operation.blocks]
        if branches[0] is None or branches[1] is None or len(operation.results) != 1:
            return None
        then, test = _parenthesised(branches[0][0], IF + 1), self.atom(operation.args[0], IF + 1)
        return f"{then} if {test} else {branches[1][0][0]}", IF

    def product(self, operation: ResolvedOperation) -> Expression:
        """``u @ v``; a sum where a vector is computed there, with operators that would compete with it."""
        vectors = all(rank(arg.type) == 1 for arg in operation.args)
        if vectors and any(isinstance(arg, Bound) and ADD <= arg.precedence < ATOM for arg in operation.args):
            if not any(_made_by(arg, "product") for arg in operation.args):
                u, v = self.atom(operation.args[0], MULTIPLY), self.atom(operation.args[1], MULTIPLY + 1)
                return f"sum({u} * {v})", ATOM
        return f"{self.atom(operation.args[0], MULTIPLY)} @ {self.atom(operation.args[1], MULTIPLY + 1)}", MULTIPLY

    def reduction(self, operation: ResolvedOperation) -> Expression | None:
        """A reduction by a named operator, with nested ones of the same name in one pair of parentheses."""
        name = reduction_name(operation)
        if name is None:
            return None
        count = self.count
        running = operation.row.ordered
        with self.scope():
            ranges = []
            while True:
                element = operation.blocks[0]
                ranges.append(self.range(element.binders[0], operation.args[0]))
                inner = None if running else self.only_operation(element)
                if inner is None or inner.op != "reduce" or reduction_name(inner) != name:
                    break
                operation = inner
                self.shown.add(operation.origin)
            body = self.inline(element)
        if body is None or len(body[0][0]) > REDUCED:
            self.count = count
            return None
        return f"{RUNNING[name] if running else name}({', '.join(ranges)}: {body[0][0]})", ATOM

    def named_histogram(self, operation: ResolvedOperation) -> Expression | None:
        name = reduction_name(operation)
        if name is None:
            return None
        bins, extent = operation.args[:2]
        with self.scope():
            span = self.range(operation.blocks[0].binders[0], extent)
            body = self.inline(operation.blocks[0])
        if body is None:
            return None
        return f"histogram({name}, {self.atom(bins)}, {span}: {body[0][0]}, {body[1][0]})", ATOM

    def range(self, index: Bound, extent: Argument) -> str:
        return f"{self.bind_index(index)} < {self.atom(extent, ADD)}"

    def map(self, operation: ResolvedOperation) -> Expression | None:
        if len(operation.results) != 1:
            return None
        count = self.count
        with self.scope():
            names = self.elements(operation)
            body = self.inline(operation.blocks[0])
        if body is None:
            self.count = count
            return None
        return f"map(lambda {', '.join(names)}: {body[0][0]}, {self.joined(operation.args)})", ATOM

    def elements(self, operation: ResolvedOperation) -> Sequence[str]:
        pairs = zip(operation.blocks[0].binders, operation.args, strict=True)
        return [self.bind_element(value, self.atom(array)) for value, array in pairs]

    def filled(self, operation: ResolvedOperation) -> Expression:
        """An array of one number, which is printed wherever it is used if it is a literal."""
        value, *extents = operation.args
        shape, number = self.joined(extents), self.atom(value)
        if isinstance(value, Literal):
            operation.results[0].fill = True
        if number in ("0.0", "0", "1.0", "1"):
            return f"{'zeros' if number.startswith('0') else 'ones'}({shape})", ATOM
        return f"full({shape if len(extents) == 1 else f'({shape})'}, {number})", ATOM

    def update(self, operation: ResolvedOperation) -> Expression | None:
        """A scatter that writes once: one element, or what stands at one place."""
        extents, indices = operation.args[: operation.static[1]], operation.blocks[0].binders
        once = all(isinstance(extent, Literal) and extent.value == 1 for extent in extents)
        if not once or any(index.uses for index in indices) or len(operation.results) != 1:
            return None
        body = self.inline(operation.blocks[0])
        if body is None:
            return None
        *places, (value, _) = body
        where = places[0][0] if len(places) == 1 else f"({', '.join(place for place, _ in places)})"
        return f"update({self.atom(operation.args[-1])}, {where}, {value})", ATOM

    def field(self, operation: ResolvedOperation) -> Expression | None:
        """A field of a record."""
        value, block = operation.args[0], operation.blocks[0]
        names = value.type.fields(operation.static[0]) if isinstance(value.type, Named) else {}
        for name, field in zip(names, block.binders, strict=False):
            if len(operation.blocks) == 1 and block.results == [field]:
                return f"{self.atom(value, ATOM)}.{name}", ATOM
        return None

    def lambda_(self, operation: ResolvedOperation) -> Expression | None:
        block = operation.blocks[0]
        count = self.count
        with self.scope():
            parameters = self.parameters(block.binders)
            body = self.inline(block)
        if body is None or len(body) != 1:
            self.count = count
            return None
        return f"fun ({parameters}): {body[0][0]}", IF

    def parameters(self, binders: Sequence[Bound]) -> str:
        return ", ".join([f"{self.bind(binder)}: {binder.type}" for binder in binders])

    def inline(self, block: ResolvedBlock) -> Sequence[Expression] | None:
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

    def operations(self, operations: Sequence[ResolvedOperation]) -> None:
        for operation in operations:
            with self.showing(operation.origin):
                self.operation(operation)

    def operation(self, operation: ResolvedOperation) -> None:
        expression = self.expression(operation) if len(operation.results) == 1 else None
        if expression is None:
            self.statement(operation, None)
            return
        value = operation.results[0]
        combines = operation.op in CONSTRUCTS and operation.row.combines and not operation.row.places
        limit = REDUCED if combines or operation.op in _LONG else INLINE
        once = value.uses <= 1 and not value.inside and len(expression[0]) <= limit
        cheap = operation.op in ("index", "read", "project") or value.comparison is not None
        short = cheap and not value.hint and len(expression[0]) <= SHORT
        calls = operation.op in ADDED or (operation.op in CONSTRUCTS and operation.row.calls)
        if calls and value.uses == 0:
            self.line(expression[0])
        elif once or short or value.fill:
            value.text, value.precedence = expression
            value.origins = frozenset(self.shown)
        else:
            self.line(f"{self.bind(value)} = {expression[0]}")


def _number(literal: Literal) -> str:
    if literal.type.name == "f32":
        return str(np.float32(literal.value))
    return str(literal.value)


def _parenthesised(expression: Expression, least: int) -> str:
    return expression[0] if expression[1] >= least else f"({expression[0]})"


def _made_by(arg: Argument, op: str) -> bool:
    return isinstance(arg, Bound) and arg.source is not None and arg.source.op == op


def _variant(type: Named, variant: str) -> str:
    """A record has the name of its type; a variant of several stands behind it."""
    declaration = type.declaration
    return declaration.name if len(declaration.variants) == 1 else f"{declaration.name}.{variant}"
