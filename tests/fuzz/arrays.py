"""Rules for arrays: by index, over elements, along an axis, at computed places, and products of matrices."""

from __future__ import annotations

from .drawing import Node, Scope, Size, Writer, elements, rule, shape

ARRAYS, MATRICES = range(1, 4), range(2, 4)


@rule(weight=4, ranks=ARRAYS)
def generate(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Over the first axes; the rest is what the body makes."""
    count = draw.random.randrange(1, len(sizes) + 1)
    names = [draw.fresh("i") for _ in range(count)]
    inside = scope
    for name, size in zip(names, sizes, strict=False):
        inside = inside.loop(size, name)
    body = draw.value(inside, "f", sizes[count:], depth)
    return draw.node("f", sizes, f"az.generate({shape(sizes[:count])}, lambda {', '.join(names)}: {{}})", body)


@rule(weight=4, ranks=ARRAYS)
def map_rows(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Over one or two arrays along their first axes, which may have further axes of their own."""
    inside, arrays, names = scope.loop(sizes[0]), [], []
    for _ in range(draw.random.randrange(1, 3)):
        room = scope.budget // max(1, sizes[0].value)
        rest = draw.one([(), sizes[1:], (draw.another(scope, min(room, 40)),)])
        arrays.append(draw.value(scope, "f", (sizes[0], *rest), depth // 2))
        names.append(draw.fresh("v"))
        inside = inside.with_name(names[-1], "f", rest)
    body = draw.value(inside, "f", sizes[1:], depth)
    over = ", ".join("{}" for _ in arrays)
    return draw.node("f", sizes, f"az.map(lambda {', '.join(names)}: {{}}, {over})", body, *arrays)


@rule(weight=5, ranks=range(3))
def reduction(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """Over one more axis, wherever it is."""
    extra = draw.another(scope, scope.budget // max(1, elements(sizes)))
    axis = draw.random.randrange(len(sizes) + 1)
    over = draw.value(scope, "f", (*sizes[:axis], extra, *sizes[axis:]), depth)
    form = draw.one(
        ["az.sum({}, {})"] * 4 + ["clipped", "clipped", "az.prod({}, {})", "az.mean({}, {})", "az.logsumexp({}, {})"]
    )
    if form == "clipped":  # infinities would hide everything else
        return draw.node("f", sizes, f"az.clip({draw.one(['az.max', 'az.min'])}({{}}, {axis}), -8.0, 8.0)", over)
    if "prod" in form and extra.value > 7:
        form = "az.sum({}, {})"
    if draw.exact and ("mean" in form or "logsumexp" in form):
        return None
    if "mean" in form or "logsumexp" in form:
        form = f"az.clip({form}, -8.0, 8.0)"
    return draw.node("f", sizes, form.replace(", {}", f", {axis}"), over)


@rule(weight=3, ranks=range(3))
def element(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """At one place of one more axis."""
    extra = draw.another(scope, scope.budget // max(1, elements(sizes)))
    if extra.value == 0 or not (extra.known or draw.chance(10)):
        return None
    axis = draw.random.randrange(len(sizes) + 1)
    key = ", ".join([":"] * axis + [draw.place(scope, extra)])
    return draw.node("f", sizes, f"{{}}[{key}]", draw.value(scope, "f", (*sizes[:axis], extra, *sizes[axis:]), depth))


@rule(ranks=MATRICES)
def transposed(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    if len(sizes) == 2:
        form = draw.one(["{}.T", "az.transpose({})", "az.swapaxes({}, 0, 1)"])
        return draw.node("f", sizes, form, draw.value(scope, "f", sizes[::-1], depth))
    axes = draw.random.sample(range(3), 3)
    before = tuple([sizes[axes.index(k)] for k in range(3)])
    return draw.node("f", sizes, f"az.transpose({{}}, {tuple(axes)})", draw.value(scope, "f", before, depth))


@rule(ranks=ARRAYS)
def moved(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """The elements of an axis in another order, or copied to where they come back from."""
    axis = draw.random.randrange(len(sizes))
    form = draw.one([f"az.flip({{}}, {axis})", f"az.roll({{}}, {draw.random.randrange(-3, 4)}, {axis})", "{}[::-1]",
                     "az.concatenate(({0}[1:], {0}[:1]))", "az.pad({}, 1, mode='edge')[1:-1]",
                     f"az.repeat({{}}, 2, {axis})[{':, ' * axis}::2]", "{}[None][0]", "az.tile({}, 2)",
                     f"az.reverse({{}}, {axis})", "az.concatenate(({0}, {0}[::-1]))[:{1}]"])  # fmt: skip
    value = draw.value(scope, "f", sizes, depth)
    if "pad" in form and any(size.value == 0 or not size.known for size in sizes):
        form = "{}[::-1]"
    if "pad" in form:
        form = f"az.pad({{}}, 1, mode='edge')[{', '.join(['1:-1'] * len(sizes))}]"
    if "tile" in form:
        form = f"az.tile({{}}, 2)[{', '.join([':'] * (len(sizes) - 1) + [':' + sizes[-1].text])}]"
    if "{0}" in form:
        name = draw.fresh("t")
        return draw.node("f", sizes, f"(lambda {name}: {form.format(name, sizes[0].text)})({{}})", value)
    return draw.node("f", sizes, form, value)


@rule(ranks=ARRAYS)
def running(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """A scan; of pairs, along the first axis, if the operator does not commute."""
    axis = draw.random.randrange(len(sizes))
    options = draw.one(["", ", reverse=True"])
    form = draw.one([f"az.cumsum({{}}, {axis}{options})", f"az.clip(az.cummax({{}}, {axis}{options}), -8.0, 8.0)",
                     "pairs", f"az.scan(az.maximum, -8.0, az.maximum({{}}, -8.0), {axis}, exclusive=True)",
                     ])  # fmt: skip
    value = draw.value(scope, "f", sizes, depth)
    if form != "pairs" or len(sizes) > 1:
        return draw.node("f", sizes, form.replace("pairs", f"az.cumsum({{}}, {axis})"), value)
    slopes = draw.value(scope, "f", sizes, 0)
    options += draw.one(["", ", exclusive=True"])
    pairs = "lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1.0, 0.0), (az.clip({}, -1.0, 1.0), {})"
    return draw.node("f", sizes, f"az.scan({pairs}{options})[1]", slopes, value)


@rule(weight=1, ranks=ARRAYS)
def ordered(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    axis = draw.random.randrange(len(sizes))
    return draw.node("f", sizes, f"az.sort({{}}, {axis})", draw.value(scope, "f", sizes, depth))


# Computed places


@rule(weight=3, ranks=ARRAYS)
def gathered(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """Rows at computed places, which are clipped, taken around, or in range by luck."""
    source = draw.another(scope, scope.budget // max(1, elements(sizes[1:])))
    if source.value == 0:
        return None
    size = source.text
    form = draw.one([f"az.clip({{}}, 0, {size} - 1)", f"({{}}) % {size}", f"az.minimum(abs({{}}), {size} - 1)"])
    places = draw.node("i", sizes[:1], "{}" if draw.chance(40) else form, draw.value(scope, "i", sizes[:1], depth // 2))
    values = draw.value(scope, "f", (source, *sizes[1:]), depth)
    return draw.node("f", sizes, draw.one(["{}[{}]", "az.take({}, {}, 0)"]), values, places)


@rule(weight=3, ranks=ARRAYS)
def written(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """With other values at one place, or at computed ones."""
    target, rest = draw.value(scope, "f", sizes, depth), sizes[1:]
    if draw.chance(3):
        if sizes[0].value == 0:
            return None
        place, value = draw.place(scope, sizes[0]), draw.value(scope, "f", rest, depth // 2)
        return draw.node("f", sizes, f"az.update({{}}, {place}, {{}})", target, value)
    source = draw.another(scope, scope.budget // max(1, elements(rest)))
    places, values = draw.value(scope, "i", (source,), 1), draw.value(scope, "f", (source, *rest), depth // 2)
    if draw.chance(3):
        form = "az.scatter({}, {}, {}, unique=False, mode='drop')"
        return draw.node("f", sizes, form, target, places, values)
    if rest or draw.chance(2):
        order = "az.scatter({}, az.argsort({}), {})"
        keys = draw.value(scope, "f", sizes[:1], 1)
        return draw.node("f", sizes, order, target, keys, draw.value(scope, "f", sizes, depth // 2))
    i, k = draw.fresh("i"), draw.fresh("k")
    operator = draw.one(["lambda p, q: p + q", "az.maximum", "az.minimum"])
    step = f"lambda {i}: az.where({k}[{i}] < {sizes[0].text}, {k}[{i}].astype(az.i64), -1)"
    form = f"(lambda {k}: az.permute({operator}, {{}}, {step}, {{}}))({{}})"
    return draw.node("f", sizes, form, target, values, places)


@rule(ranks=range(1, 3))
def binned(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    source = draw.another(scope, scope.budget // max(1, elements(sizes[1:])))
    operator, unit = draw.one([("lambda p, q: p + q", "0.0"), ("az.maximum", "-8.0")])
    places, values = draw.value(scope, "i", (source,), 1), draw.value(scope, "f", (source, *sizes[1:]), depth)
    if sizes[1:]:
        operator, unit = "lambda p, q: p + q", f"az.zeros({sizes[1].text}, {draw.float})"
    form = f"az.histogram({operator}, {unit}, {sizes[0].text}, {{}}, az.maximum({{}}, -8.0))"
    return draw.node("f", sizes, form, places, values)


# Products


def factor(draw: Writer, scope: Scope, rows: Size, columns: Size, depth: int) -> Node:
    """A matrix, often one with zeros that are known, or a transposed one."""
    square = rows.text == columns.text
    form = draw.one(
        ["{}"] * 4 + ["{}.T", "az.tril({})", "az.triu({}, 1)"] + (["az.eye({})", "az.diag({})"] if square else [])
    )
    if form == "az.eye({})":
        return draw.node("f", (rows, columns), f"az.eye({rows.text}).astype({draw.float})")
    sizes = {"{}.T": (columns, rows), "az.diag({})": (rows,)}.get(form, (rows, columns))
    return draw.node("f", (rows, columns), form, draw.value(scope, "f", sizes, depth))


@rule(weight=4, ranks=range(3))
def product(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """Of vectors and matrices, square ones more often than by chance."""
    room = scope.budget // max(1, elements(sizes))
    between = draw.one(sizes) if sizes and draw.chance(2) else draw.another(scope, room)
    if between.value > room:
        return None
    if len(sizes) == 2:
        left, right = factor(draw, scope, sizes[0], between, depth), factor(draw, scope, between, sizes[1], depth // 2)
        if draw.chance(4):
            letters = draw.one(["ij,jk->ik", "ij,jk->ik", "ij,kj->ik"])
            if "kj" in letters:
                right = draw.node("f", (sizes[1], between), "{}.T", right)
            return draw.node("f", sizes, f'az.einsum("{letters}", {{}}, {{}})', left, right)
    elif len(sizes) == 1 and draw.chance(2):
        left, right = factor(draw, scope, sizes[0], between, depth), draw.value(scope, "f", (between,), depth // 2)
    elif len(sizes) == 1:
        left, right = draw.value(scope, "f", (between,), depth // 2), factor(draw, scope, between, sizes[0], depth)
    else:
        left, right = draw.value(scope, "f", (between,), depth), draw.value(scope, "f", (between,), depth // 2)
    return draw.node("f", sizes, "({} @ {})", left, right)


@rule(weight=3, ranks=range(2))
def reduced_product(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node | None:
    """A sum, trace, diagonal or maximum of a product of square matrices."""
    size = sizes[0] if sizes else draw.another(scope, int((scope.budget / 2) ** (1 / 3)) + 1)
    if size.value**3 > scope.budget:
        return None
    matrix = draw.node(
        "f", (size, size), "({} @ {})", factor(draw, scope, size, size, depth), factor(draw, scope, size, size, 0)
    )
    if draw.chance(3):
        matrix = draw.node("f", (size, size), "({} @ {})", matrix, factor(draw, scope, size, size, 0))
    forms = (
        ["{}.sum(0)", "{}.sum(1)", "az.diagonal({})", "az.cumsum({}, 1).sum(0)"]
        if sizes
        else ["az.sum({})", "{}.trace()", "az.sum({}, (0, 1))", "az.clip(az.max({}), -8.0, 8.0)"]
    )
    return draw.node("f", sizes, draw.one(forms), matrix)


@rule(ranks=MATRICES)
def outer(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    """Of two vectors, or a vector along an axis of its own."""
    if len(sizes) == 2:
        parts = draw.value(scope, "f", sizes[:1], depth), draw.value(scope, "f", sizes[1:], depth // 2)
        return draw.node("f", sizes, draw.one(["az.outer({}, {})", "({}[:, None] * {})", "({}[:, None] - {})"]), *parts)
    parts = draw.value(scope, "f", sizes[:2], depth), draw.value(scope, "f", sizes[1:], depth // 2)
    return draw.node("f", sizes, "({}[:, :, None] + {})", *parts)


@rule(weight=1, ranks=range(2, 3))
def reshaped(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    form = draw.one(["az.reshape({{}}, {0})", "az.reshape(az.ravel({{}})[::-1], {0})"])
    return draw.node("f", sizes, form.format(shape(sizes)), draw.value(scope, "f", sizes[::-1], depth))


@rule(weight=1, ranks=range(1, 2))
def stencil(draw: Writer, scope: Scope, type: str, sizes: tuple[Size, ...], depth: int) -> Node:
    name, boundary = draw.fresh("w"), draw.one(['"clamp"', '"wrap"', '"mirror"', "0.5"])
    form = f"az.stencil(lambda {name}: {name}[-1] * 0.5 + {name}[{draw.random.randrange(0, 3)}], {boundary}, {{}})"
    return draw.node("f", sizes, form, draw.value(scope, "f", sizes, depth))
