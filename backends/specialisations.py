"""Specialisations: the pieces of machine code that one program has, of which the sizes of a call take some.

A program is one program for all sizes, but no single code is the best for all of them. So it is specialised in three
places, and every specialisation is made when the first call takes it (multi-versioning with lazy compilation):

* sizes of arguments without annotation that are small are constants in the first code (``constant_sizes.py``);
* where sizes decide which of two programs is less work, each is a form of its own (``multiversioning.py``);
* where sizes decide between two ways to run a loop, each is a branch with code of its own (``llvm/branches.py``); the
  kernels of a form are built together.

    compiled in 0.21 s, for all sizes: result2: parallel, lanes of 32
    compiled in 0.30 s, for 49152 <= n * k * m: array4: parallel, lanes of 16, jam of 8
    not compiled, for not (49152 <= n * k * m): array4: parallel, lanes of 32, jam of 4
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from . import ir

COMPILED, LOADED, MISSING = "compiled", "loaded from disk", "not compiled"
ALWAYS = "all sizes"


@dataclass(frozen=True)
class Specialisation:
    """One piece of the code of a program: where it is taken, what for, and whether it is there.

    ``condition`` is what holds of the sizes of the calls that take it, ``why`` what is computed there and how;
    ``state`` is "compiled", "loaded from disk" (an earlier process had compiled it) or "not compiled" (no call has
    taken it yet), and ``seconds`` what it took this process to have it.
    """

    condition: str
    why: str
    state: str
    seconds: float

    def __str__(self) -> str:
        seconds = "" if self.state == MISSING else f" in {self.seconds:.2f} s"
        return f"{self.state}{seconds}, for {self.condition}: {self.why}"

    def where(self, condition: str) -> Specialisation:
        """It under another condition besides its own."""
        return replace(self, condition=conjunction([condition, self.condition]))


def conjunction(conditions: Iterable[str]) -> str:
    """What says that all of some conditions hold.

    >>> conjunction(["d = 3", ALWAYS, "n < 8"])
    'd = 3 and n < 8'
    """
    return " and ".join([condition for condition in conditions if condition != ALWAYS]) or ALWAYS


def purpose(block: ir.Block) -> str:
    """Which arrays a block writes, and by what kinds of loops."""
    statements = list(ir.walk(block))
    own = {each.buffer.name for each in statements if isinstance(each, ir.Allocate)}
    written = dict.fromkeys([each.buffer.name for each in statements if isinstance(each, ir.Store)])
    loops = dict.fromkeys([_kind(each) for each in statements if isinstance(each, ir.For)])
    names = ", ".join([name for name in written if name not in own]) or "numbers"
    return f"{names}: {', '.join(loops) or 'no loops'}"


def _kind(loop: ir.For) -> str:
    return f"{loop.kind} of {loop.factor}" if loop.kind in ("lanes", "jam") else loop.kind
