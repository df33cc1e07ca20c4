"""A primitive of one's own: one entry, and every interpretation knows it.

    python examples/new_primitive.py

``az.primitive`` adds a row to the table of scalar operations. The row says what the operation means on NumPy
numbers, what its derivative is, and how LLVM and OpenCL spell it; printing, checking, simplifying, both modes of
differentiation and compilation read the row and need nothing else. Three rows show the three ways of spelling.
"""

import math

import numpy as np

import adze as az

# Written in the language itself, from other primitives, which are spelled already. The derivative of log(cosh(x)) is
# tanh(x); it is written in the language, and so it has derivatives of its own.
log_cosh = az.primitive(
    "log_cosh",
    numpy=lambda x: np.logaddexp(x, -x) - math.log(2),
    derivative=lambda y, x: (lambda t: t * az.tanh(x),),
    llvm=az.Expansion(lambda x: az.abs(x) + az.log1p(az.exp(-2 * az.abs(x))) - math.log(2)),
    cost=60,
)

# Instructions of LLVM, here an intrinsic. $t is the operand's type, a scalar's or a vector's, $v its suffix. There is
# one linear function for each operand; the sign of the second is a step, whose derivative zero is written None. For
# OpenCL there is an expression in C, in the same words. (Without one, this primitive runs on LLVM alone.)
copysign = az.primitive(
    "copysign",
    arity=2,
    numpy=np.copysign,
    derivative=lambda y, a, b: (lambda t: t * az.sign(a) * az.sign(y), None),
    llvm=az.Instructions({"float": "%r = call $t @llvm.copysign.$v($t $0, $t $1)"}),
    opencl="copysign($0, $1)",
)

# A function of the C mathematical library, which OpenCL has too. Its derivative uses the result.
gamma = az.primitive(
    "gamma",
    numpy=np.vectorize(math.gamma, otypes=[np.float64]),
    derivative=lambda y, x: (lambda t: t * (y * az.digamma(x)),),
    llvm=az.Libm("tgamma"),
    cost=60,
)


@az.program
def loss(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(log_cosh(x) * copysign(x, y) + gamma(1 + y * y))


def main() -> None:
    gradient = az.grad(loss, argnums=(0, 1))
    print(az.pretty(loss))
    print()
    print(az.pretty(gradient))

    x, y = np.linspace(-3.0, 3.0, 1002), np.linspace(2.0, -2.0, 1002)
    evaluated, compiled = az.evaluate(gradient)(x, y), az.compile(gradient)(x, y)
    off = max(float(np.max(abs(a - b))) for a, b in zip(evaluated, compiled, strict=True))
    print(f"\nloss {float(loss(x, y)):.6f}; the compiled gradient differs from the evaluated one by {off:.0e}")


if __name__ == "__main__":
    main()
