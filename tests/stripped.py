"""Programs without their annotations: what a program is when its arguments alone say what they are.

An argument without an annotation takes its structure, its scalar types and its ranks from what is given, and has a
fresh name for each size. Left are what only an annotation can say: integer sizes, static parameters, and the sizes
inside of data and of functions.

    f(x: f64[n, 3], y: f64[n])    becomes    f(x: f64[x_0, 3], y: f64[y_0])
"""

from dataclasses import replace
from itertools import count
from typing import Any

from adze.backends.constant_sizes import ConstantSizes, code_for
from adze.backends.schedule.terms.legalisation import legalised
from adze.core.annotations import Parameter
from adze.core.builder import build
from adze.core.dims import Dim, DimAtom, Name
from adze.core.environment import Env
from adze.core.placement import to_block
from adze.core.program import Instance, Program
from adze.core.terms import Block
from adze.core.types import ArrayType, Type, all_dims, dims, element, is_data, map_dims
from adze.core.verb import Verb
from adze.interpreters.embed import Embed
from adze.interpreters.simplify import simplify


def stripped(program: Program) -> Instance:
    """The version of a program that arguments choose where nothing is annotated."""
    given = program.at()
    inside = {name for type in given.types if not is_data(type) for dim in all_dims(type) for name in dim.names()}
    types = [_fresh(type, name, inside) for type, name in zip(given.types, given.names, strict=True)]
    return without_annotations(program)._instance(types, given.inputs.inner, given.statics)


def without_annotations(program: Program) -> Program:
    """The same function, or the same verb of it."""
    function: Any = program.function
    if isinstance(function, Verb):
        function = replace(function, f=without_annotations(function.f))
    parameters = [Parameter(p.name, None, p.static, p.default) for p in program.parameters]
    return Program(function, program.name, parameters, of=function.f if isinstance(function, Verb) else None)


def _fresh(type: Type, name: str, known: set[str]) -> Type:
    """A type with a name of its own for each size."""
    if not isinstance(type, ArrayType):
        return type
    sizes = [
        dim if dim.constant is not None or (dim.names() and dim.names() <= known) else Dim.parse(f"{name}_{axis}")
        for axis, dim in enumerate(dims(type))
    ]
    return ArrayType(element(type), tuple(sizes))


def same_code(program: Program) -> bool:
    """Whether the code for a call is that of the annotated program, up to what is required and what sizes are called.

    The sizes of the call are different, and too large to be constants.
    """
    annotated, own = program.at(), stripped(program)
    numbers = count(17)
    values = {name: next(numbers) for type in annotated.types for dim in all_dims(type) for name in sorted(dim.names())}
    pairs = zip(own.types, annotated.types, strict=True)
    meaning = {
        name: size
        for type, other in pairs
        for dim, size in zip(all_dims(type), all_dims(other), strict=True)
        for name in dim.names()
    }
    code = code_for(own, {name: size.evaluate(values) for name, size in meaning.items()})
    named = {name: Dim.atom(Name(name)) for name in values}
    term = legalised(annotated.term) if isinstance(code, ConstantSizes) else annotated.term
    return _without_requirements(code.term, meaning) == _without_requirements(term, named)


def _without_requirements(block: Block, meaning: dict[str, Dim]) -> Block:
    """The simplified term without what it requires, with sizes for its names."""

    def new(atom: DimAtom) -> Dim | None:
        return meaning.get(atom.name) if isinstance(atom, Name) else None

    class Renamed(Embed):
        def dim(self, dim: Dim) -> Any:
            return super().dim(dim.substitute(new))

    simplified = simplify(block)
    with build() as builder:
        binders = [builder.variable(map_dims(type, lambda dim: dim.substitute(new))) for type in simplified.binders]
        embed = Renamed(builder)
        embed.checks = False
        results = simplified.interpret(embed)(Env(), binders)
        return to_block(binders, results, builder.scopes[0].statements)[0]
