"""Parameters of which the fast run tries some, and the long run the others.

    @pytest.mark.parametrize("shape", some(SHAPES, 3), ids=str)   # the first, the fourth, ...

What a test costs times how many there are decides, not how much they matter: those that are left out of the fast run
differ from those in it by their numbers alone.
"""

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], every: int = 4) -> list[Any]:
    """Values for ``parametrize``, of which every so-manieth is tried each time and the others are marked slow."""
    return [pytest.param(each, marks=[pytest.mark.slow] if k % every else []) for k, each in enumerate(values)]
