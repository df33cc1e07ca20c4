"""Tags of cells: closures that hold one other cell are that cell, where it can be told apart."""

import re
from typing import Any

import numpy as np
from load import benchmark

import adze as az
from adze.core.types import Declaration, Named, f64
from adze.interpreters.first_order.tags import Closures, Tags, Variant


def declared(kind: type[Declaration], name: str, **variants: dict[str, Any]) -> Named:
    declaration = kind(name)
    declaration.variants.update(variants)
    return Named(declaration)


def test_data_have_the_places_of_their_variants() -> None:
    list_of_numbers = declared(Declaration, "List", Nil={}, Cons={"head": f64})
    assert Tags().variants(list_of_numbers) == {"Nil": Variant((0,)), "Cons": Variant((1,))}


def test_what_holds_one_other_cell_is_that_cell() -> None:
    """back = f(a, inner), inner = g(more), more = h() | k(back, x): of these only k and h have cells."""
    back = declared(Closures, "back")
    more = declared(Closures, "more", h={}, k={"captured0": back, "captured1": f64})
    inner = declared(Closures, "inner", g={"captured0": more}, none={"captured0": f64})
    back.declaration.variants["f"] = {"captured0": inner}
    tags = Tags()
    assert tags.variants(back) == {"f": Variant((0, 1, 2), is_field=True)}
    assert tags.variants(inner) == {"g": Variant((0, 1), is_field=True), "none": Variant((2,))}
    assert tags.variants(more) == {"h": Variant((0,)), "k": Variant((1,))}


def test_two_variants_that_hold_the_same_have_a_cell_between_them() -> None:
    inner = declared(Closures, "inner", a={}, b={"captured0": f64})
    outer = declared(Closures, "outer", once={"captured0": inner}, twice={"captured0": inner})
    assert Tags().variants(outer) == {"once": Variant((0, 1), is_field=True), "twice": Variant((2,))}


def test_what_holds_itself_has_a_cell() -> None:
    itself = declared(Closures, "itself", end={})
    itself.declaration.variants["more"] = {"captured0": itself}
    assert Tags().variants(itself) == {"end": Variant((0,)), "more": Variant((1,))}


def test_data_that_a_closure_holds_keep_their_cell() -> None:
    """Their tags are those of other data, too."""
    data = declared(Declaration, "Data", A={}, B={"x": f64})
    assert Tags().variants(declared(Closures, "f", f={"captured0": data})) == {"f": Variant((0,))}


def test_a_step_of_reverse_mode_keeps_one_cell() -> None:
    models = benchmark("functions")

    @az.program
    def half_square(xs: models.Row, ys: models.Row) -> az.f64:
        return models.dot(xs, ys) ** 2 / 2

    compiled = az.compile(az.value_and_grad(half_square, argnums=(0, 1)), threads=1)
    forward = compiled.loops.partition("procedure 0")[2].partition("procedure 1")[0]
    assert len(re.findall(r"= cell \d+ of \S", forward)) == 1
    value, slopes = compiled(models.linked([1.0, 2.0]), models.linked([3.0, 5.0]))
    assert value == 84.5 and slopes == (models.linked([39.0, 65.0]), models.linked([13.0, 26.0]))


def test_choices_between_wrapped_closures() -> None:
    """Functions that hold one of several others, each of these recursive."""

    @az.program
    def chosen(x: az.f64, n: az.i64, up: az.bool_) -> az.f64:
        unary = az.Function[[az.f64], az.f64]

        def above(below: Any) -> Any:
            return az.function(lambda z: 2 * below(z), az.f64)

        @az.fix
        def tower(self: Any, k: az.i64) -> unary:
            return az.cond(k == 0, lambda: az.function(lambda z: z + x, az.f64), lambda: above(self(k - 1)))

        inner = tower(n)
        once, twice = az.function(lambda z: inner(z) + 1, az.f64), az.function(lambda z: inner(inner(z)), az.f64)
        return az.cond(up, lambda: once, lambda: az.cond(x > 0, lambda: twice, lambda: inner))(x)

    for x, up in ((0.5, True), (0.5, False), (-0.5, False)):
        for n in (0, 3):
            np.testing.assert_array_equal(az.compile(chosen)(x, n, up), az.evaluate(chosen)(x, n, up))
