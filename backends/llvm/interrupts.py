"""Signals during a call: what a long run is interrupted by, as LLVM IR beside ``launch`` (``frames.py``).

Python runs its handlers of signals in the main thread, when that holds the interpreter's lock. A compiled call has
given the lock away, so it must ask itself: safepoints, as in runtimes with a garbage collector. Loops look at one word.
A thread of its own, the *ticker*, sets it every ``_TICK`` microseconds while the main thread is in a call; who finds it
set calls ``look``, which clears it, takes the lock and has Python run its handlers (``PyErr_CheckSignals``). When one
raises, ``look`` says so in the failure record and leaves its exception with Python, the loop leaves its function, and
so does every caller; ``launch`` comes back with the exception.

There are three words. ``@tick`` is for the main thread; ``@stop`` is for workers, who look at no signals but stop with
the main thread; ``@never``, which is never set, is for both in calls from other threads, and in those that a handler
itself makes. ``launch`` writes the addresses of two of them into the failure record. A task that was stolen has a word
of its own, which cancels it (``work_stealing.py``); a task that it is part of may be cancelled, too, so who looks goes
from one to the other, up to the call's. Loops in tasks look at a word that says whether any was cancelled, those of the
main thread at ``@tick`` as before; it leaves each task that it runs on top of another where a handler has raised.

The ticker costs a call two writes to memory. After some time without calls it sleeps, until a call wakes it. It is
started by the first call of the process, and again in a forked child.
"""

from __future__ import annotations

import ctypes

from .unit import INTERRUPTED, STOP, TICK

_TICK = 50_000  # microseconds
_IDLE = 20  # ticks without a call before the ticker sleeps
_NONE = 2  # there is no ticker
_MAKER = 7  # words from that which cancels a task to the address of that of the task that made it

IR = f"""
@tick = internal global i64 0, align 128
@stop = internal global i64 0, align 128
@never = internal global i64 0, align 128
@active = internal global i64 0, align 128
@asleep = internal global i64 {_NONE}, align 128
@waking = internal global [16 x i64] zeroinitializer, align 128
@main = internal global i64 0
@looking = internal global i64 0
@state = internal global ptr null

declare ptr @adze_save()
declare void @adze_restore(ptr)
declare i32 @adze_signals()
declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
declare i32 @usleep(i32)

define void @begin(i64 %main) {{
  store i64 %main, ptr @main
  store i64 0, ptr @tick
  store i64 0, ptr @stop
  store i64 0, ptr @active
  store i64 0, ptr @looking
  store i64 {_NONE}, ptr @asleep
  %done = call i32 @sem_init(ptr @waking, i32 0, i32 0)
  ret void
}}

define internal ptr @ticker(ptr %nothing) {{
entry:
  br label %awake
awake:
  %idle = phi i64 [ 0, %entry ], [ 0, %set ], [ %more, %none ], [ 0, %sleep ], [ 0, %back ]
  %slept = call i32 @usleep(i32 {_TICK})
  %active = load atomic i64, ptr @active seq_cst, align 8
  %some = icmp ne i64 %active, 0
  br i1 %some, label %set, label %none
set:
  store atomic i64 1, ptr @tick monotonic, align 8
  br label %awake
none:
  %more = add i64 %idle, 1
  %tired = icmp sgt i64 %more, {_IDLE}
  br i1 %tired, label %lie, label %awake
lie:
  store atomic i64 1, ptr @asleep seq_cst, align 8
  %now = load atomic i64, ptr @active seq_cst, align 8
  %late = icmp ne i64 %now, 0
  br i1 %late, label %back, label %sleep
back:
  %old = atomicrmw xchg ptr @asleep, i64 0 seq_cst
  %own = icmp eq i64 %old, 1
  br i1 %own, label %awake, label %sleep
sleep:
  %woken = call i32 @sem_wait(ptr @waking)
  br label %awake
}}

define internal void @wake() cold noinline {{
entry:
  %handle = alloca i64
  %all = alloca [16 x i64], align 16
  %before = alloca [16 x i64], align 16
  %old = atomicrmw xchg ptr @asleep, i64 0 seq_cst
  switch i64 %old, label %done [ i64 1, label %post i64 {_NONE}, label %start ]
post:
  %posted = call i32 @sem_post(ptr @waking)
  ret void
start:
  %filled = call i32 @sigfillset(ptr %all)
  %blocked = call i32 @pthread_sigmask(i32 0, ptr %all, ptr %before)
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @ticker, ptr null)
  %restored = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  %started = icmp eq i32 %failed, 0
  br i1 %started, label %detach, label %done
detach:
  %thread = load i64, ptr %handle
  %detached = call i32 @pthread_detach(i64 %thread)
  ret void
done:
  ret void
}}

define i64 @look(ptr %failure) {{
entry:
  %tick.place = getelementptr ptr, ptr %failure, i64 {TICK}
  %tick.word = load ptr, ptr %tick.place
  %main = icmp eq ptr %tick.word, @tick
  %ending = load atomic i64, ptr @stop monotonic, align 8
  %ends = icmp ne i64 %ending, 0
  %raised.already = and i1 %main, %ends
  br i1 %raised.already, label %leave, label %own
own:
  %stop.place = getelementptr ptr, ptr %failure, i64 {STOP}
  %first = load ptr, ptr %stop.place
  br label %next
next:
  %word = phi ptr [ %first, %own ], [ %maker, %up ]
  %stopped = load atomic i64, ptr %word acquire, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %leave, label %root
root:
  %is.stop = icmp eq ptr %word, @stop
  %is.never = icmp eq ptr %word, @never
  %last = or i1 %is.stop, %is.never
  br i1 %last, label %who, label %up
up:
  %maker.place = getelementptr ptr, ptr %word, i64 {_MAKER}
  %maker = load ptr, ptr %maker.place
  br label %next
who:
  br i1 %main, label %ask, label %go.on
ask:
  store atomic i64 0, ptr @tick monotonic, align 8
  %state = load ptr, ptr @state
  call void @adze_restore(ptr %state)
  store i64 1, ptr @looking
  %raised = call i32 @adze_signals()
  store i64 0, ptr @looking
  %saved = call ptr @adze_save()
  store ptr %saved, ptr @state
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %go.on, label %end
end:
  store atomic i64 1, ptr @stop monotonic, align 8
  store atomic i64 1, ptr @tick monotonic, align 8
  br label %leave
leave:
  store atomic i64 {INTERRUPTED}, ptr %failure monotonic, align 8
  ret i64 1
go.on:
  ret i64 0
}}
"""

IMPORTS = {
    name: int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    for name, function in (
        ("adze_save", ctypes.pythonapi.PyEval_SaveThread),
        ("adze_restore", ctypes.pythonapi.PyEval_RestoreThread),
        ("adze_signals", ctypes.pythonapi.PyErr_CheckSignals),
    )
}
