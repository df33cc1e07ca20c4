"""Rules for loops, derivatives, names, and nests: what runs a body."""

from __future__ import annotations

from dataclasses import replace

from .drawing import Node, Scope, Size, Writer, elements, rule
from .views import view

FACTORS = ["", "0.5 * ", "0.25 + 0.5 * "]


def steps(draw: Writer, scope: Scope) -> Size:
    """How often a loop runs: a number, an argument, or a size."""
    if draw.chance(4) and any(name.text == "h" for name in scope.names):
        return Size("h", 4, False)
    if draw.chance(3):
        return draw.another(scope, min(scope.budget, 40))
    count = draw.random.randrange(4)
    return Size(str(count), count)


@rule(weight=3)
def fori_loop(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    count, i, s = steps(draw, scope), draw.fresh("i"), draw.fresh("s")
    inside = replace(scope.loop(count, i).with_name(s, "f", sizes))
    body = draw.value(inside, "f", sizes, min(depth, 2))
    initial = draw.value(scope, "f", sizes, depth // 2)
    options = draw.one(["", "", ', checkpoint="sqrt"', ", checkpoint=2"])
    start = draw.one(["0", "0", "0", "-1"])
    form = f"az.fori_loop({start}, {count.text}, lambda {i}, {s}: {draw.one(FACTORS)}{s} + {{}}, {{}}{options})"
    return draw.node("f", sizes, form, body, initial)


@rule()
def while_loop(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    p, most = draw.fresh("p"), Size("", 3)
    inside = scope.loop(most).with_name(f"{p}[0]", "i").with_name(f"{p}[1]", "f", sizes)
    test = draw.value(replace(inside, names=(inside.names[-2], *scope.names)), "b", (), 1)
    body, initial = draw.value(inside, "f", sizes, min(depth, 2)), draw.value(scope, "f", sizes, depth // 2)
    bound = f"{p}[0] < {draw.random.randrange(4)}"
    form = f"az.while_loop(lambda {p}: az.logical_and({bound}, {{}}), lambda {p}: ({p}[0] + 1, {{}}), (0, {{}}))[1]"
    return draw.node("f", sizes, form, test, body, initial)


@rule(ranks=range(3))
def scan_loop(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """The state at the end, or what each step gives."""
    u, v = draw.fresh("u"), draw.fresh("v")
    if draw.chance(2) or not sizes:
        over, kept, rest, result = draw.another(scope, min(scope.budget, 40)), sizes, draw.one([(), sizes]), "[0]"
    else:
        over, kept, rest, result = sizes[0], draw.one([(), sizes[1:]]), sizes[1:], "[1]"
    inside = scope.loop(over).with_name(u, "f", kept).with_name(v, "f", rest)
    after = draw.value(inside, "f", kept, min(depth, 2))
    given = draw.value(inside, "f", sizes[1:] if result == "[1]" else draw.one([(), kept]), min(depth, 1))
    xs = draw.value(scope, "f", (over, *rest), depth // 2)
    if elements(kept) * over.value > scope.budget:
        return draw.value(scope, "f", sizes, depth)
    form = f"az.scan_loop(lambda {u}, {v}: (0.5 * {u} + {{}}, {{}}), {{}}, {{}}){result}"
    return draw.node("f", sizes, form, after, given, draw.value(scope, "f", kept, 0), xs)


@rule()
def let(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """A value that is used several times."""
    t = draw.fresh("t")
    axes = draw.one([(), sizes, (draw.another(scope, scope.budget // 4),)])
    bound = draw.value(scope, "f", axes, depth)
    body = draw.value(scope.with_name(t, "f", axes), "f", sizes, depth)
    return draw.node("f", sizes, f"(lambda {t}: {{}})({{}})", body, bound)


@rule(weight=3)
def let_view(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """An array of another size, which the run may decide."""
    if scope.inner and draw.chance(2):
        return None
    t = draw.fresh("t")
    found = view(draw, scope, t, min(depth, 2))
    if found is None:
        return None
    bound, axes = found
    inside = scope.with_name(t, "f", axes)
    if not sizes:
        total = draw.node(
            "f", (), draw.one([f"az.sum({t})", f"az.clip(az.max({t}), -8.0, 8.0)", f"az.sum({t} * {{}})"])
        )
        if "{}" in total.template:
            total = Node(total.sort, total.template, (draw.value(inside, "f", axes, depth),))
        return draw.node("f", (), f"(lambda {t}: {{}} + {{}})({{}})", total, draw.value(inside, "f", (), depth), bound)
    return draw.node("f", sizes, f"(lambda {t}: {{}})({{}})", draw.value(inside, "f", sizes, depth), bound)


@rule()
def derivative(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Of something that captures what is around it."""
    v = draw.fresh("v")
    inside = scope.with_name(v, "f", sizes)
    point = draw.value(scope, "f", sizes, depth // 2)
    if draw.chance(2):
        body = draw.value(inside, "f", (), min(depth, 2))
        return draw.node("f", sizes, f"az.grad(lambda {v}: {{}} * az.sum({v}))({{}})", body, point)
    body, other = draw.value(inside, "f", sizes, min(depth, 2)), draw.value(scope, "f", sizes, 0)
    form = draw.one(
        [f"az.jvp(lambda {v}: {{}} + {v}, ({{}},), ({{}},))[1]", f"az.vjp(lambda {v}: {{}} * {v})({{}}, {{}})[1]"]
    )
    return draw.node("f", sizes, form, body, point, other)


@rule(weight=1)
def checkpointed(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    v = draw.fresh("v")
    body = draw.value(scope.with_name(v, "f", sizes), "f", sizes, depth)
    return draw.node("f", sizes, f"az.checkpoint(lambda {v}: {{}})({{}})", body, draw.value(scope, "f", sizes, 0))


@rule(ranks=range(1))
def triangle(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """A sum over the indices below an index."""
    axis, i, j = draw.another(scope, int(scope.budget**0.5)), draw.fresh("i"), draw.fresh("j")
    inner = Size(f"({i} + 1)", axis.value, False)
    inside = scope.loop(axis, i).loop(inner, j)
    inside = replace(inside, indices=(*inside.indices[:-1], (j, axis)))
    row = f"az.sum(az.generate({draw.one([f'{i} + 1', i])}, lambda {j}: {{}}))"
    return draw.node(
        "f", (), f"az.sum(az.generate({axis.text}, lambda {i}: {row}))", draw.value(inside, "f", (), depth)
    )


@rule(weight=1, ranks=range(1))
def nest(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """Up to twelve loops in one another, each small."""
    levels = draw.random.randrange(1, 13)
    opened: list[tuple[str, str]] = []
    inside = scope
    for _ in range(levels):
        if inside.budget < 64:
            break
        size, i = draw.another(inside, 3), draw.fresh("i")
        if size.value == 0:
            size = Size("2", 2)
        form = draw.one(["sum", "sum", "loop", "max", "map", "cond", "last"])
        over = f"az.generate({size.text}, lambda {i}: "
        if form == "loop":
            s = draw.fresh("s")
            opened.append(
                (f"az.fori_loop(0, {size.text}, lambda {i}, {s}: 0.5 * {s} + ", f", az.array(0.25, {draw.float}))")
            )
        elif form == "map":
            opened.append((f"az.sum(az.map(lambda {i}: ", f", az.iota({size.text})))"))
        elif form == "cond":
            opened.append((f"az.cond({draw.of_sizes(inside)}, lambda: ", f", lambda: az.array(0.5, {draw.float}))"))
        else:
            before, after = {"sum": ("az.sum(", ")"), "max": ("az.max(", ")"), "last": ("", "[-1]")}[form]
            opened.append((f"{before}{over}", f"){after}"))
        if form != "cond":
            inside = inside.loop(size, i)
        if form == "loop":
            inside = inside.with_name(s, "f")
    node = draw.value(inside, "f", (), min(depth, 2))
    for before, after in reversed(opened):
        node = draw.node("f", (), f"{before}{{}}{after}", node)
    return node
