"""The scripts of ``examples/`` and the programs of ``benchmarks/programs/`` as modules.

They are in no package of this name: users run and read them one by one. An example finds others beside it.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def example(name: str) -> ModuleType:
    """``examples/NAME.py``, imported once."""
    key = f"example_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, ROOT / "examples" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        folder = str(ROOT / "examples")
        sys.path.insert(0, folder)
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(folder)
    return sys.modules[key]


def benchmark(name: str) -> ModuleType:
    """``benchmarks/programs/NAME.py``, imported once."""
    key = "benchmark_programs"
    if key not in sys.modules:
        folder = ROOT / "benchmarks" / "programs"
        spec = importlib.util.spec_from_file_location(
            key, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{key}.{name}")
