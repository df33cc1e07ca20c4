"""Updates of one place by many threads, as functions of OpenCL C.

What the device can combine at once it does by itself: sums, minima, maxima and bits of integers. Everything else is
compare-and-swap: combine with what the place is thought to have, and write the result if it does have that, or else
begin again with what was seen. The values are compared by their bits, as integers of the same size. The first thought
is zero, with which most accumulators begin; to read the place instead would be a race.

    void atomic_add_double_global(volatile global double *place, double value) {
      volatile global long *word = (volatile global long *)place;
      long seen = 0, old;
      do {
        old = seen;
        seen = atom_cmpxchg(word, old, as_long(as_double(old) + value));
      } while (seen != old);
    }

What has less than four bytes, as a truth value, is part of an aligned word of four, which is compared and swapped. So
a buffer that is updated has room for whole words.
"""

from __future__ import annotations

from typing import Literal

from ...core.primitive import Primitive
from ...core.types import Scalar
from .names import identifier
from .primitives import MEMORY, REGISTER, UNARY, C, Speller

Space = Literal["global", "local"]

_NATIVE = {
    "add": "add",
    "minimum": "min",
    "maximum": "max",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}
_EXTENDED = "cl_khr_int64_extended_atomics"
_ENABLED = f"""\
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#ifdef {_EXTENDED}
#pragma OPENCL EXTENSION {_EXTENDED} : enable
#endif"""


def updater(speller: Speller, primitive: Primitive, scalar: Scalar, space: Space) -> str:
    """The name of a function that takes a pointer and a value to combine into the place; it is among the helpers."""
    type = REGISTER[scalar]
    name = f"atomic_{identifier(primitive.name)}_{type}_{space}"
    if name in speller.helpers:
        return name
    if scalar.bits == 64:
        speller.helpers.setdefault("64-bit atomics", _ENABLED)
    write = _parts if scalar.bits < 32 else _swap
    body = write(speller, primitive, scalar, space)
    native = _NATIVE.get(primitive.name)
    if scalar.kind == "int" and scalar.bits >= 32 and native is not None:
        body = _by_device(native, scalar, body)
    speller.define(name, f"void {name}(volatile {space} {MEMORY[scalar]} *place, {type} value)", body)
    return name


def _by_device(native: str, scalar: Scalar, otherwise: str) -> str:
    """The device's own operation; of 64 bits, not all devices have more than sums."""
    if scalar.bits == 32 or native == "add":
        return f"{'atomic' if scalar.bits == 32 else 'atom'}_{native}(place, value);"
    return f"#ifdef {_EXTENDED}\natom_{native}(place, value);\n#else\n{otherwise}\n#endif"


def _swap(speller: Speller, primitive: Primitive, scalar: Scalar, space: Space) -> str:
    type = REGISTER[scalar]
    word, swap = ("int", "atomic_cmpxchg") if scalar.bits == 32 else ("long", "atom_cmpxchg")
    first, place, old, new = "", "place", "old", "{}"
    if scalar.kind == "int":
        word = type
    else:
        first, place = f"volatile {space} {word} *word = (volatile {space} {word} *)place;\n", "word"
        old, new = f"as_{type}(old)", f"as_{word}({{}})"
    combined = new.format(speller.spell(primitive, (scalar, scalar), (C(old), C("value"))).text)
    return f"""\
{first}{word} seen = 0, old;
do {{
  old = seen;
  seen = {swap}({place}, old, {combined});
}} while (seen != old);"""


def _parts(speller: Speller, primitive: Primitive, scalar: Scalar, space: Space) -> str:
    old = C(f"({REGISTER[scalar]})next.parts[part]", UNARY)
    combined = speller.spell(primitive, (scalar, scalar), (old, C("value")))
    return f"""\
volatile {space} int *word = (volatile {space} int *)((size_t)place & ~(size_t)3);
size_t part = ((size_t)place & 3) / {scalar.bytes};
union {{ int word; {MEMORY[scalar]} parts[{4 // scalar.bytes}]; }} next;
int seen = 0, old;
do {{
  old = next.word = seen;
  next.parts[part] = {combined.text};
  seen = atomic_cmpxchg(word, old, next.word);
}} while (seen != old);"""
