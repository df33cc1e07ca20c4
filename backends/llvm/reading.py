"""The part of ``copying.py`` that reads objects from cells, as LLVM IR."""

from __future__ import annotations

from .objects import CODES, HEADER, ITEMS, VALUES, field, word

READ = f"""
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
  {word("opened", "ptr", "top", 1)}
  {word("variant", "ptr", "top", 2)}
  {word("object", "ptr", "top", 3)}
  %below = load ptr, ptr %top
  store ptr %below, ptr %waiting
  call void @free(ptr %top)
  %content = getelementptr i64, ptr %opened, i64 1
  %values = call ptr @items(ptr %walk, ptr %variant, ptr %content)
  %place = getelementptr i8, ptr %object, i64 {VALUES}
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
  {word("bytes", "i64", "chunk", 1)}
  %end = getelementptr i8, ptr %chunk, i64 %bytes
  %behind = icmp uge ptr %cell, %chunk
  %before = icmp ult ptr %cell, %end
  %inside = and i1 %behind, %before
  br i1 %inside, label %given, label %next
given:
  {word("argument", "ptr", "cell", -2)}
  %of.argument = load i64, ptr %cell
  %forgotten = icmp eq ptr %argument, null
  br i1 %forgotten, label %number, label %known
result:
  %of.result = load i64, ptr %cell
  %object.made = inttoptr i64 %of.result to ptr
  %is.object = icmp ugt i64 %of.result, 65535
  br i1 %is.object, label %known, label %number
number:
  %tag = phi i64 [ %of.argument, %given ], [ %of.result, %result ]
  %says = phi ptr [ %argument.place, %given ], [ %cell, %result ]
  %variants = getelementptr i64, ptr %kind, i64 4
  {word("variant", "ptr", "variants", "%tag")}
  {word("count", "i64", "variant", 1)}
  {word("single", "ptr", "variant", 3)}
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %known, label %wait
known:
  %found = phi ptr [ %argument, %given ], [ %object.made, %result ], [ %single, %number ]
  call void @Py_IncRef(ptr %found)
  ret ptr %found
wait:
  %entry.made = call ptr @malloc(i64 32)
  %no.memory = icmp eq ptr %entry.made, null
  br i1 %no.memory, label %refuse, label %make
refuse:
  %raised = call ptr @PyErr_NoMemory()
  ret ptr null
make:
  %class = load ptr, ptr %variant
  %made = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %failed = icmp eq ptr %made, null
  %is.argument = icmp ne ptr %says, %cell
  br i1 %failed, label %undo, label %more
more:
  br i1 %is.argument, label %keep, label %push
undo:
  call void @free(ptr %entry.made)
  ret ptr null
keep:
  {word("kept", "ptr", "walk", 8)}
  %appended = call i32 @PyList_Append(ptr %kept, ptr %made)
  %not.kept = icmp ne i32 %appended, 0
  br i1 %not.kept, label %lost, label %push
lost:
  call void @Py_DecRef(ptr %made)
  br label %undo
push:
  store ptr %made, ptr %says
  %held = getelementptr i64, ptr %entry.made, i64 3
  store ptr %made, ptr %held
  {word("waiting", "ptr", "walk", 4)}
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
  {word("count", "i64", "variant", 1)}
  %tuple = call ptr @PyTuple_New(i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %none, label %begin
begin:
  %items = getelementptr i8, ptr %tuple, i64 {ITEMS}
  %kinds = getelementptr i64, ptr %variant, i64 5
  br label %next
next:
  %k = phi i64 [ 0, %begin ], [ %k.next, %on ]
  %at = phi ptr [ %words, %begin ], [ %at.next, %on ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %good
one:
  {word("kind", "ptr", "kinds", "%k")}
  %item = call ptr @value(ptr %walk, ptr %kind, ptr %at)
  %missing = icmp eq ptr %item, null
  br i1 %missing, label %bad, label %on
on:
  %place = getelementptr ptr, ptr %items, i64 %k
  store ptr %item, ptr %place
  {word("width", "i64", "kind", 1)}
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
  {word("numpy", "ptr", "kind", 2)}
  %number = call ptr @adze_scalar(ptr %words, ptr %numpy, ptr null)
  ret ptr %number
array:
  {word("type", "ptr", "kind", 2)}
  {word("rank", "i64", "kind", 3)}
  {word("shape", "i64", "kind", 4)}
  {word("class", "ptr", "kind", 5)}
  {word("element", "i64", "kind", 6)}
  {word("shapes", "ptr", "walk", 6)}
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
  {word("extent", "i64", "extents", "%a")}
  %more.bytes = mul i64 %bytes, %extent
  %a.next = add i64 %a, 1
  br label %axis
copy:
  {field("data", "ptr", "made", HEADER)}
  %source = load ptr, ptr %words
  call void @llvm.memcpy.p0.p0.i64(ptr %data, ptr %source, i64 %bytes, i1 false)
  ret ptr %made
tuple:
  {word("shaped", "ptr", "kind", 2)}
  %items = call ptr @items(ptr %walk, ptr %shaped, ptr %words)
  ret ptr %items
sum:
  {word("count", "i64", "kind", 2)}
  %several = icmp sgt i64 %count, 1
  br i1 %several, label %numbered, label %only
numbered:
  %tag = load i64, ptr %words
  br label %only
only:
  %which = phi i64 [ 0, %sum ], [ %tag, %numbered ]
  %variants = getelementptr i64, ptr %kind, i64 4
  {word("variant", "ptr", "variants", "%which")}
  {word("start", "i64", "variant", 2)}
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
  %place = getelementptr i8, ptr %object, i64 {VALUES}
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
  {word("error", "ptr", "kind", 2)}
  {word("message", "ptr", "kind", 3)}
  call void @PyErr_SetObject(ptr %error, ptr %message)
  br label %none
none:
  ret ptr null
}}
"""
