"""What a program costs: as it is written, on no machine, or as the code that is generated for one.

Both have the same two questions: ``at`` some sizes, and for the arguments of a call. ::

    az.cost(f).at(n=1000)                  operations, reads, writes and span (``interpreters/cost``)
    az.cost(f, target="llvm").at(n=1000)   the seconds and bytes of each nest (``cost.py``)
"""

from __future__ import annotations

from typing import Any, overload

from ..core.program import Instance, as_program
from ..core.source import at_line, ending_at_user
from ..core.terms import Block
from ..core.verb import Function
from ..interpreters.cost import ProgramCost
from .compile import compile
from .compiled import Compiled
from .cost import Breakdown
from .opencl.devices import Device


class CodeCost:
    """What the code of a program costs (see :func:`cost`)."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    @ending_at_user
    def at(self, **sizes: int) -> Breakdown:
        """Each nest or kernel for given sizes; TypeError when they have other names than those of the program."""
        return self.compiled.cost(sizes=sizes)

    @ending_at_user
    def __call__(self, *args: Any, **kwargs: Any) -> Breakdown:
        """Each nest or kernel in the call with these arguments, which is not run."""
        return self.compiled.cost(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<cost of {self.compiled!r}>"


@overload
def cost(program: Function[..., Any] | Block, *, simplified: bool = True) -> ProgramCost: ...


@overload
def cost(program: Function[..., Any], *, target: str | Device) -> CodeCost: ...


@ending_at_user
def cost(
    program: Any,
    *,
    simplified: bool = True,
    target: str | Device | None = None,
) -> ProgramCost | CodeCost:
    """What a program costs, simplified first unless ``simplified=False``; a term is counted as it is.

    Counts are polynomials in the sizes, exact where control flow does not depend on data, else upper bounds; ``at``
    gives them for some sizes. Calling the result on arguments counts what that call really runs.

    >>> import adze as az
    >>> @az.program
    ... def product(a: az.Array[az.f64, "n m"], x: az.Array[az.f64, "m"]) -> az.Array[az.f64, "n"]:
    ...     return a @ x
    >>> print(az.cost(product))
    operations: 2 m n
    reads:      2 m n
    writes:     n
    span:       log2(m) + 4
    >>> az.cost(product).at(n=10, m=3).operations
    60
    >>> az.cost(product)([[1.0, 2.0]], [3.0, 4.0]).span
    5

    With a ``target`` it is the code that is estimated, nest by nest, as by :meth:`Compiled.cost`: ``"llvm"`` for this
    machine, ``"opencl"`` or one of :func:`adze.devices`. ValueError for another target, and for ``simplified`` there:
    code is made of simplified programs; TypeError for a term.

    >>> az.cost(product, target="llvm").at(n=1000, m=2000).rows[0].runs
    1.0
    """
    if target is None:
        known = isinstance(program, Instance | Block)
        return ProgramCost(program if known else as_program(program), simplified)
    if isinstance(program, Block):
        raise TypeError(at_line("code is made of a program, not of a term: give the program with target="))
    if not simplified:
        raise ValueError(at_line("simplified= is for counts of the program; code is made of simplified programs"))
    if isinstance(target, Device):
        return CodeCost(compile(program, backend="opencl", device=target))
    return CodeCost(compile(program, backend=target))
