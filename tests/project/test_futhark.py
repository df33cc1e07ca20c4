"""The page for those who come from Futhark: what it says is written here means what Futhark's construct does."""

import os
from typing import Any

import numpy as np
import pytest
from load import ROOT, example

import adze as az
from adze.core import trees

FUTHARK = example("futhark")
UPDATE = bool(os.environ.get("UPDATE"))
ROWS = [row for rows in FUTHARK.CONSTRUCTS.values() for row in rows]


def squares(xs: Any) -> Any:
    return az.sum(xs * xs)


@az.program
def whole(
    xs: az.Array[az.f64, "k"],
    ys: az.Array[az.f64, "k"],
    is_: az.Array[az.i64, "k"],
    bs: az.Array[az.bool_, "k"],
    dest: az.Array[az.f64, "m"],
    xss: az.Array[az.f64, "r c"],
    dxs: az.Array[az.f64, "k"],
    x: az.f64,
    n: az.i64,
    i: az.i64,
    j: az.i64,
    here: str,
) -> Any:
    scope = {**globals(), **locals(), "f": squares}
    return eval(here, scope)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.there)
def test_what_is_written_here_means_what_futhark_does(row: Any) -> None:
    values = {"is_" if name == "is" else name: value for name, value in FUTHARK.VALUES.items()}
    expected = trees.flatten(eval(row.meaning, {"np": np, **values}))[0]
    program = whole.at(here=row.here)
    for run in (az.evaluate(program), az.compile(program, threads=2)):
        found = trees.flatten(run(*values.values()))[0]
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert np.asarray(a).dtype.kind == np.asarray(b).dtype.kind
            np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("row", FUTHARK.TYPES, ids=lambda row: row.there)
def test_types_are_those_of_futhark(row: Any) -> None:
    found = eval(row.here)
    assert ", ".join(map(str, found if isinstance(found, tuple) else [found])) == row.meaning


def test_the_page_has_the_table() -> None:
    page = ROOT / "docs" / "futhark.md"
    if UPDATE:
        page.write_text(FUTHARK.with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert FUTHARK.table() in text and FUTHARK.with_table(text) == text, "UPDATE=1 in the environment writes it"
