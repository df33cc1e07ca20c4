"""How long the kernels of a call took, from the device's own events, as a bar chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .version import Version

_WIDTH = 40  # of the longest bar


@dataclass(frozen=True)
class Timing:
    """A kernel: how often it ran, and for how many seconds in all."""

    kernel: str
    runs: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """The kernels of a call, those that took longest first; ``seconds`` is from the start of the first to the end."""

    kernels: tuple[Timing, ...]
    seconds: float

    def __str__(self) -> str:
        if not self.kernels:
            return "no kernel ran"
        longest = max(timing.seconds for timing in self.kernels)
        name = max(len(timing.kernel) for timing in self.kernels)
        lines = []
        for timing in self.kernels:
            bar = "#" * round(_WIDTH * timing.seconds / longest) if longest else ""
            runs = f" x {timing.runs}" if timing.runs > 1 else ""
            lines.append(f"{timing.kernel:{name}} {1e6 * timing.seconds:12.1f} us {bar}{runs}")
        lines.append(f"{'from first to last':{name}} {1e6 * self.seconds:12.1f} us")
        return "\n".join(lines)

    __repr__ = __str__


def profiled(version: Version, leaves: Sequence[Any]) -> Profile:
    """Run a version and read the times of its kernels."""
    events: list[tuple[str, Any]] = []
    version.run(leaves, events)
    totals: dict[str, list[float]] = {}
    for kernel, event in events:
        event.wait()
        totals.setdefault(kernel, []).append(1e-9 * (event.profile.end - event.profile.start))
    timings = [Timing(kernel, len(times), sum(times)) for kernel, times in totals.items()]
    timings.sort(key=lambda timing: -timing.seconds)
    whole = 1e-9 * (events[-1][1].profile.end - events[0][1].profile.start) if events else 0.0
    return Profile(tuple(timings), whole)
