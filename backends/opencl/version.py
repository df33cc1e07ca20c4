"""OpenCL kernels for one instance of a program: those of its forms, and the form that a call takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.host_arrays import on_device
from ...core.program import Instance
from ...core.stages import stage
from ..forms import Form
from ..lowering import Lowered
from ..multiversioning import Multiversioned
from ..target import Target
from ..transformations import ALL, Transformations
from .artifact import Built
from .devices import Device, opened, target_of
from .interrupts import BRIEF
from .run import in_kernels


class Version(Multiversioned[Built]):
    """The kernels of one instance for a device."""

    def __init__(
        self,
        instance: Instance,
        device: Device,
        checks: bool,
        deterministic: bool,
        allowed: Transformations = ALL,
    ) -> None:
        started = time.perf_counter()
        self.device, self.on = device, opened(device)
        self.context = self.on.context
        self._brief: list[Any] | None = None  # the sizes and numbers of the latest call, if it was brief
        target = replace(target_of(device), transformations=allowed)
        super().__init__(instance, target, checks, started, deterministic)

    def _in_loops(self, form: Form, target: Target) -> Lowered:
        lowered = super()._in_loops(form, target)
        with stage("split"):
            return replace(lowered, function=in_kernels(lowered.function, target))

    def _build(self, number: int, sizes: Mapping[str, int] | None) -> Built:
        return Built(self.instance, partial(self.lowered, number), self.device)

    def run(self, leaves: Sequence[Any], events: list[tuple[str, Any]] | None = None) -> Any:
        """Run on the leaves of a call's arguments.

        The results are NumPy's, unless an argument is an array on the device: then they stay there, too.
        """
        started = time.perf_counter()
        leaves = self.entered(leaves)
        arrays, sizes = self.instance.signature.convert(leaves, self.context)
        stays = any(on_device(leaf) for leaf in leaves)
        built = self.built(self.taken(sizes))
        like = [*sizes.values(), *[array for array in arrays if array.ndim == 0]]
        with self.on.progress.of_call(not stays and like == self._brief):
            result = built.run(arrays, sizes, stays, events)
        self._brief = like if not stays and time.perf_counter() - started < BRIEF else None
        return result if self.boundary is None else self.boundary.left(result, leaves)

    @property
    def source(self) -> str:
        """The kernels, as OpenCL C."""
        return self._each("//", self.source_of)

    def source_of(self, number: int) -> str:
        """The kernels of a form."""
        return self.built(number).executable.source.text

    def peak_bytes(self, leaves: Sequence[Any]) -> int:
        """The bytes on the device of a call's temporaries and results, as far as sizes decide them."""
        _, sizes = self.instance.signature.convert(self.entered(leaves), self.context)
        return self.built(self.taken(sizes)).executable.peak_bytes(sizes)
