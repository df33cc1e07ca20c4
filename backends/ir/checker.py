"""The rules of the loop IR, checked: types, scopes, and what the kinds of loops allow in each other.

A violation is a mistake of the compiler, never of its user; the message has the statement and what is wrong in it.
The rules are those in the header of ``loops.py``. Beyond them: a name is not bound again where it is visible,
the factor of ``lanes`` is a power of two, and a reduction is only mentioned where something is combined into it.
For a target with groups, lanes are threads: what varies may stand in them, if no barrier is inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...core.primitive import Expansion, Primitive
from ...core.types import Scalar, bool_, i64
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
    contains,
)
from .printer import expression_text, statement_text
from .queries import conflict, inside, varying

_VALUES = 4  # at most so many integers are recorded with a failure


class InvalidLoops(AssertionError):
    """A function of the loop IR breaks its rules."""


@dataclass(frozen=True)
class _Name:
    """What a name in scope stands for: its type, the loops (by variable) that it varies with, how it is bound."""

    type: Scalar
    varies: frozenset[str] = frozenset()
    mutable: bool = False
    region: int = 0  # how many parallel, lanes and jam loops are around its declaration
    static: bool = False  # it depends on nothing but the function's sizes


@dataclass
class _Widened:
    """An enclosing lanes or jam loop."""

    loop: For
    varying: frozenset[int]


@dataclass
class _Checker:
    groups: bool = False  # lanes are threads
    nests: bool = False  # nests may be without loops
    names: dict[str, _Name] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # names of all buffers so far
    arguments: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)
    kinds: list[str] = field(default_factory=list)  # of the loops around, sequential ones apart
    widened: list[_Widened] = field(default_factory=list)
    combined: dict[str, tuple[Reduction, int]] = field(default_factory=dict)  # and how many loops it has around it
    bound: list[str] = field(default_factory=list)  # names in scope, in the order of their binding
    entered: list[str] = field(default_factory=list)  # buffers likewise
    depth: int = 0  # of blocks
    returned: set[int] = field(default_factory=set)  # the numbers of arrays that are still to be returned
    own: set[str] = field(default_factory=set)  # buffers of one lane
    varied: int = 0  # branches and loops around that vary with the lane
    grid: Statement | None = None  # the loop that may continue a grid

    def function(self, function: Function) -> None:
        for size in function.sizes:
            self._bind(size, _Name(i64, static=True))
        for buffer in (*function.arguments, *function.results):
            self._enter(buffer)
            _expect(all(self._static(extent) for extent in buffer.extents), "its extents depend on more than the sizes")
        self.arguments = {buffer.name for buffer in function.arguments}
        self.results = {buffer.name for buffer in function.results}
        self.returned = set(range(function.returned))
        self._block(function.body)
        for procedure in function.procedures:
            _Checker(self.groups, self.nests).function(procedure)
        _expect(not self.returned, "an array is never returned: nobody writes its extents")

    # Statements

    def _block(self, block: Block) -> None:
        with self._scope():
            self.depth += 1
            self._statements(block)
            self.depth -= 1

    def _statements(self, block: Block) -> None:
        for statement in block:
            try:
                self._statement(statement)
            except InvalidLoops as error:  # the innermost statement is named
                if " in: " in str(error):
                    raise
                raise InvalidLoops(f"{error}, in: {statement_text(statement)}") from None

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Names and buffers bound inside are forgotten at the end."""
        names, buffers = len(self.bound), len(self.entered)
        yield
        while len(self.bound) > names:
            del self.names[self.bound.pop()]
        while len(self.entered) > buffers:
            self.buffers.pop(self.entered.pop(), None)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Let(name, value) | Declare(name, value):
                type = self._type(value)
                mutable = isinstance(statement, Declare)
                varies = frozenset(each.loop.variable for each in self.widened if id(statement) in each.varying)
                static = not mutable and self.depth == 1 and self._static(value)
                self._bind(name, _Name(type, varies, mutable, len(self.kinds), static))
            case Assign():
                self._assign(statement)
            case Store(buffer, indices, value, guarded):
                self._place(buffer, indices, guarded)
                _expect(buffer.name not in self.arguments, "an argument is only read")
                self._expect_type(value, buffer.scalar)
                missing = {each.loop.variable for each in self.widened} - self._varies(*indices)
                own = buffer.name in self.own
                _expect(own or not missing, f"every iteration of {', '.join(sorted(missing))} stores at the same place")
            case Update(buffer, indices, primitive, value, guarded):
                self._place(buffer, indices, guarded)
                _expect(self.groups, "this target has no atomics")
                _expect(buffer.name not in self.arguments, "an argument is only read")
                self._expect_type(value, buffer.scalar)
                result = primitive.result_type((buffer.scalar, buffer.scalar))
                _expect(primitive.arity == 2 and result == buffer.scalar, f"{primitive} does not combine two values")
            case Prefetch(buffer, indices):
                self._place(buffer, indices, tuple(range(len(indices))))
            case Barrier():
                _expect(self.groups and bool(self.widened), "a barrier stands inside lanes of a group")
                _expect(self.widened[-1].loop.extent == Constant(self.widened[-1].loop.factor, i64), "lanes are off")
                _expect(self.varied == 0, "only some of the lanes come to this barrier")
            case Allocate(buffer):
                _expect(self.groups or not self.widened, "no buffer is allocated inside lanes or jam")
                self._enter(buffer)
                _expect(all(map(self._fixed, buffer.extents)), "its extents may change while it lives")
                if self.widened:
                    self.own.add(buffer.name)
                if statement.shared:
                    _expect(self.groups and self.kinds[-1:] == ["parallel"], "only threads of a group share memory")
                    _expect(all(map(self._static, buffer.extents)), "the extents of shared memory are sizes")
            case For():
                self._for(statement)
            case If(test, then, orelse):
                if isinstance(test, All):
                    self._all(test.test)
                    self._block(then)
                    self._block(orelse)
                    return
                self._expect_type(test, bool_)
                with self._uniform(test):
                    self._block(then)
                    self._block(orelse)
            case While(head, test, body):
                in_lanes = all(each.loop.kind == "lanes" for each in self.widened)
                _expect(self.groups or in_lanes, "no while stands inside jam")
                with self._scope():
                    self.depth += 1
                    self._statements(head)
                    self._expect_type(test, bool_)
                    if self.widened and not self.groups:
                        ended = self._varies(test) and contains((*head, *body), Store, Update)
                        _expect(not ended, "lanes that have ended would store")
                        self._block(body)
                    else:
                        with self._uniform(test):
                            self._block(body)
                    self.depth -= 1
            case Kernel(_, body):
                self._block(body)
            case Nest():
                _expect(self.nests, "a nest has no loops yet")
                self._block(statement.in_order())
            case Return(number, buffer):
                _expect(self.depth == 1 and number in self.returned, "only the top level returns each array, once")
                self.returned.remove(number)
                own = buffer.name not in self.arguments | self.results
                _expect(own and self.buffers.pop(buffer.name, None) == buffer, "only a temporary is returned, once")
            case Invoke():
                self._invoke(statement)
            case Fork(body):
                called = all(each.kind == "procedure" for each in body)
                _expect(called and len(body) > 1, "a fork calls procedures, two or more")
                alone = not any(conflict((call,), body[:number]) for number, call in enumerate(body))
                _expect(alone, "what runs side by side mentions what another call makes")
                self._statements(body)
            case Call(name, _, reads, writes, iteration):
                for index in iteration:
                    self._expect_type(index, i64)
                _expect(not self.widened and not self.groups, "no call stands inside lanes or jam, or on a device")
                for buffer in (*reads, *writes):
                    _expect(self.buffers.get(buffer.name) == buffer, f"{buffer.name} is no buffer in scope")
                _expect(self.arguments.isdisjoint([buffer.name for buffer in writes]), "an argument is only read")
                self._bind(name, _Name(i64, region=len(self.kinds)))
            case Require(test, site, values):
                _expect(self.groups or not self.widened, "no requirement stands inside lanes or jam")
                self._expect_type(test, bool_)
                _expect(site >= 0 and len(values) <= _VALUES, f"a site and at most {_VALUES} integers are recorded")
                for value in values:
                    self._expect_type(value, i64)

    def _invoke(self, call: Invoke) -> None:
        _expect(not self.widened and not self.groups, "nothing is invoked inside lanes or jam, or on a device")
        for value in call.values:
            self._type(value)
        for buffer in (*call.reads, *call.writes):
            _expect(self.buffers.get(buffer.name) == buffer, f"{buffer.name} is no buffer in scope")
        if call.kind in ("cell", "fields"):
            held = (*call.values, *call.reads) if call.kind == "cell" else (*call.binds, *call.enters)
            _expect(len(call.places) == len(held), "a word of a cell for each field")
        if call.kind in ("place", "put"):
            self._expect_type(call.values[0], i64)
            _expect((len(call.values), len(call.places)) == ((1, 1) if call.kind == "place" else (2, 0)), "of one word")
        self._bind(call.name, _Name(i64, region=len(self.kinds)))
        for variable in call.binds:
            self._bind(variable.name, _Name(variable.type, region=len(self.kinds)))
        for buffer in call.enters:
            self._enter(buffer)

    def _all(self, test: Expression) -> None:
        """What is asked of all lanes that run side by side."""
        _expect(self.kinds[-1:] == ["lanes"] and not self.groups, "only vectors have lanes side by side")
        loop = self.widened[-1].loop
        match test:
            case Apply(Primitive(name="logical_and"), (a, b)):
                self._all(a)
                self._all(b)
            case Apply(Primitive(name="less" | "less_equal"), (a, b)):
                self._expect_type(a, i64)
                self._expect_type(b, i64)
                _expect(self._varies(a, b) <= {loop.variable}, "the lanes side by side do not agree what is asked")
            case _:
                raise InvalidLoops(f"the first and the last lane do not decide {expression_text(test)}")

    def _assign(self, statement: Assign) -> None:
        name, value = statement.name, statement.value
        _expect(name in self.names and self.names[name].mutable, f"{name} is no mutable variable in scope")
        bound = self.names[name]
        reduction, region = self.combined.pop(name, (None, bound.region))
        _expect(region == len(self.kinds), f"{name} is declared outside of a parallel, lanes or jam loop")
        self._expect_type(value, bound.type)
        if reduction is not None:
            _expect(_combines(value, reduction), f"this does not combine into the reduction {name}")
            self.combined[name] = reduction, region

    def _for(self, loop: For) -> None:
        self._expect_type(loop.extent, i64)
        wide = loop.kind in ("lanes", "jam")
        _expect(loop.factor >= 1 and (wide or loop.factor == 1), "only lanes and jam have a factor, at least 1")
        _expect(loop.grain is None or loop.kind == "parallel", "only parallel loops have a grain")
        _expect(not loop.reductions or loop.kind == "lanes", "only lanes loops have reductions")
        if loop.grain is not None:
            self._expect_type(loop.grain, i64)
        if loop.kind == "parallel":
            _expect(
                not self.kinds or (self.groups and loop is self.grid),
                "parallel is nested inside parallel, lanes or jam",
            )
            self.grid = loop.body[0] if len(loop.body) == 1 else None
        if loop.kind == "lanes":
            _expect("lanes" not in self.kinds, "lanes is nested inside lanes")
            _expect(loop.factor & (loop.factor - 1) == 0, "the factor of lanes is not a power of two")
        for reduction in loop.reductions:
            self._reduction(reduction)
        if loop.kind != "sequential":
            self.kinds.append(loop.kind)
        if wide:
            self.widened.append(_Widened(loop, varying(loop)))
        self.combined.update({each.name: (each, len(self.kinds)) for each in loop.reductions})
        with self._scope():
            self._bind(loop.variable, _Name(i64, frozenset({loop.variable} if wide else ())))
            with self._uniform(loop.extent):
                self._block(loop.body)
        for each in loop.reductions:
            del self.combined[each.name]
        if wide:
            self.widened.pop()
        if loop.kind != "sequential":
            self.kinds.pop()

    def _reduction(self, reduction: Reduction) -> None:
        name, primitive = reduction.name, reduction.primitive
        bound = self.names.get(name)
        if bound is None or not bound.mutable or bound.region != len(self.kinds):
            raise InvalidLoops(f"the reduction {name} is no mutable variable declared around this loop")
        _expect(name not in self.combined, f"{name} is a reduction of an enclosing loop already")
        _expect(primitive.arity == 2, f"{primitive} does not combine two values")
        _expect(primitive.result_type((bound.type, bound.type)) == bound.type, f"{primitive} changes the type")
        self._expect_type(reduction.neutral, bound.type)

    # Expressions

    def _type(self, expression: Expression) -> Scalar:
        match expression:
            case Constant(value, type):
                whole = type.kind == "int" and isinstance(value, int) and type.least <= value <= type.most
                fits = {"bool": isinstance(value, bool), "int": whole, "float": True}
                _expect(fits[type.kind], f"{value!r} is no {type}")
            case Variable():
                self._variable(expression)
            case Apply():
                self._apply(expression)
            case Select(test, then, orelse, type):
                self._expect_type(test, bool_)
                self._expect_type(then, type)
                self._expect_type(orelse, type)
            case MultiplyAdd(a, b, c, type):
                _expect(type.kind == "float", "only floating scalars are multiplied and added at once")
                for operand in (a, b, c):
                    self._expect_type(operand, type)
            case Load(buffer, indices, guarded):
                self._place(buffer, indices, guarded)
            case All():
                raise InvalidLoops("what all lanes agree on is asked by a branch alone")
            case First(number):
                _expect(self.kinds[-1:] == ["lanes"] and not self.groups, "only vectors have lanes side by side")
                self._expect_type(number, i64)
        return expression.type

    def _variable(self, variable: Variable) -> None:  # no _expect: the texts would take longer than the checks
        name = variable.name
        if name not in self.names:
            raise InvalidLoops(f"{name} is not in scope")
        if name in self.combined:
            raise InvalidLoops(f"the reduction {name} has no value inside its loop")
        bound = self.names[name].type
        if bound != variable.type:
            raise InvalidLoops(f"{name} is {bound}, not {variable.type}")

    def _apply(self, expression: Apply) -> None:
        primitive = expression.primitive
        if isinstance(primitive.llvm, Expansion):
            raise InvalidLoops(f"{primitive} must be expanded")
        types = [self._type(argument) for argument in expression.arguments]
        if len(types) != primitive.arity:
            raise InvalidLoops(f"{primitive} takes {primitive.arity} operands")
        try:
            result = primitive.result_type(types)
        except TypeError as error:
            raise InvalidLoops(str(error)) from None
        if result != expression.type:
            raise InvalidLoops(f"{primitive} gives {result}, not {expression.type}")

    def _expect_type(self, expression: Expression, wanted: Scalar) -> None:
        found = self._type(expression)
        if found != wanted:  # not _expect: the text of each expression would take longer than all checks
            raise InvalidLoops(f"{expression_text(expression)} is {found}, not {wanted}")

    @contextmanager
    def _uniform(self, expression: Expression) -> Iterator[None]:
        """What an expression decides, inside; where lanes are vectors, it does not vary with them."""
        varies = self._varies(expression)
        if varies and not self.groups:
            raise InvalidLoops(f"{expression_text(expression)} varies with {', '.join(sorted(varies))}")
        self.varied += bool(varies)
        yield
        self.varied -= bool(varies)

    def _place(self, buffer: Buffer, indices: tuple[Expression, ...], guarded: tuple[int, ...]) -> None:
        _expect(all(0 <= axis < len(indices) for axis in guarded), "an axis that is not there is guarded")
        _expect(self.buffers.get(buffer.name) == buffer, f"the buffer {buffer.name} is not in scope")
        extents = len(buffer.extents)
        _expect(len(indices) == extents, f"{buffer.name} takes {extents} indices, got {len(indices)}")
        for index in indices:
            self._expect_type(index, i64)

    def _varies(self, *many: Expression) -> set[str]:
        """The variables of the lanes and jam loops around with which an expression varies."""
        parts = [part for expression in many for part in inside(expression)]
        return {loop for part in parts if isinstance(part, Variable) for loop in self.names[part.name].varies}

    def _static(self, expression: Expression) -> bool:
        """Whether an expression depends on nothing but the function's sizes."""
        return not any(
            isinstance(part, Load) or (isinstance(part, Variable) and not self.names[part.name].static)
            for part in inside(expression)
        )

    def _fixed(self, expression: Expression) -> bool:
        """Whether an expression has the same value wherever its names are in scope."""
        return not any(
            isinstance(part, Load) or (isinstance(part, Variable) and self.names[part.name].mutable)
            for part in inside(expression)
        )

    # Names

    def _bind(self, name: str, meaning: _Name) -> None:
        _expect(name not in self.names, f"{name} is bound already")
        self.names[name] = meaning
        self.bound.append(name)

    def _enter(self, buffer: Buffer) -> None:
        _expect(buffer.name not in self.taken, f"a buffer named {buffer.name} exists already")
        for extent in buffer.extents:
            self._expect_type(extent, i64)
        self.taken.add(buffer.name)
        self.buffers[buffer.name] = buffer
        self.entered.append(buffer.name)


def check(function: Function, groups: bool = False, nests: bool = False) -> None:
    """Raise :class:`InvalidLoops` if a function breaks the rules of the loop IR.

    ``groups``: the target has some. ``nests``: there may be nests, whose roles are not decided yet.
    """
    try:
        _Checker(groups, nests).function(function)
    except InvalidLoops as error:
        raise InvalidLoops(f"in the loops of {function.name}: {error}") from None


def _combines(value: Expression, reduction: Reduction) -> bool:
    """Whether a value is the reduction's variable with things combined into it."""

    def mentions(*many: Expression) -> bool:
        parts = [part for expression in many for part in inside(expression)]
        return any(isinstance(part, Variable) and part.name == reduction.name for part in parts)

    match value:
        case Variable(name):
            return name == reduction.name
        case Apply(primitive, (a, b)) if primitive is reduction.primitive:
            return (_combines(a, reduction) and not mentions(b)) or (_combines(b, reduction) and not mentions(a))
        case MultiplyAdd(a, b, c) if reduction.primitive.name == "add":
            return _combines(c, reduction) and not mentions(a, b)
        case Select(test, then, orelse):
            return _combines(then, reduction) and _combines(orelse, reduction) and not mentions(test)
        case _:
            return False


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidLoops(message)
