"""Recursion unfolded: a procedure that calls itself holds several of its activations.

A processor predicts where a return goes by a stack of its own, which holds 16 to 32 addresses. In a deeper recursion
nearly every return is mispredicted, and costs 20 to 50 cycles, more than a short procedure computes. So each call in a
recursion has the code of what it calls in its place, some levels deep, and a run returns that many times less::

    p(x) = ... p(y) ...        p(x) = ... p.1(y) ...      p.1(x) = ... p.0(y) ...      p.0(x) = ... p(y) ...

where ``p.1`` and ``p.0`` are copies, which LLVM always inlines. The same goes for procedures that call each other. A
procedure is unfolded as deep as that leaves it no longer than ``UNFOLDED`` lines: one that calls itself once becomes
about ten activations, one that calls itself twice a tree of seven or fifteen. What returns cost falls with the number
of activations, as 1, 1/2, 1/3, and compiling takes longer with it; so a program with little code has longer procedures.

Only calls are unfolded. A jump takes the place of its caller, and stays as it is; of one in a copy, whose frame is that
of its caller, LLVM makes a call. Procedures with loops are left alone, as their returns cost little beside the loops.
What LLVM is told of the memory of a procedure (``access.py``) is true within one activation, so copies do not say it.
Nor do they look at the end of the stack, or for signals: who is entered by a call has done so for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from ...core.components import components
from ..target import UNFOLDED, UNFOLDED_TOGETHER

_CALL = re.compile(r"(?<!musttail )(call tailcc [^@\n]*@)(procedure\.\d+)(?=\()")
_REGIONS = re.compile(r", !(?:alias\.scope|noalias) !\d+")
_MOST = 16  # levels: more than twice that many returns no processor predicts


def unfolded(procedures: Mapping[str, str], copy: Callable[[str], str]) -> dict[str, str]:
    """The text of procedures that may be copied, by name, with calls of copies where they recur; and the copies.

    ``copy`` emits a procedure as a copy has it, and is asked for those alone of which there is one.
    """
    copy = cache(copy)
    named = {name: [called for _, called in _CALL.findall(text)] for name, text in procedures.items()}
    calls = {name: [called for called in names if called in procedures] for name, names in named.items()}
    group = {name: number for number, names in enumerate(components(calls)) for name in names}
    inside = {name: [called for called in names if group[called] == group[name]] for name, names in calls.items()}

    @cache
    def lines(name: str, levels: int) -> int:
        """How long a procedure is with so many levels of calls in their places, if copies were as long as it is."""
        within = [lines(called, levels - 1) for called in inside[name]] if levels else []
        return procedures[name].count("\n") + sum(within)

    def with_calls(name: str, text: str, levels: int) -> str:
        """The text of a procedure, or of a copy, whose calls have so many levels in their places."""

        def redirected(call: re.Match[str]) -> str:
            called = call[2]
            return f"{call[1]}{called}.{levels - 1}" if levels and called in inside[name] else call[0]

        return _CALL.sub(redirected, text)

    def depth(name: str, most: int) -> int:
        """How many levels leave a procedure no longer than so many lines."""
        levels = 0
        while inside[name] and levels < _MOST and lines(name, levels + 1) <= most:
            levels += 1
        return levels

    def together(most: int) -> int:
        return sum([lines(name, depth(name, most)) for name in procedures])

    most = next((m for m in (3 * UNFOLDED, 2 * UNFOLDED) if together(m) <= UNFOLDED_TOGETHER), UNFOLDED)
    found: dict[str, str] = {}
    for name in procedures:
        levels = depth(name, most)
        found[name] = with_calls(name, procedures[name], levels)
        copied = [name]
        for level in reversed(range(levels)):
            copied = list(dict.fromkeys([called for each in copied for called in inside[each]]))
            for each in copied:
                if f"{each}.{level}" not in found:
                    found[f"{each}.{level}"] = _copied(with_calls(each, copy(each), level), each, level)
    return found


def _copied(text: str, name: str, level: int) -> str:
    """A procedure as one that is always inlined."""
    head, _, rest = text.partition("\n")
    head = head.replace("define hidden", "define internal").replace(f"@{name}(", f"@{name}.{level}(")
    return f"{head.removesuffix('{')}alwaysinline {{\n{_REGIONS.sub('', rest)}"
