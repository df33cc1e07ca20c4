"""Parts: programs that travel. A part is a closed term; whoever runs it compiles it, once a process.

A part is made as programs are, through a builder, from parameters of given types:

    part = Part.build("double", [("x", Array[f64, "n"])], lambda builder, x: [builder.array(...)])
    part.run([np.ones(3)], {"n": 3}, options)

Sizes that no parameter has as an axis come with a *carrier*: an argument of that length whose content is not read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core import trees
from ...core.annotations import Parameter
from ...core.builder import build
from ...core.dims import Dim
from ...core.graph import Value
from ...core.limits import lifted_limits
from ...core.placement import to_block
from ...core.program import Instance, Program
from ...core.stages import compiling
from ...core.terms import Block, Size
from ...core.types import ArrayType, Type, all_dims, bool_, dims
from ..llvm.version import Version
from ..transformations import Transformations

Emit = Callable[..., Sequence[Value]]


@dataclass(frozen=True)
class Options:
    """How the code of all parts of a program is made."""

    checks: bool
    allowed: Transformations
    flush: bool
    debug: frozenset[str]
    cpu: str | None = None  # a level of processors; None: that of whoever runs it


@dataclass(frozen=True, eq=False)
class Part:
    """A closed term that is compiled where it is run."""

    name: str
    names: tuple[str, ...]  # of the parameters, and of the carriers behind them
    term: Block
    carried: tuple[str, ...]

    @staticmethod
    def build(name: str, parameters: Sequence[tuple[str, Type]], emit: Emit) -> Part:
        """The part that computes what ``emit`` emits, given a builder and the values of the parameters."""
        carried: tuple[str, ...] = ()
        while True:
            carriers = [(f"_{each}", ArrayType(bool_, (Dim.of(each),))) for each in carried]
            names, types = zip(*[*parameters, *carriers], strict=True) if parameters or carriers else ((), ())
            with build() as builder:
                binders = [builder.variable(type, each) for each, type in zip(names, types, strict=True)]
                values = emit(builder, *binders[: len(parameters)])
                term, captured = to_block(binders, list(values), builder.scopes[0].statements, names)
            assert not captured
            missing = _unbound(term)
            if not missing:
                return Part(name, names, term, carried)
            carried = (*carried, *missing)

    @cached_property
    def instance(self) -> Instance:
        """The program that backends take."""
        parameters = [Parameter(name, type) for name, type in zip(self.names, self.term.binders, strict=True)]
        shape = trees.Shape(tuple, (), (trees.LEAF,) * len(self.term.results))
        return Program.of_term(self.term, shape, _never, self.name, parameters).at()

    @property
    def reads(self) -> list[bool]:
        """Whether the term reads each of its parameters."""
        read = {variable.index for variable in Block((), self.term.bindings, self.term.results).free}
        return [index in read for index in reversed(range(len(self.term.binders)))]

    def version(self, options: Options) -> Version:
        """The machine code, which is made on first use and kept with the part."""
        with self._lock:
            found = self._versions.get(options)
            if found is None:
                with lifted_limits(), compiling(self.name):
                    found = Version(
                        self.instance, options.checks, options.allowed, options.flush, options.debug, options.cpu
                    )
                self._versions[options] = found
        return found

    @cached_property
    def _versions(self) -> dict[Options, Version]:
        return {}

    @cached_property
    def _lock(self) -> threading.RLock:
        return threading.RLock()

    def arguments(self, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """What the code takes: the values of the parameters, and carriers of these sizes."""
        return [*values, *[np.empty(sizes[each], bool) for each in self.carried]]

    def run(self, values: Sequence[Any], sizes: Mapping[str, int], options: Options, threads: int | None) -> list[Any]:
        """The results for values of the parameters."""
        return list(self.version(options).run(self.arguments(values, sizes), threads))

    def __reduce__(self) -> Any:
        return Part, (self.name, self.names, self.term, self.carried)


def _never(*arguments: Any) -> Any:
    raise AssertionError("a part is run, never inlined")


def _unbound(term: Block) -> list[str]:
    """The sizes that a term mentions, and that no axis of its parameters has."""
    bound = {str(dim) for type in term.binders for dim in dims(type) if dim in (Dim.of(name) for name in dim.names())}
    mentioned = {name for dim in _dims(term) for name in dim.names()}
    return sorted(mentioned - bound)


def _dims(block: Block) -> Iterator[Dim]:
    for type in block.binders:
        yield from all_dims(type)
    for atom in block.results:
        if isinstance(atom, Size):
            yield atom.dim
    for operation in block.bindings:
        for atom in operation.args:
            if isinstance(atom, Size):
                yield atom.dim
        for type in operation.types:
            yield from all_dims(type)
        for inner in operation.blocks:
            yield from _dims(inner)
