"""The reference: every public name with its docstring, on pages by subject.

``docs/stability.md`` says which names are experimental, and their entries say so. A name belongs to the page that has
its module. The build fails for one that belongs to none, so that none is missing.

mkdocstrings is not used: it reads sources, and there elementwise functions are rows of a table. Docstrings are written
for ``help``: names stand in double quotes or behind ``:func:``, examples behind ``>>>``, other code is indented behind
``::``. Here they become Markdown.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adze as az
from adze.core.elementwise import SMOOTH
from adze.core.primitive import Primitive
from adze.core.types import Scalar


@dataclass(frozen=True)
class Page:
    """A page of the reference: the names of some modules, or those of one namespace."""

    title: str
    about: str
    modules: tuple[str, ...] = ()
    namespace: str = ""

    @property
    def path(self) -> str:
        return f"reference/{re.sub('[^a-z]+', '_', self.title.lower())}.md"

    def names(self) -> list[str]:
        if self.namespace:
            found = getattr(az, self.namespace)
            return [f"{self.namespace}.{name}" for name in sorted(found.__all__, key=str.lower)]
        return sorted([name for name in az.__all__ if _module(name) in self.modules], key=str.lower)

    def text(self) -> str:
        entries = [f"# {self.title}", self.about, *[_entry(name) for name in self.names()]]
        return "\n\n".join(entries) + "\n"


PAGES = [
    Page(
        "Programs and types",
        "What a program is made of, and the types of its parameters.",
        (
            *("program", "annotations", "types", "declarations", "data", "case", "functions", "expr"),
            *("vmap", "checkpoint", "custom"),
        ),
    ),
    Page(
        "Interpreters",
        "What a program may mean: a number, text, a picture, a trace, a count, or what you say.",
        ("evaluate", "pretty", "draw", "trace", "check", "simplify", "program_cost", "pages", "language", "reify"),
    ),
    Page(
        "Compiling",
        "Machine code for the cores of a CPU, kernels for OpenCL devices, and chunks of what is larger than memory.",
        ("compile", "compiled", "chunked", "opencl", "progress"),
    ),
    Page(
        "Derivatives",
        "Programs of derivatives, in both modes and to any order; see [derivatives](../derivatives.md).",
        ("verbs", "jacobians", "sparse"),
    ),
    Page(
        "Loops and choices",
        "Maps, reductions, scans, loops with a state, branches and forks.",
        ("control", "fork", "arrays", "reductions", "scans", "accelerate", "order", "sorting"),
    ),
    Page(
        "Arrays",
        "Making, cutting, joining and rearranging arrays.",
        ("shapes", "series", "scattering", "linear"),
    ),
    Page(
        "Elementwise functions",
        "They apply to numbers and, element by element, to arrays; operands are broadcast. Curves: the function, and "
        "thinner its derivative.",
        ("elementwise", "special"),
    ),
    Page(
        "Linear algebra",
        "As in `numpy.linalg` and `scipy.linalg`; see [linear algebra](../linear_algebra.md).",
        namespace="linalg",
    ),
    Page("Random numbers", "As in `jax.random`; see [random numbers](../random.md).", namespace="random"),
    Page(
        "Other libraries",
        "PyTorch, JAX and SciPy; see [torch](../torch.md), [jax](../jax.md), [scipy](../scipy.md).",
        ("interop",),
    ),
    Page("Least squares", "See [least squares](../least_squares.md).", ("solvers",)),
    Page(
        "Additions",
        "Primitives, operations and constructs of your own; see [operations](../operations.md).",
        ("primitive", "operations", "c_functions", "added", "constructs"),
    ),
]


NAMESPACES = ("experimental", "linalg", "random")
STABILITY = Path(__file__).resolve().parents[1] / "stability.md"


def by_pages() -> dict[str, list[str]]:
    """The experimental names of each page of the reference, by its title."""
    rows = [
        line.strip("|").split("|") for line in STABILITY.read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    found = [(cells[0].strip(), re.findall(r"`(\w+)`", cells[-1])) for cells in rows if len(cells) == 3]
    return dict(found[2:])  # without the head and the line below it


def _module(name: str) -> str:
    """The last part of the module that a name belongs to, or its folder where the whole folder is one subject."""
    value = getattr(az, name)
    if name in NAMESPACES:
        return f"namespace {name}"
    if isinstance(value, Primitive):
        return "elementwise"
    if isinstance(value, Scalar):
        return "types"
    parts = getattr(value, "__module__", "").split(".")
    if parts[0] != "adze":
        return "accelerate"  # All, which is what a window may be
    return parts[1] if parts[1] in ("interop", "solvers", "pages") else "opencl" if "opencl" in parts else parts[-1]


def _checked() -> None:
    listed = [name for page in PAGES for name in page.names()]
    missing = {name for name in az.__all__ if name not in NAMESPACES} - set(listed)
    twice = {name for name in listed if listed.count(name) > 1}
    if missing or twice:
        raise LookupError(f"the reference has no page for {sorted(missing)}, and two for {sorted(twice)}")
    known = by_pages()
    titles = [page.title for page in PAGES]
    if list(known) != titles:
        raise LookupError(f"{STABILITY.name} speaks of the pages {list(known)}, and the reference has {titles}")
    for page in PAGES:
        unknown = set(known[page.title]) - set(page.names())
        if unknown:
            raise LookupError(f"{STABILITY.name}: {page.title} has no {sorted(unknown)}")


def _value(name: str) -> Any:
    value: Any = az
    for part in name.split("."):
        value = getattr(value, part)
    return value


# Entries


def _entry(name: str) -> str:
    value = _value(name)
    heading = f"## az.{name} {{ #{name} }}"
    parts = [heading, *_signature(name, value), *_picture(name), _markdown(_documentation(value))]
    if any(name in names for names in by_pages().values()):
        parts.insert(1, "*Experimental*: a minor version may change it ([what is stable](../stability.md)).")
    for member, method in _methods(value):
        parts += [f"### {value.__name__}.{member}", *_signature(member, method), _markdown(_documentation(method))]
    return "\n\n".join(part for part in parts if part)


def _documentation(value: Any) -> str:
    if isinstance(value, Scalar):
        return f"The scalar type of NumPy's `{value.dtype}`, for annotations and conversions."
    return inspect.getdoc(value) or ""


def _signature(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Primitive | Scalar) or not callable(value):
        return
    try:
        text = f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return
    text = re.sub(r"'([^',]*)'(?=[,)\s]|$)", r"\1", re.sub(r"(?<=: |> )'([^']*)'", r"\1", text))
    if len(text) > 100:
        text = textwrap.fill(text, 100, subsequent_indent="    ", break_long_words=False)
    yield f"```python\n{text}\n```"


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that is documented member by member."""
    if not inspect.isclass(value) or issubclass(value, az.Language | Primitive):
        return
    for name, member in vars(value).items():
        shown = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and callable(shown) and inspect.getdoc(shown):
            yield name, shown


# Text

_CODE = re.compile(r"``([^`]+)``")
_ROLE = re.compile(r":(?:func|class|meth|attr):`~?([\w.]+)`")


def _markdown(text: str) -> str:
    """A docstring as Markdown: examples and code are fenced, names are code."""
    blocks = re.split(r"\n\s*\n", text)
    made: list[str] = []
    was_literal = False
    for block in blocks:
        lines = block.splitlines()
        if lines and lines[0].lstrip().startswith(">>>"):
            made.append("```pycon\n" + textwrap.dedent(block) + "\n```")
            continue
        if was_literal and block.startswith("    "):
            made.append("```text\n" + textwrap.dedent(block) + "\n```")
            continue
        was_literal = block.endswith("::")
        block = block.removesuffix("::") + (":" if was_literal else "")
        plain = [line for line in block.splitlines() if not line.lstrip().startswith(">>>")]
        block = "\n".join(plain)
        made.append(_ROLE.sub(r"`\1`", _CODE.sub(r"`\1`", block)))
    return "\n\n".join(made)


# Pictures


def _picture(name: str) -> Iterator[str]:
    """The curve of a function of one floating number, and of its derivative, as SVG."""
    if name not in SMOOTH or len(SMOOTH[name][2]) != 1 or name == "stop_gradient":
        return
    row = getattr(az, name)
    x = np.linspace(-4.0, 4.0, 321)
    slope = az.evaluate(az.vmap(az.grad(lambda x: row(x))))(x)
    curves = [("value", row(x)), ("slope", slope)]
    lines = "".join([f'<path class="{kind}" d="{path}"/>' for kind, y in curves for path in _paths(x, y)])
    axes = '<path class="axis" d="M-4 0H4M0 -4V4"/>'
    yield f'<svg class="curve" viewBox="-4 -4 8 8" role="img" aria-label="the curve of {name}">{axes}{lines}</svg>'


def _paths(x: Any, y: Any) -> Iterator[str]:
    """The stretches of a curve that are inside of the picture."""
    inside = np.isfinite(y) & (abs(y) <= 4)
    jumps = np.flatnonzero(np.diff(inside.astype(int)) != 0) + 1
    breaks = np.flatnonzero(abs(np.diff(np.where(inside, y, 0.0))) > 0.5) + 1
    for part in np.split(np.arange(len(x)), np.union1d(jumps, breaks)):
        if len(part) > 1 and inside[part].all():
            yield "M" + " ".join([f"{x[k]:.3g} {-y[k]:.3g}" for k in part])


_checked()
