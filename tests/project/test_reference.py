"""The reference of the site, as far as it needs no MkDocs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import adze as az

SOURCE = Path(__file__).parents[2] / "docs" / "_site" / "reference.py"


def _reference() -> ModuleType:
    """The module that writes it, which refuses public names that have no page, or two."""
    found = importlib.util.spec_from_file_location("reference", SOURCE)
    assert found and found.loader
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)  # its data classes look there
    found.loader.exec_module(module)
    return module


def test_every_public_name_has_an_entry() -> None:
    texts = [page.text() for page in _reference().PAGES]
    for name in set(az.__all__) - {"linalg", "random"}:
        assert sum(f"## az.{name} {{ #{name} }}" in text for text in texts) == 1, name
