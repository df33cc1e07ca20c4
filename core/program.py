"""Programs: Python functions of expressions, built into terms when somebody needs them.

``@program`` reads the annotations of a function and does nothing else. A term is built once an *instance*: a choice
of types where the annotations leave one, and of values for static parameters. Called with expressions a program is
inlined; called with arrays it runs, through the runner that a backend has entered into ``RUNNERS``. Programs made
by a verb (``grad``) hold the verb and the program; what they mean is derived on their first use. Parameters and
results are structures whose leaves are scalars, arrays, data and functions (``trees.py``, ``annotations.py``).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic

from typing_extensions import ParamSpec, TypeVar

from . import trees
from .annotations import Declared, Parameter, read_annotation, read_parameters, told_apart
from .arguments import Signature, types_of
from .builder import build, building, current
from .expr import Expr, as_expr
from .functions import as_typed, description
from .graph import Value
from .inlining import Inlining, check_results
from .language import Fold
from .placement import to_block
from .presented import SignatureOf, signature
from .showing import Shown
from .size_names import SizeNames, with_own_sizes
from .source import at_line, ending_at_user, line_of, repeated, shorten
from .stages import building_term
from .terms import Block
from .types import Type, holds_floating, is_data
from .unification import Equality, Unifier, defining, equalities, named, probable

B = TypeVar("B")
P = ParamSpec("P", default=...)  # the parameters of a program, to type checkers
R = TypeVar("R", default=Any)  # and its result

# How a program called with arrays is run: entered by the backends under the name "default".
RUNNERS: dict[str, Callable[[Instance, Sequence[Any]], trees.Structure]] = {}


@dataclass(eq=False)
class Instance(Shown):
    """One typed version of a program: what its arguments are, and its term. A program keeps one for each choice."""

    __signature__ = SignatureOf(lambda one: signature(one.program.dynamic, one.program.named, one.program.declared))

    program: Program
    types: tuple[Type, ...]  # of the leaves of all parameters that are not static
    names: tuple[str, ...]
    inputs: trees.Shape
    statics: Mapping[str, Any]
    _term: Block | None = field(default=None, repr=False)
    _outputs: trees.Shape | None = field(default=None, repr=False)
    _equalities: tuple[Equality, ...] = field(default=(), repr=False)
    assumed: tuple[Equality, ...] = ()  # of sizes, besides those that the program requires in every run
    compiled: dict[Any, Any] = field(default_factory=dict, repr=False)  # what backends keep with an instance

    @cached_property
    def declared(self) -> Signature:
        """What checks and converts arguments to the types of this version, whatever its term requires of their sizes.

        TypeError where a size cannot be found from the arguments.
        """
        shapes = zip(self.program.dynamic, self.inputs.inner, strict=True)
        places = [parameter.name + path for parameter, shape in shapes for path in trees.paths(shape)]
        return Signature(self.program.name, places, self.types)

    @cached_property
    def signature(self) -> Signature:
        """What checks and converts the arguments of a call: the sizes are those that the term takes for granted."""
        return self.declared.requiring(self.equalities)

    def __call__(self, *args: Any, **kwargs: Any) -> trees.Structure:
        """Run this version on arrays, or inline it among expressions. Static arguments need not be given again."""
        try:
            arguments = self.bind(args, kwargs)
            if building():
                return self.program.inline(arguments)
            return RUNNERS["default"](self, self.leaves(arguments))
        except Exception as error:
            shorten(error)
            raise

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """One argument a parameter: arguments by position are those that are not static, unless there are more."""
        program = self.program
        names = [p.name for p in (program.dynamic if len(args) <= len(program.dynamic) else program.parameters)]
        given = dict(zip(names, args, strict=False))
        for name, value in self.statics.items():
            if given.get(name, value) != value or kwargs.get(name, value) != value:
                raise TypeError(at_line(f"{self!r}: the static parameter {name!r} is {value!r} here"))
        if len(args) > len(names) or any(name in given for name in kwargs):
            return program.bind(args, kwargs)  # which refuses them
        return program.bind((), {**self.statics, **given, **kwargs})

    def leaves(self, arguments: Sequence[Any]) -> list[Any]:
        """The leaves of arguments; TypeError when one has another structure than this version takes."""
        program = self.program
        leaves: list[Any] = []
        if len(program.dynamic) < len(program.parameters):
            arguments = [a for a, p in zip(arguments, program.parameters, strict=True) if not p.static]
        for parameter, shape, argument in zip(program.dynamic, self.inputs.inner, arguments, strict=True):
            if shape.container is None:
                leaves.append(argument)
            else:
                leaves += parameter.of_shape(argument, shape, program.name)
        return leaves

    def inner(self, f: Program) -> Instance:
        """The version of another program whose parameters are the first of this one's, for the types that they have."""
        shapes = self.inputs.inner[: len(f.dynamic)]
        types = self.types[: sum([shape.leaves for shape in shapes])]
        statics = {parameter.name: self.statics[parameter.name] for parameter in f.parameters if parameter.static}
        return f._instance(types, shapes, statics)

    def __repr__(self) -> str:
        return f"<instance {self.program.name}({', '.join(map(str, self.types))})>"

    def __reduce__(self) -> Any:
        return _instance_of, (self.program, self.types, self.inputs.inner, dict(self.statics))

    @property
    def term(self) -> Block:
        """The program as it was written, built on first use.

        Its binders have the types of this version, with one name for sizes that it requires to be equal in every run.
        """
        self._have()
        assert self._term is not None
        return self._term

    @property
    def outputs(self) -> trees.Shape:
        """The structure of the result."""
        self._have()
        assert self._outputs is not None
        return self._outputs

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """What the sizes of a call must fulfil, so that the types of the term's binders are those of its arguments."""
        self.term  # noqa: B018  (builds it)
        return self._equalities

    def _have(self) -> None:
        """Build the term, unless it is there."""
        if self._term is None or self._outputs is None:
            with building_term(self.program.name):
                self._build()

    def _build(self) -> None:
        """Build the term; and again, with one name for sizes that it requires to be equal, while there are any.

        Names that no parameter has are defined by what is required anywhere.
        """
        unifier, equal, opened = Unifier(self.types), list[Equality](), dict[str, str]()
        equations: Sequence[Equality] = [*(() if self.written is self else self.required), *self.assumed]
        definitions: Sequence[Equality] = ()
        term: Block | None = None
        while True:
            solved = [equation for equation in equations if unifier.add(equation)]
            defined = [equation for equation in definitions if unifier.is_open(equation) and unifier.add(equation)]
            if term is not None and not solved and not defined:
                break
            names = SizeNames(unifier.names, unifier.meaning)
            try:
                term, outputs = self._built(unifier, names)
                self._outputs, opened = outputs, names.opened
            except Exception as error:
                if term is not None and not defined:  # such sizes are impossible: the run says which requirement fails
                    break
                if defined or not solved:
                    if isinstance(error, RecursionError):
                        repeated(error)
                    error.add_note(f"while building the program {self.program.name}({', '.join(map(str, self.types))})")
                    raise
                unifier, equations, definitions = Unifier(self.types), (), ()
                continue
            equal += solved
            equations, definitions = equalities(term), defining(term) if opened else ()
        if opened:
            self._require_known(opened, named(term))
        self._equalities, self._term = tuple(unifier.checks(equal)), term

    def _require_known(self, opened: Mapping[str, str], used: Collection[str]) -> None:
        """Raise TypeError for a name of a size that neither a parameter has nor a requirement explains."""
        for name, what in opened.items():
            if name in used:
                problem = "no parameter has a size of this name, and no call one that is known before the run"
                raise TypeError(at_line(f"{self.program.name}: {what} cannot be found: {problem}"))

    @cached_property
    def written(self) -> Instance:
        """The version of the program that the verbs of this one are applied to; this one, if it is no verb's."""
        program = self.program
        while program.of is not None:
            program = program.of
        return self if program is self.program else self.inner(program)

    @cached_property
    def required(self) -> Sequence[Equality]:
        """The equalities of sizes that the written program requires in every run, before any derivative is taken."""
        return self.written.equalities if self._is_written else ()

    @cached_property
    def probable(self) -> Sequence[Equality]:
        """Equalities of sizes that code may assume, for those calls that they hold for."""
        return probable(self.written.term) if self._is_written else ()

    @cached_property
    def written_term(self) -> Block | None:
        """The term of the written program; None where it cannot be built, as whoever needs it says in its own words."""
        try:
            return self.written.term
        except Exception:
            return None

    @property
    def _is_written(self) -> bool:
        """Whether the written program can be built, or is this one."""
        return self.written is self or self.written_term is not None

    def _built(self, unifier: Unifier, names: SizeNames) -> tuple[Block, trees.Shape]:
        """The term and the structure of its results, for the types as they are unified."""
        bound = self.declared.bound  # TypeError for sizes that no argument would bind
        with build() as builder:
            builder.size_names = names
            types = map(unifier.type, self.types)
            binders = [builder.variable(type, name) for type, name in zip(types, self.names, strict=True)]
            arguments = trees.unflatten(self.inputs, [Expr(binder, builder) for binder in binders])
            result = self.program.apply(self.program.with_statics(arguments, self.statics))
            if result is None:
                raise self.program.empty()
            values, outputs = self.program.checked_results(result, bound, unifier)
            statements = builder.scopes[0].statements
            try:
                term, captured = to_block(binders, values, statements, self.names)
            except LookupError as error:
                captured = list(error.args)
            if captured:
                what = f"{self.program.name}: {Expr(captured[0], builder).described}"
                raise RuntimeError(at_line(f"{what}, was used outside the combinator that made it"))
            return term, outputs


class Program(Shown, Generic[P, R]):
    """A program: a Python function with parameters, not yet built. Made by :func:`program` and by the verbs.

    Type checkers know its parameters and its result, as the function has them.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        parameters: Sequence[Parameter],
        result: Declared | None = None,
        of: Program | None = None,
    ) -> None:
        self.function, self.name, self.parameters, self.declared = function, name, tuple(parameters), result
        self.of = of  # the program that this one was made of by a verb, whose parameters are its first
        self.dynamic = tuple([parameter for parameter in self.parameters if not parameter.static])
        self.named: tuple[str, ...] = ()  # the last parameters, which Python takes by their names only
        self._instances: dict[Any, Instance] = {}
        self.made: dict[Any, Program[Any, Any]] = {}  # by verbs, from this one: by the verb with its options
        self._chosen_by: dict[Any, Instance] = {}  # structures and kinds of arguments, and static values
        self._only: Instance | None = None  # the instance of a program that leaves nothing to its arguments
        self._fixed = all(p.declared is not None and p.omitted is None for p in self.parameters)
        # how many parameters there are, if each is one leaf of a declared type
        self._plain = len(self.parameters) if all(parameter.type is not None for parameter in self.parameters) else -1
        self.__name__ = name
        self.__module__ = getattr(function, "__module__", __name__)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__doc__ = function.__doc__

    @staticmethod
    def of_term(
        term: Block,
        outputs: trees.Shape,
        function: Callable[..., Any],
        name: str,
        parameters: Sequence[Parameter],
    ) -> Program:
        """The program of a term that is there; ``function`` means the same, where it is inlined."""
        made = Program(function, name, parameters)
        instance = made.at()
        instance._term, instance._outputs = term, outputs
        return made

    def empty(self) -> TypeError:
        """What is raised for a result without anything in it."""
        problem = "is a return missing? The tangent of an integer is None, too, as there is none"
        return TypeError(f"{self.name} returns nothing: {problem} (at {line_of(self.function)})")

    __signature__ = SignatureOf(lambda program: signature(program.parameters, program.named, program.declared))

    @property
    def result(self) -> Type | None:
        """The declared type of a result that is one leaf."""
        return self.declared.types[0] if self.declared is not None and self.declared.shape == trees.LEAF else None

    def __reduce__(self) -> Any:
        """By reference, as Python pickles functions; the program of a verb by what it holds."""
        if not inspect.isfunction(self.function):
            return Program, (self.function, self.name, self.parameters, self.declared, self.of)
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        return self.__qualname__ if found is self else (program, (self.function,))

    def __repr__(self) -> str:
        return f"<program {self.name}({', '.join(map(str, self.parameters))})>"

    # Calls

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inline the program among expressions, or run it on arrays."""
        try:
            if len(args) == self._plain and not kwargs and trees.LEAVES.issuperset(map(type, args)) and not building():
                self._only = self._only or self.at()
                return RUNNERS["default"](self._only, args)
            arguments = self.bind(args, kwargs)
            if building() or any(isinstance(leaf, Expr) for leaf in trees.flatten(arguments)[0]):
                return self.inline(arguments)
            instance = self.instance_for(arguments)
            return RUNNERS["default"](instance, instance.leaves(arguments))
        except Exception as error:
            shorten(error)
            raise

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
        """The leaves of the arguments that are not static, as the version that they choose takes them."""
        return self.instance_for(arguments).leaves(arguments)

    def inline(self, arguments: Sequence[Any]) -> trees.Structure:
        """Apply the function to expressions, after checking them against the annotations."""
        inlining = Inlining(self.name)
        ready = inlining.arguments(self.parameters, arguments)
        with current().size_names.inlined(inlining.sizes):
            return self.apply(ready)

    def apply(self, arguments: Sequence[Any]) -> trees.Structure:
        """The function's result on arguments that are ready."""
        count = len(arguments) - len(self.named)
        result: trees.Structure = self.function(*arguments[:count], **dict(zip(self.named, arguments[count:])))
        return result

    # Instances

    @property
    def annotated(self) -> bool:
        """Whether no parameter takes its type from its argument."""
        known = [p.declared is not None or p.static or p.like is not None for p in self.parameters]
        return all(known)

    def instances(self) -> list[Instance]:
        """The instances that there are by now."""
        return list(self._instances.values())

    def with_statics(self, dynamic: Sequence[Any], statics: Mapping[str, Any]) -> list[Any]:
        rest = iter(dynamic)
        return [statics[p.name] if p.static else next(rest) for p in self.parameters]

    def instance_for(self, arguments: Sequence[Any]) -> Instance:
        """The instance that these arguments choose."""
        if self._fixed:
            self._only = self._only or self.at()
            return self._only
        given = list(zip(self.parameters, arguments, strict=True))
        statics = {p.name: p.check_static(argument, self.name) for p, argument in given if p.static}
        leaves, shape = trees.flatten([argument for p, argument in given if not p.static])
        kinds = trees.kinds(leaves)
        if kinds is None:
            return self._found(arguments, statics)
        key = (shape, kinds, *map(told_apart, statics.values()))
        if key not in self._chosen_by:
            self._chosen_by[key] = self._found(arguments, statics)
        return self._chosen_by[key]

    def _found(self, arguments: Sequence[Any], statics: Mapping[str, Any]) -> Instance:
        """The instance that arguments choose, by the types of those without annotation."""
        chosen: dict[str, Declared] = {}
        for parameter, argument in zip(self.parameters, arguments, strict=True):
            if parameter.static:
                continue
            parameter = parameter.taking(argument)
            if parameter.declared is not None:
                chosen[parameter.name] = Declared(parameter.flatten(argument, self.name)[1], parameter.declared.types)
            elif parameter.like is not None:
                chosen[parameter.name] = self._moving(parameter, argument, chosen, statics)
            else:
                chosen[parameter.name] = self._own(parameter.name, *trees.flatten(argument))
        return self._chosen(list(chosen.values()), statics)

    def _own(self, name: str, leaves: Sequence[Any], shape: trees.Shape) -> Declared:
        """What an argument is by itself."""
        return Declared(shape, types_of(leaves, shape, name, self.name))

    def _moving(
        self, parameter: Parameter, argument: Any, chosen: Mapping[str, Declared], statics: Mapping[str, Any]
    ) -> Declared:
        """What a tangent or cotangent is: the floating leaves are as those of what moves, the others as they come."""
        like = self._like(parameter, chosen, statics)
        names = trees.leaf_names(parameter.name, like.shape)
        leaves = parameter.of_shape(argument, like.shape, self.name)
        found = [
            self._own(name, *trees.flatten(leaf))
            if leaf is None or not holds_floating(type)
            else Declared(trees.LEAF, (with_own_sizes(type, name),))
            for leaf, type, name in zip(leaves, like.types, names, strict=True)
        ]
        shape = trees.grafted(like.shape, [part.shape for part in found])
        return Declared(shape, tuple([type for part in found for type in part.types]))

    def _like(self, parameter: Parameter, chosen: Mapping[str, Declared], statics: Mapping[str, Any]) -> Declared:
        """The structure and types of what a parameter is a tangent or cotangent of."""
        if isinstance(parameter.like, int):
            return chosen[self.parameters[parameter.like].name]
        f: Program = parameter.like
        static = {p.name: statics[p.name] for p in f.parameters if p.static}
        inner = f._chosen([chosen[p.name] for p in f.dynamic], static)
        return Declared(inner.outputs, inner.term.types)

    @ending_at_user
    def at(self, *types: Any, **statics: Any) -> Instance:
        """The instance for given types of the parameters that are not static; without any, the annotated one.

        A type is what an annotation may be: ``az.f64``, or a structure of types. Static parameters have their defaults.
        Raises TypeError when a parameter has neither an annotation nor a type here, or no value.
        """
        if types and len(types) != len(self.dynamic):
            said = f"{self.name} has {len(self.dynamic)} parameters that are not static, got {len(types)} types"
            raise TypeError(at_line(said))
        values = {}
        for parameter in self.parameters:
            if parameter.static:
                values[parameter.name] = statics.pop(parameter.name, parameter.default)
        missing = [name for name, value in values.items() if value is inspect.Parameter.empty]
        if missing:
            raise TypeError(at_line(f"{self.name}: the static parameters {', '.join(missing)} need values"))
        if statics:
            raise TypeError(at_line(f"{self.name} has no static parameter {', '.join(statics)}"))
        values = {p.name: p.check_static(values[p.name], self.name) for p in self.parameters if p.static}
        chosen = {p.name: self._given(p, type) for p, type in zip(self.dynamic, types)}
        for parameter in () if types else self.dynamic:
            if parameter.declared is not None:
                chosen[parameter.name] = parameter.declared
            elif parameter.like is not None:
                like = self._like(parameter, chosen, values)
                moving = [type if holds_floating(type) else None for type in like.types]
                chosen[parameter.name] = self._moving(parameter, trees.unflatten(like.shape, moving), chosen, values)
            else:
                said = f"{self.name}: parameter {parameter.name!r} has no annotation; give its type"
                raise TypeError(at_line(said))
        return self._chosen(list(chosen.values()), values)

    def _given(self, parameter: Parameter, type: Any) -> Declared:
        try:
            return read_annotation(type).expanded()
        except TypeError as error:
            problem = f"{self.name}.at takes types, not arguments; for parameter {parameter.name!r}: {error}"
            raise TypeError(at_line(problem)) from None

    def _chosen(self, declared: Sequence[Declared], statics: Mapping[str, Any]) -> Instance:
        types = [type for part in declared for type in part.types]
        return self._instance(types, [part.shape for part in declared], statics)

    def _instance(self, types: Sequence[Type], shapes: Sequence[trees.Shape], statics: Mapping[str, Any]) -> Instance:
        inputs = trees.Shape(tuple, (), tuple(shapes))
        key = (tuple(types), inputs, tuple([(name, told_apart(value)) for name, value in statics.items()]))
        if key not in self._instances:
            named = zip(self.dynamic, shapes, strict=True)
            names = [name for parameter, shape in named for name in trees.leaf_names(parameter.name, shape)]
            self._instances[key] = Instance(self, tuple(types), tuple(names), inputs, dict(statics))
        return self._instances[key]

    def checked_results(self, result: Any, bound: frozenset[str], unifier: Unifier) -> tuple[list[Value], trees.Shape]:
        """The values of the results and their structure, checked against the return annotation if there is one."""
        if self.declared is None:
            leaves, shape = trees.flatten(result)
            return [as_expr(leaf).value for leaf in leaves], shape
        leaves, shape = trees.flatten(result)
        if shape != self.declared.shape:
            try:
                leaves = trees.matched(self.declared.shape, result)
            except TypeError:
                leaves = []
        fitting = zip(leaves, self.declared.types, strict=False)
        if len(leaves) != len(self.declared.types) or any(
            trees.parts(x) is not None for x, type in fitting if is_data(type)
        ):
            said = f"{self.name} is declared to return {self.declared}, but its body returns {description(result)}"
            raise TypeError(at_line(said))
        values = []
        wanted = map(unifier.type, self.declared.types)
        for leaf, path, type in zip(leaves, trees.paths(self.declared.shape), wanted, strict=True):
            if is_data(type):
                values.append(check_results(f"{self.name}{path}", type, as_expr(leaf), bound))
            else:
                values.append(as_typed(leaf, type, f"the result of {self.name}{path}"))
        return values, self.declared.shape


def _instance_of(program: Program, types: Sequence[Type], shapes: Sequence[trees.Shape], statics: Any) -> Instance:
    """The instance with these types of a program: how instances are unpickled."""
    return program._instance(types, shapes, statics)


@ending_at_user
def program(function: Callable[P, R]) -> Program[P, R]:
    """Make a program of a Python function whose parameters are annotated.

    ``az.f64`` and ``az.Array[az.f64, "n d"]`` annotate scalars and arrays, ``tuple[...]``, dictionaries, named tuples,
    dataclasses and records structures of these; a parameter annotated with a Python type (``steps: int``) is static,
    one without annotation takes its type from its first argument. Nothing is built until the program is used. Raises
    TypeError, with the parameter's name, for an annotation that is none of these.

    >>> import adze as az
    >>> @az.program
    ... def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    ...     return az.sum(x * x)
    >>> float(norm2([3.0, 4.0]))
    25.0
    """
    return _program(function)


def _program(function: Callable[P, R], count: int | None = None) -> Program[P, R]:
    given: Any = function  # whatever callers have
    if not callable(given) or isinstance(given, Expr):
        raise TypeError(at_line(f"a program or a Python function is expected here, not {description(given)}"))
    parameters, result = read_parameters(function, count)
    name, whole = getattr(function, "__name__", "program"), [parameter.expanded() for parameter in parameters]
    made = Program[P, R](function, name, whole, None if result is None else result.expanded())
    own = inspect.signature(function).parameters.values()
    made.named = tuple([p.name for p in own if p.kind is p.KEYWORD_ONLY])
    return made


def as_program(function: Callable[P, R], count: int | None = None) -> Program[P, R]:
    """A program as it is, or one made from a Python function, for so many arguments if it is known."""
    return function if isinstance(function, Program) else _program(uncompiled(function), count)


def uncompiled(function: Any) -> Any:
    """A function as it is; TypeError for what runs a program, and is none: compiled ones, and those that evaluate."""
    of = getattr(function, "program", None)
    if isinstance(of, Program | Instance):
        name = (of.program if isinstance(of, Instance) else of).name
        what = f"{function!r}" if type(function).__module__.startswith("adze.") else f"<{function.__name__}>"
        instead = f"give {name} itself, and compile what comes out: az.compile(az.grad({name}))"
        raise TypeError(at_line(f"{what} runs a program, and is none; {instead}"))
    return function


def instance_of(program: Callable[..., Any]) -> Instance:
    """An instance as it is, or the annotated instance of a program or of a Python function."""
    return program if isinstance(program, Instance) else as_program(program).at()


def interpret(program: Callable[..., Any] | Block, language: Fold[Any, Any, B]) -> B:
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
