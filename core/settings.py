"""Environment variables that name several of a few things, separated by commas.

ADZE_DEBUG=bounds,unoptimised     ("bounds", "unoptimised")
ADZE_DEBUG=bound                  ValueError: ADZE_DEBUG knows no 'bound'; it takes bounds, unoptimised
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def names_in(variable: str, known: Sequence[str]) -> list[str]:
    """The names that an environment variable has, of those that it may have. ValueError for another one."""
    wanted = [each.strip() for each in os.environ.get(variable, "").split(",") if each.strip()]
    for each in wanted:
        if each not in known:
            raise ValueError(f"{variable} knows no {each!r}; it takes {', '.join(known)}")
    return wanted
