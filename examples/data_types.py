"""A recursive data type: formulas, taken apart by case and folded by a recursive function.

Formulas are values, in Python and in programs. Two programs run on every formula: one computes its value, the two
operands of an operation side by side, the other rewrites it. Both are compiled, and the first is differentiated: by
its variable, which must give the same as the second, and by the formula, which gives one of the slopes of its numbers.
"""

import adze as az


@az.data
class Formula:
    """An arithmetic formula of one variable."""

    class Number:
        number: az.f64

    class Variable: ...

    class Sum:
        left: "Formula"
        right: "Formula"

    class Product:
        left: "Formula"
        right: "Formula"


@az.program
def value(formula: Formula, x: az.f64) -> az.f64:
    """The value of a formula where its variable is x."""

    @az.fix
    def of(self, formula: Formula) -> az.f64:
        def both(left, right):
            return az.par(lambda: self(left), lambda: self(right))

        def added(left, right):
            a, b = both(left, right)
            return a + b

        def product(left, right):
            a, b = both(left, right)
            return a * b

        return az.case(
            formula,
            Number=lambda number: number,
            Variable=lambda: x,
            Sum=added,
            Product=product,
        )

    return of(formula)


@az.program
def derivative(formula: Formula) -> Formula:
    """The formula's derivative, as a formula."""

    @az.fix
    def of(self, formula: Formula) -> Formula:
        return az.case(
            formula,
            Number=lambda number: Formula.Number(0),
            Variable=lambda: Formula.Number(1),
            Sum=lambda left, right: Formula.Sum(self(left), self(right)),
            Product=lambda left, right: Formula.Sum(
                Formula.Product(self(left), right), Formula.Product(left, self(right))
            ),
        )

    return of(formula)


def main() -> None:
    x = Formula.Variable()
    cube_plus_two = Formula.Sum(Formula.Product(x, Formula.Product(x, x)), Formula.Number(2.0))
    print(az.pretty(value))
    print("\nFormula: ", cube_plus_two)
    run, by_both = az.compile(value), az.compile(az.grad(value, argnums=(0, 1)))
    slope = az.compile(derivative)(cube_plus_two)
    for at in (0.0, 1.0, -3.0):
        by_formula, by_variable = by_both(cube_plus_two, at)
        print(f"at {at:4}: value {run(cube_plus_two, at)}, slope {run(slope, at)}, by az.grad {by_variable}")
    print("by the formula:", by_formula)


if __name__ == "__main__":
    main()
