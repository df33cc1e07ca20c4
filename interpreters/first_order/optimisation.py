"""What a program in first-order form goes through before it is lowered: data become cells, and procedures less.

The order: what is called once stands where it is called; readers meet what they read; constants go where they are
known, and what is then used no more goes; and what is now called once stands where it is called.
"""

from __future__ import annotations

from ...core.terms import Block
from .cells import in_cells
from .constants import with_constants
from .deforestation import deforested
from .inlining import inlined
from .merging import merged
from .unused import without_unused


def optimised(block: Block) -> Block:
    """A closed term in first-order form, with cells for its data and procedures that do what is needed."""
    block = deforested(in_cells(inlined(block)))
    return merged(inlined(without_unused(with_constants(block))))
