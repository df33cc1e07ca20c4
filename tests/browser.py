"""A browser for the tests of pages: Debian's Chromium, driven by Playwright.

Where one of them is missing the test is skipped, with what to install; it fails instead if the environment variable
ADZE_REQUIRE_BROWSER is set, as it is in continuous integration. Nothing is downloaded, and pages ask for nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def _missing(reason: str) -> NoReturn:
    """Skip the test, or fail where a browser is required."""
    if os.environ.get("ADZE_REQUIRE_BROWSER"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser, which opens pages (``browser.new_page()``)."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        _missing(f"{error}: pip install 'adze-lang[browser]'")
    program = shutil.which("chromium")
    if program is None:
        _missing("there is no chromium: apt install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        yield opened
        opened.close()
