"""Packing: slots of the arena on top of each other, as LLVM IR beside ``launch`` (``frames.py``).

Which buffers live at the same time is known before any sizes are, how large they are only when a call comes. So the
arena is laid out then: the largest slot first, each at the lowest place where nothing is that lives when it does
(greedy by size; Pisarchyk and Lee 2020). ::

    statement    0  1  2  3  4
    a, 4 MB      |--|                b is behind a, since both live in statement 1; c and d are put where a was, as it
    b, 3 MB         |--------|       has no reader left when they begin: 7 MB where one after the other takes 11
    c, 2 MB               |--|
    d, 2 MB               |--|

``pack`` takes the first and the last statement of each slot, the sizes, and where the first place is. It writes the
offsets, and gives the end of them all; more memory than there is, where it has none to work with. Slots of no bytes,
which a call does not need, take no time either.
"""

from __future__ import annotations

from .objects import word

MOST = 1 << 62  # bytes, which no machine has

IR = f"""
declare ptr @malloc(i64)
declare void @free(ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define i64 @pack(ptr %lives, i64 %count, ptr %sizes, i64 %base, ptr %offsets) {{
start:
  %bytes = shl i64 %count, 4
  %order = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %order, null
  br i1 %none, label %full, label %begin
full:
  ret i64 {MOST}
begin:
  %placed = getelementptr i64, ptr %order, i64 %count
  br label %sort

; order: the slots of some bytes, larger ones before smaller ones
sort:
  %k = phi i64 [ 0, %begin ], [ %k.next, %sorted ], [ %k.behind, %pass ]
  %some = phi i64 [ 0, %begin ], [ %more, %sorted ], [ %some, %pass ]
  %unsorted = icmp ult i64 %k, %count
  br i1 %unsorted, label %take, label %slot
take:
  {word("size.k", "i64", "sizes", "%k")}
  %empty = icmp eq i64 %size.k, 0
  br i1 %empty, label %pass, label %shift
pass:
  %nowhere = getelementptr i64, ptr %offsets, i64 %k
  store i64 %base, ptr %nowhere
  %k.behind = add i64 %k, 1
  br label %sort
shift:
  %j = phi i64 [ %some, %take ], [ %j.before, %move ]
  %leads = icmp eq i64 %j, 0
  br i1 %leads, label %sorted, label %compare
compare:
  %j.before = sub i64 %j, 1
  {word("other", "i64", "order", "%j.before")}
  {word("size.other", "i64", "sizes", "%other")}
  %smaller = icmp ult i64 %size.other, %size.k
  br i1 %smaller, label %move, label %sorted
move:
  %behind.place = getelementptr i64, ptr %order, i64 %j
  store i64 %other, ptr %behind.place
  br label %shift
sorted:
  %own.place = getelementptr i64, ptr %order, i64 %j
  store i64 %k, ptr %own.place
  %more = add i64 %some, 1
  %k.next = add i64 %k, 1
  br label %sort

; placed: the slots that have a place, lower ones before higher ones
slot:
  %n = phi i64 [ 0, %sort ], [ %n.next, %insert ]
  %end = phi i64 [ %base, %sort ], [ %end.next, %insert ]
  %left = icmp ult i64 %n, %some
  br i1 %left, label %next, label %done
next:
  %slot.place = getelementptr i64, ptr %order, i64 %n
  %number = load i64, ptr %slot.place
  {word("size", "i64", "sizes", "%number")}
  %first.place = getelementptr [2 x i64], ptr %lives, i64 %number
  %first = load i64, ptr %first.place
  {word("last", "i64", "first.place", 1)}
  br label %look
look:
  %m = phi i64 [ 0, %next ], [ %m.next, %past ]
  %at = phi i64 [ %base, %next ], [ %at.next, %past ]
  %others = icmp ult i64 %m, %n
  br i1 %others, label %against, label %found
against:
  {word("there", "i64", "placed", "%m")}
  %there.first.place = getelementptr [2 x i64], ptr %lives, i64 %there
  %there.first = load i64, ptr %there.first.place
  {word("there.last", "i64", "there.first.place", 1)}
  %begins = icmp ule i64 %there.first, %last
  %goes.on = icmp ule i64 %first, %there.last
  %meet = and i1 %begins, %goes.on
  br i1 %meet, label %meets, label %past
meets:
  {word("there.at", "i64", "offsets", "%there")}
  %wanted = add i64 %at, %size
  %fits = icmp ule i64 %wanted, %there.at
  br i1 %fits, label %found, label %goes.behind
goes.behind:
  {word("there.size", "i64", "sizes", "%there")}
  %there.sum = add i64 %there.at, %there.size
  %there.end = call i64 @llvm.umin.i64(i64 %there.sum, i64 {MOST})
  %at.behind = call i64 @llvm.umax.i64(i64 %at, i64 %there.end)
  br label %past
past:
  %at.next = phi i64 [ %at, %against ], [ %at.behind, %goes.behind ]
  %m.next = add i64 %m, 1
  br label %look
found:
  %offset.place = getelementptr i64, ptr %offsets, i64 %number
  store i64 %at, ptr %offset.place
  %sum = add i64 %at, %size
  %own.end = call i64 @llvm.umin.i64(i64 %sum, i64 {MOST})
  %end.next = call i64 @llvm.umax.i64(i64 %end, i64 %own.end)
  br label %make.room
make.room:
  %i = phi i64 [ %n, %found ], [ %i.before, %make.more ]
  %lowest = icmp eq i64 %i, 0
  br i1 %lowest, label %insert, label %is.higher
is.higher:
  %i.before = sub i64 %i, 1
  {word("before", "i64", "placed", "%i.before")}
  {word("before.at", "i64", "offsets", "%before")}
  %higher = icmp ugt i64 %before.at, %at
  br i1 %higher, label %make.more, label %insert
make.more:
  %i.place = getelementptr i64, ptr %placed, i64 %i
  store i64 %before, ptr %i.place
  br label %make.room
insert:
  %insert.place = getelementptr i64, ptr %placed, i64 %i
  store i64 %number, ptr %insert.place
  %n.next = add i64 %n, 1
  br label %slot
done:
  call void @free(ptr %order)
  ret i64 %end
}}
"""
