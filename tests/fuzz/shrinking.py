"""The smallest case that fails in the same way: smaller texts are tried until none fails so.

A part of the program gives way to one inside it that has the same sort, or to the simplest text of that sort. A
statement, a result, an argument's size, an option of the compilation goes. Whatever a candidate uses that is no longer
there, it fails otherwise, and is not taken. Candidates that remove most come first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from .cases import Case, Configuration
from .drawing import Node
from .workers import SECONDS, Outcome, outcomes


def shrunk(case: Case, outcome: Outcome, mode: str, jobs: int = 1, seconds: float = 120) -> tuple[Case, Outcome]:
    """The smallest case found in so many seconds that has an outcome of the same signature, and that outcome."""
    end, limit = time.monotonic() + seconds, 15 if outcome.kind == "timeout" else SECONDS[mode]
    tried = {case.digest}
    while time.monotonic() < end:
        for smaller in candidates(case):
            if time.monotonic() > end:
                break
            if smaller.digest in tried:
                continue
            tried.add(smaller.digest)
            (_, found), *_ = outcomes([smaller], mode, jobs, limit)
            if found.signature == outcome.signature:
                case, outcome = smaller, found
                break
        else:
            break
    return case, outcome


def candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, those that are much smaller first."""
    if len(case.results) > 1:
        for result in case.results:
            yield replace(case, results=(result,))
    for k in reversed(range(len(case.statements))):
        yield replace(case, statements=(*case.statements[:k], *case.statements[k + 1 :]))
        yield replace(case, statements=case.statements[:k], results=(case.statements[k][1],))
    sizes = case.sizes
    for value in (0, 1, 2, 3, 7, 33, 64):
        for names in (tuple(sizes), *[(name,) for name in sizes], ("n", "p"), ("n", "m")):
            if all(sizes[name] > value for name in names):
                yield replace(case, sizes={**sizes, **dict.fromkeys(names, value)})
    how = case.configuration
    for simpler in (Configuration(derivative=how.derivative), replace(how, optimised=True), replace(how, bounds=False),
                    replace(how, schedule=()), replace(how, threads=1), replace(how, annotated=True)):  # fmt: skip
        if simpler != how:
            yield replace(case, configuration=simpler)
    if case.special:
        yield replace(case, special=False)
    if case.float != "az.f64":
        yield replace(case, float="az.f64")
    for k, result in enumerate(case.results):
        for smaller in smaller_nodes(result):
            yield replace(case, results=(*case.results[:k], smaller, *case.results[k + 1 :]))
    for k, (name, node) in enumerate(case.statements):
        for smaller in smaller_nodes(node):
            yield replace(case, statements=(*case.statements[:k], (name, smaller), *case.statements[k + 1 :]))


def smaller_nodes(node: Node) -> Iterator[Node]:
    """Nodes of the same sort: a part instead of the whole, a simple text, or the same with a smaller part."""
    inside = sorted(descendants(node), key=lambda part: len(str(part)))
    yield from [part for part in inside if alike(part, node) and len(str(part)) < len(str(node))]
    for text in simple(node):
        if len(text) < len(str(node)):
            yield Node(node.sort, text)
    for k, part in enumerate(node.parts):
        for smaller in smaller_nodes(part):
            yield replace(node, parts=(*node.parts[:k], smaller, *node.parts[k + 1 :]))


def alike(part: Node, whole: Node) -> bool:
    """The same sort; at a place where sizes do not matter, the same rank."""
    free = "?" in whole.sort[1]
    return part.sort == whole.sort or (
        free and part.sort[0] == whole.sort[0] and len(part.sort[1]) == len(whole.sort[1])
    )


def descendants(node: Node) -> Iterator[Node]:
    for part in node.parts:
        yield part
        yield from descendants(part)


def simple(node: Node) -> list[str]:
    type, sizes = node.sort
    if not sizes:
        return {"f": ["r", "x[0]"], "i": ["0", "1", "h"], "b": ["True", "(r > 0.3)"]}[type]
    if type != "f" or "?" in sizes:
        return ["x"] if type == "f" and len(sizes) == 1 else []
    names = {("x.shape[0]",): ["x"], ("x.shape[0]", "a.shape[1]"): ["a"], ("x.shape[0]", "x.shape[0]"): ["c"]}
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
    return [*names.get(sizes, []), f"az.ones({shape})"]
