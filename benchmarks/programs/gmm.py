"""The Gaussian mixture model of examples/gmm.py, with inputs and answers as GradBench writes them.

Source: ADBench, in GradBench (gmm).
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import adze as az


def load_example() -> ModuleType:
    """examples/gmm.py as a module."""
    if "example_gmm" not in sys.modules:
        file = Path(__file__).resolve().parents[2] / "examples" / "gmm.py"
        spec = importlib.util.spec_from_file_location("example_gmm", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["example_gmm"] = module
        spec.loader.exec_module(module)
    return sys.modules["example_gmm"]


example = load_example()

FUNCTIONS = {"objective": example.objective, "jacobian": az.grad(example.objective, argnums=(0, 1, 2, 3))}


def arguments(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The four parameters of the mixture, the points, and the two parameters of the prior."""
    d, k, n = given["d"], given["k"], given["n"]
    shapes = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, d * (d - 1) // 2), "x": (n, d)}
    arrays = [np.array(given[name], dtype=np.float64).reshape(shape) for name, shape in shapes.items()]
    return *arrays, float(given["gamma"]), int(given["m"])


def answer(function: str, result: Any) -> Any:
    """The objective; or its gradient, an array for each of the parameters."""
    return result if function == "objective" else dict(zip(example.PARTS, result, strict=True))
