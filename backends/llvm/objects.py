"""Python's objects as LLVM IR sees them: where their fields are, and how the tables of ``copying.py`` are read.

These are parts of the binary interfaces of Python and NumPy: an object begins with how often it is referred to and with
its class; then comes what it holds. ``tuple.__basicsize__`` is where the items of a tuple begin. Slots of a class are
in the order of their names.
"""

from __future__ import annotations

from ...core.trees import Record

CODES = {"scalar": 0, "array": 1, "tuple": 2, "sum": 3, "boxed": 4, "function": 5}
STORED = {"f64": 0, "f32": 1, "signed": 2, "unsigned": 3, "bool": 4}  # how a number is stored
WALK = 9  # words
FITS, DIFFERS = 0, 1  # what ``write`` gives; 2: there is no memory

HEADER = object.__basicsize__  # of every Python object
CLASS = HEADER - 8
ITEMS = tuple.__basicsize__
CELL, VALUES = (HEADER + 8 * sorted(Record.__slots__).index(name) for name in ("_cell", "_values"))
ROW_MAJOR, ALIGNED = 0x0001, 0x0100  # flags of an array
CONTIGUOUS = ROW_MAJOR | ALIGNED


def word(name: str, type: str, base: str, number: int | str) -> str:
    """Load a word, by its number, into a register of this name."""
    return f"%{name}.place = getelementptr i64, ptr %{base}, i64 {number}\n  %{name} = load {type}, ptr %{name}.place"


def field(name: str, type: str, base: str, offset: int) -> str:
    """Load what is so many bytes behind an address."""
    return f"%{name}.place = getelementptr i8, ptr %{base}, i64 {offset}\n  %{name} = load {type}, ptr %{name}.place"
