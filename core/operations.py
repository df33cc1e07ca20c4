"""Library operations: functions on arrays that are written elsewhere, with all that is known of them.

An operation is one entry, as a primitive is (foreign functions in the sense of a foreign function interface; what an
entry says is what a primitive of JAX says: abstract evaluation, lowering, rules of differentiation). Its meaning on
NumPy's arrays is enough. Whatever else it says makes it better somewhere:

    solve = az.operation(
        "solve",
        numpy=np.linalg.solve,                                        # evaluated, and called back by compiled code
        result=lambda a, b: (az.equal_sizes(*dims(a), "a is square"), b)[1],   # types of results, and what they require
        c=az.c_function("libsolve.so", "solve"),                      # what compiled code calls instead
        derivative={"vjp": solve_vjp},                                # a rule; the other mode is its transpose
        expansion=gauss, small=8,                                     # in terms of others: on GPUs, for small arrays
        cost=lambda a, b: a[0] * a[0] * a[0],                         # in additions, for the shapes of its arguments
    )

    def solve_vjp(primals, cotangent):                                # written in the language
        a, b = primals
        y = solve(a.T, cotangent)
        return -az.outer(y, solve(a, b)), y

In a term it is the one construct ``foreign``, whose static part is the entry (``terms.Foreign``): all interpretations
have one meaning for all operations, and ask the entry. ``az.foreign`` makes the entry that says nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from . import trees
from .annotations import Declared, read_annotation
from .builder import Builder, build, current
from .c_functions import CFunction
from .custom import by_rule, checked_rule
from .dims import Dim
from .expr import Expr, as_expr
from .functions import as_typed, description
from .graph import Value
from .placement import to_block
from .source import at_line, user_line
from .terms import Block, Failure, Foreign
from .trees import Shape, Structure
from .types import Type, dims, is_data, is_float

# What an operation requires


class _Equality(NamedTuple):
    first: Dim
    second: Dim
    what: str


_required: ContextVar[list[_Equality] | None] = ContextVar("adze_required", default=None)


def equal_sizes(first: Dim, second: Dim, what: str) -> None:
    """For the rule of an operation's types: these sizes of its arguments are equal, or ``what`` it needs is not so.

    Raises TypeError where they differ; what the run decides is checked by the run (ValueError, with the user's line).

    >>> import adze as az, numpy as np
    >>> from adze.core.types import dims
    >>> def square(a):
    ...     az.equal_sizes(*dims(a), "a square matrix")
    ...     return a
    >>> inverse = az.operation("inverse", numpy=np.linalg.inv, result=square)
    >>> az.evaluate(lambda a: inverse(a))(np.array([[2.0, 0.0], [0.0, 4.0]]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    >>> az.evaluate(lambda a: inverse(a))(np.ones((2, 3)))
    Traceback (most recent call last):
    ValueError: inverse: a square matrix: a_0 = 2 is not a_1 = 3, at ...
    """
    same = first.compare(second)
    if same is False:
        raise TypeError(f"{what}: {first} is not {second}")
    requirements = _required.get()
    if same is None and requirements is not None:
        requirements.append(_Equality(first, second, what))


# Operations


class ForeignFunction:
    """An operation, ready to be applied in programs. Made by :func:`operation` and :func:`foreign`."""

    def __init__(self, function: Foreign) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"<operation {self.function.name}>"

    def __call__(self, *arrays: Any) -> Structure:
        """Apply it to scalars and arrays, inside a program."""
        function, builder = self.function, current()
        values = [as_expr(array).value for array in arrays]
        for value in values:
            if not is_data(value.type):
                raise TypeError(at_line(f"{function.name} takes scalars and arrays, not a value of {value.type}"))
        builder.origin = user_line()
        try:
            _check_fewer(function, values)
            _require(builder, function, values)
            results = [Expr(value, builder) for value in builder.emit("foreign", (function,), values)]
        except TypeError as error:
            raise TypeError(at_line(f"{function.name}: {error}")) from error
        return trees.unflatten(structure_of(function, len(results)), results)


def structure_of(function: Foreign, count: int) -> Shape:
    """The structure of so many results: what is declared, or a tuple where there are several."""
    if function.outputs is not None:
        return function.outputs
    return trees.LEAF if count == 1 else Shape(tuple, (), (trees.LEAF,) * count)


def _check_fewer(function: Foreign, arguments: Sequence[Value]) -> None:
    """TypeError unless what gives fewer results gives those of the same types."""
    types = [value.type for value in arguments]
    for places, other in function.fewer.items():
        results, found = function.result_types(types), list(other.result_types(types))
        expected = [results[place] for place in places if place < len(results)]
        if found != expected or len(found) != len(places):
            given, wanted = [", ".join(map(str, each)) for each in (found, expected)]
            raise TypeError(f"fewer: {other.name} gives ({given}), where its results {places} are ({wanted})")


def _require(builder: Builder, function: Foreign, arguments: Sequence[Value]) -> None:
    """Emit what the rule of the types requires of the run."""
    token = _required.set([])
    try:
        function.result_types([value.type for value in arguments])
        equalities = _required.get() or []
    finally:
        _required.reset(token)
    for first, second, what in equalities:
        sizes = [_size(builder, dim, arguments) for dim in (first, second)]
        message = f"{function.name}: {what}: {first} = {{0}} is not {second} = {{1}}"
        builder.require(builder.primitive("equal", *sizes), Failure("size", message, builder.origin), sizes)


def _size(builder: Builder, dim: Dim, arguments: Sequence[Value]) -> Value:
    """The value of a size of the arguments."""
    known = builder.known(dim)
    if known is not None:
        return known
    for value in arguments:
        if dim in dims(value.type):
            return builder.size(value, dims(value.type).index(dim))
    raise TypeError(f"the size {dim}, which it requires something of, is that of no argument")


def moved_by(
    function: Foreign, name: str, operands: Sequence[Value], results: Sequence[Type], *moves: Value
) -> list[Value]:
    """What the rule "jvp" or "vjp" of a function gives for its operands and what moves: see :func:`by_rule`."""
    given = Shape(tuple, (), (trees.LEAF,) * len(operands)), [value.type for value in operands]
    made = structure_of(function, len(results)), results
    return by_rule(function.name, name, function.rules[name], given, made, operands, moves)


def expansion_of(function: Foreign, operands: Sequence[Value]) -> list[Value]:
    """What a function means in terms of others, emitted; TypeError where that gives something else than promised."""
    assert function.expansion is not None
    builder = current()
    origin, types = builder.origin, function.result_types([value.type for value in operands])
    leaves, _ = trees.flatten(function.expansion(*[Expr(value, builder) for value in operands]))
    what = f"the expansion of {function.name}"
    if len(leaves) != len(types):
        raise TypeError(at_line(f"{what} gives {len(leaves)} values, where {len(types)} were promised"))
    pairs = enumerate(zip(leaves, types, strict=True), 1)
    results = [as_typed(leaf, type, f"{what}: result {k}") for k, (leaf, type) in pairs]
    builder.origin = origin
    return results


def term_of_expansion(function: Foreign, operands: Sequence[Type]) -> Block:
    """The same as a closed term, for operands of these types."""
    with build() as builder:
        body = builder.body(operands, lambda *binders: expansion_of(function, binders))
        return to_block(body.binders, body.results, body.statements)[0]


def term_of_rule(function: Foreign, name: str, operands: Sequence[Type]) -> Block:
    """A rule as a closed term, of the operands and of what moves, for operands of these types."""
    results = function.result_types(operands)
    moving = [type for type in (operands if name == "jvp" else results) if is_float(type)]
    with build() as builder:

        def run(*binders: Value) -> list[Value]:
            return moved_by(function, name, binders[: len(operands)], results, *binders[len(operands) :])

        body = builder.body([*operands, *moving], run)
        return to_block(body.binders, body.results, body.statements)[0]


_MOVING = {"jvp": "tangents", "vjp": "cotangent"}


def operation(
    name: str,
    *,
    numpy: Any = None,
    result: Any,
    c: Any = None,
    derivative: Mapping[str, Any] | None = None,
    expansion: Callable[..., Any] | None = None,
    small: int = 0,
    cost: Callable[..., Any] | None = None,
    effects: bool = False,
    views: bool = False,
    fills: bool = False,
    fewer: Mapping[tuple[int, ...], Any] | None = None,
) -> ForeignFunction:
    """A function on arrays, written elsewhere, as an operation of the language.

    * ``numpy`` is its meaning on NumPy's scalars and arrays, which it must not change. Alone it is enough: evaluation
      calls it, and so does compiled code, on copies, under the interpreter's lock, from any of its threads. It may be
      called more or less often than the program says.
    * ``result`` declares what it returns, or is a rule that gives this for the types of the arguments: a type, or a
      tuple of types for a function that returns a tuple. The rule may require sizes to be equal
      (:func:`equal_sizes`), and raise TypeError. What the function returns is checked to be of that type and shape.
    * ``c`` is a function of C (:func:`c_function`), which compiled code calls instead, without the interpreter's lock.
      Where there is no ``numpy``, evaluation calls it, too.
    * ``derivative`` has rules, written in the language, as those of ``az.custom_jvp`` and ``az.custom_vjp``:
      ``{"jvp": rule}`` with ``rule(primals, tangents) -> tangent``, and ``{"vjp": rule}`` with ``rule(primals,
      cotangent) -> cotangents``. One serves both modes where it is linear in what moves. Without one, derivatives
      refuse the operation where something moves in it.
    * ``expansion`` is its meaning in terms of others, a function of expressions: OpenCL runs it, and so does compiled
      code on the CPU where all extents of the arguments are constants and at most ``small``. Where there are no rules,
      it is what derivatives see.
    * ``cost`` gives the additions that it is worth, for the shapes of the arguments, by ``+`` and ``*``.
    * ``effects`` says that it does something besides giving results. It is then a statement: no application of it is
      merged with another, left out or run twice, and all happen in the order of the program. Inside a map or a
      reduction, which have no order, it is refused, and where a derivative would run it again.
    * ``views`` says that ``numpy`` gets views of the memory of a call instead of copies, where it can. What they show
      may change as soon as it returns, but they may be kept: their memory is there as long as they are.
    * ``fills`` says that ``numpy`` is handed, behind its arguments, an array for each result, whose elements are
      anything yet. It writes all of them, and gives nothing: so large results are not copied.
    * ``fewer`` has operations that give some of its results alone, by the places of these, ascending: with
      ``{(0,): eigenvalues}``, a program that is compiled or differentiated, and uses no other result, calls that one.
      It has the rules of this one, and an expansion if this one has any; else it is never called instead.

    What ``numpy`` raises reaches the caller, with a note that says the line. Of several calls inside a parallel loop
    that raise at once it is the exception of the first iteration, and no call is made after an exception.

    Raises TypeError for what is none of these, with the user's line.

    >>> import adze as az, numpy as np
    >>> def rule(primals, tangents):
    ...     return cube(primals[0], 2) * tangents[0]
    >>> cube = az.operation(
    ...     "cube", numpy=lambda x, n: x**3 if n == 3 else 3 * x**2, result=lambda x, n: x, derivative={"jvp": rule}
    ... )
    >>> @az.program
    ... def total(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(cube(x, 3))
    >>> print(az.pretty(az.grad(total)))
    def grad(total)(x: f64[n]) -> f64[n]:
      return foreign.cube(x, 2)
    >>> az.grad(total)([1.0, 2.0])
    array([ 3., 12.])
    """
    what = f"the operation {name}"
    if c is not None and not isinstance(c, CFunction):
        raise TypeError(at_line(f"{what}: c is an az.c_function, not {description(c)}"))
    if not callable(numpy) and (c is None or numpy is not None):
        raise TypeError(at_line(f"{what} takes a function on arrays, not {description(numpy)}"))
    if fills and numpy is None:
        raise TypeError(at_line(f"{what} has no function on arrays that would fill its results"))
    rules = dict(derivative or {})
    for mode, rule in rules.items():
        if mode not in _MOVING:
            raise TypeError(at_line(f"{what}: a rule is called 'jvp' or 'vjp', not {mode!r}"))
        checked_rule(f"the {mode} rule of {name}", rule, _MOVING[mode])
    if effects and expansion is not None:
        raise TypeError(at_line(f"{what} has effects, which an expansion does not have"))
    others: dict[Any, Any] = dict(fewer or {})
    for places, other in others.items():
        numbers = isinstance(places, tuple) and all([type(place) is int and place >= 0 for place in places])
        if not numbers or not places or list(places) != sorted({*places}) or not isinstance(other, ForeignFunction):
            raise TypeError(at_line(f"{what}: fewer has operations by the places of their results, ascending"))
        if effects or other.function.effects:
            raise TypeError(at_line(f"{what} has effects, and so is never another one with fewer results"))
    types, outputs = _rule_of(result)
    return ForeignFunction(
        Foreign(
            name,
            numpy,
            types,
            outputs,
            rules,
            cost,
            views,
            c,
            expansion,
            small,
            effects,
            fills,
            {places: other.function for places, other in others.items()},
        )
    )


def foreign(name: str, function: Any, result: Any) -> ForeignFunction:
    """An :func:`operation` of which no more is said than its meaning on NumPy's arrays, and the types of its results.

    >>> import adze as az, numpy as np
    >>> solve = az.foreign("solve", np.linalg.solve, lambda a, b: b)
    >>> @az.program
    ... def solution(a: az.Array[az.f64, "n n"], b: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
    ...     return solve(a, b)
    >>> az.evaluate(solution)([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0])
    array([1. , 0.5])
    """
    return operation(name, numpy=function, result=result)


def _rule_of(result: Any) -> tuple[Callable[[Sequence[Type]], Sequence[Type]], Shape | None]:
    """The rule for the types of results, and their structure where that is declared."""
    if callable(result) and not isinstance(result, type):
        return lambda arguments: _data(read_annotation(result(*arguments))), None
    declared = read_annotation(result)
    return lambda arguments: _data(declared), declared.shape


def _data(declared: Declared) -> Sequence[Type]:
    for type in declared.types:
        if not is_data(type):
            raise TypeError(f"its results are scalars and arrays, not values of type {type}")
    return declared.types
