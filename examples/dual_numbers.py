"""Reverse mode by dual numbers, in four stages from a definition to a log.

    python examples/dual_numbers.py

Forward mode computes with *dual numbers*: a number with its tangent, and every construct that is not arithmetic keeps
the meaning that it has. Reverse mode may do the same. What stands beside a number is then how to pull a cotangent of
it back to the inputs, and the four stages are four ways to say that:

    Naive          a linear function, which calls those of the operands: exponential time where values are shared
    Staged         the calls that are due, in a map, so that those of one function are made as one
    Accumulated    an array of cotangents instead of the map
    Log            partial derivatives and numbers instead of the functions

Each is an ``az.Language`` of a few methods, for scalars with functions, recursion, branches and forks.
``docs/dual_numbers.md`` goes through this file slowly.

(Smeding and Vákár, Parallel dual-numbers reverse AD, Journal of Functional Programming 35, 2025: sections 5, 6, 9 and
10. Brunel, Mazza and Pagani, Backpropagation in the simply typed lambda-calculus with linear negation, 2020, for linear
factoring. A Cayley transform, and a map of scalars, which lie between, are left out.)
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import adze as az


@dataclass(frozen=True, eq=False)
class Dual:
    """A number, and what stands beside it in a stage."""

    primal: float
    beside: Any


# Partial derivatives by each operand
PARTIALS: dict[str, Callable[..., tuple[float, ...]]] = {
    "add": lambda x, y: (1.0, 1.0),
    "subtract": lambda x, y: (1.0, -1.0),
    "multiply": lambda x, y: (y, x),
    "divide": lambda x, y: (1 / y, -x / (y * y)),
    "negative": lambda x: (-1.0,),
    "sin": lambda x: (math.cos(x),),
    "exp": lambda x: (math.exp(x),),
}

# fmt: off
Environment = tuple[Any, ...]
Atom = Callable[[Environment], Any]
Operation = Callable[[Environment], Sequence[Any]]
Block = Callable[[Environment, Sequence[Any]], list[Any]]
Terms = Sequence[tuple[float, Dual]]  # partial derivatives of a result, each with the operand it is by


class DualNumbers(az.Language[Atom, Operation, Block]):
    """One run on dual numbers. Only ``literal`` and ``primitive`` know that they are dual."""

    def __init__(self) -> None:
        self.inputs = 0  # how many there are
        self.calls = 0  # of backpropagators of operations

    # What a stage says: what stands beside an input and beside a result, and the cotangents of the inputs

    def of_input(self, position: int) -> Any: raise NotImplementedError
    def of_operation(self, terms: Terms) -> Any: raise NotImplementedError
    def pull(self, result: Dual, cotangent: float) -> list[float]: raise NotImplementedError

    def run(self, program: az.Program, *inputs: float) -> Dual:
        """The result of a program of numbers, of which cotangents may be pulled back, one or several."""
        self.inputs = len(inputs)
        (result,) = az.interpret(program, self)((), [Dual(float(x), self.of_input(k)) for k, x in enumerate(inputs)])
        return result

    # Numbers

    def literal(self, value: Any, type: Any) -> Atom:
        return lambda env: Dual(value, self.of_operation([])) if type == az.f64 else value

    def primitive(self, primitive: az.Primitive, args: Sequence[Atom]) -> Operation:
        def run(env: Environment) -> Sequence[Any]:
            operands = [arg(env) for arg in args]
            primals = [x.primal if isinstance(x, Dual) else x for x in operands]
            y = primitive.numpy(*primals)
            if not isinstance(y, float):  # a truth value or an integer, which has no derivative
                return [y]
            if primitive.name not in PARTIALS:
                self.refuse(primitive.name)
            terms = zip(PARTIALS[primitive.name](*primals), operands, strict=True)
            return [Dual(float(y), self.of_operation(list(terms)))]
        return run

    # All else is as it is without derivatives

    def variable(self, index: int, type: Any) -> Atom: return lambda env: env[-1 - index]
    def function(self, type: Any, body: Block) -> Operation: return lambda env: [lambda *xs: body(env, xs)]
    def apply(self, f: Atom, args: Sequence[Atom]) -> Operation: return lambda env: f(env)(*[x(env) for x in args])
    def cond(self, test: Atom, a: Block, b: Block) -> Operation: return lambda env: (a if test(env) else b)(env, ())
    def par(self, branches: Sequence[Block]) -> Operation: return lambda env: [y for b in branches for y in b(env, ())]

    def fix(self, type: Any, body: Block) -> Operation:
        def run(env: Environment) -> Sequence[Any]:
            def recursive(*xs: Any) -> Sequence[Any]: return body(env, (recursive, *xs))
            return [recursive]
        return run

    def block(self, binders: Any, bindings: Sequence[az.Binding], results: Sequence[Atom], names: Any) -> Block:
        def run(env: Environment, arguments: Sequence[Any]) -> list[Any]:
            env = (*env, *arguments)
            for binding in bindings:
                env = (*env, *binding.operation(env))
            return [result(env) for result in results]
        return run

    def _refused(self, *arguments: Any) -> Any: self.refuse("arrays, loops and requirements")
    constant = dim = size = index = generate = loop = accumulate = add_to = require = _refused


class Naive(DualNumbers):
    """Beside a number stands its *backpropagator*, from a cotangent of it to cotangents of all inputs."""

    def of_input(self, position: int) -> Any: return lambda z: z * np.eye(self.inputs)[position]

    def of_operation(self, terms: Terms) -> Any:
        def backpropagator(z: float) -> Any:
            self.calls += 1
            return sum([operand.beside(partial * z) for partial, operand in terms], np.zeros(self.inputs))
        return backpropagator

    def pull(self, result: Dual, cotangent: float) -> list[float]:
        return result.beside(cotangent).tolist()


Due = dict[int, tuple[Callable[[float], Any], float]]  # calls: by the number of a backpropagator, it and its argument


class Staged(DualNumbers):
    """A backpropagator gives cotangents of the inputs, and the calls of others that are due because of it.

    Beside a number stand its place in the order in which numbers are made, and its backpropagator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def numbered(self, backpropagator: Callable[[float], Any]) -> Any:
        self.count += 1
        return self.count - 1, backpropagator

    def of_input(self, position: int) -> Any: return self.numbered(lambda z: (z * np.eye(self.inputs)[position], {}))

    def of_operation(self, terms: Terms) -> Any:
        def backpropagator(z: float) -> tuple[Any, Due]:
            self.calls += 1
            due: Due = {}
            for partial, operand in terms:
                self.call(due, *operand.beside, partial * z)
            return np.zeros(self.inputs), due
        return self.numbered(backpropagator)

    def call(self, due: Due, number: int, backpropagator: Callable[[float], Any], z: float) -> None:
        """One call more. Two of one function are one: f(z) + f(z') = f(z + z'), for f is linear."""
        due[number] = backpropagator, z + (due[number][1] if number in due else 0.0)

    def maps(self, result: Dual, cotangent: float) -> list[tuple[Any, dict[int, float]]]:
        """Cotangents and the arguments of calls that are due, step by step. That of the highest number is next."""
        cotangents, due, steps = np.zeros(self.inputs), Due(), []
        self.call(due, *result.beside, cotangent)
        while due:
            steps.append((cotangents, {number: z for number, (_, z) in due.items()}))
            backpropagator, z = due.pop(max(due))
            more, calls = backpropagator(z)
            cotangents = cotangents + more
            for number, call in calls.items():
                self.call(due, number, *call)
        return [*steps, (cotangents, {})]

    def pull(self, result: Dual, cotangent: float) -> list[float]:
        return self.maps(result, cotangent)[-1][0].tolist()


class Accumulated(Staged):
    """The map is an array with a place for each number; to call is to add to a place."""

    def of_input(self, position: int) -> Any: return self.numbered(lambda z: None)  # its cotangent is in its place

    def of_operation(self, terms: Terms) -> Any:
        def backpropagator(z: float) -> None:
            self.calls += 1
            for partial, operand in terms:
                self.add(*operand.beside, partial * z)
        return self.numbered(backpropagator)

    def add(self, number: int, backpropagator: Callable[[float], Any], z: float) -> None:
        self.functions[number] = backpropagator
        self.cotangents[number] += z

    def pull(self, result: Dual, cotangent: float) -> list[float]:
        self.cotangents = [0.0] * self.count
        self.functions: list[Callable[[float], Any]] = [lambda z: None] * self.count
        self.add(*result.beside, cotangent)
        for number in reversed(range(self.count)):
            self.functions[number](self.cotangents[number])
        return self.cotangents[: self.inputs]


class Log(DualNumbers):
    """A backpropagator is data: what it multiplies, and where it adds. Beside a number stands its place in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[list[tuple[float, int]]] = []

    def of_input(self, position: int) -> Any: return self.of_operation([])

    def of_operation(self, terms: Terms) -> Any:
        self.entries.append([(partial, operand.beside) for partial, operand in terms])
        return len(self.entries) - 1

    def pull(self, result: Dual, cotangent: float) -> list[float]:
        cotangents = [0.0] * len(self.entries)
        cotangents[result.beside] = cotangent
        for number in reversed(range(len(self.entries))):
            for partial, place in self.entries[number]:
                cotangents[place] += partial * cotangents[number]
        return cotangents[: self.inputs]


# fmt: on
STAGES = (Naive, Staged, Accumulated, Log)


@az.program
def running(x: az.f64, y: az.f64) -> az.f64:
    """The running example of the paper."""
    z = x + y
    return x * z


@az.program
def root(c: az.f64) -> az.f64:
    """Newton's iteration, until the square is near enough."""

    @az.fix
    def better(self: Any, x: az.f64) -> az.f64:
        error = x * x - c
        return az.cond(error * error < 1e-24, lambda: x, lambda: self((x + c / x) / 2))

    return better(1.0)


@az.program
def twice(x: az.f64, y: az.f64) -> az.f64:
    """A function that is passed, and captures a number."""
    apply_twice = az.function(lambda f, u: f(f(u)), az.Function[[az.f64], az.f64], az.f64)
    return apply_twice(lambda u: u * az.sin(y), x)


def doublings(n: int) -> az.Program:
    """x + x, n times over: 2**n paths from the result to x."""

    def doubled(x: az.f64) -> az.f64:
        return functools.reduce(lambda y, _: y + y, range(n), x)

    return az.program(doubled)


def main() -> None:
    print(az.pretty(running))
    for program, inputs in ((running, (12.0, 13.0)), (root, (2.0,)), (twice, (0.5, 1.0))):
        print(f"\n{program.name}{inputs}:")
        for stage in [stage() for stage in STAGES]:
            result = stage.run(program, *inputs)
            gradient = ", ".join(f"{z:.6g}" for z in stage.pull(result, 1.0))
            print(f"  {type(stage).__name__:<12} {result.primal:.6g}, gradient {gradient}")
    print("\nCotangents of the inputs and calls that are due, in the running example:")
    staged = Staged()
    for cotangents, due in staged.maps(staged.run(running, 12.0, 13.0), 1.0):
        print(f"  {cotangents.tolist()}, {due}")
    print("\nCalls of backpropagators for the gradient of n doublings:")
    for n in (1, 2, 4, 14):
        print(f"  n = {n}: naive {calls(Naive(), n)}, staged {calls(Staged(), n)}")


def calls(stage: DualNumbers, n: int) -> int:
    """Of backpropagators, for one gradient of n doublings."""
    stage.pull(stage.run(doublings(n), 1.0), 1.0)
    return stage.calls


if __name__ == "__main__":
    main()
