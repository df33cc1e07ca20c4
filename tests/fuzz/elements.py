"""Rules for what is computed element by element: arithmetic, tests, choices, integers."""

from __future__ import annotations

from dataclasses import replace

from .drawing import Node, Scope, Size, Writer, rule, shape

EXACT = ("-{}", "{} ** 2", "abs({})", "az.sign({})", "az.maximum({}, -1.5)", "az.clip({}, -2.0, 2.0)", "az.floor({})")
SMOOTH = (
    "az.sin({})", "az.tanh({})", "az.exp(az.minimum({}, 1.0))", "az.sqrt(abs({}) + 0.75)", "1.5 / ({} ** 2 + 1.0)",
    "az.log1p(abs({}))", "az.stop_gradient({})", "az.sigmoid({})", "az.where(az.isnan({0}), 0.0, {0})",
)  # fmt: skip


@rule(weight=5)
def arithmetic(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """With an operand of the same sizes, or one that is broadcast."""
    if draw.chance(4):
        form = draw.one(["({{}} {} {})", "({1} {0} {{}})"]).format(draw.one("+-*"), draw.literal())
        return draw.node("f", sizes, form, draw.value(scope, "f", sizes, depth))
    axes = draw.random.choice([sizes, sizes, sizes[1:], ()])
    left, right = draw.value(scope, "f", sizes, depth), draw.value(scope, "f", axes, depth // 2)
    if len(axes) == len(sizes) and draw.chance(2):
        left, right = right, left
    return draw.node("f", sizes, f"({{}} {draw.one('+-*')} {{}})", left, right)


@rule(weight=4)
def unary(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    form = draw.one(EXACT if draw.exact else EXACT[:3] + SMOOTH)
    if "{0}" in form:
        name = draw.fresh("t")
        return draw.node(
            "f", sizes, f"(lambda {name}: {form.format(name)})({{}})", draw.value(scope, "f", sizes, depth)
        )
    return draw.node("f", sizes, f"({form})", draw.value(scope, "f", sizes, depth))


@rule()
def extreme(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    parts = draw.value(scope, "f", sizes, depth), draw.value(scope, "f", draw.one([sizes, ()]), depth // 2)
    return draw.node("f", sizes, f"{draw.one(['az.minimum', 'az.maximum'])}({{}}, {{}})", *parts)


@rule()
def where(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    test = draw.value(scope, "b", draw.one([sizes, ()]), 1)
    then, orelse = draw.value(scope, "f", sizes, depth), draw.value(scope, "f", draw.one([sizes, ()]), depth // 2)
    return draw.node("f", sizes, "az.where({}, {}, {})", test, then, orelse)


@rule(types="fi")
def cond(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """By a number or by a size."""
    parts = draw.value(scope, "b", (), 1), draw.value(scope, type, sizes, depth), draw.value(scope, type, sizes, depth)
    return draw.node(type, sizes, "az.cond({}, lambda: {}, lambda: {})", *parts)


@rule(weight=1)
def cond_on_sizes(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Inside the branch sizes with two names are equal."""
    vectors = [name for name in scope.names if name.type == "f" and len(name.sizes) == 1 and name.text != "u"]
    if len({name.sizes[0].text for name in vectors}) < 2:
        return draw.node("f", sizes, "({})", draw.value(scope, "f", sizes, depth))
    first, second = draw.random.sample(vectors, 2)
    test = f"{first.sizes[0].text} == {second.sizes[0].text}"
    inside = draw.one([f"az.sum({first.text} * {second.text})", f"({first.text} @ {second.text})"])
    then, orelse = draw.value(scope, "f", sizes, depth), draw.value(scope, "f", sizes, depth // 2)
    return draw.node("f", sizes, f"az.cond({test}, lambda: {{}} * {inside}, lambda: {{}})", then, orelse)


# Tests


@rule(types="b", weight=4)
def comparison(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    operator = draw.one(["<", "<=", ">", ">=", "==", "!="] if draw.exact else ["<", ">"])
    return draw.node("b", sizes, f"({{}} {operator} {draw.literal()})", draw.value(scope, "f", sizes, depth))


@rule(types="b", ranks=range(1), weight=3)
def test_of_sizes(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    return draw.node("b", (), draw.of_sizes(scope))


@rule(types="b")
def logic(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    left, right = draw.value(scope, "b", sizes, depth), draw.value(scope, "b", draw.one([sizes, ()]), 0)
    form = draw.one(["az.logical_and({}, {})", "az.logical_or({}, {})", "az.logical_and({}, az.logical_not({}))"])
    return draw.node("b", sizes, form, left, right)


@rule(types="b", weight=1)
def special(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    test = draw.one(["az.isnan({})", "az.isfinite({})"])
    return draw.node("b", sizes, test, draw.value(scope, "f", sizes, depth))


@rule(types="b", ranks=range(1))
def quantified(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    axis = draw.another(scope, scope.budget // 2)
    over = draw.value(replace(scope, budget=scope.budget // 2), "b", (axis,), depth)
    return draw.node("b", (), f"{draw.one(['az.any', 'az.all'])}({{}})", over)


# Integers


@rule(types="i", weight=3)
def integers(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    form = draw.one(["({} + {})", "({} - {})", "({} * {})", "az.minimum({}, {})", "az.maximum({}, {})"])
    parts = draw.value(scope, "i", sizes, depth), draw.value(scope, "i", draw.one([sizes, ()]), 0)
    return draw.node("i", sizes, form, *parts)


@rule(types="i")
def divided(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    by = draw.random.randrange(2, 5)
    form = draw.one(["({{}} // {})", "({{}} % {})", "az.clip({{}}, 0, {})"]).format(by)
    return draw.node("i", sizes, form, draw.value(scope, "i", sizes, depth))


@rule(types="i")
def rounded(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Numbers as integers: clipped first, since what does not fit an integer depends on the last bit."""
    return draw.node("i", sizes, "az.clip({}, -9.0, 9.0).astype(az.i64)", draw.value(scope, "f", sizes, depth))


@rule(types="i", ranks=range(1), weight=3)
def found(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """A place, or a count, that values decide."""
    axis = draw.another(scope, scope.budget // 2)
    form = draw.one(["az.argmax({})", "az.argmin({})", "count", "az.searchsorted(az.sort({}), 0.3)"])
    if form == "count":
        return draw.node("i", (), "az.count_nonzero({})", draw.value(scope, "b", (axis,), depth))
    if axis.value == 0 or not axis.known:
        return None
    return draw.node("i", (), form, draw.value(scope, "f", (axis,), depth))


@rule(types="i", ranks=range(1, 2), weight=3)
def counted(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Indices into an axis, in some order."""
    size = sizes[0].text
    forms = [f"az.iota({size})", f"({size} - 1 - az.iota({size}))", f"(az.iota({size}) // 2)", "az.argsort({})"]
    form = draw.one(forms)
    parts = [draw.value(scope, "f", sizes, depth)] if "{}" in form else []
    return draw.node("i", sizes, form, *parts)


@rule(types="ib", ranks=range(1, 4))
def each(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """By index."""
    names = [draw.fresh("i") for _ in sizes]
    inside = scope
    for name, size in zip(names, sizes, strict=True):
        inside = inside.loop(size, name)
    body = draw.value(inside, type, (), depth)
    return draw.node(type, sizes, f"az.generate({shape(sizes)}, lambda {', '.join(names)}: {{}})", body)
