"""Which arrays have to last as long as cells do.

A cell holds the address of an array, so the array must be as long as the call is: an argument of the program is, what a
cell held is, and anything else is copied to the region of cells. A procedure that keeps an array in a cell, or hands it
to one that does, is given one that lasts: so a matrix that a recursion passes along is copied once, where it comes in,
and not by each call that keeps it.

    along(tree, w) = case tree: Node(left, right): (.. cell of w, along(left, w), along(right, w))     along keeps w

A temporary that is kept, and not written to after that, is made where it lasts.
"""

from __future__ import annotations

from collections.abc import Sequence

from .expressions import Buffer
from .loops import Allocate, Block, For, Fork, Function, If, Invoke, While, walk
from .queries import written_in

Kept = tuple[frozenset[int], ...]


def kept(function: Function) -> Kept:
    """For each procedure of a function, the places of the arrays that it reads and keeps."""
    calls = [[each for each in walk(own.body) if isinstance(each, Invoke)] for own in (*function.procedures, function)]
    reads = {each.number: len(each.reads) for own in calls for each in own if each.kind in ("procedure", "jump")}
    places = [
        {
            buffer.name: k
            for each in own
            if each.kind == "take"
            for k, buffer in enumerate(each.enters[: reads.get(number)])
        }
        for number, own in enumerate(calls[:-1])
    ]
    found = [set[int]() for _ in places]
    changed = True
    while changed:
        changed = False
        for own, known, more in zip(calls, places, found, strict=False):
            names = {buffer.name for each in own for buffer in keeps(each, found)}
            new = {place for name, place in known.items() if name in names} - more
            more |= new
            changed = changed or bool(new)
    return tuple(map(frozenset, found))


def keeps(call: Invoke, kept: Sequence[frozenset[int] | set[int]]) -> tuple[Buffer, ...]:
    """The arrays that a call reads and that have to last, where procedures keep these."""
    match call.kind:
        case "cell":
            return call.reads
        case "procedure" | "jump":
            return tuple([buffer for place, buffer in enumerate(call.reads) if place in kept[call.number]])
    return ()


def made_to_last(block: Block, kept: Kept) -> frozenset[str]:
    """The temporaries, by name, that a block keeps whenever it makes them, and that nothing writes to after that."""
    found = set[str]()
    blocks = [block]
    while blocks:
        statements = blocks.pop()
        own = {each.buffer.name for each in statements if isinstance(each, Allocate)}
        for number, each in enumerate(statements):
            calls = [*each.body] if isinstance(each, Fork) else [each]
            names = own & {b.name for call in calls if isinstance(call, Invoke) for b in keeps(call, kept)}
            if names:
                found |= names - written_in(statements[number + 1 :])
                own -= names
            match each:
                case If(_, then, orelse):
                    blocks += [then, orelse]
                case For() | While():
                    blocks.append(each.body)
    return frozenset(found)
