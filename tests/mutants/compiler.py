"""Mutants of the compiler, drawn at random: an off-by-one, another comparison, a condition that is not asked.

A mutation changes one place in the syntax tree of a module of ``backends/``, as one does who mistypes it:

    compared    ``<`` is ``<=``, ``==`` is ``!=``, ``in`` is ``not in``, and the other way round
    left only   ``x and y``, ``x or y``, ``x + y``, ``x if test else y``: the second part is left out
    right only  the same: the first is left out
    other       ``x - y`` is ``x + y``, ``min`` is ``max``, ``any`` is ``all``, "less" is "less_equal", and so on
    negated     ``not x`` is ``x``
    off by one  a whole number is one more
    dropped     a statement that is a call is left out

Left alone are what stands in a ``raise`` or an ``assert``, default arguments, and what is made for people to read.
What the compiler may do wrong is seen in programs: their results, their bits on several threads, the memory that they
plan, and where they read and write. So no test of a module's own functions is run against these mutants.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutations import Kind

SEED, COUNT = 18, 400
# Modules whose mistakes no program shows: text for people, the other target, and what only measures.
NO_PROGRAM_SHOWS = (
    "__init__", "printer", "summary", "checker", "specialisations", "host", "primitives", "transformations",
)  # fmt: skip
# Files of tests that compile programs and look at what they do.
TESTS = (
    "test_arguments", "test_borders", "test_bounds", "test_branches", "test_calls", "test_checkpoint",
    "test_common_subexpressions", "test_commutativity", "test_compile", "test_computed_sizes", "test_contractions",
    "test_deep_nests", "test_disk_cache", "test_distribution", "test_elementary", "test_full_unrolling", "test_golden",
    "test_grids", "test_groups", "test_in_place", "test_index_set_shifting", "test_index_set_splitting",
    "test_invariant_motion", "test_kernels", "test_long_programs", "test_loop_fusion", "test_materialisation",
    "test_memory", "test_nest_fusion", "test_nesting", "test_neutral_elements", "test_opencl_corners",
    "test_opencl_programs", "test_outlining", "test_pairwise_summation", "test_prefetching", "test_primitives",
    "test_random_programs", "test_reassociation", "test_regrouping", "test_results", "test_scattered_to_one_place",
    "test_skewed_rows", "test_small_sizes", "test_specialisations", "test_square_products", "test_subnormals",
    "test_tiled_fusion", "test_time_skewing", "test_transformations", "test_unrolling",
)  # fmt: skip

# Mutants that mean the same as the original, or choose at another cost, each with its reason, by key (equivalent.py);
# it need not be drawn.
EQUIVALENT: dict[object, str] = {
    (
        "backends/lowering/factors.py", "sum_of", "right only",
        "initial != ir.Constant(zero(initial.type), initial.type) or not all((isinstance(s, ir.Let) for s in lets))",
    ): "what adds up starts from its neutral element, 0",
    ("backends/lowering/lanes.py", "in_memory_order.before", "compared", "name in each"): (
        "in which order loops run: a matter of cost"
    ),
    (
        "backends/lowering/updates.py", "accumulates", "left only",
        "binding.op == 'add_to' or any(map(accumulates, binding.blocks))",
    ): "what branches that only check have for several threads: a matter of cost",
    ("backends/schedule/terms/reassociation.py", "_Plan._inside", "compared", "source.free <= self.outside"): (
        "what uses all arguments is taken for a part of what uses it: which sums are found, a matter of cost"
    ),
    ("backends/lowering/totals.py", "_along_lanes", "left only", "start + lane if start != ZERO else lane"): (
        "0 is added"
    ),
    (
        "backends/schedule/loops/index_set_splitting.py", "_Lanes.sides", "other",
        "any((each.type != i64 for each in e.arguments))",
    ): (
        "both operands have one type"
    ),
    (
        "backends/schedule/loops/index_set_splitting.py", "_Lanes.of_access", "left only",
        "not isinstance(part, ir.Load | ir.Store) or not part.guarded or (not self.row(part.indices))",
    ): "more conditions for the inside of strips: a matter of cost",
    ("backends/llvm/calls.py", "_CallFrame.__init__", "other", "len(types) - objects"): "more room than is used",
    ("backends/schedule/loops/index_set_splitting.py", "_Lanes.tests", "compared", "each.step < 0"): (
        "what a row decides is asked by itself, too: fewer strips lie inside, a matter of cost"
    ),
    (
        "backends/schedule/loops/index_set_splitting.py", "_Lanes.room", "other",
        "max(low, 0)",
    ): "whether strips are split: a matter of cost",
    (
        "backends/schedule/nests/common_subexpressions.py", "_Sharing.keeps", "right only",
        "filled and [ir.Allocate(filled)] in made",
    ): (
        "nothing allocates what is no buffer"
    ),
    ("backends/llvm/values.py", "Widening.last", "other", "self.lanes - 1"): (
        "strips inside of all borders are found by their last lane: one beyond it finds fewer, a matter of cost"
    ),
    (
        "backends/schedule/terms/materialisation.py", "_Recurring.stored", "off by one",
        "0",
    ): "each of the nodes computes the same",
    ("backends/lowering/pieces.py", "Pieces.merge_in_pairs", "compared", "width < count"): (
        "one turn more, of no pairs"
    ),
    (
        "backends/ir/rewriting.py", "map_block", "dropped",
        "made.append(Kernel(called, map_block(inner, expression, store, buffer, name)))",
    ): "kernels are made last, and no pass maps what they are in",
    (
        "backends/lowering/grids.py", "_segments", "compared",
        "_reading(found, loops[-1].variable.name) <= 2 * _reading(found, lane)",
    ): "chooses a form, at another cost",
    ("backends/ir/sizes.py", "total", "right only", "whole + term"): (
        "totals of arrays choose who shares work: a matter of cost"
    ),
    ("backends/opencl/kernels.py", "_Splitter.ahead", "off by one", "1"): (
        "how many turns are run ahead of a test: a matter of cost"
    ),
    (
        "backends/lowering/groups.py", "Groups.row", "other",
        "max([row for row in GROUP_ROW_LENGTHS if (row + 1) * slot <= self.target.shared_bytes], default=0)",
    ): "rows of another length: a matter of cost",
    (
        "backends/lowering/lower.py", "Lowering.direct", "dropped",
        "direct.setdefault(level - 1 - operand.index, place)",
    ): "the array is made elsewhere and copied, at more cost",
    ("backends/lowering/combining.py", "_outside", "compared", "atom.index >= depth"): (
        "parts of arrays are copied, at more cost"
    ),
    (
        "backends/lowering/nests.py", "_worth_copying", "dropped",
        "elements.append(ir.product([extent for k, extent in enumerate(access.buffer.extents) if k != axis]))",
    ): "chooses whether an array is copied, at another cost",
    ("backends/llvm/frames.py", "Frame.__init__", "off by one", "1"): (
        "room for no arena is any number below 0; with the number of a word off by one no call works"
    ),
    ("backends/llvm/text.py", "Body.remainder", "off by one", "0"): "the general way gives the same",
    ("backends/lowering/lanes.py", "_sized", "left only", "wanted.copies or sized.copies if sized.jam else 1"): (
        "without a jam nobody asks how many copies it has"
    ),
    (
        "backends/lowering/lanes.py", "_that_registers_hold", "left only",
        "replace(choice, strip=lanes, copies=lanes) if choice.jam else replace(choice, strip=strip_of(found, target))",
    ): "chooses a strip, at another cost",
    (
        "backends/lowering/state.py", "_States.leave", "left only",
        "isinstance(held, ir.Variable) and (not isinstance(value, ArrayRef))",
    ): "the next value of a scalar is a scalar",
    ("backends/lowering/partial_evaluation.py", "Straight._statement", "compared", "self.steps > UNROLLING_STEPS"): (
        "a bound on the work of the pass, which is about right"
    ),
    ("backends/compiled.py", "Compiled.__call__", "right only", "self._leaves and (not kwargs)"): (
        "other numbers of arguments have no key"
    ),
    (
        "backends/schedule/loops/tiled_fusion.py", "_Chunks.of", "left only",
        "isinstance(inner, ir.For) and inner.kind == 'lanes'",
    ): (
        "a loop in order that counts through a chunk does so, too"
    ),
    ("backends/llvm/text.py", "Body.once", "left only", "self._first.get(key) or self._known.get(key)"): (
        "an instruction is written again, and LLVM drops it"
    ),
    ("backends/llvm/stored.py", "_own_sources", "dropped", "folders.sort()"): (
        "the folders of one disk come in one order; in another one, code is made anew"
    ),
    ("backends/lowering/scans.py", "Scans.scan", "right only", "self.inside > 0 or unknown or self.small(size)"): (
        "what is inside of a loop is so without this, too"
    ),
    (
        "backends/lowering/arrays.py", "Arrays.enter", "right only",
        "len(block.binders) + sum((len(binding.types) for binding in block.bindings[:-1]))",
    ): "no inner extent varies with an outer index: such arrays are refused as irregular",
    ("backends/lowering/unrolling.py", "_constants", "left only", "before is None or repr(before) == repr(only)"): (
        "a buffer that gets its constant twice is read, at more cost"
    ),
    ("backends/lowering/privatisation.py", "private_accumulators", "compared", "worth >= 2"): (
        "chooses whether copies are made, at another cost"
    ),
    (
        "backends/schedule/terms/distribution.py", "_Block.heavy_parts", "left only",
        "len(self.binders) + sum((len(binding.types) for binding in self.bindings))",
    ): "chooses what is stored, at another cost",
    (
        "backends/schedule/terms/materialisation.py", "_recurring", "right only",
        "whole >= MATERIALISED_WORTH and (node.op == 'reduce' or (node.op == 'primitive' and is_costly(node)))",
    ): "chooses what is stored, at another cost",
    ("backends/lowering/survey.py", "survey.visit", "compared", "weight == 1.0"): (
        "an estimate of work that chooses at another cost"
    ),
    (
        "backends/schedule/terms/distribution.py", "_Distribute.wanted", "left only",
        "body.wanted(around) if body.read else frozenset()",
    ): "where nothing is read nothing is wanted",
    ("backends/llvm/assemble.py", "_optimised", "compared", "DEEP in text"): (
        "how much LLVM optimises: a matter of cost"
    ),
    (
        "backends/schedule/terms/distribution.py", "_Block.wanted", "left only",
        "level >= 0 and count > _elements(types[level])",
    ): (
        "chooses what is stored, at another cost"
    ),
    (
        "backends/schedule/loops/prefetching.py", "_simple", "left only",
        "len(loads) > 1 or len(parts) > PREFETCH_INDEX_PARTS * (1 + len(loads))",
    ): (
        "chooses what is prefetched, at another cost"
    ),
    (
        "backends/schedule/terms/neutral_elements.py", "_primitive", "left only",
        "{a.index, b.index} == {0, 1} and operator.results == (Variable(0, x.types[0]),)",
    ): "the one operation of an operator is its result: what nobody uses is not there",
    ("backends/lowering/lanes.py", "_side", "other", "max(names, key=names.count, default=None)"): (
        "chooses a jam, at another cost"
    ),
    (
        "backends/schedule/loops/tiled_fusion.py", "_Chunks.with_own", "right only",
        "len(extents) > 1 and axis == len(extents) - 1",
    ): (
        "padding, which an array of one axis does not need"
    ),
    (
        "backends/schedule/terms/distribution.py", "_Block.elements", "left only",
        "sum([_room(type) for k in cuts for type in self.bindings[k].types]) + self.stored",
    ): "chooses what is stored, at another cost",
    (
        "backends/schedule/terms/distribution.py", "_Block.cuts", "right only",
        "start in used and (not operation.loops)",
    ): (
        "chooses what is stored, at another cost"
    ),
    ("backends/llvm/function.py", "Emitter._while", "dropped", "self.forget(statement.head)"): (
        "names are bound once, and the checker refuses reads of those out of scope"
    ),
    (
        "backends/schedule/nests/common_subexpressions.py", "_Sharing.keeps", "right only",
        "value.range.whole or range.whole",
    ): (
        "less is shared, at more cost"
    ),
    (
        "backends/lowering/lower.py", "Lowering.cond", "left only",
        "not op.types and (not self.target.group) and (not any(map(accumulates, op.blocks)))",
    ): "whether threads share a branch that gives nothing: a matter of cost",
    ("backends/lowering/regrouping.py", "regrouped", "compared", "len(kept) < len(loops)"): (
        "a nest in two where nothing is saved: a matter of cost"
    ),
    ("backends/lowering/privatisation.py", "_over", "off by one", "1"): "which loop is lanes: a matter of cost",
    ("backends/lowering/combining.py", "_gives", "other", "count - 1"): (
        "no operator is known to go element by element, so more is copied"
    ),
    (
        "backends/lowering/partial_evaluation.py", "Straight._safe", "left only",
        "isinstance(index, ir.Constant) and isinstance(extent, ir.Constant) and (0 <= index.value < extent.value)",
    ): "a number as an index is guarded, or in range wherever the loop runs",
    (
        "backends/lowering/regrouping.py", "_two", "right only",
        "ir.MultiplyAdd(a, b, result, type) if sum.fused else result + a * b",
    ): "the product is rounded before it is added, at more cost",
    ("backends/schedule/terms/distribution.py", "_Block.wanted", "right only", "counts.get(level, 0) + count"): (
        "chooses what is stored, at another cost"
    ),
    ("backends/schedule/terms/shared_updates.py", "together", "dropped", "_count(found.setdefault(place, {}), read)"): (
        "chooses what is stored, at another cost"
    ),
    ("backends/lowering/combining.py", "_part", "off by one", "1"): "parts of arrays are copied, at more cost",
    ("backends/llvm/outlining.py", "Function.block", "dropped", "self.forget(block)"): (
        "names are bound once, and the checker refuses reads of those out of scope"
    ),
    ("backends/llvm/elementary/logarithm.py", "log1p", "right only", "1.0 - (total - back) + (x - back)"): (
        "the first part is 0 below 2 to the number of digits, and is lost in the result above"
    ),
    ("backends/llvm/branches.py", "Branches._look", "dropped", "self._look(orelse, path, around)"): (
        "what is inside is compiled at once, at more cost"
    ),
    (
        "backends/schedule/loops/traversals.py", "_parts", "left only",
        "(divide.name, subtract.name, add.name) == ('floor_divide', 'subtract', 'add') and size == by",
    ): "the size that rounds up is the one that divides: no pass counts otherwise",
    ("backends/llvm/text.py", "_wrapped", "off by one", "64"): "LLVM takes the lower 64 bits of a longer constant",
    ("backends/schedule/loops/prefetching.py", "_simple", "compared", "len(loads) > 1"): (
        "chooses what is prefetched, at another cost"
    ),
    ("backends/lowering/requirements.py", "_wrong", "left only", "fails if when is None else when & fails"): (
        "where nothing fails, the loop that looks for a failure finds none: a matter of cost"
    ),
}  # fmt: skip

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any"}
_OTHER_TEXT = {
    "less": "less_equal", "less_equal": "less", "minimum": "maximum", "maximum": "minimum",
    "logical_and": "logical_or", "logical_or": "logical_and", "equal": "not_equal", "floor_divide": "multiply",
}  # fmt: skip


def kinds(node: ast.AST) -> Iterator[Kind]:
    """What may be wrong at a node: the kind of a mutation, and what stands there instead."""
    match node:
        case ast.Expr(value=ast.Call()):
            yield "dropped", ast.Pass
        case ast.Compare(left=left, ops=[operator], comparators=others):
            yield "compared", lambda: ast.Compare(left, [_COMPARED[type(operator)]()], others)
        case ast.BoolOp(values=[first, *others], op=operator):
            yield "left only", lambda: first
            yield "right only", lambda: others[0] if len(others) == 1 else ast.BoolOp(operator, others)
        case ast.BinOp(op=ast.Add(), left=x, right=y) if not _is_text_or_list(x, y):
            yield "left only", lambda: x
            yield "right only", lambda: y
        case ast.BinOp(op=ast.Sub(), left=x, right=y):
            yield "other", lambda: ast.BinOp(x, ast.Add(), y)
        case ast.IfExp(body=x, orelse=y) if not _is_text_or_list(x, y):
            yield "left only", lambda: x
            yield "right only", lambda: y
        case ast.UnaryOp(op=ast.Not(), operand=x):
            yield "negated", lambda: x
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in _OTHER_NAME:
            yield "other", lambda: ast.Call(ast.Name(_OTHER_NAME[name], ast.Load()), arguments, keywords)
        case ast.Constant(value=str(text)) if text in _OTHER_TEXT:
            yield "other", lambda: ast.Constant(_OTHER_TEXT[text])
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(number)):
            yield "off by one", lambda: ast.Constant(number + 1)


def _is_text_or_list(*nodes: ast.expr) -> bool:
    texts = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple, ast.Dict)
    return any(
        isinstance(node, texts) or (isinstance(node, ast.Constant) and isinstance(node.value, str)) for node in nodes
    )
