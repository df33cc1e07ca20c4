"""Names for what a printed program binds: the user's own where there is one, never one that means something else here.

A name is taken in a scope and free again after it. Values without a name of their own are ``t1``, ``t2``...; indices
are ``i``, ``j``, ``k``...; an element of an array ``points`` is ``p``.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .resolved import Bound

_INDICES = ("i", "j", "k", "l", "p", "q", "r")
_ELEMENTS = ("v", "w", "u", "z")


class Names:
    """The names in use."""

    def __init__(self, reserved: set[str]) -> None:
        self.taken = set(reserved)
        self.scoped: list[tuple[str, str, int]] = []  # the names taken, in order, with their hints and numbers
        self.first: dict[str, int] = {}  # the numbers below this are taken for a hint
        self.count = 0

    def free(self, hint: str) -> str:
        """A name like the hint that means nothing else here."""
        number = self.first.get(hint, 1)
        while (name := _numbered(hint, number)) in self.taken or keyword.iskeyword(name):
            number += 1
        self.first[hint] = number + 1
        return self.take(name, hint, number)

    def take(self, name: str, hint: str = "", number: int = 1) -> str:
        self.taken.add(name)
        self.scoped.append((name, hint, number))
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        outer = len(self.scoped)
        try:
            yield
        finally:
            for name, hint, number in self.scoped[outer:]:
                self.taken.discard(name)
                self.first[hint] = min(number, self.first.get(hint, number))
            del self.scoped[outer:]

    # Values

    def bind(self, value: Bound) -> str:
        if is_name(value.hint):
            value.text = self.free(value.hint)
        else:
            self.count += 1
            value.text = self.free(f"t{self.count}")
        return value.text

    def bind_index(self, value: Bound) -> str:
        return self._choose(value, _INDICES)

    def bind_element(self, value: Bound, array: str) -> str:
        """An element of an array with this text: its first letter, where the array has a name of several."""
        initial = [array[0].lower()] if len(array) > 2 and array.isalpha() else []
        return self._choose(value, [*initial, *_ELEMENTS])

    def _choose(self, value: Bound, others: Sequence[str]) -> str:
        choices = [value.hint, *others] if is_name(value.hint) else [*others]
        chosen = next((name for name in choices if name not in self.taken and not keyword.iskeyword(name)), None)
        value.text = self.free(others[0]) if chosen is None else self.take(chosen)
        return value.text


def _numbered(hint: str, number: int) -> str:
    if number == 1:
        return hint
    return f"{hint}_{number}" if hint[-1].isdigit() else f"{hint}{number}"


def is_name(hint: str) -> bool:
    return hint.isidentifier() and not hint.startswith("_")
