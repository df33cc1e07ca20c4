"""Copying collection (Cheney 1970), between Python's objects and cells: what values of declared types travel by.

A collector copies what can be reached from one memory into another: what has been copied says where to, so that it is
copied once however often it is met, and what is copied and not yet looked through waits in a list, so that nothing
recurs. Here one memory is Python's. Both ways are machine code that looks at objects as extension modules do, with the
interpreter's lock, and makes them with the interpreter's own functions and NumPy's:

    write   from objects to cells: the word of a cell is the number of its variant, then come the parts of its fields.
            An object says in its slot ``_cell`` where it was copied to, until all is done. No object is made
            meanwhile, so nobody sees these. A cell has three words before it: the next cell, its object, its variant
    read    from cells to objects: a cell says in its first word which object it has become. Cells that were written
            from objects are these objects. The collection of garbage is off meanwhile, as objects are unfinished

Without recursion over cells, that is: a tuple, or a record that does not contain itself, is written and read by a call,
which goes as deep as its type. What objects are to be is said by tables of words:

    kind     0 its code  1 how many words values have; then
      scalar   2 its NumPy type  3 the class of values, and  4 Python's  5 bytes  6 how Python's class is read
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
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.trees import Record
from ..runtime import once
from .assemble import link
from .stacks import stacks
from .stored import load_runtime

CODES = {"scalar": 0, "array": 1, "tuple": 2, "sum": 3, "boxed": 4, "function": 5}
READ_AS = {"float": 0, "int": 1, "bool": 2}  # how a number of Python is read
WALK = 7  # words
FITS, DIFFERS = 0, 1  # what ``write`` gives; 2: there is no memory

_HEADER = object.__basicsize__  # of every Python object
_CLASS = _HEADER - 8
_ITEMS = tuple.__basicsize__
_CELL, _VALUES = (_HEADER + 8 * sorted(Record.__slots__).index(name) for name in ("_cell", "_values"))
_CONTIGUOUS = 0x0101  # flags of an array: row-major and aligned
_BEFORE = 24  # bytes before a cell that is written


def _word(name: str, type: str, base: str, number: int | str) -> str:
    """Load a word, by its number, into a register of this name."""
    return f"%{name}.place = getelementptr i64, ptr %{base}, i64 {number}\n  %{name} = load {type}, ptr %{name}.place"


def _field(name: str, type: str, base: str, offset: int) -> str:
    """Load what is so many bytes behind an address."""
    return f"%{name}.place = getelementptr i8, ptr %{base}, i64 {offset}\n  %{name} = load {type}, ptr %{name}.place"


_IR = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @adze_room(ptr, i64)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyTuple_New(i64)
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

define i64 @write(ptr %walk, ptr %kind, ptr %object, ptr %words) {{
entry:
  %first = getelementptr i64, ptr %walk, i64 4
  store ptr null, ptr %first
  %last = getelementptr i64, ptr %walk, i64 5
  store ptr %first, ptr %last
  %outermost = call i64 @parts(ptr %walk, ptr %kind, ptr %object, ptr %words)
  br label %next
next:
  %result = phi i64 [ %outermost, %entry ], [ %inner, %fill ]
  %link = phi ptr [ %first, %entry ], [ %head, %fill ]
  %head = load ptr, ptr %link
  %all = icmp eq ptr %head, null
  %wrong = icmp ne i64 %result, {FITS}
  %stop = or i1 %all, %wrong
  br i1 %stop, label %clear, label %fill
fill:
  store ptr %head, ptr %last
  {_word("holder", "ptr", "head", 1)}
  {_word("variant", "ptr", "head", 2)}
  {_field("values", "ptr", "holder", _VALUES)}
  %content = getelementptr i64, ptr %head, i64 4
  %inner = call i64 @fields(ptr %walk, ptr %variant, ptr %values, ptr %content)
  br label %next
clear:
  %begin = load ptr, ptr %first
  br label %each
each:
  %cell = phi ptr [ %begin, %clear ], [ %following, %unmark ]
  %none = icmp eq ptr %cell, null
  br i1 %none, label %done, label %unmark
unmark:
  {_word("marked", "ptr", "cell", 1)}
  %mark = getelementptr i8, ptr %marked, i64 {_CELL}
  store ptr null, ptr %mark
  %following = load ptr, ptr %cell
  br label %each
done:
  ret i64 %result
}}

define internal i64 @fields(ptr %walk, ptr %variant, ptr %tuple, ptr %words) {{
entry:
  {_word("count", "i64", "variant", 1)}
  %missing = icmp eq ptr %tuple, null
  br i1 %missing, label %wrong, label %look
look:
  {_field("size", "i64", "tuple", _HEADER)}
  %as.many = icmp eq i64 %size, %count
  br i1 %as.many, label %next, label %wrong
next:
  %k = phi i64 [ 0, %look ], [ %k.next, %on ]
  %at = phi ptr [ %words, %look ], [ %at.next, %on ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %good
one:
  %items = getelementptr i8, ptr %tuple, i64 {_ITEMS}
  {_word("item", "ptr", "items", "%k")}
  %kinds = getelementptr i64, ptr %variant, i64 5
  {_word("kind", "ptr", "kinds", "%k")}
  %result = call i64 @parts(ptr %walk, ptr %kind, ptr %item, ptr %at)
  %fits = icmp eq i64 %result, {FITS}
  br i1 %fits, label %on, label %bad
on:
  {_word("width", "i64", "kind", 1)}
  %at.next = getelementptr i64, ptr %at, i64 %width
  %k.next = add i64 %k, 1
  br label %next
good:
  ret i64 {FITS}
bad:
  ret i64 %result
wrong:
  ret i64 {DIFFERS}
}}

define internal i64 @parts(ptr %walk, ptr %kind, ptr %object, ptr %words) {{
entry:
  %over = alloca i32
  {_field("class", "ptr", "object", _CLASS)}
  %code = load i64, ptr %kind
  switch i64 %code, label %sum [
    i64 {CODES["scalar"]}, label %scalar
    i64 {CODES["array"]}, label %array
    i64 {CODES["tuple"]}, label %tuple
    i64 {CODES["boxed"]}, label %boxed
    i64 {CODES["function"]}, label %wrong
  ]
scalar:
  {_word("numpy", "ptr", "kind", 3)}
  %is.numpy = icmp eq ptr %class, %numpy
  br i1 %is.numpy, label %copy, label %other.class
copy:
  store i64 0, ptr %words
  %content = getelementptr i8, ptr %object, i64 {_HEADER}
  {_word("bytes", "i64", "kind", 5)}
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %content, i64 %bytes, i1 false)
  ret i64 {FITS}
other.class:
  {_word("python", "ptr", "kind", 4)}
  {_word("how", "i64", "kind", 6)}
  %is.python = icmp eq ptr %class, %python
  br i1 %is.python, label %read, label %wrong
read:
  switch i64 %how, label %float [
    i64 {READ_AS["int"]}, label %integer
    i64 {READ_AS["bool"]}, label %truth
  ]
float:
  {_field("double", "i64", "object", _HEADER)}
  store i64 %double, ptr %words
  ret i64 {FITS}
integer:
  %long = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %over)
  store i64 %long, ptr %words
  %overflow = load i32, ptr %over
  %exact = icmp eq i32 %overflow, 0
  br i1 %exact, label %good, label %wrong
truth:
  %is.true = call i32 @PyObject_IsTrue(ptr %object)
  %bit = zext i32 %is.true to i64
  store i64 %bit, ptr %words
  ret i64 {FITS}
array:
  {_word("arrays", "ptr", "kind", 5)}
  {_word("wanted.rank", "i64", "kind", 3)}
  %is.array = icmp eq ptr %class, %arrays
  br i1 %is.array, label %header, label %wrong
header:
  {_field("rank.word", "i32", "object", _HEADER + 8)}
  {_field("extents", "ptr", "object", _HEADER + 16)}
  {_field("given", "ptr", "object", _HEADER + 40)}
  {_field("flags", "i32", "object", _HEADER + 48)}
  {_word("wanted", "ptr", "kind", 2)}
  {_word("shape", "i64", "kind", 4)}
  {_word("shapes", "ptr", "walk", 6)}
  %wanted.extents = getelementptr i64, ptr %shapes, i64 %shape
  %rank = sext i32 %rank.word to i64
  %as.deep = icmp eq i64 %rank, %wanted.rank
  %bits = and i32 %flags, {_CONTIGUOUS}
  %contiguous = icmp eq i32 %bits, {_CONTIGUOUS}
  %plain = and i1 %as.deep, %contiguous
  br i1 %plain, label %type, label %wrong
type:
  %same = call i8 @adze_same_type(ptr %given, ptr %wanted)
  %other = icmp eq i8 %same, 0
  br i1 %other, label %wrong, label %axis
axis:
  %a = phi i64 [ 0, %type ], [ %a.next, %extent ]
  %axes = icmp slt i64 %a, %rank
  %a.next = add i64 %a, 1
  br i1 %axes, label %extent, label %address
extent:
  {_word("has", "i64", "extents", "%a")}
  {_word("should", "i64", "wanted.extents", "%a.next")}
  %agrees = icmp eq i64 %has, %should
  br i1 %agrees, label %axis, label %wrong
address:
  {_field("data", "ptr", "object", _HEADER)}
  store ptr %data, ptr %words
  ret i64 {FITS}
tuple:
  {_word("shaped", "ptr", "kind", 2)}
  %tuples = load ptr, ptr %shaped
  %is.tuple = icmp eq ptr %class, %tuples
  br i1 %is.tuple, label %items, label %wrong
items:
  %of.tuple = call i64 @fields(ptr %walk, ptr %shaped, ptr %object, ptr %words)
  ret i64 %of.tuple
sum:
  %number = call i64 @variant_of(ptr %kind, ptr %class)
  %unknown = icmp slt i64 %number, 0
  br i1 %unknown, label %wrong, label %known
known:
  {_word("width", "i64", "kind", 1)}
  %size = shl i64 %width, 3
  call void @llvm.memset.p0.i64(ptr %words, i8 0, i64 %size, i1 false)
  call void @nothing(ptr %walk, ptr %kind, ptr %words)
  %variants = getelementptr i64, ptr %kind, i64 4
  {_word("variant", "ptr", "variants", "%number")}
  {_word("start", "i64", "variant", 2)}
  {_word("count", "i64", "kind", 2)}
  %several = icmp sgt i64 %count, 1
  br i1 %several, label %tag, label %own
tag:
  store i64 %number, ptr %words
  br label %own
own:
  {_field("values", "ptr", "object", _VALUES)}
  %begin = getelementptr i64, ptr %words, i64 %start
  %of.sum = call i64 @fields(ptr %walk, ptr %variant, ptr %values, ptr %begin)
  ret i64 %of.sum
boxed:
  %of.cell = call i64 @cell(ptr %walk, ptr %kind, ptr %class, ptr %object, ptr %words)
  ret i64 %of.cell
good:
  ret i64 {FITS}
wrong:
  ret i64 {DIFFERS}
}}

define internal i64 @variant_of(ptr %kind, ptr %class) {{
entry:
  {_word("count", "i64", "kind", 2)}
  %variants = getelementptr i64, ptr %kind, i64 4
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %none
look:
  {_word("variant", "ptr", "variants", "%k")}
  %own = load ptr, ptr %variant
  %same = icmp eq ptr %own, %class
  %k.next = add i64 %k, 1
  br i1 %same, label %found, label %next
found:
  ret i64 %k
none:
  ret i64 -1
}}

define internal void @nothing(ptr %walk, ptr %kind, ptr %words) {{
entry:
  {_word("absent", "ptr", "kind", 3)}
  {_word("shapes", "ptr", "walk", 6)}
  %count = load i64, ptr %absent
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %pair = getelementptr [2 x i64], ptr %absent, i64 %k
  {_word("place", "i64", "pair", 1)}
  {_word("shape", "i64", "pair", 2)}
  {_word("zeros", "i64", "shapes", "%shape")}
  %word = getelementptr i64, ptr %words, i64 %place
  store i64 %zeros, ptr %word
  %k.next = add i64 %k, 1
  br label %next
done:
  ret void
}}

define internal i64 @cell(ptr %walk, ptr %kind, ptr %class, ptr %object, ptr %words) {{
entry:
  %number = call i64 @variant_of(ptr %kind, ptr %class)
  %unknown = icmp slt i64 %number, 0
  br i1 %unknown, label %wrong, label %known
known:
  %variants = getelementptr i64, ptr %kind, i64 4
  {_word("variant", "ptr", "variants", "%number")}
  {_field("mark", "ptr", "object", _CELL)}
  %new = icmp eq ptr %mark, null
  br i1 %new, label %take, label %met
met:
  {_word("before", "ptr", "mark", -1)}
  {_word("count", "i64", "variant", 1)}
  %same = icmp eq ptr %before, %variant
  %empty = icmp eq i64 %count, 0
  %serves = or i1 %same, %empty
  br i1 %serves, label %done, label %wrong
take:
  {_word("width", "i64", "variant", 4)}
  %content = shl i64 %width, 3
  %size = add i64 %content, {_BEFORE + 8}
  %free = load ptr, ptr %walk
  {_word("end", "ptr", "walk", 1)}
  %after = getelementptr i8, ptr %free, i64 %size
  %enough = icmp ule ptr %after, %end
  br i1 %enough, label %bump, label %room
bump:
  store ptr %after, ptr %walk
  br label %have
room:
  %more = call ptr @adze_room(ptr %walk, i64 %size)
  %none = icmp eq ptr %more, null
  br i1 %none, label %full, label %have
have:
  %head = phi ptr [ %free, %bump ], [ %more, %room ]
  {_word("last", "ptr", "walk", 5)}
  %next = load ptr, ptr %last
  store ptr %next, ptr %head
  store ptr %head, ptr %last
  store ptr %head, ptr %last.place
  %holder = getelementptr i64, ptr %head, i64 1
  store ptr %object, ptr %holder
  %described = getelementptr i64, ptr %head, i64 2
  store ptr %variant, ptr %described
  %made = getelementptr i64, ptr %head, i64 3
  store i64 %number, ptr %made
  store ptr %made, ptr %mark.place
  br label %done
done:
  %address = phi ptr [ %mark, %met ], [ %made, %have ]
  store ptr %address, ptr %words
  ret i64 {FITS}
wrong:
  ret i64 {DIFFERS}
full:
  ret i64 2
}}

define ptr @read(ptr %walk, ptr %kind, ptr %cell) {{
entry:
  %collects = call i32 @PyGC_Disable()
  %waiting = getelementptr i64, ptr %walk, i64 4
  store ptr null, ptr %waiting
  %outermost = call ptr @opened(ptr %walk, ptr %kind, ptr %cell)
  br label %next
next:
  %top = load ptr, ptr %waiting
  %all = icmp eq ptr %top, null
  br i1 %all, label %done, label %fill
fill:
  {_word("opened", "ptr", "top", 1)}
  {_word("variant", "ptr", "top", 2)}
  %below = load ptr, ptr %top
  store ptr %below, ptr %waiting
  call void @free(ptr %top)
  %object = load ptr, ptr %opened
  %content = getelementptr i64, ptr %opened, i64 1
  %values = call ptr @items(ptr %walk, ptr %variant, ptr %content)
  %place = getelementptr i8, ptr %object, i64 {_VALUES}
  store ptr %values, ptr %place
  %failed = icmp eq ptr %values, null
  br i1 %failed, label %drop, label %next
drop:
  %left = load ptr, ptr %waiting
  %last = icmp eq ptr %left, null
  br i1 %last, label %dropped, label %one
one:
  %under = load ptr, ptr %left
  store ptr %under, ptr %waiting
  call void @free(ptr %left)
  br label %drop
dropped:
  call void @Py_DecRef(ptr %outermost)
  br label %done
done:
  %result = phi ptr [ %outermost, %next ], [ null, %dropped ]
  %collected = icmp ne i32 %collects, 0
  br i1 %collected, label %enable, label %end
enable:
  %enabled = call i32 @PyGC_Enable()
  br label %end
end:
  ret ptr %result
}}

define internal ptr @opened(ptr %walk, ptr %kind, ptr %cell) {{
entry:
  %newest.place = getelementptr ptr, ptr %walk, i64 2
  br label %next
next:
  %place = phi ptr [ %newest.place, %entry ], [ %chunk, %look ]
  %chunk = load ptr, ptr %place
  %no.more = icmp eq ptr %chunk, null
  br i1 %no.more, label %result, label %look
look:
  {_word("bytes", "i64", "chunk", 1)}
  %end = getelementptr i8, ptr %chunk, i64 %bytes
  %behind = icmp uge ptr %cell, %chunk
  %before = icmp ult ptr %cell, %end
  %inside = and i1 %behind, %before
  br i1 %inside, label %given, label %next
given:
  {_word("argument", "ptr", "cell", -2)}
  br label %known
result:
  %tag = load i64, ptr %cell
  %object.made = inttoptr i64 %tag to ptr
  %is.object = icmp ugt i64 %tag, 65535
  br i1 %is.object, label %known, label %number
number:
  %variants = getelementptr i64, ptr %kind, i64 4
  {_word("variant", "ptr", "variants", "%tag")}
  {_word("count", "i64", "variant", 1)}
  {_word("single", "ptr", "variant", 3)}
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %known, label %wait
known:
  %found = phi ptr [ %argument, %given ], [ %object.made, %result ], [ %single, %number ]
  call void @Py_IncRef(ptr %found)
  ret ptr %found
wait:
  %entry.made = call ptr @malloc(i64 24)
  %no.memory = icmp eq ptr %entry.made, null
  br i1 %no.memory, label %refuse, label %make
refuse:
  %raised = call ptr @PyErr_NoMemory()
  ret ptr null
make:
  %class = load ptr, ptr %variant
  %made = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %undo, label %push
undo:
  call void @free(ptr %entry.made)
  ret ptr null
push:
  store ptr %made, ptr %cell
  {_word("waiting", "ptr", "walk", 4)}
  store ptr %waiting, ptr %entry.made
  store ptr %entry.made, ptr %waiting.place
  %cell.place = getelementptr i64, ptr %entry.made, i64 1
  store ptr %cell, ptr %cell.place
  %described = getelementptr i64, ptr %entry.made, i64 2
  store ptr %variant, ptr %described
  ret ptr %made
}}

define internal ptr @items(ptr %walk, ptr %variant, ptr %words) {{
entry:
  {_word("count", "i64", "variant", 1)}
  %tuple = call ptr @PyTuple_New(i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %none, label %begin
begin:
  %items = getelementptr i8, ptr %tuple, i64 {_ITEMS}
  %kinds = getelementptr i64, ptr %variant, i64 5
  br label %next
next:
  %k = phi i64 [ 0, %begin ], [ %k.next, %on ]
  %at = phi ptr [ %words, %begin ], [ %at.next, %on ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %good
one:
  {_word("kind", "ptr", "kinds", "%k")}
  %item = call ptr @value(ptr %walk, ptr %kind, ptr %at)
  %missing = icmp eq ptr %item, null
  br i1 %missing, label %bad, label %on
on:
  %place = getelementptr ptr, ptr %items, i64 %k
  store ptr %item, ptr %place
  {_word("width", "i64", "kind", 1)}
  %at.next = getelementptr i64, ptr %at, i64 %width
  %k.next = add i64 %k, 1
  br label %next
good:
  ret ptr %tuple
bad:
  call void @Py_DecRef(ptr %tuple)
  ret ptr null
none:
  ret ptr null
}}

define internal ptr @value(ptr %walk, ptr %kind, ptr %words) {{
entry:
  %code = load i64, ptr %kind
  switch i64 %code, label %sum [
    i64 {CODES["scalar"]}, label %scalar
    i64 {CODES["array"]}, label %array
    i64 {CODES["tuple"]}, label %tuple
    i64 {CODES["boxed"]}, label %boxed
    i64 {CODES["function"]}, label %function
  ]
scalar:
  {_word("numpy", "ptr", "kind", 2)}
  %number = call ptr @adze_scalar(ptr %words, ptr %numpy, ptr null)
  ret ptr %number
array:
  {_word("type", "ptr", "kind", 2)}
  {_word("rank", "i64", "kind", 3)}
  {_word("shape", "i64", "kind", 4)}
  {_word("class", "ptr", "kind", 5)}
  {_word("element", "i64", "kind", 6)}
  {_word("shapes", "ptr", "walk", 6)}
  %zeros = getelementptr i64, ptr %shapes, i64 %shape
  %extents = getelementptr i64, ptr %zeros, i64 1
  %axes = trunc i64 %rank to i32
  call void @Py_IncRef(ptr %type)
  %made = call ptr @adze_array(ptr %class, ptr %type, i32 %axes, ptr %extents, ptr null, ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %axis
axis:
  %a = phi i64 [ 0, %array ], [ %a.next, %times ]
  %bytes = phi i64 [ %element, %array ], [ %more.bytes, %times ]
  %more = icmp slt i64 %a, %rank
  br i1 %more, label %times, label %copy
times:
  {_word("extent", "i64", "extents", "%a")}
  %more.bytes = mul i64 %bytes, %extent
  %a.next = add i64 %a, 1
  br label %axis
copy:
  {_field("data", "ptr", "made", _HEADER)}
  %source = load ptr, ptr %words
  call void @llvm.memcpy.p0.p0.i64(ptr %data, ptr %source, i64 %bytes, i1 false)
  ret ptr %made
tuple:
  {_word("shaped", "ptr", "kind", 2)}
  %items = call ptr @items(ptr %walk, ptr %shaped, ptr %words)
  ret ptr %items
sum:
  {_word("count", "i64", "kind", 2)}
  %several = icmp sgt i64 %count, 1
  br i1 %several, label %numbered, label %only
numbered:
  %tag = load i64, ptr %words
  br label %only
only:
  %which = phi i64 [ 0, %sum ], [ %tag, %numbered ]
  %variants = getelementptr i64, ptr %kind, i64 4
  {_word("variant", "ptr", "variants", "%which")}
  {_word("start", "i64", "variant", 2)}
  %own = getelementptr i64, ptr %words, i64 %start
  %values = call ptr @items(ptr %walk, ptr %variant, ptr %own)
  %empty = icmp eq ptr %values, null
  br i1 %empty, label %none, label %make
make:
  %of = load ptr, ptr %variant
  %object = call ptr @PyType_GenericAlloc(ptr %of, i64 0)
  %unmade = icmp eq ptr %object, null
  br i1 %unmade, label %undo, label %set
set:
  %place = getelementptr i8, ptr %object, i64 {_VALUES}
  store ptr %values, ptr %place
  ret ptr %object
undo:
  call void @Py_DecRef(ptr %values)
  ret ptr null
boxed:
  %address = load ptr, ptr %words
  %opened = call ptr @opened(ptr %walk, ptr %kind, ptr %address)
  ret ptr %opened
function:
  {_word("error", "ptr", "kind", 2)}
  {_word("message", "ptr", "kind", 3)}
  call void @PyErr_SetObject(ptr %error, ptr %message)
  br label %none
none:
  ret ptr null
}}
"""

_PYTHON = (
    "PyType_GenericAlloc", "PyTuple_New", "Py_IncRef", "Py_DecRef", "PyLong_AsLongLongAndOverflow", "PyObject_IsTrue",
    "PyGC_Disable", "PyGC_Enable", "PyErr_NoMemory", "PyErr_SetObject",
)  # fmt: skip
_NUMPY = {
    "adze_scalar": 60,
    "adze_array": 94,
    "adze_same_type": 182,
}  # their places in the table of NumPy's C functions


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
