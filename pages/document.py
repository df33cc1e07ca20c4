"""A page: panels as one HTML document, which loads nothing and runs one script.

Everything that comes from a program is escaped. The policy of the document allows its own style and script, by their
hashes, and nothing else; there are no handlers or styles in elements. Without scripts it is a text to read, in
``<details>`` that open and close. In a notebook it stands in a frame of its own, which cannot touch the notebook.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path

from .panels import KINDS, Line, Marks, Panel

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{name}</h1>
<label>Search <input type="search" id="search" autocomplete="off" spellcheck="false"></label>
<output id="found" for="search"></output>
<p>Point at a line, or walk with <kbd>Tab</kbd> <kbd>↑</kbd> <kbd>↓</kbd>: what came from the same place lights up.
<kbd>Enter</kbd> holds it and shows it everywhere, <kbd>←</kbd> <kbd>→</kbd> fold, <kbd>/</kbd> searches,
<kbd>n</kbd> goes on, <kbd>Esc</kbd> clears.</p>
</header>
<main>
{panels}
</main>
<script>{script}</script>
</body>
</html>
"""

_PART = 100  # lines that a browser lays out together, when they come into sight; the style has their height

# Which panels stand below each other, in columns side by side.
_COLUMNS = (
    ("source", "program", "derivative", "decisions"),
    ("nests", "loops"),
    ("llvm", "opencl"),
    ("assembly",),
)

_PANEL = """\
<details open class="panel" id="{key}" data-kinds="{kinds}">
<summary><h2>{title}</h2><span class="lit-count"></span></summary>
<p>{about}</p>
{text}</details>"""


class Page:
    """Panels of a program: ``str`` is the HTML, :meth:`save` writes it, a notebook shows it."""

    def __init__(self, name: str, panels: tuple[Panel, ...]) -> None:
        self.name, self.panels = name, panels

    def __str__(self) -> str:
        marks = Marks()
        style, script = _file("explorer.css"), _file("explorer.js")
        policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
        return _PAGE.format(
            policy=escape(f"{policy}; base-uri 'none'; form-action 'none'"),
            title=escape(f"{self.name} · Adze"),
            name=escape(self.name),
            style=style,
            script=script,
            panels="\n".join([_column(column, self.panels, marks) for column in _COLUMNS]),
        )

    def __repr__(self) -> str:
        return f"<page of {self.name}: {', '.join([panel.key for panel in self.panels])}>"

    def save(self, path: str | Path) -> None:
        """Write the page to a file. ValueError for one that does not end in ``.html``."""
        path = Path(path)
        if path.suffix not in (".html", ".htm"):
            raise ValueError(f"a page is saved as .html, not as {path.name!r}")
        path.write_text(str(self), encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<iframe sandbox="allow-scripts" width="100%" height="720" srcdoc="{escape(str(self))}"></iframe>'


def _column(keys: Sequence[str], panels: Sequence[Panel], marks: Marks) -> str:
    known = {panel.key: panel for panel in panels}
    shown = [_panel(known[key], marks) for key in keys if key in known]
    return "\n".join(["<div>", *shown, "</div>"]) if shown else ""


def _panel(panel: Panel, marks: Marks) -> str:
    text = ""
    if panel.lines:
        lines = "".join(_lines(panel, marks))
        text = f'<pre tabindex="0" role="listbox" aria-label="{escape(panel.title)}">{lines}</pre>\n'
    return _PANEL.format(
        key=escape(panel.key),
        kinds=" ".join(panel.kinds),
        title=escape(panel.title),
        about=escape(panel.about),
        text=text,
    )


def _lines(panel: Panel, marks: Marks) -> Iterator[str]:
    for start in range(0, len(panel.lines), _PART):
        yield '<span class="part">'
        for number, line in enumerate(panel.lines[start : start + _PART], start + 1):
            yield _line(line, number, panel.kinds, marks)
        yield "</span>"


def _line(line: Line, number: int, kinds: tuple[str, ...], marks: Marks) -> str:
    """A line of text, with its marks as attributes and its number where that is not a part of the text."""
    own = marks.of(line)
    data = [f' data-{kind}="{" ".join(map(str, own[kind]))}"' for kind in KINDS if kind in kinds and own[kind]]
    shown = number if line.number is None else line.number
    if shown:
        data.append(f' data-number="{shown}"')
    remark = ""
    if line.remark:
        meter = "" if line.share is None else f'<meter min="0" max="1" value="{line.share:.3f}"></meter>'
        remark = f'<span class="remark">{meter}{escape(line.remark)}</span>'
    return f'<span class="line" role="option"{"".join(data)}>{escape(line.text)}{remark}\n</span>'


@cache
def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
