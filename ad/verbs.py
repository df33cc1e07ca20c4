"""The verbs of differentiation: programs from programs, derived when somebody needs them.

``jvp(f)`` is the program of ``(*primals, *tangents)`` giving ``(result, tangent)``; ``vjp(f)`` of ``(*primals,
cotangent)`` giving ``(result, *cotangents)``; ``grad`` and ``value_and_grad`` are the reverse mode of a scalar. Each
takes a program or, inside a program's body, any Python function of expressions, which may capture outer variables:
what is captured is constant for the derivative. Verbs nest to any depth. Whole Jacobians are in ``jacobians.py``, what
the verbs share in ``differentiating.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from ..core import trees
from ..core.annotations import Declared, Parameter, fresh
from ..core.builder import building, current
from ..core.environment import Env
from ..core.expr import Expr
from ..core.functions import description
from ..core.graph import Value
from ..core.program import P, Program, R
from ..core.source import at_line, ending_at_user, user_line
from ..core.types import holds_floating
from ..core.verb import Function, Verb, program_of
from .differentiating import (
    Argnums,
    Differentiated,
    Pullback,
    chosen,
    fitting,
    is_single,
    may_hold_floating,
    without_aux,
)
from .duals import Dual
from .forms import cell_count
from .forward import Forward
from .scalar_expansion import expanded
from .traced import goes_via_trace, gradient, pull, pulled


@overload
def grad(
    f: Function[P, R],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    via: Literal["program"] = "program",
    workers: int = 1,
) -> Program[P, Any]: ...
@overload
def grad(
    f: Function[P, R], argnums: Argnums = 0, *, has_aux: bool = False, via: Literal["trace"], workers: int = 1
) -> Callable[P, Any]: ...
@ending_at_user
def grad(f: Any, argnums: Argnums = 0, *, has_aux: bool = False, via: Any = "program", workers: Any = 1) -> Any:
    """The gradient of a scalar program with respect to the chosen parameters.

    The result has the structure of the parameter (None at its integer leaves), or is a tuple of these when
    ``argnums`` is a sequence. With ``has_aux`` the program returns a pair, the scalar and what comes with it, and so
    does its gradient. Raises TypeError when a parameter is not floating, ValueError when there is none of that number;
    a result that is not a floating scalar is refused when the derivative is built.

    With ``via="trace"`` it is no program but a Python function, which traces each call and sweeps back over the trace,
    with so many ``workers`` (threads): for everything that evaluate runs, data and recursion included.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> az.grad(norm2)(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> az.grad(norm2, via="trace")(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> @az.program
    ... def shifted(x: az.f64):
    ...     y = x + 1.0
    ...     return y * y, {"y": y}
    >>> az.grad(shifted, has_aux=True)(2.0)
    (np.float64(6.0), {'y': np.float64(3.0)})
    """
    return _gradient("grad", f, argnums, has_aux, via, workers)


@overload
def value_and_grad(
    f: Function[P, R],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    via: Literal["program"] = "program",
    workers: int = 1,
) -> Program[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    f: Function[P, R], argnums: Argnums = 0, *, has_aux: bool = False, via: Literal["trace"], workers: int = 1
) -> Callable[P, tuple[R, Any]]: ...
@ending_at_user
def value_and_grad(
    f: Any, argnums: Argnums = 0, *, has_aux: bool = False, via: Any = "program", workers: Any = 1
) -> Any:
    """The program of ``(f(...), grad(f)(...))``, which shares the work of both; the options are those of ``grad``.

    With ``has_aux`` it is ``((value, aux), gradient)``.

    >>> import adze as az
    >>> @az.program
    ... def square(x: az.f64) -> az.f64:
    ...     return x * x
    >>> value, gradient = az.value_and_grad(square)(3.0)
    >>> float(value), float(gradient)
    (9.0, 6.0)
    """
    return _gradient("value_and_grad", f, argnums, has_aux, via, workers)


def _gradient(verb: str, f: Any, argnums: Any, has_aux: bool, via: Any, workers: Any) -> Any:
    traced = goes_via_trace(verb, f, via, workers)
    f = program_of(verb, f)
    numbers = chosen(verb, f, argnums, may_hold_floating)
    if traced:
        return gradient(verb, f, numbers, is_single(argnums), has_aux, workers)
    return _ValueAndGradient(verb, f, numbers, is_single(argnums), has_aux).program(f.parameters)


@overload
def vjp(
    f: Function[P, R],
    *,
    argnums: Argnums | None = None,
    has_aux: bool = False,
    via: Literal["program"] = "program",
    workers: int = 1,
) -> Program[..., tuple[Any, ...]]: ...
@overload
def vjp(
    f: Function[P, R],
    *primals: Any,
    argnums: Argnums | None = None,
    has_aux: bool = False,
    via: str = "program",
    workers: int = 1,
) -> Any: ...
@ending_at_user
def vjp(
    f: Any,
    *primals: Any,
    argnums: Argnums | None = None,
    has_aux: bool = False,
    via: str = "program",
    workers: int = 1,
) -> Any:
    """Reverse mode: the program of ``(*primals, cotangent)`` giving ``(result, *cotangents)``.

    There is one cotangent for each parameter with floating leaves (or each of ``argnums``), None at integer leaves;
    the cotangent that is given has the structure of the result, and anything (None, say) at its integer leaves. With
    primals it is JAX's: ``(result, pullback)`` where ``pullback(cotangent)`` gives the tuple of cotangents. Inside a
    program a pullback may be called again and again, in a map over cotangents say; f itself is run once. With
    ``has_aux`` f returns a pair, of which the first part has a cotangent; the second comes last, in both forms.
    ``via`` and ``workers`` are those of ``grad``: via the trace the pullback sweeps back over one recorded run.

    >>> import adze as az
    >>> @az.program
    ... def product(x: az.f64, y: az.f64) -> az.f64:
    ...     return x * y
    >>> [float(number) for number in az.vjp(product)(2.0, 3.0, 1.0)]
    [6.0, 3.0, 2.0]
    >>> result, pullback = az.vjp(product, 2.0, 3.0)
    >>> [float(number) for number in pullback(10.0)]
    [30.0, 20.0]
    """
    traced = goes_via_trace("vjp", f, via, workers)
    f = program_of("vjp", f, len(primals) or None)
    numbers = None if argnums is None else chosen("vjp", f, argnums, may_hold_floating)
    if traced:
        return pull(f, primals, numbers, has_aux, workers) if primals else pulled(f, numbers, has_aux, workers)
    transposed = _Transposed("vjp", f, numbers, has_aux)
    if primals and (building() or _expressions(primals)):
        pullback = transposed.pullback(f.bind(primals, {}))
        return (pullback.result, pullback, pullback.aux) if has_aux else (pullback.result, pullback)
    program = transposed.program([*f.parameters, _cotangent(f, has_aux)])
    if not primals:
        return program
    arguments = f.bind(primals, {})
    result = f(*arguments)

    def pulled_back(cotangent: Any) -> tuple[Any, ...]:
        _, *cotangents = program(*arguments, cotangent)
        return tuple(cotangents[:-1] if has_aux else cotangents)

    if not has_aux:
        return result, ending_at_user(pulled_back)
    without_aux(transposed.name, f, trees.flatten(result)[1])
    return result[0], ending_at_user(pulled_back), result[1]


@overload
def jvp(f: Function[P, R], *, argnums: Argnums | None = None) -> Program[..., tuple[R, R]]: ...
@overload
def jvp(f: Function[P, R], primals: Any, tangents: Any, *, argnums: Argnums | None = None) -> tuple[R, R]: ...
@ending_at_user
def jvp(f: Any, primals: Any = None, tangents: Any = None, *, argnums: Argnums | None = None) -> Any:
    """Forward mode: the program of ``(*primals, *tangents)`` giving ``(result, tangent)``.

    There is one tangent for each parameter that may hold floating numbers (or each of ``argnums``), with its structure
    and anything (None, say) at integer leaves. With ``primals`` and ``tangents`` (tuples) the pair itself.

    It is a program for each that ``az.evaluate`` takes, with functions, recursion and data. The tangent of a value of a
    declared type is a value of the same type; the integers in it are not looked at, and where its variant is another
    one a run raises ValueError with the path. A function from outside in which something moves is Unsupported. (Dual
    numbers, as in Smeding and Vákár, Parallel dual-numbers reverse AD, 2025, section 5, with tangents.)

    >>> import adze as az
    >>> @az.program
    ... def cube(x: az.f64) -> az.f64:
    ...     return x ** 3
    >>> value, tangent = az.jvp(cube)(2.0, 1.0)
    >>> float(value), float(tangent)
    (8.0, 12.0)
    """
    f = program_of("jvp", f, len(primals) if isinstance(primals, tuple | list) else None)
    moving = tuple([number for number, parameter in enumerate(f.parameters) if may_hold_floating(parameter)])
    pushed = _Pushed("jvp", f, moving if argnums is None else chosen("jvp", f, argnums, may_hold_floating))
    program = pushed.program(_with_tangents(f, pushed.moving))
    if primals is None and tangents is None:
        return program
    if primals is None or tangents is None:
        raise TypeError(at_line(f"{pushed.name} takes primals and tangents together, or neither"))
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            message = f"{pushed.name}: the {what} are a tuple, one for each parameter, not {description(given)}"
            raise TypeError(at_line(message))
    arguments, names = f.bind(primals, {}), [f.parameters[number].name for number in pushed.moving]
    if len(tangents) != len(names):
        message = f"{pushed.name} takes {len(names)} tangent(s), of {', '.join(names)}; got {len(tangents)}"
        raise TypeError(at_line(message))
    return program(*arguments, *tangents)


@ending_at_user
def linearize(f: Function[P, R], *primals: Any) -> tuple[R, Callable[..., R]]:
    """The result at primals, and the derivative there: a function from tangents, one a primal, to the result's.

    As by JAX. Inside a program the function may be called again and again; f itself is run once. Raises what ``jvp``
    raises.

    >>> import adze as az
    >>> @az.program
    ... def cube(x: az.f64) -> az.f64:
    ...     return x ** 3
    >>> value, push = az.linearize(cube, 2.0)
    >>> float(value), float(push(1.0)), float(push(10.0))
    (8.0, 12.0, 120.0)
    """
    program: Program = program_of("linearize", f, len(primals))
    arguments = program.bind(primals, {})
    inside = building() or _expressions(primals)
    result = pushforward(f"linearize({program.name})", program, arguments, {})[0] if inside else program(*arguments)
    return result, ending_at_user(lambda *tangents: jvp(program, arguments, tangents)[1])


@ending_at_user
def hvp(f: Function[P, Any], argnums: Argnums = 0) -> Program:
    """The product of a Hessian with a direction: the program of ``(*primals, *directions)`` giving ``H v``.

    There is one direction for each of ``argnums``; the result has the structure of ``az.grad(f, argnums)``. It is
    forward mode over reverse mode, and costs a small multiple of the gradient, whatever the size of the Hessian. Raises
    what ``grad`` raises.

    >>> import adze as az, numpy as np
    >>> @az.program
    ... def valley(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x ** 4) + az.sum(x) ** 2
    >>> az.hvp(valley)(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([14.,  2.])

    A Hessian that is known to be diagonal is what one direction of ones gives:

    >>> @az.program
    ... def wells(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x ** 4 - x ** 2)
    >>> az.hvp(wells)(np.array([0.0, 1.0, 2.0]), np.ones(3))
    array([-2., 10., 46.])
    """
    program = program_of("hvp", f)
    numbers = chosen("hvp", program, argnums, may_hold_floating)
    product = _HessianProduct("hvp", program, numbers, is_single(argnums))
    return product.program(_with_tangents(program, numbers))


# Parameters of the programs that verbs make


def _expressions(arguments: Any) -> bool:
    return any(isinstance(leaf, Expr) for leaf in trees.flatten(arguments)[0])


def _with_tangents(f: Program, moving: Sequence[int]) -> list[Parameter]:
    """The parameters of a program, and one for the tangent of each that moves."""
    parameters = list(f.parameters)
    for number in moving:
        own = f.parameters[number]
        name = fresh(f"d_{own.name}", [parameter.name for parameter in parameters])
        parameters.append(_following(name, own.declared, number))
    return parameters


def _cotangent(f: Program, has_aux: bool) -> Parameter:
    """The parameter of a cotangent of what a program returns, or of the first part of that."""
    like, declared = f, f.declared
    if has_aux:
        first = _First("vjp", f)
        like = first.program(f.parameters)
        if declared is not None:
            shape = without_aux(first.name, f, declared.shape)
            declared = Declared(shape, declared.types[: shape.leaves])
    return _following(fresh("cotangent", [parameter.name for parameter in f.parameters]), declared, like)


def _following(name: str, declared: Declared | None, like: int | Program) -> Parameter:
    """The parameter of a tangent or cotangent: declared as what moves, if all of that is floating."""
    if declared is None or not all(holds_floating(type) for type in declared.types):
        return Parameter(name, None, like=like)
    one = declared.types[0] if declared.shape == trees.LEAF else None
    return Parameter(name, one, structure=declared if one is None else None)


# What a verb's program does


@dataclass(frozen=True)
class _ValueAndGradient(Verb):
    argnums: tuple[int, ...]
    single: bool
    has_aux: bool

    def __call__(self, *args: Any) -> Any:
        """The value and the gradient, or the gradient alone; with what comes with the value."""
        builder = current()
        builder.origin = user_line()
        pullback = Pullback(self.name, Differentiated.of(self.f, args), self.argnums, self.has_aux)
        result = pullback.result
        if not isinstance(result, Expr) or result.ndim or result.dtype.kind != "float":
            given = result.type if isinstance(result, Expr) else f"a {type(result).__name__}"
            message = f"{self.name}: the gradient is that of one floating scalar, but {self.f.name} returns {given}"
            raise TypeError(at_line(f"{message}; az.jacobian takes any result, az.vjp a cotangent of it"))
        gradients = pullback(Expr(builder.literal(1.0, result.dtype), builder))
        chosen = gradients[0] if self.single else gradients
        if self.verb == "value_and_grad":
            return ((result, pullback.aux) if self.has_aux else result), chosen
        return (chosen, pullback.aux) if self.has_aux else chosen


@dataclass(frozen=True)
class _Transposed(Verb):
    argnums: tuple[int, ...] | None
    has_aux: bool

    def pullback(self, args: Sequence[Any]) -> Pullback:
        return Pullback(self.name, Differentiated.of(self.f, args), self.argnums, self.has_aux)

    def __call__(self, *args: Any) -> Any:
        """The result and the cotangents, then what comes with the result."""
        pullback = self.pullback(args[:-1])
        return (pullback.result, *pullback(args[-1]), *([pullback.aux] if self.has_aux else []))


@dataclass(frozen=True)
class _First(Verb):
    """The first part of a pair, of which the second is not differentiated."""

    def __call__(self, *args: Any) -> Any:
        result = self.f(*args)
        without_aux(self.name, self.f, trees.flatten(result)[1])
        return result[0]


@dataclass(frozen=True)
class _Pushed(Verb):
    moving: tuple[int, ...]  # the parameters that have a tangent

    def __call__(self, *args: Any) -> Any:
        """The result and its tangent."""
        count = len(self.f.parameters)
        return pushforward(self.name, self.f, args[:count], dict(zip(self.moving, args[count:], strict=True)))


@dataclass(frozen=True)
class _HessianProduct(Verb):
    argnums: tuple[int, ...]
    single: bool

    def __call__(self, *args: Any) -> Any:
        """The tangent of the gradient."""
        count = len(self.f.parameters)
        gradient = grad(self.f, self.argnums[0] if self.single else self.argnums)
        return pushforward(self.name, gradient, args[:count], dict(zip(self.argnums, args[count:], strict=True)))[1]


def pushforward(name: str, f: Program, args: Sequence[Any], tangents: dict[int, Any]) -> tuple[Any, Any]:
    """The result and its tangent, for tangents of some parameters; ``name`` is the program's that a verb makes."""
    builder = current()
    function = Differentiated.of(f, args)
    duals = [Dual(value) for value in function.captured]
    for number, values in function.leaves.items():
        given = tangents.get(number, function.rebuilt(number, [None] * len(values)))
        what = f"{name}: the tangent of {f.parameters[number].name!r}"
        tangent = fitting(what, given, function.shapes[number], values)
        duals += [Dual(value, moves) for value, moves in zip(values, tangent, strict=True)]
    forward = Forward(builder)

    def results() -> list[Value]:
        """The results, then the tangents of those that have one."""
        found = function.block.interpret(forward).run(Env(), duals)
        moving = [forward.tangent(dual) for dual in found if cell_count(dual.primal.type)]
        return [*[dual.primal for dual in found], *moving]

    directions = [dual.tangent for dual in duals if dual.tangent is not None]
    made = [Expr(value, builder) for value in expanded(builder, function.arguments, directions, results)]
    count = len(function.block.types)
    primals, rest = made[:count], iter(made[count:])
    result = trees.unflatten(function.output, primals)
    return result, trees.unflatten(function.output, [next(rest) if cell_count(x.type) else None for x in primals])
