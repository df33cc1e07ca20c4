"""Programs whose whole Jacobians users want: those of Shaikhha et al. (2019, section 6), and an equation of motion.

``project`` is bundle adjustment's (``ba.py``): where one camera sees n points, written with arrays as there, and here
with scalars. Its Jacobian by the 11 parameters of the camera is tall. ``orbit`` is an equation of Lotka and Volterra,
``x' = a x - b x y`` and ``y' = d x y - c y``, integrated by Runge and Kutta's method: its states by the four rates.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adze as az

from . import ba

Vector, Matrix = az.Array[az.f64, "n"], az.Array[az.f64, "m n"]
Camera, Points = az.Array[az.f64, 11], az.Array[az.f64, "n 3"]


@az.program
def dot(u: Vector, v: Vector) -> az.f64:
    return az.sum(u * v)


@az.program
def largest(v: Vector) -> az.f64:
    return az.max(v)


@az.program
def added(u: Vector, v: Vector) -> Vector:
    return u + v


@az.program
def scaled(s: az.f64, v: Vector) -> Vector:
    return s * v


@az.program
def divergence(a: Matrix, w: az.Array[az.f64, "m k"], h: az.Array[az.f64, "k n"]) -> az.f64:
    """What non-negative matrix factorisation makes small."""
    p = w @ h
    return az.sum(az.log(p) + a / p)


@az.program
def project(camera: Camera, points: Points) -> az.Array[az.f64, "n 2"]:
    return az.map(lambda point: ba.project(camera, point), points)


def projected(sqrt: Any, cos: Any, sin: Any, camera: Sequence[Any], point: Sequence[Any]) -> tuple[Any, Any]:
    """Where a camera that is turned sees a point, with scalars alone."""
    angle = sqrt(camera[0] * camera[0] + camera[1] * camera[1] + camera[2] * camera[2])
    u, turned, across = [camera[k] / angle for k in range(3)], cos(angle), sin(angle)
    z = [point[k] - camera[3 + k] for k in range(3)]
    along = u[0] * z[0] + u[1] * z[1] + u[2] * z[2]
    cross = [u[1] * z[2] - u[2] * z[1], u[2] * z[0] - u[0] * z[2], u[0] * z[1] - u[1] * z[0]]
    seen = [z[k] * turned + cross[k] * across + u[k] * along * (1 - turned) for k in range(3)]
    x, y = seen[0] / seen[2], seen[1] / seen[2]
    square = x * x + y * y
    scale = camera[6] * (1 + camera[9] * square + camera[10] * square * square)
    return scale * x + camera[7], scale * y + camera[8]


@az.program
def project_scalars(camera: Camera, points: Points) -> az.Array[az.f64, "n 2"]:
    numbers = [camera[k] for k in range(11)]
    return az.map(
        lambda p: az.array(list(projected(az.sqrt, az.cos, az.sin, numbers, [p[k] for k in range(3)]))), points
    )


def stepped(f: Callable[[Any, Any], tuple[Any, Any]], x: Any, y: Any, h: float) -> tuple[Any, Any]:
    """One step of the method of Runge and Kutta for two states."""
    a = f(x, y)
    b = f(x + h / 2 * a[0], y + h / 2 * a[1])
    c = f(x + h / 2 * b[0], y + h / 2 * b[1])
    d = f(x + h * c[0], y + h * c[1])
    return (
        x + h / 6 * (a[0] + 2 * b[0] + 2 * c[0] + d[0]),
        y + h / 6 * (a[1] + 2 * b[1] + 2 * c[1] + d[1]),
    )


STEP = 0.01


def motion(rates: Sequence[Any]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """The equation's right-hand side."""
    a, b, c, d = rates
    return lambda x, y: (a * x - b * x * y, d * x * y - c * y)


@az.program
def orbit(rates: az.Array[az.f64, 4], times: Vector) -> az.Array[az.f64, "n 2"]:
    """The states after each step. There are as many steps as ``times``."""

    def step(state: Any, _: Any) -> Any:
        x, y = stepped(motion([rates[k] for k in range(4)]), *state, STEP)
        return (x, y), az.array([x, y])

    return az.scan_loop(step, (10.0, 5.0), times)[1]


# What they take


def vectors(count: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: tuple(np.random.default_rng(k).standard_normal(n) for k in range(count))


def number_and_vector(n: int) -> tuple[Any, ...]:
    return 0.75, *vectors(1)(n)


def factors(m: int, n: int, k: int) -> tuple[Any, ...]:
    draw = np.random.default_rng(1)
    return tuple(draw.uniform(0.5, 1.5, shape) for shape in ((m, n), (m, k), (k, n)))


def seen(n: int) -> tuple[Any, ...]:
    """A camera and points before it."""
    camera = np.array([0.1, 0.2, -0.3, 0.1, 0.2, -8.0, 1.5, 0.01, 0.02, 0.03, 0.004])
    return camera, np.random.default_rng(2).uniform(-1.0, 1.0, (n, 3))


def rates(n: int) -> tuple[Any, ...]:
    return np.array([1.1, 0.4, 0.4, 0.1]), np.zeros(n)
