"""The reference of the site, as far as it needs no MkDocs."""

import importlib.util
import re
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


def test_each_public_name_is_stable_or_experimental() -> None:
    """The page has a row for each page of the reference, in the same order, and no name that is not public."""
    reference = _reference()
    experimental = {name for names in reference.by_pages().values() for name in names}
    assert list(reference.by_pages()) == [page.title for page in reference.PAGES]
    assert {"Language", "Chunked", "construct"} <= experimental <= set(az.__all__)
    text = (SOURCE.parents[1] / "stability.md").read_text(encoding="utf-8").partition("| what | why |")[2]
    assert experimental <= set(re.findall(r"`(\w+)`", text.partition("`az.experimental`")[0]))
    assert experimental == set(az.experimental.__all__)
    assert all(getattr(az.experimental, name) is getattr(az, name) for name in experimental)
    for page in reference.PAGES:
        for entry in page.text().split("\n## ")[1:]:
            name = entry.partition(" ")[0].removeprefix("az.")
            assert ("*Experimental*" in entry) == (name in experimental), name


def test_every_public_name_has_an_entry() -> None:
    reference = _reference()
    texts = [page.text() for page in reference.PAGES]
    for name in set(az.__all__) - set(reference.NAMESPACES):
        assert sum(f"## az.{name} {{ #{name} }}" in text for text in texts) == 1, name
