"""The part of ``copying.py`` that writes cells from objects, as LLVM IR."""

from __future__ import annotations

from .objects import CELL, CLASS, CODES, CONTIGUOUS, DIFFERS, FITS, HEADER, ITEMS, STORED, VALUES, field, word

_BEFORE = 24  # bytes before a cell that is written
_WHOLE = 1 << 53  # integers up to this are numbers of f64

WRITE = f"""
define i64 @write(ptr %walk, ptr %kind, ptr %object, ptr %words) {{
entry:
  %first = getelementptr i64, ptr %walk, i64 4
  store ptr null, ptr %first
  %last = getelementptr i64, ptr %walk, i64 5
  store ptr %first, ptr %last
  %flag = getelementptr i64, ptr %walk, i64 7
  store i64 0, ptr %flag
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
  {word("holder", "ptr", "head", 1)}
  {word("variant", "ptr", "head", 2)}
  {field("values", "ptr", "holder", VALUES)}
  %content = getelementptr i64, ptr %head, i64 4
  %inner = call i64 @fields(ptr %walk, ptr %variant, ptr %values, ptr %content)
  br label %next
clear:
  %begin = load ptr, ptr %first
  %change = load i64, ptr %flag
  %changes = icmp ne i64 %change, 0
  br label %each
each:
  %cell = phi ptr [ %begin, %clear ], [ %following, %unmark ], [ %following, %forget ]
  %none = icmp eq ptr %cell, null
  br i1 %none, label %done, label %unmark
unmark:
  {word("marked", "ptr", "cell", 1)}
  %mark = getelementptr i8, ptr %marked, i64 {CELL}
  store ptr null, ptr %mark
  %following = load ptr, ptr %cell
  br i1 %changes, label %forget, label %each
forget:
  store ptr null, ptr %marked.place
  br label %each
done:
  ret i64 %result
}}

define internal i64 @fields(ptr %walk, ptr %variant, ptr %tuple, ptr %words) {{
entry:
  {word("count", "i64", "variant", 1)}
  %missing = icmp eq ptr %tuple, null
  br i1 %missing, label %wrong, label %look
look:
  {field("size", "i64", "tuple", HEADER)}
  %as.many = icmp eq i64 %size, %count
  br i1 %as.many, label %next, label %wrong
next:
  %k = phi i64 [ 0, %look ], [ %k.next, %on ]
  %at = phi ptr [ %words, %look ], [ %at.next, %on ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %good
one:
  %items = getelementptr i8, ptr %tuple, i64 {ITEMS}
  {word("item", "ptr", "items", "%k")}
  %kinds = getelementptr i64, ptr %variant, i64 5
  {word("kind", "ptr", "kinds", "%k")}
  %result = call i64 @parts(ptr %walk, ptr %kind, ptr %item, ptr %at)
  %fits = icmp eq i64 %result, {FITS}
  br i1 %fits, label %on, label %bad
on:
  {word("width", "i64", "kind", 1)}
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
  {field("class", "ptr", "object", CLASS)}
  %code = load i64, ptr %kind
  switch i64 %code, label %sum [
    i64 {CODES["scalar"]}, label %scalar
    i64 {CODES["array"]}, label %array
    i64 {CODES["tuple"]}, label %tuple
    i64 {CODES["boxed"]}, label %boxed
    i64 {CODES["function"]}, label %wrong
  ]
scalar:
  {word("numpy", "ptr", "kind", 3)}
  %is.numpy = icmp eq ptr %class, %numpy
  br i1 %is.numpy, label %copy, label %other.class
copy:
  store i64 0, ptr %words
  %content = getelementptr i8, ptr %object, i64 {HEADER}
  {word("bytes", "i64", "kind", 5)}
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %content, i64 %bytes, i1 false)
  ret i64 {FITS}
other.class:
  {word("float.class", "ptr", "kind", 4)}
  {word("int.class", "ptr", "kind", 6)}
  {word("bool.class", "ptr", "kind", 7)}
  {word("stored", "i64", "kind", 8)}
  %is.float = icmp eq ptr %class, %float.class
  br i1 %is.float, label %float, label %no.float
no.float:
  %is.int = icmp eq ptr %class, %int.class
  br i1 %is.int, label %integer, label %no.integer
no.integer:
  %is.bool = icmp eq ptr %class, %bool.class
  br i1 %is.bool, label %truth, label %wrong
float:
  {field("double", "double", "object", HEADER)}
  %is.f64 = icmp eq i64 %stored, {STORED["f64"]}
  br i1 %is.f64, label %whole, label %narrow
whole:
  store double %double, ptr %words
  ret i64 {FITS}
integer:
  %long = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %over)
  %overflow = load i32, ptr %over
  %in.range = icmp eq i32 %overflow, 0
  %to.float = icmp sle i64 %stored, {STORED["f32"]}
  br i1 %in.range, label %in.word, label %wrong
in.word:
  br i1 %to.float, label %small, label %integral
integral:
  {word("bytes.stored", "i64", "kind", 5)}
  %bits.stored = shl i64 %bytes.stored, 3
  %shift = sub i64 64, %bits.stored
  %shifted = shl i64 %long, %shift
  %extended = ashr i64 %shifted, %shift
  %filled = lshr i64 %shifted, %shift
  %is.signed = icmp eq i64 %stored, {STORED["signed"]}
  %back = select i1 %is.signed, i64 %extended, i64 %filled
  %held = icmp eq i64 %back, %long
  %positive = icmp sge i64 %long, 0
  %sign = or i1 %is.signed, %positive
  %fits = and i1 %held, %sign
  store i64 %long, ptr %words
  %is.long = icmp eq i64 %shift, 0
  %as.it.is = and i1 %is.signed, %is.long
  %unlike = xor i1 %as.it.is, true
  br i1 %fits, label %may.change, label %wrong
may.change:
  br i1 %unlike, label %changed, label %good
small:
  %moved = add i64 %long, {_WHOLE}
  %exact = icmp ule i64 %moved, {2 * _WHOLE}
  %converted = sitofp i64 %long to double
  %wide = icmp eq i64 %stored, {STORED["f64"]}
  br i1 %exact, label %as.float, label %wrong
as.float:
  store double %converted, ptr %words
  br i1 %wide, label %changed, label %narrow
narrow:
  %given.number = phi double [ %double, %float ], [ %converted, %as.float ]
  %single = fptrunc double %given.number to float
  %widened = fpext float %single to double
  %same.number = fcmp oeq double %widened, %given.number
  %pattern = bitcast float %single to i32
  %single.word = zext i32 %pattern to i64
  store i64 %single.word, ptr %words
  br i1 %same.number, label %changed, label %wrong
changed:
  %flag = getelementptr i64, ptr %walk, i64 7
  store i64 1, ptr %flag
  ret i64 {FITS}
truth:
  %is.true = call i32 @PyObject_IsTrue(ptr %object)
  %bit = zext i32 %is.true to i64
  store i64 %bit, ptr %words
  ret i64 {FITS}
array:
  {word("arrays", "ptr", "kind", 5)}
  {word("wanted.rank", "i64", "kind", 3)}
  %is.array = icmp eq ptr %class, %arrays
  br i1 %is.array, label %header, label %wrong
header:
  {field("rank.word", "i32", "object", HEADER + 8)}
  {field("extents", "ptr", "object", HEADER + 16)}
  {field("given", "ptr", "object", HEADER + 40)}
  {field("flags", "i32", "object", HEADER + 48)}
  {word("wanted", "ptr", "kind", 2)}
  {word("shape", "i64", "kind", 4)}
  {word("shapes", "ptr", "walk", 6)}
  %wanted.extents = getelementptr i64, ptr %shapes, i64 %shape
  %rank = sext i32 %rank.word to i64
  %as.deep = icmp eq i64 %rank, %wanted.rank
  %bits = and i32 %flags, {CONTIGUOUS}
  %contiguous = icmp eq i32 %bits, {CONTIGUOUS}
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
  {word("has", "i64", "extents", "%a")}
  {word("should", "i64", "wanted.extents", "%a.next")}
  %agrees = icmp eq i64 %has, %should
  br i1 %agrees, label %axis, label %wrong
address:
  {field("data", "ptr", "object", HEADER)}
  store ptr %data, ptr %words
  ret i64 {FITS}
tuple:
  {word("shaped", "ptr", "kind", 2)}
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
  {word("width", "i64", "kind", 1)}
  %size = shl i64 %width, 3
  call void @llvm.memset.p0.i64(ptr %words, i8 0, i64 %size, i1 false)
  call void @nothing(ptr %walk, ptr %kind, ptr %words)
  %variants = getelementptr i64, ptr %kind, i64 4
  {word("variant", "ptr", "variants", "%number")}
  {word("start", "i64", "variant", 2)}
  {word("count", "i64", "kind", 2)}
  %several = icmp sgt i64 %count, 1
  br i1 %several, label %tag, label %own
tag:
  store i64 %number, ptr %words
  br label %own
own:
  {field("values", "ptr", "object", VALUES)}
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
  {word("count", "i64", "kind", 2)}
  %variants = getelementptr i64, ptr %kind, i64 4
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %none
look:
  {word("variant", "ptr", "variants", "%k")}
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
  {word("absent", "ptr", "kind", 3)}
  {word("shapes", "ptr", "walk", 6)}
  %count = load i64, ptr %absent
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %pair = getelementptr [2 x i64], ptr %absent, i64 %k
  {word("place", "i64", "pair", 1)}
  {word("shape", "i64", "pair", 2)}
  {word("zeros", "i64", "shapes", "%shape")}
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
  {word("variant", "ptr", "variants", "%number")}
  {field("mark", "ptr", "object", CELL)}
  %new = icmp eq ptr %mark, null
  br i1 %new, label %take, label %met
met:
  {word("before", "ptr", "mark", -1)}
  {word("count", "i64", "variant", 1)}
  %same = icmp eq ptr %before, %variant
  %empty = icmp eq i64 %count, 0
  %serves = or i1 %same, %empty
  br i1 %serves, label %done, label %wrong
take:
  {word("width", "i64", "variant", 4)}
  %content = shl i64 %width, 3
  %size = add i64 %content, {_BEFORE + 8}
  %free = load ptr, ptr %walk
  {word("end", "ptr", "walk", 1)}
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
  {word("last", "ptr", "walk", 5)}
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
"""
