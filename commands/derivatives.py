"""``adze grad`` and ``adze jvp``: the program of a derivative, or with arguments its value.

adze grad kmeans.py:cost --by centroids                      prints a program
adze grad kmeans.py:cost --by centroids points.npy c.npy     prints an array
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..ad import grad, jvp, value_and_grad
from ..core.program import Instance, Program
from ..core.progress import shown
from ..interpreters.pretty import STYLES, pretty
from .arguments import fixed, read
from .command import Command, UsageError, argument_options, program_options
from .programs import closing, named, parameters
from .report import Code, Report, Value

Verb = Callable[[Program, Any], Program]


def _grad(options: Namespace) -> Report:
    verb = value_and_grad if options.value else grad
    return _derived(options, lambda f, by: verb(f, 0 if by is None else by))


def _jvp(options: Namespace) -> Report:
    return _derived(options, lambda f, by: jvp(f, argnums=by))


def _derived(options: Namespace, verb: Verb) -> Report:
    of = closing(named(options.program))
    if isinstance(of.program, Instance):
        raise UsageError(f"{of.name} is one version of a program: a derivative is taken of the program itself")
    f = of.program
    program = of.call(lambda: verb(f, parameters(options.by)))
    found = replace(of, name=program.name, program=program)
    chosen, words = fixed(found, options.arguments, options.seed)
    if not words:
        text = found.call(lambda: pretty(chosen.program, style=options.style))
        return Report({"program": found.name, "style": options.style, "text": text}, [Code(text)])
    given = read(chosen, words, seed=options.seed)
    with shown(f"running {found.name}"):
        result = found.call(lambda: chosen.program(*given.values))
    return Report({"program": found.name, "result": result}, [Value(result)])


def _grad_options(parser: ArgumentParser) -> None:
    _options(parser, "(default: the first)")
    parser.add_argument("--value", action="store_true", help="the value of the program, too")


def _jvp_options(parser: ArgumentParser) -> None:
    _options(parser, "(default: all that are floating); the tangent of x is the parameter d_x")


def _options(parser: ArgumentParser, default: str) -> None:
    program_options(parser, gradient=False)
    argument_options(parser)
    parser.add_argument("--by", metavar="BY", help=f"parameters, by numbers or names: 0 or mu,sigma {default}")
    parser.add_argument("--style", choices=STYLES, default=STYLES[0], help=f"of the text (default: {STYLES[0]})")


GRAD = Command("grad", "Print the program of a gradient, or its value at arguments.", _grad, _grad_options)
JVP = Command("jvp", "Print the program of tangents, or its value at arguments.", _jvp, _jvp_options)
