"""Drawing again until a number is accepted, and searching for one.

Each trial of an element has a block of words of its own, by its number. So how often one element is drawn again changes
nothing for the others, and a loop over trials is a part of the element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.combinators import while_loop
from ...core.expr import as_expr
from ...core.types import Scalar, u32

Trial = Callable[[Any], tuple[Any, Any]]


def accepted(scalar: Scalar, trial: Trial) -> Any:
    """The value of the first trial that is accepted: ``value, accepted = trial(number)`` (von Neumann 1951).

    Who calls sees to it that trials are accepted with some probability, whatever the parameters are.
    """

    def step(state: Any) -> Any:
        number, _, _ = state
        return number + as_expr(1).astype(u32), *trial(number)

    start = as_expr(0).astype(u32), as_expr(0).astype(scalar), as_expr(False)
    state: Any = while_loop(lambda state: ~state[2], step, start)
    return state[1]
