"""``az.jax``: an Adze program as a function of JAX's arrays.

The arrays of a call choose a version of the program, as NumPy's do. Its leaves are an operator (``jax_primitives.py``)
that JAX differentiates, maps and compiles, and each of these is an Adze program, compiled when it is first needed::

    norm = az.jax(lambda x: az.sqrt(az.sum(x * x)))
    x = jax.numpy.array([3.0, 4.0])
    jax.grad(norm)(x)                     # Array([0.6, 0.8], dtype=float32): runs az.vjp(norm)
    jax.jit(jax.vmap(norm))(x[:, None])   # Array([3., 4.], dtype=float32): one call of az.vmap(norm)
"""

from __future__ import annotations

import inspect
from typing import Any, Generic

from ..backends.compile import compile
from ..core import trees
from ..core.presented import SignatureOf
from ..core.program import Instance, P, Program
from ..core.source import ending_at_user, shorten
from ..core.verb import Function, program_of
from .choosing import Reading, chosen
from .jax_arrays import argument, concrete, jax_module, stand_in
from .jax_operators import JaxOperator
from .jax_primitives import primitives

_READING = Reading(concrete, stand_in, argument)


class JaxFunction(Generic[P]):
    """A program as a function of JAX's arrays. Made by :func:`jax`."""

    __signature__ = SignatureOf(lambda function: inspect.signature(function.program))

    def __init__(self, program: Program[P, Any] | Instance, options: dict[str, Any]) -> None:
        self.program, self.options = program, options
        self._operators: dict[int, JaxOperator] = {}  # by the version of the program, which keeps it
        self.__name__ = (program.program if isinstance(program, Instance) else program).name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The results of the program, as arrays in its structure. Raises what the program itself raises."""
        try:
            instance, leaves = chosen(self.program, args, kwargs, _READING)
            operator = self._operator(instance)
            operator.made([leaf.shape for leaf in leaves])  # refuses what JAX cannot know, with the user's line
            return trees.unflatten(instance.outputs, primitives().apply.bind(*leaves, operator=operator))
        except Exception as error:
            shorten(error)
            raise

    def __repr__(self) -> str:
        return f"<jax {self.program!r}>"

    def __reduce__(self) -> Any:
        return JaxFunction, (self.program, self.options)

    def _operator(self, instance: Instance) -> JaxOperator:
        found = self._operators.get(id(instance))
        if found is None:
            found = self._operators[id(instance)] = JaxOperator.of(instance, self.options)
        return found


@ending_at_user
def jax(f: Function[P, Any], **options: Any) -> JaxFunction[P]:
    """A program, or one version of it, as a function of JAX's arrays: to be differentiated, mapped and compiled.

    The function takes JAX's or NumPy's arrays where the program takes arrays, Python's numbers where it takes scalars,
    and structures of them; it gives arrays of JAX in the structure of the result. They have the scalar types that the
    program declares, of which f64 and f32 are differentiated; a program without annotations takes its types from the
    arrays. Derivatives and batches are the programs of :func:`jvp`, :func:`vjp` and :func:`vmap`, in any nesting, for
    ``jax.grad``, ``jacfwd``, ``jacrev``, ``hessian``, ``linearize``, ``vmap``, ``jit``, ``checkpoint`` and JAX's loops.

    The ``options`` are those of :func:`compile`. Programs run on the host.

    Raises ImportError without JAX, and TypeError and ValueError for what :func:`compile` refuses. A call raises
    TypeError for an argument of another type or rank or with values that are no numbers, and for types of 64 bits
    while JAX's are off; ValueError for sizes that do not fit, and for a result whose size the run decides. What a run
    refuses is JAX's ``JaxRuntimeError`` or ValueError, with the line of the program. See ``docs/jax.md``::

        @az.program
        def norm(x: az.Array[az.f32, "n"]) -> az.f32:
            return az.sqrt(az.sum(x * x))

        jax.grad(az.jax(norm))(jax.numpy.array([3.0, 4.0]))     # Array([0.6, 0.8], dtype=float32)
    """
    jax_module()
    program = f if isinstance(f, Instance) else program_of("jax", f)
    compile(program, **options)  # refuses wrong options at once
    return JaxFunction(program, options)
