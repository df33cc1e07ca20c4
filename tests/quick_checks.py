"""Type checks that take less time: typeguard asks a class, and a union of classes, by one ``isinstance``.

Its own checks try the members of a union one after the other, each of which raises an error but for the one that fits,
and look up how a class is checked in each call. Most annotations here are classes, or unions of them, as those of the
nodes of the loop IR: so the checked tests take about half as long. What is refused is the same.
"""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Union

import typeguard

Checker = Callable[[Any, Any, tuple[Any, ...], typeguard.TypeCheckMemo], None]

(_own,) = typeguard.checker_lookup_functions
_checkers: dict[tuple[Any, tuple[Any, ...]], Checker | None] = {}


def install() -> None:
    """Have typeguard use these checks, in this process."""
    typeguard.checker_lookup_functions.insert(0, _lookup)


def _lookup(origin: Any, args: tuple[Any, ...], extras: tuple[Any, ...]) -> Checker | None:
    try:
        return _checkers[origin, args]
    except KeyError:
        checker = _checkers[origin, args] = _made(origin, args)
        return checker
    except TypeError:  # not hashable, as lists of parameters are
        return None


def _made(origin: Any, args: tuple[Any, ...]) -> Checker | None:
    """A quick check; None where there is only typeguard's own."""
    if _is_plain(origin) and not args:
        return _check_class
    own = _own(origin, args, ())
    classes = tuple([each for each in args if _is_plain(each) or each is NoneType])
    if origin not in (Union, UnionType) or own is None or not classes:
        return own

    def check_union(value: Any, origin: Any, args: tuple[Any, ...], memo: typeguard.TypeCheckMemo) -> None:
        if not isinstance(value, classes):
            own(value, origin, args, memo)

    return check_union


def _is_plain(type_: Any) -> bool:
    """Whether what is checked of a type is that values are its instances."""
    return type(type_) is type and _own(type_, (), ()) is None


def _check_class(value: Any, origin: Any, args: tuple[Any, ...], memo: typeguard.TypeCheckMemo) -> None:
    if not isinstance(value, origin):
        module = "" if origin.__module__ in ("builtins", "typing") else f"{origin.__module__}."
        raise typeguard.TypeCheckError(f"is not an instance of {module}{origin.__qualname__}")
