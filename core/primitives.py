"""The table of primitives: every scalar operation of the language, one row each.

A row's ``derivative(y, *operands)`` gives one linear function an operand (see ``primitive.py``); it is written in
the language, with the operators of expressions, and serves forward and reverse mode alike. At a tie ``minimum``
and ``maximum`` send the tangent to the first operand; ``abs`` and ``sign`` have derivative 0 at 0.
"""

from __future__ import annotations

import math

import numpy as np

from .combinators import where
from .primitive import Conversion, Expansion, Instructions, Libm, Primitive, primitive
from .special import digamma
from .types import SCALARS, bool_

NUMBERS = ("float", "int")
ALL = ("float", "int", "bool")


def _instruction(**by_kind: str) -> Instructions:
    """One binary instruction a kind."""
    return Instructions({kind: f"%r = {name} $t $0, $1" for kind, name in by_kind.items()})


# A row reads best on as few lines as it needs.
# fmt: off

# Arithmetic

add = primitive(
    "add", arity=2, operands=NUMBERS, infix="+", commutative=True, numpy=np.add,
    llvm=_instruction(float="fadd", int="add"),
    derivative=lambda y, a, b: (lambda t: t, lambda t: t),
)
subtract = primitive(
    "subtract", arity=2, operands=NUMBERS, infix="-", numpy=np.subtract,
    llvm=_instruction(float="fsub", int="sub"),
    derivative=lambda y, a, b: (lambda t: t, lambda t: -t),
)
multiply = primitive(
    "multiply", arity=2, operands=NUMBERS, infix="*", commutative=True, numpy=np.multiply,
    llvm=_instruction(float="fmul", int="mul"),
    derivative=lambda y, a, b: (lambda t: t * b, lambda t: t * a),
)
divide = primitive(
    "divide", arity=2, infix="/", numpy=np.divide, cost=10,
    llvm=_instruction(float="fdiv"),
    derivative=lambda y, a, b: (lambda t: t / b, lambda t: -(t * (y / b))),
)
negative = primitive(
    "negative", operands=NUMBERS, numpy=np.negative,
    llvm=Instructions({"float": "%r = fneg $t $0", "int": "%r = sub $t zeroinitializer, $0"}),
    derivative=lambda y, x: (lambda t: -t,),
)


# Integer division is total: dividing by zero gives zero, and what guards it is a statement of its own.
_DIVISION = """\
%zero = icmp eq $t $1, zeroinitializer
%minus = sub $t zeroinitializer, $one
%negating = icmp eq $t $1, %minus
%unsafe = or $m %zero, %negating
%divisor = select $m %unsafe, $t $one, $t $1
%quotient = sdiv $t $0, %divisor
%product = mul $t %quotient, %divisor
%rest = sub $t $0, %product
%inexact = icmp ne $t %rest, zeroinitializer
%signs = xor $t %rest, %divisor
%opposite = icmp slt $t %signs, zeroinitializer
%adjust = and $m %inexact, %opposite
"""
floor_divide = primitive(
    "floor_divide", arity=2, operands=("int",), infix="//", numpy=np.floor_divide, cost=20,
    llvm=Instructions({"int": _DIVISION + """\
%lower = sub $t %quotient, $one
%floor = select $m %adjust, $t %lower, $t %quotient
%negated = sub $t zeroinitializer, $0
%whole = select $m %negating, $t %negated, $t %floor
%r = select $m %zero, $t zeroinitializer, $t %whole"""}),
)
remainder = primitive(
    "remainder", arity=2, operands=("int",), infix="%", numpy=np.remainder, cost=20,
    llvm=Instructions({"int": _DIVISION + """\
%shifted = add $t %rest, %divisor
%modulo = select $m %adjust, $t %shifted, $t %rest
%r = select $m %unsafe, $t zeroinitializer, $t %modulo"""}),
)

# Powers, exponentials and logarithms

power = primitive(
    "power", arity=2, infix="**", numpy=np.power, llvm=Libm("pow"), cost=60,
    derivative=lambda y, a, b: (
        lambda t: where(b == 0, 0.0, t * (b * a ** (b - 1.0))),
        lambda t: where(a == 0, 0.0, t * (y * log(a))),
    ),
)
exp = primitive("exp", numpy=np.exp, llvm=Libm("exp"), cost=20, derivative=lambda y, x: (lambda t: t * y,))
log: Primitive = primitive("log", numpy=np.log, llvm=Libm("log"), cost=20, derivative=lambda y, x: (lambda t: t / x,))
expm1 = primitive(
    "expm1", numpy=np.expm1, llvm=Libm("expm1"), cost=30, derivative=lambda y, x: (lambda t: t * (y + 1.0),)
)
log1p = primitive(
    "log1p", numpy=np.log1p, llvm=Libm("log1p"), cost=30, derivative=lambda y, x: (lambda t: t / (x + 1.0),)
)
sqrt = primitive(
    "sqrt", numpy=np.sqrt, cost=10, llvm=Instructions({"float": "%r = call $t @llvm.sqrt.$v($t $0)"}),
    derivative=lambda y, x: (lambda t: t * 0.5 / y,),
)

# Trigonometric and hyperbolic functions

sin = primitive("sin", numpy=np.sin, llvm=Libm("sin"), cost=25, derivative=lambda y, x: (lambda t: t * cos(x),))
cos: Primitive = primitive(
    "cos", numpy=np.cos, llvm=Libm("cos"), cost=25, derivative=lambda y, x: (lambda t: -(t * sin(x)),)
)
tanh = primitive(
    "tanh", numpy=np.tanh, llvm=Libm("tanh"), cost=30, derivative=lambda y, x: (lambda t: t * (1.0 - y * y),)
)

# Special functions


def _lgamma(x: float) -> float:
    """As in C: infinity at the poles and where the value is too large."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


lgamma = primitive(
    "lgamma", numpy=np.vectorize(_lgamma, otypes=[np.float64]), llvm=Libm("lgamma"), cost=60,
    derivative=lambda y, x: (lambda t: t * digamma(x),),
)

# Minimum, maximum, absolute value, sign

minimum = primitive(
    "minimum", arity=2, operands=NUMBERS, numpy=np.minimum,
    llvm=Instructions({
        "float": "%r = call $t @llvm.minimum.$v($t $0, $t $1)",
        "int": "%r = call $t @llvm.smin.$v($t $0, $t $1)",
    }),
    derivative=lambda y, a, b: (lambda t: where(a <= b, t, 0.0), lambda t: where(a <= b, 0.0, t)),
)
maximum = primitive(
    "maximum", arity=2, operands=NUMBERS, numpy=np.maximum,
    llvm=Instructions({
        "float": "%r = call $t @llvm.maximum.$v($t $0, $t $1)",
        "int": "%r = call $t @llvm.smax.$v($t $0, $t $1)",
    }),
    derivative=lambda y, a, b: (lambda t: where(a >= b, t, 0.0), lambda t: where(a >= b, 0.0, t)),
)
abs_ = primitive(
    "abs", operands=NUMBERS, numpy=np.abs,
    llvm=Instructions({
        "float": "%r = call $t @llvm.fabs.$v($t $0)",
        "int": "%r = call $t @llvm.abs.$v($t $0, i1 false)",
    }),
    derivative=lambda y, x: (lambda t: t * sign(x),),
)
sign: Primitive = primitive(
    "sign", operands=NUMBERS, numpy=np.sign,
    llvm=Expansion(lambda x: where(x > 0, 1, where(x < 0, -1, x))),
    derivative=lambda y, x: (None,),
)

# Comparisons and logic

for _name, _infix, _float, _int in (
    ("less", "<", "olt", "slt"),
    ("less_equal", "<=", "ole", "sle"),
    ("greater", ">", "ogt", "sgt"),
    ("greater_equal", ">=", "oge", "sge"),
    ("equal", "==", "oeq", "eq"),
    ("not_equal", "!=", "une", "ne"),
):
    primitive(
        _name, arity=2, operands=ALL if "equal" in (_name, _name[4:]) else NUMBERS, infix=_infix, result=bool_,
        numpy=getattr(np, _name), commutative=_int in ("eq", "ne"),
        llvm=Instructions({
            "float": f"%r = fcmp {_float} $t $0, $1",
            "int": f"%r = icmp {_int} $t $0, $1",
            "bool": f"%r = icmp {_int} $t $0, $1",
        }),
    )
logical_and = primitive(
    "logical_and", arity=2, operands=("bool",), infix="and", numpy=np.logical_and, commutative=True,
    llvm=_instruction(bool="and"),
)
logical_or = primitive(
    "logical_or", arity=2, operands=("bool",), infix="or", numpy=np.logical_or, commutative=True,
    llvm=_instruction(bool="or"),
)
logical_not = primitive(
    "logical_not", operands=("bool",), numpy=np.logical_not,
    llvm=Instructions({"bool": "%r = icmp eq $t $0, zeroinitializer"}),
)

# Conversions: one a scalar type, named like it, with NumPy's meaning of astype

CONVERSIONS: dict[str, Primitive] = {
    scalar.name: primitive(
        scalar.name, operands=ALL, result=scalar, mixed=True, llvm=Conversion(scalar),
        numpy=lambda x, dtype=scalar.dtype: np.asarray(x).astype(dtype)[()],
        derivative=(lambda y, x: (lambda t: convert_like(t, x),)) if scalar.kind == "float" else None,
    )
    for scalar in SCALARS.values()
}


def convert_like(t: object, x: object) -> object:
    """A tangent of a conversion's result, converted to the type of its operand."""
    return CONVERSIONS[x.type.name](t)  # type: ignore[attr-defined]


# Derivatives

stop_gradient = primitive(
    "stop_gradient", operands=NUMBERS, numpy=np.positive, llvm=Expansion(lambda x: x),
    derivative=lambda y, x: (None,),
)
