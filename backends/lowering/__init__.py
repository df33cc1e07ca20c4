"""From scheduled terms to the loop IR; ``lower`` is the way in."""

from ...core.language import Unsupported
from .lower import Lowered, lower, returned
from .roles import with_roles

__all__ = ["Lowered", "Unsupported", "lower", "returned", "with_roles"]
