"""Values with what they depend on, and the batches that such values are computed in.

A *shadow* is a value, as evaluate computes it, with *layers*: arrays of the numbers of sets (``sets.py``), shaped like
the value or so that they broadcast to it. An element depends on the union of its sets in all layers. Layers are
united when there are many of them or one array is needed, and not before: adding two numbers only puts their layers
side by side, and a layer that both have is kept once.

    x[i] * y[i] + x[i]      layers: (the numbers of x[i], those of y[i])

A shadow *varies* when its value may be another one at other floating arguments. A choice by a test that varies takes
both branches. Where it varies *where* something is read or written, or how often, what is found holds at these
arguments only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from ..evaluate.batches import Batches, extent_of
from .sets import NUMBER, Array, Sets, once

# So many layers are kept side by side.
MOST_LAYERS = 24

_NOTHING = np.zeros((), NUMBER)


@dataclass(frozen=True)
class Shadow:
    """A value, the sets of inputs that its elements depend on, and whether the value may change."""

    value: Any
    layers: tuple[Array, ...] = ()
    varies: bool = False


def merged(shadows: Sequence[Shadow]) -> tuple[Array, ...]:
    """The layers of several shadows, each once."""
    if len(shadows) == 1:
        return shadows[0].layers
    return tuple({id(layer): layer for shadow in shadows for layer in shadow.layers}.values())


class Shadows(Batches):
    """Loops over shadows. ``mask`` says where the batch may be at some floating arguments, ``actual`` where it is."""

    def __init__(self, sizes: dict[str, int], sets: Sets) -> None:
        super().__init__(sizes)
        self.sets = sets
        self.actual: Any = np.True_
        self.holds_everywhere = True  # at all floating arguments with the same integers

    @contextmanager
    def actually(self, actual: Any) -> Iterator[None]:
        outer, self.actual = self.actual, actual
        try:
            yield
        finally:
            self.actual = outer

    def decided(self, *shadows: Shadow) -> None:
        """Note that what is found depends on these values: integers that say where or how often."""
        if any([shadow.varies for shadow in shadows]):
            self.holds_everywhere = False

    def length(self, extent: Shadow) -> int:
        """The number of steps of a loop; none where a number that varies was not computed for this point."""
        self.decided(extent)
        return extent_of(np.where(self.actual, extent.value, 0) if extent.varies else extent.value)

    # Layers

    def settled(self, shadow: Shadow, most: int = MOST_LAYERS) -> Shadow:
        """The same shadow with no more than so many layers."""
        if len(shadow.layers) <= most:
            return shadow
        return Shadow(shadow.value, (self.sets.joined(shadow.layers),), shadow.varies)

    def single(self, shadow: Shadow) -> Array:
        """One layer, of the shape of the value; zeros when there is none."""
        layer = self.sets.joined(shadow.layers) if shadow.layers else _NOTHING
        return np.broadcast_to(layer, np.shape(shadow.value))

    def aligned(self, layer: Array, r: int) -> Array:
        """A layer of a value of rank r with an axis for each of the batch."""
        missing = len(self.batch) - (layer.ndim - r)
        if r == 0 or missing == 0:
            return layer
        return layer.reshape(*layer.shape[:r], *(1,) * missing, *layer.shape[r:])

    def map_layers(self, shadow: Shadow, function: Callable[[Any], Any]) -> Shadow:
        """The same function of the value and of each layer: one that only moves elements."""
        return Shadow(function(shadow.value), tuple([function(layer) for layer in shadow.layers]), shadow.varies)

    # Shapes: what batches do with values, done with shadows

    def gathered(self, value: Shadow, r: int) -> Shadow:
        gather = super().gathered
        return self.settled(self.map_layers(value, lambda x: gather(x, r)))

    def stacked(self, values: Sequence[Shadow], r: int) -> Shadow:
        stack = super().stacked
        value = stack([shadow.value for shadow in values], r)
        varies = any([shadow.varies for shadow in values])
        shapes = [[layer.shape for layer in shadow.layers] for shadow in values]
        if any([each != shapes[0] for each in shapes]):
            singles = [self.filled(self.single(shadow), r) for shadow in values]
            return Shadow(value, (np.stack(singles),) if any([s.layers for s in values]) else (), varies)
        columns = zip(*[shadow.layers for shadow in values], strict=True)
        return Shadow(value, tuple([_stacked_once(column) for column in columns]), varies)

    def chosen(self, test: Any, a: Shadow, b: Shadow, r: int) -> Shadow:
        choose = super().chosen
        value = choose(test, a.value, b.value, r)
        layers = []
        for x, y in zip_longest(a.layers, b.layers):
            if x is y:
                layers.append(self.aligned(x, r))
                continue
            x, y = [np.broadcast_to(_NOTHING, np.shape(value)[:r]) if layer is None else layer for layer in (x, y)]
            layers.append(choose(test, x, y, r))
        return self.settled(Shadow(value, tuple(layers), a.varies or b.varies))

    def either(self, test: Shadow, a: Shadow, b: Shadow, r: int) -> Shadow:
        """A choice that may be another one at other arguments."""
        if not self.batch and np.shape(a.value) != np.shape(b.value):
            self.holds_everywhere = False
            return a if test.value else b
        value = super().chosen(test.value, a.value, b.value, r)
        layers = tuple([self.aligned(layer, r) for layer in merged([a, b])])
        return self.settled(Shadow(value, layers, True))


def _stacked_once(layers: Sequence[Array]) -> Array:
    """Arrays of one shape with a new first axis; what all of them only repeat is not written out."""
    if all([layer is layers[0] for layer in layers]):
        return np.broadcast_to(layers[0], (len(layers), *layers[0].shape))
    own = [once(layer) for layer in layers]
    if any([layer.shape != own[0].shape for layer in own]):
        return np.stack(layers)
    return np.broadcast_to(np.stack(own), (len(layers), *layers[0].shape))
