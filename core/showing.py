"""How values show themselves in notebooks: HTML, by class.

Programs, traces and costs know nothing of HTML. What writes it for a class is entered here (``adze/pages`` does), and
``Shown`` is what such classes inherit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# What a value of a class, or of one that inherits from it, shows as.
HTML: dict[type, Callable[[Any], str]] = {}


class Shown:
    """What a notebook shows as HTML, once something is entered for its class."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        for known in type(self).__mro__:
            if known in HTML:
                return HTML[known](self)
        return None
