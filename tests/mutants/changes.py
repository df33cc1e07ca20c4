"""All mutants: scalar partials with their signs turned, and places of rules, or of the compiler, that are changed."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import compiler
from living import Living
from mutations import Mutation, mutated, mutations, of_rules

from adze.ad.activity import active_operands
from adze.core.primitive import PRIMITIVES

ROOT = Path(__file__).resolve().parents[2]
# The other modules of ad/: analyses, verbs, passes that change what a derivative costs, the machinery of return sweeps.
NO_RULES = (
    "__init__", "active_calls", "active_parts", "activity", "branches", "colouring", "differentiating", "directions",
    "forms", "fragment", "interchange", "jacobians", "linearity", "modes", "plan", "scalar_expansion", "sparse",
    "sums_of_tangents", "sweeps", "traced", "verbs", "walks",
)  # fmt: skip


def module(file: str) -> ModuleType:
    return importlib.import_module(f"adze.{file.removesuffix('.py').replace('/', '.')}")


@dataclass(frozen=True)
class Partial:
    """The sign of what one operand of a primitive moves, turned."""

    primitive: str
    operand: int

    @property
    def key(self) -> object:
        return self.primitive, self.operand

    @property
    def spot(self) -> object:
        return self.primitive

    def install(self, living: Living) -> bool:
        row = PRIMITIVES[self.primitive]
        rule = row.derivative
        assert rule is not None

        def wrong(y: Any, *operands: Any) -> tuple[Any, ...]:
            shares = list(rule(y, *operands))
            right = shares[self.operand]
            shares[self.operand] = lambda t: -right(t)
            return tuple(shares)

        object.__setattr__(row, "derivative", wrong)
        return True

    def __str__(self) -> str:
        return f"the partial of {self.primitive} by operand {self.operand}, negated"


@dataclass(frozen=True)
class Source:
    """A changed module of rules."""

    mutation: Mutation

    @property
    def key(self) -> object:
        return self.mutation.key

    @property
    def spot(self) -> object:
        return self.mutation.file, self.mutation.spot

    def install(self, living: Living) -> bool:
        return bool(living.change(self.mutation.file, mutated(ROOT, self.mutation)))

    def __str__(self) -> str:
        return str(self.mutation)


@dataclass(frozen=True)
class Nothing:
    """No change, at the place of a mutant: it must survive, or the mutants that do not say nothing."""

    spot: object
    key: object = None

    def install(self, living: Living) -> bool:
        return True

    def __str__(self) -> str:
        return "what changes nothing"


Mutant = Partial | Source | Nothing


def of_the_rules() -> list[Mutant]:
    """All mutants of derivatives."""
    found: list[Mutant] = []
    for row in PRIMITIVES.values():
        found += [Partial(row.name, k) for k, moves in enumerate(active_operands(row)) if moves]
    for file in files_of_rules():
        found += [Source(mutation) for mutation in mutations(ROOT, file, of_rules)]
    return found


def files_of_rules() -> list[str]:
    """The modules of rules."""
    return _files("ad", NO_RULES)


def of_the_backends() -> list[Mutant]:
    """All mutants of the compiler, shuffled: by their keys without the file, so that a function is changed as before
    while others are written anew, and where it moves."""

    def number(mutant: Source) -> bytes:
        change = mutant.mutation
        return hashlib.blake2b(repr((compiler.SEED, *change.key[1:])).encode()).digest()

    found = [Source(each) for file in files_of_backends() for each in mutations(ROOT, file, compiler.kinds)]
    return list(sorted(found, key=number))


def files_of_backends() -> list[str]:
    """The modules of the compiler, and of OpenCL's the one that does not write text."""
    files = _files("backends", compiler.NO_PROGRAM_SHOWS)
    return [file for file in files if "/opencl/" not in file or file.endswith("/kernels.py")]


def _files(folder: str, left_out: Sequence[str]) -> list[str]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [path.relative_to(ROOT).as_posix() for path in paths if path.stem not in left_out]
