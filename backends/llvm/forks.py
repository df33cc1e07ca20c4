"""Forks as LLVM IR: what compiled programs do themselves of work stealing (``work_stealing.py``).

A fork pushes its tasks, runs the first branch, and takes the others back: each that was not stolen is called as any
procedure is, with what it takes in registers. So without thieves a fork costs the push and the pop, and in a call with
one thread, which has no seats, a test. The function of a task takes from its words what the procedure takes, and leaves
there what that gives. ::

    a, b = par(f(x), g(y))    store g's task, y; push it; a = f(x); pop? b = g(y) : wait for it, and b is in its words
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from .invocations import Invocations, given_by, given_to
from .unit import RING, SEAT, STOP, Arena, Unit

_TASK = 10  # words of a task before what its procedure takes
_MADE_BY = 9  # the word that says which task made it

# What stands in compiled programs, where most forks need no more
_INLINE = {
    "fork.seat": f"""\
define internal ptr @fork.seat(ptr %failure, i32 %count) alwaysinline nounwind {{
  %place = getelementptr ptr, ptr %failure, i64 {SEAT}
  %seat = load ptr, ptr %place
  %alone = icmp eq ptr %seat, null
  br i1 %alone, label %none, label %some
some:
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  %bottom = load i32, ptr %bottom.place
  %ring.place = getelementptr i64, ptr %seat, i64 1
  %ring = load ptr, ptr %ring.place
  br label %look
look:
  %k = phi i32 [ 0, %some ], [ %next, %empty ]
  %number = add i32 %bottom, %k
  %slot = and i32 %number, {RING - 1}
  %task.place = getelementptr ptr, ptr %ring, i32 %slot
  %there = load atomic ptr, ptr %task.place acquire, align 8
  %free = icmp eq ptr %there, null
  br i1 %free, label %empty, label %none
empty:
  %next = add i32 %k, 1
  %more = icmp slt i32 %next, %count
  br i1 %more, label %look, label %done
done:
  ret ptr %seat
none:
  ret ptr null
}}""",
    "fork.push": f"""\
define internal void @fork.push(ptr %seat, ptr %task) alwaysinline nounwind {{
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  %bottom = load i32, ptr %bottom.place
  %ring.place = getelementptr i64, ptr %seat, i64 1
  %ring = load ptr, ptr %ring.place
  %slot = and i32 %bottom, {RING - 1}
  %task.place = getelementptr ptr, ptr %ring, i32 %slot
  store atomic ptr %task, ptr %task.place monotonic, align 8
  %after = add i32 %bottom, 1
  store i32 %after, ptr %bottom.place
  %deque = load atomic i64, ptr %seat monotonic, align 8
  %top = trunc i64 %deque to i32
  %high = lshr i64 %deque, 32
  %split = trunc i64 %high to i32
  %none = icmp eq i32 %top, %split
  br i1 %none, label %publish, label %done
publish:
  call void @adze_publish(ptr %seat)
  br label %done
done:
  ret void
}}""",
    "fork.pop": f"""\
define internal i1 @fork.pop(ptr %seat) alwaysinline nounwind {{
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  %bottom = load i32, ptr %bottom.place
  %deque = load atomic i64, ptr %seat monotonic, align 8
  %high = lshr i64 %deque, 32
  %split = trunc i64 %high to i32
  %private = icmp ne i32 %bottom, %split
  br i1 %private, label %pop, label %ask
pop:
  %before = sub i32 %bottom, 1
  store i32 %before, ptr %bottom.place
  %ring.place = getelementptr i64, ptr %seat, i64 1
  %ring = load ptr, ptr %ring.place
  %slot = and i32 %before, {RING - 1}
  %task.place = getelementptr ptr, ptr %ring, i32 %slot
  store atomic ptr null, ptr %task.place monotonic, align 8
  ret i1 true
ask:
  %taken = call i1 @adze_reclaim(ptr %seat)
  ret i1 %taken
}}""",
}
_DECLARED = {
    "adze_publish": "declare void @adze_publish(ptr) nounwind",
    "adze_reclaim": "declare i1 @adze_reclaim(ptr) nounwind",
    "adze_wait": "declare void @adze_wait(ptr, ptr) nounwind",
}


class Forks(Invocations):
    """Emits a function that forks."""

    def fork(self, calls: Sequence[ir.Invoke]) -> None:
        for name, text in _DECLARED.items():
            self.unit.module.declare(name, text)
        for name, text in _INLINE.items():
            self.unit.module.define(name, text)
        body, given = self.body, [self.given(call) for call in calls]
        tasks = [body.slot(f"[{_TASK + self._words(call)} x i64]", 8) for call in calls[1:]]
        seat = body.value(f"call ptr @fork.seat(ptr {self.failure}, i32 {len(tasks)})")
        alone = body.value(f"icmp eq ptr {seat}, null")
        push, first = body.name("push"), body.name("first")
        body.line(f"br i1 {alone}, label %{first}, label %{push}")
        body.label(push)
        for call, task, values in reversed(list(zip(calls[1:], tasks, given[1:], strict=True))):
            self._push(call, task, values, seat)
        body.branch(first)
        body.label(first)
        results = [self.called(calls[0].number, given[0])]
        for call, task, values in zip(calls[1:], tasks, given[1:], strict=True):
            results.append(self._joined(call, task, values, seat, alone))
        for call, values, made in zip(calls, given, results, strict=True):
            self.bind(call, values, made)
        self.leave_if_stopped()

    def _words(self, call: ir.Invoke) -> int:
        """How much a procedure takes and gives."""
        procedure = self.unit.procedures[call.number]
        return len(given_to(procedure).types) + len(given_by(procedure).types)

    def _push(self, call: ir.Invoke, task: str, values: Sequence[str], seat: str) -> None:
        """Make a task, and push it."""
        procedure = self.unit.procedures[call.number]
        self.body.line(f"store ptr @{_task_of(self.unit, call.number)}, ptr {task}")
        for word in (1, 2, 8):
            self.body.line(f"store i64 0, ptr {self.word_of(task, word)}")
        maker = self.body.value(f"load i64, ptr {self.word_of(self.failure, STOP)}")
        self.body.line(f"store i64 {maker}, ptr {self.word_of(task, _MADE_BY)}")
        for word, (type, value) in enumerate(zip(given_to(procedure).types, values, strict=True), _TASK):
            self.to_word(type, value, self.word_of(task, word))
        self.body.line(f"call void @fork.push(ptr {seat}, ptr {task})")

    def _joined(self, call: ir.Invoke, task: str, values: Sequence[str], seat: str, alone: str) -> list[str]:
        """What a branch gives: taken back, or waited for. Behind one that has failed it does not run any more."""
        body, procedure = self.body, self.unit.procedures[call.number]
        pop, own, run, stolen, joined = (body.name(part) for part in ("pop", "own", "run", "stolen", "joined"))
        body.line(f"br i1 {alone}, label %{own}, label %{pop}")
        body.label(pop)
        taken = body.value(f"call i1 @fork.pop(ptr {seat})")
        body.line(f"br i1 {taken}, label %{own}, label %{stolen}")
        body.label(stolen)
        body.line(f"call void @adze_wait(ptr {task}, ptr {self.failure})")
        types, first = given_by(procedure).types, _TASK + len(given_to(procedure).types)
        there = [self.from_word(type, self.word_of(task, word)) for word, type in enumerate(types, first)]
        body.branch(joined)
        body.label(own)
        state = body.value(f"load atomic i64, ptr {self.failure} monotonic, align 8")
        body.line(f"br i1 {body.value(f'icmp ne i64 {state}, 0')}, label %{joined}, label %{run}")
        body.label(run)
        here = self.called(call.number, values)
        body.branch(joined)
        body.label(joined)
        return [
            body.value(f"phi {type} [ {a}, %{stolen} ], [ poison, %{own} ], [ {b}, %{run} ]")
            for type, a, b in zip(types, there, here, strict=True)
        ]


class _Task(Invocations):
    """Emits the function that a task runs."""

    def emit(self, number: int, name: str) -> None:
        body, procedure = self.body, self.unit.procedures[number]
        takes, gives = given_to(procedure), given_by(procedure)
        values = [self.from_word(type, self.word_of("%task", word)) for word, type in enumerate(takes.types, _TASK)]
        made = self.called(number, values)
        for word, (type, value) in enumerate(zip(gives.types, made, strict=True), _TASK + len(takes.types)):
            self.to_word(type, value, self.word_of("%task", word))
        body.line("ret void")
        self.regions.close()
        head = f"define hidden void @{name}(ptr %task, ptr %failure) noinline {self.unit.attributes}"
        self.unit.module.define(name, f"{head} {{\n{body}\n}}")


def _task_of(unit: Unit, number: int) -> str:
    """The name of the function that a task runs, for a procedure."""
    name = f"task.{number}"
    if not unit.module.defines(name):
        _Task(unit, Arena("null", "null", "0", {}), "1", "%failure").emit(number, name)
    return name


def forks(function: ir.Function) -> bool:
    """Whether a function or one of its procedures forks."""
    return any(ir.contains(each.body, ir.Fork) for each in (function, *function.procedures))
