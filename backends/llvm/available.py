"""What memory the system can still give, as LLVM IR for the regions of ``stacks.py``.

Linux hands out addresses freely, and kills a process that touches more of them than there is memory. A region asks
before it takes a large chunk, so that data without end is a MemoryError. What counts is ``MemAvailable`` of
``/proc/meminfo``, and where a control group has a limit (version 2, as in containers), what its processes have left of
that. A file that is not there sets no limit.

    available      the bytes that the system can give without swapping
    adze_spared    a word: the bytes that regions leave to the rest of the system
"""

from __future__ import annotations

_SPARED = 256 << 20  # bytes: a few regions may ask at once, each for a chunk
_ROOM = 8192  # bytes at the beginning of a file, which are looked at

_TEXTS = {
    "meminfo": "/proc/meminfo",
    "of.system": "MemAvailable:",
    "group.limit": "/sys/fs/cgroup/memory.max",
    "at.once": "",
    "group.use": "/sys/fs/cgroup/memory.stat",
    "of.group": "anon ",
}


def _number(path: str, label: str) -> str:
    """A call that gives the number after a label in a file: 0 for other text, -1 where file or label is missing."""
    return f"call i64 @number(ptr @{path}, ptr @{label}, i64 {len(_TEXTS[label])})"


def _constant(name: str, text: str) -> str:
    return f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"\n'


IR = f"""
{"".join(_constant(name, text) for name, text in _TEXTS.items())}
@adze_spared = global i64 {_SPARED}

declare i32 @open(ptr, i32, ...)
declare i64 @read(i32, ptr, i64)
declare i32 @close(i32)
declare ptr @strstr(ptr, ptr)
declare i64 @strtoll(ptr, ptr, i32)
declare i64 @llvm.smin.i64(i64, i64)

define internal i64 @number(ptr %path, ptr %label, i64 %letters) {{
  %text = alloca [{_ROOM} x i8]
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 0)
  %missing = icmp slt i32 %file, 0
  br i1 %missing, label %none, label %look
look:
  %got = call i64 @read(i32 %file, ptr %text, i64 {_ROOM - 1})
  %closed = call i32 @close(i32 %file)
  %failed = icmp slt i64 %got, 0
  br i1 %failed, label %none, label %find
find:
  %end = getelementptr i8, ptr %text, i64 %got
  store i8 0, ptr %end
  %found = call ptr @strstr(ptr %text, ptr %label)
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %none, label %parse
parse:
  %place = getelementptr i8, ptr %found, i64 %letters
  %number = call i64 @strtoll(ptr %place, ptr null, i32 10)
  ret i64 %number
none:
  ret i64 -1
}}

define i64 @available() {{
  %kilobytes = {_number("meminfo", "of.system")}
  %counted = icmp sge i64 %kilobytes, 0
  %bytes = shl i64 %kilobytes, 10
  %system = select i1 %counted, i64 %bytes, i64 {2**63 - 1}
  %limit = {_number("group.limit", "at.once")}
  %limited = icmp sgt i64 %limit, 0
  br i1 %limited, label %group, label %done
group:
  %used = {_number("group.use", "of.group")}
  %left = sub i64 %limit, %used
  %least = call i64 @llvm.smin.i64(i64 %system, i64 %left)
  br label %done
done:
  %available = phi i64 [ %system, %0 ], [ %least, %group ]
  ret i64 %available
}}
"""
