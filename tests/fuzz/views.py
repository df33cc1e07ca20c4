"""Arrays whose sizes are not those of their origins: slices, filters, and what the run decides."""

from __future__ import annotations

from .drawing import Node, Scope, Size, Writer, elements

Sizes = tuple[Size, ...]
SLICES = {
    "1:": lambda n: max(n - 1, 0),
    ":-1": lambda n: max(n - 1, 0),
    "::2": lambda n: (n + 1) // 2,
    "1::3": lambda n: max(n + 1, 0) // 3,
    "::-1": lambda n: n,
    "::-2": lambda n: (n + 1) // 2,
    "-2:": lambda n: min(n, 2),
    ":3": lambda n: min(n, 3),
    "2:5": lambda n: max(min(n, 5) - 2, 0),
}


def view(draw: Writer, scope: Scope, name: str, depth: int) -> tuple[Node, Sizes] | None:
    """An array that will have this name, and its sizes, as they are called through the name."""
    arrays = [each for each in scope.names if each.type == "f" and each.sizes and elements(each.sizes) <= scope.budget]
    if not arrays:
        return None
    source = draw.one(arrays)
    first, rest = source.sizes[0], source.sizes[1:]

    def named(*sizes: Size) -> Sizes:
        return tuple([Size(f"{name}.shape[{k}]", size.value, size.known) for k, size in enumerate(sizes)])

    def of(template: str, *parts: Node) -> Node:
        return Node(("f", ("?",) * (1 + len(rest))), template, parts)

    kinds = ["slice"] * 4 + ["filter", "filter", "decided", "decided", "branches", "branches", "joined", "gathered"]
    kinds += ["transposed"] * 2 if rest else ["mapped"]
    kind = draw.one(kinds)
    value = draw.value(scope, "f", source.sizes, depth)
    if kind == "slice":
        key = draw.one(list(SLICES))
        return of(f"{{}}[{key}]", value), named(Size("", SLICES[key](first.value), first.known), *rest)
    if kind == "filter":
        v = draw.fresh("v")
        test = draw.value(scope.with_name(v, "f", rest), "b", (), 1) if draw.chance(3) else None
        element = v if not rest else f"az.sum({v})"
        test = test or draw.node("b", (), f"({element} > {draw.literal()})")
        return of(f"az.filter(lambda {v}: {{}}, {{}})", test, value), named(Size("", first.value, False), *rest)
    if kind == "decided":
        count = draw.value(scope, "i", (), 1)
        if draw.chance(4) and not rest:
            low = Node(("i", ()), f"az.clip({{}}, 0, {min(first.value, 9)})", (count,))
            form = draw.one([f"az.iota({{}}).astype({draw.float})", f"az.ones({{}}, {draw.float})"])
            return of(form, low), named(Size("", min(first.value, 9), False))
        form = draw.one(["(lambda t: t[:{}])({})", "(lambda t: t[{}:])({})"])
        return of(form, count, value), named(Size("", first.value, False), *rest)
    if kind == "branches":
        test = draw.value(scope, "b", (), 1)
        left, right = draw.random.sample([":2", "1:", "::2", "::-1", ":0", ":-1"], 2)
        other = draw.value(scope, "f", source.sizes, 0)
        form = f"az.cond({{}}, lambda: {{}}[{left}], lambda: {{}}[{right}])"
        return of(form, test, value, other), named(Size("", first.value, False), *rest)
    if kind == "joined":
        other = draw.value(scope, "f", source.sizes, 0)
        key = draw.one(list(SLICES))
        size = Size("", first.value + SLICES[key](first.value), first.known)
        return of(f"az.concatenate(({{}}, {{}}[{key}]))", value, other), named(size, *rest)
    if kind == "gathered":
        places = draw.another(scope, max(1, scope.budget // max(1, elements(rest))))
        if first.value == 0:
            return None
        index = draw.value(scope, "i", (places,), 1)
        return of(f"{{}}[az.clip({{}}, 0, {first.text} - 1)]", value, index), named(places, *rest)
    if kind == "transposed":
        axes = draw.random.sample(range(len(source.sizes)), len(source.sizes))
        sizes = [source.sizes[k] for k in axes]
        return of(f"az.transpose({{}}, {tuple(axes)})", value), named(*sizes)
    v = draw.fresh("v")
    body = draw.value(scope.loop(first).with_name(v, "f"), "f", (), depth)
    return of(f"az.map(lambda {v}: {{}}, {{}})", body, value), named(first)
