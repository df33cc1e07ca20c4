"""``az.explore``: a program and everything that is made of it, on one page.

The page has a panel for each stage: the user's source, the program, its derivative, nests, loops, LLVM IR, assembly
and OpenCL C, with what the scheduler decided and what a call takes. Pointing at a line lights up, in all panels, what
came from the same place (``panels.py`` says when lines belong together, ``stages.py`` how each stage knows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ad.verbs import grad, vjp
from ..backends.backend import LLVM
from ..backends.compile import compile
from ..backends.compiled import Compiled
from ..backends.cost import Breakdown
from ..backends.opencl import version as opencl
from ..core.language import Unsupported
from ..core.program import Instance, Program, instance_of
from ..core.source import ending_at_user, line_of
from ..core.types import Scalar, holds_floating
from ..interpreters import pretty
from .document import Page
from .panels import Line, Panel
from .sources import source_panel
from .stages import decisions_panel, opencl_panel, stage_panels


@ending_at_user
def explore(
    program: Program | Instance | Compiled | Callable[..., Any],
    *arguments: Any,
    sizes: Mapping[str, int] | None = None,
    kernels: bool = True,
) -> Page:
    """A page of a program and of all that it is lowered to; a notebook shows it, ``.save("page.html")`` keeps it.

    With ``arguments`` the program is run on them, and the page tells what each nest took; with ``sizes=`` that is
    estimated. A compiled program is shown with its own options. What a program made by a verb was made of is shown
    beside it; a program as it was written is shown with its derivative, by all parameters that hold floating numbers.
    ``kernels=False`` leaves out the kernels of the first device. The page needs no server and no network.

    Raises TypeError for a program whose parameters have no types and that is given no arguments, and for arguments
    with ``sizes=``; what a call raises for its arguments.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> page = az.explore(norm2, kernels=False)
    >>> page
    <page of norm2: source, program, derivative, nests, loops, decisions, llvm, assembly>
    >>> str(page).startswith("<!doctype html>")
    True
    """
    if arguments and sizes is not None:
        raise TypeError("az.explore takes arguments, or sizes=, not both: arguments have their sizes")
    compiled = program if isinstance(program, Compiled) else compile(program)
    if not isinstance(compiled.backend, LLVM):
        raise TypeError("az.explore shows what is compiled for the CPU, and the kernels beside it: give the program")
    of: Any = compiled.program
    instance = of.instance_for(of.bind(arguments, {})) if arguments and isinstance(of, Program) else instance_of(of)
    panels = [*_printed(instance), *_compiled(compiled, instance, arguments, sizes)]
    if kernels:
        panels.append(_opencl(of, arguments, sizes))
    origins = [origin for panel in panels for line in panel.lines for origin in line.origins]
    home = line_of(instance.written.program.function)
    return Page(instance.program.name, (source_panel(origins, home), *panels))


# What is printed


def _printed(instance: Instance) -> list[Panel]:
    """The program as it was written, and what a verb makes of it."""
    written = instance.written
    program = _program_panel("program", "Program", "The term, simplified, as whole arrays.", written)
    title = "Derivative"
    if written is not instance:
        about = "The program of derivatives that is compiled below. What a line was derived from lights up with it."
        return [program, _program_panel("derivative", title, about, instance)]
    try:
        derivative = _derivative(instance)
        if isinstance(derivative, str):
            return [program, Panel.empty("derivative", title, derivative)]
        about = "A program like any other; az.explore of it shows how it is compiled."
        return [program, _program_panel("derivative", title, about, derivative)]
    except (TypeError, ValueError) as error:
        return [program, Panel.empty("derivative", title, f"There is none: {error}")]


def _program_panel(key: str, title: str, about: str, instance: Instance) -> Panel:
    lines = [Line(text, origins) for text, origins in pretty.lines(instance)]
    return Panel.of(key, f"{title} {instance.program.name}", about, lines)


def _derivative(instance: Instance) -> Instance | str:
    """The gradient by all parameters that hold floating numbers, or the cotangents; else why there is neither."""
    program = instance.program
    moving, start = [], 0
    for parameter, shape in zip(program.dynamic, instance.inputs.inner, strict=True):
        if any(map(holds_floating, instance.types[start : start + shape.leaves])):
            moving.append(program.parameters.index(parameter))
        start += shape.leaves
    if not moving:
        return "There is none: no parameter holds floating numbers."
    results = instance.term.types
    if not any(map(holds_floating, results)):
        return "There is none: no result is a floating number."
    argnums = moving[0] if len(moving) == 1 else tuple(moving)
    if len(results) == 1 and isinstance(results[0], Scalar):
        gradient: Program = grad(program, argnums=argnums)
        return gradient._instance(instance.types, instance.inputs.inner, instance.statics)
    if not program.annotated:
        return "az.vjp has one, once the parameters of the program have types."
    cotangents: Program = vjp(program, argnums=argnums)
    return cotangents.at(**instance.statics)


# What is compiled


def _compiled(
    compiled: Compiled, instance: Instance, arguments: Sequence[Any], sizes: Mapping[str, int] | None
) -> list[Panel]:
    """Nests, loops, decisions, LLVM IR and assembly; why there are none, of a program that only evaluate takes."""
    given = {} if sizes is None else {"sizes": sizes}
    known = bool(arguments) or sizes is not None
    try:
        stage = compiled.stage(*arguments, **given) if known else compiled.stage()
    except Unsupported as error:
        return [Panel.empty("nests", "Nests", f"There is no code: {error}")]
    found: Breakdown | None = None
    if arguments:
        found = compiled.profile(*arguments)
    elif known:
        found = compiled.cost(**given)
    choices = compiled.decisions(*arguments, **given) if known else None
    nests, loops, *code = stage_panels(stage, found, bool(arguments), instance.program.name)
    return [nests, loops, decisions_panel(stage, choices), *code]


def _opencl(program: Program | Instance, arguments: Sequence[Any], sizes: Mapping[str, int] | None) -> Panel:
    """The kernels for the first device, or why there are none."""
    try:
        compiled = compile(program, backend="opencl")
        stage = compiled.stage(*arguments, **({} if sizes is None else {"sizes": sizes}))
        assert isinstance(stage.version, opencl.Version)
        return opencl_panel(stage, stage.version.source_of(stage.number), stage.device)
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        return Panel.empty("opencl", "OpenCL C", f"Not here: {error}")
