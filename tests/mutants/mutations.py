"""Wrong versions of the rules: a rule's source without one of its terms, or with the wrong sign, branch or comparison.

A mutation changes one place in the syntax tree of a module of rules:

    dropped     a statement that is a call (it adds a cotangent, runs a pull, encloses a sweep) is left out; so is
                ``cell.add(...)`` where it is all that a lambda does
    left only   ``plus(b, x, y)``, ``b.primitive("add", x, y)``, ``x + y``: the second term is left out; the same
                for "subtract" and for ``x if test else y``
    right only  the same: the first is left out
    negated     a product, ``b.primitive("multiply", x, y)`` or ``x * y``, has its sign turned
    none        ``x if test else None`` is None: a cotangent or tangent is lost
    swapped     the branches of a ``b.cond`` change places
    other       ``b.primitive("less", ...)`` is "less_equal", "equal" is "not_equal", "logical_and" is "logical_or",
                and the other way round

Left alone are what stands in a ``raise`` or an ``assert``, and texts and lists that are put together: these are no
terms of a rule; and what a class holds besides its methods, which was computed when the module was read.

A *spot* is a node of the tree that has mutations; :func:`noting` gives a module that says which spots it reaches.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

OTHER = {
    "less": "less_equal", "greater": "greater_equal", "equal": "not_equal", "logical_and": "logical_or",
}  # fmt: skip
OTHER |= {second: first for first, second in OTHER.items()}
ADDING = ("add", "add_at", "_add_to")
TEXTS_AND_LISTS = (ast.Constant, ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)

Key = tuple[str, str, str, str]
Kind = tuple[str, Callable[[], ast.expr | ast.stmt]]  # of a mutation at a node, and what stands there instead
Kinds = Callable[[ast.AST], Iterator[Kind]]


@dataclass(frozen=True)
class Mutation:
    """One change of one module. ``number`` counts the mutations of the module, ``spot`` its places."""

    file: str  # "ad/cells.py"
    number: int
    spot: int
    line: int
    function: str  # "Cell.add"
    kind: str
    code: str
    kinds: Kinds = field(compare=False, repr=False)

    @property
    def key(self) -> Key:
        """What names the mutation wherever its line moves; it may stand for several that look the same."""
        return self.file, self.function, self.kind, self.code

    def __str__(self) -> str:
        first, *rest = self.code.split("\n")
        shown = first if not rest else f"{first} ..."
        return f"{self.file}:{self.line} ({self.function}) {self.kind}: {shown}"


@dataclass(frozen=True)
class Place:
    node: ast.expr | ast.stmt
    function: str
    kind: str
    replacement: Callable[[], ast.expr | ast.stmt]
    put: Callable[[ast.expr | ast.stmt], None]


def mutations(root: Path, file: str, kinds: Kinds) -> list[Mutation]:
    """All mutations of some kinds of a file below ``root``."""
    found, spots = [], dict[int, int]()
    for number, place in enumerate(_places(source(root, file), kinds)):
        spot = spots.setdefault(id(place.node), len(spots))
        code = ast.unparse(place.node)
        found.append(Mutation(file, number, spot, place.node.lineno, place.function, place.kind, code, kinds))
    return found


def mutated(root: Path, mutation: Mutation) -> ast.Module:
    """The module of a mutation with the change made; what is left as it was keeps its lines."""
    tree = source(root, mutation.file)
    place = next(place for number, place in enumerate(_places(tree, mutation.kinds)) if number == mutation.number)
    place.put(_with_names_of(place.node, place.replacement()))
    return ast.fix_missing_locations(tree)


def _with_names_of(old: ast.expr | ast.stmt, new: ast.expr | ast.stmt) -> ast.expr | ast.stmt:
    """The new code, beside a read of what the old one reads that is not run: functions capture what they did."""
    reads = ast.Tuple([node for node in ast.walk(old) if _is_read(node)], ast.Load())
    if isinstance(new, ast.stmt):
        return ast.If(ast.Constant(False), [ast.Expr(reads)], [new])
    return new if isinstance(old, ast.Lambda) else ast.IfExp(ast.Constant(True), new, reads)


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def noting(root: Path, file: str, note: str, kinds: Kinds) -> ast.Module:
    """The module with a call of the global function ``note`` at each spot, before the code there."""
    tree, spots = source(root, file), dict[int, tuple[int, Place]]()
    for place in list(_places(tree, kinds)):
        spots.setdefault(id(place.node), (len(spots), place))
    for spot, place in reversed(spots.values()):  # inner places first
        call = ast.Call(ast.Name(note, ast.Load()), [ast.Constant(spot)], [])
        inner = place.node.value if isinstance(place.node, ast.Expr) else place.node
        assert isinstance(inner, ast.expr)
        noted = ast.Subscript(ast.Tuple([call, inner], ast.Load()), ast.Constant(1), ast.Load())
        place.put(ast.Expr(noted) if isinstance(place.node, ast.Expr) else noted)
    return ast.fix_missing_locations(tree)


def source(root: Path, file: str) -> ast.Module:
    """A module as it is."""
    return ast.parse(_text(root / file))


@cache
def _text(path: Path) -> str:
    return path.read_text()  # once: the file may be edited meanwhile


def _places(tree: ast.Module, kinds: Kinds) -> Iterator[Place]:
    yield from _inside(tree, "", kinds)


def _inside(parent: ast.AST, function: str, kinds: Kinds) -> Iterator[Place]:
    if isinstance(parent, ast.Raise | ast.Assert | ast.pattern | ast.JoinedStr):
        return
    if isinstance(parent, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{parent.name}".removeprefix(".")
    defines = isinstance(parent, ast.ClassDef)
    for name, value in list(ast.iter_fields(parent)):
        if name in ("annotation", "returns", "decorator_list", "defaults", "kw_defaults"):
            continue
        for position, node in enumerate(list(value) if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST) and (not defines or isinstance(node, ast.FunctionDef | ast.ClassDef)):
                for kind, replacement in kinds(node) if function else ():
                    assert isinstance(node, ast.expr | ast.stmt)
                    put = _putting(parent, name, position if isinstance(value, list) else None)
                    yield Place(node, function, kind, replacement, put)
                yield from _inside(node, function, kinds)


def _putting(parent: ast.AST, field: str, position: int | None) -> Callable[[ast.expr | ast.stmt], None]:
    def put(new: ast.expr | ast.stmt) -> None:
        if position is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[position] = new

    return put


def of_rules(node: ast.AST) -> Iterator[Kind]:
    """The mutations of a rule at a node."""
    match node:
        case ast.Expr(value=ast.Call()):
            yield ("dropped", ast.Pass)
        case ast.Lambda(body=ast.Call(func=ast.Attribute(attr=name))) if name in ADDING:
            yield ("dropped", lambda: ast.Lambda(node.args, ast.Constant(None)))
        case ast.Call(func=ast.Name(id="plus"), args=[_, x, y]):
            yield ("left only", lambda: x)
            yield ("right only", lambda: y)
        case ast.Call(func=ast.Attribute(attr="primitive"), args=[ast.Constant(value="add" | "subtract"), x, y]):
            yield ("left only", lambda: x)
            yield ("right only", lambda: y)
        case ast.Call(func=ast.Attribute(attr="primitive", value=b), args=[ast.Constant(value="multiply"), _, _]):
            yield ("negated", lambda: _negative(b, node))
        case ast.Call(func=ast.Attribute(attr="primitive"), args=[ast.Constant(value=name), *rest]) if name in OTHER:
            yield ("other", lambda: ast.Call(node.func, [ast.Constant(OTHER[name]), *rest], []))
        case ast.Call(func=ast.Attribute(attr="cond", value=owner), args=[test, x, y]) if not _is_analysis(owner):
            yield ("swapped", lambda: ast.Call(node.func, [test, y, x], node.keywords))
        case ast.BinOp(op=ast.Add(), left=x, right=y) if not _put_together(x, y):
            yield ("left only", lambda: x)
            yield ("right only", lambda: y)
        case ast.BinOp(op=ast.Mult(), left=x, right=y) if not _put_together(x, y):
            yield ("negated", lambda: ast.UnaryOp(ast.USub(), node))
        case ast.IfExp(body=x, orelse=y) if _is_none(x) != _is_none(y):
            yield ("none", lambda: ast.Constant(None))
        case ast.IfExp(body=x, orelse=y) if not (_is_none(x) or _is_text(x) or _is_text(y)):
            yield ("left only", lambda: x)
            yield ("right only", lambda: y)
        case _:
            pass


def _negative(builder: ast.expr, call: ast.Call) -> ast.expr:
    negative: list[ast.expr] = [ast.Constant("negative"), call]
    return ast.Call(ast.Attribute(builder, "primitive", ast.Load()), negative, [])


def _is_analysis(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Attribute) and owner.attr == "activity"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _put_together(x: ast.expr, y: ast.expr) -> bool:
    return any(isinstance(side, TEXTS_AND_LISTS) and not _is_number(side) for side in (x, y))


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
