"""Where statements of the loop IR came from: the user's lines, by the names that statements bind.

Every name was made for an operation of the program, and lowering notes which (``Shared.origins``); passes keep names.
A statement came from where the operation was written whose name it binds or writes, or else from where those were that
it mentions. A nest came from all that is in it: after fusion that is often more than one line. ::

    array4: parallel, lanes of 16        mean = az.mean(x, 0)                 model.py:6
    partial9: parallel, lanes of 8       az.sum(az.exp(x - mean) * y)         model.py:8, 9
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ..core.source import Origin
from . import ir

_NAMED = 6  # lines of a file that are named, at most: a table has room for no more


@dataclass(frozen=True)
class Names:
    """Where the operations were written that names of the loop IR were made for."""

    origins: Mapping[str, Origin]

    def of(self, names: Iterable[str]) -> frozenset[Origin]:
        """Where some names came from, as far as that is known."""
        found = [self.origins[name] for name in names if name in self.origins]
        return frozenset([origin for origin in found if origin.file])

    def of_statement(self, statement: ir.Statement) -> frozenset[Origin]:
        """Where a statement came from by itself: a loop that a pass has made is from what is in it."""
        return self.of(bound(statement)) or self.of(_mentioned(statement)) or self.inside(statement)

    def lines(self, nest: ir.Statement) -> tuple[Origin, ...]:
        """The user's lines of a nest, each once, by files and numbers."""
        found = self.inside(nest) or self.of_statement(nest)
        return tuple([Origin(*place) for place in sorted({(origin.file, origin.line) for origin in found})])

    def inside(self, statement: ir.Statement) -> frozenset[Origin]:
        """Where a statement came from, and all that is in it, but for what only fetches memory ahead."""
        computed = [each for each in ir.walk((statement,)) if not isinstance(each, ir.Prefetch)]
        return frozenset().union(*[self.of(bound(each)) for each in computed])


def bound(statement: ir.Statement) -> set[str]:
    """The names that a statement binds or writes, not those in the blocks inside it."""
    match statement:
        case ir.Invoke():
            own = [statement.name] if statement.kind in ("cell", "tag") else []
            buffers = [buffer.name for buffer in (*statement.enters, *statement.writes)]
            return {*own, *buffers, *[variable.name for variable in statement.binds]}
        case ir.Let(name) | ir.Declare(name) | ir.Assign(name) | ir.Kernel(name):
            return {name}
        case ir.Call(name, _, _, writes):
            return {name, *[buffer.name for buffer in writes]}
        case ir.Store(buffer) | ir.Update(buffer) | ir.Allocate(buffer) | ir.Return(_, buffer) | ir.Prefetch(buffer):
            return {buffer.name}
        case ir.For(variable):
            return {variable, *[each.name for each in statement.reductions]}
        case ir.Nest(axes):
            return {*[axis.variable.name for axis in axes], *[each.name for each in statement.combines]}
    return set()


def _mentioned(statement: ir.Statement) -> set[str]:
    """The names that a statement reads itself."""
    found: set[str] = set()
    for expression in ir.expressions_of(statement):
        variables, buffers = ir.names_of(expression)
        found |= variables | buffers
    return found


def lines_text(lines: Sequence[Origin]) -> str:
    """Lines as a table shows them: by files, without folders, in order.

    >>> lines_text([Origin("examples/gmm.py", 8), Origin("examples/gmm.py", 6), Origin("examples/backends.py", 3)])
    'gmm.py:6, 8; backends.py:3'
    """
    files: dict[str, set[int]] = {}
    for line in lines:
        files.setdefault(line.file, set()).add(line.line)
    texts = []
    for file, numbers in files.items():
        first = sorted(numbers)[:_NAMED]
        more = [f"and {len(numbers) - len(first)} more"] if len(numbers) > len(first) else []
        texts.append(f"{PurePath(file).name}:{', '.join([*map(str, first), *more])}")
    return "; ".join(texts)
