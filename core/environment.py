"""Environments: what the De Bruijn indices of a term stand for.

``Variable(0)`` is the value bound last. An environment is a stack of *chunks*, one a block, each a list that only
grows; an ``Env`` is a view of the first ``length`` entries of the last chunk and of what lies below it. Binding a
value costs O(1), a look-up as many steps as blocks are nested, and every view stays valid for ever: a closure that
runs later (a return sweep, a language of delayed meanings) finds what it saw when it was made. An environment may
hold anything: values to evaluate, types to check, tangent pairs to differentiate.

>>> outer = Env().enter(["x", "y"])
>>> inner = outer.enter(["i"]).extend(["t"])
>>> [inner.get(k) for k in range(4)], outer.get(0)
(['t', 'i', 'y', 'x'], 'y')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Env(Generic[T]):
    """An immutable view of an environment; ``Env()`` is the empty one."""

    __slots__ = ("_chunk", "_length", "_outer")

    def __init__(self, outer: Env[T] | None = None, chunk: list[T] | None = None) -> None:
        self._outer = outer
        self._chunk: list[T] = [] if chunk is None else chunk
        self._length = len(self._chunk)

    def enter(self, values: Iterable[T]) -> Env[T]:
        """The environment inside a block whose parameters are these values."""
        return Env(self, list(values))

    def extend(self, values: Iterable[T]) -> Env[T]:
        """The environment after an operation with these results."""
        if len(self._chunk) != self._length:  # this view was extended before: what follows goes its own way
            return self.enter(values)
        self._chunk.extend(values)
        return Env(self._outer, self._chunk)

    def get(self, index: int) -> T:
        """The value bound ``index`` bindings ago; IndexError when there is none."""
        env: Env[T] = self
        position = index
        while position >= env._length:
            if env._outer is None:
                raise IndexError(f"variable {index} in an environment of {len(self)}")
            position -= env._length
            env = env._outer
        return env._chunk[env._length - 1 - position]

    def mapped(self, function: Callable[[T], U]) -> Env[U]:
        """The environment with a function applied to what it holds, each time that somebody asks for it."""
        outer: Env[U] = Env(None, _Mapped(self, function))
        return outer.enter(())

    def __len__(self) -> int:
        total, env = 0, self
        while True:
            total += env._length
            if env._outer is None:
                return total
            env = env._outer


class _Mapped(list[Any]):
    """A chunk that is another environment, seen through a function."""

    def __init__(self, env: Env[Any], function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.env, self.function, self.length = env, function, len(env)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: Any) -> Any:
        return self.function(self.env.get(self.length - 1 - position))
