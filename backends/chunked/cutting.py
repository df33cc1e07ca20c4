"""Which operations of a term go over the size that is cut, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...core.builder import Builder
from ...core.constructs import Role
from ...core.dims import Dim
from ...core.language import Unsupported
from ...core.source import Origin
from ...core.terms import Atom, Block, Operation, Size
from ...core.types import Accumulator, Type, all_dims, dims
from ...interpreters.embed import Embed, rebuilt

Language = Callable[[Builder, Dim], Embed]


def cut_axis(type: Type, size: Dim) -> int | None:
    """The axis of an array that is cut; None where none is."""
    return next((axis for axis, dim in enumerate(dims(type)) if dim == size), None)


def mentions(type: Type, size: Dim) -> bool:
    """Whether a type has the size in it, alone or in an expression."""
    names = size.names()
    return any(names & dim.names() for dim in all_dims(type))


def has_computed_size(type: Type) -> bool:
    """Whether a type has a size that only the run knows."""
    return not all(dim.is_static() for dim in all_dims(type))


def goes_over(operation: Operation, size: Dim) -> bool:
    """Whether a construct runs its first block for each index of the size, in any order that may be had."""
    extents = operation.row.iterations(operation) if operation.row.makes_elements else ()
    return any(isinstance(extent, Size) and extent.dim == size for extent in extents)


def partly_over(operation: Operation, size: Dim) -> Dim | None:
    """An extent of a construct in which the size occurs, and which is not the size itself."""
    extents = [extent.dim for extent in operation.row.iterations(operation) if isinstance(extent, Size)]
    return next((dim for dim in extents if dim != size and size.names() & dim.names()), None)


def _atoms(block: Block) -> Iterator[Atom]:
    for operation in block.bindings:
        yield from operation.args
    yield from block.results


def touches(operation: Operation, size: Dim) -> bool:
    """Whether an operation goes over the size, or has to do with arrays that are cut, at any depth."""
    if goes_over(operation, size) or any(mentions(atom.type, size) for atom in operation.args):
        return True
    return any(mentions(type, size) for type in operation.types) or any(
        block_touches(block, size) for block in operation.blocks
    )


def block_touches(block: Block, size: Dim) -> bool:
    """Whether anything in a block does."""
    return any(mentions(atom.type, size) for atom in _atoms(block)) or any(
        touches(operation, size) for operation in block.bindings
    )


def without(block: Block, size: Dim, unwanted: Callable[[Operation, Dim], bool], language: Language) -> Block:
    """The closed block as a language rebuilds it, until nothing unwanted is left outside of loops over the size."""
    while _holds(block, size, unwanted):
        block = rebuilt(block, lambda builder: language(builder, size))
    return block


def _holds(block: Block, size: Dim, unwanted: Callable[[Operation, Dim], bool]) -> bool:
    around = [operation for operation in block.bindings if not goes_over(operation, size)]
    return any(
        unwanted(operation, size) or any(_holds(inner, size, unwanted) for inner in operation.blocks)
        for operation in around
    )


def requires(operation: Operation) -> bool:
    """Whether there is a requirement in an operation, which must be checked even if nobody needs its results."""
    return operation.op == "require" or any(requires(inner) for block in operation.blocks for inner in block.bindings)


def writes(operation: Operation) -> bool:
    """Whether it updates accumulators of blocks around it."""
    free = [variable.type for block in operation.blocks for variable in block.free]
    return any(isinstance(type, Accumulator) for type in [*free, *[arg.type for arg in operation.args]])


def is_combination(operation: Operation, size: Dim) -> bool:
    """Whether it is a reduction over the size and nothing else, perhaps for each index of loops around it.

    No other combination stands before it in such a loop. An element at a place that no loop over the size has chosen is
    one, too: one chunk has it. To be asked of what stands in no loop over the size.
    """
    if operation.op == "index":
        return cut_axis(operation.args[0].type, size) is not None
    if goes_over(operation, size):
        return operation.row.combines and not operation.row.ordered
    whole = operation.types and not any(mentions(type, size) for type in operation.types)
    if operation.op == "accumulate":
        return bool(whole) and not operation.blocks[0].results and block_touches(operation.blocks[0], size)
    if operation.op != "generate" or not whole:
        return False
    return _gives_combination(operation.blocks[0], size)


def _gives_combination(block: Block, size: Dim) -> bool:
    """Whether a block of a loop or of a choice ends with a combination, which is what it gives, and has no other."""
    if not block.bindings or any(combines(each, size) for each in block.bindings[:-1]):
        return False
    last = block.bindings[-1]
    in_order = [getattr(result, "index", -1) for result in block.results] == [*range(len(last.types))][::-1]
    return in_order and (is_combination(last, size) or is_choice_of_combinations(last, size))


def is_choice_of_combinations(operation: Operation, size: Dim) -> bool:
    """Whether it is a choice in a loop, each branch of which gives a combination or has nothing to do with the size.

    All chunks choose alike, so two runs of chunks are combined as the branch that is taken says.
    """
    return operation.op == "cond" and all(
        _gives_combination(block, size) or not block_touches(block, size) for block in operation.blocks
    )


def first_combination(block: Block, size: Dim) -> int | None:
    """The place of the first combination in a block of a loop, or of the first choice that has one in a branch."""
    for place, operation in enumerate(block.bindings):
        in_branch = operation.op == "cond" and any(
            first_combination(branch, size) is not None for branch in operation.blocks
        )
        if in_branch or is_combination(operation, size):
            return place
    return None


def combines(operation: Operation, size: Dim) -> bool:
    """Whether it is such a combination, or has one inside that stands in no loop over the size."""
    if is_combination(operation, size):
        return True
    inside = () if goes_over(operation, size) else operation.blocks
    return any(combines(inner, size) for block in inside for inner in block.bindings)


def combinations(block: Block, size: Dim) -> list[int]:
    """The places of the combinations among the operations of a block."""
    return [place for place, operation in enumerate(block.bindings) if is_combination(operation, size)]


RUNNING = (
    "a running combination needs what all places before have given; write a reduction, or go chunk by chunk "
    "(write az.exp(az.sum(az.log(x))) for a product that is differentiated)"
)
WHOLE = "it needs whole arrays; a program over chunks computes places by themselves, and combines them"
INSTEAD = {
    "argsort": "sorting needs all places at once; a histogram or quantiles of one do not",
    "scatter": "a scatter writes to any place; az.histogram and accumulators combine what goes to one place",
    "loop": "its iterations run in order; a reduction, or az.map, has no order",
    "while": "its state is as long as the size; keep a state that is not, and compute the rest from it",
    "foreign": "a library operation needs its whole arguments",
    "cond": "its branches give results over the size and others; choose element by element",
    "generate": "a loop over the size inside of another one reads all pairs; only one of them can be cut",
    "operator": "the operator of a reduction reads it; let it read what is not cut",
    "choice": "its choices or loops need what all chunks give; write az.where(test, a, b) instead of a choice",
    "effects": "it adds to an accumulator before a reduction; add to it in a loop of its own",
    "choice of updates": (
        "it adds to what is as long as the size in a choice (or loop) that needs what all chunks give, as derivatives "
        "of such choices do; let both be computed and weigh them: "
        "w * a + (1.0 - w) * b with w = az.where(test, 1.0, 0.0)"
    ),
    "index": "in a loop over the size it has a place that is not the loop's own; shift the array beforehand",
}


def refused(what: str, size: Dim, origin: Origin, why: str) -> Unsupported:
    """What is raised where something cannot be cut: with the line, and what to write instead."""
    error = Unsupported(f"over={str(size)!r}: {what} cannot be cut: {why}")
    error.origin = origin
    return error


def refuse(operation: Operation, size: Dim, why: str = "") -> Unsupported:
    """What is raised for an operation that cannot be cut."""
    row = operation.row
    known = RUNNING if row.combines and row.ordered else INSTEAD.get(row.name, WHOLE)
    return refused(row.name, size, operation.origin, why or known)


def of_state(operation: Operation, size: Dim) -> Unsupported:
    """What is raised for a sequential loop whose state is cut."""
    return refuse(operation, size, INSTEAD["while"])


def runs_in_order(operation: Operation) -> bool:
    """Whether it is a sequential loop."""
    return Role.STEP in operation.row.roles
