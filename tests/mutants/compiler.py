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
    "__init__", "printer", "outline", "checker", "specialisations", "host", "spelling", "transformations",
)  # fmt: skip
# Files of tests that compile programs and look at what they do.
TESTS = (
    "test_arguments", "test_bounds_checks", "test_branches", "test_calls", "test_checkpoint", "test_chunking",
    "test_commuting", "test_compile", "test_computed_sizes", "test_contractions", "test_deep_nests", "test_disk_cache",
    "test_elementary", "test_fusion", "test_golden", "test_hoisting", "test_in_place", "test_index_set_shifting",
    "test_localising", "test_long_programs", "test_memory", "test_nesting", "test_neutral_elements", "test_pairwise",
    "test_pieces", "test_prefetching", "test_primitives", "test_random_programs", "test_reassociating",
    "test_regrouping", "test_results", "test_reusing", "test_scattered_to_one_place", "test_schedule", "test_sharing",
    "test_small_sizes", "test_specialisations", "test_square_products", "test_straight", "test_subnormals",
    "test_transformations", "test_unrolling",
)  # fmt: skip

# Mutants that mean the same as the original, or choose at another cost, each with its reason, by key (equivalent.py).
EQUIVALENT: dict[object, str] = {}

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
