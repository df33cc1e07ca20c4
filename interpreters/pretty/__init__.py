"""Programs as text that a person would write, in one of four styles.

    def cost(points: f64[n, d], centroids: f64[k, d]) -> f64:
      return sum(map(lambda p: min(map(lambda c: sum((p - c) ** 2), centroids)), points))

``style="surface"`` (the default) is the text above: what the loops of a term are as whole arrays (``surface.py``),
printed by ``printer.py``. ``style="loops"`` shows every loop with its index, as in ``sum(i < n: x[i] ** 2)``.
``style="procedures"`` is the first-order form of a program with functions and data (``first_order/``): the program,
then the procedures that it calls. ``style="de-bruijn"`` is the raw term, one line an operation (``raw.py``).

The text of a program is the same in every run, so tests compare it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import trees
from ...core.limits import lifted_limits
from ...core.procedures import procedures_of
from ...core.program import Instance, instance_of
from ...core.source import Origin, at_line, ending_at_user
from ...core.terms import Block, Constant
from ...core.types import ArrayType, all_dims
from ...core.verb import Function
from ..first_order import first_order
from ..simplify import simplify
from .printer import LINE, Printer
from .raw import raw
from .resolved import Bound, count_uses, resolve
from .structures import give, structured
from .surface import recognise

STYLES = ("surface", "loops", "procedures", "de-bruijn")

Line = tuple[str, frozenset[Origin]]  # of text, and where what stands in it was written


@ending_at_user
def pretty(program: Function[..., Any] | Block, *, simplified: bool = True, style: str = "surface") -> str:
    """The text of a program, simplified first unless ``simplified=False``; a term is printed as it is.

    The style is "surface", "loops", "procedures" or "de-bruijn" (see the module); ValueError for another one, and
    Unsupported for procedures of a program that takes or gives functions. A program must have its types in its
    annotations; print ``f.at(types...)`` for another choice.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> print(az.pretty(norm2))
    def norm2(x: f64[n]) -> f64:
      return sum(x ** 2)
    >>> print(az.pretty(norm2, style="loops"))
    def norm2(x: f64[n]) -> f64:
      return sum(i < n: x[i] ** 2)
    >>> print(az.pretty(norm2, style="de-bruijn"))
    (x: f64[n]) ->
      reduce n, 0.0: f64
        (i64) ->
          index %1, %0: f64
          primitive[multiply] %0, %0: f64
          => %0
        (f64, f64) ->
          primitive[add] %1, %0: f64
          => %0
      => %0
    """
    if style not in STYLES:
        raise ValueError(at_line(f"style is one of {', '.join(map(repr, STYLES))}, got {style!r}"))
    with lifted_limits():
        if style == "procedures":
            return _procedures(program, simplified)
        if isinstance(program, Block):
            return raw(program) if style == "de-bruijn" else _text("program", program, program.names, None, style)
        instance = instance_of(program)
        term = instance.term
        if simplified:
            term = simplify(term)
        if style == "de-bruijn":
            return raw(term)
        return _text(instance.program.name, term, instance.names, instance.outputs, style)


def lines(instance: Instance) -> list[Line]:
    """The text of a program in its surface style, by lines: each with where what stands in it was written.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> [(text, len(origins)) for text, origins in lines(norm2.at())]
    [('def norm2(x: f64[n]) -> f64:', 0), ('  return sum(x ** 2)', 1)]
    """
    with lifted_limits():
        return _lines(instance.program.name, simplify(instance.term), instance.names, instance.outputs, "surface")


def _procedures(program: Function[..., Any] | Block, simplified: bool) -> str:
    """The first-order form of a program, and its procedures."""
    name = "program" if isinstance(program, Block) else instance_of(program).program.name
    form = first_order(program if isinstance(program, Block) else instance_of(program).term).block
    named = [(name, form), *[(procedure.name, procedure.block) for procedure in procedures_of(form)]]
    blocks = [(name, simplify(block) if simplified else block) for name, block in named]
    return "\n\n".join([_text(name, block, block.names, None, "surface") for name, block in blocks])


def _text(name: str, block: Block, names: Sequence[str], outputs: trees.Shape | None, style: str) -> str:
    return "\n".join([text for text, _ in _lines(name, block, names, outputs, style)])


def _lines(name: str, block: Block, names: Sequence[str], outputs: trees.Shape | None, style: str) -> list[Line]:
    resolved = resolve(block)
    recognise(resolved, loops=style == "loops")
    count_uses(resolved)
    printer = Printer({name for type in block.binders for dim in all_dims(type) for name in dim.names()})
    parameters = []
    for value, hint in zip(resolved.binders, names, strict=True):
        value.hint = hint or "x"
        parameters.append(f"{printer.bind(value)}: {value.type}")
    several = trees.Shape(tuple, (), (trees.LEAF,) * len(resolved.results))
    structure = outputs or (trees.LEAF if len(resolved.results) == 1 else several)
    if structure == trees.LEAF or (structure.container is tuple and len(structure.inner) == structure.leaves != 1):
        printer.body(resolved, "return")
    else:
        printer.operations(resolved.operations)
        made = [result.source for result in resolved.results if isinstance(result, Bound)]
        with printer.showing(*[operation.origin for operation in made if operation is not None]):
            give(printer, structure, [printer.atom(result) for result in resolved.results])
    types = structured(structure, [str(type) for type in block.types])
    constants = [f"  {given} = {_content(constant)}" for constant, given in printer.constants.items()]
    header = [f"def {name}({', '.join(parameters)}) -> {types}:"]
    if len(header[0]) > LINE:
        header = [f"def {name}(", *[f"  {parameter}," for parameter in parameters], f") -> {types}:"]
    outside: list[Line] = [(text, frozenset()) for text in (*header, *constants)]
    return [*outside, *zip(printer.lines, printer.origins, strict=True)]


def _content(constant: Constant) -> str:
    """A captured array: its elements if they are few."""
    if constant.array.size <= 8:
        return f"{constant.array.tolist()}"
    return f"a captured {ArrayType(constant.type.scalar, constant.type.dims)}"
