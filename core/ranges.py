"""Ranges of dims: the least and greatest values that they may have in loops, and what follows for indices.

A dim is replaced by what it is at worst, variable by variable, until nothing is left in it that a loop varies::

    for i < n: x[n - 1 - i]        n - 1 - i is at least n - 1 - (n - 1) = 0, so it is never negative
"""

from __future__ import annotations

from collections.abc import Callable

from .dims import Compound, Dim, DimAtom, Opaque, times_divisor


def bounds(dim: Dim, extents: Callable[[DimAtom], Dim | None]) -> tuple[Dim, Dim] | None:
    """The least and greatest value of a dim, for loop variables between 0 and their extent (exclusive).

    ``extents`` gives the extent of an atom that is a loop variable, None for every other atom. None when the dim is
    not linear in the loop variables.
    """
    lowest, highest = Dim({}), Dim({})
    for monomial, c in dim.terms:
        ranges = [extents(atom) for atom in monomial]
        if all(extent is None for extent in ranges):
            lowest += Dim({monomial: c})
            highest += Dim({monomial: c})
        elif len(monomial) == 1 and ranges[0] is not None:
            last = (positive(ranges[0]) - 1) * c
            if c > 0:
                highest += last
            else:
                lowest += last
        else:
            return None
    return lowest, highest


def index_in_range(index: Dim, size: Dim, extents: Callable[[DimAtom], Dim | None]) -> bool:
    """Whether ``0 <= index < size`` is proved, for loop variables in their range (see :func:`bounds`)."""
    return never_negative(index, extents) and never_negative(size - 1 - index, extents)


def never_negative(dim: Dim, extents: Callable[[DimAtom], Dim | None]) -> bool:
    """Whether a dim is proved to be at least zero, for loop variables in their range.

    Variables are replaced by their worst values one by one, inner ones first: those whose extent no other mentions.
    Quotients of variables are multiplied by what divides them.

    >>> i, j, n = Dim.atom(Opaque(1)), Dim.atom(Opaque(2)), Dim.of("n")
    >>> extents = {Opaque(1): n, Opaque(2): i}  # for i < n: for j < i
    >>> never_negative(n - 2 - j, extents.get)
    True
    >>> never_negative(n - 1 - i // 3, {Opaque(1): n * 3}.get)
    True
    >>> never_negative(i - i // 2 * 2, {Opaque(1): n}.get), never_negative(i - i // 2 * 2, {}.get)
    (True, False)
    >>> steps = (n - 1).maximum(0)
    >>> never_negative(n - 1 - (steps - i), {Opaque(1): steps}.get)  # steps is n - 1, since the loop runs
    True
    """
    while not dim.is_nonnegative():
        without = (
            _without_quotient(dim, extents, True) or _at_worst(dim, extents) or _without_quotient(dim, extents, False)
        )
        if without is None:
            return False
        dim = without
    return True


def least(dim: Dim, extents: Callable[[DimAtom], Dim | None]) -> Dim | None:
    """A dim without loop variables that is never above this one, and is equal to it for some of their values.

    None when the worst values are not known, as where a dim is not linear in the loop variables.

    >>> i, n, m = Dim.atom(Opaque(1)), Dim.of("n"), Dim.of("m")
    >>> least(m - 1 - (i * 2 + 1), {Opaque(1): n}.get)  # for i < n: x[2*i + 1], of m elements
    m - 2*n
    """
    while any(extents(atom) is not None for atom in dim.atoms()):
        without = _at_worst(dim, extents)
        if without is None:
            return None
        dim = without
    return dim


def _at_worst(dim: Dim, extents: Callable[[DimAtom], Dim | None]) -> Dim | None:
    """A dim where the innermost loop variable has the value that makes it least; None when that is not known."""
    found = {atom: extents(atom) for monomial, _ in dim.terms for atom in monomial}
    variables = {atom: extent for atom, extent in found.items() if extent is not None}
    for extent in variables.values():
        dim = _while_it_runs(dim, extent)
    inner = [v for v in variables if all(v not in e.atoms() for w, e in variables.items() if w != v)]
    if not inner:
        return None
    variable, worst = inner[0], Dim({})
    for monomial, c in dim.terms:
        if variable not in monomial:
            worst += Dim({monomial: c})
            continue
        rest = Dim({tuple(atom for atom in monomial if atom != variable): 1})
        if len(rest.terms[0][0]) != len(monomial) - 1 or not rest.is_nonnegative():
            return None
        if c < 0:
            worst += (positive(variables[variable]) - 1) * rest * c
    return worst


def _without_quotient(dim: Dim, extents: Callable[[DimAtom], Dim | None], by_numbers: bool) -> Dim | None:
    """A dim that is at least zero only where this one is, without one of its quotients; None without any.

    The quotients are those of sums of sizes and loop variables, by numbers or by sizes: what is made of any other
    integer may have wrapped around before it was divided. The one that is taken away most often is the first.
    """
    found = []
    for monomial, c in dim.terms:
        match monomial:
            case (Compound("//", number, divisor),) if divisor.is_static() and divisor.is_nonnegative():
                atoms = number.atoms()
                exact = all(not isinstance(atom, Opaque) or extents(atom) is not None for atom in atoms)
                varies = any(extents(atom) is not None for atom in atoms)
                if exact and varies and (divisor.constant is not None) is by_numbers:
                    found.append((c, monomial, number, divisor))
    if not found:
        return None
    c, monomial, number, divisor = min(found, key=lambda quotient: quotient[0])
    return times_divisor(dim - Dim({monomial: c}), c, number, divisor)


def _while_it_runs(dim: Dim, extent: Dim) -> Dim:
    """A dim inside of a loop with this extent."""
    runs = positive(extent)
    if runs == extent:
        return dim
    (((atom,), _),), total = extent.terms, Dim({})
    for monomial, c in dim.terms:
        product = Dim.of(c)
        for factor in monomial:
            product *= runs if factor == atom else Dim.atom(factor)
        total += product
    return total


def positive(extent: Dim) -> Dim:
    """The extent of a loop that runs: ``max(e, 0)`` is ``e`` there."""
    match extent.terms:
        case (((Compound("max", left, right),), 1),):
            return right if left == Dim({}) else left if right == Dim({}) else extent
    return extent
