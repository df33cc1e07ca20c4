"""What names of sizes mean in the types that a program's body writes, as those of the functions in it.

A name is that of a size of the parameters of the program it is written in. Where that program is inlined in another,
it stands for a size of the other one (``inlining.py``); and where two sizes are required to be equal, for the one name
that both have (``unification.py``). A name that no parameter has is *open*: what the program requires says which size
it is. As it may be another one wherever the program is inlined, each place has an open name of its own::

    def total(x: f64[d]):  go = fix(v: f64[d], ...)       d of go is d of x
    def twice(y: f64[k]):  total(y) + total(y[1:])          d of go is k, then max(0, k-1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from .dims import Dim, DimAtom, Name
from .types import Type, array_of, dims, element, is_data, map_dims


@dataclass(frozen=True)
class Place:
    """Where a program is inlined, and what its names stand for. Number 0 is the program that is built."""

    number: int
    sizes: Mapping[str, Dim]


class SizeNames:
    """The meaning of names in the program that is open. ``own`` are those of the parameters of the one that is built.

    ``solved`` says what names are, these and the open ones, as far as that is known.
    """

    def __init__(self, own: Collection[str] | None = None, solved: Mapping[str, Dim] = MappingProxyType({})) -> None:
        self.own, self.solved = own, solved
        self.place = Place(0, {})
        self.opened: dict[str, str] = {}  # open names, and what a message says of each
        self._places = 0

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """While the body of the program is open that is inlined at a place."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def inlined(self, sizes: Mapping[str, Dim]) -> AbstractContextManager[None]:
        """While the body of a program is inlined whose names stand for these sizes."""
        self._places += 1
        return self.at(Place(self._places, sizes))

    def type(self, type: Type, what: str) -> Type:
        """A type that the open program writes, in terms of the sizes of the one that is built.

        ``what`` has the type, for messages.
        """

        def meaning(atom: DimAtom) -> Dim | None:
            if not isinstance(atom, Name):
                return None
            if atom.name in self.place.sizes:
                return self.place.sizes[atom.name]
            name = f"{atom.name}'{self.place.number}" if self.place.number else atom.name
            if self.own is not None and name not in self.own:
                self.opened.setdefault(name, f"the size {atom.name} of {what}, of type {type},")
            return self.solved.get(name, Dim.atom(Name(name)))

        return map_dims(type, lambda dim: dim.substitute(meaning))


def with_own_sizes(type: Type, name: str) -> Type:
    """The type of an array, with fresh names for the sizes that the arguments of a call do not determine.

    Those of arrays inside of other values are determined.
    """
    if not is_data(type):
        return type
    sizes = [dim if dim.is_static() else Dim.atom(Name(f"{name}_{axis}")) for axis, dim in enumerate(dims(type))]
    return array_of(element(type), tuple(sizes))
