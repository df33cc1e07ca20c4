"""Without PyTorch ``az.torch`` says what installs it."""

import sys

import pytest

import adze as az
from adze.interop.tensors import pytorch


def test_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    pytorch.cache_clear()
    with pytest.raises(ImportError, match=r"az\.torch needs the package torch: pip install 'adze\[torch\]'"):
        az.torch(lambda x: x)
