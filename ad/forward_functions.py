"""Forward mode of functions, tuples and values of declared types: functions on dual numbers, and data of them.

Where such a value has a number that moves, there is the pair of the number and its tangent (``forms.py`` says where). A
function gets pairs and gives pairs; a branch of a ``case`` gets the fields of the dual value, and what is chosen is
chosen by its variant, so that no second value has to be walked beside the first:

    go = fix f (xs: List[f64]) -> f64:                go = fix f (xs: List[(f64, f64)]) -> (f64, f64):
      case xs:                                          case xs:
        Nil(): 0                                          Nil(): (0, 0)
        Cons(x, rest): x * x + f(rest)                    Cons(x, rest): t = f(rest)
                                                            (x[0] * x[0] + t[0], 2 * x[0] * x[1] + t[1])

Everything that makes or takes such a value emits it in one form, so nothing is converted on its way; where a program
begins and ends, it is (``boundary.py``). What does not move is as it was. (Smeding and Vákár 2025, section 5.2, with
a tangent in the place of the backpropagator.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..core.graph import Value
from ..core.language import Language
from ..core.terms import Operation as Term
from ..core.types import FunctionType, Named, Type, is_data
from ..interpreters.embed import emit_blocks, name_arguments
from .duals import Atom, Block, Dual, Duals, Emission, Operation, Pick
from .forms import Form


class ForwardFunctions(Emission, Language[Atom, Operation, Block]):
    """The meanings of these constructs."""

    def operation(self, operation: Term, args: Sequence[Atom], blocks: Sequence[Block]) -> Operation:
        """What the method of the construct says; a tuple's is told its type."""
        if operation.op == "pack":
            return self.typed_pack(operation.types[0], args)
        return Language.operation(self, operation, args, blocks)

    # A dual as one value, and back

    def packed(self, dual: Dual, form: Form) -> Value:
        """The dual as a part of a value."""
        if not is_data(form.type):
            return dual.primal
        assert form or dual.tangent is None, "a number moves that was found to be constant"
        return self.builder.emit("pack", (), [dual.primal, self.tangent(dual)])[0] if form else dual.primal

    def unpacked(self, value: Value, form: Form) -> Dual:
        """The dual that a part of a value is."""
        if not is_data(form.type):
            return Dual(value, form=form)
        if not form:
            return Dual(value)
        primal, tangent = (self.builder.emit("project", (k,), [value])[0] for k in range(2))
        return Dual(primal, tangent)

    def all_packed(self, duals: Sequence[Dual], forms: Sequence[Form]) -> list[Value]:
        return [self.packed(dual, form) for dual, form in zip(duals, forms, strict=True)]

    def parameters(self, values: Sequence[Value], forms: Sequence[Form], names: Sequence[str]) -> list[Dual]:
        """What the parameters of a block are that has these names for them."""
        b = self.builder
        name_arguments(values, names)
        outer, b.origin = b.origin, replace(b.origin, name="")
        duals = self.all_unpacked(values, forms)
        b.origin = outer
        return duals

    def all_unpacked(self, values: Sequence[Value], forms: Sequence[Form]) -> list[Dual]:
        return [self.unpacked(value, form) for value, form in zip(values, forms, strict=True)]

    # Constructs

    def function(self, type: FunctionType, body: Block) -> Operation:
        """``f = function x: e``:  ``f = function (x, dx): (e, de)``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            (form,) = active

            def inner(*parameters: Value) -> list[Value]:
                given = self.parameters(parameters, form.parameters, body.names)
                return self.all_packed(body.run(env, given), form.results)

            return self.duals(emit_blocks(self.builder, "function", (form.dual,), [], [inner]), active)

        return Operation(run, self.activity.function(type, body.activity))

    def fix(self, type: FunctionType, body: Block) -> Operation:
        """The same, where ``f`` in ``e`` is the function on duals."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            (form,) = active

            def inner(itself: Value, *parameters: Value) -> list[Value]:
                given = self.parameters(parameters, form.parameters, body.names[1:])
                return self.all_packed(body.run(env, [Dual(itself, form=form), *given]), form.results)

            return self.duals(emit_blocks(self.builder, "fix", (form.dual,), [], [inner]), active)

        return Operation(run, self.activity.fix(type, body.activity))

    def apply(self, function: Atom, args: Sequence[Atom]) -> Operation:
        """``y = f(x)``:  ``(y, dy) = f((x, dx))``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            called, given = function(env), [arg(env) for arg in args]
            if called.form is None:  # the function of a custom operation, in a rule of it
                values = [called.primal, *[dual.primal for dual in given]]
                return self.constants(emit_blocks(self.builder, "apply", (), values, []))
            values = [called.primal, *self.all_packed(given, called.form.parameters)]
            return self.all_unpacked(self.builder.emit("apply", (), values), called.form.results)

        return Operation(run, self.activity.apply(function, args))

    def typed_pack(self, type: Type, items: Sequence[Atom]) -> Operation:
        """``t = (x, y)``:  ``t = ((x, dx), (y, dy))``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            packed = self.all_packed([item(env) for item in items], active[0].items)
            return self.duals(self.builder.emit("pack", (), packed), active)

        return Operation(run, self.activity.typed_pack(type, items))

    def project(self, value: Atom, position: int) -> Operation:
        """``x = t[0]``:  ``(x, dx) = t[0]``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            dual = value(env)
            assert dual.form is not None
            item = self.builder.emit("project", (position,), [dual.primal])[0]
            return [self.unpacked(item, dual.form.items[position])]

        return Operation(run, self.activity.project(value, position))

    def construct(self, type: Named, variant: str, fields: Sequence[Atom]) -> Operation:
        """``v = V(x, y)``:  ``v = V((x, dx), (y, dy))``."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            (form,) = active
            packed = self.all_packed([field(env) for field in fields], form.fields(variant))
            return self.duals(self.builder.emit("construct", (form.dual, variant), packed), active)

        return Operation(run, self.activity.construct(type, variant, fields))

    def case(self, value: Atom, variants: tuple[str, ...], branches: Sequence[Block]) -> Operation:
        """As ``cond``, of more branches, which get the fields."""

        def run(env: Duals, active: Pick) -> Sequence[Dual]:
            dual = value(env)
            assert dual.form is not None

            def branch(block: Block, forms: Sequence[Form], *fields: Value) -> list[Value]:
                return self.flat(block.run(env, self.parameters(fields, forms, block.names)), active)

            forms = [dual.form.fields(variant) for variant in variants]
            bodies = [partial(branch, block, own) for block, own in zip(branches, forms, strict=True)]
            return self.duals(emit_blocks(self.builder, "case", variants, [dual.primal], bodies), active)

        return Operation(run, self.activity.case(value, variants, [branch.activity for branch in branches]))
