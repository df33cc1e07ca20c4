"""The reverse pass over a trace: cotangents of what a run started from, out of the values it went through.

A trace (``interpreters/trace/``) is straight-line: no control flow is left, and every value is known. So the return
sweep needs no program of its own. It counts how often each value is used, gives the results their cotangents, and
resolves a step as soon as all that it waits for has arrived:

    a = x * x;  y = x + a       at x = 3, y_bar = 1:    y resolved: x gets 1, a gets 1
                                                        a resolved: x gets 3, and 3:   x_bar = 1 + 3 + 3

No order is fixed beforehand, so steps that do not depend on each other may be resolved by several threads at once. A
step keeps its contributions in slots and sums them in the order of the slots: results are the same bits for any order
and any number of threads. Constructs over arrays are swept for all elements at once (``sweeps.py``).

(van Hus: Maintaining parallelism in reverse-mode automatic differentiation on functional parallel array languages,
section 4.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.environment import Env
from ...core.limits import lifted_limits
from ...core.source import at_line
from ...core.terms import Block
from ...core.types import element, is_float
from ...interpreters.evaluate import Show, print_probe
from ..custom import probe_name
from .constructs import rule_of
from .plan import Plan, Use, make_plan, shape_of
from .sweeps import Scope, State, Sweep


def reverse(
    block: Block,
    inputs: Sequence[Any],
    values: Sequence[Sequence[Any]],
    seeds: Sequence[Any | None],
    workers: int = 1,
    show: Show = print_probe,
    chosen: Sequence[bool] | None = None,
) -> list[Any]:
    """The cotangents of a straight-line block's parameters: one each, None for those that are not floating or chosen.

    ``values`` are the results of the block's steps for these inputs, and ``seeds`` the cotangents of the block's
    results: one each, None for zero and for results that are not floating. ``chosen`` says of which parameters the
    cotangents are wanted (without it, of all). ``workers`` threads resolve steps; no bit depends on their number.
    ``show(name, values)`` is called with the cotangents at probes. Raises Unsupported, with the user's line, when a
    cotangent reaches what has no derivative, and moves.
    """
    wanted = [True] * len(block.binders) if chosen is None else chosen
    if workers < 1:
        raise ValueError(at_line(f"the reverse pass over a trace takes at least one worker, not {workers}"))
    moving = tuple([is_float(type) and moves for type, moves in zip(block.binders, wanted, strict=True)])
    seeds = [_typed(seed, result.type) for seed, result in zip(seeds, block.results, strict=True)]
    probes = _probes(block)
    with np.errstate(all="ignore"), lifted_limits():
        plan = make_plan(block, frozenset(), moving, tuple([seed is not None for seed in seeds]))
        scope = _scope(plan, inputs, values)
        sweeps = [Sweep(rule_of, show, probes) for _ in range(workers)]
        state = State(plan) if workers == 1 else Shared(plan)
        ready = state.begin(seeds)
        if isinstance(state, Shared):
            state.run(sweeps, scope, ready)
        while ready:
            sweeps[0].resolve(scope, state, ready.pop(), ready)
        totals = sweeps[0].wholes(scope, sweeps[0].finish(scope, state)[0])
    return [
        _released(total, scope.values[k], block.binders[k]) if floating else None
        for k, (total, floating) in enumerate(zip(totals, moving, strict=True))
    ]


def _scope(plan: Plan, inputs: Sequence[Any], values: Sequence[Sequence[Any]]) -> Scope:
    """The run that a trace has recorded; environments are kept for the live steps whose rules take one."""
    flat: list[Any] = list(inputs)
    env: Env[Any] = Env().enter(inputs)
    environments = {}
    for k, results in enumerate(values):
        if plan.uses[k] is not None and plan.rules[k] is None and plan.block.bindings[k].op != "index":
            environments[k] = env
        flat.extend(results)
        env = env.extend(results)
    return Scope(plan, flat, environments, Env())


def _typed(seed: Any, type: Any) -> Any:
    """A cotangent as an array or number of the scalar type of what it belongs to."""
    return None if seed is None or not is_float(type) else np.asarray(seed, element(type).dtype)[()]


def _released(total: Any, value: Any, type: Any) -> Any:
    """A cotangent with memory of its own; zeros where nothing arrived."""
    if total is None:
        return np.zeros(shape_of(type, value), element(type).dtype)[()]
    return np.array(total, element(type).dtype, order="C")[()]


def _probes(block: Block) -> dict[str, str]:
    """The names of probes, with those under which their cotangents are shown."""
    names, todo = set(), [block]
    while todo:
        for operation in todo.pop().bindings:
            if operation.op == "probe":
                names.add(operation.static[0])
            todo.extend(operation.blocks)
    return {name: probe_name(name, "cotangent", names) for name in names}


class Shared(State):
    """The state of a sweep by several threads: each resolves steps that are ready, until none is left.

    A worker goes on with one of the steps that it has made ready, and leaves the others to whoever is free (van Hus,
    section 4.4). Slots belong to one contribution each; the counters of what steps wait for are behind a lock.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.lock = threading.Condition()
        self.ready: list[int] = []
        self.busy = 0
        self.failure: BaseException | None = None

    def run(self, sweeps: Sequence[Sweep], scope: Scope, ready: list[int]) -> None:
        """Resolve these steps and all that become ready; the calling thread is one of the workers."""
        self.ready, self.busy = list(ready), len(sweeps)
        ready.clear()
        threads = [threading.Thread(target=self._work, args=(sweep, scope), daemon=True) for sweep in sweeps[1:]]
        for thread in threads:
            thread.start()
        self._work(sweeps[0], scope)
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def fill(self, uses: Sequence[Use], contributions: Sequence[Any], ready: list[int]) -> None:
        with self.lock:
            super().fill(uses, contributions, ready)

    def _work(self, sweep: Sweep, scope: Scope) -> None:
        try:
            with np.errstate(all="ignore"):
                own: list[int] = []
                while self._next(own):
                    sweep.resolve(scope, self, own.pop(), own)
        except BaseException as error:
            with self.lock:
                self.failure = self.failure or error
                self.lock.notify_all()

    def _next(self, own: list[int]) -> bool:
        """Keep one step to resolve, or take one, and leave all others to be taken; False when nothing is left to do."""
        with self.lock:
            if own and self.failure is None:
                if len(own) > 1:
                    self.ready.extend(own[:-1])
                    self.lock.notify(len(own) - 1)
                    del own[:-1]
                return True
            self.busy -= 1
            while self.failure is None:
                if self.ready:
                    own.append(self.ready.pop())
                    self.busy += 1
                    return True
                if self.busy == 0:
                    self.lock.notify_all()
                    return False
                self.lock.wait()
            return False
