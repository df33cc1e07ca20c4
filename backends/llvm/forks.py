"""Forks as LLVM IR: what compiled programs do themselves of work stealing (``work_stealing.py``).

A fork pushes its tasks, runs the first branch, and takes the others back: each that was not stolen is called as any
procedure is, with what it takes in registers. That is done by a function of its own, in whose frame the tasks are.
Where there are tasks enough, and in a call with one thread, which has no seats, a fork calls its branches one after the
other: so there it costs a test, and no more of the stack than two calls do. But a fork one of whose branches never
forks, and so may keep all others waiting, always pushes its tasks. The function of a task takes from its words
what the procedure takes, and leaves there what that gives. ::

    a, b = par(f(x), g(y))    store g's task, y; push it; a = f(x); pop? b = g(y) : wait for it, and b is in its words
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import ir
from .invocations import Handed, Invocations, given_by, given_to
from .unit import ENOUGH, IN_VAIN, RING, SEAT, STOP, VAIN, WISH, Arena, Unit

_TASK = 10  # words of a task before what its procedure takes
_MADE_BY = 9  # the word that says which task made it

# What stands in compiled programs, where most forks need no more
_INLINE = {
    "fork.seat": f"""\
define internal ptr @fork.seat(ptr %failure, i32 %count, i1 %inner) alwaysinline nounwind {{
  %place = getelementptr ptr, ptr %failure, i64 {SEAT}
  %seat = load ptr, ptr %place
  %alone = icmp eq ptr %seat, null
  br i1 %alone, label %none, label %some
some:
  %bottom.place = getelementptr i64, ptr %seat, i64 16
  %bottom = load i32, ptr %bottom.place
  %deque = load atomic i64, ptr %seat monotonic, align 8
  %top = trunc i64 %deque to i32
  %tasks = sub i32 %bottom, %top
  %many = icmp uge i32 %tasks, {ENOUGH}
  %vain.place = getelementptr i64, ptr %seat, i64 {VAIN}
  %vain = load i64, ptr %vain.place
  %useless = icmp ugt i64 %vain, {IN_VAIN}
  %served = or i1 %many, %useless
  %wish.place = getelementptr i64, ptr %seat, i64 {WISH}
  %wish = load atomic i64, ptr %wish.place monotonic, align 8
  %silent = icmp eq i64 %wish, 0
  %unwanted = and i1 %served, %silent
  %enough = and i1 %unwanted, %inner
  br i1 %enough, label %none, label %room
room:
  %ring.place = getelementptr i64, ptr %seat, i64 1
  %ring = load ptr, ptr %ring.place
  br label %look
look:
  %k = phi i32 [ 0, %room ], [ %next, %empty ]
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
  %wish.place = getelementptr i64, ptr %seat, i64 {WISH}
  %wish = load atomic i64, ptr %wish.place monotonic, align 8
  %asked = icmp ne i64 %wish, 0
  br i1 %asked, label %publish, label %done
publish:
  call void @adze_publish(ptr %seat)
  br label %done
done:
  ret void
}}""",
    "fork.pop": f"""\
define internal i1 @fork.pop(ptr %seat) alwaysinline nounwind {{
  %vain.place = getelementptr i64, ptr %seat, i64 {VAIN}
  %vain = load i64, ptr %vain.place
  %more = add i64 %vain, 1
  store i64 %more, ptr %vain.place
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
  br i1 %taken, label %back, label %stolen
stolen:
  store i64 0, ptr %vain.place
  ret i1 false
back:
  ret i1 true
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
        for name, text in _INLINE.items():
            self.unit.module.define(name, text)
        body, given, numbers = self.body, [self.given(call) for call in calls], [call.number for call in calls]
        shared, last, joined = (body.name(part) for part in ("shared", "alone", "joined"))
        inner = str(all([_forks_inside(self.unit, number) for number in numbers])).lower()
        seat = body.value(f"call ptr @fork.seat(ptr {self.failure}, i32 {len(calls) - 1}, i1 {inner})")
        body.line(f"br i1 {body.value(f'icmp eq ptr {seat}, null')}, label %{last}, label %{shared}")
        body.label(last)
        here = self.called(numbers[0], given[0])
        for number, values in zip(numbers[1:], given[1:], strict=True):
            made, last = self.unless_failed(number, values, last)
            here += made
        body.branch(joined)
        body.label(shared)
        handed, types = _all_given(self.unit, numbers), _all_taken(self.unit, numbers)
        taken = [f"{type} {value}" for type, value in zip(types, [x for each in given for x in each], strict=True)]
        arguments = ", ".join([f"ptr {self.failure}", f"ptr {seat}", *taken])
        call = f"call {handed.result} @{_shared(self.unit, numbers)}({arguments})"
        if handed.result == "void":
            body.line(call)
        there = self.taken_over(handed, "" if handed.result == "void" else body.value(call))
        body.branch(joined)
        body.label(joined)
        found = [
            body.value(f"phi {type} [ {a}, %{last} ], [ {b}, %{shared} ]")
            for type, a, b in zip(handed.types, here, there, strict=True)
        ]
        for each, values in zip(calls, given, strict=True):
            count = len(given_by(self.unit.procedures[each.number]).types)
            self.bind(each, values, found[:count])
            found = found[count:]
        self.leave_if_stopped()

    def unless_failed(self, number: int, values: Sequence[str], before: str) -> tuple[list[str], str]:
        """What a branch gives, and the label behind it. Behind one that has failed it does not run any more.

        Code comes here from the label ``before``.
        """
        body, run, behind = self.body, self.body.name("run"), self.body.name("behind")
        state = body.value(f"load atomic i64, ptr {self.failure} monotonic, align 8")
        body.line(f"br i1 {body.value(f'icmp ne i64 {state}, 0')}, label %{behind}, label %{run}")
        body.label(run)
        made = self.called(number, values)
        body.branch(behind)
        body.label(behind)
        types = given_by(self.unit.procedures[number]).types
        pairs = zip(types, made, strict=True)
        return [body.value(f"phi {type} [ poison, %{before} ], [ {x}, %{run} ]") for type, x in pairs], behind


class _Shared(Forks):
    """Emits the function of a fork that others may take branches of: its frame is where the tasks are."""

    def emit(self, numbers: Sequence[int], name: str) -> None:
        for declared, text in _DECLARED.items():
            self.unit.module.declare(declared, text)
        body, types = self.body, _all_taken(self.unit, numbers)
        given = iter([f"%given.{k}" for k in range(len(types))])
        values = [[next(given) for _ in given_to(self.unit.procedures[number]).types] for number in numbers]
        tasks = [body.slot(f"[{_TASK + self._words(number)} x i64]", 8) for number in numbers[1:]]
        for number, task, own in reversed(list(zip(numbers[1:], tasks, values[1:], strict=True))):
            self._push(number, task, own)
        results = self.called(numbers[0], values[0])
        for number, task, own in zip(numbers[1:], tasks, values[1:], strict=True):
            results += self._joined(number, task, own)
        handed = _all_given(self.unit, numbers)
        self.hand_back(handed, results)
        self.apart.close()
        taken = ", ".join(["ptr %failure", "ptr %seat", *[f"{type} %given.{k}" for k, type in enumerate(types)]])
        head = f"define internal {handed.result} @{name}({taken}) noinline {self.unit.attributes}"
        self.unit.module.define(name, f"{head} {{\n{body}\n}}")

    def _words(self, number: int) -> int:
        """How much a procedure takes and gives."""
        procedure = self.unit.procedures[number]
        return len(given_to(procedure).types) + len(given_by(procedure).types)

    def _push(self, number: int, task: str, values: Sequence[str]) -> None:
        """Make a task, and push it."""
        procedure = self.unit.procedures[number]
        self.body.line(f"store ptr @{_task_of(self.unit, number)}, ptr {task}")
        for word in (1, 2, 8):
            self.body.line(f"store i64 0, ptr {self.word_of(task, word)}")
        maker = self.body.value(f"load i64, ptr {self.word_of(self.failure, STOP)}")
        self.body.line(f"store i64 {maker}, ptr {self.word_of(task, _MADE_BY)}")
        for word, (type, value) in enumerate(zip(given_to(procedure).types, values, strict=True), _TASK):
            self.to_word(type, value, self.word_of(task, word))
        self.body.line(f"call void @fork.push(ptr %seat, ptr {task})")

    def _joined(self, number: int, task: str, values: Sequence[str]) -> list[str]:
        """What a branch gives: taken back, or waited for."""
        body, procedure = self.body, self.unit.procedures[number]
        own, stolen, joined = (body.name(part) for part in ("own", "stolen", "joined"))
        taken = body.value("call i1 @fork.pop(ptr %seat)")
        body.line(f"br i1 {taken}, label %{own}, label %{stolen}")
        body.label(stolen)
        body.line(f"call void @adze_wait(ptr {task}, ptr {self.failure})")
        types, first = given_by(procedure).types, _TASK + len(given_to(procedure).types)
        there = [self.from_word(type, self.word_of(task, word)) for word, type in enumerate(types, first)]
        body.branch(joined)
        body.label(own)
        here, last = self.unless_failed(number, values, own)
        body.branch(joined)
        body.label(joined)
        return [
            body.value(f"phi {type} [ {a}, %{stolen} ], [ {b}, %{last} ]")
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
        self.apart.close()
        head = f"define hidden void @{name}(ptr %task, ptr %failure) noinline {self.unit.attributes}"
        self.unit.module.define(name, f"{head} {{\n{body}\n}}")


def _forks_inside(unit: Unit, number: int) -> bool:
    """Whether a procedure, or one that it invokes, forks."""
    found, pending = set[int](), [number]
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            body = unit.procedures[number].body
            if ir.contains(body, ir.Fork):
                return True
            pending += [each.number for each in ir.of_kind(body, ir.Invoke) if each.kind in ("procedure", "jump")]
    return False


def _all_taken(unit: Unit, numbers: Sequence[int]) -> list[str]:
    """The types of what the branches of a fork take."""
    return [type for number in numbers for type in given_to(unit.procedures[number]).types]


def _all_given(unit: Unit, numbers: Sequence[int]) -> Handed:
    """How what the branches of a fork give travels, all together."""
    return Handed.back([type for number in numbers for type in given_by(unit.procedures[number]).types])


def _shared(unit: Unit, numbers: Sequence[int]) -> str:
    """The name of the function of a fork whose branches are these procedures."""
    name = f"shared.{'.'.join(map(str, numbers))}"
    if not unit.module.defines(name):
        _Shared(unit, Arena("null", "null", "0", {}), "1", "%failure").emit(numbers, name)
    return name


def _task_of(unit: Unit, number: int) -> str:
    """The name of the function that a task runs, for a procedure."""
    name = f"task.{number}"
    if not unit.module.defines(name):
        _Task(unit, Arena("null", "null", "0", {}), "1", "%failure").emit(number, name)
    return name


def forks(function: ir.Function) -> bool:
    """Whether a function or one of its procedures forks."""
    return any(ir.contains(each.body, ir.Fork) for each in (function, *function.procedures))
