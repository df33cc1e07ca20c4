"""The loop IR as text, for people to read."""

from __future__ import annotations

from collections.abc import Iterator

from .expressions import All, Apply, Buffer, Constant, Expression, First, Load, MultiplyAdd, Select, Variable
from .loops import (
    Allocate,
    Assign,
    Barrier,
    Block,
    Call,
    Declare,
    For,
    Fork,
    Function,
    If,
    Invoke,
    Kernel,
    Let,
    Nest,
    Prefetch,
    Reduction,
    Require,
    Return,
    Statement,
    Store,
    Update,
    While,
)

Line = tuple[str, Statement | None]

# How tightly the operators bind; everything else is written as a call
_PRECEDENCE = {"or": 1, "and": 2, "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5, "**": 7}
_COMPARISON = 3
_ATOM = 9


def text(function: Function) -> str:
    """A function as text.

    >>> from .expressions import Buffer, Load, Variable
    >>> from ...core.types import f64, i64
    >>> n, i = Variable("n", i64), Variable("i", i64)
    >>> x, y = Buffer("x", f64, (n,)), Buffer("y", f64, (n,))
    >>> print(text(Function("copy", ("n",), (x,), (y,), (For("i", n, "lanes", (Store(y, (i,), Load(x, (i,))),), 32),))))
    copy(n; x: f64[n]) -> y: f64[n]
      lanes i < n by 32
        y[i] = x[i]
    """
    return "\n".join([line for line, _ in lines(function)])


def lines(function: Function) -> Iterator[Line]:
    """The text of a function by lines, each with the statement that begins there, if one does."""
    arguments = ", ".join(map(_buffer, function.arguments))
    results = ", ".join(map(_buffer, function.results))
    yield f"{function.name}({', '.join(function.sizes)}; {arguments}) -> {results}".replace("(; ", "("), None
    yield from _indented(function.body)
    for number, procedure in enumerate(function.procedures):
        (head, _), *rest = lines(procedure)
        yield f"procedure {number}: {head}", None
        yield from rest


def statement_text(statement: Statement) -> str:
    """A statement as text, without the blocks inside it."""
    match statement:
        case Let(name, value):
            return f"let {name} = {expression_text(value)}"
        case Declare(name, initial):
            return f"var {name} = {expression_text(initial)}"
        case Assign(name, value):
            return f"{name} = {expression_text(value)}"
        case Store(buffer, indices, value):
            return f"{_element(buffer, indices, statement.guarded)} = {expression_text(value)}"
        case Update(buffer, indices, primitive, value):
            element = _element(buffer, indices, statement.guarded)
            return f"update {element} by {primitive.name} with {expression_text(value)}"
        case Prefetch(buffer, indices):
            return f"prefetch {_element(buffer, indices, ())}"
        case Fork():
            return "fork"
        case Kernel(name):
            return f"kernel {name}"
        case Barrier():
            return "barrier"
        case Allocate(buffer):
            return f"{'shared' if statement.shared else 'temporary'} {_buffer(buffer)}"
        case For():
            return _for(statement)
        case Nest(axes):
            over = ", ".join([f"{axis.variable.name} < {expression_text(axis.extent)}" for axis in axes])
            return " ".join([f"nest {over}", *map(_combining, statement.combines)])
        case If(test):
            return f"if {expression_text(test)}"
        case While(_, test):
            return f"while {expression_text(test)}"
        case Invoke():
            return _invoke(statement)
        case Call(name, number, reads, writes, _, symbol):
            given, made = (", ".join([buffer.name for buffer in each]) for each in (reads, writes))
            return f"let {name} = call {symbol or number} on {given} for {made}"
        case Return(number, buffer):
            return f"return {buffer.name} as {number}"
        case Require(test, site, values):
            record = ", ".join(map(expression_text, values))
            return f"require {expression_text(test)} else fail at {site}" + (f" with {record}" if record else "")


def _invoke(call: Invoke) -> str:
    """What is invoked, on what, and what that gives."""
    given = ", ".join([*map(expression_text, call.values), *[buffer.name for buffer in call.reads]])
    made = [f"{each.name}: {each.type}" for each in call.binds] + list(map(_buffer, call.enters))
    filled = "".join([f" for {', '.join([buffer.name for buffer in call.writes])}"] if call.writes else [])
    match call.kind:
        case "procedure":
            return (f"let {', '.join(made)} = " if made else "") + f"call {call.number} on {given}{filled}"
        case "jump":
            return f"go on with {call.number} on {given}{filled}"
        case "cell":
            return f"let {call.name} = cell {call.number} of {given}"
        case "tag":
            return f"let {call.name} = tag of {given}"
        case "fields":
            return f"let {', '.join(made)} = fields of {given}"
        case "place":
            return f"let {call.name} = place {call.places[0]} of {given}"
        case "put":
            return f"put {expression_text(call.values[1])} at {expression_text(call.values[0])}"
        case "take":
            return f"take {', '.join(made)}"
        case "give":
            return f"give {given}"


def expression_text(expression: Expression) -> str:
    """An expression as text."""
    return _expression(expression)[0]


def _for(loop: For) -> str:
    kind = "for" if loop.kind == "sequential" else loop.kind
    words = [f"{kind} {loop.variable} < {expression_text(loop.extent)}"]
    if loop.kind in ("lanes", "jam"):
        words.append(f"by {loop.factor}")
    if loop.grain is not None:
        words.append(f"grain {expression_text(loop.grain)}")
    return " ".join([*words, *map(_combining, loop.reductions)])


def _combining(reduction: Reduction) -> str:
    return f"combining {reduction.name} by {reduction.primitive.name} from {expression_text(reduction.neutral)}"


def _indented(block: Block) -> Iterator[Line]:
    for line, statement in _lines(block):
        yield "  " + line, statement


def _lines(block: Block) -> Iterator[Line]:
    for statement in block:
        if isinstance(statement, While) and statement.head:
            yield "before each test", None
            yield from _indented(statement.head)
        yield statement_text(statement), statement
        if isinstance(statement, For | Nest | Kernel | Fork):
            yield from _indented(statement.body)
        elif isinstance(statement, If):
            yield from _indented(statement.then)
            if statement.orelse:
                yield "else", None
                yield from _indented(statement.orelse)
        elif isinstance(statement, While):
            yield from _indented(statement.body)


def _buffer(buffer: Buffer) -> str:
    extents = ", ".join(map(expression_text, buffer.extents))
    return f"{buffer.name}: {buffer.scalar}" + (f"[{extents}]" if extents else "")


def _element(buffer: Buffer, indices: tuple[Expression, ...], guarded: tuple[int, ...]) -> str:
    """A question mark stands behind an index that may be out of range."""
    texts = [expression_text(index) + "?" * (axis in guarded) for axis, index in enumerate(indices)]
    return f"{buffer.name}[{', '.join(texts)}]"


def _expression(expression: Expression) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds."""
    match expression:
        case Constant(value, type):
            number = repr(float(value)) if type.kind == "float" else str(value)
            return number, 6 if number.startswith("-") else _ATOM
        case Variable(name):
            return name, _ATOM
        case Load(buffer, indices, guarded):
            return _element(buffer, indices, guarded), _ATOM
        case Select(test, then, orelse):
            return _call("select", (test, then, orelse)), _ATOM
        case MultiplyAdd(a, b, c):
            return _call("fma", (a, b, c)), _ATOM
        case All(test):
            return _call("all", (test,)), _ATOM
        case First(number):
            return _call("first", (number,)), _ATOM
        case Apply(primitive, arguments):
            if primitive.infix is None or len(arguments) != 2:
                return _call(primitive.name, arguments), _ATOM
            binding = _PRECEDENCE.get(primitive.infix, _COMPARISON)
            left, right = (_expression(argument) for argument in arguments)
            # operators of one rank group to the left, but comparisons are not chained
            low = f"({left[0]})" if left[1] < binding or left[1] == binding == _COMPARISON else left[0]
            high = f"({right[0]})" if right[1] <= binding else right[0]
            return f"{low} {primitive.infix} {high}", binding


def _call(name: str, arguments: tuple[Expression, ...]) -> str:
    return f"{name}({', '.join(map(expression_text, arguments))})"
