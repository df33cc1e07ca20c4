"""Compiled programs as functions of XLA's foreign function interface: called by its threads, without Python.

XLA calls a handler with a frame that says where arguments and results are. Ours is machine code of our own, written
after the header that comes with JAX. For a program and shapes there is a *site*: frames of the compiled program
(``Direct`` in ``backends/llvm/calls.py``) with the sizes in them and all memory that a call takes. The handler takes
one that nobody has, writes the addresses, runs the program and puts the frame back:

    XLA's thread -> handler of a site -> adze_handle -> a frame is there, and the run ends well     -> XLA
                                                     -> none is, or a requirement fails: adze_python -> XLA

``adze_python`` is a function of Python. It runs the program on the same memory in the usual way, makes a frame for
later calls, and makes an error for XLA of what is raised. So whatever is rare happens there: programs are pure, and may
run again. Where the header is missing or describes other structures than these, there is no handler.

    site     0 how many arguments  1 results  2 threads  3 its number  4 the number of the first result's address
             5 how many places for frames, each of which is one frame's or empty
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.llvm.assemble import link
from ..backends.llvm.calls import Direct
from ..backends.llvm.frames import entries
from ..backends.llvm.stored import load_runtime
from ..backends.runtime import once
from ..core.types import Type, element
from .jax_arrays import jax_module
from .jax_operators import JaxOperator
from .operators import Shaped

_PLACES = 64  # for frames of a site: calls at once that do without Python
_HANDLERS = 64  # of a module
_WORDS = 6  # of a site before them
_EXECUTE = 3  # the stage in which a handler is run

# What is read and written, as the header declares it. What follows these fields may differ.
_EXTENSION = "size_t struct_size; XLA_FFI_Extension_Base* extension_start;"
_DECLARED = {
    "XLA_FFI_Extension_Base": "size_t struct_size; XLA_FFI_Extension_Type type; struct XLA_FFI_Extension_Base* next;",
    "XLA_FFI_Api_Version": f"{_EXTENSION} int major_version; int minor_version;",
    "XLA_FFI_Error_Create_Args": f"{_EXTENSION} const char* message; XLA_FFI_Error_Code errc;",
    "XLA_FFI_Buffer": f"{_EXTENSION} XLA_FFI_DataType dtype; void* data; int64_t rank; int64_t* dims;",
    "XLA_FFI_Args": f"{_EXTENSION} int64_t size; XLA_FFI_ArgType* types; void** args;",
    "XLA_FFI_Rets": f"{_EXTENSION} int64_t size; XLA_FFI_RetType* types; void** rets;",
    "XLA_FFI_CallFrame": f"{_EXTENSION} const XLA_FFI_Api* api; XLA_FFI_ExecutionContext* ctx; "
    "XLA_FFI_ExecutionStage stage; XLA_FFI_Args args; XLA_FFI_Rets rets;",
    "XLA_FFI_Metadata": "size_t struct_size; XLA_FFI_Api_Version api_version; XLA_FFI_Handler_Traits traits;",
    "XLA_FFI_Metadata_Extension": "XLA_FFI_Extension_Base extension_base; XLA_FFI_Metadata* metadata;",
    "XLA_FFI_Api": f"{_EXTENSION} XLA_FFI_Api_Version api_version; const XLA_FFI_InternalApi* internal_api; "
    "_XLA_FFI_API_STRUCT_FIELD(XLA_FFI_Error_Create);",
}
_MADE_AFTER = 0  # the major version

# Bytes from the beginning of a structure to its fields
_API, _STAGE, _ARGUMENTS, _RESULTS = 16, 32, 40, 80  # of a call frame
_COUNT, _BUFFERS = 16, 32  # of arguments, and of results
_DATA = 24  # of a buffer
_KIND, _METADATA = 8, 24  # of an extension
_MAJOR, _MINOR, _TRAITS = 24, 28, 32  # of metadata
_ERROR_CREATE = 48  # of the interface
_REFUSED, _NO_MEMORY = 9, 8  # codes of errors: FAILED_PRECONDITION, RESOURCE_EXHAUSTED


def _ir(major: int, minor: int) -> str:
    return f"""
declare i64 @adze_quiet(ptr, i64)
declare ptr @adze_python(i64, ptr)

define ptr @adze_handle(ptr %site, ptr %call) {{
entry:
  %extension.place = getelementptr i8, ptr %call, i64 8
  %extension = load ptr, ptr %extension.place
  %none = icmp eq ptr %extension, null
  br i1 %none, label %run, label %extended
extended:
  %kind.place = getelementptr i8, ptr %extension, i64 {_KIND}
  %kind = load i32, ptr %kind.place
  %asked = icmp eq i32 %kind, 1
  br i1 %asked, label %tell, label %run
tell:
  %metadata.place = getelementptr i8, ptr %extension, i64 {_METADATA}
  %metadata = load ptr, ptr %metadata.place
  %major = getelementptr i8, ptr %metadata, i64 {_MAJOR}
  store i32 {major}, ptr %major
  %minor = getelementptr i8, ptr %metadata, i64 {_MINOR}
  store i32 {minor}, ptr %minor
  %traits = getelementptr i8, ptr %metadata, i64 {_TRAITS}
  store i32 0, ptr %traits
  ret ptr null
run:
  %stage.place = getelementptr i8, ptr %call, i64 {_STAGE}
  %stage = load i32, ptr %stage.place
  %now = icmp eq i32 %stage, {_EXECUTE}
  br i1 %now, label %counts, label %fine
counts:
  %arguments = load i64, ptr %site
  %given.place = getelementptr i8, ptr %call, i64 {_ARGUMENTS + _COUNT}
  %given = load i64, ptr %given.place
  %all.given = icmp eq i64 %given, %arguments
  %results.place = getelementptr i64, ptr %site, i64 1
  %results = load i64, ptr %results.place
  %wanted.place = getelementptr i8, ptr %call, i64 {_RESULTS + _COUNT}
  %wanted = load i64, ptr %wanted.place
  %all.wanted = icmp eq i64 %wanted, %results
  %all = and i1 %all.given, %all.wanted
  %count.place = getelementptr i64, ptr %site, i64 5
  %count = load i64, ptr %count.place
  %places = getelementptr i64, ptr %site, i64 {_WORDS}
  br i1 %all, label %look, label %python
look:
  %k = phi i64 [ 0, %counts ], [ %k.next, %next ]
  %some = icmp slt i64 %k, %count
  br i1 %some, label %try, label %python
try:
  %place = getelementptr i64, ptr %places, i64 %k
  %word = atomicrmw xchg ptr %place, i64 0 acq_rel
  %empty = icmp eq i64 %word, 0
  br i1 %empty, label %next, label %take
next:
  %k.next = add i64 %k, 1
  br label %look
take:
  %frame = inttoptr i64 %word to ptr
  %addresses.place = getelementptr i64, ptr %frame, i64 1
  %addresses = load ptr, ptr %addresses.place
  %sources.place = getelementptr i8, ptr %call, i64 {_ARGUMENTS + _BUFFERS}
  %sources = load ptr, ptr %sources.place
  call void @write(ptr %sources, i64 %arguments, ptr %addresses)
  %first.place = getelementptr i64, ptr %site, i64 4
  %first = load i64, ptr %first.place
  %targets.place = getelementptr i8, ptr %call, i64 {_RESULTS + _BUFFERS}
  %targets = load ptr, ptr %targets.place
  %places.of.results = getelementptr i64, ptr %addresses, i64 %first
  call void @write(ptr %targets, i64 %results, ptr %places.of.results)
  %threads.place = getelementptr i64, ptr %site, i64 2
  %threads = load i64, ptr %threads.place
  %failure = call i64 @adze_quiet(ptr %frame, i64 %threads)
  store atomic i64 %word, ptr %place release, align 8
  %good = icmp eq i64 %failure, 0
  br i1 %good, label %fine, label %python
fine:
  ret ptr null
python:
  %number.place = getelementptr i64, ptr %site, i64 3
  %number = load i64, ptr %number.place
  %error = call ptr @adze_python(i64 %number, ptr %call)
  ret ptr %error
}}

define internal void @write(ptr %buffers, i64 %count, ptr %places) alwaysinline {{
entry:
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k.next, %one ]
  %some = icmp slt i64 %k, %count
  br i1 %some, label %one, label %done
one:
  %buffer.place = getelementptr ptr, ptr %buffers, i64 %k
  %buffer = load ptr, ptr %buffer.place
  %data.place = getelementptr i8, ptr %buffer, i64 {_DATA}
  %data = load ptr, ptr %data.place
  %place = getelementptr ptr, ptr %places, i64 %k
  store ptr %data, ptr %place
  %k.next = add i64 %k, 1
  br label %each
done:
  ret void
}}
"""


# The header


def _version(header: str) -> tuple[int, int] | None:
    """The version that a header declares, if its structures are those that are known here."""
    numbers = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", header) for part in ("MAJOR", "MINOR")]
    text = " ".join(re.sub(r"//.*", "", header).split())
    for name, fields in _DECLARED.items():
        found = re.search(rf"struct {name} {{ (.*?) }}", text)
        if found is None or not found[1].startswith(fields):
            return None
    found_all = [int(number[1]) for number in numbers if number is not None]
    return (found_all[0], found_all[1]) if len(found_all) == 2 and found_all[0] == _MADE_AFTER else None


@once
def _handle() -> tuple[int, Any] | None:
    """The address of ``adze_handle``, and what keeps it; None where XLA's interface is another one."""
    ffi = getattr(jax_module(), "ffi", None)
    try:
        header = (Path(ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()  # type: ignore[union-attr]
    except (AttributeError, OSError):
        return None
    version = _version(header)
    if version is None:
        return None
    imports = {"adze_quiet": entries().quiet, "adze_python": int(ctypes.cast(_PYTHON, ctypes.c_void_p).value or 0)}
    library = load_runtime(_ir(*version), lambda code: link(code, ("adze_handle",), imports))
    return int(library["adze_handle"]), library


# Sites


class _Site:
    """A program for arguments of some shapes; it is there until the process ends, as what XLA knows is."""

    def __init__(self, operator: JaxOperator, shapes: Sequence[tuple[int, ...]]) -> None:
        self._operator, arguments = operator, [Shaped(shape) for shape in shapes]
        self._arguments = list(zip(operator.types, shapes, strict=True))
        self._results = [(type, tuple(shape)) for type, shape in operator.made(shapes)]
        self._direct: Direct | None = operator.compiled.direct(arguments)
        self._frames: list[Any] = []
        self._lock = threading.Lock()
        places = 0 if self._direct is None else _PLACES
        self._words = np.zeros(_WORDS + places, np.int64)
        self._words[[0, 1, 3, 5]] = len(shapes), len(self._results), len(_SITES), places
        if self._direct is not None:
            self._words[[2, 4]] = self._direct.threads, self._direct.first_result
        _SITES.append(self)

    @property
    def address(self) -> int:
        return int(self._words.ctypes.data)

    def run(self, call: int) -> None:
        """Run the program on the memory of a call."""
        given = _memory(call + _ARGUMENTS, self._arguments)
        places = _memory(call + _RESULTS, self._results)
        for place, result in zip(places, self._operator.run(*given), strict=True):
            place[...] = result
        self._add()

    def _add(self) -> None:
        """Have a frame more, for a place that has had none."""
        with self._lock:
            number = len(self._frames)
            if self._direct is None or number == _PLACES:
                return
            frame = self._direct.frame()
            self._frames.append(frame)
            self._words[_WORDS + number] = frame.address


_SITES: list[_Site] = []


def _memory(described: int, types: Sequence[tuple[Type, tuple[int, ...]]]) -> list[Any]:
    """The arrays that XLA describes as arguments or results, of these types and shapes."""
    count = ctypes.c_int64.from_address(described + _COUNT).value
    if count != len(types):
        raise TypeError(f"XLA gives {count} arrays where {len(types)} are expected")
    buffers = (ctypes.c_int64 * count).from_address(ctypes.c_int64.from_address(described + _BUFFERS).value)
    found = []
    for buffer, (type, shape) in zip(buffers, types, strict=True):
        scalar, size = element(type), int(np.prod(shape, dtype=np.int64))
        if size:
            address = ctypes.c_int64.from_address(buffer + _DATA).value
            memory: Any = (ctypes.c_char * (size * scalar.bytes)).from_address(address)
            found.append(np.ndarray(shape, scalar.dtype, memory))
        else:
            found.append(np.empty(shape, scalar.dtype))
    return found


class _ErrorCreate(ctypes.Structure):
    """The arguments of what makes an error."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    ]


def _error(call: int, raised: BaseException) -> int:
    """XLA's error for an exception."""
    text = "\n".join([f"{raised.__class__.__name__}: {raised}", *getattr(raised, "__notes__", ())])
    interface = ctypes.c_int64.from_address(call + _API).value
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorCreate))(
        ctypes.c_int64.from_address(interface + _ERROR_CREATE).value
    )
    code = _NO_MEMORY if isinstance(raised, MemoryError) else _REFUSED
    size = _ErrorCreate.code.offset + ctypes.sizeof(ctypes.c_int)
    return int(create(_ErrorCreate(size, None, text.encode("utf-8", "replace").replace(b"\0", b"?"), code)))


def _python(number: int, call: int) -> int:
    """Run the program of a site; what it raises is an error of XLA."""
    try:
        _SITES[number].run(call)
    except BaseException as raised:
        return _error(call, raised)
    return 0


_PYTHON = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(_python)


# Handlers: one a site, as XLA tells a handler nothing of who registered it


def _handlers_ir() -> str:
    """So many handlers, and what gives one its site."""
    parts = [
        f"""
@sites = internal global [{_HANDLERS} x ptr] zeroinitializer

declare ptr @adze_handle(ptr, ptr)

define void @enter(i64 %number, ptr %site) {{
  %place = getelementptr ptr, ptr @sites, i64 %number
  store ptr %site, ptr %place
  ret void
}}
"""
    ]
    for number in range(_HANDLERS):
        parts.append(f"""
define ptr @handler.{number}(ptr %call) {{
  %place = getelementptr ptr, ptr @sites, i64 {number}
  %site = load ptr, ptr %place
  %error = tail call ptr @adze_handle(ptr %site, ptr %call)
  ret ptr %error
}}
""")
    return "".join(parts)


class _Handlers:
    """Handlers that have sites, in machine code that XLA calls until the process ends."""

    def __init__(self) -> None:
        self._libraries: list[Any] = []
        self._count = 0

    def of(self, site: _Site, handle: int) -> int:
        """The address of the handler of a new site."""
        number = self._count % _HANDLERS
        if number == 0:
            names = ("enter", *[f"handler.{each}" for each in range(_HANDLERS)])
            imports = {"adze_handle": handle}
            self._libraries.append(load_runtime(_handlers_ir(), lambda code: link(code, names, imports)))
        library = self._libraries[-1]
        ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(library["enter"])(number, site.address)
        self._count += 1
        return int(library[f"handler.{number}"])


_handlers = _Handlers()
_LOCK = threading.RLock()


@cache
def _target(operator: JaxOperator, shapes: tuple[tuple[int, ...], ...], handle: int) -> str:
    """The name of a handler that is registered."""
    name = "adze_" + "_".join([operator.name, *["x".join(map(str, shape)) for shape in shapes]])
    address = _handlers.of(_Site(operator, shapes), handle)
    ffi = jax_module().ffi
    ffi.register_ffi_target(name, ffi.pycapsule(ctypes.c_void_p(address)), platform="cpu")
    return name


def target(operator: JaxOperator, arrays: Sequence[Any]) -> str | None:
    """The name of XLA's function that computes an operator of arrays of these shapes; None where there is none.

    What a call with these shapes takes is compiled.
    """
    found = _handle()
    if found is None:
        return None
    with _LOCK:
        return _target(operator, tuple([tuple(array.shape) for array in arrays]), found[0])
