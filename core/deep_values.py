"""Values of declared types as Python objects: their text, equality, hash and pickled form.

A list of the language is as deep as it is long, deeper than Python's stack. So these walks keep what is left to do in a
list of their own, and recur nowhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .trees import Record


def text_of(value: Record) -> str:
    """The call that makes a value: ``List.Cons(head=1.0, tail=List.Nil())``."""
    pieces: list[str] = []
    todo: list[Any] = [(value,)]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            pieces.append(item)
        elif isinstance(item[0], tuple):
            parts = [piece for part in item[0] for piece in (", ", (part,))][1:]
            todo.extend([")", "," if len(item[0]) == 1 else "", *reversed(parts), "("])
        elif isinstance(item[0], Record):
            pieces.append(f"{type(item[0]).__qualname__}(")
            inside: list[Any] = []
            for k, (name, part) in enumerate(zip(item[0]._names(), item[0]._values, strict=True)):
                inside += [f"{', ' if k else ''}{name}=", (part,)]
            todo.extend(reversed([*inside, ")"]))
        else:
            pieces.append(str(item[0]) if isinstance(item[0], np.generic) else repr(item[0]))
    return "".join(pieces)


def are_equal(one: Record, other: Record) -> bool:
    """Whether values have the same variants and equal fields."""
    pairs: list[tuple[Any, Any]] = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        if a is b:
            continue
        if isinstance(a, Record) and isinstance(b, Record):
            if type(a) is not type(b):
                return False
            pairs.extend(zip(a._values, b._values, strict=True))
        elif isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                return False
            pairs.extend(zip(a, b, strict=True))
        elif isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            if not np.array_equal(a, b):
                return False
        elif a != b:
            return False
    return True


def hash_of(value: Record) -> int:
    """A hash that equal values share; TypeError when a field has none."""
    total, todo = 0, [value]
    while todo:
        item: Any = todo.pop()
        if isinstance(item, Record):
            todo.extend(item._values)
            item = type(item).__qualname__
        total = hash((total, item))
    return total


def steps_of(value: Record) -> list[Any]:
    """A value as a list of classes and fields in post-order, for pickle cannot follow it: what ``restored`` takes."""
    steps: list[Any] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        steps.append((type(item), len(item._values)) if isinstance(item, Record) else (None, item))
        if isinstance(item, Record):
            todo.extend(item._values)
    return steps[::-1]


def restored(steps: list[Any]) -> Any:
    """The value of these steps."""
    done: list[Any] = []
    for cls, content in steps:
        if cls is None:
            done.append(content)
        else:
            values = done[len(done) - content :]
            del done[len(done) - content :]
            done.append(cls._of(values))
    return done[0]
