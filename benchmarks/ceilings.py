"""What an OpenCL device can do at most: bytes a second of a copy, operations a second of a matrix product.

Both are measured with kernels written for the purpose, by the device's own events. The product is one kernel in several
shapes, of which the fastest counts: a group of DOWN x ACROSS threads makes a tile of the result, each thread ROWS x
COLUMNS vectors of VECTOR numbers of it in registers; DEPTH steps of both factors are in local memory at a time. On a
GPU groups are large and vectors short. A CPU wants a group of one thread, whose vectors fill its registers; there
NumPy's product takes part, too, since drivers for CPUs are behind it.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adze.backends.opencl.devices import Device, Opened, build_options, opened

RUNS = 9
COPIED = {"gpu": 1 << 29, "cpu": 1 << 27}  # bytes, well beyond the caches
ORDER = {"gpu": 4096, "cpu": 1152}  # of the matrices
ORDER_CHECKED = 256
SHAPE = ("VECTOR", "ROWS", "COLUMNS", "DOWN", "ACROSS", "DEPTH")
SHAPES = {
    "gpu": [
        (vector, rows, columns, down, across, depth)
        for vector, rows, columns in ((4, 8, 2), (4, 4, 1), (2, 4, 2), (2, 8, 4))
        for down, across in ((16, 16), (8, 16))
        for depth in (8, 16)
    ],
    "cpu": [(vector, rows, columns, 1, 1, 128) for vector, rows, columns in ((16, 8, 2), (16, 16, 1), (8, 8, 2))],
}

COPY = """
kernel void copy(global const float4 *restrict from, global float4 *restrict to) {
  to[get_global_id(0)] = from[get_global_id(0)];
}
"""

PRODUCT = """
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define VALUES JOINED(REAL, VECTOR)
#define LOAD JOINED(vload, VECTOR)
#define STORE JOINED(vstore, VECTOR)
#define HEIGHT (DOWN * ROWS)
#define WIDTH (ACROSS * COLUMNS)  // in vectors
#define EACH_SUM _Pragma("unroll") for (int x = 0; x < ROWS; x++) _Pragma("unroll") for (int y = 0; y < COLUMNS; y++)

// c = a b, all n x n, where tiles fill n
__attribute__((reqd_work_group_size(ACROSS, DOWN, 1)))
kernel void product(int n, global const REAL *restrict a, global const REAL *restrict b, global REAL *restrict c) {
  local REAL left[DEPTH][HEIGHT + 1];
  local VALUES right[DEPTH][WIDTH];
  const int i = get_local_id(1), j = get_local_id(0), thread = i * ACROSS + j;
  a += get_group_id(1) * HEIGHT * n;
  b += get_group_id(0) * WIDTH * VECTOR;
  c += get_group_id(1) * HEIGHT * n + get_group_id(0) * WIDTH * VECTOR;
  VALUES sum[ROWS][COLUMNS];
  EACH_SUM sum[x][y] = (VALUES)(0);
  for (int start = 0; start < n; start += DEPTH) {
    for (int e = thread; e < HEIGHT * DEPTH; e += DOWN * ACROSS)
      left[e % DEPTH][e / DEPTH] = a[e / DEPTH * n + start + e % DEPTH];
    for (int e = thread; e < DEPTH * WIDTH; e += DOWN * ACROSS)
      right[e / WIDTH][e % WIDTH] = LOAD(e % WIDTH, b + (start + e / WIDTH) * n);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < DEPTH; k++)
      EACH_SUM sum[x][y] = fma((VALUES)(left[k][i * ROWS + x]), right[k][y * ACROSS + j], sum[x][y]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  EACH_SUM STORE(sum[x][y], y * ACROSS + j, c + (i * ROWS + x) * n);
}
"""


@dataclass(frozen=True)
class Ceilings:
    """The most that a device was seen to do."""

    copied: float  # bytes a second, read and written
    products: dict[str, float]  # operations a second, by the name of the scalar type
    shapes: dict[str, str]  # of the fastest products

    def seconds(self, scalar: str, count: float, operations: float) -> float:
        """The least time for so many bytes and operations, as if both went on at once."""
        return max(count / self.copied, operations / self.products[scalar])

    def __str__(self) -> str:
        products = [
            f"{1e-9 * rate:.4g} GFlop/s in {scalar} ({self.shapes[scalar]})" for scalar, rate in self.products.items()
        ]
        return f"copy {1e-9 * self.copied:.4g} GB/s; matrix product {', '.join(products)}"


def ceilings(device: Device, scalars: dict[str, Any], quick: bool = False) -> Ceilings:
    """Measure a device; ``scalars`` are NumPy's by name. AssertionError when a product is wrong."""
    on, kind = opened(device), "cpu" if device.kind == "cpu" else "gpu"
    count = COPIED[kind] >> (6 if quick else 0)
    products = {name: _products(on, kind, dtype, quick) for name, dtype in scalars.items()}
    return Ceilings(
        2 * count / _copying(on, count),
        {name: rate for name, (rate, _) in products.items()},
        {name: shape for name, (_, shape) in products.items()},
    )


def _copying(on: Opened, count: int) -> float:
    kernel = _kernel(on, COPY, []).copy
    given, made = on.pool.allocate(count), on.pool.allocate(count)
    return _median(lambda: kernel(on.queue, (count // 16,), None, given, made))


def _products(on: Opened, kind: str, dtype: Any, quick: bool) -> tuple[float, str]:
    """The rate of the fastest shape, and what it is."""
    import pyopencl as cl

    n = ORDER_CHECKED if quick else ORDER[kind]
    found = []
    for shape in SHAPES[kind]:
        if _fits(on, dtype, shape):
            with contextlib.suppress(cl.Error):  # a shape that takes more registers than there are
                text = ", ".join(f"{name} {size}" for name, size in zip(SHAPE, shape, strict=True))
                found.append((2 * n**3 / _product(on, dtype, shape, n), text))
    if kind == "cpu":
        found.append((2 * n**3 / _product_of_numpy(dtype, n), "NumPy's"))
    return max(found)


def _fits(on: Opened, dtype: Any, shape: tuple[int, ...]) -> bool:
    vector, rows, columns, down, across, depth = shape
    taken = depth * (down * rows + 1 + across * columns * vector) * np.dtype(dtype).itemsize
    return taken <= on.device.local_memory and down * across <= on.device.largest_group


def _product(on: Opened, dtype: Any, shape: tuple[int, ...], n: int) -> float:
    """Seconds of a product of order n, after a small one that must be right."""
    import pyopencl as cl

    vector, rows, columns, down, across, _ = shape
    real = {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
    options = [f"-DREAL={real}", *(f"-D{name}={size}" for name, size in zip(SHAPE, shape, strict=True))]
    kernel = _kernel(on, PRODUCT, options).product
    random = np.random.default_rng(2026)

    def enqueue(order: int, a: Any, b: Any, c: Any) -> Any:
        size = (order // (columns * vector), order // rows)
        return kernel(on.queue, size, (across, down), np.int32(order), a, b, c)

    def moved(array: np.ndarray) -> Any:
        memory = on.pool.allocate(array.nbytes)
        cl.enqueue_copy(on.queue, memory, array)
        return memory

    a, b, c = (random.standard_normal((ORDER_CHECKED, ORDER_CHECKED)).astype(dtype) for _ in range(3))
    memory = [moved(array) for array in (a, b, c)]
    enqueue(ORDER_CHECKED, *memory)
    cl.enqueue_copy(on.queue, c, memory[2])
    np.testing.assert_allclose(c, a @ b, rtol=0, atol=1e3 * np.finfo(dtype).eps)
    memory = [moved(random.standard_normal((n, n)).astype(dtype)) for _ in range(3)]
    return _median(lambda: enqueue(n, *memory))


def _product_of_numpy(dtype: Any, n: int) -> float:
    """Seconds of NumPy's product, which is BLAS's."""
    random = np.random.default_rng(2026)
    a, b = (random.standard_normal((n, n)).astype(dtype) for _ in range(2))
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _kernel(on: Opened, source: str, options: list[str]) -> Any:
    import pyopencl as cl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return cl.Program(on.context, source).build([*build_options(on.device), *options])


def _median(enqueue: Callable[[], Any]) -> float:
    """The median time of a kernel in seconds, after a first one."""
    enqueue().wait()
    times = []
    for _ in range(RUNS):
        event = enqueue()
        event.wait()
        times.append(1e-9 * (event.profile.end - event.profile.start))
    return float(np.median(times))
