"""Amounts: polynomials in the sizes of a program, with which costs are counted without running it.

The idea: a loop costs the sum of what its iterations cost, and what one iteration costs is a polynomial in its index.
Sums of powers have closed forms, so the sum is a polynomial again, now in the extent:

    for i < n: for j < i: one multiplication        i multiplications an iteration; n^2/2 - n/2 in all

An atom of an amount is one of a dim (``core/dims.py``), or the number of rounds in which ``n`` values are combined,
``log2(n)``, rounded up. Where there is no closed form (a maximum that mentions the index) an upper bound takes its
place: the largest value over the loop, or, of two amounts, the larger coefficient of each monomial.

>>> i, n = Opaque(0), Dim.of("n")
>>> inner = Amount.of(Dim.atom(i))
>>> inner.sum(i, n), inner.highest(i, n), (inner * inner).sum(i, n)
(n^2/2 - n/2, n - 1, n^3/3 - n^2/2 + n/6)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Union

from ...core.dims import Compound, Dim, DimAtom, Name, Opaque


@dataclass(frozen=True)
class Log2:
    """The binary logarithm of an amount, rounded up; 0 for amounts below 1."""

    of: Amount

    def __str__(self) -> str:
        return f"log2({self.of})"


Atom = DimAtom | Log2
Monomial = tuple[Atom, ...]
AmountLike = Union["Amount", int]
Number = Union[int, "Amount"]


class Amount:
    """A polynomial with rational coefficients over atoms that are not negative. Immutable and hashable."""

    __slots__ = ("terms",)
    terms: tuple[tuple[Monomial, Fraction], ...]

    def __init__(self, terms: Mapping[Monomial, Fraction]) -> None:
        kept = [(monomial, c) for monomial, c in terms.items() if c]
        self.terms = tuple(sorted(kept, key=lambda term: (-len(term[0]), tuple(map(str, term[0])))))

    @staticmethod
    def of(value: Dim | Amount | int) -> Amount:
        if isinstance(value, int):
            return Amount({(): Fraction(value)})
        return Amount({monomial: Fraction(c) for monomial, c in value.terms})

    @staticmethod
    def atom(atom: Atom) -> Amount:
        return Amount({(atom,): Fraction(1)})

    def __hash__(self) -> int:
        return hash(self.terms)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            other = Amount.of(other)
        return isinstance(other, Amount) and self.terms == other.terms

    # Arithmetic

    def __add__(self, other: AmountLike) -> Amount:
        terms = dict(self.terms)
        for monomial, c in Amount.of(other).terms:
            terms[monomial] = terms.get(monomial, Fraction(0)) + c
        return Amount(terms)

    def __mul__(self, other: AmountLike | Fraction) -> Amount:
        if isinstance(other, Fraction):
            return Amount({monomial: c * other for monomial, c in self.terms})
        terms: dict[Monomial, Fraction] = {}
        for a, ca in self.terms:
            for b, cb in Amount.of(other).terms:
                monomial = tuple(sorted(a + b, key=str))
                terms[monomial] = terms.get(monomial, Fraction(0)) + ca * cb
        return Amount(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __sub__(self, other: AmountLike) -> Amount:
        return self + Amount.of(other) * -1

    def __pow__(self, exponent: int) -> Amount:
        return math.prod([self] * exponent, start=Amount.of(1))

    def join(self, other: AmountLike) -> Amount:
        """An upper bound of two amounts: of each monomial, the larger coefficient."""
        first, second = dict(self.terms), dict(Amount.of(other).terms)
        return Amount({m: max(first.get(m, Fraction(0)), second.get(m, Fraction(0))) for m in first | second})

    # Loops

    def sum(self, index: Opaque, extent: Dim) -> Amount:
        """The sum over an index from 0 to an extent: exact for polynomials in the index, else an upper bound."""
        count, total = Amount.of(extent), Amount.of(0)
        for monomial, c in self.terms:
            power = monomial.count(index)
            others = [atom for atom in monomial if atom != index]
            if c < 0 and any(_mentions(atom, index) for atom in others):
                continue
            factor = math.prod([_highest(atom, index, extent) for atom in others], start=Amount({(): c}))
            total += factor * _power_sum(power, count)
        return total

    def highest(self, index: Opaque, extent: Dim) -> Amount:
        """An upper bound over all values of an index from 0 to an extent."""
        total = Amount.of(0)
        for monomial, c in self.terms:
            if c > 0 or not any(_mentions(atom, index) for atom in monomial):
                total += math.prod([_highest(atom, index, extent) for atom in monomial], start=Amount({(): c}))
        return total

    # Values

    def named(self, names: Mapping[int, str]) -> Amount:
        """The amount with names, all different, for opaque sizes."""

        def named(atom: Atom) -> Atom:
            return Log2(atom.of.named(names)) if isinstance(atom, Log2) else _named(atom, names)

        return Amount({tuple(sorted(map(named, monomial), key=str)): c for monomial, c in self.terms})

    def with_rounds(self, rounds: int) -> Amount:
        """The polynomial that has a number for each logarithm."""
        total = Amount.of(0)
        for monomial, c in self.terms:
            factors = [rounds if isinstance(atom, Log2) else Amount.atom(atom) for atom in monomial]
            total += math.prod(factors, start=Amount({(): c}))
        return total

    def names(self) -> set[str]:
        """The names of sizes that occur."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= atom.of.names() if isinstance(atom, Log2) else Dim.atom(atom).names()
        return found

    def opaque(self) -> list[int]:
        """The numbers of the opaque sizes that occur."""
        found: set[int] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found.update(atom.of.opaque() if isinstance(atom, Log2) else _opaque(Dim.atom(atom)))
        return sorted(found)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The integer for given sizes (rounded up where it is an upper bound); KeyError when one is missing."""
        total = Fraction(0)
        for monomial, product in self.terms:
            for atom in monomial:
                product *= rounds(atom.of.evaluate(sizes)) if isinstance(atom, Log2) else Dim.atom(atom).evaluate(sizes)
            total += product
        return math.ceil(total)

    def __str__(self) -> str:
        text = ""
        for monomial, c in self.terms:
            sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
            text += sign + _text(monomial, abs(c))
        return text or "0"

    __repr__ = __str__


def log2(value: Number) -> Number:
    """The rounds in which so many values are combined."""
    if isinstance(value, Amount):
        if any(monomial for monomial, _ in value.terms):
            return Amount.atom(Log2(value))
        value = value.evaluate({})
    return rounds(value)


def rounds(count: int) -> int:
    return max(count - 1, 0).bit_length()


def larger(a: Number, b: Number) -> Number:
    """The larger of two numbers, or an upper bound of two amounts."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else Amount.of(a).join(b)


def largest(numbers: Iterable[Number]) -> Number:
    """The largest of some numbers that are not negative, or an upper bound; 0 when there are none."""
    highest: Number = 0
    for number in numbers:
        highest = larger(highest, number)
    return highest


def _power_sum(power: int, count: Amount) -> Amount:
    """``0**power + 1**power + ... + (count - 1)**power``, from the differences of the powers one higher."""
    total = count ** (power + 1)
    for k in range(power):
        total -= _power_sum(k, count) * math.comb(power + 1, k)
    return total * Fraction(1, power + 1)


def _mentions(atom: Atom, index: Opaque) -> bool:
    return index.number in Amount.atom(atom).opaque()


def _highest(atom: Atom, index: Opaque, extent: Dim) -> Amount:
    """An upper bound of an atom."""
    if not _mentions(atom, index):
        return Amount.atom(atom)
    if isinstance(atom, Log2):
        return Amount.of(log2(atom.of.highest(index, extent)))
    return Amount.of(_highest_dim(Dim.atom(atom), index, extent))


def _highest_dim(dim: Dim, index: Opaque, extent: Dim) -> Dim:
    total = Dim({})
    for monomial, c in dim.terms:
        if c < 0 and any(_mentions(atom, index) for atom in monomial):
            continue
        product = Dim.of(c)
        for atom in monomial:
            match atom:
                case Compound(operator, left, right) if _mentions(atom, index):
                    a, b = _highest_dim(left, index, extent), _highest_dim(right, index, extent)
                    if operator == "//":
                        product *= a // right if index.number not in _opaque(right) else a
                    else:
                        product *= a.minimum(b) if operator == "min" else a.maximum(b)
                case _:
                    product *= extent - 1 if atom == index else Dim.atom(atom)
        total += product
    return total


def _opaque(dim: Dim) -> set[int]:
    return {atom.number for atom in dim.atoms() if isinstance(atom, Opaque)}


def _named(atom: DimAtom, names: Mapping[int, str]) -> DimAtom:
    match atom:
        case Opaque(number):
            return Name(names[number])
        case Compound(operator, left, right):
            return Compound(operator, _named_dim(left, names), _named_dim(right, names))
    return atom


def _named_dim(dim: Dim, names: Mapping[int, str]) -> Dim:
    """The dim with names; nothing is simplified again, for a name may be of a negative number."""
    return Dim({tuple(sorted([_named(atom, names) for atom in monomial], key=str)): c for monomial, c in dim.terms})


def _text(monomial: Monomial, c: Fraction) -> str:
    factors = []
    for atom, equal in groupby(sorted(monomial, key=lambda atom: (not isinstance(atom, Name), str(atom)))):
        text = f"({atom})" if isinstance(atom, Compound) and atom.operator == "//" else str(atom)
        power = len(list(equal))
        factors.append(text if power == 1 else f"{text}^{power}")
    body = " ".join(factors if c.numerator == 1 and factors else [str(c.numerator), *factors])
    return body if c.denominator == 1 else f"{body}/{c.denominator}"
