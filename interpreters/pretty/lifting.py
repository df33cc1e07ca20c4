"""The body of a loop as whole arrays: each value with one axis more, for the loop's index.

This is vectorisation: one rule an operation says what it is with an axis at a given position. A read whose index is
the loop's becomes a slice of that axis; an elementwise operation stays what it is, on arrays whose axes line up as
NumPy lines them up; a product of vectors becomes one of a matrix. Where several forms are right, the one with fewest
transposes is taken. ``Stays`` is raised where no rule fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...core.dims import Compound, Dim
from ...core.primitive import PRIMITIVES, Primitive
from ...core.terms import Literal, Size
from ...core.types import Type, array_of, dims, element, i64, rank
from .resolved import Argument, Bound, ResolvedBlock, ResolvedOperation, real, square

LONGEST = 32  # operations in a body that is still read as one expression

WHOLE = ":"  # the selector of an axis that is taken as it is; other slices are text too
PLACE = None  # the selector of an axis read at the next argument: a number, or a vector of numbers

_UNDERSTOOD = ("primitive", "where", "cond", "read", "fold", "running", "product", "fill", "iota", "size")


class Stays(Exception):
    """A loop is not an expression on whole arrays."""


class Lifting:
    """What the values of a body are as arrays: with an axis for the body's index, at a given position."""

    def __init__(self, block: ResolvedBlock, dim: Dim) -> None:
        self.index, self.dim = block.binders[0], dim
        self.made: dict[Bound, ResolvedOperation] = {}
        self.dependent: set[Argument] = {self.index}
        self.uses: dict[Argument, int] = {}
        self.lifted: dict[tuple[Argument, int], Argument] = {}
        self.transposed: dict[Argument, int] = {}  # how many transposes a lifted value holds
        self._enter(block)
        for value, operation in self.made.items():
            if value in self.dependent and operation.op != "read" and self.uses.get(value, 0) > 1:
                raise Stays

    def _enter(self, block: ResolvedBlock) -> None:
        """Note the operations of a block, and those of the branches in it."""
        for operation in block.operations:
            if operation.op not in _UNDERSTOOD or len(operation.results) != 1 or len(self.made) >= LONGEST:
                raise Stays
            result = operation.results[0]
            for branch in operation.blocks:
                self._enter(branch)
            operands = self.operands(operation)
            shown = operands[:1] if square(operation.op, operation.static, operands) else operands
            for operand in shown:
                self.uses[operand] = self.uses.get(operand, 0) + 1
            if any(operand in self.dependent for operand in operands):
                self.dependent.add(result)
            elif operation.blocks:
                raise Stays
            self.made[result] = operation

    def operands(self, operation: ResolvedOperation) -> list[Argument]:
        """The arguments; those of a cond include the results of its branches."""
        return [real(arg) for arg in (*operation.args, *(block.results[0] for block in operation.blocks))]

    def depends(self, value: Argument) -> bool:
        return value in self.dependent

    # The operations made

    def make(self, op: str, static: tuple[Any, ...], args: Sequence[Argument], type: Type) -> Bound:
        result = Bound(type)
        operation_of(op, static, list(args), [result])
        self.transposed[result] = sum(self.transposed.get(arg, 0) for arg in args)
        return result

    def operations(self, *values: Argument) -> list[ResolvedOperation]:
        """The operations that make lifted values, those they need first."""
        order: dict[ResolvedOperation, None] = {}

        def visit(value: Argument) -> None:
            value = real(value)
            operation = value.source if isinstance(value, Bound) else None
            if operation is None or operation in order or (value not in self.transposed and value not in self.made):
                return
            for operand in self.operands(operation):
                visit(operand)
            order[operation] = None

        for value in values:
            visit(value)
        return list(order)

    def finished(self, value: Argument, result: Bound) -> list[ResolvedOperation]:
        """The operations that make a lifted value, which is what a result of the program is."""
        operations = self.operations(value)
        if value in self.transposed:
            last = operations[-1]
            last.results, result.source = [result], last
        else:
            result.alias = value
        return operations

    # Values with one axis more

    def lift(self, value: Argument, position: int) -> Argument:
        """A value that depends on the index, with an axis for it; Stays when no rule fits."""
        known = self.lifted.get((value, position))
        if known is not None:
            return known
        operation = self.made.get(value) if isinstance(value, Bound) else None
        if operation is None or not self.depends(value):
            raise Stays
        found: Argument
        match operation.op:
            case "read":
                found = self.read(operation, position)
            case "primitive" | "where" | "cond":
                found = self.elementwise(operation, position)
            case "fold" | "running":
                found = self.combined(operation, position)
            case "product":
                found = self.product(operation, position)
            case _:
                raise Stays
        if isinstance(found, Bound) and found.source is not None and not found.source.origin.file:
            found.source.origin = operation.origin
        self.lifted[value, position] = found
        return found

    def lift_or_repeat(self, value: Argument) -> Argument:
        """A value with an axis in front, or one number for all indices."""
        inside = isinstance(value, Bound) and value in self.made
        return self.lift(value, 0) if inside or self.depends(value) else value

    def longer(self, type: Type, position: int) -> Type:
        sizes = dims(type)
        return array_of(element(type), (*sizes[:position], self.dim, *sizes[position:]))

    def cheapest(self, choices: Iterator[tuple[int, Bound]]) -> Bound:
        """The value with the fewest transposes; the first of those that are equal."""
        found = list(choices)
        if not found:
            raise Stays
        return min(found, key=lambda choice: choice[0])[1]

    def read(self, operation: ResolvedOperation, position: int) -> Argument:
        """The axis that the index reads is taken as a whole, or as a slice, or at a vector of places."""
        base, *places = self.operands(operation)
        selectors, order = operation.static
        if self.depends(base):
            if any(map(self.depends, places)):
                raise Stays
            base, axis = self.lift(base, 0), 0
            selectors, order = (WHOLE, *selectors), tuple([k + 1 for k in order])
        else:
            which = [k for k, place in enumerate(places) if self.depends(place)]
            gathers = any(isinstance(place, Bound) and rank(place.type) for place in places)
            if len(which) != 1 or gathers:
                raise Stays
            axis = [k for k, selector in enumerate(selectors) if selector is PLACE][which[0]]
            affine = self.affine(places[which[0]])
            if affine is None:
                places[which[0]] = self.lift(places[which[0]], 0)
                selector: str | None = PLACE
            else:
                del places[which[0]]
                selector = slice_text(*affine, self.dim, dims(base.type)[axis])
                if selector is None:
                    raise Stays
            selectors = (*selectors[:axis], selector, *selectors[axis + 1 :])
        order = (*order[:position], axis, *order[position:])
        if all(selector == WHOLE for selector in selectors) and order == tuple(range(len(order))):
            return base
        result = self.make(
            "read", (selectors, order), [base, *places], self.longer(operation.results[0].type, position)
        )
        self.transposed[result] += order != tuple(sorted(order))
        return result

    def affine(self, value: Argument) -> tuple[Dim, int] | None:
        """``start, step`` when a value is ``start + step * index``."""
        match value:
            case Literal(bits) if value.type == i64:
                return Dim.of(bits), 0
            case Size(dim):
                return dim, 0
        if value is self.index:
            return Dim.of(0), 1
        operation = self.made.get(value) if isinstance(value, Bound) else None
        if operation is None or operation.op != "primitive" or len(operation.args) != 2:
            return None
        a, b = [self.affine(arg) for arg in self.operands(operation)]
        if a is None or b is None:
            return None
        match operation.static[0].name:
            case "add":
                return a[0] + b[0], a[1] + b[1]
            case "subtract":
                return a[0] - b[0], a[1] - b[1]
            case "multiply" if a[1] == 0 and a[0].constant is not None:
                return b[0] * a[0], b[1] * a[0].constant
            case "multiply" if b[1] == 0 and b[0].constant is not None:
                return a[0] * b[0], a[1] * b[0].constant
        return None

    def elementwise(self, operation: ResolvedOperation, position: int) -> Bound:
        """NumPy lines axes up from the last one: each operand must line up without an inserted axis."""
        type = operation.results[0].type
        args: list[Argument] = []
        for operand in self.operands(operation):
            missing = rank(type) - rank(operand.type)
            if self.depends(operand):
                if position < missing:
                    raise Stays
                args.append(self.lift(operand, position - missing))
            elif rank(operand.type) and position > missing:
                raise Stays
            else:
                args.append(operand)
        op = "where" if operation.op == "cond" else operation.op
        return self.make(op, operation.static, args, self.longer(type, position))

    def combined(self, operation: ResolvedOperation, position: int) -> Bound:
        """A reduction or running reduction along an axis: along the same one, wherever it is now."""
        name, axis = operation.static
        operand = self.operands(operation)[0]
        axes = rank(operand.type)
        if axis is None and axes != 1:
            raise Stays
        axis = axis or 0
        type = self.longer(operation.results[0].type, position)

        def choices() -> Iterator[tuple[int, Bound]]:
            for place in range(axes + 1):
                along = axis + (place <= axis)
                if operation.op == "running" and place != position:
                    continue
                if operation.op == "fold" and place - (along < place) != position:
                    continue
                try:
                    value = self.make(operation.op, (name, along), [self.lift(operand, place)], type)
                except Stays:
                    continue
                yield self.transposed[value], value

        return self.cheapest(choices())

    def product(self, operation: ResolvedOperation, position: int) -> Bound:
        """A product of vectors becomes one of a matrix and a vector, that one a product of matrices."""
        u, v = self.operands(operation)
        type = self.longer(operation.results[0].type, position)
        if self.depends(u) and self.depends(v):
            if rank(u.type) != 1 or rank(v.type) != 1:
                raise Stays
            multiplied = self.make(
                "primitive", (_multiply(),), [self.lift(u, 0), self.lift(v, 0)], self.longer(u.type, 0)
            )
            return self.make("fold", ("sum", 1), [multiplied], type)
        vector, other, first = (u, v, True) if self.depends(u) else (v, u, False)
        if rank(vector.type) != 1:
            raise Stays

        def choices() -> Iterator[tuple[int, Bound]]:
            for left in (first, not first):
                turned = left != first and rank(other.type) == 2
                if position != (0 if left else rank(other.type) - 1):
                    continue
                try:
                    matrix = self.lift(vector, 0 if left else 1)
                except Stays:
                    continue
                mate = self.turned(other) if turned else other
                value = self.make("product", (), [matrix, mate] if left else [mate, matrix], type)
                yield self.transposed[value], value

        return self.cheapest(choices())

    def turned(self, matrix: Argument) -> Argument:
        """The transpose of a matrix that does not depend on the index."""
        sizes = dims(matrix.type)
        result = self.make("read", ((WHOLE, WHOLE), (1, 0)), [matrix], array_of(element(matrix.type), sizes[::-1]))
        self.transposed[result] += 1
        return result

    def fold(self, name: str, value: Argument, total: Bound) -> list[ResolvedOperation] | None:
        """The reduction of the elements ``value`` over the index; None when they do not depend on it."""
        operation = self.made.get(value) if isinstance(value, Bound) else None
        if operation is None or not self.depends(value):
            return None
        operands = self.operands(operation)
        if operation.op == "fold" and operation.static[0] == name and operation.static[1] is None:
            args = [self.lift(operands[0], 0)]
            return [*self.operations(*args), operation_of("fold", (name, None), list(args), [total])]
        if operation.op == "product" and name == "sum" and rank(value.type) == 0 and all(map(self.depends, operands)):
            u, v = [self.lift(operand, 0) for operand in operands]
            multiplied = self.make("primitive", (_multiply(),), [u, v], u.type)
            return [*self.operations(multiplied), operation_of("fold", (name, None), [multiplied], [total])]
        is_product = (
            operation.op == "primitive" and operation.static[0] is _multiply() and operands[0] is not operands[1]
        )
        if name == "sum" and is_product and all(map(self.depends, operands)):
            factors = [self.lift(operand, 0) for operand in operands]
            return [*self.operations(*factors), operation_of("product", (), list(factors), [total])]
        array = self.lift(value, 0)
        return [*self.operations(array), operation_of("fold", (name, None), [array], [total])]


def _multiply() -> Primitive:
    return PRIMITIVES["multiply"]


def operation_of(
    op: str,
    static: tuple[Any, ...],
    args: Sequence[Argument],
    results: list[Bound],
    blocks: Sequence[ResolvedBlock] = (),
) -> ResolvedOperation:
    return ResolvedOperation(op, static, list(args), list(blocks), results)


# Slices


def slice_text(start: Dim, step: int, count: Dim, size: Dim) -> str | None:
    """The slice of an axis of this size that reads ``start + step * i`` for i in 0..count; None when none is sure.

    >>> n = Dim.parse("n")
    >>> slice_text(Dim.of(0), 1, n, n), slice_text(Dim.of(1), 1, n - 1, n), slice_text(n - 1, -1, n, n)
    (':', '1:', '::-1')
    >>> slice_text(Dim.of(1), 1, n, n) is None
    True
    """
    if step == 0:
        return None
    if step < 0:
        whole = (size - 1).compare(start) and ((size - step - 1) // -step).compare(count)
        return f"::{step}" if whole else None
    numbers = sorted(_numbers(start) | _numbers(count) | _numbers(size))
    ends = [*numbers, *[a + b for a in numbers for b in numbers]]
    for first in dict.fromkeys([0, *ends]):
        low = _clipped(first, size)
        if not (low.compare(start) or (first >= 0 and Dim.of(first).compare(start))):
            continue
        for last in dict.fromkeys([None, *ends]):
            high = size if last is None else _clipped(last, size)
            # What the inner side of an end would clip has no elements.
            inner = (size + last if last is not None and last < 0 else high) - (first if first >= 0 else low)
            spans = [high - low, (high - low).maximum(0), inner, inner.maximum(0)]
            if any(((span + step - 1) // step).compare(count) for span in spans):
                tail = "" if step == 1 else f":{step}"
                return f"{first or ''}:{'' if last is None else last}{tail}"
    return None


def _clipped(end: int, size: Dim) -> Dim:
    """What an end of a slice means."""
    return (size + end).maximum(0) if end < 0 else size.minimum(end)


def _numbers(dim: Dim) -> set[int]:
    """The numbers that occur in a dim, and their opposites."""
    found = set()
    for monomial, c in dim.terms:
        if not monomial:
            found |= {c, -c}
        for atom in monomial:
            if isinstance(atom, Compound):
                found |= _numbers(atom.left) | _numbers(atom.right)
    return found - {0}
