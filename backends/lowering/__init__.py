"""From scheduled terms to the loop IR; ``lower`` is the way in."""

from .context import Unsupported
from .lower import Lowered, lower

__all__ = ["Lowered", "Unsupported", "lower"]
