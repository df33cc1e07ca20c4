"""Small sizes of arguments without annotation, as constants (polyvariant specialisation).

Who writes ``az.Array[az.f64, "n 3"]`` says that an axis has length 3, and gets loops over it written out. Who leaves
the annotation out says nothing, so the first call says it: an axis of at most 16 elements is a constant in the code
that this call compiles. When a later call has another length there, the code for that call has a name for this size,
and the code for those after it, too. So k such axes lead to at most k + 1 codes, however many lengths come::

    f(points of shape (5, 3))      code for points_0 = 5 and points_1 = 3
    f(points of shape (1000, 3))   code for points_1 = 3
    f(points of shape (2000, 3))   the same

A program means the same for constants and for names: its term is built with names, and they are replaced in it. Sums
may be associated in another order, so that last bits may differ between the codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.builder import Builder, build
from ..core.dims import Dim, DimAtom, Name
from ..core.environment import Env
from ..core.placement import to_block
from ..core.program import Instance
from ..core.terms import Block
from ..core.types import Type, dims, is_data, map_dims
from ..interpreters.embed import Atom, Embed
from .prepare import prepare
from .specialisations import conjunction

SMALL = 16


@dataclass(kw_only=True)
class ConstantSizes(Instance):
    """An instance for some sizes of another one: these are constants in its types and its term."""

    general: Instance
    sizes: Mapping[str, int]

    @property
    def condition(self) -> str:
        """Which sizes it is for, as text."""
        return conjunction([f"{name} = {value}" for name, value in self.sizes.items()])

    def agrees(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is for these sizes."""
        return all([sizes[name] == value for name, value in self.sizes.items()])

    def _build(self) -> None:
        self._equalities = tuple(
            [each.map(lambda dim: _replaced_in(dim, self.sizes)) for each in self.general.equalities]
        )
        self._term, self._outputs = _replaced(prepare(self.general.term), self.sizes), self.general.outputs

    def __reduce__(self) -> Any:
        return _with_sizes, (self.general, dict(self.sizes))


def code_for(instance: Instance, sizes: Mapping[str, int]) -> Instance:
    """The instance whose code a call with these sizes takes: this one, or one with small sizes as constants.

    Raises what the program requires of sizes, before there is code that cannot be called.
    """
    known = codes(instance)
    for each in known:
        if each.agrees(sizes):
            return each
    constant = known[-1].sizes if known else {name: sizes[name] for name in _open(instance) if 0 < sizes[name] <= SMALL}
    agreed = {name: value for name, value in constant.items() if sizes[name] == value}
    if not agreed:
        return instance
    for equality in instance.equalities:
        equality.check(sizes)
    known.append(_with_sizes(instance, agreed))
    return known[-1]


def code_for_leaves(instance: Instance, leaves: Sequence[Any]) -> Instance:
    """The instance whose code a call with the leaves of these arguments takes."""
    return code_for(instance, instance.signature.sizes(leaves)) if _open(instance) else instance


def codes(instance: Instance) -> list[ConstantSizes]:
    """The instances with constants that calls have led to: each has fewer than the one before."""
    found: list[ConstantSizes] = instance.compiled.setdefault("constant sizes", [])
    return found


def _open(instance: Instance) -> tuple[str, ...]:
    """The names of the sizes that no annotation has given."""
    found: tuple[str, ...] | None = instance.compiled.get("open sizes")
    if found is None:
        types, names = iter(instance.types), dict[str, None]()
        for parameter, shape in zip(instance.program.dynamic, instance.inputs.inner, strict=True):
            for type in [next(types) for _ in range(shape.leaves)]:
                if parameter.declared is None and is_data(type):
                    names |= dict.fromkeys([name for dim in dims(type) for name in sorted(dim.names())])
        found = instance.compiled["open sizes"] = tuple(names)
    return found


def _with_sizes(instance: Instance, sizes: Mapping[str, int]) -> ConstantSizes:
    types = tuple([_constant(type, sizes) for type in instance.types])
    names, inputs = instance.names, instance.inputs
    return ConstantSizes(
        program=instance.program, types=types, names=names, inputs=inputs, statics=instance.statics,
        general=instance, sizes=sizes,
    )  # fmt: skip


def _replaced(block: Block, sizes: Mapping[str, int]) -> Block:
    """A closed block with constants for sizes."""
    with build() as builder:
        named = zip(block.binders, block.names, strict=True)
        binders = [builder.variable(_constant(type, sizes), name) for type, name in named]
        results = block.interpret(_Replace(builder, sizes))(Env(), binders)
        replaced, captured = to_block(binders, results, builder.scopes[0].statements, block.names)
        assert not captured
        return replaced


def _constant(type: Type, sizes: Mapping[str, int]) -> Type:
    return map_dims(type, lambda dim: _replaced_in(dim, sizes))


def _replaced_in(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    def meaning(atom: DimAtom) -> Dim | None:
        return Dim.of(sizes[atom.name]) if isinstance(atom, Name) and atom.name in sizes else None

    return dim.substitute(meaning)


class _Replace(Embed):
    def __init__(self, builder: Builder, sizes: Mapping[str, int]) -> None:
        super().__init__(builder)
        self._sizes = sizes

    def dim(self, dim: Dim) -> Atom:
        replaced = _replaced_in(dim, self._sizes)
        return lambda env: self.builder.dim(replaced)
