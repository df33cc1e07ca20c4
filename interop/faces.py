"""The two faces of an operator: what PyTorch differentiates, and what its compiler keeps as one node.

Eager code calls a ``torch.autograd.Function``, which has both modes of differentiation and batches, to any order. It
calls the custom operator, of which compiled and exported code consists. Neither would do alone: the forward mode of a
custom operator is zero without a word, so that ours raises; and Dynamo refuses a Function that has a ``jvp``, so that
it calls ours without looking inside.

    Applied(x)                     Function: backward, jvp, vmap of the operator
      adze::f_1a2b(x)              custom operator: kernel, fake kernel; backward and vmap for those who call it bare

The classes are made when PyTorch is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .tensors import pytorch


def alone(results: Sequence[Any]) -> Any:
    """Results as an operator gives them: a single one is no tuple."""
    return results[0] if len(results) == 1 else tuple(results)


def cotangents(call: str, operator: Any, tensors: Sequence[Any], arrived: Sequence[Any], needed: Sequence[bool]) -> Any:
    """The cotangents of arguments, None where none is needed or nothing has arrived.

    ``call`` names the way in which the operator of the cotangents is called.
    """
    given = [number for number, cotangent in enumerate(arrived) if cotangent is not None]
    wanted = [number for number, need in enumerate(needed) if need]
    found: list[Any] = [None] * len(tensors)
    if given and wanted:
        pulled = operator.pulled(wanted, given)
        results = getattr(pulled, call)(*tensors, *[arrived[number] for number in given])
        for number, result in zip(wanted, results, strict=True):
            found[number] = result
    return found


@cache
def applied() -> Any:
    """The Function that applies an operator, its first argument, to tensors, and gives a tuple."""
    base: Any = pytorch().autograd.Function

    class Applied(base):  # type: ignore[misc]
        @staticmethod
        def forward(operator: Any, *tensors: Any) -> Any:
            return operator.bare(*tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.operator, *tensors = inputs
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*[output[number] for number in ctx.operator.discrete])
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

        @staticmethod
        def backward(ctx: Any, *arrived: Any) -> Any:
            _, *needed = ctx.needs_input_grad
            return None, *cotangents("apply", ctx.operator, ctx.saved_tensors, arrived, needed)

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            moving = [number for number, tangent in enumerate(tangents) if tangent is not None]
            pushed = ctx.operator.pushed(moving)
            results = iter(pushed.apply(*ctx.saved_tensors, *[tangents[number] for number in moving]))
            count = len(ctx.operator.results)
            return tuple([None if number in ctx.operator.discrete else next(results) for number in range(count)])

        @staticmethod
        def vmap(info: Any, in_dims: Any, operator: Any, *tensors: Any) -> Any:
            results = operator.mapped(in_dims[1:]).apply(*tensors)
            return results, (0,) * len(results)

    forward: Any = Applied.forward
    forward.__signature__ = inspect.signature(forward)  # which each call asks for
    return Applied


@cache
def _library() -> Any:
    base: Any = pytorch().library.Library

    class Operators(base):  # type: ignore[misc]
        def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
            """Enter a kernel; that of derivatives refuses the mode that it does not have."""
            entered = _without_tangents(op_name, fn) if dispatch_key == "Autograd" else fn
            return super().impl(op_name, entered, dispatch_key, **options)

    return Operators("adze", "FRAGMENT")


def _without_tangents(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that raises NotImplementedError for a tensor with a tangent."""
    forward_ad = pytorch().autograd.forward_ad

    def run(keyset: Any, *tensors: Any) -> Any:
        for tensor in tensors:
            if tensor.is_floating_point() and forward_ad.unpack_dual(tensor).tangent is not None:
                problem = "has no forward mode as an operator; az.torch(f) has, which calls it"
                raise NotImplementedError(f"torch.ops.adze.{name} {problem}")
        return kernel(keyset, *tensors)

    return run


def registered(operator: Any) -> Any:
    """An operator, entered into PyTorch's table: what is called."""
    torch, library = pytorch(), _library()
    name = f"adze::{operator.name}"
    parameters = ", ".join([f"Tensor x{number}" for number in range(len(operator.types))])
    made = ", ".join(["Tensor"] * len(operator.results))
    library.define(f"{operator.name}({parameters}) -> {made if len(operator.results) == 1 else f'({made})'}")
    library.impl(operator.name, operator.kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, operator.fake, lib=library)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[results[number] for number in operator.discrete])
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, *arrived: Any) -> Any:
        return alone(cotangents("bare", operator, ctx.saved_tensors, arrived, ctx.needs_input_grad))

    def vmap(info: Any, in_dims: Any, *tensors: Any) -> Any:
        results = operator.mapped(in_dims).bare(*tensors)
        return alone(results), alone((0,) * len(results))

    torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
    torch.library.register_vmap(name, vmap, lib=library)
    return getattr(torch.ops.adze, operator.name).default
