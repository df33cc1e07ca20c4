"""``adze devices``: the OpenCL devices of this machine, and whether each builds and runs a kernel."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from ..backends.opencl.devices import NO_PLATFORM, Device, devices
from ..core.progress import shown
from .command import Command
from .report import Line, Part, Report, Table


def _devices(options: Namespace) -> Report:
    with shown("asking the drivers"):
        rows = [described(device) for device in devices()]
    parts: list[Part] = [
        Table(
            ("", "name", "kind", "platform", "units", "memory", "f64", "state"),
            [_row(row) for row in rows],
            "rlllrrlf",
        )
    ]
    if not rows:
        parts = [Line(NO_PLATFORM)]
    return Report({"devices": rows}, parts)


def described(device: Device) -> dict[str, Any]:
    """What is told of a device; ``problem`` is None where a kernel was built and run."""
    return {
        "index": device.index,
        "name": device.name,
        "kind": device.kind,
        "platform": device.platform,
        "driver": device.driver,
        "compute_units": device.compute_units,
        "memory": device.memory,
        "f64": device.double,
        "problem": device.problem,
    }


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    memory, double = f"{row['memory'] / 2**30:.1f} GiB", "yes" if row["f64"] else "no"
    state = "usable" if row["problem"] is None else row["problem"]
    return (
        f"{row['index']}",
        row["name"],
        row["kind"],
        row["platform"],
        f"{row['compute_units']}",
        memory,
        double,
        state,
    )


def _no_options(parser: ArgumentParser) -> None:
    """There are none."""


DEVICES = Command("devices", "List the OpenCL devices, and try each.", _devices, _no_options)
