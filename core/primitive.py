"""What a primitive is: a scalar operation as one row of data.

A row holds everything every interpretation needs to know of an operation: its type rule, its NumPy meaning, its
derivative, its spellings in LLVM and in OpenCL C, and how it prints. The rows themselves stand in ``primitives.py``.
A derivative is written once, in the language itself: one linear function an operand, from a tangent to its
contribution to the result's tangent. A linear function of one number is its own transpose, so forward and reverse mode
use the same rule, and a rule may mask its argument before it meets a factor that is infinite.

    tanh = primitive("tanh", numpy=np.tanh, llvm=Libm("tanh"),
                     derivative=lambda y, x: (lambda t: t * (1 - y * y),))

Calling a primitive applies it: elementwise with broadcasting to expressions, with its NumPy meaning to numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typeguard import typeguard_ignore

from .source import at_line
from .trees import Structure
from .types import Scalar

Rule = Callable[..., Sequence[Callable[[Any], Any] | None]]


@dataclass(frozen=True)
class Instructions:
    """LLVM instructions as text, one a line, by kind of the operands; the last line defines ``%r``.

    Integers without a sign are of the kind "unsigned" where that is there, and else of the kind "int".

    ``$0 $1 ...`` are the operands, ``$t`` their type (a scalar or vector type), ``$m`` the mask type of the same
    width, ``$b`` the type of integers of the same width, ``$v`` the intrinsic suffix of ``$t`` (``f64``, ``v8f64``),
    ``$one`` a one of type ``$t``, ``$last`` the number of its last bit, ``$u`` the result's type; other names after
    ``%`` are temporaries. Zero is written ``zeroinitializer``.

    ``in_chains`` are others that give the same numbers, by kind, for scalars that the next step of a loop waits for:
    less stands between the last operand and the result.
    """

    by_kind: dict[str, str]
    in_chains: dict[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((*self.by_kind.items(), *self.in_chains.items()))

    @typeguard_ignore
    def of(self, scalar: Scalar, in_chain: bool = False) -> str:
        """The instructions for operands of a type, in a chain or elsewhere."""
        kinds = self.by_kind | self.in_chains if in_chain else self.by_kind
        return kinds.get(scalar.spelling) or kinds[scalar.kind]


@dataclass(frozen=True)
class Libm:
    """A function of the C mathematical library; on vectors, its vector version where there is one."""

    function: str


@dataclass(frozen=True)
class Conversion:
    """The conversion of any scalar to ``target``, with NumPy's meaning of ``astype``."""

    target: Scalar


@dataclass(frozen=True)
class Expansion:
    """The operation written in the language, from other primitives; on arguments of one scalar type."""

    definition: Callable[..., Any]


Spelling = Instructions | Libm | Conversion | Expansion

# OpenCL C as text: an expression of the operands `$0 $1 ...`, or the statements of a function that `return` the result.
# `$t` is the operands' C type, and `u$t` the unsigned one in which C computes with it; `$last` is the number of an
# integer's last bit. As in LLVM, integers without a sign may have a spelling of their own.
OpenCL = str

# The functions of the C mathematical library that OpenCL C has too, by the same name and for all floating types.
_BUILTINS = re.compile(
    "a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp2?|expm1|fabs|fdim|floor|fma|fmax|fmin|fmod|hypot|lgamma|"
    "log(10|1p|2|b)?|nextafter|pow|remainder|rint|round|sqrt|tgamma|trunc"
)


_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool"}  # of scalars, by NumPy's letters


def _itself(x: Any) -> Any:
    return np.asarray(x)[()]


@dataclass(frozen=True, eq=False)
class Guard:
    """What the last of integer operands must satisfy where the user applies an operation; the operation is total.

    A failure is of this kind (see ``terms.Failure``) and says the message, with the user's line.
    """

    test: Callable[[Any], Any]  # written in the language
    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class Primitive:
    """A scalar operation. Build one with :func:`primitive`."""

    name: str
    arity: int
    operands: tuple[str, ...]  # the kinds it takes: "float", "int", "bool"
    result: Scalar | None  # None: the operands' type
    numpy: Callable[..., Any]
    derivative: Rule | None
    llvm: Spelling
    infix: str | None = None  # as printed between two operands
    commutative: bool = False
    mixed: bool = False  # operands may differ in type (conversions have one operand of any type)
    cost: int = 1  # about how many additions it is worth
    otherwise: Mapping[str, str | None] = field(default_factory=dict)  # other kinds: another row, or the operand itself
    guard: Guard | None = None
    opencl: Mapping[str, OpenCL] = field(default_factory=dict)  # by kind; expansions and conversions need none
    finite: bool = False  # whether all its partial derivatives are finite numbers wherever its operands are
    identity: bool = False  # whether its value is its operand: it says something to derivatives alone

    def __call__(self, *arguments: Any, **options: Any) -> Structure:
        """Apply elementwise; the result is an expression when an argument is one."""
        if len(arguments) != self.arity or options:
            given = f"{len(arguments)}{''.join([f' and {name}=' for name in options])}"
            raise TypeError(at_line(f"{self.name} takes {self.arity} argument(s), got {given}"))
        for argument in arguments:
            apply = getattr(argument, "apply_primitive", None)
            if apply is not None:
                expression: Structure = apply(self, arguments)
                return expression
        with np.errstate(all="ignore"):
            # An operand may be the result: NumPy's versions differ in the type they give (of floor, for integers).
            kind = _KINDS.get(np.asarray(arguments[0]).dtype.kind)
            itself = kind is not None and self.otherwise.get(kind, self.name) is None
            meaning: Callable[..., Any] = _itself if itself else self.numpy
            number: Structure = meaning(*arguments)
            return number

    def describe(self, text: str) -> None:
        """Say what ``help`` says of it, behind the call."""
        object.__setattr__(self, "__doc__", f"{self.name}({', '.join('xyzuvw'[: self.arity])}): {text}")

    @typeguard_ignore  # every operation of every pass comes here
    def result_type(self, types: Sequence[Scalar]) -> Scalar:
        """The type of the result; TypeError says what the operation takes when the operands do not fit."""
        for type in types:
            if type.kind not in self.operands:
                others = [kind for kind in self.otherwise if kind not in self.operands]
                wanted = " or ".join([*self.operands, *others])
                raise TypeError(f"{self.name} takes {wanted} operands, got {', '.join(map(str, types))}")
        if not self.mixed and any([type is not types[0] for type in types]):
            raise TypeError(f"{self.name} takes operands of one type, got {', '.join(map(str, types))}")
        return types[0] if self.result is None else self.result

    @typeguard_ignore
    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], Primitive], tuple[str]]:
        return lookup, (self.name,)


PRIMITIVES: dict[str, Primitive] = {}
MEANINGS: dict[Callable[..., Any], Primitive] = {}  # the same rows by their meaning, to find them for NumPy's functions


@typeguard_ignore
def lookup(name: str) -> Primitive:
    """The row with this name; KeyError when the table has none."""
    return PRIMITIVES[name]


def primitive(
    name: str,
    *,
    numpy: Callable[..., Any],
    llvm: Spelling,
    derivative: Rule | None = None,
    arity: int = 1,
    operands: tuple[str, ...] = ("float",),
    result: Scalar | None = None,
    infix: str | None = None,
    commutative: bool = False,
    mixed: bool = False,
    cost: int = 1,
    otherwise: Mapping[str, str | None] | None = None,
    guard: Guard | None = None,
    opencl: OpenCL | Mapping[str, OpenCL] | None = None,
    finite: bool = False,
    identity: bool = False,
    doc: str = "",
) -> Primitive:
    """Add a primitive to the language and give it back; it is at once part of every interpretation.

    ``numpy`` is its meaning on NumPy scalars and arrays; ``derivative(result, *operands)`` gives one linear
    function (or None for zero) an operand; ``llvm`` its spelling. A primitive whose result is floating must have
    a derivative: TypeError otherwise. A row with the name of another one replaces it.

    ``opencl`` is its spelling in OpenCL C: for all kinds of operands, or by kind. It is an expression such as
    ``"copysign($0, $1)"``, or a function's statements: ``"if ($0 < 0) return 0; return sqrt($0);"``. ``$t`` stands
    for the operands' C type. An :class:`Expansion` needs none, nor does a :class:`Libm` whose function OpenCL has by
    the same name. Without one, programs with this primitive are refused by the OpenCL backend alone.

    ``finite`` says that the partial derivatives are finite numbers wherever the operands are, as those of ``sin`` are
    and those of ``sqrt`` and ``exp`` are not. Without it, a value that is computed before a branch and read in it is
    differentiated with one test more: where the branch was not taken its share is 0, whatever the partial derivative.

    ``identity`` says that its value is its operand's, as that of ``stop_gradient`` is: compiled code has no such
    primitives, for derivatives have been taken by then.

    ``doc`` is what ``help`` says of it: what it computes, and where it is defined.
    """
    floating = "float" in operands and (result is None or result.kind == "float")
    if floating and derivative is None:
        raise TypeError(f"primitive {name!r} has floating operands and result, so it needs a derivative")
    if opencl is None and isinstance(llvm, Libm) and _BUILTINS.fullmatch(llvm.function):
        opencl = f"{llvm.function}({', '.join(f'${number}' for number in range(arity))})"
    if isinstance(opencl, str):
        opencl = dict.fromkeys(operands, opencl)
    row = Primitive(
        name=name,
        arity=arity,
        operands=operands,
        result=result,
        numpy=numpy,
        derivative=derivative,
        llvm=llvm,
        infix=infix,
        commutative=commutative,
        mixed=mixed,
        cost=cost,
        otherwise=otherwise or {},
        guard=guard,
        opencl=opencl or {},
        finite=finite,
        identity=identity,
    )
    if doc:
        row.describe(doc)
    PRIMITIVES[name] = row
    if MEANINGS.setdefault(numpy, row).name == name:  # where two rows share a meaning, the first is NumPy's function
        MEANINGS[numpy] = row
    return row
