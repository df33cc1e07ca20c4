"""The pipeline: what a program goes through from its term to checked loops, in this order, on every target.

======  ========================================  ============================================================
on      pass (and its switch in ``schedule=``)    module
======  ========================================  ============================================================
terms   legalise                                  ``schedule/terms/legalisation.py``
        verify neutral elements                   ``schedule/terms/neutral_elements.py``
        simplify                                  ``interpreters/simplify/``
        decide checks of indices                  ``schedule/terms/bounds_checks.py``
        ``materialise``                           ``schedule/terms/materialisation.py``
        ``distribute``                            ``schedule/terms/distribution.py``
        ``reassociate``                           ``schedule/terms/reassociation.py``
        make states together                      ``schedule/terms/joint_states.py``
        order operands, order reads               ``schedule/terms/operand_order.py``, ``interpreters/reads_first.py``
nests   lower                                     ``lowering/lower.py``
        ``fuse``                                  ``schedule/nests/fusion.py``
        ``cse``                                   ``schedule/nests/common_subexpressions.py``
        ``fuse_rows``                             ``schedule/nests/row_blocks.py``
        find what is made element by element      ``schedule/nests/elementwise.py``
loops   give roles to axes                        ``lowering/roles.py``, which names the other switches' modules
        ``fuse_tiles``                            ``schedule/loops/tiled_fusion.py``
        ``hoist``                                 ``schedule/loops/invariant_motion.py``
        ``fuse_loops``                            ``schedule/loops/fusion.py``
        ``memory_order``                          ``schedule/loops/memory_order.py``
        ``prefetch``                              ``schedule/loops/prefetching.py``
        ``split``                                 ``schedule/loops/index_set_splitting.py``
        ``skew``                                  ``schedule/loops/time_skewing.py``
        share memory                              ``schedule/loops/shared_memory.py``
        count quotients and remainders            ``schedule/loops/strength_reduction.py``
        sum pairwise                              ``schedule/loops/pairwise_summation.py``
        shorten recurrences                       ``schedule/loops/height_reduction.py``
        check                                     ``ir/checker.py``
======  ========================================  ============================================================

Targets whose threads come in groups have roles of their own and none of the passes on loops. Where sizes decide which
of two terms is less work, there are two *forms* (``forms.py``); each goes through the rest when a call takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.procedures import procedures_of
from ..core.program import Instance
from ..core.stages import stage
from ..core.terms import Block
from ..interpreters.reads_first import reads_first
from ..interpreters.simplify import simplify
from . import ir
from .decisions import Decisions
from .forms import Form
from .lowering import Lowered, lower, with_roles
from .schedule.loops.fusion import fused_loops
from .schedule.loops.height_reduction import shortened
from .schedule.loops.index_set_splitting import split
from .schedule.loops.invariant_motion import hoisted
from .schedule.loops.memory_order import read_in_order
from .schedule.loops.pairwise_summation import summed_pairwise
from .schedule.loops.prefetching import prefetched
from .schedule.loops.shared_memory import sharing_memory
from .schedule.loops.strength_reduction import stepped
from .schedule.loops.tiled_fusion import summed_in_chunks
from .schedule.loops.time_skewing import skewed
from .schedule.nests.common_subexpressions import without_common_subexpressions
from .schedule.nests.elementwise import elementwise
from .schedule.nests.fusion import fused
from .schedule.nests.row_blocks import in_blocks_of_rows
from .schedule.terms.bounds_checks import decided
from .schedule.terms.distribution import schedule
from .schedule.terms.joint_states import made_together
from .schedule.terms.legalisation import legalised, open_checkpoints
from .schedule.terms.materialisation import materialised
from .schedule.terms.neutral_elements import verified
from .schedule.terms.operand_order import in_order
from .schedule.terms.reassociation import reassociated
from .target import Target

# What nests go through, and loops where threads do not come in groups: the switch of a pass, and the pass.
ON_NESTS: tuple[tuple[str, Callable[[Lowered], Lowered]], ...] = (
    ("fuse", fused),
    ("cse", without_common_subexpressions),
    ("fuse_rows", in_blocks_of_rows),
)
ON_LOOPS: tuple[tuple[str, Callable[[ir.Function, Target, Decisions], ir.Function]], ...] = (
    ("fuse_tiles", lambda function, _, decisions: summed_in_chunks(function, decisions)),
    ("hoist", lambda function, _, decisions: hoisted(function, decisions)),
    ("fuse_loops", lambda function, _, decisions: fused_loops(function, decisions)),
    ("memory_order", read_in_order),
    ("prefetch", prefetched),
    ("split", split),
    ("skew", lambda function, _, decisions: skewed(function, decisions)),
)


def forms_of(instance: Instance, target: Target, checks: bool = True) -> tuple[Form, ...]:
    """Prepare, simplify and schedule a program for a target: one form, or several that sizes choose from.

    ``checks`` keeps its requirements.
    """
    prepared = legalised(instance.term, checks, target.group > 0)
    procedures = {
        each: _forms(legalised(each.block, checks, target.group > 0), target, checks)[-1].block
        for each in procedures_of(prepared)
    }
    return tuple([replace(form, procedures=procedures) for form in _forms(prepared, target, checks)])


def _forms(prepared: Block, target: Target, checks: bool) -> tuple[Form, ...]:
    decisions = Decisions(dict(target.transformations.force))
    with stage("simplify"):
        simplified = decided(simplify(verified(prepared))) if checks else simplify(prepared)
    with stage("schedule terms"):
        if target.transformations.materialise:
            simplified = materialised(simplified, decisions)
        scheduled = schedule(simplified, target.transformations, decisions, target.group > 0)
        if target.transformations.reassociate:
            forms = reassociated(scheduled, target, decisions)
        else:
            forms = (Form(scheduled, decisions=decisions),)
        blocks = [reads_first(in_order(made_together(form.block))) for form in forms]
    return tuple([replace(form, block=block) for form, block in zip(forms, blocks, strict=True)])


def nests_of(form: Form, name: str, target: Target, checks: bool, deterministic: bool = True) -> Lowered:
    """Lower a form of a program for a target to nests, whose points are run in no order yet.

    ``checks`` keeps its requirements; ``deterministic`` asks for the same bits in each run, without atomics.
    """
    procedures = {each: open_checkpoints(block) for each, block in form.procedures.items()}
    block = open_checkpoints(form.block)
    with stage("lower"):
        lowered = lower(block, _identifier(name), target, checks, deterministic, form.decisions, procedures)
    with stage("schedule nests"):
        for switch, rewritten in ON_NESTS:
            if getattr(target.transformations, switch):
                lowered = rewritten(replace(lowered, procedures=tuple(map(rewritten, lowered.procedures))))
    return lowered


def loops_of(form: Form, name: str, target: Target, checks: bool, deterministic: bool = True) -> Lowered:
    """Lower a form of a program for a target to loops; see :func:`nests_of`."""
    lowered = nests_of(form, name, target, checks, deterministic)
    with stage("schedule loops"):
        lowered = replace(lowered, procedures=tuple([_in_loops(each, target) for each in lowered.procedures]))
        lowered = _in_loops(lowered, target)
        lowered = replace(lowered, function=lowered.whole)
        ir.check(lowered.function, groups=target.group > 0)
    return lowered


def _in_loops(lowered: Lowered, target: Target) -> Lowered:
    pairs = elementwise(lowered.function)
    lowered = with_roles(lowered)
    if not target.group:
        for switch, rewritten in ON_LOOPS:
            if getattr(target.transformations, switch):
                lowered = replace(lowered, function=rewritten(lowered.function, target, lowered.decisions))
        lowered = replace(lowered, function=stepped(sharing_memory(lowered.function, pairs)))
    return replace(lowered, function=shortened(summed_pairwise(lowered.function, target)))


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
