"""Mutants that mean the same as the original, each with the reason.

A key is what is changed: the name of a primitive and the number of an operand; or the file, the function, the kind of
the change and the code that it changes, as ``ast.unparse`` writes it. A key that fits no mutant any more fails the run.
"""

from __future__ import annotations

EQUIVALENT: dict[object, str] = {
    (
        "ad/reverse_functions.py", "ReverseFunctions._occasions", "left only",
        "[(False,), (True,)] if any(map(_is_checked, _reached(procedure))) else [(True, False)]",
    ): "two functions where one would do: a matter of cost",
    (
        "ad/reverse_functions.py", "ReverseFunctions._apart.pull", "left only",
        "emit_blocks(b, 'par', (), [], sweeps) if sweeps else []",
    ): "a fork without branches gives nothing",
    ("ad/cells.py", "Cell._place", "left only", "scopes.index(self.scope) + 1"): (
        "fewer indices are known outside: a matter of cost"
    ),
    ("ad/cells.py", "Cell._place", "right only", "scopes.index(self.scope) + 1"): "the same",
    (
        "ad/side_by_side.py", "SideBySide.many", "right only",
        "Dual(primal) if first is None else Many(primal, first, tangents=tuple(found))",
    ): "a value whose tangents are all zero does not move",
    (
        "ad/side_by_side.py", "SideBySide.combination.run", "left only",
        "plain.run(env, active) if sums is None else sums",
    ): "direction by direction: a matter of cost, as what follows in this file",
    ("ad/side_by_side.py", "SideBySide._sums", "left only", "[rest] if rest else []"): "a sum of nothing",
    (
        "ad/side_by_side.py", "SideBySide.primitive.run", "right only",
        "Dual(y) if _is_zero(coefficient) else Many(y, _first(tangents), None, tangents, coefficient)",
    ): "zero times the tangents",
    ("ad/side_by_side.py", "SideBySide.generate.run", "negated", "count * math.prod(shape)"): "more is written out",
    (
        "ad/side_by_side.py", "SideBySide._element", "left only",
        "self._read(value, [self.builder.literal(place, i64) for place in places]) if places else value",
    ): "an element at no place is the value",
    ("ad/side_by_side.py", "SideBySide.loop", "left only", "together if self.together else alone"): "one loop, or more",
    ("ad/side_by_side.py", "SideBySide.loop", "right only", "together if self.together else alone"): "the same",
    ("ad/side_by_side.py", "_count", "none", "count if count <= SMALL else None"): "nothing is written out",
    ("ad/forward.py", "Forward.block.run", "left only", "origin.derived if any(active) else origin"): (
        "origins say which neutral elements compiled code verifies; what is evaluated verifies all"
    ),
    ("ad/forward.py", "Forward.block.run", "right only", "origin.derived if any(active) else origin"): "the same",
    ("ad/cells.py", "Cell.add", "dropped", "self._follow()"): (
        "cotangents added in a branch go through an accumulator outside of it instead: a matter of cost"
    ),
    ("ad/cells.py", "Cell.add_at", "dropped", "self._follow()"): "as in Cell.add",
    ("ad/reverse_reductions.py", "Reduction.pull", "left only", "[lambda i: added] if _any(added) else []"): (
        "a way in which no cotangent comes adds nothing"
    ),
    (
        "ad/forward.py", "Forward.block.run", "dropped",
        "name_arguments([dual.primal for dual in arguments], names)",
    ): "names are for people",
    ("ad/boundary.py", "Parting._fields", "dropped", "name_arguments([value], ['value'])"): "names are for people",
    (
        "ad/boundary.py", "Parting._fields.made", "dropped",
        "name_arguments(fields, list(named.fields(variant)))",
    ): "names are for people",
    ("ad/cotangents.py", "_case.run", "dropped", "name_arguments(fields, list(named.fields(variant)))"): (
        "names are for people"
    ),
    ("ad/cotangents.py", "_plus.body", "dropped", "name_arguments([x, y], ['x', 'y'])"): "names are for people",
    ("ad/cotangents.py", "_emptied.body", "dropped", "name_arguments([value, given], ['value', 'given'])"): (
        "names are for people"
    ),
    ("ad/cotangents.py", "_Filling._zeroed.body", "dropped", "name_arguments([value], ['value'])"): (
        "names are for people"
    ),
    (
        "ad/cotangents.py", "_Filling._filled.body", "dropped",
        "name_arguments([value, cotangent], ['value', 'cotangent'])",
    ): "names are for people",
    ("ad/cotangents.py", "_fields.branch", "right only", "value if type == named else _placeholder(b, type)"): (
        "where no field is looked at, any value of its type will do"
    ),
    (
        "ad/taken_apart.py", "TakenApart._whole", "right only",
        "parts[0] if declared == named else walk.over('value', declared, [named], parts, body)[0]",
    ): "a walk that makes the value that it walks over: a matter of cost",
    ("ad/forward.py", "Forward.probe.run", "left only", "dual if dual.form else same"): (
        "a probe gives what it is given, and stays where it is"
    ),
    ("ad/forward.py", "Forward.probe.run", "right only", "dual if dual.form else same"): (
        "what was taken apart to be shown is put together again where it goes on: a matter of cost"
    ),
    (
        "ad/reverse.py", "Reverse.block.run", "dropped",
        "name_arguments([argument.value for argument in arguments], names)",
    ): "names are for people",
    (
        "ad/operators.py", "Operator.pull_after.pulled", "right only",
        "zeros_like(b, a[k]) if given[k] is None else given[k]",
    ): "an operator with a neutral element moves with its right operand, so a cotangent is given",
    (
        "ad/recurrences.py", "_Layout._converted", "right only",
        "value if value.type == type else self.builder.primitive(PRIMITIVES[type.name], value)",
    ): "a conversion to the type that a value has gives the value",
    ("ad/reductions.py", "rule_of", "none", "'add' if adds_arrays(operator, component) else None"): (
        "sums of arrays by the general rule: a matter of cost"
    ),
    ("ad/reductions.py", "adds_arrays", "left only", "count + component"): "sums by the general rule, at more cost",
    ("ad/reductions.py", "adds_arrays", "right only", "count + component"): "sums by the general rule, at more cost",
    ("ad/reductions.py", "adds_arrays", "dropped", "indices.append(body.binders[0])"): (
        "sums by the general rule, at more cost"
    ),
    ("ad/reductions.py", "first_places.choose", "other", "b.primitive('less_equal', i, j)"): (
        "places are different, or both operands are the neutral element"
    ),
    ("ad/reverse_scatter.py", "Scatter.pull", "none", "None if self.unique or few else self._last_writes()"): (
        "many writes, too, can be compared with each other, at more cost"
    ),
    ("ad/forward_reductions.py", "Scan.extreme.at", "other", "b.primitive('less', first, self.length)"): (
        "behind its last element an array reads as zero, which is what is chosen there"
    ),
    (
        "ad/forward_reductions.py", "Combination.push", "right only",
        "self.forward.tangent(made[k]) if t is None else t",
    ): "the operator on duals gives each component that moves a tangent",
    (
        "ad/tape/constructs.py", "custom", "left only",
        "sweep.evaluate.filled(contribution, rank(arg.type)) if rank(arg.type) else contribution",
    ): "a number broadcasts to the batch in any case",
    (
        "ad/tape/constructs.py", "derived", "left only",
        "visit.sweep.evaluate.filled(contribution, r) if r else contribution",
    ): "a number broadcasts to the batch in any case",
    ("ad/tape/cotangents.py", "combined", "left only", "parts.dense(shape, batch, whole) if sparse else whole"): (
        "no elements are added to a copy, at more cost"
    ),
    (
        "ad/tape/cotangents.py", "picked", "left only",
        "cotangent[*rows, *mesh(rest)] if len(rest) else cotangent[tuple(rows)]",
    ): "the mesh of no axes has no arrays",
    ("ad/tape/folds.py", "_combination", "left only", "bound + k"): (
        "only operations with one result are looked for, and any other one is none of them"
    ),
    (
        "ad/tape/folds.py", "reduce", "right only",
        "_shapes(visit, element, count) if only_sums else _columns(visit, element, count)",
    ): "elements are computed of which only the shape counts: a matter of cost",
    ("ad/tape/partials.py", "_used.walk", "right only", "outside + len(inner.binders)"): (
        "rules that read an operand in a branch alone count as reading the result, too, which is made of the operands"
    ),
    (
        "ad/tape/partials.py", "_used.walk", "dropped",
        "found.update([bound - 1 - atom.index for atom in inner.results if isinstance(atom, Variable)])",
    ): "a rule gives no operand back but from a branch, whose condition reads it",
}  # fmt: skip
