"""Two primitives of JAX, of which its transformations of programs consist.

One applies an operator; the other is its derivative, a linear map (``jax_operators.py``). With these rules JAX has both
modes to any order (after Radul et al., You Only Linearize Once), and batches:

    adze         x, k -> y       jvp: adze_linear forwards                     batched: the operator along an axis
    adze_linear  x, k; dx -> dy  jvp in dx: itself; in x: that of its program  transpose: it in the other direction

On the CPU a primitive is a function of XLA's interface (``xla.py``), elsewhere a callback, which copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from ..core.types import Type
from .jax_arrays import aval, jax_module
from .jax_operators import JaxOperator, Linear
from .leaves import floating
from .xla import target


class _Primitives(NamedTuple):
    apply: Any
    linear: Any


@cache
def primitives() -> _Primitives:
    """The two primitives, with their rules."""
    jax, core = jax_module(), jax_module("jax.extend.core")
    ad, batching, mlir = [jax_module(f"jax.interpreters.{part}") for part in ("ad", "batching", "mlir")]
    made = _Primitives(core.Primitive("adze"), core.Primitive("adze_linear"))

    def zero(type: Type, shape: Sequence[int]) -> Any:
        return ad.Zero(aval(type, shape).to_tangent_aval())

    def moving(tangents: Sequence[Any], types: Sequence[Type]) -> list[int]:
        return [number for number in floating(types) if not isinstance(tangents[number], ad.Zero)]

    def derivative(operator: JaxOperator, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The tangents of all results."""
        chosen = moving(tangents, operator.types)
        found = iter(())
        if chosen:
            linear = Linear(operator, True, tuple(chosen), tuple(floating(operator.results)))
            found = iter(made.linear.bind(*primals, *[tangents[number] for number in chosen], linear=linear))
        results = enumerate(operator.made([jax.numpy.shape(primal) for primal in primals]))
        return [
            zero(type, shape) if not chosen or number in operator.discrete else next(found)
            for number, (type, shape) in results
        ]

    # The program

    def apply_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, operator: JaxOperator) -> Any:
        return made.apply.bind(*primals, operator=operator), derivative(operator, primals, tangents)

    def apply_batched(arrays: Sequence[Any], axes: Sequence[int | None], *, operator: JaxOperator) -> Any:
        results = made.apply.bind(*arrays, operator=operator.mapped(axes))
        return results, [0] * len(results)

    # Its derivative

    def linear_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, linear: Linear) -> Any:
        results = made.linear.bind(*primals, linear=linear)
        if moving(tangents[: linear.primals], linear.operator.types):
            return results, derivative(linear.program, primals, tangents)
        chosen = [number for number, each in enumerate(tangents[linear.primals :]) if not isinstance(each, ad.Zero)]
        given = [tangents[linear.primals + number] for number in chosen]
        return results, made.linear.bind(*primals[: linear.primals], *given, linear=linear.of(chosen))

    def linear_batched(operands: Sequence[Any], axes: Sequence[int | None], *, linear: Linear) -> Any:
        pairs = zip(operands, axes, strict=True)
        first = [each if axis is None else jax.numpy.moveaxis(each, axis, 0) for each, axis in pairs]
        results = made.linear.bind(*first, linear=linear.along([axis is not None for axis in axes]))
        return results, [0] * len(results)

    def linear_transposed(cotangents: Sequence[Any], *operands: Any, linear: Linear) -> Any:
        primals, moves = operands[: linear.primals], operands[linear.primals :]
        given = [number for number, each in enumerate(cotangents) if not isinstance(each, ad.Zero)]
        wanted = [number for number, each in enumerate(moves) if ad.is_undefined_primal(each)]
        found: list[Any] = [ad.Zero(each.aval) if ad.is_undefined_primal(each) else None for each in moves]
        if given and wanted:
            back = linear.transposed(wanted, given)
            results = made.linear.bind(*primals, *[cotangents[number] for number in given], linear=back)
            for number in wanted:
                result = results[back.moved.index(linear.moving[number])]
                shared = [not level[linear.primals + number] for level in reversed(linear.levels)]
                along = tuple([axis for axis, without in enumerate(shared) if without])
                found[number] = jax.numpy.sum(result, along) if along else result
        return [None] * linear.primals + found

    ad.primitive_jvps[made.apply], ad.primitive_jvps[made.linear] = apply_jvp, linear_jvp
    ad.primitive_transposes[made.linear] = linear_transposed
    batching.primitive_batchers[made.apply] = apply_batched
    batching.primitive_batchers[made.linear] = linear_batched

    # Both are run by the operators that compute them

    @cache
    def jitted(primitive: Any, **params: Any) -> Any:
        return jax.jit(partial(primitive.bind, **params))

    def called_back(operator: JaxOperator, *arrays: Any) -> Any:
        return jax.pure_callback(operator.run, operator.avals(*arrays), *arrays)

    def called(operator: JaxOperator, *arrays: Any) -> Any:
        name = target(operator, arrays)
        if name is None:
            return called_back(operator, *arrays)
        return jax.ffi.ffi_call(name, operator.avals(*arrays))(*arrays)

    def enter(primitive: Any, known: Any, computed: Any) -> None:
        """Enter what is known of a primitive before a run, and in a run the operator that computes it."""

        def lowered(call: Any) -> Any:
            return mlir.lower_fun(lambda *arrays, **params: call(computed(**params), *arrays), multiple_results=True)

        primitive.multiple_results = True
        primitive.def_impl(lambda *arrays, **params: jitted(primitive, **params)(*arrays))
        primitive.def_abstract_eval(known)
        mlir.register_lowering(primitive, lowered(called_back))
        mlir.register_lowering(primitive, lowered(called), platform="cpu")

    enter(made.apply, lambda *arrays, operator: operator.avals(*arrays), lambda operator: operator)
    enter(made.linear, lambda *arrays, linear: linear.avals(*arrays), lambda linear: linear.program)
    return made
