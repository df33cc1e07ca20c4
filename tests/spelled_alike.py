"""What is compared of two spellings of a program: the nests that a call takes, up to names."""

import re
from collections.abc import Sequence
from typing import Any

import adze as az
from adze.backends.constant_sizes import code_for_leaves
from adze.core.dims import Dim


def nests_of_call(program: az.Program, arguments: Sequence[Any]) -> str:
    """The nests that a call takes, with names that tell their place alone; see :func:`numbered_anew`."""
    instance = program.at()
    return numbered_anew(az.compile(code_for_leaves(instance, instance.leaves(arguments))).nests)


def numbered_anew(nests: str) -> str:
    """The text of nests with names that tell their place alone, and those of sizes where the arguments have them."""
    head = re.search(r"^\w*\((.*?); (.*)\) ->", nests, re.MULTILINE)
    assert head is not None, nests
    sizes = dict.fromkeys(re.findall(r"[a-z_]\w*", " ".join(re.findall(r"\[(.*?)\]", head[2]))))
    names = {size: f"size{place}" for place, size in enumerate(sizes)}

    def name(found: re.Match[str]) -> str:
        made = re.fullmatch(r"[a-z_]+\d+", found[0]) and found[0] not in ("f64", "f32", "i64", "i32")
        return names.setdefault(found[0], f"v{len(names)}") if made else names.get(found[0], found[0])

    body = re.sub(r"\b[a-z_]\w*\b(?!\()", name, re.sub(r"^.*\) -> .*$", "", nests, flags=re.MULTILINE))
    return re.sub(r"(?<=^# where )(.*)$", lambda found: _condition(found[0]), body, flags=re.MULTILINE)


def _condition(text: str) -> str:
    """A condition on sizes, whose polynomials are in the order of their names."""
    sides = [[str(Dim.parse(side)) for side in each.split(" < ")] for each in text.split(" and ")]
    return " and ".join(sorted([" < ".join(each) for each in sides]))
