"""The page of a program: what is on it, what its lines came from, and that nothing of a program becomes markup."""

import base64
import hashlib
import html
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from opencl_device import device

import adze as az
from adze.backends.llvm.version import Version
from adze.core.program import instance_of
from adze.interpreters.pretty import STYLES, lines
from adze.pages.panels import Line, Panel

HERE = Path(__file__).name
POINTS, CENTROIDS = np.linspace(0.0, 1.0, 600).reshape(200, 3), np.linspace(0.2, 0.8, 12).reshape(4, 3)


@az.program
def cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
    def nearest(p: az.Expr) -> az.Expr:
        distances = az.map(lambda c: az.sum((p - c) ** 2), centroids)
        return az.min(distances)

    costs = az.map(nearest, points)
    return az.sum(costs)


FIRST = cost.function.__code__.co_firstlineno
DISTANCES, LEAST, COSTS, TOTAL = FIRST + 3, FIRST + 4, FIRST + 6, FIRST + 7
GRADIENT = az.grad(cost, argnums=1)


@pytest.fixture(scope="module")
def page() -> az.Page:
    return az.explore(GRADIENT, POINTS, CENTROIDS, kernels=False)


def panel(page: az.Page, key: str) -> Panel:
    (found,) = [each for each in page.panels if each.key == key]
    return found


def came_from(line: Line) -> set[int]:
    assert {Path(origin.file).name for origin in line.origins} <= {HERE}
    return {origin.line for origin in line.origins}


class Reader(HTMLParser):
    """The elements of a page, and the text of lines."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_source_is_what_the_user_wrote(page: az.Page) -> None:
    text = Path(__file__).read_text(encoding="utf-8").split("\n")
    shown = panel(page, "source").lines
    assert [line.number for line in shown] == list(range(FIRST, TOTAL + 1))
    assert [line.text for line in shown] == text[FIRST - 1 : TOTAL]
    assert {line.number for line in shown if line.origins} == {DISTANCES, LEAST, COSTS, TOTAL}


def test_lines_of_printed_programs_know_where_they_were_written(page: az.Page) -> None:
    _, body = panel(page, "program").lines
    assert came_from(body) == {DISTANCES, LEAST, COSTS, TOTAL}
    derivative = panel(page, "derivative").lines
    assert "\n".join([line.text for line in derivative]) == az.pretty(GRADIENT)
    (added,) = [line for line in derivative if "+=" in line.text]
    assert came_from(added) == {DISTANCES}  # the derivative of a square was written where the square was
    (search,) = [line for line in derivative if "reduce" in line.text]
    assert came_from(search) == {DISTANCES, LEAST}


@pytest.mark.parametrize("key", ["nests", "loops"])
def test_lines_of_the_loop_ir_know_where_they_were_written(page: az.Page, key: str) -> None:
    shown = panel(page, key).lines
    (squared,) = [line for line in shown if "fma(" in line.text and "sum" in line.text]
    assert came_from(squared) == {DISTANCES}
    (read,) = [line for line in shown if re.search(r"let t\d+ = points\d+\[.*\]", line.text) and line.names][:1]
    assert came_from(read) == {COSTS}
    bodies = [line for line in shown[1:] if not re.fullmatch(r"\s*(else|before each test)", line.text)]
    known = [line for line in bodies if line.origins]
    assert len(known) > 0.85 * len(bodies)  # not copies of arguments, and what counts pieces
    assert {line for each in known for line in came_from(each)} <= {DISTANCES, LEAST, COSTS, TOTAL}


def test_code_is_on_the_lines_of_the_loops(page: az.Page) -> None:
    loops = panel(page, "loops").lines
    (squared,) = [number for number, line in enumerate(loops, 1) if "fma(" in line.text and "sum" in line.text]
    for key, operation in (
        ("llvm", r"call <\d+ x double> @llvm\.fma|fmul <"),
        ("assembly", r"vfn?m(add|sub)\d+pd|v?mulpd|fmla|fmul"),
    ):
        code = [line for line in panel(page, key).lines if squared in line.loops]
        assert code and all(came_from(line) == {DISTANCES} for line in code)
        assert any(re.search(operation, line.text) for line in code), key
        assert not any("!dbg" in line.text or ".loc" in line.text for line in panel(page, key).lines)


def test_located_code_is_the_code_that_runs() -> None:
    """Debug locations change no instruction."""
    compiled = az.compile(GRADIENT)
    stage = compiled.stage()
    assert isinstance(stage.version, Version)
    _, assembly = stage.version.located(stage.number)

    def instructions(text: list[str]) -> list[str]:
        return [
            line.split("#")[0].strip() for line in text if line.startswith("\t") and not line.startswith(("\t.", "\t#"))
        ]

    assert instructions([line for line, _ in assembly]) == instructions(compiled.assembly.split("\n"))


def test_what_a_call_takes_stands_beside_the_loops(page: az.Page) -> None:
    timed = [line for line in panel(page, "loops").lines if line.remark]
    assert timed and all(re.fullmatch(r"[\d.e+-]+ (s|ms|µs) · \d+ %", line.remark) for line in timed)
    assert 0 < sum([line.share or 0.0 for line in timed]) <= 1.0
    assert "were measured" in panel(page, "loops").about
    estimated = az.explore(GRADIENT, sizes={"n": 1000, "k": 10, "d": 3}, kernels=False)
    assert "estimated" in panel(estimated, "loops").about and any(
        line.remark for line in panel(estimated, "loops").lines
    )
    assert "other side" in panel(estimated, "decisions").lines[0].text


def test_decisions_belong_to_the_lines_that_they_name(page: az.Page) -> None:
    (line,) = [each for each in panel(page, "decisions").lines if each.text.startswith("distribute")]
    assert came_from(line) <= {LEAST, COSTS, DISTANCES} and line.origins


def test_a_program_as_it_was_written_is_shown_with_its_derivative() -> None:
    shown = az.explore(cost, kernels=False)
    assert panel(shown, "derivative").title == "Derivative grad(cost)"
    assert not any(line.remark for line in panel(shown, "loops").lines)

    @az.program
    def doubled(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return 2.0 * x

    assert panel(az.explore(doubled, kernels=False), "derivative").title == "Derivative vjp(doubled)"

    @az.program
    def count(x: az.Array[az.i64, "n"]) -> az.i64:
        return az.sum(x)

    assert panel(az.explore(count, kernels=False), "derivative").about.startswith("There is none: no parameter")


def test_a_program_without_types_takes_them_from_its_arguments() -> None:
    @az.program
    def norm2(x):  # type: ignore[no-untyped-def]
        return az.sum(x * x)

    shown = az.explore(norm2, np.ones(5), kernels=False)
    assert panel(shown, "program").lines[0].text == "def norm2(x: f64[x_0]) -> f64:"
    assert panel(shown, "derivative").lines
    with pytest.raises(TypeError, match="has no annotation"):
        az.explore(norm2)
    with pytest.raises(TypeError, match="not both"):
        az.explore(cost, POINTS, CENTROIDS, sizes={"n": 1})


def test_what_is_only_evaluated_has_no_code_and_says_so() -> None:
    @az.program
    def mapped(f: az.Function[[az.f64], az.f64], x: az.f64) -> az.f64:
        return f(x)

    about = panel(az.explore(mapped, kernels=False), "nests").about
    assert about.startswith("There is no code: ")


@pytest.mark.unguarded
def test_kernels_are_shown_or_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("ADZE_OPENCL_DEVICE", "none of this name")
        assert panel(az.explore(cost), "opencl").about.startswith("Not here: ")
    device()
    kernels = panel(az.explore(cost), "opencl")
    squared = [line for line in kernels.lines if "fma(" in line.text]
    assert squared and all(came_from(line) == {DISTANCES} for line in squared)
    with pytest.raises(TypeError, match="give the program"):
        az.explore(az.compile(cost, backend="opencl"))


HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_nothing_of_a_program_becomes_markup() -> None:
    def f(x):  # type: ignore[no-untyped-def]
        return az.sum(x, 0)  # </script><img src=x onerror=alert(1)> " ' &

    f.__name__ = f"f{HOSTILE}"
    program = az.program(f).at(az.Array[az.f64, "n"])
    shown = az.explore(program, kernels=False)
    text = str(shown)
    read = Reader(text)
    assert {tag for tag, _ in read.elements} <= {
        *("html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "label", "input", "output", "p"),
        *("kbd", "main", "div", "details", "summary", "span", "pre", "meter", "script"),
    }
    assert sum([tag == "script" for tag, _ in read.elements]) == 1
    for _, attributes in read.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    assert HOSTILE in "".join(read.texts)
    assert "onerror=" not in re.sub(r"&lt;img src=x onerror=alert\(1\)&gt;", "", text)
    framed = Reader(shown._repr_html_())
    ((tag, attributes),) = framed.elements
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts" and attributes["srcdoc"] == text


def test_the_policy_allows_the_page_s_own_script_and_style_alone(page: az.Page) -> None:
    text = str(page)
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in Reader(text).elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed["default-src"] == allowed["base-uri"] == allowed["form-action"] == "'none'"
    for element in ("script", "style"):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[f"{element}-src"] == f"'sha256-{digest}'"
    assert not re.search(r"(src|href)=|url\(|@import|https?:", html.unescape(text))


def test_a_page_is_saved_as_html(page: az.Page, tmp_path: Path) -> None:
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == str(page)
    with pytest.raises(ValueError, match=r"saved as \.html"):
        page.save(tmp_path / "page.txt")


@pytest.mark.parametrize("style", STYLES[:1])
def test_lines_together_are_the_printed_program(style: str) -> None:
    instance = instance_of(GRADIENT)
    assert "\n".join([text for text, _ in lines(instance)]) == az.pretty(instance, style=style)


def test_arguments_that_do_not_fit_are_refused_as_in_a_call() -> None:
    with pytest.raises(ValueError, match="d is 3 in argument 'points'"):
        az.explore(cost, POINTS, CENTROIDS[:, :2], kernels=False)
    with pytest.raises(TypeError, match="a value for each size"):
        az.explore(cost, sizes={"n": 3}, kernels=False)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_derivatives_were_written_where_their_operations_were(mode: str) -> None:
    """Those of rules of ours, that is; in a rule of the user's, what it computes was written there."""

    @az.custom_vjp
    def cubed(x: az.Expr) -> az.Expr:
        return x**3

    @cubed.defvjp
    def cubed_backward(primals: tuple[az.Expr], g: az.Expr) -> tuple[az.Expr]:
        return (3.0 * primals[0] ** 2 * g,)

    @az.program
    def f(x: az.f64) -> az.f64:
        return az.tanh(
            az.sin(x) * cubed(x),
        )

    first = f.function.__code__.co_firstlineno + 2
    rule = cubed_backward.__code__.co_firstlineno + 2
    derived = az.grad(f) if mode == "reverse" else az.jvp(f)
    written = {origin.line for _, origins in lines(instance_of(derived)) for origin in origins}
    assert written == {first, first + 1, rule, rule - 4}  # the last computes the cube, which the tangent of tanh needs
