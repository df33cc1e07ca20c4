"""A primitive of one's own: one entry, and every interpretation knows it.

    python examples/new_primitive.py

``az.primitive`` adds a row to the table of scalar operations. The row says what the operation means on NumPy
numbers, what its derivative is, and how LLVM spells it; printing, checking, simplifying, both modes of
differentiation and compilation read the row and need nothing else. Three rows show the three ways of spelling.
"""

import numpy as np

import adze as az

# Written in the language itself, from other primitives. The derivative of log(1 + exp(x)) is 1 / (1 + exp(-x)), which
# is exp(x - y): it may use the result y, it is written in the language, and so it has derivatives of its own.
softplus = az.primitive(
    "softplus",
    numpy=lambda x: np.logaddexp(x, 0),
    derivative=lambda y, x: (lambda t: t * az.exp(x - y),),
    llvm=az.Expansion(lambda x: az.maximum(x, 0.0) + az.log1p(az.exp(-az.abs(x)))),
    cost=60,
)

# Instructions of LLVM, here an intrinsic. $t is the operand's type, a scalar's or a vector's, $v its suffix. A step
# function has the derivative zero, which is written None.
rint = az.primitive(
    "rint",
    numpy=np.rint,
    derivative=lambda y, x: (None,),
    llvm=az.Instructions({"float": "%r = call $t @llvm.rint.$v($t $0)"}),
)

# A function of the C mathematical library, of two operands: one linear function for each.
atan2 = az.primitive(
    "atan2",
    arity=2,
    numpy=np.arctan2,
    derivative=lambda y, a, b: (lambda t: t * b / (a * a + b * b), lambda t: -(t * a / (a * a + b * b))),
    llvm=az.Libm("atan2"),
    cost=60,
)


@az.program
def loss(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(softplus(x) * rint(y) + atan2(x, y))


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
