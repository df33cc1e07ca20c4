"""Programs by name: ``kmeans.py:cost``, ``package.module:cost``, ``models.py:Model.loss``, or a file that has one.

What stands before the colon is a file if it ends in ``.py``, has a slash in it or is there, and else a module that
Python imports. Either way it is executed. A file is executed as a script is, with its folder first on ``sys.path``, but
not as ``__main__``: what stands under ``if __name__ == "__main__"`` is not run.

A name that is not there is answered with the names that are. A function that is no program is not taken for one:
parameters without annotation would be guessed.

>>> split("kmeans.py:cost"), split("shapes.circle:Circle.area"), split("kmeans.py")
(('kmeans.py', 'cost'), ('shapes.circle', 'Circle.area'), ('kmeans.py', None))
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ..ad import grad
from ..core.annotations import Declared, Parameter
from ..core.program import Instance, Program
from ..core.source import Origin, called_at, line_of
from ..core.trees import LEAF
from ..core.types import FunctionType
from .command import UsageError, closest

R = TypeVar("R")


@dataclass(frozen=True)
class Named:
    """A program, or one version of it, by the name that it was asked for by; where it is written, and found."""

    name: str
    program: Any  # a Program or an Instance; only what is compared with may be any function
    origin: Origin
    module: ModuleType

    @property
    def family(self) -> Program:
        """The program, whatever the version."""
        family: Program = self.program.program if isinstance(self.program, Instance) else self.program
        return family

    def call(self, action: Callable[[], R]) -> R:
        """Do something with the program: errors name the line where it is written, not one of the command's."""
        return called_at(self.origin, action)


def find(options: Namespace, *, open: bool = False) -> Named:
    """The program that the options name, or its gradient, with functions inside (:func:`closing`).

    An ``open`` command can do something with a program that takes functions, too, and does if no arguments are given.
    """
    found = named(options.program)
    return gradient(found if open and not options.arguments else closing(found), getattr(options, "grad", None))


def closing(found: Named) -> Named:
    """A program with its functions as static parameters, so that they are inside of what is made of it.

    Code takes no functions, a derivative does not know how one from outside moves, and a count what it costs. All that
    is done with a program comes after this, verbs, too: the parameters keep their numbers.
    """
    whole = found.program
    if not any(isinstance(parameter.type, FunctionType) for parameter in version_parameters(whole)):
        return found

    @wraps(found.family.function)
    def called(*arguments: Any, **named: Any) -> Any:
        return whole(*arguments, **named)

    parameters = [
        StaticFunction(each.name, None, Callable, each.default, takes=each.type)
        if isinstance(each.type, FunctionType)
        else each
        for each in version_parameters(whole)
    ]
    made = Program(called, found.family.name, parameters, found.family.declared)
    made.named = found.family.named
    return replace(found, program=made)


@dataclass(frozen=True)
class StaticFunction(Parameter):
    """A static parameter of a function type: what it is called with the program checks."""

    takes: FunctionType | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.takes}"


def version_parameters(whole: Program | Instance) -> Sequence[Parameter]:
    """The parameters that a call gives arguments for: those of a version without what is fixed, with its types."""
    if not isinstance(whole, Instance):
        return whole.parameters
    types, shapes = iter(whole.types), zip(whole.program.dynamic, whole.inputs.inner, strict=True)
    declared = [(p.name, Declared(shape, tuple([next(types) for _ in range(shape.leaves)]))) for p, shape in shapes]
    return [
        Parameter(name, each.types[0]) if each.shape == LEAF else Parameter(name, None, structure=each)
        for name, each in declared
    ]


def gradient(found: Named, by: str | None) -> Named:
    """The gradient of a program by the parameters that ``--grad`` names; the program itself without it."""
    if by is None:
        return found
    found = closing(found)
    if isinstance(found.program, Instance):
        raise UsageError(f"{found.name} is one version of a program: a gradient is taken of the program itself")
    program = found.program
    derived = found.call(lambda: grad(program, parameters(by)))
    return replace(found, name=f"grad({found.name})", program=derived)


def parameters(text: str | None) -> Any:
    """Parameters by numbers or names, as verbs take them.

    >>> parameters("0"), parameters("mu,1"), parameters(None)
    (0, ['mu', 1], None)
    """
    if text is None:
        return None
    found = [int(each) if each.lstrip("-").isdecimal() else each for each in text.split(",")]
    return found[0] if len(found) == 1 else found


def named(text: str) -> Named:
    """The program of a text such as ``kmeans.py:cost``."""
    file, name = split(text)
    module = imported(file)
    if name is None:
        return _only(module, file)
    return _program(module, file, name, attribute(module, file, name))


def other(text: str, near: str, found: Named) -> Named:
    """What a program of the file ``near`` is compared with: another one, or any function.

    ``:NAME`` is in the same file, which is not executed a second time.
    """
    file, name = split(text)
    file = file or near
    module = found.module if file == near else imported(file)
    if name is None:
        return _only(module, file)
    value = attribute(module, file, name)
    if callable(value) and _as_program(value) is None and not isinstance(value, type):
        return Named(name, value, line_of(value), module)
    return _program(module, file, name, value)


def attribute(module: ModuleType, file: str, name: str) -> Any:
    """What has a name, with dots, in a module. UsageError lists what there is."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [program.name for program in programs(module)]
            has = f"{file} has {', '.join(known)}." if known else f"{file} has no programs."
            raise UsageError(f"{file} has no {name!r}", " ".join([has, closest(name, known)]).strip())
        found = getattr(found, part)
    return found


def split(text: str) -> tuple[str, str | None]:
    """The file or module, and the name after the colon, if there is one."""
    file, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, None
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} in {text!r} is no name of a program", "Write FILE:PROGRAM, as in kmeans.py:cost.")
    return file, name


def programs(module: ModuleType) -> list[Named]:
    """The programs of a module that it has not imported from another, those of its classes too, each once."""
    found: dict[int, Named] = {}
    for each in _programs(module, module, ""):
        found.setdefault(id(each.program), each)
    return list(found.values())


def _programs(module: ModuleType, holder: Any, prefix: str) -> Iterator[Named]:
    for name, value in list(vars(holder).items()):
        if name.startswith("_"):
            continue
        program = _as_program(value)
        if program is not None and _is_of(program, module):
            yield Named(prefix + name, program, _origin(program, module), module)
        elif isinstance(value, type) and value.__module__ == module.__name__ and not prefix:
            yield from _programs(module, value, f"{name}.")


def _is_of(program: Program | Instance, module: ModuleType) -> bool:
    """Whether a program is a module's own, or was made by a verb, which belongs to no module."""
    where = (program.program if isinstance(program, Instance) else program).__module__
    return where == module.__name__ or where.partition(".")[0] == "adze"


def _as_program(value: Any) -> Program | Instance | None:
    """A program as it is; that of something compiled, evaluated or given to another library."""
    if isinstance(value, Program | Instance):
        return value
    held = None if isinstance(value, type | ModuleType) else getattr(value, "program", None)
    return held if isinstance(held, Program | Instance) else None


def _only(module: ModuleType, file: str) -> Named:
    found = programs(module)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{file} has no programs", "A program is a function below @az.program, with annotations.")
    listed = ", ".join([f"{file}:{each.name}" for each in found])
    raise UsageError(f"{file} has {len(found)} programs", f"Name one: {listed}")


def _program(module: ModuleType, file: str, name: str, value: Any) -> Named:
    program = _as_program(value)
    if program is not None:
        return Named(name, program, _origin(program, module), module)
    if isinstance(value, type):
        inside = [each.name for each in programs(module) if each.name.startswith(f"{name}.")]
        hint = f"Name one of its programs: {', '.join(inside)}" if inside else "It has no programs."
        raise UsageError(f"{name} is a class, and no program", hint)
    if not inspect.isfunction(value):
        raise UsageError(f"{name} is no program, but of type {type(value).__name__}")
    if value.__name__ == "<lambda>":
        hint = f"Make it one where it is written: {name} = az.program(lambda ...), or a function with annotations."
        raise UsageError(f"{name} is a lambda, and no program (at {line_of(value)})", hint)
    hint = "Make it one where it is written: @az.program above it, and annotations of its parameters."
    raise UsageError(f"{name} is a function, and no program (at {line_of(value)})", hint)


def _origin(program: Program | Instance, module: ModuleType) -> Origin:
    """Where a program is written; that of a verb is where the program is that the verb was applied to."""
    family = program.program if isinstance(program, Instance) else program
    while family.of is not None:
        family = family.of
    code = getattr(inspect.unwrap(family.function), "__code__", None)
    return Origin(str(module.__file__), 1) if code is None else Origin(code.co_filename, code.co_firstlineno)


# Files and modules


def imported(file: str) -> ModuleType:
    """The module of a file, or of a module's name; what it raises is the user's error, and is raised as it is."""
    if not file:
        raise UsageError("no FILE is named", "Write FILE:PROGRAM, as in kmeans.py:cost.")
    path = Path(file)
    is_path = path.suffix == ".py" or "/" in file or path.exists()
    return _executed(path) if is_path else _imported(file)


def _executed(path: Path) -> ModuleType:
    if not path.is_file():
        if path.is_dir():
            raise UsageError(f"{path} is a folder, and no file")
        near = [str(each) for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise UsageError(f"there is no file {path}", closest(str(path), near))
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path} cannot be read: permission denied")
    module = ModuleType(f"file:{path.stem}")  # which is no name that somebody imports
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # where dataclasses look their annotations up
    with _as_script(str(path), os.path.dirname(module.__file__)):
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _imported(name: str) -> ModuleType:
    with _as_script(name, os.getcwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            hint = "A file ends in .py; a module is looked for here and where Python looks."
            before, _, last = name.rpartition(".")
            if before and (Path(f"{before.replace('.', '/')}.py").is_file() or Path(before).is_file()):
                hint = f"Did you mean {before}:{last}?"
            raise UsageError(f"there is neither a file nor a module {name}", hint) from None
        except (TypeError, ValueError) as error:  # a relative name, or an empty part
            raise UsageError(f"{name!r} is no name of a module: {error}") from None


@contextmanager
def _as_script(program: str, folder: str) -> Iterator[None]:
    """What a script sees: its folder is first on the path, and it has no arguments. SystemExit is an error here."""
    arguments, sys.argv = sys.argv, [program]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        yield
    except SystemExit as error:
        said = f"{program} ends by sys.exit({'' if error.code is None else repr(error.code)}) while it is imported"
        instead = 'put what is for scripts alone below if __name__ == "__main__":'
        raise RuntimeError(f"{said}; {instead}").with_traceback(error.__traceback__) from None
    finally:
        sys.argv = arguments
