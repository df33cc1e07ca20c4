"""The tests on each Python that the package declares, for who knows nox; ``make test-all-pythons`` runs the same.

    nox --list
    nox                                  # all of them
    nox -s tests-3.12 -- -k primitives   # one of them, with arguments for pytest

What is run, and with which packages, is said in ``tests/pythons.py``, which also takes up a run that was cut short.
"""

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tests"))

import pythons

LOWEST, *_ = pythons.declared()

nox.options.reuse_venv = "yes"


def unit_tests(session: nox.Session, *packages: str) -> None:
    session.install(*packages, "--editable", pythons.EXTRAS)
    for chosen in pythons.CHOSEN:
        session.run("python", *pythons.PYTEST, *chosen, *session.posargs, success_codes=pythons.PASSED)


@nox.session(python=pythons.declared())
def tests(session: nox.Session) -> None:
    """The unit tests with the newest dependencies."""
    unit_tests(session)


@nox.session(python=LOWEST)
def lowest(session: nox.Session) -> None:
    """The unit tests with the lowest dependencies."""
    unit_tests(session, *pythons.lowest())


@nox.session(python=LOWEST)
def next_python(session: nox.Session) -> None:
    """What can be known of the next Python without a run: wheels, byte code, types."""
    session.install("--editable", pythons.EXTRAS)
    session.run("python", "tests/pythons.py", "--next")
