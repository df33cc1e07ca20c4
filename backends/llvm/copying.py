"""Copying collection (Cheney 1970), between Python's objects and cells: what values of declared types travel by.

A collector copies what can be reached from one memory into another: what has been copied says where to, so that it is
copied once however often it is met, and what is copied and not yet looked through waits in a list, so that nothing
recurs. Here one memory is Python's. Both ways are machine code (``writing.py``, ``reading.py``) that looks at objects
as extension modules do, with the interpreter's lock, and makes them with the interpreter's own functions and NumPy's:

    write   from objects to cells: the word of a cell is the number of its variant, then come the parts of its fields.
            An object says in its slot ``_cell`` where it was copied to, until all is done. No object is made
            meanwhile, so nobody sees these. A cell has three words before it: the next cell, its object, its variant
    read    from cells to objects: a cell says in its first word which object it has become. Cells that were written
            from objects are these objects. The collection of garbage is off meanwhile, as objects are unfinished

Without recursion over cells, that is: a tuple, or a record that does not contain itself, is written and read by a call,
which goes as deep as its type. What objects are to be is said by tables of words:

    kind     0 its code  1 how many words values have; then
      scalar   2 its NumPy type  3 the class of values  5 bytes  8 how they are stored; of Python's numbers it takes
               4 float  6 int  7 bool, or not
      array    2 its NumPy type  3 axes  4 the word of its shape  5 the class  6 bytes of an element
      tuple    2 the variant that describes it
      sum      2 how many variants  3 the arrays in it: how many, then the place and the word of the shape of each
               4 ... its variants
      boxed    the same, in a cell
      function 2 the class of the error and  3 what it says where one is a result
    variant  0 its class  1 how many fields  2 where they begin in a sum  3 the only object, when there are no fields
             4 words of the fields  5 ... their kinds
    shape    0 the address of zeros, which stand for an array that is not there  1 ... extents
    walk     0 the region (``stacks.py``) of written cells  4 the first of what waits  5 the last  6 shapes
             7 whether a number was converted  8 a list of what is to be kept

Where a number of Python's was converted, as an ``int`` for an f64, the cells forget the objects that they were written
from. One that comes back becomes another object, once, which the list keeps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime import once
from .assemble import link
from .reading import READ
from .stacks import stacks
from .stored import load_runtime
from .writing import WRITE

_IR = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @adze_room(ptr, i64)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyList_Append(ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i32 @PyObject_IsTrue(ptr)
declare i32 @PyGC_Disable()
declare i32 @PyGC_Enable()
declare ptr @PyErr_NoMemory()
declare void @PyErr_SetObject(ptr, ptr)
declare ptr @adze_scalar(ptr, ptr, ptr)
declare ptr @adze_array(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare i8 @adze_same_type(ptr, ptr)
{WRITE}
{READ}
"""

_PYTHON = (
    "PyType_GenericAlloc", "PyTuple_New", "PyList_Append", "Py_IncRef", "Py_DecRef", "PyLong_AsLongLongAndOverflow",
    "PyObject_IsTrue", "PyGC_Disable", "PyGC_Enable", "PyErr_NoMemory", "PyErr_SetObject",
)  # fmt: skip
# Their places in the table of NumPy's C functions: PyArray_Scalar, PyArray_NewFromDescr, PyArray_EquivTypes
_NUMPY = {"adze_scalar": 60, "adze_array": 94, "adze_same_type": 182}


@dataclass(frozen=True)
class Copying:
    """The functions. What they have objects in is to be alive; cells that are written, too, while they are read."""

    write: Callable[[int, int, Any, int], int]  # walk, kind, object, words of its parts -> whether it is of that kind
    read: Callable[[int, int, int], Any]  # walk, a boxed kind, the address of a cell -> the object
    release: Callable[[int], None]  # the region at an address
    library: object  # which holds the code


@once
def copying() -> Copying:
    """The functions in the memory of this process."""
    from_python: dict[str, Any] = {name: getattr(ctypes.pythonapi, name) for name in _PYTHON}
    imports = {name: ctypes.cast(each, ctypes.c_void_p).value or 0 for name, each in from_python.items()}
    imports |= {name: int(_numpy()[place] or 0) for name, place in _NUMPY.items()}
    imports["adze_room"] = stacks().room
    library = load_runtime(_IR, lambda code: link(code, ("write", "read"), imports))
    write = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    read = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return Copying(write(library["write"]), read(library["read"]), stacks().release, library)


def _numpy() -> Any:
    """The addresses of NumPy's C functions, by their places in its binary interface."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    core: Any = np
    table = core._core._multiarray_umath._ARRAY_API
    return ctypes.cast(pointer(table, None), ctypes.POINTER(ctypes.c_void_p))
