"""Fork and join: branches of a ``par`` on the pool's threads, by work stealing, as LLVM IR in the module of the pool.

A call has as many *seats* as threads. The thread that calls sits on the first one, and a worker that has nothing to do
takes a free one. On a seat there is a *deque* of tasks, and a region of cells. Who comes to a fork pushes all branches
but the first onto its own deque, the second last, runs the first, and takes the others back in their order, from the
same end. Thieves steal from the other end, where the tasks are older and so, in most programs, larger (Blumofe and
Leiserson, Scheduling multithreaded computations by work stealing, 1999). ::

    sum(t) = left + right of par(sum(left), sum(right))        worker 1                    worker 2
                                                               push sum(right)
                                                               run sum(left)               steal sum(right), run it
                                                               pop: it is stolen           ...
                                                               wait, steal meanwhile       done
                                                               left + right

A *task* lives in the frame that waits for it: the function to run, a flag for its end, a word that cancels it, the
failure that it ended with, and what its procedure takes and gives. A thief runs it with a failure record of its own.
Who waits takes the failure over unless a branch before has failed, and then cancels it: so it is the first branch that
fails, in the order of the program, whoever is faster. Cells that a thief makes are in the region of its seat, and last
as long as the call.

A deque is in two parts (van Dijk and van de Pol, Lace: non-blocking split deque for work-stealing, 2014). Old tasks are
public, the others private: only their owner sees these, and pushes and pops without any atomic operation. Where the
public part begins and ends is one word, changed by compare-and-swap alone. An owner who has no private task left takes
half of the public ones back. A thief learns which task it has after it has moved the border, as between two looks
another task may have come to the same place, and empties the place then; no task is pushed to one that is not empty.

Tasks are made public on a *wish*: a word of the seat that thieves set when they find nothing there. An owner who pushes
and finds it set makes half of its tasks public. While it is not set, a fork runs in its place once there are some tasks
for who may come (``ENOUGH``), or after many that nobody took (``IN_VAIN``): then it costs a test (``forks.py``).
Thieves wish once in a round of looks, so where tasks are too small to be stolen, few are made public. ::

    tasks    0  1  2  3  4  5  6  7       deque: top 2, split 5      bottom 8
             stolen  public   private

A thief looks at a task for about a microsecond before it takes it. What its owner takes back meanwhile is too small to
be worth a thief, so that a recursion with little work beside each call stays on one thread.

Who waits for a stolen branch steals back from the seat of the thief, as long as half of its stack is left (Wagner and
Calder, Leapfrogging: a portable technique for implementing efficient futures, 1993). What is there are parts of that
branch, for a deque is empty when its owner begins a task, and every task begins at a place of its own: a thief who has
looked at the deque before the branch had ended takes nothing of a later one. So on the stack of who waits there is
nothing but what it waits for, no deeper than without thieves, and who cancels the branch cancels all of it. Nobody
waits in a circle: who is waited for has begun later than who waits.

A task ends when one that it is part of is cancelled: it knows who made it, and so up to the call. Threads do not ask
all of these at each look for signals, but one word of the call, which says that something was cancelled
(``interrupts.py``).

How workers come to a seat is in ``open_calls.py``, and what programs do themselves in ``forks.py``.

    seat     0 deque: top and split, 32 bits each  1 the ring of tasks  2 the failure record of the call  3 how many
             seats there are  4 whether it is taken  5 a wish for tasks  6 the number of the call among those that are
             open  7 control register  16 bottom  17 tasks that nobody took, in a row  20 region of cells (four words)
    task     0 function  1 whether it is done  2 whether it is cancelled  3 failure (five words)  8 its thief's seat
             9 the cancelling word of the task that made it  10 what it takes, gives
"""

from __future__ import annotations

from .unit import HANDED, RECORD, RING, SEAT, SEAT_WORDS, STOP, TICK, WISH

_SPLIT = 1 << 32  # one, where the word of a deque says where the public part ends
_RIPE = 12  # pauses that a task is there before it is stolen: its owner takes it back sooner than others run it
ROUND = 64  # looks for a task, of which the first one asks for some; after it a worker gives up its seat
_YIELD = 4096  # looks at a task that is waited for before others run
_FAILURE, _THIEF = 3, 8  # words of a task: where its failure begins, and the seat of its thief

EXPORTS = ("adze_publish", "adze_reclaim", "adze_wait")

FUNCTIONS = f"""
@enough = internal global i64 0
@never.done = internal constant i64 0

define internal void @rest(i64 %looks) {{
  call void @pause()
  %tired = icmp sgt i64 %looks, {_YIELD}
  br i1 %tired, label %yield, label %done
yield:
  %yielded = call i32 @sched_yield()
  br label %done
done:
  ret void
}}

define void @adze_publish(ptr %seat) {{
entry:
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  %bottom = load i32, ptr %bottom.place
  br label %try
try:
  %deque = load atomic i64, ptr %seat monotonic, align 8
  %top = and i64 %deque, {_SPLIT - 1}
  %high = lshr i64 %deque, 32
  %split = trunc i64 %high to i32
  %private = sub i32 %bottom, %split
  %some = icmp sgt i32 %private, 0
  br i1 %some, label %move, label %done
move:
  %more = add i32 %private, 1
  %half = ashr i32 %more, 1
  %moved = add i32 %split, %half
  %wide = zext i32 %moved to i64
  %shifted = shl i64 %wide, 32
  %new = or i64 %shifted, %top
  %wish = getelementptr i64, ptr %seat, i64 {WISH}
  store atomic i64 0, ptr %wish monotonic, align 8
  %swap = cmpxchg ptr %seat, i64 %deque, i64 %new seq_cst monotonic
  %swapped = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %swapped, label %tell, label %try
tell:
  %sleepers = load atomic i64, ptr @sleepers seq_cst, align 8
  %asleep = icmp sgt i64 %sleepers, 0
  br i1 %asleep, label %wake, label %done
wake:
  %lock = call i32 @pthread_mutex_lock(ptr @mutex)
  %signalled = call i32 @pthread_cond_signal(ptr @condition)
  %unlock = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %done
done:
  ret void
}}

define internal void @empty(ptr %seat, i32 %number) {{
  %ring.place = getelementptr i64, ptr %seat, i64 1
  %ring = load ptr, ptr %ring.place
  %slot = and i32 %number, {RING - 1}
  %task.place = getelementptr ptr, ptr %ring, i32 %slot
  store atomic ptr null, ptr %task.place monotonic, align 8
  ret void
}}

define i1 @adze_reclaim(ptr %seat) {{
entry:
  br label %try
try:
  %deque = load atomic i64, ptr %seat acquire, align 8
  %top = trunc i64 %deque to i32
  %top.wide = zext i32 %top to i64
  %high = lshr i64 %deque, 32
  %split = trunc i64 %high to i32
  %public = sub i32 %split, %top
  %none = icmp eq i32 %public, 0
  br i1 %none, label %stolen, label %take
take:
  %half = lshr i32 %public, 1
  %left = add i32 %top, %half
  %wide = zext i32 %left to i64
  %shifted = shl i64 %wide, 32
  %new = or i64 %shifted, %top.wide
  %swap = cmpxchg ptr %seat, i64 %deque, i64 %new acq_rel monotonic
  %swapped = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %swapped, label %pop, label %try
pop:
  %bottom = sub i32 %split, 1
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  store i32 %bottom, ptr %bottom.place
  call void @empty(ptr %seat, i32 %bottom)
  ret i1 true
stolen:
  ret i1 false
}}

define internal void @ask(ptr %seat) {{
  %wish = getelementptr i64, ptr %seat, i64 {WISH}
  %said = load atomic i64, ptr %wish monotonic, align 8
  %silent = icmp eq i64 %said, 0
  br i1 %silent, label %say, label %done
say:
  store atomic i64 1, ptr %wish monotonic, align 8
  br label %done
done:
  ret void
}}

define internal ptr @steal(ptr %seats, i64 %count, ptr %own, i1 %asking) {{
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %on ]
  %place = mul i64 %k, {SEAT_WORDS}
  %seat = getelementptr i64, ptr %seats, i64 %place
  %mine = icmp eq ptr %seat, %own
  br i1 %mine, label %on, label %look
look:
  %task = call ptr @steal_from(ptr %seat, ptr @never.done, i1 %asking)
  %some = icmp ne ptr %task, null
  br i1 %some, label %done, label %on
on:
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %count
  br i1 %more, label %next, label %nothing
nothing:
  ret ptr null
done:
  ret ptr %task
}}

define internal ptr @steal_from(ptr %seat, ptr %over, i1 %asking) {{
entry:
  %deque = load atomic i64, ptr %seat acquire, align 8
  %top = trunc i64 %deque to i32
  %high = lshr i64 %deque, 32
  %split = trunc i64 %high to i32
  %none = icmp eq i32 %top, %split
  br i1 %none, label %empty, label %take
empty:
  br i1 %asking, label %wish, label %nothing
wish:
  call void @ask(ptr %seat)
  br label %nothing
take:
  %ring.place = getelementptr i64, ptr %seat, i64 1
  %ring = load ptr, ptr %ring.place
  %slot = and i32 %top, {RING - 1}
  %task.place = getelementptr ptr, ptr %ring, i32 %slot
  %task = load atomic ptr, ptr %task.place monotonic, align 8
  br label %ripen
ripen:
  %looks = phi i64 [ 0, %take ], [ %looks.next, %ripen ]
  call void @pause()
  %looks.next = add i64 %looks, 1
  %young = icmp slt i64 %looks.next, {_RIPE}
  br i1 %young, label %ripen, label %try
try:
  %same = load atomic ptr, ptr %task.place monotonic, align 8
  %there = icmp eq ptr %same, %task
  br i1 %there, label %ask, label %nothing
ask:
  %ended = load atomic i64, ptr %over acquire, align 8
  %late = icmp ne i64 %ended, 0
  br i1 %late, label %nothing, label %claim
claim:
  %after = add i32 %top, 1
  %after.wide = zext i32 %after to i64
  %kept = and i64 %deque, {-_SPLIT}
  %new = or i64 %kept, %after.wide
  %swap = cmpxchg ptr %seat, i64 %deque, i64 %new acq_rel monotonic
  %swapped = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %swapped, label %done, label %nothing
nothing:
  ret ptr null
done:
  %stolen = load atomic ptr, ptr %task.place monotonic, align 8
  store atomic ptr null, ptr %task.place release, align 8
  %last = icmp eq i32 %after, %split
  br i1 %last, label %more, label %give
more:
  call void @ask(ptr %seat)
  br label %give
give:
  ret ptr %stolen
}}

define internal void @perform(ptr %task, ptr %failure) noinline {{
  %own = alloca [{RECORD} x i64], align 16
  %seat.place = getelementptr ptr, ptr %failure, i64 {SEAT}
  %seat = load ptr, ptr %seat.place
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  %bottom = load i32, ptr %bottom.place
  %begin = add i32 %bottom, 1
  store i32 %begin, ptr %bottom.place
  %low = zext i32 %begin to i64
  %high = shl i64 %low, 32
  %empty = or i64 %high, %low
  store atomic i64 %empty, ptr %seat release, align 8
  %thief.place = getelementptr ptr, ptr %task, i64 {_THIEF}
  store atomic ptr %seat, ptr %thief.place release, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %failure, i64 {8 * RECORD}, i1 false)
  store i64 0, ptr %own
  %cancel = getelementptr i64, ptr %task, i64 2
  %tick.place = getelementptr ptr, ptr %own, i64 {TICK}
  %stop.place = getelementptr ptr, ptr %own, i64 {STOP}
  %tick = load ptr, ptr %tick.place
  %stop = load ptr, ptr %stop.place
  %deaf = icmp eq ptr %tick, %stop
  %cancelled = call ptr @cancelled(ptr %failure)
  %heard = select i1 %deaf, ptr %cancelled, ptr %tick
  store ptr %heard, ptr %tick.place
  store ptr %cancel, ptr %stop.place
  %function = load ptr, ptr %task
  call void %function(ptr %task, ptr %own)
  %failed = getelementptr i64, ptr %task, i64 {_FAILURE}
  call void @llvm.memcpy.p0.p0.i64(ptr %failed, ptr %own, i64 40, i1 false)
  %done = getelementptr i64, ptr %task, i64 1
  store atomic i64 1, ptr %done release, align 8
  ret void
}}

define void @adze_wait(ptr %task, ptr %failure) {{
entry:
  %here = alloca i8
  %thief.place = getelementptr ptr, ptr %task, i64 {_THIEF}
  %done.place = getelementptr i64, ptr %task, i64 1
  %cancel = getelementptr i64, ptr %task, i64 2
  %word.place = getelementptr ptr, ptr %failure, i64 {TICK}
  %word = load ptr, ptr %word.place
  %base.place = getelementptr ptr, ptr %failure, i64 {HANDED}
  %base = load ptr, ptr %base.place
  %room = call i1 @half(ptr %here, ptr %base)
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ 0, %run ], [ %more, %wait ]
  %done = load atomic i64, ptr %done.place acquire, align 8
  %over = icmp ne i64 %done, 0
  br i1 %over, label %end, label %ask
ask:
  %signs = load atomic i64, ptr %word monotonic, align 8
  %due = icmp ne i64 %signs, 0
  br i1 %due, label %listen, label %state
listen:
  %stopped = call i64 @adze_look(ptr %failure)
  br label %state
state:
  %failed = load atomic i64, ptr %failure monotonic, align 8
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %stop, label %find
stop:
  store atomic i64 1, ptr %cancel release, align 8
  %cancelled = call ptr @cancelled(ptr %failure)
  store atomic i64 1, ptr %cancelled release, align 8
  br label %wait
find:
  br i1 %room, label %ask.thief, label %wait
ask.thief:
  %thief = load atomic ptr, ptr %thief.place acquire, align 8
  %begun = icmp ne ptr %thief, null
  br i1 %begun, label %steal, label %wait
steal:
  %turn = urem i64 %looks, {ROUND}
  %asking = icmp eq i64 %turn, 0
  %other = call ptr @steal_from(ptr %thief, ptr %done.place, i1 %asking)
  %none = icmp eq ptr %other, null
  br i1 %none, label %wait, label %run
run:
  call void @perform(ptr %other, ptr %failure)
  br label %look
wait:
  call void @rest(i64 %looks)
  %more = add i64 %looks, 1
  br label %look
end:
  %failed.already = load atomic i64, ptr %failure monotonic, align 8
  %well = icmp eq i64 %failed.already, 0
  br i1 %well, label %take, label %leave
take:
  %failure.place = getelementptr i64, ptr %task, i64 {_FAILURE}
  call void @llvm.memcpy.p0.p0.i64(ptr %failure, ptr %failure.place, i64 40, i1 false)
  br label %leave
leave:
  ret void
}}

define internal i1 @half(ptr %here, ptr %base) {{
  %enough = load i64, ptr @enough
  %from = ptrtoint ptr %base to i64
  %to = ptrtoint ptr %here to i64
  %left = sub i64 %to, %from
  %room = icmp sgt i64 %left, %enough
  ret i1 %room
}}
"""
