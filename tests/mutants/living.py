"""Functions that live in this process, with other code.

A mutant is not a changed file: it is this process with other code in the functions that it has already read, so that
nothing is read again and whoever holds such a function has the mutant. Functions are known by their qualified names
and lines.
"""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

Name = tuple[str, int]


class Living:
    """The functions that some modules of a package have defined; files are named from its root."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.functions: dict[str, list[FunctionType]] = {file: [] for file in files}
        whole, real = {str(root / file): file for file in files}, dict[str, str]()
        for found in gc.get_objects():
            if type(found) is FunctionType:
                path = found.__code__.co_filename
                file = whole.get(real.setdefault(path, os.path.realpath(path)))
                if file is not None:
                    self.functions[file].append(found)

    def change(self, file: str, tree: ast.Module) -> list[FunctionType]:
        """Give the functions of a file the code that they have in this tree; the functions that are changed by it."""
        codes = {_name(code): code for code in _inside(compile(tree, file, "exec", dont_inherit=True))}
        changed = [f for f in self.functions[file] if codes.get(_name(f.__code__), f.__code__) != f.__code__]
        for function in changed:
            function.__code__ = codes[_name(function.__code__)]
        return changed


def _name(code: CodeType) -> Name:
    return code.co_qualname, code.co_firstlineno


def _inside(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)
