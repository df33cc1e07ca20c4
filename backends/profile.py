"""Profiles: how long each nest of a call took, beside its estimate and the roofline of this machine.

    nest                               us  estimate  operations    bytes  at best (roofline)
    result3: parallel (model.py:12)  480.1     431.0       2e+06  3.2e+07  max(2e6 / 86e9, 3.2e7 / 75e9) = 427 us

Times are measured, and so is the roofline, when it is first asked for. Operations and bytes are those of the estimate
(``cost.py``): for a nest whose loops data decides, they are as good as the estimate is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from . import roofline
from .cost import Breakdown, Row
from .roofline import Roofline
from .roofline_chart import Chart, chart
from .tables import table, us


@dataclass(frozen=True, repr=False, eq=False)
class Profile(Breakdown):
    """What the nests of a call took, or the kernels of a device, those that take longest first.

    ``estimates`` are the seconds that were estimated, by the numbers of rows; ``threads`` is None on a device, and
    ``values`` are the arguments and results of the call.
    """

    estimates: Mapping[int, float]
    threads: int | None
    values: Sequence[Any]

    @cached_property
    def roofline(self) -> Roofline | None:
        """The rates that this machine has for such a call, measured once a process; None on a device."""
        return None if self.threads is None else roofline.around(self.threads, self.values)

    def at_best(self, row: Row) -> float | None:
        """The least seconds for the operations and bytes of a nest; None where there is no roofline."""
        return None if self.roofline is None else self.roofline.seconds(row.operations, row.bytes)

    def plot(self) -> Chart:
        """The nests below the roofline, as a picture, which a notebook shows: ``profile.plot().save("roofline.svg")``.

        A nest is a disk, the larger the more of the time it takes: from left to right by its operations for a byte, and
        upwards by its operations a second. RuntimeError on a device, whose roofline is not measured.

        >>> import adze as az, numpy as np
        >>> @az.program
        ... def total(x: az.Array[az.f64, "n"]) -> az.f64:
        ...     return az.sum(az.exp(x))
        >>> picture = az.compile(total, threads=1).profile(np.ones(100_000)).plot()
        >>> picture.svg.startswith("<svg"), "operations a byte" in picture.svg
        (True, True)
        """
        if self.roofline is None:
            raise RuntimeError("the roofline of a device is not measured: there is nothing to plot its kernels below")
        return chart(self.rows, self.roofline)

    def __str__(self) -> str:
        rows = []
        for row in self.rows:
            estimate = us(self.estimates[row.number]) if row.number in self.estimates else ""
            counts = f"{row.operations:.3g}", f"{row.bytes:.3g}", f"{row.runs:.0f}"
            rows.append((row.title, us(row.seconds), estimate, *counts))
        heads = ["us", "estimate", "operations", "bytes", "runs"]
        return table(heads, [*rows, ("in all", us(self.seconds))])

    __repr__ = __str__
