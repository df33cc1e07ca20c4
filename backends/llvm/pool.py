"""The threads behind parallel loops: persistent workers, as LLVM IR.

A loop that is not worth two threads, as its grain says, is run at once. Alone, a longer one goes in pieces of a grain,
with a look for signals before each. One *region* runs at a time: ``adze_parallel`` opens it, works in it as thread 0,
and closes it. Whoever comes while a region is open runs its loop alone. Everything turns on one word, the *gate*: its
low half counts the tickets that are left, its high half the workers inside. The caller describes the job, then puts
tickets into the gate; a worker that finds some takes one (its number is the thread's) and is inside until it finds no
chunk left. At the end the caller takes the tickets back and waits until nobody is inside. So a worker that wakes late
finds no ticket and has read nothing, and the caller never waits for one that sleeps.

Chunks come from an atomic counter; how long they are depends on the loop's extent and grain only. Workers out of work
look at the gate for a while (as often as the argument of ``worker`` says), then sleep on a condition variable. To wake
one takes the caller several microseconds, and until it runs a small loop is over. So the caller wakes nobody before
it has had some work without those who sleep, in this loop or in those before, and one worker for each ``_WAKING``
chunks of it. Whoever calls often has them awake then, and whoever calls rarely loses a small part of the time. Where
the grain is one iteration, that may be any amount of work, and all are woken.

The kernel may put a worker that wakes on the CPU of the caller, which waits meanwhile (Linux in a virtual machine
does so again and again, as it takes halted CPUs for busy ones). A worker that finds itself there moves to the other
CPUs that the process may use, and is not put there any more.
"""

from __future__ import annotations

import ctypes
import platform

from ..runtime import Pool, Workers, once
from . import control, open_calls, work_stealing
from .assemble import link
from .frames import entries
from .stored import load_runtime
from .unit import STOP

_INSIDE = 1 << 32  # one worker, in the gate
_PATIENCE = 4096  # looks at the gate before the caller lets others run
_CHUNKS = 128  # at most so many pieces of a loop are handed out
_FINER = 4  # chunks that a grain is cut into, where a loop is shared: who comes late leaves more of them to others
_WAKING = 4 * _FINER  # chunks that are worth waking a worker
_AFFINITY = 128  # bytes of a set of CPUs
_CPUS = platform.system() == "Linux"  # whether threads can be kept from a CPU
_PAUSE = "call void @llvm.x86.sse2.pause()" if control.X86 else ""

# What keeps workers from the caller's CPU: ``note`` tells the region which one it is, by ``move`` a worker leaves it.
_MOVE = (
    f"""
declare i32 @sched_getcpu()
declare i32 @getpid()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal void @note() {{
  %cpu = call i32 @sched_getcpu()
  store i32 %cpu, ptr @cpu
  ret void
}}

define internal void @move() {{
entry:
  %here = call i32 @sched_getcpu()
  %cpu = load i32, ptr @cpu
  %same = icmp eq i32 %here, %cpu
  br i1 %same, label %ask, label %done
ask:
  %set = alloca [{_AFFINITY} x i8], align 8
  %process = call i32 @getpid()
  %failed = call i32 @sched_getaffinity(i32 %process, i64 {_AFFINITY}, ptr %set)
  %told = icmp eq i32 %failed, 0
  %inside = icmp ult i32 %here, {8 * _AFFINITY}
  %known = and i1 %told, %inside
  br i1 %known, label %leave, label %done
leave:
  %number = lshr i32 %here, 3
  %place = getelementptr i8, ptr %set, i32 %number
  %rest = and i32 %here, 7
  %position = trunc i32 %rest to i8
  %bit = shl i8 1, %position
  %cleared = xor i8 %bit, -1
  %byte = load i8, ptr %place
  %others = and i8 %byte, %cleared
  store i8 %others, ptr %place
  %moved = call i32 @sched_setaffinity(i32 0, i64 {_AFFINITY}, ptr %set)
  br label %done
done:
  ret void
}}
"""
    if _CPUS
    else """
define internal void @note() {
  ret void
}

define internal void @move() {
  ret void
}
"""
)

_IR = f"""
@gate = internal global i64 0, align 128
@next = internal global i64 0, align 128
@busy = internal global i64 0, align 128
@sleepers = internal global i64 0, align 128
@mutex = internal global [16 x i64] zeroinitializer, align 128
@condition = internal global [16 x i64] zeroinitializer, align 128
@workers = internal global i64 0, align 128
@control = internal global i32 0, align 128
@job = internal global {{ ptr, ptr, i64, i64, ptr, ptr }} zeroinitializer, align 128
@missed = internal global i64 0, align 128
@cpu = internal global i32 0, align 128

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i64 @adze_look(ptr)
{control.DECLARATIONS}

define void @reset() {{
  store i64 0, ptr @gate
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 0, ptr @workers
  store i64 0, ptr @missed
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @condition, ptr null)
  call void @close_all()
  ret void
}}

define internal void @pause() alwaysinline {{
  {_PAUSE}
  ret void
}}

define internal void @work(i64 %thread) {{
entry:
  %function = load ptr, ptr @job
  %frame = load ptr, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 1)
  %extent = load i64, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 2)
  %chunk = load i64, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 3)
  %failure = load ptr, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 4)
  %own = load ptr, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 5)
  %stop.place = getelementptr ptr, ptr %failure, i64 {STOP}
  %stop = load ptr, ptr %stop.place
  %calling = icmp eq i64 %thread, 0
  %word = select i1 %calling, ptr %own, ptr %stop
  br label %border
border:
  %signs = load atomic i64, ptr %word monotonic, align 8
  %due = icmp ne i64 %signs, 0
  br i1 %due, label %ask, label %take
ask:
  %stopped = call i64 @adze_look(ptr %failure)
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %done, label %take
take:
  %begin = atomicrmw add ptr @next, i64 %chunk monotonic
  %some = icmp slt i64 %begin, %extent
  br i1 %some, label %run, label %done
run:
  %after = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %after, i64 %extent)
  call void %function(ptr %frame, i64 %begin, i64 %end, i64 %thread)
  br label %border
done:
  ret void
}}

{_MOVE}
{open_calls.FUNCTIONS}
{work_stealing.FUNCTIONS}
define ptr @worker(ptr %argument) {{
entry:
  %stack = alloca ptr
  store ptr null, ptr %stack
  %patience = ptrtoint ptr %argument to i64
  %number = atomicrmw add ptr @workers, i64 1 seq_cst
  br label %awake
awake:
  br label %look
look:
  %looks = phi i64 [ 0, %awake ], [ %more, %again ]
  %gate = load atomic i64, ptr @gate acquire, align 8
  %tickets = and i64 %gate, {_INSIDE - 1}
  %open = icmp ne i64 %tickets, 0
  br i1 %open, label %enter, label %wait
enter:
  %inside = add i64 %gate, {_INSIDE - 1}
  %swap = cmpxchg ptr @gate, i64 %gate, i64 %inside acq_rel monotonic
  %entered = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %entered, label %run, label %awake
run:
  call void @move()
  {control.restored("@control")}
  call void @work(i64 %tickets)
  %left = atomicrmw sub ptr @gate, i64 {_INSIDE} acq_rel
  br label %awake
wait:
  %opened = load atomic i64, ptr @open monotonic, align 8
  %forks = icmp ne i64 %opened, 0
  br i1 %forks, label %assist, label %pause
assist:
  %able = call i1 @have_own_stack(ptr %stack)
  br i1 %able, label %help, label %pause
help:
  %helped = call i1 @help(ptr %stack)
  br i1 %helped, label %awake, label %pause
pause:
  %passed = phi i64 [ 1, %wait ], [ 1, %assist ], [ {work_stealing.ROUND}, %help ]
  {_PAUSE}
  %more = add i64 %looks, %passed
  %tired = icmp sgt i64 %more, %patience
  br i1 %tired, label %sleep, label %again
again:
  br label %look
sleep:
  %lock = call i32 @pthread_mutex_lock(ptr @mutex)
  %before = atomicrmw add ptr @sleepers, i64 1 seq_cst
  br label %check
check:
  %now = load atomic i64, ptr @gate seq_cst, align 8
  %tickets.now = and i64 %now, {_INSIDE - 1}
  %closed = icmp eq i64 %tickets.now, 0
  br i1 %closed, label %tasks, label %wake
tasks:
  %opened.now = load atomic i64, ptr @open seq_cst, align 8
  %any = icmp ne i64 %opened.now, 0
  br i1 %any, label %see, label %rest
see:
  %visible = call i1 @visible()
  br i1 %visible, label %wake, label %rest
rest:
  %woken = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  %opened.then = load atomic i64, ptr @open seq_cst, align 8
  %for.tasks = icmp ne i64 %opened.then, 0
  br i1 %for.tasks, label %wake, label %check
wake:
  %after = atomicrmw sub ptr @sleepers, i64 1 seq_cst
  %unlock = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %awake
}}

define void @adze_parallel(
  ptr %function, ptr %frame, i64 %extent, i64 %worthwhile, i64 %threads, ptr %word, ptr %failure
) {{
entry:
  %grain = call i64 @llvm.smax.i64(i64 %worthwhile, i64 1)
  %single = icmp sle i64 %extent, %grain
  br i1 %single, label %whole, label %several
whole:
  call void %function(ptr %frame, i64 0, i64 %extent, i64 0)
  ret void
several:
  %serial = icmp sle i64 %threads, 1
  br i1 %serial, label %alone, label %shared
shared:
  %swap = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %free, label %open, label %alone
alone:
  br label %border
border:
  %begin = phi i64 [ 0, %alone ], [ %begin.next, %run ]
  %signs.alone = load atomic i64, ptr %word monotonic, align 8
  %due.alone = icmp ne i64 %signs.alone, 0
  br i1 %due.alone, label %ask.alone, label %run
ask.alone:
  %stopped.alone = call i64 @adze_look(ptr %failure)
  %over = icmp ne i64 %stopped.alone, 0
  br i1 %over, label %left, label %run
run:
  %begin.next = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %begin.next, i64 %extent)
  call void %function(ptr %frame, i64 %begin, i64 %end, i64 0)
  %rest = icmp slt i64 %end, %extent
  br i1 %rest, label %border, label %left
left:
  ret void
open:
  %finer = mul i64 %extent, {_FINER}
  %worth = sdiv i64 %finer, %grain
  %allowed = call i64 @llvm.smin.i64(i64 %worth, i64 {_CHUNKS})
  %pieces = call i64 @llvm.smin.i64(i64 %allowed, i64 %extent)
  %last.piece = sub i64 %pieces, 1
  %rounded = add i64 %extent, %last.piece
  %chunk = sdiv i64 %rounded, %pieces
  {control.saved("@control")}
  store ptr %function, ptr @job
  store ptr %frame, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 1)
  store i64 %extent, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 2)
  store i64 %chunk, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 3)
  store ptr %failure, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 4)
  store ptr %word, ptr getelementptr ({{ ptr, ptr, i64, i64, ptr, ptr }}, ptr @job, i32 0, i32 5)
  store atomic i64 0, ptr @next monotonic, align 8
  call void @note()
  %last = sub i64 %extent, 1
  %others = sdiv i64 %last, %chunk
  %helpers = sub i64 %threads, 1
  %tickets = call i64 @llvm.smin.i64(i64 %others, i64 %helpers)
  store atomic i64 %tickets, ptr @gate seq_cst, align 8
  %sleepers = load atomic i64, ptr @sleepers seq_cst, align 8
  %workers = load atomic i64, ptr @workers seq_cst, align 8
  %awake = sub i64 %workers, %sleepers
  %missing = sub i64 %tickets, %awake
  %asleep = call i64 @llvm.smin.i64(i64 %missing, i64 %sleepers)
  %few = icmp sgt i64 %asleep, 0
  br i1 %few, label %miss, label %work
miss:
  %before = load i64, ptr @missed
  %unknown = icmp eq i64 %grain, 1
  %most = select i1 %unknown, i64 {_INSIDE}, i64 %worth
  %missed = add i64 %before, %most
  store i64 %missed, ptr @missed
  %affordable = sdiv i64 %missed, {_WAKING}
  %wanted = call i64 @llvm.smin.i64(i64 %asleep, i64 %affordable)
  %some = icmp sgt i64 %wanted, 0
  br i1 %some, label %wake, label %work
wake:
  store i64 0, ptr @missed
  %lock = call i32 @pthread_mutex_lock(ptr @mutex)
  br label %signal
signal:
  %signals = phi i64 [ 0, %wake ], [ %sent, %signal ]
  %signalled = call i32 @pthread_cond_signal(ptr @condition)
  %sent = add i64 %signals, 1
  %others.sleep = icmp slt i64 %sent, %wanted
  br i1 %others.sleep, label %signal, label %woken
woken:
  %unlock = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %work
work:
  call void @work(i64 0)
  %close = atomicrmw and ptr @gate, i64 {-_INSIDE} acq_rel
  br label %look
look:
  %looks = phi i64 [ 0, %work ], [ %more, %again ]
  %gate = load atomic i64, ptr @gate acquire, align 8
  %empty = icmp eq i64 %gate, 0
  br i1 %empty, label %done, label %tick
tick:
  %signs = load atomic i64, ptr %word monotonic, align 8
  %due = icmp ne i64 %signs, 0
  br i1 %due, label %ask, label %wait
ask:
  %stopped = call i64 @adze_look(ptr %failure)
  br label %wait
wait:
  {_PAUSE}
  %more = add i64 %looks, 1
  %tired = icmp sgt i64 %more, {_PATIENCE}
  br i1 %tired, label %yield, label %again
yield:
  %yielded = call i32 @sched_yield()
  br label %again
again:
  br label %look
done:
  store atomic i64 0, ptr @busy release, align 8
  ret void
}}
"""


@once
def workers() -> Workers:
    """The pool of this process, with its workers."""
    imports = {"adze_look": entries().look}
    exports = ("reset", "worker", "adze_parallel", *open_calls.EXPORTS, *work_stealing.EXPORTS)
    library = load_runtime(_IR, lambda code: link(code, exports, imports))
    reset = ctypes.CFUNCTYPE(None)(library["reset"])
    equip = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(library["equip"])
    addresses = {name: int(library[name]) for name in exports if name.startswith("adze_")}
    return Workers(Pool(library["worker"], addresses, reset, equip, library))
