"""The table of primitives: every scalar operation of the language, one row each.

A row's ``derivative(y, *operands)`` gives one linear function an operand (see ``primitive.py``); it is written in
the language, with the operators of expressions, and serves forward and reverse mode alike. At a tie ``minimum``
and ``maximum`` send the tangent to the first operand; ``abs``, ``sign`` and ``hypot`` have derivative 0 at 0, steps
have derivative 0 everywhere.

Meanings are NumPy's, and total. Where NumPy leaves a result to the machine it is fixed here: an integer divided by
zero is zero, and of floating numbers an integer becomes the nearest that its type holds, or zero for NaN. What guards
these cases is a statement beside the operation. What can be said in terms of these rows is in ``special.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .combinators import fori_loop, where
from .expr import as_expr
from .primitive import Conversion, Expansion, Guard, Instructions, Libm, Primitive, primitive
from .types import SCALARS, Scalar, bool_

NUMBERS = ("float", "int")
ALL = ("float", "int", "bool")


def _instruction(**by_kind: str) -> Instructions:
    """One binary instruction a kind."""
    return Instructions({kind: f"%r = {name} $t $0, $1" for kind, name in by_kind.items()})


def by_element(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of Python's floats on NumPy's scalars and arrays; computed in double precision, of the same type."""

    def apply(x: Any) -> Any:
        x = np.asarray(x)
        found = np.vectorize(function, otypes=[np.float64])(x.astype(np.float64))
        return (found.astype(x.dtype) if x.dtype.kind == "f" else found)[()]

    return apply


# A row reads best on as few lines as it needs.
# fmt: off

# Arithmetic

add = primitive(
    "add", arity=2, operands=NUMBERS, otherwise={"bool": "logical_or"}, infix="+", commutative=True, numpy=np.add,
    llvm=_instruction(float="fadd", int="add"), opencl={"float": "$0 + $1", "int": "($t)((u$t)$0 + $1)"},
    finite=True, derivative=lambda y, a, b: (lambda t: t, lambda t: t),
)
subtract = primitive(
    "subtract", arity=2, operands=NUMBERS, infix="-", numpy=np.subtract,
    llvm=_instruction(float="fsub", int="sub"), opencl={"float": "$0 - $1", "int": "($t)((u$t)$0 - $1)"},
    finite=True, derivative=lambda y, a, b: (lambda t: t, lambda t: -t),
)
multiply = primitive(
    "multiply", arity=2, operands=NUMBERS, otherwise={"bool": "logical_and"}, infix="*", commutative=True,
    numpy=np.multiply,
    llvm=_instruction(float="fmul", int="mul"), opencl={"float": "$0 * $1", "int": "($t)((u$t)$0 * $1)"},
    finite=True, derivative=lambda y, a, b: (lambda t: t * b, lambda t: t * a),
)
divide = primitive(
    "divide", arity=2, infix="/", numpy=np.divide, cost=10,
    llvm=_instruction(float="fdiv"), opencl="$0 / $1",
    derivative=lambda y, a, b: (lambda t: t / b, lambda t: -(t * (y / b))),
)
negative = primitive(
    "negative", operands=NUMBERS, numpy=np.negative,
    llvm=Instructions({"float": "%r = fneg $t $0", "int": "%r = sub $t zeroinitializer, $0"}),
    opencl={"float": "-$0", "int": "($t)(0 - (u$t)$0)"},
    finite=True, derivative=lambda y, x: (lambda t: -t,),
)


_NONZERO = Guard(lambda divisor: divisor != 0, "division", "integer division by zero")
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
_UNSIGNED_DIVISION = """\
%zero = icmp eq $t $1, zeroinitializer
%divisor = select $m %zero, $t $one, $t $1
%whole = udiv $t $0, %divisor
%product = mul $t %whole, %divisor
%rest = sub $t $0, %product
"""
_UNSIGNED_QUOTIENT = _UNSIGNED_DIVISION + "%r = select $m %zero, $t zeroinitializer, $t %whole"
_UNSIGNED_REST = _UNSIGNED_DIVISION + "%r = select $m %zero, $t zeroinitializer, $t %rest"
floor_divide = primitive(
    "floor_divide", arity=2, operands=("int",), otherwise={"float": "floor_quotient"}, infix="//", cost=20,
    numpy=np.floor_divide, guard=_NONZERO,
    llvm=Instructions({"int": _DIVISION + """\
%lower = sub $t %quotient, $one
%floor = select $m %adjust, $t %lower, $t %quotient
%negated = sub $t zeroinitializer, $0
%whole = select $m %negating, $t %negated, $t %floor
%r = select $m %zero, $t zeroinitializer, $t %whole""", "unsigned": _UNSIGNED_QUOTIENT}),
    opencl={"int": """\
if ($1 == 0) return 0;
if ($1 == -1) return ($t)(0 - (u$t)$0);
return $0 / $1 - ($0 % $1 != 0 && ($0 < 0) != ($1 < 0));""", "unsigned": "$1 == 0 ? 0 : $0 / $1"},
)
remainder = primitive(
    "remainder", arity=2, operands=("int",), otherwise={"float": "floor_remainder"}, infix="%", cost=20,
    numpy=np.remainder, guard=_NONZERO,
    llvm=Instructions({"int": _DIVISION + """\
%shifted = add $t %rest, %divisor
%modulo = select $m %adjust, $t %shifted, $t %rest
%r = select $m %unsafe, $t zeroinitializer, $t %modulo""", "unsigned": _UNSIGNED_REST}),
    opencl={"int": """\
if ($1 == 0 || $1 == -1) return 0;
$t rest = $0 % $1;
return rest != 0 && (rest < 0) != ($1 < 0) ? rest + $1 : rest;""", "unsigned": "$1 == 0 ? 0 : $0 % $1"},
)

fmod: Primitive = primitive(
    "fmod", arity=2, operands=NUMBERS, otherwise={"bool": "remainder"}, numpy=np.fmod, cost=40, guard=_NONZERO,
    llvm=Instructions({"float": "%r = frem $t $0, $1", "int": _DIVISION + """\
%r = select $m %unsafe, $t zeroinitializer, $t %rest""", "unsigned": _UNSIGNED_REST}),
    opencl={
        "float": "fmod($0, $1)",
        "int": "$1 == 0 || $1 == -1 ? 0 : $0 % $1",
        "unsigned": "$1 == 0 ? 0 : $0 % $1",
    },
    derivative=lambda y, a, b: (lambda t: t, lambda t: -(t * trunc(a / b))),
)


def _signed_like(x: Any, other: Any) -> Any:
    return where(other < 0, -abs(x), abs(x))


def _floor_quotient(a: Any, b: Any) -> Any:
    """As NumPy has it: the exact remainder is taken away first, and the quotient snaps to the nearest whole number."""
    rest = fmod(a, b)
    quotient = (a - rest) / b
    quotient = where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1.0, quotient)
    below = floor(quotient)
    whole = where(quotient - below > 0.5, below + 1.0, below)
    return where(b == 0, a / b, where(quotient == 0, 0.0 * (a / b), whole))


def _floor_remainder(a: Any, b: Any) -> Any:
    rest = fmod(a, b)
    return where(rest == 0, _signed_like(rest, b), where((rest < 0) != (b < 0), rest + b, rest))


floor_quotient = primitive(
    "floor_quotient", arity=2, infix="//", numpy=np.floor_divide, llvm=Expansion(_floor_quotient), cost=60,
    derivative=lambda y, a, b: (None, None),
)
floor_remainder = primitive(
    "floor_remainder", arity=2, infix="%", numpy=np.remainder, llvm=Expansion(_floor_remainder), cost=50,
    derivative=lambda y, a, b: (lambda t: t, lambda t: -(t * floor(a / b))),
)

# Powers, exponentials and logarithms


def _integer_power(x: Any, exponent: Any) -> Any:
    """By squaring, over the bits of the exponent; a negative one counts as zero."""

    def step(k: Any, state: Any) -> Any:
        product, factor, bits = state
        return where(bits & 1 == 1, product * factor, product), factor * factor, bits >> 1

    start = as_expr(1, x.dtype), x, maximum(exponent, 0)
    product: Any = fori_loop(0, x.dtype.most.bit_length(), step, start)
    return product[0]


power = primitive(
    "power", arity=2, otherwise={"int": "integer_power", "bool": "integer_power"}, infix="**",
    numpy=np.power, llvm=Libm("pow"), cost=60,
    derivative=lambda y, a, b: (
        lambda t: where(b == 0, 0.0, t * (b * a ** (b - 1.0))),
        lambda t: where(a == 0, 0.0, t * (y * log(a))),
    ),
)
integer_power = primitive(
    "integer_power", arity=2, operands=("int",), infix="**", cost=200,
    numpy=lambda x, exponent: np.power(x, np.maximum(exponent, 0)), llvm=Expansion(_integer_power),
    guard=Guard(lambda exponent: exponent >= 0, "domain", "an integer to a negative power"),
)
exp: Primitive = primitive("exp", numpy=np.exp, llvm=Libm("exp"), cost=20, derivative=lambda y, x: (lambda t: t * y,))
exp2 = primitive(
    "exp2", numpy=np.exp2, llvm=Libm("exp2"), cost=20, derivative=lambda y, x: (lambda t: t * (y * math.log(2)),)
)
log: Primitive = primitive("log", numpy=np.log, llvm=Libm("log"), cost=20, derivative=lambda y, x: (lambda t: t / x,))
log2 = primitive(
    "log2", numpy=np.log2, llvm=Libm("log2"), cost=20, derivative=lambda y, x: (lambda t: t / (x * math.log(2)),)
)
log10 = primitive(
    "log10", numpy=np.log10, llvm=Libm("log10"), cost=20, derivative=lambda y, x: (lambda t: t / (x * math.log(10)),)
)
expm1 = primitive(
    "expm1", numpy=np.expm1, llvm=Libm("expm1"), cost=30, derivative=lambda y, x: (lambda t: t * (y + 1.0),)
)
log1p: Primitive = primitive(
    "log1p", numpy=np.log1p, llvm=Libm("log1p"), cost=30, derivative=lambda y, x: (lambda t: t / (x + 1.0),)
)
sqrt: Primitive = primitive(
    "sqrt", numpy=np.sqrt, cost=10, llvm=Instructions({"float": "%r = call $t @llvm.sqrt.$v($t $0)"}),
    opencl="sqrt($0)",
    derivative=lambda y, x: (lambda t: t * 0.5 / y,),
)
cbrt = primitive(
    "cbrt", numpy=np.cbrt, llvm=Libm("cbrt"), cost=40, derivative=lambda y, x: (lambda t: t / (3.0 * (y * y)),)
)
hypot: Primitive = primitive(
    "hypot", arity=2, commutative=True, numpy=np.hypot, llvm=Libm("hypot"), cost=30,
    finite=True, derivative=lambda y, a, b: (
        lambda t: where(y == 0, 0.0, t * (a / y)),
        lambda t: where(y == 0, 0.0, t * (b / y)),
    ),
)
logaddexp = primitive(
    "logaddexp", arity=2, commutative=True, numpy=np.logaddexp, cost=60,
    llvm=Expansion(lambda a, b: where(a == b, a + math.log(2), maximum(a, b) + log1p(exp(-abs(a - b))))),
    finite=True, derivative=lambda y, a, b: (
        lambda t: t * where(a == y, 1.0, exp(a - y)),  # where both are infinite, too
        lambda t: t * where(b == y, 1.0, exp(b - y)),
    ),
)
sigmoid = primitive(
    "sigmoid", numpy=lambda x: 1 / (1 + np.exp(-x)), cost=30,
    llvm=Expansion(lambda x: 1.0 / (1.0 + exp(-x))),
    finite=True, derivative=lambda y, x: (lambda t: t * (y * (1.0 - y)),),
)

# Trigonometric and hyperbolic functions

sin = primitive("sin", numpy=np.sin, llvm=Libm("sin"), cost=25, finite=True,
derivative=lambda y, x: (lambda t: t * cos(x),))
cos: Primitive = primitive(
    "cos", numpy=np.cos, llvm=Libm("cos"), cost=25, finite=True, derivative=lambda y, x: (lambda t: -(t * sin(x)),)
)
tan = primitive(
    "tan", numpy=np.tan, llvm=Libm("tan"), cost=35, finite=True, derivative=lambda y, x: (lambda t: t * (1.0 + y * y),)
)
asin = primitive(
    "asin", numpy=np.arcsin, llvm=Libm("asin"), cost=40,
    derivative=lambda y, x: (lambda t: t / sqrt((1.0 - x) * (1.0 + x)),),
)
acos = primitive(
    "acos", numpy=np.arccos, llvm=Libm("acos"), cost=40,
    derivative=lambda y, x: (lambda t: -(t / sqrt((1.0 - x) * (1.0 + x))),),
)
atan = primitive(
    "atan", numpy=np.arctan, llvm=Libm("atan"), cost=40, finite=True,
    derivative=lambda y, x: (lambda t: t / (1.0 + x * x),)
)
atan2 = primitive(
    "atan2", arity=2, numpy=np.arctan2, llvm=Libm("atan2"), cost=50,
    derivative=lambda y, a, b: (
        lambda t: t * (b / hypot(a, b)) / hypot(a, b),
        lambda t: -(t * (a / hypot(a, b)) / hypot(a, b)),
    ),
)
sinh = primitive("sinh", numpy=np.sinh, llvm=Libm("sinh"), cost=40, derivative=lambda y, x: (lambda t: t * cosh(x),))
cosh: Primitive = primitive(
    "cosh", numpy=np.cosh, llvm=Libm("cosh"), cost=40, derivative=lambda y, x: (lambda t: t * sinh(x),)
)
tanh = primitive(
    "tanh", numpy=np.tanh, llvm=Libm("tanh"), cost=30, finite=True,
    derivative=lambda y, x: (lambda t: t * (1.0 - y * y),)
)
asinh = primitive(
    "asinh", numpy=np.arcsinh, llvm=Libm("asinh"), cost=40, finite=True,
    derivative=lambda y, x: (lambda t: t / hypot(x, 1.0),)
)
acosh = primitive(
    "acosh", numpy=np.arccosh, llvm=Libm("acosh"), cost=40,
    derivative=lambda y, x: (lambda t: t / sqrt(x - 1.0) / sqrt(x + 1.0),),
)
atanh = primitive(
    "atanh", numpy=np.arctanh, llvm=Libm("atanh"), cost=40,
    derivative=lambda y, x: (lambda t: t / ((1.0 - x) * (1.0 + x)),),
)

# Special functions (those of the gamma function are in gamma.py)

erf = primitive(
    "erf", numpy=by_element(math.erf), llvm=Libm("erf"), cost=40,
    finite=True, derivative=lambda y, x: (lambda t: t * (2 / math.sqrt(math.pi) * exp(-(x * x))),),
)
erfc = primitive(
    "erfc", numpy=by_element(math.erfc), llvm=Libm("erfc"), cost=60,
    finite=True, derivative=lambda y, x: (lambda t: -(t * (2 / math.sqrt(math.pi) * exp(-(x * x)))),),
)

# Rounding to whole numbers (integers are whole already)


def _rounding(name: str, intrinsic: str, opencl: str, numpy: Callable[..., Any]) -> Primitive:
    return primitive(
        name, numpy=numpy, otherwise={"int": None, "bool": None}, derivative=lambda y, x: (None,),
        llvm=Instructions({"float": f"%r = call $t @llvm.{intrinsic}.$v($t $0)"}), opencl=f"{opencl}($0)",
    )


floor: Primitive = _rounding("floor", "floor", "floor", np.floor)
ceil = _rounding("ceil", "ceil", "ceil", np.ceil)
trunc: Primitive = _rounding("trunc", "trunc", "trunc", np.trunc)
round_ = _rounding("round", "roundeven", "rint", np.rint)

# Minimum, maximum, absolute value, sign


def _extremum(order: str, bits: str, alone: str, in_chains: str) -> Instructions:
    """The operand that comes first in an order of floats, or one that is not a number.

    A comparison finds the second operand where that is not a number, and where both are zeros. The rest looks at the
    first one: if it is not a number it is the result, and of zeros the bits of both say the sign. That waits for
    nothing of the second operand, which a recurrence has last. LLVM's intrinsics look at both, with more instructions.

    What is done last selects floats, as LLVM would put integers that are stored into other registers. In a chain,
    floats are selected before, and a fence says what registers to use: LLVM makes no lanes of a chain anyway.
    """
    found = f"""\
%before = fcmp {order} $t $0, $1
%found = select $m %before, $t $0, $t $1
%bits = bitcast $t %found to $b
{bits}
"""
    fenced = """
%chosen = bitcast $b %all to $t
%r = call $t @llvm.arithmetic.fence.$v($t %chosen)"""
    named = "min" if order == "olt" else "max"
    integers = {
        "int": f"%r = call $t @llvm.s{named}.$v($t $0, $t $1)",
        "unsigned": f"%r = call $t @llvm.u{named}.$v($t $0, $t $1)",
    }
    return Instructions({"float": found + alone, **integers}, {"float": found + in_chains + fenced})


_MINIMUM = _extremum(
    "olt",
    "%apart = fcmp ueq $t $0, zeroinitializer",
    """\
%own = bitcast $t $0 to $b
%both = or $b %bits, %own
%signed = bitcast $b %both to $t
%r = select $m %apart, $t %signed, $t %found""",
    """\
%shown = select $m %apart, $t $0, $t zeroinitializer
%own = bitcast $t %shown to $b
%all = or $b %bits, %own""",
)
_MAXIMUM = _extremum(
    "ogt",
    """\
%true = icmp eq $b zeroinitializer, zeroinitializer
%set = sext $m %true to $b
%ones = bitcast $b %set to $t
%sign = call $t @llvm.copysign.$v($t %ones, $t $0)
%number = fcmp ord $t $0, zeroinitializer""",
    """\
%own = bitcast $t %sign to $b
%both = and $b %bits, %own
%signed = bitcast $b %both to $t
%r = select $m %number, $t %signed, $t $0""",
    """\
%none = select $m %number, $t zeroinitializer, $t $0
%own = bitcast $t %sign to $b
%other = bitcast $t %none to $b
%both = and $b %bits, %own
%all = or $b %both, %other""",
)

minimum = primitive(
    "minimum", arity=2, operands=NUMBERS, otherwise={"bool": "logical_and"}, numpy=np.minimum,
    llvm=_MINIMUM,
    opencl={
        "float": "$0 < $1 || ($0 == $1 && signbit($0)) ? $0 : $0 == $0 && $1 == $1 ? $1 : $0 + $1",
        "int": "min($0, $1)",
    },
    finite=True, derivative=lambda y, a, b: (lambda t: where(a <= b, t, 0.0), lambda t: where(a <= b, 0.0, t)),
)
maximum: Primitive = primitive(
    "maximum", arity=2, operands=NUMBERS, otherwise={"bool": "logical_or"}, numpy=np.maximum,
    llvm=_MAXIMUM,
    opencl={
        "float": "$0 > $1 || ($0 == $1 && !signbit($0)) ? $0 : $0 == $0 && $1 == $1 ? $1 : $0 + $1",
        "int": "max($0, $1)",
    },
    finite=True, derivative=lambda y, a, b: (lambda t: where(a >= b, t, 0.0), lambda t: where(a >= b, 0.0, t)),
)
abs_ = primitive(
    "abs", operands=NUMBERS, otherwise={"bool": None}, numpy=np.abs,
    llvm=Instructions({
        "float": "%r = call $t @llvm.fabs.$v($t $0)",
        "int": "%r = call $t @llvm.abs.$v($t $0, i1 false)",
        "unsigned": "%r = add $t $0, zeroinitializer",
    }),
    opencl={"float": "fabs($0)", "int": "($t)abs($0)", "unsigned": "$0"},
    finite=True, derivative=lambda y, x: (lambda t: t * sign(x),),
)
sign: Primitive = primitive(
    "sign", operands=NUMBERS, numpy=np.sign,
    llvm=Expansion(lambda x: where(x > 0, 1, where(x < 0, -as_expr(1, x.dtype), x + 0))),  # -0.0 + 0 is 0.0
    derivative=lambda y, x: (None,),
)

# Comparisons and tests

for _name, _infix, _float, _int, _unsigned in (
    ("less", "<", "olt", "slt", "ult"),
    ("less_equal", "<=", "ole", "sle", "ule"),
    ("greater", ">", "ogt", "sgt", "ugt"),
    ("greater_equal", ">=", "oge", "sge", "uge"),
    ("equal", "==", "oeq", "eq", "eq"),
    ("not_equal", "!=", "une", "ne", "ne"),
):
    primitive(
        _name, arity=2, operands=ALL, infix=_infix, result=bool_,
        numpy=getattr(np, _name), commutative=_int in ("eq", "ne"),
        llvm=Instructions({
            "float": f"%r = fcmp {_float} $t $0, $1",
            "int": f"%r = icmp {_int} $t $0, $1",
            "unsigned": f"%r = icmp {_unsigned} $t $0, $1",
            "bool": f"%r = icmp {_unsigned} $t $0, $1",
        }),
        opencl=f"$0 {_infix} $1",
    )
isnan = primitive("isnan", result=bool_, numpy=np.isnan, llvm=Expansion(lambda x: x != x))
isinf = primitive("isinf", result=bool_, numpy=np.isinf, llvm=Expansion(lambda x: abs(x) == math.inf))
isfinite = primitive("isfinite", result=bool_, numpy=np.isfinite, llvm=Expansion(lambda x: abs(x) < math.inf))

# Logic (of numbers: whether they are not zero)

logical_and = primitive(
    "logical_and", arity=2, operands=("bool",), infix="and", numpy=np.logical_and, commutative=True,
    llvm=_instruction(bool="and"), opencl="$0 && $1",
)
logical_or = primitive(
    "logical_or", arity=2, operands=("bool",), infix="or", numpy=np.logical_or, commutative=True,
    llvm=_instruction(bool="or"), opencl="$0 || $1",
)
logical_xor = primitive(
    "logical_xor", arity=2, operands=("bool",), numpy=np.logical_xor, commutative=True,
    llvm=_instruction(bool="xor"), opencl="$0 != $1",
)
logical_not = primitive(
    "logical_not", operands=("bool",), numpy=np.logical_not,
    llvm=Instructions({"bool": "%r = icmp eq $t $0, zeroinitializer"}), opencl="!$0",
)

# Bits of integers, and shifts: all bits are gone where the count is negative or not below the width


def _ones(x: Any) -> Any:
    """How many bits of an integer are set, those of its sign among them (NumPy's bitwise_count takes the magnitude)."""
    x = np.asarray(x)
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype)


bitwise_and = primitive(
    "bitwise_and", arity=2, operands=("int",), otherwise={"bool": "logical_and"}, commutative=True,
    numpy=np.bitwise_and, llvm=_instruction(int="and"), opencl="$0 & $1",
)
bitwise_or = primitive(
    "bitwise_or", arity=2, operands=("int",), otherwise={"bool": "logical_or"}, commutative=True,
    numpy=np.bitwise_or, llvm=_instruction(int="or"), opencl="$0 | $1",
)
bitwise_xor = primitive(
    "bitwise_xor", arity=2, operands=("int",), otherwise={"bool": "logical_xor"}, commutative=True,
    numpy=np.bitwise_xor, llvm=_instruction(int="xor"), opencl="$0 ^ $1",
)
bitwise_not = primitive(
    "bitwise_not", operands=("int",), otherwise={"bool": "logical_not"}, numpy=np.invert,
    llvm=Instructions({"int": """\
%ones = sub $t zeroinitializer, $one
%r = xor $t $0, %ones"""}),
    opencl="~$0",
)
population_count = primitive(
    "population_count", operands=("int",), numpy=_ones,
    llvm=Instructions({"int": "%r = call $t @llvm.ctpop.$v($t $0)"}), opencl="popcount($0)",
)
left_shift = primitive(
    "left_shift", arity=2, operands=("int",), numpy=np.left_shift,
    llvm=Instructions({"int": """\
%inside = icmp ule $t $1, $last
%shifted = shl $t $0, $1
%r = select $m %inside, $t %shifted, $t zeroinitializer"""}),
    opencl="(u$t)$1 <= $last ? ($t)((u$t)$0 << $1) : 0",
)
right_shift = primitive(
    "right_shift", arity=2, operands=("int",), numpy=np.right_shift,
    llvm=Instructions({"int": """\
%count = call $t @llvm.umin.$v($t $1, $t $last)
%r = ashr $t $0, %count""", "unsigned": """\
%inside = icmp ule $t $1, $last
%shifted = lshr $t $0, $1
%r = select $m %inside, $t %shifted, $t zeroinitializer"""}),
    opencl={"int": "$0 >> min((u$t)$1, (u$t)$last)", "unsigned": "$1 <= $last ? $0 >> $1 : 0"},
)

# Conversions: one a scalar type, named like it, with NumPy's meaning of astype


def _converted(target: Scalar) -> Callable[[Any], Any]:
    """As ``astype``; of floating numbers an integer is the nearest that its type holds, and 0 of NaN."""

    def convert(x: Any) -> Any:
        x = np.asarray(x)
        if not (x.dtype.kind == "f" and target.kind == "int"):
            return x.astype(target.dtype)[()]
        least, beyond = float(target.least), float(target.most + 1)
        inside = np.where((x > least) & (x < beyond), x, 0).astype(target.dtype)
        limits = np.array([target.least, target.most], target.dtype)
        return np.where(x <= least, limits[0], np.where(x >= beyond, limits[1], inside))[()]

    return convert


CONVERSIONS: dict[str, Primitive] = {
    scalar.name: primitive(
        scalar.name, operands=ALL, result=scalar, mixed=True, llvm=Conversion(scalar),
        numpy=_converted(scalar), finite=True,
        derivative=(lambda y, x: (lambda t: _moved(t, y, x),)) if scalar.kind == "float" else None,
    )
    for scalar in SCALARS.values()
}


def _moved(t: Any, y: Any, x: Any) -> Any:
    """A tangent of a conversion's operand in the type of its result, a cotangent in the type of the operand."""
    return CONVERSIONS[(x if t.type == y.type else y).type.name](t)


# Derivatives

stop_gradient = primitive(
    "stop_gradient", operands=NUMBERS, otherwise={"bool": None}, numpy=lambda x: x, llvm=Expansion(lambda x: x),
    derivative=lambda y, x: (None,), identity=True,
)
