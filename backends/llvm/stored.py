"""Machine code that earlier processes made: what it is known by, and what is kept of it.

A program is known by what it was made from, so that finding its code takes no derivation, no simplification and no
LLVM. Its *source* is its term, or the source of another program and the verb that was applied to it:

    grad(objective)   ->   ("_ValueAndGradient", "grad", (0,), True, objective's parameters and term)

To this come the options, the machine (the CPU's features, the caches that the scheduler looks at), the versions of the
libraries, and a digest of Adze's own sources: a changed compiler never runs what the earlier one has made. Kept are the
object code and what calls have to know of it. Places in the user's files, captured arrays, classes of structures and
declarations of data types are kept by their numbers in the source (``core/digest.py``), so an error tells of the line
where the program is now.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ...core.annotations import Declared
from ...core.c_functions import CFunction
from ...core.digest import Digest, NoDigest, digest
from ...core.program import Instance
from ...core.stages import CACHE, subject
from ...core.terms import NOWHERE, Constant, Origin
from ...core.types import Declaration
from ...core.verb import Verb
from ...interpreters.simplify.switches import without
from .. import disk_cache
from ..constant_sizes import ConstantSizes
from ..target import Target
from .assemble import compile_text
from .host import host

T = TypeVar("T")

_IMPORTED = time.time()


@dataclass(frozen=True)
class Entry:
    """Where the machine code of an instance is kept, or shall be, with what calls need."""

    key: str
    source: Digest

    def fetch(self) -> Any:
        """What was kept, or None."""
        contents = disk_cache.fetch(self.key)
        if contents is None:
            return None
        try:
            return _Unpickler(io.BytesIO(contents), self.source).load()
        except Exception as error:  # a class that the result is made of is not there any more, say
            CACHE.debug("%s: what was found makes no sense here: %s", subject(), error)
            return None

    def store(self, made: Any) -> None:
        """Keep this, unless it holds what means something in this process alone."""
        contents = io.BytesIO()
        try:
            _Pickler(contents, self.source).dump(made)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            CACHE.debug("%s: not kept: %s", subject(), error)
            return
        disk_cache.store(self.key, contents.getvalue())

    def part(self, number: int) -> Entry:
        """The entry of one of several parts."""
        return replace(self, key=f"{self.key}.{number}")


def entry_of(instance: Instance, target: Target, *options: Any) -> Entry | None:
    """The entry of an instance compiled with these options; None when there can be none."""
    if disk_cache.folder() is None:
        return None
    try:
        source = digest(*_source(instance))
        return Entry(_key(source.value, repr(target), repr(options)), source)
    except (NoDigest, OSError) as error:
        CACHE.debug("%s: neither looked for nor kept: %s", instance.program.name, error)
        return None


def load_runtime(text: str, load: Callable[[bytes], T]) -> T:
    """What ``load`` makes of the object code of a module of the runtime itself.

    Code from disk that it cannot load is made anew.
    """
    try:
        key = _key(text)
    except OSError:
        return load(compile_text(text).machine_code)
    kept = disk_cache.fetch(key)
    if kept is not None:
        with suppress(RuntimeError):
            return load(kept)
    code = compile_text(text).machine_code
    disk_cache.store(key, code)
    return load(code)


# Keys


def _source(instance: Instance) -> list[Any]:
    """What an instance is made from, in parts that have a digest."""
    if isinstance(instance, ConstantSizes):
        return [sorted(instance.sizes.items()), *_source(instance.general)]
    function: Any = instance.program.function
    shape: list[Any] = [instance.types, instance.inputs, *[(each.left, each.right) for each in instance.assumed]]
    if not isinstance(function, Verb):
        equalities = [(each.left, each.right, each.failure, each.values) for each in instance.equalities]
        return [*shape, instance.term, instance.outputs, equalities]
    if not type(function).__module__.startswith(__name__.partition(".")[0] + "."):
        raise NoDigest("a verb of the user's")
    options = [getattr(function, field.name) for field in fields(function) if field.name != "f"]
    # a verb counts all parameters, and looks at what is declared
    parameters = [(bool(parameter.static), _declared(parameter.declared)) for parameter in function.f.parameters]
    name, result = type(function).__qualname__, _declared(function.f.declared)
    return [*shape, name, *options, parameters, result, *_source(instance.inner(function.f))]


def _declared(given: Declared | None) -> Any:
    return None if given is None else (given.types, given.shape)


def _key(*parts: str | bytes) -> str:
    made = hashlib.blake2b(digest_size=20)
    for part in (*_surroundings(), *parts):
        encoded = part.encode() if isinstance(part, str) else part
        made.update(len(encoded).to_bytes(8, "little") + encoded)
    return made.hexdigest()


@cache
def _surroundings() -> tuple[str | bytes, ...]:
    """What code depends on besides its program: the machine, the libraries, this package and rules that are off."""
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    versions = platform.python_version(), np.__version__, llvmlite.__version__, str(llvm.llvm_version_info), str(libc)
    machine = llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return (*versions, *machine, repr(host()), *sorted(without()), _own_sources())


def _own_sources() -> bytes:
    """The digest of the files of this package; OSError when they may not be what this process has imported."""
    made = hashlib.blake2b(digest_size=20)
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    for part in ("core", "interpreters", "ad", "library", "backends"):
        for folder, folders, files in os.walk(os.path.join(package, part)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), "rb") as file:
                        contents = file.read()
                        if os.fstat(file.fileno()).st_mtime > _IMPORTED:
                            raise OSError(f"{name} was changed after it was imported")
                    made.update(f"{part} {name} {len(contents)} ".encode() + contents)
    return made.digest()


# Contents


class _Pickler(pickle.Pickler):
    """Writes the parts of the source by number; PicklingError for places and declarations from elsewhere.

    What a derivative has at a place may have a name of its own, which is kept beside the number of the place.
    """

    def __init__(self, file: Any, source: Digest) -> None:
        super().__init__(file, protocol=5)
        self._numbers: dict[Any, int] = {part: number for number, part in enumerate(_parts(source))}
        self._places = {(origin.file, origin.line): number for number, origin in enumerate(source.origins)}

    def persistent_id(self, part: Any) -> int | tuple[int, str, bool] | None:
        if not isinstance(part, Origin | Constant | CFunction | Declaration | type):
            return None
        number = self._numbers.get(part)
        if number is None and isinstance(part, Origin) and (part.file, part.line) in self._places:
            return self._places[part.file, part.line], part.name, part.combines
        if number is None and isinstance(part, Origin | Declaration) and part != NOWHERE:
            raise pickle.PicklingError(f"{part} is not in the program itself")
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, source: Digest) -> None:
        super().__init__(file)
        self._known = _parts(source)

    def persistent_load(self, number: Any) -> Any:
        if isinstance(number, tuple):
            place, name, combines = number
            origin = self._known[place]
            assert isinstance(origin, Origin)
            return replace(origin, name=name, combines=combines)
        return self._known[number]


def _parts(source: Digest) -> Sequence[Origin | Constant | CFunction | Declaration | type]:
    return (*source.origins, *source.constants, *source.containers, *source.functions, *source.declarations)
