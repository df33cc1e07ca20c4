"""The public names that a minor version may change or take away; ``docs/stability.md`` says why.

They are those of ``az`` itself, where a name stays when it becomes stable. A program that is written with
``az.experimental.construct`` says what it rests on:

>>> import adze as az
>>> az.experimental.construct is az.construct
True
"""

from .backends.chunked.chunked import Chunked
from .core.added import construct
from .core.constructs import Role
from .core.declarations import variant
from .core.language import Binding, Language
from .core.program import interpret
from .core.reify import Reify

__all__ = ["Binding", "Chunked", "Language", "Reify", "Role", "construct", "interpret", "variant"]
