"""PyTorch, for the tests that need it.

Where it is missing the test, or the module that asks, is skipped, with what to install; it fails instead if the
environment variable ADZE_REQUIRE_TORCH is set, as it is in continuous integration.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def pytorch() -> Any:
    """The package torch."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        reason = f"{error}: pip install 'adze[torch]'"
        if os.environ.get("ADZE_REQUIRE_TORCH"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason, allow_module_level=True)
