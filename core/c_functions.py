"""Functions of C that operations are computed by: how they are found, known again in another process, and called.

A function of C has one fixed signature: for each argument the address of its elements, row-major, then the extents of
its axes; the same for each result; then the address and the length of a work area, where one is asked for. What it
returns is 0, or the code of an error:

    x = solve(a, b)      int solve(const double *a, int64_t a0, int64_t a1, const double *b, int64_t b0,
                                   double *x, int64_t x0, double *work, int64_t words);

A number is the only element of an array without axes, and so has no extents. The function must not write to its
arguments, nor keep what it is given, and several threads may be in it at once: compiled code calls it without the
interpreter's lock.

An address means something in one process. A function that a library has is known in others by its symbol and by the
version of the library: its file, with size and time. (A PyCapsule says nothing of that: programs with one are compiled
in each process.)
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dims import Dim, DimLike
from .source import at_line
from .types import Type, dims, element

_LINK_MAP = 2  # RTLD_DI_LINKMAP


class _Loaded(ctypes.Structure):  # struct link_map
    _fields_ = (("base", ctypes.c_void_p), ("name", ctypes.c_char_p))


_NAMES = ("file", "base", "name", "address")


class _Symbol(ctypes.Structure):  # Dl_info
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


@dataclass(frozen=True, eq=False)
class CFunction:
    """A function of C: see :func:`c_function`."""

    symbol: str
    address: int
    version: tuple[str, int, int] | None  # the file of its library, its size and time; None where nothing says which
    words: Callable[[Sequence[Type]], Dim] | None  # of the work area, for the types of the arguments
    error: type[Exception]
    message: str
    holder: Any = field(repr=False)  # what keeps the code in memory

    def __repr__(self) -> str:
        where = "" if self.version is None else f" of {os.path.basename(self.version[0])}"
        return f"<C function {self.symbol}{where}>"

    def run(self, values: Sequence[Any], given: Sequence[Type], made: Sequence[Type]) -> tuple[list[Any], int]:
        """The results, and the code of an error or 0; types have integers for all sizes."""
        arrays = [np.require(value, requirements=["C", "A"]) for value in values]
        results = [np.zeros([dim.number({}) for dim in dims(type)], element(type).dtype) for type in made]
        words: list[Any] = []
        for array, type in zip((*arrays, *results), (*given, *made), strict=True):
            words.append(ctypes.c_void_p(array.ctypes.data))
            words.extend([ctypes.c_int64(dim.number({})) for dim in dims(type)])
        area = None if self.words is None else np.empty(self.words(given).number({}), np.float64)
        if area is not None:
            words.extend([ctypes.c_void_p(area.ctypes.data), ctypes.c_int64(area.size)])
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[word.__class__ for word in words])(self.address)
        code = int(function(*words))
        return [result[()] for result in results], code


def c_function(
    library: Any,
    symbol: str | None = None,
    *,
    work: Callable[..., DimLike] | None = None,
    error: type[Exception] = RuntimeError,
    message: str = "the error {0}",
) -> CFunction:
    """A function of C with the signature of operations (``core/c_functions.py``), for ``az.operation(c=...)``.

    ``library`` is the path of a shared library, or a ``ctypes.CDLL``, which has the ``symbol``; or else a PyCapsule
    that holds the address. ``work`` gives the length of the work area in f64, for the types of the arguments. A code
    other than 0 becomes the exception ``error``, with the ``message``, where ``{0}`` is the code, and the user's line.

    Raises OSError when the library cannot be loaded, and ValueError when it has no such symbol itself.

    >>> import adze as az
    >>> az.c_function("libc.so.6", "getentropy")
    <C function getentropy of libc.so.6>
    >>> az.c_function("libc.so.6", "no_such_function")
    Traceback (most recent call last):
    ValueError: libc.so.6 has no symbol 'no_such_function' (at ...)
    """
    words = None if work is None else lambda types: Dim.of(work(*types))
    if type(library).__name__ == "PyCapsule":
        if symbol is not None:
            raise TypeError(at_line(f"a PyCapsule is one function: it has no symbol {symbol!r}"))
        name, address = _of_capsule(library)
        return CFunction(name, address, None, words, error, message, library)
    if symbol is None:
        raise TypeError(at_line("c_function takes a library and a symbol, or a PyCapsule"))
    loaded = library if isinstance(library, ctypes.CDLL) else _loaded(library)
    try:
        address = int(ctypes.cast(loaded[symbol], ctypes.c_void_p).value or 0)
    except AttributeError:
        raise ValueError(at_line(f"{_name(loaded)} has no symbol {symbol!r}")) from None
    file, found = _file(loaded), _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found))
    owner = os.fsdecode(found.file or b"")
    if file and not os.path.samefile(file, owner):
        raise ValueError(at_line(f"{_name(loaded)} has no symbol {symbol!r} itself: that is one of {owner}"))
    state = os.stat(owner)
    version = os.path.realpath(owner), state.st_size, state.st_mtime_ns
    return CFunction(symbol, address, version, words, error, message, loaded)


def _loaded(library: Any) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(os.fspath(library))
    except TypeError:
        raise TypeError(at_line(f"a library is a path or a ctypes.CDLL, not {library!r}")) from None
    except OSError as error:
        raise OSError(at_line(f"the library {os.fspath(library)} cannot be loaded: {error}")) from None


def _name(library: ctypes.CDLL) -> str:
    return os.path.basename(str(library._name))


def _file(library: ctypes.CDLL) -> str:
    """The file of a library; nothing for the program itself, in which all that are loaded are looked up."""
    found = ctypes.POINTER(_Loaded)()
    if ctypes.CDLL(None).dlinfo(ctypes.c_void_p(library._handle), _LINK_MAP, ctypes.byref(found)):
        return ""
    return os.fsdecode(found.contents.name or b"")


def _of_capsule(capsule: Any) -> tuple[str, int]:
    """The name of a capsule, as a symbol, and the address in it."""
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    address_of.restype, address_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = name_of(capsule)
    return "capsule", int(address_of(capsule, name))
