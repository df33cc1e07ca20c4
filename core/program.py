"""Programs: Python functions of expressions, built into terms when somebody needs them.

``@program`` reads the annotations of a function and does nothing else. A term is built once an *instance*: a choice
of types where the annotations leave one, and of values for static parameters. Called with expressions a program is
inlined; called with arrays it runs, through the runner that a backend has entered into ``RUNNERS``. Programs made
by a verb (``grad``) hold the verb and the program; what they mean is derived on their first use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import trees
from .annotations import Parameter, read_parameters, type_of_argument
from .arguments import Signature
from .builder import build, building, current
from .dims import Dim, DimAtom, Name
from .expr import Expr, as_expr, same_size
from .graph import Value
from .language import Language
from .placement import to_block
from .source import at_line, user_line
from .terms import Block, Failure
from .types import ArrayType, Scalar, Type, dims, element, rank

B = TypeVar("B")

# How a program called with arrays is run: entered by the backends under the name "default".
RUNNERS: dict[str, Callable[[Instance, Sequence[Any]], trees.Structure]] = {}


@dataclass
class Instance:
    """One typed version of a program: what its arguments are, and its term."""

    program: Program
    types: tuple[Type, ...]  # of the leaves of all parameters that are not static
    names: tuple[str, ...]
    inputs: trees.Shape
    statics: Mapping[str, Any]
    _term: Block | None = field(default=None, repr=False)
    _outputs: trees.Shape | None = field(default=None, repr=False)
    _signature: Signature | None = field(default=None, repr=False)
    compiled: dict[Any, Any] = field(default_factory=dict, repr=False)  # what backends keep with an instance

    @property
    def signature(self) -> Signature:
        """What checks and converts the arguments of a call."""
        if self._signature is None:
            self._signature = Signature(self.program.name, self.names, self.types)
        return self._signature

    @property
    def term(self) -> Block:
        """The program as it was written, built on first use."""
        if self._term is None:
            self._build()
        assert self._term is not None
        return self._term

    @property
    def outputs(self) -> trees.Shape:
        """The structure of the result."""
        if self._outputs is None:
            self._build()
        assert self._outputs is not None
        return self._outputs

    def _build(self) -> None:
        try:
            self._build_term()
        except Exception as error:
            error.add_note(f"while building the program {self.program.name}({', '.join(map(str, self.types))})")
            raise

    def _build_term(self) -> None:
        self.signature  # noqa: B018  (refuses sizes that no argument would bind)
        with build() as builder:
            binders = [builder.variable(type, name) for type, name in zip(self.types, self.names, strict=True)]
            arguments = trees.unflatten(self.inputs, [Expr(binder, builder) for binder in binders])
            result = self.program.apply(self.program.with_statics(arguments, self.statics))
            if result is None:
                raise TypeError(f"{self.program.name} returns nothing: is a return missing?")
            leaves, self._outputs = trees.flatten(result)
            values = self.program.checked_results([as_expr(leaf) for leaf in leaves], self.signature.bound)
            statements = builder.scopes[0].statements
            try:
                self._term, captured = to_block(binders, values, statements, self.names)
            except LookupError as error:
                captured = list(error.args)
            if captured:
                raise RuntimeError(f"{self.program.name}: an expression was used outside the combinator that made it")


class Program:
    """A program: a Python function with parameters, not yet built. Made by :func:`program` and by the verbs."""

    def __init__(
        self, function: Callable[..., Any], name: str, parameters: Sequence[Parameter], result: Any = None
    ) -> None:
        self.function, self.name, self.parameters, self.result = function, name, tuple(parameters), result
        self._instances: dict[Any, Instance] = {}
        self.__name__ = name
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<program {self.name}({', '.join(map(str, self.parameters))})>"

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> trees.Structure:
        """Inline the program among expressions, or run it on arrays."""
        arguments = self.bind(args, kwargs)
        if any(isinstance(leaf, Expr) for leaf in trees.flatten(arguments)[0]):
            return self.inline(arguments)
        if building():
            return self.inline(arguments)
        return RUNNERS["default"](self.instance_for(arguments), self.leaves(arguments))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """One argument a parameter; TypeError when there are too few, too many or unknown ones."""
        names = [parameter.name for parameter in self.parameters]
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                problem = "twice" if name in names else "but has no such parameter"
                raise TypeError(at_line(f"{self.name}({', '.join(names)}) got the argument {name!r} {problem}"))
            given[name] = value
        for parameter in self.parameters:
            if parameter.name not in given and parameter.default is not inspect.Parameter.empty:
                given[parameter.name] = parameter.default
        if len(args) > len(names) or len(given) < len(names):
            missing = ", ".join(name for name in names if name not in given)
            detail = f"missing: {missing}" if missing else f"got {len(args)}"
            raise TypeError(at_line(f"{self.name} takes {len(names)} argument(s) ({', '.join(names)}); {detail}"))
        return [given[name] for name in names]

    def leaves(self, arguments: Sequence[Any]) -> list[Any]:
        """The leaves of the arguments that are not static."""
        dynamic = [a for a, p in zip(arguments, self.parameters, strict=True) if not p.static]
        return [leaf for a, p in zip(dynamic, self.dynamic, strict=True) for leaf in p.leaves(a)]

    @property
    def dynamic(self) -> tuple[Parameter, ...]:
        return tuple([parameter for parameter in self.parameters if not parameter.static])

    def inline(self, arguments: Sequence[Any]) -> trees.Structure:
        """Apply the function to expressions, after checking them against the annotations."""
        sizes: dict[str, tuple[Dim, Value, int]] = {}
        checked = []
        for parameter, argument in zip(self.parameters, arguments, strict=True):
            if parameter.static:
                checked.append(parameter.check_static(argument, self.name))
                continue
            if parameter.type is None:
                checked.append(trees.tree_map(as_expr, argument))
                continue
            x = as_expr(argument, element(parameter.type))
            self._check_inlined(parameter, x, sizes)
            checked.append(x)
        return self.apply(checked)

    def _check_inlined(self, parameter: Parameter, x: Expr, sizes: dict[str, tuple[Dim, Value, int]]) -> None:
        wanted = parameter.type
        assert wanted is not None
        if x.dtype != element(wanted) or x.ndim != rank(wanted):
            raise TypeError(at_line(f"{self.name}: argument {parameter.name!r} is {wanted}, got {x.type}"))
        for axis, dim in enumerate(dims(wanted)):
            match dim.terms:
                case (((Name(name),), 1),) if name not in sizes:
                    sizes[name] = (dims(x.type)[axis], x.value, axis)
                case (((Name(name),), 1),):
                    same_size(sizes[name][1], sizes[name][2], x.value, axis, f"{self.name}, size {name}")
                case _:
                    self._check_size(parameter, dim, x, axis, sizes)

    def _check_size(
        self, parameter: Parameter, dim: Dim, x: Expr, axis: int, sizes: dict[str, tuple[Dim, Value, int]]
    ) -> None:
        def known(atom: DimAtom) -> Dim | None:
            return sizes[atom.name][0] if isinstance(atom, Name) and atom.name in sizes else None

        expected, actual = dim.substitute(known), dims(x.type)[axis]
        equal = expected.compare(actual)
        if equal is False:
            raise TypeError(at_line(f"{self.name}: axis {axis} of {parameter.name!r} is {expected}, got {x.type}"))
        if equal is None and expected.is_static():
            builder = current()
            values = [builder.dim(expected), builder.size(x.value, axis)]
            message = f"{self.name}: axis {axis} of {parameter.name!r} is {dim} = {{0}}, got {{1}}"
            builder.require(builder.primitive("equal", *values), Failure("size", message, user_line()), values)

    def apply(self, arguments: Sequence[Any]) -> trees.Structure:
        """The function's result on arguments that are ready."""
        result: trees.Structure = self.function(*arguments)
        return result

    # Instances

    def with_statics(self, dynamic: Sequence[Any], statics: Mapping[str, Any]) -> list[Any]:
        rest = iter(dynamic)
        return [statics[p.name] if p.static else next(rest) for p in self.parameters]

    def instance_for(self, arguments: Sequence[Any]) -> Instance:
        """The instance that these arguments choose."""
        types: list[Type] = []
        names: list[str] = []
        shapes: list[trees.Shape] = []
        statics = {}
        for parameter, argument in zip(self.parameters, arguments, strict=True):
            if parameter.static:
                statics[parameter.name] = parameter.check_static(argument, self.name)
                continue
            leaves, shape = trees.flatten(argument) if parameter.type is None else ([argument], trees.LEAF)
            shapes.append(shape)
            for k, leaf in enumerate(leaves):
                name = parameter.name if shape == trees.LEAF else f"{parameter.name}_{k}"
                names.append(name)
                types.append(parameter.type or type_of_argument(leaf, name, self.name))
        return self._instance(tuple(types), tuple(names), trees.Shape(tuple, (), tuple(shapes)), statics)

    def at(self, *types: Type, **statics: Any) -> Instance:
        """The instance for given types of the parameters that are not static; without any, the annotated one.

        Raises TypeError when a parameter has neither an annotation nor a type here.
        """
        if types and len(types) != len(self.dynamic):
            raise TypeError(
                f"{self.name} has {len(self.dynamic)} parameters that are not static, got {len(types)} types"
            )
        chosen: list[Type] = list(types)
        for parameter in () if types else self.dynamic:
            if parameter.type is None:
                raise TypeError(f"{self.name}: parameter {parameter.name!r} has no annotation; give its type")
            chosen.append(parameter.type)
        missing = [p.name for p in self.parameters if p.static and p.name not in statics]
        if missing:
            raise TypeError(f"{self.name}: the static parameters {', '.join(missing)} need values")
        shape = trees.Shape(tuple, (), (trees.LEAF,) * len(self.dynamic))
        names = tuple([p.name for p in self.dynamic])
        return self._instance(tuple(chosen), names, shape, statics)

    def _instance(
        self, types: tuple[Type, ...], names: tuple[str, ...], inputs: trees.Shape, statics: Mapping[str, Any]
    ) -> Instance:
        key = (types, inputs, tuple([(name, type(value), value) for name, value in statics.items()]))
        if key not in self._instances:
            self._instances[key] = Instance(self, types, names, inputs, dict(statics))
        return self._instances[key]

    def checked_results(self, results: Sequence[Expr], bound: frozenset[str]) -> list[Value]:
        """The values of the results, checked against the return annotation if there is one.

        A size that mentions a name which no argument binds is not checked.
        """
        if isinstance(self.result, Scalar | ArrayType):
            wanted = self.result
            fits = len(results) == 1 and results[0].dtype == element(wanted) and results[0].ndim == rank(wanted)
            if not fits:
                got = ", ".join(str(x.type) for x in results)
                raise TypeError(f"{self.name} is declared to return {wanted}, but its body returns {got}")
            for axis, dim in enumerate(dims(wanted)):
                if not dim.names() <= bound:
                    continue
                actual = dims(results[0].type)[axis]
                if dim.compare(actual) is False:
                    raise TypeError(f"{self.name} is declared to return {wanted}, its body returns {results[0].type}")
                if dim.compare(actual) is None and dim.is_static():
                    builder = current()
                    values = [builder.dim(dim), builder.size(results[0].value, axis)]
                    message = f"{self.name} returns {wanted}, but axis {axis} has size {{1}}, not {{0}}"
                    builder.require(builder.primitive("equal", *values), Failure("size", message, user_line()), values)
        return [x.value for x in results]


def program(function: Callable[..., Any]) -> Program:
    """Make a program of a Python function whose parameters are annotated.

    ``az.f64`` and ``az.Array[az.f64, "n d"]`` annotate scalars and arrays; a parameter annotated with a Python type
    (``steps: int``) is static, one without annotation takes its type from its first argument. Nothing is built until
    the program is used. Raises TypeError, with the parameter's name, for an annotation that is none of these.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> float(norm2([3.0, 4.0]))
    25.0
    """
    parameters, result = read_parameters(function)
    return Program(function, function.__name__, parameters, result)


def as_program(function: Any) -> Program:
    """A program as it is, or one made from a Python function."""
    return function if isinstance(function, Program) else program(function)


def instance_of(program: Program | Instance) -> Instance:
    """An instance as it is, or the annotated instance of a program."""
    return program if isinstance(program, Instance) else program.at()


def interpret(program: Program | Instance | Block, language: Language[Any, Any, B]) -> B:
    """The meaning of a program in a language of your own: a fold over its term (``language.py``).

    A program must have its types in its annotations; give ``f.at(types...)`` for another choice.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> az.interpret(norm2, az.Reify()) == norm2.at().term
    True
    """
    return (program if isinstance(program, Block) else instance_of(program).term).interpret(language)
