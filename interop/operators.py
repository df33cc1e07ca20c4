"""Operators: one for each program of leaves, and for its cotangents, tangents and batches, to a library of arrays.

An operator is compiled, and known by a name that says what it computes, so that code which a library keeps in a file
means the same in another process. Its derivatives and batches are operators again, made when somebody asks:

    f_1a2b                            x, k -> y
    f_1a2b_vjp_0_of_0                 x, k, cotangent -> cotangent of x
    f_1a2b_vjp_0_of_0_vmap_0_n_0      the same along the first axes of x and of the cotangent

A library adds how its arrays are handed over: ``torch_operators.py``, ``jax_operators.py``.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from ..backends.compile import compile
from ..core.digest import NoDigest, digest
from ..core.program import Instance, Program
from ..core.source import at_line
from ..core.types import Type, dims, is_data
from . import leaves as programs

_OPERATORS: dict[tuple[type, str], Any] = {}  # those that there are, which libraries know until the process ends
_LOCK = threading.RLock()


class Shaped(NamedTuple):
    """The shape of an array, as one of Python's tuples."""

    shape: tuple[Any, ...]


class Operator:
    """A program of leaves, compiled, with its derivatives and batches."""

    array: ClassVar[str]  # what an array of the library is called in messages
    before: ClassVar[str]  # who has to know sizes, and before what

    def __init__(self, name: str, program: Program, options: Mapping[str, Any]) -> None:
        self.name, self.program, self.options = name, program, options
        self.instance = program.at()
        self.compiled = compile(program, **options)
        self.types = self.instance.types
        self.results = programs.results(program)
        self.discrete = sorted({*range(len(self.results))} - {*programs.floating(self.results)})

    def __repr__(self) -> str:
        return self.name

    @classmethod
    def of(cls, instance: Instance, options: Mapping[str, Any]) -> Self:
        """The operator of one version of a program, compiled with these options of ``az.compile``.

        TypeError for a program that gives something else than numbers and arrays.
        """
        name = instance.program.name
        for type in instance.term.types:
            if not is_data(type):
                raise TypeError(at_line(f"{name} gives a value of type {type}, which no {cls.array} is"))
        readable = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
        unique = _digest(instance, options)
        return cls._known(f"{readable}_{unique}".lstrip("_"), lambda: programs.leaves(instance), options)

    @classmethod
    def _known(cls, name: str, program: Callable[[], Program], options: Mapping[str, Any]) -> Self:
        with _LOCK:
            if (cls, name) not in _OPERATORS:
                _OPERATORS[cls, name] = cls(name, program(), options)
            found: Self = _OPERATORS[cls, name]
            return found

    # Derivatives and batches

    def pulled(self, wanted: Sequence[int], given: Sequence[int]) -> Self:
        """From arguments and the cotangents of the given results, the cotangents of the wanted arguments."""
        name = f"{self.name}_vjp_{_listed(wanted)}_of_{_listed(given)}"
        return self._known(name, lambda: programs.pulled(self.program, wanted, given), self.options)

    def pushed(self, moving: Sequence[int]) -> Self:
        """From arguments and the tangents of those that move, the tangents of the floating results."""
        name = f"{self.name}_jvp_{_listed(moving)}"
        return self._known(name, lambda: programs.pushed(self.program, moving), self.options)

    def mapped(self, axes: Sequence[int | None]) -> Self:
        """The operator along an axis of each argument, None for what is shared."""
        name = f"{self.name}_vmap_{_listed(axes)}"
        return self._known(name, lambda: programs.mapped(self.program, axes), self.options)

    # Shapes

    def made(self, shapes: Sequence[Sequence[Any]]) -> list[tuple[Type, list[int]]]:
        """The types and shapes of the results, for the shapes of the arguments.

        ValueError where sizes do not fit, and for a result whose size the run decides.
        """
        sizes = self.instance.signature.fitting([Shaped(tuple(shape)) for shape in shapes])
        for type in self.results:
            if not all([dim.is_static() for dim in dims(type)]):
                problem = f"the run decides the size of a result of type {type}, which {self.before}"
                raise ValueError(at_line(f"{self.program.name}: {problem}"))
        return [(type, [max(0, dim.evaluate(sizes)) for dim in dims(type)]) for type in self.results]


def _digest(instance: Instance, options: Mapping[str, Any]) -> str:
    """What tells a program with its options from others, in other processes too, by the lines in its errors as well."""
    try:
        found = digest(instance.term)
    except NoDigest:
        return uuid.uuid4().hex
    text = f"{found.origins} {sorted(options.items())}"
    return hashlib.blake2b(found.value + text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _listed(numbers: Sequence[int | None]) -> str:
    """Numbers as a part of a name."""
    return "_".join(["n" if number is None else f"{number}" for number in numbers])
