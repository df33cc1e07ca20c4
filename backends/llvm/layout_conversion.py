"""Layout conversion: large arguments whose axes lie in another order in memory are copied to row-major order.

Compiled code reads arrays in row-major order. An array that is not, a transposed one say, is copied before a call;
reading it where it is would cost more: whatever a strided read keeps from being a vector is read again and again in
most loops, and the copy costs a sweep. NumPy makes it element by element, which for a large transposed array takes
several times as long as a copy of its bytes. Here it is the nest that a program with transposed results has (squares
that are transposed in registers, shared out between the threads), built from the loop IR and compiled on first use.
Small arrays, those whose last axis is contiguous, and those with gaps are left to NumPy, which is as fast there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np

from ...core.types import SCALARS, Scalar
from .. import ir
from ..lowering.nests import Plan, build
from ..target import SQUARE_LEAST_BITS
from .emit import emit
from .host import host, host_target
from .jit import Executable
from .stored import load_runtime

Array = np.ndarray[Any, Any]

LEAST = 1 << 20  # bytes that are worth it: compiling takes some 50 ms, once


def row_major(array: Array, threads: int) -> Array:
    """A large array in row-major order, where its axes lie in another one; any other array as it is."""
    if array.nbytes < LEAST or array.flags.c_contiguous or array.dtype not in _SCALARS:
        return array
    order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    lying = array.transpose(order)
    if order[-1] == array.ndim - 1 or not lying.flags.c_contiguous:
        return array
    made = np.empty(array.shape, array.dtype)
    _mover(_SCALARS[array.dtype], order).run([lying.ctypes.data, made.ctypes.data], array.shape, threads)
    return made


_SCALARS = {scalar.dtype: scalar for scalar in SCALARS.values() if scalar.bits >= SQUARE_LEAST_BITS}


@cache
def _mover(scalar: Scalar, order: Sequence[int]) -> Executable:
    """The code that copies an array whose axes lie in an order."""
    numbers, target = count(), host_target()
    sizes = [f"n{axis}" for axis in range(len(order))]
    loops = [ir.Axis(ir.Variable(f"i{axis}"), ir.Variable(size)) for axis, size in enumerate(sizes)]
    lying = ir.Buffer("lying", scalar, tuple([loops[axis].extent for axis in order]))
    made = ir.Buffer("made", scalar, tuple([loop.extent for loop in loops]))
    element = ir.Load(lying, tuple([loops[axis].variable for axis in order]))
    body = (ir.Store(made, tuple([loop.variable for loop in loops]), element),)
    nest = Plan(loops, body, set(), {}, True, target, lambda stem: f"{stem}{next(numbers)}")
    function = ir.Function("arrange", tuple(sizes), (lying,), (made,), tuple(build(nest).statements))
    return load_runtime(str(emit(function, host())), partial(Executable, parallel=True))
