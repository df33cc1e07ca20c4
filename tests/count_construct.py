"""Where constructs are: how many files of the product name one, as a whole identifier or in a match.

python tests/count_construct.py scan         the files
python tests/count_construct.py              the table of CONTRIBUTING.md
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from adze.core.constructs import CONSTRUCTS, PROPERTIES, Construct

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "interpreters", "ad", "backends")


@cache
def names(file: Path) -> frozenset[str]:
    """The identifiers of a file, and its strings that are one."""
    return frozenset(_names(ast.parse(file.read_text(encoding="utf-8"))))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.Constant(value=str() as name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.keyword(arg=str() as name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield from {*name.split("."), asname or name}


def files(construct: Construct) -> list[str]:
    """The files that name a construct, or its method."""
    every = [*[file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))], ROOT / "adze/__init__.py"]
    wanted = {construct.name, construct.method}
    return [file.relative_to(ROOT).as_posix() for file in every if not wanted.isdisjoint(names(file))]


def table() -> str:
    """The table of constructs, for people."""
    lines = ["| construct | blocks | properties |", "|---|---|---|"]
    for row in CONSTRUCTS.values():
        more = [] if row.more is None else [f"{row.more.name.lower()}..."]
        blocks = ", ".join([*[role.name.lower() for role in row.roles], *more])
        stated = ", ".join([name for name in PROPERTIES if getattr(row, name)])
        lines.append(f"| `{row.name}` | {blocks} | {stated} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(table())
    for name in sys.argv[1:]:
        found = files(CONSTRUCTS[name])
        print(*found, f"{name}: {len(found)} files", sep="\n")
