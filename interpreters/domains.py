"""Zero and read domains: where an array can be other than 0, and where it is read at all.

A program that makes a triangular matrix writes 0 in one branch of a test on the indices, and one that wants a
triangle of a matrix reads it under such a test. Both are facts about the array, for who computes with it or makes
it. A *domain* is a set of least differences between the axes of an array: outside of it, some difference is less.

    q = for r < d: for c < d: if r > c: l[r, c] else (if r == c: 1 else 0)        q is 0 but where r - c >= 0
    g = for r < d: for c < d: sum(i: y[i, r] * x[i, c])                           g is read where r - c >= 1
    for r < d: for c < d: if r > c: g[r, c] else 0

The idea: a walk that knows, at each place, which differences of indices the tests around it imply, and for each
scalar, which ones hold where it is not 0. What two branches say is joined: the lesser of two differences holds for
both. A 0 is a literal that a test chooses, and never a product: 0 * x is not 0 for all x.

Only arrays that are read element by element have domains: others may be overwritten in place, or handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..core.dims import Dim, Monomial, Name, Opaque
from ..core.terms import Atom, Block, Literal, Operation, Size, Variable
from ..core.types import Type, i64, rank
from .simplify.implied import DIFFERENCES, FEW

# Least differences of two variables: loop variables by level, axes of an array as -1, -2... None where nothing is.
Facts = dict[tuple[int, int], int]
# Least differences of two axes.
Domain = dict[tuple[int, int], int]


@dataclass(frozen=True)
class _Value:
    """What is known of a value: an integer as a dim, what a test implies, where it is not 0, which array it is."""

    dim: Dim | None = None
    holds: tuple[Facts, Facts] = ({}, {})  # where a test holds, and where it does not
    nonzero: Facts | None = field(default_factory=dict)
    array: tuple[int, int] | None = None  # a result of a generate


class Domains:
    """The domains of the arrays that the generates of a term make, by the operation itself.

    >>> import adze as az
    >>> @az.program
    ... def trace(l: az.Array[az.f64, "d d"]):
    ...     lower = az.generate(l.shape, lambda i, j: az.cond(i >= j, lambda: az.exp(l[i, j]), lambda: 0.0))
    ...     return az.sum(lower), az.sum(lower, axis=0)
    >>> block = az.simplify(trace)
    >>> domains = Domains(block)
    >>> [domains.nonzero(operation, 0) for operation in block.bindings if operation.op == "generate"][0]
    {(0, 1): 0}
    """

    def __init__(self, block: Block) -> None:
        self._env: list[_Value] = []
        self._indices: set[int] = set()  # levels of loop variables
        self._nonzero: dict[tuple[int, int], Facts | None] = {}
        self._needed: dict[tuple[int, int], Facts | None] = {}
        self._escaped: set[tuple[int, int]] = set()
        self._block(block, {})

    def nonzero(self, operation: Operation, position: int) -> Domain:
        """Where a result of a generate can be other than 0."""
        return self._domain(self._nonzero, operation, position)

    def needed(self, operation: Operation, position: int) -> Domain:
        """Where a result of a generate is read."""
        return self._domain(self._needed, operation, position)

    def _domain(self, known: dict[tuple[int, int], Facts | None], operation: Operation, position: int) -> Domain:
        array = id(operation), position
        facts = None if array in self._escaped else known.get(array)
        return {(-1 - u, -1 - v): least for (u, v), least in (facts or {}).items() if u < 0 and v < 0}

    # Blocks

    def _block(self, block: Block, path: Facts, indices: bool = False) -> list[_Value]:
        """Walk through a block where some differences are known; its results. ``indices``: it binds loop variables."""
        depth = len(self._env)
        self._env.extend([self._unknown(depth + k, type, indices) for k, type in enumerate(block.binders)])
        for operation in block.bindings:
            level = len(self._env)
            known = self._operation(operation, path)
            unknown = [self._unknown(level + k, type) for k, type in enumerate(operation.types)]
            self._env.extend(unknown if known is None else known)
        results = [self._value(atom) for atom in block.results]
        self._escape(results)
        del self._env[depth:]
        return results

    def _unknown(self, level: int, type: Type, index: bool = False) -> _Value:
        """A value of which nothing is known, but that an integer is itself."""
        (self._indices.add if index else self._indices.discard)(level)
        return _Value(dim=Dim.atom(Opaque(level)) if type is i64 else None)

    def _value(self, atom: Atom) -> _Value:
        match atom:
            case Variable(index):
                return self._env[len(self._env) - 1 - index]
            case Literal() if atom.type is i64:
                return _Value(dim=Dim.of(int(atom.value)))
            case Literal() if atom == Literal.of(0.0, atom.type):
                return _Value(nonzero=None)
            case Size(dim):
                return _Value(dim=dim)
        return _Value()

    def _escape(self, values: Iterable[_Value]) -> None:
        self._escaped.update([value.array for value in values if value.array is not None])

    # Operations

    def _operation(self, op: Operation, path: Facts) -> list[_Value] | None:
        """The results of an operation, or None where nothing is known of them."""
        args = [self._value(arg) for arg in op.args]
        match op.op:
            case "primitive":
                return self._primitive(op, args)
            case "size":
                return None
            case "index" if len(args) == 1 + rank(op.args[0].type):
                return [self._read(args[0], [arg.dim for arg in args[1:]], path)]
            case "cond":
                return self._cond(op, args[0], path)
            case "generate":
                return self._generate(op, path)
        self._escape(args)
        for block in op.blocks:
            self._block(block, path, indices=op.op == "reduce" and block is op.blocks[0])
        return None

    def _primitive(self, op: Operation, args: Sequence[_Value]) -> list[_Value] | None:
        name = op.static[0].name
        a, b = args[0], args[-1]
        if name == "negative":
            return [_Value(nonzero=a.nonzero)] if op.types[0] is not i64 else None
        if name == "logical_not":
            return [_Value(holds=a.holds[::-1])]
        if name in ("logical_and", "logical_or"):
            both, either = (0, 1) if name == "logical_and" else (1, 0)
            made = {both: _met(a.holds[both], b.holds[both]), either: _joined(a.holds[either], b.holds[either])}
            return [_Value(holds=(made[0] or {}, made[1] or {}))]
        if a.dim is None or b.dim is None:
            return None
        if name in ("add", "subtract"):
            dim = a.dim + b.dim if name == "add" else a.dim - b.dim
            return [_Value(dim=dim)] if self._exact(dim) else None
        if name in DIFFERENCES:
            holds, fails = [_facts(what(b.dim - a.dim)) for what in DIFFERENCES[name]]
            return [_Value(holds=(holds, fails))]
        return None

    def _exact(self, dim: Dim) -> bool:
        """Whether a sum of loop variables, sizes and small numbers has not wrapped around."""

        def small(monomial: Monomial) -> bool:
            return all(isinstance(a, Name) or (isinstance(a, Opaque) and a.number in self._indices) for a in monomial)

        return all(abs(c) <= FEW and len(monomial) <= 1 and small(monomial) for monomial, c in dim.terms)

    def _read(self, array: _Value, indices: Sequence[Dim | None], path: Facts) -> _Value:
        """An element: what is known of it, noting that it is needed."""
        if array.array is None:
            return _Value()
        nonzero: Facts | None = None
        if array.nonzero is not None:
            nonzero = {}
            for (u, v), least in array.nonzero.items():
                found = _difference(indices, -1 - u, -1 - v) if u < 0 and v < 0 else None
                if found is not None:
                    nonzero[found[0]] = least - found[1]
        needed: Facts = {}
        for a in range(len(indices)):
            for b in range(len(indices)):
                found = _difference(indices, a, b)
                if found is not None and found[0] in path:
                    needed[-1 - a, -1 - b] = path[found[0]] + found[1]
        self._needed[array.array] = _joined(self._needed.get(array.array), needed)
        return _Value(nonzero=nonzero)

    def _cond(self, op: Operation, test: _Value, path: Facts) -> list[_Value]:
        depth, branches = len(self._env), []
        for block, facts in zip(op.blocks, test.holds, strict=True):
            results = self._block(block, _met(path, facts) or {})
            branches.append([_met(_of_scope(result.nonzero, depth), facts) for result in results])
        return [
            _Value(Dim.atom(Opaque(depth + k)) if type is i64 else None, nonzero=_joined(*each))
            for k, (type, *each) in enumerate(zip(op.types, *branches, strict=True))
        ]

    def _generate(self, op: Operation, path: Facts) -> list[_Value]:
        level = len(self._env)
        elements = self._block(op.blocks[0], path, indices=True)
        made = []
        for k, element in enumerate(elements):
            nonzero = _as_axis(element.nonzero, level)
            array = id(op), k
            # An operation may stand at several places of a term.
            self._nonzero[array] = _joined(self._nonzero[array], nonzero) if array in self._nonzero else nonzero
            made.append(_Value(nonzero=nonzero, array=array))
        return made


# Facts


def _met(a: Facts | None, b: Facts | None) -> Facts | None:
    """What holds where both hold."""
    if a is None or b is None:
        return None
    return {pair: max([facts[pair] for facts in (a, b) if pair in facts]) for pair in {**a, **b}}


def _joined(a: Facts | None, b: Facts | None) -> Facts | None:
    """What holds where one of the two does."""
    if a is None or b is None:
        return b if a is None else a
    return {pair: min(least, b[pair]) for pair, least in a.items() if pair in b}


def _facts(dims: Iterable[Dim]) -> Facts:
    """Those of these dims, which are not negative, that are the difference of two variables and a number."""
    facts: Facts = {}
    for dim in dims:
        found = _as_difference(dim)
        if found is not None:
            facts[found[0]] = -found[1]
    return facts


def _difference(indices: Sequence[Dim | None], a: int, b: int) -> tuple[tuple[int, int], int] | None:
    """The difference of two indices: two variables, and what is added to their difference."""
    x, y = indices[a], indices[b]
    return None if x is None or y is None else _as_difference(x - y)


def _as_difference(dim: Dim) -> tuple[tuple[int, int], int] | None:
    """A dim ``u - v + c`` as ``(u, v), c``."""
    added: list[int] = []
    taken: list[int] = []
    for monomial, c in dim.terms:
        match monomial, c:
            case (Opaque(number),), 1:
                added.append(number)
            case (Opaque(number),), -1:
                taken.append(number)
            case (), _:
                pass
            case _:
                return None
    constant = next((c for monomial, c in dim.terms if not monomial), 0)
    return ((added[0], taken[0]), constant) if len(added) == len(taken) == 1 else None


def _of_scope(facts: Facts | None, depth: int) -> Facts | None:
    """The facts that mention nothing bound at this level or above."""
    return None if facts is None else {(u, v): least for (u, v), least in facts.items() if max(u, v) < depth}


def _as_axis(facts: Facts | None, level: int) -> Facts | None:
    """The facts of a loop's elements for its array: the loop variable, at this level, is the first axis."""

    def moved(variable: int) -> int:
        return -1 if variable == level else variable - 1 if variable < 0 else variable

    kept = _of_scope(facts, level + 1)
    return None if kept is None else {(moved(u), moved(v)): least for (u, v), least in kept.items()}
