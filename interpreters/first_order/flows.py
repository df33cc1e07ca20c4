"""Flow analysis: which functions of a program may reach each place where one is applied.

A value of function type is a *flow*, the set of functions that it may be. Flows that meet are one: those of the
branches of a ``cond``, of a state and its next, of an argument and its parameter. Functions in data meet by their type.
A value that holds no function is known by its type, a tuple by its items; together these are the *shapes* of values.

    f = cond(c, plus, times); f(x)      the flow of f is {plus, times}, and so are those of plus and of times

One walk over the term suffices, for a union takes all that is known of both with it. (Steensgaard, Points-to analysis
in almost linear time, 1996.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...core.components import components
from ...core.environment import Env
from ...core.terms import Atom, Block, Operation, Variable
from ...core.types import FunctionType, TupleType, Type, i64


@dataclass(eq=False)
class Flow:
    """The functions that a value may be, and the shapes of what they take and give."""

    parameters: tuple[Shape, ...]
    results: tuple[Shape, ...]
    _functions: dict[int, Function] = field(default_factory=dict)  # by the number of each
    _merged: Flow | None = None

    @property
    def root(self) -> Flow:
        """What stands for all flows that are one with this."""
        flow = self
        while flow._merged is not None:
            flow = flow._merged
        return flow

    @property
    def functions(self) -> list[Function]:
        """The functions, in the order of the program."""
        found = self.root._functions
        return [found[number] for number in sorted(found)]

    def meet(self, other: Flow) -> None:
        """Be one with another flow."""
        mine, theirs = self.root, other.root
        if mine is theirs:
            return
        theirs._merged = mine
        mine._functions.update(theirs._functions)
        meet(mine.parameters, theirs.parameters)
        meet(mine.results, theirs.results)


Shape = Type | Flow | tuple["Shape", ...]


@dataclass(eq=False)
class Function:
    """A function of the program, where it is made: what it captures, and the flows that its body applies."""

    number: int
    operation: Operation
    flow: Flow
    captured: tuple[Shape, ...]  # of the free variables of its block, in their order
    applies: list[Flow] = field(default_factory=list)

    @property
    def block(self) -> Block:
        return self.operation.blocks[0]

    @property
    def name(self) -> str:
        return self.operation.origin.name or "function"

    def calls(self) -> Iterator[Function]:
        """The functions that it may call."""
        for flow in self.applies:
            yield from flow.functions


def shape_of(type: Type) -> Shape:
    """The shape of values of a type of which nothing else is known."""
    match type:
        case FunctionType():
            return Flow(tuple(map(shape_of, type.parameters)), tuple(map(shape_of, type.results)))
        case TupleType(items):
            return tuple(map(shape_of, items))
    return type


def meet(first: Sequence[Shape], second: Sequence[Shape]) -> None:
    """Let values be of the same shapes, which have the same types."""
    for a, b in zip(first, second, strict=True):
        if isinstance(a, Flow) and isinstance(b, Flow):
            a.meet(b)
        elif isinstance(a, tuple) and isinstance(b, tuple):
            meet(a, b)


class Flows:
    """What the analysis of a closed term finds: by operation and block, the shapes of the values that they bind.

    Operations and blocks are those of the term itself, which must be kept as long as this is.
    """

    def __init__(self, block: Block) -> None:
        self.functions: dict[int, Function] = {}  # by the identity of their operations
        self.arguments: dict[int, list[Shape]] = {}
        self.results: dict[int, list[Shape]] = {}
        self.binders: dict[int, list[Shape]] = {}
        self._stored: dict[FunctionType, Flow] = {}
        self._inside: list[Function] = []
        self.block = block
        self.outputs = self._block(block, Env(), [self.stored(type) for type in block.binders])

    def stored(self, type: Type) -> Shape:
        """The shape of values of a type in data: functions of one type are one flow."""
        match type:
            case FunctionType():
                if type not in self._stored:
                    parameters, results = (
                        tuple(map(self.stored, type.parameters)),
                        tuple(map(self.stored, type.results)),
                    )
                    self._stored[type] = Flow(parameters, results)
                return self._stored[type]
            case TupleType(items):
                return tuple(map(self.stored, items))
        return type

    def _block(self, block: Block, env: Env[Shape], binders: Sequence[Shape]) -> list[Shape]:
        known = self.binders.setdefault(id(block), list(binders))
        meet(known, binders)
        env = env.enter(known)
        for operation in block.bindings:
            env = env.extend(self._operation(operation, env))
        return [_atom(each, env) for each in block.results]

    def _operation(self, op: Operation, env: Env[Shape]) -> list[Shape]:
        args = [_atom(each, env) for each in op.args]
        results = self._results(op, args, env)
        meet(self.arguments.setdefault(id(op), args), args)
        known = self.results.setdefault(id(op), results)
        meet(known, results)
        return known

    def _results(self, op: Operation, args: list[Shape], env: Env[Shape]) -> list[Shape]:
        match op.op:
            case "pack":
                return [tuple(args)]
            case "project":
                assert isinstance(args[0], tuple)
                return [args[0][op.static[0]]]
            case "construct":
                named, variant = op.static
                meet(args, [self.stored(type) for type in named.fields(variant).values()])
                return [named]
            case "function" | "fix":
                return [self._function(op, env)]
            case "apply":
                [flow, *given] = args
                assert isinstance(flow, Flow)
                meet(flow.parameters, given)
                if self._inside:
                    self._inside[-1].applies.append(flow)
                return list(flow.results)
            case "probe":
                return args
        return self._of_blocks(op, args, env)

    def _of_blocks(self, op: Operation, args: list[Shape], env: Env[Shape]) -> list[Shape]:
        """The results of what runs its blocks where it stands; elements of arrays hold no functions."""
        results = list(map(shape_of, op.types))
        match op.op:
            case "case" | "cond":
                for block in op.blocks:
                    meet(results, self._block(block, env, [self.stored(type) for type in block.binders]))
            case "par":
                results = [shape for block in op.blocks for shape in self._block(block, env, [])]
            case "custom":
                results = self._block(op.blocks[0], env, args)
            case "loop":
                states = args[1:]
                meet(states, self._block(op.blocks[0], env, [i64, *states])[: len(states)])
                results[: len(states)] = states
            case "while":
                self._block(op.blocks[0], env, args)
                meet(args, self._block(op.blocks[1], env, args))
                results = [*args, i64]
            case "accumulate":
                results[len(args) :] = self._block(op.blocks[0], env, op.blocks[0].binders)[: len(results) - len(args)]
            case "reduce":
                meet(args[1:], self._block(op.blocks[0], env, [i64]))
                meet(args[1:], self._block(op.blocks[1], env, [*args[1:], *args[1:]]))
                results = args[1:]
            case _:
                for block in op.blocks:
                    self._block(block, env, [shape_of(type) for type in block.binders])
        return results

    def _function(self, op: Operation, env: Env[Shape]) -> Flow:
        type: FunctionType = op.static[0]
        captured = tuple([env.get(variable.index) for variable in op.blocks[0].free])
        if id(op) in self.functions:
            function = self.functions[id(op)]
            meet(function.captured, captured)
        else:
            flow = Flow(tuple(map(shape_of, type.parameters)), tuple(map(shape_of, type.results)))
            function = Function(len(self.functions), op, flow, captured)
            flow._functions[function.number] = function
            self.functions[id(op)] = function
        own = [function.flow] if op.op == "fix" else []
        self._inside.append(function)
        meet(function.flow.results, self._block(op.blocks[0], env, [*own, *function.flow.parameters]))
        self._inside.pop()
        return function.flow


def _atom(atom: Atom, env: Env[Shape]) -> Shape:
    return env.get(atom.index) if isinstance(atom, Variable) else atom.type


def recursive(functions: Sequence[Function]) -> set[Function]:
    """Those that may come to call themselves."""
    calls = {function: list(function.calls()) for function in functions}
    groups = [group for group in components(calls) if len(group) > 1 or group[0] in calls[group[0]]]
    return {function for group in groups for function in group}
