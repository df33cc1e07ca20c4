"""Pages: programs, what is made of them and what they cost, as HTML that a browser or a notebook shows.

``explore`` writes one page of a program and of all that it is lowered to; ``notebooks.py`` says how values show
themselves in a notebook. Nothing here computes: panels are the texts that other modules print, and what links them.
"""

from __future__ import annotations

from . import notebooks as notebooks
from .document import Page
from .explorer import explore

__all__ = ["Page", "explore"]
