"""Packages that only some tests need: the libraries whose arrays programs take, and those that make the site.

Where one is missing the test, or the module that asks, is skipped, with what to install; it fails instead if the
environment variable ADZE_REQUIRE_INTEROP is set, as it is in continuous integration.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def library(name: str, install: str = "") -> Any:
    """The package of this name; without a command to ``install`` it, the extra of its name does."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        command = install or f"pip install 'adze-lang[{name}]'"
        reason = f"{error}: {command}"
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
