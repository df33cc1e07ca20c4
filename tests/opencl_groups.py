"""A device whose groups are small and few, so that small inputs come to all phases of what groups do.

The device is the one of the tests, under another name; only what the scheduler may know of it is different.

    with groups(opencl, size=4, threads=32) as device:
        az.compile(program, backend="opencl", device=device)(*arguments)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adze.backends.opencl.devices import Device
    from adze.backends.target import Target


@contextmanager
def groups(device: Device, size: int, threads: int) -> Iterator[Device]:
    """The device with groups of so many threads, of which so many are at work at a time."""
    from adze.backends.opencl import run, version

    own = replace(device, driver=f"{device.driver}, {threads} threads in groups of {size}")
    before = run.target_of

    def target_of(asked: Device) -> Target:
        target = before(device if asked == own else asked)
        return replace(target, group=size, threads=threads) if asked == own else target

    run.target_of = version.target_of = target_of
    try:
        yield own
    finally:
        run.target_of = version.target_of = before
