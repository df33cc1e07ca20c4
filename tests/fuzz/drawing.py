"""Text that is drawn at random, as a tree of parts, and the names and sizes that it may use.

A :class:`Node` is a template with parts, so that shrinking can put another text in the place of a part. What a place
takes is its *sort*: a type ("f", "i" or "b") and sizes. A size has the text that computes it and the number that it
will be, or that it is at most: the arguments' shapes are drawn before the program. So sizes that are equal but have
different names can be mixed, and ``budget`` bounds the scalar operations that a run takes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

Sort = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Node:
    """A text with parts; ``{}`` in the template stands for a part."""

    sort: Sort
    template: str
    parts: tuple[Node, ...] = ()

    def __str__(self) -> str:
        pieces = self.template.split("{}")
        return pieces[0] + "".join(f"{part}{piece}" for part, piece in zip(self.parts, pieces[1:], strict=True))


@dataclass(frozen=True)
class Size:
    """A size as text, what it is in the call, and whether that is certain; else it is at most that."""

    text: str
    value: int
    known: bool = True


@dataclass(frozen=True)
class Name:
    """A value that may be used."""

    text: str
    type: str
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class Scope:
    """What may be used at a place, and how many scalar operations a run of it may take."""

    names: tuple[Name, ...] = ()
    indices: tuple[tuple[str, Size], ...] = ()
    budget: int = 1 << 15
    inner: bool = False  # inside of a loop: what is made there must have the same sizes in each iteration

    def with_name(self, text: str, type: str, sizes: tuple[Size, ...] = ()) -> Scope:
        return replace(self, names=(*self.names, Name(text, type, sizes)))

    def loop(self, size: Size, index: str = "") -> Scope:
        """The inside of a loop over a size, whose index has a name or none."""
        indices = (*self.indices, (index, size)) if index else self.indices
        return replace(self, indices=indices, budget=self.budget // max(1, size.value), inner=True)

    @property
    def sizes(self) -> list[Size]:
        found = {size.text: size for name in self.names for size in name.sizes}
        return list(found.values())


def texts(sizes: Sequence[Size]) -> tuple[str, ...]:
    return tuple([size.text for size in sizes])


def shape(sizes: Sequence[Size]) -> str:
    """Sizes as the argument of a combinator: ``n``, or ``(n, m)``."""
    return sizes[0].text if len(sizes) == 1 else f"({', '.join(texts(sizes))})"


def elements(sizes: Sequence[Size]) -> int:
    return math.prod(size.value for size in sizes)


@dataclass(frozen=True)
class Rule:
    """One way to make a value: for which types and ranks, and how often it is chosen."""

    make: Callable[..., Node | None]
    types: str
    ranks: range
    weight: int


def rule(types: str = "f", ranks: range = range(4), weight: int = 2) -> Callable[[Callable[..., Node | None]], Any]:
    """Enter a method ``(scope, type, sizes, depth) -> Node`` among the rules; it gives None where it does not apply."""

    def enter(make: Callable[..., Node | None]) -> Any:
        Writer.RULES.append(Rule(make, types, ranks, weight))
        return make

    return enter


@dataclass
class Writer:
    """Draws nodes. ``exact`` keeps to arithmetic that is exact on quarters of small integers."""

    random: random.Random
    exact: bool = False
    float: str = "az.f64"
    count: int = field(default=0)
    RULES: ClassVar[list[Rule]] = []

    # Choices

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.random.randrange(len(options))]

    def chance(self, often: int) -> bool:
        """True once in so many times."""
        return self.random.randrange(often) == 0

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def literal(self) -> str:
        quarters = self.random.randrange(-6, 7) / 4
        return str(quarters if self.exact or self.chance(2) else round(quarters + 0.0371, 4))

    # Values

    def node(self, type: str, sizes: Sequence[Size], template: str, *parts: Node) -> Node:
        return Node((type, texts(sizes)), template, parts)

    def value(self, scope: Scope, type: str, sizes: tuple[Size, ...] = (), depth: int = 0) -> Node:
        """A value of a type with these sizes; with more depth a larger one."""
        if depth > 0 and scope.budget > 4 * elements(sizes):
            half = replace(scope, budget=scope.budget // 2)
            rules = [rule for rule in self.RULES if type in rule.types and len(sizes) in rule.ranks]
            weights = [rule.weight for rule in rules]
            for chosen in self.random.choices(rules, weights, k=4) if rules else ():
                found = chosen.make(self, half, type, sizes, depth - 1)
                if found is not None:
                    return found
        return self.leaf(scope, type, sizes)

    def leaf(self, scope: Scope, type: str, sizes: tuple[Size, ...] = ()) -> Node:
        """A name, a part of a name, or a literal."""
        options = self.named(scope, type, sizes)
        inner = [text for text in options if not any(text == name.text for name in scope.names[:8])]
        if sizes:
            if not options or self.chance(6):
                options.append(self.parts_of_names(scope, type, sizes) or self.filled(scope, type, sizes))
        else:
            options.append(self.scalar(scope, type))
            part = self.parts_of_names(scope, type, sizes)
            options += [part] * 2 if part else []
        return self.node(type, sizes, self.one(options + inner))

    def named(self, scope: Scope, type: str, sizes: tuple[Size, ...]) -> list[str]:
        """Names of this type whose sizes have the same text; now and then only the same value."""
        wanted, mixed = texts(sizes), bool(sizes) and self.chance(5)
        found = []
        for name in scope.names:
            if name.type != type or len(name.sizes) != len(sizes):
                continue
            alike = all(a.known and b.known and a.value == b.value for a, b in zip(name.sizes, sizes, strict=True))
            if texts(name.sizes) == wanted or (mixed and alike):
                found.append(name.text)
        return found

    def parts_of_names(self, scope: Scope, type: str, sizes: tuple[Size, ...]) -> str:
        """An element, or a row, of a name with more axes."""
        rank, wanted = len(sizes), texts(sizes)
        names = [n for n in scope.names if n.type == type and len(n.sizes) > rank]
        names = [n for n in names if texts(n.sizes[len(n.sizes) - rank :]) == wanted]
        names = [n for n in names if all(size.value > 0 for size in n.sizes)]
        if not names:
            return ""
        name = self.one(names)
        return f"{name.text}[{', '.join(self.place(scope, size) for size in name.sizes[: len(name.sizes) - rank])}]"

    def filled(self, scope: Scope, type: str, sizes: tuple[Size, ...]) -> str:
        """An array of what is no array."""
        names = ", ".join(self.fresh("i") for _ in sizes)
        return f"az.generate({shape(sizes)}, lambda {names}: {self.typed_literal(type)})"

    def typed_literal(self, type: str) -> str:
        if type == "f":
            return f"az.array({self.literal()}, {self.float})"
        return str(self.random.randrange(4)) if type == "i" else "True"

    def scalar(self, scope: Scope, type: str) -> str:
        if type == "f":
            return self.typed_literal("f")
        indices = [name for name, _ in scope.indices]
        if type == "i":
            counts = [size.text for size in scope.sizes] or ["2"]
            return str(self.one([str(self.random.randrange(-2, 6)), self.one(counts), *indices, *indices]))
        if indices and self.chance(2):
            return f"({self.one(indices)} {self.one(['<', '==', '!=', '>='])} {self.random.randrange(4)})"
        return self.of_sizes(scope)

    def of_sizes(self, scope: Scope) -> str:
        """A test that sizes decide."""
        sizes = scope.sizes
        if not sizes:
            return "(2 > 1)"
        first, second = self.one(sizes), self.one([size.text for size in sizes] + ["0", "1", "2", "7", "33"])
        form = self.one(["({0} {2} {1})", "({0} {2} {1})", "({0} % 2 == 0)", "({0} + {1} > 40)", "(2 * {0} >= {1})"])
        return str(form.format(first.text, second, self.one(["<", "<=", "==", "!=", ">", ">="])))

    # Places

    def place(self, scope: Scope, size: Size) -> str:
        """An index into an axis: in range if the axis is not empty, but for one in thirty."""
        own = [name for name, bound in scope.indices if bound.text == size.text or self.same(bound, size)]
        options = ["0", "-1", f"{size.text} - 1", f"{size.text} // 2", *own, *own]
        options += [f"{size.text} - 1 - {name}" for name in own]
        number = self.one([*self.named(scope, "i", ()), *[name for name, _ in scope.indices]] or ["1"])
        options += [f"az.clip({number}, 0, {size.text} - 1)", f"({number} + 1) % {size.text}"]
        options += [f"az.minimum(az.maximum({number} - 1, 0), {size.text} - 1)"]
        if own:
            moved = self.moved(self.one(own), number)
            options += [f"az.clip({moved}, 0, {size.text} - 1)", f"({moved}) % {size.text}"] * 2
        if self.chance(30):
            options = [number, f"{number} - 1", "-2", "2"]
        return str(self.one(options))

    def moved(self, index: str, number: str) -> str:
        """A loop variable moved by what is fixed, or by what varies, with it or otherwise."""
        fixed, varying = str(self.random.randrange(-3, 4)), [f"{index} % 3", f"{index} // 2", f"(3 * {number} - 4)"]
        by = self.one([fixed, number, *varying])
        return str(self.one([f"{index} + {by}", f"{index} - {by}", f"{by} - {index}"]))

    @staticmethod
    def same(first: Size, second: Size) -> bool:
        return first.known and second.known and first.value == second.value

    def another(self, scope: Scope, most: int) -> Size:
        """A size of some axis in scope, or a small number, that is at most so large."""
        sizes = [size for size in scope.sizes if size.value <= most]
        small = [Size(str(k), k) for k in (1, 2, 3, 5) if k <= most] or [Size("1", 1)]
        return self.one(sizes) if sizes and not self.chance(4) else self.one(small)
