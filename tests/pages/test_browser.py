"""The page in a browser: pointing, holding, folding, searching, the keyboard alone, ten thousand lines, two themes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_explorer import CENTROIDS, GRADIENT, HOSTILE, POINTS

import adze as az
from adze.core.source import Origin
from adze.pages.panels import Line, Panel

pytestmark = pytest.mark.unguarded

LIT = "(key) => [...document.querySelectorAll(`#${key} .lit`)].map((line) => line.textContent.trim())"


@pytest.fixture(scope="module")
def explored() -> az.Page:
    return az.explore(GRADIENT, POINTS, CENTROIDS, kernels=False)


@pytest.fixture(scope="module")
def saved(explored: az.Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    explored.save(path)
    return path


@pytest.fixture
def opened(browser: Any, saved: Path) -> Iterator[Any]:
    """The page, which must ask for nothing and complain of nothing."""
    view = browser.new_page(viewport={"width": 1500, "height": 1000})
    wrong: list[str] = []
    view.on("console", lambda message: wrong.append(message.text))
    view.on("pageerror", lambda error: wrong.append(str(error)))
    view.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    view.goto(saved.as_uri())
    yield view
    view.close()
    assert not wrong


def line(view: Any, key: str, text: str) -> Any:
    return view.locator(f"#{key} .line", has_text=text).first


def lit(view: Any, key: str) -> list[str]:
    return [str(text) for text in view.evaluate(LIT, key)]


def test_pointing_at_a_line_lights_what_came_from_it(opened: Any) -> None:
    line(opened, "source", "distances = ").hover()
    assert any("+=" in text for text in lit(opened, "derivative"))
    assert not any("accumulate" in text for text in lit(opened, "derivative"))
    assert any("fma(" in text for text in lit(opened, "loops"))
    assert any("llvm.fma" in text for text in lit(opened, "llvm"))
    assert lit(opened, "assembly")
    line(opened, "source", "return az.sum(costs)").hover()
    assert not any("fma(" in text for text in lit(opened, "loops"))
    opened.locator("h1").hover()
    assert not lit(opened, "loops") and not lit(opened, "source")


def test_a_statement_of_the_loops_lights_its_own_code_alone(opened: Any) -> None:
    statement = opened.locator("#loops .line", has_text="fma(").filter(has_text="sum")
    statement.hover()
    assert len(lit(opened, "loops")) == 1
    code = lit(opened, "llvm")
    assert any("llvm.fma" in text for text in code)
    assert not any("icmp" in text for text in code)
    assert len(lit(opened, "source")) == 1 and "distances = " in lit(opened, "source")[0]


def test_a_held_line_stays_lit_and_is_shown_everywhere(opened: Any) -> None:
    line(opened, "source", "distances = ").click()
    opened.locator("h1").hover()
    assert lit(opened, "loops")
    for key in ("loops", "llvm", "assembly"):
        inside = "(key) => { const text = document.querySelector(`#${key} pre`).getBoundingClientRect();"
        inside += "return [...document.querySelectorAll(`#${key} .lit`)].some((line) => {"
        inside += "const at = line.getBoundingClientRect(); return at.top >= text.top && at.bottom <= text.bottom; }) }"
        assert opened.evaluate(inside, key), key
    opened.keyboard.press("Escape")
    assert not lit(opened, "loops")


def test_the_keyboard_alone(opened: Any) -> None:
    """Tab reaches each panel; arrows walk; Enter holds; left and right fold; / searches, n goes on, Escape clears."""
    for _ in range(30):
        opened.keyboard.press("Tab")
        if opened.evaluate("document.activeElement.closest('#loops') && document.activeElement.tagName") == "PRE":
            break
    else:
        pytest.fail("Tab does not reach the loops")
    here = "document.querySelector('.here').textContent"
    first = opened.evaluate(here)
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowDown")
    assert opened.evaluate(here) != first
    active = opened.evaluate("document.activeElement.getAttribute('aria-activedescendant')")
    assert opened.evaluate(f"document.getElementById('{active}').textContent") == opened.evaluate(here)
    opened.keyboard.press("End")
    opened.keyboard.press("Home")
    assert opened.evaluate(here) == first
    shown = "document.querySelectorAll('#loops .line:not([hidden])').length"
    count = opened.evaluate(shown)
    opened.keyboard.press("ArrowLeft")  # folds the function
    assert opened.evaluate(shown) == 1
    opened.keyboard.press("ArrowDown")
    assert opened.evaluate(here) == first
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate(shown) == count
    opened.keyboard.press("/")
    opened.keyboard.type("fma(")
    hits = opened.locator(".line.hit").count()
    assert hits >= 2 and opened.locator("#found").text_content() == f"{hits} lines"
    opened.keyboard.press("Enter")
    assert "fma(" in opened.evaluate(here)
    opened.keyboard.press("n")
    assert "fma(" in opened.evaluate(here) and opened.locator("#found").text_content() == f"2 of {hits}"
    opened.keyboard.press("Escape")
    assert opened.locator(".hit, .lit, .here").count() == 0
    opened.keyboard.press("/")
    assert opened.evaluate("document.activeElement.id") == "search"


def test_panels_and_blocks_fold(opened: Any) -> None:
    opened.locator("#nests summary").click()
    assert not opened.locator("#nests pre").is_visible()
    opened.locator("#nests summary").click()
    nest = opened.locator("#nests .line", has_text="nest ").first
    inner = opened.locator("#nests .line").nth(int(nest.get_attribute("data-number")))
    assert inner.is_visible()
    nest.dblclick()
    assert not inner.is_visible() and nest.get_attribute("aria-expanded") == "false"
    opened.locator("#search").fill(inner.text_content().strip())
    opened.keyboard.press("Enter")
    assert inner.is_visible()  # what is found is unfolded


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_in_both_themes(browser: Any, saved: Path, scheme: str) -> None:
    """Text and lit lines have the contrast that WCAG 2.1 asks of text (1.4.3, AA)."""
    view = browser.new_page(color_scheme=scheme)
    view.goto(saved.as_uri())
    found = line(view, "loops", "lanes ")
    colours = "(line) => { const style = getComputedStyle(line); return [style.color, style.backgroundColor]; }"
    plain = found.evaluate(colours)
    assert contrast(*plain) > 7
    found.hover()
    assert found.evaluate(colours) != plain and contrast(*found.evaluate(colours)) > 4.5
    about = f"(p) => [({colours})(p)[0], ({colours})(p.parentNode)[1]]"
    assert contrast(*view.locator("#loops > p").evaluate(about)) > 4.5
    assert (luminance(plain[1]) > 0.5) == (scheme == "light")
    view.close()


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, bright = sorted([luminance(one), luminance(other)])
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.rest
def test_ten_thousand_lines_without_lag(browser: Any, tmp_path: Path) -> None:
    origins = [frozenset([Origin("f.py", number)]) for number in range(10)]
    long = [Line(f"{'  ' * (k % 7)}let t{k} = x{k}", origins[k % 10], loops=frozenset([k])) for k in range(10_000)]
    source = [Line(f"line {k}", origins[k], number=k + 1) for k in range(10)]
    loops = Panel.of("loops", "Loops", "", long, ("loop", "source"))
    az.Page("long", (Panel.of("source", "Source", "", source), loops)).save(tmp_path / "long.html")
    view = browser.new_page()
    view.goto((tmp_path / "long.html").as_uri())
    taken = """() => new Promise((done) => {
      const lines = [...document.querySelectorAll("#source .line")], times = [];
      const next = (k) => {
        if (k === lines.length) return done(times.sort((a, b) => a - b)[lines.length / 2]);
        const start = performance.now();
        lines[k].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
        document.body.getBoundingClientRect();
        times.push(performance.now() - start);
        requestAnimationFrame(() => next(k + 1));
      };
      next(0);
    })"""
    assert view.evaluate(taken) < 100  # ms, each of which lights a thousand lines: some 3 where nothing else runs
    assert view.locator("#loops .lit").count() == 1000
    view.keyboard.press("/")
    view.keyboard.type("t999")
    assert view.locator("#found").text_content() == "11 lines"
    view.close()


def test_it_reads_without_scripts(browser: Any, saved: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(saved.as_uri())
    assert line(view, "loops", "lanes ").is_visible()
    view.locator("#loops summary").click()
    assert not line(view, "loops", "lanes ").is_visible()
    context.close()


def test_a_hostile_program_runs_nothing_in_a_page_or_a_notebook(browser: Any, tmp_path: Path) -> None:
    hostile = Line(f'"{HOSTILE}', frozenset([Origin(f"{HOSTILE}.py", 1)]), frozenset([f'"{HOSTILE}']), remark=HOSTILE)
    page = az.Page(f"f{HOSTILE}", (Panel.of("source", HOSTILE, HOSTILE, [hostile], ("name", "source")),))
    page.save(tmp_path / "hostile.html")
    (tmp_path / "notebook.html").write_text(f"<!doctype html>{page._repr_html_()}", encoding="utf-8")
    for name in ("hostile.html", "notebook.html"):
        view = browser.new_page()
        said: list[str] = []
        view.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))  # noqa: B023
        view.goto((tmp_path / name).as_uri())
        frame = view.frames[-1]
        assert frame.locator("img").count() == 0 and frame.locator("script").count() == 1
        assert HOSTILE in frame.locator("h1").text_content()
        assert not said
        view.close()


@pytest.mark.rest
def test_a_page_in_a_notebook_works_and_cannot_touch_it(browser: Any, explored: az.Page, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html>{explored._repr_html_()}", encoding="utf-8")
    view = browser.new_page(viewport={"width": 1500, "height": 1000})
    view.goto(notebook.as_uri())
    frame = view.frames[1]
    line(frame, "source", "distances = ").hover()
    assert frame.locator("#loops .lit").count() > 0
    reach = "() => { try { return String(parent.document.title); } catch (error) { return error.name; } }"
    reached = frame.evaluate(reach)
    assert reached == "SecurityError"
    view.close()
