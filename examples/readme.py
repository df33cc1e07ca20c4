"""The program on the README's first screen, and what its interpretations make of it.

    python examples/readme.py            print what the README shows
    python examples/readme.py --write    put it into the README

In the README each piece stands in a code block behind a comment with its name, ``<!-- readme.py: printed -->``. A
test compares all of them with what this script gives.
"""

import inspect
import re
import sys
from pathlib import Path

import numpy as np

import adze as az

README = Path(__file__).resolve().parent.parent / "README.md"
_BLOCK = re.compile(r"(<!-- readme\.py: (\w+) -->\n```\w*\n)(.*?)(```\n)", re.DOTALL)


@az.program
def cost(points: az.Array[az.f64, "n d"], centroids: az.Array[az.f64, "k d"]) -> az.f64:
    """The k-means cost: for each point, the squared distance to the nearest centroid."""

    def nearest(p: az.Expr) -> az.Expr:
        return az.min(az.map(lambda c: az.sum((p - c) ** 2), centroids))

    return az.sum(az.map(nearest, points))


gradient = az.grad(cost, argnums=1)


def called() -> str:
    """Calls of the program and its gradient, as Python shows them."""
    points = np.array([[0.0, 1.0], [4.0, 4.0], [5.0, 4.0]])
    centroids = np.array([[0.0, 0.0], [4.0, 5.0]])
    lines = [">>> import numpy as np"]
    for text, array in (("points", points), ("centroids", centroids)):
        lines.append(f">>> {text} = np.array({array.tolist()})")
    for text, result in (
        ("float(cost(points, centroids))", float(cost(points, centroids))),
        ("gradient(points, centroids)", gradient(points, centroids)),
    ):
        lines += [f">>> {text}", repr(result)]
    return "\n".join(lines)


def pieces() -> dict[str, str]:
    """What the README shows, by name."""
    parts = ["import adze as az", inspect.getsource(cost.function).rstrip(), "gradient = az.grad(cost, argnums=1)"]
    return {
        "program": "\n\n\n".join(parts),
        "printed": az.pretty(cost),
        "gradient": az.pretty(gradient),
        "called": called(),
    }


def shown(readme: str) -> dict[str, str]:
    """What a README's text shows, by name."""
    return {match[2]: match[3].removesuffix("\n") for match in _BLOCK.finditer(readme)}


def write() -> None:
    """Put the pieces into the README."""
    made, text = pieces(), README.read_text(encoding="utf-8")
    README.write_text(_BLOCK.sub(lambda m: f"{m[1]}{made[m[2]]}\n{m[4]}", text), encoding="utf-8")


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        write()
        return
    for name, text in pieces().items():
        print(f"-- {name}\n{text}\n")


if __name__ == "__main__":
    main()
