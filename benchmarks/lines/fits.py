"""Fits by least squares (programs/fits.py): many small ones inside a program, a large one, and a bundle.

A large fit is measured by ten of its steps, beside its residuals. SciPy fits the small ones one after the other, with
the same derivatives; there are so few of them in that line because it takes seconds for these already. Of a bundle it
gets the same sparse Jacobian; both find its pattern once, before calls are measured. It does not come to the least cost
in a hundred seconds, nor far below ENOUGH, which it reaches in ten; Adze's first step is below that. (With
``x_scale="jac"`` SciPy's steps end above it.)
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from contenders import Adze, Arguments, Call, Contender, Line, Tool, adze
from programs import fits

import adze as az

STEPS = 10
HUBER = {"loss": "huber", "f_scale": 3e-3}
ENOUGH = 1.75  # the cost of a bundle of 49 cameras, which begins at 6.4; the least one is 0.044


@dataclass(frozen=True)
class Solver(Adze):
    """Adze, whose solvers are called as they are."""

    def build(self, program: Any) -> Call:
        return super().build(program) if isinstance(program, az.Program) else program

    def compile(self, program: Any, arguments: Arguments) -> Call:
        return super().compile(program, arguments) if isinstance(program, az.Program) else program


def some_steps(residuals: az.Program, **options: Any) -> Call:
    """The cost after some steps."""

    def run(x0: Any, *args: Any) -> float:
        return az.least_squares(residuals, x0, args, callback=lambda step: step.number >= STEPS, **options).cost

    return run


def solver(residuals: az.Program, **options: Any) -> Contender:
    return Contender("Adze", Solver(), lambda: {"primal": residuals, "ten steps": some_steps(residuals, **options)})


@dataclass(frozen=True)
class OnDevice(Adze):
    """Adze on the first OpenCL device, to which arguments are copied in each call."""

    def build(self, program: Any) -> Call:
        return az.compile(program, backend="opencl")

    def compile(self, program: Any, arguments: Arguments) -> Call:
        return self.build(program)


def on_devices(programs: Mapping[str, Any]) -> list[Contender]:
    """One contender, where there is a device."""
    there = importlib.util.find_spec("pyopencl") is not None and az.devices()
    return [Contender("Adze, OpenCL", OnDevice(), lambda: programs)] if there else []


@az.program
def one(p: az.Array[az.f64, 5], image: az.Array[az.f64, 5, 5], u: az.Array[az.f64, 5]) -> az.Array[az.f64, 25]:
    return az.ravel(fits.peak(az.exp, [p[k] for k in range(5)], u) - image)


def in_scipy() -> Mapping[str, Call]:
    from scipy import optimize

    by_unknowns = az.compile(az.jacobian(one), threads=1)

    def residuals(p: Any, image: Any, u: Any) -> Any:
        return (fits.peak(np.exp, p, u) - image).ravel()

    def fitted(images: Any, u: Any) -> Any:
        return np.stack(
            [
                optimize.least_squares(
                    residuals, fits.START, jac=by_unknowns, method="lm", xtol=1e-12, ftol=1e-12, args=(image, u)
                ).x
                for image in images
            ]
        )

    return {"primal": fitted}


# A bundle until it costs no more than ENOUGH: the programs say whether it does


def to_a_cost(x0: Any, *args: Any) -> bool:
    fit = az.least_squares(fits.bundle, x0, args, callback=lambda step: step.cost <= ENOUGH, **HUBER)
    return fit.cost <= ENOUGH


@cache
def bundle_by_unknowns() -> az.SparseJacobian:
    return az.sparse_jacobian(fits.bundle)


def to_a_cost_in_scipy(x0: Any, *args: Any) -> bool:
    from scipy import optimize

    class Done(Exception):
        pass

    by_unknowns, residuals = bundle_by_unknowns(), az.compile(fits.bundle)
    cut = x0["cameras"].size

    def structured(x: Any) -> Any:
        return {"cameras": x[:cut].reshape(-1, 11), "points": x[cut:].reshape(-1, 3)}

    def watched(x: Any) -> Any:
        found = residuals(structured(x), *args).ravel()
        size = np.abs(found) / HUBER["f_scale"]
        if HUBER["f_scale"] ** 2 / 2 * np.where(size <= 1, size**2, 2 * size - 1).sum() <= ENOUGH:
            raise Done
        return found

    try:
        optimize.least_squares(
            watched,
            np.concatenate([x0["cameras"].ravel(), x0["points"].ravel()]),
            jac=lambda x: by_unknowns(structured(x), *args),
            method="trf",
            **HUBER,
        )
    except Done:
        return True
    return False


FEW, MANY = {"k": 1000}, {"k": 100_000}
BUNDLE, LARGE_BUNDLE = {"c": 49, "p": 7776, "o": 31843}, {"c": 372, "p": 47423, "o": 204472}
LINES = [
    Line(
        "small fits",
        "Many small fits: a peak with an offset, 5 unknowns, in each of k pictures of 25 pixels",
        [FEW],
        fits.pictures,
        [*adze({"primal": fits.peaks}), Contender("SciPy, a fit at a time", Tool(), in_scipy)],
        functions=("primal",),
        main=FEW,
        tolerance=1e-6,
    ),
    Line(
        "many small fits",
        "The same of more pictures",
        [MANY],
        fits.pictures,
        [*adze({"primal": fits.peaks}), *on_devices({"primal": fits.peaks})],
        functions=("primal",),
        main=MANY,
    ),
    Line(
        "large fit",
        "A sum of 5 exponentials: the residuals at n places, and ten steps of a fit",
        [{"n": 10**5}, {"n": 10**6}],
        fits.decay,
        [solver(fits.exponentials)],
        functions=("primal", "ten steps"),
        main={"n": 10**6},
    ),
    Line(
        "bundle",
        "Bundle adjustment of c cameras: the residuals, and ten steps of a fit with Huber's loss",
        [BUNDLE, LARGE_BUNDLE],
        fits.scene,
        [solver(fits.bundle, **HUBER)],
        functions=("primal", "ten steps"),
        main=BUNDLE,
    ),
    Line(
        "bundle, to a cost",
        "The fit until it costs as much as SciPy's soon does",
        [BUNDLE],
        fits.scene,
        [
            Contender("Adze", Tool(), lambda: {"to a cost": to_a_cost}),
            Contender("SciPy, trf", Tool(), lambda: {"to a cost": to_a_cost_in_scipy}),
        ],
        functions=("to a cost",),
        main=BUNDLE,
    ),
]
