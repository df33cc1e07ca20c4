"""Arguments on the command line: numbers, lists, files of NumPy's, and arrays that are generated from sizes alone.

An argument is a word behind a name, or else for the first parameter that has none yet::

    2.5    [1,2,3]    w=[[0.5,1],[2,0]]       literals of Python, or JSON, never evaluated as code (values.py)
    f=square    f=az.tanh                     a function of the file, by its name
    points.npy    x=points.npy    all.npz     arrays; an .npz has each under the name of its parameter
    random:1000x16    x=normal    y=zeros     generated, of the shape that is given or else the declared one
    k=random::0:10                            from 0 to below 10
    n=1000    d=16                            sizes, by the names that annotations give them

What is generated has the declared type, float64 where nothing is declared. ``random`` is uniform from 0 to below 1, so
integers are 0, which is an index in range, and booleans are true or false. Each parameter has its own stream of the
seed: what one is does not depend on the others. Sizes follow from arrays that are given, or are given themselves; so
``adze bench kmeans.py:cost n=100000 d=16 k=8`` needs no data.

A word that is wrong is refused here. An array of another type or shape goes to the program, whose own error says so.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core import trees
from ..core.annotations import Declared
from ..core.dims import Dim, Name
from ..core.program import Instance, Program
from ..core.types import Scalar, Type, all_dims, bool_, dims, element, f64, is_data
from .command import UsageError, closest
from .programs import Named, version_parameters
from .values import arrays_of, is_function, only_type, value_of, written


@dataclass(frozen=True)
class Place:
    """A parameter that takes an argument: what is declared of it, its static type, its default."""

    name: str
    number: int
    declared: Declared | None
    static: Any
    default: Any
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def written(self) -> str:
        """How its argument is written on the command line."""
        return written(self.name, only_type(self.declared), static=self.static)

    @property
    def leaves(self) -> dict[str, Type]:
        """The declared types of what it is made of, by names: ``model_slope`` for ``model["slope"]``."""
        if self.declared is None:
            return {}
        return dict(zip(trees.leaf_names(self.name, self.declared.shape), self.declared.types, strict=True))


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call, one a parameter; the sizes that are known; and which of them were generated."""

    values: list[Any]
    sizes: Mapping[str, int]
    generated: list[str]

    @property
    def note(self) -> str:
        """A sentence about what was generated; empty, if nothing was."""
        made = ", ".join(self.generated)
        return f"generated: {made} (floating numbers from 0 to below 1, integers 0)" if made else ""


def places(program: Named) -> list[Place]:
    """The parameters that a call gives arguments for: those of a version without what is fixed."""
    given = enumerate(version_parameters(program.program))
    return [Place(p.name, k, p.declared, p.static, p.default, str(p)) for k, p in given]


def read(program: Named, words: Sequence[str], *, seed: int = 0, fill: bool = False) -> Arguments:
    """The arguments that words give; with ``fill`` those that are missing are generated.

    UsageError for a word that cannot be read, a name that there is not, and for arguments or sizes that are missing.
    """
    return _reader_of(program, words, seed).arguments(fill)


def fixed(program: Named, words: Sequence[str], seed: int = 0) -> tuple[Named, list[str]]:
    """The version that words choose by the static values that they give, as functions are, and the other words.

    The program itself and all words, where it has no static parameters or takes types from its arguments.
    """
    known = places(program)
    if isinstance(program.program, Instance) or not program.family.annotated or not any(p.static for p in known):
        return program, list(words)
    reader, rest = _Reader(program, known, seed), []
    for word in words:
        given = set(reader.given)
        reader.word(word)
        names = reader.given.keys() - given
        if not names or not all(place.static is not None for place in known if place.name in names):
            rest.append(word)
    return replace(program, program=reader.version()), rest


def _reader_of(program: Named, words: Sequence[str], seed: int) -> _Reader:
    """What has read words, and makes arguments of them."""
    reader = _Reader(program, places(program), seed)
    for word in words:
        reader.word(word)
    return reader


_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_GENERATED = re.compile(r"(random|normal|zeros|ones|range)(?::([^:]*))?(?::([^:]+):([^:]+))?")


@dataclass(frozen=True)
class _Wanted:
    """An array that shall be generated."""

    kind: str
    shape: tuple[int, ...] | None  # None: the declared one
    low: float
    high: float
    text: str


_RANDOM = _Wanted("random", None, 0.0, 1.0, "random")


@dataclass
class _Reader:
    """Words, one after the other, and then the arguments and sizes that they give a program."""

    program: Named
    places: Sequence[Place]
    seed: int
    given: dict[str, Any] = field(default_factory=dict)  # by the names of parameters and of their leaves
    sizes: dict[str, int] = field(default_factory=dict)
    generated: list[str] = field(default_factory=list)

    # Words

    def word(self, word: str) -> None:
        """Read a word. UsageError when it cannot be read, or gives what there is not, or what is given already."""
        match = _NAMED.fullmatch(word)
        if match is not None:
            self.named(match[1], match[2])
        elif word.endswith(".npz"):
            for name, array in arrays_of(word).items():
                if not self.is_known(name):
                    raise UsageError(f"{word} has an array {name!r}: {self.has}", closest(name, self.names))
                self.give(name, array)
        else:
            place = next((place for place in self.places if not {place.name, *place.leaves} & self.given.keys()), None)
            if place is None:
                raise UsageError(f"{word!r} is one argument too many: {self.has}")
            self.give(place.name, self.value(word, place.name, place.declared, place.static))

    def named(self, name: str, text: str) -> None:
        if self.is_known(name):
            place = next((place for place in self.places if place.name == name), None)
            declared = place.declared if place is not None else Declared(trees.LEAF, (self.leaves[name],))
            self.give(name, self.value(text, name, declared, None if place is None else place.static))
        if name in self.size_names and (text.isdecimal() or not self.is_known(name)):
            if not text.isdecimal():
                raise UsageError(f"{name}={text}: a size is a whole number, from 0")
            self.sizes[name] = int(text)
        elif not self.is_known(name):
            raise UsageError(f"there is no parameter or size {name}: {self.has}", closest(name, self.names))

    def value(self, text: str, name: str, declared: Declared | None, static: Any) -> Any:
        """What a text stands for, or what it says how to generate."""
        match = _GENERATED.fullmatch(text)
        if match is not None and static is None and not is_function(declared):
            return _wanted(match)
        return value_of(text, name, declared, static, self.program.module)

    def give(self, name: str, value: Any) -> None:
        if name in self.given:
            raise UsageError(f"the argument {name} is given twice")
        self.given[name] = value

    @property
    def leaves(self) -> dict[str, Type]:
        return {name: type for place in self.places for name, type in place.leaves.items()}

    def is_known(self, name: str) -> bool:
        return name in self.leaves or any(place.name == name for place in self.places)

    @property
    def size_names(self) -> list[str]:
        found = {name for type in self.leaves.values() for dim in all_dims(type) for name in dim.names()}
        return sorted(found)

    @property
    def names(self) -> list[str]:
        return [*[place.name for place in self.places], *self.size_names]

    @property
    def has(self) -> str:
        sizes = f" and the sizes {', '.join(self.size_names)}" if self.size_names else ""
        return f"{self.program.name} has the parameters {', '.join(map(str, self.places)) or 'none'}{sizes}"

    # Arguments

    def version(self) -> Program | Instance:
        """The version with the static values that are given, or are defaults; the program, if it has none."""
        family = self.program.family
        statics = {place.name: self.argument(place, False) for place in self.places if place.static is not None}
        return self.program.call(lambda: family.at(**statics)) if statics else family

    def arguments(self, fill: bool) -> Arguments:
        for name, value in self.given.items():
            for type, leaf in self.typed(name, value):
                self.bind(type, leaf)
        values = [self.argument(place, fill) for place in self.places]
        return Arguments(values, dict(self.sizes), self.generated)

    def typed(self, name: str, value: Any) -> list[tuple[Type, Any]]:
        """What is given under a name: leaves with their declared types. What does not fit the program finds."""
        if name in self.leaves:
            return [(self.leaves[name], value)]
        declared = next(place.declared for place in self.places if place.name == name)
        if declared is None or isinstance(value, _Wanted):
            return []
        try:
            return list(zip(declared.types, trees.matched(declared.shape, value), strict=True))
        except TypeError:
            return []

    def bind(self, type: Type, value: Any) -> None:
        """Learn sizes from an array that is given; what contradicts them the program finds."""
        if not is_data(type):
            return
        if isinstance(value, _Wanted):
            shape = value.shape
        else:
            try:
                shape = np.shape(value)
            except ValueError:  # rows of several lengths
                return
        if shape is None or len(shape) != len(dims(type)):
            return
        for dim, size in zip(dims(type), shape, strict=True):
            for name in dim.names():
                if dim == Dim.atom(Name(name)):
                    self.sizes.setdefault(name, size)

    def argument(self, place: Place, fill: bool) -> Any:
        """What a parameter takes: what is given for it, or for its leaves; its default; what is generated."""
        given = self.given.get(place.name)
        if given is not None and not (isinstance(given, _Wanted) and place.declared is not None):
            return self.made(place.name, [place.number], None, given)
        parts = [name for name in place.leaves if name in self.given]
        if given is None and place.default is not inspect.Parameter.empty and not parts:
            return place.default
        wanted = given if given is not None else _RANDOM if fill else None
        if place.declared is None or (wanted is None and len(parts) < len(place.leaves)):
            raise self.missing(place, parts)
        leaves = []
        for number, (name, type) in enumerate(place.leaves.items()):
            if given is None and name not in self.given:
                self.generated.append(f"{name}: {type}")
            leaves.append(self.made(name, [place.number, number], type, self.given.get(name, wanted)))
        return trees.unflatten(place.declared.shape, leaves)

    def missing(self, place: Place, parts: Sequence[str]) -> UsageError:
        """The error about an argument that is not given, or not all parts of it."""
        what = next((name for name in place.leaves if name not in parts), place.name) if parts else str(place)
        ways = [place.written]
        if place.static is None and all(map(is_data, place.leaves.values())):
            ways.append(f"{place.name}=random" + ("" if place.declared is not None else ":1000"))
        return UsageError(f"the argument {what} of {self.program.name} is missing", f"Give {', or '.join(ways)}.")

    def made(self, name: str, stream: Sequence[int], type: Type | None, value: Any) -> Any:
        """A value as it is, or the array that shall be generated."""
        if not isinstance(value, _Wanted):
            return value
        if type is not None and not is_data(type):
            raise UsageError(f"no {type} is generated, which {name} is", f"Give {written(name, type)}.")
        shape = value.shape
        if shape is None:
            shape = () if type is None else tuple([self.size(name, type, dim) for dim in dims(type)])
        scalar = f64 if type is None else element(type)
        return _generated(value, shape, scalar, np.random.default_rng([self.seed, *stream]))

    def size(self, name: str, type: Type, dim: Dim) -> int:
        unknown = dim.names() - self.sizes.keys()
        if unknown:
            what = f"the size {' and '.join(sorted(unknown))} of {name}: {type} is not known"
            missing = [f"{each}=1000" for each in self.size_names if each not in self.sizes]
            raise UsageError(what, f"Give {' '.join(missing)}, say, or arrays.")
        size = dim.evaluate(self.sizes)
        if size < 0:
            raise UsageError(f"{name}: {type} has an axis of {dim} = {size}")
        return size


# Versions


def version(program: Named, words: Sequence[str], seed: int = 0) -> Program | Instance:
    """The program, or where its annotations leave types or static values open, the version that words choose.

    UsageError where they leave some open and no words choose.
    """
    whole: Program | Instance = program.program
    if isinstance(whole, Instance):
        return whole
    family, known = program.family, places(program)
    if not words:
        for place in known:
            if place.static is not None and place.default is inspect.Parameter.empty:
                raise UsageError(f"the argument {place} of {program.name} is static", f"Give {place.written}.")
        if not family.annotated:
            (place, *_) = [place for place in known if place.declared is None and place.static is None]
            problem = f"{program.name} takes the type of {place.name} from its argument"
            raise UsageError(problem, f"Give one: {place.name}=random:1000, say.")
        return whole
    if all(place.declared is not None or place.static is not None for place in known):
        return _reader_of(program, words, seed).version()
    values = read(program, words, seed=seed).values
    return program.call(lambda: family.instance_for(values))


# Generated arrays


def _wanted(match: re.Match[str]) -> _Wanted:
    kind, shape, low, high = match.groups()
    sizes = None
    if shape:
        if not re.fullmatch(r"\d+(x\d+)*", shape):
            raise UsageError(f"{match[0]}: a shape is written 1000x16", "A number has the shape of none: x=random.")
        sizes = tuple([int(size) for size in shape.split("x")])
    if low is not None and kind != "random":
        raise UsageError(f"{match[0]}: only random has a least number and one that it stays below")
    try:
        bounds = (0.0, 1.0) if low is None else (float(low), float(high))
    except ValueError:
        raise UsageError(f"{match[0]}: {low!r} and {high!r} are to be numbers") from None
    if not (bounds[0] < bounds[1] and math.isfinite(bounds[1] - bounds[0])):
        raise UsageError(f"{match[0]}: there is no number from {low} to below {high}")
    return _Wanted(kind, sizes, *bounds, match[0])


def _generated(wanted: _Wanted, shape: tuple[int, ...], scalar: Scalar, random: np.random.Generator) -> Any:
    """An array of a shape, or a number where there are no axes."""
    makers: dict[str, Callable[[], Any]] = {
        "random": lambda: _uniform(wanted, shape, scalar, random),
        "normal": lambda: random.standard_normal(shape).astype(scalar.dtype),
        "zeros": lambda: np.zeros(shape, scalar.dtype),
        "ones": lambda: np.ones(shape, scalar.dtype),
        "range": lambda: np.arange(math.prod(shape)).reshape(shape).astype(scalar.dtype),
    }
    try:
        return np.asarray(makers[wanted.kind]())[()]
    except (MemoryError, ValueError, OverflowError) as error:
        size = "x".join(map(str, shape))
        raise UsageError(f"{wanted.text} of shape {size} in {scalar} cannot be made: {error}") from None


def _uniform(wanted: _Wanted, shape: tuple[int, ...], scalar: Scalar, random: np.random.Generator) -> Any:
    if scalar is bool_:
        return random.random(shape) < 0.5
    if scalar.kind == "int":
        return random.integers(math.ceil(wanted.low), math.ceil(wanted.high), shape, scalar.dtype)
    return (wanted.low + (wanted.high - wanted.low) * random.random(shape)).astype(scalar.dtype)
