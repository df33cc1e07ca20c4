"""What values show in a notebook: the text that they print, or the numbers that they hold, and no markup of theirs."""

import html
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import adze as az
from adze.core.showing import HTML, Shown


@az.program
def norm2(x: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(az.where(x < 1.0, x * x, 0.0))


@pytest.fixture(scope="module")
def compiled() -> az.Compiled:
    return az.compile(norm2)


class Cells(HTMLParser):
    """The rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("pre", "table", "thead", "tbody", "tr", "th", "td") and not attrs
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1][-1] += data


def shown(value: Any) -> str:
    text = value._repr_html_()
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("program", [norm2, norm2.at(), az.grad(norm2)], ids=repr)
def test_programs_are_their_text(program: Any) -> None:
    text = shown(program)
    assert text == f"<pre>{html.escape(az.pretty(program))}</pre>"
    assert "&lt;" in text


def test_a_program_that_leaves_types_to_its_arguments_shows_its_parameters() -> None:
    assert shown(az.program(lambda x: x)) == "<pre>&lt;program &lt;lambda&gt;(x)&gt;</pre>"


def test_traces_are_their_text() -> None:
    trace = az.trace(norm2)(np.ones(2))
    assert shown(trace) == f"<pre>{html.escape(str(trace))}</pre>"


def test_costs_are_tables(compiled: az.Compiled) -> None:
    cost = az.cost(norm2)
    assert Cells(shown(cost)).rows[1:] == [
        ["operations", str(cost.operations)],
        ["reads", str(cost.reads)],
        ["writes", str(cost.writes)],
        ["span", str(cost.span)],
    ]
    found = compiled.cost(sizes={"n": 1_000_000})
    rows = Cells(shown(found)).rows
    assert rows[0] == ["", "µs", "share", "operations", "bytes", "runs"]
    assert [row[0] for row in rows[1:]] == [*[row.title for row in found.rows], "in all"]
    assert rows[1][1] == f"{1e6 * found.rows[0].seconds:.1f}"
    assert sum([float(row[2].removesuffix(" %")) for row in rows[1:-1]]) == pytest.approx(100, abs=len(rows))


def test_programs_over_chunks_show_their_plan() -> None:
    chunked = az.compile(norm2, backend="dask", over="n")
    assert str(chunked.plan).startswith("stage 1, of each chunk: ") and repr(chunked.plan) == str(chunked.plan)
    assert shown(chunked.plan) == f"<pre>{html.escape(str(chunked.plan))}</pre>"
    assert shown(chunked) == f"{shown(norm2)}<pre>over n, 1 stage\n{html.escape(str(chunked.plan))}</pre>"


def test_decisions_are_tables() -> None:
    @az.program
    def spread(x: az.Array[az.f64, "n"]) -> az.f64:
        y = az.exp(x)
        return az.sum(y) + az.max(y)

    choices = az.compile(spread).decisions(sizes={"n": 10_000})
    rows = Cells(shown(choices)).rows
    assert [row[0] for row in rows[1:]] == [row.name for row in choices.rows] and len(rows) > 1
    assert {row[1] for row in rows[1:]} <= {"yes", "no"}


def test_compiled_programs_are_their_text_and_their_pieces(compiled: az.Compiled) -> None:
    text = shown(compiled)
    assert text.startswith(shown(norm2))
    assert [row[0] for row in Cells(text).rows[1:]] == [each.condition for each in compiled.specialisations]
    assert "not called yet" not in shown(az.compile(az.program(lambda x: x)))


def test_what_has_no_row_shows_nothing() -> None:
    class Bare(Shown):
        """Nothing is entered for it."""

    class More(az.Program):
        """A program by inheritance."""

    assert Bare()._repr_html_() is None
    more = More(norm2.function, "more", norm2.parameters)
    assert re.match(r"<pre>def more\(", shown(more))
    assert Shown not in HTML
