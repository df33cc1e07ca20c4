"""How long the kernels of a call took, from the device's own events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..cost import Breakdown, measured
from .version import Version


def profiled(version: Version, leaves: Sequence[Any]) -> Breakdown:
    """Run a version and read the times of its kernels; the whole is from the start of the first to the end."""
    events: list[tuple[str, Any]] = []
    version.run(leaves, events)
    seconds: dict[str, list[float]] = {}
    for kernel, event in events:
        event.wait()
        seconds.setdefault(kernel, []).append(1e-9 * (event.profile.end - event.profile.start))
    whole = 1e-9 * (events[-1][1].profile.end - events[0][1].profile.start) if events else 0.0
    rows = [row for row in version.cost(version.given(leaves)).rows if row.name in seconds]
    spent = [sum(seconds[row.name]) for row in rows]
    return Breakdown.of(measured(rows, spent, [len(seconds[row.name]) for row in rows]), whole)
