"""Operators of PyTorch: a kernel, which runs the compiled program, and a fake one, which knows the shapes of results.

They stand in PyTorch's table as ``adze::name``, with the two faces of ``faces.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..core.program import Program
from .faces import alone, applied, registered
from .operators import Operator
from .tensors import argument, as_array, as_tensor, empty


class TorchOperator(Operator):
    """A program of leaves as an operator of PyTorch, with its derivatives."""

    array: ClassVar[str] = "tensor"
    before: ClassVar[str] = "PyTorch has to know before it compiles or exports a call"

    def __init__(self, name: str, program: Program, options: Mapping[str, Any]) -> None:
        super().__init__(name, program, options)
        self.overload = registered(self)

    def bare(self, *tensors: Any) -> tuple[Any, ...]:
        """The results of the operator as PyTorch knows it."""
        found = self.overload(*tensors)
        return found if isinstance(found, tuple) else (found,)

    def apply(self, *tensors: Any) -> tuple[Any, ...]:
        """The results, differentiable in both modes."""
        results: tuple[Any, ...] = applied().apply(self, *tensors)
        return results

    # What PyTorch calls

    def kernel(self, *tensors: Any) -> Any:
        """The results of a call, in memory of their own."""
        return alone([as_tensor(result) for result in self.compiled(*map(as_array, tensors))])

    def fake(self, *tensors: Any) -> Any:
        """Tensors like the results of a call. ValueError for a result whose size the run decides."""
        for tensor, type, name in zip(tensors, self.types, self.instance.names, strict=True):
            argument(tensor, type, f"{self.program.name}: argument {name!r}")
        device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), "cpu")
        made = self.made([tensor.shape for tensor in tensors])
        return alone([empty(type, shape, device) for type, shape in made])
