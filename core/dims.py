"""Sizes of arrays as normalised integer expressions.

A *dim* is a polynomial with integer coefficients over atoms: a size name (``n``), an opaque size (the value of
an integer variable of the program), or a quotient, minimum or maximum of two dims. Polynomials have a normal
form, so two sizes are equal when their normal forms are, provably different when their difference cannot be
zero for any sizes, and undecided otherwise.

>>> Dim.parse("d*(d-1)//2")
d*(d-1)//2
>>> Dim.parse("n + m + 1") - Dim.parse("m + n")
1
>>> Dim.parse("2*n").compare(Dim.parse("n + n")), Dim.parse("n + 1").compare(Dim.parse("n"))
(True, False)
>>> Dim.parse("n").compare(Dim.parse("m")) is None
True
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Union

from .source import at_line

DimLike = Union["Dim", int, str]

_KEPT = 1 << 14  # answers that are kept, of each of the questions that passes ask most


@dataclass(frozen=True)
class Name:
    """A named size, bound by the arguments of a call."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Opaque:
    """The value of an integer variable, known by its number only."""

    number: int

    def __str__(self) -> str:
        return f"?{self.number}"


@dataclass(frozen=True)
class Compound:
    """``left // right``, ``min(left, right)`` or ``max(left, right)`` of two dims that do not simplify."""

    operator: str
    left: Dim
    right: Dim

    def evaluate(self, sizes: Mapping[str, int], wraps: bool) -> int:
        left, right = self.left.evaluate(sizes, wraps), self.right.evaluate(sizes, wraps)
        if self.operator == "//":
            return left // right
        return min(left, right) if self.operator == "min" else max(left, right)

    def __str__(self) -> str:
        return self._text

    @cached_property  # atoms are sorted by their text, and a size inside a size inside a size has a long one
    def _text(self) -> str:
        if self.operator == "//":
            return f"{self.left.factor_text()}//{self.right.factor_text(tight=True)}"
        return f"{self.operator}({self.left}, {self.right})"


DimAtom = Name | Opaque | Compound
Monomial = tuple[DimAtom, ...]


class Dim:
    """An integer polynomial over dim atoms, in normal form. Immutable and hashable.

    The normal form is a sum of sorted monomials, the longest first.
    """

    __slots__ = ("_hash", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [(monomial, c) for monomial, c in terms.items() if c]
        if len(kept) > 1:
            kept.sort(key=lambda term: (-len(term[0]), tuple(map(str, term[0]))))
        self.terms = tuple(kept)
        self._hash = hash(self.terms)

    # Constructors

    @staticmethod
    def of(value: DimLike) -> Dim:
        """The dim of an integer, of a size expression as text, or of a dim."""
        if isinstance(value, Dim):
            return value
        if isinstance(value, int):
            return Dim({(): value})
        return Dim.parse(value)

    @staticmethod
    def atom(atom: DimAtom) -> Dim:
        return Dim({(atom,): 1})

    @staticmethod
    def parse(text: str) -> Dim:
        """Read a size expression: names, integers, ``+ - * //``, ``min`` and ``max``.

        Raises ValueError when the text is something else.
        """
        try:
            return _from_syntax(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{text!r} is not a size: write names, integers, + - * //, min and max") from error

    # Identity

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __reduce__(self) -> tuple[Callable[..., Dim], tuple[dict[Monomial, int]]]:
        return Dim, (dict(self.terms),)

    # Arithmetic

    def __add__(self, other: DimLike) -> Dim:
        added = Dim.of(other)
        if not self.terms or not added.terms:
            return self if self.terms else added
        terms = dict(self.terms)
        for monomial, c in added.terms:
            terms[monomial] = terms.get(monomial, 0) + c
        return Dim(terms)

    def __neg__(self) -> Dim:
        return Dim({monomial: -c for monomial, c in self.terms})

    def __sub__(self, other: DimLike) -> Dim:
        return self + (-Dim.of(other))

    def __mul__(self, other: DimLike) -> Dim:
        terms: dict[Monomial, int] = {}
        factor = Dim.of(other)
        for a, ca in self.terms:
            for b, cb in factor.terms:
                monomial = tuple(sorted(a + b, key=str)) if a and b else a or b
                terms[monomial] = terms.get(monomial, 0) + ca * cb
        return Dim(terms)

    def __floordiv__(self, other: DimLike) -> Dim:
        divisor = Dim.of(other)
        if divisor.constant and self.constant is not None:
            return Dim.of(self.constant // divisor.constant)
        if divisor.constant is not None and divisor.constant > 0:
            if all(c % divisor.constant == 0 for _, c in self.terms):
                return Dim({monomial: c // divisor.constant for monomial, c in self.terms})
        return Dim.atom(Compound("//", self, divisor))

    def quotient(self, divisor: Dim) -> Dim | None:
        """What times a divisor of one term is this dim; None where that is no dim, or the divisor has more terms.

        >>> Dim.parse("h*w*z").quotient(Dim.parse("w*z")), Dim.parse("h*w + 1").quotient(Dim.parse("w"))
        (h, None)
        """
        if len(divisor.terms) != 1:
            return Dim.of(1) if self == divisor and self.terms else None
        [(factors, factor)], found = divisor.terms, dict[Monomial, int]()
        for monomial, c in self.terms:
            left = Counter(monomial)
            left.subtract(factors)
            if c % factor or min(left.values(), default=0) < 0:
                return None
            found[tuple(sorted(left.elements(), key=str))] = c // factor
        return Dim(found)

    def minimum(self, other: DimLike) -> Dim:
        return self._extremum("min", Dim.of(other))

    def maximum(self, other: DimLike) -> Dim:
        return self._extremum("max", Dim.of(other))

    def _extremum(self, operator: str, other: Dim) -> Dim:
        if (self - other).is_nonnegative():
            return other if operator == "min" else self
        if (other - self).is_nonnegative():
            return self if operator == "min" else other
        for one, rest in ((self, other), (other, self)):
            inner = one._without_dominated(operator, rest)
            if inner is not None:
                return inner._extremum(operator, rest)
        first, second = sorted((self, other), key=str)
        return Dim.atom(Compound(operator, first, second))

    def _without_dominated(self, operator: str, other: Dim) -> Dim | None:
        """One side of an extremum in this dim, where the other side is never the extremum of it and ``other``.

        >>> n = Dim.of("n")
        >>> ((n - 1).maximum(0) - 1).maximum(0), ((n - 1).maximum(0) - 1).maximum(-2)
        (max(0, n - 2), max(0, n - 1) - 1)
        """
        for monomial, c in self.terms:
            match monomial, c:
                case ((Compound(inner, left, right),), 1) if inner == operator:
                    rest = Dim({m: k for m, k in self.terms if m is not monomial})
                    for side, kept in ((left, right), (right, left)):
                        above = other - side - rest
                        if (above if operator == "max" else -above).is_nonnegative():
                            return kept + rest
        return None

    # Questions

    @property
    def constant(self) -> int | None:
        """The integer that this dim is, or None when it depends on a name."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms[0][0] == () else None

    def is_nonnegative(self, depth: int = 4) -> bool:
        """Provably at least zero, since the sizes of a call are; an opaque size may be any integer.

        A minimum or maximum is one of its two operands, and at most or at least the other one; d times ``n // d`` is
        n, or up to d - 1 less, where n is a sum of sizes: any other integer may have wrapped around. So many of them
        are looked into as ``depth`` says.

        >>> n, k = Dim.of("n"), Dim.atom(Opaque(1))
        >>> (n - n // 2 * 2).is_nonnegative(), ((n + 1) // 2 - n // 2).is_nonnegative()
        (True, True)
        >>> ((k + 1) // 2 - k // 2).is_nonnegative()
        False
        """
        return _is_nonnegative(self, depth)

    def fits(self, bits: int = 63) -> bool:
        """Whether all integers in it are those of so many bits and a sign.

        >>> Dim.of(2**63 - 1).fits(), Dim.parse("n - min(n, 9223372036854775808)").fits()
        (True, False)
        """
        parts = [part for monomial, _ in self.terms for atom in monomial for part in parts_of(atom)]
        return all(abs(c) < 1 << bits for _, c in self.terms) and all(part.fits(bits) for part in parts)

    def compare(self, other: Dim) -> bool | None:
        """True when equal, False when different for all sizes, None when it depends on the sizes."""
        difference = (self - other)._with_maxima()
        if not difference.terms:
            return True
        signs = {c > 0 for _, c in difference.terms}
        has_constant = difference.terms[-1][0] == ()
        return False if has_constant and len(signs) == 1 else None

    def _with_maxima(self) -> Dim:
        """Minima written as ``a + b - max(a, b)`` and constants taken out of maxima, which makes more dims equal.

        >>> Dim.parse("n - min(1, n)").compare(Dim.parse("max(n - 1, 0)"))
        True
        """
        total = Dim({})
        for monomial, c in self.terms:
            product = Dim.of(c)
            for atom in monomial:
                match atom:
                    case Compound(("min" | "max") as operator, left, right):
                        a, b = left._with_maxima(), right._with_maxima()
                        shift = min(a._constant_term, b._constant_term)
                        first, second = sorted((a - shift, b - shift), key=str)
                        highest = Dim.atom(Compound("max", first, second)) + shift
                        product *= highest if operator == "max" else a + b - highest
                    case _:
                        product *= Dim.atom(atom)
            total += product
        return total

    @property
    def _constant_term(self) -> int:
        return self.terms[-1][1] if self.terms and self.terms[-1][0] == () else 0

    def atoms(self) -> set[DimAtom]:
        """Every name and opaque size that occurs, inside quotients and extrema too."""
        found: set[DimAtom] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Compound):
                    found |= atom.left.atoms() | atom.right.atoms()
                else:
                    found.add(atom)
        return found

    def names(self) -> set[str]:
        return {atom.name for atom in self.atoms() if isinstance(atom, Name)}

    def is_static(self) -> bool:
        """Whether the sizes of a call alone determine it: no opaque size occurs."""
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Opaque):
                    return False
                if isinstance(atom, Compound) and not (atom.left.is_static() and atom.right.is_static()):
                    return False
        return True

    def substitute(self, meaning: Callable[[DimAtom], Dim | None]) -> Dim:
        """Replace names and opaque sizes for which ``meaning`` gives a dim."""
        total = Dim({})
        for monomial, c in self.terms:
            product = Dim.of(c)
            for atom in monomial:
                if isinstance(atom, Compound):
                    product *= _combine(atom.operator, atom.left.substitute(meaning), atom.right.substitute(meaning))
                else:
                    found = meaning(atom)
                    product *= Dim.atom(atom) if found is None else found
            total += product
        return total

    def evaluate(self, sizes: Mapping[str, int], wraps: bool = False) -> int:
        """The integer for given sizes of the names; KeyError when one is missing, as it is for an opaque size.

        It is that of i64 arithmetic, where sums and products wrap around, or of the integers. Raises ZeroDivisionError
        when a divisor is zero.

        >>> Dim.parse("(n*n + 1) // 3").evaluate({"n": 1 << 32}, wraps=True)
        0
        """
        total = 0
        for monomial, product in self.terms:
            for atom in monomial:
                product *= atom.evaluate(sizes, wraps) if isinstance(atom, Compound) else sizes[str(atom)]
            total += product
        return (total + (1 << 63)) % (1 << 64) - (1 << 63) if wraps else total

    def number(self, sizes: Mapping[str, int]) -> int:
        """The size of an array; OverflowError, with the user's line, where it does not fit i64."""
        value = self.evaluate(sizes)
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(at_line(f"a size of {self}, which is {value}, does not fit i64"))
        return value

    # Text

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, c in sorted(self.terms, key=lambda term: term[1] < 0):
            alone = len(monomial) == 1 and c == 1
            body = "*".join([str(atom) if alone else _factor(atom) for atom in monomial])
            magnitude = abs(c)
            if body and magnitude != 1:
                body = f"{magnitude}*{body}"
            text += (("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")) + (body or str(magnitude))
        return text

    __repr__ = __str__

    def factor_text(self, tight: bool = False) -> str:
        """The text to stand beside an operator; a common atom is shown in front: ``d*(d-1)``."""
        single = len(self.terms) <= 1 and "//" not in str(self)
        if single and not (tight and "*" in str(self)):
            return str(self)
        shared = set(self.terms[0][0]).intersection(*(monomial for monomial, _ in self.terms))
        if len(self.terms) > 1 and shared and not tight:
            front = min(shared, key=str)
            rest = Dim({_without(monomial, front): c for monomial, c in self.terms})
            return f"{front}*({str(rest).replace(' ', '')})"
        return f"({str(self).replace(' ', '')})"


def _factor(atom: DimAtom) -> str:
    return f"({atom})" if isinstance(atom, Compound) and atom.operator == "//" else str(atom)


@lru_cache(maxsize=_KEPT)
def _is_nonnegative(dim: Dim, depth: int) -> bool:
    """What a dim says of itself, kept: passes ask it of the same sizes again and again."""
    if all(c >= 0 and all(map(_atom_is_nonnegative, monomial)) for monomial, c in dim.terms):
        return True
    quotients: list[tuple[int, Dim, Dim, int]] = []
    for monomial, c in dim.terms if depth else ():
        match monomial:
            case (Compound(operator, left, right),):
                rest = Dim({m: k for m, k in dim.terms if m is not monomial})
                if operator in ("min", "max"):
                    either = ((rest + side * c).is_nonnegative(depth - 1) for side in (left, right))
                    return any(either) if (c > 0) == (operator == "max") else all(either)
                if operator == "//" and (right.constant or 0) > 0 and left.is_static():
                    quotients.append((c, rest, left, right.constant or 1))
    if not quotients:
        return False
    c, rest, left, d = min(quotients, key=lambda quotient: quotient[0])
    return times_divisor(rest, c, left, Dim.of(d)).is_nonnegative(depth - 1)


def times_divisor(rest: Dim, c: int, number: Dim, divisor: Dim) -> Dim:
    """A dim without a quotient that is at least zero only where ``rest + c * (number // divisor)`` is.

    Were that negative, it would be -1 at most, and so many times as much as the divisor says that divisor, negative, at
    most. Of a division by 0 nothing is said, which is refused elsewhere.
    """
    return rest * divisor + number * c + (divisor - 1) * min(1, 1 - c)


def _atom_is_nonnegative(atom: DimAtom) -> bool:
    match atom:
        case Compound("max", left, right):
            return left.is_nonnegative() or right.is_nonnegative()
        case Compound(_, left, right):
            return left.is_nonnegative() and right.is_nonnegative()
    return isinstance(atom, Name)


def _without(monomial: Monomial, atom: DimAtom) -> Monomial:
    position = monomial.index(atom)
    return monomial[:position] + monomial[position + 1 :]


def _combine(operator: str, left: Dim, right: Dim) -> Dim:
    if operator == "//":
        return left // right
    return left.minimum(right) if operator == "min" else left.maximum(right)


def _from_syntax(node: ast.expr) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Dim.of(value)
        case ast.Name(id=name):
            return Dim.atom(Name(name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_syntax(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = _from_syntax(left), _from_syntax(right)
            match operator:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
        case ast.Call(func=ast.Name(id=("min" | "max") as operator), args=[left, right], keywords=[]):
            return _combine(operator, _from_syntax(left), _from_syntax(right))
    raise ValueError(ast.dump(node))


# The integer primitives that have a meaning on dims, how long a polynomial is worth keeping, and how many terms it may
# have with those inside of its atoms.
_ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "minimum": lambda a, b: a.minimum(b),
    "maximum": lambda a, b: a.maximum(b),
}
_LARGEST = 24
_DEEPEST = 64


def arithmetic(primitive: str, operands: Sequence[Dim | None]) -> Dim | None:
    """The dim that an integer primitive makes of dims; None when it makes none that is worth keeping."""
    if primitive == "negative":
        primitive, operands = "subtract", (Dim.of(0), *operands)
    if len(operands) != 2 or operands[0] is None or operands[1] is None:
        return None
    return _arithmetic(primitive, operands[0], operands[1])


@lru_cache(maxsize=_KEPT)
def _arithmetic(primitive: str, a: Dim, b: Dim) -> Dim | None:
    """The same for two dims, kept, too."""
    if primitive == "floor_divide" and (b.constant or 0) > 0:
        result = a // b
    elif primitive in _ARITHMETIC:
        result = _ARITHMETIC[primitive](a, b)
    else:
        return None
    short = len(result.terms) <= _LARGEST and _all_terms(result) <= _DEEPEST
    return result if short and all(abs(c) < 1 << 62 for _, c in result.terms) else None


def _all_terms(dim: Dim) -> int:
    """The number of a dim's terms, those of the dims inside of its atoms included."""
    parts = [part for monomial, _ in dim.terms for atom in monomial for part in parts_of(atom)]
    return len(dim.terms) + sum(map(_all_terms, parts))


def parts_of(atom: DimAtom) -> tuple[Dim, ...]:
    """The operands of a quotient, a minimum or a maximum; a size has none."""
    return (atom.left, atom.right) if isinstance(atom, Compound) else ()
