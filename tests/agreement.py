"""When two interpretations agree: three equalities, and no others.

*Exact*: inputs are quarters of small integers and programs polynomial, so every order of the operations gives the same
bits (zeros may differ in sign). *Rounded*: numbers differ by at most ``c eps M``, where M is the largest magnitude that
evaluate met on the way; NaN and infinities match by place. It says nothing when an intermediate overflowed. *Same
schedule* (threads, runs): bit for bit, by ``same_bits``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adze as az
from adze.core import terms, trees
from adze.core.environment import Env
from adze.core.primitive import Primitive
from adze.interpreters.evaluate import Evaluate

# Roundings between two orders of the same operations, in units of eps times the largest magnitude.
ROUNDINGS = 64


class Magnitudes(Evaluate):
    """Evaluate, remembering the largest magnitude of any finite number, and whether a finite number became infinite."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__(sizes, vectorize=False)
        self.largest, self.overflowed = 1.0, False

    def primitive(self, primitive: Primitive, args: Sequence[Any]) -> Any:
        step = super().primitive(primitive, args)

        def run(env: Env[Any]) -> Sequence[Any]:
            (result,) = step.run(env)
            values = np.asarray(result)
            if values.dtype.kind == "f":
                finite = np.isfinite(values)
                self.largest = max(self.largest, float(np.max(np.abs(values), where=finite, initial=0.0)))
                exact = [np.isfinite(arg.run(env)) for arg in args]
                self.overflowed |= bool(np.any(functools.reduce(np.logical_and, exact, np.isinf(values))))
            return (result,)

        return type(step)(run, step.effects, step.applies)


def magnitude(term: terms.Block, arrays: Sequence[Any], sizes: dict[str, int]) -> float | None:
    """The largest magnitude met when a term is evaluated; None when an intermediate overflowed."""
    language = Magnitudes(sizes)
    with np.errstate(all="ignore"):
        term.interpret(language).run(Env(), arrays)
    return None if language.overflowed else language.largest


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(leaf) for leaf in trees.flatten(tree)[0]]


def _pairs(got: Any, wanted: Any) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    first, second = leaves(got), leaves(wanted)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.shape == b.shape and a.dtype.kind == b.dtype.kind, (a, b)
    return list(zip(first, second, strict=True))


def exact(got: Any, wanted: Any) -> None:
    """The same numbers, NaN by place."""
    for a, b in _pairs(got, wanted):
        np.testing.assert_array_equal(a, b)


def rounded(got: Any, wanted: Any, largest: float | None, roundings: int = ROUNDINGS) -> None:
    """The same numbers to rounding; ``largest`` is what :func:`magnitude` gives."""
    if largest is None:
        return
    for a, b in _pairs(got, wanted):
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        eps = np.finfo(min(a.dtype, b.dtype, key=lambda t: t.itemsize)).eps
        worst = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
        assert worst <= roundings * eps * largest, (worst, largest, a, b)


def same_bits(got: Any, wanted: Any) -> None:
    for a, b in _pairs(got, wanted):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), (a, b)


def everywhere(
    program: az.Program,
    arguments: Sequence[Any],
    compare: Callable[..., None],
    wanted: Any = None,
    compiled: bool = True,
) -> Any:
    """Run a program in every interpretation and compare each with evaluate, and that with ``wanted`` if given."""
    instance = program.instance_for(program.bind(arguments, {}))
    arrays, sizes = instance.signature.convert(program.leaves(arguments))
    az.check(instance.term)
    assert instance.term.interpret(az.Reify()) == instance.term
    simplified = az.simplify(instance)
    az.check(simplified)
    az.pretty(instance)
    az.pretty(instance, style="de-bruijn")
    reference = az.evaluate(program)(*arguments)
    largest = () if compare is exact else (magnitude(instance.term, arrays, sizes),)
    if wanted is not None:
        compare(reference, wanted, *largest)
    compare(az.evaluate(program, vectorize=False)(*arguments), reference, *largest)
    compare(_evaluated(instance, simplified, arrays, sizes), reference, *largest)
    if compiled:
        single = az.compile(program, threads=1)(*arguments)
        compare(single, reference, *largest)
        same_bits(az.compile(program, threads=2)(*arguments), single)
    return reference


def _evaluated(instance: az.Instance, term: terms.Block, arrays: Sequence[Any], sizes: dict[str, int]) -> Any:
    from adze.interpreters.evaluate import evaluate_block

    return trees.unflatten(instance.outputs, evaluate_block(term, arrays, sizes))
