"""Pages of the site beside those of ``docs/``: the reference, the examples, and what lies elsewhere in the repository.

MkDocs calls ``on_files`` before it reads pages, and ``on_page_markdown`` with the text of each. A link out of ``docs/``
leads to the page that was made of the file: ``../examples/gmm.py`` to ``examples/gmm.md``, which shows the source.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import reference

ROOT = Path(__file__).resolve().parents[2]
# Files of the repository that are pages or pictures of the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/results/bench.md": "benchmarks/results/bench.md",
    "benchmarks/results/gradbench.md": "benchmarks/results/gradbench.md",
    "benchmarks/results/gpu.md": "benchmarks/results/gpu.md",
    "benchmarks/results/large.md": "benchmarks/results/large.md",
    "benchmarks/results/trace.md": "benchmarks/results/trace.md",
    "benchmarks/results/bench.png": "benchmarks/results/bench.png",
    "benchmarks/results/growth.png": "benchmarks/results/growth.png",
}
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))

_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")


def on_config(config: Any) -> Any:
    """The reference, the examples and the results are in the navigation, too."""
    reports = [path for path in ELSEWHERE.values() if path.startswith("benchmarks/") and path.endswith(".md")]
    sections = {title: pages for part in config["nav"] for title, pages in part.items()}
    sections["Performance"] += [{posixpath.basename(path).removesuffix(".md"): path} for path in reports]
    config["nav"].insert(5, {"Reference": [{page.title: page.path} for page in reference.PAGES]})
    config["nav"].append({"Examples": [{_title(name): _example(name)} for name in EXAMPLES]})
    return config


def on_files(files: Files, config: Any) -> Files:
    made = {page.path: page.text() for page in reference.PAGES}
    made |= {_example(name): _source(name) for name in EXAMPLES}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    for source, path in ELSEWHERE.items():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The text with its links out of ``docs/`` set to the pages of the site."""
    here = page.file.src_uri
    found = {path: source for source, path in ELSEWHERE.items()}
    place = posixpath.dirname(found.get(here, f"docs/{here}"))

    def linked(match: re.Match[str]) -> str:
        to = posixpath.normpath(posixpath.join(place, match[1]))
        if to.startswith("docs/"):
            path = to.removeprefix("docs/")
        elif to in ELSEWHERE:
            path = ELSEWHERE[to]
        elif to.startswith("examples/") and to.endswith(".py"):
            path = _example(posixpath.basename(to))
        else:
            return match[0]
        return posixpath.relpath(path, posixpath.dirname(here) or ".") + (match[2] or "")

    return _LINK.sub(linked, markdown)


def _example(name: str) -> str:
    return f"examples/{name.removesuffix('.py')}.md"


def _title(name: str) -> str:
    return name.removesuffix(".py").replace("_", " ").capitalize()


def _source(name: str) -> str:
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    return f"# {_title(name)}\n\n`python examples/{name}`\n\n```python\n{text}```\n"
