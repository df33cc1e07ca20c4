"""Compiled programs: how they are called, and what they show of their code.

Calls check and convert their arguments, choose the code for their types and sizes, allocate the results and run; a
requirement that failed during the run is raised as its exception, with the user's line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, overload

from ..core import trees
from ..core.presented import SignatureOf
from ..core.program import Instance, P, Program, R, instance_of
from ..core.showing import Shown
from ..core.source import at_line, ending_at_user, shorten
from ..core.stages import CALL
from .backend import LLVM, Backend, OpenCL
from .constant_sizes import ConstantSizes, code_for, code_for_leaves, codes, varies
from .cost import Breakdown, Given
from .decisions import Choices
from .llvm.calls import Bound, Direct
from .multiversioning import Stage
from .profile import Profile
from .specialisations import ALWAYS, Specialisation, conjunction

_OUT = {"out"}


class Compiled(Shown, Generic[P, R]):
    """A compiled program: call it like the program itself. Made by :func:`compile`."""

    __signature__ = SignatureOf(lambda compiled: inspect.signature(compiled.program))

    def __init__(self, program: Program[P, R] | Instance, backend: Backend) -> None:
        self.program, self.backend = program, backend
        written = program.program if isinstance(program, Instance) else program
        self.__name__, self.__doc__, parameters = written.name, written.__doc__, written.parameters
        # how many parameters there are, if annotations say what all are, and what finds the leaves of structures
        self._plain = len(parameters) if all(parameter.declared is not None for parameter in parameters) else -1
        self._leaves: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        self._names = {parameter.name for parameter in parameters}
        self._out_is_ours = "out" not in self._names
        self._only: Any = None  # the version of a program that leaves nothing to its arguments
        # how many arguments there may be where these choose among versions; what the latest were, and their version
        self._choosing = 0 if self._plain >= 0 or any(each.static for each in parameters) else len(parameters)
        self._latest: tuple[Any, Any] = None, None

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: Any, out: Any, **kwargs: Any) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arrays: NumPy's in, NumPy's out. Raises what the program itself raises.

        ``out=`` are arrays to write the result to, in the structure of the result; None stands for a new one. They
        are writable, in row-major order and of the result's type and shape, and overlap neither arguments nor each
        other: TypeError and ValueError say what is wrong. (A program with a parameter ``out`` has no such option.)

        >>> import adze as az, numpy as np
        >>> @az.program
        ... def double(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        ...     return 2 * x
        >>> memory = np.empty(2)
        >>> az.compile(double)(np.array([1.0, 2.0]), out=memory) is memory, memory.tolist()
        (True, [2.0, 4.0])
        """
        try:
            if len(args) == self._plain and (not kwargs or (self._out_is_ours and kwargs.keys() == _OUT)):
                if self._only is None:
                    annotated = self._annotated
                    self._leaves = None if annotated.inputs.is_flat else annotated.leaves
                    if varies(annotated):
                        self._plain, self._choosing = -1, len(args)
                        return self(*args, **kwargs)
                    self._only = self.backend.version(annotated, self._leaves(args) if self._leaves else args)
                return self.backend.run(self._only, self._leaves(args) if self._leaves else args, kwargs.get("out"))
            shapes, kinds = None, None
            if len(args) == self._choosing and not kwargs:
                leaves, shapes, kinds = _told(self._leaves(args) if self._leaves else args)
                latest, taken = self._latest  # read once: other threads call, too
                if kinds is not None and (shapes, kinds) == latest:
                    return self.backend.run(taken, leaves)
            instance, leaves, out = self._call(args, kwargs)
            version: Any = self.backend.version(instance, leaves)
            if kinds is not None and shapes in (None, instance.inputs.inner):  # else leaves may have another order
                self._latest = (shapes, kinds), version
            return self.backend.run(version, leaves, out)
        except Exception as error:
            shorten(error)
            raise

    @ending_at_user
    def bind(self, *args: Any, **kwargs: Any) -> Bound:
        """The call with these arguments, to be made again and again by calling what this gives, without any.

        Arguments are checked once and stay where they are: each call reads what their memory holds then, so arrays
        must be in row-major order, and aligned if functions of C are called (ValueError). What the call takes is
        compiled, and nothing is run yet. Results are new arrays each time, or those of ``out=``. AttributeError for
        another backend than LLVM.

        >>> import adze as az, numpy as np
        >>> @az.program
        ... def total(x: az.Array[az.f64, "n"]) -> az.f64:
        ...     return az.sum(x)
        >>> numbers = np.array([1.0, 2.0])
        >>> bound = az.compile(total).bind(numbers)
        >>> float(bound())
        3.0
        >>> numbers[0] = 10.0
        >>> float(bound())
        12.0
        """
        backend = self._llvm("bind")
        instance, leaves, out = self._call(args, kwargs)
        return backend.bound(backend.version(instance, leaves), leaves, out)

    def direct(self, arguments: Sequence[Any]) -> Direct | None:
        """Calls by machine code with arguments that have these ``.shape``: see ``llvm/calls.py``.

        None where only Python can call. For programs whose parameters are numbers and arrays of declared types.
        """
        instance = self._annotated
        if not isinstance(self.backend, LLVM):
            return None
        code = code_for(instance, instance.declared.fitting(arguments)) if varies(instance) else instance
        return self.backend.version(code).direct(arguments, self.backend.threads)

    def _call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Instance, list[Any], Any]:
        """The instance whose code arguments choose, their leaves, and what is given as ``out``."""
        out = kwargs.pop("out", None) if self._out_is_ours else None
        arguments = self.program.bind(args, kwargs)
        chosen = self.program if isinstance(self.program, Instance) else self.program.instance_for(arguments)
        leaves = chosen.leaves(arguments)
        instance = code_for_leaves(chosen, leaves)
        CALL.debug("%s: arguments take the code for %s", self.__name__, instance.types)
        return instance, leaves, out

    @ending_at_user
    def peak_bytes(self, *args: Any, **kwargs: Any) -> int:
        """The most memory that a call with these arguments takes: its temporaries and its results, in bytes.

        Nothing is run. The arguments themselves do not count, and of most of them only the shape matters: ``np.empty``
        of that shape will do. Scalars and integer arrays may decide sizes, such as those of the checkpoints of a loop
        with so many steps. What is taken differently in different iterations is bounded by the largest. ``threads``
        matters, as each has temporaries of its own in parallel loops. Raises ValueError where a size is computed from
        floating numbers or by a ``while``: that is known after the run; and what a call raises for its arguments.
        For a device: what is planned before a call, for results and temporaries whose sizes those of arguments decide.

        >>> import adze as az, numpy as np
        >>> def grow(checkpoint):
        ...     @az.program
        ...     def f(x: az.Array[az.f64, "m"], steps: az.i64) -> az.f64:
        ...         return az.sum(az.fori_loop(0, steps, lambda i, s: az.sin(s * x), x, checkpoint=checkpoint))
        ...     return az.compile(az.grad(f), threads=1)
        >>> state = np.empty(1000)
        >>> [round(grow(c).peak_bytes(state, 400) / state.nbytes) for c in ("all", "sqrt")]
        [403, 43]
        """
        instance, leaves, _ = self._call(args, kwargs)
        return self.backend.peak_bytes(instance, leaves)

    def __repr__(self) -> str:
        return f"<compiled {self.program!r}>"

    def __reduce__(self) -> Any:
        return Compiled, (self.program, self.backend)

    @ending_at_user
    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Run the program, and tell how long each nest took, or each kernel of a device; printed, it is a table.

        On the CPU this is code of its own, with clocks around nests, which is compiled when it is first asked for. The
        rows are those of ``cost``, with the seconds and runs that were measured; ``.roofline`` has the rates of this
        machine, ``.at_best(row)`` the least seconds of a nest, and ``.plot()`` shows both. Raises what a call raises.

        >>> import adze as az, numpy as np
        >>> @az.program
        ... def total(x: az.Array[az.f64, "n"]) -> az.f64:
        ...     return az.sum(az.exp(x))
        >>> found = az.compile(total).profile(np.ones(100_000))
        >>> [row.runs for row in found.rows if "lanes" in row.name], 0 < found.rows[0].seconds < found.seconds
        ([1.0], True)
        """
        instance, leaves, _ = self._call(args, kwargs)
        return self.backend.profile(instance, leaves)

    @ending_at_user
    def cost(self, *args: Any, **kwargs: Any) -> Breakdown:
        """What each nest of the code takes in a call with these arguments, or ``sizes=``, estimated; nothing is run.

        Each row has a name, ``seconds``, ``operations`` (as many as the additions they are worth), ``bytes`` that come
        from beyond the first cache or go there, and ``runs``; the longest is first, printed it is a table. What data
        decides, such as the length of a filtered array, is a guess; of arguments only the shape matters else. See
        ``backends/cost.py``, and :func:`adze.cost` for what the program asks for on no machine. Rows of a device are
        its kernels, as often as they are launched. Raises what a call raises for its arguments; TypeError when sizes
        have other names than those of the program.

        >>> import adze as az
        >>> @az.program
        ... def scaled(x: az.Array[az.f64, "n m"], t: az.f64) -> az.Array[az.f64, "n m"]:
        ...     return t * x
        >>> found = az.compile(scaled).cost(sizes={"n": 1000, "m": 2000})
        >>> found.rows[0].operations, found.rows[0].bytes
        (2000000.0, 32000000.0)
        """
        return self.backend.cost(*self._asked(args, kwargs, "cost"))

    @ending_at_user
    def decisions(self, *args: Any, **kwargs: Any) -> Choices:
        """What the scheduler decided for a call with these arguments, or ``sizes=``, and what the other side costs.

        Each row has the ``name`` of a decision, whether it was ``taken``, the ``seconds`` of the whole call as it is,
        and those with the other side of this decision alone (``otherwise``), both estimated as ``cost`` does. For each
        the program is scheduled once more; nothing is compiled or run. A name goes into ``schedule={"force": {name:
        False}}`` to have the other side. See ``backends/decisions.py``; raises what ``cost`` raises.

        >>> import adze as az
        >>> @az.program
        ... def spread(x: az.Array[az.f64, "n"]) -> az.f64:
        ...     y = az.exp(x)
        ...     return az.sum(y) + az.max(y)
        >>> found = az.compile(spread).decisions(sizes={"n": 10_000})
        >>> [(row.name, row.taken, row.seconds < row.otherwise) for row in found.rows]
        [('fuse: total7 with array3', True, True), ('fuse: total10 with array3', True, True)]
        """
        return self.backend.decisions(*self._asked(args, kwargs, "decisions"))

    def stage(self, *args: Any, **kwargs: Any) -> Stage:
        """What a call with these arguments, or ``sizes=``, takes; without either, what all sizes take.

        Raises what a call raises for its arguments.
        """
        device = self.backend.device.name if isinstance(self.backend, OpenCL) else ""
        if not args and not kwargs:
            (general, *_) = self._general()
            version = self.backend.version(general)
            return Stage(version, version.forms - 1, device)
        instance, given = self._asked(args, kwargs, "stage")
        version = self.backend.version(instance)
        return Stage(version, version.taken(given.sizes), device)

    def _asked(self, args: Sequence[Any], kwargs: dict[str, Any], verb: str) -> tuple[Instance, Given]:
        """The instance whose code arguments or sizes take, and what is known of the call."""
        if self._sizes_alone(kwargs):
            (general, *_) = self._general()
            self._check_sizes(general, kwargs["sizes"], verb)
            return code_for(general, kwargs["sizes"]), Given(kwargs["sizes"])
        instance, leaves, _ = self._call(args, kwargs)
        return instance, self.backend.version(instance).given(leaves)

    def _sizes_alone(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether ``sizes=`` is given, and is no parameter of the program."""
        return "sizes" in kwargs and "sizes" not in self._names

    @property
    def _annotated(self) -> Instance:
        return instance_of(self.program)

    # For people to look at: a program without annotations shows what its calls have led to

    @property
    def nests(self) -> str:
        """What the program is lowered to, as text: nests of points that run in any order, and loops that have one.

        >>> import adze as az
        >>> @az.program
        ... def double(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        ...     return 2 * x
        >>> print(az.compile(double).nests)
        double(n; x1: f64[n]) -> result2: f64[n]
          nest i3 < n
            let t4 = x1[i3]
            let t5 = 2.0 * t4
            result2[i3] = t5
        """
        return self._each("#", lambda instance: self.backend.version(instance).nests)

    @property
    def loops(self) -> str:
        """The loop IR, as text: nests in the loops that were chosen for them.

        This and what follows shows a program whose parameters are annotated. One that leaves types to its arguments is
        shown for each types and constant sizes that it was called with; TypeError when it was not called yet. Where
        sizes choose between several forms of a program, each is shown, under what is true of its sizes.
        """
        return self._each("#", lambda instance: self.backend.version(instance).loops)

    @property
    def schedule(self) -> str:
        """What the scheduler decided: what is stored and why, and each nest with the roles of its loops."""
        return self._each("#", lambda instance: self.backend.version(instance).schedule)

    @property
    def llvm_ir(self) -> str:
        """The LLVM IR, after optimisation. AttributeError for another backend, here and below."""
        backend = self._llvm("llvm_ir")
        return self._each(";", lambda instance: backend.version(instance).llvm_ir)

    @property
    def assembly(self) -> str:
        """The machine code, as assembly."""
        backend = self._llvm("assembly")
        return self._each("#", lambda instance: backend.version(instance).assembly)

    @property
    def opencl_source(self) -> str:
        """The kernels, as OpenCL C."""
        backend = self._opencl("opencl_source")
        return self._each("//", lambda instance: backend.version(instance).source)

    @property
    def compile_seconds(self) -> float:
        """How long it took from the program to the machine code, or the kernels, that there are by now."""
        return sum([self.backend.version(instance).seconds for instance in self._instances()])

    @property
    def specialisations(self) -> list[Specialisation]:
        """The pieces of code that sizes choose from, those that no call has taken yet, too.

        Each has its ``condition``, ``why`` it is there, its ``state`` ("compiled", "loaded from disk" or "not
        compiled") and the ``seconds`` that this process took to have it. On a device they are the forms of the
        program, each with all of its kernels.

        >>> import adze as az, numpy as np
        >>> @az.program
        ... def double(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        ...     return 2 * x
        >>> [(each.condition, each.why) for each in az.compile(double).specialisations]
        [('all sizes', 'result2: parallel, lanes of ...')]
        """
        instances, found = self._instances(), list[Specialisation]()
        for instance in instances:
            made = self.backend.version(instance).specialisations()
            found += [each.where(_condition(instance, instances)) for each in made]
        return found

    def warm(self, **sizes: int) -> None:
        """Compile ahead what calls with these sizes take; without sizes, all specialisations.

        A program that leaves types to its arguments is compiled for the types that it was called with; give others to
        ``az.compile(f.at(...))``. TypeError when sizes have other names than those of the program, or some are missing.

        >>> import adze as az, numpy as np
        >>> @az.program
        ... def double(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        ...     return 2 * x
        >>> fast = az.compile(double)
        >>> fast.warm(n=1000)
        >>> {each.state for each in fast.specialisations} <= {"compiled", "loaded from disk"}
        True
        """
        for instance in self._general():
            if not sizes:
                for each in (*codes(instance), instance):
                    self.backend.version(each).warm(None)
                continue
            self._check_sizes(instance, sizes, "warm")
            self.backend.version(code_for(instance, sizes)).warm(sizes)

    def _check_sizes(self, instance: Instance, sizes: Mapping[str, int], verb: str) -> None:
        """Raise TypeError when sizes have other names than those of the program."""
        names = instance.declared.bound
        if sizes.keys() != names:
            known = ", ".join(sorted(names)) or "none"
            raise TypeError(at_line(f"{instance.program.name}: {verb} takes a value for each size, which are: {known}"))

    def _general(self) -> list[Instance]:
        """The annotated instance, or those that calls have led to."""
        if isinstance(self.program, Instance):
            return [self.program]
        found = [each for each in self.program.instances() if self._known(each)]
        if not found and not self.program.annotated:
            problem = "leaves types to its arguments: it has code when it was called, or for az.compile(f.at(types))"
            raise TypeError(at_line(f"{self.program.name} {problem}"))
        return found or [self._annotated]

    def _instances(self) -> list[Instance]:
        """The instances that there is code for: those with constants before those without."""
        return [each for general in self._general() for each in self._known(general) or [general]]

    def _known(self, general: Instance) -> list[Instance]:
        return [each for each in (*codes(general), general) if self.backend.has(each)]

    def _each(self, mark: str, text: Callable[[Instance], str]) -> str:
        instances = self._instances()
        if len(instances) == 1:
            return text(instances[0])
        heads = [f"{mark} for {', '.join(map(str, instance.types))}" for instance in instances]
        return "\n\n".join([f"{head}\n{text(each)}" for head, each in zip(heads, instances, strict=True)])

    def _llvm(self, wanted: str) -> LLVM:
        if not isinstance(self.backend, LLVM):
            raise AttributeError(f'{self!r} has no {wanted}: it was compiled with backend="opencl"')
        return self.backend

    def _opencl(self, wanted: str) -> OpenCL:
        if not isinstance(self.backend, OpenCL):
            raise AttributeError(f'{self!r} has no {wanted}: it was compiled with backend="llvm"')
        return self.backend


def _told(args: Sequence[Any]) -> tuple[Sequence[Any], tuple[trees.Shape, ...] | None, tuple[Any, ...] | None]:
    """The leaves of arguments, their shapes unless each is a leaf, and their kinds: what chooses among versions."""
    kinds = trees.kinds(args, sizes=True)
    if kinds is not None:
        return args, None, kinds
    leaves: list[Any] = []
    shapes: list[trees.Shape] = []
    for argument in args:
        inner, shape = ([argument], trees.LEAF) if type(argument) in trees.LEAVES else trees.flatten(argument)
        leaves += inner
        shapes.append(shape)
    return leaves, tuple(shapes), trees.kinds(leaves, sizes=True)


def _condition(instance: Instance, others: Sequence[Instance]) -> str:
    """When the code of an instance is taken, of which there are others: for which types and constants."""
    general = instance.general if isinstance(instance, ConstantSizes) else instance
    generals = {id(each.general if isinstance(each, ConstantSizes) else each) for each in others}
    types = f"({', '.join(map(str, general.types))})" if len(generals) > 1 else ALWAYS
    return conjunction([types, instance.condition if isinstance(instance, ConstantSizes) else ALWAYS])
