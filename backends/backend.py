"""Backends: what a program is compiled for, machine code or kernels of a device, with the options of that.

Options are a part of the key under which an instance of a program keeps its code: what was compiled with others has
code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core.limits import lifted_limits
from ..core.program import Instance
from ..core.source import at_line
from ..core.stages import compiling
from .cost import Breakdown, Given
from .decisions import Choices
from .llvm import version as llvm
from .llvm.calls import Bound
from .opencl import version as opencl
from .opencl.devices import Device
from .opencl.profile import profiled
from .profile import Profile
from .runtime import default_threads
from .transformations import Transformations


@dataclass(frozen=True)
class LLVM:
    """Machine code for the cores of this machine."""

    threads: int | None
    checks: bool
    flush: bool
    allowed: Transformations
    debug: frozenset[str]  # see ``debugged``
    cpu: str | None = None  # a level of processors; None: this one

    def version(self, instance: Instance, leaves: Sequence[Any] | None = None) -> llvm.Version:
        """The code of an instance, made on first use and kept with it; one for any number of threads.

        With the leaves of a call's arguments, what this call takes is made with it.
        """
        return _kept(instance, ("llvm", *self._options), lambda: llvm.Version(instance, *self._options, leaves))

    def has(self, instance: Instance) -> bool:
        """Whether there is a version of an instance."""
        return ("llvm", *self._options) in instance.compiled

    @property
    def _options(self) -> tuple[bool, Transformations, bool, frozenset[str], str | None]:
        return self.checks, self.allowed, self.flush, self.debug, self.cpu

    def run(self, version: llvm.Version, leaves: Sequence[Any], out: Any = None) -> Any:
        return version.run(leaves, self.threads, out)

    def bound(self, version: llvm.Version, leaves: Sequence[Any], out: Any) -> Bound:
        return version.bound(leaves, self.threads, out)

    def peak_bytes(self, instance: Instance, leaves: Sequence[Any]) -> int:
        return self.version(instance, leaves).peak_bytes(leaves, self.threads)

    def profile(self, instance: Instance, leaves: Sequence[Any]) -> Profile:
        version, threads = self.version(instance), self.threads or default_threads()
        found, result = version.profile(leaves, threads)
        estimates = version.cost(version.given(leaves), threads).by_number
        return Profile(found.rows, found.seconds, estimates, threads, [*leaves, result])

    def cost(self, instance: Instance, given: Given) -> Breakdown:
        return self.version(instance).cost(given, self.threads)

    def decisions(self, instance: Instance, given: Given) -> Choices:
        return self.version(instance).decisions(given, self.threads)


@dataclass(frozen=True)
class OpenCL:
    """Kernels for a device."""

    device: Device
    checks: bool
    deterministic: bool
    allowed: Transformations

    def version(self, instance: Instance, leaves: Sequence[Any] | None = None) -> opencl.Version:
        """The kernels of an instance, made on first use and kept with it: the same for all calls."""
        return _kept(instance, ("opencl", *self._options), lambda: opencl.Version(instance, *self._options))

    def has(self, instance: Instance) -> bool:
        """Whether there is a version of an instance."""
        return ("opencl", *self._options) in instance.compiled

    @property
    def _options(self) -> tuple[Device, bool, bool, Transformations]:
        return self.device, self.checks, self.deterministic, self.allowed

    def run(self, version: opencl.Version, leaves: Sequence[Any], out: Any = None) -> Any:
        if out is not None:
            raise ValueError(at_line('out= is for backend="llvm"'))
        return version.run(leaves)

    def peak_bytes(self, instance: Instance, leaves: Sequence[Any]) -> int:
        return self.version(instance).peak_bytes(leaves)

    def profile(self, instance: Instance, leaves: Sequence[Any]) -> Profile:
        version = self.version(instance)
        found, estimates = profiled(version, leaves), version.cost(version.given(leaves)).by_number
        return Profile(found.rows, found.seconds, estimates, None, [])

    def cost(self, instance: Instance, given: Given) -> Breakdown:
        return self.version(instance).cost(given)

    def decisions(self, instance: Instance, given: Given) -> Choices:
        return self.version(instance).decisions(given)


Backend = LLVM | OpenCL
V = TypeVar("V")


def _kept(instance: Instance, key: tuple[Any, ...], make: Callable[[], V]) -> V:
    found: V | None = instance.compiled.get(key)
    if found is None:
        with lifted_limits(), compiling(instance.program.name):
            found = instance.compiled[key] = make()
    return found
