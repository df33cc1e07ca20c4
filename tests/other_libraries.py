"""The libraries whose arrays programs take, for the tests that need them: PyTorch and JAX.

Where one is missing the test, or the module that asks, is skipped, with what to install; it fails instead if the
environment variable ADZE_REQUIRE_INTEROP is set, as it is in continuous integration.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def library(name: str) -> Any:
    """The package of this name, which is that of the extra that installs it, too."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        reason = f"{error}: pip install 'adze-lang[{name}]'"
        if os.environ.get("ADZE_REQUIRE_INTEROP"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason, allow_module_level=True)


def pytorch() -> Any:
    """The package torch."""
    return library("torch")


def jax_with_x64() -> Any:
    """The package jax, with numbers of 64 bits."""
    jax = library("jax")
    jax.config.update("jax_enable_x64", True)
    return jax
