"""The stages that all targets share: from an instance of a program to the loop IR, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.program import Instance
from ..interpreters.reads_first import reads_first
from ..interpreters.simplify import simplify
from . import ir
from .bounds_checks import decided
from .chunking import summed_in_chunks
from .forms import Form
from .fusion import fused
from .hoisting import hoisted
from .localising import localised
from .lowering import Lowered, lower, with_roles
from .neutral import verified
from .operand_order import in_order
from .pairwise import summed_pairwise
from .prefetching import prefetched
from .prepare import open_checkpoints, prepare
from .reassociating import reassociated
from .reusing import reused
from .schedule import schedule
from .sharing import shared
from .splitting import split
from .target import Target

# What the loop IR goes through, in this order, where threads do not come in groups: the transformation by which a pass
# is switched off, and the pass.
PASSES: tuple[tuple[str, Callable[[ir.Function, Target], ir.Function]], ...] = (
    ("chunk", lambda function, _: summed_in_chunks(function)),
    ("hoist", lambda function, _: hoisted(function)),
    ("localise", lambda function, _: localised(function)),
    ("prefetch", prefetched),
    ("split", split),
)


def forms_of(instance: Instance, target: Target, checks: bool = True) -> tuple[Form, ...]:
    """Prepare, simplify and schedule a program for a target: one form, or several that sizes choose from.

    ``checks`` keeps its requirements.
    """
    decisions: list[str] = []
    prepared = prepare(instance.term, checks)
    simplified = decided(simplify(verified(prepared))) if checks else simplify(prepared)
    if target.transformations.reuse:
        simplified = reused(simplified)
    scheduled = schedule(simplified, target.transformations, decisions, target.group > 0)
    if target.transformations.reassociate and not target.group:
        forms = reassociated(scheduled)
    else:
        forms = (Form(scheduled),)
    blocks = [reads_first(in_order(form.block)) for form in forms]
    found = zip(forms, blocks, strict=True)
    return tuple([replace(form, block=b, decisions=(*decisions, *form.decisions)) for form, b in found])


def nests_of(form: Form, name: str, target: Target, checks: bool, deterministic: bool = True) -> Lowered:
    """Lower a form of a program for a target to nests, whose points are run in no order yet.

    ``checks`` keeps its requirements; ``deterministic`` asks for the same bits in each run, without atomics.
    """
    lowered = lower(open_checkpoints(form.block), _identifier(name), target, checks, deterministic)
    allowed = target.transformations
    lowered = fused(lowered) if allowed.fuse else lowered
    return shared(lowered) if allowed.share else lowered


def loops_of(form: Form, name: str, target: Target, checks: bool, deterministic: bool = True) -> Lowered:
    """Lower a form of a program for a target to loops; see :func:`nests_of`."""
    lowered = with_roles(nests_of(form, name, target, checks, deterministic))
    if not target.group:
        for transformation, rewritten in PASSES:
            if getattr(target.transformations, transformation):
                lowered = replace(lowered, function=rewritten(lowered.function, target))
    lowered = replace(lowered, function=summed_pairwise(lowered.function, target))
    ir.check(lowered.function, groups=target.group > 0)
    return replace(lowered, decisions=list(dict.fromkeys([*form.decisions, *lowered.decisions])))


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
