"""LLVM IR as text: types, constants, and a module and its functions under construction.

Values are written as they stand in the text: ``%v7`` for a register, anything else for a constant. Arithmetic on
i64 (``add`` and its like) folds constants, so that sizes known at compile time leave no trace in the text.

What runs side by side is decided before, as strips and copies; a loop whose trip count is not known stays as it is.
LLVM would repeat its body up to eight times, which no benchmark gains from and which takes half of the compile time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ...core.types import Scalar
from .locations import located, without_notes

_SMALL = 15_000  # characters: no more are one module, whose compilation takes some 20 ms
_LARGE = 25_000  # of one of several modules, about
_GLUE = 100  # lines: fewer are optimised in some 3 ms
_RARE = 16  # one line in so many may compute with floating numbers or vectors in code that is not optimised
_BLOCK = 100  # lines of code that runs once
_MENTIONED = re.compile(r"@([\w.]+)")
_NODE = re.compile(r"!(\d+)")
# How instructions begin that give the same for the same operands, wherever they stand.
_PURE = (
    *("add ", "sub ", "mul ", "and ", "or ", "xor ", "shl ", "ashr ", "lshr ", "sdiv ", "srem ", "icmp ", "select "),
    *("fadd ", "fsub ", "fmul ", "fdiv ", "fneg ", "fcmp ", "zext ", "sext ", "trunc ", "extractvalue "),
    *("getelementptr ", "insertelement ", "shufflevector ", "extractelement "),
    *("call i64 @llvm.smax.", "call i64 @llvm.smin.", "call i64 @llvm.umin.", "call { i64, i1 } @llvm.umul."),
)

_FLOATS = {32: "float", 64: "double"}

# A line in functions that have loops of scalars, which may become vectors yet.
SCALARS = "; loops of scalars"

# The attribute of functions that LLVM does not optimise, and the first line of a module that it does not.
OPTNONE = "optnone"
UNOPTIMISED = "; not optimised"

# The first line of a module that is for another processor than this one, or the second, and what it is for.
FOR_CPU = "; for "

# A line in functions with more than _NEST loops around each other.
DEEP = "; a deep nest"
_NEST = 8

# The first metadata of each module: the name of loops that are not to be unrolled.
_ROLLED = ["distinct !{!0, !1}", '!{!"llvm.loop.unroll.disable"}']


def register_type(scalar: Scalar, lanes: int = 0) -> str:
    """The type of a value in registers: of one scalar, or of a vector of some lanes."""
    name = "i1" if scalar.kind == "bool" else _FLOATS[scalar.bits] if scalar.kind == "float" else f"i{scalar.bits}"
    return f"<{lanes} x {name}>" if lanes else name


def memory_type(scalar: Scalar, lanes: int = 0) -> str:
    """The type of a value in memory, where a boolean takes one byte."""
    if scalar.kind == "bool":
        return f"<{lanes} x i8>" if lanes else "i8"
    return register_type(scalar, lanes)


def suffix(scalar: Scalar, lanes: int = 0, memory: bool = False) -> str:
    """The type as written in the names of intrinsics: ``f64``, ``v8f64``."""
    name = "i1" if scalar.kind == "bool" else f"{scalar.kind[0]}{scalar.bits}"
    if memory and scalar.kind == "bool":
        name = "i8"
    return f"v{lanes}{name}" if lanes else name


def constant(value: int | float | bool, scalar: Scalar) -> str:
    """A constant, bit for bit; the fields of LLVM's f32 constants are those of the f64 of the same value."""
    if scalar.kind == "float":
        exact = float(np.float32(value)) if scalar.bits == 32 else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
    if scalar.kind == "bool":
        return "true" if value else "false"
    return str(int(value))


def is_constant(text: str) -> bool:
    return not text.startswith("%")


def literal(text: str) -> int | None:
    """The value of an integer constant; None for a register."""
    return None if text.startswith("%") else int(text)


def indices(lanes: Sequence[int]) -> str:
    """The constant mask of a ``shufflevector``."""
    return f"<{len(lanes)} x i32> <" + ", ".join(f"i32 {lane}" for lane in lanes) + ">"


def iota(lanes: int, stride: int = 1) -> str:
    """The constant vector 0, stride, 2 stride ... of type i64."""
    return "<" + ", ".join(f"i64 {stride * lane}" for lane in range(lanes)) + ">"


def _wrapped(value: int) -> str:
    """An integer, as it is left by arithmetic on 64 bits."""
    return str((value + (1 << 63)) % (1 << 64) - (1 << 63))


class Module:
    """Functions, declarations and metadata of one module, in the order of their making."""

    def __init__(self, optimised: bool = True, located: bool = False, cpu: str = "") -> None:
        self._head = "" if optimised else UNOPTIMISED
        self._cpu = FOR_CPU + cpu if cpu else ""
        self._located = located  # whether instructions have notes of the lines that they are from
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._apart: dict[str, tuple[Callable[[], None], tuple[str, str]]] = {}
        self._mentioned: dict[str, list[str]] = {}
        self._metadata = list(_ROLLED)

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function once; ``signature`` is the whole line."""
        self._declarations.setdefault(name, signature)

    def defines(self, name: str) -> bool:
        return name in self._functions

    def define(self, name: str, text: str) -> None:
        """Define a function, or a constant."""
        self._functions[name] = text

    def define_later(self, name: str, define: Callable[[], None], described: tuple[str, str]) -> None:
        """Note what will define a function that is in no part of the module, but in a module of its own.

        It is described to people by when it is called, and what for.
        """
        self._apart[name] = define, described

    def metadata(self) -> str:
        """The name of a new metadata node, to be filled by ``fill``."""
        self._metadata.append("!{}")
        return f"!{len(self._metadata) - 1}"

    def fill(self, node: str, content: str) -> None:
        self._metadata[int(node[1:])] = content

    def __str__(self) -> str:
        return self._text([], self._functions, self._head)

    def parts(self) -> list[str]:
        """The module as text, a large one in several modules, which call each other; asked for before any branch."""
        return self._divided(self._functions)

    def alone(self, name: str) -> str:
        """The text of a module that defines one function of this one, which calls no others."""
        return self._part([name])

    def branches(self) -> dict[str, tuple[str, str]]:
        """The names of the functions that are apart, and when and what for they are called."""
        return {name: described for name, (_, described) in self._apart.items()}

    def branch(self, name: str) -> list[str]:
        """A function that is apart, defined by now, with all that it calls in modules like those of ``parts``."""
        if name not in self._functions:
            define, _ = self._apart[name]
            define()
        return self._divided(self._called(name))

    def _divided(self, names: Iterable[str]) -> list[str]:
        """Functions in modules of about one length, so that they can be compiled side by side.

        Those with loops of scalars are apart, since LLVM does more for them, and so are those that it does not
        optimise. A function that others may call from elsewhere is in one module; what is internal is where it is
        called.
        """
        texts = {name: text for name in names if not _internal(text := self._functions[name])}
        length = _length_without_notes if self._located else len
        if sum(map(length, texts.values())) < _SMALL:
            return [self._part(list(texts))]
        shares: list[list[str]] = []
        for kind in (SCALARS, "", OPTNONE):
            room = 0
            for name, text in texts.items():
                if _kind(text) == kind:
                    if room < length(text):
                        shares.append([])
                        room = max(_LARGE, length(text))
                    shares[-1].append(name)
                    room -= length(text)
        return [self._part(share) for share in shares]

    def _called(self, root: str) -> list[str]:
        """A function and those that it calls, directly or through each other, but for internal ones."""
        found, stack = {root: None}, [root]
        while stack:
            for called in self._mentions(stack.pop()):
                if called in self._functions and called not in found and not _internal(self._functions[called]):
                    found[called] = None
                    stack.append(called)
        return list(found)

    def _mentions(self, name: str) -> list[str]:
        if name not in self._mentioned:
            self._mentioned[name] = list(dict.fromkeys(_MENTIONED.findall(self._functions[name])))
        return self._mentioned[name]

    def _part(self, names: Sequence[str]) -> str:
        """A module with these functions, those internal ones that they call, and the signatures of the others.

        One of functions that are not optimised is not either: its registers are given out in one pass, too.
        """
        needed, stack = set(names), list(names)
        signatures: dict[str, None] = {}
        while stack:
            for called in self._mentions(stack.pop()):
                if called in needed or called not in self._functions:
                    continue
                if _internal(self._functions[called]):
                    needed.add(called)
                    stack.append(called)
                else:
                    signatures[self._functions[called].partition(" {\n")[0].replace("define", "declare", 1)] = None
        head = UNOPTIMISED if all([_kind(self._functions[name]) == OPTNONE for name in names]) else self._head
        return self._text(signatures, {name: text for name, text in self._functions.items() if name in needed}, head)

    def _text(self, signatures: Iterable[str], functions: Mapping[str, str], head: str) -> str:
        tail = ""
        if self._located:
            functions, tail = located(functions, self)
        nodes = [f"!{number} = {self._metadata[number]}" for number in self._nodes((*functions.values(), tail))]
        mentioned = {called for name in functions for called in self._mentions(name)}
        declarations = [*[line for name, line in self._declarations.items() if name in mentioned], *signatures]
        parts = [head, self._cpu, "\n".join(declarations), *functions.values(), tail, "\n".join(nodes)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _nodes(self, texts: Iterable[str]) -> list[int]:
        """The metadata that texts mention, directly or through each other."""
        found: set[int] = set()
        stack = list(texts)
        while stack:
            new = {int(number) for number in _NODE.findall(stack.pop())} - found
            found |= new
            stack.extend([self._metadata[number] for number in new])
        return sorted(found)


def _in_short_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Code in which long blocks are several: LLVM takes the square of the length of one that it does not optimise."""
    length = number = 0
    for line in lines:
        length = 0 if line.endswith(":") else length + 1
        yield line
        if length >= _BLOCK and line.startswith("  %"):
            length, number = 0, number + 1
            yield f"  br label %more.{number}\nmore.{number}:"


def _length_without_notes(function: str) -> int:
    return len(without_notes(function))


def _internal(function: str) -> bool:
    """Whether a function, or a constant, is in each module that mentions it."""
    return " internal " in function.partition("\n")[0]


def _kind(function: str) -> str:
    """What LLVM does for a function: all that it has where it holds ``SCALARS``, nothing for ``OPTNONE``, or little."""
    return OPTNONE if OPTNONE in function.partition("\n")[0] else SCALARS if SCALARS in function else ""


class Body:
    """The text of one function: its stack slots, then its blocks.

    What was computed in the same block, or in the first one, which comes before all others, is not computed again:
    sizes and strides are asked for wherever they are needed, and LLVM would have to read each time what it drops then.
    """

    def __init__(self) -> None:
        self._slots: list[str] = []
        self._scratch = 0  # words
        self._lines: list[str] = []
        self._count = 0
        self._first: dict[Hashable, str] = {}  # what was computed in the first block
        self._known = self._first  # and in this one
        self.repeats = False  # some of it, in a loop
        self._around, self._deepest = 0, 0  # how many loops, here and at most
        self.note = ""  # behind each instruction: where it is from (``locations.py``)

    def name(self, stem: str = "v") -> str:
        """A new name, without the sign that makes it a value."""
        self._count += 1
        return f"{stem}{self._count}"

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}{self.note}")

    def value(self, text: str, stem: str = "v") -> str:
        """Emit an instruction and give the register it defines."""
        if text.startswith(_PURE):
            return self.once(text, lambda: self._defined(text, stem))
        return self._defined(text, stem)

    def _defined(self, text: str, stem: str) -> str:
        register = "%" + self.name(stem)
        self._lines.append(f"  {register} = {text}{self.note}")
        return register

    def once(self, key: Hashable, emit: Callable[[], str]) -> str:
        """The register that ``emit`` gives, or that it gave before where this can be seen: it depends on ``key``."""
        found = self._first.get(key) or self._known.get(key)
        if found is None:
            found = self._known[key] = emit()
        return found

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._known = {}

    def branch(self, name: str) -> None:
        self.line(f"br label %{name}")

    def slot(self, type: str, alignment: int = 0, initial: str | None = None) -> str:
        """A stack slot, made (and given an initial value) on entry to the function."""
        register = "%" + self.name("slot")
        self._slots.append(f"  {register} = alloca {type}" + (f", align {alignment}" if alignment else ""))
        if initial is not None:
            self._slots.append(f"  store {type} {initial}, ptr {register}")
        return register

    def scratch(self, words: int) -> str:
        """The address of some eight-byte words on the stack, the same whenever it is asked for."""
        self._scratch = max(self._scratch, words)
        return "%scratch"

    @contextmanager
    def loop(self, start: str, stop: str, step: int, stem: str = "i", once: bool = False) -> Iterator[str]:
        """``for i = start; i < stop; i += step`` around what is emitted inside; gives ``i``.

        ``once`` says that no second iteration follows, which is a branch for LLVM then, and no loop.
        """
        known = is_constant(start) and is_constant(stop)
        if known and int(start) < int(stop) <= int(start) + step:
            yield start
            return
        if once:
            inside, after = self.name("body"), self.name("end")
            self.line(f"br i1 {self.value(f'icmp slt i64 {start}, {stop}')}, label %{inside}, label %{after}")
            self.label(inside)
            yield start
            self.branch(after)
            self.label(after)
            return
        self.repeats = True
        self._around += 1
        self._deepest = max(self._deepest, self._around)
        before, head, inside, latch, after = (self.name(part) for part in ("pre", "head", "body", "latch", "end"))
        i, following = "%" + self.name(re.sub(r"\W", "_", stem.rstrip("0123456789")) + "."), "%" + self.name("next")
        self.branch(before)
        self.label(before)
        self.branch(head)
        self.label(head)
        self.line(f"{i} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        going = self.value(f"icmp slt i64 {i}, {stop}")
        self.line(f"br i1 {going}, label %{inside}, label %{after}")
        self.label(inside)
        yield i
        self._around -= 1
        self.branch(latch)
        self.label(latch)
        self.line(f"{following} = add nsw i64 {i}, {step}")
        self.line(f"br label %{head}" if known else f"br label %{head}, !llvm.loop !0")
        self.label(after)

    def __str__(self) -> str:
        scratch = [f"  %scratch = alloca [{self._scratch} x i64]"] if self._scratch else []
        deep = [f"  {DEEP}"] if self._deepest > _NEST else []
        lines = self._lines if self.repeats else _in_short_blocks(self._lines)
        return "\n".join(["entry:", *deep, *scratch, *self._slots, *lines])

    @property
    def is_glue(self) -> bool:
        """Whether it is long, and does hardly more than compute sizes and addresses, once, and call other functions."""
        if self.repeats or len(self._lines) <= _GLUE:
            return False
        computing = sum(any(kind in line for kind in ("double", "float", " x ")) for line in self._lines)
        return computing <= len(self._lines) // _RARE

    # Arithmetic on i64

    def add(self, a: str, b: str) -> str:
        if a == "0" or b == "0":
            return b if a == "0" else a
        if is_constant(a) and is_constant(b):
            return _wrapped(int(a) + int(b))
        return self.value(f"add i64 {a}, {b}")

    def subtract(self, a: str, b: str) -> str:
        if b == "0":
            return a
        if is_constant(a) and is_constant(b):
            return _wrapped(int(a) - int(b))
        return self.value(f"sub i64 {a}, {b}")

    def multiply(self, a: str, b: str) -> str:
        if "0" in (a, b):
            return "0"
        if a == "1" or b == "1":
            return b if a == "1" else a
        if is_constant(a) and is_constant(b):
            return _wrapped(int(a) * int(b))
        return self.value(f"mul i64 {a}, {b}")

    def divide(self, a: str, b: int) -> str:
        """Towards zero, by a constant."""
        return str(int(a) // b) if is_constant(a) else self.value(f"sdiv i64 {a}, {b}")

    def floor_divide(self, a: str, b: str) -> str:
        """Towards minus infinity, by what is positive."""
        number, known = literal(a), literal(b)
        if number is not None and known is not None:
            return str(number // known)
        if number is not None and number >= 0:
            return self.value(f"sdiv i64 {a}, {b}")
        if known is not None and known & (known - 1) == 0:
            return a if known == 1 else self.value(f"ashr i64 {a}, {known.bit_length() - 1}")
        rest = self.value(f"srem i64 {a}, {b}")
        below = self.value(f"ashr i64 {rest}, 63")  # -1 where the quotient was rounded up
        return self.value(f"add i64 {self.value(f'sdiv i64 {a}, {b}')}, {below}")

    def remainder(self, a: str, b: str) -> str:
        """What ``floor_divide`` leaves, which is not negative."""
        number, known = literal(a), literal(b)
        if number is not None and known is not None:
            return str(number % known)
        if known is not None and known & (known - 1) == 0:
            return self.value(f"and i64 {a}, {known - 1}")
        rest = self.value(f"srem i64 {a}, {b}")
        more = self.value(f"and i64 {self.value(f'ashr i64 {rest}, 63')}, {b}")
        return self.value(f"add i64 {rest}, {more}")

    def whole(self, extent: str, factor: int) -> str:
        """The part of an extent that whole strips of ``factor`` cover; not above 0 when the extent is not."""
        size = literal(extent)
        if size is not None:
            return str(max(size, 0) // factor * factor)
        return self.subtract(extent, self.value(f"srem i64 {extent}, {factor}"))
