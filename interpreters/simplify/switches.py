"""Rules that programs and derivatives are rewritten by before they are scheduled, by name, to be switched off.

``ADZE_WITHOUT=single_terms,side_by_side`` switches off what is named there, for an experiment that measures what it
gains (``benchmarks/run.py --ablation``). It is read once: what a process has derived it keeps. No rule changes what a
program means. The scheduler's transformations have switches of their own (``backends/transformations.py``).
"""

from __future__ import annotations

from functools import cache

from ...core.settings import names_in

# By name, with what the rule is called in Shaikhha et al. 2019, section 6, if it is there.
RULES = {
    "fuse_arrays": "what is costly and read once is computed where it is read (loop fusion; constructs.py)",
    "unswitch": "what no loop changes in a branch is computed before all loops (code motion; unswitching.py)",
    "expand_scalars": "what no direction moves is computed once for all (code motion; ad/scalar_expansion.py)",
    "single_terms": "sums of one term and loops of one step are these (loop normalisation; deltas.py)",
    "unroll_few": "loops of a few iterations that choose by their index are these (unrolling.py)",
    "side_by_side": "a few directions of a Jacobian are derived in one pass (ad/side_by_side.py, ad/jacobians.py)",
}


@cache
def without() -> frozenset[str]:
    """The rules that ``ADZE_WITHOUT`` switches off in this process. ValueError for a name that there is not."""
    return frozenset(names_in("ADZE_WITHOUT", tuple(RULES)))


def is_on(rule: str) -> bool:
    """Whether a rule applies.

    >>> is_on("unswitch")
    True
    """
    return rule not in without()
