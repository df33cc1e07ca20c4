"""The words by which cells tell which variant they are of.

Of declared data a tag is the place of the variant: that is what leaves the program and enters it. Cells of functions
stay inside, and each of their variants has a tag that no other of the program has. So one that captures nothing but
another such cell needs no cell of its own: it *is* that cell, whose tags say so. Functions of reverse mode capture each
other in long chains, as each branch and each call gives a pullback:

    back = f(a, inner)    inner = g(more)    more = h() | k(back, x, y)

Here f and g are passed through, and what a step of the recursion keeps is one cell of k.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.types import Declaration, Named


class Closures(Declaration):
    """The declaration of the functions of a flow, each a variant of what it captures."""


@dataclass(frozen=True)
class Variant:
    """The tags of cells of a variant; ``is_field``: such a cell is its only field."""

    tags: tuple[int, ...]
    is_field: bool = False


class Tags:
    """The tags of one program."""

    def __init__(self) -> None:
        self._found: dict[Declaration, dict[str, Variant]] = {}
        self._open: set[Declaration] = set()
        self._count = 0

    def variants(self, named: Named) -> dict[str, Variant]:
        """What tells the variants of a type."""
        declaration = named.declaration
        if not isinstance(declaration, Closures):
            return {name: Variant((number,)) for number, name in enumerate(declaration.variants)}
        if declaration not in self._found:
            self._open.add(declaration)
            taken = set[int]()
            found = {name: self._variant(named, name, taken) for name in declaration.variants}
            self._open.remove(declaration)
            self._found[declaration] = found
        return self._found[declaration]

    def _variant(self, named: Named, name: str, taken: set[int]) -> Variant:
        fields = list(named.fields(name).values())
        if len(fields) == 1 and isinstance(fields[0], Named) and isinstance(fields[0].declaration, Closures):
            inner = fields[0]
            if inner.declaration not in self._open:
                tags = tuple([tag for each in self.variants(inner).values() for tag in each.tags])
                if taken.isdisjoint(tags):
                    taken.update(tags)
                    return Variant(tags, is_field=True)
        self._count += 1
        taken.add(self._count - 1)
        return Variant((self._count - 1,))
