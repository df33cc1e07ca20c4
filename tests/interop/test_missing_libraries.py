"""Without another library, what needs it says what installs it."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import adze as az
from adze.interop.jax_arrays import jax_module
from adze.interop.tensors import pytorch

MISSING: dict[str, tuple[Any, Callable[[], Any]]] = {
    "torch": (pytorch, lambda: az.torch(lambda x: x)),
    "jax": (jax_module, lambda: az.jax(lambda x: x)),
}


@pytest.mark.parametrize("name", MISSING)
def test_the_error_names_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, use = MISSING[name]
    monkeypatch.setitem(sys.modules, name, None)
    module.cache_clear()
    with pytest.raises(ImportError, match=rf"az\.{name} needs the package {name}: pip install 'adze\[{name}\]'"):
        use()
