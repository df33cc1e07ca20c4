"""What a nest of loops is as whole arrays: elementwise arithmetic, slices, transposes, ``sum(a, 1)``, ``a @ b``.

    for i < n, j < m: sum(k < d: a[i, k] * b[k, j]) + c[j]        is        a @ b + c

A body is read from the inside out, and each loop index becomes an axis of every value that depends on it
(``lifting.py``). What is recognised is exactly the term: extents are compared with sizes, and a slice is proposed from
the numbers that occur and taken if NumPy's meaning of it is what the loop reads. Loops stay loops, too, where whole
arrays would read worse: where a value is used twice in the body, several arrays are made at once, an index is a number
of its own, or an axis would have to be inserted.

A loop that stays, but whose index only takes the elements of an array, is a ``map`` over that array.

The operations that take their place are ``read`` (selectors, order), ``where``, ``fold`` and ``running`` (name, axis),
``product``, ``fill``, ``iota``, ``grouped`` (a histogram by a named operator), ``put`` (a scatter) and ``map``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.dims import Dim
from ...core.terms import Literal, Size
from ...core.types import ArrayType, array_of, dims, element, is_data, rank
from .lifting import PLACE, WHOLE, Lifting, Stays, operation_of
from .resolved import Argument, Bound, ResolvedBlock, ResolvedOperation, real, reduction_name


def recognise(block: ResolvedBlock, loops: bool = False) -> None:
    """Replace loops in a block, at all depths, by the operations on whole arrays that they are.

    With ``loops`` only arrays of one number are.
    """
    _Recognition(loops).block(block)


class _Recognition:
    """Reads one program; knows the dims of the integers that are extents."""

    def __init__(self, loops: bool) -> None:
        self.loops = loops
        self.dims: dict[Argument, Dim] = {}

    def block(self, block: ResolvedBlock) -> None:
        operations: list[ResolvedOperation] = []
        for operation in block.operations:
            operation.args = [real(arg) for arg in operation.args]
            if operation.row.stacked:
                self.dims[operation.args[0]] = operation.static[0]
            for inner in operation.blocks:
                self.block(inner)
            operations += self.recognised(operation)
        block.operations = operations
        block.results = [real(result) for result in block.results]

    def dim(self, extent: Argument) -> Dim | None:
        match extent:
            case Size(dim):
                return dim
            case Literal(bits):
                return Dim.of(bits)
        return self.dims.get(extent)

    def recognised(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        """What stands for an operation whose blocks are done."""
        filled = _as_fill(operation)
        if filled is not None or self.loops:
            return [filled or operation]
        try:
            match operation.op:
                case "index":
                    places = len(operation.args) - 1
                    operation.op, operation.static = "read", ((PLACE,) * places, ())
                case "generate":
                    return self.generate(operation)
                case "scatter":
                    return self.scatter(operation)
                case _ if operation.row.combines:
                    row = operation.row
                    recognise = self.grouped if row.places else self.running if row.ordered else self.folded
                    return recognise(operation)
        except Stays:
            pass
        return [operation]

    def lifting(self, operation: ResolvedOperation, extent: Argument) -> Lifting:
        dim = self.dim(extent)
        if dim is None:
            raise Stays
        return Lifting(operation.blocks[0], dim)

    def generate(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        try:
            return self._generate(operation)
        except Stays:
            return [_as_map(operation, self.dim(operation.args[0])) or operation]

    def _generate(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        block, extent = operation.blocks[0], operation.args[0]
        if len(block.results) != 1:
            raise Stays
        result = real(block.results[0])
        if result is block.binders[0]:
            return [operation_of("iota", (), [extent], operation.results)]
        lifting = self.lifting(operation, extent)
        return lifting.finished(lifting.lift(result, 0), operation.results[0])

    def folded(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        name, extent = reduction_name(operation), operation.args[0]
        if name is None:
            raise Stays
        body, total = operation.blocks[0], operation.results
        try:
            lifting = self.lifting(operation, extent)
            operations = lifting.fold(name, real(body.results[0]), total[0])
            if operations is not None:
                return operations
            raise Stays
        except Stays:
            dim = self.dim(extent)
            if dim is None:
                raise
            elements = [Bound(ArrayType(element(result.type), (dim,))) for result in total]
            mapped = _as_map(operation_of("generate", (dim,), [extent], elements, [body]), dim)
            if mapped is None:
                raise
            return [mapped, operation_of("fold", (name, None), list(elements), total)]

    def running(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        name = reduction_name(operation)
        if name is None:
            raise Stays
        lifting = self.lifting(operation, operation.args[0])
        array = lifting.lift(real(operation.blocks[0].results[0]), 0)
        return [*lifting.operations(array), operation_of("running", (name, 0), [array], operation.results)]

    def grouped(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        name = reduction_name(operation)
        bins, extent = operation.args[:2]
        if name is None:
            raise Stays
        lifting = self.lifting(operation, extent)
        places, value = [real(result) for result in operation.blocks[0].results]
        arrays = [lifting.lift(places, 0), lifting.lift_or_repeat(value)]
        return [*lifting.operations(*arrays), operation_of("grouped", (name,), [bins, *arrays], operation.results)]

    def scatter(self, operation: ResolvedOperation) -> list[ResolvedOperation]:
        unique, count = operation.static
        if count != 1 or len(operation.results) != 1:
            raise Stays
        lifting = self.lifting(operation, operation.args[0])
        *places, value = [real(result) for result in operation.blocks[0].results]
        arrays = [*[lifting.lift(place, 0) for place in places], lifting.lift_or_repeat(value)]
        put = operation_of("put", (unique,), [operation.args[1], *arrays], operation.results)
        return [*lifting.operations(*arrays), put]


# Arrays of one number


def _as_fill(operation: ResolvedOperation) -> ResolvedOperation | None:
    """The loop as an array of one number that does not depend on the index."""
    block = operation.blocks[0] if operation.op == "generate" else None
    if block is None or len(block.results) != 1:
        return None
    value, extents = real(block.results[0]), operation.args[:1]
    inner = value.source if isinstance(value, Bound) else None
    if inner is not None and inner.op == "fill" and block.operations in ([], [inner]):
        if block.binders[0] in inner.args:
            return None
        value, extents = inner.args[0], [*extents, *inner.args[1:]]
    elif block.operations or value is block.binders[0] or not is_data(value.type) or rank(value.type):
        return None
    return operation_of("fill", (), [value, *extents], operation.results)


# Maps


def _as_map(operation: ResolvedOperation, extent: Dim | None) -> ResolvedOperation | None:
    """The loop as a map, if its index only takes elements: of one array, or of several that the user named."""
    block = operation.blocks[0]
    index = block.binders[0]
    if extent is None or any(real(result) is index for result in block.results):
        return None
    reads: list[ResolvedOperation] = []
    bound: set[Argument] = set()
    for inner in _all_operations(block):
        bound.update(inner.results)
        for nested in inner.blocks:
            bound.update(nested.binders)
            if any(real(result) is index for result in nested.results):
                return None
        args = [real(arg) for arg in inner.args]
        if index not in args:
            continue
        if inner.op != "read" or inner.static[0][0] is not PLACE or args.index(index) != 1 or index in args[2:]:
            return None
        if args[0] in bound or not dims(args[0].type)[0].compare(extent):
            return None
        reads.append(inner)
    elements: dict[Argument, Bound] = {}
    for read in reads:
        base = real(read.args[0])
        rows = elements.setdefault(base, Bound(array_of(element(base.type), dims(base.type)[1:])))
        if _rest_is_whole(read):
            rows.hint = rows.hint or read.results[0].hint
    if not elements or (len(elements) > 1 and not all(rows.hint for rows in elements.values())):
        return None
    for read in reads:
        rows = elements[real(read.args[0])]
        if _rest_is_whole(read):
            read.results[0].alias = rows
        else:
            selectors, order = read.static
            read.static = selectors[1:], tuple([axis - 1 for axis in order])
            read.args = [rows, *read.args[2:]]
    block.binders = list(elements.values())
    made = operation_of("map", operation.static, list(elements), operation.results, [block])
    if not made.origin.file:
        made.origin = reads[0].origin
    return made


def _rest_is_whole(read: ResolvedOperation) -> bool:
    """Whether a read at one place of the first axis takes what is there as it is."""
    selectors, order = read.static
    return all(selector == WHOLE for selector in selectors[1:]) and order == tuple(range(1, len(selectors)))


def _all_operations(block: ResolvedBlock) -> Iterator[ResolvedOperation]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _all_operations(inner)
