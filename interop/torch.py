"""``az.torch``: an Adze program as a function of PyTorch's tensors.

The tensors of a call choose a version of the program, as arrays do. Its leaves are an operator
(``torch_operators.py``) with both modes of differentiation and batches, each of which is an Adze program, compiled when
it is first needed. So the function is one for autograd, ``torch.func``, ``torch.compile`` and ``torch.export``::

    norm = az.torch(lambda x: az.sqrt(az.sum(x * x)))
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    norm(x).backward()          # runs the program of norm, then that of its cotangent
    x.grad                      # tensor([0.6000, 0.8000])
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Generic

from typeguard import typeguard_ignore

from ..backends.compile import compile
from ..core import trees
from ..core.presented import SignatureOf
from ..core.program import Instance, P, Program
from ..core.source import at_line, ending_at_user, shorten
from ..core.verb import Function, program_of
from .choosing import Reading, chosen
from .tensors import argument, concrete, pytorch, stand_in
from .torch_operators import TorchOperator

_READING = Reading(concrete, stand_in, argument)
_HERE = ("cpu", "meta")  # where tensors are that need no copy


class TensorFunction(Generic[P]):
    """A program as a function of tensors. Made by :func:`torch`."""

    __signature__ = SignatureOf(lambda function: inspect.signature(function.program))

    def __init__(self, program: Program[P, Any] | Instance, copy: bool, options: dict[str, Any]) -> None:
        self.program, self.copy, self.options = program, copy, options
        self._operators: dict[int, TorchOperator] = {}  # by the version of the program, which keeps it
        self._output = trees.LEAF  # the structure of the result of the latest step

        def step(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            self._output, results = self._run(args, kwargs)
            return results

        step.__name__ = step.__qualname__ = (program.program if isinstance(program, Instance) else program).name
        compiler = pytorch().compiler
        self._step, self._is_compiling = compiler.allow_in_graph(step), compiler.is_compiling

    @typeguard_ignore  # Dynamo reads this, and a check is nothing that it takes
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The results of the program, as tensors in its structure. Raises what the program itself raises."""
        if not self._is_compiling():
            return trees.unflatten(*self._run(args, kwargs))
        results = self._step(*args, **kwargs)  # Dynamo reads this method, and enters the call into its graph
        output = self._output
        return results[0] if output.container is None else trees.unflatten(output, results)

    def _run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[trees.Shape, tuple[Any, ...]]:
        """The structure of the result, and its leaves."""
        try:
            instance, leaves = self._chosen(args, kwargs)
            operator = self._operator(instance)
            device = self._device(instance, leaves)
            results = operator.apply(*[leaf.cpu() for leaf in leaves] if device else leaves)
            return instance.outputs, tuple([result.to(device) for result in results]) if device else results
        except Exception as error:
            shorten(error)
            raise

    @ending_at_user
    def operator(self, *args: Any, **kwargs: Any) -> Any:
        """The custom operator that a call with these arguments consists of, of the leaves of the arguments.

        It has a fake kernel, reverse mode and batches, and no forward mode: NotImplementedError says so. Raises what a
        call raises for its arguments.
        """
        return self._operator(self._chosen(args, kwargs)[0]).overload

    def __repr__(self) -> str:
        return f"<torch {self.program!r}>"

    def __reduce__(self) -> Any:
        return TensorFunction, (self.program, self.copy, self.options)

    def _chosen(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Instance, list[Any]]:
        """The version of the program that arguments choose, and their leaves as tensors that it takes."""
        return chosen(self.program, args, kwargs, _READING)

    def _operator(self, instance: Instance) -> TorchOperator:
        found = self._operators.get(id(instance))
        if found is None:
            found = self._operators[id(instance)] = TorchOperator.of(instance, self.options)
        return found

    def _device(self, instance: Instance, leaves: Sequence[Any]) -> Any:
        """The device that arguments come from and results go to, if there is another one than the program's."""
        away = {leaf.device: name for leaf, name in zip(leaves, instance.signature.names, strict=True)}
        away = {device: name for device, name in away.items() if device.type not in _HERE}
        for device, name in away.items():
            program = instance.program.name
            what = f"{program}: argument {name!r}"
            if not self.copy:
                problem = f"is a tensor on {device}; the program takes memory of the host: give x.cpu(), or write"
                raise ValueError(at_line(f"{what} {problem} az.torch({program}, copy=True)"))
            if len(away) > 1:
                raise ValueError(at_line(f"{what} is a tensor on {device}, and another argument is on another device"))
        return next(iter(away), None)


@ending_at_user
def torch(f: Function[P, Any], *, copy: bool = False, **options: Any) -> TensorFunction[P]:
    """A program, or one version of it, as a function of PyTorch's tensors: to be differentiated, mapped and compiled.

    The function takes tensors where the program takes arrays, Python's numbers where it takes scalars, and structures
    of them; it gives tensors in the structure of the result, which share no memory with the arguments. Tensors are
    read where they are, expanded and transposed ones too. They have the scalar types that the program declares, of
    which f64 and f32 are differentiated; a program without annotations takes its types from the tensors. Derivatives
    and batches are the programs of :func:`vjp`, :func:`jvp` and :func:`vmap`, for ``backward``, ``torch.func`` and
    ``torch.autograd.forward_ad``. In ``torch.compile`` and ``torch.export`` a call is one custom operator, that of
    ``.operator(*arguments)``.

    With ``copy=True`` tensors of another device are copied to the host, and the results back; without, they are
    refused. The ``options`` are those of :func:`compile`.

    Raises ImportError without PyTorch, and TypeError and ValueError for what :func:`compile` refuses. A call raises
    TypeError for an argument of another type or rank or with values that are no numbers, ValueError for sizes that do
    not fit, for a tensor on another device and, while it is compiled or exported, for a result whose size the run
    decides. See ``docs/torch.md``::

        @az.program
        def norm(x: az.Array[az.f64, "n"]) -> az.f64:
            return az.sqrt(az.sum(x * x))

        x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
        az.torch(norm)(x).backward()
        x.grad                              # tensor([0.6000, 0.8000], dtype=torch.float64)
    """
    program = f if isinstance(f, Instance) else program_of("torch", f)
    compile(program, **options)  # refuses wrong options at once
    return TensorFunction(program, copy, options)
