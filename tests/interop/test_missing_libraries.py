"""Without another library, what needs it says what installs it."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import adze as az
from adze.interop import jax_arrays, outside, tensors

# Each with the library, and what keeps it
MISSING: dict[str, tuple[Callable[[], Any], str, list[Any]]] = {
    "torch": (lambda: az.torch(lambda x: x), "torch", [tensors.pytorch]),
    "from_torch": (lambda: az.from_torch(abs, result=az.f64), "torch", [tensors.pytorch, outside._torch]),
    "jax": (lambda: az.jax(lambda x: x), "jax", [jax_arrays.jax_module]),
    "from_jax": (lambda: az.from_jax(abs, result=az.f64), "jax", [jax_arrays.jax_module, outside._jax]),
}


@pytest.mark.parametrize("verb", MISSING)
def test_the_error_names_the_command(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use, name, caches = MISSING[verb]
    monkeypatch.setitem(sys.modules, name, None)
    for each in caches:
        each.cache_clear()
    with pytest.raises(ImportError, match=rf"this needs the package {name}: pip install 'adze-lang\[{name}\]'"):
        use()
