"""Meanings given by the user: derivatives of their own, and a look at values.

``custom_jvp`` and ``custom_vjp`` keep a function whole, with a rule for its derivative beside it. ``inspect`` shows
values while a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any

from . import trees
from .builder import Builder, build, current
from .expr import Expr, as_expr
from .functions import as_typed, description, expression_of
from .graph import Body, Value
from .placement import to_block
from .source import at_line, user_line
from .terms import Block, LaterRule, Origin
from .trees import Shape, Structure
from .types import Itself, Type, dims, is_data, is_float

if TYPE_CHECKING:
    Function = Callable[..., Any]
else:  # what is none is refused with the user's line
    Function = Any

# Derivatives


@dataclass(frozen=True)
class _Open:
    """A rule that is being built: the function it belongs to, at arguments of these types, is one of its parameters."""

    owner: Custom
    builder: Builder
    inputs: Shape
    types: Sequence[Type]
    output: Shape
    itself: Value


_open: ContextVar[tuple[_Open, ...]] = ContextVar("adze_rules", default=())
_DEEPEST = 8  # rules inside of each other of one function, which calls itself at ever other types
_whole: ContextVar[bool] = ContextVar("adze_whole_rules", default=False)  # rules are built, and those inside of them


class Custom:
    """A function with rules for its derivatives. Made by :func:`custom_jvp` and :func:`custom_vjp`.

    One of this package may have a ``key``, which says which function it is: what it is and its rules use nothing from
    outside. Then a rule is built where a derivative asks for it, and programs that nobody differentiates have none.
    """

    def __init__(self, function: Any, verb: str, key: tuple[Any, ...] = ()) -> None:
        if not callable(function) or isinstance(function, Expr):
            raise TypeError(at_line(f"{verb} takes a function of expressions, not {description(function)}"))
        self.function, self.verb, self.key = function, verb, key
        self.rules: dict[str, Callable[..., Any]] = {}
        self.blocks: dict[tuple[Any, ...], Block] = {}  # of rules, as they were asked for
        update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", "function")

    def __repr__(self) -> str:
        return f"<{self.verb} {self.__name__}>"

    def defjvp(self, rule: Function) -> Function:
        """Set the rule of forward mode, ``rule(primals, tangents) -> tangent``: a decorator.

        Both arguments are tuples with one entry an argument of the function. The tangent has the structure of the
        function's result. There is None in the place of the tangent of an integer, in both.
        """
        return self._defined("jvp", rule, "tangents")

    def defvjp(self, rule: Function) -> Function:
        """Set the rule of reverse mode, ``rule(primals, cotangent) -> cotangents``: a decorator.

        The cotangent has the structure of the function's result; the rule gives a tuple with one cotangent an argument
        of the function. There is None in the place of the cotangent of an integer, in both.
        """
        return self._defined("vjp", rule, "cotangent")

    def _defined(self, name: str, rule: Function, moving: str) -> Function:
        checked_rule(f"def{name} of {self.__name__}", rule, moving)
        self.rules[name] = rule
        return rule

    def _positional(self, args: Sequence[Any], keywords: dict[str, Any]) -> Sequence[Any]:
        """Arguments in the order of the function's parameters."""
        try:
            given = signature(self.function).bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(at_line(f"{self.verb}: {self.__name__}{signature(self.function)}: {error}")) from None
        if given.kwargs:
            given.apply_defaults()
        if given.kwargs:
            message = f"{self.verb}: {', '.join(given.kwargs)} of {self.__name__} cannot be keyword-only"
            raise TypeError(at_line(message))
        return given.args

    def __call__(self, *args: Any, **keywords: Any) -> Structure:
        """Apply the function, inside a program. Raises TypeError when it has no rule, or other parameters.

        A rule has all arguments by position.
        """
        if not self.rules:
            raise TypeError(at_line(f"{self.verb}: {self.__name__} has no rule yet: give it with def{self.verb[-3:]}"))
        builder = current()
        origin = user_line(self.__name__)
        leaves, inputs = trees.flatten(self._positional(args, keywords))
        values = [as_expr(leaf).value for leaf in leaves]
        types = [value.type for value in values]
        around = [rule for rule in _open.get() if rule.owner is self and rule.builder is builder]
        for rule in reversed(around):
            if rule.types == types and rule.inputs == inputs:
                builder.origin = origin
                made = builder.emit("apply", (), [rule.itself, *values])
                return trees.unflatten(rule.output, [expression_of(value, builder) for value in made])
        if len(around) == _DEEPEST:
            message = f"{self.__name__} calls itself in its rule at arguments of ever other types, without end"
            raise TypeError(at_line(f"{self.verb}: {message}"))
        outputs: list[Shape] = []

        def body(*binders: Value) -> list[Value]:
            results, shape = trees.flatten(self.function(*_structured(inputs, binders)))
            outputs.append(shape)
            return [as_expr(leaf).value for leaf in results]

        bodies = [builder.body(types, body, [value.name for value in values])]
        output = outputs[0]
        rules: tuple[str | LaterRule, ...] = tuple(sorted(self.rules))
        itself = Itself(tuple(types), bodies[0].types)
        if self.key and not _whole.get() and all(map(_is_fixed, (*types, *bodies[0].types))):
            rules = tuple([RuleByKey(name, self.key, self, inputs, output) for name in sorted(self.rules)])
        else:
            bodies += [self.rule(name, itself, inputs, output) for name in sorted(self.rules)]
        builder.origin = origin
        results = builder.emit("custom", rules, values, bodies)
        return trees.unflatten(output, [expression_of(value, builder) for value in results])

    def rule(self, name: str, itself: Itself, inputs: Shape, output: Shape) -> Body:
        """The body of a rule: of the function, the arguments and what moves, giving what is moved."""
        builder, types, rule = current(), list(itself.parameters), self.rules[name]
        given, made = (inputs, types), (output, itself.results)
        floating = [type for type in (given if name == "jvp" else made)[1] if is_float(type)]

        def run(*binders: Value) -> list[Value]:
            function, *rest = binders
            token = _open.set((*_open.get(), _Open(self, builder, inputs, types, output, function)))
            try:
                return by_rule(self.__name__, name, rule, given, made, rest[: len(types)], rest[len(types) :])
            finally:
                _open.reset(token)

        names = [self.__name__, *[""] * (len(types) + len(floating))]
        return builder.body([itself, *types, *floating], run, names)


def _is_fixed(type: Type) -> bool:
    """Whether it is the type of a scalar or an array whose extents mean the same in every term."""
    return is_data(type) and all([dim.is_static() for dim in dims(type)])


@dataclass(frozen=True)
class RuleByKey(LaterRule):
    """A rule of a function that has a key, at arguments and results of these structures."""

    name: str
    key: tuple[Any, ...]
    owner: Custom = field(repr=False)
    inputs: Shape
    output: Shape

    def moved(self, primals: Sequence[Value], results: Sequence[Type], moves: Sequence[Value]) -> list[Value]:
        given, made = (self.inputs, [value.type for value in primals]), (self.output, results)
        return by_rule(self.owner.__name__, self.name, self.owner.rules[self.name], given, made, primals, moves)

    def block(self, operands: tuple[Type, ...], results: tuple[Type, ...]) -> Block:
        known, key = self.owner.blocks, (self.name, self.inputs, self.output, operands, results)
        if key not in known:
            with build(), _building_rules():
                body = self.owner.rule(self.name, Itself(operands, results), self.inputs, self.output)
                known[key] = to_block(body.binders, body.results, body.statements)[0]
        return known[key]


@contextmanager
def _building_rules() -> Iterator[None]:
    """Have rules inside of a rule, which may come to it again."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def checked_rule(what: str, rule: Any, moving: str) -> None:
    """Refuse what is no rule: a function of the primals and of what moves. TypeError with the user's line."""
    wanted = f"{what} takes a function of two arguments, (primals, {moving})"
    if not callable(rule):
        raise TypeError(at_line(f"{wanted}, not {description(rule)}"))
    try:
        signature(rule).bind(None, None)
    except TypeError:
        raise TypeError(at_line(f"{wanted}, not of {signature(rule)}")) from None


Structured = tuple[Shape, Sequence[Type]]  # of what a function is given, or gives: the structure, and types in order


def by_rule(
    owner: str,
    name: str,
    rule: Callable[..., Any],
    given: Structured,
    made: Structured,
    primals: Sequence[Value],
    moves: Sequence[Value],
) -> list[Value]:
    """What the rule "jvp" or "vjp" of a function gives: tangents or cotangents of the floating types, in order.

    ``given`` and ``made`` say what the function is given and gives, ``moves`` are the tangents or cotangents of
    floating types. TypeError, with the user's line, where the rule gives something else.
    """
    builder, rest = current(), iter(moves)
    (moving, moving_types), (moved, moved_types) = (given, made) if name == "jvp" else (made, given)
    moving_leaves = [Expr(next(rest), builder) if is_float(type) else None for type in moving_types]
    result = rule(_structured(given[0], primals), trees.unflatten(moving, moving_leaves))
    what = f"{name} rule of {owner}{_place(rule)}"
    try:
        leaves = trees.matched(moved, result)
    except TypeError as error:
        path, problem = error.args
        raise TypeError(at_line(f"{what}: result{path} {problem}")) from None
    kind = "tangent" if name == "jvp" else "cotangent"
    values = []
    for k, (leaf, type) in enumerate(zip(leaves, moved_types, strict=True)):
        if is_float(type):
            values.append(as_typed(leaf, type, f"{what}: {kind} {k + 1}"))
        elif leaf is not None:
            raise TypeError(at_line(f"{what}: {kind} {k + 1} belongs to a value of type {type}: it is None"))
    return values


def _place(function: Callable[..., Any]) -> str:
    """Where a function of Python was written, for a message."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f", written at {Origin(code.co_filename, code.co_firstlineno)}"


def _structured(shape: Shape, values: Sequence[Value]) -> Any:
    builder = current()
    return trees.unflatten(shape, [expression_of(value, builder) for value in values])


def custom_jvp(function: Function) -> Custom:
    """A function of expressions whose derivative in forward mode is given, by ``f.defjvp``.

    The rule speaks of the arguments. What the function captures from outside moves its result as its body says, and
    what the rule captures is an ordinary value of the derivative, which higher derivatives see. The rule may call ``f``
    itself: that call has the rule, too. Reverse mode is the transpose of the rule, which must be linear in the
    tangents, unless there is a rule for it.

    >>> import adze as az
    >>> @az.custom_jvp
    ... def softplus(x):
    ...     return az.log1p(az.exp(x))
    >>> @softplus.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return dx / (1 + az.exp(-x))
    >>> float(az.evaluate(az.program(lambda x: softplus(x)))(0.0))
    0.6931471805599453
    """
    return Custom(function, "custom_jvp")


def custom_vjp(function: Function) -> Custom:
    """A function of expressions whose derivative in reverse mode is given, by ``f.defvjp``.

    The rule speaks of the arguments. What the function captures from outside moves its result as its body says, and
    what the rule captures is an ordinary value of the derivative, which higher derivatives see. The rule may call ``f``
    itself: that call has the rule, too. Forward mode is the transpose of the rule, which must be linear in the
    cotangents, unless there is a rule for it.

    >>> import adze as az
    >>> @az.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> @clipped.defvjp
    ... def rule(primals, cotangent):
    ...     return (az.maximum(az.minimum(cotangent, 1.0), -1.0),)
    >>> @az.program
    ... def square(x: az.f64) -> az.f64:
    ...     return clipped(x) ** 2
    >>> float(az.evaluate(square)(3.0))
    9.0
    """
    return Custom(function, "custom_vjp")


# Inspection


def inspect(x: Any, name: str) -> Structure:
    """``x`` as it is; its value is shown, with the name, whenever this place of the program runs.

    A derivative of the program shows the value, too, and beside it what moves there: in reverse mode the cotangent of
    exactly this ``x``, when the return sweep comes to this place, in forward mode the tangent. Compiled code shows
    nothing.

    >>> import adze as az
    >>> @az.program
    ... def f(x: az.f64) -> az.f64:
    ...     return az.inspect(x * 2, "twice") ** 2
    >>> result = az.evaluate(f)(3.0)
    twice = 6.0
    >>> result = az.evaluate(az.grad(f))(3.0)
    twice = 6.0
    twice cotangent = 12.0
    """
    builder = current()
    leaves, shape = trees.flatten(x)
    values = [as_expr(leaf) for leaf in leaves]
    builder.origin = user_line(name)
    probed = builder.emit("probe", (name,), [value.value for value in values])
    moving = zip(values, probed, strict=True)
    return trees.unflatten(shape, [Expr(same, builder) if is_float(x.type) else x for x, same in moving])
