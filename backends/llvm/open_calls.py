"""Calls that fork and are open to workers, as LLVM IR in the module of the pool.

A call that forks is *open* while it runs: it is in a table, with a *gate* like that of parallel loops (``pool.py``).
The gate counts the seats that are free as tickets, and the workers inside. A worker that finds a ticket goes in, takes
a seat, and steals tasks (``work_stealing.py``) until it has found none for a while; then it gives seat and ticket back.
One whose task was so short that stealing it took longer waits before it looks again, twice as long each time.
Who closes a call shuts the gate and waits until nobody is inside: there are no tasks any more, so that is soon.

Idle workers look for open calls as they look for loops, and sleep when they have found nothing for a while. Before one
does, it says so, leaves a wish on each seat, and looks once more for tasks that are public; a thread that makes tasks
public looks for sleepers behind that, and wakes one. So no task is left alone. Programs without forks open no call, and
workers look at one word.

In a call with one thread nobody has a seat, nor in one that finds ``CALLS`` others open: branches are called one after
the other. A worker has a stack of its own from the first task on (``stacks.py``), and a failure record on it.

    call     0 gate: tickets, closed, workers inside  1 whether it is open  2 its seats  3 how many of them are used
             4 whether a task of it was cancelled
"""

from __future__ import annotations

from .control import restored, saved
from .unit import CELLS, RECORD, REGION, SEAT, SEAT_WORDS, SEATS, STOP, TICK, WISH
from .work_stealing import ROUND

CALLS = 16  # open at once
_INSIDE = 1 << 32  # one worker, in the gate of a call
_CLOSED = 1 << 31  # in a gate: who leaves gives no ticket back
_SHORT = 2000  # nanoseconds: a task that takes no more was not worth a thief
_DELAY = 2047  # pauses, at most, of who has stolen several such

EXPORTS = ("equip", "adze_open", "adze_close")

FUNCTIONS = f"""
@open = internal global i64 0, align 128
@calls = internal global [{CALLS} x [16 x i64]] zeroinitializer, align 128
@on = internal global ptr null
@stack = internal global ptr null
@trim = internal global ptr null
@have = internal global ptr null

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @clock_gettime(i32, ptr)

define void @equip(ptr %on, ptr %stack, ptr %trim, ptr %have, i64 %bytes) {{
  store ptr %on, ptr @on
  store ptr %stack, ptr @stack
  store ptr %trim, ptr @trim
  store ptr %have, ptr @have
  %half = lshr i64 %bytes, 1
  store i64 %half, ptr @enough
  ret void
}}

define internal void @close_all() {{
  store i64 0, ptr @open
  call void @llvm.memset.p0.i64(ptr @calls, i8 0, i64 {128 * CALLS}, i1 false)
  ret void
}}

define void @adze_open(ptr %failure, i64 %threads) {{
entry:
  %own.place = getelementptr ptr, ptr %failure, i64 {SEAT}
  store ptr null, ptr %own.place
  %seats.place = getelementptr ptr, ptr %failure, i64 {SEATS}
  %seats = load ptr, ptr %seats.place
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %find, label %done
find:
  %call = phi i64 [ 0, %entry ], [ %call.next, %taken ]
  %gate = getelementptr [16 x i64], ptr @calls, i64 %call
  %owner = getelementptr i64, ptr %gate, i64 1
  %swap = cmpxchg ptr %owner, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %free, label %found, label %taken
taken:
  %call.next = add i64 %call, 1
  %others = icmp slt i64 %call.next, {CALLS}
  br i1 %others, label %find, label %done
found:
  %open.place = getelementptr i64, ptr %gate, i64 2
  store ptr %seats, ptr %open.place
  %cancelled.place = getelementptr i64, ptr %gate, i64 4
  store i64 0, ptr %cancelled.place
  %number.place = getelementptr i64, ptr %seats, i64 6
  store i64 %call, ptr %number.place
  %register = getelementptr i64, ptr %seats, i64 7
  {saved("%register")}
  br label %each
each:
  %k = phi i64 [ 0, %found ], [ %k.next, %each ]
  %place = mul i64 %k, {SEAT_WORDS}
  %seat = getelementptr i64, ptr %seats, i64 %place
  store i64 0, ptr %seat
  %record.place = getelementptr i64, ptr %seat, i64 2
  store ptr %failure, ptr %record.place
  %taken.place = getelementptr i64, ptr %seat, i64 4
  store i64 0, ptr %taken.place
  %wish.place = getelementptr i64, ptr %seat, i64 {WISH}
  store i64 1, ptr %wish.place
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  store i64 0, ptr %bottom.place
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %threads
  br i1 %more, label %each, label %go
go:
  %width.place = getelementptr i64, ptr %gate, i64 3
  store i64 %threads, ptr %width.place
  store ptr %seats, ptr %own.place
  call void @note()
  %tickets = sub i64 %threads, 1
  store atomic i64 %tickets, ptr %gate seq_cst, align 8
  %before = atomicrmw add ptr @open, i64 1 seq_cst
  br label %done
done:
  ret void
}}

define void @adze_close(ptr %failure) {{
entry:
  %own.place = getelementptr ptr, ptr %failure, i64 {SEAT}
  %seats = load ptr, ptr %own.place
  %alone = icmp eq ptr %seats, null
  br i1 %alone, label %done, label %close
close:
  %before = atomicrmw sub ptr @open, i64 1 seq_cst
  %number.place = getelementptr i64, ptr %seats, i64 6
  %call = load i64, ptr %number.place
  %gate = getelementptr [16 x i64], ptr @calls, i64 %call
  br label %shut
shut:
  %was = load atomic i64, ptr %gate monotonic, align 8
  %inside = and i64 %was, {-_INSIDE}
  %closed = or i64 %inside, {_CLOSED}
  %swap = cmpxchg ptr %gate, i64 %was, i64 %closed acq_rel monotonic
  %shut.now = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %shut.now, label %look, label %shut
look:
  %looks = phi i64 [ 0, %shut ], [ %more, %wait ]
  %now = load atomic i64, ptr %gate acquire, align 8
  %empty = icmp eq i64 %now, {_CLOSED}
  br i1 %empty, label %free, label %wait
wait:
  call void @rest(i64 %looks)
  %more = add i64 %looks, 1
  br label %look
free:
  store atomic i64 0, ptr %gate monotonic, align 8
  %owner = getelementptr i64, ptr %gate, i64 1
  store atomic i64 0, ptr %owner release, align 8
  br label %done
done:
  ret void
}}

define internal ptr @cancelled(ptr %failure) {{
  %seats.place = getelementptr ptr, ptr %failure, i64 {SEATS}
  %seats = load ptr, ptr %seats.place
  %number.place = getelementptr i64, ptr %seats, i64 6
  %call = load i64, ptr %number.place
  %cancelled.place = getelementptr [16 x i64], ptr @calls, i64 %call, i64 4
  ret ptr %cancelled.place
}}

define internal i1 @have_own_stack(ptr %place) {{
  %old = load ptr, ptr %place
  %none = icmp eq ptr %old, null
  br i1 %none, label %make, label %done
make:
  %stack = load ptr, ptr @stack
  %new = call ptr %stack()
  store ptr %new, ptr %place
  br label %done
done:
  %own = phi ptr [ %old, %0 ], [ %new, %make ]
  %able = icmp ne ptr %own, null
  ret i1 %able
}}

define internal i1 @enter(ptr %gate) {{
entry:
  br label %look
look:
  %now = load atomic i64, ptr %gate acquire, align 8
  %tickets = and i64 %now, {_CLOSED - 1}
  %some = icmp ne i64 %tickets, 0
  br i1 %some, label %take, label %none
take:
  %inside = add i64 %now, {_INSIDE - 1}
  %swap = cmpxchg ptr %gate, i64 %now, i64 %inside acq_rel monotonic
  %entered = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %entered, label %done, label %look
done:
  ret i1 true
none:
  ret i1 false
}}

define internal void @leave(ptr %gate) {{
entry:
  br label %look
look:
  %now = load atomic i64, ptr %gate monotonic, align 8
  %outside = sub i64 %now, {_INSIDE}
  %closed = and i64 %now, {_CLOSED}
  %open = icmp eq i64 %closed, 0
  %ticket = zext i1 %open to i64
  %new = add i64 %outside, %ticket
  %swap = cmpxchg ptr %gate, i64 %now, i64 %new acq_rel monotonic
  %left = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %left, label %done, label %look
done:
  ret void
}}

define internal i1 @visible() {{
entry:
  br label %next
next:
  %call = phi i64 [ 0, %entry ], [ %call.next, %on ]
  %gate = getelementptr [16 x i64], ptr @calls, i64 %call
  %entered = call i1 @enter(ptr %gate)
  br i1 %entered, label %inside, label %on
inside:
  %seats.place = getelementptr i64, ptr %gate, i64 2
  %seats = load ptr, ptr %seats.place
  %width.place = getelementptr i64, ptr %gate, i64 3
  %width = load i64, ptr %width.place
  br label %each
each:
  %k = phi i64 [ 0, %inside ], [ %k.next, %empty ]
  %place = mul i64 %k, {SEAT_WORDS}
  %deque.place = getelementptr i64, ptr %seats, i64 %place
  call void @ask(ptr %deque.place)
  %deque = load atomic i64, ptr %deque.place seq_cst, align 8
  %top = trunc i64 %deque to i32
  %high = lshr i64 %deque, 32
  %split = trunc i64 %high to i32
  %none = icmp eq i32 %top, %split
  br i1 %none, label %empty, label %some
empty:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %width
  br i1 %more, label %each, label %out
out:
  call void @leave(ptr %gate)
  br label %on
some:
  call void @leave(ptr %gate)
  ret i1 true
on:
  %call.next = add i64 %call, 1
  %others = icmp slt i64 %call.next, {CALLS}
  br i1 %others, label %next, label %nothing
nothing:
  ret i1 false
}}

define internal i1 @help(ptr %stack.place) {{
entry:
  br label %next
next:
  %call = phi i64 [ 0, %entry ], [ %call.next, %on ]
  %gate = getelementptr [16 x i64], ptr @calls, i64 %call
  %entered = call i1 @enter(ptr %gate)
  br i1 %entered, label %inside, label %on
inside:
  %seats.place = getelementptr i64, ptr %gate, i64 2
  %seats = load ptr, ptr %seats.place
  br label %find
find:
  %k = phi i64 [ 1, %inside ], [ %k.next, %taken ]
  %place = mul i64 %k, {SEAT_WORDS}
  %seat = getelementptr i64, ptr %seats, i64 %place
  %taken.place = getelementptr i64, ptr %seat, i64 4
  %swap = cmpxchg ptr %taken.place, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %free, label %sit, label %taken
taken:
  %k.next = add i64 %k, 1
  br label %find
sit:
  %served = call i1 @sit(ptr %gate, ptr %seat, ptr %stack.place)
  store atomic i64 0, ptr %taken.place release, align 8
  call void @leave(ptr %gate)
  br i1 %served, label %done, label %on
on:
  %call.next = add i64 %call, 1
  %others = icmp slt i64 %call.next, {CALLS}
  br i1 %others, label %next, label %nothing
done:
  ret i1 true
nothing:
  ret i1 false
}}

define internal i1 @sit(ptr %gate, ptr %seat, ptr %stack.place) {{
entry:
  %job = alloca [4 x ptr], align 16
  %task = call ptr @look_for_task(ptr %gate, ptr %seat)
  %none = icmp eq ptr %task, null
  br i1 %none, label %nothing, label %some
some:
  call void @move()
  %stack = load ptr, ptr %stack.place
  store ptr %gate, ptr %job
  %seat.place = getelementptr ptr, ptr %job, i64 1
  store ptr %seat, ptr %seat.place
  %own.place = getelementptr ptr, ptr %job, i64 2
  store ptr %stack, ptr %own.place
  %task.place = getelementptr ptr, ptr %job, i64 3
  store ptr %task, ptr %task.place
  %on = load ptr, ptr @on
  call void %on(ptr %stack, ptr @serve, ptr %job)
  %trim = load ptr, ptr @trim
  call void %trim(ptr %stack)
  ret i1 true
nothing:
  ret i1 false
}}

define internal ptr @look_for_task(ptr %gate, ptr %seat) {{
entry:
  %seats.place = getelementptr i64, ptr %gate, i64 2
  %seats = load ptr, ptr %seats.place
  %width.place = getelementptr i64, ptr %gate, i64 3
  %width = load i64, ptr %width.place
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %more, %again ]
  %first = icmp eq i64 %looks, 0
  %task = call ptr @steal(ptr %seats, i64 %width, ptr %seat, i1 %first)
  %some = icmp ne ptr %task, null
  br i1 %some, label %done, label %wait
wait:
  call void @pause()
  %more = add i64 %looks, 1
  %gate.now = load atomic i64, ptr %gate monotonic, align 8
  %closed = and i64 %gate.now, {_CLOSED}
  %is.closed = icmp ne i64 %closed, 0
  %tired = icmp sgt i64 %more, {ROUND}
  %enough = or i1 %tired, %is.closed
  br i1 %enough, label %done, label %again
again:
  br label %look
done:
  ret ptr %task
}}

define internal i64 @nanoseconds() {{
  %time = alloca [2 x i64]
  %got = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %place
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}

define internal void @serve(ptr %job) {{
entry:
  %record = alloca [{RECORD} x i64], align 16
  %gate = load ptr, ptr %job
  %seat.place = getelementptr ptr, ptr %job, i64 1
  %seat = load ptr, ptr %seat.place
  %stack.place = getelementptr ptr, ptr %job, i64 2
  %stack = load ptr, ptr %stack.place
  %task.place = getelementptr ptr, ptr %job, i64 3
  %first = load ptr, ptr %task.place
  %seats.place = getelementptr i64, ptr %gate, i64 2
  %seats = load ptr, ptr %seats.place
  %register = getelementptr i64, ptr %seats, i64 7
  {restored("%register")}
  %caller.place = getelementptr ptr, ptr %seats, i64 2
  %caller = load ptr, ptr %caller.place
  call void @llvm.memcpy.p0.p0.i64(ptr %record, ptr %caller, i64 {8 * RECORD}, i1 false)
  %tick.place = getelementptr ptr, ptr %record, i64 {TICK}
  store ptr null, ptr %tick.place
  %stop.place = getelementptr ptr, ptr %record, i64 {STOP}
  store ptr null, ptr %stop.place
  %own.place = getelementptr ptr, ptr %record, i64 {SEAT}
  store ptr %seat, ptr %own.place
  %region.place = getelementptr ptr, ptr %record, i64 {REGION}
  %region = getelementptr i64, ptr %seat, i64 {CELLS}
  store ptr %region, ptr %region.place
  %have = load ptr, ptr @have
  call void %have(ptr %record, ptr %stack)
  br label %run
run:
  %task = phi ptr [ %first, %entry ], [ %other, %look ]
  %delay = phi i64 [ 0, %entry ], [ %longer, %look ]
  %began = call i64 @nanoseconds()
  call void @perform(ptr %task, ptr %record)
  %ended = call i64 @nanoseconds()
  %taken = sub i64 %ended, %began
  %short = icmp slt i64 %taken, {_SHORT}
  %doubled = shl i64 %delay, 1
  %more = add i64 %doubled, 1
  %bounded = call i64 @llvm.smin.i64(i64 %more, i64 {_DELAY})
  %longer = select i1 %short, i64 %bounded, i64 0
  br label %delays
delays:
  %waited = phi i64 [ 0, %run ], [ %waited.next, %wait ]
  %over = icmp sge i64 %waited, %longer
  %gate.now = load atomic i64, ptr %gate monotonic, align 8
  %closed = and i64 %gate.now, {_CLOSED}
  %is.closed = icmp ne i64 %closed, 0
  %enough = or i1 %over, %is.closed
  br i1 %enough, label %look, label %wait
wait:
  call void @pause()
  %waited.next = add i64 %waited, 1
  br label %delays
look:
  %other = call ptr @look_for_task(ptr %gate, ptr %seat)
  %none = icmp eq ptr %other, null
  br i1 %none, label %done, label %run
done:
  ret void
}}
"""
