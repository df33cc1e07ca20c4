"""Profiles: measured nests beside estimates, the roofline, and the picture of both."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import adze as az
from adze.backends import roofline
from adze.backends.cost import Row
from adze.backends.profile import Profile
from adze.backends.roofline import Roofline
from adze.backends.roofline_chart import Chart, chart
from adze.core.source import Origin

ROOF = Roofline(operations=80e9, bytes=20e9, copied=1 << 20, threads=2)
SVG = "{http://www.w3.org/2000/svg}"


@az.program
def centred(x: az.Array[az.f32, "n m"]) -> az.Array[az.f32, "n m"]:
    return az.exp(x - az.mean(x, 0))


def nest(number: int, name: str, seconds: float, operations: float, count: float) -> Row:
    return Row(number, name, seconds, operations, count, 1.0)


def test_a_profile_has_estimates_and_values() -> None:
    x = np.ones((300, 200), np.float32)
    compiled = az.compile(centred, threads=2)
    found, estimated = compiled.profile(x), compiled.cost(x)
    assert found.estimates == {row.number: row.seconds for row in estimated.rows} and found.threads == 2
    heads, first, *_ = str(found).splitlines()
    assert heads.split() == ["us", "estimate", "operations", "bytes", "runs"]
    row = found.rows[0]
    assert first.split()[-5:-3] == [f"{1e6 * row.seconds:.1f}", f"{1e6 * found.estimates[row.number]:.1f}"]
    argument, result = found.values
    assert argument is x and np.array_equal(result, compiled(x))


@az.program
def weighted(x: az.Array[az.f64, "n m"]) -> az.f64:
    mean = az.mean(x, 0)
    order = az.argsort(mean)
    spread = az.exp(x - mean)
    return az.sum(spread * mean[order])


@pytest.mark.rest
def test_rows_name_the_lines_of_what_they_compute() -> None:
    """By the arrays that they write, whether measured or estimated; a nest of fused lines has each of them."""
    x = np.random.default_rng(0).random((300, 200))
    first = weighted.function.__code__.co_firstlineno + 1
    wanted = {"array4": {first + 1}, "order": {first + 2}, "partial": {first + 3, first + 4}}
    compiled = az.compile(weighted, threads=2)
    for found in (compiled.profile(x), compiled.cost(x), compiled.cost(sizes={"n": 300, "m": 200})):
        for name, lines in wanted.items():
            row = next(row for row in found.rows if row.name.startswith(name))
            assert {line.file for line in row.lines} == {__file__}
            assert [line.line for line in row.lines] == sorted(lines)
            numbers = ", ".join(map(str, sorted(lines)))
            assert f"{row.name} ({Path(__file__).name}:{numbers})  " in str(found)


def test_rows_of_a_derivative_name_the_lines_of_the_program() -> None:
    first = weighted.function.__code__.co_firstlineno + 1
    found = az.compile(az.grad(weighted), threads=1).cost(sizes={"n": 300, "m": 200})
    lines = {line.line for row in found.rows for line in row.lines}
    assert lines == {first + 1, first + 2, first + 3, first + 4}


def test_the_roofline_of_a_profile_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measure(*given: Any) -> Roofline:
        asked.append(given)
        return ROOF

    monkeypatch.setattr(roofline, "measure", measure)
    x = np.ones((300, 200), np.float32)
    found = az.compile(centred, threads=1).profile(x)
    assert not asked
    assert found.roofline is found.roofline is ROOF
    assert asked == [(1, az.f32, 2 * x.nbytes)]
    for row in found.rows:
        assert found.at_best(row) == max(row.operations / 80e9, row.bytes / 20e9)


def test_rates_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def least(program: Any, arguments: Any, threads: int) -> float:
        ran.append(program.name)
        return 0.5

    monkeypatch.setattr(roofline, "_least", least)
    roofline._adding.cache_clear()
    roofline._copying.cache_clear()
    try:
        small, large = [roofline.measure(3, az.f64, touched) for touched in (1, 1 << 20)]
        assert roofline.measure(3, az.f64, 2) == small
        assert ran == ["multiply_adds", "copy", "copy"]
        assert small.operations == large.operations == 2 * 2 * 3 * 4 * 250 * 2**14
        assert (small.copied, small.bytes) == (2**19, 2**20) and (large.copied, large.bytes) == (2**20, 2**21)
    finally:
        roofline._adding.cache_clear()
        roofline._copying.cache_clear()


def test_nests_stand_where_their_rates_are() -> None:
    """At the ridge, on the slope, and far below the roof; decades are equally far from each other."""
    rows = [
        nest(0, "ridge", 1.0, 80e9, 20e9),
        nest(1, "slope", 0.5, 1e9, 10e9),
        nest(2, "below", 0.25, 1e9, 10e9 / 4),
    ]
    root = ElementTree.fromstring(chart(rows, ROOF).svg)
    disks = {disk.findtext(f"{SVG}title"): disk for disk in root.iter(f"{SVG}circle")}
    x, y = [{name: float(disk.get(key, "")) for name, disk in disks.items()} for key in ("cx", "cy")]
    (roof,) = root.iter(f"{SVG}polyline")
    corners = [[float(number) for number in point.split(",")] for point in roof.get("points", "").split()]
    assert corners[1] == [x["ridge"], y["ridge"]] and corners[2][1] == corners[1][1]
    slope = (corners[1][1] - corners[0][1]) / (corners[1][0] - corners[0][0])
    assert y["slope"] == pytest.approx(corners[0][1] + slope * (x["slope"] - corners[0][0]), abs=0.2)
    across = (x["ridge"] - x["slope"]) / math.log10(4 / 0.1)  # a decade
    up = (y["below"] - y["ridge"]) / math.log10(80 / 4)
    assert x["below"] - x["slope"] == pytest.approx(across * math.log10(4), abs=0.2)
    assert y["slope"] - y["ridge"] == pytest.approx(up * math.log10(80 / 2), abs=0.2)
    radii = {name: float(disk.get("r", "")) for name, disk in disks.items()}
    assert radii["ridge"] == pytest.approx(2 * radii["below"], abs=0.1)


def test_nests_are_listed_with_their_shares() -> None:
    rows = [
        nest(0, "a <script>alert(1)</script> & more", 3.0, 120e9, 30e9),
        nest(1, "moved", 1.0, 3, 10e9),
        nest(2, "counts", 1.0, 0, 0),
        nest(3, "never", 0.0, 1e9, 1e9),
        nest(4, "x" * 200, 1.0, 40e9, 0),
    ]
    rows[1] = replace(rows[1], lines=(Origin("some/model.py", 3), Origin("some/model.py", 12)))
    svg = chart(rows, ROOF).svg
    root = ElementTree.fromstring(svg)
    listed = [text.text or "" for text in root.iter(f"{SVG}text") if text.get("x") == "16"]
    assert listed[:3] == [
        "1   50% of the time   50% of the roof (arithmetic)  a <script>alert(1)</script> & more",
        "2   17% of the time   50% of the roof (memory)  moved (model.py:3, 12)",
        "3   17% of the time  nothing that is counted  counts",
    ]
    assert len(listed) == 4 and listed[3].startswith("4   17% of the time   50% of the roof (arithmetic)  xxx")
    assert len(listed[3]) == 96 and listed[3].endswith("...")
    assert len(list(root.iter(f"{SVG}circle"))) == 1 and "<script" not in svg


def test_a_plot_is_a_file_or_shown_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "measure", lambda *given: ROOF)
    picture = az.compile(centred, threads=1).profile(np.ones((30, 20), np.float32)).plot()
    assert isinstance(picture, Chart) and picture._repr_svg_() == picture.svg
    picture.save(tmp_path / "roofline.svg")
    assert (tmp_path / "roofline.svg").read_text(encoding="utf-8") == picture.svg
    with pytest.raises(ValueError, match=r"a chart is saved as \.svg, not as 'roofline\.png'"):
        picture.save(tmp_path / "roofline.png")


def test_a_device_has_no_roofline() -> None:
    found = Profile((nest(0, "kernel", 1.0, 1e9, 1e9),), 1.0, {0: 0.5}, None, [])
    assert found.roofline is None and found.at_best(found.rows[0]) is None
    with pytest.raises(RuntimeError, match="the roofline of a device is not measured"):
        found.plot()
