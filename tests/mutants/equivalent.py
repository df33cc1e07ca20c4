"""Mutants that mean the same as the original, each with the reason.

A key is what is changed: the name of a primitive and the number of an operand; or the file, the function, the kind of
the change and the code that it changes, as ``ast.unparse`` writes it.
"""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, int] | tuple[str, str, str, str], str] = {}
