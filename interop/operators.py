"""Operators of PyTorch: one for each program of leaves, and for its cotangents, tangents and batches.

An operator is registered under a name that says what it computes, so that code which PyTorch keeps in a file means the
same in another process. It has a kernel, which runs the compiled program, and a fake one, which knows the shapes of the
results from those of the arguments. Its derivatives and batches are operators again, made when somebody asks:

    adze::f_1a2b                            x, k -> y
    adze::f_1a2b_vjp_0_of_0                 x, k, cotangent -> cotangent of x
    adze::f_1a2b_vjp_0_of_0_vmap_0_n_0      the same along the first axes of x and of the cotangent
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..backends.compile import compile
from ..core.digest import NoDigest, digest
from ..core.program import Instance, Program
from ..core.source import at_line
from ..core.types import dims, is_data
from . import leaves as programs
from .faces import alone, applied, registered
from .tensors import argument, as_array, as_tensor, empty

_OPERATORS: dict[str, Operator] = {}  # those that are registered, which are so until the process ends
_LOCK = threading.RLock()


class Shaped(NamedTuple):
    """The shape of a tensor, as one of Python's tuples."""

    shape: tuple[Any, ...]


class Operator:
    """A program of leaves as an operator of PyTorch, with its derivatives."""

    def __init__(self, name: str, program: Program, options: Mapping[str, Any]) -> None:
        self.name, self.program, self.options = name, program, options
        self.instance = program.at()
        self.compiled = compile(program, **options)
        self.types = self.instance.types
        self.results = programs.results(program)
        self.discrete = sorted({*range(len(self.results))} - {*programs.floating(self.results)})
        self.overload = registered(self)

    def bare(self, *tensors: Any) -> tuple[Any, ...]:
        """The results of the operator as PyTorch knows it."""
        found = self.overload(*tensors)
        return found if isinstance(found, tuple) else (found,)

    def apply(self, *tensors: Any) -> tuple[Any, ...]:
        """The results, differentiable in both modes."""
        results: tuple[Any, ...] = applied().apply(self, *tensors)
        return results

    # Derivatives and batches

    def pulled(self, wanted: Sequence[int], given: Sequence[int]) -> Operator:
        """From arguments and the cotangents of the given results, the cotangents of the wanted arguments."""
        name = f"{self.name}_vjp_{_listed(wanted)}_of_{_listed(given)}"
        return self._derived(name, lambda: programs.pulled(self.program, wanted, given))

    def pushed(self, moving: Sequence[int]) -> Operator:
        """From arguments and the tangents of those that move, the tangents of the floating results."""
        return self._derived(f"{self.name}_jvp_{_listed(moving)}", lambda: programs.pushed(self.program, moving))

    def mapped(self, axes: Sequence[int | None]) -> Operator:
        """The operator along an axis of each argument, None for what is shared."""
        return self._derived(f"{self.name}_vmap_{_listed(axes)}", lambda: programs.mapped(self.program, axes))

    def _derived(self, name: str, program: Callable[[], Program]) -> Operator:
        return _registered(name, program, self.options)

    # What PyTorch calls

    def kernel(self, *tensors: Any) -> Any:
        """The results of a call, in memory of their own."""
        return alone([as_tensor(result) for result in self.compiled(*map(as_array, tensors))])

    def fake(self, *tensors: Any) -> Any:
        """Tensors like the results of a call. ValueError for a result whose size the run decides."""
        for tensor, type, name in zip(tensors, self.types, self.instance.names, strict=True):
            argument(tensor, type, f"{self.program.name}: argument {name!r}")
        sizes = self.instance.signature.fitting([Shaped(tuple(tensor.shape)) for tensor in tensors])
        device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), "cpu")
        made = []
        for type in self.results:
            if not all([dim.is_static() for dim in dims(type)]):
                problem = f"the run decides the size of a result of type {type}, which PyTorch has to know before it"
                raise ValueError(at_line(f"{self.program.name}: {problem} compiles or exports a call"))
            made.append(empty(type, [max(0, dim.evaluate(sizes)) for dim in dims(type)], device))
        return alone(made)


def operator_of(instance: Instance, options: Mapping[str, Any]) -> Operator:
    """The operator of one version of a program, compiled with these options of ``az.compile``.

    TypeError for a program that gives something else than numbers and arrays.
    """
    name = instance.program.name
    for type in instance.term.types:
        if not is_data(type):
            raise TypeError(at_line(f"{name} gives a value of type {type}, which no tensor is"))
    readable = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
    unique = _digest(instance, options)
    return _registered(f"{readable}_{unique}".lstrip("_"), lambda: programs.leaves(instance), options)


def _digest(instance: Instance, options: Mapping[str, Any]) -> str:
    """What tells a program with its options from others, in other processes too, by the lines in its errors as well."""
    try:
        found = digest(instance.term)
    except NoDigest:
        return uuid.uuid4().hex
    text = f"{found.origins} {sorted(options.items())}"
    return hashlib.blake2b(found.value + text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _registered(name: str, program: Callable[[], Program], options: Mapping[str, Any]) -> Operator:
    with _LOCK:
        if name not in _OPERATORS:
            _OPERATORS[name] = Operator(name, program(), options)
        return _OPERATORS[name]


def _listed(numbers: Sequence[int | None]) -> str:
    """Numbers as a part of a name."""
    return "_".join(["n" if number is None else f"{number}" for number in numbers])
