"""Small sizes of arguments without annotation, as constants (polyvariant specialisation).

Who writes ``az.Array[az.f64, "n 3"]`` says that an axis has length 3, and gets loops over it written out. Who leaves
the annotation out says nothing, so the first call says it: an axis of at most 16 elements is a constant in the code
that this call compiles. When a later call has another length there, the code for that call has a name for this size,
and the code for those after it, too. So k such axes lead to at most k + 1 codes, however many lengths come::

    f(points of shape (5, 3))      code for points_0 = 5 and points_1 = 3
    f(points of shape (1000, 3))   code for points_1 = 3
    f(points of shape (2000, 3))   the same

In the same way code may assume that sizes are equal which the program requires to be equal somewhere in a loop or a
branch (``core/unification.py``): they are equal in the first call, and code is the same as if the annotations said so.
This holds for sizes with a name, too: who writes ``x: f64[n, d]``, ``gain: f64[m]`` and reads ``gain[j]`` for all j < d
has not said that m is d, and every call will.

A program means the same for constants and for names: its term is built with names, and they are replaced in it. Sums
may be associated in another order, so that last bits may differ between the codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.arguments import Signature
from ..core.builder import Builder, build
from ..core.dims import Dim, DimAtom, Name
from ..core.environment import Env
from ..core.placement import to_block
from ..core.program import Instance
from ..core.terms import Block
from ..core.types import Type, all_dims, is_data, map_dims
from ..core.unification import Equality, Unifier
from ..interpreters.embed import Atom, Embed
from ..interpreters.first_order import is_first_order
from .schedule.terms.legalisation import legalised
from .specialisations import conjunction

# The longest axis that is a constant: short ones have their loops written out, and are kept in registers.
SMALL = 16


@dataclass(kw_only=True)
class ConstantSizes(Instance):
    """An instance for some sizes of another one: these are constants in its types and its term."""

    general: Instance
    sizes: Mapping[str, int]

    @property
    def declared(self) -> Signature:
        """What checks arguments: in the words of the program as it was written."""
        return self.general.declared

    @property
    def condition(self) -> str:
        """Which sizes it is for, as text."""
        equal = [f"{each.left} = {each.right}" for each in self.assumed]
        return conjunction([*[f"{name} = {value}" for name, value in self.sizes.items()], *equal])

    def agrees(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is for these sizes."""
        constant = all([sizes[name] == value for name, value in self.sizes.items()])
        return constant and all([each.holds(sizes) for each in self.assumed])

    def _build(self) -> None:
        whole = self.general
        if self.assumed:
            whole = Instance(whole.program, whole.types, whole.names, whole.inputs, whole.statics, assumed=self.assumed)
        self._equalities = tuple([each.map(lambda dim: _replaced_in(dim, self.sizes)) for each in whole.equalities])
        self._term, self._outputs = _replaced(legalised(whole.term), self.sizes), whole.outputs

    def __reduce__(self) -> Any:
        return _with_sizes, (self.general, dict(self.sizes), self.assumed)


def code_for(instance: Instance, sizes: Mapping[str, int]) -> Instance:
    """The instance whose code a call with these sizes takes: this one, or one with small sizes as constants.

    Raises what the program requires of sizes, before there is code that cannot be called.
    """
    known = codes(instance)
    for each in known:
        if each.agrees(sizes):
            return each
    if known:
        constant, assumed = known[-1].sizes, known[-1].assumed
    else:
        constant = {name: sizes[name] for name in _open(instance) if 0 < sizes[name] <= SMALL}
        assumed = _solvable(instance, sizes)
    agreed = {name: value for name, value in constant.items() if sizes[name] == value}
    assumed = tuple([each for each in assumed if each.holds(sizes)])
    if not agreed and not assumed:
        return instance
    for equality in instance.required:
        equality.check(sizes)
    known.append(_with_sizes(instance, agreed, assumed))
    return known[-1]


def code_for_leaves(instance: Instance, leaves: Sequence[Any]) -> Instance:
    """The instance whose code a call with the leaves of these arguments takes."""
    return code_for(instance, instance.declared.sizes(leaves)) if varies(instance) else instance


def varies(instance: Instance) -> bool:
    """Whether sizes choose among several codes for an instance: some are open, or likely to be equal."""
    found: bool | None = instance.compiled.get("varies")
    if found is None:
        open_or_equal = bool(_open(instance) or _independent(instance, instance.probable))
        found = instance.compiled["varies"] = open_or_equal and _is_plain(instance)
    return found


def _is_plain(instance: Instance) -> bool:
    """Whether there are no functions and no data in an instance, whose types would keep the names of sizes."""
    return instance.written_term is None or is_first_order(instance.written_term)


def _solvable(instance: Instance, sizes: Mapping[str, int]) -> tuple[Equality, ...]:
    """What is likely of sizes and holds for these, as far as it says more than the program requires in every run."""
    found = [each for each in instance.probable if each.holds(sizes)]
    return _independent(instance, found) if found else ()


def _independent(instance: Instance, found: Sequence[Equality]) -> tuple[Equality, ...]:
    """Those of some equalities of sizes that say more than those before, and than the program's types."""
    unifier = Unifier(instance.types)
    for equality in instance.required:
        unifier.add(equality)
    return tuple([each for each in found if unifier.add(each)])


def codes(instance: Instance) -> list[ConstantSizes]:
    """The instances with constants that calls have led to: each has fewer than the one before."""
    found: list[ConstantSizes] = instance.compiled.setdefault("constant sizes", [])
    return found


def _open(instance: Instance) -> tuple[str, ...]:
    """The names of the sizes that no annotation has given."""
    found: tuple[str, ...] | None = instance.compiled.get("open sizes")
    if found is None:
        types, given, others = iter(instance.types), set[str](), dict[str, None]()
        for parameter, shape in zip(instance.program.dynamic, instance.inputs.inner, strict=True):
            for type in [next(types) for _ in range(shape.leaves)]:
                names = [name for dim in all_dims(type) for name in sorted(dim.names())]
                if parameter.declared is not None:
                    given.update(names)
                elif is_data(type):
                    others |= dict.fromkeys(names)
        found = instance.compiled["open sizes"] = tuple([name for name in others if name not in given])
    return found


def _with_sizes(instance: Instance, sizes: Mapping[str, int], assumed: tuple[Equality, ...]) -> ConstantSizes:
    types = tuple([_constant(type, sizes) for type in instance.types])
    names, inputs = instance.names, instance.inputs
    return ConstantSizes(
        program=instance.program, types=types, names=names, inputs=inputs, statics=instance.statics,
        general=instance, sizes=sizes, assumed=assumed,
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
