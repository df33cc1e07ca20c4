"""Settings of the test suite.

Hypothesis runs under one of three profiles: ``fast``, the default, and ``long`` (``make test-all``) draw the same
examples each time, so that a failure is a change in the code; ``sweep`` (``make sweep``) draws many, and new ones each
time. None has a deadline, because the first call of a program compiles it.

Typeguard checks every call of the package, which takes most of the time of a test. So ``make`` runs tests in processes
where modules do not even call it (``--typeguard-packages=``), and those of the fast run once more with it, in ``make
test-all``. Long runs that make the same calls on more programs or inputs, which are marked ``slow`` or ``unguarded``,
always run without.

Modules with these checks have bytecode of their own, apart from that of other processes, which would run it: a module
that is imported by one that is checked there takes its bytecode from under the same name.

No machine code is kept on disk, nor taken from there, but in the tests of that.

``--within SECONDS`` is for a long run on a machine that may be slow: a test that would begin later is not run, and the
end of the report says how many, of which modules. Modules come in another order each day, so that it is not always the
same ones.
"""

import collections
import datetime
import gc
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typeguard
from hypothesis import HealthCheck, settings

sys.pycache_prefix = sys.pycache_prefix or str(Path(__file__).resolve().parent.parent / ".pytest_cache" / "checked")

import quick_checks  # noqa: E402
from browser import browser  # noqa: E402, F401  (a fixture)
from command_line import commands  # noqa: E402, F401  (a fixture)
from opencl_device import oclgrind, opencl  # noqa: E402, F401  (fixtures; this imports the package)
from sampling import leave_the_rest  # noqa: E402

quick_checks.install()

collect_ignore = ["smoke.py"]  # a script for an installed Adze; doctest collection would import it

os.environ["ADZE_CACHE"] = "off"  # of the processes that tests start, too

settings.register_profile(
    "fast",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "sweep",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fast")


BEGAN = pytest.StashKey[float]()
TOO_LATE = "not run: the time was over"
DAY = os.environ.setdefault("ADZE_TESTS_OF", f"{datetime.date.today()}")  # of the processes that this one starts, too


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--within", type=float, metavar="SECONDS", help="do not run tests that would begin later")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGAN] = time.monotonic()


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_the_rest(items)
    if config.getoption("--within") is not None:
        items.sort(key=lambda item: hashlib.sha256(f"{DAY} {item.path}".encode()).digest())


def pytest_runtest_setup(item: pytest.Item) -> None:
    within = item.config.getoption("--within")
    if within is not None and time.monotonic() - item.config.stash[BEGAN] > within:
        pytest.skip(TOO_LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    late = [report for report in terminalreporter.stats.get("skipped", []) if TOO_LATE in str(report.longrepr)]
    if late:
        of = collections.Counter([report.nodeid.partition("::")[0] for report in late])
        terminalreporter.section(
            f"{len(late)} tests were not run within {terminalreporter.config.getoption('--within')} s"
        )
        terminalreporter.write_line(", ".join([f"{name} ({count})" for name, count in sorted(of.items())]))


def pytest_collection_finish() -> None:
    """All tests together are many objects, which the garbage collector looks at again and again, but for this."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _type_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("slow") or request.node.get_closest_marker("unguarded"):
        with typeguard.suppress_type_checks():
            yield
    else:
        yield
