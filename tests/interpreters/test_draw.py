"""Pictures of programs: the Graphviz source, word for word and in general."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from programs import CASES, Case
from sampling import some
from trace_programs import RECURSIVE

import adze as az
from adze.interpreters.drawing.layout import placed
from adze.interpreters.drawing.picture import Edge, Frame

Vector = az.Array[az.f64, "n"]
TRACED: list[tuple[az.Program, tuple[Any, ...]]] = [
    *[(case.program, case.arguments[0]) for case in CASES],
    *[(case.program, case.arguments) for case in RECURSIVE],
]


def assert_well_formed(source: str) -> None:
    """Braces match, every line is one of a few forms, and edges join nodes that are declared before."""
    declared: set[str] = set()
    depth = 0
    for line in map(str.strip, source.splitlines()):
        node = re.fullmatch(r'(n\d+) \[label="(?:[^"\\]|\\.)*"(?:, \w+=\w+)*\];', line)
        edge = re.fullmatch(r"(n\d+) -> (n\d+)(?: \[style=dashed\])?;", line)
        if node:
            assert node[1] not in declared
            declared.add(node[1])
        elif edge:
            assert {edge[1], edge[2]} <= declared
        elif line.endswith("{"):
            assert re.fullmatch(r'digraph "(?:[^"\\]|\\.)*" \{|subgraph cluster\d+ \{', line)
            depth += 1
        elif line == "}":
            depth -= 1
        else:
            assert re.fullmatch(r'node \[shape=box, fontname="Helvetica"\];|label="[^"]*"; style=rounded;', line)
    assert depth == 0 and declared


@pytest.mark.unguarded
@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("case", some(CASES, 4), ids=lambda case: case.name)
def test_every_program_is_drawn(case: Case, simplified: bool) -> None:
    instance = case.program.instance_for(case.program.bind(case.arguments[0], {}))
    drawing = az.draw(instance, simplified=simplified)
    assert_well_formed(str(drawing))
    assert drawing == az.draw(instance, simplified=simplified)


@az.program
def positive(x: Vector) -> az.f64:
    return az.sum(az.where(x > 0, x, 0.0))


SOURCE = r"""digraph "positive" {
  node [shape=box, fontname="Helvetica"];
  n1 [label="x: f64[n]", shape=ellipse];
  subgraph cluster2 {
    label="reduce: element"; style=rounded;
    n3 [label="i < n", shape=ellipse];
    n4 [label="t1 = x[i]\nf64"];
    n1 -> n4;
    n3 -> n4;
    n5 [label="t2 = t1 > 0.0\nbool"];
    n4 -> n5;
    subgraph cluster6 {
      label="cond: then"; style=rounded;
      n7 [label="gives t1", shape=plaintext];
      n4 -> n7;
    }
    subgraph cluster8 {
      label="cond: else"; style=rounded;
      n9 [label="gives 0.0", shape=plaintext];
    }
    n10 [label="t3 = cond(t2)\nf64"];
    n5 -> n10;
    n7 -> n10 [style=dashed];
    n9 -> n10 [style=dashed];
    n11 [label="gives t3", shape=plaintext];
    n10 -> n11;
  }
  n12 [label="t4 = sum(i < n)\nf64"];
  n11 -> n12 [style=dashed];
  n13 [label="return t4", shape=plaintext];
  n12 -> n13;
}"""


def test_source() -> None:
    assert str(az.draw(positive)) == SOURCE
    assert repr(az.draw(positive.at().term)) != ""
    assert str(az.draw(az.simplify(positive.at().term))) == SOURCE.replace("positive", "program")


def test_constructs_with_statements_and_states() -> None:
    @az.program
    def f(x: Vector, i: az.i64) -> Any:
        return az.grad(lambda y: y[i] ** 2)(x), az.fori_loop(0, 3, lambda k, s: s * x[0], 1.0)

    source = str(az.draw(f, simplified=False))
    assert_well_formed(source)
    for label in ("accumulate: body", "loop: step", "generate: element", "require(", "add_to("):
        assert label in source


def test_saved(tmp_path: Path) -> None:
    drawing = az.draw(positive)
    drawing.save(tmp_path / "f.dot")
    assert (tmp_path / "f.dot").read_text(encoding="utf-8") == drawing.dot
    with pytest.raises(ValueError, match=r"saved as \.dot, \.gv or \.svg, not as 'f\.png'"):
        drawing.save(tmp_path / "f.png")


def test_graphviz_draws_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that stands for dot gets the source."""
    drawing = az.draw(positive)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")

    def run(command: list[str], input: str, **_: Any) -> Any:
        assert command == ["/bin/dot", "-Tsvg"] and input == drawing.dot
        return subprocess.CompletedProcess(command, 0, "<svg/>")

    monkeypatch.setattr(subprocess, "run", run)
    assert drawing._repr_svg_() == "<svg/>"
    drawing.save(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text(encoding="utf-8") == "<svg/>"


# Pictures without Graphviz


def assert_laid_out(picture: Frame) -> None:
    """Everything is inside of its frame and beside its neighbours, and edges lead down, from border to border."""
    found = placed(picture)
    boxes = {box.name: box for box in found.boxes}

    def inside(frame: Frame, left: float, top: float, right: float, bottom: float) -> None:
        own = [boxes[item.name] for item in frame.items if not isinstance(item, Edge)]
        for k, box in enumerate(own):
            assert left <= box.x and box.x + box.width <= right and top <= box.y and box.y + box.height <= bottom
            for other in own[:k]:
                beside = box.x + box.width <= other.x or other.x + other.width <= box.x
                assert beside or box.y + box.height <= other.y or other.y + other.height <= box.y
            if isinstance(box.item, Frame):
                inside(box.item, box.x, box.y, box.x + box.width, box.y + box.height)

    inside(picture, 0.0, 0.0, found.width, found.height)
    assert {edge for edge, _ in found.edges} == set(picture.edges())
    for edge, points in found.edges:
        start, end = boxes[edge.start], boxes[edge.end]
        assert points[0] == (start.x + start.width / 2, start.y + start.height)
        assert points[-1] == (end.x + end.width / 2, end.y)
        heights = [y for _, y in points]
        assert heights == sorted(heights)


@pytest.mark.unguarded
@pytest.mark.parametrize("case", some(CASES, 4), ids=lambda case: case.name)
def test_every_program_is_laid_out(case: Case) -> None:
    instance = case.program.instance_for(case.program.bind(case.arguments[0], {}))
    assert_laid_out(az.draw(instance).picture)


def test_pictures_without_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold the same nodes and edges as the source, and notebooks show them."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    drawing = az.draw(az.grad(positive), simplified=False)
    root = ElementTree.fromstring(drawing.svg)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for label in re.findall(r'label="(.*?)"[,\];]', drawing.dot):
        assert set(label.split("\\n")) <= set(texts)
    heads = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == "head"]
    assert len(heads) == drawing.dot.count(" -> ")
    assert drawing._repr_svg_() == drawing.svg
    drawing.save(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text(encoding="utf-8") == drawing.svg


def test_labels_of_pictures_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)

    def f(x: az.Expr) -> az.Expr:
        return az.where(x < 1.0, x, 0.0)

    f.__name__ = "</svg><script>alert(1)</script>"
    text = az.draw(az.program(f).at(az.f64)).svg
    assert "<script" not in text and ElementTree.fromstring(text).tag.endswith("svg")
    assert "x &lt; 1.0" in text


# Traces


@pytest.mark.unguarded
@pytest.mark.parametrize(("program", "arguments"), TRACED, ids=[program.name for program, _ in TRACED])
def test_every_trace_is_drawn(program: az.Program, arguments: tuple[Any, ...]) -> None:
    trace = az.trace(program)(*arguments)
    source = str(az.draw(trace))
    assert_well_formed(source)
    assert str(az.draw(az.trace(program)(*arguments))) == source
    top = [line for line in source.splitlines() if re.match(r"  n\d+ \[", line)]
    assert len(top) >= len(trace.block.binders) + len(trace.block.bindings)


def test_a_graph_has_values() -> None:
    @az.program
    def f(x1: az.f64, x2: az.f64) -> az.f64:
        return x1 + x1 * x2

    assert str(az.draw(az.trace(f)(5.0, 3.0))) == GRAPH


GRAPH = r"""digraph "f" {
  node [shape=box, fontname="Helvetica"];
  n1 [label="x1 = 5.0", shape=ellipse];
  n2 [label="x2 = 3.0", shape=ellipse];
  n3 [label="t1 = x1 * x2\n15.0"];
  n1 -> n3;
  n2 -> n3;
  n4 [label="t2 = x1 + t1\n20.0"];
  n1 -> n4;
  n3 -> n4;
  n5 [label="return t2", shape=plaintext];
  n4 -> n5;
}"""


def test_a_graph_has_the_names_of_the_printed_trace() -> None:
    """Steps are called the same, whatever stands in their sub-traces."""

    @az.program
    def f(x: Vector, a: az.f64) -> az.f64:
        y = az.map(lambda v: az.sin(v * a) * az.cos(v), x)
        return az.sum(y) * az.max(y)

    trace = az.trace(f)(np.array([1.0, 2.0]), 3.0)
    steps = re.findall(r"^  (\w+) = ", str(trace), re.MULTILINE)
    drawn = re.findall(r'^  n\d+ \[label="(\w+) = ', str(az.draw(trace)), re.MULTILINE)
    assert drawn == ["a", *steps]
    assert "f64[2]: [" in str(az.draw(trace))


def test_blocks_have_names() -> None:
    """Those of a custom function are its body and its rules, those of a par have none of their own."""

    @az.custom_jvp
    def square(x: az.Expr) -> az.Expr:
        return x * x

    square.defjvp(lambda primals, tangents: 2.0 * primals[0] * tangents[0])

    @az.program
    def f(x: az.f64) -> az.f64:
        a, b = az.par(lambda: az.checkpoint(az.sin)(x), lambda: square(x))
        return a * b

    labels = re.findall(r'^ *label="(\w+: .*)"; style', str(az.draw(f)), re.MULTILINE)
    assert labels == ["par: branch 1", "custom: body", "par: branch 2", "custom: body", "custom: jvp"]
