"""The loop IR run one scalar at a time with NumPy's arithmetic, short names to write it with, and whole programs in it.

What a run finds that compiled code would not show: a read or write out of range (that is not guarded), an iteration
of a parallel loop, of lanes or of a jam that touches what another one writes, a barrier that only some lanes come to,
lanes of another factor than a group has, too much shared memory. Temporaries begin as NaN, or as large integers, so
that what is read before it was written shows in the result.

Lanes run in lockstep: each is a generator with names of its own, which runs to its next barrier when all others
have come to theirs. What stands outside of lanes is run once, as all threads of a group do it alike.

A program as it is lowered for a target, run on arguments like those of ``az.evaluate``::

    def test_sum() -> None:
        found = plain_loops.lowered(az.program(lambda x: az.sum(x)), GROUPS, [np.ones(5)])
        assert_same(found, 5.0)

``lowered`` checks the rules of the loops and all of the above, and raises what a failed requirement stands for;
``loops_of(program, target, arguments)`` is the function that it runs, to look at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import adze.core.primitives  # noqa: F401  (enters the rows of the table)
from adze.backends import ir
from adze.backends import pipeline as stages
from adze.backends.forms import Form, chosen
from adze.backends.lowering import Lowered
from adze.backends.target import Target
from adze.core import trees
from adze.core.primitive import lookup
from adze.core.program import Instance, Program, as_program
from adze.core.types import Scalar, dims, element, f64, i64

Array = np.ndarray[Any, Any]

# Short names


def var(name: str, type: Scalar = i64) -> ir.Variable:
    return ir.Variable(name, type)


def const(value: int | float | bool, type: Scalar = i64) -> ir.Constant:
    return ir.Constant(value, type)


def apply(name: str, *arguments: ir.Expression) -> ir.Apply:
    """A primitive of the table applied, with the type it gives."""
    primitive = lookup(name)
    return ir.Apply(primitive, arguments, primitive.result_type([argument.type for argument in arguments]))


def at(buffer: ir.Buffer, *indices: str | int | ir.Expression) -> ir.Load:
    return ir.Load(buffer, tuple(map(index, indices)))


def put(buffer: ir.Buffer, *rest: str | int | ir.Expression) -> ir.Store:
    """A store: the indices, then the value."""
    *indices, value = rest
    assert not isinstance(value, str | int)
    return ir.Store(buffer, tuple(map(index, indices)), value)


def index(each: str | int | ir.Expression) -> ir.Expression:
    return var(each) if isinstance(each, str) else const(each) if isinstance(each, int) else each


def fma(a: ir.Expression, b: ir.Expression, c: ir.Expression) -> ir.MultiplyAdd:
    return ir.MultiplyAdd(a, b, c, a.type)


def loop(variable: str, extent: str | int | ir.Expression, *body: Any, kind: str = "sequential", **more: Any) -> ir.For:
    return ir.For(variable, index(extent), kind, body, **more)  # type: ignore[arg-type]


# Running

# Where an access stands: the loops around it whose iterations are independent, outermost first, each as the number of
# its run (or of the stretch between two barriers of it) and that of the iteration
Path = tuple[tuple[int, int], ...]


class Race(AssertionError):
    """Two iterations that are independent touch one place."""


@dataclass
class _Touched:
    """Who touched an element: the last who wrote it, and those who read or updated it since."""

    written: Path | None = None
    read: set[Path] = field(default_factory=set)
    updated: set[Path] = field(default_factory=set)


class _Memory:
    """A buffer while it lives."""

    def __init__(self, name: str, array: Array) -> None:
        self.name, self.array = name, array
        self.touched: defaultdict[tuple[int, ...], _Touched] = defaultdict(_Touched)

    def inside(self, place: tuple[int, ...], guarded: Sequence[int]) -> bool:
        """Whether a place is inside along the guarded axes; along the others it has to be."""
        assert len(place) == self.array.ndim
        if not all(0 <= place[axis] < self.array.shape[axis] for axis in guarded):
            return False
        if not all(0 <= at < extent for at, extent in zip(place, self.array.shape)):
            raise IndexError(f"{self.name}{list(place)} of shape {self.array.shape}")
        return True

    def read(self, place: tuple[int, ...], path: Path) -> Any:
        if path:
            touched = self.touched[place]
            self._alone(place, path, [touched.written, *touched.updated])
            touched.read = {each for each in touched.read if each[0][0] == path[0][0]} | {path}
        return self.array[place]

    def write(self, place: tuple[int, ...], path: Path, value: Any) -> None:
        if path:
            touched = self.touched[place]
            self._alone(place, path, [touched.written, *touched.read, *touched.updated])
            self.touched[place] = _Touched(path)
        self.array[place] = value

    def update(self, place: tuple[int, ...], path: Path, combine: Callable[[Any], Any]) -> None:
        if path:
            touched = self.touched[place]
            self._alone(place, path, [touched.written, *touched.read])
            touched.updated = {each for each in touched.updated if each[0][0] == path[0][0]} | {path}
        self.array[place] = combine(self.array[place])

    def _alone(self, place: tuple[int, ...], path: Path, others: Sequence[Path | None]) -> None:
        """Refuse others who may be there at the same time."""
        for other in others:
            for (region, iteration), (their_region, theirs) in zip(path, other or ()):
                if region != their_region:
                    break
                if iteration != theirs:
                    raise Race(f"{self.name}{list(place)} is touched at {path} and at {other}")


@dataclass
class _Scope:
    """What one iteration sees: names and buffers, and where it stands."""

    names: dict[str, Any]
    memory: dict[str, _Memory]
    path: Path = ()


class Run:
    """One run of a function: its failures, in order, with what they recorded, and the arrays that it returned."""

    def __init__(
        self,
        function: ir.Function,
        arrays: Sequence[Array],
        sizes: Sequence[int],
        races: bool = True,  # whether they are looked for
        shared_bytes: int = 0,
    ) -> None:
        self.failures: list[tuple[int, list[int]]] = []
        self.returned: dict[int, Array] = {}
        self.races, self.shared_bytes, self.regions = races, shared_bytes, 0
        self.shared: set[str] = set()  # names of buffers in the memory of the group
        buffers = [buffer.name for buffer in (*function.arguments, *function.results)]
        memory = {name: _Memory(name, array) for name, array in zip(buffers, arrays, strict=True)}
        scope = _Scope({name: np.int64(size) for name, size in zip(function.sizes, sizes)}, memory)
        with np.errstate(all="ignore"):
            for _ in self._block(function.body, scope):
                raise AssertionError("a barrier outside of lanes")

    # Expressions

    def _value(self, expression: ir.Expression, scope: _Scope) -> Any:
        match expression:
            case ir.Constant(number, type):
                return type.dtype.type(number)
            case ir.Variable(name):
                return scope.names[name]
            case ir.Apply(primitive, arguments, type):
                return type.dtype.type(primitive.numpy(*[self._value(each, scope) for each in arguments]))
            case ir.Select(test, then, orelse):
                chosen, other = self._value(then, scope), self._value(orelse, scope)
                return chosen if self._value(test, scope) else other
            case ir.MultiplyAdd(a, b, c, type):
                x, y, z = (np.longdouble(self._value(each, scope)) for each in (a, b, c))
                return type.dtype.type(x * y + z)
            case ir.All(own) | ir.First(own):  # of lanes one at a time
                return self._value(own, scope)
            case ir.Load(buffer, indices, guarded):
                memory, place = scope.memory[buffer.name], self._place(indices, scope)
                return memory.read(place, scope.path) if memory.inside(place, guarded) else buffer.scalar.dtype.type(0)

    def _place(self, indices: Sequence[ir.Expression], scope: _Scope) -> tuple[int, ...]:
        return tuple([int(self._value(each, scope)) for each in indices])

    # Statements: generators that stop at barriers

    def _block(self, block: ir.Block, scope: _Scope) -> Generator[None]:
        for statement in block:
            match statement:
                case ir.Barrier():
                    yield
                case ir.For(variable, extent, "sequential", body):
                    for number in range(int(self._value(extent, scope))):
                        scope.names[variable] = np.int64(number)
                        yield from self._block(body, scope)
                case ir.For():
                    self._side_by_side(statement, scope)
                case ir.Nest(axes, body) if axes and not statement.meets and not statement.combines:
                    rows = replace(statement, axes=axes[1:]).in_order() if axes[1:] else body
                    self._side_by_side(ir.For(axes[0].variable.name, axes[0].extent, "parallel", rows), scope)
                case ir.Nest():
                    yield from self._block(statement.in_order(), scope)
                case ir.Kernel(_, body):  # has copies of the host's scalars; its own names end with it
                    own = _Scope(dict(scope.names), dict(scope.memory), scope.path)
                    yield from self._block(body, own)
                case ir.If(test, then, orelse):
                    yield from self._block(then if self._value(test, scope) else orelse, scope)
                case ir.While(head, test, body):
                    failures = len(self.failures)
                    yield from self._block(head, scope)
                    while self._value(test, scope) and len(self.failures) == failures:
                        yield from self._block(body, scope)
                        yield from self._block(head, scope)
                case _:
                    self._simple(statement, scope)

    def _simple(self, statement: ir.Statement, scope: _Scope) -> None:
        match statement:
            case ir.Let(name, expression) | ir.Declare(name, expression) | ir.Assign(name, expression):
                scope.names[name] = self._value(expression, scope)
            case ir.Store(buffer, indices, expression, guarded):
                memory, place = scope.memory[buffer.name], self._place(indices, scope)
                value = self._value(expression, scope)
                if memory.inside(place, guarded):
                    memory.write(place, scope.path, value)
            case ir.Prefetch(_, indices):
                self._place(indices, scope)
            case ir.Update(buffer, indices, primitive, expression, guarded):
                memory, place = scope.memory[buffer.name], self._place(indices, scope)
                value = self._value(expression, scope)
                if memory.inside(place, guarded):
                    memory.update(place, scope.path, lambda old: primitive.numpy(old, value))
            case ir.Allocate(buffer, shared):
                array = _poisoned(self._place(buffer.extents, scope), buffer.scalar)
                if shared:
                    before = sum(memory.array.nbytes for memory in scope.memory.values() if memory.name in self.shared)
                    assert before + array.nbytes <= self.shared_bytes, f"{buffer.name}: too much shared memory"
                    self.shared.add(buffer.name)
                scope.memory[buffer.name] = _Memory(buffer.name, array)
            case ir.Require(test, site, values):
                if not self._value(test, scope):
                    self.failures.append((site, [int(self._value(each, scope)) for each in values]))
            case ir.Return(number, buffer):
                self.returned[number] = scope.memory[buffer.name].array
            case _:
                raise AssertionError(statement)

    def _side_by_side(self, loop: ir.For, scope: _Scope) -> None:
        """The iterations of a loop that are independent, from barrier to barrier, and what they combine."""
        extent = int(self._value(loop.extent, scope))
        region = self._region()
        neutrals = {each.name: self._value(each.neutral, scope) for each in loop.reductions}
        scopes = []
        for number in range(extent):
            names = {**scope.names, **neutrals, loop.variable: np.int64(number)}
            scopes.append(_Scope(names, dict(scope.memory), self._path(scope, region, number)))
        running = [self._block(loop.body, own) for own in scopes]
        while running:
            arrived = [next(each, "end") for each in running]
            assert len(set(arrived)) == 1, "only some of the lanes came to a barrier"
            running = running if arrived[0] != "end" else []
            region = self._region()
            for number, own in enumerate(scopes):
                own.path = self._path(scope, region, number)
        for each in loop.reductions:
            total = scope.names[each.name]
            for own in scopes:
                total = type(total)(each.primitive.numpy(total, own.names[each.name]))
            scope.names[each.name] = total

    def _region(self) -> int:
        self.regions += 1
        return self.regions

    def _path(self, scope: _Scope, region: int, number: int) -> Path:
        return (*scope.path, (region, number)) if self.races else ()


def _poisoned(shape: tuple[int, ...], scalar: Scalar) -> Array:
    """Memory that nobody has written to."""
    return np.full(shape, {"float": np.nan, "int": 0x5A5A5A5A, "bool": True}[scalar.kind], scalar.dtype)


def run(function: ir.Function, arrays: list[np.ndarray], sizes: list[int]) -> list[tuple[int, list[int]]]:
    """Run a function in order, writing its results; gives the failures, with what they recorded."""
    return Run(function, arrays, sizes, races=False).failures


# Programs


def lower_for(instance: Instance, leaves: Sequence[Any], target: Target, **options: Any) -> Lowered:
    """An instance lowered for a target, and checked; ``options`` are ``checks``, ``deterministic``, and ``nests``.

    With these it is lowered to nests, which have no loops yet.

    Of several forms it is the one that the sizes of the leaves of arguments take.
    """
    checks = options.get("checks", True)
    if ("forms", target, checks) not in instance.compiled:
        instance.compiled["forms", target, checks] = stages.forms_of(instance, target, checks)
    forms: tuple[Form, ...] = instance.compiled["forms", target, checks]
    form = forms[chosen([form.condition for form in forms], instance.signature.sizes(leaves))]
    key = ("plain loops", target, form.condition, tuple(options.items()))
    if key not in instance.compiled:
        wanted = {"checks": True, "deterministic": False, **options}
        stage = stages.nests_of if wanted.pop("nests", False) else stages.loops_of
        lowered = stage(form, instance.program.name, target, **wanted)
        for statement in ir.walk(lowered.function.body):
            if isinstance(statement, ir.For) and target.group:
                assert statement.kind != "jam"
                assert statement.kind != "lanes" or statement.factor == target.group
        instance.compiled[key] = lowered
    found: Lowered = instance.compiled[key]
    return found


def _chosen(program: Any, arguments: Sequence[Any]) -> tuple[Instance, list[Any]]:
    """The instance of a program that arguments choose, and the leaves of the arguments."""
    whole: Program = as_program(program)
    bound = whole.bind(arguments, {})
    instance = whole.instance_for(bound)
    return instance, instance.leaves(bound)


def loops_of(program: Any, target: Target, arguments: Sequence[Any], **options: Any) -> ir.Function:
    """The loops of a program for a target, as these arguments choose its types."""
    return lower_for(*_chosen(program, arguments), target, **options).function


def lowered(
    program: Any,
    target: Target,
    arguments: Sequence[Any],
    change: Callable[[ir.Function], ir.Function] = lambda function: function,
    **options: Any,
) -> Any:
    """What the loops of a program for a target give for these arguments; raises what a requirement that fails does.

    ``change`` is what is done to the loops before they run.
    """
    instance, leaves = _chosen(program, arguments)
    made = lower_for(instance, leaves, target, **options)
    arrays, sizes = instance.signature.convert(leaves)
    fixed = [constant.array for constant in made.constants]
    types = made.types
    results = [_result(dims(type), element(type), sizes) for type in types]
    written = [result for result in results if result is not None]
    memory = [np.array(array) for array in (*arrays, *fixed)] + written
    function = change(made.function)
    ran = Run(function, memory, [sizes[name] for name in function.sizes], True, target.shared_bytes)
    if ran.failures:
        site, values = ran.failures[0]
        raise made.failures[site].error(values)
    loose = iter(sorted(ran.returned.items()))
    values_ = [next(loose)[1] if result is None else result for result in results]
    return trees.unflatten(instance.outputs, [value if value.ndim else value[()] for value in values_])


def _result(sizes_of: Sequence[Any], scalar: Scalar, sizes: dict[str, int]) -> Array | None:
    """The memory of a result; None for one whose size the run decides."""
    if not all(dim.is_static() for dim in sizes_of):
        return None
    return _poisoned(tuple([dim.evaluate(sizes) for dim in sizes_of]), scalar)


__all__ = ["Run", "apply", "at", "const", "f64", "fma", "i64", "loop", "loops_of", "lowered", "put", "run", "var"]
